"""Games about messages of an exchange, about new scores, and about times."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from types import FrameType

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.registry import Game, register
from colonnade.kinds.glm import kept_scores as exchange_ask, sides, sides as exchange
from colonnade.kinds.glm.kept_scores import Integers, KeptScoresTask, ScoreSender
from colonnade.kinds.glm.losses import Family, Vector, family_for
from colonnade.kinds.glm.sides import PassiveParty, active_side
from colonnade.kinds.glm.task import Exchange, ExchangeSide
from colonnade.privacy import Observer, Trust, parse_budgets
from colonnade.privacy.noise_laws import CLOSEST_TO_GAUSSIAN, law_named
from colonnade.protocols.rows import ColumnBlock
from colonnade.randomness import Stream
from colonnade.tables import flag, number
from colonnade.tables.bins import Matrix

MessageScript = NDArray[np.float64]
"""What a side receives: a number for each step and row, of which a step uses those of its batch."""

_MOST_NUMBERS = 16
_NEARLY_ALL = 0.99  # of what a transcript shows; noise is not drawn for numbers that hardly differ
_LOUD = 1000.0  # the number that a side receives for the changed row, in clips; noise can be as large
_DEAFENING = 1e6


@dataclass(frozen=True)
class MessageKind:
    """All messages of one side in their order, and the weights that it releases in the end, if it does."""

    messages: Vector
    weights: Vector


def score_messages(rows: Matrix, owner: str, slopes: MessageScript, task: Exchange) -> MessageKind:
    """What a passive party with these rows tells, before noise, when it receives these slopes."""
    side, told = PassiveParty(exchange.with_constant(rows, owner, task), owner, task), []
    for step in task.steps:
        side.take(step.batch, slopes[step.number, step.batch :: task.batches])
        if step.answer is not None:
            told.append(side.scores(step.answer))
    return MessageKind(np.concatenate(told), side.weights)


def slope_messages(rows: Matrix, labels: Vector, scores: Mapping[str, MessageScript], task: Exchange) -> MessageKind:
    """What the active party with these rows and labels tells, before noise, when it receives these scores."""
    side, told = active_side(exchange.with_constant(rows, task.active, task), labels, task), []
    for step in task.steps:
        told.append(side.slopes(step.batch))
        side.learn(step.answer)
        if step.answer is not None:
            for party, script in scores.items():
                side.hear(party, step.answer, script[step.number, step.answer :: task.batches])
    return MessageKind(np.concatenate(told), side.release_weights() if task.release else np.zeros(0))


@dataclass(frozen=True)
class MovedPart:
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
class ExchangeTranscript:
    """The likelihood ratio of two tables, from what ``tellers`` tell in a whole run.

    ``task`` gives the noise, and the sides follow ``played``. Both are equal unless something is broken on purpose;
    ``played`` only lacks columns that are zero.
    """

    task: Exchange
    played: Exchange
    tellers: tuple[str, ...]

    @classmethod
    def of(cls, task: Exchange, tellers: tuple[str, ...]) -> ExchangeTranscript:
        """With only the first column of everybody, as the other columns are zero."""
        blocks = tuple(replace(block, columns=block.columns[:1]) for block in task.blocks)
        return cls(task, replace(task, blocks=blocks), tellers)

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """Log-likelihood ratios of ``count`` runs, up to a constant."""

        def draw(name: str, variance: int, size: int) -> Integers:
            return law_named(CLOSEST_TO_GAUSSIAN).sample(Fraction(variance), (size,), stream)

        total = np.zeros(count)
        for part in self.parts:
            values = np.tile(part.values[neighbour], count)
            tell = exchange.add_weight_noise if part.weights else exchange.add_noise
            told = tell(values, part.owner, self.task, draw).reshape(count, -1)
            total += told @ part.weighed(self.task)
        return total

    @cached_property
    def parts(self) -> tuple[MovedPart, ...]:
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

    def _told(self, owner: str) -> Iterator[MovedPart]:
        tables = ScriptedTables(self.task, owner)
        first, second = (tables.told(neighbour, self.played) for neighbour in (0, 1))
        yield MovedPart(owner, False, (first.messages, second.messages))
        if self.task.release:
            yield MovedPart(owner, True, (first.weights, second.weights))


@dataclass(frozen=True)
class ScriptedTables:
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

    def told(self, neighbour: int, played: Exchange) -> MessageKind:
        """What the owner tells of one of the tables when it keeps to the bounds of ``played``."""
        rows = self.rows(neighbour, len(played.block(self.owner).columns))
        if self.owner == self.task.active:
            return slope_messages(rows, self.labels(neighbour), self._scores, played)
        return score_messages(rows, self.owner, self._slopes, played)

    @property
    def _slopes(self) -> MessageScript:
        slopes = -self.task.message_clip * self.signs
        slopes[self.person] *= _LOUD
        return np.tile(slopes, (len(self.task.steps), 1))

    @property
    def _scores(self) -> dict[str, MessageScript]:
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
    sides = (
        ExchangeSide("bank", 0.2, 1.0, 1.0),
        ExchangeSide("shop", 0.5, 1.2, 0.9),
        ExchangeSide("clinic", 0.5, 1.2, 0.9),
    )
    return _calibrate(sides, rows=400, method="alternating", epochs=3, batches=1)


def _gradient() -> Exchange:
    """Four epochs of two batches of 800 people, and released weights; epsilon 3 against everyone."""
    sides = tuple(ExchangeSide(owner, 0.0, 9.0, 0.9) for owner in ("bank", "shop", "clinic"))
    return _calibrate(sides, rows=1600, method="gradient", epochs=4, batches=2, learning_rate=1.0, release=True)


def _calibrate(sides: tuple[ExchangeSide, ...], **given: object) -> Exchange:
    owners = tuple(side.owner for side in sides)
    task = Exchange(
        blocks=tuple(ColumnBlock(owner, ("x",), 1.0) for owner in owners),
        sides=sides,
        active=owners[0],
        family=family_for("logistic", flag(), reach=0.5),
        trust=Trust(owners, (), 0),
        message_clip=1.0,
        intercept=0.5,
        **given,  # type: ignore[arg-type]
    )
    return task.calibrate(parse_budgets(3.0, 1e-5, task.trust))


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
    yield Game(subject, active, story, task.events, task.trust, ExchangeTranscript.of(task, task.passives), "scores")
    story = f"a row turned around with its label; all slopes{released}"
    yield Game(subject, others, story, task.events, task.trust, ExchangeTranscript.of(task, (task.active,)), "slopes")


# --- scores of new people


@dataclass(frozen=True)
class NewScoresSampler:
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
            new = exchange_ask.NewRows((), rows, np.array([_DEAFENING * clip]))
            told = exchange_ask.noisy_scores(new, name, self.task, stream)
            total += told * (clip / self.task.score_variance(name))
        return total


def _asking() -> KeptScoresTask:
    """The scores of ten people by weights that hardly move with anyone; epsilon 1 against everyone."""
    owners = ("bank", "shop", "clinic")
    senders = tuple(
        ScoreSender(owner, weights=2, row_norm=1.0, score_clip=0.9, drift=0.01) for owner in owners if owner != "bank"
    )
    task = KeptScoresTask(Trust(owners, (), 0), "bank", senders, rows_at_most=10)
    return task.calibrate(parse_budgets(1.0, 1e-5, task.trust))


@register("glm-prediction", "one person's score by weights that parties keep", _asking)
def asking_games(task: KeptScoresTask) -> Iterator[Game]:
    """The party that is told: a new person's scores at one end or the other."""
    story = "a new person at one end of everybody's scores, or the other; the scores as received"
    sampler = NewScoresSampler(task, task.passives)
    yield Game("glm-prediction", Observer.party(task.active), story, task.events, task.trust, sampler)


