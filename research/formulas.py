"""Formulas that the papers print and that are wrong or loose: for comparison, never for a claim.

``docs/theory/errors-in-the-papers.md`` says what is wrong with each formula, and which test shows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def paper_rounded_norm(gamma: int, clip: float, width: int) -> float:
    """The published bound sqrt(gamma^2 c^2 + n). WRONG: kept for comparison, never for a claim.

    gamma = 3, c = 1, x = (1/2, 1/2, 1/2, 1/2) rounds to (2, 2, 2, 2), whose squared norm 16 exceeds 13.
    """
    return math.sqrt(float((gamma * Fraction(clip)) ** 2 + width))


def paper_logistic_gradient_norm(gamma: int, columns: int) -> float:
    """SQM's Eq. 22. LOOSE at large gamma, WRONG at small gamma; for comparison, never for a claim."""
    return math.sqrt((0.75 * gamma**3) ** 2 + 9 * gamma**5 * columns + 36 * gamma**4)


def mended_logistic_gradient_norm(gamma: int, columns: int) -> float:
    """SQM's Eq. 22 with its arithmetic mended, its argument kept. LOOSE; for comparison, never for a claim."""
    return 0.75 * gamma**3 + 6 * gamma**2 * math.sqrt(columns)


def classic_gaussian_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The classic Gaussian mechanism. WRONG for large epsilon (HDP-VFL, VFL-AFE); never for a claim."""
    return math.sqrt(2 * math.log(1.25 / delta)) * sensitivity / epsilon


def inverted_gaussian_sigma(epsilon: float, delta: float) -> float:
    """VFL-AFE's Lemma 3.3 as printed. WRONG: noise grows with epsilon; never for a claim."""
    return epsilon / math.sqrt(2 * math.log(1.25 / delta))


def logarithmic_gaussian_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The functional mechanism paper's Gaussian remark. WRONG for large epsilon; never for a claim."""
    return sensitivity * math.log(1 / delta) / epsilon


def paper_passive_norm(
    epochs: int, batches: int, batch_size: int, rate: float, weight_norm: float, slope: float = 1.0
) -> float:
    """HDP-VFL's Lemma 3 (``paper_delta_B``). WRONG as used: received slopes are unbounded; never for a claim."""
    return _paper_exchange_norm(epochs, batches, batch_size, rate, weight_norm, slope)


def paper_active_norm(
    epochs: int, batches: int, batch_size: int, rate: float, weight_norm: float, slope: float = 1.0
) -> float:
    """HDP-VFL's Lemma 4 for the logistic loss (``paper_delta_A``). LOOSE once mended; never for a claim."""
    return _paper_exchange_norm(epochs, batches, batch_size, rate, 0.25 * weight_norm + 1.1, 0.25 * slope)


def _paper_exchange_norm(e: int, r: int, b: int, rate: float, own: float, gain: float) -> float:
    spread = 4 * (gain * e * rate) ** 2 * e * r / b
    return math.sqrt(spread + 8 * own * gain * e * e * rate / b + 4 * own * own * e)


def paper_linear_l1(features: int) -> int:
    """The functional mechanism's Delta_f for linear regression. LOOSE by a factor of 2; never for a claim."""
    return 2 * (1 + 2 * features + features**2)


def paper_logistic_l1(features: int) -> Fraction:
    """The functional mechanism's Delta_f for logistic regression. LOOSE by about 2; never for a claim."""
    return Fraction(features**2, 4) + features


def paper_party_l1(features: int, held: int, *, label: bool) -> int:
    """Theorem 2 for linear regression. WRONG: cross pairs are counted once, not twice; never for a claim."""
    own = 1 + 2 * features if label else 2 * held
    return 2 * (own + held * features)


def mended_party_l1(features: int, held: int, *, label: bool) -> int:
    """Theorem 2 with both orders of every cross pair. LOOSE; for comparison, never for a claim."""
    return paper_party_l1(features, held, label=label) + 2 * held * (features - held)


def paper_blocks_epsilon(total: float, blocks: Sequence[float], epsilons: Sequence[float]) -> float:
    """Corollary 1. WRONG: each block's epsilon is multiplied by Delta_f / Delta_B; never for a claim."""
    return sum(total / block * epsilon for block, epsilon in zip(blocks, epsilons, strict=True))


def paper_rescaling_delta(delta: float, *chances: float) -> float:
    """VFL-AFE's Theorem 3.6. WRONG: failure chances add, they do not divide; never for a claim."""
    return delta / math.prod(chances)


def paper_reciprocal_step(guess: float, value: float) -> float:
    """One step of DPVI's secure division (Algorithm 3, line 15). WRONG sign: it diverges; never for use."""
    return guess * (guess * value) + guess
