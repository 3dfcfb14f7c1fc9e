from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.randomness import Stream
from colonnade.tables import Number, Schema, coding_of, decode_codes, number
from colonnade.tables.densities import Density, Vector

masses = st.floats(0, 1) | st.sampled_from([0.0, 1e-12, 1.0])
widths = st.floats(1e-3, 1e3)


def drawn(column: Number, bins: object, probabilities: list[float], rows: int) -> Vector:
    """Numbers of one column whose codes have these probabilities, as a table of made-up people has them."""
    coding = coding_of(Schema({"a": column}), {"a": bins})  # type: ignore[dict-item]
    codes = np.repeat(np.arange(len(probabilities)), np.rint(np.array(probabilities) * rows).astype(int))
    found = decode_codes({"p": coding}, codes[:, None], Stream(bytes(32)), [np.array(probabilities)])
    cells: Vector = found["a"].to_numpy()
    return cells


@settings(deadline=None)
@given(st.lists(st.tuples(widths, masses, st.booleans()), min_size=1, max_size=12))
def test_masses_are_kept_and_no_height_is_negative(bins: list[tuple[float, float, bool]]) -> None:
    edges = np.cumsum([0.0, *(width for width, _, _ in bins)])
    given_masses = np.array([mass for _, mass, _ in bins])
    density = Density.of(edges, given_masses, np.array([apart for _, _, apart in bins]))
    for heights in (density.left, density.middle, density.right):
        assert (heights >= 0).all()
    counted = np.array([mass > 0 and not apart for _, mass, apart in bins])
    np.testing.assert_allclose(density.masses[counted], given_masses[counted], rtol=1e-9)
    joined = counted[:-1] & counted[1:]
    np.testing.assert_array_equal(density.right[:-1][joined], density.left[1:][joined])


@settings(deadline=None)
@given(st.lists(st.tuples(widths, masses), min_size=1, max_size=8), st.floats(0, 1), st.floats(0, 1))
def test_draws_lie_in_their_bins_and_ascend_with_the_share(
    bins: list[tuple[float, float]], one: float, other: float
) -> None:
    edges = np.cumsum([0.0, *(width for width, _ in bins)])
    density = Density.of(edges, np.array([mass for _, mass in bins]), np.zeros(len(bins), dtype=bool))
    places = np.arange(len(bins))
    low, high = (density.draw(places, np.full(len(bins), share)) for share in sorted((one, other)))
    assert (low >= edges[:-1]).all()
    assert (high <= edges[1:]).all()
    assert (low <= high + 1e-12 * edges[-1]).all()
    np.testing.assert_array_equal(density.draw(places, np.zeros(len(bins))), edges[:-1])


def test_a_draw_inverts_the_mass_below_it() -> None:
    edges, heights = np.array([0.0, 1.0, 3.0, 4.0]), np.array([0.5, 0.2, 0.3])
    density = Density.of(edges, heights, np.zeros(3, dtype=bool))
    knots = np.array([0, 0.5, 1, 2, 3, 3.5, 4])
    values = np.array([density.left[0], *np.column_stack([density.middle, density.right]).ravel()])
    share = (np.arange(1000) + 0.5) / 1000
    for place in range(3):
        found = density.draw(np.full(1000, place), share)
        grid = np.linspace(edges[place], edges[place + 1], 20_001)
        mass = np.interp(grid, knots, values)
        below = np.concatenate([[0.0], np.cumsum((mass[1:] + mass[:-1]) / 2)])
        np.testing.assert_allclose(np.interp(found, grid, below / below[-1]), share, atol=1e-6)


def test_a_slope_is_followed_across_bins() -> None:
    # The density 2x on [0, 1], told by four bins, is found again: within a bin too, larger numbers are more likely.
    cells = drawn(number(0, 1), 4, [1 / 16, 3 / 16, 5 / 16, 7 / 16], 64_000)
    grid = np.linspace(0.05, 0.95, 19)
    np.testing.assert_allclose([(cells <= x).mean() for x in grid], grid**2, atol=0.01)
    flat = Density.uniform(np.linspace(0, 1, 5)).draw(np.array([3]), np.array([0.5]))
    assert flat.tolist() == [0.875]


def test_whole_numbers_share_the_mass_of_their_bin() -> None:
    cells = drawn(number(0, 9, whole=True), [5], [0.5, 0.5], 100_000)
    counts = np.bincount(cells.astype(int), minlength=10) / 100_000
    np.testing.assert_allclose(counts, np.full(10, 0.1), atol=0.01)
    assert counts[:5].sum() == counts[5:].sum() == 0.5


def test_a_bin_of_one_value_lends_nothing_to_its_neighbours() -> None:
    cells = drawn(number(0, 10), [0, 0, 5], [0.9, 0.05, 0.05], 100_000)
    assert (cells == 0).mean() == 0.9
    positive = cells[cells > 0]
    np.testing.assert_allclose([(positive <= x).mean() for x in (2.5, 5.0, 7.5)], [0.25, 0.5, 0.75], atol=0.03)
    whole = drawn(number(0, 10, whole=True), [0, 1], [0.9, 0.1], 100_000)
    np.testing.assert_allclose(np.bincount(whole.astype(int))[1:] / 10_000, np.full(10, 0.1), atol=0.02)


@pytest.mark.parametrize("size", [1e-300, 1.0, 1e150])
@pytest.mark.parametrize("mass", [1e-300, 1.0])
def test_neither_units_nor_rare_bins_matter(size: float, mass: float) -> None:
    density = Density.of(size * np.array([0.0, 1.0, 2.0]), np.array([mass, 1.0]), np.zeros(2, dtype=bool))
    found = density.draw(np.array([0, 1]), np.array([0.5, 0.5])) / size
    assert 0.5 <= found[0] < 1 < found[1] < 2
    np.testing.assert_allclose(density.masses, [mass, 1.0])


def test_a_bin_without_mass_is_drawn_from_evenly() -> None:
    density = Density.of(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0]), np.zeros(2, dtype=bool))
    found = density.draw(np.array([0, 0, 0]), np.array([0.25, 0.5, 0.75]))
    assert found == pytest.approx([0.25, 0.5, 0.75])
