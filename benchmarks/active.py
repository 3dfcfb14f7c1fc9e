"""What it costs that participants may deviate: each protocol unchecked, with checks, and with proofs of bounds.

All ways of a protocol run in turns, three owners and the coordinator in processes over TLS through the hub, so that a
slow moment of the machine spoils none of them alone. Figures are medians over the turns: processor seconds of all
processes once everybody is there, those of dealing and arithmetic alone, and bytes as they travel. All ways must hold
the same kind of result at everybody, and every seat must have settled claims where it checks. Bars are ratios of proofs
to checks without them.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import rounds
from colonnade.kinds.tables.task import CodedColumn, MarginalQuery, Marginals
from colonnade.privacy import Trust, parse_budgets
from colonnade.privacy.observers import Inputs, Security
from colonnade.protocols.moments.task import ColumnBlock, Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.rows import Rows
from colonnade.protocols.session import run_role
from colonnade.tables.slots import RowSlots
from gram import Stored
from harness import (
    MB,
    PATIENCE,
    REST,
    Act,
    Benchmark,
    ClockedMeter,
    Place,
    Row,
    Stage,
    command,
    in_processes,
    table,
    verdict,
)

OWNERS = ("bank", "clinic", "shop")
GAMMA = 2048
"""So fine are rows of norm at most 1, of each owner."""
PLAIN, CHECKED, PROVEN = "semi-honest", "active", "active, bounds proven"
WAYS: dict[str, tuple[Security, Inputs]] = {
    PLAIN: ("semi-honest", "unproven"),
    CHECKED: ("active", "unproven"),
    PROVEN: ("active", "proven"),
}
MOST_BYTES = 1.5
"""At most how many times the bytes of checks alone proofs may take."""


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
    """One protocol: its task, what each owner holds, and what proofs may cost beside checks alone."""

    name: str
    task: Moments | Marginals
    held: Callable[[str], Rows]
    most: float | None = None
    """At most how many times the processor time; nothing is required without."""

    def in_way(self, way: str) -> Moments | Marginals:
        """The task so, with the noise of the other ways, so that nothing else is compared."""
        security, inputs = WAYS[way]
        return replace(self.task, trust=replace(self.task.trust, security=security, inputs=inputs))


def second_moments(rows: int, widths: tuple[int, ...], *, hidden: bool = False) -> Moments:
    """As PCA plans them: epsilon 1 for the analyst."""
    blocks = tuple(
        ColumnBlock(owner, tuple(f"c{i}" for i in range(width)), 1.0)
        for owner, width in zip(OWNERS, widths, strict=True)
    )
    trust = Trust(OWNERS, OWNERS, 1)
    draft = Moments(blocks, trust, gamma=GAMMA, constant=GAMMA // 2, rows_at_most=rows, noise=3, hidden=hidden)
    return draft.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, trust))


def rows_of_norm(rows: int, widths: tuple[int, ...], owner: str) -> Stored:
    """Rows of norm at most 1."""
    draws = np.random.default_rng(OWNERS.index(owner))
    values = draws.standard_normal((rows, widths[OWNERS.index(owner)]))
    values *= draws.uniform(0.2, 1.0, (rows, 1)) / np.linalg.norm(values, axis=1)[:, None]
    return Stored([f"P{i:06d}" for i in range(rows)], values)


def placed(size: int, widths: tuple[int, ...], owner: str) -> Placed:
    """The same for half of the slots of a universe, other ones at each owner."""
    draws = np.random.default_rng(OWNERS.index(owner))
    slots = np.sort(draws.choice(size, size // 2, replace=False)).astype(np.int64)
    return Placed(rows_of_norm(size // 2, widths, owner).values, RowSlots(slots, size, bytes(16)))


def codes(rows: int, each: tuple[int, ...], size: int, owner: str) -> Stored:
    """Codes of columns with ``size`` values."""
    draws = np.random.default_rng(OWNERS.index(owner))
    values = draws.integers(0, size, (rows, each[OWNERS.index(owner)])).astype(np.float64)
    return Stored([f"P{i:06d}" for i in range(rows)], values)


def pairs(rows: int, each: tuple[int, ...], size: int) -> Marginals:
    """Noisy counts by all columns and pairs of columns."""
    held = zip(OWNERS, each, strict=True)
    coded = tuple(CodedColumn(owner, f"c{i}", size) for owner, count in held for i in range(count))
    places = range(len(coded))
    asked = tuple(MarginalQuery(columns, 1) for columns in ((), *((i,) for i in places), *combinations(places, 2)))
    trust = Trust(OWNERS, OWNERS, 1)
    draft = Marginals(coded, asked, trust, rows_at_most=rows, noise=3)
    return draft.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, trust))


def cases(scale: float) -> Iterator[Case]:
    """All joint sums, with so many times the rows."""
    large, small, slots = (max(500, int(scale * rows)) for rows in (195_666, 45_000, 20_000))
    for rows, widths, most in ((large, (39, 39, 39), 1.5), (small, (14, 14, 13), 1.8)):
        task = second_moments(rows, widths)
        yield Case(f"X'X of {rows:,} x {sum(widths)}", task, partial(rows_of_norm, rows, widths), most)
    few = (10, 10, 10)
    hidden = second_moments(slots, few, hidden=True)
    yield Case(f"X'X of 30 columns, members hidden in {slots:,} slots", hidden, partial(placed, slots, few))
    for each, bar in (((5, 5, 5), None), ((6, 6, 5), 1.8)):
        name = f"marginals of {small:,} people, all pairs of {sum(each)} columns with 8 values"
        yield Case(name, pairs(small, each, 8), partial(codes, small, each, 8), bar)


def prepare(case: Case, way: str, name: str) -> Act:
    """A participant with its rows."""
    return partial(take_part, case.in_way(way), None if name == COORDINATOR else case.held(name))


def take_part(task: Moments | Marginals, rows: Rows | None, stage: Stage) -> dict[str, Any]:
    """Run a program, and what it took of this process."""
    place, meter = stage.join(), ClockedMeter()
    found: dict[str, float] = {}

    def timed(me: Any) -> Any:
        me.meter = meter
        begun, thread = time.perf_counter(), time.thread_time()
        found["before"] = time.process_time()
        with meter.phase(REST):
            result = task.programs.coordinator(me, task) if rows is None else task.programs.owner(me, rows, task)
        found["wall"], found["thread"] = time.perf_counter() - begun, time.thread_time() - thread
        return result

    played = run_role(Place(place, meter), task, timed, wait=PATIENCE)  # type: ignore[arg-type]
    return {
        "cpu": time.process_time() - found["before"],
        "work": found["thread"] - sum(meter.wire.values()),
        "wall": found["wall"],
        "sent": place.counters.total.sealed_sent,
        "settled": played.settled,
        "phases": {name: phase.cpu for name, phase in played.phases.items() if name != REST},
        "opened": hashlib.sha256(np.ascontiguousarray(played.result.opened).tobytes()).hexdigest(),
    }


def once(case: Case, way: str) -> dict[str, float]:
    """One run of a case in one way."""
    reports = in_processes((COORDINATOR, *OWNERS), partial(prepare, case, way))
    assert len({report["opened"] for report in reports.values()}) == 1, "results differ"
    settled = [reports[name]["settled"] for name in OWNERS]
    assert all(settled) if way != PLAIN else not any(settled), "checks did not run as asked"
    found = {key: sum(report[key] for report in reports.values()) for key in ("cpu", "sent")}
    found["work"] = sum(reports[owner]["work"] for owner in OWNERS)
    found["wall"] = max(report["wall"] for report in reports.values())
    names = {name for owner in OWNERS for name in reports[owner]["phases"]}
    phases = {f"in {name}": sum(reports[owner]["phases"].get(name, 0.0) for owner in OWNERS) for name in names}
    return found | phases


def compared(case: Case, repeats: int) -> dict[str, Any]:
    """Medians of every way, which take turns."""
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(repeats):
        for way, done in runs.items():
            done.append(once(case, way))
    found = {way: {key: median(one[key] for one in done) for key in done[0]} for way, done in runs.items()}
    for way, figures in found.items():
        figures["primes"] = len(case.in_way(way).committee.system.primes)
    return {"ways": found, "most": case.most}


def iterated(repeats: int) -> dict[str, Any]:
    """Rounds of a logistic regression, which ``rounds.py`` measures; rows are dealt and proven once before."""
    ways = {}
    for way, (security, inputs) in WAYS.items():
        task = rounds.make_task(1, rounds.CHUNKS[1] * repeats, security)
        run = rounds.measured(replace(task, trust=replace(task.trust, inputs=inputs)), "processes")
        figures = {"cpu": run["cpu"] / 1e3, "wall": run["mean"] / 1e3, "sent": run["bytes_all"]}
        ways[way] = figures | {"primes": run["primes"]}
    return {"ways": ways, "most": None}


ROUND = "a round of logistic regression by gradients, batches of 100, 100 columns"


def measure(repeats: int = 3, scale: float = 1.0, only: str = "") -> dict[str, Any]:
    """All figures."""
    found = {case.name: compared(case, repeats) for case in cases(scale) if only in case.name}
    if only in ROUND:
        found[ROUND] = iterated(repeats)
    return {"cases": found, "repeats": repeats}


def rows(found: dict[str, Any]) -> Iterator[Row]:
    """Rows of a table: what, in which way, processor time, bytes, wall, what is required."""
    for name, case in found["cases"].items():
        plain, checked = case["ways"][PLAIN], case["ways"][CHECKED]
        for way, run in case["ways"].items():
            times = {key: "" if way == PLAIN else f" ({run[key] / plain[key]:.2f} x)" for key in plain if key in run}
            required = ""
            if way == PROVEN:
                cpu, sent = (run[key] / checked[key] for key in ("cpu", "sent"))
                required = f"{cpu:.2f} x CPU and {sent:.2f} x bytes of active"
                if case["most"]:
                    good = cpu <= case["most"] and sent <= MOST_BYTES
                    required = verdict(good, f"{required}, at most {case['most']:g} and {MOST_BYTES:g}")
            yield (
                name,
                f"{way}, {run['primes']:.0f} primes",
                _seconds(run["cpu"]) + times["cpu"],
                _seconds(run["work"]) + times["work"] if "work" in run else "",
                _size(run["sent"]) + times["sent"],
                _seconds(run["wall"]),
                required,
            )


HEAD = ("what", "security", "processor time, all", "dealing and arithmetic", "bytes", "wall", "proofs beside checks")


def body(found: dict[str, Any]) -> str:
    """The page."""
    return f"Medians of {found['repeats']} turn(s).\n\n{table(HEAD, rows(found))}\n\n{PEERS}"


ABOUT = (
    'Each protocol with nobody checking (`"semi-honest"`), with seats that check each other (`"active"`, inputs '
    '`"unproven"`), and with owners that prove the bounds of what they deal. Three owners and the coordinator run in '
    "processes over TLS through the hub; all ways of a protocol run in turns. Ratios in brackets are to the way in "
    "which nobody checks. A round does not contain the dealing of rows, nor the proofs of them."
)
PEERS = """\
## Beside others

Nothing malicious-secure could be installed here: MP-SPDZ is no package of PyPI or of the distribution. These \
figures are published or reported by others, on other machines and for other programs; they are times over the \
same framework's semi-honest mode.

| | times the semi-honest cost |
|---|---|
| Chida et al., honest majority, arithmetic circuits over fields (published) | about 2 |
| MP-SPDZ, three parties, honest majority (as its users report) | 2.4 to 3.4 |"""


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1e3 * value:.1f} ms"


def _size(value: float) -> str:
    return f"{value / MB:.1f} MB" if value >= MB else f"{value / 1e3:.1f} kB"


HELP = {
    "repeats": "how many turns",
    "scale": "so many times the rows",
    "only": "a part of the name of what is measured",
}
BENCHMARKS = {"": Benchmark(measure, body, "active", "What checks cost", ABOUT, help=HELP)}

if __name__ == "__main__":
    command(__doc__, BENCHMARKS)
