"""Seats that speak last, or differently to different seats, against the real arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.errors import ShareError
from colonnade.mpc import PRIMES, Committee, Hand, ResidueSystem, Shares, vocabulary
from colonnade.mpc.packing import pack, unpack
from colonnade.mpc.shamir import combine, weights
from colonnade.mpc.verify.agreement import Agreement
from colonnade.mpc.verify.claims import Claims
from colonnade.received import received
from tests.support.errors import raises

CHEAT = "n0"


def committee(size, threshold):
    return Committee(tuple(f"n{i}" for i in range(size)), threshold, ResidueSystem(PRIMES[:3]), active=True)


def run(in_threads, seats, program, cheat):
    def bind(name):
        return lambda links: program((cheat if name == CHEAT else Hand)(name, seats, links))

    return in_threads({name: bind(name) for name in seats.seats})


class SpeaksLast(Hand):
    """It computes a product wrongly, waits for everybody's share in each opening, and sends what makes it zero."""

    def lower(self, shares):
        values = shares.values.copy()
        values[0].reshape(-1)[0] += 1
        return super().lower(Shares(self.system.reduce(values), shares.degree))

    def open_residues(self, values, degree=None):
        degree = self.committee.threshold if degree is None else degree
        found = self._gathered(values.shape[1:], degree, Shares(values, degree))
        if degree == 2 * self.committee.threshold:
            points = [self.committee.point(seat) for seat in self.committee.seats[: degree + 1]]
            total = combine(self.system, [found[seat] for seat in self.committee.seats[: degree + 1]], points, 0)
            for index, prime in enumerate(self.system.primes):
                factor = pow(weights(prime, tuple(points), 0)[0], -1, prime)
                values[index] -= total[index] * (factor if factor < prime // 2 else factor - prime)
            values = self.system.reduce(values)
        self.send_opening(Shares(values, degree), self.committee.seats)
        return self._interpolated(found, degree)


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (5, 2), (7, 3)])
def test_a_seat_that_waits_for_all_others_cannot_make_a_wrong_product_pass(in_threads, size, threshold):
    def program(hand):
        x = hand.deal(np.arange(5)) if hand.name == "n1" else hand.receive("n1", (5,))
        hand.product(x, x)
        hand.claims.settle()

    with raises(ShareError, "SH015"):
        run(in_threads, committee(size, threshold), program, SpeaksLast)


class PromisesDifferently:
    """A link that tells its peer another promise for the coin after the next."""

    def __init__(self, link):
        self._link = link

    def send(self, kind, **fields):
        self._link.send(kind, **(fields | {"next": bytes(32)} if kind == "coin" else fields))

    def recv(self, kind, most):
        return self._link.recv(kind, most)


class TwoPromises(Hand):
    def __init__(self, name, seats, links, *rest):
        super().__init__(name, seats, dict(links) | {"n1": PromisesDifferently(links["n1"])}, *rest)


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (4, 1), (5, 2), (7, 3)])
def test_two_promises_of_one_seat_do_not_give_two_coins(in_threads, size, threshold):
    """Whoever goes on has the same coin; the promises are compared at the latest with the next coin."""
    coins = {}

    def program(hand):
        hand.common  # noqa: B018 - the first call exchanges keys
        coins[hand.name] = hand.coin().bytes(16)
        hand.coin()

    with raises(ShareError, "SH012"):
        run(in_threads, committee(size, threshold), program, TwoPromises)
    assert len({coin for name, coin in coins.items() if name != CHEAT}) <= 1


@pytest.mark.parametrize(
    ("size", "threshold", "needed"),
    [(3, 1, 3), (4, 1, 3), (5, 1, 4), (5, 2, 5), (6, 1, 4), (6, 2, 5), (7, 1, 5), (7, 3, 7)],
)
def test_no_two_groups_of_seats_that_lost_each_other_can_both_go_on(size, threshold, needed):
    seats = committee(size, threshold)
    assert {seats.enough(degree) for degree in (threshold, 2 * threshold)} == {needed}
    honest = size - threshold
    assert needed >= 2 * threshold + 1
    assert 2 * (needed - threshold) > honest, "the honest seats of two groups are disjoint"


