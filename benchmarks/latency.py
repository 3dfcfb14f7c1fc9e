"""What distance costs: whole studies and single operations at several round trips, between threads of this process.

Every message arrives half a round trip after it was sent, and each participant sends at most a gigabit a second; the
computing is that of all participants on this machine, so what grows from column to column is the network's part.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from colonnade import PCA, Federation, LogisticRegression, Party, Schema, flag, number
from colonnade.models import Estimator
from colonnade.protocols.session import RunResult
from colonnade.wire import SimulatedNetwork
from engine import SEATS, Seat
from harness import Stage, command, in_threads
from loopback import operands

ROUND_TRIPS = (0.1e-3, 20e-3, 100e-3)
BYTES_PER_SECOND = 125e6
ROWS, COLUMNS, OWNERS = 1000, 4, ("bank", "clinic", "shop")
SHAPE = (100, 20)
OPERATIONS = {"multiply": "product", "less": "comparison", "reciprocal": "reciprocal", "softmax": "softmax-like step"}
STUDIES: Mapping[str, Callable[[], Estimator]] = {
    "moments (PCA)": lambda: PCA(2, epsilon=1.0),
    "regression in one shot": lambda: LogisticRegression(epsilon=1.0, label="shop.y", method="one-shot"),
    "20 rounds of gradients": lambda: LogisticRegression(
        epsilon=4.0, label="shop.y", method="sqm", rows=ROWS, sampling="disjoint", rate=0.05, epochs=1
    ),
}


class Timed(Federation):
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
    people = Timed(_parties(), network=network)
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
    return max(in_threads(SEATS, partial(_prepare, operation=name), network).values())


def _prepare(name: str, operation: str) -> Callable[[Stage], float]:
    return partial(_take_part, operation=operation)


def _take_part(stage: Stage, operation: str) -> float:
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


def measure(repeats: int = 3) -> dict[str, Any]:
    """Seconds of everything at every round trip: the median of some runs."""
    what: dict[str, Callable[[SimulatedNetwork], float]] = {
        name: partial(study, make) for name, make in STUDIES.items()
    }
    size = " x ".join(map(str, SHAPE))
    what |= {f"{title}, {size}": partial(operation, name) for name, title in OPERATIONS.items()}
    found: dict[str, Any] = {"round_trips": ROUND_TRIPS, "bytes_per_second": BYTES_PER_SECOND, "seconds": {}}
    for name, run in what.items():
        run(SimulatedNetwork(0.0))  # what is loaded and cached once does not count
        found["seconds"][name] = [
            median(run(SimulatedNetwork(trip, BYTES_PER_SECOND)) for _ in range(repeats)) for trip in ROUND_TRIPS
        ]
    return found


def rows(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Rows of a table: what, seconds at each round trip, and how many round trips the last two differ by."""
    *_, near, far = found["round_trips"]
    for name, seconds in found["seconds"].items():
        trips = (seconds[-1] - seconds[-2]) / (far - near)
        yield name, *(_spoken(value) for value in seconds), f"{trips:.1f}"


def _spoken(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms"


def show(found: dict[str, Any]) -> None:
    """The figures as a table in markdown."""
    heads = ("", *(f"{1e3 * trip:g} ms" for trip in found["round_trips"]), "round trips")
    for line in (heads, ("---",) * len(heads), *rows(found)):
        print(f"| {' | '.join(line)} |")


if __name__ == "__main__":
    command(__doc__, measure, show, repeats=3)
