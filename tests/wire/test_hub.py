"""A hub: who may dial it, its rooms and members, its answers and its health, and the door that strangers find."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Self

import grpc
import numpy as np
import pytest

from colonnade.errors import ConnectError, IdentityError, PeerLost, ProtocolError
from colonnade.wire import (
    Certificate,
    Hub,
    HubClient,
    HubService,
    Identity,
    certificates,
    connection_gate,
    dial,
    endpoint,
    hub as register,
    hub_connection,
    probe,
)
from colonnade.wire.connection_gate import (
    ProxySide,
    UnauthenticatedConnection,
    UnauthenticatedPool,
    _open_listeners,
    lane_places,
    network_of,
    starts_with_client_hello,
    unauthenticated_places,
)
from colonnade.wire.hub_connection import open_channel
from colonnade.wire.peer_liveness import WireLimits
from colonnade.wire.quota import AT_ONCE, CREDIT, UNLIMITED, FairQueue, HubAccount
from tests.support.errors import refused
from tests.support.waiting import until
from tests.support.wires import SECONDS, WORDS, closed, connected, hello, join, says

# --- dialling


def test_addresses_at_which_no_hub_is(people: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        refused(ConnectError, "CN025", dial, f"127.0.0.1:{port}", people.bank, people.pins, connect_timeout=0.1)
    refused(ConnectError, ("CN026", port), dial, f"127.0.0.1:{port}", people.bank, people.pins, connect_timeout=0.2)
    for address in ("here", "host:", ":1", "host:http", "host:99999"):
        refused(ConnectError, "CN024", dial, address, people.bank, people.pins, connect_timeout=0)
    refused(IdentityError, ("ID016", "relay"), dial, "127.0.0.1:1", people.bank, people.pins, hub_name="relay")


def test_addresses_at_which_no_hub_can_be(people: Any, hub: Hub) -> None:
    for address, said in (
        (hub.address, ("CN015", hub.address)),  # a port in use
        ("192.0.2.1:7000", "CN015"),
        ("192.0.2.1:0", "CN015"),
        ("nowhere.invalid:7000", "CN015"),
        ("127.0.0.1:70000", "CN024"),
        ("127.0.0.1:x", "CN024"),
    ):
        refused(ConnectError, said, Hub(people.coordinator, people.pins, address).start)
    with Hub(people.coordinator, people.pins, "0.0.0.0:0") as everywhere:
        for address in (f"127.0.0.1:{everywhere.port}", everywhere.own_address):
            dial(address, people.bank, people.pins).close()


def test_who_is_not_let_in(people: Any, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "datetime", SimpleNamespace(now=lambda tz: datetime(2020, 1, 1, tzinfo=UTC)))
    old = Identity.create("bank", days=30)
    monkeypatch.undo()
    # The shop is known to the hub, so TLS lets it in; it then claims to be the bank.
    liar = Identity(people.shop._key, Certificate("bank", people.shop.certificate.pem))
    for identity, said in (
        (Identity.create("bank"), ("ID018", "bank")),
        (Identity.create("stranger"), ("ID018", "stranger")),  # of another study
        (liar, ("ID037", "bank")),
        (old, ("ID023", "bank", "2020-01-31")),
    ):
        pins = {**people.pins, identity.name: identity.certificate}
        refused(IdentityError, said, dial, hub.address, identity, pins)
    other = Identity.create("coordinator").certificate
    refused(IdentityError, "ID019", dial, hub.address, people.bank, {**people.pins, "coordinator": other})


class _Ahead(datetime):
    """A clock that is 25 hours ahead."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(tz) + timedelta(hours=25)


