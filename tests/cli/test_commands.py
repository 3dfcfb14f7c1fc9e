"""The commands, in this process; real processes are tested with the studies."""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from colonnade.cli import examples
from colonnade.cli.output import emit_presence, emit_progress
from colonnade.cli.run_estimates import bytes_a_second, clock, fit
from colonnade.cli.terminal import pace
from colonnade.errors import (
    BudgetError,
    DataError,
    IdentityError,
    LedgerError,
    PolicyError,
    PrivacyError,
    SchemaError,
    StorageError,
    StudyError,
)
from colonnade.privacy import Ledger, Observer
from colonnade.study import Study
from colonnade.study.record import read_facts
from colonnade.study.scale import SOURCE
from colonnade.tables import Schema
from colonnade.wire import Identity
from tests.support.errors import check_said, refused
from tests.support.studies import check_words, edit

ROOT = Path(__file__).parents[2]
BANK = "bank/party.toml"


def test_privacy_before_anybody_says_yes(colonnade, study):
    text = colonnade("privacy", study, "--rows", 3000)
    described = "Principal components of what a bank, a shop and a clinic know"
    noise = "FORECAST for 3,000 people: noise moves the variance of a component, in even shares, by about 1.4"
    check_words(text, described, "bank+shop", "inf", "cannot tell", "on the wire", "bits", noise, "TOO FEW PEOPLE")
    facts = colonnade("privacy", study, "--rows", 3000, "--json")
    forecast = facts["forecast"]
    assert facts["statement"]["rows"][0]["epsilon"] <= 1.0
    assert (facts["rows"], forecast["rows"], forecast["too_few"]) == (3000, 3000, True)
    assert "TOO FEW PEOPLE" not in colonnade("privacy", study, "--rows", 30_000)
    unsaid = colonnade("privacy", study, "--json")["forecast"]
    assert (unsaid["rows"], unsaid["error"], unsaid["people"]) == (None, None, forecast["people"])
    curves = colonnade("privacy", study, "--curve", "--json")["curves"]
    assert {"analyst", "coordinator", "bank"} <= set(curves)
    assert curves["analyst"]["1"] <= 1e-5 <= curves["analyst"]["0.2"]


def test_a_user_mistake_is_one_sentence_and_a_fault_of_ours_is_said_to_be_one(colonnade, study, tmp_path, monkeypatch):
    text = colonnade("privacy", tmp_path / "none.toml", code=StudyError.exit_code)
    assert text.startswith("colonnade: the study file")
    facts = colonnade("privacy", tmp_path / "none.toml", "--json", code=StudyError.exit_code)
    assert (facts["error"], facts["exit_code"]) == ("StudyError", StudyError.exit_code)
    colonnade("privacy", code=2)
    monkeypatch.setattr("colonnade.cli.checks.preflight", lambda *_: 1 / 0)
    monkeypatch.delenv("COLONNADE_DEBUG", raising=False)
    assert "fault of Colonnade (ZeroDivisionError)" in colonnade("privacy", study, code=70)


