from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import dp_accounting
import flint
import mpmath
import numpy as np
import pytest
from dp_accounting import pld, rdp
from scipy.special import ive
from scipy.stats import norm

from colonnade.errors import PrivacyError
from colonnade.privacy import accountant as acc
from colonnade.privacy.additive import AdditiveNoise
from colonnade.privacy.events import View, views
from colonnade.privacy.ledger.costs import costs, keeps
from colonnade.privacy.observers import Adjacency, Budget, Observer, Trust
from colonnade.privacy.releases import Repeated
from colonnade.privacy.routes import gaussian, renyi, transfer
from colonnade.privacy.sensitivity import Sensitivity
from research.bounds import gaussian_delta, rdp_to_delta, rdp_to_epsilon, skellam_rdp, zcdp_epsilon
from tests.support.errors import raises

V: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text())
ADD = Adjacency.ADD_REMOVE


def skellam(mu: float | Fraction, l1: float, l2_squared: float | Fraction, **more: Any) -> View:
    noise = Fraction(mu)
    given = {"parts": 1, "smallest": noise, "dimension": 1, **more}
    return View("skellam", ADD, noise=noise, l1=math.ceil(l1), l2_squared=math.ceil(l2_squared), **given)


def gauss(sigma2: float, l1: int, l2_squared: int, **more: Any) -> View:
    noise = Fraction(sigma2)
    given = {"parts": 1, "smallest": noise, "dimension": 1, **more}
    return View("discrete_gaussian", ADD, noise=noise, l1=l1, l2_squared=l2_squared, **given)


def by_route(views: Sequence[View], delta: float, name: str) -> float:
    found = [route.profile.epsilon(delta) for route in acc.routes(views) if route.name == name]
    return min(found, default=math.inf)


def rdp_epsilon(views: Sequence[View], delta: float) -> float:
    return by_route(views, delta, "renyi")


def transfer_epsilon(views: Sequence[View], delta: float) -> float:
    return by_route(views, delta, "gaussian transfer")


# --- the vectors


@pytest.mark.parametrize("case", V["sqm"]["skellam_rdp"])
def test_skellam_rdp(case: dict[str, Any]) -> None:
    found = skellam_rdp(case["alpha"], case["mu"], case["d1"], case["d2"])
    assert found == pytest.approx(case["tau"], rel=1e-9)


@pytest.mark.parametrize("case", V["sqm"]["rdp_to_eps"])
def test_rdp_to_epsilon_and_back(case: dict[str, Any]) -> None:
    found = rdp_to_epsilon(case["alpha"], case["tau"], case["delta"])
    assert found == pytest.approx(case["eps"], rel=1e-9)
    assert rdp_to_delta(case["alpha"], case["tau"], found) == pytest.approx(case["delta"], rel=1e-9)


def _solve_mu(d1: float, d2: float, target: float) -> float:
    low, high = 1.0, d2 * d2 * 1e3
    for _ in range(200):
        middle = math.sqrt(low * high)
        cost = rdp_epsilon([skellam(middle, d1, Fraction(d2) ** 2)], 1e-5)
        low, high = (middle, high) if cost > target else (low, middle)
    return high


@pytest.mark.parametrize("case", V["sqm"]["pca"])
def test_pca_by_the_renyi_route(case: dict[str, Any]) -> None:
    d2, full = case["safe_d2"], case["safe_d1_full"]
    near = {"rel": 1e-6}
    mu = _solve_mu(full, d2, 1.0)
    assert mu == pytest.approx(case["mu_safe_full"], **near)
    assert _solve_mu(case["safe_d1_upper"], d2, 1.0) == pytest.approx(case["mu_safe_upper"], **near)
    paper = case["paper_d2"]
    assert _solve_mu(min(paper**2, case["n"] * paper), paper, 1.0) == pytest.approx(case["mu_paper_sens"], **near)
    scale = case["gamma"] ** 2
    assert math.sqrt(2 * case["mu_paper_sens"]) / scale == pytest.approx(case["std_paper"], rel=1e-9)
    assert 1 / gaussian.gaussian_mu(1.0, 1e-5) == pytest.approx(case["gauss_analytic_std"], rel=1e-9)
    assert math.sqrt(_solve_mu(0, 2**40, 1.0) * 2) / 2**40 == pytest.approx(case["gauss_rdp_std"], rel=1e-9)
    assert math.sqrt(2 * mu) / scale == pytest.approx(case["std_safe"], **near)
    left = Fraction(case["mu_safe_full"]) * (case["n"] - 1) / case["n"]
    square = Fraction(d2) ** 2
    twice = rdp_epsilon([skellam(left, 2 * full, 4 * square)], 1e-5)
    root = rdp_epsilon([skellam(left, 2 * full, 2 * square)], 1e-5)
    assert twice == pytest.approx(case["eps_client_factor2"], **near)
    assert root == pytest.approx(case["eps_client_factor_sqrt2"], **near)


