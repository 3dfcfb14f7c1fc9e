"""Losses of generalised linear models, the labels that suit each, and the fits that minimise them.

What is sent of a fit is certified: its gradient is short enough for the proofs. A point with a short gradient is the
exact minimum of a slightly changed objective, and the proofs count with that. Others see how long a certified fit
takes, so the number of its steps follows from public numbers and not from the rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, StudyError
from colonnade.models.planner import Positive, check_positive, one_of
from colonnade.tables.bins import Matrix, Quantity
from colonnade.tables.columns import Column

Vector = NDArray[np.float64]
Slope = tuple[float, float]
_MARGIN = Fraction(1, 1 << 48)  # relative; covers the few roundings in an exponential or a tangent and after it


@dataclass(frozen=True)
class Family(ABC):
    """A loss of scores and labels: public, plain values.

    ``slope_bound`` is what slopes are clipped to, ``reach`` what scores are clipped to before a slope is sent, ``low``
    and ``high`` bound the label, ``centre`` is the link of a score of zero, and slopes are divided by ``scale``.
    """

    slope_bound: float
    reach: float
    low: float
    high: float
    centre: float = 0.0
    scale: float = 1.0

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for what in ("slope_bound", "reach", "scale"):
            value = getattr(self, what)
            if not (isinstance(value, float) and 0 < value < math.inf):
                raise StudyError(
                    f"{what} of the {self.name} family must be a finite number above 0, not {value!r} [ST459]"
                )
        if not (self.low < self.high and math.isfinite(self.high - self.low) and math.isfinite(self.centre)):
            raise StudyError(f"the label of the {self.name} family needs two finite bounds, low below high [ST460]")

    @property
    @abstractmethod
    def curvature(self) -> float:
        """The largest change of a slope for each unit that its score changes; rounded up."""

    @property
    def own(self) -> Fraction:
        """The largest change of one row's sent slope when its score and its label change; rounded up."""
        least, most = self._extremes
        spread = Fraction(most) - Fraction(least) + _MARGIN * Fraction(self._size)
        return min(spread, 2 * Fraction(self.slope_bound))

    @property
    @abstractmethod
    def typical_curvature(self) -> float:
        """A public guess of the mean second derivative; no proof uses it."""

    @property
    @abstractmethod
    def typical_spread(self) -> float:
        """A public guess of the standard deviation of slopes; no proof uses it."""

    @property
    @abstractmethod
    def typical_variance(self) -> float:
        """A public guess of the variance of what other parties' columns add to the score; no proof uses it."""

    def slopes(self, t: Vector, y: Vector) -> Vector:
        """The derivative of the loss by the score, clipped to ``slope_bound``."""
        return np.clip(self._slopes(t, y), -self.slope_bound, self.slope_bound)

    def clip_slopes(self, t: Vector, y: Vector) -> Vector:
        """The slopes of scores that are first clipped to ``reach``: what messages are made of."""
        return self.slopes(np.clip(t, -self.reach, self.reach), y)

    def loss(self, t: Vector, y: Vector) -> Vector:
        """The loss of each row, straight wherever its slope is clipped; :meth:`slopes` is its derivative."""
        first, last = self._bent(y)
        at = np.clip(t, first, last)
        return self._losses(at, y) + self.slopes(at, y) * (t - at)

    def hessian(self, t: Vector, y: Vector) -> Vector:
        """The second derivative of the loss, in [0, ``curvature``]; at a corner the larger of both values."""
        first, last = self._bent(y)
        inside = (first <= t) & (t <= last)
        return np.where(inside, np.minimum(self._bends(np.clip(t, first, last), y), self.curvature), 0.0)

    @abstractmethod
    def mean(self, t: Vector) -> Vector:
        """What a score predicts: a probability, or a number in the units of the label."""

    def plain(self) -> dict[str, Any]:
        """The family as plain values, floats in hexadecimal: part of what participants agree on."""
        found: dict[str, Any] = {"name": self.name, "curvature": self.curvature.hex(), "own": str(self.own)}
        for field in fields(self):
            value = getattr(self, field.name)
            found[field.name] = value.hex() if isinstance(value, float) else value
        return found

    @property
    @abstractmethod
    def _extremes(self) -> Slope:
        """The least and the largest slope that can be sent."""

    @property
    def _size(self) -> float:
        """The size of the numbers whose difference is a slope; rounding errors are relative to it."""
        return 4 * (1 + self.reach)

    @abstractmethod
    def _bent(self, y: Vector) -> tuple[Vector, Vector]:
        """The least and the largest score between which the loss is curved."""

    @abstractmethod
    def _slopes(self, t: Vector, y: Vector) -> Vector: ...

    @abstractmethod
    def _losses(self, t: Vector, y: Vector) -> Vector: ...

    @abstractmethod
    def _bends(self, t: Vector, y: Vector) -> Vector: ...


