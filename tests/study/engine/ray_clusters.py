"""Ray clusters as operators start them, and heads that use them: each in processes of its own, as Ray wants it."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.support.ports import free_port
from tests.wire.conftest import Wire

from .test_engines import COUNTER, PATIENCE

ROOT = Path(__file__).parents[3]

# `ray start`, with more patience; its processes may find other modules than it does.
STARTER = f"""
import os, sys
from colonnade.study.engine.ray_nodes import begun
from ray.scripts.scripts import main
os.environ["PYTHONPATH"] = sys.argv.pop(1)
first = os.path.join(os.environ["PYTHONPATH"].partition(os.pathsep)[0], "sitecustomize.py")
if os.path.exists(first):
    exec(open(first).read())
begun(main, {PATIENCE})
"""

CALLER = f"""
import json, sys
from colonnade.errors import EngineError
from colonnade.study.engine.contract import Gone
from colonnade.study.engine.on_ray import OnRay
def heard():
    event = engine.events.get(timeout={PATIENCE})
    if isinstance(event, Gone):
        raise EngineError(f"{{event.cause}}: {{event.why}}")
    return event.value
engine = OnRay(*sys.argv[1:])
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


def environment() -> dict[str, str]:
    """Of a process that may start a cluster on a busy machine."""
    wait = {"RAY_gcs_server_port_wait_time_s": f"{PATIENCE:.0f}"}
    # How long a client server waits for the process that it starts for each client.
    return plain_environment() | wait | {"RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "110"}


def plain_environment() -> dict[str, str]:
    """With no settings of Ray, but that it calls nobody."""
    path = os.pathsep.join([str(ROOT), *sys.path])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    # Without the second, processes that a client server starts may die as they begin.
    return kept | {"PYTHONPATH": path, "GRPC_ENABLE_FORK_SUPPORT": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def unguarded(folder: Path) -> dict[str, str]:
    """Settings of a cluster on loopback that keeps its files in a folder and asks for no token."""
    return {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": str(folder)}


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


@contextmanager
def serving(host: str, port: int, settings: dict[str, str], modules: Path | None = None) -> Iterator[str]:
    """A cluster as an operator starts it, with a client server; yields the address of its head node.

    ``modules`` is a folder in which its processes look first for modules.
    """
    head = free_port()
    words = ["start", "--head", "--block", f"--node-ip-address={host}", f"--port={head}", "--num-cpus=2"]
    words += [f"--ray-client-server-port={port}", "--include-dashboard=false", "--object-store-memory=100000000"]
    words += ["--min-worker-port=0", "--max-worker-port=0"]  # any, or ours would be among them
    found = environment() | settings
    path = found["PYTHONPATH"] if modules is None else os.pathsep.join([str(modules), found["PYTHONPATH"]])
    server = subprocess.Popen(
        [sys.executable, "-c", STARTER, path, *words],
        env=found,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + PATIENCE
        while True:
            assert server.poll() is None, "the cluster has ended"
            try:
                socket.create_connection((host, port), 1).close()
                break
            except OSError:
                assert time.monotonic() < until, "the cluster has not begun"
                time.sleep(0.2)
        yield f"{host}:{head}"
    finally:
        server.terminate()
        server.wait(PATIENCE)


def called(settings: dict[str, str], *words: str) -> object:
    """What a head is told by workers on a cluster, and where nodes and workers are; or why it has none."""
    asked = [sys.executable, "-c", CALLER, *words]
    done = subprocess.run(
        asked, env=plain_environment() | settings, capture_output=True, text=True, timeout=2 * PATIENCE
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


class Line(Wire):
    """A wire to a port of this machine that can also go dead, so that nobody hears of it."""

    def __init__(self, port: int) -> None:
        self._dead, self._over = threading.Event(), threading.Event()
        super().__init__(port)
        self.address = f"127.0.0.1:{self.port}"

    def passes(self, size: int) -> bool:
        return not (self._dead.is_set() and self._over.wait())

    def go_dead(self) -> None:
        self._dead.set()

    def close(self) -> None:
        self._over.set()
        super().close()


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
