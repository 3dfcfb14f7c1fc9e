from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import CapacityError, DataError, PrivacyError, StudyError
from colonnade.kinds.prediction.scores import programs as scores
from colonnade.kinds.prediction.scores.integers import quantise
from colonnade.kinds.prediction.scores.programs import Parts, reference, simulate
from colonnade.kinds.prediction.scores.task import Part, Scores
from colonnade.privacy import NonPrivate, SkellamRelease, Statement
from colonnade.privacy.events import from_json
from colonnade.protocols.roles import COORDINATOR, Owner
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import scores_task as make_task

GAMMA = 256
execute = partial(kit.execute, scores)


def random_parts(task, rows, seed):
    rng = np.random.default_rng(seed)
    ids = tuple(f"p{i:06d}" for i in range(rows))
    return {name: Parts(ids, rng.uniform(-1, 1, (rows, task.classes))) for name in task.owners}


@settings(max_examples=15, deadline=None)
@given(
    seating=st.sampled_from(kit.SEATINGS),
    rows=st.integers(1, 30),
    classes=st.integers(1, 4),
    seed=st.integers(0, 2**31),
)
def test_the_secure_sum_equals_the_plaintext_reference_exactly(seating, rows, classes, seed):
    owners, seats, threshold = seating
    to = f"o{seed % owners}"
    task = make_task(owners, seats, threshold, classes, to=to)
    parts = random_parts(task, rows, seed)
    results = execute(task, parts)
    want = reference({name: part.values for name, part in parts.items()}, task)
    assert np.array_equal(results[to].others, want)
    assert {name for name, result in results.items() if result is not None} == {to}
    exact = sum(part.values for part in parts.values())
    np.testing.assert_allclose(results[to].scores, exact, atol=len(task.dealers) / 2 / GAMMA + 1e-12)


def test_noise_comes_on_top_of_the_same_integers(monkeypatch):
    task = make_task(3, noise=2 * 50)
    drawn = []

    def recorded(task, rows, stream):
        drawn.append(task.additive.draw((rows, task.classes), stream))
        return drawn[-1]

    monkeypatch.setattr(scores, "noise_share", recorded)
    parts = random_parts(task, 40, 3)
    opened = execute(task, parts)["o0"].others
    want = reference({name: part.values for name, part in parts.items()}, task)
    assert len(drawn) == 2  # the entitled party adds none: it would know it
    assert np.array_equal(opened, want + sum(drawn))
    assert all(np.any(share) for share in drawn)


@pytest.mark.parametrize(("owners", "seats"), [(2, None), (3, None), (5, ("o1", "o2", "o3")), (5, None)])
def test_openings_are_sent_to_the_entitled_party_alone(owners, seats):
    """Of all messages there are, openings go to one participant; and that one deals nothing of its own."""
    task = make_task(owners, seats, noise=20 * (owners - 1))
    log = {}
    execute(task, random_parts(task, 5, 1), log=log)
    kinds = {pair: [kind for kind, _ in sent] for pair, sent in log.items()}
    opened = {pair for pair, sent in kinds.items() if "opening" in sent}
    assert opened == {(seat, "o0") for seat in task.trust.committee if seat != "o0"}
    dealt = [sent.count("share") for (sender, _), sent in kinds.items() if sender == "o0"]
    assert max(dealt) == (1 if "o0" in task.trust.committee else 0)  # a sharing of zero at most


def test_the_entitled_partys_part_does_not_touch_what_is_opened():
    task = make_task(3)
    parts = random_parts(task, 6, 5)
    first = execute(task, parts)["o0"]
    moved = parts | {"o0": Parts(parts["o0"].ids, parts["o0"].values + 100)}
    second = execute(task, moved)["o0"]
    assert np.array_equal(first.others, second.others)
    np.testing.assert_allclose(second.scores - first.scores, 100)


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8),
    low=st.integers(-(2**60), 2**60),
    width=st.integers(0, 2**60),
)
def test_integers_keep_their_bounds_whatever_the_floats_are(values, low, width):
    part = Part("o1", (low,), (low + width,))
    task = Scores((Part("o0", (0,), (0,)), part), kit.trust_of(2), "o0", 2**30, 10)
    whole = quantise(np.array(values)[:, None], task, "o1")
    assert whole.dtype == np.int64
    assert all(low <= int(number) <= low + width for number in whole[:, 0])


def test_scores_that_are_no_numbers_are_refused():
    task = make_task(3)
    parts = random_parts(task, 3, 0)
    parts["o1"].values[1, 0] = np.nan
    with raises(DataError, "DA131") as caught:
        execute(task, parts)
    assert "nan" not in str(caught.value)
    short = random_parts(task, 3, 0) | {"o2": Parts(("a", "b", "c"), np.zeros((3, 1)))}
    with raises(DataError, "DA132", "2"):
        execute(task, short)


