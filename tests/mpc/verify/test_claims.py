from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from colonnade.errors import ShareError
from colonnade.mpc import PRIMES, Committee, Hand, ResidueSystem, Shares
from colonnade.mpc.shamir import combine
from colonnade.mpc.verify import claims, folding
from colonnade.mpc.verify.agreement import Transcript
from tests.support.errors import raises

COMMITTEES = [(3, 1), (4, 1), (5, 2), (7, 3), (5, 1)]
ROWS, LEFT, RIGHT = 300, 5, 4


def committee(size: int, threshold: int) -> Committee:
    return Committee(tuple(f"n{i}" for i in range(size)), threshold, ResidueSystem(PRIMES[:3]), active=True)


def run(in_threads, seats: Committee, program, hands=None):
    """One program for all seats; ``hands`` are classes of seats that deviate."""
    chosen = hands or {}

    def bind(name):
        return lambda links: program(chosen.get(name, Hand)(name, seats, links))

    return in_threads({name: bind(name) for name in seats.seats})


def inputs(rng=None):
    rng = rng or np.random.default_rng(5)
    return rng.integers(-4000, 4000, (ROWS, LEFT)), rng.integers(-4000, 4000, (ROWS, RIGHT))


def dealt(hand, left, right):
    x = hand.deal(left) if hand.name == "n0" else hand.receive("n0", left.shape)
    y = hand.deal(right) if hand.name == "n1" else hand.receive("n1", right.shape)
    return x, y


def products(hand):
    """An inner product, an elementwise one with a column for all, one of a row; all are settled and then opened."""
    left, right = inputs()
    x, y = dealt(hand, left, right)
    gram = hand.lower(hand.inner(x, y))
    halves = [
        [Shares(side.values[:, part], side.degree) for part in (slice(0, 100), slice(100, None))] for side in (x, y)
    ]
    hand.claims.inner(*halves, gram)
    masked = hand.product(x, y.columns(slice(0, 1)))
    single = hand.product(x.columns(slice(0, 1)), y.columns(slice(1, 2)))
    flat = hand.product(Shares(x.values[:, :, 0], x.degree), Shares(y.values[:, :, 0], y.degree))
    square = hand.product(x, x)
    hand.claims.zero(Shares(hand.system.reduce(flat.values - masked.values[:, :, 0]), flat.degree))
    hand.claims.settle()
    opened = [hand.open_residues(shares.values) for shares in (gram, masked, single, flat, square)]
    return [hand.system.join(values, 2**60) for values in opened]


def expected():
    left, right = inputs()
    return [left.T @ right, left * right[:, :1], left[:, :1] * right[:, 1:2], left[:, 0] * right[:, 0], left * left]


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
def test_honest_seats_settle_their_claims_and_open_the_products(in_threads, size, threshold):
    for found in run(in_threads, committee(size, threshold), products).values():
        for value, due in zip(found, expected(), strict=True):
            assert np.array_equal(value, due)


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
@pytest.mark.parametrize(
    ("left", "right"), [((0,), (0,)), ((0, 3), (0, 3)), ((3, 0), (3, 1)), ((0, 3), (0, 1)), ((2, 0, 3), (2, 0, 3))]
)
def test_products_of_no_numbers_are_settled_alone_and_beside_others(in_threads, size, threshold, left, right):
    def program(hand):
        x, y = dealt(hand, np.zeros(left, dtype=np.int64), np.zeros(right, dtype=np.int64))
        for others in (False, True):
            nothing = hand.product(x, y)
            some = hand.product(*dealt(hand, np.arange(5), np.arange(5))) if others else nothing
            hand.claims.settle()
        return nothing.shape, hand.system.join(hand.open_residues(some.values), 2**60), hand.claims.settled

    for shape, some, settled in run(in_threads, committee(size, threshold), program).values():
        assert shape == np.broadcast_shapes(left, right)
        assert some.tolist() == [0, 1, 4, 9, 16]
        assert settled >= 3


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
def test_a_product_over_no_rows_is_zero_and_nothing_else_passes(in_threads, size, threshold, wrong):
    def program(hand):
        x, y = dealt(hand, np.zeros((0, 3), dtype=np.int64), np.zeros((0, 2), dtype=np.int64))
        product = hand.lower(hand.inner(x, y))
        hand.claims.inner([x], [y], hand.shift(product, 1) if wrong else product)
        if not wrong:
            hand.claims.settle()
            return hand.system.join(hand.open_residues(product.values), 2**60).tolist()
        with raises(ShareError, "SH015"):
            hand.claims.settle()
        return None

    for found in run(in_threads, committee(size, threshold), program).values():
        assert found == (None if wrong else [[0, 0]] * 3)


class LowersAnother(Hand):
    """It deals another number than its product share when degrees are lowered: one number, modulo one prime."""

    when = 0

    def lower(self, shares):
        if type(self).when == self.__dict__.setdefault("_calls", 0):
            values = shares.values.copy()
            values[1].reshape(-1)[0] += 1
            shares = Shares(self.system.reduce(values), shares.degree)
        self._calls += 1
        return super().lower(shares)


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
@pytest.mark.parametrize("when", range(5))
def test_a_seat_that_computes_one_product_wrongly_modulo_one_prime_is_caught(in_threads, size, threshold, when):
    cheat = type("Cheat", (LowersAnother,), {"when": when})
    with raises(ShareError, "SH015"):
        run(in_threads, committee(size, threshold), products, {"n2": cheat})


