"""The hub's store of proposals, answers and outcomes, and what becomes of each proposal. It talks to nobody.

Each call is one transaction. In it the statement is stored and every proposal that may go on because of it goes on, so
a hub that is killed at any moment finds the same state again. The next step of a proposal is a pure function of what is
stored; ``docs/how-to/federation.md`` has the same as a table.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, get_args

from colonnade.errors import FederationError
from colonnade.federation.members import FederationMembers, HubPart
from colonnade.federation.statements import (
    AttemptEnd,
    AttemptReport,
    Proposal,
    ProposalAnswer,
    SignedStatement,
    Withdrawal,
    format_moment,
)
from colonnade.federation.store_file import AUDIT_SCHEMA, StoreFile
from colonnade.protocols.roles import COORDINATOR

State = Literal["open", "running", "done", "declined", "failed", "expired", "cancelled"]
STATES: tuple[State, ...] = get_args(State)
FINAL: frozenset[State] = frozenset({"done", "declined", "failed", "expired", "cancelled"})


@dataclass(frozen=True)
class ProposalFacts:
    """All that is known of one proposal."""

    state: State
    analyst: str
    parties: tuple[str, ...]
    deadline: datetime
    answers: Mapping[str, tuple[bool, int]]
    """Of those who have answered: whether yes, and how many further attempts they allow."""
    withdrawn: str | None
    attempt: int
    started: datetime | None
    """When the last attempt was started."""
    first_report: datetime | None
    outcomes: Mapping[tuple[int, str], AttemptEnd]
    """By attempt and participant."""

    def reported(self) -> dict[str, AttemptEnd]:
        """How the last attempt ended, for those who have said so."""
        return {who: ended for (attempt, who), ended in self.outcomes.items() if attempt == self.attempt}


Step = State | Literal["start"] | None
"""A state to go to, an attempt to start, or nothing yet."""


def next_step(case: ProposalFacts, now: datetime, part: HubPart) -> Step:
    """What happens to a proposal now; an attempt is started once there is a place for it and all are present.

    The hub waits so long for a report after the first one (``overdue``), and for an attempt as a whole (``hours``).
    """
    if case.state in FINAL:
        return None
    if case.state == "open":
        return _step_before_start(case, now, part)
    finished = {attempt for (attempt, _), ended in case.outcomes.items() if ended == "finished"}
    if finished - {case.attempt}:
        return "done"  # an earlier attempt was not lost after all; nothing may come of this one
    if not _is_over(case, now, part):
        return None
    if finished:
        return "done"
    if case.withdrawn is not None:
        return "cancelled"
    retries = min(case.answers[party][1] for party in case.parties)
    only_lost = set(case.reported().values()) == {"lost"}  # of whom nothing was heard may still run
    if only_lost and case.attempt <= retries and now < case.deadline + timedelta(hours=part.hours):
        return "start"
    return "failed"


def _step_before_start(case: ProposalFacts, now: datetime, part: HubPart) -> Step:
    if case.withdrawn == case.analyst:
        return "cancelled"
    if case.withdrawn is not None or not all(yes for yes, _ in case.answers.values()):
        return "declined"
    if all(case.answers.get(party, (False, 0))[0] for party in case.parties):
        return "start" if now < case.deadline + timedelta(hours=part.hours) else "expired"
    return "expired" if now >= case.deadline else None


def _is_over(case: ProposalFacts, now: datetime, part: HubPart) -> bool:
    """Whether the last attempt is over: all have said how it ended, or the rest is waited for no longer.

    The coordinator stays until every owner is done. So if it has finished, nobody needs the room any more.
    """
    reported = case.reported()
    if reported.keys() >= {*case.parties, COORDINATOR} or reported.get(COORDINATOR) == "finished":
        return True
    if case.first_report is not None and now >= case.first_report + timedelta(seconds=part.overdue):
        return True
    return case.started is not None and now >= case.started + timedelta(hours=part.hours, seconds=part.overdue)


MAX_OPEN_BYTES = 1 << 28
"""Of one analyst's proposals that are not decided yet."""
MAX_PROPOSALS_A_DAY = 1000
"""Proposals of one analyst within 24 hours: a row of each stays for ever."""
MAX_NEWS = 80
"""Studies in one piece of news, with what parties have signed; whoever asks goes on from its serial number."""
_WORDLESS = b'"why":""'
_UNKNOWN = (
    "the hub knows no proposal of this id that concerns you; `colonnade federation studies` lists those that do [FE019]"
)


