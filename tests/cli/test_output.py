"""Where nothing can be written: one sentence, a documented code, and nothing left behind; ledger commands; and bars."""

from __future__ import annotations

import errno
import io
import json
import os
import resource
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from colonnade import __version__, versions
from colonnade.cli.output import piped, present
from colonnade.cli.screen import bars_on, pace
from colonnade.errors import BudgetError, IdentityError, LedgerError, PolicyError, StorageError
from colonnade.privacy import Ledger
from colonnade.study import Study
from colonnade.tables import Schema
from colonnade.wire import Identity
from tests.support.errors import raises
from tests.support.studies import check_words, edit


@pytest.fixture
def book(tmp_path, study):
    """A ledger of two studies, of which one is reserved and one was sent."""
    ledger, loaded = Ledger(tmp_path / "book.sqlite"), Study.load(study)
    for n in range(2):
        ledger.reserve(f"s{n}", loaded.digest, loaded.events, loaded.roster.trust, [])
    ledger.mark_sent(ledger.entries()[1])
    return ledger


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
@pytest.mark.parametrize(
    "words", [["show"], ["show", "--json"], ["export"], ["export", "--json"], ["verify"]], ids=" ".join
)
def test_a_full_disk_behind_standard_output(book, words):
    with open("/dev/full", "w") as full:
        ended = call("ledger", words[0], book.path, *words[1:], stdout=full)
    assert "standard output cannot be written: No space left" in one_sentence(ended, StorageError.exit_code)


@pytest.mark.system
@pytest.mark.parametrize("words", [["show"], ["export", "--json"], ["--help"]], ids=" ".join)
def test_nobody_reads_on(book, words):
    near, far = os.pipe()
    os.close(near)
    ended = call("ledger", words[0], *([] if words == ["--help"] else [book.path]), *words[1:], stdout=far)
    os.close(far)
    if words == ["--help"]:  # written by the library for command lines, which leaves without a word
        assert ended.returncode in (1, StorageError.exit_code)
        assert "Traceback" not in ended.stderr
    else:
        assert "Broken pipe" in one_sentence(ended, StorageError.exit_code)


def no_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))


@pytest.mark.system
def test_files_that_do_not_fit_are_named_and_leave_nothing_behind(book, study, tmp_path):
    bank = study.parent / "bank"
    drafted, chain, run = tmp_path / "draft.toml", tmp_path / "chain.jsonl", tmp_path / "run"
    for words, path in (
        (["ledger", "export", book.path, "--out", chain], chain),
        (["schema", "draft", bank / "bank.csv", "--out", drafted], drafted),
        (["party", study, bank / "party.toml", "--out", run], "run.json"),
    ):
        ended = call(*words, preexec_fn=no_files)
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
    with raises(IdentityError, "ID029", "bank.crt"):
        Identity.create("bank").save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["bank.crt"]
    assert (tmp_path / "bank.crt").read_text() == "of somebody else"


@pytest.mark.parametrize("name", ["party.toml", "STUDY.toml", "certs/bank.crt", "schema.toml"])
def test_files_that_do_not_fit_leave_the_earlier_ones(name, study, colonnade, no_room):
    folder = study.parent
    colonnade("init", "trial", study)
    schema = Schema.load(folder / "schemas" / "bank.toml")
    schema.save(folder / "schema.toml")
    place = folder / "new" / name if name == "party.toml" else folder / name
    before = place.read_bytes() if place.exists() else None
    no_room(name)
    if name == "schema.toml":
        with raises(StorageError, "SO043", "schema.toml"):
            schema.save(place)
    else:
        words = ["party", "x", "--out", place.parent] if name == "party.toml" else ["trial", study]
        said = colonnade("init", *words, code=StorageError.exit_code)
        assert f"{place} cannot be written: No space left on device" in said
    assert (place.read_bytes() if place.exists() else None) == before


@pytest.mark.parametrize("words", [["demo", "--rows", 100], ["init", "party", "bank"], ["audit", "grid"]], ids=str)
def test_a_place_that_may_not_be_written_has_one_code(words, tmp_path, colonnade, monkeypatch):
    def refuse(path, *_, **__):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    said = colonnade(*words, "--out", tmp_path / "x", code=StorageError.exit_code)
    assert f"{tmp_path / 'x'} cannot be written" in said
    assert "Permission denied" in said


def test_the_version_is_shown(colonnade):
    lines = colonnade("--version").splitlines()
    assert lines[0] == f"colonnade {__version__}"
    assert lines[1:] == [f"{name} {version}" for name, version in list(versions.installed().items())[1:]]


def test_an_entry_is_released_by_hand_only_if_it_was_never_sent(book, colonnade):
    release = ("ledger", "release", book.path)
    assert "--yes" in said_in_one_line(colonnade(*release, 1, code=PolicyError.exit_code))
    assert [entry.state for entry in book.entries()] == ["reserved", "sent"]
    facts = colonnade(*release, 1, "--yes", "--json")
    assert facts == {"ledger": str(book.path), "entry": 1, "state": "released", "head": book.head}
    for number, why in ((1, "is released"), (2, "is sent"), (3, "no entry 3")):
        assert why in said_in_one_line(colonnade(*release, number, "--yes", code=LedgerError.exit_code))
    assert [entry.state for entry in book.entries()] == ["released", "sent"]


