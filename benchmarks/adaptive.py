"""What rescaling and adjusting add to a training step of split networks, beside the noise: Table 3 of VFL-AFE.

Halves of images of 32 x 32 x 3, a LeNet-5 at each of two passive parties, a linear softmax head, batches of 250. All
modes take their steps in turn, in one process on one thread; figures are medians of its processor time, so that what
else runs on the machine counts in all of them alike. Images are made up: no time depends on what they show.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import platform
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from colonnade.models.split.encoders import OverRows, encoder_from
from colonnade.models.split.learned_heads import SoftmaxHead
from colonnade.privacy import Trust
from colonnade.protocols.adaptive.programs import batches
from colonnade.protocols.adaptive.sides import ActiveSide, PassiveSide, noised
from colonnade.protocols.adaptive.task import UNPROTECTED, Adaptive, Sender
from colonnade.protocols.messages import own_noise
from colonnade.randomness import Stream

ROWS, BATCH, WIDTH, CLASSES = 5_000, 250, 84, 10
SIDES = ("upper", "lower")
LENET = {"kind": "cnn", "shape": [16, 32, 3], "channels": [6, 16], "hidden": [120], "width": WIDTH}
MODES: dict[str, dict[str, Any]] = {
    "unprotected": {"noise": UNPROTECTED, "rescale": False, "adjust": False},
    "vanilla": {"rescale": False, "adjust": False},
    "+R": {"rescale": True, "adjust": False},
    "+D": {"rescale": False, "adjust": True},
    "both": {"rescale": True, "adjust": True},
}
PAPER = {"unprotected": 45.32, "noise": 7.83, "+R": 36.23, "+D": 10.63}
ALLOWED = 0.10
PAGE = Path(__file__).parent / "results" / "adaptive.md"


class Training:
    """One mode: all parties in one place, one step at a time."""

    def __init__(self, mode: dict[str, Any], images: dict[str, Any], labels: Any, epochs: int) -> None:
        trust = Trust(("labels", *SIDES), (), 0)
        senders = tuple(Sender(name, WIDTH, 1.0) for name in SIDES)
        given = {"noise": Adaptive.published_noise(10, 0.01)} | mode
        self.task = Adaptive(trust, "labels", senders, ROWS, CLASSES, epochs, ROWS // BATCH, **given)
        encoders = {name: encoder_from(LENET, 16 * 32 * 3, seed=1, device="cpu") for name in SIDES}
        self.passives = {name: PassiveSide(OverRows(encoders[name], images[name]), name, self.task) for name in SIDES}
        self.active = ActiveSide(SoftmaxHead(labels, len(SIDES) * WIDTH, CLASSES), None, self.task)
        self._stream, self._batches = Stream(bytes(32)), batches(self.task, bytes(32))

    def step(self) -> float:
        """One batch; the processor time that it took, in seconds."""
        places, start = next(self._batches), time.process_time()
        told = {
            name: self.task.grid.real(noised(side.embeddings(places), name, self.task, self._draw)).reshape(-1, WIDTH)
            for name, side in self.passives.items()
        }
        for name, slopes in self.active.slopes(places, told).items():
            self.passives[name].learn(slopes)
        return time.process_time() - start

    def _draw(self, name: str, variance: int, count: int) -> Any:
        return own_noise(name, variance).draw((count,), self._stream)


def measure(epochs: int) -> dict[str, float]:
    """The median of a step of each mode, in milliseconds."""
    import torch

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, ROWS)
    images = {name: rng.uniform(0, 1, (ROWS, 16 * 32 * 3)) for name in SIDES}
    modes = {name: Training(mode, images, labels, epochs) for name, mode in MODES.items()}
    taken: dict[str, list[float]] = {name: [] for name in modes}
    for number in range(epochs * ROWS // BATCH):
        for name, training in modes.items():
            seconds = training.step()
            if number:  # the first step of each prepares things
                taken[name].append(seconds)
    return {name: 1000 * median(each) for name, each in taken.items()}


def page(found: dict[str, float]) -> str:
    """The table, with the paper's beside it."""
    whole, base, noise = found["both"], found["unprotected"], found["vanilla"] - found["unprotected"]
    parts = {"training without protection": base, "clip and noise": noise}
    parts |= {"rescaling (+R)": found["+R"] - found["vanilla"], "adjusting (+D)": found["+D"] - found["vanilla"]}
    lines = [f"| {what} | {ms:.2f} ms | {ms / whole:.1%} | {theirs:.1f}% |" for (what, ms), theirs in zip(
        parts.items(), PAPER.values(), strict=True)]
    added = whole / found["vanilla"] - 1
    return "\n".join([
        "# A step of adaptive embeddings as published",
        "",
        "Made by `python benchmarks/adaptive.py --write`: halves of 32 x 32 x 3 images, LeNet-5 at two passive parties, a linear",
        f"head, batches of {BATCH}, exact noise; medians of processor time on one thread, all modes in turn in one process.",
        "",
        "| part of a step | time | of the whole step | in the paper (Table 3) |",
        "|---|---|---|---|",
        *lines,
        f"| both, the whole step | {whole:.2f} ms | 100% | 100% |",
        "",
        f"Rescaling and adjusting together add **{added:.1%}** to a step with noise, and {whole / found['vanilla'] * found['vanilla'] / base - 1 - noise / base:.1%} of a step",
        f"without protection (allowed: {ALLOWED:.0%}; the paper's are 47 % of its whole step). Distances and clusters are those of the first",
        "128 rows of a batch, from one product of matrices, and clusters start where those of the batch before ended.",
        "",
        f"Measured on {datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores {platform.machine()}.",
        "",
    ])


def main() -> None:
    """Measure, and print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    asked = parser.parse_args()
    found = measure(asked.epochs)
    if asked.write:
        PAGE.write_text(page(found), encoding="utf-8")
    print(json.dumps(found) if asked.json else page(found))


if __name__ == "__main__":
    main()
