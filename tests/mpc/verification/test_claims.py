"""Claims about products are settled before anything is opened; whoever computes or tells something else is caught."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from colonnade.errors import ShareError
from colonnade.message_schema import receive_message
from colonnade.mpc import PRIMES, ResidueSystem, ShareEngine, Shares, messages
from colonnade.mpc.fixed_point.shared_bits import BinaryField, BitEngine, BitShares
from colonnade.mpc.messages import pack, unpack
from colonnade.mpc.shamir import CommonKeys, evaluate_at, lagrange_weights
from colonnade.mpc.verification import bit_products as verification, claims, large_field as field
from colonnade.mpc.verification.bit_products import BitProductClaims
from colonnade.mpc.verification.claims import ShareClaims
from colonnade.mpc.verification.transcript import PublicTranscript, TranscriptAgreement
from colonnade.randomness import Stream
from tests.support.errors import refused

from ..conftest import Changing, dealt, first_of, listing, make, tampering
from ..fixed_point.kit import random_bits

SIZES = [(3, 1), (4, 1), (5, 2), (7, 3), (5, 1)]
WINDOW = 50
LEFT, RIGHT = np.split(np.random.default_rng(5).integers(-4000, 4000, (3 * WINDOW, 9)), [5], axis=1)


def committee(size, threshold):
    return make(size, threshold, PRIMES[:3], active=True)


def rows(shares, part):
    return Shares(shares.values[:, part], shares.degree)


def joined(hand, *arrays):
    return [hand.system.to_integers(hand.open_residues(values), 2**60) for values in arrays]


def products(hand):
    """An inner product, an elementwise one with a column for all, one of a row; all are settled and then opened."""
    x, y = dealt(hand, "n0", LEFT), dealt(hand, "n1", RIGHT)
    gram = hand.reduce_degree(hand.inner(x, y))
    hand.claims.inner(*([rows(side, slice(0, 40)), rows(side, slice(40, None))] for side in (x, y)), gram)
    masked = hand.product(x, y.columns(slice(0, 1)))
    single = hand.product(x.columns(slice(0, 1)), y.columns(slice(1, 2)))
    flat = hand.product(Shares(x.values[:, :, 0], x.degree), Shares(y.values[:, :, 0], y.degree))
    square = hand.product(x, x)
    hand.claims.zero(Shares(hand.system.reduce(flat.values - masked.values[:, :, 0]), flat.degree))
    hand.claims.settle()
    return joined(hand, *(shares.values for shares in (gram, masked, single, flat, square)))


def in_windows(hand):
    """Products of three windows with coins of their own, X'Y and X'X each; settled together and then opened."""
    x, y = dealt(hand, "n0", LEFT), dealt(hand, "n1", RIGHT)
    found = []
    for start in range(0, len(LEFT), WINDOW):
        left, right = (rows(side, slice(start, start + WINDOW)) for side in (x, y))
        gram, square = hand.reduce_degree(hand.inner(left, right)), hand.reduce_degree(hand.inner(left, left)).values
        square = np.triu(square) + np.triu(square, 1).transpose(0, 2, 1)
        hand.claims.inner([left], [right], gram)
        hand.claims.inner([left], [left], Shares(square, x.degree))
        found += [gram.values, square]
        assert hand.claims.ask()
    hand.claims.elementwise(x, x, hand.reduce_degree(hand.multiply(x, x)))  # not asked: settled with coins of its own
    hand.claims.settle()
    return joined(hand, *found)


PARTS = [(LEFT[start : start + WINDOW], RIGHT[start : start + WINDOW]) for start in range(0, len(LEFT), WINDOW)]
EXACT = {
    products: [LEFT.T @ RIGHT, LEFT * RIGHT[:, :1], LEFT[:, :1] * RIGHT[:, 1:2], LEFT[:, 0] * RIGHT[:, 0], LEFT * LEFT],
    in_windows: [product for x, y in PARTS for product in (x.T @ y, x.T @ x)],
}


@pytest.mark.parametrize(("size", "threshold"), SIZES)
@pytest.mark.parametrize("program", EXACT)
def test_honest_seats_settle_their_claims_and_open_the_products(play, size, threshold, program):
    for found in play(committee(size, threshold), program).values():
        assert all(np.array_equal(value, due) for value, due in zip(found, EXACT[program], strict=True))


@pytest.mark.parametrize(("size", "threshold"), SIZES[:2])
@pytest.mark.parametrize(("left", "right"), [((0,), (0,)), ((3, 0), (3, 1)), ((0, 3), (0, 1)), ((2, 0, 3), (2, 0, 3))])
def test_products_of_no_numbers_are_settled_alone_and_beside_others(play, size, threshold, left, right):
    def program(hand):
        x, y = (dealt(hand, "n0", np.zeros(shape, dtype=np.int64)) for shape in (left, right))
        for others in (False, True):
            nothing = hand.product(x, y)
            some = hand.product(*(dealt(hand, name, np.arange(5)) for name in ("n0", "n1"))) if others else nothing
            hand.claims.settle()
        return nothing.shape, *joined(hand, some.values), hand.claims.settled_claims

    for shape, some, settled in play(committee(size, threshold), program).values():
        assert (shape, some.tolist()) == (np.broadcast_shapes(left, right), [0, 1, 4, 9, 16])
        assert settled >= 3


@pytest.mark.parametrize(("size", "threshold"), SIZES[:2])
def test_pairs_of_vectors_are_claimed_together_and_a_wrong_one_among_them_is_seen(play, size, threshold):
    def program(hand):
        x, y = dealt(hand, "n0", LEFT), dealt(hand, "n1", RIGHT)
        x, y = (Shares(np.ascontiguousarray(side.values[:, :, :2].transpose(0, 2, 1)), side.degree) for side in (x, y))
        sums = hand.multiply(x, y)
        product = hand.reduce_degree(Shares(hand.system.reduce(sums.values.sum(axis=2)), sums.degree))
        hand.claims.pairs(x, y, product)
        hand.claims.settle()
        wrong = Shares(product.values + np.array([0.0, 1.0]), product.degree)
        hand.claims.pairs(x, y, wrong)
        hand.claims.pairs(x, y, product)
        refused(ShareError, "SH015", hand.claims.settle)
        return joined(hand, product.values)[0].tolist()

    for found in play(committee(size, threshold), program).values():
        assert found == [int(LEFT[:, i] @ RIGHT[:, i]) for i in range(2)]


@pytest.mark.parametrize(("size", "threshold"), SIZES[:2])
def test_a_product_over_no_rows_is_zero_and_nothing_else_passes(play, size, threshold):
    def program(hand):
        x, y = (dealt(hand, "n0", np.zeros((0, width), dtype=np.int64)) for width in (3, 2))
        product = hand.reduce_degree(hand.inner(x, y))
        hand.claims.inner([x], [y], product)
        hand.claims.settle()
        assert joined(hand, product.values)[0].tolist() == [[0, 0]] * 3
        hand.claims.inner([x], [y], hand.shift(product, 1))
        refused(ShareError, "SH015", hand.claims.settle)

    play(committee(size, threshold), program)


# --- seats that compute something else


class LowersAnother(ShareEngine):
    """It deals another number than its product share when degrees are lowered: one number, modulo one prime."""

    calls = 0

    @staticmethod
    def adds(call):
        return 1

    def reduce_degree(self, shares):
        values = shares.values.copy()
        values[1].reshape(-1)[0] += self.adds(self.calls)
        self.calls += 1
        return super().reduce_degree(Shares(self.system.reduce(values), shares.degree))


def adding(**by_call):
    """A seat that adds these numbers, in these calls."""
    return type("Cheat", (LowersAnother,), {"adds": staticmethod(lambda call: by_call.get(f"at{call}", 0))})


class FoldsWrongly(LowersAnother):
    """It helps a wrong product through by other values while the question is folded."""

    def reduce_degree_residues(self, values, degree):
        values = values.copy()
        values[1] += 1
        return super().reduce_degree_residues(self.system.reduce(values), degree)


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
        wanted = evaluate_at(self.system, known, [0, *base], self.committee.point(self.name))
        self.send_opening(Shares(wanted, t), self.committee.seats)
        return np.zeros_like(values)


class SpeaksLast(LowersAnother):
    """It computes a product wrongly, waits for everybody's share in each opening, and sends what makes it zero."""

    def open_residues(self, values, degree=None):
        degree = self.committee.threshold if degree is None else degree
        found = self._gathered(values.shape[1:], degree, Shares(values, degree))
        if degree == 2 * self.committee.threshold:
            points = [self.committee.point(seat) for seat in self.committee.seats[: degree + 1]]
            total = evaluate_at(self.system, [found[seat] for seat in self.committee.seats[: degree + 1]], points, 0)
            for index, prime in enumerate(self.system.primes):
                factor = pow(lagrange_weights(prime, tuple(points), 0)[0], -1, prime)
                values[index] -= total[index] * (factor if factor < prime // 2 else factor - prime)
            values = self.system.reduce(values)
        self.send_opening(Shares(values, degree), self.committee.seats)
        return self._interpolated(found, degree)


def small_square(hand):
    x = dealt(hand, "n1", np.arange(1, 6))
    hand.product(x, x)
    hand.claims.settle()


CHEATS = {
    **{f"product {k}": (products, "n2", adding(**{f"at{k}": 1}), "SH015", SIZES[: 1 if k else 5]) for k in range(5)},
    **{f"window {k}": (in_windows, "n2", adding(**{f"at{k}": 1}), "SH015", SIZES[: 1 if k else 3]) for k in range(7)},
    "cancels over windows": (in_windows, "n2", adding(at0=1, at2=-1), "SH015", SIZES[:1]),
    "also folds": (products, "n1", FoldsWrongly, "SH015", SIZES[:3]),
    "hides at the end": (products, "n2", HidesAtTheEnd, "SH*", SIZES[:3]),
    "speaks last": (small_square, "n0", SpeaksLast, "SH015", [(3, 1), (5, 2), (7, 3)]),
    "shares on no polynomial": (
        products, "n0", tampering(lambda: first_of("share"), "n3"), "SH014", [(4, 1), (5, 1), (7, 2)],
    ),
    **{
        f"another {kind} to one seat": (
            products, "n1", tampering(lambda kind=kind: first_of(kind), "n0"), "SH*", SIZES[:2],
        )
        for kind in ("opening", "coin", "key-digests")
    },
}  # fmt: skip


@pytest.mark.parametrize(("name", "sizes"), [(name, sizes) for name, (*_, cases) in CHEATS.items() for sizes in cases])
def test_a_seat_that_computes_or_tells_something_else_is_caught(play, name, sizes):
    program, cheater, cheat, code, _ = CHEATS[name]
    refused(ShareError, code, play, committee(*sizes), program, {cheater: cheat})


class HoldsBack(ShareClaims):
    """It sends its part of the last number to n2 only when n1 has opened: two points tell what would make it zero."""

    def _test_zero(self, values, lowered, repeated):
        hand, system, shape = self._engine, self._system, values.shape[1:]
        hand.random(shape)
        drawn = system.uniform(tuple(shape), hand.common.pair_stream("n0", "n1"))  # n1 waits for nothing of this
        first, second = (hand._receive_share(seat, shape).values for seat in ("n1", "n2"))
        due = messages.residues_message("opening", tuple(shape), len(system.primes))
        opened = unpack(receive_message(hand.links["n1"], "n1", due)["words"], shape, system, "n1")
        parts, own = [], []
        for index, prime in enumerate(system.primes):
            a, b, c = lagrange_weights(prime, (1, 2, 3), 0)
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


class ComputesWrongly(LowersAnother):
    """It computes a product wrongly, and holds something back when that is checked."""

    @property
    def claims(self):
        if self._claims is None:
            self._claims = HoldsBack(self)
        return self._claims


def test_nobody_opens_a_check_before_all_have_received(play):
    accepted = []

    def program(hand):
        small_square(hand)
        accepted.append(hand.name)

    with pytest.raises(AssertionError, match="agree"):  # n1 waits, and has opened nothing
        play(committee(3, 1), program, {"n0": ComputesWrongly})
    assert not {"n1", "n2"} & set(accepted)


def test_too_much_is_not_asked_at_a_time(play):
    def program(hand):
        x = hand.random((claims.LONGEST_COMBINED // 2 + 1, 1))
        square = hand.reduce_degree(hand.inner(x, x))
        asked = []
        for sides in ([x], [x], [x], [x, x]):  # the last is wrong, and too long
            hand.claims.inner(sides, sides, square)
            asked.append(hand.claims.ask())
        refused(ShareError, "SH015", hand.claims.settle)
        return asked

    # Three are as much as a fourth would still go with; then it is too long for one coin.
    assert all(asked == [True, True, True, False] for asked in play(committee(3, 1), program).values())


# --- coins and what all were told


def test_coins_are_the_same_for_all_and_new_and_seats_that_were_told_different_numbers_stop_at_the_next(play):
    def program(hand):
        coins = tuple(hand.coin().bytes(16) for _ in range(3))
        found.append(coins)
        hand.record_public(np.arange(3) + (hand.name == "n2"))
        return hand.coin().bytes(8)

    found = []
    refused(ShareError, "SH012", play, committee(3, 1), program)
    (coins,) = set(found)
    assert len(set(coins)) == len(found) == 3


@pytest.mark.parametrize(("size", "threshold"), SIZES[:2])
def test_two_promises_of_one_seat_do_not_give_two_coins(play, size, threshold):
    """Whoever goes on has the same coin; the promises are compared at the latest with the next coin."""
    coins = {}

    def differently(kind, fields):
        return fields | {"next": bytes(32)} if kind == "coin" else fields

    def program(hand):
        hand.common  # noqa: B018 - the first call exchanges keys
        coins[hand.name] = hand.coin().bytes(16)
        hand.coin()

    cheats = {"n0": tampering(lambda: differently, "n1")}
    refused(ShareError, "SH012", play, committee(size, threshold), program, cheats)
    assert len({coin for name, coin in coins.items() if name != "n0"}) <= 1


class Grinds(TranscriptAgreement):
    """It says that somebody is lost whenever it dislikes a coin, which it knows before it answers."""

    def _exchanged(self, kind, told):
        if kind != "coin":
            return super()._exchanged(kind, told)
        others = [seat for seat in self._seats if seat != self.name]
        answers = {seat: receive_message(self._links[seat], seat, messages.COIN_MESSAGE) for seat in others}
        for seat in others:
            self._links[seat].send("coin", **told, lost=1)
        return answers, False


class DislikesCoins(ShareEngine):
    @property
    def common(self):
        found = super().common
        if self._agreement is not None:
            self._agreement.__class__ = Grinds
        return found


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (4, 1), (7, 1)])
def test_a_seat_cannot_have_a_coin_drawn_again_as_often_as_it_likes(play, size, threshold):
    cheats = {"n0": DislikesCoins}
    refused(ShareError, "SH011", play, committee(size, threshold), lambda hand: hand.coin(), cheats)


@pytest.mark.parametrize(("size", "threshold"), SIZES[:3])
def test_an_opening_after_disagreement_shows_uniform_numbers(play, size, threshold):
    """Seats 0 and 1 were told different numbers: together with all corrupt shares they are no sharing of a value."""
    seats = committee(size, threshold)
    points = list(range(1, 2 * threshold + 2))
    for same in (True, False):

        def program(hand, same=same):
            if not same:
                hand.record_public(hand.name in ("n0",))
            return hand.zero((4000,), 2 * threshold).values

        found = play(seats, program)
        total = evaluate_at(seats.system, [found[f"n{point - 1}"] for point in points], points, 0)
        assert np.all(total == 0) == same
    assert abs(np.corrcoef(found["n0"][0], found["n1"][0])[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("size", "threshold", "needed"),
    [(3, 1, 3), (4, 1, 3), (5, 1, 4), (5, 2, 5), (6, 1, 4), (6, 2, 5), (7, 1, 5), (7, 3, 7)],
)
def test_no_two_groups_of_seats_that_lost_each_other_can_both_go_on(size, threshold, needed):
    seats = committee(size, threshold)
    assert {seats.required_seats(degree) for degree in (threshold, 2 * threshold)} == {needed}
    assert needed >= 2 * threshold + 1
    assert 2 * (needed - threshold) > size - threshold, "the honest seats of two groups are disjoint"


def test_two_arithmetics_with_the_same_keys_draw_different_sharings_of_zero(play):
    def program(hand):
        return [hand.with_system(ResidueSystem(PRIMES[:2])).zero((50,), 2).values for _ in range(2)]

    assert not any(np.array_equal(*both) for both in play(committee(3, 1), program).values())


# --- chances


def test_the_chance_of_a_wrong_claim_is_below_two_to_the_minus_forty_for_any_length():
    assert Fraction(1, 2**41) >= claims.ERROR
    for length in (1, 2, 64, 65, 4096, 10**10):
        count = claims.repetitions(length)
        assert claims.error_chance(length, count) <= claims.ERROR
        assert count == 1 or claims.error_chance(length, count - 1) > claims.ERROR
    # Also of what is combined ahead
    lengths = {claims.degrees(length): length for length in range(1, claims.COMBINED_LENGTH + 1)}
    for losses in (0, 1, 2):
        repeated = claims.repetitions(claims.LONGEST_COMBINED, losses, claims.COMBINED_TIMES)
        assert claims.error_chance(lengths[max(lengths)], repeated, losses, claims.COMBINED_TIMES) <= claims.ERROR


def test_a_transcript_tells_values_apart_that_look_alike_when_joined():
    def digest(*values):
        transcript = PublicTranscript()
        transcript.record(*values)
        return transcript.digest

    numbers = np.arange(4)
    arrays = [(numbers,), (numbers.reshape(2, 2),), (numbers.astype(np.int32),)]
    each = [(b"ab", b"c"), (b"a", b"bc"), *arrays, ("1",), (1,)]
    assert len({digest(*values) for values in each}) == len(each)


# --- ANDs of shared bits: honest ones always pass, and a single wrong bit does not


def elements(stream, *shape):
    return stream.uint64(shape) & field.MASK


def test_the_large_field_is_a_field(stream):
    a, b, c = elements(stream, 3, 9000)
    times = field.multiply
    assert np.array_equal(times(a, b ^ c), times(a, b) ^ times(a, c))
    assert np.array_equal(times(times(a, b), c), times(a, times(b, c)))
    assert np.array_equal(times(a, b), times(b, a))
    assert np.array_equal(times(a, np.uint64(1)), a)
    known = a[:200][a[:200] != 0]
    assert (times(known, field.inverse(known)) == 1).all()
    # y^3 = x and powers of x fill GF(2^16): with these two the field has 2^48 elements and not fewer.
    y, x = np.array(1 << 16, dtype=np.uint64), np.array(2, dtype=np.uint64)
    assert field.power(y, 3) == x
    for divisor in (3, 5, 17, 257):
        assert field.power(x, 65535 // divisor) != 1
    assert field.power(x, 65535) == 1


def checked(play, size, threshold, program, changed=()):
    """Run a program at every seat; n1 may change one of its messages. Returns what it sent, by kind."""
    sent = []

    def seat(hand):
        common, links = CommonKeys.exchange(hand.name, hand.committee, hand.links), hand.links
        if hand.name == "n1":
            change = listing(sent, changed)
            links = {peer: Changing(link, change) for peer, link in links.items()}
        bits, coins = BitEngine(hand.name, hand.committee, links, common), Stream(bytes(32))
        bits.claims = BitProductClaims(bits, lambda: Stream(coins.bytes(32)))
        return program(bits)

    return play(make(size, threshold, PRIMES[:1]), seat), sent


def and_products(hand, rows=5, count=200):
    """Two products one after the other, checked and opened."""
    x, y = random_bits(hand, rows, count), random_bits(hand, rows, count)
    both = hand.and_(x, y)
    last = hand.and_(hand.xor(both, x), y)
    hand.claims.settle()
    return hand.open(BitShares.stack([x, y, both, last]))


@pytest.mark.parametrize(("size", "threshold"), SIZES[:3])
@pytest.mark.parametrize(("short", "rows", "count"), [(1024, 1, 1), (64, 5, 200)])
def test_honest_products_pass(play, monkeypatch, size, threshold, short, rows, count):
    monkeypatch.setattr(verification, "SHORT", short)
    results, _ = checked(play, size, threshold, lambda hand: and_products(hand, rows, count))
    assert all(np.array_equal(*products_of(opened)) for opened in results.values())


@pytest.mark.parametrize(
    ("size", "threshold", "step"),
    [
        (3, 1, 3),
        (4, 1, 9),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [(3, 1, 1), (4, 1, 1), (5, 2, 1), (7, 3, 2)]),
    ],
)
def test_every_changed_message_is_caught_before_anything_is_opened(play, monkeypatch, size, threshold, step):
    """Whatever message the cheater changes, a share of a product or one of the check: everybody stops.

    A wrong product passes with chance 2^-43; all other changes are caught by honest shares alone. With spare seats, a
    few messages of the check are needed by nobody: shares of seats that do not deal. Then what is opened is right.
    """
    monkeypatch.setattr(verification, "SHORT", 128)
    _, sent = checked(play, size, threshold, and_products)
    assert set(sent) == {"bits", "opening"}
    products_sent = 2 * (size - 1 - threshold)
    chosen = {*range(products_sent), *range(products_sent, len(sent) - (size - 1), step)}
    for number in sorted(chosen):
        try:
            results, _ = checked(play, size, threshold, and_products, {number})
        except (ShareError, ConnectionError):
            continue
        assert number >= products_sent
        assert sent[number] == "bits"
        assert size > 2 * threshold + 1
        assert all(np.array_equal(*products_of(opened)) for opened in results.values())


def products_of(opened):
    x, y, both, last = np.split(opened, 4)
    return np.concatenate([both, last]), np.concatenate([x & y, (x & y ^ x) & y])


@pytest.mark.parametrize(("size", "threshold"), [(3, 1), (4, 1), (5, 2)])
@pytest.mark.parametrize(
    ("rows", "count", "wrong", "short"),
    [(3, 60, (1, 2, -1), 1024), (20, 100, (0, 19, -1), 1024), (8, 128, (0,), 64)],
    ids=["no bit", "one bit", "in several parts"],
)
def test_an_error_that_all_shares_have_in_common_is_caught(
    play, monkeypatch, size, threshold, rows, count, wrong, short
):
    """It lies on a polynomial, so only the products tell: one wrong bit, something that is no bit, several at once."""
    monkeypatch.setattr(verification, "SHORT", short)

    def program(hand):
        x, y = random_bits(hand, rows, count), random_bits(hand, rows, count)
        result = hand.and_(x, y)
        result.planes[wrong] ^= np.uint64(1 << 17)
        refused(ShareError, "SH013", hand.claims.settle)

    checked(play, size, threshold, program)


def test_an_element_that_is_no_bit_tells_nothing_under_a_veil(play):
    """Without a veil, a product with something that is no bit shows the other factor in the second plane."""

    def program(hand):
        secret = random_bits(hand, 4, 6400)
        wrong = BitShares(hand.field.scale(secret.planes, 2), secret.degree, secret.count)  # x times a secret bit
        told = []
        for veiled in (False, True):
            drawn = [stream.uint64((hand.field.m if veiled else 1, 4, 100)) for _, stream in hand.common.streams]
            full = [np.concatenate([one, np.zeros((hand.field.m - len(one), 4, 100), np.uint64)]) for one in drawn]
            told.append(hand.xor(wrong, hand.random_elements(full, 6400)).planes)
        return hand.open(secret), *told

    found = checked(play, 3, 1, program)[0]
    (secret, *first), (_, *second) = found["n0"], found["n1"]
    small = BinaryField(2)
    bare, veiled = (small.combine(planes, small.weights((1, 2), 0))[1] for planes in zip(first, second, strict=True))
    assert np.array_equal(bare, secret)
    differing = np.unpackbits((veiled ^ secret).view(np.uint8)).sum()
    assert abs(int(differing) - 12800) < 6 * 80  # 25,600 fair coins: beyond six deviations with chance 2e-9
