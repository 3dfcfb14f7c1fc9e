"""Truncation: who reads what is opened, how much is sent, and that blocks give the same as one opening."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from colonnade.errors import ProtocolError, ShareError
from colonnade.mpc import PRIMES, Hand, ResidueSystem
from colonnade.mpc.fixed import cutting, functions
from colonnade.mpc.fixed.arithmetic import FixedPoint
from colonnade.mpc.shamir import weights
from colonnade.mpc.shares import Shares
from tests.support.errors import raises

from .test_arithmetic import OPERATIONS, compute, differences, make, views

ALONE = [(3, 1, 6), (5, 2, 6), (7, 3, 6)]
"""Committees without a spare seat, in which only one group reads."""
VALUES = np.array([0, 1, -1, 5, 2**30 - 1, 1 - 2**30, 12345678, -87654321, 2**20, -(2**20), 3, 77])


@pytest.fixture
def blocks(monkeypatch):
    """Even few numbers are opened in blocks, of at most four numbers, twelve at a time."""
    monkeypatch.setattr(cutting, "FEW", 0)
    monkeypatch.setattr(cutting, "BLOCK", 4)
    monkeypatch.setattr(cutting, "WAVE", 12)


@pytest.mark.parametrize("committee", [make(*c) for c in ALONE], ids=str)
@pytest.mark.parametrize("count", [1, 2, 12, 31])
def test_blocks_are_within_the_stated_units(play, blocks, committee, count):
    left, right = np.resize(VALUES, count), np.resize(VALUES[::-1], count)

    def program(engine, x, y):
        first, second = engine.products([(x, y), (engine.scale(y, 2), y)])
        return engine.add(first, second)

    opened, _, engine = compute(play, program, left, right, committee=committee)
    for found, x, y in zip(opened.tolist(), left.tolist(), right.tolist(), strict=True):
        assert abs(found - Fraction(x * y + 2 * y * y, 2**20)) < 2 * engine.ulps


@pytest.mark.parametrize("cut", [1, 20, 29, 30, 50])
@pytest.mark.parametrize("many", [False, True])
def test_every_number_of_bits_can_be_cut(play, monkeypatch, many, cut):
    if many:
        monkeypatch.setattr(cutting, "FEW", 0)

    def program(engine, x):
        return engine.truncate(engine.from_shares(x.shares, x.bound, 50), 50 - cut)

    opened, fraction, engine = compute(play, program, VALUES)
    assert fraction == 50 - cut
    for found, x in zip(opened.tolist(), VALUES.tolist(), strict=True):
        assert abs(found - Fraction(x, 2**cut)) < engine.ulps


@pytest.mark.parametrize("committee", [make(*c) for c in ALONE[:2]], ids=str)
def test_shares_of_what_a_group_read_lie_on_polynomials_of_the_degree_of_inputs(play, blocks, committee):
    """``receive_opening`` compares spare shares: of 5 seats all shares must fit a polynomial of degree 2."""
    opened, _, engine = compute(play, lambda e, x: e.multiply(x, x), VALUES, committee=committee)
    assert np.abs(opened.astype(float) - VALUES.astype(float) ** 2 / 2**20).max() < engine.ulps


def test_a_broadcast_product_is_cut_like_any_other(play, blocks):
    def program(engine, x):
        return engine.multiply(x.reshape(3, 4), x[:3].reshape(3, 1))

    opened, _, engine = compute(play, program, VALUES)
    exact = VALUES.reshape(3, 4) * VALUES[:3].reshape(3, 1).astype(object)
    assert opened.shape == (3, 4)
    for found, product in zip(opened.reshape(-1).tolist(), exact.reshape(-1).tolist(), strict=True):
        assert abs(found - Fraction(product, 2**20)) < engine.ulps


def test_reciprocals_in_blocks(play, blocks):
    values = np.array([1, 3, 255, 2**20, 2**26 - 1, 12345])
    opened, _, engine = compute(play, functions.reciprocal, values, bits=26)
    for found, x in zip(opened.tolist(), values.tolist(), strict=True):
        assert abs(found - Fraction(2**40, x)) < Fraction(2**20, x) + Fraction(engine.ulps)


@pytest.mark.parametrize("committee", [make(*c) for c in ALONE[:2]], ids=str)
@pytest.mark.parametrize("bits", [20, 31, 32, 45])
def test_comparisons_and_bits_in_blocks_are_exact(play, blocks, committee, bits):
    top = (1 << bits) - 1
    values = np.array([0, 1, -1, top, -top, top - 1, 5, -7, 12345, -54321, top // 3, -top // 5, 2])
    opened, _, _ = compute(play, lambda e, x: e.negative(x), values, committee=committee, bits=bits)
    assert opened.tolist() == (values < 0).astype(int).tolist()
    opened, _, _ = compute(play, lambda e, x: e.bit_length(x), np.abs(values), committee=committee, bits=bits)
    assert opened.tolist() == [abs(value).bit_length() for value in values.tolist()]


def sent(play, committee, count):
    """What each seat sends for one product, in messages."""
    numbers = {}

    def program(engine, x):
        before = {peer: len(link.sent) for peer, link in engine.hand.links.items()}
        product = engine.multiply(x, x)
        numbers[engine.hand.name] = {p: len(link.sent) - before[p] for p, link in engine.hand.links.items()}
        return product

    compute(play, program, np.arange(count), committee=committee)
    return numbers


def test_few_numbers_are_sent_to_one_group_only(play):
    assert sent(play, make(3, 1), 8) == {
        "n0": {"n1": 1, "n2": 0},
        "n1": {"n0": 1, "n2": 0},
        "n2": {"n0": 1, "n1": 1},
    }


def test_a_block_takes_three_messages_of_three_seats(play, blocks):
    """Two to the seat that opens it and one to the other reader; each seat opens one of three blocks."""
    found = sent(play, make(3, 1), 12)
    assert found == {"n0": {"n1": 2, "n2": 1}, "n1": {"n0": 1, "n2": 2}, "n2": {"n0": 2, "n1": 1}}


def test_with_a_spare_seat_everybody_reads(play):
    assert all(each == 1 for row in sent(play, make(4, 1), 8).values() for each in row.values())


@pytest.mark.parametrize("name", ["product", "truncation", "comparison", "reciprocal"])
@pytest.mark.parametrize(("seats", "pool"), [((3, 1), ["n2"]), ((5, 2), ["n1", "n4"])], ids=["1 of 3", "2 of 5"])
def test_what_pooled_seats_see_of_blocks_is_the_same_whatever_the_secret(play, monkeypatch, name, seats, pool):
    monkeypatch.setattr(cutting, "FEW", 0)
    first, second = (views(play, OPERATIONS[name], secret, make(*seats), pool) for secret in (3, 2**26 - 9))
    smallest, tests, _ = differences(first, second)
    assert smallest * tests > 1e-6
    assert tests >= 12


@pytest.mark.parametrize("kind", ["opening", "quotients", "low-words"])
def test_a_block_in_another_form_is_refused(play, blocks, kind):
    def program(engine, x):
        for link in engine.hand.links.values():
            if engine.hand.name == "n1":
                link.send = shorter(link.send)
        return engine.negative(engine.multiply(x, x))

    def shorter(send):
        def changed(name, **fields):
            send(name, **({"words": fields["words"][..., 1:]} if name == kind else fields))

        return changed

    with raises((ProtocolError, ConnectionError), "MS049", "n1", kind):
        compute(play, program, VALUES)


def test_a_spare_share_of_a_block_is_compared(play, blocks):
    """A number at the degree of an input is opened by more seats than needed, and a wrong share stops the study."""

    class Wrong(Hand):
        def send_opening(self, shares, to):
            super().send_opening(Shares(shares.values + 1.0, shares.degree), to)

    def program(engine, x):
        if engine.hand.name == "n1":
            engine.hand.__class__ = Wrong
        found = engine.truncate(x, 10)
        engine.hand.__class__ = Hand  # the result is opened as it should be
        return found

    with raises((ShareError, ConnectionError), "SH008"):
        compute(play, program, VALUES)


@pytest.mark.parametrize(("size", "threshold", "primes"), ALONE)
def test_a_number_that_a_group_knows_is_shared_by_its_factors(play, size, threshold, primes):
    """The factors of the readers, and zero elsewhere, lie on a polynomial of degree t that is 1 at 0."""
    committee = make(size, threshold, primes)
    found = {}

    def seat(hand):
        cutter = FixedPoint(hand, 20)._cutter
        for first in committee.seats:
            readers = cutter._readers(first)
            assert len(readers) == size - threshold
            found[first, hand.name] = cutter._share_factors(first) if hand.name in readers else (0,) * primes

    play(committee, dict.fromkeys(committee.seats, seat))
    for first in committee.seats:
        for place, prime in enumerate(committee.system.primes):
            shares = [found[first, name][place] for name in committee.seats]
            known = tuple(range(1, threshold + 2))
            for at, due in [(0, 1), *enumerate(shares, start=1)]:
                total = sum(w * s for w, s in zip(weights(prime, known, at), shares[: threshold + 1], strict=True))
                assert (total - due) % prime == 0


def test_low_words_beyond_their_bits_are_refused(play, blocks):
    def program(engine, x):
        def longer(send):
            def changed(name, **fields):
                send(name, **({"words": fields["words"] | np.uint32(1 << 31)} if name == "low-words" else fields))

            return changed

        for link in engine.hand.links.values():
            if engine.hand.name == "n1":
                link.send = longer(link.send)
        return engine.negative(x)

    with raises((ProtocolError, ConnectionError), "MS049", "n1", "low-words"):
        compute(play, program, VALUES >> 5, bits=26)


@pytest.mark.parametrize("primes", [3, 5, 16])
@pytest.mark.parametrize("bits", [1, 7, 16, 28, 29])
def test_low_bits_are_those_of_the_low_word(primes, bits):
    system = ResidueSystem(PRIMES[:primes])
    top = system.modulus // 4
    edges = [0, 1, (1 << bits) - 1, 1 << bits, top, top - 1, *(top * step // 97 for step in range(97))]
    digits = np.array(
        [
            [(value * factor + prime // 2) % prime - prime // 2 for value in edges]
            for prime, factor in zip(system.primes, system.to_digits, strict=True)
        ],
        dtype=np.float64,
    )
    assert system.low_word(digits).tolist() == [value % 2**64 for value in edges]
    assert system.low_bits(digits, bits).tolist() == [value % 2**bits for value in edges]
    with raises(ShareError, "SH006"):
        system.low_bits(np.negative(digits[:, 4:5]), bits)
