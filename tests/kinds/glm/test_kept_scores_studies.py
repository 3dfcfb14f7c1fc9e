"""Scores by kept weights as studies: only one party is told, every question is charged, and weights stay at home."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from colonnade.cli import initialise, show
from colonnade.cli.publish import publish
from colonnade.errors import NO_PART, BudgetError, ColonnadeError, PolicyError, StudyError
from colonnade.kinds import KeptScores
from colonnade.models import Estimator
from colonnade.privacy import Ledger, Observer
from colonnade.study import PartyConfig, Study, preflight, run_coordinator, run_party
from colonnade.study.local import folder_of, run_local
from colonnade.tables.centred import Centred
from tests.support.errors import raises
from tests.support.studies import InThread, outcomes, people_of, play, runnable_text

ROWS, NEW = 120, 40
PARTIES = ("bank", "shop")
COLUMNS = {"bank": ["income", "arrears", "default"], "shop": ["basket", "discounts", "tier"]}
FIT = f'kind = "glm"\nlabel = "bank.default"\nrows = {ROWS}\n'
ASK = 'kind = "glm-scores"\nmodel = "fit/model.json"\nrows_at_most = 100\n'


class Place:
    """A bank and a shop that have fitted a model together, and want to know about new people."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        people_of(ROWS).write(folder)
        (folder / "schemas").mkdir()
        for name in PARTIES:
            people_of(ROWS).schemas[name].save(folder / "schemas" / f"{name}.toml")
            initialise.party(name, folder / name, f"../{name}.csv", "person_id", "auto-within-budget")
            self.edit(name, 'tasks = ["pca"]', 'tasks = ["glm", "glm-scores"]')
            self.edit(name, "party = 3.0", "party = 30.0")
        self.pins = ""
        self.pins = initialise.trial(self.study("keys", FIT).path)
        for name in PARTIES:
            self.edit(name, '# kept = "kept.json"', f'kept = "../fit/parties/{name}/kept.json"')
        play(self.study("fit", FIT), folder / "fit")  # which writes what party files already name
        for name in PARTIES:
            self.renew(name)

    def renew(self, name: str) -> None:
        """New people, and of the bank no label."""
        path = self.folder / f"{name}.csv"
        head, *rows = [line.split(",") for line in path.read_text().splitlines()]
        new = [row for row in rows if row[0] <= f'"P{NEW:06}"']
        columns = [place for place, column in enumerate(head) if column != '"default"']
        lines = [",".join(row[place] for place in columns) + "\n" for row in (head, *new)]
        path.write_text("".join(lines).replace('"P0', '"N0'))

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.folder / name / "party.toml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def study(self, name: str, task: str = ASK, epsilon: str = "8.0", more: str = "") -> Study:
        budget = f"[budget]\nepsilon = {epsilon}\n{more}"
        path = self.folder / f"{name}.toml"
        path.write_text(runnable_text(name, task, budget, COLUMNS, "reconnect = 1\n", self.pins))
        return Study.load(path)

    def config(self, name: str) -> PartyConfig:
        return PartyConfig.load(self.folder / name / "party.toml")

    def kept(self, name: str) -> Path:
        return self.folder / "fit" / "parties" / name / "kept.json"

    def spent(self, name: str, observer: str) -> float:
        return Ledger(self.folder / name / "ledger.sqlite").spent(Observer.party(observer), 1e-5)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory) -> Path:
    """The folder after the fit, to be copied by whoever changes anything."""
    return Place(tmp_path_factory.mktemp("kept") / "place").folder


@pytest.fixture
def place(fitted, tmp_path) -> Place:
    copied = Place.__new__(Place)
    copied.folder = tmp_path / "place"
    shutil.copytree(fitted, copied.folder)
    copied.pins = Study.load(copied.folder / "fit.toml").content.pins
    return copied


