"""Pictures of fitted models: bars, intervals and colours are those of the estimates, and nothing else is read."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

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
    SplitClassifier,
    SplitRegressor,
    Synthesizer,
)
from colonnade.errors import ColonnadeError, PrivacyError, StudyError
from colonnade.models import registry
from colonnade.models.base import Estimator
from colonnade.models.pictures.estimated import digits, strongest
from colonnade.models.predicted import JointScores
from colonnade.pictures.look import LIGHT
from tests.pictures.reading import colour, intervals, lengths, notes, written
from tests.support.errors import raises
from tests.support.federations import made_up
from tests.support.models import simulated

ROWS = 300
PARTIES = ("bank", "shop", "clinic")


@cache
def people(label: str = "default") -> Federation:
    return made_up(ROWS, label, PARTIES)


def fitted(model: Any, label: str = "default") -> Any:
    return simulated(model, people(label))


@cache
def logistic() -> LogisticRegression:
    found: LogisticRegression = fitted(LogisticRegression(label="bank.default", epsilon=30.0))
    return found


def linear() -> LinearRegression:
    found: LinearRegression = fitted(LinearRegression(label="bank.amount", epsilon=30.0), "amount")
    return found


def whole(value: Estimate) -> tuple[float, float]:
    return value.low, value.high


def test_weights_have_the_lengths_and_intervals_of_the_estimates() -> None:
    model = logistic()
    (ax,) = model.plot().axes
    found = {name: value for own in model.coefficients().values() for name, value in own.items()}
    assert lengths(ax) == pytest.approx({name: float(value) for name, value in found.items()})
    assert intervals(ax) == {name: pytest.approx(whole(value)) for name, value in found.items()}
    for name, value in found.items():
        right = LIGHT.positive if value > 0 else LIGHT.negative
        assert colour(ax, name) == (right if value.clear else LIGHT.grey), name
    assert {value.clear for value in found.values()} == {True, False}, "both colours were there to be seen"
    assert {"bank", "shop", "clinic"} <= set(written(ax)), "by party"
    assert "95 % interval" in notes(ax)


def test_of_several_classes_weights_are_cells() -> None:
    model = fitted(LogisticRegression(label="bank.kind", epsilon=30.0), "kind")
    (ax,) = model.plot().axes
    shown = [model.estimate(row, place) for place in range(len(model.feature_names_in_)) for row in range(3)]
    assert sorted(written(ax)) == sorted(value.text(2).replace("-", "\N{MINUS SIGN}") for value in shown)
    assert [label.get_text() for label in ax.get_xticklabels()] == model.row_names == ["low", "middle", "high"]


def test_models_without_error_bars_have_no_intervals() -> None:
    model = linear()
    model.bar(None, None)
    (ax,) = model.plot().axes
    assert not intervals(ax)
    assert LIGHT.grey not in {colour(ax, name) for name in lengths(ax)}
    assert "interval" not in notes(ax)


def test_components_show_variances_and_loadings() -> None:
    model = fitted(PCA(3, epsilon=60.0))
    top, below = model.plot().axes
    variances = model.variances()
    assert lengths(top) == {f"component {k + 1}": float(value) for k, value in enumerate(variances)}
    assert intervals(top) == {f"component {k + 1}": whole(value) for k, value in enumerate(variances)}
    for k, clear in enumerate(model.clear):
        assert colour(top, f"component {k + 1}") == (LIGHT.series[0] if clear else LIGHT.grey)
    cells = [model.loadings(k + 1)[name] for name in model.feature_names_in_ for k in range(3)]
    assert written(below) == [value.text().replace("-", "\N{MINUS SIGN}") for value in cells]
    greys = [patch.get_facecolor()[3] == pytest.approx(0.45) for patch in below.patches]
    assert greys == [not value.clear for value in cells]


def test_released_weights_of_a_model_over_messages_are_drawn_and_kept_ones_are_not() -> None:
    model = fitted(GLM(label="bank.default", epsilon=8.0, release=True))
    (ax,) = model.plot().axes
    found = {name: value for own in model.coefficients().values() for name, value in own.items()}
    assert lengths(ax) == pytest.approx({name: float(value) for name, value in found.items()})
    model = fitted(GLM(label="bank.default", epsilon=8.0))
    assert set(model.kept_) == set(PARTIES), "they are in this process"
    (ax,) = model.plot().axes
    assert lengths(ax) == model.plan_["deviations"]
    assert "stays with it" in notes(ax)


def test_sums_have_their_intervals() -> None:
    model = fitted(PolynomialSum(["1", "bank.a * shop.c", "bank.a - shop.c"], epsilon=4.0))
    (ax,) = model.plot().axes
    assert lengths(ax) == {text: float(value) for text, value in model.estimates().items()}
    assert intervals(ax) == {text: whole(value) for text, value in model.estimates().items()}


def test_a_synthetic_table_has_a_panel_for_each_column() -> None:
    model = fitted(Synthesizer(epsilon=8.0, bins=6))
    axes = [ax for ax in model.plot().axes if ax.axison]
    released = model.marginals()
    assert [ax.get_title(loc="left") for ax in axes] == list(released)
    for ax, (name, shares) in zip(axes, released.items(), strict=True):
        fits = model.marginal(name).fitted / model.count_
        assert [patch.get_height() for patch in ax.patches] == pytest.approx(fits.tolist())
        assert [tuple(line.get_ydata()) for line in ax.lines[::2]] == [whole(value) for value in shares.values()]
        assert [line.get_ydata()[0] for line in ax.lines[1::2]] == [float(value) for value in shares.values()]


def test_a_committees_head_shows_how_far_each_party_moves_it_and_told_embeddings_their_noise() -> None:
    for model, label in (
        (SplitClassifier(label="bank.default", epsilon=8.0), "default"),
        (SplitRegressor(label="bank.amount", epsilon=8.0), "amount"),
    ):
        (ax,) = fitted(model, label).plot().axes
        weights, widths = model.public_["weights"], model.plan_["widths"]
        lead = weights[1] - weights[0] if len(weights) == 2 else weights[0]
        parts = np.split(lead, np.cumsum(list(widths.values()))[:-1])
        assert lengths(ax) == pytest.approx(
            {party: np.linalg.norm(own) for party, own in zip(widths, parts, strict=True)}
        )
    model = fitted(SplitClassifier(label="bank.default", epsilon=8.0, head="embeddings"))
    assert lengths(model.plot().axes[0]) == model.plan_["deviations"]


def test_received_scores_are_spread_over_people_for_the_receiver_alone() -> None:
    question = fitted(JointPrediction(logistic(), to="clinic", epsilon=4.0))
    (ax,) = question.plot().axes
    joint = question.joint
    told, own = ax.lines[:2]
    edges = np.asarray(told.get_xdata())
    for line, chances in ((told, joint.probabilities), (own, joint.own_probabilities)):
        counts = np.histogram(chances[:, 1], edges)[0]
        assert np.allclose(line.get_ydata()[:-1], counts / ROWS)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["all parties' columns", "own columns alone"]
    assert joint.plot().axes[0].get_xlabel() == ax.get_xlabel() == "chance of True, of 300 people"
    question.restore({})
    with raises(StudyError, "ST164"):
        question.plot()


def test_scores_of_several_classes_and_of_numbers_have_pictures() -> None:
    privacy = fitted(PCA(1, epsilon=1.0)).privacy_
    chances = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])
    several = JointScores(["a", "b"], chances, np.array(["x", "y"]), privacy, chances, classes=["x", "y", "z"])
    assert several.plot().axes[0].get_xlabel() == "chance of the most likely class, of 2 people"
    numbers = JointScores(["a"], np.array([[3.0]]), np.array([3.0]), privacy, own_predictions=np.array([2.0]))
    assert numbers.plot().axes[0].get_xlabel() == "predicted number, of 1 people"


def test_an_assessment_shows_ranking_and_calibration() -> None:
    found = logistic().assess(people())
    ranking, calibration = found.plot().axes
    assert list(zip(*ranking.lines[0].get_data(), strict=True)) == [pytest.approx(point) for point in found.roc]
    assert list(calibration.lines[0].get_ydata()) == [each.share for each in found.reliability]


def test_a_saved_model_is_drawn_without_anybodys_data(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = linear()
    monkeypatch.setattr(Party, "table", property(lambda _: pytest.fail("a picture looked at a table")))
    read = Estimator.load(model.save(tmp_path / "model.json"))
    assert lengths(read.plot().axes[0]) == pytest.approx(lengths(model.plot().axes[0]))


def test_what_a_federation_told_in_all_has_caps() -> None:
    together = made_up(60, caps={"analyst": 3.0})
    with raises(PrivacyError, "PR013"):
        together.privacy_.plot()
    PCA(1, epsilon=1.0).fit(together)
    total = together.privacy_
    (ax,) = total.plot().axes
    assert lengths(ax)["analyst"] == total.epsilon("analyst")
    assert 3.0 in [patch.get_width() for patch in ax.patches], "the cap"
    (left,) = total.left
    assert any(text.endswith(f"of 3, {left.left:g} left") for text in written(ax))


@pytest.mark.parametrize("row", [row for row in registry.rows() if registry.load(row.kind).why_not_run is None])
def test_every_kind_that_can_be_run_has_a_picture(row: registry.Kind) -> None:
    assert registry.load(row.kind).pictured is not Estimator.pictured


def test_a_model_that_is_not_fitted_and_a_kind_without_a_picture_say_so() -> None:
    with raises(StudyError, "ST073"):
        PCA(1, epsilon=1.0).plot()
    with raises(StudyError, "ST067", "pca"):
        Estimator.pictured(PCA(1, epsilon=1.0))


def test_without_matplotlib_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    model = logistic()
    for name in [name for name in sys.modules if name == "colonnade.pictures.canvas"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (model.plot, model.privacy_.plot):
        with raises(ColonnadeError, "ST404") as error:
            draw()
        assert "\n" not in str(error.value)


def test_the_strongest_columns_are_the_surest_and_small_numbers_have_digits_enough() -> None:
    sure, large, none = Estimate(1.0, 0.1), Estimate(3.0, 2.0), Estimate(0.0, 1.0)
    assert strongest([[none, large, sure]], 2) == [2, 1]
    assert strongest([[0.1, -0.4, 0.2]], 3) == [1, 2, 0]
    assert strongest([], 3) == []
    assert [digits(values) for values in ([3.0, -0.2], [0.004], [], [0.0])] == [2, 4, 2, 2]
