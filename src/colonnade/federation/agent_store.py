"""The agent's store: which studies were proposed, what they would cost, who said yes, and what became of them.

The agent, the commands and the console all open the same file, and each call is one transaction. No member can fill a
party's disk: files of a proposal go some days after it ended without a result, and never those of a result.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args

from colonnade.errors import FederationError, ProposalError
from colonnade.federation.processes import Progress, read_progress
from colonnade.federation.statements import STUDY_FILE, AttemptEnd, Proposal, format_moment
from colonnade.federation.store_file import AUDIT_SCHEMA, AuditLog, StoreFile, timestamp_now
from colonnade.privacy.ledger.approvers import ONE_PERSON, ApprovalRule, Approver, read_approvers, write_approvers
from colonnade.sanitize import sanitize

State = Literal[
    "checking", "refused", "waiting", "approved", "declined", "running", "done", "failed", "expired", "cancelled"
]
STATES: tuple[State, ...] = get_args(State)
FINAL: frozenset[State] = frozenset({"refused", "declined", "done", "failed", "expired", "cancelled"})
_ENDS = FINAL - {"refused"}
"""The states of the hub in which a proposal stays, and ours, too."""
AttemptState = Literal["running", "finished", "stopped", "lost"]
StatementKind = Literal["answer", "withdrawal", "outcome"]
_SENT: Mapping[StatementKind, str] = {
    "answer": "UPDATE studies SET told = 1 WHERE id = :id",
    "withdrawal": "UPDATE studies SET withdrawal = 2 WHERE id = :id",
    "outcome": "UPDATE attempts SET told = 1 WHERE study = :id AND number = :number",
}
_STUDIES = (
    "SELECT *, EXISTS (SELECT 1 FROM attempts WHERE study = studies.id AND attempts.state = 'finished') AS finished "
    "FROM studies"
)
_TRIES = """
WITH same AS (SELECT a.started, a.state FROM attempts a JOIN studies s ON s.id = a.study WHERE s.digest = :digest)
SELECT count(*) FROM same WHERE started > coalesce((SELECT max(started) FROM same WHERE state = 'finished'), '')
"""
_LONGEST_WHY = 2000
MODEL = "model.json"


@dataclass(frozen=True)
class ProposedStudy:
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
    """Of every party, as it has signed them; ``None`` where no signed answer has come."""
    attempt: int
    """The number of the last attempt; 0 before the first."""
    assessment: Mapping[str, Any] | None
    """What was found when the proposal was checked; see ``checks``."""
    answer_by: str | None
    """Who answered for this party: a person, or the policy."""
    why: str | None
    """Why this party said no, or withdrew: that is its own decision then, whatever a hub says."""
    ended: str | None
    finished: bool
    """Whether an attempt of our own has finished."""
    folder: Path
    """The files of the study lie in ``study``, attempts in ``attempts/N``."""

    @property
    def study_file(self) -> Path:
        """The study as it was proposed, with its schemas beside it."""
        return self.folder / "study" / STUDY_FILE

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in FINAL

    @property
    def said_by_hub(self) -> bool:
        """Whether its end is the hub's word alone, and follows from nothing that we did or that parties have signed."""
        ours = self.finished or self.why is not None or (self.folder / "result" / MODEL).exists()
        late = self.state == "expired" and datetime.fromisoformat(self.deadline) <= datetime.now(UTC)
        declined = self.state == "declined" and False in self.answers.values()
        return self.over and self.state != "refused" and not (ours or late or declined)

    @property
    def state_by(self) -> str:
        """Who says so: we, or the hub."""
        return "the hub" if self.said_by_hub else "us"


@dataclass(frozen=True)
class AttemptRecord:
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


