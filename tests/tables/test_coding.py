"""Codes of columns and back: bins, densities within them, and what all parties' columns are together."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from colonnade.errors import DataError, SchemaError, StudyError
from colonnade.tables import (
    Number,
    Schema,
    category,
    data_dictionary,
    encode_columns,
    find_violations,
    flag,
    forbidden_codes,
    joint_constraints,
    number,
    read_table,
)
from colonnade.tables.bins import Density
from colonnade.tables.coding import Coding, ForbiddenCodes, build_coding, decode_codes, joint_names
from colonnade.tables.columns import Codes
from colonnade.testing import seeded
from tests.support import strategies
from tests.support.errors import refused

PEOPLE = Schema(
    {
        "age": number(0, 120, whole=True, missing="none"),
        "city": category(["Assen", "Breda"], missing="none"),
        "smoker": flag(),
        "income": number(0, 1e6, transform="log1p"),
    },
    clip=0.5,
)


def recoded(coding: Coding, table: pa.Table) -> Any:
    """The codes of a table's rows, from its cells."""
    return coding.codes(encode_columns(table, coding.schema.with_clip(None))[0])


def edges(column: Number, bins: Any) -> Any:
    return build_coding(Schema({"a": column}), bins).columns[0].edges


def holds(box: ForbiddenCodes, codes: Codes) -> NDArray[np.bool_]:
    """Which rows of codes of all columns a rule makes impossible."""
    return np.all([marked[codes[:, at]] for at, marked in zip(box.columns, box.marked, strict=True)], axis=0)


def test_each_kind_of_column_has_its_codes() -> None:
    coding = build_coding(PEOPLE, {"age": [18, 65], "income": 4})
    assert coding.sizes == (4, 3, 2, 4)
    assert coding.columns[0].labels == ("0 to 17", "18 to 64", "65 to 120", "(missing)")
    assert [column.missing for column in coding.columns] == [3, 2, None, None]
    cells = {
        "age": pa.array([17, 18, 64, 65, 120, None, 500]),
        "city": ["Assen", "Breda", None, "Assen", "Breda", "Assen", "Assen"],
        "smoker": [False, True, False, False, True, True, True],
        "income": [0.0, 30.0, 31.0, 999.0, 1001.0, 1e6, 1e9],
    }
    codes = coding.code_rows(read_table(pa.table(cells), PEOPLE, id=None)).matrix()
    assert codes.T.tolist() == [
        [0, 1, 1, 2, 2, 3, 2],
        [0, 1, 2, 0, 1, 0, 0],
        [0, 1, 0, 0, 1, 1, 1],
        [0, 0, 1, 1, 2, 3, 3],
    ]


def test_coded_rows_are_what_a_protocol_reads() -> None:
    cells = {"who": ["b", "a", "c"], "a": [0.0, 1.0, 2.0], "b": [True, True, False]}
    schema = Schema({"a": number(0, 2), "b": flag()}, clip=0.25)
    rows = build_coding(schema, 2).code_rows(read_table(pa.table(cells), schema, id="who").sorted_by_id())
    assert (list(rows.ids), rows.places, len(rows)) == (["a", "b", "c"], None, 3)
    assert np.vstack(list(rows.blocks(2))).tolist() == rows.matrix().tolist() == [[1, 1], [0, 1], [1, 0]]
    refused(DataError, "DA137", build_coding(schema.without(["b"]), 2).code_rows, rows.rows)
    # A mapped misfit has the first code unless cells may be missing.
    schema = Schema({"a": category(["x", "y"]), "b": category(["x", "y"], missing="none"), "c": number(0, 4)})
    cells = {"a": ["q", "y"], "b": ["q", "y"], "c": ["q", "3"]}
    rows = build_coding(schema, 4).code_rows(read_table(pa.table(cells), schema, id=None, misfits="map"))
    assert rows.matrix().tolist() == [[0, 2, 2], [1, 1, 3]]


