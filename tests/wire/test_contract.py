"""What every transport promises, and what is particular to threads of one process."""

from __future__ import annotations

import math
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pytest

from colonnade.errors import ConnectError, IdentityError, PeerLost, PeerStopped, ProtocolError, StudyError
from colonnade.wire import Endpoint, Identity, InMemoryEndpoint, InMemoryNetwork, SealedChannel, SimulatedNetwork
from colonnade.wire.packets import MAX_PACKET, PacketKind, SignedNotice, pack_packet, unpack_packet
from tests.support.errors import raises, refused
from tests.support.waiting import until
from tests.support.wires import says


def lost(endpoint: Endpoint, peer: str, *said: Any, spare: bool = True) -> None:
    """A peer is lost, whatever is expected of it and however often, and it is spare or not."""
    for _ in range(2):
        with raises(PeerLost, *said, peer) as found:
            endpoint.channel(peer).recv("x")
        assert found.value.spare == (peer if spare else None)
    assert endpoint.lost_peers == ((peer,) if spare else ())


def blocks(channel: SealedChannel) -> None:
    """More than a window of sixteen kilobytes."""
    for _ in range(4):
        channel.send("block", array=np.zeros(1 << 12))


def test_messages_arrive_in_order_and_whole_are_counted_and_are_the_receivers_own(world: Any) -> None:
    bank, coordinator, shop = world.all_join()
    for peer in ("shop", "coordinator"):
        bank.channel(peer).send("a", n=1)
    for place in (shop, coordinator):
        place.channel("bank").recv("a")
        place.channel("bank").send("b", array=np.arange(4))
    for peer in ("shop", "coordinator"):
        bank.channel(peer).recv("b")
    says(bank, shop)
    tallies = [place.counters.tally for place in (bank, shop)]
    assert [(tally.rounds, tally.messages) for tally in tallies] == [(1, 3), (1, 1)], "a round is a wait after words"
    assert [tally.payload for tally in tallies] == [place.counters.total.payload_sent for place in (bank, shop)]
    to_shop, to_bank = bank.channel("shop"), shop.channel("bank")
    for number in range(300):
        to_shop.send("count", number=number, text=f"n{number}")
    assert [to_bank.recv("count") for _ in range(300)] == [{"number": n, "text": f"n{n}"} for n in range(300)]
    for size in (10, 100_000, 3 << 18):  # one that is copied into the frame, one that is not, and many packets
        array, raw = np.arange(size), bytearray(b"before")
        sending = world.go(lambda array=array, raw=raw: to_shop.send("block", array=array, raw=raw))
        if size < 3 << 18:
            sending.result(300)
            array[:], raw[:] = 0, b"after!"
        got = to_bank.recv("block")
        sending.result(300)
        assert np.array_equal(got["array"], np.arange(size))
        assert (got["array"].dtype, got["raw"]) == (array.dtype, b"before")
        refused(ValueError, "read-only", got["array"].__setitem__, 0, 1)
    assert bank.counters.peers["shop"].payload_sent >= array.nbytes
    assert shop.counters.peers["bank"].payload_received == bank.counters.peers["shop"].payload_sent
    assert bank.counters.total.sealed_sent >= bank.counters.total.payload_sent


def test_all_send_in_a_ring_before_anybody_reads(world: Any) -> None:
    """Neither handshakes nor windows, which may differ, need the readers."""
    ring = ("bank", "coordinator", "shop")
    ends = [world.join(name, window=1 << (13 + 2 * place)) for place, name in enumerate(ring)]

    def talk(index: int) -> list[tuple[int, int]]:
        for number in range(4):
            ends[index].channel(ring[(index + 1) % 3]).send("block", number=number, array=np.full(4000, index))
        blocks = [ends[index].channel(ring[index - 1]).recv("block") for _ in range(4)]
        return [(block["number"], int(block["array"][-1])) for block in blocks]

    heard = [future.result(300) for future in [world.go(talk, index) for index in range(3)]]
    assert heard == [[(number, index) for number in range(4)] for index in (2, 0, 1)]


