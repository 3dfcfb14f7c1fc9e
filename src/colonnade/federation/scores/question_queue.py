"""What is asked at the entitled party: requests that arrive together become one question of its session."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError, PeerLost
from colonnade.protocols.on_demand import MOST_ASKED, OpenedAnswer, PeoplePlaces, Row, Weigh

MOST_WAITING = 256
"""Requests that may wait for an answer; more are refused at once."""


@dataclass(frozen=True)
class RefusedPerson:
    """A person about whom an owner tells nothing more, and until when (Unix time)."""

    until: int


PersonAnswer = Row | RefusedPerson | None
"""Of one id: what was found, a refusal, or nothing for somebody who is not in the common list."""


@dataclass(frozen=True)
class _Request:
    places: NDArray[np.int64]
    """Of each id; -1 for somebody who is not in the common list."""
    answered: Future[list[PersonAnswer]]


class QuestionQueue:
    """The queue between programs that ask and the session that answers; made once, for one session after the other."""

    def __init__(self, *, gather: float = 0.002, quiet: float = 2.0) -> None:
        self._gather, self._quiet = gather, quiet
        self._changed = threading.Condition()
        self._waiting: deque[_Request] = deque()
        self._asked: list[_Request] = []
        self._places: dict[str, int] | None = None
        self._weigh: Weigh | None = None
        self._question: PeoplePlaces = np.zeros(0, dtype=np.int64)
        self._stopped = False

    @property
    def ready(self) -> bool:
        """Whether a session is open."""
        return self._places is not None

    def ask(self, ids: Sequence[str]) -> Future[list[PersonAnswer]]:
        """Ask about people by this party's own ids; ``None`` comes back for whoever is not in the common list."""
        if len(ids) > MOST_ASKED:
            raise CapacityError(f"one request asks about at most {MOST_ASKED} people; ask in several [CA032]")
        with self._changed:
            if self._places is None:
                raise PeerLost("the others are not all here; ask again in a moment [PE006]")
            if len(self._waiting) >= MOST_WAITING:
                raise CapacityError(f"{MOST_WAITING} requests are waiting already; ask again in a moment [CA033]")
            find = self._places.get
            places = np.fromiter((find(each, -1) for each in ids), dtype=np.int64, count=len(ids))
            request = _Request(places, Future())
            if (places >= 0).any():
                self._waiting.append(request)
                self._changed.notify_all()
            else:
                request.answered.set_result([None] * len(ids))
            return request.answered

    def set_weighing(self, weigh: Weigh) -> None:
        """Say how answers of the next session are weighed."""
        self._weigh = weigh

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
        places, refused = self._question, answer.verdict.refused
        rows: list[PersonAnswer] = [RefusedPerson(answer.verdict.until)] * len(places)
        kept = np.flatnonzero(~refused)
        if len(kept):
            for place, row in zip(kept.tolist(), self._weigh(answer, places), strict=True):
                rows[place] = row
        with self._changed:
            asked, self._asked = self._asked, []
        for request in asked:
            at = np.searchsorted(places, request.places)
            request.answered.set_result(
                [rows[i] if p >= 0 else None for i, p in zip(at.tolist(), request.places.tolist(), strict=True)]
            )

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
