"""An HTML file that is complete in itself: its head, its frame, and how it is written to disk."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files as resources
from pathlib import Path

from colonnade.drawing.canvas import chart_style
from colonnade.drawing.markup import Html, tag
from colonnade.models import files

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_COMPLETE = "Written by Colonnade. This file is complete in itself and asks nothing of a network."


def style() -> str:
    """The style sheet of pages and of the charts on them."""
    return chart_style() + resources("colonnade.report").joinpath("style.css").read_text(encoding="utf-8")


def document(title: str, header: Sequence[object], main: Sequence[object], sheet: str = "") -> str:
    """The whole file; ``sheet`` is added to the style sheet that all pages share."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(style() + sheet)),
    )
    body = tag("body", tag("header", *header), tag("main", *main), tag("footer", tag("p", _COMPLETE)))
    return "<!DOCTYPE html>\n" + tag("html", head, "\n", body, lang="en") + "\n"


def write_document(target: Path, text: str, *, private: bool = False) -> Path:
    """Write the file as a whole or not at all, and return its path; other users can never read a private one."""
    (files.replace_private if private else files.write_whole)(target, text.encode())
    return target
