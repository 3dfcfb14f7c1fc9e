"""Workers keep their state, say what they have to say, and their loss is an event: the same on every engine."""

from __future__ import annotations

import importlib.util
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from colonnade.errors import EngineError
from colonnade.randomness import Stream
from colonnade.study.engine import ray_cluster
from colonnade.study.engine.base import ProcessEngine, WorkerLoss, WorkerMessage, pickle_value
from colonnade.study.engine.ray_cluster import LOCAL, RayEngine
from colonnade.wire import Identity
from tests.study.engine.roles import Unreadable
from tests.support.errors import raises
from tests.support.waiting import until

COUNTER = "tests.study.engine.roles:counter"
PATIENCE = 300.0
MEMORY = 500 * 10**6


@pytest.fixture(scope="module", params=["processes", pytest.param("ray", marks=pytest.mark.system)])
def engine(request, forks):
    """Two workers, for all tests here: what one test ends, it replaces."""
    if request.param == "ray" and importlib.util.find_spec("ray") is None:
        pytest.skip("could not import 'ray'")
    found = ProcessEngine(MEMORY, forks) if request.param == "processes" else RayEngine(LOCAL, MEMORY, PATIENCE)
    with found:
        found.start(COUNTER, (40,), 2)
        yield found


@pytest.fixture
def workers(engine):
    """Two workers as new; nothing is left in the queue."""
    found: list[int] = getattr(engine, "tests", [0, 1])
    yield found
    with pytest.raises(queue.Empty):
        engine.events.get_nowait()
    engine.tests = found


def heard(engine):
    return engine.events.get(timeout=PATIENCE)


def told(engine, worker, *command):
    engine.send(worker, command)
    event = heard(engine)
    assert isinstance(event, WorkerMessage), event
    assert event.worker == worker
    return event.value


def gone(engine, workers, place):
    """The loss of a worker, in whose place another one is put, who knows nothing of it."""
    event = heard(engine)
    assert isinstance(event, WorkerLoss)
    assert event.worker == workers[place]
    engine.send(event.worker, ("add", 1))  # nobody is there
    workers[place] = engine.replace(event.worker)
    assert told(engine, workers[place], "add", 0) == 40
    return event


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid):
    return until(lambda: not is_alive(pid), f"the end of {pid}", PATIENCE)


def test_workers_keep_their_state_apart(engine, workers):
    first, second = workers
    added = [(first, (2,)), (second, (1, 1, 1)), (first, (-2,)), (second, (-3,))]
    assert [told(engine, worker, "add", *numbers) for worker, numbers in added] == [42, 43, 40, 40]
    pids = {told(engine, worker, "pid") for worker in workers}
    assert len(pids | {os.getpid()}) == 3
    assert len({told(engine, worker, "coins") for worker in (*workers, *workers)}) == 4, "each draws its own"
    assert told(engine, second, "patience") == "nothing came"


