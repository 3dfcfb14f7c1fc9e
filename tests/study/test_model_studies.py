"""Studies of every kind of model from end to end, in threads over TLS."""

from __future__ import annotations

import csv
import json
import math
import shutil

import numpy as np
import pytest

from colonnade.cli import text_output
from colonnade.errors import BudgetError, PolicyError, StudyError
from colonnade.federation.checks import private_forecast
from colonnade.models import Estimator
from colonnade.privacy import Ledger, NonPrivate, Statement
from colonnade.privacy.statement import format_rounded_up
from colonnade.study import Study, preflight
from colonnade.study.doctor import examine
from colonnade.study.local import folder_of
from colonnade.study.record import read_facts
from colonnade.tables.partitioning import stage_table
from tests.support.errors import raises
from tests.support.places import Place
from tests.support.studies import check_words

ROWS = 200
COLUMNS = {"bank": ["income", "arrears", "default"], "shop": ["basket", "discounts"], "clinic": ["bmi", "smoker"]}
LABELLED = 'label = "bank.default"\nrows_at_most = 10_000\n'
ONE_SHOT = f'kind = "logistic"\nmethod = "one-shot"\n{LABELLED}'
SQM = f'kind = "logistic"\nmethod = "sqm"\nrows = {ROWS}\nrate = 0.25\nepochs = 1\n{LABELLED}'
BY_PARTY = "epsilon_by_party = { bank = 3.0, shop = 2.0, clinic = 1.0 }\n"
FUNCTIONAL = f'kind = "logistic"\nmethod = "functional"\n{LABELLED}{BY_PARTY}'
LINEAR = 'kind = "linear"\nlabel = "shop.basket"\nrows_at_most = 10_000\n'
POLYNOMIAL = 'kind = "polynomial"\nexpressions = ["bank.income * shop.basket", "clinic.bmi^2"]\nrows_at_most = 10_000\n'
PREDICTION = 'kind = "prediction"\nmodel = "model.json"\nto = "bank"\n'
NOISY = "[budget]\nepsilon = { analyst = 4.0 }\n"
FOR_BANK = "[budget]\nepsilon = { bank = 2.0 }\n"
GENEROUS = "analyst = 100.0, coordinator = 100.0"
CAPS = "{ analyst = 3.0, coordinator = 3.0, party = 3.0 }"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    kinds = '"linear", "logistic", "polynomial", "prediction"'
    place = Place(tmp_path_factory.mktemp("studies"), COLUMNS, kinds, GENEROUS, 'kind = "pca"\n', ROWS, align=True)
    study = place.study("one-shot", ONE_SHOT, NOISY)
    out, _ = place.run(study)
    shutil.copy(out / "model.json", place.folder / "model.json")
    return place, study, out


@pytest.fixture
def place(fitted, tmp_path):
    found = fitted[0].copied(tmp_path / "s")
    for ledger in found.folder.glob("*/ledger.sqlite*"):
        ledger.unlink()
    return found


def blank_labels(place, count):
    """Empty the label of some people of the bank's, and return who they are."""
    path = place.folder / "tables" / "bank.csv"
    head, *rows = csv.reader(path.read_text().splitlines())
    at = head.index("default")
    for row in rows[:count]:
        row[at] = ""
    path.write_text("".join(f"{','.join(row)}\n" for row in (head, *rows)))
    return {row[0] for row in rows[:count]}


@pytest.mark.parametrize(
    "task",
    [
        ONE_SHOT,
        f'kind = "glm"\nfamily = "logistic"\n{LABELLED.partition("rows")[0]}rows = {ROWS}\n',
        f'kind = "split-classifier"\n{LABELLED}',
        f'kind = "synthetic"\n{LABELLED}',
    ],
    ids=["logistic", "glm", "split", "synthetic"],
)
def test_whoever_has_no_label_is_left_off_the_list_of_its_owner(place, tmp_path, task):
    study, config, shop = place.study("labels", task), place.config("bank"), place.config("shop")
    blank = blank_labels(place, 7)
    own = study.roster.schemas["bank"]
    assert (study.label_of("bank"), study.label_of("shop")) == ("default", None)
    found = config.table(own, study.aligning.plan, "default").keys
    assert (found.unlabelled, found.missing, found.repeated) == (7, 0, 0)
    everybody = config.table(own, study.aligning.plan).keys
    assert set(everybody.values) - set(found.values) == {
        value for value in everybody.values if value[4:].decode() in blank
    }
    assert shop.table(study.roster.schemas["shop"], study.aligning.plan, study.label_of("shop")).keys.unlabelled == 0
    staged = stage_table(config.data, own, study.aligning.plan, tmp_path, misfits="map", label="default")
    assert (staged.keys, staged.unlabelled, staged.missing) == (len(found), 7, 0)
    staged.remove()
    told = {name: {check.what: check for check in examine(study.path, place.config_file(name))} for name in COLUMNS}
    assert "labels" not in told["shop"]
    check_words(
        told["bank"]["labels"].detail, "7 of ", "stay off the list of keys, of which others see the length at most"
    )
    assert (told["bank"]["labels"].level, told["bank"]["table"].level) == ("unsure", "good")
    assert "7 without a label" in told["bank"]["keys"].detail
    assert private_forecast(study, config)["labels"] == f"labels: {told['bank']['labels'].detail}"
    assert private_forecast(study, shop)["labels"] is None
    assert f"bank's labels: {told['bank']['labels'].detail}" in text_output.own_forecast(study, [config, shop])
    assert "label" not in text_output.own_forecast(study, [shop])
    schema = place.folder / "schemas" / "bank.toml"
    schema.write_text(schema.read_text().replace('"flag"', '"flag"\nmissing = false'))
    again = Study.load(study.path)
    assert config.table(again.roster.schemas["bank"], again.aligning.plan, "default").keys.unlabelled == 0
    checks = {check.what: check.detail for check in examine(study.path, place.config_file("bank"))}
    assert "7 of " in checks["labels"]


