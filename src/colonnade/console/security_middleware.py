"""What every request passes before a page sees it, and what every response carries.

In this order: the Host is one of ours (or another site could have its name resolve to this machine), where TLS is asked
for it came through the proxy and over TLS, the Origin of whatever changes something is this console, the form is small,
the person is signed in, the form carries the session's token, and whoever changes something may do so.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from colonnade.console.access import AccessControl, ConsoleSession
from colonnade.console.layout import refusal
from colonnade.federation.http_server import read_body

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""What a page may load: its own files and nothing else."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # With "no-referrer" browsers would send no Origin either, and it is what shows that a form is ours.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=()",
    "cache-control": "no-store",
}
LARGEST_FORM = 1 << 16
PROXY_SECRET = "x-colonnade-proxy"  # noqa: S105 - the name of a header
"""The header in which a proxy shows the secret that it shares with the console."""
LOGIN = "/login"
LOGOUT = "/logout"
STATIC = "/static/"
API = "/v1/"
"""Paths with a token of their own in the request; no cookie is looked at there.

Their bodies are not read here: whoever answers there looks at the token first.
"""
UNPROTECTED = ("/health", "/metrics")
"""Paths that tell no more than that the process runs, and what it counts."""
_LOG = logging.getLogger(__name__)
_SAFE = ("GET", "HEAD")


@dataclass
class SecurityMiddleware:
    """The outermost layer of the application."""

    app: ASGIApp
    access: AccessControl

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here speaks over WebSockets
            await send({"type": "websocket.close", "code": 1008})
            return
        dressed = _with_headers(send)
        request = Request(scope, receive)
        scope.setdefault("state", {})["session"] = None
        scope["app"] = self.app  # pages that refuse are put together as all others are
        try:
            refused = await self._refused(request)
        except Exception as error:
            _log_fault(error)
            refused = PlainTextResponse("This page failed by a fault of Colonnade; the log says more. [CO008]\n", 500)
        if refused is not None:
            await refused(scope, receive, dressed)
            return
        try:
            await self.app(scope, request.state.replay or receive, dressed)
        except Exception as error:  # it was answered already
            _log_fault(error)

    async def _refused(self, request: Request) -> Response | None:
        request.state.replay = None
        headers, path = request.headers, request.url.path
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self.access.hosts:
            return PlainTextResponse("This console is not served under that name. [CO009]\n", 421)
        is_proxy = self.access.is_proxy(headers.getlist(PROXY_SECRET))
        if self.access.secure and not (is_proxy and headers.getlist("x-forwarded-proto") == ["https"]):
            return PlainTextResponse("This console is reached over TLS alone, through its proxy. [CO781]\n", 403)
        if request.method not in (*_SAFE, "POST"):
            return PlainTextResponse("There is nothing here for that method. [CO010]\n", 405)
        api = path.startswith(API)
        if request.method == "POST" and not api and not self._of_this_console(headers):
            return PlainTextResponse("Only a page of this console may send this. [CO011]\n", 403)
        if api:
            return self._refused_question(headers)
        if path.startswith(STATIC) or path in UNPROTECTED:
            return None
        session = await asyncio.to_thread(self._who, request, is_proxy)
        request.state.session = session
        if session is not None and hasattr(request.state, "connection"):
            request.state.connection.known = True
        if request.method == "POST":
            return await self._refused_form(request, session)
        if session is None and path != LOGIN:
            return RedirectResponse(f"{LOGIN}?next={quote(path)}", 303)
        return None

    async def _refused_form(self, request: Request, session: ConsoleSession | None) -> Response | None:
        body = await read_body(request, LARGEST_FORM)
        if body is None:
            return refusal(request, 413, "What was sent is too long, or came too slowly. [CO012]")
        form = _form(body)
        request.state.form, request.state.replay = form, _replay(body)
        if request.url.path == LOGIN:  # the token of the link is what it shows
            return None
        if session is None:
            return refusal(request, 401, "You are not signed in any more; open a new sign-in link. [CO013]")
        if not hmac.compare_digest(form.get("csrf", "").encode(), session.csrf.encode()):
            return refusal(request, 403, "This form was not made for you; open the page again and repeat it. [CO014]")
        if not session.may_decide and request.url.path != LOGOUT:
            return refusal(request, 403, "You may look, but not decide; this needs the role of an approver. [CO015]")
        return None

    def _who(self, request: Request, is_proxy: bool) -> ConsoleSession | None:
        token = request.cookies.get(self.access.cookie)
        if token and (session := self.access.session(token)) is not None:
            return session
        if self.access.header is None or request.client is None or not is_proxy:
            return None
        said = request.headers.getlist(self.access.header.name)
        return self.access.by_proxy(request.client.host, said[0]) if len(said) == 1 else None

    def _of_this_console(self, headers: Headers) -> bool:
        origins = headers.getlist("origin")
        if len(origins) != 1:
            return False
        scheme, _, host = origins[0].partition("://")
        if scheme != ("https" if self.access.secure else "http") or host.lower() != headers["host"].lower():
            return False
        return headers.get("sec-fetch-site", "same-origin") == "same-origin"

    def _refused_question(self, headers: Headers) -> Response | None:
        """Programs send no Origin; a browser does, and then it must be ours."""
        if "origin" in headers and not self._of_this_console(headers):
            return PlainTextResponse("Only a page of this console may send this. [CO016]\n", 403)
        return None


def form_fields(request: Request) -> Mapping[str, str]:
    """The fields of the form that was sent, the token of the session among them."""
    found: Mapping[str, str] = request.state.form
    return found


def _log_fault(error: Exception) -> None:
    """Log a fault without its message, which might hold data."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    _LOG.error("a page failed: %s in %s, line %s", type(error).__name__, place.name, place.lineno)


def _form(body: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=100))
    except ValueError:
        return {}


def _replay(body: bytes) -> Receive:
    left = [body]

    async def receive() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        await asyncio.Event().wait()  # what follows is the end of the connection, which nobody here waits for
        return {"type": "http.disconnect"}

    return receive


def _with_headers(send: Send) -> Callable[[Message], Awaitable[None]]:
    """The same, with the headers that every response carries; a response may bring its own policy."""

    async def dressed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                if name not in headers:
                    headers[name] = value
        await send(message)

    return dressed