@pytest.mark.system
@pytest.mark.parametrize(("answer", "state"), [(b"y\n", "released"), (b"n\n", "reserved")])
def test_a_release_is_confirmed_at_the_terminal(book, answer, state):
    person, process = os.openpty()
    os.write(person, answer)
    ended = call("ledger", "release", book.path, 1, stdin=process)
    os.close(person)
    os.close(process)
    assert "Release entry 1 ('s0', reserved 2" in ended.stderr
    assert ended.returncode == (0 if state == "released" else PolicyError.exit_code)
    assert book.entries()[0].state == state


def test_a_ledger_of_the_first_version_is_shown_and_not_touched(book, colonnade):
    base = sqlite3.connect(book.path, isolation_level=None)
    tables = "DROP TABLE chain; DROP TABLE people; DROP TABLE sums"
    base.executescript(f"{tables}; PRAGMA user_version = 1; PRAGMA journal_mode = DELETE")
    base.close()
    before = book.path.read_bytes()
    assert "not chained yet" in colonnade("ledger", "show", book.path)
    assert colonnade("ledger", "show", book.path, "--json")["chained"] is False
    colonnade("ledger", "export", book.path)
    assert "never chained" in said_in_one_line(colonnade("ledger", "verify", book.path, code=LedgerError.exit_code))
    assert book.path.read_bytes() == before


def test_a_new_ledger_is_said_to_be_one(study, colonnade):
    config, digest = study.parent / "bank" / "party.toml", Study.load(study).digest
    checks = {check["what"]: check for check in colonnade("doctor", study, config, "--json", code=1)["checks"]}
    assert checks["ledger"]["level"] == "unsure"
    check_words(checks["ledger"]["detail"], "new ledger", "nothing on record before this study")
    assert digest in checks["study"]["detail"]
    assert digest in colonnade("privacy", study)
    said = colonnade("party", study, config, "--out", study.parent / "x", code=IdentityError.exit_code)
    assert "new ledger" in said


def test_a_local_run_that_a_party_refuses_starts_nobody(study, tmp_path, in_this_process):
    edit(study.parent / "shop" / "party.toml", ("analyst = 3.0", "analyst = 0.1"))
    code, _, complaint = in_this_process("run", study, "--out", tmp_path / "run")
    assert code == BudgetError.exit_code
    assert "shop: study 'three-organisations' is over budget" in said_in_one_line(complaint)
    assert not (tmp_path / "run").exists()


# --- bars


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((4096, 100_000, 2310.4), "4,096/100,000  2,310/s  left 0:00:42"),
        ((0, 100_000, None), "0/100,000"),
        ((30, 60, 0.25), "30/60  0.25/s  left 0:02:00"),
        ((1, 2, 0.5), "1/2  left 0:00:02"),
        ((60, 60, 20.0, 3.0), "60/60  20/s  took 0:00:03"),
        ((60, 60, 6000.0, 0.01), "60/60  took 0:00:00"),
        ((5, None, 12.0), "5/?  12/s"),
    ],
)
def test_bars_show_the_rate_and_the_time_left(given, text):
    assert pace(*given) == text


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.one_of(st.none(), st.floats(1e-3, 1e9)))
def test_a_bar_never_promises_too_little_time(done, total, speed):
    said = pace(done, total, speed)
    if speed and total >= done and "day" not in said:
        hours, minutes, seconds = map(int, said.rpartition("left ")[2].split(":"))
        assert 3600 * hours + 60 * minutes + seconds >= (total - done) / speed


@pytest.mark.parametrize(
    ("width", "steps", "speed"), [(80, 30_000, 1721), (100, 1_000_000, 2310), (200, 10_000_000, 99)]
)
def test_every_bar_keeps_to_one_line(width, steps, speed):
    clock = [0.0]
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    bars = bars_on(screen)
    bars.get_time = lambda: clock[0]
    for phase in ("align", "evaluate"):
        bar = bars.add_task(phase, total=steps)
        for second in (0, 1, 2):
            clock[0] += 1
            bars.update(bar, completed=1 + second * speed)
    screen.print(bars.make_tasks_table(bars.tasks))
    lines = screen.file.getvalue().splitlines()
    said = pace(1 + 2 * speed, steps, speed)
    assert "left" in said
    assert [line.split()[0] for line in lines] == ["align", "evaluate"]
    assert all(line.rstrip().endswith(said) and len(line) <= width for line in lines)


def test_lines_for_a_parent_process_have_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    """By which they are put in order with the events of the same run."""
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    piped("share", 1, 4)
    present({"rounds": 3})
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    times = [datetime.fromisoformat(line.pop("time")) for line in (first, second)]
    assert before <= times[0] <= times[1] <= datetime.now(UTC)
    assert first == {"progress": "share", "done": 1, "total": 4}
    assert second == {"presence": {"rounds": 3}}
