"""Residues: exact at the largest magnitudes, uniform where they are drawn, and packed into three bytes each."""

from __future__ import annotations

import flint
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from colonnade.errors import CapacityError, ProtocolError, ShareError
from colonnade.message_schema import MessageSchema
from colonnade.mpc.messages import SMALL, pack, packed_form, unpack
from colonnade.mpc.residues import BLOCK_ROWS, CHUNK, FEW, PRIMES, ResidueSystem, centred, reduce
from colonnade.randomness import Stream
from tests.support.errors import refused

systems = st.integers(1, 6).map(lambda k: ResidueSystem(PRIMES[:k]))


def test_the_primes_are_prime_and_below_22_bits():
    assert all(flint.fmpz(p).is_prime() and p < 2**22 for p in PRIMES)
    assert list(PRIMES) == sorted(set(PRIMES), reverse=True)


@settings(max_examples=50)
@given(systems, st.data())
def test_split_then_join_is_the_identity_and_a_value_that_no_honest_computation_gives_is_refused(system, data):
    half = system.modulus // 2
    numbers = data.draw(st.lists(st.integers(-half, half), min_size=1, max_size=20))
    values = np.array(numbers, dtype=object)
    bound = max(abs(n) for n in numbers)
    joined = system.to_integers(system.to_residues(values), bound)
    assert joined.tolist() == numbers
    assert (joined.dtype == np.int64) == (bound < 2**63)
    if bound:
        refused(ShareError, "SH005", system.to_integers, system.to_residues(values), bound // 2)
        cut = system.to_integers(system.to_residues(values), bound // 2, cut=True).tolist()
        assert cut == [max(-(bound // 2), min(number, bound // 2)) for number in numbers]


@given(st.integers(1, 5000), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**31))
def test_inner_products_are_exact_at_the_worst_magnitudes(rows, a, b, seed):
    system = ResidueSystem(PRIMES[:2])
    rng = np.random.default_rng(seed)
    left, right = (
        np.stack([rng.choice([-(p // 2), p // 2, p // 2 - 1], (rows, w)).astype(float) for p in system.primes])
        for w in (a, b)
    )
    got = system.inner(left, right)
    for index, prime in enumerate(system.primes):
        exact = flint.nmod_mat(a, rows, left[index].T.astype(int).ravel().tolist(), prime) * flint.nmod_mat(
            rows, b, right[index].astype(int).ravel().tolist(), prime
        )
        want = [[centred(int(exact[i, j]), prime) for j in range(b)] for i in range(a)]
        assert got[index].astype(int).tolist() == want


@pytest.mark.parametrize(("rows", "columns"), [(BLOCK_ROWS, 17), (BLOCK_ROWS + 1, 17), (3 * BLOCK_ROWS - 1, 6), (9, 4)])
def test_products_of_several_pairs_are_exact_at_the_worst_magnitudes(rows, columns):
    system = ResidueSystem(PRIMES[:2])
    rng = np.random.default_rng(rows)

    def largest(width):
        signs = rng.choice([-1, 1], (2, rows, width))
        signs[:, :, 0] = 1  # a sum of equal signs is as large as a block can give
        return signs * np.array([p // 2 for p in system.primes], dtype=float)[:, None, None]

    a, b, c = largest(columns), largest(columns + 1), largest(2)
    found = system.inner_products([(a, b), (a, c), (b, c)])
    for (left, right), product in zip([(a, b), (a, c), (b, c)], found, strict=True):
        assert np.array_equal(product, system.inner(left, right))


@pytest.mark.parametrize("count", [5, FEW])
def test_residues_of_few_and_of_many_integers_are_centred(count):
    system = ResidueSystem(PRIMES[:3])
    ends = np.array([-(2**63), 2**63 - 1, 0, -1, PRIMES[1] // 2 + 1], dtype=np.int64)
    values = np.resize(ends, (count, 1))
    residues = system.to_residues(values)
    assert residues.shape == (3, count, 1)
    for prime, row in zip(system.primes, residues, strict=True):
        assert row[:5, 0].tolist() == [centred(int(value), prime) for value in ends]
        assert np.array_equal(row, np.resize(row[:5], (count, 1)))


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
        MessageSchema("share", words=packed_form((count,), 3)).check({"words": words}, "bank")
        unpack(words, (count,), SYSTEM, "bank")

    refused(ProtocolError, "MS007|MS008|MS049", "bank", receive)


@given(st.integers(-(2**53 - 2**22), 2**53 - 2**22), st.sampled_from(PRIMES))
def test_reductions_are_canonical_once_below_2_to_51_and_twice_up_to_2_to_53_less_p(number, prime):
    value, again = np.array([float(number >> 2)]), np.array([[float(number)]])
    reduce(value, prime)
    ResidueSystem((prime,)).reduce(again, passes=2)
    assert int(value[0]) == centred(number >> 2, prime)
    assert int(again[0, 0]) == centred(number, prime)


def test_products_with_no_columns_have_none_and_a_full_block_of_the_largest_products_stays_in_range():
    system = ResidueSystem(PRIMES[:2])
    left, none = np.ones((2, 3000, 40)), np.ones((2, 3000, 0))
    assert system.inner(left, none).shape == (2, 40, 0)
    assert [found.shape for found in system.inner_products([(left, none), (left, left)])] == [(2, 40, 0), (2, 40, 40)]
    assert all(BLOCK_ROWS * (p // 2) ** 2 <= 2**53 - p for p in PRIMES)
    assert (BLOCK_ROWS + 1) * (PRIMES[0] // 2) ** 2 > 2**53 - PRIMES[0]


def test_uniform_residues_are_uniform_and_equal_for_equal_seeds(stream):
    small, large = ResidueSystem((11, PRIMES[0])).uniform((100_000,), stream)
    for counts in (
        np.bincount(small.astype(int) + 5, minlength=11),
        np.histogram(large, np.linspace(-PRIMES[0] / 2, PRIMES[0] / 2, 65))[0],
        np.bincount(large.astype(int) % 16, minlength=16),
    ):
        assert stats.chisquare(counts).pvalue > 1e-9
    draws = [ResidueSystem(PRIMES[:3]).uniform((1000, 37), Stream(bytes(32))) for _ in range(2)]
    assert np.array_equal(*draws)


@pytest.mark.parametrize("bits", [10, 21, 40, 43, 64, 200])
def test_for_bound_is_the_least_that_holds_and_what_cannot_fit_is_refused(bits):
    bound = 2**bits
    system = ResidueSystem.for_bound(bound)
    assert system.modulus > 2 * bound
    assert len(system.primes) == 1 or ResidueSystem(system.primes[:-1]).modulus <= 2 * bound
    refused(CapacityError, "CA005", ResidueSystem.for_bound, bound << 400)


@pytest.mark.parametrize(
    ("count", "row", "place", "extra"),
    [
        *((count, 0, -1, 1 << 8) for count in (20001, 4 * CHUNK + 1)),
        *((4 * (CHUNK + 2), 2, place, 0xFFFFFF) for place in (0, CHUNK - 1, CHUNK, CHUNK + 1)),
    ],
)
def test_padding_is_empty_and_every_chunk_is_checked(count, row, place, extra):
    """Nothing travels that the receiver would not look at."""
    words = pack(np.zeros((3, count)), SYSTEM)
    words[row, place] |= np.uint32(extra)
    refused(ProtocolError, "MS007", unpack, words, (count,), SYSTEM, "bank")
