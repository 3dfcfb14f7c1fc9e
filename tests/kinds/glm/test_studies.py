"""Models over noised messages, and scores by the weights that parties keep, as studies.

What each party keeps and where that is nowhere else, who is told, what is refused beforehand, what stays spent.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colonnade.cli import text_output
from colonnade.cli.results import publish, publish_own
from colonnade.errors import NO_PART, BudgetError, DataError, PolicyError, StorageError, StudyError
from colonnade.kinds import KeptScores
from colonnade.models import Estimator
from colonnade.privacy import Ledger
from colonnade.study import Study, preflight, run_coordinator, run_party
from colonnade.study.local import folder_of
from colonnade.tables import read_table
from colonnade.tables.table import ColumnCentring
from tests.support.errors import raises
from tests.support.places import Place
from tests.support.studies import InThread, outcomes, play, scatter
from tests.support.waiting import until

ROWS, NEW = 120, 40
PARTIES = ("bank", "shop")
COLUMNS = {"bank": ["income", "arrears", "default"], "shop": ["basket", "discounts", "tier"]}
FIT = f'kind = "glm"\nlabel = "bank.default"\nrows = {ROWS}\n'
STEPS = f'{FIT}method = "gradient"\nbatch = 40\n'
ASK = 'kind = "glm-scores"\nmodel = "fit/model.json"\nrows_at_most = 100\n'
SEEN = "In sample: the people of the fit"


class Talk(Place):
    """A bank and a shop with the same people."""

    def out(self, name: str) -> Path:
        return folder_of(self.folder / "run", name)

    def change(self, name: str, change: Any) -> None:
        """Change the rows of a party's table."""
        path = self.table(name)
        head, *rows = path.read_text().splitlines(keepends=True)
        path.write_text(head + "".join(change(rows)))

    def table(self, name: str) -> Path:
        return self.folder / "tables" / f"{name}.csv"

    def published(self, study: Study) -> str:
        publish(study, self.out("coordinator"), {name: self.out(name) for name in ("coordinator", *PARTIES)})
        return (self.out("coordinator") / "report.html").read_text()

    def kept(self, name: str, run: str = "fit", **changes: Any) -> Any:
        """What a party kept, after some changes of it."""
        path = self.kept_file(name, run)
        content = json.loads(path.read_text()) | changes
        if changes:
            path.write_text(json.dumps(content))
        return content

    def kept_file(self, name: str, run: str = "fit") -> Path:
        return self.folder / run / "parties" / name / "kept.json"

    def states(self, name: str) -> list[str]:
        return [entry.state for entry in Ledger(self.folder / name / "ledger.sqlite").entries()]

    def happened(self, name: str) -> list[str]:
        path = self.out(name) / "events.jsonl"
        return [json.loads(line)["what"] for line in path.read_text().splitlines()] if path.exists() else []

    def has(self, name: str, what: str) -> bool:
        return what in self.happened(name)

    def others(self, study: Study, *names: str) -> list[InThread]:
        """The coordinator and some parties in threads, on a study that is planned once for all."""
        assert study.statement.rows
        key = self.folder / "coordinator" / "coordinator.key"
        found = [InThread(lambda: run_coordinator(study, key, self.out("coordinator")))]
        for name in names:
            found.append(InThread(partial(run_party, study, self.config(name), self.out(name))))
        for name in names:
            until(partial(self.has, name, "connected"), f"{name} connected")
        return found

    def process(self, study: Study, name: str) -> subprocess.Popen[str]:
        """A party's process, as somebody would start it."""
        command = ["party", study.path, self.config_file(name), "--out", self.out(name), "--json"]
        return subprocess.Popen(
            [sys.executable, "-m", "colonnade", *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Talk:
    epsilon = "analyst = 30.0, coordinator = 30.0, party = 30.0"
    return Talk(tmp_path_factory.mktemp("messages"), COLUMNS, '"glm", "glm-scores"', epsilon, FIT, rows=ROWS)


@pytest.fixture
def talk(prepared, tmp_path) -> Talk:
    """Before any fit."""
    return prepared.copied(tmp_path / "talk")


@pytest.fixture(scope="module")
def fitted(prepared, tmp_path_factory) -> Talk:
    """After a fit, with new people, of whom the bank has no label; to be copied by whoever changes anything."""
    place = prepared.copied(tmp_path_factory.mktemp("fitted") / "place")
    for name in PARTIES:
        place.set(name, "kept", f'"../fit/parties/{name}/kept.json"')
    play(place.study("fit", FIT), place.folder / "fit")
    for name in PARTIES:
        path = place.table(name)
        head, *rows = [line.split(",") for line in path.read_text().splitlines()]
        new = [row for row in rows if row[0] <= f'"P{NEW:06}"']
        columns = [index for index, column in enumerate(head) if column != '"default"']
        lines = [",".join(row[index] for index in columns) + "\n" for row in (head, *new)]
        path.write_text("".join(lines).replace('"P0', '"N0'))
    return place


@pytest.fixture
def place(fitted, tmp_path) -> Talk:
    return fitted.copied(tmp_path / "place")


def holding(folder: Path, numbers: Any) -> list[Path]:
    """The files of anybody in which one of these numbers stands."""
    texts = [re.sub(r"^-|e.*$", "", repr(float(value)))[:12] for value in numbers]
    texts = [text for text in texts if len(text) == 12]
    assert len(texts) >= 3
    found = [(path, path.read_bytes().decode("latin-1")) for path in folder.rglob("*") if path.is_file()]
    return [path for path, content in found if any(text in content for text in texts)]


def assert_kept_nowhere_else(place: Talk) -> None:
    """Every party's weights are in its own kept.json, for its user's eyes, and in no other file of anybody."""
    assert not (place.out("coordinator") / "kept.json").exists()
    for name in PARTIES:
        own, kept = place.kept_file(name, "run"), place.kept(name, "run")
        assert stat.S_IMODE(own.stat().st_mode) == 0o600
        foreseen = [weight for weights in kept["expected"].values() for weight in weights]
        assert holding(place.folder, [*kept["weights"], *kept["factors"].values(), *foreseen]) == [own]
    assert not list(place.folder.rglob("*.partial"))


# --- fits


def test_every_party_keeps_its_own_and_the_one_with_the_label_sees_whether_chances_are_right(talk):
    study = talk.study("fit", FIT)
    models = play(study, talk.folder / "run")
    page = talk.published(study)
    for name in PARTIES:
        publish_own(study, talk.config(name), talk.out(name), models[name])
        assert talk.states(name) == ["committed"]
        whats = talk.happened(name)
        assert whats.index("first share") < whats.index("own weights kept") < whats.index("budget spent")
    assert "own weights kept" not in talk.happened("coordinator")
    assert_kept_nowhere_else(talk)
    texts = {(talk.out(name) / "model.json").read_text() for name in ("coordinator", *PARTIES)}
    assert len(texts) == 1  # what everybody may know is the same everywhere
    model = Estimator.load(talk.out("bank") / "model.json")
    assert model.load_kept(talk.out("bank") / "kept.json") == "bank"
    assert set(model.kept_["bank"].factors) == {"shop"}
    facts = json.loads((talk.out("coordinator") / "run.json").read_text())
    assert (facts["seats"], facts["task"]["kind"], facts["task"]["active"]) == ([], "glm", "bank")
    assert "one logistic model over noised messages" in page
    seen, own = models["bank"].own_view(), talk.out("bank") / "report.html"
    assert models["shop"].own_view() is models["coordinator"].own_view() is model.own_view() is None
    assert (seen.count, stat.S_IMODE(own.stat().st_mode)) == (ROWS, 0o600)
    defaults = read_table(talk.table("bank"), study.roster.schemas["bank"], id="person_id").column("default")
    assert 0 < seen.prevalence == pytest.approx(defaults.mean())
    assert f"{seen.log_loss:.4f}" in own.read_text()
    files = [path for path in talk.folder.rglob("*") if path.is_file()]
    assert [path for path in files if SEEN.encode() in path.read_bytes()] == [own]
    exact = [seen.log_loss, seen.brier, *(each.probability for each in seen.reliability)]
    assert holding(talk.folder, exact) == []


@pytest.mark.system
def test_processes_over_tls(talk):
    study = talk.study("fit", FIT)
    children = {name: talk.process(study, name) for name in PARTIES}
    (coordinator,) = talk.others(study)
    said = {name: child.communicate(timeout=300) for name, child in children.items()}
    assert all(child.returncode == 0 for child in children.values()), said
    assert coordinator.communicate(timeout=300) == ("", "")
    assert json.loads(said["shop"][0])["kept"] == str(talk.out("shop") / "kept.json")
    assert_kept_nowhere_else(talk)


def test_an_alignment_must_find_as_many_people_as_the_study_says(talk):
    for index, name in enumerate(PARTIES):
        scatter(talk.table(name), index)
    on_ids = '[align]\non = "person_id"\n'
    ended = outcomes(talk.study("fit", FIT, more=on_ids), talk.folder / "run")
    assert "set rows to the number of people that all parties hold" in " ".join(map(str, ended.values()))
    assert all(talk.states(name) == ["released"] for name in PARTIES)
    records = [json.loads((talk.out(name) / "run.json").read_text()) for name in PARTIES]
    (matched,) = {record["alignment"]["matched"] for record in records if "alignment" in record}  # the first to stop
    play(talk.study("fit", FIT.replace(str(ROWS), str(matched)), more=on_ids), talk.folder / "run")
    assert talk.states("bank") == ["released", "committed"]


def beyond(rows: list[str]) -> list[str]:
    """The first label becomes a number that its schema does not have."""
    return [re.sub(r"^((?:[^,]*,){7})[^,]*", r"\g<1>99", rows[0]), *rows[1:]]


LINEAR = f'kind = "glm"\nlabel = "bank.arrears"\nfamily = "linear"\nrows = {ROWS}\n'


@pytest.mark.parametrize(
    ("task", "change", "fails", "error", "said"),
    [
        (LINEAR, ("bank", beyond), "bank", DataError, ("DA057", "arrears", "1")),
        (FIT, ("shop", lambda rows: rows[1:]), "shop", StudyError, ("ST447", "shop", "119", "120")),
    ],
    ids=["label out of range", "fewer rows"],
)
def test_what_does_not_fit_ends_the_study_before_anything_is_sent(talk, task, change, fails, error, said):
    talk.change(*change)
    talk.set(fails, "misfits", '"refuse"')
    study, (other,) = talk.study("fit", task), set(PARTIES) - {fails}
    others = talk.others(study, other)
    with raises(error, said):
        run_party(study, talk.config(fails), talk.out(fails))
    for child in others:
        assert f"{fails} stopped the study: {NO_PART}" in child.communicate(timeout=300)[1]
    assert talk.states(other) == ["released"]
    for name in PARTIES:
        assert talk.spent(name, "bank") == 0
        assert "first share" not in talk.happened(name)
        assert not (talk.out(name) / "kept.json").exists()


def test_a_learning_rate_over_its_limit_is_refused_before_anybody_is_asked(talk):
    study = talk.study("fit", f"{STEPS}learning_rate = 50.0\n")
    for attempt in (partial(preflight, study), partial(run_party, study, talk.config("bank"), talk.out("bank"))):
        with raises(StudyError, "ST452", "50"):
            attempt()
    assert not (talk.folder / "bank" / "ledger.sqlite").exists()
    assert not talk.out("bank").exists()


def test_weights_that_cannot_be_kept_stay_spent(talk):
    study = talk.study("fit", FIT)
    others, own = talk.others(study, "bank"), talk.out("shop") / "kept.json"
    with raises(StorageError, "SO020", "kept.json") as lost:
        run_party(study, talk.config("shop"), talk.out("shop"), lambda *_: own.mkdir(exist_ok=True))
    assert lost.value.model.save_kept(talk.folder / "elsewhere.json").exists()
    for other in others:
        assert other.communicate(timeout=300) == ("", "")
    assert (talk.states("shop"), talk.states("bank")) == (["sent"], ["committed"])


# --- questions about new people


def test_only_the_party_with_the_label_is_told_and_questions_compose_until_one_is_refused(place):
    study, out = place.study("ask", ASK), place.folder / "run"
    before = {"bank": place.spent("bank", "shop"), "shop": place.spent("shop", "bank")}
    play(study, out)
    page = place.published(study)
    own = place.out("bank") / "model.json"
    bank = Estimator.load(own)
    assert isinstance(bank, KeptScores)
    assert len(bank.ids_) == len(set(bank.ids_)) == NEW
    assert np.array_equal(bank.predictions_, bank.scores_[:, 0] > 0)
    assert bank.to == bank.recipient == "bank"
    for folder in (out, place.out("shop")):
        other = Estimator.load(folder / "model.json")
        assert (other.ids_, other.scores_, other.predictions_) == (None, None, None)
    # No file of anybody else holds a score, and none but its own a weight.
    assert holding(out, bank.scores_[:, 0]) == [own]
    assert not holding(out, [weight for name in PARTIES for weight in place.kept(name)["weights"]])
    assert "bank was told the noisy scores" in text_output.outcome(study, out, {})
    assert "in the model.json of bank and nowhere" in page
    cost = study.statement.epsilon("bank")
    assert 7.9 < cost <= 8.0
    assert place.spent("bank", "shop") == before["bank"]  # it was told, and told nobody anything
    assert before["shop"] < place.spent("shop", "bank") < before["shop"] + cost
    assert study.statement.epsilon("shop") == study.statement.epsilon("analyst") == 0
    with raises(StudyError, "ST551", "glm"):
        place.study("wrong", ASK.replace("fit/", "run/"))
    once = place.spent("shop", "bank")
    place.edit("shop", "party = 30.0", "party = 13.0")
    with raises(BudgetError, "BU002"):
        place.config("shop").check_budget(place.study("again", ASK))
    place.config("bank").check_budget(place.study("again", ASK))  # which tells nobody anything
    assert place.spent("shop", "bank") == once


def test_everybody_scores_with_the_weights_in_its_own_file(place):
    for name in PARTIES:
        place.edit(name, "party = 30.0", "party = 300.0")
    place.kept("shop", weights=[9.0, -9.0, *([0.0] * 5)])
    place.kept("bank", factors={"shop": 1.0})
    study = place.study("loud", ASK, "[budget]\nepsilon = 50.0\n")
    found = play(study, place.folder / "run")["bank"]
    tables = {name: place.config(name).table(study.roster.schemas[name]).sorted_by_id() for name in PARTIES}
    assert found.ids_ == list(tables["bank"].ids)
    rows, kept = found.scorer.kept_rows("bank", tables["bank"])
    encoded = ColumnCentring(study.roster.schemas["shop"]).centre_features(tables["shop"]).matrix()
    clip = study.task.sender("shop").score_clip
    sent = np.clip(9.0 * (encoded[:, 0] - encoded[:, 1]), -clip, clip)
    assert np.corrcoef(found.scores_[:, 0] - rows @ kept, sent)[0, 1] > 0.5
    assert list(found.scorer.kept_) == ["bank"]
    assert study.model.kept_ == {}


def smaller_bounds(place: Talk) -> None:
    """A model that claims smaller bounds than the weights were kept under."""
    path = place.folder / "fit" / "model.json"
    content = json.loads(path.read_text())
    content["learned"]["plan"]["senders"]["shop"]["drift"] /= 100
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda place: place.edit("shop", "kept = ", "# kept = "), ("ST553", "shop", "weights")),
        (lambda place: shutil.copy(place.kept_file("bank"), place.kept_file("shop")), ("ST121", "bank", "shop")),
        (smaller_bounds, "ST114"),
        (lambda place: place.kept_file("shop").unlink(), ("ST120", "kept.json")),
        (lambda place: place.kept_file("shop").chmod(0o640), "ST554"),
        (lambda place: place.edit("shop", '"glm-scores"]', '"pca"]'), ("PO015", "glm-scores")),
    ],
    ids=["none", "party", "bounds", "missing", "mode", "policy"],
)
def test_bad_weights_and_tables_are_refused_on_their_own_machine(place, change, said):
    change(place)
    study, config = place.study("bad", ASK), place.config("shop")
    with raises((StudyError, PolicyError, DataError), said) as raised:
        config.check(study)
        config.table(study.roster.schemas["shop"])
        config.estimator(study)
    assert str(place.folder) not in raised.value.for_peers


