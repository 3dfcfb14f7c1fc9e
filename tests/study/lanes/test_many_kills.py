"""Thirty workers are killed at random moments: each costs at most one lane and 15 seconds, and the result is exact."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from .conftest import Laned, Watched
from .recovery import Kill, cost_of, events_of, now

KILLS = 30
PARTITIONS = 64
MOST_SECONDS = 15.0

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_noise")]


def test_thirty_kills(laned: Callable[..., Laned], crews: type[Watched]) -> None:
    study = laned(rows=400, partitions=PARTITIONS)
    expected = study.values(study.in_threads(study.plain))
    over, killed, chosen = threading.Event(), list[Kill](), random.Random(30)  # noqa: S311 - who is killed

    def kill() -> None:
        while len(killed) < KILLS and not over.wait(chosen.uniform(0.1, 0.6)):
            crew = chosen.choice(sorted(crews.all.values(), key=lambda crew: crew.name) or [None])
            busy = sorted(crew.busy().items()) if crew is not None else []
            if crew is not None and busy:
                kill = Kill(now(), crew.name, chosen.choice(busy)[1])
                before = {(each.who, each.worker) for each in killed}  # of which the head may not know yet
                if (kill.who, kill.worker) not in before and crew.kill(kill.worker):
                    killed.append(kill)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    start = time.monotonic()
    out = study.in_threads()
    seconds = time.monotonic() - start
    over.set()
    killer.join()
    assert len(killed) == KILLS, f"only {len(killed)} workers were killed in {seconds:.0f} s"
    assert study.values(out) == expected
    facts = study.facts(out)
    assert sum(each["lanes"]["lost_workers"] for each in facts.values()) == KILLS
    for name, each in facts.items():
        assert each["lanes"]["lost_workers"] == [kill.who for kill in killed].count(name)
        assert PARTITIONS < each["lanes"]["attempts"] <= PARTITIONS + KILLS
        assert each["lanes"]["done"] == PARTITIONS
    records = {name: events_of(place) for name, place in out.items()}
    costs = [cost_of(kill, records) for kill in killed]
    assert len({cost.lane for cost in costs if cost.lane}) == facts["bank"]["lanes"]["attempts"] - PARTITIONS
    assert max(cost.seconds for cost in costs) <= MOST_SECONDS, sorted(cost.seconds for cost in costs)
    for name in study.parties:
        assert study.states(name) == ["committed", "committed"]
    assert not study.left_behind()
