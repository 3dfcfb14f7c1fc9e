"""A party's table: rows of files and frames in any order, views of it, places in a larger one, and made-up people."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from colonnade.errors import DataError, DatasetError, SchemaError
from colonnade.tables import (
    Key,
    KeyPlan,
    Places,
    Schema,
    Spread,
    Table,
    category,
    flag,
    number,
    population,
    read_table,
)
from colonnade.tables.centred import Centred
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
    np.testing.assert_array_equal(np.concatenate(list(ordered.blocks(64))), ordered.matrix())
    assert table.report == ordered.check() == table.check()
    assert min(table.report.clipped["age"], table.report.shortened) > 0
    refused(DataError, ("DA268", "1"), table.take, ["17", "nobody"])
    refused(IndexError, (), table.take_rows, [1000])
    refused(ValueError, "VA252", list, table.blocks(0))
    np.testing.assert_array_equal(np.unique(table.column("smoker")), [0, 1])
    assert table.column("city").shape == table.select(["city"]).matrix().shape == (1000, 2)
    assert table.select(["smoker", "age"]).schema.names == ("age", "smoker")
    assert table.without(["age"]).ids == table.ids
    assert (table.take_rows([]).matrix().shape, table.take_rows([]).check().rows) == ((0, 4), 0)
    refused(SchemaError, ("SC071", "age"), table.column, "agee")


def test_ids_sort_as_utf8() -> None:
    ids = ["é", "z", "Z", "10", "9", "\U0001f600", "ￜ"]
    arrow = pa.table({"person_id": ids, "smoker": [True] * 7})
    assert read_table(arrow, SCHEMA.select(["smoker"])).sorted_by_id().ids == sorted(ids, key=str.encode)


WRONG: list[tuple[str | bytes, str]] = [
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
]


@pytest.mark.parametrize(("content", "said"), WRONG)
def test_wrong_files(tmp_path: Path, content: str | bytes, said: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(DataError) as caught:
        read_table(path, SCHEMA)
    message = str(caught.value)
    assert said in message
    assert str(path) in message
    assert HIDDEN not in message.replace(str(path), "")
    assert caught.value.__cause__ is None


BAD_CELLS = [
    ("1,A,seven73519", "'age'", "not a number"),
    ("1,A,inf", "'age'", "infinite"),
    ("1,A,", "'age'", "missing"),
    ("1,73519,4", "'city'", "not in the schema's list"),
    ("1,,4", "'city'", "missing"),
    ("73519,A,4", "'smoker'", "neither true nor false"),
]


@pytest.mark.parametrize(("cells", "column", "said"), BAD_CELLS)
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
    found = whole.aligned([4, 0, 2], ["z", "y", "x"])
    assert (found.rows, found.ids, found.own_ids) == (3, ["z", "y", "x"], ["p4", "p0", "p2"])
    assert (len(whole.keys), found.keys, found.places) == (6, None, None)
    assert found.sorted_by_id().ids == ["z", "y", "x"]
    np.testing.assert_array_equal(found.matrix(), whole.matrix()[[4, 0, 2]])
    for view in (found.select(["age"]), found.without(["smoker"]), found.unclipped()):
        assert (view.ids, view.own_ids) == (found.ids, found.own_ids)
        assert view.sorted_by_id() is view
    for some, ids, own in ((found.take(["x", "z"]), ["x", "z"], ["p2", "p4"]), (found.take_rows([-1]), ["x"], ["p2"])):
        assert (some.ids, some.own_ids) == (ids, own)
    assert whole.take_rows([5, 3, 1]).aligned([2, 0], ["a", "b"]).own_ids == ["p1", "p5"]
    refused(DataError, ("DA268", "1"), found.take, ["p0"])
    refused(ValueError, ("VA250", "3", "2"), whole.aligned, [4, 0, 2], ["z", "y"])
    refused(IndexError, (), found.aligned, [3], ["z"])


def test_a_placed_table() -> None:
    found = few().placed([5, 1, 2], [0, 3, 7], 9, TOKEN)
    assert (found.places.slots.tolist(), found.places.size, found.places.token) == ([0, 3, 7], 9, TOKEN)
    assert (found.own_ids, len(found.places)) == (["p5", "p1", "p2"], 3)
    for view in (found.select(["age"]), found.without(["smoker"]), found.unclipped(), found.sorted_by_id()):
        assert view.places is found.places
        assert view.own_ids == found.own_ids
    assert Centred(TWO).rows(found).places is found.places
    assert Centred(TWO).rows(few()).places is None
    fewer = found.take_rows([0, 2])
    assert (fewer.places.slots.tolist(), fewer.own_ids) == ([0, 7], ["p5", "p2"])
    refused(ValueError, "VA238", found.take_rows, [2, 0])
    refused(ValueError, ("VA251", "1", "2"), few().placed, [0], [1, 2], 3, TOKEN)
    for slots, said in (([1, 1], "VA238"), ([2, 1], "VA238"), ([-1, 1], "VA239"), ([1, 5], "VA239")):
        refused(ValueError, said, Places, np.array(slots), 5, TOKEN)


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
    spread = Spread(inner, Places(slots, size, TOKEN), 3)
    blocks = list(spread.blocks(step))
    assert len(spread) == size
    assert [len(block) for block, _ in blocks] == [min(step, size - start) for start in range(0, size, step)]
    wanted = np.zeros((size, 3))
    wanted[slots] = inner.matrix
    np.testing.assert_array_equal(np.concatenate([block for block, _ in blocks]), wanted)
    np.testing.assert_array_equal(np.concatenate([present for _, present in blocks]), np.isin(np.arange(size), slots))


def test_rows_are_not_drawn_before_they_are_needed_and_wrong_counts_are_refused() -> None:
    inner = Plain(np.ones((100, 2)))
    places = Places(np.arange(0, 300, 3), 300, TOKEN)
    for index, _ in enumerate(Spread(inner, places, 2).blocks(10)):
        used = np.searchsorted(places.slots, 10 * (index + 1))
        assert used <= inner.handed < used + 20
    found = few().placed([5, 1, 2], [1, 3, 4], 6, TOKEN)
    rows = Centred(TWO).rows(found)
    ((block, present),) = Spread(rows, found.places, rows.matrix().shape[1]).blocks(100)
    assert present.tolist() == [0, 1, 0, 1, 1, 0]
    np.testing.assert_array_equal(block[present == 1], rows.matrix())
    assert not block[present == 0].any()
    for count, step, said in ((2, 2, "VA242"), (4, 2, "VA241"), (0, 2, "VA242"), (2, 0, "VA240")):
        refused(ValueError, said, list, Spread(Plain(np.ones((count, 1))), found.places, 1).blocks(step))


# --- made-up people


def test_people_are_plausible_and_the_same_for_a_seed() -> None:
    one, two, other = population(500, seed=3), population(500, seed=3), population(500, seed=4)
    assert one.arrow == two.arrow
    assert one.arrow != other.arrow
    made = population(10_000)
    assert (made.parties, made.rows) == (("bank", "shop", "clinic"), 10_000)
    for table in made.tables().values():
        assert all(count < 0.02 * made.rows for count in table.check().clipped.values())
        assert (table.matrix().std(axis=0) > 0.03).all()
    assert 0.05 < made.table("bank").column("default").mean() < 0.35
    # Factors cross the organisations.
    parts = [table.matrix() for table in made.tables().values()]
    whole = np.hstack(parts)
    whole = (whole - whole.mean(0)) / whole.std(0)
    values, vectors = np.linalg.eigh(whole.T @ whole / len(whole))
    edges = np.cumsum([0, *(part.shape[1] for part in parts)])
    health, affluence = (sorted(np.sum(vectors[a:b, place] ** 2) for a, b in pairwise(edges)) for place in (-1, -2))
    assert (values[-2] > 3, health[0] > 0.15, affluence[1] > 0.2) == (True, True, True)


def test_nobody() -> None:
    refused(DatasetError, "DS003", population, 0)
    refused(DatasetError, "DS002", population(5).write, "unused", overlap=0)
    refused(DatasetError, "DS001", population(5).write, "unused", kind="xls")
