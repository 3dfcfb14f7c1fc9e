"""All marginals in one release: the secure integers are those of the definition, whoever holds what."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from colonnade.errors import DataError, PrivacyError, StudyError
from colonnade.kinds.tables.marginals import programs as marginals, task as task_module
from colonnade.kinds.tables.marginals.integers import OwnColumns
from colonnade.mpc import Hand
from colonnade.protocols.roles import COORDINATOR
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import codes_of, marginals_task as make_task

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from colonnade.testing.seeded import seeded


def without_noise(task, tables, **how):
    with pytest.MonkeyPatch.context() as patch:
        kit.no_noise(patch)
        return kit.execute(marginals, task, tables, **how)


@st.composite
def tasks(draw):
    """Some blocks of the columns of some owners, on a committee, with a label anywhere or nowhere."""
    owners, seats, threshold = draw(st.sampled_from(kit.SEATINGS))
    most = 3 if owners < 5 else 2
    sizes = [draw(st.lists(st.integers(2, 5), min_size=0, max_size=most)) for _ in range(owners)]
    if not any(sizes):
        sizes[-1] = [3]
    columns = sum(map(len, sizes))
    label = draw(st.none() | st.integers(0, columns - 1))
    task = make_task(sizes, seats, threshold, label, block_rows=draw(st.integers(1, 30)))
    chosen = draw(st.sets(st.integers(0, len(task.asked) - 1), min_size=1))
    return replace(task, asked=tuple(task.asked[place] for place in sorted(chosen))) if draw(st.booleans()) else task


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(task=tasks(), rows=st.integers(1, 40), seed=st.integers(0, 999))
def test_the_secure_sums_equal_the_plaintext_reference_exactly(task, rows, seed):
    tables = codes_of(task, rows, seed)
    results = without_noise(task, tables)
    want = marginals.reference(tables, task)
    assert set(results) == {*task.owners, COORDINATOR}
    for result in results.values():
        assert np.array_equal(result.opened, want)


def by_definition(task, tables):
    """Sum over people of the tensor product of their coordinates, person by person."""
    joint = np.hstack([tables[owner] for owner in task.owners])
    found = []
    for block in task.asked:
        total = 0
        for row in joint:
            cell = np.array(block.weight)
            for column in block.columns:
                own = task.sizes[column] * np.eye(task.sizes[column], dtype=int)[row[column]] - 1
                cell = np.multiply.outer(cell, own[:1] if len(own) == 2 else own)
            total = total + cell
        found.append(np.asarray(total).reshape(-1))
    return np.concatenate(found)


def test_the_reference_is_the_definition():
    task = make_task(label=3)
    tables = codes_of(task, 23, 1)
    assert np.array_equal(marginals.reference(tables, task), by_definition(task, tables))


@pytest.mark.parametrize("label", range(5))
def test_wherever_the_label_is(label):
    """At an owner of one column or of two, with two values or with more: every owner in its turn."""
    task = make_task(label=label, block_rows=11)
    tables = codes_of(task, 50, label)
    for result in without_noise(task, tables).values():
        assert np.array_equal(result.opened, marginals.reference(tables, task))


@pytest.mark.parametrize(
    ("owners", "threshold", "lowered", "degree"), [(2, 1, True, 2), (3, 1, True, 2), (4, 1, False, 3), (5, 2, True, 4)]
)
def test_the_degree_is_lowered_where_too_few_seats_could_open_products_of_three(owners, threshold, lowered, degree):
    task = make_task([[2]] + [[3, 4]] * (owners - 1), threshold=threshold, label=0)
    assert (task.lowered, task.degree) == (lowered, degree)
    tables = codes_of(task, 30)
    assert np.array_equal(without_noise(task, tables)["o1"].opened, marginals.reference(tables, task))


def test_pairs_alone_never_lower_a_degree():
    task = make_task(label=None)
    assert task.layout.made.names == ()
    assert (task.lowered, task.degree) == (False, 2)


def test_many_values_rows_and_blocks_of_rows_stay_exact():
    task = make_task([[40, 2], [17], [2, 33, 7]], label=1, rows_at_most=2**20, block_rows=700)
    heavy = replace(task, asked=tuple(replace(block, weight=block.weight * 99991) for block in task.asked))
    assert len(heavy.committee.system.primes) >= 3
    tables = codes_of(heavy, 3000)
    assert np.array_equal(without_noise(heavy, tables)["o2"].opened, marginals.reference(tables, heavy))


def test_more_numbers_than_one_message_may_carry_are_opened_in_several(monkeypatch):
    monkeypatch.setattr(task_module, "_CELLS_AT_ONCE", 40)
    task = make_task([[5, 2], [4], [2, 3]])
    assert len(task.parts) > 3
    assert task.openings == {task.event: len(task.parts)}
    assert [place for part in task.parts for place in part] == list(range(len(task.asked)))
    assert task.event.dimension == task.entries
    tables = codes_of(task, 30)
    assert np.array_equal(without_noise(task, tables)["o0"].opened, marginals.reference(tables, task))


def test_every_owner_adds_its_share_of_the_noise_to_every_number():
    task = make_task(noise=30_000)
    tables = codes_of(task, 30)
    with pytest.MonkeyPatch.context() as patch:
        drawn = kit.noise_drawn(patch, marginals)
        results = kit.execute(marginals, task, tables)
    assert len(drawn) == len(task.owners)
    assert all(np.count_nonzero(share) > 0.9 * task.entries for share in drawn)
    assert np.array_equal(results["o0"].opened, marginals.reference(tables, task) + sum(drawn))


def test_nothing_is_opened_that_was_not_planned():
    task = make_task()
    other = replace(task, noise=task.noise + 3)
    programs = kit.programs_of(marginals, other, codes_of(task, 9))
    with raises(PrivacyError, "PR138"):
        kit.results(task, programs)


@pytest.mark.parametrize("code", [-1.0, 3.0, 0.5, np.nan])
def test_codes_that_are_none_never_leave_an_owner(code):
    task = make_task()
    own = OwnColumns(task, "o0")
    with raises(DataError, "DA130", "o0"):
        own.factors_of(np.array([[code, 0.0]]))


def test_a_table_with_something_that_is_no_code_deals_nothing(monkeypatch):
    """Otherwise that it stops, and after how many blocks, would tell others about a row."""
    task = replace(make_task(), block_rows=8)
    tables = {owner: codes.astype(float) for owner, codes in codes_of(task, 40).items()}
    tables["o1"][35, 0] = 7.5
    dealt = []
    real = Hand.deal
    monkeypatch.setattr(Hand, "deal", lambda hand, numbers: dealt.append(len(numbers)) or real(hand, numbers))
    with raises(DataError, "DA130", "o1"):
        kit.execute(marginals, task, tables)
    assert not dealt
    tables["o1"][35, 0] = 0.0
    kit.execute(marginals, task, tables)
    assert dealt


# --- what is published


def test_residuals_add_up_to_the_marginals():
    """Without noise, all residuals of subsets, spread evenly, are the exact counts."""
    task = make_task(label=0, noise=3)
    tables = codes_of(task, 200)
    found = marginals.NoisyMarginals(task, marginals.reference(tables, task))
    residuals = {residue.columns: residue.values for residue in found.residuals()} | {(): np.array(found.count)}
    joint = np.hstack([tables[owner] for owner in task.owners])
    assert found.count == 200
    for columns in (block.columns for block in task.asked if block.columns):
        shape = [task.sizes[column] for column in columns]
        counts = np.zeros(shape)
        np.add.at(counts, tuple(joint[:, columns].T), 1.0)
        total = np.zeros(shape)
        for count in range(len(columns) + 1):
            for part in combinations(columns, count):
                spread = [size if column in part else 1 for column, size in zip(columns, shape, strict=True)]
                rest = np.prod([size for column, size in zip(columns, shape, strict=True) if column not in part])
                total += residuals[part].reshape(spread) / rest
        assert np.allclose(total, counts, atol=1e-9)


def test_residuals_sum_to_zero_and_have_the_stated_noise():
    """The root mean square over many cells is that of independent noise, projected to sum to zero along every axis."""
    task = make_task([[30, 2], [2], [25, 3]], label=1, noise=3 * 10**8)
    tables = codes_of(task, 5)
    exact = marginals.NoisyMarginals(task, marginals.reference(tables, task)).residuals()
    noisy = marginals.simulate(tables, task, seeded(3)).residuals()
    for before, after in zip(exact, noisy, strict=True):
        noise = after.values - before.values
        assert all(np.abs(after.values.sum(axis=axis)).max() < 1e-6 for axis in range(noise.ndim))
        free = np.prod([size - 1 for size in noise.shape])
        spread = np.sqrt((noise**2).sum() / free) / after.deviation
        assert abs(spread - 1) < 5 / np.sqrt(2 * free)


def test_a_weight_makes_a_block_as_many_times_as_exact():
    task = make_task()
    one, other = replace(task.asked[1], weight=1), replace(task.asked[1], weight=7)
    assert task.deviation(one) == pytest.approx(7 * task.deviation(other))


def test_the_count_must_be_asked_for_to_be_told():
    task = replace(make_task(), asked=make_task().asked[1:])
    found = marginals.NoisyMarginals(task, np.zeros(task.entries, dtype=np.int64))
    with raises(StudyError, "ST484"):
        _ = found.count
