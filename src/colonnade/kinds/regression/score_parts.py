"""What published second moments tell about parts of scores: their spread, and how they follow others' columns.

Whoever receives scores of new people starts from it. It is computed from published numbers alone, so it costs no
privacy; with little budget it is rough, and a variance is put higher by two deviations that noise gives it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.kinds.regression.least_squares import (
    Matrix,
    Vector,
    LeastSquaresProblem,
    MomentReading,
    MomentRelease,
    least_squares_problem,
    operator_norm,
    solve,
)
from colonnade.models.design import owner_of
from colonnade.models.serialization import read_array, read_number, read_size

_MOST_PARTIES = 8  # each needs a map for every other one


@dataclass(frozen=True)
class PartForecast:
    """One party's part of a score, as another party's encoded columns foretell it: a linear map, and what it misses."""

    weights: Vector
    offset: float
    variance: float

    def of(self, rows: Matrix) -> Vector:
        """The expectation for each of these encoded rows."""
        found: Vector = rows @ self.weights + self.offset
        return found


@dataclass(frozen=True)
class PartLaw:
    """The mean and the variance of one party's part of a score, and what it foretells of the parts of others."""

    mean: float
    variance: float
    foretells: Mapping[str, PartForecast]


def part_laws(
    published: MomentRelease, reading: MomentReading, weights: Matrix, parties: Sequence[str]
) -> dict[str, PartLaw] | None:
    """The law of every party's part, for one row of weights; ``None`` for several classes or many parties."""
    if len(weights) != 1 or len(parties) > _MOST_PARTIES:
        return None
    places: dict[str, list[int]] = {}
    for index, name in enumerate(reading.features):
        places.setdefault(str(owner_of(name, parties)[0]), []).append(index)
    place = {name: index for index, name in enumerate(published.names)}
    order = [*(place[name] for name in reading.features), -1]
    matrix, deviations = (each[np.ix_(order, order)] for each in (published.matrix, published.deviations))
    given = least_squares_problem(matrix, deviations, published.constant, np.empty(0, dtype=np.intp))
    parts = {party: _Part(given, deviations[:-1, :-1], weights[0], reading.middles, at) for party, at in places.items()}
    return {
        party: PartLaw(own.mean, own.variance, own.foretell({name: parts[name] for name in parts if name != party}))
        for party, own in parts.items()
    }


class _Part:
    """One party's part of a score in the noisy moments."""

    def __init__(
        self, given: LeastSquaresProblem, deviations: Matrix, weights: Vector, middles: Vector, at: list[int]
    ) -> None:
        self.given, self.deviations, self.at, self.weights = given, deviations, at, weights[at]
        self.middles = middles[at]
        self.mean = float(self.weights @ (given.feature_means[at] + self.middles))
        inside = np.ix_(at, at)
        spread = float(self.weights @ given.gram[inside] @ self.weights) / given.rows
        squares = np.square(self.weights)
        blur = float(np.sqrt(squares @ np.square(deviations[inside]) @ squares)) / given.rows
        # Weights are large where noise made moments small, so the spread they see is too small by about this much.
        self.variance = max(spread, 0.0) + 2 * blur

    def foretell(self, others: Mapping[str, _Part]) -> dict[str, PartForecast]:
        """Least squares of the others' parts on this party's columns, with a ridge as large as the noise."""
        if not others:
            return {}
        gram, at = self.given.gram, self.at
        cross = [gram[np.ix_(at, other.at)] @ other.weights for other in others.values()]
        blurs = [
            np.sqrt(np.square(self.deviations[np.ix_(at, other.at)]) @ np.square(other.weights))
            for other in others.values()
        ]
        found = solve(
            LeastSquaresProblem(
                gram=gram[np.ix_(at, at)],
                cross=np.stack(cross, axis=1),
                rows=self.given.rows,
                feature_means=self.given.feature_means[at],
                label_means=np.array([other.mean for other in others.values()]),
                noise=operator_norm(self.deviations[np.ix_(at, at)]),
                cross_deviations=np.stack(blurs, axis=1),
            )
        )
        # A map that noise alone could have made explains nothing: then the mean is all that is foretold.
        explained = 2 * found.agreements - np.square(found.spreads)
        laws = {}
        for index, (name, other) in enumerate(others.items()):
            helps = 0 < explained[index] < other.variance
            slopes = found.weights[index] if helps else np.zeros(len(at))
            offset = other.mean - float(slopes @ (self.given.feature_means[at] + self.middles))
            laws[name] = PartForecast(slopes, offset, other.variance - (float(explained[index]) if helps else 0.0))
        return laws


def read_laws(values: Mapping[str, Any]) -> dict[str, PartLaw]:
    """The laws from plain values."""
    return {
        party: PartLaw(
            read_number(law["mean"]),
            read_size(law["variance"]),
            {
                name: PartForecast(
                    read_array(each["weights"]), read_number(each["offset"]), read_size(each["variance"])
                )
                for name, each in law["foretells"].items()
            },
        )
        for party, law in values.items()
    }
