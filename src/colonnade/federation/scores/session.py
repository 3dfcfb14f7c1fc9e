"""One participant of a standing question: what its file says, how it meets the others, stays, and comes back.

Requests that arrive together at the entitled party become one question of its session.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, field_validator, model_validator
from threadpoolctl import threadpool_limits

from colonnade.errors import CANNOT_GO_ON, CapacityError, ColonnadeError, PeerLost, PolicyError, StudyError
from colonnade.federation.scores.periods import Period, PeriodKind
from colonnade.models import registry
from colonnade.protocols.on_demand import (
    MOST_ASKED,
    Gate,
    OnDemandQuestion,
    OpenedAnswer,
    PeoplePlaces,
    Row,
    Summands,
    Weigh,
)
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner
from colonnade.protocols.session import SessionEndpoint, run_role
from colonnade.study import PartyConfig, Study
from colonnade.study.alignment_session import OwnerAlignment, align_as_coordinator
from colonnade.study.connect import MeetingPoint as MeetingPlace, join, load_identity
from colonnade.study.spec import first_problem
from colonnade.study.study_file import FileSection, PathText
from colonnade.wire import Endpoint, Hub

MOST_WAITING = 256
"""Requests that may wait for an answer; more are refused at once."""


@dataclass(frozen=True)
class RefusedPerson:
    """A person about whom an owner tells nothing more, and until when (Unix time)."""

    until: int


@dataclass(frozen=True)
class RepeatedId:
    """An id that several rows of this party's own table have, so that it says nobody."""

    rows: int


PersonAnswer = Row | RefusedPerson | RepeatedId | None
"""Of one id: what was found, a refusal, or nothing for somebody who is not in the common list."""


@dataclass(frozen=True)
class _Request:
    places: NDArray[np.int64]
    """Of each id; -1 for somebody who is not in the common list, or for an id that several rows have."""
    unasked: list[PersonAnswer]
    """What is said of each id about which nobody is asked."""
    answered: Future[list[PersonAnswer]]


