"""Models over noised messages: fits, plans, kept and released weights, what is promised, the page."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pytest

from colonnade import Statement, category, flag, joint_scores, number
from colonnade.errors import DataError, PrivacyError, StudyError
from colonnade.kinds.glm import planning as glm_plan, programs as exchange
from colonnade.kinds.glm.model import GLM
from colonnade.kinds.glm.preflight import Guarantees, protection
from colonnade.kinds.glm.task import Exchange
from colonnade.models import Estimator, Roster
from colonnade.models.assessment import accuracy, area, explained
from colonnade.privacy import DiscreteGaussianRelease, Trust
from colonnade.privacy.accounting.loss_distributions import gaussian_epsilon
from colonnade.privacy.noise_laws import AdditiveNoise
from colonnade.privacy.statement import format_rounded_up
from colonnade.protocols.roles import Role
from colonnade.protocols.task import NOISE_UNIT
from colonnade.tables import population
from tests.support.errors import raises
from tests.support.federations import aligned, federation, numbers
from tests.support.pages import Page
from tests.support.reports import make_run, rendered

pd = pytest.importorskip("pandas")

FAMILIES = {
    "logistic": flag(),
    "svm": category(["no", "yes"]),
    "linear": number(-8, 8),
    "poisson": number(0, 30),
    "gamma": number(0.1, 60),
}
TRUE = np.array([0.6, -0.4, 0.5, -0.3])


def columns(family="logistic", rows=600, seed=0):
    """Two parties with two columns each, and a label whose mean, odds or logarithm of the mean follows ``TRUE``."""
    rng = np.random.default_rng(seed)
    a, b, c, d = rng.uniform(-1, 1, (4, rows))
    score = TRUE @ (a, b, c, d)
    yes = rng.random(rows) < 1 / (1 + np.exp(-4 * score))
    mean = np.exp(1.5 + score)
    labels = {
        "logistic": yes,
        "svm": np.where(yes, "yes", "no"),
        "linear": 4 * score + rng.normal(0, 0.5, rows),
        "poisson": np.minimum(rng.poisson(mean), 30),
        "gamma": np.clip(mean * rng.gamma(4, 0.25, rows), 0.1, 60),
    }
    return {"left": {"a": a, "b": b, "y": labels[family]}, "right": {"c": c, "d": d}}


def schemas(family="logistic"):
    return {"left": numbers("ab", y=FAMILIES[family]), "right": numbers("cd")}


@cache
def together(family="logistic", rows=600):
    """A federation whose parties hold the same people to begin with."""
    return federation(columns(family, rows), schemas(family))


def planned(model, roster, rows, times):
    """The plan for noise of so many times the sensitivity."""
    return glm_plan.draft_exchange(model.choices(), model.setting(roster, rows), times)


def nearly_exact(model, people, rows):
    """Fitted with hardly any noise, as many more people would allow."""
    task = replace(planned(model, people.roster, rows, 0.1), noise=1)
    return model.simulate(people.tables(), people.roster, task=task)


def encoded(people):
    tables = people.tables()
    return np.hstack([tables["left"].select(["a", "b"]).matrix(), tables["right"].matrix()])


@pytest.fixture(scope="module")
def people():
    """A federation that had to be aligned."""
    ids = [f"p{place}" for place in range(600)]
    return aligned({name: pd.DataFrame({"id": ids, **held}) for name, held in columns().items()}, schemas(), "id")


@pytest.fixture(scope="module")
def fitted(people):
    return GLM(epsilon=30.0, label="left.y", epochs=1).fit(people)


@pytest.fixture(scope="module")
def released(people):
    return GLM(epsilon={"analyst": 50.0}, label="left.y", release=True, epochs=1).fit(people)


# --- fits


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_learns(fitted, people, family):
    group = people if family == "logistic" else together(family)
    model = fitted if family == "logistic" else GLM(family=family, epsilon=30.0, label="left.y", epochs=1).fit(group)
    assert {name: kept.weights.shape for name, kept in model.kept_.items()} == {"left": (3,), "right": (3,)}
    least = {"logistic": 0.73, "svm": 0.73, "linear": 0.8, "poisson": 0.45, "gamma": 0.45}[family]
    assert model.score(group, exact=True) > least
    assert max(model.privacy_.epsilon("left"), model.privacy_.epsilon("right")) <= 30
    assert model.privacy_.epsilon("analyst") == 0
    if family == "poisson":  # in the unit of the label
        assert model.predict(group) == pytest.approx(np.clip(np.exp(model.decision_function(group)), 0.3, 30))
        with raises(StudyError, "ST111"):
            model.predict_proba(group)


@pytest.mark.parametrize(
    "asked",
    [{"release": True, "epochs": 2, "message_clip": 3.0}, {"penalty": "l1", "epochs": 3, "batch": 200}],
    ids=["alternating", "gradient"],
)
def test_a_fit_without_noise_is_the_reference(monkeypatch, asked):
    monkeypatch.setattr(AdditiveNoise, "draw", lambda noise, shape, stream: np.zeros(shape, dtype=np.int64))
    people = together(rows=300)
    model = GLM(epsilon={"left": 5.0}, label="left.y", rows=300, **asked).fit(people)
    tables = people.tables()
    held = {
        name: model.design(people.roster.schemas).centred_columns(name).centre_features(tables[name]).matrix()
        for name in tables
    }
    kept, opened = exchange.reference(
        held, tables["left"].column("y")[:, 0], model.plan(people.roster), lambda *asked: np.zeros(asked[2], np.int64)
    )
    assert set(model.kept_) == set(tables)
    for name in tables:
        assert np.array_equal(model.kept_[name].weights, kept[name].weights)
        assert model.kept_[name].factors == kept[name].factors
    assert (opened is not None) == bool(asked.get("release"))


@pytest.mark.parametrize("family", ["poisson", "gamma"])
def test_known_coefficients_come_out_as_epsilon_grows(family, stream):
    people, model, errors = together(family, rows=6000), GLM(family=family, label="left.y", epochs=2), []
    for times in (37.0, 0.15):
        task = replace(planned(model, people.roster, 6000, times), noise=round(NOISE_UNIT * times**2))
        model.simulate(people.tables(), people.roster, stream, task=task)
        weights, offset = model.linear()
        errors.append((float(np.abs(weights[0] - TRUE).max()), abs(float(offset[0]) - 1.5)))
    assert errors[0][0] > 0.3  # the other party's columns are lost in the noise
    assert errors[1][0] < 0.08
    assert errors[1][1] < 0.05


def test_an_l1_penalty_gives_exact_zeros_and_keeps_what_counts():
    rng = np.random.default_rng(1)
    a, idle, c, *noise = rng.uniform(-1, 1, (6, 4000))
    held = {"left": {"a": a, "idle": idle, "y": rng.random(4000) < 1 / (1 + np.exp(-4 * c - 3 * a))}}
    held["right"] = {"c": c} | {f"n{place}": each for place, each in enumerate(noise)}
    people = federation(held, {"left": numbers(["a", "idle"], y=flag()), "right": numbers(held["right"])})
    model = nearly_exact(GLM(penalty="l1", strength=0.03, epochs=20, label="left.y"), people, 4000)
    weights = dict(zip(model.feature_names_in_, model.linear()[0][0], strict=True))
    zeros = [name for name, weight in weights.items() if weight == 0.0]
    assert zeros == ["left.idle", "right.n0", "right.n1", "right.n2"]
    assert min(weights["right.c"], weights["left.a"]) > 1


def test_three_parties_of_which_one_holds_the_label_alone():
    held = columns(rows=300)
    held["far"] = {name: held["left"].pop(name) for name in ("a", "b")}
    people = federation(held, {"left": schemas()["left"].select(["y"]), "right": numbers("cd"), "far": numbers("ab")})
    model = GLM(epsilon={"left+right": 60.0}, label="left.y", epochs=1, message_clip=3.0).fit(people)
    assert set(model.kept_["left"].factors) == {"right", "far"}
    assert model.feature_names_in_ == ["right.c", "right.d", "far.a", "far.b"]
    assert model.linear()[0].shape == (1, 4)
    assert model.privacy_.epsilon("left+right") <= 60
    assert model.privacy_.epsilon("left+right+far") == np.inf
    assert model.joint_scores(people, epsilon=30.0).scores.shape == (300, 1)


# --- planning


def test_given_parameters_are_respected_and_others_have_defaults(people):
    asked = {"epochs": 3, "message_clip": 5.0, "weight_bound": 0.7, "score_clip": 0.9, "strength": 0.2}
    task = planned(GLM(label="left.y", **asked), people.roster, 1000, 4.0)
    assert (task.method, task.epochs, task.message_clip) == ("alternating", 3, 5.0)
    side = task.side("right")
    assert (side.weight_bound, side.score_clip, side.ridge) == (0.7, 0.9, 0.2)
    model = GLM(label="left.y", method="gradient", batch=300, learning_rate=0.5, **asked)
    task = planned(model, people.roster, 1000, 4.0)
    assert (task.batches, task.batch_size, task.learning_rate, task.side("left").ridge) == (4, 250, 0.5, 0.2)
    task = planned(GLM(label="left.y", method="gradient"), people.roster, 10_000, 4.0)
    limit = 2 / (task.family.curvature * task.row_norm("left") ** 2 + 1e-3)
    assert task.learning_rate == pytest.approx(limit / 2, rel=1e-2)
    assert task.message_clip == pytest.approx(np.hypot(1, 12 * task.noise_std), rel=1e-2)
    net = planned(GLM(label="left.y", penalty="elastic-net", strength=0.1, l1_ratio=0.25), people.roster, 1000, 4.0)
    assert (net.l1, net.prox_ridge, net.side("right").ridge) == (0.025, pytest.approx(0.075), 0.0)
    lasso = planned(GLM(label="left.y", penalty="l1"), people.roster, 1000, 4.0)
    assert (lasso.method, lasso.l1, lasso.prox_ridge) == ("gradient", 1e-3, 0.0)
    task = GLM(epsilon={"left": 4.0, "right": 9.0}, label="left.y", rows=600).plan(people.roster)
    assert Statement.of(task.events, task.trust, 1e-5).epsilon("left") <= 4


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
        ({"epsilon": None}, "PR*"),
        ({"epsilon": 0.0}, "PR*"),
        ({"epsilon": -1.0}, "PR*"),
        ({"epsilon": {}}, "PR*"),
        ({"epsilon": {"nobody": 1.0}}, "PR*"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_sent(asked, said):
    model = GLM(**{"label": "left.y", "rows": 1000} | asked)
    with raises((StudyError, PrivacyError), said):
        model.plan(Roster.of(schemas()))


@pytest.mark.parametrize("method", ["alternating", "gradient"])
@pytest.mark.parametrize("epsilon", [{"analyst": 1.0}, {"coordinator": 1.0, "analyst": 2.0}])
def test_budgets_that_ask_for_no_noise_between_the_parties_are_refused(epsilon, method):
    """Nothing is released, so what these two may learn bounds nothing that parties send each other."""
    roster, asked = Roster.of(schemas()), {"epsilon": epsilon, "label": "left.y", "rows": 100, "method": method}
    with raises(StudyError, "ST492", "left", "right", "numbers"):
        GLM(**asked).plan(roster)
    assert GLM(release=True, **asked).plan(roster).noise > NOISE_UNIT


@pytest.mark.parametrize(
    ("family", "spoil", "count", "rows", "said"),
    [
        ("poisson", 0.5, 50, None, ("DA129", "8", "left")),
        ("poisson", 40, 50, None, ("DA057", "8", "2", "left")),
        ("gamma", 0.0, 50, None, ("DA057", "8", "2", "left")),
        ("linear", 1.0, 40, None, ("ST088", "right", "40", "left", "50")),
        ("linear", 1.0, 0, None, ("DA202", "right")),
        ("linear", 1.0, 50, 51, ("ST447", "50", "51")),
    ],
)
def test_bad_people_are_refused_before_anything_is_told(monkeypatch, family, spoil, count, rows, said):
    """Labels by their own rows."""
    told, held = [], columns(family, 50)
    monkeypatch.setattr(Role, "tell", lambda *_, **__: told.append(1))
    held["right"] = {name: values[:count] for name, values in held["right"].items()}
    labels = held["left"]["y"] = held["left"]["y"].astype(float)
    labels[[7, 31]] = spoil
    with raises((DataError, StudyError), said):
        GLM(family=family, label="left.y", epochs=1, rows=rows).fit(federation(held, schemas(family)))
    assert not told


# --- kept and released weights


def test_kept_weights_are_not_public_and_scores_are_those_of_all_of_them(fitted, people):
    for asked in (
        partial(getattr, fitted, "coef_"),
        fitted.coefficients,
        partial(joint_scores, fitted, people, to="left", exact=True),
    ):
        with raises(StudyError, "ST106"):
            asked()
    public = json.dumps(fitted.learned_values())
    assert not any(repr(float(weight)) in public for kept in fitted.kept_.values() for weight in kept.weights)
    rows = {name: fitted.kept_rows(name, table)[0] for name, table in people.tables().items()}
    kept = fitted.kept_
    expected = rows["left"] @ kept["left"].weights
    expected += kept["left"].factors["right"] * (rows["right"] @ kept["right"].weights)
    assert fitted.decision_function(people) == pytest.approx(expected, abs=1e-9)
    assert fitted.predict_proba(people)[:, 1] == pytest.approx(1 / (1 + np.exp(-expected)))
    assert np.array_equal(fitted.predict(people), fitted.classes_[(expected > 0).astype(int)])


def test_a_public_model_and_a_private_file_for_each_party(fitted, people, tmp_path):
    path = fitted.save(tmp_path / "model.json")
    own = {name: fitted.save_kept(tmp_path / f"{name}.json", name) for name in fitted.kept_}
    assert {os.stat(each).st_mode & 0o777 for each in own.values()} == {0o600}
    for target, name, said in (
        (tmp_path / "whose.json", None, "ST109"),
        (own["left"], "right", "ST112"),
        (path, "left", "ST112"),
    ):
        with raises(StudyError, said):
            fitted.save_kept(target, name)
    assert fitted.save_kept(own["left"], "left") == own["left"]
    with raises(StudyError, "ST073"):
        GLM(label="left.y").load_kept(own["left"])
    loaded = GLM.load(path)
    assert loaded.kept_ == {}
    assert loaded.load_kept(own["right"]) == "right"
    with raises(StudyError, "ST107", "left"):
        loaded.predict(people)
    loaded.load_kept(own["left"])
    assert np.array_equal(loaded.scores(people), fitted.scores(people))
    assert (loaded.guarantees_, loaded.protection_) == (fitted.guarantees_, fitted.protection_)


def test_kept_weights_of_another_fit_and_damaged_ones_are_refused(fitted, people, tmp_path):
    other = GLM(**fitted.get_params()).fit(people)
    path, theirs = (other.save_kept(tmp_path / f"{name}.json", name) for name in ("left", "right"))
    with raises(StudyError, "ST114"):
        fitted.load_kept(path)
    content = json.loads(path.read_text())
    row = content["weights"]
    broken = [
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
        {"spreads": {"far": 1.0}},
        {"spreads": {"right": -1.0}},
        {"spreads": {"right": None}},
    ]
    texts = [json.dumps(content | each) for each in broken]
    texts += ["no weights", json.dumps(json.loads(theirs.read_text()) | {"factors": {"left": 1.0}})]
    for text in texts:
        path.write_text(text)
        with raises(StudyError, "ST113|ST115|ST116|ST117|ST118|ST119"):
            other.load_kept(path)


def test_released_weights_serve_everybody(released, people, tmp_path):
    assert released.score(people) > 0.65
    again = Estimator.load(released.save(tmp_path / "model.json"))
    assert again.coefficients() == released.coefficients()
    tables = people.tables()
    scores = released.scores(tables)
    assert joint_scores(again, people, to="right", exact=True).scores == pytest.approx(scores, abs=1e-3)
    assert sum(released.partial(name, tables[name]) for name in tables) + released.intercept_ == pytest.approx(scores)
    frame = pd.DataFrame(encoded(people), columns=released.feature_names_in_)
    assert np.array_equal(released.to_sklearn().predict(frame), released.predict(people))


def test_a_file_for_others_says_how_counts_are_scored(tmp_path):
    """A family with a region, which comes back as it was."""
    asked = {"family": "gamma", "family_options": {"region": (0.0, 3.0)}, "epochs": 1, "message_clip": 3.0}
    people = together("gamma", 300)
    model = nearly_exact(GLM(label="left.y", release=True, rows=300, **asked), people, 300)
    assert GLM.load(model.save(tmp_path / "model.json")).family_ == model.family_
    frame = pd.DataFrame(encoded(people), columns=model.feature_names_in_)
    theirs, ours, family = model.to_sklearn().predict(frame), model.predict(people), model.to_json()["family"]
    inside = (ours > ours.min()) & (ours < ours.max())
    assert theirs[inside] == pytest.approx(ours[inside])
    assert (family["name"], family["scale"], list(family["region"])) == ("gamma", model.family_.scale, [0.0, 3.0])
    assert "0.0 at least and 3.0 at most" in model.to_json()["how_to_score"]


# --- what is promised


def test_guarantees_have_a_row_for_everything(fitted, released):
    kept = fitted.guarantees_
    by = {(row.what, row.observer): row for row in kept}
    for owner, others in (("left", "right"), ("right", "left")):
        messages = by[f"messages of {owner}", f"anybody but {owner}"]
        joint = by["kept weights of all others", f"all but {owner}, together"]
        assert messages.epsilon == joint.epsilon == pytest.approx(fitted.privacy_.epsilon(others))
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


def test_all_that_leaves_a_party_costs_what_its_releases_cost_together():
    """What an exchange tells about one party's columns, against the exact curve of a Gaussian of that size."""
    apart, square = Trust(("bank", "shop", "clinic"), (), 0), 10**12
    events = []
    for name, owner, variance in (("slopes", "bank", 4), ("scores", "shop", 4), ("weights", "shop", 1)):
        others = tuple(each for each in apart.owners if each != owner)
        shares, figures = ((owner, Fraction(variance * square)),), (square,) * 4
        about = {"theorem": "alternating-fits", "audience": others, "about": (owner,)}
        events.append(DiscreteGaussianRelease(f"{name} of {owner}", shares, 5, *figures, **about))
    statement = Statement.of(events, apart, 1e-6)
    found = protection(statement)
    assert found["bank"] == pytest.approx(gaussian_epsilon((1 / 4) ** 0.5, 1e-6), rel=1e-6)
    assert found["shop"] == pytest.approx(gaussian_epsilon((1 / 4 + 1) ** 0.5, 1e-6), rel=1e-6)
    assert found["clinic"] == 0
    rows = {(row.what, row.observer): row.epsilon for row in Guarantees.of(statement)}
    assert rows["messages of shop", "anybody but shop"] == pytest.approx(found["bank"])
    assert rows["messages and released weights of shop", "anybody, the analyst too"] == found["shop"]
    everything = gaussian_epsilon((1 / 4 + 1 / 4 + 1) ** 0.5, 1e-6)
    assert rows["all messages", "eavesdropper on every channel"] == pytest.approx(everything, rel=1e-6)


