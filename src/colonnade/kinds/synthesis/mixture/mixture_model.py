"""A mixture over the columns of several owners: what follows from its parameters, and made-up rows once it is fitted.

Its parameters are one array, a row for each component: the logit of its weight, then each owner's part in turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, log_softmax, logsumexp, ndtri, softmax

from colonnade.kinds.synthesis.mixture.components import (
    BETA_INSET,
    PARAMETER_LIMIT,
    BernoulliColumn,
    BetaColumn,
    CategoricalColumn,
    ColumnFamily,
    ComponentRows,
    GaussianColumn,
    OwnComponents,
    adjacent_spans,
)
from colonnade.randomness import Stream
from colonnade.tables.columns import Column

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
        self.parts = adjacent_spans((own.width for own in self.owns), 1)
        """Which columns of the parameters belong to which owner."""
        self.width = self.parts[-1].stop
        """How many parameters a component has, with its weight."""

    def log_joint(self, rows: Sequence[ComponentRows], parameters: Matrix) -> Matrix:
        """Log weight plus log density of every row under every component, (n, K); ``rows`` are each owner's."""
        found = self.owns[0].log_densities(rows[0], parameters[:, self.parts[0]])
        for own, held, part in zip(self.owns[1:], rows[1:], self.parts[1:], strict=True):
            found += own.log_densities(held, parameters[:, part])
        found += log_softmax(np.clip(parameters[:, 0], -PARAMETER_LIMIT, PARAMETER_LIMIT))
        return found

    def log_likelihood(self, rows: Sequence[ComponentRows], parameters: Matrix) -> NDArray[np.float64]:
        """The log density of every row."""
        return np.asarray(logsumexp(self.log_joint(rows, parameters), axis=1))

    def prior_slope(self, parameters: Matrix) -> Matrix:
        """The slope of the log prior at these parameters."""
        inside = np.clip(parameters, -PARAMETER_LIMIT, PARAMETER_LIMIT)
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
        found = spread * normal_draws(stream, (self.components, self.width))
        found[:, 0] = 0.0
        for own, part in zip(self.owns, self.parts, strict=True):
            for name, family in own.families.items():
                first = part.start + own.places[name].start
                if isinstance(family, BetaColumn):
                    found[:, first : first + 2] += np.log(_CERTAINTY / 2)
                if isinstance(family, GaussianColumn):
                    found[:, first] = 0.5 + found[:, first] / 2
                    found[:, first + 1] = np.log(_NARROW)
        return found


