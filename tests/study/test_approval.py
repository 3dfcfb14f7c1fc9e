"""Who says yes to a study: at a terminal, with a digest, or nobody; always before anything is reserved or sent."""

from __future__ import annotations

import json
import os
import pty
import socket
from pathlib import Path

import pytest

from colonnade.errors import NO_PART, BudgetError, PolicyError
from colonnade.privacy import Ledger
from colonnade.study import PartyConfig, run_party
from tests.support.errors import raises


def asking(study):
    study.edit("bank/party.toml", r'^approval = "auto-within-budget"', 'approval = "ask"')
    return study


def told_that_it_takes_no_part(ended):
    return all(
        f"bank stopped the study: {NO_PART}" in ended[name].sentence for name in ("coordinator", "shop", "clinic")
    )


def test_without_a_terminal_a_digest_is_needed(trial):
    study = asking(trial())
    study.start_bank_last()
    ended = study.ends()
    assert ended["bank"].code == PolicyError.exit_code
    assert f"--approve {study.study().digest}`" in ended["bank"].sentence
    assert told_that_it_takes_no_part(ended)
    assert study.states("bank") == []


def test_a_digest_approves(trial):
    study = asking(trial())
    study.start_bank_last(approve=study.study().digest[:32])
    ended = study.ends()
    assert all(end.code == 0 for end in ended.values()), ended
    run = study.run_json("bank")
    assert run["approval"] == {"mode": "ask", "by": "the digest given with --approve"}
    assert run["ledger"] == {"path": str(study.folder / "bank" / "ledger.sqlite"), "new": True, "upgraded": False}
    assert run["ledger_head"] == Ledger(study.folder / "bank" / "ledger.sqlite").head
    whats = [line["what"] for line in study.happened("bank")]
    assert "new ledger: nothing on record before this study" in whats
    assert whats.index("approved") < whats.index("budget reserved") < whats.index("connected")
    spent = next(line for line in study.happened("bank") if line["what"] == "budget spent")
    assert spent["ledger_head"] == run["ledger_head"]


@pytest.fixture
def terminal():
    """The two ends of a terminal: what a person types into, and what a process reads."""
    person, process = pty.openpty()
    yield person, process
    os.close(person)
    os.close(process)


def question(child) -> str:
    """What a process says on standard error, up to the question."""
    said = ""
    while "[y/N] " not in said:
        character = child.stderr.read(1)
        assert character, said
        said += character
    return said


def test_no_at_the_terminal_and_nothing_leaves_before_the_answer(trial, terminal):
    study = asking(trial(join=6))
    person, process = terminal
    with socket.create_server(("127.0.0.1", study.port)) as nobody:
        nobody.settimeout(0.5)
        study.start("bank", stdin=process)
        asked = question(study.children["bank"])
        assert study.study().digest in asked
        with pytest.raises(TimeoutError):
            nobody.accept()
        assert not (study.folder / "bank" / "ledger.sqlite").exists()
    study.start("coordinator", threads=True)
    study.until("coordinator", "listening")
    os.write(person, b"n\n")
    ended = study.ends()
    # only now it dialled, to say that it will not take part
    assert f"bank stopped the study: {NO_PART}" in ended["coordinator"].sentence
    assert ended["bank"].code == PolicyError.exit_code
    assert "was not approved by bank's operator" in ended["bank"].sentence
    assert study.states("bank") == []


def test_yes_at_the_terminal(trial, terminal):
    study = asking(trial())
    person, process = terminal
    study.start("coordinator", "shop", "clinic", threads=True)
    study.start("bank", stdin=process)
    question(study.children["bank"])
    os.write(person, b"y\n")
    ended = study.ends()
    assert all(end.code == 0 for end in ended.values()), ended
    assert study.run_json("bank")["approval"] == {"mode": "ask", "by": "an answer at the terminal"}
    assert study.states("bank") == ["committed"]


def unheard(study):
    """Nobody listens to why a party does not take part, so that it need not try for long to say so."""
    study.edit("STUDY.toml", r"^silence = 60", "silence = 60\nexcuse = 0.2")
    return study


def test_a_program_is_asked_with_the_study_and_its_cost(trial, tmp_path: Path):
    study = unheard(asking(trial(join=2)))
    asked = []

    def refuse(about, statement):
        asked.append((about.digest, statement.epsilon("analyst")))
        return False

    loaded, config = study.study(), PartyConfig.load(study.folder / "bank" / "party.toml")
    with raises(PolicyError, "PO013"):
        run_party(loaded, config, tmp_path / "run", approve=refuse)
    assert asked == [(loaded.digest, pytest.approx(1.0, abs=1e-6))]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"
    assert Ledger(config.ledger).entries() == ()


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        (r'^columns = "all".*', 'columns = ["age"]', PolicyError, "PO017"),
        (r"^epsilon = .*", "epsilon = { analyst = 0.5 }", BudgetError, ("BU002", "0.0000")),
    ],
    ids=["policy", "budget"],
)
def test_nobody_is_asked_in_vain(trial, tmp_path: Path, old, new, error, message):
    study = unheard(asking(trial(join=2)))
    study.edit("bank/party.toml", old, new)
    loaded, config = study.study(), PartyConfig.load(study.folder / "bank" / "party.toml")
    with raises(error, message):
        run_party(loaded, config, tmp_path / "run", approve=lambda *_: pytest.fail("asked"))
    assert not config.ledger.exists()
