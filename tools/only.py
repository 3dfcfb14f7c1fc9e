"""The tests of one kind or folder, and of what depends on it: ``make test ONLY=glm``.

    python tools/only.py glm

Prints the paths for pytest: the folder's own tests, those of kinds that import it, and files elsewhere in ``tests/``
that import it or one of its public names.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE, TESTS = ROOT / "src" / "colonnade", ROOT / "tests"


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, and every name that it imports from one, with dots."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def public(kind: str) -> set[str]:
    """The names that ``colonnade`` and ``colonnade.kinds`` export of a kind."""
    sys.path.insert(0, str(ROOT / "src"))
    from colonnade import kinds

    homes = {**kinds.PUBLIC, **kinds._BESIDES}
    names = {name for home, said in homes.items() if home.split(".")[0] == kind for name in said.split()}
    return {f"{home}.{name}" for name in names for home in ("colonnade", "colonnade.kinds")}


def depends(path: Path, packages: set[str], names: set[str]) -> bool:
    """Whether a file imports a package, something in it, or one of the names."""
    below = tuple(f"{package}." for package in packages)
    return any(found in packages | names or found.startswith(below) for found in imported(path))


def chosen(name: str) -> list[Path]:
    """The paths to run for a folder of the source."""
    kinds = sorted(path.name for path in (SOURCE / "kinds").iterdir() if (path / "__init__.py").exists())
    floors = sorted(path.name for path in TESTS.iterdir() if (SOURCE / path.name).is_dir() and path.name != "kinds")
    if name not in {*kinds, *floors}:
        raise SystemExit(f"there is no {name!r}: give one of {', '.join((*kinds, *floors))}")
    packages, names, folders = {f"colonnade.{name}"}, set[str](), [TESTS / name]
    if name in kinds:
        package = f"colonnade.kinds.{name}"
        above = (
            kind
            for kind in kinds
            if any(depends(path, {package}, set()) for path in (SOURCE / "kinds" / kind).rglob("*.py"))
        )
        packages, names = packages | {package}, public(name)
        folders += [TESTS / "kinds" / kind for kind in sorted({name, *above})]
    held = [path for path in folders if path.is_dir()]
    others = [
        path for path in sorted(TESTS.rglob("test_*.py")) if not any(path.is_relative_to(folder) for folder in held)
    ]
    return held + [path for path in others if depends(path, packages, names)]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("python tools/only.py NAME, such as glm or privacy")
    print(" ".join(str(path.relative_to(ROOT)) for path in chosen(sys.argv[1])))  # noqa: T201
