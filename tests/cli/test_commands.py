"""The commands, in this process; real processes are tested with the studies."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path

import pytest

from colonnade.cli import app as cli
from colonnade.errors import DataError, IdentityError, LedgerError, SchemaError, StudyError

EXAMPLE = Path(__file__).parents[2] / "examples" / "three-organisations"


@pytest.fixture
def colonnade(monkeypatch, capfd):
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
def study(tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "s", ignore=shutil.ignore_patterns("certs", "*.key", "*.crt", "*.sqlite*"))
    return tmp_path / "s" / "STUDY.toml"


def test_help_lists_every_command(colonnade):
    text = colonnade("--help")
    for name in ("demo", "init", "doctor", "coordinator", "party", "run", "privacy", "ledger", "schema"):
        assert name in text


@pytest.mark.parametrize(
    "command",
    [
        ["demo"], ["privacy"], ["run"], ["coordinator"], ["party"], ["doctor"], ["init", "party"], ["init", "pins"],
        ["init", "trial"], ["init", "coordinator"], ["ledger", "show"], ["ledger", "verify"], ["schema", "draft"],
        ["schema", "check"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_every_command_has_help_and_json(colonnade, command):
    text = colonnade(*command, "--help")
    assert "--json" in text


def test_privacy_before_anybody_says_yes(colonnade, study):
    text = colonnade("privacy", study, "--rows", 3000)
    for word in ("analyst", "bank+shop", "inf", "cannot tell", "on the wire", "bits"):
        assert word in text
    facts = colonnade("privacy", study, "--rows", 3000, "--json")
    assert facts["rows"] == 3000
    assert facts["statement"]["rows"][0]["epsilon"] <= 1.0


def test_a_user_mistake_is_one_sentence(colonnade, study, tmp_path):
    text = colonnade("privacy", tmp_path / "none.toml", code=StudyError.exit_code)
    assert text.startswith("colonnade: the study file")
    assert "Traceback" not in text
    facts = colonnade("privacy", tmp_path / "none.toml", "--json", code=StudyError.exit_code)
    assert facts["error"] == "StudyError"
    assert facts["exit_code"] == StudyError.exit_code
    colonnade("privacy", code=2)


def test_keys_pins_and_doctor(colonnade, study, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    folder = study.parent
    for name in ("bank", "shop", "clinic"):
        made = colonnade("init", "party", name, "--out", folder / name, "--json")
        assert (folder / name / f"{name}.key").stat().st_mode & 0o077 == 0
        assert made["fingerprint"].startswith("sha256:")
    colonnade("init", "coordinator", "--out", folder / "coordinator")
    colonnade("init", "party", "bank", "--out", folder / "bank", code=IdentityError.exit_code)
    assert "no certificate of bank" in colonnade("init", "pins", study, code=IdentityError.exit_code)
    (folder / "certs").mkdir()
    for name in ("bank", "shop", "clinic", "coordinator"):
        shutil.copy(folder / name / f"{name}.crt", folder / "certs")
    assert set(colonnade("init", "pins", study, "--json")["pins"]) == {"bank", "shop", "clinic", "coordinator"}
    checks = {
        c["what"]: c["level"] for c in colonnade("doctor", study, folder / "bank" / "party.toml", "--json")["checks"]
    }
    assert checks["table"] == checks["key"] == checks["certificates"] == checks["policy"] == "good"
    assert checks["connection"] == "unsure"
    shutil.copy(folder / "certs" / "shop.crt", folder / "certs" / "bank.crt")
    text = colonnade("doctor", study, folder / "bank" / "party.toml", code=1)
    assert "BAD  certificates" in text


def test_trial_keys_are_made_once(colonnade, study):
    first = colonnade("init", "trial", study, "--json")
    assert colonnade("init", "trial", study, "--json") == first


def test_drafting_and_checking_a_schema(colonnade, study):
    table = study.parent / "bank" / "bank.csv"
    made = Path(colonnade("schema", "draft", table, "--json")["schema"])
    assert "drafted = true" in made.read_text()
    text = colonnade("schema", "check", table, made, code=SchemaError.exit_code)
    assert "say aloud" in text
    colonnade("schema", "draft", table, code=1)
    facts = colonnade("schema", "check", table, study.parent / "schemas" / "bank.toml", "--json")
    assert facts["rows"] == 3000
    table.write_text(table.read_text().replace("employed", "unheard-of", 1))
    text = colonnade("schema", "check", table, study.parent / "schemas" / "bank.toml", code=DataError.exit_code)
    assert "work" in text
    assert "unheard-of" not in text


def test_a_ledger_that_is_not_there(colonnade, tmp_path):
    colonnade("ledger", "show", tmp_path / "no.sqlite", code=LedgerError.exit_code)
    (tmp_path / "emptied.sqlite").touch()
    assert "is empty" in colonnade("ledger", "verify", tmp_path / "emptied.sqlite", code=LedgerError.exit_code)
    assert (tmp_path / "emptied.sqlite").stat().st_size == 0
    (tmp_path / "junk.sqlite").write_text("this is not a ledger, however long it may be" * 100)
    text = colonnade("ledger", "verify", tmp_path / "junk.sqlite", code=16)
    assert "junk.sqlite" in text


def test_a_fault_of_ours_is_said_to_be_one(colonnade, study, monkeypatch):
    monkeypatch.setattr(cli, "preflight", lambda *_: 1 / 0)
    monkeypatch.delenv("COLONNADE_DEBUG", raising=False)
    text = colonnade("privacy", study, code=70)
    assert "fault of Colonnade (ZeroDivisionError)" in text


def test_the_demo_leaves_a_run_directory(colonnade, tmp_path):
    facts = colonnade("demo", "--out", tmp_path / "demo", "--rows", 500, "--json")
    out = tmp_path / "demo"
    for name in ("run.json", "privacy.json", "events.jsonl", "model.json", "report.html"):
        assert (out / name).stat().st_size > 0
    assert facts["run"]["status"] == "finished"
    assert set(facts["run"]["parties"]) == {"bank", "shop", "clinic"}
    book = out / "study" / "bank" / "ledger.sqlite"
    shown = colonnade("ledger", "show", book, "--json")
    assert [entry["state"] for entry in shown["entries"]] == ["committed"]
    assert shown["totals"]["analyst"] <= 1.0
    assert "is whole" in colonnade("ledger", "verify", book)


def test_running_the_example_with_local_processes(colonnade, study):
    from socket import socket

    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        study.write_text(study.read_text().replace("7443", str(probe.getsockname()[1])))
    colonnade("init", "trial", study)
    text = colonnade("run", study, "--out", study.parent / "out")
    assert "explained variance" in text
    assert (study.parent / "out" / "report.html").exists()


def test_the_demo_never_clears_a_folder_that_is_not_its_own(colonnade, tmp_path):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "STUDY.toml").write_text("years of work")
    assert "not empty" in colonnade("demo", "--out", tmp_path, code=StudyError.exit_code)
    assert (tmp_path / "study" / "STUDY.toml").exists()


def test_paths_that_cannot_be_used_are_no_fault_of_ours(colonnade, tmp_path, study):
    (tmp_path / "file").write_text("")
    assert "cannot be used" in colonnade("demo", "--out", tmp_path / "file", code=StudyError.exit_code)
    table = study.parent / "bank" / "bank.csv"
    text = colonnade("schema", "draft", table, "--out", tmp_path / "no" / "x.toml", code=StudyError.exit_code)
    assert "x.toml cannot be used" in text
    assert "cannot name a participant" in colonnade("init", "party", "b" * 300, code=IdentityError.exit_code)
    config = ["init", "party", "other", "--out", study.parent / "bank"]
    assert "another party" in colonnade(*config, code=StudyError.exit_code)


def test_a_windows_path_survives_in_a_configuration(colonnade, tmp_path):
    from colonnade.study import PartyConfig

    made = colonnade("init", "party", "carl", "--out", tmp_path / "carl", "--data", "C:\\data\\x.csv", "--json")
    assert PartyConfig.load(made["config"]).content.data == "C:\\data\\x.csv"
