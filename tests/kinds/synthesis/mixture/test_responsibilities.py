"""Responsibilities: on shares within their bounds whatever was dealt, and near the true ones."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.kinds.synthesis.mixture.clipping import (
    NORM_BITS,
    Joint,
    clipped_in_the_clear,
    clipped_on_shares,
    clipping_error,
)
from colonnade.kinds.synthesis.mixture.integers import bounded, densities, shrinking, whole_slopes, whole_statistics
from colonnade.kinds.synthesis.mixture.learner import Linear
from colonnade.kinds.synthesis.mixture.responsibilities import Precision, error, in_the_clear, on_shares
from colonnade.kinds.synthesis.sensitivity import responsibilities_square, vector_square
from colonnade.mpc import Committee, Hand
from colonnade.mpc.fixed.arithmetic import FixedPoint
from colonnade.mpc.fixed.masks import system_for
from colonnade.wire import Room
from tests.kinds.synthesis.mixture.learners import mixture_task


def opened(dealt, precision, threshold=1, squares=(), joint=None):
    """What seats find on shares, opened; the first seat deals everything."""
    seats = tuple(f"s{i}" for i in range(2 * threshold + 1))
    bits = max(bits for _, bits in precision.hidden_bits + (joint.hidden_bits if joint else ()))
    committee = Committee(seats, threshold, system_for(bits, len(seats), threshold))
    room, found = Room(seats), {}

    def work(name):
        place = room.place(name)
        hand = Hand(name, committee, {peer: place.channel(peer) for peer in place.peers})
        engine = FixedPoint(hand, precision.fraction)
        shares = [hand.deal(each) if name == "s0" else hand.receive("s0", each.shape) for each in dealt]
        result = on_shares(engine, [engine.from_shares(s, 1 << precision.fraction) for s in shares], precision)
        if joint:
            more = [hand.deal(each) if name == "s0" else hand.receive("s0", each.shape) for each in squares]
            more = [engine.from_shares(s, most, NORM_BITS) for s, most in zip(more, joint.squares, strict=True)]
            result = clipped_on_shares(engine, result, more, joint)
        hand.send_opening(result.shares, seats)
        found[name] = hand.receive_opening(result.shape, degree=threshold, bound=result.bound, own=result.shares)

    threads = [threading.Thread(target=work, args=(name,), name=name) for name in seats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found["s0"]


def extremes(rng, precision, rows):
    """Numbers that owners may deal: zeros, ones, the largest, powers of two, and chance."""
    f, k = precision.fraction, precision.components
    out = []
    for owner in range(precision.owners):
        top = 1 << f
        kinds = [np.zeros((rows, k)), np.ones((rows, k)), np.full((rows, k), top), 2.0 ** rng.integers(0, f, (rows, k))]
        kinds.append(np.floor(top * rng.random((rows, k)) ** rng.integers(1, 12)))
        each = np.choose(rng.integers(0, 5, (rows, k)), kinds).astype(np.int64)
        if owner == 0:  # whose numbers of a row add up to no more than the whole
            total = np.maximum(each.sum(axis=1, keepdims=True), 1)
            each = np.where(total > precision.whole, each * (precision.whole // total.max() or 0), each)
            each = np.where(total > precision.whole, (each / total * precision.whole).astype(np.int64), each)
            each[: rows // 4] = 0
            each[np.arange(rows // 4), rng.integers(0, k, rows // 4)] = precision.whole
            assert (each.sum(axis=1) <= precision.whole).all()
        out.append(each)
    return out


@settings(max_examples=10, deadline=None)
@given(
    owners=st.integers(2, 4), components=st.integers(1, 12), fraction=st.integers(16, 26), threshold=st.integers(1, 2),
    seed=st.integers(0, 2**31),
)  # fmt: skip
def test_no_row_weighs_more_than_its_bound_whatever_was_dealt(owners, components, fraction, threshold, seed):
    ulps = {1: 2.0, 2: 5.5}[threshold]
    precision = Precision(owners, components, fraction, min(fraction, 20), ulps)
    dealt = extremes(np.random.default_rng(seed), precision, 64)
    whole = opened(dealt, precision, threshold)
    one = 1 << precision.bits
    assert np.abs(whole).sum(axis=1).max() <= (1 + precision.slack) * one
    assert (whole**2).sum(axis=1).max() <= responsibilities_square(precision.bits, precision.slack)
    assert whole.sum(axis=1).min() >= one * (1 - 1.05 * 2.0**-16) - components * ulps * 2
    plain = in_the_clear(dealt, precision)
    assert (np.abs(whole - plain) <= error(dealt, precision)).all()


@settings(max_examples=8, deadline=None)
@given(
    clip=st.floats(0.1, 8), clips=st.lists(st.floats(0.1, 8), min_size=2, max_size=3), components=st.integers(1, 12),
    threshold=st.integers(1, 2), seed=st.integers(0, 2**31),
)  # fmt: skip
def test_no_row_is_longer_than_the_joint_clip(clip, clips, components, threshold, seed):
    ulps = {1: 2.0, 2: 5.5}[threshold]
    precision = Precision(len(clips), components, 26, 20, ulps)
    joint = Joint(clip, tuple(math.ceil(c * c * 2**NORM_BITS) for c in clips), components, 20, ulps)
    rng = np.random.default_rng(seed)
    dealt = extremes(rng, precision, 64)
    squares = [np.floor(most * rng.random((64, components)) ** 2).astype(np.int64) for most in joint.squares]
    squares[0][:20], squares[1][10:30] = joint.squares[0], joint.squares[1]
    whole = opened(dealt, precision, threshold, squares, joint)
    factor = (sum(squares) + (1 << NORM_BITS)).astype(object)
    norms = ((whole.astype(object) ** 2 * factor).sum(axis=1) / 2**NORM_BITS).astype(float)
    assert math.sqrt(norms.max()) <= joint.bound
    assert joint.bound <= clip * 2**20 * 1.02 + 200
    plain = in_the_clear(dealt, precision)
    units = clipping_error(plain, squares, error(dealt, precision), joint)
    assert (np.abs(whole - clipped_in_the_clear(plain, squares, joint)) <= units).all()


def test_the_bound_is_nearly_reached():
    precision = Precision(2, 4, 24, 20, 2.0)
    dealt = [np.array([[precision.whole, 0, 0, 0]]), np.full((1, 4), 1 << 24)]
    assert int((in_the_clear(dealt, precision) ** 2).sum()) > 0.999 * responsibilities_square(20, precision.slack)


@pytest.mark.parametrize(("spread", "largest", "usual"), [(1.0, 2e-3, 1e-4), (2.0, 0.15, 1e-3)])
def test_responsibilities_are_near_the_true_ones(spread, largest, usual):
    """The more the owners' columns contradict each other, the fewer bits of their product are left."""
    rng = np.random.default_rng(4)
    task = mixture_task(components=20, floor=24.0)
    logs = {name: rng.normal(0, spread, (500, 20)) for name in task.owners}
    weights = np.log(rng.dirichlet(np.ones(20)))
    dealt = [densities(logs[name], task, name, weights) for name in task.owners]
    total = sum(logs.values()) + weights
    exact = np.exp(total - total.max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    found = in_the_clear(dealt, task.precision) / 2**task.bits
    assert np.abs(found - exact).max() < largest
    assert np.abs(found - exact).mean() < usual


odd = st.sampled_from([0.0, -0.0, 1.0, -1e300, 1e300, -np.inf, np.inf, np.nan, 5e-324])


@settings(max_examples=60, deadline=None)
@given(st.lists(odd, min_size=4, max_size=4), st.lists(odd, min_size=4, max_size=4))
def test_densities_are_within_their_range_whatever_floats_come_in(logs, weights):
    task = mixture_task()
    rows = np.array([logs, [0.0, -1.0, -2.0, -3.0]])
    usable = np.where(np.isfinite(weights), np.clip(weights, -50, 50), 0.0)
    for name in task.owners:
        found = densities(rows, task, name, usable)
        assert found.dtype == np.int64
        assert found.min() >= 0
        assert found.max() <= 1 << task.fraction
    first = densities(rows, task, task.owners[0], usable)
    assert first.sum(axis=1).max() <= task.precision.whole


@settings(max_examples=60, deadline=None)
@given(
    clip=st.floats(0.01, 50), vector_bits=st.integers(1, 28), scale=st.floats(1e-6, 1e6), seed=st.integers(0, 2**31),
)  # fmt: skip
def test_no_vector_is_longer_than_its_clip(clip, vector_bits, scale, seed):
    task = mixture_task((2, 5, 1), vector_bits=vector_bits)
    task = _with_clip(task, clip)
    rng = np.random.default_rng(seed)
    vectors = rng.normal(0, scale, (40, 5))
    vectors[:10] = clip * np.eye(5)[rng.integers(0, 5, 10)]
    vectors[10, :3] = np.nan, np.inf, -np.inf
    found = bounded(vectors, task, "o1").astype(object)
    most = vector_square(vector_bits, clip)
    assert all(sum(v * v for v in row) <= most for row in found.tolist())
    short = np.linalg.norm(vectors, axis=1) <= clip * (1 - 1e-9)
    assert np.array_equal(found[short], np.trunc(vectors[short] * 2**vector_bits).astype(np.int64))


@settings(max_examples=60, deadline=None)
@given(clip=st.floats(0.05, 20), size=st.floats(1e-3, 1e3), width=st.integers(1, 40), seed=st.integers(0, 2**31))
def test_no_linear_derivative_is_longer_than_its_clip(clip, size, width, seed):
    task = _with_clip(mixture_task((2, width, 1), vectors="linear"), clip)
    rng = np.random.default_rng(seed)
    slopes = whole_slopes(
        Linear(rng.normal(0, size, (4, width)), rng.normal(0, size, (4, width)), np.full(width, width))
    )
    rows = np.column_stack([rng.normal(0, 3, (30, width)), np.ones(30)])
    raw = slopes.of(whole_statistics(rows, task, "o1"))
    whole = (raw * shrinking(raw, task, "o1")[:, :, None]).astype(object)
    most = vector_square(task.vector_bits, clip)
    assert all(sum(v * v for v in vector) <= most for row in whole.tolist() for vector in row)


def test_linear_derivatives_are_near_the_true_ones():
    task = _with_clip(mixture_task((2, 3, 1), vectors="linear"), 1.0)
    rng = np.random.default_rng(1)
    slope, offset = rng.uniform(0.5, 2, (4, 3)), rng.normal(0, 1, (4, 3))
    rows = np.column_stack([rng.normal(0, 1, (50, 3)), np.ones(50)])
    slopes = whole_slopes(Linear(slope, offset, np.full(3, 3)))
    raw = slopes.of(whole_statistics(rows, task, "o1"))
    found = raw * shrinking(raw, task, "o1")[:, :, None] / 2.0**task.vector_bits
    exact = rows[:, None, :3] * slope - offset
    exact /= np.maximum(1, np.linalg.norm(exact, axis=2, keepdims=True))
    assert np.abs(found - exact).max() < 0.01


def _with_clip(task, clip):
    parts = tuple(replace(part, clip=clip) for part in task.parts)
    return replace(task, parts=parts)
