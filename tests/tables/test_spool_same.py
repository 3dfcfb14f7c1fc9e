"""A table through partitions is the table that is read as a whole, or the same error, whatever its cells hold."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from colonnade.errors import DataError
from colonnade.protocols.lanes.partitions import Partitions
from colonnade.tables import Key, KeyColumn, KeyPlan, Query, Schema, Table, category, date, flag, number, read_table
from colonnade.tables.encode import Misfits, Report
from colonnade.tables.keys import Duplicates
from colonnade.tables.spool import Gathered, Spool, copying, gather, partitions
from tests.support.errors import raises

SPREAD = Partitions(4, bytes(range(32)))
NUMBERS = ["1", " 2.50 ", "-0", "1e3", ".5", "5.", "+7", "1e999", "", "NA", "nan", "inf", "1,5", "1 000", "x", "007"]
CATEGORIES = ["A", "B", "NA", "", "a", " A", "3", "null", "é"]
FLAGS = ["true", "YES", "0", "1.0", "no", "", "N/A", "2", "maybe", " True "]
DAYS = ["2001-02-03", "1999-12-31", "2001-02-30", "03.02.2001", "", "2001-02-03T10:00", "0000-01-01", " 2001-02-03 "]
IDS = ["a", "b", " a", "a ", "", "007", "7", "é", "e\u0301", "A", "NA"]


def column(texts: list[str], *typed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Strategies for one cell: text of these, or numbers and the like of one type."""
    return st.sampled_from(
        [st.one_of(st.none(), st.sampled_from(texts)), *(st.one_of(st.none(), each) for each in typed)]
    )


FLOATS = st.sampled_from([0.0, 1.0, -1.0, 0.5, 2.0, 1e300, float("inf"), float("nan")])
CELLS: dict[str, st.SearchStrategy[Any]] = {
    "amount": column(NUMBERS, FLOATS, st.integers(-3, 2**40)),
    "whole": column(NUMBERS, FLOATS, st.integers(-3, 9)),
    "group": column(CATEGORIES, st.booleans(), st.integers(0, 4), st.sampled_from([3.0, 1.5, float("nan")])),
    "only": column(["x", "y", ""]),
    "flag": column(FLAGS, st.booleans(), st.integers(0, 2), FLOATS),
    "day": column(DAYS, st.dates()),
    "first": column(IDS, st.integers(0, 3), st.sampled_from([1.0, 2.0, 1.5, float("nan")])),
    "second": column(IDS, st.integers(0, 1)),
    "code": column(IDS, st.sampled_from([1.0, 2.0, 1.5, float("nan")])),
    "other": column(["never", "read"]),
}


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    def said(*choices: object) -> Any:
        return draw(st.sampled_from([{}, *({"missing": each} for each in choices)]))

    return Schema(
        {
            "amount": number(-1, 1, **said("none", "low", 0.25)),
            "whole": number(0, 5, whole=True, transform=draw(st.sampled_from(["none", "log1p"])), **said("middle")),
            "group": category(["A", "B", "NA", "3", "true"], **said("none", "NA")),
            "only": category(["x"], **said("none")),
            "flag": flag(**said(True, False)),
            "day": date(
                "2000-01-01",
                "2010-12-31",
                parts=draw(st.sampled_from([["days"], ["days", "month"], ["weekday"]])),
                **said("none"),
            ),
        },
        clip=draw(st.sampled_from([1.0, 3.0])),
    )


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(1, 12))
    found = {}
    for name, choice in CELLS.items():
        cell = draw(choice)
        array = pa.array(draw(st.lists(cell, min_size=rows, max_size=rows)))
        if draw(st.booleans()) and not pa.types.is_null(array.type):
            array = array.dictionary_encode()
        found[name] = array
    return pa.table(found)


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except DataError as error:
        return str(error)


def described(whole: Table) -> dict[str, Any]:
    """All that a table with keys says of each row that has one, by the number of the row."""
    assert whole.keys is not None
    matrix, numbers, ids = whole.matrix(), whole.row_numbers, whole.own_ids
    columns = {name: whole.column(name) for name in whole.schema.columns}
    return {
        int(numbers[row]): (
            key,
            ids[int(row)],
            matrix[row].tobytes(),
            *(columns[name][row].tobytes() for name in columns),
        )
        for key, row in zip(whole.keys.values, whole.keys.rows.tolist(), strict=True)
    }


def through(gathered: Gathered, schema: Schema) -> dict[str, Any]:
    spool = gathered.split(SPREAD.of, SPREAD.count)
    found = {}
    for place in range(spool.count):
        part = Spool.open(spool.folder, schema).partition(place)
        assert part.keys is not None
        assert set(SPREAD.of(part.keys.values)) <= {place}
        found |= described(part)
    gathered.remove()
    return found


def told(report: Report) -> tuple[Any, ...]:
    return report.rows, dict(report.clipped), dict(report.missing), report.shortened, dict(report.misfits)


