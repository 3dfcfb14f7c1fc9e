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

Functions of shared fixed-point numbers: powers of two that bring them near 1, and inverse square roots.

A number is first multiplied by a secret power of two, found from its bit length, so that it is near 1. A polynomial of
low degree gives a first approximation q of the inverse square root of B; then q (3 - B q^2) / 2 is a step of Newton's
iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, log2, prod

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
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


GUARD = 4
"""A number near 1 has this many more fractional bits than the result."""
FLAT = 1 << 14
"""For at most this many bits in all, a power of two is found in one step with many coins; else in two with few."""
_DEGREE = 3
"""Of the first approximation."""
_COEFFICIENT_BITS = 12
"""Fractional bits of its coefficients."""
_COARSEST = 8
_ROOM = 16
"""More than twice the first approximation of a root, which is largest for zero; each step at most doubles it."""


def inverse_sqrt(engine: FixedPointEngine, number: FixedPointShares) -> FixedPointShares:
    """1 / sqrt(x) for positive numbers; 0 gives at most ``ulps`` units in the last place; numbers must not be negative.

    The error is less than 2^-fraction of the result plus ``ulps`` units in the last place. Rounds: ceil(log2 b) + 3 to
    bring numbers of b bits near 1 (one more for many numbers), 8 or 11 for the iteration, and 1 to scale back. A seat
    sends as much as for a bit length and 10 to 13 products. Many numbers take one round more for each opening.
    """
    return apply_in_parts(number, lambda part: _inverse_sqrt(engine, part), NUMBERS_AT_ONCE)


