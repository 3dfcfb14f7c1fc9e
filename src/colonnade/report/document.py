"""An HTML file that is complete in itself: its head, its frame, and how it is written to disk."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files as resources
from pathlib import Path

from colonnade.models import files
from colonnade.report.markup import Html, tag

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_COMPLETE = "Written by Colonnade. This file is complete in itself and asks nothing of a network."

COLOURS = 8
"""Colours that colour-blind readers tell apart (after Okabe and Ito); the last one is grey, for the rest."""


def style() -> str:
    """The style sheet, with a fill, a stroke and a background class for each colour."""
    sheet = resources("colonnade.report").joinpath("style.css").read_text(encoding="utf-8")
    classes = (
        f".f{k} {{ fill: var(--c{k}) }} .s{k} {{ stroke: var(--c{k}) }} .b{k} {{ background: var(--c{k}) }}"
        for k in range(COLOURS)
    )
    return sheet + "\n".join(classes) + "\n"


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
