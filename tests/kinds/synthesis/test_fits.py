"""Models that are fitted to noisy marginals: their fit, tables and intervals, and what nobody can be."""

from __future__ import annotations

from itertools import combinations, product
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from colonnade import Schema, Synthesizer, flag, number
from colonnade.errors import StudyError
from colonnade.kinds.synthesis.population import (
    SampledPeople,
    count_chances,
    measure_agreement,
    mend_people,
    strongest_pairs,
)
from colonnade.kinds.synthesis.release_fit import (
    ForbiddenMass,
    ProductMixture,
    ResidualTargets,
    combine_estimates,
    contrast_basis,
    fit_products,
    project_to_simplex,
    redraw_noise,
    refit_redrawn,
    wanted_misfit,
)
from colonnade.kinds.tables.release import MarginalsRelease, Residual, centre, misfit, noisy_marginal
from colonnade.randomness import Stream
from colonnade.tables.coding import ForbiddenCodes, joint_constraints
from colonnade.tables.schema import find_violations
from colonnade.testing import seeded
from tests.kinds.synthesis.people import ROSTER, model as synthesized
from tests.kinds.tables.releases import histogram, people, release, sets_of
from tests.support.errors import refused

SIZES, ROWS, LABEL = (4, 3, 5, 2, 6), 20_000, 3


@pytest.fixture(scope="module")
def fitted() -> tuple[list[Residual], ProductMixture]:
    noisy = release(people(SIZES, ROWS, 1), SIZES, sets_of(5, LABEL), 60.0, 2)
    return noisy, fit_products(SIZES, ROWS, noisy, components=60)


# --- the fit of products


def test_the_misfit_ends_where_it_should_and_a_warm_start_needs_few_steps(fitted) -> None:
    noisy, model = fitted
    squares, degrees = misfit(model.marginal, ROWS, noisy)
    assert squares == pytest.approx(wanted_misfit(degrees), rel=0.03)
    warm, _ = misfit(fit_products(SIZES, ROWS, noisy, start=model, steps=100).marginal, ROWS, noisy)
    assert warm == pytest.approx(wanted_misfit(degrees), rel=0.1)
    first, second = (fit_products(SIZES, ROWS, noisy, components=8, steps=20) for _ in range(2))
    assert all((a == b).all() for a, b in zip(first.tables, second.tables, strict=True))


def test_the_fit_is_closer_to_people_than_the_noise_is(fitted) -> None:
    noisy, model = fitted
    codes, fits, raw = people(SIZES, ROWS, 1), 0.0, 0.0
    for columns in sets_of(5, LABEL):
        exact = histogram(codes, columns, SIZES)
        fits += np.abs(ROWS * model.marginal(columns) - exact).sum()
        raw += np.abs(noisy_marginal(columns, SIZES, ROWS, noisy)[0] - exact).sum()
    assert fits < 0.9 * raw
    joint = histogram(codes, (2, 4), SIZES) / ROWS
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    assert np.abs(model.marginal((2, 4)) - joint).sum() < 0.4 * np.abs(independent - joint).sum()


def test_noise_alone_constant_columns_and_empty_releases_are_fitted() -> None:
    rng = np.random.default_rng(5)
    codes = np.stack([rng.integers(0, size, 300) for size in SIZES], axis=1)
    model = fit_products(SIZES, 300, release(codes, SIZES, sets_of(5, None), 100.0, 6), components=40, steps=300)
    joint = model.marginal((0, 2))
    assert np.abs(joint - np.outer(joint.sum(axis=1), joint.sum(axis=0))).sum() < 0.2  # nearly independent
    np.testing.assert_allclose(
        fit_products((1, 3), 10.0, [], components=2, steps=5).marginal((0, 1)), np.full((1, 3), 1 / 3), atol=0.15
    )
    assert fit_products((2,), -5.0, [Residual((0,), np.array([3.0, -3.0]), 10.0)], components=2, steps=50).sizes == (2,)


