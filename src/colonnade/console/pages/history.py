"""What has ended: reports, attempts, and why a study failed, with what to do."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from colonnade.console.layout import render
from colonnade.console.pages.failures import Failure, explained
from colonnade.console.party import PAST, PartyDesk
from colonnade.errors import OfficeError
from colonnade.standing.office import Attempt, Entry

PAGE = 50
"""Studies on one page."""


@dataclass(frozen=True)
class Ended:
    """One study that is over."""

    entry: Entry
    attempts: list[tuple[Attempt, Failure | None]]
    report: bool

    @property
    def reason(self) -> str:
        """Why there is no result, where there is none."""
        refused = (self.entry.assessment or {}).get("refused")
        if self.entry.state == "refused":
            return str(refused or "It could not be checked.")
        if self.entry.state == "expired":
            return "Not everybody answered before the deadline. The analyst can propose it again."
        if self.entry.state == "declined" and not self.entry.why:
            no = [party for party, said in self.entry.answers.items() if said is False]
            return f"{', '.join(no) or 'A party'} said no."
        return self.entry.why or ""


async def page(request: Request) -> Response:
    """All studies that are over, the newest first; with ``?study=`` the report of one of them."""
    desk: PartyDesk = request.app.state.desk
    chosen, place = request.query_params.get("study", ""), _place(request.query_params.get("page", "1"))
    ended, more = await run_in_threadpool(_ended, desk, place)
    shown = next((each.entry for each in ended if each.entry.id == chosen and each.report), None)
    if chosen and shown is None:
        shown = await run_in_threadpool(_chosen, desk, chosen)
    return render(request, "history.html", ended=ended, shown=shown, place=place, more=more)


def _ended(desk: PartyDesk, place: int) -> tuple[list[Ended], bool]:
    found = desk.office.entries(PAST, PAGE + 1, PAGE * (place - 1))
    return [_one(desk, entry) for entry in found[:PAGE]], len(found) > PAGE


def _one(desk: PartyDesk, entry: Entry) -> Ended:
    attempts = [(attempt, explained(attempt.message, desk.record(attempt))) for attempt in desk.attempts(entry)]
    return Ended(entry, attempts, desk.report(entry) is not None)


def _chosen(desk: PartyDesk, id: str) -> Entry | None:
    with suppress(OfficeError):
        entry = desk.office.entry(id)
        if entry.id == id and entry.state in PAST and desk.report(entry):
            return entry
    return None


def _place(said: str) -> int:
    return int(said) if said.isascii() and said.isdigit() and 0 < len(said) < 6 and int(said) else 1
