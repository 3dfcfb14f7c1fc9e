"""Fixed-point numbers on shares: exact where integers are, within the stated units where numbers are cut off."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from colonnade.errors import CapacityError, ProtocolError, ShareError
from colonnade.mpc import ShareEngine
from colonnade.mpc.committee import Shares
from colonnade.mpc.fixed_point import arithmetic as fixedpoint, truncation
from colonnade.mpc.fixed_point.arithmetic import FixedPointEngine
from colonnade.mpc.fixed_point.masks import MaskSource, residue_system_for
from colonnade.mpc.fixed_point.shared_bits import BitEngine
from colonnade.mpc.shamir import lagrange_weights
from tests.support.errors import raises, refused

from ..conftest import listing, tampering
from .kit import called, compute, differences, make, views

UNIT = Fraction(1, 2**20)
EDGES = np.array([0, 1, -1, 2**30 - 1, 1 - 2**30, 5, -7, 2**30 - 2, 12345678, -87654321, 2**20, -(2**20), 3])
PLAIN = [make(3), make(4), make(5, 2)]
ACTIVE = [make(3, active=True), make(4, active=True), make(5, 2, active=True), make(7, 3, active=True)]


def whole(engine, *numbers):
    """The same integers without a fraction."""
    return [engine.from_shares(number.shares, number.bound, 0) for number in numbers]


OPERATIONS = {
    "products": (lambda e, x, y, p: e.multiply(x, y), lambda x, y, p: x * y * UNIT, 1),
    "several products": (
        lambda e, x, y, p: e.add(*e.products([(x, x), (x, y)])), lambda x, y, p: (x * x + x * y) * UNIT, 2,
    ),
    "products with a column": (
        lambda e, x, y, p: e.multiply(x.reshape(1, -1), y[:2].reshape(-1, 1)),
        lambda x, y, p: x[None] * y[:2, None] * UNIT,
        1,
    ),
    "whole numbers": (
        lambda e, x, y, p: e.subtract(e.scale(e.multiply(*whole(e, x, y), fraction=0), 3), e.shift(*whole(e, x), 7)),
        lambda x, y, p: 3 * x * y - x - 7,
        0,
    ),
    "a product that is not truncated": (
        lambda e, x, y, p: e.truncate(e.add(e.product(x, y), e.product(x, x)), 20),
        lambda x, y, p: (x * y + x * x) * UNIT,
        1,
    ),
    "truncations": (lambda e, x, y, p: e.truncate(x, 5), lambda x, y, p: x * Fraction(1, 2**15), 1),
    "comparisons": (lambda e, x, y, p: e.negative(e.subtract(x, y)), lambda x, y, p: x < y, 0),
    "bit lengths": (
        lambda e, x, y, p: fixedpoint.normalising_powers(e, p),
        lambda x, y, p: [1 << 30 - value.bit_length() if value else 0 for value in p],
        0,
    ),
}  # fmt: skip
BITWISE = {"comparisons", "bit lengths"}


def check(play, name, left, right, committee=None):
    """Numbers of up to 30 bits, of which a third are equal; of 26 bits where all products are added up."""
    program, exact, ulps = OPERATIONS[name]
    size = min(len(left), len(right))
    x, y = left[:size], np.where(np.arange(size) % 3 == 0, left[:size], right[:size])
    if name == "products of matrices":
        x, y = x >> 4, y >> 4
    bits = 26 if name == "products of matrices" else 30
    opened, _, engine = compute(play, program, x, y, np.abs(x), committee=committee, bits=bits)
    due = np.array(exact(*(values.astype(object) for values in (x, y, np.abs(x)))), dtype=object)
    assert opened.shape == due.shape
    errors = np.abs(opened.astype(object) - due).reshape(-1)
    assert all(error < ulps * engine.ulps if ulps else error == 0 for error in errors)


@pytest.mark.parametrize(
    ("committee", "name"),
    [
        pytest.param(seats, name, marks=pytest.mark.slow if seats in ACTIVE[1:] and name in BITWISE else ())
        for seats in (*PLAIN, *ACTIVE)
        for name in OPERATIONS
    ],
    ids=called,
)
def test_operations_are_exact_or_within_the_stated_units(play, committee, name):
    check(play, name, EDGES, EDGES[::-1], committee)


def integers(bits):
    """Magnitudes of all sizes, both signs, zeros and the extremes."""
    top = (1 << bits) - 1
    sizes = st.integers(0, bits).flatmap(lambda b: st.integers(-min(top, (1 << b)), min(top, 1 << b)))
    edges = st.sampled_from([0, 1, -1, top, -top, top - 1, 1 - top])
    return st.lists(st.one_of(sizes, edges), min_size=2, max_size=70).map(lambda v: np.array(v, dtype=np.int64))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([*OPERATIONS]), integers(30), integers(30))
def test_operations_on_any_numbers(play, name, left, right):
    check(play, name, left, right)


NOTHING = {
    "products": (lambda e, x: e.multiply(x, x), (0,)),
    "products in two axes": (lambda e, x: e.multiply(x.reshape(3, 0), x.reshape(3, 0)), (3, 0)),
    "products with a column": (lambda e, x: e.multiply(x.reshape(0, 7), x.reshape(0, 1)), (0, 7)),
    "products of integers": (lambda e, x: e.multiply(*whole(e, x, x), fraction=0), (0,)),
    "truncations": (lambda e, x: e.truncate(x, 5), (0,)),
    "comparisons": (lambda e, x: e.negative(x), (0,)),
    "roots": (lambda e, x: fixedpoint.inverse_sqrt(e, x.reshape(3, 0)), (3, 0)),
}


@pytest.mark.parametrize("committee", [PLAIN[0], ACTIVE[0]], ids=called)
@pytest.mark.parametrize("name", NOTHING)
def test_operations_on_no_numbers(play, committee, name):
    program, shape = NOTHING[name]
    opened, _, engine = compute(play, program, np.zeros(0, dtype=np.int64), committee=committee)
    assert opened.shape == shape
    assert np.abs(opened).max(initial=0) < engine.ulps


def test_errors_of_truncation_balance(play):
    opened, _, _ = compute(play, lambda e, x: e.truncate(x, 12), np.full(4000, 12345))
    errors = opened.astype(float) - 12345 / 256
    assert abs(errors.mean()) < 0.05
    assert errors.min() < -0.5 < 0.5 < errors.max()


# --- functions of positive numbers


def check_root(play, values, fraction, bits, committee=None):
    """An inverse root is as exact as it says; zero gives zero. Returns the engine of one seat."""
    opened, _, engine = compute(
        play, fixedpoint.inverse_sqrt, values, committee=committee, fraction=fraction, bits=bits
    )
    numbers, unit = values * 2.0**-fraction, 2.0**-fraction
    true = np.where(values, np.maximum(numbers, unit) ** -0.5, 0.0)
    assert (np.abs(opened * unit - true) < unit * (true + engine.ulps)).all()
    return engine


@pytest.mark.parametrize(
    "committee",
    [*PLAIN[1:], ACTIVE[0], *(pytest.param(seats, marks=pytest.mark.slow) for seats in ACTIVE[1:])],
    ids=called,
)
def test_roots_of_positive_numbers(play, committee):
    values = np.concatenate([np.random.default_rng(3).integers(0, 2**18, 20), 1 << np.arange(0, 19, 3)])
    check_root(play, values, 12, 20, committee)


@settings(max_examples=12, deadline=None)
@given(integers(26), st.sampled_from([12, 16, 20]))
def test_roots_of_any_positive_numbers(play, values, fraction):
    check_root(play, np.abs(values), fraction, 26)


@pytest.mark.parametrize(("bits", "fraction"), [(7, 15), (17, 16), (25, 15), (26, 16), (31, 15)])
def test_many_numbers_take_the_way_with_fewer_coins(play, monkeypatch, bits, fraction):
    monkeypatch.setattr(fixedpoint, "FLAT", 10)
    values = np.array([0, 1, 2, 3, 100, 127, (1 << bits) - 1])
    engine = check_root(play, values, fraction, bits)
    coins = [key for key in engine.masks.used if key[0] == "coins"]
    # Of 26 bit lengths in groups of 6, and none for the first place
    assert bits != 26 or coins == [("coins", 5 + 5, len(values))]


@pytest.mark.parametrize(
    ("size", "threshold", "fraction", "magnitude"),
    [
        (3, 1, 8, 1),
        (3, 1, 16, 2),
        (3, 1, 20, 10),
        (3, 1, 30, 1),
        (5, 2, 30, 1),
        (7, 3, 16, 5),
    ],
)
def test_the_primes_that_are_said_to_be_needed_are_enough(play, size, threshold, fraction, magnitude):
    top = (1 << (fraction + magnitude)) - 1
    values = np.unique(np.concatenate([np.arange(9), np.geomspace(1, top, 30).astype(np.int64), [top - 1, top]]))
    bits = fixedpoint.bits_needed(fraction, magnitude, (comb(size, threshold) + 1) / 2)
    committee = replace(make(size, threshold), system=residue_system_for(bits, size, threshold))
    check_root(play, values, fraction, fraction + magnitude, committee)
    opened, _, engine = compute(
        play, lambda e, x: e.multiply(x, x), values, committee=committee, fraction=fraction, bits=fraction + magnitude
    )
    assert (np.abs(opened - (values / 2.0**fraction) ** 2 * 2.0**fraction) <= engine.ulps).all()


# --- rounds, parts and refusals


def test_a_product_of_three_is_refused_before_it_is_opened(play):
    """At degree 3t the sharings of zero would leave the leading coefficients bare."""

    def program(engine, x):
        square = engine.product(x, x)
        for attempt in (
            lambda: engine.multiply(square, x),
            lambda: engine.products([(x, x), (x, square)]),
            lambda: engine.truncate(engine.from_shares(engine.engine.multiply(square.shares, x.shares), 1, 60), 20),
        ):
            refused(ValueError, "VA086", attempt)
        return x

    compute(play, program, np.arange(4), committee=make(4, 1))


def sent(hand):
    return sum(len(link.sent) for link in hand.links.values())


def test_what_could_overflow_is_refused_before_it_is_computed(play):
    def program(engine, x):
        before = sent(engine.engine)
        for attempt, match in (
            (lambda: engine.multiply(engine.scale(x, 1 << 60), x), "CA004"),
            (lambda: engine.scale(x, 1 << 120), "CA003"),
            (lambda: engine.negative(engine.scale(x, 1 << 40)), ("CA002", "62")),
            (lambda: engine.truncate(engine.scale(x, 1, fraction=70), 20), ("CA002", "62")),
            (lambda: engine.from_shares(x.shares, 1 << 140), "CA003"),
        ):
            refused(CapacityError, match, attempt)
        assert sent(engine.engine) == before
        return x

    compute(play, program, np.arange(4))
    refused(ValueError, "VA083", compute, play, lambda e, x: x, np.arange(4), fraction=40)


def test_who_knows_the_result_and_the_keys_of_a_seat_knows_its_rounding(play):
    """The counter-example to "what is opened tells nothing beside the result", as docs/theory/fixed-point.md has it."""
    cut, secret, count = 10, 5 * 1024 + 100, 4000
    seen = {}

    def program(engine, x):
        if engine.engine.name == "n0":
            opening, limbs = engine.engine.open_to_readers, engine.masks._limbs(cut)

            def spied_draw(streams, size):
                drawn = type(limbs).draw(limbs, streams, size)
                seen["lows"] = drawn[: len(streams)].sum(axis=0).astype(np.int64)  # of ten bits, so of one limb
                return drawn

            def spied_opening(shares, readers):
                opened = opening(shares, readers)
                seen["opened"] = engine.system.low_word(opened).astype(np.int64)
                return opened

            limbs.__dict__["draw"], engine.engine.open_to_readers = spied_draw, spied_opening
        return engine.truncate(x, 20 - cut)

    result, _, engine = compute(play, program, np.full(count, secret))
    offset = (engine.masks.groups - 1) << cut >> 1
    found = (result << cut) + (seen["opened"] & ((1 << cut) - 1)) - seen["lows"] + offset
    assert found.min() - secret in range(5)
    assert (found - secret < 1 << cut).all()
    assert stats.kstest((found - secret + 0.5) / 2**cut, "uniform").pvalue > 1e-9


def test_many_numbers_are_taken_in_parts(play, monkeypatch):
    values = (np.arange(1, 25) << 16).reshape(2, 12)
    due = {
        "negative": (lambda e, x: e.negative(x), values < 0, 0),
        "root": (fixedpoint.inverse_sqrt, 2.0**30 / np.sqrt(values), 20),
        "powers": (fixedpoint.normalising_powers, 1 << 30 - np.floor(np.log2(values)).astype(int) - 1, 0),
    }
    monkeypatch.setattr(fixedpoint, "BITS_AT_ONCE", 5)
    monkeypatch.setattr(fixedpoint, "NUMBERS_AT_ONCE", 7)
    for name, (operation, exact, error) in due.items():
        found, _, engine = compute(play, operation, values)
        assert {key[2] for key in engine.masks.used} == ({5, 4} if name == "powers" else {7, 3})
        assert np.abs(found - exact).max() <= error, name


# --- what pooled seats see

WATCHED = {
    "product": lambda e, x: e.multiply(x, x),
    "products": lambda e, x: e.products([(x, x), (x, e.from_shares(x.shares, x.bound, 0))])[1],
    "integers": lambda e, x: e.multiply(x, e.from_shares(x.shares, x.bound, 0), fraction=20),
    "truncation": lambda e, x: e.truncate(x, 5),
    "comparison": lambda e, x: e.negative(x),
    "powers": fixedpoint.normalising_powers,
    "inverse root": fixedpoint.inverse_sqrt,
}
WITH_BITS = {"comparison", "powers", "inverse root"}
IN_BLOCKS = ("product", "truncation", "comparison")


@pytest.mark.parametrize(
    ("size", "name", "few"),
    [
        *((3, name, None) for name in WATCHED),
        *((size, name, few) for size, few in ((3, 0), (5, None)) for name in IN_BLOCKS),
        (5, "product", 0),
    ],
)
def test_what_pooled_seats_see_is_the_same_whatever_the_secret(play, monkeypatch, size, name, few):
    if few is not None:  # as of many numbers, which are opened in blocks
        monkeypatch.setattr(truncation, "FEW", few)
    committee, pool = (make(3), ["n1"]) if size == 3 else (make(5, 2), ["n1", "n4"])
    first, second = (views(play, WATCHED[name], secret, committee, pool) for secret in (3, 2**26 - 9))
    smallest, tests, bits = differences(first, second)
    assert smallest * tests > 1e-6
    assert tests >= 12
    assert bits >= 40 * (name in WITH_BITS)


def too_short(patch):
    patch.setattr(MaskSource, "width", 27)
    patch.setattr(MaskSource, "check", lambda *_: None)


def uncovered(patch):
    """Bits that no coin hides."""
    original = FixedPointEngine.as_numbers

    class Uncovered(BitEngine):
        def xor(self, left, right):
            return left

    def as_numbers(engine, bits):
        engine.masks.bits.__class__ = Uncovered
        found = original(engine, bits)
        engine.masks.bits.__class__ = BitEngine
        return found

    patch.setattr(FixedPointEngine, "as_numbers", as_numbers)


@pytest.mark.parametrize(
    ("broken", "name", "secrets"), [(too_short, "truncation", (3, 2**26 - 9)), (uncovered, "comparison", (-3, 3))]
)
def test_the_same_comparison_sees_masks_that_are_too_short_and_bits_without_a_coin(
    play, monkeypatch, broken, name, secrets
):
    broken(monkeypatch)
    smallest, tests, _ = differences(*(views(play, WATCHED[name], secret, make(), ["n1"]) for secret in secrets))
    assert smallest * tests < 1e-12


# --- seats that check each other


CHEATER = "n1"
X, Y = np.random.default_rng(1).integers(-(2**18), 2**18, (2, 3))


def chain(engine, x, y):
    """Products one after the other, a comparison of the last, and a product with what it told."""
    z = engine.multiply(engine.multiply(x, y), x)
    return engine.multiply(engine.negative(engine.subtract(z, y)), x, fraction=12)


@pytest.mark.parametrize(
    ("size", "threshold", "step"),
    [
        (3, 1, 5),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [(3, 1, 1), (4, 1, 3), (5, 2, 6), (7, 3, 24)]),
    ],
)
def test_whoever_changes_one_share_in_one_message_is_caught(play, size, threshold, step):
    """A share of a product or of bits, an opening to one seat only, a message of a check: all stop, or nothing changed.

    Only messages of which nobody needs the changed share pass: with spare seats, or the last opening to one seat.
    """
    right = np.where(X * Y / 4096 * X / 4096 < Y, X, 0)

    def ends_well(sent, changed=()):
        hands = {CHEATER: tampering(lambda: listing(sent, changed))}
        committee = make(size, threshold, active=True)
        opened, *_ = compute(play, chain, X, Y, committee=committee, fraction=12, bits=20, hands=hands)
        return np.array_equal(opened, right)

    sent = []
    assert ends_well(sent)
    shares = [number for number, kind in enumerate(sent) if kind in ("share", "bits", "opening")][::step]
    caught = 0
    for number in shares:
        try:
            assert ends_well([], {number})
        except (ShareError, ProtocolError, ConnectionError):
            caught += 1
    assert caught > len(shares) * (0.9 if size == 2 * threshold + 1 else 0.5)


class Counting(ShareEngine):
    """It counts how often it opens numbers under masks."""

    opened: list[int]

    def open_among_seats(self, shares):
        self.opened.append(shares.degree)
        return super().open_among_seats(shares)


class Shifting(ShareEngine):
    """In one opening it shifts what the others will read by a small number: at twice the degree no share is spare."""

    which: int
    only_to: str | None
    """The one seat to which it tells the wrong share; by default it goes on as if it were its own."""
    openings = 0
    now = False

    def open_among_seats(self, shares):
        self.now = self.openings == self.which
        self.openings += 1
        return super().open_among_seats(self.shifted(shares) if self.now and not self.only_to else shares)

    def send_opening(self, shares, to):
        wrong = [self.only_to] if self.now and self.only_to else []
        self.now = False
        super().send_opening(self.shifted(shares), wrong)
        super().send_opening(shares, [seat for seat in to if seat not in wrong])

    def shifted(self, shares):
        place, points = self.committee.point(self.name) - 1, tuple(range(1, shares.degree + 2))
        step = np.array(
            [1000 * pow(lagrange_weights(p, points, 0)[place], -1, p) % p for p in self.system.primes], dtype=float
        )
        values = shares.values + step.reshape(-1, *[1] * (shares.values.ndim - 1))
        return Shares(self.system.reduce(values), shares.degree)


def three_products(engine, x, y):
    for _ in range(3):
        x = engine.multiply(x, y, bound=1 << 37)
        x = replace(x, bound=(1 << 20) - 1)
    return x


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (5, 2), pytest.param(7, 3, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("which", "only_to"), [(3, None), *((i, to) for i in range(3) for to in (None, "n0"))])
def test_an_error_is_caught_before_a_later_opening_could_multiply_it_with_a_secret(
    play, size, threshold, which, only_to
):
    """Masks hide numbers within bounds. After a wrong opening, a later product could be beyond them."""
    opened = []
    hands = {
        "n0": type("Seen", (Counting,), {"opened": opened}),
        CHEATER: type("Cheat", (Shifting,), {"which": which, "only_to": only_to}),
    }
    how = {"committee": make(size, threshold, active=True), "fraction": 12, "bits": 20, "hands": hands}
    if which == 3:  # which never comes, so that nobody cheats
        compute(play, three_products, X >> 8, Y >> 8, **how)
    else:
        with raises((ShareError, ConnectionError), "SH012" if only_to else "SH015"):
            compute(play, three_products, X >> 8, Y >> 8, **how)
    assert opened == [2 * threshold] * min(which + 1, 3)