def in_windows(hand):
    """Products of three windows with coins of their own, X'Y and X'X each; settled together and then opened."""
    left, right = inputs()
    x, y = dealt(hand, left, right)
    found = []
    for start in range(0, ROWS, 100):
        blocks = [[Shares(side.values[:, start : start + 100], side.degree)] for side in (x, y)]
        gram = hand.lower(hand.inner(blocks[0][0], blocks[1][0]))
        square = hand.lower(hand.inner(blocks[0][0], blocks[0][0])).values
        upper = np.triu(square)
        square = upper + np.triu(square, 1).transpose(0, 2, 1)
        hand.claims.inner(*blocks, gram)
        hand.claims.inner(blocks[0], blocks[0], Shares(square, x.degree))
        found += [gram.values, square]
        assert hand.claims.ask()
    hand.claims.elementwise(x, x, hand.lower(hand.multiply(x, x)))  # not asked: settled with coins of its own
    hand.claims.settle()
    return [hand.system.join(hand.open_residues(values), 2**60) for values in found]


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
def test_claims_that_are_combined_ahead_are_settled_together(in_threads, size, threshold):
    left, right = inputs()
    for found in run(in_threads, committee(size, threshold), in_windows).values():
        for index, start in enumerate(range(0, ROWS, 100)):
            x, y = left[start : start + 100], right[start : start + 100]
            assert np.array_equal(found[2 * index], x.T @ y)
            assert np.array_equal(found[2 * index + 1], x.T @ x)


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (4, 1), (5, 2)])
@pytest.mark.parametrize("when", range(7))
def test_a_wrong_product_of_any_window_is_caught(in_threads, size, threshold, when):
    cheat = type("Cheat", (LowersAnother,), {"when": when})
    with raises(ShareError, "SH015"):
        run(in_threads, committee(size, threshold), in_windows, {"n2": cheat})


class TakesBack(Hand):
    """It adds to a product of the first window what it subtracts from the same one of the second."""

    def lower(self, shares):
        call = self.__dict__.setdefault("_calls", 0)
        if more := {0: 1, 2: -1}.get(call):
            values = shares.values.copy()
            values[1].reshape(-1)[0] += more
            shares = Shares(self.system.reduce(values), shares.degree)
        self._calls += 1
        return super().lower(shares)


def test_errors_that_cancel_over_windows_are_caught(in_threads):
    with raises(ShareError, "SH015"):
        run(in_threads, committee(3, 1), in_windows, {"n2": TakesBack})


def test_what_is_combined_ahead_has_enough_repetitions():
    lengths = {folding.degrees(length): length for length in range(1, claims.ASKED_LENGTH + 1)}
    for losses in (0, 1, 2):
        repeated = folding.repetitions(claims.LONGEST_ASKED, losses, claims.ASKED_TIMES)
        worst = folding.chance(lengths[max(lengths)], repeated, losses, claims.ASKED_TIMES)
        assert worst <= folding.ERROR


def test_too_much_is_not_asked_at_a_time(in_threads):
    def program(hand):
        rows = claims.LONGEST_ASKED // 2 + 1
        x = hand.random((rows, 1))
        square = hand.lower(hand.inner(x, x))
        asked = []
        for _ in range(3):
            hand.claims.inner([x], [x], square)
            asked.append(hand.claims.ask())
        hand.claims.inner([x, x], [x, x], square)  # wrong, and too long
        asked.append(hand.claims.ask())
        with raises(ShareError, "SH015"):
            hand.claims.settle()
        return asked

    # Three are as much as a fourth would still go with; then it is too long for one coin.
    for asked in run(in_threads, committee(3, 1), program).values():
        assert asked == [True, True, True, False]


class FoldsWrongly(Hand):
    """It helps a wrong product through by other values while the question is folded."""

    def lower(self, shares):
        values = shares.values.copy()
        values[0].reshape(-1)[0] += 1
        return super().lower(Shares(self.system.reduce(values), shares.degree))

    def lower_residues(self, values, degree):
        values = values.copy()
        values[0] += 1
        return super().lower_residues(self.system.reduce(values), degree)


class HidesAtTheEnd(LowersAnother):
    """It computes a product wrongly, and waits with its last share until it knows which one would make zero."""

    def open_residues(self, values, degree=None):
        t = self.committee.threshold
        if values.ndim != 3 or (values.shape[1] == 2 and values.shape[2] == 2):
            return super().open_residues(values, degree)
        shares = Shares(values, t if degree is None else degree)
        found = self._gathered(shares.shape, shares.degree, shares)
        points = {self.committee.point(seat): one for seat, one in found.items()}
        base = [point for point in sorted(points) if point != self.committee.point(self.name)][:t]
        known = [np.zeros_like(values), *(points[point] for point in base)]
        wanted = combine(self.system, known, [0, *base], self.committee.point(self.name))
        self.send_opening(Shares(wanted, t), self.committee.seats)
        return np.zeros_like(values)


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
def test_a_seat_that_speaks_last_cannot_make_a_failed_check_look_well(in_threads, size, threshold):
    with pytest.raises(ShareError):
        run(in_threads, committee(size, threshold), products, {"n2": HidesAtTheEnd})


