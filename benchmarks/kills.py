"""Random SIGKILLs of a standing federation: does every proposal end once, and does every ledger say all that left?

A hub and three agents run as processes and answer by policy; some proposals are always open. Now and then one process
is killed, the hub, an agent, or a child of theirs that runs or checks a study, and a hub or an agent is started again.
At the end everybody must agree how each proposal ended, no study may have two results, and a ledger must hold, as sent
or spent, every attempt of which shares left: by the attempt's own record, and by others' where they opened anything.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from colonnade.privacy import Ledger
from tests.support.standing import HUB, PARTIES, Standing, standing, until

RESULTS = Path(__file__).parent / "results" / "kills.md"
HEAD = """# Random kills

Processes of a [standing federation](../../docs/how-to/agents.md) are killed at random. Every proposal must end once,
and the same for everybody; no study may have two results; and every ledger must say all that left its party.
"""
FINAL = {"done", "declined", "failed", "expired", "cancelled"}
OPEN = 3
"""Proposals that are kept open while there is killing."""
LONGEST_PAUSE = 12.0
"""Seconds between the moment when all agents are connected again and the next kill; a third of it with --at-once."""
KIND = {"party": "a party's child", "coordinator": "the hub's child", "_assess": "a child that checks"}


@dataclass
class Found:
    """What came of a run."""

    kills: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    sent: int = 0
    charged: int = 0
    results: int = 0
    wrong: list[str] = field(default_factory=list)


def victims(federation: Standing) -> dict[int, tuple[str, str]]:
    """All processes: by number, what each is, and whose."""
    found = {process.pid: ("the hub" if name == HUB else "an agent", name)
             for name, process in federation.running.items()}  # fmt: skip
    for name in tuple(federation.running):
        for pid in federation.children(name):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            found[pid] = (next((KIND[word] for word in words if word in KIND), "another child"), name)
    return found


def kill_one(federation: Standing, rng: random.Random, found: Found) -> None:
    """Kill one process, each kind of them with the same chance; a hub or an agent is started again."""
    there = victims(federation)
    kind = rng.choice(sorted({what for what, _ in there.values()}))
    pid = rng.choice([pid for pid, (what, _) in there.items() if what == kind])
    name = there[pid][1]
    found.kills[kind] += 1
    if kind in ("the hub", "an agent"):
        federation.kill(name)
        federation.start(name)
        return
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        found.kills[kind] -= 1


def hub_states(federation: Standing) -> dict[str, str]:
    """Every proposal's state, as the hub tells the analyst."""
    return {one: study["state"] for one, study in federation.told().items()}


def play(federation: Standing, kills: int, seed: int, at_once: bool, found: Found) -> list[str]:
    """Propose and kill, then let everything end."""
    rng, proposed = random.Random(seed), []  # noqa: S311 - chooses whom to kill
    for number in range(kills):
        alive = [one for one in proposed if any(federation.state(party, one) not in FINAL for party in PARTIES)]
        while len(alive) < OPEN:
            study = federation.study_named(f"small-{len(proposed)}")
            alive.append(federation.propose(study))
            proposed.append(alive[-1])
        if not at_once:
            until(lambda: all(federation.store(party).status().connected for party in PARTIES), "agents to be back")
        time.sleep(rng.uniform(0, LONGEST_PAUSE / 3 if at_once else LONGEST_PAUSE))
        kill_one(federation, rng, found)
        print(f"{number + 1} of {kills} kills, {len(proposed)} proposals", file=sys.stderr)
    for one in proposed:
        federation.wait_all(one, *FINAL, "refused")
    return proposed


def lines(folder: Path) -> Iterator[dict[str, Any]]:
    """The events of an attempt; a line that was cut by a kill is none."""
    path = folder / "events.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def judge(federation: Standing, proposed: list[str], found: Found) -> None:
    """Compare what everybody holds at the end."""
    states = until(lambda: hub_states(federation), "the hub to say how proposals ended")
    charged = {party: _charged(federation, party) for party in PARTIES}
    for party in PARTIES:
        Ledger(federation.ledger(party)).verify()
        found.charged += len(charged[party])
    for one in proposed:
        state = states.get(one, "unknown to the hub")
        found.states[state] += 1
        told = {party: federation.state(party, one) for party in PARTIES}
        same = {state, "refused"} if state == "declined" else {state}  # a party's own no may be a refusal
        if state not in FINAL or not set(told.values()) <= same:
            found.wrong.append(f"{one[:8]}: the hub says {state}, parties say {told}")
        _judge_attempts(federation, one, state, charged, found)


