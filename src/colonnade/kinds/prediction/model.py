"""How small and how large each party's part of a score can be, for any row: what questions about new people rest on.

From a public model to what is asked of the others, and from what is heard to what is believed of a person.

Predictions for new people when nobody holds all their columns; one party alone receives them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import PrivacyError, StudyError
from colonnade.kinds.prediction.programs import OpenedScores, OwnScoreParts
from colonnade.kinds.prediction.randomised_answers import ReceivedAnswers
from colonnade.kinds.prediction.score_posterior import (
    PUBLISHED,
    Matrix,
    PartPrior,
    ScorePosterior,
    flatten_scores,
    guess_prior,
    posterior_of_prior,
)
from colonnade.kinds.prediction.task import QuantisedAnswers, Respondent, ScorePart, Scores, best_cuts
from colonnade.models.base import Estimator
from colonnade.models.federation import Federation
from colonnade.models.linear_model import LinearModel
from colonnade.models.planner import (
    NAMES_MODEL,
    NAMES_PARTIES,
    SETS_PRICE,
    Count,
    PlanDetails,
    Roster,
    RowsAtMost,
    check_whole,
)
from colonnade.models.score_result import (
    FILE_OF_MODEL,
    JointScores,
    ScoreContext,
    ScoreQuestion,
    Scorer,
    budgets_against,
    check_columns,
    check_fitted,
    scored_features,
    scorer_digest,
)
from colonnade.privacy import Budget, Statement, Trust
from colonnade.privacy.calibrate import add_least_noise
from colonnade.protocols.roles import Owner
from colonnade.randomness import Stream
from colonnade.tables import Table


def bound_score_part(scorer: Scorer, party: str, gamma: int) -> ScorePart:
    """The least and the largest whole number that a party's part of each score can be, for any row."""
    used = scored_features(scorer, party)
    schema = scorer.schemas_[party].select(used) if used else None
    place = {name: index for index, name in enumerate(scorer.feature_names_in_)}
    shrinks = schema is not None and schema.clip < schema.max_norm  # rows that are too long are scaled down
    ends: list[tuple[Fraction, Fraction]] = []
    for weights in np.atleast_2d(scorer.coef_).tolist():
        low = high = Fraction(0)
        for name, column in schema.columns.items() if schema else ():
            exact = [Fraction(weights[place[f"{party}.{name}{part}"]]) for part in column.parts]
            least, most = column.score_bounds(exact, shrinks)
            low, high = low + least, high + most
        ends.append((low, high))
    return ScorePart(
        party, tuple(math.floor(gamma * low) for low, _ in ends), tuple(math.ceil(gamma * high) for _, high in ends)
    )


_MOST_ASKED = 6
_PURE = 1e-30  # answers need no delta, and so small a one buys none


@dataclass(frozen=True)
class ScoreEvidence:
    """What the entitled party has in the end: what was opened or told, and what its own columns foretell of it."""

    told: OpenedScores | ReceivedAnswers
    foreseen: Mapping[str, ScorePosterior]


def law_of(scorer: Scorer, party: str) -> PartPrior:
    """The public law of a party's part of the scores: as published with the model, or as its columns suggest."""
    published = (getattr(scorer, "parts_", None) or {}).get(party)
    if published is not None:
        return PartPrior(np.array([published.mean]), np.array([published.variance]), PUBLISHED)
    used, coef = scored_features(scorer, party), np.atleast_2d(scorer.coef_)
    columns = {name: scorer.schemas_[party].columns[name] for name in used}
    place = {name: index for index, name in enumerate(scorer.feature_names_in_)}
    names = [f"{name}{part}" for name, column in columns.items() for part in column.parts]
    return guess_prior(columns, {name: coef[:, place[f"{party}.{name}"]] for name in names}, len(coef))


