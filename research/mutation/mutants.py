"""A mutant: one statement of one function, as it was and as it becomes; and how it is found again in another tree."""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

from research.mutation.functions import Found, Function, functions, key, modules, moved_out, parsed, statements


@dataclass(frozen=True)
class Mutant:
    """Where a fault goes, by names and texts, never by line numbers."""

    id: str
    module: str
    qualname: str
    operator: str
    line: str
    becomes: str
    occurrence: int
    body: str

    @property
    def folder(self) -> str:
        """The folder that it was in when it was chosen."""
        return self.module.rpartition("/")[0]


@dataclass(frozen=True)
class Place:
    """A mutant's statement where it is now, and how it was found there."""

    function: Found
    statement: ast.stmt = field(repr=False)
    how: str


def read_mutants(path: Path) -> list[Mutant]:
    """The kept list."""
    return [Mutant(**each) for each in json.loads(path.read_text(encoding="utf-8"))]


def write_mutants(path: Path, mutants: Iterable[Mutant]) -> None:
    """One mutant a line."""
    lines = ",\n".join(json.dumps(asdict(mutant), ensure_ascii=False) for mutant in mutants)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def matching(function: Function, line: str) -> list[ast.stmt]:
    """The statements of a function that are this line, whatever text is in it."""
    wanted = key(parsed(line))
    return [statement for statement, _, _ in statements(function) if key(statement) == wanted]


class Tree:
    """A source tree in which mutants are found again."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self._read: dict[str, list[Found]] = {}

    def functions(self, module: str) -> list[Found]:
        """The functions of one file; none where there is no such file."""
        if module not in self._read:
            path = self.source / module
            code = path.read_text(encoding="utf-8") if path.is_file() else ""
            self._read[module] = functions(ast.parse(code), module)
        return self._read[module]

    @cached_property
    def _by_qualname(self) -> dict[str, list[Found]]:
        named: dict[str, list[Found]] = defaultdict(list)
        for module in (*modules(self.source), *moved_out(self.source)):
            for function in self.functions(module):
                named[function.qualname].append(function)
        return named

    def locate(self, mutant: Mutant) -> Place | None:
        """The one place where the mutant belongs, or None: it is gone, or there is more than one such place.

        First the function with its name and its body: in its own file, or else the only one of the tree. Then, if its
        body has changed, the function with its name that has its statement: in its own file, or else the only one.
        """
        here = [function for function in self.functions(mutant.module) if function.qualname == mutant.qualname]
        if place := _only(_same(here, mutant), mutant, "same file"):
            return place
        others = self._by_qualname.get(mutant.qualname, [])
        return (
            _only(_same(others, mutant), mutant, "moved")
            or _only(here, mutant, "changed")
            or _only(others, mutant, "moved and changed")
        )

    def applied(self, mutant: Mutant, place: Place) -> str:
        """The text of the file with the mutant in it."""
        return edited((self.source / place.function.module).read_text(encoding="utf-8"), place.statement, mutant)


def _same(candidates: list[Found], mutant: Mutant) -> list[Found]:
    return [function for function in candidates if function.digest == mutant.body]


def _only(candidates: list[Found], mutant: Mutant, how: str) -> Place | None:
    places = []
    for function in candidates:
        lines = matching(function.node, mutant.line)
        same = function.digest == mutant.body
        if len(lines) == 1 or (same and len(lines) > mutant.occurrence):
            places.append(Place(function, lines[mutant.occurrence if same else 0], how))
    return places[0] if len(places) == 1 else None


def difference(before: ast.AST, after: ast.AST) -> list[tuple[str, int | None]]:
    """The way from a statement to the smallest expression in it that is another one afterwards."""
    way: list[tuple[str, int | None]] = []
    longest = 0
    while type(before) is type(after):
        changed: list[tuple[tuple[str, int | None], ast.AST, ast.AST]] = []
        for name in before._fields:
            old, new = getattr(before, name), getattr(after, name)
            olds, news = (old, new) if isinstance(old, list) and isinstance(new, list) else ([old], [new])
            if len(olds) != len(news):
                return way[:longest]
            for place, (one, other) in enumerate(zip(olds, news, strict=True)):
                if isinstance(one, ast.AST) and isinstance(other, ast.AST):
                    if ast.dump(one) != ast.dump(other):
                        changed.append(((name, place if isinstance(old, list) else None), one, other))
                elif one != other:
                    return way[:longest]
        if len(changed) != 1:
            return way[:longest]
        step, before, after = changed[0]
        way.append(step)
        if isinstance(before, ast.expr) and isinstance(after, ast.expr):
            longest = len(way)
    return way[:longest]


def follow(node: ast.AST, way: list[tuple[str, int | None]]) -> ast.AST:
    """The node at the end of a way."""
    for name, place in way:
        part = getattr(node, name)
        node = part if place is None else part[place]
    return node


def edited(code: str, statement: ast.stmt, mutant: Mutant) -> str:
    """The text of a file in which only the changed expression is written anew, or the statement if it is all of it."""
    after = parsed(mutant.becomes)
    way = difference(parsed(mutant.line), after)
    old, new = follow(statement, way), follow(after, way)
    assert isinstance(old, ast.expr | ast.stmt)
    assert old.end_lineno is not None
    assert old.end_col_offset is not None
    if not way and hasattr(statement, "body"):
        raise ValueError(f"{mutant.id} changes all of a compound statement [VA279]")
    words = f"({ast.unparse(new)})" if way else ast.unparse(new)
    lines = code.encode().splitlines(keepends=True)
    start = sum(map(len, lines[: old.lineno - 1])) + old.col_offset
    end = sum(map(len, lines[: old.end_lineno - 1])) + old.end_col_offset
    raw = b"".join(lines)
    return (raw[:start] + words.encode() + raw[end:]).decode()
