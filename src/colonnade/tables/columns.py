"""The three kinds of column that are encoded: ``number``, ``category`` and ``flag``; dates become these (``dates``).

A column is a frozen value. It says everything the encoder needs, so that nothing is ever learned from data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from colonnade.errors import SchemaError

Scale = Literal["signed", "unit"]
Transform = Literal["none", "log1p"]
Field: TypeAlias = str | float | bool | list[str]

MAX_VALUES = 10_000
MAX_WHOLE = 10**12  # so that whole numbers and their halves stay apart when they are encoded
REFUSE = "refuse"
NOWHERE = "none"
_NUMBER_WORDS = (REFUSE, "middle", "low", "high", NOWHERE)
_MISSING_PART = "=missing"


@dataclass(frozen=True, slots=True)
class Number:
    """A quantity between two public bounds; see :func:`number`."""

    low: float
    high: float
    unit: str = ""
    scale: Scale = "signed"
    transform: Transform = "none"
    missing: str | float = REFUSE
    whole: bool = False

    kind = "number"

    def __post_init__(self) -> None:
        low, high = _real("low", self.low), _real("high", self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if not low < high:
            raise SchemaError(f"low ({low:g}) must be below high ({high:g}); correct the two bounds [SC017]")
        _text("unit", self.unit)
        _one_of("scale", self.scale, ("signed", "unit"))
        _one_of("transform", self.transform, ("none", "log1p"))
        if self.transform == "log1p" and low < 0:
            raise SchemaError(
                f'transform = "log1p" needs low >= 0, not {low:g}; raise low or drop the transform [SC018]'
            )
        start, end = self.ends
        if not 0 < end - start < math.inf:
            raise SchemaError("low and high are too close or too far apart for 64-bit numbers; change them [SC019]")
        self._check_missing()
        self._check_whole()

    def _check_missing(self) -> None:
        if isinstance(self.missing, str):
            if self.missing not in _NUMBER_WORDS:
                raise SchemaError(
                    f"missing must be a number or one of {_listed(_NUMBER_WORDS)}, not {self.missing!r} [SC020]"
                )
            return
        stand_in = _real("missing", self.missing)
        if not self.low <= stand_in <= self.high:
            raise SchemaError(f"missing ({stand_in:g}) must lie between low and high [SC021]")
        object.__setattr__(self, "missing", stand_in)

    def _check_whole(self) -> None:
        if not isinstance(self.whole, bool):
            raise SchemaError(f"whole must be true or false, not {self.whole!r} [SC022]")
        if not self.whole:
            return
        for what in ("low", "high", "missing"):
            value = getattr(self, what)
            if isinstance(value, float) and not value.is_integer():
                raise SchemaError(f"{what} ({value:g}) must be a whole number where whole = true; round it [SC023]")
        if max(abs(self.low), abs(self.high)) > MAX_WHOLE:
            raise SchemaError(
                "whole = true needs bounds of at most 10^12 in size; drop it or change the bounds [SC024]"
            )

    @property
    def parts(self) -> tuple[str, ...]:
        """What is appended to the column's name for each encoded column: a missing cell may have one of its own."""
        return ("", _MISSING_PART) if self.missing == NOWHERE else ("",)

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds after the transform."""
        if self.transform == "log1p":
            return math.log1p(self.low), math.log1p(self.high)
        return self.low, self.high

    def fields(self) -> dict[str, Field]:
        """The column as plain values, in the order they are written to a file."""
        found: dict[str, Field] = {"type": self.kind, "low": self.low, "high": self.high}
        if self.unit:
            found["unit"] = self.unit
        if self.scale != "signed":
            found["scale"] = self.scale
        if self.transform != "none":
            found["transform"] = self.transform
        if self.missing != REFUSE:
            found["missing"] = self.missing
        if self.whole:
            found["whole"] = True
        return found


@dataclass(frozen=True, slots=True)
class Category:
    """One of a public list of values; see :func:`category`."""

    values: tuple[str, ...]
    missing: str = REFUSE

    kind = "category"

    def __post_init__(self) -> None:
        if isinstance(self.values, str) or not isinstance(self.values, Sequence):
            raise SchemaError("values must be a list of texts [SC025]")
        values = tuple(_value(value) for value in self.values)
        object.__setattr__(self, "values", values)
        if not values:
            raise SchemaError("values is empty; list every value the column may take [SC026]")
        if len(values) > MAX_VALUES:
            raise SchemaError(
                f"values lists {len(values)} entries of at most {MAX_VALUES}; group the rare ones [SC027]"
            )
        if len(set(values)) < len(values):
            twice = next(value for place, value in enumerate(values) if value in values[:place])
            raise SchemaError(f"values lists {twice!r} twice; delete one of them [SC028]")
        if not isinstance(self.missing, str):
            object.__setattr__(self, "missing", _value(self.missing))
        if self.missing == NOWHERE and NOWHERE in values:
            raise SchemaError('missing = "none" is ambiguous because "none" is also a value; rename the value [SC029]')
        if self.missing not in (REFUSE, NOWHERE, *values):
            raise SchemaError(f'missing must be "refuse", "none" or one of the values, not {self.missing!r} [SC030]')

    @property
    def parts(self) -> tuple[str, ...]:
        """What is appended to the column's name for each encoded column."""
        return tuple(f"={value}" for value in self.values)

    def fields(self) -> dict[str, Field]:
        """The column as plain values, in the order they are written to a file."""
        found: dict[str, Field] = {"type": self.kind, "values": list(self.values)}
        if self.missing != REFUSE:
            found["missing"] = self.missing
        return found


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false; see :func:`flag`."""

    missing: bool | str = REFUSE

    kind = "flag"
    parts = ("",)
    """What is appended to the column's name for each encoded column."""

    def __post_init__(self) -> None:
        if self.missing != REFUSE and not isinstance(self.missing, bool):
            raise SchemaError(f'missing must be "refuse", true or false, not {self.missing!r} [SC031]')

    def fields(self) -> dict[str, Field]:
        """The column as plain values, in the order they are written to a file."""
        return {"type": self.kind} if self.missing == REFUSE else {"type": self.kind, "missing": self.missing}


