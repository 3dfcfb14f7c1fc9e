"""Studies in lanes in a federation: real agents, a standing hub, and workers of everybody who meet in lanes there."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from colonnade.cli import initialise
from colonnade.privacy import Ledger
from colonnade.standing.federation import Members
from colonnade.standing.line import Line
from colonnade.standing.proposing import deadline_of, proposal_of
from colonnade.study.forks import Forks
from colonnade.wire import Certificate, Identity
from tests.study.lanes.conftest import Laned, events_of
from tests.support.organisations import PARTIES, Organisations
from tests.support.ports import free_port
from tests.support.standing import descendants

TRIES = 5
HUB = """
[hub]
key = "coordinator/coordinator.key"
folder = "hub"
overdue = 20
studies_per_party = 2
lanes = 2

[hub.compute]
workers = 8
"""
AGENT = """
[agent]
federation = "../FEDERATION.toml"
studies_at_once = 2
[network]
listen = "127.0.0.1:20000-29999"
"""


class InLanes(Organisations):
    """A federation of those who have a study in lanes, which was run at a hub of its own first."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, {}
        self.laned = Laned(folder, Forks(), rows=120)
        self.alone = self.released(self.laned.in_processes()["bank"])
        for name in PARTIES:
            with open(self.party_file(name), "a") as file:
                file.write(AGENT)
        initialise.identity("ana", folder / "ana")
        roles = {"coordinator": "hub", **dict.fromkeys(PARTIES, "party"), "ana": "analyst"}
        certificates = {name: Certificate.load(folder / name / f"{name}.crt") for name in roles}
        self.federation, address = folder / "FEDERATION.toml", f"127.0.0.1:{free_port()}"
        Members("in lanes", address, certificates, roles, None, self.federation).save(self.federation)  # type: ignore[arg-type]
        with open(self.federation, "a") as file:
            file.write(HUB)

    def proposed(self, name: str, links: str = "hub") -> str:
        """The study under another name, proposed to all; nobody has to be asked."""
        path, members, ana = self.folder / f"{name}.toml", self.members, self.folder / "ana" / "ana.key"
        text = self.laned.file.read_text().replace('name = "trial"', f'name = "{name}"')
        path.write_text(text.replace("[coordinator]\n", f'[coordinator]\nlinks = "{links}"\n'))
        self.until(self._listens, "the hub listens")
        proposal, _ = proposal_of(path, members, "ana", "to know", deadline_of("1h"))
        with Line(members, Identity.load(ana, ana.with_suffix(".crt"))) as line:
            return str(line.propose(proposal)["id"])

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
            self.until(lambda: self.in_a_lane(name, found[0]) or self.state(name, found[0]) == "done", "lanes")  # noqa: B023
            if len(workers) == 2 and self.state(name, found[0]) == "running":
                return found, head, workers
            for study in found:
                self.done(study)
        pytest.fail(f"{TRIES} studies ended too early")

    def head(self, name: str, study: str) -> int:
        """The process of a party's first attempt, once all its workers are there."""
        folder = self.folder / name / "agent" / "studies" / study / "attempts" / "1"
        self.until(
            lambda: any(line["what"] == "all workers ready" for line in events_of(folder)), "workers", pause=0.02
        )
        return int((folder / "alive").read_text())

    def in_a_lane(self, name: str, study: str) -> bool:
        """Whether a party's worker has done a lane; then each of its workers has had one."""
        progress = self.office(name).progress(study)
        return progress is not None and progress.phase == "lanes" and progress.done > 0

    def done(self, study: str, attempt: int = 1) -> dict[str, dict[str, Any]]:
        """What everybody recorded of a study that has ended well, with the result that it must have."""
        places = {"coordinator": self.folder / "hub" / "attempts" / study / str(attempt)}
        for name in PARTIES:
            self.until_state(name, study, "done")
            places[name] = self.office(name).attempts(study)[attempt - 1].folder
        self.until(lambda: all((place / "run.json").exists() for place in places.values()), "all have a record")
        assert self.laned.values(places)
        for ours, alone, most in zip(self.released(places["bank"]), self.alone, self.noise, strict=True):
            assert abs(ours - alone) < most
        return self.laned.facts(places)

    def released(self, place: Path) -> list[float]:
        """What a run has released, and the most by which two runs differ for their noise."""
        learned = json.loads((place / "model.json").read_text())["learned"]
        self.noise = [12 * deviation for deviation in learned["deviations"]]
        return list(learned["values"])

    def entries(self, name: str, *studies: str) -> list[str]:
        """How the ledger's entries of these studies stand."""
        digests = {self.office(name).entry(study).digest for study in studies}
        return [
            entry.state for entry in Ledger(self.folder / name / "ledger.sqlite").entries() if entry.digest in digests
        ]


