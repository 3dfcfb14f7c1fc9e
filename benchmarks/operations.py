"""What operations on shared fixed-point numbers cost: rounds, and bytes that one seat sends for one number.

python benchmarks/operations.py            print the table
python benchmarks/operations.py --write    put it into docs/explanation/fixed-point.md
"""

from __future__ import annotations

import argparse
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.mpc import PRIMES, Committee, ResidueSystem, ShareEngine
from colonnade.mpc.fixed_point import functions
from colonnade.mpc.fixed_point.arithmetic import FixedPointEngine, FixedPointShares

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "fixed-point.md"
BEGIN, END = "<!-- operations -->", "<!-- end of operations -->"
BEGIN_CHECKED, END_CHECKED = "<!-- checked operations -->", "<!-- end of checked operations -->"
FRACTION, BITS, COUNT = 20, 26, 4096
Operation = Callable[[FixedPointEngine, FixedPointShares], object]
OPERATIONS: Mapping[str, tuple[str, Operation]] = {
    "sum, difference, product with a public number": ("exact", lambda e, x: e.add(x, x)),
    "`multiply`, `truncate`": ("below `ulps` units", lambda e, x: e.multiply(x, x)),
    "`multiply` of integers": ("exact", lambda e, x: e.multiply(_whole(e, x), _whole(e, x), fraction=0)),
    "`negative`": ("exact", lambda e, x: e.negative(x)),
    "`normalising_powers`": ("exact", functions.normalising_powers),
    "`reciprocal`": ("a share of 2^-f and `ulps` units", functions.reciprocal),
    "`inverse_sqrt`": ("a share of 2^-f and `ulps` units", functions.inverse_sqrt),
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
    found = in_threads(committee, lambda hand, count: _measure(hand, count, operation))
    ahead, online = zip(*(found[name] for name in committee.seats), strict=True)
    return _average(ahead), _average(online)


def _average(counts: Sequence[Count]) -> Count:
    """The most rounds of a seat, and the bytes of the average one: not all seats send as much."""
    return Count(max(one.rounds for one in counts), sum(one.sent for one in counts) / len(counts))


def _measure(hand: ShareEngine, count: Count, operation: Operation) -> tuple[Count, Count]:
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


def in_threads(committee: Committee, program: Callable[[ShareEngine, Count], Any]) -> dict[str, Any]:
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


def table() -> str:
    """The table as markdown."""
    lines = [
        "| operation | error | rounds | bytes, 3 seats | bytes, 5 seats, 2 may pool | ahead: rounds | bytes, 3 seats |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, (error, operation) in OPERATIONS.items():
        ahead, online = costs(operation, 3, 1)
        _, more = costs(operation, 5, 2)
        figures = [online.rounds, each(online), each(more), ahead.rounds, each(ahead)]
        lines.append(f"| {name} | {error} | {' | '.join(map(str, figures))} |")
    return "\n".join(lines)


def checked_table() -> str:
    """The table of the same operations where seats check each other, as markdown."""
    lines = [
        "| operation | rounds | bytes, 3 seats | bytes, 5 seats, 2 may pool | ahead: rounds | bytes, 3 seats |",
        "|---|---|---|---|---|---|",
    ]
    for name, (_, operation) in OPERATIONS.items():
        ahead, online = costs(operation, 3, 1, active=True)
        _, more = costs(operation, 5, 2, active=True)
        figures = [online.rounds, each(online), each(more), ahead.rounds, each(ahead)]
        lines.append(f"| {name} | {' | '.join(map(str, figures))} |")
    return "\n".join(lines)


def main() -> None:
    """Print or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/explanation/fixed-point.md")
    write = parser.parse_args().write
    for made, begin, end in ((table(), BEGIN, END), (checked_table(), BEGIN_CHECKED, END_CHECKED)):
        if not write:
            print(made, end="\n\n")
            continue
        head, rest = PAGE.read_text().split(begin)
        PAGE.write_text(f"{head}{begin}\n{made}\n{end}{rest.split(end)[1]}")


if __name__ == "__main__":
    main()
