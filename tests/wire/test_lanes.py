"""Lanes at real hubs: workers of all participants meet, several lanes at once, and nobody else does.

At a hub of one study they open by themselves; at a standing one for those who are in their room, and close with it.
"""

from __future__ import annotations

import copy
import os
import pickle
import socket
import ssl
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, strategies as st

from colonnade.errors import ColonnadeError, ConnectError, IdentityError, ProtocolError, StudyError
from colonnade.wire import (
    Certificate,
    Endpoint,
    Hub,
    HubClient,
    HubLimits,
    HubService,
    Identity,
    certificates,
    connection_gate,
    dial,
    identity,
    packets,
    workers,
)
from colonnade.wire.codec import decode, encode
from colonnade.wire.direct_links import LinkCarrier
from colonnade.wire.hub_connection import open_channel
from colonnade.wire.identity import LONGEST_STAY, ConnectionCertificate, WorkerAdmission, load_key
from colonnade.wire.link_offers import DirectLinkSettings, LinkOffer
from colonnade.wire.packets import MAX_PACKET
from colonnade.wire.quota import UNLIMITED, HubAccount, QuotaRefusal
from colonnade.wire.study_sessions import LaneLimits, StudyRooms, home_room, is_lane, lane_room, lane_topic
from colonnade.wire.workers import (
    MOST_BYTES,
    WorkerIntroduction,
    WorkerKeys,
    check_introduction,
    introduce,
)
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

    def guest(self, name: str) -> WorkerAdmission:
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


@pytest.mark.parametrize("direct", [None, DirectLinkSettings()], ids=["through the hub", "directly"])
def test_a_worker_with_another_key_gets_neither_session_nor_link(hub: Hub, crews: list[Crew], direct: Any) -> None:
    # Another worker of the same party, which may join the room, is not the one that was introduced for this lane.
    told, other = crews
    listens = DirectLinkSettings(listen="127.0.0.1:20000-29999") if direct else None
    shop = told.join(hub, "shop", direct=listens)
    workers = told.certificates() | {"bank": other.keys["bank"].certificate}
    bank = other.sent_to(hub, "bank", told.lane(), told.topic_of(), workers=workers, direct=direct)
    shop.channel("bank").open()
    refused(ColonnadeError, (), bank.wait_for_peers, ["shop"], timeout=SECONDS)
    refused(IdentityError, ("ID043", "bank"), shop.wait_for_peers, ["bank"], timeout=SECONDS)
    assert not shop.channel("bank").is_ready
    if direct:
        assert (bank.routes["shop"].links, shop.routes["bank"].links) == (0, 0)
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

    crew, service = crews[0], HubService("colonnade.Test", "Echo", echo)
    guest, said = crew.guest("bank"), ("ID038", "bank")
    with Hub(people.coordinator, PINS, services=[service], lanes=True) as hub:
        head = dial(hub.address, people.bank, PINS)
        for room in ("", "another", "lane-0-1", f"{crew.lane()}0"):
            refused(IdentityError, said, crew.sent_to, hub, "bank", room)
        with HubClient(hub.address, guest, people.hub) as caller:
            refused(IdentityError, said, caller.ask, "colonnade.Test", "Echo", b"hello")
        # nor with a question that says it were about a lane
        about = [(packets.VERSION_KEY, packets.VERSION), (packets.ROOM_KEY, crew.lane())]
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
    guest = WorkerAdmission(PINS["bank"], shown, datetime.now(UTC) + timedelta(hours=1))
    refused(IdentityError, ("ID018", "bank"), crews[0].sent_to, hub, "bank", crews[0].lane(), guest=guest)


def test_a_worker_cannot_answer_as_a_hub(crews: list[Crew]) -> None:
    # it shows what it has in place of what the coordinator's identity would issue
    with Hub(crews[0].guest("coordinator"), PINS, lanes=True) as false:
        refused(IdentityError, "ID019", crews[0].join, false, "bank")


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
    crew, limits = crews[0], HubLimits(connections=1, studies=1, lanes=2)
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


