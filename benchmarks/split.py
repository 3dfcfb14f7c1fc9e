"""A head that a committee learns: the halves of 60,000 digits at two parties, in processes over TLS through the hub.

Each party embeds its halves by edges and cosines, and the committee learns the head from one release of second moments
at epsilon 1 for the analyst; then the same from products with directions, with wider embeddings. A run begins when all
processes have read their data, and ends when the last participant has the head. Needs ``mnist.npz`` in the folder that
COLONNADE_DATA names. ``--write`` writes results/split.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import resource
import time
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.split import committee_head
from colonnade.kinds.split.committee_head import JointEmbeddings, Task
from colonnade.kinds.split.encoders import Encoder, encoder_from
from colonnade.privacy import Trust, parse_budgets
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.session import run_role
from gram import Stored
from harness import PATIENCE, Act, Stage, in_processes

OWNERS = ("left", "right")
TRUST = Trust(OWNERS, (*OWNERS, COORDINATOR), 1)
CASES = {"all moments": (250, False, 60_000), "products with directions": (1000, True, 20_000)}
"""How wide each party's embeddings are, whether directions are asked for, and how many digits there are."""
PAGE = Path(__file__).parent / "results" / "split.md"
Pixels = NDArray[np.float64]


def halves(split: str, rows: int | None = None) -> tuple[dict[str, Pixels], NDArray[np.int64]]:
    """Each party's half of every image, as centred pixels row by row, and the digits."""
    with np.load(Path(os.environ["COLONNADE_DATA"]) / "mnist.npz", allow_pickle=False) as data:
        images, labels = data[f"x_{split}"][:rows], data[f"y_{split}"][:rows].astype(np.int64)
    sides = {"left": images[:, :, :14], "right": images[:, :, 14:]}
    return {name: side.reshape(len(side), -1) / 255 - 0.5 for name, side in sides.items()}, labels


def encoder(name: str, width: int) -> Encoder:
    """A party's encoder; a party would draw it and keep it."""
    return encoder_from({"kind": "edges", "shape": [28, 14], "width": width}, 28 * 14, seed=OWNERS.index(name))


def layout(width: int) -> JointEmbeddings:
    """Two parties with embeddings of this width; the left one has the label."""
    return JointEmbeddings(tuple((name, width) for name in OWNERS), "left", 10)


def make_task(width: int, wide: bool) -> Task:
    """As a study plans it, epsilon 1 for the analyst."""
    joint, budgets = layout(width), parse_budgets({"analyst": 1.0}, 1e-5, TRUST)
    return joint.directions(TRUST, budgets) if wide else joint.moments(TRUST, budgets)


def prepare(width: int, wide: bool, rows: int, name: str) -> Act:
    """A participant that has read its data."""
    task = make_task(width, wide)
    if name == COORDINATOR:
        return partial(_take_part, task, width, None, None)
    sides, labels = halves("train", rows)
    table = Stored([f"P{i:06d}" for i in range(len(labels))], sides[name])
    return partial(_take_part, task, width, table, labels if name == "left" else None)


def _take_part(
    task: Task, width: int, table: Stored | None, labels: NDArray[np.int64] | None, stage: Stage
) -> dict[str, Any]:
    started, cpu = time.perf_counter(), time.process_time()
    place, joint = stage.join(), layout(width)
    meters = []

    def program(me: Any) -> Any:
        meters.append(me.meter)
        if table is None:
            return task.programs.coordinator(me, task)
        return task.programs.owner(me, joint.rows(stage.name, table, encoder(stage.name, width), labels), task)

    found = run_role(place, task, program, wait=PATIENCE)
    head = joint.finish(found.result)
    phases = {name: phase.wall for name, phase in meters[0].phases.items()}
    return {
        "weights": head.weights,
        "intercept": head.intercept,
        "kind": head.kind,
        "seconds": time.perf_counter() - started,
        "cpu": time.process_time() - cpu,
        "payload": meters[0].tally.payload,
        "messages": meters[0].tally.messages,
        "phases": phases,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def measured(width: int, wide: bool, rows: int) -> dict[str, Any]:
    """One run: seconds, bytes, memory, and the accuracy of the head on the test images."""
    reports = in_processes((COORDINATOR, *OWNERS), partial(prepare, width, wide, rows))
    first = reports[COORDINATOR]
    assert all(np.allclose(first["weights"], report["weights"]) for report in reports.values()), "heads differ"
    sides, digits = halves("test")
    new = np.hstack([committee_head.embed_scaled(encoder(name, width), sides[name]) for name in OWNERS])
    scores = new @ first["weights"].T + first["intercept"]
    task = make_task(width, wide)
    opened = task.entries if isinstance(task, Moments) else task.rounds * task.entries
    return {
        "rows": rows,
        "width": width,
        "opened": opened,
        "seconds": max(report["seconds"] for report in reports.values()),
        "cpu": sum(report["cpu"] for report in reports.values()),
        "sent": {name: report["payload"] for name, report in reports.items()},
        "memory": max(report["memory"] for report in reports.values()),
        "accuracy": float((scores.argmax(axis=1) == digits).mean()),
        "phases": reports["left"]["phases"],
    }


def page(found: dict[str, dict[str, Any]]) -> str:
    """The figures as a page."""
    lines = [
        "# A head that a committee learns",
        "",
        "Made by `python benchmarks/split.py --write`: halves of digits at two parties, edges and cosines as encoders, "
        "epsilon 1 for the analyst, delta 1e-5. Two owners and the coordinator in processes over TLS, through the hub; "
        "the coordinator keeps a seat. From connecting to the head at everybody; embedding the images, noise and "
        "handshakes included, reading the data not. Sent are bytes before sealing.",
        "",
        "| sums | people | numbers a party | numbers opened | seconds | of processor time | sent by left, right, "
        "coordinator | memory of a process | accuracy |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, run in found.items():
        sent = ", ".join(f"{run['sent'][who] / 1e6:,.0f} MB" for who in (*OWNERS, COORDINATOR))
        lines.append(
            f"| {name} | {run['rows']:,} | {run['width']:,} | {run['opened']:,} | **{run['seconds']:.1f}** | "
            f"{run['cpu']:.1f} | {sent} | {run['memory'] / 1e6:,.0f} MB | {run['accuracy']:.3f} |"
        )
    lines += ["", f"Measured on {date.today()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}.", ""]
    return "\n".join(lines)


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, help="of the digits, only so many")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    most = given.rows or 60_000
    if "COLONNADE_DATA" not in os.environ:
        raise SystemExit("COLONNADE_DATA must name the folder with mnist.npz (python -m research fetch mnist)")
    found = {name: measured(width, wide, min(rows, most)) for name, (width, wide, rows) in CASES.items()}
    if given.json:
        print(json.dumps(found, indent=1))
        return
    text = page(found)
    print(text)
    if given.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
