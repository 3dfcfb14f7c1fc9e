"""What is particular to threads of one process, and to a network that is only imagined."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from colonnade.errors import ConnectError, IdentityError, PeerLost, PeerStopped, ProtocolError, StudyError
from colonnade.wire import Network, Room, RoomPlace
from tests.support.errors import refused
from tests.support.waiting import until
from tests.support.wires import says


def placed(*names: str, **options: Any) -> tuple[RoomPlace, ...]:
    """All who are in one room: the bank, the shop and maybe others."""
    room = Room(["bank", "shop", *names], **options)
    return tuple(room.place(name) for name in room.names)


def test_who_has_a_place_in_a_room() -> None:
    room = Room(["bank", "shop", "tax"])
    refused(IdentityError, ("ID039", "nobody"), room.place, "nobody")
    refused(IdentityError, (), Room, ["bank", "no such name"])
    bank = room.place("bank", ["shop"])
    refused(ConnectError, ("CN037", "bank"), room.place, "bank")
    assert bank.peers == ("shop",)
    refused(ProtocolError, ("MS087", "bank", "tax"), bank.channel, "tax")


def test_messages_wait_for_a_peer_that_comes_later_and_stay_when_the_sender_has_left() -> None:
    room = Room(["bank", "shop", "tax"])
    with room.place("bank") as bank:
        bank.channel("shop").send("early", n=1)
    shop = room.place("shop")
    assert shop.channel("bank").recv("early") == {"n": 1}
    for place in (shop, shop, room.place("tax")):  # whose channel is made after the bank left
        refused(PeerLost, ("PE011", "bank"), place.channel("bank").recv, "more")


def test_the_first_reason_to_stop_stays() -> None:
    bank, shop = placed()
    bank.abort("the budget is spent")
    shop.abort("bank stopped the study: the budget is spent")
    for place, peer in ((bank, "shop"), (shop, "bank")):
        refused(PeerStopped, "PE019", place.channel(peer).send, "x")


def test_whoever_waits_for_a_spare_peer_hears_that_it_is_lost_and_closing_ends_a_wait_of_ones_own() -> None:
    bank, shop = placed(window=1 << 10)
    bank.tolerate(["shop"])
    channel = bank.channel("shop")
    with ThreadPoolExecutor(2) as pool:
        sending = pool.submit(lambda: [channel.send("block", array=np.zeros(200)) for _ in range(3)])
        waiting = pool.submit(channel.recv, "x")
        until(lambda: bank.blocked)
        bank.lose("shop", PeerLost("shop is gone"))
        sending.result(300)
        with pytest.raises(PeerLost, match="shop is gone") as lost:
            waiting.result(300)
        assert (lost.value.spare, shop.lost) == ("shop", ())
    bank, shop = placed()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(bank.channel("shop").recv, "x")
        bank.close()
        refused(ProtocolError, ("MS088", "bank"), waiting.result, 300)


# --- a network that is only imagined


def test_a_round_trip_is_a_time_and_a_rate_lets_something_through() -> None:
    for seconds in (-0.1, math.inf, math.nan, True, "fast", None):
        refused(StudyError, "ST610", Network, seconds)
    for rate in (0, -1.0, math.inf, math.nan, True, "fast"):
        refused(StudyError, "ST611", Network, 0.1, bytes_per_second=rate)


def test_a_round_trip_takes_at_least_its_time_and_messages_sent_together_travel_together() -> None:
    bank, shop = placed(network=Network(0.04))
    start = time.monotonic()
    for n in range(3):
        says(bank, shop, "ping", n=n)
        says(shop, bank, "pong", n=n)
    sent = time.monotonic()
    assert sent - start >= 0.12
    for n in range(5000):
        bank.channel("shop").send("count", n=n)
    assert [shop.channel("bank").recv("count")["n"] for _ in range(5000)] == list(range(5000))
    assert 0.02 <= time.monotonic() - sent < 60.0  # one by one it would be at least a hundred seconds


def test_one_uplink_serves_all_peers() -> None:
    bank, shop, tax = placed("tax", network=Network(0.0, bytes_per_second=1e6))
    start = time.monotonic()
    for peer in ("shop", "tax"):
        bank.channel(peer).send("block", array=np.zeros(10_000, np.uint8))
    for place, least in ((shop, 0.01), (tax, 0.02)):
        place.channel("bank").recv("block")
        assert time.monotonic() - start >= least


def test_a_stop_does_not_wait_for_what_is_under_way() -> None:
    bank, shop = placed(network=Network(600.0))
    bank.channel("shop").send("slow")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(shop.channel("bank").recv, "slow")
        bank.abort("enough")
        refused(PeerStopped, "PE019", waiting.result, 300)


# --- trouble


def left(shop: RoomPlace) -> None:
    shop.close()


def stopped(shop: RoomPlace) -> None:
    shop.abort("the budget is spent")


def gave_up(shop: RoomPlace) -> None:
    shop.tolerate(["bank"])
    shop.lose("bank", PeerLost("bank is gone"))


def no_more(kind: Any, said: Any, place: RoomPlace, peer: str, **fields: Any) -> None:
    """Neither can anything be sent to a peer nor anything be received."""
    refused(kind, said, place.channel(peer).send, "late", **fields)
    refused(kind, said, place.channel(peer).recv, "late")


@pytest.mark.parametrize("trouble", [left, stopped, gave_up])
@pytest.mark.parametrize("size", [1, 400])
def test_trouble_is_seen_on_channels_that_had_none(trouble: Any, size: int) -> None:
    """Channels look for trouble only once there is some, and then on every message; what was sent before a stop is not
    read after it."""
    room = Room(["bank", "shop", "tax"], window=1 << 10)
    bank, shop, tax = (room.place(name) for name in room.names)
    array = np.zeros(size)
    for one, other in ((bank, shop), (shop, bank), (bank, tax), (tax, bank)):
        one.channel(other.name).send("early", array=array)
        other.channel(one.name).recv("early")
    shop.channel("bank").send("unread", n=1)
    bank.channel("shop").send("own", n=2)
    trouble(shop)
    waiting = [room.lane(*pair).waiting for pair in (("bank", "shop"), ("shop", "bank"))]
    if trouble is stopped:
        refused(PeerStopped, "PE019", bank.channel("shop").recv, "unread")
        for mine, peer in ((bank, "shop"), (bank, "tax"), (tax, "bank"), (shop, "bank")):
            no_more(PeerStopped, "PE019", mine, peer, array=array)
        return
    if trouble is gave_up:
        no_more(PeerStopped, "PE012", bank, "shop", array=array)
        assert shop.channel("bank").recv("own") == {"n": 2}
        shop.channel("bank").send("late", array=array)
        assert room.lane("shop", "bank").waiting == waiting[1], "it goes nowhere"
    else:
        assert bank.channel("shop").recv("unread") == {"n": 1}
        bank.channel("shop").send("late", array=array)
        assert room.lane("bank", "shop").waiting == waiting[0], "it goes nowhere"
        refused(PeerLost, ("PE011", "shop"), bank.channel("shop").recv, "late")
        no_more(ProtocolError, ("MS088", "shop"), shop, "bank", array=array)
    bank.channel("tax").send("late", array=array)
    assert tax.channel("bank").recv("late")["array"].size == size


@pytest.mark.parametrize("trouble", [left, stopped, gave_up])
@pytest.mark.parametrize("busy", ["waits for room", "receives"])
def test_trouble_ends_every_wait(trouble: Any, busy: str) -> None:
    """Whoever waits when a peer leaves, stops or gives up on it does not wait for the time limit."""
    bank, shop = placed(window=1 << 10, timeout=300.0)
    began = threading.Event()

    def act() -> None:
        began.set()
        for _ in range(2 if busy == "waits for room" else 0):
            bank.channel("shop").send("block", array=np.zeros(200))
        if busy == "receives":
            bank.channel("shop").recv("x")

    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(act)
        until(lambda: bank.blocked or (began.is_set() and busy == "receives"))
        trouble(shop)
        if trouble is left and busy == "waits for room":
            acting.result(60)  # messages to who has left are dropped
        else:
            refused(PeerLost if trouble is left else PeerStopped, (), acting.result, 60)
