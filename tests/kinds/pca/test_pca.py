from __future__ import annotations

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest

from colonnade import PCA, Federation, Observer, Party, Schema, flag, number
from colonnade.errors import DataError, IdentityError, PrivacyError, SchemaError, StudyError
from colonnade.kinds.pca import evaluation as baselines
from colonnade.kinds.pca.evaluation import captured_by_pca, compare
from colonnade.kinds.pca.model import top_eigenvectors
from colonnade.privacy import Trust
from colonnade.protocols.moments.programs import simulate
from colonnade.tables import read_table
from colonnade.tables.people import population as made_up
from tests.support.errors import raises
from tests.support.people import width_of

pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def population():
    return made_up(3000)


@pytest.fixture(scope="module")
def parties(population):
    return [
        Party(name, population.arrow[name], schema=population.feature_schemas[name], id="person_id")
        for name in population.parties
    ]


@pytest.fixture(scope="module")
def people(population, aligned):
    return aligned(population.arrow, population.feature_schemas)


@pytest.fixture(scope="module")
def model(people):
    return PCA(n_components=3, epsilon=8.0, delta=1e-5, rows_at_most=10_000).fit(people)


def joint(population):
    schemas = population.feature_schemas
    tables = [read_table(population.arrow[name], schemas[name], id="person_id").sorted_by_id() for name in schemas]
    return np.hstack([table.matrix() for table in tables])


def test_components_are_orthonormal_and_named(model, population):
    assert model.components_.shape == (3, width_of(population))
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(3), atol=1e-9)
    assert model.feature_names_in_[0] == "bank.age"
    assert all(a >= b for a, b in zip(model.explained_variance_, model.explained_variance_[1:], strict=False))


def test_the_statement_is_about_whom_the_task_trusts(people, stream):
    model = PCA(n_components=2, epsilon=1.0, rows_at_most=10_000)
    task = model.plan(people.roster)
    matrices = {name: table.matrix() for name, table in people.tables().items()}
    published = simulate(matrices, task, stream)
    model.conclude(people.roster, replace(task, trust=Trust(task.trust.owners, (), 0)), published)
    assert model.privacy_.trust.committee == ()
    assert people.roster.trust.committee
    assert not any("committee" in text for text in model.privacy_.assumptions)


def test_with_a_large_epsilon_it_is_nearly_scikit_learns_pca(people, population):
    from sklearn import decomposition

    fitted = PCA(n_components=3, epsilon=50.0, gamma=2**15, rows_at_most=10_000).fit(people)
    X = joint(population)
    plain = decomposition.PCA(3).fit(X)
    overlap = np.abs(fitted.components_ @ plain.components_.T)
    np.testing.assert_allclose(np.diag(overlap), 1, atol=2e-2)  # the noise is fresh each time
    np.testing.assert_allclose(fitted.explained_variance_, plain.explained_variance_, rtol=0.03)
    np.testing.assert_allclose(np.abs(fitted.transform(X, encoded=True)), np.abs(plain.transform(X)), atol=0.4)


def test_row_order_and_kind_of_table_do_not_matter(population, tmp_path):
    """People in any order, as a path, a pandas and an Arrow table, meet on their ids; some are not everywhere."""
    paths = population.write(tmp_path, seed=5)
    schemas = population.feature_schemas
    shuffled = population.arrow["shop"].to_pandas().sample(frac=1, random_state=1)
    people = Federation(
        [
            Party("bank", str(paths["bank"][0]), schema=schemas["bank"], id="person_id"),
            Party("shop", shuffled[:2980], schema=schemas["shop"], id="person_id"),
            Party("clinic", population.arrow["clinic"].slice(15), schema=schemas["clinic"], id="person_id"),
        ]
    )
    common = set(shuffled[:2980]["person_id"]) & set(population.arrow["clinic"]["person_id"].to_pylist()[15:])
    assert people.align(on="person_id", mode="helper").alignment.count == len(common) < 2980
    fitted = PCA(n_components=2, epsilon=50.0, rows_at_most=10_000).fit(people)
    assert fitted.count_ == pytest.approx(len(common), abs=20)
    exact = baselines.exact(joint(population), 2, center=True)
    np.testing.assert_allclose(np.abs(np.diag(fitted.components_ @ exact.T)), 1, atol=5e-3)


def test_the_privacy_table_of_a_fitted_model(model):
    within = [Observer.analyst(), Observer.coordinator(), Observer.party("bank")]
    values = [model.privacy_.epsilon(observer, delta=1e-5) for observer in within]
    assert values == sorted(values)
    assert values[-1] <= 8.0
    assert values[-1] > 7.99  # the least noise that meets the budget, not more
    assert model.privacy_.epsilon(Observer.coalition("bank", "shop")) == np.inf
    text = str(model.privacy_)
    for word in ("analyst", "coordinator", "bank+shop", "inf", "threshold", "moments-sensitivity"):
        assert word in text


