"""Constants of a machine: measured by the programs of a study, written, read and checked."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

import pytest

from colonnade.errors import StudyError
from colonnade.study.scale import BUILT_IN, Constants, Measured, measure
from colonnade.study.scale.constants import UNITS, in_words
from tests.support.errors import raises

TINY = measure.Sizes(table=300, joint=2048, ids=300, draws=1 << 10, messages=2, rounds=5, repeats=1)
SAVED = Measured(BUILT_IN.constants, "2026-11-01T10:00:00+00:00", 8, "x86_64, 8 processors", "0.1.0")


@pytest.fixture(scope="module")
def measured():
    steps: list[tuple[str, int, int]] = []
    return measure.measure(TINY, lambda *step: steps.append(step)), steps


def test_everything_is_measured_on_this_machine(measured):
    found, steps = measured
    assert all(0 < value < 100 for name, value in asdict(found.constants).items() if name != "interpreter")
    assert 2**24 < found.constants.interpreter < 2**34
    assert found.processors >= 1
    assert not found.quick
    assert steps[0][1:] == (0, 7)
    assert steps[-1][1:] == (7, 7)
    assert "measured on 2" in found.source


def test_what_was_measured_is_read_as_it_was_written(measured, tmp_path):
    found, _ = measured
    found.save(tmp_path / "bench.json")
    assert Measured.load(tmp_path / "bench.json") == found


def test_the_built_in_constants_say_that_they_are_of_another_machine():
    assert "built-in" in BUILT_IN.source
    assert "colonnade bench" in BUILT_IN.source


def test_every_constant_has_a_name_for_people():
    assert list(UNITS) == [one.name for one in fields(Constants)]
    assert in_words("pair", 2e-10) == "200 ps"
    assert in_words("align_start", 0.37) == "370 ms"
    assert in_words("interpreter", 1.21e8) == "121 MB"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": "something else"}, "ST583"),
        ({"version": 1}, "ST584"),
        ({"constants": {}}, "VA214"),
        ({"constants": asdict(BUILT_IN.constants) | {"more": 1.0}}, "VA214"),
        ({"constants": asdict(BUILT_IN.constants) | {"pair": 0.0}}, "VA215"),
        ({"constants": asdict(BUILT_IN.constants) | {"pair": -1e-9}}, "VA215"),
        ({"constants": asdict(BUILT_IN.constants) | {"pair": True}}, "VA215"),
        ({"constants": asdict(BUILT_IN.constants) | {"pair": "1"}}, "VA215"),
        ({"constants": asdict(BUILT_IN.constants) | {"draw": 1e9}}, "VA215"),
        ({"processors": 0}, "VA216"),
        ({"processors": 2.5}, "VA216"),
        ({"made": ""}, "VA217"),
        ({"made": "yesterday"}, "ST585"),
        ({"machine": 7}, "VA217"),
        ({"quick": "no"}, "VA217"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path, change, sentence):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(SAVED.to_dict() | change))
    with raises(StudyError, sentence):
        Measured.load(path)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": NaN}', "null"])
def test_a_file_of_anything_else_is_refused(tmp_path, text):
    path = tmp_path / "bench.json"
    path.write_text(text)
    with raises(StudyError, "ST582|ST583|VA013", path):
        Measured.load(path)
    with raises(StudyError, "ST582", "none.json"):
        Measured.load(tmp_path / "none.json")
