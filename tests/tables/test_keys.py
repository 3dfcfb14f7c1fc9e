"""Keys: parts are normalised by rules of one version of Unicode, whatever Python and pyarrow are installed."""

from __future__ import annotations

import sys
import unicodedata
from datetime import date, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from colonnade.errors import DataError, SchemaError, StudyError
from colonnade.tables import Key, KeyColumn, KeyPlan, Schema, Table, TableKeys, flag, key_columns, read_table
from colonnade.tables.cell_parsing import CellLocation
from colonnade.tables.keys import (
    _EDGES,
    BLANKS,
    UNICODE_VERSION,
    Accents,
    Blanks,
    Case,
    UnicodeForm,
    apply_between_unassigned,
    has_unassigned,
    is_unassigned,
)
from tests.support.errors import refused

SCHEMA = Schema({"smoker": flag()})
HIDDEN = "73519"
STRONGEST = Key("k", unicode="NFKC", accents="strip", case="fold", blanks="remove")
LETTERS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("aAsS .,'-ßẞéÉèıİǰΐΣςſﬁＫKåÅ각ᄀ\u0301\u0308\u0345\u037a\xa0\u2003\u3000\u200b\x1c\t"),
    ),
    max_size=12,
)


def table(plan: KeyPlan | None = None, id: str | None = None, **columns: Any) -> Table:
    rows = len(next(iter(columns.values())))
    plan = plan or KeyPlan(tuple(Key(name) for name in columns))
    cells = {name: cells if isinstance(cells, pa.Array) else pa.array(cells) for name, cells in columns.items()}
    return read_table(pa.table({**cells, "smoker": [1] * rows}), SCHEMA, id=id, keys=plan)


def keys(plan: KeyPlan | None = None, **columns: Any) -> TableKeys:
    return table(plan, **columns).keys


def one(key: Key, cells: Any, format: str | None = None) -> list[str | None]:
    array = cells if isinstance(cells, pa.Array) else pa.array(cells)
    found: list[str | None] = key.normalise(
        array, CellLocation("bank", "k", np.arange(1, len(array) + 1)), format
    ).to_pylist()
    return found


def test_rules_for_text() -> None:
    cells = ["  Anna\t\xa0Müller ", "ANNA MU\u0308LLER", "ﬁＫ", "straße", "STRASSE", None, "", " \u3000"]
    assert one(Key("k"), cells) == ["Anna\t\xa0Müller", "ANNA MÜLLER", "ﬁＫ", "straße", "STRASSE", None, "", ""]
    folded = one(Key("k", case="fold", blanks="collapse"), cells)
    assert folded == ["anna müller", "anna müller", "fiｋ", "strasse", "strasse", None, "", ""]
    assert one(STRONGEST, cells) == ["annamuller", "annamuller", "fik", "strasse", "strasse", None, "", ""]
    assert one(Key("k", blanks="keep", unicode="keep"), cells) == cells
    assert one(Key("k", unicode="keep", accents="strip"), ["e\u0301각ø"]) == ["e각ø"]
    assert one(Key("k"), [7, None, 12]) == one(Key("k"), [7.0, None, 12.0]) == ["7", None, "12"]
    assert one(Key("k"), pa.array(["a", "b", "a"]).dictionary_encode()) == ["a", "b", "a"]


def test_every_white_space_is_a_blank() -> None:
    spaces = [char for code in range(0x110000) if (char := chr(code)).isspace()]
    assert set(BLANKS) == set(spaces) - set("\x1c\x1d\x1e\x1f")
    for rule, wanted in (("trim", "a b"), ("collapse", "a b"), ("remove", "ab")):
        key = Key("k", blanks=rule)  # type: ignore[arg-type]
        assert one(key, [f"{blank}{blank}a b{blank}" for blank in BLANKS]) == [wanted] * len(BLANKS)
        middle = [f"a{blank}b" for blank in BLANKS]
        assert one(key, middle) == (one(Key("k", blanks="keep"), middle) if rule == "trim" else [wanted] * len(BLANKS))


@settings(deadline=None, max_examples=50)
@given(
    st.lists(LETTERS, max_size=6),
    st.sampled_from(
        [
            Key("k", unicode=form, accents=accents, case=case, blanks=blanks)
            for form, accents, case, blanks in product(
                get_args(UnicodeForm), get_args(Accents), get_args(Case), get_args(Blanks)
            )
        ]
    ),
)
def test_normal_text_stays_as_it_is(cells: list[str], key: Key) -> None:
    once = one(key, pa.array(cells, pa.string()))
    assert one(key, pa.array(once, pa.string())) == once