@pytest.mark.parametrize("case", V["gaussian_transfer"]["kappa"])
def test_kappa(case: dict[str, Any]) -> None:
    assert transfer.kappa(case["mu"], case["z"]) == pytest.approx(case["kappa"], rel=1e-9)


@pytest.mark.parametrize("case", V["gaussian_transfer"]["pca_transfer"])
def test_pca_by_the_transfer_route(case: dict[str, Any]) -> None:
    square, near = Fraction(case["d2"]) ** 2, {"rel": 1e-6}
    l1, size = case["n"] * case["d2"], {"dimension": case["N"]}
    assert transfer_epsilon([skellam(case["mu"], l1, square, **size)], 1e-5) == pytest.approx(1.0, **near)
    assert math.sqrt(2 * case["mu"]) / case["gamma"] ** 2 == pytest.approx(case["std"], **near)
    left = Fraction(case["mu"]) * (case["n"] - 1) / case["n"]
    for factor, key in ((2, "eps_client_sqrt2"), (4, "eps_client_factor2")):
        seen = skellam(left, 2 * l1, factor * square, **size)
        assert transfer_epsilon([seen], 1e-5) == pytest.approx(case[key], **near)
        assert acc.epsilon([seen], 1e-5).route == "gaussian transfer"


@pytest.mark.parametrize("case", V["hdp_fm_afe"]["analytic_gauss"])
def test_gaussian_mu(case: dict[str, Any]) -> None:
    assert gaussian.gaussian_mu(case["eps"], case["delta"]) == pytest.approx(case["mu"], rel=1e-6)
    assert 1 / gaussian.gaussian_mu(case["eps"], case["delta"]) == pytest.approx(case["sigma"], rel=1e-6)


@pytest.mark.parametrize("case", V["hdp_fm_afe"]["gdp_eps"])
def test_gaussian_epsilon(case: dict[str, Any]) -> None:
    assert gaussian.gaussian_epsilon(case["mu"], case["delta"]) == pytest.approx(case["eps"], rel=1e-6)


@pytest.mark.parametrize("case", V["hdp_fm_afe"]["classic_gaussian"])
def test_what_the_classic_formula_really_gives(case: dict[str, Any]) -> None:
    delta = case["delta_claimed"]
    sigma = math.sqrt(2 * math.log(1.25 / delta)) / case["eps"]
    assert sigma == pytest.approx(case["sigma_classic"], rel=1e-9)
    assert gaussian.gaussian_epsilon(1 / sigma, delta) == pytest.approx(case["eps_true"], rel=1e-6)
    assert gaussian_delta(1 / sigma, case["eps"]) == pytest.approx(case["delta_true"], rel=1e-6)
    assert 1 / gaussian.gaussian_mu(case["eps"], delta) == pytest.approx(case["sigma_needed"], rel=1e-6)


@pytest.mark.parametrize("case", V["extra"]["zcdp_eps"])
def test_zcdp(case: dict[str, Any]) -> None:
    rho, delta = case["rho"], case["delta"]
    assert zcdp_epsilon(rho, delta) == pytest.approx(case["eps"], rel=1e-6)
    assert rho + 2 * math.sqrt(rho * math.log(1 / delta)) == pytest.approx(case["eps_classic"], rel=1e-9)
    assert gaussian.gaussian_epsilon(math.sqrt(2 * rho), delta) == pytest.approx(case["eps_gdp"], rel=1e-6)


@pytest.mark.parametrize("case", V["dpvi"]["ddg_tau"])
def test_shared_gaussian_gap(case: dict[str, Any]) -> None:
    assert renyi.shared_gaussian_gap(case["sigma2_share"], case["P"]) == pytest.approx(case["tau"], rel=1e-9)


