"""Small pictures with labels, of which two parties hold a half each: MNIST left and right, CIFAR-10 upper and lower."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DatasetError
from research.datasets import sources

Matrix = NDArray[np.float64]
Labels = NDArray[np.int64]
_FILES = {"mnist": sources.MNIST, "cifar-10": sources.CIFAR}
CLASSES = 10


@dataclass(frozen=True)
class Halves:
    """Rows of pixels between 0 and 1 for each of two parties, in row-major order, and everybody's labels."""

    parts: dict[str, Matrix]
    shapes: dict[str, tuple[int, ...]]
    labels: Labels

    def take(self, places: NDArray[np.int64] | slice) -> Halves:
        """Some of the people."""
        return Halves({name: part[places] for name, part in self.parts.items()}, self.shapes, self.labels[places])


def load_halves(name: str, *, folder: str | Path | None = None, rows: int | None = None) -> tuple[Halves, Halves]:
    """Training and test pictures of ``mnist`` or ``cifar-10`` (10,000 and 2,000 of it); ``rows`` keeps the first."""
    if name not in _FILES:
        raise DatasetError(f"there are no pictures {name!r}; there are {' and '.join(_FILES)} [DS014]")
    stored = sources.stored(sources.located(_FILES[name], name, folder))
    train = _cut(stored["x_train"][:rows], stored["y_train"][:rows])
    return train, _cut(stored["x_test"][:rows], stored["y_test"][:rows])


def _cut(pictures: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Halves:
    if pictures.ndim == 3:
        middle = pictures.shape[2] // 2
        cut = {"left": pictures[:, :, :middle], "right": pictures[:, :, middle:]}
    else:
        middle = pictures.shape[1] // 2
        cut = {"upper": pictures[:, :middle], "lower": pictures[:, middle:]}
    parts = {name: half.reshape(len(half), -1) / 255.0 for name, half in cut.items()}
    return Halves(parts, {name: half.shape[1:] for name, half in cut.items()}, labels.astype(np.int64))