class AgentStore:
    """The agent's store, in ``folder/agent.db``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, AgentFile(folder)
        self.audit = AuditLog(self.file)

    def entries(self, states: Iterable[State] | None = None, most: int = -1, after: int = 0) -> list[ProposedStudy]:
        """All proposals, or those in some states; the newest first, so many ``after`` the first ones."""
        wanted = STATES if states is None else tuple(states)
        marks = ", ".join("?" * len(wanted))
        query = f"{_STUDIES} WHERE state IN ({marks}) ORDER BY received DESC, id LIMIT ? OFFSET ?"
        return self._entries(query, (*wanted, most, after))

    def entry(self, id_prefix: str) -> ProposedStudy:
        """The proposal whose id begins so; an error if there is none, or more than one."""
        return self._entry(self._row(id_prefix))

    def approve(self, id: str, by: Approver, rule: ApprovalRule = ONE_PERSON) -> ProposedStudy:
        """Say yes to a proposal that waits for a person; it waits on until so many people have said yes."""
        known = rule.count(self.approvers((row := self._row(id))["id"]))
        if row["state"] == "waiting" and not rule.lists(by):
            raise ProposalError(
                f"{by.who} cannot approve studies here: approvers in [policy] asks for {rule}, by their names letter "
                "by letter, as they are signed in to the console or as the system calls its users [OF820]"
            )
        if row["state"] == "waiting" and rule.needed > 1 and not rule.may_join(by, known):
            raise ProposalError(
                f"{by.who} cannot be the second approver: {known[0]} has approved, and it takes another person, who is "
                "signed in to the console where the policy lists no names [OF780]"
            )
        state: State = "approved" if len(known) + 1 >= rule.needed else "waiting"
        return self._answer(id, state, ", ".join(map(str, (*known, by))), None, (*known, by))

    def approvers(self, id: str) -> tuple[Approver, ...]:
        """Who has said yes so far, to a proposal of this whole id."""
        return read_approvers(self.load_fact(f"approvers {id}"))

    def decline(self, id: str, by: str, why: str) -> ProposedStudy:
        """Say no to a proposal that waits for a person; the analyst is told why, in these words."""
        return self._answer(id, "declined", by, _clean_text(why))

    def withdraw(self, id: str, by: str, why: str) -> ProposedStudy:
        """Take a yes back, or end what runs, whatever the hub says of it; all others are told that, and not why."""
        row = self._row(id)
        if not self.file.change(
            "UPDATE studies SET state = 'cancelled', answer_by = ?, why = ?, ended = ?, withdrawal = 1 "
            "WHERE id = ? AND (state IN ('approved', 'running') OR (why IS NULL AND EXISTS "
            "(SELECT 1 FROM attempts WHERE study = studies.id AND attempts.state = 'running')))",
            (_clean_text(by), _clean_text(why), timestamp_now(), row["id"]),
        ):
            raise ProposalError(
                f"study {sanitize(row['name'])!r} is {_state_in_words(row['state'])}, so nothing can be withdrawn"
                f"{': decline it instead' if row['state'] == 'waiting' else ''} [OF006]"
            )
        return self.entry(row["id"])

    def attempts(self, id: str) -> list[AttemptRecord]:
        """The attempts of a proposal, the first one first."""
        found = self.file.rows("SELECT * FROM attempts WHERE study = ? ORDER BY number", (self._row(id)["id"],))
        return [self._attempt(attempt) for attempt in found]

    def progress(self, id: str) -> Progress | None:
        """How far the last attempt has come; ``None`` before it has said anything."""
        attempts = self.attempts(id)
        return read_progress(attempts[-1].folder) if attempts else None

    def report(self, id: str) -> Path | None:
        """The page about a study that has ended: our own, or else the one that the hub keeps; ``None`` without one."""
        entry, attempts = self.entry(id), self.attempts(id)
        places = [*(attempt.folder for attempt in reversed(attempts)), entry.folder / "result"]
        return next((place / "report.html" for place in places if (place / "report.html").exists()), None)

    def status(self) -> AgentStatus:
        """What the agent last said of itself; not connected where its process is gone."""
        said: dict[str, Any] = json.loads(self.load_fact("status") or "{}")
        pid = said.get("pid")
        if pid is None or not _is_alive(pid):
            return AgentStatus(False, said.get("since"), said.get("hub"), "no agent runs", None)
        return AgentStatus(**said | {"members_pending": tuple(said.get("members_pending", ()))})

    def load_fact(self, name: str) -> str | None:
        """Something the agent remembers, such as the serial number of the last news."""
        row = self.file.row("SELECT value FROM facts WHERE name = ?", (name,))
        return None if row is None else str(row["value"])

    def save_fact(self, name: str, value: str) -> None:
        """Keep something for :meth:`fact`."""
        self.file.change("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def receive(self, proposal: Proposal) -> ProposedStudy:
        """Keep a proposal that has just come, to be checked; one that is known stays as it is."""
        values = (
            *(proposal.id, proposal.name, proposal.task_kind, proposal.digest, proposal.analyst, proposal.purpose),
            *(
                format_moment(proposal.made),
                format_moment(proposal.deadline),
                timestamp_now(),
                json.dumps(dict.fromkeys(proposal.parties)),
            ),
        )
        self.file.change(
            "INSERT OR IGNORE INTO studies (id, name, kind, digest, analyst, purpose, made, deadline, received, "
            "answers, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'checking')",
            values,
        )
        return self.entry(proposal.id)

    def record_assessment(
        self, id: str, assessment: Mapping[str, Any], state: State, by: str | None, approvers: Iterable[Approver] = ()
    ) -> None:
        """Keep what a check has found, and what follows from it; only what is being checked changes."""
        with self.file.writing() as file:
            changed = file.execute(
                "UPDATE studies SET assessment = ?, state = ?, answer_by = ? WHERE id = ? AND state = 'checking'",
                (json.dumps(assessment), state, by, id),
            ).rowcount
            self._note_approvers(file, id, approvers, changed)

    def said_before(self, digest: str) -> tuple[bool, int]:
        """Whether a person here said no to a study, whatever proposals it came in, and at how many attempts it failed.

        Those count that began after the last one with a result.
        """
        no = self.file.row("SELECT 1 FROM studies WHERE digest = ? AND why IS NOT NULL", (digest,))
        return no is not None, int(self.file.rows(_TRIES, {"digest": digest})[0][0])

    def record_hub_state(self, id: str, answers: Mapping[str, bool | None], state: str) -> None:
        """Keep proven answers, and what the hub says has become of a proposal, unless we decided that ourselves.

        What our policy refused and what a person here declined or withdrew stays so. Where our own attempt has
        finished, there is a result, whatever the hub says. An answer that was proven once stays so, too.
        It ended when we first heard so, by our own clock.
        """
        with self.file.writing() as file:
            row = file.execute(f"{_STUDIES} WHERE id = ?", (id,)).fetchone()
            known = json.loads(row["answers"])
            known |= {party: yes for party, yes in answers.items() if party in known and yes is not None}
            file.execute("UPDATE studies SET answers = ? WHERE id = ?", (json.dumps(known), id))
            if state in _ENDS:
                file.execute("UPDATE studies SET withdrawal = 0 WHERE id = ?", (id,))  # there is nobody to tell it to
                new = "done" if row["finished"] else state
                file.execute(
                    "UPDATE studies SET state = ?, ended = ? WHERE id = ? AND state NOT IN ('refused', 'done', ?) AND "
                    "(? OR (why IS NULL AND (state NOT IN ('failed', 'expired') "
                    "OR (state = 'expired' AND attempt > 0))))",  # we were away while it came to an end
                    (new, timestamp_now(), id, new, row["finished"]),
                )

    def resend_forgotten(self, id: str, party: str, told: Mapping[str, Any]) -> None:
        """Have the hub told once more what it has forgotten: it was put back from a copy, and goes by what it has.

        What it does know it is told again to no effect, and only when it has news of a study that it has not ended.
        """
        if told["state"] in _ENDS:
            return
        with self.file.writing() as file:
            if told["answers"].get(party) is None:
                file.execute("UPDATE studies SET told = 0 WHERE id = ?", (id,))
            if told.get("withdrawn") is None:
                file.execute("UPDATE studies SET withdrawal = 1 WHERE id = ? AND withdrawal = 2", (id,))
            file.execute(
                "UPDATE attempts SET told = 0 WHERE study = ? AND state != 'running' AND number <= ?",
                (id, told["attempt"]),
            )

    def expire(self, grace: timedelta) -> list[str]:
        """Close what nobody has answered in time, and what was approved and has not begun; returns the names.

        A yes ends ``grace`` after the deadline: the table may have become another one by then.
        """
        with self.file.writing() as file:
            return [
                str(row["name"])
                for row in file.execute(
                    "UPDATE studies SET state = 'expired', ended = :now WHERE "
                    "(state IN ('checking', 'waiting') AND deadline <= :now) OR "
                    "(state IN ('approved', 'running') AND deadline <= :ended AND NOT EXISTS (SELECT 1 FROM attempts "
                    "WHERE study = studies.id AND attempts.state IN ('running', 'finished'))) RETURNING name",
                    {"now": timestamp_now(), "ended": _grace_deadline(grace)},
                ).fetchall()
            ]

    def start_attempt(self, id: str, number: int, room: str, most: int, grace: timedelta) -> bool:
        """Note that an attempt begins; false where it must not.

        That is: not approved, not new, too many, or the deadline is longer ago than ``grace``. Nor after one that has
        finished, or that has stopped for a reason of our own, whatever the hub says: what was lost is tried again.
        It is on disk before the process starts, so an attempt that was lost with the agent is known as one.
        """
        with self.file.writing() as file:
            row = file.execute(
                "SELECT s.*, f.value AS approvers FROM studies s LEFT JOIN facts f ON f.name = 'approvers ' || s.id "
                "WHERE s.id = ?",
                (id,),
            ).fetchone()
            over = file.execute("SELECT count(*) FROM attempts WHERE study = ? AND state != 'lost'", (id,)).fetchone()[
                0
            ]
            if row is None or row["state"] not in ("approved", "running") or over:
                return False
            if not row["attempt"] < number <= most or row["deadline"] <= _grace_deadline(grace):
                return False
            by_person = any(each.kind != "policy" for each in read_approvers(row["approvers"]))
            if not by_person and file.execute(_TRIES, {"digest": row["digest"]}).fetchone()[0] >= most:
                return False
            file.execute(
                "INSERT INTO attempts (study, number, room, state, started) VALUES (?, ?, ?, 'running', ?)",
                (id, number, room, timestamp_now()),
            )
            file.execute("UPDATE studies SET state = 'running', attempt = ? WHERE id = ?", (number, id))
        return True

    def end_attempt(self, id: str, number: int, ended: AttemptEnd, message: str | None) -> None:
        """Note how an attempt ended."""
        self.file.change(
            "UPDATE attempts SET state = ?, ended = ?, message = ? WHERE study = ? AND number = ?",
            (ended, timestamp_now(), message, id, number),
        )

    def running_attempts(self) -> list[tuple[str, int]]:
        """Attempts of which nobody has noted an end."""
        rows = self.file.rows("SELECT study, number FROM attempts WHERE state = 'running'")
        return [(study, number) for study, number in rows]

    def unsent_answers(self) -> list[ProposedStudy]:
        """The proposals of which the hub has not our answer yet."""
        return self._entries(
            f"{_STUDIES} WHERE told = 0 AND (state IN ('approved', 'refused') "
            "OR (state = 'declined' AND why IS NOT NULL) "
            "OR (state IN ('running', 'done', 'failed') AND attempt > 0)) ORDER BY received"
        )

    def unsent_withdrawals(self) -> list[ProposedStudy]:
        """The proposals of which the hub does not know yet that we withdrew."""
        return self._entries(f"{_STUDIES} WHERE withdrawal = 1 AND state = 'cancelled'")

    def unsent_outcomes(self) -> list[tuple[str, int, AttemptEnd]]:
        """The attempts of which the hub does not know yet how they ended: study, number, and how."""
        rows = self.file.rows(
            "SELECT study, number, state FROM attempts WHERE told = 0 AND state != 'running' ORDER BY ended"
        )
        return [(study, number, state) for study, number, state in rows]

    def mark_sent(self, what: StatementKind, id: str, number: int = 0) -> None:
        """The hub has our answer, knows that we withdrew, or how the attempt of this number ended."""
        self.file.change(_SENT[what], {"id": id, "number": number})

    def save_status(self, connected: bool, since: str, hub: str, reason: str | None, pending: Iterable[str]) -> None:
        """Write down for others how the agent stands."""
        said = {"connected": connected, "since": since, "hub": hub, "reason": reason, "pid": os.getpid()}
        self.save_fact("status", json.dumps(said | {"members_pending": sorted(pending)}))

    def known_ids(self, ids: Iterable[str]) -> set[str]:
        """Those of these proposals that we know."""
        return {each for each in ids if self.file.row("SELECT 1 FROM studies WHERE id = ?", (each,))}

    def count_proposed_by(self, analyst: str, since: str) -> tuple[int, int]:
        """How many proposals of an analyst have not ended, and how many came since a moment."""
        rows = self.file.rows(
            "SELECT state, count(*) AS number, sum(received > ?) AS lately FROM studies WHERE analyst = ? "
            "GROUP BY state",
            (since, analyst),
        )
        still_open = sum(row["number"] for row in rows if row["state"] not in FINAL)
        return still_open, sum(row["lately"] for row in rows)

    def list_unfinished(self) -> list[ProposedStudy]:
        """The proposals of which no attempt of ours has finished, the newest first.

        An agent looks at them again and again. Those that have finished are more and more, and are not read for that.
        """
        return self._entries(f"{_STUDIES} WHERE NOT finished ORDER BY received DESC, id")

    def _answer(
        self, id: str, state: State, by: str, why: str | None, approvers: Iterable[Approver] = ()
    ) -> ProposedStudy:
        row = self._row(id)
        late = datetime.fromisoformat(row["deadline"]) <= datetime.now(UTC)
        with self.file.writing() as file:
            answered = file.execute(
                "UPDATE studies SET state = ?, answer_by = ?, why = ? WHERE id = ? AND state = 'waiting' AND NOT ? "
                "AND answer_by IS ?",  # so that of two answers at the same time one is the first
                (state, _clean_text(by), why, row["id"], late, row["answer_by"]),
            ).rowcount
            self._note_approvers(file, row["id"], approvers, answered)
        if not answered:
            known = self._row(id)
            is_so = "expired" if late and known["state"] == "waiting" else _state_in_words(known["state"])
            wanted = "approved" if state == "waiting" else state
            raise ProposalError(
                f"study {sanitize(known['name'])!r} is {is_so}, so it cannot be {wanted} now; "
                "`colonnade federation studies` shows what waits for an answer [OF007]"
            )
        return self.entry(row["id"])

    def _note_approvers(self, file: sqlite3.Connection, id: str, approvers: Iterable[Approver], so: int) -> None:
        values = (f"approvers {id}", write_approvers(approvers), so)
        file.execute("INSERT OR REPLACE INTO facts SELECT ?, ? WHERE ?", values)

    def _row(self, prefix: str) -> sqlite3.Row:
        if not prefix or not set(prefix) <= set("0123456789abcdef"):
            raise ProposalError(
                f"{sanitize(prefix, 80)!r} is no id of a study: `colonnade federation studies` shows them [OF008]"
            )
        upper = prefix + "g"  # the first text after all that begin so
        found = self.file.rows(f"{_STUDIES} WHERE id >= ? AND id < ? LIMIT 2", (prefix, upper))
        if len(found) != 1:
            what = "more than one study has an id that begins" if found else "no study has an id that begins"
            raise ProposalError(f"{what} with {prefix[:64]}: `colonnade federation studies` shows them [OF009]")
        return found[0]

    def _entries(self, query: str, values: tuple[Any, ...] = ()) -> list[ProposedStudy]:
        return [self._entry(row) for row in self.file.rows(query, values)]

    def _entry(self, row: sqlite3.Row) -> ProposedStudy:
        values = {name: row[name] for name in ProposedStudy.__dataclass_fields__ if name != "folder"}
        for name in ("answers", "assessment"):
            values[name] = None if values[name] is None else json.loads(values[name])
        values["finished"] = bool(values["finished"])
        return ProposedStudy(**values, folder=self.folder / "studies" / row["id"])

    def _attempt(self, row: sqlite3.Row) -> AttemptRecord:
        values = {name: row[name] for name in ("number", "room", "state", "started", "ended", "message")}
        return AttemptRecord(**values, folder=attempt_folder(self.folder, row["study"], row["number"]))


def attempt_folder(folder: Path, id: str, number: int) -> Path:
    """The run directory of one attempt."""
    return folder / "studies" / id / "attempts" / str(number)


def _grace_deadline(grace: timedelta) -> str:
    """The latest deadline that is this long ago."""
    return format_moment(datetime.now(UTC) - grace)


def _clean_text(text: str) -> str:
    return sanitize(text.strip(), _LONGEST_WHY)


def _state_in_words(state: str) -> str:
    return {"checking": "still being checked", "waiting": "waiting for an answer"}.get(state, state)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


_SCHEMA = (
    AUDIT_SCHEMA
    + """
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
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""
)


