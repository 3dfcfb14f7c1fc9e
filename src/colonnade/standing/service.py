"""The desk as members reach it: questions that come over the hub, each from a caller whose key is known."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any

from colonnade.disk import reading
from colonnade.errors import FederationError, IdentityError, StorageError
from colonnade.standing.desk import Desk
from colonnade.standing.federation import INVITED
from colonnade.standing.invitation import Invitations
from colonnade.standing.talk import (
    FOR_INVITED,
    METHOD,
    MOST_ANSWER,
    MOST_QUESTION,
    SERVICE,
    Question,
    packed,
    with_files,
)
from colonnade.wire import Service

REPORT = "report.html"
"""Its sizes and seconds tell the number of rows, which parties know and analysts need not: it is for parties alone."""
_AWAY = 60.0


class DeskService:
    """Answers questions about proposals; ``clock`` says what time it is."""

    def __init__(self, desk: Desk, results: Path, clock: Callable[[], datetime]) -> None:
        self.desk, self.invitations = desk, Invitations(desk.file)
        self._results, self._clock = results, clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None
        self._seen: dict[str, float] = {}
        self.refused = 0
        """Questions that were refused since the start."""
        self._large = asyncio.Lock()
        self._turns: dict[str, asyncio.Lock] = {}
        desk.listen(self._wake)
        desk.present = self.present

    @property
    def service(self) -> Service:
        """This desk as a service of the hub."""
        return Service(SERVICE, METHOD, self.answer, MOST_QUESTION)

    def present(self) -> frozenset[str]:
        """Who has asked for news a moment ago."""
        now = monotonic()
        return frozenset(name for name, seen in self._seen.copy().items() if now - seen < _AWAY)

    async def answer(self, caller: str, body: bytes) -> bytes:
        """The answer to a question; what is refused is refused in a sentence."""
        try:
            question, behind = Question.unpack(body)
            if caller.startswith(INVITED) != (question.ask in FOR_INVITED):
                raise FederationError("the hub does not answer this question, or not to you [FE088]")
            asked: Callable[[str, Question, bytes], Awaitable[bytes]] = getattr(self, f"_{question.ask}")
            return await asked(caller, question, behind)
        except (FederationError, IdentityError) as error:
            self.refused += 1
            return packed({"refused": str(error)})
        except StorageError:
            return packed({"later": "its disk cannot be used; its own log says why"})

    async def _propose(self, caller: str, question: Question, behind: bytes) -> bytes:
        async with self._one_at_a_time(caller):
            return packed({"study": await asyncio.to_thread(self.desk.propose, behind, caller, self._clock())})

    async def _proposal(self, caller: str, question: Question, behind: bytes) -> bytes:
        async with self._one_at_a_time(caller):
            return packed({}, await asyncio.to_thread(self.desk.packed, question.study, caller))

    @asynccontextmanager
    async def _one_at_a_time(self, caller: str) -> AsyncIterator[None]:
        """Wait for a turn: what takes seconds and much memory is done once at a time, and everybody queues once."""
        async with self._turns.setdefault(caller, asyncio.Lock()), self._large:
            yield

    async def _tell(self, caller: str, question: Question, statement: bytes) -> bytes:
        """Take in what a member has signed; the answer says how the study stands then."""
        take = {"answer": self.desk.answer, "outcome": self.desk.outcome, "withdraw": self.desk.withdraw}[question.ask]
        return packed({"study": await asyncio.to_thread(take, statement, caller, self._clock())})

    _answer = _outcome = _withdraw = _tell

    async def _news(self, caller: str, question: Question, behind: bytes) -> bytes:
        self._loop = asyncio.get_running_loop()
        until = self._loop.time() + question.wait
        while True:
            self._seen[caller] = monotonic()
            if self._changed is None:
                self._changed = asyncio.Event()
            changed = self._changed
            found = await asyncio.to_thread(self.desk.news, caller, question.since)
            left = until - self._loop.time()
            if found["studies"] or left <= 0:
                return packed(found)
            try:
                await asyncio.wait_for(changed.wait(), left)
            except TimeoutError:
                return packed(found)

    def _wake(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_here)

    def _wake_here(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def _result(self, caller: str, question: Question, behind: bytes) -> bytes:
        study = question.study
        found = await asyncio.to_thread(self.desk.study, study, caller)
        if found["state"] != "done":
            raise FederationError(f"the study {found['name']!r} is {found['state']}, so it has no result [FE090]")
        but = () if caller in found["parties"] else (REPORT,)
        async with self._one_at_a_time(caller):
            files = await asyncio.to_thread(_files, self._results / study, but)
        if not files:
            raise FederationError(
                f"the hub has no result of {found['name']!r}: it went to one participant alone, or the hub was lost "
                "before it had it; those who finished have theirs [FE091]"
            )
        signed = await asyncio.to_thread(self.desk.finished, study, caller)
        return with_files({"finished": [raw.decode("ascii") for raw in signed]}, files)

    async def _members(self, caller: str, question: Question, behind: bytes) -> bytes:
        return self._told_members()

    def _told_members(self, **more: Any) -> bytes:
        members = self.desk.members
        said = {"name": members.name, "address": members.address, "roles": dict(members.roles)}
        return with_files(said | more, {name: each.pem for name, each in members.certificates.items()})

    async def _enrol(self, caller: str, question: Question, behind: bytes) -> bytes:
        draw = await asyncio.to_thread(self.invitations.enrol, caller, behind, self.desk.members, self._clock())
        return packed({"draw": draw})

    async def _show_draw(self, caller: str, question: Question, behind: bytes) -> bytes:
        found = await asyncio.to_thread(self.invitations.show_draw, caller, question.draw)
        return packed({"state": found.state})

    async def _enrolment(self, caller: str, question: Question, behind: bytes) -> bytes:
        found = await asyncio.to_thread(self.invitations.of_caller, caller)
        if found.state == "admitted" and found.name in self.desk.members.roles:
            return self._told_members(state="admitted")
        return packed({"state": "enrolled" if found.state == "admitted" else found.state})


def _files(folder: Path, but: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with suppress(reading.Unreadable, FileNotFoundError):
        for path in sorted(folder.iterdir()):
            if path.name not in but:
                found[path.name] = reading.read_bytes(path, MOST_ANSWER // 4)
    return found
