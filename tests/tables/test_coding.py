from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import DataError, SchemaError
from colonnade.randomness import Stream
from colonnade.tables import Number, Schema, category, encode_columns, flag, number, read_table
from colonnade.tables.coding import Coding, coding_of, decode_codes, joint_names
from tests.support.refusals import refused

PEOPLE = Schema(
    {
        "age": number(0, 120, whole=True, missing="none"),
        "city": category(["Assen", "Breda"], missing="none"),
        "smoker": flag(),
        "income": number(0, 1e6, transform="log1p"),
    },
    clip=0.5,
)


def stream(seed: int = 0) -> Stream:
    return Stream(bytes([seed] * 32))


def recoded(coding: Coding, table: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The codes of a table's rows, from its cells."""
    return coding.codes(encode_columns(table, coding.schema.with_clip(None))[0])


def test_each_kind_of_column_has_its_codes() -> None:
    coding = coding_of(PEOPLE, {"age": [18, 65], "income": 4})
    assert coding.sizes == (4, 3, 2, 4)
    assert coding.columns[0].labels == ("0 to 17", "18 to 64", "65 to 120", "(missing)")
    assert coding.columns[0].edges == (-0.5, 17.5, 64.5, 120.5)
    assert coding.columns[1].labels == ("Assen", "Breda", "(missing)")
    assert [column.missing for column in coding.columns] == [3, 2, None, None]
    cells = {
        "age": pa.array([17, 18, 64, 65, 120, None, 500]),
        "city": ["Assen", "Breda", None, "Assen", "Breda", "Assen", "Assen"],
        "smoker": [False, True, False, False, True, True, True],
        "income": [0.0, 30.0, 31.0, 999.0, 1001.0, 1e6, 1e9],
    }
    codes = coding.rows(read_table(pa.table(cells), PEOPLE, id=None)).matrix()
    assert codes[:, 0].tolist() == [0, 1, 1, 2, 2, 3, 2]
    assert codes[:, 1].tolist() == [0, 1, 2, 0, 1, 0, 0]
    assert codes[:, 2].tolist() == [0, 1, 0, 0, 1, 1, 1]
    assert codes[:, 3].tolist() == [0, 0, 1, 1, 2, 3, 3]


def test_coded_rows_are_what_a_protocol_reads() -> None:
    cells = {"who": ["b", "a", "c"], "a": [0.0, 1.0, 2.0], "b": [True, True, False]}
    schema = Schema({"a": number(0, 2), "b": flag()}, clip=0.25)
    rows = coding_of(schema, 2).rows(read_table(pa.table(cells), schema, id="who").sorted_by_id())
    assert (list(rows.ids), rows.places, len(rows)) == (["a", "b", "c"], None, 3)
    blocks = list(rows.blocks(2))
    assert [block.dtype for block in blocks] == [np.float64, np.float64]
    assert np.vstack(blocks).tolist() == rows.matrix().tolist() == [[1, 1], [0, 1], [1, 0]]
    refused(DataError, "DA137", coding_of(schema.without(["b"]), 2).rows, rows.table)


def test_a_mapped_misfit_has_the_first_code_unless_cells_may_be_missing() -> None:
    schema = Schema({"a": category(["x", "y"]), "b": category(["x", "y"], missing="none"), "c": number(0, 4)})
    cells = pa.table({"a": ["q", "y"], "b": ["q", "y"], "c": ["q", "3"]})
    rows = coding_of(schema, 4).rows(read_table(cells, schema, id=None, misfits="map"))
    assert rows.matrix().tolist() == [[0, 2, 2], [1, 1, 3]]


def test_whole_numbers_get_at_most_one_bin_each() -> None:
    def edges(column: Number, bins: Any) -> Any:
        return coding_of(Schema({"a": column}), bins).columns[0].edges

    assert edges(number(2, 5, whole=True), 32) == (1.5, 2.5, 3.5, 4.5, 5.5)
    assert edges(number(2, 5, whole=True), 4) == (1.5, 2.5, 3.5, 4.5, 5.5)
    assert edges(number(2, 5, whole=True), 2) == (1.5, 3.5, 5.5)
    assert edges(number(0, 99, whole=True), 4) == (-0.5, 24.5, 49.5, 74.5, 99.5)
    doubling = edges(number(0, 62, whole=True, transform="log1p"), 6)
    assert doubling == (-0.5, 0.5, 2.5, 6.5, 14.5, 30.5, 62.5)
    for bits in range(2, 40):
        powers = edges(number(0, 2**bits - 2, whole=True, transform="log1p"), bits)
        assert powers == tuple(2.0**bit - 1.5 for bit in range(bits + 1))
    crowded = edges(number(0, 1000, whole=True, transform="log1p"), 64)
    assert len(set(crowded)) == len(crowded) < 65
    assert edges(number(0, 9, whole=True), {"a": [0, 0, 3.5, 9, 9]}) == (-0.5, 0.5, 3.5, 8.5, 9.5)


def test_an_edge_given_twice_is_a_bin_of_one_value() -> None:
    coding = coding_of(Schema({"a": number(0, 10)}), {"a": [0, 0, 5, 5, 10, 10]})
    assert coding.columns[0].labels == ("0", "0 to below 5", "5", "5 to below 10", "10")
    cells = pa.table({"a": [0.0, 1e-9, 4.999, 5.0, 5.001, 9.999, 10.0]})
    codes = recoded(coding, cells)[:, 0]
    assert codes.tolist() == [0, 1, 1, 2, 3, 3, 4]
    drawn = decode_codes({"p": coding}, np.repeat(np.arange(5), 20)[:, None], stream())["a"].to_numpy()
    exact, below, above = drawn.reshape(5, 20)[::2], drawn[20:40], drawn[60:80]
    assert (exact == np.array([[0.0], [5.0], [10.0]])).all()
    assert ((below > 0) & (below < 5)).all()
    assert ((above > 5) & (above < 10)).all()


def test_types_of_the_table() -> None:
    coding = coding_of(PEOPLE, 4)
    found = decode_codes({"clinic": coding}, np.array([[4, 2, 1, 0], [0, 0, 0, 3]]), stream())
    text = pa.dictionary(pa.int32(), pa.string())
    assert found.schema.types == [pa.int64(), text, pa.bool_(), pa.float64()]
    assert found.column_names == list(PEOPLE.names)
    assert found["age"].null_count == found["city"].null_count == 1
    assert found["smoker"].to_pylist() == [True, False]
    none = decode_codes({"clinic": coding}, np.zeros((0, 4), dtype=np.int64), stream())
    assert (none.num_rows, none.schema) == (0, found.schema)


def test_columns_of_several_parties_have_their_own_names_where_these_differ() -> None:
    one, two = Schema({"a": flag(), "b": flag()}), Schema({"b": flag(), "c": flag()})
    assert joint_names({"x": one, "y": two}) == ("a", "x.b", "y.b", "c")
    found = decode_codes({"x": coding_of(one), "y": coding_of(two)}, np.array([[1, 0, 1, 0]]), stream())
    assert found.to_pydict() == {"a": [True], "x.b": [False], "y.b": [True], "c": [False]}


words = st.text("abcxyz é=", min_size=1, max_size=3)


@st.composite
def columns(draw: st.DrawFn) -> tuple[Any, Any]:
    """A column and bins for it."""
    kind = draw(st.sampled_from(["number", "number", "whole", "category", "flag"]))
    if kind == "flag":
        return flag(missing=draw(st.booleans() | st.just("refuse"))), None
    if kind == "category":
        values = draw(st.lists(words, min_size=1, max_size=5, unique=True))
        return category(values, missing=draw(st.sampled_from(["refuse", "none", values[0]]))), None
    transform = draw(st.sampled_from(["none", "log1p"]))
    rules: Any = {
        "scale": draw(st.sampled_from(["signed", "unit"])),
        "transform": transform,
        "missing": draw(st.sampled_from(["refuse", "none", "middle"])),
    }
    low: float
    high: float
    inner: st.SearchStrategy[Any]
    least, most = (0, 10**6) if transform == "log1p" else (-(10**9), 10**9)
    if kind == "whole":
        low = draw(st.integers(least, most))
        high = low + draw(st.integers(1, 200) | st.integers(1, 10**9))
        inner = st.integers(low, high)
    else:
        low = draw(st.floats(least, most))
        high = low + draw(st.floats(1e-2, 10) | st.floats(1, 1e9))
        inner = st.floats(low, high)
    column = number(low, high, whole=kind == "whole", **rules)
    edges = sorted(draw(st.lists(inner, max_size=4, unique=True)))
    apart = all(right - left > 1e-3 * (high - low) for left, right in zip([low, *edges], [*edges, high], strict=True))
    return column, edges if edges and apart else draw(st.integers(1, 40))


@settings(deadline=None)
@given(st.lists(columns(), min_size=1, max_size=4), st.integers(0, 40), st.booleans(), st.data())
def test_codes_survive_the_table(chosen: list[tuple[Any, Any]], rows: int, shaped: bool, data: st.DataObject) -> None:
    schema = Schema({f"c{place}": column for place, (column, _) in enumerate(chosen)}, clip=0.3)
    coding = coding_of(schema, {f"c{place}": bins for place, (_, bins) in enumerate(chosen) if bins is not None})
    seed = data.draw(st.integers(0, 255))
    chance = np.random.default_rng(seed)
    codes = np.column_stack([chance.integers(0, size, rows) for size in coding.sizes])
    masses = [chance.dirichlet(np.full(size, 0.3)) for size in coding.sizes] if shaped else None
    table = decode_codes({"party": coding}, codes, stream(seed), masses)
    np.testing.assert_array_equal(recoded(coding, table), codes)
    for name, column in schema.columns.items():
        cells = table[name].drop_null().to_numpy() if isinstance(column, Number) else np.empty(0)
        if isinstance(column, Number) and len(cells):
            assert column.low <= cells.min()
            assert cells.max() <= column.high
            assert (cells.dtype == np.int64) == column.whole


BAD_BINS = [
    (0, ("SC010", "10000")),
    (True, ("SC010", "10000", "True")),
    (10_001, ("SC010", "10000")),
    ([], "SC005"),
    ("3", ("SC005", "3")),
    (2.5, ("SC005", "2.5")),
    ([1, "2"], ("SC011", "2")),
    ([1, float("nan")], ("SC011", "nan")),
    ([5, 3], ("SC006", "3", "5")),
    ([3, 3, 3], "SC007"),
    ([-2, -1, 5], ("SC008", "-2", "-1", "10")),
    ([5, 11, 12], ("SC008", "11", "12")),
    ([1e-3, 1e-3 + 1e-18], "SC004"),
    (list(np.linspace(0, 10, 10_002)), ("SC009", "10001", "10000")),
]


@pytest.mark.parametrize(("bins", "said"), BAD_BINS)
def test_bins_that_make_no_sense(bins: Any, said: str) -> None:
    refused(SchemaError, said, coding_of, Schema({"a": number(0, 10)}), {"a": bins})


def test_bins_for_other_columns_than_numbers() -> None:
    refused(SchemaError, ("SC015", "city", "category"), coding_of, PEOPLE, {"city": 3})
    refused(SchemaError, ("SC071", "agee", "'age'"), coding_of, PEOPLE, {"agee": 3})
    refused(SchemaError, "SC004", coding_of, Schema({"a": number(1e15, 1e15 + 1)}), 64)


def test_edges_cut_the_range_with_or_without_its_bounds() -> None:
    def edges(given: list[float]) -> Any:
        return coding_of(Schema({"a": number(0, 10)}), {"a": given}).columns[0].edges

    assert edges([5]) == edges([0, 5, 10]) == edges([-3, 5]) == edges([5, 99]) == (0, 5, 10)
    assert edges([0, 10]) == edges([-1, 11]) == (0, 10)


def test_a_value_at_an_edge_belongs_to_the_upper_bin() -> None:
    shares = np.array([0.1, 0.2, 0.3, 0.7])
    for transform in ("none", "log1p"):
        coding = coding_of(Schema({"a": number(0, 1, transform=transform)}), {"a": shares.tolist()})
        cells = np.concatenate([shares, np.nextafter(shares, 0) - 1e-15, [0.0, 1.0]])
        found = coding.codes(encode_columns(pa.table({"a": cells}), coding.schema)[0])[:, 0]
        assert found.tolist() == [1, 2, 3, 4, 0, 1, 2, 3, 0, 4]


CODING = {"clinic": coding_of(PEOPLE, 4)}
WRONG_CODES = [
    (np.zeros((2, 3), dtype=np.int64), None, ("DA138", "4", "2, 3")),
    (np.zeros((2, 4)), None, ("DA138", "4")),
    (np.array([[0, 3, 0, 0]]), None, ("DA140", "city", "2")),
    (np.array([[-1, 0, 0, 0]]), None, ("DA140", "age", "4")),
    (np.zeros((2, 4), dtype=np.int64), [None], ("DA139", "1", "4")),
    (np.zeros((2, 4), dtype=np.int64), [np.ones(4), None, None, None], ("DA136", "age")),
    (np.zeros((2, 4), dtype=np.int64), [None, None, None, np.full(4, np.nan)], ("DA136", "income")),
]


@pytest.mark.parametrize(("codes", "densities", "said"), WRONG_CODES)
def test_codes_that_cannot_be_decoded(codes: Any, densities: Any, said: str) -> None:
    refused(DataError, said, decode_codes, CODING, codes, stream(), densities)