def test_the_wanted_misfit_is_that_of_the_truth_and_chances_are_the_nearest() -> None:
    assert wanted_misfit(50_000) == pytest.approx(50_000, rel=0.01)
    assert (wanted_misfit(8), wanted_misfit(0)) == (4, 1)
    for given, due in (([0.5, 0.7, -0.2], [0.4, 0.6, 0.0]), ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5])):
        np.testing.assert_allclose(project_to_simplex(np.array(given)), due)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_contrasts_are_orthonormal_and_sum_to_zero(size: int) -> None:
    found = contrast_basis(size)
    np.testing.assert_allclose(found @ found.T, np.eye(size - 1), atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-12)


def mixture(
    components: int = 7, sizes: tuple[int, ...] = (3, 2, 4), power: int = 4, even: bool = True
) -> ProductMixture:
    rng = np.random.default_rng(1)
    weights = np.ones(components) if even else rng.random(components)
    tables = [rng.random((components, size)) ** power + 1e-3 for size in sizes]
    return ProductMixture(weights / weights.sum(), tuple(table / table.sum(axis=1, keepdims=True) for table in tables))


SETS = [
    ((3, 2, 4, 2), sets_of(4, 1)),
    ((3, 5, 4, 1), sets_of(4, 0)),
    ((3, 2, 4, 2), sets_of(4, None)),
    ((3, 2, 4, 2), [(0, 1, 2), (1, 2, 3), (0, 1, 2, 3), (0, 3)]),
    ((3, 4, 2, 3, 2), [(0, 1, 2, 3), (1, 2, 3, 4), (0, 1, 2, 3, 4), (2,)]),
]


@pytest.mark.parametrize(("sizes", "sets"), SETS)
def test_the_misfit_is_that_of_exact_marginals_and_slopes_are_its_derivatives(
    sizes: tuple[int, ...], sets: list[tuple[int, ...]]
) -> None:
    noisy, model = release(people(sizes, 2000, 1), sizes, sets, 20.0, 2), mixture(5, sizes, 1)
    targets, chances = ResidualTargets(sizes, 2000, noisy), np.concatenate(model.tables, axis=1)
    squares, slopes = targets.misfit(chances.astype(np.float32))
    assert squares == pytest.approx(misfit(model.marginal, 2000, noisy)[0], rel=1e-4)
    assert targets.degrees == sum(each.degrees for each in noisy)
    rng = np.random.default_rng(6)
    for _ in range(4):
        step = np.concatenate([d - d.mean(axis=1, keepdims=True) for d in (rng.random((5, s)) for s in sizes)], axis=1)
        sides = []
        for sign in (1, -1):
            moved = np.split(chances + sign * 1e-4 * step, np.cumsum(sizes)[:-1], axis=1)
            sides.append(misfit(ProductMixture(model.weights, tuple(moved)).marginal, 2000, noisy)[0])
        slope = (sides[0] - sides[1]) / 2e-4
        assert 2 * float(np.sum(slopes * step)) == pytest.approx(slope, rel=2e-3, abs=1e-3 * squares)


# --- a mixture of products: its joint distribution, its tables, its numbers


def test_marginals_likelihoods_and_tables_are_those_of_the_joint_distribution() -> None:
    found, sizes = mixture(50), (3, 2, 4)
    cells = np.array(list(product(*(range(size) for size in sizes))))
    joint = np.exp(found.log_likelihood(cells)).reshape(sizes)
    assert joint.sum() == pytest.approx(1)
    for columns in ((), (1,), (2, 0), (0, 1, 2), tuple(range(len(sizes)))):
        others = tuple(at for at in range(len(sizes)) if at not in columns)
        due = joint.sum(axis=others).transpose(np.argsort(np.argsort(columns))) if columns else joint.sum()
        np.testing.assert_allclose(found.marginal(columns), due, rtol=1e-9)
    codes = found.sample(10_000, seeded(4))
    assert codes.shape == (10_000, len(sizes))
    assert (codes == found.sample(10_000, seeded(4))).all()
    assert (codes != found.sample(10_000, seeded(5))).any()
    for column, size in enumerate(sizes):
        counts = np.bincount(codes[:, column], minlength=size)
        assert (np.abs(counts - 10_000 * found.marginal((column,))) < 3).all()
    for pair in combinations(range(len(sizes)), 2):
        expected = 10_000 * found.marginal(pair)
        assert (np.abs(histogram(codes, pair, sizes) - expected) < 6 * np.sqrt(expected) + 3).all()
    again = ProductMixture.from_arrays(found.arrays())
    assert all((a == b).all() for a, b in zip(again.tables, found.tables, strict=True))
    assert again.log_likelihood(cells).tolist() == found.log_likelihood(cells).tolist()
    arrays = {name: each for name, each in found.arrays().items() if name != "weights"}
    refused(StudyError, "ST385", ProductMixture.from_arrays, arrays)


