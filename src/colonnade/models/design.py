"""What follows for a regression from schemas and a label alone: columns, bounds, and how the label is scaled.

Columns are centred at public middles: rows become shorter, and less noise is needed. The label and the constant column
are scaled for the same reason: all entries have the same noise, so a column that is multiplied by four is known four
times as exactly. This costs little as long as the column is short compared with the features.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from colonnade.errors import StudyError
from colonnade.protocols.moments.task import ColumnBlock, Moments
from colonnade.protocols.rows import Rows
from colonnade.tables import Column, Schema, Table
from colonnade.tables.bins import Matrix as Matrix, Quantity
from colonnade.tables.cell_parsing import itemise, suggest_full_name, suggest_name
from colonnade.tables.slots import RowSlots
from colonnade.tables.table import ColumnCentring, Norm

# The norm of the constant as a part of that of the features, and the norm of the label as a multiple of the constant's.
_CONSTANT: dict[Norm, Fraction] = {"l2": Fraction(1, 3), "l1": Fraction(3, 20)}
_LABEL: dict[Norm, Fraction] = {"l2": Fraction(6, 5), "l1": Fraction(4, 3)}
_STEPS = 8  # weights of labels are multiples of 1/8, so that scaling by them is exact


def split_label(label: str | None, parties: Sequence[str]) -> tuple[str, str]:
    """The party and the column of a label written ``party.column``."""
    if not isinstance(label, str) or not label:
        raise StudyError('a regression needs a label, written label="party.column" [ST187]')
    owner, column = owner_of(label, parties)
    if owner is None or not column:
        party = label.partition(".")[0]
        hint = suggest_name(party, parties) if "." in label else ""
        raise StudyError(f"label {label!r} is not party.column for any of the parties {itemise(parties)}{hint} [ST188]")
    return owner, column


def without_label(schemas: Mapping[str, Schema], label: str | None, party: str) -> Schema | None:
    """A party's schema without the label; ``None`` where the label is its only column."""
    schema, (owner, column) = schemas[party], split_label(label, tuple(schemas))
    if party != owner:
        return schema
    return schema.without([column]) if len(schema.columns) > 1 else None


def owner_of(name: str, parties: Iterable[str]) -> tuple[str | None, str]:
    """The party and the column in a name such as ``bank.income``; names of parties may have dots themselves."""
    owner = max((party for party in parties if name.startswith(f"{party}.")), key=len, default=None)
    return owner, name if owner is None else name[len(owner) + 1 :]


def columns_of(schemas: Mapping[str, Schema]) -> list[str]:
    """All parties' columns, written ``party.column``."""
    return [f"{party}.{name}" for party, schema in schemas.items() for name in schema.names]


