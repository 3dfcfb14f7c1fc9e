"""Workers on Ray: what only a cluster can do, what it must not, and heads that find another one or lose theirs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import EngineError
from colonnade.study.engine.ray_door import check_answers, why_not
from tests.support.errors import check_said, raises
from tests.support.ports import free_port

from .ray_clusters import (
    Line,
    called,
    certified,
    environment,
    own_address,
    plain_environment,
    processes_of,
    serving,
    unguarded,
)
from .test_engines import COUNTER, PATIENCE, ends

pytest.importorskip("ray", reason="Ray is not installed: pip install colonnade[ray]")


def on_cluster(test: Any) -> Any:
    """Starts clusters, and looks for processes in /proc."""
    return pytest.mark.slow(pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")(test))


# One cluster to a process: Ray reads its settings once.
ALONE = f"""
import glob, json, os, sys, time
from colonnade.study.engine.on_ray import OnRay
from colonnade.study.engine.ray_connection import _OWN_TOKEN
engine = OnRay("local")
for worker in engine.start({COUNTER!r}, (), 2):
    engine.send(worker, ("pid",))
pids = [engine.events.get().value for _ in range(2)]
import ray
session = ray._private.worker._global_node.get_session_dir_path()
sys.stdout.write(json.dumps({{"pids": pids, "address": ray.get_runtime_context().gcs_address,
    "folder": os.path.dirname(os.path.dirname(session)), "head": os.getpid(), "token": _OWN_TOKEN}}) + "\\n")
sys.stdout.flush()
if sys.stdin.readline() == "stop\\n":
    engine.stop()
    sys.stdout.write("stopped\\n")
    sys.stdout.flush()
    sys.stdin.readline()
"""

# Knocks first: `ray.init` would try again and again whatever the answer was, and tell another error.
STRANGER = """
import os, sys
os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"] = sys.argv[2:4]
import ray._private.ray_constants as constants
constants.ENABLE_RAY_CLUSTER = False
import ray
from ray._raylet import GcsClient
try:
    GcsClient(address=sys.argv[1])
    ray.init(address=sys.argv[1], log_to_driver=False)
except Exception as error:
    sys.stdout.write(type(error).__name__)
else:
    sys.stdout.write("connected")
"""

SEVERAL = f"""
import json, sys
import ray._private.ray_constants as constants
constants.ENABLE_RAY_CLUSTER = False
from ray.cluster_utils import Cluster
from colonnade.study.engine.contract import Gone, Said
from colonnade.study.engine.on_ray import OnRay
from colonnade.study.engine.ray_nodes import begun
def another():
    node = begun(lambda: cluster.add_node(num_cpus=1, wait=False), {PATIENCE})
    cluster.wait_for_nodes({PATIENCE})
    return node
first = {{"num_cpus": 1, "include_dashboard": False}}
cluster = begun(lambda: Cluster(initialize_head=True, head_node_args=first), {PATIENCE})
others = [another() for _ in range(2)]
engine = OnRay(cluster.address, patience={PATIENCE})
workers = engine.start({COUNTER!r}, (7,))
for worker in workers:
    engine.send(worker, ("add", worker))
totals = sorted((event.worker, event.value) for event in (engine.events.get(timeout={PATIENCE}) for _ in workers))
import ray
cluster.remove_node(others[0], allow_graceful=False)
gone = engine.events.get(timeout={PATIENCE})
engine._patience = 20  # there is no room, however long it waits
crowded = engine.replace(gone.worker)
unplaced = engine.events.get(timeout={PATIENCE})
engine._patience = {PATIENCE}
others.append(another())
placed = engine.replace(unplaced.worker)
engine.send(placed, ("add", 0))
again = engine.events.get(timeout={PATIENCE})
engine.stop()
cluster.shutdown()
sys.stdout.write(json.dumps({{"totals": totals, "gone": [gone.cause, gone.worker in workers],
    "unplaced": [unplaced.why, unplaced.worker == crowded], "again": [again.value, again.worker == placed]}}))
