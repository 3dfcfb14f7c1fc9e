"""Direct links: the same messages by another way, the hub when it ends, and nothing for strangers."""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from colonnade.errors import ConnectError, PeerLost, ProtocolError
from colonnade.wire import Endpoint, links
from colonnade.wire.direct import Direct, Ports, told_address
from colonnade.wire.link import BrokenError, Link, dial, welcome
from colonnade.wire.listener import Listener, open_sockets
from colonnade.wire.offer import (
    ANSWER_BYTES,
    GREETING_BYTES,
    OFFER_BYTES,
    Keys,
    Offer,
    StrangerError,
    fresh_nonce,
    is_address,
)
from colonnade.wire.packet import Kind, unpack
from tests.support.ports import free_port
from tests.support.refusals import refused

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


def linked(endpoint: Endpoint, *peers: str) -> None:
    until(lambda: all(endpoint.ways[peer].direct for peer in peers))


def data_through_hub(world: LinkWorld, pair: set[str]) -> int:
    return sum(
        len(unpack(packet).body)
        for sender, receiver, packet in world.carried
        if {sender, receiver} == pair and unpack(packet).kind is Kind.DATA
    )


def test_messages_take_the_direct_way(world: LinkWorld) -> None:
    bank, coordinator, shop = world.all_join()
    linked(bank, "shop", "coordinator")
    linked(shop, "bank", "coordinator")
    linked(coordinator, "bank", "shop")
    before = data_through_hub(world, {"bank", "shop"})
    array = np.arange(3 << 20, dtype=np.float64)  # 24 MiB: more than the system takes at once
    sending = world.go(lambda: bank.channel("shop").send("block", array=array))
    assert np.array_equal(shop.channel("bank").recv("block")["array"], array)
    sending.result(SECONDS)
    for number in range(300):
        shop.channel("bank").send("count", number=number)
    assert [bank.channel("shop").recv("count")["number"] for _ in range(300)] == list(range(300))
    assert data_through_hub(world, {"bank", "shop"}) == before
    assert bank.ways["shop"].sent >= array.nbytes
    assert shop.ways["bank"].received == bank.ways["shop"].sent or shop.ways["bank"].received >= array.nbytes
    assert ("bank", "shop", "directly") in world.told


def test_both_ends_send_much_at_once(world: LinkWorld) -> None:
    bank, _, shop = world.all_join()
    linked(bank, "shop")
    linked(shop, "bank")
    array = np.arange(12 << 20, dtype=np.float64)  # 96 MiB, more than a window

    def swap(own: Endpoint, peer: str) -> Any:
        own.channel(peer).send("block", array=array)
        return own.channel(peer).recv("block")["array"]

    for swapped in [world.go(swap, bank, "shop"), world.go(swap, shop, "bank")]:
        assert np.array_equal(swapped.result(300), array)


def test_a_link_that_is_cut_loses_and_doubles_nothing(world: LinkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "_PAUSES", (0.05,) * 40)
    bank, _, shop = world.all_join()
    linked(bank, "shop")
    linked(shop, "bank")
    count, over = 400, threading.Event()

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
        while not over.is_set():
            for cable in world.cables.values():
                cable.cut()
                cable.restore()
                cuts += 1
            time.sleep(0.05)
        return cuts

    severing = world.go(sever)
    talks = [world.go(talk, bank, "shop"), world.go(talk, shop, "bank")]
    try:
        assert [talking.result(300) for talking in talks] == [list(range(count))] * 2
    finally:
        over.set()
    assert severing.result(SECONDS) > 2
    until(lambda: bank.ways["shop"].links > 1)
    assert any(way.startswith("through the hub, because the direct connection ended") for _, _, way in world.told)


def test_who_cannot_be_reached_is_sent_to_through_the_hub(world: LinkWorld) -> None:
    for name in ("bank", "shop"):
        world.directs[name] = Direct(f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}")  # nobody is there
    bank, _, shop = world.all_join()
    bank.channel("shop").send("hello", text="by the hub")
    assert shop.channel("bank").recv("hello") == {"text": "by the hub"}
    until(lambda: any("was not reached" in way for who, _, way in world.told if who == "bank"))
    assert not bank.ways["shop"].direct
    assert "Connection refused" in bank.ways["shop"].why
    assert "127.0.0.1" not in bank.ways["shop"].why  # which others may read
    assert bank.ways["shop"].sent == 0


