from __future__ import annotations

import itertools
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import PrivacyError
from research import formulas as published
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
from tests.support.errors import raises

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())
FM, EXTRA = VECTORS["hdp_fm_afe"], VECTORS["extra"]
PAIRS: tuple[Pairs, ...] = ("full", "upper")
Row = tuple[Fraction, ...]


@pytest.mark.parametrize("case", FM["fm"])
def test_ordered_pairs_match_the_vectors(case: dict[str, Any]) -> None:
    linear, logistic = case["linear"], case["logistic"]
    d = linear["d"]
    assert published.paper_linear_l1(d) == linear["paper"]
    assert linear_l1(d, "full") == linear["tight_replace"]
    assert linear_l1(d, "full", replace=False) == linear["tight_addremove"]
    assert published.paper_logistic_l1(d) == logistic["paper"]
    assert logistic_l1(d, 4, "full") / 8 == logistic["tight_replace"]
    assert logistic_l1(d, 4, "full", replace=False) / 8 == logistic["tight_addremove"]
    for party in case["per_party"]:
        label, held = party["party"] == 0, party["dk"]
        assert published.paper_party_l1(d, held, label=label) == party["lin_paper"]
        assert published.mended_party_l1(d, held, label=label) == party["lin_consistent"]
        assert linear_party_l1(d + 1, held + label, "full") == party["lin_tight"]


@pytest.mark.parametrize("case", FM["fm_scale"])
def test_integer_scales_match_the_vectors(case: dict[str, Any]) -> None:
    d = case["d"]
    real = linear_l1(d, "full") if case["task"] == "linear" else logistic_l1(d, 4, "full")
    whole = integer_l1(real, case["gamma"])
    assert whole == case["delta1_int"]
    assert whole / case["eps"] == case["scale_t"]


def test_the_upper_triangle_matches_the_vectors() -> None:
    for case in EXTRA["fm_upper_linear"]:
        assert linear_l1(case["d"]) == linear_l1(case["d"], replace=False) == case["delta1"]
    for case in EXTRA["fm_upper_party"]:
        assert float(linear_party_l1(case["D"], case["m"])) == pytest.approx(case["delta1"], rel=1e-12)
    for case in EXTRA["fm_upper_logistic_w1"]:
        assert float(logistic_l1(case["d"], case["w"])) == pytest.approx(case["replace"], rel=1e-12)
        assert logistic_l1(case["d"], case["w"], replace=False) == case["addremove"]


def _entries(z: Row, pairs: Pairs) -> list[Fraction]:
    return [z[a] * z[b] for a in range(len(z)) for b in range(len(z)) if pairs == "full" or a <= b]


def _linear(z: Row, pairs: Pairs) -> list[Fraction]:
    return _entries(z, pairs)


def _logistic(x: Row, y: int, weight: Fraction, pairs: Pairs) -> list[Fraction]:
    return _entries(x, pairs) + [weight * (1 - 2 * y) * v for v in x]


def _l1(one: list[Fraction], other: list[Fraction]) -> Fraction:
    return sum((abs(a - b) for a, b in zip(one, other, strict=True)), Fraction(0))


def _corners(size: int) -> list[Row]:
    return [tuple(map(Fraction, z)) for z in itertools.product((-1, 0, 1), repeat=size)]


def _neighbours(size: int, held: int) -> list[tuple[Row, Row]]:
    """Corners of the box that differ in the first ``held`` coordinates only."""
    return [(z, (*own, *z[held:])) for z in _corners(size) for own in _corners(held)]


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize(("size", "held"), [(2, 1), (2, 2), (3, 1), (3, 2), (3, 3), (4, 1), (4, 2)])
def test_corners_stay_within_the_bound_and_reach_it(size: int, held: int, pairs: Pairs) -> None:
    bound = linear_party_l1(size, held, pairs)
    seen = max(_l1(_linear(a, pairs), _linear(b, pairs)) for a, b in _neighbours(size, held))
    assert seen <= bound
    if pairs == "full" or 2 * held <= size - 1 or held == size:
        assert seen == bound
    else:
        assert _l1(*(_linear(z, pairs) for z in _optimum(size, held, 0))) == bound


