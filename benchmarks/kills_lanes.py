"""Random SIGKILLs of workers in a study in lanes: what does each cost, and the whole run?

The study is that of `lanes.py`, as `colonnade run` runs it: every head and every worker is a process. It runs once as
it is and once while workers are killed, any of those that there are, one after the other: the next when the head has
noted the loss of the last. What a kill costs is read from the records of all participants.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import lanes as studies
from colonnade.privacy import Ledger
from colonnade.protocols.roles import COORDINATOR
from colonnade.study.local import folder_of
from tests.study.lanes.conftest import events_of

RESULTS = Path(__file__).parent / "results" / "kills-lanes.md"
NAMES = (COORDINATOR, *studies.OWNERS)
MOST_SECONDS = 15.0
PATIENCE = 600.0
LOOK_SECONDS = 0.02
Events = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Kill:
    """One worker of one participant, and when it was killed."""

    moment: datetime
    who: str
    worker: int


@dataclass(frozen=True)
class Cost:
    """Seconds since a kill, and those of the lane that was run again; 0 where no lane was lost."""

    noticed: float
    replaced: float
    """Until another worker said its first word, or none was needed any more."""
    freed: float
    """Until the last of the others was told to give the lane up."""
    repeated: float
    """Of the run that was kept, from when everybody had a worker for it until everybody had the result."""
    waited: float
    """Until everybody had begun the lane again; those that waited before the loss come first."""
    lane: tuple[int, int] | None

    @property
    def seconds(self) -> float:
        """For how long somebody had a worker less, and what it took to repeat the lane."""
        return max(self.replaced, self.freed) + self.repeated


def cost_of(kill: Kill, records: Mapping[str, Events]) -> Cost:
    """What one kill has cost; an AssertionError if a record does not say what became of it."""

    def times(who: str, what: str, **fields: Any) -> list[float]:
        wanted = {"what": what, **fields}
        return [
            (datetime.fromisoformat(event["time"]) - kill.moment).total_seconds()
            for event in records[who]
            if wanted.items() <= event.items()
        ]

    def last(what: str, partition: int, attempt: int) -> float:
        each = [times(who, what, partition=partition, attempt=attempt) for who in records]
        assert all(len(found) == 1 for found in each), f"{what} in {partition}-{attempt}: not once at everybody"
        return max(found[0] for found in each)

    (noticed,) = times(kill.who, "worker lost", worker=kill.worker)
    replaced, *_ = *times(kill.who, "worker replaced", worker=kill.worker), *times(kill.who, "revealed")
    lost = {"what": "worker lost", "worker": kill.worker}
    (event,) = (each for each in records[kill.who] if lost.items() <= each.items())
    if "partition" not in event:
        return Cost(noticed, replaced, 0.0, 0.0, 0.0, None)
    partition, attempt = event["partition"], event["attempt"]
    freed = [
        found
        for who in records
        for what in ("lane given up", "lane lost")  # its own worker may find out first
        for found in times(who, what, partition=partition, attempt=attempt)
        if who != kill.who
    ]
    kept = max(
        event["attempt"]
        for event in records[kill.who]
        if event["what"] == "repeated lane done" and event["partition"] == partition
    )
    begun = last("lane begun again", partition, kept)
    done = last("repeated lane done", partition, kept)
    waited = last("lane begun again", partition, attempt + 1) if kept == attempt + 1 else begun
    return Cost(noticed, replaced, max(freed, default=0.0), done - begun, waited, (partition, attempt))


class Run:
    """One study, in processes."""

    def __init__(self, path: Path) -> None:
        self.path, self.out = path, path.parent / "run"
        words = [sys.executable, "-m", "colonnade", "run", str(path), "--out", str(self.out), "--json"]
        with open(path.parent / "log", "wb") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)
        self._watched = studies.Watched(self.process.pid, [])

    @property
    def workers(self) -> list[int]:
        """The processes of workers that are there."""
        self._watched.look()
        return [pid for pid in self._watched.of(studies.WORKER) if studies._memory(pid).get("RssAnon")]

    @property
    def records(self) -> dict[str, list[dict[str, Any]]]:
        return {name: events_of(folder_of(self.out, name)) for name in NAMES}

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"no {what}: {(self.path.parent / 'log').read_text(errors='replace')[-2000:]}")
            time.sleep(LOOK_SECONDS)

    def ended(self) -> dict[str, Any]:
        """What every participant's record says, when the study has ended well."""
        if self.process.wait(PATIENCE):
            raise SystemExit((self.path.parent / "log").read_text(errors="replace")[-2000:])
        return {name: json.loads((folder_of(self.out, name) / "run.json").read_text()) for name in NAMES}


def lost(run: Run) -> list[tuple[str, int]]:
    """Whose workers were lost, and which."""
    return [(who, event["worker"]) for who, record in run.records.items() for event in record
            if event["what"] == "worker lost"]  # fmt: skip


