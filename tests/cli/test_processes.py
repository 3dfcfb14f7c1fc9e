"""The processes of commands: what they inherit, what memory they keep, how they end, and a demonstration in a terminal.

Participants of ``colonnade run`` and ``colonnade demo`` are forked from what is public, and inherit nothing else.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
from collections import defaultdict
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest

import colonnade
from colonnade import cli
from colonnade.cli import app, process_tuning
from colonnade.errors import Interrupted
from colonnade.study import Study, spec
from colonnade.study.local import folder_of
from tests.study.test_fork_server import PATIENCE
from tests.support.errors import refused
from tests.support.standing import descendants, environment
from tests.support.studies import Trial
from tests.support.waiting import until

forked = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every process is started anew")
system = pytest.mark.system
EVERYBODY = ("bank", "shop", "clinic", "coordinator")

# The command itself; every file that any of its processes opens, and every fork, is a line in a file.
WATCHED = """
import os, sys
log, busy = sys.argv.pop(1), []

def watch(event, given):
    if event not in ("open", "os.fork", "sqlite3.connect") or busy:
        return
    busy.append(event)
    try:
        file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{os.getpid()} {event} {given[0] if given else ''}\\n".encode())
        os.close(file)
    finally:
        busy.pop()

sys.addaudithook(watch)
from colonnade.cli import main
main()
"""


def test_nothing_is_imported_from_the_folder_that_one_is_in(tmp_path: Path) -> None:
    """Processes that a command starts are started with -m, which takes modules from there before all others."""
    (tmp_path / "colonnade.py").write_text("raise SystemExit('a program of somebody else')\n")
    script = """
import os, subprocess, sys
from colonnade.cli import main, process_tuning
process_tuning.end = lambda code: None  # which would end this program, too
sys.argv[1:] = ["--version"]
try:
    main()
except SystemExit as ended:
    assert not ended.code
sys.exit(subprocess.run([sys.executable, "-m", "colonnade", "--version"]).returncode)
"""
    where = {"PYTHONPATH": str(Path(colonnade.__file__).absolute().parents[1])}
    words = [sys.executable, "-P", "-c", script]
    ended = subprocess.run(words, cwd=tmp_path, env={**os.environ, **where}, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count("colonnade ") == 2, ended.stdout


def owners_of(opened: list[tuple[str, str]], folder: Path, study: Path) -> list[str]:
    """Whose own folders these files are in."""
    files = [re.sub(r"^file://|\?.*$", "", path) for event, path in opened if event != "os.fork"]
    inside = {Path(os.path.relpath(folder / file, study)).parts[0] for file in files}
    return sorted(inside & set(EVERYBODY))


@system
@pytest.mark.parametrize("command", ["run", "demo"])
@forked
def test_nothing_of_a_party_is_opened_before_the_fork_or_by_another(tmp_path: Path, command: str) -> None:
    log, study = tmp_path / "opened.log", tmp_path / "demo" / "study"
    given = ["--rows", "100"] if command == "demo" else [str(Trial(study, 60).file)]
    words = [sys.executable, "-c", WATCHED, str(log), command, *given, "--out", "demo", "--json"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    seen: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for line in log.read_text().splitlines():
        pid, event, path = line.split(" ", 2)
        seen[pid].append((event, path))
    first, *rest = seen.values()
    assert owners_of(first[: first.index(("os.fork", ""))], tmp_path, study) == []
    whose = sorted(owners_of(opened, tmp_path, study) for opened in rest)
    assert whose == [[], *([name] for name in sorted(EVERYBODY))], "a copy opens public files, everybody its own folder"
    models = {(folder_of(tmp_path / "demo", name) / "model.json").read_text() for name in EVERYBODY}
    assert len(models) == 1
    assert "components" in json.loads(models.pop())["learned"]


# A copy is made, then a party's file is read; the copy's processes wait to be looked at.
SECRETIVE = """
import os, sys
from colonnade import cli
from colonnade.study.fork_server import ForkServer as Forks, ProcessRequest as Wanted

def show():
    os.write(1, b"here")
    os.read(0, 1)

cli.main = show
held = open(os.devnull)
forks = Forks.of_this_process(lambda: None)
copy = forks.pid
secret = open(sys.argv[1]).read()
stdin, ours = os.pipe()
theirs, output = os.pipe()
child = forks.start(Wanted(["party"], stdin, output))
assert os.read(theirs, 4) == b"here"
print(copy, child.pid, flush=True)
sys.stdin.readline()
os.close(ours)
os.close(stdin)
assert child.wait(60) == 0
forks.close()
assert held.read() == "" and len(secret) > 9
"""


def in_memory(pid: int, text: bytes) -> bool:
    """Whether a process has these bytes anywhere in what it can read or write."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            ends, rights, *_ = line.split()
            if rights.startswith("rw"):
                start, end = (int(part, 16) for part in ends.split("-"))
                memory.seek(start)
                try:
                    if text in memory.read(end - start):
                        return True
                except OSError:  # a page that was only reserved
                    continue
    return False


