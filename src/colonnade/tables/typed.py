"""Cells as their columns mean them: text becomes numbers, codes, truths and days, so that it is read only once.

Encoding typed cells gives what encoding the cells themselves gives. Only a misfit that is mapped is no longer told from
a missing cell, which is encoded alike; it is counted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.tables import parse
from colonnade.tables.arrow import pa
from colonnade.tables.columns import REFUSE, Category, Column, Flag, Number
from colonnade.tables.dates import Calendar, Days, source_of
from colonnade.tables.days import days_of
from colonnade.tables.encode import Misfits, Report, encode_columns, place_of
from colonnade.tables.parse import Mask, Place
from colonnade.tables.schema import Schema


class Typing:
    """How the cells of a schema's columns are typed."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._read: dict[str, dict[str, Column]] = {}
        for name, declared in schema.columns.items():
            self._read.setdefault(source_of(name, declared), {})[name] = declared
        alone = {column: _category(list(declared.values())) for column, declared in self._read.items()}
        self._categories = {column: declared for column, declared in alone.items() if declared is not None}

    def typed(
        self, cells: pa.Table | pa.RecordBatch, *, source: str, numbers: NDArray[np.int64], misfits: Misfits
    ) -> tuple[pa.RecordBatch, dict[str, int]]:
        """The typed cells, categories as codes, and the number of misfits that they no longer tell, by column."""
        arrays, unfit = [], dict[str, int]()
        for column, declared in self._read.items():
            place = place_of(source, column, numbers, misfits, self._schema.text.decimal)
            arrays.append(_typed(parse.plain(cells[column]), list(declared.values()), place))
            if place.unfit is not None and (odd := int(place.unfit.sum())):
                unfit |= {name: odd for name, each in declared.items() if each.missing != REFUSE}
        return pa.RecordBatch.from_arrays(arrays, names=list(self._read)), unfit

    def readable(self, cells: pa.RecordBatch) -> pa.RecordBatch:
        """Typed cells as an encoder reads them: codes have the values of their category as dictionary."""
        arrays = [
            self._readable(column, array) for column, array in zip(cells.schema.names, cells.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, names=cells.schema.names)

    def checked(
        self, cells: pa.RecordBatch, *, source: str, numbers: NDArray[np.int64], misfits: Misfits
    ) -> tuple[pa.RecordBatch, Report]:
        """The typed cells, and the report of encoding them as the cells themselves would give it."""
        try:
            found, unfit = self.typed(cells, source=source, numbers=numbers, misfits=misfits)
            return found, self._report(found, unfit, source=source, rows=numbers, misfits=misfits)
        except DataError:
            # Of several columns with errors, the encoder names the first.
            encode_columns(cells, self._schema, source=source, rows=numbers, misfits=misfits)
            raise

    def _report(self, cells: pa.RecordBatch, unfit: dict[str, int], **where: Any) -> Report:
        _, found = encode_columns(self.readable(cells), self._schema, **where)
        if not unfit:
            return found
        missing = {name: count - unfit.get(name, 0) for name, count in found.missing.items()}
        odd = {name: found.misfits.get(name, 0) + unfit.get(name, 0) for name in self._schema.names}
        missing, odd = ({name: count for name, count in counts.items() if count} for counts in (missing, odd))
        return Report(found.rows, found.clipped, missing, found.shortened, odd)

    def _readable(self, column: str, codes: Any) -> Any:
        declared = self._categories.get(column)
        return codes if declared is None else parse.with_values(codes, declared)


def _typed(array: Any, declared: Sequence[Column], place: Place) -> Any:
    """One column; numbers and dates that have a type keep it."""
    if (category := _category(declared)) is not None:
        codes, _ = parse.codes(array, category, place)
        return pa.array(codes, mask=codes < 0).cast(parse.code_type(category))
    first, *others = declared
    if isinstance(first, Flag) and not others:
        truths, missing = parse.truths(array, place)
        return pa.array(truths, mask=_gone(missing, place))
    if not parse.is_text(array.type):
        return array
    if isinstance(first, Number) and not isinstance(first, Days) and not others:
        values, missing = parse.numbers(array, place)
        return pa.array(values, mask=_gone(missing, place))
    written = {each.format if isinstance(each, Days | Calendar) else "" for each in declared}
    if len(written) > 1 or "" in written:
        return array
    days, missing = days_of(array, written.pop(), place)
    return pa.array(days.astype(np.int32), mask=_gone(missing, place)).cast(pa.date32())


def _category(declared: Sequence[Column]) -> Category | None:
    """The category that alone is read from a column."""
    first = declared[0]
    alone = len(declared) == 1 and isinstance(first, Category) and not isinstance(first, Calendar)
    return first if alone and isinstance(first, Category) else None


def _gone(missing: Mask, place: Place) -> Mask:
    return missing if place.unfit is None else missing | place.unfit
