from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st
from scipy.stats import norm as normal

from colonnade.errors import PrivacyError
from colonnade.kinds.pca.sensitivity import changed_products_sensitivity, products_sensitivity
from colonnade.privacy.sensitivity.moments import changed_columns_sensitivity, moments_sensitivity
from tests.support.errors import raises

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
    row, other = length * np.eye(4, dtype=np.int64)[:2]
    added = vector([row], directions, 2)
    assert added @ added == limit.l2_squared == length**4 * (reach**2 + 4)
    moved = vector([row], directions, 2) - vector([other], directions, 2)
    assert moved @ moved == limit.replace_l2_squared == 2 * length**4 * reach**2


def test_asking_a_direction_twice_would_cost_twice_the_square():
    """Why all rounds together must be within reach: the same direction in two rounds moves by sqrt(2) more."""
    reach, length = 16, 8
    once = reach * np.eye(3, dtype=np.int64)[:, :1]
    moved = vector([length * np.eye(3, dtype=np.int64)[0]], np.hstack([once, once]), 0)
    assert moved @ moved == 2 * products_sensitivity(length**2, reach, 7).l2_squared


def test_all_directions_together_cost_what_all_moments_cost():
    full = moments_sensitivity(100, 9)
    found = products_sensitivity(100, 32, 9 * 9)
    assert found.l2_squared == 32**2 * full.l2_squared
    assert found.replace_l2_squared == 32**2 * full.replace_l2_squared
    assert found.l1 == 32 * full.l1
    assert changed_products_sensitivity(30, 70, 32, 81)[1] == 32**2 * changed_columns_sensitivity(30, 70, 9)[1]
    assert changed_products_sensitivity(0, 70, 32, 81) == (0, 0)


def test_nonsense_is_refused():
    with raises(PrivacyError, "PR089"):
        products_sensitivity(-1, 2, 3)
    with raises(PrivacyError, "PR089"):
        changed_products_sensitivity(1, 1, -2, 3)


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
