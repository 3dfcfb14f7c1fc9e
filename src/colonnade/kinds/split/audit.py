"""Games about embeddings and about moments of embeddings.

Besides, what an attacker sees of people through a split network: embeddings with their noise, published sums, slopes.

Slopes come back only where encoders learn together with the party that has the label. The protocol is then played in
one place, with the same steps, rounding and noise as in a study, and what comes back to each party is written down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.audit.attacks.membership import Codes, ReturnedGradients
from colonnade.audit.attacks.views import NO_SLOPES, ModelViews, observe_people
from colonnade.audit.registry import Game, describe_neighbours, observers, register
from colonnade.errors import StudyError
from colonnade.kinds.split import embedding_programs
from colonnade.kinds.split.embedding_programs import (
    EmbeddingScaling,
    EmbeddingSide,
    Integers as Integers,
    SlopeTeacher,
    play_rounds,
)
from colonnade.kinds.split.embedding_task import GRADIENT_BITS, EmbeddingSender, EmbeddingTask
from colonnade.kinds.split.encoder_base import Matrix, Places, RowEncoder
from colonnade.kinds.split.encoders import Encoder, encoder_from
from colonnade.kinds.split.head_strategy import JointEmbeddings, label_targets, party_rows
from colonnade.kinds.split.model import SplitModel, strategy_named
from colonnade.models import Roster
from colonnade.privacy import Observer, Trust, parse_budgets
from colonnade.privacy.noise.local_mechanisms import odds_of_epsilon, randomised_response
from colonnade.privacy.noise_laws import RandomisedResponse
from colonnade.protocols.iteration import NoiseSampler
from colonnade.protocols.moments import programs
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.task import own_noise
from colonnade.randomness import Stream
from colonnade.tables import Schema, Table, number

_FAR = 1e3
"""How many clips away an embedding or a gradient is, before it is clipped."""
_CENTRE, _SCALE = 0.25, 3.0
"""The script of the stage: a centre, in parts of the clip, and a scale with which everybody is clipped again."""
_WEIGHT = 1.0
LABELS = (0, 1)


@dataclass(frozen=True)
class EmbeddingSampler:
    """The likelihood ratio of two tables, from all that is charged about the columns of ``tellers`` in a run.

    One person is at one end of every teller's embeddings and gradients, or at the other. Updates are not told, but are
    charged as if they were; so the observer is shown them.
    """

    task: EmbeddingTask
    tellers: tuple[str, ...]

    def __call__(self, neighbour: int, count: int, stream: Stream) -> Matrix:
        """Log-likelihood ratios of ``count`` runs, up to a constant."""

        def draw(name: str, variance: int, size: int) -> Integers:
            return own_noise(name, variance).draw((size,), stream)

        total = np.zeros(count)
        for name in self.tellers:
            for told, weights in zip(self.told(name, neighbour, count, draw), self.weights[name], strict=True):
                total += told @ weights
        return total

    @cached_property
    def weights(self) -> dict[str, list[Matrix]]:
        """For each number that is told, how far it moves over the variance of its noise."""
        found = {}
        for name in self.tellers:
            first, second = (list(self.told(name, neighbour, 1, _nothing)) for neighbour in (0, 1))
            moved = (after[0] - before[0] for before, after in zip(first, second, strict=True))
            found[name] = [change / variance for change, variance in zip(moved, self.variances(name), strict=True)]
        return found

    def told(self, name: str, neighbour: int, count: int, draw: NoiseSampler) -> Iterator[Matrix]:
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

    def embedded(self, name: str, sign: float, count: int, draw: NoiseSampler) -> Iterator[Matrix]:
        """The embeddings: of the stage, and then with the script's centre and scale, as often as they are told."""
        task, sender = self.task, self.task.sender(name)
        rows, everybody = np.zeros((count, sender.width)), np.arange(count)
        rows[:, 0] = sign * _FAR * sender.clip
        encoding = RowEncoder(encoder_from({"kind": "linear"}, sender.width), rows)  # far beyond the clip, as they are
        if task.stage:
            yield EmbeddingSide(encoding, name, task, draw).first(count).reshape(count, -1).astype(np.float64)
        centre = np.zeros(sender.width)
        centre[0] = _CENTRE * sender.clip
        side = EmbeddingSide(encoding, name, task, draw, EmbeddingScaling(centre, _SCALE))
        for _ in range(self.releases):
            yield side.embeddings(everybody).reshape(count, -1).astype(np.float64)

    def updated(self, name: str, sign: float, count: int, draw: NoiseSampler) -> Matrix:
        """One update of a linear encoder in ``count`` runs; there are three others in the batch."""
        task, variance = self.task, self.task.update_variance

        def drawn(numbers: int) -> Integers:
            return draw(name, variance, count * numbers).reshape(count, numbers)

        return self.summed(*self.batch(sign), task.gradient_clip, drawn)

    def summed(
        self, learner: RowEncoder, places: Places, slopes: Matrix, clip: float, draw: embedding_programs.NoiseDraw
    ) -> Matrix:
        """The noised sum of gradients, with noise for all runs at once."""
        return embedding_programs.sum_with_noise(learner, places, slopes, clip, draw)

    def batch(self, sign: float) -> tuple[RowEncoder, Places, Matrix]:
        """A linear encoder over the rows of four people, and slopes that the observer chose."""
        rows = np.array([[sign * _FAR * self.task.gradient_clip], [1.0], [0.5], [-1.0]])
        encoder = encoder_from({"kind": "linear", "width": 1}, 1, seed=1)
        return RowEncoder(encoder, rows), np.arange(4), np.ones((4, 1))