def greeted(offer: LinkOffer) -> bytes:
    """What somebody hears at the address of an offer who says its greeting and then listens."""
    host, _, port = offer.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS) as stranger:
        stranger.sendall(offer.greeting(bytes(16)))
        return stranger.recv(1000)


def test_a_link_is_of_one_lane_and_of_one_worker_and_dialled_for_one_offer(
    hub: Hub, crews: list[Crew], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, offered = list[str](), LinkCarrier.receive_offer

    def noted(self: LinkCarrier, peer: str, raw: bytes) -> None:
        heard.append(f"{self._name} of {peer}")
        offered(self, peer, raw)

    monkeypatch.setattr(LinkCarrier, "receive_offer", noted)
    listens = DirectLinkSettings(listen="127.0.0.1:20000-65000")
    lanes = []
    for crew in crews:
        bank, shop = crew.join(hub, "bank", direct=DirectLinkSettings()), crew.join(hub, "shop", direct=listens)
        shop.channel("bank").open()
        bank.wait_for_peers(["shop"])
        shop.wait_for_peers(["bank"])
        until(lambda bank=bank, shop=shop: bank.routes["shop"].direct and shop.routes["bank"].direct)
        says(bank, shop, word=bytes(1 << 20))
        assert bank.routes["shop"].sent >= 1 << 20
        for place, peer in ((bank, "shop"), (shop, "bank")):
            place.channel(peer)._step()  # as a thread that waited for its turn while another one took the last step
        lanes.append((bank, shop))
    assert sorted(heard) == ["bank of shop"] * 2 + ["shop of bank"] * 2
    first, second = (LinkOffer.parse(shop._carrier.offer("bank"), "shop") for _, shop in lanes)
    assert len({first.secret, second.secret, LinkOffer.parse(lanes[0][1]._carrier.offer("clinic"), "shop").secret}) == 3
    # Whoever knows the secret is answered; with that of another lane, even of the same listener, nobody is.
    assert first.check_answer(greeted(first), bytes(16))
    assert greeted(replace(second, address=first.address)) == greeted(LinkOffer.fresh(first.address)) == b""
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


def rooms(lanes: LaneLimits, *alone: Any) -> StudyRooms:
    return StudyRooms(FOUR, lambda name: HubAccount(name, UNLIMITED), bytes, None, lanes, *alone)


def test_which_rooms_open_by_themselves() -> None:
    lane, other = (f"lane-{n}-1-" + "0" * 32 for n in range(2))
    found = rooms(LaneLimits(people=4), FOUR)
    found.add("", FOUR)
    for name in ("another", "lane-0-1", "lane-00-1-" + "0" * 32):
        refused(QuotaRefusal, "CN041", found.find, name, "bank")
    circle = found.find(lane, "bank")
    # lanes are many, so less waits in each of them
    assert (circle.queue, found.find("", "bank").queue) == (2 * MAX_PACKET, 1 << 60)
    assert set(found.open) == {""}  # whoever only looks opens nothing
    found.enter(lane, circle)
    refused(IdentityError, ("ID041", "stranger"), found.find, lane, "stranger")
    found.ending = True
    assert found.find(lane, "shop") is circle
    refused(QuotaRefusal, "CN041", found.find, other, "shop")


def test_how_many_lanes_a_study_may_have(monkeypatch: pytest.MonkeyPatch, people: Any) -> None:
    lanes = LaneLimits(each=32, studies=4)
    assert [rooms(lanes).most_lanes(size) for size in (3, 8, 16, 65)] == [32, 32, 16, 3]
    # few descriptors: every study has its part of what there is, and at least one
    monkeypatch.setattr(connection_gate, "_raise_descriptor_limit", lambda useful: min(useful, 8192))
    with Hub(people.coordinator, PINS, rooms={}, lanes=lanes, limits=HubLimits()) as hub:
        room = 8192 - 64 - 6 * (HubLimits().all_connections(4) + 32)
        assert [hub.most_lanes(size) for size in (3, 8, 1000)] == [32, room // 48 * 8 // 32, 1]
        assert hub.most_lanes(8) < 32


def test_what_a_room_with_lanes_may_be() -> None:
    found, lane = rooms(LaneLimits(each=1, studies=1)), lane_room(0, 1, b"", FIRST)
    assert (home_room(lane), home_room(lane_room(0, 1, b""))) == (FIRST, "")
    assert [home_room(room) for room in (FIRST, f"{FIRST}.lane-0-1", f".{lane_room(0, 1, b'')}")] == [None] * 3
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
    refused(QuotaRefusal, "CN040", found.find, lane, "bank")


# --- workers and identities: whose certificates count, who may speak for a party, where, and until when

TOPIC = b"digest of a study"


def soon(hours: float = 6.0) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


@pytest.fixture(scope="module")
def bank() -> SimpleNamespace:
    identity, keys = Identity.create("bank"), WorkerKeys.create("bank")
    until = soon()
    raw = introduce(identity, keys.request, TOPIC, until)
    return SimpleNamespace(identity=identity, base=identity.certificate, keys=keys, until=until, raw=raw)


def test_an_introduction_is_believed_for_its_study_and_its_time(bank: Any) -> None:
    assert check_introduction(bank.raw, bank.base, TOPIC) == bank.keys.certificate
    assert check_introduction(bank.raw, bank.base, TOPIC, bank.until - timedelta(seconds=2)) == bank.keys.certificate
    assert bank.keys.certificate.fingerprint != bank.base.fingerprint
    refused(IdentityError, ("ID060", "bank"), check_introduction, bank.raw, bank.base, TOPIC, bank.until)
    refused(IdentityError, "ID054", check_introduction, bank.raw, bank.base, b"another study")


def test_only_the_pinned_identity_introduces_and_only_its_own(bank: Any) -> None:
    own, other = WorkerIntroduction.parse(bank.raw, "bank"), WorkerKeys.create("bank")
    shop, of_shop = Identity.create("shop"), WorkerKeys.create("shop")
    # the shop's head signs its own worker under the name of the bank
    forged = shop.sign(workers._statement(other.certificate, own.connection, TOPIC, own.until))
    longer = own.until + timedelta(hours=1)
    for raw in (
        introduce(Identity.create("bank"), bank.keys.request, TOPIC, soon()),
        WorkerIntroduction(other.certificate, own.connection, own.until, own.signature).to_bytes(),
        WorkerIntroduction(own.worker, own.connection, longer, own.signature).to_bytes(),
        introduce(bank.keys._identity, other.request, TOPIC, soon()),  # by a worker
        WorkerIntroduction(other.certificate, own.connection, own.until, forged).to_bytes(),
    ):
        refused(IdentityError, "ID054", check_introduction, raw, bank.base, TOPIC)
    raw = introduce(shop, of_shop.request, TOPIC, soon())
    refused(IdentityError, ("ID053", "shop", "bank"), check_introduction, raw, bank.base, TOPIC)
    refused(IdentityError, ("ID057", "bank"), introduce, shop, bank.keys.request, TOPIC, soon())
    lazy = WorkerKeys(bank.identity, certificates.connection_key())  # a worker has a key of its own
    refused(IdentityError, ("ID058", "bank"), introduce, bank.identity, lazy.request, TOPIC, soon())


def test_nobody_is_introduced_for_the_past_or_for_days_or_longer_than_a_certificate_lasts(bank: Any) -> None:
    for hours in (-0.001, 0.0, 49.0):
        said = ("ID055", "48")
        refused(IdentityError, said, introduce, bank.identity, bank.keys.request, TOPIC, soon(hours))
    until = datetime.now(UTC).replace(microsecond=0) + LONGEST_STAY + certificates.CLOCK_SKEW + timedelta(hours=1)
    signature = bank.identity.sign(workers._statement(bank.keys.certificate, b"", TOPIC, until))
    beyond = WorkerIntroduction(bank.keys.certificate, b"", until, signature)
    refused(IdentityError, "ID061", beyond.check, bank.base, TOPIC)
    for days in ((1, 30), (30, 1)):
        party, own = (Identity.create("bank", days=each) for each in days)
        worker = WorkerKeys(own, certificates.connection_key())
        raw = introduce(party, worker.request, TOPIC, soon(40))
        assert check_introduction(raw, party.certificate, TOPIC, soon(20)) == worker.certificate
        refused(IdentityError, ("ID023", "bank"), check_introduction, raw, party.certificate, TOPIC, soon(30))


def test_what_is_cut_has_more_or_asks_for_another_certificate_is_refused(bank: Any) -> None:
    for raw in (b"", bank.raw[:-1], bank.raw + b"\0", bank.keys.request, bank.raw + bytes(MOST_BYTES), bank.raw[1:]):
        refused(IdentityError, "ID050", check_introduction, raw, bank.base, TOPIC)
    for raw in (b"", bank.keys.request[:-1], bank.keys.request + b"\0", bank.raw):
        refused(IdentityError, "ID050", introduce, bank.identity, raw, TOPIC, soon())
    kind, fields = decode(bank.raw)
    for changed in ({"until": 1 << 63}, {"until": -1}, {"signature": b""}, {"worker": ""}, {"further": 0}):
        refused(IdentityError, "ID050", check_introduction, encode([kind, fields | changed]), bank.base, TOPIC)
    bodies = [b"nonsense", certificates.request("bank", certificates.connection_key())[:-1] + b"\1"]
    for key in (ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65537, 2048)):
        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        bodies.append(builder.sign(key, SHA256()).public_bytes(Encoding.DER))
    for body in bodies:
        kind, fields = decode(bank.keys.request)
        request = encode([kind, fields | {"connection": body}])
        refused(IdentityError, "ID059", introduce, bank.identity, request, TOPIC, soon())


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")  # of changed serial numbers
@given(at=st.integers(0, 10_000), bit=st.integers(0, 7), cut=st.integers(0, 10_000))
def test_no_changed_byte_is_believed_and_nothing_else_is_raised(bank: Any, at: int, bit: int, cut: int) -> None:
    changed = bytearray(bank.raw)
    changed[at % len(changed)] ^= 1 << bit
    for raw in (bytes(changed), bank.raw[: cut % len(bank.raw)]):
        refused(IdentityError, (), check_introduction, raw, bank.base, TOPIC)


def test_a_worker_takes_its_own_introduction_only_and_does_not_dial_when_it_is_out_of_date(
    bank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    admission = bank.keys.admission(bank.raw, bank.base, TOPIC)
    shown = x509.load_pem_x509_certificate(admission.issue_connection_certificate().chain_pem)
    assert bank.base.has_issued(shown)
    assert (certificates.worker_of(shown), certificates.holder(shown)) == ("bank", "")
    # A hub that knows of no lanes goes by the common name, and one that is dialled by the alternative one.
    assert certificates.common_name(shown) == ""
    assert x509.SubjectAlternativeName not in {type(found.value) for found in shown.extensions}
    used = shown.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    assert (used.critical, list(used.value)) == (True, [ExtendedKeyUsageOID.CLIENT_AUTH])
    assert not shown.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert shown.not_valid_after_utc == bank.until.replace(microsecond=0)
    refused(IdentityError, "ID047", WorkerKeys.create("bank").admission, bank.raw, bank.base, TOPIC)
    # the certificate of another worker's connection, beside our own, and one with which a worker could do too much
    other = WorkerIntroduction.parse(introduce(bank.identity, WorkerKeys.create("bank").request, TOPIC, soon()), "bank")
    own = WorkerIntroduction.parse(bank.raw, "bank")
    subject, key = certificates._x509_name("bank", "link"), bank.keys._key.public_key()
    whole = certificates._connection(subject, key, soon(), bank.base.parsed).sign(bank.identity._key, None)
    for connection in (other.connection, whole.public_bytes(Encoding.DER)):
        signature = bank.identity.sign(workers._statement(own.worker, connection, TOPIC, own.until))
        mixed = WorkerIntroduction(own.worker, connection, own.until, signature).to_bytes()
        refused(IdentityError, "ID048", bank.keys.admission, mixed, bank.base, TOPIC)
    monkeypatch.setattr(identity, "datetime", SimpleNamespace(now=lambda tz: bank.until + timedelta(minutes=1)))
    refused(IdentityError, "ID060", admission.issue_connection_certificate)


CN, ORG, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
SUBJECTS: dict[tuple[tuple[x509.ObjectIdentifier, str], ...], tuple[str, str]] = {
    ((CN, "bank"), (OU, "link")): ("bank", ""),
    ((ORG, "bank"), (OU, "lanes")): ("", "bank"),
    ((CN, "bank"),): ("", ""),
    ((ORG, "bank"),): ("", ""),
    ((CN, "bank"), (OU, "lanes")): ("", ""),
    ((ORG, "bank"), (OU, "link")): ("", ""),
    ((CN, "bank"), (ORG, "bank"), (OU, "lanes")): ("", ""),
    ((CN, "bank"), (ORG, "bank"), (OU, "link")): ("", ""),
    ((CN, "bank"), (CN, "shop"), (OU, "link")): ("", ""),
    ((ORG, "bank"), (ORG, "shop"), (OU, "lanes")): ("", ""),
    ((ORG, "bank"), (OU, "lanes"), (OU, "link")): ("", ""),
    ((CN, "b\u0430nk"), (OU, "link")): ("b\u0430nk", ""),  # which is no name that a study can have
}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_whose_connection_certificate_it_is(bank: Any, subject: tuple[Any, ...]) -> None:
    key, now = certificates.connection_key(), datetime.now(UTC)
    issued = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(*part) for part in subject]))
        .issuer_name(bank.base.parsed.subject)
        .serial_number(7)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(hours=1))
        .public_key(key.public_key())
        .sign(bank.identity._key, None)
    )
    assert (certificates.holder(issued), certificates.worker_of(issued)) == SUBJECTS[subject]
    assert bank.base.has_issued(issued) == ("bank" in SUBJECTS[subject])