def _inverse_sqrt(engine: FixedPointEngine, number: FixedPointShares) -> FixedPointShares:
    length, precision = _length(number), _precision(engine)
    radix, groups = group_bit_lengths(length, prod(number.shape))
    odd = (radix * groups - number.fraction) % 2  # the remainder when the power is halved
    bits, square, power = _secret_powers(engine, number, length + odd)
    normal = engine.multiply(replace(number, fraction=bits), square, fraction=precision, bound=1 << bits)
    start, steps = _root_plan(engine.fraction + GUARD)
    root = _polynomial(engine, normal, start)
    for step in range(steps):
        squared = engine.multiply(root, root, fraction=precision, bound=_ROOM**2 << (2 * precision + step))
        rest = engine.multiply(squared, normal, fraction=precision, bound=2 << (2 * precision))
        rest = engine.line(rest, -1, 3 << precision)
        half = replace(root, fraction=precision + 1)
        root = engine.multiply(half, rest, fraction=precision, bound=4 * _ROOM << (2 * precision + step))
    root = replace(root, fraction=precision + (bits - number.fraction) // 2)
    return engine.multiply(power, root, bound=3 << (bits // 2 + precision))


def normalising_powers(engine: FixedPointEngine, number: FixedPointShares) -> FixedPointShares:
    """For numbers x > 0 of up to b bits, 2^s with x 2^s in [2^(b-1), 2^b); 0 for x = 0; not for negative numbers.

    Exact, ceil(log2 b) + 2 rounds, with the bytes of :meth:`FixedPointEngine.lengths` and one shared bit more for each.
    """
    return apply_in_parts(number, lambda part: _normalising_part(engine, part), BITS_AT_ONCE)


def _normalising_part(engine: FixedPointEngine, number: FixedPointShares) -> FixedPointShares:
    length = _length(number)
    known = engine.as_numbers(_one_hot(engine, engine.bit_length_flags(number), length, 1))
    return _weighted_power(engine, known, [length - 1 - place for place in range(length)]).reshape(*number.shape)


def bits_needed(fraction: int, magnitude: int, ulps: float = 2.0) -> int:
    """How many bits a mask must hide, if all inputs and results are below 2^magnitude.

    This holds for products of two numbers and for roots. A sum of 2^b products needs b bits more; roots of many numbers
    need no more.
    """
    precision = fraction + GUARD + ceil(log2(ulps)) - 1
    iterated = 2 * precision + max(_root_plan(fraction + GUARD)[1] + 4, 12) + 4
    return max(2 * (magnitude + fraction), iterated, magnitude + fraction + precision + 2)


def constants(fraction: int) -> Iterator[int]:
    """The public numbers that roots are computed with: every seat must have the same."""
    start, steps = _root_plan(fraction + GUARD)
    yield from (steps, bits_needed(fraction, 0), *_round_coefficients(start))


def _length(number: FixedPointShares) -> int:
    return max(1, number.bound.bit_length())


def _precision(engine: FixedPointEngine) -> int:
    """Fractional bits of numbers near 1, so that a truncation changes the result by at most an eighth of a unit."""
    if engine.fraction < _COARSEST:
        raise ValueError(f"roots need {_COARSEST} fractional bits at least [VA093]")
    return engine.fraction + GUARD + ceil(log2(engine.ulps)) - 1


def _secret_powers(
    engine: FixedPointEngine, number: FixedPointShares, bits: int
) -> tuple[int, FixedPointShares, FixedPointShares]:
    """Secret powers 2^s with x 2^s in [2^(bits - 2), 2^bits) and s even, and 2^(s/2).

    For few numbers there is one coin for each possible bit length. For many numbers the bit lengths are in groups, and
    there is one coin for each group and one for each place in a group but the first. Then the returned ``bits`` may be
    larger than the given ones, because all groups have the same size. For x = 0 both powers are 0.
    """
    length = _length(number)
    radix, groups = group_bit_lengths(length, prod(number.shape))
    known = engine.as_numbers(_one_hot(engine, engine.bit_length_flags(number), radix, groups))
    # A bit length is 1 + place + radix * group; the exponent s is the sum of these two, the first of them made even.
    fine = [step - step % 2 for step in (bits - length + radix - 1 - place for place in range(radix))]
    coarse = [radix * (groups - 1 - group) for group in range(groups)]

    def powers(hot: FixedPointShares, steps: Sequence[int], *, first: bool = False) -> list[FixedPointShares]:
        return [_weighted_power(engine, hot, [step // by for step in steps], first=first) for by in (1, 2)]

    if groups > 1:
        pairs = zip(powers(known[: radix - 1], fine, first=True), powers(known[radix - 1 :], coarse), strict=True)
        found = engine.products(list(pairs), fraction=0)
    else:
        found = powers(known, fine)
    square, root = (power.reshape(*number.shape) for power in found)
    return bits + radix * groups - length, square, root


def group_bit_lengths(length: int, count: int) -> tuple[int, int]:
    """For ``count`` numbers of so many bits, how many bit lengths are in a group and how many groups there are.

    There are as few coins as possible. The size of a group is even, so that its power has a root.
    """
    if length * count <= FLAT:
        return length, 1
    sizes = [(radix, -(-length // radix)) for radix in range(2, max(2, length) + 1, 2)]
    return min(sizes, key=lambda size: (sum(size), prod(size)))


def _one_hot(engine: FixedPointEngine, below: BitShares, radix: int, groups: int) -> BitShares:
    """One bit for each place in a group, then one for each group if there are several: 1 for the bit length, else 0.

    Where there are several groups, the first place has no bit: it is meant if all others are 0.

    ``below`` tells for every j whether the number is below 2^j. The bit length is the first j for which it is.
    """
    planes = np.zeros((below.planes.shape[0], radix * groups, below.planes.shape[2]), dtype=np.uint64)
    planes[:, : below.bits] = below.planes
    planes[:, : below.bits - 1] ^= below.planes[:, 1:]
    planes[0, below.bits - 1] ^= np.uint64(2**64 - 1)
    if groups == 1:
        return BitShares(planes, below.degree, below.count)
    table = planes.reshape(len(planes), groups, radix, -1)
    parts = [np.bitwise_xor.reduce(table[:, :, 1:], axis=1), np.bitwise_xor.reduce(table, axis=2)]
    return BitShares(np.concatenate(parts, axis=1), below.degree, below.count)


def _weighted_power(
    engine: FixedPointEngine, hot: FixedPointShares, exponents: Sequence[int], *, first: bool = False
) -> FixedPointShares:
    """2 to the exponent whose bit is 1, or zero if no bit is 1; nothing is sent.

    With ``first``, no bit belongs to the first exponent, which is meant if no bit is 1.
    """
    start = 1 << exponents[0] if first else 0
    wanted = [(1 << exponent) - start for exponent in exponents[first:]]
    weights = np.array([[w % prime for w in wanted] for prime in engine.system.primes], dtype=np.float64)
    values = np.matmul(weights[:, None, :], hot.shares.values)[:, 0]
    if start:
        values += engine.system.constant(start, 2)
    return FixedPointShares(Shares(engine.system.reduce(values), hot.shares.degree), 0, 1 << max(exponents))


def _polynomial(engine: FixedPointEngine, number: FixedPointShares, coefficients: Sequence[float]) -> FixedPointShares:
    """The value of a polynomial of degree 3 with rounded coefficients, below 8 on [0, 1]: two rounds."""
    fraction, bits = number.fraction, _COEFFICIENT_BITS
    whole = _round_coefficients(coefficients)
    line = engine.line(number, whole[1], whole[0] << fraction, fraction=bits)
    square = engine.multiply(number, number, fraction=fraction)
    rest = engine.line(number, whole[3], whole[2] << fraction, fraction=bits)
    whole_sum = engine.add(line, engine.product(square, rest))
    return engine.truncate(replace(whole_sum, bound=_ROOM // 2 << whole_sum.fraction), fraction)


def _round_coefficients(coefficients: Sequence[float]) -> list[int]:
    return [round(c * 2**_COEFFICIENT_BITS) for c in coefficients]


@cache
def _root_plan(bits: int) -> tuple[list[float], int]:
    """A first approximation of 1 / sqrt(B) on [1/4, 1], and the number of steps to ``bits`` correct bits."""
    near = Chebyshev.interpolate(lambda b: 1 / np.sqrt(b), _DEGREE, domain=[0.25, 1.0])
    grid = np.linspace(0.25, 1.0, 4097)
    error = float(np.abs(near(grid) * np.sqrt(grid) - 1).max())
    error += (_DEGREE + 1) * 2.0 ** -(_COEFFICIENT_BITS + 1)  # what rounded coefficients change on [0, 1]
    steps = 0
    while error > 2.0 ** -(bits + 1):
        error, steps = 1.5 * error**2 + 0.5 * error**3, steps + 1
    return [float(c) for c in near.convert(kind=Polynomial).coef], steps
