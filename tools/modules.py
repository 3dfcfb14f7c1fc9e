"""Every module of the package with the start of its docstring; ``python -m tools.modules [FOLDER]`` prints the tree."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from tools.pages import ROOT

SOURCE = ROOT / "src" / "colonnade"


def summary(path: Path) -> str:
    """The first paragraph of a module's docstring, on one line."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def tree(folder: Path, indent: str = "") -> str:
    """A folder with everything in it, a line each."""
    lines = [f"{indent}{folder.name}/  {summary(folder / '__init__.py')}\n"]
    for path in sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name)):
        if path.is_dir() and (path / "__init__.py").is_file():
            lines.append(tree(path, indent + "  "))
        elif path.suffix == ".py" and path.name != "__init__.py":
            lines.append(f"{indent}  {path.name}  {summary(path)}\n")
    return "".join(lines)


if __name__ == "__main__":
    sys.stdout.write(tree(SOURCE / (sys.argv[1] if len(sys.argv) > 1 else "")))
