"""Tables that stay on disk: the same rows, ids and errors as in memory, and no more of them held than a few blocks."""

from __future__ import annotations

import errno
import gzip
import io
import os
import resource
import tempfile
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from colonnade.errors import DataError
from colonnade.tables import Key, KeyPlan, Schema, category, files, flag, number, read_table, reading
from colonnade.tables.cells import OnDisk, regrouped
from colonnade.tables.ids import Ids, packed
from colonnade.tables.spill import Spill
from colonnade.tables.table import Table
from tests.support.errors import raises
from tests.support.refusals import refused

SCHEMA = Schema(
    {"age": number(0, 100), "city": category(["A", "B"], missing="none"), "smoker": flag()}, description="people"
)
ROWS = 1000


def content(order: list[int] | None = None, rows: int = ROWS) -> pa.Table:
    draws = np.random.default_rng(5)
    table = pa.table(
        {
            "person_id": [f"p{i:05d}" for i in range(rows)],
            "age": draws.uniform(-10, 110, rows),
            "city": pa.array(draws.choice(["A", "B", ""], rows)).dictionary_encode(),
            "smoker": draws.integers(0, 2, rows).astype(bool),
            "unused": draws.uniform(size=rows),
        }
    )
    return table if order is None else table.take(order)


def shuffled(rows: int = ROWS) -> list[int]:
    return [int(i) for i in np.random.default_rng(6).permutation(rows)]


def write(folder: Path, table: pa.Table, kind: str) -> Path:
    path = folder / f"table.{kind}"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=300)
        return path
    plain = table.set_column(2, "city", table["city"].cast(pa.string()))
    pa.csv.write_csv(plain, path)
    if kind == "csv.gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz"])
@pytest.mark.parametrize("order", [None, shuffled()], ids=["sorted", "shuffled"])
def test_equal_to_memory(tmp_path: Path, kind: str, order: list[int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BATCH_ROWS", 64)
    path = write(tmp_path, content(order), kind)
    disk, memory = (read_table(path, SCHEMA, on_disk=on_disk) for on_disk in (True, False))
    assert disk.check() == memory.check()
    some = np.array([5, 900, 17, 17, -1])
    for view in (
        lambda table: table,
        lambda table: table.sorted_by_id(),
        lambda table: table.sorted_by_id().select(["age"]),
        lambda table: table.without(["age"]).sorted_by_id().unclipped(),
        lambda table: table.take_rows(some),
        lambda table: table.sorted_by_id().take_rows(some).take_rows([3, 0]),
        lambda table: table.take(["p00400", "p00010"]),
        lambda table: table.aligned([8, 2, 5], ["x", "y", "z"]),
        lambda table: table.placed([8, 2, 5], [1, 2, 9], 10, b"token"),
    ):
        left, right = view(disk), view(memory)
        assert (left.rows, left.ids, left.own_ids) == (right.rows, right.ids, right.own_ids)
        assert left.row_numbers.tolist() == right.row_numbers.tolist()
        np.testing.assert_array_equal(left.matrix(), right.matrix())
        for rows in (1 if left.rows < 10 else 100, 333, 5000):
            sizes = [len(block) for block in left.blocks(rows)]
            assert sizes == [len(block) for block in right.blocks(rows)]
        name = left.schema.names[0]
        np.testing.assert_array_equal(left.column(name), right.column(name))


def test_keys(tmp_path: Path) -> None:
    plan = KeyPlan((Key("person_id"),))
    path = write(tmp_path, content(shuffled()), "parquet")
    disk, memory = (
        read_table(path, SCHEMA, id=None, keys=plan, columns=None, on_disk=on_disk) for on_disk in (True, False)
    )
    assert disk.keys.values == memory.keys.values
    assert disk.own_ids == memory.own_ids


def test_without_ids(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, content(), "csv"), SCHEMA, id=None, on_disk=True)
    assert table.ids[:3] == ["1", "2", "3"]
    assert table.matrix().shape == (ROWS, 4)


def test_large_files_stay_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("parquet", "csv"):
        path = write(tmp_path, content(), kind)
        monkeypatch.setattr(reading, "_LARGE", 1 << 28)
        assert not isinstance(read_table(path, SCHEMA)._cells, OnDisk)
        monkeypatch.setattr(reading, "_LARGE", 10_000)
        assert isinstance(read_table(path, SCHEMA)._cells, OnDisk)
        assert not isinstance(read_table(path, SCHEMA, on_disk=False)._cells, OnDisk)
    assert not isinstance(read_table(content(), SCHEMA)._cells, OnDisk)


def test_a_compressed_file_counts_as_what_it_becomes(tmp_path: Path) -> None:
    plain, packed = (write(tmp_path, content(), kind) for kind in ("csv", "csv.gz"))
    assert files.bytes_in_memory(packed, "t", lambda _: ["age"]) > plain.stat().st_size


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("person_id,age,city,smoker\n1,5,A,1\n2,5,A\n", ("DA163", "2")),
        ("person_id,age,city,smoker\n1,5,A,1\n1,5,A,1\n", "DA175"),
        ("person_id,age,city,smoker\n", "DA202"),
        ("person_id,age,city\n1,5,A\n", ("DA154", "smoker")),
        ("person_id;age;city;smoker\n1;5;A;1\n", ("DA167", "semicolons")),
        ("", "DA155"),
        (b"person_id,age,city,smoker,x\n1,5,A,1,\xff\n", "DA270"),
    ],
)
def test_errors_are_those_of_small_files(tmp_path: Path, text: str | bytes, words: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = []
    for on_disk in (True, False):
        with raises(DataError, words) as caught:
            read_table(path, SCHEMA, on_disk=on_disk)
        found.append(str(caught.value))
    assert found[0] == found[1]


def test_a_bad_cell_is_named_by_its_row_in_the_file(tmp_path: Path) -> None:
    table = content(shuffled())
    ages = table["age"].to_pylist()
    ages[700] = float("inf")
    path = write(tmp_path, table.set_column(1, "age", pa.array(ages)), "parquet")
    refused(DataError, ("DA194", "age", "701"), read_table(path, SCHEMA, on_disk=True).sorted_by_id().check)


def test_an_empty_parquet_file(tmp_path: Path) -> None:
    refused(DataError, "DA202", read_table, write(tmp_path, content().slice(0, 0), "parquet"), SCHEMA, on_disk=True)


def test_a_file_that_changes_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, content(), "parquet")
    table = read_table(path, SCHEMA, on_disk=True)
    os.utime(path, ns=(1, 1))
    refused(DataError, "DA203", table.check)
    path.unlink()
    refused(DataError, "DA203", table.check)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("order", [None, shuffled()], ids=["sorted", "shuffled"])
