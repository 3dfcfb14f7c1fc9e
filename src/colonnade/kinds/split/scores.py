"""Scores of new people by encoders that parties kept; only one party receives them, and every question is charged.

There are two questions: parts of scores that are added on shares, and embeddings that are told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.prediction import programs as summing
from colonnade.kinds.prediction.programs import OpenedScores, OwnScoreParts
from colonnade.kinds.prediction.task import ScorePart, Scores
from colonnade.kinds.split import embedding_programs as telling, embeddings_strategy
from colonnade.kinds.split.embedding_task import EmbeddingSender, NewEmbeddingTask
from colonnade.kinds.split.encoders import OWN, RowEncoder, supposition_about
from colonnade.kinds.split.heads import ScorePrior, centre_classes, flattening_factor
from colonnade.kinds.split.model import SplitModel
from colonnade.models.base import Matrix
from colonnade.models.classifier_mixin import ClassifierMixin
from colonnade.models.federation import Federation
from colonnade.models.planner import NAMES_MODEL, NAMES_PARTIES, SETS_PRICE, Count, Roster, RowsAtMost, check_whole
from colonnade.models.score_result import (
    FILE_OF_MODEL,
    JointScores,
    ScoreContext,
    ScoreQuestion,
    budgets_against,
    check_columns,
    check_fitted,
    scored_features,
)
from colonnade.privacy import Trust
from colonnade.privacy.calibrate import add_least_noise
from colonnade.privacy.events import audience_of
from colonnade.protocols.roles import Owner
from colonnade.randomness import Stream
from colonnade.tables import Table


@dataclass(frozen=True)
class SplitScoresResult:
    """What the entitled party has in the end: the scores of the people in its own table, heard and by it alone.

    ``left`` and ``unheard`` are the covariances, (outputs, outputs), of what of exact scores is not known after and
    before anything was heard; they are ``None`` for scores that are the chances' logarithms given what is known.
    """

    ids: tuple[str, ...]
    scores: Matrix
    alone: Matrix | None = None
    posterior_covariance: Matrix | None = None
    prior_covariance: Matrix | None = None


def plan_question(
    model: SplitModel, to: str, owners: tuple[str, ...], roster: Roster, gamma: int, rows: int, *, exact: bool
) -> Scores | NewEmbeddingTask:
    """The task before its noise is known; which one it is follows from who has the head."""
    if missing := [party for party in model.schemas_ if party not in owners]:
        raise StudyError(f"{missing[0]} keeps a part of the model and takes no part in the prediction [ST218]")
    if strangers := [party for party in owners if party not in model.schemas_]:
        raise StudyError(f"{strangers[0]} keeps no part of the model, so it cannot take part in the prediction [ST219]")
    if model.head_ == "committee":
        parts = tuple(part_of(model, party, gamma, exact=exact) for party in owners)
        return Scores(parts, roster.trust, to, gamma, rows, names=tuple(model.feature_names_in_), model=model.digest)
    if model.head_ == "published":
        raise StudyError(
            "a model as published answers no questions about new people, for which it promises nothing: predict where "
            "all encoders are in one process, or learn the head by a committee or over embeddings [ST220]"
        )
    active = model.design_.owner
    if to != active:
        raise StudyError(
            f"{active} alone has the head of this model, so only {active} can be told scores: leave out to [ST221]"
        )
    widths, clips = model.plan_["widths"], model.plan_["clips"]
    senders = tuple(EmbeddingSender(party, widths[party], clips[party]) for party in owners if party != active)
    return NewEmbeddingTask(Trust(owners, (), 0), active, senders, rows, new="noised", model=model.digest)


def part_of(model: SplitModel, party: str, gamma: int, *, exact: bool) -> ScorePart:
    """The least and the largest whole number that a party's part of each score can be: clip times the weights' norm."""
    weights, clip = weights_of(model, party, exact=exact), Fraction(model.plan_["clips"].get(party, 0.0))
    ends = []
    for row in weights.tolist():
        square = sum((Fraction(weight) ** 2 for weight in row), Fraction(0)) * (gamma * clip) ** 2
        ends.append(math.isqrt(math.ceil(square)) + 1 if square else 0)
    return ScorePart(party, tuple(-end for end in ends), tuple(ends))


def weights_of(model: SplitModel, party: str, *, exact: bool) -> Matrix:
    """The public weights of one party's embeddings, (outputs, width).

    Scores with noise leave out what all classes have in common: no chance depends on it, and it would need noise.
    """
    widths = model.plan_["widths"]
    start = sum(widths[other] for other in list(model.schemas_)[: list(model.schemas_).index(party)])
    weights: Matrix = model.public_["weights"][:, start : start + widths[party]]
    return weights if exact else centre_classes(weights)


def parts(model: SplitModel, party: str, table: Table, task: Scores) -> OwnScoreParts:
    """One party's parts of the scores of the people in its table."""
    if model.feature_schema(party) is None:
        return OwnScoreParts(table.ids, np.zeros((table.rows, task.classes)), table.own_ids)
    values = model.embedded(party, table) @ weights_of(model, party, exact=task.exact).T
    return OwnScoreParts(table.ids, values, table.own_ids)


