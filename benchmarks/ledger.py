"""How long a reservation takes, and how much memory, as a ledger grows.

Every entry is a study of its own, with other noise than all before, every three hours. The policy has caps for ever and
a period of 30 days. Each figure is of a process of its own that has loaded what a party has loaded when it comes to
its ledger, and that reserves a few times. The processor's time is the one to compare, because a machine that is
shared does not blur it; the clock's is given as the least and the median.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

from colonnade.privacy import Ledger, Observer, SkellamRelease, Trust, epsilon, parse_budgets, views
from colonnade.privacy.ledger.caps import Period
from colonnade.privacy.ledger.file import add, append
from colonnade.privacy.ledger.people import People

SIZES = (10, 229, 1_000, 10_000)
OWNERS = ("bank", "shop", "clinic")
TRUST = Trust(OWNERS, OWNERS, 1)
KEYS = {name: f"sha256:{name}" for name in (*OWNERS, "coordinator")}
CAPS = parse_budgets({"analyst": 3.0, "coordinator": 3.0, "party": 3.0}, 1e-5)
PERIODS = [Period(30, parse_budgets({"analyst": 1.0, "party": 1.0}, 1e-5))]
TIMES = 25
START = datetime(2030, 1, 1, tzinfo=UTC)
MOST_SECONDS = 0.05


def study(number: int) -> SkellamRelease:
    shares = tuple((owner, Fraction(10**20 + number)) for owner in OWNERS)
    return SkellamRelease("moments", shares, 100, 10**6, 10**12, 2 * 10**6, 2 * 10**12, 1e-30, "moments-sensitivity")


def reserve(ledger: Ledger, number: int) -> None:
    ledger.reserve(f"s{number}", "d" * 64, [study(number)], TRUST, CAPS, PERIODS, KEYS)


def fill(path: Path, size: int) -> None:
    """A ledger with so many entries, and the sums that reservations one by one would have left."""
    ledger, people = Ledger(path, owner="bank"), People.of("bank", KEYS, TRUST).to_json()
    with ledger._file.writing() as base:
        for number in range(size - 1):
            at = (START + timedelta(hours=3 * number)).isoformat(timespec="milliseconds")
            entry = add(
                base, f"s{number}", "d" * 64, at, json.dumps([study(number).to_dict()]), TRUST.to_json(), people
            )
            for state in ("sent", "committed"):
                append(base, entry, state, at)
    reserve(Ledger(path, owner="bank", clock=lambda: START + timedelta(hours=3 * size)), size - 1)


def measure(path: Path, size: int) -> dict[str, float]:
    """Reserve some more, in this process."""
    ledger = Ledger(path, owner="bank", clock=lambda: START + timedelta(hours=3 * size + 1))
    epsilon(views([study(0)], Observer.analyst(), TRUST), 1e-5)  # what a party computes of every study before
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock, processor = [], []
    for number in range(TIMES):
        begun, used = time.perf_counter(), time.process_time()
        reserve(ledger, size + number)
        clock.append(time.perf_counter() - begun)
        processor.append(time.process_time() - used)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return {"clock": median(clock), "least": min(clock), "processor": median(processor), "memory": memory}


def run() -> dict[str, Any]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in SIZES:
            path = Path(folder) / f"{size}.sqlite"
            fill(path, size)
            command = [sys.executable, __file__, "--measure", str(path), "--size", str(size)]
            found[size] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            found[size]["file"] = path.stat().st_size
    return {"sizes": found}


def rows(found: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for size, figures in found["sizes"].items():
        kept = figures["processor"] < MOST_SECONDS
        yield (
            f"a reservation with {int(size):,} entries",
            f"**{1e3 * figures['processor']:.0f} ms** of the processor; on the clock {1e3 * figures['least']:.0f} ms "
            f"at least, median {1e3 * figures['clock']:.0f} ms; {figures['memory'] / 1e6:.1f} MB of memory; file "
            f"{figures['file'] / 1e6:.1f} MB",
            f"{'PASS' if kept else 'FAIL'}: under 50 ms" if int(size) == max(map(int, found["sizes"])) else "",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", type=Path)
    parser.add_argument("--size", type=int, default=0)
    given = parser.parse_args()
    if given.measure is not None:
        print(json.dumps(measure(given.measure, given.size)))
        return
    found = run()
    print(json.dumps(found) if given.json else "\n".join(" | ".join(row) for row in rows(found)))


if __name__ == "__main__":
    main()
