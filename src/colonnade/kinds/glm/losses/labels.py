"""From a label's column to a loss with proven bounds, and from the encoded label to the label as the loss takes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, StudyError
from colonnade.kinds.glm.losses.families import Family, Gamma, Linear, Logistic, Poisson, Svm, Vector
from colonnade.tables.columns import Column
from colonnade.tables.quantities import Matrix, Quantity

__all__ = ["NAMES", "Family", "Gamma", "Linear", "Logistic", "Poisson", "Svm", "family_for", "labels_for"]

Refuse = Callable[[NDArray[np.bool_], str], None]
"""Raise an error for the first row that is wrong, with why."""
_FARTHEST = 100.0  # e^100 is larger than any mean, and exponentials do not overflow there
_LEAST_SHARE = 0.01
_ROUNDING = 1e-9


@dataclass(frozen=True)
class _Options:
    reach: float | None
    clip: float | None
    region: tuple[float, float] | None

    def only(self, family: str, *allowed: str) -> None:
        for name in ("reach", "clip", "region"):
            if getattr(self, name) is not None and name not in allowed:
                raise StudyError(f'the {family} family has no option "{name}"; it has {" and ".join(allowed)} [ST461]')


def family_for(
    name: str,
    column: Column,
    *,
    reach: float | None = None,
    clip: float | None = None,
    region: tuple[float, float] | None = None,
) -> Family:
    """The family of that name for a label's column; everything in it follows from the public schema and the options.

    ``reach`` bounds scores before a slope is sent (logistic, linear, svm). ``clip`` bounds slopes: in half ranges of
    the label (linear), as it is (svm), in counts (poisson), or as a share of the mean (gamma). ``region`` are the
    least and the largest logarithm of a mean (poisson, gamma).
    """
    if name not in _MAKERS:
        raise StudyError(f"family must be one of {', '.join(NAMES)}, not {name!r} [ST462]")
    options = _Options(
        None if reach is None else _positive("reach", reach),
        None if clip is None else _positive("clip", clip),
        None if region is None else _checked(region),
    )
    return _MAKERS[name](column, options)


def labels_for(
    family: Family,
    column: Column,
    encoded: Matrix,
    *,
    where: str = "the label",
    rows: NDArray[np.int64] | None = None,
    rounded: bool = False,
) -> NDArray[np.float64]:
    """The label as the family takes it, from the columns that the schema encodes it to.

    Errors name it ``where``, and its rows by the numbers in ``rows``, or else counted from 1. With ``rounded``, a count
    that is no whole number becomes the nearest one instead of an error.
    Logistic: 0 or 1; svm: -1 or 1; linear: in [-1, 1]; poisson and gamma: in the label's own units.
    """
    values = np.asarray(encoded, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 else values
    if values.shape[1] != len(column.parts):
        raise DataError(
            f"{where} has {values.shape[1]} encoded columns where its schema has {len(column.parts)} [DA128]"
        )
    refuse = partial(_refuse, where, np.arange(1, len(values) + 1) if rows is None else rows)
    refuse(np.any(~np.isfinite(values), axis=1), "is not a finite number")
    if column.quantity:
        return _numbers(family, column.quantity, values[:, 0], refuse, rounded)
    if column.one_hot:
        refuse(values.sum(axis=1) != 1, "has none of the label's values")
    refuse((values[:, -1] != 0) & (values[:, -1] != 1), "is neither 0 nor 1")
    return 2 * values[:, -1] - 1 if family.name == "svm" else values[:, -1].copy()


def _numbers(family: Family, column: Quantity, encoded: Vector, refuse: Refuse, rounded: bool) -> Vector:
    signed = encoded if column.signed else 2 * encoded - 1
    refuse(np.abs(signed) > 1 + _ROUNDING, "lies outside the bounds of its schema")
    if family.name == "linear":
        return np.clip(signed, -1.0, 1.0)
    values = np.clip(column.decode_values(encoded), column.low, column.high)
    if family.name == "poisson":
        counts = np.rint(values)
        if not rounded:
            refuse(np.abs(values - counts) > _ROUNDING * max(1.0, column.high), "is not a whole number")
        return counts
    return values


def _refuse(where: str, rows: NDArray[np.int64], wrong: NDArray[np.bool_], why: str) -> None:
    if wrong.any():
        raise DataError(
            f"{where}, row {int(rows[wrong].min())}: the value {why}; correct the table or its schema [DA129]"
        )


def _logistic(column: Column, options: _Options) -> Family:
    _two_valued("logistic", column)
    options.only("logistic", "reach")
    return Logistic(1.0, options.reach or 3.0, 0.0, 1.0)


def _svm(column: Column, options: _Options) -> Family:
    _two_valued("svm", column)
    options.only("svm", "clip", "reach")
    return Svm(options.clip or 2.0, options.reach or 1.0, 0.0, 1.0)


def _linear(column: Column, options: _Options) -> Family:
    found = _number("linear", column)
    options.only("linear", "clip", "reach")
    reach, clip = options.reach or 1.0, options.clip or 1.0
    return Linear(min(clip, 1 + reach), reach, found.low, found.high, transform=found.transform)


def _poisson(column: Column, options: _Options) -> Family:
    found = _number("poisson", column)
    _untransformed("poisson", found)
    if found.low < 0 or found.low != int(found.low) or found.high != int(found.high):
        raise StudyError(
            "the poisson family counts: its label needs whole bounds, low at least 0, in the schema [ST463]"
        )
    options.only("poisson", "clip", "region")
    ends = options.region or (math.log(max(found.low, _LEAST_SHARE * found.high)), math.log(found.high))
    least, most = math.exp(ends[0]), math.exp(ends[1])
    largest = max(most - found.low, found.high - least)
    # Two deviations of the largest mean, but at least a quarter of it: counts further away are hardly ever Poisson.
    scale = min(options.clip or max(2 * math.sqrt(most), most / 4), largest)
    return Poisson(1.0, (ends[1] - ends[0]) / 2, found.low, found.high, sum(ends) / 2, scale)


def _gamma(column: Column, options: _Options) -> Family:
    found = _number("gamma", column)
    _untransformed("gamma", found)
    if found.low <= 0:
        raise StudyError(
            "the gamma family is for positive amounts: its label needs a low above 0 in the schema [ST464]"
        )
    options.only("gamma", "clip", "region")
    ends = options.region or (math.log(found.low), math.log(found.high))
    largest = max(found.high / math.exp(ends[0]) - 1, 1 - found.low / math.exp(ends[1]))
    return Gamma(1.0, (ends[1] - ends[0]) / 2, found.low, found.high, sum(ends) / 2, min(options.clip or 3.0, largest))


_MAKERS: dict[str, Callable[[Column, _Options], Family]] = {
    "logistic": _logistic,
    "linear": _linear,
    "svm": _svm,
    "poisson": _poisson,
    "gamma": _gamma,
}
NAMES = tuple(_MAKERS)


def _two_valued(family: str, column: Column) -> None:
    if column.quantity:
        raise StudyError(f"the {family} family needs a label that is a flag or a category, not a number [ST465]")
    if len(column.classes) != 2:
        raise StudyError(
            f"the {family} family needs a label of 2 values, and its schema lists {len(column.classes)} [ST466]"
        )
    if column.may_be_missing:
        raise StudyError(
            f'the {family} family needs a value for every row: its label cannot have missing = "none" [ST467]'
        )


def _number(family: str, column: Column) -> Quantity:
    if column.quantity is None:
        raise StudyError(f"the {family} family needs a label that is a number, not a {column.kind} [ST468]")
    if column.may_be_missing:
        raise StudyError(
            f'the {family} family needs a number for every row: its label cannot have missing = "none" [ST469]'
        )
    return column.quantity


def _untransformed(family: str, column: Quantity) -> None:
    if column.transform != "none":
        raise StudyError(
            f"the {family} family takes logarithms itself: its label cannot have "
            f'transform = "{column.transform}"; drop the transform or use linear [ST470]'
        )


def _positive(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise StudyError(f"{what} must be a finite number above 0, not {value!r} [ST471]")
    return float(value)


def _checked(region: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in region)
    except (TypeError, ValueError):
        low = high = math.nan
    if not -_FARTHEST <= low < high <= _FARTHEST:
        raise StudyError(
            f"region must be two logarithms of means, the lower one first, within {_FARTHEST:g} of 0, "
            f"not {region!r} [ST472]"
        )
    return low, high