@dataclass(frozen=True)
class LogisticFamily(Family):
    """Labels 0 and 1, the score is the logarithm of the odds."""

    name = "logistic"
    curvature = 0.25
    typical_curvature = 0.15
    typical_spread = 0.45
    typical_variance = 0.4

    def mean(self, t: Vector) -> Vector:
        """The probability of a label of 1."""
        return 0.5 * (1 + np.tanh(0.5 * t))

    @property
    def _extremes(self) -> Slope:
        half = 0.5 * (1 + math.tanh(0.5 * self.reach))
        return -half, half

    def _bent(self, y: Vector) -> tuple[Vector, Vector]:
        return np.full_like(y, -np.inf), np.full_like(y, np.inf)

    def _slopes(self, t: Vector, y: Vector) -> Vector:
        return self.mean(t) - y

    def _losses(self, t: Vector, y: Vector) -> Vector:
        return np.logaddexp(0.0, t) - y * t

    def _bends(self, t: Vector, y: Vector) -> Vector:
        return 0.25 * (1 - np.tanh(0.5 * t) ** 2)


@dataclass(frozen=True)
class HuberFamily(Family):
    """Huber's loss of labels in [-1, 1]: squared up to a residual of ``slope_bound``, straight beyond."""

    transform: str = "none"

    name = "linear"
    curvature = 1.0
    typical_variance = 0.05

    @property
    def typical_curvature(self) -> float:
        """Nearly every residual is in the squared part of the loss, unless that part is narrow."""
        return min(1.0, self.slope_bound / 0.5)

    @property
    def typical_spread(self) -> float:
        """A third of the label's half range, or less if slopes are clipped."""
        return min(0.35, 0.8 * self.slope_bound)

    def mean(self, t: Vector) -> Vector:
        """The expected label in its own units, within its bounds."""
        log = self.transform == "log1p"
        start, end = (math.log1p(self.low), math.log1p(self.high)) if log else (self.low, self.high)
        found = start + 0.5 * (np.clip(t, -1.0, 1.0) + 1) * (end - start)
        return np.clip(np.expm1(found) if log else found, self.low, self.high)

    @property
    def _extremes(self) -> Slope:
        most = min(self.slope_bound, self.reach + 1)
        return -most, most

    def _bent(self, y: Vector) -> tuple[Vector, Vector]:
        return y - self.slope_bound, y + self.slope_bound

    def _slopes(self, t: Vector, y: Vector) -> Vector:
        return t - y

    def _losses(self, t: Vector, y: Vector) -> Vector:
        return 0.5 * (t - y) ** 2

    def _bends(self, t: Vector, y: Vector) -> Vector:
        return np.ones_like(t)


