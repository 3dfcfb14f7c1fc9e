"""Integer noise that several owners draw in parts and add to what is released, by its law.

Skellam and discrete Gaussian noise add up over owners by their parameter: each owner draws an equal part of it. Of
discrete Laplace noise owners draw parts of a whole variable, and enough of them that a whole one is left when the parts
of those who may know theirs are subtracted (docs/theory/laplace-shares.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.privacy.noise import TAIL, discrete_gaussian, discrete_laplace_share, skellam
from colonnade.privacy.releases import DiscreteGaussianRelease, DiscreteLaplaceRelease, Names, Others, SkellamRelease
from colonnade.privacy.sensitivity import Sensitivity
from colonnade.randomness import KEY_BYTES, Stream

Law = Literal["skellam", "discrete-gaussian", "discrete-laplace"]
NormalLaw = Literal["skellam", "discrete-gaussian"]
NORMAL_LAWS: tuple[NormalLaw, ...] = ("skellam", "discrete-gaussian")
Norm = Literal["l1", "l2"]
USUAL: Final = "skellam"
LAPLACE: Final = "discrete-laplace"
AdditiveRelease = SkellamRelease | DiscreteGaussianRelease | DiscreteLaplaceRelease

_DEVIATIONS = 16  # the samplers cut their tails before


class _Normal(NamedTuple):
    """A law close to the Gaussian one, whose parameter adds up over owners."""

    release: type[SkellamRelease | DiscreteGaussianRelease]
    draw: Callable[[Fraction, tuple[int, ...], Stream], NDArray[np.int64]]
    unit: int
    """Variance of one unit of the parameter."""
    closed: bool
    """Whether a sum of draws has the same law, so that it can be drawn at once."""


_NORMAL = {
    "skellam": _Normal(SkellamRelease, skellam, unit=2, closed=True),
    "discrete-gaussian": _Normal(DiscreteGaussianRelease, discrete_gaussian, unit=1, closed=False),
}


@dataclass(frozen=True)
class AdditiveNoise:
    """The noise of all owners together on every number of a release.

    ``scale`` is mu of Skellam noise, the variance of discrete Gaussian noise or the scale of discrete Laplace noise. Of
    the latter a whole variable is left without the parts of ``known`` owners; the other laws ignore that number.
    """

    law: Law
    scale: int
    owners: Names
    known: int = 0

    @property
    def laplace(self) -> bool:
        """Whether the noise is discrete Laplace."""
        return self.law == LAPLACE

    @property
    def norm(self) -> Norm:
        """The norm of the sensitivity on which the promise of this noise rests."""
        return "l1" if self.laplace else "l2"

    @property
    def parts(self) -> int:
        """The number of equal parts of the scale, which must be a multiple of it."""
        return 1 if self.laplace else len(self.owners)

    @property
    def share(self) -> Fraction:
        """One owner's part: of the scale, or for Laplace noise of a whole variable."""
        if self.laplace:
            return Fraction(1, len(self.owners) - self.known)
        return Fraction(self.scale, len(self.owners))

    @property
    def unit(self) -> int:
        """Variance of one unit of the scale; for Skellam and discrete Gaussian noise."""
        return _NORMAL[self.law].unit

    @property
    def variance(self) -> float:
        """Variance of all owners' noise together."""
        if self.laplace:
            return self._variables / 2 / math.sinh(1 / (2 * self.scale)) ** 2
        return float(self.unit * self.scale)

    @property
    def deviation(self) -> float:
        """Standard deviation of all owners' noise together."""
        if self.laplace:
            return math.sqrt(self._variables / 2) / math.sinh(1 / (2 * self.scale))
        return math.sqrt(self.unit * self.scale)

    @property
    def _variables(self) -> float:
        """How many whole Laplace variables all owners add."""
        return float(len(self.owners) * self.share)

    def multiple_of(self, moved: Sensitivity) -> float:
        """Deviation over L2 sensitivity; for Laplace noise the scale over L1 sensitivity."""
        if self.laplace:
            return self.scale / moved.l1
        return math.sqrt(self.unit * self.scale / moved.l2_squared)

    def least_scale(self, multiple: float, moved: Sensitivity) -> int:
        """The least scale at which the noise is not below a multiple of the sensitivity."""
        exact = Fraction(multiple)
        least = exact * moved.l1 if self.laplace else exact**2 * moved.l2_squared / self.unit
        return max(1, math.ceil(least / self.parts)) * self.parts

    def most_scale(self, deviation: Fraction) -> int:
        """The largest scale at which the deviation is not above this one; 0 where it is finer than integers."""
        if self.laplace:
            # The deviation is at most sqrt(2 x variables) times the scale.
            most = deviation / Fraction(math.sqrt(2 * self._variables) * (1 + 1e-12))
        else:
            most = deviation**2 / self.unit
        return int(most / self.parts) * self.parts

    def reach(self, copies: int = 1, spare: int = 4) -> int:
        """A bound on all owners' noise on a sum of ``copies`` copies of a number; ``spare`` makes it larger."""
        owners = len(self.owners)
        if self.laplace:
            return owners * copies * laplace_reach(self.scale)
        return owners * _DEVIATIONS * (math.isqrt(copies * self.unit * self.scale // owners) + spare)

    def draw(self, shape: tuple[int, ...], stream: Stream, copies: int = 1) -> NDArray[np.int64]:
        """One owner's part of the noise on numbers of this shape, each of which is a sum of ``copies`` copies."""
        if self.laplace:
            several = discrete_laplace_share(self.scale, len(self.owners) - self.known, (copies, *shape), stream)
        elif _NORMAL[self.law].closed:
            return _NORMAL[self.law].draw(copies * self.share, shape, stream)
        else:
            several = _NORMAL[self.law].draw(self.share, (copies, *shape), stream)
        return several[0] if copies == 1 else np.asarray(several.sum(axis=0), dtype=np.int64)

    def prepare(self, copies: int = 1) -> None:
        """Make the tables by which :meth:`draw` draws; they follow from the law alone, so they are made once."""
        self.draw((0,), Stream(bytes(KEY_BYTES)), copies)

    def release(
        self,
        name: str,
        dimension: int,
        moved: Sensitivity,
        *,
        theorem: str,
        tail: Fraction = TAIL,
        audience: Names = (),
        about: Names = (),
        others: Others = (),
        lost: Fraction | float = 0.0,
    ) -> AdditiveRelease:
        """The event: ``dimension`` numbers, which one person can move by ``moved``, are released with this noise.

        ``lost`` is added to delta as it is; Laplace noise promises without a delta, and has none.
        """
        shares = tuple((owner, self.share) for owner in self.owners)
        said = (tail, theorem, "", audience, about, others)
        l1, square, replaced, replaced_square = moved.l1, moved.l2_squared, moved.replace_l1, moved.replace_l2_squared
        if self.laplace and lost:
            raise PrivacyError(f"release {name!r} has Laplace noise, of which no part of delta is lost [PR018]")
        if self.laplace:
            return DiscreteLaplaceRelease(name, shares, dimension, Fraction(self.scale), l1, replaced, *said)
        return _NORMAL[self.law].release(name, shares, dimension, l1, square, replaced, replaced_square, *said, lost)


def laplace_reach(scale: int) -> int:
    """No draw of a discrete Laplace law, nor of a share of it, is larger: where the samplers cut off the far end.

    They stop at the first strip beyond which less than 2^-128 of the mass lies. For both laws that is the case from
    t (129 log 2 + log(4 t)) on, and no strip is wider than t.
    """
    logarithm = -(-7 * (4 * scale).bit_length() // 10)  # log 2 < 7/10
    return scale * (92 + logarithm) + 2
