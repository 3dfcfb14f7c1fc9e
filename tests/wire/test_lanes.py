"""Lanes at real hubs: workers of all participants meet, several lanes at once, and nobody else does."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from queue import Queue
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from colonnade.errors import ColonnadeError, ConnectError, IdentityError, StudyError
from colonnade.wire import Caller, Endpoint, Hub, HubLimits, Identity, Service, certificates, dial, envelope, strangers
from colonnade.wire.direct import Direct
from colonnade.wire.hub_carrier import open_channel
from colonnade.wire.identity import ConnectionCertificate
from colonnade.wire.lanes import lane_room, lane_topic
from colonnade.wire.links import LinkCarrier
from colonnade.wire.offer import Offer
from colonnade.wire.packet import MAX_PACKET
from colonnade.wire.quota import UNLIMITED, Account, Refusal
from colonnade.wire.rooms import LaneLimits, Rooms
from colonnade.wire.workers import Admission, WorkerKeys, introduce
from tests.support.errors import raises
from tests.support.refusals import refused

NAMES = ("bank", "clinic", "coordinator", "shop")
TOPIC = b"digest of a study"
Crew = Mapping[str, tuple[WorkerKeys, bytes]]


@pytest.fixture(scope="module")
def people() -> SimpleNamespace:
    identities = {name: Identity.create(name) for name in NAMES}
    pins = {name: who.certificate for name, who in identities.items()}
    return SimpleNamespace(**identities, all=identities, pins=pins)


def crew(people: Any, topic: bytes = TOPIC) -> dict[str, tuple[WorkerKeys, bytes]]:
    """A worker of every participant, with its introduction."""
    until = datetime.now(UTC) + timedelta(hours=6)
    made = {name: WorkerKeys.create(name) for name in NAMES}
    return {name: (keys, introduce(people.all[name], keys.request, topic, until)) for name, keys in made.items()}


@pytest.fixture(scope="module")
def crews(people: Any) -> list[dict[str, tuple[WorkerKeys, bytes]]]:
    return [crew(people), crew(people)]


@pytest.fixture
def hub(people: Any) -> Iterator[Hub]:
    with Hub(people.coordinator, people.pins, lanes=True) as hub:
        yield hub


def join(hub: Hub, people: Any, who: Crew, name: str, lane: tuple[int, int] = (0, 1), **options: Any) -> Endpoint:
    passed_on = {peer: raw for peer, (_, raw) in who.items()}
    settings = {"connect_timeout": 20.0} | options
    return who[name][0].join_lane(hub.address, *lane, passed_on, people.pins, TOPIC, **settings)


def all_join(hub: Hub, people: Any, who: Crew, lane: tuple[int, int], **options: Any) -> dict[str, Endpoint]:
    return {name: join(hub, people, who, name, lane, **options) for name in who}


def talk(places: Mapping[str, Endpoint], word: str) -> None:
    """Everybody says a word to everybody, and hears it."""
    for name, place in places.items():
        for peer in place.peers:
            place.channel(peer).send("word", word=f"{word} of {name}")
    for place in places.values():
        for peer in place.peers:
            assert place.channel(peer).recv("word") == {"word": f"{word} of {peer}"}


def closed(*groups: Mapping[str, Endpoint]) -> None:
    threads = [threading.Thread(target=place.close) for places in groups for place in places.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def room_of(who: Crew, lane: tuple[int, int] = (0, 1)) -> str:
    workers = {name: keys.certificate for name, (keys, _) in who.items()}
    return lane_room(*lane, lane_topic(TOPIC, *lane, workers))


def until_open(hub: Hub, expected: set[str]) -> None:
    end = time.monotonic() + 20.0
    while set(hub.rooms) != expected and time.monotonic() < end:
        time.sleep(0.02)
    assert set(hub.rooms) == expected


def test_two_lanes_at_once_at_one_hub_beside_the_heads(people: Any, hub: Hub, crews: Any) -> None:
    head = dial(hub.address, people.bank, people.pins)
    other = dial(hub.address, people.shop, people.pins)
    lanes = [all_join(hub, people, who, (number, 1)) for number, who in enumerate(crews)]
    names = [room_of(who, (number, 1)) for number, who in enumerate(crews)]
    assert hub.rooms == {"": {"bank", "shop"}, **{name: set(NAMES) for name in names}}
    for number, places in enumerate(lanes):
        talk(places, f"lane {number}")
    carried = hub.traffic.carried
    closed(lanes[0])
    until_open(hub, {"", names[1]})  # it is forgotten when the last one has left
    talk(lanes[1], "again")
    head.channel("shop").send("word")
    assert other.channel("bank").recv("word") == {}
    closed(lanes[1], {"bank": head, "shop": other})
    until_open(hub, {""})
    assert hub.traffic.carried > carried


def test_lanes_at_two_hubs_and_one_that_dies_takes_only_its_own(people: Any, crews: Any) -> None:
    hubs = [Hub(people.coordinator, people.pins, rooms={}, lanes=True).start() for _ in range(2)]
    try:
        lanes = [
            all_join(hubs[number], people, who, (number, 1), reconnect_grace=0.5) for number, who in enumerate(crews)
        ]
        assert [set(hub.rooms) for hub in hubs] == [{room_of(who, (n, 1))} for n, who in enumerate(crews)]
        for number, places in enumerate(lanes):
            talk(places, f"lane {number}")
        hubs[1].stop()
        for place in lanes[1].values():
            refused(ConnectError, (), place.channel(place.peers[0]).recv, "word")
        talk(lanes[0], "still here")
        again = all_join(hubs[0], people, crews[1], (1, 2))
        talk(again, "repeated")
        closed(*lanes, again)
    finally:
        for hub in hubs:
            hub.stop()


def test_an_attempt_that_is_over_hears_nothing_of_the_next(people: Any, hub: Hub, crews: Any) -> None:
    old = {name: join(hub, people, crews[0], name, (0, 1)) for name in ("bank", "shop")}
    new = {name: join(hub, people, crews[1], name, (0, 2)) for name in ("bank", "shop")}
    new["bank"].channel("shop").send("word", word="new")
    assert new["shop"].channel("bank").recv("word") == {"word": "new"}
    assert all(place.counters.total.messages_received == 0 for place in old.values())
    assert all(place.here == (peer,) for place, peer in zip(old.values(), ("shop", "bank"), strict=True))
    closed(old, new)


def test_a_worker_of_an_earlier_attempt_is_refused_in_the_handshake(people: Any, hub: Hub, crews: Any) -> None:
    new = join(hub, people, crews[0], "bank", (0, 2))
    # the same keys, and a coordinator that sends the worker to the wrong room
    keys, raw = crews[0]["shop"]
    workers = {name: found.certificate for name, (found, _) in crews[0].items()}
    old = dial(
        hub.address,
        keys._identity,
        workers,
        room=room_of(crews[0], (0, 2)),
        topic=lane_topic(TOPIC, 0, 1, workers),
        hub=people.pins["coordinator"],
        guest=keys.admission(raw, people.pins["shop"], TOPIC),
    )
    refused(StudyError, ("ST612", "bank"), old.wait_for_peers, ["bank"])
    closed({"bank": new, "shop": old})


def test_whoever_lacks_the_key_that_was_introduced_is_refused(people: Any, hub: Hub, crews: Any) -> None:
    # Another worker of the same party, which may join the room, is not the one that was introduced for this lane.
    bank = join(hub, people, crews[0], "bank")
    keys, raw = crews[1]["shop"]
    workers = {name: found.certificate for name, (found, _) in crews[0].items()}
    shop = dial(
        hub.address,
        keys._identity,
        {**workers, "shop": keys.certificate},
        room=room_of(crews[0]),
        topic=lane_topic(TOPIC, 0, 1, workers),
        hub=people.pins["coordinator"],
        guest=keys.admission(raw, people.pins["shop"], TOPIC),
    )
    shop.channel("bank").open()
    refused(IdentityError, ("ID043", "shop"), bank.wait_for_peers, ["shop"], timeout=20)
    assert not bank.channel("shop").is_ready
    closed({"bank": bank, "shop": shop})


def test_those_who_were_told_of_different_workers_do_not_meet(people: Any, hub: Hub, crews: Any) -> None:
    # The coordinator tells the bank of one worker of the clinic, and the shop of another, each well introduced.
    mixed = {**crews[0], "clinic": crews[1]["clinic"]}
    bank, shop = join(hub, people, crews[0], "bank"), join(hub, people, mixed, "shop")
    assert hub.rooms == {"": set(), room_of(crews[0]): {"bank"}, room_of(mixed): {"shop"}}
    closed({"shop": shop})
    # and a hub that puts them into one room
    keys, raw = mixed["shop"]
    workers = {name: found.certificate for name, (found, _) in mixed.items()}
    shop = dial(
        hub.address,
        keys._identity,
        workers,
        room=room_of(crews[0]),
        topic=lane_topic(TOPIC, 0, 1, workers),
        hub=people.pins["coordinator"],
        guest=keys.admission(raw, people.pins["shop"], TOPIC),
    )
    refused(StudyError, ("ST612", "bank"), shop.wait_for_peers, ["bank"])
    closed({"bank": bank, "shop": shop})


def test_workers_that_an_earlier_run_has_left_are_in_nobodys_way(people: Any, hub: Hub, crews: Any) -> None:
    # A hub for lanes alone stays while a study is started again, and the first run's workers may still be there.
    left = {name: join(hub, people, crews[0], name) for name in ("bank", "shop")}
    again = all_join(hub, people, crews[1], (0, 1))
    talk(again, "second run")
    left["bank"].channel("shop").send("word", word="first run")
    assert left["shop"].channel("bank").recv("word") == {"word": "first run"}
    closed(left, again)


def test_what_a_hub_or_a_coordinator_makes_up_is_refused_before_dialling(people: Any, hub: Hub, crews: Any) -> None:
    forged, elsewhere = crew(SimpleNamespace(all={name: Identity.create(name) for name in NAMES})), crew(people, b"x")
    cases = {
        ("ID054", "shop"): {**crews[0], "shop": forged["shop"]},
        ("ID054", "clinic"): {**crews[0], "clinic": elsewhere["clinic"]},
        ("ID053", "clinic", "shop"): {**crews[0], "shop": crews[0]["clinic"]},
        "ID049": {name: crews[0][name] for name in ("bank", "shop")},
    }
    for sentence, who in cases.items():
        refused(IdentityError, sentence, join, hub, people, who, "bank")
    assert set(hub.rooms) == {""}


def test_a_worker_may_join_lanes_and_nothing_else(people: Any, crews: Any) -> None:
    async def echo(caller: str, asked: bytes) -> bytes:
        return asked

    keys, raw = crews[0]["bank"]
    guest = keys.admission(raw, people.pins["bank"], TOPIC)
    service = Service("colonnade.Test", "Echo", echo)
    with Hub(people.coordinator, people.pins, services=[service], lanes=True) as hub:
        head = dial(hub.address, people.bank, people.pins)
        for room in ("", "another", "lane-0-1", f"{room_of(crews[0])}0"):
            refused(
                IdentityError,
                ("ID038", "bank"),
                dial,
                hub.address,
                keys._identity,
                {},
                room=room,
                hub=people.pins["coordinator"],
                guest=guest,
            )
        with (
            Caller(hub.address, guest, people.pins["coordinator"]) as caller,
            raises(IdentityError, "ID038", "bank"),
        ):
            caller.ask("colonnade.Test", "Echo", b"hello")
        # nor with a question that says it were about a lane
        said = [(envelope.VERSION_KEY, envelope.VERSION), (envelope.ROOM_KEY, room_of(crews[0]))]
        channel = open_channel(hub.address, guest, people.pins["coordinator"], 5.0)
        refused(
            grpc.RpcError,
            ("ID038", "bank"),
            list,
            channel.stream_stream("/colonnade.Test/Echo")(iter([b"hello"]), metadata=said),
        )
        channel.close()
        assert hub.rooms == {"": {"bank"}}  # the head was not disturbed
        head.close()


def test_a_hub_refuses_a_worker_that_is_out_of_date(people: Any, hub: Hub, crews: Any) -> None:
    # It goes on dialling: the hub goes by the certificate, and by its own clock.
    key, over = certificates.connection_key(), datetime.now(UTC) - timedelta(minutes=1)
    issued = people.bank.issue_for_worker(certificates.request("bank", key), over)
    chain = certificates.chain_for_lanes(issued, key, people.pins["bank"].parsed)
    shown = ConnectionCertificate(certificates.key_pem(key), chain)
    guest = Admission(people.pins["bank"], shown, datetime.now(UTC) + timedelta(hours=1))
    refused(
        IdentityError,
        ("ID018", "bank"),
        dial,
        hub.address,
        people.bank,
        people.pins,
        room=room_of(crews[0]),
        hub=people.pins["coordinator"],
        guest=guest,
    )


def test_a_worker_cannot_answer_as_a_hub(people: Any, crews: Any) -> None:
    keys, raw = crews[0]["coordinator"]
    worker = keys.admission(raw, people.pins["coordinator"], TOPIC)
    false: Any = worker  # it shows what it has in place of what the coordinator's identity would issue
    with Hub(false, people.pins, lanes=True) as hub:
        refused(IdentityError, "ID019", join, hub, people, crews[0], "bank")
        # gRPC, which connects anew after that look, finds the same
        assert not answers(hub, people)
    with Hub(people.coordinator, people.pins, lanes=True) as hub:
        assert answers(hub, people)


def answers(hub: Hub, people: Any) -> bool:
    """Whether gRPC takes this hub for the coordinator's; while it shakes hands it is neither."""
    channel = open_channel(hub.address, people.bank, people.pins["coordinator"], 5.0)
    states: Queue[Any] = Queue()
    channel.subscribe(states.put, try_to_connect=True)
    known = (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE)
    try:
        while (state := states.get(timeout=30.0)) not in known:
            pass
    finally:
        channel.close()
    return bool(state is known[0])


