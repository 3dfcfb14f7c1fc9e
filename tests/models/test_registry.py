"""The list of kinds, kinds that installed packages add, and models of them on disk."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from colonnade.errors import DataError, StudyError
from colonnade.kinds.pca.model import PCA
from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.polynomial.model import PolynomialSum
from colonnade.kinds.regression.model import LinearRegression, LogisticRegression
from colonnade.kinds.synthesis.model import Synthesizer
from colonnade.kinds.tables import programs as marginals
from colonnade.models import Estimator, registry
from colonnade.models.federation import Roster
from colonnade.models.planner import Planner
from colonnade.models.registry import ModelKind
from colonnade.models.serialization import (
    ARRAYS,
    pack_arrays,
    packed,
    read_arrays,
    read_json,
    unpack_arrays,
    write_together,
)
from colonnade.protocols.moments import programs as moments
from colonnade.tables import Schema, decode, flag, number, read_table
from tests.support.errors import raises, refused
from tests.support.federations import made_up

NEW = """
from colonnade.models.registry import ModelKind
from colonnade.models.planner import Planner
from colonnade.kinds.sketch.model import SketchPlanner, SketchTask
from colonnade.protocols.task import PricedTask


class Whole(SketchPlanner):
    kind = "new"


class Renamed(SketchPlanner):
    kind = "other"


class Abstract(Planner):
    kind, tasks = "new", (SketchTask,)


class Taskless(SketchPlanner):
    kind, tasks = "new", ()


class Lacking(PricedTask):
    events = ()


class Incomplete(SketchPlanner):
    kind, tasks = "new", (SketchTask, Lacking)


class NoModel:
    kind = "new"


class Run(SketchPlanner):
    kind, why_not_run = "new", None


ROW = ModelKind("new", "new_kinds:Whole")
SECTION = "a section"
"""


@pytest.fixture
def new_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Writes a module ``new_kinds`` that can be imported; afterwards the list of kinds is as before."""

    def write(text: str) -> Path:
        (tmp_path / "new_kinds.py").write_text(text)
        return tmp_path

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "new_kinds", raising=False)
    registry.rows()
    monkeypatch.setattr(registry, "_KNOWN", dict(registry._KNOWN))
    yield write
    sys.modules.pop("new_kinds", None)
    registry._installed.cache_clear()


@pytest.mark.parametrize("row", registry.rows(), ids=lambda row: row.kind)
def test_every_kind_has_a_complete_model_and_all_its_parts(row):
    model = registry.load(row.kind)
    assert issubclass(model, Planner)
    assert (model.kind, registry.row_of(row.kind)) == (row.kind, row)
    assert all(registry.resolve(part) is not None for part in row.games)
    if row.section:
        assert registry.section_of(row.kind) is registry.resolve(row.section)


def test_an_unknown_kind_is_refused_with_the_list_and_one_that_is_not_run_has_no_section():
    for look in (registry.row_of, registry.load):
        with raises(StudyError, "ST139", "tree", "pca", "linear", "logistic", "glm"):
            look("tree")
    with raises(StudyError, "ST145", "sketch"):
        registry.section_of("sketch")


def test_a_new_kind_is_taken_in_once(new_kinds):
    new_kinds(NEW)
    row = ModelKind("new", "new_kinds:Whole", "new_kinds:SECTION")
    assert registry.register(row) == registry.register(row) == registry.rows()[-1] == row
    assert registry.section_of("new") == "a section"


