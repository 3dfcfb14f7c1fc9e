"""Megabytes a second from one process to another through the hub, which is a third: sealed end to end, over TLS.

Messages hold words as shares do. Both ends know when the last message was read.
"""

from __future__ import annotations

import os

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


def measure(repeats: int = 5) -> dict[str, Any]:
    """Of each size the median of some runs, each in fresh processes."""
    names = (COORDINATOR, SENDER, RECEIVER)
    runs = {size: [in_processes(names, partial(_prepare, size=size)) for _ in range(repeats)] for size in SIZES}
    rates = {size: [size * SIZES[size] / found[SENDER] for found in each] for size, each in runs.items()}
    return {"rates": {str(size): median(each) for size, each in rates.items()}, "all": rates}


def _prepare(name: str, size: int) -> Act:
    return partial(_take_part, size=size)


def _take_part(stage: Stage, size: int) -> float | None:
    if stage.name == COORDINATOR:
        return None  # its process has the hub
    with stage.join() as place:
        peer = RECEIVER if stage.name == SENDER else SENDER
        place.wait_for_peers([peer], timeout=PATIENCE)
        channel = place.channel(peer)
        words = np.random.default_rng(0).integers(0, 2**32, size * 250_000, dtype=np.uint32)
        begun = 0.0
        for number in range(SIZES[size] + 2):  # the first two do not count
            if number == 2:
                begun = time.perf_counter()
            if stage.name == SENDER:
                channel.send("words", words=words)
            elif not np.array_equal(channel.recv("words")["words"][-9:], words[-9:]):
                raise RuntimeError("what arrived is not what was sent")
            if number in (1, SIZES[size] + 1):
                channel.recv("read") if stage.name == SENDER else channel.send("read")
        return time.perf_counter() - begun


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


if __name__ == "__main__":
    command(__doc__, measure, show, repeats=5)
