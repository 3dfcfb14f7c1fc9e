"""Where rows lie: the same rows from every source, only the columns that are asked for, and changes are noticed."""

from __future__ import annotations

import datetime
import gc
import sqlite3
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from colonnade.errors import ColonnadeError, DataError, StudyError
from colonnade.study import PartyConfig
from colonnade.tables import Query, Schema, category, date, draft_schema, files, flag, number, read_table, reading
from colonnade.tables.cells import OnDisk
from colonnade.tables.formats import TextFormat
from colonnade.tables.sources import parts
from colonnade.tables.sources.contract import Source
from colonnade.tables.sources.drivers import DuckDb
from colonnade.tables.sources.kept import Kept, gathered
from colonnade.tables.sources.opening import opened
from colonnade.tables.sources.stored import StoredFile
from colonnade.tables.sources.stores import check_address, matcher
from colonnade.tables.survey import survey
from tests.support.errors import raises

SCHEMA = Schema({"age": number(0, 100), "city": category(["A", "B"], missing="none")}, description="people")
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
    for on_disk in (None, True, False):
        found = read_table(source, schema, on_disk=on_disk).sorted_by_id()
        assert found.ids == wanted.ids
        assert np.array_equal(found.matrix(), wanted.matrix())


def put(path: Path, table: pa.Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path) if path.suffix == ".parquet" else pyarrow.csv.write_csv(table, path)
    return path


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Three files, beside things that are no tables."""
    for place in range(3):
        put(tmp_path / "lake" / f"{place}.parquet", people().slice(place * 250, 250))
    (tmp_path / "lake" / "_SUCCESS").touch()
    (tmp_path / "lake" / "read.me").write_text("nothing")
    put(tmp_path / "lake" / "_temporary" / "9.parquet", people())
    return tmp_path / "lake"


def test_a_folder_and_a_pattern(lake: Path, tmp_path: Path) -> None:
    equal(lake)
    equal(str(lake / "*.parquet"))
    equal(str(tmp_path / "*" / "[0-9].parquet"))
    found = opened(lake)
    assert found.count() == 600
    assert found.columns() == people().column_names
    assert survey(lake, SCHEMA).rows == 600
    with raises(DataError, "DA229"):
        read_table(str(lake / "*.csv"), SCHEMA)


def test_text_files_of_a_folder_are_read_as_text(tmp_path: Path) -> None:
    ids = pa.table({"person_id": ["007", "008"], "age": [1, 2], "city": ["A", "B"]})
    put(tmp_path / "d" / "a.csv", ids.slice(0, 1))
    put(tmp_path / "d" / "b.csv", ids.slice(1))
    equal(tmp_path / "d", ids)
    (tmp_path / "d" / "b.csv").write_bytes("person_id,age,city\n1,2,Mün\n".encode("latin-1"))
    for on_disk in (True, False):
        with raises(DataError, "DA270", "b.csv", "LATIN-1"):
            read_table(tmp_path / "d", SCHEMA, on_disk=on_disk)
    (tmp_path / "d" / "b.csv").write_text("person_id,age,city\n1,x,A\n")
    with raises(DataError, "DA200", "age", "2"):
        read_table(tmp_path / "d", SCHEMA).check()


def test_folders_that_name_a_column(tmp_path: Path) -> None:
    table = people()
    for city in ("A", "B"):
        some = table.filter(pa.compute.equal(table["city"], city)).drop_columns(["city"])
        put(tmp_path / "lake" / f"city={city}" / "part.parquet", some)
    equal(tmp_path / "lake")
    equal(str(tmp_path / "lake" / "*" / "*.parquet"))
    put(tmp_path / "lake" / "town=C" / "part.parquet", table.drop_columns(["city"]))
    with raises(DataError, "DA230"):
        read_table(tmp_path / "lake", SCHEMA)


def test_a_value_of_a_folder_may_be_missing_or_written_with_signs(tmp_path: Path) -> None:
    schema = Schema({"where": category(["a b", "c/d"], missing="none")}, description="x")
    for place, folder in enumerate(("where=a%20b", "where=c%2Fd", "where=__HIVE_DEFAULT_PARTITION__")):
        put(tmp_path / "l" / folder / "x.parquet", pa.table({"person_id": [f"p{place}"]}))
    table = pa.table({"person_id": ["p0", "p1", "p2"], "where": ["a b", "c/d", None]})
    equal(tmp_path / "l", table, schema)


def test_types_that_differ_between_files(tmp_path: Path) -> None:
    table = pa.table({"person_id": ["a", "b"], "age": pa.array([7, 9], pa.int32()), "city": ["A", "B"]})
    wider = pa.table({"person_id": ["c"], "age": [7.5], "city": pa.array([None], pa.null())})
    put(tmp_path / "d" / "a.parquet", table)
    put(tmp_path / "d" / "b.parquet", wider)
    whole = pa.table({"person_id": ["a", "b", "c"], "age": [7, 9, 7.5], "city": ["A", "B", None]})
    equal(tmp_path / "d", whole)
    put(tmp_path / "d" / "c.parquet", table.set_column(1, "age", pa.array(["x", "y"])))
    with raises(DataError, "DA233", "c.parquet", "age"):
        read_table(tmp_path / "d", SCHEMA)
    put(tmp_path / "d" / "c.parquet", table.drop_columns(["city"]))
    with raises(DataError, "DA232", "c.parquet", "city"):
        read_table(tmp_path / "d", SCHEMA)


@pytest.mark.parametrize("change", ["added", "removed", "changed"])
def test_changes_of_a_folder_are_noticed(lake: Path, change: str) -> None:
    table = read_table(lake, SCHEMA, on_disk=True)
    table.check()
    if change == "removed":
        (lake / "1.parquet").unlink()
    else:
        put(lake / ("3.parquet" if change == "added" else "1.parquet"), people(10))
    with raises(DataError, "DA203"):
        table.check()


class Counted(StoredFile):
    """A file of a store that counts how often it is read from its beginning."""

    streams = 0

    def stream(self) -> Any:
        Counted.streams += 1
        return super().stream()


def stored(tmp_path: Path, name: str, content: bytes) -> StoredFile:
    (tmp_path / name).write_bytes(content)
    return Counted(pyarrow.fs.LocalFileSystem(), str(tmp_path / name), len(content), 1)


def set_of(*found: StoredFile, text: TextFormat = files.AS_USUAL) -> Source:
    listed = [parts.Part(each, Path(each.path).name, (each.size, 1), ()) for each in found]
    return parts.DataSet("s3://b/x/", lambda: listed, text, address="s3://b/x/")


def test_text_from_a_store_is_read_once_and_its_encoding_checked_on_the_way(tmp_path: Path) -> None:
    good = stored(tmp_path, "a.csv", "person_id,age,city\np1,3,A\np2,4,Ä\n".encode())
    Counted.streams = 0
    assert set_of(good).read(["city"])["city"].to_pylist() == ["A", "Ä"]
    assert Counted.streams == 2  # the header, and the rows
    bad = stored(tmp_path, "b.csv", "person_id,age,city\np1,3,A\np2,Ä,A,1\n".encode("latin-1"))
    with raises(DataError, "DA270", "b.csv", "LATIN-1"):
        read_table(set_of(good, bad), SCHEMA)


def test_text_from_a_store_is_in_its_encoding_to_the_end(tmp_path: Path) -> None:
    latin = TextFormat(encoding="latin-1")
    whole = "person_id,age,city\np1,3,A\np2,4,Ä\n"
    good = stored(tmp_path, "a.csv", whole.encode("latin-1"))
    assert set_of(good, text=latin).read(["city"])["city"].to_pylist() == ["A", "Ä"]
    other = stored(tmp_path, "b.csv", whole.encode())
    with raises(DataError, "DA270", "b.csv"):
        set_of(good, other, text=latin).read(["city"])
    cut = stored(tmp_path, "c.csv", "person_id,age,city\np1,3,Ä".encode()[:-1])
    with raises(DataError, "DA269", "c.csv"):
        set_of(cut).read(["city"])


def test_rows_of_a_store_are_counted_in_one_transfer(tmp_path: Path) -> None:
    found = set_of(stored(tmp_path, "a.csv", b'person_id,age\np1,3\np2,4\n"p\n3",5\n'))
    Counted.streams = 0
    assert found.count() == 3
    assert Counted.streams == 2  # the header, and the rows
    put(tmp_path / "b.parquet", people())
    rows = stored(tmp_path, "c.parquet", (tmp_path / "b.parquet").read_bytes())
    assert set_of(rows).count() == 600
    assert Counted.streams == 2


def test_a_copy_holds_the_rows_in_a_file_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    source = opened(people().to_batches(max_chunksize=50)[0].schema.empty_table())
    batches = people().to_batches(max_chunksize=50)
    kept = Kept("t", iter(batches), people().schema)
    assert not list(tmp_path.iterdir())
    found = pa.Table.from_batches(list(kept.batches(["city", "age"])))
    assert found.equals(people().select(["city", "age"]))
    assert kept.size(list) >= people().nbytes * 0.9
    monkeypatch.setattr(source, "batches", lambda _: iter(batches), raising=False)
    assert isinstance(gathered(source, ["age"], 1000), Kept)
    assert gathered(source, ["age"], None).num_rows == 600


def test_no_more_than_a_few_batches_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a stream that is thirty times as long as what may be in memory."""
    table = pa.table(
        {"person_id": [f"p{i}" for i in range(1 << 12)], "age": np.zeros(1 << 12), "city": ["A"] * (1 << 12)}
    )
    most, every = 0, pa.array(range(1 << 12))

    class Stream:
        def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
            def batches() -> Iterator[Any]:
                nonlocal most
                for _ in range(240):
                    most = max(most, pa.total_allocated_bytes() - before)
                    yield table.to_batches()[0].take(every)

            return pa.RecordBatchReader.from_batches(table.schema, batches()).__arrow_c_stream__(requested_schema)

    gc.collect()
    before = pa.total_allocated_bytes()
    limit = 8 * table.nbytes
    found = gathered(opened(Stream()), ["age", "city"], limit)
    assert isinstance(found, Kept)
    assert found.size(list) > 15 * limit / 2
    assert most < limit + 12 * table.nbytes


