"""Sampled batches: the vectors, other accountants, and exact numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import pld, rdp
from hypothesis import given, settings, strategies as st
from mpmath import mp, mpf
from scipy.stats import binom

from colonnade.privacy import Adjacency, accountant as acc
from colonnade.privacy.accounting import mixtures
from colonnade.privacy.accounting.mixtures import GaussianMixture, participation_counts
from colonnade.privacy.events import PURE, View
from colonnade.privacy.noise_laws import skellam_gaussian_gap
from research.bounds import skellam_rdp
from tests.support.vectors import VECTORS

SCALE = 10**12  # of an integer grid so fine that Theorem T adds nothing that shows
DPVI_RATE = Fraction(100, 30162)


def release(ratio: float, **more) -> View:
    """A release whose noise has ``ratio`` standard deviations per unit of sensitivity."""
    noise = Fraction(ratio) ** 2 * SCALE**2
    given = dict.fromkeys(("l1", "single_l1"), SCALE) | dict.fromkeys(("l2_squared", "single_l2_squared"), SCALE**2)
    given |= {"parts": 1, "smallest": noise, "dimension": 1, **more}
    return View("discrete_gaussian", Adjacency.ADD_REMOVE, noise=noise, **given)


def by_route(views, delta: float, name: str) -> float:
    return min((r.profile.epsilon(delta) for r in acc.routes(views) if r.name == name), default=math.inf)


# --- the vectors


@pytest.mark.parametrize("case", VECTORS["sqm"]["subsampled_skellam"])
def test_a_secret_batch_of_skellam_noise(case) -> None:
    terms = [skellam_rdp(a, case["mu"], case["d1"], case["d2"]) for a in mixtures.ORDERS.astype(int).tolist()]
    found = mixtures.secret_batch_rdp(np.array(terms), case["q"])
    assert found[case["alpha"] - 2] == pytest.approx(case["tau"], rel=1e-9)


@pytest.mark.parametrize("case", VECTORS["sqm"]["known_coins"])
def test_a_known_batch_order_by_order(case) -> None:
    found = mixtures.known_batch_rdp(np.full_like(mixtures.ORDERS, case["tau_base"]), case["q"])
    assert found[case["alpha"] - 2] == pytest.approx(case["tau"], rel=1e-9)


@pytest.mark.parametrize("case", VECTORS["coins_and_gdl"]["coins_mixture_gdp"])
def test_known_coins_averaged(case) -> None:
    seen = release(case["sigma"] / case["sens"], times=case["R"], rate=Fraction(case["q"]), coins_known=True)
    found = by_route([seen], case["delta"], "gaussian transfer, averaged over known coins")
    assert found == pytest.approx(case["eps"], rel=1e-6)
    assert acc.epsilon([seen], case["delta"]).epsilon == pytest.approx(case["eps"], rel=1e-6)
    assert by_route([seen], case["delta"], "renyi") > 1.05 * case["eps"], "order by order it is valid and poor"


def _regression(mu: Fraction, d2: float, d1: float, **more) -> View:
    given = {"parts": 1, "smallest": mu, "dimension": 800, **more}
    return View(
        "skellam", Adjacency.ADD_REMOVE, noise=mu, l1=math.ceil(d1), l2_squared=math.ceil(Fraction(d2) ** 2), **given
    )


@pytest.mark.parametrize("variant", ["paper_eq22", "paper_fixed", "alg3_safe", "struct"])
def test_logistic_regression_as_in_the_paper(variant: str) -> None:
    setting, coins = VECTORS["sqm"]["lr_fig3"], VECTORS["coins_and_gdl"]
    case, delta, averaged = setting[variant], setting["delta"], "averaged over known coins"
    d2, mu, parties = case["d2"], Fraction(case["mu"]), setting["d"] + 1
    l1 = min(d2 * d2, math.sqrt(setting["d"]) * d2)
    rounds = {"times": setting["R"], "rate": Fraction(setting["q"])}
    analyst, client = _regression(mu, d2, l1, **rounds), _regression(mu * (parties - 1) / parties, 2 * d2, 2 * l1)
    known = replace(client, **rounds, coins_known=True)
    found = [
        (analyst, "renyi", 1.0),
        (replace(client, times=setting["R"]), "renyi", case["eps_client_paper_R"]),
        (known, "renyi", case["eps_client_known_coins"]),
        (replace(client, times=5), "renyi", case["eps_client_disjoint5"]),
    ]
    if variant == "struct":
        found += [
            (known, f"renyi, {averaged}", coins["lr_client_coins_mixture_rdp"]),
            (known, f"gaussian transfer, {averaged}", coins["lr_client_coins_mixture_gdp"]),
        ]
        whole = replace(analyst, times=5, rate=Fraction(1))
        assert acc.epsilon([whole], delta).epsilon == pytest.approx(coins["lr_server_disjoint5"], rel=1e-6)
    for seen, route, expected in found:
        assert by_route([seen], delta, route) == pytest.approx(expected, rel=1e-6)


def test_logistic_regression_by_transfer() -> None:
    case = VECTORS["gaussian_transfer"]["lr_transfer"]
    d2, mu, rounds = case["d2"], Fraction(case["mu"]), {"times": case["R"], "rate": Fraction(case["q"])}
    bound = acc.epsilon([_regression(mu, d2, math.sqrt(800) * d2, **rounds)], 1e-5)
    assert bound.route == "privacy loss distribution"
    assert bound.epsilon == pytest.approx(case["eps_with_slack"], rel=1e-3)
    assert skellam_gaussian_gap(mu, 12.0) * 800 * case["R"] == pytest.approx(case["kappaN"], rel=1e-9)
    client = _regression(mu * 800 / 801, 2 * d2, 2 * math.sqrt(800) * d2, **rounds, coins_known=True)
    assert acc.epsilon([client], 1e-5).epsilon == pytest.approx(case["eps_client_coins_mixture"], rel=1e-6)


def test_the_same_noise_by_loss_distributions() -> None:
    extra, multiplier = VECTORS["extra"], VECTORS["sqm"]["lr_fig3"]["paper_eq22"]["noise_multiplier"]
    for ratio, expected in ((multiplier, extra["lr_gauss_same_nm_pld_eps"]), (extra["lr_gauss_nm_pld_eps1"], 1.0)):
        found = acc.epsilon([release(ratio, times=5000, rate=Fraction(1, 1000))], 1e-5).epsilon
        assert found == pytest.approx(expected, rel=1e-3)


def test_mixture_models_as_in_the_paper() -> None:
    case, delta, losses = VECTORS["dpvi"]["dpvi"], 1e-5, "privacy loss distribution"
    rounds = {"times": 20000, "rate": DPVI_RATE}
    batch = release(2.042, **rounds)
    rarer = replace(batch, rate=Fraction(3, 1000))
    for seen, route, expected in (
        (batch, "renyi", case["rdp_eps_sigma2.042"]),
        (batch, losses, case["pld_eps_sigma2.042"]),
        (rarer, "renyi", case["rdp_q0.003"]),
        (rarer, losses, case["pld_q0.003"]),
        (release(case["sigma_rdp_eps1"], **rounds), "renyi", 1.0),
        (release(case["sigma_pld_eps1"], **rounds), losses, 1.0),
    ):
        assert by_route([seen], delta, route) == pytest.approx(expected, rel=1e-3)
    twice = acc.epsilon([replace(batch, adjacency=Adjacency.REPLACE, l1=2 * SCALE, l2_squared=4 * SCALE**2)], delta)
    assert twice.route == f"{losses}, twice"
    assert case["pld_replace_one"] < twice.epsilon < 1.25 * case["pld_replace_one"]
    known = release(2.042 / 2 / math.sqrt(2), **rounds, coins_known=True)
    assert acc.epsilon([known], delta).epsilon == pytest.approx(VECTORS["coins_and_gdl"]["dpvi_coins_P2"], rel=1e-6)


@pytest.mark.parametrize(("who", "lost"), [("trusted", 1.0), ("P2", 0.5)])
@pytest.mark.parametrize("sens", [1, 2])
def test_mixture_models_without_sampling(who: str, lost: float, sens: int) -> None:
    for key, steps in (("67", 67), ("2e+04", 20000)):
        expected = VECTORS["dpvi"]["dpvi"][f"gdp_eps_{who}_sens{sens}_steps{key}"]
        square = mixtures.gaussian_square(release(2.042 / sens * math.sqrt(lost)))
        assert mixtures.GaussianMixture([(square, steps, 1.0)]).epsilon(1e-5) == pytest.approx(expected, rel=1e-6)


# --- other accountants


@pytest.mark.parametrize(("ratio", "rate", "times"), [(1.0, 0.01, 1000), (4.0, 0.1, 100), (2.0, 0.5, 7)])
def test_agrees_with_dp_accounting(ratio: float, rate: float, times: int) -> None:
    seen = [release(ratio, times=times, rate=Fraction(rate))]
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(ratio)), times
    )
    orders = [order for order in mixtures.ORDERS.astype(int).tolist() if order <= 256]
    added = rdp.RdpAccountant(orders=orders).compose(event)
    composed = pld.privacy_loss_distribution.from_gaussian_mechanism(
        ratio, sampling_prob=rate, value_discretization_interval=5e-4, use_connect_dots=True
    ).self_compose(times)
    for delta in (1e-3, 1e-8):
        assert by_route(seen, delta, "renyi") == pytest.approx(added.get_epsilon(delta), rel=1e-6)
        tight = composed.get_epsilon_for_delta(delta)
        assert by_route(seen, delta, "privacy loss distribution") == pytest.approx(tight, rel=1e-3, abs=1e-3)
    epsilons = np.linspace(0.0, 3.0, 13)
    claimed = acc.profile(seen, epsilons)
    assert claimed == pytest.approx(composed.get_delta_for_epsilon(epsilons.tolist()), rel=2e-2, abs=1e-9)
    assert np.all(np.diff(claimed) <= 1e-12)


@pytest.mark.parametrize(("times", "rate"), [(1, 0.5), (7, 0.3), (5000, 0.001), (10**9, 1e-7)])
def test_how_often_one_person_takes_part(times: int, rate: float) -> None:
    atoms = participation_counts(times, rate, 1e-12)
    assert 1 - 2e-12 <= atoms.chances.sum() <= 1 + 2e-3
    assert atoms.lost <= 1e-12 * 1.001
    assert float(atoms.chances @ atoms.values) == pytest.approx(times * rate, rel=2e-3)


# --- pure releases


def pure(epsilon: float, **more) -> View:
    return View(PURE, Adjacency.ADD_REMOVE, pure=epsilon, single_pure=epsilon, l1=1, dimension=1, parts=1, **more)


def test_pure_epsilons_add_up_or_less() -> None:
    for seen, total in (([pure(0.3)], 0.3), ([pure(0.3), pure(0.2, times=2)], 0.7)):
        assert acc.epsilon(seen, 1e-12).epsilon <= total * (1 + 1e-9)
    many = acc.epsilon([pure(0.02, times=1000)], 1e-5)
    assert many.route == "privacy loss distribution"
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
    alone, both = (acc.epsilon([release(4.0), *more], 1e-5) for more in ((), (pure(0.5),)))
    assert alone.epsilon < both.epsilon <= alone.epsilon + 0.5 + 1e-9
    assert both.route == "privacy loss distribution"


# --- what is not covered


def test_replacing_with_secret_coins_costs_twice() -> None:
    batch = release(1.5, times=200, rate=Fraction(1, 100))
    replaced = replace(batch, adjacency=Adjacency.REPLACE, l1=2 * SCALE, l2_squared=4 * SCALE**2)
    single, found, known = (
        acc.epsilon([seen], 1e-6) for seen in (batch, replaced, replace(replaced, coins_known=True))
    )
    assert 2 * single.epsilon < found.epsilon <= known.epsilon
    assert "twice" in found.route
    assert "replacing-and-groups" in found.theorem


# --- docs/theory/poisson-sampling.md: sampled divergences summed exactly, against the formula


SLACK = mpf(10) ** -20


@pytest.fixture(autouse=True)
def _digits():
    with mp.workdps(40):
        yield


@cache
def law_of(kind: str, size: float):
    """The masses of noise of this variance or scale, far beyond where they matter."""
    root = math.sqrt(2 * size)
    reach = int({"skellam": 12 + 14 * root, "gaussian": 10 + 10 * root, "laplace": 60 * size}[kind])
    mass = {
        "skellam": lambda k: mpmath.besseli(k, 2 * mpf(size)),
        "gaussian": lambda k: mpmath.exp(-mpf(k * k) / (2 * mpf(size))),
        "laplace": lambda k: mpmath.exp(-k / mpf(size)),
    }[kind]
    raw = {k: mass(abs(k)) for k in range(-reach, reach + 1)}
    total = mpmath.fsum(raw.values())
    return {k: value / total for k, value in raw.items()}


LAWS = [("skellam", 0.5), ("skellam", 4.0), ("gaussian", 2.0), ("gaussian", 30.0), ("laplace", 3.0)]


def moved(law, shift: int, among: range) -> list[mpf]:
    """The masses of law + shift, on a common range inside which both have their full support."""
    return [law.get(z - shift, mpf(0)) for z in among]


def pair(law, shift: int) -> tuple[list[mpf], list[mpf]]:
    # Only points that both laws reach: the cut masses are far below the tolerance, and ratios stay finite.
    reach = max(law)
    among = range(-reach + max(shift, 0), reach + 1 + min(shift, 0))
    return moved(law, 0, among), moved(law, shift, among)


def power(first: list[mpf], second: list[mpf], order: int) -> mpf:
    """The sum of p^order s^(1 - order)."""
    return mpmath.fsum(p**order * s ** (1 - order) for p, s in zip(first, second, strict=True))


def mixed(q: mpf, out: list[mpf], inside: list[mpf]) -> list[mpf]:
    return [(1 - q) * p + q * s for p, s in zip(out, inside, strict=True)]


def formula(order: int, q: mpf, excess) -> mpf:
    """The moment that the page bounds; ``excess(l)`` is (l - 1) tau_l."""
    first = (1 - q) ** (order - 1) * (order * q - q + 1)
    return first + mpmath.fsum(
        mpmath.binomial(order, i) * (1 - q) ** (order - i) * q**i * mpmath.exp(excess(i)) for i in range(2, order + 1)
    )


# --- the two-point inequality


@settings(deadline=None, max_examples=150)
@given(st.floats(1e-6, 1.0), st.floats(-30.0, 30.0), st.floats(1.0, 80.0))
def test_the_two_point_inequality(q: float, log_ratio: float, order: float) -> None:
    with mp.workdps(60):
        x, rate, a = mpmath.exp(mpf(log_ratio)), mpf(q), mpf(order)
        for part in (rate, mpf(1)):  # without sampling it is an equality
            u, v = 1 - part + part * x, 1 - part + part / x
            left, right = u**a + x * v**a, u ** (1 - a) + x * v ** (1 - a)
            assert left - right >= -(left + right) * mpf(10) ** -50
        assert mpmath.almosteq(left, right, mpf(10) ** -50)


# --- one round, one coordinate


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("shift", "q"), [(1, 0.3), (-3, 0.01), (-3, 0.9)])
def test_removing_meets_the_formula_exactly_and_adding_stays_below(law, shift: int, q: float) -> None:
    out, inside = pair(law_of(*law), shift)
    sample = mixed(mpf(q), out, inside)
    for order in (2, 3, 6, 12):
        exact = formula(order, mpf(q), lambda i: mpmath.log(power(inside, out, i)))
        removed, added = power(sample, out, order), power(out, sample, order)
        assert mpmath.almosteq(removed, exact, mpf(10) ** -15)
        assert added <= exact + SLACK


# --- a table: the coins of others, coins that round, two coordinates, two rounds


def test_other_peoples_coins_and_rounding_coins_do_not_matter() -> None:
    law, q = law_of("skellam", 1.5), mpf("0.3")
    others = [2, -1]
    rounded = {1: mpf("0.25"), 2: mpf("0.75")}  # the person's value is rounded by a coin
    among = range(-14, 16)

    def output(with_person: bool) -> list[mpf]:
        total = [mpf(0)] * len(among)
        for coins in product((0, 1), repeat=3):
            weight = mpmath.fprod(q if coin else 1 - q for coin in coins)
            for value, chance in rounded.items():
                f = sum(coin * x for coin, x in zip(coins, others, strict=False)) + with_person * coins[2] * value
                for i, mass in enumerate(moved(law, f, among)):
                    total[i] += weight * chance * mass
        return total

    there, gone = output(True), output(False)
    out, inside = pair(law, 2)
    for order in (2, 5, 9):
        bound = formula(order, q, lambda i: mpmath.log(power(inside, out, i)))
        assert power(there, gone, order) < bound
        assert power(gone, there, order) < bound


def test_two_coordinates_and_two_adaptive_rounds() -> None:
    law, q = law_of("gaussian", 1.5), mpf("0.4")
    among = range(-9, 11)
    laws = {shift: moved(law, shift, among) for shift in (0, 1, 2)}

    def sampled(shift: tuple[int, int]) -> tuple[list[mpf], list[mpf]]:
        out = [a * b for a in laws[0] for b in laws[0]]
        return mixed(q, out, [a * b for a in laws[shift[0]] for b in laws[shift[1]]]), out

    # The second round's direction depends on what the first round showed; its length does not.
    first, seconds = sampled((1, 2)), [sampled((2, 1)), sampled((1, 2))]
    base = [a * b for a in laws[1] for b in laws[2]], [a * b for a in laws[0] for b in laws[0]]
    for order in (2, 4):
        bound = formula(order, q, lambda i: mpmath.log(power(*base, i)))
        for way in (0, 1):
            inner = [power(second[way], second[1 - way], order) for second in seconds]
            total = mpmath.fsum(
                p**order * s ** (1 - order) * inner[i % 2]
                for i, (p, s) in enumerate(zip(first[way], first[1 - way], strict=True))
            )
            assert total <= bound**2 + SLACK


# --- replacing is another matter


def test_neither_the_add_remove_figure_nor_the_replace_sensitivity_covers_replacing() -> None:
    law = law_of("gaussian", 4.0)
    for q, shifts, least in (("0.1", (1, -1), 3), ("0.01", (25, 26), 20)):
        among = range(-20, 50)
        out, one, other = (moved(law, shift, among) for shift in (0, *shifts))
        first, second = mixed(mpf(q), out, one), mixed(mpf(q), out, other)
        replaced = mpmath.fsum(p * p / s for p, s in zip(first, second, strict=True) if s > 0) - 1
        bound = formula(2, mpf(q), lambda i: mpmath.log(power(*pair(law, 1), i))) - 1
        assert replaced > least * bound


# --- docs/theory/known-coins.md and fixed-batches.md: mixtures over coins, and batches that a person is not in


MIXTURES = VECTORS["coins_and_gdl"]["coins_mixture_gdp"]


def gaussian_delta(mu: mpf, epsilon: mpf) -> mpf:
    if mu == 0:
        return max(mpf(0), 1 - mpmath.exp(epsilon))
    low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return mpmath.ncdf(-low) - mpmath.exp(epsilon) * mpmath.ncdf(-high)


def mixture_delta(rounds: int, q: float, mu: float, epsilon: float) -> mpf:
    """The page's sum, with 50 digits, over all counts within forty deviations."""
    with mpmath.workdps(50):
        most = min(rounds, int(rounds * q + 40 * math.sqrt(rounds * q) + 40))
        return mpmath.fsum(
            mpmath.binomial(rounds, k) * mpf(q) ** k * (1 - mpf(q)) ** (rounds - k)
            * gaussian_delta(mpf(mu) * mpmath.sqrt(k), mpf(epsilon))
            for k in range(most + 1)
        )  # fmt: skip


