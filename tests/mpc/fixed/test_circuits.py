from __future__ import annotations

from math import ceil, log2

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from scipy import stats

from colonnade.mpc.fixed import circuits
from colonnade.mpc.fixed.binary import slice_bits, words_for

from .bits import join_bits, random_bits

COMMITTEES = [(3, 1), (4, 1), (5, 2), (7, 3)]
ON_DIFFERENCES = ("below", "top_bit_of_difference", "bits_of_difference", "lengths")


def share(hand, values, bits):
    """Shares of known numbers: random bits, opened, and flipped to what they should be."""
    drawn = random_bits(hand, bits, len(values))
    return hand.flip(drawn, hand.open(drawn) ^ slice_bits(values, bits))


def differences(seats, size, threshold, bits, public, secret):
    """What all circuits say of public - secret; every seat must say the same."""

    def program(hand):
        shared, words = share(hand, secret, bits), slice_bits(public, bits)
        results = [getattr(circuits, name)(hand, words, shared) for name in ON_DIFFERENCES]
        return [join_bits(hand.open(result), len(public)) for result in results]

    first, *others = seats(size, threshold, program).values()
    assert all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))
    return dict(zip(ON_DIFFERENCES, first, strict=True))


def check(found, bits, public, secret):
    rest = [(int(p) - int(s)) % 2**bits for p, s in zip(public, secret, strict=True)]
    assert found["below"].tolist() == [int(p < s) for p, s in zip(public, secret, strict=True)]
    assert found["top_bit_of_difference"].tolist() == [x >> bits - 1 for x in rest]
    assert found["bits_of_difference"].tolist() == rest
    assert found["lengths"].tolist() == [sum((x < 2**j) << j for j in range(bits)) for x in rest]


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6])
def test_every_pair_of_small_numbers(seats, size, threshold, bits):
    numbers = np.arange(2**bits, dtype=np.uint64)
    public, secret = np.repeat(numbers, 2**bits), np.tile(numbers, 2**bits)
    check(differences(seats, size, threshold, bits, public, secret), bits, public, secret)


wide = st.integers(1, 62).flatmap(lambda bits: st.tuples(st.just(bits), st.lists(near(bits), min_size=1, max_size=70)))


def near(bits):
    """Two numbers, often a power of two or a little more or less apart, also across the wrap."""
    anything = st.integers(0, 2**bits - 1)
    apart = st.builds(
        lambda s, power, more: ((s + (1 << power % bits) + more) % 2**bits, s), anything, anything, st.integers(-2, 2)
    )
    return st.one_of(apart, st.tuples(anything, anything))


@settings(max_examples=30, deadline=None)
@given(wide, st.sampled_from([(3, 1), (3, 1), (4, 1), (5, 2)]))
@example((62, [(0, 0), (0, 2**62 - 1), (2**62 - 1, 0), (2**61, 1), (0, 1), (1, 0)]), (3, 1))
def test_wide_numbers_by_chance(seats, case, committee):
    bits, pairs = case
    public, secret = np.array(pairs, dtype=np.uint64).T
    check(differences(seats, *committee, bits, public, secret), bits, public, secret)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 62), st.integers(1, 11), st.integers(1, 70), st.booleans(), st.integers(0, 2**31))
def test_sums_are_those_of_the_integers(seats, bits, terms, count, fast, seed):
    numbers = np.random.default_rng(seed).integers(0, 2**bits, (terms, count), dtype=np.uint64)

    def program(hand):
        shared = [share(hand, row, bits) for row in numbers]
        return join_bits(hand.open(circuits.add(hand, shared, fast=fast)), count)

    expected = [sum(map(int, column)) % 2**bits for column in numbers.T]
    for found in seats(3, 1, program).values():
        assert found.tolist() == expected


@pytest.mark.parametrize(("size", "threshold", "terms"), [(5, 2, 10), (7, 3, 35)])
def test_sums_of_what_groups_know(seats, size, threshold, terms):
    """A number for each group of seats that shares a key: together one that nobody knows."""
    bits, count = 7, 70

    def program(hand):
        drawn = [stream.uint64(count) for _, stream in hand.common.streams]
        shared = hand.group_bits([slice_bits(values, bits) for values in drawn], count)
        assert len(shared) == terms
        total = circuits.add(hand, shared, fast=True)
        return {group: values for (group, _), values in zip(hand.common.streams, drawn, strict=True)}, hand.open(total)

    results = seats(size, threshold, program).values()
    known = {group: values for held, _ in results for group, values in held.items()}
    assert len(known) == terms
    expected = sum(known.values()) & np.uint64(2**bits - 1)
    assert all(np.array_equal(join_bits(opened, count), expected) for _, opened in results)


