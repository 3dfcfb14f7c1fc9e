"""Direct links: the same messages by another way, slow ones too, the hub when they end, and nothing for strangers."""

from __future__ import annotations

import os
import select
import selectors
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from colonnade.errors import ConnectError, PeerLost, ProtocolError
from colonnade.wire import Endpoint, direct_links
from colonnade.wire.direct_links import (
    BrokenLinkError,
    DirectLink,
    LinkListener,
    accept_link,
    dial_link,
    open_link_sockets,
)
from colonnade.wire.link_offers import (
    ANSWER_BYTES,
    GREETING_BYTES,
    OFFER_BYTES,
    DirectLinkSettings,
    LinkKeys,
    LinkOffer,
    PortRange,
    UnprovenPeerError,
    advertised_address,
    is_address,
    new_nonce,
)
from colonnade.wire.packets import PacketKind, unpack_packet
from tests.support.errors import refused
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.support.wires import SECONDS, connected, says

from .conftest import LinkWorld


def told(world: LinkWorld, words: str, who: str | None = None) -> bool:
    """Whether somebody, or this one, was told of a way with these words."""
    return any(words in way for name, _, way in world.told if who in (None, name))


def data_through_hub(world: LinkWorld) -> int:
    """Bytes between the bank and the shop."""
    seen = [unpack_packet(packet) for sender, to, packet in world.carried if {sender, to} == {"bank", "shop"}]
    return sum(len(packet.body) for packet in seen if packet.kind is PacketKind.DATA)


def test_messages_take_the_direct_way(link_world: LinkWorld) -> None:
    bank, _, shop = link_world.all_join(window=4 << 20)
    link_world.linked()
    before = data_through_hub(link_world)
    array = np.arange(3 << 20, dtype=np.float64)  # 24 MiB, more than a window and than the system takes at once

    def swap(own: Endpoint, peer: str) -> Any:
        own.channel(peer).send("block", array=array)
        return own.channel(peer).recv("block")["array"]

    for swapped in [link_world.go(swap, bank, "shop"), link_world.go(swap, shop, "bank")]:
        assert np.array_equal(swapped.result(300), array)
    assert data_through_hub(link_world) == before
    assert min(bank.routes["shop"].sent, shop.routes["bank"].received) >= array.nbytes
    assert ("bank", "shop", "directly") in link_world.told


def test_a_link_that_is_cut_loses_and_doubles_nothing(link_world: LinkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_links, "_PAUSES", (0.05,) * 40)
    bank, _, shop = link_world.all_join()
    link_world.linked()
    count, over = 120, threading.Event()

    def talk(own: Endpoint, peer: str) -> list[int]:
        found = []
        for number in range(count):
            own.channel(peer).send("block", number=number, array=np.full(20_000, number))
            got = own.channel(peer).recv("block")
            assert (got["array"] == got["number"]).all()
            found.append(got["number"])
        return found

    def sever() -> int:
        cuts = 0
        while not over.wait(0.05):
            for cable in link_world.cables.values():
                cable.cut()
                cable.restore()
                cuts += 1
        return cuts

    severing = link_world.go(sever)
    talks = [link_world.go(talk, bank, "shop"), link_world.go(talk, shop, "bank")]
    try:
        assert [talking.result(300) for talking in talks] == [list(range(count))] * 2
    finally:
        over.set()
    assert severing.result(SECONDS) > 2
    until(lambda: bank.routes["shop"].links > 1)
    assert told(link_world, "through the hub, because the direct connection ended")


def test_who_cannot_be_reached_is_sent_to_through_the_hub(link_world: LinkWorld) -> None:
    for name in ("bank", "shop"):
        link_world.directs[name] = DirectLinkSettings(
            f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        )  # nobody is there
    bank, _, shop = link_world.all_join()
    says(bank, shop, text="by the hub")
    until(lambda: told(link_world, "was not reached", "bank"))
    way = bank.routes["shop"]
    assert (way.direct, way.sent, "Connection refused" in way.reason) == (False, 0, True)
    assert "127.0.0.1" not in way.reason  # which others may read


def test_who_cannot_listen_dials_unless_it_does_not_want_to(link_world: LinkWorld) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        link_world.directs |= {"shop": DirectLinkSettings(address), "coordinator": DirectLinkSettings(dials=False)}
        bank, coordinator, shop = link_world.all_join()
        until(lambda: bank.routes["shop"].direct and shop.routes["bank"].direct)
        assert told(link_world, "another program has the port", "shop")
        says(bank, shop)
    assert coordinator.routes["bank"].reason.startswith("this participant does not dial")
    assert bank.routes["coordinator"].reason == "it has not dialled"
    assert shop.routes["coordinator"].reason == "neither of the two listens"


