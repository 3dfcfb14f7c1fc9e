"""The components of a mixture, as far as they are about one owner's columns (docs/theory/mixture-model.md).

Within a component the columns are independent, so an owner needs nobody to compute the log density of its part of a row
and how that changes with the parameters. A cell that is missing is left out of the product: its log density is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, digamma, log_ndtr, zeta

from colonnade.kinds.synthesis.mixture.cells import Cells, Matrix, read_cells, statistics_width
from colonnade.kinds.synthesis.mixture.families import Bernoulli, Beta, Categorical, Gaussian, families_of
from colonnade.tables.schema import Schema

Rows: TypeAlias = Matrix | Cells
"""Encoded rows, or what was read from them before."""
LIMIT = 12.0
"""Parameters are used as if they were within these limits, so that no noise leads beyond what floats hold."""
_HALF_LOG_TAU = 0.5 * np.log(2 * np.pi)


@dataclass(frozen=True)
class _Shape:
    """The exponential families at some parameters: log densities are ``T @ natural.T - partition``."""

    natural: Matrix
    partition: Matrix
    mean: Matrix
    slope: Matrix
    """How the natural parameters change with the unconstrained ones, times the scale."""
    scale: Matrix


@dataclass(frozen=True)
class Linear:
    """How the derivatives of one owner's log densities follow from statistics t of a row, for every component.

    Number j is ``slope[k, j] t[j] - offset[k, j] t[against[j]]``. The statistics from number ``len(against)`` on are
    zeros and ones: whether a cell is there, or a constant.
    """

    slope: Matrix
    offset: Matrix
    against: NDArray[np.int64]


class OwnComponents:
    """One owner's columns under K components; parameters are arrays (K, ``width``), a row for each component.

    ``families`` chooses by which distribution a column is described; see :func:`families.families_of`.
    """

    def __init__(self, schema: Schema, families: Mapping[str, str] | None = None) -> None:
        self.schema = schema
        self.families = families_of(schema, families)
        self.places: dict[str, slice] = {}
        """Which parameters belong to which column."""
        start = 0
        for name, family in self.families.items():
            self.places[name] = slice(start, start + family.width)
            start += family.width
        self.width = start
        """How many parameters a component has for these columns."""
        self._last: tuple[Matrix, _Shape] | None = None
        self._sort()

    def _sort(self) -> None:
        """Which parameters, statistics and columns belong to which kind of family."""
        linear: list[int] = []
        kinds: dict[type, list[tuple[int, int]]] = {Categorical: [], Beta: [], Bernoulli: [], Gaussian: []}
        for column, (name, family) in enumerate(self.families.items()):
            kinds[type(family)].append((column, len(linear)))
            if statistics_width(family):
                linear += range(self.places[name].start, self.places[name].stop)
        self._linear = np.array(linear, dtype=np.int64)
        sizes = [family.width for family in self.families.values() if isinstance(family, Categorical)]
        firsts = [first for _, first in kinds[Categorical]]
        spans = [np.arange(first, first + size) for first, size in zip(firsts, sizes, strict=True)]
        self._categorical = np.concatenate([np.empty(0, np.int64), *spans])
        self._sizes = np.array(sizes, dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)[: len(sizes)]
        self._columns = {kind: np.array([column for column, _ in found], np.int64) for kind, found in kinds.items()}
        self._first = {kind: np.array([first for _, first in found], np.int64) for kind, found in kinds.items()}
        names = list(self.families)
        self._gaussian = np.array([self.places[names[column]].start for column in self._columns[Gaussian]], np.int64)
        self._of_column = np.repeat(np.arange(len(names)), [statistics_width(f) for f in self.families.values()])

    def read(self, rows: Rows) -> Cells:
        """What the components look at in encoded rows; worth keeping where the same rows are used again."""
        if isinstance(rows, Cells):
            return rows
        places = self.schema.encoded_slices
        return read_cells([(rows[:, places[n]], column, self.families[n]) for n, column in self.schema.columns.items()])

    def log_densities(self, rows: Rows, parameters: Matrix) -> Matrix:
        """The log density of every row under every component, (n, K)."""
        cells, shape = self.read(rows), self._shape(parameters)
        found = cells.statistics @ shape.natural.T + cells.base[:, None]
        if cells.present is None:
            found -= shape.partition.sum(axis=1)
        else:
            found -= cells.present @ shape.partition.T
        if len(self._gaussian):
            logs, _ = self._normal(cells, parameters)
            found += logs.sum(axis=2)
        return found

    def derivatives(self, rows: Rows, parameters: Matrix) -> NDArray[np.float64]:
        """The derivatives of the log densities with respect to the component's own parameters, (n, K, ``width``).

        They are multiplied by :meth:`scales`, so that none is longer than others only because of how it is measured.
        """
        cells, shape = self.read(rows), self._shape(parameters)
        if cells.present is None:
            centred = cells.statistics[:, None, :] - shape.mean
        else:
            centred = cells.statistics[:, None, :] - cells.present[:, self._of_column][:, None, :] * shape.mean
        centred *= shape.slope
        if not len(self._gaussian):
            return centred
        found = np.empty((len(cells), len(parameters), self.width))
        found[:, :, self._linear] = centred
        _, slopes = self._normal(cells, parameters)
        found[:, :, self._gaussian], found[:, :, self._gaussian + 1] = slopes
        return found

    @property
    def linear(self) -> bool:
        """Whether all derivatives are linear in statistics of the rows: not so of Gaussian columns."""
        return not len(self._gaussian)

    def linear_statistics(self, rows: Rows) -> Matrix:
        """The statistics, (n, ``width``), and for each column whether the cell is there."""
        cells = self.read(rows)
        there = np.ones((len(cells), len(self.families))) if cells.present is None else cells.present
        return np.hstack([cells.statistics, there])

    def linear_slopes(self, parameters: Matrix) -> Linear:
        """By what the statistics are multiplied, (K, ``width``); subtracted is an offset where the cell is there."""
        shape = self._shape(parameters)
        return Linear(shape.slope, shape.slope * shape.mean, self.width + self._of_column)

    def scales(self, parameters: Matrix) -> Matrix:
        """By what derivatives are multiplied, (K, ``width``): 1, or less where a parameter is known sharply.

        A narrow density changes fast with its parameters, and one such column would use up the clip of all. Expected
        squares of scaled derivatives are at most 1. The scales are public, as the parameters are.
        """
        found = np.ones((len(parameters), self.width))
        found[:, self._linear] = self._shape(parameters).scale
        if len(self._gaussian):
            found[:, self._gaussian] = np.minimum(1.0, _deviation(parameters[:, self._gaussian + 1]))
            found[:, self._gaussian + 1] = np.sqrt(0.5)
        return found

    def square_norms(self, rows: Rows, parameters: Matrix) -> Matrix:
        """The squared norms of the derivatives, (n, K), without making their array."""
        cells, shape = self.read(rows), self._shape(parameters)
        squares = shape.slope**2
        constant = squares * shape.mean**2
        found = (cells.statistics**2) @ squares.T - 2 * cells.statistics @ (squares * shape.mean).T
        found += constant.sum(axis=1) if cells.present is None else cells.present[:, self._of_column] @ constant.T
        if len(self._gaussian):
            found += sum((slope**2).sum(axis=2) for slope in self._normal(cells, parameters)[1])
        return np.maximum(found, 0.0)

    def weighted_sums(self, rows: Rows, weights: Matrix, parameters: Matrix) -> Matrix:
        """The sum over rows of ``weights`` (n, K) times the derivatives, (K, ``width``), as two matrix products."""
        cells, shape = self.read(rows), self._shape(parameters)
        found = np.empty((len(parameters), self.width))
        if cells.present is None:
            counts = weights.sum(axis=0)[:, None]
        else:
            counts = weights.T @ cells.present[:, self._of_column]
        found[:, self._linear] = shape.slope * (weights.T @ cells.statistics - counts * shape.mean)
        if len(self._gaussian):
            for part, slope in enumerate(self._normal(cells, parameters)[1]):
                found[:, self._gaussian + part] = np.einsum("nk,nkg->kg", weights, slope)
        return found

    def _shape(self, parameters: Matrix) -> _Shape:
        """The exponential families at these parameters; kept, because a round asks for it several times."""
        last = self._last  # read once: participants that are threads may share these components
        if last is None or not np.array_equal(last[0], parameters):
            last = self._last = parameters.copy(), self._computed_shape(parameters)
        return last[1]

    def _computed_shape(self, parameters: Matrix) -> _Shape:
        chosen = np.clip(parameters[:, self._linear], -LIMIT, LIMIT)
        natural, slope, scale = chosen.copy(), np.ones_like(chosen), np.ones_like(chosen)
        mean, partition = np.empty_like(chosen), np.zeros((len(parameters), len(self.families)))
        if len(self._sizes):
            logits = chosen[:, self._categorical]
            highest = np.maximum.reduceat(logits, self._starts, axis=1)
            weights = np.exp(logits - np.repeat(highest, self._sizes, axis=1))
            totals = np.add.reduceat(weights, self._starts, axis=1)
            mean[:, self._categorical] = weights / np.repeat(totals, self._sizes, axis=1)
            partition[:, self._columns[Categorical]] = highest + np.log(totals)
        first = self._first[Beta]
        if len(first):
            left, right = np.exp(chosen[:, first]), np.exp(chosen[:, first + 1])
            partition[:, self._columns[Beta]] = betaln(left, right)
            common, both = digamma(left + right), zeta(2, left + right)  # zeta(2, x) is the derivative of digamma
            for place, found in ((first, left), (first + 1, right)):
                natural[:, place] = found
                mean[:, place] = digamma(found) - common
                information = found**2 * (zeta(2, found) - both)
                scale[:, place] = 1 / np.sqrt(np.maximum(information, 1.0))
                slope[:, place] = found * scale[:, place]
        first = self._first[Bernoulli]
        if len(first):
            mean[:, first] = 1 / (1 + np.exp(-chosen[:, first]))
            partition[:, self._columns[Bernoulli]] = np.logaddexp(0.0, chosen[:, first])
        return _Shape(natural, partition, mean, slope, scale)

    def _normal(self, cells: Cells, parameters: Matrix) -> tuple[NDArray[np.float64], tuple[NDArray[np.float64], ...]]:
        """Log masses of cells (n, K, Gaussian columns), and their scaled derivatives by mean and log deviation."""
        middle = np.clip(parameters[:, self._gaussian], -LIMIT, LIMIT)
        deviation = _deviation(parameters[:, self._gaussian + 1])
        low, high = ((ends[:, None, :] - middle) / deviation for ends in (cells.lower, cells.upper))
        flipped = low > 0  # in the upper tail the masses of both ends are nearly 1; below zero they keep their digits
        near, far = np.where(flipped, -low, high), np.where(flipped, -high, low)
        top = log_ndtr(near)
        logs = top + np.log(-np.expm1(log_ndtr(far) - top))
        heights = [np.exp(-0.5 * z**2 - _HALF_LOG_TAU - logs) for z in (low, high)]
        bent = [np.where(np.isfinite(z), z, 0.0) * height for z, height in zip((low, high), heights, strict=True)]
        by_middle = (heights[0] - heights[1]) * np.minimum(1.0, 1 / deviation)
        slopes = [by_middle, (bent[0] - bent[1]) * np.sqrt(0.5)]
        if cells.present is not None:
            known = cells.present[:, self._columns[Gaussian]][:, None, :] > 0
            logs, slopes = np.where(known, logs, 0.0), [np.where(known, slope, 0.0) for slope in slopes]
        return logs, tuple(slopes)


def _deviation(logarithms: Matrix) -> Matrix:
    return np.exp(np.clip(logarithms, -LIMIT / 2, LIMIT / 2))
