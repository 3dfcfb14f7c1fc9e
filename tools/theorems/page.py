"""The tables as they stand in ``docs/theory/README.md``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from . import found
from .checks import games_of
from .links import ROOT, Charged, Links, Tables, Theorem, path_of

PAGE = ROOT / "docs" / "theory" / "README.md"
COMMAND = "python -m tools.theorems --write"
BEGIN, END = "<!-- from theorem to code: begin -->", "<!-- from theorem to code: end -->"
PUBLISHED = "*as published, not proven*"


def section(tables: Tables) -> str:
    """The generated part of the page, with its marks."""
    rows = tables.rows
    tests = {test for row in rows for test in (*row.links.tests, *row.links.besides)}
    functions = {name for row in rows for name in row.links.functions}
    theorems = {name for row in rows for name in row.links.theorems}
    events = found.emitted()
    return "\n".join(
        (
            BEGIN,
            "## From theorem to code",
            "",
            "**Reviewers start here.** Every event that is charged and every epsilon that is printed, with its "
            "theorem, the function that computes it, the test that checks it and the audit game that attacks it. "
            f"The tables are written by `{COMMAND}`. A test fails where a link is missing or leads nowhere.",
            "",
            f"There are {len(events)} events of {len({event.task for event in events})} tasks, "
            f"{len(theorems)} theorems and sections, {len(functions)} functions, {len(tests)} tests, "
            f"{len(_subjects(tables))} sets of games and {len(tables.printed)} places that print an epsilon.",
            "",
            "### What is charged",
            "",
            "Inner brackets are what is released once. `PoissonSampled` and `RepeatedRelease` are priced in the next "
            "table. Tests after *besides* check the theorem itself, by other code, or a whole run.",
            "",
            _table(
                ("kind and task", "event", "theorem", "function", "test", "game"),
                (_charged_row(row, tables) for row in tables.charged),
            ),
            "",
            "### From events to figures",
            "",
            _table(
                ("figure", "theorem", "function", "test", "game"),
                (
                    (
                        f"**{figure.name}**: {figure.what}{_routes(figure.routes)}",
                        *_cells(figure.links),
                        _games(figure.games, figure.links.no_game),
                    )
                    for figure in tables.figures
                ),
            ),
            "",
            "### Where an epsilon is printed",
            "",
            "Each figure is a row of the table above.",
            "",
            _table(
                ("function or template", "what stands there", "figures"),
                ((_code(place.where), place.what, ", ".join(place.figures)) for place in tables.printed),
            ),
            END,
        )
    )


def page(text: str, tables: Tables) -> str:
    """A page with its generated part made anew."""
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return before + section(tables) + after


def _subjects(tables: Tables) -> set[str]:
    found_games = {name for row in tables.charged for name in games_of(row)}
    return found_games | {name for figure in tables.figures for name in figure.games}


def _charged_row(row: Charged, tables: Tables) -> Sequence[str]:
    events = [event for event in found.emitted() if event.key == row.key]
    kinds = ", ".join(found.kinds_of(row.task))
    what = f"{kinds}: `{row.task.partition(':')[2]}`"
    shapes = "<br>".join(f"`{shape.partition(',')[0]}`" for shape in sorted({event.shape for event in events}))
    published = f"<br>{PUBLISHED}" if any("as published" in event.shape for event in events) else ""
    made = f"{row.release}<br>{shapes}{published}<br>made by {_code(row.made)}"
    return what, made, *_cells(row.links), _games(games_of(row), row.links.no_game)


def _cells(links: Links) -> tuple[str, str, str]:
    theorems = "<br>".join(_theorem(Theorem.read(name)) for name in links.theorems)
    besides = [f"*besides* {_test(name)}" for name in links.besides]
    return theorems, "<br>".join(map(_code, links.functions)), "<br>".join([*map(_test, links.tests), *besides])


def _theorem(theorem: Theorem) -> str:
    return f"[{theorem.label}]({theorem.page}.md#{theorem.anchor})"


def _code(name: str) -> str:
    if "/" in name:
        return f"`{name}`"
    return f"`{name.partition(':')[2]}` in `{path_of(name)}`"


def _test(name: str) -> str:
    path, _, test = name.partition("::")
    return f"`{test}` in `{path}`"


def _games(games: Iterable[str], reason: str) -> str:
    return ", ".join(f"`{name}`" for name in games) or f"none: {reason}"


def _routes(routes: Sequence[str]) -> str:
    return f" (route {', '.join(f'*{name}*' for name in routes)})" if routes else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(re.sub(r"\s+", " ", cell) for cell in line) + " |" for line in lines)


def written(tables: Tables, path: Path = PAGE) -> bool:
    """Whether the page is as it would be written."""
    text = path.read_text(encoding="utf-8")
    return page(text, tables) == text


def write(tables: Tables, path: Path = PAGE) -> None:
    """Write the generated part of the page."""
    path.write_text(page(path.read_text(encoding="utf-8"), tables), encoding="utf-8")
