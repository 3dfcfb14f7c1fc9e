"""Games of embeddings that parties tell, of the updates of their encoders, and of labels.

Embeddings, gradients and noise come from the sides of the protocol, given the task. In all games whoever looks also
writes the script: centre, scale, slopes and the teacher's weights are what it likes, as the promise holds for any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.registry import Game, register
from colonnade.kinds.split.embeddings import programs as embedding_programs, updates
from colonnade.kinds.split.embeddings.learner import Learner, Matrix, Places
from colonnade.kinds.split.embeddings.scaling import Scaling
from colonnade.kinds.split.embeddings.sides import Passive, Teacher
from colonnade.kinds.split.embeddings.task import GRADIENT_BITS, Embeddings, Sender
from colonnade.kinds.split.encoders import OverRows, encoder_from
from colonnade.privacy import Observer, Trust, parse_budgets
from colonnade.privacy.noise.response import odds_for
from colonnade.protocols.messages import own_noise
from colonnade.protocols.rounds import Draw
from colonnade.randomness import Stream

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
_FAR = 1e3
"""How many clips away an embedding or a gradient is, before it is clipped."""
_CENTRE, _SCALE = 0.25, 3.0
"""The script of the stage: a centre, in parts of the clip, and a scale with which everybody is clipped again."""
_WEIGHT = 1.0
LABELS = (0, 1)


@dataclass(frozen=True)
class Extreme:
    """An encoding of one person, over and over: far beyond the clip, along the first number of an embedding."""

    width: int
    reach: float

    def embed(self, places: Places, /) -> Matrix:
        """The person's embedding at each of these places."""
        rows = np.zeros((len(places), self.width))
        rows[:, 0] = self.reach
        return rows


@dataclass(frozen=True)
class Columns:
    """The likelihood ratio of two tables, from all that is charged about the columns of ``tellers`` in a run.

    One person is at one end of every teller's embeddings and gradients, or at the other. Updates are not told, but are
    charged as if they were; so the observer is shown them.
    """

    task: Embeddings
    tellers: tuple[str, ...]

    def __call__(self, neighbour: int, count: int, stream: Stream) -> Floats:
        """Log-likelihood ratios of ``count`` runs, up to a constant."""

        def draw(name: str, variance: int, size: int) -> Integers:
            return own_noise(name, variance).draw((size,), stream)

        total = np.zeros(count)
        for name in self.tellers:
            for told, weights in zip(self.told(name, neighbour, count, draw), self.weights[name], strict=True):
                total += told @ weights
        return total

    @cached_property
    def weights(self) -> dict[str, list[Floats]]:
        """For each number that is told, how far it moves over the variance of its noise."""
        found = {}
        for name in self.tellers:
            first, second = (list(self.told(name, neighbour, 1, _nothing)) for neighbour in (0, 1))
            moved = (after[0] - before[0] for before, after in zip(first, second, strict=True))
            found[name] = [change / variance for change, variance in zip(moved, self.variances(name), strict=True)]
        return found

    def told(self, name: str, neighbour: int, count: int, draw: Draw) -> Iterator[Floats]:
        """What one teller tells in ``count`` runs, (count, numbers): each update, then each embedding."""
        sign = 1.0 if neighbour else -1.0
        for _ in range(self.task.epochs):
            yield self.updated(name, sign, count, draw)
        yield from self.embedded(name, sign, count, draw)

    @property
    def releases(self) -> int:
        """How often embeddings are told, besides the stage."""
        return self.task.releases

    def variances(self, name: str) -> Iterator[float]:
        """The variances of the noise on these numbers, in the same order."""
        task, step = self.task, self.task.gradient_clip / (1 << GRADIENT_BITS)
        yield from (task.update_variance * step**2 for _ in range(task.epochs))
        if task.stage:
            yield float(task.first_variance(name))
        yield from (float(task.embedding_variance(name)) for _ in range(self.releases))

    def embedded(self, name: str, sign: float, count: int, draw: Draw) -> Iterator[Floats]:
        """The embeddings: of the stage, and then with the script's centre and scale, as often as they are told."""
        task, sender = self.task, self.task.sender(name)
        encoding, everybody = Extreme(sender.width, sign * _FAR * sender.clip), np.arange(count)
        if task.stage:
            yield Passive(encoding, name, task, draw).first(count).reshape(count, -1).astype(np.float64)
        centre = np.zeros(sender.width)
        centre[0] = _CENTRE * sender.clip
        side = Passive(encoding, name, task, draw, Scaling(centre, _SCALE))
        for _ in range(self.releases):
            yield side.embeddings(everybody).reshape(count, -1).astype(np.float64)

    def updated(self, name: str, sign: float, count: int, draw: Draw) -> Floats:
        """One update of a linear encoder in ``count`` runs; there are three others in the batch."""
        task, variance = self.task, self.task.update_variance

        def drawn(numbers: int) -> Integers:
            return draw(name, variance, count * numbers).reshape(count, numbers)

        return self.summed(*self.batch(sign), task.gradient_clip, drawn)

    def summed(self, learner: Learner, places: Places, slopes: Matrix, clip: float, draw: updates.Drawn) -> Floats:
        """The noised sum of gradients, with noise for all runs at once."""
        return updates.noised_sum(learner, places, slopes, clip, draw)

    def batch(self, sign: float) -> tuple[OverRows, Places, Matrix]:
        """A linear encoder over the rows of four people, and slopes that the observer chose."""
        rows = np.array([[sign * _FAR * self.task.gradient_clip], [1.0], [0.5], [-1.0]])
        encoder = encoder_from({"kind": "linear", "width": 1}, 1, seed=1)
        return OverRows(encoder, rows), np.arange(4), np.ones((4, 1))