def test_who_does_not_listen_dials(world: LinkWorld) -> None:
    world.directs["bank"] = Direct()
    bank, coordinator, shop = world.all_join()
    linked(bank, "shop")
    linked(shop, "bank")
    linked(coordinator, "shop")
    assert not coordinator.ways["bank"].direct
    assert coordinator.ways["bank"].why == "neither of the two listens"


def test_who_does_not_want_to_dial_does_not(world: LinkWorld) -> None:
    world.directs = {name: Direct(dials=False) for name in world.directs} | {"shop": world.directs["shop"]}
    bank, _, shop = world.all_join()
    bank.channel("shop").send("hello")
    shop.channel("bank").recv("hello")
    assert bank.ways["shop"].why.startswith("this participant does not dial")
    assert shop.ways["bank"].why == "it has not dialled"


def test_a_port_that_is_taken_is_no_reason_to_stop(world: LinkWorld) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        world.directs["shop"] = Direct(f"127.0.0.1:{taken.getsockname()[1]}")
        bank, _, shop = world.all_join()
        linked(shop, "bank")  # it dials
        assert any(who == peer == "shop" and "another program has the port" in way for who, peer, way in world.told)
        bank.channel("shop").send("hello")
        shop.channel("bank").recv("hello")


def test_the_hub_is_still_needed(world: LinkWorld) -> None:
    bank, _, _ = world.all_join(reconnect_grace=0.3)
    linked(bank, "shop")
    world.cut("shop")
    refused(PeerLost, ("PE014", "shop"), bank.channel("shop").recv, "never")


def test_one_that_stops_tells_it_and_one_that_leaves_is_no_break(world: LinkWorld) -> None:
    bank, _, shop = world.all_join()
    linked(bank, "shop")
    linked(shop, "bank")
    shop.channel("bank").send("last", text="words")
    world.go(shop.close).result(SECONDS)
    assert bank.channel("shop").recv("last") == {"text": "words"}
    refused(PeerLost, ("PE015", "shop"), bank.channel("shop").recv, "more")
    until(lambda: not bank.ways["shop"].direct)
    assert not [way for who, peer, way in world.told if "ended" in way]


def test_a_relay_sees_no_address_and_cannot_put_one_in(world: LinkWorld) -> None:
    """Whatever a relay changes in what carries the offer, the session breaks, and nobody dials."""
    trap = socket.create_server(("127.0.0.1", 0))
    trap.settimeout(0.5)
    lure = Offer.fresh(f"127.0.0.1:{trap.getsockname()[1]}").to_bytes()
    dials = world.directs["bank"].advertise

    def tamper(sender: str, receiver: str, packet: bytes) -> bytes:
        seen = unpack(packet)
        if (sender, receiver, seen.kind) != ("shop", "bank", Kind.DATA) or len(seen.body) < OFFER_BYTES:
            return packet
        start = len(packet) - len(lure) - 16 - 1  # where the sealed offer is, before its tag
        return packet[:start] + lure + packet[start + len(lure) :]

    world.tamper = tamper
    bank, shop = world.join("bank"), world.join("shop")
    refused(ProtocolError, "MS096", bank.wait_for_peers, ["shop"], timeout=SECONDS)
    refused(TimeoutError, (), trap.accept)
    trap.close()
    assert shop.ways["bank"].links == bank.ways["shop"].links == 0
    assert not [packet for *_, packet in world.carried if dials.encode() in packet]


def test_offers_are_equally_long_and_are_read_carefully() -> None:
    for address in ("", "bank.example.org:9400", "[::1]:1", "10.0.0.5:65535"):
        offer = Offer.fresh(address)
        assert len(offer.to_bytes()) == OFFER_BYTES
        assert Offer.read(offer.to_bytes(), "bank") == offer
    secret = bytes(32)
    wrong = ["host", "host:0", "host:65536", "host:99999", "ho st:1", "-x:1", "x\n:1", ":1", "[::1:1", "é:1"]
    for raw in (secret + bytes((len(text.encode()),)) + text.encode() for text in wrong):
        refused(ProtocolError, ("MS078", "bank"), Offer.read, raw.ljust(OFFER_BYTES, b"\0"), "bank")
    for raw in (b"", bytes(OFFER_BYTES - 1), secret + b"\0" + b"x".ljust(255, b"\0"), secret + b"\xff" * 256):
        refused(ProtocolError, "MS078", Offer.read, raw, "bank")


