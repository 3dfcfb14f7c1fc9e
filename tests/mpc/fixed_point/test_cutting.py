"""Truncation: who reads what is opened, how much is sent, and that blocks of packed words give the same as integers."""

from __future__ import annotations

from copy import deepcopy
from fractions import Fraction
from functools import partial
from itertools import combinations, product

import flint
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from colonnade.errors import ProtocolError, ShareError
from colonnade.mpc import PRIMES, ResidueSystem, ShareEngine
from colonnade.mpc.committee import Shares
from colonnade.mpc.fixed_point import arithmetic, masks, truncation, truncation as packing
from colonnade.mpc.fixed_point.arithmetic import FixedPointEngine
from colonnade.mpc.fixed_point.masks import MaskSource
from colonnade.mpc.messages import pack, pack_words, quarter_length
from colonnade.mpc.residues import centred
from colonnade.mpc.shamir import CommonKeys, key_groups, lagrange_weights
from colonnade.randomness import Stream
from tests.support.errors import refused

from .kit import called, compute, make
from .test_arithmetic import EDGES, OPERATIONS, check, check_root

ALONE = [make(3, 1), make(5, 2), make(7, 3)]
"""Committees without a spare seat, in which only one group reads."""


@pytest.fixture
def blocks(monkeypatch):
    """Even few numbers are opened in blocks, of at most four numbers, twelve at a time."""
    monkeypatch.setattr(truncation, "FEW", 0)
    monkeypatch.setattr(truncation, "BLOCK", 4)
    monkeypatch.setattr(truncation, "WAVE", 12)


@pytest.mark.parametrize(
    ("committee", "name"),
    [(seats, name) for seats in ALONE[:2] for name in OPERATIONS] + [(ALONE[2], "products")],
    ids=called,
)
@pytest.mark.parametrize("count", [2, 31])
def test_operations_in_blocks_are_exact_or_within_the_stated_units(play, blocks, committee, name, count):
    check(play, name, np.resize(EDGES, count), np.resize(EDGES[::-1], count), committee)


@pytest.mark.parametrize("bits", [20, 31, 32, 45])
def test_comparisons_and_roots_in_blocks(play, blocks, bits):
    top = (1 << bits) - 1
    values = np.array([0, 1, -1, top, -top, top - 1, 5, -7, 12345, -54321, top // 3, -top // 5, 2])
    opened, _, _ = compute(play, lambda e, x: e.negative(x), values, bits=bits)
    assert opened.tolist() == (values < 0).astype(int).tolist()
    if bits <= 31:
        check_root(play, np.abs(values), 20, bits)


@pytest.mark.parametrize("cut", [1, 20, 29, 30, 50])
@pytest.mark.parametrize("many", [False, True])
def test_every_number_of_bits_can_be_cut(play, monkeypatch, many, cut):
    if many:
        monkeypatch.setattr(truncation, "FEW", 0)

    def program(engine, x):
        return engine.truncate(engine.from_shares(x.shares, x.bound, 50), 50 - cut)

    opened, fraction, engine = compute(play, program, EDGES)
    assert fraction == 50 - cut
    assert all(
        abs(found - Fraction(x, 2**cut)) < engine.ulps for found, x in zip(opened.tolist(), EDGES.tolist(), strict=True)
    )


@pytest.mark.parametrize(
    ("few", "size", "count", "messages"),
    [
        # Few numbers are sent to one group only.
        (True, 3, 8, {"n0": {"n1": 1, "n2": 0}, "n1": {"n0": 1, "n2": 0}, "n2": {"n0": 1, "n1": 1}}),
        # Two to the seat that opens a block and one to the other reader; each seat opens one of three blocks.
        (False, 3, 12, {"n0": {"n1": 2, "n2": 1}, "n1": {"n0": 1, "n2": 2}, "n2": {"n0": 2, "n1": 1}}),
        # With a spare seat everybody reads.
        (True, 4, 8, {f"n{i}": {f"n{j}": 1 for j in range(4) if i != j} for i in range(4)}),
    ],
    ids=["one group", "blocks", "everybody"],
)
def test_who_sends_how_many_messages_for_a_product(play, request, few, size, count, messages):
    if not few:
        request.getfixturevalue("blocks")
    numbers = {}

    def program(engine, x):
        before = {peer: len(link.sent) for peer, link in engine.engine.links.items()}
        product = engine.multiply(x, x)
        numbers[engine.engine.name] = {p: len(link.sent) - before[p] for p, link in engine.engine.links.items()}
        return product

    compute(play, program, np.arange(count), committee=make(size, 1))
    assert numbers == messages


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("opening", lambda words: words[..., 1:]),
        ("quotients", lambda words: words[..., 1:]),
        ("low-words", lambda words: words[..., 1:]),
        ("low-words", lambda words: words | np.uint32(1 << 31)),
    ],
    ids=["opening", "quotients", "low words", "beyond their bits"],
)
def test_a_block_in_another_form_is_refused(play, blocks, kind, change):
    def program(engine, x):
        for link in engine.engine.links.values():
            if engine.engine.name == "n1":
                link.send = changed(link.send)
        return engine.negative(engine.multiply(x, x) if kind != "low-words" else x)

    def changed(send):
        return lambda name, **fields: send(name, **({"words": change(fields["words"])} if name == kind else fields))

    refused((ProtocolError, ConnectionError), "MS049", "n1", kind, compute, play, program, EDGES >> 5, bits=26)


