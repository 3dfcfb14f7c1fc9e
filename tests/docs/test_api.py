"""The API reference has every public name, from its docstring, with an example that is run like other blocks."""

from __future__ import annotations

import re

import pytest

import colonnade

from .book import ROOT, blocks

PAGES = sorted((ROOT / "docs" / "reference").glob("api-*.md"))
CHAPTERS = {
    name: (page, chapter)
    for page in PAGES
    for name, chapter in re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
}


def test_the_reference_has_exactly_the_public_names() -> None:
    assert sorted(CHAPTERS) == sorted(colonnade.__all__)


@pytest.mark.parametrize("name", sorted(set(colonnade.__all__) - {"__version__"}))
def test_a_public_name_has_its_docstring_and_an_example(name: str) -> None:
    page, chapter = CHAPTERS[name]
    assert f"::: colonnade.{name}\n" in chapter
    assert (getattr(colonnade, name).__doc__ or "").strip()
    examples = [block for block in blocks(page) if block.text in chapter]
    assert any(block.language == "python" and not block.marks for block in examples)
    assert any(re.search(rf"\b{name}\b", block.text) for block in examples), "an example says the name"


@pytest.mark.parametrize("name", sorted(set(colonnade.__all__) - {"__version__"}))
def test_members_that_are_shown_are_there(name: str) -> None:
    for members in re.findall(r"^ +members: \[(.*)\]$", CHAPTERS[name][1], re.MULTILINE):
        for member in members.split(", "):
            assert hasattr(getattr(colonnade, name), member) or member in getattr(
                getattr(colonnade, name), "__annotations__", {}
            ), f"{name}.{member}"
