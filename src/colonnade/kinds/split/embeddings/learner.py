"""What the protocols of split networks ask of an encoder: embeddings, and how its parameters move them.

An encoder is one party's own. It sees that party's rows, by their places among the common people, and nothing of
others but slopes: for each row, how a loss changes with the row's embedding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Places = NDArray[np.int64]


class Encoding(Protocol):
    """An encoder that does not change, and the rows of its party."""

    @property
    def width(self) -> int:
        """How many numbers an embedding has."""

    def embed(self, places: Places, /) -> Matrix:
        """Embeddings of the rows at these places, (n, width), as the encoder gives them: not clipped."""


class Learner(Encoding, Protocol):
    """An encoder whose parameters are learned."""

    @property
    def parameters(self) -> int:
        """How many numbers the encoder has."""

    def pull_back(self, places: Places, slopes: Matrix, /) -> Vector:
        """The sum over rows of (d embedding / d parameters)' times the row's slope, (parameters,)."""

    def pull_back_each(self, places: Places, slopes: Matrix, /) -> Iterator[Matrix]:
        """The same for each row alone, in blocks of rows, (rows of the block, parameters)."""

    def move(self, step: Vector, /) -> None:
        """Add a step to the parameters."""
