"""Sampled batches: the vectors, other accountants, and exact numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import pld, rdp

from colonnade.privacy import accountant as acc
from colonnade.privacy.events import PURE, View
from colonnade.privacy.observers import Adjacency
from colonnade.privacy.routes import renyi
from colonnade.privacy.routes.coins import GaussianMixture, participations
from colonnade.privacy.routes.gaussian import gaussian_epsilon, log_gaussian_deltas
from colonnade.privacy.routes.transfer import kappa
from research.bounds import skellam_rdp

V: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text())
SCALE = 10**12  # of an integer grid so fine that Theorem T adds nothing that shows
DPVI_RATE = Fraction(100, 30162)


def release(ratio: float, **more: Any) -> View:
    """A release whose noise has ``ratio`` standard deviations per unit of sensitivity."""
    noise = Fraction(ratio) ** 2 * SCALE**2
    given: dict[str, Any] = {"parts": 1, "smallest": noise, "dimension": 1, **more}
    both = {"l1": SCALE, "l2_squared": SCALE**2}
    single = {"single_l1": SCALE, "single_l2_squared": SCALE**2}
    return View("discrete_gaussian", Adjacency.ADD_REMOVE, noise=noise, **both, **single, **given)


def by_route(views: Sequence[View], delta: float, name: str) -> float:
    return min((r.profile.epsilon(delta) for r in acc.routes(views) if r.name == name), default=math.inf)


# --- the vectors


@pytest.mark.parametrize("case", V["sqm"]["subsampled_skellam"])
def test_a_secret_batch_of_skellam_noise(case: dict[str, Any]) -> None:
    terms = [skellam_rdp(a, case["mu"], case["d1"], case["d2"]) for a in renyi.ORDERS.astype(int).tolist()]
    found = renyi.secret_batch_rdp(np.array(terms), case["q"])
    assert found[case["alpha"] - 2] == pytest.approx(case["tau"], rel=1e-9)


@pytest.mark.parametrize("case", V["sqm"]["known_coins"])
def test_a_known_batch_order_by_order(case: dict[str, Any]) -> None:
    found = renyi.known_batch_rdp(np.full_like(renyi.ORDERS, case["tau_base"]), case["q"])
    assert found[case["alpha"] - 2] == pytest.approx(case["tau"], rel=1e-9)


@pytest.mark.parametrize("case", V["coins_and_gdl"]["coins_mixture_gdp"])
def test_known_coins_averaged(case: dict[str, Any]) -> None:
    seen = release(case["sigma"] / case["sens"], times=case["R"], rate=Fraction(case["q"]), coins_known=True)
    found = by_route([seen], case["delta"], "gaussian transfer, averaged over known coins")
    assert found == pytest.approx(case["eps"], rel=1e-6)
    assert acc.epsilon([seen], case["delta"]).epsilon == pytest.approx(case["eps"], rel=1e-6)


def _regression(mu: Fraction, d2: float, d1: float, **more: Any) -> View:
    given: dict[str, Any] = {"parts": 1, "smallest": mu, "dimension": 800, **more}
    return View(
        "skellam", Adjacency.ADD_REMOVE, noise=mu, l1=math.ceil(d1), l2_squared=math.ceil(Fraction(d2) ** 2), **given
    )


@pytest.mark.parametrize("variant", ["paper_eq22", "paper_fixed", "alg3_safe", "struct"])
def test_logistic_regression_as_in_the_paper(variant: str) -> None:
    setting = V["sqm"]["lr_fig3"]
    case = setting[variant]
    d2, mu, parties = case["d2"], Fraction(case["mu"]), setting["d"] + 1
    l1 = min(d2 * d2, math.sqrt(setting["d"]) * d2)
    rounds = {"times": setting["R"], "rate": Fraction(setting["q"])}
    delta = setting["delta"]
    analyst = _regression(mu, d2, l1, **rounds)
    assert by_route([analyst], delta, "renyi") == pytest.approx(1.0, rel=1e-6)
    assert math.sqrt(2 * case["mu"]) / d2 == pytest.approx(case["noise_multiplier"], rel=1e-9)
    left = mu * (parties - 1) / parties
    client = _regression(left, 2 * d2, 2 * l1)
    near = {"rel": 1e-6}
    assert by_route([replace(client, times=setting["R"])], delta, "renyi") == pytest.approx(
        case["eps_client_paper_R"], **near
    )
    known = replace(client, **rounds, coins_known=True)
    assert by_route([known], delta, "renyi") == pytest.approx(case["eps_client_known_coins"], **near)
    epochs = replace(client, times=5)
    assert by_route([epochs], delta, "renyi") == pytest.approx(case["eps_client_disjoint5"], **near)
    coins = V["coins_and_gdl"]
    if variant == "struct":
        averaged = "averaged over known coins"
        assert by_route([known], delta, f"renyi, {averaged}") == pytest.approx(
            coins["lr_client_coins_mixture_rdp"], **near
        )
        assert by_route([known], delta, f"gaussian transfer, {averaged}") == pytest.approx(
            coins["lr_client_coins_mixture_gdp"], **near
        )
        whole = replace(analyst, times=5, rate=Fraction(1))
        assert acc.epsilon([whole], delta).epsilon == pytest.approx(coins["lr_server_disjoint5"], **near)


def test_logistic_regression_by_transfer() -> None:
    case = V["gaussian_transfer"]["lr_transfer"]
    d2, mu = case["d2"], Fraction(case["mu"])
    rounds = {"times": case["R"], "rate": Fraction(case["q"])}
    analyst = _regression(mu, d2, math.sqrt(800) * d2, **rounds)
    bound = acc.epsilon([analyst], 1e-5)
    assert bound.route == "privacy loss distribution"
    assert bound.epsilon == pytest.approx(case["eps_with_slack"], rel=1e-3)
    assert math.sqrt(2 * case["mu"]) / d2 == pytest.approx(case["noise_multiplier"], rel=1e-6)
    assert kappa(mu) * 800 * case["R"] == pytest.approx(case["kappaN"], rel=1e-9)
    client = _regression(mu * 800 / 801, 2 * d2, 2 * math.sqrt(800) * d2, **rounds, coins_known=True)
    assert acc.epsilon([client], 1e-5).epsilon == pytest.approx(case["eps_client_coins_mixture"], rel=1e-6)


def test_the_same_noise_by_loss_distributions() -> None:
    extra, rounds = V["extra"], {"times": 5000, "rate": Fraction(1, 1000)}
    multiplier = V["sqm"]["lr_fig3"]["paper_eq22"]["noise_multiplier"]
    found = acc.epsilon([release(multiplier, **rounds)], 1e-5).epsilon
    assert found == pytest.approx(extra["lr_gauss_same_nm_pld_eps"], rel=1e-3)
    assert acc.epsilon([release(extra["lr_gauss_nm_pld_eps1"], **rounds)], 1e-5).epsilon == pytest.approx(1.0, rel=1e-3)


def test_mixture_models_as_in_the_paper() -> None:
    case, delta = V["dpvi"]["dpvi"], 1e-5
    rounds = {"times": 20000, "rate": DPVI_RATE}
    batch = release(2.042, **rounds)
    assert by_route([batch], delta, "renyi") == pytest.approx(case["rdp_eps_sigma2.042"], rel=1e-3)
    assert acc.epsilon([batch], delta).epsilon == pytest.approx(case["pld_eps_sigma2.042"], rel=1e-3)
    rarer = replace(batch, rate=Fraction(3, 1000))
    assert by_route([rarer], delta, "renyi") == pytest.approx(case["rdp_q0.003"], rel=1e-3)
    assert acc.epsilon([rarer], delta).epsilon == pytest.approx(case["pld_q0.003"], rel=1e-3)
    for key, route in (("sigma_rdp_eps1", "renyi"), ("sigma_pld_eps1", "privacy loss distribution")):
        assert by_route([release(case[key], **rounds)], delta, route) == pytest.approx(1.0, rel=1e-3)
    replaced = replace(batch, adjacency=Adjacency.REPLACE, l1=2 * SCALE, l2_squared=4 * SCALE**2)
    twice = acc.epsilon([replaced], delta)
    assert case["pld_replace_one"] < twice.epsilon < 1.25 * case["pld_replace_one"]
    assert twice.route == "privacy loss distribution, twice"


@pytest.mark.parametrize(("who", "lost"), [("trusted", 1.0), ("P2", 0.5)])
@pytest.mark.parametrize("sens", [1, 2])
@pytest.mark.parametrize(("key", "steps"), [("66.31", 20000 * 100 / 30162), ("67", 67), ("2e+04", 20000)])
def test_mixture_models_without_sampling(who: str, lost: float, sens: int, key: str, steps: float) -> None:
    expected = V["dpvi"]["dpvi"][f"gdp_eps_{who}_sens{sens}_steps{key}"]
    assert V["dpvi"]["dpvi"]["epochs"] == pytest.approx(20000 * 100 / 30162, rel=1e-9)
    exact = gaussian_epsilon(sens / 2.042 * math.sqrt(steps / lost), 1e-5)
    assert exact == pytest.approx(expected, rel=1e-6)
    if steps == int(steps):
        seen = replace(release(2.042 / sens * math.sqrt(lost)), kind="gaussian", times=int(steps))
        assert acc.epsilon([seen], 1e-5).epsilon == pytest.approx(expected, rel=1e-6)


def test_mixture_models_with_known_coins() -> None:
    seen = release(2.042 / 2 / math.sqrt(2), times=20000, rate=DPVI_RATE, coins_known=True)
    assert acc.epsilon([seen], 1e-5).epsilon == pytest.approx(V["coins_and_gdl"]["dpvi_coins_P2"], rel=1e-6)


# --- other accountants


@pytest.mark.parametrize(("ratio", "rate", "times"), [(1.0, 0.01, 1000), (4.0, 0.1, 100), (2.0, 0.5, 7)])
def test_agrees_with_dp_accounting(ratio: float, rate: float, times: int) -> None:
    seen = release(ratio, times=times, rate=Fraction(rate))
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(ratio)), times
    )
    orders = [order for order in renyi.ORDERS.astype(int).tolist() if order <= 256]
    added = rdp.RdpAccountant(orders=orders).compose(event)
    loss = pld.privacy_loss_distribution.from_gaussian_mechanism(
        ratio, sampling_prob=rate, value_discretization_interval=1e-4, use_connect_dots=True
    )
    composed = loss.self_compose(times)
    for delta in (1e-3, 1e-5, 1e-8):
        assert by_route([seen], delta, "renyi") == pytest.approx(added.get_epsilon(delta), rel=1e-6)
        tight = composed.get_epsilon_for_delta(delta)
        assert by_route([seen], delta, "privacy loss distribution") == pytest.approx(tight, rel=1e-3, abs=1e-3)
    epsilons = np.linspace(0.0, 3.0, 13)
    claimed = acc.profile([seen], epsilons)
    exact = np.array(composed.get_delta_for_epsilon(epsilons.tolist()))
    assert claimed == pytest.approx(exact, rel=2e-2, abs=1e-9)
    assert np.all(np.diff(claimed) <= 1e-12)


def test_known_coins_against_exact_sums() -> None:
    times, rate, ratio, epsilon = 60, 0.07, 1.7, 2.0
    with mpmath.workdps(40):
        total = mpmath.mpf(0)
        for k in range(1, times + 1):
            mu = mpmath.sqrt(k) / mpmath.mpf(ratio)
            low = mpmath.mpf(epsilon) / mu
            delta = mpmath.ncdf(mu / 2 - low) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - low)
            total += mpmath.binomial(times, k) * mpmath.mpf(rate) ** k * (1 - mpmath.mpf(rate)) ** (times - k) * delta
    mixture = GaussianMixture([(1 / ratio**2, times, rate)])
    found = float(mixture.deltas(np.array([epsilon]))[0])
    assert found == pytest.approx(float(total), rel=1e-9)
    assert found >= float(total)
    assert mixture.epsilon(float(total)) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(("times", "rate"), [(1, 0.5), (7, 0.3), (5000, 0.001), (10**6, 0.2), (10**9, 1e-7)])
def test_how_often_one_person_takes_part(times: int, rate: float) -> None:
    atoms = participations(times, rate, 1e-12)
    assert 1 - 2e-12 <= atoms.chances.sum() <= 1 + 2e-3
    assert atoms.lost <= 1e-12 * 1.001
    assert float(atoms.chances @ atoms.values) == pytest.approx(times * rate, rel=2e-3)
    assert np.all(np.diff(atoms.values) > 0)


def test_several_kinds_of_known_batches_are_convolved() -> None:
    one = release(3.0, times=300, rate=Fraction(1, 10), coins_known=True)
    other = release(5.0, times=900, rate=Fraction(1, 30), coins_known=True)
    both = acc.epsilon([one, other], 1e-5)
    by_losses = by_route([one, other], 1e-5, "privacy loss distribution")
    assert math.isinf(by_losses)  # the closed form is exact, so no grid is needed
    apart = GaussianMixture([(1 / 9, 300, 0.1), (1 / 25, 900, 1 / 30)])
    draws = np.random.default_rng(1)
    squares = draws.binomial(300, 0.1, 40_000) / 9 + draws.binomial(900, 1 / 30, 40_000) / 25
    simulated = float(np.mean(np.exp(log_gaussian_deltas(np.sqrt(squares), 8.0))))
    assert float(apart.deltas(np.array([8.0]))[0]) == pytest.approx(simulated, rel=0.02)
    assert both.epsilon == pytest.approx(apart.epsilon(1e-5), rel=1e-9)


# --- pure releases


def pure(epsilon: float, **more: Any) -> View:
    return View(PURE, Adjacency.ADD_REMOVE, pure=epsilon, single_pure=epsilon, l1=1, dimension=1, parts=1, **more)


def test_pure_epsilons_add_up_or_less() -> None:
    assert acc.epsilon([pure(0.3)], 1e-9).epsilon <= 0.3 * (1 + 1e-9)
    few = acc.epsilon([pure(0.3), pure(0.2, times=2)], 1e-12)
    assert few.epsilon <= 0.7 * (1 + 1e-9)
    many = acc.epsilon([pure(0.02, times=1000)], 1e-5)
    assert many.route == "privacy loss distribution"
    assert many.epsilon == pytest.approx(2.5906, rel=1e-3)
    answer = pld.privacy_loss_distribution.from_privacy_parameters(
        pld.common.DifferentialPrivacyParameters(0.02, 0.0), value_discretization_interval=1e-4
    )
    assert many.epsilon == pytest.approx(answer.self_compose(1000).get_epsilon_for_delta(1e-5), rel=1e-3)


def test_the_curve_of_a_pure_release_is_that_of_randomised_response() -> None:
    epsilons = np.array([0.0, 0.3, 0.999, 1.0, 4.0])
    exact = np.maximum(0, (math.e - np.exp(epsilons)) / (1 + math.e))
    claimed = acc.profile([pure(1.0)], epsilons)
    assert claimed == pytest.approx(exact, rel=1e-9, abs=1e-12)
    assert np.all(claimed >= exact)
    assert acc.epsilon([pure(1.0)], float(exact[1])).epsilon == pytest.approx(0.3, rel=1e-9)


def test_pure_beside_gaussian() -> None:
    noisy = release(4.0)
    both = acc.epsilon([noisy, pure(0.5)], 1e-5)
    alone = acc.epsilon([noisy], 1e-5).epsilon
    assert alone < both.epsilon <= alone + 0.5 + 1e-9
    assert both.route == "privacy loss distribution"


def test_randomised_response_is_the_worst_pure_mechanism() -> None:
    epsilon = 1.3
    p = 1 / (1 + math.exp(-epsilon))
    for order in (2, 7, 40):
        exact = math.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (order - 1)
        assert renyi.pure_rdp(epsilon)[order - 2] == pytest.approx(exact, rel=1e-9)
    assert np.all(renyi.pure_rdp(epsilon) <= epsilon * (1 + 1e-9))


# --- what is not covered


def test_replacing_with_secret_coins_costs_twice() -> None:
    batch = release(1.5, times=200, rate=Fraction(1, 100))
    single = acc.epsilon([batch], 1e-6).epsilon
    replaced = replace(batch, adjacency=Adjacency.REPLACE, l1=2 * SCALE, l2_squared=4 * SCALE**2)
    found = acc.epsilon([replaced], 1e-6)
    assert found.epsilon > 2 * single
    assert "twice" in found.route
    assert "replacing-and-groups" in found.theorem
    known = acc.epsilon([replace(replaced, coins_known=True)], 1e-6).epsilon
    assert found.epsilon <= known


def test_a_batch_of_everyone_is_no_batch() -> None:
    assert acc.epsilon([release(2.0, rate=Fraction(1))], 1e-5) == acc.epsilon([release(2.0)], 1e-5)
