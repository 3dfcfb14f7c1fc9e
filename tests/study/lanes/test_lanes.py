"""A study in lanes gives what it gives without them, also when workers or a hub are killed in the middle."""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from colonnade.cli import text_output
from colonnade.cli.participants import worker_options
from colonnade.errors import CapacityError, EngineError, PeerStopped, ShareError, StudyError
from colonnade.protocols.lanes.arbiter import RUNS_THAT_MAY_CHEAT, LaneAttempt
from colonnade.protocols.lanes.lane import CrewClosed, LaneWorkerReady, WorkerFailed, WorkerFree, WorkerLost
from colonnade.report.cost import bytes_sent, time_and_bytes
from colonnade.report.privacy import leakage
from colonnade.study import Study, preflight
from colonnade.study.connect import MeetingPoint, load_identity
from colonnade.study.doctor import DoctorCheck, examine
from colonnade.study.engine.base import ProcessEngine, WorkerLoss, WorkerMessage
from colonnade.study.fork_server import ProcessRequest
from colonnade.study.lanes import crew, worker
from colonnade.study.lanes.crew import LaneWorkerPool, ignore_note
from colonnade.study.lanes.worker import TableChore, WorkerLinks, WorkerReady, merge_links
from colonnade.study.local import folder_of, local_commands
from colonnade.tables.partitioning import partitions, staging
from colonnade.tables.sources import file_sets
from colonnade.wire import Hub, HubLimits, Identity
from colonnade.wire.link_offers import DirectLinkSettings, PeerRoute
from colonnade.wire.study_sessions import LaneLimits
from colonnade.wire.workers import check_introduction
from tests.support.errors import raises
from tests.support.ports import free_port
from tests.support.studies import check_words, edit
from tests.support.waiting import below, until

from .conftest import PORTS, Laned, Watched, error_of, events_of

Make = Callable[..., Laned]
PCA = 'kind = "pca"\nn_components = 2\nrows_at_most = 100_000\n'
system = pytest.mark.system


def everywhere(study):
    return dict.fromkeys(study.parties, f'listen = "{PORTS}"')


@system
def test_a_study_in_processes(laned):
    study = laned(rows=100)
    study.connect(**everywhere(study))
    out = study.in_processes()
    count, *_ = study.values(out)
    model = json.loads((out["bank"] / "model.json").read_text())["learned"]
    assert abs(count - study.common) < 8 * model["deviations"][0]
    for name, facts in study.facts(out).items():
        lanes = facts["lanes"]
        assert (lanes["partitions"], lanes["done"], lanes["attempts"], lanes["workers"]) == (4, 4, 4, 2)
        assert (lanes["lost_workers"], lanes["replaced_workers"]) == (0, 0)
        ways = lanes["links"].values()
        assert {way["lanes"] for way in ways} == {4}
        assert sum(way["direct_sent"] for way in ways) > 0
        assert lanes["sent"] == sum(way["direct_sent"] + way["hub_sent"] for way in ways)
        assert facts["alignment"]["matched"] == study.common
        assert facts["alignment"]["partitions"] == 4
        learned = {leak.who: leak.learns for leak in leakage(facts["alignment"], study.study().trust)}
        assert learned == {leak.who: leak.learns for leak in study.study().aligning.leakage}
        assert "in each partition" in learned["coordinator"]
        assert not facts["alignment"]["reused"]
        if name != "coordinator":
            assert facts["alignment"]["rows"] == len(study.people(name))
            assert [entry["what"] for entry in events_of(out[name])].count("first share") == 1
            assert study.states(name) == ["committed"]
    assert not study.left_behind()


