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
from colonnade.wire import Network, Room
from tests.support.refusals import refused


def test_whoever_is_not_named_has_no_place() -> None:
    refused(IdentityError, ("ID039", "nobody"), Room(["bank", "shop"]).place, "nobody")


def test_nobody_comes_in_twice() -> None:
    room = Room(["bank", "shop"])
    room.place("bank")
    refused(ConnectError, ("CN037", "bank"), room.place, "bank")


def test_names_are_checked() -> None:
    refused(IdentityError, (), Room, ["bank", "no such name"])


def test_a_place_knows_only_the_peers_it_was_given() -> None:
    room = Room(["bank", "shop", "tax"])
    bank = room.place("bank", ["shop"])
    assert bank.peers == ("shop",)
    refused(ProtocolError, ("MS087", "bank", "tax"), bank.channel, "tax")


def test_messages_wait_for_a_peer_that_comes_later_and_stay_when_the_sender_has_left() -> None:
    room = Room(["bank", "shop"])
    with room.place("bank") as bank:
        bank.channel("shop").send("early", n=1)
    shop = room.place("shop")
    assert shop.channel("bank").recv("early") == {"n": 1}
    for _ in range(2):
        refused(PeerLost, ("PE011", "bank"), shop.channel("bank").recv, "more")


def test_a_channel_made_after_the_peer_left_does_not_wait() -> None:
    room = Room(["bank", "shop"])
    room.place("bank").close()
    refused(PeerLost, ("PE011", "bank"), room.place("shop").channel("bank").recv, "x")


def test_closing_ends_a_wait_of_ones_own() -> None:
    room = Room(["bank", "shop"])
    bank = room.place("bank")
    channel = bank.channel("shop")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(channel.recv, "x")
        bank.close()
        refused(ProtocolError, ("MS088", "bank"), waiting.result, 300)


def test_the_first_reason_to_stop_stays() -> None:
    room = Room(["bank", "shop"])
    bank, shop = room.place("bank"), room.place("shop")
    bank.abort("the budget is spent")
    shop.abort("bank stopped the study: the budget is spent")
    for place in (bank, shop):
        refused(PeerStopped, "PE019", place.channel("shop" if place is bank else "bank").send, "x")


def test_a_peer_that_takes_nothing_ends_a_wait() -> None:
    room = Room(["bank", "shop"], timeout=0.05, window=1 << 10)
    bank = room.place("bank")
    room.place("shop")
    bank.channel("shop").send("block", array=np.zeros(200))
    refused(PeerLost, ("PE017", "shop", "0.05"), bank.channel("shop").send, "block", array=np.zeros(200))


def test_whoever_waits_for_a_spare_peer_hears_that_it_is_lost() -> None:
    room = Room(["bank", "shop"], window=1 << 10)
    bank, shop = room.place("bank"), room.place("shop")
    bank.tolerate(["shop"])
    channel = bank.channel("shop")
    with ThreadPoolExecutor(2) as pool:
        sending = pool.submit(lambda: [channel.send("block", array=np.zeros(200)) for _ in range(3)])
        waiting = pool.submit(channel.recv, "x")
        while not bank.blocked:
            time.sleep(0.001)
        bank.lose("shop", PeerLost("shop is gone"))
        sending.result(300)
        with pytest.raises(PeerLost, match="shop is gone") as lost:
            waiting.result(300)
    assert lost.value.spare == "shop"
    assert shop.lost == ()


def test_a_ring_of_three_who_send_first() -> None:
    names = ["a", "b", "c"]
    room = Room(names, window=1 << 10)
    places = [room.place(name) for name in names]

    def talk(index: int) -> int:
        after, before = names[(index + 1) % 3], names[(index + 2) % 3]
        for _ in range(20):
            places[index].channel(after).send("block", array=np.ones(300))
        return sum(int(places[index].channel(before).recv("block")["array"].sum()) for _ in range(20))

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(talk, range(3))) == [6000] * 3


def _ping_pong(room: Room, times: int) -> float:
    bank, shop = room.place("bank"), room.place("shop")

    def answer() -> None:
        for n in range(times):
            assert shop.channel("bank").recv("ping") == {"n": n}
            shop.channel("bank").send("pong", n=n)

    thread = threading.Thread(target=answer)
    start = time.monotonic()
    thread.start()
    for n in range(times):
        bank.channel("shop").send("ping", n=n)
        assert bank.channel("shop").recv("pong") == {"n": n}
    took = time.monotonic() - start
    thread.join()
    return took


@pytest.mark.parametrize("seconds", [-0.1, math.inf, math.nan, True, "fast", None])
def test_a_round_trip_is_a_time(seconds: Any) -> None:
    refused(StudyError, "ST610", Network, seconds)


@pytest.mark.parametrize("rate", [0, -1.0, math.inf, math.nan, True, "fast"])
def test_a_rate_lets_something_through(rate: Any) -> None:
    refused(StudyError, "ST611", Network, 0.1, bytes_per_second=rate)


def test_a_round_trip_takes_at_least_its_time() -> None:
    assert _ping_pong(Room(["bank", "shop"], Network(0.02)), 3) >= 0.06


