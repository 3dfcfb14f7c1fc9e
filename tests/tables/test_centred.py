from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import DataError, SchemaError
from colonnade.tables import Schema, Table, category, flag, number, read_table
from colonnade.tables.centred import Centred, Norm
from tests.support import strategies
from tests.support.errors import refused

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


def table(schema: Schema, **cells: Any) -> Table:
    cells = cells or CELLS
    return read_table(pa.table({"person_id": list(range(len(cells["ill"]))), **cells}), schema)


def test_columns_lie_around_their_middles_and_the_label_comes_last() -> None:
    schema = Schema(COLUMNS)
    centred = Centred(schema, "smoker")
    assert centred.feature_names == ("age", "share", "city=A", "city=B", "city=C", "city=D", "ill")
    assert centred.label_names == ("smoker",)
    assert centred.names == (*centred.feature_names, "smoker")
    assert centred.middle.tolist() == [0, 0.5, 0.25, 0.25, 0.25, 0.25, 0.5, 0.5]
    rows = centred.rows(table(schema))
    assert rows.ids == ["0", "1", "2", "3"]
    q = 0.25
    expected = [
        [-1, -0.5, 1 - q, -q, -q, -q, 0.5, 0.5],
        [0, 0.5, -q, -q, -q, 1 - q, -0.5, -0.5],
        [1, 0, -q, -q, -q, -q, 0.5, 0.5],
        [0.5, -0.25, -q, 1 - q, -q, -q, -0.5, 0.5],
    ]
    np.testing.assert_allclose(rows.matrix(), expected, atol=1e-15)
    np.testing.assert_allclose(np.vstack(list(rows.blocks(3))), expected, atol=1e-15)
    assert centred.features(table(schema)).matrix().tolist() == rows.matrix()[:, :7].tolist()
    assert centred.labels(table(schema)).tolist() == [[1], [0], [1], [1]]


def test_the_bounds_are_those_of_the_middles() -> None:
    centred = Centred(Schema(COLUMNS), "ill")
    # number 1, unit number 1/4, category of four 3/4, flag 1/4; the label 1/4 more
    assert centred.feature_clip == pytest.approx(1.5, rel=1e-15)
    assert centred.feature_clip >= 1.5
    assert centred.clip == pytest.approx(math.sqrt(2.5), rel=1e-15)
    assert Fraction(centred.clip) ** 2 >= Fraction(5, 2)
    half = Fraction(1, 2)
    assert centred.groups == ((1, 1), (1, half), (4, Fraction(3, 2)), (1, half), (1, half))


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_the_mark_of_a_missing_number_costs_nothing_beside_a_signed_one(norm: Norm) -> None:
    declared = {"a": number(0, 1, missing="none"), "b": number(0, 1, missing="none", scale="unit")}
    centred = Centred(Schema(declared), None, norm)
    assert centred.names == ("a", "a=missing", "b", "b=missing")
    assert centred.middle.tolist() == ([0, 0, 0.5, 0.5] if norm == "l2" else [0, 0, 0, 0])
    assert centred.groups == ((2, 1), (2, 1))
    assert centred.clip == pytest.approx(math.sqrt(1.5 if norm == "l2" else 2), rel=1e-15)


def test_for_the_l1_norm_categories_stay_as_they_are() -> None:
    schema = Schema(COLUMNS)
    centred = Centred(schema, "ill", "l1")
    half = Fraction(1, 2)
    assert centred.groups == ((1, 1), (1, half), (4, 1), (1, half), (1, half))
    assert centred.middle.tolist() == [0, 0.5, 0, 0, 0, 0, 0.5, 0.5]
    assert centred.rows(table(schema)).matrix()[0].tolist() == [-1, -0.5, 1, 0, 0, 0, 0.5, 0.5]


def test_a_given_clip_bounds_the_centred_features_and_never_the_label() -> None:
    schema = Schema(COLUMNS, clip=0.5)
    centred = Centred(schema, "ill")
    assert centred.feature_clip == 0.5
    assert centred.clip == pytest.approx(math.sqrt(0.5), rel=1e-15)
    rows = centred.rows(table(schema)).matrix()
    norms = np.linalg.norm(rows[:, :-1], axis=1)
    assert np.all(norms <= 0.5)
    assert np.all(norms > 0.4999)
    assert np.abs(rows[:, -1]).tolist() == [0.5] * 4
    whole = Centred(schema.with_clip(None), "ill").rows(table(schema.with_clip(None))).matrix()
    # A clip beyond the longest centred row changes nothing.
    loose = Schema(COLUMNS, clip=2.0)
    assert Centred(loose, "ill").feature_clip == Centred(Schema(COLUMNS), "ill").feature_clip
    np.testing.assert_array_equal(Centred(loose, "ill").rows(table(loose)).matrix(), whole)


def test_scaling_keeps_the_direction() -> None:
    schema = Schema({"a": number(-1, 1), "b": number(-1, 1), "ill": flag()}, clip=0.5)
    rows = Centred(schema, "ill").rows(table(schema, a=[0.6, 0.1], b=[0.8, 0.1], ill=[1, 1])).matrix()
    np.testing.assert_allclose(rows, [[0.3, 0.4, 0.5], [0.1, 0.1, 0.5]], rtol=1e-12)


def test_a_party_with_nothing_but_the_label() -> None:
    schema = Schema({"ill": flag()})
    centred = Centred(schema, "ill")
    assert (centred.feature_names, centred.feature_clip, centred.clip) == ((), 0.0, 0.5)
    assert centred.features(table(schema, ill=[1, 0])).matrix().shape == (2, 0)
    assert centred.rows(table(schema, ill=[1, 0])).matrix().tolist() == [[0.5], [-0.5]]


def test_a_party_without_the_label() -> None:
    schema = Schema({"a": number(0, 1), "ill": flag()})
    centred = Centred(schema)
    assert centred.names == schema.encoded_names
    refused(SchemaError, "SC013", centred.labels, table(schema, a=[0], ill=[1]))


def test_what_does_not_fit_is_refused() -> None:
    schema = Schema(COLUMNS)
    refused(SchemaError, ("SC071", "nowhere"), Centred, schema, "nowhere")
    refused(SchemaError, "SC012", Centred, schema, norm="l3")
    refused(DataError, "DA135", Centred(schema).rows, table(Schema(COLUMNS, clip=0.1)))


@settings(max_examples=80, deadline=None)
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
    centred = Centred(schema, "c0" if labelled else None, norm)
    cells: dict[str, Any] = {"person_id": list(range(5))}
    for name, column in schema.columns.items():
        texts = strategies.fitting(column).map(lambda cell: None if cell is None else str(cell))
        cells[name] = pa.array(data.draw(st.lists(texts | strategies.NONSENSE, min_size=5, max_size=5)), pa.string())
    read = read_table(pa.table(cells), schema, misfits="map")
    assert (np.linalg.norm(read.matrix(), axis=1) <= schema.clip).all()
    for row in centred.rows(read).matrix():
        exact = [Fraction(value) for value in row.tolist()]
        features = exact[: len(centred.feature_names)]
        assert sum(value * value for value in exact) <= Fraction(centred.clip) ** 2
        assert sum(value * value for value in features) <= Fraction(centred.feature_clip) ** 2
        start = 0
        for width, radius in centred.groups:
            assert sum(map(abs, exact[start : start + width])) <= radius
            start += width
        assert start == len(exact)
