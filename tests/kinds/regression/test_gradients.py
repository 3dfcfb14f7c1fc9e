"""Integer gradients: how far one person moves them, the protocol against the plain iteration, and its weights."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from colonnade import LogisticRegression, flag
from colonnade.errors import CapacityError, DataError, PrivacyError
from colonnade.kinds.regression import programs as gradients
from colonnade.kinds.regression.least_squares import GradientDescent, squared_norm
from colonnade.kinds.regression.programs import quantise
from colonnade.kinds.regression.sensitivity import (
    Program,
    cubic_maximum,
    gradient_scale,
    gradient_sensitivity,
    worst_weights_squared,
)
from colonnade.kinds.regression.task import OVERFLOW
from colonnade.privacy import Observer, PoissonSampled, RepeatedRelease, Statement, parse_budgets
from colonnade.privacy.accounting.loss_distributions import gaussian_epsilon
from colonnade.privacy.sensitivity import party_norm_squared, root_up
from colonnade.protocols import iteration
from colonnade.protocols.iteration import COIN, assign_batches
from colonnade.protocols.roles import COORDINATOR
from colonnade.randomness import Stream
from colonnade.wire import codec
from research import formulas as published
from research.bounds import Polynomial, gradient_norm, polynomial_sensitivity
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.federations import federation, numbers
from tests.support.protocols import Rows, gradients_task as make_task, tables_of

execute = partial(kit.execute, gradients)


def make_tables(task, rows, seed):
    labels = np.random.default_rng(seed).integers(0, 2, (rows, task.classes)).astype(float)
    return tables_of(task, rows, seed), labels


def plain(task, tables, labels, drawn):
    """The whole iteration in the clear, on the reference's integers."""
    constant = np.full((len(labels), 1), task.constant)
    parts = [np.rint(tables[o] * (task.gamma * task.scale)) for o in task.owners]
    whole = np.hstack([*parts, constant]).astype(np.int64)
    descent, opened = GradientDescent(task), []
    for batch in gradients.iterate_batches(task, len(labels), drawn):
        opened.append(gradients.reference(whole[batch], labels[batch].astype(np.int64), descent.integer_weights, task))
        descent.step(opened[-1])
    return opened, descent.learned


# Weights so far beyond half a prime that products with them would be rounded.
LONG = ((2, 1), None, 1, {"gamma": 2**15, "weight_bound": 2.0**25, "learning_rate": 2.0**30, "classes": 2})

settings_ = st.sampled_from(
    [
        ((2, 1), None, 1, {}),
        ((2, 1, 2), None, 1, {"classes": 3}),
        ((2, 1), None, 1, {"expansion": 3, "gamma": 16}),
        ((1, 1, 1, 2, 1), None, 2, {"expansion": 3, "gamma": 16, "classes": 2}),
        ((1,) * 9, tuple(f"o{i}" for i in (1, 3, 4, 6, 8)), 2, {"sampling": "disjoint"}),
        ((3, 2, 2), None, 1, {"gamma": 2**14, "sampling": "disjoint", "rounds": 11}),
        ((1,) * 7, None, 3, {"law": "discrete-gaussian"}),
        ((2, 0, 1), None, 1, {}),
    ]
)


@settings(max_examples=12, deadline=None)
@given(setting=settings_, rows=st.integers(1, 60), seed=st.integers(0, 2**31))
@example(setting=LONG, rows=40, seed=1)
def test_every_opened_gradient_equals_the_plaintext_reference(setting, rows, seed):
    widths, seats, threshold, changes = setting
    task = make_task(widths, seats, threshold, **changes)
    tables, labels = make_tables(task, rows, seed)
    seen: dict[str, list] = {}
    key = bytes(range(32))
    with pytest.MonkeyPatch.context() as patch:
        kit.no_noise(patch)
        kit.nearest(patch)
        patch.setattr(gradients, "new_key", lambda: key)
        real = gradients._open

        def kept(me, *rest):
            seen.setdefault(me.name, []).append(real(me, *rest))
            return seen[me.name][-1]

        patch.setattr(gradients, "_open", kept)
        results = execute(task, tables, labels)
    ids = Rows(labels).ids
    drawn = gradients.batch_secret(task, key, ids)
    want, learned = plain(task, tables, labels, drawn)
    assert set(seen) == set(task.trust.committee)
    for opened in seen.values():
        assert all((got == right).all() for got, right in zip(opened, want, strict=True))
    assert set(results) == {*task.owners, COORDINATOR}
    for result in results.values():
        assert np.array_equal(result.weights, learned.weights)


