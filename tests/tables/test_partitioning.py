"""Partitions on disk: every row that has a key is in exactly one, as the whole table has it, or the same error is said.

Whatever the cells hold, wherever the rows lie.
"""

from __future__ import annotations

import gzip
import os
import pickle
import random
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from colonnade.errors import DataError
from colonnade.protocols.lanes.partitions import Partitions
from colonnade.study.lanes.worker import PartitionFinder
from colonnade.tables import (
    Key,
    KeyColumn,
    KeyPlan,
    Query,
    Schema,
    Table,
    category,
    date,
    files,
    flag,
    number,
    read_table,
)
from colonnade.tables.cell_parsing import TextFormat
from colonnade.tables.encoding import EncodingReport, InvalidValues
from colonnade.tables.keys import Duplicates
from colonnade.tables.partitioning import (
    PartitionedTable,
    partitions,
    stage_table,
    staging,
)
from colonnade.tables.partitioning.staging import KeyFingerprints, PartitionRunner, WorkUnit
from colonnade.tables.sources import file_sets
from colonnade.tables.sources.factory import open_source
from colonnade.tables.sources.file_sets import FilePart, FileShard
from colonnade.tables.sources.object_stores import StoredFile
from colonnade.tables.table import InMemoryCells, OnDiskCells
from tests.support.errors import check_said, raises, refused
from tests.support.tables import in_folder, put

SCHEMA = Schema({"age": number(0, 99, missing="none"), "ill": flag(missing=False)})
PLAN = KeyPlan((Key("person_id"),))
ANY_KEY = bytes(range(32))
SPREAD = Partitions(4, ANY_KEY)


def in_texts(rows: int, seed: int, ids: Sequence[str] | None = None) -> pa.Table:
    """People with an age and whether they are ill, as text, in any order."""
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "person_id": ids or [f"p{i}" for i in draw.permutation(rows)],
            "age": [f"{each:.3f}" for each in draw.uniform(-3, 110, rows)],
            "ill": draw.choice(["yes", "no", ""], rows),
        }
    )


def small_pieces(patch: pytest.MonkeyPatch, piece: int = 1, block: int = 5) -> None:
    """Few rows are many pieces, blocks, runs and groups of buckets."""
    patch.setattr(file_sets, "_PIECE_BYTES", piece)
    patch.setattr(staging, "_BLOCK_ROWS", block)
    patch.setattr(staging, "_RUN_KEYS", 4)
    patch.setattr(staging, "_ROWS", 6)
    patch.setattr(partitions, "_RUN_BYTES", 900)


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except DataError as error:
        return str(error)


def described(table: Table) -> dict[str, Any]:
    """All that a table with keys says of each row that has one, by the number of the row."""
    views = [table.matrix(), table.unclipped().matrix(), *(table.column(name) for name in table.schema.columns)]
    keys = zip(table.keys.values, table.keys.rows.tolist(), strict=True)
    return {
        int(table.row_numbers[row]): (key, table.own_ids[int(row)], *(view[row].tobytes() for view in views))
        for key, row in keys
    }


def check_parts(spool: PartitionedTable, whole: Table, spread: Partitions = SPREAD) -> None:
    """All partitions together are the rows of the table that have keys, each once."""
    found: dict[str, Any] = {}
    for place in range(spool.count):
        part = PartitionedTable.open(spool.folder, whole.schema).partition(place)
        assert set(spread.of(part.keys.values)) <= {place}
        assert part.keys.rows.tolist() == list(range(part.rows))
        assert (np.diff(part.row_numbers) > 0).all()
        assert spool.lengths[place] == part.rows == len(part)
        about = [(each.source, each.misfits, each.schema, each.named, each.keys.names) for each in (part, whole)]
        assert about[0] == about[1]
        mixed = np.random.default_rng(place).permutation(part.rows)
        aligned = part.align(mixed, [str(row) for row in range(part.rows)])
        assert aligned.row_numbers.tolist() == part.row_numbers[mixed].tolist()
        found |= described(part)
    assert found == described(whole)


