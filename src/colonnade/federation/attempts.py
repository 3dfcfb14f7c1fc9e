"""The attempts that an agent runs: each a child process with a folder of its own, and what is left of it when it ends.

What an attempt costs is in the party's ledger and nowhere else. A reservation is marked as sent, on disk, before the
first share leaves. So when a process was killed and its entry stands as reserved, nothing had left, and it is given
back; an entry that was sent stays, and the next attempt reserves anew, with fresh masks and fresh noise.

Every party that has finished signs the hashes of the files that are for everybody. A result is taken from the hub only
if all owners have signed it, or else more owners with a seat than may pool, each of whom names those who were lost: one
of them follows the protocol then, and holds that result. What they have not signed is not taken.
"""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

from colonnade.disk import reading
from colonnade.errors import (
    ColonnadeError,
    ConnectError,
    FederationError,
    IdentityError,
    Interrupted,
    LedgerError,
    PeerLost,
    PeerStopped,
    StudyError,
    one_code,
)
from colonnade.federation.agent_store import MODEL, AgentStore, ProposedStudy, attempt_folder
from colonnade.federation.members import FederationMembers, KeyState
from colonnade.federation.monitoring import AgentMetrics, log_event, trace_attempt
from colonnade.federation.processes import (
    ChildProcess,
    ProcessLimits,
    end_by_force,
    file_limit,
    read_last_objects,
    wait_for_end,
)
from colonnade.federation.statements import MOST_FILES, AttemptEnd, AttemptReport, MemberName, Sha256, matches_form
from colonnade.privacy.ledger.approvers import Approver, write_approvers
from colonnade.privacy.observers import Trust
from colonnade.study.engine.base import count_cores
from colonnade.study.fork_server import ForkServer
from colonnade.study.party_config import PartyConfig
from colonnade.study.party_file import bytes_by_way
from colonnade.study.record import read_facts
from colonnade.study.spec import digest_of
from colonnade.tables.partitioning.partitions import remove_stale_dirs
from colonnade.wire import Certificate

ARRAYS = "model.npz"


@dataclass(frozen=True)
class ResultComparison:
    """Which owners have signed the hash of a result, which another one, and whose signature is missing."""

    signed: tuple[str, ...]
    differs: tuple[str, ...]
    missing: tuple[str, ...]
    confirmed: bool
    """Whether so many have signed this result, and nobody another one, that it may be taken from the hub."""
    revoked: tuple[str, ...] = ()
    """Those who signed it, another one or the proposal with a key that was called back since, as others may have."""
    former: Mapping[str, str] = field(default_factory=dict)
    """Of those who signed with an earlier key, which another has replaced since: the pins of it."""

    def __str__(self) -> str:
        said = [
            f"{MODEL} is what {', '.join(self.signed)} signed" if self.signed else f"nobody has signed this {MODEL}"
        ]
        said += [f"{', '.join(self.differs)} signed another one"] if self.differs else []
        if self.missing:
            lost = " (lost, as more owners have signed than may pool)" if self.confirmed else ""
            said.append(f"the signature of {', '.join(self.missing)} is missing{lost}")
        if self.revoked:
            said.append(f"the key of {', '.join(self.revoked)} was called back since, and others may have had it")
        said += [f"{owner} signed with an earlier key, {pins}" for owner, pins in self.former.items()]
        return "; ".join(said)

    def check(self) -> None:
        """Raise an error unless this result may be taken from the hub."""
        if not self.confirmed:
            raise FederationError(
                f"the result that the hub hands out is not taken: {self}. All owners must have signed it or, where one "
                "was lost, more of those with a seat than may pool, and they must name who was lost; those who have "
                "finished have theirs [FE041]"
            )


