"""SQM's Fig. 3: what the integer grid costs in sensitivity and in noise, for logistic regression of 800 columns."""

from __future__ import annotations

import math
from collections.abc import Iterator

from colonnade.kinds.regression.sensitivity import (
    Program,
    gradient_scale,
    gradient_sensitivity,
    worst_weights_squared,
)
from colonnade.privacy.sensitivity import party_norm_squared
from research.formulas import mended_logistic_gradient_norm, paper_logistic_gradient_norm
from research.reproduce import calibration
from research.reproduce.results import AS_PUBLISHED, CURATOR, PROVEN, Group, Row

GAMMAS = (64, 256, 1024, 4096, 16384, 65536)
COLUMNS, RATE, ROUNDS, EPSILON, DELTA = 800, 0.001, 5000, 1.0, 1e-5
EXACT = 0.75
"""The norm of one person's gradient on real numbers, at weights and rows of norm at most 1."""

PAPER = "paper's formula (Eq. 22)"
MENDED = "Eq. 22, its arithmetic mended"
LITERAL = "Algorithm 3 as printed, bounded exactly"
OURS = "Colonnade, H = 1"
CUBIC = "Colonnade, H = 3"
_PROGRAMS: dict[str, Program] = {LITERAL: "published", OURS: "logistic", CUBIC: "cubic"}


def sensitivity(method: str, gamma: int, columns: int = COLUMNS) -> float:
    """L2 sensitivity of a sum of gradients in the gradient's own units, at rows and weights of norm at most 1."""
    if method == PAPER:
        return paper_logistic_gradient_norm(gamma, columns) / gamma**3
    if method == MENDED:
        return mended_logistic_gradient_norm(gamma, columns) / gamma**3
    square, _ = _squares(_PROGRAMS[method], gamma, columns)
    return math.sqrt(square) / gradient_scale(_PROGRAMS[method], gamma)


def deviation(method: str, gamma: int, columns: int = COLUMNS) -> float:
    """The least deviation of a noisy gradient's entries that keeps epsilon 1 over five epochs."""
    if method == PAPER:
        mu = calibration.paper_gradient_noise(gamma, columns, EPSILON, DELTA, RATE, ROUNDS)
        return math.sqrt(2 * mu) / gamma**3
    program = _PROGRAMS[method]
    square, l1 = _squares(program, gamma, columns)
    mu = calibration.skellam_noise(square, l1, columns, EPSILON, DELTA, RATE, ROUNDS)
    return math.sqrt(2 * mu) / gradient_scale(program, gamma)


def central_deviation() -> float:
    """The same for continuous gradients at a trusted curator."""
    return calibration.gradient_deviation(EXACT, COLUMNS, EPSILON, DELTA, RATE, ROUNDS)


def figure_3(gammas: tuple[int, ...] = GAMMAS) -> Iterator[Row]:
    """Both panels; nothing is drawn at random, so each number stands for itself."""
    setting = f"{COLUMNS} columns, epsilon {EPSILON:g}, {ROUNDS} rounds at rate {RATE}"
    left = Group("SQM Fig. 3", "closed form", setting, "gamma", "sensitivity above 3/4")
    for method in (PAPER, MENDED, LITERAL, OURS):
        promise = AS_PUBLISHED if method in (PAPER, MENDED) else PROVEN
        for gamma in gammas:
            yield left.known(gamma, method, promise, sensitivity(method, gamma) - EXACT)
    right = Group("SQM Fig. 3", "closed form", setting, "gamma", "deviation of the noise")
    for method, promise in ((PAPER, AS_PUBLISHED), (OURS, PROVEN), (CUBIC, PROVEN)):
        for gamma in gammas:
            yield right.known(gamma, method, promise, deviation(method, gamma))
    central = central_deviation()
    for gamma in gammas:
        yield right.known(gamma, "trusted curator, real numbers", CURATOR, central)


def _squares(program: Program, gamma: int, columns: int) -> tuple[int, int]:
    row = party_norm_squared(gamma, 1.0, columns, "stochastic")
    weights = worst_weights_squared(program, gamma, columns)
    found = gradient_sensitivity(program, gamma, row, weights, columns)
    return int(found.l2_squared), int(found.l1)
