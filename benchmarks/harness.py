"""What benchmarks have in common: participants in processes or threads, and what each spends, by phase."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from colonnade.cli.process_tuning import keep_memory, without_pandas
from colonnade.protocols.joint_sum import engine
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR, PhaseMeter
from colonnade.protocols.rows import Rows
from colonnade.protocols.session import RunResult, run_role
from colonnade.randomness import Stream
from colonnade.wire import (
    Certificate,
    Endpoint,
    Hub,
    Identity,
    InMemoryEndpoint,
    InMemoryNetwork,
    SimulatedNetwork,
    dial,
)
from colonnade.wire.link_offers import DirectLinkSettings

PATIENCE = 120.0


@dataclass(frozen=True)
class Stage:
    """A participant's name, and how it takes its place among the others."""

    name: str
    join: Callable[[], Endpoint | InMemoryEndpoint]


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
                target=_act_on_bell, args=(name, names, prepare, folder, far, ports), daemon=True
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


def linking(name: str, ports: Mapping[str, int]) -> DirectLinkSettings | None:
    """How a participant takes part in direct links, if there are any."""
    if not ports:
        return None
    return DirectLinkSettings() if name == COORDINATOR else DirectLinkSettings(f"127.0.0.1:{ports[name]}")


def _act_on_bell(
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


def in_threads(names: Sequence[str], prepare: Prepare, network: SimulatedNetwork | None = None) -> dict[str, Any]:
    """The same in threads of this process, messages copied and not sealed; with ``network`` they seem to travel."""
    room = InMemoryNetwork(names, network)
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


ALIGN, REST = "agree on rows", "the rest"


@dataclass(frozen=True)
class Job:
    """What every process is given. ``rows`` makes an owner's table, and its time does not count."""

    task: Moments
    rows: Callable[[str], Rows]
    noise: Literal["real", "times zero", "none"] = "real"
    """Other than real for exact comparisons only: drawn in vain, so that it takes its time, or not drawn."""
    ports: Mapping[str, int] | None = None
    """Where owners listen for direct links, if there are any."""


@dataclass
class Report:
    """What one participant measured about itself, from dialling to its goodbye."""

    name: str
    opened: NDArray[np.int64]
    started: float
    ended: float
    setup_cpu: float
    """Of the whole process until everybody was there: keys, certificates, handshakes."""
    process_cpu: float
    """Of the whole process after that, all threads."""
    program_cpu: float
    phases: dict[str, float]
    """Processor seconds of the program's thread by phase, with what its messages cost."""
    wire: dict[str, float]
    """Of these, the seconds inside send and receive: coding, TLS, copying, queueing."""
    tls: float
    peak: int
    before: int
    payload: int
    sealed: int
    messages: int

    @property
    def work(self) -> dict[str, float]:
        """Seconds by phase without those spent on messages."""
        return {name: cpu - self.wire.get(name, 0.0) for name, cpu in self.phases.items()}

    @property
    def own_work(self) -> float:
        """Dealing and arithmetic: all that the program computes, without its messages and the list of ids."""
        return sum(cpu for name, cpu in self.work.items() if name != ALIGN)

    @property
    def transport(self) -> float:
        """All the rest of the process: TLS twice, gRPC, copies, and the coding of messages."""
        return self.process_cpu - self.program_cpu + sum(self.wire.values())


@dataclass
class Outcome:
    """The reports of all participants of one run."""

    reports: dict[str, Report]

    @property
    def wall(self) -> float:
        """From the first to start until the last to end; the clock is the same for all processes."""
        return max(r.ended for r in self.reports.values()) - min(r.started for r in self.reports.values())

    @property
    def opened(self) -> NDArray[np.int64]:
        """What was published; everybody must hold the same."""
        first, *rest = (report.opened for report in self.reports.values())
        assert all(np.array_equal(first, other) for other in rest)
        return first

    @property
    def nodes(self) -> list[Report]:
        """The owners."""
        return [report for name, report in self.reports.items() if name != COORDINATOR]

    @property
    def cpu(self) -> float:
        """Processor seconds of all processes, the coordinator's too, once everybody was there."""
        return sum(report.process_cpu for report in self.reports.values())


def run(job: Job) -> Outcome:
    """One run of the moments protocol with a process for each participant."""
    spawn = multiprocessing.get_context("spawn")
    names = [COORDINATOR, *job.task.owners]
    pipes, processes = {}, {}
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        for name in names:
            Identity.create(name).save(folder)
        for name in names:
            pipes[name], far = spawn.Pipe()
            processes[name] = spawn.Process(target=_take_part, args=(name, job, folder, far), daemon=True)
            processes[name].start()
            far.close()
        address = pipes[COORDINATOR].recv()
        for name in job.task.owners:
            assert pipes[name].recv() == "ready"
        for name in job.task.owners:
            pipes[name].send(address)
        outcome = Outcome({name: pipes[name].recv() for name in names})
    for process in processes.values():
        process.join()
    return outcome


def _take_part(name: str, job: Job, folder: str, pipe: Connection) -> None:
    keep_memory()  # as the command does
    certificates = {one: Certificate.load(Path(folder) / f"{one}.crt") for one in _everyone(job)}
    identity = Identity.load(Path(folder) / f"{name}.key", Path(folder) / f"{name}.crt")
    _give_alignment_a_phase()
    if job.noise != "real":
        _silence_noise(draw=job.noise == "times zero")
    if name == COORDINATOR:
        with Hub(identity, certificates) as hub:
            pipe.send(hub.address)
            report = _measured(hub.address, identity, certificates, job, lambda me: moments.coordinator(me, job.task))
    else:
        table = job.rows(name)
        pipe.send("ready")
        address = pipe.recv()
        report = _measured(address, identity, certificates, job, lambda me: moments.owner(me, table, job.task))
    pipe.send(report)


def _measured(
    address: str,
    identity: Identity,
    certificates: Mapping[str, Certificate],
    job: Job,
    program: Callable[[Any], Any],
) -> Report:
    meter, clock = ClockedMeter(), Clock()
    before = resident("VmRSS")
    cpu = time.process_time()
    direct = linking(identity.name, job.ports or {})
    place = dial(address, identity, certificates, connect_timeout=PATIENCE, direct=direct)

    def timed(me: Any) -> Any:
        me.meter = meter
        clock.process_before = time.process_time()
        with clock.running(), meter.phase(REST):
            return program(me)

    played: RunResult[Any] = run_role(Place(place, meter), job.task, timed, wait=PATIENCE)
    done = time.process_time()
    phases = {name: phase.cpu for name, phase in played.phases.items()}
    phases[REST] -= sum(value for name, value in phases.items() if name != REST)
    traffic = place.counters.total
    return Report(
        name=identity.name,
        opened=played.result.opened,
        started=clock.started,
        ended=clock.ended,
        setup_cpu=clock.process_before - cpu,
        process_cpu=done - clock.process_before,
        program_cpu=clock.cpu,
        phases=phases,
        wire=meter.wire,
        tls=traffic.cpu_seconds,
        peak=resident("VmHWM"),
        before=before,
        payload=traffic.payload_sent,
        sealed=traffic.sealed_sent,
        messages=traffic.messages_sent,
    )


class ClockedMeter(PhaseMeter):
    """A meter that knows which phase it is in, so that messages can be charged to it."""

    def __init__(self) -> None:
        super().__init__()
        self.wire: dict[str, float] = {}
        self._current = REST

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        outer, self._current = self._current, name
        try:
            with super().phase(name):
                yield
        finally:
            self._current = outer

    @contextmanager
    def message(self) -> Iterator[None]:
        """Charge what happens inside to the messages of the phase."""
        start = time.thread_time()
        try:
            yield
        finally:
            self.wire[self._current] = self.wire.get(self._current, 0.0) + time.thread_time() - start


@dataclass
class Clock:
    """When the program ran, on the clock that all processes share, and what its thread took."""

    started: float = 0.0
    ended: float = 0.0
    cpu: float = 0.0
    process_before: float = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        self.started, cpu = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            self.ended, self.cpu = time.perf_counter(), time.thread_time() - cpu


class Place:
    """An endpoint whose channels are timed."""

    def __init__(self, place: Endpoint, meter: ClockedMeter) -> None:
        self._place, self._meter = place, meter

    def channel(self, peer: str) -> TimedLink:
        return TimedLink(self._place.channel(peer), self._meter)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)


