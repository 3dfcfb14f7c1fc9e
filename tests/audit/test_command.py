"""``colonnade audit``: what it prints, what it leaves behind, and how it ends."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from colonnade.audit import games, registry, rows
from colonnade.cli import app as cli
from colonnade.errors import StudyError

EXAMPLE = Path(__file__).parents[2] / "examples" / "three-organisations"
FEW = ("--samples", "20000", "--seed", "1")


@pytest.fixture
def colonnade(monkeypatch, capfd, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*words, code=0):
        monkeypatch.setattr(sys, "argv", ["colonnade", *map(str, words)])
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        try:
            cli.command_line()
            ended = 0
        except SystemExit as end:
            ended = end.code or 0
        out, err = capfd.readouterr()
        assert ended == code, (out, err)
        return json.loads(out) if "--json" in words else out + err

    return call


@pytest.fixture
def liar():
    """A registered game whose claim is a curve for twice the noise."""

    def build(task):
        for game in games("skellam"):
            louder = replace(game.events[0], shares=tuple((o, 2 * size) for o, size in game.events[0].shares))
            yield replace(game, subject="liar", events=(louder,))

    registry.register("liar", "claims half of what it costs", lambda: None)(build)
    yield "liar"
    del registry._ROWS["liar"]


class Page(HTMLParser):
    """Counts the charts and checks that every element is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.charts = [], 0
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.charts += tag == "svg"
        if tag not in ("meta", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_without_a_name_it_lists_the_games(colonnade):
    text = colonnade("audit")
    assert all(row.name in text and row.summary in text for row in rows())
    facts = colonnade("audit", "--json")
    assert [entry["name"] for entry in facts["games"]] == [row.name for row in rows()]


def test_a_correct_mechanism_holds_and_its_twins_are_caught(colonnade, tmp_path):
    text = colonnade("audit", "randomised-response", "--twins", *FEW, "--out", "found")
    assert "randomised-response/shop " in text
    assert text.count("holds") == 2
    assert text.count("caught") == 1
    page = (tmp_path / "found" / "audit.html").read_text(encoding="utf-8")
    assert Page(page).charts == 3
    assert Page(page).open == []
    assert "true labels" in page
    facts = json.loads((tmp_path / "found" / "audit.json").read_text(encoding="utf-8"))
    assert [game["verdict"] for game in facts["games"]] == ["holds", "holds", "caught"]
    assert all(len(game["lower"]) == len(game["claimed"]) == 121 for game in facts["games"])


def test_the_same_seed_gives_the_same_audit(colonnade):
    first, second = (colonnade("audit", "grid", *FEW, "--json") for _ in range(2))
    assert first == second
    assert first["seed"] == 1


def test_a_refuted_claim_ends_with_status_one(colonnade, liar):
    text = colonnade("audit", liar, "--samples", "200000", "--seed", "1", code=1)
    assert "REFUTED" in text
    facts = colonnade("audit", liar, "--samples", "200000", "--seed", "1", "--json", code=1)
    assert not all(game["good"] for game in facts["games"])


def test_a_twin_that_escapes_ends_with_status_one(colonnade):
    text = colonnade("audit", "skellam", "--twins", "--samples", "1000", "--seed", "1", code=1)
    assert "ESCAPED" in text
    assert "more --samples" in text


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