@system
@forked
def test_what_is_read_after_the_copy_is_not_in_the_memory_of_others(tmp_path: Path) -> None:
    secret = sha256(b"a cell of the bank's table").hexdigest()
    (tmp_path / "bank.csv").write_text(secret)
    words = [sys.executable, "-c", SECRETIVE, str(tmp_path / "bank.csv")]
    alone = {"OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}  # as the command has it
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | alone
    ) as process:
        assert process.stdout is not None
        copy, child = map(int, process.stdout.readline().split())
        try:
            found = [in_memory(pid, secret.encode()) for pid in (process.pid, copy, child)]
        except PermissionError:
            pytest.skip("here nobody may look into the memory of a process")
        opened = [os.readlink(f"/proc/{child}/fd/{name}") for name in os.listdir(f"/proc/{child}/fd")]
        process.communicate("\n", timeout=PATIENCE)
        assert process.returncode == 0
    assert found == [True, False, False]
    assert not any("bank.csv" in path or path.startswith("socket:") for path in opened)


# The shop never gets as far as its table, so that the others wait.
WAITING = """
import time
from colonnade.cli import main
from colonnade.study import run
real = run._table

def table(study, config, record):
    if config.name == "shop":
        time.sleep(600)
    return real(study, config, record)

run._table = table
main()
"""


