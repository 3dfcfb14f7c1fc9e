"""Random numbers that a computation needs: masks, masks whose bits are shared too, and coins; can be made ahead.

A mask is the sum of one number from every group of seats (:mod:`colonnade.mpc.shamir`), each uniform below 2^width. It
hides a secret when both are opened as a sum. Take two secrets that differ by less than 2^b, and an observer who knows
the numbers of all groups but one: the two sums have a statistical distance of at most 2^(b - width) to this observer.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from math import comb
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError
from colonnade.message_schema import receive_message
from colonnade.mpc import messages
from colonnade.mpc.committee import Shares
from colonnade.mpc.engine import ShareEngine
from colonnade.mpc.fixed_point.shared_bits import WORD, BitEngine, BitShares, add_bits, slice_bits, word_count
from colonnade.mpc.messages import BLOCK, pack, unpack
from colonnade.mpc.residues import LIMB, Residues, ResidueSystem, centred
from colonnade.mpc.shamir import key_groups
from colonnade.mpc.verification.bit_products import BitProductClaims
from colonnade.mpc.verification.claims import MOST_HELD
from colonnade.randomness import Stream

SLACK = 40
"""A mask has at least this many bits more than the number that it hides."""
_TOGETHER = 1 << 22
"""At most this many bits are made ahead at a time, so that memory stays bounded."""
_HURRY = 1 << 12
"""For at most this many numbers, fewer rounds save more time than fewer bytes."""
CHUNK = 1 << 13
"""Masks of many numbers are made so many at a time: what is computed then stays in the processor's cache."""
LONG_LIMB = 25
"""Times a residue, limbs of this size are below 2^46, so that 32 of them sum up to less than 2^51."""
_UNHEARD = 16
"""So many blocks of coins may be on their way before a seat takes what it is told of the first one."""
Made = TypeVar("Made")
MaskKey = tuple[str, int, int]
"""The kind, the number of bits, and for how many numbers."""


def residue_system_for(bits: int, seats: int, threshold: int) -> ResidueSystem:
    """The smallest arithmetic in which a committee of this size can open numbers of ``bits`` bits under a mask."""
    return ResidueSystem.for_bound(4 * comb(seats, threshold) << (bits + 1 + SLACK))


@dataclass(frozen=True)
class TruncationMask:
    """Shares of random numbers r, and of the sum of all groups' parts of r without their lowest bits."""

    whole: Shares
    high: Shares


@dataclass(frozen=True)
class BitMask:
    """Shares of random numbers, and shares of each of their lowest bits."""

    whole: Shares
    low: BitShares


@dataclass(frozen=True)
class SharedCoins:
    """Shares of random bits in two forms: as integers of shape (bits, count), and as bits."""

    numbers: Shares
    bits: BitShares


@dataclass(frozen=True)
class _MaskLimbs:
    """How numbers of groups are drawn: limbs of few bits, the lowest first, and of each limb those of all groups."""

    tops: NDArray[np.uint32]
    """The largest value of each limb, as a column."""
    low: Residues
    """The factors of the limbs of the lowest bits, which are cut off, in the sum over all groups."""
    high: Residues
    """Those of the limbs above them, counted from there."""
    terms: int
    """A sum of so many products of a limb and a residue can be reduced in one pass."""

    def draw(self, streams: Sequence[Stream], count: int) -> NDArray[np.float64]:
        """The limbs of ``count`` numbers of each group."""
        out = np.empty((len(self.tops), len(streams), count))
        for place, stream in enumerate(streams):
            words = stream.uint32((len(self.tops), count))
            words &= self.tops
            out[:, place] = words
        return out.reshape(-1, count)


