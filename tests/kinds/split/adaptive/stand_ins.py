"""A linear encoder and a linear softmax head, in numpy: small enough to check every figure against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from colonnade.kinds.split.adaptive.task import Adaptive, Sender
from colonnade.kinds.split.embeddings.learner import Matrix, Places, Vector
from colonnade.privacy import Trust

Array = np.ndarray[Any, Any]


class LinearEncoder:
    """h = x W."""

    def __init__(self, rows: Matrix, width: int, seed: int = 0) -> None:
        self.rows = rows
        self.weights = np.random.default_rng(seed).normal(0, 0.5, (rows.shape[1], width))

    @property
    def width(self) -> int:
        return int(self.weights.shape[1])

    @property
    def parameters(self) -> int:
        return int(self.weights.size)

    def embed(self, places: Places, /) -> Matrix:
        return self.rows[places] @ self.weights

    def pull_back(self, places: Places, slopes: Matrix, /) -> Vector:
        return (self.rows[places].T @ slopes).ravel()

    def pull_back_each(self, places: Places, slopes: Matrix, /) -> Iterator[Matrix]:
        yield np.einsum("ij,ik->ijk", self.rows[places], slopes).reshape(len(places), -1)

    def move(self, step: Vector, /) -> None:
        self.weights += step.reshape(self.weights.shape)


class SoftmaxHead:
    """Linear scores and cross entropy, moved by plain steps."""

    def __init__(self, labels: Array, classes: int, width: int, rate: float = 0.3) -> None:
        self.labels, self.rate = labels, rate
        self.weights = np.random.default_rng(1).normal(0, 0.3, (width, classes))
        self.constant = np.zeros(classes)

    def chances(self, embeddings: Matrix) -> Matrix:
        scores = embeddings @ self.weights + self.constant
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        return np.asarray(scores / scores.sum(axis=1, keepdims=True))

    def slopes(self, places: Places, embeddings: Matrix, /) -> tuple[float, Matrix]:
        chances = self.chances(embeddings)
        true = (np.arange(len(places)), self.labels[places])
        loss = -float(np.log(np.maximum(chances[true], 1e-300)).mean())
        chances[true] -= 1
        back = chances @ self.weights.T
        self.weights -= self.rate / len(places) * embeddings.T @ chances
        self.constant -= self.rate * chances.mean(axis=0)
        return loss, back


def people(
    rows: int, columns: int, classes: int, parties: tuple[str, ...], seed: int = 3
) -> tuple[dict[str, Array], Array]:
    """Rows of each party around one middle per class, and the labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    middles = {name: rng.normal(0, 1.5, (classes, columns)) for name in parties}
    return {name: middles[name][labels] + rng.normal(0, 1, (rows, columns)) for name in parties}, labels


def adaptive_task(passives: tuple[str, ...] = ("left", "right"), **changes: Any) -> Adaptive:
    """Three epochs of four batches about sixty people of three classes."""
    given: dict[str, Any] = {
        "trust": Trust(("bank", *passives), (), 0),
        "active": "bank",
        "senders": tuple(Sender(name, 4, 1.0) for name in passives),
        "rows": 60,
        "classes": 3,
        "epochs": 3,
        "batches": 4,
        "noise": 1 << 14,
        "rate": 0.05,
        "beta": 1.0,
    }
    return Adaptive(**given | changes)
