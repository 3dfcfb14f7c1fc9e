"""What a party keeps of a split model: its encoder, and the head where it alone has one, as a private npz file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from colonnade.disk import reading
from colonnade.errors import StudyError
from colonnade.kinds.split.contract import Training, worse
from colonnade.kinds.split.encoders import Encoder, from_bytes, to_bytes
from colonnade.models import serialization

FORMAT = "colonnade kept encoder 1"
_ABOUT, _ENCODER, _OWN = "about", "encoder", "own."


@dataclass(frozen=True)
class Kept:
    """One party's file: whose it is, of which model, whether private rows trained it, and what it holds."""

    party: str
    model: str
    training: Training
    encoder: Encoder | None
    own: Mapping[str, NDArray[Any]] = field(default_factory=dict)


def content(kept: Kept) -> bytes:
    """The content of the file."""
    about = {"format": FORMAT, "party": kept.party, "model": kept.model, "training": kept.training}
    arrays: dict[str, NDArray[Any]] = {_ABOUT: np.array(json.dumps(about))}
    if kept.encoder is not None:
        arrays[_ENCODER] = np.frombuffer(to_bytes(kept.encoder), dtype=np.uint8)
    for name, array in kept.own.items():
        arrays[f"{_OWN}{name}"] = array
    return serialization.packed(arrays)


def write(path: Path, party: str, whole: bytes) -> Path:
    """Write it to a file that only its user can read; another party's file is not replaced."""
    if path.exists() and _about(_arrays(path)).get("party") != party:
        raise StudyError(
            f"{path} does not hold an encoder of {party}: choose another path, or delete it yourself [ST282]"
        )
    serialization.replace_private(path, whole)
    return path


def read(path: Path, model: str | None, module: Any = None) -> Kept:
    """What a party kept; an error if it is not of the model with this digest, where one is given."""
    arrays = _arrays(path)
    about = _about(arrays)
    if about.get("format") != FORMAT:
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
            training = worse(encoder.learned, training)
            encoder.learned = training
        own = {name.removeprefix(_OWN): _finite(array) for name, array in arrays.items() if name.startswith(_OWN)}
    return Kept(party, str(about["model"]), training, encoder, own)


def is_kept(path: Path) -> bool:
    """Whether a file is one that a study left, and not the bare file of an encoder."""
    return _about(_arrays(path)).get("format") == FORMAT


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        return serialization.unpack_arrays(reading.read_bytes(path, reading.MAX_LEARNED_BYTES))
    except reading.UnreadableFile as error:
        raise StudyError(f"{path} cannot be read: {error} [ST285]") from None
    except ValueError:
        return {}


def _about(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    try:
        found = json.loads(str(arrays[_ABOUT]))
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
