"""Games of one person's joint score, opened to one party: the receiver weighs each number by how much it differs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.registry import Game, register
from colonnade.audit.samplers import Weighed
from colonnade.kinds.prediction.scores.task import Part, Scores
from colonnade.privacy import Observer, Trust, least_noise, parse_budgets
from colonnade.randomness import Stream


def _noise(task: Scores, count: int, stream: Stream) -> NDArray[np.int64]:
    return task.additive.draw((count, task.classes), stream)


def _scores_example() -> Scores:
    """The scores of people that three parties know, for the bank; epsilon 1 against it."""
    owners = ("bank", "shop", "clinic")
    trust, parts = Trust(owners, owners, 1), tuple(Part(owner, (-1000,), (1000,)) for owner in owners)

    def task(noise: int) -> Scores:
        return Scores(parts, trust, to="bank", gamma=1000, rows_at_most=1000, noise=noise)

    budgets = parse_budgets({"bank": 1.0}, 1e-5, trust)
    return task(least_noise(lambda noise: task(noise).events, trust, budgets, owners=2))


@register(
    "prediction",
    "one person's joint score, opened to one party",
    _scores_example,
)
def prediction_games(task: Scores) -> Iterator[Game]:
    """The party that gets the score, alone and with the coordinator: one end of the others' scores, or the other."""
    values = tuple(
        tuple(sum(ends) for ends in zip(*sides, strict=True))
        for sides in ([part.low for part in task.dealt], [part.high for part in task.dealt])
    )
    for observer in (Observer.party(task.to), Observer.coalition(task.to, "coordinator")):
        if task.trust.broken(observer) is None:
            sampler = Weighed((values[0], values[1]), partial(_noise, task), task.dealers)
            story = "the others' columns at one end or the other; the opened score"
            yield Game("prediction", observer, story, task.events, task.trust, sampler)
