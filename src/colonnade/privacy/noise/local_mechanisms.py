"""What an owner does alone before anything leaves it: rounding, noise on a grid, and randomised response.

Rounding at random is correct on average; by a fixed rule, errors of one sign may add up. Floating-point noise added to
a floating-point number leaks the number's low bits, so reals are put on a grid first, on which every sum is exact:
``docs/theory/grid-noise.md`` shows the leak and proves the sensitivity bounds. A label is kept or replaced by another
one, decided by whole random numbers; ``docs/theory/randomised-response.md`` has the proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colonnade.errors import CapacityError, DataError, PrivacyError
from colonnade.privacy.noise import discrete_gaussian
from colonnade.privacy.sensitivity import Real, checked_whole, rational, root_up
from colonnade.randomness import Stream

RoundingMode = Literal["stochastic", "nearest", "toward-zero", "conditional"]
MODES: tuple[RoundingMode, ...] = ("stochastic", "nearest", "toward-zero", "conditional")
_CHUNK = 1 << 15
_PATIENCE = 400


def stochastic_round(values: NDArray[np.float64], stream: Stream) -> NDArray[np.float64]:
    """Round each value down, or up with a probability equal to its fraction; the result is integers as float64.

    The result is always less than 1 away and an integer stays as it is: sensitivity bounds rest on that.
    The coins have 32 bits, so an average can be off by up to 2^-32, which no bound rests on.
    """
    flat = np.ascontiguousarray(values, dtype=np.float64).reshape(-1)
    out = np.empty_like(flat)
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        if not np.isfinite(part).all():
            raise ValueError("a value to be rounded is not a finite number; clip the data first [VA118]")
        low = np.floor(part, out=out[start : start + _CHUNK])
        fraction = part - low
        fraction *= 2.0**32
        low += stream.uint32(part.size) < fraction
    return out.reshape(values.shape)


def round_and_zero_long_rows(values: NDArray[np.float64], limit: int, stream: Stream) -> NDArray[np.float64]:
    """Rows rounded by coin; only a row that its owner failed to clip is longer than ``limit`` allows, and becomes zero.

    ``limit`` bounds the squared norm of the integers themselves, so what rests on it holds whatever the rows were.
    """
    whole = stochastic_round(values, stream)
    over = np.einsum("ij,ij->i", whole, whole) > limit
    if over.any():
        whole[over] = 0.0
    return whole


def conditional_round(values: NDArray[np.float64], limit: int, stream: Stream) -> NDArray[np.float64]:
    """Rows rounded at random; each is rounded again until its squared norm is at most ``limit``.

    A row that fails 400 times is rounded toward zero. If the limit rejects a draw with a chance of at most e^-1/2, this
    has a chance below 2^-288. The row before rounding never leaves its owner.
    """
    out = stochastic_round(values, stream)
    for _ in range(_PATIENCE):
        over = rows_beyond(out, limit)
        if not over.size:
            return out
        out[over] = stochastic_round(values[over], stream)
    over = rows_beyond(out, limit)
    out[over] = np.trunc(values[over])
    return out


def round_rows(values: NDArray[np.float64], mode: RoundingMode, limit: int, stream: Stream) -> NDArray[np.float64]:
    """Rows of integers held as float64; ``limit`` on the squared norm is for conditional rounding only."""
    if mode == "stochastic":
        return stochastic_round(values, stream)
    if mode == "conditional":
        return conditional_round(values, limit, stream)
    if not np.isfinite(values).all():
        raise ValueError("a value to be rounded is not a finite number; clip the data first [VA119]")
    if mode not in MODES:
        raise PrivacyError(f"unknown rounding {mode!r}; choose from {', '.join(MODES)} [PR048]")
    return np.rint(values) if mode == "nearest" else np.trunc(values)


def rows_beyond(rows: NDArray[np.float64], limit: int) -> NDArray[np.int64]:
    """Which rows of integers have a squared norm above ``limit``, exactly while that is below 2^62."""
    exact = rows.astype(np.int64)
    return np.flatnonzero(np.einsum("ij,ij->i", exact, exact) > limit)


FLOAT_SLACK = Fraction(1, 1 << 20)
"""The part of a sensitivity that is added to it, for the error of the released function in float64."""

_MOST_BITS = 60
_LARGEST_VALUE = 1 << 62  # with the noise below it the sum stays inside 64 bits
_LARGEST_VARIANCE = 1 << 114


@dataclass(frozen=True)
class Grid:
    """The multiples of ``2^-bits``, on which reals are released."""

    bits: int = 30

    def __post_init__(self) -> None:
        if isinstance(self.bits, bool) or not isinstance(self.bits, int) or not 0 <= self.bits <= _MOST_BITS:
            raise PrivacyError(f"a grid has a whole number of bits from 0 to {_MOST_BITS} [PR042]")

    @property
    def step(self) -> Fraction:
        """The distance of neighbouring points."""
        return Fraction(1, 1 << self.bits)

    def quantise(self, values: ArrayLike) -> NDArray[np.int64]:
        """The nearest grid points, as integers; half-way goes to the even one."""
        reals = np.asarray(values, dtype=np.float64)
        if not np.isfinite(reals).all():
            raise DataError(
                "a value to be released is not a finite number; clip values before they reach the grid [DA106]"
            )
        with np.errstate(over="ignore"):
            scaled = np.rint(np.ldexp(reals, self.bits))
        if (np.abs(scaled) >= _LARGEST_VALUE).any():
            raise CapacityError(
                f"a value is too large for a grid of {self.bits} bits; clip it or take fewer bits [CA009]"
            )
        return scaled.astype(np.int64)

    def real(self, integers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Grid points as floats; beyond 2^53 the nearest float, which costs no privacy."""
        return np.ldexp(integers.astype(np.float64), -self.bits)

    def sensitivity_squared(self, l2: Real, count: int) -> int:
        """Squared L2 sensitivity in steps of ``count`` released numbers that move by at most ``l2``."""
        reach = self._steps(l2, count)
        # (reach + sqrt(count))^2 = inner + sqrt(cross)
        inner, cross = reach * reach + count, 4 * reach * reach * count
        bound = math.ceil(inner + root_up(cross))
        lower = bound - 1 - inner  # the root was rounded up, perhaps across an integer
        return bound - 1 if lower >= 0 and lower * lower >= cross else bound

    def sensitivity_l1(self, l1: Real, count: int) -> int:
        """L1 sensitivity in steps of ``count`` released numbers that move by at most ``l1`` in sum."""
        return math.ceil(self._steps(l1, count) + count)

    def variance(self, deviation: Real) -> Fraction:
        """The variance, in steps squared, of noise whose standard deviation is ``deviation``."""
        return (rational(deviation, "a standard deviation") / self.step) ** 2

    def release(self, values: ArrayLike, deviation: Real, stream: Stream) -> NDArray[np.int64]:
        """Grid points of the values plus exact discrete Gaussian noise, in steps."""
        points, variance = self.quantise(values), self.variance(deviation)
        if variance > _LARGEST_VARIANCE:
            raise CapacityError(f"the noise is too large for a grid of {self.bits} bits; take fewer bits [CA010]")
        return points + discrete_gaussian(variance, points.shape, stream)

    def _steps(self, distance: Real, count: int) -> Fraction:
        checked_whole(count, "how many numbers are released")
        return rational(distance, "a sensitivity") * (1 + FLOAT_SLACK) / self.step


