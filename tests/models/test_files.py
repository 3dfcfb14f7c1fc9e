"""Models on disk: arrays beside the JSON, and nothing half-written."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from colonnade.errors import StudyError
from colonnade.models import Estimator, registry
from colonnade.models.files import ARRAYS, pack_arrays, packed, read_arrays, read_json, unpack_arrays, write_together
from colonnade.models.registry import Kind
from tests.support.errors import raises
from tests.support.federations import made_up

HELD = {
    "components": np.random.default_rng(1).normal(size=(4, 7)),
    "counts": np.arange(5, dtype=np.int64) - 2**62,
    "names": np.array(["a.é", "b", ""]),
    "none": np.zeros((0, 3)),
}


PEOPLE = np.array([{"name": "Ann"}, None])


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / f"model{ARRAYS}"


def write_arrays(path, arrays):
    content = pack_arrays(arrays, path)
    write_together({path: content})
    return hashlib.sha256(content).hexdigest()


def names_in(folder):
    return sorted(held.name for held in folder.iterdir())


def test_arrays_come_back_as_they_were(path):
    digest = write_arrays(path, HELD)
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    found = read_arrays(path, digest)
    assert list(found) == list(HELD)
    for name, array in HELD.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
    assert names_in(path.parent) == [path.name]


@pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: b"x" + content[1:]])
def test_a_file_of_another_model_a_damaged_one_and_a_missing_one_are_refused(path, change):
    with raises(StudyError, "ST094", "model.npz"):
        read_arrays(path, "0" * 64)
    assert write_arrays(path, HELD | {"none": np.zeros((1, 3))}) != write_arrays(path, HELD)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with raises(StudyError, "ST095", "model.npz"):
        read_arrays(path, "0" * 64)
    path.write_bytes(change(path.read_bytes()))
    with raises(StudyError, "ST095"):
        read_arrays(path, digest)


def test_arrays_that_hold_anything_but_numbers_and_texts_are_refused(path):
    with raises(StudyError, "ST093", "people"):
        write_arrays(path, HELD | {"people": PEOPLE})
    assert names_in(path.parent) == []


def test_a_file_holds_the_arrays_that_were_given_and_no_others(path):
    path.write_bytes(packed(HELD))
    with np.load(path, allow_pickle=False) as held:
        assert set(held.files) == set(HELD)
    np.savez(path, **HELD)
    assert packed(HELD) == path.read_bytes()
    with pytest.raises(ValueError, match="Object arrays"):
        packed(HELD | {"people": PEOPLE})
    # An argument of numpy that stands in a file is no array of the model.
    assert set(unpack_arrays(packed({**HELD, "allow_pickle": np.array(False)}))) == set(HELD)


def test_pickles_that_somebody_put_there_are_not_opened(path):
    np.savez(path, people=PEOPLE)
    for content in (path.read_bytes(), b"", b"no archive", path.read_bytes()[:-40]):
        path.write_bytes(content)
        with raises(StudyError, "ST096", "model.npz"):
            read_arrays(path, hashlib.sha256(content).hexdigest())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")
@pytest.mark.parametrize("before", [None, b"the model before"])
def test_on_a_full_disk_the_file_stays_what_it_was(path, before):
    if before is not None:
        path.write_bytes(before)
    left = names_in(path.parent)
    path.with_name(f"{path.name}.partial").symlink_to("/dev/full")
    with raises(StudyError, "ST092", "model.npz", "No space left on device"):
        write_arrays(path, HELD)
    assert names_in(path.parent) == left
    assert before is None or path.read_bytes() == before
    write_arrays(path, HELD)
    assert names_in(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "ST097|VA007"), (b"\xff", "ST097|VA007"), (b"[1]", "ST099"), (None, "ST098")],
)
def test_what_is_no_model_is_refused(tmp_path, content, message):
    path = tmp_path / "model.json"
    if content is not None:
        path.write_bytes(content)
    with raises(StudyError, message):
        read_json(path)


def test_json_comes_back_as_it_was_and_where_nothing_can_be_written_it_is_said(tmp_path):
    content = {"kind": "pca", "numbers": [1, 2.5, None], "é": {"x": True}}
    write_together({tmp_path / "model.json": json.dumps(content).encode()})
    assert read_json(tmp_path / "model.json") == content
    with raises(StudyError, "ST092", "model.json"):
        write_together({tmp_path / "absent" / "model.json": b"{}"})


WIDE = """
from colonnade.kinds.pca.model import PCA


class Wide(PCA):
    kind = "wide"

    def arrays(self):
        return {"components": self.components_}

    def learned(self):
        return super().learned() | {"components": []}

    def restore(self, learned):
        super().restore(learned | {"components": learned["arrays"]["components"].tolist()})
"""


@pytest.fixture
def wide(new_kinds, tmp_path, stream):
    """A model of a kind that keeps its components beside the JSON, and where it was saved."""
    new_kinds(WIDE)
    registry.register(Kind("wide", "new_kinds:Wide", "colonnade.kinds.pca.report:SECTION"))
    people = made_up(50, "amount")
    model = registry.load("wide")(2, epsilon=50.0, rows_at_most=1000).simulate(people.tables(), people.roster, stream)
    return model, model.save(tmp_path / "saved.json")


def test_a_model_comes_back_with_the_arrays_beside_it(wide, tmp_path):
    model, path = wide
    assert read_json(path)["learned"]["components"] == []
    assert read_json(path)["arrays"] == hashlib.sha256((tmp_path / "saved.npz").read_bytes()).hexdigest()
    again = Estimator.load(path)
    assert type(again) is type(model)
    assert np.array_equal(again.components_, model.components_)
    assert str(again.privacy_) == str(model.privacy_)


def test_a_model_without_its_arrays_with_those_of_another_or_damaged_is_refused(wide, tmp_path):
    model, path = wide
    beside = tmp_path / "saved.npz"
    write_arrays(beside, {"components": model.components_ + 1})
    with raises(StudyError, "ST095"):
        Estimator.load(path)
    beside.unlink()
    with raises(StudyError, "ST094", "saved.npz"):
        Estimator.load(path)
    model.save(path)
    path.write_text(json.dumps(read_json(path) | {"learned": 3}))
    with raises(StudyError, "ST091", "TypeError"):
        Estimator.load(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")
def test_when_the_json_does_not_fit_the_arrays_stay_those_of_the_model_before(wide, tmp_path):
    model, path = wide
    before = [held.read_bytes() for held in (path, tmp_path / "saved.npz")]
    model.components_ = model.components_ + 1
    path.with_name("saved.json.partial").symlink_to("/dev/full")
    with raises(StudyError, "ST092", "saved.json", "No space left on device"):
        model.save(path)
    assert [held.read_bytes() for held in (path, tmp_path / "saved.npz")] == before
    assert not list(tmp_path.glob("*.partial"))


def test_when_only_the_json_cannot_be_replaced_reading_tells(wide, tmp_path, monkeypatch):
    """The JSON comes last, so what is there is never taken for a model that it is not."""
    model, path = wide
    before, replaced, real = path.read_bytes(), [], os.replace

    def replace(source, target):
        replaced.append(target.name)
        if target == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    model.components_ = model.components_ + 1
    with raises(StudyError, "ST092", "saved.json", "Input/output error"):
        model.save(path)
    assert replaced == ["saved.npz", "saved.json"]
    assert path.read_bytes() == before
    with raises(StudyError, "ST095"):
        Estimator.load(path)
    assert not list(tmp_path.glob("*.partial"))
