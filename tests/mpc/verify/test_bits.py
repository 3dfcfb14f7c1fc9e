"""ANDs of shared bits are checked: honest ones always pass, and a single wrong bit does not."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

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
from .tampering import Changing, listing

COMMITTEES = pytest.mark.parametrize(("size", "threshold"), [(3, 1), (4, 1), (5, 2), (7, 3)])


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
    for a, b in product(range(1 << m), repeat=2):
        assert field.multiply(inside[a], inside[b]) == inside[small.times(a, b)]
        assert inside[a] ^ inside[b] == inside[a ^ b]


def checked(play, size, threshold, program, changed=()):
    """Run a program at every seat; the cheater may change one of its messages. Returns what it sent, by kind."""
    sent = []

    def seat(hand):
        common, links = CommonKeys.agree(hand.name, hand.committee, hand.links), hand.links
        if hand.name == CHEATER:
            change = listing(sent, changed)
            links = {peer: Changing(link, change) for peer, link in links.items()}
        bits, coins = BitHand(hand.name, hand.committee, links, common), Stream(bytes(32))
        bits.claims = BitClaims(bits, lambda: Stream(coins.bytes(32)))
        return program(bits)

    return play(make(size, threshold, PRIMES[:1]), seat), sent


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


def products(hand, rows=5, count=200):
    """Two products one after the other, checked and opened."""
    x, y = random_bits(hand, rows, count), random_bits(hand, rows, count)
    both = hand.and_(x, y)
    last = hand.and_(hand.xor(both, x), y)
    hand.claims.settle()
    return hand.open(BitShares.stack([x, y, both, last]))


@COMMITTEES
@pytest.mark.parametrize(("short", "rows", "count"), [(1024, 1, 1), (64, 21, 700)])
def test_honest_products_pass(play, monkeypatch, size, threshold, short, rows, count):
    monkeypatch.setattr(verification, "SHORT", short)
    results, _ = checked(play, size, threshold, lambda hand: products(hand, rows, count))
    assert all(np.array_equal(*products_of(opened)) for opened in results.values())


@pytest.mark.parametrize(
    ("size", "threshold", "step"),
    [
        (3, 1, 3),
        (4, 1, 9),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [(3, 1, 1), (4, 1, 1), (5, 2, 1), (7, 3, 2)]),
    ],
)
def test_every_changed_message_is_caught_before_anything_is_opened(play, monkeypatch, size, threshold, step):
    """Whatever message the cheater changes, a share of a product or one of the check: everybody stops.

    A wrong product passes with chance 2^-43; all other changes are caught by honest shares alone. With spare seats, a
    few messages of the check are needed by nobody: shares of seats that do not deal. Then what is opened is right.
    """
    monkeypatch.setattr(verification, "SHORT", 128)
    _, sent = checked(play, size, threshold, products)
    assert set(sent) == {"bits", "opening"}
    products_sent = 2 * (size - 1 - threshold)
    chosen = {*range(products_sent), *range(products_sent, len(sent) - (size - 1), step)}
    for number in sorted(chosen):
        try:
            results, _ = checked(play, size, threshold, products, {number})
        except (ShareError, ConnectionError):
            continue
        assert number >= products_sent
        assert sent[number] == "bits"
        assert size > 2 * threshold + 1
        assert all(np.array_equal(*products_of(opened)) for opened in results.values())


def products_of(opened):
    x, y, both, last = np.split(opened, 4)
    return np.concatenate([both, last]), np.concatenate([x & y, (x & y ^ x) & y])


@COMMITTEES
@pytest.mark.parametrize(
    ("rows", "count", "wrong", "short"),
    [(3, 60, (1, 2, -1), 1024), (40, 500, (0, 39, -1), 1024), (16, 256, (0,), 64)],
    ids=["no bit", "one bit", "in several parts"],
)
def test_an_error_that_all_shares_have_in_common_is_caught(
    play, monkeypatch, size, threshold, rows, count, wrong, short
):
    """It lies on a polynomial, so only the products tell: one wrong bit, something that is no bit, several at once."""
    monkeypatch.setattr(verification, "SHORT", short)

    def program(hand):
        x, y = random_bits(hand, rows, count), random_bits(hand, rows, count)
        result = hand.and_(x, y)
        result.planes[wrong] ^= np.uint64(1 << 17)
        with raises(ShareError, "SH013"):
            hand.claims.settle()

    checked(play, size, threshold, program)


@COMMITTEES
def test_networks_of_products_are_claimed_and_pass(play, stream, size, threshold):
    mask = np.uint64(0xFFF)
    values = stream.uint64(70) & mask
    public = slice_bits(values, 12)

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

    for secret, *found in checked(play, size, threshold, program)[0].values():
        exact = (values - secret) & mask
        lengths = [sum((int(x) < 1 << j) << j for j in range(12)) for x in exact]
        due = [values < secret, exact, lengths, 3 * secret & mask, 3 * secret & mask]
        assert all(np.array_equal(one, other) for one, other in zip(found, due, strict=True))


def test_an_element_that_is_no_bit_tells_nothing_under_a_veil(play):
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

    secret, bare, veiled = checked(play, 3, 1, program)[0]["n0"]
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