@pytest.mark.parametrize(
    ("times", "rate", "mu", "epsilon"),
    [
        (60, 0.07, 1 / 1.7, 2.0),
        *((c["R"], c["q"], c["sens"] / c["sigma"], c["eps"]) for c in MIXTURES),
    ],
)
def test_known_coins_against_exact_sums(times: int, rate: float, mu: float, epsilon: float) -> None:
    exact = float(mixture_delta(times, rate, mu, epsilon))
    mixture = GaussianMixture([(mu**2, times, rate)])
    found = float(mixture.deltas(np.array([epsilon]))[0])
    assert found == pytest.approx(exact, rel=1e-9)
    assert found >= exact
    assert mixture.epsilon(exact) == pytest.approx(epsilon, rel=1e-9)


# --- exact enumeration


AMONG = np.arange(-24, 25, dtype=np.float64)


def hockey(p, q, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def round_law(value: float, variance: float = 4.0):
    raw = np.exp(-((AMONG - value) ** 2) / (2 * variance))
    return np.asarray(raw / raw.sum())


def two_rounds(values: tuple[float, tuple[float, float]]):
    """First output, then one whose true value depends on the first output's sign."""
    first, (negative, positive) = values
    second = np.where((AMONG < 0)[:, None], round_law(negative)[None, :], round_law(positive)[None, :])
    return round_law(first)[:, None] * second


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_coins_in_the_view_average_the_hockey_sticks(epsilon: float) -> None:
    q, averaged = 0.3, 0.0
    views = []
    for coins in product((0, 1), repeat=2):
        weight = math.prod(q if coin else 1 - q for coin in coins)
        with_person = two_rounds((coins[0] * 1.0, (coins[1] * 1.0, 1.0 - coins[1])))
        without = two_rounds((0.0, (0.0, 1.0)))
        views.append((weight * with_person, weight * without))
        averaged += weight * hockey(with_person, without, epsilon)
    stacked = [np.stack(side) for side in zip(*views, strict=True)]
    joint = hockey(stacked[0], stacked[1], epsilon)
    assert joint == pytest.approx(averaged, rel=1e-12)
    one = hockey(round_law(1.0), round_law(0.0), epsilon)
    two = hockey(np.outer(round_law(1.0), round_law(1.0)), np.outer(round_law(0.0), round_law(0.0)), epsilon)
    assert joint <= 2 * q * (1 - q) * one + q * q * two + 1e-9
    # Hiding the coins can only lower it.
    assert hockey(stacked[0].sum(axis=0), stacked[1].sum(axis=0), epsilon) < joint


def exact_groups(groups: list[tuple[int, float, float]], epsilon: float) -> float:
    total = 0.0
    for counts in product(*(range(rounds + 1) for rounds, _, _ in groups)):
        weight = math.prod(float(binom.pmf(k, rounds, q)) for k, (rounds, q, _) in zip(counts, groups, strict=True))
        square = math.fsum(k * size**2 for k, (_, _, size) in zip(counts, groups, strict=True))
        total += weight * float(gaussian_delta(mpf(math.sqrt(square)), mpf(epsilon)))
    return total


def test_several_groups_and_sizes() -> None:
    groups = [(12, 0.2, 0.31), (7, 0.5, 0.77), (3, 1.0, 0.2)]
    mixture = GaussianMixture([(size**2, rounds, q) for rounds, q, size in groups])
    for epsilon in (0.5, 2.0):
        exact, found = exact_groups(groups, epsilon), float(mixture.deltas(np.array([epsilon]))[0])
        assert exact <= found == pytest.approx(exact, rel=0.01)
    seen = [release(1 / size, times=rounds, rate=Fraction(q), coins_known=True) for rounds, q, size in groups]
    assert acc.epsilon(seen, 1e-5).epsilon == pytest.approx(mixture.epsilon(1e-5), rel=1e-9)


# --- fixed batches


def openings(batches: int, epochs: int, person: int | None):
    """The exact law of all openings of batches visited in turn; each adds a value that depends on the past."""
    law: dict[tuple[int, ...], float] = {(): 1.0}
    for step in range(batches * epochs):
        grown = {}
        for seen, mass in law.items():
            keep = 0.5 + 0.1 * (sum(seen) % 3 == 0) * (-1) ** len(seen)  # what all others add up to, given the past
            moved = keep + (0.2 if step % batches == person else 0.0)
            grown |= {(*seen, 0): mass * (1 - moved), (*seen, 1): mass * moved}
        law = grown
    return np.array(list(law.values()))


@pytest.mark.parametrize(("batches", "epochs"), [(1, 3), (4, 3), (6, 2)])
def test_a_person_pays_for_epochs_not_for_openings(batches: int, epochs: int) -> None:
    with_person, without = openings(batches, epochs, 0), openings(batches, epochs, None)
    # Worst single opening: a coin of 0.4 to 0.6 moved by 0.2, bounded by these log ratios.
    worst = max(
        abs(math.log(a / b)) for keep in (0.4, 0.5, 0.6) for a, b in ((keep + 0.2, keep), (0.8 - keep, 1 - keep))
    )
    assert float(np.abs(np.log(with_person / without)).max()) <= epochs * worst + 1e-12
    order = 4
    moment = max(
        (keep + 0.2) ** order * keep ** (1 - order) + (0.8 - keep) ** order * (1 - keep) ** (1 - order)
        for keep in (0.4, 0.5, 0.6)
    )
    assert float((with_person**order * without ** (1 - order)).sum()) <= moment**epochs * (1 + 1e-12)
