"""Second moments under each law of noise: exact sums, noise that is what it says, bounds that are kept."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import CapacityError, PrivacyError, StudyError
from colonnade.privacy import Observer, epsilon, parse_budgets, views
from colonnade.privacy.noise.strip_sampler import LaplaceMass, PolyaMass, strip_table
from colonnade.privacy.noise_laws import laplace_reach
from colonnade.privacy.observers import largest_known_noise
from colonnade.protocols.moments import programs as moments
from colonnade.protocols.moments.programs import OwnMoments
from colonnade.protocols.moments.task import ColumnBlock, NoisyMoments, with_own_budgets
from tests.support.errors import raises, refused
from tests.support.protocols import (
    LAWS,
    grouped_rows as random_rows,
    moments_task_of_law as make_task,
    uneven_moments_task as uneven,
)

OWN = (5, 11, 5)


TASKS = {
    **{law: make_task(law) for law in LAWS},
    "known": make_task("discrete-laplace", known=2),
    "own": make_task("discrete-laplace", noise=11, own_noise=OWN, known=1),
}


def total_noise(task, draws, stream):
    return np.array([sum(moments.sample_noise_share(task, stream) for _ in task.owners) for _ in range(draws)])


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_deviations_are_those_of_the_noise(task, stream):
    noise = total_noise(task, 300, stream) / task.weights / task.gamma**2
    stated = NoisyMoments(task, np.zeros(task.entries, dtype=np.int64)).deviations[np.triu_indices(task.width)]
    ratio = np.mean(noise**2, axis=0) / stated**2
    assert np.all((ratio > 0.4) & (ratio < 2.5))
    for same in np.unique(stated):
        assert np.mean(ratio[stated == same]) == pytest.approx(1, abs=0.2)
    assert stated.max() == pytest.approx(task.noise_std)


def masses(law, noise, copies, support):
    """Exact masses of the noise of all owners on an entry that stands so often in the full matrix."""
    size = np.arange(-support, support + 1)
    if law == "discrete-laplace":
        mass = np.exp(-np.abs(size) / noise)
    elif law == "discrete-gaussian":
        each = np.exp(-(size**2) / (2 * noise / 2))
        mass = np.array([1.0])
        for _ in range(2 * copies):  # two owners
            mass = np.convolve(mass, each / each.sum())
    else:
        count, mean = np.arange(4 * support), copies * noise
        poisson = np.exp(count * math.log(mean) - mean - np.array([math.lgamma(k + 1) for k in count]))
        mass = np.convolve(poisson, poisson[::-1])
    mass = mass[len(mass) // 2 - support : len(mass) // 2 + support + 1]
    return mass / mass.sum()


@pytest.mark.parametrize("law", LAWS)
def test_the_noise_has_the_law_it_says(law, stream):
    """Two owners' shares together: a chi-square test against the exact masses, on and off the diagonal."""
    task, support = make_task(law, owners=2, noise=4), 9
    noise = total_noise(task, 600, stream)
    for copies in np.unique(task.weights).tolist():
        seen = noise[:, task.weights == copies].ravel()
        counts = np.bincount(seen[np.abs(seen) <= support] + support, minlength=2 * support + 1)
        wanted = masses(law, 4, copies, 60)[60 - support : 60 + support + 1]
        wanted = wanted / wanted.sum() * counts.sum()
        assert float(np.sum((counts - wanted) ** 2 / wanted)) < 2 * support + 5 * math.sqrt(4 * support)


