"""Encoders from what a study or a party says of them: a specification, a module, an encoder that is there, a file.

What a party keeps of a split model is such a file too: its encoder, and the head where it alone has one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray

from colonnade.disk import reading
from colonnade.errors import StudyError
from colonnade.kinds.split.encoder_base import (
    Encoder,
    EncoderOptions,
    Matrix,
    RowEncoder,
    TrainableEncoder,
    Training,
    image_shape,
    try_encoder,
    worse_training,
)
from colonnade.kinds.split.numpy_encoders import (
    CosineEncoder,
    CosineOptions,
    EdgeEncoder,
    EdgeOptions,
    LinearEncoder,
    LinearOptions,
    split_arrays,
)
from colonnade.kinds.split.torch_encoders import (
    ConvolutionalNetwork,
    ConvolutionalOptions,
    NetworkEncoder,
    Perceptron,
    PerceptronOptions,
    set_weights,
)
from colonnade.models import serialization
from colonnade.models.pytorch import load_torch
from colonnade.models.serialization import name_file_in_errors, packed, replace_private, unpack_arrays
from colonnade.randomness import new_key

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "KINDS",
    "Encoder",
    "Matrix",
    "RowEncoder",
    "TrainableEncoder",
    "encoder_from",
    "from_bytes",
    "load_encoder",
    "runs_code",
    "save_encoder",
    "to_bytes",
]

_BUILT: dict[str, tuple[Any, type[EncoderOptions]]] = {
    "cosine": (CosineEncoder, CosineOptions),
    "edges": (EdgeEncoder, EdgeOptions),
    "linear": (LinearEncoder, LinearOptions),
    "mlp": (Perceptron, PerceptronOptions),
    "cnn": (ConvolutionalNetwork, ConvolutionalOptions),
}
_MODULE = "module"
KINDS = (*_BUILT, _MODULE)
"""The kinds of encoders that a specification can name."""
_ABOUT = "encoder"
_ARRAY = "array."
_LONGEST = 1 << 16
_MOST_COLUMNS = 1 << 20


def encoder_from(
    spec: Mapping[str, Any] | nn.Module | Encoder, columns: int, *, seed: int | None = None, device: str = "auto"
) -> Encoder:
    """The encoder of a party whose rows have so many encoded columns.

    A specification is public: ``kind``, mostly ``width``, and options of the kind. What it leaves to chance is drawn
    from a fresh secret, unless a seed is given, which is then as public as the specification. A module is copied. It,
    and an encoder that is there, is tried on made-up rows: each embedding must be a function of its row alone. A
    specification of kind ``module`` names a function of the party's own, which is imported and called, so it may come
    from the party itself only (:func:`runs_code`).
    """
    if isinstance(spec, Encoder):
        if spec.columns != columns:
            raise StudyError(f"the encoder reads {spec.columns} encoded columns, but the table has {columns} [ST249]")
        try_encoder(spec)
        return spec
    if not isinstance(spec, Mapping):
        return NetworkEncoder(columns, _module_of(spec), {}, None, device)
    options = dict(spec)
    kind = options.pop("kind", None)
    if kind == _MODULE:
        return _build_supplied(options, columns, device)
    if kind == LinearEncoder.kind and "over" in options:
        below, width = below_of(options)
        return LinearEncoder.over(encoder_from(below, columns, seed=seed, device=device), width)
    made, read = encoder_kind(kind)
    random = np.random.default_rng(int.from_bytes(new_key(), "little") if seed is None else seed)
    return _place(made.draw(columns, read.read(kind, options), random), device)


def runs_code(spec: Any) -> bool:
    """Whether making this encoder calls a function that the specification names; nobody else may choose that."""
    return isinstance(spec, Mapping) and (spec.get("kind") == _MODULE or runs_code(spec.get("over")))


def to_bytes(encoder: Encoder) -> bytes:
    """The encoder as the content of an npz file: what it is, as JSON, and its arrays; nothing in it is code."""
    said = {"kind": encoder.kind, "columns": encoder.columns, "options": encoder.options()}
    if encoder.learned != "none":
        said["learned"] = encoder.learned
    arrays = {f"{_ARRAY}{name}": value for name, value in encoder.arrays().items()}
    return packed({_ABOUT: np.array(json.dumps(said)), **arrays})


def from_bytes(
    data: bytes, module: nn.Module | Callable[[], nn.Module] | str | None = None, *, device: str = "auto"
) -> Encoder:
    """The encoder that a file holds. One of kind ``module`` needs the module again, or what makes it."""
    try:
        arrays = unpack_arrays(data)
        said = reading.parse_json(str(arrays.pop(_ABOUT)[()])[:_LONGEST])
        columns, spec = said["columns"], {"kind": said["kind"], **said["options"]}
        learned = said.get("learned", "none")
    except (ValueError, LookupError, TypeError, AttributeError, reading.MalformedFile):
        raise StudyError("this is no file of an encoder, or it is damaged [ST250]") from None
    if isinstance(columns, bool) or not isinstance(columns, int) or not 1 <= columns <= _MOST_COLUMNS:
        raise StudyError("the file of an encoder does not say how many columns it reads [ST251]")
    if learned not in get_args(Training):
        raise StudyError("the file of an encoder does not say how it was trained [ST252]")
    named = {name.removeprefix(_ARRAY): value for name, value in arrays.items()}
    found = _restore(spec, columns, named, module, device)
    found.learned = learned
    return found


def save_encoder(encoder: Encoder, path: str | Path) -> None:
    """Write an encoder to a file that other users of the machine cannot read."""
    replace_private(Path(path), to_bytes(encoder))


def load_encoder(
    path: str | Path, module: nn.Module | Callable[[], nn.Module] | str | None = None, *, device: str = "auto"
) -> Encoder:
    """The encoder in a file; see :func:`from_bytes`."""
    found = Path(path)
    try:
        content = reading.read_bytes(found, reading.MAX_LEARNED_BYTES)
    except reading.UnreadableFile as error:
        raise StudyError(f"{found} cannot be read: {error} [ST253]") from None
    with name_file_in_errors(found):
        return from_bytes(content, module, device=device)


def _restore(
    spec: Mapping[str, Any], columns: int, arrays: Mapping[str, NDArray[Any]], module: Any, device: str
) -> Encoder:
    options = dict(spec)
    kind = options.pop("kind", None)
    if kind == _MODULE:
        if module is None:
            raise StudyError(
                "the file holds weights of a module of its party: give the module, or what makes it [ST254]"
            )
        return _with_weights({**options, "make": module}, columns, arrays, device)
    if kind == LinearEncoder.kind and "over" in options:
        below, width = below_of(options)
        own, theirs = split_arrays(arrays)
        return LinearEncoder.over(_restore(below, columns, theirs, module, device), width, own)
    made, read = encoder_kind(kind)
    return _place(made.restore(columns, read.read(kind, options), arrays), device)


def below_of(options: Mapping[str, Any]) -> tuple[Mapping[str, Any], int]:
    """The specification of the encoder of which a linear map is asked for, and the width of the map."""
    below, width = options["over"], LinearOptions.read(LinearEncoder.kind, {**options, "over": None}).width
    if not isinstance(below, Mapping) or "over" in below or width is None:
        raise StudyError(
            "a linear map over another encoder has a width, and that encoder's specification as 'over' [ST255]"
        )
    return below, width


def encoder_kind(kind: Any) -> tuple[Any, type[EncoderOptions]]:
    """What draws encoders of a kind, and what reads their options."""
    if not isinstance(kind, str) or kind not in _BUILT:
        raise StudyError(f"an encoder's kind is one of {', '.join(KINDS)} [ST256]")
    return _BUILT[kind]


def _place(encoder: Encoder, device: str) -> Encoder:
    return encoder.to(device) if isinstance(encoder, NetworkEncoder) else encoder


def _build_supplied(options: dict[str, Any], columns: int, device: str) -> Encoder:
    """An encoder whose module the party brings: ``make``, perhaps the file of its ``weights``, and a ``shape``."""
    weights = options.pop("weights", None)
    if weights is None:
        return _with_weights(options, columns, None, device)
    path = Path(weights)
    try:
        arrays = unpack_arrays(reading.read_bytes(path, reading.MAX_LEARNED_BYTES))
    except reading.UnreadableFile as error:
        raise StudyError(f"{path} cannot be read: {error} [ST257]") from None
    except ValueError:
        raise StudyError(f"{path} holds no weights: write them as npz, by their names in the module [ST258]") from None
    return _with_weights(options, columns, arrays, device)


def _with_weights(
    options: dict[str, Any], columns: int, weights: Mapping[str, NDArray[Any]] | None, device: str
) -> Encoder:
    if unknown := sorted(set(options) - {"make", "shape"}):
        raise StudyError(
            f"an encoder of kind 'module' has no option {str(unknown[0])!r}; it has make, weights and shape [ST259]"
        )
    made, shape = _module_of(options.get("make")), options.get("shape")
    whole = isinstance(shape, list | tuple) and len(shape) in (2, 3) and all(type(side) is int for side in shape)
    if shape is not None and not whole:
        raise StudyError("option 'shape' of an encoder must be 2 or 3 whole numbers [ST260]")
    if weights is not None:
        set_weights(made, weights)
    image = None if shape is None else image_shape(shape, columns)
    return NetworkEncoder(columns, made, {} if shape is None else {"shape": list(shape)}, image, device)


def _module_of(given: Any) -> nn.Module:
    """A copy of a module, or what a function makes; a function can be named as ``package.module:function``."""
    torch = load_torch()
    if isinstance(given, str):
        home, _, name = given.partition(":")
        try:
            given = getattr(import_module(home), name)
        except (ImportError, AttributeError, ValueError):
            raise StudyError(
                f"{given!r} cannot be imported: write package.module:function, and install the package here [ST261]"
            ) from None
    made: Any = given
    try:
        if isinstance(given, torch.nn.Module):
            made = copy.deepcopy(given)
        elif callable(given):
            made = given()
    except Exception as error:  # whatever the party's own code raises
        said = (str(error).splitlines() or [""])[0][:200]
        raise StudyError(f"the module of an encoder cannot be made: {type(error).__name__}: {said} [ST262]") from None
    if not isinstance(made, torch.nn.Module):
        raise StudyError(
            "an encoder is given as a specification with a kind, as an encoder, or as a torch module [ST263]"
        )
    module: nn.Module = made
    return module


PARTY_FILE_FORMAT = "colonnade kept encoder 1"
_ARCHIVE_ABOUT, _ENCODER, _OWN = "about", "encoder", "own."


@dataclass(frozen=True)
class PartyArchive:
    """One party's file: whose it is, of which model, whether private rows trained it, and what it holds."""

    party: str
    model: str
    training: Training
    encoder: Encoder | None
    own: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def party_file_content(kept: PartyArchive) -> bytes:
    """The content of the file."""
    about = {"format": PARTY_FILE_FORMAT, "party": kept.party, "model": kept.model, "training": kept.training}
    arrays: dict[str, NDArray[Any]] = {_ARCHIVE_ABOUT: np.array(json.dumps(about))}
    if kept.encoder is not None:
        arrays[_ENCODER] = np.frombuffer(to_bytes(kept.encoder), dtype=np.uint8)
    for name, array in kept.own.items():
        arrays[f"{_OWN}{name}"] = array
    return serialization.packed(arrays)


