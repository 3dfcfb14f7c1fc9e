"""``[task]`` of a study file: keys that follow from constructors, what is refused when it is read, and one price."""

from __future__ import annotations

import inspect

import pytest
from pydantic import ValidationError

from colonnade.errors import StudyError
from colonnade.models import registry
from colonnade.models.design import owner_of
from colonnade.models.parameters import LIMITS_ROWS, NAMES_LABEL
from colonnade.study import Study
from colonnade.study.keys import keys_of, parse_task
from colonnade.tables import Schema, flag, number
from tests.support.errors import raises

TAIL = """
[coordinator]
address = "127.0.0.1:7000"
[parties.a]
schema = "a.toml"
[parties."a.b"]
schema = "ab.toml"
columns = ["y"]
[parties.c]
schema = "c.toml"
"""
LOGISTIC = '[task]\nkind = "logistic"\nlabel = "a.hit"\n'
LINEAR = '[task]\nkind = "linear"\nlabel = "a.x"\n'
GLM = '[task]\nkind = "glm"\nlabel = "a.hit"\nrows = 50\n'
POLYNOMIAL = '[task]\nkind = "polynomial"\nexpressions = ["a.x * c.z"]\n'
PREDICTION = '[task]\nkind = "prediction"\nmodel = "model.json"\nto = "a"\n'
BUDGET = "[budget]\nepsilon = 1.0\n"
BY_PARTY = "epsilon_by_party = { a = 1.0, 'a.b' = 0.5, c = 2.0 }\n"


@pytest.fixture
def read(tmp_path):
    Schema({"x": number(0, 1), "hit": flag()}).save(tmp_path / "a.toml")
    Schema({"y": number(0, 1), "late": flag()}).save(tmp_path / "ab.toml")
    Schema({"z": number(-1, 1)}).save(tmp_path / "c.toml")

    def load(task: str, budget: str = BUDGET) -> Study:
        (tmp_path / "STUDY.toml").write_text(f'name = "s"\n{task}{budget}{TAIL}')
        return Study.load(tmp_path / "STUDY.toml")

    return load


