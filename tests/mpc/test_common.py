"""Randomness in common: what it adds up to, and what any few seats see of it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from colonnade.errors import ProtocolError
from colonnade.mpc import PRIMES
from colonnade.mpc.common import CommonKeys, groups
from colonnade.mpc.residues import FEW
from colonnade.mpc.shamir import combine, interpolate
from colonnade.randomness import Stream
from tests.support.errors import raises

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
    with raises(ValueError, "VA082"):
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


@pytest.mark.parametrize(
    ("size", "threshold", "shape"),
    [*((*size, shape) for size in SIZES for shape in [(1,), (4, 10)]), (3, 1, (FEW // 2,)), (3, 1, (FEW // 2 + 1,))],
)
def test_masks_of_seats_that_saw_the_same_are_sharings_of_zero(size, threshold, shape):
    committee = make(size, threshold)
    seats = fresh(committee)
    for degree in range(threshold + 1, 2 * threshold + 1):
        first, second = (
            {committee.point(seat): common.zero(shape, degree, b"seen") for seat, common in seats.items()}
            for _ in range(2)
        )
        for zero in (first, second):
            assert not interpolate(committee.system, zero, degree).any()
            points = sorted(zero)[:degree]
            lower = combine(committee.system, [zero[point] for point in points], points, 0)
            assert lower.shape == (2, *shape)
            assert lower.any(), "the degree is no lower"
        assert not np.array_equal(first[1], second[1])


@pytest.mark.parametrize(("size", "threshold"), SIZES)
def test_masks_of_a_seat_that_saw_something_else_are_no_sharing_of_zero(size, threshold):
    committee = make(size, threshold)
    zero = {
        committee.point(seat): common.zero((40,), 2 * threshold, b"other" if seat == "n0" else b"seen")
        for seat, common in fresh(committee).items()
    }
    points = sorted(zero)[: 2 * threshold + 1]
    assert len(np.unique(combine(committee.system, [zero[point] for point in points], points, 0))) > 70


class Still:
    """A stream of a known key: what an observer subtracts is the same for every number."""

    def uint32(self, shape):
        return np.full(shape, 3, dtype=np.uint32)


@pytest.mark.parametrize("seen", [None, b"seen"])
@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (5, 2)])
def test_whoever_lacks_one_key_sees_uniform_shares(monkeypatch, size, threshold, seen):
    """All parts fixed but that of the one group without the first seats; everything else must still be uniform."""
    prime, draws = 11, 4000
    committee = make(size, threshold, (prime,))
    unknown, real = committee.seats[threshold:], CommonKeys._read

    def read(common, seen):
        streams = real(common, seen)
        held = [group for group, _ in common.streams]
        return [stream if group == unknown else Still() for group, stream in zip(held, streams, strict=True)]

    monkeypatch.setattr(CommonKeys, "_read", read)
    seats = fresh(committee)
    zero = {committee.point(seat): common.zero((draws,), 2 * threshold, seen) for seat, common in seats.items()}
    assert all(len(np.unique(zero[committee.point(seat)])) == 1 for seat in committee.seats[:threshold])
    cells = np.zeros(draws, dtype=int)
    for seat in unknown[:threshold]:
        cells = cells * prime + zero[committee.point(seat)][0].astype(int) + prime // 2
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
        with raises(ProtocolError, "MS049", "n0"):
            _ = hand.common

    play(committee, {"n0": liar, "n1": seat, "n2": seat})
