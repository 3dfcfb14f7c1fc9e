"""Where rows lie: the same rows from every source, only the columns that are asked for, and changes are noticed."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.fs
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import DataError, StudyError
from colonnade.study import PartyConfig
from colonnade.tables import (
    Query,
    Schema,
    category,
    date,
    draft_schema,
    files,
    flag,
    number,
    read_table,
    table as reading,
)
from colonnade.tables.cell_parsing import AS_USUAL, TextFormat
from colonnade.tables.profiling import profile_table
from colonnade.tables.sources import base, file_sets
from colonnade.tables.sources.base import TableSource, concat_batches, simplify_batch, simplify_type
from colonnade.tables.sources.databases import DRIVERS, DuckDbDriver
from colonnade.tables.sources.factory import TempCopySource, copy_rows, open_source
from colonnade.tables.sources.object_stores import (
    StoredFile,
    check_address,
    compile_pattern,
    is_table_file,
    redact_address,
)
from colonnade.tables.table import OnDiskCells
from tests.support.errors import raises, refused
from tests.support.tables import in_folder, put

SCHEMA = Schema({"age": number(0, 100, missing=1), "city": category(["A", "B"], missing="none")}, description="people")
AGE = Schema({"age": number(0, 100, missing=50)}, description="people")
SHEETS = Path(__file__).parents[1] / "fixtures" / "spreadsheets"
"""What is in Excel files of one and of two tables; the day is the number of days since 1899-12-30."""


def people(rows: int = 600) -> pa.Table:
    draws = np.random.default_rng(3)
    return pa.table(
        {
            "person_id": [f"p{i:05d}" for i in range(rows)],
            "age": draws.uniform(-10, 110, rows),
            "city": draws.choice(["A", "B"], rows),
            "unused": draws.uniform(size=rows),
        }
    )


def equal(source: Any, table: pa.Table | None = None, schema: Schema = SCHEMA) -> None:
    """The rows of a table, in any order, whether they are in memory or not."""
    wanted = read_table(people() if table is None else table, schema).sorted_by_id()
    for on_disk in (None, True):
        found = read_table(source, schema, on_disk=on_disk).sorted_by_id()
        assert found.ids == wanted.ids
        assert np.array_equal(found.matrix(), wanted.matrix())


def text(path: Path, *rows: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("person_id,age\n" + "".join(f"{row}\n" for row in rows))
    return path


def ids(source: Any) -> list[str]:
    return list(read_table(source, AGE).ids)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Three files, beside things that are no tables."""
    folder = in_folder(people(), tmp_path / "lake", [250, 500], groups=100)
    (folder / "_SUCCESS").touch()
    (folder / "read.me").write_text("nothing")
    put(people(), folder / "_temporary" / "9.parquet")
    return folder


# --- folders


def test_a_folder_and_a_pattern(lake: Path, tmp_path: Path) -> None:
    for source in (lake, str(lake / "*.parquet"), str(tmp_path / "*" / "[0-9].parquet")):
        equal(source)
    found = open_source(lake)
    assert (found.count(), found.columns(), profile_table(lake, SCHEMA).rows) == (600, people().column_names, 600)
    refused(DataError, "DA229", read_table, str(lake / "*.csv"), SCHEMA)


def test_text_files_of_a_folder_are_read_as_text(tmp_path: Path) -> None:
    table = pa.table({"person_id": ["007", "008"], "age": [1, 2], "city": ["A", "B"]})
    folder = in_folder(table, tmp_path / "d", [1], "csv")
    equal(folder, table)
    (folder / "1.csv").write_bytes("person_id,age,city\n1,2,Mün\n".encode("latin-1"))
    refused(DataError, ("DA270", "1.csv", "LATIN-1"), read_table, folder, SCHEMA, on_disk=True)
    (folder / "1.csv").write_text("person_id,age,city\n1,x,A\n")
    refused(DataError, ("DA200", "age", "2"), read_table(folder, SCHEMA).check)


def test_folders_that_name_a_column(tmp_path: Path) -> None:
    table = people()
    for city in ("A", "B"):
        some = table.filter(pa.compute.equal(table["city"], city)).drop_columns(["city"])
        put(some, tmp_path / "lake" / f"city={city}" / "part.parquet")
    hive = pyarrow.dataset.dataset(tmp_path / "lake", partitioning="hive")
    for source in (tmp_path / "lake", str(tmp_path / "lake" / "*" / "*.parquet"), hive):
        equal(source)
    put(table.drop_columns(["city"]), tmp_path / "lake" / "town=C" / "part.parquet")
    refused(DataError, "DA230", read_table, tmp_path / "lake", SCHEMA)
    schema = Schema({"where": category(["a b", "c/d"], missing="none")}, description="x")
    for place, folder in enumerate(("where=a%20b", "where=c%2Fd", "where=__HIVE_DEFAULT_PARTITION__")):
        put(pa.table({"person_id": [f"p{place}"]}), tmp_path / "signs" / folder / "x.parquet")
    equal(tmp_path / "signs", pa.table({"person_id": ["p0", "p1", "p2"], "where": ["a b", "c/d", None]}), schema)
    text(tmp_path / "own" / "age=7" / "a.csv", "a,1")
    assert open_source(tmp_path / "own").read(["age"])["age"].to_pylist() == ["1"], "a column of the file counts more"


