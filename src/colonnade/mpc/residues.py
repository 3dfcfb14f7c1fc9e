"""Exact integer arithmetic at BLAS speed: a residue number system of centred 22-bit primes.

A secret integer is held as its residues modulo a few primes just below 2^22, each residue centred in
(-p/2, p/2) and stored as a float64. A matrix product modulo one prime is then an ordinary ``dgemm`` over at
most 2048 rows (2048 (p/2)^2 < 2^53 - p) followed by one reduction, and exact by construction. More
precision is one more prime. All residue arrays have the primes as their first axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError, ShareError
from colonnade.randomness import Stream

Residues = NDArray[np.float64]
Integers = NDArray[Any]
"""int64, or Python integers in an object array where int64 is too small."""

# The sixteen largest primes below 2^22, written as their distance to it. So near to 2^22, a uniform 22-bit
# number is a residue in all but one of 20,000 draws.
PRIMES = tuple(2**22 - d for d in (3, 17, 27, 33, 57, 87, 105, 113, 117, 123, 131, 137, 161, 167, 173, 197))
BLOCK_ROWS = 2048
_CHUNK = 1 << 15
FEW = 1 << 16
"""Up to so many residues the calls cost more than the arithmetic, and all primes are treated at once."""


@dataclass(frozen=True)
class ResidueSystem:
    """Integers modulo the product of the first ``len(primes)`` primes, read back as signed."""

    primes: tuple[int, ...]

    @classmethod
    def for_bound(cls, bound: int) -> ResidueSystem:
        """The smallest system in which every integer of magnitude at most ``bound`` is distinct."""
        modulus = 1
        for count, prime in enumerate(PRIMES, start=1):
            modulus *= prime
            if modulus > 2 * bound:
                return cls(PRIMES[:count])
        raise CapacityError(
            f"the largest value needs {bound.bit_length() + 1} bits and the arithmetic has "
            f"{prod(PRIMES).bit_length() - 1}: lower gamma, the row limit or the clip"
        )

    @cached_property
    def modulus(self) -> int:
        """The product of the primes."""
        return prod(self.primes)

    @property
    def bits(self) -> int:
        """How many bits a signed value may have."""
        return self.modulus.bit_length() - 1

    def split(self, values: Integers) -> Residues:
        """Signed integers (int64, object, or integer-valued float64) to residues, read-only."""
        if values.dtype == np.float64 and (not values.size or np.abs(values).max() < self.primes[-1] // 2):
            return np.broadcast_to(values, (len(self.primes), *values.shape))
        out = np.empty((len(self.primes), *values.shape))
        whole = values.astype(np.int64) if values.dtype == np.float64 else values
        for prime, row in zip(self.primes, out, strict=True):
            row[...] = whole % prime
            reduce(row, prime)
        return out

    def constant(self, value: int, dimensions: int) -> Residues:
        """One public integer as residues that combine with any array of so many dimensions."""
        residues = [float(centred(value, prime)) for prime in self.primes]
        return np.array(residues).reshape(-1, *[1] * (dimensions - 1))

    def join(self, residues: Residues, bound: int) -> Integers:
        """Residues back to signed integers of magnitude at most ``bound``: Garner, digit by digit.

        The digits are centred, so the value is read as signed. int64 arithmetic wraps modulo 2^64 and is
        therefore exact whenever the value itself fits. A value beyond the bound cannot come of an honest
        computation and is refused; where the system has bits to spare, a wrong share is caught so.
        """
        narrow = bound < 2**63
        value: Integers = np.zeros(residues.shape[1:], dtype=np.int64 if narrow else object)
        size = np.zeros(residues.shape[1:])
        weight = 1
        for index, digit in enumerate(self._digits(residues)):
            step = _wrap(weight) if narrow else weight
            whole = digit.astype(np.int64)
            value = value + (whole if narrow else whole.astype(object)) * step
            size += digit * float(weight)
            weight *= self.primes[index]
        if size.size and np.abs(size).max() > bound * (1 + 2.0**-40):
            raise ShareError("an opened value is larger than any honest one could be: somebody computed something else")
        return value

    def uniform(self, shape: tuple[int, ...], stream: Stream) -> Residues:
        """Uniform residues; two holders of the same stream draw the same ones."""
        out = np.empty((len(self.primes), *shape))
        for prime, row in zip(self.primes, out, strict=True):
            for part in chunks(row):
                draw(prime, part, stream)
        return out

    def reduce(self, values: Residues, *, passes: int = 1) -> Residues:
        """Reduce in place; entries below 2^51 in magnitude, or with two passes as large as 2^53 - p."""
        if values.size <= FEW:
            shape = (-1, *[1] * (values.ndim - 1))
            primes, inverses = self.constants.reshape(shape), self._inverses.reshape(shape)
            for _ in range(passes):
                values -= np.rint(values * inverses) * primes
            return values
        for prime, row in zip(self.primes, values, strict=True):
            for _ in range(passes):
                reduce(row, prime)
        return values

    @cached_property
    def constants(self) -> Residues:
        """The primes as floats."""
        return np.array(self.primes, dtype=np.float64)

    @cached_property
    def _inverses(self) -> Residues:
        return np.array([1.0 / prime for prime in self.primes])

    def inner(self, left: Residues, right: Residues) -> Residues:
        """Left' right for each prime: (k, rows, a) and (k, rows, b) to (k, a, b), exactly."""
        if left.shape[1] <= BLOCK_ROWS and left.size <= FEW:
            # Up to 2^9 products below 2^42 stay below 2^51.
            passes = 1 if left.shape[1] <= BLOCK_ROWS // 4 else 2
            return self.reduce(np.matmul(left.transpose(0, 2, 1), right), passes=passes)
        total = np.zeros((len(self.primes), left.shape[2], right.shape[2]))
        for prime, a, b, out in zip(self.primes, left, right, total, strict=True):
            for start in range(0, len(a), BLOCK_ROWS):
                product = a[start : start + BLOCK_ROWS].T @ b[start : start + BLOCK_ROWS]
                reduce(product, prime)
                out += product
            reduce(out, prime)
        return self.reduce(total)

    def _digits(self, residues: Residues) -> Iterator[Residues]:
        digits: list[Residues] = []
        for index, prime in enumerate(self.primes):
            digit = residues[index].copy()
            for earlier, known in zip(self.primes, digits, strict=False):
                digit -= known  # below 2^22, so that the product is far below 2^51
                digit *= inverse(earlier, prime)
                reduce(digit, prime)
            digits.append(digit)
            yield digit


