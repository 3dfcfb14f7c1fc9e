"""Heads: from sums, over told embeddings, those that learn, and those that a committee learns on shares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from colonnade.errors import DataError, ProtocolError, StudyError
from colonnade.kinds.pca import programs as directions
from colonnade.kinds.pca.task import SubspaceIteration
from colonnade.kinds.split.encoders import encoder_from
from colonnade.kinds.split.head_strategy import (
    JointEmbeddings,
    embed_scaled,
    scale_to_length,
    suggested_width,
)
from colonnade.kinds.split.heads import (
    HeadStatistics,
    LabelledSums,
    LinearHead,
    SoftmaxHead,
    TorchHead,
    fit_head,
    loss_and_slopes,
    told_statistics,
)
from colonnade.privacy import parse_budgets
from colonnade.protocols.moments import programs
from colonnade.protocols.moments.programs import OwnMoments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.randomness import Stream
from colonnade.tables.slots import RowSlots
from tests.support import protocols as kit
from tests.support.errors import refused
from tests.support.protocols import Array

# --- from sums


def clouds(rows: int = 4000, width: int = 6, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    labels = rng.choice(classes, rows, p=[0.5, 0.3, 0.2])
    shape = rng.normal(size=(width, width)) / 2 + np.eye(width)
    return rng.normal(size=(rows, width)) @ shape + 2 * rng.normal(size=(classes, width))[labels], labels


def sums_of(rows: np.ndarray, labels: np.ndarray, classes: int, noise: float = 0.0) -> LabelledSums:
    joint = np.hstack([rows, np.eye(classes)[labels]])
    matrix = joint.T @ joint
    draw = np.random.default_rng(6).normal(size=matrix.shape) * noise
    return LabelledSums(matrix + np.triu(draw) + np.triu(draw, 1).T, np.full(matrix.shape, noise), classes)


def test_heads_of_exact_sums_are_the_closed_forms() -> None:
    rows, labels = clouds()
    sums, flags, centred = sums_of(rows, labels, 3), np.eye(3)[labels], rows - rows.mean(axis=0)
    head = fit_head(sums, classes=3)
    means = np.stack([rows[labels == k].mean(axis=0) for k in range(3)])
    inverse = np.linalg.inv(sum(np.cov(rows[labels == k].T, bias=True) * (labels == k).mean() for k in range(3)))
    constants = np.log(flags.mean(axis=0)) - np.einsum("kd,de,ke->k", means, inverse, means) / 2
    due = rows @ inverse @ means.T + constants
    np.testing.assert_allclose(head.scores(rows), due, rtol=1e-8, atol=1e-8)
    for penalty in (25.0, 0.0):
        plain = fit_head(sums, classes=3, solver="ridge", ridge=penalty)
        due = np.linalg.solve(centred.T @ centred + penalty * np.eye(6), centred.T @ (flags - flags.mean(axis=0)))
        np.testing.assert_allclose(plain.scores(rows), centred @ due + flags.mean(axis=0), atol=1e-9)
        assert plain.facts["rows"] == pytest.approx(len(rows))
    steep = fit_head(sums, classes=3, solver="logistic")
    np.testing.assert_allclose(steep.scores(rows), steep.facts["slope"] * (plain.scores(rows) - 0.5), atol=1e-9)
    shares = 1 / (1 + np.exp(-steep.scores(rows))), np.clip(plain.scores(rows), 1e-6, 1.0)
    chosen, clipped = ((each / each.sum(axis=1, keepdims=True))[flags > 0] for each in shares)
    assert np.log(chosen).mean() > np.log(clipped).mean()


def test_a_number_is_predicted_by_least_squares_around_its_mean() -> None:
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(3000, 5)) + 0.3
    label = np.clip(rows @ np.array([0.1, -0.2, 0.0, 0.1, 0.05]) + 0.1, -1, 1)
    joint = np.hstack([rows, label[:, None], np.full((3000, 1), 0.5)])
    sums = LabelledSums(joint.T @ joint, np.zeros((7, 7)), 1)
    head = fit_head(sums, classes=0, constant=0.5)
    due = np.linalg.lstsq(np.hstack([rows, np.ones((3000, 1))]), label, rcond=None)[0]
    np.testing.assert_allclose(head.weights[0], due[:-1], atol=1e-8)
    assert head.intercept[0] == pytest.approx(due[-1])


def test_heads_that_make_no_sense_are_refused() -> None:
    sums = sums_of(*clouds(rows=50), 3)
    refused(StudyError, "ST280", fit_head, sums, classes=3, solver="forest")
    refused(StudyError, "ST281", fit_head, sums, classes=0, solver="discriminant")
    refused(StudyError, "ST205", fit_head, sums, classes=3, ridge=-1.0)
    refused(ValueError, "VA067", LinearHead, np.zeros((3, 2)), np.zeros(2), "ridge")


# --- over told embeddings, whose noise they know


ROWS = 40_000


def _classes(rows: int = ROWS, seed: int = 1) -> tuple[Array, Array]:
    """Two classes that differ along one column, beside which a second one varies with the first."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(rows) < 0.3).astype(np.int64)
    shared = rng.normal(size=rows)
    first = 0.3 * labels + shared
    return np.column_stack([first, shared + 0.1 * rng.normal(size=rows)]), labels