def test_keys_pins_and_doctor_and_a_wrong_pin_is_said_by_privacy_too(colonnade, study, monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    folder, everybody = study.parent, ("bank", "shop", "clinic", "coordinator")
    for name in everybody[:3]:
        made = colonnade("init", "party", name, "--out", folder / name, "--json")
        assert (folder / name / f"{name}.key").stat().st_mode & 0o077 == 0
        assert made["fingerprint"].startswith("sha256:")
    colonnade("init", "coordinator", "--out", folder / "coordinator")
    assert colonnade("init", "party", "bank", "--out", folder / "bank", "--json")["kept"] == ["key", "config"]
    for end in ("key", "crt"):
        shutil.copy(folder / "bank" / f"bank.{end}", folder / "shop" / f"other.{end}")
    other = ("init", "party", "other", "--out", folder / "shop")
    assert "another party" in colonnade(*other, code=StudyError.exit_code)
    assert "no certificate of bank" in colonnade("init", "pins", study, code=IdentityError.exit_code)
    (folder / "certs").mkdir()
    for name in everybody:
        shutil.copy(folder / name / f"{name}.crt", folder / "certs")
    assert set(colonnade("init", "pins", study, "--json")["pins"]) == set(everybody)
    checks = {check["what"]: check for check in colonnade("doctor", study, folder / BANK, "--json")["checks"]}
    assert {checks[what]["level"] for what in ("table", "keys", "key", "certificates", "policy")} == {"good"}
    assert (checks["connection"]["level"], checks["ledger"]["level"]) == ("unsure", "unsure")
    check_words(checks["ledger"]["detail"], "new ledger", "nothing on record before this study")
    assert Study.load(study).digest in checks["study"]["detail"]
    shutil.copy(folder / "certs" / "shop.crt", folder / "certs" / "bank.crt")
    assert "BAD  certificates" in colonnade("doctor", study, folder / BANK, code=1)
    shutil.copy(folder / "bank" / "bank.crt", folder / "certs")
    assert "A RUN WOULD STOP" not in colonnade("privacy", study)
    text = study.read_text()
    start = text.index("sha256:", text.index("[pins]")) + len("sha256:")
    study.write_text(text[:start] + "0" * 64 + text[start + 64 :])
    assert "A RUN WOULD STOP" in colonnade("privacy", study)
    assert "not checked: see certificates" in colonnade("doctor", study, folder / BANK, code=1)


def test_drafting_and_checking_a_schema(colonnade, study):
    table, schema = study.parent / "bank" / "bank.csv", study.parent / "schemas" / "bank.toml"
    made = Path(colonnade("schema", "draft", table, "--json")["schema"])
    assert "everybody may know" in colonnade("schema", "check", table, made, code=SchemaError.exit_code)
    colonnade("schema", "draft", table, code=1)
    assert colonnade("schema", "digest", schema).strip() == Schema.load(schema).digest
    assert colonnade("schema", "check", table, schema, "--json")["rows"] == 3000
    table.write_text(table.read_text().replace("employed", "unheard-of", 1))
    assert "unheard-of" not in colonnade("schema", "check", table, schema, code=DataError.exit_code)


def test_a_ledger_that_is_not_there(colonnade, tmp_path):
    emptied, junk = tmp_path / "emptied.sqlite", tmp_path / "junk.sqlite"
    emptied.touch()
    junk.write_text("this is not a ledger, however long it may be" * 100)
    colonnade("ledger", "show", tmp_path / "no.sqlite", code=LedgerError.exit_code)
    assert "is empty" in colonnade("ledger", "verify", emptied, code=LedgerError.exit_code)
    assert emptied.stat().st_size == 0
    assert "junk.sqlite" in colonnade("ledger", "verify", junk, code=LedgerError.exit_code)


def test_the_demo_leaves_a_run_directory_and_never_clears_a_folder_that_is_not_its_own(colonnade, tmp_path):
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
    assert (run["alignment"]["mode"], run["alignment"]["matched"]) == ("ot", common)
    head = read_facts(out / "parties" / "bank")["ledger_head"]
    assert "continues from" in colonnade("ledger", "verify", out / "study" / "bank" / "ledger.sqlite", "--head", head)
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "STUDY.toml").write_text("years of work")
    assert "not empty" in colonnade("demo", "--out", tmp_path, code=StudyError.exit_code)
    assert (tmp_path / "study" / "STUDY.toml").exists()


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
    page, own = out / "report.html", out / "parties" / "bank" / "report.html"
    assert read_facts(out)["forecast"]["rows"] == 2630
    assert "For bank alone" not in page.read_text()
    assert own.stat().st_mode & 0o077 == 0
    check_words(own.read_text(), "For bank alone", "There were too few people", "All studies")
    for name, mode, who in (
        ("bank", "ask", "the digest given with --approve"),
        ("shop", "auto-within-budget", "the policy, within its budget"),
    ):
        assert read_facts(out / "parties" / name)["approval"] == {"mode": mode, "by": who}
        (entry,) = Ledger(study.parent / name / "ledger.sqlite").entries()
        assert entry.state == "committed"
        assert [each.kind for each in entry.approvers] == ["terminal" if mode == "ask" else "policy"]
        assert "  approved by " in colonnade("ledger", "show", study.parent / name / "ledger.sqlite")
        assert (entry.people.own, dict(entry.people.keys)) == (name, Study.load(study).keys())


