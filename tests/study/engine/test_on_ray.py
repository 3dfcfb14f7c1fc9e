"""Workers on Ray: what only a cluster can do, and what it must not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .test_engines import COUNTER, PATIENCE, ends, is_alive

pytest.importorskip("ray", reason="Ray is not installed: pip install colonnade[ray]")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]
ROOT = Path(__file__).parents[3]

# One cluster to a process: Ray reads its settings once.
ALONE = f"""
import glob, json, os, sys, time
from colonnade.study.engine import on_ray
engine = on_ray.OnRay("local")
for worker in engine.start({COUNTER!r}, (), 2):
    engine.send(worker, ("pid",))
pids = [engine.events.get().value for _ in range(2)]
import ray
session = ray._private.worker._global_node.get_session_dir_path()
sys.stdout.write(json.dumps({{"pids": pids, "address": ray.get_runtime_context().gcs_address,
    "folder": os.path.dirname(session), "head": os.getpid(), "token": on_ray._OWN_TOKEN}}) + "\\n")
sys.stdout.flush()
if sys.stdin.readline() == "stop\\n":
    engine.stop()
    sys.stdout.write("stopped\\n")
    sys.stdout.flush()
    sys.stdin.readline()
"""

STRANGER = """
import os, sys
os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"] = sys.argv[2:4]
import ray._private.ray_constants as constants
constants.ENABLE_RAY_CLUSTER = False
import ray
try:
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
cluster = Cluster(initialize_head=True, head_node_args={{"num_cpus": 1, "include_dashboard": False}})
others = [cluster.add_node(num_cpus=1, wait=True) for _ in range(2)]
engine = OnRay(cluster.address, patience=20)
workers = engine.start({COUNTER!r}, (7,))
for worker in workers:
    engine.send(worker, ("add", worker))
totals = sorted((event.worker, event.value) for event in (engine.events.get(timeout=100) for _ in workers))
import ray
cluster.remove_node(others[0], allow_graceful=False)
gone = engine.events.get(timeout=100)
crowded = engine.replace(gone.worker)
unplaced = engine.events.get(timeout=100)
others.append(cluster.add_node(num_cpus=1, wait=True))
placed = engine.replace(unplaced.worker)
engine.send(placed, ("add", 0))
again = engine.events.get(timeout=100)
engine.stop()
cluster.shutdown()
sys.stdout.write(json.dumps({{"totals": totals, "gone": [gone.cause, gone.worker in workers],
    "unplaced": [unplaced.why, unplaced.worker == crowded], "again": [again.value, again.worker == placed]}}))
"""


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *sys.path])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return kept | {"PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"}


def processes_of(folder: str) -> list[int]:
    """Every process of a cluster: its folder stands in its command line, or in that of the process that started it."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = Path(f"/proc/{name}/cmdline").read_bytes() + Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if folder.encode() in text:
            found.append(int(name))
    return found


def listening(pids: list[int]) -> set[str]:
    """The addresses on which processes listen, as the kernel writes them."""
    sockets = {os.readlink(f"/proc/{pid}/fd/{name}") for pid in pids if is_alive(pid) for name in _descriptors(pid)}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                found.add(words[1].partition(":")[0])
    return found


def _descriptors(pid: int) -> list[str]:
    return [name for name in os.listdir(f"/proc/{pid}/fd") if os.path.islink(f"/proc/{pid}/fd/{name}")]


def came_in(address: str, mode: str, token: str) -> bool:
    """Whether somebody with this token gets into a cluster."""
    asked = [sys.executable, "-c", STRANGER, address, mode, token]
    found = subprocess.run(asked, env=environment(), capture_output=True, text=True, timeout=PATIENCE)
    return found.stdout.endswith("connected")


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
    with head.stdin, head.stdout:
        told = json.loads(head.stdout.readline())
        cluster = sorted({*processes_of(told["folder"]), *told["pids"], told["head"]})
        assert len(cluster) > 4
        # 127.0.0.1, alone and as an IPv6 address.
        assert listening(cluster) <= {"0100007F", "0000000000000000FFFF00000100007F"}
        assert came_in(told["address"], "token", told["token"])
        if way == "stopped":
            assert not came_in(told["address"], "token", "0" * 64)
            assert not came_in(told["address"], "disabled", "")
        if way == "stopped":
            head.stdin.write("stop\n")
            head.stdin.flush()
            assert head.stdout.readline() == "stopped\n"
            assert not os.path.exists(told["folder"])
        else:
            head.kill()
        assert all(ends(pid) for pid in cluster if pid != told["head"] or way == "killed")
    head.wait(PATIENCE)


def test_a_cluster_of_several_nodes_that_loses_one_and_gets_another() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SEVERAL], env=environment(), capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["totals"] == [[0, 7], [1, 8], [2, 9]], "as many workers as cores"
    assert told["gone"] == ["lost", True]
    assert told["unplaced"] == ["the cluster had no room for it within 20 seconds", True]
    assert told["again"] == [7, True]
