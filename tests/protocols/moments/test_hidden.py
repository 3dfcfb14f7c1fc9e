"""Second moments over people whom all owners hold, when nobody knows who they are."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import StudyError
from colonnade.privacy import Observer, Trust, epsilon, views
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.protection import protection, with_own_budgets
from colonnade.protocols.moments.published import NoisyMoments
from colonnade.protocols.moments.task import Block, Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.tables.places import Places
from tests.support import protocols as kit
from tests.support.errors import refused
from tests.support.protocols import LAWS, grouped_rows as random_rows, hidden_moments_task as make_task

TOKEN = bytes(16)


def placed(values, slots, size):
    """Encoded rows in slots, as a table would give them."""
    return kit.Rows(values, places=Places(np.asarray(slots, dtype=np.int64), size, TOKEN))


def random_tables(task, size, chance, seed):
    """Everybody holds each of the slots with this chance, and at least one."""
    rng = np.random.default_rng(seed)
    tables = {}
    for owner in task.owners:
        slots = np.flatnonzero(rng.random(size) < chance)
        slots = slots if len(slots) else rng.integers(0, size, 1)
        tables[owner] = placed(random_rows(rng, len(slots)), slots, size)
    return tables


def dealt(table, gamma):
    """The integers that an owner deals, where rounding is to the nearest."""
    whole = np.zeros((table.places.size, table.values.shape[1] + 1), dtype=np.int64)
    whole[table.places.slots, :-1] = np.rint(table.values * gamma)
    whole[table.places.slots, -1] = 1
    return whole


def joined(task, tables):
    """The plain join: the rows of the slots that are in every table."""
    found = sorted(set.intersection(*(set(table.places.slots.tolist()) for table in tables.values())))
    return {owner: dealt(tables[owner], task.gamma)[found, :-1] for owner in task.owners}


def execute(task, tables, log=None, rounded=True):
    """What everybody opened, and the noise that was drawn for it; rounding is to the nearest."""
    with pytest.MonkeyPatch.context() as patch:
        drawn = kit.noise_drawn(patch, moments)
        if rounded:
            kit.nearest(patch)
        results = kit.execute(moments, task, tables, log=log)
    assert len(drawn) == len(task.owners)
    assert set(results) == {*task.owners, COORDINATOR}
    return results, sum(drawn)


def check(task, tables):
    """What all opened is the sum over the plain join, and noise."""
    results, noise = execute(task, tables)
    want = moments.reference(joined(task, tables), replace(task, hidden=False))
    assert np.array_equal(want, moments.reference({n: dealt(table, task.gamma) for n, table in tables.items()}, task))
    assert all(np.array_equal(result.opened, want + noise) for result in results.values())


@settings(max_examples=15, deadline=None)
@given(
    seating=st.sampled_from([(3, ("o2", COORDINATOR, "o0"), 1), *kit.SEATINGS[:5]]),
    law=st.sampled_from(LAWS),
    size=st.integers(1, 30),
    chance=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    block=st.integers(4, 40),
    inputs=st.sampled_from([None, "unproven", "covert", "proven"]),
    seed=st.integers(0, 2**31),
)
def test_the_secure_sums_are_those_of_the_plain_join(seating, law, size, chance, block, inputs, seed):
    owners, seats, threshold = seating
    task = make_task(owners, seats, threshold, law, block_rows=block)
    if inputs is not None:
        task = kit.active(task)
        task = kit.active(task, inputs=inputs if inputs in task.possible_proofs else "unproven")
    check(task, random_tables(task, size, chance, seed))


def test_owners_who_named_their_noise_large_numbers_of_many_slots_and_nobody_in_common():
    own = make_task(3, law="discrete-laplace", noise=11, own_noise=(5, 11, 3), known=1)
    assert len(own.events) == 3
    check(own, random_tables(own, 40, 0.8, 3))
    large = make_task(3, gamma=2**18, constant=2**17, rows_at_most=2**20, block_rows=350)
    check(large, random_tables(large, 1000, 0.9, 5))
    task, rng = make_task(2), np.random.default_rng(0)
    tables = {"o0": placed(random_rows(rng, 5), range(5), 10), "o1": placed(random_rows(rng, 4), range(6, 10), 10)}
    results, noise = execute(task, tables)
    assert np.array_equal(results["o0"].opened, noise)
    assert noise.any()


def test_the_count_is_the_noisy_number_of_matches():
    task = make_task(3, constant=64)
    tables = random_tables(task, 200, 0.8, 1)
    matches = len(joined(task, tables)["o0"])
    results, noise = execute(task, tables, rounded=False)
    found: NoisyMoments = results["o2"]
    assert 80 < matches < 130
    assert found.count == pytest.approx(matches + noise[-1] / 64**2, abs=1e-9)
    assert found.means.shape == (12,)


def test_what_is_sent_has_the_same_sizes_whoever_matches_and_shares_differ_from_run_to_run():
    """Same lists, same universe: only the slots differ, so that all, some or none are in common."""
    task, rng = make_task(3, block_rows=7), np.random.default_rng(2)
    values = {name: random_rows(rng, 10) for name in task.owners}
    sizes, words = [], []
    for step in (0, 0, 3, 10):
        log = {}
        tables = {name: placed(values[name], np.arange(10) + step * i, 30) for i, name in enumerate(task.owners)}
        execute(task, tables, log)
        sizes.append(
            {
                pair: [{k: v if isinstance(v, int) else np.size(v) for k, v in fields.items()} for _, fields in sent]
                for pair, sent in log.items()
            }
        )
        words.append({f["words"].tobytes() for messages in log.values() for _, f in messages if "words" in f})
    assert all(one == sizes[0] for one in sizes)
    assert sum(map(len, sizes[0].values())) > 60
    assert len(words[0]) == len(words[1]) >= 3
    assert not words[0] & words[1]


def test_rows_and_study_must_hide_both_or_neither():
    task = make_task(2)
    tables = random_tables(task, 10, 0.7, 4)
    refused(StudyError, "ST531", execute, replace(task, hidden=False), tables)
    for table in tables.values():
        table.places = None
    refused(StudyError, "ST530", execute, task, tables)


# --- what one record can do


def people_tables(rng, task, people, chance):
    """Integer rows by person for each owner, who holds each person with this chance."""
    held = {}
    for owner in task.owners:
        rows = np.rint(random_rows(rng, people) * task.gamma).astype(np.int64)
        rows[:, 0] = rng.choice([-task.gamma, task.gamma], people)
        held[owner] = {i: rows[i] for i in range(people) if rng.random() < chance}
    return held


def opened(task, held):
    """What would be opened without noise: one row for each person whom all hold."""
    common = sorted(set.intersection(*(set(rows) for rows in held.values())))
    parts = {owner: np.array([held[owner][i] for i in common]) for owner in task.owners}
    return moments.reference(parts, replace(task, hidden=False)) if common else np.zeros(task.entries, dtype=np.int64)


TASKS = [
    make_task(3),
    make_task(3, law="discrete-laplace"),
    make_task(3, law="discrete-laplace", noise=11, own_noise=(5, 11, 3)),
    make_task(3, law="discrete-laplace", constant=2000),
    make_task(2, law="discrete-laplace", constant=2000, noise=11, own_noise=(5, 11)),
]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_one_persons_records_move_each_release_by_no_more_than_it_says(seed):
    """With some owners a person's record becomes another one, of the same or of another person."""
    rng = np.random.default_rng(seed)
    for task in TASKS:
        held, fresh = people_tables(rng, task, 5, 0.7), people_tables(rng, task, 5, 1.0)
        one, other = rng.integers(0, 5, 2).tolist()
        changed = {}
        for owner, rows in held.items():
            replaced = rng.random() < 0.5 and one in rows and (other == one or other not in rows)
            kept = {i: row for i, row in rows.items() if i != one or not replaced}
            changed[owner] = kept | {other: fresh[owner][other]} if replaced else rows
        change = np.abs(opened(task, held) - opened(task, changed))
        for event, here in zip(task.events, task.opened_together, strict=True):
            assert change[here].sum() <= event.replace_l1
            if not task.laplace:
                assert (change.astype(object) ** 2 // task.weights).sum() <= event.replace_l2_squared


@pytest.mark.parametrize("law", LAWS)
def test_what_an_owner_holds_itself_does_not_stay_the_same(law):
    """The counter-example of docs/theory/hidden-members.md.

    Nearly all of a row is with o0. Its own columns are known to it, and while it knows who takes part, a change with
    o1 moves little. Hidden, o1 decides which of o0's rows take part, and that moves nearly everything.
    """
    names, wide = ("o0", "o1", "o2"), ((1, Fraction(4)),) * 2
    blocks = (Block("o0", ("a", "b"), 4.0, wide), *(Block(n, ("c",), 1.0, ((1, Fraction(1)),)) for n in names[1:]))
    hidden = Moments(blocks, Trust(names, names, 1), 64, 1, 1000, noise=30, law=law, hidden=True)
    known = replace(hidden, hidden=False)
    (owner, l1, square), *_ = known.event.others
    assert owner == "o0"
    assert hidden.event.others == ()
    before = {"o0": {1: [256, 0], 2: [0, 256]}, "o1": {1: [0]}, "o2": {1: [0], 2: [0]}}
    after = {**before, "o1": {2: [0]}}  # one record of o1 is about another person now
    change = np.abs(opened(hidden, before) - opened(hidden, after)).astype(object)
    moved = (change**2 // hidden.weights).sum()
    if law == "discrete-laplace":
        assert l1 < change.sum() <= hidden.event.replace_l1
    else:
        assert square < moved <= hidden.event.replace_l2_squared
        assert moved > 0.9 * 2 * 256**4
    # So the same noise costs o0 a smaller epsilon where it knows who takes part, and hidden it costs as a person does.
    noise = 10**6 if law == "discrete-laplace" else 3 * 10**10
    loud = [replace(task, noise=noise, known=int(task.laplace)) for task in (known, hidden)]
    seen = [epsilon(views(task.events, Observer.party("o0"), task.trust), 1e-6).epsilon for task in loud]
    assert seen[0] < 0.8 * seen[1]


def test_a_row_that_disappears_may_move_more_than_one_that_is_replaced():
    """A large constant: replaced rows keep it, a row that is gone takes it along."""
    hidden = make_task(3, law="discrete-laplace", constant=2000)
    assert replace(hidden, hidden=False).event.replace_l1 < hidden.event.l1 == hidden.event.replace_l1


@pytest.mark.parametrize("law", LAWS)
def test_about_one_partys_record_the_result_tells_as_much_as_about_a_person_and_the_strictest_decides(law):
    task = make_task(3, law=law, noise=200_000 if law == "discrete-laplace" else 3 * 10**9)
    found = protection(task, 1e-6)
    whole = epsilon(views(task.events, Observer.coordinator(), task.trust), 1e-6).epsilon
    assert found == pytest.approx(dict.fromkeys(task.owners, whole))
    assert max(protection(replace(task, hidden=False), 1e-6).values()) < whole
    strict = with_own_budgets(make_task(3, law=law), {"o0": 0.5, "o1": 3.0, "o2": 2.0}, 1e-6)
    assert strict.own_noise == ()
    assert 0.5 * (1 - 1e-3) <= max(protection(strict, 1e-6).values()) <= 0.5


def test_facts_rounds_and_smaller_blocks_of_a_wide_study():
    for owners, waits in ((2, 10), (5, 12)):
        assert make_task(owners).message_rounds == waits  # 8, one for the rows, and the flags two at a time
    task, open_ = make_task(3), replace(make_task(3), hidden=False)
    assert (task.facts["hidden"], open_.facts.get("hidden")) == (True, None)
    assert task.agreement != open_.agreement
    large = make_task(3, gamma=4096, rows_at_most=2**20)
    wide = replace(large, blocks=tuple(replace(b, columns=tuple(map(str, range(1500)))) for b in large.blocks))
    assert 2**26 < 3 * 4501 * wide.rows_per_block * len(wide.committee.system.primes) <= 2**27
    assert wide.rows_per_block < replace(wide, hidden=False).rows_per_block


def test_every_record_moves_the_entries_of_all_scales():
    """So nobody's columns are left out of a release, though its entries are those of others."""
    hidden = make_task(3, law="discrete-laplace", noise=11, own_noise=(5, 11, 3), known=1)
    known = replace(hidden, hidden=False)
    assert known.events[0].about == ("o2",)
    assert all(event.about == () and event.others == () for event in hidden.events)
    assert all(event.theorem == "functional-sensitivity, hidden-members" for event in hidden.events)
    assert make_task(2).event.theorem == "moments-sensitivity, hidden-members"


# --- models
