from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import DataError, SchemaError
from colonnade.tables import Schema, category, decode_number, encode_columns, flag, number
from colonnade.tables.encode import encode_column
from colonnade.tables.parse import Place
from tests.support.errors import raises

BASE = Schema({"age": number(0, 100), "city": category(["A", "B"]), "smoker": flag()})


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def test_each_kind() -> None:
    cells = table(smoker=[True, False, True], city=["B", "A", "A"], age=[0, 50, 100])
    matrix, report = encode_columns(cells, BASE)
    assert matrix.tolist() == [[-1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 0, 1]]
    assert matrix.dtype == np.float64
    assert matrix.flags.c_contiguous
    assert (report.rows, report.clipped, report.missing, report.shortened) == (3, {}, {}, 0)


def test_unit_scale_and_logarithm() -> None:
    schema = Schema({"a": number(0, 10, scale="unit"), "b": number(0, math.e - 1, transform="log1p", scale="unit")})
    matrix, _ = encode_columns(table(a=[0, 5, 10], b=[0.0, math.e**0.5 - 1, math.e - 1]), schema)
    np.testing.assert_allclose(matrix, [[0, 0], [0.5, 0.5], [1, 1]], atol=1e-15)


def test_out_of_bounds_is_clipped_and_counted() -> None:
    cells = table(age=[-5.0, 200, 7], city=["A"] * 3, smoker=[0, 1, 1])
    matrix, report = encode_columns(cells, BASE)
    assert matrix[:2, 0].tolist() == [-1, 1]
    assert report.clipped == {"age": 2}
    assert "age: 2 cells outside the bounds" in str(report)


MISSING = [
    (number(0, 10, missing="middle"), [0.0]),
    (number(0, 10, missing="low"), [-1.0]),
    (number(0, 10, missing="high"), [1.0]),
    (number(0, 10, missing=7.5), [0.5]),
    (number(0, 10, scale="unit", missing="middle"), [0.5]),
    (number(0, 99, transform="log1p", missing="middle"), [0.0]),
    (number(0, 10, missing="none"), [0.0, 1.0]),
    (number(5, 10, scale="unit", transform="log1p", missing="none"), [0.0, 1.0]),
    (number(0, 8, whole=True, missing=6), [0.5]),
    (category(["x", "y"], missing="none"), [0.0, 0.0]),
    (category(["x", "y"], missing="y"), [0.0, 1.0]),
    (flag(missing=True), [1.0]),
    (flag(missing=False), [0.0]),
]


@pytest.mark.parametrize(("column", "becomes"), MISSING)
@pytest.mark.parametrize("cell", [None, "", "NA", "nan"])
def test_missing_cells(column: Any, becomes: list[float], cell: str | None) -> None:
    matrix, report = encode_columns(table(a=pa.array([cell, cell], pa.string())), Schema({"a": column}))
    assert matrix.tolist() == [becomes, becomes]
    assert report.missing == {"a": 2}
    assert not report.clipped


