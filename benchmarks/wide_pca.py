"""PCA of a table of 801 x 20,531, three owners as threads of one process, from tables in memory to components.

A process looks for an accelerator when it has had work enough, so that a first fit does without; `--look` looks for it
before the first fit, and does not count that.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import time
from typing import Any

import numpy as np
import pyarrow as pa

from colonnade import PCA, Federation, Party, Schema, number
from colonnade.kinds.pca import evaluation as baselines
from colonnade.mpc import accelerator

OWNERS = ("east", "north", "south")
ROWS, COLUMNS, COMPONENTS, EPSILON = 801, 20_531, 3, 50.0


def tables(rows: int, columns: int) -> tuple[list[pa.Table], list[Schema]]:
    """Three strong directions among noise, cut into three parts."""
    draws = np.random.default_rng(1)
    basis = np.linalg.qr(draws.normal(size=(columns, COMPONENTS)))[0].T
    values = (draws.normal(size=(rows, COMPONENTS)) * [0.6, 0.4, 0.3]) @ basis
    values += 0.2 * draws.normal(size=(rows, columns)) / np.sqrt(columns)
    ids = [f"p{i:04}" for i in range(rows)]
    parts = np.array_split(np.arange(columns), len(OWNERS))
    made = [pa.table({"id": ids, **{f"g{j}": values[:, j] for j in part}}) for part in parts]
    return made, [Schema({f"g{j}": number(-1, 1) for j in part}, clip=1.0) for part in parts]


def measure(rows: int, columns: int, repeats: int, look: bool) -> dict[str, Any]:
    """Seconds of all fits, and of the stages of the first and of the quickest one."""
    began = time.perf_counter()
    if look:
        accelerator.find_device()
    looking = time.perf_counter() - began
    made, schemas = tables(rows, columns)
    runs = []
    for _ in range(repeats):
        clock = [time.perf_counter()]
        parties = [Party(o, t, schema=s, id="id") for o, t, s in zip(OWNERS, made, schemas, strict=True)]
        people = Federation(parties)
        clock.append(time.perf_counter())
        model = PCA(COMPONENTS, epsilon=EPSILON, rows_at_most=1024, method="power").fit(people)
        clock.append(time.perf_counter())
        runs.append({"tables": clock[1] - clock[0], "fit": clock[2] - clock[1], "whole": clock[2] - clock[0]})
    joint = np.hstack([party.table.sorted_by_id().matrix() for party in parties])
    captured = baselines.variance_captured(joint, model.components_, center=True)
    best = min(runs, key=lambda run: run["whole"])
    device = accelerator.current_device()
    name = "none" if device is None else str(device.device)
    whole = [run["whole"] for run in runs]
    return {"first": runs[0], "quickest": best, "all": whole, "looking": looking, "device": name, "captured": captured}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--columns", type=int, default=COLUMNS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--look", action="store_true", help="look for an accelerator first")
    options = parser.parse_args()
    print(json.dumps(measure(options.rows, options.columns, options.repeats, options.look), indent=2))


if __name__ == "__main__":
    main()
