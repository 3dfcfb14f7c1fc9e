"""Encoders: one party's map from its encoded rows to embeddings. They stay with their party."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


class Encoder(ABC):
    """A map from encoded rows, (n, columns), to embeddings, (n, width); clipping is left to who releases them."""

    kind: str
    width: int

    @abstractmethod
    def embed(self, rows: Matrix) -> Matrix:
        """Embeddings of rows; the same for equal rows, whatever stands beside them."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Plain values from which, with :meth:`arrays`, an equal encoder can be made."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that was drawn or learned."""