def test_bad_weights_end_a_question_before_anything_is_spent_or_sent(place):
    with raises(StudyError, "ST555"):  # nor does a run move the weights that it needs
        run_party(place.study("ask", ASK), place.config("shop"), place.kept_file("shop").parent)
    place.kept_file("shop").chmod(0o640)
    before, study = place.spent("shop", "bank"), place.study("bad", ASK)
    others = place.others(study, "bank")
    with raises(StudyError, "ST554"):
        run_party(study, place.config("shop"), place.out("shop"))
    for other in others:
        assert f"shop stopped the study: {NO_PART}" in other.communicate(timeout=300)[1]
    assert place.spent("shop", "bank") == before
    assert "budget reserved" not in place.happened("shop")


def test_more_people_than_the_study_allows_are_refused(place):
    ended = outcomes(place.study("few", ASK.replace("100", str(NEW - 1))), place.folder / "run")
    assert any("39" in str(error) for error in ended.values()), ended
    assert {place.states(name)[-1] for name in PARTIES} == {"released"}


# --- before anything runs, and on the command line


HIDDEN, COMMITTEE = '[align]\non = "person_id"\nhidden = true\n', "[committee]\nthreshold = 1\n"


@pytest.mark.parametrize(
    ("task", "more", "said"),
    [
        (FIT, COMMITTEE, ("VA229", "glm")),
        (FIT, HIDDEN, ("VA231", "glm")),
        (ASK.replace("fit/model", "nowhere"), "", ("ST098", "nowhere.json")),
        (ASK + 'to = "bank"\n', "", ("ST595", "task.to")),
        (ASK, COMMITTEE, ("VA229", "glm-scores")),
        (ASK, HIDDEN, "VA231"),
        (ASK.replace("100", "0"), "", ("ST595", "task.rows_at_most")),
        ('kind = "prediction"\nmodel = "fit/model.json"\nto = "bank"\n', "", ("ST551", "glm-scores")),
    ],
)
def test_what_a_study_file_may_not_say(fitted, task, more, said):
    with raises(StudyError, said):
        fitted.study("wrong", task, more=more)


