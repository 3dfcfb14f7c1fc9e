"""What every transport promises."""

from __future__ import annotations

import time
import tracemalloc
from concurrent.futures import wait
from typing import Any

import numpy as np
import pytest

from colonnade.errors import ConnectError, IdentityError, PeerLost, PeerStopped, ProtocolError
from colonnade.wire import Channel, Endpoint, Identity
from colonnade.wire.packet import Kind, unpack
from tests.support.errors import raises
from tests.support.refusals import refused


def test_messages_arrive_in_order(world: Any) -> None:
    bank, _, shop = world.all_join()
    for number in range(300):
        bank.channel("shop").send("count", number=number, text=f"n{number}")
    for number in range(300):
        assert shop.channel("bank").recv("count") == {"number": number, "text": f"n{number}"}


def test_the_first_words_need_no_waiting(world: Any) -> None:
    # Everybody sends in a ring before anybody reads: the handshakes must not need the readers.
    ring = ("bank", "coordinator", "shop")
    ends = [world.join(name) for name in ring]

    def talk(index: int) -> Any:
        ends[index].channel(ring[(index + 1) % 3]).send("hello", index=index)
        return ends[index].channel(ring[(index - 1) % 3]).recv("hello")["index"]

    assert [future.result(300) for future in [world.go(talk, index) for index in range(3)]] == [2, 0, 1]


def test_large_arrays(world: Any) -> None:
    bank, _, shop = world.all_join()
    array = np.arange(3 << 20, dtype=np.float64).reshape(3, -1)  # 24 MiB, many packets
    sending = world.go(lambda: bank.channel("shop").send("block", array=array, last=True))
    got = shop.channel("bank").recv("block")
    sending.result(300)
    assert np.array_equal(got["array"], array)
    assert got["array"].dtype == array.dtype
    assert got["last"] is True
    assert bank.counters.peers["shop"].payload_sent >= array.nbytes
    assert shop.counters.total.payload_received == bank.counters.total.payload_sent
    assert bank.counters.total.sealed_sent >= bank.counters.total.payload_sent


def test_what_is_sealed_is_counted(sealed_world: Any) -> None:
    bank, _, shop = sealed_world.all_join()
    bank.channel("shop").send("block", array=np.arange(1 << 16))
    shop.channel("bank").recv("block")
    assert bank.counters.total.sealed_sent > bank.counters.total.payload_sent
    assert bank.counters.total.cpu_seconds > 0


def test_what_was_sent_is_the_receivers_own(world: Any) -> None:
    bank, _, shop = world.all_join()
    for size in (10, 100_000):  # one that is copied into the frame, and one that is not
        array = np.arange(size)
        raw = bytearray(b"before")
        sending = world.go(lambda array=array, raw=raw: bank.channel("shop").send("block", array=array, raw=raw))
        sending.result(300)
        array[:], raw[:] = 0, b"after!"
        got = shop.channel("bank").recv("block")
        assert got["array"].sum() == size * (size - 1) // 2
        assert got["raw"] == b"before"
        with pytest.raises(ValueError, match="read-only"):
            got["array"][0] = 1


def test_what_a_message_cannot_carry_is_refused(world: Any) -> None:
    bank, _, shop = world.all_join()
    for value in (object(), 1j, np.zeros(2, complex), np.ma.masked_array([1, 2], [True, False]), {1: 2}):
        refused(ProtocolError, "MS099|MS101|MS104|MS117", bank.channel("shop").send, "x", value=value)
    bank.channel("shop").send("x", value=1)
    assert shop.channel("bank").recv("x") == {"value": 1}


