"""What a party's console may ask: its studies, prices, ledger, table, members and checks.

Tables are read in processes of their own, with limits of memory and time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError as NotYet
from contextlib import suppress
from pathlib import Path
from typing import Any

from colonnade.console import survey_child
from colonnade.console.privacy_explainer import CapForecast, StudyPrices
from colonnade.console.survey_child import MEMORY, SECONDS
from colonnade.disk import reading
from colonnade.errors import ColonnadeError, DataError, FederationError, ProposalError, one_code
from colonnade.federation import members as newcomers
from colonnade.federation.agent_store import AgentStore, AttemptRecord, ProposedStudy, State
from colonnade.federation.checks import examine_member
from colonnade.federation.comparison import WordComparison, WordTries, name_subject
from colonnade.federation.members import FederationMembers, MemberIdentity
from colonnade.federation.processes import OUTPUT, file_stamp
from colonnade.federation.scores.service import ScoresService
from colonnade.privacy import Ledger, Statement
from colonnade.privacy.statement import log_odds_by_row
from colonnade.study.doctor import DoctorCheck, examine
from colonnade.study.party_config import PartyConfig
from colonnade.study.record import read_facts
from colonnade.tables import Schema
from colonnade.tables.profiling import TableProfile
from colonnade.tables.sources.databases import data_to_plain

_MAX_KEPT = 8
_SHOWN_SECONDS = 600.0
_WAIT_SECONDS = 8.0


def survey_in_child(config: PartyConfig, schema_file: Path) -> TableProfile:
    """Read the table in a process of its own, with limits of memory and time."""
    own = config.content
    also = [*([own.id] if own.id else []), *(part.column for part in own.keys.values())]
    asked = {"data": data_to_plain(config.data), "schema": str(schema_file.resolve()), "also": also}
    return TableProfile.from_dict(_ask_child(asked | {"written": own.text_format.stated}))


def forecast_in_child(study_file: Path, party_file: Path) -> dict[str, Any]:
    """How many rows the table has, and what follows for a study, from a process of its own with the same limits."""
    return _ask_child({"study": str(study_file), "party": str(party_file)})


def _ask_child(asked: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", survey_child.__name__]
    given = json.dumps(asked).encode()
    try:
        ended = subprocess.run(command, input=given, capture_output=True, timeout=SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise DataError(f"the table was not read within {SECONDS} seconds, so it is not drawn here [DA048]") from None
    try:
        said = json.loads(ended.stdout)
    except ValueError:
        raise DataError(
            f"the table could not be read within {MEMORY >> 30} GiB of memory, so it is not drawn [DA049]"
        ) from None
    if "error" in said:
        raise DataError(said["error"])
    return dict(said)


WAITING: tuple[State, ...] = ("checking", "waiting")
UNDER_WAY: tuple[State, ...] = ("approved", "running")
ENDED: tuple[State, ...] = ("done", "failed", "declined", "refused", "expired", "cancelled")


class PartyView:
    """A party's own view of its federation; everything here stays on this machine."""

    def __init__(self, config: PartyConfig, store: AgentStore, scores: ScoresService | None = None) -> None:
        self.store, self.audit, self.scores = store, store.audit, scores
        self._config, self._read = config, file_stamp(config.path)
        self._odds: dict[str, Mapping[str, float | None]] = {}
        self._children: dict[tuple[str, Hashable], Future[Any]] = {}  # what they found in the table
        self._pool = ThreadPoolExecutor(1, "survey")

    @property
    def config(self) -> PartyConfig:
        """The party file as it is now; as it was, while it cannot be read."""
        if (now := file_stamp(self._config.path)) != self._read:
            with suppress(ColonnadeError):
                self._config = PartyConfig.load(self._config.path)
            self._read = now
        return self._config

    @property
    def name(self) -> str:
        """The party's name."""
        return self.config.name

    def status_line(self, person: str) -> tuple[bool, str]:
        """Whether the agent runs and reaches the hub; everybody is told the same."""
        status = self.store.status()
        if status.pid is None:
            start = f"colonnade federation agent {self.config.path.name}"
            return False, f"No agent runs here, so nothing is answered or run: start it with {start}. [CO022]"
        if not status.connected:
            why = f": {status.reason}" if status.reason else ""
            return False, one_code(f"The hub is not reached{why}. The agent goes on trying. [CO023]")
        pending = len(status.members_pending)
        news = f" {pending} new members wait for your acceptance." if pending > 1 else ""
        news = " A new member waits for your acceptance." if pending == 1 else news
        return True, f"Connected to {status.hub}.{news}"

    def state_text(self) -> str:
        """What has changed when this has: the store's file, the ledger, and what runs."""
        paths = [self.store.file.path, Path(f"{self.store.file.path}-wal"), self.config.ledger]
        for entry in self.store.entries(("running",)):
            paths += [attempt.folder / OUTPUT for attempt in self.store.attempts(entry.id)[-1:]]
        return " ".join(str(file_stamp(path)) for path in paths)

    def audit_reader(self, person: str) -> str | None:
        """Everybody who signs in here may read all that was written down."""
        return None

    def entry(self, id: str) -> ProposedStudy:
        """One study, by its whole id."""
        found = self.store.entry(id)
        if found.id != id:
            raise ProposalError("there is no study of this id here [OF003]")
        return found

    def prices(self, entry: ProposedStudy) -> StudyPrices | None:
        """What each observer could learn from a study; ``None`` before it was checked, or where it could not be."""
        assessment = entry.assessment or {}
        statement = assessment.get("statement")
        if statement is None:
            return None
        odds = assessment.get("odds") or self._odds.get(entry.id)
        if odds is None:
            odds = self._odds[entry.id] = log_odds_by_row(Statement.from_dict(statement))
        return StudyPrices.of(statement, odds, self.name)

    def caps(self, entry: ProposedStudy) -> list[CapForecast]:
        """What the study would leave of every cap and period."""
        return [CapForecast.of(each) for each in (entry.assessment or {}).get("left") or ()]

    def record(self, attempt: AttemptRecord) -> dict[str, Any]:
        """What ``run.json`` of an attempt says; nothing where there is none."""
        try:
            return read_facts(attempt.folder)
        except ColonnadeError:
            return {}

    def book(self) -> Ledger | None:
        """The ledger; ``None`` before the first study."""
        return self.config.open_ledger() if self.config.ledger.exists() else None

    def schemas(self) -> Iterator[tuple[ProposedStudy, Path]]:
        """Studies that bring a schema for this party, the newest first, and where each lies."""
        for entry in self.store.entries():
            path = self._schema(entry)
            if path is not None:
                yield entry, path

    def _schema(self, entry: ProposedStudy) -> Path | None:
        """The schema that a study has for this party, read from its file without planning the study."""
        try:
            file = entry.study_file
            said = reading.read_toml(file)
            path = (file.parent / said["parties"][self.name]["schema"]).resolve()
            inside = path.is_relative_to(file.parent.resolve())
        except (reading.MalformedFile, reading.UnreadableFile, KeyError, TypeError, OSError, ValueError):
            return None
        return path if inside and path.is_file() else None

    def survey(self, schema_file: Path) -> TableProfile | None:
        """The table under a schema; ``None`` while it takes longer than some seconds. One is made at a time."""
        config = self.config
        try:
            digest = Schema.load(schema_file, drafts=True).digest
            state = config.source().state()
        except OSError as error:
            raise DataError(f"{schema_file}: the file cannot be read: {error.strerror} [DA047]") from None
        # A database does not say whether its rows are others now; what it answered is shown for a while.
        key = (digest, time.monotonic() // _SHOWN_SECONDS if state is None else state)
        found: TableProfile | None = self._read_once(key, lambda: survey_in_child(config, schema_file))
        return found

    def forecast(self, entry: ProposedStudy) -> Mapping[str, Any]:
        """Whether there are enough people: by our number of rows too, where a person of ours looks before she answers.

        Nothing of the table is read before. ``counting`` says that it takes longer than some seconds.
        """
        known = entry.assessment or {}
        if entry.state != "waiting" or not known.get("statement"):
            return known
        key = (entry.id, time.monotonic() // _SHOWN_SECONDS)
        try:
            found: dict[str, Any] | None
            found = self._read_once(key, lambda: forecast_in_child(entry.study_file, self.config.path))
        except DataError:  # doctor and the page of the table say why
            return known
        return {**known, **({"counting": True} if found is None else found)}

    def _read_once(self, key: tuple[str, Hashable], read: Callable[[], Any]) -> Any:
        """What a child has found, kept for a while; ``None`` while it takes longer than some seconds."""
        made = self._children.get(key)
        if made is None or (made.done() and made.exception() is not None):
            made = self._children[key] = self._pool.submit(read)
            for old in [*self._children][:-_MAX_KEPT]:
                del self._children[old]
        try:
            return made.result(_WAIT_SECONDS)
        except NotYet:
            return None

    def checks(self, entry: ProposedStudy | None) -> list[DoctorCheck]:
        """What `colonnade doctor` says of a study, or of this party alone."""
        if entry is None:
            return list(examine_member(self.config.path))
        return list(examine(entry.study_file, self.config.path))

    @property
    def federation(self) -> Path | None:
        """The federation's file; ``None`` where the party's file names none."""
        agent = self.config.content.agent
        return None if agent is None else self.config.path.parent / agent.federation

    def newcomers(self) -> list[MemberIdentity]:
        """Members whom the hub names and nobody here has accepted."""
        ours = self.members()
        return [] if ours is None else newcomers.load_new_members(self.store.folder, ours)

    def comparison(self, each: MemberIdentity) -> tuple[WordComparison, int]:
        """Which words of a newcomer's key a person types here, and how many tries are left."""
        tries = WordTries(self.config.path.parent if self.federation is None else self.federation.parent)
        asked = tries.of_key(each.pin, each.words)
        return asked, tries.left(name_subject(each.name), asked)

    def accept(self, name: str, pin: str, words: str) -> int | None:
        """Pin a newcomer if these are the words of its key; else how many tries are left."""
        found = [each for each in self.newcomers() if (each.name, each.certificate.fingerprint) == (name, pin)]
        if not found or self.federation is None:
            raise FederationError("nobody of this name and key waits to be accepted; look at the page again [FE017]")
        left = WordTries(self.federation.parent).compare(name_subject(name), self.comparison(found[0])[0], words)
        if left is None:
            newcomers.accept_member(self.federation, found[0])
        return left

    def members(self) -> FederationMembers | None:
        """The members whom this party knows; ``None`` where it is in no federation."""
        return None if self.federation is None else FederationMembers.load(self.federation)