def check_same(source: Any, schema: Schema, plan: KeyPlan, folder: Path, **options: Any) -> bool:
    """Whether both ways give a table, which is then the same; otherwise they give the same error."""
    whole = outcome(lambda: read_table(source, schema, keys=plan, **options))
    report = whole if isinstance(whole, str) else outcome(whole.check)
    found = outcome(lambda: gather(source, schema, plan, folder, **options))
    if isinstance(found, str):
        text = {name: said for name, said in options.items() if name not in ("id", "columns")}
        cells = outcome(lambda: read_table(source, schema, id=None, **text).check())
        # A cell's error comes first: whether keys repeat, or are missing in all rows, is known at the end.
        assert found in (report, cells)
        return False
    assert isinstance(report, Report)
    assert told(found.report) == told(report)
    assert whole.keys is not None
    counted = (found.rows, found.keys, found.missing, found.repeated)
    assert counted == (whole.rows, len(whole.keys), whole.keys.missing, whole.keys.repeated)
    assert through(found, schema) == described(whole)
    assert not list(folder.glob(".colonnade*"))
    return True


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables(), schemas(), st.data())
def test_any_cells(tmp_path: Path, table: pa.Table, schema: Schema, data: st.DataObject) -> None:
    misfits = cast("Misfits", data.draw(st.sampled_from(["map", "map", "refuse"])))
    duplicates = cast("Duplicates", data.draw(st.sampled_from(["first", "drop", "refuse"])))
    names = data.draw(st.sampled_from([["first"], ["first", "second"]]))
    plan = KeyPlan(tuple(Key(name, blanks="trim") for name in names), duplicates)
    with pytest.MonkeyPatch.context() as patch:
        if misfits == "map":  # errors name the rows of one block
            patch.setattr(copying, "_BLOCK_ROWS", data.draw(st.sampled_from([1, 5, 1000])))
        patch.setattr(partitions, "_RUN_BYTES", data.draw(st.sampled_from([1, 1 << 20])))
        patch.setattr(partitions, "_LARGE", data.draw(st.sampled_from([0, 1 << 28])))
        named = data.draw(st.sampled_from([None, "code"]))
        columns = None if named is None else {name: KeyColumn(name) for name in names}
        check_same(table, schema, plan, tmp_path, id=named, columns=columns, misfits=misfits)


SCHEMA = Schema(
    {
        "age": number(0, 99, missing="none"),
        "city": category(["Köln", "A;B"], missing="none"),
        "ill": flag(missing=False),
    }
)
PLAN = KeyPlan((Key("person_id"),))
TEXT = (
    'person_id;age;city;ill;note\n007;1,5;Köln;yes;"two\nlines"\n7;;"A;B";0;\n é ;99,25;;true;x\n'
    ';3;Köln;no;no key\n"""q";4e1;"Köln";;y\n'
)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("ending", ["csv", "csv.gz"])
def test_text_files(tmp_path: Path, encoding: str, ending: str) -> None:
    path = tmp_path / f"table.{ending}"
    written = gzip.compress if ending.endswith("gz") else bytes
    path.write_bytes(written(TEXT.encode(encoding)))
    options: dict[str, Any] = {"separator": ";", "decimal": ",", "misfits": "map"}
    said = {} if encoding.startswith("utf-8") else {"encoding": encoding}
    assert check_same(path, SCHEMA, PLAN, tmp_path, **options, **said)
    path.write_bytes(written((TEXT + "8;1\n").encode(encoding)))  # a row that is too short
    assert not check_same(path, SCHEMA, PLAN, tmp_path, **options, **said)


PEOPLE = pa.table(
    {
        "person_id": ["007", "7", "b", "b", None],
        "age": [1.5, None, 3.0, 100.0, 5.0],
        "city": ["Köln", "A;B", None, "Köln", "A;B"],
        "ill": [True, False, None, True, True],
        "note": ["x"] * 5,
    }
)


@pytest.mark.parametrize("duplicates", ["first", "drop", "refuse"])
def test_sources(tmp_path: Path, duplicates: Duplicates) -> None:
    plan = KeyPlan(PLAN.keys, duplicates)
    there = tmp_path / "spool"
    pq.write_table(PEOPLE, tmp_path / "table.parquet", row_group_size=2)
    folder = tmp_path / "parts" / "year=2020"
    folder.mkdir(parents=True)
    pq.write_table(PEOPLE.slice(0, 3), folder / "a.parquet")
    pq.write_table(PEOPLE.slice(3), folder / "b.parquet")
    sources = [PEOPLE, tmp_path / "table.parquet", tmp_path / "parts", PEOPLE.to_pandas()]
    kept = duplicates != "refuse"
    assert [check_same(source, SCHEMA, plan, there, misfits="map") for source in sources] == [kept] * 4


def test_frames_whose_other_columns_hold_anything(tmp_path: Path) -> None:
    frame = PEOPLE.slice(0, 3).to_pandas().set_index("person_id").assign(note=[1, "x", object()])
    assert check_same(frame, SCHEMA, PLAN, tmp_path)
    assert check_same(frame.reset_index().assign(note=[{}, 1, b""]), SCHEMA, PLAN, tmp_path)


def test_queries(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    path = tmp_path / "people.db"
    with duckdb.connect(str(path)) as made:
        made.register("people", PEOPLE)
        made.execute("create table kept as select * from people")
    query = Query("select * from kept order by age", "duckdb", file=path)
    assert check_same(query, SCHEMA, KeyPlan(PLAN.keys, "drop"), tmp_path / "spool", misfits="map")


def test_rows_have_the_same_names_whichever_rows_are_read_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_BLOCK_ROWS", 1)
    held = pa.table({"key": ["a", "b", "c"], "code": [1.0, 2.5, float("nan")], "age": [1.0, 2.0, 3.0]})
    schema, plan = Schema({"age": number(0, 9)}), KeyPlan((Key("key"),))
    options: dict[str, Any] = {"id": "code", "columns": {"key": KeyColumn("key")}}
    assert list(read_table(held, schema, keys=plan, **options).own_ids) == ["1", "2.5", ""]
    assert check_same(held, schema, plan, tmp_path, **options)


def test_the_first_column_with_an_error_is_named(tmp_path: Path) -> None:
    held = pa.table({"person_id": ["a", "b"], "age": ["", "1"], "ill": ["yes", "x"]})
    schema = Schema({"age": number(0, 9), "ill": flag()})
    with raises(DataError, "DA152", "age", "1"):
        gather(held, schema, PLAN, tmp_path)
    assert not check_same(held, schema, PLAN, tmp_path)
