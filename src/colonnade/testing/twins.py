"""Broken twins: games in which one thing is wrong on purpose, to show that an audit would notice.

A protocol registers its twins at the end of this module. :func:`in_sampler` and :func:`in_event` make a broken game
from a change to what is drawn or to what is claimed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from colonnade.audit import Game, Sampler, register_twin
from colonnade.audit.directions import Products
from colonnade.audit.embeddings import Columns, ToldLabels
from colonnade.audit.exchange_messages import NewScores, Transcript
from colonnade.audit.features import Features
from colonnade.audit.functional import Coefficients
from colonnade.audit.gradients import OpenedGradients
from colonnade.audit.levels import ToldLevels
from colonnade.audit.marginals import Cells, Codes
from colonnade.audit.mixture import CountFraction, OpenedSums
from colonnade.audit.samplers import Labels, LaplaceShares, OnGrid, Opening, Shares
from colonnade.audit.second_moments import Entries
from colonnade.audit.sums import Weighed
from colonnade.audit.times import StepsTaken
from colonnade.privacy import Event, Observer
from colonnade.privacy.noise import discrete_gaussian
from colonnade.privacy.noise.response import randomised_response
from colonnade.privacy.releases import (
    DiscreteGaussianRelease,
    PoissonSampled,
    Repeated,
    SkellamRelease,
)
from colonnade.protocols.levels.task import Respondent
from colonnade.randomness import Stream
from colonnade.testing import split

warnings.warn(
    "colonnade.testing.twins holds mechanisms that are broken on purpose; it is for tests only",
    stacklevel=2,
)

Drawn = TypeVar("Drawn", bound=Sampler)
Charged = TypeVar("Charged", bound=Event)
Drawing = TypeVar(
    "Drawing", Entries, Cells, Products, OpenedGradients, OpenedSums, Coefficients, Transcript, NewScores, Columns
)
Noisy = TypeVar("Noisy", Entries, Cells, Products, OpenedGradients, OpenedSums, Weighed)
_ANYTHING = 1e9
_FAR = 30.0  # a score so large that clipping would change it, and so small that its exponential is a number
Additive = TypeVar("Additive", SkellamRelease, DiscreteGaussianRelease)


def in_sampler(kind: type[Drawn], change: Callable[[Drawn], Sampler]) -> Callable[[Game], Game]:
    """A twin whose sampler, of the given kind, is changed: what is drawn is no longer what is claimed."""

    def make(game: Game) -> Game:
        if not isinstance(game.sampler, kind):
            raise TypeError(f"{game.name} does not draw by {kind.__name__} [VA255]")
        return replace(game, sampler=change(game.sampler))

    return make


def in_event(kind: type[Charged], change: Callable[[Charged], Event]) -> Callable[[Game], Game]:
    """A twin whose one event, of the given kind, is changed: less is claimed than is drawn."""

    def make(game: Game) -> Game:
        (event,) = game.events
        if not isinstance(event, kind):
            raise TypeError(f"{game.name} is not charged as {kind.__name__} [VA256]")
        return replace(game, events=(change(event),))

    return make


def as_analyst(game: Game) -> Game:
    """A twin that shows the analyst's curve to somebody who sees more."""
    return replace(game, observer=Observer.analyst(), part=f"seen by {game.observer}")


# --- what is drawn


