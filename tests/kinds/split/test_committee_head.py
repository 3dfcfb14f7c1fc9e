"""A head that a committee learns: what parties bring, training before it, and that shares give what rows would."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from colonnade import SplitClassifier
from colonnade.errors import DataError, ProtocolError, StudyError
from colonnade.kinds.pca.directions import programs as directions
from colonnade.kinds.pca.directions.task import Directions
from colonnade.kinds.split import private_training
from colonnade.kinds.split.committee import Joint, embedded, of_one_length, simulate, suggested_width
from colonnade.kinds.split.encoders import encoder_from
from colonnade.kinds.split.own_training import moments_after, planned, train_own
from colonnade.kinds.split.private_training import PrivateTraining
from colonnade.privacy import Observer, epsilon, parse_budgets, views
from colonnade.privacy.events import innermost
from colonnade.protocols.moments import programs
from colonnade.protocols.moments.integers import OwnBlock
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.randomness import Stream
from colonnade.tables.places import Places
from tests.kinds.split import people as both
from tests.support import protocols as kit
from tests.support.errors import raises, refused

TRUST = kit.trust_of(("left", "right"))


def people(rows: int = 400, seed: int = 3) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Two parties' rows, around a place for each of three classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, rows)
    places = {"left": 2 * np.eye(3, 4), "right": 2 * np.eye(3, 5)}
    return {name: here[labels] + rng.normal(size=(rows, here.shape[1])) for name, here in places.items()}, labels


def encoders() -> dict[str, Any]:
    return {
        "left": encoder_from({"kind": "cosine", "width": 12}, 4, seed=1),
        "right": encoder_from({"kind": "linear", "width": 3}, 5, seed=2),
    }


def joint_of(classes: int = 3, **changes: Any) -> Joint:
    return replace(Joint((("left", 12), ("right", 3)), "left", classes), **changes)


def brought(joint: Joint, rows: dict[str, np.ndarray], labels: np.ndarray) -> dict[str, Any]:
    made, held = encoders(), {}
    for name, values in rows.items():
        held[name] = joint.rows(name, kit.Rows(values), made[name], labels if name == joint.label_party else None)
    return held


def matrices(joint: Joint, rows: dict[str, np.ndarray], labels: np.ndarray) -> dict[str, np.ndarray]:
    return {name: each.matrix() for name, each in brought(joint, rows, labels).items()}


def together(rows: dict[str, np.ndarray]) -> np.ndarray:
    """Everybody's embeddings side by side."""
    return np.hstack([embedded(each, rows[name]) for name, each in encoders().items()])


def test_rows_are_embeddings_of_one_length_and_the_label_with_its_weight() -> None:
    rows, labels = people(50)
    joint = joint_of()
    held = brought(joint, rows, labels)["left"]
    left, raw = held.matrix(), encoders()["left"].embed(rows["left"])
    np.testing.assert_allclose(left[:, :12], raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-12)
    np.testing.assert_array_equal(left[:, 12:], joint.weight * np.eye(3)[labels])
    np.testing.assert_allclose(np.vstack(list(held.blocks(7))), left, rtol=0, atol=1e-12)
    task = joint.moments(TRUST, parse_budgets(8.0, 1e-5, TRUST))
    due = 1.0 + 1.0 + joint.weight**2
    assert due <= task.norm_squared / task.gamma**2 < 1.01 * due
    for name, matrix in matrices(joint, rows, labels).items():  # no row is lost to the bound on integers
        whole = OwnBlock(task, name).quantise(matrix, Stream.fresh())
        assert np.abs(whole).max(axis=1).min() > 0
        assert np.square(whole).sum(axis=1).max() <= task.block_norm_squared(task.block(name))


@pytest.mark.parametrize("hidden", [False, True])
def test_the_secure_head_is_that_of_the_rows_in_one_place(hidden: bool) -> None:
    rows, labels = people(120)
    joint = joint_of()
    task = joint.moments(TRUST, parse_budgets({"analyst": 50.0}, 1e-5, TRUST), rows_at_most=1000, hidden=hidden)
    made = encoders()
    here = {"left": np.arange(110), "right": np.arange(10, 120)} if hidden else dict.fromkeys(rows, np.arange(120))
    held = {}
    for name, values in rows.items():
        places = Places(here[name], 120, bytes(16)) if hidden else None
        features = kit.Rows(values[here[name]], [f"p{place:06d}" for place in here[name]], places)
        held[name] = joint.rows(name, features, made[name], labels[here[name]] if name == "left" else None)
    with pytest.MonkeyPatch.context() as patch:
        kit.nearest(patch)
        drawn = kit.noise_drawn(patch, programs)
        results = kit.execute(programs, task, held)
    common = np.arange(10, 110) if hidden else np.arange(120)
    found = results[COORDINATOR]
    exact = replace(found, opened=found.opened - sum(drawn))
    parts = {name: embedded(made[name], rows[name][common]) for name in rows}
    flags = joint.weight * np.eye(3)[labels[common]]
    whole = {"left": np.hstack([parts["left"], flags]), "right": parts["right"]}
    integers = {name: np.rint(each * task.gamma).astype(np.int64) for name, each in whole.items()}
    np.testing.assert_array_equal(exact.opened, programs.reference(integers, replace(task, hidden=False)))
    assert all((result.opened == found.opened).all() for result in results.values())
    scores = joint.finish(exact).scores(np.hstack(list(parts.values())))
    assert (scores.argmax(axis=1) == labels[common]).mean() > 0.6


