from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import PrivacyError
from colonnade.privacy.sensitivity.exact import float_up, root_up
from colonnade.privacy.sensitivity.moments import moments_sensitivity
from colonnade.privacy.sensitivity.norms import (
    Rounding,
    conditional_norm_squared,
    party_norm_squared,
    rounded_norm_squared,
)
from research.bounds import (
    conditional_norm,
    label_reach,
    regression_moments_sensitivity,
    rounded_norm,
    upper_moments_sensitivity,
)
from research.formulas import paper_rounded_norm

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())["extra"]["rounded_norm_bound"]


def _even(case: dict[str, Any]) -> list[float]:
    return [case["c"] / math.sqrt(len(case["parts"]))] * len(case["parts"])


@pytest.mark.parametrize("case", VECTORS)
def test_rounded_norms_match_the_vectors(case: dict[str, Any]) -> None:
    gamma, parts, columns = case["gamma"], case["parts"], sum(case["parts"])
    near = {"rel": 1e-9}
    whole: tuple[list[float], list[int]] = ([case["c"]], [columns])
    assert rounded_norm(gamma, *whole) == pytest.approx(case["worst"], **near)
    assert rounded_norm(gamma, *whole, rounding="nearest") == pytest.approx(case["nearest"], **near)
    assert rounded_norm(gamma, *whole, rounding="toward_zero") == pytest.approx(case["trunc"], **near)
    assert rounded_norm(gamma, *whole, rounding="exact") == pytest.approx(case["trunc"], **near)
    proportional = [case["c"] * math.sqrt(part / columns) for part in parts]
    assert rounded_norm(gamma, proportional, parts) == pytest.approx(case["worst"], **near)
    assert rounded_norm(gamma, _even(case), parts) == pytest.approx(case["worst_per_party"], **near)
    assert conditional_norm(gamma, _even(case), parts, case["beta"]) == pytest.approx(case["cond"], **near)
    assert paper_rounded_norm(gamma, case["c"], columns) == pytest.approx(case["paper"], **near)


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


def test_a_huge_number_has_no_float() -> None:
    assert float_up(10**400) == math.inf


ROUNDINGS: dict[Rounding, Any] = {
    "stochastic": lambda x, up: np.floor(x) + up,
    "nearest": lambda x, up: np.rint(x),
    "toward_zero": lambda x, up: np.trunc(x),
}


@settings(max_examples=200, deadline=None)
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


def _row(rng: np.random.Generator, columns: int, reach: int) -> np.ndarray[Any, Any]:
    return rng.integers(-reach, reach + 1, size=columns).astype(object)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 6), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_moments_move_no_further_than_claimed(columns: int, reach: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = _row(rng, columns, reach), _row(rng, columns, reach)
    square = max(int(x @ x), int(y @ y))
    bound = moments_sensitivity(square, columns)
    one, other = np.outer(x, x), np.outer(y, y)
    assert int((one**2).sum()) <= bound.l2_squared
    assert int(abs(one).sum()) <= bound.l1
    assert int(((one - other) ** 2).sum()) <= bound.replace_l2_squared == 2 * bound.l2_squared
    assert int(abs(one - other).sum()) <= bound.replace_l1


def test_the_replacement_factor_is_reached() -> None:
    bound = moments_sensitivity(25, 2)
    gap = np.outer([5, 0], [5, 0]) - np.outer([0, 5], [0, 5])
    assert (gap**2).sum() == bound.replace_l2_squared


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 6), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_the_upper_triangle_moves_no_further_than_claimed(columns: int, reach: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = _row(rng, columns, reach), _row(rng, columns, reach)
    bound = upper_moments_sensitivity(max(int(x @ x), int(y @ y)), columns)
    upper = np.triu_indices(columns)
    one, gap = np.outer(x, x)[upper], (np.outer(x, x) - np.outer(y, y))[upper]
    assert int((one**2).sum()) <= bound.l2_squared
    assert int(abs(one).sum()) <= bound.l1
    assert int((gap**2).sum()) <= bound.replace_l2_squared
    assert int(abs(gap).sum()) <= bound.replace_l1


def test_the_upper_triangle_reaches_its_bounds() -> None:
    bound = upper_moments_sensitivity(36, 4)
    upper = np.triu_indices(4)
    assert (np.outer([6, 0, 0, 0], [6, 0, 0, 0])[upper] ** 2).sum() == bound.l2_squared
    assert abs(np.outer([3, 3, 3, 3], [3, 3, 3, 3])[upper]).sum() == bound.l1 == 90


def test_a_label_is_one_more_bounded_column() -> None:
    assert label_reach(1000, 2.5) == 2500
    assert label_reach(3, 0.1) == 1  # 0.3 may be rounded up
    bound = regression_moments_sensitivity(25, 2, 5)
    z = np.array([3, 4, 5])
    assert (np.outer(z, z) ** 2).sum() == bound.l2_squared == 2500
    assert abs(np.outer(z, z)).sum() <= bound.l1 == 150


@pytest.mark.parametrize("case", json.loads((Path(__file__).parent / "vectors.json").read_text())["sqm"]["pca"])
def test_principal_components_match_the_vectors(case: dict[str, Any]) -> None:
    gamma, n, c = case["gamma"], case["n"], case["c"]
    norm_squared = rounded_norm_squared(gamma, [c], [n])
    assert rounded_norm(gamma, [c], [n]) ** 2 == pytest.approx(case["safe_d2"], rel=1e-9)
    assert case["safe_d2"] - 1 < norm_squared <= case["safe_d2"]
    assert paper_rounded_norm(gamma, c, n) ** 2 == pytest.approx(case["paper_d2"], rel=1e-9)
    full, upper = moments_sensitivity(norm_squared, n), upper_moments_sensitivity(norm_squared, n)
    assert case["safe_d1_full"] - n < full.l1 <= case["safe_d1_full"]
    assert case["safe_d1_upper"] - n < upper.l1 <= case["safe_d1_upper"]


@pytest.mark.parametrize(
    ("gamma", "clip", "width", "rounding"),
    [(0, 1.0, 1, "exact"), (2.0, 1.0, 1, "exact"), (2, -1.0, 1, "exact"), (2, math.nan, 1, "exact"),
     (2, 1.0, -1, "exact"), (2, 1.0, 1, "up")],
)  # fmt: skip
def test_senseless_bounds_are_refused(gamma: Any, clip: float, width: int, rounding: Any) -> None:
    with pytest.raises(PrivacyError):
        party_norm_squared(gamma, clip, width, rounding)
    with pytest.raises(PrivacyError):
        moments_sensitivity(-1, 3)
    with pytest.raises(PrivacyError):
        conditional_norm_squared(4, 1.0, 3, beta=1.0)
