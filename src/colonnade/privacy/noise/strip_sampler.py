"""One exact sampler for every law of noise, and the mass functions that it draws by, enclosed by interval arithmetic.

A law is given by the ratios ``f(v) = mass(v) / mass(0)`` for ``v = 0, 1, 2, ...``, which must fall. The values are cut
into strips whose widths are powers of two. What of a law is flat within its strips is drawn by a table and raw bits
alone; that is 96 percent or more. The rest has a table of its own and a coin, which is settled in float64 with an error
bound, and by interval arithmetic with further random bits where float64 cannot tell. ``docs/theory/exact-samplers.md``
says what is asked of a law, and proves that these four have it. What is left of discrete Laplace noise when an observer
knows part of its shares follows from the same masses (``docs/theory/laplace-shares.md``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt, prod, sqrt
from threading import RLock
from typing import ClassVar

import numpy as np
from flint import arb, ctx, fmpq
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.privacy.noise import TAIL
from colonnade.randomness import Stream

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


TICKET_BITS = 16
BAND = 2.0**-40  # float64 decides only outside this relative band; its error is proven to be below 2^-42
_TICKETS = 1 << TICKET_BITS
_PARTS = 6  # strips of the bulk are this many bits narrower than the law's reach
_FAR = 4  # those beyond it are this many bits wider again
_OCTAVE = 64  # strips while values double, where a law is steep at zero
_CHUNK = 1 << 16
_SPARE = 128  # one round more for so many samples
_COIN_BITS = 64
_PLACES = {"u2": 16, "u4": 32, "i8": 63}  # the shortest words that hold a place


@dataclass(frozen=True)
class StripTable:
    """A law cut into strips, with what is drawn of each by tickets alone and what needs a coin.

    Strip ``k`` holds the values from ``start[k]`` to ``start[k] + mask[k]``. It has ``sure[k]`` of the ``2^16`` first
    tickets and ``rest[k]`` of the ``2^16`` second ones, which are drawn where a first ticket belongs to no strip. A
    value of a second ticket is kept with probability ``(scale * f(value) * (mask[k] + 1) - sure[k]) / step[k]``.
    """

    law: MassFunction
    scale: float
    end: int  # the first value that is never drawn, nor its negative
    start: Values
    mask: Values
    sure: Values
    rest: Values
    step: Floats
    height: Floats
    slack: Floats
    taken: int  # first tickets that belong to a strip
    first: Values  # for each of them, the first value of its strip
    widest: int  # the largest mask of these strips
    places: NDArray[np.integer] | None  # the mask of each of them, where they differ
    place_type: str
    second: NDArray[np.uint16]

    def draw(self, count: int, stream: Stream, band: float = BAND) -> Values:
        """Independent samples of the law."""
        # As many rounds as samples and a few to spare, whose values go where a round gave none.
        out = np.empty(count + count // _SPARE + 2, dtype=np.int64)
        unsure = self._by_ticket(out, stream)
        if len(unsure):
            out[unsure], kept = self._by_coin(len(unsure), stream, band)
            lost = unsure[~kept]
            holes, spare = lost[lost < count], np.delete(out[count:], lost[lost >= count] - count)
            out[holes[: len(spare)]] = spare[: len(holes)]
            if len(holes) > len(spare):
                out[holes[len(spare) :]] = self.draw(len(holes) - len(spare), stream, band)
        return out[:count]

    def _by_ticket(self, out: Values, stream: Stream) -> NDArray[np.intp]:
        """Draw values by first tickets into ``out``, and say where there is none yet."""
        size = min(len(out), _CHUNK)
        tickets, indices, places = np.empty(size, "<u2"), np.empty(size, np.intp), np.empty(size, self.place_type)
        found = [np.empty(0, dtype=np.intp)]
        for begin in range(0, len(out), _CHUNK):
            part = out[begin : begin + _CHUNK]
            ticket, index, place = tickets[: len(part)], indices[: len(part)], places[: len(part)]
            stream.into(ticket)
            index[:] = ticket
            np.take(self.first, index, out=part, mode="clip")  # no index is outside; "clip" writes without a copy
            if self.widest:
                stream.into(place)
                place &= self.widest if self.places is None else np.take(self.places, index, mode="clip")
                part += place
            found.append(begin + np.flatnonzero(ticket >= self.taken))
        return np.concatenate(found)

    def _by_coin(self, count: int, stream: Stream, band: float) -> tuple[Values, NDArray[np.bool_]]:
        """Values proposed by second tickets, and which of them a coin keeps."""
        ticket = np.empty(count, "<u2")
        stream.into(ticket)
        strip = self.second[ticket].astype(np.intp)
        value = stream.uint64(count).view("<i8") & self.mask[strip]
        value += self.start[strip]
        return value, self.toss_coins(strip, value, stream.uint64(count), stream, band)

    def toss_coins(
        self,
        strip: NDArray[np.intp],
        value: Values,
        coin: NDArray[np.uint64],
        stream: Stream,
        band: float,
    ) -> NDArray[np.bool_]:
        """Settle coins of which 64 bits are known: keep where the coin is below the chance."""
        step, whole = self.step[strip], self.whole(strip, value)
        need = self.sure[strip] + step * (coin * 2.0**-_COIN_BITS)
        kept = need + step * 2.0**-60 < whole * (1 - self.slack[strip]) * (1 - band)
        lost = need > whole * (1 + band)
        for i in np.flatnonzero(~(kept | lost)):
            kept[i] = self.settle_coin(int(strip[i]), int(value[i]), int(coin[i]), _COIN_BITS, stream)
        return kept

    def whole(self, strip: NDArray[np.intp], value: Values) -> Floats:
        """``scale * f(value)`` times the width: right up to ``slack`` below and float64's error either way."""
        whole = self.height[strip]
        wide = np.flatnonzero(self.mask[strip])
        if len(wide):
            whole[wide] *= self.law.envelope(np.abs(value[wide]))
        return whole

    def exact_chance(self, strip: int, value: int) -> arb:
        """An interval around the probability to keep, as narrow as the working precision allows."""
        whole = self.law.mass(abs(value)) * arb(self.scale) * (int(self.mask[strip]) + 1)
        return (whole - int(self.sure[strip])) / arb(float(self.step[strip]))

    def settle_coin(self, strip: int, value: int, coin: int, known: int, stream: Stream) -> bool:
        """Settle one coin whose first ``known`` bits are ``coin`` by intervals and, if needed, more bits."""
        bits = known + 128
        while True:
            with working_precision(bits):
                chance = self.exact_chance(strip, value) * (1 << known)
                if arb(coin + 1) <= chance:
                    return True
                if arb(coin) >= chance:
                    return False
            coin = (coin << 64) | int(stream.uint64(1)[0])
            known += 64
            bits += 128