def test_rounds_are_counted_when_a_wait_begins_after_words(world: Any) -> None:
    bank, coordinator, shop = world.all_join()
    bank.channel("shop").send("a", n=1)
    bank.channel("coordinator").send("a", n=1)
    for place in (shop, coordinator):
        place.channel("bank").recv("a")
        place.channel("bank").send("b", array=np.arange(4))
    for peer in ("shop", "coordinator"):
        bank.channel(peer).recv("b")
    bank.channel("shop").send("c")
    shop.channel("bank").recv("c")
    tallies = [place.counters.tally for place in (bank, shop)]
    assert [(tally.rounds, tally.messages) for tally in tallies] == [(1, 3), (1, 1)]
    assert [tally.payload for tally in tallies] == [place.counters.total.payload_sent for place in (bank, shop)]


def test_wrong_kind(world: Any) -> None:
    bank, _, shop = world.all_join()
    bank.channel("shop").send("shares", x=1)
    refused(ProtocolError, ("MS058", "noise", "bank", "shares"), shop.channel("bank").recv, "noise")


def test_what_is_longer_than_it_may_be_is_refused(world: Any) -> None:
    bank, _, shop = world.all_join()
    bank.channel("shop").send("key", key=bytes(1000))
    assert shop.channel("bank").recv("key", 1100) == {"key": bytes(1000)}
    bank.channel("shop").send("key", key=bytes(1000))
    refused(ProtocolError, ("MS055", "bank", "key"), shop.channel("bank").recv, "key", 1000)


def test_no_memory_is_taken_for_what_is_too_long(sealed_world: Any) -> None:
    """The length alone is enough to refuse a message: nothing is set aside for it, and the rest is not waited for."""
    bank, _, shop = sealed_world.all_join(window=1 << 20)
    long = bytes(200 << 20)  # is sent without a copy
    sending = sealed_world.go(lambda: bank.channel("shop").send("key", key=long))
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


def test_an_error_about_a_message_is_short_and_harmless(world: Any) -> None:
    bank, _, shop = world.all_join()
    bank.channel("shop").send("\x1b]0;owned\x07\u202e" + "x" * 10_000)
    with pytest.raises(ProtocolError) as caught:
        shop.channel("bank").recv("go")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 120


def test_unknown_peer(world: Any) -> None:
    refused(ProtocolError, "MS062|MS087", world.join("bank").channel, "nobody")


def test_both_directions_at_once(world: Any) -> None:
    bank, _, shop = world.all_join()

    def send(channel: Channel) -> None:
        for number in range(40):
            channel.send("block", number=number, array=np.full(50_000, number))

    def receive(channel: Channel) -> list[int]:
        return [int(channel.recv("block")["array"][-1]) for _ in range(40)]

    channels = (bank.channel("shop"), shop.channel("bank"))
    sending = [world.go(send, channel) for channel in channels]
    receiving = [world.go(receive, channel) for channel in channels]
    assert [future.result(300) for future in receiving] == [list(range(40))] * 2
    wait(sending, 20)


def test_back_pressure_holds_a_sender_back(world: Any) -> None:
    bank, _, shop = world.all_join(window=1 << 14)
    sent = []

    def send() -> None:
        for number in range(800):
            bank.channel("shop").send("count", number=number, pad=bytes(100))
            sent.append(number)

    sending = world.go(send)
    while not (done := len(sent)) or time.sleep(0.1) or len(sent) > done:
        pass
    assert len(sent) < 200
    assert [shop.channel("bank").recv("count")["number"] for _ in range(800)] == list(range(800))
    sending.result(300)


def test_windows_may_differ(sealed_world: Any) -> None:
    bank, shop = sealed_world.join("bank", window=1 << 13), sealed_world.join("shop")
    sending = sealed_world.go(lambda: bank.channel("shop").send("block", array=np.arange(8_000)))
    assert shop.channel("bank").recv("block")["array"].sum() == 8_000 * 7_999 // 2
    sending.result(300)


