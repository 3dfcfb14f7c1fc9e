"""Cells that a schema has no place for: mapped by public rules, counted for their owner, and within every bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import DataError
from colonnade.tables import Schema, category, encode_columns, flag, number, read_table
from colonnade.tables.centred import Centred
from tests.support.errors import raises

MAPPED = [
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
    (category(["a", "b"]), ["a", "a "], [0.0, 0.0]),
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
]


@pytest.mark.parametrize(("column", "cells", "becomes"), MAPPED)
def test_a_misfit_is_mapped_by_a_public_rule_and_counted(column: Any, cells: list[Any], becomes: list[float]) -> None:
    schema = Schema({"a": column})
    matrix, report = encode_columns(pa.table({"a": cells}), schema, misfits="map")
    assert matrix[1].tolist() == becomes
    assert (dict(report.misfits), dict(report.missing), dict(report.clipped)) == ({"a": 1}, {}, {})
    assert report.lines() == ["2 rows", "a: 1 cell not in the schema, mapped"]
    with raises(DataError, "DA152|DA193|DA194|DA195|DA200|DA201", "2"):
        encode_columns(pa.table({"a": cells}), schema)


def test_a_missing_cell_that_the_schema_provides_for_is_no_misfit() -> None:
    schema = Schema({"a": number(0, 1, missing="low"), "b": category(["x"], missing="none"), "c": flag(missing=True)})
    cells = pa.table({"a": ["", "2"], "b": ["", "x"], "c": ["", "no"]})
    mapped, refused = (encode_columns(cells, schema, misfits=way) for way in ("map", "refuse"))
    assert mapped[0].tolist() == refused[0].tolist()
    assert mapped[1] == refused[1]
    assert mapped[1].misfits == {}


def test_reports_of_misfits_add_up() -> None:
    schema = Schema({"a": flag(), "b": category(["x", "y"])})
    one, two = (
        encode_columns(pa.table({"a": ["?", "yes"], "b": ["x", cell]}), schema, misfits="map")[1] for cell in "yz"
    )
    assert dict((one + two).misfits) == {"a": 2, "b": 1}


CELLS = st.one_of(
    st.none(), st.sampled_from(["a", "b", "c", "yes", "no", "NA", " a", "inf", "1e999"]), st.text(max_size=3),
    st.floats(allow_nan=True).map(str),
)  # fmt: skip
COLUMNS = st.sampled_from([
    number(-1, 1), number(0, 5, scale="unit", missing="high"), number(0, 9, transform="log1p", missing="middle"),
    category(["a"]), category(["a", "b"]), category(["a", "b", "c"], missing="c"), category(["b", "c"], missing="none"),
    flag(), flag(missing=True),
])  # fmt: skip


@settings(deadline=None)
@given(st.data())
def test_whatever_the_cells_are_every_bound_holds(data: st.DataObject) -> None:
    """Nothing is refused, and no row is longer than what the noise is sized for: as it is, and centred."""
    columns = {f"c{n}": data.draw(COLUMNS) for n in range(data.draw(st.integers(1, 4)))}
    rows = data.draw(st.integers(1, 5))
    cells = {name: data.draw(st.lists(CELLS, min_size=rows, max_size=rows)) for name in columns}
    source = pa.table({name: pa.array(column, pa.string()) for name, column in cells.items()})
    schema = Schema(columns)
    table = read_table(source, schema, id=None, misfits="map")
    assert (np.linalg.norm(table.matrix(), axis=1) <= schema.clip).all()
    for label in (None, *(name for name, column in columns.items() if len(columns) > 1 and column.kind != "category")):
        for norm in ("l2", "l1"):
            centred = Centred(schema, label, norm)
            found = centred.rows(table).matrix()
            assert (np.einsum("ij,ij->i", found, found) <= centred.clip**2 * (1 + 1e-12)).all()
            starts = np.cumsum([0, *(width for width, _ in centred.groups)])
            for (width, radius), start in zip(centred.groups, starts, strict=False):
                assert (np.abs(found[:, start : start + width]).sum(axis=1) <= float(radius) * (1 + 1e-12)).all()


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
    source = pa.table({"x": ["0.5"] * 3, "label": ["b", "z", ""]})
    table = read_table(source, schema, id=None, misfits="map")
    centred = Centred(schema, "label")
    assert centred.labels(table).tolist() == becomes
    assert (centred.rows(table).matrix()[:, 1:] + centred.middle[1:]).round(9).tolist() == becomes
    reordered = table.take_rows([2, 0, 1])
    assert centred.labels(reordered).tolist() == [becomes[n] for n in (2, 0, 1)]
