"""Broken twins of the games about messages of an exchange, new scores and times."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from colonnade.audit import Game
from colonnade.kinds.glm.audit import ExchangeTranscript, NewScoresSampler, StepCountSampler
from colonnade.randomness import Stream
from research.twins.broken import EVERY_EPOCH, HALF, in_sampler, quieter
from research.twins.registry import register_twin

_ANYTHING = 1e9
_FAR = 30.0  # a score so large that clipping would change it, and so small that its exponential is a number


@dataclass(frozen=True)
class _FreshNoise(ExchangeTranscript):
    """Each receiver gets the message with fresh noise, and all receivers compare what they got."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        heard = [super(_FreshNoise, self).__call__(neighbour, count, stream) for _ in self.task.passives]
        return np.asarray(np.mean(heard, axis=0))


@dataclass(frozen=True)
class _ExactWeights(ExchangeTranscript):
    """Weights without noise, and an attacker who looks at nothing else."""

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        weights = [part for part in self.parts if part.weights]
        return np.full(count, sum(part.values[neighbour] @ part.weighed(self.task) for part in weights))


def _fresh_noise(sampler: ExchangeTranscript) -> ExchangeTranscript:
    return _FreshNoise(sampler.task, sampler.played, sampler.tellers)


def _exact_weights(game: Game) -> Game | None:
    """Released weights without noise; ``None`` if the task releases no weights."""
    sampler = _of_exchange(game)
    if not sampler.task.release:
        return None
    return replace(game, sampler=_ExactWeights(sampler.task, sampler.played, sampler.tellers))


def _of_exchange(game: Game) -> ExchangeTranscript:
    if not isinstance(game.sampler, ExchangeTranscript):
        raise TypeError(f"{game.name} does not draw by Transcript [VA258]")
    return game.sampler


def _unclipped_slopes(sampler: ExchangeTranscript) -> ExchangeTranscript:
    return replace(sampler, played=replace(sampler.played, message_clip=_ANYTHING))


def _unclipped_scores(sampler: ExchangeTranscript) -> ExchangeTranscript:
    sides = tuple(replace(side, score_clip=_ANYTHING) for side in sampler.played.sides)
    return replace(sampler, played=replace(sampler.played, sides=sides))


def _unclipped_own(sampler: ExchangeTranscript) -> ExchangeTranscript:
    family = replace(sampler.played.family, reach=_FAR)
    return replace(sampler, played=replace(sampler.played, family=family))


def _one_epoch(game: Game) -> Game | None:
    """One epoch charged for all of them; ``None`` if there is one epoch only, or if an epoch is a single step."""
    task = _of_exchange(game).task
    if task.epochs == 1 or (task.method == "gradient" and task.batches == 1):
        return None
    once = {event.name: event for event in replace(task, epochs=1).events}
    names = ("l1", "l2_squared", "replace_l1", "replace_l2_squared")
    charged = [replace(event, **{name: getattr(once[event.name], name) for name in names}) for event in game.events]
    return replace(game, events=tuple(charged))


FRESH = "fresh noise for each party that is told"
UNCLIPPED, UNCLIPPED_SCORES, UNCLIPPED_OWN, FRESH_NOISE, EXCHANGE_HALF = (
    in_sampler(ExchangeTranscript, change)
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
register_twin("glm-prediction", "party", HALF, in_sampler(NewScoresSampler, lambda s: quieter(s, 2)))
ENDS = "a fit that ends when it is near enough"
register_twin("time", "party", ENDS, in_sampler(StepCountSampler, lambda s: replace(s, certified=False)), part="slopes")
