"""Integer noise drawn exactly: the discrete Gaussian and the Skellam law, without floating-point bias.

Both laws are symmetric, fall away from zero and are log-concave, so one sampler serves both. The values
``0, 1, 2, ...`` are cut into strips of a power-of-two width; a strip comes from a table of integers, the
place inside it from raw bits, and one coin corrects both to the law. The coin is settled by 32 bits and an
integer comparison almost always, in float64 with an error bound otherwise, and by interval arithmetic with
further random bits where float64 cannot tell. ``docs/theory/exact-samplers.md`` has the proof.

The number of coins depends on what is drawn, and so does the time: draw noise before a protocol starts,
not between two messages.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod
from threading import Lock
from typing import Protocol

import numpy as np
from flint import arb, ctx, fmpq
from numpy.typing import NDArray

from colonnade.errors import CapacityError
from colonnade.randomness import Stream

TAIL = Fraction(1, 1 << 128)
"""Total-variation distance per sample between what is returned and the ideal law, at most."""

_LARGEST = 1 << 118  # variance: the farthest strip then ends below 2^63
_SMALL = 1 << 16  # variance: below, each value is a strip of its own
_TICKET_BITS = 16
_CHUNK = 1 << 15
_BAND = 2.0**-40  # float64 decides only outside this relative band; its error is proven to be below 2^-42
_ROUND = 2.0**-50  # widens a float made from an interval's end

# The precision is one setting for the whole process. Every enclosure is right at any precision, so a change
# by another thread could only waste time; the lock keeps our own threads from doing that to each other.
_precision = Lock()


def discrete_gaussian(variance: Fraction | int, shape: int | tuple[int, ...], stream: Stream) -> NDArray[np.int64]:
    """Samples of the law on the integers with mass proportional to ``exp(-k^2 / (2 variance))``."""
    return _sample(_Gaussian(_checked(variance, "variance", _LARGEST)), shape, stream)


def skellam(mu: Fraction | int, shape: int | tuple[int, ...], stream: Stream) -> NDArray[np.int64]:
    """Samples of the difference of two Poisson counts of mean ``mu``; the variance is ``2 mu``."""
    return _sample(_Skellam(2 * _checked(mu, "mu", _LARGEST // 2)), shape, stream)


class _Law(Hashable, Protocol):
    """A symmetric log-concave law on the integers that falls away from zero."""

    @property
    def variance(self) -> Fraction: ...

    @property
    def bend(self) -> float:
        """The ``c`` with ``log mass(v) <= -v^2 / (2 variance) (1 - c (v^2 - 1/2))``."""
        ...

    def slack(self, value: fmpq) -> fmpq:
        """How far below that bound log mass(v) can be, at most, for v up to ``value``."""
        ...

    def edge(self, value: int) -> arb:
        """An interval around the ratio mass(value)/mass(0), narrow enough for the table, and fast."""
        ...

    def mass(self, value: int) -> arb:
        """An interval around the same ratio that shrinks as the precision grows."""
        ...


@dataclass(frozen=True)
class _Gaussian:
    variance: Fraction
    bend = 0.0

    def slack(self, value: fmpq) -> fmpq:
        return fmpq(0)

    def edge(self, value: int) -> arb:
        return self.mass(value)

    def mass(self, value: int) -> arb:
        return _arb(-value * value / (2 * self.variance)).exp()


@dataclass(frozen=True)
class _Skellam:
    """Lemma numbers are those of docs/theory/skellam-close-to-gaussian.md."""

    variance: Fraction

    @property
    def bend(self) -> float:
        return 1 / (12 * float(self.variance) ** 2)

    def slack(self, value: fmpq) -> fmpq:  # Lemma 3
        x = _rational(self.variance)
        return value * (value + 1) / (2 * x**2) + value**6 / (80 * x**5)

    def edge(self, value: int) -> arb:
        if self.variance < _SMALL:
            return _ladder(self.variance)[value]
        x, v = _rational(self.variance), fmpq(value)
        top = -v * v / (2 * x) * (1 - (v * v - fmpq(1, 2)) / (12 * x * x))
        return arb(top).exp().union(arb(top - self.slack(v)).exp())

    def mass(self, value: int) -> arb:
        x = _arb(self.variance)
        return x.bessel_i(value, scaled=True) / x.bessel_i(0, scaled=True)


@lru_cache(maxsize=4)
def _ladder(x: Fraction) -> list[arb]:
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


@dataclass(frozen=True)
class _Strips:
    """A law cut into strips of ``2^shift`` values, with what a coin toss in each strip needs.

    Strip ``k`` holds ``weight[k]`` of the ``2^16`` tickets, at least ``scale * mass(first value)``. A value
    in it is kept with probability ``scale * mass(value) / weight[k]``.
    """

    law: _Law
    shift: int
    scale: float
    weight: NDArray[np.int64]
    tickets: NDArray[np.uint16]
    sure: NDArray[np.uint32]
    height: NDArray[np.float64]
    slack: NDArray[np.float64]

    def draw(self, count: int, stream: Stream, band: float = _BAND) -> NDArray[np.int64]:
        """What is kept of ``count`` proposals: independent samples of the law, at most ``count``."""
        words = stream.uint64(count).view("<i8")
        strip = np.take(self.tickets, words & ((1 << _TICKET_BITS) - 1))
        value = strip.astype(np.int64)
        if self.shift:
            fits = _TICKET_BITS + self.shift < 64  # one bit is left for the sign
            place = words >> _TICKET_BITS if fits else stream.uint64(count).view("<i8")
            place &= (1 << self.shift) - 1
            value <<= self.shift
            value |= place
        coin = stream.uint32(count)
        kept = coin < np.take(self.sure, strip)
        unsure = np.flatnonzero(~kept)
        kept[unsure] = self._toss(strip[unsure].astype(np.int64), value[unsure], coin[unsure], stream, band)
        zero = np.flatnonzero(value == 0)
        kept[zero] &= words[zero] >= 0  # zero has one sign, or it would come twice as often
        sign = words >> 63
        value ^= sign
        value -= sign
        return value[kept]

    def _toss(
        self,
        strip: NDArray[np.int64],
        value: NDArray[np.int64],
        coin: NDArray[np.uint32],
        stream: Stream,
        band: float,
    ) -> NDArray[np.bool_]:
        """Settle coins of which 32 bits are known: keep where coin < scale * mass(value) / weight[strip]."""
        more = stream.uint64(len(value))
        chance = self.chance(strip, value)
        toss = (coin + more * 2.0**-64) * 2.0**-32
        kept = toss + 2.0**-90 < chance * (1 - self.slack[strip]) * (1 - band)
        lost = toss > chance * (1 + band)
        for i in np.flatnonzero(~(kept | lost)):
            known = (int(coin[i]) << 64) | int(more[i])
            kept[i] = self.settle(int(strip[i]), int(value[i]), known, 96, stream)
        return kept

    def chance(self, strip: NDArray[np.int64], value: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probability to keep: right up to ``slack`` below and float64's error either way."""
        if self.shift == 0:
            return self.height[strip]
        square = value.astype(np.float64) ** 2
        bend = 1 - self.law.bend * (square - 0.5)
        return self.height[strip] * np.exp(square * (-0.5 / float(self.law.variance)) * bend)

    def settle(self, strip: int, value: int, coin: int, known: int, stream: Stream) -> bool:
        """Settle one coin whose first ``known`` bits are ``coin`` by intervals and, if need be, more bits."""
        bits = known + 64
        while True:
            with _precision, ctx.workprec(bits):
                chance = self.law.mass(value) * arb(self.scale) / int(self.weight[strip]) * (1 << known)
                if arb(coin + 1) <= chance:
                    return True
                if arb(coin) >= chance:
                    return False
            coin = (coin << 64) | int(stream.uint64(1)[0])
            known += 64
            bits += 128


