"""What `colonnade doctor` says: of this party, or of one study as this party."""

from __future__ import annotations

from itertools import islice
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from colonnade.console.layout import render
from colonnade.console.party import PartyDesk

_MOST_STUDIES = 50
_IN_WORDS = {"good": "well", "unsure": "look at it", "bad": "wrong"}


async def page(request: Request) -> Response:
    """The checks, once they were asked for with ``?run=1``; they read the table and dial the hub."""
    desk: PartyDesk = request.app.state.desk
    query = request.query_params
    asked = query.get("study", "") if query.get("run") == "1" else None
    return render(request, "doctor.html", **await run_in_threadpool(_shown, desk, asked))


def _shown(desk: PartyDesk, asked: str | None) -> dict[str, Any]:
    # A study that could not be priced in a child with limits is not planned in this process, which has none.
    known = (entry for entry, _ in desk.schemas() if (entry.assessment or {}).get("statement"))
    studies = list(islice(known, _MOST_STUDIES))
    entry = next((each for each in studies if each.id == asked), None)
    checks = None if asked is None else [(each, _IN_WORDS[each.level]) for each in desk.checks(entry)]
    return {"studies": studies, "entry": entry, "checks": checks}
