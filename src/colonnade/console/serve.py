"""A console that is served from a thread, as long as its agent or hub stays."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.routing import BaseRoute

from colonnade.console.access import Access, TrustedHeader
from colonnade.console.app import Pages, make_app
from colonnade.console.connections import Connection
from colonnade.console.desk import Desk
from colonnade.console.guard import ENTER
from colonnade.console.pages import PAGES
from colonnade.disk import reading, writing
from colonnade.errors import ConnectError
from colonnade.study.console_part import ConsolePart, Role

_ADDRESS = "address"
_HEAD_BYTES = 1 << 14
_ANSWER_SECONDS = 5.0
_AT_ONCE = 16
"""Connections taken between two looks at what came on others; a flood cannot push out one whose request is there."""
_QUEUE = 1024
_STOP_SECONDS = 1
_START_SECONDS = 30.0


@dataclass
class Served:
    """A console that runs."""

    url: str
    access: Access
    _server: uvicorn.Server
    _thread: threading.Thread
    _folder: Path

    def link(self, person: str, role: Role) -> str:
        """The address that signs a person in, once; for a terminal and never for a log."""
        return sign_in_address(self.url, self.access.link(person, role))

    def stop(self) -> None:
        """Stop serving; streams of events end."""
        self._server.should_exit = True
        self._thread.join()
        (self._folder / _ADDRESS).unlink(missing_ok=True)


def serve(
    desk: Desk,
    folder: Path,
    part: ConsolePart,
    people: Callable[[], Mapping[str, Role]],
    pages: Pages = PAGES,
    beside: Iterable[BaseRoute] = (),
    metrics: Callable[[], tuple[bytes, str]] | None = None,
) -> Served:
    """Serve a console from a thread of its own; ``folder`` keeps who is signed in.

    ``people`` is asked at every request of somebody whom a proxy names, so that a change of the file counts at once.
    """
    listening = _listen(part)
    port = listening.getsockname()[1]
    access = access_of(folder, part, people, port)
    config = uvicorn.Config(
        make_app(desk, access, pages, beside, metrics),
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # or a header would say from which address a request comes
        server_header=False,
        timeout_keep_alive=5,
        backlog=_AT_ONCE,
        timeout_graceful_shutdown=_STOP_SECONDS,
        h11_max_incomplete_event_size=_HEAD_BYTES,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), name="console", daemon=True)
    thread.start()
    until = time.monotonic() + _START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > until:
            raise ConnectError(f"the console at {part.listen} did not start [CN004]")
        time.sleep(0.01)
    listening.listen(_QUEUE)
    listening_at = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(part.address[0], part.address[0])  # noqa: S104 - compared
    url = address_of(part, port)
    writing.put({folder / _ADDRESS: f"{url} {listening_at} {port}".encode()})
    return Served(url, access, server, thread, folder)


def read_address(folder: Path) -> str | None:
    """Where the console of this folder is served; ``None`` if it is not, also where its process was killed."""
    try:
        url, host, port = reading.read_text(folder / _ADDRESS).split()
        with socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS):
            return url
    except (reading.Unreadable, ValueError, OSError):
        return None


def access_of(folder: Path, part: ConsolePart, people: Callable[[], Mapping[str, Role]], port: int) -> Access:
    """Who may come in to the console at this port."""
    header = TrustedHeader(part.trust_header, part.sources) if part.trust_header else None
    return Access(folder, part.names(port), people, header, secure=part.tls, label=str(port))


def address_of(part: ConsolePart, port: int) -> str:
    """What a person types to reach the console."""
    if part.tls:
        return f"https://{part.hosts[0]}"
    host = part.address[0]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def sign_in_address(url: str, token: str) -> str:
    """The address that signs in with this token."""
    return f"{url}{ENTER}?link={token}"


def _listen(part: ConsolePart) -> socket.socket:
    host, port = part.address
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Otherwise the end of an answer waits until its beginning was acknowledged, some 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ConnectError(
            f"the console cannot be served at {part.listen}: {error.strerror}; name another port in the "
            "file's console [CN005]"
        ) from None
    return listening
