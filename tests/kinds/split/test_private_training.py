"""Private training: what it is charged, what it learns, and that nothing but noised integers reaches the encoder."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.split.embeddings.gradients import whole_sum
from colonnade.kinds.split.encoders import OverRows, encoder_from
from colonnade.kinds.split.private_training import PrivateTraining, draw, train
from colonnade.kinds.split.sensitivity import embeddings_mu_squared
from colonnade.privacy import Observer, Trust, parse_budgets
from colonnade.privacy.accountant import epsilon
from colonnade.privacy.events import views
from colonnade.privacy.releases import Repeated
from tests.support.errors import raises

TRUST = Trust(("bank", "shop"), (), 0)
Matrix = NDArray[np.float64]


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from colonnade.testing.seeded import seeded


def two_classes(rows: int = 4000) -> tuple[Matrix, NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, rows)
    return rng.standard_normal((rows, 6)) * 0.4 + 0.4 * np.where(labels, 1, -1)[:, None], labels


def plan_for(learner: Any, rows: int, **more: Any) -> PrivateTraining:
    return PrivateTraining("bank", rows, learner.parameters, **({"epochs": 5} | more))


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "linear", "width": 1, "over": {"kind": "cosine", "width": 60}},
        {"kind": "mlp", "width": 1, "hidden": [8]},
    ],
    ids=["linear", "mlp"],
)
def test_an_encoder_learns_under_noise(spec: dict[str, Any]) -> None:
    if spec["kind"] == "mlp":
        pytest.importorskip("torch")
    rows, labels = two_classes()
    learner = OverRows(encoder_from(spec, 6, seed=0), rows)
    points = np.where(labels, 1.0, -1.0)[:, None]
    plan = plan_for(learner, len(rows), epochs=10, batches=2, rate=0.5)
    plan = plan.calibrated(TRUST, parse_budgets(2.0, 1e-5, TRUST))
    train(learner, lambda places, found: found - points[places], plan, seeded(1))
    right = np.sign(learner.embed(np.arange(len(rows)))) == points
    assert right.mean() > 0.9


def test_it_costs_as_many_releases_as_epochs_and_keeps_its_budget() -> None:
    plan = PrivateTraining("bank", 100, 12, 7, batches=4, noise=50 << 20)
    assert isinstance(plan.event, Repeated)
    assert plan.event.times == 7
    once = PrivateTraining("bank", 100, 12, 1, batches=4, noise=50 << 20).event
    assert plan.event.event == once
    assert once.dimension == 48  # type: ignore[union-attr]
    assert float(embeddings_mu_squared(7, math.inf, math.sqrt(50))) == pytest.approx(7 / 50)
    kept = plan.calibrated(TRUST, parse_budgets(1.0, 1e-5, TRUST))
    seen = views(kept.events, Observer.party("shop"), TRUST)
    assert 0.99 < epsilon(seen, 1e-5).epsilon <= 1.0
    mu = math.sqrt(7 * (1 << 20) / kept.noise)
    assert 0.26 < mu < 0.28  # of Gaussian privacy with epsilon 1 and delta 1e-5


@given(st.integers(0, 9), st.lists(st.floats(-50, 50), min_size=3, max_size=3), st.sampled_from([0.01, 1.0, 30.0]))
@settings(max_examples=60, deadline=None)
def test_replacing_a_person_moves_a_sum_by_at_most_two_radii(person: int, row: list[float], clip: float) -> None:
    rows = np.random.default_rng(0).standard_normal((10, 3))
    other = rows.copy()
    other[person] = row
    for spec in ({"kind": "linear", "width": 2}, {"kind": "linear", "width": 2, "over": {"kind": "linear"}}):
        encoder, places = encoder_from(spec, 3, seed=1), np.arange(10)
        sums = []
        for table in (rows, other):
            learner = OverRows(encoder, table)
            sums.append(whole_sum(learner, places, 5 * learner.embed(places) + 1, clip, 1 << 30))
        assert sum(int(step) ** 2 for step in sums[0] - sums[1]) <= 4 << 60


def test_opposite_gradients_reach_the_bound() -> None:
    rows = np.array([[3.0, 4.0]])
    sums = [
        whole_sum(OverRows(encoder_from({"kind": "linear"}, 2), rows), np.arange(1), sign * rows, 1.0, 1 << 30)
        for sign in (1.0, -1.0)
    ]
    assert sum(int(step) ** 2 for step in sums[0] - sums[1]) > 0.999**2 * (4 << 60)


def test_noise_has_the_variance_of_the_plan() -> None:
    plan = PrivateTraining("bank", 10, 3, 1, noise=3 << 19)
    drawn = draw(plan, 20_000, seeded(5)).astype(float)
    assert plan.variance == 6 << 60
    assert abs((drawn**2).mean() / plan.variance - 1) < 0.06  # six deviations


def test_without_rows_that_pull_only_noise_moves_the_encoder() -> None:
    rows = np.zeros((50, 4))
    learner = OverRows(encoder_from({"kind": "linear", "width": 3}, 4, seed=0), rows)
    before = learner.encoder.arrays()["offsets"].copy()
    plan = plan_for(learner, 50, epochs=1, momentum=0.0, rate=1.0)
    train(learner, lambda places, found: np.zeros_like(found), plan, seeded(2))
    noise = draw(plan, learner.parameters, seeded(2)) * (plan.clip / (1 << 30)) / 50
    assert np.allclose(learner.encoder.arrays()["offsets"] - before, -noise[12:], atol=1e-12)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batches": 11}, ("ST322", "11")),
        ({"epochs": 0}, ("ST323", "10,000")),
        ({"parameters": 0}, "ST324"),
        ({"clip": 0.0}, "ST325"),
        ({"rate": math.inf}, "ST325"),
        ({"momentum": 1.0}, "ST325"),
        ({"noise": 0}, "ST325"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(change: dict[str, Any], said: str) -> None:
    with raises(StudyError, said):
        PrivateTraining(**({"owner": "bank", "rows": 10, "parameters": 3, "epochs": 2} | change))


def test_a_plan_for_another_encoder_is_refused() -> None:
    learner = OverRows(encoder_from({"kind": "linear", "width": 3}, 4), np.zeros((5, 4)))
    with raises(StudyError, "ST327", "15", "3"):
        train(learner, lambda places, found: found, PrivateTraining("bank", 5, 3, 1), seeded(0))


def test_without_a_person_one_batch_moves_by_that_persons_part() -> None:
    rows = np.random.default_rng(0).uniform(0, 1, (9, 4))
    sums = []
    for present in (9, 8):
        learner = OverRows(encoder_from({"kind": "linear", "width": 3}, 4, seed=0), rows[:present])
        before = learner.encoder.arrays()["offsets"].copy()
        plan = PrivateTraining("bank", 10, learner.parameters, 1, clip=0.5)
        train(learner, lambda places, found: np.ones_like(found), plan, seeded(0), rows=present)
        sums.append((before - learner.encoder.arrays()["offsets"]) * 10)
    assert 0 < np.linalg.norm(sums[0] - sums[1]) <= 0.5
    several = PrivateTraining("bank", 10, learner.parameters, 1, 2)
    with raises(StudyError, "ST326"):
        train(learner, lambda places, found: found, several, seeded(0), rows=8)


@given(st.integers(1, 5), st.integers(0, 11), st.integers(0, 5))
@settings(max_examples=40, deadline=None)
def test_without_a_person_sums_move_by_no_more_than_the_event_says(batches: int, person: int, seed: int) -> None:
    """Behind the person everybody changes the batch, and the event says how far that can move the sums."""
    rows = np.random.default_rng(seed).standard_normal((12, 2))
    moved = 0
    for batch in range(batches):
        sums = []
        for table in (rows, np.delete(rows, person, axis=0)):
            learner = OverRows(encoder_from({"kind": "linear"}, 2), table)
            places = np.arange(batch, len(table), batches)
            sums.append(whole_sum(learner, places, 9 * table[places], 1.0, 1 << 30))
        moved += sum(int(step) ** 2 for step in sums[0] - sums[1])
    event: Any = PrivateTraining("bank", 12, 6, 1, batches).event
    assert moved <= event.l2_squared
    assert event.replace_l2_squared == 4 << 60
    assert (event.l2_squared == 1 << 60) == (batches == 1)


def test_slopes_that_mix_people_are_refused() -> None:
    learner = OverRows(encoder_from({"kind": "linear", "width": 3}, 4), np.random.default_rng(0).uniform(0, 1, (8, 4)))
    plan = plan_for(learner, 8)
    for wrong in (lambda _, found: found - found.mean(axis=0), lambda _, found: found[:, :2]):
        with raises(StudyError, "ST328"):
            train(learner, wrong, plan, seeded(0))


def test_a_person_without_numbers_stops_no_training() -> None:
    """A refusal that depends on one person's row would tell something about it."""
    learner = OverRows(encoder_from({"kind": "linear", "width": 3}, 4), np.random.default_rng(0).uniform(0, 1, (8, 4)))

    def odd(places: NDArray[np.int64], found: Matrix) -> Matrix:
        return np.where((places == 2)[:, None], np.nan, found)

    train(learner, odd, plan_for(learner, 8), seeded(0))
    assert np.isfinite(learner.embed(np.arange(8))).all()