def _nothing(name: str, variance: int, size: int) -> Integers:
    return np.zeros(size, dtype=np.int64)


@dataclass(frozen=True)
class LabelSlopeSampler:
    """One person's label, as the others learn of it: which of two labels was told, or which way the slopes point.

    In rounds the slopes are those of the protocol's teacher, whose weights are a script, at an embedding of zero; what
    other parties told counts too, in ``beside``.
    """

    task: EmbeddingTask
    beside: EmbeddingSampler

    def __call__(self, neighbour: int, count: int, stream: Stream) -> Matrix:
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
        return embedding_programs.randomise_labels(labels, self.task, stream)

    def slopes(self, answers: Integers) -> Matrix:
        """How the teacher's slopes pull each person toward the second label rather than the first."""
        teacher, everybody = SlopeTeacher(answers, self.task), np.arange(len(answers))
        for label, weight in zip(LABELS, (_WEIGHT, -_WEIGHT), strict=True):
            teacher.weights[0, label] = weight
        told = {sender.owner: np.zeros((len(answers), sender.width)) for sender in self.task.senders}
        return np.asarray(teacher.slopes(everybody, told)[self.task.passives[0]][:, 0])


# --- the games


def _calibrate(epsilon: float, **given: object) -> EmbeddingTask:
    owners = ("bank", "shop", "clinic")
    senders = (EmbeddingSender("shop", 2, 1.0, 2), EmbeddingSender("clinic", 1, 0.5, 2))
    task = EmbeddingTask(Trust(owners, (), 0), "bank", senders, rows=400, classes=3, **given)  # type: ignore[arg-type]
    return task.calibrate(parse_budgets(epsilon, 1e-5, task.trust))


def _frozen() -> EmbeddingTask:
    """A stage and one release of encoders that do not learn; epsilon 3 against everyone."""
    return _calibrate(3.0, stage=True)


