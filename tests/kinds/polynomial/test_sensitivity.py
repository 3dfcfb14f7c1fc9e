from __future__ import annotations

import math
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from colonnade.errors import PrivacyError
from colonnade.kinds.polynomial.sensitivity import (
    Domain,
    monomial_maximum,
    monomials_sensitivity,
    others_sensitivity,
    polynomial_maxima,
)
from colonnade.privacy.sensitivity.moments import moments_sensitivity
from colonnade.privacy.sensitivity.norms import conditional_norm_squared, enforced_norm_squared, party_norm_squared
from research.bounds import polynomial_sensitivity, upper_moments_sensitivity
from tests.support.errors import raises


def value(terms, row):
    return sum(a * math.prod(int(row[v]) ** power for v, power in monomial) for monomial, a in terms.items())


def every_row(domain):
    """All integer rows of a small domain."""
    sides = [range(0 if v in domain.unsigned else -domain.reach, domain.reach + 1) for v in range(len(domain.holder))]
    for row in product(*sides):
        norms = [0] * len(domain.norms)
        for variable, x in enumerate(row):
            norms[domain.holder[variable]] += x * x
        if all(norm <= limit for norm, limit in zip(norms, domain.norms, strict=True)):
            yield row


domains = st.builds(
    lambda holder, norms, reach, unsigned: Domain(tuple(sorted(holder)), tuple(norms), reach, frozenset(unsigned)),
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
    st.lists(st.integers(1, 9), min_size=3, max_size=3),
    st.integers(1, 2),
    st.sets(st.integers(0, 2)),
)
monomials = st.dictionaries(st.integers(0, 2), st.integers(1, 3), max_size=3).map(lambda m: tuple(sorted(m.items())))
outputs = st.lists(
    st.dictionaries(monomials, st.integers(-4, 4).filter(bool), min_size=1, max_size=4), min_size=1, max_size=3
)


@settings(max_examples=60, deadline=None)
@given(outputs, domains)
def test_no_integer_row_exceeds_a_bound(polynomials, domain):
    values = np.array([[value(terms, row) for terms in polynomials] for row in every_row(domain)], dtype=np.int64)
    bound = monomials_sensitivity(polynomials, domain)
    assert np.all(np.abs(values).max(axis=0) <= polynomial_maxima(polynomials, domain))
    assert np.abs(values).sum(axis=1).max() <= bound.l1
    assert (values**2).sum(axis=1).max() <= bound.l2_squared
    moved = values[:, None, :] - values[None, :, :]
    assert np.abs(moved).sum(axis=2).max() <= bound.replace_l1
    assert (moved**2).sum(axis=2).max() <= bound.replace_l2_squared


@settings(max_examples=40, deadline=None)
@given(outputs, domains, st.integers(0, 2))
def test_columns_of_others_move_no_further_than_is_said(polynomials, domain, owner):
    rows = list(every_row(domain))
    l1, square = others_sensitivity(polynomials, domain, owner)
    mine = [v for v, holder in enumerate(domain.holder) if holder == owner]
    groups: dict[tuple[int, ...], list[list[int]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[v] for v in mine), []).append([value(terms, row) for terms in polynomials])
    for values in map(np.array, groups.values()):
        moved = values[:, None, :] - values[None, :, :]
        assert np.abs(moved).sum(axis=2).max() <= l1
        assert (moved**2).sum(axis=2).max() <= square


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.integers(1, 60),
    st.integers(1, 9),
    st.integers(0, 2**31),
)
def test_the_largest_monomial_is_not_exceeded_and_nearly_reached(powers, norm, reach, seed):
    """Over real points of the ball and the box, climbed to from random ones."""
    bound = monomial_maximum(tuple(enumerate(powers)), Domain((0,) * len(powers), (norm,), reach))
    rng = np.random.default_rng(seed)
    u = rng.dirichlet(np.array(powers), 4000) * norm
    u = np.minimum(u, reach**2)
    best = np.sqrt(np.prod(u ** np.array(powers), axis=1).max())
    assert math.floor(best * (1 - 1e-12)) <= bound
    # Where the ball is inside the box the maximum is known in closed form.
    degree = sum(powers)
    if max(powers) * norm <= reach**2 * degree:
        exact = math.sqrt(norm**degree * math.prod((b / degree) ** b for b in powers))
        assert bound == pytest.approx(exact, abs=1 + 1e-9 * exact)
        assert bound <= exact * (1 + 1e-12)


