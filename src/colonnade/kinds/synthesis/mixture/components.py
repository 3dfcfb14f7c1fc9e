"""The components of a mixture, as far as they are about one owner's columns (docs/theory/mixture-model.md).

Within a component the columns are independent, so an owner needs nobody to compute the log density of its part of a row
and how that changes with the parameters. A cell that is missing is left out of the product: its log density is 0.

Families work on shares: a number's place between its bounds, from 0 to 1, after its transform. Every family has
unconstrained parameters and a proper prior on them, so that a noisy step leads nowhere where it is not defined.

For expectation maximisation an owner adds up bounded statistics, whatever the parameters. A category or a binned number
has its one-hot value less 1/n, a flag its value less 1/2: the counts are released beside them, so nothing is lost, and
a person adds less. A number has its place between its bounds from the middle, y, and y^2 - 1/8. Where cells may be
missing, counts of those present are needed too, so a category is then not centred, and a number has a third statistic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, digamma, log_ndtr, zeta

from colonnade.errors import StudyError
from colonnade.tables.columns import Column
from colonnade.tables.schema import Schema

BETA_INSET = 2.0**-8
"""How far values at the ends of a number's range are pulled inside, where a Beta density may be infinite."""
DEFAULT_BINS = 16
DEFAULT_CELLS = 64
_MAX_BINS = 4096


@dataclass(frozen=True)
class BetaColumn:
    """A number between its bounds; the parameters are the logarithms of the two shape parameters."""

    width = 2


@dataclass(frozen=True)
class CategoricalColumn:
    """One of ``width`` values, or of as many equal bins of a number; the parameters are one logit for each."""

    width: int


@dataclass(frozen=True)
class BernoulliColumn:
    """True or false; the parameter is the logit of true."""

    width = 1


@dataclass(frozen=True)
class GaussianColumn:
    """One of ``cells`` equal cells of a number's range, with the mass that a normal density has there.

    The outer cells hold what lies beyond the bounds. The parameters are the mean and the logarithm of the deviation.
    """

    cells: int
    width = 2


ColumnFamily: TypeAlias = BetaColumn | CategoricalColumn | BernoulliColumn | GaussianColumn


def choose_families(schema: Schema, chosen: Mapping[str, str] | None = None) -> dict[str, ColumnFamily]:
    """The family of every column: as chosen, otherwise Beta for numbers, categorical and Bernoulli.

    A choice is "beta", "bins", "gaussian", "categorical" or "bernoulli"; "bins:32" and "gaussian:100" say how many.
    """
    wanted = dict(chosen or {})
    schema.require(wanted)
    return {name: _choose_family(name, column, wanted.get(name)) for name, column in schema.columns.items()}


def _choose_family(name: str, column: Column, choice: str | None) -> ColumnFamily:
    if not isinstance(choice, str | None):
        raise StudyError(f"the family of column {name!r} must be a text, not {choice!r} [ST494]")
    word, _, count = (choice or "").partition(":")
    if column.quantity:
        allowed = '"beta", "bins" or "gaussian"'
        if word in ("", "beta") and not count:
            return BetaColumn()
        if word == "bins":
            return CategoricalColumn(_read_count(name, count, DEFAULT_BINS))
        if word == "gaussian":
            return GaussianColumn(_read_count(name, count, DEFAULT_CELLS))
    else:
        alone = CategoricalColumn(len(column.classes)) if column.one_hot else BernoulliColumn()
        allowed = '"categorical"' if column.one_hot else '"bernoulli"'
        if choice in (None, allowed.strip('"')):
            return alone
    raise StudyError(f"column {name!r} cannot be described by {choice!r}; a {column.kind} takes {allowed} [ST495]")


