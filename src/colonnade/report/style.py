"""The look of the page, kept in ``style.css`` beside this module."""

from __future__ import annotations

from importlib.resources import files

COLOURS = 8
"""Colours that colour-blind readers tell apart (after Okabe and Ito); the last one is grey, for the rest."""


def style() -> str:
    """The style sheet, with a fill, a stroke and a background class for each colour."""
    sheet = files("colonnade.report").joinpath("style.css").read_text(encoding="utf-8")
    classes = (
        f".f{k} {{ fill: var(--c{k}) }} .s{k} {{ stroke: var(--c{k}) }} .b{k} {{ background: var(--c{k}) }}"
        for k in range(COLOURS)
    )
    return sheet + "\n".join(classes) + "\n"
