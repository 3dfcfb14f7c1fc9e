"""The application: signing in and out, the pages of whoever serves it, and events that tell of changes.

It is served from a thread; of its connections idle and slow ones cannot keep others out.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from colonnade.console import layout
from colonnade.console.access import SESSION_SECONDS, AccessControl, TrustedHeader
from colonnade.console.layout import refusal, render
from colonnade.console.security_middleware import HEADERS, LOGIN, SecurityMiddleware, form_fields
from colonnade.disk import reading, writing
from colonnade.errors import ColonnadeError, ConnectError
from colonnade.federation.http_server import HttpServer, listen
from colonnade.federation.token_file import private_token
from colonnade.study.party_file import ConsoleRole, ConsoleSection

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


MAX_CONNECTIONS = 256
REQUEST_SECONDS = 10.0
"""For a whole request to come, from the opening of the connection or the last response."""
READING_SECONDS = 20.0
"""For a reader that has stopped to go on."""
_MALFORMED = "This is no request that can be read.\n"


class BrowserConnection(H11Protocol):
    """One connection of a browser."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.app_state = {**self.app_state, "connection": self}
        self.known = False
        """Whether somebody who is signed in has asked for something on it."""
        self._opened = self.loop.time()
        self._request_due: asyncio.TimerHandle | None = None
        self._reader_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, and make room where too many are open."""
        super().connection_made(transport)
        self._await_request()
        if len(self.connections) > MAX_CONNECTIONS:
            strangers = [each for each in self.connections if isinstance(each, BrowserConnection) and not each.known]
            oldest = min(strangers, key=lambda each: (each._is_answered, each._opened))
            self.connections.discard(oldest)
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what came; if it is not yet a request, the time for one goes on."""
        super().data_received(data)
        self._await_request()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        for timer in (self._request_due, self._reader_due):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The reader has stopped."""
        super().pause_writing()
        self._reader_due = self.loop.call_later(READING_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The reader goes on."""
        super().resume_writing()
        if self._reader_due is not None:
            self._reader_due.cancel()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, with the headers of every response."""
        lines = [f"{name}: {value}" for name, value in HEADERS.items()]
        length = [f"content-length: {len(_MALFORMED)}", "content-type: text/plain; charset=utf-8", "connection: close"]
        self.transport.write("\r\n".join(["HTTP/1.1 400 Bad Request", *lines, *length, "", _MALFORMED]).encode())
        self.transport.close()

    @property
    def _is_answered(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _await_request(self) -> None:
        """Have the time run, unless a request is being answered."""
        if self._is_answered:
            if self._request_due is not None:
                self._request_due.cancel()
                self._request_due = None
        elif self._request_due is None and not self.transport.is_closing():
            self._request_due = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)


_ADDRESS = "address"
_HEAD_BYTES = 1 << 14
_ANSWER_SECONDS = 5.0
_AT_ONCE = 16
"""Connections taken between two looks at what came on others; a flood cannot push out one whose request is there."""
_QUEUE = 1024


class ConsoleServer(HttpServer):
    """A console that runs."""

    def __init__(self, app: SecurityMiddleware, listening: socket.socket, url: str, folder: Path) -> None:
        super().__init__(
            app,
            listening,
            url,
            http=BrowserConnection,
            timeout_keep_alive=5,
            backlog=_AT_ONCE,
            h11_max_incomplete_event_size=_HEAD_BYTES,
        )
        listening.listen(_QUEUE)
        self.access, self._folder = app.access, folder

    def link(self, person: str, role: ConsoleRole) -> str:
        """The address that signs a person in, once; for a terminal and never for a log."""
        return sign_in_address(self.url, self.access.link(person, role))

    def stop(self) -> None:
        """Stop serving; streams of events end."""
        super().stop()
        (self._folder / _ADDRESS).unlink(missing_ok=True)


def serve_console(
    view: ConsoleSource,
    folder: Path,
    part: ConsoleSection,
    people: Callable[[], Mapping[str, ConsoleRole]],
    pages: Pages,
    beside: Iterable[BaseRoute] = (),
    metrics: MetricsPage | None = None,
    may_enter: Callable[[str], bool] = lambda person: True,
) -> ConsoleServer:
    """Serve a console from a thread of its own; ``folder`` keeps who is signed in.

    ``people`` is asked at every request of somebody whom a proxy names, so that a change of the file counts at once,
    and ``may_enter`` at every request of anybody.
    """
    host, port = part.address
    try:
        listening = listen(host, port)
    except OSError as error:
        raise ConnectError(
            f"the console cannot be served at {part.listen}: {error.strerror}; name another port in the "
            "file's console [CN005]"
        ) from None
    port = listening.getsockname()[1]
    url = f"https://{part.hosts[0]}" if part.tls else f"http://{f'[{host}]' if ':' in host else host}:{port}"
    access = access_control_of(folder, part, people, port)
    access.may_enter = may_enter
    access.sign_out_strangers()
    app = make_app(view, access, pages, beside, metrics)
    served = ConsoleServer(app, listening, url, folder)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared
    writing.write_files({folder / _ADDRESS: f"{url} {host} {port}".encode()})
    return served


def read_address(folder: Path) -> str | None:
    """Where the console of this folder is served; ``None`` if it is not, also where its process was killed."""
    try:
        url, host, port = reading.read_text(folder / _ADDRESS).split()
        with socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS):
            return url
    except (reading.UnreadableFile, ValueError, OSError):
        return None


def access_control_of(
    folder: Path, part: ConsoleSection, people: Callable[[], Mapping[str, ConsoleRole]], port: int
) -> AccessControl:
    """Who may come in to the console at this port."""
    header = TrustedHeader(part.trust_header, part.sources) if part.trust_header else None
    secret = private_token(folder / "proxy.token") if part.tls or header else ""
    return AccessControl(folder, part.names(port), people, header, secure=part.tls, label=str(port), secret=secret)


def sign_in_address(url: str, token: str) -> str:
    """The address that signs in with this token."""
    return f"{url}{LOGIN}?link={token}"