def _nothing(name: str, variance: int, size: int) -> Integers:
    return np.zeros(size, dtype=np.int64)


@dataclass(frozen=True)
class ToldLabels:
    """One person's label, as the others learn of it: which of two labels was told, or which way the slopes point.

    In rounds the slopes are those of the protocol's teacher, whose weights are a script, at an embedding of zero; what
    other parties told counts too, in ``beside``.
    """

    task: Embeddings
    beside: Columns

    def __call__(self, neighbour: int, count: int, stream: Stream) -> Floats:
        """Log-likelihood ratios of ``count`` runs, up to a constant."""
        answers = self.answers(np.full(count, LABELS[neighbour], dtype=np.int64), stream)
        if self.task.training == "rounds":
            pointing = np.sign(self.slopes(answers))
        else:
            pointing = np.asarray(answers == LABELS[1], dtype=np.float64) - (answers == LABELS[0])
        return np.asarray(self.odds * pointing + self.beside(neighbour, count, stream))

    @property
    def odds(self) -> float:
        """What one answer is worth."""
        return float(np.log(float(self.task.label_odds or 1)))

    def answers(self, labels: Integers, stream: Stream) -> Integers:
        """The labels that everything that leaves the active party is made of."""
        return embedding_programs.told_labels(labels, self.task, stream)

    def slopes(self, answers: Integers) -> Floats:
        """How the teacher's slopes pull each person toward the second label rather than the first."""
        teacher, everybody = Teacher(answers, self.task), np.arange(len(answers))
        for label, weight in zip(LABELS, (_WEIGHT, -_WEIGHT), strict=True):
            teacher.weights[0, label] = weight
        told = {sender.owner: np.zeros((len(answers), sender.width)) for sender in self.task.senders}
        return np.asarray(teacher.slopes(everybody, told)[self.task.passives[0]][:, 0])


# --- the games


def _calibrated(epsilon: float, **given: object) -> Embeddings:
    owners = ("bank", "shop", "clinic")
    senders = (Sender("shop", 2, 1.0, 2), Sender("clinic", 1, 0.5, 2))
    task = Embeddings(Trust(owners, (), 0), "bank", senders, rows=400, classes=3, **given)  # type: ignore[arg-type]
    return task.calibrated(parse_budgets(epsilon, 1e-5, task.trust))


def _frozen() -> Embeddings:
    """A stage and one release of encoders that do not learn; epsilon 3 against everyone."""
    return _calibrated(3.0, stage=True)


def _learning() -> Embeddings:
    """Three epochs of updates in rounds, with labels at an epsilon of 1; epsilon 3 against everyone."""
    rounds = {"training": "rounds", "epochs": 3, "releases": 3, "batches": 4, "share": Fraction(1, 2)}
    return _calibrated(3.0, label_odds=odds_for(1.0), **rounds)


@register(
    "split-training",
    "updates of encoders, embeddings made by them, and labels",
    _learning,
)
@register(
    "split-embeddings",
    "embeddings of one person by encoders that do not learn",
    _frozen,
)
def embedding_games(task: Embeddings) -> Iterator[Game]:
    """The party that is told against the others' columns; those who are told labels, against the label."""
    frozen = task.training == "none"
    subject = "split-embeddings" if frozen else "split-training"
    everything = "its embeddings" if frozen else f"{task.epochs} updates of the encoder and all embeddings"
    story = f"a row turned around in the others' columns; {everything}"
    active, part = Observer.party(task.active), "embedding" if frozen else "update"
    yield Game(subject, active, story, task.events, task.trust, Columns(task, task.passives), part)
    if not frozen and task.label_odds is not None:
        seen = "the slopes that come back" if task.training == "rounds" else "the label that is told"
        watching, *others = task.passives
        told = ToldLabels(task, Columns(task, tuple(others) if watching in task.audience else ()))
        story = f"label {LABELS[0]} or label {LABELS[1]}, and a row turned around; {seen}"
        yield Game(subject, Observer.party(watching), story, task.events, task.trust, told, "labels")
