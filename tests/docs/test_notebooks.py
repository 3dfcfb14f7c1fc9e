"""Every notebook of the documentation runs from top to bottom in a fresh kernel, and holds what it says of itself."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools.pages import ROOT

pytestmark = pytest.mark.system
nbformat = pytest.importorskip("nbformat")
FOLDER = ROOT / "docs" / "notebooks"
TOOL = ROOT / "tools" / "notebooks.py"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
_NEED_TORCH = {"04-split-networks-and-what-an-attacker-sees.ipynb"}


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    """The tool with these words, after which it has ended."""
    return subprocess.run([sys.executable, str(TOOL), *words], capture_output=True, text=True, cwd=ROOT, timeout=1500)


def test_notebooks_run() -> None:
    torch = importlib.util.find_spec("torch") is not None
    here = [notebook for notebook in NOTEBOOKS if torch or notebook.name not in _NEED_TORCH]
    checked = ran("--check", *map(str, here))
    said = checked.stdout + checked.stderr
    for notebook in here:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        count = sum(cell["cell_type"] == "code" for cell in cells)
        assert f"{notebook.name}: {count} cells ran" in checked.stdout, said
        assert f"{notebook.name}: " not in checked.stderr, said


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
