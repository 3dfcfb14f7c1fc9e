"""Events as values: what was revealed, by which mechanism, with which exact noise, shares of it and sensitivity.

Privacy parameters are integers or fractions, because a proof needs exact figures and not rounded ones; squared L2 norms
are kept, because the norms themselves are irrational. An event says what happened;
:func:`colonnade.privacy.events.view` says what it looks like to one observer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar

from colonnade.errors import PrivacyError
from colonnade.privacy.observers import Adjacency
from colonnade.privacy.sensitivity import checked_whole, float_up

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
