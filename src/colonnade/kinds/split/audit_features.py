"""Games of the moments behind a committee's head: what encoders make of rows, and the labels beside them.

Rows are embedded, scaled and rounded, and noise is drawn, by the functions that parties of a study call. Somebody
is in both tables. Of many ways in which one more person can differ, that is taken which moves the moments furthest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.neighbours import furthest as at_the_bounds
from colonnade.audit.registry import Game, Sampler, observers, register, two_tables
from colonnade.errors import StudyError
from colonnade.kinds.pca.audit_moments import Entries
from colonnade.kinds.split.committee import Joint
from colonnade.kinds.split.embeddings.task import GRADIENT_BITS
from colonnade.kinds.split.embeddings.updates import Drawn, noised_sum
from colonnade.kinds.split.encoders import Encoder, OverRows, encoder_from
from colonnade.kinds.split.own_training import moments_after, planned
from colonnade.kinds.split.private_training import PrivateTraining, draw
from colonnade.models import Roster
from colonnade.privacy import Observer, parse_budgets
from colonnade.privacy.events import innermost
from colonnade.privacy.releases import SquaredRelease
from colonnade.protocols.messages import NOISE_UNIT
from colonnade.protocols.moments import integers
from colonnade.protocols.moments.charged import ChargedMoments
from colonnade.protocols.moments.task import Moments
from colonnade.randomness import Stream
from colonnade.tables import Schema, number

FeatureMatrix = NDArray[np.float64]
_COLUMNS = 2
_OTHERS = 1
_TRIED = 100
_TINY = 1e-6
_FAR = 1e3
_EPOCHS = 3


@dataclass(frozen=True)
class Study:
    """A committee's head to play with: its public layout and task, and how each party embeds its columns."""

    joint: Joint
    task: Moments
    specs: tuple[tuple[str, str], ...]

    def encoder(self, party: str) -> Encoder:
        """A party's encoder, drawn from a public seed."""
        width = dict(self.joint.widths)[party]
        return encoder_from({"kind": dict(self.specs)[party], "width": width}, _COLUMNS, seed=1)


@dataclass(frozen=True)
class People:
    """Some people: each party's encoded columns of them, and their classes."""

    columns: tuple[tuple[str, tuple[tuple[float, ...], ...]], ...]
    classes: tuple[int, ...]

    def rows(self, party: str) -> FeatureMatrix:
        """One party's columns, (people, columns)."""
        return np.array(dict(self.columns)[party]).reshape(len(self.classes), _COLUMNS)


@dataclass(frozen=True)
class _Listed:
    """Encoded rows as the moments' program reads them."""

    rows: FeatureMatrix
    places: None = None

    @property
    def ids(self) -> Sequence[str]:
        return [f"{index:04}" for index in range(len(self.rows))]

    def blocks(self, rows: int, /) -> Iterator[FeatureMatrix]:
        yield from (self.rows[start : start + rows] for start in range(0, len(self.rows), rows))


@dataclass(frozen=True)
class Features:
    """The opened entries that differ between two tables, each weighed by how much it differs.

    ``noisy`` are the owners whose noise the observer cannot subtract.
    """

    study: Study
    tables: tuple[People, People]
    noisy: tuple[str, ...]

    def __call__(self, neighbour: int, count: int, stream: Stream) -> FeatureMatrix:
        """The weighed sum of the opened entries, for ``count`` runs of the protocol."""
        task = self.study.task
        people = [self._rounded(person, count, stream) for person in self.embedded[neighbour]]
        total = np.zeros(count)
        for i, j in np.argwhere(np.triu(self.moves)).tolist():
            copies = np.full(count, 1 if i == j else 2)
            entry = copies * sum((rows[:, i] * rows[:, j] for rows in people), np.zeros(count, dtype=np.int64))
            for _ in self.noisy:
                entry += integers.entry_noise(task, copies, stream)
            total += self.moves[i, j] * entry
        return total

    def encoder(self, party: str, people: People) -> Encoder:
        """A party's encoder, which does not depend on anybody."""
        return self.study.encoder(party)

    @cached_property
    def embedded(self) -> tuple[FeatureMatrix, FeatureMatrix]:
        """The joint rows of both tables as parties bring them, without the constant."""
        first, second = (self._embedded(table) for table in self.tables)
        return first, second

    @cached_property
    def moves(self) -> FeatureMatrix:
        """How much each entry of the full matrix moves, scaled to at most one; too small a move counts as none."""
        change = self._change / np.abs(self._change).max()
        return np.asarray(np.where(np.abs(change) > _TINY, change, 0.0))

    @property
    def weight(self) -> float:
        """What makes of the weighed sum the logarithm of a likelihood ratio, if the noise were Gaussian."""
        return _weight(self._change, self.study.task, self.noisy)

    @cached_property
    def _change(self) -> FeatureMatrix:
        first, second = (_with_constant(rows, self.study.task) for rows in self.embedded)
        return np.asarray(second.T @ second - first.T @ first)

    def _embedded(self, people: People) -> FeatureMatrix:
        joint, parts = self.study.joint, []
        for party, width in joint.widths:
            encoder = self.encoder(party, people) if width else None
            labels = np.array(people.classes, dtype=np.int64) if party == joint.label_party else None
            parts.append(joint.rows(party, _Listed(people.rows(party)), encoder, labels).matrix())
        return np.hstack(parts)

    def _rounded(self, person: FeatureMatrix, count: int, stream: Stream) -> NDArray[np.int64]:
        """One person's integers in ``count`` runs, with the constant."""
        task = self.study.task
        parts = [
            integers.OwnBlock(task, owner).quantise(np.tile(person[task.span(owner)], (count, 1)), stream)
            for owner in task.owners
        ]
        return np.hstack([*parts, np.full((count, 1), float(task.constant))]).astype(np.int64)


