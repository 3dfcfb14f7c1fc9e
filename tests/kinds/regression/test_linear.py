from __future__ import annotations

import numpy as np
import pytest

from colonnade import Federation, Observer, Party, Schema, category, flag, number
from colonnade.errors import DataError, PrivacyError, StudyError
from colonnade.kinds import LinearRegression
from colonnade.models import Roster
from colonnade.models.design import Design
from colonnade.tables import read_table
from colonnade.tables.people import population
from tests.support.errors import raises

pd = pytest.importorskip("pandas")

TRUE = {"a": 3.0, "b": -2.0, "c": 5.0, "d": 0.0}


def made_up(rows=3000, seed=0, label_low=0.0, label_high=40.0, **label):
    """Two parties; y = 20 + 3 a - 2 b + 5 c + noise, in the units of the label."""
    rng = np.random.default_rng(seed)
    columns = {name: rng.uniform(-1, 1, rows) for name in TRUE}
    y = 20 + sum(weight * columns[name] for name, weight in TRUE.items()) + rng.normal(0, 0.5, rows)
    ids = [f"p{k}" for k in range(rows)]
    left = pd.DataFrame({"id": ids, "a": columns["a"], "y": y, "b": columns["b"]})
    right = pd.DataFrame({"id": ids, "c": columns["c"], "d": columns["d"]}).sample(frac=1, random_state=seed)
    schemas = {
        "left": Schema({"a": number(-1, 1), "y": number(label_low, label_high, **label), "b": number(-1, 1)}),
        "right": Schema({"c": number(-1, 1), "d": number(-1, 1)}),
    }
    return {"left": left, "right": right}, schemas


@pytest.fixture(scope="module")
def people(aligned):
    return aligned(*made_up(), "id")


@pytest.fixture(scope="module")
def model(people):
    return LinearRegression(epsilon=20.0, label="left.y", rows_at_most=10_000).fit(people)


def encoded(people, label="y"):
    """The encoded features of everybody, in the order of the alignment."""
    tables = people.tables().values()
    return np.hstack([t.without([label]).matrix() if label in t.schema.names else t.matrix() for t in tables])


def test_the_fit_over_threads_finds_the_weights(model):
    assert model.feature_names_in_ == ["left.a", "left.b", "right.c", "right.d"]
    np.testing.assert_allclose(model.coef_, [list(TRUE.values())], atol=0.25)
    assert model.intercept_[0] == pytest.approx(20, abs=0.2)
    assert model.count_ == pytest.approx(3000, rel=0.02)
    assert model.method_ == "one-shot"
    assert model.coefficients()["right"]["c"] == model.coef_[0, 2]
    assert set(model.coefficients()["left"]) == {"a", "b"}


def test_with_a_huge_epsilon_it_is_least_squares(people):
    from sklearn import linear_model

    fitted = LinearRegression(epsilon=50.0, label="left.y", gamma=2**14, rows_at_most=10_000).fit(people)
    x = encoded(people)
    y = people.tables()["left"].column("y")[:, 0] * 20 + 20
    plain = linear_model.LinearRegression().fit(x, y)
    np.testing.assert_allclose(fitted.coef_[0], plain.coef_, atol=0.1)
    assert fitted.intercept_[0] == pytest.approx(plain.intercept_, abs=0.1)
    assert fitted.score(people) == pytest.approx(plain.score(x, y), abs=1e-3)
    np.testing.assert_allclose(fitted.predict(people), plain.predict(x), atol=0.2)


def test_a_given_ridge_is_that_of_scikit_learn(people):
    from sklearn import linear_model

    fitted = LinearRegression(epsilon=50.0, label="left.y", ridge=500.0, gamma=2**14, rows_at_most=10_000).fit(people)
    x = encoded(people)
    y = people.tables()["left"].column("y")[:, 0] * 20 + 20
    plain = linear_model.Ridge(alpha=500.0).fit(x, y)
    np.testing.assert_allclose(fitted.coef_[0], plain.coef_, atol=0.1)
    assert fitted.ridge_ == 500.0


def test_weights_come_closer_as_epsilon_grows(people, stream):
    tables = people.tables()
    errors = []
    for epsilon in (0.02, 0.3, 20.0):
        model = LinearRegression(epsilon=epsilon, label="left.y", rows_at_most=10_000)
        task = model.plan(people.roster)
        draws = [model.simulate(tables, people.roster, stream, task=task).coef_[0] for _ in range(6)]
        errors.append(np.mean([np.linalg.norm(found - list(TRUE.values())) for found in draws]))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.15 < 3 < errors[0]