@dataclass(frozen=True)
class FetchedResult:
    """The files of a result by name, and what the hub says that parties have signed."""

    study: str
    files: Mapping[str, bytes]
    finished: Sequence[bytes]

    def compare(self, trust: Trust, members: FederationMembers, own: str | None = None) -> ResultComparison:
        """Who of a study's owners has signed this result; an error if its files do not belong together.

        ``own`` is the owner that asks, if one does: it lacks the result, so it was lost, and others must have more
        seats than may pool. The coordinator's seat does not count, since the coordinator is the hub's. What was signed
        with a key that was called back or replaced since does not count for an owner, whose own run was of the keys of
        now, and is said to whoever asks.
        """
        found = self._hash(MODEL)
        told = {owner: self._reports(owner, members) for owner in trust.owners if owner != own}
        said = {
            owner: [each for each, _ in reports if state == "current" or not own]
            for owner, (state, reports) in told.items()
        }
        signed = tuple(owner for owner, reports in said.items() if {each.result for each in reports} == {found})
        missing = tuple(owner for owner, reports in said.items() if not reports)
        differs = tuple(owner for owner in said if owner not in (*signed, *missing))
        vouching = [
            owner
            for owner in signed
            if owner in trust.committee and any(set(missing) <= set(each.lost) for each in said[owner])
        ]
        enough = len(vouching) > trust.threshold or not (missing or own)
        if signed and not self._arrays_belong():
            raise FederationError(f"the {ARRAYS} that the hub hands out is not the one that {MODEL} names [FE042]")
        revoked = tuple(owner for owner, (state, _) in told.items() if state == "revoked")
        former = {
            owner: ", ".join(sorted({pin for _, pin in reports}))
            for owner, (state, reports) in told.items()
            if state == "former"
        }
        return ResultComparison(signed, differs, missing, enough and not differs, revoked, former)

    def signed_files(self, compared: ResultComparison, members: FederationMembers) -> dict[str, bytes]:
        """The files that all who have signed this result have signed with it, and none otherwise."""
        named = [each.files for owner in compared.signed for each, _ in self._reports(owner, members)[1]]
        beside = {name for name in self.files if named and all(each.get(name) == self._hash(name) for each in named)}
        return {name: content for name, content in self.files.items() if name in {MODEL, ARRAYS, *beside}}

    def taken_by(self, own: str, attempt: int, compared: ResultComparison, files: Collection[str]) -> AttemptReport:
        """What an owner signs that has taken these files, so that its own signature is there for whoever asks next."""
        beside = {name: self._hash(name) for name in files if name not in (MODEL, ARRAYS)}
        result, now = self._hash(MODEL), datetime.now(UTC)
        return AttemptReport(self.study, attempt, own, "finished", now, result, beside, compared.missing)

    def _reports(self, owner: str, members: FederationMembers) -> tuple[KeyState, list[tuple[AttemptReport, str]]]:
        """What an owner has said of its result with the best key that it used, with that key's pins.

        What cannot be read, or is of somebody else, is as if unsaid.
        """
        found: dict[KeyState, list[tuple[AttemptReport, str]]] = {"current": [], "former": [], "revoked": []}
        for raw in self.finished:
            with suppress(FederationError, IdentityError):
                said, certificate = AttemptReport.unpack_earlier(raw, members)
                if (said.proposal, said.participant) == (self.study, owner) and said.result is not None:
                    found[members.key_state(certificate)].append((said, certificate.fingerprint))
        return next(((state, reports) for state, reports in found.items() if reports), ("current", []))

    def _hash(self, name: str) -> str:
        return sha256(self.files.get(name, b"")).hexdigest()

    def _arrays_belong(self) -> bool:
        """Whether the arrays are those that the model names."""
        try:
            content = reading.parse_json(self.files[MODEL].decode())
        except (UnicodeDecodeError, reading.MalformedFile):
            content = None
        named = content.get("arrays") if isinstance(content, dict) else None
        return bool(named == (self._hash(ARRAYS) if ARRAYS in self.files else None))


_LOST = frozenset(error.exit_code for error in (ConnectError, PeerLost, PeerStopped, Interrupted))


def find_outcome(folder: Path, status: int | None) -> tuple[AttemptEnd, str | None]:
    """How it ended, and a sentence for this participant alone; ``status`` is ``None`` where nobody saw it end.

    It has finished once it holds the result, whatever happened afterwards: there must be no second one. It was lost
    where a peer, the hub or the process itself was lost, or a peer stopped, so that trying again may help; else it
    stopped for a reason of its own, which would be the same the next time.
    """
    code, message = _last_failure(folder)
    if (folder / "model.json").exists():
        return "finished", message
    if status == -signal.SIGXCPU:
        return "stopped", "it took more processor time than a study may have here [CO046]"
    if code is None:
        return "lost", message or "the process ended without a word [CO047]"
    return ("lost" if code in _LOST else "stopped"), message