def test_the_noise_of_all_owners_is_in_every_round(monkeypatch):
    task = make_task(rounds=3)
    drawn, opened, opening = kit.noise_drawn(monkeypatch, gradients), [], gradients._open

    def kept(me, *rest):
        opened.append((me.name, opening(me, *rest)))
        return opened[-1][1]

    monkeypatch.setattr(gradients, "_open", kept)
    monkeypatch.setattr(gradients, "iterate_batches", lambda task, rows, drawn: iter([np.arange(0)] * task.rounds))
    tables, labels = make_tables(task, 20, 1)
    execute(task, tables, labels)
    assert len(drawn) == 3
    at_first = [value for name, value in opened if name == "o0"]
    assert np.array_equal(at_first, sum(drawn))
    assert np.any(sum(drawn))


def test_simulation_publishes_what_the_protocol_would(exact):
    task = make_task(noise=3, rounds=9)
    tables, labels = make_tables(task, 50, 3)
    with_seed = Stream(bytes(32))
    key = Stream(bytes(32)).bytes(32)
    learned = gradients.simulate(tables, labels, task, with_seed)
    _, want = plain(task, tables, labels, key)
    assert np.array_equal(learned.weights, want.weights)


@pytest.mark.parametrize(("expansion", "weights"), [(1, 4.0), (3, 4.0)])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_no_person_moves_a_round_by_more_than_its_sensitivity(expansion, weights, data):
    task = make_task(expansion=expansion, weight_bound=weights, gamma=16)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    rows = []
    for _ in range(2):
        values = {o: rng.normal(size=(1, len(b.columns))) for o, b in zip(task.owners, task.blocks, strict=True)}
        values = {o: v / np.linalg.norm(v) for o, v in values.items()}
        parts = [quantise(values[b.owner], b, task, Stream.fresh()) for b in task.blocks]
        rows.append(np.hstack([*parts, [[task.constant]]]).astype(np.int64))
    descent = GradientDescent(task)
    direction = rows[0][0] if data.draw(st.booleans()) else rng.normal(size=task.width)
    direction = direction / np.linalg.norm(direction) * task.weight_bound * (1 - 1e-12)
    descent.weights = direction[None] * data.draw(st.sampled_from([-1, 1]))
    labels = [np.array([[data.draw(st.integers(0, 1))]]) for _ in rows]
    first, second = (
        gradients.reference(x, y, descent.integer_weights, task) for x, y in zip(rows, labels, strict=True)
    )
    moved, limit = first - second, task.sensitivity
    assert sum(int(v) ** 2 for v in first) <= limit.l2_squared
    assert sum(abs(int(v)) for v in first) <= limit.l1
    assert sum(int(v) ** 2 for v in moved) <= limit.replace_l2_squared
    assert sum(abs(int(v)) for v in moved) <= limit.replace_l1


