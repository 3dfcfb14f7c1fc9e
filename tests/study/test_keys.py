"""``[task]``: keys that follow from constructors, and what marks on parameters mean in a file."""

from __future__ import annotations

import inspect

import pytest
from pydantic import ValidationError

from colonnade.errors import StudyError
from colonnade.models import registry
from colonnade.models.parameters import LIMITS_ROWS, NAMES_LABEL
from colonnade.study.keys import keys_of, parse_task
from tests.support.errors import raises

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
each = pytest.mark.parametrize("kind", [row.kind for row in registry.rows()])


def read(kind, **keys):
    return parse_task({"kind": kind, **LEAST[kind], **keys}, "study.toml")


@each
def test_keys_are_the_parameters_of_the_constructor_without_the_budget(kind):
    parameters = inspect.signature(registry.load(kind)).parameters
    assert list(keys_of(kind).model_fields) == [
        "kind",
        *(name for name in parameters if name not in ("epsilon", "delta")),
    ]


@each
def test_what_a_file_leaves_out_is_the_default_of_the_constructor(kind):
    task, parameters = read(kind), inspect.signature(registry.load(kind)).parameters
    assert task.kind == kind
    for name, value in task.parameters_given.items():
        if name in LEAST[kind]:
            assert value == LEAST[kind][name] or list(value) == LEAST[kind][name]
        else:
            assert value == ELSE.get((kind, name), parameters[name].default)


@each
def test_what_a_file_must_say_is_missed_by_name(kind):
    for name in LEAST[kind]:
        given = {key: value for key, value in LEAST[kind].items() if key != name}
        with pytest.raises(ValidationError) as caught:
            parse_task({"kind": kind, **given}, "study.toml")
        assert [(error["type"], error["loc"]) for error in caught.value.errors()] == [("missing", (name,))]


@each
@pytest.mark.parametrize("key", ["epsilon", "delta", "colour"])
def test_unknown_keys_and_those_of_the_budget_are_refused(kind, key):
    with pytest.raises(ValidationError) as caught:
        read(kind, **{key: 1})
    assert [(error["type"], error["loc"]) for error in caught.value.errors()] == [("extra_forbidden", (key,))]


def test_an_unknown_kind_is_refused_with_the_list():
    with raises(StudyError, "ST557", "study.toml", "pca", "linear", "logistic"):
        parse_task({"kind": "tree"}, "study.toml")
    with raises(StudyError, "ST556", "study.toml"):
        parse_task({}, "study.toml")
    with pytest.raises(ValidationError):
        parse_task("pca", "study.toml")


def test_keys_are_made_once():
    assert keys_of("glm") is keys_of("glm")


@pytest.mark.parametrize("value", ["true", 1, "yes"])
def test_a_strict_truth_is_nothing_but_true_or_false(value):
    with pytest.raises(ValidationError, match="valid boolean"):
        read("glm", release=value)
    assert read("glm", release=True).parameters_given["release"] is True
    assert read("pca", center=value).parameters_given["center"] is True  # this one is not strict


@pytest.mark.parametrize(
    ("kind", "key"),
    [("glm", "strength"), ("glm", "message_clip"), ("logistic", "learning_rate"), ("sketch", "clip")],
)
def test_positive_numbers_are_finite_and_above_zero(kind, key):
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValidationError, match=key):
            read(kind, **{key: wrong})
    assert read(kind, **{key: 0.25}).parameters_given[key] == 0.25


@pytest.mark.parametrize(("key", "low", "high"), [("l1_ratio", 0.0, 1.0)])
def test_numbers_within_limits_include_their_ends(key, low, high):
    for right in (low, high):
        assert read("glm", **{key: right}).parameters_given[key] == right
    for wrong in (low - 0.1, high + 0.1, float("nan")):
        with pytest.raises(ValidationError, match=key):
            read("glm", **{key: wrong})


def test_a_ridge_is_auto_or_a_finite_number():
    assert [read("linear", ridge=value).parameters_given["ridge"] for value in ("auto", 0.0, 2)] == ["auto", 0.0, 2.0]
    for wrong in (float("inf"), float("nan"), -1.0, "some"):
        with pytest.raises(ValidationError, match="ridge"):
            read("linear", ridge=wrong)


@pytest.mark.parametrize("kind", ["linear", "logistic", "glm", "split-classifier", "split-regressor"])
def test_a_label_is_written_party_and_column(kind):
    for wrong in ("y", ".y", "a.", "", None, 3):
        with pytest.raises(ValidationError, match="label"):
            read(kind, label=wrong)
    assert read(kind, label="a.b.y").parameters_given["label"] == "a.b.y"


def test_keys_that_name_parties_are_found():
    assert read("prediction").parties_named == {"to": ("a",)}
    assert read("linear").parties_named == {"epsilon_by_party": ()}
    assert read("linear", epsilon_by_party={"b": 1, "a": 0.5}).parties_named == {"epsilon_by_party": ("b", "a")}
    assert read("pca").parties_named == {}


@pytest.mark.parametrize("wrong", [{}, {"a": 0.0}, {"a": -1.0}, {"a": float("inf")}, {"a": "much"}, 3])
def test_an_epsilon_of_a_party_is_positive(wrong):
    with pytest.raises(ValidationError, match="epsilon_by_party"):
        read("linear", epsilon_by_party=wrong)


def test_encoders_are_specifications_by_party_and_never_code():
    given = {"b": {"kind": "cosine", "width": 8}, "a": {"kind": "own", "width": 4}}
    task = read("split-classifier", encoders=given)
    assert task.parameters_given["encoders"] == given
    assert task.parties_named == {"encoders": ("b", "a")}
    for wrong in (3, {"b": "cosine"}, ["cosine"]):
        with pytest.raises(ValidationError, match="encoders"):
            read("split-classifier", encoders=wrong)
    code = {"kind": "module", "make": "somewhere.else:function"}
    for spec in (code, {"kind": "linear", "width": 2, "over": code}):
        with raises(ValidationError, "VA066"):
            read("split-classifier", encoders={"b": spec})


def test_a_task_may_set_its_own_price():
    assert read("linear").own_price is read("prediction").own_price is read("glm").own_price is None
    assert read("linear", epsilon_by_party={"a": 1.0}).own_price == "epsilon_by_party"
    assert read("prediction", exact=True).own_price == read("split-scores", exact=True).own_price == "exact = true"
    assert read("split-classifier", per_release=0.5).own_price == "per_release"


def test_the_most_rows_that_a_file_states():
    assert read("glm", rows=70).marked(LIMITS_ROWS) == 70
    assert read("pca", rows_at_most=80).marked(LIMITS_ROWS) == 80
    assert read("logistic", rows=70, rows_at_most=90).marked(LIMITS_ROWS) == 90
    assert read("polynomial").marked(NAMES_LABEL) is None


def test_options_of_a_family_know_their_keys():
    options = read("glm", family_options={"reach": 2.0}).parameters_given["family_options"]
    assert options["reach"] == 2.0
    with pytest.raises(ValidationError, match=r"family_options\.range"):
        read("glm", family_options={"range": 1.0})
    with pytest.raises(ValidationError, match=r"family_options\.clip"):
        read("glm", family_options={"clip": 0.0})
