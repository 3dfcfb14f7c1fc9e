"""Every notebook of the documentation runs from top to bottom in a fresh kernel, and holds what it says of itself."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from .book import ROOT, named
from .test_english import too_long

FOLDER = ROOT / "docs" / "notebooks"
TOOL = ROOT / "tools" / "notebooks.py"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_NEED_TORCH = {"04-split-networks-and-what-an-attacker-sees.ipynb"}


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == kind]


def text(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    """The tool with these words, after which it has ended."""
    return subprocess.run([sys.executable, str(TOOL), *words], capture_output=True, text=True, cwd=ROOT, timeout=1500)


def runs_here(notebook: Path) -> bool:
    return notebook.name not in _NEED_TORCH or importlib.util.find_spec("torch") is not None


@pytest.fixture(scope="module")
def checked() -> subprocess.CompletedProcess[str]:
    """The tool with all notebooks, each of which has a kernel of its own."""
    return ran("--check", *(str(notebook) for notebook in NOTEBOOKS if runs_here(notebook)))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=named)
def test_notebooks_run(notebook: Path, checked: subprocess.CompletedProcess[str]) -> None:
    if not runs_here(notebook):
        pytest.skip("its encoders are networks: pip install 'colonnade[nn]'")
    said = checked.stdout + checked.stderr
    assert f"{notebook.name}: {len(cells(notebook, 'code'))} cells ran" in checked.stdout, said
    assert f"{notebook.name}: " not in checked.stderr, said


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=named)
def test_notebooks_assert_what_they_promise(notebook: Path) -> None:
    sources = [text(cell) for cell in cells(notebook, "code")]
    assert sum(len(re.findall(r"^\s*assert ", source, re.MULTILINE)) for source in sources) >= 3


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=named)
def test_notebooks_are_as_short_as_pages(notebook: Path) -> None:
    assert not too_long(named(notebook), "\n\n".join(text(cell) for cell in cells(notebook, "markdown")))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=named)
def test_links_of_notebooks_resolve_and_stand_at_the_end(notebook: Path) -> None:
    *before, last = [text(cell) for cell in cells(notebook, "markdown")]
    assert not any(_LINK.search(each) for each in before), "gather links under 'Where next'"
    body, _, links = last.partition("## Where next")
    assert not _LINK.search(body)
    found = _LINK.findall(links)
    assert found
    for link in found:
        target = (notebook.parent / link.partition("#")[0]).resolve()
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link


def test_every_notebook_is_listed_and_the_first_has_ten_cells() -> None:
    listed = re.findall(r"\]\((\d\d-[\w-]+\.ipynb)\)", (FOLDER / "README.md").read_text(encoding="utf-8"))
    assert listed == [notebook.name for notebook in NOTEBOOKS]
    assert len(NOTEBOOKS) == 6
    assert len(cells(NOTEBOOKS[0], "code")) == 10


def written(folder: Path, *sources: str) -> Path:
    """A small notebook without outputs."""
    path = folder / "small.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources]), path)
    return path


def test_outputs_are_the_same_in_every_run_and_changed_cells_are_noticed(tmp_path: Path) -> None:
    drawing = ("from colonnade.randomness import new_key", "new_key().hex()")
    outputs = []
    for _ in range(2):
        path = written(tmp_path, *drawing)
        assert ran(str(path)).returncode == 0
        outputs.append(path.read_text(encoding="utf-8"))
    assert re.search(r"'[0-9a-f]{64}'", outputs[0])
    assert outputs[0] == outputs[1]
    path.write_text(outputs[0].replace("new_key().hex()", "len(new_key())"), encoding="utf-8")
    ended = ran("--check", str(path))
    assert ended.returncode == 1
    assert "its cells were changed after its outputs were made" in ended.stderr


def test_a_cell_that_fails_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    path = written(tmp_path, "assert False, 'as it was promised'")
    before = path.read_bytes()
    ended = ran(str(path))
    assert ended.returncode == 1
    assert "as it was promised" in ended.stderr
    assert path.read_bytes() == before