@pytest.mark.parametrize(("few", "count"), [(None, 12), (0, 12), (None, 12_000)], ids=["few", "blocks", "many"])
def test_a_spare_share_is_compared(play, monkeypatch, few, count):
    """A number at the degree of an input is opened by more seats than needed, and a wrong share stops the study."""
    if few is not None:
        monkeypatch.setattr(truncation, "FEW", few)

    class Wrong(ShareEngine):
        def send_opening(self, shares, to):
            super().send_opening(Shares(np.roll(shares.values, 1, axis=1), shares.degree), to)

    def program(engine, x):
        if engine.engine.name == "n1":
            engine.engine.__class__ = Wrong
        found = engine.truncate(x, 10)
        engine.engine.__class__ = ShareEngine  # the result is opened as it should be
        return found

    refused((ShareError, ConnectionError), "SH008", compute, play, program, np.arange(count))


@pytest.mark.parametrize("committee", ALONE, ids=called)
def test_a_number_that_a_group_knows_is_shared_by_its_factors(play, committee):
    """The factors of the readers, and zero elsewhere, lie on a polynomial of degree t that is 1 at 0."""
    found, threshold = {}, committee.threshold

    def seat(hand):
        cutter = FixedPointEngine(hand, 20)._cutter
        for first in committee.seats:
            readers = cutter._readers(first)
            assert len(readers) == len(committee.seats) - threshold
            found[first, hand.name] = cutter._share_factors(first) if hand.name in readers else (0,) * 6

    play(committee, seat)
    known = tuple(range(1, threshold + 2))
    for first in committee.seats:
        for place, prime in enumerate(committee.system.primes):
            shares = [found[first, name][place] for name in committee.seats]
            for at, due in [(0, 1), *enumerate(shares, start=1)]:
                total = sum(
                    w * s for w, s in zip(lagrange_weights(prime, known, at), shares[: threshold + 1], strict=True)
                )
                assert (total - due) % prime == 0


# --- blocks of packed words


def residues(values, system):
    """Residues of Python integers."""
    return np.array([[centred(int(v), prime) for v in values] for prime in system.primes], dtype=np.float64)


def test_a_value_beyond_an_honest_one_and_words_that_are_no_residues_are_refused():
    system, count, offset = ResidueSystem(PRIMES[:4]), 4099, (1 << 35) - (1 << 16)
    zero, opened = np.zeros((4, count)), system.modulus // 2
    mask = [
        [centred(opened * pow(lagrange_weights(p, (1, 2, 3), 0)[0], -1, p) - offset, p)] * count for p in system.primes
    ]
    block = packing.PackedBlock(system, (zero,), np.array(mask, dtype=float), zero.copy(), slice(0, count))
    told = {2: ("shop", pack(zero, system)), 3: ("clinic", pack(zero, system))}
    refused(ShareError, "SH006", block.open, offset, 16, 35, 1, told, [1] * 4)
    told[3][1][2] = 2**32 - 1
    refused(ProtocolError, "MS007", "clinic", block.open, offset, 16, 35, 1, told, [1] * 4)
    refused(ProtocolError, "MS007", "clinic", block.read_quotients, told[3][1], "clinic", [1] * 4)


