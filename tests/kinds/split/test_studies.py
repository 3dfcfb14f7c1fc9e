"""Split models as studies: by a committee, over embeddings and as published; encoders stay with their parties."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from colonnade.cli import text_output
from colonnade.errors import PolicyError, StudyError
from colonnade.kinds import SplitClassifier, SplitScores
from colonnade.kinds.split import encoders as split_kept
from colonnade.kinds.split.encoders import encoder_from, to_bytes
from colonnade.models import Estimator
from colonnade.study import preflight
from tests.support.errors import refused
from tests.support.pages import Page
from tests.support.places import Place
from tests.support.studies import play

ROWS = 300
COLUMNS = {
    "bank": ["income", "arrears", "default"],
    "shop": ["basket", "discounts", "visits"],
    "clinic": ["bmi", "glucose"],
}
PARTIES = ("bank", "shop")


KINDS = '"split-classifier", "split-regressor", "split-scores"'


FIT = 'kind = "split-classifier"\nlabel = "bank.default"\nwidth = 8\n'


TOLD = FIT + f'head = "embeddings"\nrows = {ROWS}\n'


LINEAR = '[task.encoders.bank]\nkind = "linear"\nwidth = 2\n[task.encoders.shop]\nkind = "linear"\nwidth = 3\n'


PUBLISHED = FIT + f'head = "published"\nrows = {ROWS}\nper_release = 2.0\nepochs = 2\nbatches = 4\n' + LINEAR


def made(folder: Path, parties: Sequence[str] = PARTIES) -> Place:
    """These parties with the same people."""
    columns = {name: COLUMNS[name] for name in parties}
    return Place(folder / "place", columns, KINDS, "analyst = 30.0, party = 30.0", FIT, ROWS)


def ask(place: Place, out: Path) -> None:
    """About new people, by the encoders that parties kept."""
    for party in PARTIES:
        place.set(party, "kept", f'"{out}/parties/{party}/kept.npz"')
    task = f'kind = "split-scores"\nmodel = "{out}/model.json"\nrows_at_most = 400\n'
    study = place.study("ask", task)
    found = play(study, place.folder / "asked")
    assert isinstance(found["bank"], SplitScores)
    assert len(found["bank"].ids_) == ROWS
    assert found["shop"].ids_ is None
    assert 7 < study.statement.epsilon("bank") <= 8.0
    refused(PolicyError, "PO022", "shop", place.config("shop").check, place.study("exact", task + "exact = true\n", ""))
    place.edit("shop", "kept = ", "# kept = ")
    refused(StudyError, "ST553", "shop", "encoder", "kept.npz", place.config("shop").estimator, study)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory) -> Place:
    return made(tmp_path_factory.mktemp("split"))


@pytest.fixture
def place(untouched, tmp_path) -> Place:
    return untouched.copied(tmp_path / "place")


def test_a_committee_learns_a_head_that_everybody_has_and_encoders_stay(place):
    study = place.study("fit", FIT)
    out, _ = place.run(study)
    public = Estimator.load(out / "model.json")
    assert (type(public), public.encoders_) == (SplitClassifier, {})
    for name in PARTIES:
        folder = out / "parties" / name
        assert Estimator.load(folder / "model.json").digest == public.digest
        kept = split_kept.read_party_file(folder / "kept.npz", public.digest)
        assert (kept.party, kept.training) == (name, "none")
        assert (folder / "kept.npz").stat().st_mode & 0o077 == 0
        assert public.load_kept(folder / "kept.npz") == name
    assert not (out / "kept.npz").exists()
    tables = {name: place.config(name).table(study.roster.schemas[name]).sorted_by_id() for name in PARTIES}
    assert roc_auc_score(public.true_of(tables), public.predict_proba(tables)[:, 1]) > 0.65  # 0.5 is chance
    page = Page((out / "report.html").read_text()).words
    assert "no embedding left anybody" in page
    assert "head by committee (discriminant)" in text_output.outcome(study, out, {})
    assert 0 < place.spent("shop", "bank") <= 8.0
    ask(place, out)


def test_embeddings_are_told_to_the_party_with_the_label(place):
    study = place.study("told", TOLD)
    assert "EMBEDDINGS told to bank, which keeps the head" in text_output.preflight(preflight(study))
    out, _ = place.run(study)
    bank, shop = (split_kept.read_party_file(out / "parties" / name / "kept.npz", None).own for name in PARTIES)
    assert ("spread" in bank, "spread" in shop) == (True, False)
    assert 7 < place.spent("shop", "bank") <= 8.0
    assert place.spent("bank", "shop") == 0
    assert "noisy embeddings of shop" in Page((out / "report.html").read_text()).words
    facts = json.loads((out / "run.json").read_text())["task"]
    assert (facts["kind"], facts["to"], facts["widths"]) == ("split-classifier", "bank", {"shop": 8})
    ask(place, out)


def test_as_published_is_refused_until_a_party_says_otherwise(place):
    study = place.study("published", PUBLISHED, "")
    refused(PolicyError, "PO022", "published", "bank", place.config("shop").check, study)
    for name, other in (("shop", "bank"), ("bank", "shop")):
        place.set(name, "exact", f'["{other}"]')
        place.set(name, "epsilon", "{ analyst = 30.0, coordinator = 30.0 }")
        place.config(name).check(study)
    shown = text_output.preflight(preflight(study))
    assert "THE PUBLISHED ALGORITHM, which promises nothing\nas published, not proven: " in shown
    assert "2 releases together would be epsilon" in shown
    out, _ = place.run(study)
    page = Page((out / "report.html").read_text()).words
    assert "As published, not proven: the encoder and the rescaling depend" in page
    assert split_kept.read_party_file(out / "parties" / "shop" / "kept.npz", None).training == "uncharged"
    assert np.isinf(place.spent("shop", "bank"))


def test_with_three_parties_each_is_asked_about_what_the_others_are_told_of_its_columns(tmp_path):
    three = made(tmp_path, tuple(COLUMNS))
    study = three.study("published", PUBLISHED + '[task.encoders.clinic]\nkind = "linear"\nwidth = 2\n', "")
    labels = three.study("labels", TOLD.replace("width = 8\n", "") + 'training = "labels"\nepochs = 2\n')
    for name in COLUMNS:
        others = sorted(set(COLUMNS) - {name})
        refused(PolicyError, "PO022", ", ".join(others), three.config(name).check, study)
        if name == "bank":
            refused(PolicyError, "PO022", "labels", "clinic", three.config(name).check, labels)
        else:
            three.config(name).check(labels)  # the labels are the bank's
        three.set(name, "exact", json.dumps(others))
        three.config(name).check(study)
        three.config(name).check(labels)
    assert np.isinf(labels.statement.epsilon("shop"))
    assert max(labels.statement.epsilon(who) for who in ("bank", "bank+shop")) <= 8.0  # it holds the labels


def test_a_party_brings_its_own_encoder_by_its_own_file(place):
    own = encoder_from({"kind": "linear", "width": 2}, 3, seed=5)
    (place.folder / "shop" / "encoder.npz").write_bytes(to_bytes(own))
    study = place.study("own", FIT + '[task.encoders.shop]\nkind = "own"\nwidth = 2\n')
    said = "shop supplies an encoder that was made without this table and treats each row by itself, as it declares"
    assert said in study.statement.assumptions
    refused(StudyError, "ST271", "shop", place.config("shop").estimator, study)
    for line in ("[encoder]", 'weights = "encoder.npz"'):  # as the template shows it
        place.edit("shop", f"# {line}", line)
    refused(StudyError, "ST573", "encoder.made_without_this_table", place.config, "shop")
    place.set("shop", "made_without_this_table", "false")
    refused(StudyError, "VA194", place.config, "shop")
    place.set("shop", "made_without_this_table", "true")
    assert place.config("shop").content.encoder.weights == "encoder.npz"
    shop = play(study, place.folder / "run")["shop"]
    assert np.array_equal(shop.encoders_["shop"].arrays()["weights"], own.arrays()["weights"])


ONE = "[budget]\nepsilon = 1.0\n"


def test_study_files_are_checked_key_by_key(untouched):
    assert untouched.study("good", FIT + "[committee]\nthreshold = 1\n", ONE).task.trust.threshold == 1
    for more, budget, *said in (
        ('per_release = 1.0\nhead = "published"\n', ONE, "VA233", "per_release"),
        ("[task.encoders.clinic]\nwidth = 3\n", ONE, "VA225", "clinic"),
        ('[task.encoders.shop]\nkind = "module"\nmake = "os:getcwd"\n', ONE, "VA066"),
        ("", "", "VA234"),
    ):
        refused(StudyError, said, untouched.study, "wrong", FIT + more, budget)


def test_a_preflight_is_for_the_rows_constants_and_encoders_that_a_study_has(untouched):
    said, unsaid = untouched.study("said", FIT + f"rows = {ROWS}\n"), untouched.study("unsaid", FIT)
    told, untold = preflight(said), preflight(unsaid)
    assert (told.run.rows, untold.run.rows, preflight(said, 50).run.rows) == (ROWS, 2**24, 50)
    assert told.run.bytes_total < untold.run.bytes_total / 1000
    plain = untouched.study("plain", TOLD)
    staged = untouched.study("plain", TOLD + "[task.constants]\nstage = true\nfirst_share = 0.25\n")
    assert (plain.task.stage, staged.task.stage) == (False, True)
    assert staged.digest != plain.digest
    wrong = untouched.study("wrong", FIT + '[task.encoders.shop]\nkind = "mlp"\nhiden = [3]\n')
    refused(StudyError, "ST306", "the encoder of shop", "'mlp'", "'hiden'", preflight, wrong)
