"""What the ways to a head have in common: what each plans, what its participants do and end with, how it scores.

A strategy is one answer to the question of who learns the head from what: a committee from noisy moments, the party
with the label from embeddings with noise, or the same as it was published. Heads learn labels as the place of each
person's class, or as the encoded number.

The first way stands here: a committee learns the head from one noisy release of second moments, and no embedding leaves
anybody. Besides, what the party with the label can learn from its own columns alone: the same head, without noise.

For a head that a committee learns, embeddings of all parties lie side by side, and noisy moments of them are opened.
Every party embeds its rows by its own encoder and scales each embedding to a public length; the label's owner adds
columns of the label, scaled by a public weight. The committee computes the second moments of these columns as it does
for any others (protocols/moments), the noisy sums are opened once, and the head follows from them
(docs/theory/heads-from-moments.md). Where that would be too many sums, their products with few directions are opened
instead, in rounds that cost as much (kinds/pca/directions). No embedding of anybody leaves its party but as shares.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colonnade.drawing.canvas import Picture
from colonnade.errors import DataError, StudyError
from colonnade.kinds.pca.subspace_iteration import LabelledProducts, NoisyProducts
from colonnade.kinds.pca.task import SubspaceIteration, fits, reach_for
from colonnade.kinds.regression.model import WEIGHTS
from colonnade.kinds.split.encoder_base import EdgeOptions, Matrix, Training
from colonnade.kinds.split.encoders import USAGE_KEYS, Encoder, EncoderSpec
from colonnade.kinds.split.heads import (
    Arrays as Arrays,
    LabelledSums,
    LinearHead,
    check_prior,
    features_of,
    fit_head,
    label_only_head,
    prior_arrays,
)
from colonnade.models.design import LabelDesign, split_label
from colonnade.models.pictures import noise_picture, reach_picture
from colonnade.models.planner import ENOUGH_OF_A_PREDICTION, PlanDetails, Roster, SampleSizeForecast
from colonnade.models.serialization import read_count
from colonnade.privacy import Budget, Statement, Trust, parse_budgets
from colonnade.privacy.noise_laws import DEFAULT_LAW, NormalLawName
from colonnade.protocols.moments.task import Moments, NoisyMoments
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.rows import ColumnBlock, Rows
from colonnade.protocols.task import Task
from colonnade.randomness import Stream
from colonnade.tables import Table
from colonnade.tables.slots import RowSlots

if TYPE_CHECKING:
    from colonnade.kinds.split.model import SplitModel

Labels = NDArray[np.int64] | NDArray[np.float64]
HeadTask = Moments | SubspaceIteration
Published = NoisyMoments | NoisyProducts

LENGTH = 1.0
"""The length of every embedding. All noise grows with its square, so only ratios of lengths matter."""

LABEL = "label"
"""How the names of the label's columns begin."""

# Parts of the length of a joint embedding. All entries have the same noise: a longer column is known more exactly.
_CLASSES = 0.7
_NUMBER = 0.4
_CONSTANT = 1 / 3
_STEPS = 64  # weights are multiples of 1/64, so that scaling by them is exact
GAMMA = 4096
WIDE = 1500
"""With more numbers in a joint embedding, products with directions are opened: all moments would be a million sums."""
_DIRECTIONS, _STEPS_AT_LEAST = 50, 5
_ROWS = 10_000  # where nobody says how many people there are
_NARROWEST, _WIDEST = 16, 400
_PLACES = 256  # in a block that an encoder is given


