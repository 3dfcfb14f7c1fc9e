from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from colonnade.errors import ProtocolError, ShareError
from colonnade.mpc.common import groups
from colonnade.mpc.fixed.binary import BinaryField, BitShares, field_for, slice_bits, words_for
from colonnade.randomness import Stream
from tests.support.errors import raises

from ..conftest import make
from .bits import join_bits, random_bits

COMMITTEES = [(3, 1), (4, 1), (5, 2), (7, 3)]
FIELDS = [BinaryField(2), BinaryField(3)]
UNLIKELY = 1e-9  # about a hundred tests of chance, each of which fails so seldom


def deal(size, threshold, words):
    """The shares of all seats in public words, by a dealer who draws every coefficient."""
    field, stream = field_for(size), Stream.fresh()
    secret = np.zeros((field.m, *words.shape), dtype=np.uint64)
    secret[0] = words
    coefficients = [stream.uint64(secret.shape) for _ in range(threshold)]
    shares = {}
    for number in range(size):
        share, power = secret, 1
        for coefficient in coefficients:
            power = field.times(power, number + 1)
            share = share ^ field.scale(coefficient, power)
        shares[f"n{number}"] = BitShares(share, threshold, words.shape[1] * 64)
    return shares


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
        assert not b or field.times(field.over(a, b), b) == a
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


@pytest.mark.parametrize("field", FIELDS)
def test_weights_carry_polynomials_to_any_other_point(field):
    for degree in range(3):
        for known in combinations(range(1 << field.m), degree + 1):
            for at in range(1 << field.m):
                weights = field.weights(known, at)
                for power in range(degree + 1):
                    total = 0
                    for point, weight in zip(known, weights, strict=True):
                        total ^= field.times(weight, _power(field, point, power))
                    assert total == _power(field, at, power)


def _power(field, base, exponent):
    return field.times(base, _power(field, base, exponent - 1)) if exponent else 1


def test_a_field_has_a_point_for_every_seat():
    assert [field_for(seats).m for seats in range(3, 8)] == [2, 3, 3, 3, 3]
    for seats in (2, 8):
        with raises(ValueError, "VA087", "3 to 7"):
            field_for(seats)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.integers(1, 64), st.integers(0, 2**31))
