"""Results of several studies side by side."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from colonnade.console.layout import render
from colonnade.privacy.rows import rounded_up

MOST = 4
"""Studies beside each other."""


def page(request: Request) -> Response:
    """The studies that are done, and those that were chosen beside each other."""
    desk, person = request.app.state.desk, request.state.session.person
    done = [study for study in desk.studies(person) if study["state"] == "done"]
    chosen = request.query_params.getlist("id")[:MOST]
    names = Counter(study["name"] for study in done)
    picked = [
        study | {"label": study["name"] if names[study["name"]] == 1 else f"{study['name']} ({study['id'][:6]})"}
        for study in done
        if study["id"] in chosen
    ]
    beside = [(study, desk.result(study["id"], person)) for study in picked]
    observers = list(dict.fromkeys(row["observer"] for _, result in beside for row in result.rows))
    prices = [(who, [_price(result.rows, who) for _, result in beside]) for who in observers]
    return render(request, "hub/results.html", done=done, chosen=chosen, beside=beside, prices=prices, most=MOST)


def _price(rows: Any, observer: str) -> str:
    """What an observer can learn by a study, as text."""
    found = next((row for row in rows if row["observer"] == observer), None)
    if found is None:
        return "not in this study"
    if found["epsilon"] is None:
        return "no guarantee"
    return f"{rounded_up(found['epsilon'])} (delta {found['delta']:g}; {found['adjacency']})"
