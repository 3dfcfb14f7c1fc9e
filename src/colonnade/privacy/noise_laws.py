"""Noise laws: one class for each knows all that is special about it, and everything else asks.

An instance is the noise that all owners together put on every number of a release, each of them a share. A law says how
a share is drawn and how much of it an owner draws, how large the noise is and how far it reaches, which event it makes,
and what the accountant's routes need to know about an observer's view of such an event.

Most laws add up over owners by their parameter: each owner draws an equal part of it. Of discrete Laplace noise owners
draw parts of a whole variable, and enough of them that a whole one is left when the parts of those who may know theirs
are subtracted (docs/theory/laplace-shares.md).

Releases are events as values: what was revealed, by which mechanism, with which exact noise, shares and sensitivity.

Privacy parameters are integers or fractions, because a proof needs exact figures and not rounded ones; squared L2 norms
are kept, because the norms themselves are irrational. An event says what happened;
:func:`colonnade.privacy.events.view` says what it looks like to one observer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, fields, replace
from fractions import Fraction
from typing import Any, ClassVar, Final, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError
from colonnade.privacy.accounting.loss_distributions import HAIR, Array
from colonnade.privacy.noise import TAIL, Shape, discrete_gaussian, discrete_laplace_share, skellam
from colonnade.privacy.observers import Adjacency
from colonnade.privacy.sensitivity import Sensitivity, checked_whole, float_up
from colonnade.randomness import KEY_BYTES, Stream

VERSION = 2
"""Written into every event. Version 1 lacks the fields that have a default here, and is still read."""

PURE = "pure"
NOTHING = "nothing"
Names = tuple[str, ...]
Shares = tuple[tuple[str, Fraction], ...]
Others = tuple[tuple[str, int, int], ...]
_AS_TEXT = ("l1", "l2_squared", "replace_l1", "replace_l2_squared")
Marks = Iterator[tuple[str, tuple[Any, ...]]]


class _Written:
    """Writes an event as JSON."""

    kind: ClassVar[str]
    may_lack: ClassVar[frozenset[str]] = frozenset({"lost"})
    """Fields that came later: without a value they are not written, so an event is written as it was before."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; large integers and fractions travel as text."""
        content = {field.name: _plain(field.name, getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]
        written = {label: value for label, value in content.items() if value or label not in self.may_lack}
        return {"version": VERSION, "kind": self.kind, **written}

    def marks(self) -> Marks:
        """What distinguishes one participant from another in this release."""
        yield from ((owner, ("share", size)) for owner, size in getattr(self, "shares", ()))
        yield from ((name, (label,)) for label in ("audience", "about") for name in getattr(self, label, ()))
        yield from ((name, ("others", l1, l2_squared)) for name, l1, l2_squared in getattr(self, "others", ()))


@dataclass(frozen=True)
class _Release(_Written):
    """A vector published with the sum of one independent noise share per owner.

    ``tail`` is the distance of one sampled share from its exact law; ``unproven`` says why the figure is only
    "as published", and is empty when ``theorem`` proves it. ``audience`` names who receives it (empty: it is
    published); ``about`` names the owners whose columns it depends on, given all earlier messages (empty: all owners).
    """

    name: str
    shares: Shares
    dimension: int
    _: KW_ONLY
    tail: float | Fraction = 0.0
    theorem: str = ""
    unproven: str = ""
    audience: Names = ()
    about: Names = ()
    others: Others = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", tuple((str(owner), Fraction(size)) for owner, size in self.shares))
        holders = [owner for owner, _ in self.shares]
        self._whole("dimension", least=1)
        for wrong, said in (
            (
                not holders or len(set(holders)) != len(holders),
                f"release {self.name!r} needs one noise share per owner, each owner once [PR069]",
            ),
            (
                any(size <= 0 for _, size in self.shares),
                f"release {self.name!r} has a noise share that is not positive [PR070]",
            ),
            (
                any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for _, *pair in self.others for n in pair),
                f"the finer sensitivities of release {self.name!r} must be whole numbers, not negative [PR072]",
            ),
            (
                not (math.isfinite(self.tail) and 0 <= self.tail < 1),
                f"the sampler distance of release {self.name!r} must lie in [0, 1) [PR073]",
            ),
        ):
            if wrong:
                raise PrivacyError(said)
        object.__setattr__(self, "tail", float_up(Fraction(self.tail)))

    @property
    def noise(self) -> Fraction:
        """All shares together."""
        return sum((size for _, size in self.shares), Fraction(0))

    def _whole(self, label: str, least: int = 0) -> None:
        checked_whole(getattr(self, label), f"{label} of release {self.name!r}", least)


