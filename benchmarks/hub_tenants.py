"""Rounds of one study at a standing hub, beside others who flood it, who do not read, and strangers with connections.

In a round each of two participants sends the other 4 kB, in processes over TLS, through a hub in another one. A noisy
tenant has a room with four members: one sends 1 MB messages as fast as it can to one who reads, and one to one who does
not. Noise has a low priority, as it would come from machines of its own. With one exception every hub has the limits
that a standing hub has by default.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from colonnade.errors import ColonnadeError
from colonnade.wire import Certificate, Hub, HubLimits, Identity, dial, packets
from colonnade.wire.hub_connection import _HubStream
from colonnade.wire.packets import MAX_PACKET, PacketKind, pack_packet
from colonnade.wire.peer_liveness import WireLimits
from colonnade.wire.quota import UNLIMITED

PAGE = Path(__file__).parent / "results" / "hub-tenants.md"
ROUNDS = 1500
SIZE = 4096
MOST_TENANTS = 4
STRANGERS = 1000
CALM, CALM_ROOM = ("bank", "shop"), "calm"
SLOW, SLOW_ROOMS = ("slow0", "slow1", "slow2", "slow3"), 16
SCENES: dict[str, dict[str, Any]] = {
    "alone": {},
    "beside 1 noisy tenant": {"noisy": 1},
    "beside 4 noisy tenants": {"noisy": 4},
    "beside 4 noisy tenants, at a hub without limits": {"noisy": 4, "limited": False},
    "beside 1,000 connections of strangers": {"strangers": True},
    "beside 64 places of members who do not read what is sent to them": {"slow": True},
}


def tenant(number: int) -> tuple[str, ...]:
    """The members of a noisy tenant: two who send, one who reads, and one who does not."""
    return tuple(f"{who}{number}" for who in ("sender", "pusher", "reader", "deaf"))


def rooms() -> dict[str, tuple[str, ...]]:
    """All rooms, with their members."""
    slow = {f"slow{number}": ("pusher0", *SLOW) for number in range(SLOW_ROOMS)}
    return {CALM_ROOM: CALM} | {f"noisy{number}": tenant(number) for number in range(MOST_TENANTS)} | slow


def names() -> list[str]:
    """Everybody."""
    return ["coordinator", *CALM, *SLOW, *(name for number in range(MOST_TENANTS) for name in tenant(number))]


class Folder:
    """Everybody's keys."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self.pins = {name: Certificate.load(self._path / f"{name}.crt") for name in names()}

    def identity(self, name: str) -> Identity:
        """The key of one of them."""
        return Identity.load(self._path / f"{name}.key", self._path / f"{name}.crt")


def serve(pipe: Connection, folder: str, limited: bool) -> None:
    """The hub's process; at the end it says what it took."""
    everybody = Folder(folder)
    limits = HubLimits() if limited else UNLIMITED
    hub = Hub(everybody.identity("coordinator"), everybody.pins, rooms=rooms(), limits=limits, stall=5.0)
    with hub:
        pipe.send(hub.port)
        pipe.recv()
        before = time.process_time(), time.perf_counter()
        pipe.send("go")
        pipe.recv()
        used = (time.process_time() - before[0]) / (time.perf_counter() - before[1])
        pipe.send({"processors": used, "memory": _peak(), "descriptors": len(os.listdir("/proc/self/fd"))})


def take_turns(pipe: Connection, folder: str, port: int, name: str, rounds: int) -> None:
    """An honest participant; one of the two measures its rounds."""
    everybody, (peer,) = Folder(folder), set(CALM) - {name}
    with dial(f"127.0.0.1:{port}", everybody.identity(name), everybody.pins, room=CALM_ROOM) as place:
        place.wait_for_peers([peer], timeout=60)
        pipe.send("ready")
        pipe.recv()
        channel, seconds, payload = place.channel(peer), [], bytes(SIZE)
        for number in range(rounds):
            begun = time.perf_counter()
            channel.send("turn", number=number, payload=payload)
            if channel.recv("turn")["number"] != number:
                raise RuntimeError("a message is out of turn")
            seconds.append(time.perf_counter() - begun)
        pipe.send(seconds)
        pipe.recv()


