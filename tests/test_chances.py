"""The list of tests that could fail by bad luck is complete in what it names, and their chances are small together."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.chances import BY_CHANCE, CHANCES

ROOT = Path(__file__).parents[1]


def test_a_run_of_the_suite_hardly_ever_fails_by_bad_luck():
    assert 0 < BY_CHANCE < 1e-6


def test_every_test_in_the_list_is_there():
    for name in CHANCES:
        file, _, test = name.partition("::")
        assert f"\ndef {test}(" in (ROOT / file).read_text(encoding="utf-8"), name


UNSEEDED = re.compile(
    r"default_rng\(\)|np\.random\.(?!default_rng|Generator)\w+\(|\brandom\.Random\(\)|uuid4|secrets\.\w"
)
FRESH = ROOT / "tests" / "study" / "test_forks.py"
"""It asks whether what other processes draw without a seed differs."""


def test_nothing_draws_without_a_seed():
    files = [path for path in (ROOT / "tests").rglob("*.py") if path not in (Path(__file__), FRESH)]
    assert len(files) > 200
    found = {path.name: UNSEEDED.findall(path.read_text(encoding="utf-8")) for path in files}
    assert {name: words for name, words in found.items() if words} == {}
