"""What a dealer sends: shares on lines and polynomials, and parts that add up; exact at every edge, and uniform."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from colonnade.mpc import PRIMES, Hand, ResidueSystem
from colonnade.mpc.dealing import _divide, dealt
from colonnade.mpc.packing import pack, unpack
from colonnade.mpc.parts import around, on_polynomial, split
from colonnade.mpc.residues import CHUNK, FEW
from colonnade.mpc.shamir import complete, interpolate
from colonnade.randomness import Stream
from tests.support.errors import raises

from .conftest import dealt as share_of, make, opened

KEY = bytes(range(32))


COUNTS = [FEW // 2 + 1, FEW + 2, 2 * CHUNK, 2 * CHUNK + 1, 3 * CHUNK + 3]


def extremes(system: ResidueSystem, count: int) -> np.ndarray:
    """Residues that include the largest and the smallest, different modulo every prime."""
    edges = [np.array([-(p // 2), p // 2, 0, 1, -1, p // 2 - 1, p // 3]) for p in system.primes]
    return np.stack([np.resize(row, count).astype(float) for row in edges])


def same_as_polynomials(system, secret, drawn, own, others):
    """Seats that draw their shares, by point; what the dealer keeps and sends is what polynomials say."""

    def streams():
        return {point: Stream(bytes([point]) * 32) for point in drawn}

    whole = complete(system, secret, streams(), [*others, *([] if own is None else [own])])
    mine, sent = dealt(system, secret, streams(), own, others)
    assert list(sent) == list(others)
    assert mine is None if own is None else np.array_equal(mine, whole[own])
    assert all(np.array_equal(sent[node], pack(whole[node], system)) for node in others)
    return mine, sent


@pytest.mark.parametrize("size", [3, 4, 5, 7])
def test_lines_give_the_shares_of_polynomials(size):
    """Every dealer and every seat that draws, for secrets at the edges of the residues."""
    system, nodes = ResidueSystem(PRIMES[:3]), range(1, size + 1)
    secret = extremes(system, FEW // 3 + 1)
    for own in (None, *nodes) if size < 5 else (None, 1, size - 1):
        for point in nodes:
            if point != own:
                same_as_polynomials(system, secret, [point], own, [n for n in nodes if n not in (own, point)])


@pytest.mark.parametrize("prime", PRIMES)
def test_lines_modulo_every_prime(prime):
    system = ResidueSystem((prime,))
    for point, own, other in ((2, 1, 3), (3, 2, 1), (1, 3, 2)):
        same_as_polynomials(system, extremes(system, FEW + 1), [point], own, [other])


@pytest.mark.parametrize("count", COUNTS)
def test_any_number_of_small_integers(count):
    """What has the same residues modulo all primes is stored once; chunks may be full, and padding is empty."""
    system, half = ResidueSystem(PRIMES[:2]), PRIMES[1] // 2
    values = np.resize(np.array([1 - half, half - 1, 0.0, -3.0, 7.0]), (count, 1))
    secret = system.split(values)
    assert secret.strides[0] == 0
    mine, sent = same_as_polynomials(system, secret, [3], 2, [1])
    shares = {2: mine, 1: unpack(sent[1], (count, 1), system, "bank")}
    assert np.array_equal(interpolate(system, shares, 1)[1], values)


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
    return stats.chisquare(np.bincount(values[0].astype(int) + 5, minlength=11)).pvalue > 1e-5


@pytest.mark.parametrize("secret", [0.0, 4.0, -5.0])
@pytest.mark.parametrize("count", [3000, FEW + 1])
def test_what_is_drawn_and_what_is_sent_is_uniform_whatever_the_secret(secret, count):
    """The share that is sent and the share that is drawn, each alone, over a small prime; and both parts."""
    system = ResidueSystem((11,))
    for point, own, other in ((2, 1, 3), (3, 2, 1), (1, 3, 2)):
        mine, sent = dealt(system, np.full((1, count), secret), {point: Stream(KEY)}, own, [other])
        shares = {own: mine, other: unpack(sent[other], (count,), system, "bank")}
        assert np.all(interpolate(system, shares, 1) == secret)
        assert all(uniform(share) for share in shares.values())
    drawn, _, sent = parts_of(system, np.full((1, count), secret))
    assert uniform(drawn)
    assert uniform(sent)


@pytest.mark.parametrize("divisor", range(1, 8))
def test_exact_division(divisor):
    """All numbers modulo a small prime, and numbers over all of the large ones."""
    for prime in (11, 8191, *PRIMES):
        step = 1 if prime < 2**20 else 997
        values = np.append(np.arange(0, prime, step, dtype=np.uint32), np.uint32(prime - 1))
        quotients = values.copy()
        _divide(quotients, divisor, prime, np.empty_like(values))
        assert quotients.max() < prime
        assert np.array_equal(quotients.astype(np.int64) * divisor % prime, values)


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (4, 1), (5, 2)])
def test_many_numbers_are_dealt_and_opened(play, size, threshold):
    """Over messages, by dealers with and without a seat, and with a degree that is lowered."""
    committee = make(size, threshold)
    secret = np.resize(np.arange(-4000, 4000), (FEW // 2 + 1,))

    def seat(hand):
        own = share_of(hand, "n1", secret)
        return opened(hand, hand.lower(hand.multiply(own, hand.receive("owner", secret.shape))))

    found = play(committee, dict.fromkeys(committee.seats, seat) | {"owner": lambda hand: hand.deal(secret)})
    assert found.pop("owner") is None
    assert all(np.array_equal(values, secret**2) for values in found.values())


def parts_of(system, secret):
    """U as the seat that follows draws it, V as the dealer keeps and sends it; together they are the secret."""
    kept, sent = split(system, secret, {2: Stream(KEY)}, 1, [3])
    shape = secret.shape[1:]
    drawn, told = system.uniform(shape, Stream(KEY)), unpack(sent[3], shape, system, "bank")
    assert np.array_equal(kept, told)
    assert np.array_equal(system.reduce(drawn + kept), secret)
    return drawn, kept, told


@pytest.mark.parametrize("prime", PRIMES)
@pytest.mark.parametrize("count", [7, FEW, FEW + 1])
def test_parts_add_up_to_the_secret_at_the_edges(prime, count):
    half = prime // 2
    secret = np.resize(np.array([-half, half, 0.0, 1.0, -1.0, half - 1.0, 1.0 - half]), (1, count))
    _, kept, _ = parts_of(ResidueSystem((prime,)), secret)
    assert np.abs(kept).max() <= half


@pytest.mark.parametrize("count", COUNTS)
def test_parts_of_small_and_of_large_integers(count):
    system = ResidueSystem(PRIMES[:2])
    small = system.split(np.resize(np.arange(-900.0, 1000.0), (count, 1)))
    large = system.split(np.resize(np.array([-(2**40), 2**40, 12345678901]), (count, 1)))
    assert small.strides[0] == 0 < large.strides[0]
    assert all(parts_of(system, secret)[1].shape == secret.shape for secret in (small, large))


def test_a_sum_of_three_is_a_polynomial_and_each_seat_is_sent_what_another_did_not_draw():
    system, rng, committee = ResidueSystem(PRIMES[:3]), np.random.default_rng(3), make(3, 1)
    parts = np.stack([rng.integers(-(p // 2), p // 2 + 1, (3, 50)).astype(float) for p in system.primes], axis=1)
    shares = {point: on_polynomial(system, part, point) for point, part in enumerate(parts, start=1)}
    assert np.array_equal(interpolate(system, shares, 2), system.reduce(parts.sum(axis=0)))
    for seat in committee.seats:
        before, after = around(committee, seat)
        assert committee.seeded_by(before, 1) == (seat,)
        assert committee.seeded_by(after, 1) == (before,), "so this seat is the one that is sent V"


@pytest.mark.parametrize("drawn", [0, 1, -1, 5])
def test_the_largest_and_the_smallest_drawn_words(monkeypatch, drawn):
    """The word that is computed without a reduction, for every edge of the drawn word and of the secret."""
    prime = PRIMES[1]
    word = drawn % prime
    monkeypatch.setattr("colonnade.mpc.parts.draw_words", lambda p, n, stream: np.full(n, word % p, dtype=np.uint32))
    system, half = ResidueSystem((prime,)), prime // 2
    secret = np.resize(np.array([-half, half, 0.0, 1.0, -1.0, 5.0 - half, half - 5.0]), (1, FEW + 1))
    kept, sent = split(system, secret, {2: Stream(KEY)}, 1, [3])
    want = system.reduce(secret - (word - half))
    assert np.array_equal(kept, want)
    assert np.array_equal(unpack(sent[3], (FEW + 1,), system, "bank"), want)


@pytest.mark.parametrize(
    ("name", "seats", "active"),
    [("x", 3, False), ("n0", 4, False), ("n0", 3, True)],
    ids=["no seat", "four", "checked"],
)
def test_only_one_of_three_seats_that_are_not_checked_deals_in_parts(name, seats, active):
    hand = Hand(name, make(seats, 1, active=active), {}, lambda: pytest.fail("it has begun"))
    with raises(ValueError, "VA098"):
        hand.deal(np.zeros(4), parts=True)
