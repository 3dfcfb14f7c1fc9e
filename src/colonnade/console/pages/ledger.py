"""What was spent on whom over time, what is left of the caps, whether the ledger is whole, and the ledger as a file."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from colonnade.console import pictures
from colonnade.console.layout import render
from colonnade.console.meaning import CapLeft
from colonnade.console.party import PartyDesk
from colonnade.errors import ColonnadeError
from colonnade.report import words
from colonnade.study import book

_LATEST = 100
_FORMATS = {"csv": "text/csv", "jsonl": "application/x-ndjson"}


async def page(request: Request) -> Response:
    """The ledger; with ``?verify=1`` it is checked as a whole first."""
    desk: PartyDesk = request.app.state.desk
    verify = request.query_params.get("verify") == "1"
    return render(request, "ledger.html", **await run_in_threadpool(_shown, desk, verify))


async def export(request: Request) -> Response:
    """The whole chain as a file."""
    desk: PartyDesk = request.app.state.desk
    kind = request.path_params["kind"]
    known = await run_in_threadpool(desk.book)
    if known is None or kind not in _FORMATS:
        raise HTTPException(404)
    text, _ = await run_in_threadpool(book.export, known, kind)
    session = request.state.session
    await run_in_threadpool(desk.log, session.person, session.role, "exported the ledger", None, kind)
    attached = {"content-disposition": f'attachment; filename="ledger.{kind}"'}
    return Response(text, media_type=_FORMATS[kind], headers=attached)


ROUTES = (Route("/ledger/export.{kind}", export),)


def _shown(desk: PartyDesk, verify: bool) -> dict[str, Any]:
    delta = desk.delta
    facts = desk.ledger_facts(delta)
    verdict = _verdict(desk) if verify else None
    if facts is None:
        return {"facts": None, "file": desk.config.ledger, "verdict": verdict}
    known = desk.config.book()
    left = [
        CapLeft.of({"observer": each["observer"], "cap": each["cap"], "period": each["days"], "spent": each["spent"]}
                   | {"after": each["spent"], "at_most": each["spent"]})
        for each in facts["left"]
    ]  # fmt: skip
    return {
        "facts": facts,
        "file": desk.config.ledger,
        "verdict": verdict,
        "caps": left,
        "totals": [(_named(who), words.epsilon(_value(total), 4)) for who, total in facts["totals"].items()],
        "entries": facts["entries"][: -_LATEST - 1 : -1],
        "chart": pictures.spending(*known.course(delta), datetime.now(UTC), delta),
        "count": words.counted(len(facts["entries"]), "entry", "entries"),
        "delta": words.power(delta),
        "own": desk.name,
    }


def _verdict(desk: PartyDesk) -> tuple[bool, str]:
    """Whether the ledger is whole, and a sentence."""
    known = desk.book()
    if known is None:
        return True, "There is no ledger yet, so there is nothing to verify."
    try:
        known.verify()
    except ColonnadeError as error:
        return False, str(error)
    return True, f"The ledger is whole: every hash, entry and sum was computed anew. Its head is {known.head}."


def _named(who: str) -> str:
    return "all others together" if who == "others" else who


def _value(total: float | None) -> float:
    return math.inf if total is None else total