ODDS_BITS = 32
MOST_EPSILON = 20  # odds above e^20 with 32 bits behind the point would not leave room for the categories
_MOST_TOTAL_BITS = 62


def odds_of_epsilon(epsilon: float) -> Fraction:
    """The largest fraction with denominator 2^32 whose logarithm is at most ``epsilon``."""
    if isinstance(epsilon, bool) or not (math.isfinite(epsilon) and epsilon >= 0):
        raise PrivacyError("an epsilon for randomised response must be a finite number, not negative [PR045]")
    if epsilon == 0:
        return Fraction(1)
    if epsilon > MOST_EPSILON:
        raise CapacityError(f"an epsilon above {MOST_EPSILON} would keep nearly every label; ask for less [CA011]")
    from flint import arb

    from colonnade.privacy.noise.strip_sampler import working_precision

    bits = 128
    while True:
        # exp of a rational other than zero is irrational, so some precision tells on which side of an integer it is.
        with working_precision(bits):
            floor = (arb(float(epsilon)).exp() * (1 << ODDS_BITS)).floor().unique_fmpz()
        if floor is not None:
            return Fraction(int(floor), 1 << ODDS_BITS)
        bits *= 2


def randomised_response(labels: ArrayLike, categories: int, odds: Fraction, stream: Stream) -> NDArray[np.int64]:
    """Keep each label with probability ``odds / (odds + categories - 1)``, or else draw another one uniformly."""
    checked_whole(categories, "the number of categories", 2)
    given = np.asarray(labels)
    if given.dtype.kind not in "iub":
        raise DataError("labels for randomised response must be whole numbers; encode them as 0, 1, 2, ... [DA107]")
    if given.size and not (given.min() >= 0 and given.max() < categories):
        raise DataError(f"a label lies outside 0 to {categories - 1}; encode labels or correct the categories [DA108]")
    if odds < 1:
        raise PrivacyError(
            "the odds of randomised response must be at least 1; take them from odds_for(epsilon) [PR047]"
        )
    keep, each = odds.numerator, odds.denominator
    total = keep + (categories - 1) * each
    if total > 1 << _MOST_TOTAL_BITS:
        raise CapacityError("there are too many categories, or the odds are too fine, for 64-bit integers [CA012]")
    # Of `total` equally likely numbers the first `keep` keep the label, and `each` lead to each of the others.
    drawn = _draw_below(total, given.size, stream).reshape(given.shape)
    step = np.where(drawn < keep, 0, (drawn - keep) // each + 1)
    return (given.astype(np.int64) + step) % categories


def _draw_below(bound: int, count: int, stream: Stream) -> NDArray[np.int64]:
    """Whole numbers from 0 up to, not including, ``bound``, each as likely as the next."""
    mask = np.uint64((1 << (bound - 1).bit_length()) - 1)
    found = [np.empty(0, dtype=np.int64)]
    missing = count
    while missing:
        drawn = (stream.uint64(missing) & mask).astype(np.int64)
        found.append(drawn[drawn < bound])
        missing -= len(found[-1])
    return np.concatenate(found)