def check_same(
    source: Any, schema: Schema, plan: KeyPlan, folder: Path, spread: Partitions = SPREAD, **options: Any
) -> bool:
    """Whether both ways give a table, which is then the same; otherwise they give the same error."""
    whole = outcome(lambda: read_table(source, schema, keys=plan, **options))
    report = whole if isinstance(whole, str) else outcome(whole.check)
    found = outcome(lambda: stage_table(source, schema, plan, folder, **options))
    if isinstance(found, str):
        text = {name: said for name, said in options.items() if name not in ("id", "columns")}
        cells = outcome(lambda: read_table(source, schema, id=None, **text).check())
        # A cell's error comes first: whether keys repeat, or are missing in all rows, is known at the end.
        assert found in (report, cells)
    else:
        assert isinstance(report, EncodingReport)
        assert found.report == report
        counted = (found.rows, found.keys, found.missing, found.repeated)
        assert counted == (whole.rows, len(whole.keys), whole.keys.missing, whole.keys.repeated)
        check_parts(found.split(spread.of, spread.count), whole, spread)
        found.remove()
    assert not list(folder.glob(".colonnade*"))
    return not isinstance(found, str)


NUMBERS = ["1", " 2.50 ", "-0", "1e3", ".5", "5.", "+7", "1e999", "", "NA", "nan", "inf", "1,5", "1 000", "x", "007"]
CATEGORIES = ["A", "B", "NA", "", "a", " A", "3", "null", "é"]
FLAGS = ["true", "YES", "0", "1.0", "no", "", "N/A", "2", "maybe", " True "]
DAYS = ["2001-02-03", "1999-12-31", "2001-02-30", "03.02.2001", "", "2001-02-03T10:00", "0000-01-01", " 2001-02-03 "]
IDS = ["a", "b", " a", "a ", "", "007", "7", "é", "e\u0301", "A", "NA"]
FLOATS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, 1e300, float("inf"), float("nan")])
CODES = st.sampled_from([1.0, 2.0, 1.5, float("nan")])


def column(texts: list[str], *typed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Strategies for one cell: text of these, or numbers and the like of one type."""
    return st.sampled_from([st.none() | each for each in (st.sampled_from(texts), *typed)])


CELLS: dict[str, st.SearchStrategy[Any]] = {
    "amount": column(NUMBERS, FLOATS, st.integers(-3, 2**40)),
    "whole": column(NUMBERS, FLOATS, st.integers(-3, 9)),
    "group": column(CATEGORIES, st.booleans(), st.integers(0, 4), st.sampled_from([3.0, 1.5, float("nan")])),
    "only": column(["x", "y", ""]),
    "flag": column(FLAGS, st.booleans(), st.integers(0, 2), FLOATS),
    "day": column(DAYS, st.dates()),
    "first": column(IDS, st.integers(0, 3), CODES),
    "second": column(IDS, st.integers(0, 1)),
    "code": column(IDS, CODES),
    "other": column(["never", "read"]),
}


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    def said(*choices: object) -> Any:
        return draw(st.sampled_from([{}, *({"missing": each} for each in choices)]))

    parts = draw(st.sampled_from([["days"], ["days", "month"], ["weekday"]]))
    return Schema(
        {
            "amount": number(-1, 1, **said("none", "low", 0.25)),
            "whole": number(0, 5, whole=True, transform=draw(st.sampled_from(["none", "log1p"])), **said("middle")),
            "group": category(["A", "B", "NA", "3", "true"], **said("none", "NA")),
            "only": category(["x"], **said("none")),
            "flag": flag(**said(True, False)),
            "day": date("2000-01-01", "2010-12-31", parts=parts, **said("none")),
        },
        clip=draw(st.sampled_from([1.0, 3.0])),
    )


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 12))
    found = {}
    for name, choice in CELLS.items():
        array = pa.array(draw(st.lists(draw(choice), min_size=rows, max_size=rows)))
        if draw(st.booleans()) and not pa.types.is_null(array.type):
            array = array.dictionary_encode()
        found[name] = array
    return pa.table(found)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables(), schemas(), st.data())
def test_any_cells(tmp_path: Path, table: pa.Table, schema: Schema, data: st.DataObject) -> None:
    misfits = data.draw(st.sampled_from(["map", "map", "refuse"]))
    duplicates = data.draw(st.sampled_from(["drop", "refuse"]))
    names = data.draw(st.sampled_from([["first"], ["first", "second"]]))
    plan = KeyPlan(tuple(Key(name, blanks="trim") for name in names), duplicates)
    with pytest.MonkeyPatch.context() as patch:
        if misfits == "map":  # errors name the rows of one block
            patch.setattr(staging, "_BLOCK_ROWS", data.draw(st.sampled_from([1, 5, 1000])))
        patch.setattr(partitions, "_RUN_BYTES", data.draw(st.sampled_from([1, 700, 1 << 20])))
        patch.setattr(partitions, "_LARGE", data.draw(st.sampled_from([0, 1 << 28])))
        named = data.draw(st.sampled_from([None, "code"]))
        columns = None if named is None else {name: KeyColumn(name) for name in names}
        spread = Partitions(data.draw(st.sampled_from([1, 4, 8])), ANY_KEY)
        check_same(table, schema, plan, tmp_path, spread, id=named, columns=columns, misfits=misfits)


PEOPLE_SCHEMA = Schema(
    {
        "age": number(0, 99, missing="none"),
        "city": category(["Köln", "A;B"], missing="none"),
        "ill": flag(missing=False),
        "born": date("1950-01-01", "2000-12-31", parts=["days", "month"], format="%d.%m.%Y", missing="none"),
    }
)
TEXT = (
    'person_id;age;city;ill;note;born\n007;1,5;Köln;yes;"two\nlines";03.02.1990\n7;;"A;B";0;;\n é ;99,25;;true;x;\n'
    ';3;Köln;no;no key;01.01.2000\n"""q";4e1;"Köln";;y;\n'
)