def normal_draws(stream: Stream, shape: tuple[int, ...]) -> Matrix:
    """Normal draws from a stream; whoever holds its key draws the same."""
    return np.asarray(ndtri(((stream.uint64(shape) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53))


@dataclass(frozen=True)
class ParameterPosterior:
    """Independent normals of the parameters: their means and deviations, (K, ``mixture_model.width``)."""

    mean: Matrix
    deviation: Matrix


def gamma_slope(parameters: Matrix) -> Matrix:
    """The slope of the log prior of logits, and of logarithms of shape parameters.

    What is believed before any data is proper, public and the same for every component: mixing weights and the chances
    of a category are uniform over all that add up to 1 (Dirichlet with all ones), shape parameters of a Beta are
    Gamma(1, 1), the chance of a flag is uniform. All are densities of unconstrained parameters: the logarithm u of a
    Gamma(1, 1) variable has log density u - e^u, and independent Gamma(1, 1) variables divided by their sum are uniform
    over the simplex, so logits have that density too.
    """
    return 1.0 - np.exp(parameters)


def prior_slope(family: ColumnFamily, parameters: Matrix) -> Matrix:
    """The slope of the log prior of one column's parameters, (K, ``family.width``)."""
    if isinstance(family, BernoulliColumn):
        return -np.tanh(parameters / 2)
    if isinstance(family, GaussianColumn):
        middle, typical = (_MIDDLE - parameters[:, :1]) / _SPREAD**2, (_TYPICAL - parameters[:, 1:]) / _FACTOR**2
        return np.hstack([middle, typical])
    return gamma_slope(parameters)


Codes = NDArray[np.int64]


@dataclass(frozen=True)
class FittedMixture:
    """A mixture with what is known of its parameters; rows are given and made as the owners' encoders leave them."""

    owners: tuple[str, ...]
    model: MixtureModel
    posterior: ParameterPosterior

    def log_likelihood(self, rows: Mapping[str, Matrix]) -> NDArray[np.float64]:
        """The log density of every person at the mean of the posterior; ``rows`` are each owner's encoded rows."""
        return self.model.log_likelihood([rows[owner] for owner in self.owners], self.posterior.mean)

    def sample(self, rows: int, stream: Stream) -> dict[str, Matrix]:
        """Made-up people at the mean of the posterior: encoded rows by owner, the same people in the same order.

        Components get their shares of the rows up to one row. Nobody has a missing cell.
        """
        members = _assign_components(softmax(self.posterior.mean[:, 0]), rows, stream)
        found = {}
        for owner, own, part in zip(self.owners, self.model.owns, self.model.parts, strict=True):
            found[owner] = _sample_rows(own, self.posterior.mean[:, part], members, stream)
        return found

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """What to save beside the model's description."""
        return {"mean": self.posterior.mean, "deviation": self.posterior.deviation}


def _assign_components(weights: NDArray[np.float64], rows: int, stream: Stream) -> Codes:
    """A component for every row: shares of the rows up to one row, in an order that says nothing."""
    marks = (np.arange(rows) + uniform_draws(stream, 1)) / max(1, rows)
    codes = np.minimum(np.searchsorted(np.cumsum(weights), marks, side="right"), len(weights) - 1)
    return np.asarray(codes[np.argsort(stream.uint64(rows), kind="stable")], dtype=np.int64)


def _sample_rows(own: OwnComponents, parameters: Matrix, members: Codes, stream: Stream) -> Matrix:
    found = np.zeros((len(members), own.schema.encoded_width))
    inside = np.clip(parameters, -PARAMETER_LIMIT, PARAMETER_LIMIT)
    for name, family in own.families.items():
        chosen, column = inside[:, own.places[name]][members], own.schema.columns[name]
        _sample_column(found[:, own.schema.encoded_slices[name]], chosen, column, family, stream)
    return found


def _sample_column(out: Matrix, parameters: Matrix, column: Column, family: ColumnFamily, stream: Stream) -> None:
    chance = uniform_draws(stream, len(out))
    if isinstance(family, BernoulliColumn):
        out[:, 0] = chance < 1 / (1 + np.exp(-parameters[:, 0]))
        return
    if isinstance(family, CategoricalColumn):
        ends = np.cumsum(softmax(parameters, axis=1), axis=1)
        codes = np.minimum((ends <= chance[:, None]).sum(axis=1), family.width - 1)
        if column.quantity is None:
            out[np.arange(len(out)), codes] = 1.0
            return
        place = (codes + uniform_draws(stream, len(out))) / family.width
    elif isinstance(family, BetaColumn):
        shapes = np.exp(parameters)
        place = np.clip((betaincinv(shapes[:, 0], shapes[:, 1], chance) - BETA_INSET) / (1 - 2 * BETA_INSET), 0.0, 1.0)
    else:
        spot = parameters[:, 0] + np.exp(np.clip(parameters[:, 1], -PARAMETER_LIMIT / 2, PARAMETER_LIMIT / 2)) * ndtri(
            chance
        )
        cell = np.clip(np.floor(spot * family.cells), 0, family.cells - 1)
        place = (cell + uniform_draws(stream, len(out))) / family.cells
    out[:, 0] = column.quantity.from_share(place) if column.quantity else place


def uniform_draws(stream: Stream, count: int) -> NDArray[np.float64]:
    """Numbers above 0 and below 1."""
    return ((stream.uint64(count) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