def touched(char: str) -> bool:
    """Whether a rule may do something to it, alone or beside others."""
    marks = unicodedata.combining(char) or unicodedata.category(char)[0] in "MZ" or unicodedata.category(char) == "Cf"
    return bool(marks) or not char == char.casefold() == unicodedata.normalize("NFKD", char)


@pytest.mark.parametrize("others", [16, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("key", [STRONGEST, Key("k", case="fold")])
def test_every_character_has_one_normal_form(key: Key, others: int) -> None:
    """Every character that a rule may touch, and every one or some of those that none should."""
    codes = [code for code in range(0x20000) if not 0xD800 <= code < 0xE000]
    every = [chr(code) for code in codes if code % others == 0 or touched(chr(code))]
    once = one(key, every)
    assert one(key, once) == once
    between = one(key, [f"e{char}i" for char in once])
    assert one(key, between) == between


@settings(deadline=None, max_examples=50)
@given(LETTERS, LETTERS)
def test_rules_make_equal_what_they_should(left: str, right: str) -> None:
    words = f"{left} {right}"
    decomposed, composed = unicodedata.normalize("NFD", words), unicodedata.normalize("NFC", words)
    for key in (Key("k"), Key("k", case="fold"), STRONGEST):
        assert len(set(one(key, [decomposed, composed]))) == 1
    assert len(set(one(Key("k", case="fold"), [composed, composed.casefold()]))) == 1
    assert len(set(one(Key("k", blanks="remove"), [f"{left}\xa0{right}", f" {left}{right}\t"]))) == 1


def test_numbers() -> None:
    key = Key("k", kind="number")
    assert one(key, [" 007\xa0", "+7", "7.00", "7.", "70e-1", "0.7E1", "0.07e+2"]) == ["7"] * 7
    assert one(key, [7, 0, -3]) == ["7", "0", "-3"]
    assert one(key, [7.0, None, -0.0, float("nan")]) == ["7", None, "0", None]
    assert one(key, ["-0e5", "-00.50", ".5", "100", "1e3", "10.010"]) == ["0", "-0.5", "0.5", "100", "1000", "10.01"]
    assert one(key, [Decimal("7.10"), Decimal("-0.00"), None]) == ["7.1", "0", None]
    assert one(key, [None, "", "NA", "1"]) == [None, None, None, "1"]
    assert one(key, ["9007199254740993", "123456789012345678901234567890"])[0] == "9007199254740993"
    assert one(key, pa.array([2**64 - 1], pa.uint64())) == ["18446744073709551615"]


@settings(deadline=None, max_examples=50)
@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30, places=6))
def test_numbers_are_what_they_were(value: Decimal) -> None:
    key = Key("k", kind="number")
    padded = f"00{value:f}0" if value >= 0 else f"{value:f}00"
    found = one(key, [str(value), f"{value:f}", f"{value:e}", padded])
    assert len(set(found)) == 1
    assert Decimal(found[0]) == value
    assert one(key, found) == found


BAD_NUMBERS: list[tuple[list[Any], str]] = [
    (["1", HIDDEN + "x"], "bank: column 'k', row 2: the cell is not a number"),
    (["1", "1,5"], "row 2: the cell is not a number"),
    (["inf", "1"], "row 1: the cell is not a number"),
    (["1", "1e99999999"], "row 2: the number has more than 400 digits"),
    ([1.0, 7351.9], "row 2: the key is not a whole number"),
    ([1.0, float("inf")], "row 2: the key is not a whole number"),
    ([True, False], "the key column 'k' holds bool cells"),
]


BAD_DATES: list[tuple[Any, str | None, str]] = [
    (["1990-02-01", "1990-02-30"], None, "bank: column 'k', row 2: the cell is not a date as format = \"%Y-%m-%d\""),
    (["01.02.1990"], None, "row 1: the date is not written as"),
    (["1990-02-01"], "%d.%m.%Y", 'row 1: the date is not written as format = "%d.%m.%Y"'),
    (["1990-02-01 07:35"], None, "row 1: the cell has a time of day"),
    ([datetime(1990, 2, 1), datetime(1990, 2, 1, 7, 35, 19)], None, "row 2: the cell has a time of day"),
    (pa.array([86_400 * 10**10], pa.timestamp("s")), None, "row 1: the year is not within"),
    ([19900201], None, "holds int64 cells"),
]


@pytest.mark.parametrize(
    ("kind", "cells", "format", "said"),
    [("number", cells, None, said) for cells, said in BAD_NUMBERS] + [("date", *bad) for bad in BAD_DATES],
)
def test_wrong_numbers_and_dates(kind: Any, cells: Any, format: str | None, said: str) -> None:
    message = refused(DataError, said, one, Key("k", kind=kind), cells, format)
    assert "7351" not in message
    assert "1990" not in message


