"""How long encoders of a split network take: embeddings, gradients, and the whole-number sums of private training.

Every figure is the smallest processor time of some runs on one thread, so that a machine that is shared blurs it less.
"""

from __future__ import annotations

import os

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

import argparse
from collections.abc import Callable, Sequence
from time import perf_counter, process_time
from typing import Any

import numpy as np

from colonnade.kinds.split.encoders import RowEncoder, TrainableEncoder, encoder_from
from colonnade.kinds.split.private_training import sum_clipped_gradients
from colonnade.models.pytorch import load_torch

RUNS = 3
HALF = [28, 14]
EDGES = {"kind": "edges", "shape": HALF, "width": 900}
CASES: dict[str, tuple[dict[str, Any], int, int]] = {
    "250 cosines of 392 pixels": ({"kind": "cosine", "width": 250}, 392, 10_000),
    "edges of 28 x 14": ({"kind": "edges", "shape": HALF}, 392, 10_000),
    "250 cosines of edges": ({"kind": "edges", "shape": HALF, "width": 250}, 392, 10_000),
    "learned linear map, 900 to 9": ({"kind": "linear", "width": 9, "over": EDGES}, 392, 10_000),
    "perceptron, 392, 48, 16": ({"kind": "mlp", "width": 16, "hidden": [48]}, 392, 2000),
    "network of 2 convolutions, 28 x 14": ({"kind": "cnn", "shape": HALF, "width": 16}, 392, 2000),
    "LeNet-5, 16 x 32 x 3": (
        {"kind": "cnn", "shape": [16, 32, 3], "channels": [6, 16], "hidden": [120, 84], "width": 16},
        1536,
        2000,
    ),
}


def seconds(work: Callable[[], object]) -> float:
    work()

    def once() -> float:
        start = process_time()
        work()
        return process_time() - start

    return min(once() for _ in range(RUNS))


def on_devices(devices: Sequence[str]) -> None:
    """An epoch of a network of two convolutions in steps of 256 rows, and the gradient of each of some rows."""
    rows, few = 20_000, np.arange(2_000)
    table = np.random.default_rng(0).uniform(-0.5, 0.5, (rows, 392))
    slopes = np.random.default_rng(1).standard_normal((rows, 16))
    batches = np.array_split(np.arange(rows), rows // 256)
    print("| device | an epoch of 20,000 rows, embeddings and gradients | gradients of each of 2,000 rows |")
    print("|---|---:|---:|")
    for device in devices:
        spec = {"kind": "cnn", "shape": HALF, "channels": [16, 32], "width": 16}
        learner = RowEncoder(encoder_from(spec, 392, seed=0, device=device), table)

        def epoch(learner: RowEncoder = learner) -> None:
            for places in batches:
                learner.embed(places)
                learner.pull_back(places, slopes[places])

        def each(learner: RowEncoder = learner) -> None:
            for block in learner.pull_back_each(few, slopes[few]):
                block.sum()

        taken = []
        for work in (epoch, each):
            work()
            start = perf_counter()
            work()
            taken.append(perf_counter() - start)
        print(f"| {device} | {taken[0]:.3f} s | {taken[1]:.3f} s |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", nargs="+", help="compare these devices of torch instead, such as cpu and cuda")
    if devices := parser.parse_args().devices:
        load_torch().set_num_threads(1)
        on_devices(devices)
        return
    print("| encoder | rows | parameters | embeddings | gradient | sum in whole numbers |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, (spec, columns, rows) in CASES.items():
        encoder = encoder_from(spec, columns, seed=0)
        table = np.random.default_rng(0).uniform(-0.5, 0.5, (rows, columns))
        learner, places = RowEncoder(encoder, table), np.arange(rows)
        taken = [seconds(lambda encoder=encoder, table=table: encoder.embed(table))]
        if isinstance(encoder, TrainableEncoder):
            slopes = np.random.default_rng(1).standard_normal((rows, encoder.width))
            taken.append(seconds(lambda learner=learner, p=places, s=slopes: learner.pull_back(p, s)))
            taken.append(
                seconds(lambda learner=learner, p=places, s=slopes: sum_clipped_gradients(learner, p, s, 1.0, 1 << 30))
            )
        shown = [f"{each:.2f} s" for each in taken] + [""] * (3 - len(taken))
        print(f"| {name} | {rows:,} | {learner.parameters:,} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
