from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from colonnade.errors import ProtocolError
from colonnade.mpc import keyvalue
from colonnade.mpc.digests import digests
from colonnade.mpc.keyvalue import Store, cells_for, stored
from colonnade.mpc.subsets import Subsets
from colonnade.randomness import Stream
from tests.support.errors import refused


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
    """With random values all cells are uniform bits, and so are the answers for keys that are not there.

    The seed is drawn before keys are looked at: one that was chosen because it suits the keys would tell about them.
    """
    keys, others = stream.uint64((2000, 2)), stream.uint64((2000, 2))
    store = stored(keys, stream.uint64((2000, 2)), stream)
    for words in (store.cells, store[others]):
        octets = np.ascontiguousarray(words).view(np.uint8).ravel()
        ones = np.unpackbits(octets)
        assert abs(ones.mean() - 0.5) < 5 * 0.5 / np.sqrt(ones.size)
        assert stats.chisquare(np.bincount(octets, minlength=256)).pvalue > 1e-9
    seeds = {stored(some, keys[:100], Stream(b"s" * 32)).seed for some in (keys[:100], others[:100])}
    assert len(seeds) == 1


@pytest.mark.parametrize("shape", [(64, 2), (65, 2), (67, 3), (67,)])
def test_a_table_of_another_shape_and_equal_keys_are_refused(shape, stream):
    with pytest.raises(ProtocolError):
        Store(1, np.zeros(shape, dtype=np.uint64))
    keys = np.repeat(stream.uint64((5, 2)), 2, axis=0)
    refused(ValueError, "VA102", stored, keys, keys, stream)


def test_a_layer_of_keys_is_alone_in_its_cells_and_no_key_is_removed_twice(stream):
    keys = stream.uint64((3000, 2))
    size = cells_for(len(keys))
    places = keyvalue._three(keys, 7, size)
    layers, core = keyvalue._peel(places, size)
    left = np.ones(len(keys), dtype=bool)
    for layer, own in layers:
        assert len(np.unique(layer)) == len(layer) == len(np.unique(own))
        held = np.bincount(places[left].ravel(), minlength=size)
        assert (held[own] == 1).all()
        assert (places[layer] == own[:, None]).any(axis=1).all()
        left[layer] = False
    assert np.array_equal(np.flatnonzero(left), core)
    assert not len(core)


def test_sums_of_chosen_rows(stream):
    rows, chosen = stream.uint64((64, 3)), stream.uint64(5000)
    bits = (chosen[:, None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)).astype(bool)
    expected = np.array([np.bitwise_xor.reduce(rows[one], axis=0) for one in bits[-50:]])
    np.testing.assert_array_equal(Subsets(rows)(chosen)[-50:], expected)
    assert Subsets(rows)(chosen[:0]).shape == (0, 3)


@pytest.mark.parametrize("size", [16, 32])
def test_digests_that_begin_alike_are_those_of_a_keyed_hash(size):
    pieces = [b"", b"one", bytes(300)]
    found = digests(hashlib.blake2b(key=b"secret", digest_size=size), pieces)
    expected = [hashlib.blake2b(piece, key=b"secret", digest_size=size).digest() for piece in pieces]
    assert [row.astype("<u8").tobytes() for row in found] == expected
    assert digests(hashlib.blake2b(digest_size=size), []).shape == (0, size // 8)
