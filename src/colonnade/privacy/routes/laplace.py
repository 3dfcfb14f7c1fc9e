"""What is left of discrete Laplace noise when an observer knows part of its shares (docs/theory/laplace-shares.md)."""

from __future__ import annotations

import math
from functools import lru_cache

from flint import arb, ctx

from colonnade.errors import PrivacyError

_PRECISIONS = (128, 512, 2048, 8192)


def generalised_laplace_epsilon(weight: float, scale: float, shift: int) -> float:
    """Epsilon of one coordinate that moves by ``shift`` under shares of total ``weight``; rounded up.

    It is exact for that one coordinate, and says nothing about several: many small shifts leak more than one
    large one. From weight 1 on it is ``shift / scale``.
    """
    _check(weight, scale, shift)
    if shift == 0:
        return 0.0
    if weight == 0:
        return math.inf
    if weight >= 1:
        return _up(arb(shift) / arb(scale))
    return _log_mass_ratio(weight, scale, shift)


@lru_cache(maxsize=256)
def _log_mass_ratio(weight: float, scale: float, shift: int) -> float:
    """Logarithm of mass(0) / mass(shift) of the difference of two NB(weight, e^(-1/scale)) counts; rounded up."""
    for precision in _PRECISIONS:
        # Every enclosure is right at any precision; more bits only make it narrow.
        with ctx.workprec(precision):
            found = _enclosed(arb(float(weight)), arb(float(scale)), shift)
        if found.is_finite() and found.rel_accuracy_bits() >= 60:
            return _up(found)
    with ctx.workprec(_PRECISIONS[0]):
        return _up(_above(arb(float(weight)), arb(float(scale)), shift))


def _enclosed(weight: arb, scale: arb, shift: int) -> arb:
    square = (-2 / scale).exp()
    here = square.hypgeom_2f1(weight, weight, arb(1))
    there = square.hypgeom_2f1(weight + shift, weight, arb(shift + 1))
    return shift / scale + here.log() - there.log() - _log_rising(weight, shift)


def _above(weight: arb, scale: arb, shift: int) -> arb:
    """A bound from above by the binomial series, close where ``shift`` is far beyond ``scale``."""
    square = (-2 / scale).exp()
    here = square.hypgeom_2f1(weight, weight, arb(1))
    slowest = (weight + shift) / (shift + 1)  # a term is at least this power of it times the binomial one
    return shift / scale + here.log() + weight * (1 - square * slowest).log() - _log_rising(weight, shift)


def _log_rising(weight: arb, shift: int) -> arb:
    return (weight + shift).lgamma() - weight.lgamma() - arb(shift + 1).lgamma()


def _up(value: arb) -> float:
    return math.nextafter(float(value.upper()), math.inf)


def _check(weight: float, scale: float, shift: int) -> None:
    if not (0 <= weight < math.inf and 0 < scale < math.inf):
        raise PrivacyError("a share's weight must be a finite number, not negative, and the scale positive [PR085]")
    if isinstance(shift, bool) or shift != int(shift) or shift < 0:
        raise PrivacyError("the shift of a coordinate must be a whole number, not negative [PR086]")