@pytest.mark.parametrize(
    ("task", "message"),
    [
        *((task + "solver = 1\n", ("ST595", "task.solver")) for task in (LOGISTIC, LINEAR, GLM, POLYNOMIAL)),
        (LOGISTIC.replace('label = "a.hit"\n', ""), ("ST595", "task.label")),
        (LOGISTIC.replace("a.hit", "hit"), ("VA029", "task.label")),
        (LOGISTIC.replace("a.hit", "q.hit"), ("ST596", "q.hit")),
        (
            LOGISTIC.replace("a.hit", "c.hit"),
            ("ST597", "c", "'hit'", "a.hit"),
        ),
        (
            LOGISTIC.replace("a.hit", "a.b.late"),
            ("ST597", "a.b", "late", "y"),
        ),
        (LOGISTIC + 'method = "magic"\n', ("ST595", "task.method")),
        (LOGISTIC + "expansion = 2\n", ("ST595", "task.expansion")),
        (LOGISTIC + "rate = 0.0\n", ("ST595", "task.rate")),
        (LOGISTIC + "threshold = 2\n", ("ST174", "2")),
        (GLM + 'threshold = "high"\n', ("ST174", "high")),
        (LOGISTIC + "rate = 1.5\n", ("ST595", "task.rate")),
        (LOGISTIC + "epochs = 0\n", ("ST595", "task.epochs")),
        (LOGISTIC + 'sampling = "full"\n', ("ST595", "task.sampling")),
        (LOGISTIC + "learning_rate = inf\n", ("ST595", "task.learning_rate")),
        (LOGISTIC + "ridge = -1.0\n", "ST595"),
        (LOGISTIC + 'ridge = "some"\n', "ST595"),
        (LINEAR + 'method = "sqm"\n', ("ST595", "task.method")),
        (LINEAR + "rows = 5\n", ("ST595", "task.rows")),
        (GLM.replace("rows = 50\n", ""), ("ST595", "task.rows")),
        (GLM.replace("50", "0"), ("ST595", "task.rows")),
        (GLM.replace("a.hit", "hit"), ("VA029", "task.label")),
        (GLM + 'family = "normal"\n', ("ST595", "task.family")),
        (GLM + 'penalty = "l3"\n', ("ST595", "task.penalty")),
        (GLM + 'method = "sqm"\n', ("ST595", "task.method")),
        (GLM + "strength = 0.0\n", ("ST595", "task.strength")),
        (GLM + "l1_ratio = 1.5\n", ("ST595", "1")),
        (GLM + "epochs = 0\n", ("ST595", "task.epochs")),
        (GLM + "batch = 0\n", ("ST595", "task.batch")),
        (GLM + "learning_rate = nan\n", ("ST595", "task.learning_rate")),
        (GLM + "message_clip = -1.0\n", ("ST595", "task.message_clip")),
        (GLM + "patience = 0\n", ("ST595", "task.patience")),
        (GLM + "release = 1\n", ("ST595", "task.release")),
        (GLM + "rows_at_most = 5\n", ("ST595", "task.rows_at_most")),
        (GLM + "family_options = { range = 1.0 }\n", ("ST595", "task.family_options.range")),
        (GLM + "family_options = { reach = 0.0 }\n", ("ST595", "task.family_options.reach")),
        (GLM + "family_options = { region = [0.0] }\n", "ST595"),
        (POLYNOMIAL.replace('["a.x * c.z"]', "[]"), ("ST595", "task.expressions")),
        (POLYNOMIAL + 'rounding = "down"\n', ("ST595", "task.rounding")),
        (PREDICTION.replace('"a"', '"q"'), ("VA225", "q")),
        (PREDICTION.replace('to = "a"\n', ""), ("ST595", "task.to")),
        (PREDICTION, ("ST098", "model.json")),
    ],
)
def test_what_is_wrong_in_a_task_is_named(read, task, message):
    with raises(StudyError, message):
        read(task)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('method = "alternating"\npenalty = "l1"\n', "ST133"),
        ("learning_rate = 0.1\n", "ST134"),
        ('method = "gradient"\nbatch = 51\n', "ST132"),
        ('family = "poisson"\n', "ST468"),
        ("family_options = { clip = 1.0 }\n", ("ST461", "clip")),
    ],
)
def test_keys_of_a_model_over_messages_must_fit_together(read, more, message):
    with raises(StudyError, message):
        read(GLM + more).digest  # noqa: B018 - planning refuses it


def test_every_key_of_a_model_over_messages_reaches_its_task(read):
    steps = 'method = "gradient"\npenalty = "elastic-net"\nstrength = 0.02\nl1_ratio = 0.25\nepochs = 3\nbatch = 25\n'
    steps += (
        "learning_rate = 0.1\nweight_bound = 2.0\nscore_clip = 1.5\nmessage_clip = 4.0\npatience = 2\nrelease = true\n"
    )
    task = read(GLM + steps + "family_options = { reach = 2.5 }\n").task
    assert (task.rows, task.method, task.epochs, task.batches, task.patience) == (50, "gradient", 3, 2, 2)
    assert (task.learning_rate, task.message_clip, task.release, task.family.reach) == (0.1, 4.0, True, 2.5)
    assert (task.l1, task.prox_ridge) == (0.02 * 0.25, 0.02 * 0.75)
    assert {(side.weight_bound, side.score_clip) for side in task.sides} == {(2.0, 1.5)}
    assert len(task.events) == 6


def test_a_label_is_split_at_the_longest_party(read):
    assert owner_of("a.b.late", ["a", "a.b"]) == ("a.b", "late")
    assert owner_of("a.hit", ["a", "a.b"]) == ("a", "hit")
    assert owner_of("hit", ["a", "a.b"]) == (None, "hit")
    assert read(LOGISTIC.replace("a.hit", "a.b.y")).content.task.label == "a.b.y"


