"""Made-up people and noisy releases of their marginals, for tests of what is done with those."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.tables.release import Residual, centre

Codes = NDArray[np.int64]


def people(sizes: Sequence[int], rows: int, seed: int) -> Codes:
    """Codes of columns that depend on each other through a hidden class of four."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, 4, rows)
    codes = [(rng.random((4, size)) ** 3 + 0.05) for size in sizes]
    return np.stack(
        [
            (np.cumsum(each / each.sum(axis=1, keepdims=True), axis=1)[hidden] < rng.random((rows, 1))).sum(axis=1)
            for each in codes
        ],
        axis=1,
    ).clip(0, np.array(sizes) - 1)


def histogram(codes: Codes, columns: Sequence[int], sizes: Sequence[int]) -> NDArray[np.float64]:
    """Counts of people by some columns."""
    cells = np.zeros(len(codes), dtype=np.int64)
    for column in columns:
        cells = cells * sizes[column] + codes[:, column]
    shape = tuple(sizes[column] for column in columns)
    return np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)


def cells_of(person: Sequence[int], sizes: Sequence[int], blocks: Sequence[tuple[tuple[int, ...], int]]) -> Codes:
    """What a person adds to all blocks, by the definition: the tensor product of coordinates, times the weight."""
    found = []
    for columns, weight in blocks:
        cells = np.array(weight)
        for column in columns:
            own = sizes[column] * np.eye(sizes[column], dtype=np.int64)[person[column]] - 1
            cells = np.multiply.outer(cells, own[:1] if len(own) == 2 else own)
        found.append(cells.reshape(-1))
    return np.concatenate(found)


def sets_of(columns: int, label: int | None) -> list[tuple[int, ...]]:
    """All columns and pairs, and all triples with the label."""
    found = [*combinations(range(columns), 1), *combinations(range(columns), 2)]
    if label is not None:
        found += [triple for triple in combinations(range(columns), 3) if label in triple]
    return found


def release(
    codes: Codes, sizes: Sequence[int], sets: Sequence[tuple[int, ...]], deviation: float, seed: int
) -> list[Residual]:
    """Residuals with normal noise, projected as a release gives them."""
    rng = np.random.default_rng(seed)
    return [
        Residual(
            columns,
            centre(histogram(codes, columns, sizes))
            + centre(rng.normal(0, deviation, tuple(sizes[column] for column in columns))),
            deviation,
        )
        for columns in sets
    ]
