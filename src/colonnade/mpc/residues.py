"""Exact integer arithmetic at BLAS speed: a residue number system of centred 22-bit primes.

A secret integer is stored as its residues modulo a few primes just below 2^22. Each residue is centred in (-p/2, p/2)
and is a float64. A matrix product modulo one prime is then an ordinary ``dgemm`` over at most 2048 rows (2048 (p/2)^2
< 2^53 - p) and one reduction, and it is exact. For larger integers there are more primes. All arrays of residues have
the primes as their first axis.

Rows that many products need stay in an accelerator's memory, or on the CPU as 32-bit integers
(:class:`ResidentRows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError, ShareError
from colonnade.mpc.accelerator import (
    Accelerator,
    Residues as Residues,
    abandon_device,
    current_device,
    is_worthwhile,
    offload_product,
)
from colonnade.randomness import Stream

Integers = NDArray[Any]
"""int64, or Python integers in an object array where int64 is too small."""

# The sixteen largest primes below 2^22, written as their distance to 2^22. They are so close to 2^22 that at most one
# of 20,000 uniform 22-bit numbers is too large to be a residue.
PRIMES = tuple(2**22 - d for d in (3, 17, 27, 33, 57, 87, 105, 113, 117, 123, 131, 137, 161, 167, 173, 197))
BLOCK_ROWS = 2048
CHUNK = 1 << 15
"""Streams are read this many residues at a time: those that are too large are drawn again after each chunk."""
LIMB = 22
AT_ONCE = 29
"""Numbers of at most this many bits, times a residue, are exact as floats."""
SPREAD = 1 << 14
"""Constants for arrays with at most this many numbers are stored at full size."""
FEW = 1 << 16
"""Arrays of at most this many residues are computed for all primes at once: the calls cost more than the numbers."""


@dataclass(frozen=True)
class ResidueSystem:
    """Integers modulo the product of these primes; results are read as signed integers."""

    primes: tuple[int, ...]

    @classmethod
    def for_bound(cls, bound: int) -> ResidueSystem:
        """The system with the fewest primes in which all integers from -bound to bound have different residues."""
        modulus = 1
        for count, prime in enumerate(PRIMES, start=1):
            modulus *= prime
            if modulus > 2 * bound:
                return cls(PRIMES[:count])
        raise CapacityError(
            f"the largest value needs {bound.bit_length() + 1} bits and the arithmetic has "
            f"{prod(PRIMES).bit_length() - 1}: lower gamma, the row limit or the clip [CA005]"
        )

    @cached_property
    def modulus(self) -> int:
        """The product of the primes."""
        return prod(self.primes)

    @property
    def bits(self) -> int:
        """How many bits a signed integer may have in this system."""
        return self.modulus.bit_length() - 1

    def to_residues(self, values: Integers) -> Residues:
        """The residues, read-only, of signed integers (int64, object, or float64 without fractions)."""
        if values.dtype == np.float64 and max(values.max(initial=0), -values.min(initial=0)) < self.primes[-1] // 2:
            return np.broadcast_to(values, (len(self.primes), *values.shape))
        whole = values.astype(np.int64) if values.dtype == np.float64 else values
        if whole.dtype == np.int64 and whole.size * len(self.primes) <= FEW:
            rests = whole.reshape(1, -1) % self.prime_column.astype(np.int64)
            return self.reduce(rests.astype(np.float64)).reshape(len(self.primes), *whole.shape)
        out = np.empty((len(self.primes), *values.shape))
        for prime, row in zip(self.primes, out, strict=True):
            row[...] = whole % prime
            reduce(row, prime)
        return out

    def constant(self, value: int, dimensions: int) -> Residues:
        """The residues of a public integer, read-only, to be broadcast to arrays with ``dimensions`` axes."""
        return _constant(self.primes, value, dimensions)

    def constant_array(self, value: int, shape: tuple[int, ...]) -> Residues:
        """The residues of a public integer, read-only, to be broadcast to ``shape``, in which the primes are first."""
        if prod(shape) > SPREAD:
            return _constant(self.primes, value, len(shape))
        return _constant_array(self.primes, value, shape)

    def unreduced(self, values: NDArray[np.uint64], bits: int) -> NDArray[np.float64]:
        """Numbers of ``bits`` bits modulo every prime; not reduced, but below 2^50.

        Long numbers are cut into limbs of 22 bits, and a small matrix product puts these together.
        """
        whole = values.view(np.int64)
        if bits <= AT_ONCE:
            return _powers(self.primes, 1) * whole.astype(np.float64)
        limbs = [(whole >> shift if shift else whole) & (2**LIMB - 1) for shift in range(0, bits, LIMB)]
        return self.unreduced_from_limbs(np.array(limbs, dtype=np.float64))

    def unreduced_from_limbs(self, limbs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Numbers given as limbs of 22 bits, the lowest first, modulo every prime; not reduced."""
        return _powers(self.primes, len(limbs)) @ limbs

    def to_integers(self, residues: Residues, bound: int, *, cut: bool = False) -> Integers:
        """The signed integers from -bound to bound that have these residues, found digit by digit (Garner).

        The digits are centred, so the integer is signed. int64 arithmetic is modulo 2^64, so it is exact if the result
        fits. An honest computation never gives a value beyond the bound, so such a value is refused; this catches wrong
        shares if the system has more bits than needed. With ``cut`` it becomes the bound instead, and nothing is said.
        """
        narrow = bound < 2**63
        value: Integers = np.zeros(residues.shape[1:], dtype=np.int64 if narrow else object)
        size = np.zeros(residues.shape[1:])
        weight = 1
        for index, digit in enumerate(self._digits(residues)):
            step = np.int64((weight + 2**63) % 2**64 - 2**63) if narrow else weight
            whole = digit.astype(np.int64)
            value = value + (whole if narrow else whole.astype(object)) * step
            size += digit * float(weight)
            weight *= self.primes[index]
        beyond = np.abs(size) > bound * (1 + 2.0**-40)
        if cut:
            return np.where(beyond, np.sign(size).astype(np.int64).astype(value.dtype) * bound, value)
        if beyond.any():
            raise ShareError(
                "an opened value is larger than any honest one could be: somebody computed something else [SH005]"
            )
        return value

    def uniform(self, shape: tuple[int, ...], stream: Stream) -> Residues:
        """Uniform residues from a stream; whoever has the same stream gets the same residues."""
        if prod(shape) * len(self.primes) <= FEW:
            return self._few_uniform(shape, stream)
        out = np.empty((len(self.primes), *shape))
        for prime, row in zip(self.primes, out, strict=True):
            for part in chunks(row):
                fill_uniform(prime, part, stream)
        return out

    def _few_uniform(self, shape: tuple[int, ...], stream: Stream) -> Residues:
        """Uniform residues for all primes at once, drawn with as many bits as the largest prime has."""
        words = stream.uint32((len(self.primes), prod(shape)))
        bits = np.uint32((1 << max(self.primes).bit_length()) - 1)
        words &= bits
        # Mostly the largest word is below every prime, which is found sooner than that each is below its own.
        while words.size and words.max() > 2 * self.smallest_half and (high := words >= self.prime_column).any():
            words[high] = stream.uint32(int(high.sum())) & bits
        return (words.view(np.int32) - self.half_primes).astype(np.float64).reshape(len(self.primes), *shape)

    @cached_property
    def prime_column(self) -> NDArray[np.uint32]:
        """The primes as a column."""
        return np.array(self.primes, dtype=np.uint32)[:, None]

    @cached_property
    def smallest_half(self) -> int:
        """The largest magnitude that a residue may have modulo every prime."""
        return min(self.primes) // 2

    @cached_property
    def half_primes(self) -> NDArray[np.int32]:
        """Half of each prime, rounded down, as a column."""
        return np.array([prime // 2 for prime in self.primes], dtype=np.int32)[:, None]

    def reduce(self, values: Residues, *, passes: int = 1) -> Residues:
        """Reduce numbers of magnitude below 2^51 in place, or with two passes up to 2^53 - p; returns the array."""
        if values.size <= FEW:
            primes, inverses = _moduli(self.primes, broadcast_shape(values.shape))
            for _ in range(passes):
                quotient = values * inverses
                np.rint(quotient, out=quotient)
                quotient *= primes
                values -= quotient
            return values
        for prime, row in zip(self.primes, values, strict=True):
            for _ in range(passes):
                reduce(row, prime)
        return values

    def low_word(self, digits: Residues) -> NDArray[np.uint64]:
        """The lowest 64 bits of integers from 0 to a quarter of the modulus, given by digits; others are refused.

        The digits of c are y_i = c (M / p_i)^-1 mod p_i, for the modulus M. Then c is the sum of all y_i M / p_i, minus
        q M for an integer q. The sum divided by M is q + c / M. Because c / M is at most a quarter, floats are precise
        enough to find q. The rest is exact in integer arithmetic modulo 2^64.
        """
        flat = digits.reshape(len(self.primes), -1)
        reciprocals, cofactors, less_modulus = self._low_word_factors
        multiples = _round_multiples(reciprocals @ flat)
        low: NDArray[np.uint64] = cofactors @ flat.astype(np.int64).view(np.uint64)
        low += multiples.astype(np.int64).view(np.uint64) * less_modulus
        return low.reshape(digits.shape[1:])

    def low_bits(self, digits: Residues, bits: int) -> NDArray[np.float64]:
        """The lowest bits, at most 29, of the integers of :meth:`low_word`.

        Cofactors are taken modulo 2^bits and centred. A digit is below 2^21, so a sum of up to 16 products is an
        integer below 2^53, and a float is exact.
        """
        flat = digits.reshape(len(self.primes), -1)
        rows, modulus = _low_factors(self.primes, bits)
        low: NDArray[np.float64]
        parts, low = rows @ flat
        parts = _round_multiples(parts)
        parts *= modulus
        low -= parts
        np.multiply(low, 2.0**-bits, out=parts)
        np.floor(parts, out=parts)
        parts *= 2.0**bits
        low -= parts
        return low.reshape(digits.shape[1:])

    @cached_property
    def to_digits(self) -> list[int]:
        """Factors that turn residues into the digits that :meth:`low_word` reads."""
        return [inverse(self.modulus // prime % prime, prime) for prime in self.primes]

    @cached_property
    def _low_word_factors(self) -> tuple[NDArray[np.float64], NDArray[np.uint64], np.uint64]:
        """For each prime, its reciprocal and its cofactor modulo 2^64; and the negative modulus."""
        cofactors = np.array([self.modulus // prime % 2**64 for prime in self.primes], dtype=np.uint64)
        return 1.0 / np.array(self.primes, dtype=np.float64), cofactors, np.uint64(-self.modulus % 2**64)

    def inner(self, left: Residues, right: Residues) -> Residues:
        """Left' right modulo each prime, exactly: arrays (k, rows, a) and (k, rows, b) give an array (k, a, b).

        An accelerator computes large products, if there is one; the result has the same bits.
        """
        if left.shape[1] <= BLOCK_ROWS and left.size <= FEW:
            # A sum of up to 2^9 products below 2^42 is below 2^51.
            passes = 1 if left.shape[1] <= BLOCK_ROWS // 4 else 2
            return self.reduce(np.matmul(left.transpose(0, 2, 1), right), passes=passes)
        elsewhere = offload_product(left, right, self.primes)
        return self._inner_products([(left, right)])[0] if elsewhere is None else elsewhere

    def inner_products(self, pairs: Sequence[tuple[Residues, Residues]]) -> list[Residues]:
        """The same for several pairs of matrices, all with the same rows: each block of rows is read once for all."""
        if len(pairs) < 2 or any(a.size <= FEW or is_worthwhile(a.shape, b.shape) for a, b in pairs):
            return [self.inner(a, b) for a, b in pairs]
        return self._inner_products(pairs)

    def _inner_products(self, pairs: Sequence[tuple[Residues, Residues]]) -> list[Residues]:
        shapes = [(a.shape[2], b.shape[2]) for a, b in pairs]
        ends = np.cumsum([prod(shape) for shape in shapes]).tolist()
        total, product = np.zeros((len(self.primes), ends[-1])), np.empty(ends[-1])
        cells = [slice(end - prod(shape), end) for end, shape in zip(ends, shapes, strict=True)]
        parts = [product[here].reshape(shape) for here, shape in zip(cells, shapes, strict=True)]
        for index, (prime, out) in enumerate(zip(self.primes, total, strict=True)):
            for start in range(0, pairs[0][0].shape[1], BLOCK_ROWS):
                rows = slice(start, start + BLOCK_ROWS)
                for (a, b), part in zip(pairs, parts, strict=True):
                    np.matmul(a[index, rows].T, b[index, rows], out=part)
                reduce(product, prime)
                out += product
            reduce(out, prime)
        self.reduce(total)
        return [total[:, here].reshape(len(self.primes), *shape) for here, shape in zip(cells, shapes, strict=True)]

    def _digits(self, residues: Residues) -> Iterator[Residues]:
        digits: list[Residues] = []
        for index, prime in enumerate(self.primes):
            digit = residues[index].copy()
            for earlier, known in zip(self.primes, digits, strict=False):
                digit -= known  # the difference is below 2^22, so the product is far below 2^51
                digit *= inverse(earlier, prime)
                reduce(digit, prime)
            digits.append(digit)
            yield digit


def reduce(values: NDArray[np.float64], prime: int, scratch: NDArray[np.float64] | None = None) -> None:
    """Replace numbers by their centred residues, in place; between 2^51 and 2^53 - p only nearly centred ones.

    The quotient is x times 1/p, rounded to an integer. For odd p, x/p is at least 1/(2p) away from the middle between
    two integers, and the float product has an error of at most |x|/p 2^-52. So below 2^51 it is rounded correctly.
    Beyond 2^53 - p the multiple of p to be subtracted may not be exact as a float.
    """
    quotient = np.multiply(values, 1.0 / prime, out=np.empty_like(values) if scratch is None else scratch)
    np.rint(quotient, out=quotient)
    quotient *= prime
    values -= quotient


def centred(residue: int, prime: int) -> int:
    """The integer in (-p/2, p/2) that has the same residue modulo p."""
    residue %= prime
    return residue - prime if residue > prime // 2 else residue


@cache
def inverse(value: int, prime: int) -> int:
    """The centred inverse of a number modulo a prime."""
    return centred(pow(value, -1, prime), prime)


def broadcast_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of constants for arrays of this shape: the same for small arrays, because broadcasting is slower."""
    return shape if prod(shape) <= SPREAD else (shape[0], *[1] * (len(shape) - 1))


@lru_cache(maxsize=256)
def _constant_array(primes: tuple[int, ...], value: int, shape: tuple[int, ...]) -> Residues:
    return constant_rows([centred(value, prime) for prime in primes], shape)


@lru_cache(maxsize=4096)
def _constant(primes: tuple[int, ...], value: int, dimensions: int) -> Residues:
    return _constant_array(primes, value, (len(primes), *[1] * (dimensions - 1)))


@lru_cache(maxsize=256)
def digit_factors(primes: tuple[int, ...], shape: tuple[int, ...]) -> Residues:
    """Factors that turn digits of this shape, as :meth:`ResidueSystem.low_word` reads them, into residues."""
    return constant_rows([centred(prod(primes) // p, p) for p in primes], broadcast_shape(shape))


@lru_cache(maxsize=256)
def _moduli(primes: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Residues, Residues]:
    return constant_rows(primes, shape), constant_rows([1.0 / prime for prime in primes], shape)


@lru_cache(maxsize=1024)
def _powers(primes: tuple[int, ...], count: int) -> Residues:
    """For each prime, the powers of 2^22."""
    rows = [[centred(pow(2, LIMB * index, prime), prime) for index in range(count)] for prime in primes]
    return np.array(rows, dtype=np.float64)


def _round_multiples(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The integer in each q + c / M, for c / M from 0 to a quarter; changes the given numbers."""
    parts -= 0.125
    multiples = np.rint(parts)
    parts -= multiples
    if parts.size and max(float(parts.max()), -float(parts.min())) > 0.125 + 2.0**-40:
        raise ShareError(
            "an opened value is larger than any honest one could be: somebody computed something else [SH006]"
        )
    return multiples


@lru_cache(maxsize=256)
def _low_factors(primes: tuple[int, ...], bits: int) -> tuple[NDArray[np.float64], float]:
    """For each prime, its reciprocal and its cofactor modulo 2^bits; and the modulus modulo 2^bits, all centred."""
    modulus, top = prod(primes), 1 << bits
    cofactors = [(modulus // prime + top // 2) % top - top // 2 for prime in primes]
    return np.array([[1.0 / prime for prime in primes], cofactors]), float((modulus + top // 2) % top - top // 2)


def constant_rows(values: Sequence[float], shape: tuple[int, ...]) -> Residues:
    """A read-only array of this shape that holds one value for each prime."""
    out = np.empty(shape)
    out[...] = np.array(values, dtype=np.float64).reshape(-1, *[1] * (len(shape) - 1))
    out.flags.writeable = False
    return out


def chunks(row: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Views of a contiguous array, each small enough for the processor's cache."""
    flat = row.reshape(-1)
    for start in range(0, flat.size, CHUNK):
        yield flat[start : start + CHUNK]


class ScratchRows:
    """A few chunks of memory that are used again and again: new memory costs more than the arithmetic in it."""

    def __init__(self, count: int) -> None:
        self._rows = np.empty((count, CHUNK))

    def of(self, size: int) -> list[NDArray[np.float64]]:
        """The first ``size`` numbers of each chunk."""
        return [row[:size] for row in self._rows]


def fill_uniform(prime: int, out: NDArray[np.float64], stream: Stream) -> None:
    """Fill a chunk with uniform residues."""
    words = uniform_words(prime, out.size, stream)
    words_to_residues(words, prime, out, words)


def uniform_words(prime: int, size: int, stream: Stream) -> NDArray[np.uint32]:
    """The words of a chunk of uniform residues: numbers with as many bits as the prime, drawn again if too large."""
    bits = np.uint32((1 << prime.bit_length()) - 1)
    words = stream.uint32(size)
    words &= bits
    while size and words.max() >= prime:
        high = np.flatnonzero(words >= prime)
        words[high] = stream.uint32(high.size) & bits
    return words


def words_to_residues(
    words: NDArray[np.uint32], prime: int, out: NDArray[np.float64], spare: NDArray[np.uint32]
) -> None:
    """The residues of words, which are larger than them by half of the prime; ``spare`` is overwritten."""
    np.subtract(words, np.uint32(prime // 2), out=spare)
    out[...] = spare.view(np.int32)


class ResidentRows:
    """Blocks of rows Z, each (primes, rows, columns), for products Z'(Z Q); computed in parts of ``step`` rows."""

    def __init__(self, system: ResidueSystem, blocks: Sequence[NDArray[np.int32]], step: int) -> None:
        self._system, self._blocks, self._step = system, blocks, step
        self._placed: list[Any] = []
        self._refused = False

    @property
    def count(self) -> int:
        """How many rows there are."""
        return sum(block.shape[1] for block in self._blocks)

    def parts(self) -> Iterator[Residues]:
        """The rows as floats, at most ``step`` at a time."""
        for block in self._blocks:
            for start in range(0, block.shape[1], self._step):
                yield block[:, start : start + self._step].astype(np.float64)

    def products(self, public: Residues) -> Residues:
        """Z'(Z Q) modulo each prime, exactly, for a public array Q (primes, columns, directions)."""
        device = None if self._refused else current_device()  # the search may end between two products
        if device:
            try:
                return self._system.reduce(self._products_on_device(device, public))
            except RuntimeError as error:
                abandon_device(device, error)
                self._refused, self._placed = True, []
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(len(public)) as workers:
            return np.stack(list(workers.map(self._product_on_cpu, range(len(public)), public)))

    def _product_on_cpu(self, index: int, public: Residues) -> Residues:
        """The product modulo one prime, on the CPU; each prime has its own thread."""
        system, total = ResidueSystem((self._system.primes[index],)), np.zeros((1, *public.shape[::-1]))
        for block in self._blocks:
            for start in range(0, block.shape[1], self._step):
                rows = block[index : index + 1, start : start + self._step].astype(np.float64)
                scores = system.inner(rows.transpose(0, 2, 1), public[None])
                total += system.inner(scores, rows)  # the long axis is last, because BLAS is faster then
        product: Residues = system.reduce(total)[0].T
        return product

    def _products_on_device(self, device: Accelerator, public: Residues) -> Residues:
        if not self._placed:
            self._placed = [device.place(part) for part in self.parts()]
        primes, total = self._system.primes, np.zeros(public.shape)
        there = device.place(public)
        for rows in self._placed:
            total += device.fetch(device.inner(rows, device.matmul(rows, there, primes), primes))
        return total
