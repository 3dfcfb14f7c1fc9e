"""Studies whose tables lie in PostgreSQL, in an object store, in DuckDB and in frames, with real servers."""

from __future__ import annotations

import dataclasses
import re
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.fs
import pyarrow.parquet as pq
import pytest

from colonnade import PCA, PartyConfig, Query, Schema, category, number, read_table
from colonnade.console.party_view import survey_in_child
from colonnade.errors import DataError
from colonnade.tables import table as reading
from colonnade.tables.sources import object_stores
from colonnade.tables.table import OnDiskCells
from tests.support.errors import raises
from tests.support.servers import PASSWORD, azure, google, postgresql, s3

pytestmark = pytest.mark.system
SCHEMA = Schema({"age": number(0, 100), "city": category(["A", "B"], missing="none")}, description="people")


@pytest.fixture(scope="module")
def bank_db():
    with postgresql() as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("BANK_DB", address)
        yield address


@pytest.fixture(scope="module")
def store():
    """What the address of a bucket needs after its question mark; the bucket is called lake."""
    with pytest.MonkeyPatch.context() as patch, s3(patch) as options:
        files(options).create_dir("lake")
        yield options


def files(options):
    at = options.rpartition("=")[2]
    return pyarrow.fs.S3FileSystem(region="us-east-1", scheme="http", endpoint_override=at, allow_bucket_creation=True)


def asked(address, *statements, **tables):
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(address) as opened, opened.cursor() as cursor:
        for name, table in tables.items():
            cursor.adbc_ingest(name, table, mode="replace")
        for statement in statements:
            cursor.execute(statement)
        opened.commit()


def put(options, path, content):
    with files(options).open_output_stream(f"lake/{path}") as sink:
        if isinstance(content, bytes):
            sink.write(content)
        elif path.endswith("parquet"):
            pq.write_table(content, sink)
        else:
            pyarrow.csv.write_csv(content, sink)


def same(found, table, schema=SCHEMA):
    return np.array_equal(found.sorted_by_id().matrix(), read_table(table, schema).sorted_by_id().matrix())


def people(rows=1000):
    draws = np.random.default_rng(8)
    return pa.table(
        {
            "person_id": [f"p{i:05d}" for i in range(rows)],
            "age": draws.uniform(-10, 110, rows),
            "city": draws.choice(["A", "B"], rows),
            "secret": ["never-read-me"] * rows,
        }
    )


def written(folder, data):
    file = folder / "party.toml"
    text, count = re.subn(r"(?m)^data = .*\n", "" if data.startswith("[") else data, file.read_text())
    assert count == 1
    file.write_text(text + (data if data.startswith("[") else ""))