class Tampers:
    """A link that changes the numbers in one message of a kind."""

    def __init__(self, link, kind, which, system):
        self._link, self._kind, self._left, self._system = link, kind, which, system

    def send(self, kind, **fields):
        if kind == self._kind:
            self._left -= 1
            if self._left == 0:
                fields = self._changed(fields)
        self._link.send(kind, **fields)

    def _changed(self, fields):
        if "words" in fields:
            words = fields["words"].copy()
            words.reshape(-1)[0] ^= 1
            return fields | {"words": words}
        name = "secret" if "secret" in fields else "digest" if "digest" in fields else "promise"
        return fields | {name: bytes(32)}

    def recv(self, kind, most):
        return self._link.recv(kind, most)


def tampering(kind, which, to):
    class Cheat(Hand):
        def __init__(self, name, seats, links, *rest):
            links = dict(links)
            links[to] = Tampers(links[to], kind, which, seats.system)
            super().__init__(name, seats, links, *rest)

    return Cheat


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
def test_a_seat_that_also_folds_wrongly_is_caught(in_threads, size, threshold):
    with raises(ShareError, "SH015"):
        run(in_threads, committee(size, threshold), products, {"n1": FoldsWrongly})


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
@pytest.mark.parametrize("kind", ["opening", "coin", "key-digests"])
def test_one_changed_message_to_one_seat_ends_the_run(in_threads, size, threshold, kind):
    with pytest.raises(ShareError):
        run(in_threads, committee(size, threshold), products, {"n1": tampering(kind, 1, "n0")})


@pytest.mark.parametrize(("size", "threshold"), [(4, 1), (5, 1), (7, 2)])
def test_shares_on_no_polynomial_are_found_before_any_product_is_opened(in_threads, size, threshold):
    with raises(ShareError, "SH014"):
        run(in_threads, committee(size, threshold), products, {"n0": tampering("share", 1, f"n{size - 1}")})


def test_seats_that_were_told_different_numbers_stop_at_the_next_coin(in_threads):
    def program(hand):
        hand.note(np.arange(3) + (hand.name == "n2"))
        return hand.coin().bytes(8)

    with raises(ShareError, "SH012"):
        run(in_threads, committee(3, 1), program)


@pytest.mark.parametrize(("size", "threshold"), COMMITTEES)
def test_coins_are_the_same_for_all_and_never_again(in_threads, size, threshold):
    found = run(in_threads, committee(size, threshold), lambda hand: [hand.coin().bytes(16) for _ in range(3)])
    first = found["n0"]
    assert all(coins == first for coins in found.values())
    assert len(set(first)) == 3


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (4, 1), (5, 2), (7, 3)])
def test_an_opening_after_disagreement_shows_uniform_numbers(in_threads, size, threshold):
    """Seats 0 and 1 were told different numbers: together with all corrupt shares they are no sharing of a value."""

    def program(hand):
        hand.note(hand.name in ("n0",))
        return hand.zero((4000,), 2 * threshold).values

    found = run(in_threads, committee(size, threshold), program)
    first, others = found["n0"], np.stack([found[f"n{i}"] for i in range(1, size)])
    honest = run(in_threads, committee(size, threshold), lambda hand: hand.zero((4000,), 2 * threshold).values)
    for shares, same in ((honest, True), (found, False)):
        points = {int(name[1:]) + 1: values for name, values in shares.items()}
        seats = committee(size, threshold)
        base = sorted(points)[: 2 * threshold + 1]
        total = combine(seats.system, [points[point] for point in base], base, 0)
        assert np.all(total == 0) == same
    assert abs(np.corrcoef(first[0], others[0, 0])[0, 1]) < 0.1


def test_the_chance_of_a_wrong_claim_is_below_two_to_the_minus_forty_for_any_length():
    for length in (1, 2, 64, 65, 4096, 195_666, 10**6, 10**8, 10**10):
        count = folding.repetitions(length)
        assert folding.chance(length, count) <= folding.ERROR <= Fraction(1, 2**41)
        assert count == 1 or folding.chance(length, count - 1) > folding.ERROR
    assert folding.repetitions(195_666) == 3


def test_a_transcript_tells_values_apart_that_look_alike_when_joined():
    def digest(*values):
        transcript = Transcript()
        transcript.note(*values)
        return transcript.digest

    assert digest(b"ab", b"c") != digest(b"a", b"bc")
    assert digest(np.arange(4)) != digest(np.arange(4).reshape(2, 2))
    assert digest(np.arange(4)) != digest(np.arange(4).astype(np.int32))
    assert digest("1") != digest(1)
    assert digest(1, 2) == digest(1, 2)
