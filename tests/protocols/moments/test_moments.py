from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import CapacityError, PrivacyError, StudyError
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.integers import OwnBlock
from colonnade.protocols.moments.published import NoisyMoments
from colonnade.protocols.roles import COORDINATOR, Owner
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import Rows, integers, moments_task as make_task, tables_of

execute = partial(kit.execute, moments)


@settings(max_examples=20, deadline=None)
@given(
    seating=st.sampled_from(kit.SEATINGS), rows=st.integers(1, 40), block=st.integers(1, 50), seed=st.integers(0, 2**31)
)
def test_the_secure_sums_equal_the_plaintext_reference_exactly(seating, rows, block, seed):
    owners, seats, threshold = seating
    task = make_task([1 + i % 3 for i in range(owners)], seats, threshold, block_rows=block)
    tables = tables_of(task, rows, seed)
    with pytest.MonkeyPatch.context() as patch:
        kit.no_noise(patch)
        kit.nearest(patch)
        results = execute(task, tables)
    want = moments.reference(integers(task, tables), task)
    assert set(results) == {*task.owners, COORDINATOR}
    for result in results.values():
        assert np.array_equal(result.opened, want)


def test_large_values_stay_exact(exact):
    task = make_task([2, 2, 2], gamma=2**18, constant=2**17, rows_at_most=2**20)
    assert len(task.committee.system.primes) == 3
    tables = tables_of(task, 300, 7)
    opened = execute(task, tables)[COORDINATOR].opened
    assert np.array_equal(opened, moments.reference(integers(task, tables), task))


def test_the_noise_of_all_owners_is_in_the_result(nearest, monkeypatch):
    """A row of zeros: but for the constant, what is opened is exactly the sum of one share of noise an owner."""
    drawn = kit.noise_drawn(monkeypatch, moments)
    task = make_task([4, 4, 4], noise=3 * 10**6, constant=1)
    opened = execute(task, {name: np.zeros((1, 4)) for name in task.owners})[COORDINATOR].opened
    opened[-1] -= task.constant**2
    assert len(drawn) == 3
    assert all(np.count_nonzero(share) > task.entries / 2 for share in drawn)
    assert np.array_equal(opened, sum(drawn))


@pytest.mark.parametrize("widths", [[6, 7], [4, 4, 4], [2] * 7])
def test_an_owner_draws_one_share_of_the_noise(stream, widths):
    """Sk(mu/P) has variance 2 mu/P: on the diagonal once, above it twice."""
    task = make_task(widths, noise=10**6)
    draws = np.array([moments.noise_share(task, stream) for _ in range(800)], dtype=float)
    on = task.weights == 1
    share = 2 * task.noise / len(task.owners)
    assert np.count_nonzero(on) == task.width
    assert np.mean(draws[:, on] ** 2) == pytest.approx(share, rel=0.05)
    assert np.mean(draws[:, ~on] ** 2) == pytest.approx(2 * share, rel=0.02)
    # Each entry has noise of its own, and each has it.
    each = np.mean(draws**2, axis=0) / np.where(on, share, 2 * share)
    assert np.all(np.abs(each - 1) < 0.25)
    between = np.corrcoef(draws.T) - np.eye(task.entries)
    assert np.max(np.abs(between)) < 0.2


def test_everyone_gets_the_same_result():
    task = make_task([2, 2, 2])
    opened = [result.opened for result in execute(task, tables_of(task, 50, 3)).values()]
    assert all(np.array_equal(opened[0], other) for other in opened)


def test_moments_are_read_back_in_the_units_of_the_columns():
    task = make_task([1, 1, 1], gamma=2**12, constant=2**11)
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.9, (500, 3))
    whole = {f"o{i}": np.rint(X[:, [i]] * task.gamma).astype(np.int64) for i in range(3)}
    result = NoisyMoments(task, moments.reference(whole, task))
    assert result.count == pytest.approx(500)
    np.testing.assert_allclose(result.means, X.mean(axis=0), atol=1e-3)
    np.testing.assert_allclose(result.covariance, np.cov(X.T, bias=True), atol=1e-3)
    gram, cross = result.with_label("o1.c0")
    np.testing.assert_allclose(cross, X[:, [0, 2]].T @ X[:, 1], rtol=1e-3, atol=0.05)
    np.testing.assert_allclose(gram, X[:, [0, 2]].T @ X[:, [0, 2]], rtol=1e-3, atol=0.05)


def test_a_row_beyond_the_bound_cannot_enter(stream):
    task = make_task([3, 3])
    own = OwnBlock(task, "o0")
    rows = np.array([[0.5, 0.5, 0.5], [9.0, 0.0, 0.0]])
    whole = own.quantise(rows, stream)
    assert np.all((whole**2).sum(axis=1) <= own.limit)
    assert np.all(whole[1] == 0)
    assert np.any(whole[0] != 0)


def test_owners_with_different_people_are_told_so():
    task = make_task([1, 1, 1])
    tables = {name: Rows(np.zeros((3, 1))) for name in task.owners}
    tables["o2"] = Rows(np.zeros((3, 1)), ids=["x", "y", "z"])
    with raises(StudyError, "ST532", "o0", "o2") as other:
        execute(task, tables)
    tables["o2"] = Rows(np.zeros((2, 1)))
    with raises(StudyError, "ST532", "o0", "o2") as fewer:
        execute(task, tables)
    assert str(fewer.value) == str(other.value), "the sentence tells neither a number of rows nor which are equal"


def test_more_rows_than_the_study_allows_are_refused():
    task = make_task([1, 1, 1], rows_at_most=10)
    with raises(CapacityError, "CA030", "rows_at_most"):
        execute(task, {name: Rows(np.zeros((11, 1))) for name in task.owners})


def test_numbers_that_would_not_fit_are_refused_before_anything_is_sent():
    with raises(CapacityError, "CA027"):
        _ = make_task([5, 5], gamma=2**25, rows_at_most=2**30).committee


def test_a_wide_table_is_dealt_in_smaller_blocks():
    task = make_task([1, 1, 1], gamma=4096, rows_at_most=2**20)
    task = replace(task, blocks=(replace(task.blocks[0], columns=tuple(map(str, range(4000)))), *task.blocks[1:]))
    primes = len(task.committee.system.primes)
    assert 2**26 < 3 * 4000 * task.rows_per_block * primes <= 2**27
    assert make_task([900, 1, 1]).rows_per_block == 8192


def test_more_columns_than_one_message_can_carry_are_refused_beforehand():
    task = make_task([1, 1])
    wide = replace(task, blocks=tuple(replace(b, columns=tuple(map(str, range(9000)))) for b in task.blocks))
    with raises(CapacityError, "CA026"):
        _ = wide.committee


def test_the_agreement_tells_tasks_apart():
    task = make_task([2, 2, 2])
    swapped = replace(task, blocks=(task.blocks[0], task.blocks[2], task.blocks[1]))
    for other in (swapped, replace(task, noise=task.noise + 3), replace(task, constant=33), replace(task, gamma=65)):
        assert other.agreement != task.agreement
    assert make_task([2, 2, 2]).agreement == task.agreement


def test_nothing_can_be_revealed_that_was_not_planned():
    task = make_task([1, 1, 1])
    role = Owner("o0", {}, task.committee, planned={})
    with raises(PrivacyError, "PR138"):
        role.reveal(None, to=["o0"], event=task.event, shape=(1,), bound=1)


def test_the_bound_covers_the_largest_possible_sums():
    task = make_task([2, 2, 2])
    assert task.bound >= task.rows_at_most * task.norm_squared
    assert task.committee.system.modulus > 2 * task.bound
