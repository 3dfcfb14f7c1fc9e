"""How many owners may leave out their noise: in study files, in federations, and in what `colonnade privacy` shows."""

from __future__ import annotations

import pytest

from colonnade.cli.show import preflight as shown
from colonnade.errors import ColonnadeError, StudyError
from colonnade.kinds.pca.model import PCA
from colonnade.models.federation import Roster
from colonnade.study import Study, preflight
from colonnade.tables import Schema, number
from tests.support.errors import raises
from tests.support.studies import study_text

SCHEMAS = {name: Schema({f"{name}x": number(0, 1), f"{name}y": number(-1, 1)}) for name in "abc"}
TASK = 'kind = "pca"\nmethod = "moments"\nrows_at_most = 10_000\n'


def study(folder, said="", task=TASK):
    for name, schema in SCHEMAS.items():
        schema.save(folder / f"{name}.toml")
    path = folder / "STUDY.toml"
    path.write_text(said + study_text(task, parties="abc"))
    return Study.load(path)


def test_a_study_may_ask_for_noise_that_suffices_without_an_owners_part(tmp_path):
    plain, robust, none = (study(tmp_path, said) for said in ("", "noise_missing = 1\n", "noise_missing = 0\n"))
    assert plain.task.noise == none.task.noise < robust.task.noise
    assert len({plain.digest, robust.digest, none.digest}) == 3
    decides = robust.binding.observer
    assert robust.binding.kept
    assert robust.statement.epsilon(decides) == robust.statement.epsilon(decides, missing=1)
    assert robust.statement.epsilon(decides) <= robust.binding.budget.epsilon
    assert plain.statement.epsilon(decides, missing=1) > plain.binding.budget.epsilon


def test_what_is_shown_before_a_study_has_the_rows(tmp_path):
    answer = preflight(study(tmp_path))
    text, values = shown(answer), answer.to_dict()["statement"]
    assert "\nif 1 owner draws no noise\nanalyst " in text
    assert [(row["observer"], row["missing"]) for row in values["missing_noise"]][:2] == [
        ("analyst", 1),
        ("coordinator", 1),
    ]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("noise_missing = 2\n", ("PR055", "1")),
        ("noise_missing = -1\n", ("ST595", "noise_missing")),
        ("noise_missing = true\n", ("ST595", "noise_missing")),
        ("noise_missing = 1.5\n", ("ST595", "noise_missing")),
    ],
)
def test_a_number_that_cannot_be_is_refused_with_its_name(tmp_path, said, sentence):
    with raises(ColonnadeError, sentence):
        _ = study(tmp_path, said).task


def test_without_a_committee_the_key_is_refused(tmp_path):
    task = 'kind = "glm"\nlabel = "a.ax"\nfamily = "logistic"\nrows = 1000\n'
    with raises(StudyError, "VA230", "noise_missing"):
        study(tmp_path, "noise_missing = 0\n", task)


def test_a_roster_takes_the_number_to_every_plan():
    noise = [PCA(1, epsilon=1.0).plan(Roster.of(SCHEMAS, noise_missing=missing)).noise for missing in (None, 0, 1)]
    assert noise[0] == noise[1] < noise[2]