def test_different_people_and_too_many_people_are_refused():
    task = make_task(3)
    parts = random_parts(task, 3, 0)
    with raises(StudyError, "ST532"):
        execute(task, parts | {"o2": Parts(("x", "y", "z"), parts["o2"].values)})
    with raises(CapacityError, "CA030", "rows_at_most"):
        execute(replace(task, rows_at_most=2), parts)


# --- what it costs


def test_the_exact_scores_cost_infinity_to_the_entitled_party_and_nothing_to_anybody_else():
    task = make_task(3)
    assert isinstance(task.event, NonPrivate)
    statement = Statement.of(task.events, task.trust, 1e-5)
    assert math.isinf(statement.epsilon("o0"))
    for other in ("analyst", "coordinator", "o1", "o2"):
        assert statement.epsilon(other) == 0
    (row,) = [row for row in statement.rows if row.observer.label == "o0"]
    assert "o0 receives the exact score of every person" in row.reason
    assert "o0: o0 receives the exact score" in str(statement)
    assert statement.epsilon("o0+coordinator") == math.inf
    assert statement.epsilon("o1+coordinator") == 0


def test_the_noisy_scores_cost_what_the_others_columns_can_move():
    task = make_task(3, noise=2 * 10**6)
    event = task.event
    assert isinstance(event, SkellamRelease)
    # o1 moves class 0 by 4 GAMMA and class 1 by one more; o2 by 5 GAMMA and one more.
    moved = [9 * GAMMA, 9 * GAMMA + 2]
    assert (event.replace_l1, event.replace_l2_squared) == (sum(moved), sum(m**2 for m in moved))
    assert event.shares == (("o1", Fraction(10**6)), ("o2", Fraction(10**6)))
    statement = Statement.of(task.events, task.trust, 1e-5)
    # A Gaussian of deviation sqrt(2 mu) and this shift, up to the closeness of the laws.
    ratio = math.sqrt(event.replace_l2_squared / (2 * task.noise))
    assert statement.epsilon("o0") == pytest.approx(gaussian_epsilon(ratio, 1e-5), rel=1e-3)
    for other in ("analyst", "coordinator", "o1", "o2", "o1+coordinator"):
        assert statement.epsilon(other) == 0
    assert math.isinf(statement.epsilon("o0+o1"))


def gaussian_epsilon(ratio, delta):
    """The analytic Gaussian mechanism, by bisection."""
    from scipy.stats import norm

    low, high = 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        spent = norm.cdf(ratio / 2 - middle / ratio) - math.exp(middle) * norm.cdf(-ratio / 2 - middle / ratio)
        low, high = (middle, high) if spent > delta else (low, middle)
    return high


def test_no_two_people_are_told_apart_better_than_the_printed_epsilon_says():
    """The theorem against the exact law, summed over all answers: every change within the boxes, and a tight one."""
    from scipy.stats import skellam

    parts = (Part("o0", (-99, -99), (99, 99)), Part("o1", (-10, 0), (10, 10)), Part("o2", (0, 0), (10, 10)))
    task = replace(make_task(3, noise=2 * 1000), parts=parts)
    delta = 1e-3
    epsilon = Statement.of(task.events, task.trust, delta).epsilon("o0")
    law = skellam.pmf(np.arange(-500, 501), task.noise, task.noise)

    def spent(shift, epsilon):
        here = np.outer(law, law)
        there = np.outer(np.roll(law, shift[0]), np.roll(law, shift[1]))
        return float(np.maximum(here - np.exp(epsilon) * there, 0).sum())

    moves = [(a, b) for a in range(-30, 31, 15) for b in range(-20, 21, 20)]
    costs = {move: spent(move, epsilon) for move in moves}
    assert max(costs.values()) <= delta
    assert max(costs, key=costs.get) in {(30, 20), (30, -20), (-30, 20), (-30, -20)}
    assert spent((30, 20), 0.8 * epsilon) > delta


def test_the_multiples_of_the_range_on_the_theory_page_are_right():
    for epsilon, multiple in ((1, 3.7), (8, 0.6), (16, 0.34)):
        parts = (Part("o0", (0,), (0,)), Part("o1", (0,), (2**16,)))
        ratio = Scores(parts, kit.trust_of(2), "o0", 2**16, 10)
        noise = round((multiple * 2**16) ** 2 / 2)
        found = Statement.of(replace(ratio, noise=noise).events, ratio.trust, 1e-5).epsilon("o0")
        assert found == pytest.approx(epsilon, rel=0.02)


