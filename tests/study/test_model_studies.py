"""Studies of every kind of model from end to end, in threads over TLS."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from colonnade.cli import initialise, show
from colonnade.cli.publish import publish
from colonnade.errors import BudgetError, PolicyError, StudyError
from colonnade.models import Estimator
from colonnade.privacy import Ledger, NonPrivate, Observer, Statement
from colonnade.privacy.rows import rounded_up
from colonnade.study import PartyConfig, Study, preflight
from colonnade.study.local import folder_of
from colonnade.tables import population
from tests.support.errors import raises
from tests.support.studies import check_words, play, runnable_text, scatter

ROWS = 600
PARTIES = ("bank", "shop", "clinic")
COLUMNS = {"bank": ["income", "arrears", "default"], "shop": ["basket", "discounts"], "clinic": ["bmi", "smoker"]}
LABELLED = 'label = "bank.default"\nrows_at_most = 10_000\n'
ONE_SHOT = f'kind = "logistic"\nmethod = "one-shot"\n{LABELLED}'
SQM = f'kind = "logistic"\nmethod = "sqm"\nrows = {ROWS}\nrate = 0.1\nepochs = 1\n{LABELLED}'
FUNCTIONAL = f"""\
kind = "logistic"
method = "functional"
{LABELLED}epsilon_by_party = {{ bank = 3.0, shop = 2.0, clinic = 1.0 }}
"""
LINEAR = 'kind = "linear"\nlabel = "shop.basket"\nnoise = "discrete-gaussian"\n'
POLYNOMIAL = 'kind = "polynomial"\nexpressions = ["bank.income * shop.basket", "clinic.bmi^2"]\nrows_at_most = 10_000\n'
PREDICTION = 'kind = "prediction"\nmodel = "model.json"\nto = "bank"\n'
NOISY = "[budget]\nepsilon = { analyst = 4.0 }\n"
FOR_BANK = "[budget]\nepsilon = { bank = 2.0 }\n"
GENEROUS = "epsilon = { analyst = 100.0, coordinator = 100.0 }"
CAPS = "epsilon = { analyst = 3.0, coordinator = 3.0, party = 3.0 }"


class Place:
    """One folder with everyone's keys, tables and policies, in which studies are written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        people = population(ROWS)
        people.write(folder / "tables")
        (folder / "schemas").mkdir()
        for place, name in enumerate(PARTIES):
            scatter(folder / "tables" / f"{name}.csv", place)
            people.schemas[name].save(folder / "schemas" / f"{name}.toml")
            initialise.party(name, folder / name, f"../tables/{name}.csv", "person_id", "auto-within-budget")
            self.allow(name, GENEROUS)
        self.pins = ""
        self.pins = initialise.trial(self.study("keys", 'kind = "pca"\n', NOISY).path)

    def allow(self, name: str, caps: str, exact: str = "") -> PartyConfig:
        """Change what a party agrees to."""
        path = self.folder / name / "party.toml"
        text = re.sub(
            r"^tasks = .*$", 'tasks = ["linear", "logistic", "polynomial", "prediction"]', path.read_text(), flags=re.M
        )
        text = re.sub(r"^epsilon = .*$", caps, text, count=1, flags=re.M)
        text = re.sub(r"^(# )?exact = .*$", exact or "# exact = []", text, count=1, flags=re.M)
        path.write_text(text)
        return PartyConfig.load(path)

    def study(self, name: str, task: str, budget: str, **columns: list[str]) -> Study:
        """A study of all three parties, with the columns given or a few of each."""
        chosen, align = COLUMNS | columns, '[align]\non = "person_id"\n'
        path = self.folder / f"{name}.toml"
        path.write_text(runnable_text(name, task, budget, chosen, align, self.pins))
        return Study.load(path)

    def run(self, study: Study) -> dict[str, Estimator]:
        """Play a study in threads and publish it."""
        out = self.folder / "runs" / study.name
        models = play(study, out)
        publish(study, out, {name: folder_of(out, name) for name in models})
        return models

    def played(self, name: str, task: str, budget: str) -> tuple[Study, dict[str, Estimator], str]:
        """A study, everybody's model and the page."""
        study = self.study(name, task, budget)
        return study, self.run(study), self.report(study)

    def spent(self, name: str) -> float:
        """What the bank may have learned from this party."""
        return Ledger(self.folder / name / "ledger.sqlite").spent(Observer.party("bank"), 1e-5)

    def common(self) -> set[str]:
        """Whom all parties hold."""
        tables = [(self.folder / "tables" / f"{name}.csv").read_text().split()[1:] for name in PARTIES]
        return set.intersection(*({line.split(",")[0].strip('"') for line in lines} for lines in tables))

    def report(self, study: Study) -> str:
        return (self.folder / "runs" / study.name / "report.html").read_text()

    def facts(self, study: Study) -> dict:
        return json.loads((self.folder / "runs" / study.name / "run.json").read_text())


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    return Place(tmp_path_factory.mktemp("studies") / "s")


