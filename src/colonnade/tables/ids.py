"""Ids as exact text, none missing and none twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.tables.cell_parsing import (
    CellLocation,
    Mask,
    as_whole_numbers,
    flatten_column,
    is_text,
    is_whole,
    pa,
    pc,
)

_CHUNK = 1 << 16


class Ids(Sequence[str]):
    """A list of ids in some order; each becomes a Python text only when it is read.

    Twenty million Python texts take more than a gigabyte; in Arrow the same ids take a quarter of that.
    """

    __hash__ = None  # type: ignore[assignment]  # as for a list

    def __init__(self, texts: pa.LargeStringArray, order: NDArray[np.int64] | None = None) -> None:
        self._texts = texts
        self._order = order

    def __len__(self) -> int:
        return len(self._texts) if self._order is None else len(self._order)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return self._between(*index.indices(len(self)))
        place = range(len(self))[index]  # raises as a list does
        return self._between(place, place + 1, 1)[0]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _CHUNK):
            yield from self[start : start + _CHUNK]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | Ids):
            return NotImplemented
        starts = range(0, len(self), _CHUNK)
        return len(self) == len(other) and all(self[s : s + _CHUNK] == other[s : s + _CHUNK] for s in starts)

    def __repr__(self) -> str:
        return f"<Ids: {len(self)}>"

    def is_sorted(self) -> bool:
        """Whether every id comes after the one before it, byte by byte."""
        return all(
            pc.all(pc.less(part[:-1], part[1:]), min_count=0).as_py()
            for part in (self._texts_of(start, start + _CHUNK + 1) for start in range(0, len(self), _CHUNK))
        )

    def pack(self, start: int, stop: int) -> tuple[bytes, bytes]:
        """For some of the ids, the number of characters of each as 64-bit numbers, and all characters in UTF-8."""
        texts = self._texts_of(start, stop)
        if not len(texts):
            return b"", b""
        _, places, letters = texts.buffers()
        ends = np.frombuffer(places, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
        lengths = np.asarray(pc.utf8_length(texts), dtype="<u8")
        whole = letters.slice(ends[0], ends[-1] - ends[0]) if letters is not None else b""
        return lengths.tobytes(), bytes(whole)

    def _between(self, start: int, stop: int, step: int) -> list[str]:
        if step == 1:
            return list(self._texts_of(start, stop).to_pylist())
        places = np.arange(start, stop, step)
        rows = places if self._order is None else self._order[places]
        return list(self._texts.take(pa.array(rows)).to_pylist())

    def _texts_of(self, start: int, stop: int) -> Any:
        if self._order is None:
            return self._texts[start:stop]
        return self._texts.take(pa.array(self._order[start:stop]))


def pack_ids(ids: Sequence[str], start: int, stop: int) -> tuple[bytes, bytes]:
    """The same as :meth:`Ids.packed`, for any list of ids."""
    if isinstance(ids, Ids):
        return ids.pack(start, stop)
    part = ids[start:stop]
    return np.fromiter(map(len, part), dtype="<u8").tobytes(), "".join(part).encode()


def check_ids(column: Any, place: CellLocation) -> pa.LargeStringArray:
    """The ids as text; raises, with row numbers, if one is missing, has blanks around it or is repeated."""
    ids = as_text(flatten_column(column), place, "id")
    missing = _find_ids(ids, lambda part: pc.fill_null(pc.equal(part, ""), True))
    if missing.any():
        raise place.fail(missing, "the id is missing; every row needs one, so fill it or delete the row [DA170]")
    padded = _find_ids(ids, lambda part: pc.not_equal(pc.utf8_trim_whitespace(part), part))
    if padded.any():
        raise place.fail(padded, "the id has blanks around it; remove them, because ids are compared exactly [DA171]")
    _refuse_repeats(ids, place)
    return ids


def _find_ids(ids: Any, what: Callable[[Any], Any]) -> Mask:
    """Which ids have a property; they are tested some at a time."""
    found = np.zeros(len(ids), dtype=bool)
    for start in range(0, len(ids), _CHUNK):
        part = np.asarray(what(ids[start : start + _CHUNK]), dtype=bool)
        if part.any():  # what is never written takes no memory
            found[start : start + _CHUNK] = part
    return found


def as_text(array: Any, place: CellLocation, what: str) -> Any:
    """Cells as text: texts stay as they are and whole numbers become their digits; ``what`` names them in errors."""
    kind = array.type
    if is_text(kind) or pa.types.is_null(kind) or is_whole(kind):
        return array.cast(pa.large_string())
    if pa.types.is_floating(kind):
        values, fits = as_whole_numbers(array)
        place.refuse(~fits, f"the {what} is not a whole number; store {what}s as text or as whole numbers [DA172]")
        return values.cast(pa.large_string())
    raise DataError(
        f"{place.source}: the {what} column {place.column!r} holds {kind} cells; store text or whole numbers [DA173]"
    )


def name_rows(columns: Mapping[str, Any], source: str) -> pa.LargeStringArray:
    """A party's names for its rows: its cells as text, joined if there are several columns; names may repeat."""
    cells = [_cell_texts(flatten_column(cells), column, source) for column, cells in columns.items()]
    between = pa.scalar(" | ", pa.large_string())
    return pc.binary_join_element_wise(*cells, between, null_handling="replace", null_replacement="")


def _cell_texts(array: Any, column: str, source: str) -> Any:
    kind = array.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise DataError(f"{source}: the id column {column!r} holds {kind} cells; store text or whole numbers [DA174]")
    if pa.types.is_floating(kind):
        # Cell by cell: a row has the same name whichever rows are read with it.
        values, fits = as_whole_numbers(array)
        return pc.if_else(pa.array(fits), values.cast(pa.large_string()), array.cast(pa.large_string()))
    return array.cast(pa.large_string())


def sort_positions(ids: Any) -> NDArray[np.int64]:
    """The positions that put ids into the order of their bytes."""
    return np.asarray(pc.sort_indices(ids)).view(np.int64)


def _refuse_repeats(ids: Any, place: CellLocation) -> None:
    if Ids(ids).is_sorted():
        return
    order = sort_positions(ids)
    repeated = np.zeros(len(ids), dtype=bool)
    for start in range(0, len(ids), _CHUNK):
        rows = order[start : start + _CHUNK + 1]
        part = ids.take(pa.array(rows))
        same = np.asarray(pc.equal(part[1:], part[:-1]), dtype=bool)
        repeated[rows[1:][same]] = True
        repeated[rows[:-1][same]] = True
    if repeated.any():
        raise place.fail(repeated, "an id occurs more than once; keep one row for each person [DA175]")