def test_budgets_by_observer(parties):
    people = Federation(parties)
    task = PCA(epsilon={"analyst": 1.0}).plan(people.roster)
    both = PCA(epsilon={"analyst": 1.0, "party": 1.2}).plan(people.roster)
    assert both.noise > task.noise
    with raises(PrivacyError, "PR061", "insurer"):
        PCA(epsilon={"insurer": 1.0}).plan(people.roster)
    with raises(PrivacyError, "PR024"):
        PCA(epsilon={"bank+shop": 1.0}).plan(people.roster)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_components": 0}, ("ST150", "n_components")),
        ({"n_components": 500}, ("ST150", "n_components", "1")),
        ({"gamma": 1}, ("ST150", "gamma")),
        ({"rows_at_most": 0}, ("ST150", "rows_at_most")),
    ],
)
def test_bad_parameters_are_named(parties, changes, message):
    with raises(StudyError, message):
        PCA(**{"epsilon": 1.0} | changes).plan(Federation(parties).roster)


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "much"])
def test_bad_epsilons_are_refused(parties, epsilon):
    with raises(PrivacyError, "PR064|PR065"):
        PCA(epsilon=epsilon).plan(Federation(parties).roster)


def test_save_and_load(model, tmp_path, population):
    path = model.save(tmp_path / "model.json")
    again = PCA.load(path)
    assert np.array_equal(again.components_, model.components_)
    assert again.get_params() == model.get_params()
    assert str(again.privacy_) == str(model.privacy_)
    X = {name: population.arrow[name] for name in population.parties}
    np.testing.assert_allclose(again.transform(X, id="person_id"), model.transform(X, id="person_id"))


def test_a_damaged_or_foreign_model_file_is_refused(model, tmp_path):
    path = model.save(tmp_path / "model.json")
    content = json.loads(path.read_text())
    for change in ({"kind": "tree"}, {"format": 99}, {"learned": {}}):
        path.write_text(json.dumps(content | change))
        with raises(StudyError, "ST071|ST091|ST139", "model.json"):
            PCA.load(path)
    path.write_text("not json")
    with raises(StudyError, "ST097"):
        PCA.load(path)


def test_a_stated_epsilon_that_the_events_do_not_prove_is_refused(model, tmp_path):
    path = model.save(tmp_path / "model.json")
    content = json.loads(path.read_text())
    content["privacy"]["rows"][0]["epsilon"] = 0.01
    path.write_text(json.dumps(content))
    with raises(PrivacyError, "PR106"):
        PCA.load(path)


def test_parts_add_up_to_the_scores(model, population):
    X = {name: population.arrow[name] for name in population.parties}
    parts = [model.partial(name, X[name]) for name in population.parties]
    np.testing.assert_allclose(sum(parts), model.transform(X, same_order=True))
    with raises(DataError, "DA061", "clinic"):
        model.transform({"bank": X["bank"], "shop": X["shop"]})
    with raises(DataError, "DA062"):
        model.transform({**X, "shop": X["shop"].slice(0, 1)}, same_order=True)
    with raises(DataError, "DA065", "bank", "shop", "1"):
        model.transform({**X, "shop": X["shop"].slice(0, 1)}, id="person_id")
    with raises(DataError, "DA056"):
        model.partial("insurer", X["bank"])
    with raises(DataError, "DA072"):
        model.transform(np.zeros((3, 2)), encoded=True)


def test_a_federation_is_matched_on_its_ids_before_it_is_transformed(model, parties, population):
    schemas = population.feature_schemas
    shuffled = {
        name: table.take(np.random.default_rng(k).permutation(len(table)))
        for k, (name, table) in enumerate(population.arrow.items())
    }
    mixed = Federation([Party(n, shuffled[n], schema=schemas[n], id="person_id") for n in schemas])
    np.testing.assert_allclose(model.transform(mixed), model.transform(Federation(parties)))
    np.testing.assert_allclose(model.transform(mixed), model.transform(joint(population), encoded=True))
    fewer = [*parties[:2], Party("clinic", shuffled["clinic"].slice(1), schema=schemas["clinic"], id="person_id")]
    with raises(StudyError, "ST087"):
        model.transform(Federation(fewer))