@pytest.fixture
def ducks(tmp_path: Path) -> Path:
    """A file of DuckDB with 100,000 rows."""
    duckdb = pytest.importorskip("duckdb", reason="no DuckDB: pip install 'colonnade[duckdb]'")
    with duckdb.connect(str(tmp_path / "t.duckdb")) as made:
        made.execute(
            "create table t as select 'p' || i as person_id, i % 90 as age, 'A' as city from range(100000) r(i)"
        )
    return tmp_path / "t.duckdb"


def test_duckdb_is_told_how_much_memory_to_take(ducks: Path) -> None:
    limit = "select 'p' as person_id, current_setting('memory_limit') as said, 'A' as city"
    assert opened(Query(limit, "duckdb", file=ducks)).read(["said"])["said"].to_pylist() == ["256.0 MiB"]
    import duckdb

    with duckdb.connect(str(ducks), read_only=True) as own:  # whose settings then hold for the whole program
        said = own.execute("select current_setting('memory_limit')").fetchone()
        assert opened(Query(limit, "duckdb", file=ducks)).read(["said"])["said"].to_pylist() == [said[0]]


def test_a_query_of_duckdb_that_needs_more_memory_gets_it(ducks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DuckDb._SETTINGS, "memory_limit", "8MiB")
    grouped = "select 'p' as person_id, len(list(person_id || k)) as n from t, range(10) r(k)"  # one list of all
    tried: list[str] = []
    stream = DuckDb._stream
    monkeypatch.setattr(DuckDb, "_stream", lambda self, asked: tried.append(asked) or stream(self, asked))
    found = opened(Query(grouped, "duckdb", file=ducks)).read(["n"])
    assert found["n"].to_pylist() == [1_000_000]
    assert len(tried) == 2
    plain = read_table(Query("select * from t", "duckdb", file=ducks), SCHEMA)
    assert (plain.rows, len(tried)) == (100_000, 3)


