"""Data sets of several files: a folder, a pattern, or what a store lists; ``year=2024`` in a path is a column."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from colonnade.disk.reading import short
from colonnade.errors import DataError
from colonnade.tables import files
from colonnade.tables.arrow import pa
from colonnade.tables.formats import TextFormat
from colonnade.tables.sources.contract import Source
from colonnade.tables.sources.memory import plain_type
from colonnade.tables.sources.pieces import Part, Piece, Stretch, divided, local_state
from colonnade.tables.sources.stored import StoredFile
from colonnade.tables.sources.stores import has_pattern, hidden, holds_rows, listing, shown

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_TWICE = "this is met twice, because of a link; remove the link, or name the folders by a pattern"
_AT_ONCE = 8


class DataSet(Source):
    """Files with the same columns, one after the other in the order of their paths; each is CSV or Parquet."""

    def __init__(
        self, name: str, look: Callable[[], list[Part]], text: TextFormat, *, address: str | None = None
    ) -> None:
        """``address`` is that of a store, from which files are read once, since every reading is a transfer."""
        super().__init__(name)
        self.again = address is None
        self._address = address
        self._look = look
        self._text = text

    @property
    def changed(self) -> str:
        """What to say of files that are others now."""
        return "files were added, removed or changed since it was first read"

    def columns(self) -> list[str]:
        """The columns of the files, and those that their folders say."""
        # A column that only some files have is there; whoever asks for it is told which file lacks it.
        others = dict.fromkeys(column for names in self._names for column in names)
        others.update(dict.fromkeys(key for key, _ in self._parts[0].said))
        return [*self._schemas[0].names, *(column for column in others if column not in self._names[0])]

    def state(self) -> Hashable:
        """Names, sizes and times of all files."""
        return _marks(self._look())

    def _noted(self) -> Hashable:
        return _marks(self._parts)

    def size(self, choose: files.Chooser) -> int:
        """About how many bytes of memory the chosen columns would take."""
        wanted = set(self._types(files.chosen(self.columns(), self.name, choose)).names)

        def inside(there: Sequence[str]) -> list[str]:
            return [column for column in there if column in wanted]

        return sum(files.bytes_in_memory(part.at, part.name, inside) for part in self._parts)

    def pieces(self, columns: Sequence[str]) -> list[Source]:
        """Files and row groups; a file of text is in one piece."""
        wanted = self._types(columns)
        found = divided(list(self._stretches(columns)))
        return [Piece(self, each, self._text, wanted=wanted, address=self._address) for each in found]

    def count(self) -> int:
        """How many rows there are: Parquet files say it, others are read."""
        return sum(files.count_rows(part.at, part.name, self._text) for part in self._parts)

    def first_file(self) -> Path:
        """The first file, of a data set on this machine."""
        at = self._parts[0].at
        if not isinstance(at, Path):
            raise TypeError("a file of a store has no path [VA243]")
        return at

    @cached_property
    def _parts(self) -> list[Part]:
        found = self._look()
        if not found:
            alone = "this is a folder without CSV or Parquet files" if self.again else "no CSV or Parquet file is there"
            what = "no file fits this pattern" if has_pattern(self.name) else alone
            raise DataError(f"{self.name}: {what}; check the path [DA229]")
        first = [key for key, _ in found[0].said]
        for part in found:
            if [key for key, _ in part.said] != first:
                raise DataError(f"{part.name}: its folders name other columns than those of {found[0].name} [DA230]")
        return found

    @cached_property
    def _schemas(self) -> list[pa.Schema]:
        return [files.schema_of(part.at, part.name, self._text) for part in self._parts]

    @cached_property
    def _names(self) -> list[Counter[str]]:
        """How often each column is in each file."""
        return [Counter(schema.names) for schema in self._schemas]

    def _types(self, columns: Sequence[str]) -> pa.Schema:
        """One type for each of these columns, wide enough for that of every file; columns of folders are text."""
        return pa.schema([pa.field(column, self._type(column)) for column in columns])

    def _type(self, column: str) -> Any:
        found = None
        for part, schema, names in zip(self._parts, self._schemas, self._names, strict=True):
            times = names[column]
            if times > 1:
                raise DataError(
                    short(f"{part.name}: column {column!r} appears more than once; rename or delete one [DA231]")
                )
            if not times and column not in dict(part.said):
                raise DataError(short(f"{part.name}: column {column!r} is not in this file, but in others [DA232]"))
            kind = plain_type(schema.field(column).type) if times else pa.large_string()
            found = kind if found is None else _wider(found, kind)
            if found is None:
                raise DataError(
                    short(
                        f"{part.name}: column {column!r} has another type than in the files before it; "
                        "write all alike [DA233]"
                    )
                )
        return found

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        wanted = self._types(columns)
        for stretch in self._stretches(columns):
            yield from stretch.fitted(wanted, self._text)

    def _stretches(self, columns: Sequence[str]) -> Iterator[Stretch]:
        """The files, each with those of the columns that it has itself."""
        for part, names in zip(self._parts, self._names, strict=True):
            inside = [column for column in columns if column in names]
            # Without any of its own columns, one tells how many rows a file has.
            yield Stretch(part, tuple(inside or list(names)[:1]))


def local_files(path: Path, name: str, text: TextFormat) -> DataSet:
    """A folder of this machine, with all folders inside it, or the files that a pattern means."""
    here = Path.cwd()  # wherever the program goes from here
    folder = path.is_dir()

    def look() -> list[Part]:
        found = sorted(_inside(here / path) if folder else _matching(here / path), key=Path.as_posix)
        _refuse_twice(found)
        called = [str(each if path.is_absolute() else each.relative_to(here)) for each in found]
        return [
            Part(each, said, local_state(each), _said(Path(said).as_posix()))
            for each, said in zip(found, called, strict=True)
        ]

    return DataSet(name, look, text)


def _inside(folder: Path) -> Iterator[Path]:
    """The tables of a folder, and of those that it links to."""

    def fail(error: OSError) -> None:
        raise DataError(f"{error.filename}: the folder cannot be read: {error.strerror} [DA234]")

    met = set()
    for top, folders, names in os.walk(folder, onerror=fail, followlinks=True):
        there = os.path.realpath(top)
        if there in met:
            raise DataError(f"{top}: {_TWICE} [DA235]")
        met.add(there)
        folders[:] = [each for each in folders if not hidden(each)]
        yield from (each for each in (Path(top, inner) for inner in names if holds_rows(inner)) if each.is_file())


def _matching(path: Path) -> Iterator[Path]:
    """The files that a pattern means; a folder that is there means itself, whatever signs are in its name."""
    fixed, rest = Path(path.anchor), list(path.parts[1:])
    while rest and (fixed / rest[0]).is_dir():
        fixed /= rest.pop(0)
    pattern = "/".join(rest)
    for found in glob.iglob(pattern, root_dir=fixed, recursive=True):
        if not hidden(Path(found).as_posix(), pattern) and (fixed / found).is_file():
            yield fixed / found


def _refuse_twice(found: Sequence[Path]) -> None:
    met = set()
    for each in found:
        if (there := os.path.realpath(each)) in met:
            raise DataError(f"{each}: {_TWICE} [DA236]")
        met.add(there)


def stored_files(address: str, name: str | None, text: TextFormat) -> DataSet:
    """What an address of a store means."""
    scheme = address.partition("://")[0]

    def look() -> list[Part]:
        found = listing(address)
        with ThreadPoolExecutor(_AT_ONCE) as hands:  # each is a question to the store
            versions = list(hands.map(StoredFile.version, found))
        return [
            Part(each, f"{scheme}://{each.path}", (each.size, each.changed, version), _said(each.path))
            for each, version in zip(found, versions, strict=True)
        ]

    return DataSet(name or shown(address), look, text, address=address)


def _marks(parts: Sequence[Part]) -> Hashable:
    return tuple((part.name, part.mark) for part in parts)


def _said(path: str) -> tuple[tuple[str, str | None], ...]:
    """What the folders of a path say: ``year=2024`` is a column and its cell."""
    pairs = (part.split("=", 1) for part in path.split("/")[:-1] if "=" in part.strip("="))
    return tuple((unquote(key), None if value == _NO_VALUE else unquote(value)) for key, value in pairs)


def _wider(one: Any, other: Any) -> Any:
    """A type that holds both; ``None`` if there is none."""
    if one.equals(other):
        return one
    try:
        pair = [pa.schema([("c", kind)]) for kind in (one, other)]
        return pa.unify_schemas(pair, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None
