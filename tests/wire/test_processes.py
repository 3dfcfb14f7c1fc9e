"""What only other processes show: kills, floods of memory, few descriptors, keys that touch no disk, and imports."""

from __future__ import annotations

import os
import select
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

import numpy as np
import pytest

import colonnade
from colonnade.errors import PeerLost, PeerStopped
from colonnade.wire import Hub, dial
from tests.support.errors import refused
from tests.support.wires import WORDS, closed, in_threads, join, people

pytestmark = pytest.mark.system
MB = 1 << 20
ALL_JOIN = """
import os, re, resource, sys, time
from pathlib import Path
from colonnade.wire import Certificate, Hub, Identity, dial
folder = Path(sys.argv[1])
pins = {path.stem: Certificate.load(path) for path in folder.glob("*.crt")}
"""
"""Programs know the participants by their files."""


@contextmanager
def program(folder: Path, text: str, *words: object, **environment: str) -> Iterator[Any]:
    """A program with the keys of all participants, which ends with the block at the latest."""
    for name in people().pins:
        if not (folder / f"{name}.key").exists():
            people().all[name].save(folder)
    command = [sys.executable, "-c", text, str(folder), *map(str, words)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": os.environ | environment}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


PARTY = (
    ALL_JOIN
    + """
me = dial(sys.argv[2], Identity.load(folder / "shop.key", folder / "shop.crt"), pins)
me.wait_for_peers(["bank"])
me.channel("bank").send("ready")
time.sleep(600)
"""
)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_or_frozen_process_is_noticed(tmp_path: Path, how: signal.Signals) -> None:
    with Hub(people().coordinator, people().pins, heartbeat=1.0) as hub:
        bank, coordinator = (join(hub, name, reconnect_grace=0.5) for name in ("bank", "coordinator"))
        with program(tmp_path, PARTY, hub.address) as shop:
            bank.channel("shop").recv("ready")
            shop.send_signal(how)
            for endpoint, peer in ((bank, "shop"), (coordinator, "bank")):
                refused(PeerLost, ("PE014", "shop", "0.5"), endpoint.channel(peer).recv, "more")
        closed(bank, coordinator)


VICTIM = (
    ALL_JOIN
    + r"""
from colonnade.errors import ProtocolError
import numpy as np
me = dial(sys.argv[2], Identity.load(folder / "bank.key", folder / "bank.crt"), pins)
me.wait_for_peers(["shop"])
peak = lambda: int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])
before = peak()
print("ready", flush=True)
try:
    while sys.argv[3] == "busy":  # waits until the flooding peer takes something, and lets the others send meanwhile
        me.channel("shop").send("block", block=np.zeros(1 << 20, np.uint8))
    me.channel("coordinator").recv("word")
except ProtocolError as error:
    print(error, flush=True)
    me.abort(error.for_peers)
print((peak() - before) // 1024, flush=True)
me.close()
"""
)


def pour(endpoint: Any, peer: str) -> None:
    """Send more megabytes than anybody may keep, without regard to what the peer has taken, as the hub takes them."""
    endpoint._post.wait_for_room = lambda name, size: endpoint._post.check(name)
    block = np.zeros(MB - 4096, np.uint8)
    for _ in range(700):
        endpoint.channel(peer).send("block", block=block)
        while (line := endpoint._carrier._line) is not None and line.backlog > 4:
            time.sleep(0.001)
    endpoint.channel(peer).recv("no more")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no other system tells the peak of one program")
@pytest.mark.parametrize(("state", "most"), [("idle", 200), ("busy", 500)])
def test_a_flooding_peer_is_shut_out(tmp_path: Path, state: str, most: int) -> None:
    """``most`` is by how many megabytes the victim may grow: the limit, what it sends itself, and a wide margin."""
    with Hub(people().coordinator, people().pins) as hub:
        shop, coordinator = join(hub, "shop"), join(hub, "coordinator")
        with program(tmp_path, VICTIM, hub.address, state) as victim:
            shop.wait_for_peers(["bank"])
            assert victim.stdout.readline() == "ready\n"
            refused(PeerStopped, ("MS092", "bank"), pour, shop, "bank")
            said, grown = victim.communicate(timeout=1200)[0].splitlines()
        assert said.startswith("shop sends more than this participant gave it room for (")
        assert int(grown) < most
        closed(shop, coordinator)


# --- strangers at a hub that may have few descriptors


HUB = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[3])))
""" + ALL_JOIN + """
me = Identity.load(folder / "coordinator.key", folder / "coordinator.crt")
with Hub(me, pins, handshake=5.0) as hub:
    print(hub.port, resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)
    with dial(hub.own_address, me, pins) as place:
        place.wait_for_peers(timeout=100)
        for name in ("bank", "shop"):
            place.channel(name).send("go", files=len(os.listdir("/dev/fd")))
            place.channel(name).recv("done")
