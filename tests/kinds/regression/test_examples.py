"""The example of private regression: its studies are priced, its policies allow them, its script runs."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path

import pytest
from sklearn.metrics import roc_auc_score

from colonnade import SplitClassifier
from colonnade.errors import StudyError
from colonnade.study import PartyConfig, Study

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Both folders, since the tables are those of the other example."""
    place = tmp_path_factory.mktemp("examples")
    made = shutil.ignore_patterns("certs", "runs", "coordinator", "*.key", "*.crt", "ledger.sqlite*", "alignments")
    for name in ("three-organisations", "private-regression"):
        shutil.copytree(EXAMPLES / name, place / name, ignore=made)
    return place / "private-regression"


@pytest.mark.parametrize(
    ("name", "law", "price"),
    [
        ("STUDY.toml", "skellam", "the budget for analyst decides: epsilon 1.0000 of 1 allowed"),
        ("FUNCTIONAL.toml", "discrete-laplace", "the study states no budget for observers"),
    ],
)
def test_the_studies_are_priced_and_within_everybodys_policy(colonnade, folder, name, law, price):
    facts = colonnade("privacy", folder / name, "--rows", 3000, "--json")
    assert (facts["law"], facts["columns"], facts["rows"]) == (law, 40, 3000)
    study = Study.load(folder / name)
    for party in ("bank", "shop", "clinic"):
        config = PartyConfig.load(folder / party / "party.toml")
        config.check(study)
        config.check_budget(study)
        assert config.table(study.roster.schemas[party]).rows == 3000
    assert price in colonnade("privacy", folder / name)


def test_the_study_over_messages_is_priced_and_within_everybodys_policy(colonnade, folder):
    facts = colonnade("privacy", folder / "MESSAGES.toml", "--json")
    assert (facts["method"], facts["columns"], facts["rows"], facts["primes"]) == ("alternating", 39, 2630, 0)
    assert facts["binding"]["epsilon"] <= 4.0
    study = Study.load(folder / "MESSAGES.toml")
    for party in ("bank", "shop", "clinic"):
        config = PartyConfig.load(folder / party / "party.toml")
        config.check(study)
        config.check_budget(study)
        assert config.kept == folder / party / ".." / "runs" / "noised-messages" / "parties" / party / "kept.json"


def test_a_plan_counts_rows_against_a_budget_and_epsilon_against_none(colonnade, folder):
    text = colonnade("plan", folder / "FUNCTIONAL.toml", "--rows", "--error", 1, code=StudyError.exit_code)
    assert "states no epsilon in [budget]" in text
    priced = colonnade("plan", folder / "FUNCTIONAL.toml", "--epsilon", "--error", 0.05, "--rows-given", 3000)
    assert "states no budget for observers" in priced


@pytest.mark.parametrize("name", ["PREDICT.toml", "SCORES.toml"])
def test_a_prediction_waits_for_its_model(colonnade, folder, name):
    text = colonnade("run", folder / name, "--out", folder / "out", code=StudyError.exit_code)
    assert "model.json cannot be read" in text
    assert not (folder / "out").exists()


def test_a_module_of_ones_own_is_an_encoder(capsys):
    pytest.importorskip("torch")
    made = runpy.run_path(str(EXAMPLES / "own_encoder" / "own_encoder.py"))
    score = made["main"](rows=2_000)
    said = capsys.readouterr().out
    for word in ("shop supplies an encoder that was made without this table", "accuracy on 400 other people"):
        assert word in said
    assert said.endswith(f" {score:.3f}\n")
    # So few people at epsilon 1 say little more than how many default; with less noise the ranking is far from chance.
    encoders = {"bank": {"kind": "cosine", "width": 24}, "shop": made["shops_encoder"]()}
    model = SplitClassifier(label="bank.default", epsilon=20.0, encoders=encoders).fit(made["parties"](2_000))
    others = made["parties"](1_000, seed=1)
    assert roc_auc_score(model.true_of(others), model.predict_proba(others)[:, 1]) > 0.65


def test_the_script_runs(folder, capsys):
    score = runpy.run_path(str(folder / "fit.py"))["main"](rows=2_000)
    assert 0.6 < score <= 1
    said = capsys.readouterr().out
    for word in ("analyst", "bank", "accuracy on 400 other people"):
        assert word in said
