"""Sketches and the inverse questions of a study."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from colonnade.errors import PrivacyError, StudyError
from colonnade.privacy import PoissonSampled, RepeatedRelease, Statement
from colonnade.study import Study, preflight
from colonnade.study.planning import NoiseAmount, epsilons, least_rows, most_rounds
from colonnade.tables import Schema, flag, number
from tests.support.errors import raises
from tests.support.studies import check_words, study_text

BUDGET = "epsilon = { analyst = 1.0 }\n"
TASK = """\
kind = "sketch"
rounds = 40
sampling = "poisson"
batch = 50
rows = 1000
dimension = 4
clip = 1.0
gamma = 268_435_456
"""
SKETCH = study_text(TASK, BUDGET, "abc")
PCA = study_text(budget=BUDGET, parties="abc")
FULL = ('sampling = "poisson"\nbatch = 50\n', 'sampling = "full"\n')


@pytest.fixture
def study(tmp_path):
    for name in "abc":
        Schema({"x": number(0, 1), "y": number(0, 1), "hit": flag()}).save(tmp_path / f"{name}.toml")

    def load(text=SKETCH, *changes):
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "STUDY.toml").write_text(text)
        return Study.load(tmp_path / "STUDY.toml")

    return load


# --- a sketch


def test_a_sketch_is_rounds_of_sampled_releases_about_integers(study):
    found = study()
    assert study(SKETCH, ("rounds = 40", "rounds = 41")).digest != found.digest
    (event,) = found.events
    assert (type(event), type(event.event)) == (RepeatedRelease, PoissonSampled)
    assert (event.times, event.event.rate, event.event.coins) == (40, Fraction(1, 20), ("a", "b", "c"))
    release = event.event.event
    longest = 2**28 + 2  # rounding adds at most one to each of four numbers
    assert release.l2_squared == longest**2
    assert release.replace_l2_squared == 4 * release.l2_squared
    assert release.l1 <= 2 * longest < release.replace_l1
    assert found.statement.epsilon("analyst") <= 1.0 < found.statement.epsilon("coordinator")
    disjoint = study(SKETCH, ('"poisson"', '"disjoint"'), ("rounds = 40", "rounds = 41"))
    assert disjoint.events[0].times == disjoint.task.participations == 3  # 20 batches, so 41 rounds begin a third epoch
    full = study(SKETCH, FULL)
    assert (full.events[0].times, full.task.batch) == (40, 1000)
    gaussian = study(SKETCH, ("clip = 1.0", 'clip = 1.0\nnoise = "discrete-gaussian"')).task  # costs the same here
    assert gaussian.multiplier == pytest.approx(found.task.multiplier, rel=1e-4)
    assert gaussian.deviation == pytest.approx(gaussian.multiplier, rel=1e-6)
    assert gaussian.error == gaussian.deviation / 50
    assert found.statement.epsilon("coordinator") < found.statement.epsilon("a") == found.statement.epsilon("b")


def test_laplace_noise_leaves_a_whole_variable_to_everyone_with_a_budget(study):
    text = ("clip = 1.0", 'clip = 1.0\nnoise = "discrete-laplace"')
    found = study(SKETCH, text, ("rounds = 40", "rounds = 3"), FULL)
    assert found.task.known == 1  # the threshold
    assert found.statement.epsilon("a") == pytest.approx(2 * found.statement.epsilon("analyst"), rel=0.1)
    p = math.exp(-1 / found.task.noise)
    variance = 3 / 2 * 2 * p / (1 - p) ** 2  # three shares, each half a variable
    assert found.task.deviation * found.task.gamma == pytest.approx(math.sqrt(variance), rel=1e-3)
    for error in (0.01, 0.3):
        assert 0.99 * error < found.task.with_error(error).error <= error


def test_a_given_multiplier_is_priced_and_not_calibrated(study):
    found = study(SKETCH, ("clip = 1.0", "clip = 1.0\nnoise_multiplier = 0.8"))
    assert found.task.multiplier == pytest.approx(0.8, rel=1e-9)
    assert found.task.multiplier >= 0.8
    answer = preflight(found)
    assert not answer.binding.is_kept
    assert answer.binding.bound.epsilon == found.statement.epsilon("analyst") > 1.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rounds = 40", "rounds = 0", ("ST595", "task.rounds")),
        ("rounds = 40", "", ("ST595", "task.rounds")),
        ("rounds = 40", "rounds = 40\nepochs = 3", ("ST595", "task.epochs")),
        ("batch = 50", "", "ST214"),
        ("batch = 50", "batch = 5000", "ST214"),
        ('"poisson"', '"full"', "ST213"),
        ("clip = 1.0", "clip = -1.0", ("ST595", "task.clip")),
        ("clip = 1.0", "clip = nan", ("ST595", "task.clip")),
        ("clip = 1.0", "noise_multiplier = 0.0", ("ST595", "task.noise_multiplier")),
        ("clip = 1.0", 'noise = "gaussian"', ("ST595", "task.noise")),
        ('kind = "sketch"', 'kind = "tree"', ("ST557", "pca", "linear", "sketch")),
        ('kind = "sketch"', "", "ST556"),
    ],
)
def test_what_is_wrong_in_a_sketch_is_named(study, old, new, message):
    with raises(StudyError, message):
        _ = study(SKETCH, (old, new)).task


def test_a_sketch_is_priced_and_not_run(study, colonnade, tmp_path):
    found = study()
    with raises(StudyError, "ST598"):
        found.estimator()
    for words in (["run", found.path], ["coordinator", found.path], ["party", found.path, tmp_path / "party.toml"]):
        text = colonnade(*words, "--out", tmp_path / "out", code=StudyError.exit_code)
        assert "a sketch is priced, not run" in text
    assert not (tmp_path / "out").exists()
    colonnade("privacy", found.path, "--rows", 5, code=StudyError.exit_code)
    run = study(PCA, ("{ analyst = 1.0 }", "1.0"))
    assert run.runnable().estimator().kind == "pca"
    assert preflight(run).run.rows == run.task.rows_at_most
    assert "the budget for a decides: epsilon 1.0000 of 1 allowed" in colonnade("privacy", run.path)


# --- the inverse questions


def test_rounds_and_epsilon_agree_with_the_calibrated_noise(study):
    found = study()
    amount = NoiseAmount(multiplier=found.task.multiplier)
    plan = most_rounds(found, amount)
    assert plan.rounds == 40
    assert plan.binding.is_kept
    beyond = Statement.of(found.task.with_rounds(41).events, found.roster.trust, 1e-5)
    assert beyond.epsilon("analyst") > 1.0 >= plan.statement.epsilon("analyst")
    assert most_rounds(found, NoiseAmount(multiplier=2 * found.task.multiplier)).rounds > 3 * 40
    same = epsilons(found, amount)
    assert same.statement.epsilon("analyst") == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("sampling", ["poisson", "disjoint"])
def test_rows_until_a_mean_is_good_enough(study, sampling):
    found = study(SKETCH, ('"poisson"', f'"{sampling}"'))
    error = found.task.error * 0.9
    plan = least_rows(found, NoiseAmount(error=error))
    assert plan.rows > 1000
    assert 0.999 * error < plan.error <= error
    assert plan.statement.epsilon("analyst") <= 1.0
    task = found.task.with_rows(plan.rows - 1).with_error(error)
    assert Statement.of(task.events, found.roster.trust, 1e-5).epsilon("analyst") > 1.0


def test_rows_of_a_full_sketch_and_of_a_pca_follow_from_the_noise(study):
    full = study(SKETCH, FULL)
    plan = least_rows(full, NoiseAmount(error=0.001))
    assert plan.rows == pytest.approx(full.task.deviation / 0.001, rel=1e-3)
    pca = study(PCA)
    std = math.sqrt(2 * pca.task.noise) / pca.task.gamma**2
    plan = least_rows(pca, NoiseAmount(error=0.01))
    assert plan.rows == math.ceil(std / 0.01)
    assert plan.statement.epsilon("analyst") <= 1.0
    at = epsilons(pca, NoiseAmount(error=0.01), rows=plan.rows)
    assert at.statement.epsilon("analyst") == plan.statement.epsilon("analyst")
    assert epsilons(pca, NoiseAmount(multiplier=1.0), rows=10).noise_multiplier == pytest.approx(1.0, rel=1e-6)


SUMS = PCA.replace('kind = "pca"', 'kind = "polynomial"\nexpressions = ["a.x * b.y"]')
GRADIENTS = PCA.replace('kind = "pca"', 'kind = "logistic"\nlabel = "a.hit"\nmethod = "sqm"\nrows = 200\nrate = 0.2')


@pytest.mark.parametrize(
    ("ask", "text", "amount", "rows", "error", "said"),
    [
        (most_rounds, SKETCH, {"multiplier": 0.05}, None, PrivacyError, ("PR021", "rounds", "1")),
        (least_rows, PCA, {"error": 1e-7}, None, PrivacyError, ("PR022", "rows", "16777216")),
        (least_rows, SKETCH, {"error": 1e-14}, None, PrivacyError, "ST534"),
        (most_rounds, PCA, {"multiplier": 1.0}, 5, StudyError, "ST566"),
        (epsilons, PCA, {"error": 1.0}, None, StudyError, "ST569"),
        (epsilons, SKETCH, {"error": 1.0}, 10, StudyError, "ST209"),
        (least_rows, PCA, {"multiplier": 1.0}, None, StudyError, ("ST567", "--error")),
        (epsilons, SUMS, {"error": 1.0}, 10, StudyError, ("ST570", "polynomial")),
        (epsilons, GRADIENTS, {"error": 1.0}, 10, StudyError, ("ST570", "sqm")),
        *(
            (epsilons, PCA, wrong, None, StudyError, ("ST564|ST565", "--error"))
            for wrong in ({}, {"error": 1.0, "multiplier": 1.0}, {"error": -1.0}, {"multiplier": math.inf})
        ),
    ],
)
def test_questions_that_have_no_answer(study, ask, text, amount, rows, error, said):
    with raises(error, said):
        ask(study(text), NoiseAmount(**amount), **({} if rows is None else {"rows": rows}))


@pytest.mark.parametrize("method", ["one-shot", "functional"])
def test_what_it_would_cost_needs_no_budget(study, colonnade, method):
    own = f'kind = "linear"\nlabel = "a.x"\nmethod = "{method}"\nepsilon_by_party = {{ a = 1.0, b = 2.0, c = 0.5 }}'
    found = study(PCA, ('kind = "pca"', own), ("epsilon = { analyst = 1.0 }", ""))
    facts = colonnade("plan", found.path, "--epsilon", "--error", 0.05, "--rows-given", 3000, "--json")
    assert facts["binding"] is None
    assert 0.99 * 0.05 < facts["error"] <= 0.05
    stated = study(PCA, ('kind = "pca"', own[: own.index("epsilon_by")]))
    same = epsilons(stated, NoiseAmount(error=0.05), rows=3000).statement
    answer = epsilons(found, NoiseAmount(error=0.05), rows=3000).statement
    assert answer.epsilon("analyst") == pytest.approx(same.epsilon("analyst"), rel=1e-6)
    found = study(PCA, ('kind = "pca"', own), ("epsilon = { analyst = 1.0 }", ""))
    words = ["--epsilon", "--noise-multiplier", 2, "--rows-given", 10]
    assert "states no budget for observers" in colonnade("plan", found.path, *words)
    for question in ("--rows", "--rounds"):
        text = colonnade("plan", found.path, question, "--error", 0.05, code=StudyError.exit_code)
        check_words(text, "states no epsilon in [budget]", "ask --epsilon, which needs none")


def test_the_command_asks_one_question(study, colonnade):
    path = study(SKETCH, ("clip = 1.0", "clip = 1.0\nnoise_multiplier = 1.5")).path
    facts = colonnade("plan", path, "--rounds", "--json")
    assert facts["question"] == "rounds"
    assert facts["noise_multiplier"] == pytest.approx(1.5)
    assert f"at most {facts['rounds']:,} rounds fit the budget" in colonnade("plan", path, "--rounds")
    assert "rows are enough" in colonnade("plan", path, "--rows", "--error", 0.02)
    assert colonnade("plan", path, "--epsilon", "--error", 0.001, "--rows-given", 5000, "--json")["rows"] == 5000
    assert "OVER BUDGET: analyst" in colonnade("plan", path, "--epsilon", "--error", 0.01)
    for words in ([], ["--rounds", "--rows"], ["--rows", "--rows-given", 5, "--error", 1]):
        colonnade("plan", path, *words, code=StudyError.exit_code)
