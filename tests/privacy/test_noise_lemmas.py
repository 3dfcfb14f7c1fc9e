"""The statements of docs/theory/skellam-close-to-gaussian.md, checked with intervals on a grid."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flint import arb, ctx

BITS = 600
GRID = [16, 50, 144, 200, 1000, 65_536, 2 * 10**6, 2 * 10**9, 2 * 10**13]
DEPTHS = [0, 0.5, 1, 2, 4, 7, 10, 12]


@pytest.fixture(autouse=True)
def _precise() -> Iterator[None]:
    with ctx.workprec(BITS):
        yield


def points(x: int) -> list[int]:
    root = x**0.5
    return sorted({0, 1, 2} | {int(z * root) for z in DEPTHS if z * z <= x})


def skellam(n: int, x: int) -> arb:
    return arb(x).bessel_i(n, scaled=True)


def rounded(n: int, x: int) -> arb:
    root = (arb(2) * x).sqrt()
    return (((n - arb(1) / 2) / root).erfc() - ((n + arb(1) / 2) / root).erfc()) / 2


def discrete(n: int, x: int) -> arb:
    theta = 1 + 2 * sum(((-2 * arb.pi() ** 2 * x * m * m).exp() for m in range(1, 6)), arb(0))
    return (-(arb(n) ** 2) / (2 * x)).exp() / ((2 * arb.pi() * x).sqrt() * theta)


@pytest.mark.parametrize("x", GRID)
def test_lemma_1_ratio_of_neighbours(x: int) -> None:
    for n in points(x):
        ratio = skellam(n + 1, x) / skellam(n, x)
        a = n + arb(1) / 2
        assert ratio < x / (a + (arb(x) ** 2 + a**2).sqrt())
        assert ratio > x / (a + (arb(x) ** 2 + (a + 1) ** 2).sqrt())


@pytest.mark.parametrize("x", GRID)
def test_lemma_3_ratio_to_the_mode(x: int) -> None:
    for n in points(x):
        log_ratio = (skellam(n, x) / skellam(0, x)).log()
        top = -(arb(n) ** 2) / (2 * x) * (1 - (arb(n) ** 2 - arb(1) / 2) / (12 * arb(x) ** 2))
        slack = arb(n) * (n + 1) / (2 * arb(x) ** 2) + arb(n) ** 6 / (80 * arb(x) ** 5)
        assert log_ratio <= top + arb(2) ** -300
        assert log_ratio >= top - slack - arb(2) ** -300


@pytest.mark.parametrize("x", GRID)
def test_lemma_4_mass_at_zero(x: int) -> None:
    constant = (skellam(0, x) * (2 * arb.pi() * x).sqrt()).log()
    assert constant > 0
    assert constant < arb(1) / (7 * x)


@pytest.mark.parametrize("x", GRID)
def test_lemma_5_rounded_and_discrete_gaussian(x: int) -> None:
    for n in points(x):
        gap = (discrete(n, x) / rounded(n, x)).log()
        assert gap <= arb(1) / (24 * x)
        assert gap >= -(arb(n) ** 2) / (24 * arb(x) ** 2) - 3 * (-2 * arb.pi() ** 2 * x).exp()


@pytest.mark.parametrize("x", GRID)
def test_lemma_t(x: int) -> None:
    for n in points(x):
        z = arb(n) / arb(x).sqrt()
        low, high = -(13 * z**2 / 24 + arb(1) / 2) / x, (z**4 / 24 + arb(1) / 5) / x
        gap = (skellam(n, x) / rounded(n, x)).log()
        assert low < gap < high
        to_discrete = (skellam(n, x) / discrete(n, x)).log()
        assert -(z**2 + 1) / (2 * x) < to_discrete < (z**4 / 24 + arb(1) / 6) / x


def test_lemma_t_is_not_far_from_the_truth() -> None:
    x, n = 2 * 10**9, int(12 * (2 * 10**9) ** 0.5)
    gap = (skellam(n, x) / rounded(n, x)).log() * x
    assert gap > 0.95 * (12**4 / 24)


@pytest.mark.parametrize("x", [16, 50, 144, 200, 400])
def test_tail(x: int) -> None:
    with ctx.workprec(200):  # intervals are wider, and what they show is as certain
        masses = [skellam(n, x) for n in range(int(20 * x**0.5) + 60)]
    for z in (1, 2, 4, 6, 9, 12):
        first = int(z * x**0.5) + 1
        tail = 2 * sum(masses[first:], arb(0))
        assert tail < 2 * (-(arb(z) ** 2) / 2 + arb(z) ** 4 / (24 * x)).exp()
