"""Private alignment of lists over TLS, from files to aligned tables, beside SPU's private set intersection.

Every party is a process with a Parquet file of its own, in its own order; each two lists have most people in common.
SPU runs in an environment of its own, because it brings its own versions of everything: make one with
`python -m venv spu && spu/bin/pip install spu`, and name its interpreter in COLONNADE_SPU.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from colonnade.privacy import Trust
from colonnade.protocols import align as alignment
from colonnade.protocols.align import AlignmentTask
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.session import run_role
from colonnade.tables import Schema, number, read_table
from colonnade.tables.keys import Key
from harness import (
    PATIENCE,
    Act,
    Benchmark,
    Row,
    Stage,
    command,
    in_processes,
    resident,
    tabled,
    verdict,
)
from peers import together

NAMES = ("bank", "shop", "clinic")
LIMIT_MEMORY = 2 * 2**30
SCHEMA = Schema({"value": number(0, 1)})


@dataclass(frozen=True)
class Case:
    """One alignment: how, of how many parties, with how many ids each, and within how many seconds."""

    mode: str
    parties: int
    rows: int
    hidden: bool = False
    allowed: float | None = None

    @property
    def owners(self) -> tuple[str, ...]:
        return NAMES[: self.parties]

    @property
    def common(self) -> int:
        """Each list starts a tenth of its length after the one before."""
        return self.rows - (self.parties - 1) * (self.rows // 10)

    @property
    def task(self) -> AlignmentTask:
        seats = self.owners if self.parties > 2 else (*self.owners, COORDINATOR)
        return AlignmentTask(Trust(self.owners, seats, 1), (Key("person_id"),), mode=self.mode, hidden=self.hidden)

    @property
    def title(self) -> str:
        said = f"{self.mode}, members hidden" if self.hidden else self.mode
        return f"{said}: {self.parties} parties, {self.rows:,} ids each"


CASES = (
    Case("ot", 2, 100_000, allowed=6.0),
    Case("ot", 2, 1_000_000, allowed=45.0),
    Case("ot", 3, 1_000_000, allowed=80.0),
    Case("ot", 2, 100_000, hidden=True),
    Case("ot", 3, 100_000, hidden=True),
    Case("dh", 2, 100_000, allowed=60.0),
    Case("dh", 2, 1_000_000, allowed=480.0),
    Case("helper", 2, 100_000),
    Case("helper", 2, 1_000_000, allowed=40.0),
    Case("dh", 3, 100_000),
    Case("helper", 3, 1_000_000),
    Case("dh", 2, 100_000, hidden=True),
    Case("helper", 2, 1_000_000, hidden=True),
)
SPU = (("RR22", 100_000), ("RR22", 1_000_000), ("ECDH", 100_000))


def write_lists(folder: Path, rows: int, kind: str) -> None:
    """A file for each party, in an order of its own."""
    for place, name in enumerate(NAMES):
        numbers = np.random.default_rng(place).permutation(rows) + place * (rows // 10)
        ids = pa.array([f"person-{n:09d}" for n in numbers.tolist()])
        if kind == "csv":
            pa.csv.write_csv(pa.table({"id": ids}), folder / f"{name}.csv")
        else:
            table = pa.table({"person_id": ids, "value": np.zeros(rows)})
            pa.parquet.write_table(table, folder / f"{name}.parquet")


def prepare(name: str, case: Case, folder: str) -> Act:
    return partial(_take_part, case=case, folder=Path(folder))


def _take_part(stage: Stage, case: Case, folder: Path) -> dict[str, Any]:
    began, cpu = time.time(), time.process_time()
    task = case.task
    found: dict[str, Any] = {}
    table = None
    if stage.name != COORDINATOR:
        table = read_table(folder / f"{stage.name}.parquet", SCHEMA, id=None, keys=task.plan)
    place = stage.join()

    def program(me: Any) -> Any:
        if table is None:
            return alignment.coordinator(me, task)
        return alignment.owner(me, table.keys, task)

    result = run_role(place, task, program, wait=PATIENCE).result
    if table is not None:
        found["rows"] = result.table(table).rows
    else:
        found["count"] = result.count
    total = place.counters.total
    return found | {
        "began": began,
        "ended": time.time(),
        "cpu": time.process_time() - cpu,
        "sent": total.payload_sent,
        "peak": resident("VmHWM"),
    }


def align(case: Case) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        write_lists(Path(folder), case.rows, "parquet")
        found = in_processes((*case.owners, COORDINATOR), partial(prepare, case=case, folder=folder))
    assert found[COORDINATOR]["count"] == case.common, "the count is wrong"
    rows = {found[name]["rows"] for name in case.owners}
    assert rows == {case.rows if case.hidden else case.common}, "the aligned tables are wrong"
    return {
        "title": case.title,
        "wall": max(one["ended"] for one in found.values()) - min(one["began"] for one in found.values()),
        "cpu": sum(one["cpu"] for one in found.values()),
        "sent": sum(one["sent"] for one in found.values()),
        "peak": max(one["peak"] for one in found.values()),
        "allowed": case.allowed,
        "rows": case.rows,
        "parties": case.parties,
    }


def align_spu(python: str, protocol: str, rows: int) -> dict[str, Any]:
    """SPU's own program on the same lists, as CSV, which is what it reads; two processes, no TLS."""
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        write_lists(Path(folder), rows, "csv")
        parties = [(protocol, f"{folder}/{name}.csv", f"{folder}/{name}.out") for name in NAMES[:2]]
        reports = together(("spu", "intersection"), parties, python=python)
    assert {report["count"] for report in reports} == {rows - rows // 10}
    return {
        "title": f"SPU {protocol}: 2 parties, {rows:,} ids each, no TLS",
        "wall": max(report["ended"] for report in reports) - min(report["started"] for report in reports),
        "peak": max(report["peak"] for report in reports),
        "rows": rows,
        "protocol": protocol,
    }


def measure(most: int = 10**6, only: str = "") -> dict[str, Any]:
    """All cases of at most so many ids."""
    ours = [align(case) for case in CASES if case.rows <= most and only in case.title]
    python = os.environ.get("COLONNADE_SPU")
    asked = [(protocol, rows) for protocol, rows in SPU if rows <= most and (not only or protocol == "RR22")]
    theirs = [align_spu(python, protocol, rows) for protocol, rows in asked] if python else []
    return {"colonnade": ours, "spu": theirs}


def rows(found: dict[str, Any]) -> Iterator[Row]:
    """The lines of the page of results."""
    for line in found["colonnade"]:
        words = f"**{line['wall']:.1f} s** wall, {line['cpu']:.0f} s CPU, {line['sent'] / 1e6:.0f} MB sent in all"
        words += f", at most {line['peak'] / 1e6:.0f} MB a process"
        required = []
        if line["allowed"] is not None:
            required.append(verdict(line["wall"] < line["allowed"], f"under {line['allowed']:.0f} s"))
        required.append(verdict(line["peak"] <= LIMIT_MEMORY, "at most 2 GB"))
        yield line["title"], words, ", ".join(required)
    for line in found["spu"]:
        beside = [ours for ours in found["colonnade"] if ours["rows"] == line["rows"] and ours["parties"] == 2]
        ratios = ", ".join(
            f"{ours['title'].split(':')[0]} takes {ours['wall'] / line['wall']:.2g} x that" for ours in beside
        )
        yield line["title"], f"{line['wall']:.1f} s wall, {line['peak'] / 1e6:.0f} MB a process; {ratios}", ""
    if not found["spu"]:
        yield "SPU", "not measured: COLONNADE_SPU names no interpreter", ""


BENCHMARKS = {
    "": Benchmark(
        measure,
        tabled(rows),
        page="alignment",
        title="Speed of private alignment",
        about="Every party and the coordinator are processes on this machine, over TLS through the hub. The time is "
        "from files of ids, each in its own order, to aligned tables. SPU's programs run on the same lists.",
        help={
            "most": "leave out lists that are longer",
            "only": "a part of the titles of cases, such as ot; beside RR22 alone",
        },
    )
}

if __name__ == "__main__":
    command(__doc__, BENCHMARKS)
