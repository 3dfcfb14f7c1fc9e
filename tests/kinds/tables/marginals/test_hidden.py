"""Marginals of people whom all owners hold, when nobody knows who they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings, strategies as st

from colonnade.errors import StudyError
from colonnade.kinds.tables.marginals import programs as marginals
from colonnade.protocols.roles import COORDINATOR
from colonnade.tables.places import Places
from tests.kinds.tables.marginals.test_marginals import without_noise
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import marginals_task

TOKEN = bytes(16)


def make_task(sizes=((3, 2), (4,), (2, 3)), seats=None, threshold=1, label=1, **changes):
    return marginals_task(sizes, seats, threshold, label, hidden=True, **changes)


def random_tables(task, size, chance, seed):
    """Everybody holds each of the slots with this chance, and at least one."""
    rng, tables = np.random.default_rng(seed), {}
    for owner in task.owners:
        slots = np.flatnonzero(rng.random(size) < chance)
        slots = slots if len(slots) else rng.integers(0, size, 1)
        codes = rng.integers(
            0, [task.sizes[place] for place in task.held_by(owner)], (len(slots), len(task.held_by(owner)))
        )
        tables[owner] = kit.Rows(codes, places=Places(slots.astype(np.int64), size, TOKEN))
    return tables


def dealt(table):
    """One row per slot, ending in 1 if it is taken."""
    whole = np.zeros((table.places.size, table.values.shape[1] + 1), dtype=np.int64)
    whole[table.places.slots, :-1] = table.values
    whole[table.places.slots, -1] = 1
    return whole


def joined(task, tables):
    """The plain join: the codes of the slots that are in every table."""
    found = sorted(set.intersection(*(set(table.places.slots.tolist()) for table in tables.values())))
    return {owner: dealt(tables[owner])[found, :-1] for owner in task.owners}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seating=st.sampled_from([(3, ("o2", COORDINATOR, "o0"), 1), *kit.SEATINGS[:5]]),
    label=st.none() | st.integers(0, 2),
    size=st.integers(1, 30),
    chance=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    block=st.integers(1, 40),
    seed=st.integers(0, 2**31),
)
def test_the_secure_sums_are_those_of_the_plain_join(seating, label, size, chance, block, seed):
    owners, seats, threshold = seating
    sizes = [[3, 2], [4], *([2 + i] for i in range(owners - 2))]
    task = make_task(sizes, seats, threshold, label, block_rows=block)
    tables = random_tables(task, size, chance, seed)
    results = without_noise(task, tables)
    plain = marginals.reference({name: dealt(table) for name, table in tables.items()}, task)
    assert np.array_equal(plain, marginals.reference(joined(task, tables), replace(task, hidden=False)))
    assert set(results) == {*task.owners, COORDINATOR}
    for result in results.values():
        assert np.array_equal(result.opened, plain)


def test_what_is_sent_has_the_same_sizes_whoever_matches():
    """Same lists, same universe: only the slots differ, so that all, some or none are in common."""
    task, rng, sizes = make_task(block_rows=7), np.random.default_rng(2), []
    codes = {o: rng.integers(0, 2, (10, len(task.held_by(o)))) for o in task.owners}
    for step in (0, 3, 10):
        log = {}
        places = {o: Places(np.arange(10) + i * step, 30, TOKEN) for i, o in enumerate(task.owners)}
        tables = {o: kit.Rows(codes[o], places=places[o]) for o in task.owners}
        kit.execute(marginals, task, tables, log=log)
        sizes.append(
            {
                ends: [(kind, [getattr(value, "nbytes", 0) for value in fields.values()]) for kind, fields in messages]
                for ends, messages in log.items()
            }
        )
    assert sizes[0] == sizes[1] == sizes[2]


def test_one_record_can_move_a_whole_person():
    """Another owner's record decides whether a row counts: the price is that of a row that comes, goes or changes."""
    task = make_task()
    known = replace(task, hidden=False)
    assert task.others == ()
    assert task.sensitivity.replace_l2_squared == known.sensitivity.replace_l2_squared
    assert "hidden-members" in task.event.theorem
    count = replace(task, asked=task.asked[:1])
    assert count.asked[0].columns == ()
    assert (count.sensitivity.replace_l1, count.sensitivity.replace_l2_squared) == (1, 1)
    assert replace(count, hidden=False).sensitivity.replace_l2_squared == 0


def test_a_table_and_a_study_must_agree_whether_members_are_hidden():
    task = make_task()
    tables = random_tables(task, 10, 1.0, 0)
    with raises(StudyError, "ST531"):
        kit.execute(marginals, replace(task, hidden=False), tables)
    with raises(StudyError, "ST530"):
        kit.execute(marginals, task, kit.codes_of(task, 10))
