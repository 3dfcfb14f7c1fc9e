"""Games about coefficients and about gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.mechanisms import RoundSampler
from colonnade.audit.registry import Game, Person, describe_neighbours, observers, register, rows_at_bounds
from colonnade.kinds.regression import programs as gradient_integers
from colonnade.kinds.regression.model import LinearRegression
from colonnade.kinds.regression.programs import reference as gradient_reference
from colonnade.kinds.regression.task import GradientTask
from colonnade.models import Roster
from colonnade.privacy import Observer, Trust, parse_budgets
from colonnade.protocols.moments import programs
from colonnade.protocols.moments.programs import reference
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.rows import ColumnBlock
from colonnade.randomness import Stream
from colonnade.tables import Schema, number

_MOST_ENTRIES = 64
"""More entries take long to draw, and those that differ little show nothing in the noise."""


@dataclass(frozen=True)
class CoefficientSampler:
    """The log-likelihood ratio of two rows from the opened entries, less the noise that is known."""

    task: Moments
    people: tuple[Person | None, Person]
    noisy: tuple[str, ...]

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """Ratios of ``count`` runs; rows at their bounds are whole numbers, so rounding does not change them."""
        first, second = self.sums
        total = np.zeros(count)
        for index in self.moved:
            scale = int(self.task.scales[index])
            seen = np.full(count, float(self.sums[neighbour][index]))
            for _ in self.noisy:
                seen += programs.sample_entry_noise(self.task, np.ones(count, dtype=np.int64), stream, scale)
            total += (np.abs(seen - first[index]) - np.abs(seen - second[index])) / scale
        return total

    @cached_property
    def moved(self) -> NDArray[np.intp]:
        """The entries that differ most compared with their noise, only the first few of them."""
        first, second = self.sums
        far = np.abs(first - second) / self.task.scales
        order = np.argsort(-far, kind="stable")
        found: NDArray[np.intp] = order[far[order] > 0][:_MOST_ENTRIES]
        return found

    @cached_property
    def sums(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The exact entries of both tables."""
        first, second = (_entries(self.task, person) for person in self.people)
        return first, second


def _entries(task: Moments, person: Person | None) -> NDArray[np.int64]:
    if person is None:
        return np.zeros(task.entries, dtype=np.int64)
    row = np.rint(np.array(person) * task.gamma).astype(np.int64)[None]
    return reference({owner: row[:, task.span(owner)] for owner in task.owners}, task)


def _at_bounds(task: Moments, turned: tuple[int, ...] = ()) -> Person:
    """A row whose every group has its largest L1 norm, in its first column; some groups with the other sign."""
    row: list[float] = []
    for number_, (width, radius) in enumerate(group for block in task.blocks for group in block.groups):
        row += [-float(radius) if number_ in turned else float(radius), *[0.0] * (width - 1)]
    return tuple(row)


def _functional_neighbours(task: Moments, observer: Observer) -> tuple[Person | None, Person]:
    """Of the pairs that the observer must not tell apart, the one that moves the coefficients furthest."""
    whole = _at_bounds(task)
    if observer == Observer.analyst():
        return None, whole
    owners = [block.owner for block in task.blocks for _ in block.groups]
    theirs = [index for index, owner in enumerate(owners) if owner not in observer.names][:10]
    pairs = [_at_bounds(task, turned) for size in range(1, len(theirs) + 1) for turned in combinations(theirs, size)]
    base = _entries(task, whole)
    return whole, max(pairs, key=lambda pair: int(np.abs(_entries(task, pair) - base).sum()))


def _functional_example() -> Moments:
    """Three owners of one column each, one of them the label; any one owner still sees a whole variable of noise."""
    schemas = {name: Schema({name[0]: number(-1, 1)}) for name in ("bank", "shop", "clinic")}
    budgets = {"analyst": 1.0, "party": 2.0}
    model = LinearRegression(epsilon=budgets, label="clinic.c", method="functional", gamma=64, rows_at_most=2**20)
    return model.plan(Roster.of(schemas))


@register("functional", "coefficients of a regression with Laplace noise, opened once", _functional_example)
def functional_games(task: Moments) -> Iterator[Game]:
    """Every observer within the threshold, one for all who are in the same position."""
    for observer, noisy in observers(task):
        sampler = CoefficientSampler(task, _functional_neighbours(task, observer), noisy)
        story = f"{describe_neighbours(observer)} at its bounds; {len(sampler.moved)} of the coefficients that move"
        yield Game("functional", observer, story, task.events, task.trust, sampler)