def make_noise(pipe: Connection, folder: str, port: int, number: int) -> None:
    """One noisy tenant."""
    os.nice(19)
    everybody, sent = Folder(folder), [0]
    sender, pusher, reader, deaf = tenant(number)
    parcel = pack_packet(PacketKind.DATA, 1, 0, 0, 0, bytes(MAX_PACKET - 4096))
    for name, target in ((sender, reader), (pusher, deaf)):
        flood = packets.envelope_prefix(name, target) + parcel
        _beside(lambda name=name, flood=flood: _pour(everybody, port, name, f"noisy{number}", flood, sent))
    _beside(lambda: _read(everybody, port, reader, f"noisy{number}", deaf=False))
    _beside(lambda: _read(everybody, port, deaf, f"noisy{number}", deaf=True))
    _until_told(pipe, sent)


def read_slowly(pipe: Connection, folder: str, port: int) -> None:
    """Members with many places who do not read, and one who sends to all of them."""
    os.nice(19)
    everybody, sent = Folder(folder), [0]
    parcel = pack_packet(PacketKind.DATA, 1, 0, 0, 0, bytes(MAX_PACKET - 4096))
    for number in range(SLOW_ROOMS):
        for name in SLOW:
            _beside(lambda name=name, room=f"slow{number}": _read(everybody, port, name, room, deaf=True))
    for number, name in enumerate(SLOW):
        flood = packets.envelope_prefix("pusher0", name) + parcel
        _beside(lambda flood=flood, room=f"slow{number}": _pour(everybody, port, "pusher0", room, flood, sent))
    _until_told(pipe, sent)


def knock(pipe: Connection, folder: str, port: int) -> None:
    """Strangers: a third say nothing, a third begin TLS, a third send something else; each comes back at once."""
    os.nice(19)
    words = (b"", _hello(), b"GET / HTTP/1.1\r\n\r\n")
    held: list[socket.socket | None] = [None] * STRANGERS
    opened = [0]

    def hold() -> None:
        while True:
            for place, end in enumerate(held):
                if end is None or not _is_open(end):
                    held[place] = _opened(port, words[place % 3])
                    opened[0] += held[place] is not None
            time.sleep(0.05)

    _beside(hold)
    _until_told(pipe, opened)


def _pour(everybody: Folder, port: int, name: str, room: str, flood: bytes, sent: list[int]) -> None:
    line = _line(everybody, port, name, room)
    while line.messages.is_active():
        if line.backlog < 4:
            line.put(flood)
            sent[0] += 1
        else:
            time.sleep(0.001)


def _read(everybody: Folder, port: int, name: str, room: str, *, deaf: bool) -> None:
    line = _line(everybody, port, name, room)
    if deaf:
        while line.messages.is_active():
            time.sleep(0.2)
    else:
        for _ in line.messages:
            pass


def _line(everybody: Folder, port: int, name: str, room: str) -> _HubStream:
    line = _HubStream(
        f"127.0.0.1:{port}", everybody.identity(name), everybody.pins["coordinator"], 1, WireLimits.heartbeat, room
    )
    line.await_roster(60.0)
    return line


def _beside(work: Callable[[], None]) -> None:
    def again() -> None:
        while True:
            with suppress(ColonnadeError, Exception):
                work()
            time.sleep(0.2)

    threading.Thread(target=again, daemon=True).start()


def _until_told(pipe: Connection, count: list[int]) -> None:
    while count[0] < 3:
        time.sleep(0.05)
    time.sleep(1.0)
    pipe.send("ready")
    pipe.recv()
    before = count[0]
    pipe.recv()
    pipe.send(count[0] - before)
    pipe.recv()


def _hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="coordinator").do_handshake()
    return outgoing.read()


def _opened(port: int, words: bytes) -> socket.socket | None:
    try:
        end = socket.create_connection(("127.0.0.1", port), timeout=2)
        end.sendall(words)
    except OSError:
        return None
    end.setblocking(False)
    return end


