"""A linear code: 128 bits become 624, and any two words of it differ in at least 128 places.

It is a Reed-Solomon code over the field of 4096 elements, of which 26 values of a polynomial of degree 10 at most are
taken, and each value of 12 bits is written as 24 bits of Golay's code. Two polynomials differ at 16 of the points or
more, and two of Golay's words in 8 bits or more (docs/theory/oblivious-evaluation.md).
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate

import numpy as np

from colonnade.mpc.oblivious.matrices import Bits
from colonnade.mpc.subsets import Subsets

MESSAGE, WIDTH, DISTANCE = 128, 624, 128
ROW_WORDS = 10
"""Words of 64 bits that hold a word of the code; the last 16 bits are zero."""

_FIELD = 0b1000001010011  # x^12 + x^6 + x^4 + x + 1, which is primitive
_GOLAY = 0b110001110101  # divides x^23 + 1
_SYMBOL, _POINTS = 12, WIDTH // 24


class Coder:
    """Encodes rows, and keeps only those bits of code words that a mask has."""

    def __init__(self, mask: Bits) -> None:
        self._sums = Subsets(_generator() & mask)

    def __call__(self, messages: Bits) -> Bits:
        """The code word of each row of two words."""
        return self._sums(messages)


@cache
def _generator() -> Bits:
    """The code word of each message that has a single bit."""
    found = np.zeros((MESSAGE, ROW_WORDS), dtype=np.uint64)
    # The points are the first powers of x, which differ, so the powers of the points are powers of x as well.
    powers = list(accumulate(range(_POINTS * -(-MESSAGE // _SYMBOL)), lambda power, _: _product(power, 2), initial=1))
    for bit in range(MESSAGE):
        degree, coefficient = bit // _SYMBOL, 1 << bit % _SYMBOL
        values = [_product(powers[place * degree], coefficient) for place in range(_POINTS)]
        word = sum(golay(value) << 2 * _SYMBOL * place for place, value in enumerate(values))
        found[bit] = [word >> 64 * index & (1 << 64) - 1 for index in range(ROW_WORDS)]
    return found


def golay(symbol: int) -> int:
    """Golay's word of 24 bits for a symbol of 12: a product of polynomials over bits, and its parity."""
    word = 0
    for bit in range(_SYMBOL):
        word ^= (_GOLAY << bit) * (symbol >> bit & 1)
    return word | (word.bit_count() & 1) << 23


def _product(left: int, right: int) -> int:
    """A product in the field of 4096 elements."""
    found = 0
    for bit in reversed(range(_SYMBOL)):
        found <<= 1
        found ^= _FIELD * (found >> _SYMBOL)
        found ^= left * (right >> bit & 1)
    return found