def test_messages_sent_together_travel_together() -> None:
    room = Room(["bank", "shop"], Network(0.04))
    bank, shop = room.place("bank"), room.place("shop")
    sent = time.monotonic()
    for n in range(5000):
        bank.channel("shop").send("count", n=n)
    assert [shop.channel("bank").recv("count")["n"] for _ in range(5000)] == list(range(5000))
    assert 0.02 <= time.monotonic() - sent < 60.0  # one by one it would be at least a hundred seconds


def test_one_uplink_serves_all_peers() -> None:
    room = Room(["bank", "shop", "tax"], Network(0.0, bytes_per_second=1e6))
    bank, shop, tax = (room.place(name) for name in room.names)
    start = time.monotonic()
    for peer in ("shop", "tax"):
        bank.channel(peer).send("block", array=np.zeros(10_000, np.uint8))
    shop.channel("bank").recv("block")
    first = time.monotonic() - start
    tax.channel("bank").recv("block")
    assert first >= 0.01
    assert time.monotonic() - start >= 0.02


def test_a_stop_does_not_wait_for_what_is_under_way() -> None:
    room = Room(["bank", "shop"], Network(600.0))
    bank, shop = room.place("bank"), room.place("shop")
    bank.channel("shop").send("slow")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(shop.channel("bank").recv, "slow")
        bank.abort("enough")
        refused(PeerStopped, "PE019", waiting.result, 300)


def left(room: Room) -> None:
    room.places["shop"].close()


def stopped(room: Room) -> None:
    room.places["shop"].abort("the budget is spent")


def gave_up(room: Room) -> None:
    room.places["shop"].tolerate(["bank"])
    room.places["shop"].lose("bank", PeerLost("bank is gone"))


@pytest.mark.parametrize("trouble", [left, stopped, gave_up])
@pytest.mark.parametrize("size", [1, 400])
def test_trouble_is_seen_on_channels_that_had_none(trouble: Any, size: int) -> None:
    """Channels look for trouble only once there is some, and then on every message."""
    room = Room(["bank", "shop", "tax"], window=1 << 10)
    bank, shop, tax = (room.place(name) for name in room.names)
    array = np.zeros(size)
    for one, other in ((bank, shop), (shop, bank), (bank, tax), (tax, bank)):
        one.channel(other.name).send("early", array=array)
        other.channel(one.name).recv("early")
    trouble(room)
    if trouble is stopped:
        for mine, peer in ((bank, "shop"), (bank, "tax"), (tax, "bank"), (shop, "bank")):
            for act in (lambda at: at.send("late", array=array), lambda at: at.recv("late")):
                refused(PeerStopped, "PE019", act, mine.channel(peer))
    elif trouble is gave_up:
        for act in (lambda at: at.send("late", array=array), lambda at: at.recv("late")):
            refused(PeerStopped, "PE012", act, bank.channel("shop"))
        shop.channel("bank").send("late", array=array)
        assert room.lane("shop", "bank").waiting == 0
    else:
        bank.channel("shop").send("late", array=array)
        assert room.lane("bank", "shop").waiting == 0
        refused(PeerLost, ("PE011", "shop"), bank.channel("shop").recv, "late")
        for act in (lambda at: at.send("late", array=array), lambda at: at.recv("late")):
            refused(ProtocolError, ("MS088", "shop"), act, shop.channel("bank"))
    if trouble is not stopped:
        bank.channel("tax").send("late", array=array)
        assert tax.channel("bank").recv("late")["array"].size == size


@pytest.mark.parametrize("trouble", [left, stopped, gave_up])
def test_what_was_sent_before_a_stop_is_not_read_after_it(trouble: Any) -> None:
    room = Room(["bank", "shop"])
    bank, shop = room.place("bank"), room.place("shop")
    shop.channel("bank").send("early", n=1)
    bank.channel("shop").send("own", n=2)
    trouble(room)
    if trouble is left:
        assert bank.channel("shop").recv("early") == {"n": 1}
    else:
        refused(PeerStopped, (), bank.channel("shop").recv, "early")
        if trouble is gave_up:
            assert shop.channel("bank").recv("own") == {"n": 2}


@pytest.mark.parametrize("trouble", [left, stopped, gave_up])
@pytest.mark.parametrize("busy", ["sends", "waits for room", "receives"])
def test_trouble_ends_every_wait(trouble: Any, busy: str) -> None:
    """Whoever waits when a peer leaves, stops or gives up on it does not wait for the time limit."""
    room = Room(["bank", "shop"], window=1 << 10, timeout=300.0)
    bank = room.place("bank")
    room.place("shop")
    channel, block = bank.channel("shop"), np.zeros(200)
    began = threading.Event()

    def act() -> None:
        if busy == "receives":
            began.set()
            channel.recv("x")
        for _ in range(2 if busy == "waits for room" else 10**9):
            channel.send("block", array=block if busy == "waits for room" else np.zeros(0))
            began.set()

    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(act)
        assert began.wait(60)
        while busy == "waits for room" and not bank.blocked:
            time.sleep(0.001)
        trouble(room)
        if trouble is left and busy == "sends":
            bank.close()  # messages to who has left are dropped, as before, and sending goes on
            refused(ProtocolError, "MS088", acting.result, 60)
        elif trouble is left and busy == "waits for room":
            acting.result(60)
        else:
            refused(PeerLost if trouble is left else PeerStopped, (), acting.result, 60)