def _is_open(end: socket.socket) -> bool:
    with suppress(OSError):
        try:
            if end.recv(1 << 12):
                return True
        except BlockingIOError:
            return True
    end.close()
    return False


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def measured(
    rounds: int, *, noisy: int = 0, strangers: bool = False, slow: bool = False, limited: bool = True
) -> dict[str, Any]:
    """The rounds of one scene, and what the hub took."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder, _children(spawn) as start:
        for name in names():
            Identity.create(name).save(folder)
        hub = start(serve, folder, limited)
        port = hub.recv()
        others = [start(make_noise, folder, port, number) for number in range(noisy)]
        if strangers:
            others.append(start(knock, folder, port))
        if slow:
            others.append(start(read_slowly, folder, port))
        for other in others:
            other.recv()
        calm = [start(take_turns, folder, port, name, rounds) for name in CALM]
        for one in calm:
            one.recv()
        hub.send("count")
        hub.recv()
        for one in (*others, *calm):
            one.send("go")
        begun = time.perf_counter()
        seconds, _ = (one.recv() for one in calm)
        wall = time.perf_counter() - begun
        for other in others:
            other.send("count")
        passed = sum(other.recv() for other in others)
        hub.send("end")
        found: dict[str, Any] = hub.recv()
    cut = quantiles(seconds, n=1000)
    found |= {"median": 1e3 * median(seconds), "p99": 1e3 * cut[989], "p999": 1e3 * cut[998]}
    return found | {"noise": passed / wall, "rounds": rounds / wall}


@contextmanager
def _children(spawn: Any) -> Iterator[Callable[..., Connection]]:
    """Starts processes, and ends them."""
    processes = []

    def start(work: Callable[..., None], *given: Any) -> Connection:
        near, far = spawn.Pipe()
        processes.append(spawn.Process(target=work, args=(far, *given), daemon=True))
        processes[-1].start()
        far.close()
        return near

    try:
        yield start
    finally:
        for process in processes:
            process.kill()
            process.join()


def page(found: dict[str, list[dict[str, Any]]], rounds: int) -> str:
    """The figures as a page."""
    repeats = len(next(iter(found.values())))
    lines = [
        "# Tenants of one hub",
        "",
        "Made by `python benchmarks/hub_tenants.py --write`: rounds of one study at a standing hub, beside others who "
        "disturb it. A round is 4 kB each way between two participants, in processes over TLS, through a hub in a "
        f"third process; {rounds:,} rounds, the median of {repeats} runs, the lowest and highest beside it. A noisy "
        "tenant has two members who send 1 MB messages as fast as they can, one of them to a member who does not read. "
        "Strangers say nothing, begin TLS or speak another protocol, and come back as soon as they are disconnected. "
        "Everything shares the processors of one machine; the noise has a low priority.",
        "",
        "| rounds | median ms | 99 of 100 within | 999 of 1,000 within | rounds a second | noise a second | "
        "processors of the hub | its memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for scene, runs in found.items():
        middle = {key: median(run[key] for run in runs) for key in runs[0]}
        low, high = min(run["median"] for run in runs), max(run["median"] for run in runs)
        unit = " connections" if "strangers" in scene else " MB"
        noise = f"{middle['noise']:,.0f}{unit}" if middle["noise"] else ""
        lines.append(
            f"| {scene} | **{middle['median']:.2f}** ({low:.2f} to {high:.2f}) | {middle['p99']:.1f} ms | "
            f"{middle['p999']:.1f} ms | {middle['rounds']:,.0f} | {noise} | {middle['processors']:.2f} | "
            f"{middle['memory'] / 1e6:,.0f} MB |"
        )
    lines += ["", f"Measured on {date.today()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}.", ""]
    return "\n".join(lines)


def main() -> None:
    """Measure all scenes, in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", help="a part of the name of a scene")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(given.repeats):
        for scene, settings in SCENES.items():
            if given.only in scene:
                found.setdefault(scene, []).append(measured(given.rounds, **settings))
    if given.json:
        print(json.dumps(found, indent=1))
        return
    text = page(found, given.rounds)
    print(text)
    if given.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
