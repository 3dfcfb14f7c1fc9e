"""All standing questions of one party, as its agent keeps them: it asks in some and answers in others.

What an owner allows a day is reserved in its ledger before the first answer, and counted on disk before each one. A day
is one entry of the ledger, priced as if every person were asked about as often as the party allows. What was asked
about whom is counted in a file beside it, on disk before a share leaves. A day whose counts or whose entry are no
longer what they were, because a file was put back from a copy, is reserved anew.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import BudgetError, PolicyError, StorageError, StudyError
from colonnade.federation.scores.session import (
    PersistentSession,
    QuestionQueue,
    StandingStudy,
    load_standing_study,
    make_joiner,
    make_owner,
    read_scores_section,
)
from colonnade.federation.store_file import StoreFile
from colonnade.federation.token_file import private_token
from colonnade.privacy import Event, LedgerEntry, NonPrivate, PostProcessing, RepeatedRelease
from colonnade.protocols.on_demand import Gate, GateDecision, PeoplePlaces
from colonnade.study import PartyConfig

COUNTS_FILE = "scores.db"
"""The file in an agent's folder."""


class OpenStoreFile(StoreFile):
    """A file that stays open: SQLite would write the whole of it anew whenever its last connection is closed."""

    _base: sqlite3.Connection | None = None

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            self._base = self._base or self._connect()
            yield self._base
        except sqlite3.Error as error:
            raise StorageError(f"{self.path} cannot be read or written: {error} [SO029]") from None

    def close(self) -> None:
        """Close the file."""
        if self._base is not None:
            self._base.close()


class AnswerCountsFile(OpenStoreFile):
    """Who was answered about, and how often."""

    name, application_id = COUNTS_FILE, 0x436F5363
    schema = """
CREATE TABLE days (
    digest TEXT NOT NULL, day TEXT NOT NULL, entry INTEGER NOT NULL, times INTEGER NOT NULL, asked INTEGER NOT NULL,
    closed INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (digest, day)
) STRICT, WITHOUT ROWID;
CREATE TABLE people (
    digest TEXT NOT NULL, day TEXT NOT NULL, person TEXT NOT NULL, times INTEGER NOT NULL,
    PRIMARY KEY (digest, day, person)
) STRICT, WITHOUT ROWID;
"""


class LedgerMarksFile(OpenStoreFile):
    """Beside a ledger: how many were answered about under each of its entries."""

    application_id = 0x436F534D
    schema = """
CREATE TABLE marks (
    digest TEXT NOT NULL, day TEXT NOT NULL, entry INTEGER NOT NULL, asked INTEGER NOT NULL,
    PRIMARY KEY (digest, day, entry)
) STRICT, WITHOUT ROWID;
"""

    def __init__(self, ledger: Path) -> None:
        self.name = f"{ledger.name}.scores"  # type: ignore[misc]
        super().__init__(ledger.parent)


