"""Scores on demand: a joint prediction that stands open, in which the entitled party asks one question after the other.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import NO_RESULT, ProtocolError
from colonnade.kinds.prediction.model import JointPrediction, ScoreEvidence
from colonnade.kinds.prediction.programs import OpenedScores, OwnScoreParts, ScoresSum, check_parts, quantise
from colonnade.kinds.prediction.randomised_answers import (
    ReceivedAnswers,
    answer_at_random,
    check_finite,
    receive_levels,
    tell_levels,
)
from colonnade.kinds.prediction.score_posterior import ScorePosterior
from colonnade.kinds.prediction.task import QuantisedAnswers, Respondent, Scores
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
from colonnade.mpc import Committee, Shares
from colonnade.privacy import Event, Trust
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


def asker(me: Owner, parts: OwnScoreParts, standing: StandingScores, asked: QuestionSource) -> None:
    """The entitled party's program."""
    task = standing.task
    if me.name != task.to:
        raise ValueError(f"{me.name} is not entitled to scores [VA147]")
    people = _agree_on_people(me, parts, task)
    called = parts.called
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
    """Another owner's program: it answers what its gate lets through, until the session ends."""
    task = standing.task
    people = _agree_on_people(me, parts, task)
    if me.name in standing.bystanders:
        _stand_by(me, standing)
        return
    gate, due, number, last = opened(_summands(me, parts, task)), question_message(people), 0, False
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


def _agree_on_people(me: Owner, parts: OwnScoreParts, task: Scores | QuantisedAnswers) -> int:
    check_parts(me, parts, task)
    people = agree_on_rows(me, task, parts)
    _warm(me)
    return people


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

    def asker(self, me: Owner, table: Table, asked: QuestionSource) -> None:
        """The entitled party's program."""
        asker(me, self.model.parts(me.name, table), self.session, asked)

    def dealer(self, me: Owner, table: Table, opened: GateOpener) -> None:
        """Another owner's program."""
        dealer(me, self.model.parts(me.name, table), self.session, opened)

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