def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, kind: str, order: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, untouched = write(tmp_path, content(order), kind), files.read_batches

    def touched(*args: Any) -> Iterator[pa.RecordBatch]:
        for batch in untouched(*args):
            os.utime(path, ns=(1, 1))
            yield batch

    monkeypatch.setattr(files, "_BATCH_ROWS", 100)
    blocks = read_table(path, SCHEMA, on_disk=True).sorted_by_id().blocks(ROWS // 4)
    monkeypatch.setattr(files, "read_batches", touched)
    refused(DataError, "DA203", list, islice(blocks, 4))  # protocols know how many there are and ask for no more
    os.utime(path)
    refused(DataError, "DA203", read_table, path, SCHEMA, on_disk=True)


def _both(path: Path, schema: Schema, **options: Any) -> tuple[Table, Table]:
    disk, memory = (read_table(path, schema, on_disk=on_disk, **options) for on_disk in (True, False))
    return disk, memory


def _assert_equal(disk: Table, memory: Table) -> None:
    for left, right in ((disk, memory), (disk.sorted_by_id(), memory.sorted_by_id())):
        assert left.ids == right.ids
        assert left.check() == right.check()
        np.testing.assert_array_equal(left.matrix(), right.matrix())


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_newlines_within_cells(tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK", 256)  # so that some cells lie across the edge of a block
    ids = [f"p\n{i:03d}" for i in shuffled(200)]
    lines = [f'"{person}",{i % 100},"A{end}1",1,"a, ""b""\n\n"' for i, person in enumerate(ids)]
    path = tmp_path / "table.csv"
    path.write_bytes(end.join(["person_id,age,city,smoker,note", *lines, ""]).encode())
    schema = Schema({"age": number(0, 100), "city": category([f"A{end}1", "B"]), "smoker": flag()})
    disk, memory = _both(path, schema)
    assert disk.ids == ids
    assert disk.matrix()[:, 1].sum() == 200
    _assert_equal(disk, memory)
    path.write_bytes(path.read_bytes() + b'"p\n999",5,B' + end.encode())
    for on_disk in (True, False):
        refused(DataError, ("DA163", "201"), read_table, path, schema, on_disk=on_disk)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.int64(), pa.float64(), pa.null()])
def test_null_ids(tmp_path: Path, kind: pa.DataType) -> None:
    values = [None if pa.types.is_null(kind) or i in (3, 700) else i for i in range(ROWS)]
    ids = pa.array(values).cast(kind)
    path = write(tmp_path, content().set_column(0, "person_id", ids), "parquet")
    found = []
    for on_disk in (True, False):
        with raises(DataError, "DA170", "person_id") as caught:
            read_table(path, SCHEMA, on_disk=on_disk)
        found.append(str(caught.value))
    assert found[0] == found[1]