def test_two_who_send_before_they_read_do_not_block_each_other(world: Any) -> None:
    bank, _, shop = world.all_join(window=1 << 16)

    def talk(channel: Channel) -> int:
        for _ in range(4):
            channel.send("block", array=np.ones(40_000))
        return sum(int(channel.recv("block")["array"].sum()) for _ in range(4))

    talks = [world.go(talk, bank.channel("shop")), world.go(talk, shop.channel("bank"))]
    assert [future.result(300) for future in talks] == [160_000, 160_000]


@pytest.mark.parametrize("who", ["bank", "shop"])
def test_a_cut_link_loses_and_doubles_nothing(sealed_world: Any, who: str) -> None:
    bank, _, shop = sealed_world.all_join()

    def send(channel: Channel) -> None:
        for number in range(150):
            channel.send("block", number=number, array=np.full(20_000, number))

    def receive(channel: Channel) -> list[int]:
        return [channel.recv("block")["number"] for _ in range(150)]

    channels = (bank.channel("shop"), shop.channel("bank"))
    sending = [sealed_world.go(send, channel) for channel in channels]
    receiving = [sealed_world.go(receive, channel) for channel in channels]
    for breaks in range(3):
        target = shop.counters.peers["bank"]
        while target.messages_received < 40 * breaks + 10:
            time.sleep(0.002)
        sealed_world.cut(who)
        time.sleep(0.1)
        sealed_world.restore(who)
    assert [future.result(300) for future in receiving] == [list(range(150))] * 2
    wait(sending, 20)
    bank.channel("shop").send("end")
    assert shop.channel("bank").recv("end") == {}


def test_a_lost_peer_ends_the_study_for_everybody(sealed_world: Any) -> None:
    bank, coordinator, shop = sealed_world.all_join(reconnect_grace=0.6)
    waiting = [
        sealed_world.go(bank.channel("shop").recv, "x"),
        sealed_world.go(coordinator.channel("bank").recv, "x"),
        sealed_world.go(shop.channel("bank").recv, "x"),
    ]
    start = time.monotonic()
    sealed_world.cut("shop")
    for future in waiting[:2]:
        refused(PeerLost, ("PE014", "shop", "0.6"), future.result, 300)
    refused(ConnectError, ("CN029|CN046", "0.6"), waiting[2].result, 300)
    assert 0.5 < time.monotonic() - start < 300
    refused(PeerLost, (), bank.channel("coordinator").send, "late")


def test_a_spare_peer_is_missed_only_by_who_expects_more_from_it(sealed_world: Any) -> None:
    bank, coordinator, shop = sealed_world.all_join(reconnect_grace=0.4)
    for endpoint in (bank, coordinator):
        endpoint.tolerate(["shop"])
        shop.channel(endpoint.name).send("share", n=1)
        assert endpoint.channel("shop").recv("share") == {"n": 1}
    waiting = sealed_world.go(coordinator.channel("bank").recv, "result")
    sealed_world.cut("shop")
    for _ in range(2):
        with raises(PeerLost, "PE014", "shop", "0.4") as lost:
            bank.channel("shop").recv("share")
        assert lost.value.spare == "shop"
    assert bank.lost == ("shop",)
    bank.channel("shop").send("goes nowhere", array=np.zeros(1 << 15))
    bank.channel("coordinator").send("result", n=3)
    assert waiting.result(300) == {"n": 3}


def test_what_a_spare_peer_had_sent_before_it_was_lost_is_read(world: Any) -> None:
    bank, _, shop = world.all_join()
    bank.tolerate(["shop"])
    shop.channel("bank").send("share", n=1)
    shop.close()
    assert bank.channel("shop").recv("share") == {"n": 1}
    for _ in range(2):
        with raises(PeerLost, "PE011|PE015", "shop") as lost:
            bank.channel("shop").recv("share")
        assert lost.value.spare == "shop"
    assert bank.lost == ("shop",)


