"""Products with directions: the protocol against its reference, what may be asked, and how far one person moves it."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import norm as normal

from colonnade.errors import CapacityError, ColonnadeError, PrivacyError, ProtocolError
from colonnade.kinds.pca import programs as power, task as power_task
from colonnade.kinds.pca.sensitivity import changed_products_sensitivity, products_sensitivity
from colonnade.kinds.pca.subspace_iteration import DirectionHistory
from colonnade.kinds.pca.task import reach_for
from colonnade.privacy import Observer, Statement, parse_budgets
from colonnade.privacy.sensitivity import changed_columns_sensitivity, moments_sensitivity
from colonnade.protocols.moments.task import Moments
from colonnade.protocols.roles import COORDINATOR
from colonnade.randomness import Stream
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import directions_task as make_task, integers as whole, tables_of as make_tables

settings_ = st.sampled_from(
    [
        ((4, 3), None, 1, {}),
        ((4, 3, 5), None, 1, {"center": False}),
        ((2, 1, 2, 1, 3), None, 2, {"law": "skellam"}),
        ((2,) * 9, tuple(f"o{i}" for i in (1, 3, 4, 6, 8)), 2, {}),
        ((3, 2, 2, 1), ("o3", "o1", COORDINATOR), 1, {}),
        ((1,) * 7, None, 3, {"rounds": 2}),
        ((6, 0, 7), None, 1, {"gamma": 2**13, "constant": 2**12, "reach": 4096}),
        ((2, 3), None, 1, {"directions": 6, "rounds": 1}),
        ((30, 20, 40), None, 1, {"rounds": 5}),
    ]
)


@settings(max_examples=18, deadline=None)
@given(setting=settings_, rows=st.integers(1, 40), block=st.integers(1, 50), seed=st.integers(0, 2**31))
def test_every_opened_product_equals_the_plaintext_reference(setting, rows, block, seed):
    widths, seats, threshold, changes = setting
    task = make_task(widths, seats, threshold, block_rows=block, **changes)
    tables = make_tables(task, rows, seed)
    with pytest.MonkeyPatch.context() as patch:
        kit.no_noise(patch)
        kit.nearest(patch)
        patch.setattr(power_task, "_BLOCK", 7 * task.width)
        results = kit.execute(power, task, tables)
    assert set(results) == {*task.owners, COORDINATOR}
    asked = results[COORDINATOR].directions
    want = power.reference(whole(task, tables), asked, task)
    assert len(asked) == task.rounds
    for result in results.values():
        assert all(np.array_equal(*pair) for pair in zip(result.directions, asked, strict=True))
        assert all(np.array_equal(*pair) for pair in zip(result.opened, want, strict=True))


@pytest.mark.parametrize(("gamma", "rows"), [(2**13, 300), (2**18, 300), (2**20, 60), (2**22, 9)])
def test_simulated_products_are_exact_also_beyond_what_floats_hold(exact, gamma, rows):
    """Sums beyond 2^53 are taken apart, and where one row alone is beyond, they are sums of integers."""
    task = make_task((30, 20, 40), gamma=gamma, constant=gamma // 2, reach=4096, rows_at_most=rows)
    assert (task.bound > 2**53) == (gamma > 2**13)
    tables = {block.owner: np.full((rows, len(block.columns)), len(block.columns) ** -0.5) for block in task.blocks}
    found = power.simulate(tables, task, Stream(bytes(32)))
    want = power.reference(whole(task, tables), found.directions, task)
    assert all(np.array_equal(*pair) for pair in zip(found.opened, want, strict=True))
    with raises(CapacityError, "CA027"):  # what the protocol refuses is not simulated
        power.simulate(tables, replace(task, gamma=2**22, rows_at_most=1000), Stream(bytes(32)))


def test_the_noise_of_all_owners_is_in_every_round(monkeypatch):
    """A row of zeros and no constant to speak of: what is opened is exactly one share of noise an owner."""
    drawn = kit.noise_drawn(monkeypatch, power)
    # So many columns that the bound below lies more than eight deviations away.
    task = make_task((400, 300, 500), noise=3 * 10**6, constant=1)
    tables = {owner: np.zeros((1, len(block.columns))) for owner, block in zip(task.owners, task.blocks, strict=True)}
    result = kit.execute(power, task, tables)[COORDINATOR]
    before = power.reference(whole(task, tables), result.directions, task)
    assert len(drawn) == 3
    assert all(np.count_nonzero(share) > share.size / 2 for share in drawn)
    assert np.array_equal(np.array(result.opened) - np.array(before), sum(drawn))
    for share in drawn:
        assert np.mean(share.astype(float) ** 2) == pytest.approx(float(task.additive.share), rel=0.1)


@pytest.mark.parametrize("center", [True, False])
def test_without_noise_to_speak_of_the_components_are_the_exact_ones(center):
    rng = np.random.default_rng(0)
    low = rng.normal(size=(300, 3)) * [0.5, 0.3, 0.2] @ np.linalg.qr(rng.normal(size=(120, 3)))[0].T
    values = 0.3 * rng.normal(size=120) / np.sqrt(120) + low + 0.02 * rng.normal(size=(300, 120)) / np.sqrt(120)
    tables = {"o0": values[:, :50], "o1": values[:, 50:90], "o2": values[:, 90:]}
    tables = {n: v / np.maximum(1, np.linalg.norm(v, axis=1, keepdims=True)) for n, v in tables.items()}
    joint = np.hstack(list(tables.values()))
    task = make_task((50, 40, 30), rounds=5, directions=6, gamma=2**14, constant=2**13, reach=4096, center=center)
    found = power.simulate(tables, task, Stream(bytes(32)))
    variances, components = found.components(3)
    around = joint - joint.mean(axis=0) if center else joint
    exact, vectors = np.linalg.eigh(around.T @ around / len(joint))
    np.testing.assert_allclose(variances, exact[::-1][:3], rtol=1e-3)
    np.testing.assert_allclose(np.abs(np.diag(components @ vectors[:, ::-1][:, :3])), 1, atol=1e-3)
    np.testing.assert_allclose(components @ components.T, np.eye(3), atol=1e-9)
    assert found.count == pytest.approx(300, rel=1e-3)
    np.testing.assert_allclose(found.means, joint.mean(axis=0), atol=1e-3)
    assert found.variance() == pytest.approx(np.sum(around**2) / 300, rel=1e-2)


# --- what may be asked


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), width=st.integers(8, 60), directions=st.integers(2, 6), rounds=st.integers(1, 6))
def test_directions_of_all_rounds_are_within_reach(seed, width, directions, rounds):
    """The spectral norm, in whole numbers and floats, of whatever is wanted, and little is lost by rounding."""
    rng = np.random.default_rng(seed)
    rounds = min(rounds, width // directions)
    task = make_task((width - 1, 0), directions=directions, rounds=rounds, reach=reach_for(width, rounds, directions))
    wanted = np.linalg.qr(rng.normal(size=(width, rounds * directions)))[0]
    asked, same = DirectionHistory(task), DirectionHistory(task)
    for number in range(rounds):
        asked.add(asked.round_directions(wanted[:, number * directions : (number + 1) * directions]))
        same.add(same.round_directions(wanted[:, :directions]))  # which leaves no room for more
    joint, again = (np.hstack(each.rounds).astype(float) for each in (asked, same))
    assert max(np.linalg.norm(joint, 2), np.linalg.norm(again, 2)) <= task.reach
    assert np.linalg.norm(joint, -2) >= 0.9 * task.reach


def test_every_participant_refuses_directions_beyond_the_reach():
    task = make_task()
    first = np.zeros((task.width, task.directions), dtype=np.int32)
    first[0, 0] = task.reach
    asked = DirectionHistory(task)
    asked.add(first)
    longer, smallest = np.zeros_like(first), np.zeros_like(first)
    longer[1, 0], smallest[1, 0] = task.reach + 1, -(2**31)
    for beyond in (first, longer, smallest, np.full_like(first, 2**31 - 1)):  # the first is the same direction again
        with raises(PrivacyError, "PR108"):
            asked.add(beyond)
    for wrong in (first[:, :1], first.astype(np.int64), None, first.tolist()):
        with raises(ProtocolError, "MS022", "o0"):
            asked.add(wrong)
    with raises(ProtocolError, "MS023"):
        asked.round_directions(np.full((task.width, 1), np.nan))
    assert len(asked.rounds) == 1


def test_a_speaker_that_asks_too_much_stops_everybody(monkeypatch):
    """Over channels: the others refuse before they compute anything with what they were told."""
    task = make_task()
    tables = make_tables(task, 10, 1)
    monkeypatch.setattr(power, "_wanted", lambda task, *_: np.full((task.width, task.directions), 500, dtype=np.int32))
    for ended in kit.outcomes(task, kit.programs_of(power, task, tables)).values():
        assert isinstance(ended, ColonnadeError)
        assert re.search("sensitivity allows|stopped", str(ended))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), towards=st.booleans())
def test_no_person_moves_all_rounds_by_more_than_the_sensitivity(seed, towards):
    """One row or two, at the bounds, along the directions or not; directions as the protocol rounds them."""
    rng = np.random.default_rng(seed)
    task = make_task((6, 7), gamma=16, constant=8, reach=64, directions=3, rounds=3)
    tables = [make_tables(task, 1, int(rng.integers(2**31))) for _ in range(2)]
    asked = DirectionHistory(task)
    rows = [np.append(np.hstack(list(whole(task, table).values()))[0], task.constant) for table in tables]
    wanted = np.linalg.qr(np.column_stack([*(rows if towards else []), *rng.normal(size=(9, task.width))])[:, :9])[0]
    for number in range(3):
        asked.add(asked.round_directions(wanted[:, 3 * number : 3 * number + 3]))
    vectors = [np.concatenate(power.reference(whole(task, table), asked.rounds, task)) for table in tables]
    limit = task.sensitivity
    first, moved = vectors[0].astype(object), (vectors[0] - vectors[1]).astype(object)
    assert first @ first <= limit.l2_squared
    assert np.abs(first).sum() <= limit.l1
    assert moved @ moved <= limit.replace_l2_squared
    assert np.abs(moved).sum() <= limit.replace_l1


# --- what it costs


def test_all_rounds_cost_what_one_release_of_all_moments_costs():
    """The noise per unit of direction is that of an entry of X'X, but for the room that the sum of squares takes."""
    task = make_task((40, 30, 30), gamma=2**12, constant=2**11, rounds=6, directions=8, reach=4096)
    budgets = parse_budgets({"analyst": 1.0, "party": 2.0}, 1e-5, task.trust)
    found = task.calibrate(budgets)
    law = "discrete-gaussian"
    full = Moments(task.blocks, task.trust, 2**12, 2**11, 1000, noise=3, law=law).calibrate(budgets)
    assert 1 < found.noise_std / full.noise_std < 1.01
    more = replace(task, rounds=12).calibrate(budgets)
    assert more.noise_std == pytest.approx(found.noise_std, rel=1e-6)
    assert found.event.dimension == 6 * found.entries
    assert found.openings == {found.event: 6}


