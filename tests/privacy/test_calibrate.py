from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

from colonnade.cli.show import binding as shown
from colonnade.errors import PrivacyError
from colonnade.privacy.accountant import ceiling, epsilon, routes
from colonnade.privacy.calibrate import binding, least, least_noise, most
from colonnade.privacy.events import views
from colonnade.privacy.noise import TAIL, laws, strips
from colonnade.privacy.observers import Budget, Observer, Trust, parse_budgets
from colonnade.privacy.releases import (
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    NonPrivate,
    PoissonSampled,
    Repeated,
    SkellamRelease,
)
from colonnade.privacy.routes.losses import LossDistribution
from colonnade.privacy.routes.renyi import Renyi
from colonnade.privacy.sensitivity import Sensitivity, moments_sensitivity, rounded_norm_squared
from colonnade.privacy.statement import Statement
from tests.support.errors import raises, refused
from tests.support.vectors import VECTORS

THREE = Trust(("bank", "shop", "clinic"), ("bank", "shop", "clinic"), 1)
FIVE = Trust(tuple("abcde"), tuple("abcde"), 2)


def maker(trust: Trust, columns: int = 117, gamma: int = 4096):
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
    assert mu == max(least_noise(make, FIVE, [budget], owners=5) for budget in budgets)


def test_several_releases_share_a_budget() -> None:
    make = maker(THREE)
    one = least_noise(make, THREE, [Budget("party", 1.0, 1e-5)], owners=3)
    four = least_noise(lambda mu: [make(mu)] * 4, THREE, [Budget("party", 1.0, 1e-5)], owners=3)
    assert four == pytest.approx(4 * one, rel=1e-6)


def test_an_observer_above_the_threshold_is_refused_with_the_reason() -> None:
    with raises(PrivacyError, "PR024", "bank+shop", "2", "3"):
        least_noise(maker(THREE), THREE, [Budget("bank+shop", 1.0, 1e-5)], owners=3)
    with raises(PrivacyError, "PR024"):
        least_noise(lambda _mu: NonPrivate("it leaked"), THREE, [Budget("analyst", 1.0, 1e-5)], owners=3)


def test_what_cannot_be_met_is_refused() -> None:
    make = maker(THREE)
    with raises(PrivacyError, "PR020"):
        least_noise(lambda mu: replace(make(mu), tail=1e-9), THREE, [Budget("analyst", 1.0, 1e-7)], owners=3)
    refused(PrivacyError, "PR023", least_noise, make, THREE, [], owners=3)
    refused(PrivacyError, "PR019", least_noise, make, THREE, [Budget("analyst", 1.0, 1e-5)], owners=0)


def test_a_thousand_owners_are_no_half_million_pairs() -> None:
    owners = tuple(f"o{k}" for k in range(1000))
    trust = Trust(owners, owners[:3], 1)
    mu = least_noise(maker(trust), trust, parse_budgets(1.0, 1e-5), owners=1000)
    assert cost(maker(trust)(mu), "o517+o733", trust) <= 1.0
    assert cost(maker(trust)(mu), "o1+o733", trust) <= 1.0


# --- a closer look: routes that take long


def steps(rounds: int = 40, rate: Fraction = Fraction(1, 20), gamma: int = 2**28):
    """Rounds over secret batches, whose best figure is a privacy loss distribution."""
    found = Sensitivity.from_l2(rounded_norm_squared(gamma, [1.0], [4]), 4)

    def make(mu: int) -> Repeated:
        shares = tuple((owner, Fraction(mu, 3)) for owner in THREE.owners)
        release = SkellamRelease(
            "steps", shares, 4, found.l1, found.l2_squared, found.replace_l1, found.replace_l2_squared, 1e-30
        )
        return Repeated(PoissonSampled(release, rate, THREE.owners), rounds)

    return make


