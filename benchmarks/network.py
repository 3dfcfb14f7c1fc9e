"""What messages cost: megabytes a second, distance, and rounds and bytes of operations on shares."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from arithmetic import SEATS, Seat
from colonnade import PCA, Federation, LogisticRegression, Party, Schema, flag, number
from colonnade.models import Estimator
from colonnade.mpc import PRIMES, Committee, ResidueSystem, ShareEngine
from colonnade.mpc.fixed_point import arithmetic
from colonnade.mpc.fixed_point.arithmetic import FixedPointEngine, FixedPointShares
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.session import RunResult
from colonnade.wire import SimulatedNetwork
from harness import (
    PATIENCE,
    Act,
    Benchmark,
    Row,
    Stage,
    command,
    in_processes,
    in_threads,
    table,
    tabled,
    verdict,
    write_marked,
)
from peers import operands

# --- megabytes a second

SENDER, RECEIVER = "bank", "shop"
NAMES = (COORDINATOR, SENDER, RECEIVER)
ROLES = {SENDER: "sender", COORDINATOR: "hub with its door", RECEIVER: "receiver"}
SIZES = {1: 96, 4: 48, 16: 16}
"""How many messages of so many megabytes are sent."""
LEAST = 150


def _prepare_words(name: str, size: int) -> Act:
    return partial(_pass_words, size=size)


def _pass_words(stage: Stage, size: int) -> dict[str, float]:
    others = [name for name in NAMES if name != stage.name]
    with stage.join() as place:
        place.wait_for_peers(others, timeout=PATIENCE)
        if stage.name == COORDINATOR:  # its process has the hub
            return _watch([place.channel(name) for name in others])
        peer, watcher = place.channel(others[1]), place.channel(COORDINATOR)
        words = np.random.default_rng(0).integers(0, 2**32, size * 250_000, dtype=np.uint32)
        for _ in range(2):  # these do not count
            _one(stage.name, peer, words)
        watcher.send("begin")
        watcher.recv("begun")
        begun, before = time.perf_counter(), time.process_time()
        for _ in range(SIZES[size]):
            _one(stage.name, peer, words)
        peer.recv("read") if stage.name == SENDER else peer.send("read")
        found = {"wall": time.perf_counter() - begun, "cpu": time.process_time() - before}
        watcher.send("end")
        watcher.recv("ended")
        return found


def _one(name: str, peer: Any, words: NDArray[np.uint32]) -> None:
    if name == SENDER:
        peer.send("words", words=words)
    elif not np.array_equal(peer.recv("words")["words"][-9:], words[-9:]):
        raise RuntimeError("what arrived is not what was sent")


def _watch(channels: list[Any]) -> dict[str, float]:
    """The processor time of this process while the others send and read."""
    for channel in channels:
        channel.recv("begin")
    before = time.process_time()
    for channel in channels:
        channel.send("begun")
    for channel in channels:
        channel.recv("end")
    found = time.process_time() - before
    for channel in channels:
        channel.send("ended")
    return {"cpu": found}


def _words_passed(repeats: int = 5, direct: bool = False) -> dict[str, Any]:
    """Of each size the median of some runs, each in fresh processes."""
    runs = {
        size: [in_processes(NAMES, partial(_prepare_words, size=size), direct=direct) for _ in range(repeats)]
        for size in SIZES
    }
    sent = {size: size * count for size, count in SIZES.items()}
    rates = {size: [sent[size] / found[SENDER]["wall"] for found in each] for size, each in runs.items()}
    work = {
        size: {name: 1000 * median(found[name]["cpu"] for found in each) / sent[size] for name in NAMES}
        for size, each in runs.items()
    }
    return {"rates": {str(size): median(each) for size, each in rates.items()}, "all": rates, "work": work}


def measure_throughput(repeats: int = 5, direct: bool = False) -> dict[str, Any]:
    """Megabytes a second from one process to another through the hub, which is a third: sealed end to end, over TLS.

    Messages hold words as shares do. Both ends know when the last message was read. Processor time is that of each of
    the three processes between the same two moments, user and system together, with all threads.
    """
    found = {"through the hub": _words_passed(repeats)}
    return found | ({"over a direct link": _words_passed(repeats, direct=True)} if direct else {})


def throughput_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Rows of the page of figures, for each way."""
    for way, figures in found.items():
        yield from _words_rows(figures, way)


