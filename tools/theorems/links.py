"""One row of the tables, and what its links point to.

Theorems are written ``page#anchor``, with ``|Theorem 1`` behind where the section names it; functions
``module:name``; tests ``tests/path.py::test_name``.
"""

from __future__ import annotations

import ast
import inspect
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
THEORY = ROOT / "docs" / "theory"

WHY_NO_GAME = {
    "nothing promised": "the event promises nothing, so there is nothing to refute",
    "priced, not run": "there is no program to attack",
    "arithmetic": "it computes with figures that have games of their own, and draws nothing",
    "lower bound": "it is what games measure",
}
"""Why a row may have no audit game."""

Names = tuple[str, ...]


@dataclass(frozen=True)
class Links:
    """Where something is proven, which functions compute it, which tests check these, and why it has no game.

    ``besides`` are tests of the theorem itself, by other code, or of a whole run.
    """

    theorems: Names
    functions: Names
    tests: Names
    no_game: str = ""
    besides: Names = ()


@dataclass(frozen=True)
class Charged:
    """An event of a class of tasks; ``made`` is the function that makes the event."""

    task: str
    release: str
    theorem: str
    made: str
    links: Links

    @property
    def key(self) -> tuple[str, str, str]:
        """As the events of tasks are told apart."""
        return self.task, self.release, self.theorem


@dataclass(frozen=True)
class Figure:
    """A step from events to figures; ``routes`` are the accountant's names of it."""

    name: str
    what: str
    links: Links
    games: Names = ()
    routes: Names = ()


@dataclass(frozen=True)
class Printed:
    """A place where an epsilon is written, and the figures that stand there."""

    where: str
    what: str
    figures: Names


@dataclass(frozen=True)
class Tables:
    """All that is declared."""

    charged: tuple[Charged, ...]
    figures: tuple[Figure, ...]
    printed: tuple[Printed, ...]
    serving: dict[str, str] = field(default_factory=dict)
    """Classes of tasks that charge nothing of their own, and why."""
    passed_on: dict[str, str] = field(default_factory=dict)
    """Functions that make events for others, each with the figure that it belongs to."""
    no_figure: dict[str, str] = field(default_factory=dict)
    """Places that write something about an epsilon, and why it is no privacy figure."""

    @property
    def rows(self) -> tuple[Charged | Figure, ...]:
        """The rows that have links."""
        return (*self.charged, *self.figures)


# --- theorems


@dataclass(frozen=True)
class Section:
    """A section of a page of theory."""

    anchor: str
    heading: str
    text: str


@cache
def sections(page: str) -> tuple[Section, ...]:
    """The sections of a page, by the anchors that its headings get."""
    text = (THEORY / f"{page}.md").read_text(encoding="utf-8")
    parts = re.split(r"^#+ +(.+)$", re.sub(r"^```.*?^```\s*$", "", text, flags=re.MULTILINE | re.DOTALL), flags=re.M)
    return tuple(Section(_slug(head), head, body) for head, body in zip(parts[1::2], parts[2::2], strict=True))


def _slug(heading: str) -> str:
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return "".join(c for c in plain if c in " -_" or unicodedata.category(c)[0] in "LN").replace(" ", "-")


@dataclass(frozen=True)
class Theorem:
    """A theorem, or a section that proves something without naming it."""

    page: str
    anchor: str
    name: str

    @classmethod
    def read(cls, written: str) -> Theorem:
        """``page#anchor|name``."""
        place, _, name = written.partition("|")
        page, _, anchor = place.partition("#")
        return cls(page, anchor, name)

    @property
    def section(self) -> Section | None:
        """The section that it is in; ``None`` if there is none."""
        if not (THEORY / f"{self.page}.md").exists():
            return None
        return next((one for one in sections(self.page) if one.anchor == self.anchor), None)

    @property
    def named(self) -> bool:
        """Whether the section names it so, in bold or in its heading."""
        section = self.section
        return section is not None and (f"**{self.name}" in section.text or self.name in section.heading)

    @property
    def label(self) -> str:
        """As it stands in a cell."""
        number = re.match(r"\d+", self.anchor)
        where = f"section {number[0]}" if number else _unnumbered(self.section)
        said = self.name if self.name not in ("Theorem", "Proposition", "Lemma") else f"{self.name.lower()}, {where}"
        return f"{self.page}: {said or where}"


def _unnumbered(section: Section | None) -> str:
    return "" if section is None else section.heading[:1].lower() + section.heading[1:]


# --- code


def resolve(name: str) -> Any:
    """The function, method or class that ``module:name`` means."""
    module, _, attribute = name.partition(":")
    found = import_module(module)
    for part in filter(None, attribute.split(".")):
        found = inspect.getattr_static(found, part)
    return found


def path_of(name: str) -> str:
    """The file that a module is in, from the root of the repository."""
    module = import_module(name.partition(":")[0])
    return Path(str(module.__file__)).resolve().relative_to(ROOT).as_posix()


# --- tests


@dataclass(frozen=True)
class TestFile:
    """What a file of tests defines and names."""

    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        """Its source."""
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def functions(self) -> set[str]:
        """Its functions."""
        return {node.name for node in self.tree.body if isinstance(node, ast.FunctionDef)}

    @cached_property
    def imported(self) -> set[str]:
        """The modules that it imports, or imports from."""
        return {name for node in ast.walk(self.tree) for name in _modules(node)}

    @cached_property
    def named(self) -> set[str]:
        """All names and attributes in it."""
        names = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}
        return names | {node.attr for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}

    def speaks_of(self, function: str) -> bool:
        """Whether it imports a function's module, or names the function, or the class or property that it is."""
        module, _, name = function.partition(":")
        parts = name.split(".")
        return module in self.imported or bool({parts[0], parts[-1]} & self.named)


def _modules(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (name.name for name in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (f"{node.module}.{name.name}" for name in node.names)


@cache
def test_file(path: str) -> TestFile:
    """One file of tests."""
    return TestFile(ROOT / path)