def _learning() -> EmbeddingTask:
    """Three epochs of updates in rounds, with labels at an epsilon of 1; epsilon 3 against everyone."""
    rounds = {"training": "rounds", "epochs": 3, "releases": 3, "batches": 4, "share": Fraction(1, 2)}
    return _calibrate(3.0, label_odds=odds_of_epsilon(1.0), **rounds)


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
def embedding_games(task: EmbeddingTask) -> Iterator[Game]:
    """The party that is told against the others' columns; those who are told labels, against the label."""
    frozen = task.training == "none"
    subject = "split-embeddings" if frozen else "split-training"
    everything = "its embeddings" if frozen else f"{task.epochs} updates of the encoder and all embeddings"
    story = f"a row turned around in the others' columns; {everything}"
    active, part = Observer.party(task.active), "embedding" if frozen else "update"
    yield Game(subject, active, story, task.events, task.trust, EmbeddingSampler(task, task.passives), part)
    if not frozen and task.label_odds is not None:
        seen = "the slopes that come back" if task.training == "rounds" else "the label that is told"
        watching, *others = task.passives
        told = LabelSlopeSampler(task, EmbeddingSampler(task, tuple(others) if watching in task.audience else ()))
        story = f"label {LABELS[0]} or label {LABELS[1]}, and a row turned around; {seen}"
        yield Game(subject, Observer.party(watching), story, task.events, task.trust, told, "labels")


_COLUMNS = 2
_OTHERS = 1
_TRIED = 100
_TINY = 1e-6


@dataclass(frozen=True)
class FeatureStudy:
    """A committee's head to play with: its public layout and task, and how each party embeds its columns."""

    joint: JointEmbeddings
    task: Moments
    specs: tuple[tuple[str, str], ...]

    def encoder(self, party: str) -> Encoder:
        """A party's encoder, drawn from a public seed."""
        width = dict(self.joint.widths)[party]
        return encoder_from({"kind": dict(self.specs)[party], "width": width}, _COLUMNS, seed=1)


@dataclass(frozen=True, eq=False)
class EncodedPeople:
    """Some people: each party's encoded columns of them, and their classes."""

    columns: Mapping[str, Matrix]
    classes: NDArray[np.int64]


@dataclass(frozen=True)
class _Listed:
    """Encoded rows as the moments' program reads them."""

    rows: Matrix
    places: None = None

    @property
    def ids(self) -> Sequence[str]:
        return [f"{index:04}" for index in range(len(self.rows))]

    def blocks(self, rows: int, /) -> Iterator[Matrix]:
        yield from (self.rows[start : start + rows] for start in range(0, len(self.rows), rows))


@dataclass(frozen=True)
class FeatureMomentSampler:
    """The opened entries that differ between two tables, each weighed by how much it differs.

    ``noisy`` are the owners whose noise the observer cannot subtract.
    """

    study: FeatureStudy
    tables: tuple[EncodedPeople, EncodedPeople]
    noisy: tuple[str, ...]

    def __call__(self, neighbour: int, count: int, stream: Stream) -> Matrix:
        """The weighed sum of the opened entries, for ``count`` runs of the protocol."""
        task = self.study.task
        people = [self._rounded(person, count, stream) for person in self.embedded[neighbour]]
        total = np.zeros(count)
        for i, j in np.argwhere(np.triu(self.moves)).tolist():
            copies = np.full(count, 1 if i == j else 2)
            entry = copies * sum((rows[:, i] * rows[:, j] for rows in people), np.zeros(count, dtype=np.int64))
            for _ in self.noisy:
                entry += programs.sample_entry_noise(task, copies, stream)
            total += self.moves[i, j] * entry
        return total

    def encoder(self, party: str, people: EncodedPeople) -> Encoder:
        """A party's encoder, which does not depend on anybody."""
        return self.study.encoder(party)

    @cached_property
    def embedded(self) -> tuple[Matrix, Matrix]:
        """The joint rows of both tables as parties bring them, without the constant."""
        first, second = (self._embedded(table) for table in self.tables)
        return first, second

    @cached_property
    def moves(self) -> Matrix:
        """How much each entry of the full matrix moves, scaled to at most one; too small a move counts as none."""
        change = self.change / np.abs(self.change).max()
        return np.asarray(np.where(np.abs(change) > _TINY, change, 0.0))

    @cached_property
    def change(self) -> Matrix:
        """How far the moments are apart."""
        first, second = (_with_constant(rows, self.study.task) for rows in self.embedded)
        return np.asarray(second.T @ second - first.T @ first)

    def _embedded(self, people: EncodedPeople) -> Matrix:
        joint, parts = self.study.joint, []
        for party, width in joint.widths:
            encoder = self.encoder(party, people) if width else None
            labels = people.classes if party == joint.label_party else None
            parts.append(joint.rows(party, _Listed(people.columns[party]), encoder, labels).matrix())
        return np.hstack(parts)

    def _rounded(self, person: Matrix, count: int, stream: Stream) -> NDArray[np.int64]:
        """One person's integers in ``count`` runs, with the constant."""
        task = self.study.task
        parts = [
            programs.OwnMoments(task, owner).quantise(np.tile(person[task.span(owner)], (count, 1)), stream)
            for owner in task.owners
        ]
        return np.hstack([*parts, np.full((count, 1), float(task.constant))]).astype(np.int64)


