"""One study: who asks for what, the price for every observer, what would be left, and the answer to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from colonnade.console.frames import report_response
from colonnade.console.guard import form
from colonnade.console.layout import refusal, render
from colonnade.console.meaning import GENERAL, watcher
from colonnade.console.pages.failures import explained
from colonnade.console.party import PartyDesk, days_left
from colonnade.console.people import Person, person
from colonnade.errors import FederationError, IdentityError, OfficeError
from colonnade.report import words
from colonnade.standing.office import Entry

SHOWN_DIGITS = 16
"""Digits of the digest that a yes names."""
_MOST_COLUMNS = 200
_UNKNOWN = dict.fromkeys(
    ("refused", "description", "trial", "attempts", "ledger_news", "early_ends", "people", "forecast")
)
"""What the page asks of a check that has not ended."""
_NOTES = ("align", "keys", "schema_news", "security", "again", "watches")
"""Sentences of an assessment that are shown below the price."""


async def page(request: Request) -> Response:
    """Show a study, or take the answer to it."""
    desk: PartyDesk = request.app.state.desk
    entry = await run_in_threadpool(_entry, desk, request.path_params["id"])
    if request.method == "POST":
        return await run_in_threadpool(_answer, request, desk, entry)
    return render(request, "study.html", **await run_in_threadpool(_shown, desk, entry))


async def report(request: Request) -> Response:
    """The report of a study that is done."""
    desk: PartyDesk = request.app.state.desk
    entry = await run_in_threadpool(_entry, desk, request.path_params["id"])
    found = await run_in_threadpool(desk.report, entry)
    if found is None:
        raise HTTPException(404)
    return await run_in_threadpool(report_response, found)


ROUTES = (Route("/studies/{id}/report", report),)


def _entry(desk: PartyDesk, id: str) -> Entry:
    try:
        return desk.entry(id)
    except OfficeError:
        raise HTTPException(404) from None


def _shown(desk: PartyDesk, entry: Entry) -> dict[str, Any]:
    assessment = _UNKNOWN | dict(entry.assessment or {})
    prices, caps = desk.prices(entry), desk.caps(entry)
    return {
        "entry": entry,
        "asker": asker(desk, entry.analyst),
        "left": days_left(entry.deadline),
        "assessment": assessment,
        "columns": columns(assessment),
        "prices": prices,
        "caps": caps,
        "tightest": min(caps, key=lambda cap: cap.cap - cap.after, default=None),
        "needs": needs(assessment),
        "notes": [assessment[key] for key in _NOTES if assessment.get(key)],
        "general": GENERAL,
        "watcher": watcher(entry.analyst, entry.analyst in entry.answers),
        "digits": entry.digest[:SHOWN_DIGITS],
        "attempts": [(each, explained(each.message, desk.record(each))) for each in desk.attempts(entry)],
        "progress": desk.progress(entry) if entry.state == "running" else None,
        "report": desk.report(entry) is not None,
    }


def asker(desk: PartyDesk, name: str) -> Person | None:
    """Who asks, with the six words of the key; ``None`` where the federation's file does not tell."""
    try:
        members = desk.members()
    except (FederationError, IdentityError):
        return None
    return None if members is None or name not in members.roles else person(members, name)


def columns(assessment: Any) -> dict[str, Any]:
    """Our columns that the study reads, with what the schema says of them, and how many of others."""
    names = words.sequence(assessment.get("columns"))
    said = words.mapping(assessment.get("says"))
    return {
        "own": [(name, said.get(name, "")) for name in names[:_MOST_COLUMNS]],
        "more": max(0, len(names) - _MOST_COLUMNS),
        "others": sorted(words.mapping(assessment.get("others")).items()),
    }


def needs(assessment: Any) -> list[tuple[str, str]]:
    """What a run takes of this party's machine, in words."""
    figures = words.mapping(assessment.get("preflight"))
    found: list[tuple[str, str, Callable[[float], str]]] = [
        ("seconds", "Time, about", words.seconds),
        ("bytes", "Sent by us", words.size),
        ("memory", "Memory", words.size),
        ("rounds", "Rounds of messages", "{:,.0f}".format),
        ("partitions", "Partitions, added up by our workers", "{:,.0f}".format),
    ]
    figures_of = {key: words.number(figures.get(key)) for key, _, _ in found}
    return [(name, show(value)) for key, name, show in found if (value := figures_of[key]) is not None]


def _answer(request: Request, desk: PartyDesk, entry: Entry) -> Response:
    session, fields = request.state.session, form(request)
    what, by = fields.get("answer", ""), f"{session.person} in the console"
    if what == "approve":
        if fields.get("digits") != entry.digest[:SHOWN_DIGITS] or fields.get("sure") != "yes":
            return refusal(
                request, 400, "Nothing was approved: tick the box that names the digest and the price first. [CO019]"
            )
        desk.office.approve(entry.id, by)
        detail = f"digest {entry.digest}"
    elif what == "decline":
        detail = fields.get("why", "").strip()
        if not detail:
            return refusal(
                request, 400, "Nothing was declined: say why in a few words, which the analyst will read. [CO020]"
            )
        desk.office.decline(entry.id, by, detail)
    elif what == "withdraw":
        detail = fields.get("why", "").strip() or "withdrawn in the console"
        desk.office.withdraw(entry.id, by, detail)
    else:
        return refusal(request, 400, "Nothing was done: this form has no such answer. [CO021]")
    desk.log(session.person, session.role, what, entry.id, detail)
    return RedirectResponse(f"/studies/{entry.id}", 303)