class TimedLink:
    """A channel whose processor time is told apart from the program's."""

    def __init__(self, link: Any, meter: ClockedMeter) -> None:
        self._link, self._meter = link, meter

    def send(self, kind: str, /, **fields: Any) -> None:
        with self._meter.message():
            self._link.send(kind, **fields)

    def recv(self, kind: str, most: int, /) -> dict[str, Any]:
        with self._meter.message():
            found: dict[str, Any] = self._link.recv(kind, most)
        return found


def resident(what: str) -> int:
    """VmRSS (now) or VmHWM (the most ever) of this process in bytes.

    Not ``ru_maxrss``: a spawned process inherits the peak of the one that started it.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) * 1024
    raise KeyError(what)


def _everyone(job: Job) -> tuple[str, ...]:
    return (*job.task.owners, COORDINATOR)


def _give_alignment_a_phase() -> None:
    agree = engine.agree_on_rows

    def metered(me: Any, *arguments: Any, **options: Any) -> int:
        with me.meter.phase(ALIGN):
            return agree(me, *arguments, **options)

    engine.agree_on_rows = metered


def _silence_noise(*, draw: bool) -> None:
    drawn = moments.MomentsSum.noise

    def silent(declared: moments.MomentsSum, stream: Stream, count: int) -> NDArray[np.int64]:
        return 0 * drawn(declared, stream, count) if draw else np.zeros(count, dtype=np.int64)

    moments.MomentsSum.noise = silent


def command(
    description: str | None,
    measure: Callable[[int], dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
    repeats: int,
) -> None:
    """A benchmark's command line: measure, then show the figures or print them as JSON."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.repeats)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        show(found)
