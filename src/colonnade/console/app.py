"""The application: sign-in, the pages of whoever serves it, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from colonnade.console import entrance, layout, live
from colonnade.console.access import Access
from colonnade.console.desk import Desk
from colonnade.console.guard import Guard
from colonnade.errors import ColonnadeError

Pages = Sequence[tuple[str, str | None, Callable[[Request], Any]]]
"""Path, title in the menu (or none) and function of each page, which answers GET and POST."""


def make_app(
    desk: Desk,
    access: Access,
    pages: Pages,
    beside: Iterable[BaseRoute] = (),
    metrics: Callable[[], tuple[bytes, str]] | None = None,
) -> Guard:
    """The whole application.

    ``beside`` are routes of others, under ``/v1/`` with tokens of their own. ``metrics`` gives what ``/metrics`` says,
    and its type.
    """

    def counts(request: Request) -> Response:
        if metrics is None:
            raise HTTPException(404)
        content, kind = metrics()
        return Response(content, media_type=kind)

    app = Starlette(
        routes=[
            Route("/static/{name}", layout.static),
            Route("/login", entrance.enter, methods=["GET", "POST"]),
            Route("/logout", entrance.leave, methods=["POST"]),
            Route("/audit-log", entrance.log),
            Route("/events", live.events),
            Route("/health", _health),
            Route("/metrics", counts),
            *(Route(path, show, methods=["GET", "POST"]) for path, _, show in pages),
            *beside,
        ],
        exception_handlers={HTTPException: _missing, ColonnadeError: _failed, Exception: _broken},
    )
    app.state.desk, app.state.access, app.state.pulse = desk, access, live.Pulse(desk)
    app.state.menu = (*((path, title) for path, title, _ in pages if title), ("/audit-log", "Audit log"))
    return Guard(app, access, _refusal(app))


def _refusal(app: Starlette) -> Any:
    def refuse(request: Request, status: int, sentence: str) -> Response:
        request.scope["app"] = app
        return layout.refusal(request, status, sentence)

    return refuse


async def _health(request: Request) -> Response:
    return PlainTextResponse("serving\n")


async def _missing(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 404
    if request.url.path == "/" and request.app.state.menu:
        return RedirectResponse(request.app.state.menu[0][0], 303)
    return layout.refusal(request, status, "There is no such page here. [CO005]")


async def _failed(request: Request, error: Exception) -> Response:
    return layout.refusal(request, 409, str(error))


async def _broken(request: Request, error: Exception) -> Response:
    return layout.refusal(request, 500, "This page failed by a fault of Colonnade; the agent's log says more. [CO006]")
