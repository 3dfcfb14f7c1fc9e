"""Games of models learned over noised messages, with the protocol's own sides, grid and noise.

The bounds on messages hold for anything that a side receives. So the others need not be played: what they send is
written down before, as a script, and both neighbouring tables meet the same script. The observer is who wrote it: the
active party what the others receive, or all the others together what it receives. One person's row is turned around.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.registry import Game, register
from colonnade.kinds.glm.exchange import sides as exchange
from colonnade.kinds.glm.exchange.bounds import Side
from colonnade.kinds.glm.exchange.fits import Matrix, Vector
from colonnade.kinds.glm.exchange.sides import active_side, passive_side
from colonnade.kinds.glm.exchange.task import Exchange
from colonnade.kinds.glm.kept_scores import answers as exchange_ask
from colonnade.kinds.glm.kept_scores.task import KeptScoresTask, Sender
from colonnade.kinds.glm.losses.labels import Family, family_for
from colonnade.privacy import Observer, Trust, parse_budgets
from colonnade.privacy.additive import CLOSEST, law_named
from colonnade.protocols.rows import Block
from colonnade.randomness import Stream
from colonnade.tables import flag

Integers = NDArray[np.int64]
Script = NDArray[np.float64]
"""What a side receives: a number for each step and row, of which a step uses those of its batch."""

_MOST_NUMBERS = 16
_NEARLY_ALL = 0.99  # of what a transcript shows; noise is not drawn for numbers that hardly differ
_LOUD = 1000.0  # the number that a side receives for the changed row, in clips; noise can be as large
_DEAFENING = 1e6


@dataclass(frozen=True)
class Messages:
    """All messages of one side in their order, and the weights that it releases in the end, if it does."""

    messages: Vector
    weights: Vector


def scores_told(rows: Matrix, owner: str, slopes: Script, task: Exchange) -> Messages:
    """What a passive party with these rows tells, before noise, when it receives these slopes."""
    side, told = passive_side(exchange.with_constant(rows, owner, task), owner, task), []
    for step in task.steps:
        side.take(step.batch, slopes[step.number, step.batch :: task.batches])
        if step.answer is not None:
            told.append(side.scores(step.answer))
    return Messages(np.concatenate(told), side.weights)


def slopes_told(rows: Matrix, labels: Vector, scores: Mapping[str, Script], task: Exchange) -> Messages:
    """What the active party with these rows and labels tells, before noise, when it receives these scores."""
    side, told = active_side(exchange.with_constant(rows, task.active, task), labels, task), []
    for step in task.steps:
        told.append(side.slopes(step.batch))
        side.learn(step.answer)
        if step.answer is not None:
            for party, script in scores.items():
                side.hear(party, step.answer, script[step.number, step.answer :: task.batches])
    return Messages(np.concatenate(told), side.released() if task.release else np.zeros(0))


@dataclass(frozen=True)
class Moved:
    """Numbers of one owner that differ between the two tables: messages, or released weights."""

    owner: str
    weights: bool
    values: tuple[Vector, Vector]

    def weighed(self, task: Exchange) -> Vector:
        """The weight of each number in the likelihood ratio of the two tables, if the noise were Gaussian."""
        first, second = (task.grid.quantise(values) for values in self.values)
        variance = task.weights_variance(self.owner) if self.weights else task.message_variance(self.owner)
        return np.asarray((second - first) / float(variance))


@dataclass(frozen=True)
class Transcript:
    """The likelihood ratio of two tables, from what ``tellers`` tell in a whole run.

    ``task`` gives the noise, and the sides follow ``played``. Both are equal unless something is broken on purpose;
    ``played`` only lacks columns that are zero.
    """

    task: Exchange
    played: Exchange
    tellers: tuple[str, ...]

    @classmethod
    def of(cls, task: Exchange, tellers: tuple[str, ...]) -> Transcript:
        """With only the first column of everybody, as the other columns are zero."""
        blocks = tuple(replace(block, columns=block.columns[:1]) for block in task.blocks)
        return cls(task, replace(task, blocks=blocks), tellers)

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """Log-likelihood ratios of ``count`` runs, up to a constant."""

        def draw(name: str, variance: int, size: int) -> Integers:
            return law_named(CLOSEST).sample(Fraction(variance), (size,), stream)

        total = np.zeros(count)
        for part in self.parts:
            values = np.tile(part.values[neighbour], count)
            tell = exchange.noised_weights if part.weights else exchange.noised
            told = tell(values, part.owner, self.task, draw).reshape(count, -1)
            total += told @ part.weighed(self.task)
        return total

    @cached_property
    def parts(self) -> tuple[Moved, ...]:
        """Of all numbers that are told, the few that differ most between the tables."""
        everything = [part for owner in self.tellers for part in self._told(owner)]
        shown = [part.weighed(self.task) * np.subtract(*reversed(part.values)) for part in everything]
        ranked = np.sort(np.concatenate(shown))[::-1]
        enough = int(np.searchsorted(np.cumsum(ranked), _NEARLY_ALL * ranked.sum()))
        least = ranked[min(enough, _MOST_NUMBERS - 1, len(ranked) - 1)]
        found = []
        for part, sizes in zip(everything, shown, strict=True):
            chosen = np.flatnonzero((sizes >= least) & (sizes > 0))[:_MOST_NUMBERS]
            if len(chosen):
                found.append(replace(part, values=(part.values[0][chosen], part.values[1][chosen])))
        return tuple(found)

    def _told(self, owner: str) -> Iterator[Moved]:
        tables = Tables(self.task, owner)
        first, second = (tables.told(neighbour, self.played) for neighbour in (0, 1))
        yield Moved(owner, False, (first.messages, second.messages))
        if self.task.release:
            yield Moved(owner, True, (first.weights, second.weights))


@dataclass(frozen=True)
class Tables:
    """Two neighbouring tables of one owner and the script that it meets.

    In every batch the rows are at both ends of the first column in turn, and the received numbers raise its weight. The
    person who changes is at one end in the first table and at the other end in the second, with the label of the
    opposite end. It is in the last batch, as the scores of the first batch are zero at first, which everyone knows.
    """

    task: Exchange
    owner: str

    @property
    def person(self) -> int:
        """The row that changes."""
        return self.task.batches - 1

    @property
    def signs(self) -> Vector:
        """The sign of every row: 1 if it is at its upper bound, -1 if at its lower one, as in the first table."""
        signs = np.where(np.arange(self.task.rows) // self.task.batches % 2, -1.0, 1.0)
        signs[self.person] = 1.0
        return signs

    def rows(self, neighbour: int, columns: int) -> Matrix:
        """The rows of one of the two tables: each first column is at its bound, all others are zero."""
        signs = self.signs
        signs[self.person] = -1.0 if neighbour else 1.0
        rows = np.zeros((self.task.rows, columns))
        rows[:, :1] = self.task.block(self.owner).clip * signs[:, None]
        return rows

    def labels(self, neighbour: int) -> Vector:
        """Labels that fit the signs; the person who changes has the low one in the first table, then the high one."""
        low, high = ends(self.task.family)
        labels = np.where(self.signs > 0, high, low)
        labels[self.person] = high if neighbour else low
        return labels

    def told(self, neighbour: int, played: Exchange) -> Messages:
        """What the owner tells of one of the tables when it keeps to the bounds of ``played``."""
        rows = self.rows(neighbour, len(played.block(self.owner).columns))
        if self.owner == self.task.active:
            return slopes_told(rows, self.labels(neighbour), self._scores, played)
        return scores_told(rows, self.owner, self._slopes, played)

    @property
    def _slopes(self) -> Script:
        slopes = -self.task.message_clip * self.signs
        slopes[self.person] *= _LOUD
        return np.tile(slopes, (len(self.task.steps), 1))

    @property
    def _scores(self) -> dict[str, Script]:
        """Scores of the others with the opposite sign, so that the own columns must correct them."""
        found = {}
        for party in self.task.passives:
            scores = -self.task.side(party).score_clip / len(self.task.passives) * self.signs
            scores[self.person] = 0.0
            found[party] = np.tile(scores, (len(self.task.steps), 1))
        return found


def ends(family: Family) -> tuple[float, float]:
    """The least and the largest label, as the family takes it."""
    return (-1.0, 1.0) if family.name in ("svm", "linear") else (family.low, family.high)


def _alternating() -> Exchange:
    """Three rounds of fits over 400 people; epsilon 3 against everyone."""
    sides = (Side("bank", 0.2, 1.0, 1.0), Side("shop", 0.5, 1.2, 0.9), Side("clinic", 0.5, 1.2, 0.9))
    return _calibrated(sides, rows=400, method="alternating", epochs=3, batches=1)


def _gradient() -> Exchange:
    """Four epochs of two batches of 800 people, and released weights; epsilon 3 against everyone."""
    sides = tuple(Side(owner, 0.0, 9.0, 0.9) for owner in ("bank", "shop", "clinic"))
    return _calibrated(sides, rows=1600, method="gradient", epochs=4, batches=2, learning_rate=1.0, release=True)


def _calibrated(sides: tuple[Side, ...], **given: object) -> Exchange:
    owners = tuple(side.owner for side in sides)
    task = Exchange(
        blocks=tuple(Block(owner, ("x",), 1.0) for owner in owners),
        sides=sides,
        active=owners[0],
        family=family_for("logistic", flag(), reach=0.5),
        trust=Trust(owners, (), 0),
        message_clip=1.0,
        intercept=0.5,
        **given,  # type: ignore[arg-type]
    )
    return task.calibrated(parse_budgets(3.0, 1e-5, task.trust))


@register(
    "glm-gradient",
    "scores and slopes of gradient descent, and its weights",
    _gradient,
)
@register(
    "glm-alternating",
    "scores and slopes of fits that take turns, told with noise",
    _alternating,
)
def exchange_games(task: Exchange) -> Iterator[Game]:
    """The party with the label against the others' columns, and the others together against its own."""
    subject = f"glm-{task.method}"
    released = " and released weights" if task.release else ""
    active, others = Observer.party(task.active), Observer.coalition(*task.passives)
    story = f"a row turned around in the others' columns; all their scores{released}"
    yield Game(subject, active, story, task.events, task.trust, Transcript.of(task, task.passives), "scores")
    story = f"a row turned around with its label; all slopes{released}"
    yield Game(subject, others, story, task.events, task.trust, Transcript.of(task, (task.active,)), "slopes")