_SCHEMA = (
    AUDIT_SCHEMA
    + """
CREATE TABLE proposals (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, digest TEXT NOT NULL, analyst TEXT NOT NULL,
    purpose TEXT NOT NULL, parties TEXT NOT NULL, made TEXT NOT NULL, deadline TEXT NOT NULL, received TEXT NOT NULL,
    bytes INTEGER NOT NULL, state TEXT NOT NULL DEFAULT 'open', attempt INTEGER NOT NULL DEFAULT 0, queued INTEGER,
    waits INTEGER NOT NULL DEFAULT 0, withdrawn TEXT, ended TEXT, serial INTEGER NOT NULL
) STRICT;
CREATE INDEX by_serial ON proposals (serial);
CREATE INDEX by_state ON proposals (state);
CREATE TABLE packed (proposal TEXT PRIMARY KEY REFERENCES proposals (id), raw BLOB NOT NULL) STRICT;
CREATE TABLE answers (
    proposal TEXT NOT NULL REFERENCES proposals (id), party TEXT NOT NULL, yes INTEGER NOT NULL, why TEXT NOT NULL,
    retries INTEGER NOT NULL, received TEXT NOT NULL, raw BLOB NOT NULL, PRIMARY KEY (proposal, party)
) STRICT;
CREATE TABLE attempts (
    proposal TEXT NOT NULL REFERENCES proposals (id), number INTEGER NOT NULL, started TEXT NOT NULL,
    first_report TEXT, PRIMARY KEY (proposal, number)
) STRICT;
CREATE TABLE outcomes (
    proposal TEXT NOT NULL REFERENCES proposals (id), attempt INTEGER NOT NULL, participant TEXT NOT NULL,
    ended TEXT NOT NULL, received TEXT NOT NULL, raw BLOB NOT NULL, PRIMARY KEY (proposal, attempt, participant)
) STRICT;
CREATE TABLE withdrawals (
    proposal TEXT NOT NULL REFERENCES proposals (id), by TEXT NOT NULL, received TEXT NOT NULL, raw BLOB NOT NULL,
    PRIMARY KEY (proposal, by)
) STRICT;
CREATE TABLE invitations (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, certificate TEXT NOT NULL, made TEXT NOT NULL,
    expires TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'open', enrolled TEXT, sealed TEXT, ours TEXT, theirs TEXT
) STRICT;
CREATE TABLE serials (last INTEGER NOT NULL) STRICT;
INSERT INTO serials VALUES (0);
"""
)
"""``sealed``, ``ours`` and ``theirs``: what both ends drew for the six words; sealed until the newcomer has ours."""


class HubFile(StoreFile):
    """Proposals with what was said about them, invitations, and who did what in the console."""

    name, schema, application_id = "hub.db", _SCHEMA, 0x436F4465
    private_folder = True


@dataclass(frozen=True)
class RunningAttempt:
    """An attempt that runs, or should."""

    id: str
    attempt: int
    participants: tuple[str, ...]
    stopping: bool
    """Whether somebody has withdrawn, so that it must end."""
    reported: bool
    """Whether the coordinator has said how it ended."""

    @property
    def room(self) -> str:
        """The name of its room."""
        return attempt_room(self.id, self.attempt)


def attempt_room(id: str, attempt: int) -> str:
    """The name of the room of an attempt."""
    return f"{id}.{attempt}"


