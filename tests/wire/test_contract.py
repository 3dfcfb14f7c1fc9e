"""What every transport promises."""

from __future__ import annotations

import time
from concurrent.futures import wait
from typing import Any

import numpy as np
import pytest

from colonnade.errors import ConnectError, IdentityError, PeerLost, PeerStopped, ProtocolError
from colonnade.wire import Channel, Endpoint, Identity
from colonnade.wire.packet import Kind, unpack


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

    assert [future.result(20) for future in [world.go(talk, index) for index in range(3)]] == [2, 0, 1]


def test_large_arrays(world: Any) -> None:
    bank, _, shop = world.all_join()
    array = np.arange(3 << 20, dtype=np.float64).reshape(3, -1)  # 24 MiB, many packets
    sending = world.go(lambda: bank.channel("shop").send("block", array=array, last=True))
    got = shop.channel("bank").recv("block")
    sending.result(20)
    assert np.array_equal(got["array"], array)
    assert got["array"].dtype == array.dtype
    assert got["last"] is True
    assert bank.counters.peers["shop"].payload_sent >= array.nbytes
    assert shop.counters.total.payload_received == bank.counters.total.payload_sent
    assert bank.counters.total.sealed_sent > bank.counters.total.payload_sent
    assert bank.counters.total.cpu_seconds > 0


def test_wrong_kind(world: Any) -> None:
    bank, _, shop = world.all_join()
    bank.channel("shop").send("shares", x=1)
    with pytest.raises(ProtocolError, match="expected 'noise' from bank, got 'shares'"):
        shop.channel("bank").recv("noise")


def test_unknown_peer(world: Any) -> None:
    with pytest.raises(ProtocolError, match="not in the study"):
        world.join("bank").channel("nobody")


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
    assert [future.result(20) for future in receiving] == [list(range(40))] * 2
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
    sending.result(20)


def test_windows_may_differ(world: Any) -> None:
    bank, shop = world.join("bank", window=1 << 13), world.join("shop")
    sending = world.go(lambda: bank.channel("shop").send("block", array=np.arange(8_000)))
    assert shop.channel("bank").recv("block")["array"].sum() == 8_000 * 7_999 // 2
    sending.result(20)


def test_two_who_send_before_they_read_do_not_block_each_other(world: Any) -> None:
    bank, _, shop = world.all_join(window=1 << 16)

    def talk(channel: Channel) -> int:
        for _ in range(4):
            channel.send("block", array=np.ones(40_000))
        return sum(int(channel.recv("block")["array"].sum()) for _ in range(4))

    talks = [world.go(talk, bank.channel("shop")), world.go(talk, shop.channel("bank"))]
    assert [future.result(20) for future in talks] == [160_000, 160_000]


@pytest.mark.parametrize("who", ["bank", "shop"])
def test_a_cut_link_loses_and_doubles_nothing(world: Any, who: str) -> None:
    bank, _, shop = world.all_join()

    def send(channel: Channel) -> None:
        for number in range(150):
            channel.send("block", number=number, array=np.full(20_000, number))

    def receive(channel: Channel) -> list[int]:
        return [channel.recv("block")["number"] for _ in range(150)]

    channels = (bank.channel("shop"), shop.channel("bank"))
    sending = [world.go(send, channel) for channel in channels]
    receiving = [world.go(receive, channel) for channel in channels]
    for breaks in range(3):
        target = shop.counters.peers["bank"]
        while target.messages_received < 40 * breaks + 10:
            time.sleep(0.002)
        world.cut(who)
        time.sleep(0.1)
        world.restore(who)
    assert [future.result(20) for future in receiving] == [list(range(150))] * 2
    wait(sending, 20)
    bank.channel("shop").send("end")
    assert shop.channel("bank").recv("end") == {}


def test_a_lost_peer_ends_the_study_for_everybody(world: Any) -> None:
    bank, coordinator, shop = world.all_join(reconnect_grace=0.6)
    waiting = [
        world.go(bank.channel("shop").recv, "x"),
        world.go(coordinator.channel("bank").recv, "x"),
        world.go(shop.channel("bank").recv, "x"),
    ]
    start = time.monotonic()
    world.cut("shop")
    for future in waiting[:2]:
        with pytest.raises(PeerLost, match=r"shop has not been heard of for 0\.6 s"):
            future.result(10)
    with pytest.raises(ConnectError, match=r"could not be reached for 0\.6 s"):
        waiting[2].result(10)
    assert 0.5 < time.monotonic() - start < 5
    with pytest.raises(PeerLost):
        bank.channel("coordinator").send("late")


def test_silence_ends_a_wait(world: Any) -> None:
    bank, _, shop = world.all_join(timeout=0.5)
    with pytest.raises(PeerLost, match=r"shop is connected but has sent nothing for 0\.5 s"):
        bank.channel("shop").recv("x")
    assert shop.channel("bank").peer == "bank"


def test_a_peer_that_never_joins(world: Any) -> None:
    bank = world.join("bank")
    world.join("shop")
    with pytest.raises(PeerLost, match=r"coordinator has not joined the study within 0\.3 s"):
        bank.wait_for_peers(timeout=0.3)