def _read_count(name: str, count: str, usual: int) -> int:
    if not count:
        return usual
    if not (count.isascii() and count.isdigit() and len(count) < 6 and 2 <= int(count) <= _MAX_BINS):
        raise StudyError(
            f"the family of column {name!r} needs a whole number from 2 to {_MAX_BINS} after the colon [ST496]"
        )
    return int(count)


Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class RowStatistics:
    """Rows as the components read them; made once, taken from for every batch.

    ``statistics`` are those of the exponential families, zero where a cell is missing. ``lower`` and ``upper`` are the
    ends of the cells that Gaussian columns fall into. ``present`` has a column for each column of the table, 1 where a
    cell has a value and else 0, and is ``None`` where the schema leaves no cell without one. So what is computed, and
    how long it takes, depends on no cell. ``base`` is the part of a row's log density that no parameter changes.
    """

    statistics: Matrix
    lower: Matrix
    upper: Matrix
    base: NDArray[np.float64]
    present: Matrix | None

    def __len__(self) -> int:
        return len(self.statistics)

    def take(self, rows: NDArray[Any] | slice) -> RowStatistics:
        """Some of the rows."""
        present = None if self.present is None else self.present[rows]
        return RowStatistics(self.statistics[rows], self.lower[rows], self.upper[rows], self.base[rows], present)


def statistics_width(family: ColumnFamily) -> int:
    """How many statistics a column has in an exponential family; none if it is described by another."""
    return 0 if isinstance(family, GaussianColumn) else family.width


def range_share(part: Matrix, column: Column) -> NDArray[np.float64]:
    """A number's place between its bounds, from 0 to 1."""
    quantity = column.quantity
    return np.clip(part[:, 0] if quantity is None else quantity.to_share(part[:, 0]), 0.0, 1.0)


def read_statistics(parts: list[tuple[Matrix, Column, ColumnFamily]]) -> RowStatistics:
    """Statistics of all columns, given each one's encoded numbers."""
    count = len(parts[0][0])
    statistics = np.zeros((count, sum(statistics_width(family) for _, _, family in parts)))
    lower, upper, base, present, start = [], [], np.zeros(count), [], 0
    for part, column, family in parts:
        known = column.has_value(part)
        present.append(known)
        if isinstance(family, GaussianColumn):
            low, high = _gaussian_cell(range_share(part, column), family.cells)
            lower.append(low)
            upper.append(high)
            continue
        found = statistics[:, start : start + family.width]
        start += family.width
        _fill_statistics(found, part, column, family)
        found *= known[:, None]
        if isinstance(family, BetaColumn):
            base -= found.sum(axis=1)
    whole = not any(column.may_lack_value for _, column, _ in parts)
    return RowStatistics(
        statistics,
        np.column_stack(lower) if lower else np.empty((count, 0)),
        np.column_stack(upper) if upper else np.empty((count, 0)),
        base,
        None if whole else np.column_stack(present).astype(np.float64),
    )


def _fill_statistics(found: Matrix, part: Matrix, column: Column, family: ColumnFamily) -> None:
    if isinstance(family, BernoulliColumn):
        found[:, 0] = part[:, 0] > 0.5
    elif isinstance(family, BetaColumn):
        inside = BETA_INSET + (1 - 2 * BETA_INSET) * range_share(part, column)
        np.log(inside, out=found[:, 0])
        np.log1p(-inside, out=found[:, 1])
    elif isinstance(family, CategoricalColumn):
        found[np.arange(len(part)), _codes(part, column, family)] = 1.0