def test_a_worker_cannot_take_the_name_of_another_party(people: Any, hub: Hub, crews: Any) -> None:
    keys, raw = crews[0]["shop"]
    admission = keys.admission(raw, people.pins["shop"], TOPIC)
    liar = SimpleNamespace(
        name="bank",
        certificate=people.pins["bank"],
        issue_connection_certificate=admission.issue_connection_certificate,
    )
    place = dial(
        hub.address,
        people.bank,
        people.pins,
        room=room_of(crews[0]),
        hub=people.pins["coordinator"],
        guest=liar,  # type: ignore[arg-type]
    )
    # The hub goes by the certificate: it is in the room as the shop, and what it sends as the bank ends its connection.
    assert hub.rooms[room_of(crews[0])] == {"shop"}
    place._carrier.send("shop", place._carrier.prefix("shop") + b"x")
    until_open(hub, {""})
    place.close()


def test_lanes_are_bounded_and_only_where_they_are_wanted(
    people: Any, crews: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # few descriptors, so that there are few lanes and the heads can always come
    monkeypatch.setattr(strangers, "_descriptors", lambda useful: 330)
    with Hub(people.coordinator, people.pins, lanes=True) as hub:
        held = {str(n): join(hub, people, crews[0], "bank", (n, 1)) for n in range(2)}
        refused(ConnectError, ("CN042", "2"), join, hub, people, crews[0], "bank", (2, 1), connect_timeout=0.1)
        shop = join(hub, people, crews[0], "shop", (1, 1))  # those that are open can still be joined
        dial(hub.address, people.clinic, people.pins).close()
        closed(held, {"shop": shop})
        until_open(hub, {""})
        closed({"bank": join(hub, people, crews[0], "bank", (2, 1))})
    with Hub(people.coordinator, people.pins) as plain, raises(ConnectError, "CN041"):
        join(plain, people, crews[0], "bank", connect_timeout=0.1)


def test_which_rooms_open_by_themselves() -> None:
    lane, other = (f"lane-{n}-1-" + "0" * 32 for n in range(2))
    found = Rooms(NAMES, lambda name: Account(name, UNLIMITED), bytes, None, LaneLimits(people=4), NAMES)
    found.add("", NAMES)
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
    found.shut(lane, "it is over")
    found.leave(lane)
    refused(Refusal, "CN040", found.find, lane, "shop")


def test_lanes_have_a_limit_of_their_own_for_each_member(people: Any, crews: Any) -> None:
    limits = HubLimits(connections=1, rooms=1, lanes=2)
    with Hub(people.coordinator, people.pins, lanes=True, limits=limits) as hub:
        head = dial(hub.address, people.bank, people.pins)
        held = {str(n): join(hub, people, crews[0], "bank", (n, 1)) for n in range(2)}
        refused(ConnectError, ("CN034", "2"), join, hub, people, crews[0], "bank", (2, 1), connect_timeout=0.1)
        held["shop"] = join(hub, people, crews[0], "shop", (2, 1))
        assert (hub.traffic.rooms, hub.traffic.lanes) == (1, 3)
        refused(ConnectError, ("CN033", "bank", "1"), hub.open, "another", ["bank"])
        closed(held, {"head": head})


def test_workers_connect_directly_too(people: Any, hub: Hub, crews: Any) -> None:
    listens, dials = Direct(listen="127.0.0.1:20000-65000"), Direct()
    places = {
        "bank": join(hub, people, crews[0], "bank", direct=dials),
        "shop": join(hub, people, crews[0], "shop", direct=listens),
    }
    for place in places.values():
        place.channel("shop" if place.name == "bank" else "bank").open()
    places["bank"].wait_for_peers(["shop"])
    places["shop"].wait_for_peers(["bank"])
    places["bank"].channel("shop").send("word", word=bytes(1 << 20))
    assert len(places["shop"].channel("bank").recv("word")["word"]) == 1 << 20
    assert places["bank"].ways["shop"].sent >= 1 << 20
    closed(places)


def reached(place: Endpoint, peer: str) -> bool:
    """Whether there is a direct connection, within a while."""
    end = time.monotonic() + 20.0
    while not place.ways[peer].direct and time.monotonic() < end:
        time.sleep(0.02)
    return place.ways[peer].direct


def greeted(offer: Offer, nonce: bytes) -> bytes:
    """What somebody hears at the address of an offer who says this greeting and then listens."""
    host, _, port = offer.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20.0) as stranger:
        stranger.sendall(offer.greeting(nonce))
        return stranger.recv(1000)


