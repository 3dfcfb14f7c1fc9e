"""A head that a committee learns from one noisy release of second moments; no embedding leaves anybody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from colonnade.errors import StudyError
from colonnade.models.planner import Details
from colonnade.models.split import committee
from colonnade.models.split.committee import Joint
from colonnade.models.split.encoders import Encoder
from colonnade.models.split.heads import Head
from colonnade.models.split.labels import targets
from colonnade.models.split.ways import Learned, Matrix, Setting, Way
from colonnade.privacy import Statement, parse_budgets
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.published import NoisyMoments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.randomness import Stream
from colonnade.tables import Table

if TYPE_CHECKING:
    from colonnade.models.split.base import SplitModel

_IMAGE_WIDTH = 250
_MOST_WIDTH, _LEAST_WIDTH = 128, 16


class ByCommittee(Way):
    """Second moments of all embeddings and the label are computed on shares and opened once, with noise."""

    name = "committee"

    # --- planning

    def default_width(self, model: SplitModel, columns: int, classes: int, *, image: bool) -> int:
        """More numbers say more and need more noise; images are worth more of them than tables."""
        return _IMAGE_WIDTH if image else min(_MOST_WIDTH, max(_LEAST_WIDTH, 4 * columns))

    def plan(self, model: SplitModel, setting: Setting, rows: int | None) -> Moments:
        """One release, with the least noise that meets the budgets."""
        if model.epsilon is None:
            raise StudyError("say what the result may cost, by epsilon (what an observer may learn about a person)")
        if model.training != "none" or model.label_epsilon is not None:
            raise StudyError(
                'training and label_epsilon are for head = "embeddings": a committee learns the head from moments of '
                "encoders as they are, and no label leaves its party"
            )
        if (trust := setting.roster.trust).committee == ():
            raise StudyError('head = "committee" needs seats that hold shares: name them, or use head = "embeddings"')
        joint = Joint(tuple(setting.widths.items()), setting.active, setting.classes)
        budgets = parse_budgets(model.epsilon, model.delta, trust)
        return joint.moments(trust, budgets, rows_at_most=model.rows_at_most, hidden=setting.roster.hidden)

    def width(self, task: Moments, party: str) -> int:
        """The columns of a party that are not the label's."""
        return sum(not column.startswith(committee.LABEL) for column in task.block(party).columns)

    def details(self, task: Moments, statement: Statement) -> Details:
        """How wide the embeddings are; none of them is told to anybody."""
        widths = {party: self.width(task, party) for party in task.owners}
        wide = ", ".join(f"{party} {width}" for party, width in widths.items() if width)
        line = f"numbers of an embedding: {wide}; moments of them are opened once, and no embedding leaves its party"
        return Details(self.name, {"head": {"widths": widths}}, brief=(line,))

    # --- the joint computation

    def owner(self, model: SplitModel, me: Owner, encoder: Encoder | None, table: Table, task: Moments) -> Learned:
        """Every party deals shares of its embeddings."""
        published = moments.owner(me, self._rows(model, me.name, encoder, table, task), task)
        return self._learned(model, published, {} if encoder is None else {me.name: encoder})

    def coordinator(self, model: SplitModel, me: Coordinator, task: Moments) -> Learned:
        """The coordinator receives the moments, as everybody does."""
        return self._learned(model, moments.coordinator(me, task), {})

    def simulated(
        self, model: SplitModel, encoders: Mapping[str, Encoder], tables: Mapping[str, Table], task: Any, stream: Stream
    ) -> Learned:
        """The same in one place."""
        whole = {party: self._rows(model, party, encoders.get(party), tables[party], task) for party in task.owners}
        matrices = {party: rows.matrix() for party, rows in whole.items()}
        return self._learned(model, moments.simulate(matrices, task, stream), encoders)

    def _rows(self, model: SplitModel, party: str, encoder: Encoder | None, table: Table, task: Moments) -> Any:
        joint = joint_of(model, task)
        labels = targets(model, table, joint.classes) if party == joint.label_party else None
        return joint.rows(party, model.centred(party, table).features(table), encoder, labels)

    def _learned(self, model: SplitModel, published: NoisyMoments, encoders: Mapping[str, Encoder]) -> Learned:
        """The head, which follows from what everybody received."""
        task = published.task
        joint = joint_of(model, task)
        head = joint.finish(published, solver=model.solver)
        facts = {
            "how": f"committee ({head.kind})",
            "solver": head.kind,
            "active": joint.label_party,
            "widths": dict(joint.widths),
            "clips": {party: committee.LENGTH for party, width in joint.widths if width},
            "classes": joint.classes,
            **{name: float(value) for name, value in head.facts.items()},
        }
        return Learned(facts, {"weights": head.weights, "intercept": head.intercept}, encoders)

    # --- new people

    def prepared(self, model: SplitModel, party: str, raw: Matrix) -> Matrix:
        """Embeddings of one length."""
        return committee.of_one_length(raw, party)

    def scores(self, model: SplitModel, parts: Mapping[str, Matrix]) -> Matrix:
        """The public head of all embeddings beside each other."""
        return self.head(model).scores(np.hstack([parts[party] for party in model.schemas_ if party in parts]))

    def head(self, model: SplitModel) -> Head:
        """The head that everybody has."""
        return Head(model.public_["weights"], model.public_["intercept"], str(model.plan_["solver"]))

    def check_restored(self, model: SplitModel) -> None:
        """Raise an error unless weights and widths belong together."""
        widths = model.plan_["widths"]
        if set(widths) != set(model.schemas_):
            raise ValueError("widths are those of other parties")
        outputs = model.plan_["classes"] or 1
        if self.head(model).weights.shape != (outputs, sum(widths.values())):
            raise ValueError("weights and widths do not belong together")

    def summary(self, model: SplitModel) -> list[str]:
        """About how many people it was learned from, as far as that is public."""
        return [f"everybody has the head, learned from about {model.plan_['rows']:,.0f} people"]


def joint_of(model: SplitModel, task: Moments) -> Joint:
    """The joint embeddings that a task is about."""
    party = str(model.label).rpartition(".")[0]
    outputs = sum(column.startswith(committee.LABEL) for column in task.block(party).columns)
    widths = tuple(
        (block.owner, sum(not c.startswith(committee.LABEL) for c in block.columns)) for block in task.blocks
    )
    return Joint(widths, party, outputs if outputs > 1 else 0)