def _words_rows(found: dict[str, Any], way: str) -> Iterator[Row]:
    """Rows of the page of figures."""
    worst = min(found["rates"].values())
    rates = ", ".join(f"{rate:.0f} MB/s" for rate in found["rates"].values())
    sizes = ", ".join(found["rates"])
    yield (
        f"from one process to another {way}, messages of {sizes} MB",
        f"**{rates}**",
        verdict(worst >= LEAST, f"at least {LEAST} MB/s"),
    )
    for name, role in ROLES.items():
        yield (
            f"CPU of the {role}, a megabyte, {way}",
            ", ".join(f"{of[name]:.1f} ms" for of in found["work"].values()),
            "",
        )
    totals = ", ".join(f"{sum(of.values()):.1f} ms" for of in found["work"].values())
    yield f"CPU of all three, a megabyte, {way}", totals, ""


# --- distance

ROUND_TRIPS = (0.1e-3, 20e-3, 100e-3)
BYTES_PER_SECOND = 125e6
ROWS, COLUMNS, OWNERS = 1000, 4, ("bank", "clinic", "shop")
SHAPE = (100, 20)
TIMED = {"multiply": "product", "less": "comparison"}
STUDIES: Mapping[str, Callable[[], Estimator]] = {
    "moments (PCA)": lambda: PCA(2, epsilon=1.0),
    "regression in one shot": lambda: LogisticRegression(epsilon=1.0, label="shop.y", method="one-shot"),
    "20 rounds of gradients": lambda: LogisticRegression(
        epsilon=4.0, label="shop.y", method="sqm", rows=ROWS, sampling="disjoint", rate=0.05, epochs=1
    ),
}


class ClockedFederation(Federation):
    """A federation that keeps how long the parties talked, without what was planned before and computed after."""

    seconds = 0.0

    def run(self, *arguments: Any) -> RunResult[Any]:
        begun = time.perf_counter()
        try:
            return super().run(*arguments)
        finally:
            self.seconds = time.perf_counter() - begun


def study(make: Callable[[], Estimator], network: SimulatedNetwork) -> float:
    """Seconds of one study of 1,000 rows by 12 columns."""
    people = ClockedFederation(_parties(), network=network)
    make().fit(people)
    return people.seconds


def _parties() -> list[Party]:
    draws = np.random.default_rng(0)
    ids = [f"p{k:04}" for k in range(ROWS)]
    parties = []
    for name in OWNERS:
        columns = {f"{name}{k}": draws.uniform(-1, 1, ROWS) for k in range(COLUMNS)}
        if name == OWNERS[-1]:
            columns.popitem()
            columns["y"] = (draws.random(ROWS) < 0.5).astype(int)
        schema = Schema({column: flag() if column == "y" else number(-1, 1) for column in columns})
        parties.append(Party(name, pa.table({"id": ids, **columns}), schema=schema, id="id"))
    return parties


def operation(name: str, network: SimulatedNetwork) -> float:
    """Seconds of one operation on shares, with its masks made ahead; the slowest seat's."""
    return max(in_threads(SEATS, partial(_prepare_operation, operation=name), network).values())


def _prepare_operation(name: str, operation: str) -> Callable[[Stage], float]:
    return partial(_run_operation, operation=operation)


def _run_operation(stage: Stage, operation: str) -> float:
    with stage.join() as place:
        place.wait_for_peers()
        links = {peer: place.channel(peer) for peer in place.peers}
        seat = Seat(stage.name, links, operation)
        x, y = (seat.share(owner, values) for owner, values in zip(SEATS, operands(SHAPE), strict=False))
        seat.run(x, y)
        seat.prepare(seat.needed())
        for link in links.values():
            link.send("ready")
        for link in links.values():
            link.recv("ready")
        begun = time.perf_counter()
        seat.run(x, y)
        return time.perf_counter() - begun