@pytest.fixture
def ledger(tmp_path, study):
    """A ledger of four studies: one committed, one sent, one released, one reserved."""
    book = Ledger(tmp_path / "book.sqlite")
    asked = Study.load(study)
    entries = [book.reserve(f"s{n}", asked.digest, [asked.task.event], asked.roster.trust, []) for n in range(4)]
    book.commit(book.mark_sent(entries[0]))
    book.mark_sent(entries[1])
    book.release(entries[2])
    return book


def test_an_earlier_ledger_is_shown_untouched_converted_once_and_its_old_file_named(colonnade, tmp_path):
    path = tmp_path / "ledger.sqlite"
    shutil.copyfile(ROOT / "tests" / "fixtures" / "ledger" / "ledger-1.db", path)
    before = path.read_bytes()
    assert "not chained yet" in colonnade("ledger", "show", path)
    assert "never chained" in said_in_one_line(colonnade("ledger", "verify", path, code=LedgerError.exit_code))
    head = colonnade("ledger", "show", path, "--json")["head"]
    assert path.read_bytes() == before
    said = colonnade("ledger", "convert", path)
    check_words(said, f"head {head}; before, it had no chain", "ledger.sqlite.version-1")
    assert colonnade("ledger", "convert", path, "--json") == {"ledger": str(path), "converted": False, "head": head}
    assert "no ledger" in colonnade("ledger", "convert", tmp_path / "none", code=LedgerError.exit_code)


def test_a_ledger_is_shown_with_what_is_left_and_a_head_noted_earlier_must_be_there(colonnade, ledger, study):
    config = study.parent / BANK
    config.write_text(config.read_text() + "[[policy.periods]]\ndays = 30\nepsilon = { analyst = 2.0 }\n")
    shown = ("ledger", "show", ledger.path, "--policy", config)
    left = ("of 3 at delta 1e-05, for ever", "of 2 at delta 1e-05, in 30 days")
    check_words(colonnade(*shown), "committed", "released", "learned in all", f"head {ledger.head}", *left)
    facts = colonnade(*shown, "--days", 7, "--json")
    assert (facts["head"], facts["days"], len(facts["entries"])) == (ledger.head, 7, 4)
    (month,) = [left for left in facts["left"] if left["days"] == 30]
    assert month["observer"] == "analyst"
    assert month["spent"] == facts["totals"]["analyst"] == ledger.epsilon_spent(Observer.analyst(), 1e-5)
    assert 0 <= 2.0 - month["spent"] - month["left"] <= 1e-4
    colonnade("ledger", "show", ledger.path, "--days", 0, code=PrivacyError.exit_code)
    verify, head = ("ledger", "verify", ledger.path), ledger.head
    assert colonnade(*verify, "--json") == {"ledger": str(ledger.path), "whole": True, "head": head}
    assert head[:32] in colonnade(*verify, "--head", head[:32])
    for noted, said in ((head[:31], "32 to 64"), ("ab" * 32, "not in this ledger")):
        assert said in colonnade(*verify, "--head", noted, code=LedgerError.exit_code)


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
    assert states == {
        1: ["reserved", "sent", "committed"],
        2: ["reserved", "sent"],
        3: ["reserved", "released"],
        4: ["reserved"],
    }
    swapped, cut = "".join([lines[1], lines[0], *lines[2:]]), "".join([*lines[:3], *lines[4:]])
    for spoilt in (whole.replace('"s1"', '"s9"'), swapped, cut, whole.replace(ledger.head, "0" * 64)):
        file.write_text(spoilt)
        with pytest.raises(SystemExit):
            names["head_of"](file)
    rows = list(csv.DictReader(colonnade("ledger", "export", ledger.path, "--format", "csv").splitlines()))
    assert rows[-1]["hash"] == ledger.head
    for row in rows:
        assert hashlib.sha256(row["line"].encode()).hexdigest() == row["hash"]
    assert json.loads(rows[0]["events"]) == [event.to_dict() for event in ledger.entries()[0].events]


