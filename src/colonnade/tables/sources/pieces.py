"""Pieces of a table in files: whole files, and row groups of Parquet files, which other processes can read."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from colonnade.errors import DataError
from colonnade.tables import files
from colonnade.tables.arrow import pa, pc
from colonnade.tables.formats import TextFormat
from colonnade.tables.sources.contract import Source
from colonnade.tables.sources.memory import plain_batch
from colonnade.tables.sources.stored import StoredFile
from colonnade.tables.sources.stores import store_of

_PIECE_BYTES = 1 << 24
_LONGEST_PIECE = 1 << 28
_PIECES = 1024  # a larger table has larger pieces, up to the longest


@dataclass(frozen=True)
class Part:
    """One file of a data set: where it lies, how errors call it, its size and time, and what its folders say."""

    at: files.At
    name: str
    mark: Hashable
    said: tuple[tuple[str, str | None], ...] = ()

    def now(self) -> Hashable:
        """Its size and time as they are now."""
        return local_state(self.at) if isinstance(self.at, Path) else self.at.state()


@dataclass(frozen=True)
class Stretch:
    """A file, or some of the row groups of one."""

    part: Part
    columns: tuple[str, ...]
    """Those of the file that are read: at least one, which tells how many rows there are."""
    groups: tuple[int, ...] | None = None

    def batches(self, text: TextFormat) -> Iterator[pa.RecordBatch]:
        """Its rows, as they are in the file."""
        return files.read_batches(self.part.at, self.part.name, self.columns, text, self.groups)

    def fitted(self, wanted: pa.Schema, text: TextFormat) -> Iterator[pa.RecordBatch]:
        """Its rows in the types of the whole data set; what folders say is text."""
        said = dict(self.part.said)
        for batch in self.batches(text):
            plain = plain_batch(batch)
            arrays = [
                plain.column(column) if column in self.columns else _repeated(said[column], batch.num_rows)
                for column in wanted.names
            ]
            yield _cast(arrays, wanted, self.part.name)


class Piece(Source):
    """Rows that lie in a few files. Pickled, it holds the address of a store and no connection to it."""

    def __init__(
        self,
        whole: Source,
        stretches: Sequence[Stretch],
        text: TextFormat,
        *,
        wanted: pa.Schema | None = None,
        address: str | None = None,
    ) -> None:
        """``wanted`` are the types that all files of a data set are read as; ``address`` is that of their store."""
        super().__init__(whole.name)
        self._changed = whole.changed
        self._stretches = tuple(stretches)
        self._text = text
        self._wanted = wanted
        self._address = address
        self._first = tuple(stretch.part.mark for stretch in self._stretches)

    @property
    def changed(self) -> str:
        """What to say of files that are others now."""
        return self._changed

    def columns(self) -> list[str]:
        """The columns that are read."""
        return list(self._stretches[0].columns if self._wanted is None else self._wanted.names)

    def state(self) -> Hashable:
        """Sizes and times of the files as they are now."""
        return tuple(stretch.part.now() for stretch in self._placed)

    @cached_property
    def _placed(self) -> tuple[Stretch, ...]:
        """The stretches, in a store that this process has asked for."""
        if self._address is None:
            return self._stretches
        store = store_of(self._address)
        return tuple(_in_store(each, store) for each in self._stretches)

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for stretch in self._placed:
            found = stretch.batches(self._text) if self._wanted is None else stretch.fitted(self._wanted, self._text)
            for batch in found:
                yield batch.select(list(columns))

    def __getstate__(self) -> dict[str, Any]:
        # Arrow pickles a store with the credentials that it found in the environment.
        kept = {name: value for name, value in self.__dict__.items() if name != "_placed"}
        return kept | {"_stretches": tuple(_in_store(each, None) for each in self._stretches)}


def divided(given: Sequence[Stretch]) -> list[list[Stretch]]:
    """Whole files, in their order, in pieces of about the same size; the row groups of a file may be in several."""
    units = [(file, group, size) for file in given for group, size in _units(file.part)]
    least = piece_bytes(sum(size for *_, size in units))
    found, held, bytes_held = list[list[Stretch]](), list[Stretch](), 0
    for file, group, size in units:
        if group is not None and held and held[-1].part is file.part:
            held[-1] = replace(held[-1], groups=(*(held[-1].groups or ()), group))
        else:
            held.append(replace(file, groups=None if group is None else (group,)))
        bytes_held += size
        if bytes_held >= least:
            found.append(held)
            held, bytes_held = [], 0
    return [*found, held] if held else found


def piece_bytes(size: int) -> int:
    """How many bytes one piece of a table of so many has, about."""
    return max(_PIECE_BYTES, min(size // _PIECES, _LONGEST_PIECE))


def local_state(path: Path) -> tuple[int, int] | None:
    """Size and time of a file of this machine; ``None`` if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _units(part: Part) -> list[tuple[int | None, int]]:
    """What a file can be divided into, and how many bytes each has."""
    groups = files.row_groups(part.at, part.name)
    if groups is None:
        return [(None, files.bytes_in_memory(part.at, part.name, list))]
    return list(enumerate(groups))


def _in_store(stretch: Stretch, store: Any) -> Stretch:
    at = stretch.part.at
    if not isinstance(at, StoredFile):
        return stretch
    return replace(stretch, part=replace(stretch.part, at=replace(at, store=store)))


def _repeated(text: str | None, rows: int) -> Any:
    return pa.repeat(pa.scalar(text, pa.large_string()), rows)


def _cast(arrays: Sequence[Any], wanted: pa.Schema, name: str) -> pa.RecordBatch:
    """The columns in the types of the whole data set."""
    try:
        cast = [
            array if array.type.equals(field.type) else pc.cast(array, field.type)
            for array, field in zip(arrays, wanted, strict=True)
        ]
    except pa.ArrowException:
        raise DataError(
            f"{name}: a number does not fit the type that the column has in other files; write all files alike [DA237]"
        ) from None
    return pa.RecordBatch.from_arrays(cast, names=wanted.names)
