"""Fixed-point numbers on shares: integers with a public scale and a public bound.

An integer x stands for x / 2^fraction. Every array has a bound that none of its integers can exceed, so an operation
that could overflow is refused before it is computed. Products are truncated by opening them under a mask. This cannot
fail, and its error is less than :attr:`FixedPointEngine.ulps` units in the last place.

Every seat calls the same operations in the same order. Each operation states its error, its rounds and what a seat
sends for one number, with n seats, threshold t and k primes; a residue has 3 bytes, or 4 in messages of few numbers.
:attr:`FixedPointEngine.masks` makes ahead of time what can be made without the inputs.

Where seats check each other's work, every product is claimed. A mask hides numbers within their bounds and no others,
so claims are settled before each opening under a mask, and not only at the end (docs/theory/fixed-point.md). This takes
more rounds than are stated here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError
from colonnade.mpc.committee import Shares
from colonnade.mpc.engine import ShareEngine
from colonnade.mpc.fixed_point.masks import MaskSource, unpack_bits
from colonnade.mpc.fixed_point.shared_bits import BitShares, bit_lengths, slice_bits, top_bit_of_difference
from colonnade.mpc.fixed_point.truncation import PendingTruncation, Truncator
from colonnade.mpc.residues import Residues

BITS_AT_ONCE = 1 << 16
"""Operations that make a number of every bit compute at most this many numbers at a time."""
NUMBERS_AT_ONCE = 1 << 18
"""Operations that make numbers of few bits compute at most this many at a time: fewer rounds, and seats wait less."""
MAX_READ_BITS = 62
"""Most bits that a truncation or a comparison may read: the masked number is read as 64 bits."""


@dataclass(frozen=True)
class FixedPointShares:
    """One seat's shares of an array of numbers x / 2^fraction with -bound <= x <= bound."""

    shares: Shares
    fraction: int
    bound: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.shares.shape

    def reshape(self, *shape: int) -> FixedPointShares:
        """The same numbers in another shape."""
        values = self.shares.values
        return self._with_values(values.reshape(len(values), *shape))

    def __getitem__(self, index: object) -> FixedPointShares:
        """Some of the numbers; the index must give an array, not a single number."""
        key = index if isinstance(index, tuple) else (index,)
        return self._with_values(self.shares.values[(slice(None), *key)])

    def _with_values(self, values: Residues) -> FixedPointShares:
        return replace(self, shares=Shares(values, self.shares.degree))


