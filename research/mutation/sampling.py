"""Which mutants: cosmic-ray's operators and three of our own on functions that are drawn with a fixed seed.

Every folder has its share by its statements, and at least a few. A function has one mutant at most. cosmic-ray is
needed here alone; what it makes is kept as a line before and a line after.
"""

from __future__ import annotations

import ast
import importlib
import random
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from research.mutation.functions import Found, Function, blank, functions, key, modules, parsed, statements, text
from research.mutation.mutants import Mutant, Tree, difference, follow

SEED = 20240
LEAST = 3
UNSEEN = {"__repr__", "__rich_repr__"}
_LOGGERS = {"logging", "logger", "log", "_log", "_logger"}
# By kind, so that the many numbers and comparisons of a function do not leave the rest without a chance.
COSMIC = {
    "comparison": [
        f"ReplaceComparisonOperator_{pair}"
        for pair in (
            "Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_GtE", "GtE_Lt", "Gt_LtE", "LtE_Gt",
            "Is_IsNot", "IsNot_Is",
        )
    ],
    "arithmetic": [
        f"ReplaceBinaryOperator_{pair}"
        for pair in (
            "Add_Sub", "Sub_Add", "Mul_Div", "Mul_Add", "Div_Mul", "FloorDiv_Mul", "FloorDiv_Add", "Mod_Add", "Pow_Mul",
            "LShift_RShift", "RShift_LShift", "BitAnd_BitOr", "BitOr_BitAnd", "BitXor_BitAnd",
        )
    ]
    + ["ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Invert"],
    "condition": ["AddNot", "ReplaceUnaryOperator_Delete_Not"],
    "and, or": ["ReplaceAndWithOr", "ReplaceOrWithAnd"],
    "number": ["NumberReplacer"],
    "true, false": ["ReplaceTrueWithFalse", "ReplaceFalseWithTrue"],
    "loop": ["ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ZeroIterationForLoop"],
}  # fmt: skip
COARSE = {"return": 0.4, "loop": 0.5}  # nearly any test notices these: fewer of them
Change = tuple[str, str, str, int]  # the operator, the line, what it becomes, which of the same lines


def own_changes(function: Function) -> Iterator[tuple[str, Change]]:
    """A value that is not returned, an error that is not raised, a call that is not made."""
    for statement, line, occurrence in _numbered(function):
        if isinstance(statement, ast.Return) and statement.value is not None and _worth(statement.value):
            yield "return", ("ReturnNone", line, "return None", occurrence)
        elif isinstance(statement, ast.Raise):
            yield "removal", ("RemoveRaise", line, "pass", occurrence)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and not _logs(statement):
            yield "removal", ("RemoveCall", line, "pass", occurrence)


def _numbered(function: Function) -> list[tuple[ast.stmt, str, int]]:
    seen: dict[str, int] = defaultdict(int)
    rows = []
    for statement, _, _ in statements(function):
        rows.append((statement, text(statement), seen[key(statement)]))
        seen[key(statement)] += 1
    return rows


def _worth(value: ast.expr) -> bool:
    """None already, or false as None is: nobody would see the change."""
    return not (isinstance(value, ast.Constant) and not value.value)


def _logs(statement: ast.stmt) -> bool:
    names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return isinstance(statement, ast.Expr) and bool(names & _LOGGERS)


def cosmic_changes(source: str) -> Iterator[tuple[str, Change]]:
    """What cosmic-ray's operators make of one function, given by its own text."""
    parso = importlib.import_module("parso")
    provider = importlib.import_module("cosmic_ray.operators.provider").OperatorProvider()
    before = ast.parse(source).body[0]
    assert isinstance(before, Function)
    rows, plain = _numbered(before), parso.parse(source)
    for kind, names in COSMIC.items():
        for name in names:
            operator = provider[name]()
            for number in range(_count(operator, plain)):
                tree = parso.parse(source)
                _mutate(operator, tree, number)
                try:
                    after = ast.parse(tree.get_code()).body[0]
                except (SyntaxError, IndexError):
                    continue
                if isinstance(after, Function) and (change := _compared(rows, before, after)):
                    yield kind, (name, *change)


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in getattr(node, "children", ()):
        yield from _nodes(child)


def _count(operator: Any, tree: Any) -> int:
    return sum(len(list(operator.mutation_positions(node))) for node in _nodes(tree))