@lru_cache(maxsize=64)
def _strips(law: _Law) -> _Strips:
    """Cut a law of positive variance into strips."""
    shift = 0 if law.variance < _SMALL else (int(law.variance).bit_length() - 1) // 2 - 5
    with _precision, ctx.workprec(128):
        low, high = _edges(law, 1 << shift)
    inner = high[:-1]
    scale = _scale(inner)
    weight = np.ceil(scale * inner * (1 + _ROUND)).astype(np.int64)
    weight[0] += (1 << _TICKET_BITS) - weight.sum()
    if shift == 0:
        least, height, slack = low[:-1], scale * inner / weight, 1 - low[:-1] / inner
    else:  # the first value of the next strip is below all of this one
        ends = (fmpq(k << shift) for k in range(1, len(high)))
        least, height, slack = low[1:], scale / weight, np.array([float(arb(law.slack(end))) for end in ends])
    sure = np.floor(2.0**32 * (scale * least / weight) * (1 - _ROUND))
    return _Strips(
        law=law,
        shift=shift,
        scale=scale,
        weight=weight,
        tickets=np.repeat(np.arange(len(inner), dtype=np.uint16), weight),
        sure=np.minimum(sure, 2.0**32 - 1).astype(np.uint32),
        height=height,
        slack=slack,
    )


def _edges(law: _Law, width: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds of the mass at each strip's first value and just beyond the last; the rest is below TAIL."""
    low, high = [1.0], [1.0]
    total, before, tail = arb(1), arb(1), _arb(TAIL)
    while True:
        here = law.edge(len(low) * width)
        low.append(max(0.0, float(here.lower()) * (1 - _ROUND)))
        high.append(float(here.upper()) * (1 + _ROUND))
        # Log-concave: from here on each strip is below the one before by at least this last factor.
        if 2 * width * here < tail * total * (1 - here / before):
            return np.array(low), np.array(high)
        total += 2 * width * here
        before = here


def _scale(mass: NDArray[np.float64]) -> float:
    """About the largest factor with which the masses, rounded up to whole tickets, still fit."""
    tickets = 1 << _TICKET_BITS
    least, most = 0.0, float(tickets)
    for _ in range(40):
        middle = (least + most) / 2
        fits = np.ceil(middle * mass * (1 + _ROUND)).sum() <= tickets
        least, most = (middle, most) if fits else (least, middle)
    return least


def _sample(law: _Law, shape: int | tuple[int, ...], stream: Stream) -> NDArray[np.int64]:
    size = shape if isinstance(shape, int) else prod(shape)
    if law.variance == 0:
        return np.zeros(shape, dtype=np.int64)
    table = _strips(law)
    out = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        drawn = table.draw(min(_CHUNK, (size - done) * 17 // 16 + 16), stream)[: size - done]
        out[done : done + len(drawn)] = drawn
        done += len(drawn)
    return out.reshape(shape)


def _checked(value: Fraction | int, name: str, largest: int) -> Fraction:
    given = Fraction(value)
    exact = Fraction(int(given.numerator), int(given.denominator))  # numpy integers would overflow
    if exact < 0:
        raise ValueError(f"{name} must not be negative")
    if exact > largest:
        limit = largest.bit_length() - 1
        raise CapacityError(f"{name} is above 2^{limit}: such noise does not fit 64-bit integers")
    return exact