@pytest.fixture(autouse=True)
def _generous_again(place):
    """Each test leaves empty ledgers and generous policies behind."""
    yield
    for name in PARTIES:
        for path in (place.folder / name).glob("ledger.sqlite*"):
            path.unlink()
        place.allow(name, GENEROUS)


@pytest.fixture(scope="module")
def regression(place) -> Study:
    """A logistic regression, whose model lies beside the other studies then."""
    study = place.study("one-shot", ONE_SHOT, NOISY)
    place.run(study)
    shutil.copy(place.folder / "runs" / study.name / "model.json", place.folder / "model.json")
    return study


# --- regressions


def test_a_one_shot_regression(place, regression):
    out = place.folder / "runs" / regression.name
    places = [out, *(out / "parties" / name for name in PARTIES)]
    first, *others = [Estimator.load(each / "model.json") for each in places]
    assert all(np.array_equal(model.coef_, first.coef_) for model in others)
    assert first.coef_.shape == (1, 6)
    assert first.privacy_.epsilon("analyst") <= 4.0
    facts = place.facts(regression)["task"]
    assert (facts["law"], facts["columns"], facts["label"]) == ("skellam", 7, "bank.default")
    assert int(facts["noise"]) == regression.task.noise
    protected = [f"{name} {rounded_up(first.protection_[name])}" for name in PARTIES]
    told = ("logistic regression of bank.default on 6 columns, by one-shot", "intercept")
    check_words("\n".join(first.summary()), *told, *protected)
    shown = ("one logistic regression on 6 columns", "Coefficients", "Intercept", "Ridge", "bank.default")
    check_words(place.report(regression), *shown)
    assert all(Ledger(place.folder / name / "ledger.sqlite").entries()[0].state == "committed" for name in PARTIES)


def test_an_iterative_regression_opens_a_gradient_a_round(place):
    study, models, page = place.played("sqm", SQM, NOISY)
    answer = preflight(study)
    assert answer.details.facts == {"steps": 10, "sampling": "poisson", "batch": 60, "people": ROWS}
    assert (answer.run.rows, answer.run.rounds > 10) == (ROWS, True)
    assert "10 openings, each about a random batch of 60 of 600 people" in show.preflight(answer)
    assert all(np.array_equal(model.coef_, models["coordinator"].coef_) for model in models.values())
    task = place.facts(study)["task"]
    assert (task["rounds"], task["sampling"]) == (10, "poisson")
    check_words(page, "Rounds", "poisson, 60 people", "sqm")


def test_the_functional_mechanism_at_prices_of_the_parties(place):
    study, models, page = place.played("functional", FUNCTIONAL, "")
    answer, model = preflight(study), models["coordinator"]
    assert answer.binding is answer.to_dict()["binding"] is None
    assert answer.run.law == "discrete-laplace"
    for name, allowed in (("bank", 3.0), ("shop", 2.0), ("clinic", 1.0)):
        assert 0 < model.protection_[name] <= allowed
    assert math.isfinite(model.privacy_.epsilon("bank"))
    check_words(page, "What the result tells about each party", "discrete-laplace")


def test_a_linear_regression_and_sums_of_polynomials(place):
    _, models, page = place.played("linear", LINEAR, NOISY)
    assert models["shop"].kind == "linear"
    assert "shop.basket" not in models["shop"].feature_names_in_
    assert "one linear regression on 6 columns" in page
    _, models, page = place.played("sums", POLYNOMIAL, NOISY)
    sums = models["clinic"]
    assert len(sums.values_) == len(sums.deviations_) == 2
    assert all(deviation > 0 for deviation in sums.deviations_)
    check_words("\n".join(sums.summary()), *sums.expressions_)
    check_words(page, *sums.expressions_, "2 sums over the columns of all parties")


# --- predictions


def test_predictions_are_for_one_partys_eyes(place, regression):
    study, models, page = place.played("noisy", PREDICTION, FOR_BANK)
    assert "default" not in study.roster.schemas["bank"].names, "new people need no label"
    new = place.study("new", PREDICTION, FOR_BANK, bank=["income", "arrears"])
    assert new.roster.schemas["bank"].names == ("income", "arrears")
    assert new.task.names == study.task.names
    assert set(models["bank"].ids_) == place.common()
    out, secret = place.folder / "runs" / study.name, models["bank"].ids_[0]
    for path in [path for path in out.rglob("*") if path.is_file()]:
        assert (secret in path.read_text()) == (path == out / "parties" / "bank" / "model.json"), path
    check_words(page, "predictions for bank", "noisy scores of the people of this study")
    assert "in its model.json and nowhere else" in "\n".join(models["shop"].summary())
    assert f"scores of {len(place.common())} people, told to bank alone" in "\n".join(models["bank"].summary())


