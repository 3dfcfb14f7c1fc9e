"""Each decision of the sampler against interval arithmetic: the table, float64, and the refinement."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from mpmath import mp

from colonnade.privacy import noise
from colonnade.randomness import Stream

LAWS = [
    noise._Gaussian(Fraction(1, 4)),
    noise._Gaussian(Fraction(24691, 2)),
    noise._Gaussian(Fraction(70_000)),
    noise._Gaussian(Fraction(10**24 + 1, 3)),
    noise._Skellam(Fraction(1, 3)),
    noise._Skellam(Fraction(1000)),
    noise._Skellam(Fraction(65_536)),
    noise._Skellam(Fraction(2 * 10**6)),
    noise._Skellam(Fraction(2 * 10**24)),
    noise._Skellam(Fraction(1 << 118)),
]


def chance(table: noise._Strips, strip: int, value: int) -> arb:
    return table.law.mass(value) * arb(table.scale) / int(table.weight[strip])


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_tickets_cover_the_law(law: noise._Law) -> None:
    table = noise._strips(law)
    width = 1 << table.shift
    assert table.weight.sum() == len(table.tickets) == 1 << 16
    assert np.array_equal(np.bincount(table.tickets), table.weight)
    assert len(table.weight) * width < 1 << 63
    with ctx.workprec(320):
        for strip in range(0, len(table.weight), max(1, len(table.weight) // 12)):
            assert chance(table, strip, strip * width) <= 1
            assert arb(int(table.sure[strip])) <= chance(table, strip, (strip + 1) * width - 1) * 2**32


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_float64_brackets_the_chance(law: noise._Law, stream: Stream) -> None:
    table = noise._strips(law)
    strip = np.unique(np.geomspace(1, len(table.weight), 12).astype(np.int64)) - 1
    place = stream.uint64(len(strip)).astype(np.int64) & ((1 << table.shift) - 1)
    value = (strip << table.shift) + place
    top = table.chance(strip, value)
    with ctx.workprec(320):
        for i in range(len(strip)):
            true = chance(table, int(strip[i]), int(value[i]))
            # A sixteenth of the band, so that the stated error bound is far from tight.
            assert true <= arb(float(top[i])) * (1 + arb(2) ** -44)
            assert true >= arb(float(top[i])) * (1 - float(table.slack[strip[i]])) * (1 - arb(2) ** -44)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_refinement_decides_as_float64_does(law: noise._Law, stream: Stream) -> None:
    # With the band as wide as can be, every coin that is kept has been settled by intervals.
    key = stream.bytes(32)
    table = noise._strips(law)
    every = replace(table, sure=np.zeros_like(table.sure))
    for used, count in ((table, 3000), (every, 600)):
        plain, refined = (used.draw(count, Stream(key), band) for band in (noise._BAND, 1.0))
        assert len(plain) > count // 3
        assert np.array_equal(plain, refined)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_refinement_asks_for_bits_only_where_it_must(law: noise._Law, stream: Stream) -> None:
    table = noise._strips(law)
    strip = len(table.weight) // 4
    value = (strip << table.shift) + (1 << table.shift) // 2
    with ctx.workprec(320):
        exact = float(chance(table, strip, value) * 256)
    for coin in range(256):
        if coin != int(exact):
            assert table.settle(strip, value, coin, 8, stream) == (coin < exact)
    heads = sum(table.settle(strip, value, int(exact), 8, stream) for _ in range(400))
    share = exact - int(exact)
    assert abs(heads - 400 * share) < 5 * max(1, 400 * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("deviation", [1, 10, 50])
def test_what_is_cut_off_is_below_the_stated_tail(deviation: int) -> None:
    with mp.workdps(60):
        for law, mass in (
            (
                noise._Gaussian(Fraction(deviation**2)),
                lambda k: mp.exp(-(mp.mpf(k) ** 2) / (2 * deviation**2)),
            ),
            (noise._Skellam(Fraction(deviation**2)), lambda k: mp.besseli(k, deviation**2)),
        ):
            end = len(noise._strips(law).weight)
            inside = mass(0) + 2 * sum(mass(k) for k in range(1, 3 * deviation + 2))
            outside = 2 * sum(mass(k) for k in range(end, end + 2 * deviation + 3))
            assert 0 < outside / inside < float(noise.TAIL)


def test_ladder_agrees_with_bessel() -> None:
    for x in (Fraction(1, 7), Fraction(10), Fraction(4097, 2), Fraction(65_535)):
        masses = noise._ladder(x)
        with ctx.workprec(400):
            for n in range(0, len(masses) * 3 // 4, max(1, len(masses) // 9)):
                assert masses[n].overlaps(noise._Skellam(x).mass(n))
