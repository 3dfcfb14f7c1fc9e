"""Second moments of many rows: 100 columns of three owners in processes over TLS, by default up to 20 million rows.

Shows that memory does not grow with the rows beyond their ids, and that time and bytes are a line in their number.
`--source` says where rows come from. They are made as they are asked for (`made`), or are read from Parquet files that
stay on disk, in the order of the ids (`file`) or in another one (`shuffled`), in which case they are first put in order
on disk. Files are written beforehand to a temporary folder: about 300 bytes a row and owner.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from colonnade.privacy import Trust, parse_budgets
from colonnade.protocols.moments.task import ColumnBlock, Moments, NoisyMoments
from colonnade.protocols.rows import Rows
from colonnade.tables import Schema, number, read_table
from harness import Job, Outcome, run

ROWS = (1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000)
WIDTHS = {"bank": 34, "clinic": 33, "shop": 33}
OWNERS = tuple(WIDTHS)
SOURCES = ("made", "file", "shuffled")
CLIP = 3**-0.5  # of each owner, so that a whole row has norm at most 1
MOST_MEMORY = 1.5e9
LEAST_FIT = 0.99
MB = 1e6
_CHECKED_ROWS = 1_000_000
_STEP = 1 << 14
_ROW_GROUP = 1 << 17


@dataclass(frozen=True)
class Names(Sequence[str]):
    """Ids that exist only while they are asked for."""

    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: Any) -> Any:
        places = range(self.count)[index]
        return [f"P{i:08d}" for i in places] if isinstance(index, slice) else f"P{places:08d}"


@dataclass(frozen=True)
class Made:
    """Rows that exist only while they are asked for."""

    owner: str
    rows: int
    places: None = None

    @property
    def ids(self) -> Names:
        return Names(self.rows)

    def blocks(self, rows: int) -> Iterator[NDArray[np.float64]]:
        for start in range(0, self.rows, rows):
            yield cells(self.owner, np.arange(start, min(start + rows, self.rows)))


def cells(owner: str, people: NDArray[np.int64]) -> NDArray[np.float64]:
    """The encoded rows of some people: the same for a person in whatever order, of norm at most CLIP."""
    first = 1000 * (OWNERS.index(owner) + 1)
    columns = np.arange(first, first + WIDTHS[owner], dtype=np.uint64)
    own = _uniform(people.astype(np.uint64)[:, None] * np.uint64(10_007) + columns)
    common = _uniform(people.astype(np.uint64)[:, None] * np.uint64(10_007))
    values = own + common  # so that owners' columns are correlated
    return values * (CLIP * (1 - 1e-9) / (2 * np.sqrt(WIDTHS[owner])))


def _uniform(numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Hashes between -1 and 1 (splitmix64)."""
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed.astype(np.float64) * 2.0**-63 - 1.0


def made(rows: int, owner: str) -> Rows:
    return Made(owner, rows)


def filed(folder: str, owner: str) -> Rows:
    """A party's table as a study has it: read and checked first, then put in the order of its ids."""
    schema = Schema({f"c{i}": number(-1, 1) for i in range(WIDTHS[owner])}, clip=CLIP)
    table = read_table(Path(folder) / f"{owner}.parquet", schema, on_disk=True)
    table.check()
    return table.sorted_by_id()


def write_files(folder: str, rows: int, shuffled: bool) -> None:
    """A Parquet file for each owner, each in its own order."""
    for owner, width in WIDTHS.items():
        order = np.arange(rows)
        if shuffled:
            np.random.default_rng(OWNERS.index(owner)).shuffle(order)
        schema = pa.schema([("person_id", pa.string()), *((f"c{i}", pa.float64()) for i in range(width))])
        options: dict[str, Any] = {"compression": "none", "use_dictionary": False}
        with pq.ParquetWriter(Path(folder) / f"{owner}.parquet", schema, **options) as writer:
            for start in range(0, rows, _ROW_GROUP):
                people = order[start : start + _ROW_GROUP]
                columns = [pa.array(column) for column in np.ascontiguousarray(cells(owner, people).T)]
                names = pa.array([f"P{i:08d}" for i in people.tolist()])
                writer.write_table(pa.Table.from_arrays([names, *columns], schema=schema))


def make_task() -> Moments:
    """As PCA plans it, epsilon 1 for the analyst; the same arithmetic for any number of rows."""
    trust = Trust(OWNERS, OWNERS, 1)
    blocks = tuple(ColumnBlock(owner, tuple(f"c{i}" for i in range(width)), CLIP) for owner, width in WIDTHS.items())
    draft = Moments(blocks, trust, gamma=4096, constant=2048, rows_at_most=2**25, noise=3)
    return draft.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, trust))


def once(task: Moments, rows: int, source: str) -> Outcome:
    if source == "made":
        return run(Job(task, partial(made, rows)))
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        write_files(folder, rows, source == "shuffled")
        return run(Job(task, partial(filed, folder)))


