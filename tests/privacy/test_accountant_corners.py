"""Corners in which a figure once came out too small, and what must be refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from colonnade.errors import PrivacyError
from colonnade.privacy import accountant as acc
from colonnade.privacy.events import PURE, Event, View, from_dict, views
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.observers import Adjacency, Budget, Observer, Trust
from colonnade.privacy.releases import (
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    GaussianRelease,
    PoissonSampled,
    PostProcessing,
    Repeated,
    SkellamRelease,
)
from colonnade.privacy.routes import renyi
from colonnade.privacy.routes.coins import participations
from colonnade.privacy.routes.gaussian import gaussian_epsilon
from colonnade.privacy.routes.losses import MOST_ROUNDS, LossDistribution
from colonnade.privacy.routes.rounds import Rounds
from colonnade.privacy.rows import rounded_up
from colonnade.privacy.statement import Statement
from tests.support.errors import raises

THREE = Trust(("a", "b", "c"), ("a", "b", "c"), 1)
SKELLAM = SkellamRelease("x", tuple((name, Fraction(10)) for name in "abc"), 1, 100, 100, 200, 400)


def cost(made: list[Event], who: str, delta: float = 1e-5) -> float:
    return acc.epsilon(views(made, Observer.parse(who), THREE), delta).epsilon


@pytest.mark.parametrize("times", [2**31 - 1, 2**31, 2**40])
def test_billions_of_known_batches(times: int) -> None:
    tiny = DiscreteGaussianRelease("x", tuple((name, Fraction(1, 10)) for name in "abc"), 1, 1, 1, 2, 4)
    many = Repeated(PoissonSampled(tiny, Fraction(1, 10**6), ("a", "b", "c")), times)
    assert math.isinf(cost([many], "a"))
    assert np.all(acc.profile(views([many], Observer.party("a"), THREE), [0.5, 2.0]) == 1.0)
    atoms = participations(times, 1e-6, 1e-9)
    assert atoms.lost <= 1e-9 * 1.01
    assert atoms.chances.sum() >= 1 - 2e-9


@pytest.mark.parametrize(
    "others",
    [
        [["a", "-400", "400"]],
        [["a", "0", "-400"]],
        [["a", "0", "400"]],
        [["a", 1.9, "4"]],
        [["a", True, "4"]],
        [["a", "1/2", "4"]],
    ],
)
def test_finer_sensitivities_must_make_sense(others: list[Any]) -> None:
    with pytest.raises(PrivacyError):
        from_dict(SKELLAM.to_dict() | {"others": others})


@pytest.mark.parametrize(
    "change",
    [
        {"l1": True},
        {"l1": 100.0},
        {"replace_l2_squared": "0"},
        {"l1": "0"},
        {"tail": "0.5"},
        {"tail": True},
        {"tail": float("inf")},
        {"shares": [["a", 1.5]]},
        {"shares": [["a", True]]},
        {"shares": [[1, "5"]]},
        {"dimension": True},
    ],
)
def test_numbers_of_the_wrong_kind_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(PrivacyError):
        from_dict(json.loads(json.dumps(SKELLAM.to_dict() | change)))


@pytest.mark.parametrize("rate", ["1e400", "-1/2", 0.5, "0"])
def test_impossible_rates_are_refused(rate: Any) -> None:
    with pytest.raises(PrivacyError):
        from_dict(PoissonSampled(SKELLAM, Fraction(1, 10)).to_dict() | {"rate": rate})


def test_above_seven_hundred_twice_is_not_used() -> None:
    gauss = GaussianRelease("x", (("a", Fraction(1)),), 1, 1, 200**2, 1, 400**2)
    alone = cost([gauss], "coordinator")
    rare = GaussianRelease("y", (("a", Fraction(10**6)),), 1, 1, 1, 1, 4)
    assert cost([gauss, PoissonSampled(rare, Fraction(1, 100))], "coordinator") >= alone


def test_a_large_epsilon_is_not_claimed_by_transfer() -> None:
    share = DiscreteGaussianRelease("x", (("a", Fraction(10**6)),), 1, 5 * 10**6, 25 * 10**12, 10**7, 10**14)
    bound = acc.epsilon(views([share], Observer.analyst(), THREE), 1e-5)
    assert bound.route == "renyi"
    assert bound.epsilon > 12.5e6


@pytest.mark.parametrize(("scale", "times"), [(5 * 10**8, 2 * 10**15), (10**9, 3 * 10**15), (333333333, 10**15)])
def test_tiny_pure_epsilons_many_times(scale: int, times: int) -> None:
    release = DiscreteLaplaceRelease("x", (("a", Fraction(1)),), 1, Fraction(scale), 1, 2)
    # Each loss is +-1/scale with a mean of about 1/(2 scale^2): in all a Gaussian of variance times/scale^2.
    exact = gaussian_epsilon(math.sqrt(times) / scale, 1e-5)
    assert cost([Repeated(release, times)], "analyst") >= exact * 0.999


@pytest.mark.parametrize("epsilon", [2e-9, 1e-8, 0.01, 0.9, 30.0, 2000.0])
def test_renyi_of_pure_releases_against_sixty_digits(epsilon: float) -> None:
    for index, order in ((0, 2), (30, 32), (len(renyi.ORDERS) - 1, 4096)):
        with mpmath.workdps(60):
            e = mpmath.mpf(epsilon)
            tau = mpmath.log(mpmath.cosh((2 * order - 1) * e / 2) / mpmath.cosh(e / 2)) / (order - 1)
        found = float(renyi.pure_rdp(epsilon)[index])
        assert mpmath.mpf(found) >= tau
        assert found == pytest.approx(float(tau), rel=1e-9)


def test_too_many_rounds_for_a_transform() -> None:
    losses = LossDistribution([Rounds(MOST_ROUNDS + 1, mu=1e-9, rate=0.5, known=False)])
    assert losses.epsilon(1e-5) == math.inf
    assert losses.deltas(np.array([1.0])) == [1.0]


@pytest.mark.parametrize("rate", [1e-12, 1e-6, 0.3])
def test_known_batches_of_tiny_rate_are_rounded_up(rate: float) -> None:
    found = renyi.known_batch_rdp(np.full_like(renyi.ORDERS, 3.7), rate)
    for index in (0, 60, 254):
        with mpmath.workdps(50):
            order = mpmath.mpf(float(renyi.ORDERS[index]))
            grown = mpmath.exp((order - 1) * mpmath.mpf(3.7))
            exact = mpmath.log(1 - mpmath.mpf(rate) + mpmath.mpf(rate) * grown) / (order - 1)
        assert mpmath.mpf(float(found[index])) >= exact


def test_the_worst_coalition_is_among_the_rows() -> None:
    owners = ("a", "b", "c", "d", "e")
    trust = Trust(owners, ("a", "b", "c"), 1)
    release = SkellamRelease("x", tuple((name, Fraction(10**7)) for name in owners), 1, 10**3, 10**6, 2000, 4 * 10**6)
    sampled = Repeated(PoissonSampled(release, Fraction(1, 100), ("c",)), 100)
    uneven = replace(release, shares=(*release.shares[:2], ("c", Fraction(10**9)), *release.shares[3:]))
    for event in (sampled, uneven):
        statement = Statement.of([event], trust, 1e-5)
        worst = max(row.epsilon for row in statement.rows if math.isfinite(row.epsilon))
        for size in range(1, 5):
            for group in trust.coalitions(size):
                if trust.broken(group) is None:
                    assert statement.epsilon(group) <= worst * (1 + 1e-9), group
        met = Budget("coalition", 1.0, 1e-5).observers(trust)
        assert max(statement.epsilon(seen) for seen in met) == pytest.approx(worst, rel=1e-9)


def test_post_processing_is_free_for_those_who_had_it_before(tmp_path: Path) -> None:
    sealed = replace(SKELLAM, audience=("a",))
    book = Ledger(tmp_path / "ledger.sqlite")
    with raises(PrivacyError, "PR035"):
        book.reserve("s", "0" * 64, [sealed, PostProcessing("weights, published")], THREE, [])
    assert book.entries() == ()
    with raises(PrivacyError, "PR035"):
        Statement.of([sealed, PostProcessing("weights, published")], THREE, 1e-5)
    with raises(PrivacyError, "PR035"):
        Statement.of([Repeated(sealed, 3), PostProcessing("weights", audience=("a", "b"))], THREE, 1e-5)
    kept = Statement.of([sealed, PostProcessing("weights", audience=("a",))], THREE, 1e-5)
    assert kept.epsilon("analyst") == 0.0
    assert Statement.of([SKELLAM, PostProcessing("eigenvectors")], THREE, 1e-5).epsilon("analyst") > 0


def test_a_sampled_pure_release_costs_at_most_the_whole_one() -> None:
    whole = View(PURE, Adjacency.ADD_REMOVE, pure=1.0, single_pure=1.0, l1=1, dimension=1, parts=1)
    assert acc.epsilon([replace(whole, rate=Fraction(999, 1000))], 1e-12).epsilon <= 1.0 + 1e-9


def test_figures_are_rounded_up_whatever_their_size() -> None:
    assert rounded_up(1e25).startswith("10000000000000000905969664")
    assert rounded_up(1.00001) == "1.0001"
    assert "1.0000004e-05" in str(Statement.of([SKELLAM], THREE, 1.0000004e-5))
