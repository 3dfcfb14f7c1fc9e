"""The list of kinds: what is refused by name, and kinds that installed packages add."""

from __future__ import annotations

import pytest

from colonnade.errors import StudyError
from colonnade.models import kinds
from colonnade.models.kinds import Kind
from colonnade.models.planner import Planner
from tests.errors import raises

NEW = """
from colonnade.models.kinds import Kind
from colonnade.models.planner import Planner
from colonnade.models.sketch import SketchPlanner
from colonnade.protocols.sketch import Sketch
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


@pytest.mark.parametrize("row", kinds.rows(), ids=lambda row: row.kind)
def test_every_kind_has_a_complete_model_and_all_its_parts(row):
    model = kinds.load(row.kind)
    assert issubclass(model, Planner)
    assert (model.kind, kinds.row_of(row.kind)) == (row.kind, row)
    assert all(kinds.resolve(part) is not None for part in row.games)
    if row.section:
        assert kinds.section_of(row.kind) is kinds.resolve(row.section)


def test_an_unknown_kind_is_refused_with_the_list():
    with raises(StudyError, "ST139", "tree", "pca", "linear", "logistic", "glm"):
        kinds.row_of("tree")
    with raises(StudyError, "ST139", "tree"):
        kinds.load("tree")


def test_a_kind_that_is_not_run_has_no_section():
    with raises(StudyError, "ST145", "sketch"):
        kinds.section_of("sketch")


def test_a_new_kind_is_taken_in_once(module):
    row = Kind("new", "new_kinds:Whole", "new_kinds:SECTION")
    assert kinds.register(row) == row
    assert kinds.register(row) == row
    assert kinds.rows()[-1] == row
    assert kinds.load("new").__name__ == "Whole"
    assert kinds.section_of("new") == "a section"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            Kind("pca", "new_kinds:Whole"),
            ("ST138", "'pca'", "colonnade.models.pca:PCA"),
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
    before = kinds.rows()
    with raises(StudyError, message):
        kinds.register(row)
    assert kinds.rows() == before


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
    before = kinds.rows()
    with pytest.raises(error):
        kinds.register(row)
    assert kinds.rows() == before


def install(folder, entry):
    """What an installer leaves of a package that offers a kind."""
    info = folder / "new_kinds-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: new-kinds\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{kinds.ENTRY_POINTS}]\nnew = {entry}\n")
    kinds._installed.cache_clear()


def test_kinds_of_installed_packages_are_found(module):
    install(module, "new_kinds:ROW")
    assert kinds.row_of("new").model == "new_kinds:Whole"
    assert [row.kind for row in kinds.rows()][-2:] == ["sketch", "new"]
    assert kinds.load("new")(rounds=1, rows=5, dimension=2, epsilon=1.0).kind == "new"


@pytest.mark.parametrize("entry", ["new_kinds:NOTHING", "no_such_module:ROW"])
def test_an_installed_kind_that_cannot_be_loaded_is_named(module, entry):
    install(module, entry)
    assert "new" not in [row.kind for row in kinds.rows()]  # the others are not disturbed
    with raises(StudyError, "ST146", "new", entry):
        kinds.row_of("new")


def test_an_installed_kind_cannot_replace_another(module):
    with (module / "new_kinds.py").open("a") as file:
        file.write('THIEF = Kind("pca", "new_kinds:Whole")\n')
    install(module, "new_kinds:THIEF")
    with raises(StudyError, "ST138", "pca", "new"):
        kinds.row_of("new")
    assert kinds.load("pca").__module__ == "colonnade.models.pca"