def test_slicing_puts_each_bit_in_its_place_and_comes_back(count, bits, seed):
    values = np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)
    words = slice_bits(values, bits)
    assert words.shape == (bits, words_for(count))
    assert words.dtype == np.uint64
    i, j = seed % count, seed % bits
    assert int(words[j, i // 64]) >> i % 64 & 1 == int(values[i]) >> j & 1
    if count % 64:
        assert not (words[:, -1] >> np.uint64(count % 64)).any()
        words[:, -1] |= np.uint64(2**64 - (1 << count % 64))  # what pads the words is nobody's business
    assert np.array_equal(join_bits(words, count), values & np.uint64(2**bits - 1))


@pytest.mark.parametrize("bits", [1, 9, 24, 64])
def test_many_numbers_are_sliced_like_few(bits, stream):
    values = stream.uint64(5000)
    words = slice_bits(values, bits)
    assert np.array_equal(words[:, :20], slice_bits(values[: 20 * 64], bits))
    assert np.array_equal(words[:, 64:], slice_bits(values[64 * 64 :], bits))
    assert np.array_equal(join_bits(words, 5000), values & np.uint64(2**bits - 1))


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
def test_local_work_and_products_open_to_the_plain_ones(seats, stream, size, threshold):
    left, right, public = (stream.uint64((5, 3)) for _ in range(3))
    a, b = deal(size, threshold, left), deal(size, threshold, right)

    def program(hand):
        x, y = a[hand.name], b[hand.name]
        both = hand.and_(x, y)
        again = hand.and_(both, hand.flip(x, public))
        mixed = hand.xor(hand.mask(y, public), x)
        out = BitShares.stack([both, again, mixed[1:3], hand.and_(x[:1], y)])
        assert (out.bits, out.degree, again.bits) == (17, threshold, 5)
        return hand.open(out)

    both = left & right
    expected = [both, both & (left ^ public), ((right & public) ^ left)[1:3], left[:1] & right]
    for opened in seats(size, threshold, program).values():
        assert np.array_equal(opened, np.concatenate(expected))


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
def test_random_bits_are_bits_alike_for_all_and_cost_no_message(seats, size, threshold):
    def program(hand):
        first, second = random_bits(hand, 40, 1000), random_bits(hand, 40, 1000)
        assert not any(link.sent for link in hand.links.values())
        return hand.open(first), hand.open(second)

    results = list(seats(size, threshold, program).values())
    first, second = results[0]
    for other in results[1:]:
        assert np.array_equal(other[0], first)
        assert np.array_equal(other[1], second)
    bits = np.unpackbits(first.view(np.uint8), axis=1, bitorder="little")[:, :1000]
    assert not (first[:, -1] >> np.uint64(1000 % 64)).any()
    ones = int(bits.sum()), int(np.unpackbits((first ^ second).view(np.uint8)).sum())
    assert all(stats.binomtest(count, 40_000).pvalue > UNLIKELY for count in ones)


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
def test_what_a_group_knows_is_shared_by_all(seats, size, threshold):
    known = {group: Stream.fresh().uint64((4, 2)) for group in groups(make(size, threshold))}

    def program(hand):
        mine = hand.group_bits([known[group] for group, _ in hand.common.streams], 128)
        assert [bool(share.planes.any()) for share in mine] == [hand.name in group for group in known]
        return hand.open(BitShares.stack(mine))

    for opened in seats(size, threshold, program).values():
        assert np.array_equal(opened, np.concatenate(list(known.values())))


@pytest.mark.parametrize(("size", "threshold", "sent"), [(3, 1, 1), (4, 1, 2), (5, 1, 3), (5, 2, 2), (7, 3, 3)])
def test_a_product_takes_few_messages_and_an_opening_one_to_each(seats, size, threshold, sent):
    def program(hand):
        product = hand.and_(random_bits(hand, 8, 64), random_bits(hand, 8, 64))
        after = [len(link.sent) for link in hand.links.values()]
        hand.open(product)
        return sum(after), [len(link.sent) for link in hand.links.values()], after

    for name, (messages, total, after) in seats(size, threshold, program).items():
        deals = int(name[1:]) <= 2 * threshold
        assert messages == (sent if deals else 0)
        assert [a + 1 for a in after] == total


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
def test_a_corrupted_share_stops_the_opening(seats, stream, size, threshold):
    shares = deal(size, threshold, stream.uint64((3, 2)))
    shares["n1"].planes[1, 2, 0] ^= np.uint64(1 << 17)
    with raises(ShareError, "SH008"):
        seats(size, threshold, lambda hand: hand.open(shares[hand.name]))


def test_something_else_than_bits_is_not_opened(seats, stream):
    shares = deal(3, 1, stream.uint64((3, 2)))
    for share in shares.values():
        share.planes[1] ^= np.uint64(2)  # the same polynomial plus x, which is no bit
    with raises(ShareError, "SH003"):
        seats(3, 1, lambda hand: hand.open(shares[hand.name]))


def test_too_few_shares_and_too_high_degrees_are_refused(seats, stream):
    shares = deal(5, 2, stream.uint64((1, 1)))
    with raises(ShareError, "SH002", "2"):
        field_for(5).interpolate({1: shares["n0"].planes, 2: shares["n1"].planes}, 2, ["n0", "n1"])

    def program(hand):
        product = hand.multiply(shares[hand.name], shares[hand.name])
        with raises(ValueError, "VA092"):
            hand.open(product)
        with raises(ValueError, "VA091", "5", "6"):
            hand.lower(hand.multiply(product, shares[hand.name]))
        with raises(ValueError, "VA089"):
            hand.multiply(product, random_bits(hand, 1, 63))

    seats(5, 2, program)


@pytest.mark.parametrize(
    "words", [None, [0, 0], np.zeros((2, 3, 1), np.int64), np.zeros((2, 3, 2), np.uint64), np.zeros((3, 1), np.uint64)]
)
@pytest.mark.parametrize("kind", ["bits", "opening"])
def test_shares_of_another_shape_or_type_are_refused(seats, words, kind):
    def program(hand):
        if hand.name == "n0":
            hand.links["n2"].send(kind, words=words)
        if hand.name == "n2":
            mine = random_bits(hand, 3, 5)
            with raises(ProtocolError, "MS049", "n0", "words"):
                hand.open(mine) if kind == "opening" else hand.lower(BitShares(mine.planes, 2, 5))

    seats(3, 1, program)


def alike(first, second):
    """The chance of so different counts, were both samples drawn from one distribution."""
    counts = [np.bincount(sample, minlength=max(first.max(), second.max()) + 1) for sample in (first, second)]
    table = np.array(counts)[:, (counts[0] + counts[1]) > 0]
    return stats.chi2_contingency(table).pvalue


def deal_with(size, words, given):
    """The shares of all seats, for a polynomial with these shares at so many seats as the threshold."""
    field = field_for(size)
    values = [np.zeros((field.m, *words.shape), dtype=np.uint64) for _ in (None, *given)]
    values[0][0] = words
    for value, share in zip(values[1:], given.values(), strict=True):
        value[[power for power in range(field.m) if share >> power & 1]] = 2**64 - 1
    points = (0, *(int(seat[1:]) + 1 for seat in given))
    return {
        f"n{i}": BitShares(field.combine(values, field.weights(points, i + 1)), len(given), words.shape[1] * 64)
        for i in range(size)
        if f"n{i}" not in given
    } | {seat: BitShares(value, len(given), words.shape[1] * 64) for seat, value in zip(given, values[1:], strict=True)}


def constant(bit):
    return np.full((8, 128), -bit % 2**64, dtype=np.uint64)


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


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
def test_what_a_coalition_sees_of_a_product_does_not_depend_on_its_factors(seats, size, threshold):
    """With its own shares of the factors given, the factors fix what the others hold: whatever leaks of that shows.

    Both products are 0, so the same is opened, and that fixes with the coalition's shares all others.
    """
    coalitions = list(combinations([f"n{i}" for i in range(size)], threshold))
    for coalition in coalitions[:: -(-len(coalitions) // 5)]:
        given = {seat: number + 1 for number, seat in enumerate(coalition)}
        zero, one = (
            transcript(seats, size, threshold, *(deal_with(size, constant(bit), given) for bit in (0, other)))
            for other in (0, 1)
        )
        for first, second in zip(views(size, zero, coalition), views(size, one, coalition), strict=True):
            assert alike(first, second) > UNLIKELY, coalition


def test_an_opened_product_tells_nothing_else(seats):
    """All that one seat knows in the end: its shares of the factors, what it was told, and the shares of the result."""
    zero, one = (transcript(seats, 3, 1, deal(3, 1, constant(0)), deal(3, 1, constant(bit))) for bit in (0, 1))
    for name in zero:
        first, second = (
            joint(3, [mine["a"], mine["b"], mine["out"], *_told(held, name), *(held[seat]["out"] for seat in held)])
            for held in (zero, one)
            for mine in [held[name]]
        )
        assert alike(first, second) > UNLIKELY


def _told(held, name):
    return [seat["sent"][name] for seat in held.values() if name in seat["sent"]]


def test_one_seat_too_many_sees_the_difference(seats):
    zero, one = (transcript(seats, 3, 1, deal(3, 1, constant(1)), deal(3, 1, constant(bit))) for bit in (0, 1))
    first, second = (joint(3, [held["n0"]["out"], held["n1"]["out"]]) for held in (zero, one))
    assert alike(first, second) < 1e-100