@dataclass(frozen=True)
class SvmFamily(Family):
    """The squared hinge loss of labels -1 and 1, straight where its slope is over ``slope_bound``."""

    name = "svm"
    curvature = 2.0
    typical_variance = 0.2

    @property
    def typical_curvature(self) -> float:
        """Half of the rows lie between the margin and where the slope is clipped."""
        return min(1.0, 0.5 * self.slope_bound)

    @property
    def typical_spread(self) -> float:
        """Two thirds of the bound: most rows near the border are on one of its two sides."""
        return min(1.3, 0.65 * self.slope_bound)

    def mean(self, t: Vector) -> Vector:
        """The probability of a label of 1 for which the score is the best one."""
        against, towards = self.slopes(t, -np.ones_like(t)), -self.slopes(t, np.ones_like(t))
        return against / (against + towards)

    @property
    def _extremes(self) -> Slope:
        most = min(self.slope_bound, 2 * (1 + self.reach))
        return -most, most

    def _bent(self, y: Vector) -> tuple[Vector, Vector]:
        clipped = y * (1 - 0.5 * self.slope_bound)
        return np.minimum(clipped, y), np.maximum(clipped, y)

    def _slopes(self, t: Vector, y: Vector) -> Vector:
        return -2 * y * np.maximum(0.0, 1 - y * t)

    def _losses(self, t: Vector, y: Vector) -> Vector:
        return np.maximum(0.0, 1 - y * t) ** 2

    def _bends(self, t: Vector, y: Vector) -> Vector:
        return np.full_like(t, 2.0)


class _LogLink(Family):
    """The logarithm of the mean is ``centre`` plus the score, within ``reach`` of ``centre``."""

    typical_variance = 0.1

    def mean(self, t: Vector) -> Vector:
        """The expected label, within the region."""
        return np.exp(self.centre + np.clip(t, -self.reach, self.reach))

    @property
    def _ends(self) -> tuple[float, float]:
        """The least and the largest mean."""
        return math.exp(self.centre - self.reach), math.exp(self.centre + self.reach)

    def _slopes(self, t: Vector, y: Vector) -> Vector:
        return np.asarray(self._raw(self.mean(t), y) / self.scale)

    @abstractmethod
    def _raw(self, mean: Any, y: Any) -> Any: ...

    @property
    def _extremes(self) -> Slope:
        least, most = self._ends
        return self._clipped(self._raw(least, self.high)), self._clipped(self._raw(most, self.low))

    @property
    def _size(self) -> float:
        least, most = self._ends
        return float(self._raw(most, -self.high) + self._raw(least, -self.high)) / self.scale

    def _clipped(self, raw: float) -> float:
        return max(-self.slope_bound, min(raw / self.scale, self.slope_bound))

    def _between(self, first: Vector, last: Vector) -> tuple[Vector, Vector]:
        """Means between which a slope is not clipped, as scores of the region."""
        with np.errstate(divide="ignore"):
            ends = np.log(first) - self.centre, np.log(last) - self.centre
        return np.clip(ends[0], -self.reach, self.reach), np.clip(ends[1], -self.reach, self.reach)


@dataclass(frozen=True)
class PoissonFamily(_LogLink):
    """Counts; slopes are ``mean - count``, divided by ``scale``."""

    name = "poisson"

    @property
    def curvature(self) -> float:
        """The largest mean whose slope is not clipped, over the scale."""
        return _up(min(self._ends[1], self.high + self.slope_bound * self.scale), self.scale)

    @property
    def typical_curvature(self) -> float:
        """The curvature for a mean in the middle of the region."""
        return math.exp(self.centre) / self.scale

    @property
    def typical_spread(self) -> float:
        """The deviation of counts around a mean in the middle of the region."""
        return min(math.exp(0.5 * self.centre) / self.scale, 0.8 * self.slope_bound)

    def _raw(self, mean: Any, y: Any) -> Any:
        return mean - y

    def _bent(self, y: Vector) -> tuple[Vector, Vector]:
        width = self.slope_bound * self.scale
        return self._between(np.maximum(0.0, y - width), y + width)

    def _losses(self, t: Vector, y: Vector) -> Vector:
        return (self.mean(t) - y * t) / self.scale

    def _bends(self, t: Vector, y: Vector) -> Vector:
        return self.mean(t) / self.scale


