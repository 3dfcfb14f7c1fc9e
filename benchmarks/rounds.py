"""One round of iterative logistic regression: batches of 100, 100 columns with the intercept, three owners.

Rows are dealt once; a round is then a product on shares and one opening. Noise is dealt for 64 rounds at a time, so
rounds are timed in chunks of 64: the time within a chunk, and from one chunk's end to the next, which contains the
drawing and dealing of noise as well. Figures are medians over chunks, since one slow moment of a shared machine
would spoil a mean, of the slowest owner. Every setting is measured in both modes of security. In active mode the checks
of opened rounds come after many chunks, so the modes are compared by means over all rounds, with noise and checks, and
by the processor time of all owners, without that for the rows that are dealt once.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.regression import programs as gradients
from colonnade.kinds.regression.task import GradientTask
from colonnade.privacy import Trust, parse_budgets
from colonnade.privacy.observers import Security
from colonnade.protocols.roles import COORDINATOR, PhaseMeter
from colonnade.protocols.rows import ColumnBlock
from colonnade.protocols.session import run_role
from colonnade.wire import Endpoint
from gram import Stored
from harness import PATIENCE, Act, Benchmark, Row, Stage, command, in_processes, in_threads, tabled, verdict

ROWS, COLUMNS, BATCH, PLANNED_ROUNDS = 10_000, 33, 100, 1000
OWNERS = ("bank", "clinic", "shop")
LABEL_OWNER = "shop"
GAMMA = {1: 1024, 3: 128}
"""As the model chooses them."""
WEIGHT_BOUND = {1: 8.0, 3: 4.0}
ALLOWED = {"processes": 5.0, "direct": 3.0, "threads": 1.5}
WORDS = {
    "processes": "processes over TLS, through the hub",
    "direct": "processes over direct links",
    "threads": "threads of one process",
}
CHUNKS = {1: 12, 3: 4}
"""Chunks of 64 rounds in one run."""
SECURITY: tuple[Security, ...] = ("semi-honest", "active")
SLOWER = 1.5
"""How many times as long a round may take in active mode, to degree 1."""
_COUNTED = ("noise", "iterate", "check")


@dataclass
class Laps(PhaseMeter):
    """A meter that keeps every chunk of rounds: when it began and ended, and the bytes sent until then."""

    place: Endpoint | None = None
    chunk: int = 1
    laps: list[tuple[float, float, int]] = field(default_factory=list)
    ended: float = 0.0
    rounds: int = 0
    begun: float = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        if name == "iterate" and self.rounds % self.chunk == 0:
            self.begun = time.perf_counter()
        with super().phase(name):
            yield
        if name in _COUNTED:
            self.ended = time.perf_counter()
        if name == "iterate":
            self.rounds += 1
            if self.rounds % self.chunk == 0 and self.place is not None:
                self.laps.append((self.begun, self.ended, self.place.counters.total.sealed_sent))


def make_task(expansion: int, chunks: int, security: Security) -> GradientTask:
    """As a study plans it, ten epochs at epsilon 1 for the analyst; then as many rounds as are measured."""
    norm = math.sqrt(len(OWNERS) + 0.25)
    draft = GradientTask(
        blocks=tuple(ColumnBlock(owner, tuple(f"c{i}" for i in range(COLUMNS)), 1.0) for owner in OWNERS),
        label_owner=LABEL_OWNER,
        classes=1,
        trust=Trust(OWNERS, OWNERS, 1, security),
        gamma=GAMMA[expansion],
        scale=(1 - 2.0**-40) / norm,
        expansion=1 if expansion == 1 else 3,
        weight_bound=WEIGHT_BOUND[expansion],
        learning_rate=2.0,
        sampling="poisson",
        rows=ROWS,
        batch=BATCH,
        rounds=PLANNED_ROUNDS,
        noise=len(OWNERS),
    )
    task = draft.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, draft.trust))
    assert task.width == 100
    return replace(task, rounds=chunks * task.rounds_ahead)


def prepare(task: GradientTask, name: str) -> Act:
    """A participant with its made-up rows; the label follows the first column."""
    if name == COORDINATOR:
        return partial(_take_part, task, None, None)
    draws = np.random.default_rng(OWNERS.index(name))
    values = draws.uniform(-1.0, 1.0, (ROWS, COLUMNS)) / math.sqrt(COLUMNS)
    labels = (values[:, :1] > 0).astype(np.float64) if name == LABEL_OWNER else None
    return partial(_take_part, task, Stored([f"P{i:06d}" for i in range(ROWS)], values), labels)


def _take_part(
    task: GradientTask, rows: Stored | None, labels: NDArray[np.float64] | None, stage: Stage
) -> dict[str, Any]:
    place = stage.join()
    alone = isinstance(place, Endpoint)  # a process of its own, with several threads
    meter = Laps(processor=time.process_time if alone else time.thread_time, place=place, chunk=task.rounds_ahead)

    def program(me: Any) -> Any:
        me.meter = meter
        return gradients.coordinator(me, task) if rows is None else gradients.owner(me, rows, labels, task)

    learned = run_role(place, task, program, wait=PATIENCE).result
    whole = (meter.ended - meter.laps[0][0]) / task.rounds if meter.laps else 0.0
    spent = sum(meter.phases[name].cpu for name in _COUNTED if name in meter.phases)
    return {"laps": meter.laps, "weights": learned.weights, "cpu": spent / task.rounds, "mean": whole}


def measured(task: GradientTask, where: str) -> dict[str, Any]:
    """Milliseconds and bytes of a round."""
    together = in_threads if where == "threads" else partial(in_processes, direct=where == "direct")
    reports = together((COORDINATOR, *OWNERS), partial(prepare, task))
    first = reports[COORDINATOR]["weights"]
    assert all(np.array_equal(first, report["weights"]) for report in reports.values()), "weights differ"
    assert np.abs(first).max() > 0, "nothing was learned"
    laps = {owner: reports[owner]["laps"] for owner in OWNERS}
    many = task.rounds_ahead
    inside = {owner: median(end - begun for begun, end, _ in found) for owner, found in laps.items()}
    between = {owner: median(b[1] - a[1] for a, b in pairwise(found)) for owner, found in laps.items()}
    sent = [(found[-1][2] - found[0][2]) / (many * (len(found) - 1)) for found in laps.values()]
    return {
        "rounds": task.rounds,
        "chunk": many,
        "primes": len(task.committee.system.primes),
        "round": 1e3 * max(inside.values()) / many,
        "round_best": 1e3 * max(min(end - begun for begun, end, _ in found) for found in laps.values()) / many,
        "with_noise": 1e3 * max(between.values()) / many,
        "mean": 1e3 * max(reports[owner]["mean"] for owner in OWNERS),
        "cpu": 1e3 * sum(reports[owner]["cpu"] for owner in OWNERS),
        "bytes_owner": max(sent),
        "bytes_all": sum(sent),
    }


def measure(repeats: int = 1) -> dict[str, Any]:
    """All figures; ``repeats`` multiplies the chunks."""
    found: dict[str, Any] = {"rows": ROWS, "batch": BATCH, "columns": len(OWNERS) * COLUMNS + 1, "runs": {}}
    for expansion, chunks in CHUNKS.items():
        for where in ALLOWED:
            for security in SECURITY:
                task = make_task(expansion, chunks * repeats, security)
                found["runs"][f"H = {expansion}, {where}, {security}"] = measured(task, where) | {
                    "expansion": expansion,
                    "where": where,
                    "gamma": task.gamma,
                    "security": security,
                }
    return found


def rows(found: dict[str, Any]) -> Iterator[Row]:
    """Rows of a table: what, measured, required."""
    for run in found["runs"].values():
        limit, good = ALLOWED[run["where"]], run["with_noise"] < ALLOWED[run["where"]]
        required = verdict(good, f"under {limit:g} ms") if run["expansion"] == 1 else ""
        times = ""
        if run["security"] == "active":
            plain = found["runs"][f"H = {run['expansion']}, {run['where']}, {SECURITY[0]}"]
            slower, cpu = (run[key] / plain[key] for key in ("mean", "cpu"))
            times = f"; {slower:.2f} times as long, {cpu:.2f} times the processor time"
            good = slower <= SLOWER
            required = verdict(good, f"at most {SLOWER:g} times") if run["expansion"] == 1 else ""
        yield (
            f"a round, H = {run['expansion']}, gamma {run['gamma']}, {WORDS[run['where']]}, {run['security']}",
            f"**{run['with_noise']:.2f} ms** with its noise; {run['round']:.2f} ms without{times}",
            required,
        )
        if run["where"] == "processes":
            yield (
                f"bytes of a round, H = {run['expansion']}, sealed, {run['security']}",
                f"{run['bytes_owner'] / 1e3:.1f} kB sent by an owner, {run['bytes_all'] / 1e3:.1f} kB by all",
                "",
            )


BENCHMARKS = {"": Benchmark(measure, tabled(rows), help={"repeats": "how many times as many chunks"})}

if __name__ == "__main__":
    command(__doc__, BENCHMARKS)