@pytest.mark.usefixtures("without_noise")
def test_sums_are_exactly_those_without_lanes_and_a_worker_that_is_killed_costs_its_lane(laned, crews):
    study = laned(rows=60)
    expected = study.values(study.in_threads(study.plain))
    assert expected[0] == study.common
    study.connect(**everywhere(study))
    killed = crews.kill_at("shop", "meet", LaneAttempt(1))
    out = study.in_threads()
    assert killed == [True]
    assert study.values(out) == expected
    facts = study.facts(out)
    assert {name: each["lanes"]["attempts"] for name, each in facts.items()} == dict.fromkeys(facts, 5)
    assert {name for name, each in facts.items() if each["lanes"]["lost_workers"]} == {"shop"}
    assert facts["shop"]["lanes"]["replaced_workers"] == 1
    assert all(LaneAttempt(1, 2) in crew.taken for crew in crews.all.values())
    for name, each in facts.items():
        ways = each["lanes"]["links"]
        assert ways.keys() == {"coordinator", *study.parties} - {name}
        assert sum(way["direct_sent"] for way in ways.values()) > 0
    study.check_states("committed", "committed")  # without lanes, and in lanes
    assert not study.left_behind()


@system
@pytest.mark.usefixtures("without_noise")
def test_sums_in_two_rooms_of_a_standing_hub_are_those_of_a_hub_of_its_own(laned, crews):
    study = laned()
    expected = study.values(study.in_threads(study.plain))
    certificates = study.study().certificates()
    identity = load_identity(study._key, "coordinator", certificates)
    limits, lanes = HubLimits(connections=1), LaneLimits(each=2, studies=2)
    with Hub(identity, certificates, rooms={}, limits=limits, lanes=lanes) as hub:
        for attempt in (1, 2):
            hub.open(f"room.{attempt}", study.study().participants, lanes=True)
            killed = crews.kill_at("shop", "meet", LaneAttempt(1))
            if attempt == 2:
                crews.hook = None
            out = study.in_threads(place=MeetingPoint(hub.address, f"room.{attempt}", attempt))
            assert study.values(out) == expected
            facts = study.facts(out)
            assert {(found["room"], found["attempt"]) for found in facts.values()} == {(f"room.{attempt}", attempt)}
            assert {found["lanes"]["attempts"] for found in facts.values()} == {4 + len(killed)}
            assert len(killed) == (attempt == 1)
        assert set(hub.rooms) == {"room.1", "room.2"}
        assert hub.traffic.lanes == 0
    assert not study.left_behind()


@system
def test_a_worker_holds_nothing_of_a_lane_that_is_over(laned, crews, monkeypatch):
    monkeypatch.setattr(crew, "ROLE", "tests.study.lanes.roles:weighing")
    study = laned(workers=1, partitions=4, align='mode = "ot"\n')
    assert study.facts(study.in_threads())["bank"]["lanes"]["done"] == 4


@system
@pytest.mark.usefixtures("without_noise")
@pytest.mark.parametrize("inputs", ["unproven", "proven"])
def test_seats_that_check_each_other_and_owners_that_prove(laned, crews, inputs):
    study = laned(rows=60, partitions=2, top=f'security = "active"\ninputs = "{inputs}"\n', task=PCA)
    crews.kill_at("shop", "meet", LaneAttempt(1))
    out = study.in_threads()
    task = study.study().task
    assert set(task.proven) == (set(study.parties) if inputs == "proven" else set())
    assert task.committee.tries == RUNS_THAT_MAY_CHEAT
    assert study.values(out, "count") == study.common
    for name, facts in study.facts(out).items():
        assert facts["lanes"]["attempts"] == 3
        if name == "coordinator":
            assert "checks" not in facts
        else:
            assert facts["checks"] == {"claims": crews.all[name].claims, "error": 2.0**-40}
            assert facts["checks"]["claims"] > 0
    before = study.in_threads(study.plain)
    spread = study.values(out, "explained_variance")
    assert spread == pytest.approx(study.values(before, "explained_variance"), rel=1e-2)  # rounded at random


@system
@pytest.mark.usefixtures("without_noise")
def test_members_that_nobody_learns(laned, crews):
    study = laned(align="hidden = true\n", rows=100, parties=2, task=PCA)
    before, out = study.in_threads(study.plain), study.in_threads()
    assert study.values(out, "count") == study.values(before, "count") == study.common
    spread = study.values(out, "explained_variance")
    assert spread == pytest.approx(study.values(before, "explained_variance"), rel=1e-2)  # rounded at random
    assert {facts["alignment"]["matched"] for facts in study.facts(out).values()} == {None}


