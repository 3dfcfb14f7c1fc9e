"""Fixed-point numbers where seats check each other: whoever changes a message is caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from colonnade.errors import ProtocolError, ShareError
from colonnade.mpc import Hand
from colonnade.mpc.shamir import weights
from colonnade.mpc.shares import Shares
from tests.support.errors import raises

from ..verify.tampering import listing, tampering
from .kit import compute, make

CHEATER = "n1"
X, Y = np.random.default_rng(1).integers(-(2**18), 2**18, (2, 3))


def chain(engine, x, y):
    """Products one after the other, a comparison of the last, and a product with what it told."""
    z = engine.multiply(engine.multiply(x, y), x)
    return engine.multiply(engine.below(z, y), x, fraction=12)


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