@pytest.fixture
def doorway() -> Iterator[tuple[Listener, Offer, list[Link], socket.socket]]:
    """A listener with one offer, the links that came of it, and a thread that lets people in."""
    arrived: list[Link] = []
    listener = Listener(f"127.0.0.1:{free_port()}", lambda _, link: arrived.append(link), 3.0)
    offer = Offer.fresh(f"127.0.0.1:{listener.port}")
    listener.offers[offer.name] = ("bank", offer)
    near, far = socket.socketpair()

    def attend() -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(far, selectors.EVENT_READ)
            selector.register(listener.sockets[0], selectors.EVENT_READ, listener)
            while all(key.data for key, _ in selector.select()):
                listener.accept(listener.sockets[0])

    attending = threading.Thread(target=attend)
    attending.start()
    yield listener, offer, arrived, near
    near.close()
    attending.join()
    far.close()
    listener.close()
    for link in arrived:
        link.close()


def said_to(address: str, *words: bytes) -> bytes:
    """What somebody hears who says this to a listener, until it hangs up."""
    host, _, port = address.rpartition(":")
    heard = b""
    with socket.create_connection((host, int(port)), timeout=SECONDS) as stranger:
        try:
            for word in words:
                stranger.sendall(word)
            while more := stranger.recv(1000):
                heard += more
        except ConnectionError:
            pass
    return heard


def test_strangers_hear_nothing(doorway: Any) -> None:
    doorway[0]._seconds = 0.3
    _, offer, arrived, _ = doorway
    other = Offer(os.urandom(32), offer.address)
    half = Offer(offer.secret, "").greeting(fresh_nonce())
    wrong = half[:-1] + bytes((half[-1] ^ 1,))
    for words in (b"GET / HTTP/1.1\r\n\r\n".ljust(200), b"", other.greeting(fresh_nonce()), wrong, half[:40]):
        assert said_to(offer.address, words) == b""
    assert len(half) == GREETING_BYTES
    assert not arrived


def test_a_repeated_greeting_is_of_no_use(doorway: Any) -> None:
    """Whoever heard a greeting and says it again is answered, but cannot go on."""
    _, offer, arrived, _ = doorway
    greeting = offer.greeting(fresh_nonce())
    link = dial(offer, SECONDS)
    until(lambda: len(arrived) == 1)
    doorway[0]._seconds = 0.3
    for after in (b"", bytes(20), os.urandom(20)):
        assert len(said_to(offer.address, greeting, after)) == ANSWER_BYTES
    assert len(arrived) == 1
    link.close()


def test_whoever_listens_must_know_the_secret_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        offer = Offer.fresh(f"127.0.0.1:{trap.getsockname()[1]}")

        def answer() -> None:
            connection, _ = trap.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(os.urandom(ANSWER_BYTES))

        answering = threading.Thread(target=answer)
        answering.start()
        refused(StrangerError, "MS080", dial, offer, SECONDS)
        answering.join()


def test_silent_strangers_do_not_keep_others_out(doorway: Any) -> None:
    listener, offer, arrived, _ = doorway
    crowd = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(40)]
    link = dial(offer, SECONDS)
    until(lambda: len(arrived) == 1)
    gone = 0
    for stranger in crowd:
        stranger.settimeout(SECONDS)
        gone += stranger.recv(1) == b""  # each within seconds, the first at once
        stranger.close()
    assert gone == 40
    assert sum(thread.name == "wire-link-in" for thread in threading.enumerate()) <= 17
    link.close()


def connected() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        return near, server.accept()[0]


def delivered(change: Callable[[list[bytes]], bytes]) -> list[bytes]:
    """What a link delivers of three packets, if somebody on the way makes this of their frames."""
    keys = Keys(os.urandom(32), os.urandom(32))
    near, middle = connected()
    sending, frames = Link(near, keys), []
    for word in (b"one", b"two", b"three"):
        sending.put(word * 20)
        frames.append(middle.recv(1000))
    outward, far = connected()
    receiving = Link(far, Keys(*reversed(keys)))
    outward.sendall(change(frames))
    for end in (middle, outward):
        end.close()
    heard: list[bytes] = []
    refused(BrokenError, (), receiving.read, lambda packet: heard.append(bytes(packet)))
    sending.close()
    receiving.close()
    assert heard == [word * 20 for word in (b"one", b"two", b"three")][: len(heard)]
    return heard


