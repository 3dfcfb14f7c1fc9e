"""What a day of scores on demand is charged as."""

from __future__ import annotations

from fractions import Fraction

import pytest

from colonnade.privacy import NonPrivate, Observer, PostProcessing, Repeated, SkellamRelease, Trust, epsilon, views
from colonnade.standing.scores.allowance import days_worth

TRUST = Trust(("bank", "shop", "clinic"), ("bank", "shop", "clinic"), 1)
SCORES = SkellamRelease(
    "scores", (("shop", Fraction(10**8)), ("clinic", Fraction(10**8))), 1, 5000, 25 * 10**6, 5000, 25 * 10**6,
    0.0, "joint-prediction", "", ("bank",), ("shop", "clinic"),
)  # fmt: skip


@pytest.mark.parametrize("times", [1, 2, 10])
def test_a_day_costs_what_as_many_questions_about_one_person_cost(times: int) -> None:
    day = days_worth((SCORES,), times)
    assert day == ((SCORES,) if times == 1 else (Repeated(SCORES, times),))
    for who in ("bank", "bank+coordinator"):
        seen = Observer.parse(who)
        asked = epsilon(views([SCORES] * times, seen, TRUST), 1e-6).epsilon
        assert epsilon(views(day, seen, TRUST), 1e-6).epsilon == pytest.approx(asked, rel=1e-9)
        assert 0 < asked < float("inf")


def test_what_promises_nothing_and_what_is_free_stay_as_they_are() -> None:
    events = (
        NonPrivate("exact scores", audience=("bank",)),
        PostProcessing("opened to shop alone", audience=("shop",)),
    )
    assert days_worth(events, 7) == events