def test_a_relay_sees_no_address_and_cannot_put_one_in(link_world: LinkWorld) -> None:
    """Whatever a relay changes in what carries the offer, the session breaks, and nobody dials."""
    trap = socket.create_server(("127.0.0.1", 0))
    trap.settimeout(0.5)
    lure = LinkOffer.fresh(f"127.0.0.1:{trap.getsockname()[1]}").to_bytes()

    def tamper(sender: str, receiver: str, packet: bytes) -> bytes:
        seen = unpack_packet(packet)
        if (sender, receiver, seen.kind) != ("shop", "bank", PacketKind.DATA) or len(seen.body) < OFFER_BYTES:
            return packet
        start = len(packet) - len(lure) - 16 - 1  # where the sealed offer is, before its tag
        return packet[:start] + lure + packet[start + len(lure) :]

    link_world.tamper = tamper
    bank, shop = link_world.join("bank"), link_world.join("shop")
    refused(ProtocolError, "MS096", bank.wait_for_peers, ["shop"], timeout=SECONDS)
    refused(TimeoutError, (), trap.accept)
    trap.close()
    assert shop.routes["bank"].links == bank.routes["shop"].links == 0
    address = link_world.directs["bank"].advertise.encode()
    assert not [packet for *_, packet in link_world.carried if address in packet]


def test_whoever_is_told_cannot_break_a_link_and_the_hub_is_still_needed(link_world: LinkWorld) -> None:
    def broken(peer: str, way: str) -> None:
        raise BrokenPipeError

    bank, _, shop = link_world.all_join(reconnect_grace=0.3, told=broken)
    link_world.linked()
    says(bank, shop)
    link_world.cut("shop")
    refused(PeerLost, ("PE014", "shop"), bank.channel("shop").recv, "never")


# --- links that are slow or silent, and participants that leave meanwhile


def slow(world: LinkWorld, rate: float | None) -> None:
    """All links are slow from now on; what goes through the hub is not."""
    for cable in world.cables.values():
        cable.rate = rate


def test_a_goodbye_does_not_overtake_the_last_message_and_is_no_break(link_world: LinkWorld) -> None:
    bank, _, shop = link_world.all_join(reconnect_grace=0.3)
    link_world.linked()
    slow(link_world, 6e6)
    last = np.arange(1 << 19)  # 4 MB, in which the shop gives up waiting for acknowledgements
    receiving = link_world.go(lambda: bank.channel("shop").recv("last")["array"])
    shop.channel("bank").send("last", array=last)
    leaving = link_world.go(shop.close)
    assert np.array_equal(receiving.result(SECONDS), last)
    leaving.result(SECONDS)
    kinds = {unpack_packet(packet).kind for *_, packet in link_world.carried if len(packet) > 1 << 16}
    assert PacketKind.DATA not in kinds
    refused(PeerLost, ("PE015", "shop"), bank.channel("shop").recv, "more")
    until(lambda: not bank.routes["shop"].direct)
    assert not told(link_world, "ended")


@pytest.mark.parametrize("who", ["shop", "bank"])
def test_who_leaves_while_a_line_to_the_hub_is_down_is_not_missed(link_world: LinkWorld, who: str) -> None:
    bank, coordinator, shop = link_world.all_join()
    link_world.linked()
    link_world.cut(who)
    until(lambda: not shop.present_peers or "bank" not in shop.present_peers)
    says(shop, bank, "last", number=1)
    says(bank, shop, "thanks")  # with an acknowledgement, so that nothing is left to wait for but the line
    leaving = link_world.go(shop.close)
    time.sleep(0.1)
    link_world.restore(who)
    leaving.result(SECONDS)
    until(lambda: all(end._post.peers["shop"].has_departed for end in (bank, coordinator)))


def test_nobody_waits_for_a_hub_that_has_left(link_world: LinkWorld) -> None:
    bank, coordinator, shop = link_world.all_join(reconnect_grace=1000.0)
    link_world.linked()
    link_world.go(coordinator.close).result(SECONDS)
    until(lambda: all(end._post.peers["coordinator"].has_departed for end in (bank, shop)))
    for name in ("bank", "shop"):
        link_world.cut(name)
    until(lambda: not bank.present_peers and not shop.present_peers)
    for leaving in [link_world.go(end.close) for end in (bank, shop)]:
        leaving.result(SECONDS)


def test_a_slow_link_is_not_a_silent_one_and_a_silent_one_is_given_up(link_world: LinkWorld) -> None:
    bank, _, shop = link_world.all_join(heartbeat=0.2)
    link_world.linked()
    slow(link_world, 1e6)  # a packet of a megabyte takes longer than three heartbeats
    block = np.arange(1 << 17)
    receiving = link_world.go(lambda: bank.channel("shop").recv("block")["array"])
    shop.channel("bank").send("block", array=block)
    assert np.array_equal(receiving.result(SECONDS), block)
    assert (bank.routes["shop"].links, bank.routes["shop"].broken_links) == (1, 0)
    slow(link_world, None)
    held = bank._carrier._links["shop"]
    held.beat = held.put = lambda *_: None  # from now on nothing is heard of it
    until(lambda: told(link_world, "nothing was heard", "shop"))
    says(shop, bank)
    says(bank, shop)


