"""Shares as they are sent: a residue has 22 bits and is sent in 24, so four residues make three words of 32 bits.

All first words come first, then all second words, then all third words. So packing takes few operations, and these
work on contiguous memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.mpc.residues import CHUNK, Residues, ResidueSystem, from_words
from colonnade.received import Array

Words = NDArray[np.uint32] | NDArray[np.int32]
SMALL = 1 << 14
"""At most this many residues are sent unpacked: a third more bytes cost less time than packing."""


def pack(residues: Residues, system: ResidueSystem) -> Words:
    """Residues as words to send, one row for each prime; few residues are not packed."""
    count = prod(residues.shape[1:])
    if is_small(count, system):
        return residues.reshape(len(system.primes), count).astype(np.int32)
    words = np.empty((len(system.primes), 3 * quarter_of(count)), dtype=np.uint32)
    numbers = np.zeros(4 * quarter_of(count), dtype=np.uint32)
    for prime, row, out in zip(system.primes, residues, words, strict=True):
        numbers[:count] = row.reshape(-1) + prime // 2
        pack_words(numbers, out)
    return words


def is_small(count: int, system: ResidueSystem) -> bool:
    """Whether the residues of so many numbers are sent unpacked."""
    return count * len(system.primes) <= SMALL


def pack_words(numbers: NDArray[np.uint32], out: NDArray[np.uint32]) -> None:
    """Pack numbers below 2^24, four times as many as a third of ``out``."""
    quarters, (first, second, third) = numbers.reshape(4, -1), out.reshape(3, -1)
    spare = np.empty(min(CHUNK, len(first)), dtype=np.uint32)
    for start in range(0, len(first), CHUNK):
        here = slice(start, start + CHUNK)
        a, b, c, d = quarters[:, here]
        shifted = spare[: len(a)]
        np.left_shift(b, 24, out=shifted)
        np.bitwise_or(a, shifted, out=first[here])
        np.left_shift(c, 16, out=shifted)
        np.right_shift(b, 8, out=second[here])
        second[here] |= shifted
        np.left_shift(d, 8, out=shifted)
        np.right_shift(c, 16, out=third[here])
        third[here] |= shifted


def packed(shape: Sequence[int], primes: int) -> Array:
    """What :func:`pack` makes of an array of this shape, modulo so many primes."""
    count = prod(shape)
    if primes * count <= SMALL:
        return Array(np.int32, (primes, count))
    return Array(np.uint32, (primes, 3 * quarter_of(count)))


def unpack(words: Words, shape: Sequence[int], system: ResidueSystem, sender: str) -> Residues:
    """The residues in words of the form :func:`packed`; other numbers are refused, in the name of ``sender``."""
    count = prod(shape)
    quarter = quarter_of(count)
    primes = len(system.primes)
    if is_small(count, system):
        return _plain(words, system, sender).reshape(primes, *shape)
    residues = np.empty((primes, count))
    numbers, spare = np.empty((4, quarter), dtype=np.uint32), np.empty(quarter, dtype=np.uint32)
    flat = numbers.reshape(-1)[:count]
    for index, (prime, out) in enumerate(zip(system.primes, residues, strict=True)):
        unpack_words(words[index], prime, count, numbers, spare, sender)
        from_words(flat, prime, out, flat)
    return residues.reshape(primes, *shape)


def unpack_words(
    words: NDArray[Any], prime: int, count: int, out: NDArray[np.uint32], spare: NDArray[np.uint32], sender: str
) -> None:
    """The numbers in one row of packed words, which must be below the prime, in four rows; ``spare`` is overwritten."""
    first, second, third = words.reshape(3, -1)
    np.bitwise_and(first, 0xFFFFFF, out=out[0])
    np.right_shift(first, 24, out=spare)
    np.bitwise_and(second, 0xFFFF, out=out[1])
    out[1] <<= 8
    out[1] |= spare
    np.right_shift(second, 16, out=spare)
    np.bitwise_and(third, 0xFF, out=out[2])
    out[2] <<= 16
    out[2] |= spare
    np.right_shift(third, 8, out=out[3])
    if count and (int(out.max()) >= prime or out.reshape(-1)[count:].any()):
        raise ProtocolError(f"{sender} sent a number that is no residue [MS007]")


def _plain(numbers: Words, system: ResidueSystem, sender: str) -> Residues:
    """Residues that were sent unpacked."""
    # Nearly always all are below half of the smallest prime, which is fast to check. If not: with half of p added, a
    # residue is a number from 0 to p - 1, and a negative number read as unsigned is larger than that.
    near = not numbers.size or max(int(numbers.max()), -int(numbers.min())) <= system.smallest_half
    if not near and ((numbers + system.half_primes).view(np.uint32) >= system.prime_column).any():
        raise ProtocolError(f"{sender} sent a number that is no residue [MS008]")
    return numbers.astype(np.float64)


def quarter_of(count: int) -> int:
    """How many words of each kind so many residues take."""
    return -(-count // 4)
