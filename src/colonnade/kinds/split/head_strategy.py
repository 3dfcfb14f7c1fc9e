"""What the ways to a head have in common: what each plans, what its participants do and end with, how it scores.

A strategy is one answer to the question of who learns the head from what: a committee from noisy moments, the party
with the label from embeddings with noise, or the same as it was published. Heads learn labels as the place of each
person's class, or as the encoded number.

The first way stands here: a committee learns the head from one noisy release of second moments, and no embedding leaves
anybody. Besides, what the party with the label can learn from its own columns alone: the same head, without noise.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from colonnade.drawing.canvas import Picture
from colonnade.errors import StudyError
from colonnade.kinds.regression.model import WEIGHTS
from colonnade.kinds.split import committee_head
from colonnade.kinds.split.committee_head import JointEmbeddings, Published, Task as HeadTask
from colonnade.kinds.split.encoder_base import EdgeOptions, Matrix, Training
from colonnade.kinds.split.encoders import USAGE_KEYS, Encoder, EncoderSpec
from colonnade.kinds.split.heads import LinearHead, check_prior
from colonnade.models.design import LabelDesign, split_label
from colonnade.models.pictures import noise_picture, reach_picture
from colonnade.models.planner import ENOUGH_OF_A_PREDICTION, PlanDetails, Roster, SampleSizeForecast
from colonnade.models.serialization import read_count
from colonnade.privacy import Budget, Statement, Trust, parse_budgets
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.protocols.task import Task
from colonnade.randomness import Stream
from colonnade.tables import Table

if TYPE_CHECKING:
    from colonnade.kinds.split.model import SplitModel


Arrays = Mapping[str, NDArray[Any]]


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
    constant = joint.constant(committee_head.GAMMA) / committee_head.GAMMA
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
        return committee_head.suggested_width(roster.trust, self.budgets(model, roster.trust), parties, model.rows)

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
        return sum(not column.startswith(committee_head.LABEL) for column in task.block(party).columns)

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
            "clips": {party: committee_head.LENGTH for party, width in joint.widths if width},
            "classes": joint.classes,
            "training": "none",
            **{name: float(value) for name, value in head.facts.items()},
        }
        public = {"weights": head.weights, "intercept": head.intercept, **joint.score_prior_arrays(published, head)}
        return LearnedHead(facts, public, encoders)

    # --- new people

    def prepare(self, model: SplitModel, party: str, raw: Matrix) -> Matrix:
        """Embeddings of one length."""
        return committee_head.scale_to_length(raw)

    def scores(self, model: SplitModel, parts: Mapping[str, Matrix]) -> Matrix:
        """The public head of all embeddings beside each other."""
        return self.head(model).scores(np.hstack([parts[party] for party in model.schemas_ if party in parts]))

    def head(self, model: SplitModel) -> LinearHead:
        """The head that everybody has."""
        return LinearHead(model.public_["weights"], model.public_["intercept"], str(model.plan_["solver"]))

    def check_restored(self, model: SplitModel) -> None:
        """Raise an error unless weights and widths belong together."""
        widths = model.plan_["widths"]
        clips = {party: committee_head.LENGTH for party, width in widths.items() if read_count(width)}
        if set(widths) != set(model.schemas_) or model.plan_["clips"] != clips:
            raise ValueError("widths and bounds are those of other parties or heads [VA054]")
        outputs = model.plan_["classes"] or 1
        if self.head(model).weights.shape != (outputs, sum(widths.values())):
            raise ValueError("weights and widths do not belong together [VA055]")
        check_prior(model.public_, outputs, len(widths))

    def picture(self, model: SplitModel) -> Picture:
        """How far each party's embedding can move the scores of the public head."""
        return reach_picture(model.public_["weights"], model.plan_["widths"], committee_head.LENGTH)

    def summary(self, model: SplitModel) -> list[str]:
        """About how many people it was learned from, as far as that is public."""
        return [f"everybody has the head, learned from about {model.plan_['rows']:,.0f} people"]


def joint_embeddings_of(model: SplitModel, task: HeadTask) -> JointEmbeddings:
    """The joint embeddings that a task is about."""
    party, _ = split_label(model.label, task.owners)
    outputs = sum(column.startswith(committee_head.LABEL) for column in task.block(party).columns)
    widths = tuple(
        (block.owner, sum(not c.startswith(committee_head.LABEL) for c in block.columns)) for block in task.blocks
    )
    return JointEmbeddings(widths, party, outputs if outputs > 1 else 0)
