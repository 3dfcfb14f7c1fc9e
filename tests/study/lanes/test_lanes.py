"""A study in lanes gives what it gives without them, also when workers or a hub are killed in the middle."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from colonnade.cli import show
from colonnade.cli.participants import crew_asked
from colonnade.errors import StudyError
from colonnade.protocols.lanes.arbiter import Lane
from colonnade.report.alignment import leakage
from colonnade.report.cost import bytes_sent, time_and_bytes
from colonnade.study import Study, preflight
from colonnade.study.forks import Forks, Process, Wanted
from colonnade.study.lanes import crew, heads
from colonnade.study.local import local_commands
from colonnade.study.meeting import Place, load_identity
from colonnade.wire import Hub, HubLimits
from colonnade.wire.rooms import LaneLimits
from tests.support.errors import raises
from tests.support.ports import free_port
from tests.support.studies import check_words, edit
from tests.support.waiting import below

from .conftest import PORTS, Laned, Watched, error_of, events_of

Make = Callable[..., Laned]
PCA = 'kind = "pca"\nn_components = 2\nrows_at_most = 100_000\n'
system = pytest.mark.system


@system
def test_a_study_in_processes(laned: Make) -> None:
    """All of them listen, and workers connect to each other."""
    study = laned(rows=100)
    study.connect(**dict.fromkeys(study.parties, f'listen = "{PORTS}"'))
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
def test_sums_are_exactly_those_without_lanes_and_a_worker_that_is_killed_costs_its_lane(
    laned: Make, crews: type[Watched]
) -> None:
    study = laned()
    expected = study.values(study.in_threads(study.plain))
    assert expected[0] == study.common
    killed = crews.kill_at("shop", "meet", Lane(1))
    out = study.in_threads()
    assert killed == [True]
    assert study.values(out) == expected
    facts = study.facts(out)
    assert {name: each["lanes"]["attempts"] for name, each in facts.items()} == dict.fromkeys(facts, 5)
    assert {name for name, each in facts.items() if each["lanes"]["lost_workers"]} == {"shop"}
    assert facts["shop"]["lanes"]["replaced_workers"] == 1
    assert all(Lane(1, 2) in crew.taken for crew in crews.all.values())
    study.check_states("committed", "committed")  # without lanes, and in lanes
    assert not study.left_behind()


@system
@pytest.mark.usefixtures("without_noise")
def test_sums_in_two_rooms_of_a_standing_hub_are_those_of_a_hub_of_its_own(laned: Make, crews: type[Watched]) -> None:
    study = laned()
    expected = study.values(study.in_threads(study.plain))
    certificates = study.study().certificates()
    identity = load_identity(study._key, "coordinator", certificates)
    limits, lanes = HubLimits(connections=1), LaneLimits(each=2, studies=2)
    with Hub(identity, certificates, rooms={}, limits=limits, lanes=lanes) as hub:
        for attempt in (1, 2):
            hub.open(f"room.{attempt}", study.study().participants, lanes=True)
            killed = crews.kill_at("shop", "meet", Lane(1))
            if attempt == 2:
                crews.hook = None
            out = study.in_threads(place=Place(hub.address, f"room.{attempt}", attempt))
            assert study.values(out) == expected
            facts = study.facts(out)
            assert {(found["room"], found["attempt"]) for found in facts.values()} == {(f"room.{attempt}", attempt)}
            assert {found["lanes"]["attempts"] for found in facts.values()} == {4 + len(killed)}
            assert len(killed) == (attempt == 1)
        assert set(hub.rooms) == {"room.1", "room.2"}
        assert hub.traffic.lanes == 0
    assert not study.left_behind()


@system
def test_a_worker_holds_nothing_of_a_lane_that_is_over(
    laned: Make, crews: type[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "ROLE", "tests.study.lanes.roles:weighing")
    study = laned(workers=1, partitions=2, align='mode = "ot"\n')
    study.in_threads()
    # This worker counts what is gone as claims: a table, its keys and its cells in each of two lanes.
    gone = {name: each.claims for name, each in crews.all.items()}
    assert gone == dict.fromkeys(study.parties, 6) | {"coordinator": 0}


@system
@pytest.mark.usefixtures("without_noise")
def test_seats_that_check_each_other(laned: Make, crews: type[Watched]) -> None:
    study = laned(rows=60, partitions=2, top='security = "active"\ninputs = "unproven"\n', task=PCA)
    out = study.in_threads()
    assert study.values(out, "count") == study.common
    for name, facts in study.facts(out).items():
        if name == "coordinator":
            assert "checks" not in facts
        else:
            assert facts["checks"] == {"claims": crews.all[name].claims, "error": 2.0**-33}
            assert facts["checks"]["claims"] > 0


@system
@pytest.mark.usefixtures("without_noise")
def test_members_that_nobody_learns(laned: Make, crews: type[Watched]) -> None:
    study = laned(align="hidden = true\n", rows=100, parties=2, task=PCA)
    before, out = study.in_threads(study.plain), study.in_threads()
    assert study.values(out, "count") == study.values(before, "count") == study.common
    spread = study.values(out, "explained_variance")
    assert spread == pytest.approx(study.values(before, "explained_variance"), rel=1e-2)  # rounded at random
    assert {facts["alignment"]["matched"] for facts in study.facts(out).values()} == {None}


@system
@pytest.mark.usefixtures("without_noise")
def test_a_hub_that_is_killed_takes_only_its_lanes(
    laned: Make, crews: type[Watched], forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads, "_REACH_SECONDS", 3.0)
    study = laned(reconnect=2)
    expected = study.values(study.in_threads(study.plain))
    further = f"127.0.0.1:{free_port()}"
    study.replace("[limits]", f'hubs = ["{further}"]\n[limits]')
    log = study.folder / "relay"
    with log.open("wb") as output, open("/dev/null", "rb") as nowhere:
        command = ["relay", str(study.file), "--key", str(study._key), "--json"]
        relay = forks.start(Wanted(command, nowhere.fileno(), output.fileno()))
    try:
        while b"relay" not in log.read_bytes():
            with pytest.raises(subprocess.TimeoutExpired):
                relay.wait(0.05)
        first = []

        def kill(crew: Watched, what: str, lane: Lane) -> None:
            if (crew.name, what, lane) == ("bank", "meet", Lane(1)):  # which meets at the second hub
                first.append(lane)
                relay.kill()

        crews.hook = kill
        out = study.in_threads()
    finally:
        relay.kill()
        relay.wait(20)
    assert first == [Lane(1)]
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
        ({"task": PCA, "top": 'security = "active"\ninputs = "covert"\n'}, ("", ""), ("ST561", "covert")),
        ({"task": PCA, "top": 'security = "active"\ninputs = "proven"\n'}, ("", ""), ("ST561", "proven")),
        ({"task": PCA, "align": "hidden = true\n"}, ("", ""), ("ST429", "STUDY.toml")),
    ],
    ids=["six", "one", "fuzzy", "unaligned", "power", "covert", "proven", "hidden"],
)
def test_what_cannot_have_lanes_is_said_before_anybody_waits(
    laned: Make, made: dict[str, Any], change: tuple[str, str], said: Any
) -> None:
    study = laned(rows=20, **made)
    edit(study.file, change)
    with raises(StudyError, said):
        preflight(study.study())


def test_pre_flight_and_the_digest_say_that_there_are_lanes(laned: Make) -> None:
    study = laned(rows=20, parties=2)
    four, none = study.study(), Study.load(study.plain)
    found, plain = preflight(four, rows=1000), preflight(none, rows=1000)
    assert found.alignment is not None
    assert plain.alignment is not None
    assert found.to_dict()["partitions"] == found.alignment.to_dict()["partitions"] == 4
    said, unsaid = show.preflight(found), show.preflight(plain)
    after = "if nobody is common the study ends after the last lane, with nothing opened, and stays spent"
    check_words(said, "lanes: people are added up in 4 partitions", after)
    assert "and the coordinator how many in each partition" in " ".join(said.split())
    assert not any(words in said for words in ("nothing is spent", "alignment is used again"))
    free = "if nobody is common the study ends, and nothing is spent"
    check_words(unsaid, free, "next to nothing where an earlier alignment is used again")
    assert not any(words in unsaid for words in ("lanes:", "partition"))
    assert "partitions" not in plain.to_dict().keys() | plain.alignment.to_dict().keys()
    assert "lanes" not in study.plain.read_text()
    edit(study.file, ("partitions = 4", "partitions = 8"))
    assert len({none.digest, four.digest, study.study().digest}) == 3


def test_hidden_members_of_three_parties_with_a_helper_have_figures(laned: Make) -> None:
    study = laned(rows=20, align='hidden = true\nmode = "helper"\n', task=PCA)
    found = preflight(study.study(), rows=1000)
    assert found.alignment is not None
    assert found.alignment.instead is not None
    assert "the coordinator knows how many are common in each partition" in " ".join(show.preflight(found).split())


def test_workers_that_cannot_be_are_a_mistake(laned: Make) -> None:
    study = laned(rows=20, parties=2)
    with raises(StudyError, "ST037"):
        crew_asked(Study.load(study.plain), 2)
    for engine in ("cluster", "ray://[::1"):
        with raises(StudyError, "VA182", "processes", "ray"):
            crew_asked(study.study(), 2, engine)


KILLS = 30


@pytest.mark.slow
@pytest.mark.usefixtures("without_noise")
def test_thirty_workers_killed_at_random_moments_cost_a_lane_each_at_most(laned: Make, crews: type[Watched]) -> None:
    """What each costs in seconds is measured by benchmarks/kills_lanes.py."""
    study = laned(rows=400, partitions=64)
    expected = study.values(study.in_threads(study.plain))
    over, killed, chosen = threading.Event(), list[tuple[str, int]](), random.Random(30)  # noqa: S311 - who is killed

    def kill() -> None:
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


@pytest.mark.slow
@pytest.mark.usefixtures("without_noise")
def test_workers_of_one_party_on_ray(laned: Make, crews: type[Watched]) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install colonnade[ray]")
    study = laned(rows=100, join=300)  # Ray begins before shop joins, and may take its time
    expected = study.values(study.in_threads(study.plain))
    study.edit("shop/party.toml", r"^\[compute\]", '[compute]\nengine = "ray"\nspool = "spool"')
    out = study.in_threads()
    assert study.values(out) == expected
    assert [entry["engine"] for entry in events_of(out["shop"]) if entry["what"] == "workers started"] == ["ray"]
    assert study.facts(out)["shop"]["lanes"]["done"] == 4
    assert not study.left_behind()


def _with_a_head_killed(study: Laned, forks: Forks, name: str, seen_by: str) -> dict[str, Any]:
    """The others, when they have ended: this one was killed once another, or itself, had noted its first share."""
    places = study.places()
    with open("/dev/null", "r+b") as nowhere:
        command = local_commands(study.study(), places["coordinator"])[name]
        head = forks.start(Wanted(command, nowhere.fileno(), nowhere.fileno()))
    others = study.begun(without=name)
    try:
        _until_first_share(places[seen_by], head)
    finally:
        head.kill()
    for child in others.values():
        child.communicate(timeout=300)
    return others


@system
def test_a_head_that_is_killed_ends_the_study_and_its_table_is_removed_by_the_next(laned: Make, forks: Forks) -> None:
    study = laned(rows=100, partitions=64, reconnect=2)
    others = _with_a_head_killed(study, forks, "shop", "shop")
    assert {name: child.returncode for name, child in others.items()} == dict.fromkeys(others, 22)
    assert all("shop" in sentence for sentence in error_of(others).values())
    assert study.states("bank") == study.states("shop") == ["sent"]
    assert {path.parent.name for path in study.left_behind() if path.is_dir()} == {"shop"}
    study.replace("partitions = 64", "partitions = 2")
    study.in_processes()
    assert not study.left_behind()


@system
def test_a_coordinator_that_is_killed_takes_its_hub_and_the_study_along(laned: Make, forks: Forks) -> None:
    study = laned(rows=100, partitions=64, reconnect=2)
    parties = _with_a_head_killed(study, forks, "coordinator", "bank")
    assert {child.returncode for child in parties.values()} <= {21, 22}
    for name in study.parties:
        assert study.states(name)[0] in ("sent", "released")
    assert study.states("bank") == ["sent"]
    assert not study.left_behind()


def test_a_failure_that_is_no_loss_ends_the_study_for_all(laned: Make, crews: type[Watched]) -> None:
    study = laned(rows=100)

    def spoil(crew: Watched, what: str, lane: Lane) -> None:
        if (crew.name, what, lane) == ("bank", "begin", Lane(2)):
            for file in below(study.folder / "bank", "run-*.arrow"):
                file.write_bytes(b"")

    crews.hook = spoil
    errors = error_of(study.ended())
    assert set(errors) == {"coordinator", *study.parties}
    assert "the partitions of the table cannot be read back" in errors["bank"]
    assert all("cannot go on; its own log says why" in errors[name] for name in errors if name != "bank")
    assert study.states("bank") == ["sent"]
    assert not study.left_behind()


def test_a_report_says_what_workers_did() -> None:
    lanes = {"workers": 2, "lost_workers": 1, "partitions": 64, "attempts": 65, "processor_seconds": 3.0, "sent": 5000}
    run = {"parties": {"bank": {"traffic": {"sealed_sent": 1000}, "lanes": lanes}}}
    assert bytes_sent(run) == 6000
    page = str(time_and_bytes(run))
    assert "<h3>Lanes</h3>" in page
    assert ">65<" in page
    assert "Lanes" not in str(time_and_bytes({"parties": {"bank": {"traffic": {"sealed_sent": 1000}}}}))
    assert bytes_sent({"parties": {"bank": {"traffic": {"sealed_sent": 1000}}}}) == 1000


def _until_first_share(place: Any, of_whom: Process) -> None:
    """Wait until a share has left somebody; a process that does not end meanwhile is needed for it."""
    deadline = time.monotonic() + 300
    while "first share" not in [event["what"] for event in events_of(place)]:
        assert time.monotonic() < deadline
        with pytest.raises(subprocess.TimeoutExpired):
            of_whom.wait(0.05)
