"""Private training: sums of clipped gradients, what they are charged, and that nothing else reaches an encoder."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from colonnade.errors import CapacityError, StudyError
from colonnade.kinds.split.adaptive_task import embeddings_mu_squared
from colonnade.kinds.split.committee_head import PrivateTraining, draw_noise, slopes_of, train_own
from colonnade.kinds.split.encoders import RowEncoder, encoder_from
from colonnade.kinds.split.private_training import (
    cut_rows,
    split_radius,
    sum_clipped_gradients,
    sum_clipped_products,
)
from colonnade.privacy import Observer, Trust, parse_budgets
from colonnade.privacy.accountant import epsilon
from colonnade.privacy.events import views
from colonnade.privacy.releases import RepeatedRelease
from colonnade.testing import seeded
from tests.kinds.split.embeddings.learners import Listed
from tests.support.errors import refused

RADIUS = 1 << 30
TRUST = Trust(("bank", "shop"), (), 0)
Matrix = NDArray[np.float64]
numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)


def summed(learner: Listed, clip: float, slopes: Matrix | None = None) -> NDArray[np.int64]:
    places = np.arange(len(learner.rows))
    return sum_clipped_gradients(
        learner, places, np.zeros((len(places), 1)) if slopes is None else slopes, clip, RADIUS
    )


# --- sums of gradients: each person's part is within the radius, whatever the encoder gave


def squared(whole: Matrix) -> int:
    return sum(int(number) ** 2 for number in whole.tolist())


@given(st.lists(numbers, min_size=1, max_size=6), st.sampled_from([1, 2, 7, 1 << 15, (1 << 20) + 1, 1 << 30]))
@settings(max_examples=100, deadline=None)
def test_no_row_is_ever_longer_than_the_radius(row: list[float], radius: int) -> None:
    for scale in (1.0, float(radius)):
        with np.errstate(over="ignore"):
            found = cut_rows(np.array([row]) * scale, radius)[0]
        assert (found == np.trunc(found)).all()
        assert squared(found) <= radius**2


@given(
    st.lists(numbers, min_size=2, max_size=4),
    st.lists(numbers, min_size=1, max_size=3),
    st.sampled_from([1e-3, 1.0, 50.0]),
    st.sampled_from([1, 2, 9, (1 << 20) + 1, 1 << 30]),
)
@settings(max_examples=100, deadline=None)
def test_no_product_is_ever_longer_than_the_radius(a: list[float], b: list[float], clip: float, radius: int) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        found = sum_clipped_products(np.array([a]), np.array([b]), clip, radius)
    assert squared(found) <= radius**2


def test_clipped_rows_reach_the_radius_and_none_goes_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is not merely kept: long rows are as long as it allows, short ones keep their length."""
    rows = np.random.default_rng(0).standard_normal((200, 50))
    assert np.linalg.norm(cut_rows(rows * 1e12, RADIUS), axis=1).min() > 0.9999999 * RADIUS
    short = rows / 20 / np.linalg.norm(rows, axis=1, keepdims=True) * RADIUS
    assert np.abs(cut_rows(short, RADIUS) - short).max() < 1
    products = [sum_clipped_products(row[None], 1e9 * row[None, :3], 1.0, RADIUS) for row in rows[:20]]
    assert min(squared(each) for each in products) > (0.999 * RADIUS) ** 2
    monkeypatch.setattr("colonnade.kinds.split.private_training._INSIDE_GRADIENT", 1 + 2.0**-26)
    found = cut_rows(np.array([[3.0 * RADIUS], [0.5 * RADIUS]]), RADIUS)
    assert found.tolist() == [[0.0], [0.5 * RADIUS]]  # floats that promise too much cannot break the bound
    for radius in (1, 2, 3, 1000, 1 << 20, 1 << 29, 1 << 30):
        ours, theirs = split_radius(radius)
        assert min(ours, theirs) >= 1
        assert radius - ours < ours * theirs <= radius


def test_sums_are_those_of_clipped_gradients_and_products_as_if_they_were_listed() -> None:
    rng, clip = np.random.default_rng(1), 3.0
    a, b = rng.standard_normal((30, 5)), rng.standard_normal((30, 4))
    listed = np.einsum("ni,nj->nij", a, b).reshape(30, 20)
    whole, products = summed(Listed(listed), clip), summed(Listed(a, products=4), clip, b)
    expected = (listed * np.minimum(1, clip / np.linalg.norm(listed, axis=1, keepdims=True))).sum(axis=0)
    assert np.abs(whole * clip / RADIUS - expected).max() < 1e-6
    assert np.abs(whole - products).max() * clip / RADIUS < 30 * 3 * clip * 2.0**-14
    assert not np.array_equal(whole, products)


def test_what_is_not_finite_counts_as_zero_and_harms_nobody_else() -> None:
    gradients = np.random.default_rng(3).standard_normal((9, 4))
    spoilt = gradients.copy()
    spoilt[2, 1], spoilt[5] = np.nan, [np.inf, 1e305, -1e305, 0]
    kept = np.delete(gradients, [2, 5], axis=0)
    for products in (0, 1):
        found, due = (summed(Listed(rows, products), 1.0, np.ones((len(rows), 1))) for rows in (spoilt, kept))
        assert np.array_equal(found, due)


