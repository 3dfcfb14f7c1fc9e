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
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

from colonnade.disk import writing
from colonnade.errors import ColonnadeError, ConnectError, FederationError, ProposalError, StorageError
from colonnade.federation import agent_store, checks
from colonnade.federation.agent_store import FINAL, MODEL, AgentStore, ProposedStudy, attempt_folder
from colonnade.federation.attempts import AttemptRunner, file_digests, lost_owners, result_digest
from colonnade.federation.hub_protocol import FederationClient
from colonnade.federation.members import OFFERED, FederationMembers, find_new_members
from colonnade.federation.monitoring import AgentMetrics, log_event, trace_check
from colonnade.federation.notices import own_list, take_notices
from colonnade.federation.processes import ChildProcess, ProcessLimits, StandingProcess
from colonnade.federation.statements import (
    LONGEST_REASON,
    AttemptReport,
    Proposal,
    ProposalAnswer,
    SignedStatement,
    Withdrawal,
)
from colonnade.federation.store_file import timestamp_now
from colonnade.federation.token_file import private_token, shows_token
from colonnade.memory import release_memory
from colonnade.study.connect import load_identity
from colonnade.study.fork_server import ForkServer
from colonnade.study.party_config import PartyConfig
from colonnade.study.spec import Study
from colonnade.tables.partitioning.partitions import remove_stale_dirs
from colonnade.wire import Identity

log = logging.getLogger("colonnade.agent")

Fetched = Literal["proposal", "result", "members"]
FetchRequest = tuple[Fetched, str]


class SyncEvent(NamedTuple):
    """A proposal was taken in, a result was taken from the hub, or it names members whom nobody here has accepted."""

    what: Fetched
    study: str = ""
    names: frozenset[str] = frozenset()


_TICK_SECONDS = 0.2
_PAUSE_SECONDS = 1.0
_LAST_WORDS_SECONDS = 10.0
_MOST_WANTED = 4096
_RESULT_PAUSES = (1.0, 5.0, 30.0, 300.0, 3600.0)


