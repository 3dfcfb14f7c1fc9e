"""Every natural number is a (a + 1) + b^2 + c^2: how an owner shows that a difference is not negative.

For 4 n + 1 is a sum of three squares (Gauss), of which one is odd: (2 a + 1)^2 + (2 b)^2 + (2 c)^2. The search takes
the largest a, or a few less, until a table tells that what is left is a sum of two squares, as about one number in four
is. Of large numbers a fourth square, as large as possible, is taken away before, so that the rest has a place in the
table.
"""

from __future__ import annotations

from functools import cache
from itertools import count

import numpy as np
from numpy.typing import NDArray

LARGEST = 2**52
"""Numbers are below this, so that floats hold them and all squares exactly."""
NEAR = 2**28
"""From this on there is a fourth square."""
_CHUNK = 1 << 14
_TABLE = 1 << 21

Numbers = NDArray[np.float64]


def count_squares(below: int) -> int:
    """How many numbers are dealt for each n below a public bound."""
    return 3 if below <= NEAR else 4


def take_apart(numbers: Numbers, below: int = LARGEST) -> Numbers:
    """Whole numbers a, b, c for each n of a vector with a (a + 1) + b^2 + c^2 = n: an array (size, 3).

    ``below`` is a public bound on all of them. From 2^28 on there are four columns, the last one a square, too.
    """
    if below > LARGEST or (numbers.size and not (numbers.min() >= 0 and numbers.max() < below)):
        raise ValueError("only numbers from 0 to below a bound of at most 2^52 are taken apart into squares [VA105]")
    out = np.empty((numbers.size, count_squares(below)))
    for start in range(0, numbers.size, _CHUNK):
        _search(numbers[start : start + _CHUNK], out[start : start + _CHUNK], below)
    return out


def _search(numbers: Numbers, out: Numbers, below: int) -> None:
    four = out.shape[1] == 4
    table = _two_squares(min(_TABLE, 1 << (below.bit_length() // 2 + 7)))
    roots = np.floor((np.sqrt(4 * numbers + 1) - 1) / 2)
    roots -= roots * (roots + 1) > numbers  # the float root may be one too large
    left, last = np.arange(len(numbers)), len(table) - 1
    # With a fourth square all pairs come in turn, so a small number meets every sum that it has.
    steps = ((i, further - i) for further in count() for i in range(further + 1)) if four else ((i, 0) for i in count())
    while left.size:
        i, j = next(steps)
        a = roots - i
        rest = numbers - a * (a + 1)
        if four:
            fourth = np.floor(np.sqrt(np.abs(rest))) - j
            rest -= fourth * fourth
            rest[(a < 0) | (fourth < 0) | (rest > last)] = 3  # no sum of two squares
        both = table.take(rest.astype(np.int32), mode="clip")
        if rest.max() > last:
            for beyond in np.flatnonzero(rest > last):
                both[beyond] = _larger_root(int(rest[beyond]))
        found, others = np.flatnonzero(both >= 0), np.flatnonzero(both < 0)
        b, where = both[found].astype(np.float64), left[found]
        out[where, 0], out[where, 1], out[where, 2] = a[found], b, np.sqrt(rest[found] - b * b)
        if four:
            out[where, 3] = fourth[found]
        left, numbers, roots = left[others], numbers[others], roots[others]


def _larger_root(number: int) -> int:
    """The larger root if a number is a sum of two squares, else -1; for the few that have no place in a table."""
    roots = np.arange(int(number**0.5) + 1)
    others = np.sqrt(number - roots**2)
    fitting = roots[others == np.floor(others)]
    return int(fitting.max(initial=-1))


@cache
def _two_squares(size: int) -> NDArray[np.int16]:
    """For every number of the table: a root if it is a sum of two squares, else -1."""
    table = np.full(size, -1, dtype=np.int16)
    roots = np.arange(int(size**0.5) + 1)
    for root in roots.tolist():
        sums = root**2 + roots[: root + 1] ** 2
        table[sums[sums < size]] = root
    table.flags.writeable = False
    return table
