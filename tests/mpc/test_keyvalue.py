from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from colonnade.errors import ProtocolError
from colonnade.mpc import keyvalue
from colonnade.mpc.keyvalue import Store, cells_for, stored
from colonnade.randomness import Stream


@settings(max_examples=60, deadline=None)
@given(count=st.integers(0, 3000))
def test_every_key_gets_its_value(count):
    stream = Stream.fresh()
    keys, values = stream.uint64((count, 2)), stream.uint64((count, 2))
    store = stored(keys, values, stream)
    np.testing.assert_array_equal(store[keys], values)
    assert len(store.cells) == cells_for(count)
    assert not (store[stream.uint64((50, 2))] == 0).all(axis=1).any()


def test_keys_that_are_never_alone_in_a_cell_are_solved_for(monkeypatch):
    monkeypatch.setattr(keyvalue, "_SLACK", 1.05)
    monkeypatch.setattr(keyvalue, "_SPARE", 0)
    stream = Stream.fresh()
    keys, values = stream.uint64((500, 2)), stream.uint64((500, 2))
    store = stored(keys, values, stream)
    _, core = keyvalue._peel(keyvalue._three(keys, store.seed, len(store.cells)), len(store.cells))
    assert len(core) > 100, "this is about the core"
    np.testing.assert_array_equal(store[keys], values)


def test_the_table_does_not_tell_which_keys_it_holds(stream):
    """With random values all cells are uniform bits, and so are the answers for keys that are not there."""
    keys, others = stream.uint64((2000, 2)), stream.uint64((2000, 2))
    store = stored(keys, stream.uint64((2000, 2)), stream)
    for words in (store.cells, store[others]):
        bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8))
        assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(bits.size)
        octets = np.bincount(np.ascontiguousarray(words).view(np.uint8).ravel(), minlength=256)
        assert stats.chisquare(octets).pvalue > 1e-9


def test_the_seed_is_drawn_before_the_keys_are_looked_at():
    """A seed that was chosen because it suits the keys would tell about them."""
    keys = Stream(bytes(32)).uint64((100, 2))
    once = stored(keys, keys, Stream(b"s" * 32))
    again = stored(keys[::-1] + np.uint64(1), keys, Stream(b"s" * 32))
    assert once.seed == again.seed


def test_equal_keys_are_refused():
    stream = Stream.fresh()
    keys = stream.uint64((10, 2))
    keys[3] = keys[7]
    with pytest.raises(ValueError, match="different and random"):
        stored(keys, stream.uint64((10, 2)), stream)


@pytest.mark.parametrize("shape", [(64, 2), (65, 2), (67, 3), (67,)])
def test_a_table_of_another_shape_is_refused(shape):
    with pytest.raises(ProtocolError):
        Store(1, np.zeros(shape, dtype=np.uint64))
