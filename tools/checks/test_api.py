"""The API reference has every public name, from its docstring, with an example that is run like other blocks."""

from __future__ import annotations

import re

import colonnade
from tools.pages import ROOT, blocks

PAGES = sorted((ROOT / "docs" / "reference").glob("api-*.md"))
CHAPTERS = {
    name: (page, chapter)
    for page in PAGES
    for name, chapter in re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
}


def test_the_reference_has_exactly_the_public_names() -> None:
    assert sorted(CHAPTERS) == sorted(colonnade.__all__)


def test_a_public_name_has_its_docstring_an_example_and_the_members_that_are_shown() -> None:
    for name in sorted(set(colonnade.__all__) - {"__version__"}):
        (page, chapter), found = CHAPTERS[name], getattr(colonnade, name)
        assert f"::: colonnade.{name}\n" in chapter
        assert (found.__doc__ or "").strip(), name
        examples = [block for block in blocks(page) if block.text in chapter]
        assert any(block.language == "python" and not block.marks for block in examples), name
        assert any(re.search(rf"\b{name}\b", block.text) for block in examples), f"no example says {name}"
        for members in re.findall(r"^ +members: \[(.*)\]$", chapter, re.MULTILINE):
            for member in members.split(", "):
                assert hasattr(found, member) or member in getattr(found, "__annotations__", {}), f"{name}.{member}"
