from __future__ import annotations

import json
import os
import runpy
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from colonnade import (
    Federation,
    JointPrediction,
    Observer,
    Party,
    Schema,
    Statement,
    category,
    flag,
    joint_scores,
    number,
)
from colonnade.errors import DataError, PrivacyError, StudyError
from colonnade.kinds.glm import plan as glm_plan
from colonnade.kinds.glm.exchange import programs as exchange
from colonnade.kinds.glm.exchange.task import Exchange
from colonnade.kinds.glm.model import GLM
from colonnade.models import Estimator, Roster
from colonnade.privacy.additive import AdditiveNoise
from colonnade.protocols.messages import NOISE_UNIT
from tests.support.errors import raises

pd = pytest.importorskip("pandas")

FAMILIES = {
    "logistic": flag(),
    "svm": category(["no", "yes"]),
    "linear": number(-8, 8),
    "poisson": number(0, 30),
    "gamma": number(0.1, 60),
}
UNIT = number(-1, 1)
TRUE = np.array([0.6, -0.4, 0.5, -0.3])


def labelled(family, rows, seed=0):
    """Four columns of two parties, and a label whose mean, odds or logarithm of the mean follows ``TRUE``."""
    rng = np.random.default_rng(seed)
    columns = rng.uniform(-1, 1, (rows, 4))
    score = columns @ TRUE
    yes = rng.random(rows) < 1 / (1 + np.exp(-4 * score))
    mean = np.exp(1.5 + score)
    labels = {
        "logistic": yes,
        "svm": np.where(yes, "yes", "no"),
        "linear": 4 * score + rng.normal(0, 0.5, rows),
        "poisson": np.minimum(rng.poisson(mean), 30),
        "gamma": np.clip(mean * rng.gamma(4, 0.25, rows), 0.1, 60),
    }
    return columns, labels[family]


def frames(family="logistic", rows=600, seed=0):
    columns, label = labelled(family, rows, seed)
    ids = [f"p{k:05d}" for k in range(rows)]
    return {
        "left": pd.DataFrame({"id": ids, "a": columns[:, 0], "b": columns[:, 1], "y": label}),
        "right": pd.DataFrame({"id": ids, "c": columns[:, 2], "d": columns[:, 3]}),
    }


def schemas(family="logistic"):
    return {
        "left": Schema({"a": UNIT, "b": UNIT, "y": FAMILIES[family]}),
        "right": Schema({"c": UNIT, "d": UNIT}),
    }


def together(family="logistic", rows=600, seed=0):
    """A federation whose parties hold the same people to begin with."""
    held = frames(family, rows, seed)
    return Federation([Party(name, held[name], schema=each, id="id") for name, each in schemas(family).items()])


@pytest.fixture(scope="module")
def people(aligned):
    """Federations that had to be aligned, one for each family."""
    return cache(lambda family: aligned(frames(family), schemas(family), "id"))


@pytest.fixture(scope="module")
def fitted(people):
    return GLM(epsilon=30.0, label="left.y", epochs=1).fit(people("logistic"))


@pytest.fixture(scope="module")
def released(people):
    return GLM(epsilon={"analyst": 50.0}, label="left.y", release=True, epochs=1).fit(people("logistic"))


# --- fits


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_learns_from_unaligned_tables(people, family):
    model = GLM(family=family, epsilon=30.0, label="left.y", epochs=1).fit(people(family))
    assert set(model.kept_) == {"left", "right"}
    assert model.kept_["right"].weights.shape == (3,)
    least = {"logistic": 0.73, "svm": 0.73, "linear": 0.8, "poisson": 0.45, "gamma": 0.45}[family]
    assert model.score(people(family), exact=True) > least
    assert model.privacy_.epsilon("left") <= 30
    assert model.privacy_.epsilon("right") <= 30
    assert model.privacy_.epsilon("analyst") == 0