def test_what_is_not_expected_is_refused_in_a_short_and_harmless_sentence(world: Any) -> None:
    bank, coordinator, shop = world.all_join()
    for value in (object(), 1j, np.zeros(2, complex), np.ma.masked_array([1, 2], [True, False]), {1: 2}):
        refused(ProtocolError, "MS099|MS101|MS104|MS117", bank.channel("shop").send, "x", value=value)
    says(bank, shop, value=1)
    refused(ProtocolError, "MS062|MS087", bank.channel, "nobody")
    bank.channel("shop").send("key", key=bytes(1000))
    assert shop.channel("bank").recv("key", 1100) == {"key": bytes(1000)}
    bank.channel("shop").send("key", key=bytes(1000))
    refused(ProtocolError, ("MS055", "bank", "key"), shop.channel("bank").recv, "key", 1000)
    shop.channel("bank").send("shares", x=1)
    refused(ProtocolError, ("MS058", "noise", "shop", "shares"), bank.channel("shop").recv, "noise")
    bank.channel("coordinator").send("\x1b]0;owned\x07\u202e" + "x" * 10_000)
    said = refused(ProtocolError, "MS058", coordinator.channel("bank").recv, "go")
    assert said.isprintable()
    assert len(said) < 120
    with pytest.raises(ValueError, match="secret"), shop:
        raise ValueError("secret 42")
    assert "secret" not in refused(PeerStopped, "PE019", coordinator.channel("shop").recv, "x")


