"""Workers on Ray: what only a cluster can do, and what it must not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from .ray_clusters import environment, plain_environment, processes_of
from .test_engines import COUNTER, PATIENCE, ends

pytest.importorskip("ray", reason="Ray is not installed: pip install colonnade[ray]")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

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


def test_a_cluster_of_our_own_may_begin_slowly() -> None:
    """Its raylet stands still for longer than Ray waits for it."""
    with beginning() as (head, raylet):
        os.kill(raylet, signal.SIGSTOP)
        time.sleep(35)
        os.kill(raylet, signal.SIGCONT)
        assert len(stopped(head)["pids"]) == 2


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


def test_a_cluster_of_several_nodes_that_loses_one_and_gets_another(folder: Path) -> None:
    own = environment() | {"RAY_TMPDIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", SEVERAL], env=own, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["totals"] == [[0, 7], [1, 8], [2, 9]], "as many workers as cores"
    assert told["gone"] == ["lost", True]
    assert told["unplaced"] == ["the cluster had no room for it within 20 seconds", True]
    assert told["again"] == [7, True]