def test_owners_who_named_their_noise_get_the_larger_of_two():
    task = make_task("discrete-laplace", noise=11, own_noise=OWN)
    assert [level.scale for level in task.levels] == [5, 11]
    assert task.events[0].about == ("o0", "o2")
    assert sum(event.dimension for event in task.events) == task.entries
    of = np.repeat([5, 11, 5, 5], [4, 4, 4, 1])  # by column; of the constant, nobody asked for more than the least
    full = np.maximum(of[:, None], of)
    full[-1, -1] = 11
    assert np.array_equal(task.scales, full[np.triu_indices(task.width)])
    for event, here in zip(task.events, task.opened_together, strict=True):
        assert len(here) == event.dimension
        assert set(task.scales[here]) == {event.scale}


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 2**50), st.sampled_from([1, 1, 2, 3, 9]))
def test_no_draw_exceeds_the_reach(scale, parts):
    exact = Fraction(scale)
    law = LaplaceMass(exact) if parts == 1 else PolyaMass(exact, parts)
    assert strip_table(law).end - 1 <= laplace_reach(scale) < 2 * strip_table(law).end


@pytest.mark.parametrize("law", LAWS)
def test_the_bound_covers_data_and_noise(law, stream):
    task = make_task(law, rows_at_most=10)
    worst = {name: np.tile([1.0, 0.5, 1.0, 0.0], (10, 1)) for name in task.owners}
    whole = {name: (values * task.gamma).astype(np.int64) for name, values in worst.items()}
    assert np.abs(moments.reference(whole, task)).max() < task.bound
    quiet = make_task(law, rows_at_most=1, noise=3)
    loud = make_task(law, rows_at_most=1, noise=3 * 10**6)
    assert np.abs(total_noise(loud, 20, stream)).max() < loud.bound - quiet.bound
    with raises(CapacityError, "CA027"):
        _ = make_task(law, noise=2**126).committee


def test_laplace_rows_outside_the_radii_become_zero(stream):
    task = make_task("discrete-laplace")
    own = OwnMoments(task, "o1")
    fine = [1.0, 0.5, 0.0, 1.0]
    rows = np.array([fine, [1.01, 0, 0, 0], [0, 0.6, 0, 0], [0, 0, 0.6, 0.6], [0, 0, -0.6, 0.6]])
    whole = own.quantise(rows, stream)
    assert whole[0].tolist() == [64, 32, 0, 64]
    assert not whole[1:].any()
    # Within the L2 bound all of these rows would have passed.
    assert make_task().block_norm_squared(task.blocks[1]) > max((whole**2).sum(axis=1))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_legitimate_rows_are_never_lost_to_rounding(seed, gamma):
    rng = np.random.default_rng(seed)
    task = make_task("discrete-laplace", gamma=gamma, constant=1)
    rows = random_rows(rng, 50)
    rows[:, 0] = rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], 50)
    whole = OwnMoments(task, "o0").quantise(rows, moments.Stream.fresh())
    assert whole[:, 2:].sum(axis=1).tolist() == [gamma] * 50


# --- sensitivities


def largest_rows(rng):
    """Corners of what the owners enforce."""
    row = []
    for _ in range(3):
        hot = [0, 0]
        hot[rng.integers(0, 2)] = int(rng.choice([64, 64, 0]))
        row += [int(rng.choice([-64, 64, 0])), int(rng.choice([-32, 32])), *hot]
    return np.array(row)


LAPLACE_TASKS = [
    make_task("discrete-laplace"),
    make_task("discrete-laplace", noise=11, own_noise=OWN),
    make_task("discrete-laplace", noise=11, own_noise=(3, 5, 11)),
]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_one_person_moves_each_release_by_no_more_than_it_says(seed):
    rng = np.random.default_rng(seed)
    one, other = largest_rows(rng), largest_rows(rng)
    for task in LAPLACE_TASKS:
        for event, here in zip(task.events, task.opened_together, strict=True):

            def entries(row, width=task.width, here=here):
                z = np.append(row, 32)
                return np.outer(z, z)[np.triu_indices(width)][here]

            assert np.abs(entries(one)).sum() <= event.l1
            assert np.abs(entries(one) - entries(other)).sum() <= event.replace_l1
            for owner, l1, _ in event.others:
                kept = other.copy()
                kept[task.span(owner)] = one[task.span(owner)]
                assert np.abs(entries(one) - entries(kept)).sum() <= l1
            mixed = one.copy()
            for owner in set(task.owners) - set(event.about or task.owners):
                mixed[task.span(owner)] = other[task.span(owner)]
            assert np.array_equal(entries(mixed), entries(one))
    z, w = np.append(one, 32), np.append(other, 32)
    change = np.outer(z, z) - np.outer(w, w)
    for law in ("skellam", "discrete-gaussian"):
        assert (change**2).sum() <= make_task(law).event.replace_l2_squared
        assert np.abs(change).sum() <= make_task(law).event.replace_l1