def _encoder_rows(model: SplitModel, party: str, table: Table) -> RowEncoder:
    return RowEncoder(model.own_encoder(party), model.encoded_rows(party, table))


def _weigh_opened(model: SplitModel, table: Table, opened: OpenedScores) -> SplitScoresResult:
    """Scores by what was opened, weighed against what the party's own embeddings foretell of it."""
    task, has_columns = opened.task, model.feature_schema(opened.task.to) is not None
    embeddings = model.embedded(task.to, table) if has_columns else np.zeros((table.rows, 0))
    known = ScorePrior.read(model.public_, model.plan_["widths"], task.to)
    alone, others = known.scores(embeddings), opened.others / float(task.gamma)
    if task.exact:
        exact = opened.own + others + model.public_["intercept"]
        return SplitScoresResult(opened.ids, exact, alone, np.zeros_like(known.spread), known.spread)
    own = opened.own + centre_classes(model.public_["intercept"])
    heard, left = known.update(alone - own, opened.own, others, task.noise_std)
    return SplitScoresResult(opened.ids, own + heard, alone, left, known.spread)


def _score_embeddings(
    model: SplitModel, table: Table, received: Mapping[str, Matrix], task: NewEmbeddingTask
) -> SplitScoresResult:
    """Scores by the head that the active party kept, which takes the noise of these embeddings into account."""
    own = {task.active: model.embedded(task.active, table)} if model.feature_schema(task.active) is not None else {}
    noise = {party: task.received_variance(party) for party in task.passives}
    way = embeddings_strategy.EmbeddingsStrategy()
    scores = way.scores(model, {**received, **own}, noise)
    return SplitScoresResult(
        tuple(table.own_ids), scores, way.scores_alone(model, own.get(task.active, np.zeros((table.rows, 0))))
    )


ScoreTask = Scores | NewEmbeddingTask