def test_those_whose_clocks_differ_are_told_to_compare_them_and_strangers_are_not(
    people: Any, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused(IdentityError, "ID018", probe, hub.address, Identity.create("bank"), people.hub, 5.0)
    assert "clock" not in said
    with monkeypatch.context() as ahead:  # the hub refuses a certificate that is not valid yet, and says nothing
        for module in (certificates, hub_connection, endpoint):
            ahead.setattr(module, "datetime", _Ahead)
        assert "clock" in refused(IdentityError, "ID018", probe, hub.address, people.bank, people.hub, 5.0)
    with monkeypatch.context() as ahead:  # by our clock the certificate with which the hub answers is not valid yet
        ahead.setattr(certificates, "datetime", _Ahead)
        early = Hub(people.coordinator, people.pins).start()
    try:
        refused(IdentityError, ("ID046", "coordinator"), probe, early.address, people.bank, people.hub, 5.0)
    finally:
        early.stop()


class Ended(grpc.RpcError):
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.CANCELLED

    def details(self) -> str:
        return "closed"


class Pending:
    """A connection and its call as gRPC may leave them: a read ends with the connection, not with the call."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self._done: list[Callable[[object], None]] = []
        self.close, self.add_done_callback = self.closed.set, self._done.append

    def stream_stream(self, path: str) -> Callable[..., Pending]:
        return lambda requests, metadata: self

    def cancel(self) -> None:
        for done in self._done:
            done(self)

    def __next__(self) -> bytes:
        assert self.closed.wait(SECONDS), "a read that never ends"
        raise Ended


def test_a_read_ends_with_its_call_and_an_answer_that_never_comes_is_not_waited_for(
    people: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for called_off in (True, False):
        found = Pending()
        monkeypatch.setattr("colonnade.wire.hub_connection.grpc.secure_channel", lambda *_, found=found: found)
        line = hub_connection._HubStream("127.0.0.1:1", people.bank, people.hub, 1, WireLimits.heartbeat)
        if called_off:  # as gRPC does it when the other side is gone
            found.cancel()
            refused(Ended, (), next, line.messages)
        else:
            refused(ConnectError, "CN022", line.await_roster, 0.05)


@pytest.mark.parametrize("times", [3, pytest.param(3000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_a_dial_ends_whenever_the_hub_stops(people: Any, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    moments, brief = np.random.default_rng(8), {"connect_timeout": 0.2, "reconnect_grace": 0.2, "timeout": 1.0}
    for _ in range(times):
        hub = Hub(people.coordinator, people.pins).start()
        stopping = threading.Timer(float(moments.uniform(0.0, 0.008)), hub.stop)

        def probed(*args: Any, stopping: threading.Timer = stopping) -> None:
            probe(*args)
            if stopping.ident is None:
                stopping.start()

        monkeypatch.setattr(hub_connection, "probe", probed)
        with pytest.raises((ConnectError, PeerLost)), dial(hub.address, people.bank, people.pins, **brief) as bank:
            bank.channel("shop").recv("word")
        stopping.join(SECONDS)
        hub.stop()


def test_a_dial_ends_although_the_hub_falls_silent_after_the_probe(
    people: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, go_on = threading.Event(), threading.Event()
    with Hub(people.coordinator, people.pins) as hub:

        def probe_then_freeze(*args: Any) -> None:
            if not silent.is_set():
                probe(*args)
                hub._loop.call_soon_threadsafe(lambda: (silent.set(), go_on.wait()))
                silent.wait(SECONDS)

        monkeypatch.setattr(hub_connection, "probe", probe_then_freeze)
        try:
            refused(ConnectError, "CN022", dial, hub.address, people.bank, people.pins, connect_timeout=0.2)
        finally:
            go_on.set()


# --- rooms and questions


async def echo(caller: str, asked: bytes) -> bytes:
    if asked == b"refuse":
        raise ProtocolError("this is not asked here")
    if asked == b"not you":
        raise IdentityError("this is not for you")
    if asked == b"fail":
        raise RuntimeError("a secret of the hub")
    return caller.encode() + b":" + asked


ECHO = HubService("colonnade.Test", "Echo", echo, most=5 << 20)


@pytest.fixture
def standing(people: Any) -> Iterator[Hub]:
    """A hub that answers questions, and where rooms open and close."""
    with Hub(people.coordinator, people.everybody, services=[ECHO], rooms={}) as hub:
        yield hub


def ask(hub: Hub, who: Identity, people: Any, body: bytes, method: str = "Echo") -> bytes:
    with HubClient(hub.address, who, people.hub) as caller:
        return caller.ask("colonnade.Test", method, body)


def test_a_hub_may_restart_and_one_that_stays_away_is_missed(people: Any) -> None:
    hub = Hub(people.coordinator, people.pins, services=[ECHO]).start()
    bank, shop = (join(hub, name, reconnect_grace=30) for name in ("bank", "shop"))
    says(bank, shop, "one")
    with HubClient(hub.address, people.bank, people.hub) as caller:
        assert caller.ask("colonnade.Test", "Echo", b"1") == b"bank:1"
        hub.stop()
        bank.channel("shop").send("two")
        refused(ConnectError, "CN026", caller.ask, "colonnade.Test", "Echo", b"2")
        with Hub(people.coordinator, people.pins, hub.address, services=[ECHO]) as again:
            assert shop.channel("bank").recv("two") == {}
            assert caller.ask("colonnade.Test", "Echo", b"3") == b"bank:3"
            closed(bank, shop)
            bank = join(again, "bank", reconnect_grace=0.5)
    refused(ConnectError, ("CN026", "0.5"), bank.channel("shop").recv, "x")
    bank.close()


def test_two_rooms_at_once_do_not_meet_and_one_that_closes_ends_its_connections(people: Any, standing: Hub) -> None:
    for room in ("one.1", "two.1"):
        standing.open(room, ["bank", "shop"])
    places = {room: [join(standing, name, room) for name in ("bank", "shop")] for room in ("one.1", "two.1")}
    for room, (bank, _) in places.items():
        bank.channel("shop").send("word", room=room)
    for room, (_, shop) in places.items():
        assert shop.channel("bank").recv("word") == {"room": room}
    assert standing.rooms == {room: frozenset({"bank", "shop"}) for room in places}
    traffic = standing.traffic
    assert (traffic.rooms, traffic.present) == (2, frozenset({"bank", "shop"}))
    standing.close("one.1", "its attempt is over")
    assert standing.traffic.carried >= traffic.carried > 1000
    refused(ConnectError, ("CN023", "bank"), places["one.1"][0].channel("shop").recv, "word")
    refused(ConnectError, "CN040", join, standing, "shop", "one.1")
    says(*places["two.1"])
    assert set(standing.rooms) == {"two.1"}
    closed(*(place for both in places.values() for place in both))


def test_rooms_that_are_not_open_and_those_who_are_not_in_them(people: Any, standing: Hub) -> None:
    standing.open("one.1", ["bank", "shop"])
    refused(IdentityError, "ID041", join, standing, "clinic", "one.1")
    assert standing.traffic.refused == {"identity": 1}
    for room in ("", "three.1"):
        refused(ConnectError, "CN041", dial, standing.address, people.bank, people.pins, room=room, connect_timeout=0.1)
    refused(ProtocolError, ("MS090", "one.1"), standing.open, "one.1", ["bank"])
    refused(IdentityError, ("ID040", "ghost"), standing.open, "two.1", ["bank", "ghost"])
    for room in ("a/b", "ä", "x" * 101, "new\nline"):
        refused(ProtocolError, ("MS089", "b"), standing.open, room, ["bank"])
    assert set(standing.rooms) == {"one.1"}


def test_members_come_and_go_while_the_hub_runs_and_may_get_new_certificates(people: Any, standing: Hub) -> None:
    golf, pins = Identity.create("golf"), people.everybody
    refused(IdentityError, ("ID018", "golf"), ask, standing, golf, people, b"hello")
    standing.admit("golf", golf.certificate)
    assert ask(standing, golf, people, b"hello") == b"golf:hello"
    standing.open("one.1", ["golf", "bank"])
    settings: Any = {"room": "one.1", "topic": b"one.1"}
    place = dial(standing.address, golf, {**pins, "golf": golf.certificate}, **settings)
    bank = dial(standing.address, people.bank, {**pins, "golf": golf.certificate}, reconnect_grace=0.5, **settings)
    bank.wait_for_peers(["golf"])
    standing.dismiss("golf")
    refused(ConnectError, ("CN023", "golf"), place.channel("bank").recv, "word")
    refused(IdentityError, ("ID018", "golf"), ask, standing, golf, people, b"hello")
    again = Identity.create("bank")
    other = join(standing, "bank", "one.1")
    standing.admit("bank", again.certificate)
    refused(ConnectError, ("CN023", "bank"), other.channel("shop").recv, "word")
    assert ask(standing, again, people, b"hello") == b"bank:hello"
    refused(IdentityError, (), ask, standing, people.bank, people, b"hello")
    refused(IdentityError, ("ID033", "shop"), standing.admit, "bank", pins["shop"])
    closed(place, bank, other)


def test_a_hub_that_stops_lets_its_rooms_end(people: Any) -> None:
    hub = Hub(people.coordinator, people.everybody, rooms={"one.1": ["bank", "shop"]}).start()
    bank, shop = (join(hub, name, "one.1") for name in ("bank", "shop"))
    stopping = threading.Thread(target=hub.stop, args=(600.0,))
    stopping.start()
    until(lambda: hub._rooms.ending)
    refused(ConnectError, "CN038", hub.open, "two.1", ["bank"])
    says(bank, shop)
    assert stopping.is_alive()
    closed(bank, shop)
    stopping.join(300)
    assert not stopping.is_alive()


def test_the_certificate_that_the_hub_shows_is_renewed(
    people: Any, standing: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown() -> str:
        host, port = standing.address.split(":")
        return ssl.get_server_certificate((host, int(port)), timeout=SECONDS)

    first = shown()
    assert shown() == first
    monkeypatch.setattr(register, "_RENEWAL", 0.0)
    assert shown() != first
    assert ask(standing, people.bank, people, b"hello") == b"bank:hello"


def test_questions_of_any_length_are_answered_and_others_are_not(people: Any, standing: Hub) -> None:
    for size in (0, 1, 1 << 20, (5 << 20) - 7, 5 << 20):
        assert ask(standing, people.bank, people, bytes(size)) == b"bank:" + bytes(size)
    liar = Identity(people.shop._key, Certificate("bank", people.shop.certificate.pem))
    for who, body, method, kind, said in (
        (people.bank, bytes((5 << 20) + 1), "Echo", ProtocolError, ("CN044", "5242880")),
        (people.bank, b"refuse", "Echo", ProtocolError, "MS052"),
        (people.bank, b"not you", "Echo", IdentityError, "ID011"),
        (people.bank, b"fail", "Echo", ConnectError, "CN012"),
        (people.bank, b"", "Nothing", ProtocolError, "MS053"),
        (liar, b"hello", "Echo", IdentityError, ("ID037", "bank")),
    ):
        assert "secret" not in refused(kind, said, ask, standing, who, people, body, method)


# --- who is served next: nobody who asks for little waits for those who ask for much


def stranger() -> HubAccount:
    return HubAccount("", UNLIMITED)


async def work(turns: FairQueue, tenant: HubAccount, cost: int, times: int, done: list[HubAccount]) -> None:
    for _ in range(times):
        await turns.wait(tenant, cost)
        done.append(tenant)


async def called_off(tasks: list[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_one_who_asks_for_little_is_served_within_one_look_at_the_network() -> None:
    async def race() -> list[int]:
        turns, small, done, ahead = FairQueue(), stranger(), list[HubAccount](), list[int]()
        crowd = [asyncio.create_task(work(turns, stranger(), AT_ONCE, 1000, done)) for _ in range(50)]
        for _ in range(100):
            await asyncio.sleep(0)
        for _ in range(20):
            before = len(done)
            await turns.wait(small, 100)
            ahead.append(len(done) - before)
            await asyncio.sleep(0)
        await called_off(crowd)
        return ahead

    assert max(asyncio.run(race())) <= 2


def test_those_who_ask_for_much_get_the_same() -> None:
    """Whether in large pieces or in small ones, and however many of them wait."""

    async def race() -> list[int]:
        turns, done, tasks = FairQueue(), list[HubAccount](), list[Any]()
        sizes = {
            stranger(): (2, AT_ONCE),
            stranger(): (64, AT_ONCE // 16),
            stranger(): (8, AT_ONCE),
        }
        for tenant, (count, size) in sizes.items():
            tasks += [asyncio.create_task(work(turns, tenant, size, 100_000, done)) for _ in range(count)]
        while len(done) < 3000:
            await asyncio.sleep(0)
        await called_off(tasks)
        return [sum(one is tenant for one in done) * size for tenant, (_, size) in sizes.items()]

    got = asyncio.run(race())
    assert max(got) < 1.2 * min(got)


def test_one_who_was_idle_has_saved_little_up_and_what_was_cancelled_takes_no_turn() -> None:
    async def race() -> tuple[int, int]:
        turns, idle, busy, done = FairQueue(), stranger(), stranger(), list[HubAccount]()
        await work(turns, busy, AT_ONCE, 100, done)
        done.clear()
        await asyncio.gather(*(asyncio.create_task(work(turns, one, AT_ONCE, 50, done)) for one in (busy, idle)))
        served = sum(one is idle for one in done[:40])
        done.clear()
        tasks = [asyncio.create_task(work(turns, idle, AT_ONCE, 1, done)) for _ in range(20)]
        await asyncio.sleep(0)
        await called_off(tasks[1::2])
        await asyncio.gather(*tasks[::2])
        return served, len(done)

    served, left = asyncio.run(race())
    assert 20 <= served <= 22 + CREDIT // AT_ONCE
    assert left == 10


# --- whether it serves, as platforms ask it


@pytest.fixture
def asked() -> Callable[..., Any]:
    """Ask a hub for its health, or watch it."""
    messages = pytest.importorskip("grpc_health.v1.health_pb2")
    stubs = pytest.importorskip("grpc_health.v1.health_pb2_grpc")

    def ask(channel: Any, service: str = "", way: str = "Check") -> Any:
        request = messages.HealthCheckRequest(service=service)
        return getattr(stubs.HealthStub(channel), way)(request, timeout=SECONDS)

    return ask


SERVING, NOT_SERVING = 1, 2


def test_members_are_told_at_the_port_of_the_hub_and_this_machine_in_the_clear(
    people: Any, standing: Hub, asked: Any
) -> None:
    with open_channel(standing.address, people.bank, people.hub, 5.0) as channel:
        assert [asked(channel, service).status for service in ("", "colonnade.Hub")] == [SERVING] * 2
    assert standing.health_port == 0
    hub = Hub(people.coordinator, people.pins, services=[ECHO], health="localhost:0").start()
    with grpc.insecure_channel(f"127.0.0.1:{hub.health_port}") as channel:
        assert asked(channel).status == SERVING
        with pytest.raises(grpc.RpcError) as nothing:
            list(channel.stream_stream("/colonnade.Test/Echo")(iter([b""]), timeout=SECONDS))
        assert nothing.value.code() is grpc.StatusCode.UNIMPLEMENTED
        watched = asked(channel, way="Watch")
        assert next(watched).status == SERVING
        hub.stop()
        assert next(watched).status == NOT_SERVING
    for address in ("0.0.0.0:0", "192.0.2.7:0", "[::]:0", "hub.example.org:1"):  # others are never told in the clear
        refused(ConnectError, "CN017", Hub(people.coordinator, people.pins, health=address).start)


def test_without_the_package_there_is_a_hub_without_health(
    people: Any, asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("health", "health_pb2", "health_pb2_grpc"):
        monkeypatch.setitem(sys.modules, f"grpc_health.v1.{name}", None)
    with (
        Hub(people.coordinator, people.pins) as hub,
        open_channel(hub.address, people.bank, people.hub, 5.0) as channel,
        pytest.raises(grpc.RpcError) as nothing,
    ):
        asked(channel)
    assert nothing.value.code() is grpc.StatusCode.UNIMPLEMENTED
    refused(ConnectError, "CN016", Hub(people.coordinator, people.pins, health="127.0.0.1:0").start)


# --- its door: strangers do not stop a study, and what comes in goes on, whole and in order

V4, V6 = socket.AF_INET, socket.AF_INET6


def test_a_connection_that_says_nothing_is_closed_and_a_participant_stays(people: Any) -> None:
    with Hub(people.coordinator, people.pins) as hub:
        bank, shop = join(hub, "bank"), join(hub, "shop")
        hub._door._handshake = 0.3
        connection = hub._rooms.open[""].connections["bank"]
        for guest in hub._door._open:  # none of its messages waits for the receipt of another
            assert guest._outer._transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        for words in WORDS.values():
            with socket.create_connection(("127.0.0.1", hub.port), timeout=SECONDS) as end:
                end.sendall(words)
                with suppress(ConnectionResetError):
                    while end.recv(1 << 16):
                        pass
        time.sleep(0.6)  # longer than a handshake may last
        says(bank, shop)
        assert hub._rooms.open[""].connections["bank"] is connection
        closed(bank, shop)


@pytest.mark.parametrize("code", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_addresses_that_this_machine_has_not_are_left_out(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Such as ::1, which localhost may have where IPv6 is off; a port in use is an error at any address."""
    create, absent = socket.create_server, {V6: code}

    def create_here(at: tuple[str, int], **how: Any) -> socket.socket:
        if how["family"] in absent:
            raise OSError(absent[how["family"]], "not here")
        return create(at, **how)

    both = [(family, socket.SOCK_STREAM, 6, "", (at, 0)) for family, at in ((V4, "127.0.0.1"), (V6, "::1"))]
    monkeypatch.setattr("colonnade.wire.connection_gate.socket.create_server", create_here)
    monkeypatch.setattr("colonnade.wire.connection_gate.socket.getaddrinfo", lambda *_, **__: both)
    (found,) = _open_listeners("localhost", 0)
    assert found.family == V4
    found.close()
    for others in ({V4: code, V6: code}, {V4: errno.EADDRINUSE, V6: code}):
        absent.update(others)
        refused(OSError, "not here", _open_listeners, "localhost", 0)


class Visitor(UnauthenticatedConnection):
    dropped = False

    def drop(self) -> None:
        self.dropped = True


def test_the_oldest_of_the_fullest_address_makes_room() -> None:
    crowd = UnauthenticatedPool(4)
    visitors = [Visitor(home) for home in ("a", "b", "b", "c", "c", "d")]
    for visitor in visitors:
        crowd.add(visitor)
    assert [visitor.dropped for visitor in visitors] == [False, True, False, True, False, False]
    assert network_of("2001:db8:1:2:3::4") == network_of("2001:db8:1:2:ffff::") != network_of("2001:db8::1")
    assert network_of("::ffff:192.0.2.7") == network_of("192.0.2.7") != network_of("192.0.2.8")
    assert network_of("fe80::1%eth0") == "fe80::/64"


def test_only_the_whole_greeting_of_a_client_is_passed_on() -> None:
    whole = hello()
    assert (starts_with_client_hello(whole), starts_with_client_hello(whole + b"more")) == (True, True)
    assert {starts_with_client_hello(whole[:length]) for length in range(len(whole))} == {None}
    for at in (0, 1, 5):
        for length in (at + 1, len(whole)):
            changed = bytearray(whole[:length])
            changed[at] ^= 0xFF
            assert starts_with_client_hello(bytes(changed)) is False
    assert starts_with_client_hello(b"\x16\x03\x01\xff\xff\x01") is False


@pytest.mark.parametrize(("allowed", "lanes"), [(256, 1), (1024, 31), (4096, 128), (20_000, 128)])
def test_lanes_leave_descriptors_for_others(monkeypatch: pytest.MonkeyPatch, allowed: int, lanes: int) -> None:
    assert unauthenticated_places(3) >= unauthenticated_places(10_000) >= 1
    monkeypatch.setattr(connection_gate, "_raise_descriptor_limit", lambda useful: min(useful, allowed))
    assert lane_places(4, 4, 128) == lanes
    taken = 2 * connection_gate.DESCRIPTORS_EACH * (4 + 4 * lanes + unauthenticated_places(4 + 4 * lanes))
    assert taken <= allowed


# --- from one connection to the other


class Way:
    """A way from one socket to another and back, as the door has it; who uses it holds the two outer ends."""

    def __init__(self, stack: ExitStack) -> None:
        self.near, self._near = map(stack.enter_context, _soon_full())
        self.far, self._far = map(stack.enter_context, _soon_full())
        self.lost: list[str] = []
        self.near_side = ProxySide(lambda data: self._pass(self.far_side, data), lambda: self._ends("near"))
        self.far_side = ProxySide(lambda data: self._pass(self.near_side, data), lambda: self._ends("far"))
        self.near_side.other, self.far_side.other = self.far_side, self.near_side
        stack.callback(self.near_side.abort)
        stack.callback(self.far_side.abort)
        self.passed = 0

    async def open(self) -> Self:
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: self.near_side, self._near)
        await loop.connect_accepted_socket(lambda: self.far_side, self._far)
        return self

    def _pass(self, sink: ProxySide, data: bytes) -> None:
        sink.send(data)
        self.passed += len(data)

    def _ends(self, which: str) -> None:
        self.lost.append(which)
        self.near_side.close()
        self.far_side.close()

    async def has_ended(self) -> None:
        while sorted(self.lost) != ["far", "near"]:
            await asyncio.sleep(0.001)

    async def carries(self, data: bytes, more: int = 0) -> bytes:
        """What arrives of so many bytes."""
        arriving = asyncio.create_task(_read(self.far, len(data) + more))
        await asyncio.get_running_loop().sock_sendall(self.near, data)
        return await arriving

    async def filled(self, size: int) -> Any:
        """Somebody sends so many bytes; return when it takes no more of them."""
        sending, before = asyncio.create_task(asyncio.get_running_loop().sock_sendall(self.near, _data(size))), -1
        while before != self.passed:
            before = self.passed
            await asyncio.sleep(0.05)
        return sending