@dataclass(frozen=True)
class JointEmbeddings:
    """All parties' embeddings beside each other, and a label: everything that is public about them.

    ``widths`` are the parties, in order, and how many numbers each one's embedding has; the label's owner may have
    none. ``classes`` is 0 where the label is a number between -1 and 1.
    """

    widths: tuple[tuple[str, int], ...]
    label_party: str
    classes: int

    def __post_init__(self) -> None:
        if self.label_party not in dict(self.widths):
            raise StudyError(f"{self.label_party} holds the label and is not among the parties [ST235]")
        for party, width in self.widths:
            if width < (0 if party == self.label_party else 1):
                raise StudyError(f"{party} has no embedding and no label, so it has no part in the study [ST236]")
        if not self.width:
            raise StudyError("no party has an embedding; a head needs at least one number to learn from [ST237]")
        if self.classes < 0 or self.classes == 1:
            raise StudyError("a label has at least two classes, or is a number (classes = 0) [ST238]")

    @property
    def width(self) -> int:
        """How many numbers a joint embedding has."""
        return sum(width for _, width in self.widths)

    @property
    def outputs(self) -> int:
        """How many columns the label has: one for each class, or one for a number."""
        return self.classes or 1

    @property
    def length(self) -> float:
        """The length of a joint embedding."""
        return LENGTH * math.sqrt(sum(1 for _, width in self.widths if width))

    @property
    def weight(self) -> float:
        """The factor of the label's columns."""
        return max(1, round(_STEPS * self.length * (_CLASSES if self.classes else _NUMBER))) / _STEPS

    @cached_property
    def blocks(self) -> tuple[ColumnBlock, ...]:
        """Every party's columns and how long a row of them may be; the label's come last among its owner's."""
        return tuple(self._block(party, width) for party, width in self.widths)

    def _block(self, party: str, width: int) -> ColumnBlock:
        columns, square = tuple(f"z{place}" for place in range(width)), LENGTH**2 if width else 0.0
        if party == self.label_party:
            columns += tuple(f"{LABEL}{place}" for place in range(self.outputs))
            square += self.weight**2
        return ColumnBlock(party, columns, math.nextafter(math.sqrt(square), math.inf))

    def constant(self, gamma: int) -> int:
        """The constant column. A number's means and the rows' number need it; classes' flags add up to them."""
        return 1 if self.classes else max(1, round(_CONSTANT * self.length * gamma))

    def plan(
        self,
        trust: Trust,
        budgets: Sequence[Budget],
        *,
        rows_at_most: int = 2**24,
        law: NormalLawName = DEFAULT_LAW,
        hidden: bool = False,
    ) -> HeadTask:
        """All moments, or products of them with directions where embeddings are wide and everybody knows the people."""
        if self.width > WIDE and not hidden:
            return self.directions(trust, budgets, rows_at_most=rows_at_most, law=law)
        return self.moments(trust, budgets, rows_at_most=rows_at_most, law=law, hidden=hidden)

    def moments(
        self,
        trust: Trust,
        budgets: Sequence[Budget],
        *,
        gamma: int = GAMMA,
        rows_at_most: int = 2**24,
        law: NormalLawName = DEFAULT_LAW,
        hidden: bool = False,
    ) -> Moments:
        """One release of all moments, with the least noise that keeps the budgets."""
        draft = Moments(
            blocks=self.blocks,
            trust=trust,
            gamma=gamma,
            constant=self.constant(gamma),
            rows_at_most=rows_at_most,
            noise=len(self.widths),
            law=law,
            hidden=hidden,
        )
        return draft.calibrate(budgets)

    def directions(
        self,
        trust: Trust,
        budgets: Sequence[Budget],
        *,
        rounds: int | None = None,
        gamma: int | None = None,
        rows_at_most: int = 2**24,
        law: NormalLawName = DEFAULT_LAW,
    ) -> SubspaceIteration:
        """Rounds of products with few directions, all of them together with the least noise that keeps the budgets.

        Without a ``gamma`` it is the largest power of two, from 4096 down, with which sums of so many rows fit.
        """
        each = max(2, self.outputs)
        steps = 1 + min(max(_STEPS_AT_LEAST, math.ceil(_DIRECTIONS / each)), math.ceil(self.width / each))
        steps = steps if rounds is None else rounds
        wide = self.width + self.outputs + 1
        for scale in (4096, 2048, 1024, 512) if gamma is None else (gamma,):
            draft = SubspaceIteration(
                blocks=self.blocks,
                trust=trust,
                gamma=scale,
                constant=self.constant(scale),
                rows_at_most=rows_at_most,
                directions=each,
                rounds=steps,
                noise=len(self.widths),
                law=law,
                reach=reach_for(wide, steps, each),
                labels=tuple(self._order[self.width :].tolist()),
            )
            task = draft.calibrate(budgets)
            if fits(task):
                break
        return task

    @cached_property
    def _order(self) -> NDArray[np.intp]:
        """Where the embeddings' columns stand among all, then the label's."""
        names = [column for block in self.blocks for column in block.columns]
        label = np.array([name.startswith(LABEL) for name in names])
        return np.concatenate([np.flatnonzero(~label), np.flatnonzero(label)])

    def rows(self, party: str, features: Rows, encoder: Encoder | None, labels: Labels | None = None) -> EmbeddedRows:
        """What a party brings: its encoded rows through its encoder, and the labels in the same order if it has them.

        Labels are numbers of classes, -1 for nobody's, or numbers between -1 and 1.
        """
        width = dict(self.widths)[party]
        if width != (0 if encoder is None else encoder.width):
            raise StudyError(
                f"the encoder of {party} gives embeddings of another width than was planned ({width}) [ST239]"
            )
        if (labels is None) != (party != self.label_party):
            raise StudyError(f"{self.label_party} brings the label, and nobody else does [ST240]")
        if encoder is not None:
            _require_alike(encoder, party)
        return EmbeddedRows(self, party, features, encoder, labels)

    def finish(self, published: Published, *, solver: str = "auto", ridge: float | str = "auto") -> LinearHead:
        """The head that the published moments give, for joint embeddings as :func:`embed_scaled` makes them."""
        if isinstance(published, NoisyProducts):
            return self._explore(published, solver, ridge)
        return self.head(published.matrix, published.deviations, published.constant, solver=solver, ridge=ridge)

    def head(
        self, matrix: Matrix, deviations: Matrix, constant: float, *, solver: str = "auto", ridge: float | str = "auto"
    ) -> LinearHead:
        """The head that sums of products of all columns and the constant give; their noise has these deviations."""
        sums = self._sums(matrix, deviations)
        return fit_head(sums, classes=self.classes, constant=constant, solver=solver, ridge=ridge)

    def score_prior_arrays(self, published: Published, head: LinearHead) -> Arrays:
        """The heads over single parties' embeddings; directions do not tell enough for them."""
        if isinstance(published, NoisyProducts):
            return {}
        sums, own, start = self._sums(published.matrix, published.deviations), {}, 0
        given = features_of(sums, classes=self.classes, constant=published.constant)
        for party, width in self.widths:
            if not width:
                own[party] = label_only_head(head.kind, given.label_means)
                continue
            kept = np.r_[start : start + width, self.width : len(sums.matrix)]
            start, chosen = start + width, np.ix_(kept, kept)
            alone = LabelledSums(sums.matrix[chosen], sums.deviations[chosen], sums.outputs)
            own[party] = fit_head(alone, classes=self.classes, constant=published.constant, solver=head.kind)
        return prior_arrays(given, sums.deviations[: self.width, : self.width], head, own)

    def _sums(self, matrix: Matrix, deviations: Matrix) -> LabelledSums:
        kept = self._order if self.classes else np.append(self._order, len(self._order))
        chosen = np.ix_(kept, kept)
        return self._unweighted(matrix[chosen], deviations[chosen])

    def _explore(self, published: NoisyProducts, solver: str, ridge: float | str) -> LinearHead:
        """The head within the directions that were asked for; it gives no weight to any other."""
        seen = LabelledProducts(published.task, published.directions, published.opened)
        sums = replace(self._unweighted(*seen.sums()), sought=True)
        found = fit_head(sums, classes=self.classes, constant=published.constant, solver=solver, ridge=ridge)
        facts = {**found.facts, "directions": float(seen.basis.shape[1])}
        return replace(found, weights=found.weights @ seen.basis.T, facts=facts)

    def _unweighted(self, matrix: Matrix, deviations: Matrix) -> LabelledSums:
        """The sums as they would be without the label's weight; its columns stand behind the features'."""
        start = len(matrix) - self.outputs - (not self.classes)
        factors = np.ones(len(matrix))
        factors[start : start + self.outputs] = 1 / self.weight
        both = np.outer(factors, factors)
        return LabelledSums(matrix * both, deviations * both, self.outputs)


