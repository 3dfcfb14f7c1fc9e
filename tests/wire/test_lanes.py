"""Lanes at real hubs: workers of all participants meet, several lanes at once, and nobody else does.

At a hub of one study they open by themselves; at a standing one for those who are in their room, and close with it.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from queue import Queue
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from colonnade.errors import ColonnadeError, ConnectError, IdentityError, ProtocolError, StudyError
from colonnade.wire import Caller, Endpoint, Hub, HubLimits, Identity, Service, certificates, dial, envelope, strangers
from colonnade.wire.direct import Direct
from colonnade.wire.hub_carrier import open_channel
from colonnade.wire.identity import ConnectionCertificate
from colonnade.wire.lanes import home_of, lane_room, lane_topic
from colonnade.wire.links import LinkCarrier
from colonnade.wire.offer import Offer
from colonnade.wire.packet import MAX_PACKET
from colonnade.wire.quota import UNLIMITED, Account, Refusal
from colonnade.wire.rooms import LaneLimits, Rooms
from colonnade.wire.workers import Admission, WorkerKeys, introduce
from tests.support import wires
from tests.support.errors import refused
from tests.support.waiting import until
from tests.support.wires import NAMES, SECONDS, closed, says

FOUR = ("bank", "clinic", "coordinator", "shop")
STUDY = "0123456789abcdef" * 2
FIRST, SECOND, PLAIN = f"{STUDY}.1", f"{STUDY}.2", "plain.1"
PINS = {name: wires.people().everybody[name] for name in FOUR}


class Crew:
    """A worker of every participant with its introduction, for one attempt at a study, in its room if it has one."""

    def __init__(self, home: str = "", names: Any = FOUR, identities: Any = None, topic: bytes = b"") -> None:
        self.options, self.topic = {"home": home} if home else {}, topic or f"digest {home}".encode()
        self.keys = {name: WorkerKeys.create(name) for name in names}
        self.pins = {name: PINS[name] for name in names}
        self._heads, self._until = identities or wires.people().all, datetime.now(UTC) + timedelta(hours=6)
        self.told = {name: self._introduced(name) for name in names}

    def _introduced(self, name: str) -> bytes:
        return introduce(self._heads[name], self.keys[name].request, self.topic, self._until)

    def mixed(self, **told: bytes) -> Crew:
        """The same who were told of these others."""
        other = Crew.__new__(Crew)
        other.__dict__ = self.__dict__ | {"told": self.told | told}
        return other

    def join(self, hub: Hub, name: str, lane: tuple[int, int] = (0, 1), **options: Any) -> Endpoint:
        settings = {"connect_timeout": SECONDS, **self.options, **options}
        return self.keys[name].join_lane(hub.address, *lane, self.told, self.pins, self.topic, **settings)

    def all_join(self, hub: Hub, lane: tuple[int, int] = (0, 1), **options: Any) -> dict[str, Endpoint]:
        return {name: self.join(hub, name, lane, **options) for name in self.told}

    def certificates(self) -> dict[str, Any]:
        return {name: keys.certificate for name, keys in self.keys.items()}

    def topic_of(self, lane: tuple[int, int] = (0, 1)) -> bytes:
        return lane_topic(self.topic, *lane, self.certificates())

    def lane(self, lane: tuple[int, int] = (0, 1)) -> str:
        return lane_room(*lane, self.topic_of(lane), *self.options.values())

    def guest(self, name: str) -> Admission:
        return self.keys[name].admission(self.told[name], PINS[name], self.topic)

    def sent_to(self, hub: Hub, name: str, room: str, topic: bytes = b"", **options: Any) -> Endpoint:
        """Its worker, in a room that somebody chose for it."""
        settings = {"hub": PINS["coordinator"], "guest": self.guest(name), "connect_timeout": 0.1, **options}
        workers = settings.pop("workers", self.certificates())
        return dial(hub.address, self.keys[name]._identity, workers, room=room, topic=topic, **settings)


@pytest.fixture(scope="module")
def crews() -> list[Crew]:
    return [Crew(), Crew()]


@pytest.fixture(scope="module")
def attempts() -> list[Crew]:
    return [Crew(room, NAMES) for room in (FIRST, SECOND)]


@pytest.fixture
def hub(people: Any) -> Iterator[Hub]:
    """A hub of one study, where lanes open by themselves."""
    with Hub(people.coordinator, PINS, lanes=True) as hub:
        yield hub


@pytest.fixture
def standing(people: Any) -> Iterator[Hub]:
    """A hub with two rooms that have lanes, and one that has none."""
    limits, lanes = HubLimits(connections=1, lanes=4), LaneLimits(each=2, studies=2)
    with Hub(people.coordinator, people.everybody, rooms={}, lanes=lanes, limits=limits) as hub:
        hub.open(PLAIN, NAMES)
        for room in (FIRST, SECOND):
            hub.open(room, NAMES, lanes=True)
        yield hub


def talk(places: Mapping[str, Endpoint], word: str) -> None:
    """Everybody says a word to everybody, and hears it."""
    for name, place in places.items():
        for peer in place.peers:
            place.channel(peer).send("word", word=f"{word} of {name}")
    for place in places.values():
        assert [place.channel(peer).recv("word")["word"] for peer in place.peers] == [
            f"{word} of {peer}" for peer in place.peers
        ]


def all_closed(*groups: Mapping[str, Endpoint]) -> None:
    closed(*(place for places in groups for place in places.values()))


def until_open(hub: Hub, expected: set[str]) -> None:
    until(lambda: set(hub.rooms) == expected)


def test_lanes_at_two_hubs_and_one_that_dies_takes_only_its_own(people: Any, crews: list[Crew]) -> None:
    hubs = [Hub(people.coordinator, PINS, rooms={}, lanes=True).start() for _ in range(2)]
    try:
        lanes = [crew.all_join(hubs[number], (number, 1), reconnect_grace=0.5) for number, crew in enumerate(crews)]
        assert [set(hub.rooms) for hub in hubs] == [{crew.lane((n, 1))} for n, crew in enumerate(crews)]
        for number, places in enumerate(lanes):
            talk(places, f"lane {number}")
        hubs[1].stop()
        for place in lanes[1].values():
            refused(ConnectError, (), place.channel(place.peers[0]).recv, "word")
        again = crews[1].all_join(hubs[0], (1, 2))  # beside the other lane
        talk(again, "repeated")
        talk(lanes[0], "still here")
        all_closed(*lanes, again)
        until_open(hubs[0], set())  # they are forgotten when the last one has left
    finally:
        for hub in hubs:
            hub.stop()


@pytest.mark.parametrize("direct", [None, Direct()], ids=["through the hub", "directly"])
def test_a_worker_with_another_key_gets_neither_session_nor_link(hub: Hub, crews: list[Crew], direct: Any) -> None:
    # Another worker of the same party, which may join the room, is not the one that was introduced for this lane.
    told, other = crews
    listens = Direct(listen="127.0.0.1:20000-29999") if direct else None
    shop = told.join(hub, "shop", direct=listens)
    workers = told.certificates() | {"bank": other.keys["bank"].certificate}
    bank = other.sent_to(hub, "bank", told.lane(), told.topic_of(), workers=workers, direct=direct)
    shop.channel("bank").open()
    refused(ColonnadeError, (), bank.wait_for_peers, ["shop"], timeout=SECONDS)
    refused(IdentityError, ("ID043", "bank"), shop.wait_for_peers, ["bank"], timeout=SECONDS)
    assert not shop.channel("bank").is_ready
    if direct:
        assert (bank.ways["shop"].links, shop.ways["bank"].links) == (0, 0)
    closed(bank, shop)


def test_those_who_were_told_of_different_workers_do_not_meet(hub: Hub, crews: list[Crew]) -> None:
    # The coordinator tells the bank of one worker of the clinic, and the shop of another, each well introduced.
    mixed = crews[0].mixed(clinic=crews[1].told["clinic"])
    mixed.keys = crews[0].keys | {"clinic": crews[1].keys["clinic"]}
    bank, shop = crews[0].join(hub, "bank"), mixed.join(hub, "shop")
    assert hub.rooms == {"": set(), crews[0].lane(): {"bank"}, mixed.lane(): {"shop"}}
    closed(shop)
    # and a hub that puts them into one room
    shop = mixed.sent_to(hub, "shop", crews[0].lane(), mixed.topic_of())
    refused(StudyError, ("ST612", "bank"), shop.wait_for_peers, ["bank"])
    closed(bank, shop)


def test_what_a_hub_or_a_coordinator_makes_up_is_refused_before_dialling(hub: Hub, crews: list[Crew]) -> None:
    crew = crews[0]
    forged, elsewhere = Crew(identities={name: Identity.create(name) for name in FOUR}), Crew(topic=b"x")
    fewer = crew.mixed()
    fewer.told = {name: crew.told[name] for name in ("bank", "shop")}
    for said, who in (
        (("ID054", "shop"), crew.mixed(shop=forged.told["shop"])),
        (("ID054", "clinic"), crew.mixed(clinic=elsewhere.told["clinic"])),
        (("ID053", "clinic", "shop"), crew.mixed(shop=crew.told["clinic"])),
        ("ID049", fewer),
    ):
        refused(IdentityError, said, who.join, hub, "bank")
    assert set(hub.rooms) == {""}


def test_a_worker_may_join_lanes_and_nothing_else(people: Any, crews: list[Crew]) -> None:
    async def echo(caller: str, asked: bytes) -> bytes:
        return asked

    crew, service = crews[0], Service("colonnade.Test", "Echo", echo)
    guest, said = crew.guest("bank"), ("ID038", "bank")
    with Hub(people.coordinator, PINS, services=[service], lanes=True) as hub:
        head = dial(hub.address, people.bank, PINS)
        for room in ("", "another", "lane-0-1", f"{crew.lane()}0"):
            refused(IdentityError, said, crew.sent_to, hub, "bank", room)
        with Caller(hub.address, guest, people.hub) as caller:
            refused(IdentityError, said, caller.ask, "colonnade.Test", "Echo", b"hello")
        # nor with a question that says it were about a lane
        about = [(envelope.VERSION_KEY, envelope.VERSION), (envelope.ROOM_KEY, crew.lane())]
        with open_channel(hub.address, guest, people.hub, 5.0) as channel:
            answers = channel.stream_stream("/colonnade.Test/Echo")(iter([b"hello"]), metadata=about)
            refused(grpc.RpcError, said, list, answers)
        assert hub.rooms == {"": {"bank"}}  # the head was not disturbed
        head.close()


def test_a_hub_refuses_a_worker_that_is_out_of_date(people: Any, hub: Hub, crews: list[Crew]) -> None:
    # It goes on dialling: the hub goes by the certificate, and by its own clock.
    key, over = certificates.connection_key(), datetime.now(UTC) - timedelta(minutes=1)
    issued = people.bank.issue_for_worker(certificates.request("bank", key), over)
    chain = certificates.chain_for_lanes(issued, key, PINS["bank"].parsed)
    shown = ConnectionCertificate(certificates.key_pem(key), chain)
    guest = Admission(PINS["bank"], shown, datetime.now(UTC) + timedelta(hours=1))
    refused(IdentityError, ("ID018", "bank"), crews[0].sent_to, hub, "bank", crews[0].lane(), guest=guest)


def answers(hub: Hub, people: Any) -> bool:
    """Whether gRPC takes this hub for the coordinator's; while it shakes hands it is neither."""
    states: Queue[Any] = Queue()
    known = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE)
    with open_channel(hub.address, people.bank, people.hub, 5.0) as channel:
        channel.subscribe(states.put, try_to_connect=True)
        while (state := states.get(timeout=SECONDS)) not in known:
            pass
    return bool(state is known[0])


