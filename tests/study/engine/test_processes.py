"""Workers in processes of this machine: none outlives its head, none is left behind, and nobody else starts one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from colonnade.errors import EngineError
from colonnade.study.engine import processes
from colonnade.study.engine.contract import Gone, Said
from colonnade.study.engine.processes import Processes
from colonnade.study.forks import Forks
from tests.support.errors import raises

from .test_engines import COUNTER, PATIENCE, ends, is_alive, told

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.system
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
HEAD = f"""
import sys, time
from colonnade.study.engine.processes import Processes
engine = Processes()
for worker in engine.start({COUNTER!r}, (), 2):
    engine.send(worker, ("pid",))
sys.stdout.write(" ".join(str(engine.events.get().value) for _ in range(2)) + "\\n")
for worker in range(2):
    engine.send(worker, ("busy",))
    engine.events.get()
sys.stdout.write("busy\\n")
sys.stdout.flush()
time.sleep(600)
"""


@on_linux
def test_workers_end_with_their_head_however_it_ends() -> None:
    path = os.pathsep.join([str(ROOT), *sys.path])
    head = subprocess.Popen(
        [sys.executable, "-c", HEAD], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert head.stdout is not None
    with head.stdout:
        pids = [int(word) for word in head.stdout.readline().split()]
        assert head.stdout.readline() == "busy\n"
    assert len(pids) == 2
    assert all(map(is_alive, pids))
    head.kill()
    head.wait(PATIENCE)
    assert all(map(ends, pids))


@on_linux
def test_workers_are_forked_tell_how_they_were_ended_and_leave_no_zombie(forks: Forks) -> None:
    with Processes(forks=forks) as other:
        told(other, *other.start(COUNTER, (), 1), "pid")  # so that the fork server runs
    before = len(os.listdir("/proc/self/fd"))
    engine = Processes(forks=forks)
    first, second = engine.start(COUNTER, (), 2)
    pids = [told(engine, worker, "pid") for worker in (first, second)]
    assert [engine.process(worker) for worker in (first, second)] == pids
    os.kill(pids[0], signal.SIGTERM)
    assert engine.events.get(timeout=PATIENCE) == Gone(first, "its process was ended by SIGTERM")
    assert engine.process(first) is None
    engine.stop()
    assert all(map(ends, pids))
    assert engine.events.empty()
    assert forks.pid is not None, "whoever brings a fork server keeps it"
    assert len(os.listdir("/proc/self/fd")) == before


@on_linux
def test_an_engine_that_is_stopped_while_its_workers_die_says_nothing_more(forks: Forks) -> None:
    with Processes(forks=forks) as other:
        told(other, *other.start(COUNTER, (), 1), "pid")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        engine = Processes(forks=forks)
        workers = engine.start(COUNTER, (), 3)
        pids = [told(engine, worker, "pid") for worker in workers]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        other = threading.Thread(target=engine.stop)
        other.start()
        engine.stop()
        held = engine.events.qsize()
        other.join(PATIENCE)
        assert all(map(ends, pids))
        assert engine.events.qsize() == held
        with raises(EngineError, "EN011"):
            engine.replace(workers[0])
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_worker_that_is_replaced_while_it_dies_is_told_before_or_never(forks: Forks) -> None:
    with Processes(forks=forks) as engine:
        (worker,) = engine.start(COUNTER, (), 1)
        for _ in range(10):
            os.kill(told(engine, worker, "pid"), signal.SIGKILL)
            old, worker = worker, engine.replace(worker)
            waiting = [engine.events.get_nowait() for _ in range(engine.events.qsize())]
            assert [event.worker for event in waiting] in ([], [old])


def last(forks: Forks, role: str, *command: str) -> Gone:
    """How the one worker of a role ends that is told this, or nothing."""
    with Processes(forks=forks) as engine:
        (worker,) = engine.start(f"tests.study.engine.roles:{role}", (), 1)
        if command:
            engine.send(worker, command)
        while not isinstance(event := engine.events.get(timeout=PATIENCE), Gone):
            assert event == Said(0, "done")
    assert (event.worker, event.cause) == (0, "raised")
    return event


def test_how_a_role_ended_is_told_and_our_own_errors_hold_no_data_and_are_told_whole(forks: Forks) -> None:
    assert last(forks, "brief").why == "its role has ended"
    assert "tests.study.engine.roles:absent cannot be imported" in last(forks, "absent").why
    assert last(forks, "counter", "raise ours").why == "the table has no rows"
    assert "what a worker says cannot be sent" in last(forks, "counter", "lambda").why


def test_without_a_number_there_are_as_many_workers_as_cores(forks: Forks, monkeypatch: pytest.MonkeyPatch) -> None:
    assert processes.cores() >= 1
    monkeypatch.setattr(processes, "cores", lambda: 3)
    with Processes(forks=forks) as engine:
        assert engine.start(COUNTER) == [0, 1, 2]


def test_nobody_else_starts_a_worker() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "colonnade", processes.COMMAND], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == EngineError.exit_code
    assert "started by a head" in done.stderr