def choose_levels(draft: Scores, laws: Mapping[str, PartPrior], budgets: Sequence[Budget]) -> QuantisedAnswers | None:
    """Who answers with which levels, so that least is expected to stay unknown; ``None`` where nobody can.

    Answers about a person share epsilon, so it may be better to ask only those whose parts vary most.
    """
    if draft.classes > 1:
        return None
    spreads = {name: float(law.variance[0]) for name, law in laws.items() if law.variance[0] > 0}
    order = sorted(spreads, key=lambda name: -spreads[name])
    pure = [replace(budget, delta=_PURE) for budget in budgets]
    trust, best, least = Trust(draft.owners, (), 0), None, math.inf
    for count in range(1, min(len(order), _MOST_ASKED) + 1):
        who = [name for name in draft.dealers if name in order[:count]]
        asked = tuple(Respondent(name, (0,)) for name in who)
        rough = QuantisedAnswers(
            trust, draft.to, asked, draft.gamma, draft.rows_at_most, names=draft.names, model=draft.model
        )
        priced = add_least_noise(rough.with_noise, trust, pure, owners=1)
        cut = best_cuts(math.log(priced.odds))
        asked = tuple(
            Respondent(
                name,
                cut.whole(float(laws[name].mean[0]), math.sqrt(spreads[name]), draft.gamma),
                spreads[name] * (1 - cut.heard),
            )
            for name in who
        )
        left = sum(each.left for each in asked) + sum(spreads[name] for name in order[count:])
        if left < least:
            best, least = replace(priced, asked=asked), left
    return best


