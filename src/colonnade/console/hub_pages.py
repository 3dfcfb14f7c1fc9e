"""The pages of the hub's console: what an analyst asks of a federation, and what came of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from colonnade.console.app import Pages
from colonnade.console.frames import report_response
from colonnade.console.layout import render
from colonnade.errors import StorageError
from colonnade.privacy.rows import rounded_up
from colonnade.standing.words import six_words

MOST = 4
"""Studies beside each other."""


def show_proposals(request: Request) -> Response:
    """The list."""
    return render(request, "hub/proposals.html", studies=request.app.state.desk.studies(request.state.session.person))


def show_proposal(request: Request) -> Response:
    """One proposal, with its result if it is done."""
    desk, person = request.app.state.desk, request.state.session.person
    study = desk.study(request.path_params["id"], person)
    result = desk.result(study["id"], person) if study["state"] == "done" else None
    return render(request, "hub/proposal.html", study=study, result=result)


def send_report(request: Request) -> Response:
    """Its report, as the content of a frame."""
    result = request.app.state.desk.result(request.path_params["id"], request.state.session.person)
    if result.report is None:
        raise StorageError("this study has no report here [SO017]")
    return report_response(result.report)


def show_results(request: Request) -> Response:
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
    prices = [(who, [price_of(result.rows, who) for _, result in beside]) for who in observers]
    return render(request, "hub/results.html", done=done, chosen=chosen, beside=beside, prices=prices, most=MOST)


def price_of(rows: Any, observer: str) -> str:
    """What an observer can learn by a study, as text."""
    found = next((row for row in rows if row["observer"] == observer), None)
    if found is None:
        return "not in this study"
    if found["epsilon"] is None:
        return "no guarantee"
    return f"{rounded_up(found['epsilon'])} (delta {found['delta']:g}; {found['adjacency']})"


def show_members(request: Request) -> Response:
    """All members."""
    desk = request.app.state.desk
    members, here = desk.desk.members, set(desk.present())
    rows = [
        {"name": name, "role": role, "pin": (pin := members.pins[name]), "words": six_words(pin), "here": name in here}
        for name, role in members.roles.items()
    ]
    return render(request, "hub/members.html", members=rows, address=members.address)


PAGES: Pages = (
    ("/proposals", "Proposals", show_proposals),
    ("/results", "Results", show_results),
    ("/members", "Members", show_members),
    ("/proposals/{id}", None, show_proposal),
    ("/proposals/{id}/report", None, send_report),
)
"""The pages of the hub's console, in the order of the menu."""
