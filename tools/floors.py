"""Pins of the lowest versions that ``pyproject.toml`` allows, one on each line, for ``make lowest``.

    python tools/floors.py

They are those of Colonnade itself, of the extra ``fuzzy`` and of what the tests need; torch is left out, and so is
what only checks style and types.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_FLOOR = re.compile(r"(?P<name>[A-Za-z0-9._-]+)>=(?P<version>[0-9][0-9.]*)(,<[0-9.]+)?")


def floors() -> dict[str, str]:
    """The lowest version of each package."""
    settings = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    project, found = settings["project"], {}
    wanted_here = (*project["dependencies"], *project["optional-dependencies"]["fuzzy"])
    for wanted in (*wanted_here, *settings["dependency-groups"]["test"]):
        parts = _FLOOR.fullmatch(wanted)
        if parts is None:
            raise SystemExit(f"{wanted!r} in pyproject.toml names no lowest version: write name>=version")
        found[parts["name"]] = parts["version"]
    return found


if __name__ == "__main__":
    print("\n".join(f"{name}=={version}" for name, version in floors().items()))  # noqa: T201
