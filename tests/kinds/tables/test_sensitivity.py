"""How far one person moves marginals, the games about that, and what is made of what is published.

Bounds are held against all pairs of people of small domains, and games play with the integers of the protocol.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.audit import games, registry
from colonnade.audit.registry import judge
from colonnade.errors import CapacityError, PrivacyError, StudyError
from colonnade.kinds.tables import layout as weighing, sensitivity as marginals, stages
from colonnade.kinds.tables.audit import MarginalCellSampler, find_furthest_codes
from colonnade.kinds.tables.programs import reference
from colonnade.kinds.tables.release import Residual, centre, check_residuals, misfit, noisy_marginal, subsets
from colonnade.kinds.tables.sensitivity import changed_cells_sensitivity, marginals_sensitivity
from colonnade.kinds.tables.stages import CodeMerge, StagedMarginals, cut_evenly, merge_edges, recode_rows
from colonnade.kinds.tables.task import MADE, ONES, CodedColumn, MarginalQuery, Marginals
from colonnade.privacy import Observer, Statement, parse_budgets
from colonnade.protocols.roles import COORDINATOR
from colonnade.protocols.task import check_complete
from colonnade.tables.slots import RowSlots
from colonnade.testing import seeded
from tests.kinds.tables.releases import cells_of, histogram, people, release
from tests.support import protocols as kit
from tests.support.errors import raises
from tests.support.protocols import active, codes_of, marginals_task


@st.composite
def releases(draw, most=4):
    sizes = draw(st.lists(st.integers(2, 4), min_size=1, max_size=most))
    sets = [columns for count in range(4) for columns in combinations(range(len(sizes)), count)]
    chosen = draw(st.lists(st.sampled_from(sets), min_size=1, unique=True))
    return sizes, [(columns, draw(st.integers(1, 50))) for columns in chosen]


def moved(sizes, blocks, changing):
    """L1 and squared L2 of the changes between all pairs of people who are equal in the other columns."""
    people = list(product(*map(range, sizes)))
    cells = np.array([cells_of(person, sizes, blocks) for person in people])
    fixed = [column for column in range(len(sizes)) if column not in changing]
    same = np.array([[all(x[c] == y[c] for c in fixed) for y in people] for x in people])
    apart = cells[:, None] - cells[None]
    return cells, int((np.abs(apart).sum(axis=2) * same).max()), int(((apart**2).sum(axis=2) * same).max())


@settings(max_examples=60, deadline=None)
@given(release=releases(), data=st.data())
def test_the_bounds_are_attained_and_never_exceeded(release, data):
    sizes, blocks = release
    bound = marginals_sensitivity(sizes, blocks)
    cells, l1, square = moved(sizes, blocks, range(len(sizes)))
    assert set(np.abs(cells).sum(axis=1).tolist()) == {bound.l1}
    assert set((cells**2).sum(axis=1).tolist()) == {bound.l2_squared}
    assert (l1, square) == (bound.replace_l1, bound.replace_l2_squared)
    changing = data.draw(st.sets(st.integers(0, len(sizes) - 1)))
    assert changed_cells_sensitivity(sizes, blocks, changing) == moved(sizes, blocks, changing)[1:]


@settings(max_examples=40, deadline=None)
@given(release=releases(most=5), kept=st.integers(0, 4))
def test_enumerating_fewer_columns_only_loosens_the_bound(release, kept):
    sizes, blocks = release
    exact = changed_cells_sensitivity(sizes, blocks, range(len(sizes)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marginals, "MOST_ENUMERATED", kept)
        looser = changed_cells_sensitivity(sizes, blocks, range(len(sizes)))
    assert all(loose >= tight for loose, tight in zip(looser, exact, strict=True))


def test_large_weights_stay_exact():
    """The same ratios with weights far beyond 64 bits."""
    sizes = [3, 4, 2]
    blocks = [((), 7), ((0,), 3), ((0, 1), 2), ((0, 1, 2), 1), ((1, 2), 5)]
    small = marginals_sensitivity(sizes, blocks)
    large = marginals_sensitivity(sizes, [(columns, weight << 70) for columns, weight in blocks])
    assert (large.l1, large.replace_l1) == (small.l1 << 70, small.replace_l1 << 70)
    assert large.replace_l2_squared == small.replace_l2_squared << 140


@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        ([1], [((0,), 1)]),
        ([3], [((0,), 0)]),
        ([3], [((1,), 1)]),
        ([3, 3], [((0, 1), 1), ((1, 0), 1)]),
        ([3], [((0, 0), 1)]),
    ],
)
def test_what_is_no_release_is_refused(sizes, blocks):
    with pytest.raises(PrivacyError):
        marginals_sensitivity(sizes, blocks)


# --- games


@pytest.fixture(scope="module")
def staged():
    """Two of the columns are merged from twice as many codes; the first stage takes most of the price."""
    second = marginals_task(((2, 3), (3,), (2,)), label=0)
    second = replace(second, asked=tuple(replace(block, weight=50 * block.weight) for block in second.asked))
    fine = tuple(replace(column, size=size) for column, size in zip(second.coded, (2, 6, 6, 2), strict=True))
    task = StagedMarginals(
        fine, (CodeMerge(2), CodeMerge(3), CodeMerge(3), CodeMerge(2)), (900, 2000, 400, 400, 2000), second, 3
    )
    return task.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, task.trust))


def test_two_stages_keep_what_both_events_promise(staged):
    assert registry.subject(staged) == "marginals"
    found = games("marginals", staged)
    assert {game.role for game in found} == {"analyst", "coordinator", "party", "coalition"}
    assert all(judge(game, 10_000, seed=4).good for game in found)


def test_a_first_stage_that_is_not_charged_is_seen(staged):
    analyst = games("marginals", staged)[0]
    assert analyst.role == "analyst"
    assert judge(replace(analyst, events=analyst.events[1:]), 60_000, seed=5).word == "REFUTED"


def test_with_hidden_members_whether_somebody_is_one_is_played_too():
    shape = marginals_task(((2, 3), (3,), (2,)), label=0, hidden=True)
    # The count is by far the most exact, so that a member more or less moves more than a replaced one.
    asked = tuple(replace(block, weight=(50 if block.columns else 10_000) * block.weight) for block in shape.asked)
    draft = replace(shape, asked=asked)
    task = draft.calibrate(parse_budgets({"party": 1.0}, 1e-5, draft.trust))
    found = games("marginals", task)
    assert [game.part for game in found if game.role == "party"] == ["membership", ""]
    for game in found:
        assert judge(game, 10_000, seed=6).good
    member, other = (game.sampler for game in found if game.role == "party")
    assert int((member.sums[1] ** 2).sum()) == task.event.l2_squared
    assert not member.sums[0].any()
    known = replace(task, hidden=False)  # the figures of this task leave out that somebody may not be a member
    assert int(((other.sums[1] - other.sums[0]) ** 2).sum()) == known.event.replace_l2_squared < task.event.l2_squared
    (game,) = (game for game in found if game.sampler is member)
    assert judge(replace(game, events=known.events), 60_000, seed=7).word == "REFUTED"


def test_games_play_with_the_integers_of_the_protocol():
    rng = np.random.default_rng(3)
    for task in (marginals_task(), games("marginals")[0].sampler.task):
        for _ in range(20):
            person = tuple(rng.integers(0, task.sizes).tolist())
            alone = {owner: np.array([[person[place] for place in task.held_by(owner)]]) for owner in task.owners}
            assert np.array_equal(
                MarginalCellSampler(task, (None, person), ()).contribution(person), reference(alone, task)
            )


def test_the_two_people_are_as_far_apart_as_the_event_says():
    task = marginals_task(((3, 2), (4,), (2, 3)), label=3)
    figures = {owner: square for owner, _, square in task.others}
    for observer, square in [
        (Observer.analyst(), task.event.l2_squared),
        (Observer.coordinator(), task.event.replace_l2_squared),
        *((Observer.party(owner), figures.get(owner, task.event.replace_l2_squared)) for owner in task.owners),
    ]:
        first, second = MarginalCellSampler(task, find_furthest_codes(task, observer), ()).sums
        assert int(((second - first) ** 2).sum()) == square


# --- residuals


SIZES = (3, 2, 4)


def exact(codes: np.ndarray, deviation: float) -> list[Residual]:
    return [
        Residual(
            columns, centre(histogram(codes, columns, SIZES)) if columns else np.array(float(len(codes))), deviation
        )
        for columns in subsets(range(3))
    ]


def test_deviations_are_those_of_the_linear_map_from_noise_to_cells() -> None:
    """Noise of deviation d on one raw number moves a cell by d times its coefficient; variances add."""
    codes = people(SIZES, 50, 2)
    base = [Residual(each.columns, each.values, 1.0 + place) for place, each in enumerate(exact(codes, 1.0))]
    plain, deviations = noisy_marginal((0, 2), SIZES, 50, base)
    variance = np.zeros_like(plain)
    for place, each in enumerate(base):
        if set(each.columns) <= {0, 2}:
            for cell in product(*(range(size) for size in each.values.shape)):
                unit = np.zeros(each.values.shape)
                unit[cell] = each.deviation
                moved = [*base]
                moved[place] = Residual(each.columns, each.values + centre(unit), each.deviation)
                count = 50 + (each.deviation if not each.columns else 0.0)
                variance += (noisy_marginal((0, 2), SIZES, count, moved)[0] - plain) ** 2
    np.testing.assert_allclose(deviations**2, variance, rtol=1e-9)


def test_the_misfit_of_the_truth_is_the_noise() -> None:
    codes = people(SIZES, 500, 3)
    sets = [each for each in subsets(range(3)) if each]
    noisy = release(codes, SIZES, sets, 2.0, 5)
    squares, degrees = misfit(lambda columns: histogram(codes, columns, SIZES) / 500, 500, noisy)
    noise = [each.values - centre(histogram(codes, each.columns, SIZES)) for each in noisy]
    assert degrees == 3 * 2 * 4 - 1
    assert squares == pytest.approx(sum(float(np.sum(each**2)) for each in noise) / 4)


@pytest.mark.parametrize(
    ("residual", "says"),
    [
        (Residual((1, 0), np.zeros((2, 3)), 1.0), "ST391"),
        (Residual((7,), np.zeros(3), 1.0), "ST392"),
        (Residual((0,), np.zeros(4), 1.0), "ST393"),
        (Residual((0,), np.full(3, np.nan), 1.0), "ST394"),
        (Residual((0,), np.zeros(3), 0.0), "ST394"),
    ],
)
def test_residuals_that_do_not_fit_are_refused(residual: Residual, says: str) -> None:
    with raises(StudyError, says):
        check_residuals(SIZES, [residual])


# --- weights


COLUMNS = (5, 2, 30, 3)


def noise_of(found: list[tuple[tuple[int, ...], int]], sizes: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """Noise on a cell in people, for noise of deviation one on every opened number."""
    return {
        columns: 1 / (weight * math.prod(math.sqrt(2) if sizes[c] == 2 else sizes[c] for c in columns))
        for columns, weight in found
    }


def test_all_pairs_and_triples_with_the_label_are_asked_for_once() -> None:
    found = [columns for columns, _ in weighing.weigh_blocks(COLUMNS, 1)]
    assert found[:5] == [(), (0,), (1,), (2,), (3,)]
    assert sorted(found[5:11]) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert sorted(found[11:]) == [(0, 1, 2), (0, 1, 3), (1, 2, 3)]
    assert len(weighing.weigh_blocks(COLUMNS)) == 11


def test_weights_are_whole_and_fine_enough() -> None:
    found = weighing.weigh_blocks(COLUMNS, 1)
    assert min(weight for _, weight in found) == weighing.RESOLUTION
    fine = dict(weighing.weigh_blocks(COLUMNS, 1, resolution=1 << 12))
    for columns, weight in found:
        assert weight * (1 << 12) / weighing.RESOLUTION == pytest.approx(fine[columns], rel=0.6 / weighing.RESOLUTION)


def test_sums_over_a_billion_people_have_room() -> None:
    wide = (20_000, 10_000, 2)
    found = weighing.weigh_blocks(wide, 2)
    assert 1 <= min(weight for _, weight in found) < weighing.RESOLUTION
    assert all(weight * math.prod(wide[c] - 1 for c in columns) <= 1.5 * 2**31 for columns, weight in found)


def test_what_is_named_is_more_exact() -> None:
    plain, named = (noise_of(weighing.weigh_blocks(COLUMNS, 1, focus), COLUMNS) for focus in ((), [(2, 3)]))
    others = plain[0, 3] / named[0, 3]
    assert plain[2, 3] / named[2, 3] == pytest.approx(2 * others, rel=0.1)


def test_what_cannot_be_asked_for_is_refused() -> None:
    with raises(StudyError, "ST399"):
        weighing.weigh_blocks((10**5, 10**5, 2), label=2)


# --- tasks, in one stage or in two: narrow bins are counted, merged by everybody alike, and asked about


FINE = (30, 2, 4, 12, 3)
MERGES = (CodeMerge(3), CodeMerge(2), CodeMerge(4), CodeMerge(2), CodeMerge(3))


def staged_task(fine=FINE, merges=MERGES, seats=None, threshold=1, **changes):
    """The columns of the usual task are merged ones; two of them have more codes before."""
    second = marginals_task(((3, 2), (4,), (2, 3)), seats, threshold, label=1, **changes)
    columns = tuple(replace(column, size=size) for column, size in zip(second.coded, fine, strict=True))
    return StagedMarginals(columns, merges, (2, 3, 3, 1, 2, 1), second, noise=30)


@pytest.mark.parametrize(
    ("seats", "hidden", "inputs"),
    [
        (None, False, None),
        (("o1", COORDINATOR, "o0"), False, None),
        (None, True, None),
        (None, False, "unproven"),
        (None, False, "proven"),
    ],
)
def test_both_stages_are_those_of_the_definition(seats, hidden, inputs):
    """Also where participants may deviate."""
    task = staged_task(seats=seats, hidden=hidden, block_rows=17)
    if inputs is not None:
        task = replace(task, second=active(task.second, inputs=inputs))
        assert [event.lost > 0 for event in task.events] == [False, inputs == "proven"]
    tables = codes_of(task.stages[0], 40)
    held = tables
    if hidden:
        places = RowSlots(np.arange(40), 40, bytes(16))
        held = {owner: kit.Rows(codes, places=places) for owner, codes in tables.items()}
    with pytest.MonkeyPatch.context() as patch:
        kit.no_noise(patch)
        results = kit.execute(stages, task, held)
    assert set(results) == {*task.owners, COORDINATOR}
    first, second = (replace(stage, hidden=False) for stage in task.stages)
    for result in results.values():
        assert np.array_equal(result.first.opened, reference(tables, first))
        codes = {
            owner: recode_rows(tables[owner].astype(float), [result.merged[place] for place in first.held_by(owner)])
            for owner in task.owners
        }
        assert np.array_equal(result.second.opened, reference(codes, second))
        assert result.merged == results["o0"].merged


def test_with_noise_everybody_finds_the_same_bins():
    task = replace(staged_task(), noise=3 * 10**4)
    results = kit.execute(stages, task, codes_of(task.stages[0], 100))
    assert len({result.merged for result in results.values()}) == 1
    assert len({result.second.opened.tobytes() for result in results.values()}) == 1


@settings(max_examples=80, deadline=None)
@given(counts=st.lists(st.integers(-50, 1000), min_size=1, max_size=40), data=st.data())
def test_every_bin_has_a_code_and_all_codes_have_a_bin(counts, data):
    bins = data.draw(st.integers(1, len(counts)))
    ends = cut_evenly(counts, bins)
    assert (len(ends), ends[-1]) == (bins, len(counts))
    assert all(begin < end for begin, end in zip([0, *ends], ends, strict=False))


@pytest.mark.parametrize(
    ("counts", "bins", "ends"),
    [
        ([10] * 60, 6, [10, 20, 30, 40, 50, 60]),
        ([900, *[10] * 60], 7, [1, 11, 21, 31, 41, 51, 61]),
        ([0, 0, 5, 0, 0, 5, 0, 0], 2, [3, 8]),
        ([0] * 5, 3, [1, 2, 5]),
    ],
)
def test_bins_are_even_where_people_are_spread_and_an_atom_has_its_own(counts, bins, ends):
    assert cut_evenly(counts, bins) == ends


def test_a_code_stays_apart():
    task = staged_task(merges=(CodeMerge(3, apart=29), *MERGES[1:]))
    found = stages.simulate(codes_of(task.stages[0], 500), task, seeded(5))
    first, second = found.merged[:2]
    assert (first[29], second) == (2, (0, 1))
    assert set(first[:29]) == {0, 1}
    assert first[:29] == tuple(sorted(first[:29]))


def test_both_events_are_paid_for_and_calibrated_together():
    draft = staged_task()
    heavy = replace(draft.second, asked=tuple(replace(b, weight=100 * b.weight) for b in draft.second.asked))
    big = replace(draft, first=tuple(100 * w for w in draft.first), second=heavy)
    task = big.calibrate(parse_budgets({"analyst": 1.0}, 1e-5, big.trust))
    assert [event.name for event in task.events] == ["marginals of narrow bins", "marginals"]
    assert task.openings == dict.fromkeys(task.events, 1)
    both, alone = (
        Statement.of(events, task.trust, 1e-5).epsilon("analyst") for events in (task.events, task.events[1:])
    )
    assert alone < both <= 1.0
    assert both > 0.99
    figures = [(event.l2_squared, event.replace_l2_squared) for event in task.events]
    assert figures == [(event.l2_squared, event.replace_l2_squared) for event in big.events]


def test_the_edges_that_are_left_are_those_between_merged_bins():
    assert merge_edges([0.0, 1.0, 2.0, 3.0, 4.0], [0, 0, 1, 2]) == (0.0, 2.0, 3.0, 4.0)
    assert merge_edges([0.0, 1.0, 2.0], [0, 1]) == (0.0, 1.0, 2.0)
    assert merge_edges([0.0, 1.0, 2.0], [0, 0]) == (0.0, 2.0)


def test_the_price_of_the_second_stage_holds_for_every_way_to_merge():
    """All pairs of people with narrow codes, under random maps: none is further apart than the event says."""
    task, rng = (
        staged_task(
            fine=(4, 2, 5, 3, 3), merges=(CodeMerge(3), CodeMerge(2), CodeMerge(4), CodeMerge(2), CodeMerge(3))
        ),
        np.random.default_rng(1),
    )
    second = task.stages[1]
    for _ in range(40):
        new = [rng.integers(0, merge.size, size) for merge, size in zip(task.merges, (4, 2, 5, 3, 3), strict=True)]
        pair = [np.array([[known[rng.integers(0, len(known))] for known in new]]) for _ in range(2)]
        cells = [reference({o: codes[:, list(second.held_by(o))] for o in second.owners}, second) for codes in pair]
        assert int(((cells[0] - cells[1]) ** 2).sum()) <= second.event.replace_l2_squared
        assert int((cells[0] ** 2).sum()) == second.event.l2_squared


def test_two_stages_keep_the_contract():
    check_complete(StagedMarginals, "here")
    task = staged_task()
    assert task.facts["cells"] == sum(stage.entries for stage in task.stages)
    assert task.noise_std == task.stages[1].noise_std
    assert all(load.seconds > 0 for load in task.loads(task.everyone, 100))
    assert task.adjustable(100) is None
    changed = [replace(task, noise=33), replace(task, first=(9, *task.first[1:])), staged_task(fine=(31, *FINE[1:]))]
    assert all(found.agreement != task.agreement for found in changed)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"first": (1, 2)}, "ST486"),
        ({"merges": MERGES[:-1]}, "ST485"),
        ({"merges": (CodeMerge(4), *MERGES[1:])}, ("ST487", "4", "3")),
        ({"merges": (CodeMerge(31), *MERGES[1:])}, "ST482"),
        ({"merges": (CodeMerge(3, apart=30), *MERGES[1:])}, ("ST481", "30")),
        ({"merges": (*MERGES[:3], CodeMerge(2, apart=0), MERGES[4])}, "ST483"),
    ],
)
def test_what_cannot_be_merged_is_refused(changes, said):
    with raises(StudyError, said):
        replace(staged_task(), **changes)


# --- the public task of one stage: what is refused, priced and agreed on, and who computes what


def test_marginals_keep_the_contract():
    check_complete(Marginals, "here")
    task = marginals_task()
    assert task.names == ("o0.c0", "o0.c1", "o1.c0", "o2.c0", "o2.c1")
    assert task.facts["cells"] == task.entries == 1 + 12 + 54 + 43  # of sizes 3, 2, 4, 2, 3: 2 is one number


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"asked": ()}, "ST476"),
        ({"asked": (MarginalQuery((0,), 1), MarginalQuery((0,), 2))}, "ST477"),
        ({"asked": (MarginalQuery((1, 0), 1),)}, "ST478"),
        ({"asked": (MarginalQuery((0, 9), 1),)}, ("ST478", "5")),
        ({"asked": (MarginalQuery((0,), 0),)}, ("ST479", "0")),
        ({"asked": (MarginalQuery((0,), 1.5),)}, ("ST479", "1.5")),
        ({"asked": (MarginalQuery((0, 2, 3), 1),)}, "ST480"),
        ({"asked": (MarginalQuery((0, 1, 2, 3), 1),)}, "ST480"),
        ({"label": 5}, ("ST475", "5")),
        ({"law": "discrete-laplace"}, ("ST489", "discrete-laplace")),
        ({"coded": (CodedColumn("o0", "a", 1),), "label": None}, ("ST474", "o0")),
        ({"coded": (CodedColumn("o1", "a", 2), CodedColumn("o0", "a", 2)), "label": None}, "ST473"),
        ({"coded": (CodedColumn("stranger", "a", 2),), "label": None}, "ST473"),
    ],
)
def test_what_cannot_be_computed_is_refused(changes, said):
    with raises(StudyError, said):
        replace(marginals_task(), **changes)


@pytest.mark.parametrize(
    ("sizes", "label", "rows", "said"),
    [
        ([[3000], [3000], [2]], None, 1000, "CA022"),
        ([[1000] * 5, [1000] * 5, [2]], None, 1000, "CA021"),
        ([[3, 2], [4], [2, 3]], 1, 2**58, "CA023"),
    ],
)
def test_what_is_too_large_is_refused(sizes, label, rows, said):
    with raises(CapacityError, said):
        _ = marginals_task(sizes, label=label, rows_at_most=rows).bound


def test_a_change_of_anything_public_changes_the_agreement():
    task = marginals_task()
    changed = [
        replace(task, noise=task.noise + 3),
        replace(task, asked=task.asked[:-1]),
        replace(task, asked=(*task.asked[:-1], replace(task.asked[-1], weight=77))),
        replace(task, coded=(replace(task.coded[0], size=4), *task.coded[1:])),
        replace(task, coded=(replace(task.coded[0], name="other"), *task.coded[1:])),
        replace(task, law="discrete-gaussian"),
        replace(task, hidden=True),
        replace(task, label=None, asked=tuple(b for b in task.asked if len(b.columns) < 3)),
    ]
    assert all(other.agreement != task.agreement for other in changed)
    assert replace(task).agreement == task.agreement


@pytest.mark.parametrize("law", ["skellam", "discrete-gaussian"])
def test_noise_is_the_least_that_keeps_every_budget(law):
    draft = marginals_task(law=law)
    draft = replace(draft, asked=tuple(replace(b, weight=100 * b.weight) for b in draft.asked))

    def kept(task, budgets):
        found = Statement.of(task.events, task.trust, 1e-5)
        return all(found.epsilon(name) <= most for name, most in budgets.items())

    everybody = dict.fromkeys(("analyst", COORDINATOR, "o0", "o1"), 2.0)
    for budgets in ({"analyst": 1.0}, {COORDINATOR: 1.0}, {"o1": 0.5, "analyst": 3.0}, everybody):
        task = draft.calibrate(parse_budgets(budgets, 1e-5, draft.trust))
        assert kept(task, budgets)
        assert not kept(task.with_noise(task.noise * 99 // 100), budgets)


def test_an_owner_learns_no_more_than_what_others_columns_can_move():
    task = marginals_task()
    whole, blocks = task.sensitivity.replace_l2_squared, [(block.columns, block.weight) for block in task.asked]
    figures = {owner: square for owner, _, square in task.others}
    assert figures
    for owner in task.owners:
        elsewhere = [place for place in range(5) if task.coded[place].owner != owner]
        assert figures.get(owner, whole) == changed_cells_sensitivity(task.sizes, blocks, elsewhere)[1] <= whole
    assert ("o0", 0, 0) in marginals_task([[3, 2, 4], [], []]).others  # whoever holds all columns learns nothing


# --- who computes what


def test_every_block_is_computed_once_and_where_it_belongs():
    task = marginals_task([[3, 2, 4], [2, 5], [3]], label=1)
    layout, found = task.layout, []
    for owner, products in layout.own.items():
        for part in products:
            for index, left, right in part.blocks:
                columns = (*left, *right)
                assert {task.holder[column] for column in columns} <= {owner}
                found.append(index)
    for part in layout.shared:
        assert ONES not in (part.left_source, part.right_source)
        for index, left, right in part.blocks:
            assert tuple(sorted((*left, *right))) == task.asked[index].columns
            assert len({task.holder[column] for column in (*left, *right)}) > 1
            assert (part.left_source == MADE) == (len(left) == 2 and task.holder[left[0]] != task.holder[1])
            found.append(index)
    assert sorted(found) == list(range(len(task.asked)))


def test_of_two_owners_only_the_narrower_side_is_multiplied_with_the_label():
    task = marginals_task([[2], [9, 8], [4, 3, 2]], label=0)
    between = [b for b in task.asked if len(b.columns) < 3 or {task.holder[c] for c in b.columns} == {0, 1, 2}]
    few = replace(task, asked=tuple(between))
    assert {factor[0] for factor in few.layout.made.names} == {3, 4, 5}
    assert few.layout.made.width == 3 + 2 + 1
    # Of all pairs of others the widest column is not multiplied.
    assert {factor[0] for factor in task.layout.made.names} == {2, 3, 4, 5}


def test_what_is_not_asked_for_is_neither_dealt_nor_multiplied():
    task = marginals_task([[3, 2], [4, 7], [5]], label=None)
    few = replace(
        task, asked=(MarginalQuery((), 1), MarginalQuery((0,), 1), MarginalQuery((0, 2), 1), MarginalQuery((2, 3), 1))
    )
    assert {owner: factors.names for owner, factors in few.layout.dealt.items()} == {0: ((0,),), 1: ((2,),)}
    alone = replace(task, asked=(MarginalQuery((0, 1), 1),))
    assert alone.layout.dealt == {}


def test_a_few_pairs_of_many_columns_are_not_computed_as_all_pairs():
    sizes = [[4] * 20, [4] * 20, [2]]
    pairs = tuple(MarginalQuery((place, place + 20), 1) for place in range(20))
    task = replace(marginals_task(sizes, label=None), asked=pairs)
    area = sum(product.left.width * product.right.width for product in task.layout.shared)
    assert area == 20 * 9


def test_it_can_be_priced_before_it_is_run():
    task = marginals_task(noise=3 * 10**6)
    assert all(load.bytes_sent > 0 for load in task.loads(task.everyone, 500) if load.participant != COORDINATOR)
    adjusted = task.adjustable(500)
    half, fifty = adjusted.with_error(adjusted.error / 2), adjusted.with_multiplier(50.0)
    assert adjusted.error == pytest.approx(task.noise_std / 500)
    assert 0.99 * adjusted.error / 2 <= half.error <= adjusted.error / 2
    assert 50.0 <= fifty.multiplier <= 50.5
    assert adjusted.with_rows(1000).error == pytest.approx(adjusted.error / 2)
    with raises(StudyError, "ST505"):
        adjusted.with_error(1e-9)
