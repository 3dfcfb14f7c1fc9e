"""A small encoder in numpy, and a small task, for tests of told embeddings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from colonnade.kinds.split import embedding_programs
from colonnade.kinds.split.embedding_task import EmbeddingSender, EmbeddingTask
from colonnade.privacy import Trust
from tests.support.protocols import Array


class Product:
    """Rows times weights, which are learned."""

    def __init__(self, rows: Array, width: int, seed: int = 1) -> None:
        self.rows, self.width = rows, width
        self.weights = np.random.default_rng(seed).normal(size=(rows.shape[1], width))

    @property
    def parameters(self) -> int:
        return self.weights.size

    def embed(self, places: Array, /) -> Array:
        return np.asarray(self.rows[places] @ self.weights)

    def pull_back(self, places: Array, slopes: Array, /) -> Array:
        return np.asarray((self.rows[places].T @ slopes).ravel())

    def pull_back_each(self, places: Array, slopes: Array, /) -> Iterator[Array]:
        for start in range(0, len(places), 7):
            rows, each = self.rows[places[start : start + 7]], slopes[start : start + 7]
            yield (rows[:, :, None] * each[:, None, :]).reshape(len(rows), -1)

    def factors(self, places: Array, slopes: Array, /) -> None:
        """Gradients are listed one by one."""

    def move(self, step: Array, /) -> None:
        self.weights = self.weights + step.reshape(self.weights.shape)


class Listed:
    """Gradients are these rows, whatever the slopes, in blocks of two; or their products with so many slopes."""

    width = 1

    def __init__(self, rows: Array, products: int = 0, parameters: int | None = None) -> None:
        self.rows, self.products = np.asarray(rows, dtype=float), products
        self.parameters = parameters or self.rows.shape[1] * max(1, products)

    def pull_back_each(self, places: Array, slopes: Array, /) -> Iterator[Array]:
        for start in range(0, len(places), 2):
            yield self.rows[places[start : start + 2]]

    def factors(self, places: Array, slopes: Array, /) -> tuple[Array, Array] | None:
        return (self.rows[places], slopes) if self.products else None


def embeddings_task(owners: Sequence[str] = ("bank", "shop"), active: str = "bank", **changes: Any) -> EmbeddingTask:
    """Embeddings of two numbers about thirty people of three classes, by encoders of three columns."""
    senders = tuple(EmbeddingSender(name, 2, 1.0, 6) for name in owners if name != active)
    given: dict[str, Any] = {"trust": Trust(tuple(owners), (), 0), "active": active, "senders": senders, "rows": 30}
    given["classes"] = 3
    if changes.get("training", "none") != "none":
        given |= {"epochs": 2, "batches": 4}
    if changes.get("training") == "rounds":
        given["releases"] = 3
    return EmbeddingTask(**given | changes)


def encoders(task: EmbeddingTask, rows: int | None = None, seed: int = 3) -> dict[str, Product]:
    """An encoder of each passive party, over rows that tell the class."""
    rng, labels = np.random.default_rng(seed), labels_of(task, rows)
    return {
        name: Product(np.eye(3)[labels] + 0.3 * rng.normal(size=(len(labels), 3)), 2, seed + index)
        for index, name in enumerate(task.passives)
    }


def labels_of(task: EmbeddingTask, rows: int | None = None) -> Array:
    """A class of each person."""
    return np.random.default_rng(9).integers(0, 3, task.rows if rows is None else rows)


# --- the roles as other protocols have them: rows at every owner, labels at one


def owner(me: Any, rows: Any, labels: Array | None, task: EmbeddingTask) -> Any:
    """An owner's program, with an encoder of its rows if it is a passive party."""
    active = me.name == task.active
    encoding = None if active else Product(rows.values, task.sender(me.name).width)
    return embedding_programs.owner(me, encoding, rows.ids, labels, task)


def coordinator(me: Any, task: EmbeddingTask) -> None:
    """The coordinator's program."""
    embedding_programs.coordinator(me, task)