_PAIRS = 16
_SPREAD = 2.0
_HOME = str(Path(__file__).parents[2])


def steps_of(work: Callable[[], object]) -> int:
    """How many functions this package calls in this thread while ``work`` runs."""
    steps = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call") and frame.f_code.co_filename.startswith(_HOME)

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # or what others left behind may be removed meanwhile, and counted
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return steps


@dataclass(frozen=True)
class StepCountSampler:
    """How many more steps one owner takes on a table than on the first of its pair: always none on the first.

    Columns are at one of two ends, so that many rows share each corner of the loss, where fits have the hardest time.
    One person is turned around, with its label. ``certified`` says whether fits are those of which numbers are sent.
    """

    task: Exchange
    owner: str
    certified: bool = True

    def __call__(self, neighbour: int, count: int, stream: Stream) -> NDArray[np.float64]:
        """The differences of all pairs, over and over."""
        return np.resize(self.more[neighbour], count)

    @cached_property
    def more(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """For each pair of tables, the steps on its first and on its second table beyond those on the first."""
        found = []
        for seed in range(_PAIRS):
            first, second = (self._steps(*self._table(seed, turned=turned)) for turned in (False, True))
            found.append((0.0, float(second - first)))
        both = np.array(found)
        return both[:, 0], both[:, 1]

    def _table(self, seed: int, *, turned: bool) -> tuple[Matrix, Vector]:
        rng, block, family = np.random.default_rng(seed), self.task.block(self.owner), self.task.family
        columns = len(block.columns)
        rows = rng.choice([-1.0, 1.0], (self.task.rows, columns)) * block.clip / np.sqrt(columns)
        drawn = rng.poisson(np.exp(family.centre + rows @ rng.normal(0.0, _SPREAD, columns)))
        low, high = ends(family)
        labels = np.clip(drawn.astype(np.float64), low, high)
        if turned:
            rows[0], labels[0] = -rows[0], high if labels[0] < high else low
        return rows, labels

    def _steps(self, rows: Matrix, labels: Vector) -> int:
        task = self.task
        slopes = np.tile(task.message_clip * np.sign(labels - labels.mean()), (len(task.steps), 1))

        def work() -> object:
            if self.owner != task.active:
                return score_messages(rows, self.owner, slopes, task)
            held = sides.with_constant(rows, task.active, task)
            return sides.ActiveFit(held, labels, task).refit(task.side(task.active).ridge, certified=self.certified)

        work()  # what is computed once and kept is computed now
        return steps_of(work)


def _counts() -> Exchange:
    """Counts of 30 people with a small penalty, so that one person can matter to how soon a fit is near its end."""
    owners, sides_of = ("bank", "shop"), (ExchangeSide("bank", 0.1, 1.0, 1.0), ExchangeSide("shop", 0.05, 0.3, 0.9))
    return Exchange(
        blocks=tuple(ColumnBlock(owner, ("u", "v", "w"), 1.0) for owner in owners),
        sides=sides_of,
        active="bank",
        family=family_for("poisson", number(0, 100)),
        trust=Trust(owners, (), 0),
        rows=30,
        method="alternating",
        epochs=2,
        batches=1,
        message_clip=1.0,
    )


@register("time", "steps that a party of a glm takes before it sends", _counts)
def time_games(task: Exchange) -> Iterator[Game]:
    """Each other party against the steps of one."""
    for owner in task.owners:
        (watching, *_) = (name for name in task.owners if name != owner)
        story = f"a row of {owner} turned around; how many functions {owner} calls before it sends"
        part = "slopes" if owner == task.active else "scores"
        yield Game("time", Observer.party(watching), story, (), task.trust, StepCountSampler(task, owner), part)
