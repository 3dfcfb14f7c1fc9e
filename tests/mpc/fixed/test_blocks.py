"""Blocks of packed words: every message and every share equals one that is computed with Python's integers."""

from __future__ import annotations

from copy import deepcopy
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import ProtocolError, ShareError
from colonnade.mpc import PRIMES, Hand, ResidueSystem
from colonnade.mpc.fixed import blocks, cutting, functions
from colonnade.mpc.packing import pack, pack_words, quarter_of
from colonnade.mpc.residues import centred
from colonnade.mpc.shamir import weights
from colonnade.mpc.shares import Shares
from tests.support.errors import raises

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
    with raises(ShareError, "SH006"):
        opened_by(1, 3, values, uniform(15), [1] * 4)
    block = blocks.Block(SYSTEM, (uniform(1),), uniform(2), uniform(3), slice(0, COUNT))
    wrong = pack(uniform(16), SYSTEM)
    wrong[2] = 2**32 - 1
    with raises(ProtocolError, "MS007", "clinic"):
        block.hear(wrong, "clinic", [1] * 4)
    told = {2: ("shop", pack(uniform(17), SYSTEM)), 3: ("clinic", wrong)}
    with raises(ProtocolError, "MS007", "clinic"):
        block.open(OFFSET, CUT, BITS, 1, told, [1] * 4)


def packed(residues, system):
    """Words as they are sent of many numbers, also of few."""
    count = residues.shape[1]
    words = np.empty((len(residues), 3 * quarter_of(count)), dtype=np.uint32)
    for prime, row, out in zip(system.primes, residues, words, strict=True):
        numbers = np.zeros(4 * quarter_of(count), dtype=np.uint32)
        numbers[:count] = row + prime // 2
        pack_words(numbers, out)
    return words


