"""What the pages of a party's console may ask: its studies, prices, ledger, table, members and checks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colonnade.console.meaning import CapLeft, Prices, odds_of
from colonnade.console.surveying import Surveys
from colonnade.disk import reading
from colonnade.errors import ColonnadeError, FederationError, OfficeError, one_code
from colonnade.privacy import Ledger
from colonnade.standing import newcomers
from colonnade.standing.checkup import examine_member
from colonnade.standing.federation import Members
from colonnade.standing.newcomers import Person
from colonnade.standing.office import Attempt, Entry, Office, State
from colonnade.standing.output import OUTPUT
from colonnade.standing.proposal import STUDY_FILE
from colonnade.standing.scores.service import ScoresService
from colonnade.standing.standing_process import stamp
from colonnade.study.doctor import Check, examine
from colonnade.study.policy import PartyConfig
from colonnade.study.record import read_facts
from colonnade.tables.survey import Survey

WAITING: tuple[State, ...] = ("checking", "waiting")
UNDER_WAY: tuple[State, ...] = ("approved", "running")
PAST: tuple[State, ...] = ("done", "failed", "declined", "refused", "expired", "cancelled")


class PartyDesk:
    """A party's own view of its federation; everything here stays on this machine."""

    def __init__(self, config: PartyConfig, office: Office, scores: ScoresService | None = None) -> None:
        self.office, self.audit, self.scores = office, office.audit, scores
        self._config, self._read = config, stamp(config.path)
        self._odds: dict[str, Mapping[str, float | None]] = {}
        self._surveys = Surveys()

    @property
    def config(self) -> PartyConfig:
        """The party file as it is now; as it was, while it cannot be read."""
        if (now := stamp(self._config.path)) != self._read:
            with suppress(ColonnadeError):
                self._config = PartyConfig.load(self._config.path)
            self._read = now
        return self._config

    @property
    def name(self) -> str:
        """The party's name."""
        return self.config.name

    def standing(self, person: str) -> tuple[bool, str]:
        """Whether the agent runs and reaches the hub; everybody is told the same."""
        status = self.office.status()
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

    def pulse(self) -> str:
        """What has changed when this has: the office's file, the ledger, and what runs."""
        paths = [self.office.file.path, Path(f"{self.office.file.path}-wal"), self.config.ledger]
        for entry in self.office.entries(("running",)):
            paths += [attempt.folder / OUTPUT for attempt in self.office.attempts(entry.id)[-1:]]
        return " ".join(str(stamp(path)) for path in paths)

    def only_lines_of(self, person: str) -> str | None:
        """Everybody who signs in here may read all that was written down."""
        return None

    def entry(self, id: str) -> Entry:
        """One study, by its whole id."""
        found = self.office.entry(id)
        if found.id != id:
            raise OfficeError("there is no study of this id here [OF003]")
        return found

    def prices(self, entry: Entry) -> Prices | None:
        """What each observer could learn from a study; ``None`` before it was checked, or where it could not be."""
        assessment = entry.assessment or {}
        statement = assessment.get("statement")
        if statement is None:
            return None
        odds = assessment.get("odds") or self._odds.get(entry.id)
        if odds is None:
            odds = self._odds[entry.id] = odds_of(statement)
        return Prices.of(statement, odds, self.name)

    def caps(self, entry: Entry) -> list[CapLeft]:
        """What the study would leave of every cap and period."""
        return [CapLeft.of(each) for each in (entry.assessment or {}).get("left") or ()]

    def record(self, attempt: Attempt) -> dict[str, Any]:
        """What ``run.json`` of an attempt says; nothing where there is none."""
        try:
            return read_facts(attempt.folder)
        except ColonnadeError:
            return {}

    def book(self) -> Ledger | None:
        """The ledger; ``None`` before the first study."""
        return self.config.book() if self.config.ledger.exists() else None

    def schemas(self) -> Iterator[tuple[Entry, Path]]:
        """Studies that bring a schema for this party, the newest first, and where each lies."""
        for entry in self.office.entries():
            path = self._schema(entry)
            if path is not None:
                yield entry, path

    def _schema(self, entry: Entry) -> Path | None:
        """The schema that a study has for this party, read from its file without planning the study."""
        try:
            file = study_file(entry)
            said = reading.read_toml(file)
            path = (file.parent / said["parties"][self.name]["schema"]).resolve()
            inside = path.is_relative_to(file.parent.resolve())
        except (reading.Malformed, reading.Unreadable, KeyError, TypeError, OSError, ValueError):
            return None
        return path if inside and path.is_file() else None

    def survey(self, schema_file: Path, wait: float = 8.0) -> Survey | None:
        """The table under a schema; ``None`` while it is still being read."""
        return self._surveys.ask(self.config, schema_file, wait)

    def checks(self, entry: Entry | None) -> list[Check]:
        """What `colonnade doctor` says of a study, or of this party alone."""
        if entry is None:
            return list(examine_member(self.config.path))
        return list(examine(study_file(entry), self.config.path))

    @property
    def federation(self) -> Path | None:
        """The federation's file; ``None`` where the party's file names none."""
        agent = self.config.content.agent
        return None if agent is None else self.config.path.parent / agent.federation

    def newcomers(self) -> list[Person]:
        """Members whom the hub names and nobody here has accepted."""
        ours = self.members()
        return [] if ours is None else newcomers.waiting(self.office.folder, ours)

    def accept(self, name: str, pin: str) -> None:
        """Pin a newcomer whose words a person has compared; an error if it is not the one that was shown."""
        found = [each for each in self.newcomers() if (each.name, each.certificate.fingerprint) == (name, pin)]
        if not found or self.federation is None:
            raise FederationError("nobody of this name and key waits to be accepted; look at the page again [FE017]")
        newcomers.accept(self.federation, found[0])

    def members(self) -> Members | None:
        """The members whom this party knows; ``None`` where it is in no federation."""
        return None if self.federation is None else Members.load(self.federation)


def study_file(entry: Entry) -> Path:
    """The study as it was proposed, with its schemas beside it."""
    return entry.folder / "study" / STUDY_FILE


def days_left(deadline: str, now: datetime | None = None) -> str:
    """How long there is to answer, in words."""
    left = datetime.fromisoformat(deadline) - (now or datetime.now(UTC))
    hours = left.total_seconds() / 3600
    if hours <= 0:
        return "the deadline has passed"
    if hours < 1:
        return f"{math.ceil(hours * 60)} minutes left"
    return f"{hours:.0f} hours left" if hours < 48 else f"{hours / 24:.0f} days left"
