"""Densities and derivatives of one owner's columns, against scipy and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from scipy import stats

from colonnade.errors import SchemaError, StudyError
from colonnade.kinds.synthesis.mixture.components import LIMIT, OwnComponents
from colonnade.kinds.synthesis.mixture.families import INSIDE, families_of
from colonnade.tables.columns import category, flag, number
from colonnade.tables.schema import Schema
from tests.kinds.synthesis.mixture.people import FAMILIES, SCHEMA, encoded
from tests.support.errors import raises

OWN = OwnComponents(SCHEMA, FAMILIES)
SEEDS = st.integers(0, 2**32 - 1)


def drawn(seed: int, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return encoded(rng, 12), spread * rng.normal(size=(4, OWN.width))


@given(SEEDS, st.floats(0.1, 2.0))
@example(8421006, 2.0)
@settings(max_examples=25, deadline=None)
def test_derivatives_are_those_of_the_log_densities(seed: int, spread: float) -> None:
    rows, parameters = drawn(seed, spread)
    parameters = np.clip(parameters, -0.45 * LIMIT, 0.45 * LIMIT)  # beyond half of it densities are those at the limit
    found, step = OWN.derivatives(rows, parameters) / OWN.scales(parameters), 1e-5
    for place in range(OWN.width):
        ahead, behind = parameters.copy(), parameters.copy()
        ahead[:, place] += step
        behind[:, place] -= step
        slope = (OWN.log_densities(rows, ahead) - OWN.log_densities(rows, behind)) / (2 * step)
        np.testing.assert_allclose(found[:, :, place], slope, rtol=1e-5, atol=1e-5)


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_log_densities_are_those_of_scipy(seed: int) -> None:
    rows, parameters = drawn(seed, 0.5)  # so that scipy's masses of far cells are not rounded to zero
    by_column = {name: rows[:, place] for name, place in SCHEMA.places.items()}
    expected = np.zeros((len(rows), len(parameters)))
    for k, row in enumerate(parameters):
        at = {name: row[place] for name, place in OWN.places.items()}
        for name, share in (("age", (by_column["age"] + 1) / 2), ("income", by_column["income"])):
            inside = INSIDE + (1 - 2 * INSIDE) * share[:, 0]
            expected[:, k] += stats.beta.logpdf(inside, *np.exp(at[name]))
        for name in ("city", "sort"):
            chances = np.exp(at[name]) / np.exp(at[name]).sum()
            expected[:, k] += by_column[name] @ np.log(chances)
        chances = np.exp(at["visits"]) / np.exp(at["visits"]).sum()
        expected[:, k] += np.log(chances[np.minimum(by_column["visits"][:, 0] * 4, 3).astype(int)])
        expected[:, k] += stats.bernoulli.logpmf(by_column["member"][:, 0], 1 / (1 + np.exp(-at["member"])))
        cell = np.minimum((by_column["height"][:, 0] + 1) / 2 * 20, 19).astype(int)
        ends = np.r_[-np.inf, np.arange(1, 20) / 20, np.inf]
        normal = stats.norm(at["height"][0], np.exp(at["height"][1]))
        masses = np.where(ends[:-1] > at["height"][0], -np.diff(normal.sf(ends)), np.diff(normal.cdf(ends)))
        expected[:, k] += np.log(masses[cell])
    np.testing.assert_allclose(OWN.log_densities(rows, parameters), expected, rtol=1e-6, atol=1e-6)


@given(SEEDS)
@settings(max_examples=25, deadline=None)
def test_norms_and_sums_of_derivatives_need_no_derivatives(seed: int) -> None:
    rows, parameters = drawn(seed)
    weights = np.random.default_rng(seed).random((len(rows), len(parameters)))
    slopes = OWN.derivatives(rows, parameters)
    squares = (slopes**2).sum(axis=2)
    np.testing.assert_allclose(OWN.square_norms(rows, parameters), squares, rtol=1e-8, atol=1e-8 * squares.max())
    expected = np.einsum("nk,nkq->kq", weights, slopes)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(OWN.weighted_sums(rows, weights, parameters), expected, rtol=1e-8, atol=1e-10 * scale)


def test_a_missing_cell_is_left_out() -> None:
    """Two rows that differ only in a city that one of them lacks: the difference is that column's part alone."""
    rows, parameters = drawn(3)
    rows[1] = rows[0]
    place, own = SCHEMA.places["city"], OWN.places["city"]
    rows[:2, place] = 0
    rows[1, place.start + 2] = 1
    logs, slopes = OWN.log_densities(rows, parameters), OWN.derivatives(rows, parameters)
    chances = np.exp(parameters[:, own])
    np.testing.assert_allclose(logs[1] - logs[0], np.log(chances[:, 2] / chances.sum(axis=1)), atol=1e-12)
    assert not slopes[0, :, own].any()
    assert slopes[1, :, own].all()