def test_types_that_differ_between_files(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    table = pa.table({"person_id": ["a", "b"], "age": pa.array([7, 9], pa.int32()), "city": ["A", "B"]})
    put(table, folder / "a.parquet")
    put(pa.table({"person_id": ["c"], "age": [7.5], "city": pa.array([None], pa.null())}), folder / "b.parquet")
    coded = pa.table({"person_id": ["d"], "age": [3], "city": pa.array(["B"]).dictionary_encode(), "more": [4]})
    put(coded, folder / "c.parquet")
    whole = {"person_id": ["a", "b", "c", "d"], "age": [7, 9, 7.5, 3], "city": ["A", "B", None, "B"]}
    equal(folder, pa.table(whole))
    assert open_source(folder).columns() == ["person_id", "age", "city", "more"]
    refused(DataError, ("DA232", "a.parquet", "more"), read_table, folder, Schema({"more": number(0, 9)}))
    twice = pa.Table.from_arrays([pa.array(["c"]), pa.array([1]), pa.array([2])], names=["person_id", "age", "age"])
    for wrong, *said in (
        (table.set_column(1, "age", pa.array(["x", "y"])), "DA233", "age"),
        (table.drop_columns(["city"]), "DA232", "city"),
        (twice, "DA231", "age"),
    ):
        put(wrong, folder / "c.parquet")
        refused(DataError, (*said, "c.parquet"), read_table, folder, SCHEMA)


@pytest.mark.parametrize("change", ["added", "removed", "changed"])
def test_changes_of_a_folder_are_noticed(lake: Path, change: str) -> None:
    table = read_table(lake, SCHEMA, on_disk=True)
    table.check()
    if change == "removed":
        (lake / "1.parquet").unlink()
    else:
        put(people(10), lake / ("3.parquet" if change == "added" else "1.parquet"))
    refused(DataError, "DA203", table.check)


def test_what_changes_while_it_is_read_is_said_to_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where what is there now cannot be read at all."""
    path, untouched = put(people(2), tmp_path / "a.parquet"), files.read_batches

    def touched(*given: Any) -> Iterator[Any]:
        path.write_bytes(b"PAR1 and nothing else")
        yield from untouched(*given)

    monkeypatch.setattr(files, "read_batches", touched)
    refused(DataError, "DA203", read_table, tmp_path, AGE)


def test_folders_that_are_linked_are_read_and_none_twice(tmp_path: Path) -> None:
    lake, pattern = tmp_path / "lake", str(tmp_path / "lake" / "**" / "*.csv")
    text(lake / "a.csv", "a,1")
    text(tmp_path / "elsewhere" / "b.csv", "b,2")
    (lake / "link").symlink_to(tmp_path / "elsewhere")
    assert ids(lake) == ids(pattern) == ["a", "b"]
    (tmp_path / "elsewhere" / "up").symlink_to(lake)
    for source in (lake, pattern):
        refused(DataError, "DA235|DA236", read_table, source, AGE)


def test_what_is_taken_for_a_table_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    for name in ("a.csv", "a.csv.bak", "a.csv.crc", "b.parquet.tmp", "_temporary/c.csv", ".d.csv", "notes.md"):
        text(folder / name, f"{name},1")
    text(folder / "e.CSV", "e,1")
    (folder / "f.csv").mkdir()
    assert ids(folder) == ["a.csv", "e"]
    assert ids(str(folder / "**" / "*.csv")) == ["a.csv"]
    assert ids(str(folder / "_temporary" / "*.csv")) == ["_temporary/c.csv"]
    assert [is_table_file(name) for name in ("x/part-0.snappy.parquet", "part.csv.gz", "x.gz")] == [True, True, False]
    text(tmp_path / "x[1]" / "a.csv", "right,1")
    text(tmp_path / "x1" / "a.csv", "wrong,1")
    assert ids(str(tmp_path / "x[1]" / "*.csv")) == ["right"]


def test_a_folder_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows would be missing without a word."""
    text(tmp_path / "lake" / "closed" / "a.csv", "a,1")
    text(tmp_path / "lake" / "b.csv", "b,1")
    real = os.scandir

    def closed(path: Any) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", closed)
    refused(DataError, ("DA234", "Permission denied"), read_table, tmp_path / "lake", AGE)


# --- stores


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Callable[..., TableSource], list[Any]]:
    """Files of a store with this content, by name, and those that are read from their beginning."""
    streams, stream = list[Any](), StoredFile.stream
    monkeypatch.setattr(StoredFile, "stream", lambda file: streams.append(file) or stream(file))

    def made(text: TextFormat = AS_USUAL, **held: bytes) -> TableSource:
        listed = []
        for name, content in held.items():
            path = tmp_path / f"{name}.{'parquet' if content.startswith(b'PAR1') else 'csv'}"
            path.write_bytes(content)
            found = StoredFile(pyarrow.fs.LocalFileSystem(), str(path), len(content), 1)
            listed.append(file_sets.FilePart(found, path.name, (found.size, 1), ()))
        return file_sets.FileSet("s3://b/x/", lambda: listed, text, address="s3://b/x/")

    return made, streams


