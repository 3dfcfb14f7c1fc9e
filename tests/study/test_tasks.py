"""Every kind of task in a study file: what is refused when the file is read, before anything is made or sent."""

from __future__ import annotations

import pytest

from colonnade.errors import StudyError
from colonnade.models.design import owner_of
from colonnade.study import Study
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


@pytest.mark.parametrize("task", [LOGISTIC, LINEAR, GLM, POLYNOMIAL], ids=["logistic", "linear", "glm", "polynomial"])
def test_every_key_must_be_known(read, task):
    assert read(task).content.budget.epsilon == 1.0
    with raises(StudyError, "ST595", "task.solver"):
        read(task + "solver = 1\n")


@pytest.mark.parametrize(
    ("task", "message"),
    [
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
