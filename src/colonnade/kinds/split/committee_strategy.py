"""A head that a committee learns from one noisy release of second moments; no embedding leaves anybody.

Besides, what the party with the label can learn from its own columns alone: the same head, without noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from colonnade.drawing.canvas import Picture
from colonnade.errors import StudyError
from colonnade.kinds.regression.model import WEIGHTS
from colonnade.kinds.split import committee_head, owner_training
from colonnade.kinds.split.committee_head import JointEmbeddings, Published, Task
from colonnade.kinds.split.encoders import Encoder, TrainableEncoder
from colonnade.kinds.split.head_strategy import (
    EmbeddingMatrix,
    HeadStrategy,
    LearnedHead,
    PlanSetting,
    Training,
    label_targets,
)
from colonnade.kinds.split.heads import LinearHead, check_prior
from colonnade.kinds.split.numpy_encoders import EdgeOptions
from colonnade.kinds.split.private_training import PrivateTraining
from colonnade.kinds.split.validate_params import USAGE_KEYS, count_parameters, linear_over
from colonnade.models.design import LabelDesign, split_label
from colonnade.models.pictures import reach_picture
from colonnade.models.planner import PlanDetails, Roster
from colonnade.models.sample_size import ENOUGH_OF_A_PREDICTION, SampleSizeForecast
from colonnade.privacy import Budget, Statement, Trust, parse_budgets
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.randomness import Stream
from colonnade.tables import Table

if TYPE_CHECKING:
    from colonnade.kinds.split.model import SplitModel


def own_columns_head(model: SplitModel, encoder: Encoder, table: Table) -> LinearHead:
    """The head over the party's own embeddings, by the solver of the model; nothing of it is published."""
    design = model.design_
    joint = JointEmbeddings(((design.owner, encoder.width),), design.owner, len(design.declared.classes))
    centred = model.centred_columns(design.owner, table)
    labels = label_targets(centred, table, joint.classes)
    rows = joint.rows(design.owner, centred.centre_features(table), encoder, labels).matrix()
    constant = joint.constant(committee_head.GAMMA) / committee_head.GAMMA
    whole = np.hstack([rows, np.full((len(rows), 1), constant)])
    gram: EmbeddingMatrix = whole.T @ whole
    return joint.head(gram, np.zeros_like(gram), constant, solver=model.solver)


def embed_own_columns(model: SplitModel, encoder: Encoder, table: Table) -> EmbeddingMatrix:
    """The party's embeddings as that head takes them."""
    owner = model.design_.owner
    return committee_head.embed_scaled(
        encoder, model.centred_columns(owner, table).centre_features(table).matrix(), owner
    )