def test_null_ids_of_rows_that_have_keys(tmp_path: Path) -> None:
    table = content(shuffled())
    texts = table["person_id"].to_pylist()
    ids = pa.array([None if i % 3 else text for i, text in enumerate(texts)])
    path = write(tmp_path, table.set_column(0, "person_id", ids).append_column("key", pa.array(texts)), "parquet")
    disk, memory = _both(path, SCHEMA, keys=KeyPlan((Key("key"),)))
    assert disk.keys.values == memory.keys.values
    assert disk.own_ids == memory.own_ids == [text or "" for text in ids.to_pylist()]
    np.testing.assert_array_equal(disk.take_rows([5, 2]).matrix(), memory.take_rows([5, 2]).matrix())


@pytest.mark.parametrize("order", [None, shuffled(90)], ids=["sorted", "shuffled"])
@pytest.mark.parametrize("batch", [7, 1000])
def test_dictionaries_that_differ_between_row_groups(
    tmp_path: Path, order: list[int] | None, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_BATCH_ROWS", batch)
    table = content(order, 90)
    labels = [["A", "B"], ["B", "C", None], ["D", "A"]]
    cities = [labels[i // 30][i % len(labels[i // 30])] for i in range(90)]
    path = tmp_path / "table.parquet"
    table = table.set_column(2, "city", pa.array(cities)).select(["person_id", "age", "city", "smoker"])
    parts = [table.slice(start, 30) for start in (0, 30, 60)]
    coded = [
        part.set_column(0, "person_id", part["person_id"].combine_chunks().dictionary_encode()).set_column(
            2, "city", part["city"].combine_chunks().dictionary_encode()
        )
        for part in parts
    ]
    with pq.ParquetWriter(path, coded[0].schema) as writer:
        for part in coded:
            writer.write_table(part)
    schema = Schema({"age": number(0, 100), "city": category(["A", "B", "C", "D"], missing="none"), "smoker": flag()})
    disk, memory = _both(path, schema)
    assert disk.ids == table["person_id"].to_pylist()
    assert [["A", "B", "C", "D"][int(row.argmax())] if row.any() else None for row in disk.column("city")] == cities
    _assert_equal(disk, memory)
    np.testing.assert_array_equal(disk.matrix(), read_table(table, schema).matrix())


@pytest.mark.parametrize("order", [None, shuffled(90)], ids=["sorted", "shuffled"])
def test_empty_row_groups(tmp_path: Path, order: list[int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BATCH_ROWS", 20)
    table, path = content(order, 90), tmp_path / "table.parquet"
    with pq.ParquetWriter(path, table.schema) as writer:
        for start, rows in ((0, 0), (0, 30), (30, 0), (30, 0), (30, 60), (90, 0)):
            writer.write_table(table.slice(start, rows))
    groups = pq.read_metadata(path)
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [0, 30, 0, 0, 60, 0]
    disk, memory = _both(path, SCHEMA)
    assert disk.ids == table["person_id"].to_pylist()
    _assert_equal(disk, memory)


def test_a_relative_path_holds_when_the_folder_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, content(), "parquet")
    monkeypatch.chdir(tmp_path)
    table = read_table("table.parquet", SCHEMA, on_disk=True)
    monkeypatch.chdir("/")
    assert table.check().rows == ROWS


# --- what is held


def counted(batches: Iterator[pa.RecordBatch], seen: list[int]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        seen.append(batch.num_rows)
        yield batch


def test_reading_holds_a_few_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's own count of what is alive while blocks are taken, which does not grow with the file."""
    pool = pa.default_memory_pool()
    monkeypatch.setattr(files, "_BATCH_ROWS", 1 << 10)
    most = []
    for rows in (20_000, 160_000):
        table = pa.table({"person_id": np.arange(rows) + 10**6, "age": np.linspace(0, 100, rows)})
        pq.write_table(table, tmp_path / "wide.parquet", row_group_size=10_000)
        del table
        held = read_table(tmp_path / "wide.parquet", SCHEMA.select(["age"]), on_disk=True)
        before = pool.bytes_allocated()
        most.append(max(pool.bytes_allocated() - before for _ in held.blocks(1 << 10)))
    assert most[1] <= 1.5 * most[0] + 65536
    assert most[1] < 160_000 * 8 / 2


def test_blocks_read_no_further_than_they_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BATCH_ROWS", 50)
    path, seen = write(tmp_path, content(), "parquet"), list[int]()
    blocks = regrouped(counted(files.read_batches(path, "t", ["age"]), seen), 120)
    assert next(blocks).num_rows == 120
    assert sum(seen) == 150


def test_views_share_one_copy_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[Any] = []
    once = files.read_batches
    monkeypatch.setattr(files, "read_batches", lambda *a: passes.append(a[2]) or once(*a))
    table = read_table(write(tmp_path, content(shuffled()), "parquet"), SCHEMA, on_disk=True)
    ordered = table.sorted_by_id()
    assert passes == [["person_id"]]
    for view in (ordered, ordered.select(["age"]), ordered.unclipped()):
        view.check()
    assert passes == [["person_id"], ["age", "city", "smoker"]]


def test_rows_in_order_are_not_copied(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, content(), "parquet"), SCHEMA, on_disk=True)
    assert table.sorted_by_id() is table


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_spilled_rows(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 60))
    order = np.array(data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=90)), dtype=np.int64)
    table = pa.table({"a": np.arange(rows), "b": [f"t{i}" for i in range(rows)]})
    source = iter(table.to_batches(max_chunksize=data.draw(st.integers(1, 70))))
    spill = Spill(source, order, stretch=data.draw(st.integers(1, 100)))
    for _ in range(2):
        found = pa.Table.from_batches(spill.batches(["b", "a"]))
        assert found["a"].to_pylist() == order.tolist()
        assert found["b"].to_pylist() == [f"t{i}" for i in order]


def test_no_stretch_is_longer_than_it_may_be() -> None:
    table = pa.table({"a": np.arange(1000)})
    spill = Spill(iter(table.to_batches(max_chunksize=64)), np.arange(1000)[::-1].copy(), stretch=100)
    assert [batch.num_rows for batch in spill.batches(["a"])] == [100] * 10


def test_a_full_disk_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: open("/dev/full", "r+b", buffering=0))  # noqa: SIM115
    table = pa.table({"a": np.arange(1000)})
    refused(DataError, "DA260", Spill, iter(table.to_batches()), np.arange(1000)[::-1].copy())


