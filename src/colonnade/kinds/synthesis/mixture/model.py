"""A mixture over the columns of several owners: what everybody knows of it, and what follows from its parameters.

Its parameters are one array, a row for each component: the logit of its weight, then each owner's part in turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp, ndtri

from colonnade.kinds.synthesis.mixture.components import LIMIT, OwnComponents, Rows
from colonnade.kinds.synthesis.mixture.families import Bernoulli, Beta, Family, Gaussian
from colonnade.randomness import Stream

Matrix = NDArray[np.float64]
_CERTAINTY = 4.0  # of the Beta columns at the start: the sum of both shape parameters
_NARROW = 0.25  # deviation of Gaussian columns at the start
_MIDDLE, _SPREAD = 0.5, 0.5
_TYPICAL, _FACTOR = math.log(0.2), 1.0


class MixtureModel:
    """K components over the columns of several owners, who keep the same people in the same order."""

    def __init__(self, owns: Sequence[OwnComponents], components: int) -> None:
        self.owns = tuple(owns)
        self.components = components
        ends = np.cumsum([1, *(own.width for own in self.owns)])
        self.parts = tuple(slice(int(start), int(stop)) for start, stop in pairwise(ends))
        """Which columns of the parameters belong to which owner."""
        self.width = int(ends[-1])
        """How many parameters a component has, with its weight."""

    def log_joint(self, rows: Sequence[Rows], parameters: Matrix) -> Matrix:
        """Log weight plus log density of every row under every component, (n, K); ``rows`` are each owner's."""
        found = self.owns[0].log_densities(rows[0], parameters[:, self.parts[0]])
        for own, held, part in zip(self.owns[1:], rows[1:], self.parts[1:], strict=True):
            found += own.log_densities(held, parameters[:, part])
        found += log_softmax(np.clip(parameters[:, 0], -LIMIT, LIMIT))
        return found

    def log_likelihood(self, rows: Sequence[Rows], parameters: Matrix) -> NDArray[np.float64]:
        """The log density of every row."""
        return np.asarray(logsumexp(self.log_joint(rows, parameters), axis=1))

    def prior_slope(self, parameters: Matrix) -> Matrix:
        """The slope of the log prior at these parameters."""
        inside = np.clip(parameters, -LIMIT, LIMIT)
        found = gamma_slope(inside)
        for own, part in zip(self.owns, self.parts, strict=True):
            for name, family in own.families.items():
                place = slice(part.start + own.places[name].start, part.start + own.places[name].stop)
                found[:, place] = prior_slope(family, inside[:, place])
        return found

    def scales(self, parameters: Matrix) -> Matrix:
        """By what the derivatives of the owners' log densities are multiplied, and 1 for the weights."""
        parts = [own.scales(parameters[:, part]) for own, part in zip(self.owns, self.parts, strict=True)]
        return np.hstack([np.ones((len(parameters), 1)), *parts])

    def start(self, stream: Stream, spread: float = 0.5) -> Matrix:
        """Components that differ by chance around dull ones: equal weights and chances, wide numbers."""
        found = spread * normal(stream, (self.components, self.width))
        found[:, 0] = 0.0
        for own, part in zip(self.owns, self.parts, strict=True):
            for name, family in own.families.items():
                first = part.start + own.places[name].start
                if isinstance(family, Beta):
                    found[:, first : first + 2] += np.log(_CERTAINTY / 2)
                if isinstance(family, Gaussian):
                    found[:, first] = 0.5 + found[:, first] / 2
                    found[:, first + 1] = np.log(_NARROW)
        return found


def normal(stream: Stream, shape: tuple[int, ...]) -> Matrix:
    """Normal draws from a stream; whoever holds its key draws the same."""
    return np.asarray(ndtri(((stream.uint64(shape) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53))


@dataclass(frozen=True)
class Posterior:
    """Independent normals of the parameters: their means and deviations, (K, ``model.width``)."""

    mean: Matrix
    deviation: Matrix

    def draw(self, stream: Stream) -> Matrix:
        """Parameters drawn from the posterior."""
        return self.mean + self.deviation * normal(stream, self.mean.shape)


def gamma_slope(parameters: Matrix) -> Matrix:
    """The slope of the log prior of logits, and of logarithms of shape parameters.

    What is believed before any data is proper, public and the same for every component: mixing weights and the chances
    of a category are uniform over all that add up to 1 (Dirichlet with all ones), shape parameters of a Beta are
    Gamma(1, 1), the chance of a flag is uniform. All are densities of unconstrained parameters: the logarithm u of a
    Gamma(1, 1) variable has log density u - e^u, and independent Gamma(1, 1) variables divided by their sum are uniform
    over the simplex, so logits have that density too.
    """
    return 1.0 - np.exp(parameters)


def prior_slope(family: Family, parameters: Matrix) -> Matrix:
    """The slope of the log prior of one column's parameters, (K, ``family.width``)."""
    if isinstance(family, Bernoulli):
        return -np.tanh(parameters / 2)
    if isinstance(family, Gaussian):
        middle, typical = (_MIDDLE - parameters[:, :1]) / _SPREAD**2, (_TYPICAL - parameters[:, 1:]) / _FACTOR**2
        return np.hstack([middle, typical])
    return gamma_slope(parameters)
