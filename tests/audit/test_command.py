"""``colonnade audit``: what it prints, what it leaves behind, and how it ends."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from colonnade.audit import MOST_SAMPLES, games, registry, subjects
from colonnade.audit.verdict import judge
from colonnade.errors import StorageError, StudyError
from colonnade.report.audit_plot import render_audit
from tests.support.pages import Page

EXAMPLE = Path(__file__).parents[2] / "examples" / "three-organisations"
FEW = ("--samples", "20000", "--seed", "1")


@pytest.fixture(autouse=True)
def _somewhere_else(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def row(monkeypatch):
    """Registers games for one test."""
    monkeypatch.setattr(registry, "_SUBJECTS", dict(registry._SUBJECTS))
    return registry.register


@pytest.fixture
def liar(row):
    """A registered game whose claim is a curve for twice the noise, and which has no twins."""

    def build(task):
        for game in games("skellam"):
            louder = replace(game.events[0], shares=tuple((o, 2 * size) for o, size in game.events[0].shares))
            yield replace(game, subject="liar", events=(louder,))

    row("liar", "claims half of what it costs", lambda: None)(build)
    return "liar"


def test_without_a_name_it_lists_the_games(colonnade):
    text = colonnade("audit")
    assert all(row.name in text and row.summary in text for row in subjects())
    facts = colonnade("audit", "--json")
    assert [entry["name"] for entry in facts["games"]] == [row.name for row in subjects()]


def test_a_correct_mechanism_holds_and_its_twins_are_caught(colonnade, tmp_path):
    text = colonnade("audit", "randomised-response", "--twins", *FEW, "--out", "found")
    assert "randomised-response/shop " in text
    assert text.count("holds") == 2
    assert text.count("caught") == 1
    page = (tmp_path / "found" / "audit.html").read_text(encoding="utf-8")
    assert len(Page(page).all("svg")) == 3
    assert "true labels" in page
    facts = json.loads((tmp_path / "found" / "audit.json").read_text(encoding="utf-8"))
    assert [game["verdict"] for game in facts["games"]] == ["holds", "holds", "caught"]
    assert all(len(game["lower"]) == len(game["claimed"]) == 121 for game in facts["games"])


def test_the_same_seed_gives_the_same_audit(colonnade):
    first, second = (colonnade("audit", "randomised-response", *FEW, "--json") for _ in range(2))
    assert first == second
    assert first["seed"] == 1


def test_a_refuted_claim_ends_with_status_one(colonnade, liar, tmp_path):
    text = colonnade("audit", liar, "--twins", "--samples", "100000", "--seed", "1", code=1)
    assert text.count("REFUTED") == 4
    assert "no twins are declared for liar" in text
    facts = json.loads((tmp_path / "runs/audit/audit.json").read_text(encoding="utf-8"))
    assert not any(game["good"] for game in facts["games"])
    assert all(game["reach"] > 1 for game in facts["games"])
    assert facts["without_twins"] == ["liar"]
    page = (tmp_path / "runs/audit/audit.html").read_text(encoding="utf-8")
    assert "4 promises are refuted: liar/analyst; liar/coordinator;" in page
    assert "escaped" not in page


def test_a_twin_that_escapes_ends_with_status_one(colonnade, tmp_path):
    text = colonnade("audit", "skellam", "--twins", "--samples", "1000", "--seed", "1", code=1)
    assert "ESCAPED" in text
    assert "more --samples" in text
    assert "no twins are declared" not in text
    page = (tmp_path / "runs/audit/audit.html").read_text(encoding="utf-8")
    assert "skellam/analyst: half the variance of the noise" in page.partition("</header>")[0]
    assert "refuted:" not in page


def test_the_page_keeps_refuted_promises_and_escaped_twins_apart(liar):
    real, escaped = games(liar)[0], games("randomised-response")[0]
    verdicts = [judge(real, 100_000, seed=1), judge(escaped, 1000, seed=1, broken="nothing, really")]
    lead = render_audit("Audit", verdicts).partition("</header>")[0]
    refuted, _, twins = lead.partition("escaped")
    assert "1 promise is refuted: liar/analyst." in refuted
    assert "randomised-response/coordinator: nothing, really" in twins
    assert "liar" not in twins


def test_a_reach_of_a_hundred_percent_is_only_for_a_refuted_promise():
    verdict = judge(games("randomised-response")[0], 1000, seed=1)
    for claimed, lower, text in ((0.3, 0.2999, "99%"), (0.3, 0.3001, "101%"), (0.3, 0.0, "0%"), (0.0, 0.1, ">999%")):
        result = replace(verdict.result, margin=lower - claimed, epsilons=(2.0,), claimed=(claimed,), lower=(lower,))
        assert replace(verdict, result=result).reach == text


def test_a_row_without_games_is_named(colonnade, row):
    row("empty", "nothing at all", lambda: None)(lambda task: ())
    assert "empty is registered but gives no games" in colonnade("audit", "empty", code=StudyError.exit_code)


def test_a_file_does_not_hide_a_game_of_its_name(colonnade, tmp_path):
    (tmp_path / "randomised-response").write_text("not a study", encoding="utf-8")
    assert colonnade("audit", "randomised-response", *FEW).count("holds") == 2
    (tmp_path / "other").write_text("not a study", encoding="utf-8")
    assert "there are no games named 'other'" in colonnade("audit", "other", code=StudyError.exit_code)
    assert "no games named" not in colonnade("audit", "./other", code=StudyError.exit_code)


@pytest.mark.parametrize("out", ["taken", "taken/below", "/proc/nowhere", "held", "page"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_played(colonnade, out, tmp_path, monkeypatch):
    (tmp_path / "taken").write_text("", encoding="utf-8")
    (tmp_path / "held" / "audit.json").mkdir(parents=True)
    (tmp_path / "page" / "audit.html").mkdir(parents=True)
    monkeypatch.setattr(registry.Game, "play", lambda *_, **__: pytest.fail("it was played"))
    text = colonnade("audit", "skellam", "--out", out, code=StorageError.exit_code)
    assert out.partition("/below")[0] in text
    assert "Traceback" not in text
    assert text.count("\n") == 1


def test_there_is_a_most_of_samples(colonnade):
    assert str(MOST_SAMPLES) in colonnade("audit", "skellam", "--samples", MOST_SAMPLES + 1, code=2)


def test_a_study_is_attacked_with_its_own_parameters(colonnade, tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "s", ignore=shutil.ignore_patterns("certs", "*.key", "*.crt", "*.sqlite*"))
    facts = colonnade("audit", tmp_path / "s" / "STUDY.toml", *FEW, "--json")
    found = {game["observer"]: game for game in facts["games"]}
    assert set(found) == {"analyst", "coordinator", "bank", "bank+coordinator"}
    assert found["analyst"]["claimed_epsilon"] == pytest.approx(1.0, abs=1e-3)
    assert found["bank"]["claimed_epsilon"] <= 2.0
    assert all(game["good"] for game in found.values())


def test_an_unknown_name_is_one_sentence(colonnade):
    text = colonnade("audit", "nothing", code=StudyError.exit_code)
    assert "'nothing'" in text
    assert "pca" in text
    assert "Traceback" not in text
    colonnade("audit", "none.toml", code=StudyError.exit_code)
