"""Every Python block of the documentation runs, in a copy of the example.

Blocks of a page share their names, also with the pages that continue it.
"""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import pytest

from tests.support.examples import copy_example
from tools.pages import blocks, chain, continued, named, pages

PAGES = [page for page in pages() if any(block.language == "python" for block in blocks(page))]
FIRST = [page for page in pages() if not continued(page) and any(part in PAGES for part in chain(page))]


def marks(page: Path) -> list[pytest.MarkDecorator]:
    """How-to guides and reference run with the notebooks, as they fit many models."""
    return [pytest.mark.system] if named(page).startswith(("docs/how-to", "docs/reference")) else []


@pytest.mark.parametrize("page", [pytest.param(page, id=named(page), marks=marks(page)) for page in FIRST])
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = copy_example(tmp_path / "three-organisations")
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    for part in chain(page):
        script = tmp_path / part.name.replace(".md", ".py")
        script.write_text("\n".join(lines(part)), encoding="utf-8")
        with warnings.catch_warnings():  # those of a user's Python, but for ours
            warnings.resetwarnings()
            warnings.filterwarnings("error", category=UserWarning, module="colonnade$")
            names = runpy.run_path(str(script), init_globals=names, run_name="__main__")


def lines(page: Path) -> list[str]:
    """The program of a page, each line where it stands there, as tracebacks name lines."""
    found: list[str] = []
    for block in blocks(page):
        if block.language != "python":
            continue
        reason = block.marks.removeprefix("no-run").strip(" :()")
        assert block.marks == "" or (block.marks.startswith("no-run") and reason), f"{page}:{block.line}: say why"
        if not block.marks:
            found += [""] * (block.line - len(found)) + block.text.splitlines()
    return found