def _with_constant(rows: Matrix, task: Moments) -> Matrix:
    return np.column_stack([rows, np.full(len(rows), task.constant / task.gamma)])


def find_furthest_people(study: FeatureStudy, observer: Observer, noisy: tuple[str, ...]) -> FeatureMomentSampler:
    """Of many pairs that the observer must not tell apart, the one that moves the moments furthest."""
    drawn = np.random.default_rng(1)
    others = _people(study, drawn, _OTHERS)
    tried = []
    for _ in range(1 if observer == Observer.analyst() else _TRIED):
        second = _people(study, drawn, 1)
        first = None if observer == Observer.analyst() else _change_row(study, second, observer, drawn)
        tried.append(FeatureMomentSampler(study, (_join_columns(others, first), _join_columns(others, second)), noisy))
    return max(tried, key=lambda features: float((features.change**2).sum()))


def _people(study: FeatureStudy, drawn: np.random.Generator, count: int) -> EncodedPeople:
    columns = {party: drawn.uniform(-1, 1, (count, _COLUMNS)) for party, _ in study.joint.widths}
    return EncodedPeople(columns, drawn.integers(study.joint.classes, size=count))


def _change_row(
    study: FeatureStudy, person: EncodedPeople, observer: Observer, drawn: np.random.Generator
) -> EncodedPeople:
    """Somebody else in all columns that the observer does not hold, with another class if that is one of them."""
    other, joint = _people(study, drawn, 1), study.joint
    columns = {party: (person if party in observer.names else other).columns[party] for party, _ in joint.widths}
    turned = joint.label_party not in observer.names
    return EncodedPeople(columns, (person.classes + turned) % joint.classes)


def _join_columns(others: EncodedPeople, person: EncodedPeople | None) -> EncodedPeople:
    if person is None:
        return others
    columns = {party: np.vstack([rows, person.columns[party]]) for party, rows in others.columns.items()}
    return EncodedPeople(columns, np.concatenate([others.classes, person.classes]))


def _example() -> FeatureStudy:
    """Two parties with random cosines and a linear map, a label of two classes; epsilon 1 against the analyst."""
    schema = Schema({f"c{index}": number(-1, 1) for index in range(_COLUMNS)}, clip=1.0)
    roster = Roster.of({"left": schema, "right": schema})
    joint = JointEmbeddings((("left", 2), ("right", 2)), "left", 2)
    task = joint.moments(roster.trust, parse_budgets({"analyst": 1.0}, 1e-5, roster.trust), rows_at_most=2**20)
    return FeatureStudy(joint, task, (("left", "cosine"), ("right", "linear")))


