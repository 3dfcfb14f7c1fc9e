from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from colonnade.mpc import PRIMES, Hand, ResidueSystem
from colonnade.mpc.dealing import _divide, dealt
from colonnade.mpc.packing import pack, unpack
from colonnade.mpc.residues import CHUNK, FEW
from colonnade.mpc.shamir import complete, interpolate
from colonnade.randomness import Stream

from .conftest import make

KEY = bytes(range(32))


def extremes(system: ResidueSystem, count: int) -> np.ndarray:
    """Residues that include the largest and the smallest, different modulo every prime."""
    edges = [np.array([-(p // 2), p // 2, 0, 1, -1, p // 2 - 1, p // 3]) for p in system.primes]
    return np.stack([np.resize(row, count).astype(float) for row in edges])


def same_as_polynomials(system, secret, point, own, others):
    whole = complete(system, secret, {point: Stream(KEY)}, [*others, *([] if own is None else [own])])
    mine, sent = dealt(system, secret, {point: Stream(KEY)}, own, others)
    assert list(sent) == list(others)
    if own is None:
        assert mine is None
    else:
        assert np.array_equal(mine, whole[own])
        assert mine.shape == secret.shape
    for node in others:
        assert np.array_equal(sent[node], pack(whole[node], system))
    return mine, sent


@pytest.mark.parametrize("size", [3, 4, 5, 7])
def test_lines_give_the_shares_of_polynomials(size):
    """Every dealer and every seat that draws, for secrets at the edges of the residues."""
    system = ResidueSystem(PRIMES[:3])
    secret = extremes(system, FEW // 3 + 1)
    nodes = range(1, size + 1)
    for own in (None, *nodes) if size < 7 else (None, 1, 6):
        for point in nodes:
            if point != own:
                same_as_polynomials(system, secret, point, own, [n for n in nodes if n not in (own, point)])


@pytest.mark.parametrize("prime", PRIMES)
def test_lines_modulo_every_prime(prime):
    system = ResidueSystem((prime,))
    for point, own, other in ((2, 1, 3), (3, 2, 1), (1, 3, 2)):
        same_as_polynomials(system, extremes(system, FEW + 1), point, own, [other])


@pytest.mark.parametrize("count", [FEW // 2 + 1, FEW + 2, 2 * CHUNK, 2 * CHUNK + 1, 3 * CHUNK - 1, 3 * CHUNK + 3])
def test_any_number_of_small_integers(count):
    """What has the same residues modulo all primes is stored once; chunks may be full, and padding is empty."""
    system = ResidueSystem(PRIMES[:2])
    half = PRIMES[1] // 2
    values = np.resize(np.array([1 - half, half - 1, 0.0, -3.0, 7.0]), (count, 1))
    secret = system.split(values)
    assert secret.strides[0] == 0
    mine, sent = same_as_polynomials(system, secret, 3, 2, [1])
    shares = {2: mine, 1: unpack(sent[1], (count, 1), system, "bank")}
    assert np.array_equal(interpolate(system, shares, 1)[1], values)


def test_rows_that_are_not_contiguous_are_dealt():
    system = ResidueSystem(PRIMES[:2])
    secret = extremes(system, 2 * FEW).reshape(2, 2, -1).transpose(0, 2, 1)
    same_as_polynomials(system, secret, 2, 1, [3])
    same_as_polynomials(system, secret[:, ::2], 2, 1, [3])


@pytest.mark.parametrize("size", [(2, 10), (1, FEW), (2, FEW)])
def test_several_drawn_shares_or_few_numbers(size):
    primes, count = size
    system = ResidueSystem(PRIMES[:primes])
    secret = extremes(system, count)

    def streams():
        return {node: Stream(bytes([node]) * 32) for node in (2, 3)}

    whole = complete(system, secret, streams(), [1, 4, 5])
    mine, sent = dealt(system, secret, streams(), 1, [4, 5])
    assert np.array_equal(mine, whole[1])
    assert all(np.array_equal(sent[node], pack(whole[node], system)) for node in (4, 5))
    same_as_polynomials(system, secret, 2, 1, [3])


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


@pytest.mark.parametrize("secret", [0.0, 4.0])
def test_sent_words_are_uniform_whatever_the_secret(secret):
    """The share that is sent and the share that is drawn, each alone, over a small prime."""
    system, count = ResidueSystem((11,)), FEW + 1
    for point, own, other in ((2, 1, 3), (3, 2, 1), (1, 3, 2)):
        mine, sent = dealt(system, np.full((1, count), secret), {point: Stream(KEY)}, own, [other])
        shares = {own: mine, other: unpack(sent[other], (count,), system, "bank")}
        assert np.all(interpolate(system, shares, 1) == secret)
        for share in shares.values():
            assert stats.chisquare(np.bincount(share[0].astype(int) + 5, minlength=11)).pvalue > 1e-5


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (4, 1), (5, 2)])
def test_many_numbers_are_dealt_and_opened(play, size, threshold):
    """Over messages, by dealers with and without a seat, and with a degree that is lowered."""
    committee = make(size, threshold)
    secret = np.resize(np.arange(-4000, 4000), (FEW // 2 + 1,))

    def seat(hand: Hand):
        own = hand.deal(secret) if hand.name == "n1" else hand.receive("n1", secret.shape)
        other = hand.receive("owner", secret.shape)
        product = hand.lower(hand.multiply(own, other))
        hand.send_opening(product, committee.seats)
        return hand.receive_opening(secret.shape, degree=threshold, bound=2**40, own=product)

    def owner(hand: Hand):
        assert hand.deal(secret) is None

    programs = dict.fromkeys(committee.seats, seat) | {"owner": owner}
    opened = play(committee, programs)
    assert all(np.array_equal(opened[name], secret**2) for name in committee.seats)
