"""Files as sources: one file, a spreadsheet, a folder, a pattern, or what a store lists.

``year=2024`` in a path is a column. Whole files and row groups of Parquet files are shards, which other processes can
read.
"""

from __future__ import annotations

import datetime
import glob
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from colonnade.disk.reading import shorten
from colonnade.errors import DataError
from colonnade.tables import files
from colonnade.tables.cell_parsing import AS_USUAL, TextFormat, pa, pc
from colonnade.tables.sources.base import InMemorySource, TableSource, simplify_batch, simplify_type
from colonnade.tables.sources.databases import import_optional
from colonnade.tables.sources.object_stores import (
    StoredFile,
    has_pattern,
    is_hidden,
    is_table_file,
    list_stored_files,
    open_store,
    redact_address,
)

_PIECE_BYTES = 1 << 24
_LARGEST_SHARD = 1 << 28
_SHARDS = 1024  # a larger table has larger pieces, up to the longest


@dataclass(frozen=True)
class FilePart:
    """A file of a data set, or some of its row groups: where it lies, how errors call it, its size and time."""

    at: files.FileLocation
    name: str
    mark: Hashable
    path_columns: tuple[tuple[str, str | None], ...] = ()
    """What its folders say."""
    columns: tuple[str, ...] = ()
    """Those of the file that are read: at least one, which tells how many rows there are."""
    groups: tuple[int, ...] | None = None

    def batches(self, wanted: pa.Schema, text: TextFormat) -> Iterator[pa.RecordBatch]:
        """Its rows in the types of the whole data set; what folders say is text."""
        said = dict(self.path_columns)
        for batch in files.read_batches(self.at, self.name, list(self.columns), text, self.groups):
            plain = simplify_batch(batch)
            arrays = [
                plain.column(column)
                if column in self.columns
                else pa.repeat(pa.scalar(said[column], pa.large_string()), batch.num_rows)
                for column in wanted.names
            ]
            try:
                alike = [
                    array if array.type.equals(field.type) else pc.cast(array, field.type)
                    for array, field in zip(arrays, wanted, strict=True)
                ]
            except pa.ArrowException:
                raise DataError(
                    f"{self.name}: a number does not fit the type that the column has in other files; write all "
                    "files alike [DA237]"
                ) from None
            yield pa.RecordBatch.from_arrays(alike, names=wanted.names)


class FileShard(TableSource):
    """Rows that lie in a few files. Pickled, it holds the address of a store and no connection to it."""

    def __init__(
        self,
        whole: TableSource,
        stretches: Sequence[FilePart],
        text: TextFormat,
        wanted: pa.Schema,
        address: str | None,
    ) -> None:
        """``wanted`` are the types that all files of a data set are read as; ``address`` is that of their store."""
        super().__init__(whole.name)
        self.changed = whole.changed
        self._stretches = tuple(stretches)
        self._text = text
        self._wanted = wanted
        self._address = address
        self._first = tuple(stretch.mark for stretch in self._stretches)

    def columns(self) -> list[str]:
        """The columns that are read."""
        return list(self._wanted.names)

    def state(self) -> Hashable:
        """Sizes and times of the files as they are now."""
        places = (each.at for each in self._placed)
        return tuple(file_state(at) if isinstance(at, Path) else at.state() for at in places)

    @cached_property
    def _placed(self) -> tuple[FilePart, ...]:
        """The stretches, in a store that this process has asked for."""
        if self._address is None:
            return self._stretches
        store = open_store(self._address)
        return tuple(_with_store(each, store) for each in self._stretches)

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for stretch in self._placed:
            for batch in stretch.batches(self._wanted, self._text):
                yield batch.select(list(columns))

    def __getstate__(self) -> dict[str, Any]:
        # Arrow pickles a store with the credentials that it found in the environment.
        kept = {name: value for name, value in self.__dict__.items() if name != "_placed"}
        return kept | {"_stretches": tuple(_with_store(each, None) for each in self._stretches)}


