"""Responsibilities of mixture components, on shares and in the clear (docs/theory/mixture-rounds.md).

For every row, owner p holds integers E^p_k from 0 to 2^f, about 2^f times the density of component k over the largest
one; the first owner's contain the weights of the components. With S the sum over k of the product over p:

    e_k = E^1_k E^2_k ... / 2^f ...        a product and a truncation for each further owner
    2^s with S 2^s in [2^(f-1), 2^f)       the secret bit length of S = sum of e_k
    B = S 2^s / 2^f, q = (45 - 30 B) / 16  so that c = 1 - q B is at most 1/16
    y = q (1 + c) (1 + c^2)                so that B y = 1 - c^4
    r_k = e_k 2^s / 2^f y, which add up to 1 - c^4

So no sum of responsibilities is above 1 by more than the errors of truncations, whatever the owners dealt.

A row adds r_k (1, v_1, v_2, ...) for every component k, where v_p are the vectors of the owners. Its squared norm is
the sum over k of r_k^2 (1 + |v_1|^2 + ...). Where all that a row adds is clipped, every owner deals its squared norms,
and the committee computes the joint norm and multiplies responsibilities by min(1, C / norm). Where owners clip their
own vectors, none of this is needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.mpc.fixed_point import arithmetic
from colonnade.mpc.fixed_point.arithmetic import MAX_READ_BITS, FixedPointEngine, FixedPointShares
from colonnade.privacy.sensitivity import root_up

Whole = NDArray[np.int64]
_SIXTEENTH = 4  # q and c have this many fractional bits more than B


@dataclass(frozen=True)
class ResponsibilityPrecision:
    """The public sizes of the computation: ``fraction`` bits of densities, ``bits`` of responsibilities.

    ``ulps`` is the error of a truncation by the committee, in units of the last place.
    """

    owners: int
    components: int
    fraction: int
    bits: int
    ulps: float

    @property
    def lift(self) -> int:
        """What is added to what was truncated, so that it is never below what it stands for."""
        return math.ceil(self.ulps)

    @property
    def whole(self) -> int:
        """The most that the first owner's numbers of one row add up to, so that S stays below 2^f."""
        return (1 << self.fraction) - 1 - 2 * (self.owners - 1) * self.components * self.lift

    @property
    def slack(self) -> Fraction:
        """By how much the absolute responsibilities of a row add up to more than 1 at most (Lemma 3)."""
        last = Fraction(self.ulps)
        return last * (Fraction(7, 1 << self.fraction) + Fraction(self.components, 1 << self.bits))

    @property
    def hidden_bits(self) -> tuple[tuple[int, int], ...]:
        """What is opened under masks for one row: how many numbers, and how many bits each has."""
        k, double = self.components, 2 * self.fraction
        products = ((k, double + 1),) * (self.owners - 1)
        normalised = ((1, self.fraction), (1, double + 1), (1, double + 10), (1, double + 2), (1, double + 2))
        return (*products, *normalised, (k, double + 2))


def weigh_on_shares(
    engine: FixedPointEngine, dealt: Sequence[FixedPointShares], precision: ResponsibilityPrecision
) -> FixedPointShares:
    """Responsibilities (rows, components) with ``bits`` fractional bits, from what the owners dealt of these rows.

    ceil(log2 f) + 7 rounds and one for each owner but the first.
    """
    f, joint = precision.fraction, dealt[0]
    for more in dealt[1:]:
        joint = engine.shift(engine.multiply(joint, more, fraction=f, bound=1 << 2 * f), precision.lift)
        joint = replace(joint, bound=(1 << f) - 1)
    total = replace(engine.total(joint, 1), bound=(1 << f) - 1).reshape(-1, 1)
    power = arithmetic.normalising_powers(engine, total)
    near = replace(engine.multiply(joint, power, fraction=f), bound=(1 << f) - 1)
    whole = replace(engine.total(near, 1), bound=(1 << f) - 1).reshape(-1, 1)
    line = engine.shift(engine.scale(whole, -30, fraction=_SIXTEENTH), 45 << f)
    line = replace(line, bound=30 << f)
    square = engine.multiply(whole, whole, fraction=f, bound=1 << 2 * f)
    rest = engine.subtract(engine.scale(square, 30, fraction=_SIXTEENTH), engine.scale(whole, 45, fraction=_SIXTEENTH))
    rest = replace(engine.shift(rest, 1 << (f + _SIXTEENTH)), bound=3 << (f - 1))
    more = replace(engine.shift(rest, 1 << (f + _SIXTEENTH)), bound=18 << f)
    rest_square, inverse = engine.products([(rest, rest), (line, more)], fraction=f, bounds=[3 << 2 * f, 540 << 2 * f])
    last = engine.shift(rest_square, 1 << f)
    inverse = engine.multiply(inverse, last, fraction=f, bound=3 << 2 * f)
    return engine.multiply(near, inverse, fraction=precision.bits, bound=2 << 2 * f)


