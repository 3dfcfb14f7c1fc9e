"""A party killed at any moment: its ledger opens, verifies, and never counts less than what was announced."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from colonnade.errors import LedgerError
from colonnade.privacy.accountant import epsilon
from colonnade.privacy.events import views
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.observers import Observer
from tests.support.errors import raises

from .conftest import EVENT, TRUST

ROUNDS_ON_ONE_LEDGER = 10
LONGEST_LIFE = 0.3
# Imports once, then forks one child for each line on its standard input: a child lives for a fraction of a second.
NURSERY = """
import os, sys
from colonnade.privacy.events import from_json
from colonnade.privacy.ledger import Ledger
from colonnade.privacy.observers import Trust

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def live(path):
    ledger, event, trust = Ledger(path), from_json(sys.argv[1]), Trust.from_json(sys.argv[2])
    number = 0
    while True:
        number += 1
        say("reserving", number)
        entry = ledger.reserve(f"s{number}", "", [event], trust, [])
        say("reserved", entry.id)
        steps = ["release"] if number % 4 == 3 else ["mark_sent", "commit"]
        for step in steps:
            say(step, entry.id)
            getattr(ledger, step)(entry)
            say("done", step, entry.id)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            live(line.strip())
        finally:
            os._exit(1)
    say("child", child)
    os.waitpid(child, 0)
    say("ended")
"""


@dataclass
class Announced:
    """What the children said, over all of a ledger's rounds."""

    reserved: set[int] = field(default_factory=set)
    begun: dict[str, set[int]] = field(default_factory=lambda: {"mark_sent": set(), "commit": set(), "release": set()})
    done: dict[str, set[int]] = field(default_factory=lambda: {"mark_sent": set(), "commit": set(), "release": set()})
    rounds: int = 0

    def hear(self, words: list[str]) -> None:
        if words[0] == "reserved":
            self.reserved.add(int(words[1]))
        elif words[0] == "done":
            self.done[words[1]].add(int(words[2]))
        elif words[0] in self.begun:
            self.begun[words[0]].add(int(words[1]))


@pytest.fixture
def nursery() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", NURSERY, EVENT.to_json(), TRUST.to_json()]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=dict(os.environ)
    )
    yield process
    process.communicate(timeout=300)


def kill_one(nursery: subprocess.Popen[str], path: Path, life: float, announced: Announced) -> None:
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(f"{path}\n")
    nursery.stdin.flush()
    word, child = nursery.stdout.readline().split()
    while word != "child":  # the child may have spoken before its parent
        announced.hear([word, child])
        word, child = nursery.stdout.readline().split()
    time.sleep(life)
    os.kill(int(child), signal.SIGKILL)
    while (line := nursery.stdout.readline().split()) != ["ended"]:
        announced.hear(line)
    announced.rounds += 1


def check(path: Path, said: Announced) -> None:
    ledger = Ledger(path)
    ledger.verify()
    now = {entry.id: entry for entry in ledger.entries()}
    assert said.reserved <= set(now)
    assert len(now) <= len(said.reserved) + said.rounds, "each kill hides at most one finished reservation"
    for number in said.reserved - said.begun["release"]:
        assert now[number].state != "released"
    for number in said.done["release"]:
        assert now[number].state == "released"
    for number in said.done["mark_sent"]:
        assert now[number].state in ("sent", "committed")
        with raises(LedgerError, "LE006", "released"):
            ledger.release(now[number])
    for number in said.done["commit"]:
        assert now[number].state == "committed"
    counted = sum(entry.state != "released" for entry in now.values())
    assert counted >= len(said.reserved - said.begun["release"])
    spent = epsilon(views([EVENT] * counted, Observer.analyst(), TRUST), 1e-5).epsilon if counted else 0
    assert ledger.spent(Observer.analyst(), 1e-5) == pytest.approx(spent, rel=1e-9)


def kill_many(nursery: subprocess.Popen[str], folder: Path, rounds: int, seed: int) -> int:
    chance = random.Random(seed)  # noqa: S311 - when to kill, nothing secret
    finished = 0
    for start in range(0, rounds, ROUNDS_ON_ONE_LEDGER):
        path, announced = folder / f"{start}.sqlite", Announced()
        Ledger(path)
        for _ in range(min(ROUNDS_ON_ONE_LEDGER, rounds - start)):
            kill_one(nursery, path, chance.uniform(0, LONGEST_LIFE), announced)
            check(path, announced)
        finished += len(announced.reserved)
    return finished


def test_five_killed_parties(nursery: subprocess.Popen[str], tmp_path: Path) -> None:
    assert kill_many(nursery, tmp_path, 5, seed=1) > 0


@pytest.mark.slow
def test_two_hundred_killed_parties(nursery: subprocess.Popen[str], tmp_path: Path) -> None:
    assert kill_many(nursery, tmp_path, 200, seed=2) > 200