@dataclass(frozen=True)
class GammaFamily(_LogLink):
    """Positive amounts; slopes are ``1 - amount / mean``, divided by ``scale``."""

    name = "gamma"

    @property
    def curvature(self) -> float:
        """The largest ratio of amount and mean whose slope is not clipped, over the scale."""
        return _up(min(self.high / self._ends[0], 1 + self.slope_bound * self.scale), self.scale)

    @property
    def typical_curvature(self) -> float:
        """Amount over mean is 1 on average."""
        return 1 / self.scale

    @property
    def typical_spread(self) -> float:
        """The spread of amounts whose deviation is seven tenths of the mean."""
        return min(0.7 / self.scale, 0.8 * self.slope_bound)

    def _raw(self, mean: Any, y: Any) -> Any:
        return 1 - y / mean

    def _bent(self, y: Vector) -> tuple[Vector, Vector]:
        width = self.slope_bound * self.scale
        last = y / (1 - width) if width < 1 else np.full_like(y, np.inf)
        return self._between(y / (1 + width), last)

    def _losses(self, t: Vector, y: Vector) -> Vector:
        return (t + y / self.mean(t)) / self.scale

    def _bends(self, t: Vector, y: Vector) -> Vector:
        return y / (self.mean(t) * self.scale)


@lru_cache(maxsize=64)  # called thousands of times before a study
def _up(value: float, scale: float) -> float:
    return math.nextafter(float(Fraction(value) / Fraction(scale) * (1 + _MARGIN)), math.inf)


Refuse = Callable[[NDArray[np.bool_], str], None]
"""Raise an error for the first row that is wrong, with why."""
_FARTHEST = 100.0  # e^100 is larger than any mean, and exponentials do not overflow there
_LEAST_SHARE = 0.01
_ROUNDING = 1e-9


@dataclass(frozen=True)
class FamilyOptions:
    """Options of a family, in addition to the label's column.

    ``reach`` bounds scores before a slope is sent. ``clip`` bounds slopes: in half ranges of the label (linear), as it
    is (svm), in counts (poisson), or as a share of the mean (gamma). ``region`` are the least and the largest logarithm
    of a mean.
    """

    reach: Positive | None = None
    clip: Positive | None = None
    region: tuple[float, float] | None = None


def family_for(name: str, column: Column, **given: Any) -> Family:
    """The family of that name for a label's column; everything in it follows from the public schema and the options."""
    one_of("family", name, NAMES)
    _refuse_unfit(name, column)
    maker, *allowed = _MAKERS[name]
    chosen: dict[str, Any] = {}
    for option, value in given.items():
        if value is not None and option not in allowed:
            raise StudyError(f'the {name} family has no option "{option}"; it has {" and ".join(allowed)} [ST461]')
        if value is not None:
            chosen[option] = _checked(value) if option == "region" else check_positive(option, value)
    made: Family = maker(column.quantity, FamilyOptions(**chosen))
    return made


def _refuse_unfit(name: str, column: Column) -> None:
    """Raise an error if a label of this column does not suit the family."""
    number = column.quantity
    refused: tuple[tuple[bool, str], ...]
    if name in ("logistic", "svm"):
        classes = 2 if number else len(column.classes)
        refused = (
            (number is not None, f"the {name} family needs a label that is a flag or a category, not a number [ST465]"),
            (classes != 2, f"the {name} family needs a label of 2 values, and its schema lists {classes} [ST466]"),
            (
                column.may_be_missing,
                f'the {name} family needs a value for every row: its label cannot have missing = "none" [ST467]',
            ),
        )
    elif number is None:
        raise StudyError(f"the {name} family needs a label that is a number, not a {column.kind} [ST468]")
    else:
        whole = number.low == int(number.low) and number.high == int(number.high)
        refused = (
            (
                column.may_be_missing,
                f'the {name} family needs a number for every row: its label cannot have missing = "none" [ST469]',
            ),
            (
                name != "linear" and number.transform != "none",
                f"the {name} family takes logarithms itself: its label cannot have "
                f'transform = "{number.transform}"; drop the transform or use linear [ST470]',
            ),
            (
                name == "poisson" and (number.low < 0 or not whole),
                "the poisson family counts: its label needs whole bounds, low at least 0, in the schema [ST463]",
            ),
            (
                name == "gamma" and number.low <= 0,
                "the gamma family is for positive amounts: its label needs a low above 0 in the schema [ST464]",
            ),
        )
    for wrong, why in refused:
        if wrong:
            raise StudyError(why)


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


