"""Ledgers and private files under several processes, full disks and kills at any moment: whole, and never too small."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from colonnade.disk import writing
from colonnade.errors import BudgetError, LedgerError
from colonnade.models.serialization import replace_private, write_together
from colonnade.privacy.ledger import Ledger, LedgerEntry, storage
from colonnade.privacy.observers import Observer
from tests.support.errors import refused
from tests.support.ledgers import DELTA, EVENT, TRUST, cap, cost

FORK = get_context("fork")
NOBODY = 65534
ANALYST = Observer.analyst()


def in_child(task, *words) -> int:
    """The exit status of a forked process that does this, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            task(*words)
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def reserve(ledger: Ledger, caps=()) -> LedgerEntry:
    return ledger.reserve("s", "", [EVENT], TRUST, caps)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


# --- several at once


def _spends(path: Path) -> bool:
    TOGETHER.wait(60)
    try:
        reserve(Ledger(path), cap("analyst", cost() * 1.01))
    except BudgetError:
        return False
    return True


def _makes(path: Path) -> bool:
    TOGETHER.wait(60)
    return Ledger(path).created


def _makes_without_links(path: Path) -> bool:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    os.link = refuse
    return _makes(path)


TOGETHER = FORK.Barrier(4)


@pytest.mark.parametrize("task", [_spends, _makes, _makes_without_links])
def test_of_many_processes_one_spends_the_remainder_and_one_makes_the_file(tmp_path: Path, task) -> None:
    paths = [tmp_path / f"{number}.sqlite" for number in range(4)]
    with ProcessPoolExecutor(4, mp_context=FORK) as pool:
        for path in paths:
            assert sorted(pool.map(task, [path] * 4)) == [False, False, False, True]
            Ledger(path).verify()
            assert len(Ledger(path).entries()) == (task is _spends)
    assert names(tmp_path) == [path.name for path in paths], "no half-made file is left behind"


def test_what_somebody_else_is_making_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, fill = tmp_path / "l.sqlite", storage._fill

    def slowly(new: Path) -> None:
        fill(new)
        monkeypatch.undo()
        before = names(tmp_path)
        writing.remove_leftovers(path)
        assert (len(before), names(tmp_path)) == (1, before)
        assert Ledger(path).created, "another one is quicker"

    monkeypatch.setattr(storage, "_fill", slowly)
    assert not Ledger(path).created
    assert names(tmp_path) == ["l.sqlite"]


def test_what_earlier_releases_left_is_swept_once_it_is_old(tmp_path: Path) -> None:
    left = [f".l.sqlite.abc_1234.new{end}" for end in ("", "-wal", "-shm", "-journal")]
    others = [".l.sqlite.new", ".l.sqlite.abc_1234.neu", ".other.sqlite.abc_1234.new", "l.sqlite.abc_1234.new"]
    for name in (*left, *others):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - 7200,) * 2)
    (tmp_path / ".l.sqlite.abc_0000.new").touch()
    Ledger(tmp_path / "l.sqlite")
    assert names(tmp_path) == sorted(["l.sqlite", ".l.sqlite.abc_0000.new", *others])


def test_a_ledger_is_read_where_nothing_may_be_written() -> None:
    with tempfile.TemporaryDirectory() as place:
        shelf = Path(place)
        reserve(Ledger(shelf / "ledger.sqlite"))
        (shelf / "ledger.sqlite").chmod(0o444)
        shelf.chmod(0o555)

        def look() -> None:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            ledger = Ledger(shelf / "ledger.sqlite")
            ledger.verify(ledger.head)
            assert (ledger.epsilon_spent(ANALYST, DELTA), len(ledger.lines())) == (cost(), 1)
            ledger.check("s", [EVENT], TRUST, [])
            refused(LedgerError, "LE017", reserve, ledger)

        assert in_child(look) == 0
        assert names(shelf) == ["ledger.sqlite"]
        shelf.chmod(0o755)


# --- killed at a given step


def _half_way(ledger: Ledger) -> None:
    with ledger.writing() as base:
        base.execute("INSERT INTO entries (study, digest, created, events, trust) VALUES ('s', '', '', '[]', '{}')")
        die()


STATES = {
    "reserved": reserve,
    "sent": lambda ledger: ledger.mark_sent(reserve(ledger)),
    "": _half_way,
}


