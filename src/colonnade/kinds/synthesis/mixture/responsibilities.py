"""Responsibilities of mixture components, on shares and in the clear (docs/theory/mixture-rounds.md).

For every row, owner p holds integers E^p_k from 0 to 2^f, about 2^f times the density of component k over the largest
one; the first owner's contain the weights of the components. With S the sum over k of the product over p:

    e_k = E^1_k E^2_k ... / 2^f ...        a product and a truncation for each further owner
    2^s with S 2^s in [2^(f-1), 2^f)       the secret bit length of S = sum of e_k
    B = S 2^s / 2^f, q = (45 - 30 B) / 16  so that c = 1 - q B is at most 1/16
    y = q (1 + c) (1 + c^2)                so that B y = 1 - c^4
    r_k = e_k 2^s / 2^f y, which add up to 1 - c^4

So no sum of responsibilities is above 1 by more than the errors of truncations, whatever the owners dealt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from colonnade.mpc.fixed_point import functions
from colonnade.mpc.fixed_point.arithmetic import FixedPointEngine, FixedPointShares

Whole = NDArray[np.int64]
_SIXTEENTH = 4  # q and c have this many fractional bits more than B


@dataclass(frozen=True)
class Precision:
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
        """What is added to every truncated product, so that it is positive."""
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


def on_shares(engine: FixedPointEngine, dealt: Sequence[FixedPointShares], precision: Precision) -> FixedPointShares:
    """Responsibilities (rows, components) with ``bits`` fractional bits, from what the owners dealt of these rows.

    ceil(log2 f) + 7 rounds and one for each owner but the first.
    """
    f, joint = precision.fraction, dealt[0]
    for more in dealt[1:]:
        joint = engine.shift(engine.multiply(joint, more, fraction=f, bound=1 << 2 * f), precision.lift)
        joint = replace(joint, bound=(1 << f) - 1)
    total = replace(engine.total(joint, 1), bound=(1 << f) - 1).reshape(-1, 1)
    power = functions.normalising_powers(engine, total)
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


def in_the_clear(dealt: Sequence[Whole], precision: Precision) -> Whole:
    """The same with every truncation rounded to the nearest; what the committee finds differs by :func:`error`."""
    f, joint = precision.fraction, dealt[0]
    for more in dealt[1:]:
        joint = _nearest(joint * more, f) + precision.lift
    total = joint.sum(axis=1, keepdims=True)
    near = joint << (f - _bit_length(total))
    whole = near.sum(axis=1, keepdims=True)
    square = _nearest(whole * whole, f)
    rest = (1 << (f + _SIXTEENTH)) - 45 * whole + 30 * square
    rest_square = _nearest(rest * rest, f + 2 * _SIXTEENTH)
    inverse = _nearest(((45 << f) - 30 * whole) * ((1 << (f + _SIXTEENTH)) + rest), f + 2 * _SIXTEENTH)
    inverse = _nearest(inverse * ((1 << f) + rest_square), f)
    return _nearest(near * inverse, 2 * f - precision.bits)


def error(dealt: Sequence[Whole], precision: Precision) -> NDArray[np.float64]:
    """By how many units in the last place each responsibility may differ from :func:`in_the_clear` (Lemma 4)."""
    f, joint = precision.fraction, dealt[0]
    for more in dealt[1:]:
        joint = _nearest(joint * more, f) + precision.lift
    apart = (precision.owners - 1) * (precision.ulps + 0.5)
    total = joint.sum(axis=1, keepdims=True)
    least = np.maximum(total - precision.components * apart, 1.0)
    quotient = apart * (1 + precision.components * joint / total) / least
    rounding = 2 * precision.ulps * (7 / 2**f + 1 / 2**precision.bits)
    return np.asarray((quotient + 1.05 * 2.0**-16 + rounding) * 2**precision.bits)


def _nearest(values: Whole, cut: int) -> Whole:
    return (values + (1 << (cut - 1))) >> cut


def _bit_length(values: Whole) -> Whole:
    """The bit length of integers from 1 to 2^53."""
    return np.frexp(values.astype(np.float64))[1].astype(np.int64)