def _logistic(column: Any, options: FamilyOptions) -> Family:
    return LogisticFamily(1.0, options.reach or 3.0, 0.0, 1.0)


def _svm(column: Any, options: FamilyOptions) -> Family:
    return SvmFamily(options.clip or 2.0, options.reach or 1.0, 0.0, 1.0)


def _linear(column: Any, options: FamilyOptions) -> Family:
    reach, clip = options.reach or 1.0, options.clip or 1.0
    return HuberFamily(min(clip, 1 + reach), reach, column.low, column.high, transform=column.transform)


def _poisson(column: Any, options: FamilyOptions) -> Family:
    low, high = column.low, column.high
    ends = options.region or (math.log(max(low, _LEAST_SHARE * high)), math.log(high))
    least, most = math.exp(ends[0]), math.exp(ends[1])
    largest = max(most - low, high - least)
    # Two deviations of the largest mean, but at least a quarter of it: counts further away are hardly ever Poisson.
    scale = min(options.clip or max(2 * math.sqrt(most), most / 4), largest)
    return PoissonFamily(1.0, (ends[1] - ends[0]) / 2, low, high, sum(ends) / 2, scale)


def _gamma(column: Any, options: FamilyOptions) -> Family:
    low, high = column.low, column.high
    ends = options.region or (math.log(low), math.log(high))
    largest = max(high / math.exp(ends[0]) - 1, 1 - low / math.exp(ends[1]))
    scale = min(options.clip or 3.0, largest)
    return GammaFamily(1.0, (ends[1] - ends[0]) / 2, low, high, sum(ends) / 2, scale)


_MAKERS: dict[str, tuple[Any, ...]] = {
    "logistic": (_logistic, "reach"),
    "linear": (_linear, "clip", "reach"),
    "svm": (_svm, "clip", "reach"),
    "poisson": (_poisson, "clip", "region"),
    "gamma": (_gamma, "clip", "region"),
}
"""How each family is made, and the options that it has."""
NAMES = tuple(_MAKERS)


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


NEWTON_STEPS = 12
TRIALS = 8  # points at which a line is looked at in each of these steps
_FARTHEST_STEP = 8.0  # in Newton's steps
AT_ONCE = 4_000_000  # rows times steps: proven steps are taken, needed or not, if they are no more than this
_MOST_STEPS = 500
_STILL = 1e-7
_UNSURE = 0.7  # relative error of the variance that was expected of a party's scores
_LEAST = 0.1  # as part of the expected variance: the least variance of scores, and the variance of their mean


@dataclass(frozen=True)
class FitObjective:
    """The mean loss of rows and labels and ``sum of penalties (w - centre)^2 / 2``."""

    rows: Matrix
    labels: Vector
    family: Family
    penalties: Vector
    centre: Vector

    def at(self, weights: Vector) -> FitPoint:
        """These weights, with what follows from them."""
        return FitPoint(self, weights, self.rows @ weights)

    def newton(self, point: FitPoint) -> Vector:
        """The step to the minimum of its quadratic expansion."""
        bent = (self.rows * self.family.hessian(point.scores, self.labels)[:, None]).T @ self.rows / len(self.rows)
        return np.asarray(np.linalg.solve(bent + np.diag(self.penalties), point.gradient), dtype=np.float64)

    def decrease(self, before: FitPoint, after: FitPoint) -> float:
        """By how much a step lowers the objective: summed row by row, as a difference of totals would lose it."""
        losses = self.family.loss(before.scores, self.labels) - self.family.loss(after.scores, self.labels)
        moved, both = before.weights - after.weights, before.weights + after.weights
        return float(losses.mean() + (self.penalties * moved * (both - 2 * self.centre) / 2).sum())