def _told(rows: Array, labels: Array, variance: float, classes: int, asked: float = 0.0, told: int = 0) -> LinearHead:
    """The head of rows of which the first columns have noise, or all, for new rows with noise of another variance."""
    ones = np.ones(told or rows.shape[1])
    return told_statistics(rows, labels, variance * ones, classes).head(asked * ones)


def _right(head_scores: Array, labels: Array) -> float:
    return float((head_scores.argmax(axis=1) == labels).mean())


def test_exact_queries_need_the_noise_subtracted_and_noised_ones_need_it_left() -> None:
    """The second column is of use only through its covariance with the first, which noise hides."""
    rows, labels = _classes()
    new, truth = _classes(seed=2)
    rng, variance = np.random.default_rng(3), 0.25
    told, asked = (each + 0.5 * rng.normal(size=each.shape) for each in (rows, new))
    silent = _told(rows, labels, 0.0, 2)
    means = np.array([rows[labels == k].mean(axis=0) for k in range(2)])
    within = np.cov((rows - means[labels]).T, bias=True)
    assert silent.weights == pytest.approx(means @ np.linalg.inv(within), rel=1e-6)  # the linear discriminant
    exact = _told(told, labels, variance, 2)
    naive = _told(told, labels, 0.0, 2)
    noised = _told(told, labels, variance, 2, asked=variance)
    best = _right(silent.scores(new), truth)
    assert best > 0.9
    assert _right(exact.scores(new), truth) > best - 0.03
    assert _right(naive.scores(new), truth) < best - 0.1
    assert _right(noised.scores(asked), truth) > _right(exact.scores(asked), truth) + 0.05
    assert noised.weights == pytest.approx(naive.weights, rel=1e-6)
    beside = _told(np.hstack([told[:, :1], rows[:, 1:] * 1e4]), labels, variance, 2, told=1)  # own columns: no noise
    assert _right(beside.scores(new * [1.0, 1e4]), truth) > 0.9


def test_more_noise_than_signal_gives_a_head_that_is_still_finite() -> None:
    rng = np.random.default_rng(6)
    told, labels = rng.normal(size=(50, 20)), rng.integers(0, 3, 50)
    head = _told(told, labels, 2.0, 4)  # more is subtracted than there is, and one class is empty
    assert np.isfinite(head.scores(told)).all()
    assert np.linalg.norm(head.weights) < 1e3
    rows, labels = clouds(rows=30)
    for solver in ("discriminant", "ridge", "logistic"):
        head = fit_head(sums_of(rows, labels, 3, noise=1e6), classes=3, solver=solver)
        assert np.isfinite(head.scores(rows)).all()
        assert head.facts["raised"] > 0


def test_statistics_are_enough_for_new_rows_with_any_noise() -> None:
    rows, labels = _classes(2000)
    kept = HeadStatistics.of(told_statistics(rows, labels, np.array([0.1]), 2).arrays())
    for noise in (0.0, 0.5):
        head, again = _told(rows, labels, 0.1, 2, asked=noise, told=1), kept.head(np.array([noise]))
        assert np.array_equal(again.weights, head.weights)
        assert np.array_equal(again.intercept, head.intercept)
    refused(ValueError, "VA130", HeadStatistics.of, kept.arrays() | {"centre": np.zeros(3)})


