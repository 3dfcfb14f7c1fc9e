"""Every picture of the documentation is made by a command: drawings, and what a browser takes of pages."""

from __future__ import annotations

import ast
import re
from itertools import combinations
from pathlib import Path

import pytest

from tools.checks.test_architecture import GROUND, MAY_IMPORT, PILLARS, SOURCE
from tools.drawings.__main__ import FOLDER, files, sheets
from tools.drawings.canvas import Box, Sheet, width, wrapped
from tools.drawings.flows import FLOWS
from tools.drawings.house import FLOORS
from tools.drawings.sequence import LOOK, Flow
from tools.drawings.tables import ROLES, SEEN
from tools.pages import ROOT, pages

DRAWN = sheets()
IMAGES = ROOT / "docs" / "images"
_SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def shown() -> dict[Path, list[str]]:
    """Every picture that a page shows, with its alternative texts."""
    found: dict[Path, list[str]] = {}
    for page in pages():
        for words, place in _SHOWN.findall(page.read_text(encoding="utf-8")):
            found.setdefault((page.parent / place).resolve(), []).append(words)
    return found


def taken(name: str) -> set[str]:
    """The files that ``tools/screenshots.py`` says it makes, read without a browser."""
    tree = ast.parse((ROOT / "tools" / "screenshots.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            value = ast.literal_eval(node.value)
            return {one[0] for one in value.values()} if isinstance(value, dict) else set(value)
    raise AssertionError(name)


def test_drawings_are_what_the_command_makes() -> None:
    made = files()
    for name, text in made.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, f"{name}: run make drawings"
    assert made == files()


def test_every_picture_is_made_by_a_command() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(files()) | taken("SHOWN")
    assert {path.name for path in IMAGES.iterdir()} == taken("OF_RUNS")


def test_every_picture_is_shown_with_words_for_those_who_do_not_see_it() -> None:
    found = shown()
    for path in (*FOLDER.iterdir(), *IMAGES.iterdir()):
        if path.name != "logo.svg":  # the site's own head shows it
            assert min(len(words) for words in found[path]) > 20, path.name
    assert "pictures/logo.svg" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DRAWN)
def test_words_stay_in_their_boxes_and_off_each_other(name: str) -> None:
    sheet = DRAWN[name]
    whole = Box(4, 4, sheet.wide - 4, sheet.high - 4)
    assert sheet.wide <= 760
    assert sheet.words
    for words, place, within in sheet.words:
        assert within.holds(place), words
        assert whole.holds(place), words
    for (first, one, _), (second, other, _) in combinations(sheet.words, 2):
        assert not one.meets(other), (first, second)


@pytest.mark.parametrize("name", DRAWN)
def test_drawings_are_large_enough_to_read_and_describe_themselves(name: str) -> None:
    text = DRAWN[name].svg()
    assert min(float(size) for size in re.findall(r'font-size="([\d.]+)"', text)) >= 12
    assert 'role="img"' in text
    assert re.search(r"<title[^>]*>.{10,}</title>\n<desc[^>]*>.{40,}</desc>", text)


def test_words_that_are_too_wide_are_noticed() -> None:
    sheet = Sheet("", "")
    sheet.write(["a word that is wide"], Box(0, 0, 40, 20))
    _, place, within = sheet.words[0]
    assert not within.holds(place)
    assert wrapped("one two three", width("one two")) == ["one two", "three"]


def test_the_house_has_every_folder_above_what_it_may_import() -> None:
    floor_of = {name: number for number, floor in enumerate(FLOORS) for name in floor}
    folders = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert set(floor_of) == folders - {"__init__", "__main__"} == set(MAY_IMPORT) - {"__init__", "__main__"}
    assert set(FLOORS[-1]) == GROUND
    assert set(FLOORS[-2]) == PILLARS
    for name, number in floor_of.items():
        for below in MAY_IMPORT[name]:
            assert floor_of[below] > number or {name, below} <= GROUND, (name, below)


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: str(flow.name))
def test_flows_name_those_who_take_part(flow: Flow) -> None:
    cast = {name for name, _ in flow.cast}
    assert 6 <= len(flow.arrows) <= 12
    for arrow in flow.arrows:
        assert arrow.kind in LOOK
        assert {*arrow.sources, *arrow.targets} <= cast, arrow


def test_nobody_but_an_owner_sees_its_rows() -> None:
    assert all(len(cells) == len(ROLES) for cells in SEEN.values())
    for number, thing in enumerate(("the owner's rows", "the other owner's rows")):
        assert [cell == "-" for cell in SEEN[thing]] == [place != number for place in range(len(ROLES))]
