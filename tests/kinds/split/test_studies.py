"""Split models as studies: by a committee, over embeddings and as published; encoders stay with their parties."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from colonnade.cli import initialise, show
from colonnade.cli.publish import publish
from colonnade.errors import PolicyError, StudyError
from colonnade.kinds import SplitClassifier, SplitScores
from colonnade.kinds.split import kept as split_kept
from colonnade.kinds.split.encoders import encoder_from, to_bytes
from colonnade.models import Estimator
from colonnade.privacy import Ledger, Observer
from colonnade.study import PartyConfig, Study, preflight
from colonnade.study.local import folder_of, run_local
from tests.support.errors import raises
from tests.support.studies import people_of, play, runnable_text

ROWS = 300
PARTIES = ("bank", "shop")
COLUMNS = {
    "bank": ["income", "arrears", "default"],
    "shop": ["basket", "discounts", "visits"],
    "clinic": ["bmi", "glucose"],
}
KINDS = '["split-classifier", "split-regressor", "split-scores"]'
FIT = 'kind = "split-classifier"\nlabel = "bank.default"\nwidth = 8\n'
TOLD = FIT + f'head = "embeddings"\nrows = {ROWS}\n'
LINEAR = '[task.encoders.bank]\nkind = "linear"\nwidth = 2\n[task.encoders.shop]\nkind = "linear"\nwidth = 3\n'
PUBLISHED = FIT + f'head = "published"\nrows = {ROWS}\nper_release = 2.0\nepochs = 2\nbatches = 4\n' + LINEAR


class Place:
    """A bank and a shop, or more parties, with the same people."""

    def __init__(self, folder: Path, parties: tuple[str, ...] = PARTIES) -> None:
        self.folder, self.parties = folder, parties
        people_of(ROWS).write(folder)
        (folder / "schemas").mkdir()
        for name in parties:
            people_of(ROWS).schemas[name].save(folder / "schemas" / f"{name}.toml")
            initialise.party(name, folder / name, f"../{name}.csv", "person_id", "auto-within-budget")
            self.edit(name, 'tasks = ["pca"]', f"tasks = {KINDS}")
            self.edit(name, "analyst = 3.0, coordinator = 3.0, party = 3.0", "analyst = 30.0, party = 30.0")
        self.pins: dict[str, str] = {}
        self.pins = initialise.trial(self.study("keys", FIT).path)

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.folder / name / "party.toml"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    def study(self, name: str, task: str, budget: str = "[budget]\nepsilon = 8.0\n") -> Study:
        path = self.folder / f"{name}.toml"
        columns = {party: COLUMNS[party] for party in self.parties}
        path.write_text(runnable_text(name, task, budget, columns, "reconnect = 1\n", self.pins))
        return Study.load(path)

    def config(self, name: str) -> PartyConfig:
        return PartyConfig.load(self.folder / name / "party.toml")

    def spent(self, name: str, observer: str) -> float:
        return Ledger(self.folder / name / "ledger.sqlite").spent(Observer.party(observer), 1e-5)


def words_of(path: Path) -> str:
    """What a page says, without its tags: words of the glossary stand within links."""
    return re.sub("<[^>]*>", "", path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("split") / "place"
    folder.mkdir()
    return Place(folder).folder


@pytest.fixture
def place(made, tmp_path) -> Place:
    copied = Place.__new__(Place)
    copied.folder, copied.parties = tmp_path / "place", PARTIES
    shutil.copytree(made, copied.folder)
    copied.pins = Study.load(copied.folder / "keys.toml").content.pins
    return copied


def test_a_committee_learns_a_head_that_everybody_has_and_encoders_stay(place):
    study, out = place.study("fit", FIT), place.folder / "run"
    models = play(study, out)
    publish(study, out, {name: folder_of(out, name) for name in models})
    public = Estimator.load(out / "model.json")
    assert isinstance(public, SplitClassifier)
    assert public.encoders_ == {}
    for name in PARTIES:
        folder = out / "parties" / name
        assert Estimator.load(folder / "model.json").digest == public.digest
        kept = split_kept.read(folder / "kept.npz", public.digest)
        assert (kept.party, kept.training) == (name, "none")
        assert (folder / "kept.npz").stat().st_mode & 0o077 == 0
        assert public.load_kept(folder / "kept.npz") == name
    assert not (out / "kept.npz").exists()
    tables = {name: place.config(name).table(study.roster.schemas[name]).sorted_by_id() for name in PARTIES}
    assert roc_auc_score(public.true_of(tables), public.predict_proba(tables)[:, 1]) > 0.65  # 0.5 is chance
    page = words_of(out / "report.html")
    for words in ("no embedding left anybody", "Each party keeps its encoder, in its kept.npz", "shares alone"):
        assert words in page
    assert "head by committee (discriminant)" in show.outcome(study, out, {})
    assert 0 < place.spent("shop", "bank") <= 8.0


def test_embeddings_are_told_to_the_party_with_the_label(place):
    study, out = place.study("told", TOLD), place.folder / "run"
    answer = preflight(study)
    assert answer.to_dict()["method"] == "embeddings"
    assert "EMBEDDINGS told to bank, which keeps the head" in show.preflight(answer)
    models = play(study, out)
    publish(study, out, {name: folder_of(out, name) for name in models})
    bank, shop = (split_kept.read(out / "parties" / name / "kept.npz", None) for name in PARTIES)
    assert "spread" in bank.own
    assert "spread" not in shop.own
    assert 7 < place.spent("shop", "bank") <= 8.0
    assert place.spent("bank", "shop") == 0
    page = words_of(out / "report.html")
    for words in ("noisy embeddings of shop", "bank alone has it", "holds the label"):
        assert words in page
    facts = json.loads((out / "run.json").read_text())["task"]
    assert (facts["kind"], facts["to"], facts["widths"]) == ("split-classifier", "bank", {"shop": 8})


def test_new_people_are_asked_about_by_kept_encoders(place):
    for name, task in (("fit", FIT), ("told", TOLD)):
        play(place.study(name, task), place.folder / name)
        for party in PARTIES:
            line = f'kept = "../{name}/parties/{party}/kept.npz"'
            old = place.folder / party / "party.toml"
            place.edit(party, next(each for each in old.read_text().splitlines() if "kept = " in each), line)
        ask = f'kind = "split-scores"\nmodel = "{name}/model.json"\nrows_at_most = 400\n'
        study = place.study(f"ask-{name}", ask)
        found = play(study, place.folder / f"asked-{name}")
        bank = found["bank"]
        assert isinstance(bank, SplitScores)
        assert len(bank.ids_) == ROWS
        assert found["shop"].ids_ is None
        assert 7 < study.statement.epsilon("bank") <= 8.0
        exact = place.study(f"exact-{name}", ask + "exact = true\n", "")
        with raises(PolicyError, "PO022", "shop"):
            place.config("shop").check(exact)
    place.edit("shop", "kept = ", "# kept = ")
    with raises(StudyError, "ST553", "shop", "encoder", "kept.npz"):
        place.config("shop").estimator(study)


def test_as_published_is_refused_until_a_party_says_otherwise(place):
    study, out = place.study("published", PUBLISHED, ""), place.folder / "run"
    said = ("PO022", "published", "bank")
    with raises(PolicyError, said):
        place.config("shop").check(study)
    place.edit("shop", "# exact = ", 'exact = ["bank"] # ')
    place.edit("bank", "# exact = ", 'exact = ["shop"] # ')
    for name in PARTIES:
        place.edit(name, "analyst = 30.0, party = 30.0", "analyst = 30.0, coordinator = 30.0")
        place.config(name).check(study)
    shown = show.preflight(preflight(study))
    assert "THE PUBLISHED ALGORITHM, which promises nothing\nas published, not proven: " in shown
    assert "2 releases together would be epsilon" in shown
    models = play(study, out)
    publish(study, out, {name: folder_of(out, name) for name in models})
    page = words_of(out / "report.html")
    assert "As published, not proven: the encoder and the rescaling depend" in page
    assert "for what was done it is no promise" in page
    assert split_kept.read(out / "parties" / "shop" / "kept.npz", None).training == "uncharged"
    assert np.isinf(place.spent("shop", "bank"))


def test_with_three_parties_each_is_asked_about_what_the_others_are_told_of_its_columns(tmp_path):
    folder = tmp_path / "place"
    folder.mkdir()
    three = Place(folder, ("bank", "shop", "clinic"))
    study = three.study("published", PUBLISHED + '[task.encoders.clinic]\nkind = "linear"\nwidth = 2\n', "")
    told = FIT.replace("width = 8\n", "") + f'head = "embeddings"\nrows = {ROWS}\ntraining = "labels"\nepochs = 2\n'
    labels = three.study("labels", told)
    for name in three.parties:
        others = [other for other in three.parties if other != name]
        with raises(PolicyError, "PO022", ", ".join(sorted(others))):
            three.config(name).check(study)
    with raises(PolicyError, "PO022", "labels", "clinic"):
        three.config("bank").check(labels)
    for name in ("shop", "clinic"):
        three.config(name).check(labels)  # the labels are the bank's
    for name in three.parties:
        others = [other for other in three.parties if other != name]
        three.edit(name, "# exact = ", f"exact = {json.dumps(others)} # ")
        for each in (study, labels):
            three.config(name).check(each)
    assert np.isinf(labels.statement.epsilon("shop"))
    assert labels.statement.epsilon("bank") <= 8.0
    assert labels.statement.epsilon("bank+shop") <= 8.0  # it holds the labels


def test_a_party_brings_its_own_encoder_by_its_own_file(place):
    own = encoder_from({"kind": "linear", "width": 2}, 3, seed=5)
    (place.folder / "shop" / "encoder.npz").write_bytes(to_bytes(own))
    task = FIT + '[task.encoders.shop]\nkind = "own"\nwidth = 2\n'
    study = place.study("own", task)
    assert (
        "shop supplies an encoder that was made without this table and treats each row by itself, as it declares"
        in study.statement.assumptions
    )
    with raises(StudyError, "ST271", "shop"):
        place.config("shop").estimator(study)
    path = place.folder / "shop" / "party.toml"
    text = path.read_text()
    path.write_text(text.replace("[policy]", '[encoder]\nweights = "encoder.npz"\n[policy]', 1))
    with raises(StudyError, "ST573", "encoder.made_without_this_table"):
        place.config("shop")
    declared = '[encoder]\nweights = "encoder.npz"\nmade_without_this_table = {}\n[policy]'
    path.write_text(text.replace("[policy]", declared.format("false"), 1))
    with raises(StudyError, "VA194"):
        place.config("shop")
    path.write_text(text.replace("[policy]", declared.format("true"), 1))
    shop = play(study, place.folder / "run")["shop"]
    assert np.array_equal(shop.encoders_["shop"].arrays()["weights"], own.arrays()["weights"])


@pytest.mark.parametrize(
    ("task", "budget", "said"),
    [
        (FIT + "[committee]\nthreshold = 1\n", "[budget]\nepsilon = 1.0\n", None),
        (FIT + 'per_release = 1.0\nhead = "published"\n', "[budget]\nepsilon = 1.0\n", ("VA233", "per_release")),
        (FIT + "[task.encoders.clinic]\nwidth = 3\n", "[budget]\nepsilon = 1.0\n", ("VA225", "clinic")),
        (
            FIT + '[task.encoders.shop]\nkind = "module"\nmake = "os:getcwd"\n',
            "[budget]\nepsilon = 1.0\n",
            "VA066",
        ),
        (FIT, "", "VA234"),
    ],
)
def test_study_files_are_checked_key_by_key(place, task, budget, said):
    if said is None:
        assert place.study("good", task, budget).task.trust.threshold == 1
        return
    with raises(StudyError, said):
        place.study("wrong", task, budget)


def test_processes_of_their_own_learn_a_head_together(place):
    study = place.study("processes", FIT)
    folders = run_local(study, place.folder / "run")
    assert set(folders) == {"coordinator", *PARTIES}
    kept = [split_kept.read(folders[name] / "kept.npz", None).party for name in PARTIES]
    assert kept == list(PARTIES)


def test_a_price_is_for_the_rows_that_a_study_expects(place):
    told, untold = preflight(place.study("said", FIT + f"rows = {ROWS}\n")), preflight(place.study("unsaid", FIT))
    assert told.run.rows == ROWS
    assert untold.run.rows == 2**24
    assert told.run.bytes_total < untold.run.bytes_total / 1000
    assert preflight(place.study("said", FIT + f"rows = {ROWS}\n"), 50).run.rows == 50


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ('kind = "mlp"\nhiden = [3]', "the encoder of shop: an encoder of kind 'mlp' has no option 'hiden'"),
        ('kind = "edges"\nshape = [28, 14]\nwidth = 5', "the encoder of shop: an image of shape [28, 14] has 392"),
    ],
)
def test_an_encoder_that_cannot_be_is_refused_before_anybody_agrees(place, spec, said):
    with pytest.raises(StudyError) as caught:
        preflight(place.study("wrong", FIT + f"[task.encoders.shop]\n{spec}\n"))
    assert said in str(caught.value)


def test_constants_of_a_head_stand_in_a_section_and_are_part_of_the_digest(place):
    plain = place.study("plain", TOLD)
    staged = place.study("plain", TOLD + "[task.constants]\nstage = true\nfirst_share = 0.25\n")
    assert (plain.task.stage, staged.task.stage) == (False, True)
    assert staged.digest != plain.digest
    with raises(StudyError, "ST246", "embeddings", "beta"):
        preflight(place.study("other", TOLD + "[task.constants]\nbeta = 0.5\n"))


def test_the_template_of_a_party_shows_how_to_bring_an_encoder(place):
    for line in ("[encoder]", 'weights = "encoder.npz"', "made_without_this_table = true"):
        place.edit("shop", f"# {line}", line)
    (place.folder / "shop" / "encoder.npz").write_bytes(to_bytes(encoder_from({"kind": "cosine", "width": 3}, 3)))
    assert place.config("shop").content.encoder.weights == "encoder.npz"
