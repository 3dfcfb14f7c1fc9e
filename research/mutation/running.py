"""Every mutant in a private copy of the repository, one at a time, with the tests that reach it."""

from __future__ import annotations

import csv
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any

from research.mutation.functions import PACKAGE
from research.mutation.mutants import Mutant, Tree
from research.mutation.reach import Reach, file_of

FIRST, BATCH, CANDIDATES = 6, 60, 10
PATIENCE, TIMES = 30.0, 5.0
KILLED, SURVIVED, LATE, UNREACHED, GONE = "killed", "survived", "timeout", "unreached", "gone"
CAUGHT = (KILLED, LATE)
WARM: tuple[str, ...] = (
    "numpy", "numpy.testing", "scipy.stats", "scipy.special", "scipy.optimize", "scipy.linalg", "sklearn",
    "sklearn.linear_model", "sklearn.ensemble", "sklearn.metrics", "pyarrow", "pyarrow.parquet", "pyarrow.csv",
    "pyarrow.compute", "cryptography.x509", "cryptography.hazmat.primitives.asymmetric.ec", "grpc", "pydantic", "typer",
    "typer.testing", "rich.console", "rich.table", "flint", "hypothesis", "hypothesis.strategies", "multiprocessing",
    "hypothesis.extra.numpy", "sqlite3", "http.server", "concurrent.futures", "asyncio",
)  # fmt: skip
_EPOCH = 1_000_000_000


@dataclass(frozen=True)
class Result:
    """What became of one mutant."""

    id: str
    result: str
    killer: str = ""
    tests: int = 0
    seconds: float = 0.0


