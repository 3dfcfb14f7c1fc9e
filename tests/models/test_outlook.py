"""The forecasts follow from public numbers, and are about what noise really does."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade import GLM, PCA, LinearRegression, LogisticRegression, SplitClassifier, Synthesizer
from colonnade.models import Roster
from colonnade.models.outlook import Outlook
from colonnade.tables import population
from colonnade.testing.seeded import seeded

PEOPLE = population(600)
ROSTER = Roster.of(PEOPLE.feature_schemas)
TABLES = {name: PEOPLE.table(name).select(ROSTER.schemas[name].names).sorted_by_id() for name in PEOPLE.parties}
LABEL = "bank.mortgage"


def forecast(model, rows=600):
    task = model.plan(ROSTER)
    return task, model.outlook(ROSTER, task, rows)


def test_an_error_that_falls_with_the_number_of_people():
    few = Outlook.falling("a number", 0.1, 417.3, 1000)
    assert (few.error, few.people, few.too_few) == (0.4173, 4200, True)
    assert few.forecast == "FORECAST for 1,000 people: noise moves a number by about 0.42; 0.1 takes about 4,200 people"
    assert few.warning is not None
    assert few.warning.endswith("it takes about 4,200 people, or about 4.2 times the epsilon")
    enough = Outlook.falling("a number", 0.1, 417.3, 5000)
    assert (enough.too_few, enough.warning) == (False, None)
    unknown = Outlook.falling("a number", 0.1, 417.3, None)
    assert (unknown.error, unknown.too_few, unknown.warning) == (None, False, None)
    assert unknown.forecast == "FORECAST: it takes about 4,200 people until noise moves a number by no more than 0.1"
    assert Outlook.falling("a number", 0.1, 0.001, None).people == 1
    lost = Outlook("it", 0.5, 10, 0.9, None)
    assert "many more people" in (lost.warning or "")


@pytest.mark.parametrize("method", ["moments", "power"])
def test_components(method):
    model = PCA(2, epsilon=1.0, delta=1e-5, method=method)
    task, found = forecast(model)
    assert found.people == model.outlook(ROSTER, task, None).people
    half, _ = forecast(PCA(2, epsilon=0.5, delta=1e-5, method=method))
    assert model.outlook(ROSTER, task, 1200).error == pytest.approx(found.error / 2)
    assert model.outlook(ROSTER, half, 600).error == pytest.approx(2 * found.error, rel=0.25)


def test_noise_moves_the_variance_of_a_component_as_far_as_said():
    model = PCA(2, epsilon=1.0, delta=1e-5)
    task, found = forecast(model)
    exact = np.hstack([table.matrix() for table in TABLES.values()])
    noisy = model.simulated(TABLES, task, seeded(11)).second_moments - exact.T @ exact
    share = sum(block.clip**2 for block in task.blocks) / (2 * len(task.names))
    # The largest eigenvalue of so many columns is within a few percent of its limit; the draw is always the same.
    assert np.abs(np.linalg.eigvalsh(noisy)).max() / 600 / share == pytest.approx(found.error, rel=0.2)


def test_noise_moves_marginals_as_far_as_said():
    model = Synthesizer(epsilon=1.0, delta=1e-5)
    task, found = forecast(model)
    clear, _ = forecast(Synthesizer(epsilon=50.0, delta=1e-5))

    def cells(planned):
        return [
            each.values for each in model.simulated(TABLES, planned, seeded(12)).residuals() if len(each.columns) == 2
        ]

    off = [np.abs(noisy - exact).sum() / 2 / 600 for noisy, exact in zip(cells(task), cells(clear), strict=True)]
    assert np.mean(off) == pytest.approx(found.error, rel=0.1)  # exact answers have a fiftieth of the noise


def test_noise_moves_probabilities_about_as_far_as_said():
    encoded = np.hstack([table.matrix() for table in TABLES.values()])
    names = [f"{party}.{name}" for party, table in TABLES.items() for name in table.schema.encoded_names]

    def fitted(epsilon):
        model = LogisticRegression(label=LABEL, epsilon=epsilon, delta=1e-5, method="one-shot")
        task, found = forecast(model)
        model.conclude(ROSTER, task, model.simulated(TABLES, task, seeded(13)))
        columns = [names.index(name) for name in model.feature_names_in_]
        return 1 / (1 + np.exp(-(encoded[:, columns] @ model.coef_[0] + model.intercept_[0]))), found.error

    clear, _ = fitted(60.0)
    noisy, expected = fitted(10.0)
    moved = float(np.sqrt(np.mean((noisy - clear) ** 2)))
    assert expected / 4 < moved < 4 * expected  # rough, as the page says


def test_every_kind_with_a_figure_has_one_that_needs_no_data():
    for model in (
        LinearRegression(label="bank.age", epsilon=1.0, delta=1e-5),
        LogisticRegression(label=LABEL, epsilon=1.0, delta=1e-5, method="sqm", rows=600, epochs=1),
        SplitClassifier(label=LABEL, epsilon=1.0, delta=1e-5),
        GLM(label=LABEL, epsilon=1.0, delta=1e-5, rows=600),
    ):
        task, found = forecast(model)
        assert found.rows == 600
        assert found.too_few
        assert found.people > 600
        assert model.outlook(ROSTER, task, 600) == found
    exchanged = GLM(label=LABEL, epsilon=1.0, delta=1e-5, rows=600, weight_bound=1.0)
    assert forecast(exchanged)[1] is None  # nothing was guessed of the signal
