from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import PrivacyError
from colonnade.privacy.sensitivity import (
    CoordinateRadii,
    Rounding,
    changed_columns_sensitivity,
    conditional_norm_squared,
    float_up,
    grouped_l1,
    grouped_replace_l1,
    moments_sensitivity,
    party_norm_squared,
    root_up,
    rounded_norm_squared,
)
from research import formulas as published
from research.bounds import (
    conditional_norm,
    label_reach,
    regression_moments_sensitivity,
    rounded_norm,
    upper_moments_sensitivity,
)
from research.formulas import paper_rounded_norm
from research.functional import (
    Pairs,
    blocks_epsilon,
    integer_l1,
    linear_coefficients_sensitivity,
    linear_l1,
    linear_party_l1,
    logistic_coefficients_sensitivity,
    logistic_l1,
    logistic_party_l1,
)
from tests.support.errors import refused
from tests.support.vectors import VECTORS


@pytest.mark.parametrize("case", VECTORS["extra"]["rounded_norm_bound"])
def test_rounded_norms_match_the_vectors(case) -> None:
    gamma, parts, columns, clip = case["gamma"], case["parts"], sum(case["parts"]), case["c"]
    even = [clip / math.sqrt(len(parts))] * len(parts)
    found = {
        "worst": rounded_norm(gamma, [clip], [columns]),
        "nearest": rounded_norm(gamma, [clip], [columns], rounding="nearest"),
        "trunc": rounded_norm(gamma, [clip], [columns], rounding="toward_zero"),
        "worst_per_party": rounded_norm(gamma, even, parts),
        "cond": conditional_norm(gamma, even, parts, case["beta"]),
        "paper": paper_rounded_norm(gamma, clip, columns),
    }
    assert found == pytest.approx({name: case[name] for name in found}, rel=1e-9)
    assert rounded_norm(gamma, [clip], [columns], rounding="exact") == found["trunc"]
    proportional = [clip * math.sqrt(part / columns) for part in parts]
    assert rounded_norm(gamma, proportional, parts) == pytest.approx(case["worst"], rel=1e-9)


def test_the_published_bound_is_wrong() -> None:
    row = np.full(4, 0.5)
    rounded = np.ceil(3 * row)
    assert np.linalg.norm(row) <= 1
    assert rounded @ rounded == 16 > 13 == round(paper_rounded_norm(3, 1.0, 4) ** 2)
    assert party_norm_squared(3, 1.0, 4) >= 16


def test_integer_bounds_stay_next_to_the_real_one() -> None:
    square = rounded_norm_squared(4096, [1.0], [117])
    assert square == math.floor(rounded_norm(4096, [1.0], [117]) ** 2) == 16865943
    assert rounded_norm_squared(4096, [1.0], [117], constants=[4096, 2]) == square + 4096**2 + 4
    assert rounded_norm(8, [0.0], [0], constants=[3, 4]) == 5.0
    assert conditional_norm_squared(4096, 1.0, 117) < square


@given(st.fractions(min_value=0, max_value=10**30, max_denominator=10**12))
def test_roots_and_floats_round_up(value: Fraction) -> None:
    root = root_up(value)
    assert root * root >= value
    assert root == 0 or (root - Fraction(1, 1 << 63)) ** 2 < value or root <= Fraction(1, 1 << 63)
    up = float_up(value)
    assert Fraction(up) >= value
    assert up == 0 or Fraction(math.nextafter(up, -math.inf)) < value
    assert float_up(10**400 + value) == math.inf


ROUNDINGS = {
    "stochastic": lambda x, up: np.floor(x) + up,
    "nearest": lambda x, up: np.rint(x),
    "toward_zero": lambda x, up: np.trunc(x),
}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(1, 64),
    st.sampled_from(sorted(ROUNDINGS)),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_no_clipped_and_rounded_row_leaves_the_ball(
    widths: list[int], gamma: int, rounding: Rounding, seed: int, adverse: bool
) -> None:
    rng = np.random.default_rng(seed)
    clips = [float(rng.integers(1, 9)) / 8 for _ in widths]
    total = 0
    for clip, width in zip(clips, widths, strict=True):
        direction = np.ones(width) if adverse else rng.normal(size=width)
        part = gamma * clip * direction / max(np.linalg.norm(direction), 1e-9) * (1 - 1e-12)
        up = (part != np.floor(part)) if adverse else (rng.random(width) < part - np.floor(part))
        whole = ROUNDINGS[rounding](part, up).astype(int)
        own = int(whole @ whole)
        assert own <= party_norm_squared(gamma, clip, width, rounding)
        total += own
    assert total <= rounded_norm_squared(gamma, clips, widths, rounding)
    assert math.sqrt(total) <= rounded_norm(gamma, clips, widths, rounding)


