"""Committees: what is dealt, computed, lowered and opened, with randomness in common, and what few seats see of it."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from colonnade.errors import PeerLost, ShareError
from colonnade.mpc import PRIMES, ResidueSystem, ShareEngine, Shares, shamir
from colonnade.mpc.messages import pack, unpack
from colonnade.mpc.residues import CHUNK, FEW
from colonnade.mpc.shamir import CommonKeys, complete_shares, evaluate_at, key_groups, reconstruct, split_replicated
from colonnade.randomness import Stream, new_key
from tests.support.errors import refused

from .conftest import dealt, make, opened

SIZES = [(3, 1), (4, 1), (5, 1), (5, 2), (7, 3)]
shapes = st.tuples(st.integers(3, 7), st.integers(1, 3)).filter(lambda s: 2 * s[1] < s[0])


@settings(max_examples=25, deadline=None)
@given(shapes, st.integers(1, 60), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**31))
def test_an_opened_product_of_shares_is_the_plain_product(play, shape, rows, a, b, seed):
    rng = np.random.default_rng(seed)
    left, right = rng.integers(-5000, 5000, (rows, a)), rng.integers(-5000, 5000, (rows, b))

    def seat(hand):
        product = hand.inner(dealt(hand, "n0", left), dealt(hand, "n1", right))
        return opened(hand, hand.add([product, hand.zero(product.shape, product.degree)]))

    assert all(np.array_equal(found, left.T @ right) for found in play(make(*shape), seat).values())


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (5, 2)])
def test_shares_modulo_many_primes_are_shares_modulo_the_first_ones(play, size, threshold):
    """One hand for both arithmetics: products of wide shares, cut to fewer primes, are multiplied and opened there."""
    left, right = np.arange(-6, 6), np.arange(12)[::-1] * 3

    def seat(hand):
        many = hand.with_system(ResidueSystem(PRIMES[:5]))
        x, y = dealt(many, "n0", left), dealt(hand, "n1", right)
        square = many.reduce_degree(many.multiply(x, x))
        product = hand.multiply(Shares(square.values[:2], square.degree), y)
        return opened(hand, hand.add([product, hand.zero(product.shape, product.degree)]))

    assert all(np.array_equal(found, left**2 * right) for found in play(make(size, threshold), seat).values())


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (5, 2)])
def test_any_threshold_shares_are_uniform_whatever_the_secret(size, threshold):
    """Over a small prime the joint distribution of the shares can be tested cell by cell; one more share shows it."""
    prime, draws = 11, 3000
    system, nodes = ResidueSystem((prime,)), range(1, size + 1)

    def pvalue(group):
        cells = np.zeros(draws, dtype=int)
        for node in group:
            cells = cells * prime + shares[node][0].astype(int) + prime // 2
        return stats.chisquare(np.bincount(cells, minlength=prime ** len(group))).pvalue

    for secret in (0.0, 4.0):
        seeds = {node: new_key() for node in list(nodes)[1 : threshold + 1]}
        streams = {node: Stream(seed) for node, seed in seeds.items()}
        others = [node for node in nodes if node not in seeds]
        shares = complete_shares(system, np.full((1, draws), secret), streams, others)
        shares |= {node: system.uniform((draws,), Stream(seed)) for node, seed in seeds.items()}
        for group in list(combinations(nodes, min(threshold, 2)))[:8]:
            assert pvalue(group) > 1e-9, (secret, group)
        assert np.all(reconstruct(system, shares, threshold) == secret)
        assert threshold > 1 or pvalue((1, 3)) < 1e-12


@pytest.mark.parametrize("secret", [0, 3])
def test_what_is_opened_of_a_product_and_what_lowering_sends_is_uniform(play, secret):
    """Shares of one product under a sharing of zero tell nothing but the product; a lowered one is dealt anew."""
    draws = 4000

    def seat(hand):
        product = hand.multiply(dealt(hand, "n0", np.full(draws, secret)), dealt(hand, "n1", np.ones(draws)))
        hidden = hand.add([product, hand.zero(product.shape, product.degree)])
        return hidden.values[0].astype(int) + 5, hand.reduce_degree(product).values[0].astype(int) + 5

    shares = play(make(3, 1, (11,)), seat)
    pair = shares["n0"][0] * 11 + shares["n1"][0]
    assert stats.chisquare(np.bincount(pair, minlength=121)).pvalue > 1e-9
    for _, lowered in shares.values():
        assert stats.chisquare(np.bincount(lowered, minlength=11)).pvalue > 1e-9


def test_corrupted_spare_shares_and_too_few_of_them_open_nothing():
    system = ResidueSystem(PRIMES[:2])
    secret = system.to_residues(np.arange(10))
    shares = complete_shares(system, secret, {2: Stream.fresh()}, [1, 3])
    shares[4] = complete_shares(system, secret, {2: Stream.fresh()}, [4])[4]
    refused(ShareError, "SH008", reconstruct, system, shares, 1)
    refused(ShareError, "SH007", "2", reconstruct, system, {1: shares[1], 3: shares[3]}, 2)


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
    secret = np.arange(-6, 6)

    def seat(hand):
        share = dealt(hand, "n4", secret)
        square = hand.multiply(share, share)
        masks = [hand.zero(secret.shape, degree) for degree in degrees]
        if hand.name in lost:
            return None
        hand.links = hand.links | {name: Gone(spare(name)) for name in lost}
        found = [opened(hand, hand.add([square, mask]), 100) for mask in masks]
        low = hand.system.low_word(hand.open_among_seats(hand.add([square, masks[0]])))
        assert all(np.array_equal(values, secret**2) for values in (*found, low.view(np.int64)))
        return hand.lost

    for name, missed in play(make(5, 1), seat).items():
        assert name in lost or missed == list(lost)


@pytest.mark.parametrize(
    ("lost", "said_of", "degrees", "said"),
    [
        (("n0", "n1", "n2"), "itself", (2, 2), "n0, n1, n2 are lost: 2 of 5 seats are left, and this opening takes 3"),
        (("n2",), "itself", (2, 4), "n2 is lost: 4 of 5 seats are left"),  # who was spare may be needed later
        (("n3",), None, (2, 2), "it has not been heard of"),
        (("n3",), "n1", (2, 2), "it has not been heard of"),
    ],
    ids=["too few", "needed later", "the end", "the end, said of another"],
)
def test_openings_say_who_is_lost_where_they_cannot_go_on(play, lost, said_of, degrees, said):
    """At the end of a study somebody else was lost whom everybody needs; then every link raises the same."""
    with pytest.raises(PeerLost, match=f"^{said}"):
        open_without(play, lost, lambda seat: seat if said_of == "itself" else said_of, degrees)


def test_committees_that_hide_nothing_or_cannot_multiply_dealers_without_seats_and_too_high_degrees_are_refused():
    for size, threshold in [(2, 0), (3, 0), (4, 2), (8, 3), (0, 1)]:
        refused(ValueError, "VA080|VA081", make, size, threshold)
    hand = ShareEngine("n0", make(0, 0), {}, before_sharing=lambda: pytest.fail("something is announced"))
    assert not hand.has_seat
    refused(ValueError, "VA097", hand.deal, np.arange(3))
    hand = ShareEngine("n0", make(3, 1), {}, common=fresh(make(3, 1))["n0"])
    refused(ValueError, "VA099", hand.reduce_degree, Shares(np.zeros((2, 4)), 3))


# --- randomness in common


@pytest.mark.parametrize(
    ("size", "threshold", "shape"),
    [*((*size, (4, 10)) for size in SIZES), (3, 1, (1,)), (3, 1, (FEW // 2,)), (3, 1, (FEW // 2 + 1,))],
)
@pytest.mark.parametrize("seen", [None, b"seen"])
def test_sharings_of_zero_lie_on_one_polynomial_of_their_degree(size, threshold, shape, seen):
    committee = make(size, threshold)
    seats = fresh(committee)
    for degree in range(threshold + 1, 2 * threshold + 1):
        first, second = (
            {committee.point(seat): common.zero(shape, degree, seen) for seat, common in seats.items()}
            for _ in range(2)
        )
        assert not reconstruct(committee.system, first, degree).any()
        points = sorted(first)[:degree]
        lower = evaluate_at(committee.system, [first[point] for point in points], points, 0)
        assert lower.shape == (2, *shape)
        assert lower.any(), "the degree is no lower"
        assert not np.array_equal(first[1], second[1])
    refused(ValueError, "VA082", seats["n0"].zero, shape, threshold)


@pytest.mark.parametrize("lost", [("n0",), ("n4",), ("n1", "n3")])
def test_openings_go_on_without_spare_seats(play, lost):
    open_without(play, lost)


def test_what_a_seat_deals_is_not_sent_to_those_who_can_draw_it(play):
    """Nor does a dealer without a seat send shares to as many as the threshold: they get a seed."""
    committee, secret = make(5, 2), np.arange(1000)

    def seat(hand):
        mine = dealt(hand, "n0", secret)
        sent = [[field for fields in link.sent for field in fields] for link in hand.links.values()]
        assert hand.name != "n0" or sent == [["keys"], ["keys"], ["keys", "words"], ["keys", "words"], []]
        hand.send_opening(hand.add([mine, hand.receive("owner", secret.shape)]), ["owner"])

    def owner(hand):
        assert hand.deal(secret) is None
        assert [len(link.sent[0].get("seed", b"")) for link in hand.links.values()] == [32, 32, 0, 0, 0]
        return hand.receive_opening(secret.shape, degree=2, bound=2000)

    found = play(committee, dict.fromkeys(committee.seats, seat) | {"owner": owner})["owner"]
    assert np.array_equal(found, 2 * secret)


@pytest.mark.parametrize("bound", [100, 2**70])
def test_who_tells_an_opened_value_beyond_the_bound_is_named(play, bound):
    values = np.array([0, -bound - 1], dtype=np.int64 if bound < 2**63 else object)

    def seat(hand):
        return hand.send_opened(values, ["n1"]) if hand.name == "n0" else hand.receive_opened("n0", (2,), bound)

    refused(ShareError, "SH009", "n0", play, make(3, 1, PRIMES[:4]), {"n0": seat, "n1": seat})


@settings(max_examples=15, deadline=None)
@given(shapes, st.integers(0, 2**31), st.integers(-(2**70), 2**70))
def test_lowering_the_degree_lets_products_go_on(play, shape, seed, factor):
    values = np.random.default_rng(seed).integers(-1000, 1000, (3, 7))

    def seat(hand):
        first, second, third = (dealt(hand, f"n{i}", value) for i, value in enumerate(values))
        pair = hand.reduce_degree(hand.multiply(first, second))
        assert pair.degree == shape[1]
        product = hand.shift(hand.scale(hand.multiply(pair, third), factor), -factor)
        return opened(hand, hand.add([product, hand.zero(product.shape, product.degree)]), 2**105)

    want = values.astype(object).prod(axis=0) * factor - factor
    assert all((found == want).all() for found in play(make(*shape, PRIMES[:8]), seat).values())


def fresh(committee, keys=None):
    """All seats' common randomness, from keys of the groups, by default new ones."""
    keys = keys or {group: Stream.fresh().bytes(32) for group in key_groups(committee)}
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


