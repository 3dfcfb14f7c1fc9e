"""One exact sampler for every law of :mod:`colonnade.privacy.noise.laws`: strips, whole bits and one coin.

The values ``0, 1, 2, ...`` are cut into strips whose widths are powers of two; a strip comes from a table of
integers, the place inside it from raw bits, and one coin corrects both to the law. The coin is settled by 32 bits
and an integer comparison almost always, in float64 with an error bound otherwise, and by interval arithmetic
with further random bits where float64 cannot tell. ``docs/theory/exact-samplers.md`` has the proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from colonnade.privacy.noise.laws import Law, precise
from colonnade.randomness import Stream

TICKET_BITS = 16
BAND = 2.0**-40  # float64 decides only outside this relative band; its error is proven to be below 2^-42
_TICKETS = 1 << TICKET_BITS
_WASTE = 1 / _TICKETS  # share of the proposals that one strip may lose because its mass is not flat, at most
_NARROW = 32  # reach: below, every value is a strip of its own, which saves drawing a place
_CHUNK = 1 << 16
_ROUND = 2.0**-50  # widens a float made from an interval's end


@dataclass(frozen=True)
class Strips:
    """A law cut into strips, with what a coin toss in each strip needs.

    Strip ``k`` holds the values from ``start[k]`` to ``start[k] + mask[k]`` and ``weight[k]`` of the ``2^16`` tickets.
    A value in it is kept with probability ``scale * f(value) * (mask[k] + 1) / weight[k]``.
    """

    law: Law
    scale: float
    start: NDArray[np.int64]
    mask: NDArray[np.int64]
    weight: NDArray[np.int64]
    tickets: NDArray[np.uint16]
    sure: NDArray[np.uint32]
    height: NDArray[np.float64]
    slack: NDArray[np.float64]

    @property
    def end(self) -> int:
        """The first value that is never drawn."""
        return int(self.start[-1]) + int(self.mask[-1]) + 1

    def draw(self, count: int, stream: Stream, band: float = BAND) -> NDArray[np.int64]:
        """What is kept of ``count`` proposals: independent samples of the law, at most ``count``."""
        words = stream.uint64(count).view("<i8")
        strip = np.take(self.tickets, words & (_TICKETS - 1)).astype(np.intp)
        widest = int(self.mask.max())
        if widest == 0:  # then strip k is the value k
            value = strip.copy()
        else:
            value = np.take(self.start, strip)
            fits = TICKET_BITS + widest.bit_length() < 64  # one bit is left for the sign
            place = words >> TICKET_BITS if fits else stream.uint64(count).view("<i8")
            place &= np.take(self.mask, strip)
            value += place
        coin = stream.uint32(count)
        kept = coin < np.take(self.sure, strip)
        unsure = np.flatnonzero(~kept)
        kept[unsure] = self._toss(strip[unsure], value[unsure], coin[unsure], stream, band)
        if self.law.signed:
            zero = np.flatnonzero(value == 0)
            kept[zero] &= words[zero] >= 0  # zero has one sign, or it would come twice as often
            sign = words >> 63
            value ^= sign
            value -= sign
        return value[kept]

    def _toss(
        self,
        strip: NDArray[np.intp],
        value: NDArray[np.int64],
        coin: NDArray[np.uint32],
        stream: Stream,
        band: float,
    ) -> NDArray[np.bool_]:
        """Settle coins of which 32 bits are known: keep where the coin is below the chance."""
        more = stream.uint64(len(value))
        chance = self.chance(strip, value)
        toss = (coin + more * 2.0**-64) * 2.0**-32
        kept = toss + 2.0**-90 < chance * (1 - self.slack[strip]) * (1 - band)
        lost = toss > chance * (1 + band)
        for i in np.flatnonzero(~(kept | lost)):
            known = (int(coin[i]) << 64) | int(more[i])
            kept[i] = self.settle(int(strip[i]), int(value[i]), known, 96, stream)
        return kept

    def chance(self, strip: NDArray[np.intp], value: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probability to keep: right up to ``slack`` below and float64's error either way."""
        chance = self.height[strip]
        wide = np.flatnonzero(self.mask[strip])
        if len(wide):
            chance[wide] *= self.law.envelope(value[wide])
        return chance

    def exact_chance(self, strip: int, value: int) -> arb:
        """An interval around the same probability, as narrow as the working precision allows."""
        return self.law.mass(value) * arb(self.scale) * (int(self.mask[strip]) + 1) / int(self.weight[strip])

    def settle(self, strip: int, value: int, coin: int, known: int, stream: Stream) -> bool:
        """Settle one coin whose first ``known`` bits are ``coin`` by intervals and, if needed, more bits."""
        bits = known + 64
        while True:
            with precise(bits):
                chance = self.exact_chance(strip, value) * (1 << known)
                if arb(coin + 1) <= chance:
                    return True
                if arb(coin) >= chance:
                    return False
            coin = (coin << 64) | int(stream.uint64(1)[0])
            known += 64
            bits += 128


