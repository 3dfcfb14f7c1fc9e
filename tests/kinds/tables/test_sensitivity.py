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
from colonnade.audit.verdict import judge
from colonnade.errors import PrivacyError, StudyError
from colonnade.kinds.tables import sensitivity as marginals, weights as weighing
from colonnade.kinds.tables.audit_marginals import Cells, furthest
from colonnade.kinds.tables.marginals.merging import Merge
from colonnade.kinds.tables.marginals.programs import reference
from colonnade.kinds.tables.marginals.stages import StagedMarginals
from colonnade.kinds.tables.residuals import Residual, centred, check, misfit, noisy_marginal, subsets
from colonnade.kinds.tables.sensitivity import changed_cells_sensitivity, marginals_sensitivity
from colonnade.privacy import Observer, parse_budgets
from tests.kinds.tables.releases import histogram, people, release
from tests.support.errors import raises
from tests.support.protocols import marginals_task


def cells_of(person, sizes, blocks):
    """What a person adds to all blocks, by the definition."""
    found = []
    for columns, weight in blocks:
        cells = np.array(weight)
        for column in columns:
            own = sizes[column] * np.eye(sizes[column], dtype=np.int64)[person[column]] - 1
            cells = np.multiply.outer(cells, own[:1] if len(own) == 2 else own)
        found.append(cells.reshape(-1))
    return np.concatenate(found)


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
    task = StagedMarginals(fine, (Merge(2), Merge(3), Merge(3), Merge(2)), (900, 2000, 400, 400, 2000), second, 3)
    return task.calibrated(parse_budgets({"analyst": 1.0}, 1e-5, task.trust))


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
    task = draft.calibrated(parse_budgets({"party": 1.0}, 1e-5, draft.trust))
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
            assert np.array_equal(Cells(task, (None, person), ()).added(person), reference(alone, task))


def test_the_two_people_are_as_far_apart_as_the_event_says():
    task = marginals_task(((3, 2), (4,), (2, 3)), label=3)
    figures = {owner: square for owner, _, square in task.others}
    for observer, square in [
        (Observer.analyst(), task.event.l2_squared),
        (Observer.coordinator(), task.event.replace_l2_squared),
        *((Observer.party(owner), figures.get(owner, task.event.replace_l2_squared)) for owner in task.owners),
    ]:
        first, second = Cells(task, furthest(task, observer), ()).sums
        assert int(((second - first) ** 2).sum()) == square


# --- residuals


SIZES = (3, 2, 4)


def exact(codes: np.ndarray, deviation: float) -> list[Residual]:
    return [
        Residual(
            columns, centred(histogram(codes, columns, SIZES)) if columns else np.array(float(len(codes))), deviation
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
                moved[place] = Residual(each.columns, each.values + centred(unit), each.deviation)
                count = 50 + (each.deviation if not each.columns else 0.0)
                variance += (noisy_marginal((0, 2), SIZES, count, moved)[0] - plain) ** 2
    np.testing.assert_allclose(deviations**2, variance, rtol=1e-9)


def test_the_misfit_of_the_truth_is_the_noise() -> None:
    codes = people(SIZES, 500, 3)
    sets = [each for each in subsets(range(3)) if each]
    noisy = release(codes, SIZES, sets, 2.0, 5)
    squares, degrees = misfit(lambda columns: histogram(codes, columns, SIZES) / 500, 500, noisy)
    noise = [each.values - centred(histogram(codes, each.columns, SIZES)) for each in noisy]
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
def test_residuals_that_do_not_fit_or_were_not_asked_for_are_refused(residual: Residual, says: str) -> None:
    with raises(StudyError, says):
        check(SIZES, [residual])
    known = [each for each in exact(people(SIZES, 50, 2), 1.0) if len(each.columns) < 2]
    with raises(StudyError, "ST395"):
        noisy_marginal((0, 1), SIZES, 50, known)


# --- weights


COLUMNS = (5, 2, 30, 1, 3)


def noise_of(found: list[tuple[tuple[int, ...], int]], sizes: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """Noise on a cell in people, for noise of deviation one on every opened number."""
    return {
        columns: 1 / (weight * math.prod(math.sqrt(2) if sizes[c] == 2 else sizes[c] for c in columns))
        for columns, weight in found
    }


def test_all_pairs_and_triples_with_the_label_are_asked_for_once() -> None:
    found = [columns for columns, _ in weighing.blocks(COLUMNS, 1)]
    assert found[:5] == [(), (0,), (1,), (2,), (4,)]
    assert sorted(found[5:11]) == [(0, 1), (0, 2), (0, 4), (1, 2), (1, 4), (2, 4)]
    assert sorted(found[11:]) == [(0, 1, 2), (0, 1, 4), (1, 2, 4)]
    assert [columns for columns, _ in weighing.blocks(COLUMNS, order=1)] == found[:5]
    assert len(weighing.blocks(COLUMNS)) == 11


def test_weights_are_whole_and_fine_enough() -> None:
    found = weighing.blocks(COLUMNS, 1)
    assert min(weight for _, weight in found) == weighing.RESOLUTION
    fine = dict(weighing.blocks(COLUMNS, 1, resolution=1 << 12))
    for columns, weight in found:
        assert weight * (1 << 12) / weighing.RESOLUTION == pytest.approx(fine[columns], rel=0.6 / weighing.RESOLUTION)


def test_sums_over_a_billion_people_have_room_and_pairs_of_equal_sizes_are_alike() -> None:
    wide = (20_000, 10_000, 2)
    found = weighing.blocks(wide, 2)
    assert 1 <= min(weight for _, weight in found) < weighing.RESOLUTION
    assert all(weight * math.prod(wide[c] - 1 for c in columns) <= 1.5 * 2**31 for columns, weight in found)

    weights = {weight for columns, weight in weighing.blocks((4, 4, 4, 4)) if len(columns) == 2}
    assert len(weights) == 1


def test_what_is_named_is_more_exact() -> None:
    plain, named = (noise_of(weighing.blocks(COLUMNS, 1, focus), COLUMNS) for focus in ((), [(4, 2), (0, 1, 2)]))
    others = plain[0, 4] / named[0, 4]
    assert plain[2, 4] / named[2, 4] == pytest.approx(2 * others, rel=0.1)
    assert plain[0, 1, 2] / named[0, 1, 2] == pytest.approx(2 * others, rel=0.1)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"sizes": (3, 3), "order": 3}, "ST400"),
        ({"sizes": (1, 1)}, "ST401"),
        ({"sizes": (3, 1), "label": 1}, "ST402"),
        ({"sizes": (3, 1), "focus": [(0, 1)]}, "ST403"),
        ({"sizes": (3, 3, 3), "focus": [(0, 1, 2)]}, "ST403"),
        ({"sizes": (10**5, 10**5, 2), "label": 2}, "ST399"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(keys: dict[str, object], says: str) -> None:
    with raises(StudyError, says):
        weighing.blocks(**keys)  # type: ignore[arg-type]