WHOLE = "person_id,age,city\np1,3,A\np2,4,Ä\n"


def test_text_from_a_store_is_read_and_counted_once_and_its_encoding_checked_to_the_end(
    tmp_path: Path, stored: tuple[Callable[..., TableSource], list[Any]]
) -> None:
    made, streams = stored
    assert made(a=WHOLE.encode()).read(["city"])["city"].to_pylist() == ["A", "Ä"]
    assert len(streams) == 2  # the header, and the rows
    bad = made(a=WHOLE.encode(), b="person_id,age,city\np1,3,A\np2,Ä,A,1\n".encode("latin-1"))
    refused(DataError, ("DA270", "b.csv", "LATIN-1"), read_table, bad, SCHEMA)
    latin = TextFormat(encoding="latin-1")
    assert made(latin, a=WHOLE.encode("latin-1")).read(["city"])["city"].to_pylist() == ["A", "Ä"]
    other = made(latin, a=WHOLE.encode("latin-1"), b=WHOLE.encode())
    refused(DataError, ("DA270", "b.csv"), other.read, ["city"])
    refused(DataError, ("DA269", "c.csv"), made(c=WHOLE.encode()[:-2]).read, ["city"])
    streams.clear()
    assert made(a=b'person_id,age\np1,3\np2,4\n"p\n3",5\n').count() == 3
    assert len(streams) == 2  # the header, and the rows
    assert made(c=put(people(), tmp_path / "b.parquet").read_bytes()).count() == 600
    assert len(streams) == 2


# --- memory


def test_a_copy_holds_the_rows_in_a_file_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    batches = people().to_batches(max_chunksize=50)
    source = open_source(batches[0].schema.empty_table())
    kept = TempCopySource("t", iter(batches))
    assert not list(tmp_path.iterdir())
    found = pa.Table.from_batches(list(kept.batches(["city", "age"])))
    assert found.equals(people().select(["city", "age"]))
    monkeypatch.setattr(source, "batches", lambda _: iter(batches), raising=False)
    assert isinstance(copy_rows(source, ["age"], 1000), TempCopySource)
    assert copy_rows(source, ["age"], None).num_rows == 600


class Frame:
    """Speaks Arrow and nothing else; what it gives is made anew each time."""

    def __init__(self, make: Callable[[], pa.Table | pa.RecordBatchReader]) -> None:
        self.make = make

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.make().__arrow_c_stream__(requested_schema)


def test_anything_that_speaks_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    views = people().set_column(0, "person_id", pa.array(people()["person_id"].to_pylist(), pa.string_view()))
    equal(Frame(lambda: views.set_column(2, "city", people()["city"].dictionary_encode())))
    monkeypatch.setattr(reading, "_LARGE", 1000)
    assert isinstance(read_table(Frame(people), SCHEMA)._cells, OnDiskCells)
    lacking = Frame(lambda: people().drop_columns(["city"]))
    for source, said in ((lacking, ("DA154", "city")), (people().to_reader(), "DA224"), (5, ("DA227", "int"))):
        refused(DataError, said, read_table, source, SCHEMA)
    assert "[columns.age]" in draft_schema(Frame(people), id="person_id")


