from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import DataError, SchemaError
from colonnade.randomness import Stream
from colonnade.tables import Number, Schema, category, decode, encode_columns, flag, number
from tests.support.errors import raises

BASE = Schema({"age": number(0, 100), "city": category(["A", "B"], missing="none"), "smoker": flag()})


def seeded() -> Stream:
    return Stream(bytes(range(32)))


def test_each_kind_in_the_order_and_types_of_the_schema() -> None:
    found = decode(BASE, [[-1, 0, 1, 1], [0, 1, 0, 0], [1, 0, 0, 1]])
    assert found.to_pydict() == {"age": [0, 50, 100], "city": ["B", "A", None], "smoker": [True, False, True]}
    assert found.column_names == ["age", "city", "smoker"]
    assert found.schema.types == [pa.float64(), pa.dictionary(pa.int32(), pa.string()), pa.bool_()]


def test_numbers_are_clipped_to_their_bounds() -> None:
    schema = Schema({"a": number(2, 10), "b": number(0, 99, scale="unit", transform="log1p")})
    found = decode(schema, [[-1e300, -0.1], [1.01, 1e300], [0, 0.5]])
    assert found["a"].to_pylist() == [2, 10, 6]
    assert found["b"].to_pylist() == pytest.approx([0, 99, 9])


def test_equal_scores_give_the_first_value_and_scores_may_be_negative() -> None:
    schema = Schema({"a": category(["x", "y", "z"]), "b": category(["x", "y"], missing="none")})
    found = decode(schema, [[0, 0, 0, 0, 0], [-3, -1, -1, -2, -1], [0.2, 0.2, 0.1, 0, 1e-300]])
    assert found.to_pydict() == {"a": ["x", "y", "x"], "b": [None, "y", "y"]}


def test_a_flag_is_true_only_above_one_half() -> None:
    assert decode(Schema({"a": flag()}), [[0.5], [0.51], [-7], [7]])["a"].to_pylist() == [False, True, False, True]


def test_a_number_that_may_be_missing_and_a_whole_one() -> None:
    schema = Schema({"a": number(0, 10, missing="none"), "b": number(0, 10, whole=True, missing="none")})
    found = decode(schema, [[1, 0.4, 0.13, 0.5], [0, 0.6, -1, 0.51], [0, 0, -0.07, 0]])
    assert found.to_pydict() == {"a": [10, None, 5], "b": [6, None, 5]}
    assert found.schema.types == [pa.float64(), pa.int64()]
    drawn = decode(schema, np.tile([0, 0.25, 0, 0.75], (20_000, 1)), stream=seeded())
    assert [drawn[name].null_count / 20_000 for name in ("a", "b")] == pytest.approx([0.25, 0.75], abs=0.02)


def test_one_array_for_each_column_gives_the_same_table() -> None:
    matrix = np.array([[-1, 0, 1, 1], [0.5, 1, 0, 0]])
    parts = {"smoker": matrix[:, 3], "city": matrix[:, 1:3], "age": matrix[:, :1]}
    assert decode(BASE, parts).equals(decode(BASE, matrix))


def test_no_rows() -> None:
    for stream in (None, seeded()):
        found = decode(BASE, np.zeros((0, 4)), stream=stream)
        assert (found.num_rows, found.column_names) == (0, ["age", "city", "smoker"])


WRONG_SHAPES = [
    (np.zeros((2, 3)), ("DA148", "4", "2, 3")),
    (np.zeros(4), ("DA148", "4")),
    ({"age": [0.0], "city": [[0.0]], "smoker": [0.0]}, ("DA148", "city", "2")),
    ({"age": [0.0], "smoker": [0.0]}, ("DA146", "city")),
    ({"age": [0.0, 1.0], "city": [[0, 1]], "smoker": [1]}, "DA147"),
]


@pytest.mark.parametrize(("encoded", "said"), WRONG_SHAPES)
def test_wrong_shapes_are_refused(encoded: Any, said: str) -> None:
    with raises(DataError, said):
        decode(BASE, encoded)


def test_a_column_that_the_schema_does_not_have_is_refused() -> None:
    with raises(SchemaError, "SC071", "town"):
        decode(BASE, {"age": [0.0], "city": [[0, 1]], "smoker": [1], "town": [[1, 0]]})


@pytest.mark.parametrize("cell", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("position", "name"), [(0, "age"), (2, "city"), (3, "smoker")])
def test_numbers_that_are_not_finite_are_refused(cell: float, position: int, name: str) -> None:
    matrix = np.zeros((3, 4))
    matrix[1, position] = cell
    with raises(DataError, "DA149", "2", name):
        decode(BASE, matrix)


def test_draws_follow_the_weights() -> None:
    schema = Schema({"a": category(["x", "y", "z"]), "b": category(["x", "y"], missing="none"), "c": flag()})
    rows = 40_000
    found = decode(schema, np.tile([2.0, -5.0, 6.0, 0.1, 0.5, 0.3], (rows, 1)), stream=seeded())
    shares = {
        name: {
            value.as_py(): count.as_py() / rows
            for value, count in zip(*found[name].value_counts().flatten(), strict=True)
        }
        for name in found.column_names
    }
    assert shares["a"] == pytest.approx({"x": 0.25, "z": 0.75}, abs=0.015)  # six standard deviations are 0.015
    assert shares["b"] == pytest.approx({"x": 0.1, "y": 0.5, None: 0.4}, abs=0.015)
    assert shares["c"] == pytest.approx({True: 0.3, False: 0.7}, abs=0.015)


