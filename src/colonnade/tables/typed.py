"""Cells as their columns mean them: text becomes numbers, codes, truths and days, so that it is read only once.

Encoding typed cells gives what encoding the cells themselves gives. Only a misfit that is mapped is no longer told from
a missing cell, which is encoded alike; it is counted here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.tables import parse
from colonnade.tables.arrow import pa
from colonnade.tables.columns import REFUSE, Column
from colonnade.tables.encode import Misfits, Report, encode_columns, place_of
from colonnade.tables.schema import Schema


class Typing:
    """How the cells of a schema's columns are typed."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._read: dict[str, dict[str, Column]] = {}
        for name, declared in schema.columns.items():
            self._read.setdefault(declared.source(name), {})[name] = declared
        first = {column: next(iter(each.values())) for column, each in self._read.items()}
        self._parsed = {
            column: first[column]
            for column, each in self._read.items()
            if len({declared.reading_key for declared in each.values()}) == 1
        }

    def typed(
        self, cells: pa.Table | pa.RecordBatch, *, source: str, numbers: NDArray[np.int64], misfits: Misfits
    ) -> tuple[pa.RecordBatch, dict[str, int]]:
        """The typed cells, categories as codes, and the number of misfits that they no longer tell, by column."""
        arrays, unfit = [], dict[str, int]()
        for column, declared in self._read.items():
            place = place_of(source, column, numbers, misfits, self._schema.text.decimal)
            array = parse.plain(cells[column])
            arrays.append(self._parsed[column].parse_text(array, place) if column in self._parsed else array)
            if place.unfit is not None and (odd := int(place.unfit.sum())):
                unfit |= {name: odd for name, each in declared.items() if each.missing != REFUSE}
        return pa.RecordBatch.from_arrays(arrays, names=list(self._read)), unfit

    def readable(self, cells: pa.RecordBatch) -> pa.RecordBatch:
        """Typed cells as an encoder reads them: codes have the values of their category as dictionary."""
        arrays = [
            self._parsed[column].restore(array) if column in self._parsed else array
            for column, array in zip(cells.schema.names, cells.columns, strict=True)
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