def sample(law: MassFunction, shape: int | tuple[int, ...], stream: Stream) -> Values:
    """Independent samples of a law, each within ``law.cut`` of it in total variation."""
    size = shape if isinstance(shape, int) else prod(shape)
    return strip_table(law).draw(size, stream).reshape(shape)


@lru_cache(maxsize=16)  # a table takes up to 1.2 MB
def strip_table(law: MassFunction) -> StripTable:
    """Cut a law into strips."""
    with working_precision(128):
        ends, near = _ends(law)
        low, high = law.bounds(ends)
    start, width = ends[:-1], np.diff(ends)
    own = width == 1
    # The first value of the next strip is below all of this one, and at most one step beyond its mirror image.
    least, most = np.where(own, low[:-1], low[1:]), high[:-1]
    slack = 1 - low[:-1] / most
    slack[~own] = law.slack(start[~own], ends[1:][~own])
    flat = np.full(len(start), True) if near is None else width == near
    end = int(ends[-1])
    if law.signed:
        shifted = width[0] > 1  # zero is in the first strip, so that the mirror images must begin at -1
        if shifted and own.any():  # its image holds another value, of another mass than the bounds are for
            raise AssertionError("a strip of one value cannot be mirrored with others that hold zero")
        mirrored = slice(None) if shifted else slice(1, None)
        start = np.concatenate((start, 1 - ends[1:][mirrored] - int(shifted)))
        width, least, most, slack, flat = (np.concatenate((a, a[mirrored])) for a in (width, least, most, slack, flat))
        end += int(shifted)
    scale, sure, rest = _tickets(width, np.where(flat, least, 0.0), most)
    taken, widest = int(sure.sum()), int((width[sure > 0] - 1).max(initial=0))
    place_type = next(f"<{kind}" for kind, bits in _PLACES.items() if widest < 1 << bits)
    return StripTable(
        law=law,
        scale=scale,
        end=end,
        start=start,
        mask=width - 1,
        sure=sure,
        rest=rest,
        step=np.asarray(rest * ((_TICKETS - taken) / _TICKETS), dtype=np.float64),
        height=scale * width * np.where(width == 1, most, 1.0),
        slack=slack,
        taken=taken,
        first=_padded(np.repeat(start, sure)),
        widest=widest,
        places=_padded(np.repeat(width - 1, sure)).astype(place_type) if near is None else None,
        place_type=place_type,
        second=np.repeat(np.arange(len(start), dtype=np.uint16), rest),
    )