@dataclass(frozen=True)
class LabelledPerson:
    """Somebody at the bounds of every owner's row, with a minus at the owners ``turned``."""

    label: int
    turned: tuple[str, ...] = ()


@dataclass(frozen=True)
class GradientSampler(RoundSampler[GradientTask]):
    """The likelihood ratio of two tables, from the opened gradients of all rounds."""

    def draw_sums(self, person: LabelledPerson | None, count: int, stream: Stream) -> NDArray[np.float64]:
        """The person's integer gradient; each owner rounds its row again in every run."""
        if person is None:
            return np.zeros((count, self.task.entries))
        task, rows = self.task, np.tile(rows_at_bounds(self.task, person.turned), (count, 1))
        parts = [
            gradient_integers.quantise(rows[:, task.span(block.owner)], block, task, stream) for block in task.blocks
        ]
        whole = np.hstack([*parts, np.full((count, 1), float(task.constant))])
        return (whole[:, :, None] * self._scores(person)).reshape(count, -1)

    def mean_sums(self, person: LabelledPerson | None) -> NDArray[np.float64]:
        """The person's gradient without rounding."""
        if person is None:
            return np.zeros(self.task.entries)
        values = np.array(rows_at_bounds(self.task, person.turned))
        row = np.append(values * self.task.gamma * self.task.scale, float(self.task.constant))
        return (row[:, None] * self._scores(person)).reshape(-1)

    def draw_noise(self, count: int, stream: Stream) -> NDArray[np.int64]:
        """One owner's noise of one round."""
        return gradient_integers.noise_shares(self.task, count, stream)

    def _scores(self, person: LabelledPerson) -> NDArray[np.float64]:
        """The person's score in each class, by the protocol's reference at weights of zero."""
        classes = self.task.classes
        label = np.array([[person.label]]) if classes == 1 else np.eye(classes, dtype=np.int64)[[person.label]]
        none = np.zeros((classes, 1), dtype=np.int64)
        scores = gradient_reference(np.ones((1, 1), dtype=np.int64), label, none, self.task)
        return np.asarray(scores, dtype=np.float64)


def _gradients_example() -> GradientTask:
    """Three owners, four batches that hold a quarter of the people each; epsilon 1 against the analyst."""
    owners = ("bank", "shop", "clinic")
    task = GradientTask(
        tuple(ColumnBlock(owner, ("a",), 1.0) for owner in owners),
        label_owner="clinic",
        classes=1,
        trust=Trust(owners, owners, 1),
        gamma=1024,
        scale=1 / math.sqrt(3.25),
        expansion=1,
        weight_bound=0.01,
        learning_rate=1.0,
        sampling="poisson",
        rows=400,
        batch=100,
        rounds=4,
        noise=3,
        rows_at_most=2**16,
    )
    return task.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, task.trust))


@register("sqm", "gradients of batches, opened round by round", _gradients_example)
def sqm_games(task: GradientTask) -> Iterator[Game]:
    """For the analyst, a row or none; for owners, another label or other columns that they do not hold."""
    for observer, noisy in observers(task, lambda owner: owner == task.label_owner):
        fixed = task.sampling == "disjoint"
        known = fixed or bool(set(observer.names) & set(task.coins))
        people, tables = _gradient_neighbours(task, observer)
        coins = "in turn" if fixed else f"{'known' if known else 'secret'} coins"
        story = f"{tables}; the gradients of {task.rounds} batches, {coins}"
        yield Game("sqm", observer, story, task.events, task.trust, GradientSampler(task, people, noisy, known))


def _gradient_neighbours(
    task: GradientTask, observer: Observer
) -> tuple[tuple[LabelledPerson | None, LabelledPerson], str]:
    if observer == Observer.analyst():
        return (None, LabelledPerson(1)), "no row, or one at its bounds"
    if task.label_owner in observer.names:
        others = tuple(owner for owner in task.owners if owner not in observer.names)
        return (
            LabelledPerson(1, others),
            LabelledPerson(1),
        ), "a row at its bounds, or the opposite in the others' columns"
    return (LabelledPerson(0), LabelledPerson(1)), "a row at its bounds with one label, or the other"
