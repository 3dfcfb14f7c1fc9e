"""The head and the encoders of Algorithm 1 as it was published: nothing is proven about what it tells."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.split import adaptive_programs, trained_heads
from colonnade.kinds.split.adaptive_programs import shape_embeddings
from colonnade.kinds.split.adaptive_task import UNPROTECTED, AdaptiveSender, AdaptiveTask
from colonnade.kinds.split.embeddings_strategy import check_facts
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
from colonnade.kinds.split.validate_params import read_constants
from colonnade.models.design import LabelDesign
from colonnade.models.planner import PlanDetails, Roster
from colonnade.privacy import Statement, Trust
from colonnade.privacy.statement import format_rounded_up
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.randomness import Stream
from colonnade.tables import Table

if TYPE_CHECKING:
    from colonnade.kinds.split.model import SplitModel


_EPOCHS, _BATCH, _WIDTH, _RATE = 20, 256, 16, 1e-3
_FACTOR = "factor"


class PublishedStrategy(HeadStrategy):
    """Encoders and head learn together, batch by batch, from embeddings that are told; encoders learn without noise."""

    name = "published"

    # --- planning

    def default_width(self, model: SplitModel, design: LabelDesign, roster: Roster) -> int:
        """As wide as a small network's last layer."""
        return _WIDTH

    def complete_spec(self, said: Mapping[str, Any], width: int, *, active: bool, training: str) -> dict[str, Any]:
        """Encoders learn here, so they are small networks by default."""
        return {"kind": "cnn" if "shape" in said else "mlp", "width": width, **said}

    def plan(self, model: SplitModel, setting: PlanSetting, rows: int | None) -> AdaptiveTask:
        """The algorithm with the noise that the paper takes for one release, or with none."""
        setting.roster.require_known_members("a head over embeddings")
        if rows is None:
            raise StudyError("rows is missing: say how many people all parties hold, which batches rest on [ST215]")
        if (model.per_release is None) == (not model.unprotected):
            raise StudyError(
                'head = "published" takes per_release, the epsilon of one release by itself, or '
                "unprotected = true [ST216]"
            )
        other = read_constants(model.constants, self.name)
        delta = other.pop("delta", model.delta)
        noise = UNPROTECTED if model.per_release is None else AdaptiveTask.published_noise(model.per_release, delta)
        owners = tuple(setting.roster.schemas)
        return AdaptiveTask(
            trust=Trust(owners, (), 0),
            active=setting.active,
            senders=tuple(
                AdaptiveSender(each.party, each.width, each.clip)
                for party, each in setting.encoders.items()
                if party != setting.active
            ),
            rows=rows,
            classes=setting.classes,
            epochs=model.epochs or _EPOCHS,
            batches=model.batches or max(1, rows // _BATCH),
            noise=noise,
            rate=model.learning_rate or _RATE,
            rescale=model.rescale and noise != UNPROTECTED,
            adjust=model.adjust and noise != UNPROTECTED,
            columns=setting.active in setting.encoders,
            **other,
        )

    def width(self, task: AdaptiveTask, party: str) -> int:
        """Of a party that tells embeddings what the task says; the others keep theirs to themselves."""
        return task.sender(party).width if party in task.passives else _WIDTH

    def details(self, task: AdaptiveTask, statement: Statement) -> PlanDetails:
        """The one line about what is promised, and the honest sum of what the paper charges once."""
        lines = ["THE PUBLISHED ALGORITHM, which promises nothing", task.reason]
        facts: dict[str, Any] = {"guarantee": task.reason}
        if task.protected:
            facts["frozen_epsilon"] = frozen = task.frozen_epsilon(statement.delta)
            lines.append(
                f"{task.epochs} releases together would be epsilon {format_rounded_up(frozen)} if encoders were "
                "frozen; for this algorithm that is no promise"
            )
        return PlanDetails(self.name, {"head": facts}, section=tuple(lines))

    # --- the joint computation

    def owner(
        self, model: SplitModel, me: Owner, encoder: Encoder | None, table: Table, task: AdaptiveTask
    ) -> LearnedHead:
        """Passive parties tell embeddings and learn from slopes; the active one learns the head."""
        features = model.centred_columns(me.name, table).centre_features(table)
        over = None if encoder is None else RowEncoder(encoder, features.matrix())
        encoders = {} if encoder is None else {me.name: encoder}
        if me.name != task.active:
            found = adaptive_programs.owner(me, over, features, task)
            return LearnedHead(facts(task, model.delta), encoders=encoders, own=_own_factors(found, task))
        head = self._head(
            model, label_targets(model.centred_columns(me.name, table), table, task.classes), encoder, task
        )
        adaptive_programs.owner(me, over, features, task, head)
        return LearnedHead(facts(task, model.delta), encoders=encoders, own={me.name: head.arrays()})

    def coordinator(self, model: SplitModel, me: Coordinator, task: AdaptiveTask) -> LearnedHead:
        """The coordinator compares who is there, and learns nothing."""
        adaptive_programs.coordinator(me, task)
        return LearnedHead(facts(task, model.delta))

    def simulate(
        self, model: SplitModel, encoders: Mapping[str, Encoder], tables: Mapping[str, Table], task: Any, stream: Stream
    ) -> LearnedHead:
        """The same in one place."""
        over = {
            party: RowEncoder(
                encoder, model.centred_columns(party, tables[party]).centre_features(tables[party]).matrix()
            )
            for party, encoder in encoders.items()
        }
        labels = label_targets(
            model.centred_columns(task.active, tables[task.active]), tables[task.active], task.classes
        )
        head = self._head(model, labels, encoders.get(task.active), task)
        found = adaptive_programs.simulate(over, head, task, stream, model.watch)
        own = {**_own_factors(found, task), task.active: head.arrays()}
        return LearnedHead(facts(task, model.delta), encoders=encoders, own=own)

    def _head(
        self, model: SplitModel, labels: Any, encoder: Encoder | None, task: AdaptiveTask
    ) -> trained_heads.TrainedHead:
        width = sum(sender.width for sender in task.senders) + (0 if encoder is None else encoder.width)
        return trained_heads.create_head(labels, width, task.classes, model.head_module, model.learning_rate)

    # --- new people

    def prepare(self, model: SplitModel, party: str, raw: EmbeddingMatrix) -> EmbeddingMatrix:
        """As they would be told before noise, stretched as in training; those of the active party as they are."""
        plan, active = model.plan_, model.design_.owner
        if party == active:
            return raw
        clips, owners = plan["clips"], tuple(model.schemas_)
        senders = tuple(AdaptiveSender(name, plan["widths"][name], clips[name]) for name in owners if name != active)
        task = AdaptiveTask(
            Trust(owners, (), 0),
            active,
            senders,
            rows=plan["rows"],
            classes=plan["classes"],
            epochs=1,
            batches=1,
            noise=int(plan["noise"]),
            rescale=plan["rescale"],
            adjust=plan["adjust"],
        )
        factor = float(model.own_[party][_FACTOR]) if task.rescale else None
        return shape_embeddings(raw, task.sender(party), task, factor).told

    def scores(self, model: SplitModel, parts: Mapping[str, EmbeddingMatrix]) -> EmbeddingMatrix:
        """By the head that the party with the label keeps."""
        active = model.design_.owner
        if active not in model.own_:
            raise StudyError(
                f"the head that {active} keeps is not in this process: load_kept reads it from its own file [ST217]"
            )
        told = [parts[party] for party in model.schemas_ if party in parts and party != active]
        own = [parts[active]] if active in parts else []
        rows = np.hstack([*told, *own])
        return trained_heads.head_scores(rows, model.own_[active], model.plan_["classes"], model.head_module)

    def check_kept(self, model: SplitModel, party: str, own: Arrays, encoder: Encoder | None) -> None:
        """Raise an error unless factors are such and a linear head has its shape; a module checks its own weights."""
        if party != model.design_.owner:
            if set(own) != ({_FACTOR} if model.plan_["rescale"] else set()):
                raise ValueError(
                    "a party keeps the factor of its embeddings where they are rescaled, and nothing else [VA050]"
                )
            if any(array.shape != () or not array > 0 for array in own.values()):
                raise ValueError("embeddings are stretched by a number above 0 [VA051]")
        elif set(own) == {"weights", "offsets"}:
            width = sum(model.plan_["widths"].values()) + (0 if encoder is None else encoder.width)
            if (
                own["weights"].shape != (width, model.plan_["classes"])
                or own["offsets"].shape != own["weights"].shape[1:]
            ):
                raise ValueError("the head takes embeddings of other widths [VA052]")

    def check_restored(self, model: SplitModel) -> None:
        """Raise an error unless what is known of embeddings is that of these parties."""
        check_facts(model)
        if int(model.plan_["noise"]) < 0 or not isinstance(model.plan_["guarantee"], str):
            raise ValueError("the plan of a published algorithm says what it promises [VA053]")

    def training_of(self, model: SplitModel) -> Training:
        """Encoders learned from private rows, and nothing was charged for it."""
        return "uncharged"

    def summary(self, model: SplitModel) -> list[str]:
        """What is promised, which is nothing."""
        return [f"{model.design_.owner} alone has the head", str(model.plan_["guarantee"])]


def _own_factors(found: adaptive_programs.AdaptiveOutcome, task: AdaptiveTask) -> dict[str, Arrays]:
    """By how much each passive party stretches embeddings: a figure of its private rows, which it keeps to itself."""
    return {party: {_FACTOR: np.array(factor)} for party, factor in found.factors.items() if task.rescale}


def facts(task: AdaptiveTask, delta: float) -> dict[str, Any]:
    """What everybody may know of the fit."""
    known = {sender.owner: sender for sender in task.senders}
    frozen = task.frozen_epsilon(delta)
    return {
        "how": "the published algorithm",
        "active": task.active,
        "widths": {party: known[party].width for party in task.passives},
        "clips": {party: float(known[party].clip) for party in task.passives},
        "bits": task.bits,
        "rows": task.rows,
        "classes": task.classes,
        "epochs": task.epochs,
        "batches": task.batches,
        "noise": str(task.noise),
        "rescale": task.rescale,
        "adjust": task.adjust,
        "guarantee": task.reason,
        "frozen_epsilon": frozen if math.isfinite(frozen) else None,
        "training": "as published",
        "deviations": {party: task.deviation_of(task.variance(party)) for party in task.passives},
    }
