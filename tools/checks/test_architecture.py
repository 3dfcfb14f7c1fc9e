"""The shape of the house: imports point down, modules stay short, and nothing leaves the shares unseen."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from colonnade.models import registry
from tools.pages import ROOT, text_of

SOURCE = ROOT / "src" / "colonnade"
GROUND = {"disk", "drawing", "errors", "lazy", "memory", "message_schema", "randomness", "sanitize", "versions"}
PILLARS = {"tables", "wire", "mpc", "privacy"}
CORE = GROUND | PILLARS | {"protocols", "models", "audit", "report", "study", "federation", "console", "cli"}
"""No floor of it imports a kind: the registry names what kinds have."""
MAY_IMPORT = {
    **{name: set() for name in GROUND},
    "drawing": {"errors", "sanitize"},
    "message_schema": {"errors"},
    "sanitize": {"errors"},
    "disk": {"errors"},
    **dict.fromkeys(PILLARS, GROUND),
    "protocols": GROUND | PILLARS,
    "models": GROUND | PILLARS | {"protocols"},
    "audit": GROUND | PILLARS | {"protocols", "models"},
    "testing": GROUND,
    "report": GROUND | PILLARS | {"protocols", "models", "audit"},
    "kinds": GROUND | PILLARS | {"protocols", "models", "audit", "report"},
    "study": GROUND | PILLARS | {"protocols", "models"},
    "federation": GROUND | PILLARS | {"protocols", "models", "study", "report"},
    "console": GROUND | PILLARS | {"protocols", "models", "study", "report", "audit", "federation"},
    "cli": GROUND | PILLARS | {"protocols", "models", "study", "report", "audit", "federation", "console"},
    "__init__": GROUND | PILLARS | {"models", "kinds", "study"},
    "__main__": {"cli"},
}
LONGEST, SHORT = 800, 180
STATEMENTS, FILES = 62_784, 450
DOCSTRING_LINES = 0.91
"""Of a function, on average: fewer of them are no way to be smaller."""
MASKED = {
    ("mpc/engine.py", "def open_among_seats(self, shares: Shares) -> Residues:"),
    ("mpc/engine.py", "def open_to_readers(self, shares: Shares, readers: Sequence[str]) -> Residues | None:"),
    ("mpc/fixed_point/truncation.py", "opened = self.engine.open_among_seats(joined)"),
    ("mpc/fixed_point/truncation.py", "opened = self.engine.open_to_readers(self._join(masked, degree), readers)"),
    ("mpc/fixed_point/truncation.py", "opened = self.engine.open_to_readers(own, (self.engine.name,))"),
    ("mpc/fixed_point/truncation.py", "words = packed.open("),
    ("mpc/fixed_point/truncation.py", "return system.low_word(self.engine.open_among_seats(masked)) & low"),
    (
        "mpc/fixed_point/truncation.py",
        "opened = self.engine.open_to_readers(_block_shares(masked, block), (block.king,))",
    ),
    ("mpc/fixed_point/arithmetic.py", "opened = self.masks.bits.open(hidden, veiled=self.engine.active)"),
}
"""What seats open among themselves: numbers under masks, bits under coins."""
REVEALS = {
    ("protocols/roles.py", "def reveal("),
    ("protocols/joint_sum/engine.py", "values = me.reveal("),
    ("kinds/regression/programs.py", "opened = me.reveal("),
    ("kinds/synthesis/mixture/programs.py", "opened = summing.reveal("),
    ("kinds/pca/programs.py", "opened = me.reveal("),
}
TOLD = {("protocols/roles.py", "def tell("): 1, ("kinds/glm/programs.py", "me.tell("): 3} | {
    ("kinds/glm/kept_scores.py", "me.tell("): 1,
    ("kinds/prediction/randomised_answers.py", "me.tell("): 1,
    ("kinds/split/embedding_programs.py", "me.tell("): 4,
    ("kinds/split/adaptive_programs.py", "me.tell("): 2,
}
MODULES = sorted(SOURCE.rglob("*.py"))


def floor_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def tree_of(path: Path) -> ast.Module:
    """A module; to parse all of them takes seconds, so each is parsed once."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports_in(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Every import of a module."""
    return tuple(node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Import | ast.ImportFrom))


