"""A head that the party with the label learns from embeddings with noise, told once and used for ever (AFE-R)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.split import embedding_programs, trained_heads
from colonnade.kinds.split.embedding_programs import EmbeddingScaling, EmbeddingsOutcome
from colonnade.kinds.split.embedding_task import EmbeddingSender, EmbeddingTask
from colonnade.kinds.split.encoders import Encoder, RowEncoder
from colonnade.kinds.split.head_strategy import (
    Arrays,
    EmbeddingMatrix,
    HeadStrategy,
    LearnedHead,
    PlanSetting,
    Training,
    label_targets,
)
from colonnade.kinds.split.heads import HeadStatistics, told_statistics
from colonnade.kinds.split.private_training import clip_rows_within, clip_to_integers
from colonnade.kinds.split.validate_params import count_parameters, linear_over, read_constants
from colonnade.models.design import LabelDesign
from colonnade.models.planner import PlanDetails, Roster
from colonnade.models.serialization import read_count, read_size
from colonnade.privacy import Statement, Trust, parse_budgets
from colonnade.privacy.noise.local_mechanisms import odds_of_epsilon
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.randomness import Stream
from colonnade.tables import Table

if TYPE_CHECKING:
    from colonnade.kinds.split.model import SplitModel


_EPOCHS, _RATE = 40, 0.02
_FROZEN_WIDTH = 32


class EmbeddingsStrategy(HeadStrategy):
    """Embeddings with noise are told to the party with the label, which keeps a head of its own."""

    name = "embeddings"

    # --- planning

    def default_width(self, model: SplitModel, design: LabelDesign, roster: Roster) -> int:
        """Encoders that learn reach for one point a class, which needs one dimension less than there are classes."""
        return max(1, len(design.declared.classes) - 1) if model.training != "none" else _FROZEN_WIDTH

    def complete_spec(self, said: Mapping[str, Any], width: int, *, active: bool, training: str) -> dict[str, Any]:
        """An encoder that learns is by default a linear map of frozen features, which few noisy updates can teach."""
        if active or training == "none" or "kind" in said:
            return super().complete_spec(said, width, active=active, training=training)
        return linear_over(said, width)

    def plan(self, model: SplitModel, setting: PlanSetting, rows: int | None) -> EmbeddingTask:
        """Each other party tells one embedding a person, with the least noise that meets the budgets."""
        setting.roster.require_known_members("a head over embeddings")
        if rows is None:
            raise StudyError(
                "rows is missing: say how many people all parties hold, a public number that noise rests on [ST227]"
            )
        if model.epsilon is None:
            raise StudyError("say what the embeddings may cost, by epsilon [ST228]")
        if model.label_epsilon is not None and model.training == "none":
            raise StudyError("label_epsilon is for training: without it no label leaves its party [ST229]")
        learning = model.training != "none"
        owners = tuple(setting.roster.schemas)
        senders = tuple(
            EmbeddingSender(each.party, each.width, each.clip, count_parameters(each) if learning else 0)
            for party, each in setting.encoders.items()
            if party != setting.active
        )
        epochs = (model.epochs or _EPOCHS) if learning else 0
        draft = EmbeddingTask(
            trust=Trust(owners, (), 0),
            active=setting.active,
            senders=senders,
            rows=rows,
            classes=setting.classes,
            releases=epochs if model.training == "rounds" else 1,
            training=model.training,  # type: ignore[arg-type]  # a word that the constructor's annotation lists
            epochs=epochs,
            batches=model.batches or 1,
            learning_rate=model.learning_rate or _RATE,
            label_odds=None if model.label_epsilon is None else odds_of_epsilon(model.label_epsilon),
            **read_constants(model.constants, self.name),
        )
        return draft.calibrate(parse_budgets(model.epsilon, model.delta, draft.trust))

    def width(self, task: EmbeddingTask, party: str) -> int:
        """Of a party that tells embeddings what the task says; the others keep theirs to themselves."""
        return task.sender(party).width if party in task.passives else _FROZEN_WIDTH

    def details(self, task: EmbeddingTask, statement: Statement) -> PlanDetails:
        """Who tells what, with which noise, and what becomes of labels."""
        lines = [f"EMBEDDINGS told to {task.active}, which keeps the head", "  party   numbers  within  noise"]
        for sender in task.senders:
            lines.append(f"  {sender.owner:<7} {sender.width:<8} {sender.clip:<7g} {task.deviation(sender.owner):.3g}")
        labels = task.facts["labels"]
        lines.append(f"noise is the deviation on each number of an embedding; labels: {labels}")
        return PlanDetails(self.name, {"head": task.facts}, section=tuple(lines))

    # --- the joint computation

    def owner(
        self, model: SplitModel, me: Owner, encoder: Encoder | None, table: Table, task: EmbeddingTask
    ) -> LearnedHead:
        """Passive parties tell embeddings; the active one receives them and fits its head."""
        rows = model.centred_columns(me.name, table).centre_features(table).matrix()
        if me.name != task.active:
            assert encoder is not None  # noqa: S101 - for the type checker; a passive party has columns
            found = embedding_programs.owner(me, RowEncoder(encoder, rows), table.ids, None, task)
            return LearnedHead(facts(task), encoders={me.name: encoder}, own={me.name: _stored_scaling(found)})
        labels = label_targets(model.centred_columns(me.name, table), table, task.classes)
        found = embedding_programs.owner(me, None, table.ids, labels, task)
        return self._active(encoder, rows, labels, found, task, model.head_module)

    def coordinator(self, model: SplitModel, me: Coordinator, task: EmbeddingTask) -> LearnedHead:
        """The coordinator compares who is there, and learns nothing."""
        embedding_programs.coordinator(me, task)
        return LearnedHead(facts(task))

    def simulate(
        self, model: SplitModel, encoders: Mapping[str, Encoder], tables: Mapping[str, Table], task: Any, stream: Stream
    ) -> LearnedHead:
        """The same in one place."""
        rows = {
            party: model.centred_columns(party, table).centre_features(table).matrix()
            for party, table in tables.items()
        }
        over = {party: RowEncoder(encoders[party], rows[party]) for party in task.passives}
        labels = label_targets(
            model.centred_columns(task.active, tables[task.active]), tables[task.active], task.classes
        )
        found = embedding_programs.simulate(over, labels, task, stream)
        active = task.active
        whole = self._active(encoders.get(active), rows[active], labels, found[active], task, model.head_module)
        own = {party: _stored_scaling(found[party]) for party in task.passives} | dict(whole.own)
        return LearnedHead(whole.facts, encoders=dict(encoders), own=own)

    def _active(
        self,
        encoder: Encoder | None,
        rows: EmbeddingMatrix,
        labels: Any,
        found: EmbeddingsOutcome,
        task: EmbeddingTask,
        module: Any,
    ) -> LearnedHead:
        """The head: of classes a discriminant, of numbers least squares; the known noise is subtracted."""
        parts = [found.received[name] for name in task.passives]
        if encoder is not None:
            parts.append(encoder.embed(rows))
        joint = np.hstack(parts)
        if module is not None:
            arrays = trained_heads.train_head(joint, labels, task.classes, module)
        else:
            noise = np.concatenate([np.full(s.width, task.received_variance(s.owner)) for s in task.senders])
            arrays = told_statistics(joint, labels, noise, task.classes).arrays()
        encoders = {} if encoder is None else {task.active: encoder}
        return LearnedHead(facts(task), encoders=encoders, own={task.active: arrays})

    # --- new people

    def prepare(self, model: SplitModel, party: str, raw: EmbeddingMatrix) -> EmbeddingMatrix:
        """As they would be told, before noise; those of the active party as they are."""
        if party == model.design_.owner:
            return raw
        clip, bits = model.plan_["clips"][party], model.plan_["bits"]
        scaled = np.ldexp(scaling_of(model, party).apply(clip_rows_within(raw, clip)), bits)
        whole = clip_to_integers(scaled, int(np.floor(np.ldexp(clip, bits))))
        return np.asarray(np.ldexp(whole.astype(np.float64), -bits))

    def scores(self, model: SplitModel, parts: Mapping[str, EmbeddingMatrix]) -> EmbeddingMatrix:
        """Scores of people whose embeddings are told without noise."""
        return self.scores_of(model, parts, {})

    def scores_of(
        self, model: SplitModel, parts: Mapping[str, EmbeddingMatrix], noise: Mapping[str, float]
    ) -> EmbeddingMatrix:
        """Scores of people whose embeddings have noise of these variances."""
        active = model.design_.owner
        kept = model.own_.get(active)
        if kept is None:
            raise StudyError(
                f"the head that {active} keeps is not in this process: load_kept reads it from its own file [ST230]"
            )
        told = [party for party in model.plan_["widths"] if party != active]
        joint = np.hstack([parts[party] for party in (*told, active) if party in parts])
        if model.head_module is not None:
            return trained_heads.head_scores(joint, kept, model.plan_["classes"], model.head_module)
        each = [np.full(parts[party].shape[1], noise.get(party, 0.0)) for party in told]
        return HeadStatistics.of(kept).head(np.concatenate(each)).scores(joint)

    def scores_alone(self, model: SplitModel, own: EmbeddingMatrix) -> EmbeddingMatrix | None:
        """Scores by the active party's own embeddings; a module as a head has none."""
        kept = model.own_[model.design_.owner]
        if model.head_module is not None:
            return None
        return HeadStatistics.of(kept).alone().head(np.zeros(0)).scores(own)

    def check_kept(self, model: SplitModel, party: str, own: Arrays, encoder: Encoder | None) -> None:
        """Raise an error unless a head, or a centre and a scale, have the right shapes."""
        if party != model.design_.owner:
            width = model.plan_["widths"][party]
            if encoder is None or own["centre"].shape != (width,) or own["scale"].shape != () or own["scale"] <= 0:
                raise ValueError("a centre and a scale of embeddings are expected [VA056]")
            return
        if model.head_module is None and "spread" in own:
            told = sum(model.plan_["widths"].values())
            width = told + (0 if encoder is None else encoder.width)
            found = HeadStatistics.of(own)
            if (found.told, found.centre.shape) != (told, (width,)):
                raise ValueError("the head takes embeddings of other widths [VA057]")
            if len(found.weights) != (model.plan_["classes"] or 1):
                raise ValueError("the head is about other classes [VA058]")

    def check_restored(self, model: SplitModel) -> None:
        """Raise an error unless what is known of embeddings is that of these parties: questions are priced by it."""
        check_facts(model)

    def training_of(self, model: SplitModel) -> Training:
        """Whether encoders learned; their updates are charged."""
        return "none" if model.plan_["training"] == "none" else "charged"

    def summary(self, model: SplitModel) -> list[str]:
        """Who has the head."""
        return [f"{model.design_.owner} alone has the head; scores of new people are asked by kind split-scores"]


