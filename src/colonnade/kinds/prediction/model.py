"""Predictions for new people when nobody holds all their columns; one party alone receives them.

Questions about new people rest on how small and how large each party's part of a score can be, for any row: from a
public model to what is asked of the others, and from what is heard to what is believed of a person.

Scores on demand: a joint prediction that stands open, in which the entitled party asks one question after the other.

At the start all owners compare their lists of people, once. A question then names a period and places in that list.
Every other owner decides by itself, before anything leaves it, how many of them it tells about, from the first. About
the rest it deals zeros, tells the seats so, and these put zero in the place of the sum; so what one owner does not tell
leaves nothing of the others to be opened. What is dealt, added up and opened of everybody else is what
:mod:`colonnade.kinds.prediction.programs` deals, adds up and opens; but what an owner deals about a person stays the
same in a period, under fresh shares. Levels are told to the entitled party, and nobody holds shares.

The others learn whom a question is about, and the coordinator of how many people, and how many of them are told about.
People who are not in the common list are never asked about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from fractions import Fraction
from functools import cached_property, reduce
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import NO_RESULT, PrivacyError, ProtocolError, StudyError
from colonnade.kinds.prediction.programs import OpenedScores, OwnScoreParts, ScoresSum, check_parts, quantise
from colonnade.kinds.prediction.randomised_answers import (
    ReceivedAnswers,
    answer_at_random,
    check_finite,
    receive_levels,
    tell_levels,
)
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
from colonnade.message_schema import (
    ArrayForm,
    Boolean,
    FixedBytes,
    Integer,
    MessageSchema,
    TextForm,
    UpTo,
    receive_message,
)
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
from colonnade.mpc import Committee, Shares
from colonnade.privacy import Budget, Event, Statement, Trust
from colonnade.privacy.calibrate import add_least_noise
from colonnade.protocols.joint_sum.engine import CommitteeEngine
from colonnade.protocols.on_demand import (
    MOST_ASKED,
    GateDecision,
    GateOpener,
    Integers,
    OnDemandQuestion,
    OpenedAnswer,
    PeoplePlaces,
    QuestionSource,
    Row,
    Summands,
    Weigh,
)
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner, Role
from colonnade.protocols.rows import agree_on_rows, compare_rows
from colonnade.protocols.task import RunnableTask
from colonnade.randomness import KEY_BYTES, Stream, new_key
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


LAST = 1 << 50
_DIGEST_BYTES = 32
_LATEST = 1 << 37  # in the year 6325; a later one may be no date
_LONGEST_PERIOD = 16
_NUMBER = Integer(1, LAST)


def question_message(rows: int) -> MessageSchema:
    """Whom a question is about, by their places in the common list of ``rows`` people; nobody is a sign of life.

    After the last one, which is about nobody, the session ends.
    """
    places, period = ArrayForm(np.int64, (UpTo(MOST_ASKED),), 0, rows - 1), TextForm(_LONGEST_PERIOD)
    salt = FixedBytes(KEY_BYTES)
    return MessageSchema("question", number=_NUMBER, period=period, places=places, salt=salt, last=Boolean())


COUNTED = MessageSchema("question-size", number=_NUMBER, people=Integer(0, MOST_ASKED), last=Boolean())
"""How many people a question is about, for whoever does not learn who they are."""


def verdict_message(people: int) -> MessageSchema:
    """How many an owner tells about: with a digest of the question, which says nothing, and until when (Unix time)."""
    told, digest = Integer(0, people), FixedBytes(_DIGEST_BYTES)
    return MessageSchema("question-verdict", number=_NUMBER, digest=digest, told=told, until=Integer(0, _LATEST))


@dataclass(frozen=True)
class StandingScores(RunnableTask):
    """The same public task with as many openings as owners let through, each of them planned when it is asked for."""

    task: Scores | QuantisedAnswers

    @property
    def trust(self) -> Trust:  # type: ignore[override]
        """Whom it trusts with shares."""
        return self.task.trust

    @property
    def events(self) -> tuple[Event, ...]:
        """None before the first question."""
        return ()

    @cached_property
    def committee(self) -> Committee:
        """The seats, as in a study."""
        return self.task.committee

    @cached_property
    def bystanders(self) -> tuple[str, ...]:
        """Who hears only how many people a question is about: the coordinator, and owners whom no level is asked of."""
        task = self.task
        return (*(name for name in task.owners if name not in (task.to, *task.dealers)), COORDINATOR)


def agree(me: Owner, parts: OwnScoreParts, standing: StandingScores) -> None:
    """Every owner's first step: an error at everyone unless all hold the same people."""
    check_parts(me, parts, standing.task)
    agree_on_rows(me, standing.task, parts)


