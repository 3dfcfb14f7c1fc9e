"""The guide to alignment says what the code says: who learns what, and what becomes of cells."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from colonnade.models import Roster
from colonnade.protocols.align import Aligning
from colonnade.tables import Schema, number
from colonnade.tables.keys import Key
from colonnade.tables.parse import Place

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "explanation" / "alignment-eyes.md").read_text(encoding="utf-8")
GUIDE = (DOCS / "how-to" / "alignment.md").read_text(encoding="utf-8")
KINDS = [
    ("ot", False),
    ("dh", False),
    ("helper", False),
    ("ot", True),
    ("dh", True),
    ("helper", True),
    ("fuzzy", False),
]


def in_two(learns: str) -> str:
    """What an owner learns, as two sentences on the page, where it would be too long for one."""
    return learns.replace("; who leads,", ". Who leads,")


def leakage_table(owners: int) -> str:
    """What the page prints for so many parties."""
    trust = Roster.of({f"party{k}": Schema({"x": number(0, 1)}) for k in range(owners)}).trust
    lines = ["| mode | who | learns | to learn more |", "|---|---|---|---|"]
    for mode, hidden in KINDS:
        if mode == "fuzzy" and owners != 2:
            continue
        leaks = Aligning(trust, (Key("id"),), mode=mode, hidden=hidden).leakage
        assert (leaks[-1].who, leaks[-1].learns) == ("anybody else", "nothing")  # said once, below the tables
        name = f"`{mode}`, hidden" if hidden else f"`{mode}`"
        lines += [f"| {name} | {leak.who} | {in_two(leak.learns)} | {leak.beyond} |" for leak in leaks[:-1]]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("owners", [2, 3])
def test_the_leakage_tables_of_the_guide_are_those_of_the_code(owners):
    assert leakage_table(owners) in PAGE, f"docs/explanation/alignment-eyes.md must hold\n\n{leakage_table(owners)}"


def test_more_parties_learn_what_three_learn():
    assert leakage_table(7) == leakage_table(3)


def test_the_examples_of_rules_are_what_the_code_does():
    rows = re.findall(r"^\| (`\w+ = .*?) \| (.+?) \| `(.*?)` \|$", GUIDE, re.MULTILINE)
    assert {"kind", "case", "blanks", "unicode", "accents"} <= {row[0].split()[0].strip("`") for row in rows}
    for given, cells, expected in rows:
        key = Key("x", **dict(re.findall(r'(\w+) = "(\w+)"', given)))
        written = re.findall(r"`([^`]*)`", cells)
        place = Place("page", "x", np.arange(1, len(written) + 1))
        assert set(key.normalise(pa.array(written), place).to_pylist()) == {expected}, given