@pytest.mark.parametrize("budget", [{"analyst": 1.0}, {"analyst": 0.5, "coordinator": 1.0}, {"coordinator": 1.0}])
def test_slow_routes_lower_the_noise_and_the_budgets_hold(budget: dict[str, float]) -> None:
    make, budgets = steps(), parse_budgets(budget, 1e-5)
    mu = least_noise(make, THREE, budgets, owners=3)
    assert binding(make(mu), THREE, budgets).kept
    assert not binding(make(mu), THREE, budgets, quick=True).kept
    assert not binding(make(int(mu / 1.00001) // 3 * 3), THREE, budgets).kept


def test_slow_routes_are_asked_only_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[LossDistribution] = []
    plain = LossDistribution.epsilon

    def counted(self: LossDistribution, delta: float) -> float:
        asked.append(self)  # kept alive, so that no two have the same id
        return plain(self, delta)

    monkeypatch.setattr(LossDistribution, "epsilon", counted)
    least_noise(steps(33), THREE, [Budget("analyst", 1.0, 1e-5)], owners=3)
    assert 1 < len({id(one) for one in asked}) <= 8


def test_the_noise_is_a_short_number() -> None:
    """So that participants whose floats differ in the last bit agree on it."""
    for make, bits in ((maker(THREE), 30), (steps(), 20)):
        share = least_noise(make, THREE, [Budget("analyst", 1.0, 1e-5)], owners=3) // 3
        assert share % (1 << (share.bit_length() - bits)) == 0


def test_a_party_that_knows_the_coins_decides() -> None:
    make, budgets = steps(), parse_budgets({"analyst": 1.0, "party": 1.0}, 1e-5)
    mu = least_noise(make, THREE, budgets, owners=3)
    assert binding(make(mu), THREE, budgets).observer == Observer.party("bank")
    assert mu > least_noise(make, THREE, budgets[:1], owners=3)


def laplace(scale: int, times: int = 1, weight: Fraction = Fraction(1, 2)) -> Repeated:
    shares = tuple((owner, weight) for owner in THREE.owners)
    return Repeated(DiscreteLaplaceRelease("counts", shares, 2, Fraction(scale), 1000, 2000), times)


def test_discrete_laplace_noise_is_calibrated_by_its_scale() -> None:
    assert least_noise(laplace, THREE, [Budget("analyst", 0.5, 1e-9)], owners=1) == 2000
    assert least_noise(laplace, THREE, [Budget("party", 0.5, 1e-9)], owners=1) == 4000
    with raises(PrivacyError, "PR024", "bank"):
        least_noise(lambda s: laplace(s, weight=Fraction(1, 3)), THREE, [Budget("party", 0.5, 1e-9)], owners=1)


# --- inverse questions


def brute(fits, numbers: range) -> list[int]:
    return [number for number in numbers if fits(number)]


@given(epsilon=st.floats(0.05, 5.0), scale=st.integers(500, 50_000), who=st.sampled_from(["analyst", "party"]))
@settings(max_examples=12, deadline=None)
def test_most_agrees_with_trying_every_number(epsilon: float, scale: int, who: str) -> None:
    budgets = [Budget(who, epsilon, 1e-6)]
    fitting = brute(lambda n: binding(laplace(scale, n), THREE, budgets, quick=True).kept, range(1, 30))
    if not fitting and not binding(laplace(scale, 1), THREE, budgets).kept:
        with raises(PrivacyError, "PR021", "rounds", "1", f"{epsilon:g}"):
            most(lambda n: laplace(scale, n), THREE, budgets, name="rounds")
        return
    found = most(lambda n: laplace(scale, n), THREE, budgets, at_most=29)
    assert found >= max(fitting, default=1)
    assert binding(laplace(scale, found), THREE, budgets).kept
    assert found == 29 or not binding(laplace(scale, found + 1), THREE, budgets).kept


@given(epsilon=st.floats(0.2, 5.0), mu=st.integers(3, 400), low=st.integers(1, 20))
@settings(max_examples=6, deadline=None)
def test_most_and_least_of_plain_releases(epsilon: float, mu: int, low: int) -> None:
    event = maker(THREE, columns=1, gamma=1)(mu * 3)
    budgets = [Budget("analyst", epsilon, 1e-3)]

    def fits(times: int) -> bool:
        return binding([event] * times, THREE, budgets).kept

    fitting = brute(fits, range(low, 40))
    if fitting:
        assert most(lambda n: [event] * n, THREE, budgets, at_least=low, at_most=39) == max(fitting)
        # The other way round: fewer releases with every step.
        turned = least(lambda n: [event] * (40 - n), THREE, budgets, at_most=40 - low)
        assert turned == 40 - max(fitting)
    else:
        refused(
            PrivacyError, "PR021", "number", low, most, lambda n: [event] * n, THREE, budgets, at_least=low, at_most=39
        )
        with raises(PrivacyError, "PR022", "rows", 40 - low):
            least(lambda n: [event] * (40 - n), THREE, budgets, at_most=40 - low, name="rows")


def test_rows_and_rounds_by_a_slow_route_are_exact() -> None:
    budgets = parse_budgets({"analyst": 1.0}, 1e-5)
    mu = least_noise(steps(), THREE, budgets, owners=3)
    rounds = most(lambda n: steps(n)(mu), THREE, budgets)
    assert rounds == 40
    batch = 50
    rows = least(lambda n: steps(40, Fraction(batch, n))(mu), THREE, budgets, at_least=batch)
    assert 999 <= rows <= 1000
    assert not binding(steps(40, Fraction(batch, rows - 1))(mu), THREE, budgets).kept


def test_the_range_of_a_question_is_checked() -> None:
    with raises(PrivacyError, "PR025", "5", "4"):
        most(lambda n: laplace(1000, n), THREE, [Budget("analyst", 1.0, 1e-5)], at_least=5, at_most=4)
    assert least(lambda n: laplace(10**6 * n), THREE, [Budget("analyst", 1.0, 1e-5)], at_least=7) == 7
    assert most(lambda n: laplace(10**6, n), THREE, [Budget("analyst", 1.0, 1e-5)], at_most=7) == 7


# --- monotone


@given(
    noise=st.floats(0.6, 4.0), rounds=st.integers(1, 400), rate=st.floats(0.001, 0.5), grown=st.floats(1.01, 2.0),
    who=st.sampled_from(["analyst", "coordinator", "bank"]),
)  # fmt: skip
@settings(max_examples=12, deadline=None)
def test_epsilon_falls_with_noise_and_rises_with_rounds_and_rate(
    noise: float, rounds: int, rate: float, grown: float, who: str
) -> None:
    def price(noise: float, rounds: int, rate: float) -> float:
        square = rounded_norm_squared(2**28, [1.0], [4])
        mu = int(noise**2 * square / 2) // 3 * 3
        event = steps(rounds, Fraction(rate).limit_denominator(10**6))(mu)
        return epsilon(views([event], Observer.parse(who), THREE), 1e-5, quick=True).epsilon

    here = price(noise, rounds, rate)
    slack = 1 + 1e-9
    assert price(noise * grown, rounds, rate) <= here * slack
    assert price(noise, math.ceil(rounds * grown), rate) * slack >= here
    assert price(noise, rounds, min(1.0, rate * grown)) * slack >= here


# --- published figures


def gradient(case, mu: Fraction, d1: int, trust: Trust = THREE) -> Repeated:
    shares = tuple((owner, mu / len(trust.owners)) for owner in trust.owners)
    d2 = Fraction(case["d2"])
    square = math.ceil(d2 * d2)
    release = SkellamRelease("gradient", shares, int(case["d"]), d1, square, 2 * d1, 4 * square)
    return Repeated(PoissonSampled(release, Fraction(str(case["q"])), trust.owners), int(case["R"]))


@pytest.mark.parametrize("case", VECTORS["lr_calibration_rdp_struct"], ids=lambda case: str(case["gamma"]))
def test_the_noise_of_private_logistic_regression(case: dict[str, float]) -> None:
    """The epsilon of the published noise is the published one; so the noise of that epsilon is this."""
    seen = views([gradient(case, Fraction(case["mu"]), math.ceil(case["d1"]))], Observer.analyst(), THREE)
    found = [route.profile.epsilon(case["delta"]) for route in routes(seen) if route.name == Renyi.name]
    assert found[0] == pytest.approx(case["eps"], rel=1e-6)


def test_exact_accounting_needs_less() -> None:
    case = VECTORS["gaussian_transfer"]["lr_transfer"]
    d1 = math.ceil(math.sqrt(case["d"]) * case["d2"])
    mu = least_noise(
        lambda mu: gradient(case, Fraction(mu), d1), THREE, [Budget("analyst", 1.0, 1e-5)], owners=3
    )  # fmt: skip
    assert mu == pytest.approx(case["mu"], rel=1e-3)
    assert mu < 0.64 * VECTORS["sqm"]["lr_fig3"]["struct"]["mu"]


# --- the largest epsilon that can be certified is said where it is hit; below it every law and route has a figure


TRUST = Trust(("a", "b", "c"), ("a", "b", "c"), 1)
DELTA = 1e-5
MOVED = {"l1": 30_000, "l2_squared": 10**8, "replace_l1": 60_000, "replace_l2_squared": 2 * 10**8}
ASKED = (50.0, 80.0, 150.0, 500.0)


def skellam(noise, tail=TAIL, law=SkellamRelease):
    shares = tuple((owner, Fraction(noise, 3)) for owner in TRUST.owners)
    return law(name="sums", shares=shares, dimension=9, tail=tail, theorem="moments-sensitivity", **MOVED)


def gaussian(noise, tail=TAIL):
    return skellam(noise, tail, DiscreteGaussianRelease)


def laplace_for(noise, tail=TAIL):
    shares = tuple((owner, Fraction(1, 2)) for owner in TRUST.owners)
    moved = {"l1": 3 * 10**8, "replace_l1": 6 * 10**8}
    return DiscreteLaplaceRelease("sums", shares, 9, noise, tail=tail, theorem="functional-sensitivity", **moved)


def sampled_for(noise, tail=TAIL):
    return Repeated(PoissonSampled(skellam(noise, tail), Fraction(1, 10), ("a", "b", "c")), 5)


LAWS = pytest.mark.parametrize("make", [skellam, gaussian, laplace_for, sampled_for], ids=lambda make: make.__name__)


@pytest.mark.parametrize(
    ("make", "asked"),
    [
        # So near the ceiling the search takes many steps for the discrete Gaussian.
        pytest.param(make, asked, marks=pytest.mark.slow if (make, asked) == (gaussian, 80.0) else ())
        for make in (skellam, gaussian, laplace_for, sampled_for)
        for asked in ASKED
    ],
)
def test_every_budget_gives_noise_that_keeps_it_and_says_when_it_is_more_than_asked_for(make, asked):
    budgets = parse_budgets({"analyst": asked}, DELTA)
    noise = least_noise(make, TRUST, budgets, owners=3)
    found = binding(make(noise), TRUST, budgets)
    assert found.kept
    limit = found.bound.ceiling
    assert 60 < limit < 80
    if asked < limit:
        assert found.limited == ""
        assert found.bound.epsilon > 0.98 * asked
    else:
        assert found.bound.epsilon > 0.85 * limit  # what is left of delta for the noise itself shrinks on the way
        assert found.limited == f"no epsilon above {limit:.1f} can be certified at delta 1e-05"
        assert found.limited in str(found)
        assert found.limited in shown(found)


@LAWS
@pytest.mark.parametrize("asked", ASKED)
def test_a_release_that_would_need_more_says_so(make, asked):
    """Noise whose ideal law has this epsilon, without the range in which it is drawn."""
    budgets = parse_budgets({"analyst": asked}, DELTA)
    noise = least_noise(lambda noise: make(noise, 0.0), TRUST, budgets, owners=3)
    seen = views([make(noise)], Observer.analyst(), TRUST)
    bound, limit = epsilon(seen, DELTA), ceiling(seen, DELTA)
    if asked < limit:
        assert bound.epsilon == pytest.approx(asked, rel=1e-3)
        assert bound.reason == ""
        return
    assert math.isinf(bound.epsilon)
    assert bound.reason.startswith(f"no epsilon above {limit:.1f} can be certified at this delta, because noise is")
    assert f"would need {asked:.1f}" in bound.reason
    row = Statement.of([make(noise)], TRUST, DELTA).rows[0]
    assert row.reason == bound.reason
    assert row.status == "no guarantee"


def test_the_ceiling_is_about_what_is_drawn_of_one_owners_noise():
    """Beyond the end of the range nothing is drawn, so a larger move makes outcomes possible that were not."""
    variance = Fraction(10**8)
    end = strips.strips(laws.Gaussian(variance)).end
    reach = end / math.sqrt(variance)
    assert 12.9 < reach < 14.2
    # Noise within the range, moved by m deviations, leaves it with the chance of exceeding reach - m deviations.
    moved = next(m for m in (k / 10 for k in range(200)) if math.erfc((reach - m) / math.sqrt(2)) / 2 > DELTA)
    needed = moved**2 / 2 + moved * 4.3  # about the epsilon of a Gaussian that is moved so far
    assert needed < 90
    seen = views([skellam(3 * 10**6)], Observer.analyst(), TRUST)
    assert needed > ceiling(seen, DELTA) - 10


def test_too_little_noise_is_still_said_as_such():
    event = replace(skellam(3), l1=10**400, l2_squared=10**400, replace_l1=10**400, replace_l2_squared=10**400)
    bound = epsilon(views([event], Observer.analyst(), TRUST), DELTA)
    assert math.isinf(bound.epsilon)
    assert bound.reason == "too little noise for any finite epsilon at this delta"
