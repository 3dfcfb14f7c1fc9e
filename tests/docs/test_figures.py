"""The tables and figures of pages are those that come out: costs of operations, predictions, and which model."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from colonnade.study.scale import WorkerFleet
from tools.pages import ROOT

EXPLANATION = ROOT / "docs" / "explanation"
FIXED_POINT = (EXPLANATION / "fixed-point.md").read_text(encoding="utf-8")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A module of the benchmarks, whatever else has its name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))

    def load(name: str) -> ModuleType:
        monkeypatch.delitem(sys.modules, name, raising=False)
        return importlib.import_module(name)

    return load


# --- operations on shares


@pytest.mark.parametrize("active", [False, True])
def test_the_costs_of_three_seats_are_those_of_the_page(made: Callable[[str], ModuleType], active: bool) -> None:
    operations, which = made("network"), "checked operations" if active else "operations"
    table = FIXED_POINT.split(f"<!-- {which} -->")[1].split(f"<!-- end of {which} -->")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.split("\n")[3:-1]]
    page = {name: cells for name, *cells in rows}
    assert active or list(page) == list(operations.OPERATIONS)
    for name in ("`multiply`, `truncate`", "`negative`") if active else page:
        error, operation = operations.OPERATIONS[name]
        ahead, online = operations.costs(operation, 3, 1, active=active)
        figures = [online.rounds, operations.each(online), ahead.rounds, operations.each(ahead)]
        assert [*map(str, figures)] == [page[name][place] for place in ((0, 1, 3, 4) if active else (1, 2, 4, 5))], name
        assert active or page[name][0] == error


@pytest.mark.slow
def test_the_whole_table_is_that_of_the_page(made: Callable[[str], ModuleType]) -> None:
    network = made("network")
    assert network.costs_table() in FIXED_POINT
    assert network.costs_table(active=True) in FIXED_POINT


# --- predictions


def test_the_predictions_of_the_page_are_those_of_the_model(made: Callable[[str], ModuleType]) -> None:
    begin, end = made("harness").marked("predictions")
    shown = (EXPLANATION / "scale.md").read_text(encoding="utf-8").split(begin)[1].split(end)[0].strip()
    assert shown == made("lanes").predictions()


def test_the_model_is_near_what_was_measured(made: Callable[[str], ModuleType]) -> None:
    """Core-seconds within 30 %, bytes within 2 %, as measured and put into the page."""
    line = re.compile(r"^\| ([\d,]+) x (\d+) \| ([\d.]+) s, ([\d.]+) s .*?\| (\d+) MB, (\d+) MB", re.MULTILINE)
    lines = line.findall((EXPLANATION / "scale-measured.md").read_text(encoding="utf-8"))
    assert len(lines) == 3
    for rows, columns, taken, guessed, sent, foretold in lines:
        found = made("lanes").predicted(int(rows.replace(",", "")), int(columns), WorkerFleet())
        assert 3600 * found.core_hours == pytest.approx(float(taken), rel=0.3)
        assert 3600 * found.core_hours == pytest.approx(float(guessed), abs=0.06)
        assert found.bytes_total / 1e6 == pytest.approx(float(sent), rel=0.02)
        assert found.bytes_total / 1e6 == pytest.approx(float(foretold), abs=0.6)


# --- which model?


def test_the_page_shows_what_is_on_file(made: Callable[[str], ModuleType]) -> None:
    model = made("which_model")
    text = (ROOT / "docs" / "how-to" / "which-model.md").read_text(encoding="utf-8")
    for name, table in model.page_tables(model.read_figures()).items():
        begin, end = made("harness").marked(name)
        shown = text.split(begin)[1].split(end)[0].strip()
        assert shown == table, f"{name}: run `python benchmarks/which_model.py --tables`"


def test_a_cell_is_found_again(made: Callable[[str], ModuleType], data_dir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(data_dir))
    model = made("which_model")
    people = model.People("adult")
    one_shot = {"one-shot": model.classifiers(people.data.label)["one-shot"]}
    found = list(model.measured(people, one_shot, [1_000], [0]))
    filed = {
        (each.method, each.epsilon, each.measure): each.value
        for each in model.read_figures()
        if (each.data, each.people, each.seed) == ("adult", 1_000, 0)
    }
    assert len(found) == 11
    for each in found:
        assert filed[each.method, each.epsilon, each.measure] == pytest.approx(each.value, abs=0.01), each
