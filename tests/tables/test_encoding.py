"""From cells to numbers and back: every kind of column, bad cells, misfits that are mapped, and the clip of rows."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import DataError, SchemaError
from colonnade.tables import (
    Number,
    Schema,
    Table,
    category,
    decode,
    encode_columns,
    flag,
    number,
    read_table,
)
from colonnade.tables.cell_parsing import CellLocation
from colonnade.tables.table import ColumnCentring, Norm
from colonnade.testing import seeded
from tests.support import strategies
from tests.support.errors import refused

BASE = Schema({"age": number(0, 100), "city": category(["A", "B"]), "smoker": flag()})
MISSED = Schema({"age": number(0, 100), "city": category(["A", "B"], missing="none"), "smoker": flag()})


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def test_each_kind_with_its_bounds_and_scales() -> None:
    cells = table(smoker=[True, False, True], city=["B", "A", "A"], age=[0, 50, 100])
    matrix, report = encode_columns(cells, BASE)
    assert matrix.tolist() == [[-1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 0, 1]]
    assert (matrix.dtype, matrix.flags.c_contiguous) == (np.float64, True)
    assert (report.rows, report.clipped, report.missing, report.shortened) == (3, {}, {}, 0)
    schema = Schema({"a": number(0, 10, scale="unit"), "b": number(0, math.e - 1, transform="log1p", scale="unit")})
    matrix, _ = encode_columns(table(a=[0, 5, 10], b=[0.0, math.e**0.5 - 1, math.e - 1]), schema)
    np.testing.assert_allclose(matrix, [[0, 0], [0.5, 0.5], [1, 1]], atol=1e-15)
    matrix, report = encode_columns(table(age=[-5.0, 200, 7], city=["A"] * 3, smoker=[0, 1, 1]), BASE)
    assert (matrix[:2, 0].tolist(), report.clipped) == ([-1, 1], {"age": 2})
    assert "age: 2 cells outside the bounds" in str(report)


@pytest.mark.parametrize(
    ("column", "becomes"),
    [
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
    ],
)
def test_missing_cells(column: Any, becomes: list[float]) -> None:
    cells = pa.array([None, "", "NA", "nan"], pa.string())
    for misfits in ("refuse", "map"):  # what the schema provides for is no misfit
        matrix, report = encode_columns(table(a=cells), Schema({"a": column}), misfits=misfits)  # type: ignore[arg-type]
        assert matrix.tolist() == [becomes] * 4
        assert (report.missing, report.clipped, report.misfits) == ({"a": 4}, {}, {})


def test_a_number_that_may_be_missing_has_a_column_for_that_and_a_word_may_be_a_value() -> None:
    schema = Schema({"a": number(0, 10, missing="none"), "b": flag()})
    assert schema.encoded_names == ("a", "a=missing", "b")
    assert schema.max_norm == Schema({"a": flag(), "b": flag()}).max_norm
    matrix, _ = encode_columns(table(a=[0.0, None, 10.0], b=[True, False, True]), schema)
    assert matrix.tolist() == [[-1, 0, 1], [0, 1, 0], [1, 0, 1]]
    refused(SchemaError, ("SC069", "a=missing"), Schema, {"a": number(0, 1, missing="none"), "a=missing": flag()})
    schema = Schema({"a": number(0, 1, missing="high"), "b": category(["NA", "DE"], missing="none")})
    matrix, report = encode_columns(table(a=[math.nan, 0.0], b=["NA", ""]), schema)
    assert (matrix.tolist(), report.missing) == ([[1, 1, 0], [-1, 0, 0]], {"a": 1, "b": 1})


@pytest.mark.parametrize(
    ("column", "cells", "becomes"),
    [
        (number(0, 10), pa.array(["5", " 5.0 ", "+.5e1", "5."]), [0.0] * 4),
        (number(0, 10), pa.array([5], pa.uint8()), [0.0]),
        (number(0, 10), pa.array([5], pa.decimal128(5, 2)), [0.0]),
        (number(0, 10), pa.array([5], pa.float32()), [0.0]),
        (number(0, 10, whole=True, scale="unit"), pa.array([0.4, 2.6, 9.7]), [0.0, 0.3, 1.0]),
        (flag(), pa.array(["true", "FALSE", "Yes", "no", "1", "0"]), [1, 0, 1, 0, 1, 0]),
        (flag(), pa.array([1.0, 0.0]), [1, 0]),
        (category([3, 4]), pa.array([4, 3], pa.int16()), [0, 1, 1, 0]),
        (category([3, 4]), pa.array([4.0, 3.0]), [0, 1, 1, 0]),
        (category(["x", "y"]), pa.array(["y", "x"]).dictionary_encode(), [0, 1, 1, 0]),
        (category(["true", "false"]), pa.array([True, False]), [1, 0, 0, 1]),
    ],
)
def test_types_of_cells(column: Any, cells: Any, becomes: list[float]) -> None:
    matrix, report = encode_columns({"a": cells}, Schema({"a": column}))
    assert (matrix.ravel().tolist(), report.clipped) == (becomes, {})
    several = Schema(dict.fromkeys("abc", column))  # which are encoded together
    assert np.array_equal(encode_columns(dict.fromkeys("abc", cells), several)[0], np.hstack([matrix] * 3))


HIDDEN = "73519"


@pytest.mark.parametrize(
    ("column", "cells", "said"),
    [
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
    ],
)
def test_errors_name_the_place_and_not_the_value(column: Any, cells: list[Any], said: str) -> None:
    given = {"source": "bank.csv", "rows": np.array([8, 41])}
    where = "bank.csv: column 'a', row 41: "
    assert HIDDEN not in refused(
        DataError, (said, where), encode_columns, table(a=cells), Schema({"a": column}), **given
    )


def test_unusable_types_and_many_bad_rows() -> None:
    for column in (number(0, 1), category(["a"]), flag()):
        refused(DataError, "DA192", encode_columns, {"a": pa.array([[1]])}, Schema({"a": column}))
    numbers, many = Schema({"a": number(0, 1)}), table(a=["x"] * 20)
    refused(DataError, ("DA200", "1, 2, 3, 4, 5 and 15"), encode_columns, many, numbers)


cell = st.floats(allow_nan=False, allow_infinity=False)
bounds = st.tuples(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300)).filter(lambda pair: pair[0] < pair[1])


@given(bounds, st.lists(cell, min_size=1), st.sampled_from(["signed", "unit"]))
def test_numbers_stay_in_range(pair: tuple[float, float], cells: list[float], scale: Any) -> None:
    column = number(*pair, scale=scale)
    matrix, report = encode_columns(table(a=[*cells, *pair]), Schema({"a": column}))
    assert matrix.min() >= (-1 if scale == "signed" else 0)
    assert matrix.max() == 1
    assert report.clipped.get("a", 0) == sum(not pair[0] <= value <= pair[1] for value in cells)


FLOATS = {pa.float64(): 64, pa.float32(): 32, pa.float16(): 16}
WHOLE = {pa.int64(): (-(2**63), 2**63 - 1), pa.uint64(): (0, 2**64 - 1), pa.uint8(): (0, 2**8 - 1)}


@st.composite
def numbers_of_any_type(draw: st.DrawFn, rows: int) -> Any:
    """A column of numbers, in one piece or in several."""
    kind = draw(st.sampled_from([*FLOATS, *WHOLE]))
    if kind in FLOATS:
        value = st.floats(-200, 200, width=FLOATS[kind])
        value = value.map(np.float16) if kind == pa.float16() else value
    else:
        least, most = WHOLE[kind]
        value = st.integers(max(least, -200), min(most, 200)) | st.integers(least, most)
    value = value | st.none() if draw(st.booleans()) else value
    cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=2)))
    sizes = [stop - start for start, stop in pairwise([0, *cuts, rows])]
    return pa.chunked_array([pa.array(draw(st.lists(value, min_size=size, max_size=size)), kind) for size in sizes])


@settings(deadline=None)
@given(st.data())
def test_columns_encoded_together_are_what_each_is_alone(data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 4))
    columns, cells = {}, {}
    for index in range(data.draw(st.integers(1, 6))):
        transform = data.draw(st.sampled_from(["none", "log1p"]))
        low = data.draw(st.integers(0 if transform == "log1p" else -50, 50))
        high, unit = low + data.draw(st.integers(1, 90)), data.draw(st.sampled_from([1, 2**57]))
        columns[f"c{index}"] = number(
            low * unit,
            high * unit,
            scale=data.draw(st.sampled_from(["signed", "unit"])),
            transform=transform,
            missing=data.draw(st.sampled_from(["middle", "none"])),
            whole=unit == 1 and data.draw(st.booleans()),
        )
        cells[f"c{index}"] = data.draw(numbers_of_any_type(rows))
    schema = Schema(columns)
    matrix, report = encode_columns(pa.table(cells), schema)
    assert (matrix.shape, report.rows) == ((rows, schema.encoded_width), rows)
    for name, column in columns.items():
        alone = np.zeros((rows, len(column.parts)))
        missing, clipped, misfits = column.encode(cells[name], CellLocation("table", name, range(1, rows + 1)), alone)
        np.testing.assert_array_equal(matrix[:, schema.encoded_slices[name]], alone)
        assert (report.missing.get(name, 0), report.clipped.get(name, 0), 0) == (missing, clipped, misfits)


def test_whole_numbers_that_floats_do_not_hold() -> None:
    above = [2**63 + 1025, 2**63 + 2047]  # halfway and more between the floats
    columns = {"a": number(2**63, 2**63 + 4096, scale="unit"), "b": number(0, 1)}
    matrix, report = encode_columns(table(a=pa.array(above, pa.uint64()), b=[0, 1]), Schema(columns))
    assert (matrix[:, 0].tolist(), report.clipped) == ([0.5, 0.5], {})


@settings(deadline=None)
@given(st.data())
def test_no_way_of_computing_the_norm_exceeds_the_clip(data: st.DataObject) -> None:
    numbers = data.draw(st.integers(0, 6))
    flags = data.draw(st.integers(0 if numbers else 1, 6))
    rows = data.draw(st.integers(1, 5))
    clip = data.draw(st.none() | st.floats(1e-6, 4) | st.sampled_from([1.0, 2.0, 2**0.5, 3**0.5, 0.1]))
    columns = {**{f"n{i}": number(-1, 1) for i in range(numbers)}, **{f"f{i}": flag() for i in range(flags)}}
    schema = Schema(columns, clip=clip)
    value = st.floats(-1, 1) | st.sampled_from([-1.0, 1.0, 0.0, 0.1, 0.5, 1 / 3])
    cells = {
        name: data.draw(st.lists(value if name[0] == "n" else st.booleans(), min_size=rows, max_size=rows))
        for name in schema.names
    }
    matrix, report = encode_columns(table(**cells), schema)
    for row in matrix:
        squares = math.fsum(value * value for value in row)
        ways = [np.linalg.norm(row), np.sqrt(row @ row), math.hypot(*row), math.sqrt(squares)]
        assert max(*ways, np.sqrt(np.cumsum(row[::-1] ** 2)[-1])) <= schema.clip
    assert report.shortened <= rows


def test_rows_on_the_clip_are_left_alone_and_reports_add_up() -> None:
    schema = Schema({"a": flag(), "b": flag(), "c": flag()}, clip=1)
    matrix, report = encode_columns(table(a=[1, 1, 0], b=[0, 1, 0], c=[0, 0, 0]), schema)
    assert (matrix[0].tolist(), report.shortened) == ([1, 0, 0], 1)
    np.testing.assert_allclose(matrix[1], [0.5**0.5, 0.5**0.5, 0])
    schema = Schema({"a": number(0, 1, missing="low"), "b": number(0, 1)}, clip=0.5)
    one = encode_columns(table(a=[None, 5.0], b=[0.5, 0.5]), schema)[1]
    two = encode_columns(table(a=["7", "?"], b=[0.5, 9.0]), schema, misfits="map")[1]
    total = one + two
    assert (total.rows, total.clipped, total.missing, total.misfits) == (4, {"a": 2, "b": 1}, {"a": 1}, {"a": 1})
    assert (total.total_clipped, total.shortened) == (3, one.shortened + two.shortened)


# --- misfits


@pytest.mark.parametrize(
    ("column", "cells", "becomes"),
    [
        (number(0, 10), ["1", "many"], [0.0]),
        (number(0, 10), ["1", "-inf"], [0.0]),
        (number(0, 10), ["1", "1e999"], [0.0]),
        (number(0, 10), [1.0, math.inf], [0.0]),
        (number(0, 10), [1.0, math.nan], [0.0]),
        (number(0, 10), ["1", ""], [0.0]),
        (number(0, 10, scale="unit"), ["1", "x"], [0.5]),
        (number(0, 10, missing="low"), ["1", "x"], [-1.0]),
        (number(0, 10, missing=10), ["1", "x"], [1.0]),
        (number(1, 9, transform="log1p"), ["1", "x"], [0.0]),
        (number(0, 10, missing="none"), ["1", "x"], [0.0, 1.0]),
        (number(0, 10, whole=True), ["1", "x"], [0.0]),
        (category(["a", "b"]), ["a", "c"], [0.0, 0.0]),
        (category(["a", "b"]), ["a", None], [0.0, 0.0]),
        (category(["a", "b"], missing="b"), ["a", "c"], [0.0, 1.0]),
        (category(["a", "b"], missing="none"), ["a", "c"], [0.0, 0.0]),
        (category(["a"]), ["a", "c"], [1.0]),
        (category([0, 1]), [1.0, 0.5], [0.0, 0.0]),
        (flag(), ["yes", "perhaps"], [0.0]),
        (flag(), [1, 7], [0.0]),
        (flag(), [True, None], [0.0]),
        (flag(), [1.0, math.inf], [0.0]),
        (flag(missing=True), ["yes", "perhaps"], [1.0]),
    ],
)
def test_a_misfit_is_mapped_by_a_public_rule_and_counted(column: Any, cells: list[Any], becomes: list[float]) -> None:
    schema = Schema({"a": column})
    matrix, report = encode_columns(table(a=cells), schema, misfits="map")
    assert matrix[1].tolist() == becomes
    assert (dict(report.misfits), dict(report.missing), dict(report.clipped)) == ({"a": 1}, {}, {})
    assert report.lines() == ["2 rows", "a: 1 cell not in the schema, mapped"]
    refused(DataError, ("DA152|DA193|DA194|DA195|DA200|DA201", "2"), encode_columns, table(a=cells), schema)


@pytest.mark.parametrize(
    ("column", "becomes"),
    [
        (category(["a", "b", "c"]), [[0, 1, 0], [1, 0, 0], [1, 0, 0]]),
        (category(["a", "b", "c"], missing="c"), [[0, 1, 0], [0, 0, 1], [0, 0, 1]]),
        (category(["a", "b", "c"], missing="none"), [[0, 1, 0], [0, 0, 0], [0, 0, 0]]),
    ],
    ids=["refuse", "a value", "none"],
)
def test_a_label_always_has_a_value_unless_the_schema_says_none(column: Any, becomes: list[list[int]]) -> None:
    schema = Schema({"x": number(0, 1), "label": column})
    found = read_table(table(x=["0.5"] * 3, label=["b", "z", ""]), schema, id=None, misfits="map")
    centred = ColumnCentring(schema, "label")
    assert centred.labels(found).tolist() == becomes
    assert (centred.centre_rows(found).matrix()[:, 1:] + centred.middle[1:]).round(9).tolist() == becomes
    assert centred.labels(found.take_rows([2, 0, 1])).tolist() == [becomes[n] for n in (2, 0, 1)]


# --- and back


def test_each_kind_is_decoded_in_the_order_and_types_of_the_schema() -> None:
    matrix = np.array([[-1, 0, 1, 1], [0, 1, 0, 0], [1, 0, 0, 1]])
    found = decode(MISSED, matrix)
    assert found.to_pydict() == {"age": [0, 50, 100], "city": ["B", "A", None], "smoker": [True, False, True]}
    assert found.schema.types == [pa.float64(), pa.dictionary(pa.int32(), pa.string()), pa.bool_()]
    parts = {"smoker": matrix[:, 3], "city": matrix[:, 1:3], "age": matrix[:, :1]}
    assert decode(MISSED, parts).equals(found)


def test_numbers_are_clipped_and_scores_may_be_equal_or_negative() -> None:
    schema = Schema({"a": number(2, 10), "b": number(0, 99, scale="unit", transform="log1p")})
    found = decode(schema, [[-1e300, -0.1], [1.01, 1e300], [0, 0.5]])
    assert found["a"].to_pylist() == [2, 10, 6]
    assert found["b"].to_pylist() == pytest.approx([0, 99, 9])
    schema = Schema({"a": category(["x", "y", "z"]), "b": category(["x", "y"], missing="none")})
    found = decode(schema, [[0, 0, 0, 0, 0], [-3, -1, -1, -2, -1], [0.2, 0.2, 0.1, 0, 1e-300]])
    assert found.to_pydict() == {"a": ["x", "y", "x"], "b": [None, "y", "y"]}
    assert decode(Schema({"a": flag()}), [[0.5], [0.51], [-7], [7]])["a"].to_pylist() == [False, True, False, True]
    schema = Schema({"a": number(0, 10, missing="none"), "b": number(0, 10, whole=True, missing="none")})
    found = decode(schema, [[1, 0.4, 0.13, 0.5], [0, 0.6, -1, 0.51], [0, 0, -0.07, 0]])
    assert found.to_pydict() == {"a": [10, None, 5], "b": [6, None, 5]}
    assert found.schema.types == [pa.float64(), pa.int64()]


@pytest.mark.parametrize(
    ("encoded", "said"),
    [
        (np.zeros((2, 3)), ("DA148", "4", "2, 3")),
        (np.zeros(4), ("DA148", "4")),
        ({"age": [0.0], "city": [[0.0]], "smoker": [0.0]}, ("DA148", "city", "2")),
        ({"age": [0.0], "smoker": [0.0]}, ("DA146", "city")),
        ({"age": [0.0, 1.0], "city": [[0, 1]], "smoker": [1]}, "DA147"),
        ({"age": [0.0], "city": [[0, 1]], "smoker": [1], "town": [[1, 0]]}, ("SC071", "town")),
        *(([[0] * 4, cells], ("DA149", "2", name)) for cells, name in (
            ([math.nan, 0, 0, 0], "age"), ([0, 0, math.inf, 0], "city"), ([0, 0, 0, -math.inf], "smoker"))),
    ],
)  # fmt: skip
def test_numbers_that_cannot_be_decoded(encoded: Any, said: Any) -> None:
    refused((DataError, SchemaError), said, decode, MISSED, encoded)


def test_draws_follow_the_weights() -> None:
    rows = 40_000
    columns = {"a": category(["x", "y", "z"]), "b": category(["x", "y"], missing="none"), "c": flag()}
    schema = Schema({**columns, "d": number(0, 10, missing="none")})
    found = decode(schema, np.tile([2.0, -5.0, 6.0, 0.1, 0.5, 0.3, 0, 0.25], (rows, 1)), stream=seeded(0))
    wanted = {"a": {"x": 0.25, "z": 0.75}, "b": {"x": 0.1, "y": 0.5, None: 0.4}, "c": {True: 0.3, False: 0.7},
              "d": {5.0: 0.75, None: 0.25}}  # fmt: skip
    for name, shares in wanted.items():
        counts = found[name].value_counts().to_pylist()
        seen = {each["values"]: each["counts"] / rows for each in counts}
        assert seen == pytest.approx(shares, abs=0.015)  # six standard deviations
    for none in ([0.0, 0.0], [-1.0, -2.0], [1.7e308, 1.7e308]):
        refused(DataError, ("DA150", "1, 2"), decode, Schema({"a": category([0, 1])}), [none] * 2, stream=seeded(0))


@given(st.lists(st.floats(-1, 1e300) | st.sampled_from([0.0, 5e-324, 1e-310]), min_size=1, max_size=5))
def test_only_values_of_positive_weight_are_drawn(weights: list[float]) -> None:
    schema = Schema({"a": category(list(range(len(weights))))})
    if max(weights) > 0:
        drawn = decode(schema, [weights] * 50, stream=seeded(0))["a"].to_pylist()
        assert all(weights[int(value)] > 0 for value in drawn)


def becomes(cell: Any, column: Any) -> Any:
    """What is left of a cell after the bounds and the rule for missing ones."""
    if not isinstance(column, Number):
        return cell if cell is not None or column.missing == "none" else column.missing
    if cell is not None:
        within = min(max(cell, column.low), column.high)
        return round(within) if column.whole else within
    middle = sum(column.ends) / 2
    words = {
        "none": None,
        "low": column.low,
        "high": column.high,
        "middle": math.expm1(middle) if column.transform == "log1p" else middle,
    }
    return words.get(column.missing, column.missing)


@settings(deadline=None)
@given(st.lists(strategies.columns(), min_size=1, max_size=5), st.integers(0, 6), st.booleans(), st.data())
def test_decoding_undoes_encoding(drawn: list[Any], rows: int, sampled: bool, data: st.DataObject) -> None:
    schema = Schema({f"c{index}": column for index, column in enumerate(drawn)})
    kinds = {"number": pa.float64(), "category": pa.string(), "flag": pa.bool_()}
    cells = {
        name: pa.array(
            data.draw(st.lists(strategies.fitting(column), min_size=rows, max_size=rows)), kinds[column.kind]
        )
        for name, column in schema.columns.items()
    }
    matrix, _ = encode_columns(pa.table(cells), schema)
    found = decode(schema, matrix, stream=seeded(0) if sampled else None)
    for name, column in schema.columns.items():
        expected = [becomes(cell, column) for cell in cells[name].to_pylist()]
        if not isinstance(column, Number):
            assert found[name].to_pylist() == expected
            continue
        slack = 1e-12 * (abs(column.low) + abs(column.high) + 1)
        assert [cell is None for cell in found[name].to_pylist()] == [cell is None for cell in expected]
        cells_left = [cell for cell in expected if cell is not None]
        assert found[name].drop_null().to_pylist() == pytest.approx(cells_left, rel=1e-9, abs=slack)
        if not column.whole and None not in expected:
            numbers = column.decode_values(matrix[:, schema.encoded_slices[name]][:, 0])
            assert numbers.tolist() == pytest.approx(expected, rel=1e-9, abs=slack)
    again, report = encode_columns(found, schema)
    np.testing.assert_allclose(again, matrix, atol=1e-6)
    assert not report.clipped


COLUMNS = {
    "age": number(0, 100),
    "share": number(0, 10, scale="unit"),
    "city": category(["A", "B", "C", "D"], missing="none"),
    "smoker": flag(),
    "ill": flag(),
}
CELLS = {
    "age": [0, 50, 100, 75],
    "share": [0, 10, 5, 2.5],
    "city": ["A", "D", None, "B"],
    "smoker": [True, False, True, True],
    "ill": [1, 0, 1, 0],
}


def read(schema: Schema, **cells: Any) -> Table:
    cells = cells or CELLS
    return read_table(pa.table({"person_id": list(range(len(cells["ill"]))), **cells}), schema)


def test_columns_lie_around_their_middles_and_the_label_comes_last() -> None:
    schema = Schema(COLUMNS)
    centred = ColumnCentring(schema, "smoker")
    assert centred.feature_names == ("age", "share", "city=A", "city=B", "city=C", "city=D", "ill")
    assert centred.names == (*centred.feature_names, "smoker")
    assert centred.middle.tolist() == [0, 0.5, 0.25, 0.25, 0.25, 0.25, 0.5, 0.5]
    rows = centred.centre_rows(read(schema))
    assert rows.ids == ["0", "1", "2", "3"]
    q = 0.25
    expected = [
        [-1, -0.5, 1 - q, -q, -q, -q, 0.5, 0.5],
        [0, 0.5, -q, -q, -q, 1 - q, -0.5, -0.5],
        [1, 0, -q, -q, -q, -q, 0.5, 0.5],
        [0.5, -0.25, -q, 1 - q, -q, -q, -0.5, 0.5],
    ]
    np.testing.assert_allclose(rows.matrix(), expected, atol=1e-15)
    assert centred.centre_features(read(schema)).matrix().tolist() == rows.matrix()[:, :7].tolist()
    assert centred.labels(read(schema)).tolist() == [[1], [0], [1], [1]]


def test_the_bounds_are_those_of_the_middles_and_of_categories_as_they_are() -> None:
    centred = ColumnCentring(Schema(COLUMNS), "ill")
    # number 1, unit number 1/4, category of four 3/4, flag 1/4; the label 1/4 more
    assert centred.feature_clip == pytest.approx(1.5, rel=1e-15)
    assert centred.feature_clip >= 1.5
    assert centred.clip == pytest.approx(math.sqrt(2.5), rel=1e-15)
    assert Fraction(centred.clip) ** 2 >= Fraction(5, 2)
    half = Fraction(1, 2)
    assert centred.groups == ((1, 1), (1, half), (4, Fraction(3, 2)), (1, half), (1, half))
    # For the l1 norm categories stay as they are.
    centred = ColumnCentring(Schema(COLUMNS), "ill", "l1")
    assert centred.groups == ((1, 1), (1, half), (4, 1), (1, half), (1, half))
    assert centred.middle.tolist() == [0, 0.5, 0, 0, 0, 0, 0.5, 0.5]
    assert centred.centre_rows(read(Schema(COLUMNS))).matrix()[0].tolist() == [-1, -0.5, 1, 0, 0, 0, 0.5, 0.5]


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_the_mark_of_a_missing_number_costs_nothing_beside_a_signed_one(norm: Norm) -> None:
    declared = {"a": number(0, 1, missing="none"), "b": number(0, 1, missing="none", scale="unit")}
    centred = ColumnCentring(Schema(declared), None, norm)
    assert centred.names == ("a", "a=missing", "b", "b=missing")
    assert centred.middle.tolist() == ([0, 0, 0.5, 0.5] if norm == "l2" else [0, 0, 0, 0])
    assert centred.groups == ((2, 1), (2, 1))
    assert centred.clip == pytest.approx(math.sqrt(1.5 if norm == "l2" else 2), rel=1e-15)


def test_a_given_clip_bounds_the_centred_features_and_never_the_label() -> None:
    schema = Schema(COLUMNS, clip=0.5)
    centred = ColumnCentring(schema, "ill")
    assert centred.feature_clip == 0.5
    assert centred.clip == pytest.approx(math.sqrt(0.5), rel=1e-15)
    rows = centred.centre_rows(read(schema)).matrix()
    norms = np.linalg.norm(rows[:, :-1], axis=1)
    assert np.all(norms <= 0.5)
    assert np.all(norms > 0.4999)
    assert np.abs(rows[:, -1]).tolist() == [0.5] * 4
    whole = ColumnCentring(schema.with_clip(None), "ill").centre_rows(read(schema.with_clip(None))).matrix()
    # A clip beyond the longest centred row changes nothing.
    loose = Schema(COLUMNS, clip=2.0)
    assert ColumnCentring(loose, "ill").feature_clip == ColumnCentring(Schema(COLUMNS), "ill").feature_clip
    np.testing.assert_array_equal(ColumnCentring(loose, "ill").centre_rows(read(loose)).matrix(), whole)

    schema = Schema({"a": number(-1, 1), "b": number(-1, 1), "ill": flag()}, clip=0.5)
    rows = ColumnCentring(schema, "ill").centre_rows(read(schema, a=[0.6, 0.1], b=[0.8, 0.1], ill=[1, 1])).matrix()
    np.testing.assert_allclose(rows, [[0.3, 0.4, 0.5], [0.1, 0.1, 0.5]], rtol=1e-12)  # the direction stays


def test_a_party_with_nothing_but_the_label() -> None:
    schema = Schema({"ill": flag()})
    centred = ColumnCentring(schema, "ill")
    assert (centred.feature_names, centred.feature_clip, centred.clip) == ((), 0.0, 0.5)
    assert centred.centre_features(read(schema, ill=[1, 0])).matrix().shape == (2, 0)
    assert centred.centre_rows(read(schema, ill=[1, 0])).matrix().tolist() == [[0.5], [-0.5]]


def test_what_does_not_fit_is_refused() -> None:
    schema = Schema(COLUMNS)
    refused(SchemaError, "SC013", ColumnCentring(schema).labels, read(schema))
    refused(SchemaError, ("SC071", "nowhere"), ColumnCentring, schema, "nowhere")
    refused(SchemaError, "SC012", ColumnCentring, schema, norm="l3")
    refused(DataError, "DA135", ColumnCentring(schema).centre_rows, read(Schema(COLUMNS, clip=0.1)))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(strategies.columns(), min_size=1, max_size=6),
    st.one_of(st.none(), st.floats(0.01, 3)),
    st.sampled_from(["l2", "l1"]),
    st.booleans(),
    st.data(),
)
def test_whatever_the_cells_are_no_row_exceeds_a_bound(
    declared: list[Any], clip: float | None, norm: Norm, labelled: bool, data: st.DataObject
) -> None:
    """Nothing is refused, and no row is longer than what the noise is sized for: as it is, and centred."""
    schema = Schema({f"c{i}": column for i, column in enumerate(declared)}, clip=clip)
    centred = ColumnCentring(schema, "c0" if labelled else None, norm)
    cells: dict[str, Any] = {"person_id": list(range(5))}
    for name, column in schema.columns.items():
        texts = strategies.fitting(column).map(lambda cell: None if cell is None else str(cell))
        cells[name] = pa.array(data.draw(st.lists(texts | strategies.NONSENSE, min_size=5, max_size=5)), pa.string())
    read = read_table(pa.table(cells), schema, misfits="map")
    assert (np.linalg.norm(read.matrix(), axis=1) <= schema.clip).all()
    for row in centred.centre_rows(read).matrix():
        exact = [Fraction(value) for value in row.tolist()]
        features = exact[: len(centred.feature_names)]
        assert sum(value * value for value in exact) <= Fraction(centred.clip) ** 2
        assert sum(value * value for value in features) <= Fraction(centred.feature_clip) ** 2
        start = 0
        for width, radius in centred.groups:
            assert sum(map(abs, exact[start : start + width])) <= radius
            start += width
        assert start == len(exact)