def sample(law: Law, shape: int | tuple[int, ...], stream: Stream) -> NDArray[np.int64]:
    """Independent samples of a law, each within ``law.cut`` of it in total variation."""
    table = strips(law)
    size = shape if isinstance(shape, int) else prod(shape)
    out = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        drawn = table.draw(min(_CHUNK, (size - done) * 17 // 16 + 16), stream)[: size - done]
        out[done : done + len(drawn)] = drawn
        done += len(drawn)
    return out.reshape(shape)


@lru_cache(maxsize=64)
def strips(law: Law) -> Strips:
    """Cut a law into strips."""
    with precise(128):
        ends, low, high = _edges(law)
    start, width = ends[:-1], np.diff(ends)
    own = width == 1
    mass = width * high[:-1]
    scale = _scale(mass)
    weight = np.ceil(scale * mass * (1 + _ROUND)).astype(np.int64)
    weight[0] += _TICKETS - weight.sum()
    slack = 1 - low[:-1] / high[:-1]
    for k in np.flatnonzero(~own):
        slack[k] = _float(law.slack(int(ends[k]), int(ends[k + 1])))
    # The first value of the next strip is below all of this one.
    sure = 2.0**32 * (scale * width * np.where(own, low[:-1], low[1:]) / weight) * (1 - _ROUND)
    return Strips(
        law=law,
        scale=scale,
        start=start,
        mask=width - 1,
        weight=weight,
        tickets=np.repeat(np.arange(len(start), dtype=np.uint16), weight),
        sure=np.minimum(np.floor(sure), 2.0**32 - 1).astype(np.uint32),
        height=scale * width * np.where(own, high[:-1], 1.0) / weight,
        slack=slack,
    )


def _edges(law: Law) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Where strips begin, the last one's end, and bounds of ``f`` there; what lies beyond is below ``law.cut``."""
    ends, low, high = [0], [1.0], [1.0]
    here, inside, sides = arb(1), arb(1), 2 if law.signed else 1
    shift = 64
    cut = arb(fmpq(law.cut.numerator, law.cut.denominator))
    while True:
        shift, there = _widest(law, ends[-1], here, shift + 1)
        width = 1 << shift
        ends.append(ends[-1] + width)
        low.append(max(0.0, float(there.lower()) * (1 - _ROUND)))
        high.append(float(there.upper()) * (1 + _ROUND))
        if sides * law.beyond(ends[-1], width) < cut * inside:
            return np.array(ends), np.array(low), np.array(high)
        inside += sides * width * there
        here = there


def _widest(law: Law, start: int, here: arb, shift: int) -> tuple[int, arb]:
    """The width, as a power of two, over which ``f`` falls by little enough, and ``f`` at the end of it."""
    shift = 0 if law.fine or law.reach < _NARROW else min(shift, law.reach.bit_length() - 1)
    while True:
        there = law.edge(start + (1 << shift))
        # About half of the fall times the width is proposed in vain.
        if shift == 0 or float(here - there) * (1 << shift) <= 2 * _WASTE * law.bulk:
            return shift, there
        shift -= 1


def _scale(mass: NDArray[np.float64]) -> float:
    """About the largest factor with which the masses, rounded up to whole tickets, still fit."""
    least, most = 0.0, _TICKETS / float(mass.sum())
    for _ in range(40):
        middle = (least + most) / 2
        fits = np.ceil(middle * mass * (1 + _ROUND)).sum() <= _TICKETS
        least, most = (middle, most) if fits else (least, middle)
    return least


def _float(value: fmpq) -> float:
    return float(Fraction(int(value.p), int(value.q)))
