from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

from colonnade import Observer, Schema, category, flag, number
from colonnade.errors import CapacityError, PrivacyError, StudyError
from colonnade.kinds.polynomial.model import PolynomialSum, polynomial_sum
from colonnade.models import Roster
from colonnade.models.base import Estimator
from colonnade.privacy import epsilon, views
from colonnade.tables import read_table
from colonnade.tables.people import population as made_up
from tests.support.errors import raises

pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def people(aligned):
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


def test_the_budget_is_kept_and_every_observer_has_its_line(model):
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


def test_it_survives_being_saved(model, tmp_path):
    path = model.save(tmp_path / "sums.json")
    again = PolynomialSum.load(path)
    assert again.values_.tolist() == model.values_.tolist()
    assert again.deviations_.tolist() == model.deviations_.tolist()
    assert again.expressions_ == EXPRESSIONS
    assert again.privacy_.to_dict() == model.privacy_.to_dict()
    assert isinstance(Estimator.load(path), PolynomialSum)
    assert json.loads(path.read_text())["kind"] == "polynomial"


def test_coefficients_may_be_given_as_a_mapping(people, tmp_path):
    fitted = PolynomialSum(
        [{"bank.income * shop.visits": 0.5, "1": "1/3"}], epsilon={"analyst": 5.0}, rows_at_most=2000
    ).fit(people)
    x = columns(people)
    assert fitted.expressions_ == ["1/3 + 1/2 * bank.income * shop.visits"]
    want = (x["bank.income"] @ x["shop.visits"]) / 2 + 500
    assert fitted.values_[0] == pytest.approx(want, abs=5 * fitted.deviations_[0] + 0.1)
    assert PolynomialSum.load(fitted.save(tmp_path / "m.json")).expressions == fitted.expressions


def test_a_simulation_publishes_the_same(people, stream):
    model = PolynomialSum(EXPRESSIONS, epsilon=2.0, rows_at_most=10_000)
    x = columns(people)
    model.simulate(people.tables(), people.roster, stream)
    assert abs(model.values_[1] - x["bank.income"] @ x["shop.visits"]) < 5 * model.deviations_[1]
    assert abs(model.values_[0] - 1500) < 5 * model.deviations_[0]


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
def flags(aligned):
    rng = np.random.default_rng(0)
    ids = [f"p{i}" for i in range(300)]
    city, smokes = rng.choice(["a", "b", "c"], 300), rng.random(300) < 0.4
    shop = pd.DataFrame({"id": ids, "city": city, "spend": rng.uniform(-1, 1, 300)})
    clinic = pd.DataFrame({"id": ids, "smokes": smokes})
    schemas = {
        "shop": Schema({"city": category(["a", "b", "c"]), "spend": number(-1, 1)}),
        "clinic": Schema({"smokes": flag()}),
    }
    return aligned({"shop": shop, "clinic": clinic}, schemas, "id", mode="dh"), city, smokes


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


def test_sums_need_a_federation_and_expressions(people):
    with raises(StudyError, "ST157"):
        polynomial_sum(people, 5, epsilon=1.0)
    with raises(StudyError, "ST063", "dict"):
        polynomial_sum(people.tables(), "1", epsilon=1.0)


def test_parameters_that_make_no_sense(people):
    with raises(StudyError, "ST150", "gamma"):
        PolynomialSum("1", epsilon=1.0, gamma=1).plan(people.roster)
    with raises(StudyError, "ST525"):
        PolynomialSum("1", epsilon=1.0, rounding="up").plan(people.roster)
    with raises(PrivacyError, "PR065"):
        PolynomialSum("1", epsilon=-1.0).plan(people.roster)


def test_no_group_within_the_threshold_learns_more_than_the_budget_of_coalitions():
    """Two owners hold most of what is summed: the group that leaves both out must not be worse than those listed."""
    owners = [*(f"s{i}" for i in range(5)), "u0", "big1", "big2"]
    roster = Roster.of({owner: Schema({"x": number(0, 1)}) for owner in owners}, committee=owners[:5], threshold=2)
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
