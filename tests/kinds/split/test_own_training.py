"""An encoder that learned from the table before the head: its training is in the task's events, and in nothing sent."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from colonnade import SplitClassifier
from colonnade.errors import StudyError
from colonnade.kinds.split import private_training
from colonnade.kinds.split.committee import Joint, embedded
from colonnade.kinds.split.encoders import encoder_from
from colonnade.kinds.split.own_training import moments_after, planned, train_own
from colonnade.kinds.split.private_training import PrivateTraining
from colonnade.privacy import Observer, epsilon, parse_budgets, views
from colonnade.privacy.events import innermost
from colonnade.protocols.moments import programs
from colonnade.protocols.roles import COORDINATOR
from colonnade.randomness import Stream
from tests.kinds.split import people
from tests.support import protocols as kit
from tests.support.errors import raises

TRUST = kit.trust_of(("left", "right"))
JOINT = Joint((("left", 2), ("right", 3)), "left", 3)


def rows_and_labels(rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 3, rows)
    return np.eye(3, 5)[labels] + rng.normal(size=(rows, 5)) / 4, labels


def learner() -> Any:
    return encoder_from({"kind": "linear", "width": 2}, 5, seed=1)


def plan(share: float = 0.3, budgets: Any = 1.0) -> PrivateTraining:
    return planned(JOINT, learner().parameters, 300, TRUST, parse_budgets(budgets, 1e-5, TRUST), epochs=10, share=share)


@pytest.mark.parametrize("budgets", [1.0, {"analyst": 1.0}, {"analyst": 8.0}])
def test_training_and_moments_together_keep_the_budgets(budgets: Any) -> None:
    allowed = parse_budgets(budgets, 1e-5, TRUST)
    training = plan(budgets=budgets)
    task, alone = moments_after(JOINT, training, TRUST, allowed), JOINT.moments(TRUST, allowed)
    assert task.events == (*task.opens, training.event)
    assert task.noise_std > alone.noise_std
    observers = [Observer.analyst()]
    if budgets == 1.0:
        observers += [Observer.coordinator(), Observer.party("left"), Observer.party("right")]
    for observer in observers:
        found = {e: epsilon(views(e, observer, TRUST), 1e-5).epsilon for e in (task.events, task.opens)}
        assert found[task.events] <= allowed[0].epsilon
        if observer != Observer.party("left"):  # who trains knows its own noise, and its own rows
            assert found[task.opens] < found[task.events]
    assert task.agreement["charged"] == [training.event.to_dict()]


def test_training_that_is_charged_is_not_opened_and_is_recorded() -> None:
    rows, labels = rows_and_labels()
    training = plan()
    task = moments_after(JOINT, training, TRUST, parse_budgets(1.0, 1e-5, TRUST), rows_at_most=1000)
    assert training.event not in task.openings
    encoder, other = learner(), encoder_from({"kind": "linear"}, 3, seed=2)
    train_own(encoder, rows, labels, JOINT, training, Stream(bytes(32)))
    held = {
        "left": JOINT.rows("left", kit.Rows(rows), encoder, labels),
        "right": JOINT.rows("right", kit.Rows(rows[:, :3]), other),
    }
    ended = kit.outcomes(task, kit.programs_of(programs, task, held))
    assert all(set(each.revealed) == set(task.events) for each in ended.values()), ended
    assert ended[COORDINATOR].result.opened.shape == (task.entries,)


def test_training_pulls_classes_apart_by_noised_sums_alone() -> None:
    rows, labels = rows_and_labels()
    before, after = learner(), learner()
    training = replace(plan(), epochs=30, noise=1)
    train_own(after, rows, labels, JOINT, training, Stream(bytes(32)))

    def apart(encoder: Any) -> float:
        found = embedded(encoder, rows)
        means = np.stack([found[labels == k].mean(axis=0) for k in range(3)])
        return float(means.var(axis=0).sum() / found.var(axis=0).sum())

    assert apart(after) > max(0.7, apart(before))
    again = learner()
    train_own(again, rows, labels, JOINT, training, Stream(bytes(32)))
    np.testing.assert_array_equal(again.arrays()["weights"], after.arrays()["weights"])


def test_one_person_more_moves_an_update_by_no_more_than_its_own_gradient() -> None:
    rows, labels = rows_and_labels(50)
    quiet = replace(plan(), epochs=1, noise=1)
    moved = []
    for size in (49, 50):
        encoder = learner()
        start = encoder.arrays()["weights"].copy()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("colonnade.kinds.split.private_training.draw", lambda p, count, s: np.zeros(count, np.int64))
            train_own(encoder, rows[:size], labels[:size], JOINT, quiet, Stream.fresh())
        moved.append(encoder.arrays()["weights"] - start)
    assert 0 < np.linalg.norm(moved[1] - moved[0]) <= quiet.clip * quiet.rate / quiet.rows


def test_a_number_can_be_learned_too() -> None:
    rows, labels = rows_and_labels()
    joint = Joint((("left", 2), ("right", 3)), "left", 0)
    encoder = learner()
    training = replace(plan(), epochs=30, noise=1)
    train_own(encoder, rows, labels / 2 - 0.5, joint, training, Stream(bytes(32)))
    assert abs(np.corrcoef(encoder.embed(rows)[:, 0], labels)[0, 1]) > 0.8


def test_what_the_theorem_does_not_cover_is_refused() -> None:
    rows, labels = rows_and_labels(20)
    training, allowed = plan(), parse_budgets(1.0, 1e-5, TRUST)
    with raises(StudyError, "ST320", "left"):
        moments_after(JOINT, replace(training, owner="right"), TRUST, allowed)
    with raises(StudyError, "ST321"):
        moments_after(JOINT, replace(training, batches=2), TRUST, allowed)
    with raises(StudyError, "ST321"):
        train_own(learner(), rows, labels, JOINT, replace(training, audience=("right",)), Stream.fresh())
    with raises(StudyError, "ST327"):
        train_own(learner(), rows, labels, JOINT, replace(training, parameters=3), Stream.fresh())
    with raises(StudyError, "ST319"):
        plan(share=1.0)


# --- in a whole fit


def _asked() -> SplitClassifier:
    return SplitClassifier(label="bank.default", epsilon=6.0, width=4, training="own", epochs=5, rows=200)


@pytest.mark.parametrize("in_one_place", [True, False])
def test_a_fit_draws_as_much_noise_as_is_charged(in_one_place: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither another plan nor a smaller variance reaches the training: every draw is that of the event."""
    drawn: list[tuple[Fraction, tuple[int, ...]]] = []
    real = private_training.discrete_gaussian

    def watched(variance: Fraction, shape: tuple[int, ...], stream: Stream) -> Any:
        drawn.append((variance, shape))
        return real(variance, shape, stream)

    monkeypatch.setattr(private_training, "discrete_gaussian", watched)
    task: Any = _asked().plan(people.roster("default"))
    if in_one_place:
        _asked().simulate(people.tables(200, "default"), people.roster("default"), Stream(bytes(32)), task=task)
    else:
        _asked().fit(people.federation(200, "default"))
    (event,) = task.charged
    once: Any = innermost(event)
    ((owner, variance),) = once.shares
    assert (owner, event.times) == ("bank", 5)
    assert drawn == [(variance, (once.dimension,))] * event.times


def test_a_fit_that_would_train_otherwise_than_is_charged_is_refused() -> None:
    roster, held = people.roster("default"), people.tables(200, "default")
    task: Any = _asked().plan(roster)
    (event,) = task.charged
    once: Any = innermost(event)
    fewer = replace(task, charged=(replace(event, times=4),))
    less = replace(task, charged=(replace(event, event=replace(once, shares=(("bank", once.shares[0][1] / 2),))),))
    for other in (fewer, less, replace(task, charged=())):
        with raises(StudyError, "ST226", "bank"):
            _asked().simulate(held, roster, Stream(bytes(32)), task=other)
