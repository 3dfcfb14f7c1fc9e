"""What is proven of an owner's rows, and the public sizes of the proof.

A group is a run of columns. Of every row it is proven that the squared norm of these columns is within a bound, or that
every number is one of two. How proofs work stands in :mod:`input_proofs`, why they hold in
docs/theory/active-security.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import pairwise, product
from math import ceil, isqrt, log, prod

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError
from colonnade.mpc.residues import PRIMES
from colonnade.mpc.verification.four_squares import LARGEST

PROJECTIONS = 43
"""How often a number that is too large has a chance of one half to stay unseen."""
CHECK_REPETITIONS = 2
"""Repetitions of checks that are random combinations: each is wrong with a chance of one in p."""
HIDDEN = 40
"""What masks let through of all honest rows together is a statistical distance of at most 2^-40."""
FALSE_ALARM = 64
"""An honest owner is refused with a chance of at most 2^-64 in a study."""
FEWEST_PRIMES = 3
SAMPLED = 8
"""With covert proofs, one row in so many is looked at."""
WINDOW_ROWS = 65_536
FOLDS = (32, 16)
"""Into how many parts rows are cut, the first and the second time."""
BIT_FOLD = 32
"""Into how many parts bits are cut."""


@dataclass(frozen=True)
class ColumnGroup:
    """A run of columns x, all of which are read as u = (x - offset) / scale.

    Without ``flags``, the squares of u add up to at most ``squared``. With ``flags``, every u is 0 or 1.
    """

    columns: int
    squared: int = 1
    flags: bool = False
    scale: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        if self.columns < 1 or not 0 <= self.squared < LARGEST or not 0 < abs(self.scale) < PRIMES[-1]:
            raise CapacityError("a bound that is to be proven is for at least one column, and below 2^52 [CA006]")

    @property
    def slack(self) -> int:
        """How many more columns are dealt: four squares that fill the norm up to the bound."""
        return 0 if self.flags else 4

    @property
    def cell(self) -> int:
        """The largest magnitude of a number."""
        return isqrt(self.squared)


def bounded_norm(columns: int, squared: int) -> ColumnGroup:
    """Columns whose squares add up to at most ``squared`` in every row."""
    return ColumnGroup(columns, squared)


def binary_columns(columns: int, low: int = 0, high: int = 1) -> ColumnGroup:
    """Columns in which every number is one of two: presence, labels."""
    return ColumnGroup(columns, flags=True, scale=high - low, offset=low)


@dataclass(frozen=True)
class RowIdentity:
    """Quadratic equations that hold in every row: the sum of quad u^2 + linear u over the columns is the target.

    ``quad`` and ``linear`` have a row for each equation.
    """

    quad: NDArray[np.float64]
    linear: NDArray[np.float64]
    targets: tuple[int, ...]

    @property
    def width(self) -> int:
        """How many columns there are."""
        return int(self.quad.shape[1])

    def most(self, equation: int) -> int:
        """The largest inner product of two honest rows, over the columns of this equation: of norms, or of flags."""
        return max(self.targets[equation], self.width)


BIT_IDENTITY = RowIdentity(np.ones((1, 1)), -np.ones((1, 1)), (0,))
"""Every number is its own square."""


@dataclass(frozen=True)
class InputRanges:
    """The sizes of the proofs of one owner: its groups, the most rows of a window, and the most windows of a study."""

    groups: tuple[ColumnGroup, ...]
    rows: int
    proofs: int = 64
    covert: bool = False
    projections: int = PROJECTIONS

    @classmethod
    def fitting(cls, groups: Sequence[ColumnGroup], rows: int, *, proofs: int = 0, covert: bool = False) -> InputRanges:
        """For as many rows in a window as do not take another prime; windows of fewer rows send more.

        ``proofs`` is the most windows of a study; without it, windows have at least 4,096 rows or there are at most 64.
        """
        proofs = proofs or max(64, -(-rows // 4096))
        sizes = [max(1, min(rows, WINDOW_ROWS >> less)) for less in range(4)]
        found = [cls(tuple(groups), size, proofs, covert) for size in sizes]
        return min(found, key=lambda ranges: (ranges.primes, -ranges.rows))

    @property
    def columns(self) -> int:
        """How many columns the owner deals as its rows."""
        return sum(group.columns for group in self.groups)

    @property
    def slack(self) -> int:
        """How many columns of squares it deals besides."""
        return sum(group.slack for group in self.groups)

    @property
    def width(self) -> int:
        """All columns."""
        return self.columns + self.slack

    @cached_property
    def spans(self) -> tuple[slice, ...]:
        """Where the columns of each group are."""
        ends = np.cumsum([0, *(group.columns for group in self.groups)]).tolist()
        return tuple(slice(*pair) for pair in pairwise(ends))

    @property
    def cell(self) -> int:
        """The largest magnitude of an honest number."""
        return max(group.cell for group in self.groups)

    @cached_property
    def reach(self) -> int:
        """No honest projection is larger, but with a chance of at most 2^-64 in all proofs of the study.

        A number that is 0 with chance 1/2 and 1 or -1 with 1/4 has E exp(s sigma) = cosh(s/2)^2 <= exp(s^2/4). So a
        projection of n numbers of at most c is above r with a chance of at most exp(-r^2 / (n c^2)), either way.
        """
        alarms = log(2) * (FALSE_ALARM + 1) + log(self.projections * self.width * self.proofs)
        return min(self.rows * self.cell, isqrt(self.rows * self.cell**2 * ceil(alarms)) + 1)

    @property
    def bits(self) -> int:
        """With how many bits a projection is dealt; numbers beyond 2^bits are seen."""
        return self.reach.bit_length() + 1

    @property
    def dealt_bits(self) -> int:
        """How many bits are dealt for a window."""
        return self.projections * self.bits * self.width

    @cached_property
    def mask_bits(self) -> int:
        """With how many bits sums of bits are hidden: a sum of n bits, each with sigma, is sqrt(n/2) on average."""
        average = isqrt(self.dealt_bits // 2) + 1
        return HIDDEN + (self.projections * self.proofs * average).bit_length()

    @property
    def window(self) -> tuple[int, int]:
        """From where to where hidden sums of bits lie."""
        return -self.dealt_bits, (1 << self.mask_bits) + self.dealt_bits

    @cached_property
    def primes(self) -> int:
        """With how many primes what holds modulo their product holds for whole numbers."""
        flags = sum(group.columns for group in self.groups if group.flags)
        widest = max([flags, *(group.columns + group.slack for group in self.groups)])
        low, high = self.window
        for count in range(FEWEST_PRIMES, len(PRIMES) + 1):
            room = prod(PRIMES[:count]) - max(group.squared for group in self.groups)
            if widest * 4**self.bits <= room and high - low <= smallest_idempotent(PRIMES[:count]):
                return count
        raise CapacityError("numbers are too large for a proof that they are within their bounds: lower gamma [CA007]")

    @property
    def required_bound(self) -> int:
        """A bound for :meth:`ResidueSystem.for_bound` that gives enough primes."""
        return prod(PRIMES[: self.primes - 1]) // 2 + 1

    @cached_property
    def identity(self) -> RowIdentity:
        """What holds in every row of all columns, those of squares last.

        For whole numbers u^2 - u is never negative, so all flags are right if the sum over all of them is zero.
        """
        rows: list[tuple[NDArray[np.float64], NDArray[np.float64], int]] = []
        flags, after = np.zeros(self.width), self.columns
        for group, span in zip(self.groups, self.spans, strict=True):
            here = np.zeros(self.width)
            here[span] = 1.0
            if group.flags:
                flags += here
                continue
            here[after : after + group.slack] = 1.0
            after += group.slack
            rows.append((here, np.zeros(self.width), group.squared))
        if flags.any():
            rows.append((flags, -flags, 0))
        return RowIdentity(
            np.array([row[0] for row in rows]), np.array([row[1] for row in rows]), tuple(r[2] for r in rows)
        )

    @cached_property
    def scales(self) -> tuple[int, ...]:
        """For each dealt column, the number by which u is multiplied."""
        return tuple(group.scale for group in self.groups for _ in range(group.columns))

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """For each dealt column, the number that is then added."""
        return tuple(group.offset for group in self.groups for _ in range(group.columns))

    @property
    def plain(self) -> bool:
        """Whether all columns are read as they are."""
        return set(self.scales) == {1} and set(self.offsets) == {0}

    @property
    def repetitions(self) -> int:
        """How often equations are folded: the fewest times that keep the chance of an error below 2^-43."""
        count = 1
        while self._folding_error**count > Fraction(1, 2**43):
            count += 1
        return count

    @property
    def _folding_error(self) -> Fraction:
        """The chance that one repetition does not see a wrong equation: the degrees of all that coins must not hit."""
        first, second = FOLDS
        return Fraction(3 + 2 * (first - 1) + 2 * (second - 1), PRIMES[-1] - 2 * max(*FOLDS, BIT_FOLD))

    @property
    def error(self) -> Fraction:
        """The largest chance that rows beyond their bounds pass, besides what the claims' own settlement lets pass.

        A number that is too large stays within all projections; a bit that is none does; bits do not add up to the
        projections; bits are not their own squares; rows do not fulfil their equations.
        """
        seen = 2 * Fraction(1, 2**self.projections) + Fraction(1, PRIMES[-1] ** CHECK_REPETITIONS)
        return seen + 2 * self._folding_error**self.repetitions


@cache
def smallest_idempotent(primes: tuple[int, ...]) -> int:
    """The smallest magnitude of a number that is 0 modulo some of the primes and 1 modulo the others."""
    modulus = prod(primes)
    units = [modulus // prime * pow(modulus // prime, -1, prime) for prime in primes]
    sums = (
        sum(unit for unit, here in zip(units, chosen, strict=True) if here) % modulus
        for chosen in _proper_subsets(primes)
    )
    return min(min(value, modulus - value) for value in sums)


def _proper_subsets(primes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every choice of some primes and not all."""
    return list(product((0, 1), repeat=len(primes)))[1:-1]
