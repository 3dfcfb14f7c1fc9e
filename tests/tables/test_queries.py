"""Rows of databases and of object stores: what a query may be, what a party file says of it, and no password in any."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from colonnade.errors import ColonnadeError, DataError, StudyError
from colonnade.study import PartyConfig
from colonnade.tables import Query, Schema, category, number, read_table
from colonnade.tables.sources.drivers import DuckDb
from colonnade.tables.sources.opening import opened
from colonnade.tables.sources.stores import check_address, matcher, shown
from tests.support.errors import raises, refused
from tests.support.tables import put

SCHEMA = Schema({"age": number(0, 100, missing=1), "city": category(["A", "B"], missing="none")}, description="people")
AGE = Schema({"age": number(0, 100, missing=50)}, description="people")
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


def ids(source: Any) -> list[str]:
    return list(read_table(source, AGE).ids)


def equal(source: Any, rows: list[tuple[Any, ...]]) -> None:
    """The rows of a source are these, whether they are in memory or not."""
    named = dict(zip(("person_id", "age", "city"), zip(*rows, strict=True), strict=True))
    wanted = read_table(pa.table({name: pa.array(cells) for name, cells in named.items()}), SCHEMA).sorted_by_id()
    for on_disk in (None, True, False):
        found = read_table(source, SCHEMA, on_disk=on_disk).sorted_by_id()
        assert found.ids == wanted.ids
        assert np.array_equal(found.matrix(), wanted.matrix())


def database(path: Path, rows: list[tuple[Any, ...]]) -> Query:
    with sqlite3.connect(path) as made:
        made.execute("create table people (person_id, age, city)")
        made.executemany("insert into people values (?, ?, ?)", rows)
    made.close()
    return Query("select * from people", "sqlite", file=path)


# --- SQLite


def test_sqlite(tmp_path: Path) -> None:
    query = database(tmp_path / "x.sqlite", ROWS)
    equal(query, ROWS)
    assert opened(query).count() == 400
    refused(DataError, "DA205", read_table, Query("select 1", "sqlite", file=tmp_path / "y.sqlite"), SCHEMA)


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


def test_no_number_of_sqlite_is_rounded_and_mixed_cells_are_text(tmp_path: Path) -> None:
    exact = 33.333333333333336
    query = database(tmp_path / "x.sqlite", [(7, None, "A"), ("008", 5, None), (9, exact, "B")])
    equal(query, [("7", None, "A"), ("008", 5, None), ("9", exact, "B")])
    mixed = database(tmp_path / "y.sqlite", [("a", exact, "A"), ("b", "17", "B")])
    equal(mixed, [("a", exact, "A"), ("b", 17, "B")])
    comma = Query(
        "select 'p' as person_id, 1.5 as age union all select 'q', '2,5'", "sqlite", file=tmp_path / "x.sqlite"
    )
    assert read_table(comma, AGE, decimal=",").matrix().tolist() == [[-0.97], [-0.95]], "the sign of the party"


def test_names_with_any_sign_and_wide_tables(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.sqlite") as made:
        made.execute('create table t (person_id, "a""; drop table t; --" integer)')
        made.execute("insert into t values ('p', 3)")
    made.close()
    for _ in range(2):
        query = Query("select * from t -- all of it", "sqlite", file=tmp_path / "x.sqlite")
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
    """Queries of a file of DuckDB with 100,000 rows in one table and three in another."""
    duckdb = pytest.importorskip("duckdb", reason="no DuckDB: pip install 'colonnade[duckdb]'")
    with duckdb.connect(str(tmp_path / "x.duckdb")) as made:
        made.execute("create table t as select 'p' || i as person_id, i % 90 as age from range(100000) r(i)")
        made.execute("create table people as select * from t limit 3")
    return lambda query: Query(query, "duckdb", file=tmp_path / "x.duckdb")


def test_duckdb_is_told_how_much_memory_to_take(ducks: Callable[[str], Query], tmp_path: Path) -> None:
    limit = ducks("select 'p' as person_id, current_setting('memory_limit') as said, 'A' as city")
    assert opened(limit).read(["said"])["said"].to_pylist() == ["256.0 MiB"]
    import duckdb

    with duckdb.connect(str(tmp_path / "x.duckdb"), read_only=True) as own:  # whose settings hold for the program
        said = own.execute("select current_setting('memory_limit')").fetchone()
        assert opened(limit).read(["said"])["said"].to_pylist() == [said[0]]


def test_a_query_of_duckdb_that_needs_more_memory_gets_it(
    ducks: Callable[[str], Query], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DuckDb._SETTINGS, "memory_limit", "8MiB")
    grouped = ducks("select 'p' as person_id, len(list(person_id || k)) as n from t, range(10) r(k)")  # one list of all
    tried: list[str] = []
    stream = DuckDb._stream
    monkeypatch.setattr(DuckDb, "_stream", lambda self, asked: tried.append(asked) or stream(self, asked))
    assert opened(grouped).read(["n"])["n"].to_pylist() == [1_000_000]
    assert len(tried) == 2
    assert (read_table(ducks("select * from t"), AGE).rows, len(tried)) == (100_000, 3)


@pytest.mark.parametrize("on_disk", [None, True])
def test_rows_that_come_in_another_order_each_time(ducks: Callable[[str], Query], on_disk: bool | None) -> None:
    """A second reading would put cells beside the ids of others."""
    shuffled = "select i::varchar as person_id, i / 1000 as age from range(50000) r(i) order by random()"
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
    for file in (":memory:", tmp_path):
        refused(DataError, "DA205", read_table, Query("select 1", "duckdb", file=file), AGE)
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
    assert "hunter" not in told.replace(str(tmp_path), "") + shown(address)


def test_addresses_that_are_shown_and_patterns() -> None:
    assert shown("hdfs://server:8020/x") == "hdfs://server:8020/x"
    assert shown("abfs://box@account.dfs.core.windows.net/x") == "abfs://account.dfs.core.windows.net/x"
    assert shown("gs://anonymous@bucket/x?scheme=http") == "gs://bucket/x"
    assert shown("s3://bucket/m@n/x") == "s3://bucket/m@n/x"
    for address in ("abfss://box@account.dfs.core.windows.net/x", "gs://bucket/*.parquet"):
        check_address(address)
    for pattern, name, fits in (
        ("*/x-[0-9].parquet", "a/x-1.parquet", True),
        ("*.parquet", "a/b.parquet", False),
        ("**/*.csv", "a/b/c.csv", True),
        ("**/*.csv", "c.csv", True),
        ("*.csv", "c.csv.bak", False),
    ):
        assert bool(matcher(pattern).fullmatch(name)) == fits


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
    assert config('data = "lake"').table(SCHEMA).rows == config('data = "lake/*.parquet"').rows_held(SCHEMA) == 2
    assert config('data = "s3://bucket/x/?region=eu-west-1"').source().name == "s3://bucket/x/"
    database(tmp_path / "x.sqlite", ROWS[:30])
    asked = config("", '[data]\ndatabase = "sqlite"\nquery = "select * from people"\nfile = "x.sqlite"')
    assert asked.table(SCHEMA).rows == asked.rows_held(SCHEMA) == 30
    assert asked.source().name == f"the sqlite query on {tmp_path / 'x.sqlite'}"
    SCHEMA.save(tmp_path / "schema.toml")
    assert "30 rows fit" in colonnade("schema", "check", tmp_path / "party.toml", tmp_path / "schema.toml")
    colonnade("schema", "draft", tmp_path / "party.toml", "--out", tmp_path / "draft.toml", "--id", "person_id")
    assert "[columns.city]" in (tmp_path / "draft.toml").read_text()
    assert "--out" in colonnade("schema", "draft", tmp_path / "party.toml", code=ColonnadeError.exit_code)
