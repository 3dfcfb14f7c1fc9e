"""What scikit-learn's own tools do with our models, and how notebooks show them."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

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
    flag,
    number,
)
from colonnade.errors import StudyError
from colonnade.models import Estimator
from tests.support.errors import raises
from tests.support.federations import aligned, federation, numbers
from tests.support.models import MODELS, PRODUCT, QUESTIONS, ROWS, fitted, simulated, together
from tests.support.pages import Page

NAMES = ["pca", "linear", "logistic", "glm", "glm counts", "polynomial", "polynomials", "synthetic", "split"]
every_kind = pytest.mark.parametrize("name", [*NAMES, "embeddings", *QUESTIONS])


@cache
def odd() -> Federation:
    """Parties and columns with names that have to be quoted and escaped."""
    rng = np.random.default_rng(3)
    a, c, d = rng.uniform(-1, 1, (3, 60))
    label = {"y": a + c > 0, "w": 4 + 2 * a - c, "n": rng.integers(0, 20, 60)}
    court = Schema({"y": flag(), "w": number(0, 9), "n": number(0, 20)})
    schemas = {"court.1": court, "left_a": numbers(["a<b>"]), "right-b": numbers(["c&d", "d"])}
    return federation({"court.1": label, "left_a": {"a<b>": a}, "right-b": {"c&d": c, "d": d}}, schemas)


# --- parameters


@every_kind
def test_a_clone_has_the_same_parameters_is_not_fitted_and_can_be_changed_by_name(name):
    model = fitted(name)
    again = clone(model)
    assert (type(again), repr(again)) == (type(model), repr(model))
    before, text = model.get_params(), repr(model)
    assert before == model.get_params(deep=False)
    check_is_fitted(model)
    with pytest.raises(NotFittedError):
        check_is_fitted(again)
    assert not hasattr(again, "n_features_in_")
    assert again.set_params(epsilon=0.25, delta=1e-7) is again
    assert again.get_params() == before | {"epsilon": 0.25, "delta": 1e-7}
    assert again.set_params(**before).set_params() is again
    assert all(again.get_params()[each] is value for each, value in before.items())
    assert repr(again) == text


def test_a_clone_of_a_question_is_about_the_same_fitted_model():
    for name in QUESTIONS:
        again = clone(fitted(name))
        assert again.get_params()["model"] is fitted(name).model
        check_is_fitted(again.model)
        assert len(simulated(again).joint.ids) == ROWS


@pytest.mark.parametrize("wrong", ["epsilom", "model__epsilon", "_read"])
def test_an_unknown_parameter_is_refused_with_the_known_ones_and_nothing_is_set(wrong):
    model = clone(fitted("prediction"))
    with raises(StudyError, "ST075", "JointPrediction", "model", "exact", wrong):
        model.set_params(delta=1e-9, **{wrong: 1.0})
    assert model.delta == 1e-5


def test_another_model_to_ask_about_is_read_anew():
    question = JointPrediction(fitted("logistic"), to="bank", epsilon=5.0)
    assert question.scorer is fitted("logistic")
    assert question.set_params(model=fitted("linear")).scorer is fitted("linear")


def test_one_expression_stays_as_it_was_given_and_is_saved_as_a_list(tmp_path):
    model = fitted("polynomial")
    assert model.get_params()["expressions"] == PRODUCT
    saved = json.loads(model.save(tmp_path / "model.json").read_text())
    assert saved["parameters"]["expressions"] == [PRODUCT]
    assert Estimator.load(tmp_path / "model.json").expressions_ == model.expressions_
    assert clone(PolynomialSum(iter(["1", "bank.age"]), epsilon=1.0)).expressions == ["1", "bank.age"]


def test_a_loop_over_a_grid_of_parameters():
    model, noise = LogisticRegression(label="court.1.y", rows_at_most=1000), {}
    for chosen in ParameterGrid({"epsilon": [0.5, 50.0], "method": ["one-shot", "functional"]}):
        fresh = clone(model).set_params(**chosen).fit(odd())
        assert fresh.method_ == chosen["method"]
        assert 0 < fresh.privacy_.epsilon("analyst") <= chosen["epsilon"]
        noise[fresh.method_, chosen["epsilon"]] = fresh.noise_std_
    assert len(noise) == 4
    assert all(noise[method, 0.5] > noise[method, 50.0] for method in ("one-shot", "functional"))
    assert not hasattr(model, "privacy_")


# --- what is fitted


@pytest.mark.parametrize("make", [LinearRegression, LogisticRegression, GLM])
def test_a_label_given_to_fit_leaves_the_parameter_as_it_was(tmp_path, make):
    settings = {"family": "linear"} if make is GLM else {"rows_at_most": 1000}
    label, other = ("court.1.y", "court.1.n") if make is LogisticRegression else ("court.1.w", "court.1.y")
    model = make(epsilon=20.0, **settings)
    assert model.fit(odd(), label=label) is model
    assert (model.get_params()["label"], model.label_) == (None, label)
    assert f" of {label} on " in model.in_short
    expected = model.predict(odd())
    model.set_params(label=other, epsilon=0.001)
    np.testing.assert_array_equal(model.predict(odd()), expected)
    assert 0 <= abs(model.score(odd())) < np.inf
    saved = json.loads(model.save(tmp_path / "model.json").read_text())["parameters"]
    assert (saved["label"], saved["epsilon"]) == (label, 20.0)
    again = Estimator.load(tmp_path / "model.json")
    assert again.label == again.label_ == label
    if make is not GLM:
        np.testing.assert_array_equal(again.predict(odd()), expected)
        before = dict(vars(model))
        with pytest.raises(StudyError):  # a fit that is refused changes nothing
            model.fit(odd(), label="nobody.x")
        assert vars(model) == before


def test_a_fitted_model_keeps_its_family_whatever_is_set_since():
    model = simulated(clone(MODELS["glm"]))
    expected, digest = model.predict(together()), model.digest
    model.set_params(family="poisson", family_options={"clip": 2.0})
    np.testing.assert_array_equal(model.predict(together()), expected)
    assert model.predict_proba(together()).shape == (ROWS, 2)
    assert model.digest == digest


def test_features_are_counted_and_named():
    for name in NAMES:
        assert isinstance(fitted(name).feature_names_in_, list)
        assert fitted(name).n_features_in_ == len(fitted(name).feature_names_in_) > 0
    assert not any(hasattr(fitted(name), "n_features_in_") for name in QUESTIONS)
    assert fitted("logistic").feature_names_in_[-5:] == [
        *("clinic.weight", "clinic.stage=one", "clinic.stage=two", "clinic.stage=three", "clinic.stays")
    ]


# --- tags


KINDS = dict.fromkeys(("logistic", "glm", "split"), "classifier")
KINDS |= dict.fromkeys(("linear", "glm counts", "embeddings"), "regressor")


@every_kind
def test_classifiers_and_regressors_are_told_apart(name):
    for each in (fitted(name), clone(fitted(name))):
        assert is_classifier(each) == (KINDS.get(name) == "classifier")
        assert is_regressor(each) == (KINDS.get(name) == "regressor")
        assert each._estimator_type == KINDS.get(name)  # what scikit-learn before 1.6 looks at
        assert each._more_tags()["requires_y"] is False


def test_tags_say_what_a_model_can_do():
    if not hasattr(utils, "get_tags"):
        pytest.skip("scikit-learn before 1.6 has no such tags")
    tags = {name: utils.get_tags(fitted(name)) for name in (*NAMES, *QUESTIONS)}
    assert tags["pca"].transformer_tags is not None
    assert (tags["pca"].estimator_type, tags["prediction"].estimator_type) == ("transformer", None)
    assert tags["logistic"].classifier_tags.multi_class
    assert not tags["glm"].classifier_tags.multi_class
    assert tags["glm counts"].regressor_tags is not None
    assert all(each.non_deterministic and not each.target_tags.required for each in tags.values())


@pytest.mark.system
def test_importing_models_does_not_load_scikit_learn():
    program = "import colonnade.models, sys; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=120, check=False).returncode == 0


# --- notebooks


class Piece(Page):
    """A piece of HTML for a notebook: few kinds of tags, and nothing from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        allowed = {"div", "details", "summary", "strong", "em", "table", "thead", "tbody", "tr", "th", "td", "p"}
        assert {tag for tag, _ in self.tags} <= allowed
        assert {name for _, attrs in self.tags for name in attrs} <= {"style", "open"}
        assert not any(word in text for word in ("http", "src=", "href=", "url("))


