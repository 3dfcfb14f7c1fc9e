"""Secure X'X of 195,666 x 117, three owners in three processes over TLS, beside one plaintext dgemm.

With ``--direct`` owners connect to each other, and the hub carries nothing but handshakes.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.privacy import Trust, parse_budgets
from colonnade.protocols.moments.task import ColumnBlock, Moments, NoisyMoments
from harness import ALIGN, MB, Benchmark, Job, Outcome, Report, Row, command, run, tabled, verdict

ALLOWED = 10.0

ROWS, COLUMNS, SMALL = 195_666, 39, 50_000
OWNERS = ("bank", "clinic", "shop")
CLIP = 3**-0.5  # of each owner, so that a whole row has norm at most 1
_CHUNK = 8192


@dataclass(frozen=True)
class Generated:
    """Rows of norm at most CLIP that exist one block at a time."""

    owner: str
    rows: int
    places: None = None

    @property
    def ids(self) -> list[str]:
        return [f"P{i:06d}" for i in range(self.rows)]

    def blocks(self, rows: int) -> Iterator[NDArray[np.float64]]:
        assert rows == _CHUNK, "blocks are seeded by their place"
        for start in range(0, self.rows, rows):
            yield _block(self.owner, start, min(rows, self.rows - start))


@dataclass(frozen=True)
class Stored:
    """The same rows, made beforehand and kept in memory."""

    ids: list[str]
    values: NDArray[np.float64]
    places: None = None

    def blocks(self, rows: int) -> Iterator[NDArray[np.float64]]:
        return (self.values[start : start + rows] for start in range(0, len(self.values), rows))


def _block(owner: str, start: int, rows: int) -> NDArray[np.float64]:
    draws = np.random.default_rng([OWNERS.index(owner), start])
    values = draws.standard_normal((rows, COLUMNS)) * np.linspace(1.0, 0.2, COLUMNS)
    values += draws.standard_normal((rows, 1))
    return values * (CLIP * draws.uniform(0.2, 1.0, (rows, 1)) / np.linalg.norm(values, axis=1)[:, None])


def generated(rows: int, owner: str) -> Generated:
    return Generated(owner, rows)


def stored(rows: int, owner: str) -> Stored:
    table = Generated(owner, rows)
    return Stored(table.ids, np.vstack(list(table.blocks(_CHUNK))))


def make_task() -> Moments:
    """As PCA plans it: epsilon 1 for the analyst."""
    trust = Trust(OWNERS, OWNERS, 1)
    blocks = tuple(ColumnBlock(owner, tuple(f"c{i}" for i in range(COLUMNS)), CLIP) for owner in OWNERS)
    draft = Moments(blocks, trust, gamma=4096, constant=2048, rows_at_most=200_000, noise=3, block_rows=_CHUNK)
    budgets = parse_budgets({"analyst": 1.0}, 1e-5, trust)
    task = draft.calibrate(budgets)
    assert len(task.committee.system.primes) == 2
    return task


def plaintext(joint: NDArray[np.float64]) -> tuple[NDArray[np.float64], float, float]:
    """X'X, and processor seconds of one dgemm (X'Y with Y a copy) and of BLAS's symmetric product."""
    copy = joint.copy()
    dgemm = _best(lambda: joint.T @ copy)
    return joint.T @ copy, dgemm, _best(lambda: joint.T @ joint)


def _best(call: Callable[[], Any], times: int = 5) -> float:
    taken = []
    for _ in range(times):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return min(taken)


def check(outcome: Outcome, task: Moments, exact: NDArray[np.float64], rows: int) -> float:
    """The largest error in deviations of noise and rounding; a wrong residue would be off by millions."""
    error = NoisyMoments(task, outcome.opened).second_moments - exact
    squares = np.diag(exact) * task.gamma**2
    rounding = rows / 16 + (squares[:, None] + squares[None, :]) / 4
    deviation = np.sqrt(2 * task.noise + rounding) / task.gamma**2
    # A rounded number's square is larger by its coin's variance, which is at most 1/4.
    error -= np.diag(np.clip(np.diag(error), 0, rows / 4 / task.gamma**2))
    worst = float(np.abs(error / deviation).max())
    assert worst < 8, f"an entry is {worst:.1f} deviations off"
    return worst


