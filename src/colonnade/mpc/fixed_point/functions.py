"""Functions of shared fixed-point numbers: reciprocals and inverse square roots.

A number is first multiplied by a secret power of two, found from its bit length, so that it is near 1. A polynomial of
low degree gives a first approximation q of the reciprocal of B. If e is 1 - q B, then q (1 + d + e) has the error
e (e + d) - d: a step of Newton's iteration, with a constant d that makes errors of both signs equally large and halves
them. That error needs no product with B, so two steps take three rounds. An inverse square root takes Newton's steps
without such a constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import ceil, log2, prod

import numpy as np
from numpy.polynomial import Chebyshev, Polynomial
from numpy.polynomial.chebyshev import cheb2poly, chebval

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
_COEFFICIENT_BITS = {2: 10, 3: 12}
"""Fractional bits of the coefficients, by the degree of the first approximation."""
_COARSEST = 8
_ROOM = 16
"""More than twice the first approximation of a root, which is largest for zero; each step at most doubles it."""
_LINE = 48**0.5 - 4
"""a in the approximation a - 2 B of 1 / B on [1/2, 1], whose error 1 - (a - 2 B) B is from a - 3 to 3 - a."""


def reciprocal(engine: FixedPointEngine, number: FixedPointShares) -> FixedPointShares:
    """1 / x for positive numbers; 0 gives at most ``ulps`` units in the last place; numbers must not be negative.

    The error is less than 2^-fraction of the result plus ``ulps`` units in the last place. Rounds: ceil(log2 b) + 3 to
    bring numbers of b bits near 1 (one more for many numbers), 3 for the iteration (with more than 16 fractional bits
    4, with more than 26 bits 5), and 1 to scale back. A seat sends as much as for a bit length and 6 to 8 products.
    Many numbers take one round more for each opening.
    """
    return apply_in_parts(number, lambda part: _reciprocal(engine, part), NUMBERS_AT_ONCE)


def _reciprocal(engine: FixedPointEngine, number: FixedPointShares) -> FixedPointShares:
    precision = _precision(engine)
    bits, (power,), some = _secret_powers(engine, number, _length(number), roots=False)
    normal = engine.multiply(replace(number, fraction=bits), power, fraction=precision + 1, bound=1 << bits)
    # For x = 0 the power is 0, and so is the result; 3/4 instead of 0 keeps all numbers before it small.
    instead = engine.line(replace(some, fraction=precision + 1), -3 << (precision - 1), 3 << (precision - 1))
    normal = replace(engine.add(normal, instead), bound=(1 << precision + 1) + (1 << precision >> 6))
    degree, centres = _reciprocal_plan(engine.fraction)
    inverse = _first_reciprocal(engine, normal, degree)
    first, second = (round(centre * 2**precision) for centre in centres)
    whole = inverse.fraction + precision
    product = engine.multiply(inverse, normal, fraction=precision, bound=9 << (whole - 2))
    rest = engine.line(product, -1, 1 << precision)
    pairs = [(inverse, engine.shift(rest, (1 << precision) + first)), (rest, engine.shift(rest, first))]
    inverse, squared = engine.products(pairs, fraction=precision, bounds=[9 << (whole - 2), 1 << (2 * precision - 7)])
    last = engine.shift(squared, (1 << precision) - first + second)
    inverse = engine.multiply(inverse, last, fraction=precision, bound=9 << (2 * precision - 2))
    # x = 2^(bits - s) B and the power is 2^s, so 1 / x = 2^(s - bits) / B.
    inverse = replace(inverse, fraction=precision + bits - number.fraction)
    return engine.multiply(power, inverse, bound=9 << (bits + precision - 3))


def inverse_sqrt(engine: FixedPointEngine, number: FixedPointShares) -> FixedPointShares:
    """1 / sqrt(x) for positive numbers; 0 gives at most ``ulps`` units in the last place; numbers must not be negative.

    The error is less than 2^-fraction of the result plus ``ulps`` units in the last place. The iteration takes 8 or 11
    rounds, the rest as many as in :func:`reciprocal`; and the bytes of 10 to 13 products.
    """
    return apply_in_parts(number, lambda part: _inverse_sqrt(engine, part), NUMBERS_AT_ONCE)


def _inverse_sqrt(engine: FixedPointEngine, number: FixedPointShares) -> FixedPointShares:
    length, precision = _length(number), _precision(engine)
    radix, groups = group_bit_lengths(length, prod(number.shape), roots=True)
    odd = (radix * groups - number.fraction) % 2  # the remainder when the power is halved
    bits, (square, power), _ = _secret_powers(engine, number, length + odd, roots=True)
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


def bits_needed(fraction: int, magnitude: int, ulps: float = 2.0, *, roots: bool = True) -> int:
    """How many bits a mask must hide, if all inputs and results are below 2^magnitude.

    This holds for products of two numbers, reciprocals and, unless ``roots`` is false, roots. A sum of 2^b products
    needs b bits more, and reciprocals of many numbers one bit more; roots of many numbers need no more.
    """
    precision = fraction + GUARD + ceil(log2(ulps)) - 1
    iterated = 2 * precision + {1: 2, 2: 13, 3: 18}[_reciprocal_plan(fraction)[0]]
    if roots:
        iterated = max(iterated, 2 * precision + max(_root_plan(fraction + GUARD)[1] + 4, 12) + 4)
    return max(2 * (magnitude + fraction), iterated, magnitude + fraction + precision + 2)


def constants(fraction: int) -> Iterator[int]:
    """The public numbers that reciprocals and roots are computed with: every seat must have the same."""
    degree, centres = _reciprocal_plan(fraction)
    start, steps = _root_plan(fraction + GUARD)
    yield from (degree, steps, bits_needed(fraction, 0))
    yield from (round(number * 2 ** (fraction + GUARD)) for number in (_LINE, *centres))
    for coefficients in (_reciprocal_start(2), _reciprocal_start(3), start):
        yield from _round_coefficients(coefficients)


def _length(number: FixedPointShares) -> int:
    return max(1, number.bound.bit_length())


def _precision(engine: FixedPointEngine) -> int:
    """Fractional bits of numbers near 1, so that a truncation changes the result by at most an eighth of a unit."""
    if engine.fraction < _COARSEST:
        raise ValueError(f"reciprocals and roots need {_COARSEST} fractional bits at least [VA093]")
    return engine.fraction + GUARD + ceil(log2(engine.ulps)) - 1


def _secret_powers(
    engine: FixedPointEngine, number: FixedPointShares, bits: int, *, roots: bool
) -> tuple[int, list[FixedPointShares], FixedPointShares]:
    """Secret powers 2^s with x 2^s in [2^(bits - 1), 2^bits); for roots s is even, and 2^(s/2) is returned too.

    For few numbers there is one coin for each possible bit length. For many numbers the bit lengths are in groups, and
    there is one coin for each group and one for each place in a group but the first. Then the returned ``bits`` may be
    larger than the given ones, because all groups have the same size. Returned last is 1, or 0 for x = 0.
    """
    length = _length(number)
    radix, groups = group_bit_lengths(length, prod(number.shape), roots=roots)
    known = engine.as_numbers(_one_hot(engine, engine.bit_length_flags(number), radix, groups))
    # A bit length is 1 + place + radix * group; the exponent s is the sum of these two.
    fine = [bits - length + radix - 1 - place for place in range(radix)]
    coarse = [radix * (groups - 1 - group) for group in range(groups)]
    if roots:
        fine = [step - step % 2 for step in fine]
    halvings, places = (1, 2) if roots else (1,), radix - 1 if groups > 1 else 0

    def powers(hot: FixedPointShares, steps: Sequence[int], *, first: bool = False) -> list[FixedPointShares]:
        return [_weighted_power(engine, hot, [step // by for step in steps], first=first) for by in halvings]

    if groups > 1:
        pairs = zip(powers(known[:places], fine, first=True), powers(known[places:], coarse), strict=True)
        found = engine.products(list(pairs), fraction=0)
    else:
        found = powers(known, fine)
    some = replace(engine.total(known[places:], 0), bound=1)
    shape = number.shape
    return bits + radix * groups - length, [power.reshape(*shape) for power in found], some.reshape(*shape)


def group_bit_lengths(length: int, count: int, *, roots: bool) -> tuple[int, int]:
    """For ``count`` numbers of so many bits, how many bit lengths are in a group and how many groups there are.

    There are as few coins as possible. For roots the size of a group is even, so that its power has a root.
    """
    if length * count <= FLAT:
        return length, 1
    step = 2 if roots else 1
    sizes = [(radix, -(-length // radix)) for radix in range(2, max(2, length) + 1, step)]
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


def _first_reciprocal(engine: FixedPointEngine, number: FixedPointShares, degree: int) -> FixedPointShares:
    """The first approximation of 1 / B; of degree 1, it is a - 2 B, which needs no more fractional bits than B has."""
    if degree > 1:
        return _polynomial(engine, number, _reciprocal_start(degree))
    twice = replace(number, fraction=number.fraction - 1)
    return replace(engine.line(twice, -1, round(_LINE * 2**twice.fraction)), bound=2 << twice.fraction)


def _polynomial(engine: FixedPointEngine, number: FixedPointShares, coefficients: Sequence[float]) -> FixedPointShares:
    """The value of a polynomial of degree 2 or 3 with rounded coefficients, below 8 on [0, 1]: degree - 1 rounds.

    For degree 2 the result has the additional fractional bits of the coefficients; the next product cuts them.
    """
    degree, fraction = len(coefficients) - 1, number.fraction
    bits = _COEFFICIENT_BITS[degree]
    whole = _round_coefficients(coefficients)
    line = engine.line(number, whole[1], whole[0] << fraction, fraction=bits)
    square = engine.multiply(number, number, fraction=fraction)
    if degree == 2:
        return engine.add(line, engine.scale(square, whole[2], fraction=bits))
    rest = engine.line(number, whole[3], whole[2] << fraction, fraction=bits)
    whole_sum = engine.add(line, engine.product(square, rest))
    return engine.truncate(replace(whole_sum, bound=_ROOM // 2 << whole_sum.fraction), fraction)


def _round_coefficients(coefficients: Sequence[float]) -> list[int]:
    bits = _COEFFICIENT_BITS[len(coefficients) - 1]
    return [round(c * 2**bits) for c in coefficients]


@cache
def _reciprocal_plan(fraction: int) -> tuple[int, list[float]]:
    """The degree of the first approximation, and the middle of e^2 in both steps.

    It is the lowest degree after which the relative error is at most a quarter of 2^-fraction.
    """
    for degree in (1, 2, 3):
        error, centres = _first_error(degree), []
        for _ in range(2):
            # e (e + d) - d is from -d - d^2 / 4 to as much above zero, for e up to the error before.
            centres.append(error**2 / (2 - error))
            error = centres[-1] + centres[-1] ** 2 / 4
        if error <= 2.0 ** -(fraction + 2):
            break
    return degree, centres


def _first_error(degree: int) -> float:
    """The largest |1 - B q| of the first approximation q, with the error of its rounded coefficients."""
    if degree == 1:
        return 3 - _LINE
    return 1 / float(chebval(3.0, [0.0] * (degree + 1) + [1.0])) + _rounding(degree)


def _rounding(degree: int) -> float:
    """The largest change of a polynomial on [0, 1] when its coefficients are rounded."""
    return (degree + 1) * 2.0 ** -(_COEFFICIENT_BITS[degree] + 1)


@cache
def _reciprocal_start(degree: int) -> list[float]:
    """The polynomial p for which B p(B) is closest to 1 on [1/2, 1]: (1 - T(3 - 4 B) / T(3)) / B."""
    curve = Polynomial(cheb2poly([0.0] * (degree + 1) + [1.0]))
    inside = curve(Polynomial([3.0, -4.0]))
    rest = 1.0 - inside / curve(3.0)
    return [float(c) for c in rest.coef[1:]]


@cache
def _root_plan(bits: int) -> tuple[list[float], int]:
    """A first approximation of 1 / sqrt(B) on [1/4, 1], and the number of steps to ``bits`` correct bits."""
    near = Chebyshev.interpolate(lambda b: 1 / np.sqrt(b), 3, domain=[0.25, 1.0])
    grid = np.linspace(0.25, 1.0, 4097)
    error = float(np.abs(near(grid) * np.sqrt(grid) - 1).max()) + _rounding(3)
    steps = 0
    while error > 2.0 ** -(bits + 1):
        error, steps = 1.5 * error**2 + 0.5 * error**3, steps + 1
    return [float(c) for c in near.convert(kind=Polynomial).coef], steps
