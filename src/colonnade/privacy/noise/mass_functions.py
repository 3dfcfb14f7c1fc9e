"""Mass functions of the noise, enclosed by interval arithmetic: bounds, narrow, fast or exact.

For the strip sampler a law is given by the ratios ``f(v) = mass(v) / mass(0)`` for ``v = 0, 1, 2, ...``, which must
fall. Nothing here is random. ``docs/theory/exact-samplers.md`` says what is asked of a law, and proves that these four
have it. What is left of discrete Laplace noise when an observer knows part of its shares follows from the same masses
(``docs/theory/laplace-shares.md``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt, sqrt
from threading import RLock
from typing import ClassVar

import numpy as np
from flint import arb, ctx, fmpq
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.privacy.noise import TAIL

# ruff: noqa: D102 - what a law's methods promise is said once, in Law


Values = NDArray[np.int64]
Floats = NDArray[np.float64]

ROUND = 2.0**-50
"""Widens a float64 made by a few operations, or from an interval's end."""

_SMALL = 1 << 16  # below this Skellam variance, the bounds on the mass by powers are too loose
_FIRST = 128  # below this value Lemma P leaves too much open
_ERROR = 2.0**-41  # widens an envelope that is right to a relative 2^-42


# The precision is one setting for the whole process. Every enclosure is right at any precision, so a change
# by another thread could only waste time; the lock keeps our own threads from doing that to each other.
_precision = RLock()


@contextmanager
def working_precision(bits: int) -> Iterator[None]:
    """Inside this context intervals are computed with ``bits`` bits."""
    with _precision, ctx.workprec(bits):
        yield


class MassFunction(ABC):
    """A law on the integers whose mass falls away from zero; the methods with a body are for log-concave ones."""

    signed: ClassVar[bool] = True
    """Whether the law is symmetric; otherwise it has no negative values."""
    cut: ClassVar[Fraction] = TAIL
    """The share of the mass that may be cut off at the far end."""

    @property
    def fine(self) -> bool:
        """Whether the envelope is too loose, so that every value must be a strip of its own."""
        return False

    @property
    @abstractmethod
    def reach(self) -> int:
        """About how far the mass spreads; no strip is wider."""

    @property
    @abstractmethod
    def bulk(self) -> float:
        """About the sum of ``f``; only the number of wasted proposals depends on it."""

    def edge(self, value: int) -> arb:
        """An interval around ``f(value)``, narrow enough for the table, and fast."""
        return self.mass(value)

    def bounds(self, value: Values) -> tuple[Floats, Floats]:
        """Numbers not above and not below ``f(value)``, narrow enough for the table; precision must be set."""
        if self.reach < 1:  # the envelope's constants might not fit float64
            return self.by_intervals(value)
        top = self.envelope(value)
        return np.maximum(top * (1 - _ERROR) * (1 - self.slack(value, value)), 0.0), top * (1 + _ERROR)

    def by_intervals(self, value: Values) -> tuple[Floats, Floats]:
        """The same from the intervals of :meth:`edge`, one by one."""
        found = [self.edge(v) for v in value.tolist()]
        low = np.array([float(one.lower()) for one in found]) * (1 - ROUND)
        high = np.array([float(one.upper()) for one in found]) * (1 + ROUND)
        return np.maximum(low, 0.0), np.maximum(high, np.finfo(np.float64).tiny)

    @abstractmethod
    def mass(self, value: int) -> arb:
        """An interval around the same ratio that shrinks as the precision grows."""

    def beyond(self, value: int, width: int) -> arb:
        """An upper bound of the sum of ``f`` from ``value`` on, where a strip of that width ends before it."""
        # Log-concave: each later block of that width is below the one before by at least this last factor.
        here = self.edge(value)
        return width * here / (1 - here / self.edge(value - width))

    @abstractmethod
    def envelope(self, value: Values) -> Floats:
        """Close to ``f(value)``, in float64: a number not below it, up to a relative error below 2^-42."""

    def slack(self, first: Values, last: Values) -> Floats:
        """How far ``log f`` can lie below the logarithm of that number, at most, between the two values."""
        return np.zeros(np.shape(first))