def _ends(law: MassFunction) -> tuple[Values, int | None]:
    """Where strips begin, the last one's end, beyond which is less than ``law.cut``; and the width of most."""
    reach = law.reach.bit_length() - 1
    near = 1 if law.fine else 1 << max(0, reach - _PARTS)
    far = 1 if law.fine else 1 << max(0, min(reach, near.bit_length() - 1 + _FAR))
    values = np.arange(8 * (law.reach // near) + 8) * near
    low, high = law.bounds(values)
    sides = 2 if law.signed else 1
    # Farther out a strip of the bulk would not get a ticket of its own.
    turn = near * int(np.count_nonzero(high * near * _TICKETS > sides * law.bulk))
    pieces, width, begin = [], near if law.signed else 1, 0
    while width < near:  # a law on one side may be steep at zero
        pieces.append(np.arange(begin, 2 * _OCTAVE * width, width))
        width, begin = 2 * width, 2 * _OCTAVE * width
    turn = max(turn, begin + near)
    pieces.append(np.arange(begin, turn, near))
    inside = arb(1) + sides * near * float(low[1 : turn // near].sum()) * (1 - 2.0**-30)
    last = _last(law, turn, near, far, arb(fmpq(law.cut.numerator, law.cut.denominator)) * inside / sides)
    pieces.append(turn + far * np.arange(last + 1))
    return np.concatenate(pieces), near if law.signed or near == 1 else None


def _last(law: MassFunction, turn: int, near: int, far: int, most: arb) -> int:
    """After how many wider strips there is less than ``most`` left, by bisection."""
    if law.beyond(turn, near) < most:
        return 0
    least, enough = 0, 1
    while not law.beyond(turn + enough * far, far) < most:
        least, enough = enough, enough + max(1, 2 * law.reach // far)
    while enough - least > 1:
        middle = (least + enough) // 2
        least, enough = (least, middle) if law.beyond(turn + middle * far, far) < most else (middle, enough)
    return enough


def _tickets(width: Values, least: Floats, most: Floats) -> tuple[float, Values, Values]:
    """About the largest scale at which all tickets suffice, and the tickets of each strip."""
    at_least, at_most = 0.0, _TICKETS / float((width * most).sum())
    found = None
    while found is None or at_most - at_least > at_most * 2.0**-24:
        scale = (at_least + at_most) / 2
        sure = np.floor(scale * width * least * (1 - ROUND))
        left = _TICKETS - sure.sum()
        rest = np.ceil((scale * width * most * (1 + ROUND) - sure) * (_TICKETS / max(left, 1.0)) * (1 + ROUND))
        if left >= 1 and rest.sum() <= _TICKETS:
            at_least, found = scale, (scale, sure.astype(np.int64), rest.astype(np.int64))
        else:
            at_most = scale
    found[2][0] += _TICKETS - found[2].sum()
    return found


def _padded(table: Values) -> Values:
    return np.concatenate((table, np.zeros(_TICKETS - len(table), dtype=np.int64)))