@dataclass(frozen=True)
class EmbeddedRows:
    """One party's rows as the moments' program reads them: embedded and scaled block by block, the label last."""

    joint: JointEmbeddings
    party: str
    features: Rows
    encoder: Encoder | None
    labels: Labels | None

    @property
    def ids(self) -> Sequence[str]:
        """The ids of the rows, sorted."""
        return self.features.ids

    @property
    def places(self) -> RowSlots | None:
        """The slots of the rows, if nobody knows which people all parties hold."""
        return self.features.places

    def blocks(self, rows: int, /) -> Iterator[Matrix]:
        """The rows, some at a time."""
        start = 0
        for block in self.features.blocks(rows):
            here = slice(start, start + len(block))
            parts = [] if self.encoder is None else [embed_in_places(self.encoder, block, self.ids[here], self.party)]
            if self.labels is not None:
                parts.append(self._label(self.labels[here]))
            start += len(block)
            yield np.hstack(parts)
        if self.labels is not None and start != len(self.labels):
            raise DataError(f"{self.party} has another number of labels than of rows [DA084]")

    def matrix(self) -> Matrix:
        """All rows at once."""
        return np.vstack(list(self.blocks(8192)))

    def _label(self, labels: Labels) -> Matrix:
        weight = self.joint.weight
        if not self.joint.classes:
            return weight * np.clip(np.asarray(labels, dtype=np.float64), -1.0, 1.0)[:, None]
        flags: Matrix = weight * (np.arange(self.joint.classes) == np.asarray(labels)[:, None])
        return flags


