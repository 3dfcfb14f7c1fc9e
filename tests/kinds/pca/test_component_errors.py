"""Intervals of components cover what the same computation gives without noise; all noise here is seeded."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade import PCA, Schema, number
from colonnade.kinds.pca import component_errors
from colonnade.kinds.pca.model import published, top_eigenvectors
from colonnade.models.estimates import Estimate
from colonnade.models.federation import Roster
from colonnade.testing.seeded import seeded
from tests.support.errors import raises

ROWS, WIDTH = 2000, 16
DEVIATIONS = (0.4, 0.3, 0.12, 0.119)


def made_up(width, deviations, seed=3):
    """Rows with some strong directions, the last two of which are nearly equal, by party."""
    rng = np.random.default_rng(seed)
    spread = np.full(width, 0.02)
    spread[: len(deviations)] = deviations
    rows = rng.normal(size=(ROWS, width)) * spread @ np.linalg.qr(rng.normal(size=(width, width)))[0].T
    rows += 0.05 * rng.normal(size=width)
    rows *= np.minimum(1, 1.2 / np.linalg.norm(rows, axis=1))[:, None]
    rows = np.clip(rows, -1, 1)
    half = width // 2
    return {"east": rows[:, :half], "west": rows[:, half:]}


def roster_of(parts):
    schemas = {
        party: Schema(
            {f"c{k}": number(-1, 1) for k in range(own.shape[1])}, clip=float(np.linalg.norm(own, axis=1).max())
        )
        for party, own in parts.items()
    }
    return Roster.of(schemas)


def fitted(components):
    parts = made_up(WIDTH, DEVIATIONS)
    model, roster = PCA(components, epsilon=2.0, rows_at_most=4000), roster_of(parts)
    task = model.plan(roster)
    return model.conclude(roster, task, published(parts, task, seeded(0)))


def runs(parts, model, times):
    """Fits by fresh, seeded noise, and the components, variances and means without any."""
    task = model.plan(roster_of(parts))
    rows = np.hstack(list(parts.values()))
    mean = rows.mean(axis=0) if model.center else np.zeros(rows.shape[1])
    exact = (rows - mean).T @ (rows - mean) / len(rows)
    values, vectors = top_eigenvectors(exact, model.n_components)
    for k in range(times):
        model.finish(published(parts, task, seeded(k)))
        turned = np.sign((model.components_ * vectors).sum(axis=1))
        yield values, vectors * turned[:, None], mean


@pytest.mark.parametrize(
    ("method", "epsilon", "center", "times"),
    [("moments", 1.0, True, 300), ("moments", 4.0, True, 300), ("moments", 4.0, False, 300), ("power", 8.0, True, 40)],
)
def test_intervals_cover_what_there_is_without_noise(method, epsilon, center, times):
    parts = made_up(WIDTH if method == "moments" else 60, DEVIATIONS)
    model = PCA(4, epsilon=epsilon, method=method, center=center, rows_at_most=4000)
    loadings, variances, angles, means, clear, mixed = [], [], [], [], [], []
    for values, vectors, mean in runs(parts, model, times):
        apart = np.array(model.clear)
        clear.append(apart)
        within = (model.components_low_ <= vectors) & (vectors <= model.components_high_)
        loadings += within[apart].ravel().tolist()
        mixed += within[~apart].ravel().tolist()
        inside = (model.explained_variance_low_ <= values) & (values <= model.explained_variance_high_)
        variances += inside[apart].tolist()
        met = np.degrees(np.arccos(np.minimum(1, (model.components_ * vectors).sum(axis=1))))
        angles += (met <= model.angles_)[apart].tolist()
        means += (np.abs(model.mean_ - mean) <= 1.96 * model.mean_deviations_).tolist() if center else []
    # Every bound is at least five deviations from what many more runs gave (0.93 to 0.97 of variances and 0.90 to 0.96
    # of angles, with one of each for a component that is clear): other noise would hardly ever miss one.
    least = {"variances": 0.87, "angles": 0.87} if method == "moments" else {"variances": 0.79, "angles": 0.7}
    assert 0.90 < np.mean(loadings) < 0.99
    assert np.mean(variances) > least["variances"]
    assert np.mean(angles) > least["angles"]
    assert not center or 0.90 < np.mean(means) < 0.99
    # Where components cannot be told apart, intervals hold every mixture of them, and so nearly always the truth.
    assert np.mean(mixed) > 0.99
    assert np.mean(clear, axis=0)[0] > 0.75
    if method == "moments" and center:
        assert np.mean(clear, axis=0)[2:].max() < 0.03  # these two are equal


def test_what_cannot_be_told_apart_is_said_and_never_clear():
    model = fitted(3)
    assert model.clear == [True, True, False]
    assert model.unclear() == ["component 3 cannot be told apart from later ones, which were not kept"]
    assert any(loading.clear for loading in model.loadings(1).values())
    assert not any(loading.clear for loading in model.loadings(3).values())
    assert model.angles_[2] == 90
    lines = model.summary()
    assert "2 of 3 components are clear of the noise" in lines
    assert "within" in lines[2]
    assert lines[-1].strip() == model.unclear()[0]


@pytest.mark.parametrize(
    ("span", "said"),
    [
        ((3, 4, 5), "components 3 and 4 cannot be told apart: any mixture of them fits as well"),
        ((2, 4, 4), "components 2 to 4 cannot be told apart: any mixture of them fits as well"),
        ((2, 9, 4), "components 2 to 4 cannot be told apart from each other and from later ones"),
    ],
)
def test_words_for_components_that_are_not_apart(span, said):
    assert component_errors.not_apart(*span) == said


def test_estimates_are_the_learned_numbers_with_their_errors(tmp_path):
    model = fitted(2)
    again = PCA.load(model.save(tmp_path / "model.json"))
    for each in (model, again):
        found = each.loadings(2)
        assert list(found) == each.feature_names_in_
        assert all(isinstance(value, Estimate) for value in found.values())
        np.testing.assert_array_equal(list(found.values()), each.components_[1])
        np.testing.assert_array_equal([value.deviation for value in found.values()], each.components_deviations_[1])
        assert [value.low for value in each.variances()] == each.explained_variance_low_.tolist()
        assert [value.deviation for value in each.means().values()] == each.mean_deviations_.tolist()
    np.testing.assert_array_equal(model.angles_, again.angles_)


def test_a_model_without_errors_can_still_be_read(tmp_path):
    model = fitted(2)
    learned = {name: value for name, value in model.learned().items() if name in model.saved}
    model.restore(learned)
    model.check_restored()
    assert model.clear is None
    assert model.unclear() == []
    assert model.learned() == learned
    assert all(value.deviation is None for value in model.loadings(1).values())
    assert all(value.deviation is None for value in [*model.variances(), *model.means().values()])
    assert "±" not in "".join(model.summary())


def test_errors_of_another_shape_are_refused():
    model = fitted(2)
    model.restore(model.learned() | {"angles": [1.0]})
    with raises(ValueError, "VA031"):
        model.check_restored()
