"""The table of what operations on shares cost is the one that comes out."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def operations():
    spec = importlib.util.spec_from_file_location("operations", ROOT / "benchmarks" / "operations.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["operations"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["operations"]


def rows(which="operations"):
    text = (ROOT / "docs" / "explanation" / "fixed-point.md").read_text()
    table = text.split(f"<!-- {which} -->")[1].split(f"<!-- end of {which} -->")[0]
    return {
        cells[1].strip(): [c.strip() for c in cells[2:-1]] for cells in (r.split("|") for r in table.split("\n")[3:-1])
    }


def test_the_costs_of_three_seats_are_those_of_the_page(operations):
    page = rows()
    assert list(page) == list(operations.OPERATIONS)
    for name, (error, operation) in operations.OPERATIONS.items():
        ahead, online = operations.costs(operation, 3, 1)
        figures = [online.rounds, operations.each(online), ahead.rounds, operations.each(ahead)]
        assert [error, *map(str, figures)] == [page[name][i] for i in (0, 1, 2, 4, 5)], name


@pytest.mark.slow
def test_the_whole_table_is_that_of_the_page(operations):
    page = (ROOT / "docs" / "explanation" / "fixed-point.md").read_text()
    assert operations.table() in page
    assert operations.checked_table() in page


@pytest.mark.parametrize("name", ["`multiply`, `truncate`", "`below`, `negative`"])
def test_checks_cost_what_the_page_says(operations, name):
    ahead, online = operations.costs(operations.OPERATIONS[name][1], 3, 1, active=True)
    figures = [online.rounds, operations.each(online), ahead.rounds, operations.each(ahead)]
    page = rows("checked operations")[name]
    assert [page[0], page[1], page[3], page[4]] == [*map(str, figures)]