def killed(run: Run, kills: int, pause: float, seed: int) -> list[Kill]:
    """Kill workers until there were enough; each kill is matched to the next loss that a record names."""
    chosen, found = random.Random(seed), list[Kill]()  # noqa: S311 - who is killed
    for what in ("all workers ready", "lanes begin"):
        wanted = "first share" if what == "lanes begin" else what
        names = studies.OWNERS if what == "lanes begin" else NAMES
        run.until(
            lambda names=names, wanted=wanted: all(
                wanted in [event["what"] for event in run.records[name]] for name in names
            ),
            what,
        )
    while len(found) < kills:
        time.sleep(chosen.uniform(0, 2 * pause))
        known = lost(run)
        moment = datetime.now(UTC)
        try:
            os.kill(chosen.choice(run.workers), signal.SIGKILL)
        except (ProcessLookupError, IndexError):
            if run.process.poll() is not None:
                raise SystemExit(f"the study ended after {len(found)} kills: take more partitions") from None
            continue
        run.until(lambda known=known: len(lost(run)) > len(known), "loss of a worker in the records")
        ((who, worker),) = [each for each in lost(run) if each not in known]
        found.append(Kill(moment, who, worker))
        print(f"{len(found)} of {kills} kills", file=sys.stderr)
    return found


def check(case: studies.Case, facts: dict[str, Any], kills: int, path: Path) -> None:
    """Whether the study ended as it should."""
    assert sum(each["lanes"]["lost_workers"] for each in facts.values()) == kills
    for each in facts.values():
        assert each["lanes"]["done"] == case.partitions
        assert each["lanes"]["attempts"] <= case.partitions + kills
    for name in studies.OWNERS:
        assert facts[name]["alignment"]["matched"] == case.common, "not all people were found"
        entries = Ledger(path.parent / name / "ledger.sqlite").entries()
        assert [entry.state for entry in entries] == ["committed"]


def page(case: studies.Case, command: str, kills: list[Kill], costs: Sequence[Cost], plain: Any, hit: Any) -> str:
    def row(what: str, values: Sequence[float]) -> str:
        return f"| {what} | {statistics.median(values):.2f} s | {max(values):.2f} s |"

    having = [cost for cost in costs if cost.lane is not None]
    seconds = [facts[COORDINATOR]["lanes"]["seconds"] for facts in (plain, hit)]
    used = [sum(each["lanes"]["processor_seconds"] for each in facts.values()) for facts in (plain, hit)]
    attempts = hit[COORDINATOR]["lanes"]["attempts"]
    usual = seconds[0] * case.workers / case.partitions
    load = os.getloadavg()
    whose = ", ".join(f"{who} {[kill.who for kill in kills].count(who)}" for who in NAMES)
    lines = [
        "# Killed workers in lanes",
        "",
        f"Made by `{command}` on {datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, load {load[1]:.0f}: "
        f"`colonnade run` of a PCA of {case.rows:,} rows x {case.columns} columns of each of three parties, in "
        f"{case.partitions} partitions, with {case.workers} workers of each participant, every one a process. "
        f"{len(kills)} workers were killed at random ({whose}). "
        f"All people were found, and each ledger has one entry. "
        "That sums are exact then is [tested](../../tests/study/lanes/test_lanes.py), without noise.",
        "",
        f"Of the workers, {len(having)} had a lane, and {attempts - case.partitions} lanes were run again.",
        "",
        "| of one kill | median | largest |",
        "|---|---:|---:|",
        row("until its head noted the loss", [cost.noticed for cost in costs]),
        row("until another worker said its first word", [cost.replaced for cost in costs]),
        row("until all others had given its lane up", [cost.freed for cost in having]),
        row("the lane, run again", [cost.repeated for cost in having]),
        row("**in all**: the later of the second and third line, and the fourth", [cost.seconds for cost in costs]),
        row("until its lane began again, after those that waited already", [cost.waited for cost in having]),
        "",
        "| whole run | as it is | with kills |",
        "|---|---:|---:|",
        f"| from the first lane to the last | {seconds[0]:.1f} s | {seconds[1]:.1f} s |",
        f"| processor time of lanes that ended, all participants | {used[0]:.1f} s | {used[1]:.1f} s |",
        f"| runs of partitions | {plain[COORDINATOR]['lanes']['attempts']} | {attempts} |",
        "",
        f"A lane takes {usual:.2f} s by the clock without kills. A kill made the run longer by "
        f"{(seconds[1] - seconds[0]) / len(kills):.2f} s on average.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=30)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    asked = parser.parse_args()
    case = studies.Case(asked.rows, asked.partitions, workers=asked.workers)
    with tempfile.TemporaryDirectory(prefix="colonnade-bench-") as name:
        data = studies.tables(Path(name), case.rows, case.columns)
        path = studies.study(Path(name) / "plain", data, case)
        plain = Run(path).ended()
        check(case, plain, 0, path)
        path = studies.study(Path(name) / "hit", data, case)
        run = Run(path)
        pause = plain[COORDINATOR]["lanes"]["seconds"] / asked.kills / 2
        kills = killed(run, asked.kills, pause, asked.seed)
        hit = run.ended()
        check(case, hit, asked.kills, path)
        costs = [cost_of(kill, run.records) for kill in kills]
    words = [f"--{key} {value}" for key, value in vars(asked).items()
             if key != "write" and value != parser.get_default(key)]  # fmt: skip
    command = " ".join(["python benchmarks/kills_lanes.py", *words, "--write"])
    text = page(case, command, kills, costs, plain, hit)
    print(text)
    if asked.write:
        RESULTS.write_text(text, encoding="utf-8")
    if max(cost.seconds for cost in costs) > MOST_SECONDS:
        raise SystemExit(f"a kill cost more than {MOST_SECONDS:.0f} seconds")


if __name__ == "__main__":
    main()