def _weight(change: FeatureMatrix, task: Moments, noisy: tuple[str, ...]) -> float:
    variance = task.additive.unit * task.noise * len(noisy) / len(task.owners)
    return float(np.abs(change).max() * task.gamma**2 / variance)


@dataclass(frozen=True)
class Trained:
    """The likelihood ratio of two tables, from the moments and from the training of the label owner's encoder before.

    Sums of gradients are not told to anybody, but are charged as if they were; so the observer is shown them. Its
    gradient is at one end or the other, or is there or not, like the person.
    """

    moments: Sampler
    weight: float
    plan: PrivateTraining
    ends: tuple[float, float]

    def __call__(self, neighbour: int, count: int, stream: Stream) -> FeatureMatrix:
        """Log-likelihood ratios of ``count`` runs, up to a constant."""
        total = self.moments(neighbour, count, stream) * self.weight

        def drawn(numbers: int) -> NDArray[np.int64]:
            return draw(self.plan, count * numbers, stream).reshape(count, numbers)

        for _ in range(self.plan.epochs):
            total += self._summed(self.ends[neighbour], drawn) @ self._weights
        return total

    @cached_property
    def _weights(self) -> FeatureMatrix:
        """How far each number of a sum moves over the variance of its noise."""
        first, second = (self._summed(end, lambda numbers: np.zeros(numbers, dtype=np.int64)) for end in self.ends)
        step = self.plan.clip / (1 << GRADIENT_BITS)
        return np.asarray((second - first) / (self.plan.variance * step**2))

    def _summed(self, end: float, noise: Drawn) -> FeatureMatrix:
        """The noised sum of gradients of a linear encoder: one person's, if it is there, and another's."""
        rows = np.array([[0.5], *([[end * _FAR * self.plan.clip]] if end else [])])
        learner = OverRows(encoder_from({"kind": "linear", "width": 1}, 1, seed=1), rows)
        return noised_sum(learner, np.arange(len(rows)), np.ones((len(rows), 1)), self.plan.clip, noise)


def _with_constant(rows: FeatureMatrix, task: Moments) -> FeatureMatrix:
    return np.column_stack([rows, np.full(len(rows), task.constant / task.gamma)])


def furthest(study: Study, observer: Observer, noisy: tuple[str, ...]) -> Features:
    """Of many pairs that the observer must not tell apart, the one that moves the moments furthest."""
    drawn = np.random.default_rng(1)
    others = _people(study, drawn, _OTHERS)
    tried = []
    for _ in range(1 if observer == Observer.analyst() else _TRIED):
        second = _people(study, drawn, 1)
        first = None if observer == Observer.analyst() else _changed(study, second, observer, drawn)
        tried.append(Features(study, (_joined(others, first), _joined(others, second)), noisy))
    return max(tried, key=_distance)


def _people(study: Study, drawn: np.random.Generator, count: int) -> People:
    columns = {party: drawn.uniform(-1, 1, (count, _COLUMNS)) for party, _ in study.joint.widths}
    classes = drawn.integers(study.joint.classes, size=count)
    return people_of(columns, classes.tolist())


def people_of(columns: dict[str, FeatureMatrix], classes: list[int]) -> People:
    """People from each party's columns of them and their classes."""
    listed = {party: tuple(tuple(row) for row in rows.tolist()) for party, rows in columns.items()}
    return People(tuple(listed.items()), tuple(classes))


