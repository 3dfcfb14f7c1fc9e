from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from colonnade.errors import DataError, SchemaError
from colonnade.tables import Schema, category, flag, number, read_table
from tests.support.errors import raises
from tests.support.refusals import refused

SCHEMA = Schema({"age": number(0, 100), "city": category(["A", "B"]), "smoker": flag()})
CSV = "note,person_id,smoker,city,age\nx,007,yes,B,0\ny,010,0,A,50\nz,0001,TRUE,A,100\n"
ENCODED = [[-1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 0, 1]]


def write(folder: Path, content: str | bytes, name: str = "bank.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_csv(tmp_path: Path) -> None:
    SCHEMA.save(tmp_path / "bank.toml")
    table = read_table(write(tmp_path, CSV), tmp_path / "bank.toml")
    assert table.ids == ["007", "010", "0001"]
    assert table.matrix().tolist() == ENCODED
    assert (table.rows, len(table), table.schema) == (3, 3, SCHEMA)
    assert table.source == str(tmp_path / "bank.csv")
    assert "3 rows" in repr(table)


@pytest.mark.parametrize(
    "content",
    [
        "\ufeff" + CSV,
        CSV.replace("\n", "\r\n"),
        CSV.replace("\n", "\n\n"),
        CSV.replace("x,", '"x, with\nlines and ""quotes""",'),
        CSV.rstrip("\n"),
        CSV.replace("note", "").replace("x,", ",").replace("\ny,", "\n,"),
    ],
)
def test_csv_dialects(tmp_path: Path, content: str) -> None:
    assert read_table(write(tmp_path, content), SCHEMA).matrix().tolist() == ENCODED


def test_other_files(tmp_path: Path) -> None:
    tabs = write(tmp_path, CSV.replace(",", "\t"), "bank.tsv")
    assert read_table(str(tabs), SCHEMA).matrix().tolist() == ENCODED
    packed = write(tmp_path, gzip.compress(CSV.encode()), "bank.csv.gz")
    assert read_table(packed, SCHEMA).matrix().tolist() == ENCODED
    arrow = pa.table(
        {
            "age": [0, 50, 100],
            "x": [[1], [2], [3]],
            "smoker": [1, 0, 1],
            "city": ["B", "A", "A"],
            "person_id": [7, 1, 3],
        }
    )
    pq.write_table(arrow, tmp_path / "bank.parquet")
    for source in (tmp_path / "bank.parquet", arrow, arrow.to_batches()[0]):
        table = read_table(source, SCHEMA)
        assert table.matrix().tolist() == ENCODED
        assert table.ids == ["7", "1", "3"]


def test_pandas() -> None:
    frame = pd.DataFrame({"age": [0, 50, 100], "smoker": [True, False, True], "city": ["B", "A", "A"]})
    frame["city"] = frame["city"].astype("category")
    frame["key"] = [3.0, 2.0, 1.0]
    assert read_table(frame, SCHEMA, id="key").matrix().tolist() == ENCODED
    indexed = frame.set_index("key")
    table = read_table(indexed, SCHEMA, id="key", name="frame")
    assert table.ids == ["3", "2", "1"]
    mixed = frame.assign(city=pd.Series(["A", 73519, "B"], dtype=object))
    with raises(DataError, "DA168", "frame", "city") as caught:
        read_table(mixed, SCHEMA, id="key", name="frame")
    assert "73519" not in str(caught.value)


def test_pandas_is_not_imported() -> None:
    probe = "import sys, colonnade.tables; sys.exit('pandas' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(st.permutations(["age", "city", "smoker", "person_id", "other"]), st.booleans())
def test_column_order_comes_from_the_schema(tmp_path: Path, order: list[str], as_csv: bool) -> None:
    cells = {"age": [0, 50], "city": ["B", "A"], "smoker": [1, 0], "person_id": ["a", "b"], "other": [1, 2]}
    frame = pd.DataFrame({name: cells[name] for name in order})
    path = tmp_path / f"t.{'csv' if as_csv else 'parquet'}"
    if as_csv:
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
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


def test_blocks_and_order() -> None:
    table = read_table(large(), SCHEMA.with_clip(1.2))
    whole = table.matrix()
    for rows in (1, 7, 999, 1000, 5000, None):
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
    assert table.report.clipped["age"] > 0
    assert table.report.shortened > 0
    refused(DataError, ("DA268", "1"), table.take, ["17", "nobody"])
    refused(IndexError, (), table.take_rows, [1000])
    refused(ValueError, "VA252", list, table.blocks(0))


def test_ids_sort_as_utf8() -> None:
    ids = ["é", "z", "Z", "10", "9", "\U0001f600", "ￜ"]
    arrow = pa.table({"person_id": ids, "smoker": [True] * 7})
    assert read_table(arrow, SCHEMA.select(["smoker"])).sorted_by_id().ids == sorted(ids, key=str.encode)


def test_columns_and_views() -> None:
    table = read_table(large(), SCHEMA.with_clip(0.5)).sorted_by_id()
    np.testing.assert_array_equal(np.unique(table.column("smoker")), [0, 1])
    assert table.column("city").shape == (1000, 2)
    assert table.select(["smoker", "age"]).schema.names == ("age", "smoker")
    assert table.without(["age"]).ids == table.ids
    assert table.select(["city"]).matrix().shape == (1000, 2)
    assert table.take_rows([]).matrix().shape == (0, 4)
    assert table.take_rows([]).check().rows == 0
    refused(SchemaError, ("SC071", "age"), table.column, "agee")


HIDDEN = "73519"
WRONG: list[tuple[str | bytes, str]] = [
    ("", "the file is empty"),
    ("person_id,age,city,smoker\n", "no rows"),
    (CSV.replace("age", "Age"), "column 'age' is not there; did you mean 'Age'?"),
    (CSV.replace("age", "weight"), "column 'age' is not there; the columns are"),
    (CSV.replace("age", "p").replace("city", "q"), "columns 'age', 'city' are not there"),
    (CSV.replace("note", "age"), "column 'age' appears more than once"),
    (
        CSV.replace("person_id", "personid"),
        "the id: column 'person_id' is not there; did you mean",
    ),
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
    assert said in str(caught.value)
    assert str(path) in str(caught.value)
    assert HIDDEN not in str(caught.value).replace(str(path), "")
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
        with pytest.raises(DataError) as caught:
            table.check()
        message = str(caught.value)
        assert f"{path}: column {column}, row 4: " in message
        assert said in message
        assert HIDDEN not in message.replace(str(path), "")


def test_no_such_file(tmp_path: Path) -> None:
    refused(DataError, "DA160", read_table, tmp_path / "none.csv", SCHEMA)
    refused(DataError, "DA229", read_table, tmp_path, SCHEMA)
    refused(DataError, ("DA227", "int"), read_table, 3, SCHEMA)
    refused(SchemaError, "SC064", read_table, write(tmp_path, CSV), SCHEMA, id="age")


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([1.5, 2.0], "row 1: the id is not a whole number"),
        ([1.0, None], "row 2: the id is missing"),
        ([None, None], "rows 1, 2: the id is missing"),
        ([True, False], "holds bool cells"),
        ([1e300, 1.0], "row 1: the id is not a whole number"),
    ],
)
def test_wrong_ids(ids: list[Any], said: str) -> None:
    with pytest.raises(DataError) as caught:
        read_table(pa.table({"person_id": ids, "smoker": [1, 0]}), SCHEMA.select(["smoker"]))
    assert said in str(caught.value)