def test_observers_learn_what_the_theorem_says():
    task = make_task((4, 4, 4), gamma=2**12, constant=2**11, reach=4096)
    task = task.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, task.trust))
    said = Statement.of(task.events, task.trust, 1e-5)
    analyst, coordinator, party = (
        said.epsilon(observer, 1e-5) for observer in (Observer.analyst(), Observer.coordinator(), Observer.party("o0"))
    )
    assert 0.999 < analyst <= 1.0 < coordinator < party
    assert np.isinf(said.epsilon(Observer.coalition("o0", "o1"), 1e-5))
    assert "subspace-iteration" in str(said)
    uneven = replace(task, blocks=(replace(task.blocks[0], clip=4.0), *task.blocks[1:]))
    assert [owner for owner, *_ in uneven.event.others] == ["o0"]  # it knows most of every row


def test_too_large_sums_name_a_gamma_that_fits():
    task = make_task((400, 300, 300), gamma=2**16, constant=2**15, rows_at_most=2**24, reach=4096)
    with raises(CapacityError, "CA027", "65536") as caught:
        task.committee  # noqa: B018
    fitting = int(str(caught.value).split(") to ")[1].split(",")[0])
    assert replace(task, gamma=fitting, constant=fitting // 2).bound < 2**62
    with raises(CapacityError, "CA016"):
        make_task((2**18, 1), directions=120, gamma=4, constant=2).committee  # noqa: B018


@pytest.mark.parametrize(
    ("make", "given", "said"),
    [
        (make_task, {"rounds": 0}, "PR109"),
        (make_task, {"reach": 2**26}, "PR111"),
        (make_task, {"reach": 32}, ("PR112", "32")),
        (products_sensitivity, {"norm_squared": -1, "reach": 2, "entries": 3}, "PR089"),
        (changed_products_sensitivity, {"changing": 1, "fixed": 1, "reach": -2, "entries": 3}, "PR089"),
    ],
)
def test_nonsense_is_refused(make, given, said):
    with raises(PrivacyError, said):
        make(**given)


def test_plans_say_what_it_takes():
    task, wide = make_task((40, 30, 30)), make_task((20000, 1))
    assert task.agreement["rounds"] == [3, 4, 3]
    assert task.facts["directions"] == 4
    assert (task.rows_dealt, wide.rows_dealt, wide.rows_multiplied) == (8192, 2**25 // 20002, 2**22 // 20002)
    owner, last = task.cells("o0", 100), task.cells(COORDINATOR, 100)
    assert (owner.dealt, owner.held) == (100 * 40 + 3 * task.entries, 100 * 100)
    assert last.held == last.dealt == 0
    assert task.cells("o1", 100).opened == 3 * task.entries < owner.opened
    assert (reach_for(20_532, 8, 10), reach_for(20_532, 8, 108)) == (4096, 16384)
    assert math.isclose(task.noise_std, math.sqrt(9) / (64**2 * 1024))


# --- the sensitivity


seeds = st.integers(0, 2**31)


def within_reach(rng, width, columns, reach):
    """Integer directions whose largest absolute row sum of C'C is just within reach, as the protocol checks it."""
    found = np.linalg.qr(rng.normal(size=(width, columns)))[0]
    scale = float(reach)
    while True:
        whole = np.rint(found * scale).astype(np.int64)
        if np.abs(whole.T @ whole).sum(axis=1).max() <= reach**2:
            return whole
        scale *= 0.99


def vector(rows, directions, weight):
    products = sum((np.outer(z, z) @ directions for z in rows), np.zeros_like(directions))
    return np.append(products.reshape(-1), weight * sum(int(z @ z) for z in rows))


def along(rng, directions, norm_squared, towards):
    """An integer row in the span of the directions or anywhere, nearly as long as it may be."""
    real = directions @ rng.normal(size=directions.shape[1]) if towards else rng.normal(size=len(directions))
    length = np.sqrt(norm_squared)
    while True:
        row = np.trunc(real / np.linalg.norm(real) * length).astype(np.int64)
        if row @ row <= norm_squared:
            return row
        length *= 0.999


@settings(max_examples=80, deadline=None)
@given(seed=seeds, columns=st.integers(1, 4), towards=st.booleans(), weight=st.sampled_from([0, 3, 20, 64]))
def test_no_row_moves_the_products_of_all_rounds_further(seed, columns, towards, weight):
    rng = np.random.default_rng(seed)
    width, reach, norm_squared = 5, 20, 400
    directions = within_reach(rng, width, columns, reach)
    limit = products_sensitivity(norm_squared, reach, width * columns + 1, weight)
    rows = [along(rng, directions, norm_squared, towards) for _ in range(2)]
    first, second = (vector([row], directions, weight) for row in rows)
    for moved, l1, square in (
        (first, limit.l1, limit.l2_squared),
        (first - second, limit.replace_l1, limit.replace_l2_squared),
    ):
        assert moved @ moved <= square
        assert np.abs(moved).sum() <= l1


@settings(max_examples=80, deadline=None)
@given(seed=seeds, changing=st.integers(1, 300), weight=st.sampled_from([0, 5]))
def test_changing_some_columns_moves_no_more_than_that(seed, changing, weight):
    rng = np.random.default_rng(seed)
    fixed, reach = 200, 20
    directions = within_reach(rng, 6, 4, reach)
    stays = along(rng, np.eye(3), fixed, False)
    changed = along(rng, np.eye(3), changing, False)
    other = -changed if rng.random() < 0.5 else along(rng, np.eye(3), changing, False)
    moved = vector([np.append(changed, stays)], directions, weight) - vector(
        [np.append(other, stays)], directions, weight
    )
    l1, square = changed_products_sensitivity(changing, fixed, reach, 25, weight)
    assert moved @ moved <= square
    assert np.abs(moved).sum() <= l1


def test_the_bounds_are_reached():
    """Directions along the axes, rows along them: added exactly, replaced exactly."""
    reach, length = 16, 8
    directions = reach * np.eye(4, dtype=np.int64)[:, :3]
    limit = products_sensitivity(length**2, reach, 13, weight=2)
    added, other = (vector([row], directions, 2) for row in length * np.eye(4, dtype=np.int64)[:2])
    assert added @ added == limit.l2_squared == length**4 * (reach**2 + 4)
    assert (added - other) @ (added - other) == limit.replace_l2_squared == 2 * length**4 * reach**2
    # The same direction in two rounds moves by sqrt(2) more, so all rounds together must be within reach.
    twice = vector([length * np.eye(4, dtype=np.int64)[0]], directions[:, [0, 0]], 0)
    assert twice @ twice == 2 * products_sensitivity(length**2, reach, 9).l2_squared


def test_all_directions_together_cost_what_all_moments_cost():
    full = moments_sensitivity(100, 9)
    found = products_sensitivity(100, 32, 9 * 9)
    assert found.l2_squared == 32**2 * full.l2_squared
    assert found.replace_l2_squared == 32**2 * full.replace_l2_squared
    assert found.l1 == 32 * full.l1
    assert changed_products_sensitivity(30, 70, 32, 81)[1] == 32**2 * changed_columns_sensitivity(30, 70, 9)[1]
    assert changed_products_sensitivity(0, 70, 32, 81) == (0, 0)


def test_adaptive_shifts_of_bounded_total_cost_no_more_than_one():
    """Lemma 2 of the page: shifts that follow from what was seen, with total square 1, against one shift of 1.

    The second shift is chosen by the first outcome to hurt most: what is left of the square, or nothing at all.
    """
    rng = np.random.default_rng(3)
    count, epsilon = 400_000, 0.5
    bound = normal.cdf(0.5 - epsilon) - np.exp(epsilon) * normal.cdf(-0.5 - epsilon)
    for share in (0.2, 0.5, 0.9):
        first = np.sqrt(share) + rng.normal(size=count)
        for rule in (lambda seen: seen > 0, lambda seen: seen < 0.3, lambda seen: np.abs(seen) < 1):
            second_shift = np.where(rule(first), np.sqrt(1 - share), 0.0)
            second = second_shift + rng.normal(size=count)
            loss = np.sqrt(share) * first - share / 2 + second_shift * second - second_shift**2 / 2
            delta = np.mean(np.maximum(0.0, 1 - np.exp(epsilon - loss)))
            assert delta <= bound + 4 / np.sqrt(count)