def test_a_study_of_a_database_an_object_store_and_a_warehouse(trial, bank_db, store):
    """Three organisations, none with a file: the tables are those of the files, and no record holds a password."""
    duckdb = pytest.importorskip("duckdb")
    study = trial(rows=300)
    configs = {name: study.folder / name / "party.toml" for name in study.parties}
    schemas = {name: study.study().roster.schemas[name] for name in study.parties}
    before = {name: PartyConfig.load(path).table(schemas[name]) for name, path in configs.items()}
    tables = {name: pyarrow.csv.read_csv(study.folder / name / f"{name}.csv") for name in study.parties}

    asked(bank_db, customers=tables["bank"])
    half = tables["shop"].num_rows // 2
    for place in range(2):
        put(store, f"shop/part-{place}.parquet", tables["shop"].slice(place * half, half + place))
    with duckdb.connect(str(study.folder / "clinic" / "clinic.duckdb")) as opened:
        opened.register("given", tables["clinic"])
        opened.execute("create table patients as select * from given")
    for name in study.parties:
        (study.folder / name / f"{name}.csv").unlink()
    query = '[data]\ndatabase = "{}"\nquery = "select * from {}"\n{}\n'
    written(study.folder / "bank", query.format("postgresql", "customers", 'uri_env = "BANK_DB"'))
    written(study.folder / "shop", f'data = "s3://lake/shop/{store}"\n')
    written(study.folder / "clinic", query.format("duckdb", "patients", 'file = "clinic.duckdb"'))

    for name, path in configs.items():
        config = PartyConfig.load(path)
        after = config.table(schemas[name])
        assert after.sorted_by_id().ids == before[name].sorted_by_id().ids
        assert np.array_equal(after.sorted_by_id().matrix(), before[name].sorted_by_id().matrix())
        assert config.count_rows(schemas[name]) == before[name].rows

    study.start("coordinator", "shop", "clinic", threads=True)
    study.start("bank")  # a process of its own finds the address in its environment
    ended = study.end_well()
    models = [PCA.load(study.out(name) / "model.json") for name in ("coordinator", *study.parties)]
    assert all(np.array_equal(model.components_, models[0].components_) for model in models)
    assert study.run_json("bank")["rows_held"] == before["bank"].rows
    for file in study.folder.rglob("*"):
        assert not file.is_file() or PASSWORD.encode() not in file.read_bytes(), file
    assert PASSWORD not in "".join(end.text for end in ended.values())
    surveyed = survey_in_child(PartyConfig.load(configs["bank"]), study.folder / "schemas" / "bank.toml")
    assert surveyed.rows == before["bank"].rows  # as the console reads it


@pytest.fixture(scope="module")
def table_in_db(bank_db):
    asked(bank_db, people=people())
    return Query("select * from people", "postgresql", uri_env="BANK_DB")


@pytest.mark.parametrize("on_disk", [None, True, False])
def test_a_query_gives_the_rows_of_the_table_whatever_order_they_come_in(table_in_db, on_disk):
    found = read_table(table_in_db, SCHEMA, on_disk=on_disk)
    assert isinstance(found._cells, OnDiskCells) == (on_disk is True)
    assert found.check() == read_table(people(), SCHEMA).check()
    assert same(found, people())
    shuffled = Query("select * from people order by random()", "postgresql", uri_env="BANK_DB")
    mixed = read_table(shuffled, SCHEMA, on_disk=on_disk)
    assert list(mixed.ids) != list(read_table(shuffled, SCHEMA).ids)
    assert same(mixed, people())


def test_types_of_postgresql(bank_db):
    asked(
        bank_db,
        "drop table if exists kinds",
        "create table kinds (person_id bigint, age numeric(9,3), city varchar(3))",
        "insert into kinds values (1, 20.125, 'A'), (2, null, null), (3, 7, 'B')",
    )
    schema = Schema({"age": number(0, 100, missing=50), "city": category(["A", "B"], missing="none")}, description="x")
    query = Query("select * from kinds", "postgresql", uri_env="BANK_DB")
    table = pa.table({"person_id": [1, 2, 3], "age": [20.125, None, 7], "city": ["A", None, "B"]})
    for decimal in (None, ","):  # which is said of text files, where 20,125 is a number
        assert same(read_table(query, schema, decimal=decimal), table, schema)
    whole = "select '12345678-90ab-cdef-1234-567890abcdef'::uuid as person_id, 3 as age, 'A' as city"
    found = read_table(Query(whole, "postgresql", uri_env="BANK_DB"), schema)
    assert list(found.ids) == ["12345678-90ab-cdef-1234-567890abcdef"]