def test_whatever_is_changed_on_the_way_breaks_the_link_and_is_not_delivered() -> None:
    def flipped(place: int, frames: list[bytes]) -> bytes:
        second = bytearray(frames[1])
        second[place] ^= 1
        return frames[0] + bytes(second) + frames[2]

    for place in (0, 3, 4, 30, -17, -1):
        assert len(delivered(partial(flipped, place))) == 1


def test_frames_cannot_be_repeated_left_out_or_swapped() -> None:
    def order(*places: int) -> int:
        return len(delivered(lambda frames: b"".join(frames[place] for place in places)))

    assert order(0, 1, 2) == 3
    assert order(0, 0) == 1
    assert order(1) == 0
    assert order(0, 2, 1) == 1


def test_a_silent_link_is_given_up(world: LinkWorld) -> None:
    bank, _, shop = world.all_join(heartbeat=0.2)
    linked(bank, "shop")
    linked(shop, "bank")
    held = bank._carrier._links["shop"]  # type: ignore[attr-defined]
    held.beat = held.put = lambda *_: None  # from now on nothing is heard of it
    until(lambda: any(who == "shop" and peer == "bank" and "nothing was heard" in way for who, peer, way in world.told))
    shop.channel("bank").send("hello")
    assert bank.channel("shop").recv("hello") == {}
    bank.channel("shop").send("hello")
    assert shop.channel("bank").recv("hello") == {}


def test_addresses() -> None:
    assert Ports.read("10.0.0.5:9400-9409") == Ports("10.0.0.5", 9400, 9409)
    for wrong in ("9400", "host:0", "host:9-8", "host:1-99999", "ho st:1", "host:1-2-3", "::1:9"):
        refused(ValueError, "VA268|VA269", Ports.read, wrong)
    assert told_address("[::1]:9-10", None, 10) == "[::1]:10"
    assert told_address("0.0.0.0:9-10", "bank.example.org", 10) == "bank.example.org:10"
    assert told_address("0.0.0.0:9", "bank.example.org:4711", 9) == "bank.example.org:4711"


def test_the_first_free_port_is_taken() -> None:
    first = free_port()
    with socket.create_server(("127.0.0.1", first)):
        refused(ConnectError, "CN031", open_sockets, f"127.0.0.1:{first}")
        found, port = open_sockets(f"127.0.0.1:{first}-{first + 20}")
        assert first < port <= first + 20
        for listening in found:
            listening.close()
    refused(ConnectError, "CN031", open_sockets, "192.0.2.1:9400")


def test_a_greeting_of_another_kind_is_refused_at_once() -> None:
    near, far = socket.socketpair()
    near.sendall(bytes(GREETING_BYTES))
    refused(StrangerError, "MS081", welcome, far, {}, SECONDS)
    near.close()
    far.close()


def test_names_that_are_none_are_refused() -> None:
    long = "x" * 64
    for wrong in ("a..b", long, f"{long}.org", "a.-b"):
        assert not is_address(f"{wrong}:80")
        refused(ValueError, "VA268", Ports.read, f"{wrong}:80")
    assert is_address(f"{long[1:]}.org:80")
    assert links._why_not(UnicodeError("label too long")) == "that is no name of a machine"
    assert links._why_not(ConnectionError("the other end hung up")) == "the other end hung up"


def test_every_address_is_recognised_however_it_is_written() -> None:
    for host in ("0.0.0.0", "0", "0x0", "0.0", "[::]", "[::0]", "[0:0:0:0:0:0:0:0]", "[::ffff:0.0.0.0]"):  # noqa: S104 - only read
        assert Ports.read(f"{host}:9400").everywhere
    for host in ("127.0.0.1", "[::1]", "bank.example.org", "10.0.0.5", "localhost"):
        assert not Ports.read(f"{host}:9400").everywhere


def test_secrets_are_not_shown() -> None:
    offer = Offer(b"secret" * 6, "host:1")
    assert "secret" not in repr(offer).replace("secret=", "")
    assert "secret" not in repr(Keys(b"secret", b"secret"))


def test_whoever_is_told_cannot_break_a_link(world: LinkWorld) -> None:
    def told(peer: str, way: str) -> None:
        raise BrokenPipeError

    bank, shop = world.join("bank", told=told), world.join("shop", told=told)
    for waiting in [world.go(end.wait_for_peers, [peer]) for end, peer in ((bank, "shop"), (shop, "bank"))]:
        waiting.result(SECONDS)
    linked(bank, "shop")
    linked(shop, "bank")
    bank.channel("shop").send("hello")
    assert shop.channel("bank").recv("hello") == {}