def test_heads_of_simulated_moments_and_products_predict_new_people() -> None:
    rows, labels = people(3000)
    joint, budgets = joint_of(), parse_budgets({"analyst": 4.0}, 1e-5, TRUST)
    held, (fresh, truth) = matrices(joint, rows, labels), people(1000, seed=4)
    published = simulate(held, joint.moments(TRUST, budgets), Stream(bytes(32)))
    heads = [joint.finish(published, solver=solver) for solver in ("auto", "ridge", "logistic")]
    few = joint.directions(TRUST, budgets, rounds=3)  # which learn what matters to the label
    heads.append(joint.finish(simulate(held, few, Stream(bytes(32)))))
    for head in heads:
        assert head.weights.shape == (3, joint.width)
        assert (head.scores(together(fresh)).argmax(axis=1) == truth).mean() > 0.7


def test_a_number_is_learned_with_a_constant() -> None:
    rows, _ = people(3000)
    joint, embeddings = joint_of(classes=0), together(rows)
    label = np.clip(embeddings[:, 0] + embeddings[:, 13] / 2, -1, 1)
    task = joint.moments(TRUST, parse_budgets({"analyst": 8.0}, 1e-5, TRUST))
    assert task.constant > 1
    found = joint.finish(simulate(matrices(joint, rows, label), task, Stream(bytes(32)))).scores(embeddings)[:, 0]
    assert np.square(found - label).mean() < 0.3 * label.var()


