"""The audit catches what is wrong, and what is right it leaves alone."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import beta, binom

from colonnade.audit import TableChange, games, neighbours_in_ball, sensitivity_probe
from colonnade.audit.registry import EPSILONS, _at_least, profile_audit
from colonnade.errors import PrivacyError
from colonnade.privacy.accounting.loss_distributions import gaussian_mu
from colonnade.privacy.sensitivity import moments_sensitivity, rounded_norm_squared
from colonnade.protocols.moments.programs import OwnMoments, exact_gram
from research.bounds import gaussian_delta
from tests.support.errors import refused

MU = gaussian_mu(1.0, 1e-5)


def gaussian(epsilons):
    return np.array([gaussian_delta(MU, float(epsilon)) for epsilon in epsilons])


def laplace(epsilons):
    """Epsilon 1, pure."""
    return np.maximum(0.0, -np.expm1((np.asarray(epsilons) - 1) / 2))


def nothing(epsilons):
    return np.zeros_like(epsilons)


def shown(p, q, **how):
    return profile_audit(nothing, p, q, **how).epsilon_lower_bound


def normals(seed, shift, count=400_000):
    rng = np.random.default_rng(seed)
    return rng.normal(size=count), rng.normal(size=count) + shift


def test_a_gaussian_mechanism_of_epsilon_one_passes():
    result = profile_audit(gaussian, *normals(1, MU, 100_000))
    assert (result.caught, result.margin < 0) == (False, True)
    assert 0.4 < result.epsilon_lower_bound < 1.0
    assert all(low <= claimed for low, claimed in zip(result.lower, result.claimed, strict=True))
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain["epsilons"] == list(EPSILONS)
    assert len(plain["claimed"]) == len(plain["lower"]) == 121
    assert (plain["caught"], plain["samples"]) == (False, [100_000, 100_000])


@pytest.mark.parametrize("share", [0.5, 1.3, math.sqrt(2)])
def test_reach_says_how_much_of_the_promise_was_shown(share):
    """With 1/share of the promised deviation the truth is that share of the promise: close from below."""
    result = profile_audit(gaussian, *normals(5, MU * share))
    assert share - 0.12 < result.reach <= share
    assert (result.caught, result.margin > 0.02) == (share > 1, share > 1)


def test_nothing_to_see_is_a_reach_of_nothing_and_certainty_one_without_end():
    p, q = normals(9, 0, 20_000)
    for claim, other, reach, written in ((gaussian, q, 0, 0), (laplace, q + 100, math.inf, None)):
        result = profile_audit(claim, p, other)
        assert (result.reach, result.to_dict()["reach"]) == (reach, written)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), shift=st.floats(0, 3))
def test_a_promise_is_refuted_exactly_where_reach_exceeds_one(seed, shift):
    result = profile_audit(gaussian, *normals(seed, shift, 2000), epsilons=[0.0, 0.4, 1.0])
    assert result.caught == (result.reach > 1)


def test_order_does_not_matter_to_the_verdict():
    # One-sided: under the second table alone a rare value appears, so only one order can show it.
    rng = np.random.default_rng(2)
    p, q = rng.normal(size=20_000), np.where(rng.random(20_000) < 0.05, 100.0, rng.normal(size=20_000))
    first, second = (profile_audit(nothing, *pair, epsilons=[1.0]) for pair in ((p, q), (q, p)))
    assert first.caught
    assert (first.order, second.order) == (1, 0)
    assert first.margin == second.margin


def test_the_lower_bound_of_a_pure_mechanism_comes_close_and_stays_below():
    rng = np.random.default_rng(3)
    p, q = rng.laplace(size=400_000), rng.laplace(size=400_000) + 1
    for other, caught in ((q, False), (q + 0.3, True)):
        result = profile_audit(laplace, p, other)
        assert (result.caught, 0.95 < result.epsilon_lower_bound < 1.0) == (caught, not caught)


def test_exact_values_are_told_apart_even_beyond_the_precision_of_floats():
    p, q = np.full(5000, 2**60, dtype=np.int64), np.full(5000, 2**60 + 1, dtype=np.int64)
    result = profile_audit(laplace, p, q)
    assert (result.caught, result.epsilon_lower_bound > 5) == (True, True)


def test_clopper_and_pearson():
    hits = np.array([0, 1, 7, 500, 999, 1000])
    found = _at_least(hits, 1000, 1e-4)
    assert found == pytest.approx([0, *beta.ppf(1e-4, hits[1:], 1001 - hits[1:])], rel=1e-9)
    # What the bound promises: seeing so many hits or more, if the chance were the bound, is rare.
    assert binom.sf(hits[1:] - 1, 1000, found[1:]) == pytest.approx(np.full(5, 1e-4), rel=1e-6)


def test_false_alarms_are_rarer_than_promised():
    """Claims that hold with equality, at a confidence of 90 %: at most the binomial expectation of alarms."""
    rng, runs, alarms = np.random.default_rng(4), 120, np.zeros(2)
    for _ in range(runs):
        p, q, r = rng.normal(size=(3, 1500))
        # Equal laws and a claim of nothing at all: any event that only looks good by chance would give an alarm.
        pairs = ((gaussian, q + MU), (nothing, r))
        grid = {"epsilons": [0.0, 0.3, 0.6, 1.0, 1.5], "confidence": 0.9}
        alarms += [profile_audit(claim, p, other, **grid).caught for claim, other in pairs]
    assert alarms.max() <= binom.ppf(0.999, runs, 0.1)


def test_the_epsilon_bound_is_seldom_above_the_truth():
    rng, runs = np.random.default_rng(5), 120
    pairs = (rng.laplace(size=(2, 1500)) for _ in range(runs))
    above = sum(shown(p, q + 1, confidence=0.9) > 1.0 for p, q in pairs)
    assert above <= binom.ppf(0.999, runs, 0.1)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.integers(1, 1000), shift=st.integers(-(10**9), 10**9))
def test_only_the_order_of_values_counts(seed, scale, shift):
    rng = np.random.default_rng(seed)
    p, q = rng.geometric(0.1, 2000), rng.geometric(0.15, 2000)
    plain, moved, swapped = (
        profile_audit(gaussian, *pair, epsilons=[0.0, 0.5, 1.0])
        for pair in ((p, q), (p * scale + shift, q * scale + shift), (q, p))
    )
    assert plain == moved
    assert (swapped.margin, swapped.lower) == (plain.margin, plain.lower)


def test_what_cannot_be_audited_is_refused():
    p, q = normals(8, 0, 1000)
    for code, audit, first in (
        ("PR006", profile_audit, np.zeros(10)),
        ("PR006", profile_audit, np.zeros((100, 100))),
        ("PR007", profile_audit, np.full(1000, np.nan)),
        ("PR007", profile_audit, np.array(["a"] * 200)),
        ("PR004", partial(profile_audit, confidence=1.0), p),
        *(("PR002", partial(profile_audit, epsilons=[0.0, e]), p) for e in (math.nan, math.inf, -math.inf, 800.0)),
    ):
        refused(PrivacyError, code, audit, nothing, first, q)
    refused(PrivacyError, "PR005", shown, p, q, delta=1.0)
    refused(PrivacyError, "PR003", profile_audit, lambda epsilons: np.zeros(3), p, q)


# --- the probe finds bounds that are too small, exactly, and says which pair shows it


def gram(rows):
    """The full matrix of rows that are rounded away from zero, the worst that rounding by coin can do."""
    whole = np.sign(rows) * np.ceil(np.abs(rows) * GAMMA)
    return whole.T @ whole


GAMMA, CLIP, WIDTH = 16, 1.0, 3
BOUND = moments_sensitivity(rounded_norm_squared(GAMMA, [CLIP], [WIDTH]), WIDTH)


@pytest.mark.parametrize("replace", [False, True])
def test_the_moments_bound_holds(stream, replace):
    bound = (BOUND.replace_l1, BOUND.replace_l2_squared) if replace else (BOUND.l1, BOUND.l2_squared)
    report = sensitivity_probe(
        gram, neighbours_in_ball(WIDTH, CLIP, stream, count=300, replace=replace), TableChange(*bound)
    )
    assert (report.violated, report.pairs) == (False, 330)
    assert report.l2_squared_ratio > 0.6


@pytest.mark.parametrize("replace", [False, True])
def test_neighbours_differ_in_one_row_and_stay_in_the_ball(stream, replace):
    for left, right in neighbours_in_ball(4, 2.0, stream, count=50, replace=replace):
        assert len(left) - len(right) == (0 if replace else 1)
        common = min(len(left), len(right)) - replace
        assert np.array_equal(left[:common], right[:common])
        assert np.linalg.norm(left, axis=1).max() <= 2.0 + 1e-12


def test_the_single_bound_does_not_hold_for_replacing(stream):
    pairs = list(neighbours_in_ball(WIDTH, CLIP, stream, count=50))
    report = sensitivity_probe(gram, pairs, TableChange(BOUND.l1, BOUND.l2_squared))
    left, right = pairs[report.l2_pair]
    largest = int(((gram(left) - gram(right)) ** 2).sum())
    assert (report.violated, report.largest.l2_squared) == (True, largest)
    assert report.l2_squared_ratio == Fraction(largest, BOUND.l2_squared)


def test_corners_find_the_exact_sensitivity_of_the_upper_triangle():
    """D(D+1)/2 for |z| <= 1 in every coordinate, whichever row replaces which."""
    upper, rows = np.triu_indices(3), [np.array(corner) for corner in product((-1, 0, 1), repeat=3)]
    report = sensitivity_probe(
        lambda z: np.outer(z, z)[upper], product(rows, rows), TableChange(3 * (3 + 1) // 2, 10**6)
    )
    assert (report.violated, report.l1_ratio) == (False, 1)


def test_the_integers_of_the_protocol_stay_within_the_event(stream):
    """Rounding by coin included: the very quantiser of the owners, each with rows up to its own clip."""
    task = games("pca")[0].sampler.task

    def opened(rows):
        blocks = {owner: OwnMoments(task, owner) for owner in task.owners}
        whole = [block.quantise(rows[:, task.span(owner)], stream) for owner, block in blocks.items()]
        joint = np.hstack([*whole, np.full((len(rows), 1), float(task.constant))])
        return exact_gram(joint, task.norm_squared)

    held = [neighbours_in_ball(len(block.columns), block.clip, stream, rows=0) for block in task.blocks]
    pairs = [tuple(map(np.hstack, zip(*parts, strict=True))) for parts in zip(*held, strict=True)]
    event = task.event
    report = sensitivity_probe(opened, pairs, TableChange(event.replace_l1, event.replace_l2_squared))
    assert not report.violated
    assert report.l2_squared_ratio > 0.5


def test_large_integers_are_not_rounded():
    for l1, violated in ((3, False), (2, True)):
        report = sensitivity_probe(lambda value: [value], [(2**80, 2**80 + 3)], TableChange(l1, 9))
        assert (report.violated, report.largest) == (violated, TableChange(3, 9))


def test_what_cannot_be_probed_is_refused():
    for code, pairs in (("PR010", [([0.5], [0.25])]), ("PR008", [([1], [1, 2])]), ("PR009", [])):
        refused(PrivacyError, code, sensitivity_probe, lambda value: value, pairs, TableChange(1, 1))
