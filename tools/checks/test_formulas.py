"""Formulas are plain text: what Markdown or HTML takes for marks of its own would vanish from a page."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tools.pages import ROOT, named

_PARSER = MarkdownIt("commonmark").enable("table")
_TAG = re.compile(r"</?[A-Za-z][^<>@]*>")
"""What some builders of sites take for a tag, and leave out: an inner product between < and >."""


def parts(text: str) -> list[Token]:
    return [part for token in _PARSER.parse(text) for part in token.children or []]


def taken_for_marks(text: str) -> list[str]:
    """Underscores that begin emphasis, by what follows them, and what looks like a tag."""
    found = parts(text)
    begun = [
        f"_{found[i + 1].content[:40]}"
        for i, part in enumerate(found)
        if part.markup in ("_", "__") and part.nesting == 1
    ]
    return begun + [tag for part in found if part.type == "text" for tag in _TAG.findall(part.content)]


def test_formulas_are_not_taken_for_marks() -> None:
    pages = sorted((ROOT / "docs").rglob("*.md"))
    found = {named(page): taken_for_marks(page.read_text(encoding="utf-8")) for page in pages}
    wrong = {name: marks for name, marks in found.items() if marks}
    assert not wrong, f"write \\_ for an underscore, ⟨ ⟩ for an inner product: {wrong}"


def test_what_is_taken_for_marks_is_found() -> None:
    assert taken_for_marks("moves by ∏_{i∈A} R_i and by ∏_{i∈A} L_i") == ["_{i∈A} R_i and by ∏"]
    assert taken_for_marks("the claim <a, b> = c") == ["<a, b>"]
    assert taken_for_marks("∏\\_{i∈A} R_i and ∏\\_{i∈A}, ⟨a, b⟩, Σ_{k<P} x_k, `<a, b>`, *word*, a_b_c") == []
