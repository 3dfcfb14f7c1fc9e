from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import ProtocolError
from colonnade.mpc import PRIMES, ResidueSystem
from colonnade.mpc.packing import pack, unpack

SYSTEM = ResidueSystem(PRIMES[:3])


@given(st.lists(st.integers(0, 40), min_size=1, max_size=3), st.integers(0, 2**31))
def test_unpacking_gives_back_what_was_packed(shape, seed):
    rng = np.random.default_rng(seed)
    residues = np.stack([rng.integers(-(p // 2), p // 2 + 1, shape).astype(float) for p in SYSTEM.primes])
    words = pack(residues, SYSTEM)
    assert words.nbytes == 3 * 12 * -(-int(np.prod(shape)) // 4)  # three bytes a residue, in fours
    assert np.array_equal(unpack(words, shape, SYSTEM, "bank"), residues)


@pytest.mark.parametrize("prime", PRIMES)
def test_the_extremes_fit(prime):
    system = ResidueSystem((prime,))
    residues = np.array([[-(prime // 2), prime // 2, 0, 1, -1]], dtype=float)
    assert np.array_equal(unpack(pack(residues, system), (5,), system, "bank"), residues)


@pytest.mark.parametrize(
    "words",
    [
        None,
        np.zeros((3, 3), dtype=np.int32),
        np.zeros((2, 3), dtype=np.uint32),
        np.zeros((3, 6), dtype=np.uint32),
        np.full((3, 3), PRIMES[2], dtype=np.uint32),
    ],
)
def test_what_is_not_packed_residues_is_refused(words):
    with pytest.raises(ProtocolError, match="bank sent"):
        unpack(words, (4,), SYSTEM, "bank")


def test_padding_must_be_empty():
    """Nothing travels that the receiver would not look at."""
    words = pack(np.zeros((3, 5)), SYSTEM)
    words[0, -1] |= np.uint32(1 << 8)
    with pytest.raises(ProtocolError, match="no residue"):
        unpack(words, (5,), SYSTEM, "bank")
