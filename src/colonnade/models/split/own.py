"""An encoder that a party brings itself: made by a function of its own, read from a file, or both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colonnade.disk import reading
from colonnade.errors import StudyError
from colonnade.models.split import kept
from colonnade.models.split.encoders import Encoder, encoder_from, from_bytes

UNCHARGED = "uncharged"


def own_encoder(party: str, given: Mapping[str, Any], columns: int) -> Encoder:
    """The encoder that a party's configuration names: ``make`` and ``weights``, at least one of them.

    A party states that it was made without the table of the study. That cannot be checked, but a file that says
    otherwise, because a study trained it on private rows and charged nothing for it, is refused.
    """
    make, weights = given.get("make"), given.get("weights")
    if make is not None:
        spec = {"kind": "module", "make": make, "weights": None if weights is None else str(weights)}
        return encoder_from(spec | ({"shape": list(given["shape"])} if given.get("shape") else {}), columns)
    if weights is None:
        raise StudyError(f'[encoder] of {party} needs make = "package.module:function", weights = "FILE.npz", or both')
    path = Path(weights)
    if kept.is_kept(path):
        found = kept.read(path, None)
        if found.training == UNCHARGED:
            raise StudyError(
                f"{path} holds an encoder that was trained on private rows without a charge, so nothing would be "
                "proven about a study that uses it: train it again with a charge, or bring another encoder"
            )
        if found.encoder is None:
            raise StudyError(f"{path} holds no encoder")
        return encoder_from(found.encoder, columns)
    try:
        content = reading.read_bytes(path, reading.LEARNED)
    except reading.Unreadable as error:
        raise StudyError(f"the encoder {path} cannot be read: {error}") from None
    return encoder_from(from_bytes(content), columns)
