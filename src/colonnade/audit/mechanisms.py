"""Games about mechanisms that belong to no kind, and the samplers that games of all kinds share.

Among them is the statistic of games about studies that open one noisy sum a round.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.registry import Game, Sampler, register
from colonnade.privacy import Observer, Sensitivity, Trust, least_noise, parse_budgets
from colonnade.privacy.events import Event, unwrap
from colonnade.privacy.noise import TAIL
from colonnade.privacy.noise.local_mechanisms import Grid, odds_of_epsilon, randomised_response
from colonnade.privacy.noise_laws import (
    CLOSEST_TO_GAUSSIAN,
    AdditiveNoise,
    AdditiveRelease,
    PoissonSampled,
    RandomisedResponse,
    RepeatedRelease,
    Shares as Shares,
    drawn_laws,
    law_named,
    law_of_event,
)
from colonnade.protocols.iteration import COIN, iterate_batches
from colonnade.randomness import Stream

Law = Callable[[Fraction, int, Stream], NDArray[np.int64]]


@dataclass(frozen=True)
class OpenedNumber:
    """One opened integer: the value of the first or second table, and the noise that the observer does not know."""

    values: tuple[int, int]
    shares: Shares
    law: Law
    known: tuple[str, ...] = ()

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        """The opened integers."""
        return self.noise(count, stream) + self.values[neighbour]

    def noise(self, count: int, stream: Stream) -> NDArray[np.int64]:
        """The sum of the shares that the observer cannot subtract."""
        total = np.zeros(count, dtype=np.int64)
        for owner, size in self.shares:
            if owner not in self.known:
                total += self.law(size, count, stream)
        return total


@dataclass(frozen=True)
class BatchSampler:
    """Rounds that a person joins by a coin; the statistic is the likelihood ratio of the two tables.

    ``variance`` is that of the noise which the observer does not know. The ratio is that for Gaussian noise.
    """

    once: OpenedNumber
    rate: Fraction
    rounds: int
    coins_known: bool
    variance: float

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """Log-likelihood ratios."""
        total = np.zeros(count)
        for _ in range(self.rounds):
            joined = stream.uint32(count) < float(self.rate) * 2.0**32
            seen = self.once.noise(count, stream) + joined * self.once.values[neighbour]
            first, second = (self._likelihood(value, seen) for value in self.once.values)
            if self.coins_known:
                total += np.where(joined, second - first, 0.0)
            else:
                total += self._mixed(second) - self._mixed(first)
        return total

    def _likelihood(self, value: int, seen: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray((value * seen - value * value / 2) / self.variance)

    def _mixed(self, ratio: NDArray[np.float64]) -> NDArray[np.float64]:
        rate = float(self.rate)
        return np.asarray(np.log1p(rate * np.expm1(ratio)))


@dataclass(frozen=True)
class ResponseSampler:
    """A label that its holder answers at random; the statistic is which of the two labels the answer is."""

    labels: tuple[int, int]
    categories: int
    odds: Fraction

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        """1 for the second label, -1 for the first, 0 for any other."""
        true = np.full(count, self.labels[neighbour], dtype=np.int64)
        return self.statistic(randomised_response(true, self.categories, self.odds, stream))

    def statistic(self, seen: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which of the two labels each answer is."""
        second, first = (np.asarray(seen == label, dtype=np.int64) for label in reversed(self.labels))
        return second - first


@dataclass(frozen=True)
class GridSampler:
    """A real number released on a grid; the statistic is the number, or its fractional part."""

    values: tuple[float, float]
    grid: Grid
    deviation: float
    fraction: bool

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[Any]:
        """The released numbers."""
        real = np.full(count, self.values[neighbour])
        return self.look(self.grid.real(self.grid.release(real, self.deviation, stream)))

    def look(self, released: NDArray[np.float64]) -> NDArray[np.float64]:
        """The number itself or its fractional part."""
        return released - np.floor(released) if self.fraction else released


Draw = Callable[[int, Stream], NDArray[np.int64]]