def test_a_simulation_is_a_fit_in_one_place(people):
    model = GLM(epsilon=30.0, label="left.y", epochs=1).simulate(people.tables(), people.roster)
    assert model.score(people, exact=True) > 0.73
    task = GLM(epsilon=30.0, label="left.y", epochs=1, rows=600).plan(people.roster)
    assert isinstance(task, Exchange)
    assert model.plan_ == task.facts | {"senders": glm_plan.senders(task), "fit": ""}


# --- metrics


def test_metrics():
    assert accuracy(np.array([1, 0, 1]), np.array([1, 1, 1])) == pytest.approx(2 / 3)
    assert area(np.array([True, False, True, False]), np.array([3.0, 1.0, 2.0, 2.0])) == pytest.approx(0.875)
    assert area(np.array([True, True]), np.array([1.0, 2.0])) == 0.5
    true, constant = np.array([1.0, 2.0, 6.0]), np.full(3, 3.0)
    for family in ("linear", "poisson", "gamma"):
        assert (explained(family, true, true), explained(family, true, constant)) == pytest.approx((1.0, 0.0))
    assert explained("linear", true, np.array([2.0, 2.0, 5.0])) == pytest.approx(1 - 2 / 14)


# --- the page


PARTIES = ("bank", "shop", "clinic")