def test_sums_that_floats_cannot_hold_are_refused() -> None:
    refused(CapacityError, "CA017", summed, Listed(np.zeros((9, 2)), parameters=(1 << 22) + 1), 1.0)
    refused(
        CapacityError,
        "CA017",
        "8,388,608",
        sum_clipped_gradients,
        Listed(np.zeros((1, 2))),
        np.zeros(1 << 23, dtype=np.int64),
        np.zeros((1, 1)),
        1.0,
        RADIUS,
    )


# --- training


def linear() -> Any:
    """An encoder of rows of four columns."""
    return encoder_from({"kind": "linear", "width": 3}, 4, seed=0)


def test_it_costs_as_many_releases_as_epochs_and_keeps_its_budget() -> None:
    plan = PrivateTraining("bank", 100, 12, 7, 50 << 20)
    once = PrivateTraining("bank", 100, 12, 1, 50 << 20).event
    assert (type(plan.event), plan.event.times, plan.event.event) == (RepeatedRelease, 7, once)
    assert once.dimension == 12
    assert float(embeddings_mu_squared(7, math.inf, math.sqrt(50))) == pytest.approx(7 / 50)
    kept = plan.calibrate(TRUST, parse_budgets(1.0, 1e-5, TRUST))
    assert 0.99 < epsilon(views(kept.events, Observer.party("shop"), TRUST), 1e-5).epsilon <= 1.0
    assert 0.26 < math.sqrt(7 * (1 << 20) / kept.noise) < 0.28  # mu of epsilon 1 and delta 1e-5


def test_noise_has_the_variance_of_the_plan_and_moves_an_encoder_that_no_row_pulls() -> None:
    plan = PrivateTraining("bank", 10, 3, 1, 3 << 19)
    drawn = draw_noise(plan, 20_000, seeded(5)).astype(float)
    assert plan.variance == 6 << 60
    assert abs((drawn**2).mean() / plan.variance - 1) < 0.06  # six deviations
    encoder, plan = linear(), PrivateTraining("bank", 50, 15, 1)
    before = encoder.arrays()["offsets"]
    train_own(encoder, np.zeros((50, 4)), np.full(50, -1), 3, plan, seeded(2))  # nobody's classes
    noise = draw_noise(plan, encoder.parameters, seeded(2)) / (1 << 30) / 50
    assert np.allclose(encoder.arrays()["offsets"] - before, -noise[12:], atol=1e-12)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epochs": 0}, ("ST323", "10,000")),
        ({"parameters": 0}, "ST324"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(change: dict[str, Any], said: str) -> None:
    refused(StudyError, said, PrivateTraining, **{"owner": "bank", "rows": 10, "parameters": 3, "epochs": 2} | change)


def test_without_a_person_one_batch_moves_by_that_persons_part() -> None:
    rows, sums = np.random.default_rng(0).uniform(0, 1, (9, 4)), []
    for present in (9, 8):
        encoder, plan = linear(), PrivateTraining("bank", 10, 15, 1)
        before = encoder.arrays()["offsets"]
        train_own(encoder, rows[:present], np.zeros(present, dtype=np.int64), 3, plan, seeded(0))
        sums.append((before - encoder.arrays()["offsets"]) * 10)
    assert 0 < np.linalg.norm(sums[0] - sums[1]) <= 1


@given(st.integers(0, 11), st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_without_a_person_sums_move_by_no_more_than_the_event_says(person: int, seed: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((12, 2))
    sums = []
    for table in (rows, np.delete(rows, person, axis=0)):
        learner = RowEncoder(encoder_from({"kind": "linear"}, 2), table)
        sums.append(sum_clipped_gradients(learner, np.arange(len(table)), 9 * table, 1.0, 1 << 30))
    moved = sum(int(step) ** 2 for step in sums[0] - sums[1])
    event: Any = PrivateTraining("bank", 12, 6, 1).event
    assert moved <= event.l2_squared == 1 << 60
    assert event.replace_l2_squared == 4 << 60


@pytest.mark.parametrize("classes", [0, 3])
def test_the_slope_of_a_person_follows_from_its_own_embedding_and_label(classes: int) -> None:
    rng = np.random.default_rng(0)
    found, labels = rng.uniform(0, 1, (8, 3)), rng.integers(0, 3, 8) if classes else rng.uniform(-1, 1, 8)
    together = slopes_of(found, labels, classes)
    apart = [slopes_of(found[j : j + 1], labels[j : j + 1], classes) for j in range(8)]
    assert np.allclose(together, np.vstack(apart))


def test_a_person_without_numbers_is_not_refused() -> None:
    """A refusal that depends on one person's row would tell something about it."""
    rows, encoder = np.random.default_rng(0).uniform(0, 1, (8, 4)), linear()
    rows[2, 1] = np.nan
    train_own(encoder, rows, np.zeros(8, dtype=np.int64), 3, PrivateTraining("bank", 8, 15, 5), seeded(0))
    assert np.isfinite(encoder.embed(np.delete(rows, 2, axis=0))).all()