def check(outcome: Outcome, task: Moments, rows: int) -> dict[str, float]:
    """The largest errors in deviations of noise and rounding: of the count, and of X'X where rows are not too many."""
    found = NoisyMoments(task, outcome.opened)
    worst = {"count": abs(found.count - rows) * found.constant**2 / found.deviations[-1, -1]}
    if rows <= _CHECKED_ROWS:
        exact = np.zeros((task.width - 1, task.width - 1))
        for start in range(0, rows, _STEP):
            people = np.arange(start, min(start + _STEP, rows))
            joint = np.hstack([cells(owner, people) for owner in OWNERS])
            exact += joint.T @ joint
        squares = np.diag(exact) * task.gamma**2
        rounding = rows / 16 + (squares[:, None] + squares[None, :]) / 4
        error = found.second_moments - exact
        # A rounded number's square is larger by its coin's variance, which is at most 1/4.
        error -= np.diag(np.clip(np.diag(error), 0, rows / 4 / task.gamma**2))
        worst["moments"] = float(np.abs(error / (np.sqrt(2 * task.noise + rounding) / task.gamma**2)).max())
    assert max(worst.values()) < 8, f"an entry is {max(worst.values()):.1f} deviations off"
    return worst


def figures(outcome: Outcome) -> dict[str, Any]:
    reports = outcome.reports.values()
    return {
        "wall": outcome.wall,
        "cpu": outcome.cpu,
        "payload": sum(report.payload for report in reports),
        "sealed": sum(report.sealed for report in reports),
        "peak": max(report.peak for report in reports),
        "processes": {
            report.name: {
                "peak": report.peak,
                "before": report.before,
                "cpu": report.process_cpu,
                "payload": report.payload,
                "phases": report.phases,
            }
            for report in reports
        },
    }


def line(sizes: Sequence[int], costs: Sequence[float]) -> dict[str, float]:
    """A straight line through costs by their relative errors: slope, start, R², and the largest relative deviation."""
    x, y = np.array(sizes, dtype=np.float64), np.array(costs)
    if len(x) < 2:
        return {"slope": float(y[0] / x[0]), "start": 0.0, "fit": 1.0, "deviation": 0.0}
    slope, start = np.polyfit(x, y, 1, w=1 / y)
    fitted = slope * x + start
    explained = 1 - float(((y - fitted) ** 2).sum() / ((y - y.mean()) ** 2).sum())
    return {
        "slope": float(slope),
        "start": float(start),
        "fit": explained,
        "deviation": float(np.abs(fitted / y - 1).max()),
    }


def measure(sizes: Sequence[int], source: str) -> dict[str, Any]:
    """Every size, and the lines through them."""
    task = make_task()
    runs: dict[int, dict[str, Any]] = {}
    for rows in sizes:
        outcome = once(task, rows, source)
        runs[rows] = {**figures(outcome), "worst_deviations": check(outcome, task, rows)}
        print(f"{rows:,} rows: {runs[rows]['wall']:.1f} s, {runs[rows]['peak'] / MB:.0f} MB", file=sys.stderr)
    fits = {part: line(sizes, [each[part] for each in runs.values()]) for part in ("wall", "cpu", "payload", "peak")}
    return {
        "source": source,
        "columns": sum(WIDTHS.values()),
        "primes": len(task.committee.system.primes),
        "block_rows": task.rows_per_block,
        "runs": runs,
        "fits": fits,
    }


def rows(found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Rows of a table: what, measured, required."""
    runs, fits = {int(size): each for size, each in found["runs"].items()}, found["fits"]
    where = {
        "made": "made as they are asked for",
        "file": "from Parquet files",
        "shuffled": "from unsorted Parquet files",
    }
    for size, each in runs.items():
        owners = max(part["peak"] for name, part in each["processes"].items() if name in OWNERS)
        yield (
            f"{size:,} x {found['columns']}, rows {where[found['source']]}",
            f"**{each['peak'] / MB:.0f} MB** in the largest process (owners {owners / MB:.0f}, coordinator and hub "
            f"{each['processes']['coordinator']['peak'] / MB:.0f}); {each['wall']:.1f} s, {each['cpu']:.1f} s CPU, "
            f"{each['payload'] / MB:,.0f} MB sent",
            _verdict(each["peak"] <= MOST_MEMORY, "at most 1.5 GB in any process"),
        )
    if len(runs) < 2:
        return
    for part, unit, scale in (("wall", "s", 1.0), ("cpu", "s CPU", 1.0), ("payload", "MB", 1 / MB)):
        fit = fits[part]
        yield (
            f"a line through {part} by rows",
            f"{fit['slope'] * 1e6 * scale:.2f} {unit} a million rows, and {fit['start'] * scale:.2f}; "
            f"R² {fit['fit']:.5f}, largest deviation {fit['deviation']:.1%}",
            _verdict(fit["fit"] >= LEAST_FIT, f"R² at least {LEAST_FIT}"),
        )
    yield "growth of the largest process, a million rows", f"{fits['peak']['slope'] * 1e6 / MB:.1f} MB", ""


def _verdict(good: bool, words: str) -> str:
    return f"{'PASS' if good else 'FAIL'}: {words}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="the sizes to measure")
    parser.add_argument("--source", choices=SOURCES, default="made", help="where rows come from")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.rows, options.source)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print("| what | measured | required |\n|---|---|---|")
    for row in rows(found):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