def weigh_in_clear(dealt: Sequence[Whole], precision: ResponsibilityPrecision) -> Whole:
    """The same with every truncation rounded to the nearest (Lemma 4 bounds what the committee finds otherwise)."""
    f, joint = precision.fraction, dealt[0]
    for more in dealt[1:]:
        joint = _shift_to_nearest(joint * more, f) + precision.lift
    total = joint.sum(axis=1, keepdims=True)
    near = joint << (f - _bit_length(total))
    whole = near.sum(axis=1, keepdims=True)
    square = _shift_to_nearest(whole * whole, f)
    rest = (1 << (f + _SIXTEENTH)) - 45 * whole + 30 * square
    rest_square = _shift_to_nearest(rest * rest, f + 2 * _SIXTEENTH)
    inverse = _shift_to_nearest(((45 << f) - 30 * whole) * ((1 << (f + _SIXTEENTH)) + rest), f + 2 * _SIXTEENTH)
    inverse = _shift_to_nearest(inverse * ((1 << f) + rest_square), f)
    return _shift_to_nearest(near * inverse, 2 * f - precision.bits)


def _shift_to_nearest(values: Whole, cut: int) -> Whole:
    return (values + (1 << (cut - 1))) >> cut


def _bit_length(values: Whole) -> Whole:
    """The bit length of integers from 1 to 2^53."""
    return np.frexp(values.astype(np.float64))[1].astype(np.int64)


