"""Workers on Ray: what only a cluster can do, what it must not, and heads that find another one or lose theirs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from colonnade.errors import EngineError
from colonnade.study.engine import ray_cluster
from colonnade.study.engine.ray_cluster import check_answers, why_not
from tests.support.errors import check_said, raises
from tests.support.ports import free_port
from tests.wire.conftest import Wire

from .test_engines import COUNTER, PATIENCE, ends

pytest.importorskip("ray")


def on_cluster(test):
    return pytest.mark.slow(pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")(test))


# One cluster to a process: Ray reads its settings once.
ALONE = f"""
import glob, json, os, sys, time
from colonnade.study.engine.ray_cluster import RayEngine, _OWN_TOKEN
engine = RayEngine("local")
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
from colonnade.study.engine.base import WorkerLoss, WorkerMessage
from colonnade.study.engine.ray_cluster import RayEngine
from colonnade.study.engine.ray_cluster import start_node
def another():
    node = start_node(lambda: cluster.add_node(num_cpus=1, wait=False), {PATIENCE})
    cluster.wait_for_nodes({PATIENCE})
    return node
first = {{"num_cpus": 1, "include_dashboard": False}}
cluster = start_node(lambda: Cluster(initialize_head=True, head_node_args=first), {PATIENCE})
others = [another() for _ in range(2)]
engine = RayEngine(cluster.address, patience={PATIENCE})
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


def listening(pids):
    sockets = {socket for pid in pids for socket in _descriptors(pid)}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                found.add(words[1].partition(":")[0])
    return found


def _descriptors(pid):
    found = []
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def came_in(*words):
    asked = [sys.executable, "-c", STRANGER, *words]
    return subprocess.run(asked, env=environment(**PATIENT), capture_output=True, text=True, timeout=PATIENCE).stdout


