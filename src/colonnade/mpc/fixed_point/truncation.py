"""Truncation: shared numbers without their last bits, which are opened under masks.

To cut off b bits of a number x, seats open c = x + r + a constant. The mask r is the sum of one number l + 2^b h of
each group of seats. Then (c - c mod 2^b) / 2^b - sum h is the floor of (x + sum l) / 2^b.

A number that all seats of a group know is already shared (:mod:`colonnade.mpc.shamir`). So only one group
must know c, if no seat is spare and seats do not check each other. These are its *readers*. Few numbers are sent to all
readers, in one round. Many numbers are cut in blocks: one seat of each block opens it, and tells the other readers the
quotients. For comparisons all seats need the lowest bits of c, and are told these.

Blocks that are opened at twice the degree of inputs, where no share is spare, are computed as packed words: messages
and results have the same bits, and fewer passes over the numbers make them. Words become residues only where they are
multiplied: the weights of the shares at 1, .. n in the value at 0 are small integers, so a sum over seats is one of
32-bit words (docs/theory/residues.md). Results are written over the masks, which nobody needs again: new memory costs
more time than the arithmetic in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from colonnade.message_schema import receive_message
from colonnade.mpc import messages
from colonnade.mpc.committee import Committee, Shares
from colonnade.mpc.fixed_point.masks import MaskSource, TruncationMask
from colonnade.mpc.messages import (
    BLOCK,
    WAVE,
    PackedWords,
    is_small,
    pack,
    pack_words,
    quarter_length,
    unpack,
    unpack_words,
)
from colonnade.mpc.residues import (
    AT_ONCE,
    FEW,
    Residues,
    ResidueSystem,
    broadcast_shape,
    centred,
    constant_rows,
    digit_factors,
    reduce,
)
from colonnade.mpc.shamir import lagrange_weights

BlockWords = NDArray[np.uint32]


class PackedBlock:
    """Some of the numbers of one array, as one seat holds them: factors, and the two forms of their masks."""

    def __init__(
        self, system: ResidueSystem, factors: Sequence[Residues], whole: Residues, high: Residues, part: slice
    ) -> None:
        self.system, self.count = system, int(part.stop - part.start)
        self._factors = [factor[:, part] for factor in factors]
        self._whole, self._high = whole[:, part], high[:, part]
        self._spare, self._shifted = np.empty(self.count), np.empty(quarter_length(self.count), dtype=np.uint32)

    def share(self, offset: int) -> PackedWords:
        """This seat's share of the numbers under their masks plus an offset, as it is sent."""
        words, numbers, value = self._packed(), self._numbers(), np.empty(self.count)
        for place, prime in enumerate(self.system.primes):
            self._under_mask(place, value)
            # Half a unit above a word: so the quotient is never an integer, and its floor is right.
            value += centred(offset, prime) + prime // 2 + 0.5
            np.multiply(value, 1.0 / prime, out=self._spare)
            np.floor(self._spare, out=self._spare)
            self._spare *= prime
            value -= self._spare
            np.copyto(numbers.view(np.int32)[: self.count], value, casting="unsafe")
            pack_words(numbers, words[place])
        return words

    def open(
        self,
        offset: int,
        cut: int,
        bits: int,
        own: int,
        told: Mapping[int, tuple[str, PackedWords]],
        factors: Sequence[int],
    ) -> PackedWords:
        """Open the numbers at the seat with point ``own``; returns the quotients, as they are sent to other readers.

        ``told`` are the shares of all others, by their points, with their names. The shares of the result take the
        place of the masks; ``factors`` turn quotients into this seat's shares.
        """
        primes, shape = self.system.primes, (len(self.system.primes), self.count)
        values, digits, rows = np.empty(shape), np.empty(shape), (self._numbers(), self._numbers())
        for place, prime in enumerate(primes):
            value, digit = values[place], digits[place]
            self._under_mask(place, value)
            value *= self._sum_openings(place, offset, own, told, rows)
            value += self._spare
            reduce(value, prime, self._spare)
            np.multiply(value, float(self.system.to_digits[place]), out=digit)
            reduce(digit, prime, self._spare)
        low = self.system.low_bits(digits, cut)
        words, numbers = self._packed(), self._numbers()
        for place, (prime, value) in enumerate(zip(primes, values, strict=True)):
            value -= low
            value *= float(centred(pow(2, -cut, prime), prime))
            value -= float(centred(1 << bits >> cut, prime))
            reduce(value, prime, self._spare)
            np.copyto(numbers.view(np.int32)[: self.count], value, casting="unsafe")
            numbers[: self.count] += np.uint32(prime // 2)
            pack_words(numbers, words[place])
            self._unmask(place, value, factors[place])
        return words

    def read_quotients(self, words: PackedWords, sender: str, factors: Sequence[int]) -> None:
        """Quotients that another seat has told: a reader's shares of the result take the place of the masks."""
        value, numbers = np.empty(self.count), self._numbers()
        for place, prime in enumerate(self.system.primes):
            unpack_words(words[place], prime, self.count, numbers.reshape(4, -1), self._shifted, sender)
            numbers -= np.uint32(prime // 2)
            np.copyto(value, numbers.view(np.int32)[: self.count])
            self._unmask(place, value, factors[place])

    def _sum_openings(
        self,
        place: int,
        offset: int,
        own: int,
        told: Mapping[int, tuple[str, PackedWords]],
        rows: tuple[BlockWords, BlockWords],
    ) -> float:
        """Put the weighted sum of all others' shares, and all constants, in ``_spare``; returns this seat's weight."""
        prime, points = self.system.primes[place], tuple(sorted((own, *told)))
        of = dict(zip(points, lagrange_weights(prime, points, 0), strict=True))
        total = rows[0].view(np.int32)
        for index, (point, (sender, words)) in enumerate(told.items()):
            numbers = rows[1 if index else 0]
            unpack_words(words[place], prime, self.count, numbers.reshape(4, -1), self._shifted, sender)
            signed = numbers.view(np.int32)
            if of[point] != 1:
                signed *= np.int32(of[point])
            if index:
                total += signed
        # A word is larger than its residue by half of the prime. The others have added the offset to their shares.
        constant = offset * of[own] - prime // 2 * (sum(of.values()) - of[own])
        total += np.int32(centred(constant, prime))
        np.copyto(self._spare, total[: self.count])
        return float(of[own])

    def _under_mask(self, place: int, out: NDArray[np.float64]) -> None:
        """Numbers under their masks, not reduced, but below 2^43."""
        first, *second = (factor[place] for factor in self._factors)
        if second:
            np.multiply(first, second[0], out=out)
            out += self._whole[place]
        else:
            np.add(first, self._whole[place], out=out)

    def _unmask(self, place: int, quotients: NDArray[np.float64], factor: int) -> None:
        """A reader's share of public quotients, less its share of the mask, in the place of the mask."""
        quotients *= float(factor)
        out = self._high[place]
        np.subtract(quotients, out, out=out)
        reduce(out, self.system.primes[place], quotients)

    def _packed(self) -> BlockWords:
        return np.empty((len(self.system.primes), 3 * quarter_length(self.count)), dtype=np.uint32)

    def _numbers(self) -> BlockWords:
        """Memory for one row of words, with the zeros that fill the last four."""
        return np.zeros(4 * quarter_length(self.count), dtype=np.uint32)


ProductClaimer = Callable[[Shares], None]
"""A function that claims that a number, given at the degree of a fresh input, is the product that it should be."""


@dataclass(frozen=True)
class PendingTruncation:
    """An array before its last bits are cut off: the shares, or those of two factors that are not yet multiplied."""

    factors: tuple[Residues, ...]
    shape: tuple[int, ...]
    degree: int
    fraction: int
    bound: int
    kept: int
    """How many fractional bits the result has; if more than there are now, nothing is cut off."""
    claim: ProductClaimer
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

    def flatten(self) -> PendingTruncation:
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
class _TruncationBlock:
    """Some numbers of one array, and the seat that opens them."""

    array: int
    part: slice
    king: str

    @property
    def size(self) -> int:
        return int(self.part.stop - self.part.start)


_Step = Callable[[_TruncationBlock], None]


def truncates_in_blocks(committee: Committee, count: int) -> bool:
    """Whether so many numbers are cut in blocks, which takes one round more and fewer bytes."""
    return _is_read_by_few(committee) and count * len(committee.system.primes) > FEW


def _is_read_by_few(committee: Committee) -> bool:
    return not committee.active and not committee.spare


class Truncator:
    """What one seat does to cut off bits."""

    def __init__(self, masks: MaskSource) -> None:
        self.masks, self.engine, self.system = masks, masks.engine, masks.engine.system
        self._known_factors: dict[str, tuple[int, ...]] = {}

    def truncate(self, numbers: Sequence[PendingTruncation]) -> list[Shares]:
        """The numbers without their last bits, of the shapes that they had."""
        degree = max(number.degree for number in numbers)
        shapes = [number.shape for number in numbers]
        high = degree > self.engine.committee.threshold
        # A sharing of zero that depends on what the seats have seen cannot be made ahead.
        draw = self.masks.open_mask if high and not self.engine.active else self.masks.mask
        masked = [(number.flatten(), draw(number.cut, number.count)) for number in numbers]
        committee = self.engine.committee
        if truncates_in_blocks(committee, sum(number.count for number in numbers)):
            found = self._in_blocks(masked, degree)
        elif _is_read_by_few(committee):
            found = self._read_by_few(masked, degree)
        else:
            found = self._read_by_all(masked, degree)
        return [
            Shares(values.reshape(len(values), *shape), committee.threshold)
            for values, shape in zip(found, shapes, strict=True)
        ]

    # Opened at once

    def _read_by_all(self, masked: Sequence[tuple[PendingTruncation, TruncationMask]], degree: int) -> list[Residues]:
        high, everyone = degree > self.engine.committee.threshold, (1,) * len(self.system.primes)
        joined = self._join(masked, degree)
        if high and self.engine.active:
            joined = self.engine.add([joined, self.engine.zero(joined.shape, degree)])
        opened = self.engine.open_among_seats(joined)
        if high and self.engine.active:
            for (number, mask), part in _split_opened(opened, masked):
                self._claim_opened(number, part, mask)
        return self._remove_masks(masked, opened, everyone)

    def _read_by_few(self, masked: Sequence[tuple[PendingTruncation, TruncationMask]], degree: int) -> list[Residues]:
        seats = self.engine.committee.seats
        readers = self._readers(seats[0])
        opened = self.engine.open_to_readers(self._join(masked, degree), readers)
        if opened is None:
            return [np.negative(mask.high.values) for _, mask in masked]
        return self._remove_masks(masked, opened, self._share_factors(seats[0]))

    def _join(self, masked: Sequence[tuple[PendingTruncation, TruncationMask]], degree: int) -> Shares:
        """All numbers under their masks, in one row."""
        rows = []
        for number, mask in masked:
            total = number.values + mask.whole.values
            total += self.system.constant_array(self._offset(number), total.shape)
            rows.append(self.system.reduce(total))
        return Shares(np.concatenate(rows, axis=1) if len(rows) > 1 else rows[0], degree)

    def _offset(self, number: PendingTruncation) -> int:
        """What is added so that nothing is negative, less half of what the groups' lowest bits can add.

        So errors are positive and negative.
        """
        return (1 << number.bits) - ((self.masks.groups - 1) << number.cut >> 1)

    def _remove_masks(
        self, masked: Sequence[tuple[PendingTruncation, TruncationMask]], opened: Residues, share: tuple[int, ...]
    ) -> list[Residues]:
        """Opened numbers without their lowest bits and without their masks; ``share`` is what readers multiply with."""
        found = []
        for (number, mask), part in _split_opened(opened, masked):
            values = self._quotient(number, part, share)
            values -= mask.high.values
            found.append(self.system.reduce(values))
        return found

    def _quotient(self, number: PendingTruncation, opened: Residues, share: tuple[int, ...]) -> Residues:
        """(c - c mod 2^cut - 2^bits) / 2^cut, times a factor for each prime; not reduced, but below 2^51."""
        system, cut = self.system, number.cut
        factors, halves, constants = _factors(system.primes, cut, number.bits, share, broadcast_shape(opened.shape))
        values = opened * factors
        if cut <= AT_ONCE:
            values -= system.low_bits(opened, cut) * halves
        else:
            low = system.low_word(opened) & np.uint64((1 << cut) - 1)
            values -= system.reduce(system.unreduced(low, cut)) * halves
        values -= constants
        return values

    def _claim_opened(self, number: PendingTruncation, opened: Residues, mask: TruncationMask) -> None:
        """Claim that what was opened at twice the degree is the number under its mask: nothing else shows it.

        Without its mask, what was opened is a sharing of the number at the degree of a fresh input.
        """
        system, threshold = self.system, self.engine.committee.threshold
        values = opened * digit_factors(system.primes, opened.shape)
        values -= mask.whole.values
        values -= system.constant_array(self._offset(number), values.shape)
        shares = Shares(system.reduce(values), threshold)
        if number.degree > threshold:
            number.claim(shares)
        else:
            self.engine.claims.zero(Shares(system.reduce(shares.values - number.factors[0]), threshold))

    # Opened in blocks

    def _in_blocks(self, masked: Sequence[tuple[PendingTruncation, TruncationMask]], degree: int) -> list[Residues]:
        """The results, which take the place of the masks: these are used once, and new memory costs more than sums."""
        self._run_in_waves(
            [number.count for number, _ in masked],
            lambda block: self._send_masked(block, *masked[block.array], degree),
            lambda block: self._open(block, *masked[block.array], degree),
            lambda block: self._receive_quotients(block, *masked[block.array], degree),
        )
        return [mask.high.values for _, mask in masked]

    def _run_in_waves(self, counts: Sequence[int], send: _Step, open_own: _Step, hear: _Step) -> None:
        """Send the blocks that others open, open one's own, and hear of the others', some blocks at a time."""
        for wave in _group_in_waves(self._blocks(counts)):
            own = [block for block in wave if block.king == self.engine.name]
            others = [block for block in wave if block.king != self.engine.name]
            for step, blocks in ((send, others), (open_own, own), (hear, others)):
                for block in blocks:
                    step(block)

    def low_words(self, masked: Shares, bits: int) -> NDArray[np.uint64]:
        """The lowest bits of numbers that a mask hides, at the degree of inputs, for all seats: one round.

        Many numbers take two rounds, if no seat is spare and seats do not check each other.
        """
        system, low = self.system, np.uint64((1 << bits) - 1)
        if not truncates_in_blocks(self.engine.committee, masked.shape[0]):
            return system.low_word(self.engine.open_among_seats(masked)) & low
        found = np.empty(masked.shape, dtype=np.uint64)

        def open_own(block: _TruncationBlock) -> None:
            opened = self.engine.open_to_readers(_block_shares(masked, block), (block.king,))
            assert opened is not None  # noqa: S101 - this seat is the reader
            found[block.part] = system.low_word(opened) & low
            words = found[block.part].astype(messages.word_for(bits))
            for seat in self.engine.committee.seats:
                if seat != block.king:
                    self.engine.links[seat].send("low-words", words=words)

        def hear(block: _TruncationBlock) -> None:
            due = messages.low_words_message(block.size, bits)
            found[block.part] = receive_message(self.engine.links[block.king], block.king, due)["words"]

        self._run_in_waves(
            masked.shape[:1],
            lambda block: self.engine.send_opening(_block_shares(masked, block), [block.king]),
            open_own,
            hear,
        )
        return found

    def _blocks(self, counts: Sequence[int]) -> list[_TruncationBlock]:
        """As many blocks for each seat to open, of about the same size."""
        seats, blocks = self.engine.committee.seats, []
        for array, count in enumerate(counts):
            many = len(seats) * max(1, -(-count // (len(seats) * BLOCK)))
            ends = [count * place // many for place in range(many + 1)]
            blocks += [
                _TruncationBlock(array, slice(ends[place], ends[place + 1]), seats[place % len(seats)])
                for place in range(many)
                if ends[place] < ends[place + 1]
            ]
        return blocks

    def _packed_block(
        self, block: _TruncationBlock, number: PendingTruncation, mask: TruncationMask, degree: int
    ) -> PackedBlock | None:
        """The block as packed words are computed, if its numbers are sent so and no share of them is spare."""
        if degree < 2 * self.engine.committee.threshold or number.cut > AT_ONCE or is_small(block.size, self.system):
            return None
        return PackedBlock(self.system, number.factors, mask.whole.values, mask.high.values, block.part)

    def _send_masked(
        self, block: _TruncationBlock, number: PendingTruncation, mask: TruncationMask, degree: int
    ) -> None:
        packed = self._packed_block(block, number, mask, degree)
        if packed is None:
            self.engine.send_opening(Shares(self._masked_shares(block, number, mask), degree), [block.king])
        else:
            self.engine.links[block.king].send("opening", words=packed.share(self._offset(number)))

    def _masked_shares(self, block: _TruncationBlock, number: PendingTruncation, mask: TruncationMask) -> Residues:
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

    def _open(self, block: _TruncationBlock, number: PendingTruncation, mask: TruncationMask, degree: int) -> None:
        """Open a block, tell the other readers the quotients, and keep this seat's shares of the result."""
        packed = self._packed_block(block, number, mask, degree)
        quotients: Residues | None = None
        if packed is None:
            own = Shares(self._masked_shares(block, number, mask), degree)
            opened = self.engine.open_to_readers(own, (self.engine.name,))
            assert opened is not None  # noqa: S101 - this seat is the reader
            quotients = self.system.reduce(self._quotient(number, opened, (1,) * len(self.system.primes)))
            words = pack(quotients, self.system)
        else:
            me, factors = self.engine.committee.point(self.engine.name), self._share_factors(block.king)
            words = packed.open(
                self._offset(number), number.cut, number.bits, me, self._receive_openings(block), factors
            )
        for reader in self._readers(block.king)[1:]:
            self.engine.links[reader].send("quotients", words=words)
        if quotients is not None:
            self._share(block, mask, quotients)

    def _receive_openings(self, block: _TruncationBlock) -> dict[int, tuple[str, PackedWords]]:
        """The shares of all other seats, by their points."""
        due, committee = (
            messages.residues_message("opening", (block.size,), len(self.system.primes)),
            self.engine.committee,
        )
        others = [seat for seat in committee.seats if seat != self.engine.name]
        return {
            committee.point(seat): (seat, receive_message(self.engine.links[seat], seat, due)["words"])
            for seat in others
        }

    def _receive_quotients(
        self, block: _TruncationBlock, number: PendingTruncation, mask: TruncationMask, degree: int
    ) -> None:
        """A reader hears the quotients; other seats have shares of the mask alone."""
        if self.engine.name not in self._readers(block.king):
            own = mask.high.values[:, block.part]
            np.negative(own, out=own)
            return
        due = messages.residues_message("quotients", (block.size,), len(self.system.primes))
        words = receive_message(self.engine.links[block.king], block.king, due)["words"]
        packed = self._packed_block(block, number, mask, degree)
        if packed is None:
            self._share(block, mask, unpack(words, (block.size,), self.system, block.king))
        else:
            packed.read_quotients(words, block.king, self._share_factors(block.king))

    def _share(self, block: _TruncationBlock, mask: TruncationMask, quotients: Residues) -> None:
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
        committee = self.engine.committee
        return (first, *committee.seats_seeded_by(first, len(committee.seats) - committee.threshold - 1))

    def _share_factors(self, first: str) -> tuple[int, ...]:
        """What this reader multiplies a number with that all readers know, modulo each prime; the result is a share."""
        known = self._known_factors.get(first)
        if known is None:
            committee, readers = self.engine.committee, self._readers(first)
            absent = [committee.point(seat) for seat in committee.seats if seat not in readers]
            me = committee.point(self.engine.name)
            known = tuple(lagrange_weights(prime, (0, *absent), me)[0] for prime in self.system.primes)
            self._known_factors[first] = known
        return known


def _split_opened(
    opened: Residues, masked: Sequence[tuple[PendingTruncation, TruncationMask]]
) -> Iterator[tuple[tuple[PendingTruncation, TruncationMask], NDArray[np.float64]]]:
    """Each array with what was opened of it."""
    start = 0
    for one in masked:
        yield one, opened[:, start : start + one[0].count]
        start += one[0].count


def _block_shares(shares: Shares, block: _TruncationBlock) -> Shares:
    return Shares(shares.values[:, block.part], shares.degree)


def _group_in_waves(blocks: Sequence[_TruncationBlock]) -> Iterator[list[_TruncationBlock]]:
    """The blocks, some at a time: nobody has to take much before it has sent its own."""
    wave: list[_TruncationBlock] = []
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
        constant_rows([centred(modulus // p * power, p) for p, power in zip(primes, powers, strict=True)], shape),
        constant_rows(powers, (len(primes), 1)),
        constant_rows([centred((1 << bits >> cut) * one, p) for p, one in both], shape),
    )