@cache
def for_types(path: Path) -> frozenset[ast.ImportFrom]:
    """The imports from its own floor that a module needs for types alone."""
    below = f"colonnade.{floor_of(path)}."
    return frozenset(
        node
        for branch in ast.walk(tree_of(path))
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in branch.body
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(below)
    )


def imported(path: Path) -> Iterator[str]:
    """Which parts of Colonnade a module imports, wherever in it the import stands."""
    for node in imports_in(path):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            first, *rest = name.split(".")
            if first == "colonnade":
                assert rest, f"{path}: no module imports the package as a whole"
                yield rest[0]


def modules_imported(path: Path) -> Iterator[Path]:
    """The files of Colonnade that a module imports, wherever in it the import stands, by a statement or by name.

    What is imported from the own floor for types alone does not count: two parts of one engine may name each other.
    A name counts wherever it stands as text by itself, and in a module that calls ``import_module`` also without the
    name of the package. The registry's rows are what that is for; a fork server is started, not imported.
    """
    for node in imports_in(path):
        if isinstance(node, ast.ImportFrom) and node.module and node not in for_types(path):
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                yield SOURCE.parent / f"{name.replace('.', '/')}.py"
    yield from (SOURCE / f"{name.replace('.', '/')}.py" for name in named_in(path))


def named_in(path: Path) -> set[str]:
    """The modules of Colonnade that a module names as text by itself, without the name of the package."""
    if path in (SOURCE / "models" / "registry.py", SOURCE / "study" / "fork_server.py"):
        return set()
    # A task carries the module of its programs, which are about it, and imports it when one of them runs.
    text = re.sub(r'\bTaskPrograms\("[a-z_.]+"\)', "", path.read_text(encoding="utf-8"))
    found = set(re.findall(r'"colonnade\.([a-z_.]+)(?::\w+)?"', text))
    if "import_module(" in text:
        found |= set(re.findall(r'"([a-z_.]+)"', text))
    itself = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    return {name for name in found - {itself, "__main__"} if (SOURCE / f"{name.replace('.', '/')}.py").is_file()}


def test_imports_point_down() -> None:
    assert len(MODULES) > 300
    beyond = {}
    for path in MODULES:
        found = {*imported(path), *(name.split(".")[0] for name in named_in(path))}
        if more := found - MAY_IMPORT[floor_of(path)] - {floor_of(path)}:
            beyond[path.relative_to(SOURCE).as_posix()] = sorted(more)
    assert not beyond, f"these modules must not import what is named: {beyond}"


def test_no_modules_import_in_a_circle() -> None:
    """``__init__`` may list what the modules below it hold."""
    left = {path: set(modules_imported(path)) for path in MODULES if path.stem != "__init__"}
    while leaves := [path for path, below in left.items() if not below & left.keys()]:
        for path in leaves:
            del left[path]
    assert not left, "these import each other, or import what does"


def test_imports_by_name_are_seen() -> None:
    """Otherwise a circle could hide in one."""
    ahead = set(modules_imported(SOURCE / "cli" / "preload.py"))
    assert SOURCE / "cli" / "results.py" in ahead
    assert SOURCE / "study" / "run.py" in ahead


# --- kinds


def kinds_of_the_page() -> dict[str, set[str]]:
    """Which kind may import which, as the page about the architecture says."""
    text = text_of("explanation/architecture.md").partition("### Which kind may import which\n")[2].partition("\n#")[0]
    return {
        kind: set(re.findall(r"`(\w+)`", others))
        for kind, others in re.findall(r"^\| `(\w+)` \| (.*?) \|", text, re.MULTILINE)
    }


def kind_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[1]


KINDS = sorted(path.name for path in (SOURCE / "kinds").iterdir() if (path / "__init__.py").is_file())


def test_kinds_import_each_other_only_where_the_page_says_so() -> None:
    found: dict[str, set[str]] = {}
    for path in (SOURCE / "kinds").rglob("*.py"):
        if path.parent == SOURCE / "kinds":
            continue
        for below in modules_imported(path):
            inside = below.is_relative_to(SOURCE / "kinds") and len(below.relative_to(SOURCE).parts) > 2
            if inside and kind_of(below) != kind_of(path):
                found.setdefault(kind_of(path), set()).add(kind_of(below))
    assert found == kinds_of_the_page()


