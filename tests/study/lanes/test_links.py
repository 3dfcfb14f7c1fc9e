"""Workers that connect to each other: the same sums, whatever becomes of the connections."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colonnade.protocols.lanes.arbiter import Lane
from colonnade.report.cost import time_and_bytes
from colonnade.study.doctor import Check, examine
from colonnade.study.lanes.links import WorkerLinks, together
from colonnade.study.local import folder_of
from colonnade.wire.direct import Direct, Way
from tests.support.ports import free_port
from tests.support.studies import check_words

from .conftest import PORTS, Laned, Watched, events_of

Make = Callable[..., Laned]


def everywhere(study: Laned) -> dict[str, str]:
    return dict.fromkeys(study.parties, f'listen = "{PORTS}"')


def links(study: Laned, out: Any) -> dict[str, dict[str, dict[str, Any]]]:
    return {name: facts["lanes"]["links"] for name, facts in study.facts(out).items()}


@pytest.mark.system
@pytest.mark.usefixtures("without_noise")
def test_sums_are_the_same_by_direct_links_also_if_a_worker_is_killed(laned: Make, crews: type[Watched]) -> None:
    study = laned(rows=100)
    expected = study.values(study.in_threads(study.plain))
    assert expected[0] == study.common
    study.connect(**everywhere(study))
    killed = crews.kill_at("shop", "meet", Lane(1))
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


@pytest.mark.system
@pytest.mark.usefixtures("without_noise")
def test_whoever_is_not_reached_is_met_through_the_hub(laned: Make, crews: type[Watched]) -> None:
    study = laned(rows=100, partitions=2)
    # The bank is not where it says, the clinic has one port for its head, and the shop listens nowhere.
    unreached = f'listen = "{PORTS}"\nadvertise = "127.0.0.2"'
    study.connect(bank=unreached, clinic=f'listen = "127.0.0.1:{free_port()}"')
    out = study.in_threads()
    assert study.values(out)[0] == study.common
    found, facts = links(study, out), study.facts(out)
    for name in ("clinic", "shop"):
        assert (found[name]["bank"]["way"], found[name]["bank"]["direct_sent"]) == ("hub", 0)
        assert found[name]["bank"]["why"] == "it was not reached: Connection refused"
        assert found[name]["bank"]["hub_sent"] > 0
    assert found["clinic"]["shop"]["why"] == "neither of the two listens"
    assert facts["shop"]["links"]["clinic"]["way"] == "direct"  # their heads
    said = [event["way"] for event in events_of(out["shop"]) if event["what"] == "way to a peer"]
    assert sum(way.startswith("in lanes, through the hub, because 127.0.0.2:") for way in said) == 1


@pytest.mark.system
@pytest.mark.usefixtures("without_noise")
def test_a_coordinator_whose_workers_do_not_dial(laned: Make, crews: type[Watched]) -> None:
    study = laned(rows=60, parties=2, partitions=2)
    assert "coordinator" in study.study().task.trust.committee  # it has a seat
    expected = study.values(study.in_threads(study.plain))
    study.connect(**everywhere(study))
    out = study.in_threads(dial=False)
    assert study.values(out) == expected
    assert expected[0] == study.common
    found = links(study, out)
    assert found["coordinator"]["bank"]["way"] == found["bank"]["coordinator"]["way"] == "hub"
    assert found["coordinator"]["bank"]["why"] == "this participant does not dial, and the other has not dialled"


def test_doctor_counts_ports_and_says_how_workers_were_reached(laned: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    study = laned(rows=20, parties=2, workers=2)
    monkeypatch.chdir(study.folder)

    def checks() -> dict[str, Check]:
        return {check.what: check for check in examine(study.file, study.folder / "bank" / "party.toml")}

    assert "ports of workers" not in checks()
    study.connect(bank='listen = "127.0.0.1:20000-20001"')
    two = "has 2 ports, and the head and each of 2 workers take one: a worker that finds none only dials"
    for ports, level, said in (
        ("20000-20001", "unsure", two),
        ("20000-20002", "good", ""),
        ("20000", "unsure", "has one port"),
    ):
        study.edit("bank/party.toml", r"127.0.0.1:20000[-0-9]*", f"127.0.0.1:{ports}")
        found = checks()["ports of workers"]
        assert found.level == level
        assert said in found.detail
    run = folder_of(Path("runs") / study.study().name, "bank")
    run.mkdir(parents=True)
    lanes = {"links": {"shop": {"way": "both", "why": "it was not reached: timed out"}}}
    (run / "run.json").write_text(json.dumps({"started": "then", "links": {"shop": {"way": "direct"}}, "lanes": lanes}))
    said = "shop directly; workers of shop in part directly, in part through the hub (it was not reached: timed out)"
    assert checks()["links"] == Check("links", "unsure", f"in the run of then: {said}")


def test_a_report_has_the_ways_of_workers() -> None:
    ways = {"shop": {"way": "direct", "direct_sent": 5_000_000, "hub_sent": 1_000}}
    run = {"parties": {"bank": {"lanes": {"workers": 2, "links": ways}}}}
    check_words(str(time_and_bytes(run)), "<h3>Links</h3>", "workers of bank", "5.0 MB")


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


@pytest.mark.slow
@pytest.mark.usefixtures("without_noise")
def test_workers_on_ray_connect_too(laned: Make, crews: type[Watched]) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install colonnade[ray]")
    study = laned(rows=100, partitions=2, join=90)
    study.connect(**everywhere(study))
    study.edit("shop/party.toml", r"^\[compute\]", '[compute]\nengine = "ray"\nspool = "spool"')
    out = study.in_threads()
    assert study.values(out)[0] == study.common
    assert sum(way["direct_sent"] for way in links(study, out)["shop"].values()) > 0