def test_a_number_that_may_be_missing_has_a_column_for_that() -> None:
    schema = Schema({"a": number(0, 10, missing="none"), "b": flag()})
    assert schema.encoded_names == ("a", "a=missing", "b")
    assert schema.max_norm == Schema({"a": flag(), "b": flag()}).max_norm
    matrix, report = encode_columns(table(a=[0.0, None, 10.0], b=[True, False, True]), schema)
    assert matrix.tolist() == [[-1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert report.lines() == ["3 rows", "a: 1 cell missing, replaced"]
    with raises(SchemaError, "SC069", "a=missing"):
        Schema({"a": number(0, 1, missing="none"), "a=missing": flag()})


@pytest.mark.parametrize("copies", [1, 3])
def test_cells_of_whole_numbers_are_rounded(copies: int) -> None:
    schema = Schema({f"a{copy}": number(0, 10, whole=True, scale="unit") for copy in range(copies)})
    matrix, report = encode_columns(table(**{name: [0.4, 2.6, 9.7, 11.0] for name in schema.names}), schema)
    assert matrix.tolist() == [[value] * copies for value in (0.0, 0.3, 1.0, 1.0)]
    assert set(report.clipped.values()) == {1}


def test_nan_is_missing_and_a_word_may_be_a_value() -> None:
    schema = Schema({"a": number(0, 1, missing="high"), "b": category(["NA", "DE"], missing="none")})
    matrix, report = encode_columns(table(a=[math.nan, 0.0], b=["NA", ""]), schema)
    assert matrix.tolist() == [[1, 1, 0], [-1, 0, 0]]
    assert report.missing == {"a": 1, "b": 1}


TYPES = [
    (number(0, 10), pa.array(["5", " 5.0 ", "+.5e1", "5."]), [0.0] * 4),
    (number(0, 10), pa.array([5], pa.uint8()), [0.0]),
    (number(0, 10), pa.array([5], pa.decimal128(5, 2)), [0.0]),
    (number(0, 10), pa.array([5], pa.float32()), [0.0]),
    (flag(), pa.array(["true", "FALSE", "Yes", "no", "1", "0"]), [1, 0, 1, 0, 1, 0]),
    (flag(), pa.array([1.0, 0.0]), [1, 0]),
    (category([3, 4]), pa.array([4, 3], pa.int16()), [0, 1, 1, 0]),
    (category([3, 4]), pa.array([4.0, 3.0]), [0, 1, 1, 0]),
    (category(["x", "y"]), pa.array(["y", "x"]).dictionary_encode(), [0, 1, 1, 0]),
    (category(["true", "false"]), pa.array([True, False]), [1, 0, 0, 1]),
]


@pytest.mark.parametrize(("column", "cells", "becomes"), TYPES)
def test_types_of_cells(column: Any, cells: Any, becomes: list[float]) -> None:
    matrix, _ = encode_columns({"a": cells}, Schema({"a": column}))
    assert matrix.ravel().tolist() == becomes


HIDDEN = "73519"
REFUSED = [
    (number(0, 10), ["1", f"{HIDDEN}x"], "not a number"),
    (number(0, 10), ["1", f"1,{HIDDEN}"], "has a comma"),
    (number(0, 10), ["1", "-inf"], "infinite"),
    (number(0, 10), ["1", "1e999"], "infinite"),
    (number(0, 10), [1.0, math.inf], "infinite"),
    (number(0, 10), [1.0, math.nan], "missing"),
    (number(0, 10), [1, None], "missing"),
    (number(0, 10), ["1", ""], "missing"),
    (category(["a"]), ["a", HIDDEN], "not in the schema's list"),
    (category(["a"]), ["a", "a "], "not in the schema's list"),
    (category(["a"]), ["a", None], "missing"),
    (category([1]), [1.0, float(HIDDEN) + 0.5], "not a whole number"),
    (flag(), ["yes", HIDDEN], "neither true nor false"),
    (flag(), [1, int(HIDDEN)], "neither true nor false"),
    (flag(), [True, None], "missing"),
]


@pytest.mark.parametrize(("column", "cells", "said"), REFUSED)
def test_errors_name_the_place_and_not_the_value(column: Any, cells: list[Any], said: str) -> None:
    with pytest.raises(DataError) as caught:
        encode_columns(table(a=cells), Schema({"a": column}), source="bank.csv", rows=np.array([8, 41]))
    message = str(caught.value)
    assert said in message
    assert "bank.csv: column 'a', row 41: " in message
    assert HIDDEN not in message


@pytest.mark.parametrize("column", [number(0, 1), category(["a"]), flag()])
def test_unusable_types(column: Any) -> None:
    with raises(DataError, "DA192"):
        encode_columns({"a": pa.array([[1]])}, Schema({"a": column}))


def test_many_bad_rows_are_summed_up() -> None:
    with raises(DataError, "DA200", "1, 2, 3, 4, 5 and 15"):
        encode_columns(table(a=["x"] * 20), Schema({"a": number(0, 1)}))


cell = st.floats(allow_nan=False, allow_infinity=False)
bounds = st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)).filter(lambda pair: pair[0] < pair[1])


@given(bounds, st.lists(cell, min_size=1), st.sampled_from(["signed", "unit"]))
def test_numbers_stay_in_range(pair: tuple[float, float], cells: list[float], scale: Any) -> None:
    column = number(*pair, scale=scale)
    matrix, report = encode_columns(table(a=[*cells, *pair]), Schema({"a": column}))
    assert matrix.min() >= (-1 if scale == "signed" else 0)
    assert matrix.max() == 1
    assert report.clipped.get("a", 0) == sum(not pair[0] <= value <= pair[1] for value in cells)


@given(st.lists(st.floats(0, 1000), min_size=1), st.sampled_from(["none", "log1p"]))
def test_decoding_undoes_encoding(cells: list[float], transform: Any) -> None:
    column = number(0, 1000, transform=transform)
    matrix, _ = encode_columns(table(a=cells), Schema({"a": column}))
    np.testing.assert_allclose(decode_number(matrix[:, 0], column), cells, rtol=1e-9, atol=1e-9)


FLOATS = {pa.float64(): 64, pa.float32(): 32, pa.float16(): 16}
WHOLE = {pa.int64(): (-(2**63), 2**63 - 1), pa.uint64(): (0, 2**64 - 1), pa.uint8(): (0, 2**8 - 1)}


def _some_cells(data: st.DataObject, rows: int) -> Any:
    """A column of numbers of any type, in one piece or in several."""
    kind = data.draw(st.sampled_from([*FLOATS, *WHOLE]))
    value: st.SearchStrategy[Any]
    if kind in FLOATS:
        value = st.floats(-200, 200, width=FLOATS[kind])
        value = value.map(np.float16) if kind == pa.float16() else value
    else:
        least, most = WHOLE[kind]
        value = st.integers(max(least, -200), min(most, 200)) | st.integers(least, most)
    value = value | st.none() if data.draw(st.booleans()) else value
    cuts = sorted(data.draw(st.lists(st.integers(0, rows), max_size=2)))
    pieces = [
        pa.array(data.draw(st.lists(value, min_size=stop - start, max_size=stop - start)), kind)
        for start, stop in pairwise([0, *cuts, rows])
    ]
    return pa.chunked_array(pieces)


