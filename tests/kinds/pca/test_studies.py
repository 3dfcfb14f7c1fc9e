"""A study of principal components by directions from end to end, in threads over TLS."""

from __future__ import annotations

import re

import numpy as np
import pytest

from colonnade.cli import show
from colonnade.errors import StudyError
from colonnade.kinds.pca.directions.task import Directions
from colonnade.study import preflight
from colonnade.study.plan import Amount, epsilons
from tests.study.test_model_studies import NOISY, PARTIES, Place
from tests.support.errors import raises

TASK = 'kind = "pca"\nn_components = 1\nrows_at_most = 10_000\nmethod = "power"\n'


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Place:
    found = Place(tmp_path_factory.mktemp("wide") / "s")
    for name in PARTIES:
        path = found.folder / name / "party.toml"
        path.write_text(re.sub(r"^tasks = .*$", 'tasks = ["pca"]', path.read_text(), flags=re.M))
    return found


def test_a_study_by_directions(place):
    columns = {"bank": ["age", "income", "balance", "arrears"], "shop": ["basket", "discounts"], "clinic": ["bmi"]}
    study = place.study("directions", TASK, NOISY, **columns)
    answer = preflight(study)
    task = study.task
    assert isinstance(task, Directions)
    assert answer.details.method == "power"
    assert answer.details.facts == {"openings": task.rounds, "directions": task.directions}
    text = show.preflight(answer)
    assert f"{task.rounds} openings of products with {task.directions} directions each, priced as one" in text
    assert "noise of deviation" in text
    assert "on an entry of X'X times a direction" in text
    models = place.run(study)
    for model in models.values():
        np.testing.assert_allclose(model.components_, models["coordinator"].components_, atol=1e-9)
        assert model.privacy_.epsilon("analyst") <= 4.0
    facts = place.facts(study)["task"]
    assert (facts["rounds"], facts["directions"], facts["law"]) == (task.rounds, task.directions, "discrete-gaussian")
    assert "computed one PCA" in place.report(study)


def test_what_such_a_study_cannot_be_asked(place):
    study = place.study("asked", TASK, NOISY)
    with raises(StudyError, "ST570", "power"):
        epsilons(study, Amount(error=0.1), rows=100)


def test_keys_are_checked(place):
    with raises(StudyError, "ST595"):
        place.study("rounds", 'kind = "pca"\niterations = 0\n', NOISY)
    with raises(StudyError, "ST595"):
        place.study("krylov", 'kind = "pca"\nmethod = "krylov"\n', NOISY)
    with raises(StudyError, "ST152"):
        place.study("moments", 'kind = "pca"\nmethod = "moments"\niterations = 3\n', NOISY).task  # noqa: B018
