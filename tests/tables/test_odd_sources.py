"""Sources that are odd: links, names that are alike, cells of rare types, queries that are more than one, and leaks."""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from colonnade.errors import DataError
from colonnade.tables import Query, Schema, category, files, number, read_table
from colonnade.tables.sources.memory import plain_batch, plain_type
from colonnade.tables.sources.opening import opened
from colonnade.tables.sources.stores import holds_rows, shown
from tests.support.errors import raises

SCHEMA = Schema({"age": number(0, 100, missing=50)}, description="people")
HEAD = "person_id,age\n"


def text(path: Path, *rows: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + "".join(f"{row}\n" for row in rows))
    return path


def ids(source: Any) -> list[str]:
    return list(read_table(source, SCHEMA).ids)


def test_folders_that_are_linked_are_read_and_none_twice(tmp_path: Path) -> None:
    text(tmp_path / "lake" / "a.csv", "a,1")
    text(tmp_path / "elsewhere" / "b.csv", "b,2")
    (tmp_path / "lake" / "link").symlink_to(tmp_path / "elsewhere")
    assert ids(tmp_path / "lake") == ids(str(tmp_path / "lake" / "**" / "*.csv")) == ["a", "b"]
    (tmp_path / "elsewhere" / "up").symlink_to(tmp_path / "lake")
    for source in (tmp_path / "lake", str(tmp_path / "lake" / "**" / "*.csv")):
        with raises(DataError, "DA235|DA236"):
            read_table(source, SCHEMA)


def test_what_is_taken_for_a_table_of_a_folder(tmp_path: Path) -> None:
    for name in ("a.csv", "a.csv.bak", "a.csv.crc", "b.parquet.tmp", "_temporary/c.csv", ".d.csv", "notes.md"):
        text(tmp_path / name, f"{name},1")
    text(tmp_path / "e.CSV", "e,1")
    (tmp_path / "f.csv").mkdir()
    assert ids(tmp_path) == ["a.csv", "e"]
    assert ids(str(tmp_path / "**" / "*.csv")) == ["a.csv"]
    assert ids(str(tmp_path / "_temporary" / "*.csv")) == ["_temporary/c.csv"]
    assert holds_rows("x/part-0.snappy.parquet")
    assert holds_rows("part.csv.gz")
    assert not holds_rows("x.gz")


def test_signs_in_the_names_of_folders_above_a_pattern(tmp_path: Path) -> None:
    text(tmp_path / "x[1]" / "a.csv", "right,1")
    text(tmp_path / "x1" / "a.csv", "wrong,1")
    assert ids(str(tmp_path / "x[1]" / "*.csv")) == ["right"]


def test_a_program_that_goes_to_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text(tmp_path / "lake" / "a.csv", "a,1")
    monkeypatch.chdir(tmp_path)
    table = read_table("lake", SCHEMA, on_disk=True)
    monkeypatch.chdir("/")
    assert table.matrix().tolist() == [[-0.98]]


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
    with raises(DataError, "DA234", "Permission denied"):
        read_table(tmp_path / "lake", SCHEMA)


def test_columns_that_nobody_asks_for_may_differ_between_files(tmp_path: Path) -> None:
    first = pa.table({"person_id": ["a"], "age": [1], "note": ["x"]})
    pq.write_table(first, tmp_path / "a.parquet")
    pq.write_table(pa.table({"person_id": ["b"], "age": [2], "note": [3], "more": [4]}), tmp_path / "b.parquet")
    assert ids(tmp_path) == ["a", "b"]
    assert opened(tmp_path).columns() == ["person_id", "age", "note", "more"]
    wider = Schema({"more": number(0, 9)}, description="x")
    with raises(DataError, "DA232", "a.parquet", "more"):
        read_table(tmp_path, wider)
    twice = pa.Table.from_arrays([pa.array(["c"]), pa.array([1]), pa.array([2])], names=["person_id", "age", "age"])
    pq.write_table(twice, tmp_path / "c.parquet")
    with raises(DataError, "DA231", "c.parquet", "age"):
        read_table(tmp_path, SCHEMA)


def test_text_and_dictionaries_of_text_are_one_column(tmp_path: Path) -> None:
    for place, cells in enumerate((pa.array(["A"]), pa.array(["B"]).dictionary_encode())):
        pq.write_table(pa.table({"person_id": [str(place)], "city": cells}), tmp_path / f"{place}.parquet")
    schema = Schema({"city": category(["A", "B"])}, description="x")
    for on_disk in (True, False):
        assert read_table(tmp_path, schema, on_disk=on_disk).matrix().tolist() == [[1, 0], [0, 1]]


def test_a_column_of_a_file_counts_more_than_that_of_its_folder(tmp_path: Path) -> None:
    text(tmp_path / "age=7" / "a.csv", "a,1")
    assert opened(tmp_path).read(["age"])["age"].to_pylist() == ["1"]


