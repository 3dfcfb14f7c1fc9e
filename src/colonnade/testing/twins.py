"""Broken twins: games in which one thing is wrong on purpose, to show that an audit would notice."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.audit import Game, games
from colonnade.audit.samplers import Batches, Labels, LaplaceShares, OnGrid, Opening
from colonnade.audit.second_moments import Entries
from colonnade.privacy import Observer
from colonnade.privacy.noise import discrete_gaussian
from colonnade.privacy.releases import (
    DiscreteGaussianRelease,
    PoissonSampled,
    Repeated,
    SkellamRelease,
)
from colonnade.randomness import Stream

warnings.warn(
    "colonnade.testing.twins holds mechanisms that are broken on purpose; it is for tests only",
    stacklevel=2,
)


@dataclass(frozen=True)
class Twin:
    """A game's name, who looks, what is broken, and how."""

    subject: str
    role: str
    broken: str
    make: Callable[[Game], Game]
    part: str = ""


def twins(subject: str, task: Any = None) -> tuple[tuple[str, Game], ...]:
    """Every broken twin of a subject's games: what is broken, and the game to play."""
    real = games(subject, task)
    found = []
    for twin in (twin for twin in TWINS if twin.subject == subject):
        fitting = [game for game in real if (game.role, game.part) == (twin.role, twin.part)]
        found += [(twin.broken, twin.make(game)) for game in fitting[:1]]
    return tuple(found)


# --- broken in the sampling


def _scaled(factor: Callable[[Game], Fraction]) -> Callable[[Game], Game]:
    """Every share of the noise, made smaller."""

    def make(game: Game) -> Game:
        sampler = _noisy(game)
        return replace(game, sampler=replace(sampler, shares=tuple((o, s * factor(game)) for o, s in sampler.shares)))

    return make


def _noisy(game: Game) -> Entries | Opening:
    if not isinstance(game.sampler, Entries | Opening):
        raise TypeError(f"{game.name} has no shares of noise")
    return game.sampler


def _gamma_squared(game: Game) -> Fraction:
    return Fraction(1, game.sampler.task.gamma**2) if isinstance(game.sampler, Entries) else Fraction(1)


def _one_share(game: Game) -> Game:
    sampler = _noisy(game)
    return replace(game, sampler=replace(sampler, shares=sampler.shares[:1]))


def _no_noise(game: Game) -> Game:
    return replace(game, sampler=replace(_noisy(game), shares=()))


def _half_scale(game: Game) -> Game:
    sampler = _noisy(game)
    if not (isinstance(sampler, Opening) and isinstance(sampler.law, LaplaceShares)):
        raise TypeError(f"{game.name} has no Laplace noise")
    return replace(game, sampler=replace(sampler, law=LaplaceShares(sampler.law.scale / 2)))


def _half_shares(game: Game) -> Game:
    """Two parties whose shares make up one Laplace variable; the observer is one of them."""
    shares = (("bank", Fraction(1, 2)), ("shop", Fraction(1, 2)))
    return replace(game, sampler=replace(_noisy(game), shares=shares))


@dataclass(frozen=True)
class _TrueLabels(Labels):
    """Labels as they are."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        return self.compare(np.full(count, self.labels[neighbour], dtype=np.int64))


def _true_labels(game: Game) -> Game:
    sampler = game.sampler
    if not isinstance(sampler, Labels):
        raise TypeError(f"{game.name} has no labels")
    return replace(game, sampler=_TrueLabels(sampler.labels, sampler.categories, sampler.odds))


@dataclass(frozen=True)
class _IntegerNoise(OnGrid):
    """A real number with noise on the integers only."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        noise = discrete_gaussian(Fraction(self.deviation) ** 2, count, stream)
        return self.look(np.asarray(self.values[neighbour] + noise, dtype=np.float64))


def _integer_noise(game: Game) -> Game:
    sampler = game.sampler
    if not isinstance(sampler, OnGrid):
        raise TypeError(f"{game.name} is on no grid")
    broken = _IntegerNoise(sampler.values, sampler.grid, sampler.deviation, sampler.fraction)
    return replace(game, sampler=broken)


# --- broken in the claim


def _as_analyst(game: Game) -> Game:
    return replace(game, observer=Observer.analyst(), part=f"seen by {game.observer}")


def _single_sensitivity(game: Game) -> Game:
    """Replacing a person charged like adding one."""
    (event,) = game.events
    if not isinstance(event, SkellamRelease | DiscreteGaussianRelease):
        raise TypeError(f"{game.name} has no such sensitivity")
    return replace(game, events=(replace(event, replace_l1=event.l1, replace_l2_squared=event.l2_squared),))


def _one_round(game: Game) -> Game:
    (event,) = game.events
    if not isinstance(event, Repeated):
        raise TypeError(f"{game.name} has one round")
    return replace(game, events=(event.event,))


def _secret_coins(game: Game) -> Game:
    (event,) = game.events
    if not (isinstance(event, Repeated) and isinstance(event.event, PoissonSampled)):
        raise TypeError(f"{game.name} draws no batches")
    if not (isinstance(game.sampler, Batches) and game.sampler.coins_known):
        raise TypeError(f"{game.name} is not of somebody who knows the coins")
    return replace(game, events=(replace(event, event=replace(event.event, coins=())),))


_HALF = _scaled(lambda game: Fraction(1, 2))

TWINS = (
    Twin("pca", "analyst", "half the variance of the noise", _HALF),
    Twin("pca", "analyst", "only one owner adds its share", _one_share),
    Twin("pca", "analyst", "noise for gamma instead of gamma squared", _scaled(_gamma_squared)),
    Twin("pca", "party", "the analyst's curve shown to a party", _as_analyst),
    Twin("pca", "coalition", "half the variance of the noise", _HALF),
    Twin("skellam", "analyst", "half the variance of the noise", _HALF),
    Twin("skellam", "analyst", "only one owner adds its share", _one_share),
    Twin("skellam", "party", "the analyst's curve shown to a party", _as_analyst),
    Twin("skellam", "party", "sensitivity C instead of 2C for a party", _single_sensitivity),
    Twin("discrete-gaussian", "analyst", "half the variance of the noise", _HALF),
    Twin("discrete-gaussian", "coalition", "the analyst's curve shown to a coalition", _as_analyst),
    Twin("discrete-gaussian", "coalition", "sensitivity C instead of 2C for a coalition", _single_sensitivity),
    Twin("discrete-laplace", "party", "half the scale", _half_scale),
    Twin("discrete-laplace", "party", "half a variable from each of two parties, one of them looking", _half_shares),
    Twin("discrete-laplace", "party", "the exact sum shown to a party", _no_noise),
    Twin("randomised-response", "party", "true labels", _true_labels),
    Twin("grid", "analyst", "noise on the integers, values between them", _integer_noise, "fraction"),
    Twin("rounds", "analyst", "one round charged for twenty", _one_round),
    Twin("poisson-sampled", "party", "known coins charged as secret ones", _secret_coins),
)
