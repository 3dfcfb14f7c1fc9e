"""Generalised linear models over messages with noise: there is no committee, and each party keeps its own weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, StudyError
from colonnade.kinds.glm import fitted as glm_kept, planning as glm_plan, preflight, programs as exchange
from colonnade.kinds.glm.fitted import CLASSES, FittedGLM
from colonnade.kinds.glm.kept_scores import KeptScores
from colonnade.kinds.glm.losses import FamilyOptions, labels_for
from colonnade.kinds.glm.planning import GLMChoices, GLMSetting
from colonnade.kinds.glm.preflight import Guarantees, protection
from colonnade.kinds.glm.programs import ExchangeOutcome
from colonnade.kinds.glm.task import Exchange
from colonnade.models.assessment import Assessment, assess_chances
from colonnade.models.base import Matrix, People, ReadingOptions
from colonnade.models.classifier_mixin import Threshold, check_threshold
from colonnade.models.design import split_label
from colonnade.models.federation import Federation
from colonnade.models.planner import (
    FINITE,
    LIMITS_ROWS,
    STRICT,
    Count,
    InFile,
    Label,
    PlanDetails,
    Positive,
    Roster,
    SampleSizeForecast,
    at_least,
    at_most,
    check_whole,
)
from colonnade.models.score_result import JointScores
from colonnade.privacy import Statement, Trust, parse_budgets
from colonnade.protocols.roles import COORDINATOR, Owner
from colonnade.randomness import Stream
from colonnade.tables import Table
from colonnade.tables.table import ColumnCentring

_MOST_ROWS = 2**31


@dataclass(kw_only=True, eq=False, repr=False)
class GLM(FittedGLM):
    """A differentially private generalised linear model, learned over noised messages between the parties.

    The party with the label and the others send each other numbers with noise of their own; nothing is computed on
    shares. Every party keeps its own weights. After ``fit`` in one process all of them are in ``kept_``, and
    predictions are made with them; with ``release=True`` all weights are published with noise, as ``coef_`` and
    ``intercept_`` for encoded columns. These give the linear predictor: log-odds, a margin, the label in its unit
    (its logarithm, log(1 + y), where its schema says so), or the logarithm of its mean.

    Args:
        family: ``"logistic"``, ``"svm"``, ``"linear"`` (Huber), ``"poisson"`` or ``"gamma"``.
        label: the column to predict, written ``"party.column"``; may be given to ``fit`` instead.
        epsilon: one number for everyone, or a mapping such as ``{"bank": 1.0, "shop": 2.0}``.
        delta: the delta of all promises.
        method: ``"alternating"``: parties fit in turns; ``"gradient"``: steps of gradient descent over fixed batches;
            ``"auto"`` takes the first for ``penalty="l2"`` and the second for others.
        rows: how many people all parties hold, a public number; ``fit`` counts them if it is not given.
        penalty: ``"l2"``, ``"l1"`` or ``"elastic-net"``.
        strength: of the penalty. 0.001 for gradients; in alternating fits it is chosen with the other parameters, and
            a given one is for the parties without the label.
        l1_ratio: the part of ``strength`` that is L1, in an elastic net.
        epochs: how often every row is used. The pre-flight chooses: 1 to 4 fits, or 2 to 40 epochs of gradients.
        batch: rows in a batch of gradients; 3200, or all if there are fewer.
        learning_rate: of gradients; by default half of its limit.
        weight_bound: the largest norm of a party's weights, as the pre-flight chooses. A given one is not for the
            party with the label in alternating fits.
        score_clip: the largest score that is sent; what rows and weights allow, or as alternating fits choose.
        message_clip: the largest slope that counts where it is received; three deviations of its noise, or as
            alternating fits choose.
        release: publish all weights with noise, at extra cost.
        family_options: ``reach``, ``clip`` or ``region`` of the family.
        threshold: of two classes the second is predicted where its chance is above this.
    """

    kind = "glm"
    tasks = (Exchange,)
    shares = False

    family: Literal["logistic", "svm", "linear", "poisson", "gamma"] = "logistic"
    label: Label = None
    epsilon: float | Mapping[str, float] = 1.0
    delta: float = 1e-5
    method: Literal["auto", "alternating", "gradient"] = "auto"
    rows: Annotated[int | None, InFile(Count), LIMITS_ROWS] = None
    penalty: Literal["l2", "l1", "elastic-net"] = "l2"
    strength: Positive | None = None
    l1_ratio: Annotated[float, at_least(0), at_most(1), FINITE] = 0.5
    epochs: Count | None = None
    batch: Count | None = None
    learning_rate: Positive | None = None
    weight_bound: Positive | None = None
    score_clip: Positive | None = None
    message_clip: Positive | None = None
    release: Annotated[bool, STRICT] = False
    family_options: Annotated[Mapping[str, Any] | None, InFile(FamilyOptions | None, None)] = None
    threshold: Threshold = 0.5

    # --- planning

    def plan(self, roster: Roster) -> Exchange:
        """The task with the least noise that meets the budgets; ``rows`` must be known."""
        if self.rows is None:
            raise StudyError(
                "rows is missing: say how many people all parties hold, a public number that bounds rest on [ST128]"
            )
        return self.plan_for_rows(roster, self.rows)

    def plan_for_rows(self, roster: Roster, rows: int) -> Exchange:
        """The task for a public number of rows."""
        choices, setting = self.choices(), self.setting(roster, rows)
        return glm_plan.plan_exchange(choices, setting, parse_budgets(self.epsilon, self.delta, setting.trust))

    def choices(self) -> GLMChoices:
        """The parameters, checked."""
        return GLMChoices.of(self)

    def setting(self, roster: Roster, rows: int) -> GLMSetting:
        """The public setting: who holds which columns, the family, and the number of rows."""
        roster.require_known_members("a generalised linear model over messages")
        check_whole("rows", rows, 1, _MOST_ROWS)
        check_threshold(self.threshold, released=False)
        design = self.design(roster.schemas)
        trust = Trust(tuple(roster.schemas), (), 0)
        return GLMSetting(design.feature_blocks, design.owner, self.family_of(design), trust, int(rows))

    def details(self, task: Exchange, statement: Statement) -> PlanDetails:
        """Figures of each party, and every promise that the table of observers does not make."""
        return preflight.exchange_details(task, statement, guessed=self._guessed(task))

    def outlook(self, roster: Roster, task: Exchange, rows: int | None) -> SampleSizeForecast | None:
        """How much of what the others' columns add is lost in noise, where parameters rest on a public guess of it."""
        return preflight.outlook(task) if self._guessed(task) else None

    def _guessed(self, task: Exchange) -> bool:
        """Whether parameters follow from a guess of the signal; only then is what is expected by it shown."""
        chosen = (self.strength, self.weight_bound, self.score_clip) == (None, None, None)
        return chosen and task.method == "alternating"

    def promises(self, statement: Statement) -> Guarantees:
        """How much messages and kept weights tell, for each thing that can be seen."""
        return Guarantees.of(statement)

    # --- the joint computation

    def plan_for(self, people: Federation) -> Exchange:
        """The task for these people; they are counted if ``rows`` is not given."""
        self.choices()
        self.setting(people.roster, 1)  # everything is checked before tables are read
        return self.plan_for_rows(people.roster, people.common_rows() if self.rows is None else self.rows)

    def outcome(self, outcomes: Mapping[str, Any], task: Exchange) -> ExchangeOutcome:
        """The weights of all parties, where all of them run in one process."""
        fits = {name: outcomes[name].fits[name] for name in task.owners}
        whole: ExchangeOutcome = replace(outcomes[COORDINATOR], fits=fits)
        return whole

    def owner(self, me: Owner, table: Table, task: Exchange) -> ExchangeOutcome:
        """An owner's program; a label that does not fit the family is refused before anything is sent."""
        ordered = table.sorted_by_id()
        centred, labels = self._rows(me.name, ordered, task)
        return exchange.owner(me, centred.centre_features(ordered), labels, task)

    def simulate(
        self, tables: Mapping[str, Table], roster: Roster, stream: Stream | None = None, *, task: Exchange | None = None
    ) -> Self:
        """Fit in one place, without the protocol; the number of rows is that of the tables if ``rows`` is not given."""
        if task is None and self.rows is None:
            task = self.plan_for_rows(roster, next(iter(tables.values())).rows)
        return super().simulate(tables, roster, stream, task=task)

    def simulate_result(self, tables: Mapping[str, Table], task: Exchange, stream: Stream) -> ExchangeOutcome:
        """What all parties would keep and release; the rows of all tables are the same people in the same order."""
        parts = {party: self._rows(party, tables[party], task) for party in task.owners}
        labels = parts[task.active][1]
        assert labels is not None  # noqa: S101 - for the type checker; the active party has them
        matrices = {party: centred.centre_features(tables[party]).matrix() for party, (centred, _) in parts.items()}
        kept, released = exchange.simulate(matrices, labels, task, stream)
        return ExchangeOutcome({name: partial(kept.__getitem__, name) for name in kept}, released)

    def _rows(self, party: str, table: Table, task: Exchange) -> tuple[ColumnCentring, NDArray[np.float64] | None]:
        owner, column = split_label(self.label, task.owners)
        if party != owner:
            return ColumnCentring(table.schema), None
        centred, declared = ColumnCentring(table.schema, column), table.schema.columns[column]
        where, alone, mapped = f"{table.source}: column {column!r}", table.select([column]), table.misfits == "map"
        if (beyond := alone.report.total_clipped) and not mapped:
            raise DataError(
                f"{where}, row {_first_clipped(alone)}: the value lies outside the bounds of its schema, the first of "
                f"{beyond}; correct the table or its schema [DA057]"
            )
        encoded = centred.labels(table)
        return centred, labels_for(task.family, declared, encoded, where=where, rows=table.row_numbers, rounded=mapped)

    def conclude(self, roster: Roster, task: Exchange, result: ExchangeOutcome) -> Self:
        """Make this model a fitted one, from what the parties keep and release."""
        self.method_, self.noise_std_ = task.method, task.noise_std
        self.plan_ = task.facts | {"senders": glm_plan.senders(task), "fit": result.fit}
        super().conclude(roster, task, result)
        self.protection_ = protection(self.privacy_)
        released = result.released
        self.set_error_bars(
            *((None, None) if released is None else glm_kept.release_bars(released, task, self.design_))
        )
        return self

    def finish(self, result: ExchangeOutcome) -> None:
        """Set the released weights, and those of the kept weights that this process has."""
        design = self.design_
        self.kept_, self._view = dict(result.held), self._viewed(result)
        self.feature_names_in_ = design.features
        released = result.released
        self._released = None if released is None else glm_kept.combine_weights(released, self.family_, design)

    def _viewed(self, result: ExchangeOutcome) -> Assessment | None:
        if self.family_.name not in CLASSES or (found := result.in_sample) is None:
            return None
        labels, scores = found
        return assess_chances(labels > 0, self.family_.mean(scores))

    def summary(self) -> list[str]:
        """What was fitted, released weights, and what the messages tell; weights that parties keep are not shown."""
        self._check_fitted()
        lines = [self.in_short]
        if self.release:
            lines.append(f"  released: {self._strongest(0)}")
        lines.append("each party keeps its own weights, in its kept.json and nowhere else")
        return [*lines, f"all that leaves a party tells about its columns alone, epsilon at most: {self._told()}"]

    # --- new people

    def score(
        self,
        X: People,
        y: NDArray[Any] | None = None,
        *,
        epsilon: float | None = None,
        exact: bool = False,
        **given: Unpack[ReadingOptions],
    ) -> float:
        """Classes: the share predicted. Numbers: the part of the deviance explained, for ``linear`` R^2.

        Of released weights it is what everybody who has them reaches. Where parties keep their weights nobody can
        predict by all of them: it is then what the party with the label would reach by one question about these people
        (:meth:`joint_scores`) at this ``epsilon``, by default what the fit may have told that party. The question is
        played in this process with fresh noise, and is not charged. ``exact=True`` predicts by all kept weights without
        noise, as nobody can.
        """
        if self._as_held(exact, given):
            return super().score(X, y, **given)
        true, scores = self._played(X, y, epsilon, given)
        return self.rate(true, self.answers(scores))

    def assess(
        self,
        X: People,
        y: NDArray[Any] | None = None,
        *,
        of: Any = None,
        epsilon: float | None = None,
        exact: bool = False,
        **given: Unpack[ReadingOptions],
    ) -> Assessment:
        """How good the chances are for people whose labels the caller has; for kept weights see :meth:`score`."""
        if self._as_held(exact, given) or not hasattr(self, "classes_"):
            return super().assess(X, y, of=of, **given)
        true, scores = self._played(X, y, epsilon, given)
        return self.assess_chances(true, self.chances(scores), of)

    def _as_held(self, exact: bool, given: ReadingOptions) -> bool:
        """Whether people are predicted by the weights that this process has, without a question."""
        self._check_fitted()
        if given.get("encoded") and not (exact or self.has_public_weights):
            raise StudyError(
                "no question can be played about an encoded matrix: pass tables, or exact=True to predict by all kept "
                "weights as nobody can [ST129]"
            )
        return exact or self.has_public_weights

    def _played(
        self, X: People, y: NDArray[Any] | None, epsilon: float | None, given: ReadingOptions
    ) -> tuple[NDArray[Any], Matrix]:
        """The labels of people, and what a question about them would let the party with the label predict."""
        people = self.people(X, labelled=y is None, **given)
        true = self.true_of(people) if y is None else np.asarray(y)
        active = self.design_.owner
        asked = self.privacy_.epsilon(active) if epsilon is None else epsilon
        question = KeptScores(self, epsilon={active: asked}, delta=self.privacy_.delta)
        scores = question.played(people, Stream.fresh())
        if true.shape != (len(scores),):
            raise DataError(f"there are {len(true) if true.ndim else 0} labels for {len(scores)} people [DA058]")
        return true, scores

    def joint_scores(
        self, people: Federation, *, epsilon: float | Mapping[str, float], delta: float = 1e-5
    ) -> JointScores:
        """Scores of new people, of whom each party holds its columns; only the party with the label receives them.

        Every other party sends its clipped scores with noise, and each question is charged again; see
        :class:`~colonnade.kinds.glm.kept_scores.KeptScores`.
        """
        return KeptScores(self, epsilon=epsilon, delta=delta).ask(people)


def _first_clipped(table: Table) -> int:
    """The number of the first row with a cell outside the bounds, as its party counts rows."""
    order, first, last = np.argsort(table.row_numbers), 0, table.rows
    while last - first > 1:
        middle = (first + last) // 2
        if table.take_rows(order[first:middle]).report.total_clipped:
            last = middle
        else:
            first = middle
    return int(table.row_numbers[order[first]])
