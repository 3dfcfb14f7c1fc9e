"""Sums of polynomials as models, and the expressions in which they are asked for."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from colonnade import Observer, Schema, category, flag, number
from colonnade.errors import CapacityError, PrivacyError, StudyError
from colonnade.kinds.polynomial.expressions import added, degree, from_coefficients, multiplied, parse, written
from colonnade.kinds.polynomial.model import PolynomialSum, polynomial_sum
from colonnade.models import Roster
from colonnade.models.base import Estimator
from colonnade.privacy import epsilon, views
from colonnade.tables import read_table
from colonnade.tables.people import population as made_up
from tests.support.errors import raises
from tests.support.federations import aligned, federation, numbers


@pytest.fixture(scope="module")
def people():
    population = made_up(1500)
    return aligned(population.arrow, population.feature_schemas)


def columns(people):
    return {
        f"{name}.{column}": values
        for name, table in people.tables().items()
        for column, values in zip(table.schema.encoded_names, table.matrix().T, strict=True)
    }


EXPRESSIONS = ["1", "bank.income * shop.visits", "bank.age * shop.basket * clinic.bmi^2 - 1/2", "clinic.glucose"]


@pytest.fixture(scope="module")
def model(people):
    return polynomial_sum(people, EXPRESSIONS, epsilon=2.0, rows_at_most=10_000)


def test_the_sums_are_those_of_the_encoded_columns(model, people):
    x = columns(people)
    cubic = x["bank.age"] * x["shop.basket"] * x["clinic.bmi"] ** 2 - 0.5
    want = [1500, x["bank.income"] @ x["shop.visits"], cubic.sum(), x["clinic.glucose"].sum()]
    assert np.all(np.abs(model.values_ - want) < 5 * model.deviations_)
    assert model.deviations_[0] < 15
    assert model.expressions_ == EXPRESSIONS
    assert model.feature_names_in_[0] == "bank.age"
    assert model.privacy_.epsilon(Observer.party("bank")) <= 2.0
    assert model.privacy_.epsilon("analyst") <= 2.0
    assert np.isinf(model.privacy_.epsilon(Observer.coalition("bank", "shop")))
    assert "polynomial-sensitivity" in str(model.privacy_)


@pytest.mark.parametrize("mode", ["stochastic", "nearest", "conditional"])
def test_with_a_large_epsilon_it_is_nearly_exact(people, mode, stream):
    x = columns(people)
    want = (x["bank.income"] * x["shop.visits"] * x["clinic.bmi"]).sum()
    text = "bank.income * shop.visits * clinic.bmi"
    model = PolynomialSum(text, epsilon={"analyst": 20.0}, rounding=mode, rows_at_most=2000)
    found = model.simulate(people.tables(), people.roster, stream)
    assert found.values_[0] == pytest.approx(want, abs=5 * found.deviations_[0] + 0.1)
    assert found.deviations_[0] < 0.5


def test_it_survives_being_saved_and_coefficients_may_be_a_mapping(model, people, tmp_path, stream):
    path = model.save(tmp_path / "sums.json")
    again = Estimator.load(path)
    assert isinstance(again, PolynomialSum)
    assert again.values_.tolist() == model.values_.tolist()
    assert again.deviations_.tolist() == model.deviations_.tolist()
    assert again.expressions_ == EXPRESSIONS
    assert again.privacy_.to_dict() == model.privacy_.to_dict()
    assert json.loads(path.read_text())["kind"] == "polynomial"
    asked = [{"bank.income * shop.visits": 0.5, "1": "1/3"}]
    found = PolynomialSum(asked, epsilon={"analyst": 5.0}, rows_at_most=2000)
    found.simulate(people.tables(), people.roster, stream)
    x = columns(people)
    assert found.expressions_ == ["1/3 + 1/2 * bank.income * shop.visits"]
    want = (x["bank.income"] @ x["shop.visits"]) / 2 + 500
    assert found.values_[0] == pytest.approx(want, abs=5 * found.deviations_[0] + 0.1)
    assert PolynomialSum.load(found.save(path)).expressions == found.expressions


def test_the_scale_is_chosen_by_what_fits(people):
    roster = people.roster
    gammas = []
    for power in (1, 2, 3):
        text = f"bank.income^{power} * shop.visits^{power}"
        task = PolynomialSum(text, epsilon=1.0, rows_at_most=2**24).plan(roster)
        assert task.bound < 2**62
        gammas.append(task.gamma)
    assert gammas == [4096, 512, 64]
    with raises(CapacityError, "CA001"):
        PolynomialSum("1e6 * bank.income^4 * shop.visits^4", epsilon=1.0, rows_at_most=2**40).plan(roster)


@pytest.fixture(scope="module")
def flags():
    rng = np.random.default_rng(0)
    city, smokes = rng.choice(["a", "b", "c"], 300), rng.random(300) < 0.4
    held = {"shop": {"city": city, "spend": rng.uniform(-1, 1, 300)}, "clinic": {"smokes": smokes}}
    schemas = {"shop": numbers(["spend"], city=category(["a", "b", "c"])), "clinic": Schema({"smokes": flag()})}
    return federation(held, schemas), city, smokes


def test_a_joint_table_of_counts(flags):
    """Every person is in one cell, so all six cells together cost what one does."""
    people, city, smokes = flags
    cells = [f"shop.city={c} * {s}" for c in "abc" for s in ("clinic.smokes", "(1 - clinic.smokes)")]
    task = PolynomialSum(cells[::2], epsilon=1.0, rows_at_most=1000).plan(people.roster)
    assert task.sensitivity.l2_squared == task.program.scale**2
    assert task.sensitivity.replace_l2_squared == 2 * task.program.scale**2
    found = polynomial_sum(people, cells, epsilon={"analyst": 5.0}, rows_at_most=1000)
    want = [np.sum((city == c) & (smokes == s)) for c in "abc" for s in (True, False)]
    assert np.all(np.abs(found.values_ - want) < 5 * found.deviations_)


def test_a_count_alone_and_an_owner_without_columns(flags):
    people, _, _ = flags
    found = polynomial_sum(people, "1", epsilon=1.0)
    assert found.values_[0] == pytest.approx(300, abs=5 * found.deviations_[0])
    # Everyone at the table knows how many rows there are, so nothing is at stake for them.
    assert found.privacy_.epsilon(Observer.coordinator()) == 0
    only = polynomial_sum(people, "shop.spend^2", epsilon=1.0)
    assert only.feature_names_in_ == ["shop.spend"]
    assert only.privacy_.epsilon(Observer.party("shop")) == 0


@pytest.mark.parametrize(
    ("expressions", "what"),
    [
        (["1", "bank.incom"], ("ST514", "bank.income", "2", "1")),
        (["bank.income - bank.income"], ("ST160", "1")),
        ([], "ST158"),
        (5, ("ST157", "int")),
        (["1", 5], ("ST507", "2")),
        ([{"bank.income": float("nan")}], ("ST509", "bank.income")),
        (["bank.nope"], ("ST514", "bank.nope", "party.column")),
        ([{"bank.income": None}], ("ST509", "1")),
    ],
)
def test_expressions_that_make_no_sense(people, expressions, what):
    with raises(StudyError, what):
        PolynomialSum(expressions, epsilon=1.0).plan(people.roster)


@pytest.mark.parametrize(
    ("asked", "said"), [({"gamma": 1}, ("ST150", "gamma")), ({"rounding": "up"}, "ST525"), ({"epsilon": -1.0}, "PR065")]
)
def test_parameters_that_make_no_sense(people, asked, said):
    with raises((StudyError, PrivacyError), said):
        PolynomialSum("1", **{"epsilon": 1.0} | asked).plan(people.roster)
    with raises(StudyError, "ST157"):
        polynomial_sum(people, 5, epsilon=1.0)
    with raises(StudyError, "ST063", "dict"):
        polynomial_sum(people.tables(), "1", epsilon=1.0)


def test_no_group_within_the_threshold_learns_more_than_the_budget_of_coalitions():
    """Two owners hold most of what is summed: the group that leaves both out must not be worse than those listed."""
    owners = [*(f"s{i}" for i in range(5)), "u0", "big1", "big2"]
    roster = Roster.of(dict.fromkeys(owners, numbers("x", 0, 1)), committee=owners[:5], threshold=2)
    asked = ["big1.x", "1.25 * big2.x", *(f"1/100 * {owner}.x" for owner in owners[:6])]
    task = PolynomialSum(asked, epsilon={"coalition": 1.0}, gamma=256, rows_at_most=10_000).plan(roster)
    assert task.event.others
    everybody = [*owners, "coordinator"]
    groups = [Observer.coalition(*names) for size in range(1, 6) for names in combinations(everybody, size)]
    within = [group for group in groups if roster.trust.broken(group) is None and group.rank == 3]
    learned = {views(task.events, group, roster.trust) for group in within}
    assert max(epsilon(seen, 1e-5).epsilon for seen in learned) <= 1.0


def test_missing_numbers_are_counted_by_their_marks(stream):
    schemas = {"bank": Schema({"age": number(0, 100, missing="none")}), "shop": Schema({"vip": flag()})}
    cells = {"bank": {"age": [20.0, None, 70.0, None, None, 30.0] * 50}, "shop": {"vip": [1, 1, 0, 0, 1, 0] * 50}}
    tables = {name: read_table(pa.table(cells[name]), schemas[name], id=None) for name in schemas}
    asked = ["bank.age=missing", "bank.age=missing * shop.vip", "bank.age", "bank.age * bank.age=missing"]
    model = PolynomialSum(asked, epsilon=1000.0, rows_at_most=1000)
    bank, _ = model.plan(Roster.of(schemas)).holdings
    assert (bank.columns, bank.sources, bank.unsigned) == (("age", "age=missing"), 1, (False, True))
    model.simulate(tables, Roster.of(schemas), stream)
    assert np.all(model.deviations_ < 1)
    assert np.all(np.abs(model.values_ - [150, 100, -30, 0]) < 6 * model.deviations_)


# --- expressions


NAMES = ("bank.income", "shop.spend", "clinic.bmi", "shop.city=Utrecht", "shop.city=The Hague", "my-bank.it's")
INCOME, SPEND, BMI = (("bank.income", 1),), (("shop.spend", 1),), (("clinic.bmi", 1),)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("1", {(): 1}),
        ("bank.income", {INCOME: 1}),
        ("-bank.income^2", {(("bank.income", 2),): -1}),
        ("(-bank.income)**2", {(("bank.income", 2),): 1}),
        ("1/3 * shop.spend - .5", {SPEND: Fraction(1, 3), (): Fraction(-1, 2)}),
        ("shop.spend / 4 + 1e-3", {SPEND: Fraction(1, 4), (): Fraction(1, 1000)}),
        ("0.1 * clinic.bmi", {BMI: Fraction(1, 10)}),
        ("2 - -3", {(): 5}),
        ("2 * 3 ^ 2", {(): 18}),
        ("8 / 2 / 2", {(): 2}),
        ("1 - 2 - 3", {(): -4}),
        ("shop.city=Utrecht * 'shop.city=The Hague'", {(("shop.city=The Hague", 1), ("shop.city=Utrecht", 1)): 1}),
        ('"my-bank.it\'s" ^ 0', {(): 1}),
        ("bank.income - bank.income", {}),
        (
            "bank.income * shop.spend - 3 * clinic.bmi^2 + 0.5",
            {(("bank.income", 1), ("shop.spend", 1)): 1, (("clinic.bmi", 2),): -3, (): Fraction(1, 2)},
        ),
        (
            "(bank.income + shop.spend)^2",
            {(("bank.income", 2),): 1, (("bank.income", 1), ("shop.spend", 1)): 2, (("shop.spend", 2),): 1},
        ),
    ],
)
def test_what_is_written_is_what_is_meant(text, terms):
    assert parse(text, NAMES) == terms


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("bank.incme * 2", ("ST514", "bank.incme", "bank.income", "1")),
        ("3 * other", ("ST514", "other", "party.column", "5")),
        ("nope", ("ST514", "nope", "party.column")),
        ("bank.nope", ("ST514", "bank.nope", "party.column")),
        ("Bnak.Income", ("ST514", "bank.income")),
        ("income", ("ST514", "bank.income")),
        ("shop.bmi", ("ST514", "clinic.bmi")),
        ("shop.city=Utrect", ("ST514", "shop.city=Utrecht")),
        ("bank.income * * 3", ("ST515", "15", "bank.income")),
        ("(1 + 2", ("ST517", "7")),
        ("1 + 2)", ("ST510", "6")),
        ("bank.income 3", ("ST510", "13")),
        ("2^3^2", "ST513"),
        ("bank.income^-1", "ST512"),
        ("bank.income^0.5", "ST512"),
        ("1 / bank.income", "ST519"),
        ("1 / (2 - 2)", "ST519"),
        ("bank.income^9", ("ST520", "8")),
        ("bank.income^5 * shop.spend^4", ("ST520", "8")),
        ("bank.income $ 2", ("ST511", "13")),
        ("'bank.income", ("ST511", "1")),
        ("__import__('os')", ("ST514", "__import__")),
        ("", ("ST515", "1")),
        ("   ", "ST515"),
        ("1e99", "ST518"),
        ("1" * 60, "ST518"),
        ("((9^8)^8)^8", "ST523"),
        ("(" * 60 + "1" + ")" * 60, "ST516"),
        ("-" * 10 + "(" * 3, "ST515"),
    ],
)
def test_mistakes_are_shown_where_they_are(text, what):
    with raises(StudyError, what):
        parse(text, NAMES)


def test_what_can_be_written_is_bounded():
    many = [f"a.c{i}" for i in range(200)]
    cube = "(" + " + ".join(many) + ")^3"
    for text, said in ((cube, ("ST522", "4000")), ("1" + " + 1" * 50_000, "ST508"), (3, "ST507")):
        with raises(StudyError, said):
            parse(text, many)


def test_coefficients_may_be_given_one_by_one():
    terms = from_coefficients(
        {"bank.income^2": 1, "shop.spend * bank.income": "-1/3", "1": 0.1, "shop.spend": 2.5}, NAMES
    )
    assert terms == parse("bank.income^2 - shop.spend * bank.income / 3 + 0.1 + 2.5 * shop.spend", NAMES)
    for wrong in (True, None, [1], float("nan"), float("-inf")):
        with raises(StudyError, "ST509", "bank.income"):
            from_coefficients({"bank.income": wrong}, NAMES)


names = st.sampled_from(NAMES)
coefficients = st.fractions(min_value=-50, max_value=50, max_denominator=40).filter(bool)
monomials = st.dictionaries(names, st.integers(1, 2), max_size=4).map(lambda powers: tuple(sorted(powers.items())))
polynomials = st.dictionaries(monomials, coefficients, max_size=6)


@settings(max_examples=40, deadline=None)
@given(polynomials)
def test_what_is_written_is_read_back(terms):
    assert parse(written(terms), NAMES) == terms


@settings(max_examples=40, deadline=None)
@given(polynomials, polynomials, st.lists(st.integers(-5, 5), min_size=len(NAMES), max_size=len(NAMES)))
def test_sums_and_products_are_those_of_the_values(left, right, point):
    where = dict(zip(NAMES, point, strict=True))

    def at(terms):
        total = Fraction(0)
        for monomial, coefficient in terms.items():
            for name, power in monomial:
                coefficient *= where[name] ** power
            total += coefficient
        return total

    assert at(added(left, right)) == at(left) + at(right)
    assert at(added(left, right, -1)) == at(left) - at(right)
    assert at(multiplied(left, right)) == at(left) * at(right)
    if degree(left) + degree(right) <= 8:
        assert parse(f"({written(left)}) * ({written(right)})", NAMES) == multiplied(left, right)