@pytest.mark.parametrize(
    ("row", "error", "said"),
    [
        (ModelKind("pca", "new_kinds:Whole"), StudyError, ("'pca'", "colonnade.kinds.pca.model:PCA", "[ST138]")),
        (ModelKind("new", "new_kinds:Renamed"), StudyError, ("'new'", "other", "[ST141]")),
        (ModelKind("new", "new_kinds:Abstract"), StudyError, ("new_kinds", "plan", "[ST142]")),
        (ModelKind("new", "new_kinds:Taskless"), StudyError, ("new_kinds", "[ST144]")),
        (ModelKind("new", "new_kinds:Incomplete"), StudyError, ("Lacking", "rows_limit", "[ST537]")),
        (ModelKind("new", "new_kinds:NoModel"), StudyError, ("new_kinds", "[ST140]")),
        (ModelKind("new", "new_kinds:Run"), StudyError, ("new_kinds", "[ST143]")),
        (ModelKind("new", "new_kinds:SECTION"), StudyError, ("new_kinds", "[ST140]")),
        (ModelKind("new", "no_such_module:Model"), ModuleNotFoundError, ("no_such_module",)),
        (ModelKind("new", "new_kinds:Nothing"), AttributeError, ("Nothing",)),
        (ModelKind("new", "new_kinds:Whole", "new_kinds:NOTHING"), AttributeError, ("NOTHING",)),
        (ModelKind("new", "new_kinds:Whole", games=("no_such_module",)), ModuleNotFoundError, ("no_such_module",)),
    ],
    ids=lambda given: given.model if isinstance(given, ModelKind) else "",
)
def test_what_is_wrong_with_a_new_kind_is_named_and_the_list_stays_as_it_was(new_kinds, row, error, said):
    new_kinds(NEW)
    before = registry.rows()
    refused(error, *said, registry.register, row)
    assert registry.rows() == before


def install(folder, entry):
    """What an installer leaves of a package that offers a kind."""
    info = folder / "new_kinds-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: new-kinds\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\nnew = {entry}\n")
    registry._installed.cache_clear()


def test_kinds_of_installed_packages_are_found(new_kinds):
    install(new_kinds(NEW), "new_kinds:ROW")
    assert registry.row_of("new").model == "new_kinds:Whole"
    assert [row.kind for row in registry.rows()][-2:] == ["sketch", "new"]
    assert registry.load("new")(rounds=1, rows=5, dimension=2, epsilon=1.0).kind == "new"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("new_kinds:NOTHING", ("ST146", "new", "new_kinds:NOTHING")),
        ("no_such_module:ROW", ("ST146", "new", "no_such_module:ROW")),
        ("new_kinds:THIEF", ("ST138", "pca", "new")),
    ],
)
def test_an_installed_kind_that_cannot_be_loaded_or_would_replace_another_is_named(new_kinds, entry, said):
    install(new_kinds(f'{NEW}THIEF = ModelKind("pca", "new_kinds:Whole")\n'), entry)
    assert "new" not in [row.kind for row in registry.rows()]  # the others are not disturbed
    with raises(StudyError, said):
        registry.row_of("new")
    assert registry.load("pca").__module__ == "colonnade.kinds.pca.model"


# --- kinds that are sums over people say by which programs, and all others why they are not


