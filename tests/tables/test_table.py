"""A party's table: rows of files and frames in any order, views of it, places in a larger one, and made-up people."""

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
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from colonnade.errors import DataError, DatasetError, SchemaError
from colonnade.tables import (
    Key,
    KeyPlan,
    RowSlots,
    Schema,
    SlottedRows,
    Table,
    category,
    files,
    flag,
    number,
    population,
    read_table,
    table as reading,
)
from colonnade.tables.keys import Ids, pack_ids
from colonnade.tables.sources.base import ExternalSort
from colonnade.tables.table import ColumnCentring, OnDiskCells
from tests.support.errors import refused
from tests.support.tables import put

SCHEMA = Schema({"age": number(0, 100), "city": category(["A", "B"]), "smoker": flag()})
CSV = "note,person_id,smoker,city,age\nx,007,yes,B,0\ny,010,0,A,50\nz,0001,TRUE,A,100\n"
ENCODED = [[-1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 0, 1]]
HIDDEN = "73519"


def write(folder: Path, content: str | bytes, name: str = "bank.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_csv(tmp_path: Path) -> None:
    SCHEMA.save(tmp_path / "bank.toml")
    table = read_table(write(tmp_path, CSV), tmp_path / "bank.toml")
    assert (table.ids, table.matrix().tolist()) == (["007", "010", "0001"], ENCODED)
    assert (table.rows, len(table), table.schema) == (3, 3, SCHEMA)
    assert (table.source, "3 rows" in repr(table)) == (str(tmp_path / "bank.csv"), True)
    for content in (
        "\ufeff" + CSV,
        CSV.replace("\n", "\r\n"),
        CSV.replace("\n", "\n\n"),
        CSV.replace("x,", '"x, with\nlines and ""quotes""",'),
        CSV.rstrip("\n"),
        CSV.replace("note", "").replace("x,", ",").replace("\ny,", "\n,"),
    ):
        assert read_table(write(tmp_path, content), SCHEMA).matrix().tolist() == ENCODED


def test_other_files_and_frames(tmp_path: Path) -> None:
    tabs = write(tmp_path, CSV.replace(",", "\t"), "bank.tsv")
    packed = write(tmp_path, gzip.compress(CSV.encode()), "bank.csv.gz")
    cells = {"age": [0, 50, 100], "smoker": [1, 0, 1], "city": ["B", "A", "A"], "person_id": [7, 1, 3]}
    arrow = pa.table({**cells, "x": [[1], [2], [3]]})
    rows = put(arrow, tmp_path / "bank.parquet")
    frame = pd.DataFrame(cells).astype({"city": "category", "person_id": float, "smoker": bool})
    numbered = [rows, arrow, arrow.to_batches()[0], frame, frame.set_index("person_id")]
    for ids, sources in ((["007", "010", "0001"], [str(tabs), packed]), (["7", "1", "3"], numbered)):
        for source in sources:
            table = read_table(source, SCHEMA)
            assert (table.ids, table.matrix().tolist()) == (ids, ENCODED)
    mixed = frame.assign(city=pd.Series(["A", int(HIDDEN), "B"], dtype=object))
    assert HIDDEN not in refused(DataError, ("DA168", "frame", "city"), read_table, mixed, SCHEMA, name="frame")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(st.permutations(["age", "city", "smoker", "person_id", "other"]), st.sampled_from(["csv", "parquet"]))
def test_column_order_comes_from_the_schema(tmp_path: Path, order: list[str], kind: str) -> None:
    cells = {"age": [0, 50], "city": ["B", "A"], "smoker": [1, 0], "person_id": ["a", "b"], "other": [1, 2]}
    path = put(pa.table({name: cells[name] for name in order}), tmp_path / f"t.{kind}")
    assert read_table(path, SCHEMA).matrix().tolist() == ENCODED[:2]


def large(rows: int = 1000) -> pa.Table:
    random = np.random.default_rng(1)
    return pa.table(
        {
            "person_id": random.permutation(rows),
            "age": random.integers(-10, 120, rows),
            "city": random.choice(["A", "B"], rows),
            "smoker": random.random(rows) < 0.5,
        }
    )


def test_blocks_order_columns_and_views() -> None:
    table = read_table(large(), SCHEMA.with_clip(1.2))
    whole = table.matrix()
    for rows in (7, 999, 1000, 5000, None):
        blocks = list(table.blocks(rows))
        assert all(block.flags.c_contiguous for block in blocks)
        np.testing.assert_array_equal(np.concatenate(blocks), whole)
    ordered = table.sorted_by_id()
    assert ordered.ids == sorted(table.ids)
    position = {name: place for place, name in enumerate(table.ids)}
    np.testing.assert_array_equal(ordered.matrix(), whole[[position[name] for name in ordered.ids]])
    some = ordered.take(["17", "3"]).take_rows([1, 0])
    assert some.ids == ["3", "17"]
    np.testing.assert_array_equal(some.matrix(), whole[[position["3"], position["17"]]])
    assert table.report == ordered.check() == table.check()
    assert min(table.report.clipped["age"], table.report.shortened) > 0
    refused(DataError, ("DA268", "1"), table.take, ["17", "nobody"])
    refused(IndexError, (), table.take_rows, [1000])
    refused(ValueError, "VA252", list, table.blocks(0))
    np.testing.assert_array_equal(np.unique(table.column("smoker")), [0, 1])
    assert table.column("city").shape == table.select(["city"]).matrix().shape == (1000, 2)
    assert (table.take_rows([]).matrix().shape, table.take_rows([]).check().rows) == ((0, 4), 0)
    refused(SchemaError, ("SC071", "age"), table.column, "agee")
    ids = ["é", "z", "Z", "10", "9", "\U0001f600", "ￜ"]
    arrow = pa.table({"person_id": ids, "smoker": [True] * 7})
    assert read_table(arrow, SCHEMA.select(["smoker"])).sorted_by_id().ids == sorted(ids, key=str.encode), "as UTF-8"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "the file is empty"),
        ("person_id,age,city,smoker\n", "no rows"),
        (CSV.replace("age", "Age"), "column 'age' is not there; did you mean 'Age'?"),
        (CSV.replace("age", "weight"), "column 'age' is not there; the columns are"),
        (CSV.replace("age", "p").replace("city", "q"), "columns 'age', 'city' are not there"),
        (CSV.replace("note", "age"), "column 'age' appears more than once"),
        (CSV.replace("person_id", "personid"), "the id: column 'person_id' is not there; did you mean"),
        (CSV.replace(",", ";"), "semicolons"),
        (CSV + f"q,8,1,A,{HIDDEN},4\n", "row 4 has more or fewer cells"),
        (CSV + f"q,8,1,{HIDDEN}\n", "row 4 has more or fewer cells"),
        (CSV.encode() + b"q,\xff73519,1,A,4\n", "not UTF-8"),
        (b"\x00\x01\x02\x03", "no header was found"),
        (b"PAR1" + HIDDEN.encode(), "broken content"),
        (CSV + f"q,,1,A,{HIDDEN}\n", "column 'person_id', row 4: the id is missing"),
        (CSV + f"q, {HIDDEN},1,A,4\n", "column 'person_id', row 4: the id has blanks around it"),
        (CSV + f"q,{HIDDEN},1,A,4\nq,5,1,A,4\nq,{HIDDEN},1,A,4\n", "rows 4, 6: an id occurs more than once"),
    ],
)
def test_wrong_files(tmp_path: Path, content: str | bytes, said: str) -> None:
    path = write(tmp_path, content)
    message = both_refuse((said, path), path, SCHEMA)
    assert HIDDEN not in message.replace(str(path), "")