class FixedPointEngine:
    """The arithmetic of one seat; results have ``fraction`` fractional bits if no other number is asked for."""

    def __init__(self, engine: ShareEngine, fraction: int) -> None:
        if not 1 <= fraction <= MAX_READ_BITS // 2:
            raise ValueError(f"the number of fractional bits lies between 1 and {MAX_READ_BITS // 2} [VA083]")
        self.engine, self.system, self.fraction = engine, engine.system, fraction
        self.masks = MaskSource(engine)
        self._cutter = Truncator(self.masks)
        self.distance = 0.0
        """How much all masks so far can have told: the statistical distance from openings that tell nothing."""

    @property
    def ulps(self) -> float:
        """The error of a truncation is less than this many units in the last place: 2 with three seats."""
        return (self.masks.groups + 1) / 2

    def settle(self) -> None:
        """Check everything that was claimed, where seats check each other's work; else nothing is done.

        It comes before everything that is opened: every operation does so itself, and whoever opens a result must.
        """
        if self.masks.claims is not None:
            self.masks.claims.settle()
            self.engine.claims.settle()

    # Input, without a message

    def from_shares(self, shares: Shares, bound: int, fraction: int | None = None) -> FixedPointShares:
        """Numbers from shares of integers that were dealt; their owner promises the bound."""
        return self._check_fits(
            FixedPointShares(shares, self.fraction if fraction is None else fraction, bound), "what was dealt"
        )

    # Linear operations: exact, and nothing is sent

    def add(self, left: FixedPointShares, right: FixedPointShares, *, sign: int = 1) -> FixedPointShares:
        """The sum, or with sign -1 the difference: exact, 0 rounds."""
        left, right = self.align(left, right)
        total = left.shares.values + sign * right.shares.values
        degree = max(left.shares.degree, right.shares.degree)
        return self._check_fits(
            FixedPointShares(Shares(self.system.reduce(total), degree), left.fraction, left.bound + right.bound),
            "a sum",
        )

    def subtract(self, left: FixedPointShares, right: FixedPointShares) -> FixedPointShares:
        """The difference: exact, 0 rounds."""
        return self.add(left, right, sign=-1)

    def scale(self, number: FixedPointShares, factor: int, *, fraction: int = 0) -> FixedPointShares:
        """The product with a public factor / 2^fraction: exact, 0 rounds, ``fraction`` more fractional bits."""
        found = FixedPointShares(
            self.engine.scale(number.shares, factor), number.fraction + fraction, number.bound * abs(factor)
        )
        return self._check_fits(found, "a scaled number")

    def shift(self, number: FixedPointShares, amount: int) -> FixedPointShares:
        """The sum with a public integer, in units of the last place: exact, 0 rounds."""
        found = FixedPointShares(self.engine.shift(number.shares, amount), number.fraction, number.bound + abs(amount))
        return self._check_fits(found, "a sum")

    def line(self, number: FixedPointShares, factor: int, amount: int, *, fraction: int = 0) -> FixedPointShares:
        """As :meth:`scale` and then :meth:`shift`, in one step: exact, 0 rounds."""
        values = number.shares.values * self.system.constant(factor, len(number.shape) + 1)
        values += self.system.constant(amount, values.ndim)
        shares = Shares(self.system.reduce(values), number.shares.degree)
        found = FixedPointShares(shares, number.fraction + fraction, number.bound * abs(factor) + abs(amount))
        return self._check_fits(found, "a sum")

    def total(self, number: FixedPointShares, axis: int) -> FixedPointShares:
        """The sum along an axis: exact, 0 rounds."""
        axis = axis % len(number.shape)
        values = number.shares.values.sum(axis=axis + 1)
        found = FixedPointShares(
            Shares(self.system.reduce(values), number.shares.degree), number.fraction, number.bound * number.shape[axis]
        )
        return self._check_fits(found, "a sum")

    def align(self, left: FixedPointShares, right: FixedPointShares) -> tuple[FixedPointShares, FixedPointShares]:
        """The same two numbers, both with the larger number of fractional bits."""
        more = left.fraction - right.fraction
        if more > 0:
            return left, replace(self.scale(right, 1 << more), fraction=left.fraction)
        return (replace(self.scale(left, 1 << -more), fraction=right.fraction), right) if more else (left, right)

    # Products

    def multiply(
        self, left: FixedPointShares, right: FixedPointShares, *, fraction: int | None = None, bound: int | None = None
    ) -> FixedPointShares:
        """The elementwise product, truncated to ``fraction`` fractional bits: 1 round, at most (n - 1) k residues.

        Many numbers take 2 rounds and 3 k t / n residues on average, if n = 2t + 1. The error is less than ``ulps``. If
        no bits are cut off, the product is exact and a seat sends at most n - 1 - t shares. The caller may give a
        ``bound`` that it knows to hold for the product before it is truncated.
        """
        return self.products([(left, right)], fraction=fraction, bounds=None if bound is None else [bound])[0]

    def products(
        self,
        pairs: Sequence[tuple[FixedPointShares, FixedPointShares]],
        *,
        fraction: int | None = None,
        bounds: Sequence[int] | None = None,
    ) -> list[FixedPointShares]:
        """The elementwise product of each pair: 1 round, or 2 if only some are truncated; see :meth:`multiply`."""
        known = [left.bound * right.bound for left, right in pairs] if bounds is None else bounds
        return self._truncate_some(
            [self._pending_product(*pair, bound, fraction) for pair, bound in zip(pairs, known, strict=True)]
        )

    def product(self, left: FixedPointShares, right: FixedPointShares) -> FixedPointShares:
        """The elementwise product, not truncated and of twice the degree; nothing is sent.

        Where seats check each other's work, one round lowers the degree, so that the product can be claimed.
        """
        raw = self._pending_product(left, right, left.bound * right.bound)
        multiply = self.engine.product if self.engine.active else self.engine.multiply
        return FixedPointShares(multiply(left.shares, right.shares), raw.fraction, raw.bound)

    def _pending_product(
        self, left: FixedPointShares, right: FixedPointShares, bound: int, kept: int | None = None
    ) -> PendingTruncation:
        """A product that the next operation computes, with so many fractional bits."""
        degree, factors = left.shares.degree + right.shares.degree, (left.shares, right.shares)
        self._refuse_degree(degree)
        self._room_for(bound, "a product")
        same = left.shape == right.shape
        shape = left.shape if same else np.broadcast_shapes(left.shape, right.shape)
        return PendingTruncation(
            tuple(factor.values for factor in factors),
            shape,
            degree,
            left.fraction + right.fraction,
            bound,
            self.fraction if kept is None else kept,
            lambda product: self.engine.claims.elementwise(*factors, product),
        )

    def truncate(self, number: FixedPointShares, fraction: int) -> FixedPointShares:
        """The number with fewer fractional bits and degree ``threshold``: rounds, bytes and error of a product.

        Many numbers take 2 rounds and fewer bytes (:mod:`colonnade.mpc.fixed_point.truncation`).
        """
        shares = number.shares
        sizes = (number.fraction, number.bound, fraction)
        raw = PendingTruncation((shares.values,), number.shape, shares.degree, *sizes, self._unclaimed)
        return self._truncate_some([raw])[0]

    def _unclaimed(self, product: Shares) -> None:
        raise ValueError("seats that check each other truncate products only with their factors: use multiply [VA084]")

    def _truncate_some(self, numbers: Sequence[PendingTruncation]) -> list[FixedPointShares]:
        """Several arrays as :meth:`truncate` gives them: 1 round, or 2 if only some are truncated.

        Claims are made about those numbers that are products.
        """
        long, short = [one for one in numbers if one.cut > 0], [one for one in numbers if one.cut <= 0]
        cut, widened = iter(self._truncate_long(long) if long else ()), iter(self._widen(short))
        return [next(cut if number.cut > 0 else widened) for number in numbers]

    def _widen(self, numbers: Sequence[PendingTruncation]) -> list[FixedPointShares]:
        """The numbers with more fractional bits and with degree ``threshold``; one round lowers all degrees."""
        high = [n for n in numbers if n.degree > self.engine.committee.threshold]
        flat = [n.values.reshape(len(self.system.primes), -1) for n in high]
        if high:
            joined = self.system.reduce(np.concatenate(flat, axis=1))
            values = self.engine.reduce_degree(Shares(joined, max(n.degree for n in high))).values
            ends = np.cumsum([part.shape[1] for part in flat])[:-1]
            lowered = iter(np.split(values, ends, axis=1))
        found = []
        for raw in numbers:
            shares = Shares(raw.values, raw.degree)
            if raw.degree > self.engine.committee.threshold:
                shares = Shares(
                    next(lowered).reshape(len(self.system.primes), *raw.shape), self.engine.committee.threshold
                )
                if self.engine.active:
                    raw.claim(shares)
            number = FixedPointShares(shares, raw.fraction, raw.bound)
            found.append(replace(self.scale(number, 1 << -raw.cut), fraction=raw.kept) if raw.cut else number)
        return found

    def _truncate_long(self, numbers: Sequence[PendingTruncation]) -> list[FixedPointShares]:
        """The numbers without their last fractional bits; all of them are opened together under masks."""
        self._refuse_degree(max(number.degree for number in numbers))
        self.settle()
        for number in numbers:
            self._check_hides(number.bits, number.count, number.cut, "what is truncated")
        return [
            FixedPointShares(shares, number.kept, (number.bound >> number.cut) + int(self.ulps) + 1)
            for shares, number in zip(self._cutter.truncate(numbers), numbers, strict=True)
        ]

    # Bits

    def negative(self, number: FixedPointShares) -> FixedPointShares:
        """1 for numbers below zero, 0 for others: exact, ceil(log2 b) + 2 rounds for numbers of b bits.

        A seat sends at most (n - 1) k residues, and about 1.5 b shared bits to each of n - 1 - t seats.
        """
        return apply_in_parts(number, self._negative, NUMBERS_AT_ONCE)

    def _negative(self, number: FixedPointShares) -> FixedPointShares:
        bits = number.bound.bit_length() + 1
        opened, mask = self._open_under_bits(number, bits, 1 << (bits - 1))
        top = top_bit_of_difference(self.masks.bits, opened, mask)
        sign = self.as_numbers(top)[0].reshape(*number.shape)
        return replace(self.line(sign, -1, 1), bound=1)

    def bit_length_flags(self, number: FixedPointShares) -> BitShares:
        """For numbers x >= 0 of up to b bits: row j of the shared bits tells whether x is below 2^j, for each j < b.

        Exact, ceil(log2 b) + 1 rounds; at most (n - 1) k residues, and about 2 b log2(b) shared bits to each of
        n - 1 - t seats.
        """
        bits = max(1, number.bound.bit_length())
        opened, mask = self._open_under_bits(number, bits, 0)
        return bit_lengths(self.masks.bits, opened, mask)

    def as_numbers(self, bits: BitShares) -> FixedPointShares:
        """Shared bits as shared integers of shape (bits, count): exact, 1 round, n - 1 shared bits for each bit."""
        coins = self.masks.coins(bits.bits, bits.count)
        hidden = self.masks.bits.xor(bits, coins.bits)
        opened = self.masks.bits.open(hidden, veiled=self.engine.active)
        self.engine.record_public(opened)
        public = unpack_bits(opened, bits.count)
        signs, values = 1.0 - 2.0 * public, coins.numbers.values  # used once, and so overwritten
        for prime, row in zip(self.system.primes, values, strict=True):
            row *= signs
            row += public
            # A residue, or 1 less a residue: only one number in p is not centred.
            if row.size and row.max() > prime // 2:
                row[row > prime // 2] -= prime
        return FixedPointShares(Shares(values, self.engine.committee.threshold), 0, 1)

    def _open_under_bits(
        self, number: FixedPointShares, bits: int, offset: int
    ) -> tuple[NDArray[np.uint64], BitShares]:
        """The lowest bits of number + offset + mask, opened and sliced, and shares of the lowest bits of the mask."""
        if number.shares.degree != self.engine.committee.threshold:
            raise ValueError("bits are taken of numbers at the degree of a fresh input [VA085]")
        count = prod(number.shape)
        self._check_hides(bits, count, bits, "what is compared")
        self.settle()
        mask = self.masks.bit_mask(bits, count)
        flat = Shares(number.shares.values.reshape(len(self.system.primes), -1), number.shares.degree)
        masked = self.engine.shift(self.engine.add([flat, mask.whole]), offset)
        return slice_bits(self._cutter.low_words(masked, bits), bits), mask.low

    def _refuse_degree(self, degree: int) -> None:
        """Refuse a degree above twice the threshold: the sharings of zero that hide an opening do not have more."""
        if degree > 2 * self.engine.committee.threshold:
            raise ValueError("a product of more than two numbers is truncated after two of them [VA086]")

    def _check_hides(self, bits: int, count: int, read: int, what: str) -> None:
        """Check that a mask hides ``bits`` bits and that ``read`` bits can be read; add to :attr:`distance`."""
        if read > MAX_READ_BITS:
            raise CapacityError(
                f"of {what} {read} bits are read, and {MAX_READ_BITS} is the most: use fewer fractional bits [CA002]"
            )
        self.masks.check(bits + 1, what)
        self.distance += count * 2.0 ** (bits + 1 - self.masks.width)

    def _check_fits(self, number: FixedPointShares, what: str) -> FixedPointShares:
        self._room_for(number.bound, what)
        return number

    def _room_for(self, bound: int, what: str) -> None:
        if 2 * bound >= self.system.modulus:
            raise CapacityError(
                f"{what} could need {bound.bit_length() + 1} bits and the arithmetic has {self.system.bits}: "
                "use more primes, fewer fractional bits or smaller bounds [CA003]"
            )


def apply_in_parts(
    number: FixedPointShares, operation: Callable[[FixedPointShares], FixedPointShares], most: int
) -> FixedPointShares:
    """The result of an elementwise operation, computed for a part of the numbers at a time to save memory.

    More parts take more rounds. If the operation adds axes, these come first.
    """
    size = prod(number.shape)
    if size <= most:
        return operation(number)
    flat = number.reshape(size)
    done = [operation(flat[start : start + most]) for start in range(0, size, most)]
    values = np.concatenate([part.shares.values for part in done], axis=-1)
    first = replace(done[0], shares=Shares(values, done[0].shares.degree))
    return first.reshape(*first.shape[:-1], *number.shape)
