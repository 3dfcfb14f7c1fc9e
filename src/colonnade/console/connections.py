"""Connections of browsers, so that idle and slow ones cannot keep others out.

The server waits as long as it takes for a request, and for a reader. Here a connection must bring a whole request in
time and take what it is sent in time. Where too many are open, one on which nobody has signed in makes room: the oldest
that has not asked for anything yet, if there is one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from colonnade.console.guard import HEADERS

MOST_CONNECTIONS = 256
REQUEST_SECONDS = 10.0
"""For a whole request to come, from the opening of the connection or the last response."""
READING_SECONDS = 20.0
"""For a reader that has stopped to go on."""
_MALFORMED = "This is no request that can be read.\n"


class Connection(H11Protocol):
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
        if len(self.connections) > MOST_CONNECTIONS:
            strangers = [each for each in self.connections if isinstance(each, Connection) and not each.known]
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