def asker(me: Owner, parts: OwnScoreParts, standing: StandingScores, asked: QuestionSource) -> None:
    """The entitled party's program, once all agreed."""
    task = standing.task
    if me.name != task.to:
        raise ValueError(f"{me.name} is not entitled to scores [VA147]")
    _warm(me)
    called, people = parts.called, len(parts.ids)
    asked.begin(called)
    number, last = 0, False
    while not last:
        found = asked.question()
        places, last = np.zeros(0, dtype=np.int64) if found is None else found, found is None
        if len(np.unique(places)) != len(places) or len(places) > MOST_ASKED or (places >= people).any():
            raise ValueError("a question names at most so many places of the list, each once [VA148]")
        number, salt, period = number + 1, new_key(), asked.period
        for dealer in task.dealers:
            me.link(dealer).send("question", number=number, period=period, places=places, salt=salt, last=last)
        for name in standing.bystanders:
            me.link(name).send("question-size", number=number, people=len(places), last=last)
        if not len(places):
            continue
        verdicts = _receive_verdicts(me, task, number, len(places), _digest(salt, number, period, places))
        verdict = _together(verdicts)
        told = places[: verdict.told]
        names, own = tuple(called[place] for place in told.tolist()), parts.values[told]
        opened: OpenedScores | ReceivedAnswers
        if isinstance(task, Scores):
            opened = OpenedScores(task, names, _open(me, task, verdict, len(places), None)[: verdict.told], own)
        else:
            heard = {
                each.owner: receive_levels(me, each, verdicts[each.owner].told)[: verdict.told] for each in task.asked
            }
            opened = ReceivedAnswers(task, names, heard, own)
        asked.answer(OpenedAnswer(opened, verdict))


def dealer(me: Owner, parts: OwnScoreParts, standing: StandingScores, opened: GateOpener) -> None:
    """Another owner's program, once all agreed: it answers what its gate lets through, until the session ends."""
    task = standing.task
    _warm(me)
    if me.name in standing.bystanders:
        _stand_by(me, standing)
        return
    gate, due, number, last = opened(_summands(me, parts, task)), question_message(len(parts.ids)), 0, False
    while not last:
        number += 1
        said = receive_message(me.link(task.to), task.to, due)
        places: PeoplePlaces = said["places"]
        last = said["last"]
        if said["number"] != number or len(np.unique(places)) != len(places):
            raise ProtocolError(f"{task.to} asked out of order, or twice about one person in one question [MS045]")
        if not len(places):
            continue
        digest = _digest(said["salt"], number, said["period"], places)
        own, values = gate(said["period"], places)
        told = {"number": number, "digest": digest, "told": own.told, "until": own.until}
        for name in {task.to, *me.engine.committee.seats} - {me.name}:
            me.link(name).send("question-verdict", **told)
        if isinstance(task, QuantisedAnswers):
            asked = _respondent(task, me.name)
            me.extend_plan(task.event_of(asked))
            tell_levels(me, asked, values[:, 0], task)
            continue
        dealt = np.zeros((len(places), task.classes), dtype=np.int64)
        dealt[: own.told] = values
        mine = me.engine.deal(dealt.reshape(-1))
        if me.engine.has_seat:
            verdict = _together(_receive_verdicts(me, task, number, len(places), digest, own))
            _open(me, task, verdict, len(places), mine)


def coordinator(me: Coordinator, standing: StandingScores) -> None:
    """The coordinator's program: with two owners it keeps the third seat, and otherwise it only stays."""
    compare_rows(me, standing.task)
    _warm(me)
    _stand_by(me, standing)


def _stand_by(me: Role, standing: StandingScores) -> None:
    """Hear of questions without learning whom they are about, and keep a seat if there is one."""
    task, number, last = standing.task, 0, False
    while not last:
        number += 1
        said = receive_message(me.link(task.to), task.to, COUNTED)
        last = said["last"]
        if said["number"] != number:
            raise ProtocolError(f"{task.to} asked out of order [MS046]")
        if said["people"] and me.engine.has_seat and isinstance(task, Scores):
            verdict = _together(_receive_verdicts(me, task, number, said["people"], None))
            _open(me, task, verdict, said["people"], None)


def _warm(me: Role) -> None:
    """Exchange the keys that seats have in common, so that the first question need not wait for it."""
    if me.engine.has_seat:
        me.engine.common  # noqa: B018 - the first call exchanges them


def _summands(me: Owner, parts: OwnScoreParts, task: Scores | QuantisedAnswers) -> Summands:
    """What this owner would deal about people, by their places: drawn from its part anew at each call."""
    if isinstance(task, QuantisedAnswers):
        asked = _respondent(task, me.name)
        check_finite(me, parts)
        return lambda places: answer_at_random(parts.values[places], asked, task, Stream.fresh())
    whole = quantise(parts.values, task, me.name)
    return lambda places: whole[places] + task.additive.draw((len(places), task.classes), Stream.fresh())