@dataclass(frozen=True)
class FitPoint:
    """Weights, the scores that they give, and the gradient of an objective there."""

    objective: FitObjective
    weights: Vector
    scores: Vector

    @cached_property
    def gradient(self) -> Vector:
        """The gradient of the objective."""
        of = self.objective
        slopes = of.family.slopes(self.scores, of.labels)
        gradient: Vector = of.rows.T @ slopes / len(of.rows) + of.penalties * (self.weights - of.centre)
        return gradient

    @cached_property
    def length(self) -> float:
        """The length of the gradient."""
        return _norm(self.gradient)


def certified_fit(objective: FitObjective, row_norm: float, slack: float) -> Vector:
    """The minimum of an objective up to a gradient of length ``slack``, for any rows of norm at most ``row_norm``.

    A fixed number of Newton's steps comes there for every table that was tried. Where it does not, as many accelerated
    gradient steps follow as are proven to be enough. They are taken at any rate where they are few.
    """
    found = _newton(objective, 0.0)
    steps = proven_steps(objective.family, objective.penalties, row_norm, slack)
    if steps * len(objective.rows) <= AT_ONCE or found.length > slack:
        found = min(found, _accelerated(objective, found, row_norm, steps), key=lambda point: point.length)
    return found.weights


def free_fit(objective: FitObjective) -> Vector:
    """The minimum, as far as it matters: a fit of which nothing is sent may end early, and no proof may use it."""
    return _newton(objective, _STILL * objective.family.slope_bound).weights


def _newton(objective: FitObjective, enough: float) -> FitPoint:
    """The point with the shortest gradient, of Newton's steps to the minimum along each of their directions.

    At a corner of the loss a whole step crosses over, and the next one comes back: halves of steps would zigzag there
    for thousands of steps, where the minimum along the line lies at the corner.
    """
    point = best = objective.at(objective.centre.copy())
    for _ in range(NEWTON_STEPS):
        if best.length <= enough and enough:
            break
        step = objective.newton(point)
        point = objective.at(point.weights - _size(point, step) * step)
        best = min(best, point, key=lambda each: each.length)
    return best


def _size(point: FitPoint, step: Vector) -> float:
    """The part of a step after which the objective hardly falls along it, by false position at so many points."""
    of = point.objective
    across: Vector = of.rows @ step
    pulled, held = float((of.penalties * step) @ (point.weights - of.centre)), float((of.penalties * step) @ step)

    def tilt(size: float) -> float:
        slopes = of.family.slopes(point.scores - size * across, of.labels)
        return size * held - pulled - float(slopes @ across) / len(across)

    # As many calls on every path: a look at the end of a whole step, then at the farthest point if it is still falling
    # there, and from then on between the nearest points where it falls and where it rises.
    low, high = (0.0, -float(point.gradient @ step)), (_FARTHEST_STEP, math.inf)
    best, came = low, 0
    for trial in range(TRIALS):
        if trial == 0:
            size = 1.0
        elif high[1] == math.inf:
            size = high[0]
        else:
            apart = high[1] - low[1]
            size = low[0] - low[1] * (high[0] - low[0]) / apart if apart > 0 else (low[0] + high[0]) / 2
        looked = (size := min(max(size, low[0]), high[0]), tilt(size))
        best = min(best, looked, key=lambda each: abs(each[1]))
        # A side that stays twice counts half, so that both close in.
        if looked[1] < 0:
            low, high = looked, (high[0], high[1] / 2 if came < 0 else high[1])
            came = -1
        else:
            low, high = (low[0], low[1] / 2 if came > 0 else low[1]), looked
            came = 1
    return best[0]


