"""Text is normalised by the rules of one version of Unicode, whatever Python and pyarrow are installed."""

from __future__ import annotations

import subprocess
import sys
import unicodedata

import numpy as np
import pyarrow as pa
import pytest

from colonnade.tables import Key
from colonnade.tables.parse import Place
from colonnade.tables.unassigned import _EDGES, UNICODE, between_unassigned, has_unassigned, unassigned

EVERY = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
LATER = "\u0ece\U00010efd\U00011f02\U0001e030\U0001e08f\U0001e4ec\U0002ebf0"
"""Letters and marks that Unicode 14 had not."""
STRONGEST = Key("k", unicode="NFKC", accents="strip", case="fold", blanks="remove")


def one(key: Key, cells: list[str], format: str | None = None) -> list[str | None]:
    place = Place("bank", "k", np.arange(1, len(cells) + 1), np.zeros(len(cells), dtype=bool))
    found: list[str | None] = key.normalise(pa.array(cells), place, format).to_pylist()
    return found


def test_the_table_is_that_of_the_version_it_names() -> None:
    held = {chr(code) for start, stop in zip(_EDGES[::2], _EDGES[1::2], strict=True) for code in range(start, stop)}
    empty = {char for char in EVERY if unicodedata.category(char) == "Cn"}
    assert held >= empty
    assert len(held) == 829_834
    if unicodedata.unidata_version == UNICODE:
        assert held == empty
    edges = {edge + step for edge in _EDGES[:-1] for step in (-1, 0)}
    assert all(unassigned(chr(code)) is (chr(code) in held) for code in edges)


def test_no_rule_touches_what_has_no_entry() -> None:
    for char in LATER:
        assert has_unassigned(f"a{char}")
        around = f"e\u0301{char}\u0301K"
        assert one(Key("k"), [around]) == [f"é{char}\u0301K"]
        assert one(STRONGEST, [around]) == [f"e{char}k"]
    assert not has_unassigned("Größe 각 \U0001f600")
    assert between_unassigned(str.upper, "ab\u0378c") == "AB\u0378C"


def test_what_has_an_entry_follows_the_standard_library() -> None:
    known = [char for char in EVERY[:0x12000] if not unassigned(char)]
    assert one(Key("k", blanks="keep"), known) == [unicodedata.normalize("NFC", char) for char in known]


def test_texts_with_later_characters_end_as_in_unicode_14() -> None:
    """Piece by piece is the same as at once: compared where Python itself has that version."""
    if unicodedata.unidata_version != UNICODE:
        pytest.skip(f"this Python has Unicode {unicodedata.unidata_version}, and the comparison needs {UNICODE}")
    texts = [f"{a}{new}{b}{c}" for new in LATER for a in "eq\u1100" for b in "\u0301\u1161" for c in "\u0323x"]
    assert one(Key("k", blanks="keep"), texts) == [unicodedata.normalize("NFC", text) for text in texts]
    folded = Key("k", unicode="NFKC", case="fold", blanks="keep")
    assert one(folded, texts) == [unicodedata.normalize("NFKC", text).casefold() for text in texts]


def test_names_of_months_are_english_in_any_language() -> None:
    key, cells = Key("k", kind="date"), ["Thu, 29 Feb 2024", "THURSDAY, 7 march 2024", "Do, 7 Mär 2024"]
    assert one(key, cells, "%a, %d %b %Y") == ["2024-02-29", "2024-03-07", None]
    assert one(key, ["07MAY2024"], "%d%B%Y") == ["2024-05-07"]
    assert one(key, ["2024年05月07日"], "%Y年%m月%d日") == ["2024-05-07"]


FOREIGN = """
import _strptime, calendar, numpy as np, pyarrow as pa
from colonnade.tables import Key, KeyColumn
from colonnade.tables.parse import Place

class Foreign(_strptime.LocaleTime):  # what Python reads off a machine that is set to another language
    def __init__(self):
        super().__init__()
        self.a_month = ["", *(f"m{n:02}x" for n in range(1, 13))]
        self.a_weekday = [f"t{n}x" for n in range(7)]

_strptime.LocaleTime = Foreign
_strptime._TimeRE_cache = _strptime.TimeRE(Foreign())
place = Place("bank", "k", np.arange(1, 2), np.zeros(1, dtype=bool))
KeyColumn("k", "%a %d %b %Y")
print(Key("k", kind="date").normalise(pa.array(["Thu 29 Feb 2024"]), place, "%a %d %b %Y").to_pylist())
"""


@pytest.mark.system
def test_dates_do_not_depend_on_the_language_of_the_machine() -> None:
    ended = subprocess.run([sys.executable, "-c", FOREIGN], capture_output=True, text=True, timeout=300)
    assert ended.stdout == "['2024-02-29']\n", ended.stderr