def divide_files(given: Sequence[FilePart]) -> list[list[FilePart]]:
    """Whole files, in their order, in pieces of about the same size; the row groups of a file may be in several."""
    units = [(file, group, size) for file in given for group, size in _divisible_units(file)]
    least = shard_bytes(sum(size for *_, size in units))
    found, held, bytes_held = list[list[FilePart]](), list[FilePart](), 0
    for file, group, size in units:
        if group is not None and held and held[-1].at is file.at:
            held[-1] = replace(held[-1], groups=(*(held[-1].groups or ()), group))
        else:
            held.append(replace(file, groups=None if group is None else (group,)))
        bytes_held += size
        if bytes_held >= least:
            found.append(held)
            held, bytes_held = [], 0
    return [*found, held] if held else found


def shard_bytes(size: int) -> int:
    """How many bytes one piece of a table of so many has, about."""
    return max(_PIECE_BYTES, min(size // _SHARDS, _LARGEST_SHARD))


def file_state(path: Path) -> tuple[int, int] | None:
    """Size and time of a file of this machine; ``None`` if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _divisible_units(part: FilePart) -> list[tuple[int | None, int]]:
    """What a file can be divided into, and how many bytes each has."""
    groups = files.row_group_sizes(part.at, part.name)
    if groups is None:
        return [(None, files.estimate_memory(part.at, part.name, list))]
    return list(enumerate(groups))


def _with_store(stretch: FilePart, store: Any) -> FilePart:
    at = stretch.at
    return replace(stretch, at=replace(at, store=store)) if isinstance(at, StoredFile) else stretch


_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_TWICE = "this is met twice, because of a link; remove the link, or name the folders by a pattern"
_AT_ONCE = 8


class FileSet(TableSource):
    """Files with the same columns, one after the other in the order of their paths; each is CSV or Parquet."""

    changed = "files were added, removed or changed since it was first read"

    def __init__(
        self, name: str, look: Callable[[], list[FilePart]], text: TextFormat, *, address: str | None = None
    ) -> None:
        """``address`` is that of a store, from which files are read once, since every reading is a transfer."""
        super().__init__(name)
        self.rereadable = address is None
        self._address = address
        self._look = look
        self._text = text

    def columns(self) -> list[str]:
        """The columns of the files, and those that their folders say."""
        # A column that only some files have is there; whoever asks for it is told which file lacks it.
        others = dict.fromkeys(column for names in self._names for column in names)
        others.update(dict.fromkeys(key for key, _ in self._parts[0].path_columns))
        return [*self._schemas[0].names, *(column for column in others if column not in self._names[0])]

    def state(self) -> Hashable:
        """Names, sizes and times of all files."""
        return _file_states(self._look())

    def record_state(self) -> None:
        """Note the files as they were when they were first listed."""
        self._first = _file_states(self._parts)

    def size(self, choose: files.ColumnChooser) -> int:
        """About how many bytes of memory the chosen columns would take."""
        wanted = set(self._types(files.choose_columns(self.columns(), self.name, choose)).names)

        def inside(there: Sequence[str]) -> list[str]:
            return [column for column in there if column in wanted]

        return sum(files.estimate_memory(part.at, part.name, inside) for part in self._parts)

    def shards(self, columns: Sequence[str]) -> list[TableSource]:
        """Files and row groups; a file of text is in one piece."""
        wanted = self._types(columns)
        found = divide_files(list(self._stretches(columns)))
        return [FileShard(self, each, self._text, wanted, self._address) for each in found]

    def count(self) -> int:
        """How many rows there are: Parquet files say it, others are read."""
        return sum(files.count_rows(part.at, part.name, self._text) for part in self._parts)

    def first_file(self) -> Path:
        """The first file, of a data set on this machine."""
        return cast(Path, self._parts[0].at)

    @cached_property
    def _parts(self) -> list[FilePart]:
        found = self._look()
        if not found:
            alone = (
                "this is a folder without CSV or Parquet files"
                if self.rereadable
                else "no CSV or Parquet file is there"
            )
            what = "no file fits this pattern" if has_pattern(self.name) else alone
            raise DataError(f"{self.name}: {what}; check the path [DA229]")
        first = [key for key, _ in found[0].path_columns]
        for part in found:
            if [key for key, _ in part.path_columns] != first:
                raise DataError(f"{part.name}: its folders name other columns than those of {found[0].name} [DA230]")
        return found

    @cached_property
    def _schemas(self) -> list[pa.Schema]:
        return [files.read_arrow_schema(part.at, part.name, self._text) for part in self._parts]

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
                    shorten(f"{part.name}: column {column!r} appears more than once; rename or delete one [DA231]")
                )
            if not times and column not in dict(part.path_columns):
                raise DataError(shorten(f"{part.name}: column {column!r} is not in this file, but in others [DA232]"))
            kind = simplify_type(schema.field(column).type) if times else pa.large_string()
            found = kind if found is None else _common_type(found, kind)
            if found is None:
                raise DataError(
                    shorten(
                        f"{part.name}: column {column!r} has another type than in the files before it; "
                        "write all alike [DA233]"
                    )
                )
        return found

    def _rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        wanted = self._types(columns)
        for stretch in self._stretches(columns):
            yield from stretch.batches(wanted, self._text)

    def _stretches(self, columns: Sequence[str]) -> Iterator[FilePart]:
        """The files, each with those of the columns that it has itself."""
        for part, names in zip(self._parts, self._names, strict=True):
            inside = [column for column in columns if column in names]
            # Without any of its own columns, one tells how many rows a file has.
            yield replace(part, columns=tuple(inside or list(names)[:1]))


def open_local_files(path: Path, name: str, text: TextFormat) -> FileSet:
    """A file of this machine, a folder with all folders inside it, or the files that a pattern means."""
    here = Path() if path.is_absolute() else Path.cwd()  # wherever the program goes from here
    folder = path.is_dir()
    several = folder or (has_pattern(str(path)) and not path.exists())

    def look() -> list[FilePart]:
        if not several:
            return [FilePart(here / path, name, file_state(here / path))]
        found = sorted(_walk_folder(here / path) if folder else _match_pattern(here / path), key=Path.as_posix)
        _refuse_twice(found)
        called = [str(each if path.is_absolute() else each.relative_to(here)) for each in found]
        return [
            FilePart(each, said, file_state(each), _path_columns(Path(said).as_posix()))
            for each, said in zip(found, called, strict=True)
        ]

    found = FileSet(name, look, text)
    if not several:
        found.changed = TableSource.changed
    return found


def _walk_folder(folder: Path) -> Iterator[Path]:
    """The tables of a folder, and of those that it links to."""

    def fail(error: OSError) -> None:
        raise DataError(f"{error.filename}: the folder cannot be read: {error.strerror} [DA234]")

    met = set()
    for top, folders, names in os.walk(folder, onerror=fail, followlinks=True):
        there = os.path.realpath(top)
        if there in met:
            raise DataError(f"{top}: {_TWICE} [DA235]")
        met.add(there)
        folders[:] = [each for each in folders if not is_hidden(each)]
        yield from (each for each in (Path(top, inner) for inner in names if is_table_file(inner)) if each.is_file())


def _match_pattern(path: Path) -> Iterator[Path]:
    """The files that a pattern means; a folder that is there means itself, whatever signs are in its name."""
    fixed, rest = Path(path.anchor), list(path.parts[1:])
    while rest and (fixed / rest[0]).is_dir():
        fixed /= rest.pop(0)
    pattern = "/".join(rest)
    for found in glob.iglob(pattern, root_dir=fixed, recursive=True):
        if not is_hidden(Path(found).as_posix(), pattern) and (fixed / found).is_file():
            yield fixed / found


def _refuse_twice(found: Sequence[Path]) -> None:
    met = set()
    for each in found:
        if (there := os.path.realpath(each)) in met:
            raise DataError(f"{each}: {_TWICE} [DA236]")
        met.add(there)


def open_stored_files(address: str, name: str | None, text: TextFormat) -> FileSet:
    """What an address of a store means."""
    scheme = address.partition("://")[0]

    def look() -> list[FilePart]:
        found = list_stored_files(address)
        with ThreadPoolExecutor(_AT_ONCE) as hands:  # each is a question to the store
            versions = list(hands.map(StoredFile.version, found))
        return [
            FilePart(each, f"{scheme}://{each.path}", (each.size, each.changed, version), _path_columns(each.path))
            for each, version in zip(found, versions, strict=True)
        ]

    return FileSet(name or redact_address(address), look, text, address=address)


def _file_states(parts: Sequence[FilePart]) -> Hashable:
    return tuple((part.name, part.mark) for part in parts)


def _path_columns(path: str) -> tuple[tuple[str, str | None], ...]:
    """What the folders of a path say: ``year=2024`` is a column and its cell."""
    pairs = (part.split("=", 1) for part in path.split("/")[:-1] if "=" in part.strip("="))
    return tuple((unquote(key), None if value == _NO_VALUE else unquote(value)) for key, value in pairs)


def _common_type(one: Any, other: Any) -> Any:
    """A type that holds both; ``None`` if there is none."""
    if one.equals(other):
        return one
    try:
        pair = [pa.schema([("c", kind)]) for kind in (one, other)]
        return pa.unify_schemas(pair, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


SPREADSHEET_ENDINGS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
_WHOLE = 2.0**53


class SpreadsheetSource(InMemorySource):
    """A workbook of this machine. It is read as a whole, since it has a million rows at most, and every cell as text.

    So a cell means what it would mean in a CSV file: the number 7 is the id ``7``, and an empty cell is missing.
    """

    def __init__(self, path: Path, name: str, text: TextFormat = AS_USUAL) -> None:
        TableSource.__init__(self, name)  # the table is read when it is asked for
        self._path = path
        self._decimal = text.fraction

    def state(self) -> Hashable:
        """Size and time of the file."""
        return file_state(self._path)

    @cached_property
    def _table(self) -> pa.Table:
        files.check_regular(self._path, self.name)
        header, *rows = self._cells()
        names = [_cell_text(cell, self._decimal) for cell in header]
        columns = [[_cell_text(cell, self._decimal) for cell in column] for column in zip(*rows, strict=True)] or [
            [] for _ in names
        ]
        return pa.Table.from_arrays([pa.array(column, pa.large_string()) for column in columns], names=names)

    def _cells(self) -> list[list[Any]]:
        calamine = import_optional("python_calamine", "excel", self.name)
        try:
            with calamine.load_workbook(str(self._path)) as book:
                full = [found for name in book.sheet_names if (found := book.get_sheet_by_name(name).to_python())]
        except Exception:  # whatever the library raises may quote a cell
            raise DataError(
                f"{self.name}: the spreadsheet cannot be read: it is damaged, or locked with a password; save the "
                "table as CSV [DA247]"
            ) from None
        if len(full) != 1:
            what = "several sheets with cells" if full else "no cells"
            raise DataError(f"{self.name}: the spreadsheet has {what}; save the table as a sheet of its own [DA248]")
        return list(full[0])


def _cell_text(cell: Any, decimal: str) -> str:
    """A cell as a CSV file would have it that is written with this decimal sign."""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < _WHOLE:
        return str(int(cell))
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date().isoformat()
    if isinstance(cell, datetime.date | datetime.time):
        return cell.isoformat()
    return repr(cell).replace(".", decimal) if isinstance(cell, int | float) else str(cell)
