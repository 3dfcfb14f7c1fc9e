"""Strangers at the hub's address do not stop a study."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import ConnectError
from colonnade.wire import Hub, Identity, dial, strangers
from colonnade.wire.door import Door, _listeners
from colonnade.wire.strangers import Crowd, Stranger, begins_tls, neighbourhood, places_for_lanes, places_for_strangers
from tests.support.refusals import refused

DESCRIPTORS = 256
NAMES = ("bank", "coordinator", "shop")
V4, V6 = socket.AF_INET, socket.AF_INET6


@pytest.fixture(scope="module")
def identities() -> dict[str, Identity]:
    return {name: Identity.create(name) for name in NAMES}


HUB = """
import os, resource, sys
from pathlib import Path
soft, hard = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
from colonnade.wire import Certificate, Hub, Identity, dial
folder = Path(sys.argv[3])
pins = {path.stem: Certificate.load(path) for path in folder.glob("*.crt")}
me = Identity.load(folder / "coordinator.key", folder / "coordinator.crt")
with Hub(me, pins, handshake=float(sys.argv[4])) as hub:
    print(hub.port, resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)
    with dial(hub.own_address, me, pins) as place:
        place.wait_for_peers(timeout=100)
        for name in ("bank", "shop"):
            place.channel(name).send("go", files=len(os.listdir("/dev/fd")))
            place.channel(name).recv("done")
"""


@contextmanager
def small_hub(
    identities: dict[str, Identity],
    folder: Path,
    soft: int = DESCRIPTORS,
    hard: int = DESCRIPTORS,
    seconds: float = 5.0,
) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """A coordinator that may have few descriptors, its port, and how many descriptors it has."""
    for identity in identities.values():
        identity.save(folder)
    command = [sys.executable, "-c", HUB, str(soft), str(hard), str(folder), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            port, descriptors = map(int, process.stdout.readline().split())
            yield process, port, descriptors
        finally:
            process.kill()


def hello() -> bytes:
    """The first words of a TLS client that then says no more."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="coordinator").do_handshake()
    return outgoing.read()


WORDS = {
    "nothing": b"",
    "half a handshake": hello(),
    "the beginning of one": hello()[:5],
    "plain HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "noise": b"\x16\x03\x01\x40\x00" + bytes(range(256)) * 64,
}


class Strangers:
    """Threads that hold connections, and open a new one for each that was closed."""

    def __init__(self, port: int, count: int, words: bytes, home: str = "127.0.0.1") -> None:
        self._port, self._words, self._home = port, words, home
        self.opened = 0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._hold, args=(count // 2,)) for _ in range(2)]

    def __enter__(self) -> Strangers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _hold(self, count: int) -> None:
        held: list[socket.socket | None] = [None] * count
        while not self._over.wait(0.02):
            held = [end if end is not None and _is_open(end) else self._open() for end in held]
        for end in held:
            if end is not None:
                end.close()

    def _open(self) -> socket.socket | None:
        if self._over.is_set():
            return None
        try:
            end = socket.create_connection(("127.0.0.1", self._port), timeout=2, source_address=(self._home, 0))
            end.sendall(self._words)
        except OSError:
            return None
        end.setblocking(False)
        self.opened += 1
        return end


def _is_open(end: socket.socket) -> bool:
    try:
        if end.recv(1 << 16):
            return True
    except BlockingIOError:
        return True
    except OSError:
        pass
    end.close()
    return False


def take_part(identities: dict[str, Identity], port: int) -> list[int]:
    """Both parties join and talk to the coordinator; how many descriptors it had meanwhile."""
    pins = {name: identity.certificate for name, identity in identities.items()}
    found: list[int] = []

    def play(name: str) -> None:
        with dial(f"127.0.0.1:{port}", identities[name], pins, connect_timeout=100) as place:
            place.wait_for_peers(timeout=100)
            found.append(place.channel("coordinator").recv("go")["files"])
            place.channel("coordinator").send("done")

    playing = [threading.Thread(target=play, args=(name,)) for name in ("bank", "shop")]
    for thread in playing:
        thread.start()
    for thread in playing:
        thread.join(200)
    return found


ELSEWHERE = "127.0.0.2"


def _has(address: str) -> bool:
    try:
        with socket.create_server((address, 0)):
            return True
    except OSError:
        return False


QUICK = ("nothing", "half a handshake")


@pytest.mark.parametrize(
    "words",
    [pytest.param(said, id=kind, marks=() if kind in QUICK else pytest.mark.slow) for kind, said in WORDS.items()],
)
def test_parties_join_among_strangers(identities: dict[str, Identity], tmp_path: Path, words: bytes) -> None:
    home, count = "127.0.0.1", 300
    if words == WORDS["half a handshake"]:  # nothing but their address tells these from participants
        if not _has(ELSEWHERE):
            pytest.skip("this system has one address only")
        home, count = ELSEWHERE, 100  # three descriptors each
    with small_hub(identities, tmp_path) as (process, port, _), Strangers(port, count, words, home) as strangers:
        while strangers.opened < count:
            time.sleep(0.02)
        files = take_part(identities, port)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert said == ""
        assert len(files) == 2
        assert max(files) < DESCRIPTORS


def test_the_limit_of_descriptors_is_raised(identities: dict[str, Identity], tmp_path: Path) -> None:
    with small_hub(identities, tmp_path, 128, 1500) as (_, _, descriptors):
        assert descriptors == 1500


def test_a_connection_that_says_nothing_is_closed(identities: dict[str, Identity]) -> None:
    pins = {name: identity.certificate for name, identity in identities.items()}
    with Hub(identities["coordinator"], pins, handshake=0.3) as hub:
        for words in WORDS.values():
            with socket.create_connection(("127.0.0.1", hub.port), timeout=60) as end:
                end.sendall(words)
                with suppress(ConnectionResetError):
                    while end.recv(1 << 16):
                        pass


def test_a_participant_stays_longer_than_a_handshake_may_last(identities: dict[str, Identity]) -> None:
    pins = {name: identity.certificate for name, identity in identities.items()}
    with Hub(identities["coordinator"], pins, handshake=1.0) as hub:
        bank = dial(hub.address, identities["bank"], pins)
        shop = dial(hub.address, identities["shop"], pins)
        connection = hub._rooms.open[""].connections["bank"]
        time.sleep(2.0)
        bank.channel("shop").send("word")
        assert shop.channel("bank").recv("word") == {}
        assert hub._rooms.open[""].connections["bank"] is connection
        bank.close()
        shop.close()


def test_a_hub_listens_at_all_addresses_of_this_machine(identities: dict[str, Identity]) -> None:
    pins = {name: identity.certificate for name, identity in identities.items()}
    with Hub(identities["coordinator"], pins, "0.0.0.0:0") as hub:
        for address in (f"127.0.0.1:{hub.port}", hub.own_address):
            dial(address, identities["bank"], pins).close()


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1:70000", "CN024"),
        ("127.0.0.1:x", "CN024"),
        ("192.0.2.1:0", "CN015"),
    ],
)
def test_an_address_at_which_nobody_can_listen(identities: dict[str, Identity], address: str, why: str) -> None:
    pins = {name: identity.certificate for name, identity in identities.items()}
    refused(ConnectError, why, Hub(identities["coordinator"], pins, address).start)