def test_accomplices_know_their_share_of_the_noise():
    task = make_task(5, threshold=2, noise=4 * 10**6)
    statement = Statement.of(task.events, task.trust, 1e-5)
    alone, two = statement.epsilon("o0"), statement.epsilon("o0+o1")
    fewer = Statement.of(replace(task, noise=3 * 10**6 // 4 * 4).events, task.trust, 1e-5)
    assert alone < two < math.inf
    assert two == pytest.approx(fewer.epsilon("o0"), rel=1e-6)
    assert statement.epsilon("o1+o2") == 0


def test_the_cost_does_not_grow_with_the_number_of_people():
    task = make_task(3, noise=2 * 10**6)
    more = replace(task, rows_at_most=10**6)
    assert more.event == task.event


def test_asking_twice_composes():
    task = make_task(3, noise=2 * 10**6)
    once = Statement.of(task.events, task.trust, 1e-5).epsilon("o0")
    twice = Statement.of(task.events * 2, task.trust, 1e-5).epsilon("o0")
    assert 1.3 * once < twice < 2 * once


def test_owners_in_the_same_position_share_a_row():
    task = make_task(30, tuple(f"o{i}" for i in range(5)), 2, noise=29 * 10**10)
    statement = Statement.of(task.events, task.trust, 1e-5)
    assert len(statement.rows) < 40
    assert math.isfinite(statement.epsilon("o0"))
    assert statement.epsilon("o29") == 0


@pytest.mark.parametrize("noise", [0, 60])
def test_events_survive_being_written_down(noise):
    event = make_task(3, noise=noise).event
    assert from_json(event.to_json()) == event
    assert event.audience == ("o0",)


def test_a_simulation_has_the_law_of_the_protocol(stream):
    task = make_task(3, noise=2 * 5000, classes=1)
    parts = random_parts(task, 4000, 8)
    drawn = simulate(parts, task, stream)
    noise = drawn.others - reference({name: part.values for name, part in parts.items()}, task)
    assert np.std(noise) / GAMMA == pytest.approx(task.noise_std, rel=0.05)
    assert abs(np.mean(noise)) < 5 * np.sqrt(2 * task.noise / 4000)
    exact = simulate(parts, replace(task, noise=0), stream)
    assert np.array_equal(exact.others, reference({name: part.values for name, part in parts.items()}, task))


# --- the public task


def test_the_bound_covers_the_largest_sum():
    task = make_task(3, noise=2 * 10**6)
    assert task.bound >= sum(task.part(name).reach for name in ("o1", "o2")) + 30 * 10**3
    assert task.committee.system.modulus > 2 * task.bound
    with raises(CapacityError, "CA027"):
        _ = replace(task, parts=tuple(replace(p, high=(2**61,) * 2) for p in task.parts)).committee
    with raises(CapacityError, "CA031"):
        _ = replace(task, rows_at_most=2**30).committee


def test_the_agreement_tells_tasks_apart_and_is_json():
    task = make_task(3, noise=60)
    for change in ({"to": "o1"}, {"noise": 62}, {"model": "x"}, {"names": ("o0.a",)}, {"rows_at_most": 5}):
        assert replace(task, **change).agreement != task.agreement
    assert make_task(3, noise=60).agreement == task.agreement
    json.dumps([task.agreement, task.facts])


def test_what_each_participant_sends_and_holds():
    task = make_task(5, ("o1", "o2", COORDINATOR))
    sizes = {name: task.cells(name, 10) for name in (*task.owners, COORDINATOR)}
    assert [sizes[name].dealt for name in ("o0", "o1", "o4", COORDINATOR)] == [0, 20, 20, 0]
    assert [sizes[name].held for name in ("o0", "o1", "o4", COORDINATOR)] == [0, 80, 0, 80]
    assert [sizes[name].opened for name in ("o0", "o1", "o4", COORDINATOR)] == [0, 20, 0, 20]


def test_tasks_that_make_no_sense():
    task = make_task(3)
    with raises(StudyError, "ST533"):
        replace(task, to=COORDINATOR)
    with raises(StudyError, "ST533", "o0", "o1", "o2"):
        replace(task, to="o9")
    with raises(ValueError, "VA151"):
        replace(task, noise=3)
    with raises(ValueError, "VA150"):
        replace(task, parts=(Part("o0", (0,), (1,)), *task.parts[1:]))
    with raises(ValueError, "VA149"):
        Part("o0", (1,), (0,))


def test_nothing_can_be_revealed_that_was_not_planned():
    task = make_task(3)
    role = Owner("o0", {}, task.committee, planned={replace(task, to="o1").event: 1})
    with raises(PrivacyError, "PR138"):
        role.reveal(None, to=["o0"], event=task.event, shape=(1, 2), bound=1)
