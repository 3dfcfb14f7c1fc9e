from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from colonnade.errors import DataError, StudyError
from colonnade.kinds.glm.losses.labels import Family, family_for, labels_for
from colonnade.kinds.glm.sensitivity_exchange import Exchange
from colonnade.tables.columns import category, flag, number
from research.bounds import logistic_own_slope
from tests.support.errors import raises

EXAMPLES = {
    "logistic": family_for("logistic", flag()),
    "logistic, reach 1": family_for("logistic", flag(), reach=1),
    "linear": family_for("linear", number(-3, 7)),
    "linear, narrow": family_for("linear", number(0, 1), clip=0.3, reach=0.5),
    "linear, wide": family_for("linear", number(0, 1), clip=9.0, reach=1.5),
    "svm": family_for("svm", flag()),
    "svm, narrow": family_for("svm", flag(), clip=1.0),
    "svm, wide": family_for("svm", flag(), clip=9.0, reach=2.0),
    "poisson": family_for("poisson", number(0, 20)),
    "poisson, one": family_for("poisson", number(0, 1)),
    "poisson, many": family_for("poisson", number(100, 10_000)),
    "poisson, unclipped": family_for("poisson", number(0, 20), clip=1000, region=(-1, 2)),
    "gamma": family_for("gamma", number(1, 50)),
    "gamma, narrow": family_for("gamma", number(0.5, 40), clip=0.5),
    "gamma, unclipped": family_for("gamma", number(2, 6), clip=1000),
    "gamma, region": family_for("gamma", number(2, 6), region=(0, 3)),
}
each = pytest.mark.parametrize("family", EXAMPLES.values(), ids=EXAMPLES)
families = st.sampled_from(list(EXAMPLES.values()))


def labels(family: Family, share: np.ndarray) -> np.ndarray:
    """Labels of the family for numbers in [0, 1]."""
    if family.name in ("logistic", "svm"):
        ones = np.rint(share)
        return 2 * ones - 1 if family.name == "svm" else ones
    if family.name == "linear":
        return 2 * share - 1
    values = family.low + share * (family.high - family.low)
    return np.rint(values) if family.name == "poisson" else values


def grid(family: Family, points: int = 4001) -> tuple[np.ndarray, np.ndarray]:
    """Scores over and beyond the reach, each with labels over their whole range."""
    scores = np.linspace(-3 * family.reach - 2, 3 * family.reach + 2, points)
    ends = np.array([-family.reach, 0.0, family.reach])
    t, share = np.meshgrid(np.sort(np.concatenate([scores, ends])), np.linspace(0, 1, 21))
    return t, labels(family, share)


def numbers(size: float) -> st.SearchStrategy[float]:
    return st.floats(-size, size, allow_nan=False)


@each
def test_slopes_are_derivatives_of_the_loss_monotone_and_within_their_bound(family):
    t, y = grid(family)
    slopes, step = family.slopes(t, y), 1e-5
    assert 0.97 * family.slope_bound < np.abs(slopes).max() <= family.slope_bound  # which some slope reaches
    assert np.diff(slopes, axis=1).min() >= -1e-14
    rise = (family.loss(t + step, y) - family.loss(t - step, y)) / (2 * step)
    assert np.abs(rise - slopes).max() <= 2 * family.curvature * step + 1e-8
    y = labels(family, np.linspace(0, 1, 7))
    for side in (-1.0, 1.0):
        near, far = np.full(7, side * 1e3), np.full(7, side * 1e6)
        rise = (family.loss(far, y) - family.loss(near, y)) / (far - near)
        assert np.allclose(rise, family.slopes(far, y), rtol=1e-9, atol=1e-9)


@each
def test_the_curvature_is_reached_and_not_exceeded(family):
    t, y = grid(family, 20_001)
    bends = family.hessian(t, y)
    assert bends.min() >= 0
    assert 0.96 * family.curvature < bends.max() <= family.curvature
    t, y = grid(family, 801)
    step = 1e-6
    rise = (family.slopes(t + step, y) - family.slopes(t - step, y)) / (2 * step)
    smooth = np.abs(family.hessian(t + step, y) - family.hessian(t - step, y)) < 1e-3 * family.curvature
    assert smooth.mean() > 0.9
    assert np.abs(rise - family.hessian(t, y))[smooth].max() < 1e-3 * family.curvature


@each
def test_a_row_moves_its_sent_slope_as_far_as_own_says(family):
    t, y = grid(family)
    sent = family.sent(t, y)
    moved = Fraction(float(sent.max())) - Fraction(float(sent.min()))
    assert Fraction(99, 100) * family.own < moved <= family.own <= 2 * Fraction(family.slope_bound)