@pytest.mark.parametrize("code", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_addresses_that_this_machine_has_not_are_left_out(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Such as ::1, which localhost may have where IPv6 is off; a port in use is an error at any address."""
    create, refused = socket.create_server, {V6: code}

    def create_here(at: tuple[str, int], **how: Any) -> socket.socket:
        if how["family"] in refused:
            raise OSError(refused[how["family"]], "not here")
        return create(at, **how)

    both = [(family, socket.SOCK_STREAM, 6, "", (at, 0)) for family, at in ((V4, "127.0.0.1"), (V6, "::1"))]
    monkeypatch.setattr("colonnade.wire.door.socket.create_server", create_here)
    monkeypatch.setattr("colonnade.wire.door.socket.getaddrinfo", lambda *_, **__: both)
    (found,) = _listeners("localhost", 0)
    assert found.family == V4
    found.close()
    for others in ({V4: code, V6: code}, {V6: errno.EADDRINUSE}):
        refused.update(others)
        with pytest.raises(OSError, match="not here"):
            _listeners("localhost", 0)
        refused.clear()


class Visitor(Stranger):
    dropped = False

    def drop(self) -> None:
        self.dropped = True


def test_the_oldest_of_the_fullest_address_makes_room() -> None:
    crowd = Crowd(4)
    visitors = [Visitor(home) for home in ("a", "b", "b", "c", "c", "d")]
    for visitor in visitors:
        crowd.add(visitor)
    assert [visitor.dropped for visitor in visitors] == [False, True, False, True, False, False]


def test_only_the_whole_greeting_of_a_client_is_passed_on() -> None:
    whole = hello()
    assert begins_tls(whole)
    assert begins_tls(whole + b"more")
    assert {begins_tls(whole[:length]) for length in range(len(whole))} == {None}
    for at in (0, 1, 5):
        for length in (at + 1, len(whole)):
            changed = bytearray(whole[:length])
            changed[at] ^= 0xFF
            assert begins_tls(bytes(changed)) is False
    assert begins_tls(b"\x16\x03\x01\xff\xff\x01") is False


def test_addresses_of_one_customer_are_one() -> None:
    assert neighbourhood("2001:db8:1:2:3::4") == neighbourhood("2001:db8:1:2:ffff::") != neighbourhood("2001:db8::1")
    assert neighbourhood("::ffff:192.0.2.7") == neighbourhood("192.0.2.7") != neighbourhood("192.0.2.8")
    assert neighbourhood("fe80::1%eth0") == "fe80::/64"


def test_there_are_always_places() -> None:
    assert places_for_strangers(3) >= places_for_strangers(10_000) >= 1


@pytest.mark.parametrize(("allowed", "lanes"), [(256, 1), (1024, 31), (4096, 128), (20_000, 128)])
def test_lanes_leave_descriptors_for_others(monkeypatch: pytest.MonkeyPatch, allowed: int, lanes: int) -> None:
    monkeypatch.setattr(strangers, "_descriptors", lambda useful: min(useful, allowed))
    assert places_for_lanes(4, 4, 128) == lanes
    taken = 2 * strangers.EACH * (4 + 4 * lanes + places_for_strangers(4 + 4 * lanes))
    assert taken <= allowed


def test_no_message_of_a_guest_waits_for_the_receipt_of_another() -> None:
    async def look() -> int:
        door = Door(1, 1, handshake=5.0, closing=0.1)
        port = door.listen("127.0.0.1:0")
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        while not (found := [guest.outer for guest in door._open]):
            await asyncio.sleep(0.01)
        option: int = found[0].socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
        door.shut()
        await door.close()
        return option

    assert asyncio.run(asyncio.wait_for(look(), 10))