@dataclass(frozen=True)
class LabelDesign:
    """A regression's columns: everybody's schema, and who holds the label."""

    schemas: Mapping[str, Schema]
    owner: str
    column: str
    norm: Norm

    @classmethod
    def of(cls, schemas: Mapping[str, Schema], label: str | None, norm: Norm = "l2") -> LabelDesign:
        """The design, if the label is a column of these schemas; otherwise an error."""
        owner, column = split_label(label, tuple(schemas))
        if column not in schemas[owner].columns:
            hint = suggest_full_name(str(label), columns_of(schemas))
            hint = hint or f"; its columns are {itemise(schemas[owner].names)}"
            raise StudyError(f"label {label!r}: the schema of {owner} has no column {column!r}{hint} [ST189]")
        if sum(len(schema.columns) for schema in schemas.values()) < 2:
            raise StudyError("there is no column but the label; a regression needs at least one feature [ST190]")
        declared = schemas[owner].columns[column]
        if declared.quantity is None and (len(declared.classes) < 2 or declared.may_be_missing):
            raise StudyError(f"label {label!r} needs at least two values and one of them for everybody [ST191]")
        # A label that is read from the same date as a feature would be given away.
        source = declared.source(column)
        others = [n for n, other in schemas[owner].columns.items() if n != column and other.source(n) == source]
        if others:
            raise StudyError(
                f"label {label!r} is read from the same dates as {itemise(others)}; leave these columns out [ST193]"
            )
        if declared.quantity and declared.may_be_missing:
            raise StudyError(f'label {label!r} needs a number for everybody: it cannot have missing = "none" [ST192]')
        return cls(schemas, owner, column, norm)

    @property
    def declared(self) -> Column:
        """The label's column."""
        return self.schemas[self.owner].columns[self.column]

    @property
    def quantity(self) -> Quantity:
        """What the label measures; a fit of numbers refuses a label that measures nothing."""
        found = self.declared.quantity
        assert found is not None  # noqa: S101 - for the type checker; check_label made sure
        return found

    def centred_columns(self, party: str) -> ColumnCentring:
        """How a party's columns are centred."""
        return ColumnCentring(self.schemas[party], self.column if party == self.owner else None, self.norm)

    @property
    def features(self) -> list[str]:
        """The encoded features, ``party.column``, of all parties in order."""
        return [f"{party}.{name}" for party in self.schemas for name in self.centred_columns(party).feature_names]

    @property
    def columns(self) -> list[tuple[int, bool]]:
        """For each feature of a table, how many encoded ones it has, and whether their sum is the same for everybody.

        It is for the values of a category; a row that is scaled down keeps it only where values are centred.
        """
        found = []
        for party in self.schemas:
            schema, centred = self.schemas[party], self.centred_columns(party)
            scaled = self.norm == "l1" and schema.clip < schema.max_norm
            for name, column in schema.columns.items():
                if name != centred.label:
                    whole = column.one_hot and not column.may_be_missing and not scaled
                    found.append((len(column.parts), whole))
        return found

    @property
    def labels(self) -> list[str]:
        """The encoded columns of the label."""
        return [f"{self.owner}.{name}" for name in self.centred_columns(self.owner).label_names]

    @property
    def middles(self) -> Matrix:
        """What is subtracted from each feature."""
        parts = [found.middle[: len(found.feature_names)] for found in map(self.centred_columns, self.schemas)]
        return np.concatenate(parts)

    @property
    def label_middles(self) -> Matrix:
        """What is subtracted from each column of the label."""
        found = self.centred_columns(self.owner)
        return np.asarray(found.middle[len(found.feature_names) :], dtype=np.float64)

    @property
    def feature_blocks(self) -> tuple[ColumnBlock, ...]:
        """The parties' features without the label, for gradients."""
        parts = {party: self.centred_columns(party) for party in self.schemas}
        return tuple(ColumnBlock(party, found.feature_names, found.feature_clip) for party, found in parts.items())

    @property
    def feature_norm(self) -> float:
        """About the largest norm of a row of features; the same number on every machine."""
        clips = [self.centred_columns(party).feature_clip for party in self.schemas]
        return math.sqrt(math.fsum(clip * clip for clip in clips))

    def constant(self, gamma: int) -> int:
        """The constant column as an integer: a fixed part of the features' norm."""
        if self.norm == "l2":
            size = self.feature_norm
        else:
            size = float(sum(radius for party in self.schemas for _, radius in self._groups(party)[0]))
        return max(1, round(float(_CONSTANT[self.norm]) * size * gamma))

    def blocks(self, constant: int, gamma: int) -> tuple[ColumnBlock, ...]:
        """The parties' columns, the label with its weight, for second moments."""
        weight = label_weight(self.declared, self.norm, constant, gamma)
        return tuple(self._block(party, weight) for party in self.schemas)

    def _block(self, party: str, weight: Fraction) -> ColumnBlock:
        found = self.centred_columns(party)
        features, label = self._groups(party)
        groups = (*features, *((width, weight * radius) for width, radius in label))
        square = Fraction(found.feature_clip) ** 2
        if party == self.owner:
            square += (weight * Fraction(_alone(self.declared, self.norm).feature_clip)) ** 2
        return ColumnBlock(party, found.names, _root_up(square), groups if self.norm == "l1" else ())

    def _groups(self, party: str) -> tuple[list[tuple[int, Fraction]], list[tuple[int, Fraction]]]:
        """Runs of columns with their L1 radius: those of features, and those of the label."""
        found, seen = self.centred_columns(party), 0
        features: list[tuple[int, Fraction]] = []
        label: list[tuple[int, Fraction]] = []
        for width, radius in found.groups:
            (features if seen < len(found.feature_names) else label).append((width, radius))
            seen += width
        return features, label


def label_weight(declared: Column, norm: Norm, constant: int, gamma: int) -> Fraction:
    """The factor of the label's columns; it follows from the constant, so an owner can compute it from the task."""
    alone = _alone(declared, norm)
    size = alone.feature_clip if norm == "l2" else float(alone.groups[0][1])
    return max(Fraction(1), Fraction(round(_STEPS * float(_LABEL[norm]) * constant / gamma / size))) / _STEPS


@dataclass(frozen=True)
class WeightedRows:
    """Rows whose last columns, the label's, are multiplied by a weight."""

    rows: Rows
    labels: int
    weight: float

    @property
    def ids(self) -> Sequence[str]:
        """The sorted ids."""
        return self.rows.ids

    @property
    def places(self) -> RowSlots | None:
        """The slots of the rows after a hidden alignment; ``None`` otherwise."""
        return self.rows.places

    def blocks(self, rows: int, /) -> Iterator[Matrix]:
        """The rows, some at a time."""
        for block in self.rows.blocks(rows):
            if self.labels:
                block = block.copy()
                block[:, -self.labels :] *= self.weight
            yield block


def weighted_rows(party: str, table: Table, label: str | None, task: Moments) -> WeightedRows:
    """A party's rows for second moments, from its table in the order of the ids."""
    owner, column = split_label(label, task.owners)
    norm: Norm = "l1" if task.pure else "l2"
    if party != owner:
        return WeightedRows(ColumnCentring(table.schema, None, norm).centre_rows(table), 0, 1.0)
    found = ColumnCentring(table.schema, column, norm)
    weight = label_weight(table.schema.columns[column], norm, task.constant, task.gamma)
    return WeightedRows(found.centre_rows(table), len(found.label_names), float(weight))


def _alone(declared: Column, norm: Norm) -> ColumnCentring:
    """A label as if it were a party's only column."""
    return ColumnCentring(Schema({"label": declared}), None, norm)


def _root_up(square: Fraction) -> float:
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root
