"""Truncation: shared numbers without their last bits, which are opened under masks.

To cut off b bits of a number x, seats open c = x + r + a constant. The mask r is the sum of one number l + 2^b h of
each group of seats. Then (c - c mod 2^b) / 2^b - sum h is the floor of (x + sum l) / 2^b.

A number that all seats of a group know is already shared (:mod:`colonnade.mpc.common`). So only one group must know c,
if no seat is spare and seats do not check each other. These are its *readers*. Few numbers are sent to all readers, in
one round. Many numbers are cut in blocks: one seat of each block opens it, and tells the other readers the quotients.
For comparisons all seats need the lowest bits of c, and are told these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc import vocabulary
from colonnade.mpc.committee import Committee
from colonnade.mpc.fixed.blocks import Block
from colonnade.mpc.fixed.masks import Mask, Masks
from colonnade.mpc.packing import Words, is_small, pack, unpack
from colonnade.mpc.residues import AT_ONCE, FEW, Residues, centred, filled, reduce, spread
from colonnade.mpc.shamir import weights
from colonnade.mpc.shares import Shares
from colonnade.mpc.vocabulary import BLOCK, WAVE
from colonnade.received import received

Claim = Callable[[Shares], None]
"""A function that claims that a number, given at the degree of a fresh input, is the product that it should be."""


@dataclass(frozen=True)
class Uncut:
    """An array before its last bits are cut off: the shares, or those of two factors that are not yet multiplied."""

    factors: tuple[Residues, ...]
    shape: tuple[int, ...]
    degree: int
    fraction: int
    bound: int
    kept: int
    """How many fractional bits the result has; if more than there are now, nothing is cut off."""
    claim: Claim
    """Claims the product of the factors."""

    @property
    def values(self) -> Residues:
        """The numbers, not reduced modulo the primes."""
        return self.factors[0] * self.factors[1] if len(self.factors) > 1 else self.factors[0]

    @cached_property
    def count(self) -> int:
        """How many numbers there are."""
        return prod(self.shape)

    @property
    def cut(self) -> int:
        """How many bits are cut off."""
        return self.fraction - self.kept

    @cached_property
    def bits(self) -> int:
        """No number has more bits."""
        return max(self.bound.bit_length(), self.cut)

    def flat(self) -> Uncut:
        """The same numbers in one row; factors of different shapes are multiplied first."""
        factors, shape = self.factors, self.shape
        if len(shape) == 1 and all(factor.ndim == 2 and factor.shape[1:] == shape for factor in factors):
            return self
        if len(factors) > 1 and factors[0].shape != factors[1].shape:
            factors = (self.values,)
        rows = tuple(factor.reshape(len(factor), -1) for factor in factors)

        def claimed(product: Shares) -> None:
            self.claim(Shares(product.values.reshape(len(product.values), *shape), product.degree))

        return replace(self, factors=rows, shape=(self.count,), claim=claimed)


@dataclass(frozen=True)
class _Block:
    """Some numbers of one array, and the seat that opens them."""

    array: int
    part: slice
    king: str

    @property
    def size(self) -> int:
        return int(self.part.stop - self.part.start)


_Step = Callable[[_Block], None]


def in_blocks(committee: Committee, count: int) -> bool:
    """Whether so many numbers are cut in blocks, which takes one round more and fewer bytes."""
    return _few_read(committee) and count * len(committee.system.primes) > FEW


def _few_read(committee: Committee) -> bool:
    return not committee.active and not committee.spare


class Cutter:
    """What one seat does to cut off bits."""

    def __init__(self, masks: Masks) -> None:
        self.masks, self.hand, self.system = masks, masks.hand, masks.hand.system
        self._known_factors: dict[str, tuple[int, ...]] = {}

    def cut(self, numbers: Sequence[Uncut]) -> list[Shares]:
        """The numbers without their last bits, of the shapes that they had."""
        degree = max(number.degree for number in numbers)
        shapes = [number.shape for number in numbers]
        high = degree > self.hand.committee.threshold
        # A sharing of zero that depends on what the seats have seen cannot be made ahead.
        draw = self.masks.open_mask if high and not self.hand.active else self.masks.mask
        masked = [(number.flat(), draw(number.cut, number.count)) for number in numbers]
        committee = self.hand.committee
        if in_blocks(committee, sum(number.count for number in numbers)):
            found = self._in_blocks(masked, degree)
        elif _few_read(committee):
            found = self._read_by_few(masked, degree)
        else:
            found = self._read_by_all(masked, degree)
        return [
            Shares(values.reshape(len(values), *shape), committee.threshold)
            for values, shape in zip(found, shapes, strict=True)
        ]

    # Opened at once

    def _read_by_all(self, masked: Sequence[tuple[Uncut, Mask]], degree: int) -> list[Residues]:
        high, everyone = degree > self.hand.committee.threshold, (1,) * len(self.system.primes)
        joined = self._joined(masked, degree)
        if high and self.hand.active:
            joined = self.hand.add([joined, self.hand.zero(joined.shape, degree)])
        opened = self.hand.open_among_seats(joined)
        found = []
        for (number, mask), part in _parted(opened, masked):
            if high and self.hand.active:
                self._claim_opened(number, part, mask)
            found.append(self._without_mask(number, mask, part, everyone))
        return found

    def _read_by_few(self, masked: Sequence[tuple[Uncut, Mask]], degree: int) -> list[Residues]:
        seats = self.hand.committee.seats
        readers = self._readers(seats[0])
        opened = self.hand.open_to_readers(self._joined(masked, degree), readers)
        if opened is None:
            return [np.negative(mask.high.values) for _, mask in masked]
        factors = self._share_factors(seats[0])
        return [self._without_mask(number, mask, part, factors) for (number, mask), part in _parted(opened, masked)]

    def _joined(self, masked: Sequence[tuple[Uncut, Mask]], degree: int) -> Shares:
        """All numbers under their masks, in one row."""
        rows = []
        for number, mask in masked:
            total = number.values + mask.whole.values
            total += self.system.constant_array(self._offset(number), total.shape)
            rows.append(self.system.reduce(total))
        return Shares(np.concatenate(rows, axis=1) if len(rows) > 1 else rows[0], degree)

    def _offset(self, number: Uncut) -> int:
        """What is added so that nothing is negative, less half of what the groups' lowest bits can add.

        So errors are positive and negative.
        """
        return (1 << number.bits) - ((self.masks.groups - 1) << number.cut >> 1)

    def _without_mask(self, number: Uncut, mask: Mask, opened: Residues, share: tuple[int, ...]) -> Residues:
        """Opened numbers without their lowest bits and without their masks; ``share`` is what readers multiply with."""
        values = self._quotient(number, opened, share)
        values -= mask.high.values
        return self.system.reduce(values)

    def _quotient(self, number: Uncut, opened: Residues, share: tuple[int, ...]) -> Residues:
        """(c - c mod 2^cut - 2^bits) / 2^cut, times a factor for each prime; not reduced, but below 2^51."""
        system, cut = self.system, number.cut
        factors, halves, constants = _factors(system.primes, cut, number.bits, share, spread(opened.shape))
        values = opened * factors
        if cut <= AT_ONCE:
            values -= system.low_bits(opened, cut) * halves
        else:
            low = system.low_word(opened) & np.uint64((1 << cut) - 1)
            values -= system.reduce(system.unreduced(low, cut)) * halves
        values -= constants
        return values

    def _claim_opened(self, number: Uncut, opened: Residues, mask: Mask) -> None:
        """Claim that what was opened at twice the degree is the number under its mask: nothing else shows it.

        Without its mask, what was opened is a sharing of the number at the degree of a fresh input.
        """
        system, threshold = self.system, self.hand.committee.threshold
        values = opened * system.digit_factors(0, opened.shape)
        values -= mask.whole.values
        values -= system.constant_array(self._offset(number), values.shape)
        shares = Shares(system.reduce(values), threshold)
        if number.degree > threshold:
            number.claim(shares)
        else:
            self.hand.claims.zero(Shares(system.reduce(shares.values - number.factors[0]), threshold))

    # Opened in blocks

    def _in_blocks(self, masked: Sequence[tuple[Uncut, Mask]], degree: int) -> list[Residues]:
        """The results, which take the place of the masks: these are used once, and new memory costs more than sums."""
        self._in_waves(
            [number.count for number, _ in masked],
            lambda block: self._send_masked(block, *masked[block.array], degree),
            lambda block: self._open(block, *masked[block.array], degree),
            lambda block: self._hear(block, *masked[block.array], degree),
        )
        return [mask.high.values for _, mask in masked]

    def _in_waves(self, counts: Sequence[int], send: _Step, open_own: _Step, hear: _Step) -> None:
        """Send the blocks that others open, open one's own, and hear of the others', some blocks at a time."""
        for wave in _waves(self._blocks(counts)):
            own = [block for block in wave if block.king == self.hand.name]
            others = [block for block in wave if block.king != self.hand.name]
            for step, blocks in ((send, others), (open_own, own), (hear, others)):
                for block in blocks:
                    step(block)

    def low_words(self, masked: Shares, bits: int) -> NDArray[np.uint64]:
        """The lowest bits of numbers that a mask hides, at the degree of inputs, for all seats: one round.

        Many numbers take two rounds, if no seat is spare and seats do not check each other.
        """
        system, low = self.system, np.uint64((1 << bits) - 1)
        if not in_blocks(self.hand.committee, masked.shape[0]):
            return system.low_word(self.hand.open_among_seats(masked)) & low
        found = np.empty(masked.shape, dtype=np.uint64)

        def open_own(block: _Block) -> None:
            opened = self.hand.open_to_readers(_part(masked, block), (block.king,))
            assert opened is not None  # noqa: S101 - this seat is the reader
            found[block.part] = system.low_word(opened) & low
            words = found[block.part].astype(vocabulary.word_for(bits))
            for seat in self.hand.committee.seats:
                if seat != block.king:
                    self.hand.links[seat].send("low-words", words=words)

        def hear(block: _Block) -> None:
            due = vocabulary.low_words(block.size, bits)
            found[block.part] = received(self.hand.links[block.king], block.king, due)["words"]

        self._in_waves(
            masked.shape[:1], lambda block: self.hand.send_opening(_part(masked, block), [block.king]), open_own, hear
        )
        return found

    def _blocks(self, counts: Sequence[int]) -> list[_Block]:
        """As many blocks for each seat to open, of about the same size."""
        seats, blocks = self.hand.committee.seats, []
        for array, count in enumerate(counts):
            many = len(seats) * max(1, -(-count // (len(seats) * BLOCK)))
            ends = [count * place // many for place in range(many + 1)]
            blocks += [
                _Block(array, slice(ends[place], ends[place + 1]), seats[place % len(seats)])
                for place in range(many)
                if ends[place] < ends[place + 1]
            ]
        return blocks

    def _packed(self, block: _Block, number: Uncut, mask: Mask, degree: int) -> Block | None:
        """The block as packed words are computed, if its numbers are sent so and no share of them is spare."""
        if degree < 2 * self.hand.committee.threshold or number.cut > AT_ONCE or is_small(block.size, self.system):
            return None
        return Block(self.system, number.factors, mask.whole.values, mask.high.values, block.part)

    def _send_masked(self, block: _Block, number: Uncut, mask: Mask, degree: int) -> None:
        packed = self._packed(block, number, mask, degree)
        if packed is None:
            self.hand.send_opening(Shares(self._masked(block, number, mask), degree), [block.king])
        else:
            self.hand.links[block.king].send("opening", words=packed.share(self._offset(number)))

    def _masked(self, block: _Block, number: Uncut, mask: Mask) -> Residues:
        """This seat's shares of a block under its mask."""
        out, spare = np.empty((len(self.system.primes), block.size)), np.empty(block.size)
        offsets = self.system.constant(self._offset(number), 1)
        for place, (prime, row) in enumerate(zip(self.system.primes, out, strict=True)):
            first, *second = (factor[place, block.part] for factor in number.factors)
            if second:
                np.multiply(first, second[0], out=row)
                row += mask.whole.values[place, block.part]
            else:
                np.add(first, mask.whole.values[place, block.part], out=row)
            row += offsets[place]
            reduce(row, prime, spare)
        return out

    def _open(self, block: _Block, number: Uncut, mask: Mask, degree: int) -> None:
        """Open a block, tell the other readers the quotients, and keep this seat's shares of the result."""
        packed = self._packed(block, number, mask, degree)
        quotients: Residues | None = None
        if packed is None:
            own = Shares(self._masked(block, number, mask), degree)
            opened = self.hand.open_to_readers(own, (self.hand.name,))
            assert opened is not None  # noqa: S101 - this seat is the reader
            quotients = self.system.reduce(self._quotient(number, opened, (1,) * len(self.system.primes)))
            words = pack(quotients, self.system)
        else:
            me, factors = self.hand.committee.point(self.hand.name), self._share_factors(block.king)
            words = packed.open(self._offset(number), number.cut, number.bits, me, self._told(block), factors)
        for reader in self._readers(block.king)[1:]:
            self.hand.links[reader].send("quotients", words=words)
        if quotients is not None:
            self._share(block, mask, quotients)

    def _told(self, block: _Block) -> dict[int, tuple[str, Words]]:
        """The shares of all other seats, by their points."""
        due, committee = vocabulary.residues("opening", (block.size,), len(self.system.primes)), self.hand.committee
        others = [seat for seat in committee.seats if seat != self.hand.name]
        return {committee.point(seat): (seat, received(self.hand.links[seat], seat, due)["words"]) for seat in others}

    def _hear(self, block: _Block, number: Uncut, mask: Mask, degree: int) -> None:
        """A reader hears the quotients; other seats have shares of the mask alone."""
        if self.hand.name not in self._readers(block.king):
            own = mask.high.values[:, block.part]
            np.negative(own, out=own)
            return
        due = vocabulary.residues("quotients", (block.size,), len(self.system.primes))
        words = received(self.hand.links[block.king], block.king, due)["words"]
        packed = self._packed(block, number, mask, degree)
        if packed is None:
            self._share(block, mask, unpack(words, (block.size,), self.system, block.king))
        else:
            packed.hear(words, block.king, self._share_factors(block.king))

    def _share(self, block: _Block, mask: Mask, quotients: Residues) -> None:
        """This reader's share of public quotients, less its share of the mask, in the place of the mask."""
        spare, factors = np.empty(block.size), self._share_factors(block.king)
        for place, (prime, factor) in enumerate(zip(self.system.primes, factors, strict=True)):
            row = mask.high.values[place, block.part]
            np.multiply(quotients[place], float(factor), out=spare)
            np.subtract(spare, row, out=row)
            reduce(row, prime, spare)

    # Readers

    def _readers(self, first: str) -> tuple[str, ...]:
        """The group of a seat and those that follow it."""
        committee = self.hand.committee
        return (first, *committee.seeded_by(first, len(committee.seats) - committee.threshold - 1))

    def _share_factors(self, first: str) -> tuple[int, ...]:
        """What this reader multiplies a number with that all readers know, modulo each prime; the result is a share."""
        known = self._known_factors.get(first)
        if known is None:
            committee, readers = self.hand.committee, self._readers(first)
            absent = [committee.point(seat) for seat in committee.seats if seat not in readers]
            me = committee.point(self.hand.name)
            known = tuple(weights(prime, (0, *absent), me)[0] for prime in self.system.primes)
            self._known_factors[first] = known
        return known