class MaskSource:
    """The masks of one seat. What was not made ahead is made when it is needed; all seats ask in the same order."""

    def __init__(self, engine: ShareEngine) -> None:
        self.engine, self.system = engine, engine.system
        self.bits = BitEngine(engine.name, engine.committee, engine.links, engine.common)
        self.claims = BitProductClaims(self.bits, engine.coin) if engine.active else None
        """What is claimed of shared bits, where seats check each other's work."""
        self.bits.claims = self.claims
        self.used: Counter[MaskKey] = Counter()
        """How often each kind was used; :meth:`prepare` can make the same for the next computation."""
        self._drawn_in: dict[int, _MaskLimbs] = {}
        self._kept: defaultdict[MaskKey, deque[Any]] = defaultdict(deque)
        self._makers: dict[str, Callable[[int, int], Any]] = {
            "mask": partial(self._make_mask, zeros=False),
            "open mask": partial(self._make_mask, zeros=True),
            "bit mask": self._bit_mask,
            "coins": self._coins,
        }

    @cached_property
    def groups(self) -> int:
        """The number of groups: a mask is the sum of this many numbers."""
        return len(key_groups(self.engine.committee))

    @cached_property
    def width(self) -> int:
        """Bits of the number of one group, so that the sum of all groups is below an eighth of the modulus."""
        return (self.system.modulus // (8 * self.groups)).bit_length() - 1

    def check(self, bits: int, what: str) -> None:
        """Refuse numbers of ``bits`` bits if a mask cannot hide them; the error calls them ``what``."""
        if bits + SLACK > self.width:
            raise CapacityError(
                f"{what} has up to {bits} bits, and with {SLACK} bits of slack the arithmetic hides "
                f"{max(0, self.width - SLACK)}: use more primes, fewer fractional bits or smaller bounds [CA004]"
            )

    def prepare(self, needed: Mapping[MaskKey, int]) -> None:
        """Make the given number of batches of each kind ahead of time.

        Where the numbers of a batch fill whole words, all batches of a kind are made at once, in as many rounds as one.
        """
        for (kind, bits, count), times in needed.items():
            at_once = max(1, min(times, _TOGETHER // max(1, bits * count))) if count % WORD == 0 else 1
            for start in range(0, times, at_once):
                some = min(at_once, times - start)
                made = self._makers[kind](bits, some * count)
                self._kept[kind, bits, count].extend(_take_part(made, i * count, count) for i in range(some))
                self.settle_if_full()

    def settle_if_full(self) -> None:
        """Check what is claimed if too much memory is held."""
        if self.claims is not None:
            self.engine.claims.settle_if_full()
            if self.claims.held > MOST_HELD:
                self.claims.settle()

    def mask(self, bits: int, count: int) -> TruncationMask:
        """A mask of degree ``threshold``, for numbers of which ``bits`` bits will be cut off."""
        return self._take(("mask", bits, count), TruncationMask)

    def open_mask(self, bits: int, count: int) -> TruncationMask:
        """A mask of twice that degree, for products of two shared numbers."""
        return self._take(("open mask", bits, count), TruncationMask)

    def bit_mask(self, bits: int, count: int) -> BitMask:
        """A mask whose b lowest bits are shared as bits too.

        The bits of all groups are added (:func:`add_bits`, which states the rounds). A seat sends about
        b (groups - 2 + log2 b) shared bits to each of n - 1 - t seats, or b (groups - 1) if there are many numbers.
        """
        return self._take(("bit mask", bits, count), BitMask)

    def coins(self, bits: int, count: int) -> SharedCoins:
        """Random bits in both forms: about log2(groups) rounds, and one product for each group but one.

        Three seats that do not check each other take 2 rounds, and each sends one share.
        """
        return self._take(("coins", bits, count), SharedCoins)

    def _take(self, key: MaskKey, kind: type[Made]) -> Made:
        self.used[key] += 1
        kept, make = self._kept[key], self._makers[key[0]]
        return cast(Made, kept.popleft() if kept else make(*key[1:]))

    def _shares(self, values: Residues, degree: int | None = None) -> Shares:
        return Shares(values, self.engine.committee.threshold if degree is None else degree)

    def _make_mask(self, bits: int, count: int, *, zeros: bool) -> TruncationMask:
        """A mask, with ``zeros`` under a sharing of zero of twice its degree; made in chunks that fit in the cache.

        The number of each group is drawn in limbs. A matrix of the groups' weights and of powers of two, times all
        limbs, is this seat's share of the sum.
        """
        system, common = self.system, self.engine.common
        degree = (2 if zeros else 1) * self.engine.committee.threshold
        limbs = self._limbs(bits)
        shift, passes = system.constant(1 << bits, 2), 1 if len(limbs.high.T) <= limbs.terms else 2
        whole, high = (np.empty((len(system.primes), count)) for _ in range(2))
        for start in range(0, count, CHUNK):
            part = slice(start, min(count, start + CHUNK))
            drawn = limbs.draw([stream for _, stream in common.streams], part.stop - part.start)
            low, above = drawn[: limbs.low.shape[1]], drawn[limbs.low.shape[1] :]
            total = system.reduce(limbs.high @ above, passes=passes)
            high[:, part] = total
            total *= shift
            total += limbs.low @ low
            if zeros:
                common.add_zero(total, degree)
            whole[:, part] = system.reduce(total)
        return TruncationMask(self._shares(whole, degree), self._shares(high))

    def _limbs(self, bits: int) -> _MaskLimbs:
        """How a number of which ``bits`` bits will be cut off is drawn, and what its limbs are multiplied with."""
        found = self._drawn_in.get(bits)
        if found is None:
            weights, primes = self.engine.common.weights, self.system.primes
            # Of few groups longer limbs, and so fewer of them, are exact as well.
            most, size = (1 << 5, LONG_LIMB) if len(weights) * self.width <= LONG_LIMB << 4 else (1 << 8, LIMB)
            lengths = bits, self.width - bits
            sizes = [[min(size, length - start) for start in range(0, length, size)] for length in lengths]

            def factors(count: int) -> Residues:
                rows = [
                    [centred(int(weight[k]) << size * place, prime) for place in range(count) for weight in weights]
                    for k, prime in enumerate(primes)
                ]
                return np.array(rows, dtype=np.float64)

            tops = np.array([(1 << one) - 1 for both in sizes for one in both], dtype=np.uint32)[:, None]
            found = self._drawn_in[bits] = _MaskLimbs(tops, factors(len(sizes[0])), factors(len(sizes[1])), most)
        return found

    def _bit_mask(self, bits: int, count: int) -> BitMask:
        lows, highs = self._draw(bits, count)
        factor = self.system.constant(1 << bits, 2)
        parts = [
            self.system.reduce(self.system.unreduced(low, bits) + high * factor)
            for low, high in zip(lows, highs, strict=True)
        ]
        whole = self.engine.common.share_of_sum(iter(parts))
        numbers = self.bits.group_bits([slice_bits(low, bits) for low in lows], count)
        return BitMask(self._shares(whole), add_bits(self.bits, numbers, fast=count <= _HURRY))

    def _draw(self, bits: int, count: int) -> tuple[list[NDArray[np.uint64]], list[Residues]]:
        """For each group of this seat, draw a number: its lowest bits, and the number without them."""
        lows, highs = [], []
        top = self.width - bits
        for _, stream in self.engine.common.streams:
            lows.append(stream.uint64(count) & np.uint64((1 << bits) - 1))
            limbs = stream.uint32((-(-top // LIMB), count)) & np.uint32((1 << LIMB) - 1)
            limbs[-1] &= np.uint32((1 << (top - 1) % LIMB + 1) - 1)
            highs.append(self.system.reduce(self.system.unreduced_from_limbs(limbs.astype(np.float64))))
        return lows, highs

    def _coins(self, bits: int, count: int) -> SharedCoins:
        """The sum modulo 2 of one coin from each group, computed on bits and on integers.

        Where seats check each other's work, the shared bit is the first plane of a random element of the whole field.
        """
        words, streams = word_count(count), [stream for _, stream in self.engine.common.streams]
        if self.engine.active:
            elements = [stream.uint64((self.bits.field.m, bits, words)) for stream in streams]
            binary, drawn = self.bits.random_elements(elements, count), [planes[0] for planes in elements]
        else:
            drawn = [stream.uint64((bits, words)) for stream in streams]
            binary, *rest = self.bits.group_bits(drawn, count)
            for more in rest:
                binary = self.bits.xor(binary, more)
        if len(self.engine.committee.seats) == 3 and not self.engine.active:
            return SharedCoins(self._three_seats_xor(drawn, bits, count), binary)
        flat = [unpack_bits(words, count) for words in drawn]
        arithmetic = self._each_group(flat, (bits, count))
        while len(arithmetic) > 1:
            arithmetic = self._pairwise_xor(arithmetic)
        return SharedCoins(arithmetic[0], binary)

    def _three_seats_xor(self, known: Sequence[NDArray[np.uint64]], bits: int, count: int) -> Shares:
        """Three groups' bits, added modulo 2, as integers: 2 rounds, and each seat sends one residue for each prime.

        The first seat knows two of the three bits, and so their sum u modulo 2; the others know the third bit v. The
        first seat splits u into two random summands, one for each of them; each multiplies its summand by 1 - 2 v, and
        the second adds v. So they have two summands of u + v - 2 u v. Of its own, each of them lets the first seat draw
        a random part and tells the other the rest. Then every part is known to two seats, and these are shares.
        """
        engine, system, common = self.engine, self.system, self.engine.common
        first, second, third = engine.committee.seats
        own = known[0] ^ known[1] if engine.name == first else known[1]
        out = np.empty((len(system.primes), bits, count))
        weights = [weight.reshape(-1, 1, 1) for weight in common.weights]
        unheard: deque[Residues] = deque()

        def send(to: str, values: Residues) -> None:
            engine.links[to].send("share", words=pack(values, system))

        def receive(sender: str, shape: tuple[int, ...]) -> Residues:
            due = messages.residues_message("share", shape, len(system.primes))
            return unpack(receive_message(engine.links[sender], sender, due)["words"], shape, system, sender)

        def hear() -> None:
            target = unheard.popleft()
            target += receive(second, target.shape[1:]) * weights[1]
            system.reduce(target)

        for rows, columns in _message_blocks(bits, count):
            target = out[:, rows, columns]
            shape = target.shape[1:]
            bit = unpack_bits(own[rows, columns.start // WORD : word_count(columns.stop)], shape[1])
            if engine.name == first:
                send(second, system.reduce(bit - system.uniform(shape, common.pair_stream(first, third))))
                np.multiply(system.uniform(shape, common.pair_stream(second, first)), weights[0], out=target)
                target += system.uniform(shape, common.pair_stream(third, first)) * weights[1]
                system.reduce(target)
            elif engine.name == second:
                veil = system.uniform(shape, common.pair_stream(second, first))
                part = receive(first, shape)
                part *= 1.0 - 2.0 * bit
                part += bit
                part -= veil
                send(third, system.reduce(part))
                part += receive(third, shape)
                np.multiply(veil, weights[0], out=target)
                part *= weights[1]
                target += part
                system.reduce(target)
            else:
                veil = system.uniform(shape, common.pair_stream(third, first))
                part = system.uniform(shape, common.pair_stream(first, third))
                part *= 1.0 - 2.0 * bit
                part -= veil
                send(second, system.reduce(part))
                np.multiply(veil, weights[0], out=target)
                part *= weights[1]
                target += part
                unheard.append(target)
                if len(unheard) > _UNHEARD:
                    hear()
        while unheard:
            hear()
        return self._shares(out)

    def _each_group(self, known: list[NDArray[np.float64]], shape: tuple[int, ...]) -> list[Shares]:
        """This seat's shares of the numbers of each group; the share is zero if the seat is not in the group."""
        common, k = self.engine.common, len(self.system.primes)
        mine = iter(zip(known, common.weights, strict=True))
        out = []
        for group in key_groups(self.engine.committee):
            if self.engine.name in group:
                values, weight = next(mine)
                out.append(self._shares(values * weight.reshape(-1, *[1] * values.ndim)))
            else:
                out.append(self._shares(np.zeros((k, *shape))))
        return out

    def _pairwise_xor(self, shares: list[Shares]) -> list[Shares]:
        """Half as many numbers: x + y - 2 x y for each pair x, y, which is their XOR; one round."""
        engine, half = self.engine, len(shares) // 2
        left = np.stack([s.values for s in shares[:half]], axis=1)
        right = np.stack([s.values for s in shares[half : 2 * half]], axis=1)
        product = engine.product(self._shares(left), self._shares(right))
        total = self.system.reduce(left + right - 2.0 * product.values)
        return [self._shares(total[:, i]) for i in range(half)] + shares[2 * half :]


def _take_part(made: Any, start: int, count: int) -> Any:
    """The masks or coins of ``count`` numbers among many; both counts are multiples of 64, or all are meant."""
    if isinstance(made, Shares):
        return Shares(made.values[..., start : start + count], made.degree)
    if isinstance(made, BitShares):
        return BitShares(made.planes[..., start // WORD : start // WORD + word_count(count)], made.degree, count)
    return type(made)(*(_take_part(getattr(made, field.name), start, count) for field in fields(made)))


def _message_blocks(bits: int, count: int) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of an array of bits, some at a time: as much as a message has at most."""
    rows, columns = max(1, BLOCK // max(1, count)), max(1, min(count, BLOCK))
    for top in range(0, bits, rows):
        for start in range(0, count, columns):
            yield slice(top, min(bits, top + rows)), slice(start, min(count, start + columns))


def unpack_bits(words: NDArray[np.uint64], count: int) -> NDArray[np.float64]:
    """The single bits in these words as numbers 0.0 and 1.0, ``count`` for each row."""
    flat = np.unpackbits(words.astype("<u8").view(np.uint8), axis=-1, bitorder="little", count=count)
    return flat.astype(np.float64)
