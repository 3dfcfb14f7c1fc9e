"""What the suite draws, how often it may fail by bad luck, and which part of it belongs to a kind."""

from __future__ import annotations

import re

import pytest

from tests.support.chances import BY_CHANCE, CHANCES
from tools import only
from tools.pages import ROOT


def test_a_run_of_the_suite_hardly_ever_fails_by_bad_luck():
    assert 0 < BY_CHANCE < 1e-6
    for name in CHANCES:
        file, _, test = name.partition("::")
        assert f"\ndef {test}(" in (ROOT / file).read_text(encoding="utf-8"), name


def test_the_files_that_begin_a_run_are_there():
    text = (ROOT / "tests" / "conftest.py").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^_LONGEST = \((.*?)^\)", text, re.MULTILINE | re.DOTALL)
    names = re.findall(r'"([^"]+)"', listed)
    assert len(names) == len(set(names)) > 30
    assert [name for name in names if not (ROOT / "tests" / name).is_file()] == []


UNSEEDED = re.compile(
    r"default_rng\(\)|np\.random\.(?!default_rng|Generator)\w+\(|\brandom\.Random\(\)|uuid4|secrets\.\w"
)
FRESH = ROOT / "tests" / "study" / "test_fork_server.py"
"""It asks whether what other processes draw without a seed differs."""


def test_nothing_draws_without_a_seed():
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != FRESH]
    assert len(files) > 150
    found = {path.name: UNSEEDED.findall(path.read_text(encoding="utf-8")) for path in files}
    assert {name: words for name, words in found.items() if words} == {}


def test_a_part_of_the_suite_is_the_folder_and_what_depends_on_it() -> None:
    chosen = {path.relative_to(only.TESTS).as_posix() for path in only.chosen("pca")}
    assert {"kinds/pca", "kinds/split"} <= chosen  # split networks find their directions with it
    assert "kinds/glm" not in chosen
    with pytest.raises(SystemExit, match="give one of glm, pca"):
        only.chosen("dance")
