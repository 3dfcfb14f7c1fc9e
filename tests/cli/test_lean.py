from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from colonnade import cli
from colonnade.cli import app, lean

PROGRAM = """
import resource
import numpy as np
from colonnade.cli.lean import keep_memory
{first}
for number in range(30):
    if number == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.zeros(1 << 18) + 1 for _ in range(3)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.system
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
    monkeypatch.setattr(lean, "keep_memory", lambda: called.append("keep"))
    monkeypatch.setattr(lean, "few_arenas", lambda: called.append("few"))
    monkeypatch.setattr(app, "command_line", lambda: called.append("run"))
    monkeypatch.setattr(sys, "argv", ["colonnade", command, "file.toml"])
    cli.main()
    assert called == (["keep" if keeps else "few", "run"])


THREADS = """
import ctypes, sys, threading
from colonnade.cli import lean
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


@pytest.mark.system
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
from colonnade.cli import lean
{first}
atexit.register(print, "at the end")
threading.Thread(target=lambda: (time.sleep(0.05), print("a thread"))).start()
sys.stdout.write("unflushed ")
lean.end({status})
print("went on")
"""


@pytest.mark.system
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


@pytest.mark.system
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full disk to write to")
def test_a_reader_that_is_gone_is_told_by_the_exit_status() -> None:
    program = "import sys\nfrom colonnade.cli import lean\nsys.stdout.write('lost')\nlean.end(0)"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=full, env=buffered)
    assert done.returncode == 120