def test_only_the_party_with_the_label_is_told_and_every_question_is_charged(place):
    study, out = place.study("ask"), place.folder / "run"
    before = {"bank": place.spent("bank", "shop"), "shop": place.spent("shop", "bank")}
    models = play(study, out)
    publish(study, out, {name: folder_of(out, name) for name in models})
    bank = Estimator.load(out / "parties" / "bank" / "model.json")
    assert isinstance(bank, KeptScores)
    assert len(bank.ids_) == len(set(bank.ids_)) == NEW
    assert bank.scores_.shape == (NEW, 1)
    assert np.isfinite(bank.scores_).all()
    assert set(bank.predictions_.tolist()) <= {False, True}
    assert np.array_equal(bank.predictions_, bank.scores_[:, 0] > 0)
    assert bank.to == bank.recipient == "bank"
    for folder in (out, out / "parties" / "shop"):
        other = Estimator.load(folder / "model.json")
        assert (other.ids_, other.scores_, other.predictions_) == (None, None, None)
        assert not (folder / "kept.json").exists()
    assert_nowhere_else(place, bank)
    assert "of 40 people, told to bank alone" in " ".join(bank.summary())
    assert "bank was told the noisy scores" in show.outcome(study, out, {})
    page = (out / "report.html").read_text()
    for word in ("by weights that each of them keeps", "noisy scores of shop", "in the model.json of bank and nowhere"):
        assert word in page
    facts = json.loads((out / "run.json").read_text())["task"]
    assert (facts["kind"], facts["to"], facts["rows_at_most"]) == ("glm-scores", "bank", 100)
    cost = study.statement.epsilon("bank")
    assert 7.9 < cost <= 8.0
    assert place.spent("bank", "shop") == before["bank"]  # it was told, and told nobody anything
    assert before["shop"] < place.spent("shop", "bank") <= before["shop"] + cost
    assert study.statement.epsilon("shop") == study.statement.epsilon("analyst") == 0


def assert_nowhere_else(place: Place, bank: KeptScores) -> None:
    """No file of anybody else holds a score, and none but its own a weight."""
    own = place.folder / "run" / "parties" / "bank" / "model.json"
    weights = [weight for name in PARTIES for weight in json.loads(place.kept(name).read_text())["weights"]]
    scores = [repr(float(score))[:12].lstrip("-") for score in bank.scores_[:, 0]]
    hidden = [repr(float(weight))[:12].lstrip("-") for weight in weights]
    assert all(score in own.read_text() for score in scores)
    for path in (place.folder / "run").rglob("*"):
        if path.is_file():
            text = path.read_text()
            assert not [number for number in hidden if len(number) > 8 and number in text], path
            assert path == own or not [number for number in scores if number in text], path


def test_everybody_scores_with_the_weights_in_its_own_file(place):
    for name in PARTIES:
        place.edit(name, "party = 30.0", "party = 300.0")
    shop = json.loads(place.kept("shop").read_text())
    place.kept("shop").write_text(json.dumps(shop | {"weights": [9.0, -9.0, *([0.0] * 5)]}))
    bank = json.loads(place.kept("bank").read_text())
    place.kept("bank").write_text(json.dumps(bank | {"factors": {"shop": 1.0}}))
    study = place.study("loud", epsilon="50.0")
    found = play(study, place.folder / "run")["bank"]
    tables = {name: place.config(name).table(study.roster.schemas[name]).sorted_by_id() for name in PARTIES}
    assert found.ids_ == list(tables["bank"].ids)
    rows, kept = found.scorer.kept_rows("bank", tables["bank"])
    received = found.scores_[:, 0] - rows @ kept
    encoded = Centred(study.roster.schemas["shop"]).features(tables["shop"]).matrix()
    clip = study.task.sender("shop").score_clip
    sent = np.clip(9.0 * (encoded[:, 0] - encoded[:, 1]), -clip, clip)
    assert np.corrcoef(received, sent)[0, 1] > 0.5
    assert list(found.scorer.kept_) == ["bank"]
    assert study.model.kept_ == {}


def test_questions_compose_until_one_is_refused(place):
    study, before = place.study("again"), place.spent("shop", "bank")
    place.edit("shop", "party = 30.0", "party = 13.0")
    play(study, place.folder / "first")
    once = place.spent("shop", "bank")
    assert before < once < before + study.statement.epsilon("bank")
    with raises(BudgetError, "BU002"):
        place.config("shop").check_budget(study)
    place.config("bank").check_budget(study)  # which tells nobody anything
    assert place.spent("shop", "bank") == once


# --- what is refused before anything is sent


