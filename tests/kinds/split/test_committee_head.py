"""A head that a committee learns: what parties bring, and that the secure result is that of the rows in one place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from colonnade.errors import DataError, ProtocolError, StudyError
from colonnade.kinds.pca.directions import programs as directions
from colonnade.kinds.pca.directions.search import NoisyProducts
from colonnade.kinds.pca.directions.task import Directions
from colonnade.kinds.split.committee import Joint, embedded, of_one_length, simulate, suggested_width
from colonnade.kinds.split.encoders import encoder_from
from colonnade.kinds.split.heads import Sums, head_from
from colonnade.privacy import Observer, epsilon, parse_budgets, views
from colonnade.protocols.moments import programs
from colonnade.protocols.moments.integers import OwnBlock
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.randomness import Stream
from colonnade.tables.places import Places
from tests.support import protocols as kit
from tests.support.errors import raises

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
    made = encoders()
    return {
        name: joint.rows(name, kit.Rows(values), made[name], labels if name == joint.label_party else None)
        for name, values in rows.items()
    }


def test_rows_are_embeddings_of_one_length_and_the_label_with_its_weight() -> None:
    rows, labels = people(50)
    joint = joint_of()
    left = brought(joint, rows, labels)["left"].matrix()
    raw = encoders()["left"].embed(rows["left"])
    np.testing.assert_allclose(left[:, :12], raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-12)
    np.testing.assert_array_equal(left[:, 12:], joint.weight * np.eye(3)[labels])
    blocks = list(brought(joint, rows, labels)["left"].blocks(7))
    np.testing.assert_allclose(np.vstack(blocks), left, rtol=0, atol=1e-12)
    assert {len(block) for block in blocks} == {7, 1}
    assert joint.blocks[0].columns[-3:] == ("label0", "label1", "label2")


def test_no_row_is_lost_to_the_bound_on_integers() -> None:
    rows, labels = people(200)
    joint = joint_of()
    task = joint.moments(TRUST, parse_budgets(8.0, 1e-5, TRUST))
    for name, each in brought(joint, rows, labels).items():
        whole = OwnBlock(task, name).quantise(each.matrix(), Stream.fresh())
        assert np.abs(whole).max(axis=1).min() > 0
        assert np.square(whole).sum(axis=1).max() <= task.block_norm_squared(task.block(name))


def test_the_norm_of_a_row_is_that_of_embeddings_and_label() -> None:
    joint = joint_of()
    task = joint.moments(TRUST, parse_budgets(1.0, 1e-5, TRUST))
    due = 1.0 + 1.0 + joint.weight**2
    assert due <= task.norm_squared / task.gamma**2 < 1.01 * due
    for observer in (Observer.analyst(), Observer.coordinator(), Observer.party("left"), Observer.party("right")):
        assert epsilon(views(task.events, observer, TRUST), 1e-5).epsilon <= 1.0


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


def test_a_head_of_simulated_moments_predicts_new_people() -> None:
    rows, labels = people(3000)
    joint, made = joint_of(), encoders()
    task = joint.moments(TRUST, parse_budgets({"analyst": 2.0}, 1e-5, TRUST))
    held = {name: each.matrix() for name, each in brought(joint, rows, labels).items()}
    published = programs.simulate(held, task, Stream(bytes(32)))
    fresh, truth = people(1000, seed=4)
    new = np.hstack([embedded(made[name], fresh[name]) for name in fresh])
    for solver in ("auto", "ridge", "logistic"):
        assert (joint.finish(published, solver=solver).scores(new).argmax(axis=1) == truth).mean() > 0.7


def test_halves_of_real_digits_are_read_better_together_than_alone() -> None:
    digits = load_digits()
    images, labels, known = digits.images / 16 - 0.5, digits.target.astype(np.int64), np.arange(1797) < 1400
    sides = {"left": images[:, :, :4].reshape(-1, 32), "right": images[:, :, 4:].reshape(-1, 32)}
    spec = {"kind": "edges", "shape": [8, 4], "every": 2, "window": 2}
    made = {name: encoder_from(spec, 32) for name in sides}
    joint = Joint(tuple((name, made[name].width) for name in sides), "left", 10)
    task = joint.moments(TRUST, parse_budgets({"analyst": 4.0}, 1e-5, TRUST))
    held = {
        name: joint.rows(name, kit.Rows(side[known]), made[name], labels[known] if name == "left" else None).matrix()
        for name, side in sides.items()
    }
    head = joint.finish(simulate(held, task, Stream(bytes(32))))
    new = {name: embedded(made[name], side[~known]) for name, side in sides.items()}
    together = (head.scores(np.hstack(list(new.values()))).argmax(axis=1) == labels[~known]).mean()
    own = np.hstack([embedded(made["left"], sides["left"][known]), np.eye(10)[labels[known]]])
    alone = head_from(Sums(own.T @ own, np.full((len(own.T),) * 2, 1e-9), 10), classes=10)
    assert together > 0.8
    assert together > 0.05 + (alone.scores(new["left"]).argmax(axis=1) == labels[~known]).mean()


def test_a_number_is_learned_with_a_constant() -> None:
    rows, _ = people(3000)
    joint, made = joint_of(classes=0), encoders()
    embeddings = np.hstack([embedded(made[name], rows[name]) for name in rows])
    label = np.clip(embeddings[:, 0] + embeddings[:, 13] / 2, -1, 1)
    task = joint.moments(TRUST, parse_budgets({"analyst": 8.0}, 1e-5, TRUST))
    assert task.constant > 1
    held = {name: each.matrix() for name, each in brought(joint, rows, label).items()}
    found = joint.finish(programs.simulate(held, task, Stream(bytes(32)))).scores(embeddings)[:, 0]
    assert np.square(found - label).mean() < 0.3 * label.var()


def test_a_party_may_have_the_label_alone() -> None:
    joint = Joint((("left", 0), ("right", 3)), "left", 3)
    rows, labels = people(20)
    alone = joint.rows("left", kit.Rows(rows["left"]), None, labels).matrix()
    np.testing.assert_array_equal(alone, joint.weight * np.eye(3)[labels])
    assert joint.moments(TRUST, parse_budgets(1.0, 1e-5, TRUST)).width == 7


def test_embeddings_are_checked() -> None:
    joint, made = joint_of(), encoders()
    rows, labels = people(10)
    with raises(StudyError, "ST239"):
        joint.rows("right", kit.Rows(rows["right"]), made["left"])
    with raises(StudyError, "ST240", "left"):
        joint.rows("right", kit.Rows(rows["right"]), made["right"], labels)
    odd = of_one_length(np.array([[np.nan, 1.0, 0.0], [np.inf, 0.0, 0.0], [0.0, 2.0, 0.0]]))
    np.testing.assert_array_equal(odd, [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # nobody is refused
    made["left"].width = 11
    with raises(DataError, "DA085"):
        embedded(made["left"], rows["left"])
    made["left"].width = 12
    with raises(DataError, "DA084"):
        joint.rows("left", kit.Rows(rows["left"]), made["left"], np.append(labels, 0)).matrix()
    assert not of_one_length(np.zeros((2, 3))).any()
    np.testing.assert_allclose(np.linalg.norm(of_one_length(np.diag([1e-200, 1e200, 3.0])), axis=1), 1.0)


@pytest.mark.parametrize(
    ("widths", "label", "classes"),
    [
        ((("left", 2), ("right", 0)), "left", 2),
        ((("left", 2), ("right", 2)), "middle", 2),
        ((("left", 2), ("right", 2)), "left", 1),
        ((("left", 0),), "left", 2),
    ],
)
def test_layouts_that_make_no_sense_are_refused(widths: Any, label: str, classes: int) -> None:
    with pytest.raises(StudyError):
        Joint(widths, label, classes)


def test_more_people_and_larger_budgets_suggest_wider_embeddings() -> None:
    small, large = (parse_budgets(value, 1e-5, TRUST) for value in (1.0, 8.0))
    few, many = (suggested_width(TRUST, small, 2, rows) for rows in (5_000, 60_000))
    assert 16 <= few < many <= suggested_width(TRUST, large, 2, 60_000) <= 400
    assert suggested_width(TRUST, small, 2) == suggested_width(TRUST, small, 2, 10_000)


# --- products with directions


def exact_products(task: Directions, held: dict[str, np.ndarray]) -> NoisyProducts:
    with pytest.MonkeyPatch.context() as patch:
        kit.no_noise(patch)
        found = simulate(held, task, Stream(bytes(32)))
    assert isinstance(found, NoisyProducts)
    return found


@pytest.mark.parametrize("classes", [3, 0])
def test_enough_directions_give_the_head_of_all_moments(classes: int) -> None:
    rows, labels = people(600)
    joint = joint_of(classes=classes)
    label = labels if classes else labels / 2 - 0.5
    held = {name: each.matrix() for name, each in brought(joint, rows, label).items()}
    budgets = parse_budgets({"analyst": 20.0}, 1e-5, TRUST)
    wide = joint.directions(TRUST, budgets, rounds=1 + -(-joint.width // max(2, joint.outputs)), rows_at_most=1000)
    seen = exact_products(wide, held)
    joined = np.hstack([embedded(encoders()[name], rows[name]) for name in rows])
    found = joint.finish(seen, ridge=0.5, solver="ridge")
    assert found.facts["directions"] == joint.width
    target = np.eye(3)[labels] if classes else label[:, None]
    centred = joined - joined.mean(axis=0)
    due = np.linalg.solve(centred.T @ centred + 0.5 * np.eye(joint.width), centred.T @ (target - target.mean(axis=0)))
    np.testing.assert_allclose(found.scores(joined), centred @ due + target.mean(axis=0), atol=0.02)


def test_few_directions_learn_what_matters_to_the_label() -> None:
    rows, labels = people(3000)
    joint, made = joint_of(), encoders()
    task = joint.directions(TRUST, parse_budgets({"analyst": 4.0}, 1e-5, TRUST), rounds=3)
    held = {name: each.matrix() for name, each in brought(joint, rows, labels).items()}
    head = joint.finish(simulate(held, task, Stream(bytes(32))))
    fresh, truth = people(1000, seed=4)
    new = np.hstack([embedded(made[name], fresh[name]) for name in fresh])
    assert head.weights.shape == (3, joint.width)
    assert (head.scores(new).argmax(axis=1) == truth).mean() > 0.7


def test_wide_embeddings_are_planned_with_directions_unless_members_are_hidden() -> None:
    wide = Joint((("left", 1000), ("right", 1000)), "right", 3)
    budgets = parse_budgets(1.0, 1e-5, TRUST)
    task = wide.plan(TRUST, budgets)
    assert isinstance(task, Directions)
    assert task.labels == (2000, 2001, 2002)
    assert task.committee.system.primes
    assert isinstance(wide.plan(TRUST, budgets, hidden=True), Moments)
    assert isinstance(joint_of().plan(TRUST, budgets), Moments)
    many = Joint(tuple((f"o{i}", 400) for i in range(9)), "o0", 10)
    nine = kit.trust_of(9)
    fitting = many.plan(nine, parse_budgets({"analyst": 1.0}, 1e-5, nine))
    assert fitting.gamma < 4096
    assert fitting.committee.system.primes


def test_rounds_through_shares_give_what_is_simulated() -> None:
    rows, labels = people(150)
    joint = joint_of()
    task = joint.directions(TRUST, parse_budgets({"analyst": 20.0}, 1e-5, TRUST), rounds=3, rows_at_most=1000)
    held = {name: kit.Rows(each.matrix()) for name, each in brought(joint, rows, labels).items()}
    with pytest.MonkeyPatch.context() as patch:
        kit.nearest(patch)
        kit.no_noise(patch)
        played = kit.execute(directions, task, held)
        due = simulate({name: each.values for name, each in held.items()}, task, Stream(bytes(32)))
    found = played[COORDINATOR]
    assert all((one == other).all() for one, other in zip(found.opened, due.opened, strict=True))
    np.testing.assert_allclose(joint.finish(found).weights, joint.finish(due).weights)


def test_directions_that_skip_the_label_or_repeat_are_an_error_and_not_nonsense() -> None:
    rows, labels = people(50)
    joint = joint_of()
    task = joint.directions(TRUST, parse_budgets({"analyst": 20.0}, 1e-5, TRUST), rounds=3, rows_at_most=1000)
    seen = exact_products(task, {name: each.matrix() for name, each in brought(joint, rows, labels).items()})
    with raises(ProtocolError, "MS020"):
        joint.finish(replace(seen, asked=(np.zeros_like(seen.asked[0]), *seen.asked[1:])))
    with raises(ProtocolError, "MS021"):
        joint.finish(replace(seen, asked=(*seen.asked[:2], seen.asked[1])))
