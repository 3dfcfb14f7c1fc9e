"""Model files: written as a whole or not at all, and learned attributes as the plain values that they hold."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray

from colonnade.disk import reading, writing
from colonnade.errors import ColonnadeError, PrivacyError, StorageError, StudyError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

ARRAYS = ".npz"
"""The ending of the file with a model's arrays."""
_STRAY = "allow_pickle"  # releases before this one, with an older numpy, wrote this argument as an array too
LARGEST = 2.0**200
"""Of any learned number: far above what data and noise can make, and products of a few of them are finite."""
_PACKED = 16  # we write arrays as they are; a file that somebody compressed may be so many times smaller


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Name the file in every error, also where what it holds cannot be used and nobody foresaw how."""
    try:
        yield
    except ColonnadeError as error:
        said = str(error) if str(error).startswith(str(path)) else f"{path}: {error}"
        kind = PrivacyError if isinstance(error, PrivacyError) else StudyError
        raise kind(reading.shorten(said)) from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise StudyError(f"{path} is damaged: {type(error).__name__} while reading it [ST091]") from None


def replace_file(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file as a whole or not at all; other users can never read a private one. Raises an OSError."""
    writing.write_files({path: content}, private=private)


def write_whole(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file as a whole or not at all. Raises a StorageError that names it."""
    try:
        replace_file(path, content, private=private)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror} [SO020]") from None


replace_private = partial(write_whole, private=True)
"""The same for a private file, which other users can never read."""


def write_together(contents: Mapping[Path, bytes], *, private: bool = False) -> None:
    """Write the files of a model, its JSON last; private ones so that other users can never read them.

    If the last step fails, the arrays are new and the JSON, which holds their digest, is not: reading both says so.
    """
    try:
        writing.write_files(contents, private=private)
    except OSError as error:
        raise StudyError(f"{error.filename} cannot be written: {error.strerror} [ST092]") from None


def pack_arrays(arrays: Mapping[str, NDArray[Any]], path: Path) -> bytes:
    """Arrays of numbers and texts as the content of a file without pickles; ``path`` is the model's, for errors."""
    if wrong := [name for name, array in arrays.items() if array.dtype.hasobject]:
        raise StudyError(f"{path} holds arrays of plain numbers and texts, and {wrong[0]} is none [ST093]")
    return packed(arrays)


def packed(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays of numbers and texts as the content of a file without pickles; a ValueError if one holds objects."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:  # what savez of an older numpy does, which cannot refuse pickles
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return held.getvalue()


def read_arrays(path: Path, digest: str) -> dict[str, NDArray[Any]]:
    """The arrays of a file; an error if its digest is not the one in the model's JSON, or it holds no arrays."""
    try:
        content = reading.read_bytes(path, reading.MAX_LEARNED_BYTES)
    except reading.UnreadableFile as error:
        raise StudyError(
            f"{path}, which belongs to the model, cannot be read: {error}; keep both files together, with the "
            "same name before the ending [ST094]"
        ) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise StudyError(
            f"{path} does not belong to the model beside it, or is damaged: copy both files together [ST095]"
        )
    try:
        return unpack_arrays(content)
    except ValueError:
        raise StudyError(f"{path} holds no arrays that can be read [ST096]") from None


def unpack_arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """The arrays in the content of a file; a ValueError if there are none, or far more than its size can hold."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(member.file_size for member in archive.infolist()) > _PACKED * len(content):
                raise ValueError("it would grow too large [VA020]")
        with np.load(io.BytesIO(content), allow_pickle=False) as held:
            found = {name: held[name] for name in held.files if name != _STRAY}
            if any(array.dtype.kind == "c" for array in found.values()):
                raise ValueError("complex numbers [VA740]")
            return found
    except Exception as error:  # what is damaged, or made to be, may raise anything here
        raise ValueError("no arrays that can be read [VA021]") from error


def read_json(path: Path) -> dict[str, Any]:
    """What the JSON of a model holds."""
    try:
        content = reading.read_json(path)
    except reading.MalformedFile as error:
        raise StudyError(f"{path} is not a model file: it is not JSON ({error}) [ST097]") from None
    except reading.UnreadableFile as error:
        raise StudyError(f"{path} cannot be read: {error} [ST098]") from None
    if not isinstance(content, dict):
        raise StudyError(f"{path} is not a model file [ST099]")
    return content


def plain_value(value: Any) -> Any:
    """A learned value as JSON holds it: arrays as lists, dataclasses as mappings, an infinite number as ``null``."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_dataclass(value):
        return {field.name: plain_value(getattr(value, field.name)) for field in fields(value)}
    return (
        {name: plain_value(each) for name, each in value.items()}
        if isinstance(value, Mapping)
        else finite_or_null(value)
    )


def finite_or_null(value: Any) -> Any:
    """A value for JSON, which has no infinity."""
    return None if isinstance(value, float) and math.isinf(value) else value


@cache
def _forms() -> dict[str, TypeAdapter[Any]]:
    """What checks plain values; imported with the first model that is read."""
    from pydantic import Field, TypeAdapter

    text = Annotated[str, Field(strict=True)]
    number = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-LARGEST, le=LARGEST)]
    count = Annotated[int, Field(strict=True, ge=0)]
    size = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=LARGEST)]
    forms: dict[str, Any] = {
        "text": text,
        "texts": Annotated[list[text], Field(strict=True)],
        "number": number,
        "count": count,
        "size": size,
        "size if any": count | size | None,
        "epsilons": dict[text, size | None],
    }
    return {name: TypeAdapter(form) for name, form in forms.items()}


def read_text(value: Any) -> str:
    """A text."""
    return str(_forms()["text"].validate_python(value))


def read_texts(values: Any) -> list[str]:
    """A list of texts."""
    return list(_forms()["texts"].validate_python(values))


def read_number(value: Any) -> float:
    """A finite number, of which products are finite too."""
    return float(_forms()["number"].validate_python(value))


def read_size(value: Any) -> float:
    """A finite number that is not negative."""
    return float(_forms()["size"].validate_python(value))


def read_count(value: Any) -> int:
    """A whole number that is not negative."""
    return int(_forms()["count"].validate_python(value))


def read_size_if_any(value: Any) -> Any:
    """A finite number that is not negative, as JSON holds it, or ``None``."""
    return _forms()["size if any"].validate_python(value)


def read_array(values: Any) -> NDArray[np.float64]:
    """An array of such numbers."""
    found = np.array(values)
    if not isinstance(values, list | np.ndarray) or (found.size and found.dtype.kind not in "iuf"):
        raise TypeError("an array of numbers is expected [VA046]")
    if not (np.abs(found.astype(np.float64)) <= LARGEST).all():
        raise ValueError("finite numbers are expected, of which products are finite [VA047]")
    return found.astype(np.float64)


def read_epsilons(values: Any) -> dict[str, float]:
    """Epsilons by name; ``null`` is infinite."""
    found = _forms()["epsilons"].validate_python(values)
    return {name: math.inf if value is None else value for name, value in found.items()}


def read_facts(values: Any) -> dict[str, Any]:
    """Plain values by name, all of whose numbers are finite."""
    if not isinstance(values, dict):
        raise TypeError("plain values by name are expected [VA048]")
    json.dumps(values, allow_nan=False)
    return values
