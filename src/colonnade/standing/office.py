"""The agent's office: which studies were proposed, what they would cost, who said yes, and what became of them.

The agent, the commands and the console all open the same file, and each call is one transaction. Nothing here is sent:
the agent reads what was decided and tells the hub.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self, get_args

from colonnade.errors import OfficeError
from colonnade.harmless import harmless
from colonnade.standing.output import Progress, progress_of
from colonnade.standing.standing_file import StandingFile

State = Literal[
    "checking", "refused", "waiting", "approved", "declined", "running", "done", "failed", "expired", "cancelled"
]
STATES: tuple[State, ...] = get_args(State)
FINAL: frozenset[State] = frozenset({"refused", "declined", "done", "failed", "expired", "cancelled"})
AttemptState = Literal["running", "finished", "stopped", "lost"]
_LONGEST_WHY = 2000


@dataclass(frozen=True)
class Entry:
    """One proposal, as this party knows it; times are ISO 8601 in UTC."""

    id: str
    name: str
    kind: str
    digest: str
    analyst: str
    purpose: str
    made: str
    deadline: str
    received: str
    state: State
    answers: Mapping[str, bool | None]
    """Of every party, as the hub says; ``None`` where it has not answered."""
    attempt: int
    """The number of the last attempt; 0 before the first."""
    assessment: Mapping[str, Any] | None
    """What was found when the proposal was checked; see ``assess``."""
    answer_by: str | None
    """Who answered for this party: a person, or the policy."""
    why: str | None
    """Why this party said no, or withdrew."""
    ended: str | None
    folder: Path
    """The files of the study lie in ``study``, attempts in ``attempts/N``."""

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in FINAL


@dataclass(frozen=True)
class Attempt:
    """One run of an approved proposal."""

    number: int
    room: str
    state: AttemptState
    started: str
    ended: str | None
    folder: Path
    message: str | None
    """Why it ended, for this party alone."""


@dataclass(frozen=True)
class Click:
    """One line of the audit log: who did what."""

    at: str
    who: str
    role: str
    what: str
    study: str | None
    detail: str


@dataclass(frozen=True)
class AgentStatus:
    """Whether the agent runs, and whether it reaches the hub."""

    connected: bool
    since: str | None
    hub: str | None
    reason: str | None
    """Why it is not connected."""
    pid: int | None
    """``None`` where no agent runs."""
    members_pending: tuple[str, ...] = ()
    """Members of the hub's list whom nobody here has accepted."""