@pytest.mark.parametrize(
    ("cells", "column", "said"),
    [
        ("1,A,seven73519", "'age'", "not a number"),
        ("1,A,inf", "'age'", "infinite"),
        ("1,A,", "'age'", "missing"),
        ("1,73519,4", "'city'", "not in the schema's list"),
        ("1,,4", "'city'", "missing"),
        ("73519,A,4", "'smoker'", "neither true nor false"),
    ],
)
def test_wrong_cells_are_found_before_anything_is_sent(tmp_path: Path, cells: str, column: str, said: str) -> None:
    path = write(tmp_path, CSV + f"q,8,{cells}\n" + "r,9,1,A,4\n")
    for table in (read_table(path, SCHEMA), read_table(path, SCHEMA).sorted_by_id()):
        message = refused(DataError, (f"{path}: column {column}, row 4: ", said), table.check)
        assert HIDDEN not in message.replace(str(path), "")


def test_no_such_file_and_wrong_ids(tmp_path: Path) -> None:
    refused(DataError, "DA160", read_table, tmp_path / "none.csv", SCHEMA)
    refused(DataError, "DA229", read_table, tmp_path, SCHEMA)
    refused(DataError, ("DA227", "int"), read_table, 3, SCHEMA)
    refused(SchemaError, "SC064", read_table, write(tmp_path, CSV), SCHEMA, id="age")
    for ids, said in (
        ([1.5, 2.0], "row 1: the id is not a whole number"),
        ([1.0, None], "row 2: the id is missing"),
        ([None, None], "rows 1, 2: the id is missing"),
        ([True, False], "holds bool cells"),
        ([1e300, 1.0], "row 1: the id is not a whole number"),
    ):
        source = pa.table({"person_id": ids, "smoker": [1, 0]})
        refused(DataError, said, read_table, source, SCHEMA.select(["smoker"]))