def test_simple_bounds_are_reached():
    # One product between two owners: both at the end of their box.
    box = Domain((0, 1), (10**6, 10**6), 7)
    assert polynomial_maxima([{((0, 1), (1, 1)): 3}], box) == [147]
    assert monomials_sensitivity([{((0, 1), (1, 1)): 3}], box).replace_l2_squared == (2 * 147) ** 2
    # A square is never negative, so replacing a row moves it no further than adding one.
    assert monomials_sensitivity([{((0, 2),): 5}], box).replace_l1 == 5 * 49
    # Nor is a product of flags.
    flags = Domain((0, 1), (49, 49), 7, frozenset({0, 1}))
    assert monomials_sensitivity([{((0, 1), (1, 1)): 1}], flags).replace_l1 == 49
    # A constant counts when a row is added, and not when one is replaced.
    counted = monomials_sensitivity([{(): 4}], box)
    assert (counted.l1, counted.l2_squared, counted.replace_l1, counted.replace_l2_squared) == (4, 16, 0, 0)
    # 7 - x for x in [0, 7] is never larger than 7.
    assert polynomial_maxima([{(): 7, ((0, 1),): -1}], flags) == [7]
    # Two coordinates of one owner share its ball: 3 x 4 in a ball of radius 5 is less than 25 / 2.
    assert monomial_maximum(((0, 1), (1, 1)), Domain((0, 0), (25,), 5)) == 12
    # The square of a sum reaches Cauchy-Schwarz, by Bombieri's norm: (x + y)^2 <= 2 (x^2 + y^2).
    square = {((0, 2),): 1, ((0, 1), (1, 1)): 2, ((1, 2),): 1}
    assert polynomial_maxima([square], Domain((0, 0), (50,), 50)) == [100]


def test_a_table_of_counts_costs_no_more_than_one_cell():
    """One-hot columns of two owners: every person is in one cell, and the bound knows it."""
    gamma, left, right = 8, 4, 5
    holder = (0,) * left + (1,) * right
    cells = [{((i, 1), (left + j, 1)): 1} for i in range(left) for j in range(right)]
    domain = Domain(holder, (gamma**2, gamma**2), gamma, frozenset(range(left + right)))
    bound = monomials_sensitivity(cells, domain)
    assert bound.l2_squared == gamma**4
    assert bound.replace_l2_squared == 2 * gamma**4
    loose = polynomial_sensitivity(
        [{tuple(int(v in (i, left + j)) for v in range(9)): 1} for i in range(left) for j in range(right)],
        2 * gamma**2,
    )
    assert loose.l2_squared == left * right * 2 * gamma**4


@pytest.mark.parametrize("split", [1, 2, 3])
def test_second_moments_are_bounded_as_tightly_as_by_their_own_theorem(split):
    columns, norm = 6, 90
    domain = Domain(tuple(i * split // columns for i in range(columns)), (norm // split,) * split, 100)
    pairs = combinations_with_replacement(range(columns), 2)
    upper = [{((i, 2),) if i == j else ((i, 1), (j, 1)): 1} for i, j in pairs]
    bound = monomials_sensitivity(upper, domain)
    known = upper_moments_sensitivity(norm, columns)
    assert bound.l2_squared <= known.l2_squared
    assert bound.replace_l2_squared <= known.replace_l2_squared
    if split == 1:
        assert (bound.l2_squared, bound.replace_l2_squared) == (norm**2, 2 * norm**2)
    full = [
        {((i, 2),) if i == j else tuple(sorted(((i, 1), (j, 1)))): 1} for i in range(columns) for j in range(columns)
    ]
    found, want = monomials_sensitivity(full, domain), moments_sensitivity(norm, columns)
    assert found.l2_squared <= want.l2_squared
    assert found.replace_l2_squared <= want.replace_l2_squared


@settings(max_examples=40, deadline=None)
@given(outputs, st.integers(1, 20))
def test_the_bound_is_never_worse_than_bombieri_alone(polynomials, norm):
    dense = [{tuple(dict(m).get(v, 0) for v in range(3)): a for m, a in terms.items()} for terms in polynomials]
    known = polynomial_sensitivity(dense, norm)
    found = monomials_sensitivity(polynomials, Domain((0, 0, 0), (norm,), 10**6))
    assert found.l2_squared <= known.l2_squared
    assert found.replace_l2_squared <= known.replace_l2_squared
    assume(known.l1 > 0)
    assert found.l1 <= known.l1


def test_what_makes_no_sense_is_refused():
    with raises(PrivacyError, "PR096"):
        monomials_sensitivity([], Domain((0,), (1,), 1))
    with raises(PrivacyError, "PR089"):
        Domain((0,), (-1,), 1)
    with raises(PrivacyError, "PR089"):
        monomials_sensitivity([{((0, 0),): 1}], Domain((0,), (1,), 1))


def test_the_norm_that_an_owner_enforces():
    gamma, clip, width = 4096, 1.0, 117
    for mode, known in (("stochastic", "stochastic"), ("nearest", "nearest"), ("toward-zero", "toward_zero")):
        assert enforced_norm_squared(gamma, clip, width, width, mode) == party_norm_squared(gamma, clip, width, known)
    assert enforced_norm_squared(gamma, clip, width, width, "conditional") == conditional_norm_squared(
        gamma, clip, width
    )
    # Whichever way it is rounded, a row of k table columns stays in a ball of radius gamma sqrt(k).
    assert enforced_norm_squared(gamma, 2.0, 4, 4, "stochastic") == 4 * gamma**2
    with raises(PrivacyError, "PR100"):
        enforced_norm_squared(gamma, clip, width, width, "up")