def test_whole_numbers_get_at_most_one_bin_each_and_edges_cut_the_range_with_or_without_its_bounds() -> None:
    for column, bins, expected in (
        (number(2, 5, whole=True), 32, (1.5, 2.5, 3.5, 4.5, 5.5)),
        (number(2, 5, whole=True), 4, (1.5, 2.5, 3.5, 4.5, 5.5)),
        (number(2, 5, whole=True), 2, (1.5, 3.5, 5.5)),
        (number(0, 99, whole=True), 4, (-0.5, 24.5, 49.5, 74.5, 99.5)),
        (number(0, 62, whole=True, transform="log1p"), 6, (-0.5, 0.5, 2.5, 6.5, 14.5, 30.5, 62.5)),
        (number(0, 9, whole=True), {"a": [0, 0, 3.5, 9, 9]}, (-0.5, 0.5, 3.5, 8.5, 9.5)),
        *((number(0, 10), {"a": cut}, (0, 5, 10)) for cut in ([5], [0, 5, 10], [-3, 5], [5, 99])),
        *((number(0, 10), {"a": cut}, (0, 10)) for cut in ([0, 10], [-1, 11])),
    ):
        assert edges(column, bins) == expected
    for bits in range(2, 40):
        powers = edges(number(0, 2**bits - 2, whole=True, transform="log1p"), bits)
        assert powers == tuple(2.0**bit - 1.5 for bit in range(bits + 1))
    crowded = edges(number(0, 1000, whole=True, transform="log1p"), 64)
    assert len(set(crowded)) == len(crowded) < 65


def test_an_edge_given_twice_is_a_bin_of_one_value_and_an_edge_belongs_to_the_upper_bin() -> None:
    coding = build_coding(Schema({"a": number(0, 10)}), {"a": [0, 0, 5, 5, 10, 10]})
    assert coding.columns[0].labels == ("0", "0 to below 5", "5", "5 to below 10", "10")
    cells = pa.table({"a": [0.0, 1e-9, 4.999, 5.0, 5.001, 9.999, 10.0]})
    assert recoded(coding, cells)[:, 0].tolist() == [0, 1, 1, 2, 3, 3, 4]
    drawn = decode_codes({"p": coding}, np.repeat(np.arange(5), 20)[:, None], seeded(0))["a"].to_numpy().reshape(5, 20)
    assert (drawn[::2] == np.array([[0.0], [5.0], [10.0]])).all()
    assert ((drawn[1] > 0) & (drawn[1] < 5) & (drawn[3] > 5) & (drawn[3] < 10)).all()
    shares = np.array([0.1, 0.2, 0.3, 0.7])
    for transform in ("none", "log1p"):
        coding = build_coding(Schema({"a": number(0, 1, transform=transform)}), {"a": shares.tolist()})
        cells = pa.table({"a": np.concatenate([shares, np.nextafter(shares, 0) - 1e-15, [0.0, 1.0]])})
        assert recoded(coding, cells)[:, 0].tolist() == [1, 2, 3, 4, 0, 1, 2, 3, 0, 4]


@st.composite
def binned(draw: st.DrawFn) -> tuple[Any, Any]:
    """A column and bins for it."""
    column = draw(strategies.columns(reach=10**9))
    if not isinstance(column, Number):
        return column, None
    low, high = column.low, column.high
    inner = st.integers(int(low), int(high)) if column.whole else st.floats(low, high)
    chosen = sorted(draw(st.lists(inner, max_size=4, unique=True)))
    apart = all(right - left > 1e-3 * (high - low) for left, right in zip([low, *chosen], [*chosen, high], strict=True))
    return column, chosen if chosen and apart else draw(st.integers(1, 40))


