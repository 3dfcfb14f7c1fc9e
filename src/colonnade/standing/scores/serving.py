"""The interface for scores on a socket of its own, where no console serves it."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from colonnade.errors import ConnectError, StudyError
from colonnade.standing.http_server import HttpServer, listen
from colonnade.standing.scores.api import routes
from colonnade.standing.scores.service import ScoresService


@dataclass(frozen=True)
class Guarded:
    """The interface alone, under these names of this machine, and for no browser's page of another site."""

    app: ASGIApp
    hosts: tuple[str, ...]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        headers = Headers(scope=scope)
        app = self.app
        if headers.getlist("host") not in [[host] for host in self.hosts]:
            app = PlainTextResponse("Nothing is served under that name. [CO036]\n", 421)
        elif "origin" in headers:
            app = PlainTextResponse("Only programs may ask here. [CO037]\n", 403)
        await app(scope, receive, send)


def make_app(service: ScoresService, hosts: tuple[str, ...]) -> Guarded:
    """The application."""
    return Guarded(Starlette(routes=routes(service)), hosts)


def serve(service: ScoresService, address: str) -> HttpServer:
    """Serve the interface on loopback from a thread of its own."""
    host, _, port = address.rpartition(":")
    try:
        if not ipaddress.ip_address(host.strip("[]")).is_loopback:
            raise ValueError
        listening = listen(host.strip("[]"), int(port))
    except ValueError:
        raise StudyError(
            f'{address!r} is no address of this machine alone: give one such as "127.0.0.1:8472" [ST545]'
        ) from None
    except OSError as error:
        raise ConnectError(f"nothing can be served at {address}: {error.strerror} [CN006]") from None
    bound = listening.getsockname()[1]
    app = make_app(service, (f"{host}:{bound}", f"localhost:{bound}"))
    return HttpServer(app, listening, f"http://{host}:{bound}", limit_concurrency=512)
