"""How long it takes to begin, and to read a table where it lies."""

from __future__ import annotations

import importlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from harness import (
    Benchmark,
    Row,
    alone,
    command,
    resident,
    table,
    tabled,
)

NUMPY = "import numpy"
TREE = Path(__file__).parents[1]

RUNS = 9
RUNS_OF_STUDIES = 3
PROGRAMS = {
    NUMPY: ["-c", NUMPY],
    "python alone": ["-c", ""],
    "import colonnade": ["-c", "import colonnade"],
    "colonnade --help": ["-m", "colonnade", "--help"],
    "from colonnade import PCA": ["-c", "from colonnade import PCA"],
    "from colonnade import Study": ["-c", "from colonnade import Study"],
}
EXAMPLE = Path("examples") / "three-organisations"
RUN = ["-m", "colonnade", "run", "STUDY.toml", "--again", "--json"]
# In threads, as a notebook does it; what it prints are the seconds of a fit alone.


def environment(tree: Path | None = None) -> dict[str, str]:
    """Of a process, which takes the package of this tree, if one is given."""
    found = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    found.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as they are where it is installed
    return found if tree is None else found | {"PYTHONPATH": str(tree / "src")}


def cold_seconds(arguments: list[str], folder: Path | None = None, tree: Path | None = None) -> float:
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
    cold_seconds(["-m", "colonnade", "init", "trial", "STUDY.toml"], folder, tree)
    cold_seconds(RUN, folder, tree)
    return folder


def demo(rows: int) -> float:
    """`colonnade demo` with so many people, which are aligned anew."""
    with tempfile.TemporaryDirectory() as place:
        command = ["-m", "colonnade", "demo", "--rows", str(rows), "--out", "demo", "--json"]
        return cold_seconds(command, Path(place))


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


def study_seconds() -> float:
    """`colonnade run` of the example."""
    with tempfile.TemporaryDirectory() as place:
        folder = prepared(Path(place))
        return median(cold_seconds(RUN, folder) for _ in range(RUNS_OF_STUDIES))


def measure_start() -> dict[str, float]:
    """How long it takes to begin: importing the package, its help, its first model, beside numpy; and studies.

    Every figure is the median processor time of cold processes, so that a machine that is shared does not blur it. That
    of a study is of all its processes together: the command, whatever it forks or starts, every participant.
    """
    found = {name: median(cold_seconds(arguments) for _ in range(RUNS)) for name, arguments in PROGRAMS.items()}
    found["colonnade run STUDY.toml"] = study_seconds()
    found["colonnade demo --rows 1000"] = demo(1000)
    found["study through agents"], found["the same, by the clock after the last yes"] = agents()
    return found


def start_rows(found: dict[str, float]) -> Iterator[Row]:
    """Seconds of every program, and beside numpy."""
    for name, taken in found.items():
        yield f"`{name}`", f"{taken:.2f}", f"{taken / found[NUMPY]:.2f}"


# --- tables where they lie


ROWS = (5_000_000, 10_000_000)
WIDTH = 8
ID_BYTES = 9 + 8  # the letters of an id, and where it ends
_FILES = 8


