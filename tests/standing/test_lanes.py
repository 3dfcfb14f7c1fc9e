"""Studies in lanes in a federation: real agents, a standing hub, and workers of everybody who meet in lanes there."""

from __future__ import annotations

import csv
import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from colonnade.privacy import Ledger
from tests.support.standing import ALIGNED, BUDGET, HUB, PARTIES, Standing, descendants, standing
from tests.support.studies import scatter
from tests.support.waiting import below, until

TRIES = 5
PCA = 'kind = "pca"\nn_components = 1\n'
TASK = """\
kind = "polynomial"
expressions = ["1", "bank.first * shop.second", "bank.first^2"]
rounding = "nearest"
gamma = 64
"""
OF_HUB = "overdue = 20\nstudies_per_party = 2\nlanes = 2\n\n[hub.compute]\nworkers = 8\n"
OF_AGENT = """\
studies_at_once = 2

[network]
listen = "127.0.0.1:20000-29999"

[compute]
workers = 2
"""


class InLanes:
    """A federation whose studies are in lanes, and what they must come to."""

    def __init__(self, three: Standing) -> None:
        self.three = three
        text = three.study.read_text().replace(PCA, TASK).replace(BUDGET, "{ analyst = 4.0 }")
        three.study.write_text(f"{text}{ALIGNED}\n[lanes]\npartitions = 4\n")
        tables = {}
        for place, name in enumerate(PARTIES):
            table = three.of(name) / f"{name}.csv"
            scatter(table, place)
            three.change(name, 'tasks = ["pca"]', 'tasks = ["polynomial"]')
            three.change(name, "{ analyst = 3.0, coordinator = 3.0, party = 3.0 }", "{ analyst = 1000.0 }")
            with open(table) as file:
                tables[name] = {row["person_id"]: row for row in csv.DictReader(file)}
        common = set.intersection(*(set(table) for table in tables.values()))
        bank, shop = (tables[name] for name in ("bank", "shop"))
        self.common = len(common)
        products = sum(float(bank[one]["first"]) * float(shop[one]["second"]) for one in common)
        self.expected = [self.common, products, sum(float(bank[one]["first"]) ** 2 for one in common)]

    def proposed(self, name: str, links: str = "hub") -> str:
        """The study under another name, proposed to all; nobody has to be asked."""
        return self.three.propose(self.three.study_named(name, more=f'\n[coordinator]\nlinks = "{links}"\n'))

    def held_up(self, name: str, *studies: str) -> tuple[list[str], int, list[int]]:
        """Studies of which the first cannot end, since a worker of a party stands still in a lane.

        Returns the studies, the party's head, and its workers, of whom that is the first.
        """
        for number in range(TRIES):  # this process may be too late to hold it up
            found = [self.proposed(f"{study} {number}") for study in studies]
            head = self.head(name, found[0])
            workers = workers_of(head)
            for worker in workers[:1]:
                os.kill(worker, signal.SIGSTOP)
            until(lambda found=found: self.runs_or_is_done(name, found[0]), "lanes")
            if len(workers) == 2 and self.three.state(name, found[0]) == "running":
                return found, head, workers
            for study in found:
                self.done(study)
        pytest.fail(f"{TRIES} studies ended too early")

    def head(self, name: str, study: str) -> int:
        """The process of a party's first attempt, once all its workers are there."""
        until(lambda: self.three.happened(name, study, "all workers ready"), "workers")
        return int((self.three.of(name) / "agent" / "studies" / study / "attempts" / "1" / "alive").read_text())

    def runs_or_is_done(self, name: str, study: str) -> bool:
        """Whether a party's worker has done a lane; then each of its workers has had one."""
        progress = self.three.office(name).progress(study)
        in_a_lane = progress is not None and progress.phase == "lanes" and progress.done > 0
        return in_a_lane or self.three.state(name, study) == "done"

    def done(self, study: str, attempt: int = 1) -> dict[str, dict[str, Any]]:
        """What everybody recorded of a study that has ended well, with the result that it must have."""
        places = {HUB: self.three.of(HUB) / "hub" / "attempts" / study / str(attempt)}
        self.three.wait_all(study, "done")
        for name in PARTIES:
            places[name] = self.three.office(name).attempts(study)[attempt - 1].folder
        until(lambda: all((place / "run.json").exists() for place in places.values()), "all have a record")
        learned = [json.loads((place / "model.json").read_text())["learned"] for place in places.values()]
        assert all(each["values"] == learned[0]["values"] for each in learned)
        rounding = self.common / 64
        for value, expected, deviation in zip(
            learned[0]["values"], self.expected, learned[0]["deviations"], strict=True
        ):
            assert abs(value - expected) < 6 * deviation + rounding
        return {name: json.loads((place / "run.json").read_text()) for name, place in places.items()}

    def paid(self, study: str, *states: str) -> None:
        """Wait until every ledger has these entries of a study: one an attempt."""
        for name in PARTIES:
            book, digest = Ledger(self.three.of(name) / "ledger.sqlite"), self.three.office(name).entry(study).digest
            until(
                lambda book=book, digest=digest: states == tuple(e.state for e in book.entries() if e.digest == digest),
                f"{name} to have {states}",
            )

    def left_behind(self) -> list[Path]:
        return below(self.three.folder, "*colonnade-spool*", "run-*.arrow")


