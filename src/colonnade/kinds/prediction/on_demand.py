"""Messages of standing questions: about whom, and what owners let through.

Scores on demand: one session that stays open, in which the entitled party asks one question after the other.

At the start all owners compare their lists of people, once. A question then names places in that list. Every other
owner decides by itself, before anything leaves it, whom it answers about: it counts each question as paid for. Of
whomever it refuses it deals zeros, tells the seats so, and these put zero in the place of the sum; so a refusal of one
owner leaves nothing of the others to be opened. What is dealt, added up and opened of everybody else is what
:mod:`colonnade.kinds.prediction.programs` deals, adds up and opens.

The others learn whom a question is about, and the coordinator of how many people. People who are not in the common list
are never asked about.

Scores on demand: a joint prediction that stands open for questions, as agents keep it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import NO_RESULT, ProtocolError, StudyError
from colonnade.kinds.prediction.model import JointPrediction, ScoreEvidence
from colonnade.kinds.prediction.programs import OpenedScores, OwnScoreParts, ScoresSum, check_parts, quantise
from colonnade.kinds.prediction.score_posterior import ScorePosterior
from colonnade.kinds.prediction.task import Scores
from colonnade.message_schema import ArrayForm, Boolean, FixedBytes, Integer, MessageSchema, UpTo, receive_message
from colonnade.mpc import Committee, Shares
from colonnade.privacy import Event, Trust
from colonnade.protocols.joint_sum.engine import CommitteeEngine
from colonnade.protocols.on_demand import (
    MOST_ASKED,
    GateDecision,
    GateOpener,
    OnDemandQuestion,
    OpenedAnswer,
    PeoplePlaces,
    QuestionSource,
    Row,
    Weigh,
)
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner, Role
from colonnade.protocols.rows import agree_on_rows, compare_rows
from colonnade.protocols.task import RunnableTask
from colonnade.randomness import KEY_BYTES, Stream, new_key
from colonnade.tables import Table

LAST = 1 << 50
_DIGEST_BYTES = 32
_LATEST = 1 << 40
_NUMBER = Integer(1, LAST)


def question_message(rows: int) -> MessageSchema:
    """Whom a question is about, by their places in the common list of ``rows`` people; nobody is a sign of life.

    After the last one, which is about nobody, the session ends.
    """
    places = ArrayForm(np.int64, (UpTo(MOST_ASKED),), 0, rows - 1)
    return MessageSchema("question", number=_NUMBER, places=places, salt=FixedBytes(KEY_BYTES), last=Boolean())


COUNTED = MessageSchema("question-size", number=_NUMBER, people=Integer(0, MOST_ASKED), last=Boolean())
"""How many people a question is about, for the coordinator, which does not learn who they are."""


def verdict_message(people: int) -> MessageSchema:
    """What an owner lets through: a digest of the question, whom it tells nothing about, and until when (Unix time)."""
    refused = ArrayForm(np.uint8, (people,), 0, 1)
    return MessageSchema(
        "question-verdict", number=_NUMBER, digest=FixedBytes(_DIGEST_BYTES), refused=refused, until=Integer(0, _LATEST)
    )


@dataclass(frozen=True)
class StandingScores(RunnableTask):
    """The same public task with as many openings as owners let through, each of them planned when it is asked for."""

    task: Scores

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
        number, salt = number + 1, new_key()
        for dealer in task.dealers:
            me.link(dealer).send("question", number=number, places=places, salt=salt, last=last)
        me.link(COORDINATOR).send("question-size", number=number, people=len(places), last=last)
        if not len(places):
            continue
        verdict = _receive_verdicts(me, task, number, len(places), _digest(salt, number, places))
        opened = _open(me, task, verdict, None)
        names = tuple(called[place] for place in places.tolist())
        asked.answer(OpenedAnswer(OpenedScores(task, names, opened, parts.values[places]), verdict))


def dealer(me: Owner, parts: OwnScoreParts, standing: StandingScores, opened: GateOpener) -> None:
    """Another owner's program: it answers what its gate lets through, until the session ends."""
    task = standing.task
    people, gate = _agree_on_people(me, parts, task), opened(parts.called)
    whole = quantise(parts.values, task, me.name)
    due, number, last = question_message(people), 0, False
    while not last:
        number += 1
        said = receive_message(me.link(task.to), task.to, due)
        places: PeoplePlaces = said["places"]
        last = said["last"]
        if said["number"] != number or len(np.unique(places)) != len(places):
            raise ProtocolError(f"{task.to} asked out of order, or twice about one person in one question [MS045]")
        if not len(places):
            continue
        digest = _digest(said["salt"], number, places)
        own = gate(places)
        told = {"number": number, "digest": digest, "refused": own.refused.astype(np.uint8), "until": own.until}
        for name in {task.to, *me.engine.committee.seats} - {me.name}:
            me.link(name).send("question-verdict", **told)
        values = whole[places] + task.additive.draw((len(places), task.classes), Stream.fresh())
        values[own.refused] = 0
        mine = me.engine.deal(values.reshape(-1))
        if me.engine.has_seat:
            _open(me, task, _receive_verdicts(me, task, number, len(places), digest, own), mine)


