"""The model of what a run takes: its properties, and one estimate computed by hand."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import StudyError
from colonnade.privacy import Trust
from colonnade.protocols.align import AlignmentTask
from colonnade.protocols.moments.task import ColumnBlock, Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.study.scale import (
    ALIGNED_ID,
    BUILT_IN,
    KEPT,
    MEETING,
    PHASES,
    SPLIT_BASE,
    MachineConstants,
    ParticipantWork,
    StudyWork,
    WorkerFleet,
    estimate,
    work_of_task,
)
from colonnade.tables.keys import Key
from colonnade.tables.partitioning.partitions import run_bytes
from tests.support.errors import raises
from tests.support.protocols import gradients_task

OWNERS = ("bank", "clinic", "shop")
WIDTHS = {"bank": 30, "clinic": 20, "shop": 10}
ONE = MachineConstants(**{one.name: 1.0 for one in fields(MachineConstants)})
WIDE = WorkerFleet(bandwidth=1e15)
"""Lines that nothing waits for."""


def tasks(*, security="semi-honest", hidden=False, mode="ot"):
    trust = Trust(OWNERS, OWNERS, 1, security=security)
    blocks = tuple(ColumnBlock(owner, tuple(f"c{i}" for i in range(n)), 0.5) for owner, n in WIDTHS.items())
    task = Moments(blocks, trust, gamma=1024, constant=512, rows_at_most=2**33, noise=10**12, hidden=hidden)
    return task, AlignmentTask(trust, (Key("id"),), mode=mode, hidden=hidden)


def work(rows, partitions=1, kind="parquet", **how):
    return work_of_task(*tasks(**how), (*OWNERS, COORDINATOR), WIDTHS, rows, partitions, kind)


def taken(rows, partitions=1, fleet=WIDE, **how):
    return estimate(work(rows, partitions, **how), fleet, BUILT_IN)


def party(found, name="bank"):
    return next(one for one in found.parties if one.name == name)


def test_an_estimate_by_hand_without_lanes():
    part = ParticipantWork(
        "a",
        rows=10,
        columns=3,
        align_starts=2,
        align_ids=5,
        align_sent=70,
        agreed=10,
        rounded=30,
        dealt=60,
        taken=40,
        products=90,
        own_products=80,
        drawn=6,
        sent=30,
        held=1000,
        checks=2.0,
    )
    other = replace(part, name="b", rows=0, columns=0, sent=0, align_sent=0)
    found = estimate(StudyWork((part, other), 1, listed=5, lane_rounds=7), WorkerFleet(bandwidth=1e9), ONE)
    first = found.parties[0]
    assert first.phases == {
        "reading": 10 + 30,
        "splitting": 0,
        "alignment": 2 + 5 + 10,
        "dealing": 30 + 2 * 60,
        "multiplying": 2 * (40 + 90) + 80,
        "noise": 6,
        "wire": 100 + 0 + 1,  # it sends 100 bytes, receives none, and joins one session
    }
    assert found.parties[1].phases["wire"] == 100 + 1
    assert tuple(first.phases) == PHASES
    assert first.core_hours == pytest.approx(sum(first.phases.values()) / 3600)
    assert first.seconds == pytest.approx(sum(first.phases.values()) + 7)  # and seven round trips
    assert first.worker_memory == 1 + KEPT + ALIGNED_ID * 5 + 8 * 3 * 5 + 1000
    assert first.head_memory == first.worker_memory  # it is the same process
    assert (found.bytes_total, first.bytes_sent, first.disk) == (100, 100, 0)
    assert (found.hub.bytes_passed, found.hub.seconds, found.hub.limited_by) == (100, 100, "processor")
    assert found.seconds == first.seconds
    assert found.bottleneck == "workers of a, mostly multiplying"


def test_an_estimate_by_hand_in_lanes():
    part = ParticipantWork("a", rows=100, columns=2, align_starts=1, align_ids=10, dealt=400, sent=50, drawn=3)
    found = estimate(
        StudyWork((part,), 8, 20, lane_rounds=2, last_rounds=5), WorkerFleet(workers=3, bandwidth=1e9), ONE
    )
    alone = (100 + 200) + (100 + 200)
    lanes = 8 * (1 + 10) + 400 + 50 + 8
    assert found.lanes_in_turn == 3
    assert found.seconds == pytest.approx(alone + lanes * 3 / 8 + (3 * 2 + 5) + 3)
    assert found.bottleneck == "reading and splitting by a"  # alone: so few rows are in one piece
    assert found.parties[0].disk == 2 * 100 * (40 + 2 * 8)  # in the order of the table, and of partitions
    assert found.parties[0].head_memory == 1 + KEPT + SPLIT_BASE
    assert found.parties[0].worker_memory == 1 + KEPT + 2 * run_bytes(0)
    assert found.core_hours == pytest.approx((alone + lanes + 3 + 50) / 3600)  # with the hub


@settings(max_examples=20)
@given(
    st.integers(1, 10**9),
    st.integers(1, 10**8),
    st.sampled_from([1, 2, 64, 4096]),
    st.integers(1, 100),
    st.sampled_from(["semi-honest", "active"]),
)
def test_more_rows_never_take_less(rows, more, partitions, workers, security):
    fleet = WorkerFleet(workers)
    few, many = (taken(n, partitions, fleet, security=security) for n in (rows, rows + more))
    for what in ("seconds", "core_hours", "bytes_total"):
        assert getattr(few, what) <= getattr(many, what)
    for one, same in zip(few.parties, many.parties, strict=True):
        assert one.disk <= same.disk
        assert one.worker_memory <= same.worker_memory
        assert one.head_memory <= same.head_memory
        assert all(one.phases[phase] <= same.phases[phase] for phase in PHASES)


@settings(max_examples=20)
@given(st.integers(10**5, 10**9), st.integers(1, 400), st.integers(1, 400))
def test_more_workers_never_take_longer_and_do_the_same_work(rows, workers, more):
    few, many = (taken(rows, 256, replace(WIDE, workers=n)) for n in (workers, workers + more))
    assert many.seconds <= few.seconds
    assert many.core_hours == few.core_hours
    assert many.bytes_total == few.bytes_total


def test_a_file_of_csv_is_read_by_the_head_alone_and_takes_longer_than_parquet():
    found = taken(10**6, 64, replace(WIDE, workers=64, hubs=64), kind="csv")
    assert found.seconds > party(found).phases["reading"]
    assert found.bottleneck == "the head of bank, which reads its file alone"
    parquet, csv = party(taken(10**6, kind="parquet")).phases["reading"], party(found).phases["reading"]
    assert parquet < csv == pytest.approx(10**6 * (BUILT_IN.csv_row + 30 * BUILT_IN.csv_cell))


def test_narrow_lines_are_the_bottleneck_and_more_hubs_are_only_their_remedy():
    slow = WorkerFleet(workers=64, bandwidth=1e6)
    found, more = taken(10**7, 256, slow), taken(10**7, 256, replace(slow, hubs=100))
    assert found.bottleneck == "bandwidth of the hubs"
    assert found.hub.seconds == pytest.approx(found.bytes_total / 1e6, rel=1e-6)
    assert more.hub.bytes_passed == pytest.approx(found.hub.bytes_passed / 100, rel=1e-6)
    assert more.bottleneck == "the line of bank"  # its line is as narrow, and hubs cannot help
    assert taken(10**7, 256, replace(slow, bandwidth=2e6)).hub.seconds == pytest.approx(found.hub.seconds / 2)


def test_far_away_round_trips_are_the_bottleneck_of_many_small_lanes():
    near, far = (taken(10**4, 4096, replace(WIDE, workers=4, round_trip=trip)) for trip in (0.0, 10.0))
    assert far.bottleneck == "round trips"
    waits = work(10**4, 4096).lane_rounds * far.lanes_in_turn + work(10**4, 4096).last_rounds
    assert far.seconds - near.seconds == pytest.approx(10 * waits)


def test_direct_links_pass_hubs_by_and_leave_the_lines_of_participants():
    slow = WorkerFleet(workers=64, bandwidth=1e6)
    through, direct = taken(10**7, 256, slow), taken(10**7, 256, replace(slow, links="direct"))
    assert direct.bottleneck == "the line of bank"
    assert direct.seconds < through.seconds
    assert direct.bytes_total == through.bytes_total
    assert direct.hub.bytes_passed == 256 * 4 * 3 * MEETING  # every two of four participants, in every lane
    before, after = party(through).phases, party(direct).phases
    assert {phase for phase in PHASES if after[phase] < before[phase]} == {"wire"}
    assert taken(1, 2, replace(slow, links="direct")).hub.bytes_passed <= taken(1, 2, slow).hub.bytes_passed


def test_checks_hidden_members_and_other_modes_cost_more_and_none_next_to_nothing():
    plain, checked, hidden = taken(10**6), taken(10**6, security="active"), taken(10**6, hidden=True)
    for name in OWNERS:
        before = party(plain, name).phases
        assert party(checked, name).phases["dealing"] > before["dealing"]
        assert party(hidden, name).phases["multiplying"] > 3 * before["multiplying"]
    assert checked.bytes_total > plain.bytes_total
    dh, helper = (taken(10**6, mode=mode) for mode in ("dh", "helper"))
    aligned = [party(found).phases["alignment"] for found in (helper, plain, dh)]
    assert aligned == sorted(aligned)
    assert aligned[2] > 10 * aligned[1]
    assert party(helper, COORDINATOR).phases["alignment"] > 0 == party(plain, COORDINATOR).phases["alignment"]
    none = estimate(work_of_task(tasks()[0], None, OWNERS, WIDTHS, 10**5), WIDE, BUILT_IN)
    assert party(none).phases["alignment"] == pytest.approx(10**5 * BUILT_IN.agree_row)


def test_what_cannot_be_is_refused():
    task, aligning = tasks()
    hidden, rounds = tasks(hidden=True), gradients_task()
    for plan, partitions, code in (
        ((task, aligning), 48, "ST457"),
        ((task, None), 16, "ST589"),
        ((rounds, aligning), 16, "ST590"),
        (hidden, 16, "ST591"),
    ):
        with raises(StudyError, code):
            work_of_task(*plan, (*OWNERS, COORDINATOR), WIDTHS, 1000, partitions)
    for wrong in ({"workers": 0}, {"hubs": 0}, {"bandwidth": 0.0}, {"bandwidth": float("inf")}, {"round_trip": -1.0}):
        with pytest.raises(StudyError):
            WorkerFleet(**wrong)


@pytest.mark.parametrize(
    ("mode", "parties", "ids", "measured"),
    [("ot", 2, 10**6, 21), ("ot", 3, 10**6, 37), ("dh", 2, 10**5, 86), ("dh", 3, 10**5, 149), ("helper", 3, 10**6, 29)],
)
def test_alignment_takes_about_what_was_measured(mode, parties, ids, measured):
    """Core-seconds of all participants from files to aligned tables (benchmarks/results/alignment.md)."""
    owners = OWNERS[:parties]
    trust = Trust(owners, owners if parties > 2 else (*owners, COORDINATOR), 1)
    blocks = tuple(ColumnBlock(owner, ("c",), 0.5) for owner in owners)
    task = Moments(blocks, trust, gamma=1024, constant=512, rows_at_most=2**33, noise=10**12)
    aligning = AlignmentTask(trust, (Key("id"),), mode=mode)
    columns = dict.fromkeys(owners, 1)
    found = estimate(work_of_task(task, aligning, (*owners, COORDINATOR), columns, ids), WIDE, BUILT_IN)
    assert 3600 * found.core_hours == pytest.approx(measured, rel=0.3)
