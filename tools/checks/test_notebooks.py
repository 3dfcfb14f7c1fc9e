"""Notebooks are short, assert what they promise, and end with links that resolve."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tools.checks.test_english import too_long
from tools.pages import ROOT, named

FOLDER = ROOT / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def cells(path: Path, kind: str) -> list[str]:
    """The text of each cell of one kind."""
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


def test_notebooks_are_short_and_assert_what_they_promise() -> None:
    for notebook in NOTEBOOKS:
        promised = re.findall(r"^\s*assert ", "\n".join(cells(notebook, "code")), re.MULTILINE)
        assert len(promised) >= 3, notebook.name
        assert not too_long(named(notebook), "\n\n".join(cells(notebook, "markdown")))


def test_links_resolve_and_stand_at_the_end() -> None:
    for notebook in NOTEBOOKS:
        *before, last = cells(notebook, "markdown")
        body, _, links = last.partition("## Where next")
        assert not any(_LINK.search(each) for each in (*before, body)), f"{notebook.name}: links go to 'Where next'"
        found = _LINK.findall(links)
        assert found, notebook.name
        for link in found:
            target = (notebook.parent / link.partition("#")[0]).resolve()
            assert target.exists(), f"{notebook.name}: {link}"
            assert target.is_relative_to(ROOT), f"{notebook.name}: {link}"


def test_every_notebook_is_listed_and_the_first_has_ten_cells() -> None:
    listed = re.findall(r"\]\((\d\d-[\w-]+\.ipynb)\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert listed == [notebook.name for notebook in NOTEBOOKS]
    assert len(NOTEBOOKS) == 6
    assert len(cells(NOTEBOOKS[0], "code")) == 10
