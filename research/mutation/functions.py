"""The functions of a source tree, their statements, and a form of them that moves and new sentences leave alone.

A function is an outermost one: of a module, or of a class. What is inside it is part of it. Two bodies are the same if
they are the same trees once docstrings and imports are left out and text is blanked.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "colonnade"
MOVED_OUT = ("cheats", "twins")
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Blank(ast.NodeTransformer):
    """Text is gone: a sentence may get a code, or other words."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("") if isinstance(node.value, str) else ast.Constant(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        kept = [self.visit(part) for part in node.values if isinstance(part, ast.FormattedValue)]
        return ast.JoinedStr(kept) if kept else ast.Constant("")


def _ignored(statement: ast.stmt) -> bool:
    text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return text or isinstance(statement, ast.Import | ast.ImportFrom)


def head(statement: ast.stmt) -> ast.stmt:
    """The statement without the blocks that are in it."""
    short = copy.copy(statement)
    for name in _BLOCKS:
        if hasattr(short, name):
            setattr(short, name, [ast.Pass()] if name == "body" else [])
    return short


def text(statement: ast.stmt) -> str:
    """The first line of a statement as Python writes it, without layout."""
    if isinstance(statement, ast.Match):
        return f"match {ast.unparse(statement.subject)}:"
    if isinstance(statement, ast.Try | ast.TryStar):
        return "try:"
    words = ast.unparse(ast.fix_missing_locations(head(statement)))
    return words.removesuffix("pass").rstrip() if hasattr(statement, "body") else words


def parsed(line: str) -> ast.stmt:
    """The statement of a line that ``text`` gave."""
    whole = f"async def _():\n while _:\n  {line}" + (" pass" if line.endswith(":") else "")
    outer = ast.parse(whole).body[0]
    assert isinstance(outer, ast.AsyncFunctionDef)
    inner = outer.body[0]
    assert isinstance(inner, ast.While)
    return inner.body[0]


def blank(node: ast.AST) -> str:
    """The tree of a node as text, with all text in it blanked."""
    return ast.dump(_Blank().visit(copy.deepcopy(node)))


def key(statement: ast.stmt) -> str:
    """By this two statements are the same one."""
    return blank(head(statement)) if not isinstance(statement, ast.Match | ast.Try | ast.TryStar) else text(statement)


def statements(node: ast.AST) -> Iterator[tuple[ast.stmt, list[ast.stmt], int]]:
    """All statements in a node but text and imports, in the order of the file, each with its block and its place."""
    for name in _BLOCKS:
        block = getattr(node, name, None)
        for place, part in enumerate(block if isinstance(block, list) else ()):
            if isinstance(part, ast.stmt):
                if not _ignored(part):
                    yield part, block, place  # type: ignore[misc]
                    yield from statements(part)
            elif isinstance(part, ast.AST):
                yield from statements(part)


@dataclass(frozen=True)
class Found:
    """A function where it is now."""

    module: str
    qualname: str
    node: Function = field(repr=False)

    @property
    def digest(self) -> str:
        """The same for the same body, whatever its text and its imports are."""
        lines = [key(statement) for statement, _, _ in statements(self.node)]
        names = [argument.arg for argument in ast.walk(self.node.args) if isinstance(argument, ast.arg)]
        return hashlib.sha256("\n".join([*names, *lines]).encode()).hexdigest()[:12]


def functions(tree: ast.Module, module: str) -> list[Found]:
    """The outermost functions of a module, with their qualified names."""
    found: list[Found] = []

    def visit(block: list[ast.stmt], inside: str) -> None:
        for node in block:
            if isinstance(node, Function):
                found.append(Found(module, inside + node.name, node))
            elif isinstance(node, ast.ClassDef):
                visit(node.body, f"{inside}{node.name}.")
            elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
                visit(node.body, inside)
                visit(node.orelse, inside)
            elif isinstance(node, ast.Try):
                visit(node.body, inside)

    visit(tree.body, "")
    return found


def moved_out(source: Path) -> list[str]:
    """The files that once were in the package and are beside it in ``research`` now, as paths from ``source``."""
    places = [path for name in MOVED_OUT for path in (source.parent / "research" / name).rglob("*.py")]
    return sorted(f"../{path.relative_to(source.parent).as_posix()}" for path in places)


def modules(source: Path) -> list[str]:
    """The files of the package below ``source``, as paths from there."""
    return sorted(path.relative_to(source).as_posix() for path in (source / PACKAGE).rglob("*.py"))
