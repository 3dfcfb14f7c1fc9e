"""Each decision of the sampler against interval arithmetic: the table, float64, and the refinement."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx, fmpq
from mpmath import mp

from colonnade.privacy.noise import strip_sampler, strip_sampler as module
from colonnade.privacy.noise.strip_sampler import (
    BAND,
    TAIL,
    TICKET_BITS,
    GaussianMass,
    LaplaceMass,
    MassFunction,
    PolyaMass,
    SkellamMass,
    StripTable,
    strip_table,
)
from colonnade.randomness import Stream

LAWS = [
    GaussianMass(Fraction(1, 4)),
    GaussianMass(Fraction(70_000)),
    GaussianMass(Fraction(10**24 + 1, 3)),
    GaussianMass(Fraction(1 << 118)),
    SkellamMass(Fraction(1, 10**9)),
    SkellamMass(Fraction(1, 3)),
    SkellamMass(Fraction(16_383)),
    SkellamMass(Fraction(16_384)),
    SkellamMass(Fraction(65_535)),
    SkellamMass(Fraction(65_536)),
    SkellamMass(Fraction(2 * 10**6)),
    SkellamMass(Fraction(2 * 10**24)),
    LaplaceMass(Fraction(3, 10)),
    LaplaceMass(Fraction(10**12 + 1, 7)),
    LaplaceMass(Fraction(1 << 55)),
    PolyaMass(Fraction(3, 10), 2),
    PolyaMass(Fraction(12345, 2), 2),
    PolyaMass(Fraction(10**6), 1000),
    PolyaMass(Fraction(1 << 55), 2),
    PolyaMass(Fraction(1 << 55), 10**9),
]
BITS = 256
TICKETS = 1 << TICKET_BITS
every_law = pytest.mark.parametrize("law", LAWS, ids=str)


def points(table: StripTable, count: int, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Strips from the first to the last, on both sides, most of them near zero, and a random value in each."""
    near = np.argsort(np.abs(table.start), kind="stable")
    strip = near[np.unique(np.geomspace(1, len(near), count).astype(np.intp)) - 1]
    place = stream.uint64(len(strip)).view("<i8") & table.mask[strip]
    return strip, table.start[strip] + place


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
def test_tickets_cover_the_law(law: MassFunction) -> None:
    table = strip_table(law)
    assert len(table.second) == len(table.first) == TICKETS
    assert np.array_equal(np.bincount(table.second), table.rest)
    assert np.array_equal(table.first[: table.taken], np.repeat(table.start, table.sure))
    masks = np.repeat(table.mask, table.sure)
    assert (masks == table.widest).all() if table.places is None else (table.places[: table.taken] == masks).all()
    assert not (table.mask & (table.mask + 1)).any()
    assert table.start.min() == (1 - table.end if law.signed else 0)
    assert (table.start + table.mask).max() in (table.end - 1, table.end - 2)
    assert table.end < 1 << 63


SHORT = [
    *(GaussianMass(Fraction(v)) for v in (100, 10**6)),
    *(SkellamMass(Fraction(v)) for v in (300, 40_000)),
    LaplaceMass(Fraction(1000)),
    PolyaMass(Fraction(1000), 2),
]