@pytest.mark.system
def test_a_link_on_which_frames_are_held_back_does_not_end_the_study(link_world: LinkWorld) -> None:
    bank, _, shop = link_world.all_join(timeout=6.0, heartbeat=0.5)
    link_world.linked()
    held = bank._carrier._links["shop"]
    put = held.put
    held.put = lambda *packet: put(*packet) if sum(map(len, packet)) < 500 else None  # signs of life pass
    says(bank, shop, "second", word=bytes(1000))
    assert told(link_world, "waited for in vain", "shop")
    says(bank, shop, "third", word=bytes(1000))
    assert bank.routes["shop"].reason


# --- who may come in


def test_strangers_keep_nobody_out_hear_nothing_and_a_repeated_greeting_is_of_no_use() -> None:
    """Whoever heard a greeting and says it again is answered, but cannot go on."""
    arrived: list[DirectLink] = []
    listener = LinkListener(f"127.0.0.1:{free_port()}", lambda _, link: arrived.append(link), 0.5)
    offer = LinkOffer.fresh(f"127.0.0.1:{listener.port}")
    listener.offers[offer.name] = ("bank", offer)
    near, far = socket.socketpair()

    def attend() -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(far, selectors.EVENT_READ)
            selector.register(listener.sockets[0], selectors.EVENT_READ, listener)
            while all(key.data for key, _ in selector.select()):
                listener.accept(listener.sockets[0])

    def heard(*words: bytes) -> bytes:
        """What somebody hears who says this, until it is hung up on."""
        found = b""
        with socket.create_connection(("127.0.0.1", listener.port), SECONDS) as stranger, suppress(ConnectionError):
            for word in words:
                stranger.sendall(word)
            while more := stranger.recv(1000):
                found += more
        return found

    attending = threading.Thread(target=attend)
    attending.start()
    crowd = [socket.create_connection(("127.0.0.1", listener.port), timeout=SECONDS) for _ in range(40)]
    link = dial_link(offer, SECONDS)
    until(lambda: len(arrived) == 1)
    assert [stranger.recv(1) for stranger in crowd] == [b""] * 40  # each within seconds, the first at once
    assert sum(thread.name == "wire-link-in" for thread in threading.enumerate()) <= 17
    half = LinkOffer(offer.secret, "").greeting(new_nonce())
    wrong, other = half[:-1] + bytes((half[-1] ^ 1,)), LinkOffer(os.urandom(32), offer.address)
    assert len(half) == GREETING_BYTES
    for words in (b"GET / HTTP/1.1\r\n\r\n".ljust(200), b"", other.greeting(new_nonce()), wrong, half[:40]):
        assert heard(words) == b""
    greeting = offer.greeting(new_nonce())
    for after in (b"", bytes(20), os.urandom(20)):
        assert len(heard(greeting, after)) == ANSWER_BYTES
    assert len(arrived) == 1
    near.close()
    attending.join()
    for end in (far, listener, link, *crowd, *arrived):
        end.close()


def test_whoever_listens_must_know_the_secret_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        offer = LinkOffer.fresh(f"127.0.0.1:{trap.getsockname()[1]}")

        def answer() -> None:
            connection, _ = trap.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(os.urandom(ANSWER_BYTES))

        answering = threading.Thread(target=answer)
        answering.start()
        refused(UnprovenPeerError, "MS080", dial_link, offer, SECONDS)
        answering.join()
    near, far = socket.socketpair()
    with near, far:
        near.sendall(bytes(GREETING_BYTES))  # of another kind
        refused(UnprovenPeerError, "MS081", accept_link, far, {}, SECONDS)


# --- frames


def delivered(*places: int, flip: int | None = None) -> int:
    """How many of three packets a link delivers, if these frames arrive, the second with a bit changed at a place."""
    keys = LinkKeys(os.urandom(32), os.urandom(32))
    words = [word * 20 for word in (b"one", b"two", b"three")]
    (near, middle), (outward, far) = connected(), connected()
    sending, receiving = DirectLink(near, keys), DirectLink(far, LinkKeys(*reversed(keys)))
    frames = []
    for word in words:
        sending.put(word)
        frames.append(middle.recv(1000))
    if flip is not None:
        changed = bytearray(frames[1])
        changed[flip] ^= 1
        frames[1] = bytes(changed)
    outward.sendall(b"".join(frames[place] for place in places))
    for end in (middle, outward):
        end.close()
    heard: list[bytes] = []
    refused(BrokenLinkError, (), receiving.read, lambda packet: heard.append(bytes(packet)))
    for end in (sending, receiving):
        end.close()
    assert heard == words[: len(heard)]
    return len(heard)


