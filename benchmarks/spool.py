"""Processor time, memory and disk of a table in partitions: what does it take beside a table that is read as a whole?

Each measurement is a process of its own. *Whole*: the table is read, checked, and its rows are read once in the order
of an alignment, as a study in one part does. *Partitions*: the table is gathered (read and checked once, copied) and
split; another process opens every partition and reads its rows in the order of an alignment. Rows have an id of nine
letters, which is the key, eight numbers, a category and a flag. In CSV files all of them are text.

*Shared*: the same rows in eight files, read, checked and split by the head alone and by its workers.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

ROWS = (1_000_000, 4_000_000)
EACH = 1_000_000
SHARED = 2_000_000
KINDS = ("parquet", "csv")
FILES = 8
WIDTH = 8
MIB = 1 << 20
TARGET = Path(__file__).parent / "results" / "spool.md"
_PART = 500_000


def write(kind: str, folder: Path, rows: int) -> None:
    """Made-up rows in a file."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    draw, writer = np.random.default_rng(1), None
    for start in range(0, rows, _PART):
        count = min(_PART, rows - start)
        part = pa.table(
            {
                "person_id": pa.array([f"P{i:08d}" for i in range(start, start + count)]),
                **{f"c{k}": np.round(draw.uniform(-1, 1, count), 6) for k in range(WIDTH)},
                "city": draw.choice(["A", "B", "C", "D"], count),
                "smoker": draw.choice(["yes", "no"], count),
            }
        )
        make = pa.csv.CSVWriter if kind == "csv" else pa.parquet.ParquetWriter
        writer = writer or make(folder / f"table.{kind}", part.schema)
        writer.write_table(part)
    if writer is not None:
        writer.close()


class Clock:
    """Microseconds of processor time for each row, and the largest size of this process in bytes, step by step."""

    def __init__(self, rows: int) -> None:
        self._rows, self._last = rows, time.process_time()
        self.found: dict[str, Any] = {}

    def note(self, step: str) -> None:
        now = time.process_time()
        self.found[step] = {"us": (now - self._last) / self._rows * 1e6, "peak": _peak()}
        self._last = now


def whole(kind: str, folder: Path, rows: int) -> dict[str, Any]:
    """A table that is read as a whole; called in a process of its own."""
    from colonnade.tables import read_table

    clock = Clock(rows)
    table = read_table(folder / f"table.{kind}", schema(), keys=plan(), on_disk=True)
    clock.note("read")
    table.check()
    clock.note("check")
    _read_aligned(table)
    clock.note("aligned")
    return clock.found