def packed(residues, system):
    """Words as they are sent of many numbers, also of few."""
    count = residues.shape[1]
    words = np.empty((len(residues), 3 * quarter_length(count)), dtype=np.uint32)
    for prime, row, out in zip(system.primes, residues, words, strict=True):
        numbers = np.zeros(4 * quarter_length(count), dtype=np.uint32)
        numbers[:count] = row + prime // 2
        pack_words(numbers, out)
    return words


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_every_block_is_exact_with_all_primes_points_and_extremes(data):
    first, last = sorted(data.draw(st.lists(st.integers(0, 16), min_size=2, max_size=2, unique=True)))
    system = ResidueSystem(PRIMES[first:last])
    seats = data.draw(st.sampled_from([3, 5, 7]))
    own, count = data.draw(st.integers(1, seats)), data.draw(st.integers(1, 9))
    cut = data.draw(st.integers(1, 29))
    bits = data.draw(st.integers(cut, 62))
    offset = (1 << bits) - data.draw(st.integers(0, 34 << cut >> 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))

    def some():
        kind = data.draw(st.sampled_from(["uniform", "largest", "smallest", "edges"]))
        among = {"largest": (1,), "smallest": (-1,), "edges": (-1, 1, 0)}.get(kind)
        if among is None:
            rows = [rng.integers(-(p // 2), p // 2 + 1, count) for p in system.primes]
        else:
            rows = [rng.choice(among, count) * (p // 2) for p in system.primes]
        return np.array(rows, dtype=np.float64)

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
        of = dict(zip(points, lagrange_weights(prime, tuple(points), 0), strict=True))
        for i, value in enumerate(values):
            rest = value - sum(of[p] * int(share[place, i]) for p, share in shares.items())
            sent[place, i] = centred(rest * pow(of[own], -1, prime), prime)
            product = int(left[place, i]) * int(right[place, i])
            mask[place, i] = centred(int(sent[place, i]) - offset - product, prime)
            result[place, i] = centred(int(quotients[place, i]) * factors[place] - int(high[place, i]), prime)
    whole = (left, right) if given_as == "two factors" else (left * right,)
    for one in (*whole, mask):
        one.flags.writeable = False
    told = {point: (f"seat {point}", packed(share, system)) for point, share in shares.items()}
    opens, hears = high.copy(), high.copy()
    opener, reader = (packing.PackedBlock(system, whole, mask, kept, slice(0, count)) for kept in (opens, hears))
    assert np.array_equal(opener.share(offset), packed(sent, system))
    assert np.array_equal(opens, high)
    assert np.array_equal(opener.open(offset, cut, bits, own, told, factors), packed(quotients, system))
    reader.read_quotients(packed(quotients, system), "bank", factors)
    assert np.array_equal(opens, result)
    assert np.array_equal(hears, result)


@pytest.mark.parametrize("prime", PRIMES)
def test_words_are_right_next_to_every_multiple_of_the_prime(prime):
    """Also of the largest products: one number too few or too many would be the word of another residue."""
    system, half = ResidueSystem((prime,)), prime // 2
    least, most = -(half**2) // prime + 1, half**2 // prime - 1
    multiples = np.array([least, least + 1, -1, 0, 1, most - 1, most]).repeat(5) * prime
    values = multiples - half + np.tile([-2, -1, 0, 1, 2], 7)
    block = packing.PackedBlock(
        system, (values[None].astype(float),), np.zeros((1, 35)), np.zeros((1, 35)), slice(0, 35)
    )
    assert np.array_equal(block.share(0), packed(residues(values, system), system))


WAYS = {
    "in another order": ((3, 1, 4), 16_388, 16, lambda x: [(x, x[::-1])]),
    "every second number": ((3, 1, 4), 33_002, 16, lambda x: [(x[::2], x[1::2])]),
    "broadcast": ((3, 1, 4), 8_201, 16, lambda x: [(x.reshape(1, 8_201), x[:3].reshape(3, 1))]),
    "none, one and many": ((3, 1, 4), 16_390, 16, lambda x: [(x[:0], x[:0]), (x[:1], x[:1]), (x, x)]),
    "about as many as are sent unpacked": ((3, 1, 4), 3 * 4096 + 1, 16, lambda x: [(x, x), (x, x)]),
    "one block more": ((3, 1, 4), 3 * 65_536 + 1, 16, lambda x: [(x, x)]),
    "five seats": ((5, 2, 5), 20_003, 16, lambda x: [(x, x)]),
    "seven seats": ((7, 3, 5), 28_001, 16, lambda x: [(x, x)]),
    "29 bits": ((3, 1, 5), 13_109, 29, lambda x: [(x, x)]),
    "30 bits": ((3, 1, 5), 13_109, 30, lambda x: [(x, x)]),
}


@pytest.mark.parametrize("way", WAYS)
def test_messages_and_shares_of_many_numbers_are_those_of_the_general_way(play, way):
    """The same masks, twice: what each seat sends and holds has the same bits."""
    seats, count, cut, pairs = WAYS[way]
    seen = {}

    def program(engine, x):
        given_out, links, cutter = [], engine.engine.links, engine._cutter
        draw = engine.masks.open_mask

        def drawn(bits, count):
            given_out.append(draw(bits, count))
            return deepcopy(given_out[-1])

        def product():
            before = {peer: len(link.sent) for peer, link in links.items()}
            found = engine.products(pairs(x), fraction=32 - cut)
            told = [fields["words"] for peer, link in links.items() for fields in link.sent[before[peer] :]]
            return found[-1], [*(one.shares.values for one in found), *told]

        packed_block, taken = cutter._packed_block, []
        cutter._packed_block = lambda *args: taken.append(packed_block(*args)) or taken[-1]
        engine.masks.open_mask = drawn
        last, fused = product()
        again, cutter._packed_block = iter(given_out), lambda *args: None
        engine.masks.open_mask = lambda bits, count: next(again)
        for one, other in zip(fused, product()[1], strict=True):
            assert np.array_equal(one, other)
        seen[engine.engine.name] = sum(block is not None for block in taken), len(taken)
        return last

    values = np.random.default_rng(21).integers(-(2**17), 2**17, count)
    opened, _, engine = compute(play, program, values, committee=make(*seats), fraction=16, bits=17)
    left, right = pairs(values)[-1]
    assert np.abs(opened - left * right / 2.0**cut).max() < engine.ulps
    for this_way, all_blocks in seen.values():
        assert bool(this_way) == (way != "30 bits")
        assert (this_way < all_blocks) == (
            way in ("30 bits", "none, one and many", "about as many as are sent unpacked")
        )


def test_what_was_made_ahead_in_one_piece_is_overwritten_where_it_was_used_only(play):
    """Masks and coins of several steps are parts of one array: a step must change its own part alone."""
    values = np.random.default_rng(22).integers(1, 2**20, 16_448)

    def program(engine, x):
        def step():
            return engine.multiply(x, x), arithmetic.inverse_sqrt(engine, x[:64])

        first = step()
        due = {key: 3 * times for key, times in engine.masks.used.items()}
        engine.masks.prepare(due)
        assert {key: len(kept) for key, kept in engine.masks._kept.items() if kept} == due
        later = [step() for _ in range(3)]
        assert not any(engine.masks._kept.values()), "what was prepared is used up first"
        found = [later[place][kind] for kind in (0, 1) for place in range(3)] + list(first)
        joined = np.concatenate([one.shares.values for one in found], axis=1)
        return engine.from_shares(Shares(joined, first[0].shares.degree), 1 << 45)

    opened, _, engine = compute(play, program, values, bits=20)
    numbers, inverses = opened[: 3 * values.size], opened[3 * values.size : 3 * values.size + 192]
    assert np.abs(numbers.reshape(3, -1) - values.astype(float) ** 2 / 2**20).max() < engine.ulps
    exact = 2.0**30 / np.sqrt(values[:64])
    assert (np.abs(inverses.reshape(3, -1) - exact) < exact / 2**20 + engine.ulps).all()


# --- masks and coins


def opened(play, bits, count, *, primes=2, before=lambda made: None, common=lambda name: None):
    """Coins as numbers and as bits, as every seat opens them, and what ``before`` returned of each seat."""
    committee = make(3, 1, primes)

    def seat(hand):
        hand = ShareEngine(hand.name, committee, hand.links, common=common(hand.name))
        made = MaskSource(hand)
        noted = before(made)
        coins = made.coins(bits, count)
        for link in hand.links.values():
            link.__dict__.pop("recv", None)
        hand.send_opening(coins.numbers, committee.seats)
        numbers = hand.receive_opening((bits, count), degree=1, bound=1, own=coins.numbers)
        return numbers, masks.unpack_bits(made.bits.open(coins.bits), count), noted

    return play(committee, dict.fromkeys(committee.seats, seat))


@pytest.mark.parametrize(("bits", "count"), [(1, 1), (3, 100), (5, 64), (2, 700)])
@pytest.mark.parametrize("block", [1 << 16, 128])
def test_coins_are_the_same_as_numbers_and_as_bits(play, monkeypatch, bits, count, block):
    monkeypatch.setattr(masks, "BLOCK", block)
    monkeypatch.setattr(masks, "_UNHEARD", 1)
    for numbers, words, _ in opened(play, bits, count).values():
        assert numbers.tolist() == words.tolist()
        assert set(np.unique(numbers)) <= {0, 1}
    if bits * count >= 300:  # beyond five deviations with a chance of 6e-7
        assert abs(numbers.mean() - 0.5) < 2.5 / np.sqrt(numbers.size)


@pytest.mark.parametrize(("size", "threshold", "primes"), [(3, 1, 4), (5, 2, 6), (7, 3, 8), (7, 3, 16)])
@pytest.mark.parametrize("zeros", [False, True])
def test_masks_are_a_number_of_every_group_in_chunks_of_any_size(play, monkeypatch, size, threshold, primes, zeros):
    """The whole less 2^bits times the part above is a sum of as many numbers of ``bits`` bits as there are groups."""
    monkeypatch.setattr(masks, "CHUNK", 5)
    committee, bits, count = make(size, threshold, primes), 27, 23

    def seat(hand):
        made = MaskSource(hand)
        mask, limbs = made._make_mask(bits, count, zeros=zeros), made._limbs(bits)
        assert (limbs.high.shape[1] > limbs.terms) == (primes == 16), "reduced in two passes"
        opened = []
        for shares in (mask.whole, mask.high):
            assert shares.degree == (2 * threshold if zeros and shares is mask.whole else threshold)
            hand.send_opening(shares, committee.seats)
            opened.append(
                hand.receive_opening((count,), degree=shares.degree, bound=committee.system.modulus // 2, own=shares)
            )
        return opened, made.groups, made.width

    (whole, high), groups, width = play(committee, dict.fromkeys(committee.seats, seat))[committee.seats[0]]
    low = [int(w) - (int(h) << bits) for w, h in zip(whole, high, strict=True)]
    assert all(0 <= one <= groups * ((1 << bits) - 1) for one in low)
    assert all(0 <= int(h) <= groups * ((1 << width - bits) - 1) for h in high)
    assert len(set(low)) == len({int(h) for h in high}) == count
    assert max(map(int, high)) > groups << (width - bits - 2)


@pytest.mark.parametrize(("size", "threshold", "primes"), [(3, 1, 4), (4, 1, 4), (5, 2, 6), (7, 3, 8)])
def test_products_are_opened_under_a_whole_sharing_of_zero(size, threshold, primes):
    """Of the same limbs, masks for products and for numbers differ by a polynomial that is 0 at 0 and else uniform."""
    committee, count, degree = make(size, threshold, primes), 2000, 2 * threshold
    keys = {group: Stream.fresh().bytes(32) for group in key_groups(committee)}

    def masks_of(seat):
        pairs = {peer: bytes(32) for peer in committee.seats if peer != seat}  # which masks do not read
        return MaskSource(ShareEngine(seat, committee, {}, common=CommonKeys(seat, committee, keys, pairs)))

    shares = []
    for seat in committee.seats:
        plain, opened = (masks_of(seat)._make_mask(27, count, zeros=zeros) for zeros in (False, True))
        assert np.array_equal(plain.high.values, opened.high.values)
        shares.append(opened.whole.values - plain.whole.values)
    points = range(1, size + 1)
    for prime, values in zip(committee.system.primes, np.array(shares).swapaxes(0, 1), strict=True):
        found = coefficients([[int(one) for one in row] for row in values], points, prime)
        assert not any(found[0]), "0 at 0"
        assert not any(map(any, found[degree + 1 :])), "of this degree"
        for coefficient in found[1 : degree + 1]:
            assert stats.kstest(np.array(coefficient) / prime, "uniform").pvalue > 1e-9


def coefficients(rows, points, prime):
    """Of the polynomials with these values at the points, the coefficients from the constant one up."""
    powers = [[pow(point, power, prime) for power in range(len(points))] for point in points]
    inverse = flint.nmod_mat(powers, prime).inv()
    found = [int(one) for one in (inverse * flint.nmod_mat(rows, prime)).entries()]
    return [found[start : start + len(rows[0])] for start in range(0, len(found), len(rows[0]))]


def test_what_a_seat_hears_does_not_depend_on_the_coin(play):
    """What the second and the third seat hear is uniform, whatever their own bits and the coin are.

    So is what they could put together of it with all that they know: without k3 the second seat would find u, the sum
    of the first seat's bits, in what it hears, and without k2 the third seat would.
    """
    count, committee = 8000, make(3, 1, 1)
    prime = committee.system.primes[0]
    keys = {group: Stream.fresh().bytes(32) for group in key_groups(committee)}
    pairs = {frozenset(pair): Stream.fresh().bytes(32) for pair in combinations(committee.seats, 2)}
    heard = {name: [] for name in committee.seats}

    def common(name):
        return CommonKeys(
            name, committee, keys, {peer: pairs[frozenset((name, peer))] for peer in committee.seats if peer != name}
        )

    def spy(made):
        hand = made.engine
        own = []

        def listen(recv, kind, most):
            fields = recv(kind, most)
            if kind == "share":
                heard[hand.name].append(np.asarray(fields["words"], dtype=float).reshape(-1))
            return fields

        group_bits = made.bits.group_bits

        def known(words, count):
            own.extend(masks.unpack_bits(one, count).reshape(-1) for one in words)
            return group_bits(words, count)

        made.bits.group_bits = known
        for link in hand.links.values():
            link.recv = partial(listen, link.recv)
        return own

    found = opened(play, 1, count, primes=1, before=spy, common=common)
    coin = found["n0"][0].reshape(-1)
    assert [len(heard[name]) for name in committee.seats] == [0, 2, 1]
    # Groups are in the order {n0, n1}, {n0, n2}, {n1, n2}: the last bit of n1 and of n2 is v.
    (_, v), (_, same) = (found[name][2] for name in ("n1", "n2"))
    assert np.array_equal(v, same)
    sign = 1 - 2 * v
    less, rest = heard["n1"]
    m = committee.system.uniform((count,), common("n2").pair_stream("n0", "n2"))[0]
    seen = {"n1": (less, rest, less + sign * rest), "n2": (*heard["n2"], (heard["n2"][0] - v) * sign + m)}
    for name, numbers in seen.items():
        one, other = found[name][2]
        cells = [(one == a) & (other == b) & (coin == c) for a, b, c in product((0, 1), repeat=3)]
        assert min(cell.sum() for cell in cells) > count / 10
        for values in numbers:
            for cell in cells:
                assert stats.kstest((values[cell] % prime + 0.5) / prime, "uniform").pvalue > 1e-9
