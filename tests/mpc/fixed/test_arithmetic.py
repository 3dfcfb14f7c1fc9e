"""Fixed-point numbers on shares: exact where integers are, within the stated units where numbers are cut off."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from colonnade.errors import CapacityError, ShareError
from colonnade.mpc import PRIMES
from colonnade.mpc.fixed import arithmetic as fixedpoint, functions
from colonnade.mpc.fixed.arithmetic import FixedPoint
from colonnade.mpc.fixed.binary import BitHand
from colonnade.mpc.fixed.masks import Masks, system_for
from tests.support.errors import raises

from ..conftest import make as committee_of

COMMITTEES = [(3, 1, 6), (4, 1, 6), (5, 2, 6)]
few = settings(max_examples=12, deadline=None)


def make(size=3, threshold=1, primes=6):
    return committee_of(size, threshold, PRIMES[:primes])


def compute(play, program, *inputs, committee=None, fraction=20, bits=30):
    """Deal integer arrays, run a program of one engine on them at every seat, and open what it returns."""
    committee = committee or make()

    def seat(hand):
        engine = FixedPoint(hand, fraction)
        numbers = []
        for values in inputs:
            shares = hand.deal(values) if hand.name == "n0" else hand.receive("n0", values.shape)
            numbers.append(engine.from_shares(shares, (1 << bits) - 1))
        found = program(engine, *numbers)
        shares, bound = found.shares, found.bound
        hand.send_opening(shares, committee.seats)
        opened = hand.receive_opening(shares.shape, degree=shares.degree, bound=bound, own=shares)
        return opened, found.fraction, engine

    opened, fraction, engine = play(committee, dict.fromkeys(committee.seats, seat))["n0"]
    return opened, fraction, engine


def integers(bits):
    """Magnitudes of all sizes, both signs, zeros and the extremes."""
    top = (1 << bits) - 1
    sizes = st.integers(0, bits).flatmap(lambda b: st.integers(-min(top, (1 << b)), min(top, 1 << b)))
    edges = st.sampled_from([0, 1, -1, top, -top, top - 1, 1 - top])
    return st.lists(st.one_of(sizes, edges), min_size=1, max_size=70).map(lambda v: np.array(v, dtype=np.int64))


@pytest.mark.parametrize("committee", [make(*c) for c in COMMITTEES], ids=str)
@few
@given(left=integers(30), right=integers(30))
def test_products_are_within_the_stated_units(play, committee, left, right):
    size = min(len(left), len(right))
    left, right = left[:size], right[:size]
    opened, fraction, engine = compute(play, lambda e, x, y: e.multiply(x, y), left, right, committee=committee)
    assert fraction == 20
    for found, x, y in zip(opened.tolist(), left.tolist(), right.tolist(), strict=True):
        assert abs(found - Fraction(x * y, 2**20)) < engine.ulps


@few
@given(values=integers(30), cut=st.integers(1, 20))
def test_truncation_is_within_the_stated_units_on_either_side(play, values, cut):
    opened, _, engine = compute(play, lambda e, x: e.truncate(x, 20 - cut), values)
    errors = [found - Fraction(x, 2**cut) for found, x in zip(opened.tolist(), values.tolist(), strict=True)]
    assert all(abs(error) < engine.ulps for error in errors)


def test_errors_of_truncation_balance(play):
    values = np.full(4000, 12345)
    opened, _, _ = compute(play, lambda e, x: e.truncate(x, 12), values)
    errors = opened.astype(float) - 12345 / 256
    assert abs(errors.mean()) < 0.05
    assert errors.min() < -0.5
    assert errors.max() > 0.5


@few
@given(left=integers(30), right=integers(30))
def test_integers_are_exact(play, left, right):
    size = min(len(left), len(right))
    left, right = left[:size], right[:size]

    def program(engine, x, y):
        whole = [engine.from_shares(n.shares, n.bound, 0) for n in (x, y)]
        product = engine.multiply(*whole, fraction=0)
        return engine.subtract(engine.scale(product, 3), engine.shift(whole[0], 7))

    opened, fraction, _ = compute(play, program, left, right)
    assert fraction == 0
    assert opened.tolist() == [3 * x * y - x - 7 for x, y in zip(left.tolist(), right.tolist(), strict=True)]


@pytest.mark.parametrize("committee", [make(*c) for c in COMMITTEES], ids=str)
@few
@given(left=integers(30), right=integers(30))
def test_comparisons_are_exact(play, committee, left, right):
    size = min(len(left), len(right))
    left, right = left[:size], np.where(np.arange(size) % 3 == 0, left[:size], right[:size])
    opened, _, _ = compute(play, lambda e, x, y: e.below(x, y), left, right, committee=committee)
    assert opened.tolist() == (left < right).astype(int).tolist()


@few
@given(values=integers(30))
def test_bits_and_their_number_are_exact(play, values):
    values = np.abs(values)
    opened, _, _ = compute(play, lambda e, x: e.bits(x), values)
    assert opened.shape == (30, len(values))
    assert (opened * (1 << np.arange(30))[:, None]).sum(axis=0).tolist() == values.tolist()
    opened, _, _ = compute(play, lambda e, x: e.bit_length(x), values)
    assert opened.tolist() == [int(value).bit_length() for value in values]


@few
@given(rows=st.integers(1, 50), seed=st.integers(0, 2**31))
def test_a_product_of_matrices_errs_like_one_number(play, rows, seed):
    rng = np.random.default_rng(seed)
    left, right = (rng.integers(-(2**21), 2**21, (rows, width)) for width in (3, 4))
    opened, _, engine = compute(play, lambda e, x, y: e.inner(x, y), left, right, bits=21)
    exact = left.T @ right
    assert np.abs(opened.astype(float) - exact / 2**20).max() < engine.ulps


@pytest.mark.parametrize("committee", [make(*c) for c in COMMITTEES], ids=str)
@pytest.mark.parametrize(("function", "exact"), [(functions.reciprocal, -1.0), (functions.inverse_sqrt, -0.5)])
@settings(max_examples=6, deadline=None)
@given(values=integers(26), fraction=st.sampled_from([12, 16, 20]))
def test_functions_of_positive_numbers(play, committee, function, exact, values, fraction):
    values = np.abs(values)
    opened, _, engine = compute(play, function, values, committee=committee, fraction=fraction, bits=26)
    unit = 2.0**-fraction
    for found, x in zip(opened.tolist(), values.tolist(), strict=True):
        true = (x * unit) ** exact if x else 0.0
        assert abs(found * unit - true) < unit * (true + engine.ulps), (x, found)


def test_many_numbers_take_the_way_with_fewer_coins(play, monkeypatch):
    monkeypatch.setattr(functions, "FLAT", 10)
    values = np.array([0, 1, 2, 3, 255, 256, 257, 65535, 2**26 - 1])
    for function, exact in ((functions.reciprocal, -1.0), (functions.inverse_sqrt, -0.5)):
        opened, _, engine = compute(play, function, values, fraction=16, bits=26)
        true = np.where(values, np.maximum(values, 1) / 2.0**16, np.inf) ** exact
        assert (np.abs(opened / 2.0**16 - true) < (true + engine.ulps) / 2**16).all()
        coins = [key for key in engine.masks.used if key[0] == "coins"]
        assert coins == [("coins", 5 + 5, len(values))]  # 26 bit lengths in groups of 6, and none for the first place


@pytest.mark.parametrize("bits", [7, 17, 25, 29, 31])
@pytest.mark.parametrize("fraction", [15, 16])
def test_roots_of_many_numbers_of_any_length(play, monkeypatch, bits, fraction):
    monkeypatch.setattr(functions, "FLAT", 10)
    values = np.array([1, 2, 3, 100, (1 << bits) - 1])
    for function, exact in ((functions.reciprocal, -1.0), (functions.inverse_sqrt, -0.5)):
        opened, _, engine = compute(play, function, values, fraction=fraction, bits=bits)
        true = (values / 2.0**fraction) ** exact
        assert (np.abs(opened / 2.0**fraction - true) < (true + engine.ulps) / 2**fraction).all()


@pytest.mark.parametrize(
    ("length", "even", "any_size"), [(2, (2, 1), (2, 1)), (18, (6, 3), (3, 6)), (25, (4, 7), (5, 5))]
)
def test_bit_lengths_are_grouped_so_that_there_are_few_coins(length, even, any_size):
    assert functions.groups_of(length, functions.FLAT, roots=True) == even
    assert functions.groups_of(length, functions.FLAT, roots=False) == any_size


def test_two_centred_steps_are_as_exact_as_is_said():
    grid = np.linspace(0.5, 1.0, 1 << 16)
    for fraction in range(8, 32):
        plan = functions._reciprocal_plan(fraction)
        start = [functions._LINE, -2.0] if plan.degree == 1 else functions._reciprocal_start(plan.degree)
        bits = 40 if plan.degree == 1 else functions._COEFFICIENT_BITS[plan.degree]
        rounded = [round(c * 2**bits) / 2**bits for c in start]
        error = 1 - grid * np.polynomial.polynomial.polyval(grid, rounded)
        assert np.abs(error).max() <= functions._first_error(plan.degree) * (1 + 2.0**-30)
        for centre in plan.centres:
            error = error * (error + centre) - centre
        assert np.abs(error).max() <= 2.0 ** -(fraction + 2)
    assert [functions._reciprocal_plan(fraction).degree for fraction in (16, 17, 26, 27)] == [1, 2, 2, 3]


@pytest.mark.parametrize(
    ("fraction", "magnitude", "primes"), [(8, 1, [4, 4]), (16, 2, [4, 5]), (22, 1, [6, 6]), (28, 1, [6, 6])]
)
def test_reciprocals_need_fewer_primes_than_roots(play, fraction, magnitude, primes):
    needed = [functions.bits_needed(fraction, magnitude, roots=roots) for roots in (False, True)]
    systems = [system_for(bits, 3, 1) for bits in needed]
    assert [len(system.primes) for system in systems] == primes
    top = (1 << (fraction + magnitude)) - 1
    values = np.unique(np.concatenate([np.arange(200), np.geomspace(1, top, 500).astype(np.int64), [top - 1, top]]))
    committee = replace(make(3, 1), system=systems[0])
    opened, _, engine = compute(
        play, functions.reciprocal, values, committee=committee, fraction=fraction, bits=fraction + magnitude
    )
    unit = 2.0**-fraction
    true = np.where(values, 1 / (np.maximum(values, 1) * unit), 0.0)
    assert (np.abs(opened * unit - true) < unit * (true + engine.ulps)).all()


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (5, 2), (7, 3)])
@pytest.mark.parametrize(("fraction", "magnitude"), [(8, 1), (16, 5), (20, 10), (26, 3), (30, 1)])
def test_the_primes_that_are_said_to_be_needed_are_enough(play, size, threshold, fraction, magnitude):
    bits = functions.bits_needed(fraction, magnitude, ulps=(comb(size, threshold) + 1) / 2)
    committee = replace(make(size, threshold), system=system_for(bits, size, threshold))
    top = (1 << (fraction + magnitude)) - 1
    values = np.array([1, 1 << fraction, top])

    def program(engine, x):
        results = [engine.multiply(x, x), functions.reciprocal(engine, x), functions.inverse_sqrt(engine, x)]
        joined = np.concatenate([result.shares.values for result in results], axis=1)
        return replace(
            results[0], shares=replace(results[0].shares, values=joined), bound=max(r.bound for r in results)
        )

    opened, _, engine = compute(
        play, program, values, committee=committee, fraction=fraction, bits=fraction + magnitude
    )
    numbers = values / 2.0**fraction
    true = np.concatenate([numbers**2, 1 / numbers, numbers**-0.5])
    assert (np.abs(opened / 2.0**fraction - true) <= 2.0**-fraction * (true + engine.ulps)).all()


@pytest.mark.parametrize(("fraction", "magnitude"), [(8, 5), (16, 6), (15, 11), (28, 2)])
def test_what_masks_hide_for_many_numbers(play, monkeypatch, fraction, magnitude):
    """Groups of bit lengths of one size make powers larger; that is one bit for reciprocals, and none for roots."""
    monkeypatch.setattr(functions, "FLAT", 0)
    hidden = []
    monkeypatch.setattr(Masks, "check", lambda self, bits, what: hidden.append(bits - 1))
    values = np.array([1, 1 << fraction, (1 << fraction + magnitude) - 1])
    for function, roots in ((functions.reciprocal, False), (functions.inverse_sqrt, True)):
        hidden.clear()
        compute(play, function, values, committee=make(3, 1, 8), fraction=fraction, bits=fraction + magnitude)
        beyond = max(hidden) - functions.bits_needed(fraction, magnitude, roots=roots)
        if not roots and (fraction, magnitude) in ((8, 5), (16, 6)):
            assert beyond == 1
        else:
            assert beyond <= 0


@pytest.mark.parametrize("committee", [make(3, 1), make(4, 1)], ids=str)
@pytest.mark.parametrize("shape", [(0,), (3, 0)], ids=str)
def test_no_numbers_at_all(play, committee, shape):
    def program(engine, x):
        whole = engine.from_shares(x.shares, x.bound, 0)
        assert engine.multiply(whole, whole, fraction=0).shape == shape
        found = [engine.multiply(x, x), functions.reciprocal(engine, x), functions.inverse_sqrt(engine, x)]
        assert [one.shape for one in found] == [shape] * 3
        return found[0]

    opened, _, _ = compute(play, program, np.zeros(shape, dtype=np.int64), committee=committee)
    assert opened.shape == shape


def test_a_product_of_three_is_refused_before_it_is_opened(play):
    """At degree 3t the sharings of zero would leave the leading coefficients bare."""

    def program(engine, x):
        square = engine.product(x, x)
        for attempt in (
            lambda: engine.multiply(square, x),
            lambda: engine.products([(x, x), (x, square)]),
            lambda: engine.truncate(engine.from_shares(engine.hand.multiply(square.shares, x.shares), 1, 60), 20),
            lambda: engine.inner(square.reshape(2, 2), x.reshape(2, 2)),
        ):
            with raises(ValueError, "VA086"):
                attempt()
        return x

    compute(play, program, np.arange(4), committee=make(4, 1))


def test_who_knows_the_result_and_the_keys_of_a_seat_knows_its_rounding(play, monkeypatch):
    """The counter-example to "what is opened tells nothing beside the result", as docs/theory/fixed-point.md has it."""
    cut, secret, count = 10, 5 * 1024 + 100, 4000
    seen = {}

    def program(engine, x):
        if engine.hand.name == "n0":
            opening, limbs = engine.hand.open_to_readers, engine.masks._limbs(cut)

            def spied_draw(streams, size):
                drawn = type(limbs).drawn(limbs, streams, size)
                seen["lows"] = drawn[: len(streams)].sum(axis=0).astype(np.int64)  # of ten bits, so of one limb
                return drawn

            def spied_opening(shares, readers):
                opened = opening(shares, readers)
                seen["opened"] = engine.system.low_word(opened).astype(np.int64)
                return opened

            limbs.__dict__["drawn"], engine.hand.open_to_readers = spied_draw, spied_opening
        return engine.truncate(x, 20 - cut)

    result, _, engine = compute(play, program, np.full(count, secret))
    offset = (engine.masks.groups - 1) << cut >> 1
    found = (result << cut) + (seen["opened"] & ((1 << cut) - 1)) - seen["lows"] + offset
    assert found.min() - secret in range(5)
    assert (found - secret < 1 << cut).all()
    assert stats.kstest((found - secret + 0.5) / 2**cut, "uniform").pvalue > 1e-6


def test_many_numbers_are_taken_in_parts(play, monkeypatch):
    values = (np.arange(1, 25) << 16).reshape(2, 12)
    whole = {
        "bits": lambda e, x: e.bits(x),
        "length": lambda e, x: e.bit_length(x),
        "negative": lambda e, x: e.negative(x),
    }
    plain = {name: compute(play, operation, values)[0] for name, operation in whole.items()}
    whole |= {"reciprocal": functions.reciprocal, "root": functions.inverse_sqrt}
    whole["powers"] = functions.normalising_powers
    for module in (fixedpoint, functions):
        monkeypatch.setattr(module, "PART", 5)
        monkeypatch.setattr(module, "MANY", 7)
    found = {}
    for name, operation in whole.items():
        found[name], _, engine = compute(play, operation, values)
        of_every_bit = name in ("bits", "length", "powers")
        assert {key[2] for key in engine.masks.used} == ({5, 4} if of_every_bit else {7, 3})
    assert all(np.array_equal(found[name], plain[name]) for name in plain)
    assert np.abs(found["reciprocal"] - 2.0**40 / values).max() < 20
    assert np.abs(found["root"] - 2.0**30 / np.sqrt(values)).max() < 20
    assert (values * found["powers"] >> 29 == 1).all()


@pytest.mark.parametrize("size", [1, 6, 7, 8, 14, 15])
def test_parts_end_where_numbers_do(play, monkeypatch, size):
    monkeypatch.setattr(fixedpoint, "MANY", 7)
    values = np.arange(size) - 3
    opened, _, engine = compute(play, lambda e, x: e.negative(x), values)
    assert opened.tolist() == (values < 0).astype(int).tolist()
    assert {key[2] for key in engine.masks.used} == ({7} if size >= 7 else set()) | ({size % 7} - {0})


@few
@given(values=integers(30))
def test_the_largest_is_exact(play, values):
    opened, _, _ = compute(play, lambda e, x: functions.largest(e, x, 0).reshape(1), values)
    assert opened.tolist() == [values.max()]


def test_independent_products_share_a_round(play, in_threads):
    values = np.arange(-4, 5) << 18

    def program(engine, x):
        before = len(engine.hand.links["n1" if engine.hand.name != "n1" else "n0"].sent)
        first, second, third = engine.products([(x, x), (x[:3], x[:3]), (engine.scale(x, 2), x)])
        after = len(engine.hand.links["n1" if engine.hand.name != "n1" else "n0"].sent)
        assert after - before == 1
        assert (first.shape, second.shape, third.shape) == ((9,), (3,), (9,))
        return engine.subtract(third, first)

    opened, _, engine = compute(play, program, values)
    assert np.abs(opened - (values.astype(float) / 2**20) ** 2 * 2**20).max() < 2 * engine.ulps


def test_independent_products_of_integers_share_a_round(play):
    values = np.arange(-4, 5)

    def program(engine, x):
        whole = engine.from_shares(x.shares, x.bound, 0)
        peer = engine.hand.links["n2" if engine.hand.name != "n2" else "n1"]
        before = len(peer.sent)
        square, double, cut = engine.products([(whole, whole), (whole[:2], engine.scale(whole[:2], 2)), (x, x)])
        assert len(peer.sent) - before <= 2, "one to lower what is exact, one to open what is cut"
        assert (square.shape, double.shape, cut.shape) == ((9,), (2,), (9,))
        joined = np.concatenate([square.shares.values, double.shares.values], axis=1)
        return replace(square, shares=replace(square.shares, values=joined))

    opened, fraction, _ = compute(play, program, values)
    assert fraction == 20
    assert (opened >> 20).tolist() == [*(values**2).tolist(), 32, 18]


def test_random_bits_are_fair_and_nobodys(play):
    opened, _, _ = compute(play, lambda e, x: e.random_bits((3, 2000)), np.arange(2))
    assert opened.shape == (3, 2000)
    assert set(opened.reshape(-1).tolist()) == {0, 1}
    assert abs(opened.mean() - 0.5) < 6 * 0.5 / np.sqrt(opened.size)


def test_what_could_overflow_is_refused_before_it_is_computed(play):
    values = np.arange(4)

    def sent(hand):
        return sum(len(link.sent) for link in hand.links.values())

    def program(engine, x):
        before = sent(engine.hand)
        for attempt, match in (
            (lambda: engine.multiply(engine.scale(x, 1 << 60), x), "CA004"),
            (lambda: engine.scale(x, 1 << 120), "CA003"),
            (lambda: engine.below(engine.scale(x, 1 << 40), x), ("CA002", "62")),
            (lambda: engine.truncate(engine.scale(x, 1, fraction=70), 20), ("CA002", "62")),
            (lambda: engine.from_shares(x.shares, 1 << 140), "CA003"),
        ):
            with raises(CapacityError, match):
                attempt()
        assert sent(engine.hand) == before
        return x

    compute(play, program, values)
    with raises(ValueError, "VA083"):
        compute(play, lambda e, x: x, values, fraction=40)


def test_what_was_prepared_is_used_up_first(play):
    values = np.arange(1, 9) << 18

    def program(engine, x):
        first = functions.reciprocal(engine, x)
        used = dict(engine.masks.used)
        engine.masks.prepare(used)
        before = {key: len(kept) for key, kept in engine.masks._kept.items()}
        assert {key: count for key, count in before.items() if count} == used
        functions.reciprocal(engine, x)
        assert not any(engine.masks._kept.values())
        return first

    opened, _, _ = compute(play, program, values)
    assert np.abs(opened - 2.0**40 / values).max() < 8


def test_a_changed_share_is_noticed_when_there_is_one_to_spare(play):
    """At the degree of inputs three seats have one share more than they need."""
    values = np.arange(100)

    def program(engine, x):
        if engine.hand.name == "n2":
            x.shares.values[0, 3] += 1
        return engine.truncate(x, 10)

    noticed = []

    def seat(engine, x):
        try:
            return program(engine, x)
        except ShareError as error:
            noticed.append(str(error))
            raise

    with pytest.raises((ShareError, ConnectionError)):
        compute(play, seat, values)
    assert any("the shares of n0, n1, n2 do not lie on one polynomial" in words for words in noticed)


OPERATIONS = {
    "product": lambda e, x: e.multiply(x, x),
    "products": lambda e, x: e.products([(x, x), (x, e.from_shares(x.shares, x.bound, 0))])[1],
    "integers": lambda e, x: e.multiply(x, e.from_shares(x.shares, x.bound, 0), fraction=20),
    "truncation": lambda e, x: e.truncate(x, 5),
    "comparison": lambda e, x: e.negative(x),
    "bits": lambda e, x: e.bits(x),
    "length": lambda e, x: e.bit_length(x),
    "reciprocal": functions.reciprocal,
    "inverse root": functions.inverse_sqrt,
    "maximum": lambda e, x: functions.maximum(e, x, e.shift(x, 5)),
    "largest": lambda e, x: functions.largest(e, x.reshape(2, -1), 0),
    "random bits": lambda e, x: e.add(x, e.random_bits(x.shape)),
    "inner product": lambda e, x: e.inner(x.reshape(2, -1), x.reshape(2, -1)[:, :2]),
}
WITH_BITS = {"comparison", "bits", "length", "reciprocal", "inverse root", "maximum", "largest"}


def views(play, operation, secret, committee, pool, count=1200):
    """What pooled seats hold, receive and open while all compute on one number, many times over.

    Of each seat its share of the input and every message; then the messages together with that share, and, of two
    seats, their messages together.
    """
    seen = {name: [] for name in pool}

    def program(engine, x):
        log = seen.get(engine.hand.name)
        if log is None:
            return operation(engine, x)
        log.append(x.shares.values.copy())
        hand = engine.hand
        for link in engine.hand.links.values():
            link.recv = spied(link.recv, log, lambda fields: fields.values())

        def low_words(opened):
            return [] if opened is None else [engine.system.low_word(opened).astype(float)]

        hand.open_among_seats = spied(hand.open_among_seats, log, low_words)
        hand.open_to_readers = spied(hand.open_to_readers, log, low_words)
        engine.masks.bits.open = spied(engine.masks.bits.open, log, lambda opened: [opened])
        result = operation(engine, x)
        for link in engine.hand.links.values():
            del link.recv  # the result itself may be known
        return result

    def spied(method, log, arrays):
        def spy(*arguments, **options):
            found = method(*arguments, **options)
            log.extend(array.copy() for array in arrays(found) if isinstance(array, np.ndarray))
            return found

        return spy

    compute(play, program, np.full(count, secret), bits=26, committee=committee)
    together = [array + seen[name][0] for name in pool for array in seen[name][1:] if fits(array, seen[name][0])]
    first, last = seen[pool[0]], seen[pool[-1]]
    if first is not last:
        # A seat that is no reader hears less, so the longer list goes on alone.
        together += [joined(a, b) for a, b in zip(first, last, strict=False) if fits(a, b)]
        together += [joined(a, last[0]) for a in first[1:] if fits(a, last[0])]
    return [array for name in pool for array in seen[name]] + together


def fits(array, other):
    return array.shape == other.shape and (array.dtype == np.uint64) == (other.dtype == np.uint64)


def joined(a, b):
    return a ^ b if a.dtype == np.uint64 else a.astype(float) + b


def pvalues_of_bits(first, second):
    """What ``chi2_contingency`` says of zeros and ones in each row of both, for thousands of rows at once."""
    total = 64 * first.shape[1]
    ones = np.array(
        [np.unpackbits(np.ascontiguousarray(s).view(np.uint8), axis=1).sum(axis=1) for s in (first, second)]
    )
    ones = ones[:, np.minimum(ones.sum(axis=0), 2 * total - ones.sum(axis=0)) > 20]
    expected = ones.sum(axis=0) / 2
    off = np.maximum(np.abs(ones[0] - expected) - 0.5, 0)
    return stats.chi2.sf(2 * off**2 * (1 / expected + 1 / (total - expected)), 1).tolist()


def test_rows_of_bits_are_compared_as_scipy_does():
    rng = np.random.default_rng(3)
    first, second = rng.integers(0, 2**63, (2, 6, 5), dtype=np.uint64)
    second[3] &= second[2]
    first[4:] = second[4:] = 0
    first[5, 0] = 2**40 - 1
    found = []
    for x, y in zip(first, second, strict=True):
        counts = np.array([np.bincount(np.unpackbits(side.view(np.uint8)), minlength=2) for side in (x, y)])
        if counts.sum(axis=0).min() > 20:
            found.append(stats.chi2_contingency(counts).pvalue)
    assert len(found) == 5
    assert pvalues_of_bits(first, second) == pytest.approx(found, rel=1e-9)


def differences(first, second):
    """The smallest p-value of a difference between two transcripts, row by row, and how many of numbers and bits."""
    assert [a.shape for a in first] == [b.shape for b in second]
    values, bits = [], 0
    for a, b in zip(first, second, strict=True):
        rows = [array.reshape(-1, array.shape[-1]) for array in (a, b)]
        if a.dtype == np.uint64:
            bits += len(rows[0])
            values += pvalues_of_bits(*rows)
            continue
        for x, y in zip(*rows, strict=True):
            edges = np.unique(np.quantile(np.concatenate([x, y]), np.linspace(0, 1, 9)))
            counts = np.array([np.histogram(side, edges)[0] for side in (x, y)])
            counts = counts[:, counts.sum(axis=0) > 20]
            if counts.shape[1] > 1:
                values.append(stats.chi2_contingency(counts).pvalue)
    return min(values), len(values), bits


@pytest.mark.parametrize(("seats", "pool"), [((3, 1), ["n1"]), ((5, 2), ["n1", "n4"])], ids=["1 of 3", "2 of 5"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_pooled_seats_see_is_the_same_whatever_the_secret(play, name, seats, pool):
    first, second = (views(play, OPERATIONS[name], secret, make(*seats), pool) for secret in (3, 2**26 - 9))
    smallest, tests, bits = differences(first, second)
    assert smallest * tests > 1e-6
    assert tests >= 12
    assert bits >= 40 * (name in WITH_BITS)


def test_the_same_comparison_sees_a_mask_that_is_too_short(play, monkeypatch):
    monkeypatch.setattr(Masks, "width", 27)
    monkeypatch.setattr(Masks, "check", lambda *_: None)
    first, second = (views(play, OPERATIONS["truncation"], secret, make(), ["n1"]) for secret in (3, 2**26 - 9))
    smallest, tests, _ = differences(first, second)
    assert smallest * tests < 1e-12


def test_the_same_comparison_sees_bits_that_no_coin_hides(play, monkeypatch):
    class Uncovered(BitHand):
        def xor(self, left, right):
            return left

    original = FixedPoint.as_numbers

    def as_numbers(engine, bits):
        engine.masks.bits.__class__ = Uncovered
        found = original(engine, bits)
        engine.masks.bits.__class__ = BitHand
        return found

    monkeypatch.setattr(FixedPoint, "as_numbers", as_numbers)
    first, second = (views(play, OPERATIONS["comparison"], secret, make(), ["n1"]) for secret in (-3, 3))
    smallest, tests, _ = differences(first, second)
    assert smallest * tests < 1e-12
