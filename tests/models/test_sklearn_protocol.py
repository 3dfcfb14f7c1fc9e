"""What scikit-learn's own tools do with our models, and how notebooks show them."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn import utils
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import ParameterGrid
from sklearn.utils.validation import check_is_fitted

from colonnade import (
    GLM,
    PCA,
    Federation,
    JointPrediction,
    LinearRegression,
    LogisticRegression,
    Party,
    PolynomialSum,
    Schema,
    SplitClassifier,
    SplitRegressor,
    SplitScores,
    Synthesizer,
    flag,
    number,
)
from colonnade.errors import StudyError
from colonnade.kinds import KeptScores
from colonnade.models import Estimator
from tests.support.errors import raises
from tests.support.pages import Page

pd = pytest.importorskip("pandas")

ROWS = 60
SCHEMAS = {
    "court.1": Schema({"y": flag(), "w": number(0, 9), "n": number(0, 20)}),
    "left_a": Schema({"a<b>": number(-1, 1)}),
    "right-b": Schema({"c&d": number(-1, 1), "d": number(-1, 1)}),
}
PRODUCT = "'left_a.a<b>' * 'right-b.d'"
BROAD = {"epsilon": 20.0, "rows_at_most": 1000}


def unfitted() -> dict[str, Estimator]:
    """One of each model, with some parameters that are objects."""
    return {
        "pca": PCA(2, **BROAD),
        "linear": LinearRegression(label="court.1.w", ridge=0.5, **BROAD),
        "logistic": LogisticRegression(label="court.1.y", method="one-shot", **BROAD),
        "classes": GLM(label="court.1.y", epsilon={"left_a": 20.0, "right-b": 20.0, "court.1": 20.0}),
        "counts": GLM(family="poisson", label="court.1.n", epsilon=20.0, family_options={"clip": 5.0}),
        "polynomial": PolynomialSum(PRODUCT, **BROAD),
        "synthetic": Synthesizer("court.1.y", focus=[("court.1.w", "right-b.d")], bins=3, components=4, **BROAD),
        "split": SplitClassifier(label="court.1.y", width=4, encoders={"left_a": {"width": 3}}, epsilon=20.0),
        "split numbers": SplitRegressor(label="court.1.w", head="embeddings", width=4, epsilon=20.0),
        "polynomials": PolynomialSum(["1", {"'left_a.a<b>'^2": 0.5}], epsilon={"analyst": 9.0, "party": 9.0}),
    }


NAMES = [*unfitted(), "prediction", "kept scores", "split scores"]


@pytest.fixture(scope="module")
def people() -> Federation:
    rng = np.random.default_rng(3)
    ids = [f"p{k}" for k in range(ROWS)]
    a, c, d = rng.uniform(-1, 1, (3, ROWS))
    label = {"id": ids, "y": a + c > 0, "w": 4 + 2 * a - c, "n": rng.integers(0, 20, ROWS)}
    frames = {"court.1": label, "left_a": {"id": ids, "a<b>": a}, "right-b": {"id": ids, "c&d": c, "d": d}}
    return Federation(
        [Party(name, pd.DataFrame(frames[name]), schema=schema, id="id") for name, schema in SCHEMAS.items()]
    )


@pytest.fixture(scope="module")
def fitted(people) -> dict[str, Estimator]:
    tables, roster = people.tables(), people.roster
    models = {name: model.simulate(tables, roster) for name, model in unfitted().items()}
    asked = {
        "prediction": JointPrediction(models["logistic"], to="left_a", epsilon=5.0),
        "kept scores": KeptScores(models["classes"], epsilon=5.0, rows_at_most=ROWS),
        "split scores": SplitScores(models["split"], epsilon=5.0),
    }
    return models | {name: model.simulate(tables, roster) for name, model in asked.items()}


# --- parameters


@pytest.mark.parametrize("name", NAMES)
def test_a_clone_has_the_same_parameters_and_is_not_fitted(fitted, name):
    model = fitted[name]
    again = clone(model)
    assert type(again) is type(model)
    assert repr(again) == repr(model)
    assert model.get_params(deep=False) == model.get_params(deep=True)
    check_is_fitted(model)
    with pytest.raises(NotFittedError):
        check_is_fitted(again)
    assert not hasattr(again, "n_features_in_")


def test_a_clone_of_a_question_is_about_the_same_fitted_model(fitted, people):
    for name in ("prediction", "kept scores", "split scores"):
        question = fitted[name]
        again = clone(question)
        assert again.get_params()["model"] is question.model
        check_is_fitted(again.model)
        again.simulate(people.tables(), people.roster)
        assert len(again.joint.ids) == ROWS


@pytest.mark.parametrize("name", NAMES)
def test_parameters_can_be_set_by_name_and_set_back(fitted, name):
    model = clone(fitted[name])
    before, text = model.get_params(), repr(model)
    assert model.set_params(epsilon=0.25, delta=1e-7) is model
    assert model.get_params() == before | {"epsilon": 0.25, "delta": 1e-7}
    assert all(model.set_params(**before).get_params()[name] is value for name, value in before.items())
    assert repr(model) == text
    assert model.set_params() is model


@pytest.mark.parametrize("wrong", ["epsilom", "model__epsilon", "_read"])
def test_an_unknown_parameter_is_refused_with_the_known_ones_and_nothing_is_set(fitted, wrong):
    model = clone(fitted["prediction"])
    with raises(StudyError, "ST075", "JointPrediction", "model", "exact", wrong):
        model.set_params(delta=1e-9, **{wrong: 1.0})
    assert model.delta == 1e-5


def test_another_model_to_ask_about_is_read_anew(fitted, people):
    question = JointPrediction(fitted["logistic"], to="left_a", epsilon=5.0)
    assert question.scorer is fitted["logistic"]
    assert question.set_params(model=fitted["linear"]).scorer is fitted["linear"]


def test_one_expression_stays_as_it_was_given_and_is_saved_as_a_list(fitted, tmp_path):
    model = fitted["polynomial"]
    assert model.get_params()["expressions"] == PRODUCT
    saved = json.loads(model.save(tmp_path / "model.json").read_text())
    assert saved["parameters"]["expressions"] == [PRODUCT]
    assert Estimator.load(tmp_path / "model.json").expressions_ == model.expressions_
    once = PolynomialSum((text for text in ("1", "right-b.d")), epsilon=1.0)
    assert clone(once).expressions == ["1", "right-b.d"]


def test_a_loop_over_a_grid_of_parameters(people):
    model, found = LogisticRegression(label="court.1.y", rows_at_most=1000), []
    for chosen in ParameterGrid({"epsilon": [0.5, 50.0], "method": ["one-shot", "functional"]}):
        fresh = clone(model).set_params(**chosen).fit(people)
        assert fresh.method_ == chosen["method"]
        assert 0 < fresh.privacy_.epsilon("analyst") <= chosen["epsilon"]
        found.append((chosen["method"], chosen["epsilon"], fresh.noise_std_))
    assert len(found) == 4
    noise = {(method, epsilon): deviation for method, epsilon, deviation in found}
    assert all(noise[method, 0.5] > noise[method, 50.0] for method in ("one-shot", "functional"))
    assert not hasattr(model, "privacy_")


# --- what is fitted


@pytest.mark.parametrize("make", [LinearRegression, LogisticRegression, GLM])
def test_a_label_given_to_fit_leaves_the_parameter_as_it_was(people, tmp_path, make):
    settings = {"family": "linear"} if make is GLM else {"rows_at_most": 1000}
    label, other = ("court.1.y", "court.1.n") if make is LogisticRegression else ("court.1.w", "court.1.y")
    model = make(epsilon=20.0, **settings)
    assert model.fit(people, label=label) is model
    assert model.get_params()["label"] is None
    assert model.label_ == label
    assert f" of {label} on " in model.in_short
    expected = model.predict(people)
    model.set_params(label=other, epsilon=0.001)
    np.testing.assert_array_equal(model.predict(people), expected)
    assert 0 <= abs(model.score(people)) < np.inf
    saved = json.loads(model.save(tmp_path / "model.json").read_text())["parameters"]
    assert (saved["label"], saved["epsilon"]) == (label, 20.0)
    again = Estimator.load(tmp_path / "model.json")
    assert again.label == again.label_ == label
    if make is not GLM:
        np.testing.assert_array_equal(again.predict(people), expected)


def test_a_fit_that_is_refused_changes_nothing(people):
    model = LinearRegression(epsilon=20.0, label="court.1.w", rows_at_most=1000).fit(people)
    before = dict(vars(model))
    for wrong in ("court.1.y", "nobody.x"):
        with pytest.raises(StudyError):
            model.fit(people, label=wrong)
    assert vars(model) == before


def test_a_fitted_model_keeps_its_family_whatever_is_set_since(fitted, people):
    model = clone(fitted["classes"]).simulate(people.tables(), people.roster)
    expected, digest = model.predict(people), model.digest
    model.set_params(family="poisson", family_options={"clip": 2.0})
    np.testing.assert_array_equal(model.predict(people), expected)
    assert model.predict_proba(people).shape == (ROWS, 2)
    assert model.digest == digest


def test_features_are_counted_and_named(fitted):
    for name, model in fitted.items():
        if name in ("prediction", "kept scores", "split scores"):
            assert not hasattr(model, "n_features_in_")
        else:
            assert isinstance(model.feature_names_in_, list)
            assert model.n_features_in_ == len(model.feature_names_in_) > 0
    assert fitted["pca"].n_features_in_ == 6
    assert fitted["logistic"].feature_names_in_ == ["court.1.w", "court.1.n", "left_a.a<b>", "right-b.c&d", "right-b.d"]


# --- tags


KINDS = {"split": "classifier", "split numbers": "regressor"} | {
    "linear": "regressor",
    "counts": "regressor",
    "logistic": "classifier",
    "classes": "classifier",
}


@pytest.mark.parametrize("name", NAMES)
def test_classifiers_and_regressors_are_told_apart(fitted, name):
    model = fitted[name]
    for each in (model, clone(model)):
        assert is_classifier(each) == (KINDS.get(name) == "classifier")
        assert is_regressor(each) == (KINDS.get(name) == "regressor")
        assert each._estimator_type == KINDS.get(name)  # what scikit-learn before 1.6 looks at
        assert each._more_tags()["requires_y"] is False


def test_tags_say_what_a_model_can_do(fitted):
    if not hasattr(utils, "get_tags"):
        pytest.skip("scikit-learn before 1.6 has no such tags")
    tags = {name: utils.get_tags(model) for name, model in fitted.items()}
    assert tags["pca"].transformer_tags is not None
    assert tags["pca"].estimator_type == "transformer"
    assert tags["logistic"].classifier_tags.multi_class
    assert not tags["classes"].classifier_tags.multi_class
    assert tags["counts"].regressor_tags is not None
    assert tags["prediction"].estimator_type is None
    assert all(each.non_deterministic and not each.target_tags.required for each in tags.values())


def test_importing_models_does_not_load_scikit_learn():
    program = "import colonnade.models, sys; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


# --- notebooks


class Piece(Page):
    """A piece of HTML for a notebook: few kinds of tags, and nothing from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        allowed = {"div", "details", "summary", "strong", "em", "table", "thead", "tbody", "tr", "th", "td", "p"}
        assert {tag for tag, _ in self.tags} <= allowed
        assert {name for _, attrs in self.tags for name in attrs} <= {"style", "open"}
        assert not any(word in text for word in ("http", "src=", "href=", "url("))