@pytest.mark.parametrize(
    ("task", "budget", "message"),
    [
        (LOGISTIC, "", ("VA234", "STUDY.toml")),
        (LOGISTIC, "[budget]\ndelta = 1e-6\n", ("VA234", "STUDY.toml")),
        (LOGISTIC + BY_PARTY, BUDGET, ("VA233", "epsilon_by_party")),
        (PREDICTION + "exact = true\n", BUDGET, "VA233"),
        (PREDICTION + "exact = false\n", "", "VA234"),
        (LOGISTIC + "epsilon_by_party = { q = 1.0 }\n", "", ("VA225", "epsilon_by_party", "q")),
        (LOGISTIC + "epsilon_by_party = { a = -1.0 }\n", "", ("PR065", "task.epsilon_by_party")),
        (LOGISTIC + "epsilon_by_party = { a = true }\n", "", ("PR064", "task.epsilon_by_party")),
        (LOGISTIC + "epsilon_by_party = {}\n", "", ("ST595", "task.epsilon_by_party")),
    ],
)
def test_a_study_has_one_price(read, task, budget, message):
    with raises(StudyError, message):
        read(task, budget)


def test_parties_may_set_the_price(read):
    study = read(LOGISTIC + 'method = "functional"\n' + BY_PARTY, "[budget]\ndelta = 1e-6\n")
    assert study.budgets == ()
    assert study.content.task.epsilon_by_party == {"a": 1.0, "a.b": 0.5, "c": 2.0}


# --- keys follow from constructors

LEAST = {
    "pca": {},
    "linear": {"label": "a.y"},
    "logistic": {"label": "a.y"},
    "glm": {"label": "a.y", "rows": 50},
    "glm-scores": {"model": "model.json"},
    "polynomial": {"expressions": ["a.x * b.y"]},
    "prediction": {"model": "model.json", "to": "a"},
    "synthetic": {},
    "split-classifier": {"label": "a.y"},
    "split-regressor": {"label": "a.y"},
    "split-scores": {"model": "model.json"},
    "sketch": {"rounds": 2, "rows": 100, "dimension": 3},
}
"""What a file must say, by kind."""
ELSE = {("glm-scores", "rows_at_most"): 2**20}
"""Defaults in a file where the constructor has none."""
NAN, INFINITE = float("nan"), float("inf")
CODE = {"kind": "module", "make": "somewhere.else:function"}


def parsed(kind, **keys):
    return parse_task({"kind": kind, **LEAST[kind], **keys}, "study.toml")


@pytest.mark.parametrize("kind", [row.kind for row in registry.rows()])
def test_keys_are_the_parameters_of_the_constructor_without_the_budget(kind):
    parameters = inspect.signature(registry.load(kind)).parameters
    known = [name for name in parameters if name not in ("epsilon", "delta")]
    assert list(keys_of(kind).model_fields) == ["kind", *known]
    task = parsed(kind)
    assert task.kind == kind
    for name, value in task.parameters_given.items():
        if name in LEAST[kind]:
            assert value == LEAST[kind][name] or list(value) == LEAST[kind][name]
        else:
            assert value == ELSE.get((kind, name), parameters[name].default)
    without = [{key: value for key, value in LEAST[kind].items() if key != name} for name in LEAST[kind]]
    missing = [("missing", name, given) for name, given in zip(LEAST[kind], without, strict=True)]
    unknown = [("extra_forbidden", key, LEAST[kind] | {key: 1}) for key in ("epsilon", "delta", "colour")]
    for error, name, given in missing + unknown:
        with pytest.raises(ValidationError) as caught:
            parse_task({"kind": kind, **given}, "study.toml")
        assert [(each["type"], each["loc"]) for each in caught.value.errors()] == [(error, (name,))]