@pytest.mark.parametrize("case", V["dpvi"]["ddg_rdp"])
def test_summed_discrete_gaussians(case: dict[str, Any]) -> None:
    share = Fraction(case["sigma2_share"])
    many = {"parts": case["P"], "smallest": share, "dimension": case["dim"]}
    seen = replace(gauss(1, case["d1"], case["d2"] ** 2, **many), noise=share * case["P"])
    assert renyi.release_rdp(seen)[case["alpha"] - 2] == pytest.approx(case["tau"], rel=1e-9)


@pytest.mark.parametrize("variances", [(0.25, 0.25), (0.25, 0.3, 0.9), (0.5,) * 5, (1.0, 1.0), (0.25,) * 7])
def test_sums_of_discrete_gaussians_are_as_near_as_proven(variances: tuple[float, ...]) -> None:
    reach = 40
    values = np.arange(-reach, reach + 1)
    total = np.ones(1)
    for variance in variances:
        law = np.exp(-(values**2) / (2 * variance))
        total = np.convolve(total, law / law.sum())
    wide = np.arange(-(len(total) // 2), len(total) // 2 + 1)
    near = np.exp(-(wide**2) / (2 * sum(variances)))
    inside = np.abs(wide) <= 5 * math.sqrt(sum(variances))
    gaps = np.abs(np.log(total[inside] / (near / near.sum())[inside]))
    assert 0 < gaps.max() <= renyi.shared_gaussian_gap(min(variances), len(variances)) / 2


@pytest.mark.parametrize(("share", "parts", "shift"), [(0.25, 2, 1), (0.3, 4, 2), (1.0, 3, 1)])
def test_the_bounds_for_sums_hold_for_the_exact_divergence(share: float, parts: int, shift: int) -> None:
    values = np.arange(-60, 61)
    law = np.exp(-(values**2) / (2 * share))
    total = np.ones(1)
    for _ in range(parts):
        total = np.convolve(total, law / law.sum())
    kept = total > 1e-250
    total = total[kept]
    seen = gauss(share * parts, shift, shift**2, parts=parts, smallest=Fraction(share))
    bound = renyi.release_rdp(seen)
    for alpha in (2, 3, 8):
        p, q = total[shift:], total[:-shift]
        exact = float(np.log(np.sum(np.exp(alpha * np.log(p) + (1 - alpha) * np.log(q)))) / (alpha - 1))
        assert exact <= bound[alpha - 2] * (1 + 1e-9)


def test_many_coordinates_are_not_charged_one_by_one() -> None:
    seen = gauss(3.0, 1, 1, parts=3, smallest=Fraction(1), dimension=10_000)
    assert acc.epsilon([seen], 1e-5).epsilon == pytest.approx(2.56, abs=0.02)


# --- closed forms against mpmath


@pytest.mark.parametrize("mu", [1e-9, 1e-3, 0.1, 0.499, 0.5, 1.0, 7.0, 40.0, 300.0])
@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0, 5.0, 24.0, 26.0, 80.0])
def test_gaussian_delta_to_nine_digits(mu: float, ratio: float) -> None:
    epsilon = ratio * mu
    with mpmath.workdps(80):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        exact = mpmath.log(mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m))
    found = gaussian.log_gaussian_delta(mu, epsilon)
    assert abs(found - float(exact)) <= 1e-9 * max(1.0, abs(float(exact)) * 1e-3)


def test_one_gaussian_delta_has_every_bit_of_many() -> None:
    rng = np.random.default_rng(5)
    drawn = zip(10 ** rng.uniform(-8, 3, 1500), 10 ** rng.uniform(-6, 3, 1500), strict=True)
    corners = [(mu, ratio * mu) for mu in (1e-120, 0.499, 0.5, 30.0, 1e120) for ratio in (0.0, 24.9, 25.1, 1e7)]
    for mu, epsilon in [*drawn, *corners]:
        one = gaussian.log_gaussian_delta(mu, epsilon)
        assert one == gaussian.log_gaussian_deltas(np.array([mu]), epsilon)[0]
        assert type(one) is float
    for mu, epsilon in ((0.0, 1.0), (math.inf, 1.0), (1.0, math.inf)):
        assert gaussian.log_gaussian_delta(mu, epsilon) == gaussian.log_gaussian_deltas(np.array([mu]), epsilon)[0]