def test_the_page_says_who_sent_what_and_holds_no_weight_that_a_party_keeps(released):
    people = population(80)
    roster = Roster.of({name: people.schemas[name] for name in PARTIES})
    model = GLM(label="bank.default", epsilon=5.0, rows=80)
    model.simulate({name: people.table(name) for name in PARTIES}, roster)
    kept, model.kept_ = model.kept_, {}
    text = rendered(make_run() | {"task": {"kind": "glm", **model.plan_}}, model.privacy_, model)
    words = Page(text).words
    assert "bank, shop and clinic computed one logistic model over noised messages on 39 columns" in words
    assert words.count("noisy slopes of bank") == 2
    for word in (
        *("noisy scores of shop and clinic", "eavesdropper on every channel", "in its kept.json and nowhere else"),
        *("largest epsilon short of all parties together", *(row.what for row in model.guarantees_[:7])),
        *(format_rounded_up(row.epsilon, 3) for row in model.guarantees_[:7]),
        *(f"{model.plan_['deviations'][name]:,.4g}" for name in PARTIES),
    ):
        assert word in words
    for absent in ("threshold", "committee", "share", "Coefficients"):
        assert absent not in words.replace("threshold of", "")
    assert not [own for each in kept.values() for own in each.weights if f"{abs(float(own)):.6f}" in text]
    model.plan_ = {name: fact for name, fact in model.plan_.items() if name not in ("sides", "deviations")}
    assert "Who saw what" in Page(rendered({}, model.privacy_, model)).words  # a record that lacks things makes a page
    words = Page(rendered(make_run() | {"task": {"kind": "glm", **released.plan_}}, released.privacy_, released)).words
    for word in ("Coefficients", "messages and released weights of right", "everyone's, with noise"):
        assert word in words
