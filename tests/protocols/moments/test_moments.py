"""Second moments: the sums are those of the rows, exactly, whoever holds seats and checks; and rows come and go."""

from __future__ import annotations

import weakref
from dataclasses import replace
from functools import partial
from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from colonnade.errors import CapacityError, ColonnadeError, PrivacyError, StudyError
from colonnade.mpc import Hand, Shares, vocabulary
from colonnade.protocols import roles
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.integers import OwnBlock
from colonnade.protocols.moments.parted import PartedSeat
from colonnade.protocols.moments.published import NoisyMoments
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR, Owner
from colonnade.protocols.rows import digest
from colonnade.received import received
from colonnade.tables.ids import Ids
from tests.support import protocols as kit
from tests.support.errors import raises, refused
from tests.support.protocols import Rows, integers, moments_task as make_task, tables_of

execute = partial(kit.execute, moments)
ORDERS = [(3, seats, 1) for seats in permutations(("o0", "o1", "o2"))]
ORDERS += [(2, seats, 1) for seats in permutations(("o0", "o1", COORDINATOR))]


def opened_and_noise(task, tables):
    """What everybody opened, all the same, and the noise that was drawn for it; rounding is to the nearest."""
    with pytest.MonkeyPatch.context() as patch:
        drawn = kit.noise_drawn(patch, moments)
        kit.nearest(patch)
        results = execute(task, tables)
    assert len(drawn) == len(task.owners)
    assert set(results) == {*task.owners, COORDINATOR}
    opened = [result.opened for result in results.values()]
    assert all(np.array_equal(opened[0], other) for other in opened)
    return opened[0], sum(drawn)


def check(task, tables):
    opened, noise = opened_and_noise(task, tables)
    assert np.array_equal(opened, moments.reference(integers(task, tables), task) + noise)


@settings(max_examples=15, deadline=None)
@given(
    seating=st.sampled_from([*kit.SEATINGS, *ORDERS[:1]]),
    law=st.sampled_from([None, *kit.LAWS]),
    rows=st.integers(1, 40),
    block=st.integers(4, 50),
    window=st.integers(1, 3),
    inputs=st.sampled_from([None, None, "unproven", "covert", "proven"]),
    seed=st.integers(0, 2**31),
)
def test_the_secure_sums_equal_the_plaintext_reference_exactly(seating, law, rows, block, window, inputs, seed):
    owners, seats, threshold = seating
    if law is None:
        task = make_task([1 + i % 3 for i in range(owners)], seats, threshold, block_rows=block)
        tables = tables_of(task, rows, seed)
    else:
        task, rng = (
            kit.grouped_moments_task(owners, seats, threshold, law=law, block_rows=block),
            np.random.default_rng(seed),
        )
        tables = {owner: kit.grouped_rows(rng, rows) for owner in task.owners}
    if inputs is not None:
        task = kit.active(task)
        task = kit.active(task, inputs=inputs if inputs in task.possible_proofs else "unproven")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Moments, "blocks_per_window", property(lambda self: window))
        check(task, tables)


@pytest.mark.parametrize("law", [*kit.LAWS, "own"])
def test_all_laws_of_noise_and_noise_that_owners_named_are_opened_with_checks_and_without(law):
    named = {"law": "discrete-laplace", "noise": 11, "own_noise": (5, 11, 5), "known": 1}
    task, rng = kit.grouped_moments_task(**(named if law == "own" else {"law": law})), np.random.default_rng(3)
    for same in (task, kit.active(task)):
        check(same, {owner: kit.grouped_rows(rng, 30) for owner in task.owners})


@pytest.mark.parametrize(("owners", "seats", "threshold"), ORDERS)
def test_parts_give_the_plaintext_sums_in_every_order_of_seats(owners, seats, threshold):
    task = make_task([3, 1, 2][:owners], seats, threshold, block_rows=7)
    assert task.in_parts
    check(task, tables_of(task, 40, 3))


def test_large_values_and_blocks_of_many_numbers_stay_exact():
    """Words and not floats, several blocks of rows, and integers that are no residues of their own."""
    task = make_task([9, 8, 10], gamma=2**23, constant=2**10, rows_at_most=4000)
    tables = tables_of(task, 3100, 11)
    assert 3100 * 8 * len(task.committee.system.primes) > 1 << 16
    assert max(np.abs(one).max() for one in integers(task, tables).values()) > 2**21
    check(task, tables)
    large = make_task([2, 2, 2], gamma=2**18, constant=2**17, rows_at_most=2**20)
    assert len(large.committee.system.primes) == 3
    check(large, tables_of(large, 300, 7))


