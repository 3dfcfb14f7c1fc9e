"""What must hold for every list of events: monotone, order-free, the same after writing and reading."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings, strategies as st

from colonnade.privacy import accountant as acc
from colonnade.privacy.events import Event, from_json, views
from colonnade.privacy.observers import Observer, Trust
from colonnade.privacy.releases import (
    DiscreteGaussianRelease,
    DiscreteLaplaceRelease,
    GaussianRelease,
    PoissonSampled,
    RandomisedResponse,
    Repeated,
    SkellamRelease,
)
from colonnade.privacy.statement import Statement

OWNERS = ("bank", "shop", "clinic", "insurer", "lab")
TRUST = Trust(OWNERS, OWNERS, 2)
SQUARED = (SkellamRelease, DiscreteGaussianRelease, GaussianRelease)
CHAIN = ("analyst", "coordinator", "bank", "bank+coordinator", "bank+shop", "bank+coordinator+shop")


def squared(kind: type[Any], ratio: Fraction, unit: int, **more: Any) -> Any:
    """``ratio``: the noise's variance over the squared sensitivity."""
    total = ratio * unit * unit * (Fraction(1, 2) if kind is SkellamRelease else 1)
    shares = tuple((owner, total / len(OWNERS)) for owner in OWNERS)
    return kind("x", shares, 3, 2 * unit, unit * unit, 4 * unit, 4 * unit * unit, **more)


def laplace(scale: Fraction, unit: int) -> DiscreteLaplaceRelease:
    return DiscreteLaplaceRelease("y", tuple((owner, Fraction(1, 3)) for owner in OWNERS), 3, scale, unit, 2 * unit)


ratios = st.fractions(Fraction(1, 2), Fraction(400), max_denominator=20)
units = st.sampled_from([1000, 10**6, 10**12])
bases = st.one_of(
    st.builds(squared, st.sampled_from(SQUARED), ratios, units),
    st.builds(laplace, st.fractions(Fraction(1000), Fraction(10**5), max_denominator=7), st.just(1000)),
)
sampled = st.builds(
    PoissonSampled,
    bases,
    st.fractions(Fraction(1, 500), Fraction(1), max_denominator=500),
    st.sampled_from([(), OWNERS, ("shop",)]),
)
answers = st.builds(
    RandomisedResponse,
    st.just("labels"),
    st.fractions(Fraction(1), Fraction(5), max_denominator=50),
    st.integers(2, 5),
    st.just("lab"),
    audience=st.just(("bank", "shop")),
)
single = st.one_of(bases, sampled, answers)
events = st.one_of(single, st.builds(Repeated, single, st.integers(1, 300)))
observers = st.sampled_from(["analyst", "coordinator", "bank", "shop", "lab", "bank+shop", "coordinator+lab"])
deltas = st.sampled_from([1e-3, 1e-5, 1e-7])


def cost(made: list[Event], who: str, delta: float, quick: bool = False) -> float:
    return acc.epsilon(views(made, Observer.parse(who), TRUST), delta, quick=quick).epsilon


def not_above(low: float, high: float) -> bool:
    # A loss distribution is right to about one part in a thousand, and its grid moves with what is asked.
    return low <= high * (1 + 2e-3) + 1e-6


PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # shrinking would take minutes
few = settings(max_examples=12, deadline=None, phases=PHASES)


@few
@given(st.lists(events, min_size=1, max_size=4), observers, deltas)
def test_writing_and_reading_changes_nothing(made: list[Event], who: str, delta: float) -> None:
    again = [from_json(event.to_json()) for event in made]
    assert again == made
    assert cost(again, who, delta, quick=True) == cost(made, who, delta, quick=True)


@few
@given(st.lists(events, min_size=2, max_size=4), observers, deltas, st.randoms())
def test_the_order_does_not_matter(made: list[Event], who: str, delta: float, chance: Any) -> None:
    mixed = list(made)
    chance.shuffle(mixed)
    assert cost(mixed, who, delta) == pytest.approx(cost(made, who, delta), rel=1e-6, abs=1e-9)


@few
@given(st.lists(events, min_size=1, max_size=3), events, observers, deltas)
def test_one_more_release_never_costs_less(made: list[Event], more: Event, who: str, delta: float) -> None:
    assert not_above(cost(made, who, delta), cost([*made, more], who, delta))


