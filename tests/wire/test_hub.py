"""A hub: who may dial it, rooms that open and close, members that come and go, its answers and its health."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from colonnade.errors import ConnectError, IdentityError, ProtocolError
from colonnade.wire import (
    Caller,
    Certificate,
    Hub,
    Identity,
    Service,
    certificates,
    dial,
    hub_carrier,
    hub_probe,
    probe,
    register,
    tls,
)
from colonnade.wire.hub_carrier import open_channel
from colonnade.wire.watch import Limits
from tests.support.errors import refused
from tests.support.waiting import until
from tests.support.wires import SECONDS, closed, join, says

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
        for module in (certificates, hub_probe, tls):
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
        monkeypatch.setattr("colonnade.wire.hub_carrier.grpc.secure_channel", lambda *_, found=found: found)
        line = hub_carrier._Line("127.0.0.1:1", people.bank, people.hub, 1, Limits.heartbeat)
        if called_off:  # as gRPC does it when the other side is gone
            found.cancel()
            refused(Ended, (), next, line.messages)
        else:
            refused(ConnectError, "CN022", line.await_roster, 0.05)


# --- rooms and questions


async def echo(caller: str, asked: bytes) -> bytes:
    if asked == b"refuse":
        raise ProtocolError("this is not asked here")
    if asked == b"not you":
        raise IdentityError("this is not for you")
    if asked == b"fail":
        raise RuntimeError("a secret of the hub")
    return caller.encode() + b":" + asked


ECHO = Service("colonnade.Test", "Echo", echo, most=5 << 20)


@pytest.fixture
def standing(people: Any) -> Iterator[Hub]:
    """A hub that answers questions, and where rooms open and close."""
    with Hub(people.coordinator, people.everybody, services=[ECHO], rooms={}) as hub:
        yield hub


def ask(hub: Hub, who: Identity, people: Any, body: bytes, method: str = "Echo") -> bytes:
    with Caller(hub.address, who, people.hub) as caller:
        return caller.ask("colonnade.Test", method, body)


def test_a_hub_may_restart_and_one_that_stays_away_is_missed(people: Any) -> None:
    hub = Hub(people.coordinator, people.pins, services=[ECHO]).start()
    bank, shop = (join(hub, name, reconnect_grace=30) for name in ("bank", "shop"))
    says(bank, shop, "one")
    with Caller(hub.address, people.bank, people.hub) as caller:
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
        return ssl.get_server_certificate((host, int(port)), timeout=20)

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
            list(channel.stream_stream("/colonnade.Test/Echo")(iter([b""]), timeout=20))
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