@pytest.mark.parametrize("penalty", ["l2", "elastic-net"])
def test_gradients_learn_too(people, penalty, stream):
    model = GLM(label="left.y", method="gradient", penalty=penalty, epochs=5, batch=300)
    tables, roster = people("logistic").tables(), people("logistic").roster
    task = replace(glm_plan.draft(model.choices(), model.setting(roster, 600), 0.15), noise=NOISE_UNIT // 40)
    model.simulate(tables, roster, stream, task=task)
    assert model.plan_["batches"] == 2
    assert model.score(people("logistic"), exact=True) > 0.7


@pytest.mark.parametrize(
    "asked",
    [{"release": True, "epochs": 2, "message_clip": 3.0}, {"penalty": "l1", "epochs": 3, "batch": 200}],
    ids=["alternating", "gradient"],
)
def test_a_fit_without_noise_is_the_reference(monkeypatch, asked):
    def still(noise, shape, stream):
        return np.zeros(shape, dtype=np.int64)

    monkeypatch.setattr(AdditiveNoise, "draw", still)
    people = together(rows=300)
    model = GLM(epsilon={"left": 5.0}, label="left.y", **asked).fit(people)
    assert set(model.kept_) == {"left", "right"}
    tables = people.tables()
    task = GLM(epsilon={"left": 5.0}, label="left.y", rows=300, **asked).plan(people.roster)
    held = {name: model.design(people.roster.schemas).centred(name).features(tables[name]).matrix() for name in tables}
    labels = tables["left"].column("y")[:, 0]
    kept, opened = exchange.reference(held, labels, task, lambda _, __, count: np.zeros(count, dtype=np.int64))
    for name in tables:
        assert np.array_equal(model.kept_[name].weights, kept[name].weights)
        assert model.kept_[name].factors == kept[name].factors
    assert (opened is not None) == bool(asked.get("release"))


@pytest.mark.parametrize("family", ["poisson", "gamma"])
def test_known_coefficients_come_out_as_epsilon_grows(family, stream):
    people, model = together(family, rows=6000), GLM(family=family, label="left.y", epochs=2)
    tables = people.tables()

    def error(times):
        """With noise of so many times the sensitivity."""
        task = glm_plan.draft(model.choices(), model.setting(people.roster, 6000), times)
        model.simulate(tables, people.roster, stream, task=replace(task, noise=round(NOISE_UNIT * times**2)))
        weights, offset = model.linear()
        return float(np.abs(weights[0] - TRUE).max()), abs(float(offset[0]) - 1.5)

    small, large = error(37.0), error(0.15)
    assert small[0] > 0.3  # the other party's columns are lost in the noise
    assert large[0] < 0.08
    assert large[1] < 0.05


def test_an_l1_penalty_gives_exact_zeros_and_keeps_what_counts():
    rng = np.random.default_rng(1)
    rows = 4000
    strong, noise = rng.uniform(-1, 1, rows), rng.uniform(-1, 1, (rows, 3))
    own = rng.uniform(-1, 1, (rows, 2))
    yes = rng.random(rows) < 1 / (1 + np.exp(-4 * strong - 3 * own[:, 0]))
    ids = [f"p{k:05d}" for k in range(rows)]
    left = pd.DataFrame({"id": ids, "a": own[:, 0], "idle": own[:, 1], "y": yes})
    right = pd.DataFrame({"id": ids, "c": strong} | {f"n{k}": noise[:, k] for k in range(3)})
    people = Federation(
        [
            Party("left", left, schema=Schema({"a": UNIT, "idle": UNIT, "y": flag()}), id="id"),
            Party("right", right, schema=Schema({"c": UNIT} | {f"n{k}": UNIT for k in range(3)}), id="id"),
        ]
    )
    model = GLM(penalty="l1", strength=0.03, epochs=20, label="left.y")
    # Hardly any noise, as many more people would allow.
    task = replace(glm_plan.draft(model.choices(), model.setting(people.roster, rows), 0.1), noise=1)
    model.simulate(people.tables(), people.roster, task=task)
    weights = dict(zip(model.feature_names_in_, model.linear()[0][0], strict=True))
    assert [name for name, weight in weights.items() if weight == 0.0] == [
        "left.idle",
        "right.n0",
        "right.n1",
        "right.n2",
    ]
    assert weights["right.c"] > 1
    assert weights["left.a"] > 1


def test_three_parties(aligned):
    held = frames(rows=300)
    held["far"] = held["right"][["id", "d"]]
    held["right"] = held["right"][["id", "c"]]
    found = {**schemas(), "right": Schema({"c": UNIT}), "far": Schema({"d": UNIT})}
    people = aligned(held, found, "id")
    model = GLM(epsilon={"left+right": 60.0}, label="left.y", epochs=1, message_clip=3.0).fit(people)
    assert set(model.kept_["left"].factors) == {"right", "far"}
    assert model.linear()[0].shape == (1, 4)
    assert model.privacy_.epsilon("left+right") <= 60
    assert model.privacy_.epsilon("left+right+far") == np.inf


def test_the_label_may_be_all_that_the_active_party_holds():
    held, found = frames(), schemas()
    parties = [
        Party("left", held["left"][["id", "y"]], schema=found["left"].select(["y"]), id="id"),
        Party("right", held["right"], schema=found["right"], id="id"),
    ]
    people = Federation(parties)
    model = GLM(label="left.y", release=True, epochs=1)
    task = glm_plan.draft(model.choices(), model.setting(people.roster, 600), 0.1)
    model.simulate(people.tables(), people.roster, task=replace(task, noise=1))
    assert model.feature_names_in_ == ["right.c", "right.d"]
    assert model.predict(people).shape == (600,)
    assert model.joint_scores(people, epsilon=30.0).scores.shape == (600, 1)


def test_patience_stops_on_what_was_sent_and_charges_the_same(people):
    tables, roster, sent = people("logistic").tables(), people("logistic").roster, []
    asked = GLM(label="left.y", method="gradient", epochs=6, message_clip=2.0)
    plain = glm_plan.draft(asked.choices(), asked.setting(roster, 600), 1.0)
    patient = replace(plain, patience=2)
    found = [(e.l2_squared, e.shares, e.dimension) for e in patient.events]
    assert found == [(e.l2_squared, e.shares, e.dimension) for e in plain.events]
    # Whoever relays messages sees when they end, so they are charged as if published.
    assert Statement.of(plain.events, plain.trust, 1e-5).epsilon("coordinator") == 0
    assert Statement.of(patient.events, patient.trust, 1e-5).epsilon("coordinator") > 0

    def louder(name, variance, count):
        """Noise that grows from message to message, so that slopes get no smaller."""
        sent.append(name)
        return np.full(count, len(sent) << 28)

    held = {name: asked.design(roster.schemas).centred(name).features(tables[name]).matrix() for name in tables}
    labels = tables["left"].column("y")[:, 0]
    for task, epochs in ((plain, 6), (patient, 3)):
        sent.clear()
        exchange.reference(held, labels, task, louder)
        assert sent.count("left") == epochs


# --- planning


def test_given_parameters_are_respected():
    roster = Roster.of(schemas())
    asked = {"epochs": 3, "message_clip": 5.0, "weight_bound": 0.7, "score_clip": 0.9, "strength": 0.2}
    model = GLM(label="left.y", **asked)
    task = glm_plan.draft(model.choices(), model.setting(roster, 1000), 4.0)
    assert (task.method, task.epochs, task.message_clip) == ("alternating", 3, 5.0)
    side = task.side("right")
    assert (side.weight_bound, side.score_clip, side.ridge) == (0.7, 0.9, 0.2)
    model = GLM(label="left.y", method="gradient", batch=300, learning_rate=0.5, **asked)
    task = glm_plan.draft(model.choices(), model.setting(roster, 1000), 4.0)
    assert (task.batches, task.batch_size, task.learning_rate, task.side("left").ridge) == (4, 250, 0.5, 0.2)


def test_defaults_of_gradients():
    roster = Roster.of(schemas())
    model = GLM(label="left.y", method="gradient")
    task = glm_plan.draft(model.choices(), model.setting(roster, 10_000), 4.0)
    assert 2 <= task.epochs <= 40
    assert task.batches == 4
    limit = 2 / (task.family.curvature * task.row_norm("left") ** 2 + 1e-3)
    assert task.learning_rate == pytest.approx(limit / 2, rel=1e-2)
    assert task.message_clip == pytest.approx(np.hypot(1, 12 * task.noise_std), rel=1e-2)
    side = task.side("right")
    assert side.score_clip == pytest.approx(task.row_norm("right") * side.weight_bound, rel=1e-2)
    model = GLM(label="left.y", penalty="elastic-net", strength=0.1, l1_ratio=0.25)
    net = glm_plan.draft(model.choices(), model.setting(roster, 1000), 4.0)
    assert (net.l1, net.prox_ridge, net.side("right").ridge) == (0.025, pytest.approx(0.075), 0.0)
    model = GLM(label="left.y", penalty="l1")
    lasso = glm_plan.draft(model.choices(), model.setting(roster, 1000), 4.0)
    assert (lasso.method, lasso.l1, lasso.prox_ridge) == ("gradient", 1e-3, 0.0)


def test_budgets_by_observer_are_kept(people):
    model = GLM(epsilon={"left": 4.0, "right": 9.0}, label="left.y", rows=600)
    task = model.plan(people("logistic").roster)
    found = Statement.of(task.events, task.trust, 1e-5)
    assert found.epsilon("left") <= 4
    assert found.epsilon("right") <= 9


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"family": "logistc"}, ("ST136", "family", "logistic")),
        ({"family": "poisson"}, "ST468"),
        ({"family_options": {"reech": 2.0}}, ("ST136", "reach")),
        ({"family_options": {"region": (0, 1)}}, ("ST461", "region")),
        ({"family_options": 3.0}, "ST135"),
        ({"method": "alternatng"}, ("ST136", "alternating")),
        ({"penalty": "elasticnet"}, ("ST136", "elastic-net")),
        ({"penalty": "l1", "method": "alternating"}, "ST133"),
        ({"learning_rate": 0.1}, "ST134"),
        ({"batch": 10}, "ST134"),
        ({"method": "gradient", "learning_rate": 100.0}, "ST452"),
        ({"method": "gradient", "learning_rate": -1.0}, ("ST137", "learning_rate")),
        ({"method": "gradient", "batch": 5000}, "ST132"),
        ({"method": "gradient", "epochs": 1}, "ST451"),
        ({"epochs": 0}, ("ST150", "epochs")),
        ({"epochs": True}, ("ST150", "epochs")),
        ({"patience": 1.5}, ("ST150", "patience")),
        ({"strength": 0.0}, ("ST137", "strength")),
        ({"score_clip": "1"}, ("ST137", "score_clip")),
        ({"message_clip": float("inf")}, ("ST137", "message_clip")),
        ({"weight_bound": float("nan")}, ("ST137", "weight_bound")),
        ({"l1_ratio": 1.5}, "ST130"),
        ({"release": "yes"}, "ST131"),
        ({"label": None}, "ST187"),
        ({"label": "left.z"}, ("ST189", "left.z", "'z'")),
        ({"label": "lft.y"}, ("ST188", "left")),
        ({"label": 3}, "ST147"),
        ({"rows": 0}, ("ST150", "rows")),
        ({"rows": None}, "ST128"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_sent(asked, said):
    model = GLM(**{"label": "left.y", "rows": 1000} | asked)
    with raises(StudyError, said):
        model.plan(Roster.of(schemas()))


@pytest.mark.parametrize("epsilon", [None, 0.0, -1.0, {}, {"nobody": 1.0}])
def test_budgets_that_make_no_sense_are_refused(epsilon):
    with pytest.raises(PrivacyError):
        GLM(label="left.y", rows=100, epsilon=epsilon).plan(Roster.of(schemas()))


@pytest.mark.parametrize("method", ["alternating", "gradient"])
@pytest.mark.parametrize("epsilon", [{"analyst": 1.0}, {"coordinator": 1.0, "analyst": 2.0}])
def test_budgets_that_ask_for_no_noise_between_the_parties_are_refused(epsilon, method):
    """Nothing is released, so what these two may learn bounds nothing that parties send each other."""
    people = together(rows=100).roster
    with raises(StudyError, "ST492", "left", "right", "numbers"):
        GLM(epsilon=epsilon, label="left.y", rows=100, method=method).plan(people)
    released = GLM(epsilon=epsilon, label="left.y", rows=100, method=method, release=True).plan(people)
    assert released.noise > NOISE_UNIT


@pytest.mark.parametrize(
    ("family", "spoil", "said"),
    [
        ("poisson", 0.5, ("DA129", "8")),
        ("poisson", 40, ("DA057", "8", "2")),
        ("gamma", 0.0, ("DA057", "8", "2")),
        ("linear", 100.0, ("DA057", "8", "2")),
    ],
)
def test_labels_outside_the_range_are_refused_by_their_own_rows(monkeypatch, family, spoil, said):
    told = []
    monkeypatch.setattr("colonnade.protocols.roles.Role.tell", lambda *_, **__: told.append(1))
    held = {name: frame[::-1].reset_index(drop=True) for name, frame in frames(family, 50).items()}
    held["left"]["y"] = held["left"]["y"].astype(float)
    held["left"].loc[[7, 31], "y"] = spoil
    people = Federation([Party(name, held[name], schema=each, id="id") for name, each in schemas(family).items()])
    model = GLM(family=family, label="left.y", rows=50)
    task = glm_plan.draft(model.choices(), model.setting(people.roster, 50), 1.0)
    with raises(DataError, said) as failure:
        people.run(task, lambda me, table: model.owner(me, table, task), lambda me: model.coordinator(me, task))
    assert "left" in str(failure.value)
    assert not told


def test_unequal_rows_and_no_rows_are_refused():
    held = frames(rows=60)
    found = schemas()

    def federation(right):
        parties = [
            Party("left", held["left"], schema=found["left"], id="id"),
            Party("right", right, schema=found["right"], id="id"),
        ]
        return Federation(parties)

    with raises(StudyError, "ST088", "right", "50", "left", "60"):
        GLM(label="left.y").fit(federation(held["right"].head(50)))
    with raises(DataError, "DA202", "right"):
        GLM(label="left.y").fit(federation(held["right"].head(0)))
    with raises(StudyError, "ST447", "60", "61"):
        GLM(label="left.y", rows=61).fit(federation(held["right"]))
    with raises(StudyError, "ST063"):
        GLM(label="left.y").fit(held)


def test_hidden_alignments_are_refused(unaligned):
    apart = unaligned(frames(rows=40), "id")
    people = Federation([Party(name, apart[name], schema=each, id="id") for name, each in schemas().items()])
    people.align(on="id", mode="helper", hidden=True)
    with raises(StudyError, "ST082"):
        GLM(label="left.y").fit(people)


# --- kept and released weights


def test_kept_weights_are_not_public(fitted, people):
    for name in ("coef_", "intercept_"):
        with raises(StudyError, "ST106"):
            getattr(fitted, name)
    with raises(StudyError, "ST106"):
        fitted.coefficients()
    with raises(StudyError, "ST106"):
        joint_scores(fitted, people("logistic"), to="left", exact=True)
    weights = [float(weight) for kept in fitted.kept_.values() for weight in kept.weights]
    public = json.dumps(fitted.learned())
    assert not any(repr(weight) in public for weight in weights)


def test_scores_are_those_of_all_kept_weights(fitted, people):
    tables = people("logistic").tables()
    rows = {name: fitted.kept_rows(name, table)[0] for name, table in tables.items()}
    factor = fitted.kept_["left"].factors["right"]
    expected = rows["left"] @ fitted.kept_["left"].weights + factor * (rows["right"] @ fitted.kept_["right"].weights)
    assert fitted.decision_function(tables) == pytest.approx(expected, abs=1e-9)
    chances = fitted.predict_proba(tables)
    assert chances[:, 1] == pytest.approx(1 / (1 + np.exp(-expected)))
    assert np.array_equal(fitted.predict(tables), fitted.classes_[(expected > 0).astype(int)])


def test_a_public_model_and_a_private_file_for_each_party(fitted, people, tmp_path):
    path = fitted.save(tmp_path / "model.json")
    own = {name: fitted.save_kept(tmp_path / f"{name}.json", name) for name in fitted.kept_}
    assert {os.stat(each).st_mode & 0o777 for each in own.values()} == {0o600}
    with raises(StudyError, "ST109"):
        fitted.save_kept(tmp_path / "whose.json")
    with raises(StudyError, "ST112", "right"):
        fitted.save_kept(own["left"], "right")
    with raises(StudyError, "ST112", "left"):
        fitted.save_kept(path, "left")
    assert fitted.save_kept(own["left"], "left") == own["left"]

    loaded = GLM.load(path)
    assert loaded.kept_ == {}
    assert loaded.load_kept(own["right"]) == "right"
    with raises(StudyError, "ST107", "left"):
        loaded.predict(people("logistic"))
    loaded.load_kept(own["left"])
    assert np.array_equal(loaded.scores(people("logistic")), fitted.scores(people("logistic")))
    assert loaded.guarantees_ == fitted.guarantees_
    assert loaded.protection_ == fitted.protection_


def test_kept_weights_of_another_fit_are_refused(fitted, people, tmp_path):
    other = GLM(**fitted.get_params()).fit(people("logistic"))
    path = other.save_kept(tmp_path / "left.json", "left")
    with raises(StudyError, "ST114"):
        fitted.load_kept(path)
    content = json.loads(path.read_text())
    row = content["weights"]
    for broken in (
        {"weights": [1.0]},
        {"weights": [1.0, None, 2.0]},
        {"party": "nobody"},
        {"party": "right"},
        {"factors": 3},
        {"factors": {}},
        {"factors": {"far": 1.0}},
        {"factors": {"right": 1.0, "far": 1.0}},
        {"factors": {"right": float("nan")}},
        {"expected": {}},
        {"expected": {"right": [1.0]}},
        {"expected": {"far": row}},
        {"expected": {"right": [*row[:-1], None]}},
    ):
        path.write_text(json.dumps(content | broken))
        with raises(StudyError, "ST113|ST115|ST116|ST117|ST118"):
            other.load_kept(path)
    theirs = other.save_kept(tmp_path / "right.json", "right")
    theirs.write_text(json.dumps(json.loads(theirs.read_text()) | {"factors": {"left": 1.0}}))
    with raises(StudyError, "ST118"):
        other.load_kept(theirs)
    path.write_text("no weights")
    with raises(StudyError, "ST113"):
        other.load_kept(path)


def test_released_weights_serve_everybody(released, people, tmp_path):
    group = people("logistic")
    assert released.score(group) > 0.65
    again = Estimator.load(released.save(tmp_path / "model.json"))
    assert isinstance(again, GLM)
    assert np.array_equal(again.coef_, released.coef_)
    assert again.coefficients() == released.coefficients()
    scores = joint_scores(again, group, to="right", exact=True)
    tables = group.tables()
    assert scores.scores == pytest.approx(released.scores(tables), abs=1e-3)
    parts = sum(released.partial(name, tables[name]) for name in tables) + released.intercept_
    assert parts == pytest.approx(released.scores(tables))
    encoded = np.hstack([tables["left"].select(["a", "b"]).matrix(), tables["right"].matrix()])
    assert released.scores(encoded, encoded=True) == pytest.approx(released.scores(tables))
    noisy = JointPrediction(again, to="left", epsilon=5.0).fit(group)
    assert noisy.scores_ is not None


@pytest.mark.parametrize("family", FAMILIES)
def test_released_models_go_to_scikit_learn(family):
    people = together(family, 300)
    model = GLM(family=family, label="left.y", release=True, epochs=1, message_clip=3.0)
    tables = people.tables()
    task = replace(glm_plan.draft(model.choices(), model.setting(people.roster, 300), 0.1), noise=1)
    model.simulate(tables, people.roster, task=task)
    encoded = np.hstack([tables["left"].select(["a", "b"]).matrix(), tables["right"].matrix()])
    frame = pd.DataFrame(encoded, columns=model.feature_names_in_)
    theirs, ours = model.to_sklearn().predict(frame), model.predict(tables)
    if family in ("logistic", "svm"):
        assert np.array_equal(theirs, ours)
    else:
        inside = (ours > ours.min()) & (ours < ours.max())
        assert theirs[inside] == pytest.approx(ours[inside])
    plain = model.to_json()
    assert plain["how_to_score"].startswith("score = intercept")
    loss = model.family_
    assert (plain["family"]["name"], plain["family"]["scale"]) == (family, loss.scale)
    if family in ("poisson", "gamma"):
        low, high = plain["family"]["region"]
        assert np.exp([low, high]) == pytest.approx([loss.mean(np.array([-99.0]))[0], loss.mean(np.array([99.0]))[0]])
        assert f"{low!r} at least and {high!r} at most" in plain["how_to_score"]
    else:
        assert plain["family"]["region"] is None
    json.dumps(plain)


def test_predictions_of_numbers_are_in_their_unit(people):
    model = GLM(family="poisson", epsilon=30.0, label="left.y", epochs=1).fit(people("poisson"))
    tables = people("poisson").tables()
    assert model.predict(tables) == pytest.approx(np.clip(np.exp(model.decision_function(tables)), 0.3, 30))
    with raises(StudyError, "ST111"):
        model.predict_proba(tables)
    assert not hasattr(model, "classes_")


# --- what is promised


def test_guarantees_have_a_row_for_everything(fitted, released):
    kept = fitted.guarantees_
    by = {(row.what, row.observer): row for row in kept}
    for owner, others in (("left", "right"), ("right", "left")):
        messages = by[f"messages of {owner}", f"anybody but {owner}"]
        joint = by["kept weights of all others", f"all but {owner}, together"]
        assert messages.epsilon == joint.epsilon == pytest.approx(fitted.privacy_.epsilon(others))
        assert joint.theorem == "alternating-fits, post-processing"
        assert messages.about == joint.about == f"{owner}'s columns of one person"
    assert by["nothing is released", "analyst"].epsilon == 0
    everything = by["all messages", "eavesdropper on every channel"]
    assert everything.epsilon > max(row.epsilon for row in kept if row.what.startswith("messages of"))
    assert by["all that it receives", "left+right"].status == "no guarantee"
    public = {(row.what, row.observer): row for row in released.guarantees_}
    assert public["all messages and released weights", "analyst"].epsilon <= 50
    both = public["messages and released weights of right", "anybody, the analyst too"]
    assert both.epsilon > public["messages of right", "anybody but right"].epsilon
    assert released.protection_["right"] == both.epsilon
    assert len(json.loads(json.dumps(kept.to_dict()))) == len(kept)
    lines = str(kept).splitlines()
    assert max(map(len, lines)) <= 108
    ends = {line.index(number) + len(number) for number in ("epsilon", "30.0000") for line in lines if number in line}
    assert len(ends) == 1  # to the right, under each other
    assert "eavesdropper" in str(kept)
    assert "..." not in str(kept)
    assert released.privacy_.epsilon(Observer.analyst()) <= 50


def test_a_simulation_is_a_fit_in_one_place(people):
    tables = people("logistic").tables()
    model = GLM(epsilon=30.0, label="left.y", epochs=1).simulate(tables, people("logistic").roster)
    assert model.score(tables, exact=True) > 0.73
    task = GLM(epsilon=30.0, label="left.y", epochs=1, rows=600).plan(people("logistic").roster)
    assert isinstance(task, Exchange)
    assert model.plan_ == task.facts | {"senders": glm_plan.senders(task), "fit": ""}


def test_parameters_come_back(tmp_path):
    asked = {"family": "gamma", "epsilon": {"left": 3.0}, "family_options": {"region": (0.0, 3.0)}, "rows": 300}
    people = together("gamma", 300)
    model = GLM(label="left.y", **asked)
    task = glm_plan.draft(model.choices(), model.setting(people.roster, 300), 1.0)
    model.simulate(people.tables(), people.roster, task=task)
    again = GLM.load(model.save(tmp_path / "model.json"))
    assert again.get_params()["epsilon"] == {"left": 3.0}
    assert again.family_ == model.family_
    assert GLM(**model.get_params()).get_params() == model.get_params()


def test_the_example_runs(capsys):
    script = Path(__file__).parents[3] / "examples" / "glm" / "glm.py"
    assert 0.7 < runpy.run_path(str(script))["main"](rows=2_000) <= 1
    said = capsys.readouterr().out
    for word in ("eavesdropper", "shop keeps 18 weights", "accuracy on 400 other people"):
        assert word in said
