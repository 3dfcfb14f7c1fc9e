"""Measures the constants of this machine, by the very programs that a study runs, on rows that are made up.

Everything is processor time, so that other programs of the machine do not blur it, except the time of a round trip.
Messages are carried through a hub and by a direct link.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from colonnade.errors import ConnectError
from colonnade.message_schema import FixedBytes, MessageSchema, receive_message
from colonnade.models import registry
from colonnade.privacy import Trust
from colonnade.privacy.noise_laws import CLOSEST_TO_GAUSSIAN, law_named
from colonnade.protocols import align
from colonnade.protocols.align import AlignmentTask
from colonnade.protocols.lanes.partitions import Partitions
from colonnade.protocols.moments import programs
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR, Progress, silent
from colonnade.protocols.rows import ColumnBlock
from colonnade.protocols.session import RunResult, run_role
from colonnade.protocols.task import RunnableTask
from colonnade.randomness import KEY_BYTES, Stream
from colonnade.study.scale.constants import BUILT_IN, MachineBenchmark, MachineConstants
from colonnade.tables import Schema, number, read_table
from colonnade.tables.cell_parsing import pa
from colonnade.tables.keys import Key
from colonnade.tables.partitioning import stage_table
from colonnade.versions import own_version
from colonnade.wire import Certificate, Endpoint, Hub, Identity, InMemoryNetwork, dial
from colonnade.wire.link_offers import DirectLinkSettings

ENDS = ("one", "other")
_THROUGH_HUB: Mapping[str, DirectLinkSettings | None] = dict.fromkeys(ENDS)
_LINKED: Mapping[str, DirectLinkSettings | None] = {
    "one": DirectLinkSettings(),
    "other": DirectLinkSettings(listen="127.0.0.1:20000-65535"),
}
_ROOMS = ("hub", "linked")
_PATIENCE = 60.0
_MESSAGE = 1 << 21
_OF_A_WORKER = ("pyarrow.parquet", "colonnade.study.run", "colonnade.privacy.noise.strip_sampler")
"""What a worker has imported, so that its memory is counted too."""


@dataclass(frozen=True)
class MessageCosts:
    """What was measured by one way, through a hub or by a direct link."""

    session: float
    byte: float
    """Seconds of one core for a byte, sent or received; both take about as long."""
    hub_byte: float
    trip: float
    memory: int | None


def measure_messages(messages: int, rounds: int) -> tuple[MessageCosts, MessageCosts]:
    """Send so many messages of 2 MiB one way, and so many small ones there and back: by a hub, then directly."""
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder, _hub(Path(folder)) as (pipe, address):
        through_hub, linked = (
            _measure_path(way, room, Path(folder), address, pipe, messages, rounds)
            for way, room in zip((_THROUGH_HUB, _LINKED), _ROOMS, strict=True)
        )
    return through_hub, linked


def _measure_path(
    way: Mapping[str, DirectLinkSettings | None],
    room: str,
    folder: Path,
    address: str,
    pipe: Connection,
    messages: int,
    rounds: int,
) -> MessageCosts:
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
        return _exchange(ends, pipe, session, messages, rounds)
    finally:
        closing = [threading.Thread(target=end.close) for end in ends.values()]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()


def _await_link(ends: Mapping[str, Endpoint]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not all(way.direct for end in ends.values() for peer, way in end.routes.items() if peer in ENDS):
        if time.monotonic() > deadline:
            raise ConnectError("two programs of this machine cannot connect to each other: see its firewall [CN009]")
        time.sleep(0.01)


def _exchange(
    ends: Mapping[str, Endpoint], pipe: Connection, session: float, messages: int, rounds: int
) -> MessageCosts:
    one, other = ends["one"].channel("other"), ends["other"].channel("one")
    content = np.random.default_rng(0).bytes(_MESSAGE)

    def answer() -> None:
        for _ in range(rounds):
            _receive_piece(other)
            other.send("piece", content=b"")
        for _ in range(messages):
            _receive_piece(other)
        other.send("piece", content=b"")

    answering = threading.Thread(target=answer, daemon=True)
    answering.start()
    trips = [_round_trip(one) for _ in range(rounds)]
    hub_before, before = _ask(pipe), time.process_time()
    for _ in range(messages):
        one.send("piece", content=content)
    _receive_piece(one)
    taken, hub_taken = time.process_time() - before, _ask(pipe)[0] - hub_before[0]
    answering.join(_PATIENCE)
    carried = messages * _MESSAGE
    return MessageCosts(session, taken / 2 / carried, hub_taken / carried, median(trips), hub_before[1])


_PIECE = MessageSchema("piece", content=FixedBytes(0, _MESSAGE))


def _receive_piece(channel: Any) -> None:
    receive_message(channel, "the other end", _PIECE)


def _round_trip(channel: Any) -> float:
    start = time.perf_counter()
    channel.send("piece", content=b"")
    _receive_piece(channel)
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
        yield pipe, _hub_address(pipe)
    finally:
        pipe.close()  # which ends it
        process.join(_PATIENCE)
        if process.is_alive():
            process.kill()


def _hub_address(pipe: Connection) -> str:
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


_PHASE = "measure"
_COLUMNS = _NARROW, _WIDE = 4, 36
_OWNERS = ("a", "b", "c")
_WIDTH = 32
_CLIP = 3**-0.5
_PARTITIONS = 2  # as long as can be: the time to open one is of partitions, not of rows
_LEAST = 1e-12  # a difference of two measurements that comes out as nothing


@dataclass(frozen=True)
class BenchmarkSizes:
    """How much is measured."""

    table: int
    joint: int
    ids: int
    draws: int
    messages: int
    rounds: int
    repeats: int


FULL = BenchmarkSizes(table=50_000, joint=98_304, ids=100_000, draws=1 << 20, messages=96, rounds=200, repeats=2)
QUICK = BenchmarkSizes(table=8_000, joint=24_576, ids=8_000, draws=1 << 17, messages=24, rounds=60, repeats=1)


def measure(sizes: BenchmarkSizes = FULL, progress: Progress = silent) -> MachineBenchmark:
    """The constants of this machine."""
    found: dict[str, float] = {}
    steps: list[Callable[[], Mapping[str, float]]] = [
        partial(_reading, sizes, "csv"),
        partial(_reading, sizes, "parquet"),
        partial(_splitting, sizes),
        partial(_computing, sizes),
        partial(_aligning, sizes),
        partial(_drawing, sizes),
        partial(_carrying, sizes),
    ]
    with threadpool_limits(1):  # as every process of a study has it
        for done, step in enumerate(steps):
            progress(_PHASE, done, len(steps))
            found |= step()
        progress(_PHASE, len(steps), len(steps))
    count = os.cpu_count() or 1
    return MachineBenchmark(
        MachineConstants(**found),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        processors=count,
        machine=f"{platform.machine() or 'unknown'}, {count} processor{'s' if count > 1 else ''}",
        colonnade=own_version(),
        quick=sizes == QUICK,
    )


def _least(repeats: int, work: Callable[[], object]) -> float:
    """Processor seconds, the least of some times."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


