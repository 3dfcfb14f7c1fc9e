"""Two stages: narrow bins are counted, merged to even ones by everybody alike, and asked about."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import DataError, StudyError
from colonnade.kinds.tables.marginals import programs as marginals, stages
from colonnade.kinds.tables.marginals.merging import Merge, apply, cuts, merged_edges
from colonnade.kinds.tables.marginals.stages import StagedMarginals
from colonnade.kinds.tables.marginals.task import Coded
from colonnade.privacy import Observer, epsilon, parse_budgets, views
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.task import check_complete
from tests.kinds.tables.marginals.test_marginals import seeded
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import codes_of, marginals_task

FINE = (30, 2, 4, 12, 3)
MERGES = (Merge(3), Merge(2), Merge(4), Merge(2), Merge(3))


def make_task(fine=FINE, merges=MERGES, seats=None, threshold=1, **changes):
    """The columns of the usual task are merged ones; two of them have more codes before."""
    second = marginals_task(((3, 2), (4,), (2, 3)), seats, threshold, label=1, **changes)
    columns = tuple(replace(column, size=size) for column, size in zip(second.coded, fine, strict=True))
    return StagedMarginals(columns, merges, (2, 3, 3, 1, 2, 1), second, noise=30)


def joined(tables, task):
    return np.hstack([tables[owner] for owner in task.owners])


@pytest.mark.parametrize(("seats", "hidden"), [(None, False), (("o1", COORDINATOR, "o0"), False), (None, True)])
def test_both_stages_are_those_of_the_definition(seats, hidden):
    task = make_task(seats=seats, hidden=hidden, block_rows=17)
    tables = codes_of(task.stages[0], 60)
    held = tables
    if hidden:
        places = kit.Places(np.arange(60), 60, bytes(16))
        held = {owner: kit.Rows(codes, places=places) for owner, codes in tables.items()}
    with pytest.MonkeyPatch.context() as patch:
        kit.no_noise(patch)
        results = kit.execute(stages, task, held)
    assert set(results) == {*task.owners, COORDINATOR}
    first, second = (replace(stage, hidden=False) for stage in task.stages)
    for result in results.values():
        assert np.array_equal(result.first.opened, marginals.reference(tables, first))
        codes = {
            owner: apply(tables[owner].astype(float), [result.merged[place] for place in first.held_by(owner)])
            for owner in task.owners
        }
        assert np.array_equal(result.second.opened, marginals.reference(codes, second))
        assert result.merged == results["o0"].merged


def test_with_noise_everybody_finds_the_same_bins():
    task = replace(make_task(), noise=3 * 10**4)
    results = kit.execute(stages, task, codes_of(task.stages[0], 100))
    assert len({result.merged for result in results.values()}) == 1
    assert len({result.second.opened.tobytes() for result in results.values()}) == 1


@settings(max_examples=200, deadline=None)
@given(counts=st.lists(st.integers(-50, 1000), min_size=1, max_size=40), data=st.data())
def test_every_bin_has_a_code_and_all_codes_have_a_bin(counts, data):
    bins = data.draw(st.integers(1, len(counts)))
    ends = cuts(counts, bins)
    assert len(ends) == bins
    assert ends[-1] == len(counts)
    assert all(begin < end for begin, end in zip([0, *ends], ends, strict=False))


def test_bins_are_even_where_people_are_spread_and_an_atom_has_its_own():
    even = cuts([10] * 60, 6)
    assert even == [10, 20, 30, 40, 50, 60]
    atom = cuts([900, *[10] * 60], 7)
    assert atom == [1, 11, 21, 31, 41, 51, 61]
    assert cuts([0, 0, 5, 0, 0, 5, 0, 0], 2) == [3, 8]
    assert cuts([0] * 5, 3) == [1, 2, 5]


def test_a_code_stays_apart():
    task = make_task(merges=(Merge(3, apart=29), *MERGES[1:]))
    tables = codes_of(task.stages[0], 500)
    found = stages.simulate(tables, task, seeded(5))
    assert found.merged[0][29] == 2
    assert set(found.merged[0][:29]) == {0, 1}
    assert found.merged[0][:29] == tuple(sorted(found.merged[0][:29]))
    assert found.merged[1] == (0, 1)


def test_merged_bins_are_nearly_even_under_noise():
    second = marginals_task(((8,), (2,), (2,)), label=None)
    fine = (Coded("o0", "c0", 200), *second.coded[1:])
    task = StagedMarginals(fine, (Merge(8), Merge(2), Merge(2)), (200, 1, 200, 200), second, noise=3 * 10**6)
    rng = np.random.default_rng(4)
    skewed = np.minimum(199, rng.exponential(12.0, 20_000)).astype(np.int64)
    tables = {"o0": skewed[:, None], "o1": rng.integers(0, 2, (20_000, 1)), "o2": rng.integers(0, 2, (20_000, 1))}
    found = stages.simulate(tables, task, seeded(6))
    assert 5 < task.stages[0].deviation(task.stages[0].asked[1]) < 20  # people, on each of 200 narrow bins
    sizes = np.bincount(np.array(found.merged[0])[skewed], minlength=8) / 20_000
    assert sizes.min() > 0.06
    assert sizes.max() < 0.2


def test_both_events_are_paid_for_and_calibrated_together():
    draft = make_task()
    big = replace(draft, first=tuple(100 * w for w in draft.first))
    big = replace(
        big, second=replace(big.second, asked=tuple(replace(b, weight=100 * b.weight) for b in big.second.asked))
    )
    task = big.calibrated(parse_budgets({"analyst": 1.0}, 1e-5, big.trust))
    assert [event.name for event in task.events] == ["marginals of narrow bins", "marginals"]
    assert task.openings == dict.fromkeys(task.events, 1)
    both = epsilon(views(task.events, Observer.analyst(), task.trust), 1e-5).epsilon
    alone = epsilon(views(task.events[1:], Observer.analyst(), task.trust), 1e-5).epsilon
    assert alone < both <= 1.0
    assert both > 0.99
    figures = [(event.l2_squared, event.replace_l2_squared) for event in task.events]
    assert figures == [(event.l2_squared, event.replace_l2_squared) for event in big.events]


@pytest.mark.parametrize("share", [Fraction(1, 20), Fraction(1, 10), Fraction(1, 2)])
def test_the_first_stage_takes_the_share_that_was_asked_for(share):
    task = make_task()
    second = replace(task.second, asked=tuple(replace(b, weight=2000 * b.weight) for b in task.second.asked))
    found = StagedMarginals.planned(task.fine, task.merges, second, share)
    first, second = (event.l2_squared for event in found.events)
    assert first / (first + second) == pytest.approx(float(share), rel=0.02)
    deviations = [found.stages[0].deviation(block) for block in found.stages[0].asked]
    assert max(deviations) < 1.02 * min(deviations)
    with raises(StudyError, "ST488", "1"):
        StagedMarginals.planned(task.fine, task.merges, task.second, Fraction(1))


def test_the_edges_that_are_left_are_those_between_merged_bins():
    assert merged_edges([0.0, 1.0, 2.0, 3.0, 4.0], [0, 0, 1, 2]) == (0.0, 2.0, 3.0, 4.0)
    assert merged_edges([0.0, 1.0, 2.0], [0, 1]) == (0.0, 1.0, 2.0)
    assert merged_edges([0.0, 1.0, 2.0], [0, 0]) == (0.0, 2.0)


def test_the_price_of_the_second_stage_holds_for_every_way_to_merge():
    """All pairs of people with narrow codes, under random maps: none is further apart than the event says."""
    task, rng = (
        make_task(fine=(4, 2, 5, 3, 3), merges=(Merge(3), Merge(2), Merge(4), Merge(2), Merge(3))),
        np.random.default_rng(1),
    )
    second = task.stages[1]
    for _ in range(40):
        new = [rng.integers(0, merge.size, size) for merge, size in zip(task.merges, (4, 2, 5, 3, 3), strict=True)]
        pair = [np.array([[known[rng.integers(0, len(known))] for known in new]]) for _ in range(2)]
        cells = [
            marginals.reference({o: codes[:, list(second.held_by(o))] for o in second.owners}, second) for codes in pair
        ]
        assert int(((cells[0] - cells[1]) ** 2).sum()) <= second.event.replace_l2_squared
        assert int((cells[0] ** 2).sum()) == second.event.l2_squared


def test_it_keeps_the_contract():
    check_complete(StagedMarginals, "here")
    task = make_task()
    one, other = task.stages
    assert task.facts["cells"] == one.entries + other.entries
    assert task.noise_std == other.noise_std
    assert all(load.seconds > 0 for load in task.loads(task.everyone, 100))
    assert task.adjustable(100) is None
    changed = [replace(task, noise=33), replace(task, first=(9, *task.first[1:])), make_task(fine=(31, *FINE[1:]))]
    assert all(found.agreement != task.agreement for found in changed)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"first": (1, 2)}, "ST486"),
        ({"merges": MERGES[:-1]}, "ST485"),
        ({"merges": (Merge(4), *MERGES[1:])}, ("ST487", "4", "3")),
        ({"merges": (Merge(31), *MERGES[1:])}, "ST482"),
        ({"merges": (Merge(3, apart=30), *MERGES[1:])}, ("ST481", "30")),
        ({"merges": (*MERGES[:3], Merge(2, apart=0), MERGES[4])}, "ST483"),
    ],
)
def test_what_cannot_be_merged_is_refused(changes, said):
    with raises(StudyError, said):
        replace(make_task(), **changes)


def test_codes_that_are_none_never_leave_an_owner():
    task = make_task()
    tables = codes_of(task.stages[0], 10)
    tables["o1"] = tables["o1"].astype(float)
    tables["o1"][3, 0] = 7.5
    with raises(DataError, "DA130"):
        kit.execute(stages, task, tables)
