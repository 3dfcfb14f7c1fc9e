"""Randomised response keeps labels as often as it says, and its odds never exceed what epsilon allows."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from mpmath import mp
from numpy.typing import NDArray
from scipy import stats

from colonnade.errors import CapacityError, DataError, PrivacyError
from colonnade.privacy.noise.response import _below, odds_for, randomised_response
from colonnade.randomness import Stream
from tests.support.errors import raises

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())["hdp_fm_afe"]["rr"]
PASS, FAIL = 1e-4, 1e-9


def fit(counts: NDArray[np.int64], masses: NDArray[np.float64]) -> float:
    return float(stats.chisquare(counts, masses / masses.sum() * counts.sum()).pvalue)


@pytest.mark.parametrize("case", VECTORS)
def test_keep_probability(case: dict[str, float]) -> None:
    odds = odds_for(case["eps"])
    assert float(odds / (odds + case["K"] - 1)) == pytest.approx(case["p_true"], rel=1e-9)


@given(st.floats(0, 20))
@settings(deadline=None)
def test_odds_are_the_largest_allowed(epsilon: float) -> None:
    odds, step = odds_for(epsilon), Fraction(1, 1 << 32)
    assert (odds / step).denominator == 1
    with mp.workdps(60):
        assert mp.log(mp.mpf(odds.numerator) / odds.denominator) <= epsilon
        above = odds + step
        assert mp.log(mp.mpf(above.numerator) / above.denominator) > epsilon


def test_odds_next_to_a_grid_point_are_still_decided() -> None:
    for epsilon in (math.log(2), math.log(3), math.log1p(2.0**-32)):
        for near in (math.nextafter(epsilon, 0), epsilon, math.nextafter(epsilon, 9)):
            with mp.workdps(60):
                assert odds_for(near) == Fraction(int(mp.floor(mp.exp(near) * 2**32)), 1 << 32)


@pytest.mark.parametrize(("epsilon", "categories"), [(0.0, 3), (0.5, 2), (1.0, 10), (3.0, 7), (6.0, 100)])
def test_the_law_of_the_answers(epsilon: float, categories: int, stream: Stream) -> None:
    odds, count, label = odds_for(epsilon), 300_000, categories - 1
    masses = np.ones(categories)
    masses[label] = float(odds)
    for used, good in ((odds, True), (odds * Fraction(21, 20), False)):
        answers = randomised_response(np.full(count, label), categories, used, stream)
        found = fit(np.bincount(answers, minlength=categories), masses)
        assert found > PASS if good else found < FAIL
    biased = (answers + (answers == 0)) % categories  # never answers 0
    assert fit(np.bincount(biased, minlength=categories), masses) < FAIL


def test_labels_are_treated_alike(stream: Stream) -> None:
    labels = np.arange(4 * 50_000).reshape(-1, 4) % 4
    answers = randomised_response(labels, 4, Fraction(5), stream)
    assert answers.shape == labels.shape
    assert answers.dtype == np.int64
    moved = np.bincount(((answers - labels) % 4).ravel(), minlength=4)
    assert fit(moved, np.array([5.0, 1, 1, 1])) > PASS
    for label in range(4):
        kept = (answers[:, label] == label).mean()
        assert abs(kept - 5 / 8) < 0.012


def test_answers_at_zero_epsilon_say_nothing(stream: Stream) -> None:
    key = stream.bytes(32)
    table = [np.bincount(randomised_response([label] * 90_000, 3, odds_for(0.0), Stream(key))) for label in range(3)]
    assert all(fit(row, np.ones(3)) > PASS for row in table)


@given(st.integers(1, 1 << 62), st.integers(0, 40))
def test_below_is_below(bound: int, count: int) -> None:
    drawn = _below(bound, count, Stream(bytes(32)))
    assert len(drawn) == count
    assert all(0 <= value < bound for value in drawn.tolist())


@pytest.mark.parametrize("bound", [3, 1000, 3 << 60])
def test_below_is_uniform(bound: int, stream: Stream) -> None:
    drawn = _below(bound, 120_000, stream)
    cells = min(bound, 60)
    edges = [bound * k // cells for k in range(cells + 1)]
    masses = np.diff(np.array(edges, dtype=np.float64))
    counts = np.bincount(np.searchsorted(np.array(edges[1:]), drawn, side="right"), minlength=cells)
    assert fit(counts, masses) > PASS
    if bound == 3:  # a remainder of 32-bit words would be fair enough; one of 2-bit words is not
        assert fit(np.bincount(stream.uint64(120_000).astype(np.int64) % 4 % 3), masses) < FAIL


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0], np.array([2**63], dtype=np.uint64)])
def test_labels_outside_are_refused_without_being_told(labels: object, stream: Stream) -> None:
    with raises(DataError, "DA108", "2") as caught:
        randomised_response(labels, 3, Fraction(2), stream)  # type: ignore[arg-type]
    assert "-1" not in str(caught.value)
    assert "3" not in str(caught.value)


def test_wrong_arguments_are_refused(stream: Stream) -> None:
    with raises(DataError, "DA107"):
        randomised_response([0.0, 1.0], 3, Fraction(2), stream)
    with raises(PrivacyError, "PR047"):
        randomised_response([0, 1], 3, Fraction(1, 2), stream)
    with raises(CapacityError, "CA012"):
        randomised_response([0, 1], 3, Fraction((1 << 70) + 1, 1 << 60), stream)
    for categories in (1, 0, True, 2.0):
        with raises(PrivacyError, "PR046"):
            randomised_response([0], categories, Fraction(2), stream)  # type: ignore[arg-type]
    for epsilon in (-0.1, math.nan, math.inf):
        with raises(PrivacyError, "PR045"):
            odds_for(epsilon)
    with raises(CapacityError, "CA011", "20"):
        odds_for(20.5)


def test_edges(stream: Stream) -> None:
    assert randomised_response(np.empty(0, dtype=int), 2, Fraction(3), stream).shape == (0,)
    assert set(randomised_response(np.array([True, False] * 50), 2, Fraction(3), stream).tolist()) == {0, 1}
    assert len(randomised_response([1] * 9, 1 << 29, odds_for(20.0), stream)) == 9