# --- rows that have places in a larger table


TOKEN = bytes(16)
TWO = SCHEMA.select(["age", "smoker"])


def few(keys: KeyPlan | None = None) -> Table:
    cells = {"age": [10 * row for row in range(6)], "smoker": [row % 2 for row in range(6)]}
    return read_table(pa.table({"person_id": [f"p{row}" for row in range(6)], **cells}), TWO, keys=keys)


def test_an_aligned_table() -> None:
    whole = few(KeyPlan((Key("person_id"),)))
    found = whole.align([4, 0, 2], ["z", "y", "x"])
    assert (found.rows, found.ids, found.own_ids) == (3, ["z", "y", "x"], ["p4", "p0", "p2"])
    assert (len(whole.keys), found.keys, found.places) == (6, None, None)
    assert found.sorted_by_id().ids == ["z", "y", "x"]
    np.testing.assert_array_equal(found.matrix(), whole.matrix()[[4, 0, 2]])
    view = found.select(["age"]).unclipped()
    assert (view.ids, view.own_ids) == (found.ids, found.own_ids)
    for some, ids, own in ((found.take(["x", "z"]), ["x", "z"], ["p2", "p4"]), (found.take_rows([-1]), ["x"], ["p2"])):
        assert (some.ids, some.own_ids) == (ids, own)
    assert whole.take_rows([5, 3, 1]).align([2, 0], ["a", "b"]).own_ids == ["p1", "p5"]
    refused(DataError, ("DA268", "1"), found.take, ["p0"])
    refused(ValueError, ("VA250", "3", "2"), whole.align, [4, 0, 2], ["z", "y"])
    refused(IndexError, (), found.align, [3], ["z"])


def test_a_placed_table() -> None:
    found = few().place_in_slots([5, 1, 2], [0, 3, 7], 9, TOKEN)
    assert (found.places.slots.tolist(), found.places.size, found.places.token) == ([0, 3, 7], 9, TOKEN)
    for view in (found.select(["age"]), found.without(["smoker"]), found.unclipped(), found.sorted_by_id()):
        assert view.places is found.places
    assert ColumnCentring(TWO).centre_rows(found).places is found.places
    assert ColumnCentring(TWO).centre_rows(few()).places is None
    fewer = found.take_rows([0, 2])
    assert (fewer.places.slots.tolist(), fewer.own_ids) == ([0, 7], ["p5", "p2"])
    refused(ValueError, "VA238", found.take_rows, [2, 0])
    refused(ValueError, ("VA251", "1", "2"), few().place_in_slots, [0], [1, 2], 3, TOKEN)
    for slots, said in (([1, 1], "VA238"), ([2, 1], "VA238"), ([-1, 1], "VA239"), ([1, 5], "VA239")):
        refused(ValueError, said, RowSlots, np.array(slots), 5, TOKEN)