def _gaussian_cell(found: NDArray[np.float64], cells: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    code = np.minimum(np.floor(found * cells), cells - 1)
    return np.where(code == 0, -np.inf, code / cells), np.where(code == cells - 1, np.inf, (code + 1) / cells)


def adjacent_spans(widths: Iterable[int], start: int = 0) -> tuple[slice, ...]:
    """Where runs of so many numbers stand that follow each other."""
    return tuple(slice(*ends) for ends in pairwise(accumulate(widths, initial=start)))


ComponentRows: TypeAlias = Matrix | RowStatistics
"""Encoded rows, or what was read from them before."""
PARAMETER_LIMIT = 12.0
"""Parameters are used as if they were within these limits, so that no noise leads beyond what floats hold."""
_HALF_LOG_TAU = 0.5 * np.log(2 * np.pi)


@dataclass(frozen=True)
class _FamilyState:
    """The exponential families at some parameters: log densities are ``T @ natural.T - partition``."""

    natural: Matrix
    partition: Matrix
    mean: Matrix
    slope: Matrix
    """How the natural parameters change with the unconstrained ones, times the scale."""
    scale: Matrix


@dataclass(frozen=True)
class LinearDerivatives:
    """How the derivatives of one owner's log densities follow from statistics t of a row, for every component.

    Number j is ``slope[k, j] t[j] - offset[k, j] t[against[j]]``. The statistics from number ``len(against)`` on are
    zeros and ones: whether a cell is there, or a constant. Statistics, slopes and offsets may be integers.
    """

    slope: NDArray[Any]
    offset: NDArray[Any]
    against: NDArray[np.int64]

    def of_rows(self, statistics: NDArray[Any]) -> NDArray[Any]:
        """Derivatives of rows (n, K, q), before they are clipped."""
        width = len(self.against)
        return np.asarray(statistics[:, None, :width] * self.slope - statistics[:, None, self.against] * self.offset)


class OwnComponents:
    """One owner's columns under K components; parameters are arrays (K, ``width``), a row for each component.

    ``families`` chooses by which distribution a column is described; see :func:`families.choose_families`.
    """

    def __init__(self, schema: Schema, families: Mapping[str, str] | None = None) -> None:
        self.schema = schema
        self.families = choose_families(schema, families)
        widths = [family.width for family in self.families.values()]
        self.places = dict(zip(self.families, adjacent_spans(widths), strict=True))
        """Which parameters belong to which column."""
        self.width = sum(widths)
        """How many parameters a component has for these columns."""
        self._last: tuple[Matrix, _FamilyState] | None = None
        self._sort()

    def _sort(self) -> None:
        """Which parameters, statistics and columns belong to which kind of family."""
        linear: list[int] = []
        kinds: dict[type, list[tuple[int, int]]] = {
            CategoricalColumn: [],
            BetaColumn: [],
            BernoulliColumn: [],
            GaussianColumn: [],
        }
        for column, (name, family) in enumerate(self.families.items()):
            kinds[type(family)].append((column, len(linear)))
            if statistics_width(family):
                linear += range(self.places[name].start, self.places[name].stop)
        self._linear = np.array(linear, dtype=np.int64)
        sizes = [family.width for family in self.families.values() if isinstance(family, CategoricalColumn)]
        firsts = [first for _, first in kinds[CategoricalColumn]]
        spans = [np.arange(first, first + size) for first, size in zip(firsts, sizes, strict=True)]
        self._categorical = np.concatenate([np.empty(0, np.int64), *spans])
        self._sizes = np.array(sizes, dtype=np.int64)
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)[: len(sizes)]
        self._columns = {kind: np.array([column for column, _ in found], np.int64) for kind, found in kinds.items()}
        self._first = {kind: np.array([first for _, first in found], np.int64) for kind, found in kinds.items()}
        names = list(self.families)
        self._gaussian = np.array(
            [self.places[names[column]].start for column in self._columns[GaussianColumn]], np.int64
        )
        self._of_column = np.repeat(np.arange(len(names)), [statistics_width(f) for f in self.families.values()])

    def read(self, rows: ComponentRows) -> RowStatistics:
        """What the components look at in encoded rows; worth keeping where the same rows are used again."""
        if isinstance(rows, RowStatistics):
            return rows
        places = self.schema.encoded_slices
        return read_statistics(
            [(rows[:, places[n]], column, self.families[n]) for n, column in self.schema.columns.items()]
        )

    def log_densities(self, rows: ComponentRows, parameters: Matrix) -> Matrix:
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

    def derivatives(self, rows: ComponentRows, parameters: Matrix) -> NDArray[np.float64]:
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

    def linear_statistics(self, rows: ComponentRows) -> Matrix:
        """The statistics, (n, ``width``), and for each column whether the cell is there."""
        cells = self.read(rows)
        there = np.ones((len(cells), len(self.families))) if cells.present is None else cells.present
        return np.hstack([cells.statistics, there])

    def linear_slopes(self, parameters: Matrix) -> LinearDerivatives:
        """By what the statistics are multiplied, (K, ``width``); subtracted is an offset where the cell is there."""
        shape = self._shape(parameters)
        return LinearDerivatives(shape.slope, shape.slope * shape.mean, self.width + self._of_column)

    def scales(self, parameters: Matrix) -> Matrix:
        """By what derivatives are multiplied, (K, ``width``): 1, or less where a parameter is known sharply.

        A narrow density changes fast with its parameters, and one such column would use up the clip of all. Expected
        squares of scaled derivatives are at most 1. The scales are public, as the parameters are.
        """
        found = np.ones((len(parameters), self.width))
        found[:, self._linear] = self._shape(parameters).scale
        if len(self._gaussian):
            found[:, self._gaussian] = np.minimum(1.0, _gaussian_deviation(parameters[:, self._gaussian + 1]))
            found[:, self._gaussian + 1] = np.sqrt(0.5)
        return found

    def square_norms(self, rows: ComponentRows, parameters: Matrix) -> Matrix:
        """The squared norms of the derivatives, (n, K), without making their array."""
        cells, shape = self.read(rows), self._shape(parameters)
        squares = shape.slope**2
        constant = squares * shape.mean**2
        found = (cells.statistics**2) @ squares.T - 2 * cells.statistics @ (squares * shape.mean).T
        found += constant.sum(axis=1) if cells.present is None else cells.present[:, self._of_column] @ constant.T
        if len(self._gaussian):
            found += sum((slope**2).sum(axis=2) for slope in self._normal(cells, parameters)[1])
        return np.maximum(found, 0.0)

    def weighted_sums(self, rows: ComponentRows, weights: Matrix, parameters: Matrix) -> Matrix:
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

    def _shape(self, parameters: Matrix) -> _FamilyState:
        """The exponential families at these parameters; kept, because a round asks for it several times."""
        last = self._last  # read once: participants that are threads may share these components
        if last is None or not np.array_equal(last[0], parameters):
            last = self._last = parameters.copy(), self._computed_shape(parameters)
        return last[1]

    def _computed_shape(self, parameters: Matrix) -> _FamilyState:
        chosen = np.clip(parameters[:, self._linear], -PARAMETER_LIMIT, PARAMETER_LIMIT)
        natural, slope, scale = chosen.copy(), np.ones_like(chosen), np.ones_like(chosen)
        mean, partition = np.empty_like(chosen), np.zeros((len(parameters), len(self.families)))
        if len(self._sizes):
            logits = chosen[:, self._categorical]
            highest = np.maximum.reduceat(logits, self._starts, axis=1)
            weights = np.exp(logits - np.repeat(highest, self._sizes, axis=1))
            totals = np.add.reduceat(weights, self._starts, axis=1)
            mean[:, self._categorical] = weights / np.repeat(totals, self._sizes, axis=1)
            partition[:, self._columns[CategoricalColumn]] = highest + np.log(totals)
        first = self._first[BetaColumn]
        if len(first):
            left, right = np.exp(chosen[:, first]), np.exp(chosen[:, first + 1])
            partition[:, self._columns[BetaColumn]] = betaln(left, right)
            common, both = digamma(left + right), zeta(2, left + right)  # zeta(2, x) is the derivative of digamma
            for place, found in ((first, left), (first + 1, right)):
                natural[:, place] = found
                mean[:, place] = digamma(found) - common
                information = found**2 * (zeta(2, found) - both)
                scale[:, place] = 1 / np.sqrt(np.maximum(information, 1.0))
                slope[:, place] = found * scale[:, place]
        first = self._first[BernoulliColumn]
        if len(first):
            mean[:, first] = 1 / (1 + np.exp(-chosen[:, first]))
            partition[:, self._columns[BernoulliColumn]] = np.logaddexp(0.0, chosen[:, first])
        return _FamilyState(natural, partition, mean, slope, scale)

    def _normal(
        self, cells: RowStatistics, parameters: Matrix
    ) -> tuple[NDArray[np.float64], tuple[NDArray[np.float64], ...]]:
        """Log masses of cells (n, K, Gaussian columns), and their scaled derivatives by mean and log deviation."""
        middle = np.clip(parameters[:, self._gaussian], -PARAMETER_LIMIT, PARAMETER_LIMIT)
        deviation = _gaussian_deviation(parameters[:, self._gaussian + 1])
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
            known = cells.present[:, self._columns[GaussianColumn]][:, None, :] > 0
            logs, slopes = np.where(known, logs, 0.0), [np.where(known, slope, 0.0) for slope in slopes]
        return logs, tuple(slopes)


