"""From noisy residuals to a mixture of products: of all that the noise allows, one that says little else.

Nothing here sees data or spends budget (docs/theory/fitting-marginals.md). The misfit is weighed by the noise, whose
level is public, so its right size is known: its degrees of freedom. The entropy of the components pulls the other way,
strongly at first; its pull fades until the misfit is right, and is then held there while steps get shorter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.products import Products
from colonnade.kinds.synthesis.targets import Singles, Targets
from colonnade.kinds.tables.release import Floats, Residual, check_residuals
from colonnade.protocols.roles import Progress, silent
from colonnade.randomness import KEY_BYTES, Stream
from colonnade.tables.coding import ForbiddenCodes

COMPONENTS = 400
STEPS = 800
_RATE = 0.05
_SPREAD = 0.35
"""How far the logits of the components are apart at the start, where all are close to independent columns."""
_PULL = 0.3
"""The pull of entropy at the start, for each person."""
_FADES = 8.0
"""By how many powers of e the pull can fade in a fit."""
_HOLD = 0.2
_LEAST = 1e-4
"""What part of the start's chances is spread evenly, so that no code is impossible from the start."""
_TINY = np.float32(1e-12)
_PRICE = 3.0
"""The price of a person in a box, where half of chi-squared is the price of the misfit."""


def fit(
    sizes: Sequence[int],
    count: float,
    residuals: Sequence[Residual],
    *,
    components: int = COMPONENTS,
    steps: int = STEPS,
    start: Products | None = None,
    impossible: Sequence[ForbiddenCodes] = (),
    progress: Progress = silent,
) -> Products:
    """The mixture of products that is fitted to a release; the same for the same numbers.

    ``start`` is an earlier fit to begin from, for releases that are close to the one it was fitted to. ``impossible``
    are codes that nobody has; next to nobody of the model has them.
    """
    check_residuals(sizes, residuals)
    if components < 1 or steps < 1:
        raise StudyError("a fit needs at least one component and one step [ST344]")
    targets = Targets(sizes, max(count, 1.0), residuals)
    logits = _independent(targets, components) if start is None else _logits(start)
    if logits.shape[1] != targets.width:
        raise StudyError("the fit to start from has other columns than the residuals [ST345]")
    pull = _PULL * float(targets.count)
    if start is not None:
        pull = min(pull, _balance(targets, logits))
    zeros = Zeros(sizes, float(targets.count), impossible)
    return _mixture(targets, _settled(targets, zeros, logits, pull, steps, progress))


def wanted_misfit(degrees: int) -> float:
    """Where chi-squared is to end: its expectation for the truth, less one standard deviation.

    For many degrees of freedom this is the expectation. For few it is lower, so that what people tell is not taken for
    noise.
    """
    return max(1.0, degrees - math.sqrt(2 * degrees))


def _settled(targets: Targets, zeros: Zeros, logits: Singles, pull: float, steps: int, progress: Progress) -> Singles:
    """The chances that steps of Adam reach, down half the misfit and up the pull times the entropy."""
    mean, square = np.zeros_like(logits), np.zeros_like(logits)
    goal = wanted_misfit(targets.degrees)
    for step in range(1, steps + 1):
        chances = _softmax(targets, logits)
        misfit, slopes = targets.misfit(chances)
        zeros.add(chances, slopes)
        slopes += np.float32(pull / len(logits)) * _apart(chances)
        slopes = _by_logits(targets, chances, slopes)
        mean += np.float32(0.1) * (slopes - mean)
        square += np.float32(0.01) * (slopes * slopes - square)
        rate = _RATE * max(0.05, min(1.0, 2 * (1 - step / steps))) / (1 - 0.9**step)
        logits -= np.float32(rate) * mean / (np.sqrt(square / np.float32(1 - 0.99**step)) + _TINY)
        # Far above the goal the pull just fades; close to it, it follows the misfit in both directions.
        change = max(-_FADES / max(steps, 40), _HOLD * (1 - misfit / goal))
        pull = min(_PULL * float(targets.count), pull * (1 + change))
        if step % 20 == 0 or step == steps:
            progress("fit", step, steps)
    return _softmax(targets, logits)


