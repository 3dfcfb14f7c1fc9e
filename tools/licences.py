"""The licences of what Colonnade installs, in one table: a part of ``docs/reference/dependencies.md``.

    python -m tools.licences          # the table
    python -m tools.licences --write  # the same, into the page

It follows what is installed here: packages of the core and of the extras, with all that these ask for.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "dependencies.md"
EXTRAS = ("", "nn", "console", "onnx", "traces", "sql", "duckdb", "excel", "fuzzy", "quality", "ray")
_HEADING = "## Licences\n"
_INTRODUCTION = """
Of the core and of all extras, with what these ask for in turn, as their own metadata say it; made by `python -m tools.licences --write`. Development tools are not in it: nothing of them is in the wheel.

"""  # noqa: E501
_CLASSIFIER = "License :: OSI Approved :: "
_LONG = 60


def licences() -> dict[str, tuple[str, set[str]]]:
    """For each package that is installed here, its licence and which extras bring it (an empty name is the core)."""
    found: dict[str, tuple[str, set[str]]] = {}
    for extra in EXTRAS:
        for name in sorted(_closure(extra)):
            found.setdefault(name, (licence_of(name), set()))[1].add(extra)
    return found


def licence_of(name: str) -> str:
    """What a package says of its licence."""
    said = metadata.metadata(name)
    classified = [
        one.removeprefix(_CLASSIFIER) for one in said.get_all("Classifier", []) if one.startswith(_CLASSIFIER)
    ]
    stated = (said.get("License") or "").strip()
    short = stated if "\n" not in stated and len(stated) <= _LONG else ""
    return said.get("License-Expression") or " or ".join(classified) or short or "see its files"


def _closure(extra: str) -> set[str]:
    """The names of all packages that an extra needs and that are installed here."""
    seen: set[tuple[str, str]] = set()
    waiting = list(_needs("colonnade", extra))
    while waiting:
        one = waiting.pop()
        for wanted in ("", *sorted(one.extras)):
            key = (canonicalize_name(one.name), wanted)
            if key not in seen and _is_installed(one.name):
                seen.add(key)
                waiting += _needs(one.name, wanted)
    return {name for name, _ in seen}


def _needs(name: str, extra: str) -> Iterable[Requirement]:
    for line in metadata.requires(name) or ():
        one = Requirement(line)
        if (one.marker is None and not extra) or (one.marker is not None and one.marker.evaluate({"extra": extra})):
            yield one


def _is_installed(name: str) -> bool:
    try:
        metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def table() -> str:
    """The section of the page."""
    lines = ["| package | licence | for |", "|---|---|---|"]
    for name, (licence, extras) in sorted(licences().items()):
        whose = "core" if "" in extras else ", ".join(f"`{extra}`" for extra in sorted(extras))
        lines.append(f"| {name} | {licence} | {whose} |")
    return _HEADING + _INTRODUCTION + "\n".join(lines) + "\n"


def main() -> None:
    """Print the section, or put it into the page."""
    words = argparse.ArgumentParser(description="The licences of what Colonnade installs.")
    words.add_argument("--write", action="store_true", help="put the table into the page")
    if not words.parse_args().write:
        sys.stdout.write(table())
        return
    page = PAGE.read_text(encoding="utf-8")
    section = re.compile(re.escape(_HEADING) + r".*?(?=\n## |\Z)", re.S)
    page = section.sub(lambda _: table(), page) if section.search(page) else page.rstrip() + "\n\n" + table()
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
