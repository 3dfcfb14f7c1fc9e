"""What waits for an answer: who asks, what for, until when, and the price for whoever learns most."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from colonnade.console.layout import render
from colonnade.console.meaning import Prices
from colonnade.console.party import WAITING, PartyDesk, days_left
from colonnade.standing.office import Entry


@dataclass(frozen=True)
class Asked:
    """One proposal that waits."""

    entry: Entry
    prices: Prices | None
    """What every observer would learn, once that was computed."""
    left: str


async def page(request: Request) -> Response:
    """All proposals that wait for this party, the newest first."""
    asked = await run_in_threadpool(_asked, request.app.state.desk)
    return render(request, "inbox.html", asked=asked)


def _asked(desk: PartyDesk) -> list[Asked]:
    found = []
    for entry in desk.office.entries(WAITING):
        found.append(Asked(entry, desk.prices(entry), days_left(entry.deadline)))
    return found
