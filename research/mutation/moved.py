"""Tests that were chosen by their names, under the names that they have after files have moved."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from research.mutation.reach import Reach

_TEST = re.compile(r"^\s*(?:async )?def (test\w*)", re.MULTILINE)


def renames(root: Path, base: str) -> dict[str, str]:
    """Where git says that files of ``tests`` went since a revision."""
    command = ["git", "-C", str(root), "diff", "-M40%", "-l9999", "--name-status", "-z", base, "--", "tests"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
    found, words = {}, iter(said.split("\0"))
    for word in words:
        if word.startswith("R"):
            old, new = next(words), next(words)
            found[old] = new
        elif word:
            next(words)
    return found


class Names:
    """The tests of a tree, by file and by function."""

    def __init__(self, root: Path, moves: dict[str, str]) -> None:
        self._moves = moves
        self._files: dict[str, set[str]] = {}
        self._holders: dict[str, set[str]] = defaultdict(set)
        for path in sorted((root / "tests").rglob("test_*.py")):
            name = path.relative_to(root).as_posix()
            self._files[name] = set(_TEST.findall(path.read_text(encoding="utf-8")))
            for function in self._files[name]:
                self._holders[function].add(name)

    def now(self, test: str) -> str | None:
        """The name of a test now; None where nothing is sure to be that test."""
        old, _, rest = test.partition("::")
        function = rest.partition("[")[0].rpartition("::")[2]
        for file in (self._moves.get(old), old):
            if file is not None and function in self._files.get(file, ()):
                return f"{file}::{rest}"
        holders = self._holders.get(function, set())
        same = {file for file in holders if Path(file).name == Path(self._moves.get(old, old)).name}
        for found in (same, holders):
            if len(found) == 1:
                return f"{next(iter(found))}::{rest}"
        return None


def translated(reach: Reach, names: Names) -> tuple[Reach, list[str]]:
    """The same choice under today's names, and the tests that are nowhere."""
    now = {test: names.now(test) for test in reach.seconds}
    seconds = {new: reach.seconds[test] for test, new in now.items() if new is not None}
    tests = {mutant: _known(now[test] for test in chosen) for mutant, chosen in reach.tests.items()}
    return Reach(seconds, tests), [test for test, new in now.items() if new is None]


def _known(names: Iterable[str | None]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name is not None]
