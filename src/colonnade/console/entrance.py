"""Signing in and out, and the page of who did what."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from colonnade.console.access import SESSION_SECONDS
from colonnade.console.guard import ENTER, form
from colonnade.console.layout import refusal, render

_LATEST = 500


def enter(request: Request) -> Response:
    """The page of a sign-in link; what signs in is its button, so that looking ahead at the link uses nothing up."""
    if request.method == "GET":
        return render(request, "enter.html", token=request.query_params.get("link", "")[:64], next=_own(request))
    access = request.app.state.access
    fields = form(request)
    entered = access.enter(fields.get("link", ""), request.cookies.get(access.cookie))
    if entered is None:
        return refusal(
            request, 403, "This link was used already, or is older than ten minutes; make a new one. [CO007]"
        )
    token, session = entered
    request.app.state.desk.audit.add(session.person, session.role, "signed in")
    response = RedirectResponse(_path(fields.get("next", "/")), 303)
    response.set_cookie(
        access.cookie, token, max_age=SESSION_SECONDS, httponly=True, samesite="strict", secure=access.secure
    )
    return response


def leave(request: Request) -> Response:
    """End the session."""
    access, session = request.app.state.access, request.state.session
    access.leave(session)
    request.app.state.desk.audit.add(session.person, session.role, "signed out")
    response = RedirectResponse(ENTER, 303)
    response.delete_cookie(access.cookie, httponly=True, samesite="strict", secure=access.secure)
    return response


def log(request: Request) -> Response:
    """Who clicked what, the latest first."""
    desk = request.app.state.desk
    clicks = desk.audit.latest(_LATEST, desk.only_lines_of(request.state.session.person))
    return render(request, "log.html", clicks=clicks)


def _own(request: Request) -> str:
    return _path(request.query_params.get("next", "/"))


def _path(text: str) -> str:
    """A path of this console, whatever was asked for; "//host" would lead elsewhere."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() else "/"