def framed(residues, sides):
    """The same numbers inside a larger array, in which all others are no numbers."""
    out = np.full((len(residues), residues.shape[1] + 2 * sides), np.nan)
    out[:, sides : sides + residues.shape[1]] = residues
    return out


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_every_block_is_exact_with_all_primes_points_and_extremes(data):
    first, last = sorted(data.draw(st.lists(st.integers(0, 16), min_size=2, max_size=2, unique=True)))
    system = ResidueSystem(PRIMES[first:last])
    seats = data.draw(st.sampled_from([3, 5, 7]))
    own, count = data.draw(st.integers(1, seats)), data.draw(st.integers(1, 9))
    cut, sides = data.draw(st.integers(1, 29)), data.draw(st.integers(0, 2))
    bits = data.draw(st.integers(cut, 62))
    offset = (1 << bits) - data.draw(st.integers(0, 34 << cut >> 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))

    def some():
        kind = data.draw(st.sampled_from(["uniform", "largest", "smallest", "edges"]))
        if kind == "uniform":
            return uniform(rng.integers(2**32), system, count)
        if kind == "edges":
            return np.array([rng.choice([-(p // 2), p // 2, 0, 1, -1], count) for p in system.primes], dtype=np.float64)
        return extremes(1 if kind == "largest" else -1, system, count)

    top = system.modulus // 4
    edges = st.sampled_from([0, 1, top - 1, top - 2]) | st.integers(0, top - 1)
    values = data.draw(st.lists(edges, min_size=count, max_size=count))
    points = range(1, seats + 1)
    shares, left, right, high = {point: some() for point in points if point != own}, some(), some(), some()
    given_as = data.draw(st.sampled_from(["two factors", "their product"]))
    mask, sent, result = np.empty_like(left), np.empty_like(left), np.empty_like(left)
    factors = [data.draw(st.sampled_from([1, -3, prime // 2, -(prime // 2)])) for prime in system.primes]
    quotients = residues([(value >> cut) - (1 << bits >> cut) for value in values], system)
    for place, prime in enumerate(system.primes):
        of = dict(zip(points, weights(prime, tuple(points), 0), strict=True))
        for i, value in enumerate(values):
            rest = value - sum(of[p] * int(share[place, i]) for p, share in shares.items())
            sent[place, i] = centred(rest * pow(of[own], -1, prime), prime)
            product = int(left[place, i]) * int(right[place, i])
            mask[place, i] = centred(int(sent[place, i]) - offset - product, prime)
            result[place, i] = centred(int(quotients[place, i]) * factors[place] - int(high[place, i]), prime)
    whole = (left, right) if given_as == "two factors" else (left * right,)
    read = [framed(one, sides) for one in (*whole, mask)]
    for one in read:
        one.flags.writeable = False
    told = {point: (f"seat {point}", packed(share, system)) for point, share in shares.items()}
    opens, hears = framed(high, sides), framed(high, sides)
    here = slice(sides, sides + count)
    opener, reader = (blocks.Block(system, read[:-1], read[-1], kept, here) for kept in (opens, hears))
    assert np.array_equal(opener.share(offset), packed(sent, system))
    assert np.array_equal(opens, hears, equal_nan=True)
    assert np.array_equal(opener.open(offset, cut, bits, own, told, factors), packed(quotients, system))
    reader.hear(packed(quotients, system), "bank", factors)
    assert np.array_equal(opens, framed(result, sides), equal_nan=True)
    assert np.array_equal(hears, framed(result, sides), equal_nan=True)


@pytest.mark.parametrize("prime", PRIMES)
def test_words_are_right_next_to_every_multiple_of_the_prime(prime):
    """Also of the largest products: one number too few or too many would be the word of another residue."""
    system, half = ResidueSystem((prime,)), prime // 2
    least, most = -(half**2) // prime + 1, half**2 // prime - 1
    multiples = np.array([least, least + 1, -1, 0, 1, most - 1, most]).repeat(5) * prime
    values = multiples - half + np.tile([-2, -1, 0, 1, 2], 7)
    block = blocks.Block(system, (values[None].astype(float),), np.zeros((1, 35)), np.zeros((1, 35)), slice(0, 35))
    assert np.array_equal(block.share(0), packed(residues(values, system), system))


WAYS = {
    "twice the same array": ((3, 1, 4), 16_387, 16, lambda e, x: [(x, x)]),
    "in another order": ((3, 1, 4), 16_388, 16, lambda e, x: [(x, x[::-1])]),
    "every second number": ((3, 1, 4), 33_002, 16, lambda e, x: [(x[::2], x[1::2])]),
    "broadcast": ((3, 1, 4), 8_201, 16, lambda e, x: [(x.reshape(1, 8_201), x[:3].reshape(3, 1))]),
    "one, many and none": ((3, 1, 4), 16_390, 16, lambda e, x: [(x[:1], x[:1]), (x, x), (x[:0], x[:0])]),
    "about as many as are sent unpacked": ((3, 1, 4), 3 * 4096 + 1, 16, lambda e, x: [(x, x), (x, x)]),
    "one block more": ((3, 1, 4), 3 * 65_536 + 1, 16, lambda e, x: [(x, x)]),
    "five seats": ((5, 2, 5), 20_003, 16, lambda e, x: [(x, x)]),
    "seven seats": ((7, 3, 5), 28_001, 16, lambda e, x: [(x, x)]),
    "29 bits": ((3, 1, 5), 13_109, 29, lambda e, x: [(x, x)]),
    "30 bits": ((3, 1, 5), 13_109, 30, lambda e, x: [(x, x)]),
}


@pytest.mark.parametrize("way", WAYS)
def test_messages_and_shares_are_those_of_the_general_way(play, way):
    """The same masks, twice: what each seat sends and holds has the same bits, and operands are left as they are."""
    seats, count, cut, pairs = WAYS[way]
    seen = {}

    def program(engine, x):
        given_out, links, cutter = [], engine.hand.links, engine._cutter
        draw, factors = engine.masks.open_mask, x.shares.values.copy()

        def drawn(bits, count):
            given_out.append(draw(bits, count))
            return deepcopy(given_out[-1])

        def product():
            before = {peer: len(link.sent) for peer, link in links.items()}
            found = engine.products(pairs(engine, x), fraction=32 - cut)
            told = {peer: [fields["words"] for fields in link.sent[before[peer] :]] for peer, link in links.items()}
            return [one.shares.values for one in found], told

        packed_block, taken = cutter._packed, []
        cutter._packed = lambda *args: taken.append(packed_block(*args)) or taken[-1]
        engine.masks.open_mask = drawn
        fused, fused_told = product()
        again, cutter._packed = iter(given_out), lambda *args: None
        engine.masks.open_mask = lambda bits, count: next(again)
        general, general_told = product()
        assert all(np.array_equal(one, other) for one, other in zip(fused, general, strict=True))
        for peer, words in fused_told.items():
            for one, other in zip(words, general_told[peer], strict=True):
                assert one.dtype == other.dtype
                assert np.array_equal(one, other)
        assert np.array_equal(x.shares.values, factors)
        seen[engine.hand.name] = sum(block is not None for block in taken), len(taken)
        return engine.from_shares(Shares(fused[-1][:, :1], x.shares.degree), 1 << 60)

    values = np.random.default_rng(21).integers(-(2**17), 2**17, count)
    compute(play, program, values, committee=make(*seats), fraction=16, bits=17)
    for this_way, all_blocks in seen.values():
        assert all_blocks
        assert bool(this_way) == (way != "30 bits")
        assert (this_way < all_blocks) == (
            way in ("30 bits", "one, many and none", "about as many as are sent unpacked")
        )


def test_what_was_made_ahead_in_one_piece_is_overwritten_where_it_was_used_only(play):
    """Masks and coins of several steps are parts of one array: a step must change its own part alone."""
    values = np.random.default_rng(22).integers(1, 2**20, 16_448)

    def program(engine, x):
        def step():
            return engine.multiply(x, x), functions.reciprocal(engine, x[:64])

        first = step()
        engine.masks.prepare({key: 3 * times for key, times in engine.masks.used.items()})
        later = [step() for _ in range(3)]
        found = [later[place][kind] for kind in (0, 1) for place in range(3)] + list(first)
        joined = np.concatenate([one.shares.values for one in found], axis=1)
        return engine.from_shares(Shares(joined, first[0].shares.degree), 1 << 45)

    opened, _, engine = compute(play, program, values, bits=20)
    numbers, inverses = opened[: 3 * values.size], opened[3 * values.size : 3 * values.size + 192]
    assert np.abs(numbers.reshape(3, -1) - values.astype(float) ** 2 / 2**20).max() < engine.ulps
    exact = 2.0**40 / values[:64]
    assert (np.abs(inverses.reshape(3, -1) - exact) < exact / 2**20 + engine.ulps).all()


def test_a_spare_share_of_many_numbers_is_compared(play):
    """At the degree of inputs a share is spare, so blocks go the general way, which compares it."""

    class Wrong(Hand):
        def send_opening(self, shares, to):
            super().send_opening(Shares(np.roll(shares.values, 1, axis=1), shares.degree), to)

    def program(engine, x):
        if engine.hand.name == "n1":
            engine.hand.__class__ = Wrong
        found = engine.truncate(x, 10)
        engine.hand.__class__ = Hand  # the result is opened as it should be
        return found

    with raises((ShareError, ConnectionError), "SH008"):
        compute(play, program, np.arange(12_000), committee=make())


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
