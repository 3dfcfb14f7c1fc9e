"""Server-sent events: pages are told that something changed, and load what they show anew."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from colonnade.console.desk import Desk
from colonnade.console.layout import refusal

EVERY = 0.5
"""Seconds between two looks at what may have changed; one look serves all who listen."""
MOST_PER_SESSION = 8
MOST = 64
_QUIET = 15.0
_STILL = 5.0


class Pulse:
    """The state of a desk as a short text, looked at once for all who listen."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._looked = 0.0
        self._now = ""
        self._lock = asyncio.Lock()
        self.listeners: Counter[str] = Counter()

    async def now(self) -> str:
        """The state, not older than the time between two looks."""
        async with self._lock:
            at = asyncio.get_running_loop().time()
            if not self._now or at - self._looked >= EVERY:
                state = await run_in_threadpool(self._desk.pulse)
                self._now, self._looked = hashlib.sha256(state.encode("utf-8", "replace")).hexdigest()[:16], at
        return self._now


async def events(request: Request) -> Response:
    """A stream of one event for each change; it ends with the session."""
    pulse: Pulse = request.app.state.pulse
    key = request.state.session.key
    if pulse.listeners[key] >= MOST_PER_SESSION or pulse.listeners.total() >= MOST:
        return refusal(request, 429, "Too many pages of this console are open; close some of them. [CO017]")
    return _Stream(request, pulse)


class _Stream(StreamingResponse):
    """A stream that counts from the moment in which it is allowed, or many that arrive together would all be."""

    def __init__(self, request: Request, pulse: Pulse) -> None:
        super().__init__(_changes(request, pulse), media_type="text/event-stream")
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


async def _changes(request: Request, pulse: Pulse) -> AsyncIterator[str]:
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
            if not await run_in_threadpool(access.still, session):
                return
        await asyncio.sleep(EVERY)
