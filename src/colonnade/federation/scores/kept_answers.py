"""What an owner keeps of its answers, so that a person costs once in a period, however often it is asked about.

About a person whom it tells about for the first time in a period, an owner draws what it deals, part and noise, and
keeps that sum on disk; about the same person it deals the same until the period ends. The noise never depends on the
part: it is drawn once, and it stays although a table changes, and so does the part in it. A person is a keyed hash of
the normalised key by which people are aligned; a party's own names for rows may repeat, and have no place here.

A period is one entry of the ledger, which is there before the first answer. What is kept is on disk before a share
leaves. A period whose answers or whose entry are no longer what they were, because a file was put back from a copy, is
reserved anew, and all is drawn anew. Where the noise of several owners is opened as one sum, one of them alone must not
draw anew: then it answers nobody until the next period.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np

from colonnade.errors import BudgetError, PolicyError, StorageError, StudyError
from colonnade.federation.scores.periods import Period, kind_named
from colonnade.federation.scores.session import StandingStudy
from colonnade.federation.store_file import StoreFile
from colonnade.privacy import LedgerEntry
from colonnade.privacy.ledger.approvers import Approver
from colonnade.protocols.on_demand import Gate, GateDecision, Integers, PeoplePlaces, Summands
from colonnade.randomness import new_key
from colonnade.study import PartyConfig

ANSWERS_FILE = "answers.db"
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


class AnswersFile(OpenStoreFile):
    """What was dealt about whom in each period, and about how many people a party was asked each day."""

    name, application_id = ANSWERS_FILE, 0x436F416E
    schema = """
CREATE TABLE periods (
    digest TEXT NOT NULL, period TEXT NOT NULL, entry INTEGER NOT NULL, key BLOB NOT NULL, answered INTEGER NOT NULL,
    closed INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (digest, period)
) STRICT;
CREATE TABLE answers (
    digest TEXT NOT NULL, period TEXT NOT NULL, person BLOB NOT NULL, answer BLOB NOT NULL,
    PRIMARY KEY (digest, period, person)
) STRICT, WITHOUT ROWID;
CREATE TABLE days (
    digest TEXT NOT NULL, day TEXT NOT NULL, asked INTEGER NOT NULL, PRIMARY KEY (digest, day)
) STRICT, WITHOUT ROWID;
"""


class LedgerMarksFile(OpenStoreFile):
    """Beside a ledger: how many answers are kept under each of its entries."""

    application_id = 0x436F414D
    schema = """
CREATE TABLE marks (
    digest TEXT NOT NULL, period TEXT NOT NULL, entry INTEGER NOT NULL, answered INTEGER NOT NULL,
    PRIMARY KEY (digest, period, entry)
) STRICT, WITHOUT ROWID;
"""

    def __init__(self, ledger: Path) -> None:
        self.name = f"{ledger.name}.answers"  # type: ignore[misc]
        super().__init__(ledger.parent)


def count_asked_on(path: Path, digest: str, day: str) -> int | None:
    """How many were asked about on a day, by a look of its own at the file; ``None`` where the day is not there."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=10.0)) as base:
            row = base.execute("SELECT asked FROM days WHERE digest = ? AND day = ?", (digest, day)).fetchone()
    except sqlite3.Error as error:
        raise StorageError(f"{path} cannot be read: {error} [SO030]") from None
    return None if row is None else int(row[0])


_LOG = logging.getLogger("colonnade.scores")
_ASKED = """
INSERT INTO days VALUES (?, ?, ?) ON CONFLICT (digest, day) DO UPDATE SET asked = asked + excluded.asked
"""
_MARK = "INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)"
_RESERVED = """
INSERT INTO periods VALUES (?, ?, ?, ?, ?, 0)
ON CONFLICT (digest, period) DO UPDATE SET entry = excluded.entry, key = excluded.key, answered = excluded.answered
"""
_KEPT_PERIODS = 2
_PATIENCE = 60.0
"""Seconds before a ledger that had no budget left is asked again."""
_PERSON = 16


class _Known(NamedTuple):
    """What is known of a period: its entry of the ledger, the key under which people are hashed, and how many."""

    entry: int
    key: bytes
    answered: int
    closed: int


_BY = Approver("the digest in the party's file", "policy", "[agent.scores]")
"""Who approved a standing question: nobody is asked, since its study stands in the file."""


