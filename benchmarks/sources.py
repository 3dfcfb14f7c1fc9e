"""Memory and processor time of reading a party's table from where it lies: how much of it grows with the rows?

Each measurement is a process of its own: it reads the table, checks every cell once, and says how much memory it took
at most (a) until the table was there and (b) in all. Rows have an id of nine letters and eight numbers, in the order of
the ids. Ids stay in memory, since an alignment needs all of them; what else grows is printed by itself.
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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

ROWS = (5_000_000, 10_000_000)
SOURCES = ("parquet", "duckdb", "folder", "csv", "sqlite")
WIDTH = 8
ID_BYTES = 9 + 8  # the letters of an id, and where it ends
MIB = 1 << 20
TARGET = Path(__file__).parent / "results" / "sources.md"
_FILES = 8


def write(source: str, folder: Path, rows: int) -> None:
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


def read(source: str, folder: Path) -> dict[str, float]:
    """Read the table as a study does; called in a process of its own."""
    from colonnade.tables import Query, Schema, number, read_table

    schema = Schema({f"c{k}": number(-1, 1) for k in range(WIDTH)})
    where = folder / f"table.{source}"
    queried = source in ("duckdb", "sqlite")
    given: Any = Query("select * from people", source, file=where) if queried else where
    began = time.process_time()
    table = read_table(given, schema, on_disk=True)
    there, seconds = _peak(), time.process_time() - began
    table.check()
    return {
        "rows": table.rows,
        "there": there,
        "checked": _peak(),
        "read": seconds,
        "cpu": time.process_time() - began,
    }


def _peak() -> int:
    """The most memory that this process ever had, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def measure(source: str, rows: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        # A process counts what its parent took as its own, so that neither of them may have been the writer.
        alone(source, folder, str(rows))
        found: dict[str, float] = json.loads(alone(source, folder))
    assert found["rows"] == rows
    return found


def alone(*given: str) -> str:
    """Write or read in a process of its own."""
    command = [sys.executable, __file__, "--child", *given]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def slopes(sizes: list[int], found: list[dict[str, float]]) -> dict[str, float]:
    """Bytes a row by which memory grows, by least squares."""
    return {part: float(np.polyfit(sizes, [each[part] for each in found], 1)[0]) for part in ("there", "checked")}


def page(runs: dict[str, dict[int, dict[str, float]]]) -> str:
    day, where = datetime.now(UTC).date(), f"{os.cpu_count()} cores, {platform.machine()}"
    lines = [
        "# Reading tables where they lie",
        "",
        f"{day}; {where}, Python {platform.python_version()}. Made by `python benchmarks/sources.py`: rows of an id "
        f"and {WIDTH} numbers, read and left on disk, then all checked, in a process of its own. Its largest size, in "
        "MiB, and processor time.",
        "",
        "| source | rows | until the table is there | until all is checked | reading | with checking |",
        "|---|---|---|---|---|---|",
    ]
    for source, by_rows in runs.items():
        for rows, each in by_rows.items():
            sizes = f"{each['there'] / MIB:.0f} | {each['checked'] / MIB:.0f}"
            lines.append(f"| {source} | {rows:,} | {sizes} | {each['read']:.1f} s | {each['cpu']:.1f} s |")
    lines += ["", "| source | bytes a row, reading | with checking |", "|---|---|---|"]
    for source, by_rows in runs.items():
        if len(by_rows) > 1:
            grown = slopes(list(by_rows), list(by_rows.values()))
            lines.append(f"| {source} | {grown['there']:.1f} | {grown['checked']:.1f} |")
    lines += ["", f"The ids alone take {ID_BYTES} bytes a row, which every party holds as long as a study needs them."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="the sizes to measure")
    parser.add_argument("--source", choices=SOURCES, nargs="+", default=SOURCES[:2], help="where rows lie")
    parser.add_argument("--write", action="store_true", help=f"write {TARGET.name} beside the other results")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        source, folder, *rows = given.child
        if rows:
            write(source, Path(folder), int(rows[0]))
        else:
            print(json.dumps(read(source, Path(folder))))
        return
    runs: dict[str, dict[int, dict[str, float]]] = {}
    for source in given.source:
        for size in given.rows:
            runs.setdefault(source, {})[size] = measure(source, size)
            print(f"{source}, {size:,} rows: done", file=sys.stderr)
    print(json.dumps(runs) if given.json else page(runs))
    if given.write:
        TARGET.write_text(page(runs), encoding="utf-8")


if __name__ == "__main__":
    main()
