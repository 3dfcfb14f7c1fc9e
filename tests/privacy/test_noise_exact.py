"""Each decision of the sampler against interval arithmetic: the table, float64, and the refinement."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from mpmath import mp

from colonnade.privacy.noise import laws
from colonnade.privacy.noise.laws import TAIL, Gaussian, Laplace, Law, Polya, Skellam
from colonnade.privacy.noise.strips import BAND, TICKET_BITS, Strips, strips
from colonnade.randomness import Stream

LAWS = [
    Gaussian(Fraction(1, 4)),
    Gaussian(Fraction(24691, 2)),
    Gaussian(Fraction(70_000)),
    Gaussian(Fraction(10**24 + 1, 3)),
    Gaussian(Fraction(1 << 118)),
    Skellam(Fraction(1, 10**9)),
    Skellam(Fraction(1, 3)),
    Skellam(Fraction(1000)),
    Skellam(Fraction(16_383)),
    Skellam(Fraction(16_384)),
    Skellam(Fraction(40_000)),
    Skellam(Fraction(65_535)),
    Skellam(Fraction(65_536)),
    Skellam(Fraction(65_537)),
    Skellam(Fraction(2 * 10**6)),
    Skellam(Fraction(2 * 10**24)),
    Skellam(Fraction(1 << 118)),
    Laplace(Fraction(3, 10)),
    Laplace(Fraction(100)),
    Laplace(Fraction(10**12 + 1, 7)),
    Laplace(Fraction(1 << 55)),
    Polya(Fraction(3, 10), 2),
    Polya(Fraction(40), 3),
    Polya(Fraction(12345, 2), 2),
    Polya(Fraction(10**6), 1000),
    Polya(Fraction(10**12), 5),
    Polya(Fraction(1 << 55), 2),
    Polya(Fraction(1 << 55), 10**9),
]
every_law = pytest.mark.parametrize("law", LAWS, ids=str)


def points(table: Strips, count: int, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Strips from the first to the last, on both sides, most of them near zero, and a random value in each."""
    near = np.argsort(np.abs(table.start), kind="stable")
    strip = near[np.unique(np.geomspace(1, len(near), count).astype(np.intp)) - 1]
    place = stream.uint64(len(strip)).view("<i8") & table.mask[strip]
    return strip, table.start[strip] + place


def exactly(table: Strips, strip: int, value: int) -> arb:
    """``scale * f`` times the width, by intervals, to far more digits than float64 has."""
    bits = 320
    while True:
        with ctx.workprec(bits):
            whole = table.law.mass(abs(value)) * table.scale * (int(table.mask[strip]) + 1)
        if whole.rel_accuracy_bits() > 100:
            return whole
        bits *= 2


class Every(Stream):
    """Each pair of a ticket and a place once, instead of random ones."""

    def __init__(self, places: int) -> None:
        self.pairs = np.divmod(np.arange(places << TICKET_BITS), places)
        self.read = [0, 0]

    def into(self, out: np.ndarray) -> None:
        of = 0 if out.dtype == np.dtype("<u2") and self.read[0] <= self.read[1] else 1
        out[:] = self.pairs[of][self.read[of] : self.read[of] + len(out)]
        self.read[of] += len(out)


@every_law
def test_tickets_cover_the_law(law: Law) -> None:
    table = strips(law)
    whole = 1 << TICKET_BITS
    assert 0 < table.taken == table.sure.sum() < whole
    assert table.rest.sum() == len(table.second) == len(table.first) == whole
    assert np.array_equal(np.bincount(table.second), table.rest)
    assert np.array_equal(table.first[: table.taken], np.repeat(table.start, table.sure))
    masks = np.repeat(table.mask, table.sure)
    assert (masks == table.widest).all() if table.places is None else (table.places[: table.taken] == masks).all()
    assert not (table.mask & (table.mask + 1)).any()
    order = np.argsort(table.start)
    start, last = table.start[order], (table.start + table.mask)[order]
    assert np.array_equal(start[1:], last[:-1] + 1)
    assert start[0] == (1 - table.end if law.signed else 0)
    assert last[-1] in (table.end - 1, table.end - 2)
    assert table.end < 1 << 63


