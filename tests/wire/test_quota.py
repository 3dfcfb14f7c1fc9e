"""What one member may have at a hub, and that the others do not suffer from it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from colonnade.errors import ConnectError, IdentityError
from colonnade.wire import Caller, Certificate, Endpoint, Hub, HubLimits, Identity, Service, dial, envelope, quota
from colonnade.wire.hub_carrier import _Line, open_channel
from colonnade.wire.packet import MAX_PACKET, Kind, pack
from colonnade.wire.quota import Bucket
from colonnade.wire.services import pieces
from colonnade.wire.watch import Limits
from tests.support.refusals import refused

MB = 1 << 20
NAMES = ("bank", "clinic", "coordinator", "gym", "shop")


@pytest.fixture(scope="module")
def people() -> SimpleNamespace:
    identities = {name: Identity.create(name) for name in NAMES}
    return SimpleNamespace(
        **identities, all=identities, pins={name: who.certificate for name, who in identities.items()}
    )


def join(hub: Hub, who: Identity, people: Any, room: str, connect_timeout: float = 10.0) -> Endpoint:
    return dial(hub.address, who, people.pins, room=room, topic=room.encode(), connect_timeout=connect_timeout)


class Patient:
    """A service that answers when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self._go_on: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.service = Service("colonnade.Test", "Wait", self._wait, most=64 * MB)

    async def _wait(self, caller: str, asked: bytes) -> bytes:
        self._loop = asyncio.get_running_loop()
        self._go_on = self._go_on or asyncio.Event()
        self.asked += 1
        await self._go_on.wait()
        return asked

    def go_on(self) -> None:
        assert self._loop is not None
        assert self._go_on is not None
        self._loop.call_soon_threadsafe(self._go_on.set)


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true, for a minute at most."""
    end = time.monotonic() + 60
    while not true() and time.monotonic() < end:
        time.sleep(0.005)
    assert true()


@contextmanager
def flood(hub: Hub, who: Identity, people: Any, room: str, message: bytes) -> Iterator[list[int]]:
    """Somebody who sends this message as fast as the hub takes it; how many it sent."""
    line = _Line(hub.address, who, people.pins["coordinator"], 1, Limits.heartbeat, room)
    line.await_roster(20.0)
    sent, over = [0], threading.Event()

    def pour() -> None:
        while not over.is_set():
            if line.backlog < 16:
                line.put(message)
                sent[0] += 1
            else:
                time.sleep(0.0005)

    thread = threading.Thread(target=pour)
    thread.start()
    try:
        yield sent
    finally:
        over.set()
        thread.join()
        line.cancel()


def parcel(sender: str, receiver: str, size: int) -> bytes:
    return envelope.prefix(sender, receiver) + pack(Kind.DATA, 1, 0, 0, 0, bytes(size))


def tiny(sender: str, receiver: str) -> bytes:
    """As many of the smallest envelopes as fit into one bundle."""
    one = parcel(sender, receiver, 0)
    return envelope.bundle([one] * (envelope.FULL_BUNDLE // (len(one) + 4)))


NOISE = {"large": parcel("bank", "shop", MAX_PACKET - 4096), "tiny": tiny("bank", "shop")}


@pytest.mark.parametrize("noise", NOISE)
def test_a_flood_in_one_room_does_not_stop_the_rounds_in_another(people: Any, noise: str) -> None:
    """One floods a room as fast as it can, to one who does not read: the rounds of another study go on to their end,
    and the flood gets no more than its share."""
    rate = 8 * MB
    limits = HubLimits(bytes_per_second=rate)
    with Hub(people.coordinator, people.pins, rooms={"noisy": ["bank", "shop"], "calm": ["gym", "clinic"]},
             limits=limits, stall=1.0) as hub:  # fmt: skip
        passed = [0]
        hub._rooms.open["noisy"]._carry = lambda message: (passed.__setitem__(0, passed[0] + 1), message)[1]
        deaf = _Line(hub.address, people.shop, people.pins["coordinator"], 1, Limits.heartbeat, "noisy")
        deaf.await_roster(20.0)
        gym, clinic = join(hub, people.gym, people, "calm"), join(hub, people.clinic, people, "calm")
        gym.wait_for_peers(["clinic"])
        begun = time.monotonic()
        with flood(hub, people.bank, people, "noisy", NOISE[noise]):
            until(lambda: passed[0] > 5)
            before = passed[0]
            for turn in range(300):
                gym.channel("clinic").send("ask", turn=turn)
                assert clinic.channel("gym").recv("ask") == {"turn": turn}
                clinic.channel("gym").send("answer", turn=turn)
                assert gym.channel("clinic").recv("answer") == {"turn": turn}
            until(lambda: passed[0] > before)  # the flood has gone on as well, as far as it may
            one = len(NOISE[noise]) if noise == "large" else len(parcel("bank", "shop", 0)) + quota.MESSAGE
            most = rate * (time.monotonic() - begun) + quota._BURST * rate + 2 * max(MB, len(NOISE["tiny"]) * 20)
            assert passed[0] * one < most
        deaf.cancel()
        closing = threading.Thread(target=gym.close)
        closing.start()
        clinic.close()
        closing.join()


def test_one_who_does_not_read_in_one_room_is_served_in_another(people: Any) -> None:
    """Each connection has memory of its own, so that what waits in one room takes nothing from another."""
    rooms = {"noisy": ["bank", "shop"], "calm": ["shop", "clinic"]}
    with Hub(people.coordinator, people.pins, rooms=rooms, limits=HubLimits(memory=32 * MB)) as hub:
        deaf = _Line(hub.address, people.shop, people.pins["coordinator"], 1, Limits.heartbeat, "noisy")
        deaf.await_roster(20.0)
        shop, clinic = join(hub, people.shop, people, "calm"), join(hub, people.clinic, people, "calm")
        with flood(hub, people.bank, people, "noisy", NOISE["large"]):
            until(lambda: hub._rooms.open["noisy"].connections["shop"]._bytes > MB)
            for turn in range(50):
                clinic.channel("shop").send("word", turn=turn)
                assert shop.channel("clinic").recv("word") == {"turn": turn}
            assert hub._rooms.open["noisy"].connections["shop"]._bytes < 4 * MB
        deaf.cancel()
        closing = threading.Thread(target=shop.close)
        closing.start()
        clinic.close()
        closing.join()


def test_one_connection_too_many_is_refused_with_a_sentence(people: Any) -> None:
    rooms = {str(number): ["bank", "coordinator"] for number in range(4)}
    with Hub(people.coordinator, people.pins, rooms=rooms, limits=HubLimits(connections=2)) as hub:
        places = [join(hub, people.bank, people, room) for room in ("0", "1")]
        refused(ConnectError, ("CN034", "2", "connections"), join, hub, people.bank, people, "2", connect_timeout=0.1)
        again = join(hub, people.bank, people, "1")  # takes the place of the former one
        own = [join(hub, people.coordinator, people, room) for room in rooms]  # the hub's own identity is not limited
        places[0].close()
        until(lambda: hub._accounts["bank"].places.total() == 1)
        places.append(join(hub, people.bank, people, "2"))
        for place in (*places, again, *own):
            place._carrier.close()
        until(lambda: all(not account.places.total() for account in hub._accounts.values()))


def test_one_room_too_many_is_refused_with_a_sentence(people: Any) -> None:
    with Hub(people.coordinator, people.pins, rooms={}, limits=HubLimits(rooms=2)) as hub:
        hub.open("1", ["bank", "shop", "coordinator"])
        hub.open("2", ["bank", "clinic", "coordinator"])
        refused(ConnectError, ("CN033", "bank", "2"), hub.open, "3", ["bank", "gym", "coordinator"])
        hub.open("3", ["gym", "coordinator"])
        hub.close("1", "it is over")
        hub.open("4", ["bank", "gym", "coordinator"])
        assert set(hub.rooms) == {"2", "3", "4"}


def test_questions_have_limits_of_number_and_memory(people: Any) -> None:
    patient = Patient()
    limits = HubLimits(calls=2, memory=32 * MB)
    with (
        Hub(people.coordinator, people.pins, rooms={}, services=[patient.service], limits=limits) as hub,
        Caller(hub.address, people.bank, people.pins["coordinator"]) as bank,
        Caller(hub.address, people.shop, people.pins["coordinator"]) as shop,
        ThreadPoolExecutor(4) as pool,
    ):
        first = pool.submit(bank.ask, "colonnade.Test", "Wait", bytes(5 * MB), 60.0)
        until(lambda: patient.asked == 1)
        refused(ConnectError, ("CN036", "bank"), bank.ask, "colonnade.Test", "Wait", bytes(12 * MB))
        second = pool.submit(bank.ask, "colonnade.Test", "Wait", b"2", 60.0)
        until(lambda: patient.asked == 2)
        refused(ConnectError, ("CN035", "2"), bank.ask, "colonnade.Test", "Wait", b"3")
        other = pool.submit(shop.ask, "colonnade.Test", "Wait", b"4", 60.0)
        until(lambda: patient.asked == 3)
        patient.go_on()
        assert (len(first.result()), second.result(), other.result()) == (5 * MB, b"2", b"4")
        assert bank.ask("colonnade.Test", "Wait", bytes(7 * MB)) == bytes(7 * MB)
        until(lambda: all(not account._held and not account.calls for account in hub._accounts.values()))


def test_the_questions_of_one_who_is_dismissed_end(people: Any) -> None:
    patient = Patient()
    with (
        Hub(people.coordinator, people.pins, rooms={}, services=[patient.service]) as hub,
        Caller(hub.address, people.bank, people.pins["coordinator"]) as bank,
        ThreadPoolExecutor(1) as pool,
    ):
        asked = pool.submit(bank.ask, "colonnade.Test", "Wait", b"1", 60.0)
        until(lambda: patient.asked == 1)
        hub.dismiss("bank")
        refused(IdentityError, "ID014", asked.result)
        refused(IdentityError, "ID036", bank.ask, "colonnade.Test", "Wait", b"2")


def statuses(channel: Any, count: int, metadata: Any = (), path: str = envelope.PATH) -> list[grpc.StatusCode]:
    """How so many calls on one connection end."""
    found = []
    for _ in range(count):
        with pytest.raises(grpc.RpcError) as ended:
            list(channel.stream_stream(path)(iter([b""]), metadata=metadata, timeout=60))
        found.append(ended.value.code())
    return found


def test_one_who_is_refused_again_and_again_is_heard_less_often(people: Any) -> None:
    with Hub(people.coordinator, people.pins, rooms={}, limits=HubLimits(bytes_per_second=MB)) as hub:
        channel = open_channel(hub.address, people.bank, people.pins["coordinator"], 5.0)
        metadata = ((envelope.VERSION_KEY, envelope.VERSION), (envelope.ROOM_KEY, "nowhere"))
        free = quota._HEADROOM // (quota.REFUSAL + quota.CALL)
        with channel:
            begun = time.monotonic()
            assert set(statuses(channel, free + 6, metadata)) == {grpc.StatusCode.NOT_FOUND}
            least = 4 * (quota.REFUSAL + quota.CALL) / (quota._CEILING * MB)
            assert time.monotonic() - begun > least


def test_a_connection_on_which_names_are_taken_in_vain_ends(people: Any) -> None:
    liar = Identity(people.shop._key, Certificate("bank", people.shop.certificate.pem))
    with Hub(people.coordinator, people.pins) as hub, socket.create_server(("127.0.0.1", 0)) as relay:
        # One connection alone, since gRPC would open another.
        address = f"127.0.0.1:{relay.getsockname()[1]}"
        with open_channel(address, liar, people.pins["coordinator"], 5.0) as channel, Relay(relay, hub.port):
            found = statuses(channel, 40, ((envelope.VERSION_KEY, envelope.VERSION),))
        refused = found.count(grpc.StatusCode.UNAUTHENTICATED)
        assert 1 <= refused <= 20
        assert set(found[refused:]) == {grpc.StatusCode.UNAVAILABLE}


class Relay:
    """Passes one connection on, and no other."""

    def __init__(self, listener: socket.socket, port: int) -> None:
        self._listener, self._port = listener, port
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Relay:
        self._threads = [threading.Thread(target=self._meet)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join()

    def _meet(self) -> None:
        near, _ = self._listener.accept()
        self._listener.close()
        far = socket.create_connection(("127.0.0.1", self._port))
        other = threading.Thread(target=self._pump, args=(far, near))
        other.start()
        self._pump(near, far)
        other.join()
        near.close()
        far.close()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def test_one_who_never_ends_its_question_or_reads_its_answer_is_told(people: Any) -> None:
    patient = Patient()
    with Hub(
        people.coordinator, people.pins, rooms={}, services=[patient.service], limits=HubLimits(), stall=0.3
    ) as hub:
        over = threading.Event()

        def half() -> Iterator[bytes]:
            yield b"half a question"
            over.wait(60)

        with open_channel(hub.address, people.bank, people.pins["coordinator"], 5.0) as channel:
            metadata = ((envelope.VERSION_KEY, envelope.VERSION),)
            ask = channel.stream_stream("/colonnade.Test/Wait")
            refused(grpc.RpcError, ("CN043", "0.3"), list, ask(half(), metadata=metadata, timeout=60))
            over.set()
            unread = ask(pieces(bytes(40 * MB)), metadata=metadata, timeout=60)
            until(lambda: patient.asked == 1)
            patient.go_on()
            account = hub._accounts["bank"]
            until(lambda: not account.calls)
            assert account._held == 0
            refused(grpc.RpcError, "CN045", list, unread)


@pytest.mark.parametrize("field", ["connections", "rooms", "calls", "bytes_per_second", "memory"])
def test_limits_that_let_nobody_work_are_refused(field: str) -> None:
    refused(ConnectError, ("CN032", field), HubLimits, **{field: 0})


def test_a_bucket_lets_pass_what_it_holds_and_then_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(quota, "monotonic", lambda: now[0])
    bucket = Bucket(rate=10.0, size=20.0)
    assert [bucket.take(10), bucket.take(10), bucket.take(5)] == [0, 0, 0.5]
    now[0] += 0.5
    assert bucket.take(0) == 0
    assert bucket.take(1000) == quota._LONGEST_PAUSE
    now[0] += 1000.0
    assert bucket.take(20) == 0
    assert bucket.take(1) == pytest.approx(0.1)