@dataclass(eq=False, repr=False)
class JointPrediction(ScoreQuestion[Scores | QuantisedAnswers, ScoreEvidence | None, Scorer]):
    """Scores of new people under a published model, told to one party.

    Parts are summed on shares and opened with noise or without it, or each other party tells a level of its own part,
    answered at random. What is heard is weighed against what the entitled party's own columns foretell.

    Exactly one of ``epsilon`` and ``exact=True`` is given. Every study is charged, also one about the same people: the
    costs add up.

    Args:
        model: a linear or logistic regression, fitted, or the path of its ``model.json``.
        to: the party that receives the scores; nobody else learns anything.
        exact: give ``to`` the exact scores; no epsilon against it is then finite.
        epsilon: instead, add the least noise under which ``to`` (or a mapping of observers) learns at most this much
            about any one person's columns held by others.
        delta: the delta of that promise; levels need none.
        answers: how ``epsilon`` is spent: ``"noise"`` on the sum, ``"levels"`` answered at random, which tell far more
            of a person where there is one score, or ``"auto"``, the one that is expected to leave less unknown.
        gamma: scores are whole multiples of ``1 / gamma``.
        rows_at_most: a public limit on the number of people.
    """

    kind = "prediction"
    tasks = (Scores, QuantisedAnswers)
    later = frozenset({"answers"})

    model: Annotated[Scorer | str | Path | None, FILE_OF_MODEL, NAMES_MODEL] = None
    _: KW_ONLY
    to: Annotated[str, NAMES_PARTIES]
    exact: Annotated[bool, SETS_PRICE] = False
    epsilon: float | Mapping[str, float] | None = None
    delta: float = 1e-5
    gamma: Count = 2**16
    rows_at_most: RowsAtMost = 2**20
    answers: Literal["noise", "levels", "auto"] = "noise"

    @property
    def recipient(self) -> str:
        """The party that alone receives the answers."""
        return self.to

    def plan(self, roster: Roster) -> Scores | QuantisedAnswers:
        """Bounds or cuts from the public model and schemas; the least noise that meets the budgets, or none."""
        roster.require_known_members("joint prediction")
        if (self.epsilon is None) != (self.exact is True):
            raise StudyError(
                f"say what the scores may cost, by epsilon or by exact = true, and not by both: epsilon adds noise to "
                f"each score until {self.to} learns at most that much about any one person, and exact = true lets "
                f"{self.to} learn the exact scores, which no epsilon bounds [ST176]"
            )
        check_whole("gamma", self.gamma, 1, 2**40)
        check_whole("rows_at_most", self.rows_at_most, 1, 2**40)
        check_columns(self.scorer, roster)
        draft = Scores(
            parts=tuple(bound_score_part(self.scorer, party, self.gamma) for party in roster.schemas),
            trust=roster.trust,
            to=self.to,
            gamma=self.gamma,
            rows_at_most=self.rows_at_most,
            names=tuple(self.scorer.feature_names_in_),
            model=scorer_digest(self.scorer),
        )
        if self.answers not in ("noise", "levels", "auto"):
            raise StudyError(f'answers must be "noise", "levels" or "auto", not {self.answers!r} [ST177]')
        if self.epsilon is None:
            if self.answers == "levels":
                raise StudyError(
                    'answers = "levels" is a way to spend epsilon: give epsilon instead of exact = true [ST178]'
                )
            return draft
        return self._priced(draft, budgets_against(self.to, self.epsilon, self.delta, draft.trust))

    def _priced(self, draft: Scores, budgets: Sequence[Budget]) -> Scores | QuantisedAnswers:
        """The task by the chosen answers, with the least noise that meets the budgets."""
        laws = {part.owner: self._law(part) for part in draft.dealt}
        asking = None
        if self.answers != "noise":
            asking = choose_levels(draft, laws, budgets)
            if asking is None and self.answers == "levels":
                raise StudyError(
                    'answers = "levels" needs one score a person, and another party whose columns have weights: use '
                    'answers = "noise" [ST179]'
                )
            if asking is not None and self.answers == "levels":
                return asking
        parts = draft.additive.parts
        try:
            noised = add_least_noise(lambda noise: replace(draft, noise=noise), draft.trust, budgets, owners=parts)
        except PrivacyError:  # a group that holds enough shares is told the sum without noise, but no other level
            if asking is None:
                raise
            return asking
        if asking is None:
            return noised
        spread = sum(float(law.variance[0]) for law in laws.values())
        unasked = sum(float(law.variance[0]) for name, law in laws.items() if asking.part(name) is None)
        blur = noised.noise_std**2
        return asking if asking.noise_std**2 + unasked <= spread * blur / (spread + blur) else noised

    def _law(self, part: ScorePart) -> PartPrior:
        """The public law of a party's part, never wider than it can be."""
        found, widest = law_of(self.scorer, part.owner), np.array(part.widths) / self.gamma / 2
        return PartPrior(found.mean, np.minimum(found.variance, np.square(widest)), found.doubt)

    def owner(self, me: Owner, table: Table, task: Scores | QuantisedAnswers) -> ScoreEvidence | None:
        """An owner's program: its own part of the scores, and then what the others' are told to be."""
        if scorer_digest(self.scorer) != task.model:
            raise StudyError(
                "the model is not the one that the study was planned with; use the file that all agreed on [ST180]"
            )
        parts = self.parts(me.name, table)
        told = task.programs.owner(me, parts, task)
        return None if told is None else ScoreEvidence(told, self.forecast_parts(table, task))

    def outcome(self, outcomes: Mapping[str, Any], task: Scores | QuantisedAnswers) -> ScoreEvidence | None:
        """What the party ``to`` received, where all participants run in one process."""
        received: ScoreEvidence | None = outcomes[task.to]
        return received

    def details(self, task: Scores | QuantisedAnswers, statement: Statement) -> PlanDetails:
        """How levels are answered, where they are."""
        how = [
            f"{each.owner} one of {each.levels}, the true one with probability {kept:.3f}"
            for each, kept in task.answered
        ]
        if not how:
            return PlanDetails()
        lines = (f"levels of each person's score, answered at random to {task.to}: {'; '.join(how)}",)
        return PlanDetails("levels", {"levels": {each.owner: each.levels for each, _ in task.answered}}, brief=lines)

    def check_model(self, model: Any) -> Scorer:
        """This model, if it is a fitted one with finite public weights."""
        if isinstance(model, Estimator):
            check_fitted(model)
        if not isinstance(model, Scorer):
            given = getattr(model, "kind", type(model).__name__)
            raise StudyError(
                f"joint prediction takes a fitted linear or logistic regression or the path of its model.json, not "
                f"{given} [ST181]"
            )
        if not np.isfinite(model.coef_).all() or not np.isfinite(model.intercept_).all():
            raise StudyError("the model has weights that are not finite numbers; fit it again [ST182]")
        return model

    @classmethod
    def why_not_about(cls, model: Any) -> str | None:
        """Why joint prediction cannot use this model: it must have public weights."""
        if isinstance(model, LinearModel) and not model.has_public_weights:
            return 'has no weights, its parties keep them: ask for scores with kind = "glm-scores"'
        return None if isinstance(model, Scorer) else "is no linear or logistic regression"

    def simulate_result(
        self, tables: Mapping[str, Table], task: Scores | QuantisedAnswers, stream: Stream
    ) -> ScoreEvidence:
        """What the entitled party would receive about these tables."""
        parts = {party: self.parts(party, table) for party, table in tables.items()}
        return ScoreEvidence(task.programs.simulate(parts, task, stream), self.forecast_parts(tables[task.to], task))

    def finish(self, result: ScoreEvidence | None) -> None:
        """Weigh what was heard against what own columns foretell, if this participant received anything."""
        if result is None:
            self.restore({})
            return
        found, predictions, beside = self.weigh_evidence(result)
        self.store_answers(result.told.ids, found, predictions, beside)

    def weigh_evidence(self, result: ScoreEvidence) -> tuple[Matrix, NDArray[Any], ScoreContext]:
        """Scores, what they predict and what stands beside them, from what was heard."""
        _told, own = result.told, result.told.own + np.atleast_1d(self.scorer.intercept_)
        before, after = reduce(ScorePosterior.plus, result.foreseen.values()), result.told.posterior(result.foreseen)
        found, alone = own + after.mean, own + before.mean
        predictions, chances = self._predict(found, after)
        own_predictions, own_chances = self._predict(alone, before)
        classes = getattr(self.scorer, "classes_", None)
        beside = ScoreContext(
            probabilities=chances,
            own_scores=alone,
            own_predictions=own_predictions,
            own_probabilities=own_chances,
            deviations=np.sqrt(after.variance),
            classes=None if classes is None or chances is None else np.asarray(classes).tolist(),
        )
        return found, predictions, beside

    def _predict(self, scores: Matrix, belief: ScorePosterior) -> tuple[NDArray[Any], Matrix | None]:
        """What scores predict, and the chance of each class, which allows for what is not known."""
        if getattr(self.scorer, "classes_", None) is None:
            return self.scorer.answers(scores), None
        flat, chances = flatten_scores(scores, belief.variance), getattr(self.scorer, "chances", None)
        return self.scorer.answers(flat), None if chances is None else chances(flat)

    def parts(self, party: str, table: Table) -> OwnScoreParts:
        """A party's part of the scores of everybody in its table, in the order of ids."""
        ordered, used = table.sorted_by_id(), scored_features(self.scorer, party)
        if not used:
            return OwnScoreParts(
                ordered.ids, np.zeros((ordered.rows, len(np.atleast_2d(self.scorer.coef_)))), ordered.own_ids
            )
        values = np.asarray(self.scorer.partial(party, ordered.select(used)), dtype=np.float64)
        return OwnScoreParts(ordered.ids, values, ordered.own_ids)

    def forecast_parts(self, table: Table, task: Scores | QuantisedAnswers) -> dict[str, ScorePosterior]:
        """What the entitled party's own columns foretell of the others' parts, or else their public laws."""
        ordered, used = table.sorted_by_id(), scored_features(self.scorer, task.to)
        foresee = getattr(self.scorer, "foresee", None)
        known = foresee(task.to, ordered.select(used)) if foresee is not None and used else {}
        found = {}
        for owner in task.owners:
            if owner in known:
                mean, variance = known[owner]
                found[owner] = ScorePosterior(mean[:, None], np.full((ordered.rows, 1), variance))
            elif owner != task.to:
                found[owner] = posterior_of_prior(
                    self._law(bound_score_part(self.scorer, owner, self.gamma)), ordered.rows
                )
        return found


def joint_scores(
    model: Scorer | str | Path,
    people: Federation,
    *,
    to: str,
    epsilon: float | Mapping[str, float] | None = None,
    delta: float = 1e-5,
    exact: bool = False,
    gamma: int = 2**16,
    rows_at_most: int = 2**20,
    answers: Literal["noise", "levels", "auto"] = "auto",
) -> JointScores:
    """Scores of new people under a fitted model, as the party ``to`` receives them; see :class:`JointPrediction`."""
    question = JointPrediction(
        model,
        to=to,
        exact=exact,
        epsilon=epsilon,
        delta=delta,
        gamma=gamma,
        rows_at_most=rows_at_most,
        answers=answers,
    )
    return question.fit(people).joint