def test_the_core_names_kinds_in_the_registry_alone() -> None:
    """Not by an import, which ``MAY_IMPORT`` forbids, and not as text either."""
    assert not any("kinds" in MAY_IMPORT[floor] for floor in CORE | {"testing"})
    named = {
        path.relative_to(SOURCE).as_posix()
        for path in MODULES
        if floor_of(path) != "kinds" and re.search(r"colonnade\.kinds|\bkinds/", path.read_text(encoding="utf-8"))
    }
    assert named == {"__init__.py", "models/registry.py"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_begins_with_a_page_that_leads_through_its_folder(kind: str) -> None:
    folder = SOURCE / "kinds" / kind
    page = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    assert re.search(r"\b[Pp]aper\b", page), "which paper, or that there is none"
    theorems = re.findall(r"docs/theory/([\w-]+\.md)", page)
    assert theorems or kind == "sketch"
    assert all((ROOT / "docs" / "theory" / name).is_file() for name in theorems)
    named = set(re.findall(r"``([\w/]+?)/?``", page))
    for path in folder.rglob("*.py"):
        if path.name != "__init__.py":
            own = path.relative_to(folder)
            assert own.parts[0].removesuffix(".py") in named, f"{kind}: {own} is not on its page"
    for name in re.findall(r":mod:`([\w.]+)`", page):
        assert (SOURCE.parent / name.replace(".", "/")).is_dir() or (
            SOURCE.parent / f"{name.replace('.', '/')}.py"
        ).is_file()


def test_modules_are_neither_long_nor_scattered() -> None:
    long = {path.name: count for path in MODULES if (count := len(path.read_text("utf-8").splitlines())) > LONGEST}
    assert not long
    lengths = [len(path.read_text("utf-8").splitlines()) for path in MODULES if path.stem != "__init__"]
    assert median(lengths) >= SHORT, "small modules of one concept are one module"


def test_the_source_is_no_larger_than_its_ceiling() -> None:
    nodes = [node for path in MODULES for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    assert sum(isinstance(node, ast.stmt) for node in nodes) <= STATEMENTS, "merge concepts before adding others"
    assert len(MODULES) <= FILES
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    described = sum(len((ast.get_docstring(node) or "").splitlines()) for node in functions)
    assert described / len(functions) >= DOCSTRING_LINES


def test_the_names_of_public_classes_are_unique() -> None:
    """Whoever reads a name knows which class it is."""
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())
    assert not {name: found for name, found in places.items() if len(found) > 1}


KNOWN_ABOVE = re.compile(r"\bisinstance\([^)]*\b(\w+)\)|\b(?:getattr|hasattr)\((?:self\.)?(?:model|task|answer)\b")


def test_upper_floors_do_not_ask_what_kind_they_have() -> None:
    """No test of a task, model or pre-flight class above the models: their contracts answer."""
    classes = {
        cls.__name__
        for row in registry.rows()
        for cls in (*registry.load(row.kind).__mro__, *registry.load(row.kind).tasks)
    }
    for floor in ("study", "cli", "report"):
        for path in (SOURCE / floor).rglob("*.py"):
            for found in KNOWN_ABOVE.finditer(path.read_text(encoding="utf-8")):
                named = set(re.findall(r"\w+", found[0]))
                assert found[1] is not None, f"{path}: {found[0]}"
                assert not named & (classes - {"object"}), f"{path}: {found[0]}"


COLUMN_TYPES = {"Number", "Category", "Flag", "Days", "Calendar", "Date"}


def tells_columns_apart(node: ast.AST) -> bool:
    """Whether code asks which type a column has: by its class, or by the word of its type."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
        return any(isinstance(each, ast.Name) and each.id in COLUMN_TYPES for each in ast.walk(node.args[1]))
    if isinstance(node, ast.MatchClass):
        return isinstance(node.cls, ast.Name) and node.cls.id in COLUMN_TYPES
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    if any(isinstance(side, ast.Call) and ast.unparse(side.func) == "type" for side in sides):
        return any(isinstance(each, ast.Name) and each.id in COLUMN_TYPES for side in sides for each in ast.walk(side))
    # Parts of a key have kinds too, which are numbers and dates.
    asked = [side for side in sides if isinstance(side, ast.Attribute) and side.attr == "kind"]
    words = {each.value for side in sides for each in ast.walk(side) if isinstance(each, ast.Constant)}
    columns = any(ast.unparse(side.value) not in ("key", "self", "exponent", "token") for side in asked)
    return columns and bool(words & {"number", "category", "flag", "date"})


def test_columns_are_asked_and_not_told_apart() -> None:
    """A column owns what it does (``tables/columns.py``), so that a new type of column is one class and one row."""
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in MODULES
        if any(map(tells_columns_apart, ast.walk(tree_of(path))))
    }
    assert len(found) <= 5, f"these ask which type a column has: {sorted(found)}"
    assert tells_columns_apart(ast.parse("isinstance(column, Number | Flag)", mode="eval").body)
    assert tells_columns_apart(ast.parse('column.kind == "date"', mode="eval").body)


def test_every_place_where_something_leaves_the_shares_is_known() -> None:
    found = set()
    for path in MODULES:
        for line in path.read_text(encoding="utf-8").splitlines():
            if "reveal(" in line:
                found.add((path.relative_to(SOURCE).as_posix(), re.sub(r"(reveal\().*", r"\1", line.strip())))
    assert found == REVEALS


def test_what_is_opened_under_masks_is_opened_in_the_places_listed_here_only() -> None:
    found = set()
    for path in MODULES:
        for line in path.read_text(encoding="utf-8").splitlines():
            if re.search(r"\bopen_(among_seats|to_readers)\(|\.open\(", line) and "mpc" in path.parts:
                found.add((path.relative_to(SOURCE).as_posix(), line.strip()))
    assert found == MASKED


def test_noised_numbers_leave_a_party_in_the_places_listed_here_only() -> None:
    found: dict[tuple[str, str], int] = {}
    for path in MODULES:
        for match in re.findall(
            r"\bme\.tell\(" + r"|\bdef tell\(" * (floor_of(path) == "protocols"), path.read_text("utf-8")
        ):
            place = (path.relative_to(SOURCE).as_posix(), match)
            found[place] = found.get(place, 0) + 1
    assert found == TOLD


def test_what_a_peer_sends_comes_in_through_one_door() -> None:
    """A channel is read by ``receive_message`` alone; what opens a socket of its own is the wire."""
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in MODULES
        if re.search(r"\brecv\b(?!\(self)", path.read_text(encoding="utf-8")) and floor_of(path) != "wire"
    }
    assert found == {"message_schema.py"}


def test_every_message_that_is_sent_is_declared_by_a_schema() -> None:
    """Whoever adds a message says what it may hold; the kinds of lists stand where they are sent."""
    declared, sent = set(), set()
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        declared |= set(re.findall(r'\b(?:MessageSchema|\w+_message)\(\s*"([^"]+)"', text))
        if floor_of(path) in ("mpc", "protocols", "kinds"):
            sent |= set(re.findall(r'\.send\("([^"]+)"', text))
    assert len(sent) > 25
    assert sent - declared == {"blinded", "blinded twice"}, "pieces of lists, declared as points"


PRINTED = {
    ("cli/output.py", "console.print(sanitize_lines("),
    ("cli/output.py", "sys.stdout.write(text)"),
    ("cli/output.py", "sys.stderr.write(sanitize_lines("),
    ("cli/output.py", 'sys.stderr.write("".join(f"{line}'),
    ("cli/approve.py", 'sys.stderr.write(f"{sanitize('),
}
"""Where something is printed: through ``sanitize``, or JSON in ASCII and exports of one's own ledger as they are."""


def test_text_of_others_is_printed_through_one_function() -> None:
    printing = re.compile(r"\bprint\(|\bstd(?:out|err)\.write\(|\becho\(|\.print_exception\(|\bwrite_through\b")
    lines = [
        (path.relative_to(SOURCE).as_posix(), line.strip())
        for path in MODULES
        for line in path.read_text(encoding="utf-8").splitlines()
        if printing.search(line) and "fingerprint(" not in line
    ]
    known = {
        line: [place for place in PRINTED if place[0] == line[0] and line[1].startswith(place[1])] for line in lines
    }
    assert len(lines) == len(PRINTED)
    assert all(known.values()), known
    shown = {"cli/text_output.py", "cli/output.py", "study/record.py", "drawing/canvas.py"}
    assert shown | {"wire/peer_liveness.py", "wire/codec.py", "wire/hub_connection.py", "protocols/rows.py"} <= {
        path.relative_to(SOURCE).as_posix() for path in MODULES if "sanitize" in imported(path)
    }
