from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from colonnade.errors import ProtocolError, ShareError
from colonnade.mpc import PRIMES, Committee, Hand, ResidueSystem, Shares
from colonnade.mpc.shamir import complete, interpolate
from colonnade.randomness import new_key

shapes = st.tuples(st.integers(3, 7), st.integers(1, 3)).filter(lambda s: 2 * s[1] < s[0])


def make(size, threshold, primes=PRIMES[:2]):
    return Committee(tuple(f"n{i}" for i in range(size)), threshold, ResidueSystem(primes))


@settings(max_examples=25, deadline=None)
@given(shapes, st.integers(1, 60), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**31))
def test_an_opened_product_of_shares_is_the_plain_product(play, shape, rows, a, b, seed):
    size, threshold = shape
    committee = make(size, threshold)
    rng = np.random.default_rng(seed)
    left, right = rng.integers(-5000, 5000, (rows, a)), rng.integers(-5000, 5000, (rows, b))

    def seat(hand):
        x = hand.deal(left) if hand.name == "n0" else hand.receive("n0", left.shape)
        y = hand.deal(right) if hand.name == "n1" else hand.receive("n1", right.shape)
        product = hand.inner(x, y)
        total = hand.add([product, hand.zero(product.shape, product.degree)])
        hand.send_opening(total, committee.seats)
        return hand.receive_opening(total.shape, degree=total.degree, bound=2**40, own=total)

    for opened in play(committee, dict.fromkeys(committee.seats, seat)).values():
        assert np.array_equal(opened, left.T @ right)


def test_a_dealer_without_a_seat_reaches_the_committee(play):
    committee = make(5, 2)
    secret = np.arange(-6, 6).reshape(3, 4)

    def seat(hand):
        share = hand.receive("owner", secret.shape)
        hand.send_opening(share, ["owner"])

    def owner(hand):
        assert hand.deal(secret) is None
        return hand.receive_opening(secret.shape, degree=2, bound=100)

    programs = dict.fromkeys(committee.seats, seat) | {"owner": owner}
    assert np.array_equal(play(committee, programs)["owner"], secret)


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (4, 1), (5, 2), (7, 3)])
def test_any_threshold_shares_are_uniform_whatever_the_secret(size, threshold):
    """Over a small prime the joint distribution of the shares can be tested cell by cell."""
    prime, draws = 11, 3000
    system = ResidueSystem((prime,))
    nodes = range(1, size + 1)
    for secret in (0.0, 4.0):
        values = np.full((1, draws), secret)
        seeds = {node: new_key() for node in list(nodes)[1 : threshold + 1]}
        shares = complete(system, values, seeds, [node for node in nodes if node not in seeds])
        shares |= {node: system_share(system, seed, draws) for node, seed in seeds.items()}
        for group in list(combinations(nodes, min(threshold, 2)))[:8]:
            cells = np.zeros(draws, dtype=int)
            for node in group:
                cells = cells * prime + shares[node][0].astype(int) + prime // 2
            counts = np.bincount(cells, minlength=prime ** len(group))
            assert stats.chisquare(counts).pvalue > 1e-5, (secret, group)
        opened = interpolate(system, shares, threshold)
        assert np.all(opened == secret)


def system_share(system, seed, draws):
    from colonnade.mpc.shamir import expand

    return expand(system, seed, (draws,))


def test_one_share_too_many_is_not_uniform():
    """The same test must see the difference as soon as threshold + 1 shares are pooled."""
    system, draws = ResidueSystem((11,)), 3000
    shares = complete(system, np.zeros((1, draws)), {2: new_key()}, [1, 3])
    cells = (shares[1][0] + 5) * 11 + shares[3][0] + 5
    assert stats.chisquare(np.bincount(cells.astype(int), minlength=121)).pvalue < 1e-12


def test_a_sharing_of_zero_hides_the_product_polynomial(play):
    """Opened shares of one product, re-randomised, tell nothing but the product: share by share uniform."""
    committee = make(3, 1, (11,))
    left, right = np.full((1, 2000), 3), np.full((1, 1), 2)

    def seat(hand):
        x = hand.deal(left) if hand.name == "n0" else hand.receive("n0", left.shape)
        y = hand.deal(right) if hand.name == "n1" else hand.receive("n1", right.shape)
        product = hand.inner(x, y)
        return hand.add([product, hand.zero(product.shape, product.degree)]).values

    shares = play(committee, dict.fromkeys(committee.seats, seat))
    pair = (shares["n0"].ravel() + 5) * 11 + shares["n1"].ravel() + 5
    assert stats.chisquare(np.bincount(pair.astype(int), minlength=121)).pvalue > 1e-5


def test_a_corrupted_spare_share_stops_the_opening():
    system = ResidueSystem(PRIMES[:2])
    secret = system.split(np.arange(10))
    shares = complete(system, secret, {2: new_key()}, [1, 3, 4])
    del shares[4]
    shares[4] = complete(system, secret, {2: new_key()}, [4])[4]
    with pytest.raises(ShareError, match="one polynomial"):
        interpolate(system, shares, 1)


def test_too_few_shares_open_nothing():
    system = ResidueSystem(PRIMES[:1])
    with pytest.raises(ShareError, match="2 shares cannot open"):
        interpolate(system, {1: np.zeros((1, 2)), 2: np.zeros((1, 2))}, 2)