@settings(max_examples=300, deadline=None)
@given(families, numbers(1e6), numbers(1e6), st.floats(0, 1), st.floats(0, 1))
@example(EXAMPLES["poisson"], -30.0, 1e6, 1.0, 0.0)
def test_bounds_hold_at_any_score(family, score, other, share, another):
    t, y = np.array([score, other]), labels(family, np.array([share, another]))
    sent, bends = family.sent(t, y), family.hessian(t, y)
    assert abs(Fraction(float(sent[0])) - Fraction(float(sent[1]))) <= family.own
    assert 0 <= bends.min() <= bends.max() <= family.curvature
    assert np.isfinite(family.loss(t, y)).all()
    for slopes in (family.slopes, family.sent):
        assert np.abs(slopes(t, y)).max() <= family.slope_bound  # which no NaN is
        moved, expected = np.diff(slopes(t, y[[0, 0]]))[0], other - score
        assert moved * expected >= -1e-13 * abs(expected)
        assert abs(moved) <= family.curvature * abs(expected) + 1e-13


def test_row_terms_are_rounded_up():
    for reach in (0.5, 1.0, 3.0, 40.0):
        run = Exchange(1, 1, 2, 0.1, row_norm=1.0, weight_norm=reach)
        own = family_for("logistic", flag(), reach=reach).own
        assert own == pytest.approx(float(logistic_own_slope(run)), rel=1e-13)
        assert own >= Fraction(1 + math.tanh(reach / 2))
    for reach in np.linspace(0.01, 9, 200):
        exact = 2 / (1 + Decimal(-float(reach)).exp())
        assert family_for("logistic", flag(), reach=float(reach)).own >= Fraction(exact)
        family = family_for("gamma", number(2, 6), region=(-float(reach), float(reach)), clip=1e9)
        ends = [Decimal(family.centre + side * family.reach).exp() for side in (-1, 1)]
        moved = Fraction(6 / ends[0] - 2 / ends[1]) / Fraction(family.scale)
        assert family.own >= min(moved, 2)
    # Large numbers close together do not lose the row term.
    family = family_for("poisson", number(10**9, 10**9 + 1), region=(math.log(10**9), math.log(10**9) + 1e-9))
    sent = family.sent(np.array([-1.0, 1.0]), np.array([family.high, family.low]))
    assert Fraction(float(sent[1])) - Fraction(float(sent[0])) <= family.own


def test_means_in_the_units_of_the_label():
    t, far = np.array([-1.0, 0.0, 0.5, 1.0]), np.array([-9.0, 0.0, 9.0])
    logged = number(0, 99, transform="log1p")
    assert family_for("linear", number(-3, 7)).mean(t) == pytest.approx([-3, 2, 4.5, 7])
    assert family_for("linear", number(-3, 7)).mean(far) == pytest.approx([-3, 2, 7])  # within the range
    assert family_for("linear", logged).mean(t) == pytest.approx([0, 9, 10**1.5 - 1, 99])
    assert family_for("gamma", number(1, 4)).mean(far) == pytest.approx([1, 2, 4])
    assert family_for("poisson", number(0, 9), region=(0, 2)).mean(t) == pytest.approx(np.exp(1 + t))
    assert family_for("logistic", flag()).mean(t) == pytest.approx(1 / (1 + np.exp(-t)))


@pytest.mark.parametrize("clip", [1.0, 9.0])
def test_the_mean_of_the_svm_is_the_chance_for_which_its_score_is_best(clip):
    family = family_for("svm", flag(), clip=clip)
    t = np.linspace(-0.99, 0.99, 21)
    chance = family.mean(t)
    ones = np.ones_like(t)
    assert chance * family.slopes(t, ones) + (1 - chance) * family.slopes(t, -ones) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("high", [5, 100])
def test_the_default_clip_hardly_moves_a_poisson_mean(high):
    family = family_for("poisson", number(0, high))
    counts = np.arange(20.0 * high)
    log_factorials = np.array([math.lgamma(count + 1) for count in counts])
    for mean in np.geomspace(high / 50, 0.7 * high, 20):
        chances = np.exp(counts * math.log(mean) - mean - log_factorials)
        near = np.log(mean * np.array([0.99, 1.01])) - family.centre
        below, above = (float(chances @ family.slopes(np.full_like(counts, t), counts)) for t in near)
        assert below < 0 < above


@each
def test_families_are_told_apart_and_guesses_are_within_what_is_proven(family):
    plain = family.plain()
    assert all(isinstance(value, str) for value in plain.values())
    assert (float.fromhex(plain["reach"]), Fraction(plain["own"])) == (family.reach, family.own)
    assert [other for other in EXAMPLES.values() if other.plain() == plain] == [family]
    assert 0 < family.typical_curvature <= family.curvature
    assert 0 < family.typical_spread <= family.slope_bound
    assert family.typical_variance > 0


