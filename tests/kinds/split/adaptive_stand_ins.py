"""People in classes, a head that is under way, and a small task of adaptive embeddings as published."""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.kinds.split.embedding_task import AdaptiveTask, EmbeddingSender
from colonnade.kinds.split.heads import SoftmaxHead
from colonnade.privacy import Trust
from tests.support.protocols import Array


def head_of(labels: Array, classes: int, width: int) -> SoftmaxHead:
    """A linear head that has slopes from the first batch on: one that starts at zero sends none back."""
    head = SoftmaxHead(labels, width, classes, rate=0.05)
    head.weights = np.random.default_rng(1).normal(0, 0.3, head.weights.shape)
    return head


def people(
    rows: int, columns: int, classes: int, parties: tuple[str, ...], seed: int = 3
) -> tuple[dict[str, Array], Array]:
    """Rows of each party around one middle per class, and the labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    middles = {name: rng.normal(0, 1.5, (classes, columns)) for name in parties}
    return {name: middles[name][labels] + rng.normal(0, 1, (rows, columns)) for name in parties}, labels


def adaptive_task(passives: tuple[str, ...] = ("left", "right"), **changes: Any) -> AdaptiveTask:
    """Three epochs of four batches about sixty people of three classes."""
    given: dict[str, Any] = {
        "trust": Trust(("bank", *passives), (), 0),
        "active": "bank",
        "senders": tuple(EmbeddingSender(name, 4, 1.0) for name in passives),
        "rows": 60,
        "classes": 3,
        "epochs": 3,
        "batches": 4,
        "noise": 1 << 14,
        "rate": 0.05,
        "beta": 1.0,
    }
    return AdaptiveTask(**given | changes)