def test_lanes_have_names_and_topics(bank: Any) -> None:
    mark = "0123456789abcdef" * 2
    assert all(is_lane(f"{room}-{mark}") for room in ("lane-0-1", "lane-1023-12", "lane-9999999-9999"))
    bad = ("", "lane", "lane-1", "lane-01-1", "lane-1-0", "lane-1-01", "lane--1-1", "xlane-1-1", "lane-10000000-1")
    for room in (*(f"{room}-{mark}" for room in bad), f"lane-1-1-{mark}\n", f"lane-\u0661-1-{mark}", "lane-1-1"):
        assert not is_lane(room)
    for partition, attempt in ((-1, 1), (0, 0), (10**7, 1), (0, 10**4)):
        refused(ValueError, ("VA272", partition, attempt), lane_room, partition, attempt, b"")
    shop = WorkerKeys.create("shop").certificate
    crews = [{"shop": shop, "bank": cert} for cert in (bank.keys.certificate, WorkerKeys.create("bank").certificate)]
    lanes = [(topic, *lane, crew) for topic in (b"a", b"b") for lane in ((1, 1), (11, 1), (1, 11)) for crew in crews]
    topics = [lane_topic(*lane) for lane in lanes]
    assert len({lane_room(1, 1, topic) for topic in topics}) == len(set(topics)) == len(lanes) == 12
    # the order in which somebody was told of them does not matter
    assert lane_topic(b"a", 1, 1, dict(reversed(crews[0].items()))) == topics[0]
    assert lane_room(1, 1, topics[0]).startswith("lane-1-1-")


