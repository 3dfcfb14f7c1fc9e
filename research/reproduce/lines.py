"""What several tables share: our models on a split of people, computed in one place, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from colonnade.kinds import LinearRegression, LogisticRegression
from research.reproduce import chance
from research.reproduce.census import People
from research.reproduce.chance import Matrix, Places
from research.reproduce.options import Options

Model = LinearRegression | LogisticRegression
Worth = Callable[[Matrix, Matrix], float]


def accuracy(scores: Matrix, labels: Matrix) -> float:
    """The share of people on the right side of zero."""
    return float(np.mean((scores > 0) == (labels > 0.5)))


def mean_squared_error(predicted: Matrix, labels: Matrix) -> float:
    """The mean of the squared differences."""
    return float(np.mean((predicted - labels) ** 2))


class Splits:
    """The same splits of one data set for every method."""

    def __init__(self, people: People, options: Options, runs: int | None = None, train: float = 0.8) -> None:
        self.people, self.options, self.train = people, options, train
        self.runs = options.runs if runs is None else runs

    def __iter__(self) -> Iterator[tuple[int, Places, Places]]:
        for run in range(self.runs):
            self.options.progress(self.people.name[:20], run, self.runs)
            yield run, *chance.split(len(self.people.label), run, self.options.seed, self.train)
        self.options.progress(self.people.name[:20], self.runs, self.runs)


class Ours:
    """One of the library's models, planned once and simulated on each split."""

    def __init__(self, people: People, make: Callable[..., Model], seed: int, **parameters: Any) -> None:
        self.people, self.seed, self.parameters = people, seed, parameters
        self.model = make(label=people.dataset.label, **parameters)
        self.task = self.model.plan(people.roster)

    def scores(self, run: int, train: Places, test: Places) -> Matrix:
        """What the model that would be published says of the test people."""
        source = chance.stream(self.seed, self.people.name, sorted(map(str, self.parameters.items())), run)
        self.model.simulate(self.people.part(train), self.people.roster, source, task=self.task)
        found: Matrix = self.model.scores(self.people.features[test], encoded=True)[:, 0]
        return found