@every_law
def test_every_value_comes_in_proportion_to_its_mass(law: Law) -> None:
    """What tickets and coins give together is ``scale * f``, and coins have chances between 0 and 1."""
    table = strips(law)
    whole = 1 << TICKET_BITS
    for strip in range(len(table.start)):
        assert Fraction(float(table.step[strip])) == Fraction(int(table.rest[strip]) * (whole - table.taken), whole)
    with ctx.workprec(320):
        for strip in {*range(0, len(table.start), max(1, len(table.start) // 24)), len(table.start) - 1}:
            first, width = int(table.start[strip]), int(table.mask[strip]) + 1
            for value in {first, first + width - 1}:
                chance = exactly(table, strip, value) - int(table.sure[strip])
                chance /= float(table.step[strip])
                assert 0 <= chance <= 1
                assert chance.overlaps(table.exact_chance(strip, value))


SHORT = [
    *(Gaussian(Fraction(v)) for v in (100, 10**6)),
    *(Skellam(Fraction(v)) for v in (300, 40_000)),
    Laplace(Fraction(1000)),
    Polya(Fraction(1000), 2),
]


@pytest.mark.parametrize("law", SHORT, ids=str)
def test_tickets_give_each_value_exactly_as_often_as_they_should(law: Law) -> None:
    table = strips(law)
    width = table.widest + 1
    out = np.empty(width << TICKET_BITS, dtype=np.int64)
    missing = table._by_ticket(out, Every(width))
    assert len(missing) == width * ((1 << TICKET_BITS) - table.taken)
    drawn, often = np.unique(np.delete(out, missing), return_counts=True)
    flat = np.flatnonzero(table.sure)
    inside = table.mask[flat] + 1
    values = np.concatenate([first + np.arange(w) for first, w in zip(table.start[flat], inside, strict=True)])
    order = np.argsort(values)
    assert np.array_equal(drawn, values[order])
    assert np.array_equal(often, np.repeat(table.sure[flat] * (width // inside), inside)[order])


@every_law
def test_few_proposals_are_wasted(law: Law, stream: Stream) -> None:
    table = strips(law)
    assert table.taken > 0.95 * (1 << TICKET_BITS)
    _, kept = table._by_coin(4000, stream, BAND)
    assert kept.mean() > 0.4
    assert len(table.start) < 7000


@every_law
def test_float64_brackets_the_chance(law: Law, stream: Stream) -> None:
    table = strips(law)
    strip, value = points(table, 25, stream)
    top = table.whole(strip, value)
    with ctx.workprec(320):
        for i in range(len(strip)):
            true = exactly(table, int(strip[i]), int(value[i]))
            # A sixteenth of the band, so that the stated error bound is far from tight.
            assert true <= arb(float(top[i])) * (1 + arb(2) ** -44)
            assert true >= arb(float(top[i])) * (1 - float(table.slack[strip[i]])) * (1 - arb(2) ** -44)


@every_law
def test_refinement_decides_as_float64_does(law: Law, stream: Stream) -> None:
    # With the band as wide as can be, every coin that is kept has been settled by intervals.
    table = strips(law)
    strip, value = points(table, 200, stream)
    strip = np.concatenate((strip, table.second[stream.uint64(300) >> 48]))
    value = np.concatenate((value, table.start[strip[len(value) :]]))
    coin = stream.uint64(len(strip)) >> (stream.uint64(len(strip)) % np.uint64(3))
    plain, refined = (table.toss(strip, value, coin, stream, band) for band in (BAND, 1.0))
    assert 0 < np.count_nonzero(plain) < len(plain)
    assert np.array_equal(plain, refined)
    key = stream.bytes(32)
    for count in (7, 3000):
        assert np.array_equal(table.draw(count, Stream(key)), table.draw(count, Stream(key), 1.0))


@every_law
def test_refinement_asks_for_bits_only_where_it_must(law: Law, stream: Stream) -> None:
    table = strips(law)
    strip = len(table.start) // 8
    value = int(table.start[strip]) + (int(table.mask[strip]) + 1) // 2
    with ctx.workprec(320):
        exact = float(table.exact_chance(strip, value) * 256)
    for coin in range(256):
        if coin != int(exact):
            assert table.settle(strip, value, coin, 8, stream) == (coin < exact)
    heads = sum(table.settle(strip, value, int(exact), 8, stream) for _ in range(400))
    share = exact - int(exact)
    assert abs(heads - 400 * share) < 5 * max(1, 400 * share * (1 - share)) ** 0.5


@every_law
def test_undecided_coins_are_rare(law: Law) -> None:
    table = strips(law)
    undecided = float((table.slack * table.whole(np.arange(len(table.start)), table.start)).sum()) / (1 << TICKET_BITS)
    assert undecided < 2e-5


Mass = Callable[[int], mp.mpf]
GIVEN: list[tuple[Law, Mass]] = [
    (Gaussian(Fraction(1)), lambda k: mp.exp(-(mp.mpf(k) ** 2) / 2)),
    (Gaussian(Fraction(2500)), lambda k: mp.exp(-(mp.mpf(k) ** 2) / 5000)),
    (Skellam(Fraction(1)), lambda k: mp.besseli(k, 1) / mp.besseli(0, 1)),
    (Skellam(Fraction(2500)), lambda k: mp.besseli(k, 2500) / mp.besseli(0, 2500)),
    (Laplace(Fraction(3, 10)), lambda k: mp.exp(-mp.mpf(k) * 10 / 3)),
    (Laplace(Fraction(50)), lambda k: mp.exp(-mp.mpf(k) / 50)),
    (Polya(Fraction(3, 10), 2), lambda k: mp.rf(mp.mpf(1) / 2, k) / mp.factorial(k) * mp.exp(-mp.mpf(k) * 10 / 3)),
    (Polya(Fraction(50), 3), lambda k: mp.rf(mp.mpf(1) / 3, k) / mp.factorial(k) * mp.exp(-mp.mpf(k) / 50)),
]


@pytest.mark.parametrize(("law", "mass"), GIVEN, ids=[str(law) for law, _ in GIVEN])
def test_what_is_cut_off_is_below_the_stated_tail(law: Law, mass: Mass) -> None:
    with mp.workdps(60):
        end, reach = strips(law).end, law.reach
        inside = mass(0) + 2 * sum(mass(k) for k in range(1, 3 * reach + 2))
        outside = 2 * sum(mass(k) for k in range(end, end + 2 * reach + 3))
        assert 0 < outside / inside < float(law.cut) <= float(TAIL)


@pytest.mark.parametrize(("law", "mass"), GIVEN, ids=[str(law) for law, _ in GIVEN])
def test_the_table_agrees_with_other_software(law: Law, mass: Mass) -> None:
    """Tickets, and coins times their chances, are what is drawn: in proportion to masses that mpmath computes."""
    table = strips(law)
    with mp.workdps(60), ctx.workprec(200):
        for strip in range(0, len(table.start), max(1, len(table.start) // 40)):
            first, width = int(table.start[strip]), int(table.mask[strip]) + 1
            by_coin = float(table.exact_chance(strip, first)) * int(table.rest[strip]) / (1 << TICKET_BITS)
            by_coin *= (1 << TICKET_BITS) - table.taken
            drawn = (int(table.sure[strip]) + by_coin) / (width * table.scale)
            assert drawn == pytest.approx(float(mass(abs(first))), rel=1e-14)
            low, high = (float(bound[0]) for bound in law.bounds(np.array([abs(first)])))
            assert low <= float(mass(abs(first))) <= high
            assert high == pytest.approx(float(mass(abs(first))), rel=1e-3 / max(1, law.reach))


def test_a_difference_of_two_counts_is_within_the_tail() -> None:
    assert 2 * Polya(Fraction(9), 2).cut == TAIL


@pytest.mark.parametrize("parts", [2, 3, 10, 1000, 10**9])
def test_lemma_p_ratio_of_gammas(parts: int) -> None:
    law = Polya(Fraction(10**30), parts)  # so flat that only the gammas are left
    with ctx.workprec(600):
        r = arb(1) / parts
        for v in (1, 2, 3, 7, 30, 1000, 10**6, 10**12):
            ratio = ((v + r).lgamma() - arb(v + 1).lgamma()).exp()
            top = (v + r / 2) ** (r - 1)
            gap = (top / ratio).log()
            assert gap > 0
            slack = float(law.slack(np.array([v]), np.array([v + 1]))[0])
            assert gap < slack
            assert gap > slack * (1 - arb(1) / v - arb(2) ** -40)  # hence hardly to be improved


def test_inverse_gamma() -> None:
    with mp.workdps(40):
        for parts in (2, 3, 97, 10**6):
            assert laws._inverse_gamma(parts) == pytest.approx(float(mp.rgamma(mp.mpf(1) / parts)), rel=1e-15)


def test_ladder_agrees_with_bessel() -> None:
    for x in (Fraction(1, 7), Fraction(10), Fraction(4097, 2), Fraction(65_535)):
        masses = laws._ladder(x)
        with ctx.workprec(400):
            for n in range(0, len(masses) * 3 // 4, max(1, len(masses) // 9)):
                assert masses[n].overlaps(Skellam(x).mass(n))


@pytest.mark.slow
@every_law
def test_float64_brackets_the_chance_at_many_points(law: Law, stream: Stream) -> None:
    table = strips(law)
    worst = 0.0
    for _ in range(10):
        strip, value = points(table, 100, stream)
        top = table.whole(strip, value)
        with ctx.workprec(320):
            for i in range(len(strip)):
                ratio = exactly(table, int(strip[i]), int(value[i])) / arb(float(top[i]))
                low = 1 - float(table.slack[strip[i]])
                worst = max(worst, float(ratio - 1), float((low - ratio).upper()))
    assert worst < 2.0**-44