def test_no_memory_is_taken_for_what_is_too_long(hub_world: Any) -> None:
    """The length alone is enough to refuse a message: nothing is set aside for it, and the rest is not waited for."""
    bank, _, shop = hub_world.all_join(window=1 << 20)
    long = bytes(200 << 20)  # is sent without a copy
    sending = hub_world.go(lambda: bank.channel("shop").send("key", key=long))
    shop.channel("bank").open()
    tracemalloc.start()
    try:
        refused(ProtocolError, ("MS055", "bank", "key"), shop.channel("bank").recv, "key", 1000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 << 20, "the 200 MB were not even begun"
    shop.abort("that is enough")
    refused(PeerStopped, (), sending.result, 300)


def test_back_pressure_holds_a_sender_back(world: Any) -> None:
    bank, _, shop = world.all_join(window=1 << 14)
    sent: list[int] = []

    def send() -> None:
        for number in range(300):
            bank.channel("shop").send("count", number=number, pad=bytes(100))
            sent.append(number)

    sending, done = world.go(send), -1
    while done < len(sent) or not sent:
        done = len(sent)
        time.sleep(0.1)
    assert len(sent) < 200
    assert [shop.channel("bank").recv("count")["number"] for _ in range(300)] == list(range(300))
    sending.result(300)


def test_a_cut_link_loses_and_doubles_nothing(hub_world: Any) -> None:
    bank, _, shop = hub_world.all_join()
    count = 60

    def send(channel: SealedChannel) -> None:
        for number in range(count):
            channel.send("block", number=number, array=np.full(20_000, number))

    def receive(channel: SealedChannel) -> list[int]:
        return [channel.recv("block")["number"] for _ in range(count)]

    channels = (bank.channel("shop"), shop.channel("bank"))
    sending = [hub_world.go(send, channel) for channel in channels]
    receiving = [hub_world.go(receive, channel) for channel in channels]
    for breaks, who in enumerate(("bank", "shop", "bank")):
        until(lambda breaks=breaks: shop.counters.peers["bank"].messages_received >= 15 * breaks + 5)
        hub_world.cut(who)
        time.sleep(0.1)
        hub_world.restore(who)
    assert [future.result(300) for future in receiving] == [list(range(count))] * 2
    wait(sending, 60)
    says(bank, shop)
    assert bank.counters.total.cpu_seconds > 0


# --- peers that are lost, and spare ones that are not missed


def test_a_lost_peer_ends_the_study_for_everybody(hub_world: Any) -> None:
    bank, coordinator, shop = hub_world.all_join(reconnect_grace=0.6)
    bank.tolerate(["coordinator"])
    pairs = ((bank, "shop"), (bank, "coordinator"), (coordinator, "bank"), (shop, "bank"))
    waiting = [hub_world.go(end.channel(peer).recv, "x") for end, peer in pairs]
    start = time.monotonic()
    hub_world.cut("shop")
    for future in waiting[:3]:
        with raises(PeerLost, "PE014", "shop", "0.6") as found:
            future.result(300)
        assert found.value.spare is None
    refused(ConnectError, ("CN027|CN046", "0.6"), waiting[3].result, 300)
    assert time.monotonic() - start > 0.5
    refused(PeerLost, (), bank.channel("coordinator").send, "late")
    assert bank.lost_peers == coordinator.lost_peers == ()


def test_a_spare_peer_is_missed_only_by_who_expects_more_from_it_and_told_so_when_it_comes_back(hub_world: Any) -> None:
    bank, coordinator, shop = hub_world.all_join({"shop": {"reconnect_grace": 30.0}}, reconnect_grace=0.4)
    for endpoint in (bank, coordinator):
        endpoint.tolerate(["shop"])
        says(shop, endpoint, "share", n=1)
    waiting = hub_world.go(coordinator.channel("bank").recv, "result")
    hub_world.cut("shop")
    for endpoint in (bank, coordinator):
        lost(endpoint, "shop", "PE014", "0.4")
    bank.channel("shop").send("goes nowhere", array=np.zeros(1 << 15))
    bank.channel("coordinator").send("result", n=3)
    assert waiting.result(300) == {"n": 3}
    hub_world.restore("shop")
    refused(PeerStopped, "PE019", shop.channel("bank").recv, "x")
    shop.abort("it met an error")
    says(bank, coordinator, "still here")


def test_a_spare_peer_that_takes_nothing_holds_nobody_up_and_another_one_is_missed(world: Any) -> None:
    bank, coordinator, shop = world.all_join({"bank": {"timeout": 0.4}}, window=1 << 14)
    bank.tolerate(["shop"])
    shop.channel("bank").send("share", n=1)
    world.go(blocks, bank.channel("shop")).result(300)
    assert bank.lost_peers == ("shop",)
    assert bank.channel("shop").recv("share") == {"n": 1}
    lost(bank, "shop", "PE017", "0.4")
    world.go(blocks, bank.channel("shop")).result(300)  # goes nowhere
    says(bank, coordinator, "result", n=3)
    with raises(PeerLost, "PE017", "coordinator", "0.4") as found:
        world.go(blocks, bank.channel("coordinator")).result(300)
    assert (found.value.spare, bank.lost_peers) == (None, ("shop",))


def test_a_silent_peer_is_lost_and_a_spare_one_ends_the_study_for_nobody_else(world: Any) -> None:
    """The others may not have noticed anything."""
    bank, coordinator, shop = world.all_join({"bank": {"timeout": 0.4}})
    bank.tolerate(["shop"])
    lost(bank, "shop", "PE017", "0.4")
    assert shop.lost_peers == ()

    def come_late() -> None:
        shop.channel("bank").send("late")
        shop.channel("bank").recv("y")

    refused(PeerStopped, "PE012|PE019", come_late)
    shop.abort("it met an error")
    says(bank, coordinator, "still here")
    refused(PeerLost, ("PE017", "coordinator", "0.4"), bank.channel("coordinator").recv, "x")


def test_a_restarted_participant_does_not_slip_in(hub_world: Any) -> None:
    bank, coordinator, shop = hub_world.all_join()
    bank.tolerate(["shop"])
    for number in range(5):  # which the new process knows nothing of
        says(shop, bank, "share", n=number)
        says(shop, coordinator, "share", n=number)
    again = hub_world.connect(hub_world.identities["shop"], timeout=5.0, reconnect_grace=5.0)
    lost(bank, "shop", "PE013")
    refused(PeerStopped, "PE019", again.channel("bank").recv, "x")
    lost(coordinator, "shop", "PE013", spare=False)
    refused(ConnectError, "CN023", shop.channel("bank").recv, "anything")
    again.close()


def test_a_peer_that_never_joins(world: Any) -> None:
    bank = world.join("bank")
    says(world.join("shop"), bank)
    refused(PeerLost, ("PE016", "coordinator", "has", "0.3"), bank.wait_for_peers, timeout=0.3)


def test_abort_reaches_everybody_even_that_of_a_spare_peer(world: Any) -> None:
    bank, coordinator, shop = world.all_join(window=1 << 14)
    shop.tolerate(["bank"])
    for one, other in ((bank, shop), (shop, bank), (shop, coordinator)):
        says(one, other)
    blocked = world.go(blocks, shop.channel("coordinator"))
    waiting = [world.go(shop.channel("bank").recv, "x"), world.go(coordinator.channel("bank").recv, "x")]
    bank.abort("the budget is spent")
    for future in [*waiting, blocked]:
        refused(PeerStopped, "PE019", future.result, 300)
    refused(PeerStopped, "PE019", shop.channel("coordinator").send, "later")
    shop.abort("what came later")
    refused(PeerStopped, "PE019", bank.channel("shop").recv, "x")


def test_goodbye_delivers_what_was_sent_and_is_no_error(world: Any) -> None:
    bank, coordinator, shop = world.all_join(reconnect_grace=0.2)
    coordinator.tolerate(["bank"])
    says(shop, bank)
    for peer in ("coordinator", "shop"):
        bank.channel(peer).send("result", value=7)
    bank.close()
    time.sleep(0.4)  # longer than the grace: the absence of one who said goodbye is not a loss
    assert shop.channel("bank").recv("result") == {"value": 7}
    shop.channel("bank").send("thanks")
    says(shop, coordinator, "still here")
    refused(PeerLost, ("PE011|PE015", "bank"), shop.channel("bank").recv, "more")
    refused(ProtocolError, "MS088|MS121", bank.channel("shop").send, "late")
    assert coordinator.channel("bank").recv("result") == {"value": 7}
    lost(coordinator, "bank", "PE011|PE015")


# --- who is at the other end, and what a relay sees and can change


def test_an_impostor_is_not_let_in_and_peers_with_different_pins_do_not_talk(hub_world: Any) -> None:
    stranger = Identity.create("shop").certificate
    bank = hub_world.join("bank", pins={**hub_world.pins, "shop": stranger})
    shop = hub_world.join("shop")
    ours, theirs = hub_world.go(bank.wait_for_peers, ["shop"]), hub_world.go(shop.wait_for_peers, ["bank"])
    refused(IdentityError, ("ID043", "shop"), ours.result, 300)
    refused(IdentityError, ("ID045", "bank"), theirs.result, 300)
    refused(IdentityError, (), hub_world.join, "bank", identity=Identity.create("bank"))


def test_the_relay_sees_only_sealed_bytes_and_can_repeat_none(hub_world: Any) -> None:
    bank, _, shop = hub_world.all_join()
    marker = b"a marker that nobody else may read"
    bank.channel("shop").send("note", text=marker.decode(), raw=marker, array=np.frombuffer(marker, np.uint8))
    assert shop.channel("bank").recv("note")["raw"] == marker
    carried = b"".join(packet for _, _, packet in hub_world.carried)
    assert len(carried) > 3 * len(marker)
    assert marker not in carried
    assert b"note" not in carried
    (*_, old) = (packet for sender, to, packet in hub_world.carried if (sender, to) == ("bank", "shop"))
    replayed = []

    def replay(sender: str, receiver: str, packet: bytes) -> bytes:
        if (sender, receiver) == ("bank", "shop") and not replayed:
            replayed.append(packet)
            return old
        return packet

    hub_world.tamper = replay
    bank.channel("shop").send("two")
    until(lambda: replayed)
    hub_world.cut("bank")
    hub_world.restore("bank")
    assert shop.channel("bank").recv("two") == {}


@pytest.mark.parametrize(("forged", "said"), [(False, "MS096"), (True, ("MS084", "bank"))], ids=["changed", "stop"])
def test_a_changed_packet_is_noticed_and_a_forged_stop_not_believed(hub_world: Any, forged: bool, said: Any) -> None:
    bank, _, shop = hub_world.all_join()

    def tamper(sender: str, receiver: str, packet: bytes) -> bytes:
        if (sender, receiver, unpack_packet(packet).kind) != ("bank", "shop", PacketKind.DATA):
            return packet
        return bytes((PacketKind.STOP,)) + packet[1:] if forged else packet[:-1] + bytes((packet[-1] ^ 1,))

    hub_world.tamper = tamper
    bank.channel("shop").send("note", text="hello")
    for _ in range(2):
        refused(ProtocolError, said, shop.channel("bank").recv, "note")


@pytest.mark.parametrize("kind", [PacketKind.STOP, PacketKind.BYE])
def test_what_a_peer_said_in_another_run_ends_nothing_in_this_one(hub_world: Any, kind: PacketKind) -> None:
    """A relay tells both runs of the same incarnations, since it is the one that tells them."""
    bank, _, shop = hub_world.all_join(topic=b"this study")
    post = bank._post
    here = (post._incarnation, shop._post._incarnation)
    other = SignedNotice(kind, "bank", "shop", here, b"another study").seal(hub_world.identities["bank"], "no part")
    shop._post.packet("bank", pack_packet(kind, here[0], 0, 0, 0, other))
    assert shop._post.peers["bank"].has_departed is False
    refused(StudyError, ("ST860", "bank"), shop.channel("bank").recv, "note")
    mine = SignedNotice(kind, "bank", "shop", here, b"this study").seal(hub_world.identities["bank"], "no part")
    shop._post.packet("bank", pack_packet(kind, here[0], 0, 0, 0, mine))
    assert shop._post.peers["bank"].has_departed


@pytest.mark.parametrize("spare", [False, True])
def test_a_flood_in_a_peers_name_is_a_loss_and_no_proof_against_it(hub_world: Any, spare: bool) -> None:
    bank, coordinator, shop = hub_world.all_join(window=1 << 10)
    shop.tolerate(["bank"] if spare else [])
    for _ in range(3):
        begun = shop._post._boxes["bank"].inbox.arrived
        block = pack_packet(PacketKind.DATA, bank._post._incarnation, begun, 0, 0, bytes(MAX_PACKET // 2))
        shop._post.packet("bank", block)
    refused(PeerLost, ("MS092", "bank, or the hub in its name"), shop.channel("bank").recv, "note")
    coordinator.channel("shop").send("note", n=1)
    if spare:
        assert (shop.lost_peers, shop.channel("coordinator").recv("note")) == (("bank",), {"n": 1})
    else:
        refused(PeerLost, ("MS092",), shop.channel("coordinator").recv, "note")


# --- threads of one process, and a network that is only imagined


def placed(*names: str, **options: Any) -> tuple[InMemoryEndpoint, ...]:
    """All who are in one room: the bank, the shop and maybe others."""
    room = InMemoryNetwork(["bank", "shop", *names], **options)
    return tuple(room.place(name) for name in room.names)


def test_who_has_a_place_in_a_room() -> None:
    room = InMemoryNetwork(["bank", "shop", "tax"])
    refused(IdentityError, ("ID039", "nobody"), room.place, "nobody")
    refused(IdentityError, (), InMemoryNetwork, ["bank", "no such name"])
    bank = room.place("bank", ["shop"])
    refused(ConnectError, ("CN037", "bank"), room.place, "bank")
    assert bank.peers == ("shop",)
    refused(ProtocolError, ("MS087", "bank", "tax"), bank.channel, "tax")


def test_messages_wait_for_a_peer_that_comes_later_and_stay_when_the_sender_has_left() -> None:
    room = InMemoryNetwork(["bank", "shop", "tax"])
    with room.place("bank") as bank:
        bank.channel("shop").send("early", n=1)
    shop = room.place("shop")
    assert shop.channel("bank").recv("early") == {"n": 1}
    for place in (shop, shop, room.place("tax")):  # whose channel is made after the bank left
        refused(PeerLost, ("PE011", "bank"), place.channel("bank").recv, "more")


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
        assert (lost.value.spare, shop.lost_peers) == ("shop", ())
    bank, shop = placed()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(bank.channel("shop").recv, "x")
        bank.close()
        refused(ProtocolError, ("MS088", "bank"), waiting.result, 300)


# --- a network that is only imagined


def test_a_round_trip_is_a_time_and_a_rate_lets_something_through() -> None:
    for seconds in (-0.1, math.inf, math.nan, True, "fast", None):
        refused(StudyError, "ST610", SimulatedNetwork, seconds)
    for rate in (0, -1.0, math.inf, math.nan, True, "fast"):
        refused(StudyError, "ST611", SimulatedNetwork, 0.1, bytes_per_second=rate)


def test_a_round_trip_takes_at_least_its_time_and_messages_sent_together_travel_together() -> None:
    bank, shop = placed(network=SimulatedNetwork(0.04))
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
    bank, shop, tax = placed("tax", network=SimulatedNetwork(0.0, bytes_per_second=1e6))
    start = time.monotonic()
    for peer in ("shop", "tax"):
        bank.channel(peer).send("block", array=np.zeros(10_000, np.uint8))
    for place, least in ((shop, 0.01), (tax, 0.02)):
        place.channel("bank").recv("block")
        assert time.monotonic() - start >= least


def test_a_stop_does_not_wait_for_what_is_under_way() -> None:
    bank, shop = placed(network=SimulatedNetwork(600.0))
    bank.channel("shop").send("slow")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(shop.channel("bank").recv, "slow")
        bank.abort("enough")
        refused(PeerStopped, "PE019", waiting.result, 300)


# --- trouble


@pytest.mark.parametrize("leaves", [True, False], ids=["left", "gave up"])
@pytest.mark.parametrize("busy", ["waits for room", "receives"])
def test_whoever_waits_when_a_peer_leaves_or_gives_up_does_not_wait_for_the_time_limit(leaves: bool, busy: str) -> None:
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
        if leaves:
            shop.close()
        else:
            shop.tolerate(["bank"])
            shop.lose("bank", PeerLost("bank is gone"))
        if leaves and busy == "waits for room":
            acting.result(60)  # messages to who has left are dropped
        else:
            refused(PeerLost if leaves else PeerStopped, (), acting.result, 60)
