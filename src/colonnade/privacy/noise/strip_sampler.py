"""One exact sampler for every law of :mod:`~colonnade.privacy.noise.mass_functions`: strips, bits and, rarely, a coin.

The values are cut into strips whose widths are powers of two. What of a law is flat within its strips is drawn by a
table and raw bits alone; that is 96 percent or more. The rest has a table of its own and a coin, which is settled
in float64 with an error bound, and by interval arithmetic with further random bits where float64 cannot tell.
``docs/theory/exact-samplers.md`` has the proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

from colonnade.privacy.noise.mass_functions import ROUND, Floats, MassFunction, Values, working_precision
from colonnade.randomness import Stream

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