def test_the_event_says_what_happens():
    task = make_task(batch=10, rows=1000, rounds=50)
    event = task.event
    assert isinstance(event, RepeatedRelease)
    assert event.times == 50
    assert isinstance(event.event, PoissonSampled)
    assert event.event.rate == Fraction(task.threshold, COIN) == Fraction(10 * COIN // 1000, COIN)
    assert set(event.event.coins) == set(task.owners)
    assert task.openings == {event: 50}
    two = make_task((2, 1))
    assert COORDINATOR in two.event.event.coins  # it computes on the batch, so it knows it
    fixed = make_task(sampling="disjoint", rows=100, batch=10, rounds=25)
    assert fixed.event.times == 3
    assert fixed.openings == {fixed.event: 25}


def test_parties_pay_for_known_coins_and_the_analyst_does_not():
    task = make_task(rows=1000, batch=10, rounds=300, gamma=1024)
    task = task.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, task.trust))
    said = Statement.of(task.events, task.trust, 1e-5)
    analyst, party = said.epsilon(Observer.analyst(), 1e-5), said.epsilon(Observer.party("o0"), 1e-5)
    assert analyst <= 1.0 < party
    fixed = replace(task, sampling="disjoint")
    assert Statement.of(fixed.events, task.trust, 1e-5).epsilon(Observer.party("o0"), 1e-5) < party


def test_weights_outside_the_bound_reveal_nothing():
    descent = GradientDescent(make_task())
    descent.weights[:] = 4.0
    with raises(PrivacyError, "PR113"):
        descent.integer_weights  # noqa: B018
    descent.step(np.zeros(descent.task.entries))
    assert sum(v * v for v in descent.integer_weights[0].tolist()) <= descent.task.weights_squared


EDGE = 2**53


def squares(total: int, most: int = 60) -> list[int]:
    """Whole numbers whose squares add up to the total, the largest first."""
    found: list[int] = []
    while total:
        assert len(found) < most
        found.append(math.isqrt(total))
        total -= found[-1] ** 2
    return found


@pytest.mark.parametrize("first", [2**26, 94_906_265, 12_345])
@pytest.mark.parametrize("past", range(-2, 3))
def test_the_squared_norm_of_weights_is_exact_around_the_last_exact_float(first, past):
    row = [first] * min(40, (EDGE - 10) // first**2)
    row += squares(EDGE + past - sum(v * v for v in row))
    signs = np.where(np.arange(len(row)) % 3, 1.0, -1.0)
    for seed in range(20):
        shuffled = np.random.default_rng(seed).permutation(np.array(row) * signs)
        assert squared_norm(shuffled) == EDGE + past
        assert squared_norm(np.repeat(shuffled, 2)[::2]) == EDGE + past  # with gaps, as BLAS adds in another order


@settings(max_examples=100, deadline=None)
@given(st.integers(EDGE // 2, EDGE).map(lambda half: 2 * half + 1), st.integers(1, 400), st.integers(0, 2**31))
@example(EDGE + 1, 1, 0)
def test_no_odd_norm_beyond_the_last_exact_float_is_rounded(total, ones, seed):
    """Beyond 2^53 no float is odd, so a float answer is wrong in whatever order it was added."""
    row = squares(total - ones) + [1] * ones
    assert squared_norm(np.random.default_rng(seed).permutation(np.array(row, dtype=np.float64))) == total


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(2**30), 2**30) | st.integers(-(2**62), 2**62).map(float), min_size=1, max_size=50))
def test_the_squared_norm_of_weights_is_that_of_integers(row):
    whole = np.array(row, dtype=np.float64)
    assert squared_norm(whole) == sum(int(v) ** 2 for v in whole.tolist())


@pytest.mark.parametrize("limit", [EDGE - 1, EDGE, EDGE + 1, 2 * EDGE - 1, 3 * 2**60 + 1])
def test_weights_one_unit_too_long_reveal_nothing(limit):
    for over in (0, 1):
        row = squares(limit + over)
        task = make_task((len(row), 1), gamma=2, weight_bound=2.0**33)
        task.__dict__["weights_squared"] = limit
        descent = GradientDescent(task)
        descent.weights[0, : len(row)] = np.array(row) / 2
        if over:
            with raises(PrivacyError, "PR113"):
                descent.integer_weights  # noqa: B018
        else:
            assert descent.integer_weights[0, : len(row)].tolist() == row


