"""Many rooms, one after the other, at one hub: do its memory, descriptors, threads and tasks stay what they were?

Each room is opened by a question, two participants join it, send each other a message of 64 kB sealed end to end, and
leave; then it is closed by another question. Every fourth room is closed while they are in it. The hub is a process of
its own and tells its figures.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.errors import ConnectError
from colonnade.wire import Certificate, Hub, HubClient, HubLimits, HubService, Identity, dial

PAGE = Path(__file__).parent / "results" / "hub-rooms.md"
PARTIES = ("bank", "shop")
NAMES = (*PARTIES, "coordinator")
ROOMS, SAMPLES = 2000, 40
WARM = 0.25
"""The part of all rooms after which everything should be as it stays."""
KEYS = {
    "memory": "MB of memory",
    "used": "MB in use by C",
    "blocks": "thousand blocks in use by Python",
    "descriptors": "descriptors",
    "threads": "threads",
    "tasks": "tasks of its loop",
}


def serve(pipe: Connection, folder: str) -> None:
    """The hub's process."""
    pins = {name: Certificate.load(Path(folder) / f"{name}.crt") for name in NAMES}
    identity = Identity.load(Path(folder) / "coordinator.key", Path(folder) / "coordinator.crt")

    async def opened(_: str, room: bytes) -> bytes:
        hub.open(room.decode(), PARTIES)
        return b""

    async def closed(_: str, room: bytes) -> bytes:
        hub.close(room.decode(), "it is over")
        return b""

    async def closed_if_full(caller: str, room: bytes) -> bytes:
        while len(hub.rooms[room.decode()]) < len(PARTIES):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        return await closed(caller, room)

    async def figures(_: str, __: bytes) -> bytes:
        gc.collect()
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        found = {
            "memory": int(status["VmRSS"].split()[0]) / 1024,
            "used": _used() / 1e6,
            "blocks": sys.getallocatedblocks() / 1e3,
            "descriptors": len(os.listdir("/proc/self/fd")),
            "threads": int(status["Threads"]),
            "tasks": len(asyncio.all_tasks()),
            "rooms": len(hub.rooms),
        }
        return json.dumps(found).encode()

    answers = {"Open": opened, "Close": closed, "CloseFull": closed_if_full, "Figures": figures}
    services = [HubService("colonnade.Soak", method, answer) for method, answer in answers.items()]
    with Hub(identity, pins, services=services, rooms={}, limits=HubLimits()) as hub:
        pipe.send(hub.address)
        pipe.recv()


class _MallInfo(ctypes.Structure):
    """What glibc tells of its heaps."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "top",
        )
    ]


def _used() -> int:
    """Bytes that are in use, by the C library's count; what was freed and not given back is not among them."""
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = _MallInfo
    told = ask()
    return int(told.uordblks + told.hblkhd)


def soak(rooms: int) -> list[dict[str, Any]]:
    """The hub's figures, again and again."""
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        identities = {name: Identity.create(name) for name in NAMES}
        pins = {name: identity.certificate for name, identity in identities.items()}
        for identity in identities.values():
            identity.save(folder)
        pipe, far = spawn.Pipe()
        hub = spawn.Process(target=serve, args=(far, folder), daemon=True)
        hub.start()
        address, found = pipe.recv(), []
        with HubClient(address, identities["bank"], pins["coordinator"]) as caller, ThreadPoolExecutor(2) as pool:
            for number in range(1, rooms + 1):
                room, cut = f"{number:032x}.1", not number % 4
                caller.ask("colonnade.Soak", "Open", room.encode())
                visits = [pool.submit(_visit, address, identities[name], pins, room, cut) for name in PARTIES]
                if cut:
                    caller.ask("colonnade.Soak", "CloseFull", room.encode())
                for visit in visits:
                    visit.result()
                caller.ask("colonnade.Soak", "Close", room.encode())
                if not number % max(rooms // SAMPLES, 1):
                    time.sleep(0.2)  # what has ended is gone by now
                    found.append({"after": number, **json.loads(caller.ask("colonnade.Soak", "Figures", b""))})
        pipe.send("end")
        hub.join()
    return found


def _visit(address: str, identity: Identity, pins: dict[str, Certificate], room: str, cut: bool) -> None:
    (peer,) = set(PARTIES) - {identity.name}
    place = dial(address, identity, pins, room=room, topic=room.encode())
    try:
        channel = place.channel(peer)
        channel.send("word", word=bytes(1 << 16))
        if len(channel.recv("word")["word"]) != 1 << 16:
            raise RuntimeError("what arrived is not what was sent")
        if cut:
            channel.recv("nothing that comes")
    except ConnectError:
        if not cut:
            raise
    finally:
        place.close()


def slopes(found: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """By how much a figure grows in a thousand rooms once the hub is warm, and the standard error of that."""
    late = [row for row in found if row["after"] > WARM * found[-1]["after"]]
    at = np.array([row["after"] for row in late]) / 1000
    middle = at - at.mean()
    result = {}
    for key in KEYS:
        values = np.array([row[key] for row in late], float)
        slope = float(middle @ values / (middle @ middle))
        rest = values - values.mean() - slope * middle
        error = float(np.sqrt(rest @ rest / (len(at) - 2) / (middle @ middle)))
        result[key] = (slope, error)
    return result


def page(found: list[dict[str, Any]], seconds: float) -> str:
    """The figures as a page."""
    grown = slopes(found)
    lines = [
        "# Rooms of one hub, one after the other",
        "",
        f"Made by `python benchmarks/hub_rooms.py --write`: {found[-1]['after']:,} rooms in {seconds:,.0f} s, each "
        "opened by a question, with two participants who send each other 64 kB, sealed end to end, and leave; every "
        "fourth is closed while they are in it. Figures of the hub's process, the participants are in another. The "
        f"last row: growth in 1,000 rooms after the first {WARM:.0%}, with its standard error. What the process has "
        "and does not use is memory that was freed, in pieces between others.",
        "",
        "| rooms | " + " | ".join(KEYS.values()) + " | open rooms |",
        "|---|" + "---|" * (len(KEYS) + 1),
    ]
    for row in found[:: max(len(found) // 10, 1)]:
        figures = [f"{row[key]:.2f}" if isinstance(row[key], float) else str(row[key]) for key in (*KEYS, "rooms")]
        lines.append(f"| {row['after']:,} | {' | '.join(figures)} |")
    lines.append(
        "| **growth** | " + " | ".join(f"{slope:+.2f} ± {error:.2f}" for slope, error in grown.values()) + " | |"
    )
    lines += ["", f"Measured on {date.today()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}.", ""]
    return "\n".join(lines)


def main() -> None:
    """Measure, then show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rooms", type=int, default=ROOMS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    begun = time.perf_counter()
    found = soak(given.rooms)
    if given.json:
        print(json.dumps({"figures": found, "growth": slopes(found)}))
        return
    text = page(found, time.perf_counter() - begun)
    print(text)
    if given.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