@pytest.mark.parametrize(
    ("kind", "cells", "format"),
    [
        *(("number", cells, None) for cells, said in BAD_NUMBERS if "holds bool" not in said),
        ("date", ["1990-02-01", "last May"], None),
        ("date", ["01.02.1990", "31.02.1990"], "%d.%m.%Y"),
        ("date", ["1990-02-01", "1990-02-01 08:30"], None),
        ("date", pa.array([datetime(1990, 2, 1), datetime(1990, 2, 1, 8)], pa.timestamp("s")), None),
        ("date", pa.array([0, 86_400 * 10**7], pa.timestamp("s")), None),
    ],
)
def test_a_part_that_cannot_be_read_counts_as_missing_where_misfits_are_mapped(
    kind: Any, cells: Any, format: str | None
) -> None:
    source = pa.table({"k": cells, "smoker": [1, 0]})
    plan, columns = KeyPlan((Key("k", kind=kind),)), {"k": KeyColumn("k", format)}
    refused(
        DataError,
        "DA141|DA143|DA145|DA172|DA184|DA188",
        read_table,
        source,
        SCHEMA,
        id=None,
        keys=plan,
        columns=columns,
    )
    found = read_table(source, SCHEMA, id=None, keys=plan, columns=columns, misfits="map").keys
    assert (len(found), found.missing, found.repeated) == (1, 1, 0)


def test_dates() -> None:
    key, days = Key("k", kind="date"), [date(1990, 2, 1), None, date(7, 12, 31)]
    wanted = ["1990-02-01", None, "0007-12-31"]
    assert one(key, days) == one(key, pa.array(days, pa.date64())) == wanted
    for unit in ("s", "ms", "us"):
        stamps = pa.array([d and datetime(d.year, d.month, d.day) for d in days], pa.timestamp(unit))
        assert one(key, stamps) == wanted
    here = pa.array([datetime(1990, 1, 31, 23)], pa.timestamp("us")).cast(pa.timestamp("us", "Europe/Berlin"))
    assert one(key, here) == ["1990-02-01"]
    assert one(key, ["1990-02-01", " 1990-2-1\xa0", "", None, "NA"]) == ["1990-02-01", "1990-02-01", None, None, None]
    assert one(key, ["01.02.1990", "1.2.1990"], "%d.%m.%Y") == ["1990-02-01"] * 2
    assert one(key, ["19900201"], "%Y%m%d") == one(key, ["1990年02月01日"], "%Y年%m月%d日") == ["1990-02-01"]
    assert one(key, pa.nulls(2)) == [None, None]


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.dates(), min_size=1, max_size=10),
    st.sampled_from(["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%Y%m%d"]),
)
def test_dates_are_what_they_were(days: list[date], format: str) -> None:
    key = Key("k", kind="date")
    padded = [day.strftime(format.replace("%Y", f"{day.year:04d}")) for day in days]
    assert one(key, padded, format) == one(key, days) == [day.isoformat() for day in days]
    assert one(key, one(key, days)) == one(key, days)


def test_declarations_that_make_no_sense() -> None:
    for rule in ({"kind": "int"}, {"case": "lower"}, {"blanks": ""}, {"unicode": "NFD"}, {"accents": 1}):
        refused(StudyError, ("ST606", "k", *rule), Key, "k", **rule)
    refused(StudyError, "ST605", Key, " ")
    refused(StudyError, "ST607", KeyPlan, ())
    refused(StudyError, ("ST608", "k"), KeyPlan, (Key("k"), Key("k", kind="date")))
    refused(StudyError, "ST609", KeyPlan, (Key("k"),), "first")
    refused(DataError, "DA176", KeyColumn, "")
    for no_whole_date in ("%d.%m.%y", "%d.%m.", "%Y", "%Y-%d", "date", "%", "%Q-%Y-%m-%d", "%d %b %Y", ""):
        refused(DataError, "SC046", KeyColumn, "k", no_whole_date)


def test_where_the_parts_of_a_key_are() -> None:
    name, birth = Key("name"), Key("birth", kind="date")
    assert key_columns([name], {}, "person_id") == {"name": KeyColumn("person_id")}
    assert key_columns([name], {"name": "Naam", "other": "x"}, "person_id") == {"name": KeyColumn("Naam")}
    dob = KeyColumn("dob", "%d.%m.%Y")
    assert key_columns([name, birth], {"birth": dob}, "id") == {"name": KeyColumn("name"), "birth": dob}
    refused(DataError, ("DA178", "bank", "name", "text"), key_columns, [name], {"name": dob}, None, "bank")