def result_digest(folder: Path) -> str | None:
    """The hash of a result that is for everybody, as the process noted it once the result was on disk.

    There is none of a result for one party alone: whoever guesses what it says could try the guess against the hash.
    """
    try:
        found = read_facts(folder).get("result")
    except StudyError:
        return None
    return found if matches_form(Sha256, found) else None


def lost_owners(folder: Path) -> tuple[str, ...]:
    """Without whom a run went on, by its record."""
    try:
        return tuple(read_facts(folder).get("lost", ()))
    except StudyError:
        return ()


def published_files(folder: Path) -> list[str]:
    """The files beside the model that a run has written for its readers; only names, and nothing outside its folder."""
    try:
        return [name for name in map(str, read_facts(folder).get("published", ())) if matches_form(MemberName, name)]
    except StudyError:
        return []


def file_digests(folder: Path) -> dict[str, str]:
    """The hashes of the files beside a result that is for everybody: the statement, and what was published."""
    names = ["privacy.json", *published_files(folder)][:MOST_FILES]
    with suppress(StudyError):
        return {name: digest_of(folder / name) for name in names if (folder / name).exists()}
    return {}


def _last_failure(folder: Path) -> tuple[int | None, str | None]:
    """Exit code and sentence of the run's record where it says how it ended; else of the last error it printed."""
    try:
        facts = read_facts(folder)
    except StudyError:
        facts = {}
    if facts.get("status") != "failed":
        facts = next(
            (line for line in reversed([*read_last_objects(folder)]) if {"error", "exit_code"} <= line.keys()), {}
        )
    code, message = facts.get("exit_code"), facts.get("message")
    return code if isinstance(code, int) else None, message if isinstance(message, str) else None


log = logging.getLogger("colonnade.agent")

_LONGEST_EVENTS = 1 << 24