class KeptAnswers:
    """The periods of one standing question at one owner."""

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
        self._people: Sequence[bytes] = ()
        self._summands: Summands
        self._refused_until = 0.0
        self._unsent: LedgerEntry | None = None
        self._borne_out: tuple[object, ...] = ()
        """The ledger's file as it was when it last held the period's entry, and which that was."""
        self._file, self._marks = AnswersFile(folder), LedgerMarksFile(config.ledger)

    def open_session(self, people: Sequence[bytes], summands: Summands) -> Gate:
        """The gate of a session about people with these keys; what was answered in this period stays."""
        self._people, self._summands = people, summands
        self._borne_out = ()
        return self.admit

    def admit(self, named: str, places: PeoplePlaces) -> tuple[GateDecision, Integers]:
        """Say how many of these people are told about, and what is dealt about them; it is on disk on return."""
        now = self._clock()
        period, day = Period.at(self._standing.period, now), now.date()
        if kind_named(named) != period.kind:
            raise StudyError(
                f"{self._standing.task.to} asks for a {kind_named(named)}, and {self._config.name} keeps answers for "
                f"a {period.kind}: agree on one `period` in [agent.scores] [ST700]"
            )
        if named != period.name:  # a clock that is ahead, or behind: all owners answer in one period, or nobody does
            return self._nobody(period.end if named > period.name else int(now.timestamp()) + 1)
        try:
            # The mark is on disk after the answers, and before anything leaves: it never says more than they do.
            with self._marks.writing() as marked, self._file.writing() as base:
                known = self._turn_to(base, marked, period)
                if known is None:
                    return self._nobody(period.end)
                left = self._standing.per_day - (self._asked(base, day.isoformat()) or 0)
                told = places[: max(0, left)]
                values, new = self._answer(base, period, known, told)
                if len(told):
                    base.execute(_ASKED, (self._digest, day.isoformat(), len(told)))
                if new:
                    where = (self._digest, period.name)
                    base.execute(
                        "UPDATE periods SET answered = answered + ? WHERE digest = ? AND period = ?", (new, *where)
                    )
                    marked.execute(_MARK, (*where, known.entry, known.answered + new))
            self._mark_sent()
        except BaseException:
            self._borne_out, self._unsent = (), None
            raise
        self._hear(len(told))
        midnight = datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC)
        return GateDecision(len(told), 0 if len(told) == len(places) else int(midnight.timestamp())), values

    def count_today(self) -> int | None:
        """About how many people we were asked today, each time counted; ``None`` before the first."""
        return count_asked_on(self._file.path, self._digest, self._clock().date().isoformat())

    def _nobody(self, until: int) -> tuple[GateDecision, Integers]:
        return GateDecision(0, until), np.zeros((0, self._standing.task.classes), dtype=np.int64)

    def _asked(self, base: sqlite3.Connection, day: str) -> int | None:
        found = base.execute("SELECT asked FROM days WHERE digest = ? AND day = ?", (self._digest, day)).fetchone()
        return None if found is None else int(found[0])

    def _answer(
        self, base: sqlite3.Connection, period: Period, known: _Known, places: PeoplePlaces
    ) -> tuple[Integers, int]:
        """What is dealt about these people, and how many of them had not been answered about in this period."""
        if self._standing.task.exact:
            return self._summands(places), 0
        names = [blake2b(self._people[place], key=known.key, digest_size=_PERSON).digest() for place in places.tolist()]
        values, where = (
            np.zeros((len(places), self._standing.task.classes), dtype=np.int64),
            (self._digest, period.name),
        )
        new = []
        for at, person in enumerate(names):
            kept = base.execute(
                "SELECT answer FROM answers WHERE digest = ? AND period = ? AND person = ?", (*where, person)
            ).fetchone()
            if kept is None:
                new.append(at)
            else:
                values[at] = np.frombuffer(kept[0], dtype="<i8")
        if new:
            values[new] = self._summands(places[new])
            base.executemany(
                "INSERT INTO answers VALUES (?, ?, ?, ?)",
                ((*where, names[at], values[at].astype("<i8").tobytes()) for at in new),
            )
        return values, len(new)

    def _turn_to(self, base: sqlite3.Connection, marked: sqlite3.Connection, period: Period) -> _Known | None:
        """Go on with a period that is paid for, or reserve it; ``None`` where nobody may be answered about in it."""
        known = self._known(base, period.name)
        if known is not None and known.closed:
            return None
        mark = None if known is None else self._mark(marked, period.name, known.entry)
        whole = known if known is not None and mark is not None and known.answered >= mark else None
        if whole is not None and self._is_charged(period, whole):
            return whole
        self._borne_out = ()
        return self._known(base, period.name) if self._reserve(base, marked, period, known, whole) else None

    def _known(self, base: sqlite3.Connection, period: str) -> _Known | None:
        found = base.execute(
            "SELECT entry, key, answered, closed FROM periods WHERE digest = ? AND period = ?", (self._digest, period)
        ).fetchone()
        return None if found is None else _Known(*found)

    def _mark(self, marked: sqlite3.Connection, period: str, entry: int) -> int | None:
        where = (self._digest, period, entry)
        query = "SELECT answered FROM marks WHERE digest = ? AND period = ? AND entry = ?"
        found = marked.execute(query, where).fetchone()
        return None if found is None else int(found[0])

    def _is_charged(self, period: Period, known: _Known) -> bool:
        """Whether the ledger holds the entry of a period; it is read if its file has changed."""
        try:
            file = self._config.ledger.stat()
        except FileNotFoundError:
            return False
        seen = (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, period.name, known.entry)
        if seen != self._borne_out:
            entry = self._entries(period.name).get(known.entry)
            events = self._config.charged_events(self._standing.study)
            if entry is None or entry.state == "released" or entry.events != events:
                return False
            if entry.state == "reserved":
                self._config.open_ledger().mark_sent(entry)
            self._borne_out = seen
        return True

    def _label(self, period: str) -> str:
        return f"{self._standing.study.name}: scores of {period}"

    def _entries(self, period: str) -> dict[int, LedgerEntry]:
        """The ledger's entries for a period of this question."""
        whose = (self._label(period), self._digest)
        return {
            entry.id: entry for entry in self._config.open_ledger().entries() if (entry.study, entry.digest) == whose
        }

    def _reserve(
        self,
        base: sqlite3.Connection,
        marked: sqlite3.Connection,
        period: Period,
        known: _Known | None,
        whole: _Known | None,
    ) -> bool:
        """Reserve a period, or anew one that is not borne out; what is ``whole`` of it goes on under the new entry."""
        if time.monotonic() < self._refused_until:
            return False
        study, config, where = self._standing.study, self._config, (self._digest, period.name)
        ledger, events, entries = config.open_ledger(), config.charged_events(study), self._entries(period.name)
        count = "SELECT count(*) FROM marks WHERE digest = ? AND period = ? AND entry = ?"
        # One that was reserved when this process was killed, before anybody was answered about.
        unused = {
            entry.id: entry
            for entry in entries.values()
            if entry.state == "reserved" and not marked.execute(count, (*where, entry.id)).fetchone()[0]
        }
        if known is not None and known.entry not in unused:
            _LOG.warning("the ledger or the answers of %s are not those that were left", period.name)
        if whole is None and self._standing.question.summed and self._was_drawn(marked, where, known, entries, unused):
            _LOG.warning("nobody is answered about in %s any more: others still hold their noise of it", period.name)
            self._refused_until = time.monotonic() + _PATIENCE
            return False
        entry = next((entry for entry in unused.values() if entry.events == events), None)
        try:
            if entry is None:
                entry = ledger.reserve(
                    self._label(period.name), study.digest, events, study.trust, config.caps, config.periods,
                    config.ledger_keys(study), early=config.failures, approvers=(_BY,),
                )  # fmt: skip
        except (BudgetError, PolicyError) as error:
            _LOG.warning("no scores of %s: %s", period.name, error)
            self._refused_until = time.monotonic() + _PATIENCE
            return False
        if whole is None:
            base.execute("DELETE FROM answers WHERE digest = ? AND period = ?", where)
        key, answered = (new_key(), 0) if whole is None else (whole.key, whole.answered)
        base.execute(_RESERVED, (*where, entry.id, key, answered))
        marked.execute(_MARK, (*where, entry.id, answered))
        self._unsent = entry
        self._end_earlier(base, period.name)
        return True

    def _was_drawn(
        self,
        marked: sqlite3.Connection,
        where: tuple[str, str],
        known: _Known | None,
        entries: dict[int, LedgerEntry],
        unused: dict[int, LedgerEntry],
    ) -> bool:
        """Whether anything may have been told in a period: an entry is sent, or an answer marked, before it is."""
        count = "SELECT count(*) FROM marks WHERE digest = ? AND period = ?"
        sent = any(entry.state != "released" and entry.id not in unused for entry in entries.values())
        left = known is not None and known.entry not in unused
        return sent or left or bool(marked.execute(count, where).fetchone()[0])

    def _mark_sent(self) -> None:
        """Say in the ledger that answers leave, once both files hold them."""
        if self._unsent is not None:
            self._config.open_ledger().mark_sent(self._unsent)
            self._unsent = None

    def _end_earlier(self, base: sqlite3.Connection, period: str) -> None:
        """Say in the ledger that earlier periods ended well, and forget the answers of the oldest."""
        ledger = self._config.open_ledger()
        sent = {(entry.id, entry.study, entry.digest): entry for entry in ledger.entries() if entry.state == "sent"}
        earlier = base.execute(
            "SELECT period, entry FROM periods WHERE digest = ? AND period <> ? ORDER BY rowid", (self._digest, period)
        ).fetchall()
        for old, number in earlier:
            if (entry := sent.get((number, self._label(old), self._digest))) is not None:
                ledger.commit(entry)
        for old, _ in earlier[: 1 - _KEPT_PERIODS]:
            base.execute("DELETE FROM answers WHERE digest = ? AND period = ?", (self._digest, old))
            # Its answers are gone, so it answers nothing even if the clock goes back to it.
            base.execute("UPDATE periods SET closed = 1 WHERE digest = ? AND period = ?", (self._digest, old))

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        self._marks.close()
