"""What scikit-learn's own tools do with our models, and how notebooks show them."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from colonnade import (
    GLM,
    PCA,
    Estimate,
    Federation,
    JointPrediction,
    LinearRegression,
    LogisticRegression,
    Party,
    PolynomialSum,
    Schema,
    SplitClassifier,
    SplitRegressor,
    Synthesizer,
    flag,
    number,
)
from colonnade.errors import PrivacyError, StudyError
from colonnade.models import Estimator, registry
from colonnade.models.pictures import digits, strongest
from tests.support.charts import intervals, lengths
from tests.support.errors import raises
from tests.support.federations import aligned, federation, made_up, numbers
from tests.support.models import PRODUCT, QUESTIONS, fitted, simulated
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
    again, before = clone(model), model.get_params()
    assert (type(again), repr(again)) == (type(model), repr(model))
    check_is_fitted(model)
    with pytest.raises(NotFittedError):
        check_is_fitted(again)
    assert not hasattr(again, "n_features_in_")
    assert hasattr(model, "n_features_in_") == (name not in QUESTIONS)
    assert name in QUESTIONS or model.n_features_in_ == len(model.feature_names_in_) > 0
    assert name not in QUESTIONS or again.get_params()["model"] is model.model
    assert again.set_params(epsilon=0.25, delta=1e-7) is again
    assert again.get_params() == before | {"epsilon": 0.25, "delta": 1e-7}
    again.set_params(**before)
    assert all(again.get_params()[each] is value for each, value in before.items())


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
    assert clone(PolynomialSum(iter(["1", "bank.age"]), epsilon=1.0)).expressions == ["1", "bank.age"]


# --- what is fitted


@pytest.mark.parametrize("make", [LinearRegression, LogisticRegression, GLM])
def test_a_label_given_to_fit_leaves_the_parameter_as_it_was(tmp_path, make):
    settings = {"family": "linear"} if make is GLM else {"rows_at_most": 1000}
    label, other = ("court.1.y", "court.1.n") if make is LogisticRegression else ("court.1.w", "court.1.y")
    model = make(epsilon=20.0, **settings)
    assert model.fit(odd(), label=label) is model
    assert (model.get_params()["label"], model.label_) == (None, label)
    expected = model.predict(odd())
    model.set_params(label=other, epsilon=0.001, **({"family": "poisson"} if make is GLM else {}))
    np.testing.assert_array_equal(model.predict(odd()), expected)
    saved = json.loads(model.save(tmp_path / "model.json").read_text())["parameters"]
    assert (saved["label"], saved["epsilon"]) == (label, 20.0)
    again = Estimator.load(tmp_path / "model.json")
    assert again.label == again.label_ == label
    before = dict(vars(model))
    with pytest.raises(StudyError):  # a fit that is refused changes nothing
        model.fit(odd(), label="nobody.x")
    assert vars(model) == before


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


@pytest.mark.system
def test_importing_models_does_not_load_scikit_learn():
    program = "import colonnade.models, sys; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=120, check=False).returncode == 0


# --- notebooks


def shown(thing) -> list[str]:
    """The words of a thing in a notebook: few kinds of tags, and nothing from elsewhere."""
    text = thing._repr_html_()
    page = Page(text)
    allowed = {"div", "details", "summary", "strong", "em", "table", "thead", "tbody", "tr", "th", "td", "p"}
    assert {tag for tag, _ in page.tags} <= allowed
    assert {name for _, attrs in page.tags for name in attrs} <= {"style", "open"}
    assert not any(word in text for word in ("http", "src=", "href=", "url("))
    return page.text


@every_kind
def test_a_model_shows_what_was_changed_and_what_it_cost(name):
    model = fitted(name)
    page, before = shown(model), shown(clone(model))
    assert page[:1] == before[:1] == [type(model).__name__]
    assert {"fitted", "epsilon", model.in_short, *(row.who for row in model.privacy_.rows)} <= set(page)
    assert "not fitted" in before
    assert not {"observer", "delta"} & set(before)  # delta is the default
    assert page.count("proven") == sum(row.status == "proven" for row in model.privacy_.rows) > 0


def test_names_are_escaped_and_models_within_models_are_only_named():
    product = "'left_a.a<b>' * 'right-b.d'"
    assert repr(product) in shown(simulated(PolynomialSum(product, epsilon=20.0, rows_at_most=1000), odd()))
    words = shown(fitted("prediction"))
    assert words[words.index("model") + 1] == "LogisticRegression"
    assert not any(str(score) in "".join(words) for score in fitted("prediction").scores_[:5].ravel())
    shown(PCA(epsilon=1.0).set_params(epsilon="<script>alert()</script>"))


def test_a_federation_shows_who_takes_part_and_nothing_of_their_tables():
    assert shown(odd()) == [
        *("Federation", " ", "not aligned", "party", "columns", "court.1", "3", "left_a", "1"),
        *("right-b", "2", "committee court.1, left_a, right-b; threshold 1"),
    ]
    apart = aligned({name: party._source for name, party in odd().parties.items()}, odd().roster.schemas, "id")
    for words in ("aligned", "aligned, hidden"):
        assert words in shown(apart)
        assert "60" not in " ".join(shown(apart))
        apart.align(on="id", mode="helper", hidden=True)


# --- pictures: bars, intervals and colours are those of the estimates, and nothing else is read


PARTIES = ("bank", "shop", "clinic")


def drawn(model: Any, label: str = "default") -> Any:
    return simulated(model, made_up(300, label, PARTIES))


@cache
def logistic() -> Any:
    return drawn(LogisticRegression(label="bank.default", epsilon=30.0))


def test_weights_have_the_lengths_and_intervals_of_the_estimates() -> None:
    model = logistic()
    (chart,) = model.plot().charts
    found = {name: value for own in model.coefficients().values() for name, value in own.items()}
    assert lengths(chart) == pytest.approx({name: float(value) for name, value in found.items()})
    assert intervals(chart) == {name: pytest.approx((value.low, value.high)) for name, value in found.items()}
    kinds = {bar.label: bar.kind for bar in chart.bars}
    assert kinds == {name: "signed" if value.clear else "grey" for name, value in found.items()}
    assert {value.clear for value in found.values()} == {True, False}, "both colours were there to be seen"
    assert {bar.group for bar in chart.bars} == {"bank", "shop", "clinic"}, "by party"


def test_of_several_classes_weights_are_cells() -> None:
    model = drawn(LogisticRegression(label="bank.kind", epsilon=30.0), "kind")
    (chart,) = model.plot().charts
    shown = [model.estimate(row, place) for place in range(len(model.feature_names_in_)) for row in range(3)]
    texts = [cell.text for row in chart.rows for cell in row.cells]
    assert sorted(texts) == sorted(value.text(2).replace("-", "\N{MINUS SIGN}") for value in shown)
    assert list(chart.columns) == model.row_names == ["low", "middle", "high"]


def test_a_saved_model_without_error_bars_is_drawn_without_intervals_and_anybodys_data(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = drawn(LinearRegression(label="bank.amount", epsilon=30.0), "amount")
    model.set_error_bars(None, None)
    (chart,) = model.plot().charts
    assert not intervals(chart)
    assert {bar.kind for bar in chart.bars} == {"signed"}
    monkeypatch.setattr(Party, "table", property(lambda _: pytest.fail("a picture looked at a table")))
    read = Estimator.load(model.save(tmp_path / "model.json"))
    assert lengths(read.plot().charts[0]) == pytest.approx(lengths(chart))


def test_components_show_variances_and_loadings() -> None:
    model = drawn(PCA(3, epsilon=60.0))
    top, below = model.plot().charts
    variances = {f"component {k + 1}": value for k, value in enumerate(model.variances())}
    assert lengths(top) == {name: float(value) for name, value in variances.items()}
    assert intervals(top) == {name: (value.low, value.high) for name, value in variances.items()}
    assert [bar.kind for bar in top.bars] == ["plain" if clear else "grey" for clear in model.clear]
    found = {(row.group, row.label): row.cells for row in below.rows}
    for name in model.feature_names_in_:
        cells = found[tuple(name.split(".", 1))]
        values = [model.loadings(k + 1)[name] for k in range(3)]
        assert [cell.text for cell in cells] == [value.text().replace("-", "\N{MINUS SIGN}") for value in values]
        assert [cell.grey for cell in cells] == [not value.clear for value in values]


def test_released_weights_of_a_model_over_messages_are_drawn_and_kept_ones_are_not() -> None:
    model = drawn(GLM(label="bank.default", epsilon=8.0, release=True))
    found = {name: value for own in model.coefficients().values() for name, value in own.items()}
    assert lengths(model.plot().charts[0]) == pytest.approx({name: float(value) for name, value in found.items()})
    model = drawn(GLM(label="bank.default", epsilon=8.0))
    assert set(model.kept_) == set(PARTIES), "they are in this process"
    (chart,) = model.plot().charts
    assert lengths(chart) == model.plan_["deviations"]
    assert "stays with it" in chart.note


def test_sums_have_their_intervals() -> None:
    model = drawn(PolynomialSum(["1", "bank.a * shop.c", "bank.a - shop.c"], epsilon=4.0))
    (chart,) = model.plot().charts
    assert lengths(chart) == {text: float(value) for text, value in model.estimates().items()}
    assert intervals(chart) == {text: (value.low, value.high) for text, value in model.estimates().items()}


def test_a_synthetic_table_has_a_panel_for_each_column() -> None:
    model = drawn(Synthesizer(epsilon=8.0, bins=6))
    (chart,), released = model.plot().charts, model.marginals()
    assert [panel.title for panel in chart.panels] == list(released)
    for panel, (name, shares) in zip(chart.panels, released.items(), strict=True):
        assert panel.bars == pytest.approx((model.marginal(name).fitted / model.count_).tolist())
        assert panel.measured == [(float(each), each.low, each.high) for each in shares.values()]


def test_a_committees_head_shows_how_far_each_party_moves_it_and_told_embeddings_their_noise() -> None:
    for model, label in (
        (SplitClassifier(label="bank.default", epsilon=8.0), "default"),
        (SplitRegressor(label="bank.amount", epsilon=8.0), "amount"),
    ):
        (chart,) = drawn(model, label).plot().charts
        weights, widths = model.public_["weights"], model.plan_["widths"]
        lead = weights[1] - weights[0] if len(weights) == 2 else weights[0]
        parts = np.split(lead, np.cumsum(list(widths.values()))[:-1])
        assert lengths(chart) == pytest.approx(
            {party: np.linalg.norm(own) for party, own in zip(widths, parts, strict=True)}
        )
    model = drawn(SplitClassifier(label="bank.default", epsilon=8.0, head="embeddings"))
    assert lengths(model.plot().charts[0]) == model.plan_["deviations"]


def test_received_scores_are_spread_over_people_for_the_receiver_alone() -> None:
    question = drawn(JointPrediction(logistic(), to="clinic", epsilon=4.0))
    (chart,) = question.plot().charts
    told, own = chart.lines
    edges = [x for x, _ in told.points]
    for line, chances in ((told, question.joint.probabilities), (own, question.joint.own_probabilities)):
        counts = np.histogram(chances[:, 1], np.asarray(edges))[0]
        assert np.allclose([y for _, y in line.points][:-1], counts / len(chances))
    assert question.joint.plot().charts[0].x.name == chart.x.name == "chance of True, of 300 people"
    question.restore({})
    with raises(StudyError, "ST164"):
        question.plot()


def test_an_assessment_shows_ranking_and_calibration() -> None:
    found = logistic().assess(made_up(300, "default", PARTIES))
    ranking, calibration = found.plot().charts
    assert list(ranking.lines[0].points) == [pytest.approx(point) for point in found.roc]
    assert [y for _, y in calibration.lines[0].points] == [each.share for each in found.reliability]


def test_what_a_federation_told_in_all_has_caps() -> None:
    together = made_up(60, caps={"analyst": 3.0})
    with raises(PrivacyError, "PR013"):
        together.privacy_.plot()
    PCA(1, epsilon=1.0).fit(together)
    total = together.privacy_
    (chart,) = total.plot().charts
    assert lengths(chart)["analyst"] == total.epsilon("analyst")
    assert 3.0 in [bar.limit for bar in chart.bars], "the cap"


@pytest.mark.parametrize("row", [row for row in registry.rows() if registry.load(row.kind).why_not_run is None])
def test_every_kind_that_can_be_run_has_a_picture(row: registry.ModelKind) -> None:
    assert registry.load(row.kind).picture is not Estimator.picture


def test_what_has_no_picture_says_so() -> None:
    model = PCA(1, epsilon=1.0)
    for draw, said in ((model.plot, "ST073"), (partial(Estimator.picture, model), ("ST067", "pca"))):
        with raises(StudyError, said):
            draw()


def test_the_strongest_columns_are_the_surest_and_small_numbers_have_digits_enough() -> None:
    sure, large, none = Estimate(1.0, 0.1), Estimate(3.0, 2.0), Estimate(0.0, 1.0)
    assert strongest([[none, large, sure]], 2) == [2, 1]
    assert strongest([[0.1, -0.4, 0.2]], 3) == [1, 2, 0]
    assert strongest([], 3) == []
    assert [digits(values) for values in ([3.0, -0.2], [0.004], [], [0.0])] == [2, 4, 2, 2]