def _mutate(operator: Any, tree: Any, number: int) -> None:
    for node in list(_nodes(tree)):
        for index, _ in enumerate(list(operator.mutation_positions(node))):
            if number == 0:
                new = operator.mutate(node, index)
                if new is not node and node.parent is not None:
                    place = next(place for place, child in enumerate(node.parent.children) if child is node)
                    node.parent.children[place] = new
                return
            number -= 1


def _compared(rows: list[tuple[ast.stmt, str, int]], before: Function, after: Function) -> tuple[str, str, int] | None:
    """The one statement that changed, if it is code that runs and no text, annotation or log."""
    later = [statement for statement, _, _ in statements(after)]
    if len(later) != len(rows) or ast.dump(before.args) != ast.dump(after.args):
        return None
    changed = [(row, new) for row, new in zip(rows, later, strict=True) if text(new) != row[1]]
    if len(changed) != 1:
        return None
    (statement, line, occurrence), new = changed[0]
    if isinstance(statement, ast.Match | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or _logs(statement):
        return None
    if not line.isprintable() or blank(statement) == blank(new):
        return None
    way = difference(parsed(line), parsed(text(new)))
    if any(name == "annotation" for name, _ in way) or _hidden(parsed(line), way):
        return None
    return line, text(new), occurrence


def _hidden(statement: ast.stmt, way: list[tuple[str, int | None]]) -> bool:
    """In text, or a type that nothing reads."""
    for length in range(len(way)):
        node = follow(statement, way[:length])
        if isinstance(node, ast.JoinedStr):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cast":
            return True
    return False


def _draw(function: Found, code: str, chance: random.Random) -> Change | None:
    node = function.node
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    own = textwrap.dedent("\n".join(code.splitlines()[first - 1 : node.end_lineno]))
    kinds: dict[str, list[Change]] = defaultdict(list)
    for kind, change in [*cosmic_changes(own), *own_changes(node)]:
        if change[1] and "\n" not in change[1] + change[2]:
            kinds[kind].append(change)
    if not kinds:
        return None
    names = sorted(kinds)
    return chance.choice(kinds[chance.choices(names, [COARSE.get(name, 1.0) for name in names])[0]])


def sample(source: Path, count: int, seed: int = SEED) -> list[Mutant]:
    """The mutants of a tree: the same for the same tree, count and seed."""
    tree = Tree(source)
    folders: dict[str, list[tuple[Found, int]]] = defaultdict(list)
    for module in modules(source):
        for function in functions(ast.parse((source / module).read_text(encoding="utf-8")), module):
            size = sum(1 for _ in statements(function.node))
            if size and function.qualname.rpartition(".")[2] not in UNSEEN:
                folders[module.rpartition("/")[0]].append((function, size))
    total = sum(size for rows in folders.values() for _, size in rows)
    mutants: list[Mutant] = []
    for folder, rows in sorted(folders.items()):
        chance = random.Random(f"{seed} {folder}")  # noqa: S311
        share = max(LEAST, round(count * sum(size for _, size in rows) / total))
        # One draw without replacement, by size.
        order = sorted(rows, key=lambda row: chance.random() ** (1 / row[1]), reverse=True)
        for function, _ in order:
            if share == 0:
                break
            code = (source / function.module).read_text(encoding="utf-8")
            drawn = _draw(function, code, chance)
            if drawn is None:
                continue
            operator, line, becomes, occurrence = drawn
            name = f"m{len(mutants) + 1:03}"
            mutant = Mutant(
                name, function.module, function.qualname, operator, line, becomes, occurrence, function.digest
            )
            if sound(tree, mutant):
                mutants.append(mutant)
                share -= 1
    return mutants


def sound(tree: Tree, mutant: Mutant) -> bool:
    """It is found again, and changes exactly one statement of the file."""
    place = tree.locate(mutant)
    if place is None:
        return False
    before = (tree.source / place.function.module).read_text(encoding="utf-8")
    after = ast.parse(tree.applied(mutant, place))
    old = [text(statement) for statement, _, _ in statements(ast.parse(before))]
    new = [text(statement) for statement, _, _ in statements(after)]
    changed = [pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]] if len(old) == len(new) else []
    return changed == [(mutant.line, mutant.becomes)]
