"""What the pages of the hub's console may ask: members, proposals, and the results of those that are done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from colonnade.disk import reading
from colonnade.errors import ColonnadeError, FederationError, one_code
from colonnade.harmless import harmless
from colonnade.models import Estimator
from colonnade.protocols.roles import COORDINATOR
from colonnade.standing.desk import Desk
from colonnade.standing.standing_file import AuditLog

_LATEST = 1 << 62  # no serial number is as large
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
        self.audit = AuditLog(self.desk.file)

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

    def only_lines_of(self, person: str) -> str | None:
        """A person of a member's name reads her own lines."""
        return None if self._sees_as(person) == COORDINATOR else person

    def _sees_as(self, person: str | None) -> str:
        """The member as which a person is shown things: her own member's, or the hub."""
        return person if person is not None and person in self.desk.members.roles else COORDINATOR


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