def _seconds_a_row_and_cell(narrow: float, wide: float, rows: int) -> tuple[float, float]:
    """Seconds a row and a cell, from tables of few and of many columns."""
    cell = max((wide - narrow) / (rows * (_WIDE - _NARROW)), _LEAST)
    return max(narrow / rows - _NARROW * cell, _LEAST), cell


# --- tables


def _make_table(rows: int, columns: int) -> Any:
    values = np.random.default_rng(columns).uniform(0, 1, (columns, rows)).round(4)
    ids = pa.array([f"person-{i:09d}" for i in range(rows)])
    return pa.table({"id": ids} | {f"c{i}": pa.array(column) for i, column in enumerate(values)})


def _reading(sizes: BenchmarkSizes, kind: str) -> Mapping[str, float]:
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        taken = [
            _least(sizes.repeats + 1, partial(_read_whole, *_write_table(sizes, kind, columns, folder)))
            for columns in _COLUMNS
        ]
    row, cell = _seconds_a_row_and_cell(taken[0], taken[1], sizes.table)
    return {f"{kind}_row": row, f"{kind}_cell": cell}


def _splitting(sizes: BenchmarkSizes) -> Mapping[str, float]:
    """What it takes more to read a table, copy it, split it and read its partitions than to read it as a whole."""
    taken = []
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as folder:
        for columns in _COLUMNS:
            path, schema = _write_table(sizes, "parquet", columns, folder)
            parted = _least(sizes.repeats + 1, partial(_read_in_parts, path, schema, folder))
            taken.append(parted - _least(sizes.repeats + 1, partial(_read_whole, path, schema)))
    row, cell = _seconds_a_row_and_cell(taken[0], taken[1], sizes.table)
    return {"split_row": row, "split_cell": cell}


def _write_table(sizes: BenchmarkSizes, kind: str, columns: int, folder: str) -> tuple[Path, Schema]:
    import pyarrow.csv
    import pyarrow.parquet

    path, table = Path(folder) / f"{columns}.{kind}", _make_table(sizes.table, columns)
    if kind == "csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    return path, Schema({f"c{i}": number(0, 1) for i in range(columns)})


def _read_whole(path: Path, schema: Schema) -> None:
    found = read_table(path, schema, id=None, keys=_aligning_of(_OWNERS[:2]).plan)
    found.check()
    for _ in found.blocks(1 << 13):
        pass


def _read_in_parts(path: Path, schema: Schema, folder: str) -> None:
    gathered = stage_table(path, schema, _aligning_of(_OWNERS[:2]).plan, folder, id=None)
    try:
        spool = gathered.split(Partitions(_PARTITIONS, bytes(KEY_BYTES)).of, _PARTITIONS)
        for place in range(_PARTITIONS):
            for _ in spool.partition(place).blocks(1 << 13):
                pass
    finally:
        gathered.remove()


# --- sharing and multiplying


@dataclass(frozen=True)
class _RowsInMemory:
    """Rows in memory."""

    ids: list[str]
    values: NDArray[np.float64]
    places: None = None

    def blocks(self, rows: int) -> Iterator[NDArray[np.float64]]:
        return (self.values[start : start + rows] for start in range(0, len(self.values), rows))


