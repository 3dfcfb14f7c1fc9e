"""Grouped L1 bounds, and L2 bounds where only some columns change: brute force, random rows, and the closed forms."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import PrivacyError
from colonnade.privacy.sensitivity.functional import Radii, grouped_l1, grouped_replace_l1
from colonnade.privacy.sensitivity.moments import changed_columns_sensitivity, moments_sensitivity
from research.functional import linear_party_l1
from tests.support.errors import raises

EXTRA = json.loads((Path(__file__).parent / "vectors.json").read_text())["extra"]
Groups = list[tuple[int, int]]


def _upper(z: np.ndarray) -> np.ndarray:
    return np.outer(z, z)[np.triu_indices(len(z))]


def _corners(width: int, radius: int) -> list[tuple[int, ...]]:
    """Signed one-hots of a group, and zero; for one coordinate also the half-way points."""
    if width == 1:
        return [(value,) for value in sorted({-radius, -(radius // 2), 0, radius // 2, radius})]
    hot = [
        tuple(sign * radius if i == place else 0 for i in range(width)) for place in range(width) for sign in (-1, 1)
    ]
    return [*hot, (0,) * width]


def _rows(groups: Groups) -> list[tuple[int, ...]]:
    return [sum(parts, ()) for parts in itertools.product(*(_corners(*group) for group in groups))]


def _largest_change(changing: Groups, fixed: list[int]) -> int:
    """Over all corners of the changing groups, with everything fixed at its bound."""
    rows = [_upper(np.array([*row, *fixed])) for row in _rows(changing)]
    stacked = np.array(rows)
    return max(int(np.abs(stacked - row).sum(axis=1).max()) for row in stacked)


CASES = [
    ([(1, 4), (1, 4)], []),
    ([(1, 4), (1, 2), (1, 6)], []),
    ([(1, 4)], [4, 2]),
    ([(1, 4), (1, 2)], [4, 4, 2]),
    ([(2, 4)], []),
    ([(2, 4)], [3]),
    ([(2, 4), (3, 2)], [2]),
    ([(2, 4), (1, 4)], [2]),
    ([(2, 2), (1, 4), (1, 2)], [2]),
    ([(3, 4), (1, 2), (1, 2)], [1, 4]),
]


@pytest.mark.parametrize(("changing", "fixed"), CASES)
def test_no_corner_moves_further_than_the_bound(changing: Groups, fixed: list[int]) -> None:
    bound = grouped_replace_l1(Radii.of(changing), sum(fixed))
    seen = _largest_change(changing, fixed)
    assert seen <= bound
    # What the mixed case loses is of the order of the squares of the single coordinates.
    assert bound <= seen + sum(radius**2 for width, radius in changing if width == 1)
    if all(width > 1 for width, _ in changing):
        assert seen == bound
    row = max(int(np.abs(_upper(np.array([*row, *fixed]))).sum()) for row in _rows(changing))
    still = int(np.abs(_upper(np.array(fixed))).sum()) if fixed else 0
    assert grouped_l1(Radii.of(changing), sum(fixed)) + still == row


@pytest.mark.parametrize("radii", [(4, 4), (1, 2, 6), (3,), (5, 1, 1, 1)])
@pytest.mark.parametrize("fixed", [0, 1, 7, 40])
def test_single_coordinates_reach_the_bound(radii: tuple[int, ...], fixed: int) -> None:
    """The rows of the proof: v is q on each coordinate and u the rest, all of one sign."""
    bound = grouped_replace_l1(Radii(radii), fixed)
    level = next(t for t in _levels(radii, fixed) if t + sum(min(t, radius) for radius in radii) == fixed)
    q = [(min(level, radius) + radius) / 2 for radius in radii]
    one = [Fraction(radius) for radius in radii]
    other = [radius - 2 * moved for radius, moved in zip(radii, q, strict=True)]
    moved = np.abs(_upper(np.array([*one, Fraction(fixed)])) - _upper(np.array([*other, Fraction(fixed)]))).sum()
    assert moved == bound


def _levels(radii: tuple[int, ...], fixed: int) -> list[Fraction]:
    """Every candidate level: some of the smallest radii are full."""
    ordered = sorted(radii)
    return [Fraction(fixed - sum(ordered[:k]), 1 + len(radii) - k) for k in range(len(radii) + 1)]


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), min_size=1, max_size=4),
    st.lists(st.integers(-5, 5), max_size=3),
    st.integers(0, 2**32 - 1),
)
def test_random_integer_rows_move_no_further(changing: Groups, fixed: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)

    def draw() -> list[int]:
        row: list[int] = []
        for width, radius in changing:
            cuts = np.sort(rng.integers(0, radius + 1, width))
            sizes = np.diff(cuts, prepend=0)
            row += [int(v) for v in rng.permutation(sizes * rng.choice([-1, 1], width))]
        return row

    one, other = (_upper(np.array([*draw(), *fixed], dtype=np.int64)) for _ in range(2))
    radii, rest = Radii.of(changing), sum(map(abs, fixed))
    assert np.abs(one - other).sum() <= grouped_replace_l1(radii, rest)
    still = np.abs(_upper(np.array(fixed, dtype=np.int64))).sum() if fixed else 0
    assert np.abs(one).sum() <= grouped_l1(radii, rest) + still


def test_the_closed_forms_are_special_cases() -> None:
    for case in EXTRA["fm_upper_linear"]:
        d = case["d"]
        assert grouped_replace_l1(Radii((1,) * (d + 1))) == grouped_l1(Radii((1,) * (d + 1))) == case["delta1"]
    for case in EXTRA["fm_upper_party"]:
        found = grouped_replace_l1(Radii((1,) * case["m"]), case["D"] - case["m"])
        assert found == linear_party_l1(case["D"], case["m"])
        assert float(found) == pytest.approx(case["delta1"], rel=1e-12)
    for case in EXTRA["fm_upper_logistic_w1"]:
        # The label as a constant of weight one that does not change, its square not among the coefficients.
        d = case["d"]
        assert float(grouped_replace_l1(Radii((1,) * d), case["w"])) == pytest.approx(case["replace"], rel=1e-12)
        assert grouped_l1(Radii((1,) * d), case["w"]) == case["addremove"]


@given(st.integers(1, 30), st.data())
def test_boxes_agree_with_the_closed_form(size: int, data: st.DataObject) -> None:
    held = data.draw(st.integers(0, size))
    assert grouped_replace_l1(Radii((1,) * held), size - held) == linear_party_l1(size, held)


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 20)), max_size=6), st.integers(0, 50))
def test_replacing_is_never_more_than_removing_and_adding(changing: Groups, fixed: int) -> None:
    radii = Radii.of(changing)
    assert grouped_replace_l1(radii, fixed) <= 2 * grouped_l1(radii, fixed)
    assert grouped_replace_l1(radii, fixed) <= grouped_replace_l1(radii, fixed + 1)


def test_groups_are_checked() -> None:
    with raises(PrivacyError, "PR089"):
        Radii.of([(0, 1)])
    with raises(PrivacyError, "PR090"):
        Radii.of([(1, -1)])


# --- L2, some columns


@settings(max_examples=400, deadline=None)
@given(st.integers(1, 3), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_random_rows_with_fixed_columns_move_no_further(changing: int, fixed: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    reach = int(rng.integers(0, 8))
    one, other = rng.integers(-reach, reach + 1, (2, changing))
    if rng.random() < 0.5:
        other = -one
    rest = rng.integers(-6, 7, fixed)
    columns = changing + fixed
    l1, square = changed_columns_sensitivity(int(max(one @ one, other @ other)), int(rest @ rest), columns)
    z, w = np.append(one, rest), np.append(other, rest)
    change = np.outer(z, z) - np.outer(w, w)
    assert (change**2).sum() <= square
    assert np.abs(change).sum() <= l1


@pytest.mark.parametrize(("radius", "rest"), [(3.0, 1.0), (2.0, 2.0), (1.0, 3.0), (5.0, 0.0)])
def test_both_cases_are_reached(radius: float, rest: float) -> None:
    cosine = -min(1.0, rest**2 / radius**2)
    one = radius * np.array([1.0, 0.0])
    other = radius * np.array([cosine, np.sqrt(1 - cosine**2)])
    z, w = np.append(one, rest), np.append(other, rest)
    _, square = changed_columns_sensitivity(round(radius**2), round(rest**2), 3)
    assert ((np.outer(z, z) - np.outer(w, w)) ** 2).sum() == pytest.approx(square, rel=1e-12)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 100))
def test_fewer_columns_never_cost_more_than_a_whole_row(changing: int, fixed: int, columns: int) -> None:
    whole = moments_sensitivity(changing + fixed, columns)
    l1, square = changed_columns_sensitivity(changing, fixed, columns)
    assert square <= whole.replace_l2_squared
    assert l1 <= whole.replace_l1
    assert (l1 == 0) == (square == 0) == (changing == 0)