def test_single_columns_of_a_large_mixtures_table_are_the_models_but_for_few_people() -> None:
    large = mixture(components=150, sizes=(3, 2, 20))
    codes = large.sample(20_011, seeded(2))
    for column, size in enumerate((3, 2, 20)):
        counts = np.bincount(codes[:, column], minlength=size)
        assert (np.abs(counts - 20_011 * large.marginal((column,))) < 2).all()
    certain = ProductMixture(np.array([1.0]), (np.array([[0.0, 1.0]]),))
    assert certain.log_likelihood(np.array([[0], [1]])).tolist() == [-np.inf, 0.0]


def test_what_does_not_fit_is_refused() -> None:
    one = np.array([1.0])
    for said, call, *given in (
        ("ST383", ProductMixture, np.array([0.5]), (np.array([[1.0]]),)),
        ("ST382", ProductMixture, one, (np.ones((2, 1)),)),
        ("ST358", combine_estimates, [1.0, 2.0], [1.0, 1.0]),
        ("ST359", combine_estimates, [1.0] * 4, [1.0, 1.0, 1.0, -1.0]),
        ("ST360", combine_estimates, [1.0] * 4, [1.0] * 4, 95),
    ):
        refused(StudyError, said, call, *given)
    uneven = ProductMixture(np.array([0.1, 0.9]), (np.full((2, 2), 0.5),))
    refused(StudyError, "ST346", fit_products, (2,), 10.0, [], start=uneven)


# --- intervals


@pytest.mark.slow
def test_intervals_cover_their_level_where_those_of_one_table_do_not() -> None:
    """Of how many have code 1 in a column: in 120 releases about people who are drawn from one population."""
    sizes, rows, deviation, rng = (4, 2, 5, 3), 5000, 40.0, np.random.default_rng(3)
    population = people(sizes, 200_000, 1)
    combined, alone = [], []
    for repeat in range(120):
        codes = population[rng.integers(0, len(population), rows)]
        noisy = release(codes, sizes, sets_of(len(sizes), 1), deviation, 100 + repeat)
        count, stream = rows + deviation * rng.standard_normal(), seeded(repeat)
        first = fit_products(sizes, count, noisy, components=40, steps=200)
        fits = refit_redrawn(first, count, noisy, 5, stream, count_deviation=deviation, steps=60)
        shares = np.array([(each.sample(rows, stream) == 1).mean(axis=0) for each in (first, *fits)])
        variances = shares * (1 - shares) / rows
        for place, true in enumerate((population == 1).mean(axis=0)):
            found = combine_estimates(shares[:, place], variances[:, place])
            combined.append(found.low <= true <= found.high)
            alone.append(abs(shares[0, place] - true) <= 1.96 * variances[0, place] ** 0.5)
    assert 0.9 < np.mean(combined) < 0.99
    assert np.mean(alone) < 0.87


def test_redrawn_noise_has_the_law_of_the_release() -> None:
    sizes = (40, 30)
    noisy = release(people(sizes, 1000, 1), sizes, [(0, 1)], 7.0, 2)
    model = fit_products(sizes, 1000, noisy, components=3, steps=3)
    (again,) = redraw_noise(model, 1000, noisy, seeded(1))
    noise = again.values - 1000 * centre(model.marginal((0, 1)))
    assert np.abs(noise.sum(axis=0)).max() < 1e-9
    assert np.abs(noise.sum(axis=1)).max() < 1e-9
    assert float(np.sum(noise**2)) / 7**2 == pytest.approx(again.degrees, abs=6 * np.sqrt(2 * again.degrees))