def test_the_model_is_part_of_the_question(place):
    digest, model = place.study("ask", ASK).digest, place.folder / "fit" / "model.json"
    model.write_text(model.read_text() + " ")
    assert Study.load(place.folder / "ask.toml").digest != digest
    with raises(StudyError, "ST170", "bank"):  # its price is stated for whom it tells
        _ = place.study("wrong", ASK, "[budget]\nepsilon = { shop = 1.0 }\n").task


def test_a_preflight_says_what_follows_from_public_figures(talk, colonnade):
    study = talk.study("fit", FIT)
    answer, task = preflight(study), study.task
    facts = answer.details.facts
    assert (answer.run.rows, facts["family"], facts["active"], facts["epochs"]) == (
        ROWS,
        "logistic",
        "bank",
        task.epochs,
    )
    sent = {load.participant: load.bytes_sent for load in answer.run.loads}
    assert sent == {"bank": 8 * ROWS * task.epochs, "shop": 8 * ROWS * task.epochs, "coordinator": 0}
    bank, shop = facts["sides"]
    assert (bank["weight_bound"], bank["score_clip"], bank["agreement"]) == (None, None, None)
    assert shop["noise_std"] == task.message_deviation("shop")
    assert 0 < shop["agreement"] < 1
    assert "expected agreement" in text_output.preflight(answer)
    assert "task.rows" in colonnade("privacy", study.path, "--rows", 7, code=StudyError.exit_code)
    for given in ("score_clip = 1.0\n", 'method = "gradient"\n'):  # chosen by hand: nothing is expected
        facts = preflight(talk.study("fit", FIT + given)).details.facts
        assert [side["agreement"] for side in facts["sides"]] == [None, None]


