"""Principal components: fits by all moments and by directions, what noise leaves unknown of them, pages and studies."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from sklearn import decomposition

from colonnade import PCA, Federation, Observer, Party, Schema, flag, number
from colonnade.cli import text_output
from colonnade.errors import CapacityError, DataError, IdentityError, PrivacyError, SchemaError, StudyError
from colonnade.kinds.pca import evaluation as baselines, model as component_errors
from colonnade.kinds.pca.evaluation import captured_by_pca
from colonnade.kinds.pca.model import WIDE, top_eigenvectors
from colonnade.kinds.pca.task import SubspaceIteration
from colonnade.models import Roster
from colonnade.models.estimates import Estimate
from colonnade.privacy import Trust
from colonnade.protocols.moments.programs import simulate
from colonnade.protocols.moments.task import Moments
from colonnade.study import preflight
from colonnade.study.planning import NoiseAmount, epsilons
from colonnade.tables.datasets import population as made_up
from colonnade.testing import seeded
from tests.support.errors import raises
from tests.support.federations import aligned, federation
from tests.support.pages import Page
from tests.support.reports import make_model, make_run, make_statement, rendered
from tests.support.studies import play

ROWS = 2000


@cache
def population():
    return made_up(ROWS)


def parties(**tables):
    held = population().arrow | tables
    return [Party(n, held[n], schema=schema, id="person_id") for n, schema in population().feature_schemas.items()]


@cache
def together():
    return Federation(parties())


def matrices(people):
    return {name: table.matrix() for name, table in people.tables().items()}


def joint(people):
    return np.hstack(list(matrices(people).values()))


@pytest.fixture(scope="module")
def model():
    people = aligned(population().arrow, population().feature_schemas)
    return PCA(n_components=3, epsilon=8.0, delta=1e-5, rows_at_most=10_000).fit(people)


# --- all moments


def test_components_are_orthonormal_and_named_and_come_back_from_a_file(model, tmp_path):
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(3), atol=1e-9)
    assert model.feature_names_in_[0] == "bank.age"
    assert np.all(np.diff(model.explained_variance_) <= 0)
    path = model.save(tmp_path / "model.json")
    again = PCA.load(path)
    assert (again.get_params(), str(again.privacy_)) == (model.get_params(), str(model.privacy_))
    np.testing.assert_allclose(again.transform(together()), model.transform(together()))
    content = json.loads(path.read_text())
    content["privacy"]["rows"][0]["epsilon"] = 0.01
    path.write_text(json.dumps(content))
    with raises(PrivacyError, "PR106"):  # a stated epsilon that the events do not prove
        PCA.load(path)


def test_the_privacy_table_of_a_fitted_model_is_about_whom_the_task_trusts(model, stream):
    within = [Observer.analyst(), Observer.coordinator(), Observer.party("bank")]
    values = [model.privacy_.epsilon(observer, delta=1e-5) for observer in within]
    assert values == sorted(values)
    assert 7.99 < values[-1] <= 8.0  # the least noise that meets the budget, not more
    assert model.privacy_.epsilon(Observer.coalition("bank", "shop")) == np.inf
    other, roster = PCA(n_components=2, epsilon=1.0, rows_at_most=10_000), together().roster
    task = other.plan(roster)
    first, second = (simulate(matrices(together()), task, stream) for _ in range(2))
    other.conclude(roster, replace(task, trust=Trust(task.trust.owners, (), 0)), first)
    assert other.privacy_.trust.committee == ()
    assert not any("committee" in text for text in other.privacy_.assumptions)
    # Same mean and same noise: the simulation may stand for the protocol in an evaluation.
    spread = np.std(first.opened.astype(float) - second.opened.astype(float)) / np.sqrt(2)
    assert spread == pytest.approx(float(4 * task.noise) ** 0.5, rel=0.1)


def test_with_a_large_epsilon_it_is_nearly_scikit_learns_pca(stream):
    fitted = PCA(n_components=3, epsilon=50.0, gamma=2**15, rows_at_most=10_000)
    fitted.simulate(together().tables(), together().roster, stream)
    X = joint(together())
    plain = decomposition.PCA(3).fit(X)
    overlap = np.abs(fitted.components_ @ plain.components_.T)
    np.testing.assert_allclose(np.diag(overlap), 1, atol=2e-2)
    np.testing.assert_allclose(fitted.explained_variance_, plain.explained_variance_, rtol=0.03)
    np.testing.assert_allclose(np.abs(fitted.transform(X, encoded=True)), np.abs(plain.transform(X)), atol=0.4)


def test_parts_add_up_to_the_scores_of_people_who_are_matched_on_their_ids(model):
    held = population().arrow
    parts = [model.partial(name, held[name]) for name in held]
    np.testing.assert_allclose(sum(parts), model.transform(held, same_order=True))
    shuffled = {n: t.take(np.random.default_rng(k).permutation(ROWS)) for k, (n, t) in enumerate(held.items())}
    np.testing.assert_allclose(model.transform(Federation(parties(**shuffled))), model.transform(together()))
    np.testing.assert_allclose(model.transform(together()), model.transform(joint(together()), encoded=True))
    with raises(DataError, "DA072"):
        model.transform(np.zeros((3, 2)), encoded=True)
    fewer = Federation(parties(clinic=shuffled["clinic"].slice(1)))
    for attempt in (model.transform, PCA(epsilon=1.0).fit):
        with raises(StudyError, "ST087"):
            attempt(fewer)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_components": 0}, ("ST150", "n_components")),
        ({"n_components": 500}, ("ST150", "n_components", "1")),
        ({"gamma": 1}, ("ST150", "gamma")),
        ({"rows_at_most": 0}, ("ST150", "rows_at_most")),
        ({"method": "krylov"}, "ST151"),
        ({"iterations": 4}, "ST152"),
        ({"method": "power", "iterations": 0}, ("ST150", "iterations", "1", "5")),
        ({"method": "power", "iterations": 6}, ("ST150", "iterations", "1", "5")),
        ({"epsilon": {"insurer": 1.0}}, ("PR061", "insurer")),
        ({"epsilon": {"bank+shop": 1.0}}, "PR024"),
        ({"epsilon": 0}, "PR064|PR065"),
        ({"epsilon": -1}, "PR064|PR065"),
        ({"epsilon": float("nan")}, "PR064|PR065"),
        ({"epsilon": float("inf")}, "PR064|PR065"),
        ({"epsilon": "much"}, "PR064|PR065"),
    ],
)
def test_bad_parameters_are_named(changes, message):
    with raises((StudyError, PrivacyError), message):
        PCA(**{"n_components": 1, "epsilon": 1.0} | changes).plan(together().roster)


def test_what_is_no_party_schema_or_federation_is_named(tmp_path):
    alone, plain = parties()[:1], Schema({"a": flag()})
    for given, said in ((["bank", "shop"], "ST083"), (alone, "ST081"), (alone * 2, "ST085")):
        with raises(StudyError, said):
            Federation(given)
    for name, schema, said in (("bank", {"age": 1}, "SC002"), ("bank", None, "SC001"), ("my bank", plain, "ID031")):
        with raises((SchemaError, IdentityError), said):
            Party(name, "bank.csv", schema=schema, id="id")
    task = PCA(epsilon={"analyst": 1.0}).plan(together().roster)
    assert PCA(epsilon={"analyst": 1.0, "party": 1.2}).plan(together().roster).noise > task.noise


def test_comparison_with_the_baselines_and_uncentred_components():
    tables, roster, X = matrices(together()), together().roster, joint(together())
    best = baselines.variance_captured(X, baselines.exact(X, 2, center=True), center=True)
    ours = captured_by_pca(tables, roster, PCA(2, epsilon={"analyst": 20.0}))
    noisy = baselines.local_noise(X, 2, epsilon=0.05, delta=1e-5, clip=2.0, center=True)
    assert max(0.97 * best, baselines.variance_captured(X, noisy, center=True)) < ours <= best + 1e-9
    model = PCA(n_components=2, epsilon=50.0, center=False)
    best = baselines.variance_captured(X, baselines.exact(X, 2, center=False), center=False)
    assert captured_by_pca(tables, roster, model) == pytest.approx(best, rel=0.01)
    assert np.all(model.mean_ == 0)
    values, vectors = top_eigenvectors(np.diag([1.0, 5.0, -2.0]), 2)
    assert (values.tolist(), vectors[0, 1], vectors[1, 0]) == (pytest.approx([5, 1]), 1, 1)  # a fixed sign


# --- directions, for wide tables


def wide_roster(columns, clip=1.0):
    names = ("east", "north", "south")[:columns]
    parts = np.array_split(np.arange(columns), len(names))
    return Roster.of(
        {name: Schema({f"c{j}": number(-1, 1) for j in own}, clip=clip) for name, own in zip(names, parts, strict=True)}
    )


def test_with_a_large_epsilon_directions_find_nearly_the_plain_pca():
    """Three parties with 150 columns of one table in which three directions hold most of the variance."""
    rng = np.random.default_rng(0)
    low = rng.normal(size=(1500, 3)) * [0.5, 0.35, 0.25] @ np.linalg.qr(rng.normal(size=(150, 3)))[0].T
    X = np.clip(low + 0.1 * rng.normal(size=(1500, 150)) / np.sqrt(150) + 0.02, -1, 1)
    schemas = wide_roster(150).schemas
    held = {n: {c: X[:, int(c[1:])] for c in schema.names} for n, schema in schemas.items()}
    wide = federation(held, schemas)
    fitted = PCA(3, epsilon=50.0, rows_at_most=2000, method="power").fit(wide)
    exact = baselines.exact(X, 3, center=True)
    np.testing.assert_allclose(np.abs(np.diag(fitted.components_ @ exact.T)), 1, atol=0.02)
    largest = np.abs(fitted.components_).argmax(axis=1)
    assert np.all(fitted.components_[np.arange(3), largest] > 0)
    variances = np.linalg.eigvalsh(np.cov(X.T))[::-1]
    np.testing.assert_allclose(fitted.explained_variance_, variances[:3], rtol=0.05)
    np.testing.assert_allclose(fitted.explained_variance_ratio_, variances[:3] / variances.sum(), rtol=0.1)
    np.testing.assert_allclose(fitted.mean_, X.mean(axis=0), atol=0.005)
    assert fitted.count_ == pytest.approx(1500, rel=0.02)
    assert fitted.transform(wide).shape == (1500, 3)
    assert fitted.privacy_.epsilon(Observer.party("north"), delta=1e-5) <= 50


def test_auto_asks_for_directions_above_a_stated_width():
    asked, roster = {"epsilon": 1.0, "rows_at_most": 1000}, wide_roster(WIDE + 1)
    assert isinstance(PCA(2, **asked).plan(wide_roster(WIDE)), Moments)
    task = PCA(2, **asked).plan(roster)
    assert isinstance(task, SubspaceIteration)
    assert (task.rounds, task.directions, task.center) == (6, 10, True)
    assert not PCA(2, center=False, **asked).plan(roster).center
    assert PCA(2, iterations=9, **asked).plan(roster).rounds == 9
    assert isinstance(PCA(2, **asked).plan(replace(roster, hidden=True)), Moments)
    assert isinstance(PCA(2, method="moments", **asked).plan(roster), Moments)
    with raises(StudyError, "ST082"):
        PCA(1, epsilon=1.0, method="power").plan(replace(wide_roster(30), hidden=True))


def test_auto_takes_all_moments_where_only_they_fit():
    """The defaults allow millions of rows; where rows may be long too, products with directions do not fit."""
    model, roster = PCA(2, epsilon=1.0), wide_roster(WIDE + 1, clip=None)
    assert isinstance(model.plan(wide_roster(WIDE + 1)), SubspaceIteration)
    assert model.plan(roster) == PCA(2, epsilon=1.0, method="moments").plan(roster)
    # Nor do all moments fit a message of so many columns, and the error is that of directions.
    wider = model.plan(wide_roster(6000, clip=None))
    assert isinstance(wider, SubspaceIteration)
    for task in (
        PCA(2, epsilon=1.0, method="power").plan(roster),
        PCA(2, epsilon=1.0, iterations=6).plan(roster),
        wider,
    ):
        with raises(CapacityError, "CA027", "4096"):
            task.committee  # noqa: B018
    # Of a table of twenty thousand columns few rows fit.
    task = PCA(3, epsilon=1.0, rows_at_most=1024).plan(wide_roster(20_531))
    assert task.entries * task.rounds < 2_000_000
    assert len(task.committee.system.primes) == 3


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("epsilon", [0.1, 50.0])
@pytest.mark.parametrize(("count", "columns", "iterations"), [(1, 2, None), (12, 12, None), (2, 60, 1), (2, 60, None)])
def test_few_columns_and_few_rounds_work_too(stream, count, columns, iterations, epsilon, center):
    """As many components as columns, or nearly, with a column of zeros: nothing is left to ask, and all is known."""
    roster = wide_roster(columns)
    values = np.random.default_rng(columns).uniform(-1, 1, (200, columns))
    values[:, -1] = 0.0
    parts = np.split(values, np.cumsum([len(schema.encoded_names) for schema in roster.schemas.values()])[:-1], axis=1)
    short = [part / np.maximum(1, np.linalg.norm(part, axis=1, keepdims=True)) for part in parts]
    model = PCA(count, epsilon=epsilon, center=center, method="power", rows_at_most=1000, iterations=iterations)
    task = model.plan(roster)
    assert task.rounds * task.directions >= task.width or columns == 60
    assert iterations in (None, task.rounds)
    model.finish(task.programs.simulate(dict(zip(roster.schemas, short, strict=True)), task, stream))
    assert (model.components_.shape, model.mean_.shape) == ((count, columns), (columns,))
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(count), atol=1e-9)
    assert model.explained_variance_.tolist() == sorted(np.maximum(0, model.explained_variance_), reverse=True)
    if epsilon > 1 and columns < 60:
        whole = np.hstack(short)
        best = baselines.variance_captured(whole, baselines.exact(whole, count, center=center), center=center)
        assert baselines.variance_captured(whole, model.components_, center=center) == pytest.approx(best, rel=0.05)


# --- what noise leaves unknown; all noise here is seeded


def near(width, seed=3):
    """Rows with some strong directions, the last two of which are nearly equal, by party; and their roster."""
    rng = np.random.default_rng(seed)
    spread = np.full(width, 0.02)
    spread[:4] = (0.4, 0.3, 0.12, 0.119)
    rows = rng.normal(size=(2000, width)) * spread @ np.linalg.qr(rng.normal(size=(width, width)))[0].T
    rows += 0.05 * rng.normal(size=width)
    rows = np.clip(rows * np.minimum(1, 1.2 / np.linalg.norm(rows, axis=1))[:, None], -1, 1)
    parts, schemas = dict(zip(("east", "west"), np.split(rows, 2, axis=1), strict=True)), {}
    for party, own in parts.items():
        longest = float(np.linalg.norm(own, axis=1).max())
        schemas[party] = Schema({f"c{k}": number(-1, 1) for k in range(width // 2)}, clip=longest)
    return parts, Roster.of(schemas)


@pytest.mark.parametrize(
    ("method", "epsilon", "center", "times"),
    [("moments", 1.0, True, 300), ("moments", 4.0, False, 300), ("power", 8.0, True, 40)],
)
def test_intervals_cover_what_there_is_without_noise(method, epsilon, center, times):
    parts, roster = near(16 if method == "moments" else 60)
    model = PCA(4, epsilon=epsilon, method=method, center=center, rows_at_most=4000)
    task, rows = model.plan(roster), np.hstack(list(parts.values()))
    mean = rows.mean(axis=0) if center else np.zeros(rows.shape[1])
    values, exact = top_eigenvectors((rows - mean).T @ (rows - mean) / len(rows), 4)
    loadings, variances, angles, means, clear, mixed = [], [], [], [], [], []
    for k in range(times):
        model.finish(task.programs.simulate(parts, task, seeded(k)))
        vectors = exact * np.sign((model.components_ * exact).sum(axis=1))[:, None]
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


def test_what_cannot_be_told_apart_is_said_and_never_clear(tmp_path):
    parts, roster = near(16)
    model = PCA(3, epsilon=2.0, rows_at_most=4000)
    task = model.plan(roster)
    model.conclude(roster, task, task.programs.simulate(parts, task, seeded(0)))
    assert model.clear == [True, True, False]
    assert model.unclear() == ["component 3 cannot be told apart from later ones, which were not kept"]
    assert [any(loading.clear for loading in model.loadings(k).values()) for k in (1, 3)] == [True, False]
    assert model.angles_[2] == 90
    lines = model.summary()
    assert "2 of 3 components are clear of the noise" in lines
    assert lines[-1].strip() == model.unclear()[0]
    for span, said in (
        ((3, 4, 5), "components 3 and 4 cannot be told apart: any mixture of them fits as well"),
        ((2, 4, 4), "components 2 to 4 cannot be told apart: any mixture of them fits as well"),
        ((2, 9, 4), "components 2 to 4 cannot be told apart from each other and from later ones"),
    ):
        assert component_errors.not_apart(*span) == said
    again = PCA.load(model.save(tmp_path / "model.json"))
    np.testing.assert_array_equal(model.angles_, again.angles_)
    found = again.loadings(2)
    assert all(isinstance(value, Estimate) for value in found.values())
    np.testing.assert_array_equal(list(found.values()), again.components_[1])
    np.testing.assert_array_equal([value.deviation for value in found.values()], again.components_deviations_[1])
    assert [value.low for value in again.variances()] == again.explained_variance_low_.tolist()
    assert [value.deviation for value in again.means().values()] == again.mean_deviations_.tolist()
    again.restore(model.learned_values() | {"angles": [1.0]})
    with raises(ValueError, "VA031"):  # of another shape
        again.check_restored()
    # Errors may be absent.
    learned = {name: value for name, value in model.learned_values().items() if name in model.saved}
    model.restore(learned)
    model.check_restored()
    assert (model.clear, model.unclear(), model.learned_values()) == (None, [], learned)
    estimates = [*model.loadings(1).values(), *model.variances(), *model.means().values()]
    assert all(value.deviation is None for value in estimates)


def test_on_a_page_what_cannot_be_told_apart_is_said_and_greyed():
    model = make_model(n_components=3)
    assert "unclear" not in rendered(make_run(), make_statement(), model).split("</style>")[1]
    shape = model.components_.shape
    model.components_deviations_ = np.full(shape, 0.05)
    model.components_low_, model.components_high_ = model.components_ - 0.1, model.components_ + 0.1
    model.components_low_[1:], model.components_high_[1:] = -0.6, 0.6
    model.explained_variance_deviations_, model.mean_deviations_ = np.full(3, 0.01), np.full(shape[1], 0.01)
    model.explained_variance_low_, model.explained_variance_high_ = model.explained_variance_ * [[0.9], [1.1]]
    model.angles_ = np.array([12.3, 90.0, 90.0])
    model.together_ = np.array([[0, 0], [1, 2], [1, 2]], dtype=float)
    html = rendered(make_run(), make_statement(), model)
    said = "Components 2 and 3 cannot be told apart: any mixture of them fits as well."
    for word in (said, "1 of 3 components can be told apart from all others.", "13°", "± 0.05"):
        assert word in html
    grey = [attrs for attrs in Page(html).all("text") if "unclear" in attrs.get("class", "")]
    assert len(grey) >= 2 * 2 * 15  # two components, two widths, fifteen columns


# --- a study by directions


def test_a_study_by_directions(trial):
    place = trial(60)
    text, out = place.file.read_text(), place.folder / "run"
    place.file.write_text(text.replace("n_components = 2", 'n_components = 1\nmethod = "power"'))
    study = place.study()
    answer, task = preflight(study), study.task
    assert (type(task), answer.details.method) == (SubspaceIteration, "power")
    assert answer.details.facts == {"openings": task.rounds, "directions": task.directions}
    assert f"products with {task.directions} directions each, priced as one" in text_output.preflight(answer)
    models = play(study, out)
    for model in models.values():
        np.testing.assert_allclose(model.components_, models["coordinator"].components_, atol=1e-9)
        assert model.privacy_.epsilon("analyst") <= 1.0
    facts = json.loads((out / "run.json").read_text())["task"]
    assert (facts["rounds"], facts["directions"], facts["law"]) == (task.rounds, task.directions, "discrete-gaussian")
    with raises(StudyError, "ST570", "power"):
        epsilons(study, NoiseAmount(error=0.1), rows=100)
    for asked, said in (('method = "krylov"', "ST595"), ('method = "moments"\niterations = 3', "ST152")):
        place.file.write_text(text.replace("n_components = 2", asked))
        with raises(StudyError, said):
            place.study().task  # noqa: B018
