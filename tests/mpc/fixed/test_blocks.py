"""Blocks of packed words: every message and every share equals one that is computed with Python's integers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from colonnade.errors import ProtocolError, ShareError
from colonnade.mpc import PRIMES, ResidueSystem
from colonnade.mpc.fixed import blocks, cutting
from colonnade.mpc.packing import pack
from colonnade.mpc.residues import centred
from colonnade.mpc.shamir import weights

from .test_arithmetic import compute, make

SYSTEM = ResidueSystem(PRIMES[:4])
COUNT, OFFSET, CUT, BITS = 4099, (1 << 35) - (1 << 16), 16, 35


def residues(values, system=SYSTEM):
    """Residues of Python integers."""
    return np.array([[centred(int(v), prime) for v in values] for prime in system.primes], dtype=np.float64)


def uniform(seed, system=SYSTEM, count=COUNT):
    rng = np.random.default_rng(seed)
    return np.array([rng.integers(-(p // 2), p // 2 + 1, count) for p in system.primes], dtype=np.float64)


def extremes(sign, system=SYSTEM, count=COUNT):
    return np.array([[sign * (p // 2)] * count for p in system.primes], dtype=np.float64)


def exact(left, right, mask):
    """left * right + mask modulo each prime."""
    return np.array(
        [
            [centred(int(a) * int(b) + int(m), prime) for a, b, m in zip(*rows, strict=True)]
            for prime, *rows in zip(SYSTEM.primes, left, right, mask, strict=True)
        ],
        dtype=np.float64,
    )


@pytest.mark.parametrize(
    "factors",
    [(uniform(1), uniform(2)), (extremes(1), extremes(1)), (extremes(1), extremes(-1)), (uniform(3),)],
    ids=["uniform", "largest", "smallest", "one factor"],
)
@pytest.mark.parametrize("mask", [uniform(4), extremes(1), extremes(-1)], ids=["uniform", "largest", "smallest"])
def test_what_is_sent_is_the_packed_share(factors, mask):
    block = blocks.Block(SYSTEM, factors, mask, uniform(5), slice(0, COUNT))
    ones = np.ones_like(mask)
    shifted = mask + np.array([[centred(OFFSET, prime)] for prime in SYSTEM.primes])
    expected = exact(factors[0], factors[1] if len(factors) > 1 else ones, shifted)
    assert np.array_equal(block.share(OFFSET), pack(expected, SYSTEM))


def opened_by(own, seats, values, high, factors):
    """Open numbers of which all shares but that of ``own`` are drawn; returns what is told, and what stays."""
    points = range(1, seats + 1)
    shares = {point: uniform(10 + point) for point in points if point != own}
    left, right = uniform(6), uniform(7)
    mask = np.empty_like(left)
    for place, prime in enumerate(SYSTEM.primes):
        of = dict(zip(points, weights(prime, tuple(points), 0), strict=True))
        for i, value in enumerate(values):
            rest = value - sum(of[p] * int(share[place, i]) for p, share in shares.items())
            mine = rest * pow(of[own], -1, prime) - OFFSET - int(left[place, i]) * int(right[place, i])
            mask[place, i] = centred(mine, prime)
    told = {point: (f"seat {point}", pack(share, SYSTEM)) for point, share in shares.items()}
    block = blocks.Block(SYSTEM, (left, right), mask, high, slice(0, COUNT))
    return block.open(OFFSET, CUT, BITS, own, told, factors)


@pytest.mark.parametrize(("seats", "own"), [(3, 1), (3, 2), (3, 3), (5, 2), (7, 4)])
def test_opened_quotients_and_shares_are_exact(seats, own):
    rng = np.random.default_rng(8)
    values = [int(a) << 24 | int(b) for a, b in zip(*rng.integers(0, 1 << 61, (2, COUNT)), strict=True)]
    values[:3] = [0, (1 << CUT) - 1, SYSTEM.modulus // 4 - 1]
    high, factors = uniform(9), [int(f[0]) for f in uniform(11)]
    before = high.copy()
    quotients = residues([(value >> CUT) - (1 << BITS >> CUT) for value in values])
    assert np.array_equal(opened_by(own, seats, values, high, factors), pack(quotients, SYSTEM))
    column = np.array(factors, dtype=np.float64)[:, None]
    assert np.array_equal(high, exact(quotients, np.broadcast_to(column, quotients.shape), -before))


def test_a_reader_that_hears_quotients_has_the_same_shares():
    quotients, high, factors = uniform(12), uniform(13), [3, -1, 5, SYSTEM.primes[3] // 2]
    before = high.copy()
    block = blocks.Block(SYSTEM, (), uniform(14), high, slice(0, COUNT))
    block.hear(pack(quotients, SYSTEM), "bank", factors)
    column = np.array(factors, dtype=np.float64)[:, None]
    assert np.array_equal(high, exact(quotients, np.broadcast_to(column, quotients.shape), -before))


def test_a_value_beyond_an_honest_one_and_words_that_are_no_residues_are_refused():
    values = [SYSTEM.modulus // 2] * COUNT
    with pytest.raises(ShareError, match="larger than any honest one"):
        opened_by(1, 3, values, uniform(15), [1] * 4)
    block = blocks.Block(SYSTEM, (uniform(1),), uniform(2), uniform(3), slice(0, COUNT))
    wrong = pack(uniform(16), SYSTEM)
    wrong[2] = 2**32 - 1
    with pytest.raises(ProtocolError, match="clinic sent a number that is no residue"):
        block.hear(wrong, "clinic", [1] * 4)
    told = {2: ("shop", pack(uniform(17), SYSTEM)), 3: ("clinic", wrong)}
    with pytest.raises(ProtocolError, match="clinic sent a number that is no residue"):
        block.open(OFFSET, CUT, BITS, 1, told, [1] * 4)


@pytest.mark.parametrize("seats", [(3, 1, 6), (5, 2, 6)])
def test_large_products_take_this_way_and_are_within_the_stated_units(play, monkeypatch, seats):
    taken = []

    class Seen(blocks.Block):
        def open(self, *given):
            taken.append(self.count)
            return super().open(*given)

    monkeypatch.setattr(cutting, "Block", Seen)
    values = np.random.default_rng(18).integers(-(2**26), 2**26, 20_003)
    opened, _, engine = compute(play, lambda e, x: e.multiply(x, x[::-1]), values, committee=make(*seats))
    assert sum(taken) == values.size
    products = zip(opened.tolist(), values.tolist(), values[::-1].tolist(), strict=True)
    assert all(abs(found - Fraction(x * y, 2**20)) < engine.ulps for found, x, y in products)
