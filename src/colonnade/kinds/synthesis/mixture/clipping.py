"""Clipping a row's whole contribution to a norm, on shares and in the clear (docs/theory/mixture-rounds.md).

A row adds r_k (1, v_1, v_2, ...) for every component k, where v_p are the vectors of the owners. Its squared norm is
the sum over k of r_k^2 (1 + |v_1|^2 + ...). Every owner deals its squared norms; the committee computes the joint norm
and multiplies responsibilities by min(1, C / norm). Where owners clip their own vectors, none of this is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.kinds.synthesis.mixture.responsibilities import Whole
from colonnade.mpc.fixed_point import functions
from colonnade.mpc.fixed_point.arithmetic import MAX_READ_BITS, FixedPointEngine, FixedPointShares
from colonnade.privacy.sensitivity.exact import root_up

Array = NDArray[np.float64]
NORM_BITS = 12
"""Fractional bits of the squared norms that owners deal."""
ROOT_BITS = 16
"""Fractional bits of a joint norm, of its inverse, and of C."""
_LARGEST_INVERSE = (3 << (ROOT_BITS + ROOT_BITS // 2)) + (1 << ROOT_BITS)
"""The bound under which the inverse root of the least positive number is computed, and room for its truncation."""
_NUMBERS = 24  # that are opened under masks for one row, at most, besides those for each component


@dataclass(frozen=True)
class Joint:
    """The public sizes: ``clip`` is C, ``squares`` are the largest squared norms that owners deal.

    ``bits``, ``components`` and ``ulps`` are those of the responsibilities.
    """

    clip: float
    squares: tuple[int, ...]
    components: int
    bits: int
    ulps: float

    @property
    def lift(self) -> int:
        """What is added to truncated numbers, so that they are never below what they stand for."""
        return math.ceil(self.ulps)

    @property
    def largest(self) -> int:
        """The largest factor 1 + |v_1|^2 + ... of a squared responsibility, with its fractional bits."""
        return (1 << NORM_BITS) + sum(self.squares)

    @property
    def whole_clip(self) -> int:
        """C as an integer, rounded down."""
        return math.floor(Fraction(self.clip) * (1 << ROOT_BITS))

    @property
    def most(self) -> int:
        """A bound on the integer of a squared joint norm."""
        return ((2 << self.bits) * self.largest >> (self.bits + NORM_BITS - ROOT_BITS)) + 2 * self.lift + 2

    @property
    def bound(self) -> Fraction:
        """No clipped row is longer than this (Lemma 5), in units of 2^-bits."""
        unit = Fraction(1, 1 << ROOT_BITS)
        ratio = 1 + unit + Fraction(self.ulps) * unit * root_up(Fraction(self.most, 1 << ROOT_BITS))
        rounding = Fraction(self.ulps) * root_up(Fraction(self.components * self.largest, 1 << NORM_BITS))
        return Fraction(self.whole_clip, 1 << ROOT_BITS) * ratio * (1 << self.bits) + rounding

    def check(self) -> None:
        """Refuse clips for which an inverse root could come out negative, or C times it be too long to compare."""
        largest_root = Fraction(self.ulps) ** 2 * Fraction(self.most, 1 << ROOT_BITS)
        if largest_root > ((1 << ROOT_BITS) - 1) ** 2:
            raise PrivacyError("so large clips of owners leave too few bits for a joint norm: lower them [PR119]")
        if self._compared_bits > MAX_READ_BITS:
            raise PrivacyError(
                f"a joint clip of {self.clip:g} has too many bits to be compared on shares: lower it [PR120]"
            )

    @property
    def _compared_bits(self) -> int:
        """How many bits C times an inverse root has, when it is compared with 1."""
        return (self.whole_clip * _LARGEST_INVERSE + (1 << 2 * ROOT_BITS)).bit_length() + 1

    @property
    def slack(self) -> Fraction:
        """How much truncations of clipped responsibilities add to the sum of their magnitudes, at most."""
        return Fraction(self.ulps) * Fraction(self.components, 1 << self.bits)

    @property
    def hidden_bits(self) -> tuple[tuple[int, int], ...]:
        """What is opened under masks for one row, at most: how many numbers, and how many bits each has."""
        magnitude = max(1, self.most.bit_length() - ROOT_BITS) + 1
        root = functions.bits_needed(ROOT_BITS, magnitude, self.ulps)
        summed = ((2 << self.bits) * self.largest).bit_length()
        factor = 2 * self.bits + 3, self.bits + 2 * ROOT_BITS + 3
        return (
            (self.components, factor[0]),
            (self.components, factor[1]),
            (_NUMBERS, max(root, summed, self._compared_bits) + 2),
        )


def square_norms(vectors: Whole, vector_bits: int, most: int) -> Whole:
    """Squared norms of integer vectors, (n, K) or (n,), rounded up and at most ``most``."""
    real = vectors.astype(np.float64) / 2.0**vector_bits
    exact = np.einsum("...q,...q->...", real, real) * (1 + 2.0**-40)
    return np.asarray(np.minimum(np.ceil(exact * 2.0**NORM_BITS), float(most)), dtype=np.int64)


def clipped_on_shares(
    engine: FixedPointEngine, weights: FixedPointShares, squares: Sequence[FixedPointShares], joint: Joint
) -> FixedPointShares:
    """Responsibilities (rows, components) times min(1, C / norm of the row)."""
    coarse = FixedPointEngine(engine.engine, ROOT_BITS)
    coarse.masks = engine.masks
    factor = squares[0]
    for more in squares[1:]:
        factor = engine.add(factor, more)
    factor = replace(engine.shift(factor, 1 << NORM_BITS), bound=joint.largest)
    near = replace(weights, bound=(9 << joint.bits) >> 3)
    square = engine.shift(engine.multiply(near, near, fraction=joint.bits), joint.lift)
    square = replace(square, bound=(2 << joint.bits) + joint.lift)
    total = replace(engine.total(engine.product(square, factor), 1), bound=(2 << joint.bits) * joint.largest)
    norm = coarse.shift(coarse.truncate(total.reshape(-1, 1), ROOT_BITS), joint.lift)
    inverse = functions.inverse_sqrt(coarse, replace(norm, bound=joint.most))
    ratio = coarse.scale(inverse, joint.whole_clip, fraction=ROOT_BITS)
    above = coarse.shift(ratio, -(1 << 2 * ROOT_BITS))
    less = coarse.multiply(coarse.negative(above), above, fraction=2 * ROOT_BITS)
    factor = replace(coarse.shift(less, 1 << 2 * ROOT_BITS), bound=1 << 2 * ROOT_BITS)
    found = engine.multiply(near, factor, fraction=joint.bits)
    engine.distance += coarse.distance
    return found


def clipped_in_the_clear(weights: Whole, squares: Sequence[Whole], joint: Joint) -> Whole:
    """The same with exact roots, and truncations to the nearest."""
    return np.rint(weights * np.minimum(1.0, joint.clip / np.sqrt(_norm(weights, squares, joint)))).astype(np.int64)


def _norm(weights: Whole, squares: Sequence[Whole], joint: Joint) -> Array:
    factor = (sum(squares) + (1 << NORM_BITS)) / 2.0**NORM_BITS
    exact = np.einsum("nk,nk->n", (weights / 2.0**joint.bits) ** 2, factor)[:, None]
    return np.asarray(np.maximum(exact, 2.0**-40))