def test_abort_reaches_everybody_with_its_reason(world: Any) -> None:
    bank, coordinator, shop = world.all_join(window=1 << 14)
    blocked = world.go(lambda: shop.channel("coordinator").send("big", array=np.zeros(1 << 16)))
    waiting = [world.go(shop.channel("bank").recv, "x"), world.go(coordinator.channel("bank").recv, "x")]
    bank.abort("the budget is spent")
    for future in [*waiting, blocked]:
        with pytest.raises(PeerStopped, match=r"^bank stopped the study: the budget is spent$"):
            future.result(10)
    with pytest.raises(PeerStopped, match="the budget is spent"):
        shop.channel("coordinator").send("later")
    with pytest.raises(PeerStopped, match="the budget is spent"):
        bank.channel("shop").recv("x")


def test_an_error_inside_the_block_stops_the_study_without_its_text(world: Any) -> None:
    bank, _, shop = world.all_join()
    with pytest.raises(ValueError, match="secret"), bank:
        raise ValueError("secret 42")
    with pytest.raises(PeerStopped, match=r"^bank stopped the study: it met an error \(ValueError\)$"):
        shop.channel("bank").recv("x")


def test_goodbye_delivers_what_was_sent_and_is_no_error(world: Any) -> None:
    bank, coordinator, shop = world.all_join(reconnect_grace=0.5)
    bank.channel("shop").send("result", value=7)
    bank.close()
    time.sleep(0.8)  # longer than the grace: the absence of one who said goodbye is not a loss
    assert shop.channel("bank").recv("result") == {"value": 7}
    shop.channel("bank").send("thanks")
    shop.channel("coordinator").send("still here")
    assert coordinator.channel("shop").recv("still here") == {}
    with pytest.raises(PeerLost, match="bank has left the study"):
        shop.channel("bank").recv("more")
    with pytest.raises(ProtocolError, match="closed"):
        bank.channel("shop").send("late")


def test_an_impostor_is_not_let_in(world: Any) -> None:
    world.join("shop")
    with pytest.raises(IdentityError):
        world.join("bank", identity=Identity.create("bank"))


def test_peers_with_different_pins_do_not_talk(world: Any) -> None:
    stranger = Identity.create("shop").certificate
    bank = world.join("bank", pins={**world.pins, "shop": stranger})
    shop = world.join("shop")

    def names_shop(endpoint: Endpoint) -> None:
        endpoint.wait_for_peers([name for name in ("bank", "shop") if name != endpoint.name])

    ours, theirs = world.go(names_shop, bank), world.go(names_shop, shop)
    with pytest.raises(IdentityError, match=r"shop does not hold the certificate .*sha256:"):
        ours.result(10)
    with pytest.raises(IdentityError, match="bank does not accept our certificate"):
        theirs.result(10)


def test_the_relay_sees_only_sealed_bytes(world: Any) -> None:
    bank, _, shop = world.all_join()
    marker = b"a marker that nobody else may read"
    bank.channel("shop").send("note", text=marker.decode(), raw=marker, array=np.frombuffer(marker, np.uint8))
    assert shop.channel("bank").recv("note")["raw"] == marker
    carried = b"".join(packet for _, _, packet in world.carried)
    assert len(carried) > 3 * len(marker)
    assert marker not in carried
    assert b"note" not in carried


def test_a_changed_packet_is_noticed(world: Any) -> None:
    bank, _, shop = world.all_join()

    def flip(sender: str, receiver: str, packet: bytes) -> bytes:
        if sender == "bank" and receiver == "shop" and unpack(packet).kind is Kind.DATA:
            return packet[:-1] + bytes((packet[-1] ^ 1,))
        return packet

    world.tamper = flip
    bank.channel("shop").send("note", text="hello")
    for _ in range(2):
        with pytest.raises(ProtocolError, match="damaged on its way"):
            shop.channel("bank").recv("note")


def test_a_replayed_packet_changes_nothing(world: Any) -> None:
    bank, _, shop = world.all_join()
    bank.channel("shop").send("one")
    assert shop.channel("bank").recv("one") == {}
    (*_, old) = (packet for sender, to, packet in world.carried if (sender, to) == ("bank", "shop"))
    replayed = []

    def replay(sender: str, receiver: str, packet: bytes) -> bytes:
        if (sender, receiver) == ("bank", "shop") and not replayed:
            replayed.append(packet)
            return old
        return packet

    world.tamper = replay
    bank.channel("shop").send("two")
    while not replayed:
        time.sleep(0.01)
    world.cut("bank")
    world.restore("bank")
    assert shop.channel("bank").recv("two") == {}


def test_a_forged_stop_is_not_believed(world: Any) -> None:
    bank, _, shop = world.all_join()

    def forge(sender: str, receiver: str, packet: bytes) -> bytes:
        kind = unpack(packet).kind
        return bytes((Kind.STOP,)) + packet[1:] if sender == "bank" and kind is Kind.DATA else packet

    world.tamper = forge
    bank.channel("shop").send("note")
    with pytest.raises(ProtocolError, match="not signed by bank"):
        shop.channel("bank").recv("note")


def test_a_restarted_participant_does_not_slip_in(world: Any) -> None:
    bank, _, shop = world.all_join()
    bank.channel("shop").send("one")
    assert shop.channel("bank").recv("one") == {}
    again = world.connect(world.identities["bank"], timeout=5.0, reconnect_grace=5.0)
    with pytest.raises(PeerLost, match="bank was restarted"):
        shop.channel("bank").recv("two")
    with pytest.raises(ConnectError, match="another connection took its place"):
        bank.channel("shop").recv("anything")
    again.close()
