"""Direct links that are slow, or that somebody on the way makes slow, and participants that leave meanwhile."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from colonnade.wire import Endpoint
from colonnade.wire.link import Link
from colonnade.wire.offer import Keys
from colonnade.wire.packet import Kind, unpack

from . import conftest
from .conftest import LinkWorld, Wire, _shut
from .test_links import connected, until

SECONDS = 60.0


@pytest.fixture
def world() -> Iterator[LinkWorld]:
    world = LinkWorld()
    yield world
    world.end()


def linked(*endpoints: Endpoint) -> None:
    until(lambda: all(way.direct for endpoint in endpoints for way in endpoint.ways.values()))


def slow(world: LinkWorld, rate: float) -> None:
    """All links are slow from now on; what goes through the hub is not."""
    for cable in world.cables.values():
        cable.rate = rate


def test_a_goodbye_does_not_overtake_the_last_message(world: LinkWorld) -> None:
    bank, coordinator, shop = world.all_join(reconnect_grace=0.3)
    linked(bank, coordinator, shop)
    slow(world, 6e6)
    last = np.arange(1 << 20)  # 8 MB, in which the shop gives up waiting for acknowledgements
    receiving = world.go(lambda: bank.channel("shop").recv("last")["array"])
    shop.channel("bank").send("last", array=last)
    leaving = world.go(shop.close)
    assert np.array_equal(receiving.result(SECONDS), last)
    leaving.result(SECONDS)
    assert not [packet for *_, packet in world.carried if unpack(packet).kind is Kind.DATA and len(packet) > 1 << 16]


def test_a_goodbye_that_does_not_say_how_much_there_was_is_believed(sealed_world: Any) -> None:
    """As those before us send it."""

    def tamper(sender: str, receiver: str, packet: bytes) -> bytes:
        if unpack(packet).kind is not Kind.BYE:
            return packet
        return packet[:9] + bytes(8) + packet[17:]

    sealed_world.tamper = tamper
    bank, _, shop = sealed_world.all_join()
    shop.channel("bank").send("last")
    sealed_world.go(shop.close).result(SECONDS)
    bank.channel("shop").recv("last")
    until(lambda: bank._post._watch.peers["shop"].departed)


@pytest.mark.parametrize("who", ["shop", "bank"])
def test_who_leaves_while_a_line_to_the_hub_is_down_is_not_missed(world: LinkWorld, who: str) -> None:
    bank, coordinator, shop = world.all_join()
    linked(bank, coordinator, shop)
    world.cut(who)
    until(lambda: not shop.here or "bank" not in shop.here)
    shop.channel("bank").send("last", number=1)
    assert bank.channel("shop").recv("last") == {"number": 1}
    bank.channel("shop").send("thanks")  # with an acknowledgement, so that nothing is left to wait for but the line
    shop.channel("bank").recv("thanks")
    leaving = world.go(shop.close)
    time.sleep(0.1)
    world.restore(who)
    leaving.result(SECONDS)
    until(lambda: all(end._post._watch.peers["shop"].departed for end in (bank, coordinator)))


def test_nobody_waits_for_a_hub_that_has_left(world: LinkWorld) -> None:
    bank, coordinator, shop = world.all_join(reconnect_grace=1000.0)
    linked(bank, coordinator, shop)
    world.go(coordinator.close).result(SECONDS)
    until(lambda: all(end._post._watch.peers["coordinator"].departed for end in (bank, shop)))
    for name in ("bank", "shop"):
        world.cut(name)
    until(lambda: not bank.here and not shop.here)
    for leaving in [world.go(end.close) for end in (bank, shop)]:
        leaving.result(SECONDS)


def test_a_slow_link_is_not_a_silent_one(world: LinkWorld) -> None:
    bank, coordinator, shop = world.all_join(heartbeat=0.5)
    linked(bank, coordinator, shop)
    slow(world, 5e5)  # a packet of a megabyte takes longer than three heartbeats
    block = np.arange(1 << 17)
    receiving = world.go(lambda: bank.channel("shop").recv("block")["array"])
    shop.channel("bank").send("block", array=block)
    assert np.array_equal(receiving.result(SECONDS), block)
    assert (bank.ways["shop"].links, bank.ways["shop"].broken) == (1, 0)
    for cable in world.cables.values():
        cable.rate = None


def test_bytes_without_a_tag_are_no_sign_of_life() -> None:
    keys = Keys(os.urandom(32), os.urandom(32))
    (near, middle), (outward, far) = connected(), connected()
    sending, receiving = Link(near, keys), Link(far, Keys(*reversed(keys)))
    sending.put(b"packet" * 10)
    frame = middle.recv(1000)
    heard: list[bytes] = []
    reading = threading.Thread(target=receiving.read, args=(lambda packet: heard.append(bytes(packet)),))
    before = receiving.heard_at
    reading.start()
    for place in range(len(frame)):
        assert receiving.heard_at == before
        outward.sendall(frame[place : place + 1])
        until(lambda: not unread(far))
    until(lambda: heard == [b"packet" * 10])
    assert receiving.heard_at > before
    sending.end()
    outward.sendall(middle.recv(1000))
    reading.join()
    for end in (sending, receiving, middle, outward):
        end.close()


def unread(end: socket.socket) -> bool:
    """Whether bytes have come that nobody has read."""
    try:
        return bool(end.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return False


class Sieve(Wire):
    """Somebody on the way who lets one frame through, then waits, and tells neither end that the other hung up."""

    pause = 0.0

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        back = threading.Thread(target=self._pass, args=(far, near))
        back.start()
        self._pass(near, far)
        back.join()
        near.close()
        far.close()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while True:
                if not self.pause:
                    data = source.recv(1 << 16)
                else:
                    data = source.recv(4, socket.MSG_WAITALL)
                    data += source.recv(int.from_bytes(data, "little") + 16, socket.MSG_WAITALL)
                    time.sleep(self.pause)
                if data:
                    target.sendall(data)
                elif not self._whole:
                    return
                else:
                    time.sleep(0.01)
        except OSError:
            return
        finally:
            if not self._whole:
                _shut(target)


def test_somebody_on_the_way_who_holds_frames_back_does_not_end_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "Wire", Sieve)
    world = LinkWorld()
    bank, coordinator, shop = world.all_join(timeout=6.0, heartbeat=0.5)
    linked(bank, coordinator, shop)
    for cable in world.cables.values():
        cable.pause = 0.5  # type: ignore[attr-defined]
    bank.channel("shop").send("first")  # after it every read is of one frame
    shop.channel("bank").recv("first")
    for _ in range(60):
        bank._carrier._links["shop"].beat()  # type: ignore[attr-defined]
    bank.channel("shop").send("second")
    assert shop.channel("bank").recv("second") == {}
    assert any(who == "shop" and "waited for in vain" in way for who, _, way in world.told)
    bank.channel("shop").send("third")
    assert shop.channel("bank").recv("third") == {}
    assert bank.ways["shop"].why
    world.end()
