"""Every number from 0 on is a sum of four squares (Lagrange): how an owner shows that a difference is not negative.

The search is greedy: a is a little below the root of n. If the rest is small, a table tells whether it is a sum of
three squares, as five of six numbers are. Otherwise b is a little below the root of the rest, and a table tells whether
what is left is a sum of two squares, as about one number in four is. The public bound says which search all numbers go
through; the few that need more attempts go on alone.
"""

from __future__ import annotations

from functools import cache
from itertools import count, product

import numpy as np
from numpy.typing import NDArray

LARGEST = 2**52
"""Numbers are below this, so that floats hold them and all squares exactly."""
_TABLE = 1 << 19
_NEAR = 2**36
"""Below this, the rest beside the largest square has a place in the table."""
_CHUNK = 1 << 14

Numbers = NDArray[np.float64]
Table = NDArray[np.int32]


def four_squares(numbers: Numbers, below: int = LARGEST) -> Numbers:
    """Whole numbers a, b, c, d for each n of a vector, with a^2 + b^2 + c^2 + d^2 = n: an array (size, 4).

    ``below`` is a public bound on all of them.
    """
    if below > LARGEST or (numbers.size and not (numbers.min() >= 0 and numbers.max() < below)):
        raise ValueError("only numbers from 0 to below a bound of at most 2^52 are taken apart into squares [VA105]")
    out = np.empty((numbers.size, 4))
    left = np.arange(numbers.size)
    if below <= _NEAR:
        table = _three_squares(min(_TABLE, 1 << (below.bit_length() // 2 + 3)))
        left = np.concatenate(
            [
                start + _try_three(numbers[start : start + _CHUNK], table, out[start : start + _CHUNK])
                for start in range(0, numbers.size, _CHUNK)
            ]
            or [left]
        )
    out[left] = _search_squares(numbers[left])
    return out


def _search_squares(numbers: Numbers) -> Numbers:
    """Four squares of any numbers."""
    rest, scale = _strip_fours(numbers)
    out = np.empty((rest.size, 4))
    found = np.zeros(rest.size, dtype=bool)
    for i, j in product(range(4), range(4)):
        found |= _try_two(rest, i, j, out)
    left = np.flatnonzero(~found)
    # All pairs come in turn, so a small number meets every sum that it has.
    pairs = ((i, further - i) for further in count() for i in range(further + 1))
    while left.size:
        squares = np.empty((left.size, 4))
        done = _try_two(rest[left], *next(pairs), squares)
        out[left[done]] = squares[done]
        left = left[~done]
    return out * scale[:, None]


def _strip_fours(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """The numbers divided by as many fours as go, and the powers of two by which their roots are multiplied again.

    Twice a power of four is a sum of squares in one way only, far from the greedy one.
    """
    rest, scale = numbers.copy(), np.ones(numbers.size)
    for power in (16, 8, 4, 2, 1):
        quotient = rest * 4.0**-power
        whole = (quotient == np.floor(quotient)) & (rest > 0)
        np.copyto(rest, quotient, where=whole)
        scale[whole] *= 2.0**power
    return rest, scale


def _try_three(numbers: Numbers, table: Table, out: Numbers) -> NDArray[np.int64]:
    """Try the root of n; writes the squares, and says which numbers are not found."""
    root, rest = _subtract_root(numbers, 0)
    both = table[rest.astype(np.int32)]
    missing = np.flatnonzero(both < 0)
    if missing.size:
        lower, beside = _subtract_root(numbers[missing], 1)
        near = (lower >= 0) & (beside < len(table))
        again = table[np.where(near, beside, 7).astype(np.int32)]
        root[missing], rest[missing], both[missing] = lower, beside, again
        missing = missing[again < 0]
    out[:, 0] = root
    out[:, 1] = both >> 10
    out[:, 2] = both & 1023
    rest -= np.square(out[:, 1])
    rest -= np.square(out[:, 2])
    np.sqrt(np.abs(rest), out=out[:, 3])
    return missing


def _try_two(numbers: Numbers, i: int, j: int, out: Numbers) -> NDArray[np.bool_]:
    """Try the root of n less i, and the root of the rest less j."""
    a, beside = _subtract_root(numbers, i)
    b, rest = _subtract_root(np.abs(beside), j)
    valid = (a >= 0) & (b >= 0) & (rest < _TABLE)
    roots = _two_squares()[np.where(valid, rest, 3).astype(np.int32)]  # 3 is no sum of two squares
    found: NDArray[np.bool_] = roots >= 0
    c = roots.astype(np.float64)
    np.copyto(out, np.column_stack([a, b, c, np.sqrt(np.abs(rest - c * c))]), where=found[:, None])
    return found


def _subtract_root(numbers: Numbers, less: int) -> tuple[Numbers, Numbers]:
    """The root less a small number, and what is left beside its square; the float root of such numbers is exact."""
    root = np.floor(np.sqrt(numbers)) - less
    return root, numbers - root * root


@cache
def _two_squares() -> Table:
    """For every number of the table: the larger root if it is a sum of two squares, else -1."""
    table = np.full(_TABLE, -1, dtype=np.int32)
    roots = np.arange(int(_TABLE**0.5) + 1)
    for root in roots.tolist():
        sums = root**2 + roots[: root + 1] ** 2
        table[sums[sums < _TABLE]] = root
    table.flags.writeable = False
    return table


@cache
def _three_squares(size: int) -> Table:
    """For nearly every number below ``size`` that is a sum of three squares: two roots, b 2^10 + c; else -1."""
    table, two = np.full(size, -1, dtype=np.int32), _two_squares()
    left = np.arange(size, dtype=np.int32)
    for root in range(64):
        left = left[left >= root**2]
        larger = two[left - root**2]
        found = larger >= 0
        table[left[found]] = (root << 10) + larger[found]
        left = left[~found]
    table.flags.writeable = False
    return table
