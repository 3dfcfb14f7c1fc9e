"""Shares of the people and means of numbers, by column, with the deviation that noise gives each.

They follow from the release alone, so no model is in them (docs/theory/error-bars-components.md).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.synthesis.population import Population
from colonnade.kinds.tables.release import Residual
from colonnade.models.estimates import NORMAL_95, Estimate
from colonnade.tables.bins import Bins


def shares(people: Population) -> dict[str, dict[str, Estimate]]:
    """For each column the share of the people who have each value; where nothing was counted, that of the model."""
    return {name: _shares(people, column) for column, name in enumerate(_names(people))}


def means(people: Population) -> dict[str, Estimate]:
    """The mean of each number, as far as it was counted: every person counts as the middle of its bin.

    Missing cells are left out. A number of whom nobody, or less than nobody, was counted has no mean.
    """
    found = {}
    for column, name in enumerate(_names(people)):
        coding = people.layout.columns[people.layout.free[column]]
        if coding.bins is not None and (mean := _mean(people, column, name, coding.bins)) is not None:
            found[name] = mean
    return found


def _names(people: Population) -> tuple[str, ...]:
    return people.layout.column_names(range(len(people.layout.free)))


def _shares(people: Population, column: int) -> dict[str, Estimate]:
    found = people.marginal(_names(people)[column : column + 1])
    part, count = people.release.part((column,)), people.release.residuals[0]
    labels, size = found.labels[0], len(found.labels[0])
    if found.deviations is None or part is None:
        return {label: Estimate(share) for label, share in zip(labels, found.fitted / people.count, strict=True)}
    estimates = {}
    for label, share in zip(labels, (found.counts / people.count).tolist(), strict=True):
        # A cell is count / size + residual, so the count moves the share by no more than the residual's part of it.
        own = part.deviation**2 * (1 - 1 / size)
        deviation = math.sqrt(own + ((share - 1 / size) * count.deviation) ** 2) / people.count
        reach = NORMAL_95 * deviation
        estimates[label] = Estimate(share, deviation, (max(0.0, share - reach), min(1.0, share + reach)))
    return estimates


def _mean(people: Population, column: int, name: str, bins: Bins) -> Estimate | None:
    found = people.marginal([name])
    middles = np.add(*bins.extremes) / 2
    counts = found.counts[: len(bins)]  # a missing cell has the last code
    total = float(counts.sum())
    if total < 1:
        return None
    mean = float(middles @ counts) / total
    part = people.release.part((column,))
    if found.deviations is None or part is None:
        return Estimate(mean)
    weights = np.zeros(len(found.counts))
    weights[: len(bins)] = (middles - mean) / total
    deviation = _deviation(weights, part, people.release.residuals[0])
    return Estimate(mean, deviation)


def _deviation(weights: NDArray[np.float64], part: Residual, count: Residual) -> float:
    """That of a weighted sum of the cells of one column: cells share the count, and residuals add up to zero."""
    whole = float(weights.sum()) / len(weights)
    own = float(weights @ weights) - len(weights) * whole**2
    return math.sqrt(max(0.0, own) * part.deviation**2 + (whole * count.deviation) ** 2)
