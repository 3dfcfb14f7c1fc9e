"""A party's file under a schema: cells that are missing, clipped or unknown, and how the cells of each column lie.

Only for the party itself: everything here is computed from its data. Cells are encoded as a study would encode them, a
few rows at a time, so a file of any size needs little memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.tables import files
from colonnade.tables.columns import NOWHERE, Category, Column, Number
from colonnade.tables.dates import Days, source_of
from colonnade.tables.encode import encode_column, place_of
from colonnade.tables.schema import Schema
from colonnade.tables.sources.opening import name_of, opened

BARS = 24
"""Bars of a histogram at most."""
_NEITHER = "none of these"
_FALSE_TRUE = ("false", "true")


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


def says(column: Column) -> str:
    """What a schema says of a column, in one line."""
    if isinstance(column, Days):
        text = f"days from {column.first} to {column.day_of(column.high)}"
    elif isinstance(column, Number):
        whole = "whole number" if column.whole else "number"
        text = f"{whole} from {column.low:g} to {column.high:g}{f' {column.unit}' if column.unit else ''}"
        text += ", by its logarithm" if column.transform == "log1p" else ""
    elif isinstance(column, Category):
        shown = ", ".join(column.values[:6])
        more = f" and {len(column.values) - 6} more" if len(column.values) > 6 else ""
        text = f"one of {shown}{more}"
    else:
        text = "true or false"
    return f"{text}; {_if_missing(column)}"


def _if_missing(column: Column) -> str:
    if column.missing == "refuse":
        return "a missing cell is mapped"
    if column.missing == NOWHERE:
        return "a missing cell has a place of its own"
    if isinstance(column.missing, str):
        known = column.missing
    elif isinstance(column, Days):
        known = column.day_of(column.missing)
    else:
        known = str(column.missing).lower() if isinstance(column.missing, bool) else f"{column.missing:g}"
    return f"a missing cell counts as {known}"


def _needed(schema: Schema, there: Sequence[str], said: str) -> Sequence[str]:
    files.need(schema.sources, there, said)
    return schema.sources


class _Seen:
    """What was counted of one column so far."""

    def __init__(self, name: str, column: Column) -> None:
        self.name, self.column, self.source = name, column, source_of(name, column)
        self.missing = self.clipped = self.unknown = 0
        self.counts: NDArray[np.int64] = np.zeros(_width(column), dtype=np.int64)

    def add(self, cells: Any, place: Any) -> None:
        out = np.zeros((len(cells), len(self.column.parts)))
        lost, cut, odd = encode_column(cells, self.column, place, out)
        self.missing, self.clipped, self.unknown = self.missing + lost, self.clipped + cut, self.unknown + odd
        if isinstance(self.column, Number):
            values = out[out[:, 1] == 0, 0] if self.column.missing == NOWHERE else out[:, 0]
            share = (values + 1) / 2 if self.column.scale == "signed" else values
            bins = len(self.counts)
            at = np.rint(share * (bins - 1)) if _each_whole(self.column) else np.floor(share * bins)
            self.counts += np.bincount(np.minimum(at.astype(np.int64), bins - 1), minlength=bins)
        elif isinstance(self.column, Category):
            each = out.sum(axis=0).astype(np.int64)
            self.counts += np.append(each, len(out) - each.sum())
        else:
            true = int(out[:, 0].sum())
            self.counts += np.array([len(out) - true, true])

    def found(self) -> Surveyed:
        ends, labels, bars = None, tuple[str, ...](), self.counts
        if isinstance(self.column, Days):
            ends = (self.column.first, self.column.day_of(self.column.high))
        elif isinstance(self.column, Number):
            ends = (f"{self.column.low:g}", f"{self.column.high:g}")
        elif isinstance(self.column, Category):
            kept = list(_most(bars[:-1]))
            rest = int(bars.sum() - bars[kept].sum())
            labels = (*(self.column.values[k] for k in kept), *([_NEITHER] if rest else []))
            bars = np.append(bars[kept], [rest] if rest else np.zeros(0, dtype=np.int64))
        else:
            labels = _FALSE_TRUE
        told = says(self.column)
        counts = (self.missing, self.clipped, self.unknown)
        return Surveyed(self.name, self.source, told, *counts, labels, ends, tuple(int(bar) for bar in bars))


def _each_whole(column: Number) -> bool:
    """Whether every whole number between the bounds has a bar of its own."""
    return column.whole and column.transform == "none" and column.high - column.low < BARS


def _width(column: Column) -> int:
    if isinstance(column, Number):
        return int(column.high - column.low) + 1 if _each_whole(column) else BARS
    return len(column.values) + 1 if isinstance(column, Category) else 2


def _most(counts: NDArray[np.int64]) -> Iterator[int]:
    """The places of the most frequent values, in the order of the schema."""
    if len(counts) < BARS:
        yield from range(len(counts))
    else:
        yield from sorted(int(k) for k in np.argsort(-counts, kind="stable")[: BARS - 1])