# --- identities


def test_files_round_trip_and_no_key_is_overwritten(tmp_path: Path) -> None:
    identity, other = Identity.create("bank"), Identity.create("bank")
    key_path, crt_path = identity.save(tmp_path / "keys")
    assert (key_path.name, crt_path.name, stat.S_IMODE(key_path.stat().st_mode)) == ("bank.key", "bank.crt", 0o600)
    again = Identity.load(key_path, crt_path)
    digest = identity.certificate.parsed.fingerprint(SHA256()).hex()
    assert (again.name, again.fingerprint, identity.fingerprint) == ("bank", *[f"sha256:{digest}"] * 2)
    assert [identity.certificate.has_signed(again.sign(b"x"), text) for text in (b"x", b"y")] == [True, False]
    refused(IdentityError, ("ID029", "bank.key"), other.save, tmp_path / "keys")
    assert Certificate.load(crt_path, identity.fingerprint.upper().replace("SHA256", "sha256")).name == "bank"
    said = ("bank", crt_path, identity.fingerprint, other.fingerprint)
    refused(IdentityError, said, Certificate.load, crt_path, other.fingerprint)
    _, foreign = other.save(tmp_path / "other")
    refused(IdentityError, "ID028", Identity.load, key_path, foreign)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    identity = Identity.create("bank")
    key_path, crt_path = identity.save(tmp_path)
    bad, missing = tmp_path / "bad", tmp_path / "missing.key"
    for content in (b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END"):
        bad.write_bytes(content)
        refused(IdentityError, "ID020", Identity.load, key_path, bad)
        refused(IdentityError, "ID026", Identity.load, bad, crt_path)
    refused(IdentityError, "ID032", Certificate.load, missing)
    refused(IdentityError, ("ID025", "missing.key"), Identity.load, missing, missing.with_suffix(".crt"))
    chain = identity.issue_connection_certificate().chain_pem  # which is no identity
    refused(IdentityError, (), Certificate.from_pem, chain)
    shown = x509.load_pem_x509_certificate(chain)
    others = [Identity.create(name).certificate for name in ("bank", "shop")]
    assert [each.has_issued(shown) for each in (identity.certificate, *others)] == [True, False, False]


def test_dates_and_names_that_cannot_be() -> None:
    certificate = Identity.create("bank", days=10).certificate
    certificate.check_dates()
    certificate.check_dates(soon(-12))  # a clock may be off
    refused(IdentityError, ("ID023", "bank"), certificate.check_dates, soon(11 * 24))
    refused(IdentityError, "ID024", certificate.check_dates, soon(-48))
    for name in ("", "-a", "a-", "a b", "ä", "a/b", "a\n", "x" * 64):
        refused(IdentityError, "ID031", Identity.create, name)


def test_a_private_key_is_neither_copied_nor_sent_nor_handed_over_wrongly(bank: Any) -> None:
    own, shop = bank.identity, Identity.create("shop")
    admission = bank.keys.admission(bank.raw, bank.base, TOPIC)
    for held in (own, bank.keys, admission, admission.connection):
        for taken in (pickle.dumps, copy.deepcopy):
            refused(TypeError, "VA270|VA271|VA273", taken, held)
        assert "PRIVATE" not in repr(held)
    secrets = (bank.keys._identity._key.private_bytes_raw(), certificates.key_pem(bank.keys._key))
    assert not any(secret in public for secret in secrets for public in (bank.keys.request, bank.raw))
    assert own.certificate.has_signed(own.sign(b"x"), b"x")  # which reads the certificate
    assert pickle.loads(pickle.dumps(own.certificate)) == own.certificate  # noqa: S301 - our own bytes
    for key in (shop.key_pem, own.key_pem + bytes(1 << 24)):
        refused(IdentityError, "ID030", load_key, ssl.create_default_context(), key, own.certificate.pem)


def test_no_descriptor_is_left_open(people: Any) -> None:
    def talk() -> int:
        with Hub(people.coordinator, people.pins) as hub, dial(hub.address, people.bank, people.pins):
            pass
        load_key(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), people.bank.key_pem, people.bank.certificate.pem)
        return len(os.listdir("/dev/fd"))

    first = [talk() for _ in range(3)][-1]
    assert max(talk() for _ in range(3)) <= first