def test_rows_are_of_one_moment_and_other_columns_are_not_computed(bank_db, table_in_db):
    """Rows that somebody deletes while the table is in use are still there; a column that fails is not asked for."""
    failing = Query("select *, 1 / (length(secret) - 13) as broken from people", "postgresql", uri_env="BANK_DB")
    found = read_table(failing, SCHEMA, on_disk=True)
    first = found.matrix()
    asked(bank_db, "delete from people where age < 50")
    try:
        assert np.array_equal(found.matrix(), first)
        assert read_table(table_in_db, SCHEMA).rows < found.rows
    finally:
        asked(bank_db, people=people())
    wider = Schema({**SCHEMA.columns, "broken": number(0, 1)}, description="x")
    with raises(DataError, "DA210"):
        read_table(failing, wider)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select * from nowhere", "DA208"),
        ("select nothing from people", "DA208"),
        ("select * frm people", "DA208"),
        ("select person_id, age from people", ("DA154", "city", "'person_id', 'age'")),
        ("select person_id, age, city::int as city from people", "DA210"),
        ("with gone as (delete from people returning *) select * from gone", "DA208"),
        ("select person_id, array[1] as age, city from people", ("DA192", "age")),
        ("select person_id, age::numeric::money as age, city from people", ("DA207", "age")),
        ("select person_id, age, age, city from people", ("DA169", "age")),
        ("select * from people) as x; drop table people; select * from (select 1", "DA208"),
        ("select * from people where false", "DA202"),
    ],
)
def test_a_query_that_fails_is_a_sentence_without_data(table_in_db, query, said):
    with raises(DataError, said) as failed:
        read_table(Query(query, "postgresql", uri_env="BANK_DB"), SCHEMA).check()
    for word in (PASSWORD, "never-read-me", "'A'", '"A"'):
        assert word not in str(failed.value)
    assert read_table(table_in_db, SCHEMA).rows == 1000


def test_an_address_that_is_wrong(table_in_db, monkeypatch, bank_db):
    for address, said in {
        bank_db.replace(PASSWORD, "wrong"): "DA209",
        bank_db.replace("/postgres", "/nobase").replace("postgresql:/nobase", "postgresql:/"): "DA209",
        "postgresql://bank:x@127.0.0.1:1/postgres": "DA209",
        f"postgresql://bank:{PASSWORD}@[broken/x": "DA*",
        "": ("DA244", "BANK_DB"),
    }.items():
        monkeypatch.setenv("BANK_DB", address)
        with raises(DataError, said) as failed:
            read_table(table_in_db, SCHEMA)
        assert "bank:" not in str(failed.value)


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz"])
@pytest.mark.parametrize("on_disk", [None, True])
def test_an_object_store_gives_the_rows_of_the_files(store, kind, on_disk):
    table = people()
    for place in range(3):
        put(store, f"{kind}/city-is/{place}.{kind}", table.slice(place * 400, 400))
    put(store, f"{kind}/_SUCCESS", b"")
    for address in (f"s3://lake/{kind}/", f"s3://lake/{kind}", f"s3://lake/{kind}/*/*.{kind}"):
        found = read_table(f"{address}{store}", SCHEMA, on_disk=on_disk)
        assert found.ids == read_table(table, SCHEMA).ids
        assert np.array_equal(found.matrix(), read_table(table, SCHEMA).matrix())


def touching(monkeypatch, touch):
    from colonnade.tables import files as readers

    untouched = readers.read_batches

    def touched(*given):
        touch()
        yield from untouched(*given)

    monkeypatch.setattr(readers, "read_batches", touched)


@pytest.mark.parametrize("swift", [False, True], ids=["another file", "another content of the same size and second"])
def test_what_changes_in_a_store_while_it_is_read_is_noticed(store, monkeypatch, swift):
    """A store tells times in seconds; it also tells which content it has."""
    told, folder = object_stores._stored_file, f"moving{swift:d}"
    if swift:
        monkeypatch.setattr(object_stores, "_stored_file", lambda *given: dataclasses.replace(told(*given), changed=1))
    put(store, f"{folder}/0.csv", b"person_id,age,city\np1,3,A\n")
    assert read_table(f"s3://lake/{folder}/{store}", SCHEMA).rows == 1
    touching(monkeypatch, lambda: put(store, f"{folder}/{not swift:d}.csv", b"person_id,age,city\np1,4,A\n"))
    with raises(DataError, "DA203", f"s3://lake/{folder}/"):
        read_table(f"s3://lake/{folder}/{store}", SCHEMA)


