"""What an exchange tells about one party's columns, against the exact curve of a Gaussian of that size."""

from __future__ import annotations

from fractions import Fraction

import pytest

from colonnade.kinds.glm.guarantees import Guarantees, protection
from colonnade.privacy import DiscreteGaussianRelease, Statement, Trust
from colonnade.privacy.routes.gaussian import gaussian_epsilon

APART = Trust(("bank", "shop", "clinic"), (), 0)
DELTA = 1e-6


def _told(name: str, owner: str, square: int, variance: int) -> DiscreteGaussianRelease:
    others = tuple(each for each in APART.owners if each != owner)
    shares = ((owner, Fraction(variance)),)
    return DiscreteGaussianRelease(
        f"{name} of {owner}", shares, 5, square, square, square, square, 0.0, "alternating-fits", "", others, (owner,)
    )


def test_all_that_leaves_a_party_costs_what_its_releases_cost_together() -> None:
    square, messages, weights = 10**12, 4 * 10**12, 10**12
    events = [_told("slopes", "bank", square, messages), _told("scores", "shop", square, messages)]
    events.append(_told("weights", "shop", square, weights))
    statement = Statement.of(events, APART, DELTA)
    found = protection(statement)
    assert found["bank"] == pytest.approx(gaussian_epsilon((1 / 4) ** 0.5, DELTA), rel=1e-6)
    assert found["shop"] == pytest.approx(gaussian_epsilon((1 / 4 + 1) ** 0.5, DELTA), rel=1e-6)
    assert found["clinic"] == 0
    rows = {(row.what, row.observer): row.epsilon for row in Guarantees.of(statement)}
    assert rows["messages of shop", "anybody but shop"] == pytest.approx(found["bank"])
    assert rows["messages and released weights of shop", "anybody, the analyst too"] == found["shop"]
    everything = gaussian_epsilon((1 / 4 + 1 / 4 + 1) ** 0.5, DELTA)
    assert rows["all messages", "eavesdropper on every channel"] == pytest.approx(everything, rel=1e-6)
