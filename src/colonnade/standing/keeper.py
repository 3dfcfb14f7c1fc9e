"""The hub as a standing process: it relays rooms, keeps the desk, and runs the coordinator's part of every attempt.

All that it must not forget is in the desk and in the folders of attempts, so it may be killed at any moment. Children
end with it; the attempts they were in are lost, and tried again where all parties allow that.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic

from colonnade.disk import writing
from colonnade.errors import ColonnadeError, ConnectError, FederationError, StorageError, StudyError
from colonnade.protocols.roles import COORDINATOR
from colonnade.standing.children import Child, Limits, files_with, wait_for_end
from colonnade.standing.desk import Desk, Running
from colonnade.standing.federation import HubPart, Members
from colonnade.standing.logs import note
from colonnade.standing.metrics import HubMetrics
from colonnade.standing.outcome import outcome_of
from colonnade.standing.proposal import AttemptReport, Ended, Proposal
from colonnade.standing.scores.meeting import keep_seat
from colonnade.standing.scores.settings import Standing
from colonnade.standing.service import REPORT, DeskService
from colonnade.standing.standing_process import StandingProcess
from colonnade.standing.verdict import FINAL
from colonnade.study import Study
from colonnade.study.engine.processes import cores
from colonnade.study.forks import Forks
from colonnade.study.meeting import load_identity
from colonnade.study.record import read_facts
from colonnade.tidy import tidy
from colonnade.wire import Certificate, Hub
from colonnade.wire.quota import HubLimits
from colonnade.wire.rooms import LaneLimits

log = logging.getLogger("colonnade.hub")

_TICK_SECONDS = 0.2
_COUNT_SECONDS = 5.0
_PRUNE_SECONDS = 3600.0
_LINGER_SECONDS = 30.0
"""How long a room stays open after the coordinator has finished: others may still read its last message."""
_RESULT = ("model.json", "model.npz", "privacy.json")
_OVER = "this attempt is over"
_STOPPED = "the study was cancelled"


class Clock:
    """The time of this machine when it was made, and from then on the seconds that have passed.

    Whoever sets the machine's clock back, or forward, moves no deadline until the hub starts again.
    """

    def __init__(self) -> None:
        self._began, self._at = datetime.now(UTC), monotonic()

    def __call__(self) -> datetime:
        """What time it is."""
        return self._began + timedelta(seconds=monotonic() - self._at)


class Keeper(StandingProcess):
    """The standing hub of one federation."""

    def __init__(self, federation: Path) -> None:
        super().__init__(federation)
        self.part = _part(self.members)
        self.folder = federation.parent / self.part.folder
        self.key = federation.parent / self.part.key
        self._identity = load_identity(self.key, COORDINATOR, self.members.certificates)
        self.clock = Clock()
        self.desk = Desk(self.folder, self.members, self.part)
        self.service = DeskService(self.desk, self.folder / "results", self.clock)
        self.hub: Hub
        """Once it serves."""
        self._questions = [Standing.of(Study.load(federation.parent / path)) for path in self.part.scores]
        self._children: dict[str, tuple[Running, Child]] = {}
        self._doors: dict[str, Certificate] = {}
        self._lingering: dict[str, float] = {}
        self._untidy = False  # whether an attempt has ended since the last time
        self._forks = Forks()
        self.metrics = HubMetrics()
        self._counted, self._pruned = 0.0, -_PRUNE_SECONDS

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Serve until :meth:`stop` is called; an error if another hub has this folder."""
        with self.alone():
            self.serve(ready)

    def serve(self, ready: Callable[[], None] | None = None) -> None:
        """As :meth:`run`, where the folder is ours :meth:`alone` already."""
        self._forks.prepare()
        self._recover()
        self.desk.resume(self.clock())
        self.hub = self._made()
        with self.hub:
            lanes = self.hub.most_lanes(LaneLimits.people)
            said = {"address": self.hub.address, "members": len(self.members.roles), "lanes_of_a_study": lanes}
            note(log, logging.INFO, "the hub serves", **said)
            seats = [keep_seat(standing, self.key, self.hub) for standing in self._questions]
            if ready is not None:
                ready()
            try:
                while not self._stop.wait(_TICK_SECONDS):
                    self._turn()
            finally:
                for seat in seats:
                    seat.stop()
                self._end_all()
                self._forks.close()

    def _made(self) -> Hub:
        lanes = LaneLimits(self.part.lanes, self.part.studies_at_once)
        return Hub(
            self._identity,
            self.members.certificates,
            self.part.listen or self.members.address,
            services=[self.service.service],
            rooms={},
            limits=HubLimits(
                connections=self.part.connections,
                rooms=self.part.rooms,
                bytes_per_second=self.part.bytes_per_second,
                memory=self.part.memory,
                lanes=lanes.all,
            ),
            lanes=lanes,
            health=self.part.health,
        )

    def _turn(self) -> None:
        try:
            self._reread()
            self._tend_doors()
            self.desk.tick(self.clock())
            self._look()
            wanted = {running.room: running for running in self.desk.running()}
            for room in self._children.keys() - wanted.keys():
                self._drop(room, _OVER)
            for room, running in wanted.items():
                if running.stopping and room in self._children:
                    self._drop(room, _STOPPED)
                elif not running.reported and room not in self._children:
                    self._begin(running)
            for room in [room for room, until in self._lingering.items() if monotonic() > until]:
                del self._lingering[room]
                self.hub.close(room, _OVER)
            if self._untidy:
                self._untidy = False
                tidy()
            if monotonic() - self._counted > _COUNT_SECONDS:
                self._count()
            if monotonic() - self._pruned > _PRUNE_SECONDS:
                self._prune()
        except (ConnectError, StorageError) as error:  # a full disk, too many rooms: nothing is lost, and it passes
            note(log, logging.ERROR, "the hub cannot go on now", reason=str(error))
            self._stop.wait(1.0)

    def _begin(self, running: Running) -> None:
        """Open the room of an attempt, and start the coordinator in it."""
        folder = self._attempt(running)
        if running.stopping:
            self._report(running, "stopped")
            return
        try:
            proposal = Proposal.unpack(self.desk.packed(running.id, COORDINATOR), self.members)
            study = proposal.write(self.folder / "studies" / running.id, self.members)
            lanes = "lanes" in proposal.asked
            self.hub.open(running.room, running.participants, lanes=lanes)
            at = ["--hub", self.hub.own_address, "--room", running.room, "--attempt", str(running.attempt)]
            command = ["coordinator", str(study), "--key", str(self.key), *at]
            command += ["--out", str(folder), "--pipe", "--while-open", *([] if self.part.dial else ["--no-dial"])]
            workers = self._workers(running) if lanes else 0
            if lanes:
                command += ["--workers", str(workers), "--engine", self.part.compute.engine]
            limits = Limits(self.part.study_memory, self.part.hours * 3600, files_with(workers))
            self._children[running.room] = running, Child.start(command, folder, limits, self._forks)
        except (ConnectError, StorageError):
            self.hub.close(running.room, _OVER)
            raise  # this passes: the next turn tries again
        except ColonnadeError as error:
            note(log, logging.ERROR, "an attempt cannot begin", room=running.room, reason=str(error))
            self.hub.close(running.room, _OVER)
            self._report(running, "stopped")
        else:
            note(log, logging.INFO, "an attempt began", room=running.room, parties=len(running.participants) - 1)

    def _workers(self, running: Running) -> int:
        """How many workers the coordinator of a study in lanes has: one for each lane that is open.

        Some lanes are left for those that begin while others end.
        """
        most = self.hub.most_lanes(len(running.participants))
        return min(self.part.compute.workers or cores(), most - most // 8)

    def _look(self) -> None:
        """See which children have ended, and report how."""
        for room, (running, child) in list(self._children.items()):
            if (status := child.poll()) is not None:
                if self._settle(running, status) == "finished":
                    self._lingering[room] = monotonic() + _LINGER_SECONDS
                    self.hub.close_lanes(room, _OVER)
                else:
                    self.hub.close(room, _OVER)
                del self._children[room]

    def _drop(self, room: str, why: str) -> None:
        """End an attempt that nobody wants any more."""
        running, child = self._children[room]
        self.hub.close(room, why)
        self._settle(running, child.stop())
        del self._children[room]

    def _settle(self, running: Running, status: int | None) -> Ended:
        """Keep what a child has left, and report its outcome; the result first, because done means that it is there."""
        ended, message = outcome_of(self._attempt(running), status)
        if ended == "finished":
            self._keep(running)
        note(log, logging.INFO, "an attempt ended", room=running.room, ended=ended, reason=message or "")
        self._report(running, ended)
        self._untidy = True
        if self.desk.study(running.id, COORDINATOR)["state"] in FINAL:
            shutil.rmtree(self.folder / "studies" / running.id, ignore_errors=True)
        return ended

    def _report(self, running: Running, ended: Ended) -> None:
        self.metrics.attempts.labels(ended).inc()
        outcome = AttemptReport(running.id, running.attempt, COORDINATOR, ended, self.clock())
        self.desk.outcome(outcome.pack(self._identity), COORDINATOR, self.clock())

    def _keep(self, running: Running) -> None:
        """Copy the result to where members find it; the first one stays."""
        place, source = self.folder / "results" / running.id, self._attempt(running)
        partial = place.with_name(f"{running.id}.partial")
        if place.exists():
            return
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(mode=0o700, parents=True)
            published = [name for name in _published(source) if Path(name).name == name]
            for name in (*_RESULT, *published, REPORT):
                if (source / name).exists():
                    shutil.copyfile(source / name, partial / name)
            partial.rename(place)
            writing.sync_folder(place.parent)
        except OSError as error:
            raise StorageError(f"{error.filename or place} cannot be written: {error.strerror} [SO025]") from None

    def _recover(self) -> None:
        """After a restart: report what the children of the former process have left; they end by themselves."""
        for running in self.desk.running():
            folder = self._attempt(running)
            if not running.reported and folder.exists():
                wait_for_end(folder)
                self._settle(running, None)

    def _end_all(self) -> None:
        for _, child in self._children.values():
            child.ask_to_stop()
        for room in list(self._children):
            self._drop(room, "the hub stops")
        self.desk.tick(self.clock())

    def _count(self) -> None:
        """Say to whoever watches how much goes on."""
        self._counted, traffic = monotonic(), self.hub.traffic
        self.metrics.members.set(len(self.service.present()))
        self.metrics.rooms.set(traffic.rooms)
        self.metrics.lanes.set(traffic.lanes)
        self.metrics.count_traffic(traffic.carried, {**traffic.refused, "question": self.service.refused})
        self.metrics.count_studies(self.desk.count())

    def _prune(self) -> None:
        """Delete the run folders of studies that ended long ago; what was published stays."""
        self._pruned, place = monotonic(), self.folder / "attempts"
        ended = self.desk.ended_before(self.clock() - timedelta(days=self.part.keep_days))
        for folder in place.iterdir() if place.exists() else ():
            if folder.name in ended:
                shutil.rmtree(folder, ignore_errors=True)

    def _tend_doors(self) -> None:
        """Let those in who are invited, for as long as their invitation is good."""
        doors = self.service.invitations.doors(self.clock())
        for name in self._doors.keys() - doors.keys():
            self.hub.dismiss(name)
        for name in doors.keys() - self._doors.keys():
            self.hub.admit(name, doors[name])
        self._doors = doors

    def _reread(self) -> None:
        """Read the list of members anew when it has changed."""
        if not self._members_changed():
            return
        try:
            members = Members.load(self._federation)
            if members.certificates[COORDINATOR].fingerprint != self._identity.fingerprint:
                raise FederationError("the key of the hub has changed: start it again [FE057]")
        except ColonnadeError as error:
            note(log, logging.ERROR, "the members stay as they were", reason=str(error))
            return
        for name in self.members.roles.keys() - members.roles.keys():
            self.hub.dismiss(name)
        for name, certificate in members.certificates.items():
            former = self.members.certificates.get(name)
            if former is None or former.fingerprint != certificate.fingerprint:
                self.hub.admit(name, certificate)
        self.members = self.desk.members = members
        note(log, logging.INFO, "the members have changed", members=len(members.roles))

    def _attempt(self, running: Running) -> Path:
        return self.folder / "attempts" / running.id / str(running.attempt)


def _part(members: Members) -> HubPart:
    if members.hub is None:
        raise FederationError(
            f"{members.path} has no [hub] section, which says where the hub keeps its key: add it, "
            'with key = "PATH" [FE058]'
        )
    return members.hub


def _published(folder: Path) -> list[str]:
    """The files beside the model that a run has written for its readers."""
    try:
        return list(read_facts(folder).get("published", ()))
    except StudyError:
        return []