@register("split-moments", "moments of embeddings and labels, opened once", _example)
def feature_games(study: FeatureStudy) -> Iterator[Game]:
    """Every observer within the threshold, one for all who are in the same position."""
    for observer, noisy in observers(study.task):
        sampler = find_furthest_people(study, observer, noisy)
        story = f"{describe_neighbours(observer)} through everybody's encoders; the opened entries that move"
        yield Game("split-moments", observer, story, study.task.events, study.task.trust, sampler)


_MOST_EPOCHS = 5
"""Of which slopes are kept: the first ones, when predictions still know little, point to labels best."""


def slopes_by_epoch(said: Sequence[tuple[str, NDArray[np.int64], Matrix, Matrix]], rows: int) -> Matrix:
    """The slopes that came back to the first party in the first epochs, (epochs, people, numbers).

    ``said`` is of each batch and party who was in it, what was told and what came back; everybody is in one batch of an
    epoch.
    """
    own = [(places, slopes) for party, places, _, slopes in said if party == said[0][0]]
    order = np.concatenate([places for places, _ in own]).reshape(-1, rows)
    slopes = np.vstack([found for _, found in own]).reshape(*order.shape, -1)
    return np.take_along_axis(slopes, np.argsort(order)[:, :, None], axis=1)[:_MOST_EPOCHS]


def observe_labels(
    model: SplitModel, people: Mapping[str, Table], task: EmbeddingTask, known: NDArray[np.intp], stream: Stream
) -> ReturnedGradients:
    """What the first passive party learns about everybody's label while encoders learn from these people."""
    labels = label_targets(model, task.active, people[task.active], task.classes)
    event = task.labels_event
    told = labels if task.label_odds is None else randomised_response(labels, task.classes, task.label_odds, stream)
    slopes: Matrix = np.eye(task.classes)[told]
    if task.training == "rounds":
        slopes = slopes_by_epoch(_train_rounds(model, people, told, task, stream), task.rows)
    epsilon = event.epsilon if isinstance(event, RandomisedResponse) else None
    itself = task.training == "labels"
    return ReturnedGradients(
        slopes, np.asarray(labels, dtype=np.intp), known, task.classes, epsilon, labels_told=itself
    )


def observe_slopes(
    model: SplitModel, people: Mapping[str, Table], roster: Roster, known: NDArray[np.intp], stream: Stream
) -> ReturnedGradients:
    """What the first passive party gets back while encoders and head learn together as published."""
    said: list[Any] = []
    model.watch = lambda *one: said.append(one)
    model.simulate(people, roster, stream)
    active = model.design_.owner
    labels = label_targets(model, active, people[active], model.plan_["classes"])
    slopes = slopes_by_epoch(said, next(iter(people.values())).rows)
    return ReturnedGradients(slopes, np.asarray(labels, dtype=np.intp), known, model.plan_["classes"])


def _train_rounds(
    model: SplitModel, people: Mapping[str, Table], told: Codes, task: EmbeddingTask, stream: Stream
) -> list[tuple[str, NDArray[np.int64], Matrix, Matrix]]:
    """The rounds of the first epochs, as the parties play them."""
    sides = {}
    for party in task.passives:
        encoder = model.encoder_of(party, people[party], task, int(stream.uint64(1)[0]))
        assert encoder is not None  # noqa: S101 - for the type checker; a passive party has columns
        sides[party] = EmbeddingSide(
            RowEncoder(encoder, party_rows(model, party, people[party])),
            party,
            task,
            lambda name, size, count: own_noise(name, size).draw((count,), stream),
        )
    return list(play_rounds(sides, told, task, min(task.epochs, _MOST_EPOCHS)))


