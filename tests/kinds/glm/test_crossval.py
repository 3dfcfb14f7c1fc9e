from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from colonnade import Federation, Party, Schema, flag, number
from colonnade.errors import StudyError
from colonnade.kinds.glm import crossval
from colonnade.kinds.glm.crossval import CrossValidation, cross_validate
from colonnade.models.metrics import accuracy, area, explained
from colonnade.protocols.roles import Role
from tests.support.errors import raises

pd = pytest.importorskip("pandas")

UNIT = number(-1, 1)
CANDIDATES = {"one": {"epochs": 1}, "two": {"epochs": 2, "strength": 0.05}}


def federation(rows=240, seed=0):
    rng = np.random.default_rng(seed)
    a, b, c = rng.uniform(-1, 1, (3, rows))
    ids = [f"p{k:04d}" for k in range(rows)]
    score = 2 * a + b - 3 * c
    left = {"id": ids, "a": a, "b": b, "y": rng.random(rows) < 1 / (1 + np.exp(-score)), "n": score}
    schema = Schema({"a": UNIT, "b": UNIT, "y": flag(), "n": number(-6, 6)})
    return Federation(
        [
            Party("left", pd.DataFrame(left), schema=schema, id="id"),
            Party("right", pd.DataFrame({"id": ids, "c": c}), schema=Schema({"c": UNIT}), id="id"),
        ]
    )


@pytest.fixture(scope="module")
def people():
    return federation()


@pytest.fixture(scope="module")
def told():
    """How often everybody told something, over all runs."""
    return Counter()


@pytest.fixture(scope="module")
def found(people, told):
    with pytest.MonkeyPatch.context() as patch:
        plain = Role.tell

        def counted(me, to, kind, values, *, event):
            told[event] += 1
            plain(me, to, kind, values, event=event)

        patch.setattr(Role, "tell", counted)
        return cross_validate(people, CANDIDATES, label="left.y", epsilon=60.0, folds=2, metric="auc")


def test_there_is_a_value_for_every_candidate_and_fold(found):
    assert isinstance(found, CrossValidation)
    assert [each.name for each in found.candidates] == ["one", "two"]
    assert all(len(each.values) == 2 and all(0 <= value <= 1 for value in each.values) for each in found.candidates)
    assert found.best.mean == max(each.mean for each in found.candidates)
    assert max(each.mean for each in found.candidates) > 0.6
    assert (found.runs, found.rows, found.active) == (4, 240, "left")


def test_everything_that_was_told_is_in_the_statement(found, told):
    listed = Counter(found.privacy_.events)
    assert told
    assert set(told) <= set(listed)
    assert all(told[event] <= 2 * listed[event] for event in told)  # once or, with two epochs, twice
    # Two candidates, two folds: a fit of two senders, and a question with two events, each.
    assert sum(listed.values()) == 4 * (2 + 2)


def test_all_of_it_together_keeps_the_budget(found):
    assert found.privacy_.epsilon("left") == pytest.approx(60.0, rel=1e-3)
    assert found.privacy_.epsilon("left") <= 60.0
    assert found.privacy_.epsilon("right") <= 60.0
    assert found.multiplier > 2 * found.alone  # four fits and four questions share what one fit would have
    assert any("goes on with" in text for text in found.privacy_.assumptions)


def test_a_result_reads_well(found):
    text = str(found)
    assert f"{found.best.mean:.4f}  best" in text
    assert "4 fits and as many questions" in text
    assert json.loads(json.dumps(found.to_dict()))["best"] == found.best.name


def test_folds_are_fixed_and_public_and_leave_nobody_out(people):
    table = people.tables()["left"]
    held = [crossval._part(table, fold, 3, held=True) for fold in range(3)]
    assert sorted(name for part in held for name in part.ids) == table.ids
    assert held[1].ids == table.ids[1::3]
    for fold, part in enumerate(held):
        rest = crossval._part(table, fold, 3, held=False)
        assert not set(rest.ids) & set(part.ids)
        assert rest.rows + part.rows == table.rows


def test_numbers_are_compared_by_their_loss_and_equals_are_nearly_equal(people):
    near = {"one": {"message_clip": 4.0}, "two": {"message_clip": 4.1}}
    found = cross_validate(people, near, label="left.n", epsilon=5.0, folds=2, epochs=1, family="linear")
    assert found.metric == "loss"
    one, two = (each.mean for each in found.candidates)
    assert 0 < min(one, two) < 0.2
    assert abs(one - two) < 0.02  # scores that are all noise count for nothing


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"candidates": {}}, "ST101"),
        ({"candidates": ["epochs"]}, "ST101"),
        ({"candidates": {"one": 3}}, "ST102"),
        ({"candidates": {"one": {"epoch": 3}}}, ("ST136", "epochs")),
        ({"candidates": {"one": {"epsilon": 3.0}}}, "ST136"),
        ({"candidates": {"one": {"release": True}}}, "ST136"),
        ({"candidates": {"one": {"epochs": 0}}}, ("ST150", "epochs")),
        ({"family": "linaer"}, ("ST136", "linear")),
        ({"metric": "acuracy"}, ("ST136", "accuracy")),
        ({"metric": "loss"}, "ST103"),
        ({"metric": "auc", "label": "left.n", "family": "linear"}, "ST105"),
        ({"candidates": {"one": {"family": "linear"}, "two": {"family": "logistic"}}}, "ST104"),
        ({"folds": 1}, ("ST150", "folds")),
        ({"folds": 241}, ("ST150", "folds")),
        ({"people": None}, "ST100"),
    ],
)
def test_what_makes_no_sense_is_refused(people, change, said):
    asked = {"people": people, "candidates": CANDIDATES, "label": "left.y", "epsilon": 1.0} | change
    with raises(StudyError, said):
        cross_validate(**asked)


def test_metrics():
    assert accuracy(np.array([1, 0, 1]), np.array([1, 1, 1])) == pytest.approx(2 / 3)
    assert area(np.array([True, False, True, False]), np.array([3.0, 1.0, 2.0, 2.0])) == pytest.approx(0.875)
    assert area(np.array([True, True]), np.array([1.0, 2.0])) == 0.5
    true = np.array([1.0, 2.0, 6.0])
    for family in ("linear", "poisson", "gamma"):
        assert explained(family, true, true) == pytest.approx(1.0)
        assert explained(family, true, np.full(3, 3.0)) == pytest.approx(0.0)
    assert explained("linear", true, np.array([2.0, 2.0, 5.0])) == pytest.approx(1 - 2 / 14)


def test_chances_are_compared_by_their_log_loss(people):
    found = cross_validate(people, {"one": {}}, label="left.y", epsilon=60.0, folds=2, epochs=1, metric="log-loss")
    assert found.best.name == "one"
    assert 0 < found.best.mean < 0.8  # a chance of one half for everybody has 0.693
    assert max(found.best.values) < 1