@dataclass(frozen=True)
class GaussianMass(MassFunction):
    """Mass proportional to ``exp(-v^2 / (2 variance))``."""

    variance: Fraction

    @property
    def reach(self) -> int:
        return isqrt(int(self.variance))

    @property
    def bulk(self) -> float:
        return 1 + 1.25 * sqrt(self.variance)

    def mass(self, value: int) -> arb:
        return _arb(-value * value / (2 * self.variance)).exp()

    def envelope(self, value: Values) -> Floats:
        return np.exp(value.astype(np.float64) ** 2 * (-0.5 / float(self.variance)))


class SkellamMass(GaussianMass):
    """The difference of two Poisson counts. Lemmas are those of docs/theory/skellam-close-to-gaussian.md."""

    @property
    def fine(self) -> bool:
        return self.variance < _SMALL

    def edge(self, value: int) -> arb:
        if self.fine:
            return _bessel_ratios(self.variance)[value]
        x, v = _rational(self.variance), fmpq(value)
        top = -v * v / (2 * x) * (1 - (v * v - fmpq(1, 2)) / (12 * x * x))
        slack = float(self.slack(np.array([value]), np.array([value]))[0])
        return arb(top).exp().union((arb(top) - slack).exp())

    def bounds(self, value: Values) -> tuple[Floats, Floats]:
        return self.by_intervals(value) if self.fine else super().bounds(value)

    def mass(self, value: int) -> arb:
        x = _arb(self.variance)
        return x.bessel_i(value, scaled=True) / x.bessel_i(0, scaled=True)

    def envelope(self, value: Values) -> Floats:  # Lemma 3
        variance, square = float(self.variance), value.astype(np.float64) ** 2
        return np.exp(square * (-0.5 / variance) * (1 - (square - 0.5) / (12 * variance**2)))

    def slack(self, first: Values, last: Values) -> Floats:  # Lemma 3
        v = last.astype(np.float64)
        x = float(self.variance)
        z = v * v / x
        return (z * (1 + 1 / np.maximum(v, 1)) / 2 + z**3 / 80 / x) / x * (1 + 4 * ROUND)


@dataclass(frozen=True)
class LaplaceMass(MassFunction):
    """Mass proportional to ``exp(-v / scale)``, on both sides."""

    scale: Fraction

    @property
    def reach(self) -> int:
        return int(self.scale)

    @property
    def bulk(self) -> float:
        return 1 + float(self.scale)

    def mass(self, value: int) -> arb:
        return _arb(-value / self.scale).exp()

    def envelope(self, value: Values) -> Floats:
        falling: Floats = np.exp(value * (-1 / float(self.scale)))
        return falling


@dataclass(frozen=True)
class PolyaMass(LaplaceMass):
    """Negative binomial counts: mass proportional to ``Gamma(v + r) / v! exp(-v / scale)``, ``r = 1 / parts``.

    ``parts`` is at least 2. The sum of ``parts`` such counts is geometric. Lemma P is that of
    docs/theory/exact-samplers.md.
    """

    parts: int

    signed = False
    cut = TAIL / 2  # noise is the difference of two counts

    @property
    def bulk(self) -> float:
        return float(super().bulk ** (1 / self.parts))

    def mass(self, value: int) -> arb:
        r = arb(fmpq(1, self.parts))
        log = (value + r).lgamma() - r.lgamma() - arb(value + 1).lgamma()
        return (log + _arb(-value / self.scale)).exp()

    def bounds(self, value: Values) -> tuple[Floats, Floats]:
        low, high = super().bounds(value)
        early = np.flatnonzero(value < _FIRST)
        low[early], high[early] = self.by_intervals(value[early])
        return low, high

    def beyond(self, value: int, width: int) -> arb:
        # The next ratio is smaller by (v + r) / (v + 1) exp(-1/scale); and 1 / (1 - exp(-1/scale)) < 1 + scale.
        return self.edge(value) * _arb(1 + self.scale)

    def envelope(self, value: Values) -> Floats:  # Lemma P
        power = float(Fraction(1 - self.parts, self.parts))
        falling = super().envelope(value)
        falling *= np.power(value + 0.5 / self.parts, power) * _inverse_gamma(self.parts)
        return falling

    def slack(self, first: Values, last: Values) -> Floats:  # Lemma P
        r = 1 / self.parts
        c = first.astype(np.float64) + r / 2
        return np.asarray(r * (1 - r) * (2 - r) / (24 * c * c) * (1 + 4 * ROUND), dtype=np.float64)