def cost(seats, program, count=64):
    """Rounds and ANDs, of three seats: each round is one message of each, with two words for each 64 ANDs."""

    def run(hand):
        for link in hand.links.values():
            link.sent.clear()
        program(hand)
        words = [message["words"] for link in hand.links.values() for message in link.sent]
        assert all(array.shape[0] == 2 and array.shape[2] == words_for(count) for array in words)
        return len(words), sum(array.shape[1] for array in words)

    found = set(seats(3, 1, run).values())
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize("bits", [*range(1, 18), 24, 31, 32, 33, 62])
def test_rounds_are_as_documented(seats, bits):
    public = np.zeros((bits, 1), dtype=np.uint64)
    depth = ceil(log2(bits))
    less = ceil(log2(bits - 1)) if bits > 1 else 0
    expected = {"below": depth, "top_bit_of_difference": less, "bits_of_difference": less, "lengths": depth}
    for name, rounds in expected.items():
        circuit = getattr(circuits, name)
        assert (
            cost(seats, lambda hand, circuit=circuit: circuit(hand, public, random_bits(hand, bits, 64)))[0] == rounds
        )
    for fast, rounds in ((False, bits - 1), (True, 1 + less if bits > 1 else 0)):
        found = cost(
            seats,
            lambda hand, fast=fast: circuits.add(hand, [random_bits(hand, bits, 64)] * 2, fast=fast),
        )
        assert found[0] == rounds


@pytest.mark.parametrize(
    ("name", "ands"),
    [("below", (30, 42)), ("bits_of_difference", (64, 106)), ("lengths", (212, 320))],
)
def test_ands_are_as_documented(seats, name, ands):
    circuit = getattr(circuits, name)
    for bits, count in zip((24, 32), ands, strict=True):
        public = np.zeros((bits, 1), dtype=np.uint64)
        assert cost(seats, lambda hand, b=bits, p=public: circuit(hand, p, random_bits(hand, b, 64)))[1] == count
        assert str(count) in circuit.__doc__


def test_a_sum_costs_what_its_docstring_says(seats):
    def sums(terms, bits, fast):
        return cost(seats, lambda hand: circuits.add(hand, [random_bits(hand, bits, 64)] * terms, fast=fast))

    assert [sums(terms, 2, False)[0] - 1 for terms in (3, 4, 10, 35)] == [1, 2, 5, 8]
    assert sums(2, 24, True)[1] == 97
    assert sums(2, 32, True)[1] == 151
    assert sums(2, 32, False) == (31, 31)
    assert sums(3, 32, False) == (32, 62)


def test_numbers_do_not_meet(seats):
    """What pads the words, and every other number, leaves the result alone."""
    bits, count = 9, 100
    public = np.arange(count, dtype=np.uint64)
    words, filled = slice_bits(public, bits), slice_bits(np.arange(128, dtype=np.uint64), bits)

    def program(hand):
        shared = random_bits(hand, bits, count)
        results = [hand.open(circuits.lengths(hand, p, shared)) for p in (words, filled)]
        return np.array_equal(*results) and not (results[0][:, -1] >> np.uint64(36)).any()

    assert all(seats(3, 1, program).values())


def elements(planes):
    """Elements of GF(4) as small numbers."""
    low, high = (np.unpackbits(np.ascontiguousarray(plane).view(np.uint8)).astype(np.int64) for plane in planes)
    return low + 2 * high


@pytest.mark.parametrize("name", ON_DIFFERENCES)
def test_what_a_seat_is_told_does_not_depend_on_the_secret(seats, name):
    """Two secrets, and all that any seat receives, row by row beside its own shares of two of the bits."""
    bits, count = 4, 1 << 15

    def told(value):
        def program(hand):
            shared = share(hand, np.full(count, value, dtype=np.uint64), bits)
            for link in hand.links.values():
                link.sent.clear()
            getattr(circuits, name)(hand, slice_bits(np.full(count, 5, dtype=np.uint64), bits), shared)
            sent = {peer: [message["words"] for message in link.sent] for peer, link in hand.links.items()}
            return shared.planes, sent

        results = seats(3, 1, program)
        for to, (own, _) in sorted(results.items()):
            beside = 4 * elements(own[:, 0]) + elements(own[:, 3])
            for _, sent in results.values():
                for words in sent.get(to, []):
                    yield from (4 * beside + elements(row) for row in words.swapaxes(0, 1))

    tests = 0
    for first, second in zip(told(3), told(14), strict=True):
        counts = [np.bincount(sample, minlength=64) for sample in (first, second)]
        assert stats.chi2_contingency(counts).pvalue > 1e-9
        tests += 1
    assert tests == 3 * {"below": 3, "top_bit_of_difference": 2, "bits_of_difference": 2, "lengths": 6}[name]
