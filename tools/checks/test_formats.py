"""The page about compatibility tells the numbers of formats that the code has."""

from __future__ import annotations

import re

from tests.study.test_formats import FORMATS
from tools.pages import ROOT

NAMED_ON_THE_PAGE = {
    "sessions between participants": ("wire",),
    "envelopes between participants": ("hub",),
    "statements that members": ("signed",),
    "ledger": ("ledger",),
    "privacy events": ("event",),
    "privacy statement": ("statement",),
    "model": ("model",),
    "kept weights, kept encoders": ("kept-weights", "kept-encoder"),
    "exported regression": ("regression",),
    "earlier alignments": ("alignment",),
    "hub (`hub.db`), agent": ("proposals", "agent"),
    "answers of scores": ("answers",),
}
"""How a row of the page begins, and the formats that it is about."""


def test_the_page_tells_the_numbers() -> None:
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text(encoding="utf-8")
    assert {name for names in NAMED_ON_THE_PAGE.values() for name in names} == set(FORMATS)
    for start, names in NAMED_ON_THE_PAGE.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {start}")]
        told = re.search(r"\d+", row.split("|")[2])
        assert told is not None
        assert {int(told[0])} == {FORMATS[name].number for name in names}, start