def test_a_silent_spare_peer_counts_as_lost(world: Any) -> None:
    bank, _, shop = world.all_join(timeout=0.4)
    bank.tolerate(["shop"])
    with raises(PeerLost, "PE017", "shop", "0.4") as lost:
        bank.channel("shop").recv("x")
    assert lost.value.spare == "shop"
    assert bank.lost == ("shop",)
    assert shop.lost == ()


def test_a_spare_peer_that_takes_nothing_does_not_hold_up_who_sends_to_it(world: Any) -> None:
    bank, coordinator, shop = world.all_join(timeout=0.4, window=1 << 14)
    bank.tolerate(["shop"])
    shop.channel("bank").send("share", n=1)
    world.go(lambda: [bank.channel("shop").send("block", array=np.zeros(1 << 12)) for _ in range(4)]).result(300)
    assert bank.lost == ("shop",)
    assert bank.channel("shop").recv("share") == {"n": 1}
    for _ in range(2):
        with raises(PeerLost, "PE017", "shop", "0.4") as lost:
            bank.channel("shop").recv("share")
        assert lost.value.spare == "shop"
    bank.channel("coordinator").send("result", n=3)
    assert coordinator.channel("bank").recv("result") == {"n": 3}


def test_what_is_sent_to_a_lost_spare_peer_goes_nowhere(world: Any) -> None:
    bank, _, _ = world.all_join(timeout=0.4, window=1 << 14)
    bank.tolerate(["shop"])
    for _ in range(2):
        refused(PeerLost, ("PE017", "shop", "0.4"), bank.channel("shop").recv, "x")
        world.go(lambda: [bank.channel("shop").send("block", array=np.zeros(1 << 12)) for _ in range(4)]).result(300)
    assert bank.lost == ("shop",)


def test_a_peer_that_is_not_spare_and_takes_nothing_is_missed(world: Any) -> None:
    bank, _, _ = world.all_join(timeout=0.4, window=1 << 14)
    bank.tolerate(["coordinator"])
    sending = world.go(lambda: [bank.channel("shop").send("block", array=np.zeros(1 << 12)) for _ in range(4)])
    with raises(PeerLost, "PE017", "shop", "0.4") as lost:
        sending.result(300)
    assert lost.value.spare is None
    assert bank.lost == ()


def test_who_is_not_spare_is_missed_by_everybody(sealed_world: Any) -> None:
    bank, coordinator, _ = sealed_world.all_join(reconnect_grace=0.4)
    bank.tolerate(["coordinator"])
    sealed_world.cut("shop")
    with raises(PeerLost, "PE014", "shop") as lost:
        bank.channel("coordinator").recv("x")
    assert lost.value.spare is None
    assert bank.lost == coordinator.lost == ()


def test_a_spare_peer_can_stop_the_study(world: Any) -> None:
    bank, _, shop = world.all_join()
    bank.tolerate(["shop"])
    waiting = world.go(bank.channel("coordinator").recv, "x")
    shop.abort("its operator says no")
    refused(PeerStopped, "PE019", waiting.result, 300)


def test_who_was_given_up_for_lost_is_told_so_when_it_comes_back(sealed_world: Any) -> None:
    bank, coordinator = (sealed_world.join(name, reconnect_grace=0.3) for name in ("bank", "coordinator"))
    shop = sealed_world.join("shop", reconnect_grace=15.0)
    for waiting in [sealed_world.go(endpoint.wait_for_peers) for endpoint in (bank, coordinator, shop)]:
        waiting.result(300)
    for endpoint in (bank, coordinator):
        endpoint.tolerate(["shop"])
    sealed_world.cut("shop")
    for endpoint in (bank, coordinator):
        refused(PeerLost, ("PE014", "shop"), endpoint.channel("shop").recv, "x")
    sealed_world.restore("shop")
    refused(PeerStopped, "PE019", shop.channel("bank").recv, "x")
    shop.abort("it met an error")
    bank.channel("coordinator").send("still here")
    assert coordinator.channel("bank").recv("still here") == {}