def test_a_plan_prices_messages_of_any_noise(talk, colonnade):
    path = talk.study("fit", FIT).path
    found = colonnade("plan", path, "--epsilon", "--noise-multiplier", 10, "--json")
    twice = colonnade("plan", path, "--epsilon", "--error", 2 * found["error"], "--json")
    assert twice["noise_multiplier"] == pytest.approx(2 * found["noise_multiplier"], rel=1e-3)
    told = [{row["what"]: row["epsilon"] for row in each["guarantees"]} for each in (found, twice)]
    assert 0 < told[1]["messages of shop"] < told[0]["messages of shop"]
    for words, said in (
        (("--rounds", "--noise-multiplier", 10), "only a sketch"),
        (("--rows", "--noise-multiplier", 10), "hardly depends on its rows"),
        (("--epsilon", "--error", 1, "--rows-given", 7), "change task.rows"),
    ):
        assert said in colonnade("plan", path, *words, code=StudyError.exit_code)


def test_what_a_question_costs_is_said_beforehand(fitted, colonnade):
    study = fitted.study("ask", ASK)
    answer = preflight(study)
    facts, run = answer.details.facts, answer.run
    (sender,) = facts["senders"]
    assert (facts["to"], run.rows, sender["party"], sender["weights"]) == ("bank", 100, "shop", 7)
    assert (sender["noise_std"], sender["blur"]) == (study.task.deviation("shop"), study.task.blur("shop"))
    assert {load.participant: load.bytes_sent for load in run.loads} == {"bank": 0, "shop": 800, "coordinator": 0}
    assert preflight(study, 50).run.loads[1].bytes_sent == 400
    assert "SCORES of new people by kept weights, told to bank alone" in text_output.approval_text("shop", answer)
    one = colonnade("plan", study.path, "--epsilon", "--noise-multiplier", 2, "--json")
    two = colonnade("plan", study.path, "--epsilon", "--error", 2 * one["error"], "--json")
    assert two["noise_multiplier"] == pytest.approx(4, rel=1e-3)
    refused = colonnade("plan", study.path, "--epsilon", "--error", 1, "--rows-given", 7, code=StudyError.exit_code)
    assert "change task.rows_at_most" in refused


def test_the_doctor_counts_rows_and_looks_at_weights(talk, place, colonnade):
    path, config = talk.study("fit", FIT).path, talk.folder / "shop" / "party.toml"
    assert "ok   rows: as many as the study says (120)" in colonnade("doctor", path, config)
    talk.change("shop", lambda rows: rows[1:])
    assert "BAD  rows: 119, and the study says 120" in colonnade("doctor", path, config, code=1)
    path, config = place.study("ask", ASK).path, place.folder / "shop" / "party.toml"
    assert re.search("ok +kept weights: .*belongs to shop", colonnade("doctor", path, config))
    place.kept_file("shop").chmod(0o644)
    assert re.search("BAD +kept weights: .*chmod 600", colonnade("doctor", path, config, code=1))
