"""Scores on demand: one session that stays open, in which the entitled party asks one question after the other.

At the start all owners compare their lists of people, once. A question then names places in that list. Every other
owner decides by itself, before anything leaves it, whom it answers about: it counts each question as paid for. Of
whomever it refuses it deals zeros, tells the seats so, and these put zero in the place of the sum; so a refusal of one
owner leaves nothing of the others to be opened. What is dealt, added up and opened of everybody else is what
:mod:`colonnade.kinds.prediction.scores.programs` deals, adds up and opens.

The others learn whom a question is about, and the coordinator of how many people. People who are not in the common list
are never asked about.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import NO_RESULT, ProtocolError
from colonnade.kinds.prediction.scores import vocabulary
from colonnade.kinds.prediction.scores.integers import quantise
from colonnade.kinds.prediction.scores.programs import OpenedScores, Parts, ScoresSum, check_parts
from colonnade.kinds.prediction.scores.task import Scores
from colonnade.mpc import Committee, Shares
from colonnade.privacy import Event, Trust
from colonnade.protocols.joint_sum.engine import CommitteeEngine
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner, Role
from colonnade.protocols.rows import agree_on_rows, compare_rows
from colonnade.protocols.standing import MOST_ASKED, Answer, Asker, Opened, Places, Verdict
from colonnade.protocols.task import Playable
from colonnade.randomness import Stream, new_key
from colonnade.received import received


@dataclass(frozen=True)
class StandingScores(Playable):
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


def asker(me: Owner, parts: Parts, standing: StandingScores, asked: Asker) -> None:
    """The entitled party's program."""
    task = standing.task
    if me.name != task.to:
        raise ValueError(f"{me.name} is not entitled to scores [VA147]")
    people = _agreed(me, parts, task)
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
        verdict = _heard(me, task, number, len(places), _digest(salt, number, places))
        opened = _open(me, task, verdict, None)
        names = tuple(called[place] for place in places.tolist())
        asked.answer(Answer(OpenedScores(task, names, opened, parts.values[places]), verdict))


def dealer(me: Owner, parts: Parts, standing: StandingScores, opened: Opened) -> None:
    """Another owner's program: it answers what its gate lets through, until the session ends."""
    task = standing.task
    people, gate = _agreed(me, parts, task), opened(parts.called)
    whole = quantise(parts.values, task, me.name)
    due, number, last = vocabulary.question(people), 0, False
    while not last:
        number += 1
        said = received(me.link(task.to), task.to, due)
        places: Places = said["places"]
        last = said["last"]
        if said["number"] != number or len(np.unique(places)) != len(places):
            raise ProtocolError(f"{task.to} asked out of order, or twice about one person in one question [MS045]")
        if not len(places):
            continue
        digest = _digest(said["salt"], number, places)
        own = gate(places)
        told = {"number": number, "digest": digest, "refused": own.refused.astype(np.uint8), "until": own.until}
        for name in {task.to, *me.hand.committee.seats} - {me.name}:
            me.link(name).send("question-verdict", **told)
        values = whole[places] + task.additive.draw((len(places), task.classes), Stream.fresh())
        values[own.refused] = 0
        mine = me.hand.deal(values.reshape(-1))
        if me.hand.seated:
            _open(me, task, _heard(me, task, number, len(places), digest, own), mine)


def coordinator(me: Coordinator, standing: StandingScores) -> None:
    """The coordinator's program: with two owners it keeps the third seat, and otherwise it only stays."""
    task, number, last = standing.task, 0, False
    compare_rows(me, task)
    _warm(me)
    while not last:
        number += 1
        said = received(me.link(task.to), task.to, vocabulary.COUNTED)
        last = said["last"]
        if said["number"] != number:
            raise ProtocolError(f"{task.to} asked out of order [MS046]")
        if said["people"] and me.hand.seated:
            _open(me, task, _heard(me, task, number, said["people"], None), None)


def _agreed(me: Owner, parts: Parts, task: Scores) -> int:
    check_parts(me, parts, task)
    people = agree_on_rows(me, task, parts)
    _warm(me)
    return people


def _warm(me: Role) -> None:
    """Exchange the keys that seats have in common, so that the first question need not wait for it."""
    if me.hand.seated:
        me.hand.common  # noqa: B018 - the first call exchanges them


def _digest(salt: bytes, number: int, places: Places) -> bytes:
    """What all who know a question must have alike; the salt keeps it from the coordinator."""
    return sha256(salt + number.to_bytes(8, "little") + places.astype("<i8").tobytes()).digest()


def _heard(
    me: Role, task: Scores, number: int, people: int, digest: bytes | None, own: Verdict | None = None
) -> Verdict:
    """What all owners let through of a question; an error unless all of them were asked the same."""
    refused, until = np.zeros(people, dtype=bool), 0
    due = vocabulary.verdict(people)
    for name in task.dealers:
        if own is not None and name == me.name:
            one, later = own.refused, own.until
        else:
            said = received(me.link(name), name, due)
            digest = said["digest"] if digest is None else digest
            if said["number"] != number or said["digest"] != digest:
                raise ProtocolError(f"{name} was asked another question than others, by {task.to}: {NO_RESULT} [MS047]")
            one, later = said["refused"].astype(bool), said["until"]
        refused |= one
        until = max(until, later)
    me.hand.note(number, refused.astype(np.uint8))  # seats that were told different verdicts open nothing
    return Verdict(refused, until)


def _open(me: Role, task: Scores, verdict: Verdict, mine: Shares | None) -> NDArray[np.int64]:
    """Add up what was dealt, without those who are refused, and open it to the entitled party."""
    declared = ScoresSum(task)
    engine, [opening] = CommitteeEngine(me, me, declared), declared.openings(len(verdict.refused))
    if (total := engine.add_dealt(opening, mine)) is not None:
        total.values[:, np.repeat(verdict.refused, task.classes)] = 0
    me.also_planned(task.event)
    return declared.published(task, engine.open(opening, total))