def _optimum(size: int, held: int, weight: Fraction | int) -> tuple[Row, Row]:
    """The point of the proof: |v| equal on the changing coordinates, everything else in |u|, no signs."""
    q = min(Fraction(size + 1 + weight, 2 * (held + 1)), Fraction(1))
    rest = (Fraction(1),) * (size - held)
    return (Fraction(1),) * held + rest, (1 - 2 * q,) * held + rest


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("weight", [Fraction(1, 2), Fraction(1), Fraction(4)])
@pytest.mark.parametrize(("size", "held"), [(1, 1), (2, 1), (2, 2), (3, 1), (3, 3)])
def test_logistic_corners_stay_within_the_bound(size: int, held: int, weight: Fraction, pairs: Pairs) -> None:
    near = _neighbours(size, held)
    kept = max(_l1(_logistic(a, 0, weight, pairs), _logistic(b, 0, weight, pairs)) for a, b in near)
    flipped = max(_l1(_logistic(a, 0, weight, pairs), _logistic(b, 1, weight, pairs)) for a, b in near)
    passive = logistic_party_l1(size, held, weight, pairs)
    active = logistic_party_l1(size, held, weight, pairs, label=True)
    assert kept <= passive <= active
    assert flipped <= active
    if pairs == "upper":
        at = _l1(*(_logistic(z, 0, weight, pairs) for z in _optimum(size, held, weight)))
        assert at == passive
    alone = max(sum(map(abs, _logistic(z, 1, weight, pairs))) for z in _corners(size))
    assert alone == logistic_l1(size, weight, pairs, replace=False)


def test_a_label_alone_moves_the_linear_part_twice() -> None:
    assert logistic_party_l1(5, 0, 3, label=True) == 2 * 3 * 5
    assert logistic_party_l1(5, 0, 3) == 0


@pytest.mark.parametrize("d", [1, 2, 3, 14])
def test_whole_rows_follow_the_closed_forms(d: int) -> None:
    assert logistic_l1(d, 1) == Fraction(d * (d + 2) ** 2, 2 * (d + 1))
    if d >= 2:
        assert logistic_l1(d, 4, "full") == (d + 2) ** 2
    assert logistic_party_l1(d, d, 1, label=True) == logistic_party_l1(d, d, 1)
    assert linear_l1(d) == Fraction((d + 1) * (d + 2), 2)


@pytest.mark.parametrize("d", [1, 2])
def test_leaving_out_the_squared_label(d: int) -> None:
    half = [tuple(map(Fraction, z)) for z in itertools.product((-1, 0, 1), repeat=d + 1)]

    def released(z: Row, pairs: Pairs) -> list[Fraction]:
        return [v for v, square in zip(_entries(z, pairs), _entries(_mark(d), pairs), strict=True) if not square]

    for pairs in PAIRS:
        alone = max(sum(map(abs, released(z, pairs))) for z in half)
        assert alone == linear_l1(d, pairs, replace=False, label_square=False)
        pair = max(_l1(released(a, pairs), released(b, pairs)) for a in half for b in half)
        bound = linear_l1(d, pairs, label_square=False)
        assert pair <= bound <= linear_l1(d, pairs)
        one, other = (released((*x, Fraction(1)), pairs) for x in _optimum(d, d, 1))
        assert bound == (pair if pairs == "full" else _l1(one, other))


def _mark(d: int) -> Row:
    return (Fraction(0),) * d + (Fraction(1),)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 4), st.sampled_from(PAIRS), st.integers(0, 2**32 - 1))
def test_integer_coefficients_move_no_further(d: int, gamma: int, weight: int, pairs: Pairs, seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, other = (tuple(map(Fraction, map(int, rng.integers(-gamma, gamma + 1, d + 1)))) for _ in range(2))
    if rng.random() < 0.5:
        one, other = (tuple(Fraction(gamma * int(np.sign(v))) for v in z) for z in (one, other))
    y, z = map(int, rng.integers(0, 2, 2))
    cases = [
        (linear_coefficients_sensitivity(d, gamma, pairs), _linear(one, pairs), _linear(other, pairs)),
        (
            logistic_coefficients_sensitivity(d, gamma, weight, pairs),
            _logistic(one[:d], y, Fraction(weight * gamma), pairs),
            _logistic(other[:d], z, Fraction(weight * gamma), pairs),
        ),
    ]
    for bound, a, b in cases:
        assert sum(map(abs, a)) <= bound.l1
        assert sum(v * v for v in a) <= bound.l2_squared
        assert _l1(a, b) <= bound.replace_l1
        assert sum((v - w) ** 2 for v, w in zip(a, b, strict=True)) <= bound.replace_l2_squared


def test_gaussian_noise_is_the_better_choice_from_four_coordinates_on() -> None:
    bound = linear_coefficients_sensitivity(3, 1, "full")
    assert (bound.l2_squared, bound.replace_l2_squared) == (16, 32)


def test_blocks_add_up() -> None:
    assert blocks_epsilon([4, 12], [16, 16]) == 1
    with raises(PrivacyError, "PR146"):
        blocks_epsilon([1], [0])


def test_senseless_counts_are_refused() -> None:
    with raises(PrivacyError, "PR144"):
        linear_party_l1(3, 4)
    with raises(PrivacyError, "PR145"):
        logistic_party_l1(3, 4)
    with raises(PrivacyError, "PR143"):
        linear_party_l1(3, 2, "lower")  # type: ignore[arg-type]
