"""Masks are sums over groups; coins of three seats are one bit in both forms, and nobody can tell it."""

from __future__ import annotations

from functools import partial
from itertools import combinations, product

import flint
import numpy as np
import pytest
from scipy import stats

from colonnade.mpc import Hand
from colonnade.mpc.common import CommonKeys, groups
from colonnade.mpc.fixed import masks
from colonnade.mpc.fixed.masks import Masks
from colonnade.randomness import Stream

from .kit import make


def opened(play, bits, count, *, primes=2, before=lambda made: None, common=lambda name: None):
    """Coins as numbers and as bits, as every seat opens them, and what ``before`` returned of each seat."""
    committee = make(3, 1, primes)

    def seat(hand):
        hand = Hand(hand.name, committee, hand.links, common=common(hand.name))
        made = Masks(hand)
        noted = before(made)
        coins = made.coins(bits, count)
        for link in hand.links.values():
            link.__dict__.pop("recv", None)
        hand.send_opening(coins.numbers, committee.seats)
        numbers = hand.receive_opening((bits, count), degree=1, bound=1, own=coins.numbers)
        return numbers, masks.unpacked(made.bits.open(coins.bits), count), noted

    return play(committee, dict.fromkeys(committee.seats, seat))


@pytest.mark.parametrize(("bits", "count"), [(1, 1), (3, 100), (5, 64), (2, 700)])
@pytest.mark.parametrize("block", [1 << 16, 128])
def test_coins_are_the_same_as_numbers_and_as_bits(play, monkeypatch, bits, count, block):
    monkeypatch.setattr(masks, "BLOCK", block)
    monkeypatch.setattr(masks, "_UNHEARD", 1)
    for numbers, words, _ in opened(play, bits, count).values():
        assert numbers.tolist() == words.tolist()
        assert set(np.unique(numbers)) <= {0, 1}
    if bits * count >= 300:  # beyond five deviations with a chance of 6e-7
        assert abs(numbers.mean() - 0.5) < 2.5 / np.sqrt(numbers.size)


@pytest.mark.parametrize(("bits", "count", "blocks"), [(1, 50, 1), (4, 64, 2), (1, 300, 3), (3, 300, 9)])
def test_blocks_hold_every_coin_once(bits, count, blocks, monkeypatch):
    monkeypatch.setattr(masks, "BLOCK", 128)
    seen = np.zeros((bits, count), dtype=int)
    parts = list(masks._blocks(bits, count))
    for rows, columns in parts:
        assert columns.start % masks.WORD == 0
        seen[rows, columns] += 1
    assert (seen == 1).all()
    assert len(parts) == blocks