def test_no_more_than_a_few_batches_are_in_memory() -> None:
    """Of a stream that is thirty times as long as what may be in memory."""
    rows = 1 << 10
    table = pa.table({"person_id": [f"p{i}" for i in range(rows)], "age": np.zeros(rows), "city": ["A"] * rows})
    most, every = 0, pa.array(range(rows))

    def batches() -> Iterator[Any]:
        nonlocal most
        for _ in range(240):
            most = max(most, pa.total_allocated_bytes() - before)
            yield table.to_batches()[0].take(every)

    gc.collect()
    before = pa.total_allocated_bytes()
    limit = 8 * table.nbytes
    stream = Frame(lambda: pa.RecordBatchReader.from_batches(table.schema, batches()))
    found = copy_rows(open_source(stream), ["age", "city"], limit)
    assert isinstance(found, TempCopySource)
    assert found.size(list) > 15 * limit / 2
    assert most < limit + 12 * table.nbytes


def test_errors_of_what_holds_rows_are_a_sentence_without_data() -> None:
    duckdb = pytest.importorskip("duckdb")

    def batches() -> Iterator[Any]:
        yield people(1).to_batches()[0]
        raise RuntimeError("never-show-me")

    failing = Frame(lambda: pa.RecordBatchReader.from_batches(people(1).schema, batches()))
    given = [failing, Frame({}.popitem), Frame(iter([people(1)]).__next__)]
    with duckdb.connect() as made:
        given.append(made.sql("select 'a' as person_id, cast('never-show-me' || i as int) as age from range(3) r(i)"))
        refused(DataError, "DA225", read_table, given[-1], AGE)
    for each in given:  # the connection of the last is closed now
        assert "never-show-me" not in refused(DataError, "DA225", read_table, each, AGE)


def test_ids_of_sixteen_bytes_are_read_as_they_are_written() -> None:
    made = [uuid.UUID(int=7), uuid.UUID("12345678-90ab-cdef-1234-567890abcdef"), None, uuid.UUID(int=2**128 - 1)]
    cells = pa.array([None if each is None else each.bytes for each in made], pa.binary(16))
    field = pa.field("u", pa.binary(16), metadata={"ARROW:extension:name": "arrow.uuid"})
    batches = [pa.record_batch([cells], schema=pa.schema([field]))]  # as an Arrow says it that does not know the type
    if hasattr(pa, "uuid"):
        batches.append(pa.record_batch([pa.ExtensionArray.from_storage(pa.uuid(), cells)], names=["u"]))
        assert simplify_type(pa.uuid()) == pa.large_string()
    for batch, start in product(batches, range(4)):
        found = simplify_batch(batch.slice(start)).column(0)
        found.validate(full=True)
        assert found.to_pylist() == [None if each is None else str(each) for each in made[start:]]


def test_whole_numbers_of_any_length_are_ids_and_codes() -> None:
    """Warehouses give them as decimals without a fraction."""
    long = 10**30 + 7
    cells = pa.array([long, 5], pa.decimal128(38, 0))
    assert ids(pa.table({"person_id": cells, "age": [1, 2]})) == [str(long), "5"]
    schema = Schema({"code": category(["5", str(long)])}, description="x")
    assert read_table(pa.table({"person_id": ["a", "b"], "code": cells}), schema).matrix().tolist() == [[0, 1], [1, 0]]
    fractions = cells.slice(1).cast(pa.decimal128(9, 2))
    refused(DataError, ("DA173", "9, 2"), ids, pa.table({"person_id": fractions, "age": [1]}))


# --- columns that are put together batch by batch


@settings(max_examples=100)
@given(
    batches=st.lists(
        st.lists(st.one_of(st.none(), st.text(st.sampled_from("aé😀 "), max_size=4)), max_size=8),
        min_size=1,
        max_size=5,
    ),
    kind=st.sampled_from([pa.string(), pa.large_string()]),
    cut=st.integers(0, 3),
)
def test_texts_of_batches_that_begin_anywhere(batches: list[list[str | None]], kind: Any, cut: int) -> None:
    whole = [pa.record_batch({"t": pa.array(texts, kind), "n": list(range(len(texts)))}) for texts in batches if texts]
    cut_off = [batch.slice(cut) for batch in whole]
    schema = pa.schema([("t", pa.large_string()), ("n", pa.int64())])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(base, "_LEAST", 1)
        found = concat_batches(iter(cut_off), ["t", "n"])
    found.validate(full=True)
    assert found["t"].type == pa.large_string()
    if cut_off:
        assert found.equals(pa.Table.from_batches(cut_off).cast(schema))
        assert [column.num_chunks for column in found.columns] == [1, 1]


def test_views_dictionaries_and_no_rows() -> None:
    views = pa.record_batch({"t": pa.array(["a long text that is not kept in place", None], pa.string_view())})
    assert concat_batches(iter([views]), ["t"])["t"].to_pylist() == views["t"].to_pylist()
    coded = [pa.record_batch({"t": pa.array([text]).dictionary_encode()}) for text in ("a", "b")]
    assert concat_batches(iter(coded), ["t"])["t"].to_pylist() == ["a", "b"]
    none = concat_batches(iter([]), ["t", "n"])
    assert (none.num_rows, none.column_names, none["n"].type) == (0, ["t", "n"], pa.large_string())


def test_a_column_is_there_once() -> None:
    """Of forty batches, Arrow holds one at a time: the rows so far are in one place, outside its memory."""
    most, before = 0, pa.total_allocated_bytes()

    def batches() -> Any:
        nonlocal most
        for start in range(0, 400_000, 10_000):
            most = max(most, pa.total_allocated_bytes() - before)
            yield pa.record_batch({"t": pa.array([f"p{row:07d}" for row in range(start, start + 10_000)])})

    found = concat_batches(batches(), ["t"])
    assert (found["t"][399_999].as_py(), found.num_rows) == ("p0399999", 400_000)
    assert most < 4 * 12 * 10_000


# --- spreadsheets


def test_a_spreadsheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell means what it would mean in a CSV file: whole numbers are ids, days are dates, nothing is missing."""
    columns = {"since": date("2020-01-01", "2024-12-31"), "ill": flag()}
    schema = Schema({**AGE.columns, "city": category(["A", "B"], missing="none"), **columns}, description="people")
    path, two = (shutil.make_archive(str(tmp_path / name), "zip", SHEETS / name) for name in ("one", "two"))
    path, two = (Path(made).rename(f"{made}.xlsx") for made in (path, two))
    found = read_table(path, schema)
    same = tmp_path / "t.csv"
    same.write_text("person_id,age,city,since,ill\n7,33.25,A,2023-05-17,true\n8,,B,2023-05-17,false\n")
    assert list(found.ids) == ["7", "8"]
    assert np.array_equal(found.matrix(), read_table(same, schema).matrix())
    assert profile_table(path, schema).rows == open_source(path).count() == 2
    assert "[columns.ill]" in draft_schema(path, id="person_id")
    refused(DataError, "DA248", read_table, two, schema)
    refused(DataError, "DA160", read_table, tmp_path / "none.xlsx", schema)
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    refused(DataError, ("DA223", "excel"), read_table, path, schema)


PARTY = """\
name = "bank"
{data}
id = "person_id"
key = "bank.key"
ledger = "ledger.sqlite"
[policy]
tasks = ["pca"]
columns = "all"
[policy.budget]
epsilon = 1.0
{section}
"""
ROWS = [(f"p{row:05d}", row * 0.3 - 10, "AB"[row % 2]) for row in range(400)]


def in_columns(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table(dict(zip(("person_id", "age", "city"), map(pa.array, zip(*rows, strict=True)), strict=True)))


def database(path: Path, rows: list[tuple[Any, ...]]) -> Query:
    with sqlite3.connect(path) as made:
        made.execute("create table people (person_id, age, city)")
        made.executemany("insert into people values (?, ?, ?)", rows)
    made.close()
    return Query("select * from people", "sqlite", file=path)


# --- SQLite


FAILING = {
    "select * from nowhere": "DA213",
    "select absent from people": "DA214",
    "select * from people where (": "DA219",
    "select * from people; drop table people": "DA219",
    "select person_id, age, 9 as age from people": ("DA169", "age"),
    "select 'p' as person_id, 9007199254740993 as age union all select 'q', 1.5": ("DA212", "age"),
    "select 'p' as person_id, cast(x'ff41' as text) as age": "DA218",
    "select * from people where age > 900": "DA202",
    "select person_id, case random() % 2 when 5 then 'x' else x'00' end as age from people": ("DA211", "age"),
}


@pytest.mark.parametrize("query", FAILING)
def test_queries_of_sqlite_that_fail(tmp_path: Path, query: str) -> None:
    database(tmp_path / "x.sqlite", ROWS[:2])
    refused(DataError, FAILING[query], read_table, Query(query, "sqlite", file=tmp_path / "x.sqlite"), AGE)
    assert ids(Query("select * from people; ", "sqlite", file=tmp_path / "x.sqlite")) == ["p00000", "p00001"]


def test_rows_of_sqlite_of_which_no_number_is_rounded_and_mixed_cells_are_text(tmp_path: Path) -> None:
    query = database(tmp_path / "many.sqlite", ROWS)
    equal(query, in_columns(ROWS))
    assert open_source(query).count() == 400
    exact = 33.333333333333336
    query = database(tmp_path / "x.sqlite", [(7, None, "A"), ("008", 5, None), (9, exact, "B")])
    equal(query, in_columns([("7", None, "A"), ("008", 5, None), ("9", exact, "B")]))
    mixed = database(tmp_path / "y.sqlite", [("a", exact, "A"), ("b", "17", "B")])
    equal(mixed, in_columns([("a", exact, "A"), ("b", 17, "B")]))
    comma = Query(
        "select 'p' as person_id, 1.5 as age union all select 'q', '2,5'", "sqlite", file=tmp_path / "x.sqlite"
    )
    assert read_table(comma, AGE, decimal=",").matrix().tolist() == [[-0.97], [-0.95]], "the sign of the party"


def test_names_with_any_sign_and_wide_tables(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.sqlite") as made:
        made.execute('create table t (person_id, "a""; drop table t; --" integer)')
        made.execute("insert into t values ('p', 3)")
    made.close()
    query = Query("select * from t -- all of it", "sqlite", file=tmp_path / "x.sqlite")
    for _ in range(2):
        assert read_table(query, Schema({'a"; drop table t; --': number(0, 10)})).matrix().tolist() == [[-0.4]]
    names = [f"c{place}" for place in range(1500)]
    wide = "select person_id, " + ", ".join(f"1 as {name}" for name in names) + " from t"  # noqa: S608
    found = read_table(
        Query(wide, "sqlite", file=tmp_path / "x.sqlite"), Schema({name: number(0, 2) for name in names})
    )
    assert np.array_equal(found.matrix(), np.zeros((1, 1500)))


# --- DuckDB


@pytest.fixture
def ducks(tmp_path: Path) -> Callable[[str], Query]:
    """Queries of a file of DuckDB with 20,000 rows in one table and three in another."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "x.duckdb")) as made:
        made.execute("create table t as select 'p' || i as person_id, i % 90 as age from range(20000) r(i)")
        made.execute("create table people as select * from t limit 3")
    return lambda query: Query(query, "duckdb", file=tmp_path / "x.duckdb")


