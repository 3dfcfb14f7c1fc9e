"""The commands, in this process; real processes are tested with the studies."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from colonnade.cli.demo import alignment_mode
from colonnade.errors import (
    DataError,
    IdentityError,
    LedgerError,
    PolicyError,
    PrivacyError,
    SchemaError,
    StorageError,
    StudyError,
)
from colonnade.privacy import Ledger, Observer, SkellamRelease, Trust
from colonnade.study import PartyConfig, Study
from colonnade.study.record import read_facts
from colonnade.tables import Schema, population
from colonnade.wire import Certificate
from tests.support.studies import check_words, edit

ROOT = Path(__file__).parents[2]
BANK = "bank/party.toml"


COMMANDS = (
    "demo", "plan", "bench", "audit", "keys", "privacy", "run", "coordinator", "relay", "party", "doctor", "quality",
    "predict", "init party", "init pins", "init trial", "init coordinator", "ledger show", "ledger verify",
    "ledger export", "ledger release", "schema draft", "schema check", "schema digest",
)  # fmt: skip


def test_help_says_in_a_whole_line_what_each_command_does(colonnade, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    listed = colonnade("--help").partition("Commands:")[2].partition("First steps")[0].strip().splitlines()
    assert len(listed) > 30
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []
    assert {command.split()[0] for command in COMMANDS} <= {line.split()[0] for line in listed}
    for command in COMMANDS:
        assert "--json" in colonnade(*command.split(), "--help"), command


def test_privacy_before_anybody_says_yes(colonnade, study):
    text = colonnade("privacy", study, "--rows", 3000)
    described = "Principal components of what a bank, a shop and a clinic know"
    noise = "FORECAST for 3,000 people: noise moves the variance of a component, in even shares, by about 1.1"
    check_words(text, "analyst", "bank+shop", "inf", "cannot tell", "on the wire", "bits", noise, "TOO FEW PEOPLE")
    assert text.startswith(described)
    facts = colonnade("privacy", study, "--rows", 3000, "--json")
    forecast = facts["forecast"]
    assert facts["statement"]["rows"][0]["epsilon"] <= 1.0
    assert "curves" not in facts
    assert facts["description"].startswith(described)
    assert (facts["rows"], forecast["rows"], forecast["too_few"]) == (3000, 3000, True)
    assert "TOO FEW PEOPLE" not in colonnade("privacy", study, "--rows", 30_000)
    unsaid = colonnade("privacy", study, "--json")["forecast"]
    assert (unsaid["rows"], unsaid["error"], unsaid["people"]) == (None, None, forecast["people"])


def test_the_whole_curve_on_request(colonnade, study):
    text = colonnade("privacy", study, "--curve")
    assert "delta at epsilon" in text
    curves = colonnade("privacy", study, "--curve", "--json")["curves"]
    assert {"analyst", "coordinator", "bank"} <= set(curves)
    assert "bank+shop" not in curves
    deltas = list(curves["bank"].values())
    assert deltas == sorted(deltas, reverse=True)
    assert curves["analyst"]["1"] <= 1e-5 <= curves["analyst"]["0.2"]


def test_a_user_mistake_is_one_sentence(colonnade, study, tmp_path):
    text = colonnade("privacy", tmp_path / "none.toml", code=StudyError.exit_code)
    assert text.startswith("colonnade: the study file")
    assert "Traceback" not in text
    facts = colonnade("privacy", tmp_path / "none.toml", "--json", code=StudyError.exit_code)
    assert (facts["error"], facts["exit_code"]) == ("StudyError", StudyError.exit_code)
    colonnade("privacy", code=2)


def test_keys_pins_and_doctor(colonnade, study, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    folder, everybody = study.parent, ("bank", "shop", "clinic", "coordinator")
    for name in everybody[:3]:
        made = colonnade("init", "party", name, "--out", folder / name, "--json")
        assert (folder / name / f"{name}.key").stat().st_mode & 0o077 == 0
        assert made["fingerprint"].startswith("sha256:")
    colonnade("init", "coordinator", "--out", folder / "coordinator")
    again = colonnade("init", "party", "bank", "--out", folder / "bank", "--json")
    assert again["kept"] == ["key", "config"]
    assert again["fingerprint"] == Certificate.load(folder / "bank" / "bank.crt").fingerprint
    assert "it was there, and stays" in colonnade("init", "coordinator", "--out", folder / "coordinator")
    for end in ("key", "crt"):
        shutil.copy(folder / "bank" / f"bank.{end}", folder / "shop" / f"other.{end}")
    words = ("init", "party", "other", "--out", folder / "shop")
    assert "another party" in colonnade(*words, code=StudyError.exit_code)
    assert "no certificate of bank" in colonnade("init", "pins", study, code=IdentityError.exit_code)
    (folder / "certs").mkdir()
    for name in everybody:
        shutil.copy(folder / name / f"{name}.crt", folder / "certs")
    assert set(colonnade("init", "pins", study, "--json")["pins"]) == set(everybody)
    checks = {c["what"]: c["level"] for c in colonnade("doctor", study, folder / BANK, "--json")["checks"]}
    assert {checks[what] for what in ("table", "keys", "key", "certificates", "policy")} == {"good"}
    assert checks["connection"] == "unsure"
    shutil.copy(folder / "certs" / "shop.crt", folder / "certs" / "bank.crt")
    assert "BAD  certificates" in colonnade("doctor", study, folder / BANK, code=1)


def test_a_wrong_pin_is_said_by_privacy_and_once_by_doctor(colonnade, study):
    first = colonnade("init", "trial", study, "--json")
    assert colonnade("init", "trial", study, "--json") == first, "keys are made once"
    assert "A RUN WOULD STOP" not in colonnade("privacy", study)
    text = study.read_text()
    start = text.index("sha256:", text.index("[pins]")) + len("sha256:")
    study.write_text(text[:start] + "0" * 64 + text[start + 64 :])
    assert "A RUN WOULD STOP" in colonnade("privacy", study)
    assert "not checked: see certificates" in colonnade("doctor", study, study.parent / BANK, code=1)


def test_drafting_and_checking_a_schema(colonnade, study):
    table, schema = study.parent / "bank" / "bank.csv", study.parent / "schemas" / "bank.toml"
    made = Path(colonnade("schema", "draft", table, "--json")["schema"])
    assert "drafted = true" in made.read_text()
    assert "everybody may know" in colonnade("schema", "check", table, made, code=SchemaError.exit_code)
    colonnade("schema", "draft", table, code=1)
    assert colonnade("schema", "digest", schema).strip() == Schema.load(schema).digest
    assert colonnade("schema", "check", table, schema, "--json")["rows"] == 3000
    table.write_text(table.read_text().replace("employed", "unheard-of", 1))
    text = colonnade("schema", "check", table, schema, code=DataError.exit_code)
    assert "work" in text
    assert "unheard-of" not in text


def test_a_ledger_that_is_not_there(colonnade, tmp_path):
    emptied, junk = tmp_path / "emptied.sqlite", tmp_path / "junk.sqlite"
    emptied.touch()
    junk.write_text("this is not a ledger, however long it may be" * 100)
    colonnade("ledger", "show", tmp_path / "no.sqlite", code=LedgerError.exit_code)
    assert "is empty" in colonnade("ledger", "verify", emptied, code=LedgerError.exit_code)
    assert emptied.stat().st_size == 0
    assert "junk.sqlite" in colonnade("ledger", "verify", junk, code=LedgerError.exit_code)


def test_a_fault_of_ours_is_said_to_be_one(colonnade, study, monkeypatch):
    monkeypatch.setattr("colonnade.study.preflight", lambda *_: 1 / 0)
    monkeypatch.delenv("COLONNADE_DEBUG", raising=False)
    text = colonnade("privacy", study, code=70)
    assert "fault of Colonnade (ZeroDivisionError)" in text


def test_the_demo_leaves_a_run_directory(colonnade, tmp_path):
    """Participants are processes, as in ``colonnade run``."""
    out = tmp_path / "demo"
    run = colonnade("demo", "--out", out, "--rows", 500, "--json")["run"]
    for name in ("run.json", "privacy.json", "events.jsonl", "model.json", "report.html"):
        assert (out / name).stat().st_size > 0
    assert (run["status"], set(run["parties"])) == ("finished", {"bank", "shop", "clinic"})
    tables = [out / "study" / name / f"{name}.csv" for name in run["parties"]]
    held = [{row["person_id"] for row in csv.DictReader(table.read_text().splitlines())} for table in tables]
    common = len(set.intersection(*held))
    assert [len(ids) for ids in held] == [450, 450, 450]
    assert common < 450
    assert (run["alignment"]["mode"], run["alignment"]["matched"]) == ("ot", common)
    assert f"These {common} people are made up" in run["evaluation"]["note"]
    assert "shop and clinic need not hold the same people" in (out / "report.html").read_text()
    book = out / "study" / "bank" / "ledger.sqlite"
    shown = colonnade("ledger", "show", book, "--json")
    assert [entry["state"] for entry in shown["entries"]] == ["committed"]
    assert shown["totals"]["analyst"] <= 1.0
    assert "is whole" in colonnade("ledger", "verify", book)
    party = read_facts(out / "parties" / "bank")
    assert (party["approval"]["mode"], party["ledger_head"]) == ("auto-within-budget", shown["head"])
    assert "continues from" in colonnade("ledger", "verify", book, "--head", party["ledger_head"])


def test_the_demo_trusts_a_helper_only_where_its_work_would_be_long():
    people = population(100)
    assert [alignment_mode(people, rows) for rows in (500, 10_000_000)] == ["ot", "helper"]


def test_running_the_example_with_local_processes(colonnade, study):
    colonnade("init", "trial", study)
    edit(study.parent / BANK, ('"auto-within-budget"\n', '"ask"\n'))
    loaded, out = Study.load(study), study.parent / "out"
    command = ("run", study, "--out", out)
    assert f"--approve {loaded.digest}`" in colonnade(*command, code=PolicyError.exit_code)
    assert "another study" in colonnade(*command, "--approve", "0" * 32, code=PolicyError.exit_code)
    assert not out.exists()
    text = colonnade(*command, "--approve", loaded.digest[:32])
    check_words(text, "explained variance", "TOO FEW PEOPLE")  # 2,630 of them
    run, page, own = read_facts(out), out / "report.html", out / "parties" / "bank" / "report.html"
    assert run["forecast"]["rows"] == 2630
    assert run["parties"]["bank"]["processor_seconds"] > 0
    assert "There were too few people" in page.read_text()
    assert "For bank alone" not in page.read_text()
    assert own.stat().st_mode & 0o077 == 0
    for_bank = ("For bank alone", "Principal components of what a bank", "There were too few people", "All studies")
    check_words(own.read_text(), *for_bank)
    for name, mode, who in (
        ("bank", "ask", "the digest given with --approve"),
        ("shop", "auto-within-budget", "the policy, within its budget"),
    ):
        assert read_facts(out / "parties" / name)["approval"] == {"mode": mode, "by": who}
        (entry,) = Ledger(study.parent / name / "ledger.sqlite").entries()
        assert (entry.people.own, dict(entry.people.keys)) == (name, Study.load(study).keys())
        assert set(dict(entry.people.keys)) == {"bank", "shop", "clinic", "coordinator"}


@pytest.fixture
def ledger(tmp_path, study):
    """A ledger of three studies: one committed, one sent, one released."""
    book = Ledger(tmp_path / "book.sqlite")
    asked = Study.load(study)
    entries = [book.reserve(f"s{n}", asked.digest, [asked.task.event], asked.roster.trust, []) for n in range(3)]
    book.commit(book.mark_sent(entries[0]))
    book.mark_sent(entries[1])
    book.release(entries[2])
    return book


def test_an_earlier_ledger_is_converted_once_and_its_old_file_is_named(colonnade, tmp_path):
    path = tmp_path / "ledger.sqlite"
    shutil.copyfile(ROOT / "tests" / "fixtures" / "ledger" / "ledger-1.db", path)
    head = colonnade("ledger", "show", path, "--json")["head"]
    said = colonnade("ledger", "convert", path)
    assert f"head {head}; before, it had no chain, so compare it with the run records" in said
    assert said.strip().endswith("ledger.sqlite.version-1")
    assert "nothing was changed" in colonnade("ledger", "convert", path)
    assert colonnade("ledger", "convert", path, "--json") == {"ledger": str(path), "converted": False, "head": head}
    assert "no ledger" in colonnade("ledger", "convert", tmp_path / "none", code=LedgerError.exit_code)


def test_a_ledger_is_shown_with_its_head_and_what_is_left(colonnade, ledger, study):
    config = study.parent / BANK
    config.write_text(config.read_text() + "[[policy.periods]]\ndays = 30\nepsilon = { analyst = 2.0 }\n")
    shown = ("ledger", "show", ledger.path, "--policy", config)
    left = ("of 3 at delta 1e-05, for ever", "of 2 at delta 1e-05, in 30 days")
    check_words(colonnade(*shown), "committed", "released", "learned in all", f"head {ledger.head}", *left)
    facts = colonnade(*shown, "--days", 7, "--json")
    assert (facts["head"], facts["days"], len(facts["entries"])) == (ledger.head, 7, 3)
    (month,) = [left for left in facts["left"] if left["days"] == 30]
    assert month["observer"] == "analyst"
    assert month["spent"] == facts["totals"]["analyst"] == ledger.spent(Observer.analyst(), 1e-5)
    assert 0 <= 2.0 - month["spent"] - month["left"] <= 1e-4
    colonnade("ledger", "show", ledger.path, "--days", 0, code=PrivacyError.exit_code)


def test_what_is_left_is_shown_while_only_studies_were_asked_for_that_told_nothing(colonnade, tmp_path, study):
    book, asked = Ledger(tmp_path / "book.sqlite", owner="bank"), Study.load(study)
    book.release(book.reserve("s", asked.digest, [asked.task.event], asked.roster.trust, []))
    shown = ("ledger", "show", book.path, "--policy", study.parent / BANK)
    text = colonnade(*shown)
    for who in ("analyst", "coordinator", "party", "others, all together"):
        assert re.search(rf"^  {who} +spent 0.0000, left 3.0000 of 3 ", text, re.MULTILINE), text
    assert {left["left"] for left in colonnade(*shown, "--json")["left"]} == {3.0}


def test_of_many_rows_the_largest_are_listed_and_all_others_at_the_end(colonnade, tmp_path):
    book = Ledger(tmp_path / "book.sqlite", owner="me")
    for number in range(20):
        bank = f"bank{number}"
        event = SkellamRelease("m", (("me", 10**13 + number * 10**11),), 4, 10**6, 10**12, 2 * 10**6, 2 * 10**12, 1e-30,
                               "t", audience=(bank,), about=("me",))  # fmt: skip
        keys = {name: f"sha256:{name}" for name in ("me", bank, "coordinator")}
        book.reserve(bank, "d" * 64, [event], Trust(("me", bank), (), 0), [], (), keys)
    text = colonnade("ledger", "show", book.path)
    rows = text[text.index("learned in all") :].splitlines()
    assert len(rows) < 40
    assert "bank0+bank1 " in text
    assert "more pairs, none above 1." in text
    assert rows[-3].split()[:3] == ["others,", "all", "together"]
    totals = colonnade("ledger", "show", book.path, "--json")["totals"]
    assert totals["others"] == max(totals.values()) == book.spent(Observer.others(), 1e-5)
    assert totals["bank0+bank1"] == book.spent(Observer.parse("bank0+bank1"), 1e-5)
    assert len(totals) > 190


def test_a_head_noted_earlier_must_still_be_there(colonnade, ledger):
    verify, head = ("ledger", "verify", ledger.path), ledger.head
    assert colonnade(*verify, "--json") == {"ledger": str(ledger.path), "whole": True, "head": head}
    assert head[:32] in colonnade(*verify, "--head", head[:32])
    for given, said in ((head[:31], "32 to 64"), ("ab" * 32, "not in this ledger")):
        assert said in colonnade(*verify, "--head", given, code=LedgerError.exit_code)


def test_an_export_is_enough_to_check_the_chain(colonnade, ledger, tmp_path):
    """By the recipe of docs/how-to/ledger.md, with nothing but the file and SHA-256."""
    page = (ROOT / "docs" / "how-to" / "ledger.md").read_text()
    (recipe,) = re.findall(r"^```python\n(import hashlib.*?)^```", page, re.MULTILINE | re.DOTALL)
    names = {}
    exec(recipe, names)  # noqa: S102 - our own page
    file, export = tmp_path / "chain.jsonl", ("ledger", "export", ledger.path)
    assert ledger.head in colonnade(*export, "--out", file)
    assert names["head_of"](file) == ledger.head
    assert file.stat().st_mode & 0o077 == 0
    assert "already" in colonnade(*export, "--out", file, code=1)
    whole = file.read_text()
    assert colonnade(*export) == colonnade(*export, "--json")["content"] == whole
    lines, states = whole.splitlines(keepends=True), {}
    for line in map(json.loads, lines[:-1]):
        states.setdefault(line["entry"], []).append(line["state"])
        if line["state"] == "reserved":
            assert line["events"] == [event.to_dict() for event in ledger.entries()[line["entry"] - 1].events]
            assert line["trust"]["owners"] == ["bank", "shop", "clinic"]
    assert states == {1: ["reserved", "sent", "committed"], 2: ["reserved", "sent"], 3: ["reserved", "released"]}
    for spoilt in (
        whole.replace('"s1"', '"s9"'), "".join(lines[1:]), "".join([*lines[:3], *lines[4:]]),
        "".join([lines[1], lines[0], *lines[2:]]), whole.replace(ledger.head, "0" * 64),
    ):  # fmt: skip
        file.write_text(spoilt)
        with pytest.raises(SystemExit):
            names["head_of"](file)


def test_an_export_as_a_table(colonnade, ledger):
    rows = list(csv.DictReader(colonnade("ledger", "export", ledger.path, "--format", "csv").splitlines()))
    assert [row["state"] for row in rows].count("reserved") == 3
    assert rows[-1]["hash"] == ledger.head
    for row in rows:
        assert hashlib.sha256(row["line"].encode()).hexdigest() == row["hash"]
        assert json.loads(row["line"])["at"] == row["at"]
    assert json.loads(rows[0]["events"]) == [event.to_dict() for event in ledger.entries()[0].events]


def test_the_demo_never_clears_a_folder_that_is_not_its_own(colonnade, tmp_path):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "STUDY.toml").write_text("years of work")
    assert "not empty" in colonnade("demo", "--out", tmp_path, code=StudyError.exit_code)
    assert (tmp_path / "study" / "STUDY.toml").exists()


def test_paths_that_cannot_be_used_are_no_fault_of_ours(colonnade, tmp_path, study):
    (tmp_path / "file").write_text("")
    assert "file cannot be written" in colonnade("demo", "--out", tmp_path / "file", code=StorageError.exit_code)
    table = study.parent / "bank" / "bank.csv"
    text = colonnade("schema", "draft", table, "--out", tmp_path / "no" / "x.toml", code=StorageError.exit_code)
    assert "x.toml cannot be written: No such file" in text
    assert "cannot name a participant" in colonnade("init", "party", "b" * 300, code=IdentityError.exit_code)
    config = ["init", "party", "other", "--out", study.parent / "bank"]
    assert "another party" in colonnade(*config, code=StudyError.exit_code)


def test_a_windows_path_survives_in_a_configuration(colonnade, tmp_path):
    made = colonnade("init", "party", "carl", "--out", tmp_path / "carl", "--data", "C:\\data\\x.csv", "--json")
    assert PartyConfig.load(made["config"]).content.data == "C:\\data\\x.csv"