def suggested_width(trust: Trust, budgets: Sequence[Budget], parties: int, rows: int | None = None) -> int:
    """How wide each of so many parties' embeddings should be, from the budgets and about how many people there are.

    With D numbers in all, the moments of unit rows have eigenvalues of about rows / D, and noise of f sqrt(D), where f
    is the noise on one entry. More numbers describe people better until most eigenvalues sink into the noise; that is
    where D^(3/2) = rows / f.
    """
    draft = JointEmbeddings(tuple((owner, 1) for owner in trust.owners), trust.owners[0], 2).moments(trust, budgets)
    each = draft.noise_std * draft.gamma**2 / draft.norm_squared
    total = ((_ROWS if rows is None else rows) / each) ** (2 / 3)
    return int(min(max(total / parties, _NARROWEST), _WIDEST)) // 8 * 8


def embed_scaled(encoder: Encoder, rows: Matrix, party: str = "a party") -> Matrix:
    """Embeddings of one length."""
    found = np.asarray(encoder.embed(rows), dtype=np.float64)
    if found.shape != (len(rows), encoder.width):
        raise DataError(f"the encoder of {party} gave embeddings of another shape than its width says [DA085]")
    return scale_to_length(found)


def embed_in_places(encoder: Encoder, rows: Matrix, ids: Sequence[str], party: str = "a party") -> Matrix:
    """The same, where each row stands at a place that follows from its id alone, in blocks of one size.

    So nobody's embedding changes by its last bits when somebody else is there or not: a library may add up the numbers
    of a row in another order at another place, or in a block of another shape.
    """
    places = np.array([zlib.crc32(name.encode()) % _PLACES for name in ids], dtype=np.int64)
    found, order = np.empty((len(rows), encoder.width)), np.argsort(places, kind="stable")
    turns = np.arange(len(rows)) - np.searchsorted(places[order], places[order])
    for turn in range(1 + int(turns.max(initial=-1))):
        here, block = order[turns == turn], np.zeros((_PLACES, rows.shape[1]))
        block[places[here]] = rows[here]
        found[here] = embed_scaled(encoder, block, party)[places[here]]
    return found


