"""Bounds that no protocol uses: looser than those of the product, or closed forms to check them against.

``docs/theory/gradient-sensitivity.md`` has the proof of Bombieri's bound, which is always valid and seldom tight.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction

from colonnade.errors import PrivacyError
from colonnade.kinds.glm.sensitivity import GradientExchange
from colonnade.kinds.regression.sensitivity import Program, score_bound
from colonnade.kinds.split.embedding_task import embeddings_mu_squared
from colonnade.privacy.accounting.loss_distributions import HAIR, log_gaussian_delta
from colonnade.privacy.noise_laws import skellam_terms
from colonnade.privacy.observers import check_delta
from colonnade.privacy.sensitivity import (
    Exact,
    Real,
    Rounding,
    Sensitivity,
    _conditional_square,
    _party_square,
    checked_whole,
    float_up,
    moments_sensitivity,
    rational,
    root_up,
)

Polynomial = Mapping[tuple[int, ...], int]
"""Exponents of the variables to an integer coefficient: ``{(2, 0): 1, (1, 1): -3}`` is x^2 - 3 x y."""


def bombieri_squares(polynomials: Sequence[Polynomial]) -> dict[int, Fraction]:
    """For each degree, the sum over all coordinates of ``a_b^2 b!/l!``: the squared norm of that homogeneous part."""
    squares: dict[int, Fraction] = defaultdict(Fraction)
    for polynomial in polynomials:
        for exponents, coefficient in polynomial.items():
            if min(exponents, default=0) < 0:
                raise PrivacyError("an exponent of a polynomial is negative; only polynomials have this bound [PR139]")
            degree = sum(exponents)
            weight = Fraction(math.prod(map(math.factorial, exponents)), math.factorial(degree))
            squares[degree] += weight * coefficient**2
    return dict(squares)


def polynomial_sensitivity(polynomials: Sequence[Polynomial], norm_squared: Exact) -> Sensitivity:
    """Sensitivity of the sum over rows of an integer polynomial map, for rows with ``|x|^2 <= norm_squared``."""
    squares = bombieri_squares(polynomials)
    parts = {degree: root_up(square * norm_squared**degree) for degree, square in squares.items()}
    added = Sensitivity.from_l2(sum(parts.values(), Fraction(0)) ** 2, len(polynomials))
    # A constant does not change when a row is replaced.
    moved = Sensitivity.from_l2((sum(parts.values(), Fraction(0)) - parts.get(0, 0)) ** 2, len(polynomials))
    return Sensitivity(added.l1, added.l2_squared, moved.replace_l1, moved.replace_l2_squared)


def upper_moments_sensitivity(norm_squared: int, columns: int) -> Sensitivity:
    """Sensitivity when each ``x_i x_j`` with ``i <= j`` is released once: half the L1 of the full matrix, equal L2."""
    full = moments_sensitivity(norm_squared, columns)
    twice = full.l1 + norm_squared
    return Sensitivity(twice // 2, full.l2_squared, twice, full.replace_l2_squared)


def regression_moments_sensitivity(norm_squared: int, columns: int, label: int) -> Sensitivity:
    """Linear regression's sufficient statistics: ``z z'`` for ``z = (x, y)`` with ``|y| <= label``."""
    return moments_sensitivity(norm_squared + checked_whole(label, "the bound of the label") ** 2, columns + 1)


def rounded_norm(
    gamma: int,
    clips: Sequence[float],
    widths: Sequence[int],
    rounding: Rounding = "stochastic",
    constants: Sequence[int] = (),
) -> float:
    """Largest norm of a whole rounded row, before using that its square is an integer; rounded up."""
    square = sum(
        (_party_square(gamma, clip, width, rounding) for clip, width in zip(clips, widths, strict=True)),
        Fraction(sum(int(value) ** 2 for value in constants)),
    )
    return float_up(root_up(square))


def conditional_norm(gamma: int, clips: Sequence[float], widths: Sequence[int], beta: float) -> float:
    """Largest norm of a whole row whose parties each redraw; rounded up."""
    parts = zip(clips, widths, strict=True)
    return float_up(root_up(sum((_conditional_square(gamma, *part, beta) for part in parts), Fraction(0))))


def gradient_norm(program: Program, gamma: int, norm: Real, weights: Real, label: int = 0) -> Fraction:
    """L2 sensitivity of a gradient for norms that are not roots of integers, one row added or removed, in its units."""
    row = rational(norm, "the norm of a row")
    inner = row * rational(weights, "the norm of the weights")
    return row * score_bound(program, gamma, inner, label)


def label_reach(gamma: int, bound: Real) -> int:
    """The largest integer that a label of size at most ``bound`` can become when scaled by gamma and rounded."""
    return math.ceil(checked_whole(gamma, "the scale gamma", 1) * rational(bound, "the bound of the label"))


def logistic_own_slope(run: GradientExchange) -> Fraction:
    """How far the slope of the logistic loss moves when row and label in {-1, 1} change: ``1 + tanh(R k / 2)``."""
    half = math.nextafter(run.row_norm * run.weight_norm / 2, math.inf)
    return min(1 + Fraction(math.tanh(half)) * (1 + Fraction(1, 1 << 50)), Fraction(2))


def closed_form_squared(run: GradientExchange, gain: Fraction, own: Fraction) -> Fraction:
    """The result of the recursion without penalties and without the caps, which is never smaller."""
    e, r, b = run.epochs, run.batches, run.batch_size
    spread = Fraction((b - 1) * (e - 1) * e * (2 * e - 1) + (r - 1) * b * e * (e + 1) * (2 * e + 1), 6)
    return e * own**2 + (gain * run.kick) ** 2 * spread


def skellam_rdp(alpha: int, mu: float | Fraction, d1: float, d2: float) -> float:
    """Renyi divergence of order ``alpha`` of Sk(mu), variance 2 mu, for integer shifts of norms d1, d2."""
    if isinstance(alpha, bool) or alpha != int(alpha) or alpha < 2:
        raise PrivacyError(f"the Skellam bound holds for whole orders from 2 on, not {alpha} [PR140]")
    first, low, extra, flat = skellam_terms(Fraction(mu), Fraction(d1), Fraction(d2) ** 2)
    return alpha * first + min((2 * alpha - 1) * low + extra, flat)


def rdp_to_epsilon(alpha: float, tau: float, delta: float) -> float:
    """Epsilon at ``delta`` from one order of Renyi privacy (CKS20, Proposition 12)."""
    return tau + (math.log(1 / delta) + (alpha - 1) * math.log1p(-1 / alpha) - math.log(alpha)) / (alpha - 1)


def rdp_to_delta(alpha: float, tau: float, epsilon: float) -> float:
    """Delta at ``epsilon`` from one order of Renyi privacy; the inverse of :func:`rdp_to_epsilon`."""
    exponent = (alpha - 1) * (tau - epsilon) + alpha * math.log1p(-1 / alpha) - math.log(alpha - 1)
    return math.exp(min(exponent, 0.0))


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Exact delta at ``epsilon`` of the Gaussian mechanism of sensitivity ``mu`` standard deviations."""
    return math.exp(log_gaussian_delta(mu, epsilon))


