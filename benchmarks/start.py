"""How long it takes to begin: importing the package, its help, its first model, beside importing numpy; and studies.

Every figure is the median processor time of cold processes, so that a machine that is shared does not blur it. That of
a study is of all its processes together: the command, whatever it forks or starts, every participant.

`--beside FOLDER` compares whole small studies instead, by this tree and by another one of Colonnade, in turn.
"""

from __future__ import annotations

import argparse
import importlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

RUNS = 9
RUNS_OF_STUDIES = 3
NUMPY = "import numpy"
PROGRAMS = {
    NUMPY: ["-c", NUMPY],
    "python alone": ["-c", ""],
    "import colonnade": ["-c", "import colonnade"],
    "colonnade --help": ["-m", "colonnade", "--help"],
    "from colonnade import PCA": ["-c", "from colonnade import PCA"],
    "from colonnade import Study": ["-c", "from colonnade import Study"],
}
TREE = Path(__file__).parents[1]
EXAMPLE = Path("examples") / "three-organisations"
RUN = ["-m", "colonnade", "run", "STUDY.toml", "--again", "--json"]
# In threads, as a notebook does it; what it prints are the seconds of a fit alone.
FIT = """
import time
from colonnade import PCA, Federation, Party
parties = [Party(name, f"{name}/{name}.csv", schema=f"schemas/{name}.toml", id="person_id")
           for name in ("bank", "shop", "clinic")]
people = Federation(parties)
people.align(on="person_id")
PCA(n_components=5, epsilon=1.0, delta=1e-5).fit(people)
start = time.process_time(), time.perf_counter()
for _ in range(10):
    PCA(n_components=5, epsilon=1.0, delta=1e-5).fit(people)
print((time.process_time() - start[0]) / 10, (time.perf_counter() - start[1]) / 10)
"""


def environment(tree: Path | None = None) -> dict[str, str]:
    """Of a process, which takes the package of this tree, if one is given."""
    found = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    found.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as they are where it is installed
    return found if tree is None else found | {"PYTHONPATH": str(tree / "src")}


