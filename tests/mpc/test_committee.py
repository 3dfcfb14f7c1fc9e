from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from colonnade.errors import PeerLost, ProtocolError, ShareError
from colonnade.mpc import PRIMES, Committee, Hand, ResidueSystem, Shares
from colonnade.mpc.shamir import complete, interpolate
from colonnade.randomness import Stream, new_key
from tests.support.errors import raises

from .conftest import make

shapes = st.tuples(st.integers(3, 7), st.integers(1, 3)).filter(lambda s: 2 * s[1] < s[0])


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


def test_a_sum_has_the_shape_of_its_first_term_and_leaves_all_terms_alone():
    hand = Hand("owner", make(3, 1), {})
    values = [np.full((2, 3), float(value)) for value in (1, PRIMES[1] // 2, 5)]
    for count in (1, 2, 3):
        total = hand.add([Shares(one, degree) for degree, one in enumerate(values[:count])])
        assert total.degree == count - 1
        due = [float((sum((1, PRIMES[1] // 2, 5)[:count]) + p // 2) % p - p // 2) for p in PRIMES[:2]]
        assert total.values.tolist() == [[one] * 3 for one in due]
        total.values[...] = 0.0
    assert [one[0, 0] for one in values] == [1, PRIMES[1] // 2, 5]
    for terms in ((values[0][:, :1], values[1]), (values[0][:, 0], values[1]), (values[0], values[1][None])):
        with pytest.raises(ValueError, match="broadcast"):
            hand.add([Shares(one, 1) for one in terms])


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


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (5, 2)])
def test_shares_modulo_many_primes_are_shares_modulo_the_first_ones(play, size, threshold):
    """One hand for both arithmetics: products of wide shares, cut to fewer primes, are multiplied and opened there."""
    committee, wide = make(size, threshold), ResidueSystem(PRIMES[:5])
    left, right = np.arange(-6, 6), np.arange(12)[::-1] * 3

    def seat(hand):
        many = hand.over(wide)
        x = many.deal(left) if hand.name == "n0" else many.receive("n0", left.shape)
        y = hand.deal(right) if hand.name == "n1" else hand.receive("n1", right.shape)
        square = many.lower(many.multiply(x, x))
        product = hand.multiply(Shares(square.values[:2], square.degree), y)
        total = hand.add([product, hand.zero(product.shape, product.degree)])
        hand.send_opening(total, committee.seats)
        return hand.receive_opening(total.shape, degree=total.degree, bound=2**40, own=total)

    for opened in play(committee, dict.fromkeys(committee.seats, seat)).values():
        assert np.array_equal(opened, left**2 * right)


def test_a_hand_over_other_primes_announces_itself_once_and_shares_what_it_lost():
    said = []
    hand = Hand("n0", make(3, 1), {}, lambda: said.append("announced"))
    other = hand.over(ResidueSystem(PRIMES[:4]))
    other.announce()
    hand.announce()
    other.lost.append("n2")
    assert said == ["announced"]
    assert hand.lost == ["n2"]


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (4, 1), (5, 2), (7, 3)])
def test_any_threshold_shares_are_uniform_whatever_the_secret(size, threshold):
    """Over a small prime the joint distribution of the shares can be tested cell by cell."""
    prime, draws = 11, 3000
    system = ResidueSystem((prime,))
    nodes = range(1, size + 1)
    for secret in (0.0, 4.0):
        values = np.full((1, draws), secret)
        seeds = {node: new_key() for node in list(nodes)[1 : threshold + 1]}
        streams = {node: Stream(seed) for node, seed in seeds.items()}
        shares = complete(system, values, streams, [node for node in nodes if node not in seeds])
        shares |= {node: system.uniform((draws,), Stream(seed)) for node, seed in seeds.items()}
        for group in list(combinations(nodes, min(threshold, 2)))[:8]:
            cells = np.zeros(draws, dtype=int)
            for node in group:
                cells = cells * prime + shares[node][0].astype(int) + prime // 2
            counts = np.bincount(cells, minlength=prime ** len(group))
            assert stats.chisquare(counts).pvalue > 1e-5, (secret, group)
        opened = interpolate(system, shares, threshold)
        assert np.all(opened == secret)


def test_one_share_too_many_is_not_uniform():
    """The same test must see the difference as soon as threshold + 1 shares are pooled."""
    system, draws = ResidueSystem((11,)), 3000
    shares = complete(system, np.zeros((1, draws)), {2: Stream.fresh()}, [1, 3])
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
    shares = complete(system, secret, {2: Stream.fresh()}, [1, 3, 4])
    del shares[4]
    shares[4] = complete(system, secret, {2: Stream.fresh()}, [4])[4]
    with raises(ShareError, "SH008"):
        interpolate(system, shares, 1)


class Gone:
    """A link to a seat that is there no more; what is sent goes nowhere."""

    def __init__(self, spare):
        self.spare = spare

    def send(self, kind, /, **fields):
        """Nobody takes it."""

    def recv(self, kind, most, /):
        error = PeerLost("it has not been heard of; the study cannot go on")
        error.spare = self.spare
        raise error


def open_without(play, lost, spare=lambda seat: seat, degrees=(2, 2)):
    """Five seats of which some go after they have dealt: what the first of the others opens, one after the other."""
    committee = make(5, 1)
    secret = np.arange(-6, 6)

    def seat(hand):
        share = hand.deal(secret) if hand.name == "n4" else hand.receive("n4", secret.shape)
        square = hand.multiply(share, share)
        masks = [hand.zero(secret.shape, degree) for degree in degrees]
        if hand.name in lost:
            return None
        hand.links = hand.links | {name: Gone(spare(name)) for name in lost}
        opened = []
        for mask in masks:
            total = hand.add([square, mask])
            hand.send_opening(total, committee.seats)
            opened.append(hand.receive_opening(secret.shape, degree=total.degree, bound=100, own=total))
        low = hand.system.low_word(hand.open_among_seats(hand.add([square, masks[0]])))
        return [*opened, low.view(np.int64)], hand.lost

    for name, ended in play(committee, dict.fromkeys(committee.seats, seat)).items():
        if name not in lost:
            opened, missed = ended
            assert all(np.array_equal(values, secret**2) for values in opened)
            assert missed == list(lost)


@pytest.mark.parametrize("lost", [("n0",), ("n4",), ("n1", "n3")])
def test_openings_go_on_without_spare_seats(play, lost):
    open_without(play, lost)


def test_openings_say_who_is_lost_where_too_few_are_left(play):
    with raises(PeerLost, "PE003", "n0", "2", "5", "3"):
        open_without(play, ("n0", "n1", "n2"))


def test_who_was_spare_may_be_needed_later(play):
    with raises(PeerLost, "PE003", "n2", "4", "5"):
        open_without(play, ("n2",), degrees=(2, 4))


@pytest.mark.parametrize("said_of", [None, "n1"])
def test_the_end_of_the_study_is_not_taken_for_the_loss_of_a_seat(play, said_of):
    """Somebody else was lost whom everybody needs; then every link raises the same."""
    with pytest.raises(PeerLost, match=r"^it has not been heard of"):
        open_without(play, ("n3",), spare=lambda seat: said_of)


def test_too_few_shares_open_nothing():
    system = ResidueSystem(PRIMES[:1])
    with raises(ShareError, "SH007", "2"):
        interpolate(system, {1: np.zeros((1, 2)), 2: np.zeros((1, 2))}, 2)


def test_a_seed_travels_in_place_of_threshold_shares(play):
    committee = make(5, 2)
    secret = np.arange(1000)

    def owner(hand):
        hand.deal(secret)
        return [len(link.sent[0].get("seed", b"")) for link in hand.links.values()]

    programs = dict.fromkeys(committee.seats, lambda hand: hand.receive("owner", secret.shape)) | {"owner": owner}
    assert play(committee, programs)["owner"] == [32, 32, 0, 0, 0]


def test_what_a_seat_deals_is_not_sent_to_those_who_can_draw_it(play):
    committee = make(5, 2)
    secret = np.arange(1000)

    def seat(hand):
        if hand.name != "n0":
            return hand.receive("n0", secret.shape)
        mine = hand.deal(secret)
        assert [[field for fields in link.sent for field in fields] for link in hand.links.values()] == [
            ["keys"],
            ["keys"],
            ["keys", "words"],
            ["keys", "words"],
        ]
        return mine

    found = play(committee, dict.fromkeys(committee.seats, seat))
    shares = {committee.point(name): share.values for name, share in found.items()}
    assert np.array_equal(committee.system.join(interpolate(committee.system, shares, 2), 1000), secret)


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
        _ = hand.common
        for link in hand.links.values():
            link.send("share", **message)

    def seat(hand):
        return hand.common if hand.name == "n1" else hand.receive("n0", (3,))

    with raises(ProtocolError, "MS048|MS049", "n0"):
        play(committee, {"n0": dealer, "n1": seat, "n2": seat})


@pytest.mark.parametrize("bound", [100, 2**70])
def test_who_tells_an_opened_value_beyond_the_bound_is_named(play, bound):
    values = np.array([0, -bound - 1], dtype=np.int64 if bound < 2**63 else object)

    def seat(hand):
        return hand.tell_opened(values, ["n1"]) if hand.name == "n0" else hand.receive_opened("n0", (2,), bound)

    with raises(ShareError, "SH009", "n0"):
        play(make(3, 1, PRIMES[:4]), {"n0": seat, "n1": seat})


@pytest.mark.parametrize(("size", "threshold"), [(2, 0), (3, 0), (4, 2), (8, 3)])
def test_committees_that_hide_nothing_or_cannot_multiply_are_refused(size, threshold):
    with raises(ValueError, "VA080|VA081"):
        make(size, threshold)


def test_without_seats_nobody_deals_and_nothing_is_announced():
    announced = []
    committee = Committee((), 0, ResidueSystem(PRIMES[:1]))
    hand = Hand("n0", committee, {}, before_sharing=lambda: announced.append(1))
    assert not hand.seated
    with raises(ValueError, "VA097"):
        hand.deal(np.arange(3))
    assert announced == []
    with raises(ValueError, "VA080"):
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
        with raises(ValueError, "VA099"):
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