def write_party_file(path: Path, party: str, whole: bytes) -> Path:
    """Write it to a file that only its user can read; another party's file is not replaced."""
    if path.exists() and _about(_arrays(path)).get("party") != party:
        raise StudyError(
            f"{path} does not hold an encoder of {party}: choose another path, or delete it yourself [ST282]"
        )
    serialization.replace_private(path, whole)
    return path


def read_party_file(path: Path, model: str | None, module: Any = None) -> PartyArchive:
    """What a party kept; an error if it is not of the model with this digest, where one is given."""
    arrays = _arrays(path)
    about = _about(arrays)
    if about.get("format") != PARTY_FILE_FORMAT:
        raise StudyError(f"{path} does not hold a kept encoder; save_kept writes such a file [ST283]")
    if model is not None and about.get("model") != model:
        raise StudyError(
            f"{path} holds an encoder of another model or another fit of it; use the file of this one [ST284]"
        )
    with serialization.name_file_in_errors(path):
        party, training = str(about["party"]), about["training"]
        if training not in get_args(Training):
            raise ValueError("nobody knows how it was trained [VA070]")
        packed = arrays.pop(_ENCODER, None)
        encoder = None if packed is None else from_bytes(_bytes(packed), module)
        if encoder is not None:
            training = worse_training(encoder.learned, training)
            encoder.learned = training
        own = {name.removeprefix(_OWN): _finite(array) for name, array in arrays.items() if name.startswith(_OWN)}
    return PartyArchive(party, str(about["model"]), training, encoder, own)


def is_party_file(path: Path) -> bool:
    """Whether a file is one that a study left, and not the bare file of an encoder."""
    return _about(_arrays(path)).get("format") == PARTY_FILE_FORMAT


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        return serialization.unpack_arrays(reading.read_bytes(path, reading.MAX_LEARNED_BYTES))
    except reading.UnreadableFile as error:
        raise StudyError(f"{path} cannot be read: {error} [ST285]") from None
    except ValueError:
        return {}


def _about(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    try:
        found = json.loads(str(arrays[_ARCHIVE_ABOUT]))
    except (KeyError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _bytes(packed: NDArray[Any]) -> bytes:
    if packed.dtype != np.uint8 or packed.ndim != 1:
        raise ValueError("an encoder is kept as bytes [VA071]")
    return packed.tobytes()


def _finite(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise ValueError("a head holds finite numbers [VA072]")
    return array
