"""All marginals in one release: the secure integers are those of the definition, whoever holds what."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from colonnade.errors import NO_RESULT, DataError, PrivacyError, ShareError, StudyError
from colonnade.kinds.tables import programs as marginals, stages, task as task_module
from colonnade.kinds.tables.programs import OwnMarginals
from colonnade.kinds.tables.release import MarginalsRelease
from colonnade.kinds.tables.stages import CodeMerge, StagedMarginals
from colonnade.mpc import ShareEngine, Shares
from colonnade.mpc.verification.claims import MOST_HELD
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.session import RunResult
from colonnade.tables.slots import RowSlots
from colonnade.testing import seeded
from tests.kinds.tables.releases import cells_of, histogram
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import active, codes_of, marginals_task


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
    task = marginals_task(sizes, seats, threshold, label, block_rows=draw(st.integers(1, 30)))
    chosen = draw(st.sets(st.integers(0, len(task.asked) - 1), min_size=1))
    return replace(task, asked=tuple(task.asked[place] for place in sorted(chosen))) if draw(st.booleans()) else task


INPUTS = st.sampled_from([None, None, None, "unproven", "proven"])
"""Where participants may deviate, what they deal is proven, so to say, or not."""
some = partial(settings, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def in_short_windows(task, tables, inputs, window):
    """Without noise, and without deviations or with checks of so many blocks at once."""
    if inputs is None:
        return without_noise(task, tables)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_module.Marginals, "blocks_per_window", property(lambda self: window))
        return without_noise(active(task, inputs=inputs), tables)


@some(max_examples=36)
@given(task=tasks(), rows=st.integers(1, 40), window=st.integers(1, 3), inputs=INPUTS, seed=st.integers(0, 999))
def test_the_secure_sums_equal_the_plaintext_reference_exactly(task, rows, window, inputs, seed):
    tables = codes_of(task, rows, seed)
    results = in_short_windows(task, tables, inputs, window)
    assert set(results) == {*task.owners, COORDINATOR}
    for result in results.values():
        assert np.array_equal(result.opened, marginals.reference(tables, task))


@pytest.mark.parametrize("label", [1, 2, 4])
def test_wherever_the_label_is(label):
    """At an owner of one column or of two, with two values or with more: every owner in its turn."""
    task = marginals_task(label=label, block_rows=11)
    tables, blocks = codes_of(task, 23, label), [(block.columns, block.weight) for block in task.asked]
    joint = np.hstack([tables[owner] for owner in task.owners])
    want = sum(cells_of(person, task.sizes, blocks) for person in joint)
    assert np.array_equal(marginals.reference(tables, task), want)
    for result in without_noise(task, tables).values():
        assert np.array_equal(result.opened, want)


@pytest.mark.parametrize(
    ("owners", "threshold", "lowered", "degree"), [(2, 1, True, 2), (3, 1, True, 2), (4, 1, False, 3), (5, 2, True, 4)]
)
def test_the_degree_is_lowered_where_too_few_seats_could_open_products_of_three(owners, threshold, lowered, degree):
    task = marginals_task([[2]] + [[3, 4]] * (owners - 1), threshold=threshold, label=0)
    assert (task.lowered, task.opened_degree) == (lowered, degree)
    tables = codes_of(task, 30)
    assert np.array_equal(without_noise(task, tables)["o1"].opened, marginals.reference(tables, task))
    pairs = marginals_task(label=None)  # which never lower a degree
    assert (pairs.layout.made.names, pairs.lowered, pairs.opened_degree) == ((), False, 2)


def test_many_values_rows_and_blocks_of_rows_stay_exact():
    task = marginals_task([[40, 2], [17], [2, 33, 7]], label=1, rows_at_most=2**20, block_rows=700)
    heavy = replace(task, asked=tuple(replace(block, weight=block.weight * 99991) for block in task.asked))
    assert len(heavy.committee.system.primes) >= 3
    tables = codes_of(heavy, 3000)
    assert np.array_equal(without_noise(heavy, tables)["o2"].opened, marginals.reference(tables, heavy))


def test_more_numbers_than_one_message_may_carry_are_opened_in_several(monkeypatch):
    monkeypatch.setattr(task_module, "_CELLS_AT_ONCE", 40)
    task = marginals_task([[5, 2], [4], [2, 3]])
    assert len(task.parts) > 3
    assert task.openings == {task.event: len(task.parts)}
    assert [place for part in task.parts for place in part] == list(range(len(task.asked)))
    tables = codes_of(task, 30)
    assert np.array_equal(without_noise(task, tables)["o0"].opened, marginals.reference(tables, task))


def test_every_owner_adds_its_share_of_the_noise_to_every_number(monkeypatch):
    task = marginals_task(noise=30_000)
    tables, drawn = codes_of(task, 30), kit.noise_drawn(monkeypatch, marginals)
    results = kit.execute(marginals, task, tables)
    assert len(drawn) == len(task.owners)
    assert all(np.count_nonzero(share) > 0.9 * task.entries for share in drawn)
    assert np.array_equal(results["o0"].opened, marginals.reference(tables, task) + sum(drawn))


def test_nothing_is_opened_or_told_that_was_not_planned():
    task = marginals_task()
    with raises(PrivacyError, "PR138"):
        kit.results(task, kit.programs_of(marginals, replace(task, noise=task.noise + 3), codes_of(task, 9)))


@pytest.mark.parametrize("code", [-1.0, 4.0, 0.5, np.nan])
@pytest.mark.parametrize("program", [marginals, stages])
def test_a_table_with_something_that_is_no_code_deals_nothing(monkeypatch, program, code):
    """Otherwise that it stops, and after how many blocks, would tell others about a row."""
    task = marginals_task(block_rows=8)
    if program is stages:
        task = StagedMarginals(
            task.coded, tuple(CodeMerge(size) for size in task.sizes), (2, 3, 3, 1, 2, 1), task, noise=30
        )
    tables = {owner: codes.astype(float) for owner, codes in codes_of(marginals_task(), 40).items()}
    tables["o1"][35, 0] = code
    dealt = []
    monkeypatch.setattr(ShareEngine, "deal", lambda hand, numbers: dealt.append(len(numbers)))
    with raises(DataError, "DA130", "o1"):
        kit.execute(program, task, tables)
    assert not dealt


# --- what is published


def test_residuals_add_up_to_the_marginals():
    """Without noise, all residuals of subsets, spread evenly, are the exact counts."""
    task = marginals_task(label=0, noise=3)
    tables = codes_of(task, 200)
    found = marginals.NoisyMarginals(task, marginals.reference(tables, task))
    joint = np.hstack([tables[owner] for owner in task.owners])
    assert found.count == 200
    for columns in (block.columns for block in task.asked if block.columns):
        counts, _ = MarginalsRelease.of(found).marginal(columns, task.sizes)
        np.testing.assert_allclose(counts, histogram(joint, columns, task.sizes), atol=1e-9)


def test_residuals_sum_to_zero_and_have_the_stated_noise():
    """The root mean square over many cells is that of independent noise, projected to sum to zero along every axis."""
    task = marginals_task([[30, 2], [2], [25, 3]], label=1, noise=3 * 10**8)
    one, other = replace(task.asked[1], weight=1), replace(task.asked[1], weight=7)
    assert task.deviation(one) == pytest.approx(7 * task.deviation(other))
    tables = codes_of(task, 5)
    exact = marginals.NoisyMarginals(task, marginals.reference(tables, task)).residuals()
    noisy = marginals.simulate(tables, task, seeded(3)).residuals()
    for before, after in zip(exact, noisy, strict=True):
        noise = after.values - before.values
        assert all(np.abs(after.values.sum(axis=axis)).max() < 1e-6 for axis in range(noise.ndim))
        free = np.prod([size - 1 for size in noise.shape])
        spread = np.sqrt((noise**2).sum() / free) / after.deviation
        assert abs(spread - 1) < 5 / np.sqrt(2 * free)


# --- of people whom all owners hold, when nobody knows who they are


TOKEN = bytes(16)


def hidden_task(sizes=((3, 2), (4,), (2, 3)), seats=None, threshold=1, label=1, **changes):
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
        tables[owner] = kit.Rows(codes, places=RowSlots(slots.astype(np.int64), size, TOKEN))
    return tables


def dealt(table):
    """One row per slot, ending in 1 if it is taken."""
    whole = np.zeros((table.places.size, table.values.shape[1] + 1), dtype=np.int64)
    whole[table.places.slots, :-1] = table.values
    whole[table.places.slots, -1] = 1
    return whole


def common(task, tables):
    """The plain join: the codes of the slots that are in every table."""
    found = sorted(set.intersection(*(set(table.places.slots.tolist()) for table in tables.values())))
    return {owner: dealt(tables[owner])[found, :-1] for owner in task.owners}


@some(max_examples=18)
@given(
    seating=st.sampled_from([(3, ("o2", COORDINATOR, "o0"), 1), *kit.SEATINGS[:5]]),
    label=st.none() | st.integers(0, 2),
    size=st.integers(1, 30),
    chance=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    window=st.integers(1, 3),
    inputs=INPUTS,
    seed=st.integers(0, 2**31),
)
def test_the_secure_sums_are_those_of_the_plain_join(seating, label, size, chance, window, inputs, seed):
    owners, seats, threshold = seating
    sizes = [[3, 2], [4], *([2 + i] for i in range(owners - 2))]
    task = hidden_task(sizes, seats, threshold, label, block_rows=7)
    tables = random_tables(task, size, chance, seed)
    results = in_short_windows(task, tables, inputs, window)
    plain = marginals.reference({name: dealt(table) for name, table in tables.items()}, task)
    assert np.array_equal(plain, marginals.reference(common(task, tables), replace(task, hidden=False)))
    assert set(results) == {*task.owners, COORDINATOR}
    for result in results.values():
        assert np.array_equal(result.opened, plain)


def test_what_is_sent_has_the_same_sizes_whoever_matches():
    """Same lists, same universe: only the slots differ, so that all, some or none are in common."""
    task, rng, sizes = hidden_task(block_rows=7), np.random.default_rng(2), []
    codes = {o: rng.integers(0, 2, (10, len(task.held_by(o)))) for o in task.owners}
    for step in (0, 3, 10):
        log = {}
        places = {o: RowSlots(np.arange(10) + i * step, 30, TOKEN) for i, o in enumerate(task.owners)}
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
    task = hidden_task()
    known = replace(task, hidden=False)
    assert task.others == ()
    assert task.sensitivity.replace_l2_squared == known.sensitivity.replace_l2_squared
    assert "hidden-members" in task.event.theorem
    count = replace(task, asked=task.asked[:1])
    assert (count.sensitivity.replace_l1, count.sensitivity.replace_l2_squared) == (1, 1)
    assert replace(count, hidden=False).sensitivity.replace_l2_squared == 0


def test_a_table_and_a_study_must_agree_whether_members_are_hidden():
    task = hidden_task()
    for planned, tables, said in (
        (replace(task, hidden=False), random_tables(task, 10, 1.0, 0), "ST531"),
        (task, codes_of(task, 10), "ST530"),
    ):
        with raises(StudyError, said):
            kit.execute(marginals, planned, tables)


# --- where participants may deviate: the same integers, and what deviates ends the study


@pytest.mark.parametrize(
    ("seating", "label", "inputs"),
    [
        (kit.SEATINGS[1], 1, "proven"),
        (kit.SEATINGS[1], 4, "unproven"),
        (kit.SEATINGS[2], 4, "proven"),
        (kit.SEATINGS[4], 1, "unproven"),
    ],
)
def test_labels_of_two_and_of_three_values(seating, label, inputs):
    owners, seats, threshold = seating
    sizes = [[3, 2], [4], [2, 3], *([2] for _ in range(owners - 3))]
    task = active(marginals_task(sizes, seats, threshold, label, block_rows=9), inputs=inputs)
    assert task.lowered
    assert task.opened_degree == threshold
    tables = codes_of(task, 20)
    for result in without_noise(task, tables).values():
        assert np.array_equal(result.opened, marginals.reference(tables, task))


# --- cheats


def ends(task, tables):
    """Whether everybody has the reference, or nobody has anything because a check failed."""
    with pytest.MonkeyPatch.context() as patch:
        kit.no_noise(patch)
        found = kit.outcomes(task, kit.programs_of(marginals, task, tables))
    if all(isinstance(one, RunResult) for one in found.values()):
        want = marginals.reference(
            {name: dealt(table) for name, table in tables.items()} if task.hidden else tables, task
        )
        right = all(np.array_equal(one.result.opened, want) for one in found.values())
        return "right" if right else "wrong"
    assert not any(isinstance(one, RunResult) for one in found.values())
    errors = [one for one in found.values() if isinstance(one, ShareError)]
    assert errors
    assert all(NO_RESULT in str(one) or "nothing was opened" in str(one) for one in errors)
    return "caught"


def two_ones(dealt):
    dealt[0, :2] = 2.0  # in a code of three values; the last coordinate is then minus four


def no_one_at_all(dealt):
    dealt[0, :2] = -4.0, 2.0  # the last coordinate is then two, and two others are two less


def twice_a_code(dealt):
    dealt[0, :2] *= 2.0


def not_the_product(dealt):
    dealt[1, -1] += 1.0  # the last column is a product with the label


def present_twice(dealt):
    dealt[0, -1] = 2.0


def deals(monkeypatch, cheat):
    """What the first owner deals is changed, in its proof too."""
    real = OwnMarginals.dealt

    def dealt(self, whole):
        found = real(self, whole)
        if self.owner == "o0":
            found = found.copy()
            cheat(found)
        return found

    monkeypatch.setattr(OwnMarginals, "dealt", dealt)


@pytest.mark.parametrize(
    ("make", "seating", "cheat"),
    [
        (marginals_task, kit.SEATINGS[1], two_ones),
        (marginals_task, kit.SEATINGS[7], no_one_at_all),
        (marginals_task, kit.SEATINGS[2], twice_a_code),
        (marginals_task, kit.SEATINGS[2], not_the_product),
        (hidden_task, kit.SEATINGS[1], two_ones),
        (hidden_task, kit.SEATINGS[1], no_one_at_all),
        (hidden_task, kit.SEATINGS[1], present_twice),
    ],
)
def test_an_owner_that_deals_no_codes_is_caught_where_they_are_proven(monkeypatch, make, seating, cheat):
    owners, seats, threshold = seating
    task = make([[3, 2], [4], *([2] for _ in range(owners - 2))], seats, threshold, label=1)
    tables, proven = (
        random_tables(task, 12, 1.0, 3) if task.hidden else codes_of(task, 12),
        active(task, inputs="proven"),
    )
    assert task.hidden or (0, 1) in proven.layout.dealt[0].names  # a product with the label
    assert ends(proven, tables) == "right"
    deals(monkeypatch, cheat)
    assert ends(proven, tables) == "caught"
    assert ends(active(task), tables) == "wrong"


def lowers(monkeypatch, number):
    """The first seat that is asked to lower the degree of shares for the so many-th time deals another number."""
    real, done = ShareEngine.reduce_degree, []

    def lower(self, shares):
        if self.name == "o0":
            done.append(shares)
            if len(done) == number:
                changed = shares.values.copy()
                changed.reshape(len(changed), -1)[0, 0] += 1.0  # modulo one prime alone
                shares = Shares(changed, shares.degree)
        return real(self, shares)

    monkeypatch.setattr(ShareEngine, "reduce_degree", lower)
    return done


@pytest.mark.parametrize(
    ("seating", "make", "often"),
    [(kit.SEATINGS[1], marginals_task, 2), (kit.SEATINGS[2], hidden_task, 5), (kit.SEATINGS[4], marginals_task, 2)],
)
def test_a_seat_that_lowers_another_number_is_caught(seating, make, often):
    """Of products with the label, of flags, and of sums; at least so often."""
    owners, seats, threshold = seating
    sizes = [[2, 3], [3, 2], *([2] for _ in range(owners - 2))]
    task = active(make(sizes, seats, threshold, 0))
    tables = random_tables(task, 12, 1.0, 3) if task.hidden else codes_of(task, 12)
    with pytest.MonkeyPatch.context() as patch:
        done = lowers(patch, -1)
        assert ends(task, tables) == "right"
    assert len(done) >= often
    for number in range(1, len(done) + 1):
        with pytest.MonkeyPatch.context() as patch:
            lowers(patch, number)
            assert ends(task, tables) == "caught"


# --- sizes


@pytest.mark.parametrize("width", [3, 400])
@pytest.mark.parametrize("inputs", ["unproven", "proven"])
def test_what_a_seat_keeps_of_a_window_is_bounded_by_public_sizes(width, inputs):
    passive = marginals_task([[width, 2], [width], [width]], rows_at_most=10**6)
    task = active(passive, inputs=inputs)
    primes = len(task.committee.system.primes)
    rows = task.rows_per_block * task.blocks_per_window
    assert rows == task.rows_at_once <= task.rows_per_window <= 65_536
    assert 8 * primes * rows * task.width <= MOST_HELD
    assert primes >= 2
    assert (task.event.lost > 0) == (inputs == "proven")
    # As it was where nobody deviates.
    assert (passive.proven, passive.committee.system, passive.event.lost) == ({}, passive.for_sums, 0)
    assert "security" not in passive.agreement
