"""Privacy of clipped embeddings and of the encoder's updates (docs/theory/embedding-releases.md).

Noise is given as a multiple of the sensitivity: ``sigma`` stands for a standard deviation of ``2 clip sigma``.
"""

from __future__ import annotations

import math
from fractions import Fraction

from colonnade.errors import PrivacyError
from colonnade.privacy.sensitivity.exact import checked_whole


def _inverse_square(sigma: float) -> Fraction:
    if not sigma > 0:
        raise PrivacyError(
            f"a noise multiple must be positive, not {sigma}; use infinity where nothing is released [PR087]"
        )
    return Fraction(0) if math.isinf(sigma) else 1 / Fraction(sigma) ** 2


def embeddings_mu_squared(epochs: int, embedding: float, update: float = math.inf) -> Fraction:
    """Total mu^2 of ``epochs`` releases of an embedding and of the encoder's update; infinity: not released."""
    return checked_whole(epochs, "the number of epochs", 1) * (_inverse_square(embedding) + _inverse_square(update))