@pytest.mark.parametrize(("size", "threshold", "primes"), [(3, 1, 4), (5, 2, 6), (7, 3, 8), (7, 3, 16)])
@pytest.mark.parametrize("zeros", [False, True])
def test_masks_are_a_number_of_every_group_in_chunks_of_any_size(play, monkeypatch, size, threshold, primes, zeros):
    """The whole less 2^bits times the part above is a sum of as many numbers of ``bits`` bits as there are groups."""
    monkeypatch.setattr(masks, "CHUNK", 5)
    committee, bits, count = make(size, threshold, primes), 27, 23

    def seat(hand):
        made = Masks(hand)
        mask, limbs = made._made(bits, count, zeros=zeros), made._limbs(bits)
        assert (limbs.high.shape[1] > limbs.terms) == (primes == 16), "reduced in two passes"
        opened = []
        for shares in (mask.whole, mask.high):
            assert shares.degree == (2 * threshold if zeros and shares is mask.whole else threshold)
            hand.send_opening(shares, committee.seats)
            opened.append(
                hand.receive_opening((count,), degree=shares.degree, bound=committee.system.modulus // 2, own=shares)
            )
        return opened, made.groups, made.width

    (whole, high), groups, width = play(committee, dict.fromkeys(committee.seats, seat))[committee.seats[0]]
    low = [int(w) - (int(h) << bits) for w, h in zip(whole, high, strict=True)]
    assert all(0 <= one <= groups * ((1 << bits) - 1) for one in low)
    assert all(0 <= int(h) <= groups * ((1 << width - bits) - 1) for h in high)
    assert len(set(low)) == len({int(h) for h in high}) == count
    assert max(map(int, high)) > groups << (width - bits - 2)


@pytest.mark.parametrize(("size", "threshold", "primes"), [(3, 1, 4), (4, 1, 4), (5, 2, 6), (7, 3, 8)])
def test_products_are_opened_under_a_whole_sharing_of_zero(size, threshold, primes):
    """Of the same limbs, masks for products and for numbers differ by a polynomial that is 0 at 0 and else uniform."""
    committee, count, degree = make(size, threshold, primes), 2000, 2 * threshold
    keys = {group: Stream.fresh().bytes(32) for group in groups(committee)}

    def masks_of(seat):
        pairs = {peer: bytes(32) for peer in committee.seats if peer != seat}  # which masks do not read
        return Masks(Hand(seat, committee, {}, common=CommonKeys(seat, committee, keys, pairs)))

    shares = []
    for seat in committee.seats:
        plain, opened = (masks_of(seat)._made(27, count, zeros=zeros) for zeros in (False, True))
        assert np.array_equal(plain.high.values, opened.high.values)
        shares.append(opened.whole.values - plain.whole.values)
    points = range(1, size + 1)
    for prime, values in zip(committee.system.primes, np.array(shares).swapaxes(0, 1), strict=True):
        found = coefficients([[int(one) for one in row] for row in values], points, prime)
        assert not any(found[0]), "0 at 0"
        assert not any(map(any, found[degree + 1 :])), "of this degree"
        for coefficient in found[1 : degree + 1]:
            assert stats.kstest(np.array(coefficient) / prime, "uniform").pvalue > 1e-6


def coefficients(rows, points, prime):
    """Of the polynomials with these values at the points, the coefficients from the constant one up."""
    powers = [[pow(point, power, prime) for power in range(len(points))] for point in points]
    inverse = flint.nmod_mat(powers, prime).inv()
    found = [int(one) for one in (inverse * flint.nmod_mat(rows, prime)).entries()]
    return [found[start : start + len(rows[0])] for start in range(0, len(found), len(rows[0]))]


def test_what_a_seat_hears_does_not_depend_on_the_coin(play):
    """What the second and the third seat hear is uniform, whatever their own bits and the coin are.

    So is what they could put together of it with all that they know: without k3 the second seat would find u, the sum
    of the first seat's bits, in what it hears, and without k2 the third seat would.
    """
    count, committee = 8000, make(3, 1, 1)
    prime = committee.system.primes[0]
    keys = {group: Stream.fresh().bytes(32) for group in groups(committee)}
    pairs = {frozenset(pair): Stream.fresh().bytes(32) for pair in combinations(committee.seats, 2)}
    heard = {name: [] for name in committee.seats}

    def common(name):
        return CommonKeys(
            name, committee, keys, {peer: pairs[frozenset((name, peer))] for peer in committee.seats if peer != name}
        )

    def spy(made):
        hand = made.hand
        own = []

        def listen(recv, kind, most):
            fields = recv(kind, most)
            if kind == "share":
                heard[hand.name].append(np.asarray(fields["words"], dtype=float).reshape(-1))
            return fields

        group_bits = made.bits.group_bits

        def known(words, count):
            own.extend(masks.unpacked(one, count).reshape(-1) for one in words)
            return group_bits(words, count)

        made.bits.group_bits = known
        for link in hand.links.values():
            link.recv = partial(listen, link.recv)
        return own

    found = opened(play, 1, count, primes=1, before=spy, common=common)
    coin = found["n0"][0].reshape(-1)
    assert [len(heard[name]) for name in committee.seats] == [0, 2, 1]
    # Groups are in the order {n0, n1}, {n0, n2}, {n1, n2}: the last bit of n1 and of n2 is v.
    (_, v), (_, same) = (found[name][2] for name in ("n1", "n2"))
    assert np.array_equal(v, same)
    sign = 1 - 2 * v
    less, rest = heard["n1"]
    m = committee.system.uniform((count,), common("n2").pair_stream("n0", "n2"))[0]
    seen = {"n1": (less, rest, less + sign * rest), "n2": (*heard["n2"], (heard["n2"][0] - v) * sign + m)}
    for name, numbers in seen.items():
        one, other = found[name][2]
        cells = [(one == a) & (other == b) & (coin == c) for a, b, c in product((0, 1), repeat=3)]
        assert min(cell.sum() for cell in cells) > count / 10
        for values in numbers:
            for cell in cells:
                assert stats.kstest((values[cell] % prime + 0.5) / prime, "uniform").pvalue > 1e-6