def test_an_unknown_kind_is_refused_with_the_list():
    with raises(StudyError, "ST557", "study.toml", "pca", "linear", "logistic"):
        parse_task({"kind": "tree"}, "study.toml")
    with raises(StudyError, "ST556", "study.toml"):
        parse_task({}, "study.toml")
    with pytest.raises(ValidationError):
        parse_task("pca", "study.toml")
    assert keys_of("glm") is keys_of("glm"), "keys are made once"


POSITIVE = (0.0, -1.0, INFINITE, NAN)
NO_LABELS = ("y", ".y", "a.", "", None, 3)


@pytest.mark.parametrize(
    ("kind", "key", "wrong", "right"),
    [
        ("glm", "release", ("true", 1, "yes"), (True,)),  # a strict truth
        ("pca", "center", (), (True, "true", 1, "yes")),  # which this one is not
        *((kind, key, POSITIVE, (0.25,)) for kind, key in (("glm", "strength"), ("glm", "message_clip"))),
        *((kind, key, POSITIVE, (0.25,)) for kind, key in (("logistic", "learning_rate"), ("sketch", "clip"))),
        ("glm", "l1_ratio", (-0.1, 1.1, NAN), (0.0, 1.0)),
        ("linear", "ridge", (INFINITE, NAN, -1.0, "some"), ("auto", 0.0, 2)),
        *((kind, "label", NO_LABELS, ("a.b.y",)) for kind in ("linear", "logistic", "glm")),
        *((kind, "label", NO_LABELS, ("a.b.y",)) for kind in ("split-classifier", "split-regressor")),
        ("linear", "epsilon_by_party", ({}, {"a": 0.0}, {"a": -1.0}, {"a": INFINITE}, {"a": "much"}, 3), ()),
        ("split-classifier", "encoders", (3, {"b": "cosine"}, ["cosine"]), ({"b": {"kind": "cosine", "width": 8}},)),
        ("glm", "family_options", ({"range": 1.0}, {"clip": 0.0}), ()),
    ],
)
def test_marks_on_parameters_say_what_a_value_may_be(kind, key, wrong, right):
    for value in wrong:
        with pytest.raises(ValidationError, match=key):
            parsed(kind, **{key: value})
    for value in right:
        assert parsed(kind, **{key: value}).parameters_given[key] == (True if key == "center" else value)


def test_encoders_are_specifications_and_never_code():
    for spec in (CODE, {"kind": "linear", "width": 2, "over": CODE}):
        with raises(ValidationError, "VA066"):
            parsed("split-classifier", encoders={"b": spec})


def test_marks_on_parameters_are_found():
    """Parties that are named, a task's own price, and the most rows."""
    assert parsed("prediction").parties_named == {"to": ("a",)}
    assert parsed("linear").parties_named == {"epsilon_by_party": ()}
    assert parsed("linear", epsilon_by_party={"b": 1, "a": 0.5}).parties_named == {"epsilon_by_party": ("b", "a")}
    given = {"b": {"kind": "cosine", "width": 8}, "a": {"kind": "own", "width": 4}}
    assert parsed("split-classifier", encoders=given).parties_named == {"encoders": ("b", "a")}
    assert parsed("pca").parties_named == {}
    assert {parsed(kind).own_price for kind in ("linear", "prediction", "glm")} == {None}
    assert parsed("linear", epsilon_by_party={"a": 1.0}).own_price == "epsilon_by_party"
    assert parsed("prediction", exact=True).own_price == parsed("split-scores", exact=True).own_price == "exact = true"
    assert parsed("split-classifier", per_release=0.5).own_price == "per_release"
    assert parsed("glm", rows=70).marked(LIMITS_ROWS) == 70
    assert parsed("pca", rows_at_most=80).marked(LIMITS_ROWS) == 80
    assert parsed("logistic", rows=70, rows_at_most=90).marked(LIMITS_ROWS) == 90
    assert parsed("polynomial").marked(NAMES_LABEL) is None
    assert parsed("glm", family_options={"reach": 2.0}).parameters_given["family_options"]["reach"] == 2.0