def test_a_program_that_has_the_file_open_itself_keeps_its_settings(
    ducks: Callable[[str], Query], tmp_path: Path
) -> None:
    import duckdb

    with duckdb.connect(str(tmp_path / "x.duckdb"), read_only=True) as own:
        before = own.execute("from duckdb_settings()").fetchall()
        assert ids(ducks("select * from x.main.people")) == ["p0", "p1", "p2"]
        assert own.execute("from duckdb_settings()").fetchall() == before


def test_a_file_of_duckdb_is_read_several_times_at_once(ducks: Callable[[str], Query]) -> None:
    batches = open_source(ducks("from t, range(5)")).batches(["person_id"])
    read = next(batches).num_rows
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda query: ids(ducks(query)), ["from people order by person_id"] * 8))
    assert found == [["p0", "p1", "p2"]] * 8
    assert 0 < read < read + sum(batch.num_rows for batch in batches) == 100_000
    gate = Barrier(8)

    def opened_together(query: str) -> list[str]:
        gate.wait()
        return ids(ducks(query))

    for _ in range(5):
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(opened_together, ["from people order by person_id"] * 8)) == found


@pytest.mark.parametrize("opened", [False, True])
def test_a_view_in_a_file_reaches_nothing_outside_it(
    ducks: Callable[[str], Query], tmp_path: Path, opened: bool
) -> None:
    """Whoever gave the party the file could else read any file of the party's by it."""
    import duckdb

    outside, base = tmp_path / "salaries.csv", str(tmp_path / "x.duckdb")
    outside.write_text("person_id,age\np0,40\n")
    with duckdb.connect(base) as made:
        made.execute("create view inside as select * from people where age < 2")
        made.execute(f"create view far as from read_csv('{outside}')")
        made.execute(f"create view whole as from read_blob('{outside}')")
        said = {"temp_directory": "", "enable_external_access": "false", "lock_configuration": "true"}
        cases = " ".join(f"when '{name}' then '{value}'" for name, value in said.items())
        made.execute(f"create macro current_setting(name) as case name {cases} end")
    with duckdb.connect(base, read_only=True) if opened else nullcontext():
        assert ids(ducks("from inside")) == ["p0", "p1"]
        for query in ("from far", "from whole", f"from read_csv('{outside}')", f"from '{outside}'"):
            message = refused(DataError, "DA222", read_table, ducks(query), AGE)
            assert "outside the database file" in message
            assert "salaries" not in message


@pytest.mark.parametrize("opened", [False, True])
def test_a_query_of_duckdb_writes_no_rows_beside_its_file(
    ducks: Callable[[str], Query], tmp_path: Path, opened: bool
) -> None:
    """DuckDB would make a folder there, for everybody to read, and write the rows in plain."""
    import duckdb

    driver = DRIVERS["duckdb"]("x", str(tmp_path / "x.duckdb"), "from people")
    with duckdb.connect(str(tmp_path / "x.duckdb"), read_only=True) if opened else nullcontext(), driver:
        found = driver._connection.execute("select current_setting('temp_directory')").fetchone()
        assert found == ("",)
        with pytest.raises(duckdb.Error):
            driver._connection.execute(f"set temp_directory = '{tmp_path}'")
    assert ids(ducks("from people order by person_id")) != []


