"""A standing hub: rooms that open and close, members that come and go, and questions that it answers."""

from __future__ import annotations

import gc
import ssl
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from colonnade.errors import ConnectError, IdentityError, ProtocolError
from colonnade.wire import Caller, Certificate, Endpoint, Hub, Identity, Service, dial, register
from colonnade.wire.quota import Memory
from tests.support.errors import raises
from tests.support.refusals import refused

NAMES = ("bank", "clinic", "coordinator", "shop")
ROOMS = ("one.1", "two.1")


@pytest.fixture(scope="module")
def people() -> SimpleNamespace:
    identities = {name: Identity.create(name) for name in NAMES}
    return SimpleNamespace(
        **identities, all=identities, pins={name: who.certificate for name, who in identities.items()}
    )


async def echo(caller: str, asked: bytes) -> bytes:
    if asked == b"refuse":
        raise ProtocolError("this is not asked here")
    if asked == b"not you":
        raise IdentityError("this is not for you")
    if asked == b"fail":
        raise RuntimeError("a secret of the hub")
    return caller.encode() + b":" + asked


@pytest.fixture
def hub(people: Any) -> Iterator[Hub]:
    service = Service("colonnade.Test", "Echo", echo, most=5 << 20)
    with Hub(people.coordinator, people.pins, services=[service], rooms={}) as hub:
        yield hub


def join(hub: Hub, who: Identity, people: Any, room: str, **options: Any) -> Endpoint:
    return dial(hub.address, who, people.pins, room=room, topic=room.encode(), connect_timeout=10.0, **options)


def ask(hub: Hub, who: Identity, people: Any, body: bytes, **options: Any) -> bytes:
    with Caller(hub.address, who, people.pins["coordinator"]) as caller:
        return caller.ask("colonnade.Test", "Echo", body, **options)


def closed(*endpoints: Endpoint) -> None:
    threads = [threading.Thread(target=endpoint.close) for endpoint in endpoints]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_two_rooms_at_once_do_not_meet(people: Any, hub: Hub) -> None:
    hub.open("one.1", ["bank", "shop"])
    hub.open("two.1", ["bank", "shop", "clinic"])
    places = {room: (join(hub, people.bank, people, room), join(hub, people.shop, people, room)) for room in ROOMS}
    for room, (bank, _) in places.items():
        bank.channel("shop").send("word", room=room)
    for room, (_, shop) in places.items():
        assert shop.channel("bank").recv("word") == {"room": room}
    assert hub.rooms == {room: frozenset({"bank", "shop"}) for room in places}
    traffic = hub.traffic
    assert (traffic.rooms, traffic.present) == (2, frozenset({"bank", "shop"}))
    hub.close("one.1", "it is over")
    assert hub.traffic.carried >= traffic.carried > 1000
    closed(*(place for both in places.values() for place in both))


def test_a_room_that_nobody_opened_is_refused(people: Any, hub: Hub) -> None:
    for room in ("", "three.1"):
        refused(ConnectError, "CN041", dial, hub.address, people.bank, people.pins, room=room, connect_timeout=0.1)


def test_one_who_is_not_named_is_refused_in_a_room(people: Any, hub: Hub) -> None:
    hub.open("one.1", ["bank", "shop"])
    refused(IdentityError, "ID041", join, hub, people.clinic, people, "one.1")
    assert hub.traffic.refused == {"identity": 1}


def test_a_room_that_closes_ends_its_connections_with_one_sentence(people: Any, hub: Hub) -> None:
    hub.open("one.1", ["bank", "shop"])
    hub.open("two.1", ["bank", "shop"])
    bank, other = join(hub, people.bank, people, "one.1"), join(hub, people.bank, people, "two.1")
    shop = join(hub, people.shop, people, "two.1")
    hub.close("one.1", "its attempt is over")
    refused(ConnectError, ("CN023", "bank"), bank.channel("shop").recv, "word")
    refused(ConnectError, "CN040", join, hub, people.shop, people, "one.1")
    other.channel("shop").send("word")
    assert shop.channel("bank").recv("word") == {}
    assert set(hub.rooms) == {"two.1"}
    closed(bank, other, shop)


@pytest.mark.parametrize("room", ["a/b", "ä", "x" * 101, "new\nline"])
def test_names_that_no_room_has(hub: Hub, room: str) -> None:
    refused(ProtocolError, ("MS089", "b"), hub.open, room, ["bank"])


def test_a_room_is_opened_once_and_for_members_only(hub: Hub) -> None:
    hub.open("one.1", ["bank"])
    refused(ProtocolError, ("MS090", "one.1"), hub.open, "one.1", ["bank"])
    refused(IdentityError, ("ID040", "ghost"), hub.open, "two.1", ["bank", "ghost"])
    assert set(hub.rooms) == {"one.1"}