@pytest.mark.parametrize(
    ("weight", "why"),
    [(math.nan, "PR114"), (math.inf, "PR114"), (-math.inf, "PR114"), (1e308, "PR114"), (1e200, "PR113")],
)
def test_weights_beyond_all_floats_reveal_nothing(weight, why):
    descent = GradientDescent(make_task(gamma=16))
    descent.weights[0, 1] = weight
    with np.errstate(over="ignore"), raises(PrivacyError, why):
        descent.integer_weights  # noqa: B018


def test_weights_that_no_word_holds_are_refused():
    most = make_task((1, 1), weight_bound=2.0**58, gamma=16)
    descent = GradientDescent(most)
    descent.weights[0, 0] = 2.0**58
    assert descent.integer_weights[0, 0] == 2**62
    with raises(CapacityError, "CA018", "16"):
        make_task((1, 1), weight_bound=2.0**59, gamma=16).committee  # noqa: B018


@pytest.mark.parametrize("at_once", [1, 100, 2**18])
@pytest.mark.parametrize("batch", [1, 10, 40])
def test_a_person_is_in_a_batch_if_the_next_coin_is_below_the_threshold_and_not_if_it_equals_it(
    monkeypatch, batch, at_once
):
    task, rows = make_task(batch=batch, rounds=11), 37
    edges = [0, 1, task.threshold - 1, task.threshold % COIN, (task.threshold + 1) % COIN, COIN - 1]
    coins = np.resize(np.array(edges, dtype=np.uint32), 11 * rows)
    tossed = iter(coins)

    def into(stream, out):
        out[:] = [next(tossed) for _ in out]

    monkeypatch.setattr(Stream, "into", into)
    monkeypatch.setattr(iteration, "_COINS", at_once)
    found = [batch.tolist() for batch in gradients.iterate_batches(task, rows, bytes(32))]
    assert found == [np.flatnonzero(each < task.threshold).tolist() for each in coins.reshape(11, rows)]


def test_nobody_changes_batch_when_another_leaves():
    ids = [f"id{i}" for i in range(500)]
    places = assign_batches(ids, 7, bytes(32))
    without = assign_batches([one for one in ids if one != "id250"], 7, bytes(32))
    assert np.array_equal(np.delete(places, 250), without)
    assert np.bincount(places, minlength=7).min() > 40


def test_the_room_of_a_padded_batch_is_never_too_small():
    from scipy import stats

    task = make_task(expansion=3, gamma=16)
    for rows in (30, 1000, 100000):
        for batch in (1, 10, 30):
            sized = replace(task, rows=rows, batch=batch)
            assert stats.binom.sf(sized.room(rows), rows, sized.threshold / COIN) <= float(OVERFLOW)
            assert sized.room(rows) <= rows


def test_messages_do_not_tell_the_size_of_a_drawn_batch(monkeypatch):
    """Degree 3 sends shares of each person in a batch; padding makes all rounds alike."""
    task = make_task(expansion=3, gamma=16, rounds=4)
    tables, labels = make_tables(task, 60, 2)
    sizes = set()
    real = gradients.GradientSeat._cubic

    def watched(self, u):
        sizes.add(u.shape)
        return real(self, u)

    monkeypatch.setattr(gradients.GradientSeat, "_cubic", watched)
    execute(task, tables, labels)
    assert sizes == {(task.room(60), 1)}


def test_labels_that_are_no_zeros_and_ones_and_too_many_rows_are_refused_before_a_share_leaves():
    tables, labels = make_tables(make_task(), 10, 0)
    with raises(DataError, "DA125"):
        execute(make_task(), tables, labels + 0.5)
    with raises(CapacityError, "CA030", "rows_at_most"):
        execute(make_task(rows_at_most=5, rows=5, batch=2), tables, labels)