def _apart(chances: Singles) -> Singles:
    """Derivatives of the information that the component tells about the columns, for each component alike."""
    logs: Singles = np.log(chances + _TINY)
    logs -= np.log(chances.mean(axis=0) + _TINY)
    return logs


def _balance(targets: Targets, logits: Singles) -> float:
    """The pull of entropy at which an earlier fit is about at rest."""
    chances = _softmax(targets, logits)
    down = _by_logits(targets, chances, targets.misfit(chances)[1])
    up = _by_logits(targets, chances, _apart(chances) / np.float32(len(logits)))
    return max(1.0, -float(np.vdot(down, up)) / max(float(np.vdot(up, up)), 1e-30))


def _independent(targets: Targets, components: int) -> Singles:
    """Logits close to those of the noisy marginals of single columns, a little apart in a public, fixed way."""
    chances = np.concatenate(
        [
            (1 - _LEAST) * nearest_chances(targets.single[codes] / targets.count + targets.even[codes])
            + _LEAST * targets.even[codes]
            for codes in map(targets.codes, range(len(targets.sizes)))
        ]
    )
    drawn = Stream(bytes(KEY_BYTES)).uint32((components, targets.width)) * 2.0**-31 - 1.0
    return np.asarray(np.log(chances) + _SPREAD * drawn, dtype=np.float32)


def _logits(start: Products) -> Singles:
    if np.ptp(start.weights) > 1e-9:
        raise StudyError("a fit can only start from one whose components have equal weights [ST346]")
    return np.asarray(np.log(np.concatenate(start.tables, axis=1) + 1e-12), dtype=np.float32)


def _mixture(targets: Targets, chances: Singles) -> Products:
    tables = (chances[:, codes].astype(np.float64) for codes in map(targets.codes, range(len(targets.sizes))))
    even = np.full(len(chances), 1 / len(chances))
    return Products(even, tuple(table / table.sum(axis=1, keepdims=True) for table in tables))


def nearest_chances(values: NDArray[np.floating[Any]]) -> Floats:
    """The nearest probabilities to some numbers, in the sum of squares."""
    falling = np.sort(values)[::-1]
    beyond = (np.cumsum(falling, dtype=np.float64) - 1) / np.arange(1, len(values) + 1)
    return np.asarray(np.maximum(values - beyond[np.nonzero(falling > beyond)[0][-1]], 0), dtype=np.float64)


def _softmax(targets: Targets, logits: Singles) -> Singles:
    highest = np.maximum.reduceat(logits, targets.starts[:-1], axis=1)
    found: Singles = np.exp(logits - np.repeat(highest, targets.sizes, axis=1))
    found /= _over_columns(targets, found)
    return found


def _by_logits(targets: Targets, chances: Singles, slopes: Singles) -> Singles:
    """Derivatives by the logits, from those by the chances."""
    slopes = slopes * chances
    slopes -= chances * _over_columns(targets, slopes)
    return slopes


def _over_columns(targets: Targets, values: Singles) -> Singles:
    """The sum over the codes of each column, at each of its codes."""
    return np.repeat(np.add.reduceat(values, targets.starts[:-1], axis=1), targets.sizes, axis=1)


class Zeros:
    """Boxes of impossible codes, arranged for their mass in a mixture of equal weights and its derivatives."""

    def __init__(self, sizes: Sequence[int], count: float, boxes: Sequence[ForbiddenCodes]) -> None:
        starts = np.cumsum([0, *sizes])
        self.count = count
        self.boxes: list[list[NDArray[np.intp]]] = [
            [starts[column] + np.flatnonzero(marked) for column, marked in zip(box.columns, box.marked, strict=True)]
            for box in boxes
        ]

    def add(self, chances: Singles, slopes: Singles) -> None:
        """Add the derivatives of the price of all boxes by the chances; ``chances`` is as in a misfit."""
        each = np.float32(_PRICE * self.count / len(chances))
        for box in self.boxes:
            held = [chances[:, places].sum(axis=1, dtype=np.float32) for places in box]
            for at, places in enumerate(box):
                others = prod((part for other, part in enumerate(held) if other != at), start=each)
                slopes[:, places] += np.broadcast_to(others, (len(chances),))[:, None]
