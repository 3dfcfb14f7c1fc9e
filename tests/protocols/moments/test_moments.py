"""Second moments: the sums are those of the rows, exactly, whoever holds seats and checks; and rows come and go."""

from __future__ import annotations

import weakref
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from colonnade.errors import CapacityError, ColonnadeError, PrivacyError, StudyError
from colonnade.message_schema import receive_message
from colonnade.mpc import ShareEngine, Shares, messages as vocabulary
from colonnade.privacy import Observer, Trust, epsilon, views
from colonnade.protocols import roles
from colonnade.protocols.joint_sum.engine import ReplicatedSumSeat
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.programs import OwnMoments
from colonnade.protocols.moments.task import ColumnBlock, Moments, NoisyMoments, with_own_budgets
from colonnade.protocols.roles import COORDINATOR, Owner
from colonnade.protocols.rows import digest
from colonnade.tables.keys import Ids
from colonnade.tables.slots import RowSlots
from tests.support import protocols as kit
from tests.support.errors import raises, refused
from tests.support.protocols import (
    LAWS,
    Rows,
    grouped_rows as random_rows,
    hidden_moments_task as hidden_task,
    integers,
    moments_task as make_task,
    tables_of,
)

execute = partial(kit.execute, moments)
ORDERS = [(n, seats, 1) for n, third in ((3, "o2"), (2, COORDINATOR)) for seats in permutations(("o0", "o1", third))]


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
    inputs=st.sampled_from([None, None, "unproven", "proven"]),
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
    receive = ShareEngine.receive

    def watched(hand, dealer, shape, **how):
        found = receive(hand, dealer, shape, **how)
        if len(shape) == 2:
            seen[hand.name, dealer] = found.values
        return found

    monkeypatch.setattr(ShareEngine, "receive", watched)
    execute(task, {name: np.full((4000, 1), 0.5) for name in task.owners})
    system = task.committee.system
    assert len(seen) == 6
    for values in seen.values():
        for prime, row in zip(system.primes, values, strict=True):
            counts = np.histogram(row, np.linspace(-prime / 2, prime / 2, 17))[0]
            assert stats.chisquare(counts).pvalue > 1e-9
    for dealer in task.owners:
        one, other = (values for (_, who), values in seen.items() if who == dealer)
        assert np.all(system.reduce(one + other) == 32)


def test_no_seat_is_idle(exact, monkeypatch):
    """Without what one seat adds, the opened numbers are others."""
    task = make_task([2, 2, 2])
    add = ReplicatedSumSeat._sum
    for lazy in task.owners:
        monkeypatch.setattr(
            ReplicatedSumSeat, "_sum", lambda seat, due, lazy=lazy: seat.me.name == lazy or add(seat, due)
        )
        refused(Exception, "SH005", execute, task, tables_of(task, 30, 1))


class DealsNoiseLate(ShareEngine):
    """It deals its noise to the last seat only when another one has opened, so that it would choose the result."""

    entries = 0

    def deal(self, values, *, degree=None):
        if self.name != "o0" or values.shape != (self.entries,):
            return super().deal(values, degree=degree)
        self.drawn = self.system.uniform(values.shape, self.common.pair_stream("o0", "o1"))
        return Shares(np.zeros_like(self.drawn), 1)

    def send_opening(self, shares, to):
        if self.name == "o0" and hasattr(self, "drawn"):
            receive_message(
                self.links["o1"], "o1", vocabulary.residues_message("opening", shares.shape, len(self.system.primes))
            )
            raise AssertionError("it has seen the release before it dealt its noise")
        super().send_opening(shares, to)


def test_nobody_sees_the_release_before_it_has_dealt_its_noise(monkeypatch):
    task = kit.active(make_task())
    monkeypatch.setattr(DealsNoiseLate, "entries", task.entries)
    monkeypatch.setattr(roles, "ShareEngine", DealsNoiseLate)
    with pytest.raises((ColonnadeError, ExceptionGroup)) as caught:
        execute(task, tables_of(task, 30, 1))
    assert "it has seen the release" not in str(caught.value)