class Office:
    """The agent's store, in ``folder/agent.db``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = OfficeFile(folder)

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """The office in a folder; made where there is none yet."""
        return cls(Path(folder))

    def entries(self, states: Iterable[State] | None = None, most: int = -1, after: int = 0) -> list[Entry]:
        """All proposals, or those in some states; the newest first, so many ``after`` the first ones."""
        wanted = STATES if states is None else tuple(states)
        marks = ", ".join("?" * len(wanted))
        with self.file.reading() as file:
            rows = file.execute(
                f"SELECT * FROM studies WHERE state IN ({marks}) ORDER BY received DESC, id "  # noqa: S608 - marks only
                "LIMIT ? OFFSET ?",
                (*wanted, most, after),
            ).fetchall()
        return [self._entry(row) for row in rows]

    def count(self) -> dict[str, int]:
        """How many proposals are in which state."""
        with self.file.reading() as file:
            rows = file.execute("SELECT state, count(*) AS number FROM studies GROUP BY state").fetchall()
        return {row["state"]: row["number"] for row in rows}

    def entry(self, id_prefix: str) -> Entry:
        """The proposal whose id begins so; an error if there is none, or more than one."""
        return self._entry(self._row(id_prefix))

    def approve(self, id: str, by: str) -> Entry:
        """Say yes to a proposal that waits for a person."""
        return self._answer(id, "approved", by, None)

    def decline(self, id: str, by: str, why: str) -> Entry:
        """Say no to a proposal that waits for a person; the analyst is told why, in these words."""
        return self._answer(id, "declined", by, _said(why))

    def withdraw(self, id: str, by: str, why: str) -> Entry:
        """Take a yes back, or end what runs; all others are told that, and not why."""
        row = self._row(id)
        with self.file.writing() as file:
            changed = file.execute(
                "UPDATE studies SET state = 'cancelled', answer_by = ?, why = ?, ended = ?, withdrawal = 1 "
                "WHERE id = ? AND state IN ('approved', 'running')",
                (_said(by), _said(why), now(), row["id"]),
            ).rowcount
        if not changed:
            raise OfficeError(
                f"study {harmless(row['name'])!r} is {_in_words(row['state'])}, so nothing can be withdrawn"
                f"{': decline it instead' if row['state'] == 'waiting' else ''} [OF006]"
            )
        return self.entry(row["id"])

    def attempts(self, id: str) -> list[Attempt]:
        """The attempts of a proposal, the first one first."""
        row = self._row(id)
        with self.file.reading() as file:
            found = file.execute("SELECT * FROM attempts WHERE study = ? ORDER BY number", (row["id"],)).fetchall()
        return [self._attempt(attempt) for attempt in found]

    def progress(self, id: str) -> Progress | None:
        """How far the last attempt has come; ``None`` before it has said anything."""
        attempts = self.attempts(id)
        return progress_of(attempts[-1].folder) if attempts else None

    def report(self, id: str) -> Path | None:
        """The page about a study that has ended: our own, or else the one that the hub keeps; ``None`` without one."""
        entry, attempts = self.entry(id), self.attempts(id)
        places = [*(attempt.folder for attempt in reversed(attempts)), entry.folder / "result"]
        return next((place / "report.html" for place in places if (place / "report.html").exists()), None)

    def log(self, who: str, role: str, what: str, study: str | None = None, detail: str = "") -> None:
        """Append a line to the audit log."""
        values = (now(), harmless(who), harmless(role), harmless(what), study, harmless(detail, _LONGEST_WHY))
        with self.file.writing() as file:
            file.execute("INSERT INTO clicks (at, who, role, what, study, detail) VALUES (?, ?, ?, ?, ?, ?)", values)

    def clicks(self, limit: int = 200) -> list[Click]:
        """The last lines of the audit log, the newest first."""
        with self.file.reading() as file:
            rows = file.execute(
                "SELECT at, who, role, what, study, detail FROM clicks ORDER BY number DESC LIMIT ?", (limit,)
            ).fetchall()
        return [Click(**dict(row)) for row in rows]

    def status(self) -> AgentStatus:
        """What the agent last said of itself; not connected where its process is gone."""
        said: dict[str, Any] = json.loads(self.fact("status") or "{}")
        pid = said.get("pid")
        if pid is None or not _alive(pid):
            return AgentStatus(False, said.get("since"), said.get("hub"), "no agent runs", None)
        return AgentStatus(**said | {"members_pending": tuple(said.get("members_pending", ()))})

    def fact(self, name: str) -> str | None:
        """Something the agent remembers, such as the serial number of the last news."""
        with self.file.reading() as file:
            row = file.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row["value"])

    def remember(self, name: str, value: str) -> None:
        """Keep something for :meth:`fact`."""
        with self.file.writing() as file:
            file.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def _answer(self, id: str, state: State, by: str, why: str | None) -> Entry:
        row = self._row(id)
        late = datetime.fromisoformat(row["deadline"]) <= datetime.now(UTC)
        with self.file.writing() as file:
            changed = (
                not late
                and file.execute(
                    "UPDATE studies SET state = ?, answer_by = ?, why = ? WHERE id = ? AND state = 'waiting'",
                    (state, _said(by), why, row["id"]),
                ).rowcount
            )
        if not changed:
            known = self._row(id)
            is_so = "expired" if late and known["state"] == "waiting" else _in_words(known["state"])
            raise OfficeError(
                f"study {harmless(known['name'])!r} is {is_so}, so it cannot be "
                f"{state} now; `colonnade federation studies` shows what waits for an answer [OF007]"
            )
        return self.entry(row["id"])

    def _row(self, prefix: str) -> sqlite3.Row:
        if not prefix or not set(prefix) <= set("0123456789abcdef"):
            raise OfficeError(
                f"{harmless(prefix, 80)!r} is no id of a study: `colonnade federation studies` shows them [OF008]"
            )
        with self.file.reading() as file:
            upper = prefix + "g"  # the first text after all that begin so
            found: list[sqlite3.Row] = file.execute(
                "SELECT * FROM studies WHERE id >= ? AND id < ? LIMIT 2", (prefix, upper)
            ).fetchall()
        if len(found) != 1:
            what = "more than one study has an id that begins" if found else "no study has an id that begins"
            raise OfficeError(f"{what} with {prefix[:64]}: `colonnade federation studies` shows them [OF009]")
        return found[0]

    def _entry(self, row: sqlite3.Row) -> Entry:
        values = {name: row[name] for name in Entry.__dataclass_fields__ if name != "folder"}
        for name in ("answers", "assessment"):
            values[name] = None if values[name] is None else json.loads(values[name])
        return Entry(**values, folder=self.folder / "studies" / row["id"])

    def _attempt(self, row: sqlite3.Row) -> Attempt:
        values = {name: row[name] for name in ("number", "room", "state", "started", "ended", "message")}
        return Attempt(**values, folder=attempt_folder(self.folder, row["study"], row["number"]))


def attempt_folder(folder: Path, id: str, number: int) -> Path:
    """The run directory of one attempt."""
    return folder / "studies" / id / "attempts" / str(number)


def now() -> str:
    """This moment, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _said(text: str) -> str:
    return harmless(text.strip(), _LONGEST_WHY)


def _in_words(state: str) -> str:
    return {"checking": "still being checked", "waiting": "waiting for an answer"}.get(state, state)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


_SCHEMA = """
CREATE TABLE studies (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, digest TEXT NOT NULL, analyst TEXT NOT NULL,
    purpose TEXT NOT NULL, made TEXT NOT NULL, deadline TEXT NOT NULL, received TEXT NOT NULL, state TEXT NOT NULL,
    answers TEXT NOT NULL DEFAULT '{}', attempt INTEGER NOT NULL DEFAULT 0, assessment TEXT, answer_by TEXT, why TEXT,
    ended TEXT, told INTEGER NOT NULL DEFAULT 0, withdrawal INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX by_state ON studies (state);
CREATE TABLE attempts (
    study TEXT NOT NULL REFERENCES studies (id), number INTEGER NOT NULL, room TEXT NOT NULL, state TEXT NOT NULL,
    started TEXT NOT NULL, ended TEXT, message TEXT, told INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (study, number)
) STRICT;
CREATE TABLE clicks (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, who TEXT NOT NULL, role TEXT NOT NULL,
    what TEXT NOT NULL, study TEXT, detail TEXT NOT NULL
) STRICT;
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""


class OfficeFile(StandingFile):
    """What was proposed to a party, what it answered, and who clicked what."""

    name, schema, application_id = "agent.db", _SCHEMA, 0x436F4F66
    unusable = foreign = OfficeError