def workers_of(head: int) -> list[int]:
    """The processes of a head's workers, below the one that forks them."""
    below = descendants(head)
    return [pid for pid in below if parent_of(pid) in below]


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InLanes]:
    found = InLanes(tmp_path_factory.mktemp("lanes") / "federation")
    found.start("hub", *PARTIES)
    yield found
    found.clean_up()


def test_two_studies_at_once_and_a_worker_that_is_killed(three: InLanes) -> None:
    (first, second), _, (victim, _) = three.held_up("shop", "first", "second")
    three.until(lambda: three.in_a_lane("shop", second) or three.state("shop", second) == "done", "the other runs")
    assert three.state("shop", first) == "running"
    with suppress(ProcessLookupError):  # on a slow machine its head may have lost patience with it
        os.kill(victim, signal.SIGKILL)
    facts = three.done(first)
    for name, found in facts.items():
        lanes = found["lanes"]
        assert (lanes["partitions"], lanes["done"], lanes["workers"]) == (4, 4, 2), name  # the hub has two lanes for it
        assert lanes["attempts"] > 4, name
        assert (found["room"], found["attempt"]) == (f"{first}.1", 1)
        assert bool(lanes["replaced_workers"]) == (name == "shop")
        assert found["alignment"]["matched"] == three.laned.common
    assert {found["lanes"]["done"] for found in three.done(second).values()} == {4}
    for name in PARTIES:
        three.until(lambda name=name: three.entries(name, first, second) == ["committed"] * 2, "one entry an attempt")
    three.until(lambda: not three.laned.left_behind(), "no table is left")


def test_a_head_that_is_killed_takes_its_workers_along_and_the_next_attempt_is_exact(three: InLanes) -> None:
    (study,), head, workers = three.held_up("bank", "third")
    (left,) = (three.folder / "bank").glob(".colonnade-spool.*")
    os.kill(head, signal.SIGKILL)
    os.kill(workers[0], signal.SIGCONT)
    three.until(lambda: not any(map(runs, workers)), "its workers end with it")
    three.until(lambda: not left.exists(), "the agent removes the table that it left")
    facts = three.done(study, attempt=2)
    assert {found["lanes"]["attempts"] for found in facts.values()} == {4}
    assert {found["room"] for found in facts.values()} == {f"{study}.2"}
    for name in PARTIES:
        three.until(lambda name=name: three.entries(name, study) == ["sent", "committed"], "one entry an attempt")
    assert not three.laned.left_behind()


def test_workers_connect_to_each_other_where_the_study_says_so(three: InLanes) -> None:
    facts = three.done(three.proposed("linked", "direct"))
    for name in PARTIES:
        ways = facts[name]["lanes"]["links"]
        assert ways.keys() == {*PARTIES, "coordinator"} - {name}
        assert all(way["direct_sent"] > 0 for way in ways.values())  # perhaps not in every lane


@pytest.mark.slow
def test_a_hub_that_is_killed_takes_its_coordinator_along_and_the_next_attempt_is_exact(three: InLanes) -> None:
    (study,), _, workers = three.held_up("shop", "hub dies")
    heads = {name: three.head(name, study) for name in PARTIES}
    parties = [*heads.values(), *(worker for head in heads.values() for worker in workers_of(head))]
    coordinator = descendants(three.processes["hub"].pid)
    assert len(coordinator) > 2  # its head, and two workers
    three.kill("hub")
    with suppress(ProcessLookupError):  # on a slow machine its head may have lost patience with it
        os.kill(workers[0], signal.SIGCONT)
    three.until(lambda: not any(map(runs, coordinator)), "nothing is left of the hub")
    three.start("hub")
    three.until(lambda: not any(map(runs, parties)), "the attempt ends at the parties too")
    facts = three.done(study, attempt=2)
    assert {found["room"] for found in facts.values()} == {f"{study}.2"}
    for name in PARTIES:
        three.until(lambda name=name: three.entries(name, study) == ["sent", "committed"], "one entry an attempt")
    three.until(lambda: not three.laned.left_behind(), "no table is left")


@pytest.mark.slow
def test_members_that_stop_leave_no_worker(three: InLanes) -> None:
    (study,), *_ = three.held_up("clinic", "fourth")
    heads = {name: three.head(name, study) for name in PARTIES}
    workers = [worker for head in heads.values() for worker in workers_of(head)]
    assert len(workers) == 6
    for name in (*PARTIES, "hub"):
        assert three.end(name) == 0
    three.until(lambda: not any(map(runs, [*heads.values(), *workers])), "all processes end")
    assert not three.laned.left_behind()