class AgentFile(StoreFile):
    """What was proposed to a party, what it answered, and who clicked what."""

    name, schema, application_id = "agent.db", _SCHEMA, 0x436F4F66
    private_folder = True


MAX_OPEN = 100
"""Proposals of one analyst that have not ended."""
MAX_A_DAY = 1000
"""Proposals of one analyst that are taken in within 24 hours."""
MAX_KEPT_BYTES = 1 << 28
"""Of the files of one analyst's proposals, those without a result."""
MAX_ENDED = 100
"""Proposals of one analyst that have ended without a result and keep their files."""
_RESULTS = ("attempts/*/model.json", "result/model.json")


def prune(store: AgentStore, keep: timedelta) -> int:
    """Delete the files of what ended without a result: long ago, or too many of one analyst; returns of how many."""
    before = format_moment(datetime.now(UTC) - keep)
    seen: dict[str, int] = {}
    gone = 0
    for entry in store.list_unfinished():  # the newest first
        if not _may_go(store, entry):
            continue
        seen[entry.analyst] = seen.get(entry.analyst, 0) + 1
        if (entry.ended or entry.deadline) <= before or seen[entry.analyst] > MAX_ENDED:
            _delete_files(store, entry)
            gone += 1
    return gone


def make_room(store: AgentStore, proposal: Proposal) -> None:
    """Delete the oldest files of this analyst's until a new proposal has room; an error if it has not even then."""
    still_open, lately = store.count_proposed_by(proposal.analyst, format_moment(datetime.now(UTC) - timedelta(days=1)))
    if still_open >= MAX_OPEN or lately >= MAX_A_DAY:
        raise FederationError(
            f"{proposal.analyst} has proposed more than is kept here at a time: {MAX_OPEN} studies that have not "
            f"ended, and {MAX_A_DAY} a day [FE086]"
        )
    known = [entry for entry in store.list_unfinished() if entry.analyst == proposal.analyst]
    sizes = {
        entry.id: _folder_size(entry.folder) for entry in known if entry.folder.exists() and not _has_result(entry)
    }
    held = sum(sizes.values()) + sum(map(len, proposal.files.values()))
    for entry in reversed(known):
        if held > MAX_KEPT_BYTES and entry.id in sizes and _may_go(store, entry):
            _delete_files(store, entry)
            held -= sizes[entry.id]
    if held > MAX_KEPT_BYTES:
        raise FederationError(
            f"the proposals of {proposal.analyst} that have not ended leave no room for this one [FE087]"
        )


def _delete_files(store: AgentStore, entry: ProposedStudy) -> None:
    shutil.rmtree(entry.folder, ignore_errors=True)
    store.file.change("UPDATE studies SET assessment = NULL WHERE id = ?", (entry.id,))


def _may_go(store: AgentStore, entry: ProposedStudy) -> bool:
    """Whether nobody needs its files: it has no result, and is over for the process of an attempt of ours as well."""
    if not entry.over or not entry.folder.exists() or _has_result(entry):
        return False
    return all(attempt.state != "running" for attempt in store.attempts(entry.id))


def _has_result(entry: ProposedStudy) -> bool:
    return any(any(entry.folder.glob(pattern)) for pattern in _RESULTS)


def _folder_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