def head(kind: str, folder: Path, rows: int, each: int) -> dict[str, Any]:
    """Partitions, which are there until somebody writes a line; called in a process of its own."""
    from colonnade.protocols.lanes.partitions import Partitions
    from colonnade.tables.partitioning import stage_table

    clock = Clock(rows)
    gathered = stage_table(folder / f"table.{kind}", schema(), plan(), folder)
    clock.note("gather")
    count = 1 << max(0, (rows // each - 1).bit_length())
    made = gathered.split(Partitions(count, bytes(32)).of, count)
    clock.note("split")
    size = sum(part.stat().st_size for part in made.folder.iterdir()) / rows
    print(json.dumps(clock.found | {"bytes": size, "partitions": count, "folder": str(made.folder)}), flush=True)
    sys.stdin.readline()
    made.remove()
    return {}


class Crew:
    """Workers that do nothing but help, and the processor time that they take."""

    def __init__(self, count: int) -> None:
        from colonnade.study.engine.processes import ProcessEngine

        self._engine, self.seconds, self.peak = ProcessEngine(), 0.0, 0
        self._free = deque(self._engine.start("spool:help_head", (), count))
        for _ in range(count):
            self._engine.events.get(timeout=60)  # it has imported everything

    def share(self, chores: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        from colonnade.study.engine.base import WorkerMessage
        from colonnade.study.lanes.worker import TableChore

        waiting, busy = deque(enumerate(chores)), 0
        while waiting or busy:
            while waiting and self._free:
                self._engine.send(self._free.popleft(), TableChore(*waiting.popleft()))
                busy += 1
            found = self._engine.events.get(timeout=600)
            if not isinstance(found, WorkerMessage):
                raise RuntimeError("a worker is gone")
            helped, taken, peak = found.value
            self.seconds, self.peak = self.seconds + taken, max(self.peak, peak)
            self._free.append(found.worker)
            busy -= 1
            if not helped.failed:
                yield helped.number, helped.result

    def close(self) -> None:
        self._engine.stop()


def help_head(line: Any) -> None:
    """The role of such a worker."""
    from colonnade.study.lanes.worker import do_chore

    warmed()
    line.say(None)
    while True:
        command, start = line.receive(), time.process_time()
        done = do_chore(command)
        line.say((done, time.process_time() - start, _peak()))


def shared(folder: Path, rows: int, workers: int) -> dict[str, Any]:
    """The folder ``table`` in 64 partitions, by so many workers; 0 for the head alone."""
    from colonnade.protocols.lanes.partitions import Partitions
    from colonnade.study.lanes.worker import PartitionFinder
    from colonnade.tables.partitioning import stage_table
    from colonnade.tables.partitioning.staging import no_workers

    crew = Crew(workers) if workers else None
    hands = no_workers if crew is None else crew.share
    clock, own, marks = time.monotonic(), time.process_time(), []
    gathered = stage_table(folder / "table", schema(), plan(), folder, workers=hands)
    marks.append(time.monotonic() - clock)
    spread = PartitionFinder.write(Partitions(64, bytes(32)), gathered.folder)
    made = gathered.split(spread, spread.count, hands)
    marks.append(time.monotonic() - clock)
    assert made.lengths.sum() == rows
    found = {
        "gather": marks[0],
        "in all": marks[1],
        "head": time.process_time() - own,
        "workers": crew.seconds if crew else 0.0,
        "head peak": _peak(),
        "worker peak": crew.peak if crew else 0,
    }
    gathered.remove()
    if crew is not None:
        crew.close()
    return found


def in_files(folder: Path) -> None:
    """The rows of a Parquet file, in several."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(folder / "table.parquet")
    (folder / "table").mkdir()
    size = -(-table.num_rows // FILES)
    for place in range(FILES):
        pyarrow.parquet.write_table(table.slice(place * size, size), folder / "table" / f"{place}.parquet")


def _peak() -> int:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def worker(folder: Path, rows: int) -> dict[str, Any]:
    """Open every partition; then again, with its rows encoded in the order of an alignment."""
    from colonnade.tables.partitioning import PartitionedTable

    spool, clock = PartitionedTable.open(folder, schema()), Clock(rows)
    assert spool.lengths.sum() == rows
    for place in range(spool.count):
        spool.partition(place)
    clock.note("open")
    for place in range(spool.count):
        _read_aligned(spool.partition(place))
    clock.note("aligned")
    return clock.found


def warmed() -> None:
    """Import all that is needed, by doing all of it with a few rows."""
    from colonnade.tables.partitioning import stage_table

    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        for kind in KINDS:
            write(kind, Path(folder), 10)
            whole(kind, Path(folder), 10)
        gathered = stage_table(Path(folder) / "table.csv", schema(), plan(), folder)
        made = gathered.split(lambda keys: np.zeros(len(keys), np.int64), 1)
        worker(made.folder, 10)
        made.remove()


def schema() -> Any:
    from colonnade.tables import Schema, category, flag, number

    numbers = {f"c{k}": number(-1, 1) for k in range(WIDTH)}
    return Schema({**numbers, "city": category(["A", "B", "C", "D"]), "smoker": flag()})


def plan() -> Any:
    from colonnade.tables import Key, KeyPlan

    return KeyPlan((Key("person_id"),))


def _read_aligned(table: Any) -> None:
    import pyarrow as pa

    order = np.random.default_rng(2).permutation(table.rows)
    view = table.aligned(order, pa.array(np.arange(table.rows)).cast(pa.large_string()))
    assert sum(len(block) for block in view.blocks()) == table.rows


def alone(*given: object) -> str:
    """Write or measure in a process of its own."""
    return subprocess.run(_command(*given), check=True, stdout=subprocess.PIPE, text=True).stdout


def _command(*given: object) -> list[str]:
    return [sys.executable, __file__, "--child", *map(str, given)]


def measure(kind: str, rows: int, each: int, folder: Path) -> dict[str, Any]:
    alone("write", kind, folder, rows, each)
    found = {"whole": json.loads(alone("whole", kind, folder, rows, each))}
    # The worker is no child of the head: a process counts what its parent took as its own memory.
    with subprocess.Popen(
        _command("head", kind, folder, rows, each), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        parts = json.loads(process.stdout.readline())
        parts |= json.loads(alone("worker", kind, parts.pop("folder"), rows, each))
        process.communicate("done\n")
    return found | {"parts": parts}


def measure_shared(rows: int, workers: list[int], folder: Path) -> dict[int, Any]:
    alone("write", "parquet", folder, rows, 0)
    alone("files", "parquet", folder, rows, 0)
    return {count: json.loads(alone("shared", "parquet", folder, rows, count)) for count in [0, *workers]}


def shared_lines(rows: int, found: dict[int, Any]) -> list[str]:
    lines = [
        "",
        f"Shared: {rows:,} rows in {FILES} Parquet files, in 64 partitions. Seconds; the clock runs from the first "
        "file to the last partition, without the start of workers, on a machine that does other work too.",
        "",
        "| workers | clock: gather | clock: in all | processor: head | workers | in all | head MiB | worker MiB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for count, one in found.items():
        seconds = [one["gather"], one["in all"], one["head"], one["workers"], one["head"] + one["workers"]]
        sizes = (
            f"{one['head peak'] / MIB:.0f} | {one['worker peak'] / MIB:.0f}"
            if count
            else f"{one['head peak'] / MIB:.0f} |"
        )
        lines.append(f"| {count or 'none'} | {' | '.join(f'{each:.2f}' for each in seconds)} | {sizes} |")
    return lines


def page(runs: dict[str, dict[int, Any]], lines_after: list[str]) -> str:
    day, where = datetime.now(UTC).date(), f"{os.cpu_count()} cores, {platform.machine()}"
    lines = [
        "# Tables in partitions",
        "",
        f"{day}; {where}, Python {platform.python_version()}. Made by `python benchmarks/spool.py`: rows of a key, "
        f"{WIDTH} numbers, a category and a flag. Processor time in microseconds a row, and the largest size of the "
        "process in MiB.",
        "",
        "| file | rows | whole: read | check | aligned | in all | MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    steps = ("read", "check", "aligned")
    for kind, by_rows in runs.items():
        for rows, found in by_rows.items():
            us = [found["whole"][step]["us"] for step in steps]
            most = found["whole"]["aligned"]["peak"] / MIB
            lines.append(f"| {kind} | {rows:,} | {' | '.join(f'{each:.2f}' for each in [*us, sum(us)])} | {most:.0f} |")
    lines += [
        "",
        "| file | rows | partitions | gather | split | open | aligned | in all | head MiB | worker MiB | bytes a row |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, by_rows in runs.items():
        for rows, found in by_rows.items():
            parts = found["parts"]
            us = [parts[step]["us"] for step in ("gather", "split", "open", "aligned")]
            shown = " | ".join(f"{each:.2f}" for each in [*us, us[0] + us[1] + us[3]])
            sizes = f"{parts['split']['peak'] / MIB:.0f} | {parts['aligned']['peak'] / MIB:.0f}"
            lines.append(f"| {kind} | {rows:,} | {parts['partitions']} | {shown} | {sizes} | {parts['bytes']:.0f} |")
    lines += ["", "*Aligned* has opening a partition in it. *Open* alone is a part of that."]
    return "\n".join([*lines, *lines_after]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS, help="the sizes to measure")
    parser.add_argument("--kind", choices=KINDS, nargs="+", default=KINDS, help="the kind of file")
    parser.add_argument("--each", type=int, default=EACH, help="rows a partition, at most")
    parser.add_argument("--shared", type=int, default=SHARED, help="rows that workers share; 0: not measured")
    parser.add_argument("--workers", type=int, nargs="+", default=[2], help="how many workers share them")
    parser.add_argument("--folder", type=Path, help="where files are written (a temporary folder)")
    parser.add_argument("--write", action="store_true", help=f"write {TARGET.name} beside the other results")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        way, kind, folder, rows, each = given.child
        if way == "write":
            write(kind, Path(folder), int(rows))
            return
        if way == "files":
            in_files(Path(folder))
            return
        warmed()
        if way == "shared":
            print(json.dumps(shared(Path(folder), int(rows), int(each))))
        elif way == "head":
            head(kind, Path(folder), int(rows), int(each))
        else:
            found = whole(kind, Path(folder), int(rows)) if way == "whole" else worker(Path(folder), int(rows))
            print(json.dumps(found))
        return
    runs: dict[str, dict[int, Any]] = {}
    for kind in given.kind:
        for rows in given.rows:
            with tempfile.TemporaryDirectory(prefix="colonnade-bench-", dir=given.folder) as folder:
                runs.setdefault(kind, {})[rows] = measure(kind, rows, given.each, Path(folder))
            print(f"{kind}, {rows:,} rows: done", file=sys.stderr)
    others: dict[int, Any] = {}
    if given.shared:
        with tempfile.TemporaryDirectory(prefix="colonnade-bench-", dir=given.folder) as folder:
            others = measure_shared(given.shared, given.workers, Path(folder))
    after = shared_lines(given.shared, others) if others else []
    print(json.dumps({"alone": runs, "shared": others}) if given.json else page(runs, after))
    if given.write:
        TARGET.write_text(page(runs, after), encoding="utf-8")


if __name__ == "__main__":
    main()