@dataclass(frozen=True)
class SquaredRelease(_Release):
    """Noise whose price depends on the L2 norm of the change; ``others`` refines the replace relation.

    ``others`` lists, for some owners, L1 and squared L2 bounds of the change when only the columns that this
    owner does *not* hold are replaced. They count for that owner alone, not for groups it is in. ``lost`` is added to
    delta once for every release, whatever epsilon is (docs/theory/mixture-rounds.md).
    """

    l1: int
    l2_squared: int
    replace_l1: int
    replace_l2_squared: int
    lost: float | Fraction = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for label in _AS_TEXT:
            self._whole(label)
        # A vector of integers is zero in one norm exactly when it is in the other.
        pairs = [(self.l1, self.l2_squared), (self.replace_l1, self.replace_l2_squared)]
        if any((l1 == 0) != (square == 0) for l1, square in [*pairs, *((l1, square) for _, l1, square in self.others)]):
            raise PrivacyError(
                f"release {self.name!r} has a change that is zero in one norm and not in the other [PR075]"
            )
        if not (math.isfinite(self.lost) and 0 <= self.lost < 1):
            raise PrivacyError(f"the part of delta that release {self.name!r} loses must lie in [0, 1) [PR074]")
        object.__setattr__(self, "lost", float_up(Fraction(self.lost)))


class SkellamRelease(SquaredRelease):
    """Shares ``mu`` of Skellam noise: Pois(mu) - Pois(mu), whose variance is 2 mu."""

    kind = "skellam"


class DiscreteGaussianRelease(SquaredRelease):
    """Shares ``sigma^2`` of discrete Gaussian noise (the variance parameter, not half of it)."""

    kind = "discrete_gaussian"


@dataclass(frozen=True)
class DiscreteLaplaceRelease(_Release):
    """Discrete Laplace noise ``exp(-|k|/scale)`` as a sum of Polya shares; a share of weight 1 is one whole.

    An owner of weight w adds the difference of two negative binomial counts NB(w, e^(-1/scale)).
    """

    scale: Fraction
    l1: int
    replace_l1: int
    kind: ClassVar[str] = "discrete_laplace"
    l2_squared: ClassVar[int] = 0  # its price does not depend on the L2 norm
    replace_l2_squared: ClassVar[int] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", Fraction(self.scale))
        if self.scale <= 0:
            raise PrivacyError(f"the scale of release {self.name!r} must be positive [PR077]")
        for label in ("l1", "replace_l1"):
            self._whole(label)


@dataclass(frozen=True)
class RandomisedResponse(_Written):
    """One label for each person, changed at random: the true one is ``odds`` times as likely as each other category."""

    name: str
    odds: Fraction
    categories: int
    holder: str
    theorem: str = ""
    unproven: str = ""
    audience: Names = ()
    kind: ClassVar[str] = "randomised_response"

    def __post_init__(self) -> None:
        object.__setattr__(self, "odds", Fraction(self.odds))
        if self.odds < 1:
            raise PrivacyError(f"the odds of {self.name!r} must be at least 1 [PR078]")
        checked_whole(self.categories, f"the number of categories of {self.name!r}", 2)

    @property
    def epsilon(self) -> float:
        """The cost of one label, rounded up."""
        ratio = math.log(self.odds.numerator) - math.log(self.odds.denominator)
        return 0.0 if self.odds == 1 else ratio * (1 + 1e-12) + 1e-12

    def marks(self) -> Marks:
        """What distinguishes one participant from another in this release."""
        yield self.holder, ("holder",)
        yield from super().marks()


AdditiveRelease = SquaredRelease | DiscreteLaplaceRelease
"""Numbers with noise that owners add; of which law says the class, and its ``kind``."""


class _Around(_Written):
    """Something around another release, in ``event``."""

    event: Any

    @property
    def name(self) -> str:
        """The name of what is released."""
        return str(self.event.name)

    def marks(self) -> Marks:
        """What distinguishes one participant from another in this release."""
        yield from self.event.marks()