@pytest.mark.parametrize("state", STATES, ids=["reserved", "sent", "half way"])
def test_a_killed_process_gives_nothing_back_and_leaves_a_usable_ledger(tmp_path: Path, state: str) -> None:
    ledger = Ledger(tmp_path / "l.sqlite")
    assert in_child(lambda: die(STATES[state](ledger))) == -signal.SIGKILL
    ledger.verify()
    assert [entry.state for entry in ledger.entries()] == [state] * bool(state)
    assert ledger.epsilon_spent(ANALYST, DELTA) == (cost() if state else 0)


def kill(module, name: str, when: str, task, *words) -> None:
    """Do it in a process that is killed before or after a function of a module is called."""
    was = getattr(module, name)

    def replaced(*given, **options) -> None:
        if when == "after":
            was(*given, **options)
        die()

    def begin() -> None:
        setattr(module, name, replaced)
        task(*words)

    assert in_child(begin) == -signal.SIGKILL


BOTH = ("before", "after")


@pytest.mark.parametrize("when", BOTH)
@pytest.mark.parametrize(
    ("module", "name"),
    [(storage, "_fill"), (storage, "_check_whole"), (os, "link"), (shutil, "rmtree")],
    ids=["fill", "check", "link", "rmtree"],
)
def test_a_process_that_is_killed_leaves_a_whole_ledger_or_none_and_the_next_one_sweeps(
    module, name: str, when: str, tmp_path: Path
) -> None:
    path = tmp_path / "l.sqlite"
    kill(module, name, when, Ledger, path)
    was_there = path.exists()
    ledger = Ledger(path)
    assert ledger.created is not was_there
    reserve(ledger)
    ledger.verify()
    assert names(tmp_path) == ["l.sqlite"]


@pytest.mark.parametrize(("module", "name"), [(os, "fsync"), (os, "replace"), (shutil, "rmtree")])
def test_a_private_file_is_the_old_or_the_new_one_when_its_writer_is_killed(module, name: str, tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_bytes(b"old")
    for when in BOTH:
        kill(module, name, when, replace_private, path, b"new" * 1000)
        assert path.read_bytes() in (b"old", b"new" * 1000)
    replace_private(path, b"later")
    assert path.read_bytes() == b"later"
    assert names(tmp_path) == ["kept.json"]


@pytest.mark.parametrize(("file", "number"), [("ledger-1.db", 1), ("earlier-ledger.db", 2)])
@pytest.mark.parametrize("at", ["read_entries", "_held"])
def test_after_a_crash_a_ledger_is_converted_again(file: str, number: int, at: str, tmp_path: Path) -> None:
    """Killed with the copy half made, and, by way of a copy that is there, with the ledger not yet changed."""
    path, kept = tmp_path / "ledger.sqlite", tmp_path / f"ledger.sqlite.version-{number}"
    for place in (path, kept) if at == "_held" else (path,):
        shutil.copyfile(Path(__file__).parents[1] / "fixtures" / "ledger" / file, place)
    kill(storage, at, "before", storage.convert_ledger, path)
    assert Ledger(path).entries()
    done = storage.convert_ledger(path)
    assert (done.kept_path, done.version) == (kept, number)
    assert not any(name.endswith(".new") for name in names(tmp_path))


@pytest.mark.parametrize("write", [replace_private, lambda path, content: write_together({path: content})])
def test_a_file_and_its_name_are_on_disk_when_writing_returns(write, tmp_path, monkeypatch):
    """So what a party keeps is there before its ledger says that the study ended well."""
    path, steps = tmp_path / "kept.json", []

    def noted(call):
        def step(*words) -> None:
            about = words[0] if isinstance(words[0], int) else None
            kind = "replace" if about is None else "folder" if stat.S_ISDIR(os.fstat(about).st_mode) else "file"
            steps.append((kind, path.exists()))
            call(*words)

        return step

    for name in ("fsync", "replace"):
        monkeypatch.setattr(writing.os, name, noted(getattr(os, name)))
    write(path, b"weights")
    assert steps == [("file", False), ("replace", False), ("folder", True)]


# --- on disks that are full. In a mount of its own, which nobody else sees, the disk is as small as we like.

SMALL_DISKS = """
import json, subprocess, sys
from pathlib import Path
from colonnade.errors import LedgerError
from colonnade.privacy.ledger import Ledger
place, found = Path(sys.argv[1]), []
for pages in range(1, 31):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={4 * pages}k", "none", place], check=True)
    try:
        first = str(Ledger(place / "l.sqlite").created)
    except LedgerError as error:
        first = str(error)
    left = sorted(each.name for each in place.iterdir())
    subprocess.run(["mount", "-o", "remount,size=1m", place], check=True)
    Ledger(place / "l.sqlite").verify()
    found.append([first, left, sorted(each.name for each in place.iterdir())])
    subprocess.run(["umount", place], check=True)
print(json.dumps(found))
"""
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]