def test_a_worker_cannot_answer_as_a_hub(people: Any, hub: Hub, crews: list[Crew]) -> None:
    # it shows what it has in place of what the coordinator's identity would issue
    with Hub(crews[0].guest("coordinator"), PINS, lanes=True) as false:
        refused(IdentityError, "ID019", crews[0].join, false, "bank")
        assert not answers(false, people)  # gRPC, which connects anew after that look, finds the same
    assert answers(hub, people)


def test_a_worker_cannot_take_the_name_of_another_party(people: Any, hub: Hub, crews: list[Crew]) -> None:
    shown = crews[0].guest("shop").issue_connection_certificate
    liar = SimpleNamespace(name="bank", certificate=PINS["bank"], issue_connection_certificate=shown)
    place = dial(hub.address, people.bank, PINS, room=crews[0].lane(), hub=people.hub, guest=liar)
    # The hub goes by the certificate: it is in the room as the shop, and what it sends as the bank ends its connection.
    assert hub.rooms[crews[0].lane()] == {"shop"}
    place._carrier.send("shop", place._carrier.prefix("shop") + b"x")
    until_open(hub, {""})
    place.close()


def test_lanes_have_a_limit_of_their_own_for_each_member_and_are_only_where_they_are_wanted(
    people: Any, crews: list[Crew]
) -> None:
    crew, limits = crews[0], HubLimits(connections=1, rooms=1, lanes=2)
    with Hub(people.coordinator, PINS, lanes=True, limits=limits) as hub:
        held = {"head": dial(hub.address, people.bank, PINS)}
        held |= {n: crew.join(hub, "bank", (n, 1)) for n in range(2)}
        refused(ConnectError, ("CN034", "2"), crew.join, hub, "bank", (2, 1), connect_timeout=0.1)
        held["shop"] = crew.join(hub, "shop", (2, 1))
        assert (hub.traffic.rooms, hub.traffic.lanes) == (1, 3)
        for lane in range(3, 6):  # whose hub it is has no limit
            held[lane] = crew.join(hub, "coordinator", (lane, 1))
        refused(ConnectError, ("CN033", "bank", "1"), hub.open, "another", ["bank"])
        all_closed(held)
    with Hub(people.coordinator, PINS) as plain:
        refused(ConnectError, "CN041", crew.join, plain, "bank", connect_timeout=0.1)


