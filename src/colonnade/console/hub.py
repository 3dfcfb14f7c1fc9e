"""What the pages of the hub's console may ask: members, proposals, and the results of those that are done."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colonnade.disk import reading
from colonnade.errors import ColonnadeError, FederationError, StorageError, one_code
from colonnade.harmless import harmless
from colonnade.models import Estimator
from colonnade.protocols.roles import COORDINATOR
from colonnade.standing.desk import Desk
from colonnade.standing.office import Click

_LATEST = 1 << 62  # no serial number is as large
_CLICKS = """create table if not exists clicks (
  number integer primary key, at text not null, who text not null, role text not null, what text not null,
  study text, detail text not null)"""
_LARGEST_STATEMENT = 1 << 24


@dataclass(frozen=True)
class Result:
    """What came of a study that is done."""

    lines: tuple[str, ...]
    """The result in a few lines."""
    rows: tuple[Mapping[str, Any], ...]
    """The rows of its privacy statement."""
    report: Path | None


@dataclass
class HubDesk:
    """The hub's view of its federation. A person of a member's name sees what that member may; others see all."""

    desk: Desk
    results: Path
    """The folder that holds a folder for each study that is done."""
    present: Callable[[], Collection[str]] = tuple
    """The members that are connected now."""
    _known: dict[str, Result] = field(default_factory=dict)

    def __post_init__(self) -> None:
        path = self.desk.folder / "console.db"
        if not path.exists():
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        with self._log() as log:
            log.execute(_CLICKS)

    @property
    def name(self) -> str:
        """The federation's name."""
        return f"{self.desk.members.name} · hub"

    def standing(self, person: str) -> tuple[bool, str]:
        """How many of the studies that this person may see run and wait."""
        states = [study["state"] for study in self.studies(person)]
        running, waiting = states.count("running"), states.count("open")
        return True, f"{running} running, {waiting} waiting for answers or for their turn."

    def pulse(self) -> str:
        """The serial number of the last change, and who is here."""
        return f"{self.desk.news(COORDINATOR, _LATEST)['serial']} {sorted(self.present())}"

    def studies(self, person: str | None) -> list[dict[str, Any]]:
        """All proposals that this person may see, the newest first."""
        found: list[dict[str, Any]] = []
        since = 0
        while True:
            news = self.desk.news(self._sees_as(person), since)
            found += news["studies"]
            if news["serial"] == since or not news["studies"]:
                return sorted(found, key=lambda study: (study["made"], study["id"]), reverse=True)
            since = news["serial"]

    def study(self, id: str, person: str | None) -> dict[str, Any]:
        """One of them."""
        return self.desk.study(id, self._sees_as(person))

    def result(self, id: str, person: str | None) -> Result:
        """The result of a study that this person may see; the report, as over a line, only for those who may read it.

        Its sizes and seconds tell the number of rows: it is for the parties of the study and the hub's own people.
        """
        study = self.study(id, person)
        if study["state"] != "done":
            raise FederationError(
                f"the study {harmless(study['name'])!r} is {study['state']}, so it has no result [FE016]"
            )
        if id not in self._known:
            self._known[id] = _read(self.results / id)
        found = self._known[id]
        return found if self._sees_as(person) in (COORDINATOR, *study["parties"]) else replace(found, report=None)

    def log(self, who: str, role: str, what: str, study: str | None = None, detail: str = "") -> None:
        """Write down who did what."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        with self._log() as log:
            log.execute(
                "insert into clicks (at, who, role, what, study, detail) values (?, ?, ?, ?, ?, ?)",
                (at, harmless(who), role, what, study, harmless(detail)),
            )

    def clicks(self, person: str, limit: int = 200) -> Sequence[Click]:
        """What was written down, the latest first; a person of a member's name reads her own lines."""
        with self._log() as log:
            rows = log.execute(
                "select at, who, role, what, study, detail from clicks where :all or who = :who "
                "order by number desc limit :limit",
                {"all": self._sees_as(person) == COORDINATOR, "who": harmless(person), "limit": limit},
            ).fetchall()
        return [Click(*row) for row in rows]

    def _sees_as(self, person: str | None) -> str:
        """The member as which a person is shown things: her own member's, or the hub."""
        return person if person is not None and person in self.desk.members.roles else COORDINATOR

    @contextmanager
    def _log(self) -> Iterator[sqlite3.Connection]:
        path = self.desk.folder / "console.db"
        try:
            with closing(sqlite3.connect(path, timeout=10)) as log, log:
                yield log
        except sqlite3.Error as error:
            raise StorageError(f"{path} cannot be used: {error} [SO019]") from None


def _read(folder: Path) -> Result:
    """The result in this folder; what is missing or damaged is said in its place."""
    try:
        lines = tuple(Estimator.load(folder / "model.json").summary())
    except ColonnadeError as error:
        lines = (one_code(f"The model cannot be shown here: {error}."),)
    try:
        rows = tuple(reading.read_json(folder / "privacy.json", _LARGEST_STATEMENT)["rows"])
    except (reading.Unreadable, KeyError, TypeError):
        rows = ()
    report = folder / "report.html"
    return Result(lines, rows, report if report.is_file() else None)
