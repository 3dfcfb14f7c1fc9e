"""Encoded columns minus their public middles, and the bounds on a row that follow from this.

The noise on second moments grows with the squared norm of a row. A flag minus one half has a quarter of the square, and
the release itself contains the means of the centred columns; so centring first loses nothing. Middles come from the
schema, never from the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isqrt, nextafter

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, SchemaError
from colonnade.tables.bins import Matrix
from colonnade.tables.columns import Column, Norm as Norm
from colonnade.tables.encoding import scale_rows_down
from colonnade.tables.schema import Schema
from colonnade.tables.slots import DerivedRows
from colonnade.tables.table import Table

_BLOCK_ROWS = 8192


@dataclass(frozen=True)
class ColumnCentring:
    """One party's columns minus their middles: first the features, then the label if the party holds it.

    With ``norm="l2"`` the middle of each value of a category of K values is 1/K, which makes its L2 norm small. With
    ``norm="l1"`` a category stays as it is, because one-hot values have the smaller L1 norm; so does a number that may
    be missing. The row clip of the schema
    bounds the centred features together; a label is never scaled.
    """

    schema: Schema
    label: str | None = None
    norm: Norm = "l2"

    def __post_init__(self) -> None:
        if self.norm not in ("l2", "l1"):
            raise SchemaError(f'a norm is "l2" or "l1", not {self.norm!r} [SC012]')
        if self.label is not None:
            self.schema.require([self.label])

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the encoded columns, without those of the label."""
        return tuple(name + part for name, column in self._features for part in column.parts)

    @cached_property
    def label_names(self) -> tuple[str, ...]:
        """The names of the encoded columns of the label."""
        return tuple(name + part for name, column in self._labels for part in column.parts)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all encoded columns: features first, then the label."""
        return self.feature_names + self.label_names

    @cached_property
    def middle(self) -> NDArray[np.float64]:
        """What is subtracted from each encoded column."""
        columns = (*self._features, *self._labels)
        return np.array([column.middle(self.norm) for _, column in columns for _ in column.parts])

    @property
    def clip(self) -> float:
        """A bound on the L2 norm of a row, label included; rounded up."""
        label = sum((_max_power_sum(column, self.norm, 2) for _, column in self._labels), Fraction(0))
        return _sqrt_rounded_up(Fraction(self.feature_clip) ** 2 + label) if label else self.feature_clip

    @cached_property
    def feature_clip(self) -> float:
        """A bound on the L2 norm of the features of a row; rounded up."""
        largest = _sqrt_rounded_up(
            sum((_max_power_sum(column, self.norm, 2) for _, column in self._features), Fraction(0))
        )
        return largest if self._given is None else min(self._given, largest)

    @cached_property
    def groups(self) -> tuple[tuple[int, Fraction], ...]:
        """For each column, how many encoded columns it has and a bound on the L1 norm of their values."""
        columns = (*self._features, *self._labels)
        return tuple((len(column.parts), _max_power_sum(column, self.norm, 1)) for _, column in columns)

    def centre_rows(self, table: Table) -> CentredRows:
        """Centred features and label of a table's rows, in the table's order."""
        return CentredRows(self, self._checked(table), with_label=True)

    def centre_features(self, table: Table) -> CentredRows:
        """Centred features alone, in the table's order."""
        return CentredRows(self, self._checked(table), with_label=False)

    def labels(self, table: Table) -> NDArray[np.float64]:
        """The encoded label, not centred: one row for each person, in the table's order."""
        if self.label is None:
            raise SchemaError("this party holds no label; name one of its columns [SC013]")
        return self.schema.columns[self.label].as_label(self._checked(table).column(self.label))

    def centre(self, features: Matrix) -> Matrix:
        """Encoded, unclipped features minus their middles, scaled down to the schema's clip if it states one."""
        centred = features - self.middle[: len(self.feature_names)]
        if self._given is not None and self._given <= self.feature_clip:
            scale_rows_down(centred, self.feature_clip)
        return centred

    def _checked(self, table: Table) -> Table:
        if table.schema != self.schema:
            raise DataError(f"{table.source} was read under another schema than the one that is centred [DA135]")
        return table

    @property
    def _given(self) -> float | None:
        """The clip that the schema states, if it can shorten a row at all."""
        return self.schema.clip if self.schema.clip < self.schema.max_norm else None

    @property
    def _features(self) -> tuple[tuple[str, Column], ...]:
        return tuple((name, column) for name, column in self.schema.columns.items() if name != self.label)

    @property
    def _labels(self) -> tuple[tuple[str, Column], ...]:
        return () if self.label is None else ((self.label, self.schema.columns[self.label]),)


@dataclass(frozen=True)
class CentredRows(DerivedRows):
    """The centred rows of a table, as a protocol reads them: encoded block by block."""

    centred: ColumnCentring
    rows: Table
    with_label: bool

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, rows: int = _BLOCK_ROWS) -> Iterator[NDArray[np.float64]]:
        """Centred rows, some at a time."""
        kept = self.rows.unclipped()
        features, label = len(self.centred.feature_names), self.centred.label
        order = self._order
        for block in kept.blocks(rows):
            parts = [self.centred.centre(block[:, order[:features]])]
            if self.with_label and label is not None:
                labels = self.centred.schema.columns[label].as_label(block[:, order[features:]])
                parts.append(labels - self.centred.middle[features:])
            yield np.ascontiguousarray(np.hstack(parts))

    def matrix(self) -> NDArray[np.float64]:
        """All rows at once."""
        return np.vstack(list(self.blocks()))

    @property
    def _order(self) -> NDArray[np.int64]:
        """Where the features and then the label stand among the encoded columns of the table."""
        places = {name: index for index, name in enumerate(self.rows.schema.encoded_names)}
        return np.array([places[name] for name in self.centred.names], dtype=np.int64)


def _max_power_sum(column: Column, norm: Norm, power: int) -> Fraction:
    """The largest sum of this power of the sizes of a column's entries: of squares, or the L1 norm."""
    return max(sum((count * size**power for count, size in row), Fraction(0)) for row in column.longest(norm))


def _sqrt_rounded_up(square: Fraction) -> float:
    """A float that is at least the square root of a fraction, and very close to it."""
    scaled = -(-square.numerator * (1 << 128) // square.denominator)
    root = Fraction(isqrt(scaled) + (isqrt(scaled) ** 2 < scaled), 1 << 64)
    nearest = float(root)
    return nearest if Fraction(nearest) >= root else nextafter(nearest, float("inf"))
