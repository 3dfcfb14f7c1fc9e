"""How long a reservation takes, and the rest of a study's use of its ledger, and how much memory, as a ledger grows.

Every entry is a study of its own, with other noise than all before, every three hours, with two of twelve partners. The
policy has one number for everyone, for ever and within 30 days. Each figure is of a process of its own that has loaded
what a party has loaded when it comes to its ledger, and that takes part in a few studies. The clock's median decides;
each change is flushed to disk, so run it on a machine that does nothing else.
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

from colonnade.privacy import Ledger, LedgerEntry, Observer, SkellamRelease, Trust, epsilon, parse_budgets, views
from colonnade.privacy.ledger.caps import CapPeriod
from colonnade.privacy.ledger.participants import StudyParticipants
from colonnade.privacy.ledger.storage import append_change, insert_entry

SIZES = (10, 229, 1_000, 10_000)
PARTNERS = 12
DELTA = 1e-5
CAPS = parse_budgets(3.0, DELTA)
PERIODS = [CapPeriod(30, parse_budgets(1.0, DELTA))]
TIMES = 25
START = datetime(2030, 1, 1, tzinfo=UTC)
MOST_SECONDS = 0.05


def trust(number: int) -> Trust:
    owners = ("bank", f"partner{number % PARTNERS}", f"partner{(number // PARTNERS + number + 1) % PARTNERS}")
    owners = owners if len(set(owners)) == 3 else (*owners[:2], f"partner{(number + 1) % PARTNERS}")
    return Trust(owners, owners, 1)


def keys(number: int) -> dict[str, str]:
    return {name: f"sha256:{name}" for name in (*trust(number).owners, "coordinator")}


def study(number: int) -> SkellamRelease:
    shares = tuple((owner, Fraction(10**20 + number)) for owner in trust(number).owners)
    return SkellamRelease(
        "moments", shares, 100, 10**6, 10**12, 2 * 10**6, 2 * 10**12, tail=1e-30, theorem="moments-sensitivity"
    )


def asked(number: int) -> tuple[Any, ...]:
    return [study(number)], trust(number), CAPS, PERIODS, keys(number)


def reserve(ledger: Ledger, number: int) -> LedgerEntry:
    events, *rest = asked(number)
    return ledger.reserve(f"s{number}", "d" * 64, events, *rest)


def fill(path: Path, size: int) -> None:
    """A ledger with so many entries, and the costs that reservations one by one would have left."""
    ledger = Ledger(path, owner="bank")
    with ledger._file.writing() as base:
        for number in range(size - 1):
            at = (START + timedelta(hours=3 * number)).isoformat(timespec="milliseconds")
            people = StudyParticipants.of("bank", keys(number), trust(number)).to_json()
            events = json.dumps([study(number).to_dict()])
            entry = insert_entry(base, f"s{number}", "d" * 64, at, events, trust(number).to_json(), people)
            for state in ("sent", "committed"):
                append_change(base, entry, state, at)
    reserve(Ledger(path, owner="bank", clock=lambda: START + timedelta(hours=3 * size)), size - 1)


def measure(path: Path, size: int) -> dict[str, float]:
    """Take part in some more studies, in this process."""
    ledger = Ledger(path, owner="bank", clock=lambda: START + timedelta(hours=3 * size + 1))
    epsilon(views([study(0)], Observer.analyst(), trust(0)), DELTA)  # what a party computes of every study before
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    clock, processor, whole = [], [], []
    for number in range(size, size + TIMES):
        start = time.perf_counter()
        ledger.count_aborted_studies(days=30)
        ledger.note_time()
        ledger.check(f"s{number}", *asked(number))
        begun, used = time.perf_counter(), time.process_time()
        entry = reserve(ledger, number)
        clock.append(time.perf_counter() - begun)
        processor.append(time.process_time() - used)
        ledger.mark_sent(entry)
        ledger.commit(entry)
        whole.append(time.perf_counter() - start)
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return {
        "clock": median(clock),
        "least": min(clock),
        "processor": median(processor),
        "whole": median(whole),
        "memory": memory,
    }


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
        kept = figures["clock"] < MOST_SECONDS
        yield (
            f"a reservation with {int(size):,} entries",
            f"**{1e3 * figures['clock']:.0f} ms** on the clock, {1e3 * figures['least']:.0f} ms at least, "
            f"{1e3 * figures['processor']:.0f} ms of the processor; with the checks before it and the changes after it "
            f"{1e3 * figures['whole']:.0f} ms; {figures['memory'] / 1e6:.1f} MB of memory; file "
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
