"""Workers that connect to each other: the same sums, whatever becomes of the connections."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from colonnade.protocols.lanes.arbiter import Lane
from colonnade.study.lanes.links import WorkerLinks, together
from colonnade.wire.direct import Direct, Way
from tests.ports import free_port

from .conftest import Laned, Watched

Make = Callable[..., Laned]
PORTS = "127.0.0.1:20000-29999"
"""Below those that the system gives to whoever asks for any."""


def direct(study: Laned, **networks: str) -> None:
    """Let the study's participants connect, and these parties listen."""
    study.replace("[coordinator]\n", '[coordinator]\nlinks = "direct"\n')
    for name, network in networks.items():
        study.edit(f"{name}/party.toml", r"\Z", f"\n[network]\n{network}\n")


def everywhere(study: Laned) -> dict[str, str]:
    return dict.fromkeys(study.parties, f'listen = "{PORTS}"')


def links(study: Laned, out: Any) -> dict[str, dict[str, dict[str, Any]]]:
    return {name: facts["lanes"]["links"] for name, facts in study.facts(out).items()}


@pytest.mark.usefixtures("without_noise")
def test_sums_are_the_same_by_direct_links_also_if_a_worker_is_killed(laned: Make, crews: type[Watched]) -> None:
    study = laned(rows=100)
    expected = study.values(study.in_threads(study.plain))
    assert expected[0] == study.common
    direct(study, **everywhere(study))
    killed = []

    def kill(crew: Watched, what: str, lane: Lane) -> None:
        if (crew.name, what, lane) == ("shop", "meet", Lane(1)):
            killed.append(crew.kill(crew.busy()[lane]))

    crews.hook = kill
    out = study.in_threads()
    assert killed == [True]
    assert study.values(out) == expected
    facts = study.facts(out)
    assert {name: each["lanes"]["attempts"] for name, each in facts.items()} == dict.fromkeys(facts, 5)
    assert facts["shop"]["lanes"]["lost_workers"] == 1
    for name, found in links(study, out).items():
        assert found.keys() == {"coordinator", *study.parties} - {name}
        assert sum(way["direct_sent"] for way in found.values()) > 0
    assert not study.left_behind()


def test_processes_whose_workers_connect(laned: Make) -> None:
    study = laned(rows=100, partitions=2)
    direct(study, **everywhere(study))
    out = study.in_processes()
    count, *_ = study.values(out)
    model = json.loads((out["bank"] / "model.json").read_text())["learned"]
    assert abs(count - study.common) < 8 * model["deviations"][0]
    found = links(study, out)
    for name in study.parties:
        assert {peer: way["lanes"] for peer, way in found[name].items()} == dict.fromkeys(found[name], 2)
        assert sum(way["direct_sent"] for way in found[name].values()) > 0
        lanes = study.facts(out)[name]["lanes"]
        assert lanes["sent"] == sum(way["direct_sent"] + way["hub_sent"] for way in found[name].values())


@pytest.mark.usefixtures("without_noise")
def test_whoever_is_not_reached_is_met_through_the_hub(laned: Make, crews: type[Watched]) -> None:
    study = laned(rows=100, partitions=2)
    # The bank is not where it says, the clinic has one port for its head, and the shop listens nowhere.
    unreached = f'listen = "{PORTS}"\nadvertise = "127.0.0.2"'
    direct(study, bank=unreached, clinic=f'listen = "127.0.0.1:{free_port()}"')
    out = study.in_threads()
    assert study.values(out)[0] == study.common
    found, facts = links(study, out), study.facts(out)
    for name in ("clinic", "shop"):
        assert (found[name]["bank"]["way"], found[name]["bank"]["direct_sent"]) == ("hub", 0)
        assert found[name]["bank"]["why"] == "it was not reached: Connection refused"
        assert found[name]["bank"]["hub_sent"] > 0
    assert found["clinic"]["shop"]["why"] == "neither of the two listens"
    assert facts["shop"]["links"]["clinic"]["way"] == "direct"  # their heads
    events = [json.loads(line) for line in (out["shop"] / "events.jsonl").read_text().splitlines()]
    said = [event["way"] for event in events if event["what"] == "way to a peer" and event["peer"] == "bank"]
    in_lanes = [way for way in said if way.startswith("in lanes, through the hub, because 127.0.0.2:")]
    assert len(in_lanes) == 1