@few
@given(st.lists(events, min_size=1, max_size=3), observers)
def test_a_smaller_delta_never_costs_less(made: list[Event], who: str) -> None:
    found = [cost(made, who, delta) for delta in (1e-2, 1e-4, 1e-6, 1e-9)]
    assert all(not_above(low, high) for low, high in pairwise(found))


@few
@given(st.sampled_from(SQUARED), ratios, units, st.fractions(Fraction(1, 50), Fraction(1), max_denominator=50), deltas)
def test_more_noise_never_costs_more(kind: type[Any], ratio: Fraction, unit: int, rate: Fraction, delta: float) -> None:
    for who in ("analyst", "coordinator", "bank"):
        made = [
            cost([Repeated(PoissonSampled(squared(kind, r, unit), rate, OWNERS), 30)], who, delta)
            for r in (ratio, ratio * 2, ratio * 8)
        ]
        assert all(not_above(high, low) for low, high in pairwise(made))


@settings(max_examples=5, deadline=None, phases=PHASES)
@given(st.sampled_from(SQUARED), ratios, units, st.integers(1, 50), st.sampled_from([(), ("bank",), OWNERS]), deltas)
def test_whoever_knows_more_learns_no_less(
    kind: type[Any], ratio: Fraction, unit: int, times: int, coins: tuple[str, ...], delta: float
) -> None:
    made: list[Event] = [Repeated(PoissonSampled(squared(kind, ratio, unit), Fraction(1, 10), coins), times)]
    for smaller in CHAIN:
        for larger in CHAIN:
            if set(smaller.split("+")) < set(larger.split("+")):
                assert not_above(cost(made, smaller, delta), cost(made, larger, delta)), (smaller, larger)
    assert not_above(cost(made, "analyst", delta), cost(made, "coordinator", delta))
    known = [Repeated(PoissonSampled(squared(kind, ratio, unit), Fraction(1, 10), (*OWNERS, "coordinator")), times)]
    for who in ("coordinator", "shop"):
        assert not_above(cost(made, who, delta), cost(known, who, delta))


@few
@given(st.lists(events, min_size=1, max_size=3), observers)
def test_the_profile_and_epsilon_agree(made: list[Event], who: str) -> None:
    seen = views(made, Observer.parse(who), TRUST)
    grid = np.array([0.5, 1.0, 2.0, 5.0])
    curve = acc.profile(seen, grid)
    assert np.all((curve >= 0) & (curve <= 1))
    for epsilon, delta in zip(grid, curve, strict=True):
        if 1e-9 < delta < 0.1:
            assert not_above(acc.epsilon(seen, float(delta)).epsilon, float(epsilon))


@few
@given(st.lists(events, min_size=1, max_size=3), deltas)
def test_quick_answers_are_never_below_the_others(made: list[Event], delta: float) -> None:
    for who in ("analyst", "coordinator", "bank"):
        assert not_above(cost(made, who, delta), cost(made, who, delta, quick=True))


@settings(max_examples=15, deadline=None)
@given(st.lists(bases, min_size=1, max_size=2), deltas)
def test_a_statement_reads_back_the_same(made: list[Event], delta: float) -> None:
    stated = Statement.of(made, TRUST, delta)
    assert Statement.from_dict(stated.to_dict()) == stated


def test_coalitions_above_the_threshold_are_told_so() -> None:
    release = squared(SkellamRelease, Fraction(100), 10**6)
    seen = views([release], Observer.parse("bank+shop+lab"), TRUST)
    bound = acc.epsilon(seen, 1e-5)
    assert math.isinf(bound.epsilon)
    assert "more than the threshold 2" in bound.reason
    assert math.isfinite(acc.epsilon(views([release], Observer.parse("bank+shop"), TRUST), 1e-5).epsilon)


def test_composition_over_studies_is_not_a_sum_of_epsilons() -> None:
    release = squared(SkellamRelease, Fraction(100), 10**6)
    one = cost([release], "bank", 1e-5)
    many = cost([replace(release, name=f"study {k}") for k in range(25)], "bank", 1e-5)
    assert 5 * one < many < 9 * one