@system
@pytest.mark.usefixtures("without_noise")
def test_a_hub_that_is_killed_takes_only_its_lanes(laned, crews, forks, monkeypatch):
    monkeypatch.setattr(crew, "_REACH_SECONDS", 3.0)
    study = laned(reconnect=2)
    expected = study.values(study.in_threads(study.plain))
    further = f"127.0.0.1:{free_port()}"
    study.replace("[limits]", f'hubs = ["{further}"]\n[limits]')
    log = study.folder / "relay"
    with log.open("wb") as output, open("/dev/null", "rb") as nowhere:
        command = ["relay", str(study.file), "--key", str(study._key), "--json"]
        relay = forks.start(ProcessRequest(command, nowhere.fileno(), output.fileno()))
    try:
        until(lambda: b"relay" in log.read_bytes(), "a relay")
        first = []

        def kill(crew, what, lane):
            if (crew.name, what, lane) == ("bank", "meet", LaneAttempt(1)):  # which meets at the second hub
                first.append(lane)
                relay.kill()

        crews.hook = kill
        out = study.in_threads()
    finally:
        relay.kill()
        relay.wait(60)
    assert first == [LaneAttempt(1)]
    assert study.values(out) == expected
    lanes = study.facts(out)["bank"]["lanes"]
    assert lanes["attempts"] > 4
    assert lanes["lost_workers"] == 0


@pytest.mark.parametrize(
    ("made", "change", "said"),
    [
        ({"parties": 2}, ("partitions = 4", "partitions = 6"), ("VA198", "lanes.partitions", "65536")),
        ({"parties": 2}, ("partitions = 4", "partitions = 1"), ("VA198", "lanes.partitions", "65536")),
        ({"parties": 2}, ('on = "person_id"\n', 'on = "person_id"\nmode = "fuzzy"\n'), "VA228"),
        ({"parties": 2}, ('[align]\non = "person_id"\n', ""), "VA227"),
        ({"task": PCA + 'method = "power"\n'}, ("", ""), "ST561"),
        (
            {"task": PCA, "top": 'security = "active"\ninputs = "proven"\n'},
            ("rows_at_most = 100_000", f"rows_at_most = {2**38}\ngamma = 4"),
            ("CA880", "rows_at_most"),
        ),
        ({"task": PCA, "align": "hidden = true\n"}, ("", ""), ("ST429", "STUDY.toml")),
    ],
    ids=["six", "one", "fuzzy", "unaligned", "power", "proven", "hidden"],
)
def test_what_cannot_have_lanes_is_said_before_anybody_waits(laned, made, change, said):
    study = laned(rows=20, **made)
    edit(study.file, change)
    with raises((StudyError, CapacityError), said):
        preflight(study.study())


def test_pre_flight_and_the_digest_say_that_there_are_lanes(laned):
    study = laned(rows=20, parties=2)
    four, none = study.study(), Study.load(study.plain)
    found, plain = preflight(four, rows=1000), preflight(none, rows=1000)
    assert found.to_dict()["partitions"] == found.alignment.to_dict()["partitions"] == 4
    said, unsaid = " ".join(text_output.preflight(found).split()), " ".join(text_output.preflight(plain).split())
    after = "if nobody is common the study ends after the last lane, with nothing opened, and stays spent"
    check_words(said, "lanes: people are added up in 4 partitions", "the coordinator how many in each partition", after)
    free = "if nobody is common the study ends, and nothing is spent"
    again = "next to nothing where an earlier alignment is used again"
    check_words(unsaid, free, again)
    assert not any(words in said for words in (free, again))
    assert not any(words in unsaid for words in ("lanes:", "partition"))
    assert "partitions" not in plain.to_dict().keys() | plain.alignment.to_dict().keys()
    with raises(StudyError, "ST037"):
        worker_options(none, 2)
    for engine in ("cluster", "ray://[::1"):
        with raises(StudyError, "VA182", "processes", "ray"):
            worker_options(four, 2, engine)
    edit(study.file, ("partitions = 4", "partitions = 8"))
    assert len({none.digest, four.digest, study.study().digest}) == 3


