"""Every charged event and every printed epsilon has its theorem, its function, its test and its game."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from tools.theorems import checks, found
from tools.theorems.figures import TABLES
from tools.theorems.links import Charged, Figure, Printed, Tables
from tools.theorems.page import COMMAND, PAGE, page

FIRST = TABLES.charged[0]
FIGURE = TABLES.figures[0]
MADE = """
from colonnade.privacy.noise_laws import NonPrivate, SkellamRelease

class Task:
    @property
    def event(self):
        return SkellamRelease("sums", (), 1)

    def other(self):
        return self.noise.release("sums", 1, self.moved, theorem="new")

def told():
    return message_event("scores", "bank")

def ledger(book, entry):
    return book.release(entry)
"""
WRITTEN = """
from colonnade.privacy.statement import format_rounded_up, format_text
from colonnade.report import wording

def rounded(row):
    return format_rounded_up(row.epsilon)

def worded(row):
    return wording.epsilon(row.cost)

def table(rows):
    return format_text(rows, ())

def named(row):
    return f"it costs {row.epsilon:g}"

def behind(cost):
    return f"it costs epsilon {cost:g}"

def record(cost):
    return {"largest_epsilon": cost}

def nothing(cost, epsilon):
    return f"a delta of {cost:g}"
"""


def test_nothing_is_missing() -> None:
    said = checks.missing(TABLES)
    assert not said, "a link is missing in tools/theorems:\n" + "\n".join(said)


def test_the_page_has_the_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text, TABLES) == text, f"docs/theory/README.md is not up to date: {COMMAND}"


def test_every_kind_every_class_of_events_and_every_game_is_there() -> None:
    events = found.emitted()
    assert {kind for event in events for kind in found.kinds_of(event.task)} == {
        row.kind for row in found.registry.rows()
    }
    around = " ".join(event.shape for event in events)
    for kind in ("Skellam", "DiscreteGaussian", "DiscreteLaplace"):
        assert f"{kind}Release" in around
    for kind in ("RandomisedResponse", "PoissonSampled", "Repeated", "NonPrivate, as published"):
        assert kind in around
    for task in (task for row in found.registry.rows() for task in found.registry.load(row.kind).tasks):
        assert found.name_of(task) in {event.task for event in events}


UNLINKED = "tests/privacy/test_ledger_file.py::test_the_chain_can_be_checked_without_this_code"


def _with(row: Charged | Figure, **links: object) -> Tables:
    """The tables with other links in one row."""
    changed = replace(row, links=replace(row.links, **links))  # type: ignore[arg-type]
    charged = tuple(changed if one == row else one for one in TABLES.charged)
    figures = tuple(changed if one == row else one for one in TABLES.figures)
    return replace(TABLES, charged=charged, figures=figures)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        (replace(TABLES, charged=TABLES.charged[1:]), "no row for an event that is charged"),
        (replace(TABLES, charged=(*TABLES.charged, replace(FIRST, release="x"))), "an event that no task reveals"),
        (replace(TABLES, serving={}), "no row for the task"),
        (replace(TABLES, passed_on={}), "makes events and stands in no row"),
        (replace(TABLES, printed=(*TABLES.printed[:2], *TABLES.printed[3:])), "writes an epsilon and stands in no row"),
        (replace(TABLES, printed=(*TABLES.printed, Printed("colonnade.nowhere:f", "x", ("view",)))), "does not exist"),
        (replace(TABLES, printed=(replace(TABLES.printed[0], figures=("x",)), *TABLES.printed[1:])), "no figure x"),
        (replace(TABLES, no_figure=TABLES.no_figure | {"colonnade.errors:f": "x"}), "exempted and writes no epsilon"),
        (replace(TABLES, figures=tuple(replace(one, routes=()) for one in TABLES.figures)), "has a route"),
        (replace(TABLES, figures=tuple(replace(one, games=()) for one in TABLES.figures)), "stand in no row"),
        (replace(TABLES, figures=(replace(FIGURE, games=("chess",)), *TABLES.figures[1:])), "no games called chess"),
        (_with(FIRST, theorems=("observers#a-view",)), "rests on moments-sensitivity"),
        (_with(FIRST, theorems=()), "no theorems"),
        (_with(FIRST, theorems=(*FIRST.links.theorems, "moments#1")), "no page or section moments#1"),
        (_with(FIRST, theorems=(*FIRST.links.theorems, "observers#nowhere")), "no page or section observers#nowhere"),
        (_with(FIGURE, theorems=("observers#a-view|Theorem 99",)), "does not name Theorem 99"),
        (_with(FIRST, functions=(*FIRST.links.functions, "colonnade.privacy:f")), "colonnade.privacy:f does not exist"),
        (_with(FIRST, tests=(*FIRST.links.tests, "tests/privacy/test_x.py::test_y")), "there is no file"),
        (_with(FIRST, tests=(*FIRST.links.tests, "tests/privacy/test_grid.py::test_y")), "there is no test"),
        (
            _with(FIRST, functions=(*FIRST.links.functions, "colonnade.wire.hub:Hub")),
            "imports or names colonnade.wire.hub:Hub",
        ),
        (
            _with(FIRST, tests=(*FIRST.links.tests, UNLINKED)),
            "test_ledger_file.py speaks of none of the functions",
        ),
        (_with(FIRST, no_game="too difficult"), "neither a game nor one of the reasons"),
        (_with(FIGURE, no_game="arithmetic"), "needs no reason"),
    ],
)
def test_a_missing_link_is_said(tables: Tables, said: str) -> None:
    assert any(said in line for line in checks.missing(tables)), said


def test_an_event_without_a_theorem_must_promise_nothing() -> None:
    (row, *_) = [one for one in TABLES.charged if not one.theorem]
    assert any("must say so" in line for line in checks.missing(_with(row, no_game="arithmetic")))


def test_makers_of_events_are_found_in_the_source() -> None:
    made = found.made_in({"colonnade.new": ast.parse(MADE)})
    assert made == {"colonnade.new:Task.event", "colonnade.new:Task.other", "colonnade.new:told"}


def test_places_that_write_an_epsilon_are_found_in_the_source() -> None:
    names = ("rounded", "worded", "table", "named", "behind", "record")
    assert found.written_in({"colonnade.new": ast.parse(WRITTEN)}) == {f"colonnade.new:{name}" for name in names}


def test_a_page_that_is_not_up_to_date_differs() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shorter = replace(TABLES, printed=TABLES.printed[:-1])
    assert page(text, shorter) != text
    assert page(page(text, shorter), TABLES) == text