@pytest.mark.parametrize("gamma", [16, 2**10])
def test_no_message_has_a_length_that_depends_on_a_value(gamma, monkeypatch):
    """Degree 3, where the opened numbers may be too large for 64 bits: two tables, the same lengths."""
    task = make_task(expansion=3, gamma=gamma, rounds=2, rows_at_most=60, noise=3 * 10**12)
    real, sent = codec.encode_parts, {1: [], 2: []}
    assert (task.bound >= 2**63) == (gamma > 16)
    for seed, lengths in sent.items():

        def watched(value, lengths=lengths):
            parts = real(value)
            lengths.append((value[0], sum(map(len, parts))))
            return parts

        monkeypatch.setattr(codec, "encode_parts", watched)
        ended = kit.outcomes(task, kit.programs_of(gradients, task, *make_tables(task, 60, seed)))
        assert all(played.revealed == task.events for played in ended.values())
    assert sorted(sent[1]) == sorted(sent[2])


# --- the sensitivity


VECTORS = json.loads((Path(__file__).parents[2] / "privacy" / "vectors.json").read_text())
PROGRAMS: tuple[Program, ...] = ("linear", "logistic", "cubic", "published")
NEAR = {"rel": 1e-9}


def _norms(gamma: int, d: int, quarter: bool = False) -> tuple[Fraction, Fraction]:
    return gamma + root_up(d), Fraction(gamma, 4 if quarter else 1) + root_up(d)


def _normalised(program: Program, gamma: int, d: int) -> float:
    norms = _norms(gamma, d, quarter=program == "published")
    return float(gradient_norm(program, gamma, *norms) / gradient_scale(program, gamma))


@pytest.mark.parametrize("case", VECTORS["sqm"]["lr_sens_normalised"])
def test_normalised_sensitivities_match_the_vectors(case: dict[str, Any]) -> None:
    gamma, d = case["gamma"], case["d"]
    assert _normalised("published", gamma, d) == pytest.approx(case["alg3_safe"], **NEAR)
    assert _normalised("logistic", gamma, d) == pytest.approx(case["struct"], **NEAR)
    assert _normalised("cubic", gamma, d) == pytest.approx(case["struct_H3"], **NEAR)
    assert published.paper_logistic_gradient_norm(gamma, d) / gamma**3 == pytest.approx(case["paper"], **NEAR)
    assert published.mended_logistic_gradient_norm(gamma, d) / gamma**3 == pytest.approx(case["paper_fixed"], **NEAR)


@pytest.mark.parametrize("case", VECTORS["lr_calibration_rdp_struct"])
def test_calibrated_sensitivities_match_the_vectors(case: dict[str, Any]) -> None:
    gamma, d = case["gamma"], case["d"]
    norm, weights = _norms(gamma, d)
    bound = gradient_sensitivity("logistic", gamma, norm * norm, weights * weights, d)
    assert math.sqrt(bound.l2_squared) == pytest.approx(case["d2"], **NEAR)
    assert abs(bound.l1 - case["d1"]) <= 1 + 1e-9 * case["d1"]
    assert math.sqrt(2 * case["mu"]) / gradient_scale("logistic", gamma) == pytest.approx(case["std_norm"], **NEAR)
    # What a run uses: integers that a party checks, hence never above the real bound and very close to it.
    whole = gradient_sensitivity(
        "logistic", gamma, party_norm_squared(gamma, 1.0, d), worst_weights_squared("logistic", gamma, d), d
    )
    assert 0.9999 * bound.l2_squared <= whole.l2_squared <= bound.l2_squared


