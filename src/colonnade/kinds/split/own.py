"""An encoder that a party brings itself: made by a function of its own, read from a file, or both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colonnade.errors import StudyError
from colonnade.kinds.split import kept
from colonnade.kinds.split.encoders import Encoder, encoder_from, load_encoder
from colonnade.kinds.split.given import refuse_learned


def own_encoder(party: str, given: Mapping[str, Any], columns: int) -> Encoder:
    """The encoder that a party's configuration names: ``make`` and ``weights``, at least one of them.

    A party states that it was made without the table of the study. That cannot be checked, but a file that says
    otherwise is refused: that of an encoder that an earlier study trained on private rows.
    """
    make, weights = given.get("make"), given.get("weights")
    if make is not None:
        spec = {"kind": "module", "make": make, "weights": None if weights is None else str(weights)}
        return encoder_from(spec | ({"shape": list(given["shape"])} if given.get("shape") else {}), columns)
    if weights is None:
        raise StudyError(
            f'[encoder] of {party} needs make = "package.module:function", weights = "FILE.npz", or both [ST317]'
        )
    path = Path(weights)
    found = kept.read(path, None).encoder if kept.is_kept(path) else load_encoder(path)
    if found is None:
        raise StudyError(f"{path} holds no encoder [ST318]")
    return encoder_from(refuse_learned(found, f"the encoder in {path}"), columns)