_EPOCHS, _SHARE = 20, 0.3
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
        if active and training == "own" and "kind" not in said:
            return linear_over(said, width)
        if "shape" in said and "kind" not in said and "width" not in said:
            options = {key: value for key, value in said.items() if key not in USAGE_KEYS}
            edges = EdgeOptions.read("edges", options).edges(math.prod(options["shape"]))
            return {"kind": "edges", "width": width if width >= _WORTH * edges else None, **said}
        return super().complete_spec(said, width, active=active, training=training)

    def plan(self, model: SplitModel, setting: PlanSetting, rows: int | None) -> Task:
        """One release, with the least noise that meets the budgets."""
        if (trust := setting.roster.trust).committee == ():
            raise StudyError(
                'head = "committee" needs seats that hold shares: name them, or use head = "embeddings" [ST222]'
            )
        joint = JointEmbeddings(tuple(setting.widths.items()), setting.active, setting.classes)
        budgets = self.budgets(model, trust)
        if model.training == "own":
            if rows is None or setting.active not in setting.encoders:
                raise StudyError('training = "own" needs rows, a public number, and a column besides the label [ST223]')
            setting.roster.require_known_members('training = "own"')
            before = self._training(model, joint, count_parameters(setting.encoders[setting.active]), rows, trust)
            hidden, most = setting.roster.hidden, model.rows_at_most
            return owner_training.moments_after(joint, before, trust, budgets, rows_at_most=most, hidden=hidden)
        return joint.plan(trust, budgets, rows_at_most=model.rows_at_most, hidden=setting.roster.hidden)

    def _training(
        self, model: SplitModel, joint: JointEmbeddings, parameters: int, rows: int, trust: Trust
    ) -> PrivateTraining:
        """How the party with the label trains its encoder; the same wherever it is planned."""
        budgets, epochs = self.budgets(model, trust), model.epochs or _EPOCHS
        return owner_training.plan_training(joint, parameters, rows, trust, budgets, epochs=epochs, share=_SHARE)

    def budgets(self, model: SplitModel, trust: Trust) -> tuple[Budget, ...]:
        """What each observer may learn."""
        if model.epsilon is None:
            raise StudyError(
                "say what the result may cost, by epsilon (what an observer may learn about a person) [ST224]"
            )
        return parse_budgets(model.epsilon, model.delta, trust)

    def width(self, task: Task, party: str) -> int:
        """The columns of a party that are not the label's."""
        return sum(not column.startswith(committee_head.LABEL) for column in task.block(party).columns)

    def details(self, task: Task, statement: Statement) -> PlanDetails:
        """How wide the embeddings are; none of them is told to anybody."""
        widths = {party: self.width(task, party) for party in task.owners}
        wide = ", ".join(f"{party} {width}" for party, width in widths.items() if width)
        line = f"numbers of an embedding: {wide}; moments of them are opened once, and no embedding leaves its party"
        return PlanDetails(self.name, {"head": {"widths": widths}}, brief=(line,))

    def outlook(self, model: SplitModel, task: Task, rows: int | None) -> SampleSizeForecast:
        """How far noise moves a class's predicted share, or a number in half ranges, by a typical embedding.

        Embeddings are taken to have half of the variance that their length allows, and weights the norm 1/2.
        """
        joint = joint_embeddings_of(model, task)
        moved = task.noise_std / math.sqrt(2) * math.hypot(1 / joint.weight, WEIGHTS)  # two copies off the diagonal
        scale = moved * math.sqrt(2) * joint.width / joint.length
        of = "a predicted share of a class" if joint.classes else "a prediction, in half ranges of the label,"
        return SampleSizeForecast.falling(of, ENOUGH_OF_A_PREDICTION, scale, rows)

    # --- the joint computation

    def owner(self, model: SplitModel, me: Owner, encoder: Encoder | None, table: Table, task: Task) -> LearnedHead:
        """Every party deals shares of its embeddings."""
        self._train(model, me.name, encoder, table, task, Stream.fresh())
        published = committee_head.owner(me, self._rows(model, me.name, encoder, table, task), task)
        return self._learned(model, published, {} if encoder is None else {me.name: encoder})

    def coordinator(self, model: SplitModel, me: Coordinator, task: Task) -> LearnedHead:
        """The coordinator receives the moments, as everybody does."""
        return self._learned(model, committee_head.coordinator(me, task), {})

    def simulate(
        self, model: SplitModel, encoders: Mapping[str, Encoder], tables: Mapping[str, Table], task: Any, stream: Stream
    ) -> LearnedHead:
        """The same in one place."""
        for party in task.owners:
            self._train(model, party, encoders.get(party), tables[party], task, stream)
        whole = {party: self._rows(model, party, encoders.get(party), tables[party], task) for party in task.owners}
        matrices = {party: rows.matrix() for party, rows in whole.items()}
        return self._learned(model, committee_head.simulate(matrices, task, stream), encoders)

    def _train(
        self, model: SplitModel, party: str, encoder: Encoder | None, table: Table, task: Task, stream: Stream
    ) -> None:
        """Train the encoder of the party with the label in place, if the task is charged for that."""
        joint = joint_embeddings_of(model, task)
        if model.training != "own" or party != joint.label_party:
            return
        if not isinstance(encoder, TrainableEncoder):
            raise StudyError(f"the encoder of {party} has nothing to learn [ST225]")
        plan = self._training(model, joint, encoder.parameters, model.rows or table.rows, task.trust)
        if plan.events != task.charged:
            raise StudyError(
                f"{party} would train otherwise than the study is charged for: plan the study again [ST226]"
            )
        centred = model.centred_columns(party, table)
        rows, labels = centred.centre_features(table).matrix(), label_targets(centred, table, joint.classes)
        owner_training.train_own(encoder, rows, labels, joint, plan, stream)

    def _rows(self, model: SplitModel, party: str, encoder: Encoder | None, table: Table, task: Task) -> Any:
        joint = joint_embeddings_of(model, task)
        centred = model.centred_columns(party, table)
        labels = label_targets(centred, table, joint.classes) if party == joint.label_party else None
        return joint.rows(party, centred.centre_features(table), encoder, labels)

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
            "training": "own" if task.charged else "none",
            **{name: float(value) for name, value in head.facts.items()},
        }
        public = {"weights": head.weights, "intercept": head.intercept, **joint.score_prior_arrays(published, head)}
        return LearnedHead(facts, public, encoders)

    # --- new people

    def prepare(self, model: SplitModel, party: str, raw: EmbeddingMatrix) -> EmbeddingMatrix:
        """Embeddings of one length."""
        return committee_head.scale_to_length(raw)

    def scores(self, model: SplitModel, parts: Mapping[str, EmbeddingMatrix]) -> EmbeddingMatrix:
        """The public head of all embeddings beside each other."""
        return self.head(model).scores(np.hstack([parts[party] for party in model.schemas_ if party in parts]))

    def head(self, model: SplitModel) -> LinearHead:
        """The head that everybody has."""
        return LinearHead(model.public_["weights"], model.public_["intercept"], str(model.plan_["solver"]))

    def check_restored(self, model: SplitModel) -> None:
        """Raise an error unless weights and widths belong together."""
        widths = model.plan_["widths"]
        if set(widths) != set(model.schemas_):
            raise ValueError("widths are those of other parties [VA054]")
        outputs = model.plan_["classes"] or 1
        if self.head(model).weights.shape != (outputs, sum(widths.values())):
            raise ValueError("weights and widths do not belong together [VA055]")
        check_prior(model.public_, outputs, len(widths))

    def training_of(self, model: SplitModel) -> Training:
        """Whether the party with the label trained its encoder, which is charged."""
        return "none" if model.plan_["training"] == "none" else "charged"

    def picture(self, model: SplitModel) -> Picture:
        """How far each party's embedding can move the scores of the public head."""
        return reach_picture(model.public_["weights"], model.plan_["widths"], committee_head.LENGTH)

    def summary(self, model: SplitModel) -> list[str]:
        """About how many people it was learned from, as far as that is public."""
        return [f"everybody has the head, learned from about {model.plan_['rows']:,.0f} people"]


def joint_embeddings_of(model: SplitModel, task: Task) -> JointEmbeddings:
    """The joint embeddings that a task is about."""
    party, _ = split_label(model.label, task.owners)
    outputs = sum(column.startswith(committee_head.LABEL) for column in task.block(party).columns)
    widths = tuple(
        (block.owner, sum(not c.startswith(committee_head.LABEL) for c in block.columns)) for block in task.blocks
    )
    return JointEmbeddings(widths, party, outputs if outputs > 1 else 0)