def reduce(values: NDArray[np.float64], prime: int) -> None:
    """Centre in place. Canonical for magnitudes below 2^51, congruent and near-centred up to 2^53 - p.

    The quotient is a rounded product with 1/p; for odd p an integer is never nearer than 1/(2p) to a tie,
    while the product errs by at most |x|/p 2^-52, so below 2^51 the rounding is the right one. Beyond 2^53 - p
    the multiple of p that is subtracted might not be a float.
    """
    quotient = values * (1.0 / prime)
    np.rint(quotient, out=quotient)
    quotient *= prime
    values -= quotient


def centred(residue: int, prime: int) -> int:
    """The representative of a residue in (-p/2, p/2)."""
    residue %= prime
    return residue - prime if residue > prime // 2 else residue


@cache
def inverse(value: int, prime: int) -> int:
    """The centred inverse of a number modulo a prime."""
    return centred(pow(value, -1, prime), prime)


def chunks(row: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Cache-sized views of a contiguous array."""
    flat = row.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK]


def draw(prime: int, out: NDArray[np.float64], stream: Stream) -> None:
    """Fill a chunk with uniform residues: as many bits as the prime has, and again where they are too large."""
    bits = np.uint32((1 << prime.bit_length()) - 1)
    words = stream.uint32(out.size)
    words &= bits
    while out.size and words.max() >= prime:
        high = np.flatnonzero(words >= prime)
        words[high] = stream.uint32(high.size) & bits
    out[...] = words
    out -= prime // 2


def _wrap(weight: int) -> np.int64:
    return np.int64((weight + 2**63) % 2**64 - 2**63)