def test_what_is_no_party_or_schema_is_named():
    with raises(StudyError, "ST083"):
        Federation(["bank", "shop"])
    with raises(SchemaError, "SC002"):
        Party("bank", "bank.csv", schema={"age": 1}, id="id")
    with raises(IdentityError, "ID031"):
        Party("my bank", "bank.csv", schema=Schema({"a": flag()}), id="id")
    assert repr(PCA(3, epsilon=1.0)).startswith("PCA(n_components=3, epsilon=1.0")


def test_an_unfitted_model_says_so(tmp_path):
    with raises(StudyError, "ST073"):
        PCA(epsilon=1.0).save(tmp_path / "m.json")


def test_a_party_without_a_schema_is_refused():
    with raises(SchemaError, "SC001"):
        Party("bank", "bank.csv", id="person_id")


def test_two_parties_take_the_coordinator_as_third_seat(aligned):
    rng = np.random.default_rng(0)
    frames = [
        pd.DataFrame({"id": [f"p{i}" for i in range(400)], **{c: rng.uniform(-1, 1, 400) for c in columns}})
        for columns in (("a", "b"), ("c",))
    ]
    frames[1]["c"] = 0.9 * frames[0]["a"]
    schemas = [
        Schema({"a": number(-1, 1), "b": number(-1, 1)}),
        Schema({"c": number(-1, 1)}),
    ]
    people = aligned(dict(zip("xy", frames, strict=True)), dict(zip("xy", schemas, strict=True)), "id")
    assert people.roster.trust.committee == ("x", "y", "coordinator")
    fitted = PCA(n_components=1, epsilon=50.0, rows_at_most=1000).fit(people)
    assert abs(fitted.components_[0, 0]) == pytest.approx(0.74, abs=0.05)
    assert np.isinf(fitted.privacy_.epsilon(Observer.coalition("x", "coordinator")))
    assert fitted.transform(dict(zip("xy", frames, strict=True)), id="id").shape == (400, 1)


def test_federations_that_make_no_sense(parties):
    with raises(StudyError, "ST081"):
        Federation(parties[:1])
    with raises(StudyError, "ST085"):
        Federation([parties[0], parties[0]])


def test_tables_of_different_people_stop_the_fit(population):
    schemas = population.feature_schemas
    fewer = population.arrow["clinic"].slice(0, 2900)
    tables = dict(population.arrow) | {"clinic": fewer}
    people = Federation([Party(n, tables[n], schema=schemas[n], id="person_id") for n in schemas])
    with raises(StudyError, "ST087"):
        PCA(epsilon=1.0).fit(people)


def test_simulation_has_the_law_of_the_protocol(parties, population, stream):
    """Same mean and same noise: the simulation may stand for the protocol in an evaluation."""
    people = Federation(parties)
    task = PCA(n_components=2, epsilon=1.0, rows_at_most=10_000).plan(people.roster)
    tables = {p.name: p.table.sorted_by_id().matrix() for p in parties}
    first, second = (simulate(tables, task, stream).opened.astype(float) for _ in range(2))
    spread = np.std(first - second) / np.sqrt(2)
    assert spread == pytest.approx(float(4 * task.noise) ** 0.5, rel=0.1)


def test_comparison_with_the_baselines(parties):
    people = Federation(parties)
    tables = {p.name: p.table.matrix() for p in parties}
    found = compare(tables, people.roster, n_components=2, epsilons=[0.05, 20.0], delta=1e-5, runs=2)
    lines = {line["name"]: line["mean"] for line in found["lines"]}
    assert all(mean[1] <= found["ceiling"] + 1e-9 for mean in lines.values())
    assert lines["Colonnade, promised to the analyst"][1] > 0.97 * found["ceiling"]
    assert lines["local noise"][0] < lines["Colonnade, promised to the analyst"][1]


def test_uncentred_components(parties):
    people = Federation(parties)
    tables = {p.name: p.table.matrix() for p in parties}
    model = PCA(n_components=2, epsilon=50.0, center=False)
    captured = captured_by_pca(tables, people.roster, model)
    X = np.hstack(list(tables.values()))
    best = baselines.variance_captured(X, baselines.exact(X, 2, center=False), center=False)
    assert captured == pytest.approx(best, rel=0.01)
    assert np.all(model.mean_ == 0)


def test_top_eigenvectors_have_a_fixed_sign():
    values, vectors = top_eigenvectors(np.diag([1.0, 5.0, -2.0]), 2)
    np.testing.assert_allclose(values, [5, 1])
    assert vectors[0, 1] == 1
    assert vectors[1, 0] == 1


def test_flags_and_pandas_without_an_import_of_ours():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = pd.DataFrame({"id": ["a", "b"], "f": [True, False]})
        table = Party("x", frame, schema=Schema({"f": flag()}), id="id").table
    assert table.matrix().tolist() == [[1.0], [0.0]]
