"""Partitions on disk: every row that has a key is in exactly one, as the whole table has it, or the same error is said.

Whatever the cells hold, wherever the rows lie.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from colonnade.errors import DataError
from colonnade.protocols.lanes.partitions import Partitions
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
from colonnade.tables.cells import InMemory, OnDisk
from colonnade.tables.encode import Report
from colonnade.tables.spool import Spool, copying, gather, partitions, room, split
from tests.support.errors import refused
from tests.support.tables import in_texts, put, small_pieces

SCHEMA = Schema({"age": number(0, 99, missing="none"), "ill": flag(missing=False)})
PLAN = KeyPlan((Key("person_id"),))
ANY_KEY = bytes(range(32))
SPREAD = Partitions(4, ANY_KEY)


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


def check_parts(spool: Spool, whole: Table, spread: Partitions = SPREAD) -> None:
    """All partitions together are the rows of the table that have keys, each once."""
    found: dict[str, Any] = {}
    for place in range(spool.count):
        part = Spool.open(spool.folder, whole.schema).partition(place)
        assert set(spread.of(part.keys.values)) <= {place}
        assert part.keys.rows.tolist() == list(range(part.rows))
        assert (np.diff(part.row_numbers) > 0).all()
        assert spool.lengths[place] == part.rows == len(part)
        about = [(each.source, each.misfits, each.schema, each.named, each.keys.names) for each in (part, whole)]
        assert about[0] == about[1]
        mixed = np.random.default_rng(place).permutation(part.rows)
        aligned = part.aligned(mixed, [str(row) for row in range(part.rows)])
        np.testing.assert_array_equal(aligned.matrix(), part.matrix()[mixed])
        for view, rows in ((aligned, mixed), (part.take_rows(mixed[:3]), mixed[:3])):
            assert view.row_numbers.tolist() == part.row_numbers[rows].tolist()
        found |= described(part)
    assert found == described(whole)


def check_same(
    source: Any, schema: Schema, plan: KeyPlan, folder: Path, spread: Partitions = SPREAD, **options: Any
) -> bool:
    """Whether both ways give a table, which is then the same; otherwise they give the same error."""
    whole = outcome(lambda: read_table(source, schema, keys=plan, **options))
    report = whole if isinstance(whole, str) else outcome(whole.check)
    found = outcome(lambda: gather(source, schema, plan, folder, **options))
    if isinstance(found, str):
        text = {name: said for name, said in options.items() if name not in ("id", "columns")}
        cells = outcome(lambda: read_table(source, schema, id=None, **text).check())
        # A cell's error comes first: whether keys repeat, or are missing in all rows, is known at the end.
        assert found in (report, cells)
    else:
        assert isinstance(report, Report)
        assert found.report == report
        counted = (found.rows, found.keys, found.missing, found.repeated)
        assert counted == (whole.rows, len(whole.keys), whole.keys.missing, whole.keys.repeated)
        check_parts(found.split(spread.of, spread.count), whole, spread)
        found.remove()
        again = split(whole, spread.of, spread.count, folder)
        check_parts(again, whole, spread)
        again.remove()
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


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables(), schemas(), st.data())
def test_any_cells(tmp_path: Path, table: pa.Table, schema: Schema, data: st.DataObject) -> None:
    misfits = data.draw(st.sampled_from(["map", "map", "refuse"]))
    duplicates = data.draw(st.sampled_from(["first", "drop", "refuse"]))
    names = data.draw(st.sampled_from([["first"], ["first", "second"]]))
    plan = KeyPlan(tuple(Key(name, blanks="trim") for name in names), duplicates)
    with pytest.MonkeyPatch.context() as patch:
        if misfits == "map":  # errors name the rows of one block
            patch.setattr(copying, "_BLOCK_ROWS", data.draw(st.sampled_from([1, 5, 1000])))
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


@pytest.mark.parametrize(
    ("encoding", "ending"), [("latin-1", "csv"), ("utf-8", "csv.gz"), ("utf-16", "csv"), ("utf-8-sig", "csv.gz")]
)
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


@pytest.mark.parametrize("duplicates", ["first", "drop", "refuse"])
def test_sources(tmp_path: Path, duplicates: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
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
    for anything in (frame, frame.reset_index().assign(note=[{}, 1, b""])):
        assert check_same(anything, PEOPLE_SCHEMA, plan, tmp_path / "spool")


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
    assert partitions.run_bytes(0) == partitions.run_bytes(1 << 34) == 1 << 26
    assert partitions.run_bytes(1 << 36) == partitions.run_bytes(1 << 50) == 1 << 28
    assert partitions.run_bytes(1 << 50, 1 << 34) == 1 << 30
    assert 1 << 27 < partitions.run_bytes(1 << 50, 10**9) < 1 << 28
    assert partitions.run_bytes(0, 3 * 10**8) == 1 << 24
    small_pieces(monkeypatch)
    monkeypatch.setattr(partitions, "_RUN_BYTES", 1)
    held, found = in_texts(100, 3), []
    for most in (4, 1000):
        monkeypatch.setattr(partitions, "_RUNS", most)
        gathered = gather(held, SCHEMA, PLAN, tmp_path)
        spool = gathered.split(SPREAD.of, 4)
        found.append(len(list(spool.folder.glob("run-*"))))
        assert {path.name.split("-")[0] for path in spool.folder.iterdir()} <= {"index", "run", "spool.json"}
        check_parts(spool, read_table(held, SCHEMA, keys=PLAN))
    assert 2 <= found[0] <= 4 < found[1] <= 40


def test_rows_of_a_file_and_of_a_stream_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, read, calls = in_texts(30, 5), files.read_batches, list[Any]()

    class Once:
        columns = held.column_names

        def __arrow_c_stream__(self, requested: object = None) -> Any:
            calls.append(requested)
            return held.__arrow_c_stream__(requested)

    path = put(held, tmp_path / "table.csv")
    monkeypatch.setattr(files, "read_batches", lambda *given: calls.append(given) or read(*given))
    for source in (path, Once()):
        calls.clear()
        spool = gather(source, SCHEMA, PLAN, tmp_path).split(SPREAD.of, 4)
        assert sum(len(spool.partition(place).matrix()) for place in range(4)) == 30
        assert len(calls) == 1


BAD = {"age": "old", "born": "31.02.1990", "city": "Z", "ill": "maybe"}


@pytest.mark.parametrize("name", BAD)
def test_misfits_are_counted_or_refused_as_in_the_table(tmp_path: Path, name: str) -> None:
    cells = {"person_id": ["a", "b", "c"], "age": ["1"] * 3, "city": ["Köln"] * 3, "ill": ["no"] * 3, "born": [""] * 3}
    held = pa.table(cells | {name: [cells[name][0], BAD[name], cells[name][0]]})
    assert not check_same(held, PEOPLE_SCHEMA, PLAN, tmp_path)
    assert check_same(held, PEOPLE_SCHEMA, PLAN, tmp_path, misfits="map")


def test_the_first_column_with_an_error_is_named(tmp_path: Path) -> None:
    schema = Schema({"age": number(0, 9), "city": category(["A"]), "smoker": flag()})
    held = pa.table(
        {"person_id": list("abc"), "age": ["1", "x", ""], "city": ["", "B", "A"], "smoker": ["yes", "", "2"]}
    )
    refused(DataError, ("DA200", "age", "2"), gather, held, schema, PLAN, tmp_path)
    assert not check_same(held, schema, PLAN, tmp_path)
    assert check_same(held, schema, PLAN, tmp_path, misfits="map")
    filled = held.set_column(1, "age", pa.array(["", "1", "2"]))
    refused(DataError, ("DA152", "age", "1"), gather, filled, schema, PLAN, tmp_path)
    assert not check_same(filled, schema, PLAN, tmp_path)


@pytest.mark.parametrize("ids", [["a", "b", "a", "c", "b", "a"], ["a", "a"], ["", None], ["x"] * 9], ids=str)
@pytest.mark.parametrize("duplicates", ["refuse", "drop"])
def test_keys_are_refused_in_the_same_words(
    tmp_path: Path, ids: list[str | None], duplicates: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_BLOCK_ROWS", 2)
    held = pa.table({"person_id": pa.array(ids, pa.string()), "age": [1.0] * len(ids)})
    plan = KeyPlan((Key("person_id"),), duplicates)
    same = check_same(held, Schema({"age": number(0, 9)}), plan, tmp_path)
    assert same == (duplicates == "drop" and "c" in ids)


def test_different_keys_of_which_one_number_is_the_same_are_no_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alike(self: object, keys: Any) -> Any:
        last = np.array([key[-1] for key in keys.to_pylist()], np.uint64)
        return np.array([last % 2, np.arange(len(keys))], np.uint64)

    monkeypatch.setattr(copying.Fingerprints, "of", alike)
    assert check_same(in_texts(30, 4), SCHEMA, PLAN, tmp_path)


def test_nobody_has_a_key_and_rows_have_the_same_names_whichever_are_read_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, nobody = Schema({"age": number(0, 9)}), pa.table({"person_id": ["", ""], "age": [1.0, 2.0]})
    assert check_same(nobody, schema, PLAN, tmp_path, misfits="map")
    spool = gather(nobody, schema, PLAN, tmp_path, misfits="map").split(SPREAD.of, 4)
    part = Spool.open(spool.folder, schema).partition(1)
    assert (part.rows, part.matrix().shape, list(part.own_ids), spool.lengths.sum()) == (0, (0, 1), [], 0)
    assert part.aligned([], []).matrix().shape == (0, 1)
    spool.remove()
    monkeypatch.setattr(copying, "_BLOCK_ROWS", 1)
    held = pa.table({"key": ["a", "b", "c"], "code": [1.0, 2.5, float("nan")], "age": [1.0, 2.0, 3.0]})
    options: dict[str, Any] = {"id": "code", "columns": {"key": KeyColumn("key")}}
    plan = KeyPlan((Key("key"),))
    assert list(read_table(held, schema, keys=plan, **options).own_ids) == ["1", "2.5", ""]
    assert check_same(held, schema, plan, tmp_path, **options)


@pytest.fixture
def whole() -> Table:
    return read_table(in_texts(40, 8), SCHEMA, keys=PLAN)


def test_errors_of_a_partition_name_rows_of_the_file(tmp_path: Path, whole: Table) -> None:
    part = split(whole, SPREAD.of, 4, tmp_path).partition(1)
    part.schema = Schema({"ill": category(["yes"], missing="none")})
    answers = in_texts(40, 8)["ill"].to_pylist()
    row = next(number for number in part.row_numbers.tolist() if answers[number - 1] == "no")
    refused(DataError, ("DA193", "ill", row), part.check)


def test_the_folder_is_private_and_goes_away(tmp_path: Path, whole: Table) -> None:
    parent = tmp_path / "made" / "for it"
    before = os.umask(0)
    try:
        found = gather(in_texts(9, 1), SCHEMA, PLAN, parent)
        spool = found.split(SPREAD.of, 4)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (parent.parent, parent, spool.folder)} == {0o700}
    assert {stat.S_IMODE(file.stat().st_mode) for file in spool.folder.iterdir()} == {0o600}
    other = split(whole, SPREAD.of, 4, parent)
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
    refused(DataError, "DA267", gather, in_texts(9, 1), SCHEMA, PLAN, parent)
    parent.chmod(0o1777)  # as /tmp has it
    gather(in_texts(9, 1), SCHEMA, PLAN, parent).remove()
    assert list(parent.iterdir()) == []


def test_links_among_what_was_left_are_not_followed(tmp_path: Path) -> None:
    parent, precious = tmp_path / "spool", tmp_path / "precious"
    left = parent / ".colonnade-spool.abcdefgh.new"
    left.mkdir(parents=True)
    precious.mkdir()
    (precious / "file").write_text("kept")
    (parent / ".colonnade-spool.hgfedcba.new").symlink_to(precious)
    (left / "inside").symlink_to(precious)
    gather(in_texts(9, 1), SCHEMA, PLAN, parent).remove()
    assert not left.exists()
    assert (precious / "file").read_text() == "kept"


class _Full:
    """A file on a full disk."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.closed = False

    def write(self, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Full:
        return self

    def __exit__(self, *args: object) -> None:
        self._file.close()


WRITTEN = (
    "rows-000000.arrow", "seed", "keys-000000", "dropped-000000", "run-000000.arrow", "run-000000.index", "index",
    "spool.json",
)  # fmt: skip


@pytest.mark.parametrize("which", WRITTEN)
def test_a_full_disk_is_a_sentence_that_names_the_folder(
    tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, held = room._create, in_texts(9, 1)
    twice, plan = pa.concat_tables([held, held]), KeyPlan(PLAN.keys, "first")

    def full(path: Path) -> Any:
        return _Full(create(path)) if path.name.startswith(f".{which}.") else create(path)

    def both() -> None:
        gather(twice, SCHEMA, plan, tmp_path).split(SPREAD.of, 4)

    monkeypatch.setattr(room, "_create", full)
    refused(DataError, ("DA266", "No space left on device", tmp_path), both)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_hold_something_else(tmp_path: Path, whole: Table) -> None:
    refused(DataError, "DA262", Spool.open, tmp_path, SCHEMA)
    for text in ("[]", "{}", '{"format": "colonnade spool 1"}', "x"):
        (tmp_path / "spool.json").write_text(text)
        refused(DataError, "DA262|VA245", Spool.open, tmp_path, SCHEMA)
    inside = tmp_path / "spool.json" / "inside"  # which cannot be made
    refused(DataError, ("DA266", tmp_path), gather, in_texts(9, 1), SCHEMA, PLAN, inside)
    spool = split(whole, SPREAD.of, 4, tmp_path)
    refused(DataError, "DA263", Spool.open, spool.folder, SCHEMA.without(["age"]))
    refused(IndexError, (), spool.partition, 4)
    (spool.folder / "run-000000.arrow").write_bytes(b"x")
    refused(DataError, "DA264", spool.partition, 0)


def test_partitions_that_are_none_are_refused_and_nothing_is_left(tmp_path: Path, whole: Table) -> None:
    for spread, count in ((Partitions(8, ANY_KEY), 2), (SPREAD, 0), (SPREAD, 1 << 17)):
        refused(ValueError, "VA247|VA248", split, whole, spread.of, count, tmp_path)
    refused(ValueError, "VA244", split, read_table(in_texts(9, 1), SCHEMA), SPREAD.of, 4, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_large_partitions_stay_on_disk_and_many_take_few_files(
    tmp_path: Path, whole: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = split(whole, Partitions(partitions.MOST, ANY_KEY).of, partitions.MOST, tmp_path)
    assert (len(list(spool.folder.iterdir())), spool.lengths.sum()) == (3, 40)
    last = int(np.flatnonzero(spool.lengths)[-1])
    assert spool.partition(last).rows == spool.lengths[last]
    spool = split(whole, SPREAD.of, 4, tmp_path)
    assert isinstance(spool.partition(0)._cells, InMemory)
    monkeypatch.setattr(partitions, "_LARGE", 100)
    part = spool.partition(0)
    assert isinstance(part._cells, OnDisk)
    del spool  # the folder stays until nobody reads from it
    assert len(part.matrix()) == part.rows > 0
    del part
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, read = put(in_texts(50, 1), tmp_path / "table.csv"), files.read_batches

    def touched(*given: Any) -> Iterator[pa.RecordBatch]:
        yield from read(*given)
        os.utime(path, ns=(1, 1))

    monkeypatch.setattr(files, "read_batches", touched)
    refused(DataError, "DA203", gather, path, SCHEMA, PLAN, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["table.csv"]
