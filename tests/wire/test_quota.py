"""What one may have of a hub and of its peers: whoever floods, drips or asks for much takes nothing from the others."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import colonnade
from colonnade.errors import ColonnadeError, ConnectError, IdentityError, PeerLost, PeerStopped
from colonnade.wire import (
    Certificate,
    Endpoint,
    Hub,
    HubClient,
    HubLimits,
    HubService,
    Identity,
    dial,
    packets as envelope,
    quota,
)
from colonnade.wire.endpoint import _LENGTH
from colonnade.wire.hub import split_pieces
from colonnade.wire.hub_connection import _HubStream, open_channel
from colonnade.wire.packets import MAX_PACKET, Packet, PacketKind, pack_packet
from colonnade.wire.peer_liveness import PROGRESS, PeerLiveness, WireLimits
from colonnade.wire.quota import TokenBucket
from colonnade.wire.reliable_transport import FloodError, PacketInbox, PacketOutbox
from colonnade.wire.study_sessions import SessionConnection
from tests.support.errors import refused
from tests.support.waiting import until
from tests.support.wires import SECONDS, WORDS, Wire, closed, in_threads, join, people, says

MB = 1 << 20
VERSION = (envelope.VERSION_KEY, envelope.VERSION)


class Patient:
    """A service that answers when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self._go_on = asyncio.Event()
        self._loop: Any = None
        self.service = HubService("colonnade.Test", "Wait", self._wait, most=64 * MB)

    async def _wait(self, caller: str, asked: bytes) -> bytes:
        self._loop = asyncio.get_running_loop()
        self.asked += 1
        await self._go_on.wait()
        return asked

    def go_on(self) -> None:
        self._loop.call_soon_threadsafe(self._go_on.set)


def hub_of(patient: Patient | None = None, **options: Any) -> Hub:
    services = [] if patient is None else [patient.service]
    return Hub(people().coordinator, people().everybody, services=services, **{"rooms": {}, **options})


def line(hub: Hub, name: str, room: str = "") -> _HubStream:
    """A connection that sends what it is given, and that nobody reads."""
    found = _HubStream(hub.address, people().all[name], people().hub, 1, WireLimits.heartbeat, room)
    found.await_roster(SECONDS)
    return found


@contextmanager
def flood(hub: Hub, room: str, message: bytes) -> Iterator[None]:
    """The bank sends this message as fast as the hub takes it."""
    floods, over = line(hub, "bank", room), threading.Event()

    def pour() -> None:
        while not over.is_set():
            if floods.backlog < 16:
                floods.put(message)
            else:
                time.sleep(0.0005)

    thread = threading.Thread(target=pour)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        floods.cancel()


def parcel(size: int) -> bytes:
    return envelope.envelope_prefix("bank", "shop") + pack_packet(PacketKind.DATA, 1, 0, 0, 0, bytes(size))


