"""Colonnade's arithmetic on shared fixed-point numbers: three seats, in processes over TLS or in threads.

Alone it prints the figures of every operation. What can run ahead is timed apart from what needs the operands. With
``--direct`` seats connect to each other, as the processes of peers do, and the hub carries nothing but handshakes.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from colonnade.mpc import PRIMES, Committee, ResidueSystem, ShareEngine
from colonnade.mpc.fixed_point import functions
from colonnade.mpc.fixed_point.arithmetic import FixedPointEngine, FixedPointShares
from colonnade.protocols.roles import COORDINATOR
from harness import PATIENCE, Act, Stage, in_processes as played_in_processes, in_threads as played_in_threads
from loopback import Figures, Shape, arithmetic_options, error, operands, sweep, typical

SEATS = ("bank", "clinic", "shop")
FRACTION = 16
LARGEST = 2
"""Of the operands."""
PRIMES_FOR = {"multiply": 4, "less": 3, "reciprocal": 4, "softmax": 5}


def in_processes(operation: str, shape: Shape, repeats: int = 7, *, direct: bool = False) -> Figures:
    """Three seats and the hub in processes of their own: seconds online, seconds of preparation, rounds and bytes."""
    prepare = partial(_prepare, operation=operation, shape=shape, repeats=repeats)
    return _summary(played_in_processes((*SEATS, COORDINATOR), prepare, direct=direct))


over_direct_links = partial(in_processes, direct=True)
"""The same where seats connect to each other, as those of peers do, and the hub carries nothing but handshakes."""


def in_threads(operation: str, shape: Shape, repeats: int = 7) -> Figures:
    """The same in threads of this process."""
    prepare = partial(_prepare, operation=operation, shape=shape, repeats=repeats)
    found = _summary(played_in_threads(SEATS, prepare))
    return found | {"cpu": found["cpu"] / len(SEATS)}  # each saw the time of all


def on_one_core(operation: str, shape: Shape, repeats: int = 7) -> Figures:
    """In threads that share one core, as they share one interpreter: passing it from core to core costs time."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        return in_threads(operation, shape, repeats)
    finally:
        os.sched_setaffinity(0, cores)


def _summary(found: dict[str, Figures]) -> Figures:
    """Online, as peers are timed; what was prepared, and the bytes of all seats."""
    reports = [found[seat] for seat in SEATS]
    ahead = typical([{"spans": report["ahead"], "cpu": 0.0} for report in reports])
    return typical(reports) | {"preparation": ahead["wall"], "sent_ahead": sum(r["sent_ahead"] for r in reports)}


class Seat:
    """The one place that knows how the library's arithmetic is called."""

    def __init__(self, name: str, links: dict[str, Any], operation: str) -> None:
        system = ResidueSystem(PRIMES[: PRIMES_FOR[operation]])
        self.hand = ShareEngine(name, Committee(SEATS, 1, system), links)
        self.engine, self.operation = FixedPointEngine(self.hand, FRACTION), operation

    def share(self, owner: str, values: np.ndarray) -> FixedPointShares:
        """The owner deals its numbers, the others receive them."""
        whole = np.rint(values * 2.0**FRACTION).astype(np.int64)
        shares = self.hand.deal(whole) if owner == self.hand.name else self.hand.receive(owner, values.shape)
        return self.engine.from_shares(shares, LARGEST << FRACTION)

    def run(self, x: FixedPointShares, y: FixedPointShares) -> FixedPointShares:
        """The operation, from shares to shares."""
        engine = self.engine
        if self.operation == "multiply":
            return engine.multiply(x, y)
        if self.operation == "less":
            return engine.negative(engine.subtract(x, y))
        if self.operation == "reciprocal":
            return functions.reciprocal(engine, x)
        product = engine.multiply(x, y)
        inverse = functions.reciprocal(engine, engine.total(product, 1))
        return engine.multiply(product, inverse.reshape(-1, 1))

    def needed(self) -> dict[Any, int]:
        """What was taken from the store until now."""
        return dict(self.engine.masks.used)

    def prepare(self, needed: dict[Any, int]) -> None:
        """Make it ahead."""
        self.engine.masks.prepare(needed)

    def open(self, number: FixedPointShares) -> np.ndarray:
        """What the numbers are."""
        shares = number.shares
        self.hand.send_opening(shares, SEATS)
        opened = self.hand.receive_opening(shares.shape, degree=shares.degree, bound=number.bound, own=shares)
        return opened.astype(np.float64) / 2.0**number.fraction


def _prepare(name: str, operation: str, shape: Shape, repeats: int) -> Act:
    return partial(_take_part, operation=operation, shape=shape, repeats=repeats)


def _take_part(stage: Stage, operation: str, shape: Shape, repeats: int) -> Figures | None:
    if stage.name == COORDINATOR:
        return None  # its process has the hub
    with stage.join() as place:
        others = [seat for seat in SEATS if seat != stage.name]
        links = {seat: place.channel(seat) for seat in others}
        place.wait_for_peers(others, timeout=PATIENCE)
        seat = Seat(stage.name, links, operation)
        x, y = (seat.share(owner, values) for owner, values in zip(SEATS, operands(shape), strict=False))
        seat.run(x, y)
        needed, tally = seat.needed(), place.counters.tally
        found: Figures = {"ahead": [], "spans": [], "cpu": 0.0}
        for _ in range(repeats):
            _, ahead = _timed(links, tally, partial(seat.prepare, needed))
            result, online = _timed(links, tally, partial(seat.run, x, y))
            found["ahead"].append(ahead["span"])
            found["spans"].append(online["span"])
            found["cpu"] += online["cpu"] / repeats
        found |= {"sent_ahead": ahead["sent"], "sent": online["sent"], "rounds": online["rounds"]}
        return found | {"error": error(operation, seat.open(result), shape)}


def _timed(links: dict[str, Any], tally: Any, act: Callable[[], Any]) -> tuple[Any, Figures]:
    """What an act returned, when it began and ended once all seats were ready, and what it said."""
    for link in links.values():
        link.send("ready")
    for link in links.values():
        link.recv("ready")
    sent, rounds = tally.payload, tally.rounds
    started, cpu = time.perf_counter(), time.process_time()
    result = act()
    span, cpu = (started, time.perf_counter()), time.process_time() - cpu
    return result, {"span": span, "cpu": cpu, "sent": tally.payload - sent, "rounds": tally.rounds - rounds}


def main() -> None:
    parser = arithmetic_options(__doc__)
    parser.add_argument("--threads", action="store_true")
    parser.add_argument("--direct", action="store_true", help="in processes that connect to each other")
    parser.add_argument("--one-core", action="store_true", help="in threads that share a core")
    options = parser.parse_args()
    measured = on_one_core if options.one_core else in_threads if options.threads else in_processes
    if options.direct:
        measured = over_direct_links
    print(json.dumps(sweep(options, lambda cases: [measured(c.operation, c.shape, c.repeats) for c in cases])))


if __name__ == "__main__":
    main()