def test_simulation_and_protocol_agree(people, stream):
    """With hardly any noise both are the same least squares."""
    model = LinearRegression(epsilon=50.0, label="left.y", gamma=2**14, rows_at_most=10_000)
    fitted = model.fit(people).coef_.copy()
    drawn = model.simulate(people.tables(), people.roster, stream).coef_
    np.testing.assert_allclose(fitted, drawn, atol=0.15)


def test_the_functional_mechanism_is_pure(people):
    fitted = LinearRegression(epsilon=8.0, label="left.y", method="functional", rows_at_most=10_000).fit(people)
    assert fitted.method_ == "functional"
    np.testing.assert_allclose(fitted.coef_, [list(TRUE.values())], atol=1.0)
    for observer in (Observer.analyst(), Observer.coordinator(), Observer.party("left")):
        assert fitted.privacy_.epsilon(observer, 1e-30) <= 8.0
        assert fitted.privacy_.profile(observer, [8.0])[0] <= 1e-30
    assert max(fitted.protection_.values()) <= 8.0


@pytest.mark.parametrize("method", ["one-shot", "functional"])
def test_every_party_may_name_its_own_epsilon(people, method):
    named = {"left": 2.0, "right": 8.0}
    fitted = LinearRegression(epsilon_by_party=named, label="left.y", method=method, rows_at_most=10_000).fit(people)
    assert fitted.protection_["left"] <= 2.0
    assert fitted.protection_["right"] <= 8.0
    assert fitted.protection_["left"] > 1.0  # and not far below


def test_budgets_are_met_and_not_undercut(people):
    task = LinearRegression(epsilon={"analyst": 1.0}, label="left.y").plan(people.roster)
    both = LinearRegression(epsilon={"analyst": 1.0, "party": 1.1}, label="left.y").plan(people.roster)
    assert both.noise > task.noise
    normal = LinearRegression(epsilon={"analyst": 1.0}, label="left.y", noise="discrete-gaussian").plan(people.roster)
    assert normal.noise_std == pytest.approx(task.noise_std, rel=0.01)


def test_predictions_need_no_label_column(model, people):
    frames, schemas = made_up(200, seed=9)
    new = {"left": frames["left"].drop(columns="y"), "right": frames["right"].set_index("id").loc[frames["left"].id]}
    new["right"] = new["right"].reset_index()
    without = {"left": schemas["left"].without(["y"]), "right": schemas["right"]}
    by_table = model.predict(new, id="id")
    np.testing.assert_array_equal(model.predict(new, same_order=True), by_table)
    assert np.corrcoef(by_table, frames["left"]["y"])[0, 1] > 0.95
    by_parts = sum(model.partial(name, new[name]) for name in new)[:, 0] + model.intercept_[0]
    np.testing.assert_allclose(by_parts, by_table)
    matched = Federation([Party(name, new[name], schema=without[name], id="id") for name in without])
    order = np.argsort(frames["left"]["id"].to_numpy())
    np.testing.assert_allclose(model.predict(matched), by_table[order])
    read = {name: read_table(new[name], without[name], id="id") for name in without}
    np.testing.assert_allclose(model.predict(read), by_table)
    np.testing.assert_allclose(model.answers(model.scores(read)), by_table)


def test_a_logarithmic_label_is_predicted_in_its_unit(aligned):
    frames, schemas = made_up(4000, transform="log1p", scale="unit")
    frames["left"]["y"] = np.expm1(frames["left"]["y"] / 10)
    people = aligned(frames, schemas, "id")
    fitted = LinearRegression(epsilon=20.0, label="left.y", rows_at_most=10_000).fit(people)
    np.testing.assert_allclose(fitted.coef_, [[0.3, -0.2, 0.5, 0.0]], atol=0.05)
    true = frames["left"].set_index("id")["y"].loc[people.tables()["right"].own_ids].to_numpy()
    assert np.corrcoef(fitted.predict(people), true)[0, 1] > 0.95
    assert fitted.score(people) > 0.9


def test_without_an_intercept(people):
    fitted = LinearRegression(
        epsilon=50.0, label="left.y", intercept=False, ridge=0.0, gamma=2**14, rows_at_most=10_000
    )
    fitted.fit(people)
    x, y = encoded(people), people.tables()["left"].column("y")[:, 0] * 20 + 20
    best = np.linalg.lstsq(x, y, rcond=None)[0]
    assert fitted.intercept_.tolist() == [0.0]
    np.testing.assert_allclose(fitted.coef_[0], best, atol=0.3)


