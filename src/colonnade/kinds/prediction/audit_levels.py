"""Games about levels of scores: whoever is told them looks for a new person at the lowest level, or at the highest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.registry import Game, register
from colonnade.kinds.prediction.levels.programs import answers
from colonnade.kinds.prediction.levels.task import Levels, Respondent
from colonnade.privacy import Observer, Trust, parse_budgets
from colonnade.privacy.calibrate import with_least_noise
from colonnade.randomness import Stream


@dataclass(frozen=True)
class ToldLevels:
    """One new person's levels as all who are asked tell them: the number of highest answers less that of lowest ones.

    All answers have the same odds, so this difference is all that the answers tell about which of both it was.
    """

    task: Levels
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
        return answers(np.full(count, value), asked, self.task, stream)

    def compare(self, seen: NDArray[np.int64], asked: Respondent) -> NDArray[np.int64]:
        """Which of the two levels each answer is: 1 for the highest, -1 for the lowest."""
        return np.asarray((seen == asked.levels - 1).astype(np.int64) - (seen == 0))


def _example() -> Levels:
    """Levels of two parties, for the bank; epsilon 1 against everyone."""
    asked = (Respondent("shop", (-300, 250)), Respondent("clinic", (0,)))
    trust = Trust(("bank", "shop", "clinic"), (), 0)
    task = Levels(trust, "bank", asked, gamma=1000, rows_at_most=1000)
    return with_least_noise(task.with_noise, trust, parse_budgets(1.0, 1e-5, trust), owners=1)


@register("prediction-levels", "one person's levels, told to one party", _example)
def level_games(task: Levels) -> Iterator[Game]:
    """The party that is told, alone and with one of those who are asked, where somebody else is left to be asked."""
    story = "the others' parts at their lowest levels or their highest; the answers"
    groups = [(task.to,), *((task.to, each.owner) for each in task.asked[:1] if len(task.asked) > 1)]
    for names in groups:
        observer = Observer.party(*names) if len(names) == 1 else Observer.coalition(*names)
        yield Game("prediction-levels", observer, story, task.events, task.trust, ToldLevels(task, names))
