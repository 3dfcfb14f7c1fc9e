"""How far noise turned principal components, and which of them it leaves apart (docs/theory/error-bars-components.md).

All of it follows from what was published and from the size of the noise, so it costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.pca.subspace_iteration import NoisyProducts
from colonnade.models.estimates import NORMAL_95
from colonnade.protocols.moments.task import NoisyMoments

Matrix = NDArray[np.float64]

_APART = 5.0
"""Two variances are apart if they differ by more than so many deviations of noise; equal ones do so by chance in 2 of
1,000 cases, since noise parts them by more than x deviations with a chance of exp(-x^2 / 4)."""
_MOST_UNSEEN = 0.25
"""So much may a component turn towards directions that were never asked for, as the square of a tangent."""


@dataclass(frozen=True)
class EntryNoise:
    """The noise on an entry of the diagonal of X'X / n (elsewhere it is smaller by the root of 2), and on the count."""

    entry: float
    count: float

    @classmethod
    def of(cls, result: NoisyMoments | NoisyProducts) -> EntryNoise:
        """That of a release, and no less than that of rounding to the grid."""
        rounding = max(0.0, result.largest) / float(result.task.gamma) ** 2
        entry, counted = math.hypot(result.entry_deviation, math.sqrt(rounding)), float(result.sum_deviations[-1])
        return cls(entry / result.count, counted / (result.constant**2 * result.count))


@dataclass(frozen=True)
class ComponentErrors:
    """What noise leaves unknown of each kept component.

    ``first`` and ``last`` are the components that it cannot be told apart from. ``angles`` are degrees between a
    component and the one that the same computation would give without noise: in 95 of 100 runs they are smaller. For
    components that cannot be told apart they are 90.
    """

    deviations: Matrix
    low: Matrix
    high: Matrix
    variances: Matrix
    variances_low: Matrix
    variances_high: Matrix
    first: list[int]
    last: list[int]
    angles: Matrix


@dataclass(frozen=True)
class _Spectrum:
    """All variances, the largest first, with their directions as columns, of which the first are the components.

    ``shifts`` are what each direction has of the constant, if means are subtracted. ``unseen`` is the squared length
    that each column has outside of all directions.
    """

    values: Matrix
    vectors: Matrix
    shifts: Matrix
    unseen: Matrix


def component_errors(
    result: NoisyMoments | NoisyProducts,
    spectrum: tuple[Matrix, Matrix],
    components: Matrix,
    variances: Matrix,
    *,
    center: bool,
) -> ComponentErrors:
    """The errors of components and of their variances, as a model found them in what was published.

    ``spectrum`` are all variances that were released, in rising order, and their directions as columns.
    """
    values, vectors = spectrum[0][::-1].copy(), spectrum[1][:, ::-1].copy()
    unseen = np.zeros(len(vectors))
    if vectors.shape[1] < len(vectors):
        unseen = np.maximum(0.0, 1 - (vectors**2).sum(axis=1))
    count = len(components)
    values[:count], vectors[:, :count] = np.where(variances > 0, variances, values[:count]), components.T
    # Around the means a direction v is (v, -v'mean / constant) in the released matrix, whose last column is constant.
    shifts = -(result.means @ vectors) / result.constant if center else np.zeros(len(values))
    return _errors(_Spectrum(values, vectors, shifts, unseen), EntryNoise.of(result), count)


def mean_deviations(result: NoisyMoments | NoisyProducts) -> Matrix:
    """The deviation of each mean: a noisy sum, divided by a noisy count."""
    summed = result.sum_deviations[:-1]
    found: Matrix = np.hypot(summed / (result.constant * result.count), result.means * EntryNoise.of(result).count)
    return found


def _errors(all_: _Spectrum, noise: EntryNoise, count: int) -> ComponentErrors:
    groups = _together(all_, noise)[:count]
    found = [_error(all_, noise, i, *group) for i, group in enumerate(groups)]
    deviations, low, high = (np.array(each) for each in zip(*(one[0] for one in found), strict=True))
    variances, middles, angles = np.array([one[1] for one in found]).T
    reach = NORMAL_95 * variances
    ends = np.maximum(middles - reach, 0.0), np.maximum(middles + reach, 0.0)
    first, last = [one[0] for one in groups], [one[1] - 1 for one in groups]
    return ComponentErrors(deviations, low, high, variances, *ends, first, last, angles)


