"""Our table under the schema of a study: rows, missing, clipped and unknown cells, drawn here and never sent."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from colonnade.console import pictures
from colonnade.console.layout import render
from colonnade.console.party import PartyDesk
from colonnade.errors import ColonnadeError
from colonnade.tables.survey import Surveyed

AGAIN = 3
"""Seconds after which a page whose table is still being read loads itself anew."""
_MOST_STUDIES = 50
_MOST_COLUMNS = 500


async def page(request: Request) -> Response:
    """The table under the newest schema, or under that of ``?study=``."""
    values = await run_in_threadpool(_shown, request.app.state.desk, request.query_params.get("study", ""))
    answer = render(request, "table.html", **values)
    if values["reading"]:
        answer.headers["refresh"] = str(AGAIN)
    return answer


def _shown(desk: PartyDesk, chosen: str) -> dict[str, Any]:
    found = list(islice(desk.schemas(), _MOST_STUDIES))
    entry, path = next((pair for pair in found if pair[0].id == chosen), found[0] if found else (None, None))
    data = desk.config.data
    values: dict[str, Any] = {
        "studies": [each for each, _ in found],
        "entry": entry,
        "file": desk.config.source().name,
        "called": data.name if isinstance(data, Path) else desk.config.source().name,
        "survey": None,
        "problem": None,
        "reading": False,
        "chart": None,
        "rows": [],
    }
    if path is None:
        return values
    try:
        survey = desk.survey(path)
    except ColonnadeError as error:
        return values | {"problem": str(error)}
    if survey is None:
        return values | {"reading": True}
    rows = [
        (_called(each), each.says, f"{each.missing:,}", f"{each.clipped:,}", f"{each.unknown:,}")
        for each in survey.columns[:_MOST_COLUMNS]
    ]
    return values | {"survey": survey, "rows": rows, "chart": pictures.cells(survey.columns)}


def _called(each: Surveyed) -> str:
    return each.name if each.name == each.source else f"{each.name} (column {each.source})"
