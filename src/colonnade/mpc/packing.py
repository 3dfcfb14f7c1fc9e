"""Shares as they are sent: a residue has 22 bits and is sent in 24, so four residues make three words of 32 bits.

All first words come first, then all second words, then all third words. So packing takes few operations, and these
work on contiguous memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.mpc.residues import Residues, ResidueSystem
from colonnade.received import Array

Words = NDArray[np.uint32] | NDArray[np.int32]
SMALL = 1 << 14
"""At most this many residues are sent unpacked: a third more bytes cost less time than packing."""


def pack(residues: Residues, system: ResidueSystem) -> Words:
    """Residues as words to send, one row for each prime; few residues are not packed."""
    count = prod(residues.shape[1:])
    quarter = _quarter(count)
    if residues.size <= SMALL:
        return residues.reshape(len(system.primes), count).astype(np.int32)
    words = np.empty((len(system.primes), 3, quarter), dtype=np.uint32)
    numbers = np.zeros(4 * quarter, dtype=np.uint32)
    for prime, row, (first, second, third) in zip(system.primes, residues, words, strict=True):
        numbers[:count] = row.reshape(-1) + prime // 2
        a, b, c, d = numbers.reshape(4, quarter)
        np.bitwise_or(a, b << 24, out=first)
        np.bitwise_or(b >> 8, c << 16, out=second)
        np.bitwise_or(c >> 16, d << 8, out=third)
    return words.reshape(len(system.primes), -1)


def packed(shape: Sequence[int], primes: int) -> Array:
    """What :func:`pack` makes of an array of this shape, modulo so many primes."""
    count = prod(shape)
    if primes * count <= SMALL:
        return Array(np.int32, (primes, count))
    return Array(np.uint32, (primes, 3 * _quarter(count)))


def unpack(words: Words, shape: Sequence[int], system: ResidueSystem, sender: str) -> Residues:
    """The residues in words of the form :func:`packed`; other numbers are refused, in the name of ``sender``."""
    count = prod(shape)
    quarter = _quarter(count)
    primes = len(system.primes)
    if primes * count <= SMALL:
        return _plain(words, system, sender).reshape(primes, *shape)
    residues = np.empty((primes, count))
    numbers = np.empty((4, quarter), dtype=np.uint32)
    for prime, out, (first, second, third) in zip(
        system.primes, residues, words.reshape(primes, 3, quarter), strict=True
    ):
        np.bitwise_and(first, 0xFFFFFF, out=numbers[0])
        np.bitwise_or(first >> 24, (second & 0xFFFF) << 8, out=numbers[1])
        np.bitwise_or(second >> 16, (third & 0xFF) << 16, out=numbers[2])
        np.right_shift(third, 8, out=numbers[3])
        flat = numbers.reshape(-1)
        if flat.size and (int(flat.max()) >= prime or flat[count:].any()):
            raise ProtocolError(f"{sender} sent a number that is no residue")
        np.subtract(flat[:count], float(prime // 2), out=out)
    return residues.reshape(primes, *shape)


def _plain(numbers: Words, system: ResidueSystem, sender: str) -> Residues:
    """Residues that were sent unpacked."""
    # Nearly always all are below half of the smallest prime, which is fast to check. If not: with half of p added, a
    # residue is a number from 0 to p - 1, and a negative number read as unsigned is larger than that.
    near = not numbers.size or max(int(numbers.max()), -int(numbers.min())) <= system.smallest_half
    if not near and ((numbers + system.half_primes).view(np.uint32) >= system.prime_column).any():
        raise ProtocolError(f"{sender} sent a number that is no residue")
    return numbers.astype(np.float64)


def _quarter(count: int) -> int:
    return -(-count // 4)