def test_members_come_and_go_while_the_hub_runs(people: Any, hub: Hub) -> None:
    gym = Identity.create("gym")
    pins = SimpleNamespace(pins={**people.pins, "gym": gym.certificate})
    refused(IdentityError, ("ID018", "gym"), ask, hub, gym, pins, b"hello")
    hub.admit("gym", gym.certificate)
    assert ask(hub, gym, pins, b"hello") == b"gym:hello"
    hub.open("one.1", ["gym", "bank"])
    place, bank = join(hub, gym, pins, "one.1"), join(hub, people.bank, pins, "one.1", reconnect_grace=0.5)
    bank.wait_for_peers(["gym"])
    hub.dismiss("gym")
    refused(ConnectError, ("CN023", "gym"), place.channel("bank").recv, "word")
    refused(IdentityError, ("ID018", "gym"), ask, hub, gym, pins, b"hello")
    closed(place, bank)


def test_a_new_certificate_replaces_the_old_one(people: Any, hub: Hub) -> None:
    hub.open("one.1", ["bank", "shop"])
    bank = join(hub, people.bank, people, "one.1")
    again = Identity.create("bank")
    hub.admit("bank", again.certificate)
    refused(ConnectError, ("CN023", "bank"), bank.channel("shop").recv, "word")
    pins = SimpleNamespace(pins={**people.pins, "bank": again.certificate})
    assert ask(hub, again, pins, b"hello") == b"bank:hello"
    refused(IdentityError, (), ask, hub, people.bank, people, b"hello")
    refused(IdentityError, ("ID033", "shop"), hub.admit, "bank", people.pins["shop"])
    closed(bank)


def test_a_hub_that_stops_lets_its_rooms_end(people: Any) -> None:
    hub = Hub(people.coordinator, people.pins, rooms={"one.1": ["bank", "shop"]}).start()
    bank, shop = join(hub, people.bank, people, "one.1"), join(hub, people.shop, people, "one.1")
    stopping = threading.Thread(target=hub.stop, args=(600.0,))
    stopping.start()
    while not hub._rooms.ending:
        time.sleep(0.01)
    refused(ConnectError, "CN038", hub.open, "two.1", ["bank"])
    bank.channel("shop").send("word")
    assert shop.channel("bank").recv("word") == {}
    assert stopping.is_alive()
    closed(bank, shop)
    stopping.join(300)
    assert not stopping.is_alive()


def test_the_certificate_that_the_hub_shows_is_renewed(people: Any, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> str:
        host, port = hub.address.split(":")
        return ssl.get_server_certificate((host, int(port)), timeout=20)

    first = shown()
    assert shown() == first
    monkeypatch.setattr(register, "_RENEWAL", 0.0)
    assert shown() != first
    assert ask(hub, people.bank, people, b"hello") == b"bank:hello"


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (5 << 20) - 7, 5 << 20])
def test_questions_of_any_length_are_answered(people: Any, hub: Hub, size: int) -> None:
    assert ask(hub, people.bank, people, bytes(size)) == b"bank:" + bytes(size)


def test_a_question_that_was_answered_leaves_nothing_to_collect(people: Any, hub: Hub) -> None:
    with Caller(hub.address, people.bank, people.pins["coordinator"]) as caller:
        gc.collect()
        gc.disable()
        try:
            for _ in range(20):
                caller.ask("colonnade.Test", "Echo", b"x")
            kept = sum(type(each) is Memory for each in gc.get_objects())
        finally:
            gc.enable()
    assert kept <= 2  # the last ones may be about to end


def test_a_question_that_is_too_long_is_refused(people: Any, hub: Hub) -> None:
    refused(ProtocolError, ("CN044", "5242880"), ask, hub, people.bank, people, bytes((5 << 20) + 1))


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (b"refuse", ProtocolError, "MS052"),
        (b"not you", IdentityError, "ID011"),
        (b"fail", ConnectError, "CN012"),
    ],
)
def test_why_a_question_has_no_answer(people: Any, hub: Hub, body: bytes, kind: type[Exception], said: str) -> None:
    refused(kind, said, ask, hub, people.bank, people, body)


def test_a_question_that_nobody_answers(people: Any, hub: Hub) -> None:
    with (
        Caller(hub.address, people.bank, people.pins["coordinator"]) as caller,
        raises(ProtocolError, "MS053"),
    ):
        caller.ask("colonnade.Test", "Nothing", b"")


def test_a_caller_cannot_take_the_name_of_another(people: Any, hub: Hub) -> None:
    liar = Identity(people.shop._key, Certificate("bank", people.shop.certificate.pem))
    refused(IdentityError, ("ID037", "bank"), ask, hub, liar, people, b"hello")


def test_a_caller_says_that_nothing_listens_and_goes_on_when_something_does(people: Any) -> None:
    service = Service("colonnade.Test", "Echo", echo)
    hub = Hub(people.coordinator, people.pins, services=[service]).start()
    with Caller(hub.address, people.bank, people.pins["coordinator"]) as caller:
        assert caller.ask("colonnade.Test", "Echo", b"1") == b"bank:1"
        hub.stop()
        refused(ConnectError, "CN026", caller.ask, "colonnade.Test", "Echo", b"2")
        with Hub(people.coordinator, people.pins, hub.address, services=[service]):
            assert caller.ask("colonnade.Test", "Echo", b"3") == b"bank:3"
