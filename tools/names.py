"""Names of ours that a page puts in code, such as ``Committee.required_seats``, and whether the source still has them.

Five forms are looked up. Everything else in backticks is data, a key of a file, or mathematics.

``Class``, ``Class.member``, ``Class(...)``
    begins with a capital and a small letter, and has three letters at least: a class, and a member of it or a base
``function()``
    with nothing between the brackets: defined somewhere in the source, or a builtin
``module.name``
    the first in small letters: in a module of ours that is called so; where there is none, a name of the source
``two_words``
    at least two letters on either side of the stroke: a word of the source, or of ``research/``
``folder/module.py`` and after a colon, or before it with *in*, names
    each a name in that file
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tools.modules import SOURCE
from tools.pages import ROOT

_CODE = re.compile(r"`([^`\n]+)`")
_CLASS = re.compile(r"([A-Z][a-z]\w+)(?:\.(\w+))?(?:\([^()]*\))?")
_FUNCTION = re.compile(r"(\w+)\(\)")
_BESIDE = re.compile(
    r"`([\w/]+\.py)`: ((?:`[\w.]+`(?:, | and )?)+)|((?:`[\w.]+`(?:, | and )?)+) (?:in |\()`([\w/]+\.py)`"
)
_DOTTED = re.compile(r"([a-z]\w*)\.([A-Za-z]\w*)")
_WORDS = re.compile(r"_?[a-z]\w+_\w\w+")
_FILES = ("py", "md", "json", "jsonl", "toml", "npz", "html", "sqlite", "parquet", "db", "log")


@cache
def _trees() -> tuple[tuple[Path, ast.Module], ...]:
    return tuple((path, ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(SOURCE.rglob("*.py")))


def _bound(node: ast.AST) -> Iterator[str]:
    """What a statement gives a name to."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    for target in node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]:
        for part in ast.walk(target) if target is not None else ():
            if isinstance(part, ast.Name):
                yield part.id
            elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
                yield part.attr


def _names_in(tree: ast.AST) -> set[str]:
    return {name for node in ast.walk(tree) for name in _bound(node)}


@cache
def _classes() -> dict[str, tuple[set[str], set[str]]]:
    """Each class with what it binds itself and with the names of its bases."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for _, tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                own, bases = found.setdefault(node.name, (set(), set()))
                own.update(_names_in(node))
                bases.update(ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases)
    return found


def _members(kind: str) -> set[str]:
    own, bases = _classes().get(kind, (set(), set()))
    return own.union(*map(_members, bases))


@cache
def _modules() -> dict[str, set[str]]:
    """What all modules of one name bind."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path, tree in _trees():
        found[path.stem].update(_names_in(tree))
    return dict(found)


@cache
def _defined() -> set[str]:
    """Whatever is given a name anywhere in the source."""
    return set().union(*_modules().values())


@cache
def _words() -> set[str]:
    """Every word of the source and of research: keys of files and messages stand there in strings."""
    files = [path for folder in (SOURCE, ROOT / "research") for path in folder.rglob("*.py")]
    return {word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}


def _lacks(code: str) -> bool:
    if found := _CLASS.fullmatch(code):
        kind, member = found.groups()
        if kind not in _classes():
            return kind not in _defined() and not hasattr(builtins, kind)
        return member is not None and member not in _members(kind)
    if found := _FUNCTION.fullmatch(code):
        return found[1] not in _defined() and not hasattr(builtins, found[1])
    if found := _DOTTED.fullmatch(code):
        module, name = found.groups()
        return name not in _FILES and name not in _modules().get(module, _defined())
    return bool(_WORDS.fullmatch(code)) and not code.startswith("test_") and code not in _words()


def _misplaced(text: str) -> Iterator[str]:
    """Names beside the path of a file that does not have them."""
    for after, names, before, path in _BESIDE.findall(text):
        file = next((root / (after or path) for root in (SOURCE, ROOT) if (root / (after or path)).is_file()), None)
        known = set() if file is None else _names_in(ast.parse(file.read_text(encoding="utf-8")))
        yield from (
            f"{name} in {after or path}"
            for name in _CODE.findall(names or before)
            if not known.issuperset(name.split("."))
        )


def gone(page: Path) -> list[str]:
    """What a page puts in code as a name of ours, and the source does not have."""
    text = re.sub(r"^```.*?^```\s*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [*(code for code in _CODE.findall(text) if _lacks(code)), *_misplaced(text)]