def test_whatever_is_changed_repeated_left_out_or_swapped_breaks_the_link() -> None:
    for place in (0, 3, 4, 30, -17, -1):
        assert delivered(0, 1, 2, flip=place) == 1
    for places, count in (((0, 1, 2), 3), ((0, 0), 1), ((1,), 0), ((0, 2, 1), 1)):
        assert delivered(*places) == count


def test_bytes_without_a_tag_are_no_sign_of_life() -> None:
    keys = LinkKeys(os.urandom(32), os.urandom(32))
    (near, middle), (outward, far) = connected(), connected()
    sending, receiving = DirectLink(near, keys), DirectLink(far, LinkKeys(*reversed(keys)))
    sending.put(b"packet" * 10)
    frame = middle.recv(1000)
    heard: list[bytes] = []
    reading = threading.Thread(target=receiving.read, args=(lambda packet: heard.append(bytes(packet)),))
    before = receiving.last_heard
    reading.start()
    for place in range(len(frame)):
        assert receiving.last_heard == before
        outward.sendall(frame[place : place + 1])
        until(lambda: not select.select([far], [], [], 0)[0])  # until somebody has read it
    until(lambda: heard == [b"packet" * 10])
    assert receiving.last_heard > before
    sending.end()
    outward.sendall(middle.recv(1000))
    reading.join()
    for end in (sending, receiving, middle, outward):
        end.close()


# --- offers and addresses


def test_offers_are_equally_long_are_read_carefully_and_show_no_secret() -> None:
    for address in ("", "bank.example.org:9400", "[::1]:1", "10.0.0.5:65535"):
        offer = LinkOffer.fresh(address)
        assert len(offer.to_bytes()) == OFFER_BYTES
        assert LinkOffer.parse(offer.to_bytes(), "bank") == offer
    secret = bytes(32)
    wrong = ["host", "host:0", "host:65536", "host:99999", "ho st:1", "-x:1", "x\n:1", ":1", "[::1:1", "é:1"]
    raws = [(secret + bytes((len(text.encode()),)) + text.encode()).ljust(OFFER_BYTES, b"\0") for text in wrong]
    raws += [b"", bytes(OFFER_BYTES - 1), secret + b"\0" + b"x".ljust(255, b"\0"), secret + b"\xff" * 256]
    for raw in raws:
        refused(ProtocolError, ("MS078", "bank"), LinkOffer.parse, raw, "bank")
    shown = repr(LinkOffer(b"secret" * 6, "host:1")).replace("secret=", "") + repr(LinkKeys(b"secret", b"secret"))
    assert "secret" not in shown


def test_addresses() -> None:
    long = "x" * 64
    assert PortRange.parse("10.0.0.5:9400-9409") == PortRange("10.0.0.5", 9400, 9409)
    names = [f"{name}:80" for name in ("a..b", long, f"{long}.org", "a.-b")]
    assert [is_address(name) for name in (*names, f"{long[1:]}.org:80")] == [False] * 4 + [True]
    for wrong in ("9400", "host:0", "host:9-8", "host:1-99999", "ho st:1", "host:1-2-3", "::1:9", *names):
        refused(ValueError, "VA268|VA269", PortRange.parse, wrong)
    for listens, advertised, port, told in (
        ("[::1]:9-10", None, 10, "[::1]:10"),
        ("0.0.0.0:9-10", "bank.example.org", 10, "bank.example.org:10"),
        ("0.0.0.0:9", "bank.example.org:4711", 9, "bank.example.org:4711"),
    ):
        assert advertised_address(listens, advertised, port) == told
    everywhere = ("0.0.0.0", "0", "0x0", "0.0", "[::]", "[::0]", "[0:0:0:0:0:0:0:0]", "[::ffff:0.0.0.0]")  # noqa: S104
    somewhere = ("127.0.0.1", "[::1]", "bank.example.org", "10.0.0.5", "localhost")
    found = [PortRange.parse(f"{host}:9400").is_wildcard for host in (*everywhere, *somewhere)]
    assert found == [True] * 8 + [False] * 5


def test_the_first_free_port_is_taken() -> None:
    first = free_port()
    with socket.create_server(("127.0.0.1", first)):
        refused(ConnectError, "CN031", open_link_sockets, f"127.0.0.1:{first}")
        found, port = open_link_sockets(f"127.0.0.1:{first}-{first + 20}")
        assert first < port <= first + 20
        for listening in found:
            listening.close()
    refused(ConnectError, "CN031", open_link_sockets, "192.0.2.1:9400")