class AttemptRunner:
    """The children of one agent."""

    def __init__(self, store: AgentStore, party_file: Path, metrics: AgentMetrics, forks: ForkServer) -> None:
        self._store, self._party_file, self._metrics, self._forks = store, party_file, metrics, forks
        self._children: dict[tuple[str, int], ChildProcess] = {}
        self._stopped: set[tuple[str, int]] = set()
        self._writing: list[ChildProcess] = []  # of reports

    def __len__(self) -> int:
        return len(self._children)

    @property
    def studies(self) -> set[str]:
        """The ids of the studies that run."""
        return {study for study, _ in self._children}

    def recover(self) -> None:
        """After a restart: note how the attempts ended that an earlier agent has started."""
        for study, number in self._store.running_attempts():
            folder = attempt_folder(self._store.folder, study, number)
            if not wait_for_end(folder):
                end_by_force(folder)
            self._close(study, number, None)

    def start(
        self, entry: ProposedStudy, number: int, room: str, config: PartyConfig, members: FederationMembers
    ) -> bool:
        """Start an attempt of an approved study, if everybody has the key of then; false where it must not be."""
        part = config.agent_section
        if any((entry.folder / "attempts").glob("*/model.json")):
            return False  # there is a result, whatever a store says that was put back from a backup
        if not self._store.start_attempt(entry.id, number, room, 1 + part.retries, timedelta(hours=part.hours)):
            return False
        folder = attempt_folder(self._store.folder, entry.id, number)
        command = ["party", str(entry.study_file), str(self._party_file), "--out", str(folder)]
        command += ["--room", room, "--attempt", str(number), "--approve", entry.digest, "--pipe", "--while-open"]
        known = self._store.approvers(entry.id) or (Approver(entry.answer_by or "", "program", ""),)
        command += ["--approved-by", write_approvers(known), "--asked-by", entry.analyst]
        if (entry.assessment or {}).get("again") is not None:
            command.append("--again")  # whoever said yes has read that it ran before
        workers = config.content.compute.workers or count_cores()
        limits = ProcessLimits(part.memory or None, part.hours * 3600, file_limit(workers))
        try:
            members.check_keys(map(Certificate.load, sorted((entry.study_file.parent / "certs").glob("*.crt"))))
            self._children[entry.id, number] = ChildProcess.start(command, folder, limits, self._forks)
        except ColonnadeError as error:
            self._store.end_attempt(entry.id, number, "stopped", str(error))
            log_event(log, logging.ERROR, "an attempt cannot start", study=entry.name, attempt=number, why=str(error))
        else:
            log_event(log, logging.INFO, "an attempt has begun", study=entry.name, attempt=number)
        return True

    def stop(self, study: str) -> None:
        """End what runs of a study, because somebody wants it to end; it does not run again."""
        for key, child in self._children.items():
            if key[0] == study and key not in self._stopped:
                self._stopped.add(key)
                child.ask_to_stop()

    def collect_ended(self) -> bool:
        """Note the ends of those that have ended; returns whether there were any."""
        ended = {key: status for key, child in self._children.items() if (status := child.poll()) is not None}
        for (study, number), status in ended.items():
            child = self._children.pop((study, number))
            wanted = (study, number) in self._stopped or child.overran
            self._stopped.discard((study, number))
            self._close(study, number, status, wanted=wanted)
        self._writing = [child for child in self._writing if child.poll() is None]
        return bool(ended)

    def stop_all(self) -> None:
        """End all, because the agent ends; each of these attempts is lost, and may be tried again."""
        for child in (*self._children.values(), *self._writing):
            child.ask_to_stop()
        for (study, number), child in list(self._children.items()):
            self._close(study, number, child.stop())
        for child in self._writing:
            child.stop()
        self._children.clear()

    def _close(self, study: str, number: int, status: int | None, *, wanted: bool = False) -> None:
        folder = attempt_folder(self._store.folder, study, number)
        ended, message = find_outcome(folder, status)
        if wanted and ended == "lost":
            ended, message = "stopped", message or "it was ended here [CO044]"
        given_back = False
        with suppress(ColonnadeError):  # the party file may be damaged; what is reserved then stays so, and counts
            config = PartyConfig.load(self._party_file)
            remove_stale_dirs(config.spool)  # where a head that was killed has left its table
            given_back = ended != "finished" and release_reservation(config, folder)
        if given_back:
            message = one_code(f"{message or 'it ended [CO045]'}; nothing had left, so its budget was given back")
        self._store.end_attempt(study, number, ended, message)
        if ended == "finished" and not (folder / "report.html").exists():
            self.write_report(study, folder)
        log_event(log, logging.INFO, "an attempt has ended", proposal=study[:12], attempt=number, ended=ended)
        self._metrics.attempts.labels(ended).inc()
        # One that was killed has no record of its end but ours.
        ours = next(attempt for attempt in self._store.attempts(study) if attempt.number == number)
        run: dict[str, Any] = {"started": ours.started, "ended": ours.ended}
        with suppress(ColonnadeError):
            run |= read_facts(ours.folder)
        trace_attempt(run | {"status": ours.state}, study, number)
        direct, hub = bytes_by_way(run)
        self._metrics.sent.labels("direct").inc(direct)
        self._metrics.sent.labels("hub").inc(hub)

    def write_report(self, study: str, folder: Path) -> None:
        """Have the page written of a result that has none: its run was killed before, or it was taken from the hub."""
        file = self._store.entry(study).study_file
        with suppress(ColonnadeError):  # the result is there all the same
            command = ["_report", str(file), str(self._party_file), "--out", str(folder)]
            self._writing.append(ChildProcess.start(command, folder, forks=self._forks))


def release_reservation(config: PartyConfig, folder: Path) -> bool:
    """Release the reservation of a process that is gone, if its entry says that nothing was sent; returns whether so.

    A process that was killed between its reservation and the note of it leaves an entry that nobody gives back: it
    counts, which is more than was told and never less.
    """
    number = _reserved_entry(folder)
    if number is None or not config.ledger.exists():
        return False
    book = config.open_ledger()
    with suppress(LedgerError):
        for entry in book.entries():
            if entry.id == number and entry.state == "reserved":
                book.release(entry)
                return True
    return False


def _reserved_entry(folder: Path) -> int | None:
    """The ledger's entry of an attempt, by its own notes; ``None`` if it never reserved anything."""
    try:
        with open(folder / "events.jsonl", encoding="utf-8") as file:
            lines = file.read(_LONGEST_EVENTS).splitlines()
    except OSError:
        return None
    found = None
    for line in lines:
        with suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict) and said.get("what") == "budget reserved" and isinstance(said.get("entry"), int):
                found = said["entry"]
    return found