def _score(program: Program, gamma: int, u: int, y: int) -> int:
    if program == "linear":
        return u - gamma * y
    if program == "logistic":
        return 2 * gamma**2 * (1 - 2 * y) + u
    if program == "cubic":
        return 24 * gamma**6 * (1 - 2 * y) + 12 * gamma**4 * u - u**3
    return -(-(gamma**2) // 2) - gamma**2 * y + u


def _gradient(program: Program, gamma: int, w: Any, x: Any, y: int) -> Any:
    return x * _score(program, gamma, int(w @ x), y)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(PROGRAMS), st.integers(1, 9), st.integers(1, 6), st.integers(0, 40), st.integers(0, 2**32 - 1))
def test_no_integer_row_moves_a_gradient_further(
    program: Program, gamma: int, columns: int, label: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    reach = int(rng.integers(1, 60))
    w, x, z = (rng.integers(-reach, reach + 1, columns).astype(object) for _ in range(3))
    if rng.random() < 0.3:
        z, x = x, w.copy()  # aligned with the weights: the worst direction
    labels = rng.integers(-label, label + 1, 2) if program == "linear" else rng.integers(0, 2, 2)
    square = max(int(x @ x), int(z @ z))
    bound = gradient_sensitivity(program, gamma, square, int(w @ w), columns, label if program == "linear" else 0)
    one, other = (_gradient(program, gamma, w, row, int(y)) for row, y in zip((x, z), labels, strict=True))
    assert int(one @ one) <= bound.l2_squared
    assert int(abs(one).sum()) <= bound.l1
    gap = one - other
    assert int(gap @ gap) <= bound.replace_l2_squared <= 4 * bound.l2_squared
    assert int(abs(gap).sum()) <= bound.replace_l1 <= 2 * bound.l1


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_bounds_are_reached(program: Program) -> None:
    gamma, label, w = 2, 3, np.array([3, 4], dtype=object)
    bound = gradient_sensitivity(program, gamma, 25, 25, 2, label if program == "linear" else 0)
    signs = [(x, y) for x in (w, -w) for y in ((-label, label) if program == "linear" else (0, 1))]
    moved = [_gradient(program, gamma, w, x, y) for x, y in signs]
    assert max(int(g @ g) for g in moved) == bound.l2_squared


def test_replacing_a_row_costs_less_than_twice() -> None:
    """Only the label's part turns around; x x' w does not, so 2 c B + W B^2 holds in place of 2 (c B + W B^2)."""
    gamma = 1 << 13
    bound = gradient_sensitivity("logistic", gamma, gamma**2, gamma**2, 800)
    scale = gradient_scale("logistic", gamma)
    assert math.sqrt(bound.l2_squared) / scale == pytest.approx(0.75)
    assert math.sqrt(bound.replace_l2_squared) / scale == pytest.approx(1.25)
    drawn, signs = (
        np.random.default_rng(5).normal(size=(2, 20_000, 2)),
        np.random.default_rng(6).choice([-2, 2], (2, 20_000)),
    )
    rows = drawn / np.linalg.norm(drawn, axis=2, keepdims=True)
    parts = rows * (signs + rows[:, :, 0])[:, :, None]
    assert 1.0 < np.linalg.norm(parts[0] - parts[1], axis=1).max() / 4 < 1.25  # and not 1.5
    gamma = 1 << 10
    near, far = (gradient_sensitivity("cubic", gamma, gamma**2, times * gamma**2, 4) for times in (1, 16))
    assert math.sqrt(near.replace_l2_squared) / gradient_scale("cubic", gamma) == pytest.approx(1.25)
    assert far.replace_l2_squared == 4 * far.l2_squared


@given(st.fractions(0, 12, max_denominator=97))
def test_the_cubic_maximum_is_the_maximum(reach: Fraction) -> None:
    grid = [reach * Fraction(step, 60) for step in range(61)]
    best = max(abs(Fraction(1, 2) + v / 4 - v**3 / 48) for point in grid for v in (point, -point))
    bound = cubic_maximum(reach)
    assert best <= bound
    peaks = [point for point in (Fraction(2), reach) if point <= reach]
    assert bound == max(Fraction(1, 2) + abs(v / 4 - v**3 / 48) for v in peaks)


@pytest.mark.parametrize(
    ("program", "given", "said"),
    [("quartic", (2, 1, 1, 1), "PR091"), ("linear", (2, -1, 1, 1), "PR090"), ("linear", (0, 1, 1, 1), "PR089")],
)
def test_senseless_programs_are_refused(program: Any, given: tuple[int, ...], said: str) -> None:
    with raises(PrivacyError, said):
        gradient_sensitivity(program, *given)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 3))