KILLS = 30


@pytest.mark.slow
@pytest.mark.usefixtures("without_noise")
def test_thirty_workers_killed_at_random_moments_cost_a_lane_each_at_most(laned, crews):
    """What each costs in seconds is in benchmarks/results/kills-lanes.md."""
    study = laned(rows=400, partitions=64)
    expected = study.values(study.in_threads(study.plain))
    over, killed, chosen = threading.Event(), list[tuple[str, int]](), random.Random(30)  # noqa: S311 - who is killed

    def kill():
        while len(killed) < KILLS and not over.wait(chosen.uniform(0.1, 0.6)):
            busy = [(name, worker) for name, crew in sorted(crews.all.items()) for worker in crew.busy().values()]
            left = sorted(set(busy) - set(killed))  # of those that were killed the head may not know yet
            if left:
                name, worker = chosen.choice(left)
                if crews.all[name].kill(worker):
                    killed.append((name, worker))

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    out = study.in_threads()
    over.set()
    killer.join()
    assert len(killed) == KILLS
    assert study.values(out) == expected
    for name, facts in study.facts(out).items():
        lanes = facts["lanes"]
        assert lanes["lost_workers"] == [who for who, _ in killed].count(name)
        assert 64 < lanes["attempts"] <= 64 + KILLS
        assert lanes["done"] == 64
    study.check_states("committed", "committed")


@system
@pytest.mark.parametrize(("name", "seen_by"), [("shop", "shop"), ("coordinator", "bank")])
def test_a_head_that_is_killed_ends_the_study_and_what_it_leaves_is_removed_by_the_next(laned, forks, name, seen_by):
    """It is killed once another, or itself, has noted its first share."""
    study = laned(rows=100, partitions=64, reconnect=2)
    places = study.places()
    with open("/dev/null", "r+b") as nowhere:
        command = local_commands(study.study(), places["coordinator"])[name]
        head = forks.start(ProcessRequest(command, nowhere.fileno(), nowhere.fileno()))
    others = study.begun(without=name)
    until(lambda: "first share" in [event["what"] for event in events_of(places[seen_by])], "the first share")
    assert head.poll() is None
    head.kill()
    for child in others.values():
        child.communicate(timeout=300)
    assert {child.returncode for child in others.values()} <= ({22} if name == "shop" else {21, 22})
    assert study.states("bank") == ["sent"]
    assert study.states("shop")[0] in (("sent",) if name == "shop" else ("sent", "released"))
    if name == "shop":
        assert all("shop" in sentence for sentence in error_of(others).values())
        assert {path.parent.name for path in study.left_behind() if path.is_dir()} == {"shop"}
        study.replace("partitions = 64", "partitions = 2")
        study.in_processes()
    assert not study.left_behind()


def test_a_failure_that_is_no_loss_ends_the_study_for_all(laned, crews):
    study = laned(rows=100)

    def spoil(crew, what, lane):
        if (crew.name, what, lane) == ("bank", "begin", LaneAttempt(2)):
            for file in below(study.folder / "bank", "run-*.arrow"):
                file.write_bytes(b"")

    crews.hook = spoil
    errors = error_of(study.ended())
    assert set(errors) == {"coordinator", *study.parties}
    assert "the partitions of the table cannot be read back" in errors["bank"]
    assert all("cannot go on; its own log says why" in errors[name] for name in errors if name != "bank")
    assert study.states("bank") == ["sent"]
    assert not study.left_behind()


def test_a_report_says_what_workers_did():
    lanes = {"workers": 2, "lost_workers": 1, "partitions": 64, "attempts": 65, "processor_seconds": 3.0, "sent": 5000}
    lanes["links"] = {"shop": {"way": "direct", "direct_sent": 5_000_000, "hub_sent": 1_000}}
    run = {"parties": {"bank": {"traffic": {"sealed_sent": 1000}, "lanes": lanes}}}
    assert bytes_sent(run) == 6000
    check_words(str(time_and_bytes(run)), "<h3>Lanes</h3>", ">65<", "<h3>Links</h3>", "workers of bank", "5.0 MB")
    del run["parties"]["bank"]["lanes"]
    assert "Lanes" not in str(time_and_bytes(run))
    assert bytes_sent(run) == 1000


