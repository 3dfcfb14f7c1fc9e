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
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import DataError
from colonnade.tables import Key, KeyPlan, Schema, category, files, flag, number, read_table, reading
from colonnade.tables.cells import OnDisk, regrouped
from colonnade.tables.ids import Ids, packed
from colonnade.tables.spill import Spill
from colonnade.tables.table import Table
from tests.support.errors import refused
from tests.support.tables import put

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


ORDERS = pytest.mark.parametrize("order", [None, shuffled()], ids=["sorted", "shuffled"])


def write(folder: Path, table: pa.Table, kind: str = "parquet") -> Path:
    path = folder / f"table.{kind}"
    if kind == "parquet":
        return put(table, path, 300)
    put(table.set_column(2, "city", table["city"].cast(pa.string())), path)
    if kind == "csv.gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


def both(path: Path, schema: Schema = SCHEMA, **options: Any) -> list[Table]:
    """The table on disk and in memory, which are equal."""
    disk, memory = (read_table(path, schema, on_disk=on_disk, **options) for on_disk in (True, False))
    pairs = [(disk, memory)] if options else [(disk, memory), (disk.sorted_by_id(), memory.sorted_by_id())]
    for left, right in pairs:
        assert (left.ids, left.own_ids, left.check()) == (right.ids, right.own_ids, right.check())
        np.testing.assert_array_equal(left.matrix(), right.matrix())
    return [disk, memory]


def both_refuse(said: Any, path: Path, schema: Schema = SCHEMA) -> None:
    """The same is said of a table on disk and in memory."""
    found = {refused(DataError, said, read_table, path, schema, on_disk=on_disk) for on_disk in (True, False)}
    assert len(found) == 1


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz"])
@ORDERS
def test_equal_to_memory(tmp_path: Path, kind: str, order: list[int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BATCH_ROWS", 64)
    disk, memory = both(write(tmp_path, content(order), kind))
    some = np.array([5, 900, 17, 17, -1])
    for view in (
        lambda table: table,
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
            assert [len(block) for block in left.blocks(rows)] == [len(block) for block in right.blocks(rows)]
        name = left.schema.names[0]
        np.testing.assert_array_equal(left.column(name), right.column(name))


def test_tables_with_keys_and_without_ids(tmp_path: Path) -> None:
    table = content(shuffled())
    texts = table["person_id"].to_pylist()
    ids = pa.array([None if i % 3 else text for i, text in enumerate(texts)])
    path = write(tmp_path, table.set_column(0, "person_id", ids).append_column("key", pa.array(texts)))
    for options in ({"id": None}, {}):
        disk, memory = both(path, keys=KeyPlan((Key("key"),)), **options)
        assert disk.keys.values == memory.keys.values
    assert disk.own_ids == [text or "" for text in ids.to_pylist()]
    found = read_table(write(tmp_path, table, "csv"), SCHEMA, id=None, on_disk=True)
    assert (found.ids[:3], found.matrix().shape) == (["1", "2", "3"], (ROWS, 4))


def test_large_files_stay_on_disk_wherever_the_program_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, smaller, rows = (write(tmp_path, content(), kind) for kind in ("csv", "csv.gz", "parquet"))
    assert files.bytes_in_memory(smaller, "t", lambda _: ["age"]) > plain.stat().st_size, "counts as what it becomes"
    for path in (plain, rows):
        for large, on_disk, expected in ((1 << 28, None, False), (10_000, None, True), (10_000, False, False)):
            monkeypatch.setattr(reading, "_LARGE", large)
            assert isinstance(read_table(path, SCHEMA, on_disk=on_disk)._cells, OnDisk) == expected
    assert not isinstance(read_table(content(), SCHEMA)._cells, OnDisk)
    monkeypatch.chdir(tmp_path)
    table = read_table("table.parquet", SCHEMA, on_disk=True)
    monkeypatch.chdir("/")
    assert table.check().rows == ROWS


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"person_id,age,city,smoker\n1,5,A,1\n2,5,A\n", ("DA163", "2")),
        (b"person_id,age,city,smoker\n1,5,A,1\n1,5,A,1\n", "DA175"),
        (b"person_id,age,city,smoker\n", "DA202"),
        (b"person_id,age,city\n1,5,A\n", ("DA154", "smoker")),
        (b"person_id;age;city;smoker\n1;5;A;1\n", ("DA167", "semicolons")),
        (b"", "DA155"),
        (b"person_id,age,city,smoker,x\n1,5,A,1,\xff\n", "DA270"),
    ],
)
def test_errors_are_those_of_small_files(tmp_path: Path, text: bytes, said: Any) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(text)
    both_refuse(said, path)