def _computing(sizes: BenchmarkSizes) -> Mapping[str, float]:
    """Second moments of three owners, in threads, each of which has its own clock."""
    rows = sizes.joint
    blocks = tuple(ColumnBlock(owner, tuple(f"c{i}" for i in range(_WIDTH)), _CLIP) for owner in _OWNERS)
    trust = Trust(_OWNERS, _OWNERS, 1)
    task = Moments(blocks, trust, gamma=4096, constant=2048, rows_at_most=2**25, noise=4 * 10**15)
    draws = np.random.default_rng(0)
    ids = [f"person-{i:09d}" for i in range(rows)]
    tables = {}
    for owner in _OWNERS:
        values = draws.uniform(-1, 1, (rows, _WIDTH))
        tables[owner] = _RowsInMemory(ids, values * (_CLIP * 0.99 / np.sqrt(_WIDTH)))
    whole: dict[str, float] = {}

    def program(me: Any) -> Any:
        if me.name == COORDINATOR:
            return programs.coordinator(me, task)
        start = time.thread_time()
        found = programs.owner(me, tables[me.name], task)
        whole[me.name] = time.thread_time() - start
        return found

    least: dict[str, float] = {}
    for _ in range(sizes.repeats):
        played = _in_threads(task, program)
        names = ("noise", "encode", "deal", "own block", "receive", "multiply", "open")
        phases = {name: sum(played[owner].phases[name].cpu for owner in _OWNERS) / len(_OWNERS) for name in names}
        phases["agree"] = sum(whole.values()) / len(_OWNERS) - sum(phases.values())
        least = {name: min(taken, least.get(name, taken)) for name, taken in phases.items()}
    primes, own = len(task.committee.system.primes), rows * _WIDTH
    others = len(_OWNERS) - 1
    counts = {
        "round_cell": ("encode", own),
        "deal_cell": ("deal", primes * own),
        "take_cell": ("receive", primes * own * others),
        "pair": ("multiply", primes * task.products(rows)),
        "own_pair": ("own block", own * _WIDTH),
        "agree_row": ("agree", rows),
    }
    return {name: max(least[phase] / count, _LEAST) for name, (phase, count) in counts.items()}


def _in_threads(
    task: RunnableTask, program: Callable[[Any], Any], *, aligns: bool = False
) -> dict[str, RunResult[Any]]:
    room, played = InMemoryNetwork((*task.trust.owners, COORDINATOR)), dict[str, RunResult[Any]]()

    def take_part(name: str) -> None:
        played[name] = run_role(room.place(name), task, program, aligns=aligns)

    threads = [threading.Thread(target=take_part, args=(name,)) for name in room.names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return played


def _drawing(sizes: BenchmarkSizes) -> Mapping[str, float]:
    stream = Stream.fresh()
    variance, draw = Fraction(1 << 40), law_named(CLOSEST_TO_GAUSSIAN).sample
    draw(variance, 1, stream)  # tables that are made once
    taken = _least(3, lambda: draw(variance, sizes.draws, stream))
    return {"draw": max(taken / sizes.draws, _LEAST)}


# --- alignment


def _aligning_of(owners: tuple[str, ...]) -> AlignmentTask:
    return AlignmentTask(Trust(owners, (*owners, COORDINATOR), 1), (Key("id"),), mode="ot")


def _aligning(sizes: BenchmarkSizes) -> Mapping[str, float]:
    owners = _OWNERS[:2]
    task = _aligning_of(owners)
    few, many = 100, sizes.ids
    _alignment_of(task, few)()  # imports, and tables that are made once
    taken = [_least(sizes.repeats, _alignment_of(task, count)) for count in (few, many)]
    each = max((taken[1] - taken[0]) / ((many - few) * len(owners)), _LEAST)
    return {"align_id": each, "align_start": max(taken[0] / len(owners) - few * each, _LEAST)}


def _alignment_of(task: AlignmentTask, count: int) -> Callable[[], object]:
    schema = Schema({"c0": number(0, 1)})
    tables = {name: read_table(_make_table(count, 1), schema, id=None, keys=task.plan) for name in task.owners}

    def program(me: Any) -> Any:
        if me.name == COORDINATOR:
            return align.coordinator(me, task)
        keys = tables[me.name].keys
        if keys is None:
            raise ValueError("a table that was read with keys has them [VA218]")
        return align.owner(me, keys, task).table(tables[me.name])

    return lambda: _in_threads(task, program, aligns=True)


def _carrying(sizes: BenchmarkSizes) -> Mapping[str, float]:
    found, linked = measure_messages(sizes.messages, sizes.rounds)
    taken = {
        "send_byte": found.byte,
        "receive_byte": found.byte,
        "hub_byte": found.hub_byte,
        "session": found.session,
        "round_trip": found.trip,
        "linked_byte": linked.byte,
        "linked_trip": linked.trip,
        "interpreter": float(found.memory or BUILT_IN.constants.interpreter),
    }
    return {name: max(value, _LEAST) for name, value in taken.items()}
