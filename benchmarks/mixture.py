"""One round of fitting a mixture by variational inference: Adult, 15 columns at three owners, K = 20, batches of 100.

Noise is dealt for 64 rounds at a time, and masks and coins are made for some rounds ahead. A round is timed from its
start to the step that its opened sums lead to (``online``); the time from one step to the next has all that is made
ahead in it. Figures are medians and means of the slowest owner. Needs ``adult.parquet`` where COLONNADE_DATA says.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import mean, median
from typing import Any

import numpy as np

from colonnade.kinds.synthesis.mixture import programs
from colonnade.kinds.synthesis.mixture.components import OwnComponents
from colonnade.kinds.synthesis.mixture.learners import VariationalLearner
from colonnade.kinds.synthesis.mixture.mixture_model import Matrix, MixtureModel
from colonnade.kinds.synthesis.mixture.task import MixturePart, MixtureTask
from colonnade.models.planner import Roster
from colonnade.privacy import parse_budgets
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.session import run_role
from colonnade.randomness import Stream
from colonnade.tables.datasets import Dataset
from gram import Stored
from harness import PATIENCE, Act, Stage, command, in_processes, in_threads
from research.synthesis.layouts import bench

COMPONENTS, BATCH, PLANNED_ROUNDS, CLIP = 20, 100, 20_000, 2.0
ROUNDS = 192
ALLOWED = {"processes": 90.0, "threads": 40.0}
MINUTES = 30.0


class Timed(VariationalLearner):
    """A learner that notes when each step is taken."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.steps: list[float] = []

    def step(self, sums: Matrix) -> None:
        """The next parameters."""
        self.steps.append(time.perf_counter())
        super().step(sums)


def owns(data: Dataset) -> list[OwnComponents]:
    """The columns of each owner: Beta for numbers, categorical and Bernoulli for the rest."""
    return [OwnComponents(schema) for schema in data.schemas.values()]


def make_task(data: Dataset, rounds: int) -> MixtureTask:
    """As a study plans it, epsilon 1 for the analyst over 20,000 rounds; then as many rounds as are measured."""
    parts = tuple(
        MixturePart(name, schema.encoded_names, own.width, CLIP, own.width + len(own.families))
        for (name, schema), own in zip(data.schemas.items(), owns(data), strict=True)
    )
    trust = Roster.of(data.schemas).trust
    draft = MixtureTask(
        parts, COMPONENTS, trust, "poisson", data.rows, BATCH, PLANNED_ROUNDS, 3, "linear", vector_bits=26
    )
    task = draft.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, trust))
    return replace(task, rounds=rounds)


def learner(data: Dataset, task: MixtureTask) -> Timed:
    """The learner that everybody makes."""
    model = MixtureModel(owns(data), COMPONENTS)
    start, coins = model.start(Stream(bytes(32))), Stream(bytes(range(32)))
    rate = task.batch / task.rows
    how = {"rate": rate, "rounds": PLANNED_ROUNDS, "learning_rate": 0.02}
    return Timed(task.owners, model, start, coins, linear=True, **how)


def prepare(task: MixtureTask, name: str) -> Act:
    """A participant with its rows."""
    data = bench("adult").train
    table = None if name == COORDINATOR else data.tables()[name].matrix()
    rows = None if table is None else Stored([f"P{i:06d}" for i in range(len(table))], table)
    return partial(_take_part, task, learner(data, task), rows)


def _take_part(task: MixtureTask, own: Timed, rows: Stored | None, stage: Stage) -> dict[str, Any]:
    place = stage.join()
    meters = []

    def program(me: Any) -> Any:
        meters.append(me.meter)
        return programs.coordinator(me, task, own) if rows is None else programs.owner(me, rows, task, own)

    cpu = time.process_time()
    found = run_role(place, task, program, wait=PATIENCE).result
    phases = meters[0].phases
    return {
        "state": found.state,
        "steps": own.steps,
        "online": phases["iterate"].wall / task.rounds if rows is not None else 0.0,
        "rounds": phases["iterate"].rounds / task.rounds if rows is not None else 0.0,
        "bytes": sum(phases[name].bytes for name in ("iterate", "ahead")) / task.rounds if rows is not None else 0.0,
        "cpu": (time.process_time() - cpu) / task.rounds,
    }


def measured(task: MixtureTask, where: str) -> dict[str, Any]:
    """Milliseconds, rounds and bytes of a round."""
    together = in_processes if where == "processes" else in_threads
    reports = together((COORDINATOR, *task.owners), partial(prepare, task))
    first = reports[COORDINATOR]["state"]
    assert all(np.array_equal(first, report["state"]) for report in reports.values()), "states differ"
    owners = [reports[name] for name in task.owners]
    laps = [np.diff(report["steps"]) for report in owners]
    cpu = sum(report["cpu"] for report in reports.values()) if where == "processes" else owners[0]["cpu"]
    return {
        "where": where,
        "rounds": task.rounds,
        "primes": len(task.committee.system.primes),
        "places": task.batch_places(task.rows),
        "online": 1e3 * max(report["online"] for report in owners),
        "median": 1e3 * max(median(lap) for lap in laps),
        "all": 1e3 * max(mean(lap) for lap in laps),
        "cpu": 1e3 * cpu,
        "waits": max(report["rounds"] for report in owners),
        "bytes_owner": max(report["bytes"] for report in owners),
    }


def measure(repeats: int = 1) -> dict[str, Any]:
    """All figures; ``repeats`` multiplies the rounds."""
    data = bench("adult").train
    task = make_task(data, ROUNDS * repeats)
    found: dict[str, Any] = {"rows": data.rows, "numbers": task.entries, "runs": {}, "load": os.getloadavg()[0]}
    for where in ALLOWED:
        found["runs"][where] = measured(task, where)
    return found


def rows(found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Rows of a table: what, measured, required."""
    for run in found["runs"].values():
        where = "processes over TLS, through the hub" if run["where"] == "processes" else "threads of one process"
        limit, good = ALLOWED[run["where"]], run["median"] < ALLOWED[run["where"]]
        yield (
            f"a round, {where}",
            f"**{run['median']:.1f} ms** median, {run['online']:.1f} mean; {run['all']:.1f} with what is made ahead",
            f"{'PASS' if good else 'FAIL'}: under {limit:g} ms",
        )
        minutes = run["all"] * PLANNED_ROUNDS / 60_000
        if run["where"] == "processes":
            yield (
                f"{PLANNED_ROUNDS:,} rounds, {where}",
                f"**{minutes:.1f} minutes** at this pace; {run['cpu']:.0f} ms of processor time a round",
                f"{'PASS' if minutes < MINUTES else 'FAIL'}: under {MINUTES:g} minutes",
            )
            yield (
                "messages of a round",
                f"{run['waits']:.1f} waits, {run['bytes_owner'] / 1e3:.0f} kB sent by an owner",
                "",
            )


def show(found: dict[str, Any]) -> None:
    """The figures for a reader."""
    print(f"a mixture of Adult: {found['rows']:,} rows, {found['numbers']:,} numbers a round, load {found['load']:.1f}")
    for what, measured_, required in rows(found):
        print(f"  {what:<66}{measured_.replace('**', ''):<84}{required}")


if __name__ == "__main__":
    command(__doc__, measure, show, repeats=1)
