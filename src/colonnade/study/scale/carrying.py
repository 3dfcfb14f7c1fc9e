"""What messages take on this machine, through a hub and by a direct link: processor time a byte, a round trip."""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from colonnade.errors import ConnectError
from colonnade.models import registry
from colonnade.protocols.roles import COORDINATOR
from colonnade.received import Message, Octets, received
from colonnade.wire import Certificate, Endpoint, Hub, Identity, dial
from colonnade.wire.direct import Direct

ENDS = ("one", "other")
_THROUGH_HUB: Mapping[str, Direct | None] = dict.fromkeys(ENDS)
_LINKED: Mapping[str, Direct | None] = {"one": Direct(), "other": Direct(listen="127.0.0.1:20000-65535")}
_ROOMS = ("hub", "linked")
_PATIENCE = 60.0
_MESSAGE = 1 << 21
_OF_A_WORKER = ("pyarrow.parquet", "colonnade.study.run", "colonnade.privacy.noise.strips")
"""What a worker has imported, so that its memory is counted too."""


@dataclass(frozen=True)
class Carried:
    """What was measured."""

    end_byte: float
    """Seconds of one core for a byte, sent or received; both take about as long."""
    hub_byte: float
    session: float
    round_trip: float
    interpreter: int | None
    linked_byte: float
    """As ``end_byte``, by a direct link."""
    linked_trip: float


@dataclass(frozen=True)
class _Sent:
    """What was measured by one way."""

    session: float
    byte: float
    hub_byte: float
    trip: float
    memory: int | None


def carry(messages: int, rounds: int) -> Carried:
    """Send so many messages of 2 MiB from one end to the other, and so many small ones there and back, both ways."""
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder, _hub(Path(folder)) as (pipe, address):
        found, linked = (
            _by(way, room, Path(folder), address, pipe, messages, rounds)
            for way, room in zip((_THROUGH_HUB, _LINKED), _ROOMS, strict=True)
        )
    return Carried(found.byte, found.hub_byte, found.session, found.trip, found.memory, linked.byte, linked.trip)


def _by(
    way: Mapping[str, Direct | None],
    room: str,
    folder: Path,
    address: str,
    pipe: Connection,
    messages: int,
    rounds: int,
) -> _Sent:
    certificates = {name: Certificate.load(folder / f"{name}.crt") for name in (*ENDS, COORDINATOR)}
    before = time.process_time()
    ends = {
        name: dial(
            address,
            Identity.load(folder / f"{name}.key", folder / f"{name}.crt"),
            certificates,
            connect_timeout=_PATIENCE,
            room=room,
            direct=way[name],
        )
        for name in ENDS
    }
    try:
        for name, end in ends.items():
            end.wait_for_peers([other for other in ENDS if other != name], timeout=_PATIENCE)
        session = (time.process_time() - before) / len(ENDS)
        if way is _LINKED:
            _await_link(ends)
        return _between(ends, pipe, session, messages, rounds)
    finally:
        closing = [threading.Thread(target=end.close) for end in ends.values()]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()


def _await_link(ends: Mapping[str, Endpoint]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not all(way.direct for end in ends.values() for peer, way in end.ways.items() if peer in ENDS):
        if time.monotonic() > deadline:
            raise ConnectError("two programs of this machine cannot connect to each other: see its firewall [CN009]")
        time.sleep(0.01)


def _between(ends: Mapping[str, Endpoint], pipe: Connection, session: float, messages: int, rounds: int) -> _Sent:
    one, other = ends["one"].channel("other"), ends["other"].channel("one")
    content = np.random.default_rng(0).bytes(_MESSAGE)

    def answer() -> None:
        for _ in range(rounds):
            _take(other)
            other.send("piece", content=b"")
        for _ in range(messages):
            _take(other)
        other.send("piece", content=b"")

    answering = threading.Thread(target=answer, daemon=True)
    answering.start()
    trips = [_round_trip(one) for _ in range(rounds)]
    hub_before, before = _ask(pipe), time.process_time()
    for _ in range(messages):
        one.send("piece", content=content)
    _take(one)
    taken, hub_taken = time.process_time() - before, _ask(pipe)[0] - hub_before[0]
    answering.join(_PATIENCE)
    carried = messages * _MESSAGE
    return _Sent(session, taken / 2 / carried, hub_taken / carried, median(trips), hub_before[1])


_PIECE = Message("piece", content=Octets(0, _MESSAGE))


def _take(channel: Any) -> None:
    received(channel, "the other end", _PIECE)


def _round_trip(channel: Any) -> float:
    start = time.perf_counter()
    channel.send("piece", content=b"")
    _take(channel)
    return time.perf_counter() - start


@contextmanager
def _hub(folder: Path) -> Iterator[tuple[Connection, str]]:
    """A hub in a process of its own, which says how much processor time it has taken."""
    for name in (*ENDS, COORDINATOR):
        Identity.create(name).save(folder)
    spawn = multiprocessing.get_context("spawn")
    pipe, far = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(str(folder), far), daemon=True)
    process.start()
    far.close()
    try:
        yield pipe, _began(pipe)
    finally:
        pipe.close()  # which ends it
        process.join(_PATIENCE)
        if process.is_alive():
            process.kill()


def _began(pipe: Connection) -> str:
    try:
        if pipe.poll(_PATIENCE):
            return pipe.recv_bytes().decode()
    except EOFError:
        pass
    raise ConnectError("a hub of this machine did not start [CN010]")


def _serve(folder: str, pipe: Connection) -> None:
    for name in _OF_A_WORKER:
        import_module(name)
    registry.load(registry.rows()[0].kind)  # any model will do
    place = Path(folder)
    names = (*ENDS, COORDINATOR)
    certificates = {name: Certificate.load(place / f"{name}.crt") for name in names}
    identity = Identity.load(place / f"{COORDINATOR}.key", place / f"{COORDINATOR}.crt")
    with Hub(identity, certificates, rooms=dict.fromkeys(_ROOMS, names)) as hub:
        pipe.send_bytes(hub.address.encode())
        while True:
            try:
                pipe.recv_bytes()
            except EOFError:
                return
            pipe.send_bytes(json.dumps([time.process_time(), _resident()]).encode())


def _ask(pipe: Connection) -> tuple[float, int | None]:
    pipe.send_bytes(b"taken")
    seconds, memory = json.loads(pipe.recv_bytes())
    return seconds, memory


def _resident() -> int | None:
    """The most memory that this process has had, where the system says so."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