@pytest.mark.parametrize(("encoding", "ending"), [("utf-16", "csv"), ("utf-8-sig", "csv.gz")])
def test_text_files(tmp_path: Path, encoding: str, ending: str) -> None:
    path = tmp_path / f"table.{ending}"
    written = gzip.compress if ending.endswith("gz") else bytes
    path.write_bytes(written(TEXT.encode(encoding)))
    options: dict[str, Any] = {"separator": ";", "decimal": ",", "misfits": "map"}
    said = {} if encoding.startswith("utf-8") else {"encoding": encoding}
    assert check_same(path, PEOPLE_SCHEMA, PLAN, tmp_path, **options, **said)
    path.write_bytes(written((TEXT + "8;1\n").encode(encoding)))  # a row that is too short
    assert not check_same(path, PEOPLE_SCHEMA, PLAN, tmp_path, **options, **said)


PEOPLE = pa.table(
    {
        "person_id": ["007", "7", "b", "b", None],
        "age": [1.5, None, 3.0, 100.0, 5.0],
        "city": ["Köln", "A;B", None, "Köln", "A;B"],
        "ill": [True, False, None, True, True],
        "born": ["03.02.1990", None, "31.12.2000", "01.01.1940", ""],
        "note": ["x"] * 5,
    }
)


@pytest.mark.parametrize("duplicates", ["drop", "refuse"])
def test_sources(tmp_path: Path, duplicates: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "people.db")) as made:
        made.register("people", PEOPLE)
        made.execute("create table kept as select * from people")
    query = Query("select * from kept order by age", "duckdb", file=tmp_path / "people.db")
    single = put(PEOPLE, tmp_path / "table.parquet", 2)
    put(PEOPLE.slice(0, 3), tmp_path / "parts" / "year=2020" / "a.parquet")
    put(PEOPLE.slice(3), tmp_path / "parts" / "year=2020" / "b.parquet")
    small_pieces(monkeypatch, block=2)
    plan, kept = KeyPlan(PLAN.keys, duplicates), duplicates != "refuse"
    for source in (PEOPLE, single, tmp_path / "parts", PEOPLE.to_pandas(), query):
        assert check_same(source, PEOPLE_SCHEMA, plan, tmp_path / "spool", misfits="map") == kept
    frame = PEOPLE.slice(0, 3).to_pandas().set_index("person_id").assign(note=[1, "x", object()])
    assert check_same(frame, PEOPLE_SCHEMA, plan, tmp_path / "spool")


def test_columns_without_a_type_and_of_unusual_types(tmp_path: Path) -> None:
    columns = {
        "none": number(0, 1, missing="low"),
        "some": category(["A", "B"], missing="none"),
        "no": flag(missing=True),
        "exact": number(0, 9),
        "coded": number(0, 9),
        "born": date("1950-01-01", "2000-12-31", parts=["days", "weekday"]),
    }
    held = pa.table(
        {
            "person_id": pa.array(["a", "b", "c"], pa.string_view()),
            **dict.fromkeys(("none", "some", "no"), pa.nulls(3)),
            "exact": pa.array([1, 2, 3]).cast(pa.decimal128(21, 2)),
            "coded": pa.array([4, 5, 4]).dictionary_encode(),
            "born": pa.array([0, 86_400, 172_800], pa.timestamp("s")),
        }
    )
    assert check_same(held, Schema(columns), PLAN, tmp_path)


