"""Lanes of rooms at a standing hub: they open for those who are in their room, and close with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from colonnade.errors import ConnectError, IdentityError, ProtocolError
from colonnade.wire import Endpoint, Hub, HubLimits, Identity, dial, strangers
from colonnade.wire.circle import Connection
from colonnade.wire.envelope import MAX_ENVELOPE
from colonnade.wire.lanes import home_of, lane_room, lane_topic
from colonnade.wire.packet import MAX_PACKET
from colonnade.wire.quota import UNLIMITED, Account, Refusal
from colonnade.wire.rooms import LaneLimits, Rooms
from colonnade.wire.workers import WorkerKeys, introduce
from tests.support.refusals import refused

from .test_lanes import closed, talk, until_open

STUDY = "0123456789abcdef" * 2
FIRST, SECOND, PLAIN = f"{STUDY}.1", f"{STUDY}.2", "plain.1"
PEOPLE = ("bank", "coordinator", "shop")


class Workers:
    """A worker of everybody, for one attempt at a study in its room."""

    def __init__(self, members: Any, room: str) -> None:
        self.room, self.topic = room, f"digest {room}".encode()
        self.pins = {name: members.pins[name] for name in PEOPLE}
        until = datetime.now(UTC) + timedelta(hours=6)
        self.keys = {name: WorkerKeys.create(name) for name in PEOPLE}
        self.told = {
            name: introduce(members.all[name], keys.request, self.topic, until) for name, keys in self.keys.items()
        }

    def join(self, hub: Hub, name: str, partition: int = 0, **options: Any) -> Endpoint:
        settings: dict[str, Any] = {"connect_timeout": 20.0, "home": self.room} | options
        return self.keys[name].join_lane(hub.address, partition, 1, self.told, self.pins, self.topic, **settings)

    def all_join(self, hub: Hub, partition: int = 0) -> dict[str, Endpoint]:
        return {name: self.join(hub, name, partition) for name in PEOPLE}

    def topic_of(self, partition: int) -> bytes:
        workers = {name: keys.certificate for name, keys in self.keys.items()}
        return lane_topic(self.topic, partition, 1, workers)

    def lane(self, partition: int = 0) -> str:
        return lane_room(partition, 1, self.topic_of(partition), self.room)

    def sent_to(self, hub: Hub, name: str, room: str, topic: bytes = b"") -> Endpoint:
        """Its worker, in a room that somebody chose for it."""
        workers = {peer: keys.certificate for peer, keys in self.keys.items()}
        guest = self.keys[name].admission(self.told[name], self.pins[name], self.topic)
        settings: dict[str, Any] = {"hub": self.pins["coordinator"], "guest": guest, "connect_timeout": 0.1}
        return dial(hub.address, self.keys[name]._identity, workers, room=room, topic=topic, **settings)


@pytest.fixture(scope="module")
def members() -> SimpleNamespace:
    identities = {name: Identity.create(name) for name in (*PEOPLE, "clinic")}
    return SimpleNamespace(all=identities, pins={name: who.certificate for name, who in identities.items()})


@pytest.fixture(scope="module")
def attempts(members: Any) -> list[Workers]:
    return [Workers(members, room) for room in (FIRST, SECOND)]


@pytest.fixture
def hub(members: Any) -> Iterator[Hub]:
    limits, lanes = HubLimits(connections=1, lanes=4), LaneLimits(each=2, studies=2)
    with Hub(members.all["coordinator"], members.pins, rooms={}, lanes=lanes, limits=limits) as hub:
        hub.open(PLAIN, PEOPLE)
        for room in (FIRST, SECOND):
            hub.open(room, PEOPLE, lanes=True)
        yield hub


def test_lanes_of_two_attempts_at_the_same_time_never_meet(hub: Hub, attempts: list[Workers]) -> None:
    first, second = attempts
    lanes = [each.all_join(hub) for each in attempts]
    assert {room: present for room, present in hub.rooms.items() if present} == {
        each.lane(): set(PEOPLE) for each in attempts
    }
    assert (hub.traffic.rooms, hub.traffic.lanes) == (3, 2)
    for number, places in enumerate(lanes):
        talk(places, f"attempt {number}")
    closed(*lanes)
    until_open(hub, {PLAIN, FIRST, SECOND})
    # A hub that puts a worker of one attempt into the lane of another brings no session about.
    bank, lost = first.join(hub, "bank"), second.sent_to(hub, "shop", first.lane(), second.topic_of(0))
    refused(IdentityError, "ID045", lost.wait_for_peers, ["bank"], timeout=20.0)
    closed({"bank": bank, "shop": lost})


def test_a_room_that_closes_takes_its_lanes_along_and_no_others(hub: Hub, attempts: list[Workers]) -> None:
    first, second = attempts
    ended, others = first.all_join(hub), second.all_join(hub)
    hub.close(FIRST, "this attempt is over")
    for name, place in ended.items():
        refused(ConnectError, ("CN023", name), place.channel(place.peers[0]).recv, "word")
    for partition in (0, 1):  # those that were open, and any other
        refused(ConnectError, "CN040", first.join, hub, "shop", partition)
    talk(others, "still here")
    hub.open(FIRST, PEOPLE, lanes=True)
    again = first.all_join(hub)
    talk(again, "open again")
    closed(ended, others, again)


def test_lanes_that_are_not_needed_any_more_are_closed_and_the_room_stays(
    hub: Hub, members: Any, attempts: list[Workers]
) -> None:
    first, second = attempts
    head = dial(hub.address, members.all["bank"], first.pins, room=FIRST)
    left = first.join(hub, "bank")
    hub.close_lanes(FIRST, "this attempt is over")
    refused(ConnectError, "CN023", left.channel("shop").recv, "word")
    refused(ConnectError, "CN041", first.join, hub, "bank", connect_timeout=0.1)
    assert hub.rooms[FIRST] == {"bank"}
    hub.open(f"{STUDY}.3", PEOPLE, lanes=True)  # in its place
    closed({"head": head, "left": left, "other": second.join(hub, "bank")})


def test_whoever_is_not_in_the_room_is_not_in_its_lanes(hub: Hub, members: Any, attempts: list[Workers]) -> None:
    clinic = members.all["clinic"]
    for lane in (attempts[0].lane(), lane_room(9, 1, b"", FIRST)):
        refused(IdentityError, "ID041", dial, hub.address, clinic, members.pins, room=lane, connect_timeout=0.1)
    assert hub.traffic.lanes == 0


def test_lanes_of_rooms_that_have_none(hub: Hub, attempts: list[Workers]) -> None:
    first = attempts[0]
    nowhere = (lane_room(0, 1, b"", PLAIN), lane_room(0, 1, b"", f"{STUDY}.9"), lane_room(0, 1, b""))
    for lane in nowhere:
        refused(ConnectError, "CN041", first.sent_to, hub, "bank", lane)
    for room in (FIRST, PLAIN, f"{FIRST}.lane-0-1"):  # a worker is let into lanes alone, also where its party is
        refused(IdentityError, ("ID038", "bank"), first.sent_to, hub, "bank", room)


def test_one_study_cannot_take_the_lanes_of_another(hub: Hub, members: Any, attempts: list[Workers]) -> None:
    first, second = attempts
    held = {str(n): first.join(hub, "bank", n) for n in range(2)}
    refused(ConnectError, ("CN042", "2"), first.join, hub, "bank", 2, connect_timeout=0.1)
    held["shop"] = first.join(hub, "shop", 1)  # those that are open can still be joined
    held |= {f"other {n}": second.join(hub, "bank", n) for n in range(2)}
    held["head"] = dial(hub.address, members.all["bank"], first.pins, room=FIRST)  # lanes are not counted with it
    refused(
        ConnectError,
        ("CN034", "1", "connections"),
        dial,
        hub.address,
        members.all["bank"],
        first.pins,
        room=SECOND,
        connect_timeout=0.1,
    )
    closed(held)


def test_a_member_has_so_many_places_in_lanes_and_no_more(members: Any, attempts: list[Workers]) -> None:
    limits = HubLimits(lanes=1)
    with Hub(members.all["coordinator"], members.pins, rooms={}, lanes=LaneLimits(), limits=limits) as hub:
        hub.open(FIRST, PEOPLE, lanes=True)
        held = {"0": attempts[0].join(hub, "bank")}
        refused(ConnectError, ("CN034", "1"), attempts[0].join, hub, "bank", 1, connect_timeout=0.1)
        held["coordinator"] = attempts[0].join(hub, "coordinator", 1)  # whose hub it is
        held["again"] = attempts[0].join(hub, "coordinator", 2)
        closed(held)


def test_how_many_lanes_a_study_may_have(monkeypatch: pytest.MonkeyPatch, members: Any) -> None:
    lanes = LaneLimits(each=32, studies=4)
    found = Rooms(PEOPLE, lambda name: Account(name, UNLIMITED), bytes, None, lanes)
    assert [found.most_lanes(size) for size in (3, 8, 16, 65)] == [32, 32, 16, 3]
    # few descriptors: every study has its part of what there is, and at least one
    monkeypatch.setattr(strangers, "_descriptors", lambda useful: min(useful, 8192))
    with Hub(members.all["coordinator"], members.pins, rooms={}, lanes=lanes, limits=HubLimits()) as hub:
        everybody = HubLimits().all_connections(4)
        room = 8192 - 64 - 6 * (everybody + 32)
        assert hub.most_lanes(3) == 32
        assert hub.most_lanes(8) == room // 48 * 8 // 32 < 32
        assert hub.most_lanes(1000) == 1


def test_what_a_room_with_lanes_may_be() -> None:
    found = Rooms(PEOPLE, lambda name: Account(name, UNLIMITED), bytes, None, LaneLimits(each=1, studies=1))
    lane = lane_room(0, 1, b"", FIRST)
    assert home_of(lane) == FIRST
    assert [home_of(room) for room in (FIRST, f"{FIRST}.lane-0-1", f".{lane_room(0, 1, b'')}")] == [None] * 3
    assert home_of(lane_room(0, 1, b"")) == ""
    refused(ValueError, "VA272", lane_room, 0, 1, b"", "no/room")
    for name in (lane, lane_room(0, 1, b"")):
        refused(ProtocolError, "MS089", found.add, name, PEOPLE)
    found.add(FIRST, PEOPLE, lanes=True)
    refused(ConnectError, ("CN039", "1"), found.add, SECOND, PEOPLE, lanes=True)
    found.add(SECOND, PEOPLE)
    circle = found.find(lane, "bank")
    assert circle.names == frozenset(PEOPLE)
    found.enter(lane, circle)
    assert (found.lanes, found.find(lane, "shop")) == (1, circle)
    found.shut(FIRST, "it is over")
    found.leave(lane)  # as whoever was in it does then
    assert (found.lanes, set(found.open)) == (0, {SECOND})
    refused(Refusal, "CN040", found.find, lane, "bank")
    refused(Refusal, "CN041", found.find, lane_room(0, 1, b"", SECOND), "bank")


def test_how_much_waits_in_a_lane_for_one_who_does_not_read() -> None:
    found = Rooms(PEOPLE, lambda name: Account(name, UNLIMITED), bytes, None, LaneLimits())
    found.add(FIRST, PEOPLE, lanes=True)
    queue = found.find(lane_room(0, 1, b"", FIRST), "bank").queue

    async def filled() -> int:
        connection = Connection("bank", 1, stall=0.01, queue=queue)
        for _ in range(queue // 2048):
            await connection.put(bytes(1900))
        while not connection.ended.done():
            await connection.put(bytes(MAX_ENVELOPE))
        return connection._bytes

    assert 2.5 * MAX_PACKET < asyncio.run(filled()) < 3 * MAX_PACKET + 1024