def test_regression_on_noised_rows_is_not_flattened() -> None:
    rng = np.random.default_rng(8)
    rows, slope = rng.normal(size=(ROWS, 3)) * [1.0, 2.0, 0.5] + 1.0, np.array([2.0, -1.0, 0.5])
    target = rows @ slope + 4.0 + 0.1 * rng.normal(size=ROWS)
    told = rows + rng.normal(size=rows.shape)
    head = _told(told, target, 1.0, 0)
    assert head.weights[0] == pytest.approx(slope, abs=0.15)
    assert head.intercept[0] == pytest.approx(4.0, abs=0.2)
    assert _told(told, target, 0.0, 0).weights[0, 0] == pytest.approx(1.0, abs=0.1)  # half of it
    half = _told(np.hstack([told[:, :2], rows[:, 2:]]), target, 1.0, 0, told=2)
    assert half.weights[0, 2] == pytest.approx(0.5, abs=0.15)


# --- that learn beside encoders


def made(kind: str, labels: Any, width: int, classes: int, **more: Any) -> Any:
    if kind == "numpy":
        return SoftmaxHead(labels, width, classes, **more)
    torch = pytest.importorskip("torch")
    if kind == "hidden":
        more["module"] = torch.nn.Sequential(
            torch.nn.Linear(width, 8), torch.nn.Tanh(), torch.nn.Linear(8, max(1, classes))
        )
    return TorchHead(labels, width, classes, **more)


@pytest.mark.parametrize("kind", ["numpy", "hidden"])
@pytest.mark.parametrize("classes", [3, 0])
def test_slopes_are_those_of_each_rows_own_loss_before_the_head_moves(kind: str, classes: int) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 20) if classes else rng.standard_normal(20)
    head = made(kind, labels, 4, classes, rate=0.05)
    for _ in range(3):
        head.slopes(np.arange(20), rng.standard_normal((20, 4)))
    places, rows = np.array([7, 1, 12]), rng.standard_normal((3, 4))

    def losses(at: Any) -> Any:
        return loss_and_slopes(head.scores(at), head.labels[places])[0]

    expected, size = np.empty((3, 4)), 1e-2
    for column in range(4):
        step = size * np.eye(4)[column]
        expected[:, column] = (losses(rows + step) - losses(rows - step)) / (2 * size)
    before = losses(rows).mean()
    assert np.allclose(head.slopes(places, rows), expected, atol=2e-3)
    assert not np.isclose(losses(rows).mean(), before)


@pytest.mark.parametrize("kind", ["numpy", "hidden"])
def test_a_head_is_fitted_to_embeddings_that_do_not_change(kind: str) -> None:
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((500, 3))
    labels = rows @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_normal(500)
    head = made(kind, labels, 3, 0, rate=0.05)
    assert sum(each.size for each in head.arrays().values()) == (4 if kind == "numpy" else 3 * 8 + 8 + 8 + 1)
    for places in (places for _ in range(30) for places in np.array_split(rng.permutation(500), 8)):
        head.slopes(places, rows[places])
    assert loss_and_slopes(head.scores(rows), labels)[0].mean() < 0.1
    assert np.corrcoef(head.scores(rows)[:, 0], labels)[0, 1] > 0.98


def test_scores_that_are_large_overflow_nothing_and_labels_must_be_classes() -> None:
    losses, pulls = loss_and_slopes(np.array([[1e4, -1e4], [0.0, 1e4]]), np.array([1, 1]))
    assert losses.tolist() == [2e4, 0.0]
    assert np.allclose(pulls, [[1, -1], [0, 0]])
    for labels in ([0, 3], [-1, 0], [0.5, 1.0], ["a", "b"]):
        refused(StudyError, "ST292", SoftmaxHead, np.array(labels), 2, 3)


def test_a_module_must_fit_the_embeddings_and_classes() -> None:
    torch = pytest.importorskip("torch")
    labels = np.array([0, 1])
    refused(StudyError, "ST289", "4", TorchHead, labels, 4, 2, torch.nn.Linear(3, 2))
    refused(StudyError, "ST290", "2", TorchHead, labels, 4, 2, torch.nn.Linear(4, 3))


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


def joint_of(classes: int = 3, **changes: Any) -> JointEmbeddings:
    return replace(JointEmbeddings((("left", 12), ("right", 3)), "left", classes), **changes)


