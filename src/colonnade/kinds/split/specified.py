"""Specifications of encoders, read when a study is planned: schema and specification are public, so all is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.errors import StudyError
from colonnade.kinds.split import encoders
from colonnade.kinds.split.given import OWN, USE, Given
from colonnade.kinds.split.linear import Linear
from colonnade.kinds.split.options import image_shape


def check_specified(given: Given) -> None:
    """Refuse options that the kind does not have, and images of other sizes than the table; nothing is drawn."""
    if given.held is not None or given.kind == OWN:
        return
    described = {key: value for key, value in given.spec.items() if key not in USE and value is not None}
    try:
        _check(described, given.columns)
    except StudyError as error:
        raise StudyError(f"the encoder of {given.party}: {error} [ST336]") from None


def _check(spec: Mapping[str, Any], columns: int) -> None:
    options = dict(spec)
    kind = options.pop("kind", None)
    if kind == Linear.kind and "over" in options:
        below, _ = encoders.below_of(options)
        _check(below, columns)
        return
    read = encoders.known(kind)[1].read(kind, options)
    if (shape := getattr(read, "shape", None)) is not None:
        image_shape(shape, columns)
