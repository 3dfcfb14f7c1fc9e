"""ANDs of shared bits are checked: honest ones always pass, and a single wrong bit does not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from colonnade.errors import ShareError
from colonnade.mpc import PRIMES
from colonnade.mpc.common import CommonKeys
from colonnade.mpc.fixed import circuits
from colonnade.mpc.fixed.binary import BinaryField, BitHand, BitShares, slice_bits
from colonnade.mpc.verify import bits as verification, large_field as field
from colonnade.mpc.verify.bits import BitClaims, error
from colonnade.randomness import Stream
from tests.support.errors import raises

from ..conftest import make
from ..fixed.kit import join_bits, random_bits
from .tampering import Tampering

COMMITTEES = [(3, 1), (4, 1), (5, 2), (7, 3)]
CHEATER = "n1"


def elements(stream, *shape):
    return stream.uint64(shape) & field.MASK


def test_the_large_field_is_a_field(stream):
    a, b, c = elements(stream, 3, 9000)
    times = field.multiply
    assert np.array_equal(times(a, b ^ c), times(a, b) ^ times(a, c))
    assert np.array_equal(times(times(a, b), c), times(a, times(b, c)))
    assert np.array_equal(times(a, b), times(b, a))
    assert np.array_equal(times(a, np.uint64(1)), a)
    assert not times(a, np.uint64(0)).any()
    known = a[:200][a[:200] != 0]
    assert (times(known, field.inverse(known)) == 1).all()
    assert (a <= field.MASK).all()
    # y^3 = x and powers of x fill GF(2^16): with these two the field has 2^48 elements and not fewer.
    y, x = np.array(1 << 16, dtype=np.uint64), np.array(2, dtype=np.uint64)
    assert field.power(y, 3) == x
    for divisor in (3, 5, 17, 257):
        assert field.power(x, 65535 // divisor) != 1
    assert field.power(x, 65535) == 1


@pytest.mark.parametrize("m", [2, 3])
def test_the_fields_of_bits_lie_in_the_large_one(m):
    small, inside = BinaryField(m), field.embedding(m)
    assert len(set(inside.tolist())) == 1 << m
    for a in range(1 << m):
        for b in range(1 << m):
            assert field.multiply(inside[a], inside[b]) == inside[small.times(a, b)]
            assert inside[a] ^ inside[b] == inside[a ^ b]


def test_weights_carry_polynomials_to_other_points(stream):
    known, at, coefficients = elements(stream, 6), elements(stream, 4), elements(stream, 6)

    def value(points):
        total = np.zeros_like(points)
        for coefficient in coefficients:
            total = field.multiply(total, points) ^ coefficient
        return total

    for point in at:
        weights = field.weights(tuple(known.tolist()), int(point))
        assert field.inner(weights, value(known)) == value(point.reshape(1))[0]


@pytest.mark.parametrize("variables", [0, 1, 3])
def test_values_at_few_points_determine_the_product_of_two_polynomials(stream, variables):
    a, b, point = elements(stream, 1 << variables), elements(stream, 1 << variables), elements(stream, variables)
    values = field.multiply(verification._extended(a, variables), verification._extended(b, variables))
    expected = field.multiply(verification._at(a, point), verification._at(b, point))
    assert verification._contracted(values, point) == expected
    assert np.array_equal(values[verification._ends(variables)], field.multiply(a, b))
    assert field.inner(a, verification._monomials(point)) == verification._at(a, point)


def play(in_threads, size, threshold, program, changed=()):
    """Run a program at every seat; the cheater may change one of its messages. Returns what it sent, by kind."""
    committee, sent = make(size, threshold, PRIMES[:1]), []

    def bind(name):
        def seat(links):
            common = CommonKeys.agree(name, committee, links)
            if name == CHEATER:
                links = {peer: Tampering(link, sent, changed) for peer, link in links.items()}
            hand, coins = BitHand(name, committee, links, common), Stream(bytes(32))
            hand.claims = BitClaims(hand, lambda: Stream(coins.bytes(32)))
            return program(hand)

        return seat

    return in_threads({name: bind(name) for name in committee.seats}), sent


def products(hand, rows=5, count=200):
    """Two products one after the other, checked and opened."""
    x, y = random_bits(hand, rows, count), random_bits(hand, rows, count)
    both = hand.and_(x, y)
    last = hand.and_(hand.xor(both, x), y)
    hand.claims.settle()
    return hand.open(BitShares.stack([x, y, both, last]))


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
@pytest.mark.parametrize(("short", "rows", "count"), [(1024, 1, 1), (64, 21, 700)])
def test_honest_products_pass(in_threads, monkeypatch, size, threshold, short, rows, count):
    monkeypatch.setattr(verification, "SHORT", short)
    results, _ = play(in_threads, size, threshold, lambda hand: products(hand, rows, count))
    for opened in results.values():
        assert np.array_equal(*products_of(opened))


@pytest.mark.parametrize(
    ("size", "threshold", "step"),
    [
        (3, 1, 1),
        (4, 1, 7),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [(3, 1, 1), (4, 1, 1), (5, 2, 1), (7, 3, 2)]),
    ],
)
def test_every_changed_message_is_caught_before_anything_is_opened(in_threads, monkeypatch, size, threshold, step):
    """Whatever message the cheater changes, a share of a product or one of the check: everybody stops.

    A wrong product passes with chance 2^-43; all other changes are caught by honest shares alone. With spare seats, a
    few messages of the check are needed by nobody: shares of seats that do not deal. Then what is opened is right.
    """
    monkeypatch.setattr(verification, "SHORT", 128)
    _, sent = play(in_threads, size, threshold, products)
    assert set(sent) == {"bits", "opening"}
    products_sent, passed = 2 * (size - 1 - threshold), 0
    for number in range(0, len(sent) - (size - 1), step):
        try:
            results, _ = play(in_threads, size, threshold, products, {number})
        except (ShareError, ConnectionError):
            continue
        passed += 1
        assert number >= products_sent
        assert sent[number] == "bits"
        assert all(np.array_equal(*products_of(opened)) for opened in results.values())
    assert passed == 0 or size > 2 * threshold + 1


def products_of(opened):
    x, y, both, last = np.split(opened, 4)
    return np.concatenate([both, last]), np.concatenate([x & y, (x & y ^ x) & y])


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
@pytest.mark.parametrize(("rows", "count", "plane"), [(3, 60, 1), (40, 500, 0)])
def test_an_error_that_all_shares_have_in_common_is_caught(in_threads, size, threshold, rows, count, plane):
    """It lies on a polynomial, so only the products tell: one wrong bit, or something that is no bit."""

    def program(hand):
        x, y = random_bits(hand, rows, count), random_bits(hand, rows, count)
        result = hand.and_(x, y)
        result.planes[plane, rows - 1, -1] ^= np.uint64(1 << 17)
        with raises(ShareError, "SH013"):
            hand.claims.settle()

    play(in_threads, size, threshold, program)


def test_two_errors_in_different_parts_do_not_cancel(in_threads, monkeypatch):
    monkeypatch.setattr(verification, "SHORT", 64)

    def program(hand):
        x, y = random_bits(hand, 16, 256), random_bits(hand, 16, 256)
        result = hand.and_(x, y)
        result.planes[0] ^= np.uint64(1 << 9)
        with raises(ShareError, "SH013"):
            hand.claims.settle()

    play(in_threads, 3, 1, program)


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
def test_networks_of_products_are_claimed_and_pass(in_threads, stream, size, threshold):
    values = [stream.uint64(70) & np.uint64(0xFFF) for _ in range(3)]
    public = slice_bits(values[0], 12)

    def program(hand):
        secret = random_bits(hand, 12, 70)
        found = [
            circuits.below(hand, public, secret),
            circuits.bits_of_difference(hand, public, secret),
            circuits.lengths(hand, public, secret),
            *(circuits.add(hand, [secret, secret, secret], fast=fast) for fast in (True, False)),
        ]
        assert hand.claims.held
        hand.claims.settle()
        return [join_bits(hand.open(one), 70) for one in (secret, *found)]

    for secret, below, difference, lengths, fast, slow in play(in_threads, size, threshold, program)[0].values():
        exact = (values[0] - secret) & np.uint64(0xFFF)
        assert np.array_equal(below, values[0] < secret)
        assert np.array_equal(difference, exact)
        assert np.array_equal(lengths, [sum((int(x) < 1 << j) << j for j in range(12)) for x in exact])
        assert np.array_equal(fast, 3 * secret & np.uint64(0xFFF))
        assert np.array_equal(slow, fast)


def test_an_element_that_is_no_bit_tells_nothing_under_a_veil(in_threads):
    """Without a veil, a product with something that is no bit shows the other factor in the second plane."""

    def program(hand):
        secret = random_bits(hand, 4, 6400)
        wrong = BitShares(hand.field.scale(secret.planes, 2), secret.degree, secret.count)  # x times a secret bit
        seen = []
        for veiled in (False, True):
            drawn = [stream.uint64((hand.field.m if veiled else 1, 4, 100)) for _, stream in hand.common.streams]
            full = [np.concatenate([one, np.zeros((hand.field.m - len(one), 4, 100), np.uint64)]) for one in drawn]
            mask = hand.veil(full, 6400)
            shares = hand.xor(wrong, mask)
            seen.append(BitHand.open(_AllPlanes(hand), shares)[1])
        return hand.open(secret), *seen

    secret, bare, veiled = play(in_threads, 3, 1, program)[0]["n0"]
    assert np.array_equal(bare, secret)
    differing = np.unpackbits((veiled ^ secret).view(np.uint8)).sum()
    assert abs(int(differing) - 12800) < 6 * 80  # 25,600 fair coins: beyond six deviations with chance 2e-9


class _AllPlanes:
    """A hand that returns all planes of what is opened, as somebody who cheats looks at them."""

    def __init__(self, hand):
        self._hand = hand
        self.field = self

    def __getattr__(self, name):
        return getattr(self._hand, name)

    def interpolate(self, shares, degree, seats, *, veiled):
        points = tuple(sorted(shares))[: degree + 1]
        field_of_bits = self._hand.field
        return field_of_bits.combine([shares[p] for p in points], field_of_bits.weights(points, 0))


def test_the_error_is_below_a_trillionth_for_any_size():
    assert error(64) == Fraction(5, 2**48 - 1)
    assert error(1 << 20) == Fraction(3 + 2 * 5 + 2 * 5 + 2, 2**48 - 1)
    assert error(1 << 20, spare=True) - error(1 << 20) == Fraction(3, 2**48 - 1)
    assert error(1 << 40, spare=True) < Fraction(1, 2**40)
