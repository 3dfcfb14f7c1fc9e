"""How many places a batch of a mixture has: public, and large enough for those who join."""

from __future__ import annotations

import math
from fractions import Fraction

OVERFLOW = Fraction(1, 2**46)
"""The chance that a drawn batch has more people than there is room for, in one round."""
_WORD = 64  # bits


def room_for_all(rows: int) -> int:
    """The number of places for everybody, a multiple of 64."""
    return -(-rows // _WORD) * _WORD


def room_for_batch(rows: int, chance: float) -> int:
    """The number of places for those of ``rows`` people who join with this chance, a multiple of 64.

    More join with chance :data:`OVERFLOW` at most, by Chernoff: of n people who join with chance p, more than m do with
    chance at most exp(-n D(m/n, p)), where D is the relative entropy of two coins.
    """
    size = _WORD
    while size < rows and rows * _relative_entropy(size / rows, chance) < -math.log(OVERFLOW):
        size += _WORD
    return size


def in_pieces(room: int, block_rows: int) -> tuple[int, int]:
    """In how many pieces so many places are computed, each of about ``block_rows`` at most, and how many each has."""
    size = min(room, max(_WORD, block_rows // _WORD * _WORD))
    return -(-room // size), size


def _relative_entropy(size: float, chance: float) -> float:
    """How unlikely it is that a share ``size`` of coins with this chance come up, in nats a coin, rounded down."""
    if size <= chance:
        return 0.0
    first = size * math.log(size / chance)
    rest = (1 - size) * math.log((1 - size) / (1 - chance)) if size < 1 else 0.0
    return (first + rest) * (1 - 2.0**-40)
