"""The table of predictions is the one that the model makes, and what was measured is within what the page says."""

from __future__ import annotations

import importlib.util
import re
import sys

import pytest

from colonnade.study.scale import BUILT_IN, Fleet
from tools.pages import ROOT

PAGE = ROOT / "docs" / "explanation" / "scale.md"
MEASURED = ROOT / "docs" / "explanation" / "scale-measured.md"


@pytest.fixture(scope="module")
def scale():
    spec = importlib.util.spec_from_file_location("scale", ROOT / "benchmarks" / "scale.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["scale"]


def test_the_predictions_of_the_page_are_those_of_the_model(scale):
    begin, end = (mark.format("predictions") for mark in scale.MARKS)
    shown = PAGE.read_text(encoding="utf-8").split(begin)[1].split(end)[0].strip()
    assert shown == scale.table(BUILT_IN)


def test_the_model_is_near_what_was_measured(scale):
    """Core-seconds within 30 %, bytes within 2 %, as measured and put into the page."""
    line = re.compile(r"^\| ([\d,]+) x (\d+) \| ([\d.]+) s, ([\d.]+) s .*?\| (\d+) MB, (\d+) MB", re.MULTILINE)
    lines = line.findall(MEASURED.read_text(encoding="utf-8"))
    assert len(lines) == 3
    for rows, columns, taken, guessed, sent, foretold in lines:
        found = scale.predicted(int(rows.replace(",", "")), int(columns), Fleet(), BUILT_IN)
        assert 3600 * found.core_hours == pytest.approx(float(taken), rel=0.3)
        assert 3600 * found.core_hours == pytest.approx(float(guessed), abs=0.06)
        assert found.bytes_total / 1e6 == pytest.approx(float(sent), rel=0.02)
        assert found.bytes_total / 1e6 == pytest.approx(float(foretold), abs=0.6)