def test_intervals_without_noise_or_without_people_are_the_usual_ones() -> None:
    usual = combine_estimates([2.0] * 5, [0.04] * 5)
    assert (usual.low, usual.high) == pytest.approx((2 - 1.96 * 0.2, 2 + 1.96 * 0.2), abs=1e-4)
    assert (usual.between, usual.deviation) == (0, pytest.approx(0.2))
    students = combine_estimates([0.0, 1.0, -1.0, 1.0, -1.0], [0.0] * 5)
    assert (students.freedom, students.high) == (4, pytest.approx(2.776, abs=1e-3))


# --- a table beside the noisy release: chi-squared is right where the table is the truth, and grows where it is not

PEOPLE, COLUMNS = 5000, (3, 2, 5, 4)


def released(truth: np.ndarray, deviation: float, seed: int) -> MarginalsRelease:
    sets = [each for order in (1, 2, 3) for each in combinations(range(4), order)]
    count = Residual((), np.array(float(PEOPLE)), deviation)
    return MarginalsRelease((count, *release(truth, COLUMNS, sets, deviation, seed)))


def codes_of() -> np.ndarray:
    draw = np.random.default_rng(1)
    first = draw.integers(0, 3, PEOPLE)
    second, third = draw.random(PEOPLE) < 0.2 + first / 4, (first + draw.integers(0, 3, PEOPLE)) % 5
    return np.column_stack([first, second, third, draw.integers(0, 4, PEOPLE)]).astype(np.int64)


def test_the_true_table_agrees_as_well_as_noise_allows_whatever_its_size() -> None:
    table = codes_of()
    by_hand = np.zeros((3, 2))
    for row in table[:50]:
        by_hand[row[0], row[1]] += 1 / 50
    assert np.allclose(count_chances(table[:50], COLUMNS)((0, 1)), by_hand)
    for same in (table, np.repeat(table, 3, axis=0)):
        found = measure_agreement(released(table, 20.0, 2), count_chances(same, COLUMNS), COLUMNS)
        assert [(each.order, each.sets, each.degrees) for each in found] == [(1, 4, 10), (2, 6, 35), (3, 4, 50)]
        assert all(abs(each.chi_squared - each.degrees) < 5 * (2 * each.degrees) ** 0.5 for each in found)


def test_another_table_is_found_out() -> None:
    truth, wrong = codes_of(), codes_of()
    wrong[:, 1] = np.random.default_rng(3).permutation(wrong[:, 1])
    kept = released(truth, 20.0, 4)
    single, pairs, _ = measure_agreement(kept, count_chances(wrong, COLUMNS), COLUMNS)
    assert abs(single.chi_squared - single.degrees) < 5 * (2 * single.degrees) ** 0.5  # single columns did not change
    assert pairs.chi_squared - pairs.degrees > 20 * (2 * pairs.degrees) ** 0.5
    apart = [pair for pair, _ in strongest_pairs(kept.sets(2), count_chances(wrong, COLUMNS))]
    assert strongest_pairs(kept.sets(2), count_chances(truth, COLUMNS))[0][0] in {(0, 1), (0, 2)}
    assert apart[0] == (0, 2)


def test_rules_leave_single_columns_as_they_are_and_the_card_says_so():
    fitted = synthesized("products")
    made_up = fitted.population_
    drawn = made_up.sample_table(fitted.usual_size, 0)
    assert drawn.dropped == 0
    assert not find_violations(made_up.rules, drawn.table).any()
    codes = made_up.layout.codes_of(drawn.table)
    for column, size in enumerate(made_up.layout.sizes):
        counts = np.bincount(codes[:, column], minlength=size)
        assert (np.abs(counts - len(codes) * made_up.chances((column,))) < 2).all()
    page, found = fitted.published_files()["card.md"].decode(), made_up.agreement_of(drawn.table)  # chi-squared
    assert sorted(found) == [1, 2, 3]
    assert all(f"| {value:.2f} |" in page for value in found.values())
    assert f"{drawn.redrawn:,} people were drawn again for that, or exchanged a value" in page


