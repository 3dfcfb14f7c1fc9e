"""Direct links that are slow, or that somebody on the way makes slow, and participants that leave meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from colonnade.wire import Endpoint
from colonnade.wire.packet import Kind, unpack

from .conftest import LinkWorld

SECONDS = 60.0


@pytest.fixture
def world() -> Iterator[LinkWorld]:
    world = LinkWorld()
    yield world
    world.end()


def until(true: Callable[[], object]) -> None:
    """Wait until something is true, without saying how quickly that must be."""
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


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
