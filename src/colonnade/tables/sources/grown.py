"""Columns that are put together in memory as their rows come, so that no second copy of them is ever there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.tables.arrow import pa, pc
from colonnade.tables.parse import is_text

_LEAST = 1 << 20  # numbers or bytes by which an array grows at a time


class Grown:
    """An array that becomes longer at its end."""

    def __init__(self, kind: type[np.generic]) -> None:
        self._held: NDArray[Any] = np.empty(0, kind)
        self._used = 0

    def add(self, more: NDArray[Any]) -> None:
        """Put more at its end."""
        end = self._used + len(more)
        if end > len(self._held):
            # A large array is moved by the system, page by page, and not copied. What is beyond its end is filled.
            self._held.resize(max(end, len(self._held) + max(_LEAST, len(self._held) >> 4)), refcheck=False)
        self._held[self._used : end] = more
        self._used = end

    def whole(self) -> NDArray[Any]:
        """All that was put there."""
        self._held.resize(self._used, refcheck=False)
        return self._held


class _Texts:
    """A column of text; it gets the type that ids have, so that it is not copied again."""

    def __init__(self) -> None:
        self._ends, self._letters = Grown(np.int64), Grown(np.uint8)
        self._ends.add(np.zeros(1, np.int64))
        self._known: Grown | None = None
        self._rows = self._size = 0

    def add(self, cells: Any) -> None:
        if not len(cells):
            return
        if pa.types.is_string_view(cells.type):
            cells = without_views(cells)
        if cells.null_count and self._known is None:
            self._known = Grown(np.bool_)
            self._known.add(np.ones(self._rows, np.bool_))
        if self._known is not None:
            self._known.add(np.asarray(cells.is_valid(), dtype=np.bool_))
        _, places, letters = cells.buffers()
        wide = np.int64 if pa.types.is_large_string(cells.type) else np.int32
        ends = np.frombuffer(places, wide)[cells.offset : cells.offset + len(cells) + 1].astype(np.int64)
        if letters is not None:
            self._letters.add(np.frombuffer(letters, np.uint8)[ends[0] : ends[-1]])
        self._ends.add(ends[1:] + (self._size - ends[0]))
        self._size += int(ends[-1] - ends[0])
        self._rows += len(cells)

    def whole(self) -> Any:
        known = None if self._known is None else np.packbits(self._known.whole(), bitorder="little")
        buffers = [known, self._ends.whole(), self._letters.whole()]
        held = [None if part is None else pa.py_buffer(part) for part in buffers]
        return pa.LargeStringArray.from_buffers(self._rows, held[1], held[2], held[0])


class _Chunks:
    """A column of anything else."""

    def __init__(self) -> None:
        self._parts: list[Any] = []

    def add(self, cells: Any) -> None:
        self._parts.append(cells)

    def whole(self) -> Any:
        found = pa.chunked_array(self._parts)
        self._parts.clear()
        return found.combine_chunks()


def together(batches: Iterator[pa.RecordBatch], columns: Sequence[str]) -> pa.Table:
    """These columns of all batches, in whatever order those have them; text is of one type, as is what has no rows."""
    held: list[_Texts | _Chunks] = []
    for batch in batches:
        held = held or [_Texts() if is_text(batch.column(name).type) else _Chunks() for name in columns]
        for name, column in zip(columns, held, strict=True):
            column.add(batch.column(name))
    if not held:
        return pa.table({name: pa.array([], pa.large_string()) for name in columns})
    found = [column.whole() for column in held]
    pa.default_memory_pool().release_unused()  # otherwise the process keeps the memory of the batches
    return pa.Table.from_arrays(found, names=list(columns))


def without_views(views: Any) -> Any:
    """Text in views, as one piece."""
    try:
        return pc.cast(views, pa.large_string())
    except pa.ArrowNotImplementedError:  # the oldest pyarrow that we take has views, but no way to cast them
        return pa.array(views.to_pylist(), pa.large_string())
