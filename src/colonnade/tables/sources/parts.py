"""Data sets of several files: a folder, a pattern, or what a store lists; ``year=2024`` in a path is a column."""

from __future__ import annotations

import glob
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from colonnade.disk.reading import short
from colonnade.errors import DataError
from colonnade.tables import files
from colonnade.tables.arrow import pa, pc
from colonnade.tables.formats import TextFormat
from colonnade.tables.sources.contract import Source
from colonnade.tables.sources.memory import plain_batch
from colonnade.tables.sources.single import local_state
from colonnade.tables.sources.stores import has_pattern, holds_rows, listing, shown

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class Part:
    """One file of a data set: where it lies, how errors call it, its size and time, and what its folders say."""

    at: files.At
    name: str
    mark: tuple[int, int] | None
    said: tuple[tuple[str, str | None], ...]


class DataSet(Source):
    """Files with the same columns, one after the other in the order of their paths; each is CSV or Parquet."""

    def __init__(self, name: str, look: Callable[[], list[Part]], text: TextFormat, *, again: bool) -> None:
        super().__init__(name)
        self.again = again
        self._look = look
        self._text = text

    @property
    def changed(self) -> str:
        """What to say of files that are others now."""
        return "files were added, removed or changed since it was first read"

    def columns(self) -> list[str]:
        """The columns of the files, and those that their folders say."""
        return list(self._schema.names)

    def state(self) -> Hashable:
        """Names, sizes and times of all files."""
        return _marks(self._look())

    def _noted(self) -> Hashable:
        return _marks(self._parts)

    def size(self, choose: files.Chooser) -> int:
        """About how many bytes of memory the chosen columns would take."""
        wanted = set(files.chosen(self.columns(), self.name, choose))

        def inside(there: Sequence[str]) -> list[str]:
            return [column for column in there if column in wanted]

        return sum(files.bytes_in_memory(part.at, part.name, inside) for part in self._parts)

    def count(self) -> int:
        """How many rows there are: Parquet files say it, others are read."""
        return sum(files.count_rows(part.at, part.name, self._text) for part in self._parts)

    def first_file(self) -> Path:
        """The first file, of a data set on this machine."""
        at = self._parts[0].at
        if not isinstance(at, Path):
            raise TypeError("a file of a store has no path")
        return at

    @cached_property
    def _parts(self) -> list[Part]:
        found = self._look()
        if not found:
            what = (
                "no file fits this pattern"
                if has_pattern(self.name)
                else "this is a folder without CSV or Parquet files"
            )
            raise DataError(f"{self.name}: {what}; check the path")
        first = [key for key, _ in found[0].said]
        for part in found:
            if [key for key, _ in part.said] != first:
                raise DataError(f"{part.name}: its folders name other columns than those of {found[0].name}")
        return found

    @cached_property
    def _schemas(self) -> list[pa.Schema]:
        return [files.schema_of(part.at, part.name, self._text) for part in self._parts]

    @cached_property
    def _schema(self) -> pa.Schema:
        """One type for each column, wide enough for that of every file; columns of folders are text."""
        whole = self._schemas[0]
        for part, other in zip(self._parts, self._schemas, strict=True):
            if set(other.names) != set(whole.names):
                odd = sorted(set(other.names) ^ set(whole.names))[0]
                raise DataError(
                    short(f"{part.name}: column {odd!r} is in this file or in {self._parts[0].name}, but not in both")
                )
            if other.equals(whole):
                continue
            try:
                whole = pa.unify_schemas([whole, other], promote_options="permissive")
            except pa.ArrowException:
                raise DataError(
                    f"{part.name}: a column has another type than in the files before it; write all files alike"
                ) from None
        for key, _ in self._parts[0].said:
            if key not in whole.names:
                whole = whole.append(pa.field(key, pa.large_string()))
        return whole

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        whole = self._schema
        wanted = pa.schema([whole.field(whole.get_field_index(column)) for column in columns])
        for part, schema in zip(self._parts, self._schemas, strict=True):
            inside = [column for column in columns if column in schema.names]
            said = dict(part.said)
            # Without any of its own columns, one tells how many rows a file has.
            for batch in files.read_batches(part.at, part.name, inside or schema.names[:1], self._text):
                arrays = [
                    batch.column(column) if column in schema.names else _repeated(said[column], batch.num_rows)
                    for column in columns
                ]
                yield plain_batch(_fitted(arrays, wanted, part.name))


def local_files(path: Path, name: str, text: TextFormat) -> DataSet:
    """A folder of this machine, with all folders inside it, or the files that a pattern means."""
    folder = path.is_dir()

    def look() -> list[Part]:
        if folder:
            inside = (each for each in path.rglob("*") if holds_rows(each.relative_to(path).as_posix()))
        else:
            inside = (Path(each) for each in glob.glob(str(path), recursive=True))
        found = sorted((each for each in inside if each.is_file()), key=lambda each: each.as_posix())
        return [Part(each, str(each), local_state(each), _said(each.as_posix())) for each in found]

    return DataSet(name, look, text, again=True)


def stored_files(address: str, name: str | None, text: TextFormat) -> DataSet:
    """What an address of a store means; it is read once, since every reading is a transfer."""
    scheme = address.partition("://")[0]

    def look() -> list[Part]:
        return [
            Part(each, f"{scheme}://{each.path}", (each.size, each.changed), _said(each.path))
            for each in listing(address)
        ]

    return DataSet(name or shown(address), look, text, again=False)


def _marks(parts: Sequence[Part]) -> Hashable:
    return tuple((part.name, part.mark) for part in parts)


def _said(path: str) -> tuple[tuple[str, str | None], ...]:
    """What the folders of a path say: ``year=2024`` is a column and its cell."""
    pairs = (part.split("=", 1) for part in path.split("/")[:-1] if "=" in part.strip("="))
    return tuple((unquote(key), None if value == _NO_VALUE else unquote(value)) for key, value in pairs)


def _repeated(text: str | None, rows: int) -> Any:
    return pa.repeat(pa.scalar(text, pa.large_string()), rows)


def _fitted(arrays: Sequence[Any], wanted: pa.Schema, name: str) -> pa.RecordBatch:
    """The columns in the types of the whole data set."""
    try:
        cast = [
            array if array.type.equals(field.type) else pc.cast(array, field.type)
            for array, field in zip(arrays, wanted, strict=True)
        ]
    except pa.ArrowException:
        raise DataError(
            f"{name}: a number does not fit the type that the column has in other files; write all files alike"
        ) from None
    return pa.RecordBatch.from_arrays(cast, names=wanted.names)