@pytest.mark.usefixtures("without_noise")
def test_a_coordinator_whose_workers_do_not_dial(laned: Make, crews: type[Watched]) -> None:
    study = laned(rows=60, parties=2, partitions=2)  # it has a seat
    direct(study, **everywhere(study))
    out = study.in_threads(dial=False)
    assert study.values(out)[0] == study.common
    found = links(study, out)
    assert found["coordinator"]["bank"]["way"] == found["bank"]["coordinator"]["way"] == "hub"
    assert found["coordinator"]["bank"]["why"] == "this participant does not dial, and the other has not dialled"


def test_where_a_worker_listens() -> None:
    several = Direct("10.0.0.5:9400-9409", "bank.example.org", dials=False)
    assert several.of_worker() == several
    assert several.of_worker("10.0.0.7") == Direct("10.0.0.7:9400-9409", None, dials=False)
    assert several.of_worker("2001:db8::7").listen == "[2001:db8::7]:9400-9409"
    assert Direct("10.0.0.5:9400", "bank.example.org:5").of_worker("10.0.0.7") == Direct()  # its head has the port
    assert Direct().of_worker("10.0.0.7") == Direct()


class _Place:
    """As much of an endpoint as is asked."""

    def __init__(self, **ways: Way) -> None:
        self.ways = ways
        self.counters = self
        self.peers: dict[str, Any] = dict.fromkeys(ways, self)
        self.sealed_sent = self.sealed_received = 100


def test_a_worker_waits_once_for_peers_that_do_not_answer() -> None:
    worker = WorkerLinks(Direct(), None)
    told: Callable[[str, str], None] = worker.settings["told"]
    told("shop", "through the hub, because 10.0.0.9:9400 was not reached: timed out")
    told("bank", "directly")
    lost, reached = Way(dialled=True, why="it was not reached: timed out"), Way(dialled=True, links=1, sent=70)
    found, said = worker.ended(_Place(shop=lost, bank=reached))  # type: ignore[arg-type]
    assert (found["shop"]["way"], found["bank"]["way"], found["bank"]["hub_sent"]) == ("hub", "direct", 30)
    assert said == {"shop": "through the hub, because 10.0.0.9:9400 was not reached: timed out"}
    assert worker.settings["direct"] == Direct(patient=False)
    # whoever listens nowhere is not waited for anyhow
    assert worker.ended(_Place(shop=reached, bank=Way()))[1] == {}  # type: ignore[arg-type]
    assert worker.settings["direct"] == Direct(patient=True)
    assert WorkerLinks(None, "10.0.0.7").settings == {}


def test_ways_of_several_lanes_together() -> None:
    lane = {"direct_sent": 5, "direct_received": 4, "hub_sent": 3, "hub_received": 2, "connections": 1}
    found: dict[str, dict[str, Any]] = {}
    together(found, {"shop": {"way": "direct", **lane}})
    together(found, {"shop": {"way": "direct", **lane}})
    assert found == {"shop": {"lanes": 2, "way": "direct", **{key: 2 * count for key, count in lane.items()}}}
    together(found, {"shop": {"way": "hub", **dict.fromkeys(lane, 0), "why": "neither of the two listens"}})
    together(found, {"shop": {"way": "direct", **lane}})
    assert (found["shop"]["way"], found["shop"]["why"]) == ("both", "neither of the two listens")
    assert (found["shop"]["lanes"], found["shop"]["connections"]) == (4, 3)