def _respondent(task: QuantisedAnswers, name: str) -> Respondent:
    return next(each for each in task.asked if each.owner == name)


def _digest(salt: bytes, number: int, period: str, places: PeoplePlaces) -> bytes:
    """What all who know a question must have alike; the salt keeps it from the coordinator."""
    head = salt + number.to_bytes(8, "little") + period.encode().ljust(_LONGEST_PERIOD * 4)
    return sha256(head + places.astype("<i8").tobytes()).digest()


def _receive_verdicts(
    me: Role,
    task: Scores | QuantisedAnswers,
    number: int,
    people: int,
    digest: bytes | None,
    own: GateDecision | None = None,
) -> dict[str, GateDecision]:
    """How many of a question every owner tells about; an error unless all of them were asked the same."""
    found, due = {}, verdict_message(people)
    for name in task.dealers:
        if own is not None and name == me.name:
            found[name] = own
            continue
        said = receive_message(me.link(name), name, due)
        digest = said["digest"] if digest is None else digest
        if said["number"] != number or said["digest"] != digest:
            raise ProtocolError(f"{name} was asked another question than others, by {task.to}: {NO_RESULT} [MS047]")
        found[name] = GateDecision(said["told"], said["until"])
    # Seats that were told different verdicts open nothing.
    me.engine.record_public(number, *(one.told for one in found.values()))
    return found


def _together(verdicts: Mapping[str, GateDecision]) -> GateDecision:
    """How many all owners tell about."""
    return GateDecision(min(one.told for one in verdicts.values()), max(one.until for one in verdicts.values()))


def _open(me: Role, task: Scores, verdict: GateDecision, people: int, mine: Shares | None) -> Integers:
    """Add up what was dealt, without those who are not told about, and open it to the entitled party."""
    declared = ScoresSum(task)
    engine, [opening] = CommitteeEngine(me, me, declared), declared.openings(people)
    if (total := engine.add_dealt(opening, mine)) is not None:
        total.values[:, verdict.told * task.classes :] = 0
    me.extend_plan(task.event)
    return declared.published(task, engine.open(opening, total))


@dataclass(frozen=True)
class ScoresOnDemand(OnDemandQuestion):
    """The scores of a public model: parts are added up on shares and opened, or levels told, of whom all tell about."""

    model: JointPrediction
    task: Scores | QuantisedAnswers

    @cached_property
    def session(self) -> StandingScores:
        """The task as sessions play it."""
        return StandingScores(self.task)

    @property
    def summed(self) -> bool:
        """Whether noise of several owners is opened as one."""
        return isinstance(self.task, Scores) and not self.task.exact and len(self.task.dealers) > 1

    @property
    def classes(self) -> Sequence[Any] | None:
        """The classes of the public model."""
        found: Sequence[Any] | None = getattr(self.model.scorer, "classes_", None)
        return found

    def weigh(self, table: Table) -> Weigh:
        """Weigh what is heard against what the entitled party's own columns foretell."""
        foreseen = self.model.forecast_parts(table, self.task)

        def weigh(answer: OpenedAnswer, places: PeoplePlaces) -> list[Row]:
            opened, at = answer.opened, places[: answer.verdict.told]
            beliefs = {
                name: ScorePosterior(one.mean[at], one.variance[at], one.doubt) for name, one in foreseen.items()
            }
            return _rows(opened.ids, *self.model.weigh_evidence(ScoreEvidence(opened, beliefs)))

        return weigh

    def agree(self, me: Owner, table: Table) -> OwnScoreParts:
        """An owner's part of the scores, once all hold the same people."""
        parts = self.model.parts(me.name, table)
        agree(me, parts, self.session)
        return parts

    def asker(self, me: Owner, part: OwnScoreParts, asked: QuestionSource) -> None:
        """The entitled party's program."""
        asker(me, part, self.session, asked)

    def dealer(self, me: Owner, part: OwnScoreParts, opened: GateOpener) -> None:
        """Another owner's program."""
        dealer(me, part, self.session, opened)

    def coordinator(self, me: Coordinator) -> None:
        """The coordinator's program."""
        coordinator(me, self.session)


def _rows(ids: tuple[str, ...], scores: NDArray[np.float64], predictions: NDArray[Any], beside: Any) -> list[Row]:
    """What a caller is told of each person."""
    columns: dict[str, list[Any]] = {"id": list(ids), "prediction": predictions.tolist(), "scores": scores.tolist()}
    if beside.probabilities is not None:
        columns["probabilities"] = beside.probabilities.tolist()
    if beside.deviations is not None and beside.deviations.any():
        columns["deviations"] = beside.deviations.tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
