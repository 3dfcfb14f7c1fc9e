"""Quantities between two public bounds, and the scale on which they are encoded evenly.

What only needs to know that a column holds numbers (bins, labels of regressions, densities) asks it for its quantity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import SchemaError

Matrix = NDArray[np.float64]
Scale = Literal["signed", "unit"]
Transform = Literal["none", "log1p"]
MAX_WHOLE = 10**12  # so that whole numbers and their halves stay apart when they are encoded


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number between two public bounds, encoded to [-1, 1] or [0, 1], by its logarithm if the transform says so."""

    low: float
    high: float
    unit: str = ""
    scale: Scale = "signed"
    transform: Transform = "none"
    whole: bool = False

    def __post_init__(self) -> None:
        low, high = check_real("low", self.low), check_real("high", self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if not low < high:
            raise SchemaError(f"low ({low:g}) must be below high ({high:g}); correct the two bounds [SC017]")
        check_text("unit", self.unit)
        _check_choice("scale", self.scale, ("signed", "unit"))
        _check_choice("transform", self.transform, ("none", "log1p"))
        if self.transform == "log1p" and low < 0:
            raise SchemaError(
                f'transform = "log1p" needs low >= 0, not {low:g}; raise low or drop the transform [SC018]'
            )
        start, end = self.ends
        if not 0 < end - start < math.inf:
            raise SchemaError("low and high are too close or too far apart for 64-bit numbers; change them [SC019]")

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds after the transform."""
        if self.transform == "log1p":
            return math.log1p(self.low), math.log1p(self.high)
        return self.low, self.high

    @property
    def signed(self) -> bool:
        """Whether it is encoded to [-1, 1], and not to [0, 1]."""
        return self.scale == "signed"

    def apply_transform(self, values: Matrix) -> Matrix:
        """Values in their own units on the scale on which they are encoded evenly."""
        return np.log1p(values) if self.transform == "log1p" else values

    def invert_transform(self, values: Matrix) -> Matrix:
        """Values of that scale in their own units."""
        return np.expm1(values) if self.transform == "log1p" else values

    def share_of(self, values: Matrix) -> Matrix:
        """How far values lie from the lower to the upper bound on that scale: from 0 to 1, also beyond the bounds."""
        start, end = self.ends
        return np.clip((self.apply_transform(values) - start) / (end - start), 0.0, 1.0)

    def from_share(self, share: Matrix) -> Matrix:
        """The encoded numbers of shares of the range."""
        return 2 * share - 1 if self.signed else share

    def to_share(self, encoded: Matrix) -> Matrix:
        """The shares of the range of encoded numbers."""
        return (encoded + 1) / 2 if self.signed else encoded

    def encode_values(self, values: Matrix) -> Matrix:
        """Values within the bounds as they are encoded; those beyond get the nearest bound's."""
        return self.from_share(self.share_of(values))

    def decode_values(self, encoded: Matrix) -> Matrix:
        """Encoded values back in their units; values beyond the encoded range lie beyond the bounds."""
        start, end = self.ends
        return self.invert_transform(start + self.to_share(encoded) * (end - start))

    def value_of(self, given: object) -> float:
        """A value as a person writes it, as the number that is encoded; a day, for example, is written as one."""
        if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
            raise SchemaError(f"an edge of a bin must be a finite number, not {given!r} [SC011]")
        return float(given)

    def text_of(self, value: float, digits: int = 6) -> str:
        """A value as a person reads it."""
        return f"{value:.{digits}g}"

    def short_text_of(self, value: float) -> str:
        """A value as it stands below a picture."""
        return f"{round(value):,}" if abs(value) >= 100 else f"{value:.3g}"


def check_real(what: str, value: object) -> float:
    """A finite number that somebody stated; ``what`` names it in errors."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SchemaError(f"{what} must be a number, not {value!r} [SC032]")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise SchemaError(
            f"{what} must be a finite number, not {value!r}; state a bound that everybody may know [SC033]"
        )
    return found + 0.0  # minus zero would change the digest, not the meaning


def check_text(what: str, value: object) -> str:
    """A text of valid Unicode that somebody stated."""
    if not isinstance(value, str):
        raise SchemaError(f"{what} must be a text, not {value!r} [SC034]")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SchemaError(f"{what} holds characters that are not valid Unicode [SC035]") from None
    return value


def list_words(words: Sequence[str]) -> str:
    """Words in quotes, as errors list what may be chosen."""
    return ", ".join(f'"{word}"' for word in words)


def _check_choice(what: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise SchemaError(f"{what} must be one of {list_words(choices)}, not {value!r} [SC037]")