def brought(joint: JointEmbeddings, rows: dict[str, np.ndarray], labels: np.ndarray) -> dict[str, Any]:
    made, held = encoders(), {}
    for name, values in rows.items():
        held[name] = joint.rows(name, kit.Rows(values), made[name], labels if name == joint.label_party else None)
    return held


def matrices(joint: JointEmbeddings, rows: dict[str, np.ndarray], labels: np.ndarray) -> dict[str, np.ndarray]:
    return {name: each.matrix() for name, each in brought(joint, rows, labels).items()}


def together(rows: dict[str, np.ndarray]) -> np.ndarray:
    """Everybody's embeddings side by side."""
    return np.hstack([embed_scaled(each, rows[name]) for name, each in encoders().items()])


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
        whole = OwnMoments(task, name).quantise(matrix, Stream.fresh())
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
        places = RowSlots(here[name], 120, bytes(16)) if hidden else None
        features = kit.Rows(values[here[name]], [f"p{place:06d}" for place in here[name]], places)
        held[name] = joint.rows(name, features, made[name], labels[here[name]] if name == "left" else None)
    with pytest.MonkeyPatch.context() as patch:
        kit.nearest(patch)
        drawn = kit.noise_drawn(patch, programs)
        results = kit.execute(programs, task, held)
    common = np.arange(10, 110) if hidden else np.arange(120)
    whole = kit.integers(task, matrices(joint, {name: each[common] for name, each in rows.items()}, labels[common]))
    due = programs.reference(whole, replace(task, hidden=False)) + sum(drawn)
    assert all((result.opened == due).all() for result in results.values())


def test_a_number_is_learned_with_a_constant() -> None:
    rows, _ = people(3000)
    joint, embeddings = joint_of(classes=0), together(rows)
    label = np.clip(embeddings[:, 0] + embeddings[:, 13] / 2, -1, 1)
    task = joint.moments(TRUST, parse_budgets({"analyst": 8.0}, 1e-5, TRUST))
    assert task.constant > 1
    found = joint.finish(task.programs.simulate(matrices(joint, rows, label), task, Stream(bytes(32)))).scores(
        embeddings
    )[:, 0]
    assert np.square(found - label).mean() < 0.3 * label.var()