def count_answers_on(path: Path, digest: str, day: str) -> int | None:
    """How many were answered about on a day, by a look of its own at the file; ``None`` where the day is not there."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10.0)) as base:
            row = base.execute("SELECT asked FROM days WHERE digest = ? AND day = ?", (digest, day)).fetchone()
    except sqlite3.Error as error:
        raise StorageError(f"{path} cannot be read: {error} [SO030]") from None
    return None if row is None else int(row[0])


_LOG = logging.getLogger("colonnade.scores")
_COUNT = """
INSERT INTO people VALUES (?, ?, ?, 1) ON CONFLICT (digest, day, person) DO UPDATE SET times = times + 1
"""
_MARK = "INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)"
_RESERVED = """
INSERT INTO days VALUES (?, ?, ?, ?, ?, 0)
ON CONFLICT (digest, day) DO UPDATE SET entry = excluded.entry, times = excluded.times, asked = excluded.asked
"""
_KEPT_DAYS = 8
_PATIENCE = 60.0
"""Seconds before a ledger that had no budget left is asked again."""


def day_events(events: tuple[Event, ...], times: int) -> tuple[Event, ...]:
    """What a day costs in which anybody may be asked about so many times."""
    return tuple(
        event if times == 1 or isinstance(event, NonPrivate | PostProcessing) else RepeatedRelease(event, times)  # type: ignore[arg-type]
        for event in events
    )


class _Day(NamedTuple):
    """What is known of a day: its entry of the ledger, how often that pays for anybody, and how many were answered."""

    entry: int
    times: int
    asked: int
    closed: int


class AnswerQuota:
    """The days of one standing question at one owner."""

    def __init__(
        self,
        standing: StandingStudy,
        config: PartyConfig,
        folder: Path,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        told: Callable[[int], None] = lambda people: None,
    ) -> None:
        """``told`` hears how many people a question was answered about."""
        self._hear = told
        self._standing, self._config, self._clock = standing, config, clock
        self._digest = standing.study.digest
        self._people: tuple[str, ...] = ()
        self._places: dict[str, int] = {}
        self._counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._day = ""
        self._times = self._asked = self._entry = self._closed = 0
        self._refused_until = 0.0
        self._borne_out: tuple[object, ...] = ()
        """The ledger's file as it was when it last held the day's entry, and which that was."""
        self._told, self._marks = AnswerCountsFile(folder), LedgerMarksFile(config.ledger)

    def open_session(self, people: tuple[str, ...]) -> Gate:
        """The gate of a session about these people, by the owner's own ids; what was asked today still counts."""
        self._people, self._places = people, {person: place for place, person in enumerate(people)}
        self._forget()
        return self.admit

    def admit(self, places: PeoplePlaces) -> GateDecision:
        """Count a question about these people and say whom it may be answered about; it is on disk on return."""
        now = self._clock()
        day = now.date().isoformat()
        # The mark is on disk after the counts, and before anything leaves: it never says more than they do.
        try:
            with self._marks.writing() as marked, self._told.writing() as base:
                if not self._turn_to(base, marked, day):
                    return GateDecision(np.ones(len(places), dtype=bool), self._opens(now))
                times = 0 if self._closed else min(self._times, self._standing.per_person)
                refused = self._counts[places] >= times
                left = max(0, self._standing.per_day - self._asked)
                refused |= np.cumsum(~refused) > left
                counted = places[~refused]
                if len(counted):
                    whom = ((self._digest, day, self._people[place]) for place in counted.tolist())
                    base.executemany(_COUNT, whom)
                    base.execute(
                        "UPDATE days SET asked = asked + ? WHERE digest = ? AND day = ?",
                        (len(counted), self._digest, day),
                    )
                    marked.execute(_MARK, (self._digest, day, self._entry, self._asked + len(counted)))
        except BaseException:
            self._forget()  # the day is read anew at the next question, since this one was not written
            raise
        self._counts[counted] += 1
        self._asked += len(counted)
        self._hear(len(counted))
        return GateDecision(refused, self._opens(now) if refused.any() else 0)

    def count_today(self) -> int | None:
        """How many were answered about today, each time counted; ``None`` before the day is paid for."""
        day = self._clock().date().isoformat()
        return count_answers_on(self._told.path, self._digest, day)

    def _opens(self, now: datetime) -> int:
        """When the next day begins."""
        midnight = datetime.combine(now.date() + timedelta(days=1), datetime.min.time(), UTC)
        return int(midnight.timestamp())

    def _forget(self) -> None:
        """Read the day anew at the next question: what is in memory may be ahead of what is on disk."""
        self._day, self._borne_out = "", ()

    def _turn_to(self, base: sqlite3.Connection, marked: sqlite3.Connection, day: str) -> bool:
        """Go on with a day that is paid for, or reserve it; returns whether the ledger had enough left."""
        known = self._known(base, day)
        if known is None or not (known.closed or self._is_paid(marked, day, known)):
            self._forget()
            if not self._reserve(base, marked, day, known):
                return False
            known = self._known(base, day)
        if known is not None and (day, *known) != (self._day, self._entry, self._times, self._asked, self._closed):
            self._read(base, day, known)  # another day, or another process answered, too
        return True

    def _known(self, base: sqlite3.Connection, day: str) -> _Day | None:
        found = base.execute(
            "SELECT entry, times, asked, closed FROM days WHERE digest = ? AND day = ?", (self._digest, day)
        ).fetchone()
        return None if found is None else _Day(*found)

    def _is_paid(self, marked: sqlite3.Connection, day: str, known: _Day) -> bool:
        """Whether the mark and the ledger bear out what the counts say; the ledger is read if its file has changed."""
        mark = self._mark(marked, day, known.entry)
        if mark is None or known.asked < mark:
            return False
        try:
            file = self._config.ledger.stat()
        except FileNotFoundError:
            return False
        seen = (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, day, known.entry)
        if seen != self._borne_out:
            events = day_events(self._config.charged_events(self._standing.study), known.times)
            entry = self._entries(day).get(known.entry)
            if entry is None or entry.state == "released" or entry.events != events:
                return False
            if entry.state == "reserved":
                self._config.open_ledger().mark_sent(entry)
            self._borne_out = seen
        return True

    def _mark(self, marked: sqlite3.Connection, day: str, entry: int) -> int | None:
        where = (self._digest, day, entry)
        found = marked.execute("SELECT asked FROM marks WHERE digest = ? AND day = ? AND entry = ?", where).fetchone()
        return None if found is None else int(found[0])

    def _label(self, day: str) -> str:
        return f"{self._standing.study.name}: scores of {day}"

    def _entries(self, day: str) -> dict[int, LedgerEntry]:
        """The ledger's entries for a day of this question."""
        whose = (self._label(day), self._digest)
        return {
            entry.id: entry for entry in self._config.open_ledger().entries() if (entry.study, entry.digest) == whose
        }

    def _reserve(self, base: sqlite3.Connection, marked: sqlite3.Connection, day: str, known: _Day | None) -> bool:
        """Reserve a day, or anew one that is not borne out; what was counted in it goes on."""
        if time.monotonic() < self._refused_until:
            return False
        study, config, asked = self._standing.study, self._config, 0
        times = self._standing.per_person
        if known is not None:
            _LOG.warning("the ledger or the counts of %s are not those that were left: it is reserved anew", day)
            times, asked = max(times, known.times), max(known.asked, self._mark(marked, day, known.entry) or 0)
        ledger, events = config.open_ledger(), day_events(config.charged_events(study), times)
        # One that was reserved when this process was killed, before anybody was answered about.
        left = (entry for entry in self._entries(day).values() if entry.state == "reserved" and entry.events == events)
        entry = next((entry for entry in left if self._mark(marked, day, entry.id) is None), None)
        try:
            if entry is None:
                entry = ledger.reserve(
                    self._label(day), study.digest, events, study.trust, config.caps, config.periods, study.keys(),
                    early=config.failures,
                )  # fmt: skip
        except (BudgetError, PolicyError) as error:
            _LOG.warning("no scores of %s: %s", day, error)
            self._refused_until = time.monotonic() + _PATIENCE
            return False
        base.execute(_RESERVED, (self._digest, day, entry.id, times, asked))
        marked.execute(_MARK, (self._digest, day, entry.id, asked))
        ledger.mark_sent(entry)
        self._end_earlier(base, day)
        return True

    def _end_earlier(self, base: sqlite3.Connection, day: str) -> None:
        """Say in the ledger that earlier days ended well, and forget whom the oldest were about."""
        ledger = self._config.open_ledger()
        sent = {(entry.id, entry.study, entry.digest): entry for entry in ledger.entries() if entry.state == "sent"}
        rows = base.execute(
            "SELECT day, entry FROM days WHERE digest = ? AND day <> ? ORDER BY day", (self._digest, day)
        )
        earlier = rows.fetchall()
        for old, number in earlier:
            if (entry := sent.get((number, self._label(old), self._digest))) is not None:
                ledger.commit(entry)
        for old, _ in earlier[:-_KEPT_DAYS]:
            base.execute("DELETE FROM people WHERE digest = ? AND day = ?", (self._digest, old))
            # Its counts are gone, so it answers nothing even if the clock goes back to it.
            base.execute("UPDATE days SET closed = 1 WHERE digest = ? AND day = ?", (self._digest, old))

    def _read(self, base: sqlite3.Connection, day: str, known: _Day) -> None:
        self._entry, self._times, self._asked, self._closed = known
        self._counts = np.zeros(len(self._people), dtype=np.int64)
        where = (self._digest, day)
        for person, times in base.execute("SELECT person, times FROM people WHERE digest = ? AND day = ?", where):
            if person in self._places:
                self._counts[self._places[person]] = times
        self._day = day

    def close(self) -> None:
        """Close the files."""
        self._told.close()
        self._marks.close()