TINY = envelope.bundle([parcel(0)] * (envelope.FULL_BUNDLE // (len(parcel(0)) + 4)))
"""As many of the smallest envelopes as fit into one bundle."""
LARGE = parcel(MAX_PACKET - 4096)


@pytest.mark.parametrize(
    ("message", "each"), [(LARGE, len(LARGE)), (TINY, len(parcel(0)) + quota.MESSAGE)], ids=["large", "tiny"]
)
def test_a_flood_in_one_room_does_not_stop_the_rounds_in_another(message: bytes, each: int) -> None:
    """One floods a room as fast as it can, to one who does not read: the rounds of another study go on to their end,
    and the flood gets no more than its share. Each connection has memory of its own, so that who does not read in one
    room is served in another."""
    rate, rooms = 8 * MB, {"noisy": ["bank", "shop"], "calm": ["gym", "clinic", "shop"]}
    with hub_of(rooms=rooms, limits=HubLimits(bytes_per_second=rate, memory=32 * MB), stall=2.0) as hub:
        passed = list[int]()

        def counted(message: bytes) -> bytes:
            passed.append(1)
            return message

        hub._rooms.open["noisy"]._carry = counted
        deaf = line(hub, "shop", "noisy")
        gym, clinic, shop = (join(hub, name, "calm") for name in ("gym", "clinic", "shop"))
        gym.wait_for_peers(["clinic", "shop"])
        begun = time.monotonic()
        with flood(hub, "noisy", message):
            until(lambda: len(passed) > 5)
            before = len(passed)
            for turn in range(100):
                says(gym, clinic, "ask", turn=turn)
                says(clinic, gym, "answer", turn=turn)
                says(gym, shop, "ask", turn=turn)
            # The flood has gone on as well, as far as it may: until the one who does not read is disconnected.
            until(lambda: len(passed) > before or "shop" not in hub._rooms.open["noisy"].connections)
            most = rate * (time.monotonic() - begun) + quota._BURST * rate + 2 * max(MB, len(TINY) * 20)
            assert len(passed) * each < most
            held = hub._rooms.open["noisy"].connections.get("shop")
            assert held is None or held._bytes < 4 * MB
        deaf.cancel()
        closed(gym, clinic, shop)


def test_a_participant_that_does_not_read_is_disconnected() -> None:
    with Hub(people().coordinator, people().pins, stall=0.5) as hub:
        deaf, shop, most, open_now = line(hub, "bank"), join(hub, "shop", reconnect_grace=0.5), 0, hub._rooms.open[""]
        message = envelope.envelope_prefix("shop", "bank") + pack_packet(
            PacketKind.DATA, 1, 0, 0, 0, bytes(MAX_PACKET - 1024)
        )
        end = time.monotonic() + SECONDS
        while "bank" in open_now.connections and time.monotonic() < end:
            if shop._carrier._line.backlog < 16:
                shop._carrier.send("bank", message)
            most = max([most, *(held._bytes for held in list(open_now.connections.values()))])
            time.sleep(0.001)
        assert "bank" not in open_now.connections
        assert most < 16 * MB
        with pytest.raises(grpc.RpcError) as ended:
            list(deaf.messages)
        assert "did not read" in ended.value.details()
        deaf.cancel()
        shop.close()


def test_news_does_not_pile_up_for_one_who_does_not_read() -> None:
    async def much_news() -> int:
        deaf = SessionConnection("bank", 1)
        news = envelope.pack_roster(envelope.HERE, {"shop": 1})
        for _ in range(1_000_000):
            deaf.announce(news)
            if deaf.end_reason.done():
                break
        return deaf._bytes

    assert asyncio.run(much_news()) < 64 * MB


# --- places and questions at a hub


def test_one_connection_or_room_too_many_is_refused_with_a_sentence() -> None:
    rooms = {str(number): ["bank", "coordinator"] for number in range(3)}
    with hub_of(rooms=rooms, limits=HubLimits(connections=2, studies=3)) as hub:
        places = [join(hub, "bank", room) for room in ("0", "1")]
        refused(ConnectError, ("CN034", "2", "connections"), join, hub, "bank", "2", connect_timeout=0.1)
        places.append(join(hub, "bank", "1"))  # takes the place of the former one
        places += [join(hub, "coordinator", room) for room in rooms]  # the hub's own identity is not limited
        places[0].close()
        until(lambda: hub._accounts["bank"].places.total() == 1)
        places.append(join(hub, "bank", "2"))
        for place in places:
            place._carrier.close()
        until(lambda: all(not account.places.total() for account in hub._accounts.values()))
        refused(ConnectError, ("CN033", "bank", "3"), hub.open, "3", ["bank", "gym", "coordinator"])
        hub.open("3", ["gym", "coordinator"])
        hub.close("1", "it is over")
        hub.open("4", ["bank", "gym", "coordinator"])
        assert set(hub.rooms) == {"0", "2", "3", "4"}


def test_questions_have_limits_of_number_and_memory_and_end_with_the_member() -> None:
    patient, known = Patient(), people()
    limits = HubLimits(calls=2, memory=32 * MB)
    with (
        hub_of(patient, limits=limits) as hub,
        HubClient(hub.address, known.bank, known.hub) as bank,
        HubClient(hub.address, known.shop, known.hub) as shop,
        ThreadPoolExecutor(4) as pool,
    ):
        asked = ("colonnade.Test", "Wait")
        first = pool.submit(bank.ask, *asked, bytes(5 * MB), SECONDS)
        until(lambda: patient.asked == 1)
        refused(ConnectError, ("CN036", "bank"), bank.ask, *asked, bytes(12 * MB))
        second = pool.submit(bank.ask, *asked, b"2", SECONDS)
        until(lambda: patient.asked == 2)
        refused(ConnectError, ("CN035", "2"), bank.ask, *asked, b"3")
        other = pool.submit(shop.ask, *asked, b"4", SECONDS)
        until(lambda: patient.asked == 3)
        hub.dismiss("shop")
        refused(IdentityError, "ID014", other.result)
        refused(IdentityError, "ID036", shop.ask, *asked, b"5")  # on the same connection
        patient.go_on()
        assert (len(first.result()), second.result()) == (5 * MB, b"2")
        assert bank.ask(*asked, bytes(7 * MB)) == bytes(7 * MB)
        until(lambda: all(not account.held and not account.calls for account in hub._accounts.values()))


def test_one_who_never_ends_its_question_or_reads_its_answer_is_told() -> None:
    patient, over = Patient(), threading.Event()

    def half() -> Iterator[bytes]:
        yield b"half a question"
        over.wait(SECONDS)

    with (
        hub_of(patient, limits=HubLimits(), stall=0.3) as hub,
        open_channel(hub.address, people().bank, people().hub, 5.0) as channel,
    ):
        ask = channel.stream_stream("/colonnade.Test/Wait")
        refused(grpc.RpcError, ("CN043", "0.3"), list, ask(half(), metadata=(VERSION,), timeout=SECONDS))
        over.set()
        hub._stall = SECONDS  # a whole question may come slowly here, and its answer may not be left
        unread = ask(split_pieces(bytes(40 * MB)), metadata=(VERSION,), timeout=SECONDS)
        until(lambda: patient.asked == 1)
        hub._stall = 0.3
        patient.go_on()
        account = hub._accounts["bank"]
        until(lambda: not account.calls)
        assert account.held == 0
        refused(grpc.RpcError, "CN045", list, unread)


def statuses(channel: Any, count: int, metadata: Any = ()) -> list[grpc.StatusCode]:
    """How so many calls on one connection end."""
    found = []
    for _ in range(count):
        with pytest.raises(grpc.RpcError) as ended:
            list(channel.stream_stream(envelope.PATH)(iter([b""]), metadata=metadata, timeout=SECONDS))
        found.append(ended.value.code())
    return found


def test_one_who_is_refused_again_and_again_is_heard_less_often() -> None:
    metadata = (VERSION, (envelope.ROOM_KEY, "nowhere"))
    free = quota._HEADROOM // (quota.REFUSAL + quota.CALL)
    with (
        hub_of(limits=HubLimits(bytes_per_second=MB)) as hub,
        open_channel(hub.address, people().bank, people().hub, 5.0) as channel,
    ):
        begun = time.monotonic()
        assert set(statuses(channel, free + 3, metadata)) == {grpc.StatusCode.NOT_FOUND}
        assert time.monotonic() - begun > (quota.REFUSAL + quota.CALL) / (quota._CEILING * MB)


def test_a_connection_on_which_names_are_taken_in_vain_ends(people: Any, hub: Hub) -> None:
    liar = Identity(people.shop._key, Certificate("bank", people.shop.certificate.pem))
    wire = Wire(hub.port)
    with open_channel(f"127.0.0.1:{wire.port}", liar, people.hub, 5.0) as channel:
        found = statuses(channel, 1, (VERSION,))
        wire._whole = False  # there will be no other connection, though gRPC would open one
        found += statuses(channel, 39, (VERSION,))
    wire.close()
    vain = found.count(grpc.StatusCode.UNAUTHENTICATED)
    assert 1 <= vain <= 20
    assert set(found[vain:]) == {grpc.StatusCode.UNAVAILABLE}


def test_limits_that_let_nobody_work_are_refused() -> None:
    for field in ("connections", "studies", "calls", "bytes_per_second", "memory"):
        refused(ConnectError, ("CN032", field), HubLimits, **{field: 0})


def test_a_bucket_lets_pass_what_it_holds_and_then_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(quota, "monotonic", lambda: now[0])
    bucket = TokenBucket(rate=10.0, size=20.0)
    assert [bucket.take(10), bucket.take(10), bucket.take(5)] == [0, 0, 0.5]
    now[0] += 0.5
    assert [bucket.take(0), bucket.take(1000)] == [0, quota._LONGEST_PAUSE]
    now[0] += 1000.0
    assert [bucket.take(20), bucket.take(1)] == [0, pytest.approx(0.1)]


# --- what a peer may send before something is taken


def packet(sequence: int, size: int) -> Packet:
    return Packet(PacketKind.DATA, 1, sequence, 0, 0, memoryview(bytes(size)))


def inbox_of(packets: int = 0) -> PacketInbox:
    """An inbox with a window of four megabytes, and some packets of one."""
    inbox = PacketInbox(WireLimits(window=4 * MB, backlog=20 * MB))
    for sequence in range(packets):
        assert inbox.add(packet(sequence, MB - 1024))
    return inbox


def fill(inbox: PacketInbox, size: int, after: Callable[[], Any] = int) -> None:
    for sequence in range(100_000):
        inbox.add(packet(sequence, size))
        after()


def test_more_than_the_window_is_a_flood_unless_something_was_taken_or_granted() -> None:
    refused(FloodError, (), inbox_of(5).add, packet(5, MB))
    for make_room in (PacketInbox.take, PacketInbox.grant):
        inbox = inbox_of(5)
        make_room(inbox)
        assert inbox.add(packet(5, MB))
    inbox = inbox_of()
    refused(FloodError, (), fill, inbox, MB, inbox.grant)
    assert 14 * MB <= inbox._held <= 20 * MB, "no more is granted than the backlog holds"
    inbox = inbox_of()
    refused(FloodError, (), fill, inbox, 0)
    assert 10_000 < inbox.report()[0] < 20_000, "small packets are counted with what they need"


def test_counts_are_told_when_somebody_asked_and_there_is_news_and_not_before() -> None:
    inbox = inbox_of()
    inbox.ask()
    assert not inbox.report_due, "asked, and nothing has come"
    assert inbox.add(packet(0, 100))
    assert inbox.report_due
    inbox.report()
    assert inbox.add(packet(1, 100))
    assert not inbox.report_due, "there is news, and nobody asked since"


@pytest.mark.parametrize("seed", range(5))
def test_an_honest_peer_is_never_taken_for_a_flood(seed: int) -> None:
    """Whatever it sends, and whenever it learns what was taken."""
    random = np.random.default_rng(seed)
    window = int(random.integers(1, 64)) << 16
    outbox, inbox = PacketOutbox(window), PacketInbox(WireLimits(window=window, backlog=2 * window + 4 * MB))
    travelling: deque[tuple[int, int]] = deque()
    reports: deque[tuple[int, int]] = deque()
    sent = 0
    for _ in range(6000):
        step = random.integers(6)
        if step <= 1:
            size = int(min(random.integers(1, random.choice([100, MAX_PACKET // 2])), window // 4))
            if outbox.has_room(size):
                sealed = size + 22 * (size // (1 << 14) + 1)
                travelling.append((outbox.next_sequence, sealed))
                outbox.add(bytes(sealed + 60))
                sent += 1
        elif step == 2 and travelling:
            assert inbox.add(packet(*travelling.popleft()))
        elif step == 3:
            inbox.take()
        elif step == 4 and random.integers(4) == 0:
            inbox.grant()
        elif step == 5:
            reports.append(inbox.report())
            if random.integers(2):
                outbox.acknowledge(*reports.popleft())
    assert sent > 50


# --- signs of life without progress are no reason to wait: whoever only drips is given up


@pytest.fixture
def ends(hub: Hub) -> Iterator[tuple[Endpoint, Endpoint]]:
    bank, shop = (join(hub, name, timeout=0.4, window=1 << 14) for name in ("bank", "shop"))
    bank.channel("shop").open()
    shop.wait_for_peers(["bank"], timeout=SECONDS)
    bank.wait_for_peers(["shop"], timeout=SECONDS)
    yield bank, shop
    closed(bank, shop)


def drip(bank: Endpoint, shop: Endpoint, what: str, number: int) -> None:
    """Something small happens that brings nothing on."""
    if what == "a message byte by byte":
        raw = _LENGTH.pack(1000) + bytes(1000)
        shop._post.dispatch("bank", shop.channel("bank")._session.seal([raw[number : number + 1]]))
    elif what == "empty data":
        shop._post.dispatch("bank", b"")
    elif what == "a connection that breaks again and again":
        incarnation = bank._post.peers["shop"].incarnation
        bank._post.peer_gone("shop")
        bank._post.peer_here("shop", incarnation)
    else:
        with shop._post.changed:
            shop._post._send("bank", PacketKind.ASK if what == "questions" else PacketKind.ACK)


@pytest.mark.parametrize(
    ("waits", "what"),
    [
        ("to receive", "questions"),
        ("to receive", "empty data"),
        ("to receive", "a message byte by byte"),
        ("to receive", "a connection that breaks again and again"),
        ("to send", "acknowledgements"),
    ],
)
def test_a_peer_that_only_drips_is_given_up(ends: tuple[Endpoint, Endpoint], waits: str, what: str) -> None:
    """Something small happens much longer than the silence; then what was waited for comes."""
    bank, shop = ends
    over, both = threading.Event(), {"bank": bank.channel("shop"), "shop": shop.channel("bank")}
    sender, receiver = ("bank", "shop") if waits == "to send" else ("shop", "bank")

    def send() -> None:
        for _ in range(3):
            both[sender].send("block", block=bytes(15_000))

    def receive() -> None:
        for _ in range(3):
            both[receiver].recv("block")

    def drips() -> None:
        with suppress(ColonnadeError):
            for number in range(300):
                if over.wait(0.1):
                    return
                drip(bank, shop, what, number)
            (receive if waits == "to send" else send)()

    thread = threading.Thread(target=drips)
    thread.start()
    try:
        refused(PeerLost, ("PE017", "shop"), send if waits == "to send" else receive)
    finally:
        over.set()
        thread.join()


def test_notices_to_one_who_was_lost_are_few(ends: tuple[Endpoint, Endpoint]) -> None:
    bank, _ = ends
    bank.tolerate(["shop"])
    refused(PeerLost, ("PE017", "shop"), bank.channel("shop").recv, "word")
    before, start = bank.counters.peers["shop"].sealed_sent, time.monotonic()
    raw = pack_packet(PacketKind.ASK, 7, 0, 0, 0, b"")
    for _ in range(20_000):
        bank._post.packet("shop", raw)
    notices = (bank.counters.peers["shop"].sealed_sent - before) // len(raw)
    assert 1 <= notices < 200 + 40 * (time.monotonic() - start)


def test_time_starts_anew_with_progress_and_stands_still_while_a_connection_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("colonnade.wire.peer_liveness.monotonic", lambda: now)
    watch = PeerLiveness("bank", ["shop"], WireLimits(timeout=10.0))
    with watch.changed:
        watch._note_present("shop", 1)
        assert watch._patience_ends("shop", 100.0, giving=False) == 110.0
        now = 105.0
        watch._note_taken("shop", PROGRESS - 1)
        assert watch._patience_ends("shop", 100.0, giving=False) == 110.0
        watch._note_taken("shop", 1)
        assert watch._patience_ends("shop", 100.0, giving=False) == 115.0
        now = 107.0
        watch._note_sent("shop", PROGRESS)
        assert watch._patience_ends("shop", 100.0, giving=False) == 115.0
        assert watch._patience_ends("shop", 100.0, giving=True) == 117.0
        watch.peer_gone("shop")
        now = 109.0
        watch.carrier_down("cut")
        now = 112.0
        watch._note_connected({"shop": 1})
        assert watch._patience_ends("shop", 100.0, giving=False) == 120.0


# --- what only other processes show: kills, floods of memory, few descriptors, keys that touch no disk, and imports

ALL_JOIN = """
import os, re, resource, sys, time
from pathlib import Path
from colonnade.wire import Certificate, Hub, Identity, dial
folder = Path(sys.argv[1])
pins = {path.stem: Certificate.load(path) for path in folder.glob("*.crt")}
"""
"""Programs know the participants by their files."""


@contextmanager
def program(folder: Path, text: str, *words: object, **environment: str) -> Iterator[Any]:
    """A program with the keys of all participants, which ends with the block at the latest."""
    for name in people().pins:
        if not (folder / f"{name}.key").exists():
            people().all[name].save(folder)
    command = [sys.executable, "-c", text, str(folder), *map(str, words)]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": os.environ | environment}
    with subprocess.Popen(command, text=True, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


PARTY = (
    ALL_JOIN
    + """
me = dial(sys.argv[2], Identity.load(folder / "shop.key", folder / "shop.crt"), pins)
me.wait_for_peers(["bank"])
me.channel("bank").send("ready")
time.sleep(600)
"""
)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.system
def test_a_killed_or_frozen_process_is_noticed(tmp_path: Path, how: signal.Signals) -> None:
    with Hub(people().coordinator, people().pins, heartbeat=1.0) as hub:
        bank, coordinator = (join(hub, name, reconnect_grace=0.5) for name in ("bank", "coordinator"))
        with program(tmp_path, PARTY, hub.address) as shop:
            bank.channel("shop").recv("ready")
            shop.send_signal(how)
            for endpoint, peer in ((bank, "shop"), (coordinator, "bank")):
                refused(PeerLost, ("PE014", "shop", "0.5"), endpoint.channel(peer).recv, "more")
        closed(bank, coordinator)


VICTIM = (
    ALL_JOIN
    + r"""
from colonnade.errors import PeerLost
import numpy as np
me = dial(sys.argv[2], Identity.load(folder / "bank.key", folder / "bank.crt"), pins)
me.wait_for_peers(["shop"])
peak = lambda: int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])
before = peak()
print("ready", flush=True)
try:
    while sys.argv[3] == "busy":  # waits until the flooding peer takes something, and lets the others send meanwhile
        me.channel("shop").send("block", block=np.zeros(1 << 20, np.uint8))
    me.channel("coordinator").recv("word")
except PeerLost as error:
    print(error, flush=True)
    me.abort(error.for_peers)
print((peak() - before) // 1024, flush=True)
me.close()
"""
)


def pour(endpoint: Any, peer: str) -> None:
    """Send more megabytes than anybody may keep, without regard to what the peer has taken, as the hub takes them."""
    endpoint._post.wait_for_room = lambda name, size: endpoint._post.check(name)
    block = np.zeros(MB - 4096, np.uint8)
    for _ in range(700):
        endpoint.channel(peer).send("block", block=block)
        while (line := endpoint._carrier._line) is not None and line.backlog > 4:
            time.sleep(0.001)
    endpoint.channel(peer).recv("no more")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no other system tells the peak of one program")
@pytest.mark.parametrize(("state", "most"), [("idle", 200), ("busy", 500)])
@pytest.mark.system
def test_a_flooding_peer_is_shut_out(tmp_path: Path, state: str, most: int) -> None:
    """``most`` is by how many megabytes the victim may grow: the limit, what it sends itself, and a wide margin."""
    with Hub(people().coordinator, people().pins) as hub:
        shop, coordinator = join(hub, "shop"), join(hub, "coordinator")
        with program(tmp_path, VICTIM, hub.address, state) as victim:
            shop.wait_for_peers(["bank"])
            assert victim.stdout.readline() == "ready\n"
            refused(PeerStopped, ("MS092", "bank"), pour, shop, "bank")
            said, grown = victim.communicate(timeout=1200)[0].splitlines()
        assert said.startswith("shop, or the hub in its name, sends more than this participant gave it room for (")
        assert int(grown) < most
        closed(shop, coordinator)


# --- strangers at a hub that may have few descriptors


HUB = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[3])))
""" + ALL_JOIN + """
me = Identity.load(folder / "coordinator.key", folder / "coordinator.crt")
with Hub(me, pins, handshake=5.0) as hub:
    print(hub.port, resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)
    with dial(hub.own_address, me, pins) as place:
        place.wait_for_peers(timeout=100)
        for name in ("bank", "shop"):
            place.channel(name).send("go", files=len(os.listdir("/dev/fd")))
            place.channel(name).recv("done")
"""  # fmt: skip
DESCRIPTORS, ELSEWHERE = 256, "127.0.0.2"


def _is_open(end: socket.socket) -> bool:
    try:
        return not select.select([end], [], [], 0)[0] or bool(end.recv(1 << 16))
    except OSError:
        return False


@contextmanager
def strangers(port: int, count: int, words: bytes, home: str) -> Iterator[None]:
    """So many connections are held all the time: there is a new one for each that was closed."""
    held, full, over = list[socket.socket](), threading.Event(), threading.Event()

    def hold() -> None:
        while not over.wait(0.02):
            for end in [end for end in held if not _is_open(end)]:
                held.remove(end)
                end.close()
            with suppress(OSError):
                while len(held) < count:
                    held.append(socket.create_connection(("127.0.0.1", port), timeout=2, source_address=(home, 0)))
                    held[-1].sendall(words)
                full.set()

    thread = threading.Thread(target=hold)
    thread.start()
    assert full.wait(60)
    yield
    over.set()
    thread.join()
    for end in held:
        end.close()


SLOW = ("the beginning of one", "plain HTTP/2", "noise")


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in SLOW)) for kind in WORDS])
@pytest.mark.system
def test_parties_join_among_strangers(tmp_path: Path, kind: str) -> None:
    home, count = "127.0.0.1", 300
    if kind == "half a handshake":  # nothing but their address tells these from participants
        try:
            socket.create_server((ELSEWHERE, 0)).close()
        except OSError:
            pytest.skip("this system has one address only")
        home, count = ELSEWHERE, 100  # three descriptors each
    files: list[int] = []

    def play(name: str) -> None:
        with dial(f"127.0.0.1:{port}", people().all[name], people().pins, connect_timeout=100) as place:
            place.wait_for_peers(timeout=100)
            files.append(place.channel("coordinator").recv("go")["files"])
            place.channel("coordinator").send("done")

    with program(tmp_path, HUB, DESCRIPTORS, DESCRIPTORS) as hub:
        port, _ = map(int, hub.stdout.readline().split())
        with strangers(port, count, WORDS[kind], home):
            in_threads(lambda: play("bank"), lambda: play("shop"))
            _, said = hub.communicate(timeout=60)
    assert (hub.returncode, said, len(files)) == (0, "", 2)
    assert max(files) < DESCRIPTORS


@pytest.mark.system
def test_the_limit_of_descriptors_is_raised(tmp_path: Path) -> None:
    with program(tmp_path, HUB, 128, 1500) as hub:
        assert hub.stdout.readline().split()[1] == "1500"


# --- a private key leaves no trace on a disk, whatever becomes of the process


AGAIN_AND_AGAIN = """
from colonnade.wire.identity import Identity
from colonnade.wire.endpoint import TlsSession
bank, shop = Identity.create("bank"), Identity.create("shop").certificate
print("ready", flush=True)
while True:
    TlsSession(bank, shop)
"""
LISTED = """
import sys, os
opened = []
sys.addaudithook(lambda event, args: opened.append((event, args[0])) if event in ("open", "os.open") else None)
from colonnade.wire import Hub, Identity, dial
from colonnade.wire.endpoint import TlsSession
people = {name: Identity.create(name) for name in ("bank", "coordinator")}
pins = {name: who.certificate for name, who in people.items()}
del opened[:]
with Hub(people["coordinator"], pins) as hub:
    ends = [dial(hub.address, who, pins) for who in people.values()]
    ends[0].wait_for_peers()
    for end in ends:
        end.close()
written = [path for event, path in opened if str(path).startswith(os.environ["TMPDIR"]) or ".pem" in str(path)]
assert not written, written
"""


@pytest.mark.system
def test_no_key_is_written_by_a_run_or_by_a_killed_process(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    moments, environment = np.random.default_rng(10), {"TMPDIR": str(empty), "PYTHONDONTWRITEBYTECODE": "1"}
    for _ in range(2):
        with program(tmp_path, AGAIN_AND_AGAIN, **environment) as process:
            assert process.stdout.readline() == "ready\n"
            seen = []
            for _ in range(100):
                seen += list(empty.iterdir())
                time.sleep(moments.uniform(0, 0.002))
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert seen == list(empty.iterdir()) == []
    with program(tmp_path, LISTED, **environment) as process:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said


# --- what it costs to import the pillars: nothing heavy is loaded before it is needed


HEAVY = ("grpc", "cryptography.x509", "flint", "nacl", "torch", "scipy", "pyarrow", "pandas", "pydantic")
PARTS = tuple(f"colonnade.wire.{name}" for name in ("hub", "hub_carrier", "channel", "room"))
IMPORTED = """
import sys, types
sys.modules["colonnade"] = types.ModuleType("colonnade")
sys.modules["colonnade"].__path__ = [{folder!r}]
{statement}
print(*sorted(set({names!r}) & set(sys.modules)))
"""
"""A program that imports without what the package as a whole imports."""
STATEMENTS = {
    "from colonnade.wire import check_name, InMemoryNetwork, TrafficCounters": (
        *HEAVY,
        "cryptography",
    ),
    "from colonnade.wire import Certificate, Endpoint, Hub, Identity, dial, probe": (*HEAVY, "cryptography"),
    "from colonnade.wire import check_name": (*PARTS, "asyncio", "ssl"),
    "import colonnade.mpc.committee, colonnade.mpc.engine, colonnade.mpc.blinding": HEAVY,
    "import colonnade.mpc.key_value_store, colonnade.mpc.accelerator, colonnade.mpc.fixed_point.arithmetic": HEAVY,
}


@pytest.mark.system
def test_imports_load_nothing_that_is_not_needed(tmp_path: Path) -> None:
    folder = str(Path(colonnade.__file__).parent)
    certificates = "from colonnade.wire import Identity; Identity.create('bank')"  # which loads the library for them
    for statement, names in (*STATEMENTS.items(), (certificates, HEAVY)):
        with program(tmp_path, IMPORTED.format(folder=folder, statement=statement, names=names)) as process:
            out, said = process.communicate(timeout=60)
        expected = "cryptography.x509" if statement == certificates else ""
        assert (out.strip(), process.returncode) == (expected, 0), (statement, said)
