"""What a study of many rows would take, by the model of `colonnade plan --cost`; and one that is measured beside it.

Three parties align their people (mode ot) and compute second moments of 200 columns. Predictions are made with the
constants that are built in. `--measure` runs the whole of it once, without
lanes, in processes over TLS, from Parquet files in orders of their own to the opened sums, and says how far the model
is off; processor time, since the machine may be shared.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.cli.run_estimates import clock, fit, size
from colonnade.privacy import Trust
from colonnade.protocols.align import AlignmentTask
from colonnade.protocols.moments.task import ColumnBlock, Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.study.scale import BUILT_IN, MachineConstants, RunTimeEstimate, WorkerFleet, estimate, work_of_task
from colonnade.tables.keys import Key

OWNERS = ("bank", "clinic", "shop")
ROWS = (100_000, 1_000_000, 20_000_000, 100_000_000, 1_000_000_000)
FLEETS = (WorkerFleet(1), WorkerFleet(4), WorkerFleet(64, 4, 1.25e9))
COLUMNS = 200
CLIP = 3**-0.5
PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "scale.md"
MARKS = "<!-- {} -->", "<!-- end of {} -->"


def widths(columns: int) -> dict[str, int]:
    """How many columns each owner has."""
    return {owner: columns // 3 + (place < columns % 3) for place, owner in enumerate(OWNERS)}


def tasks(columns: int) -> tuple[Moments, AlignmentTask]:
    """Second moments, and the alignment before them."""
    trust = Trust(OWNERS, OWNERS, 1)
    blocks = tuple(ColumnBlock(o, tuple(f"c{i}" for i in range(width)), CLIP) for o, width in widths(columns).items())
    task = Moments(blocks, trust, gamma=4096, constant=2048, rows_at_most=2**30, noise=4 * 10**15)
    return task, AlignmentTask(trust, (Key("person_id"),), mode="ot")


def predicted(
    rows: int, columns: int, fleet: WorkerFleet, measured: MachineConstants, table: Any = "parquet"
) -> RunTimeEstimate:
    """By the model."""
    task, aligning = tasks(columns)
    count = fit(rows, fleet.workers)
    names = (*OWNERS, COORDINATOR)
    work = work_of_task(task, aligning, names, widths(columns), rows, count, table)
    return estimate(work, fleet, measured)


def table(measured: MachineConstants) -> str:
    """Predictions as markdown."""
    lines = [
        "| rows | workers | partitions | clock | core-hours | on the wire | a worker | a head | disk | bottleneck |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for rows in ROWS:
        for fleet in FLEETS:
            found = predicted(rows, COLUMNS, fleet, measured)
            memory = max(party.worker_memory for party in found.parties)
            head = max(party.head_memory for party in found.parties)
            disk = max(party.disk for party in found.parties)
            lines.append(
                f"| {rows:,} | {fleet.workers} | {found.partitions:,} | {clock(found.seconds)} "
                f"| {found.core_hours:.3g} | {size(found.bytes_total)} | {size(memory)} | {size(head)} "
                f"| {size(disk)} | {found.bottleneck} |"
            )
    return "\n".join(lines)


# --- measured


def write_tables(folder: Path, rows: int, columns: int) -> None:
    """A Parquet file for each owner, in an order of its own; all have the same people."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for place, (owner, width) in enumerate(widths(columns).items()):
        draws = np.random.default_rng(place)
        order = draws.permutation(rows)
        held = {"person_id": pa.array([f"person-{i:09d}" for i in order.tolist()])}
        held |= {f"c{i}": pa.array(draws.uniform(0, 1, rows).round(4)) for i in range(width)}
        pq.write_table(pa.table(held), folder / f"{owner}.parquet")


def _prepare(name: str, folder: str, columns: int) -> Any:
    return partial(_take_part, folder=folder, columns=columns)


def _take_part(stage: Any, folder: str, columns: int) -> dict[str, Any]:
    from colonnade.protocols import align
    from colonnade.protocols.moments import programs
    from colonnade.protocols.session import run_role
    from colonnade.tables import Schema, number, read_table
    from harness import PATIENCE, resident

    task, aligning = tasks(columns)
    began, cpu = time.time(), time.process_time()
    schema = Schema({f"c{i}": number(0, 1) for i in range(widths(columns).get(stage.name, 0) or 1)}, clip=CLIP)
    held = None
    if stage.name != COORDINATOR:
        held = read_table(Path(folder) / f"{stage.name}.parquet", schema, id=None, keys=aligning.plan)
        held.check()
    reading = time.process_time() - cpu
    place = stage.join()
    count = 0

    def program(me: Any) -> Any:
        nonlocal count
        if held is None:
            align.coordinator(me, aligning)
            return programs.coordinator(me, task)
        with me.meter.phase("align"):
            found = align.owner(me, held.keys, aligning).table(held)
        count = found.rows
        return programs.owner(me, found, task)

    played = run_role(place, task, program, wait=PATIENCE, aligns=True, processor=time.process_time)
    return {
        "cpu": time.process_time() - cpu,
        "reading": reading,
        "phases": {name: phase.cpu for name, phase in played.phases.items()},
        "began": began,
        "ended": time.time(),
        "sent": place.counters.total.payload_sent,
        "peak": resident("VmHWM"),
        "rows": count,
    }


def measure(rows: int, columns: int) -> dict[str, Any]:
    """One run, in processes on this machine."""
    from harness import in_processes

    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        write_tables(Path(folder), rows, columns)
        found = in_processes((*OWNERS, COORDINATOR), partial(_prepare, folder=folder, columns=columns))
    assert all(found[owner]["rows"] == rows for owner in OWNERS), "not all people were found"
    return {
        "rows": rows,
        "columns": columns,
        "cpu": sum(one["cpu"] for one in found.values()),
        "owners": {name: found[name] for name in OWNERS},
        "coordinator": found[COORDINATOR],
        "wall": max(one["ended"] for one in found.values()) - min(one["began"] for one in found.values()),
        "sent": sum(one["sent"] for one in found.values()),
        "peak": max(one["peak"] for one in found.values()),
    }


def beside(found: dict[str, Any], measured: MachineConstants) -> str:
    """A measured run beside its prediction, as a line of a table."""
    guess = predicted(found["rows"], found["columns"], WorkerFleet(), measured)
    seconds = 3600 * guess.core_hours
    memory = max(party.worker_memory for party in guess.parties)
    return (
        f"| {found['rows']:,} x {found['columns']} | {found['cpu']:.1f} s, {seconds:.1f} s "
        f"({seconds / found['cpu'] - 1:+.0%}) | {size(found['sent'])}, {size(guess.bytes_total)} "
        f"({guess.bytes_total / found['sent'] - 1:+.0%}) | {size(found['peak'])}, {size(memory)} "
        f"({memory / found['peak'] - 1:+.0%}) |"
    )


def main() -> None:
    """Print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into docs/explanation/scale.md")
    parser.add_argument("--measure", type=int, nargs=2, metavar=("ROWS", "COLUMNS"), help="run this once, beside")
    parser.add_argument("--json", action="store_true", help="what was measured, in full")
    options = parser.parse_args()
    if options.measure:
        found = measure(*options.measure)
        print(json.dumps(found, indent=2) if options.json else beside(found, BUILT_IN))
        return
    made = table(BUILT_IN)
    if not options.write:
        print(made)
        return
    begin, end = (mark.format("predictions") for mark in MARKS)
    head, rest = PAGE.read_text(encoding="utf-8").split(begin)
    PAGE.write_text(f"{head}{begin}\n{made}\n{end}{rest.split(end)[1]}", encoding="utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