def quieter(sampler: Drawing, factor: int) -> Drawing:
    """The owners draw for a task with less noise; the claim keeps its own."""
    return replace(sampler, task=sampler.task.with_noise(sampler.task.noise // factor))


def one_owner(sampler: Noisy) -> Noisy:
    """Only the first of the owners draws its noise."""
    return replace(sampler, noisy=sampler.noisy[:1])


def _with_shares(change: Callable[[Shares], Shares]) -> Callable[[Game], Game]:
    return in_sampler(Opening, lambda sampler: replace(sampler, shares=change(sampler.shares)))


def _half_variance(sampler: Opening) -> Opening:
    return replace(sampler, shares=tuple((owner, size / 2) for owner, size in sampler.shares))


def _half_scale(sampler: Opening) -> Opening:
    if not isinstance(sampler.law, LaplaceShares):
        raise TypeError("half a scale is for Laplace noise [VA257]")
    return replace(sampler, law=LaplaceShares(sampler.law.scale / 2))


@dataclass(frozen=True)
class _TrueLabels(Labels):
    """Labels as they are."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        return self.compare(np.full(count, self.labels[neighbour], dtype=np.int64))


@dataclass(frozen=True)
class _LikelierLevels(ToldLevels):
    """The true level is answered as if its odds were 5 % larger."""

    def told(self, asked: Respondent, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        level = np.full(count, asked.levels - 1 if neighbour else 0)
        return randomised_response(level, asked.levels, self.task.odds * Fraction(105, 100), stream)


@dataclass(frozen=True)
class _CutsFromThePeople(ToldLevels):
    """There are two people, and parts are cut at the mean of both: so the answer about the other one changes, too."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        return super().__call__(neighbour, count, stream) - super().__call__(1 - neighbour, count, stream)


@dataclass(frozen=True)
class _IntegerNoise(OnGrid):
    """A real number with noise on the integers only."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        noise = discrete_gaussian(Fraction(self.deviation) ** 2, count, stream)
        return self.look(np.asarray(self.values[neighbour] + noise, dtype=np.float64))


@dataclass(frozen=True)
class _OneBlockTwice(Cells):
    """The block that moves most is opened twice, with fresh noise."""

    def times(self, index: int) -> int:
        task, change = self.task, (self.sums[1] - self.sums[0]).astype(float)
        parts = [slice(*ends) for ends in pairwise(task.starts)]
        most = max(parts, key=lambda part: float(change[part] @ change[part]))
        return 2 if most.start <= index < most.stop else 1


@dataclass(frozen=True)
class _NotCentred(Cells):
    """Coordinates that are n times one-hot, and not one less."""

    def added(self, person: Codes) -> NDArray[np.int64]:
        found = []
        for block in self.task.asked:
            cells = np.array(block.weight)
            for column in block.columns:
                size = self.task.sizes[column]
                raw = size * np.eye(size, dtype=np.int64)[person[column]]
                cells = np.multiply.outer(cells, raw[:1] if size == 2 else raw)
            found.append(cells.reshape(-1))
        return np.concatenate(found)


@dataclass(frozen=True)
class _WholePeople(CountFraction):
    """Noise of whole people on sums that have fractions."""

    def noise(self, count: int, stream: Stream) -> NDArray[np.float64]:
        task = self.task
        coarse = replace(task.additive, scale=max(1, task.noise // task.gamma**2))
        drawn = [coarse.draw((count, task.entries), stream) for _ in self.noisy]
        return np.asarray(sum(drawn) * float(task.gamma))


@dataclass(frozen=True)
class _FreshNoise(Transcript):
    """Each receiver gets the message with fresh noise, and all receivers compare what they got."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        heard = [super(_FreshNoise, self).__call__(neighbour, count, stream) for _ in self.task.passives]
        return np.asarray(np.mean(heard, axis=0))


@dataclass(frozen=True)
class _ExactWeights(Transcript):
    """Weights without noise, and an attacker who looks at nothing else."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        weights = [part for part in self.parts if part.weights]
        return np.full(count, sum(part.values[neighbour] @ part.weighed(self.task) for part in weights))


def _fresh_noise(sampler: Transcript) -> Transcript:
    return _FreshNoise(sampler.task, sampler.played, sampler.tellers)


def _exact_weights(game: Game) -> Game | None:
    """Released weights without noise; ``None`` if the task releases no weights."""
    sampler = _of_exchange(game)
    if not sampler.task.release:
        return None
    return replace(game, sampler=_ExactWeights(sampler.task, sampler.played, sampler.tellers))


def _of_exchange(game: Game) -> Transcript:
    if not isinstance(game.sampler, Transcript):
        raise TypeError(f"{game.name} does not draw by Transcript [VA258]")
    return game.sampler


def _unclipped_slopes(sampler: Transcript) -> Transcript:
    return replace(sampler, played=replace(sampler.played, message_clip=_ANYTHING))


def _unclipped_scores(sampler: Transcript) -> Transcript:
    sides = tuple(replace(side, score_clip=_ANYTHING) for side in sampler.played.sides)
    return replace(sampler, played=replace(sampler.played, sides=sides))


def _unclipped_own(sampler: Transcript) -> Transcript:
    family = replace(sampler.played.family, reach=_FAR)
    return replace(sampler, played=replace(sampler.played, family=family))


# --- what is claimed


def _single_sensitivity(event: Additive) -> Additive:
    """Replacing a person is charged like adding one."""
    return replace(event, replace_l1=event.l1, replace_l2_squared=event.l2_squared)


def _secret_coins(event: Repeated) -> Repeated:
    if not isinstance(event.event, PoissonSampled):
        raise TypeError("coins are for batches [VA259]")
    return replace(event, event=replace(event.event, coins=()))


def _one_epoch(game: Game) -> Game | None:
    """One epoch charged for all of them; ``None`` if there is one epoch only, or if an epoch is a single step."""
    task = _of_exchange(game).task
    if task.epochs == 1 or (task.method == "gradient" and task.batches == 1):
        return None
    once = {event.name: event for event in replace(task, epochs=1).events}
    names = ("l1", "l2_squared", "replace_l1", "replace_l2_squared")
    charged = [replace(event, **{name: getattr(once[event.name], name) for name in names}) for event in game.events]
    return replace(game, events=tuple(charged))


def charged_once(game: Game) -> Game | None:
    """Whatever is repeated is charged as if it happened once; ``None`` if nothing is repeated."""
    if not any(isinstance(event, Repeated) for event in game.events):
        return None
    return replace(game, events=tuple(event.event if isinstance(event, Repeated) else event for event in game.events))


# --- the twins

HALF = "half the variance of the noise"
ONE_OWNER = "only one owner adds its share"
TO_PARTY, TO_COALITION = (f"the analyst's curve shown to a {who}" for who in ("party", "coalition"))
COINS = "known coins charged as secret ones"

PCA_HALF = in_sampler(Entries, lambda s: quieter(s, 2))
register_twin("pca", "analyst", HALF, PCA_HALF)
register_twin("pca", "analyst", ONE_OWNER, in_sampler(Entries, one_owner))
GAMMA = in_sampler(Entries, lambda s: quieter(s, s.task.gamma**2))
register_twin("pca", "analyst", "noise for gamma instead of gamma squared", GAMMA)
register_twin("pca", "party", TO_PARTY, as_analyst)
register_twin("pca", "coalition", HALF, PCA_HALF)

MARGINALS_HALF = in_sampler(Cells, lambda s: quieter(s, 2))
BLOCK_TWICE = in_sampler(Cells, lambda s: _OneBlockTwice(s.task, s.people, s.noisy))
NOT_CENTRED = in_sampler(Cells, lambda s: _NotCentred(s.task, s.people, s.noisy))
register_twin("marginals", "analyst", HALF, MARGINALS_HALF)
register_twin("marginals", "analyst", ONE_OWNER, in_sampler(Cells, one_owner))
register_twin("marginals", "analyst", "a block charged once and released twice", BLOCK_TWICE)
register_twin("marginals", "analyst", "centred coordinates charged, one-hot ones released", NOT_CENTRED)
register_twin("marginals", "party", TO_PARTY, as_analyst)
register_twin("marginals", "party", "a block charged once and released twice", BLOCK_TWICE)
register_twin("marginals", "coalition", HALF, MARGINALS_HALF)

POWER_HALF = in_sampler(Products, lambda s: quieter(s, 2))
TWICE = in_sampler(Products, lambda s: replace(s, again=True))
register_twin("pca-power", "analyst", HALF, POWER_HALF)
register_twin("pca-power", "analyst", ONE_OWNER, in_sampler(Products, one_owner))
register_twin("pca-power", "analyst", "the same direction asked twice", TWICE)
register_twin("pca-power", "party", TO_PARTY, as_analyst)
register_twin("pca-power", "coalition", HALF, POWER_HALF)

ONCE = "sensitivity C instead of 2C for a"
register_twin("skellam", "analyst", HALF, in_sampler(Opening, _half_variance))
register_twin("skellam", "analyst", ONE_OWNER, _with_shares(lambda shares: shares[:1]))
register_twin("skellam", "party", TO_PARTY, as_analyst)
register_twin("skellam", "party", f"{ONCE} party", in_event(SkellamRelease, _single_sensitivity))

register_twin("discrete-gaussian", "analyst", HALF, in_sampler(Opening, _half_variance))
register_twin("discrete-gaussian", "coalition", TO_COALITION, as_analyst)
GAUSSIAN_ONCE = in_event(DiscreteGaussianRelease, _single_sensitivity)
register_twin("discrete-gaussian", "coalition", f"{ONCE} coalition", GAUSSIAN_ONCE)

TWO_HALVES = _with_shares(lambda shares: (("bank", Fraction(1, 2)), ("shop", Fraction(1, 2))))
EXACT = _with_shares(lambda shares: ())
register_twin("discrete-laplace", "party", "half the scale", in_sampler(Opening, _half_scale))
register_twin("discrete-laplace", "party", "half a variable from each of two parties, one of them looking", TWO_HALVES)
register_twin("discrete-laplace", "party", "the exact sum shown to a party", EXACT)

TRUE_LABELS = in_sampler(Labels, lambda s: _TrueLabels(s.labels, s.categories, s.odds))
INTEGER_NOISE = in_sampler(OnGrid, lambda s: _IntegerNoise(s.values, s.grid, s.deviation, s.fraction))
register_twin("randomised-response", "party", "true labels", TRUE_LABELS)
register_twin("grid", "analyst", "noise on the integers, values between them", INTEGER_NOISE, part="fraction")
register_twin("rounds", "analyst", "one round charged for twenty", in_event(Repeated, lambda event: event.event))
register_twin("poisson-sampled", "party", COINS, in_event(Repeated, _secret_coins))

SQM_HALF = in_sampler(OpenedGradients, lambda s: quieter(s, 2))
EVERYBODY = in_sampler(OpenedGradients, lambda s: replace(s, task=replace(s.task, batch=s.task.rows)))
register_twin("sqm", "analyst", HALF, SQM_HALF)
register_twin("sqm", "analyst", ONE_OWNER, in_sampler(OpenedGradients, one_owner))
register_twin("sqm", "analyst", "everybody in every batch, charged as sampled", EVERYBODY)
register_twin("sqm", "party", TO_PARTY, as_analyst)
register_twin("sqm", "party", COINS, in_event(Repeated, _secret_coins))
register_twin("sqm", "coalition", HALF, SQM_HALF)

MIXTURE_HALF = in_sampler(OpenedSums, lambda s: quieter(s, 2))
WHOLE_PEOPLE = in_sampler(CountFraction, lambda s: _WholePeople(s.task, s.people, s.noisy, s.coins_known))
register_twin("mixture", "analyst", HALF, MIXTURE_HALF)
register_twin("mixture", "analyst", ONE_OWNER, in_sampler(OpenedSums, one_owner))
register_twin("mixture", "analyst", "noise of whole people, sums with fractions", WHOLE_PEOPLE, part="fraction")
register_twin("mixture", "party", TO_PARTY, as_analyst)
register_twin("mixture", "party", COINS, in_event(Repeated, _secret_coins))
register_twin("mixture", "coalition", HALF, MIXTURE_HALF)

FM_EXACT = in_sampler(Coefficients, lambda s: replace(s, noisy=()))
FM_TO_ONE = "shares of a whole variable that one of the owners can subtract from"
FM_KNOWN = in_sampler(Coefficients, lambda s: replace(s, task=replace(s.task, known=0)))
register_twin("functional", "analyst", "a third of the scale", in_sampler(Coefficients, lambda s: quieter(s, 3)))
register_twin("functional", "party", "the exact coefficients shown to a party", FM_EXACT)
register_twin("functional", "coalition", "half the scale", in_sampler(Coefficients, lambda s: quieter(s, 2)))
register_twin("functional", "coalition", FM_TO_ONE, FM_KNOWN)

register_twin("polynomial", "analyst", ONE_OWNER, in_sampler(Weighed, one_owner))
register_twin("polynomial", "party", TO_PARTY, as_analyst)
LIKELIER = in_sampler(ToldLevels, lambda sampler: _LikelierLevels(sampler.task, sampler.observer))
FROM_PEOPLE = in_sampler(ToldLevels, lambda sampler: _CutsFromThePeople(sampler.task, sampler.observer))
register_twin("prediction-levels", "party", "odds that are 5 % too large", LIKELIER)
register_twin("prediction-levels", "party", "cuts that depend on the people asked about", FROM_PEOPLE)
register_twin("prediction", "party", ONE_OWNER, in_sampler(Weighed, one_owner))

EVERY_EPOCH = "all epochs charged as one"
FRESH = "fresh noise for each party that is told"
UNCLIPPED, UNCLIPPED_SCORES, UNCLIPPED_OWN, FRESH_NOISE, EXCHANGE_HALF = (
    in_sampler(Transcript, change)
    for change in (_unclipped_slopes, _unclipped_scores, _unclipped_own, _fresh_noise, lambda s: quieter(s, 2))
)
for method in ("glm-alternating", "glm-gradient"):
    register_twin(method, "party", "received slopes used without clipping", UNCLIPPED, part="scores")
    register_twin(method, "party", "scores told without clipping", UNCLIPPED_SCORES, part="scores")
    register_twin(method, "party", EVERY_EPOCH, _one_epoch, part="scores")
    register_twin(method, "party", HALF, EXCHANGE_HALF, part="scores")
    register_twin(method, "coalition", FRESH, FRESH_NOISE, part="slopes")
    register_twin(method, "coalition", EVERY_EPOCH, _one_epoch, part="slopes")
SLOPES = "slopes told of scores that were not clipped"
register_twin("glm-alternating", "coalition", SLOPES, UNCLIPPED_OWN, part="slopes")
register_twin("glm-gradient", "party", "released weights without noise", _exact_weights, part="scores")
register_twin("glm-prediction", "party", HALF, in_sampler(NewScores, lambda s: quieter(s, 2)))
ENDS = "a fit that ends when it is near enough"
register_twin("time", "party", ENDS, in_sampler(StepsTaken, lambda s: replace(s, certified=False)), part="slopes")

EVERY_RELEASE = "twenty releases charged as one"
STRETCHED = "embeddings stretched to the clip as published"
SPLIT_HALF, UNCLIPPED_EMBEDDINGS, TWENTY, PUBLISHED = (
    in_sampler(Columns, change)
    for change in (lambda s: quieter(s, 2), split.unclipped, split.over_and_over, split.stretched)
)
register_twin("split-embeddings", "party", HALF, SPLIT_HALF, part="embedding")
register_twin("split-embeddings", "party", "embeddings told without clipping", UNCLIPPED_EMBEDDINGS, part="embedding")
register_twin("split-embeddings", "party", EVERY_RELEASE, TWENTY, part="embedding")
register_twin("split-embeddings", "party", STRETCHED, PUBLISHED, part="embedding")

SILENT = in_sampler(Columns, lambda s: split.SilentUpdates(s.task, s.tellers))
UNBOUNDED = in_sampler(Columns, lambda s: split.UnboundedGradients(s.task, s.tellers))
TAUGHT = in_sampler(ToldLabels, lambda s: split.TrueLabels(s.task, s.beside))
register_twin("split-training", "party", "updates of the encoder without noise", SILENT, part="update")
register_twin("split-training", "party", "gradients summed without clipping each", UNBOUNDED, part="update")
register_twin("split-training", "party", EVERY_EPOCH, charged_once, part="update")
register_twin("split-training", "party", "slopes made of true labels", TAUGHT, part="labels")

FEATURES_HALF = in_sampler(Features, split.half_the_noise)
IN_SECRET = in_sampler(Features, split.trained_in_secret)
register_twin("split-moments", "analyst", HALF, FEATURES_HALF)
register_twin("split-moments", "analyst", "encoders that learned from the rows, uncharged", IN_SECRET)
register_twin("split-moments", "party", TO_PARTY, as_analyst)
register_twin("split-moments", "analyst", "training before moments, not charged", split.only_moments, part="trained")