def any_of_group(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


@system
@forked
def test_an_interrupted_run_leaves_nobody_behind(trial: Trial, tmp_path: Path) -> None:
    command = [sys.executable, "-c", WAITING, "run", str(trial.file), "--out", str(tmp_path / "run"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    records = [folder_of(tmp_path / "run", party) / "events.jsonl" for party in trial.parties]
    until(lambda: all(each.exists() and "budget reserved" in each.read_text() for each in records), "all reservations")
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == Interrupted.exit_code
    until(lambda: not any_of_group(process.pid), "the end of everybody")
    trial.check_states("released")


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """A study, where none was handed on."""
    monkeypatch.setattr(spec, "_PRELOADED_STUDIES", {})
    return Trial(tmp_path / "study", 60)


@forked
def test_a_study_is_handed_on_as_long_as_its_files_are_the_same(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = Study.load(trial.file)
    assert Study.load(trial.file).task is not loaded.task
    loaded.keep_for_forks()
    monkeypatch.chdir(trial.folder)
    again = Study.load("STUDY.toml")
    assert (again.task, again.path, loaded.path) == (loaded.task, Path("STUDY.toml"), trial.file)
    schema = trial.folder / "schemas" / "bank.toml"
    whole = schema.read_text()
    for text, handed_on in ((whole + "\n", False), (whole, True)):
        schema.write_text(text)
        assert (Study.load("STUDY.toml").task is loaded.task) == handed_on
    trial.edit("STUDY.toml", r"^n_components = 2", "n_components = 3")
    assert Study.load("STUDY.toml").digest != loaded.digest
    # Changed between loading and handing on
    monkeypatch.setattr(spec, "_PRELOADED_STUDIES", {})
    loaded.keep_for_forks()
    assert not loaded.is_unchanged
    assert Study.load(trial.file).content.task.parameters["n_components"] == 3
    trial.edit("STUDY.toml", r"^n_components = 3", "n_components = 2")
    assert Study.load(trial.file).task is loaded.task


@forked
def test_a_file_that_is_read_twice_must_be_the_same_twice(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    trial.edit("STUDY.toml", r'schema = "schemas/shop.toml"', 'schema = "schemas/bank.toml"')
    schema, real = trial.folder / "schemas" / "bank.toml", spec.reading.read_bytes

    def changing(path: Path, most: int) -> bytes:
        found = real(path, most)
        if path == schema:
            schema.write_bytes(found + b"\n")
        return found

    monkeypatch.setattr(spec.reading, "read_bytes", changing)
    refused(spec.StudyError, "ST592", Study.load, trial.file)


# --- memory, and the end


PROGRAM = """
import resource
import numpy as np
from colonnade.cli.process_tuning import keep_memory
{first}
for number in range(30):
    if number == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.zeros(1 << 18) + 1 for _ in range(3)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@system
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep memory")
def test_a_process_of_ours_keeps_the_memory_of_arrays_it_dropped() -> None:
    """It touches fresh pages more rarely while it makes and drops arrays of 2 MB."""
    programs = [PROGRAM.format(first=first) for first in ("", "keep_memory()")]
    without, kept = (int(subprocess.check_output([sys.executable, "-c", program])) for program in programs)
    if without < 5000:
        pytest.skip("this system gives fresh memory out in larger pieces than pages, or does not count them")
    assert kept < without / 10


@pytest.mark.parametrize(
    ("command", "keeps"),
    [("party", True), ("coordinator", True), ("hub", False), ("agent", False), ("relay", False)],
)
def test_a_process_that_stands_for_months_keeps_nothing(
    command: str, keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    monkeypatch.setattr(process_tuning, "keep_memory", lambda: called.append("keep"))
    monkeypatch.setattr(process_tuning, "few_arenas", lambda: called.append("few"))
    monkeypatch.setattr(app, "command_line", lambda: called.append("run"))
    monkeypatch.setattr(sys, "argv", ["colonnade", command, "file.toml"])
    cli.main()
    assert called == (["keep" if keeps else "few", "run"])


THREADS = """
import ctypes, sys, threading
from colonnade.cli import process_tuning as lean
{first}
import grpc
gate = threading.Barrier(9)
def work():
    kept = [bytes(5000) for _ in range(100)]
    gate.wait()
for _ in range(8):
    threading.Thread(target=work).start()
gate.wait()
ctypes.CDLL(None).malloc_stats()
"""


@system
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")
def test_threads_share_two_heaps_in_a_standing_process_and_one_in_a_worker() -> None:
    def arenas(first: str) -> int:
        environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
        code = THREADS.format(first=first)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        return sum(line.startswith("Arena ") for line in done.stderr.splitlines())

    assert arenas("") > 4
    assert arenas("lean.few_arenas()") == 2
    assert arenas("lean.few_arenas(1)") == 1


ENDING = """
import atexit, sys, threading, time
from colonnade.cli import process_tuning as lean
{first}
atexit.register(print, "at the end")
threading.Thread(target=lambda: (time.sleep(0.05), print("a thread"))).start()
sys.stdout.write("unflushed ")
lean.end({status})
print("went on")
"""


@system
@pytest.mark.parametrize(
    ("first", "status", "said"),
    [
        *(("", status, "unflushed a thread\nat the end\n") for status in (None, 0, 3)),
        # whoever profiles or traces a process has the last word
        *((f"sys.{hook}(lambda *_: None)", 0, "unflushed went on\n") for hook in ("setprofile", "settrace")),
    ],
)
def test_a_process_ends_at_once_and_nothing_that_was_due_is_left_out(first: str, status: int | None, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING.format(first=first, status=status)], capture_output=True, text=True
    )
    assert done.stdout.startswith(said)
    assert first or (done.stdout, done.returncode, done.stderr) == (said, status or 0, "")


@system
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full disk to write to")
def test_a_reader_that_is_gone_is_told_by_the_exit_status() -> None:
    program = "import sys\nfrom colonnade.cli import process_tuning as lean\nsys.stdout.write('lost')\nlean.end(0)"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=full, env=buffered)
    assert done.returncode == 120


# --- a demonstration


@system
def test_a_demonstration_in_a_terminal_goes_on_in_the_browser_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("uvicorn")
    screen, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "colonnade", "demo", "--rows", "300", "--out", "demo"],
        cwd=tmp_path, stdin=end, stdout=end, stderr=end, env=environment() | {"TERM": "xterm", "COLUMNS": "200"},
        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(end)
    printed: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # nobody has the other end any more
            while True:
                printed.append(os.read(screen, 1 << 16))

    def said() -> str:
        return b"".join(printed).decode("utf-8", "replace")

    reader = threading.Thread(target=read)
    reader.start()
    try:
        until(lambda: "Ctrl-C ends everything." in said() or process.poll() is not None, "the demonstration", 400)
        assert "report.html" in said(), "no progress bar is drawn over the last lines"
        assert "starting a hub and three agents" in said()
        links = re.findall(r"(https?://\S+/login\?link=[0-9a-f]+)", said())
        assert len(links) == 4
        for link in links:
            page, (origin, _, key) = httpx.get(link), link.partition("/login?link=")
            assert (page.status_code, "This link signs you in once." in page.text) == (200, True)
            signed = httpx.post(f"{origin}/login", data={"link": key}, headers={"origin": origin})
            assert signed.status_code == 303
        with httpx.Client(base_url=origin, cookies=signed.cookies, follow_redirects=True) as somebody:
            until(lambda: "three components" in somebody.get("/inbox").text or None, "the study in the inbox")
        below = descendants(process.pid)
        assert len(below) >= 4
        os.write(screen, b"\x03")  # as a terminal sends it to all processes in it
        assert process.wait(400) == 0, said()[-2000:]
        until(lambda: not set(below) & set(descendants(1)), "the end of everything that ran below")
        reader.join(60)
        assert "stopped; to start again: colonnade federation hub" in said()
        assert "Traceback" not in said()
    finally:
        for pid in (*descendants(process.pid), process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        reader.join(60)
        os.close(screen)
