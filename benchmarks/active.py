"""What it costs that participants may deviate: each protocol unchecked, with checks, and with proofs of bounds.

All ways of one protocol run in turns, three owners and the coordinator in processes over TLS through the hub, so that
a slow moment of the machine spoils none of them alone. Figures are medians over the turns, and ratios to the way in
which nobody checks: processor seconds of all processes once everybody is there, those of dealing and arithmetic alone,
and bytes as they travel. All must hold the same result, and every seat must have settled claims where it checks.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import hashlib
import json
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gram
import rounds
from colonnade.kinds.regression.task import GradientTask
from colonnade.kinds.synthesis.mixture.task import MixtureTask
from colonnade.kinds.tables import programs as marginals
from colonnade.kinds.tables.task import CodedColumn, MarginalQuery, Marginals
from colonnade.privacy import Trust, parse_budgets
from colonnade.privacy.observers import Inputs, Security
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.rows import ColumnBlock, Rows
from colonnade.protocols.session import run_role
from colonnade.protocols.task import Task
from colonnade.tables.slots import RowSlots
from harness import PATIENCE, REST, Act, ClockedMeter, Place, Stage, in_processes

OWNERS = ("bank", "clinic", "shop")
RESULTS = Path(__file__).parent / "results" / "active.md"
MB = 1e6
PLAIN, CHECKED, PROVEN = "semi-honest", "active", "active, bounds proven"
INPUTS: dict[str, Inputs] = {CHECKED: "unproven", PROVEN: "proven"}
Limits = dict[str, tuple[float | None, float | None]]
"""At most how many times the processor time and the bytes, for each way."""


@dataclass(frozen=True)
class Placed:
    """Rows in slots of a universe, for members that are hidden."""

    values: NDArray[np.float64]
    places: RowSlots

    @property
    def ids(self) -> list[str]:
        return []

    def blocks(self, rows: int) -> Iterator[NDArray[np.float64]]:
        return (self.values[start : start + rows] for start in range(0, len(self.values), rows))


@dataclass(frozen=True)
class Case:
    """One protocol: its task, what each owner holds, and what is allowed."""

    name: str
    task: Task
    programs: str
    held: Callable[[str], Rows]
    limits: Limits

    @property
    def ways(self) -> list[str]:
        """In which ways it can be run."""
        task = type(self.task)
        checked = [CHECKED] if task.why_not_active is None else []
        return [PLAIN, *checked, *([PROVEN] if "proven" in task.proofs else [])]

    def in_way(self, way: str) -> Task:
        """The task so, with the noise of the other ways, so that nothing else is compared."""
        if way == PLAIN:
            return self.task
        trust = replace(self.task.trust, security="active", inputs=INPUTS[way])
        return replace(self.task, trust=trust)  # type: ignore[type-var]  # every task is a dataclass


def second_moments(rows: int, widths: tuple[int, ...], *, hidden: bool = False) -> Moments:
    """As PCA plans them: epsilon 1 for the analyst."""
    blocks = tuple(
        ColumnBlock(owner, tuple(f"c{i}" for i in range(width)), gram.CLIP)
        for owner, width in zip(OWNERS, widths, strict=True)
    )
    trust = Trust(OWNERS, OWNERS, 1)
    draft = Moments(blocks, trust, gamma=4096, constant=2048, rows_at_most=rows, noise=3, hidden=hidden)
    return draft.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, trust))


def table(rows: int, widths: tuple[int, ...], owner: str) -> gram.Stored:
    """Rows of norm at most the clip."""
    draws = np.random.default_rng(OWNERS.index(owner))
    values = draws.standard_normal((rows, widths[OWNERS.index(owner)]))
    values *= gram.CLIP * draws.uniform(0.2, 1.0, (rows, 1)) / np.linalg.norm(values, axis=1)[:, None]
    return gram.Stored([f"P{i:06d}" for i in range(rows)], values)


def placed(size: int, widths: tuple[int, ...], owner: str) -> Placed:
    """The same for half of the slots of a universe, other ones at each owner."""
    draws = np.random.default_rng(OWNERS.index(owner))
    slots = np.sort(draws.choice(size, size // 2, replace=False)).astype(np.int64)
    return Placed(table(size // 2, widths, owner).values, RowSlots(slots, size, bytes(16)))


def codes(rows: int, each: int, size: int, owner: str) -> gram.Stored:
    """Codes of columns with ``size`` values."""
    draws = np.random.default_rng(OWNERS.index(owner))
    values = draws.integers(0, size, (rows, each)).astype(np.float64)
    return gram.Stored([f"P{i:06d}" for i in range(rows)], values)


def pairs(rows: int, each: int, size: int) -> Marginals:
    """Noisy counts by all columns and pairs of columns."""
    coded = tuple(CodedColumn(owner, f"c{i}", size) for owner in OWNERS for i in range(each))
    places = range(len(coded))
    asked = tuple(MarginalQuery(columns, 1) for columns in ((), *((i,) for i in places), *combinations(places, 2)))
    trust = Trust(OWNERS, OWNERS, 1)
    draft = Marginals(coded, asked, trust, rows_at_most=rows, noise=3)
    return draft.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, trust))


def cases(scale: float = 1.0) -> list[Case]:
    """All protocols, with so many times the rows."""
    wide, narrow, few = (39, 39, 39), (14, 14, 13), (10, 10, 10)
    large, small, slots, people = (max(500, int(scale * rows)) for rows in (195_666, 45_000, 20_000, 45_000))
    return [
        Case(
            f"X'X of {large:,} x 117",
            second_moments(large, wide),
            "moments",
            partial(table, large, wide),
            {CHECKED: (1.15, 1.12), PROVEN: (1.6, 2.3)},
        ),
        Case(
            f"X'X of {small:,} x 41",
            second_moments(small, narrow),
            "moments",
            partial(table, small, narrow),
            {CHECKED: (1.35, None), PROVEN: (1.6, 2.3)},
        ),
        Case(
            f"X'X of 30 columns, members hidden in {slots:,} slots",
            second_moments(slots, few, hidden=True),
            "moments",
            partial(placed, slots, few),
            {},
        ),
        Case(
            f"marginals of {people:,} people, all pairs of 15 columns with 8 values",
            pairs(people, 5, 8),
            "marginals",
            partial(codes, people, 5, 8),
            {},
        ),
    ]


def prepare(case: Case, way: str, name: str) -> Act:
    """A participant with its rows."""
    rows = None if name == COORDINATOR else case.held(name)
    return partial(take_part, case.in_way(way), partial(_program, case.programs, case.in_way(way), rows))


def _program(programs: str, task: Task, rows: Rows | None, me: Any) -> Any:
    module: Any = {"moments": moments, "marginals": marginals}[programs]
    return module.coordinator(me, task) if rows is None else module.owner(me, rows, task)


def take_part(task: Task, program: Callable[[Any], Any], stage: Stage) -> dict[str, Any]:
    """Run a program, and what it took of this process."""
    place, meter = stage.join(), ClockedMeter()
    found: dict[str, float] = {}

    def timed(me: Any) -> Any:
        me.meter = meter
        begun, thread = time.perf_counter(), time.thread_time()
        found["before"] = time.process_time()
        with meter.phase(REST):
            result = program(me)
        found["wall"], found["thread"] = time.perf_counter() - begun, time.thread_time() - thread
        return result

    played = run_role(Place(place, meter), task, timed, wait=PATIENCE)  # type: ignore[arg-type]
    return {
        "cpu": time.process_time() - found["before"],
        "work": found["thread"] - sum(meter.wire.values()),
        "wall": found["wall"],
        "sent": place.counters.total.sealed_sent,
        "settled": played.settled,
        "opened": hashlib.sha256(np.ascontiguousarray(played.result.opened).tobytes()).hexdigest(),
    }


def once(case: Case, way: str) -> dict[str, float]:
    """One run of a case in one way."""
    reports = in_processes((COORDINATOR, *OWNERS), partial(prepare, case, way))
    assert len({report["opened"] for report in reports.values()}) == 1, "results differ"
    settled = [report["settled"] for name, report in reports.items() if name in case.task.trust.committee]
    assert all(settled) if way != PLAIN else not any(settled), "checks did not run as asked"
    owners = [reports[owner] for owner in OWNERS]
    return {
        "cpu": sum(report["cpu"] for report in reports.values()),
        "work": sum(report["work"] for report in owners),
        "sent": sum(report["sent"] for report in reports.values()),
        "wall": max(report["wall"] for report in reports.values()),
        "claims": max(settled),
    }


def compared(case: Case, repeats: int) -> dict[str, Any]:
    """Medians of every way, which take turns."""
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in case.ways}
    for _ in range(repeats):
        for way, done in runs.items():
            done.append(once(case, way))
    found = {way: {key: median(one[key] for one in done) for key in done[0]} for way, done in runs.items()}
    for way, figures in found.items():
        figures["primes"] = len(case.in_way(way).committee.system.primes)
    return {"ways": found, "limits": case.limits}


def iterated(repeats: int) -> dict[str, Any]:
    """Rounds of a logistic regression, which ``rounds.py`` measures in both ways."""
    if GradientTask.why_not_active is not None:
        return {}
    ways = {}
    for way in (PLAIN, CHECKED):
        security: Security = "semi-honest" if way == PLAIN else "active"
        run = rounds.measured(rounds.make_task(1, rounds.CHUNKS[1] * repeats, security), "processes")
        figures = {"cpu": run["cpu"] / 1e3, "wall": run["mean"] / 1e3, "sent": run["bytes_all"]}
        ways[way] = figures | {"primes": run["primes"]}
    return {"ways": ways, "limits": {CHECKED: (1.5, None)}}


def mixed(repeats: int) -> dict[str, Any]:
    """Rounds of a mixture, which ``mixture.py`` measures; nothing without its data, or if it cannot be checked."""
    if MixtureTask.why_not_active is not None or "COLONNADE_DATA" not in os.environ:
        return {}
    import mixture

    plain = mixture.make_task(mixture.bench("adult").train, 8 * repeats)
    tasks = {PLAIN: plain, CHECKED: replace(plain, trust=replace(plain.trust, security="active"))}
    ways = {}
    for way, task in tasks.items():
        run = mixture.measured(task, "processes")
        figures = {"cpu": run["cpu"] / 1e3, "wall": run["all"] / 1e3, "sent": run["bytes_owner"]}
        ways[way] = figures | {"primes": run["primes"]}
    return {"ways": ways, "limits": {}}


def measure(repeats: int, scale: float, only: str) -> dict[str, Any]:
    """All figures."""
    found = {case.name: compared(case, repeats) for case in cases(scale) if only in case.name}
    for name, extra in {
        "a round of logistic regression by gradients, batches of 100, 100 columns": iterated,
        "a round of a mixture, Adult, 20 components": mixed,
    }.items():
        if only in name and (each := extra(repeats)):
            found[name] = each
    return {"cases": found, "repeats": repeats, "load": os.getloadavg()[0]}


def rows_of(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Rows of a table: what, in which way, seconds, ratios, bytes, required."""
    for name, case in found["cases"].items():
        plain = case["ways"][PLAIN]
        for way, run in case["ways"].items():
            ratios = {key: run[key] / plain[key] for key in ("cpu", "work", "sent") if run.get(key) and plain.get(key)}
            most_cpu, most_sent = case["limits"].get(way, (None, None))
            good = [ratios[key] <= most for key, most in (("cpu", most_cpu), ("sent", most_sent)) if most is not None]
            said = [
                f"{most:g} x {what}" for most, what in ((most_cpu, "CPU"), (most_sent, "bytes")) if most is not None
            ]
            verdict = f"{'PASS' if all(good) else 'FAIL'}: at most {', '.join(said)}" if said else ""
            times = {key: "" if way == PLAIN else f" ({ratio:.2f} x)" for key, ratio in ratios.items()}
            yield (
                name,
                f"{way}, {run['primes']:.0f} primes",
                _seconds(run["cpu"]) + times["cpu"],
                _seconds(run["work"]) + times["work"] if "work" in run else "",
                _size(run["sent"]) + times["sent"],
                _seconds(run["wall"]),
                verdict,
            )


