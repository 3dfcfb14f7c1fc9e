from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from colonnade.mpc import PRIMES, Committee, Hand, ResidueSystem
from colonnade.mpc.packing import unpack
from colonnade.mpc.parts import around, on_polynomial, split
from colonnade.mpc.residues import CHUNK, FEW
from colonnade.mpc.shamir import interpolate
from colonnade.randomness import Stream
from tests.support.errors import raises

from .conftest import make

KEY = bytes(range(32))


def parts_of(system, secret):
    """U as the seat that follows draws it, V as the dealer keeps it, and V as it is sent."""
    kept, sent = split(system, secret, {2: Stream(KEY)}, 1, [3])
    shape = secret.shape[1:]
    return system.uniform(shape, Stream(KEY)), kept, unpack(sent[3], shape, system, "bank")


@pytest.mark.parametrize("prime", PRIMES)
@pytest.mark.parametrize("count", [7, FEW, FEW + 1, 2 * CHUNK + 5])
def test_parts_add_up_to_the_secret_at_the_edges(prime, count):
    system = ResidueSystem((prime,))
    half = prime // 2
    secret = np.resize(np.array([-half, half, 0.0, 1.0, -1.0, half - 1.0, 1.0 - half]), (1, count))
    drawn, kept, sent = parts_of(system, secret)
    assert np.array_equal(kept, sent)
    assert np.abs(kept).max() <= half
    assert np.array_equal(system.reduce(drawn + kept), secret)


@pytest.mark.parametrize("count", [FEW // 2 + 1, FEW + 2, 2 * CHUNK, 2 * CHUNK + 1, 3 * CHUNK + 3])
def test_parts_of_small_and_of_large_integers(count):
    system = ResidueSystem(PRIMES[:2])
    small = system.split(np.resize(np.arange(-900.0, 1000.0), (count, 1)))
    large = system.split(np.resize(np.array([-(2**40), 2**40, 12345678901]), (count, 1)))
    assert small.strides[0] == 0 < large.strides[0]
    for secret in (small, large):
        drawn, kept, sent = parts_of(system, secret)
        assert np.array_equal(kept, sent)
        assert kept.shape == secret.shape
        assert np.array_equal(system.reduce(drawn + kept), secret)


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


@pytest.mark.parametrize("secret", [0.0, 4.0, -5.0])
@pytest.mark.parametrize("count", [3000, FEW + 1])
def test_what_is_sent_is_uniform_whatever_the_secret(secret, count):
    system = ResidueSystem((11,))
    drawn, _, sent = parts_of(system, np.full((1, count), secret))
    for part in (drawn, sent):
        assert stats.chisquare(np.bincount(part[0].astype(int) + 5, minlength=11)).pvalue > 1e-5


def test_a_sum_of_three_is_a_polynomial():
    system = ResidueSystem(PRIMES[:3])
    rng = np.random.default_rng(3)
    parts = np.stack([rng.integers(-(p // 2), p // 2 + 1, (3, 50)).astype(float) for p in system.primes], axis=1)
    shares = {point: on_polynomial(system, part, point) for point, part in enumerate(parts, start=1)}
    assert np.array_equal(interpolate(system, shares, 2), system.reduce(parts.sum(axis=0)))


def test_who_draws_and_who_is_sent():
    committee = make(3, 1)
    for seat in committee.seats:
        before, after = around(committee, seat)
        assert committee.seeded_by(before, 1) == (seat,)
        assert committee.seeded_by(after, 1) == (before,), "so this seat is the one that is sent V"


@pytest.mark.parametrize(
    ("name", "seats", "active"), [("x", 3, False), ("a", 4, False), ("a", 3, True)], ids=["no seat", "four", "checked"]
)
def test_only_one_of_three_seats_that_are_not_checked_deals_in_parts(name, seats, active):
    committee = Committee(tuple("abcd"[:seats]), 1, ResidueSystem(PRIMES[:1]), active=active)
    begun = []
    hand = Hand(name, committee, {}, lambda: begun.append(True))
    with raises(ValueError, "VA098"):
        hand.deal(np.zeros(4), parts=True)
    assert not begun
