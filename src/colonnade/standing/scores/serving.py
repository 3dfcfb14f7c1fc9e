"""The interface for scores on a socket of its own, where no console serves it."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from dataclasses import dataclass

from colonnade.errors import ConnectError, StudyError
from colonnade.standing.scores.service import ScoresService

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.responses import PlainTextResponse
    from starlette.types import ASGIApp, Receive, Scope, Send

    from colonnade.standing.scores.api import routes
except ImportError as error:  # pragma: no cover - the suite has the extra
    raise StudyError("the interface for scores needs `pip install 'colonnade[console]'` [ST544]") from error

_START_SECONDS = 30.0


@dataclass
class Served:
    """An interface that is served."""

    url: str
    _server: uvicorn.Server
    _thread: threading.Thread

    def stop(self) -> None:
        """Stop serving."""
        self._server.should_exit = True
        self._thread.join()


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


def serve(service: ScoresService, address: str) -> Served:
    """Serve the interface on loopback from a thread of its own."""
    host, _, port = address.rpartition(":")
    try:
        if not ipaddress.ip_address(host.strip("[]")).is_loopback:
            raise ValueError
        listening = socket.create_server((host.strip("[]"), int(port)))
    except ValueError:
        raise StudyError(
            f'{address!r} is no address of this machine alone: give one such as "127.0.0.1:8472" [ST545]'
        ) from None
    except OSError as error:
        raise ConnectError(f"nothing can be served at {address}: {error.strerror} [CN006]") from None
    # Otherwise the end of an answer waits until the caller has acknowledged its beginning, some 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bound = listening.getsockname()[1]
    hosts = (f"{host}:{bound}", f"localhost:{bound}")
    config = uvicorn.Config(
        make_app(service, hosts),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=512,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), name="scores", daemon=True)
    thread.start()
    until = time.monotonic() + _START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > until:
            raise ConnectError(f"the interface at {address} did not start [CN007]")
        time.sleep(0.01)
    return Served(f"http://{host}:{bound}", server, thread)