def test_a_run_is_about_people_with_labels_and_nobody_else_is_told(place):
    study = place.study("labels", ONE_SHOT, NOISY)
    blank_labels(place, 7)
    out, _ = place.run(study)
    records = {name: read_facts(folder_of(out, name)) for name in COLUMNS}
    assert [records[name]["alignment"].get("unlabelled") for name in COLUMNS] == [7, None, None]
    left = [name for name, facts in records.items() if "unlabelled" in json.dumps(facts)]
    assert (left, "unlabelled" in (out / "run.json").read_text()) == (["bank"], False)
    assert read_facts(out)["alignment"]["rows"]["bank"] == records["bank"]["alignment"]["rows"] - 7


def played(place, name, task, budget):
    study = place.study(name, task, budget)
    out, models = place.run(study)
    return study, models, (out / "report.html").read_text()


def capped(place, name, epsilon):
    place.set(name, "epsilon", epsilon)
    return place.config(name)


def common(place):
    tables = [(place.folder / "tables" / f"{name}.csv").read_text().split()[1:] for name in COLUMNS]
    return set.intersection(*({line.split(",")[0].strip('"') for line in lines} for lines in tables))


# --- regressions


def test_a_one_shot_regression(fitted):
    place, study, out = fitted
    first, *others = [Estimator.load(each / "model.json") for each in (out, *(out / "parties").iterdir())]
    assert all(np.array_equal(model.coef_, first.coef_) for model in others)
    assert first.coef_.shape == (1, 6)
    assert first.privacy_.epsilon("analyst") <= 4.0
    facts = json.loads((out / "run.json").read_text())["task"]
    assert (facts["law"], facts["columns"], facts["label"]) == ("skellam", 7, "bank.default")
    assert int(facts["noise"]) == study.task.noise
    protected = [f"{name} {format_rounded_up(first.protection_[name])}" for name in COLUMNS]
    told = ("logistic regression of bank.default on 6 columns, by one-shot", "intercept")
    check_words("\n".join(first.summary()), *told, *protected)
    shown = ("one logistic regression on 6 columns", "Coefficients", "Intercept", "Ridge", "bank.default")
    check_words((out / "report.html").read_text(), *shown)
    assert all(Ledger(place.folder / name / "ledger.sqlite").entries()[0].state == "committed" for name in COLUMNS)


def test_an_iterative_regression_opens_a_gradient_a_round(place):
    study, models, page = played(place, "sqm", SQM, NOISY)
    answer = preflight(study)
    assert answer.details.facts == {"steps": 4, "sampling": "poisson", "batch": 50, "people": ROWS}
    assert (answer.run.rows, answer.run.rounds > 4) == (ROWS, True)
    assert "4 openings, each about a random batch of 50 of 200 people" in text_output.preflight(answer)
    assert all(np.array_equal(model.coef_, models["coordinator"].coef_) for model in models.values())
    check_words(page, "Rounds", "poisson, 50 people", "sqm")


def test_the_functional_mechanism_at_prices_of_the_parties(place):
    study, models, page = played(place, "functional", FUNCTIONAL, "")
    answer, model = preflight(study), models["coordinator"]
    assert answer.binding is answer.to_dict()["binding"] is None
    assert answer.run.law == "discrete-laplace"
    for name, allowed in (("bank", 3.0), ("shop", 2.0), ("clinic", 1.0)):
        assert 0 < model.protection_[name] <= allowed
    assert math.isfinite(model.privacy_.epsilon("bank"))
    check_words(page, "What the result tells about each party", "discrete-laplace")


def test_a_linear_regression_and_sums_of_polynomials(place):
    _, models, page = played(place, "linear", LINEAR, NOISY)
    assert models["shop"].kind == "linear"
    assert "shop.basket" not in models["shop"].feature_names_in_
    assert "one linear regression on 6 columns" in page
    _, models, page = played(place, "sums", POLYNOMIAL, NOISY)
    sums = models["clinic"]
    assert len(sums.values_) == len(sums.deviations_) == 2
    assert all(deviation > 0 for deviation in sums.deviations_)
    check_words(page, *sums.expressions_, "2 sums over the columns of all parties")


