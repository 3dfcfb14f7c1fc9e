from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from colonnade.errors import PrivacyError
from colonnade.privacy import beliefs
from colonnade.privacy.events import NonPrivate
from colonnade.privacy.statement import Statement

from .conftest import EVENT, TRUST


def _gaussian(shift: float):
    """The exact guarantee of a unit normal that is moved by so much, and the chance that odds rise by more."""

    def profile(epsilons):
        x = np.asarray(epsilons)
        return norm.cdf(shift / 2 - x / shift) - np.exp(x) * norm.cdf(-shift / 2 - x / shift)

    return profile, lambda rise: norm.cdf(shift / 2 - rise / shift)


@pytest.mark.parametrize("shift", [0.1, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("chance", [1e-3, 1e-5, 1e-9])
def test_the_bound_holds_for_normal_laws_and_epsilon_alone_would_not(shift: float, chance: float) -> None:
    profile, exceeded = _gaussian(shift)
    low, high = 0.0, 60.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if profile([middle])[0] <= chance else (middle, high)
    rise = beliefs.bound(profile, high, chance)
    assert high < rise < 2 * high + 1
    assert exceeded(rise) <= chance < exceeded(high)


def test_a_pure_guarantee_bounds_odds_by_its_epsilon_and_randomised_response_attains_it() -> None:
    keeps = math.log(3)
    rise = beliefs.bound(lambda epsilons: [0.0 if epsilon >= keeps else 1.0 for epsilon in epsilons], keeps, 1e-5)
    assert keeps <= rise <= keeps + 1e-9
    assert beliefs.afterwards(0.5, rise) == pytest.approx(0.75)


def test_the_bound_holds_for_laws_at_random_whether_or_not_the_thing_is_true() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        with_it, without = rng.dirichlet(np.full(12, 0.7), size=2)

        def profile(epsilons, p=with_it, q=without):
            return [max(_stick(p, q, e), _stick(q, p, e)) for e in epsilons]

        for chance in (0.3, 0.05, 1e-3):
            rise = beliefs.bound(profile, 0.5, chance)
            for truth in (with_it, without):
                assert truth[with_it > math.exp(rise) * without].sum() <= chance + 1e-12


def _stick(p, q, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def test_a_statement_bounds_odds_for_every_observer() -> None:
    statement = Statement.of([EVENT], TRUST, 1e-5)
    for row in statement.rows:
        rise = beliefs.log_odds(statement, row.observer)
        if math.isinf(row.epsilon):
            assert rise == math.inf
        else:
            assert row.epsilon < rise < 2 * row.epsilon + 1
    found = beliefs.rises(statement)
    assert len(found) == len(statement.rows) + len(statement.missing_noise)
    for row in statement.missing_noise:
        rise = found[beliefs.name_of(row)]
        assert (rise is None) == math.isinf(row.epsilon)
        assert rise is None or rise > row.epsilon
    assert found["analyst"] == beliefs.log_odds(statement, "analyst")
    exact = Statement.of([NonPrivate("told exactly")], TRUST, 1e-5)
    assert beliefs.log_odds(exact, "analyst") == math.inf


def test_beliefs_at_the_ends_stay_there_and_others_rise() -> None:
    assert (beliefs.afterwards(0.0, 2.0), beliefs.afterwards(1.0, 2.0)) == (0.0, 1.0)
    assert beliefs.afterwards(0.1, math.inf) == 1.0
    assert beliefs.afterwards(0.0, math.inf) == 0.0
    assert beliefs.afterwards(0.1, 0.0) == pytest.approx(0.1)
    assert beliefs.afterwards(0.1, math.log(2)) == pytest.approx(2 / 11)


def test_a_chance_must_be_one() -> None:
    with pytest.raises(PrivacyError):
        beliefs.bound(lambda epsilons: [0.0] * len(epsilons), 1.0, 0.0)