def other_model(place: Place) -> None:
    path = place.kept("shop")
    path.write_text(path.read_text().replace('"model": "', '"model": "0'))


def of_the_bank(place: Place) -> None:
    shutil.copy(place.kept("bank"), place.kept("shop"))


def changed(key: str, value: object) -> Callable[[Place], None]:
    def change(place: Place) -> None:
        content = json.loads(place.kept("shop").read_text())
        place.kept("shop").write_text(json.dumps(content | {key: value}))

    return change


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (
            lambda place: place.edit("shop", "kept = ", "# kept = "),
            StudyError,
            ("ST553", "shop", "weights"),
        ),
        (of_the_bank, StudyError, ("ST121", "bank", "shop")),
        (other_model, StudyError, "ST114"),
        (lambda place: place.kept("shop").unlink(), StudyError, ("ST120", "kept.json")),
        (lambda place: place.kept("shop").write_text("{"), StudyError, "ST113"),
        (changed("weights", [1.0, 2.0]), StudyError, "ST116"),
        (changed("weights", None), StudyError, "ST116"),
        (lambda place: place.kept("shop").chmod(0o640), StudyError, "ST554"),
        (lambda place: place.edit("shop", '"glm-scores"]', '"pca"]'), PolicyError, ("PO015", "glm-scores")),
        (lambda place: cut(place, "basket"), ColonnadeError, ("DA154", "basket")),
    ],
    ids=["none", "party", "model", "missing", "cut off", "too short", "nothing", "mode", "policy", "column"],
)
def test_bad_weights_and_tables_are_refused_on_their_own_machine(place, change, error, said):
    study = place.study("bad")
    change(place)
    with raises(error, said) as raised:
        prepared(place.config("shop"), study)
    assert str(place.folder) not in raised.value.for_peers


def test_bad_weights_end_a_question_before_anything_is_spent_or_sent(place):
    place.kept("shop").chmod(0o640)
    before = place.spent("shop", "bank")
    study, out = place.study("bad"), place.folder / "run"
    assert study.statement.rows
    key = place.folder / "coordinator" / "coordinator.key"
    others = [InThread(lambda: run_coordinator(study, key, out))]
    others.append(InThread(lambda: run_party(study, place.config("bank"), folder_of(out, "bank"))))
    events = folder_of(out, "bank") / "events.jsonl"
    while not events.exists() or '"connected"' not in events.read_text():
        time.sleep(0.01)
    with raises(StudyError, "ST554"):
        run_party(study, place.config("shop"), folder_of(out, "shop"))
    for other in others:
        assert f"shop stopped the study: {NO_PART}" in other.communicate(timeout=300)[1]
    assert place.spent("shop", "bank") == before
    assert "budget reserved" not in (folder_of(out, "shop") / "events.jsonl").read_text()


def prepared(config: PartyConfig, study: Study) -> Estimator:
    """What a party does before it joins."""
    config.check(study)
    config.table(study.roster.schemas[config.name])
    return config.estimator(study)


def cut(place: Place, column: str) -> None:
    """Rename a column of the shop's new table."""
    path = place.folder / "shop.csv"
    path.write_text(path.read_text().replace(column, "another", 1))


def test_a_model_that_claims_smaller_bounds_is_refused_by_whoever_kept_weights(place):
    path = place.folder / "fit" / "model.json"
    content = json.loads(path.read_text())
    content["learned"]["plan"]["senders"]["shop"]["drift"] /= 100
    path.write_text(json.dumps(content))
    study = place.study("less noise")
    for name in PARTIES:
        with raises(StudyError, "ST114"):
            place.config(name).estimator(study)


def test_the_bank_needs_a_factor_for_every_other_party(place):
    content = json.loads(place.kept("bank").read_text())
    place.kept("bank").write_text(json.dumps(content | {"factors": {}}))
    with raises(StudyError, "ST118"):
        place.config("bank").estimator(place.study("bad"))


def test_a_run_does_not_move_the_weights_that_it_needs(place):
    with raises(StudyError, "ST555"):
        run_party(place.study("ask"), place.config("shop"), place.kept("shop").parent)
    assert place.kept("shop").exists()


