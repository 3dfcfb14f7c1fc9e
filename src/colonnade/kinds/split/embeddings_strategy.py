"""Heads that the party with the label learns from embeddings that the others tell it.

They are told once, with noise, and used for ever (AFE-R); or batch by batch, by Algorithm 1 as it was published:
nothing is proven about what that tells.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.split import adaptive_programs, embedding_programs
from colonnade.kinds.split.adaptive_programs import clip_rows, require_finite
from colonnade.kinds.split.embedding_programs import (
    EmbeddingScaling,
    EmbeddingsOutcome,
    clip_rows_within,
    clip_to_integers,
)
from colonnade.kinds.split.embedding_task import UNPROTECTED, AdaptiveTask, EmbeddingSender, EmbeddingTask
from colonnade.kinds.split.encoder_base import Matrix, Training
from colonnade.kinds.split.encoders import Encoder, RowEncoder, count_parameters, linear_over, read_constants
from colonnade.kinds.split.head_strategy import (
    Arrays,
    HeadStrategy,
    LearnedHead,
    PlanSetting,
    label_targets,
    party_rows,
)
from colonnade.kinds.split.heads import (
    HeadStatistics,
    LearningHead,
    create_head,
    head_scores,
    told_statistics,
    train_head,
)
from colonnade.models.design import LabelDesign
from colonnade.models.planner import PlanDetails, Roster
from colonnade.models.serialization import read_count, read_size
from colonnade.privacy import Statement, Trust, parse_budgets
from colonnade.privacy.noise.local_mechanisms import odds_of_epsilon
from colonnade.privacy.statement import format_rounded_up
from colonnade.protocols.roles import Coordinator, Owner
from colonnade.randomness import Stream
from colonnade.tables import Table

if TYPE_CHECKING:
    from colonnade.kinds.split.model import SplitModel


_EPOCHS = 40
_RATE = 0.02
_FROZEN_WIDTH = 32
_PUBLISHED_EPOCHS = 20
_PUBLISHED_WIDTH = 16
_PUBLISHED_RATE = 1e-3
_BATCH = 256
_FACTOR = "factor"


class LabelPartyStrategy(HeadStrategy):
    """Embeddings are sent to the party with the label, which keeps a head of its own."""

    programs: ClassVar[ModuleType]
    own_width: ClassVar[int]
    """Of the party with the label, which keeps its embeddings to itself."""

    @abstractmethod
    def facts(self, model: SplitModel, task: Any) -> dict[str, Any]:
        """What everybody may know of the fit."""

    def width(self, task: Any, party: str) -> int:
        """Of a party that tells embeddings what the task says; the others keep theirs to themselves."""
        return int(task.sender(party).width) if party in task.passives else self.own_width

    def coordinator(self, model: SplitModel, me: Coordinator, task: Any) -> LearnedHead:
        """The coordinator compares who is there, and learns nothing."""
        self.programs.coordinator(me, task)
        return LearnedHead(self.facts(model, task))

    def kept_head(self, model: SplitModel) -> Arrays:
        """The head that the party with the label keeps, where this process has it."""
        if (active := model.design_.owner) not in model.own_:
            raise StudyError(
                f"the head that {active} keeps is not in this process: load_kept reads it from its own file [ST230]"
            )
        return model.own_[active]

    def joint(self, model: SplitModel, parts: Mapping[str, Matrix]) -> Matrix:
        """Embeddings beside each other, those of the party with the label last."""
        active = model.design_.owner
        told = [party for party in model.schemas_ if party != active]
        return np.hstack([parts[party] for party in (*told, active) if party in parts])

    def check_restored(self, model: SplitModel) -> None:
        """Refuse a model whose plan speaks of other parties, or without the bounds that questions rest on."""
        plan, active = model.plan_, model.design_.owner
        others = set(model.schemas_) - {active}
        if plan["active"] != active or set(plan["widths"]) != others or set(plan["clips"]) != others:
            raise ValueError("the plan and the model do not belong together [VA059]")
        if model.public_ or not all(read_count(width) for width in plan["widths"].values()):
            raise ValueError("embeddings have a width, and no head is public [VA060]")
        if not all(read_size(clip) > 0 for clip in plan["clips"].values()) or not 1 <= read_count(plan["bits"]) <= 62:
            raise ValueError("embeddings have a largest norm above 0 [VA061]")


def told_facts(task: EmbeddingTask | AdaptiveTask) -> dict[str, Any]:
    """What everybody may know of embeddings that are told."""
    return {
        "active": task.active,
        "widths": {sender.owner: sender.width for sender in task.senders},
        "clips": {sender.owner: float(sender.clip) for sender in task.senders},
        "bits": task.bits,
        "rows": task.rows,
        "classes": task.classes,
        "epochs": task.epochs,
        "deviations": {party: task.deviation(party) for party in task.passives},
    }


class EmbeddingsStrategy(LabelPartyStrategy):
    """Embeddings with noise are told once, and their known noise is subtracted."""

    name = "embeddings"
    programs: ClassVar[ModuleType] = embedding_programs
    own_width = _FROZEN_WIDTH

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
            training=model.training,
            epochs=epochs,
            batches=model.batches or 1,
            learning_rate=model.learning_rate or _RATE,
            label_odds=None if model.label_epsilon is None else odds_of_epsilon(model.label_epsilon),
            **read_constants(model.constants, self.name),
        )
        return draft.calibrate(parse_budgets(model.epsilon, model.delta, draft.trust))

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
        if me.name != task.active:
            assert encoder is not None  # noqa: S101 - for the type checker; a passive party has columns
            over = RowEncoder(encoder, party_rows(model, me.name, table))
            found = embedding_programs.owner(me, over, table.ids, None, task)
            scaling = _stored_scaling(found)
            return LearnedHead(self.facts(model, task), encoders={me.name: encoder}, own={me.name: scaling})
        labels = label_targets(model, me.name, table, task.classes)
        found = embedding_programs.owner(me, None, table.ids, labels, task)
        return self._active(model, encoder, table, labels, found, task)

    def simulate(
        self, model: SplitModel, encoders: Mapping[str, Encoder], tables: Mapping[str, Table], task: Any, stream: Stream
    ) -> LearnedHead:
        """The same in one place."""
        active = task.active
        over = {party: RowEncoder(encoders[party], party_rows(model, party, tables[party])) for party in task.passives}
        labels = label_targets(model, active, tables[active], task.classes)
        found = embedding_programs.simulate(over, labels, task, stream)
        whole = self._active(model, encoders.get(active), tables[active], labels, found[active], task)
        own = {party: _stored_scaling(found[party]) for party in task.passives} | dict(whole.own)
        return LearnedHead(whole.facts, encoders=dict(encoders), own=own)

    def _active(
        self,
        model: SplitModel,
        encoder: Encoder | None,
        table: Table,
        labels: Any,
        found: EmbeddingsOutcome,
        task: EmbeddingTask,
    ) -> LearnedHead:
        """The head: of classes a discriminant, of numbers least squares; the known noise is subtracted."""
        parts, encoders = [found.received[name] for name in task.passives], {}
        if encoder is not None:
            parts.append(encoder.embed(party_rows(model, task.active, table)))
            encoders[task.active] = encoder
        joint = np.hstack(parts)
        if model.head_module is not None:
            arrays = train_head(joint, labels, task.classes, model.head_module)
        else:
            noise = np.concatenate([np.full(s.width, task.received_variance(s.owner)) for s in task.senders])
            arrays = told_statistics(joint, labels, noise, task.classes).arrays()
        return LearnedHead(self.facts(model, task), encoders=encoders, own={task.active: arrays})

    def facts(self, model: SplitModel, task: EmbeddingTask) -> dict[str, Any]:
        """What everybody may know of the fit."""
        more = {"how": f"embeddings told to {task.active}", "training": task.training, "labels": task.facts["labels"]}
        return told_facts(task) | more

    # --- new people

    def prepare(self, model: SplitModel, party: str, raw: Matrix) -> Matrix:
        """As they would be told, before noise; those of the active party as they are."""
        if party == model.design_.owner:
            return raw
        clip, bits = model.plan_["clips"][party], model.plan_["bits"]
        scaled = np.ldexp(scaling_of(model, party).apply(clip_rows_within(raw, clip)), bits)
        whole = clip_to_integers(scaled, int(np.floor(np.ldexp(clip, bits))))
        return np.asarray(np.ldexp(whole.astype(np.float64), -bits))

    def scores(
        self, model: SplitModel, parts: Mapping[str, Matrix], noise: Mapping[str, float] | None = None
    ) -> Matrix:
        """Scores of people whose embeddings are told with noise of these variances, or without any."""
        kept = self.kept_head(model)
        joint = self.joint(model, parts)
        if model.head_module is not None:
            return head_scores(joint, kept, model.plan_["classes"], model.head_module)
        widths = model.plan_["widths"]
        each = [np.full(widths[party], (noise or {}).get(party, 0.0)) for party in model.schemas_ if party in widths]
        return HeadStatistics.of(kept).head(np.concatenate(each)).scores(joint)

    def scores_alone(self, model: SplitModel, own: Matrix) -> Matrix | None:
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

    def summary(self, model: SplitModel) -> list[str]:
        """Who has the head."""
        return [f"{model.design_.owner} alone has the head; scores of new people are asked by kind split-scores"]


class PublishedStrategy(LabelPartyStrategy):
    """Algorithm 1 as it was published, about which nothing is proven.

    Encoders and head learn together, batch by batch, from embeddings that are told; encoders learn without noise.
    """

    name = "published"
    programs: ClassVar[ModuleType] = adaptive_programs
    own_width = _PUBLISHED_WIDTH

    # --- planning

    def default_width(self, model: SplitModel, design: LabelDesign, roster: Roster) -> int:
        """As wide as a small network's last layer."""
        return _PUBLISHED_WIDTH

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
                EmbeddingSender(each.party, each.width, each.clip)
                for party, each in setting.encoders.items()
                if party != setting.active
            ),
            rows=rows,
            classes=setting.classes,
            epochs=model.epochs or _PUBLISHED_EPOCHS,
            batches=model.batches or max(1, rows // _BATCH),
            noise=noise,
            rate=model.learning_rate or _PUBLISHED_RATE,
            rescale=model.rescale and noise != UNPROTECTED,
            adjust=model.adjust and noise != UNPROTECTED,
            columns=setting.active in setting.encoders,
            **other,
        )

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
        head = None
        if me.name == task.active:
            head = self._head(model, label_targets(model, me.name, table, task.classes), encoder, task)
        found = adaptive_programs.owner(me, over, features, task, head)
        own = _own_factors(found, task) if head is None else {me.name: head.arrays()}
        return LearnedHead(self.facts(model, task), encoders=encoders, own=own)

    def simulate(
        self, model: SplitModel, encoders: Mapping[str, Encoder], tables: Mapping[str, Table], task: Any, stream: Stream
    ) -> LearnedHead:
        """The same in one place."""
        over = {party: RowEncoder(each, party_rows(model, party, tables[party])) for party, each in encoders.items()}
        labels = label_targets(model, task.active, tables[task.active], task.classes)
        head = self._head(model, labels, encoders.get(task.active), task)
        found = adaptive_programs.simulate(over, head, task, stream, model.watch)
        own = {**_own_factors(found, task), task.active: head.arrays()}
        return LearnedHead(self.facts(model, task), encoders=encoders, own=own)

    def facts(self, model: SplitModel, task: AdaptiveTask) -> dict[str, Any]:
        """What everybody may know of the fit."""
        frozen = task.frozen_epsilon(model.delta)
        return told_facts(task) | {
            "how": "the published algorithm",
            "batches": task.batches,
            "noise": str(task.noise),
            "rescale": task.rescale,
            "adjust": task.adjust,
            "guarantee": task.reason,
            "frozen_epsilon": frozen if math.isfinite(frozen) else None,
            "training": "as published",
        }

    def _head(self, model: SplitModel, labels: Any, encoder: Encoder | None, task: AdaptiveTask) -> LearningHead:
        width = sum(sender.width for sender in task.senders) + (0 if encoder is None else encoder.width)
        return create_head(labels, width, task.classes, model.head_module, model.learning_rate)

    # --- new people

    def prepare(self, model: SplitModel, party: str, raw: Matrix) -> Matrix:
        """As they would be told before noise, stretched as in training; those of the active party as they are."""
        plan = model.plan_
        if party == model.design_.owner:
            return raw
        require_finite(raw, party)
        if int(plan["noise"]) == UNPROTECTED:
            return raw
        factor = float(model.own_[party][_FACTOR]) if plan["rescale"] else 1.0
        return clip_rows(raw, plan["clips"][party]) * factor

    def scores(self, model: SplitModel, parts: Mapping[str, Matrix]) -> Matrix:
        """By the head that the party with the label keeps."""
        kept = self.kept_head(model)
        return head_scores(self.joint(model, parts), kept, model.plan_["classes"], model.head_module)

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
        super().check_restored(model)
        if int(model.plan_["noise"]) < 0 or not isinstance(model.plan_["guarantee"], str):
            raise ValueError("the plan of a published algorithm says what it promises [VA053]")

    def training_of(self, model: SplitModel) -> Training:
        """Encoders learned from private rows, and nothing was charged for it."""
        return "uncharged"

    def summary(self, model: SplitModel) -> list[str]:
        """What is promised, which is nothing."""
        return [f"{model.design_.owner} alone has the head", str(model.plan_["guarantee"])]


def _own_factors(found: adaptive_programs.StretchFactors, task: AdaptiveTask) -> dict[str, Arrays]:
    """By how much each passive party stretches embeddings: a figure of its private rows, which it keeps to itself."""
    return {party: {_FACTOR: np.array(factor)} for party, factor in found.items() if task.rescale}


def scaling_of(model: SplitModel, party: str) -> EmbeddingScaling:
    """The public centre and scale by which a party's embeddings were told."""
    kept: Arrays = model.own_.get(party, {})
    if "centre" not in kept:
        return EmbeddingScaling(np.zeros(int(model.plan_["widths"][party])))
    return EmbeddingScaling(np.asarray(kept["centre"], dtype=np.float64), float(kept["scale"]))


def _stored_scaling(found: EmbeddingsOutcome) -> Arrays:
    scaling = found.scaling
    return {} if scaling is None else {"centre": scaling.centre, "scale": np.array(scaling.scale)}
