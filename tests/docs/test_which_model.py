"""The tables of "which model?" are made of the figures on file, the grid is whole, and a cell can be measured again."""

from __future__ import annotations

import importlib
import sys

import pytest

from tools.pages import ROOT

PAGE = ROOT / "docs" / "how-to" / "which-model.md"


@pytest.fixture(scope="module")
def which():
    """The module of tables, and for those who measure again the one that measures."""
    folder = str(ROOT / "benchmarks")
    sys.path.insert(0, folder)
    yield importlib.import_module
    sys.path.remove(folder)
    for name in ("which_tables", "which_model"):
        sys.modules.pop(name, None)


def test_the_page_shows_what_is_on_file(which):
    tables = which("which_tables")
    text = PAGE.read_text(encoding="utf-8")
    for name, made in tables.tables(tables.read()).items():
        begin, end = (mark.format(name) for mark in tables.MARKS)
        shown = text.split(begin)[1].split(end)[0].strip()
        assert shown == made, f"{name}: run `python benchmarks/which_model.py --tables`"


def test_every_cell_has_every_seed(which):
    tables = which("which_tables")
    figures = tables.read()
    seeds = {}
    for each in figures:
        seeds.setdefault((each.data, each.method, each.epsilon, each.people, each.measure), []).append(each.seed)
    assert all(found == list(tables.SEEDS) for found in map(sorted, seeds.values()))
    for data in tables.FLAGS:
        methods = {(place[1], place[2]) for place in seeds if place[0] == data}
        assert {(name, epsilon) for name in tables.LINES for epsilon in tables.EPSILONS} <= methods
    assert all(0 <= each.value <= 1 for each in figures if each.measure in ("accuracy", "auc"))


def test_too_few_is_said_where_guessing_is_as_good(which):
    tables = which("which_tables")
    few = [tables.Figure("d", "m", 1.0, 10, 0, measure, value) for measure, value in (("accuracy", 0.76), ("auc", 0.6))]
    enough = [
        tables.Figure("d", "n", 1.0, 10, 0, measure, value) for measure, value in (("accuracy", 0.8), ("auc", 0.8))
    ]
    found = tables.Measured([*few, *enough, tables.Figure("d", tables.MAJORITY, 0.0, 10, 0, "accuracy", 0.758)])
    assert found.flag("d", "m", 1.0, 10) == "too few, 0.600"
    assert found.flag("d", "n", 1.0, 10) == "0.800, 0.800"


def test_a_cell_is_found_again(which, data_dir, monkeypatch):
    monkeypatch.setenv("COLONNADE_DATA", str(data_dir))
    tables, model = which("which_tables"), which("which_model")
    people = model.People("adult")
    one_shot = {"one-shot": model.classifiers(people.data.label)["one-shot"]}
    places = {}
    for each in model.measured(people, one_shot, [1_000], [0]):
        places[each.method, each.epsilon, each.measure] = each.value
    filed = {
        (each.method, each.epsilon, each.measure): each.value
        for each in tables.read()
        if (each.data, each.people, each.seed) == ("adult", 1_000, 0)
    }
    assert len(places) == 11
    for place, value in places.items():
        assert filed[place] == pytest.approx(value, abs=0.01), place