def test_what_a_study_file_may_not_say(place):
    for task, epsilon, more, said in (
        (ASK.replace("fit/model", "nowhere"), "8.0", "", ("ST098", "nowhere.json")),
        (ASK + 'to = "bank"\n', "8.0", "", ("ST595", "task.to")),
        (ASK, "8.0", "[committee]\nthreshold = 1\n", ("VA229", "glm-scores")),
        (ASK, "8.0", '[align]\non = "person_id"\nhidden = true\n', "VA231"),
        (ASK.replace("100", "0"), "8.0", "", ("ST595", "task.rows_at_most")),
        ('kind = "prediction"\nmodel = "fit/model.json"\nto = "bank"\n', "8.0", "", ("ST551", "glm-scores")),
    ):
        with raises(StudyError, said):
            place.study("wrong", task, epsilon, more)
    with raises(StudyError, "ST170", "bank"):
        _ = place.study("wrong", ASK, "{ shop = 1.0 }").task
    play(place.study("ask"), place.folder / "run")
    with raises(StudyError, "ST551", "glm"):
        place.study("wrong", ASK.replace("fit/", "run/"))
    text = (place.folder / "fit" / "model.json").read_text()
    digest = place.study("ask").digest
    (place.folder / "fit" / "model.json").write_text(text + " ")
    assert Study.load(place.folder / "ask.toml").digest != digest


def test_more_people_than_the_study_allows_are_refused(place):
    ended = outcomes(place.study("few", ASK.replace("100", str(NEW - 1))), place.folder / "run")
    assert any("39" in str(error) for error in ended.values()), ended
    for name in PARTIES:
        assert [entry.state for entry in Ledger(place.folder / name / "ledger.sqlite").entries()][-1] == "released"


# --- before anything runs, and on the command line


def test_what_a_question_costs_is_said_beforehand(place, colonnade):
    study = place.study("ask")
    answer = preflight(study)
    facts, run = answer.details.facts, answer.run
    (sender,) = facts["senders"]
    assert (facts["to"], run.rows, sender["party"], sender["weights"]) == ("bank", 100, "shop", 7)
    assert (sender["noise_std"], sender["blur"]) == (study.task.deviation("shop"), study.task.blur("shop"))
    assert {load.participant: load.bytes_sent for load in run.loads} == {"bank": 0, "shop": 800, "coordinator": 0}
    assert preflight(study, 50).run.loads[1].bytes_sent == 400
    for text in (colonnade("privacy", study.path), show.asked("shop", answer)):
        assert "SCORES of new people by kept weights, told to bank alone" in text
        assert facts["model"] in text
    plain = colonnade("privacy", study.path, "--json")
    assert (plain["senders"][0]["party"], plain["noise_on"], plain["primes"]) == ("shop", "a score that is told", 0)
    assert plain["columns"] == len(study.model.feature_names_in_)
    one = colonnade("plan", study.path, "--epsilon", "--noise-multiplier", 2, "--json")
    two = colonnade("plan", study.path, "--epsilon", "--error", 2 * one["error"], "--json")
    assert two["noise_multiplier"] == pytest.approx(4, rel=1e-3)
    assert (one["error_on"], one["rounds"]) == ("score", 1)
    assert "on a score" in colonnade("plan", study.path, "--epsilon", "--error", 1)
    for words, said in (
        (("--rounds", "--error", 1), "only a sketch"),
        (("--rows", "--error", 1), "hardly depends"),
        (("--epsilon", "--error", 1, "--rows-given", 7), "change task.rows_at_most"),
    ):
        assert said in colonnade("plan", study.path, *words, code=StudyError.exit_code)


def test_the_doctor_looks_at_the_weights(place, colonnade):
    path, config = place.study("ask").path, place.folder / "shop" / "party.toml"
    assert re.search("ok +kept weights: .*belongs to shop", colonnade("doctor", path, config))
    place.kept("shop").chmod(0o644)
    assert re.search("BAD +kept weights: .*chmod 600", colonnade("doctor", path, config, code=1))


@pytest.mark.slow
def test_local_processes_find_everybodys_own_weights(place):
    folders = run_local(place.study("ask"), place.folder / "run")
    assert Estimator.load(folders["bank"] / "model.json").scores_.shape == (NEW, 1)
    assert Estimator.load(folders["shop"] / "model.json").scores_ is None