class Frame:
    """Speaks Arrow and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def test_anything_that_speaks_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    equal(Frame(people()))
    views = people().set_column(0, "person_id", pa.array(people()["person_id"].to_pylist(), pa.string_view()))
    equal(Frame(views.set_column(2, "city", people()["city"].dictionary_encode())))
    monkeypatch.setattr(reading, "_LARGE", 1000)
    assert isinstance(read_table(Frame(people()), SCHEMA)._cells, OnDisk)
    with raises(DataError, "DA154", "city"):
        read_table(Frame(people().drop_columns(["city"])), SCHEMA)
    with raises(DataError, "DA224"):
        read_table(people().to_reader(), SCHEMA)
    with raises(DataError, "DA227", "int"):
        read_table(5, SCHEMA)
    assert "[columns.age]" in draft_schema(Frame(people()), id="person_id")


def database(path: Path, rows: list[tuple[Any, ...]]) -> Query:
    with sqlite3.connect(path) as made:
        made.execute("create table people (person_id, age, city)")
        made.executemany("insert into people values (?, ?, ?)", rows)
    made.close()
    return Query("select * from people", "sqlite", file=path)


def test_sqlite(tmp_path: Path) -> None:
    rows = [tuple(row.values()) for row in people().select(["person_id", "age", "city"]).to_pylist()]
    query = database(tmp_path / "x.sqlite", rows)
    equal(query)
    assert opened(query).count() == 600
    for text, said in {
        "select * from nowhere": "DA213",
        "select absent from people": "DA214",
        "select * from people where (": "DA219",
        "select * from people; drop table people": "DA219",
        "select person_id, age, x'00' as city from people": ("DA211", "city"),
    }.items():
        with raises(DataError, said):
            read_table(Query(text, "sqlite", file=tmp_path / "x.sqlite"), SCHEMA)
    with raises(DataError, "DA205"):
        read_table(Query("select 1", "sqlite", file=tmp_path / "y.sqlite"), SCHEMA)


def test_no_number_of_sqlite_is_rounded_and_mixed_cells_are_text(tmp_path: Path) -> None:
    exact = 33.333333333333336
    query = database(tmp_path / "x.sqlite", [(7, None, "A"), ("008", 5, None), (9, exact, "B")])
    table = pa.table({"person_id": ["7", "008", "9"], "age": [None, 5, exact], "city": ["A", None, "B"]})
    schema = Schema({"age": number(0, 100, missing=1), "city": category(["A", "B"], missing="none")}, description="x")
    equal(query, table, schema)
    mixed = database(tmp_path / "y.sqlite", [("a", exact, "A"), ("b", "17", "B")])
    equal(mixed, pa.table({"person_id": ["a", "b"], "age": [exact, 17], "city": ["A", "B"]}))


def test_columns_with_any_sign_in_their_names(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.sqlite") as made:
        made.execute('create table t (person_id, "a""; drop table t; --" integer)')
        made.execute("insert into t values ('p', 3)")
    made.close()
    schema = Schema({'a"; drop table t; --': number(0, 10)}, description="x")
    for _ in range(2):
        query = Query("select * from t -- all of it", "sqlite", file=tmp_path / "x.sqlite")
        assert read_table(query, schema).matrix().tolist() == [[-0.4]]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"database": "oracle", "uri_env": "X"}, "DA238"),
        ({"database": "postgresql"}, "DA240"),
        ({"database": "postgresql", "uri_env": "postgresql://u:hunter2@h/d"}, "DA241"),
        ({"database": "sqlite"}, "DA242"),
        ({"database": "sqlite", "file": "x", "uri_env": "X"}, "DA242"),
        ({"database": "sqlite", "file": "x", "query": " ; "}, "DA239"),
    ],
)
def test_queries_that_cannot_be(given: dict[str, str], said: str) -> None:
    with raises(DataError, said) as failed:
        Query(**{"query": "select 1", **given})  # type: ignore[arg-type]
    assert "hunter2" not in str(failed.value)


def test_a_driver_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BANK_DB", "postgresql://u:hunter2@127.0.0.1:1/d")
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql.dbapi", None)
    with raises(DataError, "DA223", "sql"):
        read_table(Query("select 1", "postgresql", uri_env="BANK_DB"), SCHEMA)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with raises(DataError, "DA223", "duckdb"):
        read_table(Query("select 1", "duckdb", file=tmp_path / "x"), SCHEMA)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3://me:hunter2@bucket/x/", "DA251"),
        ("s3://hunter2@bucket/x/", "DA251"),
        ("abfss://box:hunter2@account.dfs.core.windows.net/x", "DA251"),
        ("s3://bucket/x/?secret_key=hunter2", ("DA252", "secret_key")),
        ("abfss://box@account.dfs.core.windows.net/x?sas=hunter2", ("DA252", "sas")),
        ("ftp://bucket/x/", ("DA250", "ftp")),
    ],
)
def test_addresses_that_are_refused(tmp_path: Path, address: str, said: str) -> None:
    with raises(DataError, said) as failed:
        read_table(address, SCHEMA)
    (tmp_path / "party.toml").write_text(PARTY.format(data=f'data = "{address}"', section=""))
    with raises(StudyError, said) as refused:
        PartyConfig.load(tmp_path / "party.toml")
    assert "hunter2" not in f"{failed.value}{refused.value}"


def test_an_address_names_its_container() -> None:
    check_address("abfss://box@account.dfs.core.windows.net/x")
    check_address("gs://bucket/*.parquet")


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ('database = "postgresql"\nquery = "select 1"\nuri = "postgresql://u:hunter2@h/d"', ("VA210", "uri")),
        (
            'database = "postgresql"\nquery = "select 1"\nuri_env = "B"\npassword = "hunter2"',
            ("VA210", "password"),
        ),
        ('database = "postgresql"\nquery = "select 1"\nuri_env = "u:hunter2@h"', "DA241"),
        ('database = "oracle"\nquery = "select 1"', "ST573"),
        ('database = "sqlite"\nquery = "select 1"', "DA242"),
        ('database = "sqlite"', "ST573"),
    ],
)
def test_a_party_file_holds_no_password(tmp_path: Path, section: str, said: str) -> None:
    (tmp_path / "party.toml").write_text(PARTY.format(data="", section=f"[data]\n{section}"))
    with raises(StudyError, said) as failed:
        PartyConfig.load(tmp_path / "party.toml")
    assert "hunter2" not in str(failed.value)


def test_what_a_party_file_names(tmp_path: Path, lake: Path) -> None:
    def config(data: str, section: str = "") -> PartyConfig:
        (tmp_path / "party.toml").write_text(PARTY.format(data=data, section=section))
        return PartyConfig.load(tmp_path / "party.toml")

    assert config('data = "lake"').table(SCHEMA).rows == 600
    assert config('data = "lake/*.parquet"').rows_held(SCHEMA) == 600
    rows = [tuple(row.values()) for row in people(9).select(["person_id", "age", "city"]).to_pylist()]
    database(tmp_path / "x.sqlite", rows)
    asked = config("", '[data]\ndatabase = "sqlite"\nquery = "select * from people"\nfile = "x.sqlite"')
    assert asked.table(SCHEMA).rows == asked.rows_held(SCHEMA) == 9
    assert asked.source().name == f"the sqlite query on {tmp_path / 'x.sqlite'}"
    assert config('data = "s3://bucket/x/?region=eu-west-1"').source().name == "s3://bucket/x/"


def test_commands_read_the_table_of_a_party_file(tmp_path: Path, colonnade: Any) -> None:
    rows = [tuple(row.values()) for row in people(30).select(["person_id", "age", "city"]).to_pylist()]
    database(tmp_path / "x.sqlite", rows)
    section = '[data]\ndatabase = "sqlite"\nquery = "select * from people"\nfile = "x.sqlite"'
    (tmp_path / "party.toml").write_text(PARTY.format(data="", section=section))
    SCHEMA.save(tmp_path / "schema.toml")
    assert "30 rows fit" in colonnade("schema", "check", tmp_path / "party.toml", tmp_path / "schema.toml")
    colonnade("schema", "draft", tmp_path / "party.toml", "--out", tmp_path / "draft.toml", "--id", "person_id")
    assert "[columns.city]" in (tmp_path / "draft.toml").read_text()
    assert "--out" in colonnade("schema", "draft", tmp_path / "party.toml", code=ColonnadeError.exit_code)


_SHEETS = {
    "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="xml" ContentType="application/xml"/></Types>',
    "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship '
    'Id="r" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
    'Target="xl/workbook.xml"/></Relationships>',
    "xl/styles.xml": '<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><cellXfs count="2">'
    '<xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>',
}


def workbook(path: Path, *sheets: list[list[Any]]) -> Path:
    """An Excel file as its standard says; a day is the number of days since 1899-12-30, in the second style."""
    main, rels = "http://schemas.openxmlformats.org/spreadsheetml/2006/main", "officeDocument/2006/relationships"
    numbers = range(1, len(sheets) + 1)
    listed = "".join(f'<sheet name="s{k}" sheetId="{k}" r:id="r{k}"/>' for k in numbers)
    held = dict(_SHEETS)
    held["xl/workbook.xml"] = (
        f'<workbook xmlns="{main}" xmlns:r="http://schemas.openxmlformats.org/{rels}"><sheets>{listed}</sheets></workbook>'
    )
    targets = [(f"r{k}", "worksheet", f"worksheets/sheet{k}.xml") for k in numbers] + [("s", "styles", "styles.xml")]
    held["xl/_rels/workbook.xml.rels"] = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        + "".join(
            f'<Relationship Id="{name}" Type="http://schemas.openxmlformats.org/{rels}/{kind}" Target="{target}"/>'
            for name, kind, target in targets
        )
        + "</Relationships>"
    )
    for k, rows in zip(numbers, sheets, strict=True):
        cells = "".join(f"<row>{''.join(map(_cell, row))}</row>" for row in rows)
        held[f"xl/worksheets/sheet{k}.xml"] = f'<worksheet xmlns="{main}"><sheetData>{cells}</sheetData></worksheet>'
    with zipfile.ZipFile(path, "w") as made:
        for name, text in held.items():
            made.writestr(name, f'<?xml version="1.0" encoding="UTF-8"?>{text}')
    return path


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
    if isinstance(value, bool):
        return f'<c t="b"><v>{int(value)}</v></c>'
    if isinstance(value, datetime.date):
        return f'<c s="1"><v>{(value - datetime.date(1899, 12, 30)).days}</v></c>'
    return "<c/>" if value is None else f"<c><v>{value!r}</v></c>"


def test_a_spreadsheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell means what it would mean in a CSV file: whole numbers are ids, days are dates, nothing is missing."""
    schema = Schema(
        {
            "age": number(0, 100, missing=50),
            "city": category(["A", "B"], missing="none"),
            "since": date("2020-01-01", "2024-12-31"),
            "ill": flag(),
        },
        description="people",
    )
    day = datetime.date(2023, 5, 17)
    rows = [["person_id", "age", "city", "since", "ill"], [7, 33.25, "A", day, True], [8, None, "B", day, False]]
    path = workbook(tmp_path / "t.xlsx", rows)
    found = read_table(path, schema)
    same = tmp_path / "t.csv"
    same.write_text("person_id,age,city,since,ill\n7,33.25,A,2023-05-17,true\n8,,B,2023-05-17,false\n")
    assert list(found.ids) == ["7", "8"]
    assert np.array_equal(found.matrix(), read_table(same, schema).matrix())
    assert survey(path, schema).rows == opened(path).count() == 2
    assert "[columns.ill]" in draft_schema(path, id="person_id")
    with raises(DataError, "DA248"):
        read_table(workbook(tmp_path / "u.xlsx", rows, rows), schema)
    with raises(DataError, "DA245"):
        read_table(tmp_path / "none.xlsx", schema)
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with raises(DataError, "DA223", "excel"):
        read_table(path, schema)


def test_patterns() -> None:
    assert matcher("*/x-[0-9].parquet").fullmatch("a/x-1.parquet")
    assert not matcher("*.parquet").fullmatch("a/b.parquet")
    assert matcher("**/*.csv").fullmatch("a/b/c.csv")
    assert matcher("**/*.csv").fullmatch("c.csv")
    assert not matcher("*.csv").fullmatch("c.csv.bak")
