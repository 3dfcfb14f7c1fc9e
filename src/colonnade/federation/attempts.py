"""The attempts that an agent runs: each a child process with a folder of its own, and what is left of it when it ends.

What an attempt costs is in the party's ledger and nowhere else. A reservation is marked as sent, on disk, before the
first share leaves. So when a process was killed and its entry stands as reserved, nothing had left, and it is given
back; an entry that was sent stays, and the next attempt reserves anew, with fresh masks and fresh noise.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from colonnade.errors import ColonnadeError, LedgerError, one_code
from colonnade.federation import monitoring
from colonnade.federation.agent_store import AgentStore, ProposedStudy, attempt_folder
from colonnade.federation.attempt_result import find_outcome
from colonnade.federation.monitoring import AgentMetrics, log_event
from colonnade.federation.processes import ChildProcess, ProcessLimits, end_by_force, file_limit, wait_for_end
from colonnade.study.engine.processes import count_cores
from colonnade.study.fork_server import ForkServer
from colonnade.study.party_config import PartyConfig
from colonnade.study.party_file import bytes_by_way
from colonnade.study.record import read_facts
from colonnade.tables.partitioning.partitions import remove_stale_dirs

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

    def start(self, entry: ProposedStudy, number: int, room: str, config: PartyConfig) -> bool:
        """Start an attempt of an approved study; false where it must not be."""
        part = config.agent_section
        if any((entry.folder / "attempts").glob("*/model.json")):
            return False  # there is a result, whatever a store says that was put back from a backup
        if not self._store.start_attempt(entry.id, number, room, 1 + part.retries, timedelta(hours=part.hours)):
            return False
        folder = attempt_folder(self._store.folder, entry.id, number)
        command = ["party", str(entry.study_file), str(self._party_file), "--out", str(folder)]
        command += ["--room", room, "--attempt", str(number), "--approve", entry.digest, "--pipe", "--while-open"]
        command += ["--approved-by", entry.answer_by or "the policy"]
        if (entry.assessment or {}).get("again") is not None:
            command.append("--again")  # whoever said yes has read that it ran before
        workers = config.content.compute.workers or count_cores()
        limits = ProcessLimits(part.memory or None, part.hours * 3600, file_limit(workers))
        try:
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
        monitoring.trace_attempt(run | {"status": ours.state}, study, number)
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