def seconds(arguments: list[str], folder: Path | None = None, tree: Path | None = None) -> float:
    """Processor time of one cold process and of those that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    words = [sys.executable, *arguments]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment(tree), cwd=folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def prepared(place: Path, tree: Path | None = None) -> Path:
    """The example with keys, by parties that have aligned their people before."""
    folder = place / EXAMPLE.name
    shutil.copytree((tree or TREE) / EXAMPLE, folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for path in (folder / "STUDY.toml", *folder.glob("*/party.toml")):
        text = path.read_text(encoding="utf-8").replace("127.0.0.1:7443", f"127.0.0.1:{port}")
        path.write_text(text.replace("= 3.0", "= 300.0"), encoding="utf-8")  # caps for several runs
    seconds(["-m", "colonnade", "init", "trial", "STUDY.toml"], folder, tree)
    seconds(RUN, folder, tree)
    return folder


def study() -> float:
    """`colonnade run` of the example."""
    with tempfile.TemporaryDirectory() as place:
        folder = prepared(Path(place))
        return median(seconds(RUN, folder) for _ in range(RUNS_OF_STUDIES))


def demo(rows: int) -> float:
    """`colonnade demo` with so many people, which are aligned anew."""
    with tempfile.TemporaryDirectory() as place:
        command = ["-m", "colonnade", "demo", "--rows", str(rows), "--out", "demo", "--json"]
        return seconds(command, Path(place))


Measured = tuple[float, float]
"""Seconds of processor time, and by the clock."""


def agents(tree: Path = TREE) -> Measured:
    """A study of the example through agents, from the last yes until every party has the result; the second of two.

    The processor time is that of the hub, the agents and everything that they started, in between.
    """
    sys.path.insert(0, str(TREE))
    kit = importlib.import_module("tests.support.standing")  # it starts the package that this process imports
    os.environ["PYTHONPATH"] = kit._PATH = os.pathsep.join((str(tree / "src"), str(TREE)))
    with tempfile.TemporaryDirectory() as place, kit.standing(Path(place), cap=300.0) as federation:
        found = (0.0, 0.0)
        for name in ("first", "second"):
            proposed = federation.propose(federation.study_named(name))
            federation.wait_all(proposed, "waiting")
            *most, last = kit.PARTIES
            for party in most:
                federation.store(party).approve(proposed, "pat")
            ours = [process.pid for process in federation.running_attempts.values()]
            used, clock = sum(map(used_by, ours)), time.perf_counter()
            federation.store(last).approve(proposed, "pat")
            federation.wait_all(proposed, "done")
            clock = time.perf_counter() - clock
            found = (sum(map(used_by, ours)) - used, clock)
        return found


def used_by(pid: int) -> float:
    """Processor time of a process that runs, and of those below it, also of those that have ended."""
    pids = [pid, *importlib.import_module("tests.support.standing").descendants(pid)]
    ticks = 0
    for each in pids:
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def whole(arguments: list[str], folder: Path, tree: Path) -> Measured:
    """A command from its start to its end."""
    start = time.perf_counter()
    used = seconds(arguments, folder, tree)
    return used, time.perf_counter() - start


def fit(folder: Path, tree: Path) -> Measured:
    """A fit in threads, without what comes before it."""
    words = [sys.executable, "-c", FIT]
    said = subprocess.run(words, check=True, capture_output=True, text=True, env=environment(tree), cwd=folder).stdout
    used, clock = map(float, said.split())
    return used, clock


def beside(other: Path, runs: int) -> None:
    """Small studies by another tree and by this one, in turn."""
    cases: dict[str, Callable[[Path, Path], Measured]] = {
        "`colonnade run STUDY.toml`, all its processes": lambda folder, tree: whole(RUN, folder, tree),
        "a program that aligns and fits eleven times in threads": lambda folder, tree: whole(["-c", FIT], folder, tree),
        "one fit of these": fit,
    }
    with ExitStack() as left:
        places = {
            tree: prepared(Path(left.enter_context(tempfile.TemporaryDirectory())), tree) for tree in (other, TREE)
        }
        print("| | before: processor | now | ratio | before: clock | now | ratio |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for name, case in cases.items():
            found: dict[Path, list[Measured]] = {other: [], TREE: []}
            for number in range(runs):
                for tree in (other, TREE) if number % 2 else (TREE, other):
                    found[tree].append(case(places[tree], tree))
            cells = [
                [*medians, f"{medians[1] / medians[0]:.3f}"]
                for medians in (
                    [median(each[what] for each in found[tree]) for tree in (other, TREE)] for what in (0, 1)
                )
            ]
            line = [cell if isinstance(cell, str) else f"{cell:.3f} s" for cells_of in cells for cell in cells_of]
            print(f"| {name} | {' | '.join(line)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", type=Path, metavar="FOLDER", help="another tree of Colonnade, such as a worktree")
    parser.add_argument("--runs", type=int, default=RUNS, help="of each tree, with --beside")
    asked = parser.parse_args()
    if asked.beside is not None:
        return beside(asked.beside.absolute(), asked.runs)
    found = {name: median(seconds(arguments) for _ in range(RUNS)) for name, arguments in PROGRAMS.items()}
    found["colonnade run STUDY.toml"] = study()
    found["colonnade demo --rows 1000"] = demo(1000)
    found["study through agents"], clock = agents()
    print("| program | seconds | times `import numpy` |")
    print("|---|---:|---:|")
    for name, taken in found.items():
        print(f"| `{name}` | {taken:.2f} | {taken / found[NUMPY]:.2f} |")
    print(f"\nThrough agents the result was there {clock:.2f} s after the last yes.")
    return None


if __name__ == "__main__":
    main()
