"""What benchmarks have in common: participants in processes or threads, what each spends, commands and pages."""

from __future__ import annotations

import argparse
import inspect
import json
import multiprocessing
import os
import platform
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # `research` and `tests` lie beside this folder

RESULTS = Path(__file__).with_name("results")
PATIENCE = 120.0
MB = 1e6
Row = Sequence[str]


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
    noise: bool = True
    """False for exact comparisons only."""
    direct: bool = False
    """Whether owners connect to each other."""


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
    names = (COORDINATOR, *job.task.owners)
    return Outcome(in_processes(names, partial(_prepare_moments, job=job), direct=job.direct))


def _prepare_moments(name: str, job: Job) -> Act:
    _give_alignment_a_phase()
    if not job.noise:
        _silence_noise()
    rows = None if name == COORDINATOR else job.rows(name)
    return partial(_take_part, job=job, rows=rows)


def _take_part(stage: Stage, job: Job, rows: Rows | None) -> Report:
    meter, clock = ClockedMeter(), Clock()
    before = resident("VmRSS")
    cpu = time.process_time()
    place: Any = stage.join()

    def timed(me: Any) -> Any:
        me.meter = meter
        clock.process_before = time.process_time()
        with clock.running(), meter.phase(REST):
            return moments.coordinator(me, job.task) if rows is None else moments.owner(me, rows, job.task)

    played: RunResult[Any] = run_role(Place(place, meter), job.task, timed, wait=PATIENCE)
    done = time.process_time()
    phases = {name: phase.cpu for name, phase in played.phases.items()}
    phases[REST] -= sum(value for name, value in phases.items() if name != REST)
    traffic = place.counters.total
    return Report(
        name=stage.name,
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


def _give_alignment_a_phase() -> None:
    agree = engine.agree_on_rows

    def metered(me: Any, *arguments: Any, **options: Any) -> int:
        with me.meter.phase(ALIGN):
            return agree(me, *arguments, **options)

    engine.agree_on_rows = metered


def _silence_noise() -> None:
    def silent(declared: moments.MomentsSum, stream: Stream, count: int) -> NDArray[np.int64]:
        return np.zeros(count, dtype=np.int64)

    moments.MomentsSum.noise = silent


def alone(work: Callable[..., Any], *given: Any) -> Any:
    """What a function returns in a fresh process of its own, so that nothing from before is in its figures."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *given).result()


def data_folder() -> Path | None:
    """The folder of data sets, where COLONNADE_DATA names none: shared/data beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return None if os.environ.get("COLONNADE_DATA") or not beside.is_dir() else beside


# --- commands and pages


@dataclass(frozen=True)
class Benchmark:
    """One question: how it is measured, and how its figures are told."""

    measure: Callable[..., Any]
    """Its keyword arguments are the options of the command; what it returns can be written as JSON."""
    body: Callable[[Any], str]
    """The figures, as they are read from JSON, in markdown."""
    page: str = ""
    """The page of results, without its ending."""
    title: str = ""
    about: str = ""
    files: Callable[[Any], Mapping[str, str]] | None = None
    """What is written beside the page: texts by names of files."""
    help: Mapping[str, str] = field(default_factory=dict)
    """What options mean."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """An option for each argument of the measurement; one that is False by default is a switch."""
        for name, argument in inspect.signature(self.measure).parameters.items():
            default, how = argument.default, {"help": self.help.get(name, ""), "dest": name}
            word = f"--{name.replace('_', '-')}"
            if isinstance(default, bool):
                parser.add_argument(word, action="store_true", **how)
            elif isinstance(default, tuple):
                parser.add_argument(word, nargs="+", type=type(default[0]), default=default, **how)
            else:
                parser.add_argument(word, type=type(default), default=default, **how)
        parser.add_argument("--json", action="store_true", help="print every figure")
        if self.page:
            parser.add_argument("--write", action="store_true", help=f"write results/{self.page}.md")

    def run(self, given: argparse.Namespace) -> None:
        """Measure, then show the figures, print them as JSON, or write the page; fails if something is wrong."""
        options = {name: getattr(given, name) for name in inspect.signature(self.measure).parameters}
        found = json.loads(json.dumps(self.measure(**options)))
        print(json.dumps(found, indent=2) if given.json else self.body(found))
        if self.page and given.write:
            for name, text in (self.files(found) if self.files else {}).items():
                (RESULTS / name).write_text(text, encoding="utf-8")
            command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
            write_page(self.page, self.title, self.about, command, [self.body(found)])
        if isinstance(found, dict) and found.get("wrong"):
            raise SystemExit(f"wrong: {found['wrong']}")


def command(about: str | None, benchmarks: Mapping[str, Benchmark]) -> None:
    """The command line of a script: a word for each of its benchmarks, or none where there is one without a name."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if "" in benchmarks:
        benchmarks[""].add_options(parser)
    else:
        words = parser.add_subparsers(dest="benchmark", required=True)
        for name, benchmark in benchmarks.items():
            said = (benchmark.measure.__doc__ or "").strip()
            benchmark.add_options(words.add_parser(name, help=said.splitlines()[0], description=said))
    given = parser.parse_args()
    benchmarks[getattr(given, "benchmark", "")].run(given)


def table(head: Row, rows: Iterable[Row]) -> str:
    """A table in markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def tabled(rows: Callable[[Any], Iterable[Row]], head: Row = ("what", "measured", "required")) -> Callable[[Any], str]:
    """A body that is one table."""
    return lambda found: table(head, rows(found))


def verdict(good: bool, words: str) -> str:
    """Whether what was required holds."""
    return f"{'PASS' if good else 'FAIL'}: {words}"


def write_page(page: str, title: str, about: str, command: str, bodies: Iterable[str]) -> None:
    """A page of results, with when, where and how it was made."""
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {machine()}. Made by `{command}`. {about}"
    text = "\n\n".join([f"# {title}", made.strip(), *bodies])
    (RESULTS / f"{page}.md").write_text(text.rstrip() + "\n", encoding="utf-8")


def machine() -> str:
    """The machine, what it runs, and how busy it is."""
    known = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":")[1].strip() for line in known if line.startswith("model name")), platform.machine())
    versions = ", ".join(f"{name} {version_of(name)}" for name in ("numpy", "mpyc", "phe"))
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}, {versions}; load {load:.1f}"


def version_of(name: str) -> str:
    """The version of a package, if it is there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


def marked(name: str) -> tuple[str, str]:
    """What stands before and after a table of this name in a page of the documentation."""
    return f"<!-- {name} -->", f"<!-- end of {name} -->"


def write_marked(page: Path, tables: Mapping[str, str]) -> None:
    """Put tables into a page of the documentation, between their marks."""
    text = page.read_text(encoding="utf-8")
    for name, made in tables.items():
        begin, end = marked(name)
        head, rest = text.split(begin)
        text = f"{head}{begin}\n{made}\n{end}{rest.split(end)[1]}"
    page.write_text(text, encoding="utf-8")