@pytest.mark.parametrize(
    "task",
    [
        kit.active(make_task([2, 2, 2])),
        make_task([2, 2, 2, 2]),
        make_task([2, 2, 2, 2], ("o0", "o1", "o2")),
        kit.hidden_moments_task(3),
    ],
    ids=["active", "four seats", "an owner without a seat", "hidden"],
)
def test_others_deal_on_polynomials(task):
    assert not task.in_parts


def test_a_seat_is_told_uniform_numbers(exact, monkeypatch):
    """The same rows many times: what a seat receives of them is uniform, and the parts of two seats are the rows."""
    task = make_task([1, 1, 1], block_rows=5000, rows_at_most=10_000, gamma=64)
    seen: dict[tuple[str, str], np.ndarray] = {}
    receive = Hand.receive

    def watched(hand, dealer, shape, **how):
        found = receive(hand, dealer, shape, **how)
        if len(shape) == 2:
            seen[hand.name, dealer] = found.values
        return found

    monkeypatch.setattr(Hand, "receive", watched)
    execute(task, {name: np.full((4000, 1), 0.5) for name in task.owners})
    system = task.committee.system
    assert len(seen) == 6
    for values in seen.values():
        for prime, row in zip(system.primes, values, strict=True):
            counts = np.histogram(row, np.linspace(-prime / 2, prime / 2, 17))[0]
            assert stats.chisquare(counts).pvalue > 1e-7
    for dealer in task.owners:
        one, other = (values for (_, who), values in seen.items() if who == dealer)
        assert np.all(system.reduce(one + other) == 32)


def test_no_seat_is_idle(exact, monkeypatch):
    """Without what one seat adds, the opened numbers are others."""
    task = make_task([2, 2, 2])
    add = PartedSeat._add
    for lazy in task.owners:
        monkeypatch.setattr(PartedSeat, "_add", lambda seat, due, lazy=lazy: seat.me.name == lazy or add(seat, due))
        refused(Exception, "SH005", execute, task, tables_of(task, 30, 1))


class DealsNoiseLate(Hand):
    """It deals its noise to the last seat only when another one has opened, so that it would choose the result."""

    entries = 0

    def deal(self, values, *, degree=None):
        if self.name != "o0" or values.shape != (self.entries,):
            return super().deal(values, degree=degree)
        self.drawn = self.system.uniform(values.shape, self.common.pair_stream("o0", "o1"))
        return Shares(np.zeros_like(self.drawn), 1)

    def send_opening(self, shares, to):
        if self.name == "o0" and hasattr(self, "drawn"):
            received(self.links["o1"], "o1", vocabulary.opening(shares.shape, len(self.system.primes)))
            raise AssertionError("it has seen the release before it dealt its noise")
        super().send_opening(shares, to)


def test_nobody_sees_the_release_before_it_has_dealt_its_noise(monkeypatch):
    task = kit.active(make_task())
    monkeypatch.setattr(DealsNoiseLate, "entries", task.entries)
    monkeypatch.setattr(roles, "Hand", DealsNoiseLate)
    with pytest.raises((ColonnadeError, ExceptionGroup)) as caught:
        execute(task, tables_of(task, 30, 1))
    assert "it has seen the release" not in str(caught.value)


@pytest.mark.parametrize("widths", [[6, 7], [4, 4, 4], [2] * 7])
def test_an_owner_draws_one_share_of_the_noise(stream, widths):
    """Sk(mu/P) has variance 2 mu/P: on the diagonal once, above it twice. Each entry has noise of its own."""
    task = make_task(widths, noise=10**6)
    draws = np.array([moments.noise_share(task, stream) for _ in range(800)], dtype=float)
    on, share = task.weights == 1, 2 * task.noise / len(task.owners)
    assert np.count_nonzero(on) == task.width
    assert np.mean(draws[:, on] ** 2) == pytest.approx(share, rel=0.05)
    assert np.mean(draws[:, ~on] ** 2) == pytest.approx(2 * share, rel=0.02)
    each = np.mean(draws**2, axis=0) / np.where(on, share, 2 * share)
    assert np.all(np.abs(each - 1) < 0.25)
    assert np.max(np.abs(np.corrcoef(draws.T) - np.eye(task.entries))) < 0.2


def test_moments_are_read_back_in_the_units_of_the_columns():
    task = make_task([1, 1, 1], gamma=2**12, constant=2**11)
    X = np.random.default_rng(0).uniform(-0.5, 0.9, (500, 3))
    whole = {f"o{i}": np.rint(X[:, [i]] * task.gamma).astype(np.int64) for i in range(3)}
    result = NoisyMoments(task, moments.reference(whole, task))
    gram, cross = result.with_label("o1.c0")
    assert result.count == pytest.approx(500)
    for found, due, within in (
        (result.means, X.mean(axis=0), 1e-3),
        (result.covariance, np.cov(X.T, bias=True), 1e-3),
        (cross, X[:, [0, 2]].T @ X[:, 1], 0.3),
        (gram, X[:, [0, 2]].T @ X[:, [0, 2]], 0.3),
    ):
        np.testing.assert_allclose(found, due, atol=within)