@dataclass(frozen=True)
class OpenQuestion:
    """One standing question: the session that is kept open, and where to ask if this party may."""

    standing: StandingStudy
    stay: PersistentSession
    questions: QuestionQueue | None
    allowance: AnswerQuota | None

    @property
    def ready(self) -> bool | None:
        """Whether it can be asked in now; ``None`` where this party answers."""
        return None if self.questions is None else self.questions.ready


class ScoresService:
    """The standing questions of one party, from ``[agent.scores]`` of its file; ``folder`` is the agent's."""

    def __init__(
        self,
        config: PartyConfig,
        said: Mapping[str, Any],
        folder: Path,
        *,
        hub: str | None = None,
        scored: Callable[[int], None] = lambda people: None,
    ) -> None:
        """``scored`` is told how many scores were told, to this party or by it."""
        self.scored = scored
        self.part, self.hub = read_scores_section(said, config.path), hub
        self.token_file = folder / self.part.token
        self.kept: dict[str, OpenQuestion] = {}
        for model in self.part.models:
            standing = load_standing_study(model, config.path)
            name = standing.study.name
            if name in self.kept:
                raise StudyError(f"{config.path}: [agent.scores] names two studies that are called {name!r} [ST543]")
            self.kept[name] = self._kept(standing, config, folder, hub)

    def _kept(self, standing: StandingStudy, config: PartyConfig, folder: Path, hub: str | None) -> OpenQuestion:
        enter = make_joiner(standing, config.name, config.key, hub=hub)
        if standing.task.to == config.name:
            questions = QuestionQueue(gather=self.part.gather / 1000)
            return OpenQuestion(
                standing, PersistentSession(enter, make_owner(standing, config, questions)), questions, None
            )
        allowance = AnswerQuota(standing, config, folder, told=lambda people: self.scored(people))
        answering = make_owner(standing, config, allowance.open_session)
        return OpenQuestion(standing, PersistentSession(enter, answering), None, allowance)

    @property
    def asked_here(self) -> dict[str, OpenQuestion]:
        """The questions that this party may ask."""
        return {name: kept for name, kept in self.kept.items() if kept.questions is not None}

    def start(self) -> Self:
        """Meet the others, and stay."""
        for kept in self.kept.values():
            kept.stay.start()
        return self

    def stop(self) -> None:
        """Leave all sessions."""
        for kept in self.kept.values():
            kept.stay.stop()
            if kept.allowance is not None:
                kept.allowance.close()

    def token(self) -> str:
        """The token with which programs of this machine ask, made if there is none; its owner alone can read it."""
        return private_token(self.token_file)