def test_paths_that_cannot_be_used_are_no_fault_of_ours(colonnade, tmp_path, study):
    (tmp_path / "file").write_text("")
    assert "file cannot be written" in colonnade("demo", "--out", tmp_path / "file", code=StorageError.exit_code)
    table = study.parent / "bank" / "bank.csv"
    text = colonnade("schema", "draft", table, "--out", tmp_path / "no" / "x.toml", code=StorageError.exit_code)
    assert "x.toml cannot be written: No such file" in text
    assert "cannot name a participant" in colonnade("init", "party", "b" * 300, code=IdentityError.exit_code)


def call(*words, **options):
    # Without -B a command that may write next to nothing would leave compiled modules cut off for the next one.
    command = [sys.executable, *(["-B"] if "preexec_fn" in options else []), "-m", "colonnade", *map(str, words)]
    options = {"stdout": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=600, **options)


def one_sentence(ended, code):
    assert ended.returncode == code, ended
    return said_in_one_line(ended.stderr)


def said_in_one_line(text):
    assert len(text.splitlines()) == 1, text
    assert text.startswith("colonnade: ")
    return text


@pytest.mark.system
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [["show"], ["export", "--json"]], ids=" ".join)
def test_a_full_disk_behind_standard_output(ledger, words):
    with open("/dev/full", "w") as full:
        ended = call("ledger", words[0], ledger.path, *words[1:], stdout=full)
    assert "standard output cannot be written: No space left" in one_sentence(ended, StorageError.exit_code)


@pytest.mark.system
def test_nobody_reads_on(ledger):
    near, far = os.pipe()
    os.close(near)
    ended = call("ledger", "show", ledger.path, stdout=far)
    os.close(far)
    assert "Broken pipe" in one_sentence(ended, StorageError.exit_code)


@pytest.mark.system
def test_files_that_do_not_fit_are_named_and_leave_nothing_behind(ledger, study, tmp_path):
    bank = study.parent / "bank"
    drafted, chain, run = tmp_path / "draft.toml", tmp_path / "chain.jsonl", tmp_path / "run"
    for words, path in (
        (["ledger", "export", ledger.path, "--out", chain], chain),
        (["schema", "draft", bank / "bank.csv", "--out", drafted], drafted),
        (["party", study, bank / "party.toml", "--out", run], "run.json"),
    ):
        ended = call(*words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)))
        assert f"{path} cannot be written: File too large" in one_sentence(ended, StorageError.exit_code)
    assert not list(tmp_path.glob("chain*"))
    assert not (bank / "ledger.sqlite").exists()


