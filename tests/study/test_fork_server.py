"""Processes that are forked from one that has imported everything are as new as those that are started anew."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys

import pytest

from colonnade.study import fork_server
from colonnade.study.fork_server import ForkedProcess, ForkServer, ProcessRequest, spawn
from colonnade.versions import own_version
from tests.study.engine.test_engines import ends
from tests.support.studies import Trial

PATIENCE = 120.0
pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every process is started anew"),
]

# Preloaded by a server: its processes tell about themselves instead of running a command.
TELLING = """
import json, os, random, resource, secrets, ssl, sys, uuid
import colonnade.cli.preloaded
import numpy as np
from colonnade import cli
from colonnade.randomness import Stream, new_key

def tell():
    drawn = [os.urandom(8).hex(), secrets.token_hex(8), ssl.RAND_bytes(8).hex(), uuid.uuid4().hex, new_key().hex()]
    drawn += [repr(random.random()), repr(np.random.random()), repr(np.random.default_rng().random())]
    drawn += [Stream.fresh().bytes(8).hex()]
    print(json.dumps({
        "drawn": drawn, "words": sys.argv[1:], "folder": os.getcwd(), "leads": os.getsid(0) == os.getpid(),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE), "memory": resource.getrlimit(resource.RLIMIT_AS),
        "threads": len(os.listdir("/proc/self/task")), "open": [int(name) for name in os.listdir("/proc/self/fd")],
        "said": sys.stdin.readline(),
    }))

cli.main = tell
"""


@pytest.fixture
def telling(tmp_path, monkeypatch):
    (tmp_path / "telling_of_itself.py").write_text(TELLING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    server = ForkServer()
    server._server.set_forkserver_preload(["telling_of_itself"])
    server.prepare()
    yield server
    server.close()


def said_by(start, command, **more):
    reading, output = os.pipe()
    stdin, own = os.pipe()
    os.write(own, b"a line for it\n")
    process = start(ProcessRequest(command, stdin, output, **more))
    assert process is not None
    for descriptor in (output, stdin, own):
        os.close(descriptor)
    with open(reading, encoding="utf-8") as file:
        return process.wait(PATIENCE), file.read()


def test_random_generators_are_fresh_and_nothing_of_others_is_open(telling, tmp_path):
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        limits = {resource.RLIMIT_NOFILE: 77, resource.RLIMIT_AS: 5 * 10**9}
        told = [said_by(telling.start, ["word", str(k)], limits=limits, own_session=True) for k in range(3)]
    finally:
        os.chdir(before)
    found = [json.loads(text) for status, text in told if status == 0]
    assert len(found) == 3
    for drawn in zip(*(one["drawn"] for one in found), strict=True):
        assert len(set(drawn)) == 3, "three processes never draw the same"
    for number, one in enumerate(found):
        told = {"words": ["word", str(number)], "folder": str(tmp_path), "leads": True, "files": [77, 77]}
        told |= {"memory": [5 * 10**9] * 2, "threads": 1, "said": "a line for it\n"}
        assert {name: one[name] for name in told} == told
        # The three standard ones, and that of the listing itself.
        assert len(one["open"]) == 4
        assert {0, 1, 2} < set(one["open"])


def test_a_forked_process_says_and_ends_as_a_new_one(forks):
    command = ["privacy", "no-such-file.toml", "--json"]
    assert said_by(forks.start, command) == said_by(spawn, command)
    begun = []

    def start(wanted):
        begun.append(forks.start(wanted))
        return begun[-1]

    for limits in ({}, {resource.RLIMIT_AS: 800_000_000}):
        status, text = said_by(start, ["--version"], limits=limits)
        assert (status, text.splitlines()[0]) == (0, f"colonnade {own_version()}")
    kinds = [isinstance(process, ForkedProcess) for process in begun]
    assert kinds == [True, False], "one with little memory inherits no reservations"


@pytest.fixture
def waiting(tmp_path):
    trial = Trial(tmp_path / "study", 50)
    words = ["coordinator", str(trial.file), "--key", str(trial.folder / "coordinator" / "coordinator.key")]
    with open(os.devnull, "r+b") as nowhere:
        yield ProcessRequest([*words, "--out", str(tmp_path / "out"), "--pipe"], nowhere.fileno(), nowhere.fileno())


def test_signals_reach_it_and_its_end_is_seen(forks, waiting):
    process = forks.start(waiting)
    assert isinstance(process, ForkedProcess)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    assert process.poll() is None
    process.kill()
    assert process.wait(PATIENCE) == process.poll() == -signal.SIGKILL
    process.terminate()  # nobody is there any more, and no other process is hit


def test_a_server_that_died_is_started_again_and_one_of_old_files_forks_nobody(monkeypatch, tmp_path, waiting):
    (tmp_path / "module.py").write_text("old = 1\n")
    monkeypatch.setattr(fork_server, "_PACKAGE", tmp_path)
    server = ForkServer()
    left, first = server.start(waiting), server.pid
    assert said_by(server.start, ["--version"])[0] == 0
    assert server.pid == first
    os.kill(first, signal.SIGKILL)
    assert said_by(server.start, ["--version"])[0] == 0
    second = server.pid
    assert second not in (None, first)
    assert left.poll() is None, "what it has forked goes on"
    left.kill()
    assert left.wait(PATIENCE) == 255, "nobody knows how it ended"
    (tmp_path / "module.py").write_text("newer = 2\n")
    newer = server.start(waiting)
    assert not isinstance(newer, ForkedProcess), "nothing old and nothing mixed is run"
    newer.kill()
    assert newer.wait(PATIENCE) == -signal.SIGKILL
    stuck = server.pid
    os.kill(stuck, signal.SIGSTOP)
    server.close()
    assert server.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(stuck, 0)


def test_it_ends_with_whoever_started_it():
    program = (
        "from colonnade.study.fork_server import ForkServer\nserver = ForkServer()\nserver.prepare()\n"
        "print(server.pid, flush=True)\ninput()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    assert ends(pid)


def test_where_no_process_can_be_forked_one_is_started(monkeypatch):
    monkeypatch.setattr(fork_server, "_can_fork", lambda: False)
    server = ForkServer()
    server.prepare()
    assert said_by(server.start, ["--version"])[0] == 0
    assert server.pid is None