"""  # fmt: skip
DESCRIPTORS, ELSEWHERE = 256, "127.0.0.2"


def _is_open(end: socket.socket) -> bool:
    try:
        return not select.select([end], [], [], 0)[0] or bool(end.recv(1 << 16))
    except OSError:
        return False


@contextmanager
def strangers(port: int, count: int, words: bytes, home: str) -> Iterator[None]:
    """So many connections are held all the time: there is a new one for each that was closed."""
    held, full, over = list[socket.socket](), threading.Event(), threading.Event()

    def hold() -> None:
        while not over.wait(0.02):
            for end in [end for end in held if not _is_open(end)]:
                held.remove(end)
                end.close()
            with suppress(OSError):
                while len(held) < count:
                    held.append(socket.create_connection(("127.0.0.1", port), timeout=2, source_address=(home, 0)))
                    held[-1].sendall(words)
                full.set()

    thread = threading.Thread(target=hold)
    thread.start()
    assert full.wait(60)
    yield
    over.set()
    thread.join()
    for end in held:
        end.close()


SLOW = ("the beginning of one", "plain HTTP/2", "noise")


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in SLOW)) for kind in WORDS])
def test_parties_join_among_strangers(tmp_path: Path, kind: str) -> None:
    home, count = "127.0.0.1", 300
    if kind == "half a handshake":  # nothing but their address tells these from participants
        try:
            socket.create_server((ELSEWHERE, 0)).close()
        except OSError:
            pytest.skip("this system has one address only")
        home, count = ELSEWHERE, 100  # three descriptors each
    files: list[int] = []

    def play(name: str) -> None:
        with dial(f"127.0.0.1:{port}", people().all[name], people().pins, connect_timeout=100) as place:
            place.wait_for_peers(timeout=100)
            files.append(place.channel("coordinator").recv("go")["files"])
            place.channel("coordinator").send("done")

    with program(tmp_path, HUB, DESCRIPTORS, DESCRIPTORS) as hub:
        port, _ = map(int, hub.stdout.readline().split())
        with strangers(port, count, WORDS[kind], home):
            in_threads(lambda: play("bank"), lambda: play("shop"))
            _, said = hub.communicate(timeout=60)
    assert (hub.returncode, said, len(files)) == (0, "", 2)
    assert max(files) < DESCRIPTORS


def test_the_limit_of_descriptors_is_raised(tmp_path: Path) -> None:
    with program(tmp_path, HUB, 128, 1500) as hub:
        assert hub.stdout.readline().split()[1] == "1500"


# --- a private key leaves no trace on a disk, whatever becomes of the process


AGAIN_AND_AGAIN = """
from colonnade.wire.identity import Identity
from colonnade.wire.tls import TlsSession
bank, shop = Identity.create("bank"), Identity.create("shop").certificate
print("ready", flush=True)
while True:
    TlsSession(bank, shop)
"""
LISTED = """
import sys, os
opened = []
sys.addaudithook(lambda event, args: opened.append((event, args[0])) if event in ("open", "os.open") else None)
from colonnade.wire import Hub, Identity, dial
from colonnade.wire.tls import TlsSession
people = {name: Identity.create(name) for name in ("bank", "coordinator")}
pins = {name: who.certificate for name, who in people.items()}
del opened[:]
with Hub(people["coordinator"], pins) as hub:
    ends = [dial(hub.address, who, pins) for who in people.values()]
    ends[0].wait_for_peers()
    for end in ends:
        end.close()
written = [path for event, path in opened if str(path).startswith(os.environ["TMPDIR"]) or ".pem" in str(path)]
assert not written, written
"""


def test_no_key_is_written_by_a_run_or_by_a_killed_process(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    moments, environment = np.random.default_rng(10), {"TMPDIR": str(empty), "PYTHONDONTWRITEBYTECODE": "1"}
    for _ in range(2):
        with program(tmp_path, AGAIN_AND_AGAIN, **environment) as process:
            assert process.stdout.readline() == "ready\n"
            seen = []
            for _ in range(100):
                seen += list(empty.iterdir())
                time.sleep(moments.uniform(0, 0.002))
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert seen == list(empty.iterdir()) == []
    with program(tmp_path, LISTED, **environment) as process:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said


# --- what it costs to import the pillars: nothing heavy is loaded before it is needed


HEAVY = ("grpc", "cryptography.x509", "flint", "nacl", "torch", "scipy", "pyarrow", "pandas", "pydantic")
PARTS = tuple(f"colonnade.wire.{name}" for name in ("hub", "hub_carrier", "channel", "room", "tls"))
IMPORTED = """
import sys, types
sys.modules["colonnade"] = types.ModuleType("colonnade")
sys.modules["colonnade"].__path__ = [{folder!r}]
{statement}
print(*sorted(set({names!r}) & set(sys.modules)))
"""
"""A program that imports without what the package as a whole imports."""
STATEMENTS = {
    "from colonnade.wire import check_name, Network, Room, Counters": (*HEAVY, "cryptography"),
    "from colonnade.wire import Certificate, Endpoint, Hub, Identity, dial, probe": (*HEAVY, "cryptography"),
    "from colonnade.wire import check_name": (*PARTS, "asyncio", "ssl"),
    "import colonnade.mpc.committee, colonnade.mpc.hand, colonnade.mpc.blinding": HEAVY,
    "import colonnade.mpc.keyvalue, colonnade.mpc.accelerator, colonnade.mpc.fixed.functions": HEAVY,
}


def test_imports_load_nothing_that_is_not_needed(tmp_path: Path) -> None:
    folder = str(Path(colonnade.__file__).parent)
    certificates = "from colonnade.wire import Identity; Identity.create('bank')"  # which loads the library for them
    for statement, names in (*STATEMENTS.items(), (certificates, HEAVY)):
        with program(tmp_path, IMPORTED.format(folder=folder, statement=statement, names=names)) as process:
            out, said = process.communicate(timeout=60)
        expected = "cryptography.x509" if statement == certificates else ""
        assert (out.strip(), process.returncode) == (expected, 0), (statement, said)
