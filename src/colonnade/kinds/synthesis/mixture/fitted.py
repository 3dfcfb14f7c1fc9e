"""A fitted mixture: made-up rows from it, and how likely it finds real ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri, softmax

from colonnade.kinds.synthesis.mixture.components import LIMIT, OwnComponents
from colonnade.kinds.synthesis.mixture.families import INSIDE, Bernoulli, Beta, Categorical, Family
from colonnade.kinds.synthesis.mixture.model import Matrix, MixtureModel, Posterior
from colonnade.randomness import Stream
from colonnade.tables.columns import Column

Codes = NDArray[np.int64]


@dataclass(frozen=True)
class FittedMixture:
    """A mixture with what is known of its parameters; rows are given and made as the owners' encoders leave them."""

    owners: tuple[str, ...]
    model: MixtureModel
    posterior: Posterior

    def log_likelihood(self, rows: Mapping[str, Matrix]) -> NDArray[np.float64]:
        """The log density of every person at the mean of the posterior; ``rows`` are each owner's encoded rows."""
        return self.model.log_likelihood([rows[owner] for owner in self.owners], self.posterior.mean)

    def sample(self, rows: int, stream: Stream) -> dict[str, Matrix]:
        """Made-up people at the mean of the posterior: encoded rows by owner, the same people in the same order.

        Components get their shares of the rows up to one row. Nobody has a missing cell.
        """
        members = _members(softmax(self.posterior.mean[:, 0]), rows, stream)
        found = {}
        for owner, own, part in zip(self.owners, self.model.owns, self.model.parts, strict=True):
            found[owner] = _drawn_rows(own, self.posterior.mean[:, part], members, stream)
        return found

    def drawn(self, stream: Stream) -> FittedMixture:
        """The same mixture at parameters drawn from the posterior, for several tables that differ by what is unknown.

        The posterior does not know of the noise, so it is narrower than what is unknown.
        """
        mean = np.clip(self.posterior.draw(stream), -LIMIT, LIMIT)
        return FittedMixture(self.owners, self.model, Posterior(mean, np.zeros_like(mean)))

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """What to save beside the model's description."""
        return {"mean": self.posterior.mean, "deviation": self.posterior.deviation}

    @classmethod
    def from_arrays(
        cls, owners: Sequence[str], model: MixtureModel, arrays: Mapping[str, NDArray[np.float64]]
    ) -> FittedMixture:
        """The mixture whose :meth:`arrays` these are."""
        return cls(tuple(owners), model, Posterior(arrays["mean"], arrays["deviation"]))


def _members(weights: NDArray[np.float64], rows: int, stream: Stream) -> Codes:
    """A component for every row: shares of the rows up to one row, in an order that says nothing."""
    marks = (np.arange(rows) + uniform(stream, 1)) / max(1, rows)
    codes = np.minimum(np.searchsorted(np.cumsum(weights), marks, side="right"), len(weights) - 1)
    return np.asarray(codes[np.argsort(stream.uint64(rows), kind="stable")], dtype=np.int64)


def _drawn_rows(own: OwnComponents, parameters: Matrix, members: Codes, stream: Stream) -> Matrix:
    found = np.zeros((len(members), own.schema.encoded_width))
    inside = np.clip(parameters, -LIMIT, LIMIT)
    for name, family in own.families.items():
        chosen, column = inside[:, own.places[name]][members], own.schema.columns[name]
        _draw(found[:, own.schema.encoded_slices[name]], chosen, column, family, stream)
    return found


def _draw(out: Matrix, parameters: Matrix, column: Column, family: Family, stream: Stream) -> None:
    chance = uniform(stream, len(out))
    if isinstance(family, Bernoulli):
        out[:, 0] = chance < 1 / (1 + np.exp(-parameters[:, 0]))
        return
    if isinstance(family, Categorical):
        ends = np.cumsum(softmax(parameters, axis=1), axis=1)
        codes = np.minimum((ends <= chance[:, None]).sum(axis=1), family.size - 1)
        if column.quantity is None:
            out[np.arange(len(out)), codes] = 1.0
            return
        place = (codes + uniform(stream, len(out))) / family.size
    elif isinstance(family, Beta):
        shapes = np.exp(parameters)
        place = np.clip((betaincinv(shapes[:, 0], shapes[:, 1], chance) - INSIDE) / (1 - 2 * INSIDE), 0.0, 1.0)
    else:
        spot = parameters[:, 0] + np.exp(np.clip(parameters[:, 1], -LIMIT / 2, LIMIT / 2)) * ndtri(chance)
        cell = np.clip(np.floor(spot * family.cells), 0, family.cells - 1)
        place = (cell + uniform(stream, len(out))) / family.cells
    out[:, 0] = column.quantity.from_share(place) if column.quantity else place


def uniform(stream: Stream, count: int) -> NDArray[np.float64]:
    """Numbers above 0 and below 1."""
    return ((stream.uint64(count) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