def test_names_that_an_address_writes_in_another_way(store):
    for name in ("a b/x=ü/0.csv", "h#h/0.csv", "p%20q/0.csv", "b[1]/0.csv", "v/_x/0.csv", "v/0.csv"):
        put(store, f"odd names/{name}", f"person_id,age,city\n{name},3,A\n".encode())
    for written, name in {
        "a b/": "a b/x=ü/0.csv",
        "a%20b/x=*/0.csv": "a b/x=ü/0.csv",
        "a b/x=%C3%BC/*.csv": "a b/x=ü/0.csv",
        "h%23h/": "h#h/0.csv",
        "p%2520q/0.csv": "p%20q/0.csv",
        "b%5B1%5D/": "b[1]/0.csv",
        "v/**/*.csv": "v/0.csv",
        "v/_x/*.csv": "v/_x/0.csv",
    }.items():
        assert list(read_table(f"s3://lake/odd names/{written}{store}", SCHEMA).ids) == [name]


def test_errors_of_a_store(store):
    put(store, "odd/0.csv", "person_id,age,city\np1,3,A\np2,4,Mün\n".encode("latin-1"))
    for path, said in {
        "lake/odd/": ("DA270", "s3://lake/odd/0.csv"),
        "lake/nothing/": ("DA229", "s3://lake/nothing/"),
        "no-such-bucket/x/": ("DA229", "s3://no-such-bucket/x/"),
    }.items():
        with raises(DataError, said):
            read_table(f"s3://{path}{store}", SCHEMA)


def read_and_changed(address, opened, monkeypatch):
    """What any store must do; the address is that of a folder of an empty bucket called lake."""

    def write(place):
        with opened.open_output_stream(f"lake/people/city-is/{place}.parquet") as sink:
            pq.write_table(people().slice(place * 400, 400), sink)

    for place in range(3):
        write(place)
    for pattern, rows in {"": 1000, "**/*.parquet": 1000, "city-is/0.parquet": 400}.items():
        found = read_table(address.replace("/people/", f"/people/{pattern}"), SCHEMA, on_disk=True)
        assert found.ids == read_table(people(), SCHEMA).ids[:rows]
    assert same(read_table(address, SCHEMA), people())
    touching(monkeypatch, lambda: write(0))  # the same rows, as another version
    with raises(DataError, "DA203"):
        read_table(address, SCHEMA)


def test_the_store_of_google(monkeypatch):
    with google() as options:
        address = f"gs://anonymous@lake/people/{options}"
        read_and_changed(address, pyarrow.fs.FileSystem.from_uri(address)[0], monkeypatch)


def test_the_store_of_azure(monkeypatch):
    with azure(monkeypatch) as options:
        address = f"abfs://lake@lakes.dfs.core.windows.net/people/{options}"
        opened, _ = object_stores._connect_azure(urlsplit(address), "/")
        opened.create_dir("lake")
        with monkeypatch.context() as patched:
            read_and_changed(address, opened, patched)
        monkeypatch.setenv("AZURE_STORAGE_KEY", "d3Jvbmc=")
        with raises(DataError, "DA257") as failed:
            read_table(address, SCHEMA)
        assert "d3Jvbmc" not in str(failed.value)
        monkeypatch.delenv("AZURE_STORAGE_KEY")
        with raises(DataError, "DA255"):  # Arrow would end the process
            read_table(address, SCHEMA)


def test_frames_of_polars(monkeypatch):
    pl = pytest.importorskip("polars")
    frame = pl.from_arrow(people()).with_columns(pl.col("city").cast(pl.Categorical))
    assert same(read_table(frame, SCHEMA), people())
    monkeypatch.setattr(reading, "_LARGE", 1000)
    assert isinstance(read_table(frame, SCHEMA)._cells, OnDiskCells)
    assert same(read_table(frame, SCHEMA), people())