def test_columns_keep_their_names_whatever_order_a_file_has(tmp_path: Path) -> None:
    table = pa.table({"b": ["b"], "n": [1], "a": ["a"]})

    pq.write_table(table, tmp_path / "t.parquet")
    for path in (tmp_path / "t.parquet", tmp_path):
        assert opened(path).read(["a", "n", "b"]).to_pylist() == [{"a": "a", "n": 1, "b": "b"}]


class Frame:
    """Speaks Arrow; what it gives is made anew each time."""

    def __init__(self, make: Callable[[], pa.Table | pa.RecordBatchReader]) -> None:
        self.make = make

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.make().__arrow_c_stream__(requested_schema)


def failing() -> pa.RecordBatchReader:
    table = pa.table({"person_id": ["a"], "age": [1]})

    def batches() -> Iterator[Any]:
        yield table.to_batches()[0]
        raise RuntimeError("never-show-me")

    return pa.RecordBatchReader.from_batches(table.schema, batches())


def raising() -> Any:
    raise KeyError("never-show-me")


def test_errors_of_what_holds_rows_are_a_sentence_without_data() -> None:
    given = [Frame(failing), Frame(raising), Frame(iter([pa.table({"person_id": ["a"], "age": [1]})]).__next__)]
    duckdb = pytest.importorskip("duckdb", reason="no DuckDB: pip install 'colonnade[duckdb]'")
    with duckdb.connect() as made:
        given.append(made.sql("select 'a' as person_id, cast('never-show-me' || i as int) as age from range(3) r(i)"))
        with raises(DataError, "DA225"):
            read_table(given[-1], SCHEMA)
    for each in given:  # the connection of the last is closed now
        with raises(DataError, "DA225") as failed:
            read_table(each, SCHEMA)
        assert "never-show-me" not in str(failed.value)


@pytest.mark.parametrize("on_disk", [None, True])
def test_rows_that_come_in_another_order_each_time(ducks: Callable[[str], Query], on_disk: bool | None) -> None:
    """A second reading would put cells beside the ids of others."""
    shuffled = "select i::varchar as person_id, i / 1000 as age from range(50000) r(i) order by random()"
    import duckdb

    with duckdb.connect() as made:
        for source in (ducks(shuffled), made.sql(shuffled)):
            table = read_table(source, SCHEMA, on_disk=on_disk)
            assert list(table.ids) != list(read_table(source, SCHEMA).ids)
            ages = (table.matrix()[:, 0] + 1) * 50
            assert np.allclose(ages, [int(each) / 1000 for each in table.ids])


def test_a_data_set_of_arrow(tmp_path: Path) -> None:
    for city in ("A", "B"):
        (tmp_path / f"city={city}").mkdir()
        pq.write_table(
            pa.table({"person_id": [city], "age": [3], "unused": [1]}), tmp_path / f"city={city}" / "x.parquet"
        )
    schema = Schema({"age": number(0, 6), "city": category(["A", "B"])}, description="x")
    found = read_table(pyarrow.dataset.dataset(tmp_path, partitioning="hive"), schema)
    assert found.matrix().tolist() == read_table(tmp_path, schema).matrix().tolist() == [[0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize("named", [True, False])
def test_ids_of_sixteen_bytes_are_read_as_they_are_written(named: bool) -> None:
    made = [uuid.UUID(int=7), uuid.UUID("12345678-90ab-cdef-1234-567890abcdef"), None, uuid.UUID(int=2**128 - 1)]
    cells = pa.array([None if each is None else each.bytes for each in made], pa.binary(16))
    if named:  # as an Arrow says it that does not know the type
        field = pa.field("u", pa.binary(16), metadata={"ARROW:extension:name": "arrow.uuid"})
        batch = pa.record_batch([cells], schema=pa.schema([field]))
    elif not hasattr(pa, "uuid"):
        pytest.skip("this pyarrow has no type for them")
    else:
        batch = pa.record_batch([pa.ExtensionArray.from_storage(pa.uuid(), cells)], names=["u"])
        assert plain_type(pa.uuid()) == pa.large_string()
    for start in range(4):
        found = plain_batch(batch.slice(start)).column(0)
        found.validate(full=True)
        assert found.to_pylist() == [None if each is None else str(each) for each in made[start:]]


def test_whole_numbers_of_any_length_are_ids_and_codes() -> None:
    """Warehouses give them as decimals without a fraction."""
    long = 10**30 + 7
    cells = pa.array([long, 5], pa.decimal128(38, 0))
    assert ids(pa.table({"person_id": cells, "age": [1, 2]})) == [str(long), "5"]
    schema = Schema({"code": category(["5", str(long)])}, description="x")
    assert read_table(pa.table({"person_id": ["a", "b"], "code": cells}), schema).matrix().tolist() == [[0, 1], [1, 0]]
    with raises(DataError, "DA173", "9, 2"):
        ids(pa.table({"person_id": cells.slice(1).cast(pa.decimal128(9, 2)), "age": [1]}))


@pytest.fixture
def bank(tmp_path: Path) -> Callable[[str], Query]:
    with sqlite3.connect(tmp_path / "x.sqlite") as made:
        made.execute("create table people (person_id text, age integer)")
        made.execute("insert into people values ('a', 1), ('b', 2)")
    made.close()
    return lambda query: Query(query, "sqlite", file=tmp_path / "x.sqlite")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select person_id, age, 9 as age from people", ("DA169", "age")),
        (
            "select 'p' as person_id, 9007199254740993 as age union all select 'q', 1.5",
            ("DA212", "age"),
        ),
        ("select 'p' as person_id, cast(x'ff41' as text) as age", "DA218"),
        ("select * from people; delete from people", "DA219"),
        ("select * from people where age > 9", "DA202"),
        ("select person_id, case random() % 2 when 5 then 'x' else x'00' end as age from people", ("DA211", "age")),
    ],
)
def test_queries_of_sqlite_that_fail(bank: Callable[[str], Query], query: str, said: str) -> None:
    with raises(DataError, said):
        read_table(bank(query), SCHEMA)
    assert ids(bank("select * from people; ")) == ["a", "b"]