@settings(deadline=None)
@given(st.lists(binned(), min_size=1, max_size=4), st.integers(0, 40), st.booleans(), st.integers(0, 255))
def test_codes_survive_the_table(chosen: list[tuple[Any, Any]], rows: int, shaped: bool, seed: int) -> None:
    schema = Schema({f"c{place}": column for place, (column, _) in enumerate(chosen)}, clip=0.3)
    coding = build_coding(schema, {f"c{place}": bins for place, (_, bins) in enumerate(chosen) if bins is not None})
    chance = np.random.default_rng(seed)
    codes = np.column_stack([chance.integers(0, size, rows) for size in coding.sizes])
    masses = [chance.dirichlet(np.full(size, 0.3)) for size in coding.sizes] if shaped else None
    table = decode_codes({"party": coding}, codes, seeded(seed), masses)
    np.testing.assert_array_equal(recoded(coding, table), codes)
    for name, column in schema.columns.items():
        cells = table[name].drop_null().to_numpy() if isinstance(column, Number) else np.empty(0)
        if len(cells):
            assert column.low <= cells.min() <= cells.max() <= column.high
            assert (cells.dtype == np.int64) == column.whole


@pytest.mark.parametrize(
    ("bins", "said"),
    [
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
    ],
)
def test_bins_that_make_no_sense(bins: Any, said: Any) -> None:
    refused(SchemaError, said, build_coding, Schema({"a": number(0, 10)}), {"a": bins})
    for name, *words in (("city", "SC015", "city", "category"), ("agee", "SC071", "agee", "'age'")):
        refused(SchemaError, words, build_coding, PEOPLE, {name: 3})


NOUGHTS = np.zeros((2, 4), dtype=np.int64)


@pytest.mark.parametrize(
    ("codes", "densities", "said"),
    [
        (np.zeros((2, 3), dtype=np.int64), None, ("DA138", "4", "2, 3")),
        (np.zeros((2, 4)), None, ("DA138", "4")),
        (np.array([[0, 3, 0, 0]]), None, ("DA140", "city", "2")),
        (np.array([[-1, 0, 0, 0]]), None, ("DA140", "age", "4")),
        (NOUGHTS, [None], ("DA139", "1", "4")),
        (NOUGHTS, [np.ones(4), None, None, None], ("DA136", "age")),
        (NOUGHTS, [None, None, None, np.full(4, np.nan)], ("DA136", "income")),
    ],
)
def test_codes_that_cannot_be_decoded(codes: Any, densities: Any, said: Any) -> None:
    refused(DataError, said, decode_codes, {"clinic": build_coding(PEOPLE, 4)}, codes, seeded(0), densities)


# --- densities within bins


masses = st.floats(0, 1) | st.sampled_from([0.0, 1e-12, 1.0])


def drawn(column: Number, bins: object, probabilities: list[float], rows: int) -> Any:
    """Numbers of one column whose codes have these probabilities, as a table of made-up people has them."""
    coding = build_coding(Schema({"a": column}), {"a": bins})
    codes = np.repeat(np.arange(len(probabilities)), np.rint(np.array(probabilities) * rows).astype(int))
    return decode_codes({"p": coding}, codes[:, None], seeded(0), [np.array(probabilities)])["a"].to_numpy()


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(1e-3, 1e3), masses, st.booleans()), min_size=1, max_size=12),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_masses_are_kept_and_draws_lie_in_their_bins_and_ascend_with_the_share(
    bins: list[tuple[float, float, bool]], one: float, other: float
) -> None:
    count = len(bins)
    ends, given_masses = np.cumsum([0.0, *(width for width, _, _ in bins)]), np.array([mass for _, mass, _ in bins])
    density = Density.from_masses(ends, given_masses, np.array([apart for _, _, apart in bins]))
    assert (np.concatenate([density.left, density.middle, density.right]) >= 0).all()
    counted = np.array([mass > 0 and not apart for _, mass, apart in bins])
    np.testing.assert_allclose(density.masses[counted], given_masses[counted], rtol=1e-9)
    joined = counted[:-1] & counted[1:]
    np.testing.assert_array_equal(density.right[:-1][joined], density.left[1:][joined])
    density = Density.from_masses(ends, given_masses, np.zeros(count, dtype=bool))
    low, high = (density.draw(np.arange(count), np.full(count, share)) for share in sorted((one, other)))
    assert ((low >= ends[:-1]) & (high <= ends[1:]) & (low <= high + 1e-12 * ends[-1])).all()
    np.testing.assert_array_equal(density.draw(np.arange(count), np.zeros(count)), ends[:-1])