def test_the_same_stream_draws_the_same_table() -> None:
    matrix = np.full((100, 4), 0.5)
    assert decode(BASE, matrix, stream=seeded()).equals(decode(BASE, matrix, stream=seeded()))
    assert not decode(BASE, matrix, stream=Stream.fresh()).equals(decode(BASE, matrix, stream=seeded()))


@pytest.mark.parametrize("weights", [[0.0, 0.0], [-1.0, -2.0], [1.7e308, 1.7e308]])
def test_weights_that_nothing_can_be_drawn_by_are_refused(weights: list[float]) -> None:
    with raises(DataError, "DA150", "1, 2"):
        decode(Schema({"a": category(["x", "y"])}), [weights, weights], stream=seeded())


@given(st.lists(st.floats(-1, 1e300) | st.sampled_from([0.0, 5e-324, 1e-310]), min_size=1, max_size=5))
def test_only_values_of_positive_weight_are_drawn(weights: list[float]) -> None:
    schema = Schema({"a": category(list(range(len(weights))))})
    if max(weights) > 0:
        drawn = decode(schema, [weights] * 50, stream=seeded())["a"].to_pylist()
        assert all(weights[int(value)] > 0 for value in drawn)


words = st.text("abcxyz é=", min_size=1, max_size=3)


@st.composite
def columns(draw: st.DrawFn) -> tuple[Any, st.SearchStrategy[Any]]:
    """A column and the cells that fit it, missing ones too where the schema has a rule for them."""
    kind = draw(st.sampled_from(["number", "category", "flag"]))
    rule: Any
    cells: st.SearchStrategy[Any]
    if kind == "number":
        transform = draw(st.sampled_from(["none", "log1p"]))
        low = draw(st.floats(0 if transform == "log1p" else -1e6, 1e6))
        high = low + draw(st.floats(1e-2, 1e6))
        if whole := draw(st.booleans()):
            low, high = math.floor(low), math.ceil(high) + 1
        rule = draw(st.sampled_from(["refuse", "low", "high", "none", low if whole else "middle"]))
        cells = st.floats(low - 10, high + 10)
        scale = draw(st.sampled_from(["signed", "unit"]))
        column: Any = number(low, high, scale=scale, transform=transform, missing=rule, whole=whole)
    elif kind == "category":
        values = draw(st.lists(words, min_size=1, max_size=5, unique=True))
        rule = draw(st.sampled_from(["refuse", "none", *values]))
        cells, column = st.sampled_from(values), category(values, missing=rule)
    else:
        rule = draw(st.sampled_from(["refuse", True, False]))
        cells, column = st.booleans(), flag(missing=rule)
    return column, cells if rule == "refuse" else cells | st.none()


def becomes(cell: Any, column: Any) -> Any:
    """What is left of a cell after the bounds and the rule for missing ones."""
    if not isinstance(column, Number):
        return cell if cell is not None or column.missing == "none" else column.missing
    if cell is not None:
        within = min(max(cell, column.low), column.high)
        return round(within) if column.whole else within
    if column.missing == "none":
        return None
    start, end = column.ends
    middle = (start + end) / 2
    words = {
        "low": column.low,
        "high": column.high,
        "middle": math.expm1(middle) if column.transform == "log1p" else middle,
    }
    return words.get(column.missing, column.missing)


@settings(deadline=None)
@given(st.lists(columns(), min_size=1, max_size=5), st.integers(0, 6), st.booleans(), st.data())
def test_decoding_undoes_encoding(
    drawn: list[tuple[Any, st.SearchStrategy[Any]]], rows: int, sampled: bool, data: st.DataObject
) -> None:
    schema = Schema({f"c{index}": column for index, (column, _) in enumerate(drawn)})
    kinds = {"number": pa.float64(), "category": pa.string(), "flag": pa.bool_()}
    cells = {
        f"c{index}": pa.array(data.draw(st.lists(fitting, min_size=rows, max_size=rows)), kinds[column.kind])
        for index, (column, fitting) in enumerate(drawn)
    }
    matrix, _ = encode_columns(pa.table(cells), schema)
    found = decode(schema, matrix, stream=seeded() if sampled else None)
    for name, column in schema.columns.items():
        expected = [becomes(cell, column) for cell in cells[name].to_pylist()]
        if isinstance(column, Number):
            slack = 1e-12 * (abs(column.low) + abs(column.high) + 1)
            assert [cell is None for cell in found[name].to_pylist()] == [cell is None for cell in expected]
            cells_left = [cell for cell in expected if cell is not None]
            assert found[name].drop_null().to_pylist() == pytest.approx(cells_left, rel=1e-9, abs=slack)
            assert found[name].type == (pa.int64() if column.whole else pa.float64())
        else:
            assert found[name].to_pylist() == expected
    again, report = encode_columns(found, schema)
    np.testing.assert_allclose(again, matrix, atol=1e-6)
    assert not report.clipped