class SplitViews(ModelViews):
    """What split networks show of one person, by the way to their head."""

    def observe(self, model: SplitModel, party: str, table: Table, seed: int, releases: int) -> tuple[Matrix, str, str]:
        """A party's embeddings under the noise of their releases, or as the published sums hold them."""
        factor, deviation, what, needs = _release_of(model, party)
        embedded = factor * np.asarray(model.embedded(party, table))
        noise = np.random.default_rng(seed).normal(size=embedded.shape)
        if releases > 1:
            most = int(model.plan_.get("epochs", 0)) or 1 if model.head_ == "published" else 1
            if releases > most:
                raise StudyError(f"embeddings were told {most} times in this model, so no more can be averaged [ST007]")
            deviation, what = deviation / math.sqrt(releases), f"{what}, averaged over {releases} releases,"
        return embedded + deviation * noise, what, needs

    def near(self, model: SplitModel, party: str, people: Mapping[str, Table], seed: int) -> Matrix:
        """A party's embeddings under their noise; only a classifier has classes to be near to."""
        if getattr(model, "classes_", None) is None:
            return super().near(model, party, people, seed)
        if model.head_ == "committee":
            raise StudyError(
                f"{party} tells nobody anything about single people, only shares: attack the scores [ST009]"
            )
        return observe_people(model, party, people, seed).numbers

    def check_kept(self, model: SplitModel, needed: Iterable[str]) -> None:
        """Every party of which rows are embedded must have given its encoder."""
        encoded = [party for party in needed if model.feature_schema(party) is not None]
        if missing := [party for party in encoded if party not in model.encoders_]:
            raise StudyError(
                f"the attack needs what {', '.join(missing)} kept of the model: give each party's kept "
                "file by --kept [ST012]"
            )

    def has_public_scores(self, model: SplitModel) -> bool:
        """Encoders that were drawn without the table tell nothing of it; those that learned stay with their parties."""
        return strategy_named(model.head_).training_of(model) == "none"

    def fresh(self, model: SplitModel) -> Any:
        """The model not fitted; encoders that learned nothing from anybody are kept: whoever attacks may know them."""
        again = super().fresh(model)
        if model.encoders_ and self.has_public_scores(model):
            said = model.parameters_["encoders"] or {}
            # An encoder by itself names no clip: of those that have one the specification stays.
            clipped = {party for party, each in said.items() if isinstance(each, Mapping) and "clip" in each}
            again.encoders = said | {party: each for party, each in model.encoders_.items() if party not in clipped}
        return again

    def gradients(
        self, model: SplitModel, people: Mapping[str, Table], known: int, seed: int, stream: Stream
    ) -> ReturnedGradients:
        """Slopes of the algorithm as published, or what a teacher answers about labels."""
        again = self.fresh(model)
        rows = next(iter(people.values())).rows
        roster = Roster(dict(model.schemas_), model.privacy_.trust)
        task = again.planned(roster, rows)
        places = np.random.default_rng(seed).permutation(rows)[:known]
        if task.scheme == "published" and task.classes:
            return observe_slopes(again, people, roster, places, stream)
        if task.scheme != "embeddings" or task.training == "none":
            raise StudyError(NO_SLOPES)
        return observe_labels(again, people, task, places, stream)


SPLIT_VIEWS = SplitViews()


def _release_of(model: SplitModel, party: str) -> tuple[float, float, str, str]:
    """A factor and a deviation of noise, under which embeddings of a party can be seen, what that is, what it needs."""
    if model.head_ == "committee":
        plan = model.plan_
        joint = JointEmbeddings(tuple(plan["widths"].items()), plan["active"], plan["classes"])
        # Who knows everybody else subtracts them: left is one row, of which the products with its label are a copy.
        needs = "the published sums, the embeddings of everybody else that are in them, the person's label"
        return joint.weight, model.noise_std_, "published sums", needs
    if (deviation := model.plan_.get("deviations", {}).get(party)) is None:
        raise StudyError(f"{party} tells nobody anything about single people, so there is nothing to invert [ST010]")
    return 1.0, float(deviation), "noised embeddings" if deviation else "unprotected embeddings", ""
