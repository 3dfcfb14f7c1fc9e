"""Numbers with the deviation that noise gives them, as bars and as cells; grey where they cannot be told from zero."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from colonnade.models.estimates import Estimate
from colonnade.pictures.bars import Bar, Kind
from colonnade.pictures.cells import Cell


def strongest(rows: Sequence[Sequence[float]], most: int) -> list[int]:
    """The places of the ``most`` columns with the largest numbers.

    First come those that are surely large: an estimate counts as much as the end of its interval next to zero.
    """
    width = len(rows[0]) if rows else 0
    strength = [max((_surely(row[k]), abs(row[k])) for row in rows) for k in range(width)]
    return sorted(range(width), key=lambda k: (-strength[k][0], -strength[k][1], k))[:most]


def unclear(value: float) -> bool:
    """Whether a number is known not to be told from zero."""
    return isinstance(value, Estimate) and value.deviation is not None and not value.clear


def bar(name: str, value: Estimate, text: str, group: str = "") -> Bar:
    """A bar with its interval, where one is known."""
    kind: Kind = "grey" if unclear(value) else "signed"
    low, high = (None, None) if value.deviation is None else (value.low, value.high)
    return Bar(name, float(value), text, kind, low, high, group=group)


def cell(value: Estimate, digits: int) -> Cell:
    """A cell with the deviation."""
    return Cell(float(value), with_minus(value.text(digits)), unclear(value))


def digits(values: Iterable[float]) -> int:
    """How many digits after the point show two of the largest number, and at least two."""
    most = max((abs(value) for value in values), default=0.0)
    return max(2, 1 - math.floor(math.log10(most))) if most > 0 and math.isfinite(most) else 2


def with_minus(text: str) -> str:
    """The minus as wide as the plus."""
    return text.replace("-", "\N{MINUS SIGN}")


def _surely(value: float) -> float:
    return value.surely if isinstance(value, Estimate) else 0.0
