"""A noise law is one class: what else there is asks it, and does not name it."""

from __future__ import annotations

import ast
import re

from tools.pages import ROOT

NAMED = re.compile(r"skellam|discrete[-_ ]?gaussian|discrete[-_ ]?laplace", re.IGNORECASE)
MOST_FILES = 6


def test_laws_of_noise_are_named_in_few_files() -> None:
    """In names and texts of code; a docstring or a comment may explain a theorem by the law that it is about."""
    naming = set()
    for path in (ROOT / "src").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        prose = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if id(node) not in prose and any(NAMED.search(word) for word in _words(node)):
                naming.add(path.relative_to(ROOT).as_posix())
    assert 0 < len(naming) <= MOST_FILES, sorted(naming)


def _words(node: ast.AST) -> list[str]:
    """The names and the text of one node of a program."""
    fields = [value for name, value in ast.iter_fields(node) if name != "type_comment"]
    return [
        word for value in fields for word in (value if isinstance(value, list) else [value]) if isinstance(word, str)
    ]