class HubSync(threading.Thread):
    """The way to the hub and back, for one agent; ``report`` hears what came of it, or that the hub is away."""

    def __init__(
        self,
        store: AgentStore,
        identity: Identity,
        members: Callable[[], FederationMembers],
        config: Callable[[], PartyConfig],
        report: Callable[[SyncEvent | ConnectError], None],
    ) -> None:
        super().__init__(name="hub-sync", daemon=True)
        self._store, self._identity, self._members, self._config = store, identity, members, config
        self._report = report
        self._wanted: queue.Queue[FetchRequest] = queue.Queue(_MOST_WANTED)
        self._tries: Counter[str] = Counter()  # of results that could not be had
        self._later: dict[str, float] = {}  # when they are asked for again
        self._over = threading.Event()
        self._failure: BaseException | None = None

    def request(self, *wanted: FetchRequest) -> None:
        """Have something fetched when its turn comes; what is too much is wanted again when the hub names it again."""
        for each in wanted:
            with suppress(queue.Full):
                self._wanted.put_nowait(each)

    def raise_failure(self) -> None:
        """Raise the error that has ended this thread, if one has: of a full disk, say."""
        if self._failure is not None:
            raise self._failure

    def finish(self) -> None:
        """Tell the hub what is left to tell, unless it takes too long: then it is told after the next start."""
        self._over.set()
        self.join(_LAST_WORDS_SECONDS)

    def run(self) -> None:
        """Fetch and tell until it is over."""
        try:
            while not self._over.is_set():
                try:
                    self._send_unsent()
                    self._fetch()
                    for study in [study for study, due in self._later.items() if due <= time.monotonic()]:
                        del self._later[study]
                        self.request(("result", study))
                except ConnectError as error:
                    self._report(error)
                    self._over.wait(_PAUSE_SECONDS)
                except (ProposalError, StorageError) as error:  # a full disk: it passes
                    log_event(log, logging.ERROR, "nothing can be fetched or told now", why=str(error))
                    self._over.wait(_PAUSE_SECONDS)
            with suppress(ConnectError, ProposalError, StorageError):
                self._send_unsent()
        except BaseException as error:  # the agent's loop raises it
            self._failure = error

    def _fetch(self) -> None:
        try:
            what, study = self._wanted.get(timeout=_TICK_SECONDS)
        except queue.Empty:
            return
        try:
            if what == "proposal":
                self._fetch_proposal(study)
            elif what == "result":
                self._fetch_result(study)
            else:
                self._compare_members()
        except (ConnectError, ProposalError, StorageError):
            self.request((what, study))
            raise

    def _line(self) -> FederationClient:
        return FederationClient(self._members(), self._identity)

    def _fetch_proposal(self, study: str) -> None:
        """Take a new proposal in; one that is not what it should be is never answered, since nobody signed it so."""
        if self._store.known_ids([study]):
            return
        members = self._members()
        try:
            members.check_listed(datetime.now(UTC))
            with self._line() as line:
                raw = line.proposal(study)
            proposal = Proposal.unpack(raw, members)
            if proposal.id != study or self._config().name not in proposal.parties:
                raise FederationError("the hub sent another proposal than the one asked for [FE031]")
            proposal.check_time(datetime.now(UTC))
            agent_store.make_room(self._store, proposal)
            proposal.write(self._store.folder / "studies" / study / "study", members)
        except (ConnectError, ProposalError, StorageError):
            raise
        except ColonnadeError as error:
            log_event(log, logging.WARNING, "a proposal is not taken in", proposal=study[:12], why=str(error))
        else:
            entry = self._store.receive(proposal)
            log_event(
                log,
                logging.INFO,
                "a study is proposed",
                study=entry.name,
                analyst=entry.analyst,
                proposal=entry.id[:12],
            )
            self._report(SyncEvent("proposal", study))

    def _fetch_result(self, study: str) -> None:
        """Where our own process has no result, take the one that the hub keeps, if all others have signed it.

        The hub calls a study done before all parties have told it that they have finished, so it is asked again.
        We sign what we take, before it is written, since whoever asks for it later needs the names of all.
        """
        entry = self._store.entry(study)
        own = [attempt.state for attempt in self._store.attempts(study)]
        if not own or "finished" in own or entry.state != "done" or (entry.folder / "result" / MODEL).exists():
            return
        if "running" in own:
            self._want_later(study)
            return
        name, members = self._config().name, self._members()
        try:
            with self._line() as line:
                found = line.result(study)
                compared = found.compare(Study.load(entry.study_file).roster.trust, members, name)
                compared.check()
                files = found.signed_files(compared, members)
                self._send(line, found.taken_by(name, entry.attempt, compared, files))
        except ConnectError:
            raise
        except ColonnadeError as error:
            log_event(log, logging.WARNING, "the hub has no result for us", study=entry.name, why=str(error))
            self._want_later(study)
            return
        folder = entry.folder / "result"
        names = sorted(files, key=lambda name: name == MODEL)  # the last one, since it says that all are there
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            writing.write_files({folder / Path(name).name: files[name] for name in names}, private=True)
        except OSError as error:
            raise StorageError(f"{error.filename or folder} cannot be written: {error.strerror} [SO023]") from None
        self._report(SyncEvent("result", study))
        log_event(log, logging.INFO, "the result was taken from the hub", study=entry.name, how=str(compared))

    def _want_later(self, study: str) -> None:
        self._tries[study] += 1
        if self._tries[study] <= len(_RESULT_PAUSES):
            self._later[study] = time.monotonic() + _RESULT_PAUSES[self._tries[study] - 1]

    def _compare_members(self) -> None:
        """See whom the hub names that nobody here has accepted; they stay strangers until a person says otherwise."""
        try:
            with self._line() as line:
                offered, now = line.members(), datetime.now(UTC)
                if (said := own_list(self._members(), self._config().name, now)) is not None:
                    line.give_notice(said)
                take_notices(self._members().path, line.notices(), now)
        except ConnectError:
            raise
        except ColonnadeError as error:
            log_event(log, logging.WARNING, "the hub's list of members cannot be read", why=str(error))
            return
        offered.save(self._store.folder / OFFERED / "FEDERATION.toml")
        pending = find_new_members(self._members(), offered)
        self._report(SyncEvent("members", names=frozenset(newcomer.name for newcomer in pending)))

    # What is told

    def _send_unsent(self) -> None:
        """Tell the hub what it does not know yet; a ConnectError if it cannot be reached."""
        store, name = self._store, self._config().name
        answers, withdrawals, outcomes = store.unsent_answers(), store.unsent_withdrawals(), store.unsent_outcomes()
        if not (answers or withdrawals or outcomes):
            return
        with self._line() as line:
            for entry in answers:
                answer = self._answer(entry)
                for each in dict.fromkeys((replace(answer, why=""), answer)):  # its words are for the analyst alone
                    self._send(line, each)
                store.mark_sent("answer", entry.id)
            for entry in withdrawals:
                self._send(line, Withdrawal(entry.id, name, datetime.now(UTC)))
                store.mark_sent("withdrawal", entry.id)
            for study, number, state in outcomes:
                place = attempt_folder(store.folder, study, number)
                result = result_digest(place) if state == "finished" else None
                files, lost = ({}, ()) if result is None else (file_digests(place), lost_owners(place))
                self._send(line, AttemptReport(study, number, name, state, datetime.now(UTC), result, files, lost))
                store.mark_sent("outcome", study, number)

    def _answer(self, entry: ProposedStudy) -> ProposalAnswer:
        """A yes, or a no: with the words that a person wrote for the analyst, and a plain one where the policy says it.

        Why the policy refuses may tell what is in our ledger or our party file.
        """
        yes = entry.state not in ("refused", "declined")
        why = (entry.why or "")[:LONGEST_REASON] if entry.state == "declined" else ""
        retries = self._config().agent_section.retries if yes else 0
        return ProposalAnswer(entry.id, self._config().name, yes, why, retries, datetime.now(UTC))

    def _send(self, line: FederationClient, what: SignedStatement) -> None:
        """Tell the hub something; if it will not have it, it has decided otherwise meanwhile, and its news say so."""
        try:
            line.tell(what)
        except ConnectError:
            raise
        except ColonnadeError as error:
            log_event(log, logging.WARNING, "the hub does not take what we say", why=str(error))


