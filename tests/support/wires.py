"""What tests of the network share: five participants with their certificates, words between them, and cables to cut."""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import Any

from colonnade.wire import Endpoint, Hub, Identity, dial

SECONDS = 60.0
"""How long a test waits for what should come at once."""
NAMES = ("bank", "coordinator", "shop")


@cache
def people() -> SimpleNamespace:
    """Five identities by name; ``pins`` are the certificates of three, ``everybody`` those of all."""
    found = {name: Identity.create(name) for name in (*NAMES, "clinic", "gym")}
    everybody = {name: identity.certificate for name, identity in found.items()}
    pins = {name: everybody[name] for name in NAMES}
    return SimpleNamespace(**found, all=found, everybody=everybody, pins=pins, hub=everybody["coordinator"])


def join(hub: Hub, name: str, room: str = "", **options: Any) -> Endpoint:
    """One of the five, in a room of a hub, where it may meet any of them; three of them where the room has no name."""
    known, pins = people(), people().everybody if room else people().pins
    settings = {"room": room, "topic": room.encode(), "connect_timeout": SECONDS, **options}
    return dial(hub.address, known.all[name], pins, **settings)


def says(one: Endpoint, other: Endpoint, kind: str = "word", **fields: Any) -> None:
    """One says something to another, who hears it."""
    one.channel(other.name).send(kind, **fields)
    assert other.channel(one.name).recv(kind) == fields


def closed(*endpoints: Endpoint) -> None:
    """All say goodbye at once, since each waits for the others."""
    in_threads(*(endpoint.close for endpoint in endpoints))


def in_threads(*programs: Callable[[], Any]) -> None:
    """Run programs at the same time, until all have ended."""
    threads = [threading.Thread(target=program) for program in programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def connected() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        return near, server.accept()[0]


class Wire:
    """A TCP forwarder that can be cut, as a cable can."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._whole = True
        self.rate: float | None = None
        """Bytes a second, if it is slow."""
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        with self._lock:
            self._whole = False
            for pair in self._pairs:
                shut(*pair)
            self._pairs.clear()

    def restore(self) -> None:
        self._whole = True

    def close(self) -> None:
        self.cut()
        shut(self._listener)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                try:
                    if not self._whole:
                        raise ConnectionError
                    far = socket.create_connection(self._target)
                except OSError:  # it is cut, or nobody listens there any more
                    near.close()
                    continue
                self._pairs.append((near, far))
                thread = threading.Thread(target=self._forward, args=(near, far))
                self._threads.append(thread)
            thread.start()

    def passes(self, size: int) -> bool:
        """Whether it stays whole while so many bytes go through."""
        return True

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        with near, far, selectors.DefaultSelector() as selector, suppress(OSError):
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            try:
                while True:
                    for key, _ in selector.select():
                        data = key.fileobj.recv(1 << 16)
                        if not data or not self.passes(len(data)):
                            return
                        if self.rate is not None:
                            time.sleep(len(data) / self.rate)
                        key.data.sendall(data)
            finally:
                shut(near, far)


def shut(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def hello() -> bytes:
    """The first words of a TLS client that then says no more."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="coordinator").do_handshake()
    return outgoing.read()


WORDS = {
    "nothing": b"",
    "half a handshake": hello(),
    "the beginning of one": hello()[:5],
    "plain HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "noise": b"\x16\x03\x01\x40\x00" + bytes(range(256)) * 64,
}
"""What strangers say first."""
