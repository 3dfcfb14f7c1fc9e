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
