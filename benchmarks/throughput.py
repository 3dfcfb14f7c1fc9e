"""Megabytes a second from one process to another through the hub, which is a third: sealed end to end, over TLS.

Messages hold words as shares do. Both ends know when the last message was read. Processor time is that of each of the
three processes between the same two moments, user and system together, with all threads. With ``--direct`` the same
over a direct link, beside it.
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
from numpy.typing import NDArray

from colonnade.protocols.roles import COORDINATOR
from harness import PATIENCE, Act, Stage, command, in_processes

SENDER, RECEIVER = "bank", "shop"
NAMES = (COORDINATOR, SENDER, RECEIVER)
ROLES = {SENDER: "sender", COORDINATOR: "hub with its door", RECEIVER: "receiver"}
SIZES = {1: 96, 4: 48, 16: 16}
"""How many messages of so many megabytes are sent."""
LEAST = 150


def measure(repeats: int = 5, direct: bool = False) -> dict[str, Any]:
    """Of each size the median of some runs, each in fresh processes."""
    runs = {
        size: [in_processes(NAMES, partial(_prepare, size=size), direct=direct) for _ in range(repeats)]
        for size in SIZES
    }
    sent = {size: size * count for size, count in SIZES.items()}
    rates = {size: [sent[size] / found[SENDER]["wall"] for found in each] for size, each in runs.items()}
    work = {
        size: {name: 1000 * median(found[name]["cpu"] for found in each) / sent[size] for name in NAMES}
        for size, each in runs.items()
    }
    return {"rates": {str(size): median(each) for size, each in rates.items()}, "all": rates, "work": work}


def measure_both(repeats: int = 5) -> dict[str, Any]:
    """The same through the hub and over a direct link."""
    return {"hub": measure(repeats), "direct": measure(repeats, direct=True)}


def _prepare(name: str, size: int) -> Act:
    return partial(_take_part, size=size)


def _take_part(stage: Stage, size: int) -> dict[str, float]:
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


def rows(found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Rows of the page of figures."""
    worst = min(found["rates"].values())
    rates = ", ".join(f"{rate:.0f} MB/s" for rate in found["rates"].values())
    sizes = ", ".join(found["rates"])
    verdict = f"{'PASS' if worst >= LEAST else 'FAIL'}: at least {LEAST} MB/s"
    yield f"from one process to another through the hub, messages of {sizes} MB", f"**{rates}**", verdict
    for name, role in ROLES.items():
        yield f"CPU of the {role}, a megabyte", ", ".join(f"{of[name]:.1f} ms" for of in found["work"].values()), ""
    totals = ", ".join(f"{sum(of.values()):.1f} ms" for of in found["work"].values())
    yield "CPU of all three, a megabyte", totals, ""


def show(found: dict[str, Any]) -> None:
    """The figures in lines."""
    for line in rows(found):
        print(" | ".join(line))


def show_both(found: dict[str, Any]) -> None:
    """The figures of both ways in lines."""
    show(found["hub"])
    print("over a direct link:")
    show(found["direct"])


if __name__ == "__main__":
    if "--direct" in sys.argv:
        sys.argv.remove("--direct")
        command(__doc__, measure_both, show_both, repeats=5)
    else:
        command(__doc__, measure, show, repeats=5)