@settings(deadline=None)
@given(st.data())
def test_columns_encoded_together_are_what_each_is_alone(data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 4))
    columns, cells = {}, {}
    for index in range(data.draw(st.integers(1, 6))):
        transform = data.draw(st.sampled_from(["none", "log1p"]))
        low = data.draw(st.integers(0 if transform == "log1p" else -50, 50))
        scale = data.draw(st.sampled_from(["signed", "unit"]))
        high, unit = low + data.draw(st.integers(1, 90)), data.draw(st.sampled_from([1, 2**57]))
        columns[f"c{index}"] = number(
            low * unit,
            high * unit,
            scale=scale,
            transform=transform,
            missing=data.draw(st.sampled_from(["middle", "none"])),
            whole=unit == 1 and data.draw(st.booleans()),
        )
        cells[f"c{index}"] = _some_cells(data, rows)
    schema = Schema(columns)
    matrix, report = encode_columns(pa.table(cells), schema)
    for name, column in columns.items():
        alone = np.zeros((rows, len(column.parts)))
        missing, clipped, misfits = encode_column(cells[name], column, Place("table", name, range(1, rows + 1)), alone)
        np.testing.assert_array_equal(matrix[:, schema.places[name]], alone)
        assert (report.missing.get(name, 0), report.clipped.get(name, 0), 0) == (missing, clipped, misfits)


@pytest.mark.parametrize("kind", [*FLOATS, *WHOLE])
@pytest.mark.parametrize("pieces", [0, 1, 3])
def test_no_rows(kind: pa.DataType, pieces: int) -> None:
    cells = pa.chunked_array([pa.array([], kind)] * pieces, kind)
    matrix, report = encode_columns(pa.table({"a": cells, "b": cells}), Schema({n: number(0, 1) for n in "ab"}))
    assert matrix.shape == (0, 2)
    assert report.rows == 0


def test_whole_numbers_that_floats_do_not_hold() -> None:
    above = [2**63 + 1025, 2**63 + 2047]  # halfway and more between the floats
    columns = {"a": number(2**63, 2**63 + 4096, scale="unit"), "b": number(0, 1)}
    matrix, report = encode_columns(table(a=pa.array(above, pa.uint64()), b=[0, 1]), Schema(columns))
    assert matrix[:, 0].tolist() == [0.5, 0.5]
    assert not report.clipped


@settings(deadline=None)
@given(st.data())
def test_no_way_of_computing_the_norm_exceeds_the_clip(data: st.DataObject) -> None:
    numbers = data.draw(st.integers(0, 6))
    flags = data.draw(st.integers(0 if numbers else 1, 6))
    rows = data.draw(st.integers(1, 5))
    clip = data.draw(st.none() | st.floats(1e-6, 4) | st.sampled_from([1.0, 2.0, 2**0.5, 3**0.5, 0.1]))
    schema = Schema(
        {**{f"n{i}": number(-1, 1) for i in range(numbers)}, **{f"f{i}": flag() for i in range(flags)}},
        clip=clip,
    )
    value = st.floats(-1, 1) | st.sampled_from([-1.0, 1.0, 0.0, 0.1, 0.5, 1 / 3])
    cells = {
        name: data.draw(st.lists(value if name[0] == "n" else st.booleans(), min_size=rows, max_size=rows))
        for name in schema.names
    }
    matrix, report = encode_columns(table(**cells), schema)
    for row in matrix:
        assert np.linalg.norm(row) <= schema.clip
        assert np.sqrt(row @ row) <= schema.clip
        assert math.sqrt(math.fsum(value * value for value in row)) <= schema.clip
        assert math.hypot(*row) <= schema.clip
        assert np.sqrt(np.cumsum(row[::-1] ** 2)[-1]) <= schema.clip
    assert report.shortened <= rows


def test_rows_on_the_clip_are_left_alone() -> None:
    schema = Schema({"a": flag(), "b": flag(), "c": flag()}, clip=1)
    matrix, report = encode_columns(table(a=[1, 1, 0], b=[0, 1, 0], c=[0, 0, 0]), schema)
    assert matrix[0].tolist() == [1, 0, 0]
    assert report.shortened == 1
    assert str(report).splitlines() == ["3 rows", "1 row longer than the row clip, scaled down"]
    np.testing.assert_allclose(matrix[1], [0.5**0.5, 0.5**0.5, 0])


def test_reports_add_up() -> None:
    schema = Schema({"a": number(0, 1, missing="low"), "b": number(0, 1)}, clip=0.5)
    one = encode_columns(table(a=[None, 5.0], b=[0.5, 0.5]), schema)[1]
    two = encode_columns(table(a=[7.0, 0.5], b=[0.5, 9.0]), schema)[1]
    total = one + two
    assert (total.rows, total.clipped, total.missing) == (4, {"a": 2, "b": 1}, {"a": 1})
    assert (total.total_clipped, sum(total.missing.values())) == (3, 1)
    assert total.shortened == one.shortened + two.shortened