@pytest.mark.parametrize("mu", [1e-6, 0.01, 0.27, 1.0, 10.0, 200.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-9, 1e-5, 0.1])
def test_gaussian_epsilon_is_never_too_small(mu: float, delta: float) -> None:
    epsilon = gaussian.gaussian_epsilon(mu, delta)
    with mpmath.workdps(80):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        assert exact <= delta
        if epsilon:
            e *= mpmath.mpf(1) - mpmath.mpf("1e-9")
            assert mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m) > delta


def test_gaussian_extremes() -> None:
    assert gaussian.gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian.gaussian_epsilon(math.inf, 1e-5) == math.inf
    assert gaussian_delta(1e-200, 1.0) == 0.0
    assert gaussian_delta(0.0, 1.0) == 0.0
    assert gaussian_delta(1e9, 1.0) == 1.0
    for bad in (0.0, 1.0, -1.0):
        with pytest.raises(PrivacyError):
            gaussian.gaussian_epsilon(1.0, bad)
    with pytest.raises(PrivacyError):
        gaussian.gaussian_mu(-1.0, 1e-5)


# --- other people's accountants


@pytest.mark.parametrize("sigma", [0.8, 3.0, 11.0])
def test_agrees_with_dp_accounting_in_the_gaussian_limit(sigma: float) -> None:
    scale = 10**9
    seen = skellam(Fraction(sigma) ** 2 * scale**2 / 2, scale, scale**2)
    event = dp_accounting.GaussianDpEvent(sigma)
    by_orders = rdp.RdpAccountant(orders=list(renyi.ORDERS)).compose(event).get_epsilon(1e-5)
    assert rdp_epsilon([seen], 1e-5) == pytest.approx(by_orders, rel=1e-6)
    loss = pld.privacy_loss_distribution.from_gaussian_mechanism(
        sigma, value_discretization_interval=1e-4, use_connect_dots=True
    )
    ours = transfer_epsilon([seen], 1e-5)
    assert ours == pytest.approx(loss.get_epsilon_for_delta(1e-5), rel=1e-3)
    many = [seen] * 16
    assert transfer_epsilon(many, 1e-5) == pytest.approx(loss.self_compose(16).get_epsilon_for_delta(1e-5), rel=1e-3)
    assert acc.delta([seen], ours) == pytest.approx(1e-5, rel=1e-6)


# --- the theorems, against exact numbers


def _skellam_pmf(mu: float, reach: int) -> np.ndarray[Any, Any]:
    return np.asarray(ive(np.abs(np.arange(-reach, reach + 1)), 2 * mu))


@pytest.mark.parametrize("mu", [0.5, 3.0, 40.0])
@pytest.mark.parametrize("shift", [1, 3])
@pytest.mark.parametrize("alpha", [2, 5, 16])
def test_the_renyi_bound_holds_for_the_exact_divergence(mu: float, shift: int, alpha: int) -> None:
    with mpmath.workdps(60):
        x = mpmath.mpf(2 * mu)
        reach = int(10 * math.sqrt(mu) + alpha * shift * 4 + 60)
        p = {k: mpmath.besseli(abs(k), x) * mpmath.exp(-x) for k in range(-reach, reach + shift + 1)}
        total = mpmath.fsum(p[k] ** alpha * p[k + shift] ** (1 - alpha) for k in range(-reach, reach + 1))
        exact = float(mpmath.log(total) / (alpha - 1))
    assert exact <= skellam_rdp(alpha, mu, shift, shift) * (1 + 1e-12)