def coordinator(me: Coordinator, standing: StandingScores) -> None:
    """The coordinator's program: with two owners it keeps the third seat, and otherwise it only stays."""
    task, number, last = standing.task, 0, False
    compare_rows(me, task)
    _warm(me)
    while not last:
        number += 1
        said = receive_message(me.link(task.to), task.to, COUNTED)
        last = said["last"]
        if said["number"] != number:
            raise ProtocolError(f"{task.to} asked out of order [MS046]")
        if said["people"] and me.engine.has_seat:
            _open(me, task, _receive_verdicts(me, task, number, said["people"], None), None)


def _agree_on_people(me: Owner, parts: OwnScoreParts, task: Scores) -> int:
    check_parts(me, parts, task)
    people = agree_on_rows(me, task, parts)
    _warm(me)
    return people


def _warm(me: Role) -> None:
    """Exchange the keys that seats have in common, so that the first question need not wait for it."""
    if me.engine.has_seat:
        me.engine.common  # noqa: B018 - the first call exchanges them


def _digest(salt: bytes, number: int, places: PeoplePlaces) -> bytes:
    """What all who know a question must have alike; the salt keeps it from the coordinator."""
    return sha256(salt + number.to_bytes(8, "little") + places.astype("<i8").tobytes()).digest()


def _receive_verdicts(
    me: Role, task: Scores, number: int, people: int, digest: bytes | None, own: GateDecision | None = None
) -> GateDecision:
    """What all owners let through of a question; an error unless all of them were asked the same."""
    refused, until = np.zeros(people, dtype=bool), 0
    due = verdict_message(people)
    for name in task.dealers:
        if own is not None and name == me.name:
            one, later = own.refused, own.until
        else:
            said = receive_message(me.link(name), name, due)
            digest = said["digest"] if digest is None else digest
            if said["number"] != number or said["digest"] != digest:
                raise ProtocolError(f"{name} was asked another question than others, by {task.to}: {NO_RESULT} [MS047]")
            one, later = said["refused"].astype(bool), said["until"]
        refused |= one
        until = max(until, later)
    me.engine.record_public(number, refused.astype(np.uint8))  # seats that were told different verdicts open nothing
    return GateDecision(refused, until)


def _open(me: Role, task: Scores, verdict: GateDecision, mine: Shares | None) -> NDArray[np.int64]:
    """Add up what was dealt, without those who are refused, and open it to the entitled party."""
    declared = ScoresSum(task)
    engine, [opening] = CommitteeEngine(me, me, declared), declared.openings(len(verdict.refused))
    if (total := engine.add_dealt(opening, mine)) is not None:
        total.values[:, np.repeat(verdict.refused, task.classes)] = 0
    me.extend_plan(task.event)
    return declared.published(task, engine.open(opening, total))


@dataclass(frozen=True)
class ScoresOnDemand(OnDemandQuestion):
    """The scores of a public model: parts are added up on shares, and opened about whom all owners let through."""

    model: JointPrediction
    task: Scores

    @cached_property
    def session(self) -> StandingScores:
        """The task as sessions play it."""
        return StandingScores(self.task)

    @property
    def classes(self) -> Sequence[Any] | None:
        """The classes of the public model."""
        found: Sequence[Any] | None = getattr(self.model.scorer, "classes_", None)
        return found

    def weigh(self, table: Table) -> Weigh:
        """Weigh what is heard against what the entitled party's own columns foretell."""
        foreseen = self.model.forecast_parts(table, self.task)

        def weigh(answer: OpenedAnswer, places: PeoplePlaces) -> list[Row]:
            kept = ~answer.verdict.refused
            opened = answer.opened
            told = replace(opened, ids=(), others=opened.others[kept], own=opened.own[kept])
            at = places[kept]
            beliefs = {
                name: ScorePosterior(one.mean[at], one.variance[at], one.doubt) for name, one in foreseen.items()
            }
            names = (name for name, one in zip(opened.ids, kept.tolist(), strict=True) if one)
            return _rows(tuple(names), *self.model.weigh_evidence(ScoreEvidence(told, beliefs)))

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


def scores_on_demand(path: Path, model: JointPrediction, task: Any) -> ScoresOnDemand:
    """The questions of a study at this path, if they can be asked one by one; otherwise an error."""
    if not task.one_by_one:
        raise StudyError(
            f"{path}: scores on demand are added up on shares, and levels are not: set "
            'answers = "noise" in [task], or run it once as a study of its own [ST547]'
        )
    return ScoresOnDemand(model, task)


def _rows(ids: tuple[str, ...], scores: NDArray[np.float64], predictions: NDArray[Any], beside: Any) -> list[Row]:
    """What a caller is told of each person."""
    columns: dict[str, list[Any]] = {"id": list(ids), "prediction": predictions.tolist(), "scores": scores.tolist()}
    if beside.probabilities is not None:
        columns["probabilities"] = beside.probabilities.tolist()
    if beside.deviations is not None and beside.deviations.any():
        columns["deviations"] = beside.deviations.tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