def test_a_large_table_has_larger_runs_instead_of_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [(0,), (1 << 34,), (1 << 36,), (1 << 50,), (1 << 50, 1 << 34), (0, 3 * 10**8)]
    assert [partitions.run_bytes(*each) for each in asked] == [1 << n for n in (26, 26, 28, 28, 30, 24)]
    assert 1 << 27 < partitions.run_bytes(1 << 50, 10**9) < 1 << 28
    small_pieces(monkeypatch)
    monkeypatch.setattr(partitions, "_RUN_BYTES", 1)
    held, found = in_texts(100, 3), []
    for most in (4, 1000):
        monkeypatch.setattr(partitions, "_RUNS", most)
        spool = stage_table(held, SCHEMA, PLAN, tmp_path).split(SPREAD.of, 4)
        found.append(len(list(spool.folder.glob("run-*"))))
        check_parts(spool, read_table(held, SCHEMA, keys=PLAN))
    assert 2 <= found[0] <= 4 < found[1] <= 40


def test_rows_of_a_file_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read, calls = put(in_texts(30, 5), tmp_path / "table.csv"), files.read_batches, list[Any]()
    monkeypatch.setattr(files, "read_batches", lambda *given: calls.append(given) or read(*given))
    spool = stage_table(path, SCHEMA, PLAN, tmp_path).split(SPREAD.of, 4)
    assert sum(len(spool.partition(place).matrix()) for place in range(4)) == 30
    assert len(calls) == 1


def test_different_keys_of_which_one_number_is_the_same_are_no_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alike(self: object, keys: Any) -> Any:
        last = np.array([key[-1] for key in keys.to_pylist()], np.uint64)
        return np.array([last % 2, np.arange(len(keys))], np.uint64)

    monkeypatch.setattr(staging.KeyFingerprints, "compute", alike)
    assert check_same(in_texts(30, 4), SCHEMA, PLAN, tmp_path)


def test_nobody_has_a_key(tmp_path: Path) -> None:
    schema, nobody = Schema({"age": number(0, 9)}), pa.table({"person_id": ["", ""], "age": [1.0, 2.0]})
    assert check_same(nobody, schema, PLAN, tmp_path, misfits="map")
    spool = stage_table(nobody, schema, PLAN, tmp_path, misfits="map").split(SPREAD.of, 4)
    part = PartitionedTable.open(spool.folder, schema).partition(1)
    assert (part.rows, part.matrix().shape, list(part.own_ids), spool.lengths.sum()) == (0, (0, 1), [], 0)
    assert part.align([], []).matrix().shape == (0, 1)
    spool.remove()


def split(partition_of: Any, count: int, folder: Path) -> PartitionedTable:
    """Forty people in partitions."""
    return stage_table(in_texts(40, 8), SCHEMA, PLAN, folder).split(partition_of, count)


def test_the_folder_is_private_and_goes_away(tmp_path: Path) -> None:
    parent = tmp_path / "made" / "for it"
    before = os.umask(0)
    try:
        found = stage_table(in_texts(9, 1), SCHEMA, PLAN, parent)
        spool = found.split(SPREAD.of, 4)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (parent.parent, parent, spool.folder)} == {0o700}
    assert {stat.S_IMODE(file.stat().st_mode) for file in spool.folder.iterdir()} == {0o600}
    other = split(SPREAD.of, 4, parent)
    assert spool.folder.exists()  # another spool deletes none that is in use
    assert other.folder != spool.folder
    if (child := os.fork()) == 0:  # a child that ends leaves its parent's folder alone
        spool.remove()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert spool.folder.exists()
    other.remove()
    del found, spool
    assert list(parent.iterdir()) == []
    parent.chmod(0o777)  # others could rename it
    refused(DataError, "DA267", stage_table, in_texts(9, 1), SCHEMA, PLAN, parent)
    parent.chmod(0o1777)  # as /tmp has it
    stage_table(in_texts(9, 1), SCHEMA, PLAN, parent).remove()
    assert list(parent.iterdir()) == []