def write_source(source: str, folder: Path, rows: int) -> None:
    """The same rows, made by DuckDB, wherever they are to lie."""
    import duckdb

    cells = ", ".join(f"(hash(i * {WIDTH} + {k}) % 2000001)::double / 1000000 - 1 as c{k}" for k in range(WIDTH))

    def some(start: int, stop: int) -> str:
        return f"select 'P' || lpad(i::varchar, 8, '0') as person_id, {cells} from range({start}, {stop}) r(i)"  # noqa: S608

    with duckdb.connect(str(folder / "table.duckdb") if source == "duckdb" else ":memory:") as made:
        made.execute("set memory_limit = '1GiB'")
        if source == "duckdb":
            made.execute(f"create table people as {some(0, rows)}")
        elif source == "folder":
            (folder / "table.folder").mkdir()
            edges = [rows * part // _FILES for part in range(_FILES + 1)]
            for part in range(_FILES):
                file = folder / "table.folder" / f"{part}.parquet"
                made.execute(f"copy ({some(edges[part], edges[part + 1])}) to '{file}' (format parquet)")
        elif source == "sqlite":
            _write_sqlite(folder / "table.sqlite", made.execute(some(0, rows)))
        else:
            made.execute(f"copy ({some(0, rows)}) to '{folder / f'table.{source}'}' (format {source})")


def _write_sqlite(file: Path, rows: Any) -> None:
    import sqlite3

    with sqlite3.connect(file) as base:
        base.execute(f"create table people (person_id text, {', '.join(f'c{k} real' for k in range(WIDTH))})")
        while some := rows.fetchmany(1 << 15):
            base.executemany(f"insert into people values ({', '.join('?' * (WIDTH + 1))})", some)  # noqa: S608


def slopes(sizes: list[int], found: list[dict[str, float]]) -> dict[str, float]:
    """Bytes a row by which memory grows, by least squares."""
    return {part: float(np.polyfit(sizes, [each[part] for each in found], 1)[0]) for part in ("there", "checked")}


def read_source(source: str, folder: Path) -> dict[str, float]:
    """Read the table as a study does; called in a process of its own."""
    from colonnade.tables import Query, Schema, number, read_table

    schema = Schema({f"c{k}": number(-1, 1) for k in range(WIDTH)})
    where = folder / f"table.{source}"
    queried = source in ("duckdb", "sqlite")
    given: Any = Query("select * from people", source, file=where) if queried else where
    began = time.process_time()
    table = read_table(given, schema, on_disk=True)
    there, seconds = resident("VmHWM"), time.process_time() - began
    table.check()
    return {
        "rows": table.rows,
        "there": there,
        "checked": resident("VmHWM"),
        "read": seconds,
        "cpu": time.process_time() - began,
    }


def measure_sources(
    rows: tuple[int, ...] = ROWS, source: tuple[str, ...] = ("parquet", "duckdb")
) -> dict[str, dict[int, Any]]:
    """Memory and processor time of reading a party's table from where it lies: how much of it grows with the rows?

    Each measurement is a process of its own: it reads the table, checks every cell once, and says how much memory it
    took at most until the table was there and in all. Rows have an id of nine letters and eight numbers, in the order
    of the ids. Ids stay in memory, since an alignment needs all of them; what else grows is printed by itself. Sources
    are parquet, duckdb, folder, csv and sqlite; DuckDB makes the rows.
    """
    found: dict[str, dict[int, Any]] = {}
    for kind in source:
        for size in rows:
            with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
                alone(write_source, kind, Path(folder), size)
                read = alone(read_source, kind, Path(folder))
            assert read["rows"] == size
            found.setdefault(kind, {})[size] = read
    return found


def sources_body(found: dict[str, dict[str, Any]]) -> str:
    """Memory and time of each, and bytes a row by which memory grows."""
    rows, grown = [], []
    for kind, by_rows in found.items():
        for size, each in by_rows.items():
            memory = [f"{each[part] / (1 << 20):.0f}" for part in ("there", "checked")]
            rows.append([kind, f"{int(size):,}", *memory, f"{each['read']:.1f} s", f"{each['cpu']:.1f} s"])
        if len(by_rows) > 1:
            slope = slopes([int(size) for size in by_rows], list(by_rows.values()))
            grown.append([kind, f"{slope['there']:.1f}", f"{slope['checked']:.1f}"])
    heads = ("source", "rows", "MiB until the table is there", "until all is checked", "reading", "with checking")
    said = f"The ids alone take {ID_BYTES} bytes a row, which every party holds as long as a study needs them."
    slopes_table = [table(("source", "bytes a row, reading", "with checking"), grown)] if grown else []
    return "\n\n".join([table(heads, rows), *slopes_table, said])


BENCHMARKS = {
    "programs": Benchmark(measure_start, tabled(start_rows, ("program", "seconds", "times `import numpy`"))),
    "sources": Benchmark(
        measure_sources,
        sources_body,
        page="sources",
        title="Reading tables where they lie",
        about=f"Rows of an id and {WIDTH} numbers, read and left on disk, then all checked, in a process of its own. "
        "Its largest size, and processor time.",
    ),
}

if __name__ == "__main__":
    command(__doc__, BENCHMARKS)
