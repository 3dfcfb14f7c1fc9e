"""The field of 2^48 elements, which contains the fields of shared bits; in it a check fails by rare chance only.

An element is three elements of GF(2^16) in the lowest bits of a word, the coefficients of 1, y and y^2 with y^3 = x.
GF(2^16) has polynomials in x modulo x^16 + x^12 + x^3 + x + 1, whose powers of x are all its elements but zero. So
products are sums of logarithms. x is no cube, so y^3 - x has no root and is irreducible. Sums are XORs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

Elements = NDArray[np.uint64]

BITS = 48
MASK = np.uint64((1 << BITS) - 1)
ONE = np.uint64(1)
_ORDER = (1 << 16) - 1
_MODULUS = 0b1_0001_0000_0000_1011
_NO_LOGARITHM = 2 * _ORDER + 2
_CHUNK = 1 << 13


@cache
def _tables() -> tuple[NDArray[np.int32], NDArray[np.uint16]]:
    """Logarithms to the base x, and powers of x; sums with the logarithm that zero has in its place give zero."""
    powers = np.zeros(2 * _NO_LOGARITHM + 2, dtype=np.uint16)
    logarithms = np.full(1 << 16, _NO_LOGARITHM, dtype=np.int32)
    value = 1
    for exponent in range(_ORDER):
        powers[exponent], logarithms[value] = value, exponent
        value <<= 1
        value ^= _MODULUS * (value >> 16)
    powers[_ORDER : 2 * _ORDER + 1] = powers[: _ORDER + 1]
    powers[2 * _ORDER] = powers[0]
    return logarithms, powers


def multiply(left: Elements, right: Elements) -> Elements:
    """The elementwise product, of shapes that broadcast."""
    left, right = np.broadcast_arrays(left, right)
    if left.size <= _CHUNK:
        return _multiply(left, right)
    out = np.empty(left.shape, dtype=np.uint64)
    flat, a, b = out.reshape(-1), left.reshape(-1), right.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        here = slice(start, start + _CHUNK)
        flat[here] = _multiply(a[here], b[here])
    return out


def _multiply(left: Elements, right: Elements) -> Elements:
    logarithms, powers = _tables()
    a, b = _parts(left), _parts(right)
    la, lb = [logarithms[part] for part in a], [logarithms[part] for part in b]

    def mixed(i: int, j: int) -> NDArray[np.uint16]:
        """The coefficient of y^(i + j) from these two parts (Karatsuba)."""
        out: NDArray[np.uint16] = powers[logarithms[a[i] ^ a[j]] + logarithms[b[i] ^ b[j]]]
        out ^= squares[i] ^ squares[j]
        return out

    squares = [powers[x + y] for x, y in zip(la, lb, strict=True)]
    # y^3 = x and y^4 = x y, and a product with x adds 1 to a logarithm.
    zero = squares[0] ^ powers[logarithms[mixed(1, 2)] + 1]
    one = mixed(0, 1) ^ powers[logarithms[squares[2]] + 1]
    two = mixed(0, 2) ^ squares[1]
    found: Elements = two.astype(np.uint64)
    for part in (one, zero):
        found <<= np.uint64(16)
        found |= part
    return found


def _parts(values: Elements) -> list[NDArray[np.uint16]]:
    return [(values >> np.uint64(16 * part)).astype(np.uint16) for part in range(3)]


def total(values: Elements, axis: int = -1) -> Elements:
    """The sum along an axis."""
    return np.asarray(np.bitwise_xor.reduce(values, axis=axis), dtype=np.uint64)


def inner(left: Elements, right: Elements) -> Elements:
    """The sum of products along the last axis."""
    return total(multiply(left, right))


def power(base: Elements, exponent: int) -> Elements:
    """Elements to the power of a positive integer."""
    found = np.full_like(base, ONE)
    while exponent:
        if exponent & 1:
            found = multiply(found, base)
        base, exponent = multiply(base, base), exponent >> 1
    return found


def inverse(values: Elements) -> Elements:
    """The inverse of elements other than zero."""
    return power(values, (1 << BITS) - 2)


@lru_cache(maxsize=256)
def weights(known: tuple[int, ...], at: int) -> Elements:
    """Lagrange factors, as in :func:`colonnade.mpc.shamir.lagrange_weights`; read-only."""
    points = np.array(known, dtype=np.uint64)
    above, below = (np.ones(len(known), dtype=np.uint64) for _ in range(2))
    for place, point in enumerate(points):
        others = np.arange(len(known)) != place
        above = multiply(above, np.where(others, point ^ np.uint64(at), ONE))
        below = multiply(below, np.where(others, point ^ points, ONE))
    found = multiply(above, inverse(below))
    found.flags.writeable = False
    return found


def combine(values: Sequence[Elements] | Elements, factors: Elements) -> Elements:
    """The sum of the values, each times its factor."""
    return total(np.stack([multiply(value, factor) for value, factor in zip(values, factors, strict=True)]), axis=0)


@cache
def embedding(m: int) -> Elements:
    """Where the elements of GF(2^m) lie, by the bits of :class:`~colonnade.mpc.fixed_point.shared_bits.BinaryField`.

    m is 2 or 3.
    The polynomials there are x^2 + x + 1 and x^3 + x + 1: one of their roots is sent for x.
    """
    exponent = ((1 << BITS) - 1) // ((1 << m) - 1)
    small = (power(np.array(base, dtype=np.uint64), exponent) for base in range(1 << 16, 1 << 17))
    x = next(root for root in small if power(root, m) ^ root == ONE)
    basis = [np.array(ONE), x, multiply(x, x)][:m]
    elements = np.zeros(1 << m, dtype=np.uint64)
    for value in range(1 << m):
        for place, one in enumerate(basis):
            if value >> place & 1:
                elements[value] ^= one
    return elements
