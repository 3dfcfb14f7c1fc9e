"""What a product and a reciprocal of 1,000,000 shared numbers cost a seat: processor time by kind of work, and bytes.

Three seats in processes over TLS, which connect directly; with ``--hub`` through the hub. Masks and random bits are
made before. The profiler counts processor time of the thread that computes; it adds a tenth itself. What other threads
take, mostly to receive, is the difference to the time of the process.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import cProfile
import pstats
import time
from collections import Counter
from functools import partial
from typing import Any

import engine
from colonnade.protocols.roles import COORDINATOR
from harness import PATIENCE, Act, Stage, in_processes
from loopback import LARGE, Figures

KINDS = {
    "sealing and unsealing (TLS)": ("_ssl._SSLSocket", "_ssl.MemoryBIO", "wire/endpoint.py", "/ssl.py"),
    "tags of direct links": ("AESGCM",),
    "sockets": ("_socket.socket",),
    "streams of keys in common (AES)": ("CipherContext", "randomness.py"),
    "packing and unpacking words": ("mpc/messages.py",),
    "shared bits": ("fixed_point/shared_bits.py",),
    "arithmetic modulo primes": ("colonnade/mpc", "numpy"),
}
"""Kinds of work, by what the profiler calls a function; the first that fits."""
REST = "messages: framing, queues, checks of forms"


def kind_of(name: tuple[str, int, str]) -> str:
    """The kind of work that a function does."""
    said = f"{name[0]} {name[2]}"
    return next((kind for kind, parts in KINDS.items() if any(part in said for part in parts)), REST)


def _prepare(name: str, operation: str) -> Act:
    return partial(_take_part, operation=operation)


def _take_part(stage: Stage, operation: str) -> Figures | None:
    if stage.name == COORDINATOR:
        return None
    with stage.join() as place:
        others = [seat for seat in engine.SEATS if seat != stage.name]
        links: dict[str, Any] = {seat: place.channel(seat) for seat in others}
        place.wait_for_peers(others, timeout=PATIENCE)
        seat = engine.Seat(stage.name, links, operation)
        owned = zip(engine.SEATS, engine.operands(LARGE), strict=False)
        x, y = (seat.share(owner, values) for owner, values in owned)
        seat.run(x, y)
        seat.prepare(seat.needed())
        tally, profile = place.counters.tally, cProfile.Profile(time.thread_time)
        sent, rounds, process, thread = tally.payload, tally.rounds, time.process_time(), time.thread_time()
        profile.runcall(seat.run, x, y)
        process, thread = time.process_time() - process, time.thread_time() - thread
        found: Counter[str] = Counter()
        stats: dict[tuple[str, int, str], tuple[int, int, float, float, Any]] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
        for name, (_, _, own, _, _) in stats.items():
            found[kind_of(name)] += own
        found["other threads: receiving"] = process - thread
        return {"seconds": dict(found), "sent": tally.payload - sent, "rounds": tally.rounds - rounds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hub", action="store_true", help="through the hub instead of direct links")
    options = parser.parse_args()
    for operation in ("multiply", "reciprocal"):
        prepare = partial(_prepare, operation=operation)
        played = in_processes((*engine.SEATS, COORDINATOR), prepare, direct=not options.hub)
        reports = [played[seat] for seat in engine.SEATS]
        kinds = sorted({kind for report in reports for kind in report["seconds"]})
        means = {kind: sum(report["seconds"].get(kind, 0.0) for report in reports) / len(reports) for kind in kinds}
        whole = sum(means.values())
        print(f"| {operation} of 1,000,000, one seat | ms of processor time | share |\n|---|---|---|")
        for kind, seconds in sorted(means.items(), key=lambda item: -item[1]):
            print(f"| {kind} | {1e3 * seconds:.0f} | {100 * seconds / whole:.0f} % |")
        sent = sum(report["sent"] for report in reports) / len(reports)
        print(f"| all | {1e3 * whole:.0f} | {sent / 1e6:.1f} MB sent, {reports[0]['rounds']} rounds |\n")


if __name__ == "__main__":
    main()
