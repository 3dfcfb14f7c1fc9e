from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from colonnade.errors import ProtocolError
from colonnade.mpc import PRIMES, ResidueSystem
from colonnade.mpc.packing import SMALL, pack, packed, unpack
from colonnade.mpc.residues import CHUNK
from colonnade.received import Message
from tests.support.errors import raises

SYSTEM = ResidueSystem(PRIMES[:3])


@given(st.lists(st.integers(0, 40), min_size=1, max_size=3), st.integers(0, 2**31))
def test_unpacking_gives_back_what_was_packed(shape, seed):
    rng = np.random.default_rng(seed)
    residues = np.stack([rng.integers(-(p // 2), p // 2 + 1, shape).astype(float) for p in SYSTEM.primes])
    words = pack(residues, SYSTEM)
    count = int(np.prod(shape))
    # Three bytes a residue, in fours; a few of them travel as they are.
    assert words.nbytes == (12 * count if 3 * count <= SMALL else 3 * 12 * -(-count // 4))
    assert np.array_equal(unpack(words, shape, SYSTEM, "bank"), residues)


@pytest.mark.parametrize("count", [5, 20000, 4 * CHUNK + 5])
@pytest.mark.parametrize("prime", PRIMES)
def test_the_extremes_fit(prime, count):
    system = ResidueSystem((prime,))
    residues = np.resize(np.array([-(prime // 2), prime // 2, 0, 1, -1], dtype=float), (1, count))
    assert np.array_equal(unpack(pack(residues, system), (count,), system, "bank"), residues)


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (None, 4),
        (np.zeros((3, 4), dtype=np.uint32), 4),
        (np.zeros((2, 4), dtype=np.int32), 4),
        (np.zeros((3, 5), dtype=np.int32), 4),
        (np.full((3, 4), PRIMES[2] // 2 + 1, dtype=np.int32), 4),
        (np.full((3, 4), -(2**31), dtype=np.int32), 4),
        (np.zeros((3, 3 * 5000), dtype=np.int32), 20000),
        (np.zeros((2, 3 * 5000), dtype=np.uint32), 20000),
        (np.zeros((3, 3 * 5001), dtype=np.uint32), 20000),
        (np.full((3, 3 * 5000), PRIMES[2], dtype=np.uint32), 20000),
    ],
)
def test_what_is_not_packed_residues_is_refused(words, count):
    def receive():
        Message("share", words=packed((count,), 3)).check({"words": words}, "bank")
        unpack(words, (count,), SYSTEM, "bank")

    with raises(ProtocolError, "MS007|MS008|MS049", "bank"):
        receive()


@pytest.mark.parametrize("count", [20001, 4 * CHUNK + 1])
def test_padding_must_be_empty(count):
    """Nothing travels that the receiver would not look at."""
    words = pack(np.zeros((3, count)), SYSTEM)
    words[0, -1] |= np.uint32(1 << 8)
    with raises(ProtocolError, "MS007"):
        unpack(words, (count,), SYSTEM, "bank")


@pytest.mark.parametrize("place", [0, CHUNK - 1, CHUNK, CHUNK + 1])
def test_every_chunk_is_checked(place):
    words = pack(np.zeros((3, 4 * (CHUNK + 2))), SYSTEM)
    words[2, place] |= np.uint32(0xFFFFFF)
    with raises(ProtocolError, "MS007"):
        unpack(words, (4 * (CHUNK + 2),), SYSTEM, "bank")