# --- predictions


def test_predictions_are_for_one_partys_eyes(place):
    study, models, page = played(place, "noisy", PREDICTION, FOR_BANK)
    assert "default" not in study.roster.schemas["bank"].names, "new people need no label"
    assert set(models["bank"].ids_) == common(place)
    out, secret = place.folder / "runs" / study.name, models["bank"].ids_[0]
    for path in [path for path in out.rglob("*") if path.is_file()]:
        assert (secret in path.read_text()) == (path == out / "parties" / "bank" / "model.json"), path
    check_words(page, "predictions for bank", "noisy scores of the people of this study")
    assert "in its model.json and nowhere else" in "\n".join(models["shop"].summary())
    assert f"scores of {len(common(place))} people, told to bank alone" in "\n".join(models["bank"].summary())


def test_a_noisy_prediction_is_charged_to_those_who_tell(place):
    study = place.study("charged", PREDICTION, FOR_BANK)
    (event,) = study.events
    assert event.audience == ("bank",)
    bank, shop = (capped(place, name, CAPS) for name in ("bank", "shop"))
    assert shop.charged_events(study) == (event,)
    assert Statement.of(bank.charged_events(study), study.roster.trust, 1e-5).epsilon("bank") == 0
    bank.check_budget(study)
    with raises(BudgetError, "BU002"):
        capped(place, "shop", CAPS.replace("party = 3.0", "party = 1.0")).check_budget(study)


def test_levels_are_told_by_each_party_and_charged_to_those_who_tell(place):
    plain = place.study("plain", PREDICTION + 'answers = "noise"\n', FOR_BANK)
    assert plain.content.task.defaulted_keys == {"answers"}
    assert plain.task == place.study("plain", PREDICTION, FOR_BANK).task
    study = place.study("levels", PREDICTION + 'answers = "levels"\n', FOR_BANK)
    assert study.content.task.defaulted_keys == set()
    assert {event.audience for event in study.events} == {("bank",)}
    assert study.statement.epsilon("bank") <= 2.0
    assert "levels of each person's score, answered at random to bank: " in text_output.preflight(preflight(study))
    teller = study.events[0].holder
    assert set(place.config(teller).charged_events(study)) == set(study.events)
    assert Statement.of(place.config("bank").charged_events(study), study.task.trust, 1e-5).epsilon("bank") == 0
    out, models = place.run(study)
    joint = models["bank"].joint
    assert set(joint.ids) == common(place)
    assert (joint.probabilities.shape, joint.classes) == ((len(joint.ids), 2), [False, True])
    assert joint.own_scores.shape == joint.deviations.shape == joint.scores.shape
    assert models["shop"].learned_values() == models["clinic"].learned_values() == {}
    assert "answered at random" in (out / "report.html").read_text()
    assert 0 < place.spent(teller, "bank") < math.inf
    with raises(BudgetError, "BU002"):
        capped(place, teller, CAPS.replace("party = 3.0", "party = 1.0")).check_budget(study)


def test_exact_answers_need_everybody_elses_word(place):
    study = place.study("exact", PREDICTION + "exact = true\n", "")
    assert isinstance(study.events[0], NonPrivate)
    assert preflight(study).run.noise_std == 0
    assert "no noise" in text_output.preflight(preflight(study))
    uncapped = "{ analyst = 3.0, coordinator = 3.0, clinic = 3.0 }"
    with raises(PolicyError, "PO022", "bank", "shop"):
        capped(place, "shop", uncapped).check(study)
    for name in ("shop", "clinic"):
        place.set(name, "exact", '["bank"]')
    shop = capped(place, "shop", CAPS)
    shop.check(study)
    with raises(BudgetError, "BU002"):
        shop.check_budget(study)
    place.config("bank").check(study)  # what is opened to the bank alone costs the bank nothing
    capped(place, "shop", uncapped)
    _, models = place.run(study)
    model = Estimator.load(place.folder / "model.json")
    schemas = study.roster.schemas
    tables = {name: place.config(name).table(schemas[name]).take(models["bank"].ids_) for name in schemas}
    assert np.abs(models["bank"].scores_ - model.scores(tables)).max() < 1e-3
    assert [math.isinf(place.spent(name, "bank")) for name in COLUMNS] == [False, True, True]


def test_everyone_must_hold_the_same_model(place):
    study, path = place.study("digest", PREDICTION, FOR_BANK), place.folder / "model.json"
    first, text = study.digest, path.read_text()
    path.write_text(text + "\n")
    assert Study.load(study.path).digest != first
    path.write_text(text.replace('"kind": "logistic"', '"kind": "pca"'))
    with raises(StudyError, "ST091", "model.json"):
        Study.load(study.path)
    path.unlink()
    with raises(StudyError, "ST098", "model.json"):
        Study.load(study.path)