def test_draws_follow_slopes_across_bins_and_whole_numbers_share_the_mass_of_theirs() -> None:
    # The density 2x on [0, 1], told by four bins, is found again: within a bin too, larger numbers are more likely.
    cells = drawn(number(0, 1), 4, [1 / 16, 3 / 16, 5 / 16, 7 / 16], 64_000)
    grid = np.linspace(0.05, 0.95, 19)
    np.testing.assert_allclose([(cells <= x).mean() for x in grid], grid**2, atol=0.01)
    cells = drawn(number(0, 9, whole=True), [5], [0.5, 0.5], 100_000)
    counts = np.bincount(cells.astype(int), minlength=10) / 100_000
    np.testing.assert_allclose(counts, np.full(10, 0.1), atol=0.01)
    assert counts[:5].sum() == counts[5:].sum() == 0.5
    # A bin of one value lends nothing to its neighbours.
    cells = drawn(number(0, 10), [0, 0, 5], [0.9, 0.05, 0.05], 100_000)
    assert (cells == 0).mean() == 0.9
    positive = cells[cells > 0]
    np.testing.assert_allclose([(positive <= x).mean() for x in (2.5, 5.0, 7.5)], [0.25, 0.5, 0.75], atol=0.03)
    whole = drawn(number(0, 10, whole=True), [0, 1], [0.9, 0.1], 100_000)
    np.testing.assert_allclose(np.bincount(whole.astype(int))[1:] / 10_000, np.full(10, 0.1), atol=0.02)


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e150])
@pytest.mark.parametrize("mass", [0.0, 1e-300, 1.0])
def test_neither_units_nor_rare_bins_matter_and_a_bin_without_mass_is_drawn_from_evenly(
    size: float, mass: float
) -> None:
    density = Density.from_masses(size * np.array([0.0, 1.0, 2.0]), np.array([mass, 1.0]), np.zeros(2, dtype=bool))
    if mass == 0:
        found = density.draw(np.array([0, 0, 0]), np.array([0.25, 0.5, 0.75])) / size
        assert found == pytest.approx([0.25, 0.5, 0.75])
        return
    found = density.draw(np.array([0, 1]), np.array([0.5, 0.5])) / size
    assert 0.5 <= found[0] < 1 < found[1] < 2
    np.testing.assert_allclose(density.masses, [mass, 1.0])


# --- columns of all parties


SCHEMAS = {
    "bank": Schema(
        {"age": number(0, 99, whole=True, unit="years", missing="none"), "loan": flag()},
        impossible=["age < 18 and loan = true"],
    ),
    "shop": Schema({"age": number(0, 99), "city": category(["A", "B"], missing="none")}),
}
CODINGS = {
    "bank": build_coding(SCHEMAS["bank"], {"age": [10, 18, 60]}),
    "shop": build_coding(SCHEMAS["shop"], {"age": [0, 0, 50]}),
}