BY_POLICY = "the policy"
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

    def counts(self, authorization: str) -> tuple[bytes, str] | None:
        """What ``/metrics`` says, with studies as the store has them now; ``None`` to whoever shows a wrong token.

        What is left of caps, as the ledger has it now, is for those who show the token in ``metrics.token``.
        """
        known = shows_token(authorization, private_token(self.folder / "metrics.token"))
        if authorization and not known:
            return None
        with self._counting:
            self.metrics.count_studies(self.store.file.count_by_state("studies"))
            with suppress(ColonnadeError):  # a party file or a ledger that cannot be read: the figures stay
                self.metrics.show_left(PartyConfig.load(self._party_file).remaining() if known else ())
            return self.metrics.whole_page() if known else self.metrics.page()

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
            self.store.record_hub_state(study, told["answers"], state)
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
                trace_check(study, seconds, self.store.entry(study).state)
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
        said_no, tries = self.store.said_before(self.store.entry(study).digest)
        notes = [
            "A person here said no to this study before, in this or another proposal." if said_no else "",
            f"Attempts at this study that have no result, in all its proposals: {tries}." if tries else "",
        ]
        found = {**found, "earlier": " ".join(filter(None, notes)) or None}
        if found["refused"] is not None:
            self.store.record_assessment(study, found, "refused", BY_POLICY)
        elif approval == "auto-within-budget" and not said_no and tries <= self.config.agent_section.retries:
            by = self.config.policy_approver
            self.store.record_assessment(study, found, "approved", str(by), [by])
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
            if entry.state in ("approved", "running") and number > entry.attempt and self._may_begin(entry):
                self._attempts.start(entry, number, room, self.config)

    def _may_begin(self, entry: ProposedStudy) -> bool:
        """Whether everybody in a study is still a member here, and we have heard lately whose key is no good."""
        with suppress(FederationError):
            self.members.check_listed(datetime.now(UTC))
            return {*entry.answers, entry.analyst} <= self.members.roles.keys()
        return False

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
