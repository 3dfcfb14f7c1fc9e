from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from colonnade.errors import PrivacyError
from colonnade.privacy.accountant import epsilon
from colonnade.privacy.calibrate import least_noise
from colonnade.privacy.events import NonPrivate, SkellamRelease, views
from colonnade.privacy.observers import Budget, Observer, Trust, parse_budgets
from colonnade.privacy.sensitivity import moments_sensitivity, rounded_norm_squared
from colonnade.privacy.statement import Statement

THREE = Trust(("bank", "shop", "clinic"), ("bank", "shop", "clinic"), 1)
FIVE = Trust(tuple("abcde"), tuple("abcde"), 2)


def maker(trust: Trust, columns: int = 117, gamma: int = 4096) -> Callable[[int], SkellamRelease]:
    square = rounded_norm_squared(gamma, [1.0], [columns])
    found = moments_sensitivity(square, columns)

    def make(mu: int) -> SkellamRelease:
        share = Fraction(mu, len(trust.owners))
        assert share.denominator == 1
        shares = tuple((owner, share) for owner in trust.owners)
        return SkellamRelease(
            "moments", shares, columns**2, found.l1, found.l2_squared, found.replace_l1,
            found.replace_l2_squared, 1e-30, "moments-sensitivity",
        )  # fmt: skip

    return make


def cost(event: SkellamRelease, who: str, trust: Trust, delta: float = 1e-5) -> float:
    return epsilon(views([event], Observer.parse(who), trust), delta).epsilon


def test_the_published_example() -> None:
    mu = least_noise(maker(THREE), THREE, [Budget("analyst", 1.0, 1e-5)], owners=3)
    # The vector uses the real bound 16865943.028...; the integer one is 1.7e-9 smaller.
    assert mu == pytest.approx(1979502298280785.8, rel=1e-8)
    assert mu % 3 == 0


@pytest.mark.parametrize("who", ["analyst", "coordinator", "party", "everyone", "bank", "bank+coordinator"])
def test_the_noise_is_enough_and_hardly_more(who: str) -> None:
    make, budget = maker(THREE), Budget(who, 0.7, 1e-6)
    mu = least_noise(make, THREE, [budget], owners=3)
    observers = budget.observers(THREE)
    assert max(cost(make(mu), seen.label, THREE, 1e-6) for seen in observers) <= 0.7
    less = int(mu * (1 - 4e-9)) // 3 * 3
    assert max(cost(make(less), seen.label, THREE, 1e-6) for seen in observers) > 0.7


def test_small_noise_is_found_to_the_last_unit() -> None:
    make = maker(THREE, columns=1, gamma=1)
    budget = Budget("analyst", 2.0, 1e-3)
    mu = least_noise(make, THREE, [budget], owners=3)
    assert cost(make(mu), "analyst", THREE, 1e-3) <= 2.0 < cost(make(mu - 3), "analyst", THREE, 1e-3)


def test_every_budget_is_met() -> None:
    make = maker(FIVE)
    budgets = parse_budgets({"analyst": 1.0, "party": 1.2, "pair": 3.0}, 1e-5)
    mu = least_noise(make, FIVE, budgets, owners=5)
    statement = Statement.of([make(mu)], FIVE, 1e-5)
    assert statement.epsilon("analyst") <= 1.0
    assert statement.epsilon("a") <= 1.2
    assert statement.epsilon("a+e") <= 3.0
    single = [least_noise(make, FIVE, [budget], owners=5) for budget in budgets]
    assert mu == max(single)


def test_several_releases_share_a_budget() -> None:
    make = maker(THREE)
    one = least_noise(make, THREE, [Budget("party", 1.0, 1e-5)], owners=3)
    four = least_noise(lambda mu: [make(mu)] * 4, THREE, [Budget("party", 1.0, 1e-5)], owners=3)
    assert four == pytest.approx(4 * one, rel=1e-6)


def test_an_observer_above_the_threshold_is_refused_with_the_reason() -> None:
    with pytest.raises(PrivacyError, match=r"bank\+shop: bank and shop together hold 2 of 3 shares"):
        least_noise(maker(THREE), THREE, [Budget("bank+shop", 1.0, 1e-5)], owners=3)
    with pytest.raises(PrivacyError, match="it leaked"):
        least_noise(lambda _mu: NonPrivate("it leaked"), THREE, [Budget("analyst", 1.0, 1e-5)], owners=3)


def test_what_cannot_be_met_is_refused() -> None:
    make = maker(THREE)
    with pytest.raises(PrivacyError, match="no amount of noise meets the budget: analyst"):
        least_noise(lambda mu: replace(make(mu), tail=1e-9), THREE, [Budget("analyst", 1.0, 1e-7)], owners=3)
    with pytest.raises(PrivacyError, match="no budget"):
        least_noise(make, THREE, [], owners=3)
    with pytest.raises(PrivacyError, match="owners"):
        least_noise(make, THREE, [Budget("analyst", 1.0, 1e-5)], owners=0)


def test_a_thousand_owners_are_no_half_million_pairs() -> None:
    owners = tuple(f"o{k}" for k in range(1000))
    trust = Trust(owners, owners[:3], 1)
    begun = time.monotonic()
    mu = least_noise(maker(trust), trust, parse_budgets(1.0, 1e-5), owners=1000)
    assert time.monotonic() - begun < 60
    assert cost(maker(trust)(mu), "o517+o733", trust) <= 1.0
    assert cost(maker(trust)(mu), "o1+o733", trust) <= 1.0
