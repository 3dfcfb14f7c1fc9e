"""Shared bits: the field, products and openings, what coalitions see of them; and circuits on differences and sums."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from scipy import stats

from colonnade.errors import ShareError
from colonnade.mpc.fixed_point import shared_bits
from colonnade.mpc.fixed_point.shared_bits import BinaryField, BitShares, field_for, slice_bits, word_count
from colonnade.randomness import Stream
from tests.support.errors import raises, refused

from .kit import join_bits, random_bits

COMMITTEES = pytest.mark.parametrize(("size", "threshold"), [(3, 1), (4, 1), (5, 2), (7, 3)])


FIELDS = [BinaryField(2), BinaryField(3)]


UNLIKELY = 1e-9  # about a hundred tests of chance, each of which fails so seldom


def deal(size, threshold, words):
    """The same by a dealer who draws those shares."""
    stream, shape = Stream.fresh(), (field_for(size).m, *words.shape)
    return deal_with(size, words, {f"n{i}": stream.uint64(shape) for i in range(threshold)})


def elements(planes):
    """Every element of the field as a small number."""
    bits = [np.unpackbits(np.ascontiguousarray(plane).view(np.uint8).ravel()).astype(np.int64) for plane in planes]
    return sum(bit << power for power, bit in enumerate(bits))


@pytest.mark.parametrize("field", FIELDS)
def test_the_field_is_a_field(field):
    all_of_it = range(1 << field.m)
    for a, b, c in product(all_of_it, repeat=3):
        assert field.times(a, field.times(b, c)) == field.times(field.times(a, b), c)
        assert field.times(a, b ^ c) == field.times(a, b) ^ field.times(a, c)
    for a, b in product(all_of_it, repeat=2):
        assert field.times(a, b) == field.times(b, a) < 1 << field.m
        assert not b or field.times(field.divide(a, b), b) == a
        assert not (a and b) or field.times(a, b)
    assert all(field.times(a, 1) == a for a in all_of_it)


@pytest.mark.parametrize("field", FIELDS)
def test_sliced_products_are_those_of_the_elements(field, stream):
    a, b = stream.uint64((field.m, 3, 40)), stream.uint64((field.m, 3, 40))
    kept = a.copy(), b.copy()
    table = np.array([[field.times(x, y) for y in range(1 << field.m)] for x in range(1 << field.m)])
    assert len(set(zip(elements(a), elements(b), strict=True))) == 1 << 2 * field.m
    assert np.array_equal(elements(field.multiply(a, b)), table[elements(a), elements(b)])
    for constant in range(1 << field.m):
        assert np.array_equal(elements(field.scale(a, constant)), table[elements(a), constant])
    assert np.array_equal(a, kept[0])
    assert np.array_equal(b, kept[1])


def test_a_field_has_a_point_for_every_seat():
    assert [field_for(seats).m for seats in range(3, 8)] == [2, 3, 3, 3, 3]
    for seats in (2, 8):
        refused(ValueError, "VA087", "3 to 7", field_for, seats)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(1, 64), st.integers(0, 2**31))
@example(5000, 1, 3)
@example(5000, 24, 4097)
@example(5000, 64, 4999)
def test_slicing_puts_each_bit_in_its_place_and_comes_back(count, bits, seed):
    values = np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)
    words = slice_bits(values, bits)
    assert words.shape == (bits, word_count(count))
    assert words.dtype == np.uint64
    i, j = seed % count, seed % bits
    assert int(words[j, i // 64]) >> i % 64 & 1 == int(values[i]) >> j & 1
    if count % 64:
        assert not (words[:, -1] >> np.uint64(count % 64)).any()
        words[:, -1] |= np.uint64(2**64 - (1 << count % 64))  # what pads the words is nobody's business
    assert np.array_equal(join_bits(words, count), values & np.uint64(2**bits - 1))


@COMMITTEES
def test_local_work_and_products_open_to_the_plain_ones(seats, stream, size, threshold):
    left, right, public = (stream.uint64((5, 3)) for _ in range(3))
    a, b = deal(size, threshold, left), deal(size, threshold, right)

    def program(hand):
        x, y = a[hand.name], b[hand.name]
        both = hand.and_(x, y)
        again = hand.and_(both, hand.xor_public(x, public))
        mixed = hand.xor(y, x)
        out = BitShares.stack([both, again, mixed[1:3], hand.and_(x[:1], y)])
        assert (out.bits, out.degree, again.bits) == (17, threshold, 5)
        return hand.open(out)

    both = left & right
    expected = [both, both & (left ^ public), (right ^ left)[1:3], left[:1] & right]
    for opened in seats(size, threshold, program).values():
        assert np.array_equal(opened, np.concatenate(expected))


@COMMITTEES
@pytest.mark.parametrize(
    ("whose", "change", "code"), [(["n1"], (1, 2, 0), "SH008"), ([f"n{i}" for i in range(7)], (1,), "SH003")]
)
def test_a_corrupted_share_and_something_else_than_bits_stop_the_opening(
    seats, stream, size, threshold, whose, change, code
):
    """One share is changed, or all polynomials are moved by x, which is no bit."""
    shares = deal(size, threshold, stream.uint64((3, 2)))
    for name in shares:
        if name in whose:
            shares[name].planes[change] ^= np.uint64(2)
    refused(ShareError, code, seats, size, threshold, lambda hand: hand.open(shares[hand.name]))


def test_an_opened_product_tells_nothing_else_and_one_seat_too_many_sees_the_difference(seats):
    """All that one seat knows in the end: its shares of the factors, what it was told, and the shares of the result."""

    def run(*bits):
        return transcript(seats, 3, 1, *(deal(3, 1, constant(bit)) for bit in bits))

    def known(held, name):
        told = [seat["sent"][name] for seat in held.values() if name in seat["sent"]]
        results = [held[seat]["out"] for seat in held]
        return joint(3, [held[name]["a"], held[name]["b"], held[name]["out"], *told, *results])

    zero, one = run(0, 0), run(0, 1)
    for name in zero:
        assert alike(known(zero, name), known(one, name)) > UNLIKELY
    first, second = (joint(3, [held["n0"]["out"], held["n1"]["out"]]) for held in (run(1, 0), run(1, 1)))
    assert alike(first, second) < 1e-100


def test_too_few_shares_and_too_high_degrees_are_refused(seats, stream):
    shares = deal(5, 2, stream.uint64((1, 1)))
    with raises(ShareError, "SH002", "2"):
        field_for(5).interpolate({1: shares["n0"].planes, 2: shares["n1"].planes}, 2, ["n0", "n1"])

    def program(hand):
        share = shares[hand.name]
        refused(ValueError, "VA092", hand.open, BitShares(share.planes, 4, share.count))
        refused(ValueError, "VA091", "5", "6", hand.reduce_degree, share.planes, 6)
        refused(ValueError, "VA090", hand.and_, share, random_bits(hand, 1, 63))

    seats(5, 2, program)


def alike(first, second):
    """The chance of so different counts, were both samples drawn from one distribution."""
    counts = [np.bincount(sample, minlength=max(first.max(), second.max()) + 1) for sample in (first, second)]
    table = np.array(counts)[:, (counts[0] + counts[1]) > 0]
    return stats.chi2_contingency(table).pvalue


def deal_with(size, words, given):
    """The shares of all seats in public words, for a polynomial with these shares at as many seats as the threshold."""
    field = field_for(size)
    secret = np.zeros((field.m, *words.shape), dtype=np.uint64)
    secret[0] = words
    known, points = [secret, *given.values()], (0, *(int(seat[1:]) + 1 for seat in given))
    return {
        f"n{i}": BitShares(field.combine(known, field.weights(points, i + 1)), len(given), words.shape[1] * 64)
        for i in range(size)
    }


def constant(bit, size=None):
    """Words of a bit or, with a number of seats, shares that are all this element of the field."""
    words = np.full((8, 128), -(bit & 1) % 2**64, dtype=np.uint64)
    return words if size is None else np.stack([constant(bit >> power) for power in range(field_for(size).m)])


def transcript(seats, size, threshold, a, b):
    """What each seat holds and tells others while a product is computed and opened."""

    def program(hand):
        out = hand.and_(a[hand.name], b[hand.name])
        sent = {seat: link.sent[0]["words"] for seat, link in hand.links.items() if link.sent}
        hand.open(out)
        return {"a": a[hand.name].planes, "b": b[hand.name].planes, "out": out.planes, "sent": sent}

    return dict(sorted(seats(size, threshold, program).items()))


def joint(size, parts):
    total = np.int64(0)
    for part in parts:
        total = total << field_for(size).m | elements(part)
    return total


def views(size, held, coalition):
    """What a coalition sees of a product beside its factors: its shares of the result, and what each other tells it."""
    yield joint(size, [held[seat]["out"] for seat in coalition])
    for dealer in sorted(set(held) - set(coalition)):
        told = [words for seat, words in held[dealer]["sent"].items() if seat in coalition]
        if told:
            yield joint(size, told)
            yield joint(size, [told[0], held[coalition[0]]["out"]])


@COMMITTEES
def test_what_a_coalition_sees_of_a_product_does_not_depend_on_its_factors(seats, size, threshold):
    """With its own shares of the factors given, the factors fix what the others hold: whatever leaks of that shows.

    Both products are 0, so the same is opened, and that fixes with the coalition's shares all others.
    """
    coalitions = list(combinations([f"n{i}" for i in range(size)], threshold))
    for coalition in coalitions[:: -(-len(coalitions) // 4)]:
        given = {seat: constant(number + 1, size) for number, seat in enumerate(coalition)}
        zero, one = (
            transcript(seats, size, threshold, *(deal_with(size, constant(bit), given) for bit in (0, other)))
            for other in (0, 1)
        )
        for first, second in zip(views(size, zero, coalition), views(size, one, coalition), strict=True):
            assert alike(first, second) > UNLIKELY, coalition


ON_DIFFERENCES = ("is_below", "top_bit_of_difference", "bit_lengths")


def share(hand, values, bits):
    """Shares of known numbers: random bits, opened, and flipped to what they should be."""
    drawn = random_bits(hand, bits, len(values))
    return hand.xor_public(drawn, hand.open(drawn) ^ slice_bits(values, bits))


def differences(seats, size, threshold, bits, public, secret):
    """What all circuits say of public - secret; every seat must say the same."""

    def program(hand):
        shared, words = share(hand, secret, bits), slice_bits(public, bits)
        results = [getattr(shared_bits, name)(hand, words, shared) for name in ON_DIFFERENCES]
        return [join_bits(hand.open(result), len(public)) for result in results]

    first, *others = seats(size, threshold, program).values()
    assert all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))
    return dict(zip(ON_DIFFERENCES, first, strict=True))


def check(found, bits, public, secret):
    rest = [(int(p) - int(s)) % 2**bits for p, s in zip(public, secret, strict=True)]
    assert found["is_below"].tolist() == [int(p < s) for p, s in zip(public, secret, strict=True)]
    assert found["top_bit_of_difference"].tolist() == [x >> bits - 1 for x in rest]
    assert found["bit_lengths"].tolist() == [sum((x < 2**j) << j for j in range(bits)) for x in rest]


@pytest.mark.parametrize(
    ("size", "threshold", "bits"), [*((3, 1, bits) for bits in (1, 2, 3, 5)), (4, 1, 3), (5, 2, 4), (7, 3, 3)]
)
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
        return join_bits(hand.open(shared_bits.add_bits(hand, shared, fast=fast)), count)

    expected = [sum(map(int, column)) % 2**bits for column in numbers.T]
    for found in seats(3, 1, program).values():
        assert found.tolist() == expected
