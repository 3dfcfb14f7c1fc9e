"""Files that are written as a whole; models as JSON, with arrays in a second file whose digest the JSON holds."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StorageError, StudyError

ARRAYS = ".npz"
"""The ending of the file with a model's arrays."""


def replace_file(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all; raises an OSError."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all. Raises a StorageError that names it."""
    try:
        replace_file(path, content)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from None


def replace_private(path: Path, content: bytes) -> None:
    """Write a private file as a whole or not at all; other users can never read it. Raises a StorageError."""
    try:
        descriptor, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")  # its mode is 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(partial)
            raise
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from None


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write the files of a model, all of them or none."""
    partials = {path: path.with_name(f"{path.name}.partial") for path in contents}
    for path, partial in partials.items():
        try:
            partial.write_bytes(contents[path])
        except OSError as error:
            for each in partials.values():
                with suppress(OSError):
                    each.unlink(missing_ok=True)
            raise StudyError(f"{path} cannot be written: {error.strerror}") from None
    for path, partial in partials.items():
        os.replace(partial, path)


def pack_arrays(arrays: Mapping[str, NDArray[Any]], path: Path) -> bytes:
    """Arrays of numbers and texts as the content of a file without pickles; ``path`` is the model's, for errors."""
    if wrong := [name for name, array in arrays.items() if array.dtype.hasobject]:
        raise StudyError(f"{path} holds arrays of plain numbers and texts, and {wrong[0]} is none")
    held = io.BytesIO()
    np.savez(held, allow_pickle=False, **arrays)
    return held.getvalue()


def read_arrays(path: Path, digest: str) -> dict[str, NDArray[Any]]:
    """The arrays of a file; an error if its digest is not the one in the model's JSON, or it holds no arrays."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StudyError(
            f"{path}, which belongs to the model, cannot be read: {error.strerror}; keep both files together, with the "
            "same name before the ending"
        ) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise StudyError(f"{path} does not belong to the model beside it, or is damaged: copy both files together")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile):
        raise StudyError(f"{path} holds no arrays that can be read") from None


def read_json(path: Path) -> dict[str, Any]:
    """What the JSON of a model holds."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StudyError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise StudyError(f"{path} is not a model file: it is not JSON") from None
    if not isinstance(content, dict):
        raise StudyError(f"{path} is not a model file")
    return content
