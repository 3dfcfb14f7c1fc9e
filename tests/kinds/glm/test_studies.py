"""Models over noised messages as studies: what each party keeps, what is refused beforehand, what stays spent."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from colonnade import errors
from colonnade.cli import initialise, show
from colonnade.cli.publish import publish, publish_own
from colonnade.errors import DataError, StorageError, StudyError
from colonnade.models import Estimator
from colonnade.privacy import Ledger, Observer
from colonnade.study import PartyConfig, Study, preflight, run_coordinator, run_party
from colonnade.study.local import folder_of
from tests.support.errors import raises
from tests.support.studies import InThread, outcomes, people_of, play, runnable_text, scatter

ROWS = 120
PARTIES = ("bank", "shop")
COLUMNS = {"bank": ["income", "arrears", "default"], "shop": ["basket", "discounts", "tier"]}
LABEL = 'kind = "glm"\nlabel = "bank.default"\n'
LOGISTIC = f"{LABEL}rows = {ROWS}\n"
STEPS = f'{LOGISTIC}method = "gradient"\nbatch = 40\n'


class Talk:
    """Two parties that hold the same people, in threads or processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        people = people_of(ROWS)
        people.write(folder)
        (folder / "schemas").mkdir()
        for name in PARTIES:
            people.schemas[name].save(folder / "schemas" / f"{name}.toml")
            initialise.party(name, folder / name, f"../{name}.csv", "person_id", "auto-within-budget")
            path = folder / name / "party.toml"
            text = path.read_text().replace('tasks = ["pca"]', 'tasks = ["glm"]')
            path.write_text(text.replace("3.0", "30.0"))

    def write(self, task: str, more: str = "") -> Path:
        """A study file with everybody's pins."""
        path = self.folder / "STUDY.toml"
        path.write_text(runnable_text("talk", task, f"[budget]\nepsilon = 8.0\n{more}", COLUMNS, "reconnect = 1\n"))
        initialise.trial(path)
        return path

    def study(self, task: str, more: str = "") -> Study:
        return Study.load(self.write(task, more))

    def edit(self, party: str, change) -> None:
        """Change the rows of a party's table."""
        path = self.folder / f"{party}.csv"
        head, *rows = path.read_text().splitlines(keepends=True)
        path.write_text(head + "".join(change(rows)))

    def out(self, name: str) -> Path:
        return folder_of(self.folder / "run", name)

    def kept(self, name: str) -> dict:
        return json.loads((self.out(name) / "kept.json").read_text())

    def states(self, name: str) -> list[str]:
        return [entry.state for entry in Ledger(self.folder / name / "ledger.sqlite").entries()]

    def happened(self, name: str) -> list[str]:
        lines = (self.out(name) / "events.jsonl").read_text().splitlines()
        return [json.loads(line)["what"] for line in lines]

    def publish(self, study: Study) -> str:
        publish(study, self.out("coordinator"), {name: self.out(name) for name in ("coordinator", *PARTIES)})
        return (self.out("coordinator") / "report.html").read_text()


@pytest.fixture
def talk(tmp_path) -> Talk:
    return Talk(tmp_path)


def others_of(talk: Talk, study: Study, *names: str) -> list[InThread]:
    """The coordinator and some parties in threads, on a study that is planned once for all."""
    assert study.statement.rows
    key = talk.folder / "coordinator" / "coordinator.key"
    found = [InThread(lambda: run_coordinator(study, key, talk.out("coordinator")))]
    for name in names:
        config = PartyConfig.load(talk.folder / name / "party.toml")
        found.append(InThread(partial(run_party, study, config, talk.out(name))))
    return found


def digits(values) -> list[str]:
    """How numbers would look in any text that held them."""
    found = [re.sub(r"^-|e.*$", "", repr(float(value)))[:12] for value in values]
    return [text for text in found if len(text) == 12]


def assert_kept_nowhere_else(talk: Talk) -> None:
    """Every party's weights are in its own kept.json, for its user's eyes, and in no other file of anybody."""
    everything = [path for path in talk.folder.rglob("*") if path.is_file()]
    assert not (talk.out("coordinator") / "kept.json").exists()
    for name in PARTIES:
        own = talk.out(name) / "kept.json"
        assert stat.S_IMODE(own.stat().st_mode) == 0o600
        kept = talk.kept(name)
        foreseen = [weight for weights in kept["expected"].values() for weight in weights]
        numbers = digits([*kept["weights"], *kept["factors"].values(), *foreseen])
        assert len(numbers) >= 3
        for path in everything:
            if path != own:
                text = path.read_bytes().decode("latin-1")
                assert not [number for number in numbers if number in text], path
    for path in everything:
        assert not path.name.endswith(".partial"), path