def test_whether_cells_may_be_missing_follows_from_the_schema_and_not_from_cells() -> None:
    """Otherwise one person's missing cell would change how long its owner takes."""
    sure = Schema({"age": number(0, 100), "member": flag()})
    assert OwnComponents(sure).read(np.zeros((3, 2))).present is None
    for column in (number(0, 100, missing="none"), category(["x", "y"], missing="none"), category(["x", "y"])):
        schema = Schema({"age": number(0, 100), "other": column})
        full, gone = np.zeros((2, 3, schema.encoded_width))
        at = schema.places["other"].start
        if column.kind == "category":
            full[:, at] = gone[1:, at] = 1
        else:
            gone[0, at + 1] = 1
        own = OwnComponents(schema)
        np.testing.assert_array_equal(own.read(full).present, np.ones((3, 2)))
        np.testing.assert_array_equal(own.read(gone).present, [[1, 0], [1, 1], [1, 1]])


def test_what_was_read_once_gives_the_same() -> None:
    rows, parameters = drawn(4)
    some = np.array([5, 1, 1])
    kept = OWN.read(rows).take(some)
    np.testing.assert_array_equal(OWN.log_densities(kept, parameters), OWN.log_densities(rows[some], parameters))
    np.testing.assert_array_equal(OWN.derivatives(kept, parameters), OWN.derivatives(rows[some], parameters))


def test_rows_that_were_scaled_down_keep_their_categories() -> None:
    schema = Schema({"city": category(list("abc")), "sort": category(["x", "y"])})
    own = OwnComponents(schema)
    rows = np.array([[0, 1.0, 0, 1, 0]])
    parameters = np.arange(10.0).reshape(2, 5)
    np.testing.assert_array_equal(own.log_densities(rows, parameters), own.log_densities(rows / 3, parameters))


@pytest.mark.parametrize("size", [1e3, 1e30])
def test_parameters_beyond_every_limit_give_finite_numbers(size: float) -> None:
    rows, parameters = drawn(5, size)
    assert np.isfinite(OWN.log_densities(rows, np.clip(parameters, -LIMIT, LIMIT))).all()
    assert np.isfinite(OWN.log_densities(rows, parameters)).all()
    assert np.isfinite(OWN.derivatives(rows, parameters)).all()


def test_families_follow_from_types_and_choices() -> None:
    assert OWN.width == 2 + 5 + 2 + 1 + 4 + 2 + 2
    assert OwnComponents(SCHEMA).width == 2 + 5 + 2 + 1 + 2 + 2 + 2


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"age": "normal"}, ("ST495", "age", "normal", "number")),
        ({"age": "categorical"}, ("ST495", "number")),
        ({"city": "beta"}, ("ST495", "category", "categorical")),
        ({"member": "bins"}, ("ST495", "flag", "bernoulli")),
        ({"age": "bins:1"}, ("ST496", "4096")),
        ({"age": "gaussian:x"}, ("ST496", "4096")),
        ({"age": "beta:3"}, ("ST495", "number")),
        ({"age": 3}, "ST494"),
    ],
)
def test_a_family_that_does_not_fit_is_refused(choice: dict[str, str], said: str) -> None:
    with raises(StudyError, said):
        families_of(SCHEMA, choice)


def test_a_family_of_an_unknown_column_is_refused() -> None:
    with raises(SchemaError, "SC071", "agee"):
        families_of(Schema({"age": number(0, 1)}), {"agee": "beta"})