def _parted(
    opened: Residues, masked: Sequence[tuple[Uncut, Mask]]
) -> Iterator[tuple[tuple[Uncut, Mask], NDArray[np.float64]]]:
    """Each array with what was opened of it."""
    start = 0
    for one in masked:
        yield one, opened[:, start : start + one[0].count]
        start += one[0].count


def _part(shares: Shares, block: _Block) -> Shares:
    return Shares(shares.values[:, block.part], shares.degree)


def _waves(blocks: Sequence[_Block]) -> Iterator[list[_Block]]:
    """The blocks, some at a time: nobody has to take much before it has sent its own."""
    wave: list[_Block] = []
    for block in blocks:
        wave.append(block)
        if sum(one.size for one in wave) >= WAVE:
            yield wave
            wave = []
    if wave:
        yield wave


@lru_cache(maxsize=256)
def _factors(
    primes: tuple[int, ...], cut: int, bits: int, share: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[Residues, Residues, Residues]:
    """What digits, lowest bits and one are multiplied with, to be a reader's share of the quotient."""
    modulus, both = prod(primes), list(zip(primes, share, strict=True))
    powers = [centred(pow(2, -cut, p) * one, p) for p, one in both]
    return (
        filled([centred(modulus // p * power, p) for p, power in zip(primes, powers, strict=True)], shape),
        filled(powers, (len(primes), 1)),
        filled([centred((1 << bits >> cut) * one, p) for p, one in both], shape),
    )
