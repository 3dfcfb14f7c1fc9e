from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from colonnade.errors import DataError
from colonnade.tables import Key, KeyPlan, Places, Schema, Spread, Table, flag, number, read_table
from colonnade.tables.centred import Centred
from tests.support.refusals import refused

SCHEMA = Schema({"age": number(0, 100), "smoker": flag()})
TOKEN = bytes(16)


def table(rows: int = 6, *, keys: KeyPlan | None = None) -> Table:
    arrow = pa.table(
        {
            "person_id": [f"p{row}" for row in range(rows)],
            "age": [10 * row for row in range(rows)],
            "smoker": [row % 2 for row in range(rows)],
        }
    )
    return read_table(arrow, SCHEMA, keys=keys)


class Plain:
    """Rows of a matrix; it notes how many it handed out."""

    def __init__(self, matrix: NDArray[np.float64]) -> None:
        self.matrix = matrix
        self.handed = 0

    def blocks(self, rows: int, /) -> Iterator[NDArray[np.float64]]:
        for start in range(0, len(self.matrix), rows):
            block = self.matrix[start : start + rows]
            self.handed += len(block)
            yield block


def test_an_aligned_table() -> None:
    whole = table(keys=KeyPlan((Key("person_id"),)))
    found = whole.aligned([4, 0, 2], ["z", "y", "x"])
    assert (found.rows, found.ids, found.own_ids) == (3, ["z", "y", "x"], ["p4", "p0", "p2"])
    assert found.keys is None
    assert found.places is None
    assert found.sorted_by_id().ids == ["z", "y", "x"]
    np.testing.assert_array_equal(found.matrix(), whole.matrix()[[4, 0, 2]])
    for view in (found.select(["age"]), found.without(["smoker"]), found.unclipped()):
        assert (view.ids, view.own_ids) == (found.ids, found.own_ids)
        assert view.sorted_by_id() is view
    some = found.take(["x", "z"])
    assert (some.ids, some.own_ids) == (["x", "z"], ["p2", "p4"])
    assert found.take_rows([-1]).own_ids == ["p2"]
    assert found.take_rows([-1]).ids == ["x"]
    assert whole.take_rows([5, 3, 1]).aligned([2, 0], ["a", "b"]).own_ids == ["p1", "p5"]
    refused(DataError, ("DA268", "1"), found.take, ["p0"])
    refused(ValueError, ("VA250", "3", "2"), whole.aligned, [4, 0, 2], ["z", "y"])
    refused(IndexError, (), found.aligned, [3], ["z"])


def test_a_placed_table() -> None:
    found = table().placed([5, 1, 2], [0, 3, 7], 9, TOKEN)
    assert (found.places.slots.tolist(), found.places.size, found.places.token) == ([0, 3, 7], 9, TOKEN)
    assert (found.own_ids, len(found.places)) == (["p5", "p1", "p2"], 3)
    for view in (found.select(["age"]), found.without(["smoker"]), found.unclipped(), found.sorted_by_id()):
        assert view.places is found.places
        assert view.own_ids == found.own_ids
    rows = Centred(SCHEMA).rows(found)
    assert rows.places is found.places
    assert Centred(SCHEMA).rows(table()).places is None
    fewer = found.take_rows([0, 2])
    assert (fewer.places.slots.tolist(), fewer.own_ids) == ([0, 7], ["p5", "p2"])
    refused(ValueError, "VA238", found.take_rows, [2, 0])
    refused(ValueError, ("VA251", "1", "2"), table().placed, [0], [1, 2], 3, TOKEN)


@pytest.mark.parametrize(
    ("slots", "said"), [([1, 1], "VA238"), ([2, 1], "VA238"), ([-1, 1], "VA239"), ([1, 5], "VA239")]
)
def test_wrong_places(slots: list[int], said: str) -> None:
    refused(ValueError, said, Places, np.array(slots), 5, TOKEN)


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_rows_are_laid_into_their_slots(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 40))
    slots = np.array(sorted(data.draw(st.sets(st.integers(0, size - 1)))), dtype=np.int64)
    step = data.draw(st.integers(1, 45))
    inner = Plain(np.arange(3.0 * len(slots)).reshape(-1, 3) + 1)
    spread = Spread(inner, Places(slots, size, TOKEN), 3)
    blocks = list(spread.blocks(step))
    assert len(spread) == size
    assert [len(block) for block, _ in blocks] == [min(step, size - start) for start in range(0, size, step)]
    wanted = np.zeros((size, 3))
    wanted[slots] = inner.matrix
    np.testing.assert_array_equal(np.concatenate([block for block, _ in blocks]), wanted)
    np.testing.assert_array_equal(np.concatenate([present for _, present in blocks]), np.isin(np.arange(size), slots))


def test_rows_are_not_drawn_before_they_are_needed() -> None:
    inner = Plain(np.ones((100, 2)))
    places = Places(np.arange(0, 300, 3), 300, TOKEN)
    for index, _ in enumerate(Spread(inner, places, 2).blocks(10)):
        used = np.searchsorted(places.slots, 10 * (index + 1))
        assert used <= inner.handed < used + 20


def test_spread_tables_and_wrong_counts() -> None:
    found = table().placed([5, 1, 2], [1, 3, 4], 6, TOKEN)
    rows = Centred(SCHEMA).rows(found)
    ((block, present),) = Spread(rows, found.places, rows.matrix().shape[1]).blocks(100)
    assert present.tolist() == [0, 1, 0, 1, 1, 0]
    np.testing.assert_array_equal(block[present == 1], rows.matrix())
    assert not block[present == 0].any()
    few, many = Plain(np.ones((2, 1))), Plain(np.ones((4, 1)))
    refused(ValueError, "VA242", list, Spread(few, found.places, 1).blocks(2))
    refused(ValueError, "VA241", list, Spread(many, found.places, 1).blocks(2))
    refused(ValueError, "VA242", list, Spread(Plain(np.ones((0, 1))), found.places, 1).blocks(2))
    refused(ValueError, "VA240", list, Spread(few, found.places, 1).blocks(0))
