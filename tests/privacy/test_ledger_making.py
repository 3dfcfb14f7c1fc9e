"""A ledger is made as a whole or not at all: on full disks, by processes that are killed, and by several at once."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from colonnade.disk import writing
from colonnade.errors import LedgerError
from colonnade.models.files import replace_private, write_together
from colonnade.privacy.ledger import Ledger

from .conftest import EVENT, TRUST

# In a mount of its own, which nobody else sees, the disk is as small as we like.
SMALL_DISKS = """
import json, subprocess, sys
from pathlib import Path
from colonnade.errors import LedgerError
from colonnade.privacy.ledger import Ledger
place, found = Path(sys.argv[1]), []
for pages in range(1, 31):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={4 * pages}k", "none", place], check=True)
    try:
        first = str(Ledger(place / "l.sqlite").made)
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
KILLED = """
import os, signal, sys
from pathlib import Path
from colonnade.disk import writing
from colonnade.models.files import replace_private
from colonnade.privacy.ledger import Ledger, layout

def killing(module, name, after):
    was = getattr(module, name)
    def replaced(*words, **options):
        if not after:
            os.kill(os.getpid(), signal.SIGKILL)
        was(*words, **options)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(module, name, replaced)

path, module, name, after = sys.argv[1:]
killing({"layout": layout, "os": os, "shutil": writing.shutil}[module], name, after == "after")
Ledger(path) if path.endswith(".sqlite") else replace_private(Path(path), b"new" * 1000)
"""
HOLDING = """
import sys
from pathlib import Path
from colonnade.privacy.ledger import Ledger, layout
fill = layout._fill
def slowly(new):
    fill(new)
    print("filled", flush=True)
    sys.stdin.readline()
layout._fill = slowly
print(Ledger(sys.argv[1]).made, flush=True)
"""


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def can_mount(place: Path) -> bool:
    try:
        trial = subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "none", place], capture_output=True, timeout=30)
    except OSError:
        return False
    return trial.returncode == 0


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


STEPS = [
    ("layout", "_fill", "before"),
    ("layout", "_fill", "after"),
    ("layout", "_check_whole", "after"),
    ("os", "link", "before"),
    ("os", "link", "after"),
    ("shutil", "rmtree", "before"),
    ("shutil", "rmtree", "after"),
]


def kill(path: Path, module: str, name: str, when: str) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path), module, name, when], timeout=60)
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("module", "name", "when"), STEPS, ids=lambda word: word)
def test_a_process_that_is_killed_leaves_a_whole_ledger_or_none_and_the_next_one_sweeps(module, name, when, tmp_path):
    path = tmp_path / "l.sqlite"
    kill(path, module, name, when)
    was_there = path.exists()
    ledger = Ledger(path)
    assert ledger.made is not was_there
    ledger.verify()
    ledger.reserve("s", "", [EVENT], TRUST, [])
    assert names(tmp_path) == ["l.sqlite"]
    assert len(Ledger(path).entries()) == 1


@pytest.mark.parametrize(("module", "name"), [("os", "fsync"), ("os", "replace"), ("shutil", "rmtree")])
def test_a_private_file_is_the_old_or_the_new_one_when_its_writer_is_killed(module, name, tmp_path):
    path = tmp_path / "kept.json"
    path.write_bytes(b"old")
    for when in ("before", "after"):
        kill(path, module, name, when)
        assert path.read_bytes() in (b"old", b"new" * 1000)
    replace_private(path, b"later")
    assert path.read_bytes() == b"later"
    assert names(tmp_path) == ["kept.json"]


def test_what_another_process_is_making_is_not_swept(tmp_path):
    path = tmp_path / "l.sqlite"
    maker = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert maker.stdin is not None
    assert maker.stdout is not None
    assert maker.stdout.readline() == "filled\n"
    before = names(tmp_path)
    assert len(before) == 1
    writing.sweep(path)
    assert names(tmp_path) == before
    assert Ledger(path).made
    said, _ = maker.communicate("\n", timeout=60)
    assert said == "False\n"
    assert maker.returncode == 0
    assert names(tmp_path) == ["l.sqlite"]


def test_what_earlier_releases_left_is_swept_once_it_is_old(tmp_path):
    path = tmp_path / "l.sqlite"
    left = [f".l.sqlite.abc_1234.new{end}" for end in ("", "-wal", "-shm", "-journal")]
    others = [".l.sqlite.new", ".l.sqlite.abc_1234.neu", ".other.sqlite.abc_1234.new", "l.sqlite.abc_1234.new"]
    for name in (*left, *others):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - 7200,) * 2)
    (tmp_path / ".l.sqlite.abc_0000.new").touch()
    Ledger(path)
    assert names(tmp_path) == sorted(["l.sqlite", ".l.sqlite.abc_0000.new", *others])


def _open_without_links(path: str) -> str:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    os.link = refuse
    try:
        return str(Ledger(path).made)
    except LedgerError as error:
        return str(error)


def test_where_there_are_no_links_one_of_many_makes_the_file(tmp_path):
    with ProcessPoolExecutor(4, mp_context=get_context("fork")) as pool:
        for number in range(6):
            said = list(pool.map(_open_without_links, [str(tmp_path / f"{number}.sqlite")] * 4))
            assert sorted(said) == ["False"] * 3 + ["True"]
            Ledger(tmp_path / f"{number}.sqlite").verify()
    assert names(tmp_path) == [f"{number}.sqlite" for number in range(6)]


@pytest.mark.parametrize("write", [replace_private, lambda path, content: write_together({path: content})])
def test_a_file_and_its_name_are_on_disk_when_writing_returns(write, tmp_path, monkeypatch):
    """So what a party keeps is there before its ledger says that the study ended well."""
    steps: list[tuple[str, bool]] = []
    sync, replace = os.fsync, os.replace

    def note_sync(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        steps.append((kind, path.exists()))
        sync(descriptor)

    def note_replace(source: Path, target: Path) -> None:
        steps.append(("replace", path.exists()))
        replace(source, target)

    path = tmp_path / "kept.json"
    monkeypatch.setattr(writing.os, "fsync", note_sync)
    monkeypatch.setattr(writing.os, "replace", note_replace)
    write(path, b"weights")
    assert steps == [("file", False), ("replace", False), ("folder", True)]
