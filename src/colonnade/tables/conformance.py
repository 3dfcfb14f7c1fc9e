"""What the rules about cells make of fixed cells, so that parties can tell whether they follow the same ones.

Everything is computed, by the code that reads a party's file. What no other machine must repeat to the last bit, such
as a logarithm, is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from colonnade.tables.cell_parsing import CellLocation, pa
from colonnade.tables.columns import category, flag, number
from colonnade.tables.dates import date
from colonnade.tables.encoding import encode_columns
from colonnade.tables.keys import BLANKS, Ids, Key, KeyColumn, KeyPlan, as_text, normalise_keys, sort_positions
from colonnade.tables.schema import Schema

_NAMES = "Mu\u0308ller|MÜLLER|straße|STRASSE|Ångström|A\u030angstro\u0308m|Łódź|\u038c\u03a3\u039f\u03a3|\u0130stanbul"
_JOINED = "\uac01|\u1100\u1161\u11a8|\uff76\uff9e|\u304c|\u304b\u3099|\u0958|\ufdfa|\ufb01\ufb00|\u338f"
_MARKS = "q\u0307\u0323|q\u0323\u0307|a\u0345\u0301|\u0301|x\u20d2|\u200b|\u0131|\u1fb3|\u01f0|\u0390|\u017f"
_SIGNS = "\u2460|\u2167|\u212a|\u212b|\u1e9e|\U0001d4b3"
_LATER = "\u0ece|\U0001e030|a\U0001e4ec|e\u0301\U00011f02\U00011f03\u0301|\U00010efd\u0323|\u0378"
"""Characters that have an entry in Unicode only since Python 3.12, or have none yet."""
_TEXTS = "|".join([_NAMES, _JOINED, _MARKS, _SIGNS, _LATER, *(f"e{chr(code)} i" for code in range(0x80, 0x180))])
_BLANK_TEXTS = tuple(f"{blank}a{blank}{blank}b{blank}" for blank in (*BLANKS, "\x1c", "\u180e", "\ufeff"))
_NUMERALS = "007| 7\xa0|+7|7.0|.5|-0.50|1e3|12E-4|-0|1e400|1,5|0x7|inf||NA|9007199254740993|\u0663|1_000"
_DATES: Mapping[str, tuple[str, ...]] = {
    "%Y-%m-%d": ("2024-02-29", "2023-02-29", "0999-1-2", " 2024-01-31 ", "2024-1-31", "24-01-31", ""),
    "%d.%m.%Y": (
        "1.2.2024",
        "01.02.2024",
        "31.04.2024",
        "1.2.2024 00:00",
        "\u0661.\u0662.\u0662\u0660\u0662\u0664",
        "NA",
    ),
    "%m/%d/%Y": ("02/29/2024", "2/28/2024 12:30"),
    "%Y%m%d": ("20240229", "2024229"),
}
_TEXT_RULES = (
    Key("k"),
    Key("k", case="fold", blanks="collapse"),
    Key("k", unicode="NFKC", accents="strip", case="fold", blanks="remove"),
    Key("k", unicode="keep", accents="strip", blanks="keep"),
)


def text_key_vectors() -> Iterator[Any]:
    """Keys of text."""
    for key in _TEXT_RULES:
        yield from _key_vectors(key, [*_TEXTS.split("|"), *_BLANK_TEXTS])
    yield from _key_vectors(Key("k"), [7, -12, None])


def number_key_vectors() -> Iterator[Any]:
    """Keys that are numbers."""
    for cells in (_NUMERALS.split("|"), [7, -12, None], [7.0, -0.0, 1e15, 0.5, float("nan"), float("inf")]):
        yield from _key_vectors(Key("k", kind="number"), cells)


def date_key_vectors() -> Iterator[Any]:
    """Keys that are dates."""
    for written, texts in _DATES.items():
        yield from _key_vectors(Key("k", kind="date"), texts, written)
    days = pa.array([19_782, -1, 0, None, -800_000], pa.int32()).cast(pa.date32())
    for kind in ("date32", "date64", "timestamp[s]"):
        yield from _key_vectors(Key("k", kind="date"), days.cast(kind) if kind != "date32" else days)


def _key_vectors(key: Key, cells: Sequence[Any] | pa.Array, format: str | None = None) -> Iterator[Any]:
    """The keys of some cells, joined as they are compared, and the rows that have one."""
    array = cells if isinstance(cells, pa.Array) else pa.array(cells, from_pandas=False)
    numbers, columns = np.arange(1, len(array) + 1), {"k": KeyColumn("k", format)}
    values, rows = normalise_keys(pa.table({"k": array}), KeyPlan((key,)), columns, numbers, "rules", "map")
    once = np.unique(values.dictionary_encode().indices, return_index=True)[1]  # each key where it comes first
    yield from values.take(pa.array(once)).to_pylist()
    yield rows[once].astype("<i8")


def id_vectors() -> Iterator[Any]:
    """Ids, and their order."""
    for cells in (["b", "a\u0301", "á", "B", "10", "9", "\U0001f600", "\uffff", "a b"], [3, 10, -1], [3.0, 10.0]):
        texts = as_text(pa.array(cells), CellLocation("rules", "id", range(1, len(cells) + 1)), "id")
        order = sort_positions(texts)
        yield order.astype("<i8")
        yield from Ids(texts, order).pack(0, len(cells))


def cell_vectors() -> Iterator[Any]:
    """Cells as encoded numbers."""
    count, kind = number(0, 10, whole=True, scale="unit", missing="middle"), category(["a", "b", "3"], missing="none")
    schema = Schema({"size": number(-1, 2), "count": count, "smoker": flag(missing=False), "kind": kind})
    given = {
        "size": pa.array(["0.1", "-1", "1e-3", "2.5", " .7 ", "0.30000000000000004", "1.7976931348623157e308", "x"]),
        "count": pa.array([0.5, 1.5, 2.5, 3.5, 9.5, -3.0, 11.0, None]),
        "smoker": pa.array(["yes", "No", "TRUE", "0", "1.0", "", "ja", " false "]),
        "kind": pa.array(["a", "b", "3", "A", "", None, "a ", "b"]),
    }
    matrix, _ = encode_columns(given, schema, misfits="map")
    yield np.ascontiguousarray(matrix, "<f8")
    yield from _date_cell_vectors()


def _date_cell_vectors() -> Iterator[Any]:
    """Dates as encoded numbers, as text and as dates, and numbers with other signs."""
    days = pa.array([19_782, -1, 0, None, 11_016, 22_280], pa.int32()).cast(pa.date32())
    sizes = pa.array(["0,1", "-1", "1e-3", "0.5", ",7", ""])
    for written in ("%Y-%m-%d", "%d.%m.%Y"):
        dated = date("2000-01-01", "2030-12-31", parts=["days", "month", "weekday"], format=written, missing="none")
        schema = Schema({"at": dated, "size": number(-1, 2, missing="none")}, decimal=",")
        for cells in (pa.array(_DATES[written][: len(sizes)]), days):
            matrix, _ = encode_columns({"at": cells, "size": sizes}, schema, misfits="map")
            yield np.ascontiguousarray(matrix, "<f8")
    schema = Schema({"size": number(-9000, 9000, missing="none")}, thousands=",")
    matrix, _ = encode_columns({"size": pa.array(["1,234.5", "1234", "12,34", "-7,000", "0,5"])}, schema, misfits="map")
    yield np.ascontiguousarray(matrix, "<f8")
