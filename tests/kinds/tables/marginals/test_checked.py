"""Marginals where participants may deviate: the same integers, and what deviates ends the study."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from colonnade.errors import NO_RESULT, ShareError
from colonnade.kinds.tables.marginals import programs as marginals, stages, task as task_module
from colonnade.kinds.tables.marginals.integers import OwnColumns
from colonnade.kinds.tables.marginals.merging import Merge, apply
from colonnade.kinds.tables.marginals.stages import StagedMarginals
from colonnade.kinds.tables.marginals.task import Coded
from colonnade.mpc import Hand, Shares
from colonnade.mpc.verify.claims import MOST_HELD
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.session import Played
from tests.kinds.tables.marginals import test_hidden as hidden
from tests.kinds.tables.marginals.test_marginals import tasks, without_noise
from tests.support import protocols as kit
from tests.support.protocols import active, codes_of, marginals_task

INPUTS = st.sampled_from(["unproven", "covert", "proven"])
few = partial(settings, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def short_windows(patch, blocks):
    patch.setattr(task_module.Marginals, "blocks_per_window", property(lambda self: blocks))


@few(max_examples=9)
@given(task=tasks(), rows=st.integers(1, 40), window=st.integers(1, 3), inputs=INPUTS, seed=st.integers(0, 999))
def test_the_checked_sums_equal_the_plaintext_reference_exactly(task, rows, window, inputs, seed):
    task = active(task, inputs=inputs)
    tables = codes_of(task, rows, seed)
    with pytest.MonkeyPatch.context() as patch:
        short_windows(patch, window)
        results = without_noise(task, tables)
    assert task.degree == task.trust.threshold
    assert set(results) == {*task.owners, COORDINATOR}
    for result in results.values():
        assert np.array_equal(result.opened, marginals.reference(tables, task))


@pytest.mark.parametrize("inputs", ["unproven", "proven"])
@pytest.mark.parametrize("label", [1, 4])  # of two values, and of three
@pytest.mark.parametrize("seating", [kit.SEATINGS[1], kit.SEATINGS[2], kit.SEATINGS[4]])
def test_labels_of_two_and_of_three_values(seating, label, inputs):
    owners, seats, threshold = seating
    sizes = [[3, 2], [4], [2, 3], *([2] for _ in range(owners - 3))]
    task = active(marginals_task(sizes, seats, threshold, label, block_rows=9), inputs=inputs)
    assert task.lowered
    tables = codes_of(task, 20)
    for result in without_noise(task, tables).values():
        assert np.array_equal(result.opened, marginals.reference(tables, task))


@few(max_examples=5)
@given(
    seating=st.sampled_from([(3, ("o2", COORDINATOR, "o0"), 1), *kit.SEATINGS[:5]]),
    label=st.none() | st.integers(0, 2),
    size=st.integers(1, 30),
    window=st.integers(1, 3),
    inputs=INPUTS,
    seed=st.integers(0, 2**31),
)
def test_the_same_where_nobody_knows_who_is_held_by_all(seating, label, size, window, inputs, seed):
    owners, seats, threshold = seating
    sizes = [[3, 2], [4], *([2 + i] for i in range(owners - 2))]
    task = active(hidden.make_task(sizes, seats, threshold, label, block_rows=7), inputs=inputs)
    tables = hidden.random_tables(task, size, 0.7, seed)
    with pytest.MonkeyPatch.context() as patch:
        short_windows(patch, window)
        results = without_noise(task, tables)
    plain = marginals.reference({name: hidden.dealt(table) for name, table in tables.items()}, task)
    for result in results.values():
        assert np.array_equal(result.opened, plain)


@pytest.mark.parametrize("inputs", ["unproven", "proven"])
@pytest.mark.parametrize("seating", [kit.SEATINGS[0], kit.SEATINGS[2]])
def test_both_stages_are_checked(seating, inputs):
    owners, seats, threshold = seating
    sizes = [[3, 2], [4], *([2] for _ in range(owners - 2))]
    second = active(marginals_task(sizes, seats, threshold, label=1), inputs=inputs)
    fine = (Coded("o0", "c0", 9), *second.coded[1:])
    merges = tuple(Merge(column.size) for column in second.coded)
    task = StagedMarginals(fine, merges, (3, *range(2, 2 + len(fine))), second, noise=3 * owners)
    assert task.trust.active
    assert len(task.committee.system.primes) >= (3 if inputs == "proven" else 1)
    assert [event.lost > 0 for event in task.events] == [False, inputs == "proven"]
    tables = codes_of(task.stages[0], 25)
    with pytest.MonkeyPatch.context() as patch:
        kit.no_noise(patch)
        results = kit.execute(stages, task, tables)
    for result in results.values():
        assert np.array_equal(result.first.opened, marginals.reference(tables, task.stages[0]))
        own = {name: [result.merged[place] for place in second.held_by(name)] for name in task.owners}
        merged = {name: apply(codes.astype(float), own[name]).astype(int) for name, codes in tables.items()}
        assert np.array_equal(result.second.opened, marginals.reference(merged, task.stages[1]))


# --- cheats


def ends(task, tables):
    """Whether everybody has the reference, or nobody has anything because a check failed."""
    with pytest.MonkeyPatch.context() as patch:
        kit.no_noise(patch)
        found = kit.outcomes(task, kit.programs_of(marginals, task, tables))
    if all(isinstance(one, Played) for one in found.values()):
        want = marginals.reference(
            {name: hidden.dealt(table) for name, table in tables.items()} if task.hidden else tables, task
        )
        right = all(np.array_equal(one.result.opened, want) for one in found.values())
        return "right" if right else "wrong"
    assert not any(isinstance(one, Played) for one in found.values())
    errors = [one for one in found.values() if isinstance(one, ShareError)]
    assert errors
    assert all(NO_RESULT in str(one) or "nothing was opened" in str(one) for one in errors)
    return "caught"


def two_ones(dealt):
    """In a code of three values; the last coordinate is then minus four."""
    dealt[0, :2] = 2.0


def no_one_at_all(dealt):
    """The same: the last coordinate is then two, and two others are two less."""
    dealt[0, :2] = -4.0, 2.0


def twice_a_code(dealt):
    dealt[0, :2] *= 2.0


def not_the_product(dealt):
    """The last column is a product with the label."""
    dealt[1, -1] += 1.0


def deals(monkeypatch, cheat):
    """What the first owner deals is changed, in its proof too."""
    real = OwnColumns.dealt

    def dealt(self, whole):
        found = real(self, whole)
        if self.owner == "o0":
            found = found.copy()
            cheat(found)
        return found

    monkeypatch.setattr(OwnColumns, "dealt", dealt)


@pytest.mark.parametrize("cheat", [two_ones, no_one_at_all, twice_a_code, not_the_product])
@pytest.mark.parametrize("seating", [kit.SEATINGS[1], kit.SEATINGS[2], kit.SEATINGS[7]])
def test_an_owner_that_deals_no_codes_is_caught_where_they_are_proven(monkeypatch, seating, cheat):
    owners, seats, threshold = seating
    sizes = [[3, 2], [4], *([2] for _ in range(owners - 2))]
    task = marginals_task(sizes, seats, threshold, label=1)
    tables, proven = codes_of(task, 12), active(task, inputs="proven")
    assert proven.layout.dealt[0].names[-1] == (0, 1)  # a product with the label
    assert ends(proven, tables) == "right"
    deals(monkeypatch, cheat)
    assert ends(proven, tables) == "caught"
    assert ends(active(task), tables) == "wrong"


def present_twice(dealt):
    dealt[0, -1] = 2.0


@pytest.mark.parametrize("cheat", [two_ones, no_one_at_all, present_twice])
def test_the_same_where_members_are_hidden(monkeypatch, cheat):
    task = hidden.make_task()
    tables = hidden.random_tables(task, 12, 1.0, 3)
    assert ends(active(task, inputs="proven"), tables) == "right"
    deals(monkeypatch, cheat)
    assert ends(active(task, inputs="proven"), tables) == "caught"
    assert ends(active(task), tables) == "wrong"


def lowers(monkeypatch, number):
    """The first seat that is asked to lower the degree of shares for the so many-th time deals another number."""
    real, done = Hand.lower, []

    def lower(self, shares):
        if self.name == "o0":
            done.append(shares)
            if len(done) == number:
                changed = shares.values.copy()
                changed.reshape(len(changed), -1)[0, 0] += 1.0  # modulo one prime alone
                shares = Shares(changed, shares.degree)
        return real(self, shares)

    monkeypatch.setattr(Hand, "lower", lower)
    return done


@pytest.mark.parametrize("seating", [kit.SEATINGS[1], kit.SEATINGS[2], kit.SEATINGS[4]])
@pytest.mark.parametrize(("make", "often"), [(marginals_task, 2), (hidden.make_task, 5)])
def test_a_seat_that_lowers_another_number_is_caught(seating, make, often):
    """Of products with the label, of flags, and of sums; at least so often."""
    owners, seats, threshold = seating
    sizes = [[2, 3], [3, 2], *([2] for _ in range(owners - 2))]
    task = active(make(sizes, seats, threshold, 0))
    tables = hidden.random_tables(task, 12, 1.0, 3) if task.hidden else codes_of(task, 12)
    with pytest.MonkeyPatch.context() as patch:
        done = lowers(patch, -1)
        assert ends(task, tables) == "right"
    assert len(done) >= often
    for number in range(1, len(done) + 1):
        with pytest.MonkeyPatch.context() as patch:
            lowers(patch, number)
            assert ends(task, tables) == "caught"


# --- sizes


def test_what_a_seat_keeps_of_a_window_is_bounded_by_public_sizes():
    for width in (3, 40, 400):
        for inputs in ("unproven", "proven"):
            task = active(marginals_task([[width, 2], [width], [width]], rows_at_most=10**6), inputs=inputs)
            primes = len(task.committee.system.primes)
            rows = task.rows_per_block * task.blocks_per_window
            assert rows == task.rows_at_once <= task.rows_per_window <= 65_536
            assert 8 * primes * rows * task.width <= MOST_HELD
            assert primes >= (3 if inputs == "proven" else 2)
            assert len(task.for_sums.primes) <= primes


def test_semi_honest_tasks_are_as_they_were():
    task = marginals_task()
    assert task.proven == {}
    assert task.committee.system == task.for_sums
    assert "security" not in task.agreement
    assert task.event.lost == 0
    assert active(task, inputs="proven").event.lost > 0
    assert active(task).event.lost == 0
