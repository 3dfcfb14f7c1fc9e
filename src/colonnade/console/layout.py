"""How pages are put together: templates that escape everything, one style sheet, one script, and framed reports."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from colonnade.disk import reading
from colonnade.drawing.canvas import Html
from colonnade.errors import StorageError
from colonnade.report.page import style
from colonnade.sanitize import sanitize

_LONGEST = 4000
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 26 26" fill="#005a8f">'
    '<path d="M2 3h22v3H2zM4 8h3v11H4zM11.5 8h3v11h-3zM19 8h3v11h-3zM2 21h22v3H2z"/></svg>'
)


def render(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page from its template; every value in it is escaped, and what cannot be seen is replaced by a sign."""
    app, session = request.app.state, request.state.session
    frame = {
        "view": app.view,
        "menu": app.menu if session else (),
        "session": session,
        "path": request.url.path,
    }
    return HTMLResponse(templates().get_template(template).render(**frame, **values), status)


def refusal(request: Request, status: int, sentence: str) -> Response:
    """A page that says why nothing was done."""
    return render(request, "refusal.html", status, sentence=sentence)


@cache
def templates() -> Environment:
    """All templates; a name that is not there is an error, never an empty place."""
    found = Environment(
        loader=PackageLoader("colonnade.console"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"when": when}
    return found


def when(moment: str | float | datetime | None) -> str:
    """A moment as people read it, in universal time."""
    if moment is None:
        return "never"
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if not isinstance(moment, datetime):
        moment = datetime.fromtimestamp(moment, UTC)
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _shown(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, Html):  # a piece of a report, whose texts are escaped already
        return Markup(value)  # noqa: S704
    return value if hasattr(value, "__html__") else sanitize(value, _LONGEST, keep="\n\r\t")


@cache
def style_sheet() -> str:
    """The style of reports, and what the console adds to it."""
    return style() + resources("colonnade.console").joinpath("static/style.css").read_text(encoding="utf-8")


@cache
def script() -> str:
    """The one script: it shows progress without a reload, and nothing depends on it."""
    return resources("colonnade.console").joinpath("static/live.js").read_text(encoding="utf-8")


async def static(request: Request) -> Response:
    """One of the files that pages load; no other name leads anywhere."""
    match request.path_params["name"]:
        case "style.css":
            return Response(style_sheet(), media_type="text/css")
        case "icon.svg":
            return Response(_ICON, media_type="image/svg+xml")
        case "live.js":
            return Response(script(), media_type="text/javascript")
    raise HTTPException(404)


FRAME_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
"""A report brings its own style and pictures; even one that was tampered with has no script, no form and no origin."""
_LARGEST = 1 << 26


def send_report_frame(path: Path) -> HTMLResponse:
    """A report as the content of a frame; only the console itself may frame it."""
    try:
        content = reading.read_bytes(path, _LARGEST)
    except reading.UnreadableFile as error:
        raise StorageError(f"the report {path.name} cannot be shown: {error} [SO018]") from None
    headers = {"content-security-policy": FRAME_POLICY, "x-frame-options": "SAMEORIGIN"}
    return HTMLResponse(content, headers=headers)
