"""The largest epsilon that can be certified is said where it is hit; below it every law and route has a figure."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from colonnade.cli.show import binding as shown
from colonnade.privacy import (
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    Observer,
    PoissonSampled,
    Repeated,
    SkellamRelease,
    Statement,
    Trust,
    epsilon,
    parse_budgets,
    views,
)
from colonnade.privacy.accountant import ceiling
from colonnade.privacy.calibrate import binding, least_noise
from colonnade.privacy.noise import TAIL, laws, strips

TRUST = Trust(("a", "b", "c"), ("a", "b", "c"), 1)
DELTA = 1e-5
MOVED = {"l1": 30_000, "l2_squared": 10**8, "replace_l1": 60_000, "replace_l2_squared": 2 * 10**8}
ASKED = (50.0, 80.0, 150.0, 500.0)


def skellam(noise, tail=TAIL):
    shares = tuple((owner, Fraction(noise, 3)) for owner in TRUST.owners)
    return SkellamRelease(name="sums", shares=shares, dimension=9, tail=tail, theorem="moments-sensitivity", **MOVED)


def gaussian(noise, tail=TAIL):
    shares = tuple((owner, Fraction(noise, 3)) for owner in TRUST.owners)
    return DiscreteGaussianRelease(
        name="sums", shares=shares, dimension=9, tail=tail, theorem="moments-sensitivity", **MOVED
    )


def laplace(noise, tail=TAIL):
    return DiscreteLaplaceRelease(
        name="sums",
        shares=tuple((owner, Fraction(1, 2)) for owner in TRUST.owners),
        dimension=9,
        scale=noise,
        l1=3 * 10**8,
        replace_l1=6 * 10**8,
        tail=tail,
        theorem="functional-sensitivity",
    )


def sampled(noise, tail=TAIL):
    return Repeated(PoissonSampled(skellam(noise, tail), Fraction(1, 10), ("a", "b", "c")), 5)


LAWS = pytest.mark.parametrize("make", [skellam, gaussian, laplace, sampled], ids=lambda make: make.__name__)


@pytest.mark.parametrize(
    ("make", "asked"),
    [
        # So near the ceiling the search takes many steps for the discrete Gaussian.
        pytest.param(make, asked, marks=pytest.mark.slow if (make, asked) == (gaussian, 80.0) else ())
        for make in (skellam, gaussian, laplace, sampled)
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
