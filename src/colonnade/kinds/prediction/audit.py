"""Games about joint scores and about levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.mechanisms import WeightedSumSampler
from colonnade.audit.registry import Game, register
from colonnade.kinds.prediction.randomised_answers import answer_at_random
from colonnade.kinds.prediction.task import QuantisedAnswers, Respondent, ScorePart, Scores
from colonnade.privacy import Observer, Trust, least_noise, parse_budgets
from colonnade.privacy.calibrate import add_least_noise
from colonnade.randomness import Stream


@dataclass(frozen=True)
class LevelSampler:
    """One new person's levels as all who are asked tell them: the number of highest answers less that of lowest ones.

    All answers have the same odds, so this difference is all that the answers tell about which of both it was.
    """

    task: QuantisedAnswers
    observer: tuple[str, ...] = ()

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        """The difference in each of ``count`` runs."""
        total = np.zeros(count, dtype=np.int64)
        for asked in self.task.asked:
            if asked.owner not in self.observer:
                total += self.compare(self.told(asked, neighbour, count, stream), asked)
        return total

    def told(self, asked: Respondent, neighbour: int, count: int, stream: Stream) -> NDArray[np.int64]:
        """The answers of one owner, whose part is beyond the last cut or below the first."""
        value = (asked.cuts[-1] + 1 if neighbour else asked.cuts[0] - 1) / self.task.gamma
        return answer_at_random(np.full(count, value), asked, self.task, stream)

    def compare(self, seen: NDArray[np.int64], asked: Respondent) -> NDArray[np.int64]:
        """Which of the two levels each answer is: 1 for the highest, -1 for the lowest."""
        return np.asarray((seen == asked.levels - 1).astype(np.int64) - (seen == 0))


def _levels_example() -> QuantisedAnswers:
    """Levels of two parties, for the bank; epsilon 1 against everyone."""
    asked = (Respondent("shop", (-300, 250)), Respondent("clinic", (0,)))
    trust = Trust(("bank", "shop", "clinic"), (), 0)
    task = QuantisedAnswers(trust, "bank", asked, gamma=1000, rows_at_most=1000)
    return add_least_noise(task.with_noise, trust, parse_budgets(1.0, 1e-5, trust), owners=1)


@register("prediction-levels", "one person's levels, told to one party", _levels_example)
def level_games(task: QuantisedAnswers) -> Iterator[Game]:
    """The party that is told, alone and with one of those who are asked, where somebody else is left to be asked."""
    story = "the others' parts at their lowest levels or their highest; the answers"
    groups = [(task.to,), *((task.to, each.owner) for each in task.asked[:1] if len(task.asked) > 1)]
    for names in groups:
        observer = Observer.party(*names) if len(names) == 1 else Observer.coalition(*names)
        yield Game("prediction-levels", observer, story, task.events, task.trust, LevelSampler(task, names))


def _noise(task: Scores, count: int, stream: Stream) -> NDArray[np.int64]:
    return task.additive.draw((count, task.classes), stream)


def _scores_example() -> Scores:
    """The scores of people that three parties know, for the bank; epsilon 1 against it."""
    owners = ("bank", "shop", "clinic")
    trust, parts = Trust(owners, owners, 1), tuple(ScorePart(owner, (-1000,), (1000,)) for owner in owners)

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
            sampler = WeightedSumSampler((values[0], values[1]), partial(_noise, task), task.dealers)
            story = "the others' columns at one end or the other; the opened score"
            yield Game("prediction", observer, story, task.events, task.trust, sampler)