def test_an_owner_of_most_columns_learns_less():
    """What others hold is a small part, so replacing it moves little: 8 R S instead of 2 (R + S)^2."""
    task = make_task()
    large = replace(task.blocks[0], clip=6.0)
    event = replace(task, blocks=(large, *task.blocks[1:])).event
    assert [owner for owner, *_ in event.others] == ["o0"]
    assert event.others[0][2] < event.replace_l2_squared
    assert task.event.others == ()


@pytest.mark.parametrize("law", LAWS)
def test_calibrated_noise_keeps_the_budgets_and_no_less_would(law):
    task = make_task(law)
    budgets = parse_budgets(0.5, 1e-6, task.trust)
    draft = replace(task, known=largest_known_noise(task.trust, budgets))
    found = draft.calibrate(budgets)
    assert found.noise % found.additive.parts == 0

    def worst(noise):
        events = replace(draft, noise=noise).events
        seen = budgets[0].observers(task.trust)
        return max(epsilon(views(events, observer, task.trust), 1e-6).epsilon for observer in seen)

    assert worst(found.noise) <= 0.5
    assert worst(found.noise * 999 // 1000 // found.additive.parts * found.additive.parts) > 0.5


def test_laplace_noise_is_pure_and_costs_its_scale():
    task = make_task("discrete-laplace", noise=200_000)
    seen = epsilon(views(task.events, Observer.analyst(), task.trust), 1e-9)
    assert seen.route == "pure"
    assert seen.epsilon == pytest.approx(task.event.l1 / 200_000, rel=1e-6)
    # With nobody's share assumed known, an owner alone is left with less than a whole variable.
    assert math.isinf(epsilon(views(task.events, Observer.party("o0"), task.trust), 1e-9).epsilon)
    safe = replace(task, known=1)
    assert math.isfinite(epsilon(views(safe.events, Observer.party("o0"), task.trust), 1e-9).epsilon)


def test_what_makes_no_sense_is_refused():
    shapeless = make_task("discrete-laplace", blocks=(*make_task().blocks[:2], ColumnBlock("o2", ("x",), 1.0)))
    named = make_task("discrete-laplace", noise=11, own_noise=OWN)
    for attempt, code in (
        (lambda: shapeless.limits, "PR131"),
        (lambda: make_task("discrete-laplace", known=3), "PR132"),
        (lambda: make_task("skellam", noise=11, own_noise=OWN), "PR133"),
        (lambda: make_task("discrete-laplace", noise=12, own_noise=OWN), "PR133"),
        (lambda: named.event, "PR134"),
        (lambda: named.calibrate(parse_budgets(1.0, 1e-5)), "PR135"),
    ):
        refused(PrivacyError, code, attempt)


def test_the_agreement_tells_laws_groups_and_scales_apart():
    task = make_task("discrete-laplace")
    wider = replace(task.blocks[0], groups=((1, Fraction(2)), *task.blocks[0].groups[1:]))
    others = [
        make_task("discrete-gaussian"),
        replace(task, known=1),
        replace(task, blocks=(wider, *task.blocks[1:])),
        replace(task, noise=11, own_noise=OWN),
        replace(task, noise=11, own_noise=(11, 5, 5)),
    ]
    assert len({str(other.agreement) for other in [task, *others]}) == 6


# --- what one party's columns cost, and parties that name their noise


PARTIES = ("bank", "shop", "clinic")


DELTA = 1e-6


@pytest.mark.parametrize("law", LAWS)
def test_a_partys_columns_cost_less_than_a_person_and_grow_with_their_number(law):
    task = uneven(law, noise=200_000 if law == "discrete-laplace" else 3 * 10**10)
    found = task.protection(DELTA)
    whole = epsilon(views(task.events, Observer.coordinator(), task.trust), DELTA).epsilon
    assert 0 < found["bank"] < found["shop"] < found["clinic"] <= whole < math.inf


def test_laplace_protection_is_the_l1_of_the_partys_columns_over_the_scale():
    """A single coordinate of radius R beside columns of L1 norm S moves the products by 2 R S, not its own square."""
    task = uneven("discrete-laplace", noise=200_000)
    found = task.protection(DELTA)
    moved = 2 * 64 * (task.limits.radii(["shop", "clinic"]).total + 32)
    assert task.limits.changed_l1(["bank"]) == moved
    assert found["bank"] == pytest.approx(moved / 200_000, rel=1e-4)
    assert found["bank"] <= moved / 200_000 * (1 + 1e-9)
    # What others know of the noise does not matter here.
    assert replace(task, known=2).protection(DELTA)["shop"] == pytest.approx(found["shop"], rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.tuples(*[st.floats(0.05, 5)] * 3), st.sampled_from([(1, 3, 6), (1, 1, 1), (4, 2, 3)]))
def test_bottom_up_laplace_noise_keeps_every_partys_epsilon(wanted, widths):
    epsilons = dict(zip(PARTIES, wanted, strict=True))
    task = with_own_budgets(uneven("discrete-laplace", widths), epsilons, DELTA)
    found = task.protection(DELTA)
    assert task.noise == max(task.own_noise)
    for owner, scale in zip(PARTIES, task.own_noise, strict=True):
        assert found[owner] <= epsilons[owner]
        moved = task.limits.changed_l1([owner])
        assert Fraction(moved, scale) <= Fraction(epsilons[owner])
        assert scale == 1 or Fraction(moved, scale - 1) > Fraction(epsilons[owner])


@pytest.mark.parametrize("law", ["skellam", "discrete-gaussian"])
def test_one_noise_for_all_is_the_least_that_keeps_every_partys_epsilon(law):
    wanted = {"bank": 0.2, "shop": 1.0, "clinic": 3.0}
    task = with_own_budgets(uneven(law), wanted, DELTA)
    found = task.protection(DELTA)
    assert all(found[owner] <= wanted[owner] for owner in PARTIES)
    less = replace(task, noise=int(task.noise * 0.9999) // 3 * 3)
    assert any(less.protection(DELTA)[owner] > wanted[owner] for owner in PARTIES)
    assert task.own_noise == ()


def test_the_square_decides_between_the_two_cases():
    """A party with little beside the others: 8 R S; one with more than the others: 2 (R + S)^2."""
    small, large = uneven("skellam", (1, 3, 6)), uneven("skellam", (30, 1, 1))
    limits = small.limits
    own, rest = limits.norms_squared["bank"], limits.norm_squared - limits.norms_squared["bank"]
    assert limits.changed(["bank"])[1] == 8 * own * rest
    assert large.limits.changed(["bank"])[1] == 2 * large.norm_squared**2


def test_everybody_must_name_an_epsilon():
    task = uneven("discrete-laplace")
    for wanted, error, code in (
        ({"bank": 1.0}, StudyError, "ST504"),
        ({"bank": 1.0, "shop": 1.0, "clinic": 1.0, "stranger": 1.0}, StudyError, "ST504"),
        ({"bank": 1.0, "shop": 0.0, "clinic": 1.0}, PrivacyError, "PR065"),
    ):
        refused(error, code, with_own_budgets, task, wanted, DELTA)
