from __future__ import annotations

import flint
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from colonnade.errors import CapacityError, ShareError
from colonnade.mpc.residues import BLOCK_ROWS, FEW, PRIMES, ResidueSystem, centred, reduce
from colonnade.randomness import Stream
from tests.support.errors import raises

systems = st.integers(1, 6).map(lambda k: ResidueSystem(PRIMES[:k]))


def test_the_primes_are_prime_and_below_22_bits():
    assert all(flint.fmpz(p).is_prime() and p < 2**22 for p in PRIMES)
    assert list(PRIMES) == sorted(set(PRIMES), reverse=True)


@given(systems, st.data())
def test_split_then_join_is_the_identity(system, data):
    half = system.modulus // 2
    numbers = data.draw(st.lists(st.integers(-half, half), min_size=1, max_size=20))
    values = np.array(numbers, dtype=object)
    bound = max(abs(n) for n in numbers)
    joined = system.join(system.split(values), bound)
    assert joined.tolist() == numbers
    assert (joined.dtype == np.int64) == (bound < 2**63)


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=20))
def test_int64_values_survive(numbers):
    system = ResidueSystem.for_bound(2**62)
    assert system.join(system.split(np.array(numbers, dtype=np.int64)), 2**62).tolist() == numbers


@given(st.integers(-(2**51), 2**51), st.sampled_from(PRIMES))
def test_reduction_is_canonical_below_2_to_51(number, prime):
    value = np.array([float(number)])
    reduce(value, prime)
    assert int(value[0]) == centred(number, prime)


@given(st.integers(-(2**53 - 2**22), 2**53 - 2**22), st.sampled_from(PRIMES))
def test_two_reductions_are_canonical_up_to_2_to_53_less_p(number, prime):
    value = np.array([[float(number)]])
    ResidueSystem((prime,)).reduce(value, passes=2)
    assert int(value[0, 0]) == centred(number, prime)


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
    found = system.inners([(a, b), (a, c), (b, c)])
    for (left, right), product in zip([(a, b), (a, c), (b, c)], found, strict=True):
        assert np.array_equal(product, system.inner(left, right))
        for index, prime in enumerate(system.primes):
            exact = left[index].T.astype(int).astype(object) @ right[index].astype(int).astype(object)
            assert product[index].tolist() == [[centred(int(cell), prime) for cell in row] for row in exact]
    assert system.inners([]) == []


def test_products_with_no_columns_have_none():
    system = ResidueSystem(PRIMES[:2])
    left, none = np.ones((2, 3000, 40)), np.ones((2, 3000, 0))
    assert system.inner(left, none).shape == (2, 40, 0)
    assert [found.shape for found in system.inners([(left, none), (left, left)])] == [(2, 40, 0), (2, 40, 40)]


def test_uniform_residues_are_uniform(stream):
    system = ResidueSystem((11, PRIMES[0]))
    small, large = system.uniform((100_000,), stream)
    assert stats.chisquare(np.bincount(small.astype(int) + 5, minlength=11)).pvalue > 1e-3
    edges = np.linspace(-PRIMES[0] / 2, PRIMES[0] / 2, 65)
    assert stats.chisquare(np.histogram(large, edges)[0]).pvalue > 1e-3
    assert stats.chisquare(np.bincount(large.astype(int) % 16, minlength=16)).pvalue > 1e-3


def test_equal_seeds_give_equal_residues():
    system = ResidueSystem(PRIMES[:3])
    draws = [system.uniform((1000, 37), Stream(bytes(32))) for _ in range(2)]
    assert np.array_equal(*draws)


@pytest.mark.parametrize("primes", [2, 3, 4])
def test_a_value_that_no_honest_computation_gives_is_refused(primes):
    system = ResidueSystem(PRIMES[:primes])
    bound = 2**30
    fine = np.array([bound, -bound], dtype=object)
    assert system.join(system.split(fine), bound).tolist() == [bound, -bound]
    with raises(ShareError, "SH005"):
        system.join(system.split(np.array([0, 2**40], dtype=object)), bound)


@pytest.mark.parametrize("bits", [10, 21, 40, 43, 64, 200])
def test_for_bound_is_the_least_that_holds(bits):
    bound = 2**bits
    system = ResidueSystem.for_bound(bound)
    assert system.modulus > 2 * bound
    assert len(system.primes) == 1 or ResidueSystem(system.primes[:-1]).modulus <= 2 * bound


def test_what_cannot_fit_is_refused():
    with raises(CapacityError, "CA005"):
        ResidueSystem.for_bound(2**400)


def test_a_full_block_of_the_largest_products_stays_in_range():
    assert all(BLOCK_ROWS * (p // 2) ** 2 <= 2**53 - p for p in PRIMES)
    assert (BLOCK_ROWS + 1) * (PRIMES[0] // 2) ** 2 > 2**53 - PRIMES[0]


@pytest.mark.parametrize("count", [5, FEW])
def test_residues_of_few_and_of_many_integers_are_centred(count):
    system = ResidueSystem(PRIMES[:3])
    ends = np.array([-(2**63), 2**63 - 1, 0, -1, PRIMES[1] // 2 + 1], dtype=np.int64)
    values = np.resize(ends, (count, 1))
    residues = system.split(values)
    assert residues.shape == (3, count, 1)
    for prime, row in zip(system.primes, residues, strict=True):
        assert row[:5, 0].tolist() == [centred(int(value), prime) for value in ends]
        assert np.array_equal(row, np.resize(row[:5], (count, 1)))


@pytest.mark.parametrize("count", [1, 500])
@pytest.mark.parametrize("primes", [(11,), (13, 11), (31, 17, 11)], ids=str)
def test_few_uniform_residues_are_those_of_the_words_that_are_small_enough(primes, count):
    """Every word that is no residue of its prime is drawn again, also one that equals it, and no other is."""
    system, bits = ResidueSystem(primes), (1 << max(primes).bit_length()) - 1
    seen = [set() for _ in primes]
    for key in range(1 if count > 1 else 200):
        found, stream = system.uniform((count,), Stream(bytes([key] * 32))), Stream(bytes([key] * 32))
        words = [[int(word) & bits for word in row] for row in stream.uint32((len(primes), count))]
        while again := [(k, i) for k, row in enumerate(words) for i, word in enumerate(row) if word >= primes[k]]:
            for (k, i), word in zip(again, stream.uint32(len(again)), strict=True):
                words[k][i] = int(word) & bits
        for prime, row, drawn, values in zip(primes, found, words, seen, strict=True):
            assert row.tolist() == [word - prime // 2 for word in drawn]
            values.update(drawn)
    assert seen == [set(range(prime)) for prime in primes]


def test_few_uniform_residues_of_no_numbers():
    assert ResidueSystem(PRIMES[:3]).uniform((0, 2), Stream(bytes(32))).shape == (3, 0, 2)