# --- workers that connect to each other: the same sums, whatever becomes of the connections


@pytest.mark.slow
@pytest.mark.usefixtures("without_noise")
def test_workers_of_one_party_on_ray(laned, crews):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("could not import 'ray'")
    study = laned(rows=100, join=300)  # Ray begins before shop joins, and may take its time
    expected = study.values(study.in_threads(study.plain))
    study.connect(**everywhere(study))
    study.edit("shop/party.toml", r"^\[compute\]", '[compute]\nengine = "ray"\nspool = "spool"')
    out = study.in_threads()
    assert study.values(out) == expected
    assert [entry["engine"] for entry in events_of(out["shop"]) if entry["what"] == "workers started"] == ["ray"]
    lanes = study.facts(out)["shop"]["lanes"]
    assert lanes["done"] == 4
    assert sum(way["direct_sent"] for way in lanes["links"].values()) > 0
    assert not study.left_behind()


@pytest.mark.system
@pytest.mark.usefixtures("without_noise")
def test_whoever_is_not_reached_is_met_through_the_hub(laned, crews):
    study = laned(rows=100, partitions=2)
    # The bank is not where it says, the clinic has one port for its head, and the shop listens nowhere.
    unreached = f'listen = "{PORTS}"\nadvertise = "127.0.0.2"'
    study.connect(bank=unreached, clinic=f'listen = "127.0.0.1:{free_port()}"')
    out = study.in_threads()
    assert study.values(out)[0] == study.common
    facts = study.facts(out)
    found = {name: each["lanes"]["links"] for name, each in facts.items()}
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
def test_a_coordinator_whose_workers_do_not_dial(laned, crews):
    study = laned(rows=60, parties=2, partitions=2)
    assert "coordinator" in study.study().task.trust.committee  # it has a seat
    expected = study.values(study.in_threads(study.plain))
    study.connect(**everywhere(study))
    out = study.in_threads(dial=False)
    assert study.values(out) == expected
    assert expected[0] == study.common
    found = {name: facts["lanes"]["links"] for name, facts in study.facts(out).items()}
    assert found["coordinator"]["bank"]["way"] == found["bank"]["coordinator"]["way"] == "hub"
    assert found["coordinator"]["bank"]["why"] == "this participant does not dial, and the other has not dialled"


def test_doctor_counts_ports_and_says_how_workers_were_reached(laned, monkeypatch):
    study = laned(rows=20, parties=2, workers=2)
    monkeypatch.chdir(study.folder)

    def checks():
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
        assert (found.level, said in found.detail) == (level, True)
    run = folder_of(Path("runs") / study.study().name, "bank")
    run.mkdir(parents=True)
    lanes = {"links": {"shop": {"way": "both", "why": "it was not reached: timed out"}}}
    (run / "run.json").write_text(json.dumps({"started": "then", "links": {"shop": {"way": "direct"}}, "lanes": lanes}))
    said = "shop directly; workers of shop in part directly, in part through the hub (it was not reached: timed out)"
    assert checks()["links"] == DoctorCheck("links", "unsure", f"in the run of then: {said}")


def test_where_a_worker_listens():
    several = DirectLinkSettings("10.0.0.5:9400-9409", "bank.example.org", dials=False)
    assert several.for_worker() == several
    assert several.for_worker("10.0.0.7") == DirectLinkSettings("10.0.0.7:9400-9409", None, dials=False)
    assert several.for_worker("2001:db8::7").listen == "[2001:db8::7]:9400-9409"
    assert (
        DirectLinkSettings("10.0.0.5:9400", "bank.example.org:5").for_worker("10.0.0.7") == DirectLinkSettings()
    )  # its head has the port
    assert DirectLinkSettings().for_worker("10.0.0.7") == DirectLinkSettings()


class _Place:
    def __init__(self, **ways):
        self.routes = ways
        self.counters = self
        self.peers: dict[str, Any] = dict.fromkeys(ways, self)
        self.sealed_sent = self.sealed_received = 100


