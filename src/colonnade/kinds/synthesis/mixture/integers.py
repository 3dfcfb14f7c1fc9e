"""What an owner of a mixture's columns computes alone: integer densities, integer vectors, and its noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.synthesis.mixture.components import Linear
from colonnade.kinds.synthesis.mixture.task import SLOPE_BITS, STATISTIC_BITS, Mixture
from colonnade.kinds.synthesis.sensitivity import vector_square
from colonnade.randomness import Stream

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
LARGEST_STATISTIC = 8
LARGEST_SLOPE = 1 << 16
LARGEST_OFFSET = 1 << 27
_INSIDE = 1 - 2.0**-40


def densities(logs: Array, task: Mixture, owner: str, log_weights: Array | None = None) -> Whole:
    """Integers from 0 to 2^f: densities over the largest of the row, not below the owner's part of the floor.

    Of the first owner, weights of components are factors, and the numbers of a row add up to ``precision.whole`` at
    most, whatever floats came in.
    """
    whole = task.precision.whole
    first = owner == task.owners[0]
    with np.errstate(invalid="ignore"):
        ratio = np.exp(np.maximum(logs - logs.max(axis=1, keepdims=True), -task.floor / len(task.owners)))
    if not first:
        return np.asarray(np.floor(_finite(ratio) * float(1 << task.fraction)), dtype=np.int64)
    if log_weights is None:
        raise ValueError("the first owner multiplies the weights of the components in [VA143]")
    weights = np.exp(log_weights - log_weights.max())
    shares = _finite(ratio * (weights / weights.sum()))
    found = np.asarray(np.floor(shares * float(whole)), dtype=np.int64)
    over = found.sum(axis=1) > whole
    found[over] = 0
    return found


def unscaled(logs: Array, task: Mixture, owner: str, log_weights: Array) -> Whole:
    """Densities as they are, of which those below 2^-f become zero; only to show what comes of that."""
    weights = log_weights if owner == task.owners[0] else 0.0
    whole = task.precision.whole / (task.components if owner == task.owners[0] else 1)
    return np.asarray(np.floor(_finite(np.exp(np.minimum(logs, 0.0) + weights)) * whole), dtype=np.int64)


def bounded(vectors: Array, task: Mixture, owner: str) -> Whole:
    """Integer vectors, along the last axis: clipped, scaled by 2^g and rounded toward zero; their bound is enforced."""
    clip, most = task.part(owner).clip, vector_square(task.vector_bits, task.part(owner).clip)
    unit = float(1 << task.vector_bits)
    finite = np.clip(np.nan_to_num(vectors, nan=0.0), -2 * clip, 2 * clip)
    whole = np.trunc(finite * unit)
    long = _too_long(_square(whole), most)
    norms = np.sqrt(np.maximum(_square(finite), clip**2))
    shorter = np.trunc(finite * (clip * _INSIDE * unit / norms)[..., None])
    whole = np.where(long[..., None], shorter, whole)
    # Never so, unless floats were rounded otherwise than they should be: the sum rests on this bound.
    return np.where(_too_long(_square(whole), most)[..., None], 0.0, whole).astype(np.int64)


@dataclass(frozen=True)
class Slopes:
    """Integers by which integer statistics become derivatives; the fields are those of :class:`Linear`."""

    slope: Whole
    offset: Whole
    against: NDArray[np.int64]

    def of(self, statistics: Whole) -> Whole:
        """Derivatives of rows (n, K, q), before they are clipped."""
        width = len(self.against)
        return statistics[:, None, :width] * self.slope - statistics[:, None, self.against] * self.offset


def whole_statistics(statistics: Array, task: Mixture, owner: str) -> Whole:
    """Integer statistics of rows from which derivatives follow; the last ones are zeros and ones."""
    width, most = task.part(owner).width, float(LARGEST_STATISTIC << STATISTIC_BITS)
    finite = np.nan_to_num(statistics, nan=0.0)
    scaled = np.clip(np.rint(finite[:, :width] * (1 << STATISTIC_BITS)), -most, most)
    return np.hstack([scaled, finite[:, width:] > 0.5]).astype(np.int64)


def whole_slopes(linear: Linear) -> Slopes:
    """Rounded slopes and offsets, within limits that keep derivatives below 2^28."""
    slope = np.rint(np.nan_to_num(linear.slope, nan=0.0) * (1 << SLOPE_BITS))
    offset = np.rint(np.nan_to_num(linear.offset, nan=0.0) * (1 << (SLOPE_BITS + STATISTIC_BITS)))
    return Slopes(
        np.clip(slope, -LARGEST_SLOPE, LARGEST_SLOPE).astype(np.int64),
        np.clip(offset, -LARGEST_OFFSET, LARGEST_OFFSET).astype(np.int64),
        np.asarray(linear.against, dtype=np.int64),
    )


def shrinking(raw: Whole, task: Mixture, owner: str) -> Whole:
    """For derivatives (n, K, q) the integer factors, (n, K), with which they are no longer than the owner's clip."""
    most = vector_square(task.vector_bits, task.part(owner).clip)
    norms = np.sqrt(np.maximum(_square(raw.astype(np.float64)), 1.0))
    factor = np.minimum(np.floor(math.sqrt(most) * _INSIDE / norms), 1 << task.shrink_bits)
    # Never too long, unless floats were rounded otherwise than they should be: the sum rests on this bound.
    return np.where(_too_long((factor * norms) ** 2 / _INSIDE, most), 0.0, factor).astype(np.int64)


def padded(values: Whole, size: int) -> Whole:
    """Rows of zeros after the given ones, up to ``size`` rows."""
    out = np.zeros((size, *values.shape[1:]), dtype=np.int64)
    out[: len(values)] = values
    return out


def noise_shares(task: Mixture, rounds: int, stream: Stream) -> Whole:
    """One owner's noise for ``rounds`` rounds; audits attack this function."""
    return task.additive.draw((rounds, task.entries), stream)


def _square(vectors: Array) -> Array:
    """Squared norms along the last axis; exact for integers whose squares add up to less than 2^53."""
    return np.asarray(np.einsum("...q,...q->...", vectors, vectors))


def _too_long(squares: Array, most: int) -> NDArray[np.bool_]:
    """Whether squared norms exceed an integer bound, or may, where floats are too coarse to tell."""
    return np.asarray(squares > (most if most < 2**53 else most * (1 - 2.0**-41)))


def _finite(ratio: Array) -> Array:
    """Numbers from 0 to 1 in place of whatever came of a density that is not a number."""
    return np.clip(np.nan_to_num(ratio, nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0)
