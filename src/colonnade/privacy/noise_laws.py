"""Noise laws: one class for each knows all that is special about it, and everything else asks.

An instance is the noise that all owners together put on every number of a release, each of them a share. A law says how
a share is drawn and how much of it an owner draws, how large the noise is and how far it reaches, which event it makes,
and what the accountant's routes need to know about an observer's view of such an event.

Most laws add up over owners by their parameter: each owner draws an equal part of it. Of discrete Laplace noise owners
draw parts of a whole variable, and enough of them that a whole one is left when the parts of those who may know theirs
are subtracted (docs/theory/laplace-shares.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Final, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.privacy.accounting.loss_distributions import HAIR, Array
from colonnade.privacy.noise import TAIL, Shape, discrete_gaussian, discrete_laplace_share, skellam
from colonnade.privacy.releases import (
    PURE,
    AdditiveRelease as AdditiveRelease,
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    Names,
    NonPrivate,
    Others,
    SkellamRelease,
    View,
)
from colonnade.privacy.sensitivity import Sensitivity, float_up
from colonnade.randomness import KEY_BYTES, Stream

LawName = Literal["skellam", "discrete-gaussian", "discrete-laplace"]
NormalLawName = Literal["skellam", "discrete-gaussian"]
NORMAL_LAWS: tuple[NormalLawName, ...] = ("skellam", "discrete-gaussian")
Norm = Literal["l1", "l2"]
DEFAULT_LAW: Final = "skellam"
CLOSEST_TO_GAUSSIAN: Final = "discrete-gaussian"
"""The law closest to a Gaussian, for noise that one owner draws alone, or that is drawn often."""
FUNCTIONAL: Final = "discrete-laplace"
Words = tuple[tuple[str, str], ...]
Samples = NDArray[np.int64]

# Lemma T (docs/theory/skellam-close-to-gaussian.md): within z standard deviations the logarithms of the
# Skellam and the rounded Gaussian probabilities differ by at most (a z^4 + b z^2 + c) / (2 mu).
LEMMA_T = (1 / 12, 5 / 4, 2.0)
LEMMA_T_DISCRETE_GAUSSIAN = (0.0, 1 / 4, 1 / 2)
_DEVIATIONS = 16  # the samplers cut their tails before


@dataclass(frozen=True)
class AdditiveNoise:
    """The noise of all owners together on every number of a release; making one picks the class of its ``law``.

    ``scale`` is the law's parameter, such as mu of Skellam noise, a variance, or the scale of discrete Laplace noise.
    Of the latter a whole variable is left without the parts of ``known`` owners; other laws ignore that number. What
    stands in this class holds for laws whose parameter adds up over owners.
    """

    law: str
    scale: int
    owners: Names
    known: int = 0

    name: ClassVar[str]
    """What study files and records call the law."""
    title: ClassVar[str]
    """What sentences call it."""
    glossary: ClassVar[Words] = ()
    """What a glossary says of the law, and of the theorem about it."""
    event_type: ClassVar[Any]
    """The class of its events."""
    norm: ClassVar[Norm] = "l2"
    """The norm of the sensitivity on which the promise of this noise rests."""
    unit: ClassVar[int] = 1
    """Variance of one unit of the parameter."""
    sums_keep_law: ClassVar[bool] = False
    """Whether a sum of draws has the same law, so that it can be drawn at once."""
    renyi_theorem: ClassVar[str]

    def __new__(cls, law: str = "", *_given: Any, **_named: Any) -> Self:
        """An instance of the class of that law."""
        return cast(Self, super().__new__(law_named(law) if law else cls))

    @property
    def pure(self) -> bool:
        """Whether this noise promises without a delta."""
        return self.norm == "l1"

    @property
    def parts(self) -> int:
        """The number of equal parts of the scale, which must be a multiple of it."""
        return len(self.owners)

    @property
    def share(self) -> Fraction:
        """One owner's part, as events write it."""
        return Fraction(self.scale, len(self.owners))

    @property
    def variance(self) -> float:
        """Variance of all owners' noise together."""
        return float(self.unit * self.scale)

    @property
    def deviation(self) -> float:
        """Standard deviation of all owners' noise together."""
        return math.sqrt(self.unit * self.scale)

    def multiple_of(self, moved: Sensitivity) -> float:
        """The noise over the sensitivity on which its promise rests: the deviation over that in L2."""
        return math.sqrt(self.unit * self.scale / moved.l2_squared)

    def least_scale(self, multiple: float, moved: Sensitivity) -> int:
        """The least scale at which the noise is not below a multiple of the sensitivity."""
        return self._rounded_up(Fraction(multiple) ** 2 * moved.l2_squared / self.unit)

    def most_scale(self, deviation: Fraction) -> int:
        """The largest scale at which the deviation is not above this one; 0 where it is finer than integers."""
        return int(deviation**2 / self.unit / self.parts) * self.parts

    def reach(self, copies: int = 1, spare: int = 4) -> int:
        """A bound on all owners' noise on a sum of ``copies`` copies of a number; ``spare`` makes it larger."""
        owners = len(self.owners)
        return owners * _DEVIATIONS * (math.isqrt(copies * self.unit * self.scale // owners) + spare)

    def draw(self, shape: tuple[int, ...], stream: Stream, copies: int = 1) -> Samples:
        """One owner's part of the noise on numbers of this shape, each of which is a sum of ``copies`` copies."""
        if self.sums_keep_law:
            return self.sample(copies * self.share, shape, stream)
        several = self.share_sampler(self)(self.share, (copies, *shape), stream)
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

        ``lost`` is added to delta as it is; noise that promises without a delta has none.
        """
        if self.pure and lost:
            raise PrivacyError(f"release {name!r} has Laplace noise, of which no part of delta is lost [PR018]")
        shares = tuple((owner, self.share) for owner in self.owners)
        said = {"tail": tail, "audience": audience, "about": about, "others": others, **self._charged(moved, lost)}
        event: AdditiveRelease = self.event_type(name, shares, dimension, theorem=theorem, **said)
        return event

    def _charged(self, moved: Sensitivity, lost: Fraction | float) -> dict[str, Any]:
        """The fields of the event that follow from how far one person moves what is released."""
        return {**vars(moved), "lost": lost}

    def _rounded_up(self, least: Fraction) -> int:
        return max(1, math.ceil(least / self.parts)) * self.parts

    # --- what is drawn of an event

    @staticmethod
    def sample(size: Fraction, shape: Shape, stream: Stream, /) -> Samples:
        """Independent draws of a share of this size."""
        raise NotImplementedError

    @classmethod
    def share_sampler(cls, event: Any) -> Callable[[Fraction, Shape, Stream], Samples]:
        """A function that draws shares of an event's noise, by their size."""
        return cls.sample

    # --- what the accountant asks about the view of an event

    @classmethod
    def renyi(cls, view: View, orders: Array) -> Array:
        """The Renyi divergence of one release to everybody, at each order."""
        raise NotImplementedError

    @classmethod
    def gaussian_gap(cls, view: View, z: float) -> tuple[float, float]:
        """How far log-probabilities of the unknown noise stray from a Gaussian's within ``z`` deviations.

        Then what the exponent of the mass outside exceeds ``-z^2 / 2`` by.
        """
        return math.inf, 0.0

    @classmethod
    def resolve_view(cls, event: Any, view: View, known_to: str) -> View:
        """What is left of a release when colluding owners subtract what they know, as far as the law decides it."""
        return view


LAWS_BY_EVENT_KIND: dict[str, type[AdditiveNoise]] = {}
"""Every kind of noisy event, with its law."""


def register(law: type[AdditiveNoise]) -> type[AdditiveNoise]:
    """Make a law known: to whoever names it, to the reader of events and to the accountant."""
    LAWS_BY_EVENT_KIND[law.event_type.kind] = law
    return law


def law_named(name: str) -> type[AdditiveNoise]:
    """The law that study files call so."""
    by_name = {law.name: law for law in drawn_laws()}
    if name not in by_name:
        raise PrivacyError(f"unknown noise {name!r}; choose from {', '.join(by_name)} [PR147]")
    return by_name[name]


def law_of_event(kind: str) -> type[AdditiveNoise]:
    """The law of events of this kind."""
    return LAWS_BY_EVENT_KIND[kind]


def drawn_laws() -> tuple[type[AdditiveNoise], ...]:
    """Every law by which the library draws."""
    return tuple(LAWS_BY_EVENT_KIND.values())


# --- laws that are close to a Gaussian


@register
class Skellam(AdditiveNoise):
    """Differences of two Poisson counts; ``scale`` is mu, of which each of the counts has its share."""

    name = "skellam"
    title = "Skellam"
    glossary = (
        ("skellam", "Whole-number noise: the difference of two Poisson numbers. Shares of it add up to more of it."),
        ("skellam-renyi", "The theorem that bounds what Skellam noise lets through, by Rényi divergences."),
    )
    event_type = SkellamRelease
    unit = 2
    sums_keep_law = True
    renyi_theorem = "skellam-renyi"
    sample = staticmethod(skellam)

    @classmethod
    def renyi(cls, view: View, orders: Array) -> Array:
        """docs/theory/skellam-renyi.md; orders are whole numbers."""
        first, low, extra, flat = skellam_terms(view.noise, Fraction(view.l1), Fraction(view.l2_squared))
        return np.asarray(orders * first + np.minimum((2 * orders - 1) * low + extra, flat))

    @classmethod
    def gaussian_gap(cls, view: View, z: float) -> tuple[float, float]:
        """Lemma T."""
        return skellam_gaussian_gap(view.noise, z), z**4 * ratio(1, 48 * view.noise)


@register
class DiscreteGaussian(AdditiveNoise):
    """Mass proportional to ``exp(-k^2 / (2 variance))``; ``scale`` is that variance."""

    name = "discrete-gaussian"
    title = "discrete Gaussian"
    glossary = (("discrete-gaussian", "Whole-number noise with the bell shape of a Gaussian."),)
    event_type = DiscreteGaussianRelease
    renyi_theorem = "discrete-gaussian-renyi"
    sample = staticmethod(discrete_gaussian)

    @classmethod
    def renyi(cls, view: View, orders: Array) -> Array:
        """Of summed shares: Theorems 2 and 3 of docs/theory/discrete-gaussian-renyi.md, in deviations of the sum."""
        square, gap = ratio(Fraction(view.l2_squared), view.noise), cls._shared_gap(view)
        if gap == 0 or math.isinf(gap):
            return np.asarray(orders * square / 2 + gap)
        l1 = math.sqrt(ratio(Fraction(view.l1) ** 2, view.noise))
        apart = orders * square / 2 + gap * view.dimension
        each = orders / 2 * (square + 2 * l1 * gap + gap * gap * view.dimension)
        whole = orders / 2 * (math.sqrt(square) + math.sqrt(view.dimension) * gap) ** 2
        return np.asarray(np.minimum(apart, np.minimum(each, whole)) * (1 + HAIR))

    @classmethod
    def gaussian_gap(cls, view: View, z: float) -> tuple[float, float]:
        """Lemma T for one of them, and how far a sum of shares strays from one."""
        a, b, c = LEMMA_T_DISCRETE_GAUSSIAN
        return (a * z**4 + b * z**2 + c) * ratio(1, view.noise) + cls._shared_gap(view), 0.0

    @staticmethod
    def _shared_gap(view: View) -> float:
        return shared_gaussian_gap(
            float(min(view.smallest, Fraction(10**6))), view.parts
        )  # larger shares: a smaller gap


def skellam_gaussian_gap(mu: float | Fraction, z: float) -> float:
    """Lemma T: how far log-probabilities of Sk(mu) stray from the rounded Gaussian's within z deviations."""
    a, b, c = LEMMA_T
    return (a * z**4 + b * z**2 + c) * ratio(1, 2 * Fraction(mu))


def skellam_terms(mu: Fraction, d1: Fraction, d2_squared: Fraction) -> tuple[float, float, float, float]:
    """The terms of the bound on the Renyi divergence, of which the second and third grow with the order."""
    return (
        ratio(d2_squared, 4 * mu),
        ratio(d2_squared, 16 * mu * mu),
        ratio(6 * d1, 16 * mu * mu),
        ratio(3 * d1, 4 * mu),
    )


def shared_gaussian_gap(smallest: float, parts: int) -> float:
    """How far log-probabilities of ``parts`` summed discrete Gaussians stray from one of the total variance."""
    if parts > 1 and smallest < 0.25:
        return math.inf
    exponent = -2 * math.pi**2 * smallest
    # The summands fall with k; from the 65th on each is counted as large as the 65th.
    head = sum(math.exp(exponent * k / (k + 1)) for k in range(1, min(parts, 65)))
    return 10 * (head + max(0, parts - 65) * math.exp(exponent * 65 / 66))


def ratio(numerator: Fraction | int, denominator: Fraction | int) -> float:
    """A quotient as a float; infinite where a float cannot hold it."""
    if numerator == 0:
        return 0.0
    if denominator == 0:
        return math.inf
    try:
        return float(Fraction(numerator) / Fraction(denominator))
    except OverflowError:
        return math.inf


# --- noise that promises without a delta


@register
class DiscreteLaplace(AdditiveNoise):
    """Mass proportional to ``exp(-|k| / scale)``; an owner draws a part of a whole variable."""

    name = "discrete-laplace"
    title = "discrete Laplace"
    glossary = (
        ("discrete-laplace", "Whole-number noise that falls off by the same factor with each step; it needs no delta."),
    )
    event_type = DiscreteLaplaceRelease
    norm = "l1"

    @property
    def parts(self) -> int:
        """The scale is not divided."""
        return 1

    @property
    def share(self) -> Fraction:
        """One owner's part of a whole variable."""
        return Fraction(1, len(self.owners) - self.known)

    @property
    def _variables(self) -> float:
        """How many whole variables all owners add."""
        return float(len(self.owners) * self.share)

    @property
    def variance(self) -> float:
        """Variance of all owners' noise together."""
        return self._variables / 2 / math.sinh(1 / (2 * self.scale)) ** 2

    @property
    def deviation(self) -> float:
        """Standard deviation of all owners' noise together."""
        return math.sqrt(self._variables / 2) / math.sinh(1 / (2 * self.scale))

    def multiple_of(self, moved: Sensitivity) -> float:
        """The scale over the sensitivity in L1."""
        return self.scale / moved.l1

    def least_scale(self, multiple: float, moved: Sensitivity) -> int:
        """The least scale at which the noise is not below a multiple of the sensitivity."""
        return self._rounded_up(Fraction(multiple) * moved.l1)

    def most_scale(self, deviation: Fraction) -> int:
        """The largest scale at which the deviation, at most sqrt(2 x variables) times it, is not above this one."""
        return int(deviation / Fraction(math.sqrt(2 * self._variables) * (1 + 1e-12)))

    def reach(self, copies: int = 1, spare: int = 4) -> int:
        """A bound on all owners' noise on a sum of ``copies`` copies of a number, which needs no spare room."""
        return len(self.owners) * copies * laplace_reach(self.scale)

    def _charged(self, moved: Sensitivity, lost: Fraction | float) -> dict[str, Any]:
        return {"scale": Fraction(self.scale), "l1": moved.l1, "replace_l1": moved.replace_l1}

    @classmethod
    def share_sampler(cls, event: Any) -> Callable[[Fraction, Shape, Stream], Samples]:
        """A function that draws shares, by their weight: k shares of weight 1/k add up to a whole variable."""

        def drawn(weight: Fraction, count: Shape, stream: Stream) -> Samples:
            if weight.numerator != 1:
                raise PrivacyError("a share of Laplace noise has a weight of one over a whole number [PR011]")
            return discrete_laplace_share(event.scale, weight.denominator, count, stream)

        return drawn

    @classmethod
    def resolve_view(cls, event: Any, view: View, known_to: str) -> View:
        """One whole variable must be among the unknown noise (docs/theory/laplace-shares.md)."""
        if view.noise >= 1 or not view.l1:
            pure, single = (float_up(Fraction(l1) / event.scale) for l1 in (view.l1, view.single_l1))
            return replace(view, kind=PURE, pure=pure, single_pure=single)
        from colonnade.privacy.noise.strip_sampler import generalised_laplace_epsilon

        least = generalised_laplace_epsilon(float(view.noise), float(event.scale), int(view.l1))
        known = f"{known_to} knows so much" if known_to else "so much is known or missing"
        reason = (
            f"{known} of the Laplace noise that less than one whole variable is left; "
            f"even one number that moves by the whole sensitivity costs epsilon {least:.3g}, and many small moves cost "
            "more"
        )
        return type(view)(NonPrivate.kind, view.adjacency, reason=reason)


def laplace_reach(scale: int) -> int:
    """No draw of a discrete Laplace law, nor of a share of it, is larger: where the samplers cut off the far end.

    They stop at the first strip beyond which less than 2^-128 of the mass lies. For both laws that is the case from
    t (129 log 2 + log(4 t)) on, and no strip is wider than t.
    """
    logarithm = -(-7 * (4 * scale).bit_length() // 10)  # log 2 < 7/10
    return scale * (92 + logarithm) + 2