def test_a_query_of_duckdb_that_needs_more_memory_gets_it(
    ducks: Callable[[str], Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DuckDbDriver._SETTINGS, "memory_limit", "8MiB")
    grouped = ducks("select 'p' as person_id, len(list(person_id || k)) as n from t, range(50) r(k)")  # one list of all
    tried: list[str] = []
    stream = DuckDbDriver._stream
    monkeypatch.setattr(DuckDbDriver, "_stream", lambda self, asked: tried.append(asked) or stream(self, asked))
    assert open_source(grouped).read(["n"])["n"].to_pylist() == [1_000_000]
    assert len(tried) == 2
    assert (read_table(ducks("select * from t"), AGE).rows, len(tried)) == (20_000, 3)


@pytest.mark.parametrize("on_disk", [None, True])
def test_rows_that_come_in_another_order_each_time(ducks: Callable[[str], Query], on_disk: bool | None) -> None:
    """A second reading would put cells beside the ids of others."""
    shuffled = "select i::varchar as person_id, i / 1000 as age from range(20000) r(i) order by random()"
    import duckdb

    with duckdb.connect() as made:
        for source in (ducks(shuffled), made.sql(shuffled)):
            table = read_table(source, AGE, on_disk=on_disk)
            assert list(table.ids) != list(read_table(source, AGE).ids)
            ages = (table.matrix()[:, 0] + 1) * 50
            assert np.allclose(ages, [int(each) / 1000 for each in table.ids])


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select * from people) as x; copy people to '{out}'; select * from (from people", "DA222"),
        ("copy people to '{out}'; from people", "DA221"),
        ("copy people to '{out}'", "DA221"),
        ("select person_id, age, 9 as age from people", ("DA169", "age")),
        ("select 'p' as person_id, 1 as Age, 2 as age", "DA204"),
        ("select 'p' as person_id, 'x'::blob as age", ("DA192", "age", "binary")),
    ],
)
def test_queries_of_duckdb_that_fail(ducks: Callable[[str], Query], tmp_path: Path, query: str, said: Any) -> None:
    with raises(DataError, said):
        read_table(ducks(query.format(out=tmp_path / "out.csv")), AGE).check()
    assert not (tmp_path / "out.csv").exists()
    for other in ("from people", "with x as (from people) from x;", "(select * from people) -- all", "table people"):
        assert sorted(ids(ducks(other))) == ["p0", "p1", "p2"]


# --- what a query, an address and a party file may be


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"database": "oracle", "uri_env": "X"}, "DA238"),
        ({"database": "postgresql"}, "DA240"),
        ({"database": "postgresql", "uri_env": "postgresql://u:hunter2@h/d"}, "DA241"),
        ({"database": "sqlite"}, "DA242"),
        ({"database": "sqlite", "file": "x", "uri_env": "X"}, "DA242"),
        ({"database": "sqlite", "file": "x", "query": " ; "}, "DA239"),
        ({"database": "duckdb", "file": "md:base?motherduck_token=hunter2"}, "DA243"),
        ({"database": "duckdb", "file": "https://host/base?sig=hunter2"}, "DA243"),
    ],
)
def test_queries_that_cannot_be(given: dict[str, str], said: str) -> None:
    assert "hunter2" not in refused(DataError, said, Query, **{"query": "select 1", **given})


