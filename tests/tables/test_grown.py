"""Columns that are put together batch by batch are what Arrow makes of all batches at once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.tables.sources import grown
from colonnade.tables.sources.grown import together

TEXTS = st.lists(st.one_of(st.none(), st.text(st.sampled_from("aé😀 "), max_size=4)), max_size=8)
KINDS = [pa.string(), pa.large_string()]


@settings(max_examples=200)
@given(parts=st.lists(TEXTS, min_size=1, max_size=5), kind=st.sampled_from(KINDS), cut=st.integers(0, 3))
def test_texts_of_batches_that_begin_anywhere(parts: list[list[str | None]], kind: Any, cut: int) -> None:
    whole = [
        pa.record_batch({"t": pa.array(part, kind), "n": pa.array(range(len(part)), pa.int64())}) for part in parts
    ]
    batches = [batch.slice(cut) for batch in whole]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(grown, "_LEAST", 1)
        found = together(iter(batches), ["t", "n"])
    found.validate(full=True)
    assert found["t"].type == pa.large_string()
    assert found.equals(pa.Table.from_batches(batches).cast(pa.schema([("t", pa.large_string()), ("n", pa.int64())])))
    assert [column.num_chunks for column in found.columns] == [1, 1]


def test_views_dictionaries_and_no_rows() -> None:
    views = pa.record_batch({"t": pa.array(["a long text that is not kept in place", None], pa.string_view())})
    assert together(iter([views]), ["t"])["t"].to_pylist() == views["t"].to_pylist()
    coded = [pa.record_batch({"t": pa.array([text]).dictionary_encode()}) for text in ("a", "b")]
    assert together(iter(coded), ["t"])["t"].to_pylist() == ["a", "b"]
    none = together(iter([]), ["t", "n"])
    assert (none.num_rows, none.column_names, none["n"].type) == (0, ["t", "n"], pa.large_string())


def test_a_column_is_there_once() -> None:
    """Of forty batches, Arrow holds one at a time: the rows so far are in one place, outside its memory."""
    most, before = 0, pa.total_allocated_bytes()

    def batches() -> Any:
        nonlocal most
        for start in range(0, 400_000, 10_000):
            most = max(most, pa.total_allocated_bytes() - before)
            yield pa.record_batch({"t": pa.array([f"p{row:07d}" for row in range(start, start + 10_000)])})

    found = together(batches(), ["t"])
    assert found["t"][399_999].as_py() == "p0399999"
    assert found.num_rows == 400_000
    assert most < 4 * 12 * 10_000