@pytest.mark.parametrize(
    ("name", "column", "options", "words"),
    [
        ("probit", flag(), {}, ("ST462", "logistic", "linear", "svm", "poisson", "gamma")),
        ("logistic", number(0, 1), {}, "ST465"),
        ("svm", category(["a", "b", "c"]), {}, ("ST466", "3")),
        ("logistic", category(["a", "b"], missing="none"), {}, "ST467"),
        ("linear", number(0, 1, missing="none"), {}, "ST469"),
        ("linear", flag(), {}, ("ST468", "flag")),
        ("poisson", number(-1, 5), {}, "ST463"),
        ("poisson", number(0, 5.5), {}, "ST463"),
        ("poisson", number(0, 5, transform="log1p"), {}, "ST470"),
        ("gamma", number(0, 5), {}, "ST464"),
        ("gamma", number(1, 5, transform="log1p"), {}, "ST470"),
        ("gamma", category(["a", "b"]), {}, ("ST468", "category")),
        ("logistic", flag(), {"clip": 1.0}, ("ST461", "clip")),
        ("linear", number(0, 1), {"region": (0, 1)}, ("ST461", "region")),
        ("poisson", number(0, 5), {"reach": 2.0}, ("ST461", "reach")),
        ("linear", number(0, 1), {"clip": 0}, ("ST471", "clip")),
        ("linear", number(0, 1), {"clip": True}, ("ST471", "clip")),
        ("logistic", flag(), {"reach": math.inf}, ("ST471", "reach")),
        ("gamma", number(1, 5), {"region": (2, 1)}, "ST472"),
        ("gamma", number(1, 5), {"region": (0, 1000)}, "ST472"),
        ("poisson", number(0, 5), {"region": 3}, "ST472"),
    ],
)
def test_what_does_not_fit_is_refused(name, column, options, words):
    with raises(StudyError, words):
        family_for(name, column, **options)


def test_a_family_without_sense_is_refused():
    with raises(StudyError, "ST459", "reach", "logistic"):
        replace(EXAMPLES["logistic"], reach=-1.0)
    with raises(StudyError, "ST460"):
        replace(EXAMPLES["linear"], low=9.0)


def encoded(column, values):
    """What the schema makes of numbers within the bounds."""
    share = (np.asarray(values, dtype=np.float64) - column.low) / (column.high - column.low)
    return (2 * share - 1 if column.scale == "signed" else share)[:, None]


@pytest.mark.parametrize("scale", ["signed", "unit"])
def test_labels_come_back_in_the_family_s_units(scale):
    counts, amounts = number(0, 77, scale=scale), number(0.7, 9.1, scale=scale)
    whole, grid = np.arange(78.0), np.linspace(0.7, 9.1, 50)
    assert np.array_equal(labels_for(family_for("poisson", counts), counts, encoded(counts, whole)), whole)
    found = labels_for(family_for("gamma", amounts), amounts, encoded(amounts, grid))
    assert found == pytest.approx(grid, rel=1e-12)
    assert 0.7 <= found.min() <= found.max() <= 9.1
    linear = labels_for(family_for("linear", amounts), amounts, encoded(amounts, [0.7, 4.9, 9.1]))
    assert linear == pytest.approx([-1, 0, 1], abs=1e-15)


def test_labels_of_two_values():
    two, shown = category(["no", "yes"]), np.array([[1.0, 0.0], [0.0, 1.0]])
    assert labels_for(family_for("logistic", two), two, shown).tolist() == [0, 1]
    assert labels_for(family_for("svm", two), two, shown).tolist() == [-1, 1]
    assert labels_for(family_for("svm", flag()), flag(), np.array([[1.0], [0.0]])).tolist() == [1, -1]
    assert labels_for(family_for("logistic", flag()), flag(), np.array([1.0, 0.0])).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "column", "values", "words"),
    [
        ("logistic", flag(), [[1.0], [0.5]], ("DA129", "0", "1")),
        ("svm", category(["a", "b"]), [[1.0, 0.0], [0.0, 0.0]], "DA129"),
        ("linear", number(0, 4), [[1.0], [1.01]], "DA129"),
        ("linear", number(0, 4, scale="unit"), [[1.0], [-0.01]], "DA129"),
        ("poisson", number(0, 4), [[0.5], [0.25]], "DA129"),
        ("gamma", number(1, 4), [[0.5], [math.nan]], "DA129"),
        ("logistic", flag(), [[1.0, 0.0]], "DA128"),
    ],
)
def test_a_label_outside_the_range_is_named_by_its_row(name, column, values, words):
    with raises(DataError, words, "clinic.ill", "2") as caught:
        labels_for(family_for(name, column), column, np.array(values), where="clinic.ill")
    assert "0.25" not in str(caught.value)