def test_two_arithmetics_with_the_same_keys_draw_different_sharings_of_zero(in_threads):
    def program(hand):
        first, second = hand.over(ResidueSystem(PRIMES[:2])), hand.over(ResidueSystem(PRIMES[:2]))
        return first.zero((50,), 2).values, second.zero((50,), 2).values

    for first, second in run(in_threads, committee(3, 1), program, Hand).values():
        assert not np.array_equal(first, second)


class HoldsBack(Claims):
    """It sends its part of the last number to n2 only when n1 has opened: two points tell what would make it zero."""

    def _test_zero(self, values, lowered, repeated):
        hand, system, shape = self._hand, self._system, values.shape[1:]
        hand.random(shape)
        drawn = system.uniform(tuple(shape), hand.common.pair_stream("n0", "n1"))  # n1 waits for nothing of this
        first, second = (hand._received(seat, shape).values for seat in ("n1", "n2"))
        due = vocabulary.opening(tuple(shape), len(system.primes))
        opened = unpack(received(hand.links["n1"], "n1", due)["words"], shape, system, "n1")
        parts, own = [], []
        for index, prime in enumerate(system.primes):
            a, b, c = weights(prime, (1, 2, 3), 0)
            whole = [one[index].astype(np.int64).astype(object) for one in (first, second, drawn, opened)]
            here = (b * whole[0] + c * whole[1]) % prime
            secret = (2 * here - whole[3] + a * whole[2]) % prime
            mine = -secret * pow(a, -1, prime) % prime
            slope = (whole[2] - mine) * pow(2, -1, prime) % prime
            parts.append((mine + 3 * slope) % prime)
            own.append((here + a * (mine + slope)) % prime)
        whole = [system.reduce(np.array([one.astype(np.float64) for one in each])) for each in (parts, own)]
        hand.links["n2"].send("share", words=pack(whole[0], system))
        for seat in ("n1", "n2"):
            hand.links[seat].send("opening", words=pack(whole[1], system))


class ComputesWrongly(Hand):
    """It computes a product wrongly, and holds something back when that is checked."""

    @property
    def claims(self):
        if self._claims is None:
            self._claims = HoldsBack(self)
        return self._claims

    def lower(self, shares):
        values = shares.values.copy()
        values[:, 0] += 1
        return super().lower(Shares(self.system.reduce(values), shares.degree))


def test_nobody_opens_a_check_before_all_have_received(in_threads):
    accepted = []

    def program(hand):
        x = hand.deal(np.arange(1, 6)) if hand.name == "n1" else hand.receive("n1", (5,))
        hand.product(x, x)
        hand.claims.settle()
        accepted.append(hand.name)

    with pytest.raises(AssertionError, match="agree"):  # n1 waits, and has opened nothing
        run(in_threads, committee(3, 1), program, ComputesWrongly)
    assert not {"n1", "n2"} & set(accepted)


class Grinds(Agreement):
    """It says that somebody is lost whenever it dislikes a coin, which it knows before it answers."""

    def _exchanged(self, kind, told):
        if kind != "coin":
            return super()._exchanged(kind, told)
        others = [seat for seat in self._seats if seat != self.name]
        answers = {seat: received(self._links[seat], seat, vocabulary.COIN) for seat in others}
        for seat in others:
            self._links[seat].send("coin", **told, lost=1)
        return answers, False


class DislikesCoins(Hand):
    @property
    def common(self):
        found = super().common
        if self._agreement is not None:
            self._agreement.__class__ = Grinds
        return found


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (4, 1), (5, 2), (7, 1)])
def test_a_seat_cannot_have_a_coin_drawn_again_as_often_as_it_likes(in_threads, size, threshold):
    with raises(ShareError, "SH011"):
        run(in_threads, committee(size, threshold), lambda hand: hand.coin(), DislikesCoins)
