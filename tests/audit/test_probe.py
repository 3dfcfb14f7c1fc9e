"""The probe finds bounds that are too small, exactly, and says which pair shows it."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from colonnade.audit import Change, games, neighbours_in_ball, sensitivity_probe
from colonnade.errors import PrivacyError
from colonnade.privacy.sensitivity import moments_sensitivity, rounded_norm_squared
from colonnade.protocols.moments.integers import OwnBlock, exact_gram
from tests.support.errors import raises


def gram(rows):
    """The full matrix of rows that are rounded away from zero, the worst that rounding by coin can do."""
    whole = np.sign(rows) * np.ceil(np.abs(rows) * GAMMA)
    return whole.T @ whole


GAMMA, CLIP, WIDTH = 16, 1.0, 3
BOUND = moments_sensitivity(rounded_norm_squared(GAMMA, [CLIP], [WIDTH]), WIDTH)


@pytest.mark.parametrize("replace", [False, True])
def test_the_moments_bound_holds(stream, replace):
    single, double = Change(BOUND.l1, BOUND.l2_squared), Change(BOUND.replace_l1, BOUND.replace_l2_squared)
    pairs = neighbours_in_ball(WIDTH, CLIP, stream, count=300, replace=replace)
    report = sensitivity_probe(gram, pairs, double if replace else single)
    assert not report.violated
    assert report.pairs == 330
    assert report.l2_squared_ratio > 0.6


def test_neighbours_differ_in_one_row_and_stay_in_the_ball(stream):
    for replace in (False, True):
        for left, right in neighbours_in_ball(4, 2.0, stream, count=50, replace=replace):
            assert len(left) - len(right) == (0 if replace else 1)
            common = min(len(left), len(right)) - (1 if replace else 0)
            assert np.array_equal(left[:common], right[:common])
            assert np.linalg.norm(left, axis=1).max() <= 2.0 + 1e-12


def test_the_single_bound_does_not_hold_for_replacing(stream):
    pairs = list(neighbours_in_ball(WIDTH, CLIP, stream, count=50))
    report = sensitivity_probe(gram, pairs, Change(BOUND.l1, BOUND.l2_squared))
    assert report.violated
    left, right = pairs[report.l2_pair]
    change = (gram(left) - gram(right)).astype(int)
    assert report.largest.l2_squared == int((change**2).sum())
    assert report.l2_squared_ratio == Fraction(report.largest.l2_squared, BOUND.l2_squared)


def test_a_published_rounding_bound_is_refuted():
    """sqrt(gamma^2 c^2 + n) with gamma 3 and four columns of 1/2: rounded up the row has a squared norm of 16."""
    published = 3**2 + 4
    row = np.full((1, 4), 0.5)
    report = sensitivity_probe(lambda rows: np.ceil(rows * 3).sum(axis=0), [(row, row[:0])], Change(100, published))
    assert report.violated
    assert report.largest.l2_squared == 16


def test_a_published_sensitivity_of_least_squares_is_refuted():
    """Theorem 2 of the functional mechanism counts a party's cross terms once: 32 for one of 14 features."""
    features, published = 14, 2 * (2 * 1 + 1 * 14)

    def coefficients(row):
        z = np.array([*row[:-1], -row[-1]], dtype=object)
        return np.outer(z, z).ravel()

    corners = [((1, *[1] * features), (-1, *[1] * features))]
    report = sensitivity_probe(coefficients, corners, Change(published, 10**6))
    assert report.violated
    assert report.largest.l1 == 56


def test_corners_find_the_exact_sensitivity_of_the_upper_triangle():
    """D(D+1)/2 for |z| <= 1 in every coordinate, whichever row replaces which."""
    size = 3
    upper = np.triu_indices(size)
    rows = [np.array(corner) for corner in product((-1, 0, 1), repeat=size)]
    pairs = [(left, right) for left in rows for right in rows]
    bound = Change(size * (size + 1) // 2, 10**6)
    report = sensitivity_probe(lambda z: np.outer(z, z)[upper], pairs, bound)
    assert not report.violated
    assert report.l1_ratio == 1


def test_the_integers_of_the_protocol_stay_within_the_event(stream):
    """Rounding by coin included: the very quantiser of the owners, each with rows up to its own clip."""
    task = games("pca")[0].sampler.task

    def opened(rows):
        blocks = {owner: OwnBlock(task, owner) for owner in task.owners}
        whole = [block.quantise(rows[:, task.span(owner)], stream) for owner, block in blocks.items()]
        joint = np.hstack([*whole, np.full((len(rows), 1), float(task.constant))])
        return exact_gram(joint, task.norm_squared)

    held = [neighbours_in_ball(len(block.columns), block.clip, stream, rows=0) for block in task.blocks]
    pairs = [tuple(map(np.hstack, zip(*parts, strict=True))) for parts in zip(*held, strict=True)]
    event = task.event
    report = sensitivity_probe(opened, pairs, Change(event.replace_l1, event.replace_l2_squared))
    assert not report.violated
    assert report.l2_squared_ratio > 0.5


def test_large_integers_are_not_rounded():
    report = sensitivity_probe(lambda value: [value], [(2**80, 2**80 + 3)], Change(3, 9))
    assert not report.violated
    assert report.largest == Change(3, 9)
    assert sensitivity_probe(lambda value: [value], [(2**80, 2**80 + 3)], Change(2, 9)).violated


def test_what_cannot_be_probed_is_refused():
    with raises(PrivacyError, "PR010"):
        sensitivity_probe(lambda value: [value], [(0.5, 0.25)], Change(1, 1))
    with raises(PrivacyError, "PR008"):
        sensitivity_probe(lambda value: value, [([1], [1, 2])], Change(1, 1))
    with raises(PrivacyError, "PR009"):
        sensitivity_probe(lambda value: value, [], Change(1, 1))
