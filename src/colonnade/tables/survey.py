"""A party's file under a schema: cells that are missing, clipped or unknown, and how the cells of each column lie.

Only for the party itself: everything here is computed from its data. Cells are encoded as a study would encode them, a
few rows at a time, so a file of any size needs little memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.tables import files
from colonnade.tables.columns import Column
from colonnade.tables.encode import place_of
from colonnade.tables.schema import Schema
from colonnade.tables.sources.opening import name_of, opened

BARS = 24
"""Bars of a histogram at most."""


@dataclass(frozen=True)
class Surveyed:
    """One column of the schema: how many cells are not as it says, and a histogram of what a study would read."""

    name: str
    source: str
    says: str
    missing: int
    clipped: int
    unknown: int
    labels: tuple[str, ...]
    """Of each bar; empty where the bars lie on a scale between ``ends``."""
    ends: tuple[str, str] | None
    bars: tuple[int, ...]


@dataclass(frozen=True)
class Survey:
    """A whole file."""

    rows: int
    columns: tuple[Surveyed, ...]
    unread: tuple[str, ...]
    """Columns of the file that the schema does not name; they are never read."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Survey:
        """What :meth:`to_dict` wrote."""
        columns = tuple(
            Surveyed(
                **{
                    **each,
                    "labels": tuple(each["labels"]),
                    "bars": tuple(each["bars"]),
                    "ends": None if each["ends"] is None else (each["ends"][0], each["ends"][1]),
                }
            )
            for each in value["columns"]
        )
        return cls(value["rows"], columns, tuple(value["unread"]))


def survey(given: Any, schema: Schema, also_used: Sequence[str] = ()) -> Survey:
    """Read a table once, wherever it lies; an error if it lacks a column. ``also_used`` are those of ids and keys."""
    said, text = name_of(given), schema.text
    source = opened(given, said, text)
    there = source.columns()
    files.chosen(there, said, lambda names: _needed(schema, names, said))
    seen = [_Seen(name, column) for name, column in schema.columns.items()]
    rows = 0
    for batch in source.batches(schema.sources):
        numbers = np.arange(rows + 1, rows + 1 + batch.num_rows)
        for each in seen:
            place = place_of(said, each.source, numbers, "map", text.decimal)
            each.add(batch.column(each.source), place)
        rows += batch.num_rows
    used = {*schema.sources, *also_used}
    return Survey(rows, tuple(each.found() for each in seen), tuple(name for name in there if name not in used))


def _needed(schema: Schema, there: Sequence[str], said: str) -> Sequence[str]:
    files.need(schema.sources, there, said)
    return schema.sources


class _Seen:
    """What was counted of one column so far."""

    def __init__(self, name: str, column: Column) -> None:
        self.name, self.column, self.source = name, column, column.source(name)
        self.missing = self.clipped = self.unknown = 0
        self.counts: NDArray[np.int64] = np.zeros(column.bar_count(BARS), dtype=np.int64)

    def add(self, cells: Any, place: Any) -> None:
        out = np.zeros((len(cells), len(self.column.parts)))
        lost, cut, odd = self.column.encode(cells, place, out)
        self.missing, self.clipped, self.unknown = self.missing + lost, self.clipped + cut, self.unknown + odd
        self.counts += self.column.tally(out, len(self.counts))

    def found(self) -> Surveyed:
        labels, ends, bars = self.column.label_bars(self.counts, BARS)
        counts = (self.missing, self.clipped, self.unknown)
        says = self.column.summary()
        return Surveyed(self.name, self.source, says, *counts, labels, ends, tuple(int(bar) for bar in bars))
