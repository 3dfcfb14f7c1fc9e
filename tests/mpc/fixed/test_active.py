"""Fixed-point numbers where seats check each other: the same results, and whoever changes a message is caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from colonnade.errors import ProtocolError, ShareError
from colonnade.mpc import PRIMES, Hand
from colonnade.mpc.fixed import functions
from colonnade.mpc.fixed.arithmetic import FixedPoint
from colonnade.mpc.shamir import weights
from colonnade.mpc.shares import Shares
from tests.support.errors import raises

from ..conftest import make as committee_of
from ..verify.tampering import Tampering

COMMITTEES = [(3, 1), (4, 1), (5, 2), (7, 3)]
CHEATER = "n1"
FRACTION = 12


def make(size, threshold):
    return replace(committee_of(size, threshold, PRIMES[:6]), active=True)


def compute(in_threads, committee, program, *inputs, bits=20, changed=(), hands=None):
    """Deal integers, run a program on them at every seat, settle and open what it returns.

    Returns what each seat opened, and what kinds of messages the cheater sent; it changes those that are ``changed``.
    """
    sent = []

    def bind(name):
        def seat(links):
            if name == CHEATER:
                links = {peer: Tampering(link, sent, changed) for peer, link in links.items()}
            hand = (hands or {}).get(name, Hand)(name, committee, links)
            engine = FixedPoint(hand, FRACTION)
            numbers = []
            for values in inputs:
                shares = hand.deal(values) if name == "n0" else hand.receive("n0", values.shape)
                numbers.append(engine.from_shares(shares, (1 << bits) - 1))
            found = program(engine, *numbers)
            engine.settle()
            opened = hand.open_residues(found.shares.values)
            return hand.system.join(opened, found.bound), found.fraction, engine.ulps

        return seat

    return in_threads({name: bind(name) for name in committee.seats}), sent


def numbers(seed, *shape, low=-(2**18), high=2**18):
    return np.random.default_rng(seed).integers(low, high, shape)


X, Y = numbers(1, 70), numbers(2, 70)
POSITIVE = np.concatenate([numbers(3, 60, low=1), 1 << np.arange(18)])
UNIT = 1 << FRACTION
OPERATIONS = {
    "products": (lambda e, x, y: e.multiply(x, y), (X, Y), X * Y / UNIT, 0),
    "several products": (
        lambda e, x, y: e.add(*e.products([(x, x), (x, y)])), (X, Y), (X * X + X * Y) / UNIT, 1,
    ),
    "products with a column": (
        lambda e, x, y: e.multiply(x.reshape(10, 7), y[:10].reshape(10, 1)).reshape(70),
        (X, Y),
        (X.reshape(10, 7) * Y[:10, None]).reshape(-1) / UNIT,
        0,
    ),
    "products of whole numbers": (
        lambda e, x, y: e.multiply(replace(x, fraction=0), replace(y, fraction=0), fraction=0), (X, Y), X * Y, None,
    ),
    "a product that is not truncated": (
        lambda e, x, y: e.truncate(e.add(e.product(x, y), e.product(x, x)), FRACTION),
        (X, Y),
        (X * Y + X * X) / UNIT,
        0,
    ),
    "products of matrices": (
        lambda e, x, y: e.inner(x.reshape(35, 2), y.reshape(35, 2)).reshape(4),
        (X, Y),
        (X.reshape(35, 2).T @ Y.reshape(35, 2)).reshape(-1) / UNIT,
        0,
    ),
    "truncations": (lambda e, x: e.truncate(x, 5), (X,), X / 2**7, 0),
    "comparisons": (lambda e, x, y: e.below(x, y), (X, Y), X < Y, None),
    "bits": (lambda e, x: e.bits(x)[3], (POSITIVE,), POSITIVE >> 3 & 1, None),
    "bit lengths": (lambda e, x: e.bit_length(x), (POSITIVE,), [int(x).bit_length() for x in POSITIVE], None),
    "the largest": (lambda e, x: functions.largest(e, x.reshape(7, 10), 0), (X,), X.reshape(7, 10).max(axis=0), None),
}  # fmt: skip


BITWISE = {"comparisons", "bits", "bit lengths", "the largest"}
CASES = [
    pytest.param(*case, name, marks=pytest.mark.slow if name in BITWISE and case != (3, 1) else ())
    for case in COMMITTEES
    for name in OPERATIONS
]


@pytest.mark.parametrize(("size", "threshold", "name"), CASES)
def test_operations_are_as_exact_as_without_checks(in_threads, size, threshold, name):
    program, inputs, true, more = OPERATIONS[name]
    results, _ = compute(in_threads, make(size, threshold), program, *inputs)
    for opened, _, ulps in results.values():
        error = np.abs(opened.astype(float) - np.asarray(true, dtype=float)).max()
        assert error == 0 if more is None else error < ulps * (1 + more)


NOTHING = {
    "products": (lambda e, x: e.multiply(x, x), (0,)),
    "products with a column": (lambda e, x: e.multiply(x.reshape(0, 7), x.reshape(0, 1)), (0, 7)),
    "products over rows": (lambda e, x: e.inner(x.reshape(3, 0), x.reshape(3, 0)), (0, 0)),
    "products over no rows": (lambda e, x: e.inner(x.reshape(0, 2), x.reshape(0, 3)), (2, 3)),
    "truncations": (lambda e, x: e.truncate(x, 5), (0,)),
    "comparisons": (lambda e, x: e.below(x, x), (0,)),
    "bit lengths": (lambda e, x: e.bit_length(x), (0,)),
    "reciprocals": (functions.reciprocal, (0,)),
    "roots": (functions.inverse_sqrt, (0,)),
    "the largest": (lambda e, x: functions.largest(e, x.reshape(7, 0), 0), (0,)),
}


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (4, 1)])
@pytest.mark.parametrize("name", NOTHING)
def test_operations_on_no_numbers(in_threads, size, threshold, name):
    program, shape = NOTHING[name]
    results, _ = compute(in_threads, make(size, threshold), program, np.zeros(0, dtype=np.int64))
    for opened, _, ulps in results.values():
        assert opened.shape == shape
        assert np.abs(opened).max(initial=0) < ulps


@pytest.mark.parametrize(
    ("size", "threshold"), [(3, 1), *(pytest.param(*case, marks=pytest.mark.slow) for case in COMMITTEES[1:])]
)
@pytest.mark.parametrize(("function", "power"), [(functions.reciprocal, -1.0), (functions.inverse_sqrt, -0.5)])
def test_functions_are_as_exact_as_without_checks(in_threads, size, threshold, function, power):
    results, _ = compute(in_threads, make(size, threshold), function, POSITIVE)
    true = (POSITIVE / UNIT) ** power
    for opened, _, ulps in results.values():
        assert (np.abs(opened / UNIT - true) < (true + ulps) / UNIT).all()


def chain(engine, x, y):
    """Products one after the other, a comparison of the last, and a product with what it told."""
    z = engine.multiply(engine.multiply(x, y), x)
    return engine.multiply(engine.below(z, y), x, fraction=FRACTION)


def small(engine, x, y):
    return chain(engine, x[:3], y[:3])


def is_right(opened):
    z = X[:3] * Y[:3] / UNIT * X[:3] / UNIT
    return np.array_equal(opened, np.where(z < Y[:3], X[:3], 0))


@pytest.mark.parametrize(
    ("size", "threshold", "step"),
    [
        (3, 1, 5),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [(3, 1, 1), (4, 1, 3), (5, 2, 6), (7, 3, 24)]),
    ],
)
def test_whoever_changes_one_share_in_one_message_is_caught(in_threads, size, threshold, step):
    """A share of a product or of bits, an opening to one seat only, a message of a check: all stop, or nothing changed.

    Only messages of which nobody needs the changed share pass: with spare seats, or the last opening to one seat.
    """
    results, sent = compute(in_threads, make(size, threshold), small, X, Y)
    assert all(is_right(opened) for opened, *_ in results.values())
    shares = [number for number, kind in enumerate(sent) if kind in ("share", "bits", "opening")]
    caught = 0
    for number in shares[::step]:
        try:
            results, _ = compute(in_threads, make(size, threshold), small, X, Y, changed={number})
        except (ShareError, ProtocolError, ConnectionError):
            caught += 1
            continue
        assert all(is_right(opened) for opened, *_ in results.values())
    assert caught > len(shares[::step]) * (0.9 if size == 2 * threshold + 1 else 0.5)


class Counting(Hand):
    """It counts how often it opens numbers under masks."""

    opened: list[int]

    def open_among_seats(self, shares):
        self.opened.append(shares.degree)
        return super().open_among_seats(shares)


class Shifting(Hand):
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
        step = np.array([1000 * pow(weights(p, points, 0)[place], -1, p) % p for p in self.system.primes], dtype=float)
        values = shares.values + step.reshape(-1, *[1] * (shares.values.ndim - 1))
        return Shares(self.system.reduce(values), shares.degree)


def three_products(engine, x, y):
    for _ in range(3):
        x = engine.multiply(x, y, bound=1 << 37)
        x = replace(x, bound=(1 << 20) - 1)
    return x


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (5, 2), pytest.param(7, 3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("equivocated", [False, True])
def test_an_error_is_caught_before_a_later_opening_could_multiply_it_with_a_secret(
    in_threads, size, threshold, which, equivocated
):
    """Masks hide numbers within bounds. After a wrong opening, a later product could be beyond them."""
    opened, committee = [], make(size, threshold)
    hands = {
        "n0": type("Seen", (Counting,), {"opened": opened}),
        CHEATER: type("Cheat", (Shifting,), {"which": which, "only_to": "n0" if equivocated else None}),
    }
    found = "SH012" if equivocated else "SH015"
    with raises((ShareError, ConnectionError), found):
        compute(in_threads, committee, three_products, X >> 8, Y >> 8, hands=hands)
    assert opened == [2 * threshold] * (which + 1)


def test_three_honest_products_are_three_openings_under_masks(in_threads):
    opened = []
    hands = {"n0": type("Seen", (Counting,), {"opened": opened})}
    results, _ = compute(in_threads, make(3, 1), three_products, X >> 8, Y >> 8, hands=hands)
    assert opened == [2, 2, 2]
    assert len(results) == 3
