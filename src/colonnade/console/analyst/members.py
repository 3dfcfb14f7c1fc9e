"""Who belongs to the federation, in what role, by which key."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from colonnade.console.layout import render
from colonnade.standing.words import six_words


def page(request: Request) -> Response:
    """All members."""
    desk = request.app.state.desk
    members, here = desk.desk.members, set(desk.present())
    rows = [
        {"name": name, "role": role, "pin": (pin := members.pins[name]), "words": six_words(pin), "here": name in here}
        for name, role in members.roles.items()
    ]
    return render(request, "hub/members.html", members=rows, address=members.address)
