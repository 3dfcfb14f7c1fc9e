"""``python -m tools.drawings``, or ``make drawings``: write all drawings to ``docs/pictures``."""

from __future__ import annotations

from pathlib import Path

from .canvas import Sheet
from .flows import FLOWS
from .house import house, mark
from .sequence import Drawn
from .tables import course, seen

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"


def sheets() -> dict[str, Sheet]:
    """All drawings by name, but for the mark."""
    drawn = {f"flow-{flow.name}": Drawn(flow).sheet for flow in FLOWS}
    return {"house": house(), "who-sees-what": seen(), "study": course(), **drawn}


def files() -> dict[str, str]:
    """What is written, by the name of the file."""
    return {"logo.svg": mark(), **{f"{name}.svg": sheet.svg() for name, sheet in sheets().items()}}


if __name__ == "__main__":
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