def _judge_attempts(federation: Standing, id: str, state: str, charged: dict[str, set[int]], found: Found) -> None:
    models: dict[int, set[bytes]] = {}
    for number in sorted({attempt.number for party in PARTIES for attempt in federation.store(party).attempts(id)}):
        found.attempts += 1
        records = {party: list(lines(_folder(federation, party, id, number))) for party in PARTIES}
        opened = any(line["what"] == "revealed" for record in records.values() for line in record)
        for party, record in records.items():
            entries = [line["entry"] for line in record if line["what"] == "budget reserved"]
            left = opened or any(line["what"] == "first share" for line in record)
            found.sent += left
            if left and not (entries and entries[-1] in charged[party]):
                found.wrong.append(f"{id[:8]}, attempt {number}: shares left {party}, and its ledger does not say so")
            model = _folder(federation, party, id, number) / "model.json"
            if model.exists():
                models.setdefault(number, set()).add(model.read_bytes())
    results = {result for attempt in models.values() for result in attempt}
    found.results += bool(results)
    if len(models) > 1 or len(results) > 1:
        found.wrong.append(f"{id[:8]}: {len(results)} results of {len(models)} attempts")
    if bool(results) != (state == "done"):
        found.wrong.append(f"{id[:8]}: {state}, with {len(results)} results")


def _folder(federation: Standing, party: str, id: str, number: int) -> Path:
    for attempt in federation.store(party).attempts(id):
        if attempt.number == number:
            return attempt.folder
    return federation.folder / "no such attempt"


def _charged(federation: Standing, party: str) -> set[int]:
    """The entries of a ledger that count."""
    ledger = Ledger(federation.ledger(party))
    return {entry.id for entry in ledger.entries() if ledger.state(entry) in ("sent", "committed")}


def page(found: Found, kills: int, seed: int, at_once: bool, seconds: float) -> str:
    """The section of a page with the figures."""
    killed = ", ".join(f"{what} {count}" for what, count in found.kills.most_common())
    ended = ", ".join(f"{state} {count}" for state, count in found.states.most_common())
    rows = [
        ("kills", f"{found.kills.total()}: {killed}"),
        ("proposals, by how they ended", f"{found.states.total()}: {ended}"),
        ("attempts", f"{found.attempts}"),
        ("attempts of which a party's shares left, and entries that its ledger counts",
         f"{found.sent} and {found.charged}"),
        ("studies with a result, each of one attempt and the same everywhere", f"{found.results}"),
        ("what should not be", "; ".join(found.wrong) or "nothing"),
    ]  # fmt: skip
    command = f"python benchmarks/kills.py --kills {kills} --seed {seed}{' --at-once' if at_once else ''} --write"
    pace = (
        f"every {LONGEST_PAUSE / 6:.0f} seconds on average, whether or not processes have started again"
        if at_once
        else f"within {LONGEST_PAUSE:.0f} seconds after all agents are connected again"
    )
    return "\n".join(
        [
            f"## {'Without mercy' if at_once else 'While studies run'}",
            "",
            f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC. Made by `{command}` in {seconds:.0f} seconds: a hub and three "
            f"agents as processes, {OPEN} proposals always open, up to 5 further attempts each; any of their processes "
            f"is killed by SIGKILL {pace}.",
            "",
            "| what | found |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in rows),
            "",
        ]
    )


def write(section: str) -> None:
    """Put a section into the page, in place of an earlier one of the same title."""
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else HEAD
    head, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    kept = [one.rstrip() + "\n" for one in sections if one.splitlines()[0] != section.splitlines()[0]]
    RESULTS.write_text("\n".join([head.rstrip() + "\n", *sorted([*kept, section])]), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--at-once", action="store_true", help="kill on, before agents are connected again")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    given = parser.parse_args()
    found, begun = Found(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        how = {"small": True, "approval": "auto-within-budget", "cap": 100_000.0, "agent": "retries = 5\n"}
        with standing(Path(folder) / "federation", **how) as federation:
            proposed = play(federation, given.kills, given.seed, given.at_once, found)
            judge(federation, proposed, found)
    text = page(found, given.kills, given.seed, given.at_once, time.monotonic() - begun)
    if given.write:
        write(text)
    print(text)
    sys.exit(bool(found.wrong))


if __name__ == "__main__":
    main()