def _row(rng: np.random.Generator, columns: int, reach: int):
    return rng.integers(-reach, reach + 1, size=columns).astype(object)


def check_moved(bound, one, other) -> None:
    """One row's numbers, and what replacing it by another changes, stay within the bound."""
    assert (one**2).sum() <= bound.l2_squared
    assert abs(one).sum() <= bound.l1
    assert ((one - other) ** 2).sum() <= bound.replace_l2_squared
    assert abs(one - other).sum() <= bound.replace_l1


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_moments_move_no_further_than_claimed(columns: int, reach: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = _row(rng, columns, reach), _row(rng, columns, reach)
    square, upper = max(int(x @ x), int(y @ y)), np.triu_indices(columns)
    bound = moments_sensitivity(square, columns)
    assert bound.replace_l2_squared == 2 * bound.l2_squared
    check_moved(bound, np.outer(x, x), np.outer(y, y))
    check_moved(upper_moments_sensitivity(square, columns), np.outer(x, x)[upper], np.outer(y, y)[upper])


def test_the_bounds_of_moments_are_reached() -> None:
    gap = np.outer([5, 0], [5, 0]) - np.outer([0, 5], [0, 5])
    assert (gap**2).sum() == moments_sensitivity(25, 2).replace_l2_squared
    bound = upper_moments_sensitivity(36, 4)
    upper = np.triu_indices(4)
    assert (np.outer([6, 0, 0, 0], [6, 0, 0, 0])[upper] ** 2).sum() == bound.l2_squared
    assert abs(np.outer([3, 3, 3, 3], [3, 3, 3, 3])[upper]).sum() == bound.l1 == 90


def test_a_label_is_one_more_bounded_column() -> None:
    assert (label_reach(1000, 2.5), label_reach(3, 0.1)) == (2500, 1)  # 0.3 may be rounded up
    bound, row = regression_moments_sensitivity(25, 2, 5), np.array([3, 4, 5])
    assert (np.outer(row, row) ** 2).sum() == bound.l2_squared == 2500
    assert abs(np.outer(row, row)).sum() <= bound.l1 == 150


@pytest.mark.parametrize("case", VECTORS["sqm"]["pca"])
def test_principal_components_match_the_vectors(case) -> None:
    gamma, n, c = case["gamma"], case["n"], case["c"]
    norm_squared = rounded_norm_squared(gamma, [c], [n])
    assert case["safe_d2"] - 1 < norm_squared <= case["safe_d2"]
    assert paper_rounded_norm(gamma, c, n) ** 2 == pytest.approx(case["paper_d2"], rel=1e-9)
    for bound, said in ((moments_sensitivity, "safe_d1_full"), (upper_moments_sensitivity, "safe_d1_upper")):
        assert case[said] - n < bound(norm_squared, n).l1 <= case[said]


@pytest.mark.parametrize(
    ("code", "bound", "given"),
    [
        *(("PR*", party_norm_squared, wrong) for wrong in (
            (0, 1.0, 1, "exact"), (2.0, 1.0, 1, "exact"), (2, -1.0, 1, "exact"), (2, math.nan, 1, "exact"),
            (2, 1.0, -1, "exact"), (2, 1.0, 1, "up"),
        )),
        ("PR*", moments_sensitivity, (-1, 3)),
        ("PR*", conditional_norm_squared, (4, 1.0, 3, 1.0)),
        ("PR144", linear_party_l1, (3, 4)),
        ("PR145", logistic_party_l1, (3, 4)),
        ("PR143", linear_party_l1, (3, 2, "lower")),
        ("PR089", CoordinateRadii.of, ([(0, 1)],)),
        ("PR090", CoordinateRadii.of, ([(1, -1)],)),
        ("PR146", blocks_epsilon, ([1], [0])),
    ],
)  # fmt: skip
def test_senseless_bounds_are_refused(code: str, bound, given) -> None:
    refused(PrivacyError, code, bound, *given)


FM, EXTRA = VECTORS["hdp_fm_afe"], VECTORS["extra"]
PAIRS: tuple[Pairs, ...] = ("full", "upper")


@pytest.mark.parametrize("case", FM["fm"])
def test_ordered_pairs_match_the_vectors(case) -> None:
    said = ("paper", "tight_replace", "tight_addremove")
    d, linear, logistic = case["linear"]["d"], case["linear"], case["logistic"]
    found = published.paper_linear_l1(d), linear_l1(d, "full"), linear_l1(d, "full", replace=False)
    assert found == tuple(linear[name] for name in said)
    both = (logistic_l1(d, 4, "full", replace=replaced) / 8 for replaced in (True, False))
    assert (published.paper_logistic_l1(d), *both) == tuple(logistic[name] for name in said)
    for party in case["per_party"]:
        label, held = party["party"] == 0, party["dk"]
        assert published.paper_party_l1(d, held, label=label) == party["lin_paper"]
        assert published.mended_party_l1(d, held, label=label) == party["lin_consistent"]
        assert linear_party_l1(d + 1, held + label, "full") == party["lin_tight"]


@pytest.mark.parametrize("case", FM["fm_scale"])
def test_integer_scales_match_the_vectors(case) -> None:
    d = case["d"]
    whole = integer_l1(linear_l1(d, "full") if case["task"] == "linear" else logistic_l1(d, 4, "full"), case["gamma"])
    assert (whole, whole / case["eps"]) == (case["delta1_int"], case["scale_t"])


def test_the_upper_triangle_matches_the_vectors_also_by_groups() -> None:
    for case in EXTRA["fm_upper_linear"]:
        box = CoordinateRadii((1,) * (case["d"] + 1))
        found = linear_l1(case["d"]), linear_l1(case["d"], replace=False), grouped_replace_l1(box), grouped_l1(box)
        assert set(found) == {case["delta1"]}
    for case in EXTRA["fm_upper_party"]:
        assert float(linear_party_l1(case["D"], case["m"])) == pytest.approx(case["delta1"], rel=1e-12)
    for case in EXTRA["fm_upper_logistic_w1"]:
        # By groups, the label is a constant of weight one that does not change, its square not a coefficient.
        box = CoordinateRadii((1,) * case["d"])
        for found in (logistic_l1(case["d"], case["w"]), grouped_replace_l1(box, case["w"])):
            assert float(found) == pytest.approx(case["replace"], rel=1e-12)
        found = logistic_l1(case["d"], case["w"], replace=False), grouped_l1(box, case["w"])
        assert set(found) == {case["addremove"]}


def _entries(z, pairs: Pairs) -> list[Fraction]:
    return [z[a] * z[b] for a in range(len(z)) for b in range(len(z)) if pairs == "full" or a <= b]


def _logistic(x, y: int, weight: Fraction, pairs: Pairs) -> list[Fraction]:
    return _entries(x, pairs) + [weight * (1 - 2 * y) * v for v in x]


def _l1(one: list[Fraction], other: list[Fraction]) -> Fraction:
    return sum((abs(a - b) for a, b in zip(one, other, strict=True)), Fraction(0))


def _corners(size: int):
    return [tuple(map(Fraction, z)) for z in itertools.product((-1, 0, 1), repeat=size)]


def _neighbours(size: int, held: int):
    """Corners of the box that differ in the first ``held`` coordinates only."""
    return [(z, (*own, *z[held:])) for z in _corners(size) for own in _corners(held)]


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize(("size", "held"), [(2, 2), (3, 1), (3, 2), (3, 3), (4, 2)])
def test_corners_stay_within_the_bound_and_reach_it(size: int, held: int, pairs: Pairs) -> None:
    bound = linear_party_l1(size, held, pairs)
    seen = max(_l1(_entries(a, pairs), _entries(b, pairs)) for a, b in _neighbours(size, held))
    assert seen <= bound
    if pairs == "full" or 2 * held <= size - 1 or held == size:
        assert seen == bound
    else:
        assert _l1(*(_entries(z, pairs) for z in _optimum(size, held, 0))) == bound


def _optimum(size: int, held: int, weight: Fraction | int):
    """The point of the proof: |v| equal on the changing coordinates, everything else in |u|, no signs."""
    q = min(Fraction(size + 1 + weight, 2 * (held + 1)), Fraction(1))
    rest = (Fraction(1),) * (size - held)
    return (Fraction(1),) * held + rest, (1 - 2 * q,) * held + rest


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("weight", [Fraction(1, 2), Fraction(4)])
@pytest.mark.parametrize(("size", "held"), [(1, 1), (2, 1), (3, 1), (3, 3)])
def test_logistic_corners_stay_within_the_bound(size: int, held: int, weight: Fraction, pairs: Pairs) -> None:
    near = _neighbours(size, held)
    kept, flipped = (
        max(_l1(_logistic(a, 0, weight, pairs), _logistic(b, label, weight, pairs)) for a, b in near)
        for label in (0, 1)
    )
    passive, active = (logistic_party_l1(size, held, weight, pairs, label=label) for label in (False, True))
    assert kept <= passive <= active
    assert flipped <= active
    if pairs == "upper":
        assert _l1(*(_logistic(z, 0, weight, pairs) for z in _optimum(size, held, weight))) == passive
    alone = max(sum(map(abs, _logistic(z, 1, weight, pairs))) for z in _corners(size))
    assert alone == logistic_l1(size, weight, pairs, replace=False)


def test_whole_rows_follow_the_closed_forms_and_a_label_alone_moves_the_linear_part_twice() -> None:
    for d in (1, 2, 14):
        assert logistic_l1(d, 1) == Fraction(d * (d + 2) ** 2, 2 * (d + 1))
        assert d == 1 or logistic_l1(d, 4, "full") == (d + 2) ** 2
        assert logistic_party_l1(d, d, 1, label=True) == logistic_party_l1(d, d, 1)
        assert linear_l1(d) == Fraction((d + 1) * (d + 2), 2)
    assert (logistic_party_l1(5, 0, 3, label=True), logistic_party_l1(5, 0, 3)) == (2 * 3 * 5, 0)
    assert blocks_epsilon([4, 12], [16, 16]) == 1


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("pairs", PAIRS)
def test_leaving_out_the_squared_label(d: int, pairs: Pairs) -> None:
    def released(z) -> list[Fraction]:
        label = (Fraction(0),) * d + (Fraction(1),)
        return [v for v, square in zip(_entries(z, pairs), _entries(label, pairs), strict=True) if not square]

    rows = [released(z) for z in _corners(d + 1)]
    assert max(sum(map(abs, row)) for row in rows) == linear_l1(d, pairs, replace=False, label_square=False)
    pair = max(_l1(a, b) for a in rows for b in rows)
    bound = linear_l1(d, pairs, label_square=False)
    assert pair <= bound <= linear_l1(d, pairs)
    one, other = (released((*x, Fraction(1))) for x in _optimum(d, d, 1))
    assert bound == (pair if pairs == "full" else _l1(one, other))


@settings(max_examples=75, deadline=None)
@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 4), st.sampled_from(PAIRS), st.integers(0, 2**32 - 1))
def test_integer_coefficients_move_no_further(d: int, gamma: int, weight: int, pairs: Pairs, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = (tuple(map(Fraction, map(int, rng.integers(-gamma, gamma + 1, d + 1)))) for _ in range(2))
    if rng.random() < 0.5:
        one, other = (tuple(Fraction(gamma * int(np.sign(v))) for v in z) for z in (one, other))
    y, z = map(int, rng.integers(0, 2, 2))
    cases = [
        (linear_coefficients_sensitivity(d, gamma, pairs), _entries(one, pairs), _entries(other, pairs)),
        (
            logistic_coefficients_sensitivity(d, gamma, weight, pairs),
            _logistic(one[:d], y, Fraction(weight * gamma), pairs),
            _logistic(other[:d], z, Fraction(weight * gamma), pairs),
        ),
    ]
    for bound, a, b in cases:
        check_moved(bound, np.array(a), np.array(b))


# --- grouped L1 bounds, and L2 bounds where only some columns change: brute force, random rows, and the closed forms


def _upper(z: np.ndarray) -> np.ndarray:
    return np.outer(z, z)[np.triu_indices(len(z))]


def _group_corners(width: int, radius: int) -> list[tuple[int, ...]]:
    """Signed one-hots of a group, and zero; for one coordinate also the half-way points."""
    if width == 1:
        return [(value,) for value in sorted({-radius, -(radius // 2), 0, radius // 2, radius})]
    hot = [
        tuple(sign * radius if i == place else 0 for i in range(width)) for place in range(width) for sign in (-1, 1)
    ]
    return [*hot, (0,) * width]


def _rows(groups) -> list[tuple[int, ...]]:
    return [sum(parts, ()) for parts in itertools.product(*(_group_corners(*group) for group in groups))]


def _largest_change(changing, fixed: list[int]) -> int:
    """Over all corners of the changing groups, with everything fixed at its bound."""
    rows = np.array([_upper(np.array([*row, *fixed])) for row in _rows(changing)])
    return max(int(np.abs(rows - row).sum(axis=1).max()) for row in rows)


CASES = [
    ([(1, 4), (1, 2), (1, 6)], []),
    ([(1, 4)], [4, 2]),
    ([(1, 4), (1, 2)], [4, 4, 2]),
    ([(2, 4)], [3]),
    ([(2, 4), (3, 2)], [2]),
    ([(2, 4), (1, 4)], [2]),
    ([(2, 2), (1, 4), (1, 2)], [2]),
    ([(3, 4), (1, 2), (1, 2)], [1, 4]),
]


@pytest.mark.parametrize(("changing", "fixed"), CASES)
def test_no_corner_moves_further_than_the_bound(changing, fixed: list[int]) -> None:
    bound = grouped_replace_l1(CoordinateRadii.of(changing), sum(fixed))
    seen = _largest_change(changing, fixed)
    assert seen <= bound
    # What the mixed case loses is of the order of the squares of the single coordinates.
    assert bound <= seen + sum(radius**2 for width, radius in changing if width == 1)
    if all(width > 1 for width, _ in changing):
        assert seen == bound
    row = max(int(np.abs(_upper(np.array([*row, *fixed]))).sum()) for row in _rows(changing))
    still = int(np.abs(_upper(np.array(fixed))).sum()) if fixed else 0
    assert grouped_l1(CoordinateRadii.of(changing), sum(fixed)) + still == row


@pytest.mark.parametrize("radii", [(4, 4), (1, 2, 6), (5, 1, 1, 1)])
@pytest.mark.parametrize("fixed", [0, 7, 40])
def test_single_coordinates_reach_the_bound(radii: tuple[int, ...], fixed: int) -> None:
    """The rows of the proof: v is q on each coordinate and u the rest, all of one sign."""
    ordered = sorted(radii)  # at the level some of the smallest radii are full
    levels = [Fraction(fixed - sum(ordered[:k]), 1 + len(radii) - k) for k in range(len(radii) + 1)]
    level = next(t for t in levels if t + sum(min(t, radius) for radius in radii) == fixed)
    one = [Fraction(radius) for radius in radii]
    other = [-min(level, radius) for radius in radii]
    moved = np.abs(_upper(np.array([*one, Fraction(fixed)])) - _upper(np.array([*other, Fraction(fixed)]))).sum()
    assert moved == grouped_replace_l1(CoordinateRadii(radii), fixed)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), min_size=1, max_size=4),
    st.lists(st.integers(-5, 5), max_size=3),
    st.integers(0, 2**32 - 1),
)
def test_random_integer_rows_move_no_further(changing, fixed: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)

    def draw() -> list[int]:
        row: list[int] = []
        for width, radius in changing:
            cuts = np.sort(rng.integers(0, radius + 1, width))
            sizes = np.diff(cuts, prepend=0)
            row += [int(v) for v in rng.permutation(sizes * rng.choice([-1, 1], width))]
        return row

    one, other = (_upper(np.array([*draw(), *fixed], dtype=np.int64)) for _ in range(2))
    radii, rest = CoordinateRadii.of(changing), sum(map(abs, fixed))
    assert np.abs(one - other).sum() <= grouped_replace_l1(radii, rest)
    still = np.abs(_upper(np.array(fixed, dtype=np.int64))).sum() if fixed else 0
    assert np.abs(one).sum() <= grouped_l1(radii, rest) + still


@given(st.integers(1, 30), st.data())
def test_boxes_agree_with_the_closed_form(size: int, data: st.DataObject) -> None:
    held = data.draw(st.integers(0, size))
    assert grouped_replace_l1(CoordinateRadii((1,) * held), size - held) == linear_party_l1(size, held)


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 20)), max_size=6), st.integers(0, 50))
def test_replacing_is_never_more_than_removing_and_adding(changing, fixed: int) -> None:
    radii = CoordinateRadii.of(changing)
    assert grouped_replace_l1(radii, fixed) <= 2 * grouped_l1(radii, fixed)
    assert grouped_replace_l1(radii, fixed) <= grouped_replace_l1(radii, fixed + 1)


# --- L2, some columns


@settings(max_examples=100, deadline=None)
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
