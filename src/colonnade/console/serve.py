"""A console that is served from a thread, as long as its agent or hub stays."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from starlette.routing import BaseRoute

from colonnade.console.access import Access, TrustedHeader
from colonnade.console.app import Pages, make_app
from colonnade.console.connections import Connection
from colonnade.console.desk import Desk
from colonnade.console.guard import ENTER, Guard
from colonnade.disk import reading, writing
from colonnade.errors import ConnectError
from colonnade.standing.http_server import HttpServer, listen
from colonnade.study.console_part import ConsolePart, Role

_ADDRESS = "address"
_HEAD_BYTES = 1 << 14
_ANSWER_SECONDS = 5.0
_AT_ONCE = 16
"""Connections taken between two looks at what came on others; a flood cannot push out one whose request is there."""
_QUEUE = 1024


class Served(HttpServer):
    """A console that runs."""

    def __init__(self, app: Guard, listening: socket.socket, url: str, folder: Path) -> None:
        super().__init__(
            app,
            listening,
            url,
            http=Connection,
            timeout_keep_alive=5,
            backlog=_AT_ONCE,
            h11_max_incomplete_event_size=_HEAD_BYTES,
        )
        listening.listen(_QUEUE)
        self.access, self._folder = app.access, folder

    def link(self, person: str, role: Role) -> str:
        """The address that signs a person in, once; for a terminal and never for a log."""
        return sign_in_address(self.url, self.access.link(person, role))

    def stop(self) -> None:
        """Stop serving; streams of events end."""
        super().stop()
        (self._folder / _ADDRESS).unlink(missing_ok=True)


def serve(
    desk: Desk,
    folder: Path,
    part: ConsolePart,
    people: Callable[[], Mapping[str, Role]],
    pages: Pages,
    beside: Iterable[BaseRoute] = (),
    metrics: Callable[[], tuple[bytes, str]] | None = None,
) -> Served:
    """Serve a console from a thread of its own; ``folder`` keeps who is signed in.

    ``people`` is asked at every request of somebody whom a proxy names, so that a change of the file counts at once.
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
    url = address_of(part, port)
    app = make_app(desk, access_of(folder, part, people, port), pages, beside, metrics)
    served = Served(app, listening, url, folder)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared
    writing.put({folder / _ADDRESS: f"{url} {host} {port}".encode()})
    return served


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