def _soon_full() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection with small buffers."""
    ends = connected()
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        end.setblocking(False)
    return ends


def _play(act: Callable[[Callable[[], Any]], Any]) -> None:
    async def run() -> None:
        with ExitStack() as stack:
            try:
                await act(lambda: Way(stack).open())
            finally:
                stack.pop_all().close()
                await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), SECONDS))


async def _read(end: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer if there are no more."""
    loop, found = asyncio.get_running_loop(), b""
    while len(found) < size and (data := await loop.sock_recv(end, size - len(found))):
        found += data
    return found


def _data(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def test_all_bytes_arrive_in_order_both_ways_at_once_and_before_the_end() -> None:
    async def act(open_way: Callable[[], Any]) -> None:
        way, loop = await open_way(), asyncio.get_running_loop()
        there, back = _data(2_000_003), _data(1_000_001, 1)
        sending = loop.sock_sendall(way.far, back)
        found = await asyncio.gather(way.carries(there), _read(way.near, len(back)), sending)
        assert found[:2] == [there, back]
        assert way.passed == len(there) + len(back)
        sending = await way.filled(2_000_000)
        arriving = asyncio.create_task(_read(way.far, 2_000_001))
        await sending
        way.near.close()
        assert await arriving == _data(2_000_000)
        await way.has_ended()

    _play(act)


def test_who_does_not_read_stops_its_sender_and_nobody_else() -> None:
    size = 10_000_000

    async def act(open_way: Callable[[], Any]) -> None:
        stuck, free = await open_way(), await open_way()
        sending = await stuck.filled(size)
        assert not sending.done()
        assert stuck.passed < size // 2  # so little is held that the sender notices
        assert await free.carries(_data(1_000_000, 1)) == _data(1_000_000, 1)
        assert await _read(stuck.far, size) == _data(size)
        await sending

    _play(act)


@pytest.mark.parametrize("aborted", [True, False], ids=["aborted", "reset"])
def test_bytes_for_a_connection_that_broke_reach_nobody_else(aborted: bool) -> None:
    async def act(open_way: Callable[[], Any]) -> None:
        broken, whole = await open_way(), await open_way()
        broken.far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sending = await broken.filled(20_000_000)
        if aborted:
            broken.far_side.abort()
        else:
            broken.far.close()  # with a reset
        with suppress(ConnectionError):
            await sending
        await broken.has_ended()
        assert not aborted or len(await _read(broken.far, 20_000_000)) < 20_000_000
        assert await whole.carries(_data(1_000_000, 1)) == _data(1_000_000, 1)
        assert whole.lost == []

    _play(act)
