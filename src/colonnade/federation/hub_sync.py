"""What an agent does at the hub: it fetches proposals and results, and tells what the hub does not know yet.

All of it happens in a thread of its own. A hub may be slow, by mischief or by accident, and whoever looks after the
studies that run, their limits and a person's wish to end them must never wait for it.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from colonnade.disk import reading, writing
from colonnade.errors import ColonnadeError, ConnectError, FederationError, ProposalError, StorageError
from colonnade.federation import agent_store, members as newcomers
from colonnade.federation.agent_store import AgentStore, ProposedStudy, attempt_folder
from colonnade.federation.attempt_result import MODEL, file_digests, result_digest
from colonnade.federation.hub_protocol import FederationClient
from colonnade.federation.members import FederationMembers
from colonnade.federation.monitoring import log_event
from colonnade.federation.statements import (
    LONGEST_REASON,
    AttemptReport,
    Proposal,
    ProposalAnswer,
    SignedStatement,
    Withdrawal,
)
from colonnade.study.party_config import PartyConfig
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


class HubSync:
    """The way to the hub and back, for one agent; ``report`` hears what came of it, or that the hub is away."""

    def __init__(
        self,
        store: AgentStore,
        identity: Identity,
        members: Callable[[], FederationMembers],
        config: Callable[[], PartyConfig],
        report: Callable[[SyncEvent | ConnectError], None],
    ) -> None:
        self._store, self._identity, self._members, self._config = store, identity, members, config
        self._report = report
        self._wanted: queue.Queue[FetchRequest] = queue.Queue(_MOST_WANTED)
        self._tries: Counter[str] = Counter()  # of results that could not be had
        self._later: dict[str, float] = {}  # when they are asked for again
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="hub-sync", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

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
        self._thread.join(_LAST_WORDS_SECONDS)

    def _run(self) -> None:
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
        """Where our own process has no result, take the one that the hub keeps, if others have signed it.

        The hub calls a study done before all parties have told it that they have finished, so it is asked again.
        """
        entry = self._store.entry(study)
        own = [attempt.state for attempt in self._store.attempts(study)]
        if not own or "finished" in own or (entry.folder / "result" / MODEL).exists():
            return
        if "running" in own:
            self._want_later(study)
            return
        try:
            with self._line() as line:
                found = line.result(study)
            others = _other_parties(entry, self._config().name)
            compared = found.compare(others, self._members())
            compared.check()
            files = found.signed_files(others, self._members())
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
                offered = line.members()
        except ConnectError:
            raise
        except ColonnadeError as error:
            log_event(log, logging.WARNING, "the hub's list of members cannot be read", why=str(error))
            return
        newcomers.save_offered_members(self._store.folder, offered)
        pending = newcomers.find_new_members(self._members(), offered)
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
                self._send(line, self._answer(entry))
                store.mark_sent("answer", entry.id)
            for entry in withdrawals:
                self._send(line, Withdrawal(entry.id, name, datetime.now(UTC)))
                store.mark_sent("withdrawal", entry.id)
            for study, number, state in outcomes:
                place = attempt_folder(store.folder, study, number)
                result = result_digest(place) if state == "finished" else None
                files = {} if result is None else file_digests(place)
                self._send(line, AttemptReport(study, number, name, state, datetime.now(UTC), result, files))
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


def _other_parties(entry: ProposedStudy, name: str) -> list[str]:
    """The other parties of a study, by the file that its analyst signed; the hub may say otherwise."""
    try:
        return [party for party in reading.read_toml(entry.study_file)["parties"] if party != name]
    except (reading.UnreadableFile, KeyError, TypeError):
        raise FederationError("the study file of this proposal cannot be read any more [FE032]") from None
