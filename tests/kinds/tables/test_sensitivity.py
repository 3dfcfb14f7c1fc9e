"""How far one person moves marginals: against all pairs of people of small domains."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import PrivacyError
from colonnade.kinds.tables import sensitivity as marginals
from colonnade.kinds.tables.sensitivity import changed_cells_sensitivity, marginals_sensitivity


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


def searched(sizes, blocks, rng, starts=12):
    """How far from one person a climbing search finds another, cell by cell and not by patterns."""
    best, fixed = 0, cells_of([0] * len(sizes), sizes, blocks)
    for _ in range(starts):
        person = [int(rng.integers(0, size)) for size in sizes]
        found, before = 0, -1
        while found > before:
            before = found
            for column in rng.permutation(len(sizes)).tolist():
                scores = []
                for value in range(2):
                    changed = [*person[:column], value, *person[column + 1 :]]
                    change = cells_of(changed, sizes, blocks) - fixed
                    scores.append((int(change @ change), value))
                found, person[column] = max(scores)
        best = max(best, found)
    return best


@pytest.mark.parametrize("weights", [(40, 12, 4, 2), (1, 1, 1, 1), (1, 30, 1, 5)])
def test_a_search_among_people_reaches_the_bound(weights):
    """A label and nine columns of many sizes, all pairs, and all pairs with the label."""
    sizes = [2, 2, 3, 5, 2, 8, 4, 2, 6, 3]
    sets = [columns for count in range(3) for columns in combinations(range(10), count)]
    sets += [(0, *pair) for pair in combinations(range(1, 10), 2)]
    blocks = [(columns, weights[len(columns)]) for columns in sets]
    bound = marginals_sensitivity(sizes, blocks)
    reached = searched(sizes, blocks, np.random.default_rng(7))
    assert 0.99 * bound.replace_l2_squared <= reached <= bound.replace_l2_squared


def test_large_weights_stay_exact():
    """The same ratios with weights far beyond 64 bits."""
    sizes = [3, 4, 2]
    blocks = [((), 7), ((0,), 3), ((0, 1), 2), ((0, 1, 2), 1), ((1, 2), 5)]
    small = marginals_sensitivity(sizes, blocks)
    large = marginals_sensitivity(sizes, [(columns, weight << 70) for columns, weight in blocks])
    assert large.l1 == small.l1 << 70
    assert large.replace_l1 == small.replace_l1 << 70
    assert large.replace_l2_squared == small.replace_l2_squared << 140


def test_only_the_count_moves_when_people_come_and_go():
    bound = marginals_sensitivity([3, 3], [((), 11)])
    assert (bound.l1, bound.l2_squared, bound.replace_l1, bound.replace_l2_squared) == (11, 121, 0, 0)


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