Array = NDArray[np.float64]
NORM_BITS = 12
"""Fractional bits of the squared norms that owners deal."""
ROOT_BITS = 16
"""Fractional bits of a joint norm, of its inverse, and of C."""
_LARGEST_INVERSE = (3 << (ROOT_BITS + ROOT_BITS // 2)) + (1 << ROOT_BITS)
"""The bound under which the inverse root of the least positive number is computed, and room for its truncation."""
_NUMBERS = 24  # that are opened under masks for one row, at most, besides those for each component


@dataclass(frozen=True)
class JointClip:
    """The public sizes: ``clip`` is C, ``squares`` are the largest squared norms that owners deal.

    ``precision`` is that of the responsibilities.
    """

    clip: float
    squares: tuple[int, ...]
    precision: ResponsibilityPrecision

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
        return (
            ((2 << self.precision.bits) * self.largest >> (self.precision.bits + NORM_BITS - ROOT_BITS))
            + 2 * self.precision.lift
            + 2
        )

    @property
    def bound(self) -> Fraction:
        """No clipped row is longer than this (Lemma 5), in units of 2^-bits."""
        unit = Fraction(1, 1 << ROOT_BITS)
        ratio = 1 + unit + Fraction(self.precision.ulps) * unit * root_up(Fraction(self.most, 1 << ROOT_BITS))
        rounding = Fraction(self.precision.ulps) * root_up(
            Fraction(self.precision.components * self.largest, 1 << NORM_BITS)
        )
        return Fraction(self.whole_clip, 1 << ROOT_BITS) * ratio * (1 << self.precision.bits) + rounding

    def check(self) -> None:
        """Refuse clips for which an inverse root could come out negative, or C times it be too long to compare."""
        largest_root = Fraction(self.precision.ulps) ** 2 * Fraction(self.most, 1 << ROOT_BITS)
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
        return Fraction(self.precision.ulps) * Fraction(self.precision.components, 1 << self.precision.bits)

    @property
    def hidden_bits(self) -> tuple[tuple[int, int], ...]:
        """What is opened under masks for one row, at most: how many numbers, and how many bits each has."""
        magnitude = max(1, self.most.bit_length() - ROOT_BITS) + 1
        root = arithmetic.bits_needed(ROOT_BITS, magnitude, self.precision.ulps)
        summed = ((2 << self.precision.bits) * self.largest).bit_length()
        factor = 2 * self.precision.bits + 3, self.precision.bits + 2 * ROOT_BITS + 3
        return (
            (self.precision.components, factor[0]),
            (self.precision.components, factor[1]),
            (_NUMBERS, max(root, summed, self._compared_bits) + 2),
        )


def square_norms(vectors: Whole, vector_bits: int, most: int) -> Whole:
    """Squared norms of integer vectors, (n, K) or (n,), rounded up and at most ``most``."""
    real = vectors.astype(np.float64) / 2.0**vector_bits
    exact = np.einsum("...q,...q->...", real, real) * (1 + 2.0**-40)
    return np.asarray(np.minimum(np.ceil(exact * 2.0**NORM_BITS), float(most)), dtype=np.int64)


def clip_on_shares(
    engine: FixedPointEngine, weights: FixedPointShares, squares: Sequence[FixedPointShares], joint: JointClip
) -> FixedPointShares:
    """Responsibilities (rows, components) times min(1, C / norm of the row)."""
    coarse = FixedPointEngine(engine.engine, ROOT_BITS)
    coarse.masks = engine.masks
    factor = squares[0]
    for more in squares[1:]:
        factor = engine.add(factor, more)
    factor = replace(engine.shift(factor, 1 << NORM_BITS), bound=joint.largest)
    near = replace(weights, bound=(9 << joint.precision.bits) >> 3)
    square = engine.shift(engine.multiply(near, near, fraction=joint.precision.bits), joint.precision.lift)
    square = replace(square, bound=(2 << joint.precision.bits) + joint.precision.lift)
    total = replace(engine.total(engine.product(square, factor), 1), bound=(2 << joint.precision.bits) * joint.largest)
    norm = coarse.shift(coarse.truncate(total.reshape(-1, 1), ROOT_BITS), joint.precision.lift)
    inverse = arithmetic.inverse_sqrt(coarse, replace(norm, bound=joint.most))
    ratio = coarse.scale(inverse, joint.whole_clip, fraction=ROOT_BITS)
    above = coarse.shift(ratio, -(1 << 2 * ROOT_BITS))
    less = coarse.multiply(coarse.negative(above), above, fraction=2 * ROOT_BITS)
    factor = replace(coarse.shift(less, 1 << 2 * ROOT_BITS), bound=1 << 2 * ROOT_BITS)
    found = engine.multiply(near, factor, fraction=joint.precision.bits)
    engine.distance += coarse.distance
    return found


def clip_in_clear(weights: Whole, squares: Sequence[Whole], joint: JointClip) -> Whole:
    """The same with exact roots, and truncations to the nearest."""
    return np.rint(weights * np.minimum(1.0, joint.clip / np.sqrt(_joint_norm(weights, squares, joint)))).astype(
        np.int64
    )


def _joint_norm(weights: Whole, squares: Sequence[Whole], joint: JointClip) -> Array:
    factor = (sum(squares) + (1 << NORM_BITS)) / 2.0**NORM_BITS
    exact = np.einsum("nk,nk->n", (weights / 2.0**joint.precision.bits) ** 2, factor)[:, None]
    return np.asarray(np.maximum(exact, 2.0**-40))