class Plain:
    """Rows of a matrix; it notes how many it handed out."""

    def __init__(self, matrix: Any) -> None:
        self.matrix, self.handed = matrix, 0

    def blocks(self, rows: int, /) -> Iterator[Any]:
        for start in range(0, len(self.matrix), rows):
            block = self.matrix[start : start + rows]
            self.handed += len(block)
            yield block


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_rows_are_laid_into_their_slots(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 40))
    slots = np.array(sorted(data.draw(st.sets(st.integers(0, size - 1)))), dtype=np.int64)
    step = data.draw(st.integers(1, 45))
    inner = Plain(np.arange(3.0 * len(slots)).reshape(-1, 3) + 1)
    spread = SlottedRows(inner, RowSlots(slots, size, TOKEN), 3)
    blocks = list(spread.blocks(step))
    assert len(spread) == size
    assert [len(block) for block, _ in blocks] == [min(step, size - start) for start in range(0, size, step)]
    wanted = np.zeros((size, 3))
    wanted[slots] = inner.matrix
    np.testing.assert_array_equal(np.concatenate([block for block, _ in blocks]), wanted)
    np.testing.assert_array_equal(np.concatenate([present for _, present in blocks]), np.isin(np.arange(size), slots))


def test_rows_are_not_drawn_before_they_are_needed_and_wrong_counts_are_refused() -> None:
    inner = Plain(np.ones((100, 2)))
    places = RowSlots(np.arange(0, 300, 3), 300, TOKEN)
    for index, _ in enumerate(SlottedRows(inner, places, 2).blocks(10)):
        used = np.searchsorted(places.slots, 10 * (index + 1))
        assert used <= inner.handed < used + 20
    found = few().place_in_slots([5, 1, 2], [1, 3, 4], 6, TOKEN)
    for count, step, said in ((2, 2, "VA242"), (4, 2, "VA241"), (0, 2, "VA242"), (2, 0, "VA240")):
        refused(ValueError, said, list, SlottedRows(Plain(np.ones((count, 1))), found.places, 1).blocks(step))


# --- made-up people


def test_people_are_plausible_and_the_same_for_a_seed() -> None:
    one, two, other = population(500, seed=3), population(500, seed=3), population(500, seed=4)
    assert one.arrow == two.arrow
    assert one.arrow != other.arrow
    made = population(10_000)
    for table in made.tables().values():
        assert all(count < 0.02 * made.rows for count in table.check().clipped.values())
        assert (table.matrix().std(axis=0) > 0.03).all()
    assert 0.05 < made.table("bank").column("default").mean() < 0.35
    refused(DatasetError, "DS003", population, 0)
    for wrong, said in (({"overlap": 0}, "DS002"), ({"kind": "xls"}, "DS001")):
        refused(DatasetError, said, made.write, "unused", **wrong)


