"""Where a mixture may begin: at a mixture of products over coded columns, such as one fitted to noisy marginals.

The fit is public, and so is all that follows from it. Its components are merged to as many as the mixture has, so that
little likelihood is lost, and each column's chances become the parameters of its family.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.mixture.components import LIMIT
from colonnade.kinds.synthesis.mixture.expectation import from_moments
from colonnade.kinds.synthesis.mixture.families import Bernoulli, Categorical, Family
from colonnade.kinds.synthesis.mixture.model import Matrix, MixtureModel
from colonnade.tables.columns import Column

_LEAST = 1e-4  # the least chance of a code: a fit may say never, from where no step leads back
_MERGES = 50


class Coded(Protocol):
    """What is asked of the coding of a column."""

    @property
    def edges(self) -> tuple[float, ...] | None:
        """The edges of a number's bins in its own units."""

    @property
    def missing(self) -> int | None:
        """The code of a missing cell, where there is one."""


def start_from(
    model: MixtureModel, weights: NDArray[np.float64], tables: Sequence[Matrix], codings: Sequence[Coded]
) -> Matrix:
    """The parameters of a mixture that is close to a mixture of products.

    ``tables`` has an array (components, codes) for each column of every owner in turn, ``codings`` says what the codes
    mean. The fit must have at least as many components as the mixture.
    """
    weights, tables = merged(weights, tables, model.components)
    found = np.empty((model.components, model.width))
    found[:, 0] = np.log(np.maximum(weights * model.components, _LEAST))
    columns = iter(zip(tables, codings, strict=True))
    for own, part in zip(model.owns, model.parts, strict=True):
        for name, family in own.families.items():
            table, coded = next(columns)
            place = slice(part.start + own.places[name].start, part.start + own.places[name].stop)
            found[:, place] = _parameters(_present(table, coded), own.schema.columns[name], family, coded)
    return np.clip(found, -LIMIT, LIMIT)


def merged(
    weights: NDArray[np.float64], tables: Sequence[Matrix], components: int
) -> tuple[NDArray[np.float64], list[Matrix]]:
    """Components merged to fewer: each joins the one under whose chances people drawn from it are most likely."""
    if len(weights) < components:
        raise StudyError(
            f"a fit of {len(weights)} components cannot start a mixture of {components}; ask for "
            "at most as many [ST503]"
        )
    joined = np.hstack(tables)
    ends = np.cumsum([0, *(table.shape[1] for table in tables)])
    chosen = _far_apart(weights, joined, components)
    centres = joined[chosen]
    for _ in range(_MERGES):
        nearest = _likely(joined, centres).argmax(axis=1)
        nearest[chosen] = np.arange(components)  # so that none is left without a member
        members = (nearest == np.arange(components)[:, None]) * np.maximum(weights, 1e-12)
        moved = members @ joined / members.sum(axis=1, keepdims=True)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return members.sum(axis=1), [centres[:, start:stop] for start, stop in pairwise(ends)]


def _likely(joined: Matrix, centres: Matrix) -> Matrix:
    """The mean log likelihood of people of each component under each centre."""
    return np.asarray(joined @ np.log(np.maximum(centres, _LEAST)).T)


def _far_apart(weights: NDArray[np.float64], joined: Matrix, count: int) -> NDArray[np.int64]:
    """Components to begin with: the heaviest, then always the one that is worst described by those chosen."""
    own = np.einsum("kd,kd->k", joined, np.log(np.maximum(joined, _LEAST)))
    chosen = [int(np.argmax(weights))]
    lost = own - _likely(joined, joined[chosen])[:, 0]
    while len(chosen) < count:
        worth = weights * np.maximum(lost, 0.0) + 1e-12 * weights
        worth[chosen] = -1.0
        chosen.append(int(np.argmax(worth)))
        lost = np.minimum(lost, own - _likely(joined, joined[chosen[-1:]])[:, 0])
    return np.array(chosen, dtype=np.int64)


def _present(table: Matrix, coded: Coded) -> Matrix:
    """Chances of the codes that stand for values."""
    kept = table if coded.missing is None else np.delete(table, coded.missing, axis=1)
    kept = np.maximum(kept, _LEAST)
    return np.asarray(kept / kept.sum(axis=1, keepdims=True))


def _parameters(chances: Matrix, column: Column, family: Family, coded: Coded) -> Matrix:
    if isinstance(family, Bernoulli):
        return np.asarray(np.log(chances[:, 1:] / chances[:, :1]))
    if column.quantity is None:
        return np.asarray(np.log(chances * chances.shape[1]))
    edges = column.quantity.share_of(np.array(coded.edges))
    if isinstance(family, Categorical):
        ours = np.linspace(0, 1, family.size + 1)
        overlap = np.minimum(ours[1:, None], edges[1:]) - np.maximum(ours[:-1, None], edges[:-1])
        part = np.maximum(overlap, 0.0) / np.maximum(np.diff(edges), 1e-12)
        binned = np.maximum(chances @ part.T, _LEAST / family.size)
        return np.asarray(np.log(binned * family.size))
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    mean = np.clip(chances @ middles, 0.02, 0.98)
    return from_moments(mean, chances @ (middles**2 + widths**2 / 12) - mean**2, family)
