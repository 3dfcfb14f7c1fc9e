"""A public centre and scale of embeddings, learned from embeddings that were told before and from nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from colonnade.kinds.split.embeddings.clipping import within
from colonnade.kinds.split.embeddings.learner import Matrix, Vector

_FILLED = 0.8  # the root mean square of scaled embeddings, in parts of the clip: few are clipped again
_LEAST = 1 / 64  # of the clip: a spread below this is not believed


@dataclass(frozen=True)
class Scaling:
    """What is subtracted from a clipped embedding, and the factor after that."""

    centre: Vector
    scale: float = 1.0

    @classmethod
    def none(cls, width: int, scale: float = 1.0) -> Scaling:
        """Embeddings stay as they are, or are stretched by a factor that is known before."""
        return cls(np.zeros(width), scale)

    def applied(self, embeddings: Matrix) -> Matrix:
        """Centred and scaled; they must be clipped again before they are told."""
        return self.scale * (embeddings - self.centre)

    def undone(self, told: Matrix) -> Matrix:
        """Embeddings as they were before, with noise that is smaller by the scale."""
        return told / self.scale + self.centre

    def learned(self, told: Matrix, variance: float, clip: float) -> Scaling:
        """Centre and scale for the next release, from what was told under this scaling with noise of this variance.

        The known noise is subtracted from the spread, and a spread is not believed below what noise alone could show.
        Embeddings are never made shorter: within the clip they are short enough.
        """
        embeddings, noise = self.undone(told), variance / self.scale**2
        rows, width = embeddings.shape
        centre = within(embeddings.mean(axis=0, keepdims=True), clip)[0]
        square = ((embeddings - centre) ** 2).sum(axis=1).mean() - width * noise
        uncertain = 2 * noise * math.sqrt(2 * width / rows)
        spread = math.sqrt(max(square, uncertain, (_LEAST * clip) ** 2))
        return Scaling(centre, max(1.0, _FILLED * clip / spread))