GAPS = Schema(
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


def written(folder: Path, table: pa.Table, kind: str = "parquet") -> Path:
    path = folder / f"table.{kind}"
    if kind == "parquet":
        return put(table, path, 300)
    put(table.set_column(2, "city", table["city"].cast(pa.string())), path)
    if kind == "csv.gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


def both(path: Path, schema: Schema = GAPS, **options: Any) -> list[Table]:
    """The table on disk and in memory, which are equal."""
    disk, memory = (read_table(path, schema, on_disk=on_disk, **options) for on_disk in (True, False))
    pairs = [(disk, memory)] if options else [(disk, memory), (disk.sorted_by_id(), memory.sorted_by_id())]
    for left, right in pairs:
        assert (left.ids, left.own_ids, left.check()) == (right.ids, right.own_ids, right.check())
        np.testing.assert_array_equal(left.matrix(), right.matrix())
    return [disk, memory]


def both_refuse(said: Any, path: Path, schema: Schema = GAPS) -> str:
    """The same is said of a table on disk and in memory."""
    (message,) = {refused(DataError, said, read_table, path, schema, on_disk=on_disk) for on_disk in (True, False)}
    return message


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz"])
@ORDERS
def test_equal_to_memory(tmp_path: Path, kind: str, order: list[int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BATCH_ROWS", 64)
    disk, memory = both(written(tmp_path, content(order), kind))
    some = np.array([5, 900, 17, 17, -1])
    for view in (
        lambda table: table,
        lambda table: table.sorted_by_id().select(["age"]),
        lambda table: table.without(["age"]).sorted_by_id().unclipped(),
        lambda table: table.take_rows(some),
        lambda table: table.sorted_by_id().take_rows(some).take_rows([3, 0]),
        lambda table: table.take(["p00400", "p00010"]),
        lambda table: table.align([8, 2, 5], ["x", "y", "z"]),
        lambda table: table.place_in_slots([8, 2, 5], [1, 2, 9], 10, b"token"),
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
    path = written(tmp_path, table.set_column(0, "person_id", ids).append_column("key", pa.array(texts)))
    for options in ({"id": None}, {}):
        disk, memory = both(path, keys=KeyPlan((Key("key"),)), **options)
        assert disk.keys.values == memory.keys.values
    assert disk.own_ids == [text or "" for text in ids.to_pylist()]


def test_large_files_stay_on_disk_wherever_the_program_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, smaller, rows = (written(tmp_path, content(), kind) for kind in ("csv", "csv.gz", "parquet"))
    assert files.estimate_memory(smaller, "t", lambda _: ["age"]) > plain.stat().st_size, "counts as what it becomes"
    for path in (plain, rows):
        for large, on_disk, expected in ((1 << 28, None, False), (10_000, None, True), (10_000, False, False)):
            monkeypatch.setattr(reading, "_LARGE", large)
            assert isinstance(read_table(path, GAPS, on_disk=on_disk)._cells, OnDiskCells) == expected
    assert not isinstance(read_table(content(), GAPS)._cells, OnDiskCells)
    monkeypatch.chdir(tmp_path)
    table = read_table("table.parquet", GAPS, on_disk=True)
    monkeypatch.chdir("/")
    assert table.check().rows == ROWS


def test_bad_cells_ids_that_are_missing_and_no_rows(tmp_path: Path) -> None:
    table = content(shuffled())
    ages = table["age"].to_pylist()
    ages[700] = float("inf")
    path = written(tmp_path, table.set_column(1, "age", pa.array(ages)))
    refused(DataError, ("DA194", "age", "701"), read_table(path, GAPS, on_disk=True).sorted_by_id().check)
    both_refuse("DA202", written(tmp_path, content().slice(0, 0)))
    for kind in (pa.string(), pa.large_string(), pa.int64(), pa.float64(), pa.null()):
        values = [None if pa.types.is_null(kind) or i in (3, 700) else i for i in range(ROWS)]
        ids = pa.array(values).cast(kind)
        both_refuse(("DA170", "person_id"), written(tmp_path, content().set_column(0, "person_id", ids)))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@ORDERS
def test_a_file_that_changes_is_refused(
    tmp_path: Path, kind: str, order: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, untouched = written(tmp_path, content(order), kind), files.read_batches

    def touched(*args: Any) -> Iterator[pa.RecordBatch]:
        for batch in untouched(*args):
            os.utime(path, ns=(1, 1))
            yield batch

    monkeypatch.setattr(files, "_BATCH_ROWS", 100)
    table = read_table(path, GAPS, on_disk=True)
    blocks = read_table(path, GAPS, on_disk=True).sorted_by_id().blocks(ROWS // 4)
    monkeypatch.setattr(files, "read_batches", touched)
    refused(DataError, "DA203", list, islice(blocks, 4))  # protocols know how many there are and ask for no more
    os.utime(path)
    refused(DataError, "DA203", read_table, path, GAPS, on_disk=True)
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
        coded.append(part.set_column(2, "city", part["city"].combine_chunks().dictionary_encode()))
    with pq.ParquetWriter(path, coded[0].schema) as writer:
        for part in coded:
            writer.write_table(part)
    schema = Schema({"age": number(0, 100), "city": category(["A", "B", "C", "D"], missing="none"), "smoker": flag()})
    disk, _ = both(path, schema)
    assert disk.ids == table["person_id"].to_pylist()
    assert [["A", "B", "C", "D"][int(row.argmax())] if row.any() else None for row in disk.column("city")] == cities


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
        held = read_table(path, GAPS.select(["age"]), on_disk=True)
        before = pool.bytes_allocated()
        most.append(max(pool.bytes_allocated() - before for _ in held.blocks(1 << 10)))
    assert most[1] <= 1.5 * most[0] + 65536
    assert most[1] < 160_000 * 8 / 2


def test_no_more_is_read_than_must_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BATCH_ROWS", 50)
    path, passes, once = written(tmp_path, content()), list[Any](), files.read_batches
    table = read_table(path, GAPS, on_disk=True)
    assert table.sorted_by_id() is table, "rows in order are not copied"
    monkeypatch.setattr(files, "read_batches", lambda *given: passes.append(given[2]) or once(*given))
    ordered = read_table(written(tmp_path, content(shuffled())), GAPS, on_disk=True).sorted_by_id()
    assert passes == [["person_id"]]
    for view in (ordered, ordered.select(["age"]), ordered.unclipped()):
        view.check()
    assert passes == [["person_id"], ["age", "city", "smoker"]], "views share one copy in order"


def spilled(rows: int = 1000, batch: int = 64, **options: Any) -> ExternalSort:
    """Rows in the reverse order, put aside."""
    table = pa.table({"a": np.arange(rows)})
    return ExternalSort(iter(table.to_batches(max_chunksize=batch)), np.arange(rows)[::-1].copy(), **options)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_spilled_rows(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 60))
    order = np.array(data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=90)), dtype=np.int64)
    table = pa.table({"a": np.arange(rows), "b": [f"t{i}" for i in range(rows)]})
    source = iter(table.to_batches(max_chunksize=data.draw(st.integers(1, 70))))
    spill = ExternalSort(source, order, stretch=data.draw(st.integers(1, 100)))
    for _ in range(2):
        found = pa.Table.from_batches(spill.batches(["b", "a"]))
        assert found["a"].to_pylist() == order.tolist()
        assert found["b"].to_pylist() == [f"t{i}" for i in order]


def test_one_file_holds_all_stretches_and_none_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    made, make = list[Any](), tempfile.TemporaryFile
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **options: made.append(make(**options)) or made[-1])
    assert [batch.num_rows for batch in spilled(stretch=5).batches(["a"])] == [5] * 200
    assert [file.closed for file in made] == [True]


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
        assert found != [*expected, "more"]
        for some in (slice(1, 4), slice(None, None, -1), slice(-3, None, 2)):
            assert found[some] == expected[some]
        assert pack_ids(found, 1, 4) == pack_ids(expected, 1, 4)
        assert [found[i] for i in range(-len(texts), len(texts))] == expected + expected
        assert found.is_sorted() == all(a.encode() < b.encode() for a, b in pairwise(expected))
        refused(IndexError, (), found.__getitem__, len(texts))


def test_order_is_seen_across_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.tables.keys._CHUNK", 4)
    texts = [f"{i:02d}" for i in range(13)]
    assert Ids(pa.array(texts, pa.large_string())).is_sorted()
    for place in range(1, 13):
        wrong = [*texts[:place], texts[place - 1], *texts[place + 1 :]]
        assert not Ids(pa.array(wrong, pa.large_string())).is_sorted()
        table = pa.table({"person_id": wrong, "age": np.zeros(13)})
        refused(DataError, ("DA175", place, place + 1), read_table, table, GAPS.select(["age"]))