def test_who_was_given_up_by_one_ends_the_study_for_nobody_else(world: Any) -> None:
    """The others may not have noticed anything."""
    bank, coordinator, shop = world.all_join(timeout=1.0)
    bank.tolerate(["shop"])
    with raises(PeerLost, "PE017", "shop") as lost:
        bank.channel("shop").recv("x")
    assert lost.value.spare == "shop"

    def come_late() -> None:
        shop.channel("bank").send("late")
        shop.channel("bank").recv("y")

    refused(PeerStopped, "PE012|PE019", come_late)
    shop.abort("it met an error")
    bank.channel("coordinator").send("still here")
    assert coordinator.channel("bank").recv("still here") == {}


def test_a_spare_peer_that_was_restarted_is_lost_and_told_so(sealed_world: Any) -> None:
    bank, coordinator, shop = sealed_world.all_join()
    for endpoint in (bank, coordinator):
        endpoint.tolerate(["shop"])
        for number in range(5):  # which the new process knows nothing of
            shop.channel(endpoint.name).send("share", n=number)
            assert endpoint.channel("shop").recv("share") == {"n": number}
    again = sealed_world.connect(sealed_world.identities["shop"], timeout=5.0, reconnect_grace=5.0)
    with raises(PeerLost, "PE013", "shop") as lost:
        bank.channel("shop").recv("x")
    assert lost.value.spare == "shop"
    refused(PeerStopped, "PE019", again.channel("bank").recv, "x")
    bank.channel("coordinator").send("still here")
    assert coordinator.channel("bank").recv("still here") == {}
    again.close()


def test_silence_ends_a_wait(world: Any) -> None:
    bank, _, shop = world.all_join(timeout=0.5)
    refused(PeerLost, ("PE017", "shop", "0.5"), bank.channel("shop").recv, "x")
    assert shop.channel("bank").peer == "bank"


def test_a_peer_that_never_joins(world: Any) -> None:
    bank = world.join("bank")
    world.join("shop")
    refused(PeerLost, ("PE016", "coordinator", "has", "0.3"), bank.wait_for_peers, timeout=0.3)


def test_abort_reaches_everybody_with_its_reason(world: Any) -> None:
    bank, coordinator, shop = world.all_join(window=1 << 14)
    to_coordinator = shop.channel("coordinator")
    blocked = world.go(lambda: [to_coordinator.send("big", array=np.zeros(1 << 16)) for _ in range(2)])
    waiting = [world.go(shop.channel("bank").recv, "x"), world.go(coordinator.channel("bank").recv, "x")]
    bank.abort("the budget is spent")
    for future in [*waiting, blocked]:
        refused(PeerStopped, "PE019", future.result, 300)
    refused(PeerStopped, "PE019", shop.channel("coordinator").send, "later")
    refused(PeerStopped, "PE019", bank.channel("shop").recv, "x")


def test_an_error_inside_the_block_stops_the_study_without_its_text(world: Any) -> None:
    bank, _, shop = world.all_join()
    with pytest.raises(ValueError, match="secret"), bank:
        raise ValueError("secret 42")
    refused(PeerStopped, "PE019", shop.channel("bank").recv, "x")


def test_goodbye_delivers_what_was_sent_and_is_no_error(world: Any) -> None:
    bank, coordinator, shop = world.all_join(reconnect_grace=0.5)
    bank.channel("shop").send("result", value=7)
    bank.close()
    time.sleep(0.8)  # longer than the grace: the absence of one who said goodbye is not a loss
    assert shop.channel("bank").recv("result") == {"value": 7}
    shop.channel("bank").send("thanks")
    shop.channel("coordinator").send("still here")
    assert coordinator.channel("shop").recv("still here") == {}
    refused(PeerLost, ("PE011|PE015", "bank"), shop.channel("bank").recv, "more")
    refused(ProtocolError, "MS088|MS121", bank.channel("shop").send, "late")


