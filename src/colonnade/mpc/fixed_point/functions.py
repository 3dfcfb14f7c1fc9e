"""Functions of shared fixed-point numbers: powers of two that bring them near 1, and inverse square roots.

A number is first multiplied by a secret power of two, found from its bit length, so that it is near 1. A polynomial of
low degree gives a first approximation q of the inverse square root of B; then q (3 - B q^2) / 2 is a step of Newton's
iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import ceil, log2, prod

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial

from colonnade.mpc.committee import Shares
from colonnade.mpc.fixed_point.arithmetic import (
    BITS_AT_ONCE,
    NUMBERS_AT_ONCE,
    FixedPointEngine,
    FixedPointShares,
    apply_in_parts,
)
from colonnade.mpc.fixed_point.shared_bits import BitShares

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
