"""The list of kinds: what is refused by name, and kinds that installed packages add."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from colonnade.errors import StudyError
from colonnade.kinds.pca.model import PCA
from colonnade.kinds.polynomial import programs as polynomial
from colonnade.kinds.polynomial.model import PolynomialSum
from colonnade.kinds.regression.linear import LinearRegression
from colonnade.kinds.regression.logistic import LogisticRegression
from colonnade.kinds.synthesis.model import Synthesizer
from colonnade.kinds.tables.marginals import programs as marginals
from colonnade.models import registry
from colonnade.models.federation import Roster
from colonnade.models.planner import Planner
from colonnade.models.registry import Kind
from colonnade.protocols.lanes.lane import why_not
from colonnade.protocols.moments import programs as moments
from colonnade.tables import Schema, flag, number, read_table
from tests.support.errors import raises

NEW = """
from colonnade.models.registry import Kind
from colonnade.models.planner import Planner
from colonnade.kinds.sketch.model import SketchPlanner
from colonnade.kinds.sketch.task import Sketch
from colonnade.protocols.task import Priced


class Whole(SketchPlanner):
    kind = "new"


class Renamed(SketchPlanner):
    kind = "other"


class Abstract(Planner):
    kind, tasks = "new", (Sketch,)


class Taskless(SketchPlanner):
    kind, tasks = "new", ()


class Lacking(Priced):
    events = ()


class Incomplete(SketchPlanner):
    kind, tasks = "new", (Sketch, Lacking)


class NoModel:
    kind = "new"


class Run(SketchPlanner):
    kind, why_not_run = "new", None


ROW = Kind("new", "new_kinds:Whole")
SECTION = "a section"
"""


@pytest.fixture
def module(new_kinds):
    return new_kinds(NEW)


@pytest.mark.parametrize("row", registry.rows(), ids=lambda row: row.kind)
def test_every_kind_has_a_complete_model_and_all_its_parts(row):
    model = registry.load(row.kind)
    assert issubclass(model, Planner)
    assert (model.kind, registry.row_of(row.kind)) == (row.kind, row)
    assert all(registry.resolve(part) is not None for part in row.games)
    if row.section:
        assert registry.section_of(row.kind) is registry.resolve(row.section)


def test_an_unknown_kind_is_refused_with_the_list():
    with raises(StudyError, "ST139", "tree", "pca", "linear", "logistic", "glm"):
        registry.row_of("tree")
    with raises(StudyError, "ST139", "tree"):
        registry.load("tree")


def test_a_kind_that_is_not_run_has_no_section():
    with raises(StudyError, "ST145", "sketch"):
        registry.section_of("sketch")


def test_a_new_kind_is_taken_in_once(module):
    row = Kind("new", "new_kinds:Whole", "new_kinds:SECTION")
    assert registry.register(row) == row
    assert registry.register(row) == row
    assert registry.rows()[-1] == row
    assert registry.load("new").__name__ == "Whole"
    assert registry.section_of("new") == "a section"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            Kind("pca", "new_kinds:Whole"),
            ("ST138", "'pca'", "colonnade.kinds.pca.model:PCA"),
        ),
        (Kind("new", "new_kinds:Renamed"), ("ST141", "'new'", "new_kinds", "other")),
        (Kind("new", "new_kinds:Abstract"), ("ST142", "new_kinds", "plan")),
        (Kind("new", "new_kinds:Taskless"), ("ST144", "new_kinds")),
        (
            Kind("new", "new_kinds:Incomplete"),
            ("ST537", "new_kinds", "Lacking", "rows_limit"),
        ),
        (Kind("new", "new_kinds:NoModel"), ("ST140", "new_kinds")),
        (Kind("new", "new_kinds:Run"), ("ST143", "new_kinds")),
        (Kind("new", "new_kinds:SECTION"), ("ST140", "new_kinds")),
    ],
    ids=[
        "doubled",
        "renamed",
        "abstract",
        "without tasks",
        "task lacks a member",
        "no planner",
        "no section",
        "no class",
    ],
)
def test_what_is_wrong_with_a_new_kind_is_named_and_the_list_stays_as_it_was(module, row, message):
    before = registry.rows()
    with raises(StudyError, message):
        registry.register(row)
    assert registry.rows() == before


@pytest.mark.parametrize(
    ("row", "error"),
    [
        (Kind("new", "no_such_module:Model"), ModuleNotFoundError),
        (Kind("new", "new_kinds:Nothing"), AttributeError),
        (Kind("new", "new_kinds:Whole", "new_kinds:NOTHING"), AttributeError),
        (Kind("new", "new_kinds:Whole", games=("no_such_module",)), ModuleNotFoundError),
    ],
    ids=["module", "model", "section", "games"],
)
def test_a_kind_whose_parts_are_not_there_is_not_taken_in(module, row, error):
    before = registry.rows()
    with pytest.raises(error):
        registry.register(row)
    assert registry.rows() == before


def install(folder, entry):
    """What an installer leaves of a package that offers a kind."""
    info = folder / "new_kinds-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: new-kinds\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\nnew = {entry}\n")
    registry._installed.cache_clear()


def test_kinds_of_installed_packages_are_found(module):
    install(module, "new_kinds:ROW")
    assert registry.row_of("new").model == "new_kinds:Whole"
    assert [row.kind for row in registry.rows()][-2:] == ["sketch", "new"]
    assert registry.load("new")(rounds=1, rows=5, dimension=2, epsilon=1.0).kind == "new"


@pytest.mark.parametrize("entry", ["new_kinds:NOTHING", "no_such_module:ROW"])
def test_an_installed_kind_that_cannot_be_loaded_is_named(module, entry):
    install(module, entry)
    assert "new" not in [row.kind for row in registry.rows()]  # the others are not disturbed
    with raises(StudyError, "ST146", "new", entry):
        registry.row_of("new")


def test_an_installed_kind_cannot_replace_another(module):
    with (module / "new_kinds.py").open("a") as file:
        file.write('THIEF = Kind("pca", "new_kinds:Whole")\n')
    install(module, "new_kinds:THIEF")
    with raises(StudyError, "ST138", "pca", "new"):
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
    assert model.additive(task) is programs
    assert why_not(task) is None
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
    assert model.additive(task) is None
    assert why in why_not(task)
    if name == "gradients":
        with raises(StudyError, "ST060"):
            model.summands("bank", None, task)