class Copy:
    """A copy of what git tracks in a repository, and a warm process that runs tests in it."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder, self.tree = folder, folder / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = ["git", "-C", str(root), "ls-files", "-z"]
        listed = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        for name in filter(None, listed.stdout.split("\0")):
            if (root / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.tree / name)
        if (root / ".venv").exists():
            (self.tree / ".venv").symlink_to((root / ".venv").resolve())
        self._changes = 0
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Copy:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        path = os.pathsep.join(map(str, (self.tree / "src", self.tree)))
        environment = kept | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        server = Path(__file__).with_name("server.py")
        command, pipe = [sys.executable, "-P", str(server), str(self.folder), *WARM], subprocess.PIPE
        self._server = subprocess.Popen(command, cwd=self.tree, env=environment, stdin=pipe, stdout=pipe, text=True)  # noqa: S603
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.communicate()

    def run(self, tests: Sequence[str], limit: float, *words: str) -> dict[str, Any]:
        """Run tests in a new child of the warm process; how it ended and which failed."""
        assert self._server is not None
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps({"tests": list(tests), "limit": limit, "words": words}) + "\n")
        self._server.stdin.flush()
        answer: dict[str, Any] = json.loads(self._server.stdout.readline())
        return answer

    def with_change(self, module: str, code: str, then: Callable[[], Result]) -> Result:
        """Do something while one file has another text.

        Bytecode is taken for current by the time and size of its source. So every text has a time of its own, and
        the bytecode goes away before and after.
        """
        path = self.tree / "src" / module
        kept, when = path.read_bytes(), path.stat()
        self._changes += 1
        try:
            _forget_bytecode(path)
            path.write_text(code, encoding="utf-8")
            os.utime(path, (_EPOCH + self._changes, _EPOCH + self._changes))
            return then()
        finally:
            _forget_bytecode(path)
            path.write_bytes(kept)
            os.utime(path, ns=(when.st_atime_ns, when.st_mtime_ns))


def _forget_bytecode(path: Path) -> None:
    for old in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        old.unlink(missing_ok=True)


def by_file(tests: Iterable[str]) -> list[list[str]]:
    """The tests of one file together, files in the order of their first ones."""
    files: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        files[file_of(test)].append(test)
    return list(files.values())


def tried(copy: Copy, mutant: Mutant, tests: Sequence[str], seconds: dict[str, float]) -> Result:
    """Run a few of the tests, then the others, until one fails.

    Where a test is no longer there with its parameters, all of its parameters are tried in the end.
    """
    ran, spent = 0, 0.0
    parts: list[list[str]] = [[*tests[:FIRST]], [*tests[FIRST:]], []]
    for part in parts:
        if not part:
            continue
        limit = PATIENCE + TIMES * sum(seconds.get(test, 1.0) for test in part)
        said = copy.run([*chain(*by_file(part))], limit, "-x")
        ran += said["ran"]
        spent = round(spent + said["seconds"], 2)
        if part is not parts[-1]:
            parts[-1] += [name for name in dict.fromkeys(_bare(said["missing"])) if name not in parts[-1]]
        if said["late"]:
            return Result(mutant.id, LATE, "", ran, spent)
        if said["failed"] or said["code"] not in (0, 5):
            return Result(mutant.id, KILLED, (said["failed"] or [f"exit {said['code']}"])[0], ran, spent)
    return Result(mutant.id, SURVIVED if ran else UNREACHED, "", ran, spent)


def _bare(tests: Iterable[str]) -> Iterator[str]:
    """The functions of tests that have parameters."""
    return (test.partition("[")[0] for test in tests if "[" in test)


def proved(copy: Copy, candidates: Iterable[str]) -> None:
    """The harness itself: a file that cannot be imported fails a test, and does not once it is as before."""
    module = f"{PACKAGE}/__init__.py"
    code = (copy.tree / "src" / module).read_text(encoding="utf-8")
    nothing = Mutant("check", module, "", "", "", "", 0, "")
    for test in candidates:
        once = partial(tried, copy, nothing, [test], {})
        if once().result == SURVIVED:
            break
    else:
        raise RuntimeError("no test passes here without a mutant")
    bad, good = "\nraise RuntimeError\n", "\nNotAnError = 12345\n"  # as long as each other
    ends = [copy.with_change(module, code + more, once).result for more in (bad, good, bad)]
    ends.append(once().result)
    if ends != [KILLED, SURVIVED, KILLED, SURVIVED]:
        raise RuntimeError(f"what is run is not what was written: {ends}")


def suspects(results: Iterable[Result], reach: Reach) -> set[str]:
    """The tests that killed mutants, and those that ran when time was up.

    Where a whole file could not be read, one of its tests.
    """
    found: set[str] = set()
    for result in results:
        if result.result == LATE:
            found.update(reach.tests[result.id][:FIRST])
        if result.result == KILLED:
            own = [test for test in reach.tests[result.id] if file_of(test) == result.killer]
            found.add(own[0] if own else result.killer)
    return {test for test in found if "::" in test}


def failing(copy: Copy, tests: Iterable[str], seconds: dict[str, float], say: Callable[[str], None]) -> set[str]:
    """Which tests, or whole files, fail here without any mutant: they can say nothing."""
    batches: list[list[str]] = [[]]
    for together in by_file(sorted(tests)):
        if len(batches[-1]) + len(together) > BATCH:
            batches.append([])
        batches[-1] += together
    bad: set[str] = set()
    for number, batch in enumerate(batches):
        said = copy.run(batch, 2 * PATIENCE + TIMES * sum(seconds.get(test, 1.0) for test in batch))
        bad.update(said["failed"])
        if said["late"] or said["code"] not in (0, 1, 5):
            alone = {test: copy.run([test], PATIENCE + TIMES * seconds.get(test, 1.0)) for test in batch}
            bad.update(test for test, end in alone.items() if end["late"] or end["code"] not in (0, 5))
        say(f"without mutants: {number + 1} of {len(batches)} batches of tests, {len(bad)} fail")
    return bad


def run_all(
    root: Path, mutants: Sequence[Mutant], reach: Reach, out: Path, scratch: Path, workers: int,
    say: Callable[[str], None],
) -> list[Result]:  # fmt: skip
    """All mutants of the list that ``out`` does not have yet; each result is written as it comes.

    In the end every test that killed a mutant is run without any. One that fails then is left out, and what it killed
    is run again.
    """
    fine: set[str] = set()
    while True:
        results = _run_left(root, mutants, reach, out, scratch, workers, say)
        with Copy(root, scratch / "plain") as copy:
            checked = suspects(results, reach) - fine
            bad = failing(copy, checked, reach.seconds, say)
        if not bad:
            return results
        fine |= checked - bad
        for name in sorted(bad):
            say(f"fails without mutants, and is left out: {name}")
        hit = {
            name for name, tests in reach.tests.items() if any(test in bad or file_of(test) in bad for test in tests)
        }
        for name in hit:
            reach.tests[name] = [test for test in reach.tests[name] if test not in bad and file_of(test) not in bad]
        again = {r.id for r in results if r.killer in bad or (r.result == LATE and r.id in hit)}
        write_results(out, [result for result in results if result.id not in again])


def _run_left(
    root: Path, mutants: Sequence[Mutant], reach: Reach, out: Path, scratch: Path, workers: int,
    say: Callable[[str], None],
) -> list[Result]:  # fmt: skip
    done = {result.id: result for result in read_results(out)} if out.exists() else {}
    tree = Tree(root / "src")
    left: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        if mutant.id not in done:
            left.put(mutant)
    writing = threading.Lock()

    def note(result: Result) -> None:
        with writing:
            done[result.id] = result
            write_results(out, [done[mutant.id] for mutant in mutants if mutant.id in done])
            say(f"{len(done)} of {len(mutants)}: {result.id} {result.result} {result.killer} {result.seconds}")

    def work(number: int) -> None:
        with Copy(root, scratch / f"worker{number}") as copy:
            proved(copy, sorted(reach.seconds, key=lambda test: (reach.seconds[test], test))[:CANDIDATES])
            while (mutant := _next(left)) is not None:
                tests, place = reach.tests.get(mutant.id, []), tree.locate(mutant)
                if place is None:
                    note(Result(mutant.id, GONE))
                elif not tests:
                    note(Result(mutant.id, UNREACHED))
                else:
                    code = tree.applied(mutant, place)
                    then = partial(tried, copy, mutant, tests, reach.seconds)
                    note(copy.with_change(place.function.module, code, then))

    workers = min(workers, left.qsize())
    with ThreadPoolExecutor(max(1, workers)) as pool:
        list(pool.map(work, range(workers)))
    return [done[mutant.id] for mutant in mutants]


def _next(left: queue.SimpleQueue[Mutant]) -> Mutant | None:
    try:
        return left.get_nowait()
    except queue.Empty:
        return None


def write_results(path: Path, results: Iterable[Result]) -> None:
    """One line a mutant."""
    rows = [asdict(result) for result in results]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(Result.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_results(path: Path) -> list[Result]:
    """What ``write_results`` wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Result(row["id"], row["result"], row["killer"], int(row["tests"]), float(row["seconds"]))
            for row in csv.DictReader(file)
        ]


def totals(mutants: Iterable[Mutant], results: Iterable[Result]) -> dict[str, Counter[str]]:
    """How many of each result, by the folder that mutants were in when they were chosen."""
    folders = {mutant.id: mutant.folder for mutant in mutants}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        counts[folders[result.id]][result.result] += 1
    return counts