def test_a_worker_waits_once_for_peers_that_do_not_answer():
    worker = WorkerLinks(DirectLinkSettings(), None)
    told: Callable[[str, str], None] = worker.settings["told"]
    told("shop", "through the hub, because 10.0.0.9:9400 was not reached: timed out")
    told("bank", "directly")
    lost, reached = (
        PeerRoute(is_dialler=True, reason="it was not reached: timed out"),
        PeerRoute(is_dialler=True, links=1, sent=70),
    )
    found, said = worker.end_lane(_Place(shop=lost, bank=reached))
    assert (found["shop"]["way"], found["bank"]["way"], found["bank"]["hub_sent"]) == ("hub", "direct", 30)
    assert said == {"shop": "through the hub, because 10.0.0.9:9400 was not reached: timed out"}
    assert worker.settings["direct"] == DirectLinkSettings(waits_for_links=False)
    # whoever listens nowhere is not waited for anyhow
    assert worker.end_lane(_Place(shop=reached, bank=PeerRoute()))[1] == {}
    assert worker.settings["direct"] == DirectLinkSettings(waits_for_links=True)
    assert WorkerLinks(None, "10.0.0.7").settings == {}


def test_ways_of_several_lanes_together():
    lane = {"direct_sent": 5, "direct_received": 4, "hub_sent": 3, "hub_received": 2, "connections": 1}
    found: dict[str, dict[str, Any]] = {}
    merge_links(found, {"shop": {"way": "direct", **lane}})
    merge_links(found, {"shop": {"way": "direct", **lane}})
    assert found == {"shop": {"lanes": 2, "way": "direct", **{key: 2 * count for key, count in lane.items()}}}
    merge_links(found, {"shop": {"way": "hub", **dict.fromkeys(lane, 0), "why": "neither of the two listens"}})
    merge_links(found, {"shop": {"way": "direct", **lane}})
    assert (found["shop"]["way"], found["shop"]["why"]) == ("both", "neither of the two listens")
    assert (found["shop"]["lanes"], found["shop"]["connections"]) == (4, 3)


# --- workers read, check and split their party's table before the first lane, and may be killed there too


@pytest.fixture
def asked(crews, monkeypatch):
    """Every chore that a worker was given, and by whose head; few rows are many pieces."""
    for module, name, size in (
        (file_sets, "_PIECE_BYTES", 1),
        (staging, "_ROWS", 50),
        (partitions, "_RUN_BYTES", 5000),
    ):
        monkeypatch.setattr(module, name, size)
    given: list[tuple[str, Any]] = []
    real = Watched.share

    def share(self, chores, pulse):
        send = self._engine.send

        def noted(worker, word):
            send(worker, word)
            assert isinstance(word, TableChore)
            given.append((self.name, word.chore))
            if (hook := getattr(crews, "helping", None)) is not None:
                hook(self, worker, word.chore)

        self._engine.send = noted
        yield from real(self, chores, pulse)
        self._engine.send = send

    monkeypatch.setattr(Watched, "share", share)
    return given