def test_one_file_holds_all_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    made, make = list[Any](), tempfile.TemporaryFile
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **options: made.append(make(**options)) or made[-1])
    table = pa.table({"a": np.arange(1000)})
    spill = Spill(iter(table.to_batches(max_chunksize=64)), np.arange(1000)[::-1].copy(), stretch=5)
    assert len(list(spill.batches(["a"]))) == 200
    assert len(made) == 1
    del spill
    assert made[0].closed


def test_too_many_open_files_are_not_called_a_full_disk() -> None:
    tempfile.gettempdir()  # looks for a folder when it is first asked
    table, (soft, hard) = pa.table({"a": np.arange(10)}), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with raises(DataError, "DA259") as caught:
            Spill(iter(table.to_batches()), np.arange(10)[::-1].copy())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "make room" not in str(caught.value)


class _Fading(io.FileIO):
    """A file on a disk that takes everything and gives nothing back."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_copy_that_cannot_be_read_back_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: _Fading(tmp_path / "copy", "w+b"))
    table = pa.table({"a": np.arange(1000)})
    spill = Spill(iter(table.to_batches()), np.arange(1000)[::-1].copy())
    refused(DataError, ("DA258", "Input/output error"), list, spill.batches(["a"]))


# --- ids


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=30),
    st.randoms(use_true_random=False),
)
def test_ids_are_a_sequence(texts: list[str], random: Any) -> None:
    array = pa.array(texts, pa.large_string())
    order = list(range(len(texts)))
    random.shuffle(order)
    for found, expected in (
        (Ids(array), texts),
        (Ids(array, np.array(order, dtype=np.int64)), [texts[i] for i in order]),
    ):
        assert (len(found), list(found), found) == (len(expected), expected, expected)
        assert expected == found
        assert found[1:4] == expected[1:4]
        assert found[::-1] == expected[::-1]
        assert packed(found, 1, 4) == packed(expected, 1, 4)
        assert packed(found, 0, len(found)) == packed(expected, 0, len(found))
        assert found[-3::2] == expected[-3::2]
        assert [found[i] for i in range(-len(texts), len(texts))] == expected + expected
        assert found != [*expected, "more"]
        as_bytes = [text.encode() for text in expected]
        assert found.in_order() == all(a < b for a, b in pairwise(as_bytes))
        with pytest.raises(IndexError):
            found[len(texts)]


def test_order_is_seen_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.tables.ids._CHUNK", 4)
    texts = [f"{i:02d}" for i in range(13)]
    assert Ids(pa.array(texts, pa.large_string())).in_order()
    for place in range(1, 13):
        wrong = [*texts[:place], texts[place - 1], *texts[place + 1 :]]
        assert not Ids(pa.array(wrong, pa.large_string())).in_order()
        table = pa.table({"person_id": wrong, "age": np.zeros(13)})
        refused(DataError, ("DA175", place, place + 1), read_table, table, SCHEMA.select(["age"]))