def check_facts(model: SplitModel) -> None:
    """Refuse a model whose plan speaks of other parties, or without the bounds that questions rest on."""
    plan, active = model.plan_, model.design_.owner
    others = set(model.schemas_) - {active}
    if plan["active"] != active or set(plan["widths"]) != others or set(plan["clips"]) != others:
        raise ValueError("the plan and the model do not belong together [VA059]")
    if model.public_ or not all(read_count(width) for width in plan["widths"].values()):
        raise ValueError("embeddings have a width, and no head is public [VA060]")
    if not all(read_size(clip) > 0 for clip in plan["clips"].values()) or not 1 <= read_count(plan["bits"]) <= 62:
        raise ValueError("embeddings have a largest norm above 0 [VA061]")


def facts(task: EmbeddingTask) -> dict[str, Any]:
    """What everybody may know of the fit."""
    how = f"embeddings told to {task.active}"
    known = {sender.owner: sender for sender in task.senders}
    return {
        "how": how,
        "active": task.active,
        "widths": {party: known[party].width for party in task.passives},
        "clips": {party: float(known[party].clip) for party in task.passives},
        "bits": task.bits,
        "rows": task.rows,
        "classes": task.classes,
        "training": task.training,
        "epochs": task.epochs,
        "labels": task.facts["labels"],
        "deviations": {party: task.deviation(party) for party in task.passives},
    }


def scaling_of(model: SplitModel, party: str) -> EmbeddingScaling:
    """The public centre and scale by which a party's embeddings were told."""
    kept: Arrays = model.own_.get(party, {})
    if "centre" not in kept:
        return EmbeddingScaling.none(int(model.plan_["widths"][party]))
    return EmbeddingScaling(np.asarray(kept["centre"], dtype=np.float64), float(kept["scale"]))


def _stored_scaling(found: EmbeddingsOutcome) -> Arrays:
    scaling = found.scaling
    return {} if scaling is None else {"centre": scaling.centre, "scale": np.array(scaling.scale)}
