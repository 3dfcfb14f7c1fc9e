"""The hub as a standing process: it relays rooms, answers members, and runs the coordinator's part of every attempt.

All that it must not forget is in its store and in the folders of attempts, so it may be killed at any moment. Children
end with it; the attempts they were in are lost, and tried again where all parties allow that.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

from colonnade.disk import reading, writing
from colonnade.errors import ColonnadeError, ConnectError, FederationError, IdentityError, StorageError
from colonnade.federation.attempts import find_outcome, published_files
from colonnade.federation.hub_protocol import (
    FOR_INVITED,
    METHOD,
    MOST_ANSWER,
    MOST_QUESTION,
    SERVICE,
    HubQuestion,
    pack_files,
    pack_message,
)
from colonnade.federation.invitations import Invitations
from colonnade.federation.members import INVITED
from colonnade.federation.monitoring import HubMetrics, log_event
from colonnade.federation.notices import NoticeBoard
from colonnade.federation.processes import ChildProcess, ProcessLimits, StandingProcess, file_limit, wait_for_end
from colonnade.federation.proposal_store import FINAL, ProposalStore, RunningAttempt
from colonnade.federation.scores.session import StandingStudy, keep_coordinator
from colonnade.federation.statements import AttemptEnd, AttemptReport, Proposal
from colonnade.federation.token_file import METRICS_TOKEN, knows_token
from colonnade.memory import release_memory
from colonnade.protocols.roles import COORDINATOR
from colonnade.study import Study
from colonnade.study.connect import load_identity
from colonnade.study.engine.base import count_cores
from colonnade.study.fork_server import ForkServer
from colonnade.wire import Certificate, Hub, HubLimits, HubService
from colonnade.wire.study_sessions import LaneLimits

REPORT_FILE = "report.html"
"""Its sizes and seconds tell the number of rows, which parties know and analysts need not: it is for parties alone."""
_AWAY = 60.0


class FederationService:
    """Answers questions about proposals; ``clock`` says what time it is."""

    def __init__(self, proposals: ProposalStore, results: Path, clock: Callable[[], datetime]) -> None:
        self.proposals, self.invitations = proposals, Invitations(proposals.file)
        self._notice_board = NoticeBoard(proposals.folder / "notices")
        self._results, self._clock = results, clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._seen: dict[str, float] = {}
        self.refused = 0
        """Questions that were refused since the start."""
        self._large = asyncio.Lock()
        self._turns: dict[str, asyncio.Lock] = {}
        proposals.changed, proposals.present = self._wake, self.present

    def present(self) -> frozenset[str]:
        """Who has asked for news a moment ago."""
        now = monotonic()
        return frozenset(name for name, seen in self._seen.copy().items() if now - seen < _AWAY)

    async def answer(self, caller: str, body: bytes) -> bytes:
        """The answer to a question; what is refused is refused in a sentence."""
        try:
            question, behind = HubQuestion.unpack(body)
            if caller.startswith(INVITED) != (question.ask in FOR_INVITED):
                raise FederationError("the hub does not answer this question, or not to you [FE088]")
            asked: Callable[[str, HubQuestion, bytes], Awaitable[bytes]] = getattr(self, f"_{question.ask}")
            return await asked(caller, question, behind)
        except (FederationError, IdentityError) as error:
            self.refused += 1
            return pack_message({"refused": str(error)})
        except StorageError:
            return pack_message({"later": "its disk cannot be used; its own log says why"})

    async def _propose(self, caller: str, question: HubQuestion, behind: bytes) -> bytes:
        async with self._one_at_a_time(caller):
            return pack_message(
                {"study": await asyncio.to_thread(self.proposals.propose, behind, caller, self._clock())}
            )

    async def _proposal(self, caller: str, question: HubQuestion, behind: bytes) -> bytes:
        async with self._one_at_a_time(caller):
            return pack_message({}, await asyncio.to_thread(self.proposals.signed_proposal, question.study, caller))

    @asynccontextmanager
    async def _one_at_a_time(self, caller: str) -> AsyncIterator[None]:
        """Wait for a turn: what takes seconds and much memory is done once at a time, and everybody queues once."""
        async with self._turns.setdefault(caller, asyncio.Lock()), self._large:
            yield

    async def _tell(self, caller: str, question: HubQuestion, statement: bytes) -> bytes:
        """Take in what a member has signed; the answer says how the study stands then."""
        take = {
            "answer": self.proposals.answer,
            "outcome": self.proposals.outcome,
            "withdraw": self.proposals.withdraw,
        }[question.ask]
        return pack_message({"study": await asyncio.to_thread(take, statement, caller, self._clock())})

    _answer = _outcome = _withdraw = _tell

    async def _news(self, caller: str, question: HubQuestion, behind: bytes) -> bytes:
        self._loop = asyncio.get_running_loop()
        until = self._loop.time() + question.wait
        while True:
            self._seen[caller] = monotonic()
            changed = self._changed
            found = await asyncio.to_thread(self.proposals.news, caller, question.since)
            left = until - self._loop.time()
            if found["studies"] or left <= 0:
                return pack_message(found)
            try:
                await asyncio.wait_for(changed.wait(), left)
            except TimeoutError:
                return pack_message(found)

    def _wake(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_here)

    def _wake_here(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _result(self, caller: str, question: HubQuestion, behind: bytes) -> bytes:
        study = question.study
        found = await asyncio.to_thread(self.proposals.study, study, caller)
        if found["state"] != "done":
            raise FederationError(f"the study {found['name']!r} is {found['state']}, so it has no result [FE090]")
        but = () if caller in found["parties"] else (REPORT_FILE,)
        async with self._one_at_a_time(caller):
            files = await asyncio.to_thread(_read_files, self._results / study, but)
        if not files:
            raise FederationError(
                f"the hub has no result of {found['name']!r}: it went to one participant alone, or the hub was lost "
                "before it had it; those who finished have theirs [FE091]"
            )
        signed = await asyncio.to_thread(self.proposals.finished_statements, study, caller)
        return pack_files({"finished": [raw.decode("ascii") for raw in signed]}, files)

    async def _members(self, caller: str, question: HubQuestion, behind: bytes) -> bytes:
        return self._told_members()

    def _told_members(self, **more: Any) -> bytes:
        members = self.proposals.members
        said = {"name": members.name, "address": members.address, "roles": dict(members.roles)}
        return pack_files(said | more, {name: each.pem for name, each in members.certificates.items()})

    async def _notice(self, caller: str, question: HubQuestion, behind: bytes) -> bytes:
        await asyncio.to_thread(self._notice_board.take, behind, caller, self.proposals.members)
        return pack_message({})

    async def _notices(self, caller: str, question: HubQuestion, behind: bytes) -> bytes:
        found = await asyncio.to_thread(self._notice_board.all)
        return pack_message({"notices": [raw.decode("ascii") for raw in found]})

    async def _enrol(self, caller: str, question: HubQuestion, behind: bytes) -> bytes:
        draw = await asyncio.to_thread(self.invitations.enrol, caller, behind, self.proposals.members, self._clock())
        return pack_message({"draw": draw})

    async def _show_draw(self, caller: str, question: HubQuestion, behind: bytes) -> bytes:
        found = await asyncio.to_thread(self.invitations.show_draw, caller, question.draw)
        return pack_message({"state": found.state})

    async def _leave(self, caller: str, question: HubQuestion, behind: bytes) -> bytes:
        found = await asyncio.to_thread(self.invitations.leave, caller)
        return pack_message({"state": found.state})

    async def _enrolment(self, caller: str, question: HubQuestion, behind: bytes) -> bytes:
        found = await asyncio.to_thread(self.invitations.of_caller, caller)
        if found.state == "admitted" and found.name in self.proposals.members.roles:
            return self._told_members(state="admitted")
        return pack_message({"state": "enrolled" if found.state == "admitted" else found.state})


def _read_files(folder: Path, but: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with suppress(reading.UnreadableFile, FileNotFoundError):
        for path in sorted(folder.iterdir()):
            if path.name not in but:
                found[path.name] = reading.read_bytes(path, MOST_ANSWER // 4)
    return found


log = logging.getLogger("colonnade.hub")

_TICK_SECONDS = 0.2
_COUNT_SECONDS = 5.0
_PRUNE_SECONDS = 3600.0
_LINGER_SECONDS = 30.0
"""How long a room stays open after the coordinator has finished: others may still read its last message."""
_RESULT = ("model.json", "model.npz", "privacy.json")
_OVER = "this attempt is over"
_STOPPED = "the study was cancelled"


def steady_clock() -> Callable[[], datetime]:
    """The time of this machine now, and from then on the seconds that have passed.

    Whoever sets the machine's clock back, or forward, moves no deadline until the hub starts again.
    """
    began, at = datetime.now(UTC), monotonic()
    return lambda: began + timedelta(seconds=monotonic() - at)


class HubServer(StandingProcess):
    """The standing hub of one federation."""

    def __init__(self, federation: Path) -> None:
        super().__init__(federation)
        if self.members.hub is None:
            raise FederationError(
                f"{federation} has no [hub] section, which says where the hub keeps its key: add it, "
                'with key = "PATH" [FE058]'
            )
        self.part = self.members.hub
        self.folder = federation.parent / self.part.folder
        self.key = federation.parent / self.part.key
        self._identity = load_identity(self.key, COORDINATOR, self.members.certificates)
        self.clock = steady_clock()
        self.proposals = ProposalStore(self.folder, self.members, self.part)
        self.service = FederationService(self.proposals, self.folder / "results", self.clock)
        self.hub: Hub
        """Once it serves."""
        self._questions = [StandingStudy.of(Study.load(federation.parent / path)) for path in self.part.scores]
        self._children: dict[str, tuple[RunningAttempt, ChildProcess]] = {}
        self._doors: dict[str, Certificate] = {}
        self._lingering: dict[str, float] = {}
        self._untidy = False  # whether an attempt has ended since the last time
        self._forks = ForkServer()
        self.metrics = HubMetrics()
        self.members_changed: Callable[[], object] = lambda: None
        """Is called after the list of members has changed."""

    def counts(self, authorization: str) -> tuple[bytes, str] | None:
        """What ``/metrics`` says; ``None`` to whoever shows a wrong token."""
        known = knows_token(authorization, self.folder / METRICS_TOKEN)
        return None if known is None else self.metrics.page(whole=known)

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until :meth:`stop` is called; only while the folder is ours :meth:`alone`."""
        self._forks.prepare()
        self._recover()
        self.proposals.resume(self.clock())
        self.hub = self._make_hub()
        with self.hub:
            lanes = self.hub.most_lanes(LaneLimits.people)
            said = {"address": self.hub.address, "members": len(self.members.roles), "lanes_of_a_study": lanes}
            log_event(log, logging.INFO, "the hub serves", **said)
            seats = [keep_coordinator(standing, self.key, self.hub) for standing in self._questions]
            if ready is not None:
                ready()
            try:
                while not self._stop.wait(_TICK_SECONDS):
                    self._run_once()
            finally:
                for seat in seats:
                    seat.stop()
                self._end_all()
                self._forks.close()

    def _make_hub(self) -> Hub:
        lanes = LaneLimits(self.part.lanes, self.part.studies_at_once)
        return Hub(
            self._identity,
            self.members.certificates,
            self.part.listen or self.members.address,
            services=[HubService(SERVICE, METHOD, self.service.answer, MOST_QUESTION)],
            rooms={},
            limits=HubLimits(
                connections=self.part.connections,
                studies=self.part.studies,
                bytes_per_second=self.part.bytes_per_second,
                memory=self.part.memory,
                lanes=lanes.all,
            ),
            lanes=lanes,
            health=self.part.health,
        )

    def _run_once(self) -> None:
        try:
            self._reread()
            self._update_invited()
            self.proposals.tick(self.clock())
            self._collect_ended()
            wanted = {running.room: running for running in self.proposals.running_attempts()}
            for room in self._children.keys() - wanted.keys():
                self._end_attempt(room, _OVER)
            for room, running in wanted.items():
                if running.stopping and room in self._children:
                    self._end_attempt(room, _STOPPED)
                elif not running.reported and room not in self._children:
                    self._start_attempt(running)
            for room in [room for room, until in self._lingering.items() if monotonic() > until]:
                del self._lingering[room]
                self.hub.close(room, _OVER)
            if self._untidy:
                self._untidy = False
                release_memory()
            if self._due("count"):
                self._later("count", _COUNT_SECONDS)
                self._count()
            if self._due("prune"):
                self._later("prune", _PRUNE_SECONDS)
                self._prune()
        except (ConnectError, StorageError) as error:  # a full disk, too many rooms: nothing is lost, and it passes
            log_event(log, logging.ERROR, "the hub cannot go on now", reason=str(error))
            self._stop.wait(1.0)

    def _start_attempt(self, running: RunningAttempt) -> None:
        """Open the room of an attempt, and start the coordinator in it."""
        folder = self._attempt(running)
        if running.stopping:
            self._report(running, "stopped")
            return
        try:
            proposal = Proposal.unpack(self.proposals.signed_proposal(running.id, COORDINATOR), self.members)
            study = proposal.write(self.folder / "studies" / running.id, self.members)
            lanes = "lanes" in proposal.asked
            self.hub.open(running.room, running.participants, lanes=lanes)
            at = ["--hub", self.hub.own_address, "--room", running.room, "--attempt", str(running.attempt)]
            command = ["coordinator", str(study), "--key", str(self.key), *at]
            command += ["--out", str(folder), "--pipe", "--while-open", *([] if self.part.dial else ["--no-dial"])]
            workers = self._workers(running) if lanes else 0
            if lanes:
                command += ["--workers", str(workers), "--engine", self.part.compute.engine]
            limits = ProcessLimits(self.part.study_memory, self.part.hours * 3600, file_limit(workers))
            self._children[running.room] = running, ChildProcess.start(command, folder, limits, self._forks)
        except (ConnectError, StorageError):
            self.hub.close(running.room, _OVER)
            raise  # this passes: the next turn tries again
        except ColonnadeError as error:
            log_event(log, logging.ERROR, "an attempt cannot begin", room=running.room, reason=str(error))
            self.hub.close(running.room, _OVER)
            self._report(running, "stopped")
        else:
            log_event(log, logging.INFO, "an attempt began", room=running.room, parties=len(running.participants) - 1)

    def _workers(self, running: RunningAttempt) -> int:
        """How many workers the coordinator of a study in lanes has: one for each lane that is open.

        Some lanes are left for those that begin while others end.
        """
        most = self.hub.most_lanes(len(running.participants))
        return min(self.part.compute.workers or count_cores(), most - most // 8)

    def _collect_ended(self) -> None:
        """See which children have ended, and report how."""
        for room, (running, child) in list(self._children.items()):
            if (status := child.poll()) is not None:
                if self._record_end(running, status) == "finished":
                    self._lingering[room] = monotonic() + _LINGER_SECONDS
                    self.hub.close_lanes(room, _OVER)
                else:
                    self.hub.close(room, _OVER)
                del self._children[room]

    def _end_attempt(self, room: str, why: str) -> None:
        """End an attempt that nobody wants any more."""
        running, child = self._children[room]
        self.hub.close(room, why)
        self._record_end(running, child.stop())
        del self._children[room]

    def _record_end(self, running: RunningAttempt, status: int | None) -> AttemptEnd:
        """Keep what a child has left, and report its outcome; the result first, because done means that it is there."""
        ended, message = find_outcome(self._attempt(running), status)
        if ended == "finished":
            self._publish_result(running)
        log_event(log, logging.INFO, "an attempt ended", room=running.room, ended=ended, reason=message or "")
        self._report(running, ended)
        self._untidy = True
        if self.proposals.study(running.id, COORDINATOR)["state"] in FINAL:
            shutil.rmtree(self.folder / "studies" / running.id, ignore_errors=True)
        return ended

    def _report(self, running: RunningAttempt, ended: AttemptEnd) -> None:
        self.metrics.attempts.labels(ended).inc()
        outcome = AttemptReport(running.id, running.attempt, COORDINATOR, ended, self.clock())
        self.proposals.outcome(outcome.pack(self._identity), COORDINATOR, self.clock())

    def _publish_result(self, running: RunningAttempt) -> None:
        """Copy the result to where members find it; the first one stays."""
        place, source = self.folder / "results" / running.id, self._attempt(running)
        partial = place.with_name(f"{running.id}.partial")
        if place.exists():
            return
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(mode=0o700, parents=True)
            for name in (*_RESULT, *published_files(source), REPORT_FILE):
                if (source / name).exists():
                    shutil.copyfile(source / name, partial / name)
            partial.rename(place)
            writing.sync_folder(place.parent)
        except OSError as error:
            raise StorageError(f"{error.filename or place} cannot be written: {error.strerror} [SO025]") from None

    def _recover(self) -> None:
        """After a restart: report what the children of the former process have left; they end by themselves."""
        for running in self.proposals.running_attempts():
            folder = self._attempt(running)
            if not running.reported and folder.exists():
                wait_for_end(folder)
                self._record_end(running, None)

    def _end_all(self) -> None:
        for _, child in self._children.values():
            child.ask_to_stop()
        for room in list(self._children):
            self._end_attempt(room, "the hub stops")
        self.proposals.tick(self.clock())

    def _count(self) -> None:
        """Say to whoever watches how much goes on."""
        traffic = self.hub.traffic
        self.metrics.members.set(len(self.service.present()))
        self.metrics.open_studies.set(traffic.rooms)
        self.metrics.lanes.set(traffic.lanes)
        self.metrics.count_traffic(traffic.carried, {**traffic.refused, "question": self.service.refused})
        self.metrics.count_studies(self.proposals.file.count_by_state("proposals"))

    def _prune(self) -> None:
        """Delete the run folders of studies that ended long ago; what was published stays."""
        place = self.folder / "attempts"
        ended = self.proposals.find_ended_before(self.clock() - timedelta(days=self.part.keep_days))
        for folder in place.iterdir() if place.exists() else ():
            if folder.name in ended:
                shutil.rmtree(folder, ignore_errors=True)

    def _update_invited(self) -> None:
        """Let those in who are invited, for as long as their invitation is good."""
        doors = self.service.invitations.open_identities(self.clock())
        for name in self._doors.keys() - doors.keys():
            self.hub.dismiss(name)
        for name in doors.keys() - self._doors.keys():
            self.hub.admit(name, doors[name])
        self._doors = doors

    def _reread(self) -> None:
        """Read the list of members anew when it has changed."""
        try:
            if (members := self._changed_members()) is None:
                return
            if members.certificates[COORDINATOR].fingerprint != self._identity.fingerprint:
                raise FederationError("the key of the hub has changed: start it again [FE057]")
        except ColonnadeError as error:
            log_event(log, logging.ERROR, "the members stay as they were", reason=str(error))
            return
        gone = self.members.roles.keys() - members.roles.keys()
        for name in gone:
            self.hub.dismiss(name)
        for name, certificate in members.certificates.items():
            former = self.members.certificates.get(name)
            if former is None or former.fingerprint != certificate.fingerprint:
                self.hub.admit(name, certificate)
        self.members = self.proposals.members = members
        log_event(log, logging.INFO, "the members have changed", members=len(members.roles))
        self.members_changed()

    def _attempt(self, running: RunningAttempt) -> Path:
        return self.folder / "attempts" / running.id / str(running.attempt)
