"""Every Python block of the documentation runs, in a copy of the example; blocks of a page share their names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .book import ROOT, blocks, named, pages

SAME_EVERY_TIME = (
    "import runpy, sys; from tests.repeatable import repeat; repeat(); runpy.run_path(sys.argv[1], run_name='__main__')"
)
"""The randomness of a page is that of its test, as in the rest of the suite."""
PAGES = [page for page in pages() if any(block.language == "python" for block in blocks(page))]


def test_there_is_something_to_run() -> None:
    assert {"README.md", "docs/getting-started.md", "docs/running-a-study.md"} <= {named(page) for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_python_blocks_run(page: Path, example: tuple[Path, int], tmp_path: Path) -> None:
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
    paths = [str(ROOT), os.environ.get("PYTHONPATH")]
    ended = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:colonnade", "-c", SAME_EVERY_TIME, str(script)],
        cwd=example[0],
        capture_output=True,
        text=True,
        timeout=1200,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert ended.returncode == 0, ended.stderr
