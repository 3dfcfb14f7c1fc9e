"""What the seats of a small operation compute, without threads and messages: each runs alone on recorded messages.

Three seats run in threads, and what each receives is kept. Then one seat after the other runs again in one thread, with
the same keys: it hears what was kept, and what it sends goes nowhere. Only online time counts.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import threading
import time
from collections.abc import Iterator
from functools import partial
from hashlib import sha256
from statistics import median
from typing import Any

from colonnade.mpc import common
from engine import SEATS, Seat
from loopback import SMALL, operands
from parties import command
from processes import PATIENCE, Act, Stage, in_threads

OPERATION = "softmax"
Kept = dict[str, list[dict[str, Any]]]


class Recorded:
    """A link whose messages are kept."""

    def __init__(self, link: Any, kept: list[dict[str, Any]]) -> None:
        self._link, self._kept = link, kept

    def send(self, kind: str, /, **fields: Any) -> None:
        self._link.send(kind, **fields)

    def recv(self, kind: str, most: int, /) -> dict[str, Any]:
        found: dict[str, Any] = self._link.recv(kind, most)
        self._kept.append(found)
        return found


class Replayed:
    """A link on which the same messages come again."""

    def __init__(self, kept: list[dict[str, Any]]) -> None:
        self._kept: Iterator[dict[str, Any]] = iter(kept)

    def send(self, kind: str, /, **fields: Any) -> None:
        """Nobody hears it."""

    def recv(self, kind: str, most: int, /) -> dict[str, Any]:
        return next(self._kept)


class Keys(threading.local):
    """Keys that a seat draws again in the same order; for this benchmark only."""

    name, count = "", 0

    def __call__(self) -> bytes:
        self.count += 1
        return sha256(f"{self.name} {self.count}".encode()).digest()


def timed(name: str, links: dict[str, Any], keys: Keys, repeats: int) -> float:
    """Milliseconds of processor time of one seat's thread, the median of some runs."""
    keys.name, keys.count = name, 0
    seat = Seat(name, links, OPERATION)
    x, y = (seat.share(owner, values) for owner, values in zip(SEATS, operands(SMALL), strict=False))
    seat.run(x, y)
    needed, spent = seat.needed(), []
    for _ in range(repeats):
        seat.prepare(needed)
        begun = time.thread_time()
        seat.run(x, y)
        spent.append(time.thread_time() - begun)
    return 1e3 * median(spent)


def _prepare(name: str, keys: Keys, kept: dict[str, Kept], repeats: int) -> Act:
    return partial(_take_part, keys=keys, kept=kept, repeats=repeats)


def _take_part(stage: Stage, keys: Keys, kept: dict[str, Kept], repeats: int) -> float:
    with stage.join() as place:
        others = [seat for seat in SEATS if seat != stage.name]
        place.wait_for_peers(others, timeout=PATIENCE)
        kept[stage.name] = {seat: [] for seat in others}
        links = {seat: Recorded(place.channel(seat), kept[stage.name][seat]) for seat in others}
        return timed(stage.name, links, keys, repeats)


def measure(repeats: int) -> dict[str, Any]:
    """Milliseconds of processor time by seat, in threads and alone."""
    keys, kept = Keys(), dict[str, Kept]()
    common.new_key = keys
    threads = in_threads(SEATS, partial(_prepare, keys=keys, kept=kept, repeats=repeats))
    alone = {
        name: timed(name, {seat: Replayed(said) for seat, said in kept[name].items()}, keys, repeats) for name in SEATS
    }
    return {"threads": threads, "alone": alone}


def show(found: dict[str, Any]) -> None:
    """The figures for a reader."""
    for way, seats in found.items():
        words = ", ".join(f"{name} {spent:.2f}" for name, spent in seats.items())
        print(f"{OPERATION} of {SMALL[0]} x {SMALL[1]}, {way}: {words}; all {sum(seats.values()):.2f} ms of CPU")


if __name__ == "__main__":
    command(__doc__, measure, show, repeats=60)
