"""Members, their pins and the words to compare, who waits to be accepted, and our own key."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from colonnade.console.guard import form
from colonnade.console.layout import refusal, render
from colonnade.console.party import PartyDesk
from colonnade.console.people import KeyAge, person
from colonnade.errors import ColonnadeError
from colonnade.wire import Certificate


async def page(request: Request) -> Response:
    """Everybody in the federation, as this party knows them; a person who has compared the words accepts newcomers."""
    if request.method == "POST":
        return await run_in_threadpool(_accept, request, request.app.state.desk)
    return render(request, "people.html", **await run_in_threadpool(_shown, request.app.state.desk))


def _accept(request: Request, desk: PartyDesk) -> Response:
    session, fields = request.state.session, form(request)
    name, pin = fields.get("name", ""), fields.get("pin", "")
    if fields.get("compared") != "yes":
        return refusal(request, 400, "Nobody was accepted: compare the six words first, and tick the box. [CO018]")
    desk.accept(name, pin)
    desk.log(session.person, session.role, "accepted a member", None, f"{name}, {pin}")
    return RedirectResponse("/people", 303)


def _shown(desk: PartyDesk) -> dict[str, Any]:
    problem, members, pending = None, None, []
    try:
        members, pending = desk.members(), desk.newcomers()
    except ColonnadeError as error:
        problem = str(error)
    return {
        "federation": desk.federation,
        "members": members,
        "people": [] if members is None else [person(members, name) for name in members.roles],
        "pending": pending,
        "problem": problem,
        "own": own_key(desk),
        "key_file": desk.config.key,
        "party_file": desk.config.path.name,
        "approval": desk.config.approval,
    }


def own_key(desk: PartyDesk) -> tuple[str, KeyAge] | None:
    """The pin of our own key and its dates; ``None`` where the certificate cannot be read."""
    try:
        certificate = Certificate.load(desk.config.key.with_suffix(".crt"))
    except ColonnadeError:
        return None
    return certificate.fingerprint, KeyAge.of(certificate)