@pytest.mark.parametrize("name", NAMES)
def test_a_model_shows_what_was_changed_and_what_it_cost(fitted, name):
    model = fitted[name]
    page, before = Piece(model._repr_html_()), Piece(clone(model)._repr_html_())
    assert page.text[:1] == before.text[:1] == [type(model).__name__]
    assert "fitted" in page.text
    assert "not fitted" in before.text
    assert "observer" not in before.text
    assert model.in_short in page.text
    assert "epsilon" in page.text
    for row in model.privacy_.rows:
        assert row.who in page.text
    assert "delta" not in before.text  # it is the default
    assert page.text.count("delta") == 1
    assert page.text.count("proven") == sum(row.status == "proven" for row in model.privacy_.rows) > 0


def test_names_are_escaped_and_models_within_models_are_only_named(fitted):
    page = Piece(fitted["polynomial"]._repr_html_())
    assert repr(PRODUCT) in page.text
    assert "'court.1.y'" in Piece(fitted["logistic"]._repr_html_()).text
    words = Piece(fitted["prediction"]._repr_html_()).text
    assert words[words.index("model") + 1] == "LogisticRegression"
    assert not any(str(score) in "".join(words) for score in fitted["prediction"].scores_[:5].ravel())
    long = PolynomialSum(["left_a.a<b>"] * 40, epsilon=1.0)._repr_html_()
    assert len(long) < 1000
    assert not Piece(PCA(epsilon=1.0).set_params(epsilon="<script>alert()</script>")._repr_html_()).all("script")


def test_a_federation_shows_who_takes_part_and_nothing_of_their_tables(people):
    page = Piece(people._repr_html_())
    told = "committee court.1, left_a, right-b; threshold 1"
    assert page.text == [
        *("Federation", " ", "not aligned", "party", "columns", "court.1", "3", "left_a", "1"),
        *("right-b", "2", told),
    ]
    many = [Party(f"p{k}", None, schema=SCHEMAS["left_a"]) for k in range(60)]
    assert "and 36 more" in Piece(Federation(many)._repr_html_()).text


def test_a_federation_says_that_it_is_aligned_but_not_how_many_are_in_common(aligned, people):
    tables = {name: party._source for name, party in people.parties.items()}
    for hidden, text in ((False, "aligned"), (True, "aligned, hidden")):
        apart = aligned(tables, SCHEMAS, "id")
        if hidden:
            apart.align(on="id", mode="helper", hidden=True)
        page = Piece(apart._repr_html_())
        assert text in page.text
        assert str(ROWS) not in " ".join(page.text)


def test_a_party_shows_its_public_columns(people):
    words = Piece(people.parties["left_a"]._repr_html_()).text
    assert words == ["Party left_a", " ", "1 column", "column", "kind", "a<b>", "number"]