def _error(
    all_: _Spectrum, noise: EntryNoise, i: int, first: int, end: int
) -> tuple[tuple[Matrix, Matrix, Matrix], tuple[float, float, float]]:
    """Deviation and ends of the interval of each loading; then of the variance, its middle, and the angle."""
    width, alone = len(all_.values), end - first == 1
    outside = np.r_[0:first, end:width]
    gaps = all_.values[i] - all_.values[outside]
    shift, others = all_.shifts[i], all_.shifts[outside]
    length = 1 + shift**2
    # u'Nw has half the variance of the diagonal, times |u|^2 |w|^2 + (u'w)^2, for vectors u and w of any length.
    crossed = (length * (1 + others**2) + (shift * others) ** 2) / 2 * noise.entry**2
    within = end == width  # a group that reaches the end has what was never asked for in it
    towards_unseen = np.zeros(len(all_.unseen)) if within else (noise.entry / all_.values[i]) ** 2 * all_.unseen
    turned = float(np.sum(crossed / gaps**2) + towards_unseen.sum())
    cosine = 1 / np.sqrt(1 + turned)
    beside = all_.vectors[:, outside] / gaps
    shared = beside @ others
    squares = length * ((beside**2).sum(axis=1) + shared**2) + (shift * shared) ** 2
    spread = cosine * np.sqrt(squares / 2 * noise.entry**2 + length * towards_unseen)
    middle, reach = cosine * all_.vectors[:, i], NORMAL_95 * spread
    # The count divides every variance; and where components turned, noise has made the leading variance larger.
    own = np.hypot(noise.entry * length / cosine, (shift**2 - all_.values[i]) * noise.count)
    level = all_.values[i] - float(np.sum(crossed / gaps))
    uncertain = 2 * float(np.sum(crossed**2 / gaps**4) + np.sum(towards_unseen**2))
    angle = float(np.degrees(np.arctan(np.sqrt(turned + NORMAL_95 * np.sqrt(uncertain)))))
    if not alone:
        # Any direction within the group may be the one: a loading is at most what the group has of the column.
        held = np.sqrt(np.minimum(1.0, (all_.vectors[:, first:end] ** 2).sum(axis=1) + within * all_.unseen))
        middle, reach = np.zeros_like(middle), held + reach
        spread, angle = np.hypot(held / np.sqrt(end - first), spread), 90.0
        # Variances in their order move by no more than the largest eigenvalue of the noise (Weyl).
        edge = np.sqrt(2 * len(all_.unseen)) * (1 + float(all_.shifts @ all_.shifts)) + 2
        own = min(own + float(all_.values[first] - all_.values[end - 1]) / 2, edge * noise.entry / NORMAL_95)
        level = float(all_.values[i])
    ends = np.maximum(middle - reach, -1.0), np.minimum(middle + reach, 1.0)
    return (spread, *ends), (float(own), level, angle)


def _together(all_: _Spectrum, noise: EntryNoise) -> list[tuple[int, int]]:
    """For each component, where those begin and end that follow each other so closely that noise may bridge them."""
    values, unseen = all_.values, float(all_.unseen.sum())
    # What was never asked for counts as zero: a variance that noise may have made from it is among the last.
    lost = int(np.sum(values**2 * _MOST_UNSEEN > noise.entry**2 * unseen)) if unseen else len(values)
    apart = np.flatnonzero(values[:-1] - values[1:] > _APART * noise.entry) + 1
    return list(_spans([0, *(cut for cut in apart.tolist() if cut <= lost), len(values)]))


def _spans(cuts: list[int]) -> Iterator[tuple[int, int]]:
    for first, end in pairwise(cuts):
        yield from [(first, end)] * (end - first)


def not_apart(first: int, last: int, kept: int) -> str:
    """A sentence about components, counted from 1, of which the first ``kept`` were kept."""
    if last > kept:
        if first == kept:
            return f"component {kept} cannot be told apart from later ones, which were not kept"
        return f"components {_span(first, kept)} cannot be told apart from each other and from later ones"
    return f"components {_span(first, last)} cannot be told apart: any mixture of them fits as well"


def _span(first: int, last: int) -> str:
    return f"{first} and {last}" if last == first + 1 else f"{first} to {last}"