def measure_latency(repeats: int = 3) -> dict[str, Any]:
    """Whole studies and single operations at several round trips, between threads of this process.

    Every message arrives half a round trip after it was sent, and each participant sends at most a gigabit a second;
    the computing is that of all participants on this machine, so what grows from column to column is the network's
    part. Medians of some runs.
    """
    what: dict[str, Callable[[SimulatedNetwork], float]] = {
        name: partial(study, make) for name, make in STUDIES.items()
    }
    size = " x ".join(map(str, SHAPE))
    what |= {f"{title}, {size}": partial(operation, name) for name, title in TIMED.items()}
    found: dict[str, Any] = {"round_trips": ROUND_TRIPS, "bytes_per_second": BYTES_PER_SECOND, "seconds": {}}
    for name, run in what.items():
        run(SimulatedNetwork(0.0))  # what is loaded and cached once does not count
        found["seconds"][name] = [
            median(run(SimulatedNetwork(trip, BYTES_PER_SECOND)) for _ in range(repeats)) for trip in ROUND_TRIPS
        ]
    return found


def latency_body(found: dict[str, Any]) -> str:
    """What, seconds at each round trip, and how many round trips the last two differ by."""
    *_, near, far = found["round_trips"]
    lines = []
    for name, seconds in found["seconds"].items():
        trips = (seconds[-1] - seconds[-2]) / (far - near)
        lines.append([name, *(_spoken(value) for value in seconds), f"{trips:.1f}"])
    return table(["", *(f"{1e3 * trip:g} ms" for trip in found["round_trips"]), "round trips"], lines)


