"""What a run takes: forecasts against what is sent, and measurements that make sense."""

from __future__ import annotations

from dataclasses import replace

import pytest

from colonnade.kinds.pca.directions import programs as directions
from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.tables.marginals import programs as marginals
from colonnade.mpc import PRIMES, ResidueSystem
from colonnade.protocols.cost import BASE_MEMORY, seconds_on_wire, seconds_per_cell, seconds_per_draw
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.wire import encode
from tests.support import protocols as kit

ROWS = 5000  # so many that shares are packed
MANY = {"rows_at_most": 10_000}
TASKS = {
    "three owners": (moments, kit.moments_task((5, 3, 4), **MANY)),
    "two owners": (moments, kit.moments_task((5, 3), **MANY)),
    "some without a seat": (moments, kit.moments_task((3,) * 5, ("o1", "o2", COORDINATOR), **MANY)),
    "two corrupt seats": (moments, kit.moments_task((3,) * 5, threshold=2, **MANY)),
    "directions": (directions, kit.directions_task((8, 6, 9), **MANY)),
    "marginals": (marginals, kit.marginals_task(((2, 9), (8, 5), (7,)), label=0, **MANY)),
    "marginals, seven seats": (marginals, kit.marginals_task(((2, 9), *([6],) * 6), threshold=2, label=0, **MANY)),
    "polynomials": (
        polynomial,
        kit.polynomial_task((2, 2, 2), ["o0.c0 * o1.c1 + o0.c1 * o2.c0 - o1.c0 * o2.c1"], gamma=1024, **MANY),
    ),
}


@pytest.mark.parametrize(("programs", "task"), TASKS.values(), ids=TASKS)
def test_the_forecast_of_bytes_is_about_what_is_sent(programs, task):
    log: kit.Log = {}
    tables = kit.codes_of(task, ROWS) if programs is marginals else kit.tables_of(task, ROWS)
    kit.execute(programs, task, tables, log=log)
    participants = (*task.owners, COORDINATOR)
    for load in task.loads(participants, ROWS):
        sent = sum(
            len(encode([kind, fields]))
            for (sender, _), messages in log.items()
            if sender == load.participant
            for kind, fields in messages
        )
        assert load.bytes_sent == pytest.approx(sent, rel=0.1, abs=4000), load.participant


def test_everybody_gets_a_load_in_the_order_of_the_question():
    task = kit.moments_task()
    loads = task.loads((COORDINATOR, "o2", "o0"), ROWS)
    assert [load.participant for load in loads] == [COORDINATOR, "o2", "o0"]
    assert all(load.memory >= BASE_MEMORY and load.seconds > 0 for load in loads)
    assert loads[0].bytes_sent == 0


def test_more_rows_take_more_of_everything_but_memory_where_they_are_streamed():
    task = kit.moments_task(rows_at_most=10**9, block_rows=100)
    assert task.rows_at_once == 100
    (few,), (many,) = task.loads(["o0"], 10**4), task.loads(["o0"], 10**7)
    assert many.bytes_sent > 100 * few.bytes_sent
    assert many.seconds > few.seconds
    assert many.memory == pytest.approx(few.memory, rel=0.01)
    kept = kit.scores_task(3)
    assert kept.rows_at_once is None
    (few,), (many,) = kept.loads(["o1"], 10**4), kept.loads(["o1"], 10**7)
    assert many.memory > 5 * few.memory


def test_seats_that_check_keep_a_window_of_rows_and_wait_more_often():
    plain = kit.moments_task((13,) * 3, rows_at_most=10**6)
    checked = replace(plain, trust=replace(plain.trust, security="active"))
    proven = replace(plain, trust=replace(plain.trust, security="active", inputs="proven"))
    (few,), (more,), (most,) = (task.loads(["o0"], 10**6) for task in (plain, checked, proven))
    window = 8 * len(checked.committee.system.primes) * checked.rows_per_window * len(checked.names)
    assert few.memory + window <= more.memory < most.memory
    assert plain.waits < checked.waits < proven.waits


def test_bytes_and_rounds_add_up():
    assert seconds_on_wire(0, 0) == 0
    assert seconds_on_wire(10**6, 7) == pytest.approx(seconds_on_wire(10**6, 0) + seconds_on_wire(0, 7))
    assert seconds_on_wire(2 * 10**6, 0) == pytest.approx(2 * seconds_on_wire(10**6, 0))


def test_measured_paces_are_small_positive_times():
    assert 0 < seconds_per_draw() < 1e-3
    for primes in (1, 3):
        assert 0 < seconds_per_cell(ResidueSystem(PRIMES[:primes])) < 1e-4