def proven_steps(family: Family, penalties: Vector, row_norm: float, slack: float) -> int:
    """How many accelerated steps reach a gradient of ``slack`` for any rows (docs/theory/alternating-fits.md).

    It follows from public bounds and from penalties, which are made of public numbers and of what was received.
    """
    bent, least = family.curvature * row_norm**2, float(penalties.min())
    steepest = bent + float(penalties.max())
    shorter = 8 * steepest / least * (family.slope_bound * row_norm / slack) ** 2
    return math.ceil(math.sqrt(bent / least + 1) * math.log(shorter))


def _accelerated(objective: FitObjective, start: FitPoint, row_norm: float, steps: int) -> FitPoint:
    """Nesterov's steps for the largest curvature that such rows allow, from ``start`` if it is below the centre."""
    centre = objective.at(objective.centre)
    point = start if objective.decrease(centre, start) >= 0 else centre
    bent, least = objective.family.curvature * row_norm**2, float(objective.penalties.min())
    root = math.sqrt(least / (bent + least))
    ahead, weights, steepest = point.weights, point.weights, bent + objective.penalties
    for _ in range(steps):
        after = ahead - objective.at(ahead).gradient / steepest
        ahead, weights = after + (1 - root) / (1 + root) * (after - weights), after
    return objective.at(weights)


def _norm(vector: Vector) -> float:
    return math.sqrt(float(vector @ vector))


def sparse_fit(objective: FitObjective, l1: Vector) -> Vector:
    """The minimum with the penalty ``sum of l1 |w|`` too, by accelerated proximal steps; many weights become zero.

    It is for a fit that nobody else sees, so it may stop when it hardly moves.
    """
    gram = objective.rows.T @ objective.rows / len(objective.rows)
    steepest = objective.family.curvature * float(np.linalg.eigvalsh(gram)[-1]) + objective.penalties
    weights = ahead = objective.centre.copy()
    pace = 1.0
    for _ in range(_MOST_STEPS):
        moved = ahead - objective.at(ahead).gradient / steepest
        after = np.sign(moved) * np.maximum(0.0, np.abs(moved) - l1 / steepest)
        if float((ahead - after) @ (after - weights)) > 0:
            pace, ahead = 1.0, weights  # it went too far: start to accelerate again
            continue
        faster = (1 + math.sqrt(1 + 4 * pace * pace)) / 2
        step = after - weights
        weights, ahead, pace = after, after + (pace - 1) / faster * step, faster
        if _norm(step) <= _STILL * (1 + _norm(weights)):
            break
    return weights


@dataclass(frozen=True)
class ScoreEstimate:
    """An estimate from received scores: mean and variance of the true scores, and the variance of noise on each."""

    middle: float
    signal: float
    noise: float

    @property
    def share(self) -> float:
        """The part of the variance that is no noise."""
        return self.signal / (self.signal + self.noise)


def estimate_scores(received: NDArray[np.float64], clip: float, noise: float, shared: float = 0.0) -> ScoreEstimate:
    """An estimate from scores within ``clip``; ``noise`` is the variance on each, ``shared`` that of a common error.

    The deviation of scores is expected to be half of their clip; received scores correct that, the more there are. A
    shared error, such as that of blurred weights, is drawn once for all scores, so averages over scores keep it.
    """
    count, expected, whole = len(received), (clip / 2) ** 2, noise + shared
    # Most of a noisy mean is noise, and its error would shift the scores of everybody.
    middle = float(received.mean()) * _LEAST * expected / (_LEAST * expected + noise / count + shared)
    seen = float(received.var()) - whole
    doubt, error = (_UNSURE * expected) ** 2, 2 * (whole + expected) ** 2 / count + 2 * shared**2
    signal = max((expected * error + seen * doubt) / (error + doubt), _LEAST * expected)
    return ScoreEstimate(middle, signal, whole)
