"""The same inference in one place and in floats: what the protocol is compared with, and nothing that is promised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from colonnade.kinds.synthesis.mixture.cells import Cells
from colonnade.kinds.synthesis.mixture.inference import Variational
from colonnade.kinds.synthesis.mixture.model import Matrix, MixtureModel

Clipping = Literal["local", "joint"]
Seen = Callable[[int, Variational], None]


def noiseless_sums(
    model: MixtureModel, rows: Sequence[Cells], parameters: Matrix, clips: Sequence[float], clipping: Clipping
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
    rows: Sequence[Cells],
    variational: Variational,
    *,
    clips: Sequence[float],
    deviation: float,
    rng: np.random.Generator,
    clipping: Clipping = "local",
    seen: Seen | None = None,
) -> Variational:
    """All rounds over Poisson batches with noise of the given deviation; ``seen`` is told every round."""
    model, count = variational.model, len(rows[0])
    for done in range(variational.rounds):
        batch = np.flatnonzero(rng.random(count) < variational.rate)
        sums = noiseless_sums(model, [held.take(batch) for held in rows], variational.draw(), clips, clipping)
        variational.step(sums + deviation * rng.standard_normal(sums.shape))
        if seen is not None:
            seen(done + 1, variational)
    return variational