@lru_cache(maxsize=64)
def _inverse_gamma(parts: int) -> float:
    """``1 / Gamma(1 / parts)``, right to about the last bit, even if another thread changes the precision meanwhile."""
    found = arb(0, 1)
    while found.rel_accuracy_bits() < 60:
        with working_precision(128):
            found = arb(fmpq(1, parts)).rgamma()
    return float(found)


@lru_cache(maxsize=4)
def _bessel_ratios(x: Fraction) -> list[arb]:
    """Intervals around ``I_n(x)/I_0(x)``, from the backward recurrence of the ratios of neighbours."""
    top = 16 * int(x**0.5) + 80
    centre = top + Fraction(1, 2)
    a, square = _arb(centre), _arb(x * x)
    # Lemma 1 encloses the first ratio; each step back multiplies the width by less than the ratio squared.
    ratio = (_arb(x) / (a + (square + a * a).sqrt())).union(_arb(x) / (a + (square + (a + 1) ** 2).sqrt()))
    ratios = []
    for n in range(top, 0, -1):
        ratio = 1 / (_arb(2 * n / x) + ratio)
        ratios.append(ratio)
    masses = [arb(1)]
    for ratio in reversed(ratios):
        masses.append(masses[-1] * ratio)
    return masses


def _rational(value: Fraction) -> fmpq:
    return fmpq(value.numerator, value.denominator)


def _arb(value: Fraction) -> arb:
    return arb(_rational(value))


_PRECISIONS = (128, 512, 2048, 8192)


def generalised_laplace_epsilon(weight: float, scale: float, shift: int) -> float:
    """Epsilon of one coordinate that moves by ``shift`` under shares of total ``weight``; rounded up.

    It is exact for that one coordinate, and says nothing about several: many small shifts leak more than one
    large one. From weight 1 on it is ``shift / scale``.
    """
    _check(weight, scale, shift)
    if shift == 0:
        return 0.0
    if weight == 0:
        return math.inf
    if weight >= 1:
        return _up(arb(shift) / arb(scale))
    return _log_mass_ratio(weight, scale, shift)


@lru_cache(maxsize=256)
def _log_mass_ratio(weight: float, scale: float, shift: int) -> float:
    """Logarithm of mass(0) / mass(shift) of the difference of two NB(weight, e^(-1/scale)) counts; rounded up."""
    for precision in _PRECISIONS:
        # Every enclosure is right at any precision; more bits only make it narrow.
        with ctx.workprec(precision):
            found = _enclosed(arb(float(weight)), arb(float(scale)), shift)
        if found.is_finite() and found.rel_accuracy_bits() >= 60:
            return _up(found)
    with ctx.workprec(_PRECISIONS[0]):
        return _up(_above(arb(float(weight)), arb(float(scale)), shift))


def _enclosed(weight: arb, scale: arb, shift: int) -> arb:
    square = (-2 / scale).exp()
    here = square.hypgeom_2f1(weight, weight, arb(1))
    there = square.hypgeom_2f1(weight + shift, weight, arb(shift + 1))
    return shift / scale + here.log() - there.log() - _log_rising(weight, shift)


def _above(weight: arb, scale: arb, shift: int) -> arb:
    """A bound from above by the binomial series, close where ``shift`` is far beyond ``scale``."""
    square = (-2 / scale).exp()
    here = square.hypgeom_2f1(weight, weight, arb(1))
    slowest = (weight + shift) / (shift + 1)  # a term is at least this power of it times the binomial one
    return shift / scale + here.log() + weight * (1 - square * slowest).log() - _log_rising(weight, shift)


def _log_rising(weight: arb, shift: int) -> arb:
    return (weight + shift).lgamma() - weight.lgamma() - arb(shift + 1).lgamma()


def _up(value: arb) -> float:
    return math.nextafter(float(value.upper()), math.inf)


def _check(weight: float, scale: float, shift: int) -> None:
    if not (0 <= weight < math.inf and 0 < scale < math.inf):
        raise PrivacyError("a share's weight must be a finite number, not negative, and the scale positive [PR085]")
    if isinstance(shift, bool) or shift != int(shift) or shift < 0:
        raise PrivacyError("the shift of a coordinate must be a whole number, not negative [PR086]")
