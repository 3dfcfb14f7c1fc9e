"""Signing in and out, and the page of who did what."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from colonnade.console.access import SESSION_SECONDS
from colonnade.console.layout import refusal, render
from colonnade.console.security_middleware import LOGIN, form_fields

_LATEST = 500


def sign_in(request: Request) -> Response:
    """The page of a sign-in link; what signs in is its button, so that looking ahead at the link uses nothing up."""
    if request.method == "GET":
        return render(request, "enter.html", token=request.query_params.get("link", "")[:64], next=_next_page(request))
    access = request.app.state.access
    fields = form_fields(request)
    entered = access.sign_in(fields.get("link", ""), request.cookies.get(access.cookie))
    if entered is None:
        return refusal(
            request, 403, "This link was used already, or is older than ten minutes; make a new one. [CO007]"
        )
    token, session = entered
    request.app.state.desk.audit.add(session.person, session.role, "signed in")
    response = RedirectResponse(_own_path(fields.get("next", "/")), 303)
    response.set_cookie(
        access.cookie, token, max_age=SESSION_SECONDS, httponly=True, samesite="strict", secure=access.secure
    )
    return response


def sign_out(request: Request) -> Response:
    """End the session."""
    access, session = request.app.state.access, request.state.session
    access.sign_out(session)
    request.app.state.desk.audit.add(session.person, session.role, "signed out")
    response = RedirectResponse(LOGIN, 303)
    response.delete_cookie(access.cookie, httponly=True, samesite="strict", secure=access.secure)
    return response


def show_audit_log(request: Request) -> Response:
    """Who clicked what, the latest first."""
    desk = request.app.state.desk
    clicks = desk.audit.latest(_LATEST, desk.audit_reader(request.state.session.person))
    return render(request, "log.html", clicks=clicks)


def _next_page(request: Request) -> str:
    return _own_path(request.query_params.get("next", "/"))


def _own_path(text: str) -> str:
    """A path of this console, whatever was asked for; "//host" would lead elsewhere."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() else "/"