def _changed(study: Study, person: People, observer: Observer, drawn: np.random.Generator) -> People:
    """Somebody else in all columns that the observer does not hold, with another class if that is one of them."""
    other, joint = _people(study, drawn, 1), study.joint
    columns = {party: (person if party in observer.names else other).rows(party) for party, _ in joint.widths}
    turned = joint.label_party not in observer.names
    return people_of(columns, [(label + turned) % joint.classes for label in person.classes])


def _joined(others: People, person: People | None) -> People:
    if person is None:
        return others
    columns = {party: np.vstack([others.rows(party), person.rows(party)]) for party, _ in others.columns}
    return people_of(columns, [*others.classes, *person.classes])


def _distance(features: Features) -> float:
    """How far the moments are apart, squared."""
    first, second = (_with_constant(rows, features.study.task) for rows in features.embedded)
    return float(((second.T @ second - first.T @ first) ** 2).sum())


def _example() -> Study:
    """Two parties with random cosines and a linear map, a label of two classes; epsilon 1 against the analyst."""
    schema = Schema({f"c{index}": number(-1, 1) for index in range(_COLUMNS)}, clip=1.0)
    roster = Roster.of({"left": schema, "right": schema})
    joint = Joint((("left", 2), ("right", 2)), "left", 2)
    task = joint.moments(roster.trust, parse_budgets({"analyst": 1.0}, 1e-5, roster.trust), rows_at_most=2**20)
    return Study(joint, task, (("left", "cosine"), ("right", "linear")))


def _charged(study: Study) -> tuple[ChargedMoments, PrivateTraining]:
    """The same with training of the label owner's encoder before, which takes most of an epsilon of 1."""
    trust = study.task.trust
    budgets = parse_budgets({"analyst": 1.0}, 1e-5, trust)
    plan = planned(study.joint, 2, 400, trust, budgets, epochs=_EPOCHS, share=0.8)
    return moments_after(study.joint, plan, trust, budgets, rows_at_most=2**20), plan


def _plan_of(task: ChargedMoments) -> PrivateTraining:
    """The training that a task is charged for."""
    (event,) = task.charged
    once = innermost(event)
    assert isinstance(once, SquaredRelease)  # noqa: S101 - for the type checker
    ((owner, variance),) = once.shares
    draft = PrivateTraining(owner, rows=1, parameters=once.dimension, epochs=getattr(event, "times", 1))
    plan = replace(draft, noise=int(variance * NOISE_UNIT // draft.square))
    if plan.events != task.charged:
        raise StudyError("this study is charged for training of another kind than is known here [ST013]")
    return plan


@register("split-moments", "moments of embeddings and labels, opened once", _example)
def feature_games(study: Study | ChargedMoments) -> Iterator[Game]:
    """Every observer within the threshold, one for all who are in the same position.

    A study that is charged for training is played at the bounds of all embeddings, whatever its encoders are. Whoever
    holds the columns that were trained on learns about others from the moments alone.
    """
    if isinstance(study, ChargedMoments):
        yield from _charged_games(study, _plan_of(study))
        return
    for observer, noisy in observers(study.task):
        sampler = furthest(study, observer, noisy)
        story = f"{two_tables(observer)} through everybody's encoders; the opened entries that move"
        yield Game("split-moments", observer, story, study.task.events, study.task.trust, sampler)
    task, plan = _charged(study)
    for observer, noisy in observers(task):
        if plan.owner not in observer.names and observer != Observer.coordinator():  # both are played above
            found = furthest(replace(study, task=task), observer, noisy)
            yield _trained(task, plan, observer, found, found.weight)


def _charged_games(task: ChargedMoments, plan: PrivateTraining) -> Iterator[Game]:
    for observer, noisy in observers(task):
        found = Entries(task, at_the_bounds(task, observer), noisy)
        if plan.owner in observer.names:
            story = f"{two_tables(observer)} at its bounds; the {len(found.moved)} opened entries that move"
            yield Game("split-moments", observer, story, task.events, task.trust, found)
        else:
            before, after = found.vectors
            weight = _weight(np.outer(after, after) - np.outer(before, before), task, noisy)
            yield _trained(task, plan, observer, found, weight)


def _trained(task: ChargedMoments, plan: PrivateTraining, observer: Observer, moments: Sampler, weight: float) -> Game:
    lowest = 0.0 if observer == Observer.analyst() else -1.0
    story = f"{two_tables(observer)}; {plan.epochs} sums of gradients, and the opened entries that move"
    sampler = Trained(moments, weight, plan, (lowest, 1.0))
    return Game("split-moments", observer, story, task.events, task.trust, sampler, "trained")