def _spoken(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"


# --- rounds and bytes

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "fixed-point.md"
FRACTION, BITS, COUNT = 20, 26, 4096
Operation = Callable[[FixedPointEngine, FixedPointShares], object]
OPERATIONS: Mapping[str, tuple[str, Operation]] = {
    "sum, difference, product with a public number": ("exact", lambda e, x: e.add(x, x)),
    "`multiply`, `truncate`": ("below `ulps` units", lambda e, x: e.multiply(x, x)),
    "`multiply` of integers": ("exact", lambda e, x: e.multiply(_whole(e, x), _whole(e, x), fraction=0)),
    "`negative`": ("exact", lambda e, x: e.negative(x)),
    "`normalising_powers`": ("exact", arithmetic.normalising_powers),
    "`inverse_sqrt`": ("a share of 2^-f and `ulps` units", arithmetic.inverse_sqrt),
}


def _whole(engine: FixedPointEngine, number: FixedPointShares) -> FixedPointShares:
    return engine.from_shares(number.shares, number.bound, 0)


@dataclass
class Count:
    """Rounds and bytes of one seat, or of the average one."""

    rounds: int = 0
    sent: float = 0
    waiting: bool = field(default=False, repr=False)


class Line:
    """One end of a line between two threads, which counts for its seat."""

    def __init__(self, out: queue.SimpleQueue[Any], into: queue.SimpleQueue[Any], count: Count) -> None:
        self._out, self._into, self._count = out, into, count

    def send(self, kind: str, /, **fields: Any) -> None:
        self._count.waiting = True
        self._count.sent += sum(value.nbytes for value in fields.values() if isinstance(value, np.ndarray))
        self._out.put(fields)

    def recv(self, kind: str, most: int, /) -> dict[str, Any]:
        self._count.rounds += self._count.waiting
        self._count.waiting = False
        fields: dict[str, Any] = self._into.get(timeout=60)
        return fields


def costs(operation: Operation, seats: int, threshold: int, *, active: bool = False) -> tuple[Count, Count]:
    """What runs ahead, and what is left to do when the inputs are there: rounds, and bytes of the average seat."""
    system = ResidueSystem(PRIMES[: 5 if seats == 3 else 6])
    committee = Committee(tuple(f"n{i}" for i in range(seats)), threshold, system, active)
    found = counted_in_threads(committee, lambda hand, count: _count(hand, count, operation))
    ahead, online = zip(*(found[name] for name in committee.seats), strict=True)
    return _average(ahead), _average(online)


def _average(counts: Sequence[Count]) -> Count:
    """The most rounds of a seat, and the bytes of the average one: not all seats send as much."""
    return Count(max(one.rounds for one in counts), sum(one.sent for one in counts) / len(counts))


def _count(hand: ShareEngine, count: Count, operation: Operation) -> tuple[Count, Count]:
    values = np.arange(COUNT) + 1
    shares = hand.deal(values) if hand.name == "n0" else hand.receive("n0", values.shape)
    engine = FixedPointEngine(hand, FRACTION)
    number = engine.from_shares(shares, (1 << BITS) - 1)
    operation(engine, number)
    engine.settle()
    spent = []
    for step in (lambda: engine.masks.prepare(dict(engine.masks.used)), lambda: operation(engine, number)):
        before = Count(count.rounds, count.sent)
        step()
        engine.settle()  # does nothing if seats do not check each other
        spent.append(Count(count.rounds - before.rounds, count.sent - before.sent))
    return spent[0], spent[1]


def counted_in_threads(committee: Committee, program: Callable[[ShareEngine, Count], Any]) -> dict[str, Any]:
    """Run a program at every seat."""
    seats = committee.seats
    lines: dict[tuple[str, str], queue.SimpleQueue[Any]] = {(a, b): queue.SimpleQueue() for a in seats for b in seats}
    found: dict[str, Any] = {}

    def run(name: str) -> None:
        count = Count()
        links = {peer: Line(lines[name, peer], lines[peer, name], count) for peer in seats if peer != name}
        found[name] = program(ShareEngine(name, committee, links), count)

    threads = [threading.Thread(target=run, args=(name,)) for name in seats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def each(count: Count) -> str:
    """Bytes for one number."""
    return f"{count.sent / COUNT:.1f}"


def costs_table(active: bool = False) -> str:
    """Rounds and bytes of all operations as markdown; ``active`` is where seats check each other."""
    rows = []
    for name, (error, operation) in OPERATIONS.items():
        ahead, online = costs(operation, 3, 1, active=active)
        _, more = costs(operation, 5, 2, active=active)
        figures = [online.rounds, each(online), each(more), ahead.rounds, each(ahead)]
        rows.append([name, *([] if active else [error]), *map(str, figures)])
    heads = ["rounds", "bytes, 3 seats", "bytes, 5 seats, 2 may pool", "ahead: rounds", "bytes, 3 seats"]
    head = ["operation", *([] if active else ["error"]), *heads]
    return table(head, rows).replace("| --- ", "|---").replace("--- |", "---|")


def measure_operations(write_docs: bool = False) -> dict[str, str]:
    """What operations on shared fixed-point numbers cost: rounds, and bytes that one seat sends for one number."""
    found = {"operations": costs_table(), "checked operations": costs_table(active=True)}
    if write_docs:
        write_marked(PAGE, found)
    return found


BENCHMARKS = {
    "throughput": Benchmark(
        measure_throughput, tabled(throughput_rows), help={"direct": "over a direct link too, beside it"}
    ),
    "latency": Benchmark(
        measure_latency,
        latency_body,
        page="latency",
        title="What distance costs",
        about="Seconds of whole studies of 1,000 rows by 12 columns, from the first message to the last, and of "
        "operations on shares of 100 x 20 numbers whose masks were made ahead, at three round trips; three owners, at "
        "most a gigabit a second from each. How distance is emulated: [the list of benchmarks](../README.md).",
    ),
    "operations": Benchmark(
        measure_operations,
        lambda found: "\n\n".join(found.values()),
        help={"write_docs": "put the tables into docs/explanation/fixed-point.md"},
    ),
}

if __name__ == "__main__":
    command(__doc__, BENCHMARKS)
