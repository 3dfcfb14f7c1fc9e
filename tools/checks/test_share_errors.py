"""Every sentence with exit code 31 has a row in the table of errors, and every row is a sentence of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tools.pages import ROOT

SOURCES = sorted((ROOT / "src" / "colonnade").rglob("*.py"))


def sentence(node: ast.expr) -> str:
    """The text of a string, with ``...`` for what is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(sentence(part) for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else "..."


def sentences() -> Iterator[str]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ShareError":
                yield sentence(node.args[0])


def rows() -> list[str]:
    page = (ROOT / "docs" / "reference" / "errors-shares.md").read_text(encoding="utf-8")
    section = page.partition("## 31 ShareError")[2].partition("\n## ")[0]
    table = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [said for cell in table for said in re.findall("`([^`]+)`", cell)]


def matches(row: str, said: str) -> bool:
    return re.search(".*".join(re.escape(part) for part in row.split("...")), said) is not None


def test_every_sentence_has_a_row_and_every_row_a_sentence() -> None:
    said, listed = list(sentences()), rows()
    assert len(said) > 10
    assert not [one for one in said if not any(matches(row, one) for row in listed)]
    assert not [row for row in listed if not any(matches(row, one) for one in said)]