@pytest.fixture
def no_room(monkeypatch):
    """Called with a part of a file's name: from then on nothing that is written to such files arrives on disk."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("open files have no names here")
    real = os.fsync

    def after(name):
        def sync(descriptor):
            if name in os.readlink(f"/proc/self/fd/{descriptor}"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", sync)

    return after


@pytest.mark.parametrize("name", ["bank.key", "bank.crt"])
def test_an_identity_that_does_not_fit_leaves_nothing_and_can_be_made_later(name, tmp_path, colonnade, no_room):
    no_room(name)
    said = colonnade("init", "party", "bank", "--out", tmp_path / "bank", code=StorageError.exit_code)
    assert f"{tmp_path / 'bank' / name} cannot be written: No space left on device" in said
    assert not list((tmp_path / "bank").iterdir())
    no_room("nothing of ours")
    colonnade("init", "party", "bank", "--out", tmp_path / "bank")
    assert Identity.load(tmp_path / "bank" / "bank.key", tmp_path / "bank" / "bank.crt").name == "bank"
    assert (tmp_path / "bank" / "party.toml").stat().st_mode & 0o777 == 0o600


def test_a_key_without_room_for_its_certificate_overwrites_neither(tmp_path):
    (tmp_path / "bank.crt").write_text("of somebody else")
    refused(IdentityError, "ID029", "bank.crt", Identity.create("bank").save, tmp_path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("bank.crt", "of somebody else")]


@pytest.mark.parametrize("name", ["STUDY.toml", "certs/bank.crt", "schemas/bank.toml"])
def test_files_that_do_not_fit_leave_the_earlier_ones(name, study, colonnade, no_room):
    colonnade("init", "trial", study)
    place = study.parent / name
    before = place.read_bytes()
    no_room(name)
    if name == "schemas/bank.toml":
        refused(StorageError, "SO043", name, Schema.load(place).save, place)
    else:
        said = colonnade("init", "trial", study, code=StorageError.exit_code)
        assert f"{place} cannot be written: No space left on device" in said
    assert place.read_bytes() == before


@pytest.mark.parametrize("words", [["demo", "--rows", 100], ["init", "party", "bank"], ["audit", "grid"]], ids=str)
def test_a_place_that_may_not_be_written_has_one_code(words, tmp_path, colonnade, monkeypatch):
    def refuse(path, *_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    said = colonnade(*words, "--out", tmp_path / "x", code=StorageError.exit_code)
    assert f"{tmp_path / 'x'} cannot be written" in said
    assert "Permission denied" in said


def test_an_entry_is_released_by_hand_only_if_it_was_never_sent(ledger, colonnade):
    release = ("ledger", "release", ledger.path)
    assert "--yes" in said_in_one_line(colonnade(*release, 4, code=PolicyError.exit_code))
    facts = colonnade(*release, 4, "--yes", "--json")
    assert facts == {"ledger": str(ledger.path), "entry": 4, "state": "released", "head": ledger.head}
    for number, why in ((4, "is released"), (2, "is sent"), (5, "no entry 5")):
        assert why in said_in_one_line(colonnade(*release, number, "--yes", code=LedgerError.exit_code))
    assert [entry.state for entry in ledger.entries()] == ["committed", "sent", "released", "released"]


@pytest.mark.system
@pytest.mark.parametrize(("answer", "state"), [(b"y\n", "released"), (b"n\n", "reserved")])
def test_a_release_is_confirmed_at_the_terminal(ledger, answer, state):
    person, process = os.openpty()
    os.write(person, answer)
    ended = call("ledger", "release", ledger.path, 4, stdin=process)
    os.close(person)
    os.close(process)
    assert "Release entry 4 ('s3', reserved 2" in ended.stderr
    assert ended.returncode == (0 if state == "released" else PolicyError.exit_code)
    assert ledger.entries()[3].state == state


def test_a_local_run_that_a_party_refuses_starts_nobody(study, tmp_path, in_this_process):
    edit(study.parent / "shop" / "party.toml", ("analyst = 3.0", "analyst = 0.1"))
    code, _, complaint = in_this_process("run", study, "--out", tmp_path / "run")
    assert code == BudgetError.exit_code
    assert "shop: study 'three-organisations' is over budget" in said_in_one_line(complaint)
    assert not (tmp_path / "run").exists()


# --- bars


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.one_of(st.none(), st.floats(1e-3, 1e9)))
def test_a_bar_never_promises_too_little_time(done, total, speed):
    assert pace(4096, 100_000, 2310.4) == "4,096/100,000  2,310/s  left 0:00:42"
    said = pace(done, total, speed)
    if speed and total >= done and "day" not in said:
        hours, minutes, seconds = map(int, said.rpartition("left ")[2].split(":"))
        assert 3600 * hours + 60 * minutes + seconds >= (total - done) / speed


def test_lines_for_a_parent_process_have_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    """By which they are put in order with the events of the same run."""
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    emit_progress("share", 1, 4)
    emit_presence({"rounds": 3})
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    first, second = (datetime.fromisoformat(line.pop("time")) for line in lines)
    assert before <= first <= second <= datetime.now(UTC)
    assert lines == [{"progress": "share", "done": 1, "total": 4}, {"presence": {"rounds": 3}}]


# --- examples that come with Colonnade


NAMES = sorted(page.parent.name for page in (ROOT / "examples").glob("*/README.md"))


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_folder_of_examples_is_one(colonnade):
    listed = colonnade("example", "--json")["examples"]
    assert [each["name"] for each in listed] == NAMES
    assert all(each["title"] and not each["title"].startswith("#") for each in listed)


@pytest.mark.parametrize("name", NAMES)
def test_a_copy_holds_everything_and_its_links_lead_somewhere(name, away, colonnade):
    assert colonnade("example", name, "one/mine", "--json")["folder"] == "one/mine"
    copied = {path.relative_to("one/mine").as_posix() for path in Path("one/mine").rglob("*") if path.is_file()}
    known = subprocess.run(["git", "ls-files", "."], cwd=ROOT / "examples" / name, capture_output=True, text=True)
    assert copied == set(known.stdout.split())
    for path in copied - {"README.md"}:
        assert Path("one/mine", path).read_bytes() == (ROOT / "examples" / name / path).read_bytes()
    page = Path("one/mine/README.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", page):
        assert link.startswith("https://") or (Path("one/mine") / link.partition("#")[0]).exists(), link
    assert "cd examples/" not in page
    for text in (path.read_text(encoding="utf-8") for path in Path("one/mine").rglob("*.toml")):
        for other in re.findall(r"\.\./\.\./([a-z-]+)/", text):
            assert Path("one", other, "README.md").exists(), f"{name} reads tables of {other}"


def test_nothing_is_overwritten(away, colonnade):
    Path("glm").mkdir()
    said = colonnade("example", "glm", code=18)
    check_said(said, "SO007", "glm")
    assert not list(Path("glm").iterdir())
    Path("three-organisations").mkdir()
    (Path("three-organisations") / "mine.txt").write_text("mine", encoding="utf-8")
    assert "there already: three-organisations" in colonnade("example", "private-regression")
    assert [path.name for path in Path("three-organisations").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("nothing",), 13, "there is no example 'nothing': take one of glm, "),
        (("private-regression", "three-organisations"), 13, "is where three-organisations must lie"),
        (("glm", "file/inside"), 18, "file cannot be made"),
    ],
)
def test_mistakes_get_one_sentence(words, code, sentence, away, colonnade):
    Path("file").write_text("", encoding="utf-8")
    said = colonnade("example", *words, code=code)
    assert sentence in said
    assert said.count("\n") == 1


def test_what_somebody_made_in_a_clone_is_not_copied(tmp_path, monkeypatch):
    clone = tmp_path / "clone"
    shutil.copytree(ROOT / "examples" / "three-organisations", clone / "three-organisations")
    for made in (
        "bank/bank.key",
        "certs/bank.crt",
        "runs/study/run.json",
        "bank/ledger.sqlite",
        "bank/alignments/a.npz",
        "bank/agent/agent.db",
        "bank/kept.json",
    ):
        path = clone / "three-organisations" / made
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"private")
    monkeypatch.setattr(examples, "_INSTALLED", clone)
    examples.examples()["three-organisations"].copy(tmp_path / "copy")
    assert b"private" not in {path.read_bytes() for path in (tmp_path / "copy").rglob("*") if path.is_file()}


# --- what workers, hubs and lines take


def test_plan_says_what_a_run_takes(colonnade, study):
    text = colonnade("plan", study, "--workers", 64, "--hubs", 4, "--bandwidth", "10Gbit", "--rows-given", 10**9)
    lines = "1,000,000,000 in every table (parquet)", "2,048 (chosen for this estimate)", "lines of 10 Gbit/s each way"
    check_words(text, *lines, "measured on another machine", "the bottleneck: processor of the hubs")
    said = colonnade("plan", study, "--cost", "--rows-given", 5000, "--partitions", 16, "--json")
    assert (said["estimate"]["partitions"], said["rows"], said["constants_from"]) == (16, 5000, SOURCE)
    assert [party["name"] for party in said["estimate"]["parties"]] == ["bank", "shop", "clinic", "coordinator"]
    assert {"seconds", "bytes_sent", "worker_memory", "disk", "core_hours"} <= said["estimate"]["parties"][0].keys()


def test_links_are_those_of_the_study_or_as_asked_and_a_plan_without_lanes(colonnade, study):
    asked = ("plan", study, "--workers", 4, "--rows-given", 10**7, "--json")
    through, direct = colonnade(*asked), colonnade(*asked, "--links", "direct")
    assert (through["fleet"]["links"], direct["fleet"]["links"]) == ("hub", "direct")
    assert direct["estimate"]["hub"]["bytes_passed"] < through["estimate"]["hub"]["bytes_passed"] / 100
    assert direct["estimate"]["seconds"] < through["estimate"]["seconds"]
    edit(study, ("[coordinator]\n", '[coordinator]\nlinks = "direct"\n'))
    assert colonnade(*asked)["estimate"] == direct["estimate"]
    text = colonnade("plan", study, "--cost", "--table", "csv", "--round-trip", 20)
    alone = "none: one process for each participant does everything"
    check_words(text, alone, "each with a core", "(csv)")
    messages = ROOT / "examples" / "private-regression" / "MESSAGES.toml"  # a kind that is no sum
    found = colonnade("plan", messages, "--workers", 4, "--json")["estimate"]
    assert found["partitions"] == 1
    assert all(party["phases"]["dealing"] == 0 for party in found["parties"])
    assert found["bytes_total"] > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--cost", "--epsilon"], "one question at a time"),
        ([], "one question at a time"),
        (["--rows", "--workers", "2"], "are about --cost"),
        (["--cost", "--error", "0.1"], "does not depend on its noise"),
        (["--cost", "--bandwidth", "fast"], "is written like 10Gbit"),
        (["--cost", "--partitions", "7"], "power of two"),
    ],
)
def test_wrong_questions_are_one_sentence(colonnade, study, options, sentence):
    assert sentence in colonnade("plan", study, *options, code=StudyError.exit_code)


def test_what_is_typed_and_shown_in_words_and_partitions_that_fit():
    typed = {"10Gbit": 1.25e9, "100 Mbit/s": 12.5e6, "1.5Gbitps": 1.875e8, "50MB/s": 50e6}
    assert {text: bytes_a_second(text) for text in typed} == typed
    for wrong in ("", "10", "10 Gbyte", "-1Gbit", "0Gbit", "1e3bit"):
        refused(StudyError, (), bytes_a_second, wrong)
    assert [clock(t) for t in (0.25, 41, 720, 12_240)] == ["0.25 s", "41 s", "12 min", "3.4 h"]
    asked = ((2_000_000, 1), (100, 4), (10**9, 1), (10**9, 64), (10**5, 100), (10**12, 10**5))
    assert [fit(rows, workers) for rows, workers in asked] == [1, 16, 2048, 2048, 512, 1 << 16]
