"""Workers on Ray: what only a cluster can do, and what it must not."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port

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
    "folder": os.path.dirname(os.path.dirname(session)), "head": os.getpid(), "token": on_ray._OWN_TOKEN}}) + "\\n")
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


# `ray start`, with more patience
STARTER = f"""
from colonnade.study.engine.ray_nodes import begun
from ray.scripts.scripts import main
begun(main, {PATIENCE})
"""

CALLER = f"""
import json, sys
from colonnade.errors import EngineError
from colonnade.study.engine.on_ray import OnRay
engine = OnRay(*sys.argv[1:])
try:
    workers = engine.start({COUNTER!r}, (7,), 2)
    for worker in workers:
        engine.send(worker, ("add", worker))
    said = sorted(engine.events.get(timeout={PATIENCE}).value for _ in workers)
    for worker in workers:
        engine.send(worker, ("host",))
    hosts = {{engine.events.get(timeout={PATIENCE}).value for _ in workers}}
    import ray
    said = [said, [node["NodeManagerAddress"] for node in ray.nodes()], list(hosts)]
    engine.stop()
except EngineError as error:
    said = str(error)
sys.stdout.write(json.dumps(said))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, as sockets need it."""
    found = Path(tempfile.mkdtemp(prefix="ray-"))
    yield found
    shutil.rmtree(found, ignore_errors=True)


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *sys.path])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    wait = {"RAY_gcs_server_port_wait_time_s": f"{PATIENCE:.0f}"}
    return kept | {"PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"} | wait


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
    try:
        with head.stdin, head.stdout:
            told = json.loads(head.stdout.readline())
            cluster = sorted({*processes_of(told["folder"]), *told["pids"], told["head"]})
            assert len(cluster) > 4
            assert os.stat(told["folder"]).st_mode & 0o77 == 0, "its sockets and logs are for nobody else"
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


@contextmanager
def serving(host: str, port: int, settings: dict[str, str]) -> Iterator[None]:
    """A cluster as an operator starts it, with a client server."""
    words = ["start", "--head", "--block", f"--node-ip-address={host}", f"--port={free_port()}", "--num-cpus=2"]
    words += [f"--ray-client-server-port={port}", "--include-dashboard=false", "--object-store-memory=100000000"]
    words += ["--min-worker-port=0", "--max-worker-port=0"]  # any, or ours would be among them
    server = subprocess.Popen(
        [sys.executable, "-c", STARTER, *words],
        env=environment() | settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            assert server.poll() is None
            try:
                socket.create_connection((host, port), 1).close()
                break
            except OSError:
                time.sleep(0.2)
        yield
    finally:
        server.terminate()
        server.wait(PATIENCE)


def called(settings: dict[str, str], *words: str) -> object:
    """What a head is told by workers on a cluster, and where nodes and workers are; or why it has none."""
    asked = [sys.executable, "-c", CALLER, *words]
    done = subprocess.run(asked, env=environment() | settings, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_a_cluster_of_this_machine_is_found_and_reached_by_its_client_server(folder: Path) -> None:
    settings = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": str(folder)}
    port = free_port()
    with serving("127.0.0.1", port, settings):
        near = {"RAY_TMPDIR": str(folder), "RAY_AUTH_MODE": "disabled"}
        assert called(near) == [[7, 8], ["127.0.0.1"], [None]]
        assert len(list((folder / "ray").glob("session_2*"))) == 1, "it was found, and no other one was started"
        assert called(near, f"ray://127.0.0.1:{port}") == [[7, 8], ["127.0.0.1"], [None]]


def test_a_cluster_over_a_network_is_used_with_a_token_and_tls_and_not_otherwise(folder: Path) -> None:
    host = own_address()
    if host is None:
        pytest.skip("this machine has no address but loopback")
    port = free_port()
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "5f" * 32}
    settings = certified(folder, host) | token | {"RAY_TMPDIR": str(folder)}
    with serving(host, port, settings):
        assert called(settings, f"ray://{host}:{port}") == [[7, 8], [host], [host]]  # where workers are reached too
        assert called(settings) == [[7, 8], [host], [host]]
        wrong = settings | {"RAY_AUTH_TOKEN": "0" * 64}
        assert "cannot be used" in str(called(wrong, f"ray://{host}:{port}"))
        open_line = {name: value for name, value in settings.items() if name != "RAY_USE_TLS"}
        assert "RAY_USE_TLS=1" in str(called(open_line, f"ray://{host}:{port}"))
        assert "RAY_USE_TLS=1" in str(called(open_line)), "found on this machine, but it is on a network"


def certified(folder: Path, host: str) -> dict[str, str]:
    """Settings of TLS, with an authority of our own."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def made(name: str, issuer: str, key: object, signer: object, authority: bool) -> x509.Certificate:
        names = [x509.IPAddress(ipaddress.ip_address(each)) for each in (host, "127.0.0.1")]
        now = datetime.now(UTC)
        started = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())  # type: ignore[attr-defined]
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost"), *names]), critical=False)
        )
        return started.sign(signer, hashes.SHA256())  # type: ignore[arg-type]

    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = made("authority", "authority", authority_key, authority_key, authority=True)
    node = made("node", "authority", key, authority_key, authority=False)
    pem = serialization.Encoding.PEM
    shape, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    contents = {
        "RAY_TLS_CA_CERT": authority.public_bytes(pem),
        "RAY_TLS_SERVER_CERT": node.public_bytes(pem),
        "RAY_TLS_SERVER_KEY": key.private_bytes(pem, shape, plain),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: str(folder / name) for name in contents} | {"RAY_USE_TLS": "1"}


def own_address() -> str | None:
    """An address of this machine in a network, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return None
        found: str = probe.getsockname()[0]
    return None if found.startswith("127.") else found