@on_cluster
@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_a_cluster_of_our_own_is_reached_by_nobody_else_and_ends_with_us(way):
    head = subprocess.Popen(
        [sys.executable, "-c", ALONE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(**PATIENT),
    )
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


@pytest.mark.system
def test_a_node_whose_raylet_ends_is_begun_again_a_few_times():
    tries: list[int] = []

    def start(good):
        tries.append(len(tries))
        if len(tries) < good:
            raise ray_cluster.RayletError
        return "begun"

    assert ray_cluster.start_node(lambda: start(3)) == "begun"
    tries.clear()
    with pytest.raises(ray_cluster.RayletError):
        ray_cluster.start_node(lambda: start(100))
    assert len(tries) == ray_cluster.TRIES


@on_cluster
def test_a_cluster_of_several_nodes_that_loses_one_and_gets_another(folder):
    own = environment(**PATIENT, RAY_TMPDIR=str(folder))
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
from colonnade.study.engine.ray_cluster import RayEngine as OnRay
def tell(value):
    sys.stdout.write(json.dumps(value) + "\\n")
    sys.stdout.flush()
engine = RayEngine(sys.argv[1])
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
def test_an_address_at_which_nobody_listens_or_not_ray(way):
    with raises(EngineError, "EN021", "127.0.0.1", way):
        check_answers(f"{way}127.0.0.1:{free_port()}", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener, raises(EngineError, "EN023|EN024"):
        check_answers(f"{way}127.0.0.1:{listener.getsockname()[1]}", 0.0)


@pytest.mark.system
def test_other_versions_are_named_and_what_ray_says_of_hosts_and_paths_is_not_passed_on():
    from ray._private.utils import check_version_info

    with pytest.raises(RuntimeError) as caught:
        check_version_info({"ray_version": "2.0.0", "python_version": "3.9.1"}, "Ray Client")
    check_said(why_not(caught.value), "EN018", "Ray 2.0.0 on Python 3.9.1")
    said = why_not(ValueError("/home/somebody"))
    check_said(said, "EN020", "ValueError")
    assert "somebody" not in said


@on_cluster
def test_a_cluster_of_this_machine_is_found_and_reached_by_its_client_server(folder):
    settings, port = UNGUARDED | {"RAY_TMPDIR": str(folder)}, free_port()
    with serving("127.0.0.1", port, settings):
        near = {"RAY_TMPDIR": str(folder), "RAY_AUTH_MODE": "disabled"}
        assert called(near) == [[7, 8], ["127.0.0.1"], [None]]
        assert len(list((folder / "ray").glob("session_2*"))) == 1, "it was found, and no other one was started"
        assert called(near, f"ray://127.0.0.1:{port}") == [[7, 8], ["127.0.0.1"], [None]]


@on_cluster
def test_a_cluster_over_a_network_is_used_with_a_token_and_tls_and_not_otherwise(folder):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect_ex(("192.0.2.1", 9))  # sends nothing
        host = probe.getsockname()[0]
    if host.startswith(("127.", "0.")):
        pytest.skip("this machine has no address but loopback")
    # One certificate, which vouches for itself, is that of every node.
    key, certificate, port = str(folder / "node.key"), str(folder / "node.crt"), free_port()
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=node"]
    words += ["-addext", f"subjectAltName=DNS:localhost,IP:{host},IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run(["openssl", *words], check=True, capture_output=True)
    settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "5f" * 32, "RAY_TMPDIR": str(folder), "RAY_USE_TLS": "1"}
    settings |= {"RAY_TLS_CA_CERT": certificate, "RAY_TLS_SERVER_CERT": certificate, "RAY_TLS_SERVER_KEY": key}
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
def test_a_head_whose_line_to_its_cluster_is_lost_says_so_and_leaves_nothing(folder, way):
    """The line is cut, or it goes dead when the head wants to stop."""
    settings, port = UNGUARDED | {"RAY_TMPDIR": str(folder)}, free_port()
    with serving("127.0.0.1", port, settings):
        wire = Line(port)
        head = subprocess.Popen(
            [sys.executable, "-c", LOSER, f"ray://{wire.address}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**settings) | {"RAY_CLIENT_RECONNECT_GRACE_PERIOD": "10"},
        )
        try:
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
            assert lost == [[[why, "raised"]] * 2, f"no worker can be started: {why} [EN005]"]
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
def test_a_cluster_that_has_something_else_than_its_head(folder, module, text, said):
    settings, port = UNGUARDED | {"RAY_TMPDIR": str(folder)}, free_port()
    (folder / f"{module}.py").write_text(text)
    with serving("127.0.0.1", port, settings, folder) as head:
        for address in (head, f"ray://127.0.0.1:{port}"):
            assert said in str(called(settings, address))


# --- clusters as operators start them, and heads that use them: each in processes of its own, as Ray wants it


# A cluster may start on a busy machine; the second is how long a client server waits for the process of each client.
UNGUARDED = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "disabled"}
PATIENT = {"RAY_gcs_server_port_wait_time_s": f"{PATIENCE:.0f}", "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "110"}
# `ray start`, with more patience; its processes may find other modules than it does.
STARTER = f"""
import os, sys
from colonnade.study.engine.ray_cluster import start_node
from ray.scripts.scripts import main
os.environ["PYTHONPATH"] = sys.argv.pop(1)
first = os.path.join(os.environ["PYTHONPATH"].partition(os.pathsep)[0], "sitecustomize.py")
if os.path.exists(first):
    exec(open(first).read())
start_node(main, {PATIENCE})
"""

CALLER = f"""
import json, sys
from colonnade.errors import EngineError
from colonnade.study.engine.base import WorkerLoss
from colonnade.study.engine.ray_cluster import RayEngine
def heard():
    event = engine.events.get(timeout={PATIENCE})
    if isinstance(event, WorkerLoss):
        raise EngineError(f"{{event.cause}}: {{event.why}}")
    return event.value
engine = RayEngine(*sys.argv[1:])
try:
    workers = engine.start({COUNTER!r}, (7,), 2)
    for worker in workers:
        engine.send(worker, ("add", worker))
    said = sorted(heard() for _ in workers)
    for worker in workers:
        engine.send(worker, ("host",))
    hosts = {{heard() for _ in workers}}
    import ray
    said = [said, [node["NodeManagerAddress"] for node in ray.nodes()], list(hosts)]
except EngineError as error:
    said = str(error)
engine.stop()
sys.stdout.write(json.dumps(said))
"""


def environment(**more):
    """With no settings of Ray, but that it calls nobody, and these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    path = os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])
    # Without the second, processes that a client server starts may die as they begin.
    return kept | {"PYTHONPATH": path, "GRPC_ENABLE_FORK_SUPPORT": "0", "RAY_USAGE_STATS_ENABLED": "0"} | more


def processes_of(folder):
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


@contextmanager
def serving(host, port, settings, modules=None):
    """A cluster as an operator starts it, with a client server; yields the address of its head node.

    ``modules`` is a folder in which its processes look first for modules.
    """
    head = free_port()
    words = ["start", "--head", "--block", f"--node-ip-address={host}", f"--port={head}", "--num-cpus=2"]
    words += [f"--ray-client-server-port={port}", "--include-dashboard=false", "--object-store-memory=100000000"]
    words += ["--min-worker-port=0", "--max-worker-port=0"]  # any, or ours would be among them
    found = environment(**PATIENT, **settings)
    path = found["PYTHONPATH"] if modules is None else os.pathsep.join([str(modules), found["PYTHONPATH"]])
    server = subprocess.Popen(
        [sys.executable, "-c", STARTER, path, *words],
        env=found,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while server.poll() is None:
            with suppress(OSError):
                socket.create_connection((host, port), 1).close()
                break
            time.sleep(0.2)
        assert server.poll() is None, "the cluster has ended"
        yield f"{host}:{head}"
    finally:
        server.terminate()
        server.wait(PATIENCE)


def called(settings, *words):
    """What a head is told by workers on a cluster, and where nodes and workers are; or why it has none."""
    asked = [sys.executable, "-c", CALLER, *words]
    done = subprocess.run(asked, env=environment(**settings), capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


class Line(Wire):
    """A wire to a port of this machine that can also go dead, so that nobody hears of it."""

    def __init__(self, port):
        self._dead, self._over = threading.Event(), threading.Event()
        super().__init__(port)
        self.address = f"127.0.0.1:{self.port}"

    def passes(self, size):
        return not (self._dead.is_set() and self._over.wait())

    def go_dead(self):
        self._dead.set()

    def close(self):
        self._over.set()
        super().close()