@pytest.mark.parametrize(("mu", "z"), [(72, 12), (200, 10), (2000, 12), (20000, 12), (10**15, 12)])
def test_lemma_t_on_exact_probabilities(mu: int, z: int) -> None:
    before, flint.ctx.prec = flint.ctx.prec, 300
    try:
        s, half = flint.arb(2 * mu).sqrt(), flint.arb(1) / 2
        edge = math.isqrt(z * z * 2 * mu)
        for k in {0, 1, edge // 3, edge // 2, edge - 1, edge}:
            noise = flint.arb(2 * mu).bessel_i(flint.arb(k), scaled=True)
            root = flint.arb(2).sqrt() * s
            cell = (((k - half) / root).erfc() - ((k + half) / root).erfc()) / 2
            gap = abs((noise / cell).log())
            assert gap < transfer.kappa(mu, z), (k, gap)
    finally:
        flint.ctx.prec = before


@pytest.mark.parametrize(("mu", "shift"), [(5000.0, 40), (20000.0, 200)])
@pytest.mark.parametrize("epsilon", [0.2, 0.7, 2.0])
def test_the_claimed_delta_covers_the_exact_one(mu: float, shift: int, epsilon: float) -> None:
    reach = int(14 * math.sqrt(2 * mu)) + shift
    pmf = _skellam_pmf(mu, reach)
    exact = float(np.maximum(pmf[shift:] - math.exp(epsilon) * pmf[:-shift], 0).sum())
    seen = skellam(mu, shift, shift**2)
    claimed = acc.delta([seen], epsilon)
    assert exact <= claimed
    bound = acc.epsilon([seen], claimed)
    assert bound.epsilon <= epsilon * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("case", V["extra"]["dgauss_delta"])
def test_the_discrete_gaussian_is_covered(case: dict[str, Any]) -> None:
    seen = gauss(case["sigma2"], case["D"], case["D"] ** 2)
    assert acc.delta([seen], case["eps"]) >= case["delta_disc"]
    mu = case["D"] / math.sqrt(case["sigma2"])
    assert gaussian_delta(mu, case["eps"]) == pytest.approx(case["delta_cont"], rel=1e-9)
    assert float(norm.cdf(mu / 2 - case["eps"] / mu)) > case["delta_cont"]


# --- composition, routes, tails


def test_squares_add_up_under_composition() -> None:
    for case in V["extra"]["gdp_compose"]:
        seen = [skellam(10**15, 1, Fraction(mu) ** 2 * 2 * 10**15) for mu in case["mus"]]
        together = transfer_epsilon(seen, 1e-5)
        assert together == pytest.approx(gaussian.gaussian_epsilon(case["total"], 1e-5), rel=1e-6)
        assert acc.epsilon(seen, 1e-5).epsilon >= acc.epsilon(seen[:1], 1e-5).epsilon


def test_small_noise_falls_back_to_renyi() -> None:
    for seen in (skellam(50, 3, 9), skellam(1000, 30, 900, dimension=10_000)):
        assert transfer_epsilon([seen], 1e-5) == math.inf
        bound = acc.epsilon([seen], 1e-5)
        assert (bound.route, bound.theorem) == ("renyi", "skellam-renyi")
        assert math.isfinite(bound.epsilon)


def test_mixed_mechanisms_compose() -> None:
    one, other = (
        skellam(10**12, 10**6, 10**12),
        gauss(4 * 10**12, 10**6, 10**12, parts=4, smallest=Fraction(10**12)),
    )
    both = acc.epsilon([one, other], 1e-6)
    assert both.epsilon > max(acc.epsilon([one], 1e-6).epsilon, acc.epsilon([other], 1e-6).epsilon)
    expected = gaussian.gaussian_epsilon(math.sqrt(0.5 + 0.25), 1e-6)
    assert both.epsilon == pytest.approx(expected, rel=1e-5)
    assert rdp_epsilon([one, other], 1e-6) > both.epsilon
    tiny = gauss(0.4, 1, 1, parts=2, smallest=Fraction(1, 5))
    assert acc.epsilon([tiny], 1e-5).epsilon == math.inf


def test_the_sampler_distance_is_charged() -> None:
    plain = skellam(10**12, 10**6, 10**12, dimension=100, parts=3)
    seen = replace(plain, tail=1e-9)
    bound = acc.epsilon([seen], 1e-5)
    distance = 300 * 1e-9
    clean = acc.epsilon([plain], 1e-5 - distance * (1 + math.exp(bound.epsilon)))
    assert bound.epsilon == pytest.approx(clean.epsilon, rel=1e-6)
    assert acc.delta([seen], bound.epsilon) <= 1e-5 * (1 + 1e-9)
    assert acc.delta([seen], 1.0) - acc.delta([plain], 1.0) == pytest.approx(distance * (1 + math.e), rel=1e-6)
    assert acc.epsilon([replace(plain, tail=1e-7)], 1e-5).epsilon == math.inf


def test_no_noise_in_the_world_is_finite_when_not_private() -> None:
    seen = View("non_private", ADD, reason="the table was posted")
    bound = acc.epsilon([skellam(10**9, 1, 1), seen], 1e-5)
    assert (bound.epsilon, bound.reason) == (math.inf, "the table was posted")
    assert acc.delta([seen], 5.0) == 1.0


def test_what_does_not_depend_on_the_data_is_free() -> None:
    assert acc.epsilon([skellam(5, 0, 0)], 1e-5).epsilon == 0.0
    assert acc.epsilon([], 1e-5).epsilon == 0.0
    assert acc.delta([], 0.0) == 0.0


def test_unknown_views_and_mixed_relations_are_refused() -> None:
    with raises(PrivacyError, "PR016", "laplace"):
        acc.epsilon([View("laplace", ADD)], 1e-5)
    with raises(PrivacyError, "PR015"):
        acc.epsilon(["hello"], 1e-5)  # type: ignore[list-item]
    with raises(PrivacyError, "PR017"):
        acc.epsilon([skellam(9, 1, 1), replace(skellam(9, 1, 1), adjacency=Adjacency.REPLACE)], 1e-5)
    for alpha in (1, 2.5, True):
        with raises(PrivacyError, "PR140"):
            skellam_rdp(alpha, 1, 1, 1)  # type: ignore[arg-type]
    with raises(PrivacyError, "PR066"):
        acc.epsilon([], 0.0)


def test_numbers_beyond_floats_do_not_break_it() -> None:
    huge = 10**400
    assert acc.epsilon([skellam(huge, huge, huge)], 1e-5).epsilon == pytest.approx(
        gaussian.gaussian_epsilon(math.sqrt(0.5), 1e-5), rel=1e-6
    )
    assert acc.epsilon([skellam(1, huge, huge * huge)], 1e-5).epsilon == math.inf
    many = {"parts": 3, "smallest": Fraction(huge, 3)}
    assert acc.epsilon([replace(gauss(1, huge, huge, **many), noise=Fraction(huge))], 1e-5).epsilon == (
        pytest.approx(gaussian.gaussian_epsilon(1.0, 1e-5), rel=1e-6)
    )


def test_the_gap_of_many_shares_is_bounded_from_above() -> None:
    exact = 10 * sum(math.exp(-2 * math.pi**2 * 0.3 * k / (k + 1)) for k in range(1, 500))
    assert exact <= renyi.shared_gaussian_gap(0.3, 500) <= exact * 1.1


@pytest.mark.parametrize("lost", [1e-9, 4e-6])
@pytest.mark.parametrize("ratio", [4.0, 0.4])
def test_what_is_lost_is_added_to_delta_as_it_is(lost: float, ratio: float) -> None:
    """For a large epsilon too, where a sampler's distance of that size would leave no finite one."""
    trust = Trust(("a", "b", "c"), ("a", "b", "c"), 1)
    noise = AdditiveNoise("skellam", 3 * round(2**40 * ratio**2), trust.owners)
    moved = Sensitivity(2**20, 2**41, 2**21, 2**43)
    plain = noise.release("sums", 5, moved, theorem="here")
    event = noise.release("sums", 5, moved, theorem="here", lost=lost)
    seen, bare = (acc.epsilon(views([Repeated(each, 2)], Observer.analyst(), trust), 1e-5) for each in (event, plain))
    less = acc.epsilon(views([Repeated(plain, 2)], Observer.analyst(), trust), 1e-5 - 2 * lost)
    assert bare.epsilon < seen.epsilon == pytest.approx(less.epsilon, rel=1e-6)
    curve = acc.profile(views([Repeated(event, 2)], Observer.analyst(), trust), [seen.epsilon])
    assert curve[0] == pytest.approx(1e-5, rel=1e-3)
    tailed = noise.release("sums", 5, moved, theorem="here", tail=Fraction(lost) / 5)
    far = acc.epsilon(views([Repeated(tailed, 2)], Observer.analyst(), trust), 1e-5).epsilon
    assert far > seen.epsilon
    total = costs(views([Repeated(event, 2)], Observer.analyst(), trust))
    assert not keeps(Budget("analyst", seen.epsilon * 1.2 + 0.1, 2 * lost), total, Adjacency.ADD_REMOVE)
    if ratio > 1 and lost < 1e-8:
        assert keeps(Budget("analyst", seen.epsilon * 1.2 + 0.1, 1e-5), total, Adjacency.ADD_REMOVE)
