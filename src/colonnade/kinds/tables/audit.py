"""Games of marginals in one release, with the protocol's own coordinates and noise.

Two people differ where it moves the opened numbers furthest; against the analyst, somebody is there or nobody. The
observer weighs each opened number by how much it differs between the tables, which is the best statistic for nearly
Gaussian noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.registry import Game, Sampler, describe_neighbours, observers, register
from colonnade.kinds.tables import programs
from colonnade.kinds.tables.sensitivity import furthest_change
from colonnade.kinds.tables.stages import StagedMarginals
from colonnade.kinds.tables.task import CodedColumn, MarginalQuery, Marginals
from colonnade.privacy import Observer, Trust, parse_budgets
from colonnade.randomness import Stream

Codes = tuple[int, ...]
_MOST_CELLS = 64
"""More numbers take long to draw, and those that differ little show nothing in the noise."""


@dataclass(frozen=True)
class MarginalCellSampler:
    """The opened numbers that differ most between two tables, each weighed by how much it differs.

    ``people`` are the codes of the one person in each table; ``None`` is a table without a row. ``noisy`` are the
    owners whose noise the observer cannot subtract.
    """

    task: Marginals
    people: tuple[Codes | None, Codes]
    noisy: tuple[str, ...]

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """The weighed sum of the opened numbers, for ``count`` runs of the protocol."""
        total = np.zeros(count)
        for index in self.moved.tolist():
            for _ in range(self.times(index)):
                seen = np.full(count, self.sums[neighbour][index])
                for _ in self.noisy:
                    seen += self.task.additive.draw((count,), stream)
                total += self.moves[index] * seen
        return total

    def times(self, index: int) -> int:
        """How often a number is opened."""
        return 1

    def contribution(self, person: Codes) -> NDArray[np.int64]:
        """What a person adds to all opened numbers, by the protocol's own coordinates."""
        found = []
        for block in self.task.asked:
            cells = np.ones((1, 1))
            for column in block.columns:
                own = programs.coordinates(np.array([float(person[column])]), self.task.sizes[column])
                cells = (cells[:, :, None] * own[:, None, :]).reshape(1, -1)
            found.append(block.weight * programs.complete_block(self.task, block.columns, cells)[0])
        return np.concatenate(found).astype(np.int64)

    @cached_property
    def sums(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The exact numbers of both tables."""
        first, second = self.people
        after = self.contribution(second)
        return np.zeros_like(after) if first is None else self.contribution(first), after

    @cached_property
    def largest(self) -> int:
        """How much the number that differs most does."""
        return max(1, int(np.abs(self.sums[1] - self.sums[0]).max()))

    @cached_property
    def moves(self) -> NDArray[np.float64]:
        """How much each number differs, scaled to at most one."""
        return np.asarray((self.sums[1] - self.sums[0]) / self.largest)

    @cached_property
    def moved(self) -> NDArray[np.intp]:
        """The numbers that differ most, only the first few of them."""
        order = np.argsort(-np.abs(self.moves), kind="stable")
        found: NDArray[np.intp] = order[self.moves[order] != 0][:_MOST_CELLS]
        return found


@dataclass(frozen=True)
class StagedMarginalSampler:
    """The numbers of both stages; as the noise on all of them is the same, so is the weight of a difference."""

    stages: tuple[MarginalCellSampler, ...]

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """The weighed sum of the opened numbers of all stages, for ``count`` runs of the protocol."""
        found = [stage.largest * stage(neighbour, count, stream) for stage in self.stages]
        return np.asarray(np.sum(found, axis=0))


def find_furthest_codes(task: Marginals, observer: Observer) -> tuple[Codes | None, Codes]:
    """Two people whom the observer must not tell apart and who are as far apart as two can be.

    Where members are hidden, the observer's own columns differ too: which of its rows counts is what it must not learn.
    """
    first = (0,) * len(task.coded)
    if observer == Observer.analyst():
        return None, first
    known = () if task.hidden else observer.names
    changing = [place for place, column in enumerate(task.coded) if column.owner not in known]
    differ = furthest_change(task.sizes, [(block.columns, block.weight) for block in task.asked], changing)
    return first, tuple(int(place in differ) for place in range(len(task.coded)))


def _example() -> Marginals:
    """A label and three columns of three owners, most exact where all meet; epsilon 1 against the analyst."""
    coded = (
        CodedColumn("bank", "label", 2),
        CodedColumn("bank", "region", 3),
        CodedColumn("shop", "kind", 3),
        CodedColumn("clinic", "band", 2),
    )
    weights = {(): 2, (0,): 3, (1,): 3, (2,): 3, (3,): 3, (0, 1): 2, (0, 2): 3, (1, 3): 1, (2, 3): 1, (0, 2, 3): 8}
    asked = tuple(MarginalQuery(columns, 128 * weight) for columns, weight in weights.items())
    owners = ("bank", "shop", "clinic")
    trust = Trust(owners, owners, 1)
    task = Marginals(coded, asked, trust, rows_at_most=1 << 20, noise=len(owners), label=0)
    return task.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, trust))


@register("marginals", "all marginals of everyone's coded columns, opened once", _example)
def marginals_games(task: Marginals | StagedMarginals) -> Iterator[Game]:
    """Every observer within the threshold, one for all who are in the same position."""
    stages = task.stages
    for observer, noisy in observers(task):
        # How far apart people are depends only on where their codes differ, so the same two serve for all stages.
        people = find_furthest_codes(stages[-1], observer)
        tables = describe_neighbours(observer)
        if task.hidden and people[0] is not None:
            tables = "a member, or another,"
            yield _game(task, stages, observer, noisy, (None, people[1]), "no member, or one;", "membership")
        yield _game(task, stages, observer, noisy, people, f"{tables} furthest apart;")


def _game(
    task: Marginals | StagedMarginals,
    stages: tuple[Marginals, ...],
    observer: Observer,
    noisy: tuple[str, ...],
    people: tuple[Codes | None, Codes],
    tables: str,
    part: str = "",
) -> Game:
    """The game about one person in two tables."""
    seen = tuple(MarginalCellSampler(stage, people, noisy) for stage in stages)
    story = f"{tables} {sum(len(cells.moved) for cells in seen)} opened numbers that move"
    sampler: Sampler = StagedMarginalSampler(seen) if len(seen) > 1 else seen[0]
    return Game("marginals", observer, story, task.events, task.trust, sampler, part)