def test_links_among_what_was_left_are_not_followed(tmp_path: Path) -> None:
    parent, precious = tmp_path / "spool", tmp_path / "precious"
    left = parent / ".colonnade-spool.abcdefgh.new"
    left.mkdir(parents=True)
    precious.mkdir()
    (precious / "file").write_text("kept")
    (parent / ".colonnade-spool.hgfedcba.new").symlink_to(precious)
    (left / "inside").symlink_to(precious)
    stage_table(in_texts(9, 1), SCHEMA, PLAN, parent).remove()
    assert not left.exists()
    assert (precious / "file").read_text() == "kept"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "which",
    [
        "rows-000000.arrow",
        "seed",
        "keys-000000",
        "dropped-000000",
        "run-000000.arrow",
        "run-000000.index",
        "index",
        "partitions.json",
    ],
)
def test_a_full_disk_is_a_sentence_that_names_the_folder(
    tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, held = partitions._create_file, in_texts(9, 1)
    twice, plan = pa.concat_tables([held, held.slice(0, 3)]), KeyPlan(PLAN.keys)

    def full(path: Path) -> Any:
        file = create(path)
        if path.name.startswith(f".{which}."):
            with open("/dev/full", "wb") as nowhere:
                os.dup2(nowhere.fileno(), file.fileno())
        return file

    monkeypatch.setattr(partitions, "_create_file", full)
    with raises(DataError, "DA266", "No space left on device", tmp_path):
        stage_table(twice, SCHEMA, plan, tmp_path).split(SPREAD.of, 4)
    assert list(tmp_path.iterdir()) == []


def test_partitions_that_are_none_are_refused_and_so_are_folders_that_hold_something_else(
    tmp_path: Path,
) -> None:
    for spread, count in ((Partitions(8, ANY_KEY), 2), (SPREAD, 0), (SPREAD, 1 << 17)):
        refused(ValueError, "VA247|VA248", split, spread.of, count, tmp_path)
    assert list(tmp_path.iterdir()) == []
    refused(DataError, "DA262", PartitionedTable.open, tmp_path, SCHEMA)
    for text in ("[]", '{"format": "colonnade partitions 2"}', "x"):
        (tmp_path / "partitions.json").write_text(text)
        refused(DataError, "DA262|VA245", PartitionedTable.open, tmp_path, SCHEMA)
    inside = tmp_path / "partitions.json" / "inside"  # which cannot be made
    refused(DataError, ("DA266", tmp_path), stage_table, in_texts(9, 1), SCHEMA, PLAN, inside)
    spool = split(SPREAD.of, 4, tmp_path)
    refused(DataError, "DA263", PartitionedTable.open, spool.folder, SCHEMA.without(["age"]))
    refused(IndexError, (), spool.partition, 4)
    part = spool.partition(1)
    part.schema = Schema({"ill": category(["yes"], missing="none")})
    answers = in_texts(40, 8)["ill"].to_pylist()
    row = next(number for number in part.row_numbers.tolist() if answers[number - 1] == "no")
    refused(DataError, ("DA193", "ill", row), part.check)  # a row of the file
    (spool.folder / "run-000000.arrow").write_bytes(b"x")
    refused(DataError, "DA264", spool.partition, 0)


def test_large_partitions_stay_on_disk_and_many_take_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = split(Partitions(partitions.MAX_PARTITIONS, ANY_KEY).of, partitions.MAX_PARTITIONS, tmp_path)
    assert (len(list(spool.folder.iterdir())), spool.lengths.sum()) == (3, 40)
    last = int(np.flatnonzero(spool.lengths)[-1])
    assert spool.partition(last).rows == spool.lengths[last]
    spool = split(SPREAD.of, 4, tmp_path)
    assert isinstance(spool.partition(0)._cells, InMemoryCells)
    monkeypatch.setattr(partitions, "_LARGE", 100)
    part = spool.partition(0)
    assert isinstance(part._cells, OnDiskCells)
    del spool  # the folder stays until nobody reads from it
    assert len(part.matrix()) == part.rows > 0
    del part
    assert list(tmp_path.iterdir()) == []


def again(value: Any) -> Any:
    """As another process gets it."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301


class Others:
    """Hands that get chores as other processes do; which one ends first, fails or is done twice is drawn."""

    def __init__(self, seed: int = 0, failing: float = 0.0, at_once: int = 3) -> None:
        self._draw, self._failing, self._at_once = random.Random(seed), failing, at_once  # noqa: S311
        self.done = list[str]()

    def __call__(self, chores: Sequence[WorkUnit]) -> Iterator[tuple[int, Any]]:
        waiting, begun, failed = list(range(len(chores))), list[int](), False
        while begun or (waiting and not failed):
            while waiting and not failed and len(begun) < self._at_once:
                begun.append(waiting.pop(0))
            place = begun.pop(self._draw.randrange(len(begun)))
            try:
                for _ in range(self._draw.choice([1, 1, 2])):
                    found = again(again(chores[place]).run())
                if self._draw.random() < self._failing:
                    raise OSError
            except Exception:
                failed = True
                continue
            self.done.append(type(chores[place]).__name__)
            yield place, found


def in_partitions(
    source: Any, plan: KeyPlan, folder: Path, hands: PartitionRunner, misfits: InvalidValues = "map"
) -> Any:
    """Everything about a table in partitions, in the order in which it lies there."""
    found = stage_table(source, SCHEMA, plan, folder, misfits=misfits, workers=hands)
    spread = PartitionFinder.write(SPREAD, found.folder)
    spool = found.split(spread, spread.count, hands)
    spread.forget()
    assert {path.name.split("-")[0] for path in found.folder.iterdir()} <= {"index", "run", "partitions.json"}
    tables = [PartitionedTable.open(found.folder, SCHEMA).partition(place) for place in range(spool.count)]
    told = [
        (table.row_numbers.tolist(), table.keys.values, list(table.own_ids), table.matrix().tolist())
        for table in tables
        if table.keys is not None
    ]
    found.remove()
    return told, found.report, (found.rows, found.keys, found.missing, found.repeated)


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 40), st.integers(0, 2**20), st.sampled_from(["csv", "parquet"]), st.data())
def test_whoever_reads_and_splits_it(tmp_path: Path, rows: int, seed: int, kind: str, data: st.DataObject) -> None:
    some = st.sampled_from(["", "a", "b", *(f"p{i}" for i in range(60))])
    table = in_texts(rows, seed, data.draw(st.lists(some, min_size=rows, max_size=rows)))
    edges = sorted(data.draw(st.lists(st.integers(0, rows), max_size=4)))
    plan = KeyPlan(PLAN.keys)
    folder = in_folder(table, tmp_path / f"{len(list(tmp_path.iterdir()))}", edges, kind)
    read = read_table(folder, SCHEMA, keys=plan, misfits="map")
    in_memory = open_source(folder, str(folder)).read_chosen(list)  # which the head alone reads
    expected = in_partitions(in_memory, plan, tmp_path / "spool", lambda chores: iter(()))
    with pytest.MonkeyPatch.context() as patch:
        small_pieces(patch, data.draw(st.sampled_from([1, 300, 1 << 24])), data.draw(st.sampled_from([2, 5, 1000])))
        hands = Others(seed, data.draw(st.sampled_from([0.0, 0.3, 1.0])), data.draw(st.integers(1, 5)))
        assert in_partitions(folder, plan, tmp_path / "spool", hands) == expected
    told, report, counts = expected
    assert report == read.check()
    assert counts == (read.rows, len(read.keys), read.keys.missing, read.keys.repeated)
    assert sorted(row for rows, *_ in told for row in rows) == (read.keys.rows + 1).tolist()


@pytest.mark.parametrize(("kind", "copies"), [("csv", 3), ("parquet", 15), ("one file", 7)])
def test_workers_have_all_of_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, copies: int) -> None:
    table, hands = in_texts(50 if kind == "one file" else 90, 3), Others()
    if kind == "one file":
        put(table, tmp_path / "table.parquet", 8)
    source = Path("table.parquet") if kind == "one file" else in_folder(table, tmp_path / "t", [30, 60], kind)
    expected, *_ = in_partitions(table, PLAN, tmp_path, lambda chores: iter(()))
    small_pieces(monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert in_partitions(source, PLAN, tmp_path, hands)[0] == expected
    assert {"StageShard", "FindRepeatedKeys", "WriteRun"} == set(hands.done)
    assert hands.done.count("StageShard") == copies


def test_pieces_of_about_the_same_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = in_folder(in_texts(1000, 1), tmp_path / "t", [10, 20, 500], groups=100)
    source = open_source(folder)
    assert len(source.shards(["age"])) == 1
    monkeypatch.setattr(file_sets, "_PIECE_BYTES", 3000)
    found = source.shards(["age"])
    ages = [age for piece in found for batch in piece.batches(["age"]) for age in batch["age"].to_pylist()]
    assert ages == in_texts(1000, 1)["age"].to_pylist()
    assert file_sets.shard_bytes(1 << 50) == 1 << 28
    assert 1 < len(found) < 12


def refusals(folder: Path, place: Path, plan: KeyPlan = PLAN) -> set[str]:
    """What is said if the head reads alone, with hands, with hands that fail, and without partitions."""
    reads: list[Callable[[], Any]] = [
        lambda: stage_table(folder, SCHEMA, plan, place, workers=Others(3)),
        lambda: stage_table(folder, SCHEMA, plan, place, workers=Others(4, failing=0.5, at_once=9)),
        lambda: stage_table(folder, SCHEMA, plan, place),
        lambda: stage_table(open_source(folder, str(folder)).read_chosen(list), SCHEMA, plan, place, name=str(folder)),
        lambda: read_table(folder, SCHEMA, keys=plan).check(),
    ]
    said = {refused(DataError, (), read) for read in reads}
    assert list(place.iterdir()) == []
    return said


SIXTY = [f"p{i}" for i in range(60)]
REPEATED = {
    "rows 8, 11, 12, 13, 14 and 17 more: the key in": (
        [*SIXTY[:44], SIXTY[7], *SIXTY[45:50], *SIXTY[10:20]],
        "refuse",
    ),
    "no row has a key": ([""] * 60, "refuse"),
    "no row is left, because every key": (["a"] * 60, "drop"),
}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_bad_cells_broken_rows_and_keys_that_are_repeated_in_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    small_pieces(monkeypatch)
    table = in_texts(60, 2).to_pydict()
    table["age"][47], table["ill"][58] = "old", "perhaps"
    folder = in_folder(pa.table(table), tmp_path / "t", [20, 40], kind)
    (said,) = refusals(folder, tmp_path / "spool")
    assert said.startswith(f"{folder}: column 'age', row 48: the cell is not a number; write it with digits")
    for expected, (ids, rule) in REPEATED.items():
        in_folder(in_texts(60, 2, ids), folder, [20, 40], kind)
        (said,) = refusals(folder, tmp_path / "spool", KeyPlan(PLAN.keys, rule))
        assert f"{folder}: {expected}" in said
    if kind == "csv":
        with (folder / "1.csv").open("a") as file:
            file.write('"x","1"\n')
        (said,) = refusals(folder, tmp_path / "spool")
        check_said(said, "DA163", f"{folder}/1.csv: ", "21")


@pytest.mark.parametrize("rule", ["refuse", "drop"])
def test_a_key_that_most_rows_have_takes_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: Duplicates
) -> None:
    ids = [f"p{i}" if i % 10 == 0 else "none" for i in range(4000)]
    folder = in_folder(in_texts(4000, 2, ids), tmp_path / "t", [1000, 3000], groups=4000)
    small_pieces(monkeypatch, block=100)
    monkeypatch.setattr(staging, "_RUN_KEYS", 100)
    monkeypatch.setattr(staging, "_ROWS", 100)
    sorts, sort = list[int](), np.sort
    monkeypatch.setattr(np, "sort", lambda some: sorts.append(len(some)) or sort(some))
    plan = KeyPlan(PLAN.keys, rule)
    if rule == "refuse":
        refused(DataError, ("DA181", "2, 3, 4, 5, 6 and 3595"), in_partitions, folder, plan, tmp_path, Others(1))
    else:
        read = read_table(folder, SCHEMA, keys=plan, misfits="map")
        told, _, counts = in_partitions(folder, plan, tmp_path / "spool", Others(1))
        assert sorted(row for rows, *_ in told for row in rows) == (read.keys.rows + 1).tolist()
        assert counts[2:] == (0, 3600)
    assert 0 < max(sorts) < 1000


CHANGES: dict[str, Callable[[Path], Any]] = {
    "touched": lambda folder: os.utime(folder / "2.parquet", ns=(1, 1)),
    "added": lambda folder: put(in_texts(5, 1), folder / "3.parquet"),
    "removed": lambda folder: (folder / "2.parquet").unlink(missing_ok=True),
}


@pytest.mark.parametrize("change", CHANGES)
def test_files_that_change_meanwhile_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    folder = in_folder(in_texts(60, 2), tmp_path / "t", [20, 40])
    small_pieces(monkeypatch)

    def hands(chores: Sequence[WorkUnit]) -> Iterator[tuple[int, Any]]:
        for found in Others()(chores):
            yield found
            CHANGES[change](folder)

    refused(DataError, "DA203", stage_table, folder, SCHEMA, PLAN, tmp_path / "spool", workers=hands)
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_file_that_was_not_written_whole_has_no_name(tmp_path: Path) -> None:
    with suppress(KeyError), partitions.write_atomically(tmp_path, "run") as file:
        file.write(b"half")
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    for _ in range(2):
        with partitions.write_atomically(tmp_path, "run") as file:
            file.write(b"one")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"one"]


def test_a_folder_to_which_a_late_worker_writes_is_removed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, rmdir, late = partitions.PrivateTempDir(tmp_path), os.rmdir, ["rows-000003.arrow", "keys-000003"]

    def interrupted(path: Any, **named: Any) -> None:
        if late:
            (found.path / late.pop()).write_bytes(b"of somebody who was told to end")
        rmdir(path, **named)

    monkeypatch.setattr(os, "rmdir", interrupted)
    found.remove()
    assert not late
    assert list(tmp_path.iterdir()) == []


def test_what_is_sent_to_workers_holds_neither_the_store_nor_the_key(tmp_path: Path) -> None:
    class Store:
        holds = "hunter2"

        def __reduce__(self) -> Any:
            raise TypeError("with its credentials")

    file = StoredFile(Store(), "bucket/a.parquet", 1, 2)
    piece = FileShard(
        open_source(in_texts(1, 1), "t"),
        [FilePart(file, "a", None, columns=("age",))],
        TextFormat(),
        pa.schema({"age": pa.string()}),
        "s3://b/",
    )
    sent = pickle.dumps(piece)
    assert b"hunter2" not in sent
    assert again(piece)._stretches[0].at.store is None
    spread = PartitionFinder.write(SPREAD, tmp_path)
    assert spread([b"a", b"b"]).tolist() == SPREAD.of([b"a", b"b"]).tolist()
    assert SPREAD.key not in pickle.dumps(spread)
    assert again(spread)([b"a"]).tolist() == SPREAD.of([b"a"]).tolist()
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600]
    spread.forget()
    assert list(tmp_path.iterdir()) == []


def test_fingerprints_are_equal_where_keys_are_and_their_seeds_are_drawn(tmp_path: Path) -> None:
    found = set()
    for _ in range(2):
        KeyFingerprints.create_seed(tmp_path)
        found.add((tmp_path / "seed").read_bytes())
        KeyFingerprints.delete_seed(tmp_path)
        assert list(tmp_path.iterdir()) == []
    assert [len(seed) for seed in found] == [32, 32]
    (tmp_path / "seed").write_bytes(bytes(32))  # by chance, a few thousand keys may be spread less evenly than below
    keys = [
        f"{len(text):04}{text}".encode() for text in ("a", "b", "ab", "ba", "", "x" * 500, "a", "x" * 500, "y" * 70)
    ]
    found = KeyFingerprints(tmp_path).compute(pa.array(keys, pa.large_binary())).T.tolist()
    for (one, key), (other, another) in product(zip(found, keys, strict=True), repeat=2):
        assert (one[0] == other[0]) == (one[1] == other[1]) == (key == another)
    sliced = pa.array([b"begin", *keys, b"end"], pa.large_binary()).slice(1, len(keys))
    assert KeyFingerprints(tmp_path).compute(sliced).T.tolist() == found
    many = KeyFingerprints(tmp_path).compute(pa.array([f"{i:09}".encode() for i in range(20_000)], pa.large_binary()))
    assert np.bincount((many[0] >> np.uint64(60)).astype(int), minlength=16).max() < 2 * 20_000 / 16


KILLED = """
import os, signal, sys, pyarrow as pa
from colonnade.tables import Key, KeyPlan, Schema, number
from colonnade.tables.partitioning import stage_table
people = pa.table({"person_id": ["a"], "x": [0.5]})
found = stage_table(people, Schema({"x": number(0, 1)}), KeyPlan((Key("person_id"),)), sys.argv[1])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.system
def test_what_a_killed_process_left_is_deleted_by_the_next(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=300)
    (left,) = tmp_path.iterdir()
    (tmp_path / "mine").mkdir()
    found = stage_table(in_texts(9, 1), SCHEMA, PLAN, tmp_path)
    assert not left.exists()
    assert (tmp_path / "mine").exists()
    found.remove()
