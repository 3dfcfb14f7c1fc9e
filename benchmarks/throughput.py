"""Megabytes a second from one process to another through the hub, which is a third: sealed end to end, over TLS.

Messages hold words as shares do. Both ends know when the last message was read. With ``--direct`` the same over a
direct link, beside it, and the processor time that all processes take for a megabyte.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from colonnade.protocols.roles import COORDINATOR
from parties import command
from processes import PATIENCE, Act, Stage, in_processes

SENDER, RECEIVER = "bank", "shop"
SIZES = {1: 96, 4: 48, 16: 16}
"""How many messages of so many megabytes are sent."""
LEAST = 150


def measure(repeats: int = 5, direct: bool = False) -> dict[str, Any]:
    """Of each size the median of some runs, each in fresh processes."""
    names = (COORDINATOR, SENDER, RECEIVER)
    runs = {
        size: [in_processes(names, partial(_prepare, size=size), direct=direct) for _ in range(repeats)]
        for size in SIZES
    }
    rates = {size: [size * SIZES[size] / found[SENDER][0] for found in each] for size, each in runs.items()}
    spent = {
        size: [1e3 * sum(cpu for _, cpu in found.values()) / (size * SIZES[size]) for found in each]
        for size, each in runs.items()
    }
    return {
        "rates": {str(size): median(each) for size, each in rates.items()},
        "processor": {str(size): median(each) for size, each in spent.items()},
        "all": rates,
    }


def measure_both(repeats: int = 5) -> dict[str, Any]:
    """The same through the hub and over a direct link."""
    return {"hub": measure(repeats), "direct": measure(repeats, direct=True)}


def _prepare(name: str, size: int) -> Act:
    return partial(_take_part, size=size)


def _take_part(stage: Stage, size: int) -> tuple[float, float]:
    """Seconds on the clock, and of the processor, from the first message that counts to the last."""
    if stage.name == COORDINATOR:  # its process has the hub
        with stage.join() as place:
            place.wait_for_peers([SENDER], timeout=PATIENCE)
            sender = place.channel(SENDER)
            sender.recv("begins")
            before = time.process_time()
            sender.recv("ends")
            return 0.0, time.process_time() - before
    with stage.join() as place:
        peer = RECEIVER if stage.name == SENDER else SENDER
        place.wait_for_peers(timeout=PATIENCE)
        channel = place.channel(peer)
        words = np.random.default_rng(0).integers(0, 2**32, size * 250_000, dtype=np.uint32)
        begun = spent = 0.0
        for number in range(SIZES[size] + 2):  # the first two do not count
            if number == 2:
                if stage.name == SENDER:
                    place.channel(COORDINATOR).send("begins")
                begun, spent = time.perf_counter(), time.process_time()
            if stage.name == SENDER:
                channel.send("words", words=words)
            elif not np.array_equal(channel.recv("words")["words"][-9:], words[-9:]):
                raise RuntimeError("what arrived is not what was sent")
            if number in (1, SIZES[size] + 1):
                channel.recv("read") if stage.name == SENDER else channel.send("read")
        took = time.perf_counter() - begun, time.process_time() - spent
        if stage.name == SENDER:
            place.channel(COORDINATOR).send("ends")
        return took


def rows(found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Rows of the page of figures."""
    worst = min(found["rates"].values())
    rates = ", ".join(f"{rate:.0f} MB/s" for rate in found["rates"].values())
    sizes = ", ".join(found["rates"])
    verdict = f"{'PASS' if worst >= LEAST else 'FAIL'}: at least {LEAST} MB/s"
    yield f"from one process to another through the hub, messages of {sizes} MB", f"**{rates}**", verdict


def show(found: dict[str, Any]) -> None:
    """The figures in lines."""
    for line in rows(found):
        print(" | ".join(line))
    print(_of_processor(found))


def show_both(found: dict[str, Any]) -> None:
    """The figures of both ways in lines."""
    show(found["hub"])
    rates = ", ".join(f"{rate:.0f} MB/s" for rate in found["direct"]["rates"].values())
    print(f"the same over a direct link | {rates}")
    print(_of_processor(found["direct"]))


def _of_processor(found: dict[str, Any]) -> str:
    spent = ", ".join(f"{each:.2f}" for each in found["processor"].values())
    return f"processor time of all processes, ms a MB | {spent}"


if __name__ == "__main__":
    if "--direct" in sys.argv:
        sys.argv.remove("--direct")
        command(__doc__, measure_both, show_both, repeats=5)
    else:
        command(__doc__, measure, show, repeats=5)
