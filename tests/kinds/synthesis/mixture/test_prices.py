"""How far a row moves the sums of a mixture, on shares and in the clear, and what rounds cost every observer."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import PrivacyError
from colonnade.kinds.synthesis.mixture.components import LinearDerivatives
from colonnade.kinds.synthesis.mixture.programs import (
    bound_vectors,
    clip_factors,
    integer_densities,
    integer_slopes,
    integer_statistics,
)
from colonnade.kinds.synthesis.mixture.responsibilities import (
    NORM_BITS,
    JointClip,
    ResponsibilityPrecision,
    clip_in_clear,
    clip_on_shares,
    weigh_in_clear,
    weigh_on_shares,
)
from colonnade.kinds.synthesis.sensitivity import MixtureBounds, responsibilities_square, vector_square
from colonnade.mpc import Committee, ShareEngine
from colonnade.mpc.fixed_point.arithmetic import FixedPointEngine
from colonnade.mpc.fixed_point.masks import residue_system_for
from colonnade.privacy import Observer, accountant, parse_budgets
from colonnade.privacy.accounting.loss_distributions import gaussian_epsilon, gaussian_mu
from colonnade.privacy.events import views
from colonnade.wire import InMemoryNetwork
from research.bounds import noise_ratio
from tests.kinds.synthesis.mixture.learners import clipping_error, error, mixture_task
from tests.support.errors import refused
from tests.support.vectors import VECTORS

ANALYST, PARTY = Observer.analyst(), Observer.party("o0")
DPVI, EXTRA = VECTORS["dpvi"]["dpvi"], VECTORS["extra"]


# --- how far a row moves sums


@pytest.mark.parametrize("case", EXTRA["dpvi_R"])
def test_mixtures_match_the_vectors(case: dict[str, Any]) -> None:
    bound = MixtureBounds(tuple(case["Cp"]), case["f"], case["f2"], case["eta"])
    assert math.sqrt(bound.added()) == pytest.approx(case["delta2_int"], rel=1e-9)
    clips = [Fraction(c) ** 2 for c in case["Cp"]]
    unit = (1 + Fraction(case["eta"])) ** 2 * 4 ** (case["f"] + case["f2"])  # all of these are whole numbers
    assert bound.added() == unit * (1 + sum(clips))
    assert bound.replaced() == unit * max(4 * sum(clips), 2 * (1 + sum(clips)))


rounded = st.sampled_from([0, Fraction(1), Fraction(2), Fraction(11, 2)])


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 4), st.lists(st.floats(0, 3), min_size=1, max_size=3), st.floats(0, 1), rounded,
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_no_row_contributes_more(components: int, clips: list[float], slack: float, below: Fraction, seed: int) -> None:
    """Nor do two rows differ by more: of all columns, or of those that one owner does not hold."""
    rng = np.random.default_rng(seed)
    bits, vector_bits, width = 6, 5, 2
    bound = MixtureBounds(tuple(clips), bits, vector_bits, slack, below)
    top = responsibilities_square(bits, slack)

    def weigh() -> np.ndarray:
        found = (rng.dirichlet(np.full(components, 0.1)) * math.isqrt(top)).astype(int)
        low = -rng.integers(0, int(below) + 1, components)
        found = np.where(rng.random(components) < 0.4, low, found)
        found[found.argmax()] -= max(0, int(np.abs(found).sum()) - math.isqrt(top))
        assert np.abs(found).sum() ** 2 <= top
        return found

    def vectors() -> np.ndarray:
        aim = rng.normal(size=(len(clips), components, width)) * rng.choice([1e-3, 1.0], size=(1, components, 1))
        found = np.trunc(2**vector_bits * np.array(clips)[:, None, None] * aim / np.linalg.norm(aim, axis=2)[..., None])
        limits = np.array([vector_square(vector_bits, clip) for clip in clips])
        assert ((found**2).sum(axis=2) <= limits[:, None]).all()
        return found.astype(int)

    def added(weights: np.ndarray, own: np.ndarray) -> np.ndarray:
        return np.concatenate([weights << vector_bits, (own * weights[:, None]).reshape(-1)])

    one, other = (weigh(), vectors()), (weigh(), vectors())
    if rng.random() < 0.7:  # the worst pairs: vectors of opposite directions, where responsibilities are alike
        other = (one[0].copy() if rng.random() < 0.5 else other[0], -one[1])
    assert (added(*one) ** 2).sum() <= bound.added()
    assert ((added(*one) - added(*other)) ** 2).sum() <= bound.replaced()
    for holder in range(len(clips)):
        kept = other[1].copy()
        kept[holder] = one[1][holder]
        assert ((added(*one) - added(other[0], kept)) ** 2).sum() <= bound.replaced(holder)


@pytest.mark.parametrize("clips", [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("below", [0, 1])
def test_the_farthest_of_all_pairs_of_small_rows_reach_the_bound(clips: tuple[int, int], below: int) -> None:
    """All rows of two components and two owners whose responsibilities add up to 4 units at most."""
    bound = MixtureBounds(clips, 2, 0, 0, below)
    weights = [(a, b) for a, b in product(range(-below, 5), repeat=2) if abs(a) + abs(b) <= 4]
    sizes = [range(-clip, clip + 1) for clip in clips]
    rows = np.array([(*w, *v) for w in weights for v in product(*sizes, *sizes)], dtype=np.float32)
    r, v = rows[:, :2], rows[:, 2:].reshape(-1, 2, 2)  # of each component, what both owners hold
    added = np.hstack([r, (r[:, :, None] * v).reshape(-1, 4)])
    assert (added**2).sum(axis=1).max() == bound.added()
    apart = _squared_distances(added)
    for holder, pairs in [(None, ...), *((h, _same(v[:, :, h])) for h in (0, 1))]:
        farthest = apart[pairs].max()
        assert farthest <= bound.replaced(holder) <= 4 * bound.added()
        assert below or farthest == bound.replaced(holder) < 4 * bound.added()


def _squared_distances(rows: np.ndarray) -> np.ndarray:
    squares = (rows**2).sum(axis=1)
    return np.asarray(squares[:, None] + squares - 2 * rows @ rows.T)


def _same(own: np.ndarray) -> np.ndarray:
    """Which pairs of rows agree in what one owner holds."""
    return np.asarray((own[:, None] == own).all(axis=2))


def test_a_smaller_weight_on_the_counts_costs_less() -> None:
    assert MixtureBounds((2.0,), 8, 8, slack=0, weight=0.5).added() == 4**16 * Fraction(17, 4)


def test_each_observer_pays_for_what_can_change() -> None:
    """The analyst for a row, a party for the columns of others, and the coordinator for all columns."""
    parts = tuple(replace(part, clip=clip) for part, clip in zip(mixture_task().parts, (1.0, 2.0, 3.0), strict=True))
    task = replace(mixture_task(), parts=parts)
    unit, found = task.gamma**2, task.sensitivity
    assert found.l2_squared == pytest.approx(15 * unit, rel=1e-3)
    for names, moved in (("o0", 52), ("o1", 40), ("o2", 30), ("o1+coordinator", 40), ("coordinator", 56)):
        (seen,) = views(task.events, Observer.parse(names), task.trust)
        assert seen.l2_squared == pytest.approx(moved * unit, rel=1e-3), names
        assert seen.single_l2_squared == found.l2_squared
        assert seen.l1**2 <= seen.l2_squared * task.entries
    (seen,) = views(task.events, ANALYST, task.trust)
    assert seen.l2_squared == found.l2_squared


def test_noise_for_the_budget_of_a_party_shrinks() -> None:
    """With three owners and the usual clips: 0.784 of what twice the length of a row asks for."""
    task = _with_clip(mixture_task(sampling="all", rounds=20), 2.0)
    kept = task.calibrate(parse_budgets({"party": 1.0}, 1e-5))
    needed = noise_ratio(gaussian_mu(1.0, 1e-5), 20, moved=4, parties=3, known=1) * math.sqrt(
        task.sensitivity.l2_squared
    )
    assert kept.additive.deviation == pytest.approx(0.784 * needed, rel=2e-3)


# --- what rounds cost


def paper(multiple, owners=2, **changes):
    """Adult in the paper: 30,162 people, batches of 100, 20,000 rounds; noise of so many sensitivities."""
    given = {"rows": 30_162, "batch": 100, "rounds": 20_000, "components": 20, "block_rows": 2048} | changes
    draft = mixture_task((30,) * owners, **given)
    return replace(draft, noise=draft.additive.least_scale(multiple, draft.sensitivity))


def epsilon(task, observer, delta=1e-5):
    return accountant.epsilon(views(task.events, observer, task.trust), delta).epsilon


@pytest.mark.parametrize(
    ("sigma", "expected"),
    [(2.042, DPVI["pld_eps_sigma2.042"]), (DPVI["sigma_pld_eps1"], 1.0)],
)
def test_the_analyst_pays_what_the_paper_says_or_less(sigma, expected):
    assert epsilon(paper(sigma), ANALYST) == pytest.approx(expected, rel=2e-3)
    assert expected <= 1.0 + 1e-9 < DPVI["sigma_rdp_eps1"]


def test_a_party_pays_for_epochs_of_disjoint_batches():
    """It knows its own share of the noise. The vectors take a replaced person to move sums twice as far as a new one.

    Between two owners of equal clips it is the root of two times as far. With the noise of the paper the vectors have
    112 and 128. Beyond about 60 the far end of the noise, which the samplers cut off, is too large for any figure at
    this delta; so here is ten times the noise.
    """
    task = paper(20.42, sampling="disjoint")
    assert task.epochs == 67
    moved = math.sqrt(task.replaced_squared("o0") / task.sensitivity.l2_squared)
    assert moved == pytest.approx(math.sqrt(2), rel=1e-3)
    expected = gaussian_epsilon(moved / 20.42 * math.sqrt(67 * 2), 1e-5)
    assert epsilon(task, PARTY) == pytest.approx(expected, rel=1e-3)
    assert gaussian_epsilon(2 / 2.042 * math.sqrt(67 * 2), 1e-5) == pytest.approx(DPVI["gdp_eps_P2_sens2_steps67"])
    assert math.isinf(epsilon(paper(2.042, sampling="disjoint"), PARTY))


def test_a_party_pays_for_batches_that_it_knows():
    known, hidden = (epsilon(paper(20.42), who) for who in (PARTY, ANALYST))
    in_turn = epsilon(paper(20.42, sampling="disjoint"), PARTY)
    assert 20 * hidden < in_turn < known < 1.25 * in_turn


@pytest.mark.parametrize("case", EXTRA["em_sigma"])
def test_expectation_maximisation_costs_as_many_releases(case):
    """With the deviations of the vectors both epsilons are the same."""
    mu, due = gaussian_mu(case["eps"], case["delta"]), case["sigma_over_Delta_analyst_addremove"]
    assert noise_ratio(mu, case["T"]) == pytest.approx(due, rel=1e-6)
    assert case["T"] / noise_ratio(mu, case["T"]) ** 2 <= mu**2 * (1 + 1e-15)
    replaced = noise_ratio(mu, case["T"], moved=4, parties=case["P"], known=1)
    assert replaced == pytest.approx(case["sigma_over_Delta_party_replace"], rel=1e-6)
    for observer, sigma in ((ANALYST, due), (PARTY, replaced)):
        task = paper(sigma, case["P"], sampling="all", rounds=case["T"], batch=30_162)
        if observer == PARTY:  # the vectors charge twice the length of a row
            moved = Fraction(task.replaced_squared("o0"), task.sensitivity.l2_squared)
            sigma = noise_ratio(mu, case["T"], moved=moved, parties=case["P"], known=1)
            assert sigma < 0.85 * replaced
            task = paper(sigma, case["P"], sampling="all", rounds=case["T"], batch=30_162)
        assert epsilon(task, observer, case["delta"]) == pytest.approx(case["eps"], rel=1e-4)


def test_what_is_charged_for_masks_and_room_is_small():
    task = paper(2.0)
    assert float(task.distance) * task.rounds < 1e-7
    assert task.batch_places(30_162) == 192


def test_joint_clipping_costs_its_clip():
    """A joint clip C takes the place of the root of 1 and the squared clips of the owners."""
    local, joint = mixture_task(), mixture_task(joint_clip=1.0)
    assert math.sqrt(local.sensitivity.l2_squared) == pytest.approx(2 * local.gamma, rel=1e-3)
    assert math.sqrt(joint.sensitivity.l2_squared) == pytest.approx(joint.gamma, rel=1e-3)
    wide = mixture_task(joint_clip=50.0)  # it never bites, but clipped responsibilities are truncated once more
    assert local.sensitivity.l2_squared < wide.sensitivity.l2_squared < local.sensitivity.l2_squared * (1 + 1e-4)


def test_clips_and_noise_that_make_no_sense_are_refused_when_planning():
    wide = mixture_task(vectors="derivatives")
    refused(PrivacyError, "PR120", mixture_task, joint_clip=1e6)
    long = tuple(replace(part, clip=1e5) for part in wide.parts)
    refused(PrivacyError, "PR119", replace, wide, joint_clip=1.0, parts=long)
    many = (replace(wide.parts[0], width=4001), *wide.parts[1:])
    refused(PrivacyError, "PR130", "4,001", "4,000", replace, wide, parts=many)
    refused(PrivacyError, "PR020", paper(2.0).calibrate, parse_budgets({"analyst": 1.0}, 1e-12))
    refused(PrivacyError, "PR094", noise_ratio, 1.0, 5, parties=2, known=2)
    refused(PrivacyError, "PR095", noise_ratio, 0.0, 5)


def opened(dealt, precision, threshold=1, squares=(), joint=None):
    """What seats find on shares, opened; the first seat deals everything."""
    seats = tuple(f"s{i}" for i in range(2 * threshold + 1))
    bits = max(bits for _, bits in precision.hidden_bits + (joint.hidden_bits if joint else ()))
    committee = Committee(seats, threshold, residue_system_for(bits, len(seats), threshold))
    room = InMemoryNetwork(seats)

    def work(name):
        place = room.place(name)
        hand = ShareEngine(name, committee, {peer: place.channel(peer) for peer in place.peers})
        engine = FixedPointEngine(hand, precision.fraction)
        shares = [hand.deal(each) if name == "s0" else hand.receive("s0", each.shape) for each in dealt]
        result = weigh_on_shares(engine, [engine.from_shares(s, 1 << precision.fraction) for s in shares], precision)
        if joint:
            more = [hand.deal(each) if name == "s0" else hand.receive("s0", each.shape) for each in squares]
            more = [engine.from_shares(s, most, NORM_BITS) for s, most in zip(more, joint.squares, strict=True)]
            result = clip_on_shares(engine, result, more, joint)
        hand.send_opening(result.shares, seats)
        return hand.receive_opening(result.shape, degree=threshold, bound=result.bound, own=result.shares)

    with ThreadPoolExecutor(len(seats)) as pool:
        return next(pool.map(work, seats))


def extremes(rng, precision, rows):
    """Numbers that owners may deal: zeros, ones, the largest, powers of two, and chance; the first owner's add up."""
    f, shape = precision.fraction, (rows, precision.components)
    out = []
    for _ in range(precision.owners):
        kinds = [np.zeros(shape), np.ones(shape), np.full(shape, 1 << f), 2.0 ** rng.integers(0, f, shape)]
        kinds.append(np.floor((1 << f) * rng.random(shape) ** rng.integers(1, 12)))
        out.append(np.choose(rng.integers(0, 5, shape), kinds).astype(np.int64))
    total = out[0].sum(axis=1, keepdims=True)
    out[0] = np.where(
        total > precision.whole, (out[0] / np.maximum(total, 1) * precision.whole).astype(np.int64), out[0]
    )
    out[0][: rows // 4] = 0
    out[0][np.arange(rows // 4), rng.integers(0, precision.components, rows // 4)] = precision.whole
    assert (out[0].sum(axis=1) <= precision.whole).all()
    return out


@settings(max_examples=10, deadline=None)
@given(
    owners=st.integers(2, 4), components=st.integers(1, 12), fraction=st.integers(16, 26), threshold=st.integers(1, 2),
    seed=st.integers(0, 2**31),
)  # fmt: skip
def test_no_row_weighs_more_than_its_bound_whatever_was_dealt(owners, components, fraction, threshold, seed):
    ulps = {1: 2.0, 2: 5.5}[threshold]
    precision = ResponsibilityPrecision(owners, components, fraction, min(fraction, 20), ulps)
    dealt = extremes(np.random.default_rng(seed), precision, 64)
    whole = opened(dealt, precision, threshold)
    one = 1 << precision.bits
    assert np.abs(whole).sum(axis=1).max() <= (1 + precision.slack) * one
    assert (whole**2).sum(axis=1).max() <= responsibilities_square(precision.bits, precision.slack)
    assert whole.min() > -ulps
    assert whole.sum(axis=1).min() >= one * (1 - 1.05 * 2.0**-16) - components * ulps * 2
    plain = weigh_in_clear(dealt, precision)
    assert (np.abs(whole - plain) <= error(dealt, precision)).all()


@settings(max_examples=8, deadline=None)
@given(
    clip=st.floats(0.1, 8), clips=st.lists(st.floats(0.1, 8), min_size=2, max_size=3), components=st.integers(1, 12),
    threshold=st.integers(1, 2), seed=st.integers(0, 2**31),
)  # fmt: skip
def test_no_row_is_longer_than_the_joint_clip(clip, clips, components, threshold, seed):
    ulps = {1: 2.0, 2: 5.5}[threshold]
    precision = ResponsibilityPrecision(len(clips), components, 26, 20, ulps)
    joint = JointClip(clip, tuple(math.ceil(c * c * 2**NORM_BITS) for c in clips), precision)
    rng = np.random.default_rng(seed)
    dealt = extremes(rng, precision, 64)
    squares = [np.floor(most * rng.random((64, components)) ** 2).astype(np.int64) for most in joint.squares]
    squares[0][:20], squares[1][10:30] = joint.squares[0], joint.squares[1]
    whole = opened(dealt, precision, threshold, squares, joint)
    factor = (sum(squares) + (1 << NORM_BITS)).astype(object)
    norms = ((whole.astype(object) ** 2 * factor).sum(axis=1) / 2**NORM_BITS).astype(float)
    assert math.sqrt(norms.max()) <= joint.bound
    assert whole.min() > -2 * ulps
    assert joint.bound <= clip * 2**20 * 1.02 + 200
    plain = weigh_in_clear(dealt, precision)
    units = clipping_error(plain, squares, error(dealt, precision), joint)
    assert (np.abs(whole - clip_in_clear(plain, squares, joint)) <= units).all()


def test_the_bound_is_nearly_reached():
    precision = ResponsibilityPrecision(2, 4, 24, 20, 2.0)
    dealt = [np.array([[precision.whole, 0, 0, 0]]), np.full((1, 4), 1 << 24)]
    assert int((weigh_in_clear(dealt, precision) ** 2).sum()) > 0.999 * responsibilities_square(20, precision.slack)


@pytest.mark.parametrize(("spread", "largest", "usual"), [(1.0, 2e-3, 1e-4), (2.0, 0.15, 1e-3)])
def test_responsibilities_are_near_the_true_ones(spread, largest, usual):
    """The more the owners' columns contradict each other, the fewer bits of their product are left."""
    rng = np.random.default_rng(4)
    task = mixture_task(components=20, floor=24.0)
    logs = {name: rng.normal(0, spread, (500, 20)) for name in task.owners}
    weights = np.log(rng.dirichlet(np.ones(20)))
    dealt = [integer_densities(logs[name], task, name, weights) for name in task.owners]
    total = sum(logs.values()) + weights
    exact = np.exp(total - total.max(axis=1, keepdims=True))
    exact /= exact.sum(axis=1, keepdims=True)
    found = weigh_in_clear(dealt, task.precision) / 2**task.bits
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
        found = integer_densities(rows, task, name, usable)
        assert 0 <= found.min() <= found.max() <= 1 << task.fraction
    first = integer_densities(rows, task, task.owners[0], usable)
    assert first.sum(axis=1).max() <= task.precision.whole


@settings(max_examples=60, deadline=None)
@given(
    clip=st.floats(0.01, 50), vector_bits=st.integers(1, 28), scale=st.floats(1e-6, 1e6), seed=st.integers(0, 2**31),
)  # fmt: skip
def test_no_vector_is_longer_than_its_clip(clip, vector_bits, scale, seed):
    task = _with_clip(mixture_task((2, 5, 1), vector_bits=vector_bits), clip)
    rng = np.random.default_rng(seed)
    vectors = rng.normal(0, scale, (40, 5))
    vectors[:10] = clip * np.eye(5)[rng.integers(0, 5, 10)]
    vectors[10, :3] = np.nan, np.inf, -np.inf
    found = bound_vectors(vectors, task, "o1").astype(object)
    most = vector_square(vector_bits, clip)
    assert all(sum(v * v for v in row) <= most for row in found.tolist())
    short = np.linalg.norm(vectors, axis=1) <= clip * (1 - 1e-9)
    assert np.array_equal(found[short], np.trunc(vectors[short] * 2**vector_bits).astype(np.int64))


@settings(max_examples=60, deadline=None)
@given(clip=st.floats(0.05, 20), size=st.floats(1e-3, 1e3), width=st.integers(1, 40), seed=st.integers(0, 2**31))
def test_no_linear_derivative_is_longer_than_its_clip(clip, size, width, seed):
    task = _with_clip(mixture_task((2, width, 1), vectors="linear"), clip)
    rng = np.random.default_rng(seed)
    slopes = integer_slopes(
        LinearDerivatives(rng.normal(0, size, (4, width)), rng.normal(0, size, (4, width)), np.full(width, width))
    )
    rows = np.column_stack([rng.normal(0, 3, (30, width)), np.ones(30)])
    raw = slopes.of_rows(integer_statistics(rows, task, "o1"))
    whole = (raw * clip_factors(raw, task, "o1")[:, :, None]).astype(object)
    most = vector_square(task.vector_bits, clip)
    assert all(sum(v * v for v in vector) <= most for row in whole.tolist() for vector in row)


def test_linear_derivatives_are_near_the_true_ones():
    task = _with_clip(mixture_task((2, 3, 1), vectors="linear"), 1.0)
    rng = np.random.default_rng(1)
    slope, offset = rng.uniform(0.5, 2, (4, 3)), rng.normal(0, 1, (4, 3))
    rows = np.column_stack([rng.normal(0, 1, (50, 3)), np.ones(50)])
    slopes = integer_slopes(LinearDerivatives(slope, offset, np.full(3, 3)))
    raw = slopes.of_rows(integer_statistics(rows, task, "o1"))
    found = raw * clip_factors(raw, task, "o1")[:, :, None] / 2.0**task.vector_bits
    exact = rows[:, None, :3] * slope - offset
    exact /= np.maximum(1, np.linalg.norm(exact, axis=2, keepdims=True))
    assert np.abs(found - exact).max() < 0.01


def _with_clip(task, clip):
    return replace(task, parts=tuple(replace(part, clip=clip) for part in task.parts))