def _require_alike(encoder: Encoder, party: str) -> None:
    """Refuse an encoder that gives a row other last bits, at one place, when other rows stand at the others."""
    rows = np.random.default_rng(0).uniform(-1, 1, (_PLACES, encoder.columns))
    together, even = embed_scaled(encoder, rows, party), np.arange(_PLACES) % 2 == 0
    for kept in (even, ~even):
        if not np.array_equal(embed_scaled(encoder, rows * kept[:, None], party)[kept], together[kept]):
            raise StudyError(
                f"the encoder of {party} gives a row other last bits when others stand beside it, or each time: it "
                "must treat rows one by one, on a device that adds up in one order [ST760]"
            )


def scale_to_length(found: Matrix) -> Matrix:
    """Embeddings scaled to one length; zeros stay, and what is not a number counts as zeros: no row stops a study."""
    found = np.where(np.isfinite(found).all(axis=1, keepdims=True), found, 0.0)
    largest = np.abs(found).max(axis=1, keepdims=True, initial=0.0)
    found = found / np.where(largest > 0, largest, 1.0)  # first, so that squares neither vanish nor overflow
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    return np.asarray(found * (LENGTH / np.where(lengths > 0, lengths, 1.0)))


@dataclass(frozen=True)
class PlanSetting:
    """What is public before a plan: columns, who holds the label, who takes part, and which encoders there are."""

    design: LabelDesign
    roster: Roster
    encoders: Mapping[str, EncoderSpec]

    @property
    def active(self) -> str:
        """The party with the label."""
        return self.design.owner

    @property
    def classes(self) -> int:
        """How many classes the label has; 0 where it is a number."""
        return len(self.design.declared.classes)

    @property
    def widths(self) -> dict[str, int]:
        """The width of each party's embeddings; 0 where a party has nothing but the label."""
        return {party: self.encoders[party].width if party in self.encoders else 0 for party in self.design.schemas}


@dataclass(frozen=True)
class LearnedHead:
    """What a participant ends with.

    ``public`` are arrays that everybody has, ``facts`` plain values that everybody may know, ``encoders`` those that
    are in this process, and ``own`` the arrays that single parties have for themselves, such as a head.
    """

    facts: Mapping[str, Any]
    public: Arrays = field(default_factory=dict)
    encoders: Mapping[str, Encoder] = field(default_factory=dict)
    own: Mapping[str, Arrays] = field(default_factory=dict)


def merge_outcomes(outcomes: Mapping[str, LearnedHead], coordinator: LearnedHead) -> LearnedHead:
    """All that the participants ended with, where all of them run in one process."""
    encoders = {party: encoder for each in outcomes.values() for party, encoder in each.encoders.items()}
    own = {party: arrays for each in outcomes.values() for party, arrays in each.own.items()}
    return LearnedHead(coordinator.facts, coordinator.public, encoders, own)


