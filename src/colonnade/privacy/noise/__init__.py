"""Integer noise drawn exactly: discrete Gaussian, Skellam, discrete Laplace and Polya shares of the latter.

No floating-point error changes any probability: what is returned differs from its law by at most :data:`TAIL` in total
variation, and only because the far end of the law is cut off. ``docs/theory/exact-samplers.md`` has the proof,
:mod:`colonnade.privacy.noise.strip_sampler` the laws and the sampler.

The number of coins depends on what is drawn, and so does the time: draw noise before a protocol starts,
not between two messages.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError
from colonnade.lazy import LazyModule
from colonnade.privacy.sensitivity import checked_whole
from colonnade.randomness import Stream

if TYPE_CHECKING:
    from colonnade.privacy.noise import strip_sampler as _strips
else:  # flint is imported by the first draw, not by those who only need TAIL
    _strips = LazyModule("colonnade.privacy.noise.strip_sampler")

__all__ = ["TAIL", "discrete_gaussian", "discrete_laplace", "discrete_laplace_share", "skellam"]

TAIL = Fraction(1, 1 << 128)
"""Total-variation distance between a number that this package returns and its law, at most."""

_LARGEST_VARIANCE = 1 << 118  # the farthest strip then ends below 2^63, as with the scale below
_LARGEST_SCALE = 1 << 55

Shape = int | tuple[int, ...]


def discrete_gaussian(variance: Fraction | int, shape: Shape, stream: Stream) -> NDArray[np.int64]:
    """Samples of the law on the integers with mass proportional to ``exp(-k^2 / (2 variance))``."""
    exact = _checked(variance, "variance", _LARGEST_VARIANCE)
    return _strips.sample(_strips.GaussianMass(exact), shape, stream) if exact else np.zeros(shape, dtype=np.int64)


def skellam(mu: Fraction | int, shape: Shape, stream: Stream) -> NDArray[np.int64]:
    """Samples of the difference of two Poisson counts of mean ``mu``; the variance is ``2 mu``."""
    exact = _checked(mu, "mu", _LARGEST_VARIANCE // 2)
    return _strips.sample(_strips.SkellamMass(2 * exact), shape, stream) if exact else np.zeros(shape, dtype=np.int64)


def discrete_laplace(scale: Fraction | int, shape: Shape, stream: Stream) -> NDArray[np.int64]:
    """Samples of the law on the integers with mass proportional to ``exp(-|k| / scale)``."""
    exact = _checked(scale, "scale", _LARGEST_SCALE)
    return _strips.sample(_strips.LaplaceMass(exact), shape, stream) if exact else np.zeros(shape, dtype=np.int64)


def discrete_laplace_share(scale: Fraction | int, parts: int, shape: Shape, stream: Stream) -> NDArray[np.int64]:
    """Noise of which ``parts`` independent draws add up to discrete Laplace noise of that scale.

    ``parts`` is the number of owners minus those who may collude: the shares that colluding owners do not know still
    add up to a whole discrete Laplace draw. A share is the difference of two Polya counts, and within :data:`TAIL` of
    it.
    """
    exact = _checked(scale, "scale", _LARGEST_SCALE)
    checked_whole(parts, "the number of parts of a discrete Laplace draw", 1)
    if parts == 1 or exact == 0:
        return discrete_laplace(exact, shape, stream)
    law = _strips.PolyaMass(exact, parts)
    return _strips.sample(law, shape, stream) - _strips.sample(law, shape, stream)


def _checked(value: Fraction | int, name: str, largest: int) -> Fraction:
    given = Fraction(value)
    exact = Fraction(int(given.numerator), int(given.denominator))  # numpy integers would overflow
    if exact < 0:
        raise ValueError(f"{name} must not be negative [VA117]")
    if exact > largest:
        limit = largest.bit_length() - 1
        raise CapacityError(f"{name} is above 2^{limit}: such noise does not fit 64-bit integers [CA008]")
    return exact
