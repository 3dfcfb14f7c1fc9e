"""A participant that sends without end fills nobody's memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from colonnade.errors import ColonnadeError, PeerStopped
from colonnade.wire import Hub, Identity, dial, envelope
from colonnade.wire.circle import Connection
from colonnade.wire.hub_carrier import _Line
from colonnade.wire.packet import MAX_PACKET, Kind, Packet, pack
from colonnade.wire.stream import FloodError, Inbox, Outbox
from colonnade.wire.watch import Limits
from tests.support.refusals import refused

MB = 1 << 20
NAMES = ("bank", "coordinator", "shop")
FLOOD = 700
"""Messages of one megabyte: more than anybody may keep."""


@pytest.fixture(scope="module")
def identities() -> dict[str, Identity]:
    return {name: Identity.create(name) for name in NAMES}


def pins_of(identities: dict[str, Identity]) -> dict[str, Any]:
    return {name: identity.certificate for name, identity in identities.items()}


def pour(endpoint: Any, peer: str) -> None:
    """Send without regard to what the peer has taken, as fast as the hub takes it."""
    endpoint._post.wait_for_room = lambda name, size: endpoint._post.check(name)
    block = np.zeros(MB - 4096, np.uint8)
    for _ in range(FLOOD):
        endpoint.channel(peer).send("block", block=block)
        while (line := endpoint._carrier._line) is not None and line.backlog > 4:
            time.sleep(0.001)
    endpoint.channel(peer).recv("no more")


VICTIM = r"""
import re, sys
from pathlib import Path
from colonnade.errors import ProtocolError
from colonnade.wire import Certificate, Identity, dial
import numpy as np
address, folder, busy = sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "busy"
pins = {path.stem: Certificate.load(path) for path in folder.glob("*.crt")}
me = dial(address, Identity.load(folder / "bank.key", folder / "bank.crt"), pins)
me.wait_for_peers(["shop"])
peak = lambda: int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])
before = peak()
print("ready", flush=True)
try:
    while busy:  # waits until the flooding peer takes something, and lets the others send meanwhile
        me.channel("shop").send("block", block=np.zeros(1 << 20, np.uint8))
    me.channel("coordinator").recv("word")
except ProtocolError as error:
    print(error, flush=True)
    me.abort(error.for_peers)