class HeadStrategy(ABC):
    """One way to a head."""

    name: ClassVar[str]

    def complete_spec(self, said: Mapping[str, Any], width: int, *, active: bool, training: str) -> dict[str, Any]:
        """A specification of an encoder, with what was left out of it; ``active`` is the party with the label."""
        return {"kind": "edges" if "shape" in said else "cosine", "width": width, **said}

    @abstractmethod
    def plan(self, model: SplitModel, setting: PlanSetting, rows: int | None) -> Task:
        """The public task."""

    @abstractmethod
    def owner(self, model: SplitModel, me: Owner, encoder: Encoder | None, table: Table, task: Any) -> LearnedHead:
        """An owner's program."""

    @abstractmethod
    def coordinator(self, model: SplitModel, me: Coordinator, task: Any) -> LearnedHead:
        """The coordinator's program."""

    @abstractmethod
    def simulate(
        self, model: SplitModel, encoders: Mapping[str, Encoder], tables: Mapping[str, Table], task: Any, stream: Stream
    ) -> LearnedHead:
        """What all of them would end with, computed in one place."""

    @abstractmethod
    def prepare(self, model: SplitModel, party: str, raw: Matrix) -> Matrix:
        """Embeddings of a party as the head takes them, from those of its encoder."""

    @abstractmethod
    def scores(self, model: SplitModel, parts: Mapping[str, Matrix]) -> Matrix:
        """Scores, (rows, outputs), from the prepared embeddings of all parties."""

    @abstractmethod
    def width(self, task: Any, party: str) -> int:
        """The width of a party's embeddings in a task; 0 where it has none."""

    @abstractmethod
    def check_restored(self, model: SplitModel) -> None:
        """Raise an error unless the arrays and facts of a model that was read belong together."""

    def check_kept(self, model: SplitModel, party: str, own: Arrays, encoder: Encoder | None) -> None:
        """Raise an error unless arrays that a party kept for itself belong to this model; here nobody keeps any."""
        if own:
            raise ValueError("nobody keeps a head that everybody has [VA073]")

    def training_of(self, model: SplitModel) -> Training:
        """Whether private rows trained the encoders of a fitted model, which is charged."""
        return "none" if model.plan_["training"] == "none" else "charged"

    @abstractmethod
    def summary(self, model: SplitModel) -> list[str]:
        """Further lines about a fitted model, for the terminal."""

    def picture(self, model: SplitModel) -> Picture:
        """What is public about a fitted model, for a picture: the noise of what parties told."""
        return noise_picture(model.plan_["deviations"], "each number of an embedding")

    @abstractmethod
    def details(self, task: Any, statement: Statement) -> PlanDetails:
        """What a pre-flight says about this way in particular."""

    def outlook(self, model: SplitModel, task: Any, rows: int | None) -> SampleSizeForecast | None:
        """Whether so many people are enough; no figure for most ways."""
        return None

    @abstractmethod
    def default_width(self, model: SplitModel, design: LabelDesign, roster: Roster) -> int:
        """The width of embeddings for which nobody named one, from public quantities."""


def party_rows(model: SplitModel, party: str, table: Table) -> Matrix:
    """The rows of a party as its encoder reads them, without the label."""
    return model.centred_columns(party, table).centre_features(table).matrix()


def label_targets(model: SplitModel, party: str, table: Table, classes: int) -> NDArray[Any]:
    """The labels in a table of the party that holds them: classes as 0, 1, 2, ..., or encoded numbers."""
    encoded = model.centred_columns(party, table).labels(table)
    if not classes:
        return np.asarray(encoded[:, 0], dtype=np.float64)
    if encoded.shape[1] == 1:
        return np.asarray(encoded[:, 0] > 0.5, dtype=np.int64)
    return np.asarray(encoded.argmax(axis=1), dtype=np.int64)


def own_columns_head(model: SplitModel, encoder: Encoder, table: Table) -> LinearHead:
    """The head over the party's own embeddings, by the solver of the model; nothing of it is published."""
    design = model.design_
    joint = JointEmbeddings(((design.owner, encoder.width),), design.owner, len(design.declared.classes))
    labels = label_targets(model, design.owner, table, joint.classes)
    features = model.centred_columns(design.owner, table).centre_features(table)
    rows = joint.rows(design.owner, features, encoder, labels).matrix()
    constant = joint.constant(GAMMA) / GAMMA
    whole = np.hstack([rows, np.full((len(rows), 1), constant)])
    gram: Matrix = whole.T @ whole
    return joint.head(gram, np.zeros_like(gram), constant, solver=model.solver)