def test_rules_within_and_across_parties_name_the_columns_of_the_joint_table() -> None:
    rules = joint_constraints(SCHEMAS, ["bank.loan = true and shop.city = missing", "shop.age < 50 and bank.age >= 60"])
    assert list(map(str, rules)) == [
        "bank.age < 18 and loan = true",
        "loan = true and city = missing",
        "shop.age < 50 and bank.age >= 60",
    ]
    cells = {"bank.age": [17, 18, 70], "loan": [True, True, False], "shop.age": [0.0, 9.0, 20.0]}
    table = pa.table({**cells, "city": ["A", None, "B"]})
    assert [rule.find_violations(table).tolist() for rule in rules] == np.eye(3, dtype=bool).tolist()
    assert find_violations(rules, table).all()
    for rule, said in (
        ("age < 3", ("SC056", "age")),
        ("bnak.age < 3", ("SC056", "bank.age")),
        ("bank.loan = 3", ("SC063", "bank.loan")),
    ):
        refused(StudyError, said, joint_constraints, SCHEMAS, [rule])
    # Codes that are impossible as a whole
    boxes = forbidden_codes(rules, CODINGS)
    assert [box.columns for box in boxes] == [(0, 1), (1, 3), (0, 2)]
    assert [[mask.astype(int).tolist() for mask in box.marked] for box in boxes] == [
        [[1, 1, 0, 0, 0], [0, 1]],
        [[0, 1], [0, 0, 1]],
        [[0, 0, 0, 1, 0], [1, 1, 0]],
    ]
    codes = np.array([[1, 1, 0, 0], [2, 1, 0, 2], [3, 0, 1, 0], [3, 0, 2, 0]])
    assert [holds(box, codes).tolist() for box in boxes] == np.eye(3, 4, dtype=bool).tolist()
    # A rule that cuts through the only bin that it could hold in makes no code impossible as a whole.
    assert forbidden_codes(joint_constraints(SCHEMAS, ["bank.age < 5 and bank.loan = false"])[1:], CODINGS) == ()


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["bank.age", "shop.age"]),
            st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
            st.integers(0, 99),
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["", " and bank.loan = true", " and shop.city != A", " and shop.city = missing"]),
    st.integers(0, 255),
)
def test_every_row_of_an_impossible_code_breaks_the_rule(comparisons: list[Any], more: str, seed: int) -> None:
    text = " and ".join(f"{name} {operator} {value}" for name, operator, value in comparisons) + more
    rules = joint_constraints(SCHEMAS, [text])[1:]
    chance = np.random.default_rng(seed)
    sizes = [size for coding in CODINGS.values() for size in coding.sizes]
    codes = np.column_stack([chance.integers(0, size, 200) for size in sizes])
    broken = find_violations(rules, decode_codes(CODINGS, codes, seeded(seed)))
    for box in forbidden_codes(rules, CODINGS):
        assert broken[holds(box, codes)].all()


def test_the_dictionary_describes_every_column_in_plain_values() -> None:
    found = json.loads(json.dumps(data_dictionary(CODINGS)))
    assert found[0] == {
        "name": "bank.age",
        "party": "bank",
        "column": "age",
        "type": "whole number",
        "unit": "years",
        "low": 0,
        "high": 99,
        "bins": ["0 to 9", "10 to 17", "18 to 59", "60 to 99"],
        "codes": 5,
        "missing": "an empty cell",
    }
    assert (found[2]["type"], found[2]["low"], found[2]["bins"]) == ("number", 0.0, ["0", "0 to below 50", "50 to 99"])
    assert (found[3]["values"], found[3]["codes"], found[3]["missing"]) == (["A", "B"], 3, "an empty cell")


def test_names_in_a_table_of_all_parties_differ_whatever_the_parties_call_their_columns() -> None:
    held = {"a": "x y", "b": "x", "c": "a.x c.a.x"}
    schemas = {party: Schema({name: flag() for name in names.split()}) for party, names in held.items()}
    assert joint_names(schemas) == ("a.x", "y", "b.x", "c.a.x", "c.c.a.x")
    alike = {"a": Schema({"b.x": flag(), "x": flag()}), "a.b": Schema({"x": flag()}), "c": Schema({"b.x": flag()})}
    refused(SchemaError, "SC014", joint_names, alike)