def test_a_database_that_is_no_file_and_a_driver_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for kind, file in (("duckdb", ":memory:"), ("duckdb", tmp_path), ("sqlite", tmp_path / "none.sqlite")):
        refused(DataError, "DA205", read_table, Query("select 1", kind, file=file), AGE)
    monkeypatch.setenv("BANK_DB", "postgresql://u:hunter2@127.0.0.1:1/d")
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql.dbapi", None)
    refused(DataError, ("DA223", "sql"), read_table, Query("select 1", "postgresql", uri_env="BANK_DB"), AGE)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    refused(DataError, ("DA223", "duckdb"), read_table, Query("select 1", "duckdb", file=tmp_path / "x"), AGE)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3://me:hunter2@bucket/x/", "DA251"),
        ("s3://hunter2@bucket/x/", "DA251"),
        ("abfss://box:hunter2@account.dfs.core.windows.net/x", "DA251"),
        ("s3://bucket/x/?secret_key=hunter2", ("DA252", "secret_key")),
        ("abfss://box@account.dfs.core.windows.net/x?sas=hunter2", ("DA252", "sas")),
        ("ftp://bucket/x/", ("DA250", "ftp")),
        ("s3://AKIA:hunter/2@bucket/x/", "DA251"),  # keys of S3 may have slashes
        ("s3://AKIA:hunter2", "DA251"),
        ("abfss://account:hunter/2@box.dfs.core.windows.net/x", "DA251"),
        ("hdfs://user:hunter/2@server/x", "DA251"),
        ("s3://bucket/x/?endpoint_override=user:hunter2@host", "DA251"),
        ("s3://[hunter2/x", "DA249"),
        ("s3://bucket/a#b.csv", "DA253"),
        ("s3:///x", "DA254"),
        ("abfss://account.blob.core.windows.net/box/x", ("DA254", "abfss")),
    ],
)
def test_addresses_that_are_refused(tmp_path: Path, address: str, said: Any) -> None:
    told = refused(DataError, said, read_table, address, AGE)
    (tmp_path / "party.toml").write_text(PARTY.format(data=f'data = "{address}"', section=""))
    told += refused(StudyError, said, PartyConfig.load, tmp_path / "party.toml")
    assert "hunter" not in told.replace(str(tmp_path), "") + redact_address(address)


def test_addresses_that_are_shown_and_patterns() -> None:
    for address, told in (
        ("hdfs://server:8020/x", "hdfs://server:8020/x"),
        ("abfs://box@account.dfs.core.windows.net/x", "abfs://account.dfs.core.windows.net/x"),
        ("gs://anonymous@bucket/x?scheme=http", "gs://bucket/x"),
        ("s3://bucket/m@n/*.parquet", "s3://bucket/m@n/*.parquet"),
    ):
        check_address(address)
        assert redact_address(address) == told
    for pattern, name, fits in (
        ("*/x-[0-9].parquet", "a/x-1.parquet", True),
        ("*.parquet", "a/b.parquet", False),
        ("**/*.csv", "a/b/c.csv", True),
        ("**/*.csv", "c.csv", True),
        ("*.csv", "c.csv.bak", False),
    ):
        assert bool(compile_pattern(pattern).fullmatch(name)) == fits


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ('database = "postgresql"\nquery = "select 1"\nuri = "postgresql://u:hunter2@h/d"', ("VA210", "uri")),
        ('database = "postgresql"\nquery = "select 1"\nuri_env = "B"\npassword = "hunter2"', ("VA210", "password")),
        ('database = "postgresql"\nquery = "select 1"\nuri_env = "u:hunter2@h"', "DA241"),
        ('database = "oracle"\nquery = "select 1"', "ST573"),
        ('database = "sqlite"\nquery = "select 1"', "DA242"),
        ('database = "sqlite"', "ST573"),
    ],
)
def test_a_party_file_holds_no_password(tmp_path: Path, section: str, said: Any) -> None:
    (tmp_path / "party.toml").write_text(PARTY.format(data="", section=f"[data]\n{section}"))
    assert "hunter2" not in refused(StudyError, said, PartyConfig.load, tmp_path / "party.toml")


def test_what_a_party_file_names_and_commands_read(tmp_path: Path, colonnade: Any) -> None:
    def config(data: str, section: str = "") -> PartyConfig:
        (tmp_path / "party.toml").write_text(PARTY.format(data=data, section=section))
        return PartyConfig.load(tmp_path / "party.toml")

    for place in range(2):
        part = pa.table({"person_id": [f"{place}"], "age": [1.0], "city": ["A"]})
        put(part, tmp_path / "lake" / f"{place}.parquet")
    assert config('data = "lake"').table(SCHEMA).rows == config('data = "lake/*.parquet"').count_rows(SCHEMA) == 2
    assert config('data = "s3://bucket/x/?region=eu-west-1"').source().name == "s3://bucket/x/"
    database(tmp_path / "x.sqlite", ROWS[:30])
    asked = config("", '[data]\ndatabase = "sqlite"\nquery = "select * from people"\nfile = "x.sqlite"')
    assert asked.table(SCHEMA).rows == asked.count_rows(SCHEMA) == 30
    assert asked.source().name == f"the sqlite query on {tmp_path / 'x.sqlite'}"
    SCHEMA.save(tmp_path / "schema.toml")
    assert "30 rows fit" in colonnade("schema", "check", tmp_path / "party.toml", tmp_path / "schema.toml")
    colonnade("schema", "draft", tmp_path / "party.toml", "--out", tmp_path / "draft.toml", "--id", "person_id")
    assert "[columns.city]" in (tmp_path / "draft.toml").read_text()
