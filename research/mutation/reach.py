"""Which tests are run against a mutant: a few that reach it, the quickest first, those that start processes last."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from research.mutation.mutants import Mutant

MOST, MOST_SECONDS = 40, 15.0
OF_A_FUNCTION, OF_A_FILE = 3, 12
BESIDE, BESIDE_SECONDS = 12, 5.0


@dataclass
class Reach:
    """How long tests take, and those of each mutant, in the order in which they are run."""

    seconds: dict[str, float] = field(default_factory=dict)
    tests: dict[str, list[str]] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Every test is named once; the same content is the same file."""
        numbers = {name: number for number, name in enumerate(sorted(self.seconds))}
        rows = [[name, self.seconds[name]] for name in numbers]
        mutants = {mutant: [numbers[name] for name in names] for mutant, names in self.tests.items()}
        data = json.dumps({"tests": rows, "mutants": mutants}, separators=(",", ":"), ensure_ascii=False)
        path.write_bytes(gzip.compress(data.encode(), mtime=0))

    @classmethod
    def read(cls, path: Path) -> Reach:
        """What ``write`` wrote."""
        found = json.loads(gzip.decompress(path.read_bytes()))
        names = [name for name, _ in found["tests"]]
        chosen = {mutant: [names[number] for number in numbers] for mutant, numbers in found["mutants"].items()}
        return cls(dict(found["tests"]), chosen)

    def kept(self) -> Reach:
        """The same with only those tests that some mutant has."""
        used = {name for names in self.tests.values() for name in names}
        return Reach({name: spent for name, spent in self.seconds.items() if name in used}, self.tests)


def file_of(test: str) -> str:
    """The file of a test."""
    return test.partition("::")[0]


def function_of(test: str) -> str:
    """A test without its parameters."""
    return test.partition("[")[0]


def read_tests(notes: Path) -> tuple[dict[str, float], set[str]]:
    """How long each test took, with what was set up for it, and which of them passed."""
    seconds: dict[str, float] = defaultdict(float)
    passed, bad = set(), set()
    for line in (notes / "tests.jsonl").read_text(encoding="utf-8").splitlines():
        test, when, outcome, spent = json.loads(line)
        seconds[test] = round(seconds[test] + spent, 3)
        if outcome != "passed":
            bad.add(test)
        elif when == "call":
            passed.add(test)
    return dict(seconds), passed - bad


def read_hits(notes: Path) -> tuple[dict[str, dict[str, bool]], set[str]]:
    """For each mutant the tests that reached it, and whether only in processes that they started; those of imports."""
    hits: dict[str, dict[str, bool]] = defaultdict(dict)
    imported = set()
    for path in sorted(notes.glob("hits-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                mutant, said, started = json.loads(line)
            except ValueError:  # a process that a test let end while it wrote
                continue
            test = said.rpartition(" ")[0]
            if test:
                hits[mutant][test] = bool(started) and hits[mutant].get(test, True)
            else:
                imported.add(mutant)
    return dict(hits), imported


def choose(mutants: Sequence[Mutant], notes: Path) -> Reach:
    """The tests of each mutant, from what the probe noted."""
    seconds, passed = read_tests(notes)
    hits, imported = read_hits(notes)
    wide = Counter(test for tests in hits.values() for test in tests)
    files: dict[str, list[str]] = defaultdict(list)
    for test in seconds:
        if test in passed:
            files[file_of(test)].append(test)
    reach = Reach(seconds)
    for mutant in mutants:
        found = {test: started for test, started in hits.get(mutant.id, {}).items() if test in passed}
        if not found and mutant.id in imported:
            found = _neighbours(mutant, mutants, hits, passed)

        def rank(test: str, found: dict[str, bool] = found) -> tuple[bool, int, int, str]:
            return found[test], round(math.log2(seconds[test] + 0.05)), wide[test], test

        chosen = _spread(sorted(found, key=rank), seconds)
        reach.tests[mutant.id] = chosen + _beside(chosen, files, seconds)
    return reach.kept()


def _neighbours(
    mutant: Mutant, mutants: Iterable[Mutant], hits: dict[str, dict[str, bool]], passed: set[str]
) -> dict[str, bool]:
    """What is reached while modules are imported, any test could notice: those that reach the same file or folder."""
    others = list(mutants)
    for near in (
        [other for other in others if other.module == mutant.module],
        [other for other in others if other.folder == mutant.folder],
    ):
        found = {test: how for other in near for test, how in hits.get(other.id, {}).items() if test in passed}
        if found:
            return found
    return {}


def _spread(tests: Iterable[str], seconds: dict[str, float]) -> list[str]:
    """The first of them, but few of one function or file, within the limits; one at least."""
    chosen: list[str] = []
    functions: Counter[str] = Counter()
    files: Counter[str] = Counter()
    spent = 0.0
    for test in tests:
        if len(chosen) == MOST:
            break
        if functions[function_of(test)] < OF_A_FUNCTION and files[file_of(test)] < OF_A_FILE:
            if chosen and spent + seconds[test] > MOST_SECONDS:
                continue
            chosen.append(test)
            spent += seconds[test]
            functions[function_of(test)] += 1
            files[file_of(test)] += 1
    return chosen


def _beside(chosen: list[str], files: dict[str, list[str]], seconds: dict[str, float]) -> list[str]:
    """Where few tests come by, others of their files too: they may look at what was set up once for all of them."""
    added: list[str] = []
    spent = 0.0
    for file in dict.fromkeys(map(file_of, chosen)) if len(chosen) < BESIDE else ():
        for test in files[file]:
            if test not in chosen and len(added) < BESIDE and spent + seconds[test] <= BESIDE_SECONDS:
                added.append(test)
                spent += seconds[test]
    return added
