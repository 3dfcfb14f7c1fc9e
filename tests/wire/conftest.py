"""One world per transport: the contract suite runs in all of them, as far as it concerns them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from colonnade.wire import Endpoint, Hub, Identity, InMemoryEndpoint, InMemoryNetwork, dial
from colonnade.wire.link_offers import DirectLinkSettings
from colonnade.wire.packets import read_names
from tests.support import wires
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.support.wires import NAMES, SECONDS, Wire


class World:
    """Three participants, a relay that can be watched, and links that can be cut."""

    def __init__(self) -> None:
        self.identities = {name: wires.people().all[name] for name in NAMES}
        self.pins = wires.people().pins
        self.carried: list[tuple[str, str, bytes]] = []
        self.tamper: Callable[[str, str, bytes], bytes] = lambda sender, receiver, packet: packet
        self.endpoints: dict[str, Endpoint] = {}
        self._pool = ThreadPoolExecutor(16)

    def go(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        return self._pool.submit(function, *args)

    def join(self, name: str, *, identity: Identity | None = None, **options: Any) -> Endpoint:
        settings = {"timeout": 100.0, "reconnect_grace": 20.0, **options}
        self.endpoints[name] = self.connect(identity or self.identities[name], **settings)
        return self.endpoints[name]

    def all_join(self, special: Mapping[str, Any] = MappingProxyType({}), **options: Any) -> tuple[Endpoint, ...]:
        """Everybody with these options, and some with special ones."""
        endpoints = tuple(self.join(name, **options | special.get(name, {})) for name in NAMES)
        for waiting in [self.go(partial(endpoint.wait_for_peers, timeout=SECONDS)) for endpoint in endpoints]:
            waiting.result(300)
        return endpoints

    def end(self) -> None:
        for leaving in [self.go(endpoint.close) for endpoint in self.endpoints.values()]:
            leaving.result(300)
        self._pool.shutdown()


class HubWorld(World):
    def __init__(self) -> None:
        super().__init__()
        world = self

        class Watched(Hub):
            def carry(self, message: bytes) -> bytes:
                sender, receiver, start = read_names(message)
                world.carried.append((sender, receiver, message[start:]))
                return message[:start] + world.tamper(sender, receiver, message[start:])

        self.hub = Watched(self.identities["coordinator"], self.pins).start()
        self.wires = {name: Wire(self.hub.port) for name in NAMES}

    def connect(self, identity: Identity, pins: Any = None, **options: Any) -> Endpoint:
        address = f"127.0.0.1:{self.wires[identity.name].port}"
        return dial(address, identity, pins or self.pins, connect_timeout=SECONDS, **options)

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
            name: DirectLinkSettings(f"127.0.0.1:{port}", f"127.0.0.1:{self.cables[name].port}")
            for name, port in ports.items()
        } | {"coordinator": DirectLinkSettings()}
        self.told: list[tuple[str, str, str]] = []

    def connect(self, identity: Identity, **options: Any) -> Endpoint:
        name = identity.name
        settings = {"direct": self.directs[name], "told": lambda peer, way: self.told.append((name, peer, way))}
        return super().connect(identity, **settings | options)

    def linked(self) -> None:
        """Wait until all who have joined have direct links to each other."""
        ends = self.endpoints.values()
        until(lambda: all(end.routes[peer.name].direct for end in ends for peer in ends if peer is not end))

    def end(self) -> None:
        super().end()
        for cable in self.cables.values():
            cable.close()


class RoomWorld(World):
    """Threads without a network, so nothing to watch and nothing to cut; one limit for all."""

    room: InMemoryNetwork | None = None

    def connect(self, identity: Identity, *, reconnect_grace: float, **options: Any) -> InMemoryEndpoint:
        if self.room is None:
            self.room = InMemoryNetwork(NAMES, **options)
        return self.room.place(identity.name)


def lived_in(kind: type[World]) -> Iterator[World]:
    world = kind()
    yield world
    world.end()


@pytest.fixture(params=[HubWorld, LinkWorld, RoomWorld], ids=["hub", "links", "room"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Participants that can talk."""
    yield from lived_in(request.param)


@pytest.fixture
def hub_world() -> Iterator[World]:
    """Participants that can talk with a relay between them."""
    yield from lived_in(HubWorld)


@pytest.fixture
def link_world() -> Iterator[World]:
    """Participants that can talk directly."""
    yield from lived_in(LinkWorld)


@pytest.fixture(scope="session")
def people() -> SimpleNamespace:
    return wires.people()


@pytest.fixture
def hub(people: Any) -> Iterator[Hub]:
    """A hub of one study of three."""
    with Hub(people.coordinator, people.pins) as hub:
        yield hub