@pytest.mark.parametrize(("size", "threshold", "count"), [(3, 1, 1), (3, 1, 40_000), (5, 2, 40), (7, 3, 40)])
def test_a_sharing_of_zero_is_the_same_where_it_is_added(size, threshold, count):
    committee = make(size, threshold, PRIMES[:2])
    keys = {group: Stream.fresh().bytes(32) for group in key_groups(committee)}
    one, other = fresh(committee, keys), fresh(committee, keys)
    for degree in range(threshold + 1, 2 * threshold + 1):
        for seat in committee.seats:
            zero, before = one[seat].zero((count,), degree), np.arange(2.0 * count).reshape(2, count)
            target = before.copy()
            other[seat].add_zero(target, degree)
            assert zero.any()
            assert np.array_equal(committee.system.reduce(target - before), zero)


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
    assert stats.chisquare(np.bincount(cells, minlength=prime**threshold)).pvalue > 1e-9


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

    found = play(committee, seat)
    for group in key_groups(committee):
        assert len({found[name][0][group] for name in group}) == 1
        assert all(group not in found[name][0] for name in committee.seats if name not in group)
    for a, b in combinations(committee.seats, 2):
        assert found[a][1][a, b] == found[b][1][b, a][::-1]
    assert len({bytes_ for held, _ in found.values() for bytes_ in held.values()}) == len(key_groups(committee))