def in_folders(study, files=4):
    for name in study.parties:
        table = pa.csv.read_csv(study.folder / name / f"{name}.csv")
        folder = study.folder / name / "table"
        folder.mkdir()
        size = -(-table.num_rows // files)
        for place in range(files):
            pq.write_table(table.slice(place * size, size), folder / f"{place}.parquet")
        study.edit(f"{name}/party.toml", r'^data = ".*"', 'data = "table"')


def kinds(given, name):
    return [type(chore).__name__ for whose, chore in given if whose == name]


@pytest.mark.system
@pytest.mark.usefixtures("without_noise")
def test_folders_of_parquet_and_a_worker_killed_at_each_kind_of_work(laned, crews, asked):
    study = laned(rows=200)
    expected = study.values(study.in_threads(study.plain))
    in_folders(study)
    killed = set[str]()

    def kill(crew, worker, chore):
        kind = type(chore).__name__
        if crew.name == "shop" and kind not in killed and chore.number == 1:
            killed.add(kind)
            assert crew.kill(worker)

    crews.helping = kill
    out = study.in_threads()
    assert study.values(out) == expected
    assert expected[0] == study.common
    assert killed == {"StageShard", "FindRepeatedKeys", "WriteRun"}
    for name in study.parties:
        found = kinds(asked, name)
        assert found.count("StageShard") >= 4  # more, if a worker was killed before it was done
        assert found.count("FindRepeatedKeys") > 1
        assert found.count("WriteRun") > 1
    lanes = study.facts(out)["shop"]["lanes"]
    assert (lanes["lost_workers"], lanes["replaced_workers"], lanes["done"]) == (3, 3, 4)
    assert not study.left_behind()


def repeat_a_key(folder):
    first, last = (pq.read_table(folder / f"{place}.parquet") for place in (0, 3))
    pq.write_table(pa.concat_tables([last, first.slice(2, 1)]), folder / "3.parquet")
    total = sum(pq.read_metadata(path).num_rows for path in folder.iterdir())
    return f"rows 3, {total}: the key in 'person_id' occurs more than once"


@pytest.mark.system
@pytest.mark.parametrize("spoil", [repeat_a_key, None], ids=["repeated key", "no number"])
def test_what_workers_find_wrong_in_a_table_is_named_by_the_head_and_costs_nothing(laned, crews, asked, spoil):
    study = laned(rows=60, join=5)
    folder = study.folder / "bank" / "table"
    if spoil is None:
        study.edit("bank/bank.csv", r'^("P\d+",\d+,)[\d.]+', r"\1rich")
    in_folders(study)
    study.edit("STUDY.toml", r"^\[align\]", '[align]\nduplicates = "refuse"')
    study.edit("bank/party.toml", r"^data = ", 'misfits = "refuse"\ndata = ')
    said = spoil(folder) if spoil else f"{folder}: column 'income', row 1: the cell is not a number"
    check_words(error_of(study.ended())["bank"], said, str(folder))
    assert "Place" not in kinds(asked, "bank")
    assert not set(study.states("bank")) & {"sent", "committed"}
    assert not study.left_behind()


class Dying:
    """An engine whose workers are lost, one after the other, with whatever they get."""

    def __init__(self):
        self.given, self.events = list[int](), queue.SimpleQueue[Any]()

    def start(self, role, arguments, workers):
        return [self.replace(-1)]

    def send(self, worker, command):
        self.given.append(command.number)
        self.events.put(WorkerLoss(worker, "it was killed"))

    def replace(self, worker):
        self.events.put(WorkerMessage(worker + 1, WorkerReady(b"a request")))
        return worker + 1


def test_work_with_which_every_worker_is_lost_ends_the_study():
    engine: Any = Dying()
    workers = LaneWorkerPool(engine, SimpleNamespace(name="bank"), None, [], 1)  # type: ignore[arg-type]
    chores: Any = [None, None]
    with raises(EngineError, "EN029", "4"):
        list(workers.share(chores, lambda: None))
    assert engine.given == [0, 0, 0, 0]


# --- a crew keeps count of its workers, whatever becomes of them

TOPIC = b"a study"


@pytest.fixture
def start(forks, monkeypatch):
    made: list[LaneWorkerPool] = []

    def start(role, workers=1, note=ignore_note):
        monkeypatch.setattr(crew, "ROLE", f"tests.study.lanes.roles:{role}")
        duty: Any = SimpleNamespace(name="bank", topic=TOPIC)
        made.append(
            LaneWorkerPool(ProcessEngine(forks=forks), duty, Identity.create("bank"), ["hub"], workers, note=note)
        )
        return made[-1]

    yield start
    for each in made:
        each.close()


def has(found, lane):
    assert found.event() == WorkerFree()
    found.begin(lane)
    here = found.event()
    assert isinstance(here, LaneWorkerReady)
    return here


def ended(found, kind, lane, words):
    event = found.event()
    assert isinstance(event, WorkerFailed)
    assert (type(event.error), event.lane if lane else None) == (kind, lane)
    assert words in str(event.error)


@system
def test_a_lane_is_introduced_by_the_head_and_a_worker_that_is_lost_loses_it_and_is_replaced(
    start,
):
    noted: list[tuple[str, dict[str, Any]]] = []
    found = start("deaf", note=lambda what, **details: noted.append((what, details)))
    here = has(found, LaneAttempt(0))
    assert here.lane == LaneAttempt(0)
    assert check_introduction(here.introduction, found._identity.certificate, TOPIC).name == "bank"
    os.kill(found._engine.process(0), signal.SIGKILL)
    assert found.event() == WorkerLost(LaneAttempt(0))
    has(found, LaneAttempt(0, 2))
    assert found._told == {"lost_workers": 1, "replaced_workers": 1}
    first, again = {"partition": 0, "attempt": 1}, {"partition": 0, "attempt": 2}
    why = "its process was killed, by somebody or by the system for want of memory"
    assert noted == [
        ("all workers ready", {}),
        ("worker lost", {"worker": 0, "why": why, **first}),
        ("lane lost", {"worker": 0, **first}),
        ("worker replaced", {"worker": 0, "by": 1}),
        ("lane begun again", {"worker": 1, **again}),
    ]
    found.close()
    assert found.event() == CrewClosed()


@system
def test_a_worker_that_is_lost_while_it_is_free_is_not_missed(start):
    found = start("deaf")
    assert found.event() == WorkerFree()
    with ThreadPoolExecutor(1) as waiting:
        later = waiting.submit(found.event)
        os.kill(found._engine.process(0), signal.SIGKILL)
        until(lambda: found._told["lost_workers"], "a loss")
        found.begin(LaneAttempt(0))
        assert isinstance(later.result(60), LaneWorkerReady)  # and no worker was called free twice


@system
def test_a_worker_that_does_not_give_up_is_replaced(start, monkeypatch):
    monkeypatch.setattr(crew, "_GIVE_UP_SECONDS", 0.1)
    noted: list[str] = []
    found = start("deaf", note=lambda what, **details: noted.append(what))
    has(found, LaneAttempt(0))
    found.give_up(LaneAttempt(0))
    assert found.event() == WorkerFree()  # and nothing about the lane, which is of no interest
    assert found._told == {"lost_workers": 0, "replaced_workers": 1}
    assert noted[1:] == ["lane given up", "worker ended: it did not give its lane up", "worker replaced"]


@system
def test_no_more_workers_are_replaced_than_a_study_may_lose(start, monkeypatch):
    monkeypatch.setattr(crew, "MOST_REPLACED", 2)
    found = start("deaf")
    for number in range(2):
        has(found, LaneAttempt(number))
        os.kill(found._engine.process(number), signal.SIGKILL)
        assert found.event() == WorkerLost(LaneAttempt(number))
    has(found, LaneAttempt(2))
    os.kill(found._engine.process(2), signal.SIGKILL)
    ended(found, EngineError, LaneAttempt(2), "workers of bank cannot go on: its process was killed")


@system
def test_what_a_check_finds_in_a_lane_that_is_given_up_ends_the_study(start):
    found = start("finding")
    for attempt in (1, 2):
        has(found, LaneAttempt(0, attempt))  # and nothing of an error that the end of a session may bring about
        found.give_up(LaneAttempt(0, attempt))
    ended(found, ShareError, None, "a check did not hold")


@system
def test_workers_that_cannot_be_started_or_have_no_memory_end_the_study(start):
    ended(start("stillborn"), EngineError, None, "workers of bank cannot go on: its process has ended")
    found = start("greedy")
    has(found, LaneAttempt(5))
    ended(found, EngineError, LaneAttempt(5), "no memory left")


@pytest.mark.parametrize("given_up", [False, True])
def test_a_worker_tells_what_a_check_found_and_no_loss(given_up):
    run = object.__new__(worker._LaneRun)
    run._given_up = given_up
    assert run._failure(ShareError("a check did not hold")) == ("ShareError", "a check did not hold")
    assert run._failure(PeerStopped("gone")) is None
    assert run._failure(KeyError("a cell")) == (None if given_up else ("", "its role raised KeyError"))
