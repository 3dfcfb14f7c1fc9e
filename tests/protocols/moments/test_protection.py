from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import PrivacyError, StudyError
from colonnade.privacy import Observer, epsilon, views
from colonnade.protocols.moments.protection import protection, with_own_budgets
from tests.support.errors import refused
from tests.support.protocols import LAWS, uneven_moments_task as make_task

OWNERS = ("bank", "shop", "clinic")


DELTA = 1e-6


@pytest.mark.parametrize("law", LAWS)
def test_a_partys_columns_cost_less_than_a_person_and_grow_with_their_number(law):
    task = make_task(law, noise=200_000 if law == "discrete-laplace" else 3 * 10**10)
    found = protection(task, DELTA)
    whole = epsilon(views(task.events, Observer.coordinator(), task.trust), DELTA).epsilon
    assert 0 < found["bank"] < found["shop"] < found["clinic"] <= whole < math.inf


def test_laplace_protection_is_the_l1_of_the_partys_columns_over_the_scale():
    """A single coordinate of radius R beside columns of L1 norm S moves the products by 2 R S, not its own square."""
    task = make_task("discrete-laplace", noise=200_000)
    found = protection(task, DELTA)
    moved = 2 * 64 * (task.limits.radii(["shop", "clinic"]).total + 32)
    assert task.limits.changed_l1(["bank"]) == moved
    assert found["bank"] == pytest.approx(moved / 200_000, rel=1e-4)
    assert found["bank"] <= moved / 200_000 * (1 + 1e-9)
    # What others know of the noise does not matter here.
    assert protection(replace(task, known=2), DELTA)["shop"] == pytest.approx(found["shop"], rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.tuples(*[st.floats(0.05, 5)] * 3), st.sampled_from([(1, 3, 6), (1, 1, 1), (4, 2, 3)]))
def test_bottom_up_laplace_noise_keeps_every_partys_epsilon(wanted, widths):
    epsilons = dict(zip(OWNERS, wanted, strict=True))
    task = with_own_budgets(make_task("discrete-laplace", widths), epsilons, DELTA)
    found = protection(task, DELTA)
    assert task.noise == max(task.own_noise)
    for owner, scale in zip(OWNERS, task.own_noise, strict=True):
        assert found[owner] <= epsilons[owner]
        moved = task.limits.changed_l1([owner])
        assert Fraction(moved, scale) <= Fraction(epsilons[owner])
        assert scale == 1 or Fraction(moved, scale - 1) > Fraction(epsilons[owner])


def test_a_party_that_asks_for_less_gets_less_noise_on_its_own_entries():
    task = with_own_budgets(make_task("discrete-laplace", (1, 1, 1)), {"bank": 1, "shop": 0.1, "clinic": 2}, DELTA)
    bank, shop, clinic = task.own_noise
    assert clinic < bank < shop
    assert [event.scale for event in task.events] == [clinic, bank, shop]
    found = protection(task, DELTA)
    # The largest scale is on all of the shop's entries, so its promise is kept to the letter.
    assert found["shop"] == pytest.approx(0.1, rel=1e-3)
    # The bank's entries with the shop have more noise than it asked for.
    assert found["bank"] < 0.9


@pytest.mark.parametrize("law", ["skellam", "discrete-gaussian"])
def test_one_noise_for_all_is_the_least_that_keeps_every_partys_epsilon(law):
    wanted = {"bank": 0.2, "shop": 1.0, "clinic": 3.0}
    task = with_own_budgets(make_task(law), wanted, DELTA)
    found = protection(task, DELTA)
    assert all(found[owner] <= wanted[owner] for owner in OWNERS)
    less = replace(task, noise=int(task.noise * 0.9999) // 3 * 3)
    assert any(protection(less, DELTA)[owner] > wanted[owner] for owner in OWNERS)
    assert task.own_noise == ()


def test_the_square_decides_between_the_two_cases():
    """A party with little beside the others: 8 R S; one with more than the others: 2 (R + S)^2."""
    small, large = make_task("skellam", (1, 3, 6)), make_task("skellam", (30, 1, 1))
    limits = small.limits
    own, rest = limits.norms_squared["bank"], limits.norm_squared - limits.norms_squared["bank"]
    assert limits.changed(["bank"])[1] == 8 * own * rest
    assert large.limits.changed(["bank"])[1] == 2 * large.norm_squared**2


def test_everybody_must_name_an_epsilon():
    task = make_task("discrete-laplace")
    for wanted, error, code in (
        ({"bank": 1.0}, StudyError, "ST504"),
        ({"bank": 1.0, "shop": 1.0, "clinic": 1.0, "stranger": 1.0}, StudyError, "ST504"),
        ({"bank": 1.0, "shop": 0.0, "clinic": 1.0}, PrivacyError, "PR065"),
    ):
        refused(error, code, with_own_budgets, task, wanted, DELTA)