def test_no_polynomial_exceeds_its_bombieri_bound(seed: int, variables: int, outputs: int) -> None:
    rng = np.random.default_rng(seed)
    polynomials: list[Polynomial] = [
        {tuple(map(int, rng.integers(0, 3, variables))): int(rng.integers(-9, 10)) for _ in range(4)}
        for _ in range(outputs)
    ]
    x, y = (list(map(int, rng.integers(-5, 6, variables))) for _ in range(2))

    def at(row: list[int]) -> list[int]:
        return [
            sum(c * math.prod(v**e for v, e in zip(row, powers, strict=True)) for powers, c in p.items())
            for p in polynomials
        ]

    bound = polynomial_sensitivity(polynomials, max(sum(v * v for v in row) for row in (x, y)))
    one, other = at(x), at(y)
    assert sum(v * v for v in one) <= bound.l2_squared
    assert sum(map(abs, one)) <= bound.l1
    assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) <= bound.replace_l2_squared


# --- one thousand owners of one column each, a committee of five of them


OWNERS, ROWS, SEATS, THRESHOLD = 1000, 60, 5, 2
DELTA = 1e-5


@pytest.mark.slow
def test_a_thousand_owners_learn_together_and_the_figure_of_each_observer_is_right():
    """Noise is a thousand equal shares and a person takes part twice: the exact Gaussian figures are near."""
    chance, names = np.random.default_rng(0), [f"owner{index:04}" for index in range(OWNERS)]
    held = {name: {"x": chance.uniform(-1, 1, ROWS)} for name in names}
    held[names[0]]["y"] = chance.random(ROWS) < 0.5
    schemas = dict.fromkeys(names, numbers("x")) | {names[0]: numbers("x", y=flag())}
    people = federation(held, schemas, committee=names[:SEATS], threshold=THRESHOLD)
    model = LogisticRegression(
        epsilon={"analyst": 1.0}, delta=DELTA, label="owner0000.y", method="sqm", rows=ROWS, rate=0.5, epochs=2,
        sampling="disjoint", rows_at_most=1024,
    )  # fmt: skip
    task = model.fit(people).plan(people.roster)
    assert np.isfinite(model.coef_).all()
    assert np.any(model.coef_)
    release, share = task.event.event, 2 * float(task.noise) / OWNERS
    added, replaced = release.l2_squared, release.replace_l2_squared
    many = ("owner0000", "owner0001", *names[500:990])
    for observer, known, squared in (
        (Observer.analyst(), 0, added),
        (Observer.coordinator(), 0, replaced),
        (Observer.party("owner0007"), 1, replaced),
        (Observer.party("owner0002"), 1, replaced),
        (Observer.coalition("owner0003", "owner0900"), 2, replaced),
        (Observer.coalition(*many), len(many), replaced),
    ):
        figure = gaussian_epsilon((task.epochs * squared / (share * (OWNERS - known))) ** 0.5, DELTA)
        assert figure * (1 - 1e-6) <= model.privacy_.epsilon(observer, DELTA) <= figure * 1.02, observer.label
    assert model.privacy_.epsilon(Observer.analyst(), DELTA) <= 1.0
    assert model.privacy_.epsilon(Observer.coalition(*names[:3]), DELTA) == math.inf
    # One row stands for all owners without a seat.
    printed = {row.observer: row for row in model.privacy_.rows}
    assert printed[Observer.party("owner0005")].others == OWNERS - SEATS - 1