@dataclass(eq=False, repr=False)
class SplitScores(ScoreQuestion[ScoreTask, SplitScoresResult | None, SplitModel]):
    """Scores of new people under a split model, told to one party alone; each party brings the encoder it kept.

    With a head that a committee learned, each party computes its part of the scores by its encoder and the public
    weights, and the sums are opened to ``to`` on shares. With a head that the party with the label keeps, the others
    tell it embeddings of the new people. Answers with noise are weighed against what the receiver's own embeddings say,
    which stands beside them, so that they are not worse than that in expectation. Exactly one of ``epsilon`` and
    ``exact=True`` is given, and the costs of questions add up.

    Args:
        model: a fitted split model, or the path of its ``model.json``; each party needs its own kept encoder.
        to: the party that receives the scores; by default, and without a committee always, the one with the label.
        exact: tell ``to`` exact scores, or embeddings as they are; no epsilon against it is then finite.
        epsilon: instead, what ``to`` (or a mapping of observers) may learn about one person's columns held by others.
        delta: the delta of that promise.
        gamma: scores on shares are whole multiples of ``1 / gamma``.
        rows_at_most: a public limit on the number of people.
    """

    kind = "split-scores"
    tasks = (Scores, NewEmbeddingTask)
    brings = "encoder"
    kept_file = "kept.npz"

    model: Annotated[SplitModel | str | Path | None, FILE_OF_MODEL, NAMES_MODEL] = None
    _: KW_ONLY
    to: Annotated[str | None, NAMES_PARTIES] = None
    exact: Annotated[bool, SETS_PRICE] = False
    epsilon: float | Mapping[str, float] | None = None
    delta: float = 1e-5
    gamma: Count = 2**16
    rows_at_most: RowsAtMost = 2**20

    @property
    def recipient(self) -> str:
        """The party that alone receives the answers."""
        if self.to is not None:
            return self.to
        return audience_of(self.privacy_.events[0])[0] if self.fitted else self.scorer.design_.owner

    def equip(self, party: str, encoder: Mapping[str, Any] | None) -> None:
        """Remember what makes the module of a party's own, of whose weights alone there is a file."""
        self._make = None if encoder is None else encoder.get("make")

    def bring(self, path: str | Path, party: str) -> None:
        """Read the encoder that one party kept, from its own file; this copy then has no encoder of other parties."""
        own = copy(self.scorer)
        own.encoders_, own.own_ = {}, {}
        if (found := own.load_kept(path, module=getattr(self, "_make", None))) != party:
            raise StudyError(
                f"{path} holds the encoder of {found}, not that of {party}; use {party}'s own file [ST332]"
            )
        self._read = self.model, own

    # --- planning

    def plan(self, roster: Roster) -> ScoreTask:
        """Bounds from the public head and clips; the least noise that meets the budgets, or none."""
        roster.require_known_members("joint prediction")
        if (self.epsilon is None) != (self.exact is True):
            raise StudyError(
                "say what the scores may cost, by epsilon or by exact = true, and not by both: epsilon adds noise, and "
                f"exact = true tells {self.recipient} what no epsilon bounds [ST333]"
            )
        check_whole("gamma", self.gamma, 1, 2**40)
        check_whole("rows_at_most", self.rows_at_most, 1, 2**31)
        scorer = self.scorer
        check_columns(scorer, roster)  # type: ignore[arg-type]  # it asks for columns alone, not for weights
        owners, exact = tuple(roster.schemas), self.epsilon is None
        draft = plan_question(scorer, self.recipient, owners, roster, self.gamma, self.rows_at_most, exact=exact)
        if self.epsilon is None:
            return replace(draft, new="clear") if isinstance(draft, NewEmbeddingTask) else draft
        budgets = budgets_against(self.recipient, self.epsilon, self.delta, draft.trust)
        if isinstance(draft, NewEmbeddingTask):
            return draft.calibrate(budgets)
        parts = draft.additive.parts
        return add_least_noise(lambda noise: replace(draft, noise=noise), draft.trust, budgets, owners=parts)

    def suppositions(self, roster: Roster) -> tuple[str, ...]:
        """Which parties supplied encoders, which answer here too and which no code can check."""
        scorer = self.scorer
        return tuple(supposition_about(party) for party in scorer.schemas_ if scorer.encoder_kind(party) == OWN)

    def check_model(self, model: Any) -> SplitModel:
        """This model, if it is a fitted one whose parties keep encoders."""
        if not isinstance(model, SplitModel):
            raise StudyError(
                f"scores of kept encoders take a split model or the path of its model.json, not {model!r:.60} [ST334]"
            )
        check_fitted(model)
        return model

    @classmethod
    def why_not_about(cls, model: Any) -> str | None:
        """Why such a study cannot use this model: its parties must have kept encoders."""
        return None if isinstance(model, SplitModel) else "is no split model, whose parties keep encoders of their own"

    # --- the joint computation

    def owner(self, me: Owner, table: Table, task: Any) -> SplitScoresResult | None:
        """An owner's program: it embeds its own columns by its own encoder, and the entitled party has the scores."""
        model, mine = self.scorer, self._own_columns(me.name, table)
        if model.digest != task.model:
            raise StudyError(
                "the model is not the one that the study was planned with; use the file all agreed on [ST335]"
            )
        if task.scheme is None:
            opened = summing.owner(me, parts(model, me.name, mine, task), task)
            return None if opened is None else _weigh_opened(model, mine, opened)
        if me.name == task.active:
            found = telling.owner(me, None, mine.ids, None, task)
            return _score_embeddings(model, mine, found.received, task)
        scaling = embeddings_strategy.scaling_of(model, me.name)
        telling.owner(me, _encoder_rows(model, me.name, mine), mine.ids, None, task, scaling)
        return None

    def _own_columns(self, party: str, table: Table) -> Table:
        ordered, used = table.sorted_by_id(), scored_features(self.scorer, party)  # type: ignore[arg-type]  # columns alone
        return ordered.select(used) if used else ordered

    def outcome(self, outcomes: Mapping[str, Any], task: ScoreTask) -> SplitScoresResult | None:
        """What the party that is told received, where all participants run in one process."""
        received: SplitScoresResult | None = outcomes[task.to]
        return received

    def simulate_result(self, tables: Mapping[str, Table], task: Any, stream: Stream) -> SplitScoresResult:
        """What the party that is told would receive about these tables."""
        model, mine = self.scorer, {party: self._own_columns(party, table) for party, table in tables.items()}
        if task.scheme is None:
            found = {party: parts(model, party, table, task) for party, table in mine.items()}
            return _weigh_opened(model, mine[task.to], summing.simulate(found, task, stream))
        over = {party: _encoder_rows(model, party, mine[party]) for party in task.passives}
        scalings = {party: embeddings_strategy.scaling_of(model, party) for party in task.passives}
        rows = mine[task.active].rows
        told = telling.simulate(over, None, task, stream, rows=rows, scalings=scalings)
        return _score_embeddings(model, mine[task.active], told[task.active].received, task)

    def finish(self, result: SplitScoresResult | None) -> None:
        """Compute the predictions, if this participant received anything."""
        if result is None:
            self.restore({})
            return
        found, alone = result.scores, result.alone
        flat = self._flat(found, result.posterior_covariance)
        beside = ScoreContext(
            probabilities=self._chances(flat),
            own_scores=alone,
            own_predictions=None if alone is None else self.scorer.answers(self._flat(alone, result.prior_covariance)),
            own_probabilities=None if alone is None else self._chances(self._flat(alone, result.prior_covariance)),
            deviations=None
            if result.posterior_covariance is None
            else np.sqrt(np.tile(np.diag(result.posterior_covariance), (len(found), 1))),
            classes=self.scorer.classes_.tolist() if isinstance(self.scorer, ClassifierMixin) else None,
        )
        self.store_answers(result.ids, found, self.scorer.answers(flat), beside)

    def _flat(self, scores: Matrix, unknown: Matrix | None) -> Matrix:
        """Scores whose chances allow for what is not known of them; of a number the scores themselves."""
        if unknown is None or not isinstance(self.scorer, ClassifierMixin):
            return scores
        return scores / flattening_factor(unknown)

    def _chances(self, flat: Matrix) -> Matrix | None:
        return self.scorer.chances(flat) if isinstance(self.scorer, ClassifierMixin) else None

    def ask(self, people: Federation) -> JointScores:
        """Ask about these people, and return the answers as plain values."""
        return self.fit(people).joint
