"""Columns of schemas for hypothesis, and cells for them: some that fit, and some that mean nothing."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from colonnade.tables import Column, Number, category, flag, number

WORDS = st.text("abcxyz é=", min_size=1, max_size=3)


@st.composite
def columns(draw: st.DrawFn, words: st.SearchStrategy[str] = WORDS, reach: int = 10**6) -> Column:
    """Any column; bounds of numbers lie within the reach."""
    kind = draw(st.sampled_from(["number", "whole", "category", "flag"]))
    if kind == "flag":
        return flag(missing=draw(st.sampled_from(["refuse", True, False])))
    if kind == "category":
        values = draw(st.lists(words, min_size=1, max_size=5, unique=True))
        return category(values, missing=draw(st.sampled_from(["refuse", "none", values[0]])))
    transform = draw(st.sampled_from(["none", "log1p"]))
    least, most = (0, 10**6) if transform == "log1p" else (-reach, reach)
    if kind == "whole":
        low = draw(st.integers(least, most))
        high = low + draw(st.integers(1, 200) | st.integers(1, reach))
    else:
        low = draw(st.floats(least, most))
        high = low + draw(st.floats(1e-2, 10) | st.floats(1, reach))
    missing = draw(st.sampled_from(["refuse", "none", "low", "high", low if kind == "whole" else "middle"]))
    scale = draw(st.sampled_from(["signed", "unit"]))
    return number(low, high, whole=kind == "whole", scale=scale, transform=transform, missing=missing)


def fitting(column: Column) -> st.SearchStrategy[Any]:
    """Cells that fit a column: also beyond its bounds, and missing where the schema has a rule for that."""
    cells: st.SearchStrategy[Any] = st.booleans()
    if isinstance(column, Number):
        cells = st.floats(column.low - 10, column.high + 10)
    elif column.kind == "category":
        cells = st.sampled_from(column.values)
    return cells if column.missing == "refuse" else cells | st.none()


NONSENSE = st.one_of(
    st.none(),
    st.sampled_from(["a", "b", "c", "yes", "no", "NA", " a", "inf", "1e999"]),
    st.text(max_size=3),
    st.floats(allow_nan=True).map(str),
)
"""Texts that most columns have no place for."""
