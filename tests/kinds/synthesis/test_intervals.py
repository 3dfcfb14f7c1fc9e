from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from colonnade.errors import StudyError
from colonnade.kinds.synthesis.fit import fit
from colonnade.kinds.synthesis.intervals import combine, redraw, refits
from colonnade.kinds.tables.residuals import centred
from colonnade.testing.seeded import seeded
from tests.kinds.tables.releases import Codes, people, release, sets_of
from tests.support.errors import raises

Floats = NDArray[np.float64]


def estimates(codes: Codes) -> Floats:
    """The mean of the last column, and how many have code 1 in each, in all and among those with code 1 in column 1."""
    rows = len(codes)
    of_one = codes[codes[:, 1] == 1]
    shares = [(codes[:, column] == 1).mean() for column in range(codes.shape[1])]
    there = (of_one[:, 0] == 1).mean()
    return np.array(
        [
            (codes[:, -1].mean(), codes[:, -1].var() / rows),
            *((share, share * (1 - share) / rows) for share in shares),
            (there, there * (1 - there) / len(of_one)),
        ]
    )


def coverage(
    sizes: tuple[int, ...], rows: int, deviation: float, repeats: int, components: int
) -> tuple[Floats, Floats]:
    """How often intervals of 95 % hold the population's value: combined ones, and those of one table alone."""
    population = people(sizes, 200_000, 1)
    truth = estimates(population)[:, 0]
    rng = np.random.default_rng(3)
    combined, alone = np.zeros(len(truth)), np.zeros(len(truth))
    for repeat in range(repeats):
        codes = population[rng.integers(0, len(population), rows)]
        noisy = release(codes, sizes, sets_of(len(sizes), 1), deviation, 100 + repeat)
        count = rows + deviation * rng.standard_normal()
        model, stream = fit(sizes, count, noisy, components=components, steps=200), seeded(repeat)
        fits = refits(model, count, noisy, 5, stream, count_deviation=deviation, steps=60)
        tables = np.array([estimates(each.sample(rows, stream)) for each in (model, *fits)])
        for place, true in enumerate(truth):
            found = combine(tables[:, place, 0], tables[:, place, 1])
            combined[place] += found.low <= true <= found.high
            alone[place] += abs(tables[0, place, 0] - true) <= 1.96 * tables[0, place, 1] ** 0.5
    return combined / repeats, alone / repeats


def test_intervals_cover_where_those_of_one_table_do_not() -> None:
    combined, alone = coverage((3, 2, 4), 2000, 40.0, 16, components=16)
    assert combined.mean() > 0.85
    assert alone.mean() < 0.8


@pytest.mark.slow
def test_intervals_cover_their_level() -> None:
    combined, alone = coverage((4, 2, 5, 3), 5000, 40.0, 120, components=40)
    assert 0.9 < combined.mean() < 0.99
    assert combined.min() > 0.87
    assert alone.mean() < 0.85


def test_redrawn_noise_has_the_law_of_the_release() -> None:
    sizes = (40, 30)
    noisy = release(people(sizes, 1000, 1), sizes, [(0, 1)], 7.0, 2)
    model = fit(sizes, 1000, noisy, components=3, steps=3)
    (again,) = redraw(model, 1000, noisy, seeded(1))
    noise = again.values - 1000 * centred(model.marginal((0, 1)))
    assert np.abs(noise.sum(axis=0)).max() < 1e-9
    assert np.abs(noise.sum(axis=1)).max() < 1e-9
    assert float(np.sum(noise**2)) / 7**2 == pytest.approx(again.degrees, abs=6 * np.sqrt(2 * again.degrees))


def test_an_interval_without_noise_is_the_usual_one() -> None:
    found = combine([2.0] * 5, [0.04] * 5)
    assert (found.low, found.high) == (pytest.approx(2 - 1.96 * 0.2, abs=1e-4), pytest.approx(2 + 1.96 * 0.2, abs=1e-4))
    assert (found.between, found.deviation) == (0, pytest.approx(0.2))


def test_an_interval_without_people_is_students() -> None:
    found = combine([0.0, 1.0, -1.0, 1.0, -1.0], [0.0] * 5)
    assert (found.freedom, found.high) == (4, pytest.approx(2.776, abs=1e-3))


def test_what_cannot_be_combined_is_refused() -> None:
    with raises(StudyError, "ST358", "3"):
        combine([1.0, 2.0], [1.0, 1.0])
    with raises(StudyError, "ST359"):
        combine([1.0] * 4, [1.0, 1.0, 1.0, -1.0])
    with raises(StudyError, "ST360"):
        combine([1.0] * 4, [1.0] * 4, level=95)
    with raises(StudyError, "ST357", "3"):
        refits(fit((2,), 10, [], components=1, steps=1), 10, [], 1, seeded(1))