def test_a_link_is_of_one_lane_and_of_one_worker(people: Any, hub: Hub, crews: Any) -> None:
    listens = Direct(listen="127.0.0.1:20000-29999")
    lanes = [
        {
            "bank": join(hub, people, who, "bank", direct=Direct()),
            "shop": join(hub, people, who, "shop", direct=listens),
        }
        for who in crews
    ]
    for places in lanes:
        places["shop"].channel("bank").open()
        places["bank"].wait_for_peers(["shop"])
        assert reached(places["bank"], "shop")
        assert reached(places["shop"], "bank")
    first, second = (Offer.read(places["shop"]._carrier.offer("bank"), "shop") for places in lanes)
    assert len({first.secret, second.secret, Offer.read(lanes[0]["shop"]._carrier.offer("clinic"), "shop").secret}) == 3
    # Whoever knows the secret is answered; with that of another lane, even of the same listener, nobody is.
    assert first.check_answer(greeted(first, bytes(16)), bytes(16))
    assert greeted(replace(second, address=first.address), bytes(16)) == b""
    assert greeted(Offer.fresh(first.address), bytes(16)) == b""
    closed(*lanes)


def test_a_peer_is_dialled_for_one_offer_of_a_lane(
    people: Any, hub: Hub, crews: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, offered = list[str](), LinkCarrier.offered

    def noted(self: LinkCarrier, peer: str, raw: bytes) -> None:
        heard.append(f"{self._name} of {peer}")
        offered(self, peer, raw)

    monkeypatch.setattr(LinkCarrier, "offered", noted)
    places = {name: join(hub, people, crews[0], name, direct=Direct()) for name in ("bank", "shop")}
    places["shop"].channel("bank").open()
    places["bank"].wait_for_peers(["shop"])
    places["shop"].wait_for_peers(["bank"])
    for name, peer in (("bank", "shop"), ("shop", "bank")):
        # As a thread that waited for its turn while another one took the last step.
        places[name].channel(peer)._step()
    assert sorted(heard) == ["bank of shop", "shop of bank"]
    closed(places)


def test_a_worker_with_another_key_gets_neither_session_nor_link(people: Any, hub: Hub, crews: Any) -> None:
    told, listens = crews[0], Direct(listen="127.0.0.1:20000-29999")
    shop = join(hub, people, told, "shop", direct=listens)
    # It was introduced too, but it is another one than the workers of this lane were told of.
    keys, own = crews[1]["bank"]
    workers = {name: keys.certificate for name, (keys, _) in told.items()}
    about = lane_topic(TOPIC, 0, 1, workers)
    bank = dial(
        hub.address,
        keys._identity,
        workers | {"bank": keys.certificate},
        topic=about,
        room=lane_room(0, 1, about),
        hub=people.pins["coordinator"],
        guest=keys.admission(own, people.pins["bank"], TOPIC),
        direct=Direct(),
    )
    shop.channel("bank").open()
    refused(ColonnadeError, (), bank.wait_for_peers, ["shop"], timeout=20.0)
    refused(IdentityError, ("ID043", "bank"), shop.wait_for_peers, ["bank"], timeout=20.0)
    assert (bank.ways["shop"].links, shop.ways["bank"].links) == (0, 0)
    closed({"bank": bank, "shop": shop})
