"""The same inference in one place and in floats: what the protocol is compared with, and nothing that is promised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy.special import softmax

from colonnade.kinds.synthesis.mixture.components import RowStatistics
from colonnade.kinds.synthesis.mixture.learners import Matrix, MixtureModel, VariationalLearner

Clipping = Literal["local", "joint"]


def noiseless_sums(
    model: MixtureModel, rows: Sequence[RowStatistics], parameters: Matrix, clips: Sequence[float], clipping: Clipping
) -> Matrix:
    """The sums that a round opens, before noise, (K, ``model.width``): of responsibilities and of derivatives.

    Under local clipping every owner clips its own derivatives to its clip; under joint clipping a row's whole
    contribution is clipped to the first of ``clips``, as in the paper.
    """
    joint = model.log_joint(rows, parameters)
    weights = np.exp(joint - joint.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    held = list(zip(model.owns, rows, (parameters[:, part] for part in model.parts), strict=True))
    norms = [own.square_norms(cells, part) for own, cells, part in held]
    if clipping == "joint":
        whole = np.sqrt((weights**2 * (1 + sum(norms))).sum(axis=1))
        weights *= (clips[0] / np.maximum(whole, clips[0]))[:, None]
        factors = [np.ones(1)] * len(held)
    else:
        factors = [clip / np.maximum(np.sqrt(norm), clip) for norm, clip in zip(norms, clips, strict=True)]
    found = np.empty((model.components, model.width))
    found[:, 0] = weights.sum(axis=0)
    for (own, cells, part), factor, place in zip(held, factors, model.parts, strict=True):
        found[:, place] = own.weighted_sums(cells, weights * factor, part)
    return found


def centralised(
    rows: Sequence[RowStatistics],
    learner: VariationalLearner,
    *,
    clips: Sequence[float],
    deviation: float,
    rng: np.random.Generator,
    clipping: Clipping = "local",
) -> VariationalLearner:
    """All rounds over Poisson batches with noise of the given deviation."""
    model, count = learner.model, len(rows[0])
    for _ in range(learner.rounds):
        batch = np.flatnonzero(rng.random(count) < learner.rate)
        sums = noiseless_sums(model, [held.take(batch) for held in rows], learner.parameters, clips, clipping)
        learner.step(sums + deviation * rng.standard_normal(sums.shape))
    return learner


def expected_sums(statistics: Sequence[Matrix], joint: Matrix) -> Matrix:
    """The sums of a round of expectation maximisation, before noise, by the logarithms of joint densities."""
    weights = softmax(joint, axis=1)
    return np.column_stack([weights.sum(axis=0), *(weights.T @ held for held in statistics)])