class ProposalStore:
    """Proposals and what became of them, in ``folder/hub.db``; any thread may call."""

    def __init__(self, folder: Path, members: FederationMembers, part: HubPart) -> None:
        self.members, self.part, self.folder = members, part, folder
        self.file = HubFile(folder)
        self.changed: Callable[[], object] = lambda: None
        """Is called after every change; from whatever thread made it."""
        self.present: Callable[[], frozenset[str] | None] = lambda: None
        """Who is connected now, or None for everybody: no attempt is started without its parties."""

    def resume(self, now: datetime) -> None:
        """After a restart: what is stored from a later moment than now counts from now, so that a wait has an end."""
        with self._changing(now) as file:
            file.execute("UPDATE attempts SET started = min(started, :now), first_report = min(first_report, :now)",
                         {"now": format_moment(now)})  # fmt: skip

    def propose(self, raw: bytes, caller: str, now: datetime) -> dict[str, Any]:
        """Take a proposal in; the same one again changes nothing."""
        proposal = Proposal.unpack(raw, self.members)
        _check_signer(proposal, caller)
        with self._changing(now) as file:
            if file.execute("SELECT 1 FROM proposals WHERE id = ?", (proposal.id,)).fetchone() is None:
                proposal.check_time(now)
                self._check_room(file, proposal.analyst, len(raw), now)
                values = (
                    *(
                        proposal.id,
                        proposal.name,
                        proposal.task_kind,
                        proposal.digest,
                        proposal.analyst,
                        proposal.purpose,
                    ),
                    *(
                        json.dumps(proposal.parties),
                        format_moment(proposal.made),
                        format_moment(proposal.deadline),
                        format_moment(now),
                    ),
                    *(len(raw), _increment_serial(file)),
                )
                file.execute(
                    "INSERT INTO proposals (id, name, kind, digest, analyst, purpose, parties, made, deadline, "
                    "received, bytes, serial) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    values,
                )
                file.execute("INSERT INTO packed VALUES (?, ?)", (proposal.id, raw))
        return self.study(proposal.id, caller)

    def signed_proposal(self, id: str, caller: str) -> bytes:
        """A proposal as it was signed, for those whom it concerns, unless it has come to an end without a result."""
        with self.file.reading() as file:
            self._row_for(file, id, caller)
            row = file.execute("SELECT raw FROM packed WHERE proposal = ?", (id,)).fetchone()
        if row is None:
            raise FederationError("this proposal is decided, and the hub no longer keeps its files [FE020]")
        return bytes(row["raw"])

    def answer(self, raw: bytes, caller: str, now: datetime) -> dict[str, Any]:
        """Take a party's answer in; it is final but for a withdrawal.

        Its words, which are for the analyst alone, come in a second answer: all are shown the first as it was signed.
        """
        said = ProposalAnswer.unpack(raw, self.members)
        with self._changing(now) as file:
            row = self._row_for(file, said.proposal, _check_signer(said, caller))
            if said.party not in json.loads(row["parties"]):
                raise FederationError(
                    f"{said.party} is no party of the study {row['name']!r}, so it has no say in it [FE021]"
                )
            known = file.execute(
                "SELECT yes, why, retries FROM answers WHERE proposal = ? AND party = ?", (said.proposal, said.party)
            ).fetchone()
            if known is not None:
                if (bool(known["yes"]), known["retries"]) != (said.yes, said.retries):
                    raise FederationError(f"{said.party} has answered otherwise before; a yes can be withdrawn [FE022]")
                if said.why and not known["why"]:
                    named = (said.why, said.proposal, said.party)
                    file.execute("UPDATE answers SET why = ? WHERE proposal = ? AND party = ?", named)
                    _mark_changed(file, said.proposal)
            elif row["state"] == "open" and now < datetime.fromisoformat(row["deadline"]):
                file.execute(
                    "INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (said.proposal, said.party, said.yes, said.why, said.retries, format_moment(now), raw),
                )
                _mark_changed(file, said.proposal)
            else:
                late = "expired" if row["state"] == "open" else row["state"]
                raise FederationError(f"the study {row['name']!r} is {late}, so it takes no more answers [FE023]")
        return self.study(said.proposal, caller)

    def outcome(self, raw: bytes, caller: str, now: datetime) -> dict[str, Any]:
        """Take in how an attempt ended for one participant; "finished" replaces what it said before."""
        said = AttemptReport.unpack(raw, self.members)
        with self._changing(now) as file:
            row = self._row_for(file, said.proposal, _check_signer(said, caller))
            if said.participant not in (*json.loads(row["parties"]), COORDINATOR):
                raise FederationError(f"{said.participant} does not take part in the study {row['name']!r} [FE024]")
            if said.attempt > row["attempt"]:
                raise FederationError(f"the study {row['name']!r} has had no attempt {said.attempt} yet [FE025]")
            key = (said.proposal, said.attempt, said.participant)
            known = file.execute(
                "SELECT ended FROM outcomes WHERE proposal = ? AND attempt = ? AND participant = ?", key
            ).fetchone()
            if known is None or (said.ended == "finished" != known["ended"]):
                file.execute(
                    "INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?, ?, ?)",
                    (*key, said.ended, format_moment(now), raw),
                )
                file.execute(
                    "UPDATE attempts SET first_report = coalesce(first_report, ?) WHERE proposal = ? AND number = ?",
                    (format_moment(now), said.proposal, said.attempt),
                )
                _mark_changed(file, said.proposal)
        return self.study(said.proposal, caller)

    def finished_statements(self, id: str, caller: str) -> list[bytes]:
        """What the parties that have finished have signed."""
        self.study(id, caller)
        rows = self.file.rows(
            "SELECT raw FROM outcomes WHERE proposal = ? AND ended = 'finished' AND participant != ? "
            "ORDER BY participant, attempt",
            (id, COORDINATOR),
        )
        return [row["raw"] for row in rows]

    def withdraw(self, raw: bytes, caller: str, now: datetime) -> dict[str, Any]:
        """The analyst takes a proposal back, or a party its yes; nothing changes where all is decided."""
        said = Withdrawal.unpack(raw, self.members)
        with self._changing(now) as file:
            row = self._row_for(file, said.proposal, _check_signer(said, caller))
            if said.by not in (row["analyst"], *json.loads(row["parties"])):
                raise FederationError(f"{said.by} has nothing to withdraw from the study {row['name']!r} [FE026]")
            if row["state"] in FINAL:
                raise FederationError(
                    f"the study {row['name']!r} is {row['state']}, so nothing can be withdrawn [FE027]"
                )
            values = (said.proposal, said.by, format_moment(now), raw)
            if file.execute("INSERT OR IGNORE INTO withdrawals VALUES (?, ?, ?, ?)", values).rowcount:
                # A party that is the analyst too withdraws the whole.
                file.execute(
                    "UPDATE proposals SET withdrawn = coalesce(withdrawn, ?) WHERE id = ?", (said.by, said.proposal)
                )
                _mark_changed(file, said.proposal)
        return self.study(said.proposal, caller)

    def tick(self, now: datetime) -> None:
        """Let time pass: what is due happens."""
        with self._changing(now):
            pass

    def study(self, id: str, caller: str) -> dict[str, Any]:
        """What one whom a proposal concerns may know about it."""
        with self.file.reading() as file:
            return self._describe(file, self._row_for(file, id, caller), caller)

    def news(self, caller: str, since: int, most: int = MAX_NEWS) -> dict[str, Any]:
        """The studies of this member that have changed since a serial number, and the number from which to go on."""
        with self.file.reading() as file:
            last: int = file.execute("SELECT last FROM serials").fetchone()["last"]
            rows = file.execute(
                "SELECT * FROM proposals WHERE serial > :since AND (:caller IN (:hub, analyst) OR EXISTS "
                "(SELECT 1 FROM json_each(parties) WHERE value = :caller)) ORDER BY serial LIMIT :most",
                {"since": min(since, last), "caller": caller, "hub": COORDINATOR, "most": most},
            ).fetchall()
            serial = rows[-1]["serial"] if len(rows) == most else last
            return {"serial": serial, "studies": [self._describe(file, row, caller) for row in rows]}

    def find_ended_before(self, moment: datetime) -> set[str]:
        """The proposals that came to an end before a moment."""
        return {
            row["id"] for row in self.file.rows("SELECT id FROM proposals WHERE ended <= ?", (format_moment(moment),))
        }

    def running_attempts(self) -> list[RunningAttempt]:
        """The attempts that run now, or have not ended for everybody."""
        rows = self.file.rows(
            "SELECT *, EXISTS (SELECT 1 FROM outcomes WHERE proposal = id AND outcomes.attempt = proposals.attempt "
            "AND participant = ?) AS reported FROM proposals WHERE state = 'running' AND NOT waits ORDER BY id",
            (COORDINATOR,),
        )
        return [
            RunningAttempt(
                row["id"],
                row["attempt"],
                (*json.loads(row["parties"]), COORDINATOR),
                row["withdrawn"] is not None,
                bool(row["reported"]),
            )
            for row in rows
        ]

    @contextmanager
    def _changing(self, now: datetime) -> Iterator[sqlite3.Connection]:
        """One transaction, at whose end everything that is due has happened."""
        with self.file.writing() as file:
            before = file.execute("SELECT last FROM serials").fetchone()["last"]
            yield file
            self._advance(file, now)
            after = file.execute("SELECT last FROM serials").fetchone()["last"]
        if after != before:
            self.changed()

    def _advance(self, file: sqlite3.Connection, now: datetime) -> None:
        """Take every step that is due; whoever has waited longest comes first, and keeps its parties' places."""
        places, present = {"all": self.part.studies_at_once}, self.present()
        rows = file.execute(
            "SELECT * FROM proposals WHERE state IN ('open', 'running') "
            "ORDER BY state DESC, queued IS NULL, queued, received, id"
        ).fetchall()
        for row in rows:
            case = self._facts(file, row)
            step = next_step(case, now, self.part)
            here = present is None or present >= set(case.parties)
            if step == "start" and here and self._is_free(places, case.parties):
                number = case.attempt + 1
                file.execute("INSERT INTO attempts VALUES (?, ?, ?, NULL)", (row["id"], number, format_moment(now)))
                file.execute(
                    "UPDATE proposals SET state = 'running', attempt = ?, waits = 0 WHERE id = ?", (number, row["id"])
                )
                _mark_changed(file, row["id"])
            elif step == "start":
                if not row["waits"]:
                    serial = _increment_serial(file)
                    file.execute("UPDATE proposals SET waits = 1, queued = ? WHERE id = ?", (serial, row["id"]))
                    _mark_changed(file, row["id"])
            elif step is not None:
                file.execute(
                    "UPDATE proposals SET state = ?, ended = ? WHERE id = ?", (step, format_moment(now), row["id"])
                )
                if step != "done":  # who reads a result reads there whose signatures it needs
                    file.execute("DELETE FROM packed WHERE proposal = ?", (row["id"],))
                _mark_changed(file, row["id"])
            if (step == "start" and here) or (step is None and case.state == "running"):
                self._take(places, case.parties)  # also for one that waits for others: nobody overtakes it

    def _is_free(self, places: dict[str, int], parties: tuple[str, ...]) -> bool:
        each = self.part.studies_per_party
        return places["all"] > 0 and all(places.get(f"party {name}", each) > 0 for name in parties)

    def _take(self, places: dict[str, int], parties: tuple[str, ...]) -> None:
        places["all"] -= 1
        for name in parties:
            places[f"party {name}"] = places.get(f"party {name}", self.part.studies_per_party) - 1

    def _facts(self, file: sqlite3.Connection, row: sqlite3.Row) -> ProposalFacts:
        key = (row["id"],)
        answers = file.execute("SELECT party, yes, retries FROM answers WHERE proposal = ?", key)
        outcomes = file.execute("SELECT attempt, participant, ended FROM outcomes WHERE proposal = ?", key)
        last = file.execute(
            "SELECT started, first_report FROM attempts WHERE proposal = ? AND number = ?", (row["id"], row["attempt"])
        ).fetchone()
        started, first = (None, None) if last is None else (last["started"], last["first_report"])
        return ProposalFacts(
            row["state"],
            row["analyst"],
            tuple(json.loads(row["parties"])),
            datetime.fromisoformat(row["deadline"]),
            {each["party"]: (bool(each["yes"]), each["retries"]) for each in answers},
            row["withdrawn"],
            row["attempt"],
            None if started is None else datetime.fromisoformat(started),
            None if first is None else datetime.fromisoformat(first),
            {(each["attempt"], each["participant"]): each["ended"] for each in outcomes},
        )

    def _describe(self, file: sqlite3.Connection, row: sqlite3.Row, caller: str) -> dict[str, Any]:
        state: State = row["state"]
        answers = dict.fromkeys(json.loads(row["parties"]))
        said = file.execute("SELECT party, yes, why, raw FROM answers WHERE proposal = ?", (row["id"],)).fetchall()
        answers |= {each["party"]: bool(each["yes"]) for each in said}
        signed = {each["party"]: each["raw"].decode("ascii") for each in said if _WORDLESS in each["raw"]}
        runs = state == "running" and row["withdrawn"] is None and not row["waits"]
        names = ("id", "name", "kind", "digest", "analyst", "purpose", "state", "attempt", "made", "deadline", "ended")
        shown = {name: row[name] for name in names}
        shown |= {"parties": list(answers), "answers": answers, "signed": signed, "withdrawn": row["withdrawn"]}
        shown |= {"room": attempt_room(row["id"], row["attempt"]) if runs else None, "serial": row["serial"]}
        if caller in (row["analyst"], COORDINATOR):
            shown["reasons"] = {each["party"]: each["why"] for each in said if each["why"]}
        return shown

    def _row_for(self, file: sqlite3.Connection, id: str, caller: str) -> sqlite3.Row:
        row: sqlite3.Row | None = file.execute("SELECT * FROM proposals WHERE id = ?", (id,)).fetchone()
        if row is None or caller not in (row["analyst"], *json.loads(row["parties"]), COORDINATOR):
            raise FederationError(_UNKNOWN)  # the same for both, so that nobody learns what others propose
        return row

    def _check_room(self, file: sqlite3.Connection, analyst: str, size: int, now: datetime) -> None:
        today = file.execute(
            "SELECT count(*) FROM proposals WHERE analyst = ? AND received > ?",
            (analyst, format_moment(now - timedelta(days=1))),
        ).fetchone()[0]
        if today >= MAX_PROPOSALS_A_DAY:
            raise FederationError(
                f"{analyst} has proposed {today} studies within a day, and the hub takes no more [FE028]"
            )
        count, held = file.execute(
            "SELECT count(*), coalesce(sum(bytes), 0) FROM proposals "
            "WHERE analyst = ? AND state IN ('open', 'running')",
            (analyst,),
        ).fetchone()
        if count >= self.part.proposals or held + size > MAX_OPEN_BYTES:
            raise FederationError(
                f"{analyst} has {count} proposals that are not decided yet, and the hub keeps no more of them: wait, "
                "or cancel one [FE029]"
            )


def _check_signer(said: SignedStatement, caller: str) -> str:
    if said.signer != caller:
        raise FederationError(
            f"this is signed by {said.signer} and comes from {caller}; everybody speaks for itself [FE030]"
        )
    return caller


def _increment_serial(file: sqlite3.Connection) -> int:
    serial: int = file.execute("UPDATE serials SET last = last + 1 RETURNING last").fetchone()["last"]
    return serial


def _mark_changed(file: sqlite3.Connection, id: str) -> None:
    file.execute("UPDATE proposals SET serial = ? WHERE id = ?", (_increment_serial(file), id))