@pytest.mark.parametrize("widths", [[6, 7], [4, 4, 4], [2] * 7])
def test_an_owner_draws_one_share_of_the_noise(stream, widths):
    """Sk(mu/P) has variance 2 mu/P: on the diagonal once, above it twice. Each entry has noise of its own."""
    task = make_task(widths, noise=10**6)
    draws = np.array([moments.sample_noise_share(task, stream) for _ in range(800)], dtype=float)
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
    own = OwnMoments(task, "o0")
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


@pytest.mark.parametrize("gamma", [2048, 4096])
def test_blocks_of_rows_fill_the_windows_that_are_proven_together(gamma):
    trust = Trust(("a", "b", "c"), ("a", "b", "c"), 1, "active", "proven")
    blocks = tuple(ColumnBlock(owner, tuple(f"c{i}" for i in range(10)), 1.0) for owner in trust.owners)
    task = Moments(blocks, trust, gamma=gamma, constant=gamma // 2, rows_at_most=70_000, noise=3)
    each, window = task.rows_per_block, task.proof_rows
    assert task.rows_per_window == 65_536 >= each * task.blocks_per_window > 65_536 - each
    assert window - 32 * -(-window // 8192) < window // each * each <= window < task.rows_per_window


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


# --- people whom all owners hold, when nobody knows who they are


TOKEN = bytes(16)


def placed(values, slots, size):
    """Encoded rows in slots, as a table would give them."""
    return kit.Rows(values, places=RowSlots(np.asarray(slots, dtype=np.int64), size, TOKEN))


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


def joined_rows(task, tables):
    """The plain join: the rows of the slots that are in every table."""
    found = sorted(set.intersection(*(set(table.places.slots.tolist()) for table in tables.values())))
    return {owner: dealt(tables[owner], task.gamma)[found, :-1] for owner in task.owners}


def execute_hidden(task, tables, log=None, rounded=True):
    """What everybody opened, and the noise that was drawn for it; rounding is to the nearest."""
    with pytest.MonkeyPatch.context() as patch:
        drawn = kit.noise_drawn(patch, moments)
        if rounded:
            kit.nearest(patch)
        results = kit.execute(moments, task, tables, log=log)
    assert len(drawn) == len(task.owners)
    assert set(results) == {*task.owners, COORDINATOR}
    return results, sum(drawn)


def check_hidden(task, tables):
    """What all opened is the sum over the plain join, and noise."""
    results, noise = execute_hidden(task, tables)
    want = moments.reference(joined_rows(task, tables), replace(task, hidden=False))
    assert np.array_equal(want, moments.reference({n: dealt(table, task.gamma) for n, table in tables.items()}, task))
    assert all(np.array_equal(result.opened, want + noise) for result in results.values())


@settings(max_examples=15, deadline=None)
@given(
    seating=st.sampled_from([(3, ("o2", COORDINATOR, "o0"), 1), *kit.SEATINGS[:5]]),
    law=st.sampled_from(LAWS),
    size=st.integers(1, 30),
    chance=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    block=st.integers(4, 40),
    inputs=st.sampled_from([None, "unproven", "proven"]),
    seed=st.integers(0, 2**31),
)
def test_the_secure_sums_are_those_of_the_plain_join(seating, law, size, chance, block, inputs, seed):
    owners, seats, threshold = seating
    task = hidden_task(owners, seats, threshold, law, block_rows=block)
    if inputs is not None:
        task = kit.active(task)
        task = kit.active(task, inputs=inputs if inputs in task.possible_proofs else "unproven")
    check_hidden(task, random_tables(task, size, chance, seed))


def test_owners_who_named_their_noise_large_numbers_of_many_slots_and_nobody_in_common():
    own = hidden_task(3, law="discrete-laplace", noise=11, own_noise=(5, 11, 3), known=1)
    assert len(own.events) == 3
    check_hidden(own, random_tables(own, 40, 0.8, 3))
    large = hidden_task(3, gamma=2**18, constant=2**17, rows_at_most=2**20, block_rows=350)
    check_hidden(large, random_tables(large, 1000, 0.9, 5))
    task, rng = hidden_task(2), np.random.default_rng(0)
    tables = {"o0": placed(random_rows(rng, 5), range(5), 10), "o1": placed(random_rows(rng, 4), range(6, 10), 10)}
    results, noise = execute_hidden(task, tables)
    assert np.array_equal(results["o0"].opened, noise)
    assert noise.any()


def test_what_is_sent_has_the_same_sizes_whoever_matches_and_shares_differ_from_run_to_run():
    """Same lists, same universe: only the slots differ, so that all, some or none are in common."""
    task, rng = hidden_task(3, block_rows=7), np.random.default_rng(2)
    values = {name: random_rows(rng, 10) for name in task.owners}
    sizes, words = [], []
    for step in (0, 0, 3, 10):
        log = {}
        tables = {name: placed(values[name], np.arange(10) + step * i, 30) for i, name in enumerate(task.owners)}
        execute_hidden(task, tables, log)
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
    task = hidden_task(2)
    tables = random_tables(task, 10, 0.7, 4)
    refused(StudyError, "ST531", execute_hidden, replace(task, hidden=False), tables)
    for table in tables.values():
        table.places = None
    refused(StudyError, "ST530", execute_hidden, task, tables)


# --- what one record can do


def people_tables(rng, task, people, chance):
    """Integer rows by person for each owner, who holds each person with this chance."""
    held = {}
    for owner in task.owners:
        rows = np.rint(random_rows(rng, people) * task.gamma).astype(np.int64)
        rows[:, 0] = rng.choice([-task.gamma, task.gamma], people)
        held[owner] = {i: rows[i] for i in range(people) if rng.random() < chance}
    return held


def opened_of(task, held):
    """What would be opened without noise: one row for each person whom all hold."""
    common = sorted(set.intersection(*(set(rows) for rows in held.values())))
    parts = {owner: np.array([held[owner][i] for i in common]) for owner in task.owners}
    return moments.reference(parts, replace(task, hidden=False)) if common else np.zeros(task.entries, dtype=np.int64)


TASKS = [
    hidden_task(3),
    hidden_task(3, law="discrete-laplace"),
    hidden_task(3, law="discrete-laplace", noise=11, own_noise=(5, 11, 3)),
    hidden_task(3, law="discrete-laplace", constant=2000),
    hidden_task(2, law="discrete-laplace", constant=2000, noise=11, own_noise=(5, 11)),
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
        change = np.abs(opened_of(task, held) - opened_of(task, changed))
        for event, here in zip(task.events, task.opened_together, strict=True):
            assert change[here].sum() <= event.replace_l1
            if not task.pure:
                assert (change.astype(object) ** 2 // task.weights).sum() <= event.replace_l2_squared


@pytest.mark.parametrize("law", LAWS)
def test_what_an_owner_holds_itself_does_not_stay_the_same(law):
    """The counter-example of docs/theory/hidden-members.md.

    Nearly all of a row is with o0. Its own columns are known to it, and while it knows who takes part, a change with
    o1 moves little. Hidden, o1 decides which of o0's rows take part, and that moves nearly everything.
    """
    names, wide = ("o0", "o1", "o2"), ((1, Fraction(4)),) * 2
    blocks = (
        ColumnBlock("o0", ("a", "b"), 4.0, wide),
        *(ColumnBlock(n, ("c",), 1.0, ((1, Fraction(1)),)) for n in names[1:]),
    )
    hidden = Moments(blocks, Trust(names, names, 1), 64, 1, 1000, noise=30, law=law, hidden=True)
    known = replace(hidden, hidden=False)
    (owner, l1, square), *_ = known.event.others
    assert owner == "o0"
    assert hidden.event.others == ()
    before = {"o0": {1: [256, 0], 2: [0, 256]}, "o1": {1: [0]}, "o2": {1: [0], 2: [0]}}
    after = {**before, "o1": {2: [0]}}  # one record of o1 is about another person now
    change = np.abs(opened_of(hidden, before) - opened_of(hidden, after)).astype(object)
    moved = (change**2 // hidden.weights).sum()
    if law == "discrete-laplace":
        assert l1 < change.sum() <= hidden.event.replace_l1
    else:
        assert square < moved <= hidden.event.replace_l2_squared
        assert moved > 0.9 * 2 * 256**4
    # So the same noise costs o0 a smaller epsilon where it knows who takes part, and hidden it costs as a person does.
    noise = 10**6 if law == "discrete-laplace" else 3 * 10**10
    loud = [replace(task, noise=noise, known=int(task.pure)) for task in (known, hidden)]
    seen = [epsilon(views(task.events, Observer.party("o0"), task.trust), 1e-6).epsilon for task in loud]
    assert seen[0] < 0.8 * seen[1]


def test_a_row_that_disappears_may_move_more_than_one_that_is_replaced():
    """A large constant: replaced rows keep it, a row that is gone takes it along."""
    hidden = hidden_task(3, law="discrete-laplace", constant=2000)
    assert replace(hidden, hidden=False).event.replace_l1 < hidden.event.l1 == hidden.event.replace_l1


@pytest.mark.parametrize("law", LAWS)
def test_about_one_partys_record_the_result_tells_as_much_as_about_a_person_and_the_strictest_decides(law):
    task = hidden_task(3, law=law, noise=200_000 if law == "discrete-laplace" else 3 * 10**9)
    found = task.protection(1e-6)
    whole = epsilon(views(task.events, Observer.coordinator(), task.trust), 1e-6).epsilon
    assert found == pytest.approx(dict.fromkeys(task.owners, whole))
    assert max(replace(task, hidden=False).protection(1e-6).values()) < whole
    strict = with_own_budgets(hidden_task(3, law=law), {"o0": 0.5, "o1": 3.0, "o2": 2.0}, 1e-6)
    assert strict.own_noise == ()
    assert 0.5 * (1 - 1e-3) <= max(strict.protection(1e-6).values()) <= 0.5


def test_facts_rounds_and_smaller_blocks_of_a_wide_study():
    for owners, waits in ((2, 10), (5, 12)):
        assert hidden_task(owners).message_rounds == waits  # 8, one for the rows, and the flags two at a time
    task, open_ = hidden_task(3), replace(hidden_task(3), hidden=False)
    assert task.agreement != open_.agreement
    large = hidden_task(3, gamma=4096, rows_at_most=2**20)
    wide = replace(large, blocks=tuple(replace(b, columns=tuple(map(str, range(1500)))) for b in large.blocks))
    assert 2**26 < 3 * 4501 * wide.rows_per_block * len(wide.committee.system.primes) <= 2**27
    assert wide.rows_per_block < replace(wide, hidden=False).rows_per_block


def test_every_record_moves_the_entries_of_all_scales():
    """So nobody's columns are left out of a release, though its entries are those of others."""
    hidden = hidden_task(3, law="discrete-laplace", noise=11, own_noise=(5, 11, 3), known=1)
    known = replace(hidden, hidden=False)
    assert known.events[0].about == ("o2",)
    assert all(event.about == () and event.others == () for event in hidden.events)
    assert all(event.theorem == "functional-sensitivity, hidden-members" for event in hidden.events)
    assert hidden_task(2).event.theorem == "moments-sensitivity, hidden-members"


# --- models