def test_embeddings_are_checked() -> None:
    joint, made = joint_of(), encoders()
    rows, labels = people(10)
    refused(StudyError, "ST239", joint.rows, "right", kit.Rows(rows["right"]), made["left"])
    refused(StudyError, "ST240", "left", joint.rows, "right", kit.Rows(rows["right"]), made["right"], labels)
    odd = of_one_length(np.array([[np.nan, 1.0, 0.0], [np.inf, 0.0, 0.0], [0.0, 2.0, 0.0]]))
    np.testing.assert_array_equal(odd, [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # nobody is refused
    made["left"].width = 11
    refused(DataError, "DA085", embedded, made["left"], rows["left"])
    made["left"].width = 12
    refused(DataError, "DA084", joint.rows("left", kit.Rows(rows["left"]), made["left"], np.append(labels, 0)).matrix)
    assert not of_one_length(np.zeros((2, 3))).any()
    np.testing.assert_allclose(np.linalg.norm(of_one_length(np.diag([1e-200, 1e200, 3.0])), axis=1), 1.0)


def test_layouts_that_make_no_sense_are_refused_and_better_places_suggest_wider_embeddings() -> None:
    for widths, label, classes in (((2, 0), "left", 2), ((2, 2), "middle", 2), ((2, 2), "left", 1), ((0,), "left", 2)):
        with raises(StudyError, "ST*"):
            Joint(tuple(zip(("left", "right"), widths, strict=False)), label, classes)
    small, large = (parse_budgets(value, 1e-5, TRUST) for value in (1.0, 8.0))
    few, many = (suggested_width(TRUST, small, 2, rows) for rows in (5_000, 60_000))
    assert 16 <= few < many <= suggested_width(TRUST, large, 2, 60_000) <= 400
    assert suggested_width(TRUST, small, 2) == suggested_width(TRUST, small, 2, 10_000)


# --- products with directions


@pytest.mark.parametrize("classes", [3, 0])
def test_enough_directions_give_the_head_of_all_moments(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.no_noise(monkeypatch)
    rows, labels = people(600)
    joint, joined = joint_of(classes=classes), together(rows)
    label = labels if classes else labels / 2 - 0.5
    budgets = parse_budgets({"analyst": 20.0}, 1e-5, TRUST)
    wide = joint.directions(TRUST, budgets, rounds=1 + -(-joint.width // max(2, joint.outputs)), rows_at_most=1000)
    found = joint.finish(simulate(matrices(joint, rows, label), wide, Stream(bytes(32))), ridge=0.5, solver="ridge")
    assert found.facts["directions"] == joint.width
    target = np.eye(3)[labels] if classes else label[:, None]
    centred = joined - joined.mean(axis=0)
    due = np.linalg.solve(centred.T @ centred + 0.5 * np.eye(joint.width), centred.T @ (target - target.mean(axis=0)))
    np.testing.assert_allclose(found.scores(joined), centred @ due + target.mean(axis=0), atol=0.02)


def test_wide_embeddings_are_planned_with_directions_unless_members_are_hidden() -> None:
    wide = Joint((("left", 1000), ("right", 1000)), "right", 3)
    budgets = parse_budgets(1.0, 1e-5, TRUST)
    task = wide.plan(TRUST, budgets)
    assert isinstance(task, Directions)
    assert task.labels == (2000, 2001, 2002)
    assert task.committee.system.primes
    assert isinstance(wide.plan(TRUST, budgets, hidden=True), Moments)
    assert isinstance(joint_of().plan(TRUST, budgets), Moments)


def test_rounds_through_shares_give_what_is_simulated_and_no_nonsense(exact: None) -> None:
    rows, labels = people(150)
    joint = joint_of()
    task = joint.directions(TRUST, parse_budgets({"analyst": 20.0}, 1e-5, TRUST), rounds=3, rows_at_most=1000)
    held = matrices(joint, rows, labels)
    found = kit.execute(directions, task, {name: kit.Rows(each) for name, each in held.items()})[COORDINATOR]
    due = simulate(held, task, Stream(bytes(32)))
    assert all((one == other).all() for one, other in zip(found.opened, due.opened, strict=True))
    np.testing.assert_allclose(joint.finish(found).weights, joint.finish(due).weights)
    refused(ProtocolError, "MS020", joint.finish, replace(due, asked=(np.zeros_like(due.asked[0]), *due.asked[1:])))
    refused(ProtocolError, "MS021", joint.finish, replace(due, asked=(*due.asked[:2], due.asked[1])))


# --- an encoder that learned from the table before the head: its training is charged, and in nothing sent

AFTER = Joint((("left", 2), ("right", 3)), "left", 3)


def rows_and_labels(rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 3, rows)
    return np.eye(3, 5)[labels] + rng.normal(size=(rows, 5)) / 4, labels


def learner() -> Any:
    return encoder_from({"kind": "linear", "width": 2}, 5, seed=1)


def plan(share: float = 0.3, budgets: Any = 1.0, **changes: Any) -> PrivateTraining:
    allowed = parse_budgets(budgets, 1e-5, TRUST)
    return replace(planned(AFTER, learner().parameters, 300, TRUST, allowed, epochs=10, share=share), **changes)


@pytest.mark.parametrize("budgets", [1.0, {"analyst": 1.0}, {"analyst": 8.0}])
def test_training_and_moments_together_keep_the_budgets(budgets: Any) -> None:
    allowed = parse_budgets(budgets, 1e-5, TRUST)
    training = plan(budgets=budgets)
    task, alone = moments_after(AFTER, training, TRUST, allowed), AFTER.moments(TRUST, allowed)
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
    task = moments_after(AFTER, training, TRUST, parse_budgets(1.0, 1e-5, TRUST), rows_at_most=1000)
    assert training.event not in task.openings
    encoder, other = learner(), encoder_from({"kind": "linear"}, 3, seed=2)
    train_own(encoder, rows, labels, AFTER, training, Stream(bytes(32)))
    held = {
        "left": AFTER.rows("left", kit.Rows(rows), encoder, labels),
        "right": AFTER.rows("right", kit.Rows(rows[:, :3]), other),
    }
    ended = kit.outcomes(task, kit.programs_of(programs, task, held))
    assert all(set(each.revealed) == set(task.events) for each in ended.values()), ended
    assert ended[COORDINATOR].result.opened.shape == (task.entries,)
    number = learner()
    train_own(number, rows, labels / 2 - 0.5, replace(AFTER, classes=0), plan(epochs=30, noise=1), Stream(bytes(32)))
    assert abs(np.corrcoef(number.embed(rows)[:, 0], labels)[0, 1]) > 0.8


def test_what_the_theorem_does_not_cover_is_refused() -> None:
    rows, labels = rows_and_labels(20)
    allowed = parse_budgets(1.0, 1e-5, TRUST)
    refused(StudyError, "ST320", "left", moments_after, AFTER, plan(owner="right"), TRUST, allowed)
    refused(StudyError, "ST321", moments_after, AFTER, plan(batches=2), TRUST, allowed)
    refused(StudyError, "ST321", train_own, learner(), rows, labels, AFTER, plan(audience=("right",)), Stream.fresh())
    refused(StudyError, "ST327", train_own, learner(), rows, labels, AFTER, plan(parameters=3), Stream.fresh())
    refused(StudyError, "ST319", plan, share=1.0)


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
    held, roster = both.tables(200, "default"), both.roster("default")
    task: Any = _asked().plan(roster)
    (event,) = task.charged
    once: Any = innermost(event)
    ((owner, variance),) = once.shares
    assert (owner, event.times) == ("bank", 5)
    if in_one_place:
        _asked().simulate(held, roster, Stream(bytes(32)), task=task)
    else:
        _asked().fit(both.federation(200, "default"))
    assert drawn == [(variance, (once.dimension,))] * event.times
    fewer = replace(task, charged=(replace(event, times=4),))
    less = replace(task, charged=(replace(event, event=replace(once, shares=(("bank", variance / 2),))),))
    for other in (fewer, less, replace(task, charged=())):  # to train otherwise than is charged is refused
        with raises(StudyError, "ST226", "bank"):
            _asked().simulate(held, roster, Stream(bytes(32)), task=other)