Column: TypeAlias = Number | Category | Flag


def number(
    low: float,
    high: float,
    *,
    unit: str = "",
    scale: Scale = "signed",
    transform: Transform = "none",
    missing: str | float = REFUSE,
    whole: bool = False,
) -> Number:
    """A quantity between two public bounds, encoded to [-1, 1], or to [0, 1] with ``scale="unit"``.

    Values outside the bounds are clipped and counted. ``transform="log1p"`` takes log(1 + x) of values and
    bounds first, for counts and amounts that range over many orders of magnitude. ``missing`` is a number
    between the bounds, ``"low"``, ``"high"``, ``"middle"`` (the middle of the encoded range), ``"none"`` (a state of
    its own: the number is encoded as 0, and a second encoded column, ``NAME=missing``, as 1) or ``"refuse"``.
    ``whole=True`` says that only whole numbers occur: cells are rounded, and made-up ones are whole.
    """
    return Number(low, high, unit, scale, transform, missing, whole)


def category(values: Sequence[str | int], *, missing: str | int = REFUSE) -> Category:
    """One of a public list of values, encoded one-hot.

    Whole numbers in the list stand for their decimal text. ``missing`` is one of the values, ``"none"`` (all
    zeros) or ``"refuse"``.
    """
    return Category(values, missing)  # type: ignore[arg-type]  # made texts by the constructor


def flag(*, missing: bool | str = REFUSE) -> Flag:
    """True or false, encoded 1 or 0. ``missing`` is ``True``, ``False`` or ``"refuse"``."""
    return Flag(missing)


def _real(what: str, value: object) -> float:
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


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise SchemaError(f"{what} must be a text, not {value!r} [SC034]")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise SchemaError(f"{what} holds characters that are not valid Unicode [SC035]") from None
    return value


def _value(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not _text("each of values", value):
        raise SchemaError('values holds an empty text; say what an empty cell means with "missing" instead [SC036]')
    return str(value)


def _one_of(what: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise SchemaError(f"{what} must be one of {_listed(choices)}, not {value!r} [SC037]")


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)