def test_a_seed_travels_in_place_of_threshold_shares(play):
    committee = make(5, 2)
    secret = np.arange(1000)
    sizes = {}

    def seat(hand):
        if hand.name == "n0":
            hand.deal(secret)
            sizes.update({peer: link.sent[0].get("seed") for peer, link in hand._links.items()})
        else:
            hand.receive("n0", secret.shape)

    play(committee, dict.fromkeys(committee.seats, seat))
    assert [len(sizes[f"n{i}"] or b"") for i in (1, 2, 3, 4)] == [32, 32, 0, 0]


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"words": np.zeros((2, 6), dtype=np.uint32)},
        {"words": np.zeros((2, 3))},
        {"words": np.full((2, 3), 2**24 - 1, dtype=np.uint32)},
        {"words": np.full((2, 3), 2**31, dtype=np.uint32)},
    ],
)
def test_what_is_no_share_is_refused(play, message):
    committee = make(3, 1)

    def dealer(hand):
        for link in hand._links.values():
            link.send("share", **message)

    with pytest.raises(ProtocolError, match="n0"):
        play(committee, {"n0": dealer, "n2": lambda hand: hand.receive("n0", (3,)), "n1": lambda hand: None})


@pytest.mark.parametrize(("size", "threshold"), [(2, 0), (3, 0), (4, 2), (8, 3)])
def test_committees_that_hide_nothing_or_cannot_multiply_are_refused(size, threshold):
    with pytest.raises(ValueError, match=r"committee has|threshold of"):
        make(size, threshold)


def test_without_seats_nobody_deals_and_nothing_is_announced():
    announced = []
    committee = Committee((), 0, ResidueSystem(PRIMES[:1]))
    hand = Hand("n0", committee, {}, before_sharing=lambda: announced.append(1))
    assert not hand.seated
    with pytest.raises(ValueError, match="nobody has a seat"):
        hand.deal(np.arange(3))
    assert announced == []
    with pytest.raises(ValueError, match="committee has"):
        Committee((), 1, committee.system)


def test_scaling_by_a_public_integer():
    committee = make(3, 1)
    hand = Hand("n0", committee, {})
    shares = Shares(committee.system.split(np.array([1, -2, 3])).copy(), 1)
    assert committee.system.join(hand.scale(shares, -7).values, 100).tolist() == [-7, 14, -21]


def test_the_first_share_is_announced_once(in_threads):
    committee = make(3, 1)
    announced = []

    def dealer(links):
        hand = Hand(
            "n0", committee, links, before_sharing=lambda: announced.append([len(link.sent) for link in links.values()])
        )
        hand.deal(np.arange(3))
        hand.deal(np.arange(3))

    in_threads({"n0": dealer, "n1": lambda links: None, "n2": lambda links: None})
    assert announced == [[0, 0]]  # once, and before anything was sent


@settings(max_examples=15, deadline=None)
@given(shapes, st.integers(0, 2**31), st.integers(-(2**70), 2**70))
def test_lowering_the_degree_lets_products_go_on(play, shape, seed, factor):
    size, threshold = shape
    committee = make(size, threshold, PRIMES[:8])
    rng = np.random.default_rng(seed)
    values = [rng.integers(-1000, 1000, 7) for _ in range(3)]

    def seat(hand):
        parts = [
            hand.deal(value) if hand.name == f"n{i}" else hand.receive(f"n{i}", (7,)) for i, value in enumerate(values)
        ]
        pair = hand.lower(hand.multiply(parts[0], parts[1]))
        assert pair.degree == threshold
        product = hand.shift(hand.scale(hand.multiply(pair, parts[2]), factor), -factor)
        total = hand.add([product, hand.zero(product.shape, product.degree)])
        hand.send_opening(total, committee.seats)
        return hand.receive_opening(total.shape, degree=total.degree, bound=2**105, own=total)

    want = values[0].astype(object) * values[1] * values[2] * factor - factor
    for opened in play(committee, dict.fromkeys(committee.seats, seat)).values():
        assert (opened == want).all()


def test_a_degree_that_no_committee_opens_is_not_lowered(play):
    committee = make(3, 1)

    def seat(hand):
        with pytest.raises(ValueError, match="cannot lower"):
            hand.lower(Shares(np.zeros((2, 4)), 3))

    play(committee, dict.fromkeys(committee.seats, seat))


def test_what_lowering_sends_is_uniform_whatever_the_secret(play):
    """A seat's view of the reduction is the share it was dealt: uniform, for any product."""
    prime, draws = 11, 4000
    committee = Committee(("n0", "n1", "n2"), 1, ResidueSystem((prime,)))
    for secret in (0, 4):

        def seat(hand, secret=secret):
            dealt = np.full(draws, secret)
            left = hand.deal(dealt) if hand.name == "n0" else hand.receive("n0", (draws,))
            right = hand.deal(np.ones(draws)) if hand.name == "n1" else hand.receive("n1", (draws,))
            return hand.lower(hand.multiply(left, right)).values[0]

        for values in play(committee, dict.fromkeys(committee.seats, seat)).values():
            counts = np.bincount(values.astype(int) + prime // 2, minlength=prime)
            assert stats.chisquare(counts).pvalue > 1e-5