def test_a_row_beyond_the_bound_cannot_enter(stream):
    task = make_task([3, 3])
    own = OwnBlock(task, "o0")
    whole = own.quantise(np.array([[0.5, 0.5, 0.5], [9.0, 0.0, 0.0]]), stream)
    assert np.all((whole**2).sum(axis=1) <= own.limit)
    assert np.any(whole[0] != 0)
    assert np.all(whole[1] == 0)


def test_other_people_and_more_than_the_study_allows_are_refused():
    task = make_task([1, 1, 1], rows_at_most=10)
    said = set()
    for other in (Rows(np.zeros((3, 1)), ids=["x", "y", "z"]), Rows(np.zeros((2, 1)))):
        with raises(StudyError, "ST532", "o0", "o2") as caught:
            execute(task, {"o0": Rows(np.zeros((3, 1))), "o1": Rows(np.zeros((3, 1))), "o2": other})
        said.add(str(caught.value))
    assert len(said) == 1, "the sentence tells neither a number of rows nor which are equal"
    with raises(CapacityError, "CA030", "rows_at_most"):
        execute(task, {name: Rows(np.zeros((11, 1))) for name in task.owners})


def test_what_does_not_fit_is_refused_beforehand_and_wide_tables_are_dealt_in_smaller_blocks():
    def wide(task, columns, blocks):
        more = [replace(block, columns=tuple(map(str, range(columns)))) for block in task.blocks[:blocks]]
        return replace(task, blocks=(*more, *task.blocks[blocks:]))

    for task, code in (
        (make_task([5, 5], gamma=2**25, rows_at_most=2**30), "CA027"),
        (wide(make_task([1, 1]), 9000, 2), "CA026"),  # more than one message can carry
    ):
        with raises(CapacityError, code):
            _ = task.committee
    task = wide(make_task([1, 1, 1], gamma=4096, rows_at_most=2**20), 4000, 1)
    assert 2**26 < 3 * 4000 * task.rows_per_block * len(task.committee.system.primes) <= 2**27
    assert make_task([900, 1, 1]).rows_per_block == 8192


def test_the_agreement_tells_tasks_apart_and_nothing_is_revealed_that_was_not_planned():
    task = make_task([2, 2, 2])
    swapped = replace(task, blocks=(task.blocks[0], task.blocks[2], task.blocks[1]))
    for other in (swapped, replace(task, noise=task.noise + 3), replace(task, constant=33), replace(task, gamma=65)):
        assert other.agreement != task.agreement
    assert make_task([2, 2, 2]).agreement == task.agreement
    assert task.committee.system.modulus > 2 * task.bound >= 2 * task.rows_at_most * task.norm_squared
    with raises(PrivacyError, "PR138"):
        Owner("o0", {}, task.committee, planned={}).reveal(None, to=["o0"], event=task.event, shape=(1,), bound=1)


# --- rows that come and go

SALT = bytes(range(32))
MANY = [f"p{i:06d}" for i in range(40_000)]


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ([], "630dcd2966c4336691125448bbb25b4ff412a49c732db2c8abc1b8581bd710dd"),
        (["a", "é", "😀x", ""], "144c80d726f4d6b245b07a2306735d637d8fafecf8b3c7c64c38fe9ab7d0d37a"),
        (MANY, "4c652930f4d6451db5b2425e4a688e19eea88cf5e5182d1034bec964901d29b9"),
    ],
    ids=["none", "few", "many"],
)
def test_the_digest_is_what_it_always_was(ids, found):
    back = Ids(pa.array(ids[::-1], pa.large_string()), np.arange(len(ids))[::-1].copy())
    for given_as in (ids, Ids(pa.array(ids, pa.large_string())), back):
        assert digest(SALT, given_as).hex() == found


class Passing(Rows):
    """Rows of which it counts those that are still alive when the next block is made."""

    def blocks(self, rows):
        self.made, self.most = [], 0
        for start in range(0, len(self), rows):
            block = self.values[start : start + rows].copy()
            self.made.append(weakref.ref(block))
            self.most = max(self.most, sum(made() is not None for made in self.made))
            yield block
            del block


def test_an_owner_holds_a_block_at_a_time():
    task = make_task(block_rows=50, rows_at_most=10_000, noise=9)
    tables = {owner: Passing(np.full((2000, 2), 0.5)) for owner in task.owners}
    execute(task, tables)
    for table in tables.values():
        assert len(table.made) == 40
        assert table.most <= 2