def workers_of(head: int) -> list[int]:
    """The processes of a head's workers, below the one that forks them."""
    return [pid for forks in descendants(head) for pid in descendants(forks)]


def gone(*pids: int) -> bool:
    alive = []
    for pid in pids:
        with suppress(OSError):
            alive.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z")
    return not any(alive)


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InLanes]:
    how = {"approval": "auto-within-budget", "hub": OF_HUB, "agent": OF_AGENT}
    with standing(tmp_path_factory.mktemp("lanes") / "f", start=(HUB,), **how) as three:
        found = InLanes(three)
        three.start(*PARTIES)
        yield found


@pytest.mark.system
def test_two_studies_at_once_and_a_worker_that_is_killed(lanes: InLanes) -> None:
    (first, second), _, (victim, _) = lanes.held_up("shop", "first", "second")
    until(lambda: lanes.runs_or_is_done("shop", second), "the other runs")
    assert lanes.three.state("shop", first) == "running"
    with suppress(ProcessLookupError):  # on a slow machine its head may have lost patience with it
        os.kill(victim, signal.SIGKILL)
    for name, found in lanes.done(first).items():
        said = found["lanes"]
        assert (said["partitions"], said["done"], said["workers"]) == (4, 4, 2), name  # the hub has two lanes for it
        assert said["attempts"] > 4, name
        assert (found["room"], found["attempt"]) == (f"{first}.1", 1)
        assert bool(said["replaced_workers"]) == (name == "shop")
        assert found["alignment"]["matched"] == lanes.common
    assert {found["lanes"]["done"] for found in lanes.done(second).values()} == {4}
    lanes.paid(first, "committed")
    lanes.paid(second, "committed")
    until(lambda: not lanes.left_behind(), "no table is left")


@pytest.mark.system
def test_a_head_that_is_killed_takes_its_workers_along_and_the_next_attempt_is_exact(lanes: InLanes) -> None:
    (study,), head, workers = lanes.held_up("bank", "third")
    (left,) = lanes.three.of("bank").glob(".colonnade-spool.*")
    os.kill(head, signal.SIGKILL)
    os.kill(workers[0], signal.SIGCONT)
    until(lambda: gone(*workers), "its workers end with it")
    until(lambda: not left.exists(), "the agent removes the table that it left")
    facts = lanes.done(study, attempt=2)
    assert {(found["lanes"]["attempts"], found["room"]) for found in facts.values()} == {(4, f"{study}.2")}
    lanes.paid(study, "sent", "committed")
    assert not lanes.left_behind()


@pytest.mark.system
def test_workers_connect_to_each_other_where_the_study_says_so(lanes: InLanes) -> None:
    facts = lanes.done(lanes.proposed("linked", "direct"))
    for name in PARTIES:
        ways = facts[name]["lanes"]["links"]
        assert ways.keys() == {*PARTIES, HUB} - {name}
        assert all(way["direct_sent"] > 0 for way in ways.values())  # perhaps not in every lane
