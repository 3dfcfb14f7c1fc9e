"""A small mixture model for tests of the protocol: every column is true or false."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.synthesis.mixture import programs
from colonnade.kinds.synthesis.mixture.components import LinearDerivatives
from colonnade.kinds.synthesis.mixture.responsibilities import (
    NORM_BITS,
    ROOT_BITS,
    JointClip,
    ResponsibilityPrecision,
    _joint_norm,
    _shift_to_nearest,
)
from colonnade.kinds.synthesis.mixture.task import MixturePart, MixtureTask
from tests.support import protocols as kit

Array = np.ndarray[Any, Any]


def mixture_task(
    widths: Sequence[int] = (2, 3, 1), seats: Sequence[str] | None = None, threshold: int = 1, **changes: Any
) -> MixtureTask:
    """Three rounds over drawn batches of ten of forty people, with four components."""
    trust = kit.trust_of(len(widths), seats, threshold)
    derived = changes.get("vectors", "statistics") != "statistics"
    parts = tuple(
        MixturePart(owner, tuple(f"c{i}" for i in range(width)), width, 0.75 if derived else 1.0, width + 1)
        for owner, width in zip(trust.owners, widths, strict=True)
    )
    task = MixtureTask(
        parts, 4, trust, "poisson", rows=40, batch=10, rounds=3, noise=10**8 * len(widths), block_rows=64
    )
    return replace(task, **{"vector_bits": 26} | changes if changes.get("vectors") == "linear" else changes)


def flags(task: MixtureTask, rows: int, seed: int = 3) -> dict[str, Array]:
    """Rows of zeros and ones of every owner."""
    rng = np.random.default_rng(seed)
    return {part.owner: rng.integers(0, 2, (rows, len(part.columns))).astype(float) for part in task.parts}


class Flags:
    """Bernoulli columns: the parameters are logits, and a step goes along the gradient; it remembers every step."""

    def __init__(self, task: MixtureTask, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.task = task
        self.logits = {part.owner: rng.normal(0, 1.5, (task.components, part.width)) for part in task.parts}
        self.log_weights = np.log(rng.dirichlet(np.full(task.components, 3.0)))
        self.seen: list[Array] = []
        self.states: list[Array] = []

    def log_densities(self, owner: str, rows: Array) -> Array:
        return rows @ self.logits[owner].T - np.logaddexp(0, self.logits[owner]).sum(axis=1)

    def vectors(self, owner: str, rows: Array) -> Array:
        if self.task.vectors == "statistics":
            return rows / max(1, rows.shape[1]) ** 0.5
        if self.task.linear:
            return np.column_stack([rows, np.ones(len(rows))])
        return rows[:, None, :] - 1 / (1 + np.exp(-self.logits[owner]))

    def linear(self, owner: str) -> LinearDerivatives:
        chances = 1 / (1 + np.exp(-self.logits[owner]))
        width = chances.shape[1]
        return LinearDerivatives(np.ones_like(chances), chances, np.full(width, width))

    def step(self, sums: Array) -> None:
        self.seen.append(sums)
        self.states.append(self.state)
        start = 1
        for name, values in self.logits.items():
            moved = sums[:, start : start + values.shape[1]]
            self.logits[name] = np.clip(values + 0.02 * np.tanh(moved), -4, 4)
            start += values.shape[1]
        self.log_weights = self.log_weights + 0.01 * np.tanh(sums[:, 0])

    @property
    def state(self) -> Array:
        return np.concatenate([self.log_weights, *(values.reshape(-1) for values in self.logits.values())])

    def restore(self, state: Array) -> None:
        self.log_weights, start = state[: self.task.components], self.task.components
        for name, values in self.logits.items():
            self.logits[name] = state[start : start + values.size].reshape(values.shape)
            start += values.size


def owner(me: Any, rows: Any, task: MixtureTask) -> Flags:
    """The owner's program with this model."""
    return programs.owner(me, rows, task, Flags(task))


def coordinator(me: Any, task: MixtureTask) -> Flags:
    """The coordinator's program with this model."""
    return programs.coordinator(me, task, Flags(task))


def dealt_in(
    task: MixtureTask, learner: Flags, tables: Mapping[str, Array], batch: Array
) -> dict[str, tuple[Array, Array]]:
    """What the owners deal of a batch, at the learner's present parameters."""
    return {name: programs.evaluate_rows(learner, task, name, tables[name][batch]) for name in task.owners}


def error(dealt: Sequence[Array], precision: ResponsibilityPrecision) -> NDArray[np.float64]:
    """By how many units in the last place each responsibility on shares may differ from that in the clear (Lemma 4)."""
    f, joint = precision.fraction, dealt[0]
    for more in dealt[1:]:
        joint = _shift_to_nearest(joint * more, f) + precision.lift
    apart = (precision.owners - 1) * (precision.ulps + 0.5)
    total = joint.sum(axis=1, keepdims=True)
    least = np.maximum(total - precision.components * apart, 1.0)
    quotient = apart * (1 + precision.components * joint / total) / least
    rounding = 2 * precision.ulps * (7 / 2**f + 1 / 2**precision.bits)
    return np.asarray((quotient + 1.05 * 2.0**-16 + rounding) * 2**precision.bits)


def clipping_error(
    weights: NDArray[np.int64], squares: Sequence[NDArray[np.int64]], units: NDArray[np.float64], joint: JointClip
) -> NDArray[np.float64]:
    """By how many units clipped responsibilities may differ from those in the clear; unclipped ones do by ``units``."""
    bits, ulps = joint.precision.bits, joint.precision.ulps
    factor = (sum(squares) + (1 << NORM_BITS)) / 2.0**NORM_BITS
    norm = _joint_norm(weights, squares, joint)
    r, apart, last = weights / 2.0**bits, units / 2.0**bits, 2.0**-bits
    moved = ((2 * np.abs(r) * apart + apart**2 + (2 * ulps + 2) * last) * factor).sum(axis=1, keepdims=True)
    moved += (2 * ulps + 2) * 2.0**-ROOT_BITS
    ratio = np.minimum(1.0, joint.clip / np.sqrt(norm))
    root = 2.0**-ROOT_BITS * (2 + ulps * math.sqrt(joint.most / 2.0**ROOT_BITS))
    change = ratio * (moved / np.maximum(norm - moved, 2.0**-ROOT_BITS) + root) + 2.0**-ROOT_BITS
    return np.asarray(units + np.abs(weights) * change + ulps + 1)
