"""X'X of 45,000 x 41 with three parties: Colonnade over TLS beside MPyC over plain sockets, in one run.

Both get the same integers, and both results must equal the plaintext product exactly. For that, and in this
benchmark only, Colonnade's noise is replaced by zeros. MPyC draws no noise either; how long a run takes that
draws its noise, and then multiplies it by zero, is shown beside it. MPyC's parties connect to each other, and
Colonnade's send through the hub; how long it takes them over direct links, which a study can choose, is shown too.
With ``--where`` nothing is run but Colonnade, by both ways in turn, and a table says where its processor time goes.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from colonnade.privacy import Trust
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.task import ColumnBlock, Moments
from colonnade.tables.keys import Ids
from harness import ALIGN, Job, Outcome, command, free_ports, run
from loopback import addresses, together

ROWS, WIDTHS, GAMMA = 45_000, (14, 14, 13), 4096
OWNERS = ("bank", "clinic", "shop")
CLIP = 3**-0.5
REQUIRED = 150.0
_PROGRAM = Path(__file__).with_name("mpyc_gram.py")


@dataclass(frozen=True)
class Whole:
    """Integer rows, handed to the protocol in units of 1/gamma: it scales them back and rounds nothing."""

    ids: Ids
    values: NDArray[np.int64]
    places: None = None

    def blocks(self, rows: int) -> Iterator[NDArray[np.float64]]:
        return (self.values[start : start + rows] / GAMMA for start in range(0, len(self.values), rows))


def integers(owner: str, rows: int = ROWS, widths: Sequence[int] = WIDTHS) -> NDArray[np.int64]:
    place = OWNERS.index(owner)
    values = np.random.default_rng(place).standard_normal((rows, widths[place]))
    values *= CLIP * GAMMA / np.linalg.norm(values, axis=1)[:, None]
    return values.astype(np.int64)


def table(owner: str) -> Whole:
    return Whole(Ids(pa.array([f"P{i:06d}" for i in range(ROWS)], pa.large_string())), integers(owner))


def make_task() -> Moments:
    blocks = tuple(
        ColumnBlock(owner, tuple(f"c{i}" for i in range(width)), CLIP)
        for owner, width in zip(OWNERS, WIDTHS, strict=True)
    )
    return Moments(
        blocks, Trust(OWNERS, OWNERS, 1), gamma=GAMMA, constant=GAMMA // 2, rows_at_most=50_000, noise=3 * 10**15
    )


def colonnade(repeats: int, noise: Literal["times zero", "none"], *, direct: bool = False) -> dict[str, Any]:
    """The median of some runs, each of which must be exact; through the hub, or over direct links."""
    task = make_task()
    expected = moments.reference({owner: integers(owner) for owner in OWNERS}, task)
    walls, cpus, sent = [], [], 0
    for _ in range(repeats):
        outcome = _exact(task, expected, noise, direct)
        walls.append(outcome.wall)
        cpus.append(outcome.cpu)
        sent = sum(report.sealed for report in outcome.reports.values())
    return {"wall": median(walls), "wall_best": min(walls), "cpu": median(cpus), "sent": sent}


def _exact(task: Moments, expected: NDArray[np.int64], noise: Literal["times zero", "none"], direct: bool) -> Outcome:
    """One run; its result must equal the plaintext product."""
    ports = dict(zip(OWNERS, free_ports(len(OWNERS)), strict=True)) if direct else None
    outcome = run(Job(task, table, noise=noise, ports=ports))
    assert np.array_equal(outcome.opened, expected), "Colonnade's result is not the plaintext product"
    return outcome


PHASES = ("encode", "deal", "own block", "receive", "multiply")


def where(repeats: int) -> dict[str, Any]:
    """Where the processor time goes, by both ways: the medians of all runs, in milliseconds of all participants."""
    task = make_task()
    expected = moments.reference({owner: integers(owner) for owner in OWNERS}, task)
    found: dict[str, list[dict[str, float]]] = {"through the hub": [], "over direct links": []}
    for _ in range(repeats):
        for way, runs in found.items():
            runs.append(_spent(_exact(task, expected, "none", way != "through the hub")))
    return {way: {name: median(run[name] for run in runs) for name in runs[0]} for way, runs in found.items()}


def _spent(outcome: Outcome) -> dict[str, float]:
    nodes, hub = outcome.nodes, outcome.cpu - sum(node.process_cpu for node in outcome.nodes)
    spent = {name: sum(node.work[name] for node in nodes) for name in PHASES}
    spent["ids, opening, the rest"] = sum(node.own_work + node.work[ALIGN] for node in nodes) - sum(spent.values())
    spent["messages, TLS end to end"] = sum(sum(node.wire.values()) for node in nodes)
    spent["other threads of the owners"] = sum(node.process_cpu - node.program_cpu for node in nodes)
    spent["the coordinator and the hub"] = hub
    return {
        name: 1e3 * seconds for name, seconds in (spent | {"all": outcome.cpu, "on the clock": outcome.wall}).items()
    }


def show_where(found: dict[str, Any]) -> None:
    """The table for a reader."""
    ways = list(found)
    print(f"milliseconds  | {' | '.join(ways)}")
    for name in found[ways[0]]:
        print(f"{name:<30}" + "".join(f"{found[way][name]:20.1f}" for way in ways))


def mpyc(variant: str, rows: int = ROWS, widths: Sequence[int] = WIDTHS) -> dict[str, Any]:
    """One run of MPyC in three processes."""
    tables = {f"x{place}": integers(owner, rows, widths) for place, owner in enumerate(OWNERS)}
    joint = np.hstack(list(tables.values())).astype(np.float64)
    expected = (joint.T @ joint).astype(np.int64)  # far below 2^53
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        source = Path(folder) / "tables.npz"
        np.savez(source, widths=np.array(widths), order=2 * rows * GAMMA**2, **tables)
        ports = [part for address in addresses(len(OWNERS)) for part in ("-P", address)]
        targets = [Path(folder) / f"result{place}.npy" for place in range(len(OWNERS))]
        parties = [(variant, source, target, *ports, "-I", place, "-T1") for place, target in enumerate(targets)]
        reports = together(_PROGRAM, parties)
        assert all(np.array_equal(np.load(target), expected) for target in targets), "MPyC's result is wrong"
    return {
        "wall": max(r["ended"] for r in reports) - min(r["started"] for r in reports),
        "cpu": sum(r["cpu"] for r in reports),
        "sent": sum(r["sent"] for r in reports),
    }


def measure(repeats: int = 5) -> dict[str, Any]:
    """All figures; Colonnade runs before and after MPyC, because the machine may be shared."""
    early = [colonnade(repeats, "none", direct=direct) for direct in (False, True)]
    whole, cross, integers = mpyc("whole"), mpyc("cross"), mpyc("integers")
    late = [colonnade(repeats, "none", direct=direct) for direct in (False, True)]
    ours, linked = ({key: median([a[key], b[key]]) for key in a} for a, b in zip(early, late, strict=True))
    return {
        "rows": ROWS,
        "columns": sum(WIDTHS),
        "colonnade": ours,
        "colonnade_direct": linked,
        "colonnade_noise": colonnade(repeats, "times zero"),
        "mpyc_whole": whole,
        "mpyc_cross": cross,
        "mpyc_integers": integers,
        "wall_ratio": integers["wall"] / ours["wall"],
        "wall_ratio_direct": integers["wall"] / linked["wall"],
        "cpu_ratio": integers["cpu"] / ours["cpu"],
    }


def show(found: dict[str, Any]) -> None:
    """The figures for a reader."""
    print(f"X'X, {found['rows']:,} x {found['columns']}, three parties in three processes, exact in all cases")
    print(f"  {'':<34}{'wall s':>9}{'CPU s':>9}{'MB sent':>9}")
    names = {
        "colonnade": "Colonnade over TLS, no noise",
        "colonnade_direct": "the same, over direct links",
        "colonnade_noise": "Colonnade over TLS, noise times 0",
        "mpyc_integers": "MPyC, X'X of secure integers",
        "mpyc_whole": "MPyC, X'X in the smallest field",
        "mpyc_cross": "MPyC, cross-party blocks only",
    }
    for key, name in names.items():
        row = found[key]
        print(f"  {name:<34}{row['wall']:9.2f}{row['cpu']:9.2f}{row['sent'] / 1e6:9.1f}")
    verdict = "PASS" if found["wall_ratio"] >= REQUIRED else "FAIL"
    print(
        f"{verdict}: {found['wall_ratio']:.0f} x faster than MPyC with secure integers (at least {REQUIRED:g}); "
        f"{found['wall_ratio_direct']:.0f} x over direct links"
    )
    for key, name in names.items():
        if key.startswith("mpyc"):
            wall, cpu = (found[key][part] / found["colonnade"][part] for part in ("wall", "cpu"))
            print(f"  {name:<34}{wall:6.0f} x the wall time, {cpu:.0f} x the processor time")


if __name__ == "__main__":
    if "--where" in sys.argv:
        sys.argv.remove("--where")
        command(__doc__, where, show_where, repeats=5)
    else:
        command(__doc__, measure, show, repeats=5)
