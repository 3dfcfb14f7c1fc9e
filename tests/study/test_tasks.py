"""Every kind of task in a study file: what is refused when the file is read, before anything is made or sent."""

from __future__ import annotations

import pytest

from colonnade.errors import StudyError
from colonnade.models.design import owner_of
from colonnade.study import Study
from colonnade.tables import Schema, flag, number

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
    with pytest.raises(StudyError, match=r"task\.solver is not a key"):
        read(task + "solver = 1\n")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (LOGISTIC.replace('label = "a.hit"\n', ""), r"task\.label is missing"),
        (LOGISTIC.replace("a.hit", "hit"), r"task\.label must be written party\.column"),
        (LOGISTIC.replace("a.hit", "q.hit"), r"task\.label names 'q\.hit'"),
        (
            LOGISTIC.replace("a.hit", "c.hit"),
            r"task\.label - c brings no column 'hit' to this study; did you mean 'a\.hit'",
        ),
        (
            LOGISTIC.replace("a.hit", "a.b.late"),
            r"a\.b brings no column 'late' to this study; those it brings are .+: add it",
        ),
        (LOGISTIC + 'method = "magic"\n', r"task\.method"),
        (LOGISTIC + "expansion = 2\n", r"task\.expansion"),
        (LOGISTIC + "rate = 0.0\n", r"task\.rate"),
        (LOGISTIC + "threshold = 2\n", r'task\.threshold must lie between 0 and 1, or be "balanced", not 2$'),
        (GLM + 'threshold = "high"\n', r'task\.threshold must lie between 0 and 1, or be "balanced", not \'high\'$'),
        (LOGISTIC + "rate = 1.5\n", r"task\.rate"),
        (LOGISTIC + "epochs = 0\n", r"task\.epochs"),
        (LOGISTIC + 'sampling = "full"\n', r"task\.sampling"),
        (LOGISTIC + "learning_rate = inf\n", r"task\.learning_rate"),
        (LOGISTIC + "ridge = -1.0\n", r"task\.ridge"),
        (LOGISTIC + 'ridge = "some"\n', r"task\.ridge"),
        (LINEAR + 'method = "sqm"\n', r"task\.method"),
        (LINEAR + "rows = 5\n", r"task\.rows is not a key"),
        (GLM.replace("rows = 50\n", ""), r"task\.rows is missing"),
        (GLM.replace("50", "0"), r"task\.rows"),
        (GLM.replace("a.hit", "hit"), r"task\.label must be written party\.column"),
        (GLM + 'family = "normal"\n', r"task\.family"),
        (GLM + 'penalty = "l3"\n', r"task\.penalty"),
        (GLM + 'method = "sqm"\n', r"task\.method"),
        (GLM + "strength = 0.0\n", r"task\.strength"),
        (GLM + "l1_ratio = 1.5\n", r"task\.l1_ratio"),
        (GLM + "epochs = 0\n", r"task\.epochs"),
        (GLM + "batch = 0\n", r"task\.batch"),
        (GLM + "learning_rate = nan\n", r"task\.learning_rate"),
        (GLM + "message_clip = -1.0\n", r"task\.message_clip"),
        (GLM + "patience = 0\n", r"task\.patience"),
        (GLM + "release = 1\n", r"task\.release must be true or false"),
        (GLM + "rows_at_most = 5\n", r"task\.rows_at_most is not a key"),
        (GLM + "family_options = { range = 1.0 }\n", r"task\.family_options\.range is not a key"),
        (GLM + "family_options = { reach = 0.0 }\n", r"task\.family_options\.reach"),
        (GLM + "family_options = { region = [0.0] }\n", r"task\.family_options\.region"),
        (POLYNOMIAL.replace('["a.x * c.z"]', "[]"), r"task\.expressions"),
        (POLYNOMIAL + 'rounding = "down"\n', r"task\.rounding"),
        (PREDICTION.replace('"a"', '"q"'), r"task\.to names q, who is no party"),
        (PREDICTION.replace('to = "a"\n', ""), r"task\.to is missing"),
        (PREDICTION, r"model\.json cannot be read: No such file"),
    ],
)
def test_what_is_wrong_in_a_task_is_named(read, task, message):
    with pytest.raises(StudyError, match=message):
        read(task)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('method = "alternating"\npenalty = "l1"\n', "needs proximal steps"),
        ("learning_rate = 0.1\n", 'is for method="gradient"'),
        ('method = "gradient"\nbatch = 51\n', "a batch is a part of them"),
        ('family = "poisson"\n', "needs a label that is a number"),
        ("family_options = { clip = 1.0 }\n", 'has no option "clip"'),
    ],
)
def test_keys_of_a_model_over_messages_must_fit_together(read, more, message):
    with pytest.raises(StudyError, match=message):
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
        (LOGISTIC, "", r"STUDY\.toml: budget\.epsilon is missing"),
        (LOGISTIC, "[budget]\ndelta = 1e-6\n", r"STUDY\.toml: budget\.epsilon is missing"),
        (LOGISTIC + BY_PARTY, BUDGET, r"budget\.epsilon has no meaning beside task\.epsilon_by_party"),
        (PREDICTION + "exact = true\n", BUDGET, r"budget\.epsilon has no meaning beside task\.exact = true"),
        (PREDICTION + "exact = false\n", "", r"budget\.epsilon is missing"),
        (LOGISTIC + "epsilon_by_party = { q = 1.0 }\n", "", r"task\.epsilon_by_party names q"),
        (LOGISTIC + "epsilon_by_party = { a = -1.0 }\n", "", r"task\.epsilon_by_party - epsilon must be a positive"),
        (LOGISTIC + "epsilon_by_party = { a = true }\n", "", r"task\.epsilon_by_party - epsilon must be a number"),
        (LOGISTIC + "epsilon_by_party = {}\n", "", r"task\.epsilon_by_party"),
    ],
)
def test_a_study_has_one_price(read, task, budget, message):
    with pytest.raises(StudyError, match=message):
        read(task, budget)


def test_parties_may_set_the_price(read):
    study = read(LOGISTIC + 'method = "functional"\n' + BY_PARTY, "[budget]\ndelta = 1e-6\n")
    assert study.budgets == ()
    assert study.content.task.epsilon_by_party == {"a": 1.0, "a.b": 0.5, "c": 2.0}
