"""Participants in processes over TLS through a hub, or in threads: all get ready, and one bell starts them."""

from __future__ import annotations

import json
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from colonnade.cli.lean import keep_memory, without_pandas
from colonnade.protocols.roles import COORDINATOR
from colonnade.wire import Certificate, Endpoint, Hub, Identity, Network, Room, RoomPlace, dial
from colonnade.wire.direct import Direct

PATIENCE = 120.0


@dataclass(frozen=True)
class Stage:
    """A participant's name, and how it takes its place among the others."""

    name: str
    join: Callable[[], Endpoint | RoomPlace]


Act = Callable[[Stage], Any]
Prepare = Callable[[str], Act]
"""Makes a participant's act before the bell, so that this time does not count; must be picklable."""


def in_processes(names: Sequence[str], prepare: Prepare, *, direct: bool = False) -> dict[str, Any]:
    """What each participant's act returned; everyone has its own process, the hub is in the coordinator's.

    With ``direct`` everyone but the coordinator listens, and packets take direct links.
    """
    ports = dict(zip(names, free_ports(len(names)), strict=True)) if direct else {}
    spawn = multiprocessing.get_context("spawn")
    pipes, processes = {}, {}
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        for name in names:
            Identity.create(name).save(folder)
        for name in names:
            pipes[name], far = spawn.Pipe()
            processes[name] = spawn.Process(
                target=_take_part, args=(name, names, prepare, folder, far, ports), daemon=True
            )
            processes[name].start()
            far.close()
        address = [pipe.recv() for pipe in pipes.values()][list(names).index(COORDINATOR)]
        for pipe in pipes.values():
            pipe.send(address)
        found = {name: pipe.recv() for name, pipe in pipes.items()}
        for pipe in pipes.values():
            pipe.send("all done")
    for process in processes.values():
        process.join()
    return found


def linking(name: str, ports: Mapping[str, int]) -> Direct | None:
    """How a participant takes part in direct links, if there are any."""
    if not ports:
        return None
    return Direct() if name == COORDINATOR else Direct(f"127.0.0.1:{ports[name]}")


def _take_part(
    name: str, names: Sequence[str], prepare: Prepare, folder: str, pipe: Connection, ports: Mapping[str, int]
) -> None:
    without_pandas()  # as the command does
    keep_memory()
    certificates = {one: Certificate.load(Path(folder) / f"{one}.crt") for one in names}
    identity = Identity.load(Path(folder) / f"{name}.key", Path(folder) / f"{name}.crt")
    act = prepare(name)
    hub = Hub(identity, certificates).start() if name == COORDINATOR else None
    pipe.send(hub.address if hub else "ready")
    address = pipe.recv()
    join = partial(dial, address, identity, certificates, connect_timeout=PATIENCE, direct=linking(name, ports))
    pipe.send(act(Stage(name, join)))
    pipe.recv()  # the hub stays until nobody needs it
    if hub:
        hub.stop()


def in_threads(names: Sequence[str], prepare: Prepare, network: Network | None = None) -> dict[str, Any]:
    """The same in threads of this process, messages copied and not sealed; with ``network`` they seem to travel."""
    room = Room(names, network)
    acts, found = {name: prepare(name) for name in names}, {}

    def take_part(name: str) -> None:
        found[name] = acts[name](Stage(name, partial(room.place, name)))

    threads = [threading.Thread(target=take_part, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(names), "a participant failed; its error stands above"
    return found


def mpyc_processes(program: Path, arguments: Sequence[object], targets: Sequence[Path]) -> dict[str, Any]:
    """A process of an MPyC program for each target, threshold 1: wall and processor seconds, and bytes sent."""
    addresses = [part for port in free_ports(len(targets)) for part in ("-P", f"127.0.0.1:{port}")]
    processes = [
        subprocess.Popen(
            [sys.executable, program, *map(str, arguments), target, *addresses, "-I", str(place), "-T1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for place, target in enumerate(targets)
    ]
    reports = [json.loads(process.communicate()[0].splitlines()[-1]) for process in processes]
    return {
        "wall": max(report["ended"] for report in reports) - min(report["started"] for report in reports),
        "cpu": sum(report["cpu"] for report in reports),
        "sent": sum(report["sent"] for report in reports),
    }


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(opened.getsockname()[1]) for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports
