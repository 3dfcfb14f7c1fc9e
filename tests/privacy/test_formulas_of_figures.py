"""Formulas between events and figures, each against a value that is found by other means."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from colonnade.errors import PrivacyError
from colonnade.privacy import Observer, Sensitivity, Statement, Trust, epsilon, views
from colonnade.privacy.accountant import Pure
from colonnade.privacy.events import check_sources
from colonnade.privacy.releases import DiscreteLaplaceRelease, PostProcessing, Repeated, SkellamRelease
from colonnade.privacy.routes.losses import LossDistribution
from colonnade.privacy.routes.rounds import Rounds, one_round
from tests.support.errors import raises

THREE = Trust(("a", "b", "c"), ("a", "b", "c"), 1)
SHARES = tuple((name, Fraction(10_000)) for name in THREE.owners)


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("square", [0, 1, 2, 3, 5, 9])
def test_no_integer_vector_is_longer_than_its_sensitivity_says(dimension: int, square: int) -> None:
    reach = range(-math.isqrt(square), math.isqrt(square) + 1)
    known = [np.array(one) for one in itertools.product(reach, repeat=dimension) if sum(x * x for x in one) <= square]
    said = Sensitivity.from_l2(Fraction(square) + Fraction(1, 3), dimension)
    moved = [a - b for a, b in itertools.product(known, known)]
    assert said.l2_squared == square
    assert max(int(np.abs(one).sum()) for one in known) <= said.l1
    assert max(int((one**2).sum()) for one in moved) <= said.replace_l2_squared
    assert max(int(np.abs(one).sum()) for one in moved) <= said.replace_l1
    assert max(int((one**2).sum()) for one in moved) == 4 * max(int((one**2).sum()) for one in known)  # both are met


@pytest.mark.parametrize("pure", [0.1, 1.0, 3.0])
def test_the_curve_of_a_pure_epsilon_is_that_of_two_coins(pure: float) -> None:
    heads = math.exp(pure) / (1 + math.exp(pure))
    for at in (0.0, pure / 3, pure, pure + 1):
        exact = max(0.0, heads - math.exp(at) * (1 - heads))
        assert Pure(pure).deltas(np.array([at]))[0] == pytest.approx(exact, rel=1e-9, abs=1e-9)
        if exact > 0:
            assert Pure(pure).epsilon(exact) == pytest.approx(at, abs=1e-9)


@pytest.mark.parametrize("times", [1, 2, 7])
def test_losses_of_pure_rounds_are_those_of_binomial_sums(times: int) -> None:
    pure = 0.5
    heads = 1 / (1 + math.exp(-pure))
    curve = LossDistribution([Rounds(times, pure=pure)])
    for at in (0.2, 0.7, 1.3):
        exact = math.fsum(
            math.comb(times, k)
            * heads**k
            * (1 - heads) ** (times - k)
            * max(0.0, 1 - math.exp(at - pure * (2 * k - times)))
            for k in range(times + 1)
        )
        found = float(curve.deltas(np.array([at]))[0])
        assert exact <= found <= exact * 1.01 + 1e-6


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize(("mu", "rate"), [(0.5, 0.1), (1.0, 0.5)])
def test_one_secret_round_covers_both_hockey_sticks_of_its_pair(mu: float, rate: float, added: bool) -> None:
    step = 1e-3
    one = one_round(Rounds(1, mu=mu, rate=rate, known=False), added, step, (-20_000, 20_000))
    losses = step * (one.first + np.arange(len(one.masses)))
    points = np.linspace(-12, 12, 400_001)
    plain = norm.pdf(points)
    mixed = (1 - rate) * plain + rate * norm.pdf(points, mu)
    first, second = (plain, mixed) if added else (mixed, plain)
    for at in (0.0, 0.05, 0.2):
        exact = np.trapezoid(np.maximum(first - math.exp(at) * second, 0), points)
        found = float((one.masses * np.maximum(-np.expm1(at - losses), 0)).sum()) + one.infinite
        assert exact * (1 - 1e-6) <= found <= exact * 1.01 + 1e-5


@pytest.mark.parametrize("times", [2, 5])
def test_a_repeated_release_costs_what_as_many_releases_cost(times: int) -> None:
    noisy = SkellamRelease("sums", SHARES, 1, 100, 10_000, 200, 40_000)
    pure = DiscreteLaplaceRelease("sums", tuple((name, Fraction(1)) for name in THREE.owners), 1, Fraction(100), 40, 80)
    for release in (noisy, pure):
        for who in (Observer.analyst(), Observer.party("a")):
            once = views([Repeated(release, times)], who, THREE)
            often = views([release] * times, who, THREE)
            assert epsilon(once, 1e-6).epsilon == pytest.approx(epsilon(often, 1e-6).epsilon, rel=1e-9)


def test_post_processing_is_free_only_for_those_who_received_its_source() -> None:
    sealed = SkellamRelease("sums", SHARES, 1, 100, 10_000, 200, 40_000, audience=("a",))
    check_sources([sealed, PostProcessing("for a", audience=("a",))])
    for audience in ((), ("b",), ("a", "b")):
        with raises(PrivacyError, "PR035"):
            check_sources([sealed, PostProcessing("for others", audience=audience)])
    alone = Statement.of([sealed], THREE, 1e-6)
    both = Statement.of([sealed, PostProcessing("for a", audience=("a",))], THREE, 1e-6)
    assert [row.epsilon for row in alone.rows] == [row.epsilon for row in both.rows]