_WORTH = 1.5  # so many times the edges of an image that random cosines of them say more than they do


class CommitteeStrategy(HeadStrategy):
    """Second moments of all embeddings and the label are computed on shares and opened once, with noise."""

    name = "committee"

    # --- planning

    def default_width(self, model: SplitModel, design: LabelDesign, roster: Roster) -> int:
        """More numbers say more, and sink into the noise: as many as budgets and people allow."""
        parties = sum(1 for party in design.schemas if design.centred_columns(party).feature_names)
        return suggested_width(roster.trust, self.budgets(model, roster.trust), parties, model.rows)

    def complete_spec(self, said: Mapping[str, Any], width: int, *, active: bool, training: str) -> dict[str, Any]:
        """Of an image the edges as they are, unless far more numbers than these are worth their noise."""
        if "shape" in said and "kind" not in said and "width" not in said:
            options = {key: value for key, value in said.items() if key not in USAGE_KEYS}
            edges = EdgeOptions.read("edges", options).edges(math.prod(options["shape"]))
            return {"kind": "edges", "width": width if width >= _WORTH * edges else None, **said}
        return super().complete_spec(said, width, active=active, training=training)

    def plan(self, model: SplitModel, setting: PlanSetting, rows: int | None) -> HeadTask:
        """One release, with the least noise that meets the budgets."""
        if (trust := setting.roster.trust).committee == ():
            raise StudyError(
                'head = "committee" needs seats that hold shares: name them, or use head = "embeddings" [ST222]'
            )
        joint = JointEmbeddings(tuple(setting.widths.items()), setting.active, setting.classes)
        budgets = self.budgets(model, trust)
        return joint.plan(trust, budgets, rows_at_most=model.rows_at_most, hidden=setting.roster.hidden)

    def budgets(self, model: SplitModel, trust: Trust) -> tuple[Budget, ...]:
        """What each observer may learn."""
        if model.epsilon is None:
            raise StudyError(
                "say what the result may cost, by epsilon (what an observer may learn about a person) [ST224]"
            )
        return parse_budgets(model.epsilon, model.delta, trust)

    def width(self, task: HeadTask, party: str) -> int:
        """The columns of a party that are not the label's."""
        return sum(not column.startswith(LABEL) for column in task.block(party).columns)

    def details(self, task: HeadTask, statement: Statement) -> PlanDetails:
        """How wide the embeddings are; none of them is told to anybody."""
        widths = {party: self.width(task, party) for party in task.owners}
        wide = ", ".join(f"{party} {width}" for party, width in widths.items() if width)
        line = f"numbers of an embedding: {wide}; moments of them are opened once, and no embedding leaves its party"
        return PlanDetails(self.name, {"head": {"widths": widths}}, brief=(line,))

    def outlook(self, model: SplitModel, task: HeadTask, rows: int | None) -> SampleSizeForecast:
        """How far noise moves a class's predicted share, or a number in half ranges, by a typical embedding.

        Embeddings are taken to have half of the variance that their length allows, and weights the norm 1/2.
        """
        joint = joint_embeddings_of(model, task)
        moved = task.noise_std / math.sqrt(2) * math.hypot(1 / joint.weight, WEIGHTS)  # two copies off the diagonal
        scale = moved * math.sqrt(2) * joint.width / joint.length
        of = "a predicted share of a class" if joint.classes else "a prediction, in half ranges of the label,"
        return SampleSizeForecast.falling(of, ENOUGH_OF_A_PREDICTION, scale, rows)

    # --- the joint computation

    def owner(self, model: SplitModel, me: Owner, encoder: Encoder | None, table: Table, task: HeadTask) -> LearnedHead:
        """Every party deals shares of its embeddings."""
        published = task.programs.owner(me, self._rows(model, me.name, encoder, table, task), task)
        return self._learned(model, published, {} if encoder is None else {me.name: encoder})

    def coordinator(self, model: SplitModel, me: Coordinator, task: HeadTask) -> LearnedHead:
        """The coordinator receives the moments, as everybody does."""
        return self._learned(model, task.programs.coordinator(me, task), {})

    def simulate(
        self, model: SplitModel, encoders: Mapping[str, Encoder], tables: Mapping[str, Table], task: Any, stream: Stream
    ) -> LearnedHead:
        """The same in one place."""
        whole = {party: self._rows(model, party, encoders.get(party), tables[party], task) for party in task.owners}
        matrices = {party: rows.matrix() for party, rows in whole.items()}
        return self._learned(model, task.programs.simulate(matrices, task, stream), encoders)

    def _rows(self, model: SplitModel, party: str, encoder: Encoder | None, table: Table, task: HeadTask) -> Any:
        joint = joint_embeddings_of(model, task)
        labels = label_targets(model, party, table, joint.classes) if party == joint.label_party else None
        return joint.rows(party, model.centred_columns(party, table).centre_features(table), encoder, labels)

    def _learned(self, model: SplitModel, published: Published, encoders: Mapping[str, Encoder]) -> LearnedHead:
        """The head, which follows from what everybody received."""
        task = published.task
        joint = joint_embeddings_of(model, task)
        head = joint.finish(published, solver=model.solver)
        facts = {
            "how": f"committee ({head.kind})",
            "solver": head.kind,
            "active": joint.label_party,
            "widths": dict(joint.widths),
            "clips": {party: LENGTH for party, width in joint.widths if width},
            "classes": joint.classes,
            "training": "none",
            **{name: float(value) for name, value in head.facts.items()},
        }
        public = {"weights": head.weights, "intercept": head.intercept, **joint.score_prior_arrays(published, head)}
        return LearnedHead(facts, public, encoders)

    # --- new people

    def prepare(self, model: SplitModel, party: str, raw: Matrix) -> Matrix:
        """Embeddings of one length."""
        return scale_to_length(raw)

    def scores(self, model: SplitModel, parts: Mapping[str, Matrix]) -> Matrix:
        """The public head of all embeddings beside each other."""
        return self.head(model).scores(np.hstack([parts[party] for party in model.schemas_ if party in parts]))

    def head(self, model: SplitModel) -> LinearHead:
        """The head that everybody has."""
        return LinearHead(model.public_["weights"], model.public_["intercept"], str(model.plan_["solver"]))

    def check_restored(self, model: SplitModel) -> None:
        """Raise an error unless weights and widths belong together."""
        widths = model.plan_["widths"]
        clips = {party: LENGTH for party, width in widths.items() if read_count(width)}
        if set(widths) != set(model.schemas_) or model.plan_["clips"] != clips:
            raise ValueError("widths and bounds are those of other parties or heads [VA054]")
        outputs = model.plan_["classes"] or 1
        if self.head(model).weights.shape != (outputs, sum(widths.values())):
            raise ValueError("weights and widths do not belong together [VA055]")
        check_prior(model.public_, outputs, len(widths))

    def picture(self, model: SplitModel) -> Picture:
        """How far each party's embedding can move the scores of the public head."""
        return reach_picture(model.public_["weights"], model.plan_["widths"], LENGTH)

    def summary(self, model: SplitModel) -> list[str]:
        """About how many people it was learned from, as far as that is public."""
        return [f"everybody has the head, learned from about {model.plan_['rows']:,.0f} people"]


def joint_embeddings_of(model: SplitModel, task: HeadTask) -> JointEmbeddings:
    """The joint embeddings that a task is about."""
    party, _ = split_label(model.label, task.owners)
    outputs = sum(column.startswith(LABEL) for column in task.block(party).columns)
    widths = tuple((block.owner, sum(not c.startswith(LABEL) for c in block.columns)) for block in task.blocks)
    return JointEmbeddings(widths, party, outputs if outputs > 1 else 0)
