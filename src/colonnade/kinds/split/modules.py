"""Heads that the party with the label trains itself: one linear layer, or any torch module of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.split.learned_heads import SoftmaxHead, TorchHead
from colonnade.kinds.split.networks import set_weights

Matrix = NDArray[np.float64]
Learning = SoftmaxHead | TorchHead
_EPOCHS, _BATCH, _RATE = 20, 256, 0.01


def learning(labels: NDArray[Any], width: int, classes: int, module: Any = None, rate: float | None = None) -> Learning:
    """A head that is to learn these labels from joint embeddings of this width."""
    if module is None:
        return SoftmaxHead(labels, width, classes, rate=rate or _RATE)
    return TorchHead(labels, width, classes, module, rate=rate or _RATE / 10)


def trained(rows: Matrix, labels: NDArray[Any], classes: int, module: Any) -> dict[str, NDArray[Any]]:
    """What such a head learns from embeddings that are there; its order of batches is fixed."""
    head = learning(labels, rows.shape[1], classes, module)
    random, count = np.random.default_rng(0), max(1, len(rows) // _BATCH)
    for _ in range(_EPOCHS):
        for places in np.array_split(random.permutation(len(rows)), count):
            head.slopes(places, rows[places])
    return head.arrays()


def scores(rows: Matrix, arrays: Mapping[str, NDArray[Any]], classes: int, module: Any = None) -> Matrix:
    """Scores by a head that was learned before, (rows, outputs)."""
    nobody = np.zeros(0, dtype=np.int64 if classes else np.float64)
    if module is None:
        if set(arrays) != {"weights", "offsets"}:
            raise StudyError(
                "the head is a module, of which files hold the weights alone: set head_module to it [ST295]"
            )
        if arrays["weights"].shape != (rows.shape[1], max(1, classes)):
            raise StudyError("the head that was kept does not belong to embeddings of this width [ST296]")
        return np.asarray(rows @ arrays["weights"] + arrays["offsets"])
    head = TorchHead(nobody, rows.shape[1], classes, module)
    set_weights(head.module, arrays)
    return head.scores(rows)