def test_words_come_in_order_and_arrays_come_whole(engine, workers):
    engine.send(workers[0], ("say", 200))
    assert [heard(engine) for _ in range(200)] == [WorkerMessage(workers[0], value) for value in range(200)]
    for number in range(100):
        engine.send(workers[1], ("add", number))
    totals = [WorkerMessage(workers[1], 40 + number * (number + 1) // 2) for number in range(100)]
    assert [heard(engine) for _ in range(100)] == totals
    assert told(engine, workers[1], "add", -4950) == 40
    found = told(engine, workers[0], np.arange, 10**6)
    np.testing.assert_array_equal(found, np.arange(10**6))
    assert told(engine, workers[0], np.size, found) == 10**6


def test_a_killed_worker_is_an_event_and_is_replaced(engine, workers, capfd):
    other, killed = told(engine, workers[1], "add", 5), told(engine, workers[0], "pid")
    os.kill(killed, signal.SIGKILL)
    assert gone(engine, workers, 0).cause == "lost"
    assert ends(killed)
    assert told(engine, workers[1], "add", 0) == other, "the other one goes on"
    assert told(engine, workers[1], "add", -5) == 40
    assert told(engine, workers[0], "print") == "printed"
    said, complaints = capfd.readouterr()
    assert said == "", "nothing is mixed into what a head prints"
    assert "4711" not in complaints


def test_a_busy_worker_can_be_replaced_and_says_nothing_more(engine, workers):
    pid = told(engine, workers[0], "pid")
    assert told(engine, workers[0], "busy") == "busy"
    replaced, workers[0] = workers[0], engine.replace(workers[0])
    assert workers[0] not in (replaced, workers[1])
    assert told(engine, workers[0], "add", 0) == 40
    assert ends(pid)


def test_an_error_in_a_worker_is_told_without_data(engine, workers):
    engine.send(workers[0], (int, "a person of 77 years"))
    event = gone(engine, workers, 0)
    assert event.cause == "raised"
    assert "ValueError in roles.py" in event.why
    assert "77" not in event.why
    engine.send(workers[0], (Unreadable,))
    assert heard(engine) == WorkerLoss(workers[0], "what it said cannot be read by its head (ValueError)", "raised")
    workers[0] = engine.replace(workers[0])


def test_a_worker_that_cannot_begin_is_told_as_such(engine, workers, monkeypatch):
    if not isinstance(engine, RayEngine):
        pytest.skip("a process is forked from its head's own modules")
    with monkeypatch.context() as patch:
        patch.setattr(ray_cluster, "pickle_value", lambda *_: b"of another version")
        workers[0] = engine.replace(workers[0])
        event = heard(engine)
    assert isinstance(event, WorkerLoss)
    assert (event.worker, event.cause) == (workers[0], "raised")
    assert "install the same Colonnade" in event.why
    workers[0] = engine.replace(workers[0])
    assert told(engine, workers[0], "add", 0) == 40


def test_a_worker_that_needs_too_much_memory_is_ended(engine, workers):
    engine.send(workers[0], ("eat", MEMORY))  # beside what its modules take
    event = heard(engine)
    if isinstance(event, WorkerMessage):  # it had all of it before anybody looked
        event = heard(engine)
    assert isinstance(event, WorkerLoss)
    assert (event.worker, event.cause) == (workers[0], "memory")
    assert "500 MB" in event.why
    workers[0] = engine.replace(workers[0])
    assert told(engine, workers[0], "add", 0) == 40


def test_what_cannot_be_pickled_is_refused_and_the_worker_goes_on(engine, workers):
    with raises(EngineError, "EN001", "function"):
        engine.send(workers[0], lambda: None)
    assert told(engine, workers[0], "add", 0) == 40
    with raises(EngineError, "EN002|EN008"):
        engine.start(COUNTER)


@pytest.mark.parametrize("kind", [ProcessEngine, RayEngine])
def test_an_engine_without_workers_can_be_stopped_and_replaces_nobody(kind):
    found = kind()
    with raises(EngineError, "EN003|EN009"):
        found.replace(0)
    found.send(0, "nobody is there")
    for role in ("nowhere", ":counter", "tests.study.engine.roles:"):
        with raises(EngineError, "EN025"):
            kind().start(role)
    found.stop()
    found.stop()


def test_keys_and_coins_are_never_sent():
    identity = Identity.create("bank")
    for secret in (Stream.fresh(), identity, identity.issue_connection_certificate(), {"deep": [Stream.fresh()]}):
        with raises(EngineError, "EN001") as caught:
            pickle_value(secret, "an argument")
        assert type(secret).__name__ in str(caught.value)
    with raises(EngineError, "EN001"):
        ProcessEngine().start(COUNTER, (Stream.fresh(),), 1)


# --- processes of this machine: none outlives its head, and none is left behind

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
HEAD = f"""
import sys, time
from colonnade.study.engine.base import ProcessEngine as Processes
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
@pytest.mark.system
def test_workers_end_with_their_head_however_it_ends():
    found = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])}
    head = subprocess.Popen([sys.executable, "-c", HEAD], stdout=subprocess.PIPE, text=True, env=found)
    with head.stdout:
        pids = [int(word) for word in head.stdout.readline().split()]
        assert head.stdout.readline() == "busy\n"
    assert len(pids) == 2
    assert all(map(is_alive, pids))
    head.kill()
    head.wait(PATIENCE)
    assert all(map(ends, pids))


@on_linux
@pytest.mark.system
def test_workers_are_forked_tell_how_they_were_ended_leave_no_zombie_and_nothing_is_said_after_the_end(forks):
    forks.prepare()
    before = len(os.listdir("/proc/self/fd"))
    engine = ProcessEngine(forks=forks)
    workers = engine.start(COUNTER, (), 4)
    pids = [told(engine, worker, "pid") for worker in workers]
    assert [engine.process(worker) for worker in workers] == pids
    os.kill(pids[0], signal.SIGTERM)
    assert engine.events.get(timeout=PATIENCE) == WorkerLoss(workers[0], "its process was ended by SIGTERM")
    assert engine.process(workers[0]) is None
    for pid in pids[1:3]:
        os.kill(pid, signal.SIGKILL)
    other = threading.Thread(target=engine.stop)
    other.start()
    engine.stop()
    held = engine.events.qsize()
    other.join(PATIENCE)
    assert all(map(ends, pids))
    assert engine.events.qsize() == held
    with raises(EngineError, "EN011"):
        engine.replace(workers[1])
    assert forks.pid is not None, "whoever brings a fork server keeps it"
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.system
@pytest.mark.parametrize(
    ("role", "command", "why"),
    [
        ("brief", (), "its role has ended"),
        ("absent", (), "tests.study.engine.roles:absent cannot be imported"),
        ("counter", ("raise ours",), "the table has no rows"),
        ("counter", (threading.Lock,), "what a worker says cannot be sent"),
    ],
)
def test_how_a_role_ended_is_told_and_our_own_errors_hold_no_data_and_are_told_whole(forks, role, command, why):
    with ProcessEngine(forks=forks) as engine:
        engine.start(f"tests.study.engine.roles:{role}", (), 1)
        engine.send(0, command)
        while not isinstance(event := engine.events.get(timeout=PATIENCE), WorkerLoss):
            assert event == WorkerMessage(0, "done")
    assert (event.worker, event.cause) == (0, "raised")
    assert why in event.why