HEADS = ("what", "security", "processor time, all", "dealing and arithmetic", "bytes", "wall", "required")


def show(found: dict[str, Any]) -> None:
    """The figures for a reader."""
    for row in rows_of(found):
        print("  ".join(f"{cell:<24}" for cell in row))


def page(found: dict[str, Any], command: str) -> str:
    """The page of results."""
    lines = [f"| {' | '.join(row)} |" for row in (HEADS, ["---"] * len(HEADS), *rows_of(found))]
    when = f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores {platform.machine()}, load {found['load']:.1f}"
    return (
        INTRODUCTION.format(command=command, repeats=found["repeats"])
        + "\n".join(lines)
        + f"\n\nMeasured on {when}.\n"
        + PEERS
    )


INTRODUCTION = (
    "# What checks cost\n\n"
    'Made by `{command}`: each protocol with nobody checking (`"semi-honest"`), with seats that check each other '
    '(`"active"`), and with owners that prove the bounds of what they deal. Three owners and the coordinator run in '
    "processes over TLS through the hub; all ways of a protocol run in turns, and figures are "
    "medians of {repeats} turn(s); on a loaded machine single turns differ by a quarter and more. A way "
    "that is missing has not been built for that protocol.\n\n"
)
PEERS = (
    "\n## Beside others\n\n"
    "Nothing malicious-secure could be installed here: MP-SPDZ is no package of PyPI or of the distribution. These "
    "figures are published or reported by others, on other machines and for other programs; they are times over the "
    "same framework's semi-honest mode.\n\n"
    "| | times the semi-honest cost |\n|---|---|\n"
    "| Chida et al., honest majority, arithmetic circuits over fields (published) | about 2 |\n"
    "| MP-SPDZ, three parties, honest majority (as its users report) | 2.4 to 3.4 |\n"
)


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.1f} ms"


def _size(value: float) -> str:
    return f"{value / MB:.1f} MB" if value >= MB else f"{value / 1e3:.1f} kB"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the rows")
    parser.add_argument("--only", default="", help="a part of the name of what is measured")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"also write results/{RESULTS.name}")
    options = parser.parse_args()
    figures = measure(options.repeats, options.scale, options.only)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        show(figures)
    if options.write:
        RESULTS.write_text(page(figures, f"python benchmarks/active.py --repeats {options.repeats} --write"))