def test_composite_keys_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "bank.csv"
    path.write_text("nr,Naam,dob,smoker\n1, Anna ,1.2.1990,1\n1,BOB,,0\n,Eve,3.2.1990,1\n", encoding="utf-8")
    plan = KeyPlan((Key("name", case="fold"), Key("birth", kind="date")))
    columns = {"name": KeyColumn("Naam"), "birth": KeyColumn("dob", "%d.%m.%Y")}
    found = read_table(path, SCHEMA, id=None, keys=plan, columns=columns)
    assert [found.keys.parts(index) for index in range(2)] == [("anna", "1990-02-01"), ("eve", "1990-02-03")]
    assert found.keys.values[0] == b"\x04\0\0\0anna\x0a\0\0\x001990-02-01"
    assert (found.keys.rows.tolist(), found.keys.missing, found.keys.repeated) == ([0, 2], 1, 0)
    assert found.keys.examples == ("name 'anna', birth '1990-02-01'", "name 'eve', birth '1990-02-03'")
    assert found.ids == found.own_ids == [" Anna  | 1.2.1990", "BOB | ", "Eve | 3.2.1990"]
    assert found.matrix().ravel().tolist() == [1, 0, 1]
    assert read_table(path, SCHEMA, id="nr", keys=plan, columns=columns).own_ids == ["1", "1", ""]
    assert found.select(["smoker"]).unclipped().keys is found.keys
    assert found.take_rows([1, 0]).keys is None


def test_reading_with_keys_goes_wrong_by_name() -> None:
    source = pa.table({"mail": ["a", HIDDEN], "smoker": [1, 0], "ids": [[1], [2]]})
    plan = KeyPlan((Key("e-mail"),))
    for named, other, column, *said in (
        (None, plan, None, "DA154", "bank", "e-mail"),
        (None, KeyPlan((Key("smokers"),)), None, "DA154", "smokers", "'mail', 'ids'"),  # none of the schema is meant
        ("mail", KeyPlan((Key("a"), Key("b"))), None, "DA154", "'a', 'b'"),
        ("id", plan, "mail", "DA154", "bank", "'id'", "ids"),
        (None, plan, "smoker", "SC064", "bank", "key", "smoker"),
        (None, plan, "ids", "DA173", "key", "ids"),
        ("ids", plan, "mail", "DA174", "ids"),
    ):
        where: dict[str, Any] = {"name": "bank", "columns": {"e-mail": KeyColumn(column)} if column else None}
        refused((DataError, SchemaError), said, read_table, source, SCHEMA, id=named, keys=other, **where)
    refused(DataError, "DA202", read_table, source.slice(0, 0), SCHEMA, id=None, keys=KeyPlan((Key("mail"),)))
    for day in (date(1990, 1, 1), datetime(1990, 1, 1)):
        refused(DataError, ("DA182", "mail"), keys, mail=[day])
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], "<i4")), pa.py_buffer(b"\xff7")]
    )
    refused(DataError, "DA190", keys, mail=broken)
    refused(DataError, ("DA179", "'a', 'b'"), keys, a=["x", None], b=["", "y"])


def test_duplicates_and_where_misfits_are_mapped_there_may_be_no_key() -> None:
    key = Key("k", case="fold")
    cells = ["B", "a", None, "A", "c", "b", "d", "B"]
    refused(DataError, ("DA181", "table", "1, 2, 4, 6, 8", "k"), keys, KeyPlan((key,), "refuse"), k=cells)
    found = keys(KeyPlan((key,)), k=cells)
    assert "".join(found.parts(index)[0] for index in range(len(found))) == "cd"
    assert (found.rows.tolist(), found.missing, found.repeated) == ([4, 6], 1, 5)
    refused(DataError, ("DA180", "k"), keys, KeyPlan((key,), "drop"), k=["a", "A"])
    for none in (["a", "A"], [None, ""]):
        source = pa.table({"k": pa.array(none), "smoker": [1, 1]})
        found = read_table(source, SCHEMA, id=None, keys=KeyPlan((key,), "drop"), misfits="map").keys
        assert (len(found), found.rows.tolist(), found.missing + found.repeated, found.examples) == (0, [], 2, ())


PAIRS = st.lists(st.tuples(LETTERS, LETTERS), min_size=1, max_size=8)


@settings(deadline=None, max_examples=50)
@given(PAIRS)
def test_composite_keys_never_run_together(pairs: list[tuple[str, str]]) -> None:
    raw = [Key("a", blanks="keep", unicode="keep"), Key("b", blanks="keep", unicode="keep")]
    whole = [(left + "x", right + "x") for left, right in pairs]
    single = [pair for pair in whole if whole.count(pair) == 1]
    try:
        found = keys(KeyPlan(tuple(raw)), a=[left for left, _ in whole], b=[right for _, right in whole])
    except DataError:
        assert single == []
        return
    assert len(set(found.values)) == len(single)
    assert [found.parts(index) for index in range(len(found))] == [whole[row] for row in found.rows] == single


@settings(deadline=None, max_examples=100)
@given(st.lists(LETTERS, min_size=2, max_size=8), st.data())
def test_a_row_that_leaves_takes_or_frees_one_row_and_never_puts_another_in_its_place(
    cells: list[str], data: st.DataObject
) -> None:
    """So one person more or less is one row more or less, also for people who share a key."""
    plan, gone = KeyPlan((Key("k", case="fold"),)), data.draw(st.integers(0, len(cells) - 1))

    def kept(rows: list[int]) -> set[int]:
        found = read_table(
            pa.table({"k": [cells[row] for row in rows], "smoker": [1] * len(rows)}),
            SCHEMA, id=None, keys=plan, misfits="map",
        ).keys  # fmt: skip
        return {rows[place] for place in found.rows}

    everybody = list(range(len(cells)))
    assert len(kept(everybody) ^ kept([row for row in everybody if row != gone])) <= 1


@settings(deadline=None, max_examples=50)
@given(PAIRS, st.randoms(use_true_random=False))
def test_a_reordered_file_has_the_same_keys(pairs: list[tuple[str, str]], random: Any) -> None:
    plan = KeyPlan((Key("a", case="fold"), Key("b", accents="strip")))
    shuffled = random.sample(pairs, len(pairs))

    def values(rows: list[tuple[str, str]]) -> set[bytes] | str:
        try:
            found = keys(plan, a=[left for left, _ in rows], b=[right for _, right in rows])
        except DataError as error:
            return str(error)
        assert len(found) + found.missing + found.repeated == len(rows)
        return set(found.values)

    assert values(pairs) == values(shuffled)


# --- one version of Unicode


EVERY = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
LATER = "\u0ece\U00010efd\U00011f02\U0001e030\U0001e08f\U0001e4ec\U0002ebf0"
"""Letters and marks that Unicode 14 had not."""


def test_the_table_is_that_of_the_version_it_names() -> None:
    held = {chr(code) for start, stop in zip(_EDGES[::2], _EDGES[1::2], strict=True) for code in range(start, stop)}
    empty = {char for char in EVERY if unicodedata.category(char) == "Cn"}
    assert held >= empty
    assert len(held) == 829_834
    if unicodedata.unidata_version == UNICODE_VERSION:
        assert held == empty
    edges = {edge + step for edge in _EDGES[:-1] for step in (-1, 0)}
    assert all(is_unassigned(chr(code)) is (chr(code) in held) for code in edges)


def test_no_rule_touches_what_has_no_entry() -> None:
    for char in LATER:
        assert has_unassigned(f"a{char}")
        around = f"e\u0301{char}\u0301K"
        assert one(Key("k"), [around]) == [f"é{char}\u0301K"]
        assert one(STRONGEST, [around]) == [f"e{char}k"]
    assert not has_unassigned("Größe 각 \U0001f600")
    assert apply_between_unassigned(str.upper, "ab\u0378c") == "AB\u0378C"


def test_what_has_an_entry_follows_the_standard_library() -> None:
    known = [char for char in EVERY[:0x12000] if not is_unassigned(char)]
    assert one(Key("k", blanks="keep"), known) == [unicodedata.normalize("NFC", char) for char in known]


def test_texts_with_later_characters_end_as_in_unicode_14() -> None:
    """Piece by piece is the same as at once: compared where Python itself has that version."""
    if unicodedata.unidata_version != UNICODE_VERSION:
        pytest.skip(
            f"this Python has Unicode {unicodedata.unidata_version}, and the comparison needs {UNICODE_VERSION}"
        )
    texts = [f"{a}{new}{b}{c}" for new in LATER for a in "eq\u1100" for b in "\u0301\u1161" for c in "\u0323x"]
    assert one(Key("k", blanks="keep"), texts) == [unicodedata.normalize("NFC", text) for text in texts]
    folded = Key("k", unicode="NFKC", case="fold", blanks="keep")
    assert one(folded, texts) == [unicodedata.normalize("NFKC", text).casefold() for text in texts]
