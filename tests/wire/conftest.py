"""One world per transport: the contract suite runs in all of them, as far as it concerns them."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from colonnade.wire import Certificate, Endpoint, Hub, Identity, Room, RoomPlace, dial
from colonnade.wire.direct import Direct
from colonnade.wire.envelope import names
from tests.support.ports import free_port

from .switchboard import Switchboard

NAMES = ("bank", "coordinator", "shop")


class World:
    """Three participants, a relay that can be watched, and links that can be cut."""

    def __init__(self) -> None:
        self.identities = {name: Identity.create(name) for name in NAMES}
        self.pins = {name: identity.certificate for name, identity in self.identities.items()}
        self.carried: list[tuple[str, str, bytes]] = []
        self.tamper: Callable[[str, str, bytes], bytes] = lambda sender, receiver, packet: packet
        self.endpoints: dict[str, Endpoint] = {}
        self._pool = ThreadPoolExecutor(16)

    def go(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        return self._pool.submit(function, *args)

    def join(self, name: str, *, identity: Identity | None = None, **options: Any) -> Endpoint:
        settings = {"timeout": 100.0, "reconnect_grace": 20.0, **options}
        endpoint = self.connect(identity or self.identities[name], **settings)
        self.endpoints[name] = endpoint
        return endpoint

    def all_join(self, **options: Any) -> tuple[Endpoint, ...]:
        endpoints = tuple(self.join(name, **options) for name in NAMES)
        for waiting in [self.go(endpoint.wait_for_peers) for endpoint in endpoints]:
            waiting.result(300)
        return endpoints

    def leave(self) -> None:
        for leaving in [self.go(endpoint.close) for endpoint in self.endpoints.values()]:
            leaving.result(300)

    def watch(self, sender: str, receiver: str, packet: bytes) -> bytes:
        self.carried.append((sender, receiver, packet))
        return self.tamper(sender, receiver, packet)

    def end(self) -> None:
        self.leave()
        self._pool.shutdown()

    def connect(self, identity: Identity, **options: Any) -> Endpoint:
        raise NotImplementedError

    def cut(self, name: str) -> None:
        raise NotImplementedError

    def restore(self, name: str) -> None:
        raise NotImplementedError


class MemoryWorld(World):
    def __init__(self) -> None:
        super().__init__()
        world = self

        class Watched(Switchboard):
            def carry(self, sender: str, receiver: str, packet: bytes) -> bytes:
                return world.watch(sender, receiver, packet)

        self.board = Watched(self.pins.values())

    def connect(self, identity: Identity, pins: dict[str, Certificate] | None = None, **options: Any) -> Endpoint:
        return self.board.endpoint(identity, participants=pins and pins.values(), **options)

    def cut(self, name: str) -> None:
        self.board.cut(name)

    def restore(self, name: str) -> None:
        self.board.restore(name)


class HubWorld(World):
    def __init__(self) -> None:
        super().__init__()
        world = self

        class Watched(Hub):
            def carry(self, message: bytes) -> bytes:
                sender, receiver, start = names(message)
                return message[:start] + world.watch(sender, receiver, message[start:])

        self.hub = Watched(self.identities["coordinator"], self.pins).start()
        self.wires = {name: Wire(self.hub.port) for name in NAMES}

    def connect(self, identity: Identity, pins: dict[str, Certificate] | None = None, **options: Any) -> Endpoint:
        address = f"127.0.0.1:{self.wires[identity.name].port}"
        return dial(address, identity, pins or self.pins, connect_timeout=60.0, **options)

    def cut(self, name: str) -> None:
        self.wires[name].cut()

    def restore(self, name: str) -> None:
        self.wires[name].restore()

    def end(self) -> None:
        super().end()
        for wire in self.wires.values():
            wire.close()
        self.hub.stop()


class LinkWorld(HubWorld):
    """The bank and the shop listen, each behind a cable of its own, and the coordinator dials them."""

    def __init__(self) -> None:
        super().__init__()
        ports = {"bank": free_port(), "shop": free_port()}
        self.cables = {name: Wire(port) for name, port in ports.items()}
        self.directs = {
            name: Direct(f"127.0.0.1:{port}", f"127.0.0.1:{self.cables[name].port}") for name, port in ports.items()
        } | {"coordinator": Direct()}
        self.told: list[tuple[str, str, str]] = []

    def connect(self, identity: Identity, **options: Any) -> Endpoint:
        name = identity.name
        settings = {"direct": self.directs[name], "told": lambda peer, way: self.told.append((name, peer, way))}
        return super().connect(identity, **settings | options)

    def end(self) -> None:
        super().end()
        for cable in self.cables.values():
            cable.close()


class RoomWorld(World):
    """Threads without a network, so nothing to watch and nothing to cut; one limit for all."""

    room: Room | None = None

    def connect(self, identity: Identity, *, reconnect_grace: float, **options: Any) -> RoomPlace:
        if self.room is None:
            self.room = Room(NAMES, **options)
        return self.room.place(identity.name)


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
                for end in pair:
                    _shut(end)
            self._pairs.clear()

    def restore(self) -> None:
        self._whole = True

    def close(self) -> None:
        self.cut()
        _shut(self._listener)
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
                if not self._whole:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(self._target)
                except OSError:  # nobody listens there any more
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
        with near, far, selectors.DefaultSelector() as selector:
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
            except OSError:
                return
            finally:
                _shut(near)
                _shut(far)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@pytest.fixture(params=[MemoryWorld, HubWorld, LinkWorld, RoomWorld], ids=["memory", "hub", "links", "room"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Participants that can talk."""
    world = request.param()
    yield world
    world.end()


@pytest.fixture(params=[MemoryWorld, HubWorld], ids=["memory", "hub"])
def sealed_world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Participants that can talk with a relay between them."""
    world = request.param()
    yield world
    world.end()