def shown(thing) -> list[str]:
    """The words of a thing in a notebook."""
    return Piece(thing._repr_html_()).text


@every_kind
def test_a_model_shows_what_was_changed_and_what_it_cost(name):
    model = fitted(name)
    page, before = shown(model), shown(clone(model))
    assert page[:1] == before[:1] == [type(model).__name__]
    assert {"fitted", "epsilon", model.in_short, *(row.who for row in model.privacy_.rows)} <= set(page)
    assert "not fitted" in before
    assert not {"observer", "delta"} & set(before)  # delta is the default
    assert page.count("delta") == 1
    assert page.count("proven") == sum(row.status == "proven" for row in model.privacy_.rows) > 0


def test_names_are_escaped_and_models_within_models_are_only_named():
    product = "'left_a.a<b>' * 'right-b.d'"
    assert repr(product) in shown(simulated(PolynomialSum(product, epsilon=20.0, rows_at_most=1000), odd()))
    assert "'clinic.ill'" in shown(fitted("logistic"))
    words = shown(fitted("prediction"))
    assert words[words.index("model") + 1] == "LogisticRegression"
    assert not any(str(score) in "".join(words) for score in fitted("prediction").scores_[:5].ravel())
    assert len(PolynomialSum(["left_a.a<b>"] * 40, epsilon=1.0)._repr_html_()) < 1000
    assert not Piece(PCA(epsilon=1.0).set_params(epsilon="<script>alert()</script>")._repr_html_()).all("script")


def test_a_federation_shows_who_takes_part_and_nothing_of_their_tables():
    assert shown(odd()) == [
        *("Federation", " ", "not aligned", "party", "columns", "court.1", "3", "left_a", "1"),
        *("right-b", "2", "committee court.1, left_a, right-b; threshold 1"),
    ]
    many = [Party(f"p{k}", None, schema=numbers("a")) for k in range(60)]
    assert "and 36 more" in shown(Federation(many))
    assert shown(odd().parties["left_a"]) == ["Party left_a", " ", "1 column", "column", "kind", "a<b>", "number"]
    tables = {name: party._source for name, party in odd().parties.items()}
    apart = aligned(tables, odd().roster.schemas, "id")
    for text in ("aligned", "aligned, hidden"):
        assert text in shown(apart)
        assert "60" not in " ".join(shown(apart))
        apart.align(on="id", mode="helper", hidden=True)