def can_mount(place: Path) -> bool:
    try:
        trial = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "none", place], capture_output=True, timeout=60)
    except OSError:
        return False
    return trial.returncode == 0


@pytest.mark.system
def test_on_a_disk_of_any_size_a_ledger_is_whole_or_not_there(tmp_path):
    if not can_mount(tmp_path):
        pytest.skip("nobody but root may mount a disk of a chosen size here")
    command = [*UNSHARE, sys.executable, "-c", SMALL_DISKS, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=True)
    found = json.loads(ended.stdout)
    made = [first == "True" for first, _, _ in found]
    assert made == sorted(made)
    assert {True, False} == set(made), "some disks were too small, and some were not"
    for first, left, later in found:
        assert left == (["l.sqlite"] if first == "True" else []), first
        assert first == "True" or "l.sqlite cannot be used" in first
        assert later == ["l.sqlite"]


# --- killed at any moment: a ledger opens, verifies, and never counts less than what was announced

ROUNDS_ON_ONE_LEDGER = 10
LONGEST_LIFE = 0.3
DONE = {"release-done": ("released",), "mark_sent-done": ("sent", "committed"), "commit-done": ("committed",)}


def live(path: Path, mouth: int) -> None:
    """Reserve, send, commit and release without end, and say each step before it and after it."""

    def say(word: str, entry: LedgerEntry) -> None:
        os.write(mouth, f"{word} {entry.id}\n".encode())

    ledger = Ledger(path)
    for number in itertools.count():
        entry = reserve(ledger)
        say("reserved", entry)
        for step in ["release"] if number % 4 == 3 else ["mark_sent", "commit"]:
            say(step, entry)
            getattr(ledger, step)(entry)
            say(f"{step}-done", entry)


def kill_one(path: Path, life: float) -> set[tuple[str, int]]:
    """What a child said before it was killed."""
    ear, mouth = os.pipe()
    child = FORK.Process(target=live, args=(path, mouth))
    child.start()
    os.close(mouth)
    with os.fdopen(ear) as said:
        lines = [said.readline()] if life > LONGEST_LIFE / 2 else []  # it has begun, however busy the machine is
        time.sleep(life)
        child.kill()
        lines += said
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    return {(word, int(number)) for word, number in (line.split() for line in lines)}


def check(path: Path, said: set[tuple[str, int]], rounds: int) -> None:
    ledger = Ledger(path)
    ledger.verify()
    now = {entry.id: entry for entry in ledger.entries()}
    reserved = {number for word, number in said if word == "reserved"}
    assert reserved <= set(now)
    assert len(now) <= len(reserved) + rounds, "each kill hides at most one finished reservation"
    for word, number in said:
        state = now[number].state
        assert word != "reserved" or state != "released" or ("release", number) in said
        assert state in DONE.get(word, (state,))
        if word == "mark_sent-done":
            refused(LedgerError, "LE006", "released", ledger.release, now[number])
    counted = sum(entry.state != "released" for entry in now.values())
    assert ledger.epsilon_spent(ANALYST, DELTA) == pytest.approx(cost(times=counted) if counted else 0, rel=1e-9)


@pytest.mark.parametrize(
    ("rounds", "least"),
    [pytest.param(5, 1, marks=pytest.mark.system), pytest.param(200, 200, marks=pytest.mark.slow)],
)
def test_many_killed_parties(tmp_path: Path, rounds: int, least: int) -> None:
    chance = random.Random(rounds)  # noqa: S311 - when to kill, nothing secret
    finished = 0
    for start in range(0, rounds, ROUNDS_ON_ONE_LEDGER):
        path, said = tmp_path / f"{start}.sqlite", set()
        Ledger(path)
        for done in range(min(ROUNDS_ON_ONE_LEDGER, rounds - start)):
            said |= kill_one(path, chance.uniform(0, LONGEST_LIFE))
            check(path, said, done + 1)
        finished += sum(word == "reserved" for word, _ in said)
    assert finished >= least
