"""What is served over HTTP on this machine, by a thread of its process: the console, and the interface for scores."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect, Request

from colonnade.errors import ConnectError

BODY_SECONDS = 15.0
_START_SECONDS = 30.0


def listen(host: str, port: int) -> socket.socket:
    """A socket at which connections wait; an ``OSError`` where the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family)
    # Otherwise the end of an answer waits until its beginning was acknowledged, some 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


class HttpServer:
    """An application that is served until it is stopped."""

    def __init__(self, app: Any, listening: socket.socket, url: str, **settings: Any) -> None:
        self.url = url
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,  # or a header would say from which address a request comes
                server_header=False,
                timeout_graceful_shutdown=1,
                **settings,
            )
        )
        self._thread = threading.Thread(target=self._server.run, args=([listening],), name="http", daemon=True)
        self._thread.start()
        until = time.monotonic() + _START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > until:
                raise ConnectError(f"what is to be served at {url} did not start [CN047]")
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop serving; streams end."""
        self._server.should_exit = True
        self._thread.join()


async def read_body(request: Request, largest: int) -> bytes | None:
    """The whole body, unless it is longer than this, takes long to come, or whoever sends it hangs up."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > largest:
                    return None
    except (TimeoutError, ClientDisconnect):
        return None
    return bytes(body)