# --- what a dealer sends: shares on lines and polynomials, and parts that add up


KEY = bytes(range(32))


COUNTS = [FEW // 2 + 1, FEW + 2, 2 * CHUNK, 2 * CHUNK + 1]


def extremes(system: ResidueSystem, count: int) -> np.ndarray:
    """Residues that include the largest and the smallest, different modulo every prime."""
    edges = [np.array([-(p // 2), p // 2, 0, 1, -1, p // 2 - 1, p // 3]) for p in system.primes]
    return np.stack([np.resize(row, count).astype(float) for row in edges])


def same_as_polynomials(system, secret, drawn, own, others):
    """Seats that draw their shares, by point; what the dealer keeps and sends is what polynomials say."""

    def streams():
        return {point: Stream(bytes([point]) * 32) for point in drawn}

    whole = complete_shares(system, secret, streams(), [*others, *([] if own is None else [own])])
    mine, sent = shamir.deal_shares(system, secret, streams(), own, others)
    assert list(sent) == list(others)
    assert mine is None if own is None else np.array_equal(mine, whole[own])
    assert all(np.array_equal(sent[node], pack(whole[node], system)) for node in others)


@pytest.mark.parametrize("size", [3, 4, 5, 7])
def test_lines_give_the_shares_of_polynomials(size):
    """Every dealer and every seat that draws, for secrets at the edges of the residues, modulo every prime."""
    system, nodes = ResidueSystem(PRIMES if size == 3 else PRIMES[:3]), range(1, size + 1)
    secret = extremes(system, FEW // 3 + 1)
    for own in (None, *nodes) if size < 5 else (None, 1, size - 1):
        for point in nodes:
            if point != own:
                same_as_polynomials(system, secret, [point], own, [n for n in nodes if n not in (own, point)])


@pytest.mark.parametrize("count", COUNTS)
def test_any_number_of_small_integers(count):
    """What has the same residues modulo all primes is stored once; chunks may be full, and padding is empty."""
    system, half = ResidueSystem(PRIMES[:2]), PRIMES[1] // 2
    values = np.resize(np.array([1 - half, half - 1, 0.0, -3.0, 7.0]), (count, 1))
    secret = system.to_residues(values)
    assert secret.strides[0] == 0
    same_as_polynomials(system, secret, [3], 2, [1])


@pytest.mark.parametrize("size", [(2, 10), (1, FEW), (2, FEW)])
def test_several_drawn_shares_few_numbers_and_rows_that_are_not_contiguous(size):
    primes, count = size
    system = ResidueSystem(PRIMES[:primes])
    secret = extremes(system, count)
    apart = extremes(system, 2 * count).reshape(primes, 2, -1).transpose(0, 2, 1)
    same_as_polynomials(system, secret, [2, 3], 1, [4, 5])
    for rows in (secret, apart, apart[:, ::2]):
        same_as_polynomials(system, rows, [2], 1, [3])


# --- parts


def uniform(values):
    return stats.chisquare(np.bincount(values[0].astype(int) + 5, minlength=11)).pvalue > 1e-9


@pytest.mark.parametrize("secret", [0.0, 4.0, -5.0])
@pytest.mark.parametrize("count", [3000, FEW + 1])
def test_what_is_drawn_and_what_is_sent_is_uniform_whatever_the_secret(secret, count):
    """The share that is sent and the share that is drawn, each alone, over a small prime; and both parts."""
    system = ResidueSystem((11,))
    for point, own, other in ((2, 1, 3), (3, 2, 1), (1, 3, 2)):
        mine, sent = shamir.deal_shares(system, np.full((1, count), secret), {point: Stream(KEY)}, own, [other])
        shares = {own: mine, other: unpack(sent[other], (count,), system, "bank")}
        assert np.all(reconstruct(system, shares, 1) == secret)
        assert all(uniform(share) for share in shares.values())
    drawn, _, sent = parts_of(system, np.full((1, count), secret))
    assert all(uniform(part) for part in (drawn, sent))


@pytest.mark.parametrize("divisor", range(1, 8))
def test_exact_division(divisor):
    """All numbers modulo a small prime, and numbers over all of the large ones."""
    for prime in (11, 8191, *PRIMES):
        step = 1 if prime < 2**20 else 997
        values = np.append(np.arange(0, prime, step, dtype=np.uint32), np.uint32(prime - 1))
        quotients = values.copy()
        shamir._divide(quotients, divisor, prime, np.empty_like(values))
        assert quotients.max() < prime
        assert np.array_equal(quotients.astype(np.int64) * divisor % prime, values)


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (5, 2)])
def test_many_numbers_are_dealt_and_opened(play, size, threshold):
    """Over messages, by dealers with and without a seat, and with a degree that is lowered."""
    committee = make(size, threshold)
    secret = np.resize(np.arange(-4000, 4000), (FEW // 2 + 1,))

    def seat(hand):
        own = dealt(hand, "n1", secret)
        return opened(hand, hand.reduce_degree(hand.multiply(own, hand.receive("owner", secret.shape))))

    found = play(committee, dict.fromkeys(committee.seats, seat) | {"owner": lambda hand: hand.deal(secret)})
    assert found.pop("owner") is None
    assert all(np.array_equal(values, secret**2) for values in found.values())


def parts_of(system, secret):
    """U as the seat that follows draws it, V as the dealer keeps and sends it; together they are the secret."""
    kept, sent = split_replicated(system, secret, {2: Stream(KEY)}, 1, [3])
    shape = secret.shape[1:]
    drawn, told = system.uniform(shape, Stream(KEY)), unpack(sent[3], shape, system, "bank")
    assert np.array_equal(kept, told)
    assert np.array_equal(system.reduce(drawn + kept), secret)
    return drawn, kept, told


@pytest.mark.parametrize("count", [7, *COUNTS])
def test_parts_add_up_to_the_secret_at_the_edges_of_every_prime_and_where_residues_are_stored_once(count):
    system = ResidueSystem(PRIMES)
    _, kept, _ = parts_of(system, extremes(system, count))
    assert np.all(np.abs(kept).max(axis=1) <= np.array(PRIMES) // 2)
    small = ResidueSystem(PRIMES[:2]).to_residues(np.resize(np.arange(-900.0, 1000.0), (count, 1)))
    assert small.strides[0] == 0
    parts_of(ResidueSystem(PRIMES[:2]), small)


@pytest.mark.parametrize("drawn", [0, 1, -1, 5])
def test_the_largest_and_the_smallest_drawn_words(monkeypatch, drawn):
    """The word that is computed without a reduction, for every edge of the drawn word and of the secret."""
    prime = PRIMES[1]
    word = drawn % prime
    monkeypatch.setattr(
        "colonnade.mpc.shamir.uniform_words", lambda p, n, stream: np.full(n, word % p, dtype=np.uint32)
    )
    system, half = ResidueSystem((prime,)), prime // 2
    secret = np.resize(np.array([-half, half, 0.0, 1.0, -1.0, 5.0 - half, half - 5.0]), (1, FEW + 1))
    kept, sent = split_replicated(system, secret, {2: Stream(KEY)}, 1, [3])
    want = system.reduce(secret - (word - half))
    assert np.array_equal(kept, want)
    assert np.array_equal(unpack(sent[3], (FEW + 1,), system, "bank"), want)


@pytest.mark.parametrize(
    ("name", "seats", "active"),
    [("x", 3, False), ("n0", 4, False), ("n0", 3, True)],
    ids=["no seat", "four", "checked"],
)
def test_only_one_of_three_seats_that_are_not_checked_deals_in_parts(name, seats, active):
    hand = ShareEngine(name, make(seats, 1, active=active), {}, lambda: pytest.fail("it has begun"))
    refused(ValueError, "VA098", hand.deal, np.zeros(4), parts=True)
