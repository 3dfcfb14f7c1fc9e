"""Every Python block of the documentation runs, in a copy of the example; blocks of a page share their names."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import pytest

from .book import blocks, named, pages

PAGES = [page for page in pages() if any(block.language == "python" for block in blocks(page))]


def test_there_is_something_to_run() -> None:
    assert {"README.md", "docs/tutorials/getting-started.md", "docs/how-to/running-a-study.md"} <= {named(page) for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_python_blocks_run(
    page: Path, example: tuple[Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    for block in blocks(page):
        if block.language != "python":
            continue
        reason = block.marks.removeprefix("no-run").strip(" :()")
        assert block.marks == "" or (block.marks.startswith("no-run") and reason), f"{page}:{block.line}: say why"
        if not block.marks:
            lines += [""] * (block.line - len(lines)) + block.text.splitlines()  # tracebacks name the page's own lines
    script = tmp_path / page.name.replace(".md", ".py")
    script.write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.chdir(example[0])
    with warnings.catch_warnings():  # those of a user's Python, but for ours
        warnings.resetwarnings()
        warnings.filterwarnings("error", category=UserWarning, module="colonnade$")
        runpy.run_path(str(script), run_name="__main__")