@dataclass(frozen=True)
class WeightedSumSampler:
    """A few opened integers, those of the first or the second table, weighed by their difference.

    ``share`` draws one owner's noise for a number of runs, as the protocol does; ``noisy`` are the owners whose noise
    the observer cannot subtract.
    """

    values: tuple[tuple[int, ...], tuple[int, ...]]
    share: Draw
    noisy: tuple[str, ...]

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """The weighed sums of ``count`` runs."""
        first, second = (np.array(values, dtype=np.float64) for values in self.values)
        moved = second - first
        weights = moved / max(1.0, float(np.abs(moved).max()))
        seen = np.tile(second if neighbour else first, (count, 1))
        for _ in self.noisy:
            seen += self.share(count, stream)
        return np.asarray(seen @ weights)


_THREE = Trust(("bank", "shop", "clinic"), ("bank", "shop", "clinic"), 1)
_FIVE = Trust(*(("bank", "shop", "clinic", "school", "town"),) * 2, 2)
_STEP = 1000
"""How far the released number moves when a person is added; when one is replaced, twice as far."""

ANALYST, COORDINATOR = Observer.analyst(), Observer.coordinator()
BANK, SHOP, PAIR = Observer.party("bank"), Observer.party("shop"), Observer.coalition("bank", "shop")


Released = TypeVar("Released", bound=Event, covariant=True)


@dataclass(frozen=True)
class Mechanism(Generic[Released]):
    """A release and the people around it."""

    event: Released
    trust: Trust

    def game(self, subject: str, observer: Observer, story: str, sampler: Sampler, part: str = "") -> Game:
        """A game about this release."""
        return Game(subject, observer, story, (self.event,), self.trust, sampler, part)


def _additive(law: type[AdditiveNoise], trust: Trust, noise: int | Fraction) -> AdditiveRelease:
    event: AdditiveRelease = law.event_type(
        name=f"one number with {law.event_type.kind} noise",
        shares=tuple((owner, Fraction(noise) / len(trust.owners)) for owner in trust.owners),
        dimension=1,
        l1=_STEP,
        l2_squared=_STEP**2,
        replace_l1=2 * _STEP,
        replace_l2_squared=4 * _STEP**2,
        tail=float(TAIL),
    )
    return event


def _calibrate(law: type[AdditiveNoise]) -> Mechanism[AdditiveRelease]:
    """Noise for epsilon 1 at delta 1e-5 against the analyst."""
    budgets = parse_budgets({"analyst": 1.0}, 1e-5, _FIVE)
    noise = least_noise(lambda total: _additive(law, _FIVE, total), _FIVE, budgets, owners=len(_FIVE.owners))
    return Mechanism(_additive(law, _FIVE, noise), _FIVE)


def _cross_coefficient(law: type[AdditiveNoise]) -> Mechanism[AdditiveRelease]:
    """The coefficient -2xy of least squares with one feature: epsilon 1 when a person is replaced.

    Each of three owners adds half a variable, so that any two of them make a whole one.
    """
    moved = Sensitivity(2 * 64**2, 0, 4 * 64**2, 0)
    noise = AdditiveNoise(law.name, 4 * 64**2, _THREE.owners, known=1)
    return Mechanism(noise.release("the coefficient of xy", 1, moved, theorem=""), _THREE)