def test_the_price_of_a_box_has_these_derivatives():
    rng = np.random.default_rng(2)
    sizes = (3, 4, 2)
    raw = [rng.random((5, size)) for size in sizes]
    chances = np.hstack([each / each.sum(axis=1, keepdims=True) for each in raw])
    marked = (np.array([True, False, True]), np.array([False, True]))
    zeros = ForbiddenMass(sizes, 100.0, [ForbiddenCodes((0, 2), marked)])

    def price(at: np.ndarray) -> float:
        return 3 * 100.0 / 5 * float((at[:, [0, 2]].sum(axis=1) * at[:, 8]).sum())

    slopes = np.zeros_like(chances, dtype=np.float32)
    zeros.add(chances.astype(np.float32), slopes)
    for place in np.ndindex(*chances.shape):
        moved = chances.copy()
        moved[place] += 1e-3
        assert slopes[place] == pytest.approx((price(moved) - price(chances)) / 1e-3, rel=1e-4, abs=1e-3)


def test_a_fit_that_is_told_of_impossible_codes_has_almost_nobody_there():
    sizes = (4, 3, 5)
    codes = people(sizes, 6_000, 3)
    box = ForbiddenCodes((0, 2), (np.array([True, True, False, False]), np.array([False, False, False, True, True])))
    codes = codes[~((codes[:, 0] < 2) & (codes[:, 2] > 2))]
    known = release(codes, sizes, sets_of(3, 2), 20.0, 4)

    def there(model) -> float:
        return len(codes) * float(model.marginal((0, 2))[np.ix_(*box.marked)].sum())

    told = fit_products(sizes, len(codes), known, components=20, impossible=[box])
    untold = fit_products(sizes, len(codes), known, components=20)
    assert there(told) < 2 < there(untold)


def test_mending_moves_cells_between_people_and_changes_no_single_column():
    schemas = {"a": Schema({"age": number(0, 90, whole=True)}), "b": Schema({"rich": flag()})}
    rules = joint_constraints(schemas, ["a.age < 30 and b.rich = true"])
    rng = np.random.default_rng(5)
    table = pa.table({"age": rng.integers(0, 91, 600), "rich": rng.random(600) < 0.3})
    assert find_violations(rules, table).sum() > 20
    after = mend_people(SampledPeople(table), SimpleNamespace(rules=rules), Stream(bytes(32))).table
    assert not find_violations(rules, after).any()
    for name in table.column_names:
        assert sorted(after[name].to_pylist()) == sorted(table[name].to_pylist())


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (["bank.age >= 0"], "leave nobody"),
        (["bank.rich = true", "bank.rich = false"], "leave nobody"),
        (["bank.age >= 0 and clinic.ill = true", "clinic.ill = false"], "leave nobody"),
        (["bank.age < 5 and bank.age > 10"], "can be met by nobody"),
        (["bank.age > 5 and bank.age < 6"], "can be met by nobody"),
        (["bank.age = 5 and bank.age != 5"], "can be met by nobody"),
        (["bank.same > 0.5 and bank.same <= 0.5"], "can be met by nobody"),
        (["bank.rich = true and bank.rich = false"], "can be met by nobody"),
        (["shop.spent = missing and shop.spent > 3"], "can be met by nobody"),
        (["bank.age > 5 and bank.age < 7"], None),
        (["bank.same > 0.5 and bank.same < 0.6"], None),
        (["shop.spent >= 0"], None),
        (["shop.spent != missing and shop.spent < 3"], None),
        (["bank.age = 5 and bank.age >= 5"], None),
        (["bank.rich != true and clinic.ill = false"], None),
    ],
)
def test_rules_that_leave_nobody_or_say_nothing_are_refused_and_others_planned(rules, said):
    given = Synthesizer(epsilon=1.0, impossible=rules)
    if said is None:
        assert given.plan(ROSTER).entries > 1
    else:
        refused(StudyError, "ST*", said, given.plan, ROSTER)
