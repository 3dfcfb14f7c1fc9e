"""The application: signing in and out, the pages of whoever serves it, and events that tell of changes."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Union

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from colonnade.console import layout
from colonnade.console.access import SESSION_SECONDS, AccessControl
from colonnade.console.layout import refusal, render
from colonnade.console.security_middleware import LOGIN, SecurityMiddleware, form_fields
from colonnade.errors import ColonnadeError

if TYPE_CHECKING:
    from colonnade.console.hub import HubView
    from colonnade.console.party_view import PartyView

_LATEST = 500


def sign_in(request: Request) -> Response:
    """The page of a sign-in link; what signs in is its button, so that looking ahead at the link uses nothing up."""
    if request.method == "GET":
        return render(
            request,
            "enter.html",
            token=request.query_params.get("link", "")[:64],
            next=_own_path(request.query_params.get("next", "/")),
        )
    access = request.app.state.access
    fields = form_fields(request)
    entered = access.sign_in(fields.get("link", ""), request.cookies.get(access.cookie))
    if entered is None:
        return refusal(
            request, 403, "This link was used already, or is older than ten minutes; make a new one. [CO007]"
        )
    token, session = entered
    request.app.state.view.audit.add(session.person, session.role, "signed in")
    response = RedirectResponse(_own_path(fields.get("next", "/")), 303)
    response.set_cookie(
        access.cookie, token, max_age=SESSION_SECONDS, httponly=True, samesite="strict", secure=access.secure
    )
    return response


def sign_out(request: Request) -> Response:
    """End the session."""
    access, session = request.app.state.access, request.state.session
    access.sign_out(session)
    request.app.state.view.audit.add(session.person, session.role, "signed out")
    response = RedirectResponse(LOGIN, 303)
    response.delete_cookie(access.cookie, httponly=True, samesite="strict", secure=access.secure)
    return response


def show_audit_log(request: Request) -> Response:
    """Who clicked what, the latest first."""
    view = request.app.state.view
    clicks = view.audit.latest(_LATEST, view.audit_reader(request.state.session.person))
    return render(request, "log.html", clicks=clicks)


def _own_path(text: str) -> str:
    """A path of this console, whatever was asked for; "//host" would lead elsewhere."""
    return text if text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable() else "/"


ConsoleSource = Union["PartyView", "HubView"]
"""Whose console it is: pages ask more of it than the frame does."""
POLL_SECONDS = 0.5
"""Seconds between two looks at what may have changed; one look serves all who listen."""
MAX_STREAMS_PER_SESSION = 8
MAX_STREAMS = 64
_QUIET = 15.0
_STILL = 5.0


class ChangeDetector:
    """The state of a view as a short text, looked at once for all who listen."""

    def __init__(self, view: ConsoleSource) -> None:
        self._view = view
        self._looked = 0.0
        self._now = ""
        self._lock = asyncio.Lock()
        self.listeners: Counter[str] = Counter()

    async def now(self) -> str:
        """The state, not older than the time between two looks."""
        async with self._lock:
            at = asyncio.get_running_loop().time()
            if not self._now or at - self._looked >= POLL_SECONDS:
                state = await run_in_threadpool(self._view.state_text)
                self._now, self._looked = hashlib.sha256(state.encode("utf-8", "replace")).hexdigest()[:16], at
        return self._now


async def stream_events(request: Request) -> Response:
    """A stream of one event for each change; it ends with the session."""
    pulse: ChangeDetector = request.app.state.pulse
    key = request.state.session.key
    if pulse.listeners[key] >= MAX_STREAMS_PER_SESSION or pulse.listeners.total() >= MAX_STREAMS:
        return refusal(request, 429, "Too many pages of this console are open; close some of them. [CO017]")
    return _EventStream(request, pulse)


class _EventStream(StreamingResponse):
    """A stream that counts from the moment in which it is allowed, or many that arrive together would all be."""

    def __init__(self, request: Request, pulse: ChangeDetector) -> None:
        super().__init__(_change_events(request, pulse), media_type="text/event-stream")
        self._listeners, self._key = pulse.listeners, request.state.session.key
        self._listeners[self._key] += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it until somebody hangs up or the session ends, which may be before its first word."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._listeners[self._key] -= 1
            if not self._listeners[self._key]:
                del self._listeners[self._key]


async def _change_events(request: Request, pulse: ChangeDetector) -> AsyncIterator[str]:
    access, session = request.app.state.access, request.state.session
    loop = asyncio.get_running_loop()
    known = request.headers.get("last-event-id") or await pulse.now()
    spoke = asked = loop.time()
    yield f"retry: 2000\nid: {known}\n\n" if known.isalnum() else "retry: 2000\n\n"
    while True:
        state = await pulse.now()
        if state != known:
            known, spoke = state, loop.time()
            yield f"id: {state}\nevent: change\ndata: {state}\n\n"
        elif loop.time() - spoke > _QUIET:  # so that a connection that is gone is noticed
            spoke = loop.time()
            yield ": still here\n\n"
        if loop.time() - asked > _STILL:
            asked = loop.time()
            if not await run_in_threadpool(access.is_current, session):
                return
        await asyncio.sleep(POLL_SECONDS)


Pages = Sequence[tuple[str, str | None, Callable[[Request], Any]]]
"""Path, title in the menu (or none) and function of each page, which answers GET and POST."""


MetricsPage = Callable[[str], tuple[bytes, str] | None]
"""What ``/metrics`` says and its type, by the header ``Authorization``; ``None`` to whoever shows a wrong token."""


def make_app(
    view: ConsoleSource,
    access: AccessControl,
    pages: Pages,
    beside: Iterable[BaseRoute] = (),
    metrics: MetricsPage | None = None,
) -> SecurityMiddleware:
    """The whole application.

    ``beside`` are routes of others, under ``/v1/`` with tokens of their own.
    """

    def counts(request: Request) -> Response:
        if metrics is None:
            raise HTTPException(404)
        told = metrics(request.headers.get("authorization", ""))
        if told is None:
            return PlainTextResponse("This is not the token in metrics.token. [CO724]\n", 401)
        return Response(told[0], media_type=told[1])

    app = Starlette(
        routes=[
            Route("/static/{name}", layout.static),
            Route("/login", sign_in, methods=["GET", "POST"]),
            Route("/logout", sign_out, methods=["POST"]),
            Route("/audit-log", show_audit_log),
            Route("/events", stream_events),
            Route("/health", _health),
            Route("/metrics", counts),
            *(Route(path, show, methods=["GET", "POST"]) for path, _, show in pages),
            *beside,
        ],
        exception_handlers={HTTPException: _report_missing, ColonnadeError: _report_failure, Exception: _report_fault},
    )
    app.state.view, app.state.access, app.state.pulse = view, access, ChangeDetector(view)
    app.state.menu = (*((path, title) for path, title, _ in pages if title), ("/audit-log", "Audit log"))
    return SecurityMiddleware(app, access)


async def _health(request: Request) -> Response:
    return PlainTextResponse("serving\n")


async def _report_missing(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    if request.url.path == "/" and request.app.state.menu:
        return RedirectResponse(request.app.state.menu[0][0], 303)
    return layout.refusal(request, status, "There is no such page here. [CO005]")


async def _report_failure(request: Request, error: Exception) -> Response:
    return layout.refusal(request, 409, str(error))


async def _report_fault(request: Request, error: Exception) -> Response:
    return layout.refusal(request, 500, "This page failed by a fault of Colonnade; the agent's log says more. [CO006]")
