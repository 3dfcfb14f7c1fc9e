"""PCA of wide tables: products with directions in place of all second moments."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from colonnade import PCA, Observer, Schema, number
from colonnade.errors import CapacityError, StudyError
from colonnade.kinds.pca import evaluation as baselines
from colonnade.kinds.pca.directions.task import Directions
from colonnade.kinds.pca.evaluation import captured_by_pca
from colonnade.kinds.pca.model import WIDE, published
from colonnade.models import Roster
from colonnade.protocols.moments.task import Moments
from tests.support.errors import raises

pd = pytest.importorskip("pandas")
ROWS = 1500


def frames(columns, seed=0, noise=0.1):
    """Three parties with the columns of one table in which three directions hold most of the variance."""
    rng = np.random.default_rng(seed)
    low = rng.normal(size=(ROWS, 3)) * [0.5, 0.35, 0.25] @ np.linalg.qr(rng.normal(size=(columns, 3)))[0].T
    values = np.clip(low + noise * rng.normal(size=(ROWS, columns)) / np.sqrt(columns) + 0.02, -1, 1)
    parts = np.array_split(np.arange(columns), 3)
    ids = {"id": [f"p{i:04}" for i in range(ROWS)]}
    return {
        name: pd.DataFrame({**ids, **{f"c{j}": values[:, j] for j in own}})
        for name, own in zip(("east", "north", "south"), parts, strict=True)
    }


def schemas(tables, clip=1.0):
    return {
        name: Schema({c: number(-1, 1) for c in frame.columns if c != "id"}, clip=clip)
        for name, frame in tables.items()
    }


@pytest.fixture(scope="module")
def wide():
    return frames(150)


@pytest.fixture(scope="module")
def people(wide, aligned):
    return aligned(wide, schemas(wide), "id")


@pytest.fixture(scope="module")
def fitted(people):
    return PCA(3, epsilon=50.0, rows_at_most=2000, method="power").fit(people)


def encoded(people):
    return np.hstack([table.matrix() for table in people.tables().values()])


def test_with_a_large_epsilon_it_is_nearly_the_plain_pca(fitted, people):
    X = encoded(people)
    exact = baselines.exact(X, 3, center=True)
    np.testing.assert_allclose(np.abs(np.diag(fitted.components_ @ exact.T)), 1, atol=0.02)
    np.testing.assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(3), atol=1e-9)
    largest = np.abs(fitted.components_).argmax(axis=1)
    assert np.all(fitted.components_[np.arange(3), largest] > 0)
    variances = np.linalg.eigvalsh(np.cov(X.T))[::-1]
    np.testing.assert_allclose(fitted.explained_variance_, variances[:3], rtol=0.05)
    np.testing.assert_allclose(fitted.explained_variance_ratio_, variances[:3] / variances.sum(), rtol=0.1)
    np.testing.assert_allclose(fitted.mean_, X.mean(axis=0), atol=0.005)
    assert fitted.count_ == pytest.approx(ROWS, rel=0.02)
    assert fitted.transform(people).shape == (ROWS, 3)
    assert fitted.privacy_.epsilon(Observer.party("north"), delta=1e-5) <= 50


def test_save_and_load(fitted, tmp_path, people):
    again = PCA.load(fitted.save(tmp_path / "model.json"))
    assert np.array_equal(again.components_, fitted.components_)
    assert again.get_params() == fitted.get_params()
    assert again.method == "power"
    assert str(again.privacy_) == str(fitted.privacy_)


def test_the_simulation_is_such_a_model_too(people, stream):
    tables = people.tables()
    for method in ("power", "moments"):
        model = PCA(2, epsilon=50.0, rows_at_most=2000, method=method).simulate(tables, people.roster, stream)
        captured = baselines.variance_captured(encoded(people), model.components_, center=True)
        best = baselines.variance_captured(
            encoded(people), baselines.exact(encoded(people), 2, center=True), center=True
        )
        assert 0.97 * best < captured <= best


def test_it_is_not_far_from_all_moments_at_the_same_epsilon(people, stream):
    """Both are priced as one release; directions lose some of what two noisy copies of each entry gain."""
    matrices = {name: table.matrix() for name, table in people.tables().items()}
    found = {
        method: np.mean(
            [
                captured_by_pca(
                    matrices,
                    people.roster,
                    PCA(2, epsilon={"analyst": 4.0}, rows_at_most=2000, method=method),
                    stream=stream,
                )
                for _ in range(3)
            ]
        )
        for method in ("moments", "power")
    }
    assert 0.85 * found["moments"] < found["power"] < 1.02 * found["moments"]


def wide_roster(columns, clip=1.0):
    names = ("east", "north", "south")[:columns]
    parts = np.array_split(np.arange(columns), len(names))
    return Roster.of(
        {name: Schema({f"c{j}": number(-1, 1) for j in own}, clip=clip) for name, own in zip(names, parts, strict=True)}
    )


def test_auto_asks_for_directions_above_a_stated_width():
    model = PCA(2, epsilon=1.0, rows_at_most=1000)
    assert isinstance(model.plan(wide_roster(WIDE)), Moments)
    roster = wide_roster(WIDE + 1)
    task = model.plan(roster)
    assert isinstance(task, Directions)
    assert (task.rounds, task.directions) == (6, 10)
    assert task.center
    assert not PCA(2, epsilon=1.0, rows_at_most=1000, center=False).plan(roster).center
    assert PCA(2, epsilon=1.0, rows_at_most=1000, iterations=9).plan(roster).rounds == 9
    assert isinstance(model.plan(replace(roster, hidden=True)), Moments)
    assert isinstance(PCA(2, epsilon=1.0, rows_at_most=1000, method="moments").plan(roster), Moments)


def test_auto_takes_all_moments_where_only_they_fit():
    """The defaults allow millions of rows; where rows may be long too, products with directions do not fit."""
    model, roster = PCA(2, epsilon=1.0), wide_roster(WIDE + 1, clip=None)
    assert isinstance(model.plan(wide_roster(WIDE + 1, clip=1.0)), Directions)
    task = model.plan(roster)
    assert isinstance(task, Moments)
    assert task == PCA(2, epsilon=1.0, method="moments").plan(roster)
    assert task.bound < 2**62
    for asked in (PCA(2, epsilon=1.0, method="power"), PCA(2, epsilon=1.0, iterations=6)):
        with raises(CapacityError, "CA027", "4096") as caught:
            asked.plan(roster).committee  # noqa: B018
    fitting = int(str(caught.value).split(") to ")[1].split(",")[0])
    assert isinstance(PCA(2, epsilon=1.0, gamma=fitting).plan(roster), Directions)
    # Nor do all moments fit a message of so many columns, and the error is that of directions.
    wider = model.plan(wide_roster(6000, clip=None))
    assert isinstance(wider, Directions)
    with raises(CapacityError, "CA027", "4096"):
        wider.committee  # noqa: B018


def test_a_table_of_twenty_thousand_columns_can_be_planned():
    task = PCA(3, epsilon=1.0, rows_at_most=1024).plan(wide_roster(20_531))
    assert isinstance(task, Directions)
    assert task.entries * task.rounds < 2_000_000
    assert len(task.committee.system.primes) == 3
    with raises(CapacityError, "CA027"):
        PCA(3, epsilon=1.0, gamma=2**20).plan(wide_roster(20_531)).committee  # noqa: B018


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "krylov"}, "ST151"),
        ({"iterations": 4}, "ST152"),
        ({"method": "power", "iterations": 0}, ("ST150", "iterations", "1", "4")),
        ({"method": "power", "iterations": 5}, ("ST150", "iterations", "1", "4")),
    ],
)
def test_bad_parameters_are_named(changes, message):
    with raises(StudyError, message):
        PCA(1, epsilon=1.0, **changes).plan(wide_roster(30))


def test_a_hidden_alignment_needs_all_moments():
    with raises(StudyError, "ST082"):
        PCA(1, epsilon=1.0, method="power").plan(replace(wide_roster(30), hidden=True))


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("epsilon", [0.1, 50.0])
@pytest.mark.parametrize(
    ("count", "columns", "iterations"),
    [(1, 2, None), (2, 2, None), (1, 3, None), (3, 3, None), (5, 12, None), (12, 12, None), (2, 60, 1), (2, 60, None)],
)
def test_few_columns_and_few_rounds_work_too(stream, count, columns, iterations, epsilon, center):
    """As many components as columns, or nearly, with a column of zeros: nothing is left to ask, and all is known."""
    roster = wide_roster(columns)
    values = np.random.default_rng(columns).uniform(-1, 1, (200, columns))
    values[:, -1] = 0.0
    parts = np.split(values, np.cumsum([len(schema.encoded_names) for schema in roster.schemas.values()])[:-1], axis=1)
    matrices = {
        name: part / np.maximum(1, np.linalg.norm(part, axis=1, keepdims=True))
        for name, part in zip(roster.schemas, parts, strict=True)
    }
    model = PCA(count, epsilon=epsilon, center=center, method="power", rows_at_most=1000, iterations=iterations)
    task = model.plan(roster)
    assert task.rounds * task.directions >= task.width or columns == 60
    assert iterations in (None, task.rounds)
    model.finish(published(matrices, task, stream))
    assert model.components_.shape == (count, columns)
    assert model.mean_.shape == (columns,)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(count), atol=1e-9)
    assert np.all(np.diff(model.explained_variance_) <= 0)
    assert np.all(model.explained_variance_ >= 0)
    assert np.all(np.isfinite(model.explained_variance_ratio_))
    if epsilon > 1 and columns < 60:
        joint = np.hstack(list(matrices.values()))
        exact = baselines.exact(joint, count, center=center)
        best, captured = (
            baselines.variance_captured(joint, found, center=center) for found in (exact, model.components_)
        )
        assert captured == pytest.approx(best, rel=0.05)