@pytest.mark.parametrize("law", SHORT, ids=str)
def test_tickets_give_each_value_exactly_as_often_as_they_should(law: MassFunction) -> None:
    table = strip_table(law)
    width = table.widest + 1
    out = np.empty(width << TICKET_BITS, dtype=np.int64)
    missing = table._by_ticket(out, Every(width))
    assert len(missing) == width * (TICKETS - table.taken)
    drawn, often = np.unique(np.delete(out, missing), return_counts=True)
    flat = np.flatnonzero(table.sure)
    inside = table.mask[flat] + 1
    values = np.concatenate([first + np.arange(w) for first, w in zip(table.start[flat], inside, strict=True)])
    order = np.argsort(values)
    assert np.array_equal(drawn, values[order])
    assert np.array_equal(often, np.repeat(table.sure[flat] * (width // inside), inside)[order])


@every_law
def test_few_proposals_are_wasted_and_undecided_coins_are_rare(law: MassFunction, stream: Stream) -> None:
    table = strip_table(law)
    assert table.taken > 0.95 * TICKETS
    _, kept = table._by_coin(4000, stream, BAND)
    assert kept.mean() > 0.4
    undecided = float((table.slack * table.whole(np.arange(len(table.start)), table.start)).sum()) / TICKETS
    assert undecided < 2e-5


@every_law
def test_refinement_decides_as_float64_does(law: MassFunction, stream: Stream) -> None:
    # With the band as wide as can be, every coin that is kept has been settled by intervals.
    table = strip_table(law)
    strip, value = points(table, 200, stream)
    strip = np.concatenate((strip, table.second[stream.uint64(300) >> 48]))
    value = np.concatenate((value, table.start[strip[len(value) :]]))
    coin = stream.uint64(len(strip)) >> (stream.uint64(len(strip)) % np.uint64(3))
    plain, refined = (table.toss_coins(strip, value, coin, stream, band) for band in (BAND, 1.0))
    assert 0 < np.count_nonzero(plain) < len(plain)
    assert np.array_equal(plain, refined)
    key = stream.bytes(32)
    for count in (7, 3000):
        assert np.array_equal(table.draw(count, Stream(key)), table.draw(count, Stream(key), 1.0))


@every_law
def test_refinement_asks_for_bits_only_where_it_must(law: MassFunction, stream: Stream) -> None:
    table = strip_table(law)
    strip = len(table.start) // 8
    value = int(table.start[strip]) + (int(table.mask[strip]) + 1) // 2
    with ctx.workprec(320):
        exact = float(table.exact_chance(strip, value) * 256)
    for coin in range(256):
        if coin != int(exact):
            assert table.settle_coin(strip, value, coin, 8, stream) == (coin < exact)
    heads = sum(table.settle_coin(strip, value, int(exact), 8, stream) for _ in range(400))
    share = exact - int(exact)
    assert abs(heads - 400 * share) < 5 * max(1, 400 * share * (1 - share)) ** 0.5


GIVEN = [
    (GaussianMass(Fraction(1)), lambda k: mp.exp(-(mp.mpf(k) ** 2) / 2)),
    (GaussianMass(Fraction(2500)), lambda k: mp.exp(-(mp.mpf(k) ** 2) / 5000)),
    (SkellamMass(Fraction(1)), lambda k: mp.besseli(k, 1) / mp.besseli(0, 1)),
    (SkellamMass(Fraction(2500)), lambda k: mp.besseli(k, 2500) / mp.besseli(0, 2500)),
    (LaplaceMass(Fraction(3, 10)), lambda k: mp.exp(-mp.mpf(k) * 10 / 3)),
    (LaplaceMass(Fraction(50)), lambda k: mp.exp(-mp.mpf(k) / 50)),
    (PolyaMass(Fraction(3, 10), 2), lambda k: mp.rf(mp.mpf(1) / 2, k) / mp.factorial(k) * mp.exp(-mp.mpf(k) * 10 / 3)),
    (PolyaMass(Fraction(50), 3), lambda k: mp.rf(mp.mpf(1) / 3, k) / mp.factorial(k) * mp.exp(-mp.mpf(k) / 50)),
]


@pytest.mark.parametrize(("law", "mass"), GIVEN, ids=[str(law) for law, _ in GIVEN])
def test_the_table_and_its_tail_agree_with_other_software(law: MassFunction, mass) -> None:
    """Tickets, and coins times their chances, are what is drawn: in proportion to masses that mpmath computes."""
    table, reach = strip_table(law), law.reach
    with mp.workdps(60), ctx.workprec(200):
        inside = mass(0) + 2 * sum(mass(k) for k in range(1, 3 * reach + 2))
        outside = 2 * sum(mass(k) for k in range(table.end, table.end + 2 * reach + 3))
        assert 0 < outside / inside < float(law.cut) <= float(TAIL)
        for strip in range(0, len(table.start), max(1, len(table.start) // 40)):
            first, width = int(table.start[strip]), int(table.mask[strip]) + 1
            by_coin = float(table.exact_chance(strip, first)) * int(table.rest[strip]) / TICKETS
            by_coin *= TICKETS - table.taken
            drawn = (int(table.sure[strip]) + by_coin) / (width * table.scale)
            true = float(mass(abs(first)))
            assert drawn == pytest.approx(true, rel=1e-14)
            low, high = (float(bound[0]) for bound in law.bounds(np.array([abs(first)])))
            assert low <= true <= high
            assert high == pytest.approx(true, rel=1e-3 / max(1, reach))


@pytest.mark.parametrize("parts", [2, 3, 10, 1000, 10**9])
def test_lemma_p_ratio_of_gammas(parts: int) -> None:
    law = PolyaMass(Fraction(10**30), parts)  # so flat that only the gammas are left
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


def test_inverse_gamma_and_the_tail_of_a_difference() -> None:
    assert 2 * PolyaMass(Fraction(9), 2).cut == TAIL
    for parts in (2, 3, 97, 10**6):
        with mp.workdps(40):
            assert strip_sampler._inverse_gamma(parts) == pytest.approx(float(mp.rgamma(mp.mpf(1) / parts)), rel=1e-15)


def test_ladder_agrees_with_bessel() -> None:
    for x in (Fraction(1, 7), Fraction(10), Fraction(4097, 2), Fraction(65_535)):
        masses = strip_sampler._bessel_ratios(x)
        with ctx.workprec(400):
            for n in range(0, len(masses) * 3 // 4, max(1, len(masses) // 9)):
                assert masses[n].overlaps(SkellamMass(x).mass(n))


# --- every strip of every table against the law, by intervals, over a sweep of parameters


def rational(value: Fraction) -> arb:
    return arb(fmpq(value.numerator, value.denominator))


def bessel_from_above(x: Fraction, most: int):
    """``I_n(x)/I_0(x)`` for all ``n`` up to ``most``: ``I_{n-1} = I_{n+1} + (2n/x) I_n``, where nothing cancels."""
    found = [rational(x).bessel_i(n, scaled=True) for n in (most + 1, most)]
    for n in range(most, 0, -1):
        found.append(found[-2] + rational(2 * n / x) * found[-1])
    return [one / found[-1] for one in reversed(found)].__getitem__


def masses(law: MassFunction, end: int):
    """Intervals around ``f``, not by the way in which the table was made where the law has several ways."""
    if isinstance(law, SkellamMass) and law.fine:
        return bessel_from_above(law.variance, end + 2)
    known: dict[int, arb] = {}

    def mass(value: int) -> arb:
        bits = BITS
        while value not in known:
            with ctx.workprec(bits):
                found = law.mass(value)
            if found.rel_accuracy_bits() > 80:
                known[value] = found
            bits *= 2
        return known[value]

    return mass


def faults(table: StripTable):
    """What is wrong with a table."""
    law, scale, count = table.law, arb(table.scale), len(table.start)
    order = np.argsort(table.start)
    start, last = table.start[order], (table.start + table.mask)[order]
    if not np.array_equal(start[1:], last[:-1] + 1) or (start[0] != 0 and not law.signed):
        yield "a value is in no strip, or in two"
    if table.sure.sum() != table.taken or table.rest.sum() != TICKETS or not 0 < table.taken < TICKETS:
        yield "tickets are missing"
    left = Fraction(TICKETS - table.taken, TICKETS)
    if any(Fraction(float(step)) != rest * left for step, rest in zip(table.step, table.rest.tolist(), strict=True)):
        yield "a step is rounded"
    ends = table.start, table.start + table.mask
    near, far = (np.where(table.start < 0, ends[1 - i], ends[i]) for i in (0, 1))
    strip, width = np.arange(count), (table.mask + 1).tolist()
    sure, step, slack = table.sure.tolist(), table.step.tolist(), table.slack.tolist()
    with ctx.workprec(BITS):
        mass, error, inside = masses(law, table.end), arb(2) ** -44, arb(0)
        for values in (near, near + (far - near) // 2, far):
            top = table.whole(strip, values).tolist()
            for k, value in enumerate(values.tolist()):
                f = mass(abs(value))
                true = scale * width[k] * f
                if not sure[k] <= true:
                    yield f"the chance of {value} is below 0"
                if not true <= sure[k] + arb(step[k]):
                    yield f"the chance of {value} is above 1"
                if not true <= arb(top[k]) * (1 + error):
                    yield f"float64 is too low at {value}"
                if not true >= arb(top[k]) * (1 - arb(slack[k])) * (1 - error):
                    yield f"float64 is too high at {value}"
                if values is far:
                    inside += width[k] * f
            for k in range(0, count, 1 + count // 16):  # what tickets and coins give together
                value = int(values[k])
                drawn = sure[k] + arb(step[k]) * table.exact_chance(k, value)
                if not drawn.overlaps(scale * width[k] * mass(abs(value))):
                    yield f"the chance of {value} is another one"
        beyond = after(law, mass, int(last[-1]) + 1)
        if law.signed:
            beyond += after(law, mass, 1 - int(start[0]))
        if not beyond < rational(law.cut) * inside:
            yield "too much is cut off"


def after(law: MassFunction, mass, end: int) -> arb:
    """A bound of the sum of ``f`` from there on: the ratio of neighbours falls, or is below that of Laplace noise."""
    if isinstance(law, PolyaMass):
        return mass(end) / (1 - rational(-1 / law.scale).exp())
    return mass(end) / (1 - mass(end + 1) / mass(end))


def around(power: int) -> list[Fraction]:
    """A power of two, where widths change, a little less, and something between it and the next."""
    return [Fraction(2) ** power, Fraction(2) ** power * Fraction(999_999, 10**6), Fraction(2) ** power * 13 / 9]


SMALL_SKELLAM = [Fraction(n) for n in (2**14 - 1, 2**14, 20_001, 40_000, 65_535)]
QUICK: list[MassFunction] = [
    *(GaussianMass(v) for power in (-20, -2, 3, 12, 14, 60, 117) for v in around(power)),
    *(GaussianMass(v) for v in (Fraction(2**14 - 1), Fraction(1, 120), Fraction(2**118))),
    *(SkellamMass(v) for power in (-40, 0, 9, 12) for v in around(power)),
    *(SkellamMass(v) for v in (*SMALL_SKELLAM, Fraction(2**16 + 1))),
    *(LaplaceMass(v) for power in (-9, 3, 20, 54) for v in around(power)),
    *(LaplaceMass(v) for v in (Fraction(1, 80), Fraction(2**55))),
    *(PolyaMass(v, parts) for v in (Fraction(1, 900), Fraction(1, 3), Fraction(130)) for parts in (2, 3, 10**9)),
    *(PolyaMass(v, parts) for v, parts in ((Fraction(10**6), 5), (Fraction(2**55), 2), (Fraction(2**55), 10**9))),
]
MANY: dict[str, list[MassFunction]] = {
    "Gaussian": [GaussianMass(v) for power in range(-20, 118) for v in around(power)],
    "Skellam, small": [SkellamMass(v) for power in range(-20, 16) for v in around(power)],
    "Skellam, around 2^15": [SkellamMass(Fraction(v)) for v in range(2**13, 2**16, 1777)],
    "Skellam, large": [SkellamMass(v) for power in range(16, 119, 6) for v in around(power) if 2**16 <= v <= 2**118],
    "Laplace": [LaplaceMass(v) for power in range(-12, 55) for v in around(power)],
    "Polya": [PolyaMass(around(p)[p % 3], m) for p in range(-9, 55, 2) for m in (2, 3, 4, 10, 100, 10**4, 10**9)],
}


@pytest.mark.parametrize("law", dict.fromkeys([*QUICK, *LAWS]), ids=str)
def test_every_value_comes_in_proportion_to_its_mass(law: MassFunction) -> None:
    assert list(faults(strip_table(law))) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", MANY)
def test_every_strip_of_many_tables_is_right(name: str) -> None:
    assert {law: found for law in MANY[name] if (found := list(faults(strip_table(law))))} == {}


def test_what_is_wrong_is_found() -> None:
    table = strip_table(SkellamMass(Fraction(40_000)))
    height, step = (float(getattr(table, name)[9]) for name in ("height", "step"))
    for name, by, fault in (
        ("height", -height * 2.0**-38, "float64 is too low"),
        ("height", height * 2.0**-38, "float64 is too high"),
        ("sure", 1, "tickets are missing"),
        ("step", -step / 2, "a step is rounded"),
        ("start", 1, "a value is in no strip, or in two"),
    ):
        values = getattr(table, name).copy()
        values[9] += values.dtype.type(by)
        assert any(found.startswith(fault) for found in faults(replace(table, **{name: values}))), fault
    half = np.abs(table.start) < 8 * table.law.reach
    cut = {name: getattr(table, name)[half] for name in ("start", "mask", "sure", "rest", "step", "height", "slack")}
    assert "too much is cut off" in list(faults(replace(table, **cut)))


def test_a_strip_of_one_value_is_never_mirrored_beside_wide_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its image would hold the next value, which is less likely, with the bounds that are for this one."""
    law = SkellamMass(Fraction(16_386))
    ends = np.concatenate((np.arange(0, 446, 2), np.arange(446, 1700)))
    monkeypatch.setattr(module, "_ends", lambda _: (ends, 2))
    with pytest.raises(AssertionError, match="one value"):
        strip_table.__wrapped__(law)
