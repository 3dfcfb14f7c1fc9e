"""The office as the agent alone uses it: what the hub said, what must be told to it, and which attempts run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from colonnade.standing.office import FINAL, Entry, Office, State, now
from colonnade.standing.proposal import Ended, Proposal
from colonnade.standing.signed import written

_ENDS: Mapping[str, State] = {
    "done": "done",
    "failed": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
    "declined": "declined",
}
"""The states of the hub in which a proposal stays, and ours that follow."""


@dataclass(frozen=True)
class Untold:
    """What the hub has not been told yet."""

    answers: list[Entry]
    withdrawals: list[Entry]
    outcomes: list[tuple[str, int, Ended]]


@dataclass(frozen=True)
class Unfinished:
    """A proposal of which no attempt of ours has finished, as far as it matters for its files."""

    id: str
    analyst: str
    state: State
    deadline: str
    ended: str | None
    folder: Path

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in FINAL


class Filing(Office):
    """An office that is also written by the process that speaks to the hub; there is one such process."""

    def receive(self, proposal: Proposal) -> Entry:
        """Keep a proposal that has just come, to be checked; one that is known stays as it is."""
        values = (
            *(proposal.id, proposal.name, proposal.kind, proposal.digest, proposal.analyst, proposal.purpose),
            *(written(proposal.made), written(proposal.deadline), now(), json.dumps(dict.fromkeys(proposal.parties))),
        )
        with self.file.writing() as file:
            file.execute(
                "INSERT OR IGNORE INTO studies (id, name, kind, digest, analyst, purpose, made, deadline, received, "
                "answers, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'checking')",
                values,
            )
        return self.entry(proposal.id)

    def assessed(self, id: str, assessment: Mapping[str, Any], state: State, by: str | None) -> None:
        """Keep what a check has found, and what follows from it; only what is being checked changes."""
        with self.file.writing() as file:
            file.execute(
                "UPDATE studies SET assessment = ?, state = ?, answer_by = ? WHERE id = ? AND state = 'checking'",
                (json.dumps(assessment), state, by, id),
            )

    def heard(self, id: str, answers: Mapping[str, bool | None], state: str, ended: str | None) -> None:
        """Keep what the hub says of a proposal: it decides what has become of it, unless we refused it ourselves.

        Where our own attempt has finished, there is a result, whatever the hub says.
        """
        with self.file.writing() as file:
            file.execute("UPDATE studies SET answers = ? WHERE id = ?", (json.dumps(dict(answers)), id))
            if state in _ENDS:
                finished = file.execute(
                    "SELECT 1 FROM attempts WHERE study = ? AND state = 'finished'", (id,)
                ).fetchone()
                file.execute(
                    "UPDATE studies SET state = ?, ended = ?, withdrawal = 0 "
                    "WHERE id = ? AND (state NOT IN ('refused', 'done', 'failed', 'expired') "
                    "OR (state = 'expired' AND attempt > 0))",  # we were away while it came to an end
                    ("done" if finished else _ENDS[state], ended or now(), id),
                )

    def tell_again(self, id: str, party: str, told: Mapping[str, Any]) -> None:
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
                    {"now": now(), "ended": _before(grace)},
                ).fetchall()
            ]

    def begin(self, id: str, number: int, room: str, most: int, grace: timedelta) -> bool:
        """Note that an attempt begins; false where it must not.

        That is: not approved, not new, too many, one has finished, or the deadline is longer ago than ``grace``.
        It is on disk before the process starts, so an attempt that was lost with the agent is known as one.
        """
        with self.file.writing() as file:
            row = file.execute("SELECT state, attempt, told, deadline FROM studies WHERE id = ?", (id,)).fetchone()
            over = file.execute(
                "SELECT count(*) FROM attempts WHERE study = ? AND state IN ('running', 'finished')", (id,)
            ).fetchone()[0]
            if row is None or row["state"] not in ("approved", "running") or over:
                return False
            if not row["attempt"] < number <= most or row["deadline"] <= _before(grace):
                return False
            file.execute(
                "INSERT INTO attempts (study, number, room, state, started) VALUES (?, ?, ?, 'running', ?)",
                (id, number, room, now()),
            )
            file.execute("UPDATE studies SET state = 'running', attempt = ? WHERE id = ?", (number, id))
        return True

    def end(self, id: str, number: int, ended: Ended, message: str | None) -> None:
        """Note how an attempt ended."""
        with self.file.writing() as file:
            file.execute(
                "UPDATE attempts SET state = ?, ended = ?, message = ? WHERE study = ? AND number = ?",
                (ended, now(), message, id, number),
            )

    def forget_assessment(self, id: str) -> None:
        """Drop what was found when a proposal was checked: it ended without a result, and its files are gone."""
        self._set("UPDATE studies SET assessment = NULL WHERE id = ?", (id,))

    def unended(self) -> list[tuple[str, int]]:
        """Attempts of which nobody has noted an end."""
        with self.file.reading() as file:
            rows = file.execute("SELECT study, number FROM attempts WHERE state = 'running'").fetchall()
        return [(row["study"], row["number"]) for row in rows]

    def untold(self) -> Untold:
        """What the hub must be told, as long as it has not said that it knows."""
        with self.file.reading() as file:
            answers = file.execute(
                "SELECT * FROM studies WHERE told = 0 AND (state IN ('approved', 'refused') "
                "OR (state = 'declined' AND answer_by IS NOT NULL) "
                "OR (state IN ('running', 'done', 'failed') AND attempt > 0)) ORDER BY received"
            ).fetchall()
            back = file.execute("SELECT * FROM studies WHERE withdrawal = 1 AND state = 'cancelled'").fetchall()
            ends = file.execute(
                "SELECT study, number, state FROM attempts WHERE told = 0 AND state != 'running' ORDER BY ended"
            ).fetchall()
        return Untold(
            [self._entry(row) for row in answers],
            [self._entry(row) for row in back],
            [(row["study"], row["number"], row["state"]) for row in ends],
        )

    def told_answer(self, id: str) -> None:
        """The hub has our answer."""
        self._set("UPDATE studies SET told = 1 WHERE id = ?", (id,))

    def told_withdrawal(self, id: str) -> None:
        """The hub knows that we withdrew."""
        self._set("UPDATE studies SET withdrawal = 2 WHERE id = ?", (id,))

    def told_outcome(self, id: str, number: int) -> None:
        """The hub knows how an attempt ended."""
        self._set("UPDATE attempts SET told = 1 WHERE study = ? AND number = ?", (id, number))

    def say(self, connected: bool, since: str, hub: str, reason: str | None, pending: Iterable[str]) -> None:
        """Write down for others how the agent stands."""
        said = {"connected": connected, "since": since, "hub": hub, "reason": reason, "pid": os.getpid()}
        self.remember("status", json.dumps(said | {"members_pending": sorted(pending)}))

    def over(self, id: str) -> bool:
        """Whether nothing more will happen to a proposal that we know."""
        return self.entry(id).state in FINAL

    def known(self, ids: Iterable[str]) -> set[str]:
        """Those of these proposals that we know."""
        with self.file.reading() as file:
            return {each for each in ids if file.execute("SELECT 1 FROM studies WHERE id = ?", (each,)).fetchone()}

    def proposed_by(self, analyst: str, since: str) -> tuple[int, int]:
        """How many proposals of an analyst have not ended, and how many came since a moment."""
        with self.file.reading() as file:
            rows = file.execute(
                "SELECT state, count(*) AS number, sum(received > ?) AS lately FROM studies WHERE analyst = ? "
                "GROUP BY state",
                (since, analyst),
            ).fetchall()
        still_open = sum(row["number"] for row in rows if row["state"] not in FINAL)
        return still_open, sum(row["lately"] for row in rows)

    def unfinished(self) -> list[Unfinished]:
        """The proposals of which no attempt of ours has finished, the newest first.

        An agent looks at them again and again. Those that have finished are more and more, and are not read for that.
        """
        with self.file.reading() as file:
            rows = file.execute(
                "SELECT id, analyst, state, deadline, ended FROM studies WHERE NOT EXISTS "
                "(SELECT 1 FROM attempts WHERE study = studies.id AND attempts.state = 'finished') "
                "ORDER BY received DESC, id"
            ).fetchall()
        return [Unfinished(**dict(row), folder=self.folder / "studies" / row["id"]) for row in rows]

    def _set(self, statement: str, values: tuple[Any, ...]) -> None:
        with self.file.writing() as file:
            file.execute(statement, values)


def _before(grace: timedelta) -> str:
    """The latest deadline that is this long ago."""
    return written(datetime.now(UTC) - grace)