def measure(repeats: int = 3, direct: bool = False) -> dict[str, Any]:
    """All figures."""
    task = make_task()
    joint = np.hstack([stored(ROWS, owner).values for owner in OWNERS])
    exact, *first = plaintext(joint)
    outcomes = []
    for _ in range(repeats):
        outcomes.append(run(Job(task, partial(stored, ROWS), direct=direct)))
    dgemm, syrk = map(min, zip(first, plaintext(joint)[1:], strict=True))
    worst = max(check(outcome, task, exact, ROWS) for outcome in outcomes)
    del joint
    typical = sorted(outcomes, key=lambda outcome: sum(node.own_work for node in outcome.nodes))[repeats // 2]
    work = [sum(node.own_work for node in outcome.nodes) for outcome in outcomes]
    return {
        "rows": ROWS,
        "columns": COLUMNS * len(OWNERS),
        "primes": len(task.committee.system.primes),
        "repeats": repeats,
        "dgemm": dgemm,
        "syrk": syrk,
        "work": median(work),
        "work_range": [min(work), max(work)],
        "ratio": median(work) / dgemm,
        "transport": median(sum(r.transport for r in outcome.reports.values()) for outcome in outcomes),
        "tls": median(sum(r.tls for r in outcome.reports.values()) for outcome in outcomes),
        "wall": median(outcome.wall for outcome in outcomes),
        "cpu": median(outcome.cpu for outcome in outcomes),
        "worst_deviations": worst,
        "nodes": [_node(node) for node in typical.reports.values()],
        "memory": memory(task),
    }


def _node(report: Report) -> dict[str, Any]:
    work = report.work
    return {
        "name": report.name,
        "phases": {name: round(cpu, 3) for name, cpu in work.items() if name != ALIGN},
        "work": report.own_work,
        "align": work.get(ALIGN, 0.0),
        "messages_in_program": sum(report.wire.values()),
        "tls": report.tls,
        "other_threads": report.process_cpu - report.program_cpu,
        "process": report.process_cpu,
        "payload": report.payload,
        "sealed": report.sealed,
        "messages": report.messages,
    }


def memory(task: Moments) -> dict[str, Any]:
    """Peak resident memory where rows exist only while they are asked for."""
    peaks = {}
    for rows in (SMALL, ROWS):
        outcome = run(Job(task, partial(generated, rows)))
        peaks[rows] = {
            "peak": max(node.peak for node in outcome.nodes),
            "growth": max(node.peak - node.before for node in outcome.nodes),
            "coordinator": outcome.reports["coordinator"].peak,
        }
    return {
        "by_rows": peaks,
        "one_table": ROWS * COLUMNS * 8,
        "ratio": peaks[ROWS]["peak"] / peaks[SMALL]["peak"],
    }


def rows(found: dict[str, Any]) -> Iterator[Row]:
    """Rows of a table: what, measured, required."""
    base, nodes, memory = found["dgemm"], found["nodes"], found["memory"]
    low, high = (part / base for part in found["work_range"])
    small, large = memory["by_rows"].values()
    size = f"X'X of {found['rows']:,} x {found['columns']}"
    yield f"{size}: one plaintext dgemm, one thread", f"{base:.3f} s ({found['syrk']:.3f} s symmetric)", ""
    yield (
        "dealing and arithmetic of all three nodes, CPU",
        f"**{found['ratio']:.1f} x dgemm** ({low:.1f} to {high:.1f}); {found['work']:.2f} s; "
        f"{found['work'] / found['syrk']:.1f} x symmetric",
        verdict(found["ratio"] <= ALLOWED, f"at most {ALLOWED:g} x"),
    )
    for phase in nodes[1]["phases"]:
        cells = ", ".join(f"{node['phases'].get(phase, 0.0):.3f}" for node in nodes[1:])
        yield f"of it, {phase}, each node", f"{cells} s", ""
    yield (
        "encryption and transport of all nodes and the hub, CPU",
        f"{found['transport'] / base:.1f} x dgemm; {found['transport']:.2f} s, end-to-end TLS {found['tls']:.2f} s",
        "",
    )
    for node in nodes:
        cells = [node[key] for key in ("messages_in_program", "other_threads", "align", "process")]
        said = "messages {:.2f}, other threads {:.2f}, ids {:.2f}, all {:.2f} s".format(*cells)
        sent = f"{node['payload'] / MB:.1f} MB, sealed {node['sealed'] / MB:.1f} MB"
        yield f"{node['name']}: CPU, and bytes sent", f"{said}; {sent}", ""
    yield (
        "wall time, three nodes and the hub on this machine",
        f"{found['wall'] / base:.1f} x dgemm; {found['wall']:.1f} s",
        "",
    )
    yield (
        "bytes sent by one node, by all",
        f"{nodes[1]['payload'] / MB:.1f} MB, {sum(n['payload'] for n in nodes) / MB:.1f} MB; sealed "
        f"{sum(n['sealed'] for n in nodes) / MB:.1f} MB",
        "",
    )
    yield (
        f"peak memory of a node, {ROWS:,} rows against {SMALL:,}",
        f"{memory['ratio']:.2f} x ({large['peak'] / MB:.0f} against {small['peak'] / MB:.0f} MB)",
        verdict(memory["ratio"] < 1.25, "bounded by the block"),
    )
    yield "largest error, in deviations of noise and rounding", f"{found['worst_deviations']:.1f}", "at most 8"


BENCHMARKS = {"": Benchmark(measure, tabled(rows), help={"direct": "owners connect to each other"})}

if __name__ == "__main__":
    command(__doc__, BENCHMARKS)