def test_an_impostor_is_not_let_in(sealed_world: Any) -> None:
    sealed_world.join("shop")
    refused(IdentityError, (), sealed_world.join, "bank", identity=Identity.create("bank"))


def test_peers_with_different_pins_do_not_talk(sealed_world: Any) -> None:
    stranger = Identity.create("shop").certificate
    bank = sealed_world.join("bank", pins={**sealed_world.pins, "shop": stranger})
    shop = sealed_world.join("shop")

    def names_shop(endpoint: Endpoint) -> None:
        endpoint.wait_for_peers([name for name in ("bank", "shop") if name != endpoint.name])

    ours, theirs = sealed_world.go(names_shop, bank), sealed_world.go(names_shop, shop)
    refused(IdentityError, ("ID043", "shop"), ours.result, 300)
    refused(IdentityError, ("ID045", "bank"), theirs.result, 300)


def test_the_relay_sees_only_sealed_bytes(sealed_world: Any) -> None:
    bank, _, shop = sealed_world.all_join()
    marker = b"a marker that nobody else may read"
    bank.channel("shop").send("note", text=marker.decode(), raw=marker, array=np.frombuffer(marker, np.uint8))
    assert shop.channel("bank").recv("note")["raw"] == marker
    carried = b"".join(packet for _, _, packet in sealed_world.carried)
    assert len(carried) > 3 * len(marker)
    assert marker not in carried
    assert b"note" not in carried


def test_a_changed_packet_is_noticed(sealed_world: Any) -> None:
    bank, _, shop = sealed_world.all_join()

    def flip(sender: str, receiver: str, packet: bytes) -> bytes:
        if sender == "bank" and receiver == "shop" and unpack(packet).kind is Kind.DATA:
            return packet[:-1] + bytes((packet[-1] ^ 1,))
        return packet

    sealed_world.tamper = flip
    bank.channel("shop").send("note", text="hello")
    for _ in range(2):
        refused(ProtocolError, "MS096", shop.channel("bank").recv, "note")


def test_a_replayed_packet_changes_nothing(sealed_world: Any) -> None:
    bank, _, shop = sealed_world.all_join()
    bank.channel("shop").send("one")
    assert shop.channel("bank").recv("one") == {}
    (*_, old) = (packet for sender, to, packet in sealed_world.carried if (sender, to) == ("bank", "shop"))
    replayed = []

    def replay(sender: str, receiver: str, packet: bytes) -> bytes:
        if (sender, receiver) == ("bank", "shop") and not replayed:
            replayed.append(packet)
            return old
        return packet

    sealed_world.tamper = replay
    bank.channel("shop").send("two")
    while not replayed:
        time.sleep(0.01)
    sealed_world.cut("bank")
    sealed_world.restore("bank")
    assert shop.channel("bank").recv("two") == {}


def test_a_forged_stop_is_not_believed(sealed_world: Any) -> None:
    bank, _, shop = sealed_world.all_join()

    def forge(sender: str, receiver: str, packet: bytes) -> bytes:
        kind = unpack(packet).kind
        return bytes((Kind.STOP,)) + packet[1:] if sender == "bank" and kind is Kind.DATA else packet

    sealed_world.tamper = forge
    bank.channel("shop").send("note")
    refused(ProtocolError, ("MS084", "bank"), shop.channel("bank").recv, "note")


def test_a_restarted_participant_does_not_slip_in(sealed_world: Any) -> None:
    bank, _, shop = sealed_world.all_join()
    bank.channel("shop").send("one")
    assert shop.channel("bank").recv("one") == {}
    again = sealed_world.connect(sealed_world.identities["bank"], timeout=5.0, reconnect_grace=5.0)
    refused(PeerLost, ("PE013", "bank"), shop.channel("bank").recv, "two")
    refused(ConnectError, "CN023", bank.channel("shop").recv, "anything")
    again.close()
