"""Scores of new people as a party sends them, with its noise, and what the receiver makes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.glm.exchange.fits import Matrix, Vector, believed
from colonnade.kinds.glm.exchange.last_fit import clipped_normal
from colonnade.kinds.glm.exchange.sides import KeptWeights
from colonnade.kinds.glm.kept_scores.task import KeptScoresTask
from colonnade.protocols.messages import own_noise
from colonnade.protocols.rows import KnownPeople
from colonnade.randomness import Stream

Integers = NDArray[np.int64]
_LONGER = 1.5  # of the usual blur: that of rows three quarters as long as their bound
_DOUBT = 0.1  # relative error of the usual variance of what is received
_SHIFT = 0.1  # as part of the variance of scores: how far the mean of new people may be from what was foreseen


@dataclass(frozen=True)
class New(KnownPeople):
    """One owner's rows of new people, with the constant, and its own weights for them."""

    ids: Sequence[str]
    rows: Matrix
    weights: Vector
    own_ids: Sequence[str] | None = None

    @property
    def scores(self) -> Vector:
        """The exact scores, which never leave this owner."""
        found: Vector = self.rows @ self.weights
        return found


@dataclass(frozen=True)
class Answers:
    """What the active party has in the end: its own rows, and the others' scores as received, with their noise."""

    task: KeptScoresTask
    new: New
    received: Mapping[str, Vector]

    def joint(self, kept: KeptWeights) -> Vector:
        """The joint scores, by the factors and the expectations that the active party kept."""
        return self.weighed(kept).scores

    def weighed(self, kept: KeptWeights) -> Weighed:
        """The joint scores with the variance that is left of what is not known, and both by own columns alone."""
        scores, own = self.new.scores, self.new.scores
        hidden = unheard = 0.0
        for name, factor in kept.factors.items():
            clip = self.task.sender(name).score_clip
            foreseen, spread = self.new.rows @ kept.expected[name], kept.spreads.get(name)
            news = self.received[name] - foreseen
            noise, blur = self.task.deviation(name) ** 2, self.task.blur(name) ** 2
            if spread is None:
                expected = believed(news, clip, noise, blur)
                spread, middle, share, left = (clip / 2) ** 2, expected.middle, expected.share, 1 - expected.share
                left *= expected.signal
            else:
                middle, share, left = _weighed_again(news, clip, noise, blur, spread)
            scores = scores + factor * (foreseen + middle + share * (news - news.mean()))
            own = own + factor * foreseen
            hidden += factor**2 * left
            unheard += factor**2 * spread
        return Weighed(scores, hidden, own, unheard)


@dataclass(frozen=True)
class Weighed:
    """Joint scores and what is not known of them, as a variance; then the same by own columns alone."""

    scores: Vector
    hidden: float
    own: Vector
    unheard: float


def _weighed_again(news: Vector, clip: float, noise: float, blur: float, spread: float) -> tuple[float, float, float]:
    """What is believed of scores around what was foreseen, whose variance the fit told: middle, share, variance left.

    The blur is drawn once for all people, and what is received tells how large it is; ``blur`` is its usual variance.
    A clip lets only a part of blurred scores through.
    """
    passed, clipped = clipped_normal(clip, math.sqrt(spread + _LONGER * blur))
    usual = noise + clipped**2
    error, doubt = 2 * usual**2 / len(news), (blur + _DOUBT * usual) ** 2
    whole = max((float(news.var()) * doubt + usual * error) / (doubt + error), noise + passed * spread)
    middle = float(news.mean()) * _SHIFT * spread / (_SHIFT * spread + noise / len(news) + blur)
    share = passed * spread / whole
    return middle, share, spread * (1 - passed * share)


def noised(new: New, name: str, task: KeptScoresTask, stream: Stream) -> Integers:
    """One owner's message: scores with blurred weights, clipped, on the grid, with its noise."""
    blur = own_noise(name, task.weights_variance(name)).draw((len(new.weights),), stream)
    blurred = task.grid.real(task.grid.quantise(new.weights) + blur)
    clip = task.sender(name).score_clip
    clipped = np.clip(new.rows @ blurred, -clip, clip)
    return task.grid.quantise(clipped) + own_noise(name, task.score_variance(name)).draw((len(clipped),), stream)
