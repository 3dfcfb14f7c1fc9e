"""Randomness in common: what it adds up to, and what any few seats see of it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from colonnade.errors import ProtocolError
from colonnade.mpc import PRIMES
from colonnade.mpc.common import CommonKeys, groups
from colonnade.mpc.shamir import combine, interpolate
from colonnade.randomness import Stream

from .conftest import make

SIZES = [(3, 1), (4, 1), (5, 1), (5, 2), (7, 3)]


def with_keys(committee, keys):
    """All seats' common randomness, from the keys of the groups."""
    pairs = {frozenset(pair): Stream.fresh().bytes(32) for pair in combinations(committee.seats, 2)}
    return {
        seat: CommonKeys(
            seat,
            committee,
            {group: key for group, key in keys.items() if seat in group},
            {peer: pairs[frozenset((seat, peer))] for peer in committee.seats if peer != seat},
        )
        for seat in committee.seats
    }


def fresh(committee):
    return with_keys(committee, {group: Stream.fresh().bytes(32) for group in groups(committee)})


@pytest.mark.parametrize(("size", "threshold"), SIZES)
def test_shares_lie_on_one_polynomial(size, threshold):
    committee = make(size, threshold)
    seats = fresh(committee)
    uniform = {
        committee.point(seat): common.share_of_sum(common.system.uniform((40,), stream) for _, stream in common.streams)
        for seat, common in seats.items()
    }
    assert len(np.unique(interpolate(committee.system, uniform, threshold))) > 70
    for degree in range(threshold + 1, 2 * threshold + 1):
        zero = {committee.point(seat): common.zero((40,), degree) for seat, common in seats.items()}
        assert not interpolate(committee.system, zero, degree).any()
        points = sorted(zero)[:degree]
        assert combine(committee.system, [zero[point] for point in points], points, 0).any(), "the degree is no lower"
    with pytest.raises(ValueError, match="no sharing of zero"):
        seats["n0"].zero((1,), threshold)


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (4, 1), (5, 2), (7, 3)])
@pytest.mark.parametrize("count", [1, 40, 40_000])
def test_a_sharing_of_zero_is_the_same_where_it_is_added(size, threshold, count):
    committee = make(size, threshold, PRIMES[:2])
    keys = {group: Stream.fresh().bytes(32) for group in groups(committee)}
    one, other = with_keys(committee, keys), with_keys(committee, keys)
    for degree in range(threshold + 1, 2 * threshold + 1):
        for seat in committee.seats:
            zero, before = one[seat].zero((count,), degree), np.arange(2.0 * count).reshape(2, count)
            target = before.copy()
            other[seat].add_zero(target, degree)
            assert zero.any()
            assert np.array_equal(committee.system.reduce(target - before), zero)


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (5, 2)])
def test_whoever_lacks_one_key_sees_uniform_shares(size, threshold):
    """All keys fixed but that of the one group without the first seats; everything else must still be uniform."""
    prime, draws = 11, 4000
    committee = make(size, threshold, (prime,))
    known = {group: bytes([7]) * 32 for group in groups(committee)}
    known[committee.seats[threshold:]] = Stream.fresh().bytes(32)
    seats = with_keys(committee, known)
    zero = {committee.point(seat): common.zero((draws,), 2 * threshold) for seat, common in seats.items()}
    outside = [committee.point(seat) for seat in committee.seats[threshold:]]
    cells = np.zeros(draws, dtype=int)
    for point in outside[:threshold]:
        cells = cells * prime + zero[point][0].astype(int) + prime // 2
    assert stats.chisquare(np.bincount(cells, minlength=prime**threshold)).pvalue > 1e-6


def test_the_coins_of_the_seats_are_agreed_upon(play):
    committee = make(5, 2)

    def seat(hand):
        common = hand.common
        assert hand.common is common
        return {group: stream.bytes(16) for group, stream in common.streams}, {
            (hand.name, peer): (
                common.pair_stream(hand.name, peer).bytes(16),
                common.pair_stream(peer, hand.name).bytes(16),
            )
            for peer in committee.seats
            if peer != hand.name
        }

    found = play(committee, dict.fromkeys(committee.seats, seat))
    for group in groups(committee):
        assert len({found[name][0][group] for name in group}) == 1
        assert all(group not in found[name][0] for name in committee.seats if name not in group)
    for a, b in combinations(committee.seats, 2):
        assert found[a][1][a, b] == found[b][1][b, a][::-1]
    assert len({bytes_ for held, _ in found.values() for bytes_ in held.values()}) == len(groups(committee))


def test_what_is_no_key_is_refused(play):
    committee = make(3, 1)

    def liar(hand):
        for peer in ("n1", "n2"):
            hand.links[peer].send("keys", keys=[b"short"] * 3)

    def seat(hand):
        if hand.name == "n1":
            hand.links["n2"].send("keys", keys=[bytes(32), bytes(32)])
        with pytest.raises(ProtocolError, match="n0 sent"):
            _ = hand.common

    play(committee, {"n0": liar, "n1": seat, "n2": seat})