def test_a_noisy_prediction_is_charged_to_those_who_tell(place, regression):
    study = place.study("charged", PREDICTION, FOR_BANK)
    (event,) = study.events
    assert event.audience == ("bank",)
    bank, shop = (place.allow(name, CAPS) for name in ("bank", "shop"))
    assert shop.charged(study) == (event,)
    assert Statement.of(bank.charged(study), study.roster.trust, 1e-5).epsilon("bank") == 0
    bank.check_budget(study)
    strict = place.allow("shop", CAPS.replace("party = 3.0", "party = 1.0"))
    with raises(BudgetError, "BU002"):
        strict.check_budget(study)


def test_levels_are_told_by_each_party_and_charged_to_those_who_tell(place, regression):
    plain = place.study("plain", PREDICTION + 'answers = "noise"\n', FOR_BANK)
    assert plain.content.task.unsaid == {"answers"}
    assert plain.task == place.study("plain", PREDICTION, FOR_BANK).task
    study = place.study("levels", PREDICTION + 'answers = "levels"\n', FOR_BANK)
    assert study.content.task.unsaid == set()
    assert {event.audience for event in study.events} == {("bank",)}
    assert study.statement.epsilon("bank") <= 2.0
    text = show.preflight(preflight(study))
    assert "levels of each person's score, answered at random to bank: " in text
    teller = study.events[0].holder
    bank, other = (place.allow(name, CAPS) for name in ("bank", teller))
    assert set(other.charged(study)) == set(study.events)
    assert Statement.of(bank.charged(study), study.task.trust, 1e-5).epsilon("bank") == 0
    strict = place.allow(teller, CAPS.replace("party = 3.0", "party = 1.0"))
    with raises(BudgetError, "BU002"):
        strict.check_budget(study)
    for name in PARTIES:
        place.allow(name, GENEROUS)
    models = place.run(study)
    joint = models["bank"].joint
    assert set(joint.ids) == place.common()
    assert (joint.probabilities.shape, joint.classes) == ((len(joint.ids), 2), [False, True])
    assert joint.own_scores.shape == joint.deviations.shape == joint.scores.shape
    assert models["shop"].learned() == models["clinic"].learned() == {}
    assert "answered at random" in place.report(study)
    assert 0 < place.spent(teller) < math.inf


def test_exact_answers_need_everybody_elses_word(place, regression):
    study = place.study("exact", PREDICTION + "exact = true\n", "")
    assert isinstance(study.events[0], NonPrivate)
    assert preflight(study).run.noise_std == 0
    uncapped = "epsilon = { analyst = 3.0, coordinator = 3.0, clinic = 3.0 }"
    shop = place.allow("shop", uncapped)
    with raises(PolicyError, "PO022", "bank", "shop"):
        shop.check(study)
    capped = place.allow("shop", CAPS, 'exact = ["bank"]')
    capped.check(study)
    with raises(BudgetError, "BU002"):
        capped.check_budget(study)
    place.allow("bank", CAPS).check(study)  # what is opened to the bank alone costs the bank nothing
    place.allow("shop", uncapped, 'exact = ["bank"]')
    place.allow("clinic", uncapped.replace("clinic", "shop"), 'exact = ["bank"]')
    models = place.run(study)
    model = Estimator.load(place.folder / "model.json")
    tables = {
        name: PartyConfig.load(place.folder / name / "party.toml").table(s).take(models["bank"].ids_)
        for name, s in study.roster.schemas.items()
    }
    assert np.abs(models["bank"].scores_ - model.scores(tables)).max() < 1e-3
    assert [math.isinf(place.spent(name)) for name in PARTIES] == [False, True, True]
    assert "no noise" in show.preflight(preflight(study))


def test_everyone_must_hold_the_same_model(place, regression):
    study, path = place.study("digest", PREDICTION, FOR_BANK), place.folder / "model.json"
    first = study.digest
    text = path.read_text()
    path.write_text(text + "\n")
    assert Study.load(study.path).digest != first
    path.write_text(text.replace('"kind": "logistic"', '"kind": "pca"'))
    with raises(StudyError, "ST091", "model.json"):
        Study.load(study.path)
    path.unlink()
    with raises(StudyError, "ST098", "model.json"):
        Study.load(study.path)
    path.write_text(text)
    assert Study.load(study.path).digest == first