def test_embeddings_are_checked() -> None:
    joint, made = joint_of(), encoders()
    rows, labels = people(10)
    right = kit.Rows(rows["right"])
    refused(StudyError, "ST239", joint.rows, "right", right, made["left"])
    refused(StudyError, "ST240", "left", joint.rows, "right", right, made["right"], labels)
    odd = scale_to_length(np.array([[np.nan, 1.0, 0.0], [np.inf, 0.0, 0.0], [0.0, 2.0, 0.0]]))
    np.testing.assert_array_equal(odd, [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # nobody is refused
    made["left"].width = 11
    refused(DataError, "DA085", embed_scaled, made["left"], rows["left"])
    made["left"].width = 12
    refused(DataError, "DA084", joint.rows("left", kit.Rows(rows["left"]), made["left"], np.append(labels, 0)).matrix)
    assert not scale_to_length(np.zeros((2, 3))).any()
    np.testing.assert_allclose(np.linalg.norm(scale_to_length(np.diag([1e-200, 1e200, 3.0])), axis=1), 1.0)


ENCODERS: list[dict[str, Any]] = [
    {"kind": "cosine", "width": 250},
    {"kind": "edges", "shape": [28, 28], "width": 100},
    {"kind": "linear", "width": 33},
    {"kind": "mlp", "width": 16},
    {"kind": "cnn", "shape": [28, 28], "width": 16, "channels": [4, 4]},
]


@pytest.mark.parametrize("spec", ENCODERS, ids=lambda spec: spec["kind"])
@pytest.mark.parametrize("hidden", [False, True])
def test_nobodys_embedding_changes_by_a_bit_when_others_come_or_go(spec: dict[str, Any], hidden: bool) -> None:
    """Everybody after one that left stands elsewhere in its block; where somebody came, others stand beside it."""
    rng, count = np.random.default_rng(1), 900
    values, names = rng.uniform(0, 1, (count, 784)), [f"p{place:06d}" for place in range(count)]
    encoder = encoder_from(spec, 784, seed=1)
    joint = JointEmbeddings((("left", encoder.width), ("right", 0)), "right", 3)

    def embedded(kept: np.ndarray) -> np.ndarray:
        places = RowSlots(kept, count, bytes(16)) if hidden else None
        rows = joint.rows("left", kit.Rows(values[kept], [names[place] for place in kept], places), encoder)
        return np.vstack(list(rows.blocks(512)))

    whole = embedded(np.arange(count))
    np.testing.assert_allclose(whole, embed_scaled(encoder, values), rtol=0, atol=1e-6)
    for gone in ([0], [3, 511, 700], list(range(5, 300, 7))):
        kept = np.delete(np.arange(count), gone)
        np.testing.assert_array_equal(embedded(kept), whole[kept])


@pytest.mark.parametrize("leans", [1e-15, 1e-3])
def test_an_encoder_whose_rows_lean_on_others_by_a_bit_is_refused(leans: float) -> None:
    encoder = encoders()["left"]
    plain = encoder.embed
    encoder.embed = lambda rows: plain(rows) + leans * rows.mean()  # type: ignore[method-assign]
    refused(
        StudyError, "ST760", "left", joint_of().rows, "left", kit.Rows(people(10)[0]["left"]), encoder, np.zeros(10)
    )


def test_layouts_that_make_no_sense_are_refused_and_more_people_suggest_wider_embeddings() -> None:
    for widths, label, classes in (((2, 0), "left", 2), ((2, 2), "middle", 2), ((2, 2), "left", 1), ((0,), "left", 2)):
        refused(StudyError, "ST*", JointEmbeddings, tuple(zip(("left", "right"), widths, strict=False)), label, classes)
    few, many = (suggested_width(TRUST, parse_budgets(1.0, 1e-5, TRUST), 2, rows) for rows in (5_000, 60_000))
    assert 16 <= few < many <= 400


# --- products with directions


@pytest.mark.parametrize("classes", [3, 0])
def test_enough_directions_give_the_head_of_all_moments(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kit.no_noise(monkeypatch)
    rows, labels = people(600)
    joint, joined = joint_of(classes=classes), together(rows)
    label = labels if classes else labels / 2 - 0.5
    budgets = parse_budgets({"analyst": 20.0}, 1e-5, TRUST)
    wide = joint.directions(TRUST, budgets, rounds=1 + -(-joint.width // max(2, joint.outputs)), rows_at_most=1000)
    found = joint.finish(
        wide.programs.simulate(matrices(joint, rows, label), wide, Stream(bytes(32))), ridge=0.5, solver="ridge"
    )
    assert found.facts["directions"] == joint.width
    target = np.eye(3)[labels] if classes else label[:, None]
    centred = joined - joined.mean(axis=0)
    due = np.linalg.solve(centred.T @ centred + 0.5 * np.eye(joint.width), centred.T @ (target - target.mean(axis=0)))
    np.testing.assert_allclose(found.scores(joined), centred @ due + target.mean(axis=0), atol=0.02)


def test_wide_embeddings_are_planned_with_directions_unless_members_are_hidden() -> None:
    wide = JointEmbeddings((("left", 1000), ("right", 1000)), "right", 3)
    budgets = parse_budgets(1.0, 1e-5, TRUST)
    task = wide.plan(TRUST, budgets)
    assert isinstance(task, SubspaceIteration)
    assert task.labels == (2000, 2001, 2002)
    assert isinstance(wide.plan(TRUST, budgets, hidden=True), Moments)
    assert isinstance(joint_of().plan(TRUST, budgets), Moments)


def test_rounds_through_shares_give_what_is_simulated_and_no_nonsense(exact: None) -> None:
    rows, labels = people(150)
    joint = joint_of()
    task = joint.directions(TRUST, parse_budgets({"analyst": 20.0}, 1e-5, TRUST), rounds=3, rows_at_most=1000)
    held = matrices(joint, rows, labels)
    found = kit.execute(directions, task, {name: kit.Rows(each) for name, each in held.items()})[COORDINATOR]
    due = task.programs.simulate(held, task, Stream(bytes(32)))
    np.testing.assert_allclose(joint.finish(found).weights, joint.finish(due).weights)
    refused(
        ProtocolError,
        "MS020",
        joint.finish,
        replace(due, directions=(np.zeros_like(due.directions[0]), *due.directions[1:])),
    )
    refused(ProtocolError, "MS021", joint.finish, replace(due, directions=(*due.directions[:2], due.directions[1])))
