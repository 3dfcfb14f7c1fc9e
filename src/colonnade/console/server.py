"""A console that is served from a thread, and its connections, of which idle and slow ones cannot keep others out."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from starlette.routing import BaseRoute
from uvicorn.protocols.http.h11_impl import H11Protocol

from colonnade.console.access import AccessControl, TrustedHeader
from colonnade.console.app import ConsoleSource, MetricsPage, Pages, make_app
from colonnade.console.security_middleware import HEADERS, LOGIN, SecurityMiddleware
from colonnade.disk import reading, writing
from colonnade.errors import ConnectError
from colonnade.federation.http_server import HttpServer, listen
from colonnade.federation.token_file import private_token
from colonnade.study.party_file import ConsoleRole, ConsoleSection

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