# --- scores of new people


@dataclass(frozen=True)
class NewScores:
    """One new person's scores as all ``senders`` tell them; in both tables they are far beyond the clip, at one end.

    So the weights do not matter, blurred or not, and many runs can be drawn at once.
    """

    task: KeptScoresTask
    senders: tuple[str, ...]

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """The messages of ``count`` runs, weighed as for Gaussian noise."""
        total = np.zeros(count)
        for name in self.senders:
            clip = self.task.sender(name).score_clip
            rows = np.full((count, 1), 1.0 if neighbour else -1.0)
            new = exchange_ask.New((), rows, np.array([_DEAFENING * clip]))
            told = exchange_ask.noised(new, name, self.task, stream)
            total += told * (clip / self.task.score_variance(name))
        return total


def _asking() -> KeptScoresTask:
    """The scores of ten people by weights that hardly move with anyone; epsilon 1 against everyone."""
    owners = ("bank", "shop", "clinic")
    senders = tuple(
        Sender(owner, weights=2, row_norm=1.0, score_clip=0.9, drift=0.01) for owner in owners if owner != "bank"
    )
    task = KeptScoresTask(Trust(owners, (), 0), "bank", senders, rows_at_most=10)
    return task.calibrated(parse_budgets(1.0, 1e-5, task.trust))


@register("glm-prediction", "one person's score by weights that parties keep", _asking)
def asking_games(task: KeptScoresTask) -> Iterator[Game]:
    """The party that is told: a new person's scores at one end or the other."""
    story = "a new person at one end of everybody's scores, or the other; the scores as received"
    sampler = NewScores(task, task.passives)
    yield Game("glm-prediction", Observer.party(task.active), story, task.events, task.trust, sampler)