class QuestionQueue:
    """The queue between programs that ask and the session that answers; made once, for one session after the other."""

    def __init__(
        self,
        *,
        gather: float = 0.002,
        quiet: float = 2.0,
        period: PeriodKind = "month",
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._gather, self._quiet, self._kind, self._clock = gather, quiet, period, clock
        self._changed = threading.Condition()
        self._waiting: deque[_Request] = deque()
        self._asked: list[_Request] = []
        self._places: dict[str, int] | None = None
        self._weigh: Weigh | None = None
        self._repeated: Mapping[str, int] = {}
        self._question: PeoplePlaces = np.zeros(0, dtype=np.int64)
        self._stopped = False

    @property
    def ready(self) -> bool:
        """Whether a session is open."""
        return self._places is not None

    @property
    def period(self) -> str:
        """The name of the period in which answers are kept now."""
        return Period.at(self._kind, self._clock()).name

    def ask(self, ids: Sequence[str]) -> Future[list[PersonAnswer]]:
        """Ask about people by this party's own ids; ``None`` comes back for whoever is not in the common list."""
        if len(ids) > MOST_ASKED:
            raise CapacityError(f"one request asks about at most {MOST_ASKED} people; ask in several [CA032]")
        with self._changed:
            if self._places is None:
                raise PeerLost("the others are not all here; ask again in a moment [PE006]")
            if len(self._waiting) >= MOST_WAITING:
                raise CapacityError(f"{MOST_WAITING} requests are waiting already; ask again in a moment [CA033]")
            find, rows = self._places.get, self._repeated.get
            unasked = [RepeatedId(count) if (count := rows(each)) else None for each in ids]
            places = np.fromiter((find(each, -1) for each in ids), dtype=np.int64, count=len(ids))
            places[[one is not None for one in unasked]] = -1
            request = _Request(places, [*unasked], Future())
            if (places >= 0).any():
                self._waiting.append(request)
                self._changed.notify_all()
            else:
                request.answered.set_result(request.unasked)
            return request.answered

    def prepare(self, weigh: Weigh, repeated: Mapping[str, int]) -> None:
        """Say how answers of the next session are weighed, and which ids several rows of our own table have."""
        self._weigh, self._repeated = weigh, repeated

    def begin(self, people: tuple[str, ...]) -> None:
        """A session is open about these people."""
        with self._changed:
            self._places = {person: place for place, person in enumerate(people)}

    def question(self) -> PeoplePlaces | None:
        """The places of the next question: of all requests that came within a moment of the first."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting or self._stopped, self._quiet):
                return np.zeros(0, dtype=np.int64)  # a sign of life, which fails if the session has ended
            ends = monotonic() + self._gather
            while not self._stopped and (left := ends - monotonic()) > 0:
                self._changed.wait(left)
            if self._stopped:
                return None
            self._question = self._take_requests()
        return self._question

    def _take_requests(self) -> PeoplePlaces:
        """The requests that go into one question together."""
        found = np.zeros(0, dtype=np.int64)
        while self._waiting:
            request = self._waiting[0]
            more = np.union1d(found, request.places[request.places >= 0])
            if len(more) > MOST_ASKED:
                break
            self._waiting.popleft()
            if request.answered.set_running_or_notify_cancel():  # otherwise its caller has gone
                found = more
                self._asked.append(request)
        return found

    def answer(self, answer: OpenedAnswer) -> None:
        """Give everyone who asked what was answered."""
        assert self._weigh is not None  # noqa: S101 - a session is expected before it begins
        places, verdict = self._question, answer.verdict
        rows: list[PersonAnswer] = [*self._weigh(answer, places)] if verdict.told else []
        rows += [RefusedPerson(verdict.until)] * (len(places) - verdict.told)
        with self._changed:
            asked, self._asked = self._asked, []
        for request in asked:
            at = np.searchsorted(places, request.places).tolist()
            of_each = zip(at, request.places.tolist(), request.unasked, strict=True)
            request.answered.set_result([rows[i] if place >= 0 else unasked for i, place, unasked in of_each])

    def end(self, why: BaseException | None = None) -> None:
        """The session ended: whoever waits is told so."""
        error = why if isinstance(why, Exception) else PeerLost("the session ended; ask again in a moment [PE007]")
        with self._changed:
            self._places = None
            waiting = [request for request in self._waiting if request.answered.set_running_or_notify_cancel()]
            left, self._asked = [*self._asked, *waiting], []
            self._waiting.clear()
        for request in left:
            request.answered.set_exception(error)

    def stop(self) -> None:
        """End the session as soon as its present question is answered."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


_SECTION = "agent.scores"


class ScoredModelPart(FileSection):
    """One of ``models``: a study of kind "prediction", agreed to by its digest, that stands open for questions.

    ``period`` is for how long answers are kept: in it a person is told about once, however often it is asked about.
    ``per_day`` is about how many people the entitled party may ask a day, each time counted.
    """

    study: PathText
    digest: str
    period: PeriodKind = "month"
    per_day: int = Field(default=10_000, ge=1, le=10**9, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _no_count(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and "per_person" in given:
            raise ValueError(
                "must not have per_person: a person is told about once in a period, and asking again gives the same "
                'answer; say for how long answers are kept by period = "day", "week" or "month" [VA700]'
            )
        return given

    @field_validator("digest")
    @classmethod
    def _digits(cls, text: str) -> str:
        if not re.fullmatch("[0-9a-f]{64}", text):
            raise ValueError("must be the 64 hexadecimal digits that `colonnade privacy` prints for the study [VA165]")
        return text


class ScoresPart(FileSection):
    """The section: the standing questions, and where programs of this machine may ask."""

    models: tuple[ScoredModelPart, ...] = Field(min_length=1, max_length=16)
    token: PathText = "scores.token"  # noqa: S105 - the name of a file
    gather: float = Field(default=2.0, ge=0, le=1000)
    """Milliseconds for which a first question waits for others, which are then asked together."""


@dataclass(frozen=True)
class StandingStudy:
    """A study that stands open for questions, checked."""

    study: Study
    question: OnDemandQuestion
    period: PeriodKind = "month"
    per_day: int = 10_000

    @classmethod
    def of(cls, study: Study, period: PeriodKind = "month", per_day: int = 10_000) -> StandingStudy:
        """This study, if questions can be asked in it one by one; otherwise an error."""
        study.runnable()
        make = registry.part(study.content.task.kind, "standing")
        if make is None:
            raise StudyError(
                f'{study.path}: scores on demand need a study of kind = "prediction", and this one is of kind '
                f"{study.content.task.kind!r} [ST546]"
            )
        return cls(study, make(study.estimator(), study.task), period, per_day)

    @property
    def task(self) -> Any:
        """The public task of the question."""
        return self.question.task


def read_scores_section(said: Mapping[str, Any], path: Path) -> ScoresPart:
    """The section of the party file at ``path``."""
    try:
        return ScoresPart.model_validate(said)
    except ValidationError as error:
        raise StudyError(f"{path}: {first_problem(error, _SECTION)} [ST548]") from None


def load_standing_study(part: ScoredModelPart, path: Path) -> StandingStudy:
    """The study that one of ``models`` names, if it is the one that was agreed to."""
    study = Study.load(path.parent / part.study)
    if study.digest != part.digest:
        raise PolicyError(
            f"{path}: [{_SECTION}] agrees to another study than {part.study} is now: see what it costs with `colonnade "
            f"privacy {part.study}`, and write digest = {study.digest!r} if you agree [PO009]"
        )
    return StandingStudy.of(study, part.period, part.per_day)


_LOG = logging.getLogger("colonnade.scores")
_FIRST_PAUSE, _LONGEST_PAUSE, _LASTED, _GOODBYE = 0.5, 15.0, 60.0, 2.0
_LOOK_SECONDS = 60.0

Join = Callable[[], SessionEndpoint]
"""How a participant gets its place in a new session."""


class AlignmentLog:
    """What is noted of an alignment goes to the log: counts and settings, and nothing about anybody."""

    def record_public(self, what: str, **details: Any) -> None:
        """One thing that happened."""
        _LOG.info("%s", what)

    def add(self, **facts: Any) -> None:
        """Facts for a record, which a session that stays open has none of."""


@dataclass(frozen=True)
class ScoresParticipant:
    """What one participant plays in a session, and what is asked in it where this party asks."""

    standing: StandingStudy
    program: Callable[[Any], None]
    questions: QuestionQueue | None = None

    def play(self, place: SessionEndpoint) -> None:
        """Play one session until the entitled party ends it, or an error does; whoever waits is told."""
        study = self.standing.study
        aligns, wait = study.aligning is not None, study.content.limits.join
        why: BaseException | None = None
        try:
            with threadpool_limits(limits=1, user_api="blas"):
                run_role(place, self.standing.question.session, self.program, wait=wait, aligns=aligns)
        except BaseException as error:
            why = error
            raise
        finally:
            if self.questions is not None:
                self.questions.end(why)


AnswerOpener = Callable[[Sequence[bytes], Summands], Gate]
"""How an owner that answers begins: called with the normalised keys of the common people, in the order of places."""


def make_owner(
    standing: StandingStudy, config: PartyConfig, answers: AnswerOpener | QuestionQueue
) -> ScoresParticipant:
    """An owner: the entitled party, which asks what is in a queue, or one that answers what its gate lets through."""
    study, question = standing.study, standing.question
    questions = answers if isinstance(answers, QuestionQueue) else None
    config.check(study)
    plan = None if study.aligning is None else study.aligning.plan
    table = config.table(study.roster.schemas[config.name], plan, study.label_of(config.name))
    if questions is None:
        config.check_budget(study)

    equal = study.aligning is not None  # then the alignment is counted

    def program(me: Owner) -> None:
        nonlocal equal
        asked = replace(config, asked_by=f"the standing question {study.name}")
        if not equal:  # whoever may compare list after list tries ours out, as by aligning
            asked.note_alignment(study)
        matching = OwnerAlignment(study, asked, table, AlignmentLog())
        aligned, equal = matching.owner(me), study.aligning is not None
        part = question.agree(me, aligned)
        equal = True  # the same list tells nothing new the next time
        if isinstance(answers, QuestionQueue):
            answers.prepare(question.weigh(aligned), table.own_ids.repeated())
            question.asker(me, part, answers)
        else:
            question.dealer(me, part, partial(answers, matching.people))

    return ScoresParticipant(standing, program, questions)


class PersistentSession:
    """A thread that takes part in one session after the other until it is stopped.

    ``check`` raises an error where none may begin; a session in which it comes to do so is ended.
    """

    def __init__(self, join: Join, participant: ScoresParticipant, check: Callable[[], object] = lambda: None) -> None:
        self._check = check
        self._join, self._participant, self._name = join, participant, participant.standing.study.name
        self._stopped = threading.Event()
        self._place: SessionEndpoint | None = None
        self.last: str | None = None
        """Why the last session ended, in one sentence; ``None`` before the first one ended."""
        self._thread = threading.Thread(target=self._stay, name=f"scores {self._name}", daemon=True)

    @property
    def open(self) -> bool:
        """Whether this participant is in the room now; others may still be waited for."""
        return self._place is not None

    def start(self) -> PersistentSession:
        """Begin."""
        self._thread.start()
        threading.Thread(target=self._watch, name=f"keys {self._name}", daemon=True).start()
        return self

    def stop(self, timeout: float = 10.0) -> None:
        """Leave the session, and wait until it has ended here."""
        self._stopped.set()
        if self._participant.questions is not None:
            self._participant.questions.stop()
            self._thread.join(_GOODBYE)  # it ends the session for all, if all are there
        place = self._place
        if place is not None:
            place.abort("it was stopped by its operator")
        self._thread.join(timeout)

    def _watch(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            if (place := self._place) is not None:
                try:
                    self._check()
                except Exception as error:  # the next session says why it does not begin
                    if not isinstance(error, ColonnadeError):
                        _LOG.error("the look at the keys of %s failed: %s", self._name, type(error).__name__)
                    place.abort(CANNOT_GO_ON)

    def _stay(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopped.is_set():
            began = monotonic()
            try:
                self._check()
                self._place = self._join()
                self._participant.play(self._place)
                self.last = "the entitled party ended it"
            except ColonnadeError as error:
                self.last = str(error)
                _LOG.info("a session of %s ended: %s", self._name, error)
            except Exception as error:
                self.last = "it failed by a fault of Colonnade"
                _LOG.error("a session of %s failed: %s", self._name, type(error).__name__)
            finally:
                self._place = None
            # Long enough that the others have left the old session, too, when this one comes back.
            pause = _FIRST_PAUSE if monotonic() - began > _LASTED else min(_LONGEST_PAUSE, 2 * pause)
            self._stopped.wait(pause)


def scores_room(standing: StandingStudy) -> str:
    """The room of a standing question; sessions in it are about nothing else, and follow from its digest."""
    return f"scores.{standing.study.digest[:32]}"


def make_joiner(standing: StandingStudy, name: str, key: Path, *, hub: str | None = None) -> Join:
    """How a participant gets its place in a new session, at the address that the study names or at another hub."""
    certificates = standing.study.certificates()
    identity = load_identity(key, name, certificates)
    place = MeetingPlace(hub, scores_room(standing))

    def enter() -> Endpoint:
        return join(standing.study, identity, certificates, place)

    return enter


def make_own_hub(standing: StandingStudy, key: Path, *, listen: str | None = None) -> Hub:
    """A hub for this question alone, where no federation has one that stands."""
    study = standing.study
    certificates = study.certificates()
    identity = load_identity(key, COORDINATOR, certificates)
    return Hub(identity, certificates, listen or study.content.coordinator.address, **study.content.limits.of_hub)


def keep_coordinator(standing: StandingStudy, key: Path, hub: Hub) -> PersistentSession:
    """Open a standing question's room at a hub of this process, and keep the coordinator's seat in it."""
    hub.open(scores_room(standing), standing.study.participants)

    def program(me: Coordinator) -> None:
        align_as_coordinator(me, standing.study, AlignmentLog())
        standing.question.coordinator(me)

    enter = make_joiner(standing, COORDINATOR, key, hub=hub.own_address)
    return PersistentSession(enter, ScoresParticipant(standing, program)).start()
