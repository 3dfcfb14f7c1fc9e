"""Workers keep their state, say what they have to say, and their loss is an event: the same on every engine."""

from __future__ import annotations

import importlib.util
import os
import queue
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from colonnade.errors import EngineError
from colonnade.randomness import Stream
from colonnade.study.engine.contract import Engine, Event, Gone, Said, pickled
from colonnade.study.engine.on_ray import OnRay
from colonnade.study.engine.processes import Processes
from colonnade.study.engine.ray_connection import LOCAL
from colonnade.study.forks import Forks
from colonnade.wire import Identity
from tests.support.errors import raises

COUNTER = "tests.study.engine.roles:counter"
PATIENCE = 300.0
MEMORY = 500 * 10**6


@pytest.fixture(scope="module", params=["processes", pytest.param("ray", marks=pytest.mark.system)])
def engine(request: pytest.FixtureRequest, forks: Forks) -> Iterator[Engine]:
    """Two workers, for all tests here: what one test ends, it replaces."""
    if request.param == "ray" and importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install colonnade[ray]")
    found = Processes(MEMORY, forks) if request.param == "processes" else OnRay(LOCAL, MEMORY, PATIENCE)
    with found:
        found.start(COUNTER, (40,), 2)
        yield found


@pytest.fixture
def workers(engine: Engine) -> Iterator[list[int]]:
    """Two workers as new; nothing is left in the queue."""
    found: list[int] = getattr(engine, "tests", [0, 1])
    yield found
    with pytest.raises(queue.Empty):
        engine.events.get_nowait()
    engine.tests = found  # type: ignore[attr-defined]


def heard(engine: Engine) -> Event:
    return engine.events.get(timeout=PATIENCE)


def told(engine: Engine, worker: int, *command: Any) -> Any:
    engine.send(worker, command)
    event = heard(engine)
    assert isinstance(event, Said), event
    assert event.worker == worker
    return event.value


def gone(engine: Engine, workers: list[int], place: int) -> Gone:
    """The loss of a worker, in whose place another one is put, who knows nothing of it."""
    event = heard(engine)
    assert isinstance(event, Gone)
    assert event.worker == workers[place]
    engine.send(event.worker, ("add", 1))  # nobody is there
    workers[place] = engine.replace(event.worker)
    assert told(engine, workers[place], "add", 0) == 40
    return event


def is_alive(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid: int) -> bool:
    until = time.monotonic() + PATIENCE
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_alive(pid)


def test_workers_keep_their_state_apart(engine: Engine, workers: list[int]) -> None:
    first, second = workers
    added = [(first, (2,)), (second, (1, 1, 1)), (first, (-2,)), (second, (-3,))]
    assert [told(engine, worker, "add", *numbers) for worker, numbers in added] == [42, 43, 40, 40]
    pids = {told(engine, worker, "pid") for worker in workers}
    assert len(pids | {os.getpid()}) == 3
    assert len({told(engine, worker, "coins") for worker in (*workers, *workers)}) == 4, "each draws its own"
    assert told(engine, second, "patience") == "nothing came"


def test_words_come_in_order_and_arrays_come_whole(engine: Engine, workers: list[int]) -> None:
    engine.send(workers[0], ("say", 200))
    assert [heard(engine) for _ in range(200)] == [Said(workers[0], value) for value in range(200)]
    for number in range(100):
        engine.send(workers[1], ("add", number))
    totals = [Said(workers[1], 40 + number * (number + 1) // 2) for number in range(100)]
    assert [heard(engine) for _ in range(100)] == totals
    assert told(engine, workers[1], "add", -4950) == 40
    found = told(engine, workers[0], "array", 10**6)
    np.testing.assert_array_equal(found, np.arange(10**6))
    assert told(engine, workers[0], "size", found) == 8 * 10**6


def test_a_killed_worker_is_an_event_and_is_replaced(
    engine: Engine, workers: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
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


def test_a_busy_worker_can_be_replaced_and_says_nothing_more(engine: Engine, workers: list[int]) -> None:
    pid = told(engine, workers[0], "pid")
    assert told(engine, workers[0], "busy") == "busy"
    replaced, workers[0] = workers[0], engine.replace(workers[0])
    assert workers[0] not in (replaced, workers[1])
    assert told(engine, workers[0], "add", 0) == 40
    assert ends(pid)


def test_an_error_in_a_worker_is_told_without_data(engine: Engine, workers: list[int]) -> None:
    engine.send(workers[0], ("raise", 77))
    event = gone(engine, workers, 0)
    assert event.cause == "raised"
    assert "ValueError in roles.py" in event.why
    assert "77" not in event.why


def test_a_word_that_the_head_cannot_read_is_the_last_one(engine: Engine, workers: list[int]) -> None:
    engine.send(workers[0], ("unreadable",))
    event = heard(engine)
    assert event == Gone(workers[0], "what it said cannot be read by its head (ValueError)", "raised")
    workers[0] = engine.replace(workers[0])


def test_a_worker_that_cannot_begin_is_told_as_such(
    engine: Engine, workers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(engine, OnRay):
        pytest.skip("a process is forked from its head's own modules")
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_birth", b"of another version")
        workers[0] = engine.replace(workers[0])
        event = heard(engine)
    assert isinstance(event, Gone)
    assert (event.worker, event.cause) == (workers[0], "raised")
    assert "install the same Colonnade" in event.why
    workers[0] = engine.replace(workers[0])
    assert told(engine, workers[0], "add", 0) == 40


def test_a_worker_that_needs_too_much_memory_is_ended(engine: Engine, workers: list[int]) -> None:
    engine.send(workers[0], ("eat", MEMORY))  # beside what its modules take
    event = heard(engine)
    if isinstance(event, Said):  # it had all of it before anybody looked
        event = heard(engine)
    assert isinstance(event, Gone)
    assert (event.worker, event.cause) == (workers[0], "memory")
    assert "500 MB" in event.why
    workers[0] = engine.replace(workers[0])
    assert told(engine, workers[0], "add", 0) == 40


def test_what_cannot_be_pickled_is_refused_and_the_worker_goes_on(engine: Engine, workers: list[int]) -> None:
    with raises(EngineError, "EN001", "function"):
        engine.send(workers[0], lambda: None)
    assert told(engine, workers[0], "add", 0) == 40
    with raises(EngineError, "EN002|EN008"):
        engine.start(COUNTER)


@pytest.mark.parametrize("kind", [Processes, OnRay])
def test_an_engine_without_workers_can_be_stopped_and_replaces_nobody(kind: type[Engine]) -> None:
    found = kind()
    with raises(EngineError, "EN003|EN009"):
        found.replace(0)
    found.send(0, "nobody is there")
    for role in ("nowhere", ":counter", "tests.study.engine.roles:"):
        with raises(EngineError, "EN025"):
            kind().start(role)
    found.stop()
    found.stop()


def test_keys_and_coins_are_never_sent() -> None:
    identity = Identity.create("bank")
    for secret in (Stream.fresh(), identity, identity.issue_connection_certificate(), {"deep": [Stream.fresh()]}):
        with raises(EngineError, "EN001") as caught:
            pickled(secret, "an argument")
        assert type(secret).__name__ in str(caught.value)
    with raises(EngineError, "EN001"):
        Processes().start(COUNTER, (Stream.fresh(),), 1)