"""


def listening(pids: list[int]) -> set[str]:
    """The addresses on which processes listen, as the kernel writes them."""
    sockets = {socket for pid in pids for socket in _descriptors(pid)}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                found.add(words[1].partition(":")[0])
    return found


def _descriptors(pid: int) -> list[str]:
    """What a process has open; it may close things, or end, while we look."""
    found = []
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def came_in(address: str, mode: str, token: str) -> str:
    """What becomes of somebody with this token at a cluster."""
    asked = [sys.executable, "-c", STRANGER, address, mode, token]
    found = subprocess.run(asked, env=plain_environment(), capture_output=True, text=True, timeout=PATIENCE)
    return found.stdout


@on_cluster
@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_a_cluster_of_our_own_is_reached_by_nobody_else_and_ends_with_us(way: str) -> None:
    head = subprocess.Popen(
        [sys.executable, "-c", ALONE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert head.stdin is not None
    assert head.stdout is not None
    try:
        with head.stdin, head.stdout:
            told = json.loads(head.stdout.readline())
            cluster = sorted({*processes_of(told["folder"]), *told["pids"], told["head"]})
            assert len(cluster) > 4
            assert os.stat(told["folder"]).st_mode & 0o77 == 0, "its sockets and logs are for nobody else"
            # 127.0.0.1, alone and as an IPv6 address.
            assert listening(cluster) <= {"0100007F", "0000000000000000FFFF00000100007F"}
            assert came_in(told["address"], "token", told["token"]) == "connected"
            if way == "stopped":
                assert came_in(told["address"], "token", "0" * 64) == "AuthenticationError"
                assert came_in(told["address"], "disabled", "") == "AuthenticationError"
            if way == "stopped":
                head.stdin.write("stop\n")
                head.stdin.flush()
                assert head.stdout.readline() == "stopped\n"
                assert not os.path.exists(told["folder"])
            else:
                head.kill()
            assert all(ends(pid) for pid in cluster if pid != told["head"] or way == "killed")
    finally:
        head.kill()
        head.wait(PATIENCE)
    shutil.rmtree(told["folder"], ignore_errors=True)


@contextmanager
def beginning() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A head that starts its own cluster, at the moment when there is a raylet, and that."""
    head = subprocess.Popen(
        [sys.executable, "-c", ALONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    end = threading.Timer(2 * PATIENCE, head.kill)
    end.start()
    try:
        while (raylet := _raylet_of(head.pid)) is None:
            assert head.poll() is None
            time.sleep(0.005)
        yield head, raylet
    finally:
        end.cancel()
        head.kill()
        head.wait(PATIENCE)


def stopped(head: subprocess.Popen[str]) -> dict[str, Any]:
    """What a head said of its cluster, after it was told to stop and did."""
    said, _ = head.communicate("stop\n", timeout=PATIENCE)
    first, last = said.splitlines()
    assert last == "stopped"
    told: dict[str, Any] = json.loads(first)
    return told


@on_cluster
def test_a_cluster_of_our_own_may_begin_slowly() -> None:
    """Its raylet stands still for longer than Ray waits for it."""
    with beginning() as (head, raylet):
        os.kill(raylet, signal.SIGSTOP)
        time.sleep(35)
        os.kill(raylet, signal.SIGCONT)
        assert len(stopped(head)["pids"]) == 2


@on_cluster
def test_a_cluster_of_our_own_whose_raylet_ends_is_begun_again() -> None:
    with beginning() as (head, raylet):
        os.kill(raylet, signal.SIGKILL)
        told = stopped(head)
        assert len(told["pids"]) == 2
        assert not processes_of(told["folder"]), "nothing is left of the first try"


def _raylet_of(head: int) -> int | None:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(Path(f"/proc/{name}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            program = Path(f"/proc/{name}/cmdline").read_bytes().partition(b"\0")[0]
        except OSError:
            continue
        if parent == head and program.endswith(b"/raylet"):
            return int(name)
    return None


@on_cluster
def test_a_cluster_of_several_nodes_that_loses_one_and_gets_another(folder: Path) -> None:
    own = environment() | {"RAY_TMPDIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", SEVERAL], env=own, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["totals"] == [[0, 7], [1, 8], [2, 9]], "as many workers as cores"
    assert told["gone"] == ["lost", True]
    assert told["unplaced"] == ["the cluster had no room for it within 20 seconds", True]
    assert told["again"] == [7, True]


# --- heads that find another cluster than they wanted, none, or lose it

LOSER = f"""
import json, sys
from colonnade.errors import EngineError
from colonnade.study.engine.on_ray import OnRay
def tell(value):
    sys.stdout.write(json.dumps(value) + "\\n")
    sys.stdout.flush()
engine = OnRay(sys.argv[1])
workers = engine.start({COUNTER!r}, (7,), 2)
for worker in workers:
    engine.send(worker, ("pid",))
tell([engine.events.get(timeout={PATIENCE}).value for _ in workers])
if sys.stdin.readline() == "wait\\n":
    tell([(gone.why, gone.cause) for gone in (engine.events.get(timeout={PATIENCE}) for _ in workers)])
    engine.send(workers[0], ("pid",))
    try:
        engine.replace(workers[0])
    except EngineError as error:
        tell(str(error))
engine.stop()
import ray
tell(ray.is_initialized())
"""


@pytest.mark.system
@pytest.mark.parametrize("way", [pytest.param("", marks=pytest.mark.slow), "ray://"])  # Ray waits for 40 seconds
def test_an_address_at_which_nobody_listens_or_not_ray(way: str) -> None:
    with raises(EngineError, "EN021", "127.0.0.1", way):
        check_answers(f"{way}127.0.0.1:{free_port()}", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener, raises(EngineError, "EN023|EN024"):
        check_answers(f"{way}127.0.0.1:{listener.getsockname()[1]}", 0.0)


@pytest.mark.system
def test_other_versions_are_named_and_what_ray_says_of_hosts_and_paths_is_not_passed_on() -> None:
    from ray._private.utils import check_version_info

    with pytest.raises(RuntimeError) as caught:
        check_version_info({"ray_version": "2.0.0", "python_version": "3.9.1"}, "Ray Client")
    check_said(why_not(caught.value), "EN018", "Ray 2.0.0 on Python 3.9.1")
    said = why_not(ValueError("/home/somebody"))
    check_said(said, "EN020", "ValueError")
    assert "somebody" not in said


@on_cluster
def test_a_cluster_of_this_machine_is_found_and_reached_by_its_client_server(folder: Path) -> None:
    settings, port = unguarded(folder), free_port()
    with serving("127.0.0.1", port, settings):
        near = {"RAY_TMPDIR": str(folder), "RAY_AUTH_MODE": "disabled"}
        assert called(near) == [[7, 8], ["127.0.0.1"], [None]]
        assert len(list((folder / "ray").glob("session_2*"))) == 1, "it was found, and no other one was started"
        assert called(near, f"ray://127.0.0.1:{port}") == [[7, 8], ["127.0.0.1"], [None]]


@on_cluster
def test_a_cluster_over_a_network_is_used_with_a_token_and_tls_and_not_otherwise(folder: Path) -> None:
    host = own_address()
    if host is None:
        pytest.skip("this machine has no address but loopback")
    port = free_port()
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "5f" * 32}
    settings = certified(folder, host) | token | {"RAY_TMPDIR": str(folder)}
    with serving(host, port, settings) as head:
        client = f"ray://{host}:{port}"
        assert called(settings, client) == [[7, 8], [host], [host]]  # where workers are reached too
        assert called(settings) == [[7, 8], [host], [host]]
        wrong = settings | {"RAY_AUTH_TOKEN": "0" * 64}
        for address in (client, head):
            start = f"the Ray cluster at {address} cannot be used: the token that it asks for is not ours"
            assert str(called(wrong, address)).startswith(start)
        open_line = {name: value for name, value in settings.items() if name != "RAY_USE_TLS"}
        assert "RAY_USE_TLS=1" in str(called(open_line, client))
        assert "RAY_USE_TLS=1" in str(called(open_line)), "found on this machine, but it is on a network"


@on_cluster
@pytest.mark.parametrize("way", ["wait", "stop"])
def test_a_head_whose_line_to_its_cluster_is_lost_says_so_and_leaves_nothing(folder: Path, way: str) -> None:
    """The line is cut, or it goes dead when the head wants to stop."""
    settings, port = unguarded(folder), free_port()
    with serving("127.0.0.1", port, settings):
        wire = Line(port)
        head = subprocess.Popen(
            [sys.executable, "-c", LOSER, f"ray://{wire.address}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=plain_environment() | settings | {"RAY_CLIENT_RECONNECT_GRACE_PERIOD": "10"},
        )
        try:
            assert head.stdout is not None
            workers = json.loads(head.stdout.readline())
            assert len(set(workers)) == 2
            wire.close() if way == "wait" else wire.go_dead()
            said, complaints = head.communicate(f"{way}\n", timeout=PATIENCE)
        finally:
            head.kill()
            head.wait()
        *lost, connected = map(json.loads, said.splitlines())
        assert not connected, "nor to another cluster"
        if way == "wait":
            why = "the connection to its Ray cluster is lost"
            assert lost == [[[why, "raised"]] * 2, f"no worker can be started: {why}"]
        assert not complaints
        assert head.returncode == 0
        assert all(map(ends, workers)), "the cluster ends them"
        wire.close()
        assert called(settings, f"ray://127.0.0.1:{port}") == [[7, 8], ["127.0.0.1"], [None]], "the cluster goes on"


ABSENT = 'raise ModuleNotFoundError("No module named \'colonnade\'", name="colonnade")\n'
OLD = 'import ray\nray.__version__ = "2.0.0"\n'


@on_cluster
@pytest.mark.parametrize(
    ("module", "text", "said"),
    [
        ("colonnade", ABSENT, "install the same Colonnade and the same Python"),
        ("sitecustomize", OLD, "cannot be used: it has Ray 2.0.0 on Python "),
    ],
    ids=["without colonnade", "another version"],
)
def test_a_cluster_that_has_something_else_than_its_head(folder: Path, module: str, text: str, said: str) -> None:
    settings, port = unguarded(folder), free_port()
    (folder / f"{module}.py").write_text(text)
    with serving("127.0.0.1", port, settings, folder) as head:
        for address in (head, f"ray://127.0.0.1:{port}"):
            assert said in str(called(settings, address))