@dataclass(frozen=True)
class PoissonSampled(_Around):
    """A release over a batch that each person joins with probability ``rate``; ``coins`` names who knows the batch."""

    event: AdditiveRelease
    rate: Fraction
    coins: Names = ()
    kind: ClassVar[str] = "poisson_sampled"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", Fraction(self.rate))
        if not isinstance(self.event, AdditiveRelease):
            raise PrivacyError(
                "a sampled batch needs one noisy release; put RepeatedRelease around the sample, not inside [PR080]"
            )
        if not 0 < self.rate <= 1:
            raise PrivacyError(f"the sampling rate of {self.event.name!r} must lie in (0, 1] [PR081]")

    def marks(self) -> Marks:
        """What distinguishes one participant from another in this release."""
        yield from super().marks()
        yield from ((name, ("coins",)) for name in self.coins)


@dataclass(frozen=True)
class RepeatedRelease(_Around):
    """A release made ``times`` times with fresh noise on the same person.

    With fixed disjoint batches, ``times`` is the number of epochs, for any number of batches.
    """

    event: AdditiveRelease | RandomisedResponse | PoissonSampled
    times: int
    kind: ClassVar[str] = "repeated"

    def __post_init__(self) -> None:
        if not isinstance(self.event, AdditiveRelease | RandomisedResponse | PoissonSampled):
            raise PrivacyError("only a release, or a sampled one, can be repeated [PR082]")
        checked_whole(self.times, f"how often {self.event.name!r} is repeated", 1)


@dataclass(frozen=True)
class PostProcessing(_Written):
    """Something computed from other releases alone, which costs nothing to those who received them."""

    name: str
    audience: Names = ()
    kind: ClassVar[str] = "post_processing"


@dataclass(frozen=True)
class NonPrivate(_Written):
    """Something was revealed for which nothing is proven; the accountant answers infinity, with this reason.

    ``about`` names the owners whose columns alone it depends on, given all earlier messages (empty: all owners).
    """

    reason: str
    name: str = ""
    audience: Names = ()
    about: Names = ()
    kind: ClassVar[str] = "non_private"
    may_lack: ClassVar[frozenset[str]] = frozenset({"about"})


def _plain(label: str, value: Any) -> Any:
    if isinstance(value, Fraction) or label in _AS_TEXT:
        return str(value)
    if isinstance(value, _Written):
        return value.to_dict()
    if label == "shares":
        return [[owner, str(size)] for owner, size in value]
    if label == "others":
        return [[owner, str(l1), str(l2_squared)] for owner, l1, l2_squared in value]
    return list(value) if isinstance(value, tuple) else value


@dataclass(frozen=True)
class View:
    """One event as one observer sees it; with a ``reason``, nothing is hidden from that observer.

    ``noise`` is the sum of the shares that are drawn and that the observer does not know, made of ``parts`` shares of
    which the least is ``smallest``. ``l1`` and ``l2_squared`` are for the observer's own relation, the ``single``
    ones for adding or removing a row. The release is made ``times`` times, each over a batch of ``rate``. ``pure`` is
    the epsilon of one release without delta. ``lost`` is what each adds to delta, whatever epsilon is.
    """

    kind: str
    adjacency: Adjacency
    noise: Fraction = Fraction(0)
    parts: int = 0
    smallest: Fraction = Fraction(0)
    dimension: int = 0
    l1: int | Fraction = 0
    l2_squared: int | Fraction = 0
    single_l1: int | Fraction = 0
    single_l2_squared: int | Fraction = 0
    tail: float = 0.0
    theorem: str = ""
    unproven: str = ""
    reason: str = ""
    times: int = 1
    rate: Fraction = Fraction(1)
    coins_known: bool = False
    pure: float = 0.0
    single_pure: float = 0.0
    lost: float = 0.0

    @property
    def draws(self) -> int:
        """How many samples the unknown noise is made of."""
        return self.dimension * self.parts * self.times

    @property
    def secret_batch(self) -> bool:
        """Whether the observer cannot know who was in the batch."""
        return self.rate < 1 and not self.coins_known

    @property
    def empty(self) -> bool:
        """Whether the observer learns nothing from it, whatever the noise."""
        return not (self.l1 or self.l2_squared or self.pure or self.reason)


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