def _gaussian_deviation(logarithms: Matrix) -> Matrix:
    return np.exp(np.clip(logarithms, -PARAMETER_LIMIT / 2, PARAMETER_LIMIT / 2))


class ColumnStatistics:
    """The statistics of one owner's columns, ``width`` numbers for each row."""

    def __init__(self, own: OwnComponents) -> None:
        self.own = own
        widths = [_summed_width(column, family) for _, column, family in self._columns()]
        self.places = dict(zip(own.families, adjacent_spans(widths), strict=True))
        self.width = sum(widths)

    @property
    def bound(self) -> float:
        """No row's statistics are longer than this; rounded up."""
        square = sum((_square_bound(column, family) for _, column, family in self._columns()), Fraction(0))
        root = math.sqrt(square)
        return root if Fraction(root) ** 2 >= square else math.nextafter(root, math.inf)

    def read(self, rows: Matrix) -> Matrix:
        """The statistics of encoded rows, (n, ``width``)."""
        found = np.zeros((len(rows), self.width))
        for name, column, family in self._columns():
            part, out = rows[:, self.own.schema.encoded_slices[name]], found[:, self.places[name]]
            known = column.has_value(part)
            if isinstance(family, BernoulliColumn):
                out[:, 0] = (part[:, 0] > 0.5) - 0.5
            elif isinstance(family, CategoricalColumn):
                out[np.arange(len(rows)), _codes(part, column, family)] = 1.0
                if not column.may_be_missing:
                    out -= 1 / family.width
            else:
                out[:, 0] = range_share(part, column) - 0.5
                out[:, 1] = out[:, 0] ** 2 - 0.125
                out[:, 2:] = 0.5
            out *= known[:, None]
        return found

    def _columns(self) -> Iterator[tuple[str, Column, ColumnFamily]]:
        for name, family in self.own.families.items():
            yield name, self.own.schema.columns[name], family


def _codes(part: Matrix, column: Column, family: CategoricalColumn) -> NDArray[np.int64]:
    if column.quantity:
        return np.minimum((range_share(part, column) * family.width).astype(np.int64), family.width - 1)
    return np.asarray(part.argmax(axis=1), dtype=np.int64)  # the largest: rows that were scaled down keep their values


def _summed_width(column: Column, family: ColumnFamily) -> int:
    if isinstance(family, CategoricalColumn | BernoulliColumn):
        return family.width
    return 3 if column.may_be_missing else 2


def _square_bound(column: Column, family: ColumnFamily) -> Fraction:
    if isinstance(family, BernoulliColumn):
        return Fraction(1, 4)
    if isinstance(family, CategoricalColumn):
        return Fraction(1) if column.may_be_missing else 1 - Fraction(1, family.width)
    return Fraction(1, 4) + Fraction(1, 64) + Fraction(column.may_be_missing, 4)
