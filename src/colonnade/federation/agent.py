"""A party's agent: it stays connected to the hub, has proposals checked, asks people or the policy, and runs studies.

One thread listens for news, one fetches from the hub and tells it what it does not know, and the main one does
everything else, a little at a time: it never waits for the hub. All that must not be forgotten is in the store, so the
agent may be killed at any moment. It trusts the hub with nothing but the carrying of messages: proposals, answers and
outcomes are signed, and it runs only what its own person or policy has approved, by digest.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from colonnade.errors import ColonnadeError, FederationError, ProposalError, StorageError
from colonnade.federation import agent_store, checks, monitoring
from colonnade.federation.agent_store import FINAL, AgentStore, ProposedStudy
from colonnade.federation.attempts import AttemptRunner
from colonnade.federation.hub_protocol import FederationClient
from colonnade.federation.hub_sync import HubSync, SyncEvent
from colonnade.federation.monitoring import AgentMetrics, log_event
from colonnade.federation.processes import ChildProcess, ProcessLimits, StandingProcess
from colonnade.federation.store_file import timestamp_now
from colonnade.memory import release_memory
from colonnade.study.connect import load_identity
from colonnade.study.fork_server import ForkServer
from colonnade.study.party_config import PartyConfig
from colonnade.tables.partitioning.partitions import remove_stale_dirs

log = logging.getLogger("colonnade.agent")

BY_POLICY = "the policy"
_TICK_SECONDS = 0.2
_NEWS_SECONDS = 25.0
_NEWS_AHEAD = 4
_MOST_AHEAD = 1000
_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0)
_LATER_SECONDS = 10.0
_DISK_SECONDS = 1.0
_PRUNE_SECONDS = 60.0
_MEMBERS_SECONDS = 300.0
_CHECKS_AT_ONCE = 1
_CHECK_SECONDS = 600.0
_CHECKS_FAILED = 3


class Agent(StandingProcess):
    """The standing process of one party."""

    def __init__(self, party_file: Path) -> None:
        self._party_file = party_file
        self.metrics, self._counting = AgentMetrics(), threading.Lock()
        self.config = PartyConfig.load(party_file)
        part = self.config.agent_section
        super().__init__(party_file.parent / part.federation)
        self.folder = party_file.parent / part.folder
        if self.config.name not in self.members.parties:
            raise FederationError(f"{self.config.name} is no party of the federation in {self._federation} [FE018]")
        self._identity = load_identity(self.config.key, self.config.name, self.members.certificates)
        self.store = AgentStore(self.folder)
        self._forks = ForkServer()
        self._attempts = AttemptRunner(self.store, party_file, self.metrics, self._forks)
        self._checks: dict[str, ChildProcess] = {}
        self._failed: Counter[str] = Counter()  # checks that came to no verdict, by study
        self._news: queue.Queue[Mapping[str, Any] | ColonnadeError | SyncEvent] = queue.Queue(_NEWS_AHEAD)
        self._sync = HubSync(self.store, self._identity, lambda: self.members, lambda: self.config, self._enqueue)
        self._ahead: dict[str, Mapping[str, Any]] = {}  # what the hub says of studies that we do not have, or not yet
        self._running: dict[str, tuple[int, str]] = {}  # what the hub says that runs: attempt and room
        self._pending: frozenset[str] = frozenset()
        self._since = timestamp_now()

    def counts(self) -> tuple[bytes, str]:
        """What ``/metrics`` says, with studies and what is left of caps as the store and the ledger have them now."""
        with self._counting:
            self.metrics.count_studies(self.store.file.count_by_state("studies"))
            with suppress(ColonnadeError):  # a party file or a ledger that cannot be read: the figures stay
                self.metrics.show_left(PartyConfig.load(self._party_file).remaining())
            return self.metrics.page()

    def run(self, ready: Callable[[], None] | None = None) -> None:
        """Work until :meth:`stop` is called; only while the folder is ours :meth:`alone`."""
        self._set_connected(False, "not tried yet")
        self._forks.prepare()
        self._attempts.recover()
        listener = threading.Thread(target=self._listen, name="news", daemon=True)
        listener.start()
        self._sync.start()
        if ready is not None:
            ready()
        try:
            while not self._stop.is_set():
                try:
                    self._run_once()
                except (ProposalError, StorageError) as error:  # a full disk: nothing is lost, and it passes
                    log_event(log, logging.ERROR, "the agent cannot go on now", why=str(error))
                    self._stop.wait(_DISK_SECONDS)
        finally:
            self._attempts.stop_all()
            for child in self._checks.values():
                child.stop()
            self._forks.close()
            self._sync.finish()
            self.store.save_fact("status", "{}")

    def _run_once(self) -> None:
        """Do what is to be done now, and wait a moment."""
        with suppress(queue.Empty):
            said = self._news.get(timeout=_TICK_SECONDS)
            if isinstance(said, ColonnadeError):
                self._set_connected(False, str(said))
            elif not isinstance(said, SyncEvent):
                self._set_connected(True, None)
                self._process_news(said)
            elif said.what == "members":
                self._note_new_members(said.names)
            elif said.what == "result":
                self._attempts.write_report(said.study, self.store.entry(said.study).folder / "result")
            elif (told := self._ahead.get(said.study)) is not None:
                self._process_news({"studies": [told]})
        self._sync.raise_failure()
        self._reread()
        self._expire()
        self._check()
        if self._attempts.collect_ended():
            release_memory()
        self._end_what_is_over()
        self._start_attempts()
        if self._due("members") and self.store.status().connected:
            self._later("members", _MEMBERS_SECONDS)
            self._sync.request(("members", ""))

    def _expire(self) -> None:
        if self._due("expire"):
            self._later("expire", 1.0)
            for name in self.store.expire(timedelta(hours=self.config.agent_section.hours)):
                log_event(log, logging.INFO, "the time of a proposal is over", study=name)
        if self._due("prune"):
            self._later("prune", _PRUNE_SECONDS)
            if gone := agent_store.prune(self.store, timedelta(days=self.config.agent_section.keep_days)):
                log_event(log, logging.INFO, "files of studies that ended without a result are gone", studies=gone)
            remove_stale_dirs(
                self.config.spool
            )  # a worker may have gone on writing to a table after its head was killed

    # What the hub says

    def _listen(self) -> None:
        """Ask the hub for news, one question after the other, and put what it says into the queue."""
        failures = 0
        since = 0  # everything that concerns us, once after each start
        while not self._stop.is_set():
            try:
                with FederationClient(self.members, self._identity) as line:
                    wait = 0.0  # the first answer comes at once, and says that we are connected
                    while not self._stop.is_set():
                        said = line.news(since, wait=wait)
                        since, failures, wait = said["serial"], 0, _NEWS_SECONDS
                        self._enqueue(said)
            except ColonnadeError as error:
                self._enqueue(error)
                self._stop.wait(_PAUSES[min(failures, len(_PAUSES) - 1)])
                failures += 1
                since = 0

    def _enqueue(self, said: Mapping[str, Any] | ColonnadeError | SyncEvent) -> None:
        """Hand something to the main thread; a hub that talks faster than we listen has to wait."""
        while not self._stop.is_set():
            with suppress(queue.Full):
                self._news.put(said, timeout=_TICK_SECONDS)
                return

    def _process_news(self, said: Mapping[str, Any]) -> None:
        known = self.store.known_ids(told["id"] for told in said["studies"])
        for told in said["studies"]:
            study, state = told["id"], told["state"]
            if study not in known:
                if state == "open":
                    self._sync.request(("proposal", study))
                self._ahead[study] = told
                if len(self._ahead) > _MOST_AHEAD:
                    del self._ahead[next(iter(self._ahead))]
                continue
            self._ahead.pop(study, None)
            self.store.resend_forgotten(study, self.config.name, told)
            self.store.record_hub_state(study, told["answers"], state, told.get("ended"))
            if state == "running" and told.get("room") == f"{study}.{told['attempt']}":
                self._running[study] = (told["attempt"], told["room"])
            else:
                self._running.pop(study, None)
            if state == "done":
                self._sync.request(("result", study))

    # What is checked

    def _check(self) -> None:
        """Start checks of new proposals, and keep what those have found that have ended."""
        for study, child in list(self._checks.items()):
            if (status := child.poll()) is not None:
                del self._checks[study]
                if status != 0 and not child.overran and not checks.read_verdict(child.folder):
                    self._failed[study] += 1
                    if self._failed[study] < _CHECKS_FAILED:  # the machine had a bad moment, or is being upgraded:
                        self._later("check", _LATER_SECONDS)  # that says nothing about the study
                        continue
                self.metrics.assessment_seconds.observe(seconds := child.seconds)
                self._decide(study, checks.read_check(child.folder))
                monitoring.trace_check(study, seconds, self.store.entry(study).state)
        waiting = [entry for entry in self.store.entries(["checking"]) if entry.id not in self._checks]
        for entry in reversed(waiting):  # the oldest first
            if len(self._checks) >= _CHECKS_AT_ONCE or not self._due("check"):
                return
            self._begin_check(entry)

    def _begin_check(self, entry: ProposedStudy) -> None:
        try:
            self.config = PartyConfig.load(self._party_file)
            part = self.config.agent_section
            folder = entry.folder / "check"
            with suppress(FileNotFoundError):
                (folder / "output.jsonl").unlink()
            limits = ProcessLimits(part.memory or None, _CHECK_SECONDS)
            said = {"name": entry.name, "digest": entry.digest}
            self._checks[entry.id] = checks.start_check(
                entry.study_file, self._party_file, said, folder, limits, self._forks
            )
        except ColonnadeError as error:
            log_event(log, logging.ERROR, "a proposal cannot be checked now", study=entry.name, why=str(error))
            self._later("check", _LATER_SECONDS)

    def _decide(self, study: str, found: Mapping[str, Any]) -> None:
        approval = self.config.approval
        if found["refused"] is not None:
            self.store.record_assessment(study, found, "refused", BY_POLICY)
        elif approval == "auto-within-budget":
            self.store.record_assessment(study, found, "approved", f"{BY_POLICY}, within its budget")
        else:
            self.store.record_assessment(study, found, "waiting", None)
        entry = self.store.entry(study)
        log_event(log, logging.INFO, "a proposal was checked", study=entry.name, state=entry.state)

    # What runs

    def _start_attempts(self) -> None:
        """Start the attempts that the hub has opened a room for, as many at once as the party file says."""
        for study, (number, room) in list(self._running.items()):
            if len(self._attempts) >= self.config.agent_section.studies_at_once:
                return
            if study in self._attempts.studies:
                continue
            entry = self.store.entry(study)
            if entry.state in ("approved", "running") and number > entry.attempt:
                self._attempts.start(entry, number, room, self.config)

    def _end_what_is_over(self) -> None:
        """Stop what somebody has ended; where there is a result, our own process is about to have it too."""
        for study in self._attempts.studies:
            if (state := self.store.entry(study).state) in FINAL and state != "done":
                self._attempts.stop(study)

    # How it stands

    def _set_connected(self, is_so: bool, reason: str | None) -> None:
        status = self.store.status()
        if (status.connected, status.reason, status.pid) == (is_so, reason, os.getpid()):
            return
        if status.connected != is_so or status.pid != os.getpid():
            self._since = timestamp_now()
        if is_so != status.connected:
            log_event(
                log, logging.INFO, "connected" if is_so else "not connected", hub=self.members.address, why=reason
            )
        self.metrics.connected.set(int(is_so))
        self.store.save_status(is_so, self._since, self.members.address, reason, self._pending)

    def _reread(self) -> None:
        """Read the list of members anew when it has changed; a person has accepted somebody."""
        try:
            if (members := self._changed_members()) is None:
                return
        except ColonnadeError as error:
            log_event(log, logging.ERROR, "the members stay as they were", why=str(error))
            return
        self.members = members
        self._later("members", 0.0)
        for study, told in self._ahead.items():  # what was left out may be of somebody who is a member now
            if told["state"] == "open":
                self._sync.request(("proposal", study))

    def _note_new_members(self, pending: frozenset[str]) -> None:
        if pending != self._pending:
            self._pending = pending
            self.store.save_status(True, self._since, self.members.address, None, pending)