def test_a_row_clip_of_the_schema_is_kept_in_training_and_prediction(aligned, stream):
    frames, schemas = made_up(1000)
    schemas["left"] = schemas["left"].with_clip(0.8)
    people = aligned(frames, schemas, "id")
    fitted = LinearRegression(epsilon=20.0, label="left.y", rows_at_most=10_000)
    task = fitted.plan(people.roster)
    fitted.simulate(people.tables(), people.roster, stream, task=task)
    assert fitted.score(people) > 0.9
    free = Roster.of({name: schema.with_clip(None) for name, schema in schemas.items()})
    assert task.blocks[0].clip < fitted.plan(free).blocks[0].clip


def test_a_party_may_hold_the_label_alone(aligned):
    frames, schemas = made_up(2000)
    frames["court"] = frames["left"][["id", "y"]]
    schemas["court"] = schemas["left"].select(["y"])
    frames["left"], schemas["left"] = frames["left"].drop(columns="y"), schemas["left"].without(["y"])
    people = aligned(frames, schemas, "id")
    fitted = LinearRegression(epsilon=20.0, rows_at_most=10_000).fit(people, label="court.y")
    np.testing.assert_allclose(fitted.coef_, [list(TRUE.values())], atol=0.5)
    order = people.tables()["court"].own_ids
    ordered = {name: frame.set_index("id").loc[order].reset_index() for name, frame in frames.items()}
    np.testing.assert_allclose(
        fitted.predict({name: ordered[name] for name in ("left", "right")}, id="id"), fitted.predict(people)
    )
    assert fitted.label_ == "court.y"
    assert fitted.get_params()["label"] is None
    assert fitted.coefficients()["court"] == {}
    with raises(DataError, "DA059"):
        fitted.partial("court", frames["court"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": None}, "ST187"),
        ({"label": "y"}, ("ST188", "y")),
        ({"label": "lefft.y"}, ("ST188", "left")),
        ({"label": "left."}, ("ST188", "y")),
        ({"label": "left.yy"}, ("ST189", "yy", "left.y")),
        ({"label": 3}, ("ST147", "int")),
        ({"label": "left.f"}, ("ST195", "flag")),
        ({"label": "right.g"}, ("ST195", "category")),
        ({"label": "left.h"}, "ST192"),
        ({"method": "sqm"}, ("ST194", "one-shot", "functional", "sqm")),
        ({"noise": "discrete-laplace"}, ("ST185", "functional")),
        ({"noise": "white"}, "ST185"),
        ({"ridge": -1.0}, "ST205"),
        ({"gamma": 1}, ("ST150", "gamma")),
        ({"rows_at_most": 0}, ("ST150", "rows_at_most")),
        ({"intercept": "yes"}, "ST186"),
        ({"epsilon": None}, "ST183"),
        ({"epsilon_by_party": {"left": 1.0, "right": 1.0}}, "ST183"),
        ({"epsilon": None, "epsilon_by_party": {"left": 1.0}}, "ST504"),
        ({"epsilon": None, "epsilon_by_party": [1, 2]}, ("ST184", "list")),
    ],
)
def test_bad_parameters_are_named(changes, message):
    _, schemas = made_up(10)
    columns = {**schemas["left"].columns, "f": flag(), "h": number(0, 1, missing="none")}
    roster = Roster.of(
        {"left": Schema(columns), "right": Schema({**schemas["right"].columns, "g": category(["u", "v"])})}
    )
    with raises(StudyError, message):
        LinearRegression(**{"epsilon": 1.0, "label": "left.y"} | changes).plan(roster)


def test_a_regression_needs_a_feature_and_a_sound_epsilon():
    roster = Roster.of({"left": Schema({"y": number(0, 1)}), "right": Schema({"x": number(0, 1)})})
    with raises(PrivacyError, "PR065"):
        LinearRegression(epsilon=-1.0, label="left.y").plan(roster)
    with raises(StudyError, "ST190"):
        Design.of({"left": Schema({"y": number(0, 1)})}, "left.y")


def test_bad_people_are_named(model):
    frames, schemas = made_up(20)
    with raises(DataError, "DA061", "right"):
        model.predict({"left": frames["left"]})
    with raises(DataError, "DA062"):
        model.predict({"left": frames["left"], "right": frames["right"][:5]}, same_order=True)
    with raises(DataError, "DA072", "4"):
        model.predict(np.zeros((3, 7)), encoded=True)
    with raises(DataError, "DA056"):
        model.partial("shop", frames["left"])
    with raises(DataError, "DA079"):
        model.score(np.zeros((3, 4)), encoded=True)
    with raises(DataError, "DA080", "2", "3"):
        model.score(np.zeros((3, 4)), np.zeros(2), encoded=True)
    other = read_table(frames["left"], Schema({"a": number(-2, 2), "b": number(-1, 1)}), id="id")
    with raises(DataError, "DA077"):
        model.partial("left", other)
    with raises(DataError, "DA076", "b"):
        model.partial("left", read_table(frames["left"], schemas["left"].select(["a"]), id="id"))
    with raises(StudyError, "ST073"):
        LinearRegression(epsilon=1.0, label="left.y").predict(np.zeros((3, 4)), encoded=True)
    assert model.score(np.zeros((3, 4)), y=np.array([20.0, 21.0, 19.0]), encoded=True) <= 0.0