print((peak() - before) // 1024, flush=True)
me.close()
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no other system tells the peak of one program")
@pytest.mark.parametrize(("state", "most"), [("idle", 200), ("busy", 500)])
def test_a_flooding_peer_is_shut_out(identities: dict[str, Identity], tmp_path: Path, state: str, most: int) -> None:
    """``most`` is by how many megabytes the victim may grow: the limit, what it sends itself, and a wide margin."""
    for identity in identities.values():
        identity.save(tmp_path)
    pins = pins_of(identities)
    with Hub(identities["coordinator"], pins) as hub:
        shop = dial(hub.address, identities["shop"], pins)
        coordinator = dial(hub.address, identities["coordinator"], pins)
        command = [sys.executable, "-c", VICTIM, hub.address, str(tmp_path), state]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
            shop.wait_for_peers(["bank"])
            assert victim.stdout.readline() == "ready\n"
            refused(PeerStopped, ("MS092", "bank"), pour, shop, "bank")
            said, grown = victim.communicate(timeout=1200)[0].splitlines()
        assert said.startswith("shop sends more than this participant gave it room for (")
        assert int(grown) < most
        shop.close()
        coordinator.close()


def test_a_participant_that_does_not_read_is_disconnected(identities: dict[str, Identity]) -> None:
    pins = pins_of(identities)
    with Hub(identities["coordinator"], pins, stall=0.5) as hub:
        deaf = _Line(hub.address, identities["bank"], pins["coordinator"], 1, Limits.heartbeat)
        deaf.await_roster(10.0)
        shop = dial(hub.address, identities["shop"], pins)
        parcel = envelope.prefix("shop", "bank") + pack(Kind.DATA, 1, 0, 0, 0, bytes(MAX_PACKET - 1024))
        most, end = 0, time.monotonic() + 60
        while "bank" in hub._rooms.open[""].connections and time.monotonic() < end:
            for _ in range(4):
                shop._carrier.send("bank", parcel)
            most = max([most, *(held._bytes for held in list(hub._rooms.open[""].connections.values()))])
            time.sleep(0.01)
        assert "bank" not in hub._rooms.open[""].connections
        assert most < 16 * MB
        with pytest.raises(grpc.RpcError) as ended:
            list(deaf.messages)
        assert "did not read" in ended.value.details()
        deaf.cancel()
        shop.close()


def test_news_does_not_pile_up_for_one_who_does_not_read() -> None:
    async def much_news() -> int:
        deaf = Connection("bank", 1)
        news = envelope.roster(envelope.HERE, {"shop": 1})
        for _ in range(1_000_000):
            deaf.announce(news)
            if deaf.ended.done():
                break
        return deaf._bytes

    assert asyncio.run(much_news()) < 64 * MB


def packet(sequence: int, size: int) -> Packet:
    return Packet(Kind.DATA, 1, sequence, 0, 0, memoryview(bytes(size)))


def full_inbox() -> Inbox:
    """An inbox with all that a peer may send before something is taken, and a little more."""
    inbox = Inbox(Limits(window=4 * MB, backlog=20 * MB))
    for sequence in range(5):
        assert inbox.add(packet(sequence, MB - 1024))
    return inbox


def test_more_than_the_window_is_a_flood() -> None:
    refused(FloodError, (), full_inbox().add, packet(5, MB))


def test_counts_are_told_when_somebody_asked_and_there_is_news_and_not_before() -> None:
    inbox = Inbox(Limits(window=4 * MB, backlog=20 * MB))
    inbox.ask()
    assert not inbox.report_due, "asked, and nothing has come"
    assert inbox.add(packet(0, 100))
    assert inbox.report_due
    inbox.report()
    assert inbox.add(packet(1, 100))
    assert not inbox.report_due, "there is news, and nobody asked since"


@pytest.mark.parametrize("make_room", [Inbox.take, Inbox.grant])
def test_what_was_taken_or_granted_makes_room(make_room: Any) -> None:
    inbox = full_inbox()
    make_room(inbox)
    assert inbox.add(packet(5, MB))


def test_no_more_is_granted_than_the_backlog_holds() -> None:
    inbox = Inbox(Limits(window=4 * MB, backlog=20 * MB))
    for sequence in range(100):
        try:
            inbox.add(packet(sequence, MB))
        except FloodError:
            break
        inbox.grant()
    assert 14 * MB <= inbox._held <= 20 * MB


def test_small_packets_are_counted_with_what_they_need() -> None:
    inbox = Inbox(Limits(window=4 * MB, backlog=20 * MB))

    def fill() -> None:
        for sequence in range(100_000):
            inbox.add(packet(sequence, 0))

    refused(FloodError, (), fill)
    assert 10_000 < inbox.report()[0] < 20_000


@pytest.mark.parametrize("seed", range(20))
def test_an_honest_peer_is_never_taken_for_a_flood(seed: int) -> None:
    """Whatever it sends, and whenever it learns what was taken."""
    random = np.random.default_rng(seed)
    window = int(random.integers(1, 64)) << 16
    outbox, inbox = Outbox(window), Inbox(Limits(window=window, backlog=2 * window + 4 * MB))
    travelling: deque[tuple[int, int]] = deque()
    reports: deque[tuple[int, int]] = deque()
    sent = 0
    for _ in range(3000):
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


def test_notices_to_one_who_was_lost_are_few(identities: dict[str, Identity]) -> None:
    pins = pins_of(identities)
    with Hub(identities["coordinator"], pins) as hub:
        bank = dial(hub.address, identities["bank"], pins, timeout=0.3)
        shop = dial(hub.address, identities["shop"], pins)
        bank.wait_for_peers(["shop"])
        bank.tolerate(["shop"])
        refused(ColonnadeError, ("PE017", "shop"), bank.channel("shop").recv, "word")
        before, start = bank.counters.peers["shop"].sealed_sent, time.monotonic()
        raw = pack(Kind.ASK, 7, 0, 0, 0, b"")
        for _ in range(20_000):
            bank._post.packet("shop", raw)
        notices = (bank.counters.peers["shop"].sealed_sent - before) // len(raw)
        assert 1 <= notices < 200 + 40 * (time.monotonic() - start)
        shop.close()
        bank.close()
