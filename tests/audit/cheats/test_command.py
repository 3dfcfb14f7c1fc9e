"""``colonnade audit cheats``, as a person types it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from colonnade.audit.cheats import trials
from colonnade.cli.app import app
from colonnade.mpc.verify.claims import Claims

ONE = ["audit", "cheats", "--protocol", "inner product", "--committee", "3/1", "--jobs", "1"]


def typed(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, [*ONE, *words])
    return found.exit_code, found.output


def test_rows_say_what_was_played_how_often_and_which_check_caught_it(tmp_path: Path) -> None:
    status, text = typed("--cheat", "plus one", "--trials", "3", "--twins", "--out", str(tmp_path), "--json")
    assert status == 0
    honest, cheat, twin = json.loads(text)["rows"]
    assert (honest["cheat"], honest["trials"], honest["without_effect"]) == (trials.HONEST, 3, 3)
    assert (cheat["seats"], cheat["threshold"], cheat["trials"], cheat["caught"], cheat["missed"]) == (3, 1, 3, 3, 0)
    assert list(cheat["by"]) == ["a check of products of shares failed"]
    assert (twin["checked"], twin["missed"]) == (False, 1)
    rows = list(csv.DictReader((tmp_path / "cheats.csv").read_text().splitlines()))
    assert [row["misses"] for row in rows] == ["0", "0", "1"]


def test_a_miss_ends_with_status_one_and_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Claims, "settle", lambda self: None)
    status, text = typed("--cheat", "plus one")
    assert status == 1
    assert "MISSED" in text
    assert "1 cheats: 0 caught, 0 without effect, 1 missed; 1 honest runs, 0 false alarms" in text


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--protocol", "poker"], "no protocol 'poker' is played"),
        (["--cheat", "aces"], "no cheat has these words in its name"),
        (["--committee", "9/4"], "a committee is one of 3/1, 4/1, 5/2, 7/3"),
    ],
)
def test_unknown_names_are_refused_in_one_sentence(words: list[str], sentence: str) -> None:
    found = CliRunner().invoke(app, ["audit", "cheats", *words])
    assert found.exit_code != 0
    assert sentence in " ".join((found.output + str(found.exception)).split())