def greeted(offer: Offer) -> bytes:
    """What somebody hears at the address of an offer who says its greeting and then listens."""
    host, _, port = offer.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS) as stranger:
        stranger.sendall(offer.greeting(bytes(16)))
        return stranger.recv(1000)


def test_a_link_is_of_one_lane_and_of_one_worker_and_dialled_for_one_offer(
    hub: Hub, crews: list[Crew], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, offered = list[str](), LinkCarrier.offered

    def noted(self: LinkCarrier, peer: str, raw: bytes) -> None:
        heard.append(f"{self._name} of {peer}")
        offered(self, peer, raw)

    monkeypatch.setattr(LinkCarrier, "offered", noted)
    listens = Direct(listen="127.0.0.1:20000-65000")
    lanes = []
    for crew in crews:
        bank, shop = crew.join(hub, "bank", direct=Direct()), crew.join(hub, "shop", direct=listens)
        shop.channel("bank").open()
        bank.wait_for_peers(["shop"])
        shop.wait_for_peers(["bank"])
        until(lambda bank=bank, shop=shop: bank.ways["shop"].direct and shop.ways["bank"].direct)
        says(bank, shop, word=bytes(1 << 20))
        assert bank.ways["shop"].sent >= 1 << 20
        for place, peer in ((bank, "shop"), (shop, "bank")):
            place.channel(peer)._step()  # as a thread that waited for its turn while another one took the last step
        lanes.append((bank, shop))
    assert sorted(heard) == ["bank of shop"] * 2 + ["shop of bank"] * 2
    first, second = (Offer.read(shop._carrier.offer("bank"), "shop") for _, shop in lanes)
    assert len({first.secret, second.secret, Offer.read(lanes[0][1]._carrier.offer("clinic"), "shop").secret}) == 3
    # Whoever knows the secret is answered; with that of another lane, even of the same listener, nobody is.
    assert first.check_answer(greeted(first), bytes(16))
    assert greeted(replace(second, address=first.address)) == greeted(Offer.fresh(first.address)) == b""
    closed(*lanes[0], *lanes[1])


# --- lanes of rooms


def test_lanes_of_two_attempts_at_the_same_time_never_meet(standing: Hub, attempts: list[Crew]) -> None:
    first, second = attempts
    lanes = [each.all_join(standing) for each in attempts]
    open_now = {room: present for room, present in standing.rooms.items() if present}
    assert open_now == {each.lane(): set(NAMES) for each in attempts}
    assert (standing.traffic.rooms, standing.traffic.lanes) == (3, 2)
    for number, places in enumerate(lanes):
        talk(places, f"attempt {number}")
    all_closed(*lanes)
    until_open(standing, {PLAIN, FIRST, SECOND})
    # A hub that puts a worker of one attempt into the lane of another brings no session about.
    bank, lost = first.join(standing, "bank"), second.sent_to(standing, "shop", first.lane(), second.topic_of())
    refused(IdentityError, "ID045", lost.wait_for_peers, ["bank"], timeout=SECONDS)
    closed(bank, lost)


def test_a_room_that_closes_takes_its_lanes_along_and_no_others(
    people: Any, standing: Hub, attempts: list[Crew]
) -> None:
    first, second = attempts
    ended, others = first.all_join(standing), second.all_join(standing)
    standing.close(FIRST, "this attempt is over")
    for name, place in ended.items():
        refused(ConnectError, ("CN023", name), place.channel(place.peers[0]).recv, "word")
    for partition in (0, 1):  # those that were open, and any other
        refused(ConnectError, "CN040", first.join, standing, "shop", (partition, 1))
    talk(others, "still here")
    standing.open(FIRST, NAMES, lanes=True)
    again = first.all_join(standing)
    talk(again, "open again")
    # Lanes that are not needed any more are closed, and the room stays.
    head = dial(standing.address, people.bank, first.pins, room=FIRST)
    standing.close_lanes(FIRST, "this attempt is over")
    refused(ConnectError, "CN023", again["bank"].channel("shop").recv, "word")
    refused(ConnectError, "CN041", first.join, standing, "bank", connect_timeout=0.1)
    assert standing.rooms[FIRST] == {"bank"}
    standing.open(f"{STUDY}.3", NAMES, lanes=True)  # in its place
    all_closed(ended, others, again, {"head": head})


def test_who_and_what_has_no_lanes(people: Any, standing: Hub, attempts: list[Crew]) -> None:
    first, settings = attempts[0], {"connect_timeout": 0.1}
    for lane in (first.lane(), lane_room(9, 1, b"", FIRST)):  # whoever is not in the room is not in its lanes
        refused(IdentityError, "ID041", dial, standing.address, people.clinic, PINS, room=lane, **settings)
    assert standing.traffic.lanes == 0
    for lane in (lane_room(0, 1, b"", PLAIN), lane_room(0, 1, b"", f"{STUDY}.9"), lane_room(0, 1, b"")):
        refused(ConnectError, "CN041", first.sent_to, standing, "bank", lane)
    for room in (FIRST, PLAIN, f"{FIRST}.lane-0-1"):  # a worker is let into lanes alone, also where its party is
        refused(IdentityError, ("ID038", "bank"), first.sent_to, standing, "bank", room)


def test_one_study_cannot_take_the_lanes_of_another(people: Any, standing: Hub, attempts: list[Crew]) -> None:
    first, second = attempts
    held = {n: first.join(standing, "bank", (n, 1)) for n in range(2)}
    refused(ConnectError, ("CN042", "2"), first.join, standing, "bank", (2, 1), connect_timeout=0.1)
    held["shop"] = first.join(standing, "shop", (1, 1))  # those that are open can still be joined
    held |= {f"other {n}": second.join(standing, "bank", (n, 1)) for n in range(2)}
    held["head"] = dial(standing.address, people.bank, first.pins, room=FIRST)  # lanes are not counted with it
    said, settings = ("CN034", "1", "connections"), {"room": SECOND, "connect_timeout": 0.1}
    refused(ConnectError, said, dial, standing.address, people.bank, first.pins, **settings)
    all_closed(held)


# --- which rooms open by themselves, and how many


def rooms(lanes: LaneLimits, *alone: Any) -> Rooms:
    return Rooms(FOUR, lambda name: Account(name, UNLIMITED), bytes, None, lanes, *alone)


def test_which_rooms_open_by_themselves() -> None:
    lane, other = (f"lane-{n}-1-" + "0" * 32 for n in range(2))
    found = rooms(LaneLimits(people=4), FOUR)
    found.add("", FOUR)
    for name in ("another", "lane-0-1", "lane-00-1-" + "0" * 32):
        refused(Refusal, "CN041", found.find, name, "bank")
    circle = found.find(lane, "bank")
    # lanes are many, so less waits in each of them
    assert (circle.queue, found.find("", "bank").queue) == (2 * MAX_PACKET, 1 << 60)
    assert set(found.open) == {""}  # whoever only looks opens nothing
    found.enter(lane, circle)
    refused(IdentityError, ("ID041", "stranger"), found.find, lane, "stranger")
    found.ending = True
    assert found.find(lane, "shop") is circle
    refused(Refusal, "CN041", found.find, other, "shop")


def test_how_many_lanes_a_study_may_have(monkeypatch: pytest.MonkeyPatch, people: Any) -> None:
    lanes = LaneLimits(each=32, studies=4)
    assert [rooms(lanes).most_lanes(size) for size in (3, 8, 16, 65)] == [32, 32, 16, 3]
    # few descriptors: every study has its part of what there is, and at least one
    monkeypatch.setattr(strangers, "_descriptors", lambda useful: min(useful, 8192))
    with Hub(people.coordinator, PINS, rooms={}, lanes=lanes, limits=HubLimits()) as hub:
        room = 8192 - 64 - 6 * (HubLimits().all_connections(4) + 32)
        assert [hub.most_lanes(size) for size in (3, 8, 1000)] == [32, room // 48 * 8 // 32, 1]
        assert hub.most_lanes(8) < 32


def test_what_a_room_with_lanes_may_be() -> None:
    found, lane = rooms(LaneLimits(each=1, studies=1)), lane_room(0, 1, b"", FIRST)
    assert (home_of(lane), home_of(lane_room(0, 1, b""))) == (FIRST, "")
    assert [home_of(room) for room in (FIRST, f"{FIRST}.lane-0-1", f".{lane_room(0, 1, b'')}")] == [None] * 3
    refused(ValueError, "VA272", lane_room, 0, 1, b"", "no/room")
    for name in (lane, lane_room(0, 1, b"")):
        refused(ProtocolError, "MS089", found.add, name, FOUR)
    found.add(FIRST, FOUR, lanes=True)
    refused(ConnectError, ("CN039", "1"), found.add, SECOND, FOUR, lanes=True)
    circle = found.find(lane, "bank")
    found.enter(lane, circle)
    assert (found.lanes, found.find(lane, "shop")) == (1, circle)
    found.shut(FIRST, "it is over")
    found.leave(lane)  # as whoever was in it does then
    assert (found.lanes, set(found.open)) == (0, set())
    refused(Refusal, "CN040", found.find, lane, "bank")
