"""Privacy of clipped embeddings and of the encoder's updates (docs/theory/embedding-releases.md).

Noise is given as a multiple of the sensitivity: ``sigma`` stands for a standard deviation of ``2 clip sigma``.
"""

from __future__ import annotations

import math
from fractions import Fraction

from colonnade.errors import PrivacyError
from colonnade.privacy.sensitivity.exact import Real, checked_whole, float_up, rational, root_up


def _inverse_square(sigma: float) -> Fraction:
    if not sigma > 0:
        raise PrivacyError(
            f"a noise multiple must be positive, not {sigma}; use infinity where nothing is released [PR087]"
        )
    return Fraction(0) if math.isinf(sigma) else 1 / Fraction(sigma) ** 2


def embeddings_mu_squared(epochs: int, embedding: float, update: float = math.inf) -> Fraction:
    """Total mu^2 of ``epochs`` releases of an embedding and of the encoder's update; infinity: not released."""
    return checked_whole(epochs, "the number of epochs", 1) * (_inverse_square(embedding) + _inverse_square(update))


def two_stage_mu_squared(first: float, second: float) -> Fraction:
    """Total mu^2 with a frozen encoder: one release to learn centre and scale, one to train on."""
    return _inverse_square(first) + _inverse_square(second)


def split_noise(mu: float, epochs: int, share: Real) -> tuple[float, float]:
    """Noise multiples (embedding, update) that spend ``share`` of mu^2 on embeddings; rounded up."""
    part = rational(share, "the share of the embeddings")
    if not (0 < mu < math.inf and part <= 1):
        raise PrivacyError(
            "mu must be positive and finite, and the share of the embeddings lie between 0 and 1 [PR088]"
        )
    rounds = checked_whole(epochs, "the number of epochs", 1)
    multiples = (rounds / (weight * Fraction(mu) ** 2) if weight else None for weight in (part, 1 - part))
    embedding, update = (math.inf if square is None else float_up(root_up(square)) for square in multiples)
    return embedding, update


def noise_deviation(clip: Real, sigma: float) -> float:
    """The standard deviation of the noise on vectors of norm at most ``clip``, which move by at most twice that."""
    if math.isinf(sigma):
        return math.inf
    return float_up(2 * rational(clip, "a clip") * rational(sigma, "a noise multiple"))