def test_columns_of_an_encoded_frame_are_taken_by_name(model, people):
    import pyarrow as pa

    x = encoded(people)[:50]
    frame = pd.DataFrame(x, columns=model.feature_names_in_)
    turned = frame[frame.columns[::-1]].assign(other="text")
    want = model.predict(x, encoded=True)
    np.testing.assert_array_equal(model.predict(turned, encoded=True), want)
    np.testing.assert_array_equal(model.scores(pa.table(turned), encoded=True), model.scores(x, encoded=True))
    with raises(DataError, "DA074", "'left.b', 'right.c'"):
        model.predict(frame.drop(columns=["left.b", "right.c"]), encoded=True)
    with raises(DataError, "DA074"):
        model.predict(pd.DataFrame(x), encoded=True)
    with raises(DataError, "DA072", "4"):
        model.predict(pd.concat([frame, frame], axis=1), encoded=True)
    with raises(DataError, "DA070"):
        model.predict(people, encoded=True)


@pytest.mark.parametrize("hole", [np.nan, np.inf])
def test_an_encoded_matrix_is_finite(model, hole):
    x = np.zeros((3, 4))
    x[1, 2] = hole
    for given in (x, pd.DataFrame(x, columns=model.feature_names_in_)):
        with raises(DataError, "DA073"):
            model.predict(given, encoded=True)


@pytest.mark.parametrize("given", ["abc", None, [["secret"] * 4], [[1.0], [1.0, 2.0]], object(), np.zeros((3, 4))])
@pytest.mark.parametrize("encoded", [False, True])
def test_what_is_no_table_and_no_matrix_is_a_data_error_without_data(model, given, encoded):
    if encoded and isinstance(given, np.ndarray):
        assert len(model.predict(given, encoded=True)) == 3
        return
    said = "DA071|DA072" if encoded else "DA066"
    with raises(DataError, said) as found:
        model.predict(given, encoded=encoded)
    assert "secret" not in str(found.value)


def test_a_fit_needs_a_federation():
    frames, _ = made_up(20)
    with raises(StudyError, "ST063", "DataFrame"):
        LinearRegression(epsilon=1.0).fit(frames["left"], label="left.y")


def test_save_and_load(model, people, tmp_path):
    again = LinearRegression.load(model.save(tmp_path / "model.json"))
    np.testing.assert_array_equal(again.predict(people), model.predict(people))
    assert again.protection_ == model.protection_
    assert again.get_params() == model.get_params()
    assert str(again.privacy_) == str(model.privacy_)
    assert (again.count_, again.ridge_, again.clipped_) == (model.count_, model.ridge_, model.clipped_)


def test_several_parties_of_made_up_people(stream):
    made = population(10_000)
    roster, tables = Roster.of(made.schemas), made.tables()
    fitted = LinearRegression(epsilon=1.0, label="clinic.systolic").simulate(tables, roster, stream)
    fresh = population(2000)
    assert fitted.score(fresh.tables()) > 0.3


def test_a_missing_number_has_a_weight_of_its_own(stream):
    frames, schemas = made_up(4000)
    gone = np.random.default_rng(1).random(4000) < 0.3
    frames["left"]["y"] = np.where(gone, frames["left"]["y"] - 3 * frames["left"]["a"] + 7, frames["left"]["y"])
    frames["left"].loc[gone, "a"] = np.nan
    columns = {**schemas["left"].columns, "a": number(-1, 1, missing="none")}
    schemas["left"] = Schema(columns)
    tables = {name: read_table(frames[name], schemas[name], id="id").sorted_by_id() for name in frames}
    model = LinearRegression(epsilon=200.0, label="left.y", rows_at_most=10_000)
    model = model.simulate(tables, Roster.of(schemas), stream)
    assert model.feature_names_in_ == ["left.a", "left.a=missing", "left.b", "right.c", "right.d"]
    np.testing.assert_allclose(model.coef_, [[3.0, 7.0, -2.0, 5.0, 0.0]], atol=0.3)
    assert model.score(tables) > 0.9
    assert model.to_json()["how_to_score"].endswith("its column NAME=missing is 1, else 0.")