def test_a_wide_table_of_sqlite(bank: Callable[[str], Query]) -> None:
    names = [f"c{place}" for place in range(1500)]
    schema = Schema({name: number(0, 2) for name in names}, description="x")
    wide = "select person_id, " + ", ".join(f"1 as {name}" for name in names) + " from people"  # noqa: S608
    assert np.array_equal(read_table(bank(wide), schema).matrix(), np.zeros((2, 1500)))


def test_numbers_that_become_text_have_the_sign_of_the_party(bank: Callable[[str], Query]) -> None:
    mixed = bank("select 'p' as person_id, 1.5 as age union all select 'q', '2,5'")
    assert read_table(mixed, SCHEMA, decimal=",").matrix().tolist() == [[-0.97], [-0.95]]


@pytest.fixture
def ducks(tmp_path: Path) -> Callable[[str], Query]:
    duckdb = pytest.importorskip("duckdb", reason="no DuckDB: pip install 'colonnade[duckdb]'")
    with duckdb.connect(str(tmp_path / "x.duckdb")) as made:
        made.execute("create table people as select 'p' || i as person_id, i as age from range(3) r(i)")
    return lambda query: Query(query, "duckdb", file=tmp_path / "x.duckdb")


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
def test_queries_of_duckdb_that_fail(ducks: Callable[[str], Query], tmp_path: Path, query: str, said: str) -> None:
    with raises(DataError, said):
        read_table(ducks(query.format(out=tmp_path / "out.csv")), SCHEMA).check()
    assert not (tmp_path / "out.csv").exists()


def test_queries_of_duckdb_that_begin_in_other_ways(ducks: Callable[[str], Query]) -> None:
    for query in ("from people", "with x as (from people) from x;", "(select * from people) -- all", "table people"):
        assert sorted(ids(ducks(query))) == ["p0", "p1", "p2"]


def test_a_database_file_is_a_path(tmp_path: Path) -> None:
    for file in ("md:base?motherduck_token=hunter2", "https://host/base?sig=hunter2"):
        with raises(DataError, "DA243") as failed:
            Query("select 1", "duckdb", file=file)
        assert "hunter2" not in str(failed.value)
    for file in (":memory:", tmp_path):
        with raises(DataError, "DA205"):
            read_table(Query("select 1", "duckdb", file=file), SCHEMA)


@pytest.mark.parametrize(
    ("address", "said"),
    [
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
def test_addresses_that_are_refused(address: str, said: str) -> None:
    with raises(DataError, said) as failed:
        read_table(address, SCHEMA)
    assert "hunter" not in f"{failed.value}{shown(address)}"


def test_addresses_that_are_shown() -> None:
    assert shown("hdfs://server:8020/x") == "hdfs://server:8020/x"
    assert shown("abfs://box@account.dfs.core.windows.net/x") == "abfs://account.dfs.core.windows.net/x"
    assert shown("gs://anonymous@bucket/x?scheme=http") == "gs://bucket/x"
    assert shown("s3://bucket/m@n/x") == "s3://bucket/m@n/x"


def test_what_changes_while_it_is_read_is_said_to_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where what is there now cannot be read at all."""
    pq.write_table(pa.table({"person_id": ["a"], "age": [1]}), tmp_path / "a.parquet")
    untouched = files.read_batches

    def touched(*given: Any) -> Iterator[Any]:
        (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing else")
        yield from untouched(*given)

    monkeypatch.setattr(files, "read_batches", touched)
    with raises(DataError, "DA203"):
        read_table(tmp_path, SCHEMA)
