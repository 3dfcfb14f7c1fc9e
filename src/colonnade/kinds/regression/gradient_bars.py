"""How far the noise of rounds of gradients may have moved the weights that they gave.

Nothing here uses data or chance: the rounds are replayed with noise of the same law, drawn by a public key that follows
from the published weights. The theory is in docs/theory/error-bars.md.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.regression.gradients.descent import Learned
from colonnade.models.estimates import public_normals

_UNDONE = 0.8
"""What later steps leave of a deviation that no step undoes: measured, as it depends on columns that nobody sees."""
_STEPS = 100
_NUMBERS = 4000  # of noise in each of these steps: many columns need few draws


def deviations(result: Learned) -> NDArray[np.float64] | None:
    """The deviation of each class's weights, about the same for all of them; ``None`` where steps enlarge noise."""
    if (largest := result.deviation) is None:
        return None
    key = hashlib.sha256(b"colonnade error bars of rounds 1" + np.ascontiguousarray(result.weights).tobytes()).digest()
    classes, width = result.weights.shape
    noise = public_normals(key, (classes, min(_STEPS, result.task.rounds), max(2, min(40, _NUMBERS // width)), width))
    bound = result.task.weight_bound
    kept = [_kept(row, drawn, largest, bound) for row, drawn in zip(result.weights, noise, strict=True)]
    return _UNDONE * largest * np.array(kept)


def _kept(weights: NDArray[np.float64], noise: NDArray[np.float64], largest: float, bound: float) -> float:
    """What the ball leaves of this deviation, if the weights without noise are the published ones; at most 1.

    These are reached in the first half of the steps. Many rounds are one step here.
    """
    steps, draws, width = noise.shape
    early = steps // 2
    late = steps - early
    each = largest / np.sqrt(early + (late + 1) * (2 * late + 1) / (6 * late))
    noisy, apart = np.zeros((draws, width)), np.zeros((draws, width))
    for step in range(steps):
        share = min(1.0, (step + 1) / max(1, early))
        noisy = noisy + each * noise[step] + (weights / max(1, early) if step < early else 0.0)
        noisy = noisy * np.minimum(1.0, bound / np.maximum(np.linalg.norm(noisy, axis=1), bound / 2))[:, None]
        if step >= early:
            apart += noisy - share * weights
    return min(1.0, float(np.sqrt(np.mean(np.square(apart / late)))) / largest)