def additive_games(
    subject: str, observers: Sequence[Observer], mechanism: Mechanism[AdditiveRelease]
) -> Iterator[Game]:
    """For the analyst, a person is added or not; for everyone else, a person has one extreme value or the other."""
    event = mechanism.event
    for observer in observers:
        alone = observer == ANALYST
        values = (0, event.l1) if alone else (-(event.replace_l1 // 2), event.replace_l1 // 2)
        story = "nobody or one person; the opened number" if alone else "one extreme or the other; the opened number"
        known = " without its own noise" if set(observer.names) & {owner for owner, _ in event.shares} else ""
        sampler = OpenedNumber(values, event.shares, law_of_event(event.kind).share_sampler(event), observer.names)
        yield mechanism.game(subject, observer, story + known, sampler)


for (
    _law
) in drawn_laws():  # every observer: up to a coalition of two of five, or one of three of whom any two hide a number
    _in_five = _law.norm == "l2"
    _what, _shares, _plan = ("number", "five", _calibrate) if _in_five else ("coefficient", "three", _cross_coefficient)
    _enter = register(_law.name, f"a {_what} with {_law.title} noise in {_shares} shares", partial(_plan, _law))
    _enter(partial(additive_games, _law.name, (ANALYST, COORDINATOR, BANK, *[PAIR] * _in_five)))


def _labels() -> Mechanism[RandomisedResponse]:
    return Mechanism(RandomisedResponse(name="labels", odds=odds_of_epsilon(1.0), categories=3, holder="bank"), _THREE)


@register("randomised-response", "a label that its holder answers at random", _labels)
def randomised_response_games(mechanism: Mechanism[RandomisedResponse]) -> Iterator[Game]:
    """Whoever does not hold the labels sees one of two answers more often."""
    sampler = ResponseSampler((0, 1), mechanism.event.categories, mechanism.event.odds)
    for observer in (COORDINATOR, SHOP):
        yield mechanism.game("randomised-response", observer, "label 0 or label 1; the answer", sampler)


_GRID = Grid()
_CLIP, _DEVIATION = 1.5, 6.0  # not a whole number, which noise on whole numbers would not hide


def _on_grid() -> Mechanism[AdditiveRelease]:
    single, double = (_GRID.sensitivity_squared(reach, 1) for reach in (_CLIP, 2 * _CLIP))
    event = law_named(CLOSEST_TO_GAUSSIAN).event_type(
        name="a real number on a grid",
        shares=(("bank", _GRID.variance(_DEVIATION)),),
        dimension=1,
        l1=_GRID.sensitivity_l1(_CLIP, 1),
        l2_squared=single,
        replace_l1=_GRID.sensitivity_l1(2 * _CLIP, 1),
        replace_l2_squared=double,
        tail=float(TAIL),
    )
    return Mechanism(event, _THREE)


@register("grid", "a real number released on a fine grid", _on_grid)
def grid_games(mechanism: Mechanism[AdditiveRelease]) -> Iterator[Game]:
    """Games about the number, and about its fractional part, which must tell nothing either."""
    for part, fraction in (("", False), ("fraction", True)):
        look = "the fractional part of the released number" if fraction else "the released number"
        for observer, values in ((ANALYST, (0.0, _CLIP)), (SHOP, (-_CLIP, _CLIP if not fraction else 0.0))):
            sampler = GridSampler(values, _GRID, _DEVIATION, fraction)
            story = f"{values[0]:g} or {values[1]:g}; {look}"
            yield mechanism.game("grid", observer, story, sampler, part)


_TIMES = 20


def _repeated() -> Mechanism[RepeatedRelease]:
    once = _additive(law_named(CLOSEST_TO_GAUSSIAN), _THREE, 80 * _STEP**2)
    return Mechanism(RepeatedRelease(event=once, times=_TIMES), _THREE)


@register("rounds", "twenty rounds of one mechanism, all charged", _repeated)
def rounds_games(mechanism: Mechanism[RepeatedRelease]) -> Iterator[Game]:
    """The sum over all rounds, in which the person is the same and the noise is fresh."""
    event, release = mechanism.event, unwrap(mechanism.event)
    assert isinstance(release, AdditiveRelease)  # noqa: S101 - for the type checker
    for observer, values in ((ANALYST, (0, _STEP)), (BANK, (-_STEP, _STEP))):
        moved, shares = (event.times * values[0], event.times * values[1]), release.shares * event.times
        story = f"{values[0]} or {values[1]} in {event.times} rounds; the sum"
        sampler = OpenedNumber(moved, shares, law_of_event(release.kind).sample, observer.names)
        yield mechanism.game("rounds", observer, story, sampler)


_BATCHES = 12


def _sampled() -> Mechanism[RepeatedRelease]:
    once = _additive(law_named(CLOSEST_TO_GAUSSIAN), _THREE, 4 * _STEP**2)
    sampled = PoissonSampled(event=once, rate=Fraction(1, 8), coins=_THREE.owners)
    return Mechanism(RepeatedRelease(event=sampled, times=_BATCHES), _THREE)


@register("poisson-sampled", "rounds that a person joins by a coin the owners know", _sampled)
def poisson_sampled_games(mechanism: Mechanism[RepeatedRelease]) -> Iterator[Game]:
    """The analyst does not know the coins; a party knows in which rounds a person was."""
    event, sampled, release = mechanism.event, mechanism.event.event, unwrap(mechanism.event)
    assert isinstance(sampled, PoissonSampled) and isinstance(release, AdditiveRelease)  # noqa: S101, PT018
    for observer, values in ((ANALYST, (0, _STEP)), (BANK, (-_STEP, _STEP))):
        known = bool(set(observer.names) & set(sampled.coins))
        unknown = sum(size for owner, size in release.shares if owner not in observer.names)
        once = OpenedNumber(values, release.shares, law_of_event(release.kind).sample, observer.names)
        sampler = BatchSampler(once, sampled.rate, event.times, known, float(unknown))
        coins = "known coins" if known else "secret coins"
        story = f"{values[0]} or {values[1]} in {event.times} batches, {coins}; the likelihood ratio"
        yield mechanism.game("poisson-sampled", observer, story, sampler)


RoundTask = TypeVar("RoundTask", bound=Any)
"""A task on shares that opens one sum a round."""


@dataclass(frozen=True)
class RoundSampler(ABC, Generic[RoundTask]):
    """The likelihood ratio of two tables, from the opened sums of all rounds.

    ``people`` are the person in the two tables; ``None`` is a table without a row. ``noisy`` are the owners whose noise
    the observer cannot subtract. The ratio is that for Gaussian noise, as an audit may use any statistic.
    """

    task: RoundTask
    people: tuple[Any, Any]
    noisy: tuple[str, ...]
    coins_known: bool

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """Log-likelihood ratios of ``count`` runs, each with coins of its own."""
        sent = self.draw_sums(self.people[neighbour], count, stream)
        first, second = (self.mean_sums(person) for person in self.people)
        total = np.zeros(count)
        for joined in self.joined(count, stream):
            if self.coins_known and not len(joined):
                continue
            seen = self.noise(count, stream)
            seen[joined] += sent[joined]
            ratios = self._ratio(first, seen), self._ratio(second, seen)
            if self.coins_known:
                total[joined] += (ratios[1] - ratios[0])[joined]
            else:
                total += self._mixed(ratios[1]) - self._mixed(ratios[0])
        return total

    @abstractmethod
    def draw_sums(self, person: Any, count: int, stream: Stream) -> NDArray[np.float64]:
        """What the person adds to the integers of a round, in each of ``count`` runs."""

    @abstractmethod
    def mean_sums(self, person: Any) -> NDArray[np.float64]:
        """The mean of what the person adds to the integers of a round."""

    @abstractmethod
    def draw_noise(self, count: int, stream: Stream) -> NDArray[np.int64]:
        """One owner's noise of one round, in each of ``count`` runs."""

    def joined(self, count: int, stream: Stream) -> Iterator[NDArray[np.int64]]:
        """For each round the runs in which the person is in the batch."""
        # If batches take turns, the person is in the first batch of every run.
        drawn = bytes(4 * count) if self.task.sampling == "disjoint" else stream.bytes(32)
        return iterate_batches(self.task, count, drawn)

    def noise(self, count: int, stream: Stream) -> NDArray[np.float64]:
        """The noise of one round that the observer does not know, in each of ``count`` runs."""
        total = np.zeros((count, self.task.entries))
        for _ in self.noisy:
            total += self.draw_noise(count, stream)
        return total

    def _ratio(self, guess: NDArray[np.float64], seen: NDArray[np.float64]) -> NDArray[np.float64]:
        whole = self.task.additive.unit * self.task.noise
        variance = whole * len(self.noisy) / len(self.task.owners)
        return np.asarray((seen @ guess - guess @ guess / 2) / variance)

    def _mixed(self, ratio: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.log1p(self.task.threshold / COIN * np.expm1(ratio)))
