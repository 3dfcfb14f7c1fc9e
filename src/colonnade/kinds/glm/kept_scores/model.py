"""Scores of new people by kept weights; only the party with the label receives them, and every question is charged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from colonnade.errors import StudyError
from colonnade.kinds.glm import preflight
from colonnade.kinds.glm.exchange.fits import Matrix, Vector
from colonnade.kinds.glm.exchange.last_fit import blurred
from colonnade.kinds.glm.fitted import FittedGLM
from colonnade.kinds.glm.kept import unit_of
from colonnade.kinds.glm.kept_scores import programs as exchange_ask
from colonnade.kinds.glm.kept_scores.answers import Weighed
from colonnade.kinds.glm.kept_scores.programs import Answers, New
from colonnade.kinds.glm.kept_scores.task import KeptScoresTask, Sender
from colonnade.models.federation import Federation
from colonnade.models.parameters import LIMITS_ROWS, NAMES_MODEL, InFile, at_least, at_most, check_whole
from colonnade.models.planner import Details
from colonnade.models.predicted import FILE_OF_MODEL, Beside, JointScores, Predicted, budgets_against, check_fitted
from colonnade.models.roster import Roster
from colonnade.models.scorer import check_columns, features
from colonnade.privacy import Statement, Trust
from colonnade.privacy.events import audience_of
from colonnade.protocols.roles import Owner
from colonnade.randomness import Stream
from colonnade.tables import Table


@dataclass(eq=False, repr=False)
class KeptScores(Predicted[KeptScoresTask, Answers | None, FittedGLM]):
    """Scores of new people under a model whose weights were kept, told to the party with the label alone.

    Every other party adds noise to its weights and sends one number for each person: the score by these weights,
    clipped as in the fit, with noise. The party with the label adds its own scores. The costs of questions add up.

    Args:
        model: a fitted :class:`GLM`, or the path of its ``model.json``; each party needs its own kept weights in it.
        epsilon: what the party with the label (or a mapping of observers) may learn about one person's columns,
            whether the person is new, was in the fit, or both.
        delta: the delta of that promise.
        rows_at_most: a public limit on the number of people; ``fit`` counts them if it is not given.
    """

    kind = "glm-scores"
    tasks = (KeptScoresTask,)
    shares = False
    brings = "weights"

    model: Annotated[FittedGLM | str | Path | None, FILE_OF_MODEL, NAMES_MODEL] = None
    _: KW_ONLY
    epsilon: float | Mapping[str, float] = 1.0
    delta: float = 1e-5
    rows_at_most: Annotated[int | None, InFile(Annotated[int, at_least(1), at_most(2**31)], 2**20), LIMITS_ROWS] = None

    @property
    def recipient(self) -> str:
        """The party with the label, which alone is told the scores."""
        self._check_fitted()
        return audience_of(self.privacy_.events[0])[0]

    @property
    def to(self) -> str:
        """The same as ``recipient``, under the name that :class:`JointPrediction` uses."""
        return self.recipient

    def bring(self, path: str | Path, party: str) -> None:
        """Read the weights that one party kept, from its own file; this copy then has no weights of other parties."""
        own = copy(self.scorer)
        own.kept_ = {}
        if (found := own.load_kept(path)) != party:
            raise StudyError(
                f"{path} holds the weights of {found}, not those of {party}; use {party}'s own file [ST121]"
            )
        self._read = self.model, own

    def plan(self, roster: Roster) -> KeptScoresTask:
        """The task: every party without the label sends one score with noise for each person."""
        if self.rows_at_most is None:
            raise StudyError("rows_at_most is missing: say about how many people is asked, a public number [ST122]")
        return self.planned(roster, self.rows_at_most)

    def planned(self, roster: Roster, rows: int) -> KeptScoresTask:
        """The task for a public number of people, with the least noise that meets the budgets."""
        task = self.draft(roster, rows)
        return task.calibrated(budgets_against(task.active, self.epsilon, self.delta, task.trust))

    def draft(self, roster: Roster, rows: int) -> KeptScoresTask:
        """The task before its noise is known."""
        roster.require_known_members("joint prediction")
        check_whole("rows_at_most", rows, 1, 2**31)
        scorer = self.scorer
        if missing := [party for party in scorer.schemas_ if party not in roster.schemas]:
            raise StudyError(f"{missing[0]} keeps a part of the model and takes no part in the prediction [ST123]")
        check_columns(scorer, roster)
        if others := [party for party in roster.schemas if party not in scorer.schemas_]:
            raise StudyError(
                f"{others[0]} keeps no part of the model, so it cannot take part in the prediction [ST124]"
            )
        active, owners = scorer.plan_["active"], tuple(roster.schemas)
        sizes = {owner: len(scorer.design_.centred(owner).feature_names) + 1 for owner in owners}
        bounds = scorer.plan_["senders"]
        sending = tuple(Sender(owner, sizes[owner], **bounds[owner]) for owner in owners if owner != active)
        return KeptScoresTask(
            Trust(owners, (), 0), active, sending, int(rows), model=scorer.digest, names=tuple(scorer.feature_names_in_)
        )

    def owner(self, me: Owner, table: Table, task: KeptScoresTask) -> Answers | None:
        """An owner's program: it computes its own scores with its own weights."""
        if self.scorer.digest != task.model:
            raise StudyError(
                "the model is not the one that the study was planned with; use the file all agreed on [ST125]"
            )
        return exchange_ask.owner(me, self.new(me.name, table), task)

    def new(self, party: str, table: Table) -> New:
        """One party's rows of the people in its table, and its weights."""
        ordered, used = table.sorted_by_id(), features(self.scorer, party)
        rows, weights = self.scorer.kept_rows(party, ordered.select(used) if used else ordered)
        return New(ordered.ids, rows, weights, ordered.own_ids)

    def plan_for(self, people: Federation) -> KeptScoresTask:
        """The task for these people; they are counted if ``rows_at_most`` is not given."""
        return self.planned(people.roster, people.common_rows() if self.rows_at_most is None else self.rows_at_most)

    def outcome(self, outcomes: Mapping[str, Any], task: KeptScoresTask) -> Answers | None:
        """What the party with the label received, where all participants run in one process."""
        answers: Answers | None = outcomes[task.active]
        return answers

    def checked(self, model: Any) -> FittedGLM:
        """This model, if it is a fitted one whose parties keep weights."""
        if not isinstance(model, FittedGLM):
            raise StudyError(
                f"joint scores of kept weights take a GLM or the path of its model.json, not {model!r:.60} [ST126]"
            )
        check_fitted(model)
        return model

    @classmethod
    def why_not_about(cls, model: Any) -> str | None:
        """Why such a study cannot use this model: its parties must have kept weights."""
        if isinstance(model, FittedGLM):
            return None
        return 'is no model of kind "glm", whose parties keep weights of their own'

    def details(self, task: KeptScoresTask, statement: Statement) -> Details:
        """Which party sends scores, and how much noise they have."""
        return preflight.scores(task)

    def asked(self, people: Federation) -> JointScores:
        """Ask about these people, and return the answers as plain values."""
        if not isinstance(people, Federation):
            raise StudyError(f"joint scores are asked of a Federation, not of {type(people).__name__} [ST127]")
        return self.fit(people).joint

    def simulated(self, tables: Mapping[str, Table], task: KeptScoresTask, stream: Stream) -> Answers:
        """What the party with the label would receive about these tables."""
        return exchange_ask.simulate({party: self.new(party, tables[party]) for party in task.owners}, task, stream)

    def finish(self, result: Answers | None) -> None:
        """Compute the scores from what was received, if this participant received anything."""
        if result is None:
            self.restore({})
            return
        model, found = self.scorer, self.weighed(result)
        scores, own = (self._unit(each) for each in (found.scores, found.own))
        flat, flat_own = self.flat(found.scores, found.hidden), self.flat(found.own, found.unheard)
        classes = getattr(model, "classes_", None)
        unit, _ = unit_of(model.family_, model.design_)
        beside = Beside(
            probabilities=None if classes is None else model.chances(flat),
            own_scores=own,
            own_predictions=model.answers(flat_own),
            own_probabilities=None if classes is None else model.chances(flat_own),
            deviations=np.full(scores.shape, abs(unit) * math.sqrt(found.hidden)),
            classes=None if classes is None else classes.tolist(),
        )
        self.received(result.new.called, scores, model.answers(flat), beside)

    def weighed(self, result: Answers) -> Weighed:
        """The family's own scores by the factors that the party with the label kept, and what they leave unknown."""
        return result.weighed(self.scorer.kept_[result.task.active])

    def linear(self, result: Answers) -> Matrix:
        """The linear predictors, (rows, 1), that predict what is expected of people of whom not all is known."""
        found = self.weighed(result)
        return self.flat(found.scores, found.hidden)

    def flat(self, scores: Vector, hidden: float) -> Matrix:
        """The linear predictors with the means of scores that are known up to this variance."""
        return self._unit(blurred(self.scorer.family_, scores, hidden))

    def _unit(self, scores: Vector) -> Matrix:
        unit, zero = unit_of(self.scorer.family_, self.scorer.design_)
        return zero + unit * scores[:, None]

    def played(self, tables: Mapping[str, Table], stream: Stream) -> Matrix:
        """What a question about these people would let the party with the label predict; nothing is charged.

        Rows of all tables are the same people. It is for evaluation where all weights are in one process.
        """
        rows = next(iter(tables.values())).rows
        model = self.scorer
        task = self.planned(Roster.of(model.schemas_), rows)
        new = {}
        for party in task.owners:
            table = tables.get(party)
            held = np.zeros((rows, 0)) if table is None else table.select(features(model, party))
            new[party] = New([], *model.kept_rows(party, held))
        return self.linear(exchange_ask.simulate(new, task, stream))