def party(talk: Talk, study: Study, name: str) -> subprocess.Popen[str]:
    """A party's process, as somebody would start it."""
    command = ["party", study.path, talk.folder / name / "party.toml", "--out", talk.out(name), "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "colonnade", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )


def test_processes_over_tls_and_every_party_keeps_its_own(talk):
    study = talk.study(LOGISTIC)
    children = {name: party(talk, study, name) for name in PARTIES}
    (coordinator,) = others_of(talk, study)
    said = {name: child.communicate(timeout=300) for name, child in children.items()}
    assert all(child.returncode == 0 for child in children.values()), said
    assert coordinator.communicate(timeout=300) == ("", "")
    page = talk.publish(study)
    assert json.loads(said["shop"][0])["kept"] == str(talk.out("shop") / "kept.json")
    for name in PARTIES:
        assert talk.states(name) == ["committed"]
        whats = talk.happened(name)
        assert whats.index("first share") < whats.index("own weights kept") < whats.index("budget spent")
    assert "own weights kept" not in talk.happened("coordinator")
    assert [SEEN in (talk.out(name) / "report.html").read_text() for name in ("coordinator", *PARTIES)] == [0, 1, 0]
    assert_kept_nowhere_else(talk)
    texts = {(talk.out(name) / "model.json").read_text() for name in ("coordinator", *PARTIES)}
    assert len(texts) == 1  # what everybody may know is the same everywhere
    model = Estimator.load(talk.out("bank") / "model.json")
    assert model.load_kept(talk.out("bank") / "kept.json") == "bank"
    assert set(model.kept_["bank"].factors) == {"shop"}
    facts = json.loads((talk.out("coordinator") / "run.json").read_text())
    assert facts["seats"] == []
    assert (facts["task"]["kind"], facts["task"]["method"], facts["task"]["active"]) == ("glm", "alternating", "bank")
    for word in ("one logistic model over noised messages", "kept weights of all others", "noisy scores of shop"):
        assert word in page


SEEN = "In sample: the people of the fit"


def test_the_party_with_the_label_alone_sees_whether_chances_are_right(talk):
    study = talk.study(LOGISTIC)
    models = play(study, talk.folder / "run")
    talk.publish(study)
    for name in PARTIES:
        config = PartyConfig.load(talk.folder / name / "party.toml")
        publish_own(study, config, talk.out(name), models[name])
    seen = models["bank"].own_view()
    assert seen.count == ROWS
    with open(talk.folder / "bank.csv") as table:
        defaults = [row["default"] in ("true", "1", "True") for row in csv.DictReader(table)]
    assert 0 < seen.prevalence == pytest.approx(np.mean(defaults))
    assert models["shop"].own_view() is models["coordinator"].own_view() is None
    own = talk.out("bank") / "report.html"
    assert stat.S_IMODE(own.stat().st_mode) == 0o600
    assert f"{seen.log_loss:.4f}" in own.read_text()
    holding = [path for path in talk.folder.rglob("*") if path.is_file() and SEEN.encode() in path.read_bytes()]
    assert holding == [own]
    exact = digits([seen.log_loss, seen.brier, *(each.probability for each in seen.reliability)])
    assert len(exact) >= 3
    for path in (path for path in talk.folder.rglob("*") if path.is_file()):
        text = path.read_bytes().decode(errors="replace")
        assert not any(number in text for number in exact), path
    assert Estimator.load(talk.out("bank") / "model.json").own_view() is None


def test_released_weights_are_noisier_than_those_that_are_kept(talk):
    study = talk.study(f"{STEPS}epochs = 2\nrelease = true\n")
    models = play(study, talk.folder / "run")
    page = talk.publish(study)
    public = models["coordinator"]
    assert public.coef_.shape == (1, len(public.feature_names_in_))
    for name in PARTIES:
        assert np.array_equal(models[name].coef_, public.coef_)
        assert talk.states(name) == ["committed"]
    assert_kept_nowhere_else(talk)
    assert "released: " in "\n".join(public.summary())
    for word in ("Coefficients", "messages and released weights of shop", "everyone&#x27;s, with noise"):
        assert word in page
    statement = Estimator.load(talk.out("shop") / "model.json").privacy_
    assert 0 < statement.epsilon("analyst") <= 8.0


def test_an_alignment_must_find_as_many_people_as_the_study_says(talk):
    for place, name in enumerate(PARTIES):
        scatter(talk.folder / f"{name}.csv", place)
    study = talk.study(LOGISTIC, '[align]\non = "person_id"\n')
    ended = outcomes(study, talk.folder / "run")
    assert "set rows to the number of people that all parties hold" in " ".join(map(str, ended.values()))
    assert all(talk.states(name) == ["released"] for name in PARTIES)
    records = [json.loads((talk.out(name) / "run.json").read_text()) for name in PARTIES]
    (matched,) = {record["alignment"]["matched"] for record in records if "alignment" in record}  # the first to stop
    assert 0 < matched < ROWS
    again = talk.study(LOGISTIC.replace(str(ROWS), str(matched)), '[align]\non = "person_id"\n')
    play(again, talk.folder / "run")
    assert len(talk.kept("shop")["weights"]) == 7
    assert f"{matched} people" in talk.publish(again)
    assert talk.states("bank") == ["released", "committed"]
    assert (talk.out("bank") / "earlier" / "1" / "run.json").exists()


def beyond(rows: list[str]) -> list[str]:
    """The first label becomes a number that its schema does not have."""
    return [re.sub(r"^((?:[^,]*,){7})[^,]*", r"\g<1>99", rows[0]), *rows[1:]]


@pytest.mark.parametrize(
    ("task", "change", "fails", "error", "said"),
    [
        (
            f'kind = "glm"\nlabel = "bank.arrears"\nfamily = "linear"\nrows = {ROWS}\n',
            ("bank", beyond),
            "bank",
            DataError,
            ("DA057", "arrears", "1"),
        ),
        (LOGISTIC, ("shop", lambda rows: []), "shop", DataError, "DA202"),
        (LOGISTIC, ("shop", lambda rows: rows[1:]), "shop", StudyError, ("ST447", "shop", "119", "120")),
        (LOGISTIC.replace("120", "119"), ("shop", lambda rows: rows[1:]), "bank", StudyError, ("ST447", "bank", "120")),
    ],
    ids=["label out of range", "no rows", "fewer rows", "more rows"],
)
def test_what_does_not_fit_ends_the_study_before_anything_is_sent(talk, task, change, fails, error, said):
    talk.edit(*change)
    own = talk.folder / fails / "party.toml"
    own.write_text(own.read_text().replace('# misfits = "refuse"', 'misfits = "refuse"'))
    study, (other,) = talk.study(task), set(PARTIES) - {fails}
    others = others_of(talk, study, other)
    while not (talk.out(other) / "events.jsonl").exists() or "connected" not in talk.happened(other):
        time.sleep(0.01)
    with raises(error, said):
        run_party(study, PartyConfig.load(talk.folder / fails / "party.toml"), talk.out(fails))
    for child in others:
        _, text = child.communicate(timeout=300)
        assert child.returncode == errors.PeerStopped.exit_code, text
        assert f"{fails} stopped the study" in text
    assert talk.states(other) == ["released"]
    for name in PARTIES:
        if (talk.folder / name / "ledger.sqlite").exists():
            assert Ledger(talk.folder / name / "ledger.sqlite").spent(Observer.party("bank"), 1e-5) == 0
        assert "first share" not in talk.happened(name)
        assert not (talk.out(name) / "kept.json").exists()


def test_a_learning_rate_over_its_limit_is_refused_before_anybody_is_asked(talk):
    study = talk.study(f"{STEPS}learning_rate = 50.0\n")
    config = PartyConfig.load(talk.folder / "bank" / "party.toml")
    for attempt in (lambda: preflight(study), lambda: run_party(study, config, talk.out("bank"))):
        with raises(StudyError, "ST452", "50"):
            attempt()
    assert not (talk.folder / "bank" / "ledger.sqlite").exists()
    assert not talk.out("bank").exists()


def test_weights_that_cannot_be_kept_stay_spent(talk):
    study = talk.study(LOGISTIC)
    others = others_of(talk, study, "bank")
    config, own = PartyConfig.load(talk.folder / "shop" / "party.toml"), talk.out("shop") / "kept.json"
    with raises(StorageError, "SO021", "kept.json") as lost:
        run_party(study, config, talk.out("shop"), lambda *_: own.mkdir(exist_ok=True))
    assert lost.value.model.save_kept(talk.folder / "elsewhere.json").exists()
    for other in others:
        assert other.communicate(timeout=300) == ("", "")
    assert talk.states("shop") == ["sent"]
    assert talk.states("bank") == ["committed"]


def test_a_party_killed_half_way_stays_spent(talk):
    study = talk.study(f"{STEPS}epochs = 400\n")
    others = others_of(talk, study, "bank")
    shop = party(talk, study, "shop")
    events = talk.out("shop") / "events.jsonl"
    while not (events.exists() and '"first share"' in events.read_text()):
        assert shop.poll() is None
        time.sleep(0.01)
    shop.send_signal(signal.SIGKILL)
    shop.communicate()
    for child in others:
        _, text = child.communicate(timeout=300)
        assert child.returncode in (errors.PeerLost.exit_code, errors.PeerStopped.exit_code), text
    for name, other in (PARTIES, PARTIES[::-1]):
        assert talk.states(name) == ["sent"]
        spent = Ledger(talk.folder / name / "ledger.sqlite").spent(Observer.party(other), 1e-5)
        assert spent == pytest.approx(study.statement.epsilon(other))
        assert not (talk.out(name) / "kept.json").exists()


# --- before anything runs


def test_a_preflight_says_what_follows_from_public_figures(talk, colonnade):
    study = talk.study(LOGISTIC)
    answer = preflight(study)
    task, facts = study.task, answer.details.facts
    assert (answer.run.rows, answer.details.method) == (ROWS, "alternating")
    assert (facts["family"], facts["active"], facts["epochs"]) == ("logistic", "bank", task.epochs)
    assert {load.participant: load.bytes_sent for load in answer.run.loads} == {
        "bank": 8 * ROWS * task.epochs,
        "shop": 8 * ROWS * task.epochs,
        "coordinator": 0,
    }
    bank, shop = facts["sides"]
    assert (bank["weight_bound"], bank["score_clip"], bank["agreement"]) == (None, None, None)
    assert shop["noise_std"] == task.message_deviation("shop")
    assert 0 < shop["agreement"] < 1
    assert [row["what"] for row in facts["guarantees"]][:2] == ["messages of bank", "kept weights of all others"]
    text = show.preflight(answer)
    for words in ("MODEL, family logistic", "expected agreement", "eavesdropper", "64-bit integers"):
        assert words in text
    assert "kept weights of all others" in show.asked("bank", answer)
    plain = colonnade("privacy", study.path, "--json")
    assert plain["sides"][1]["agreement"] == shop["agreement"]
    assert {row["observer"] for row in plain["guarantees"]} >= {"analyst", "coordinator", "bank+shop"}
    assert "task.rows" in colonnade("privacy", study.path, "--rows", 7, code=StudyError.exit_code)


def test_what_was_chosen_by_hand_has_no_expected_agreement(talk):
    for given in ("score_clip = 1.0\n", 'method = "gradient"\n'):
        answer = preflight(talk.study(LOGISTIC + given))
        assert [side["agreement"] for side in answer.details.facts["sides"]] == [None, None]
    assert answer.details.facts["learning_rate"] > 0
    assert "steps of" in show.preflight(answer)


def test_a_plan_prices_messages_of_any_noise(talk, colonnade):
    study = talk.study(LOGISTIC)
    found = colonnade("plan", study.path, "--epsilon", "--noise-multiplier", 10, "--json")
    twice = colonnade("plan", study.path, "--epsilon", "--error", 2 * found["error"], "--json")
    assert twice["noise_multiplier"] == pytest.approx(2 * found["noise_multiplier"], rel=1e-3)
    told = [{row["what"]: row["epsilon"] for row in each["guarantees"]} for each in (found, twice)]
    assert 0 < told[1]["messages of shop"] < told[0]["messages of shop"]
    text = colonnade("plan", study.path, "--epsilon", "--noise-multiplier", 10)
    assert "on a slope" in text
    assert "messages of bank" in text
    for question, words in (("--rounds", "only a sketch"), ("--rows", "hardly depends on its rows")):
        refused = colonnade("plan", study.path, question, "--noise-multiplier", 10, code=StudyError.exit_code)
        assert words in refused
    other = colonnade("plan", study.path, "--epsilon", "--error", 1, "--rows-given", 7, code=StudyError.exit_code)
    assert "change task.rows" in other


def test_the_doctor_counts_the_rows_that_bounds_rest_on(talk, colonnade):
    path = talk.study(LOGISTIC).path
    config = talk.folder / "shop" / "party.toml"
    assert "ok   rows: as many as the study says (120)" in colonnade("doctor", path, config)
    talk.edit("shop", lambda rows: rows[1:])
    assert "BAD  rows: 119, and the study says 120" in colonnade("doctor", path, config, code=1)


def test_nobody_holds_shares_so_nobody_is_named_for_it(talk):
    with raises(StudyError, "VA229", "glm"):
        talk.study(LOGISTIC, "[committee]\nthreshold = 1\n")
    with raises(StudyError, "VA231", "glm"):
        talk.study(LOGISTIC, '[align]\non = "person_id"\nhidden = true\n')
    study = talk.study(LOGISTIC)
    assert study.trust.committee == ()
    assert "hold shares" not in str(study.statement)