SCHEMAS = {
    "bank": Schema({"income": number(0, 10), "ill": flag()}),
    "shop": Schema({"spend": number(0, 5)}),
    "clinic": Schema({"bmi": number(10, 40)}),
}
ROSTER = Roster.of(SCHEMAS)
SUMS = {
    "pca": (PCA(n_components=2, epsilon=1.0), moments),
    "linear": (LinearRegression(label="bank.income", epsilon=1.0), moments),
    "functional": (LogisticRegression(label="bank.ill", epsilon=1.0, method="functional"), moments),
    "polynomial": (PolynomialSum(["bank.income * shop.spend"], epsilon=1.0), polynomial),
    "synthetic": (Synthesizer(epsilon=1.0, bins=3), marginals),
}
OTHERS = {
    "directions": (PCA(n_components=2, epsilon=1.0, method="power"), "in rounds"),
    "gradients": (LogisticRegression(label="bank.ill", epsilon=1.0, method="sqm", rows=1000), "in rounds"),
    "two stages": (Synthesizer(epsilon=1.0, bins=8, even_bins=4), "twice"),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_has_programs_and_rows_that_are_added_up(name):
    model, programs = SUMS[name]
    task = model.plan(ROSTER)
    assert task.programs.sum_rows is programs.sum_rows
    assert task.why_not_lanes is None
    frame = pa.table({"person_id": ["b", "a"], "income": [1.0, 2.0], "ill": [True, False]})
    rows = model.summands("bank", read_table(frame, SCHEMAS["bank"]), task)
    assert list(rows.ids) == ["a", "b"]
    found = np.vstack(list(rows.blocks(1)))
    assert len(found) == 2
    assert not np.array_equal(found[0], found[1])


@pytest.mark.parametrize("name", OTHERS)
def test_others_say_why_not(name):
    model, why = OTHERS[name]
    task = model.plan(ROSTER)
    assert why in task.why_not_lanes


# --- models on disk: arrays beside the JSON, and nothing half-written


HELD = {
    "components": np.random.default_rng(1).normal(size=(4, 7)),
    "counts": np.arange(5, dtype=np.int64) - 2**62,
    "names": np.array(["a.é", "b", ""]),
    "none": np.zeros((0, 3)),
}


PEOPLE = np.array([{"name": "Ann"}, None])
NAME = f"model{ARRAYS}"


def test_arrays_come_back_as_they_were_and_hold_nothing_but_numbers_and_texts(tmp_path):
    path = tmp_path / NAME
    with raises(StudyError, "ST093", "people"):
        pack_arrays(HELD | {"people": PEOPLE}, path)
    content = pack_arrays(HELD, path)
    write_together({path: content})
    found = read_arrays(path, hashlib.sha256(content).hexdigest())
    assert list(found) == list(HELD)
    for name, array in HELD.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
    assert [held.name for held in tmp_path.iterdir()] == [NAME]


def test_a_file_holds_the_arrays_that_were_given_and_no_others(tmp_path):
    np.savez(tmp_path / NAME, **HELD)
    assert packed(HELD) == (tmp_path / NAME).read_bytes()
    with pytest.raises(ValueError, match="Object arrays"):
        packed(HELD | {"people": PEOPLE})
    # An argument of numpy that stands in a file is no array of the model.
    assert set(unpack_arrays(packed({**HELD, "allow_pickle": np.array(False)}))) == set(HELD)


def test_pickles_that_somebody_put_there_are_not_opened(tmp_path):
    path = tmp_path / NAME
    np.savez(path, people=PEOPLE)
    for content in (path.read_bytes(), b"", b"no archive", path.read_bytes()[:-40]):
        path.write_bytes(content)
        with raises(StudyError, "ST096", "model.npz"):
            read_arrays(path, hashlib.sha256(content).hexdigest())


def test_json_comes_back_as_it_was_and_what_is_no_model_is_refused(tmp_path):
    content, path = {"kind": "pca", "numbers": [1, 2.5, None], "é": {"x": True}}, tmp_path / "model.json"
    write_together({path: json.dumps(content).encode()})
    assert read_json(path) == content
    for wrong, said in ((b"{", "ST097|VA007"), (b"\xff", "ST097|VA007"), (b"[1]", "ST099")):
        path.write_bytes(wrong)
        with raises(StudyError, said):
            read_json(path)
    for attempt in (
        partial(read_json, tmp_path / "absent.json"),
        partial(write_together, {tmp_path / "no" / "m": b""}),
    ):
        with raises(StudyError, "ST092|ST098"):
            attempt()


WIDE = """
from colonnade.kinds.pca.model import PCA


class Wide(PCA):
    kind = "wide"

    def arrays(self):
        return {"components": self.components_}

    def learned_values(self):
        return super().learned_values() | {"components": []}

    def restore(self, learned):
        super().restore(learned | {"components": learned["arrays"]["components"].tolist()})
"""


@pytest.fixture
def wide(new_kinds, tmp_path, stream):
    """A model of a kind that keeps its components beside the JSON, and where it was saved."""
    new_kinds(WIDE)
    registry.register(ModelKind("wide", "new_kinds:Wide", "colonnade.kinds.pca.report:SECTION"))
    people = made_up(50, "amount")
    model = registry.load("wide")(2, epsilon=50.0, rows_at_most=1000).simulate(people.tables(), people.roster, stream)
    return model, model.save(tmp_path / "saved.json")


def test_a_model_comes_back_with_the_arrays_beside_it(wide, tmp_path):
    model, path = wide
    assert read_json(path)["learned"]["components"] == []
    assert read_json(path)["arrays"] == hashlib.sha256((tmp_path / "saved.npz").read_bytes()).hexdigest()
    again = Estimator.load(path)
    assert np.array_equal(again.components_, model.components_)
    assert str(again.privacy_) == str(model.privacy_)


def test_a_model_without_its_arrays_with_those_of_another_or_damaged_is_refused(wide, tmp_path):
    model, path = wide
    beside = tmp_path / "saved.npz"
    right = beside.read_bytes()
    for wrong in (pack_arrays({"components": model.components_ + 1}, beside), right[:-1], b"x" + right[1:]):
        beside.write_bytes(wrong)
        with raises(StudyError, "ST095", "saved.npz"):
            Estimator.load(path)
    beside.unlink()
    with raises(StudyError, "ST094", "saved.npz"):
        Estimator.load(path)
    model.save(path)
    path.write_text(json.dumps(read_json(path) | {"learned": 3}))
    with raises(StudyError, "ST091", "TypeError"):
        Estimator.load(path)


MODELS = Path(__file__).parents[1] / "fixtures" / "models"


@pytest.mark.parametrize("name", ["split", "split-embeddings", "split-regressor", "pca", "logistic", "glm"])
def test_a_model_that_lacks_what_it_says_of_itself_is_refused(name, tmp_path):
    """One that loads can say all that pages and notebooks show of it."""
    content, path = read_json(MODELS / f"{name}.json"), tmp_path / f"{name}.json"
    if (arrays := (MODELS / f"{name}.npz")).exists():
        shutil.copyfile(arrays, tmp_path / arrays.name)
    plan, refused = content["learned"].get("plan", content["learned"]), []
    for key in list(plan):
        kept = plan.pop(key)
        path.write_text(json.dumps(content))
        try:
            found = Estimator.load(path)
        except StudyError:
            refused.append(key)
        else:
            assert found.summary()
            assert found._repr_html_()
        plan[key] = kept
    assert refused
    assert not name.startswith("split") or "how" in refused
    assert name not in ("split", "split-regressor") or "rows" in refused


def test_complex_arrays_are_refused(wide, tmp_path):
    """Their imaginary parts would be lost without a word."""
    model, path = wide
    strange = pack_arrays({"components": model.components_ + 0j}, path)
    (tmp_path / "saved.npz").write_bytes(strange)
    path.write_text(json.dumps(read_json(path) | {"arrays": hashlib.sha256(strange).hexdigest()}))
    with raises(StudyError, "ST096", "saved.npz"):
        Estimator.load(path)
    schema = next(iter(model.schemas_.values()))
    matrix = np.zeros((2, schema.encoded_width), complex)
    for given in (matrix, {name: matrix[:, part] for name, part in schema.encoded_slices.items()}):
        with raises(DataError, "DA742"):
            decode(schema, given)
    with raises(DataError, "DA742"):
        model.transform(np.zeros((2, len(model.feature_names_in_)), complex), encoded=True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here that is always full")
@pytest.mark.parametrize("name", ["saved.json", "saved.npz"])
def test_on_a_full_disk_the_files_stay_those_of_the_model_before(wide, tmp_path, name):
    model, path = wide
    before = [held.read_bytes() for held in (path, tmp_path / "saved.npz")]
    model.components_ = model.components_ + 1
    path.with_name(f"{name}.partial").symlink_to("/dev/full")
    with raises(StudyError, "ST092", name, "No space left on device"):
        model.save(path)
    assert [held.read_bytes() for held in (path, tmp_path / "saved.npz")] == before
    assert not list(tmp_path.glob("*.partial"))


def test_when_only_the_json_cannot_be_replaced_reading_tells(wide, tmp_path, monkeypatch):
    """The JSON comes last, so what is there is never taken for a model that it is not."""
    model, path = wide
    before, real = path.read_bytes(), os.replace

    def replace(source, target):
        if target == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    model.components_ = model.components_ + 1
    with raises(StudyError, "ST092", "saved.json", "Input/output error"):
        model.save(path)
    assert path.read_bytes() == before
    with raises(StudyError, "ST095"):
        Estimator.load(path)
    assert not list(tmp_path.glob("*.partial"))