def test_bad_cells_ids_that_are_missing_and_no_rows(tmp_path: Path) -> None:
    table = content(shuffled())
    ages = table["age"].to_pylist()
    ages[700] = float("inf")
    path = write(tmp_path, table.set_column(1, "age", pa.array(ages)))
    refused(DataError, ("DA194", "age", "701"), read_table(path, SCHEMA, on_disk=True).sorted_by_id().check)
    both_refuse("DA202", write(tmp_path, content().slice(0, 0)))
    for kind in (pa.string(), pa.large_string(), pa.int64(), pa.float64(), pa.null()):
        values = [None if pa.types.is_null(kind) or i in (3, 700) else i for i in range(ROWS)]
        ids = pa.array(values).cast(kind)
        both_refuse(("DA170", "person_id"), write(tmp_path, content().set_column(0, "person_id", ids)))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@ORDERS
def test_a_file_that_changes_is_refused(
    tmp_path: Path, kind: str, order: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, untouched = write(tmp_path, content(order), kind), files.read_batches

    def touched(*args: Any) -> Iterator[pa.RecordBatch]:
        for batch in untouched(*args):
            os.utime(path, ns=(1, 1))
            yield batch

    monkeypatch.setattr(files, "_BATCH_ROWS", 100)
    table = read_table(path, SCHEMA, on_disk=True)
    blocks = read_table(path, SCHEMA, on_disk=True).sorted_by_id().blocks(ROWS // 4)
    monkeypatch.setattr(files, "read_batches", touched)
    refused(DataError, "DA203", list, islice(blocks, 4))  # protocols know how many there are and ask for no more
    os.utime(path)
    refused(DataError, "DA203", read_table, path, SCHEMA, on_disk=True)
    refused(DataError, "DA203", table.check)
    path.unlink()
    refused(DataError, "DA203", table.check)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_newlines_within_cells(tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK", 256)  # so that some cells lie across the edge of a block
    ids = [f"p\n{i:03d}" for i in shuffled(200)]
    lines = [f'"{person}",{i % 100},"A{end}1",1,"a, ""b""\n\n"' for i, person in enumerate(ids)]
    path = tmp_path / "table.csv"
    path.write_bytes(end.join(["person_id,age,city,smoker,note", *lines, ""]).encode())
    schema = Schema({"age": number(0, 100), "city": category([f"A{end}1", "B"]), "smoker": flag()})
    disk, _ = both(path, schema)
    assert (disk.ids, disk.matrix()[:, 1].sum()) == (ids, 200)
    path.write_bytes(path.read_bytes() + b'"p\n999",5,B' + end.encode())
    both_refuse(("DA163", "201"), path, schema)


@pytest.mark.parametrize("order", [None, shuffled(90)], ids=["sorted", "shuffled"])
@pytest.mark.parametrize("batch", [7, 1000])
def test_row_groups_that_are_empty_or_whose_dictionaries_differ(
    tmp_path: Path, order: list[int] | None, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_BATCH_ROWS", batch)
    labels = [["A", "B"], ["B", "C", None], ["D", "A"]]
    cities = [labels[i // 30][i % len(labels[i // 30])] for i in range(90)]
    path = tmp_path / "table.parquet"
    table = content(order, 90).set_column(2, "city", pa.array(cities)).drop_columns(["unused"])
    coded = []
    for start, rows in ((0, 0), (0, 30), (30, 0), (30, 0), (30, 30), (60, 30), (90, 0)):
        part = table.slice(start, rows)
        for place in (0, 2):
            column = part.column(place).combine_chunks().dictionary_encode()
            part = part.set_column(place, part.column_names[place], column)
        coded.append(part)
    with pq.ParquetWriter(path, coded[0].schema) as writer:
        for part in coded:
            writer.write_table(part)
    groups = pq.read_metadata(path)
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [0, 30, 0, 0, 30, 30, 0]
    schema = Schema({"age": number(0, 100), "city": category(["A", "B", "C", "D"], missing="none"), "smoker": flag()})
    disk, _ = both(path, schema)
    assert disk.ids == table["person_id"].to_pylist()
    assert [["A", "B", "C", "D"][int(row.argmax())] if row.any() else None for row in disk.column("city")] == cities
    np.testing.assert_array_equal(disk.matrix(), read_table(table, schema).matrix())


# --- what is held


def test_reading_holds_a_few_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's own count of what is alive while blocks are taken, which does not grow with the file."""
    pool = pa.default_memory_pool()
    monkeypatch.setattr(files, "_BATCH_ROWS", 1 << 10)
    most = []
    for rows in (20_000, 160_000):
        table = pa.table({"person_id": np.arange(rows) + 10**6, "age": np.linspace(0, 100, rows)})
        path = put(table, tmp_path / "wide.parquet", 10_000)
        del table
        held = read_table(path, SCHEMA.select(["age"]), on_disk=True)
        before = pool.bytes_allocated()
        most.append(max(pool.bytes_allocated() - before for _ in held.blocks(1 << 10)))
    assert most[1] <= 1.5 * most[0] + 65536
    assert most[1] < 160_000 * 8 / 2


def test_no_more_is_read_than_must_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BATCH_ROWS", 50)
    path, seen, passes, once = write(tmp_path, content()), list[int](), list[Any](), files.read_batches

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in once(path, "t", ["age"]):
            seen.append(batch.num_rows)
            yield batch

    assert next(regrouped(counted(), 120)).num_rows == 120
    assert sum(seen) == 150
    table = read_table(path, SCHEMA, on_disk=True)
    assert table.sorted_by_id() is table, "rows in order are not copied"
    monkeypatch.setattr(files, "read_batches", lambda *given: passes.append(given[2]) or once(*given))
    ordered = read_table(write(tmp_path, content(shuffled())), SCHEMA, on_disk=True).sorted_by_id()
    assert passes == [["person_id"]]
    for view in (ordered, ordered.select(["age"]), ordered.unclipped()):
        view.check()
    assert passes == [["person_id"], ["age", "city", "smoker"]], "views share one copy in order"


def spilled(rows: int = 1000, batch: int = 64, **options: Any) -> Spill:
    """Rows in the reverse order, put aside."""
    table = pa.table({"a": np.arange(rows)})
    return Spill(iter(table.to_batches(max_chunksize=batch)), np.arange(rows)[::-1].copy(), **options)


@settings(max_examples=40, deadline=None)
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


def test_one_file_holds_all_stretches_and_none_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    made, make = list[Any](), tempfile.TemporaryFile
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **options: made.append(make(**options)) or made[-1])
    spill = spilled(stretch=5)
    assert [batch.num_rows for batch in spill.batches(["a"])] == [5] * 200
    assert len(made) == 1
    del spill
    assert made[0].closed


class _Fading(io.FileIO):
    """A file on a disk that takes everything and gives nothing back."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_disk_that_fails_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: _Fading(tmp_path / "copy", "w+b"))
    refused(DataError, ("DA258", "Input/output error"), list, spilled().batches(["a"]))
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: open("/dev/full", "r+b", buffering=0))  # noqa: SIM115
    refused(DataError, "DA260", spilled)
    monkeypatch.undo()
    tempfile.gettempdir()  # looks for a folder when it is first asked
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert "make room" not in refused(DataError, "DA259", spilled), "too many open files are no full disk"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# --- ids


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=30),
    st.randoms(use_true_random=False),
)
def test_ids_are_a_sequence(texts: list[str], random: Any) -> None:
    array, order = pa.array(texts, pa.large_string()), list(range(len(texts)))
    random.shuffle(order)
    for found, expected in (
        (Ids(array), texts),
        (Ids(array, np.array(order, dtype=np.int64)), [texts[i] for i in order]),
    ):
        assert (len(found), list(found), found) == (len(expected), expected, expected)
        assert expected == found
        assert found != [*expected, "more"]
        for some in (slice(1, 4), slice(None, None, -1), slice(-3, None, 2)):
            assert found[some] == expected[some]
        for start, stop in ((1, 4), (0, len(found))):
            assert packed(found, start, stop) == packed(expected, start, stop)
        assert [found[i] for i in range(-len(texts), len(texts))] == expected + expected
        assert found.in_order() == all(a.encode() < b.encode() for a, b in pairwise(expected))
        refused(IndexError, (), found.__getitem__, len(texts))


def test_order_is_seen_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.tables.ids._CHUNK", 4)
    texts = [f"{i:02d}" for i in range(13)]
    assert Ids(pa.array(texts, pa.large_string())).in_order()
    for place in range(1, 13):
        wrong = [*texts[:place], texts[place - 1], *texts[place + 1 :]]
        assert not Ids(pa.array(wrong, pa.large_string())).in_order()
        table = pa.table({"person_id": wrong, "age": np.zeros(13)})
        refused(DataError, ("DA175", place, place + 1), read_table, table, SCHEMA.select(["age"]))