def share_of(total: Fraction | int, owners: int, colluding: int = 0) -> Fraction:
    """The parameter of each owner's noise, so that ``total`` stays unknown to ``colluding`` owners who know their own.

    It is a variance of the discrete Gaussian or a ``mu`` of Skellam: parameters that add up over independent draws.
    """
    whole = all(isinstance(count, int) and not isinstance(count, bool) for count in (owners, colluding))
    if not whole or not 0 <= colluding < owners:
        raise PrivacyError("of a positive number of owners, fewer than all may collude; both are whole numbers [PR141]")
    exact = Fraction(total)
    if exact < 0:
        raise PrivacyError("the noise to be shared must not be negative [PR142]")
    return exact / (owners - colluding)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon at ``delta`` of a mechanism with Renyi divergence ``rho alpha`` at every real order above 1."""
    check_delta(delta)
    # Golden section over log(alpha - 1); wherever it ends, that order is a valid bound.
    low, high = math.log(1e-6), math.log(1e9)
    shrink = (math.sqrt(5) - 1) / 2

    def cost(log_excess: float) -> float:
        alpha = 1 + math.exp(log_excess)
        return rdp_to_epsilon(alpha, rho * alpha, delta)

    for _ in range(100):
        left, right = high - shrink * (high - low), low + shrink * (high - low)
        low, high = (low, right) if cost(left) < cost(right) else (left, high)
    return max(0.0, cost((low + high) / 2) * (1 + HAIR))


def two_stage_mu_squared(first: float, second: float) -> Fraction:
    """Total mu^2 with a frozen encoder: one release to learn centre and scale, one to train on."""
    return embeddings_mu_squared(1, first) + embeddings_mu_squared(1, second)


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


def noise_ratio(mu: float, releases: int, *, moved: Exact = 1, parties: int = 1, known: int = 0) -> float:
    """Standard deviation over (add/remove) sensitivity so that all ``releases`` together are mu-Gaussian private.

    An observer who knows ``known`` of ``parties`` equal shares sees less noise; a replaced row moves the release by
    ``moved`` times the square of that sensitivity.
    """
    if not 0 <= known < checked_whole(parties, "the number of parties", 1):
        raise PrivacyError("an observer who knows every share of the noise cannot be promised anything [PR094]")
    if not 0 < mu < math.inf:
        raise PrivacyError(f"mu must be positive and finite, not {mu} [PR095]")
    square = Fraction(checked_whole(releases, "the number of releases", 1) * parties, parties - known)
    return float_up(root_up(moved * square / Fraction(mu) ** 2))
