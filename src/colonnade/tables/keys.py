"""The columns by which parties recognise the people they share, one party's normalised keys, and ids as exact text.

The rules for each part of a key are public and the same at every party. Each party decides for itself in which column
the cells are and how dates are written. Text goes through the Unicode form, accents, case and blanks, in this order,
and then through the Unicode form again, until nothing changes; so normalising a result once more does not change it.

The rules are those of one version of Unicode, the oldest that a supported Python knows, and do not depend on the
versions of other libraries or on the machine's language. A later Python may know a letter, a mark or a capital among
the characters without an entry there, so no rule touches these. Messages name places and never values.
"""

from __future__ import annotations

import re
import struct
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, partial
from itertools import groupby
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, SchemaError, StudyError
from colonnade.tables.cell_parsing import (
    MISSING_WORDS,
    NUMERAL,
    CellLocation,
    Mask,
    as_whole_numbers,
    flatten_column,
    is_text,
    is_whole,
    itemise,
    list_rows,
    pa,
    pc,
)
from colonnade.tables.dates import ISO_DATE, check_date_format, parse_days
from colonnade.tables.encoding import InvalidValues, locate_cells

_CHUNK = 1 << 16


class Ids(Sequence[str]):
    """A list of ids in some order; each becomes a Python text only when it is read.

    Twenty million Python texts take more than a gigabyte; in Arrow the same ids take a quarter of that.
    """

    __hash__ = None  # type: ignore[assignment]  # as for a list

    def __init__(self, texts: pa.LargeStringArray, order: NDArray[np.int64] | None = None) -> None:
        self._texts = texts
        self._order = order

    def __len__(self) -> int:
        return len(self._texts) if self._order is None else len(self._order)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._between(*index.indices(len(self)))
        place = range(len(self))[index]  # raises as a list does
        return self._between(place, place + 1, 1)[0]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _CHUNK):
            yield from self[start : start + _CHUNK]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | Ids):
            return NotImplemented
        starts = range(0, len(self), _CHUNK)
        return len(self) == len(other) and all(self[s : s + _CHUNK] == other[s : s + _CHUNK] for s in starts)

    def __repr__(self) -> str:
        return f"<Ids: {len(self)}>"

    def is_sorted(self) -> bool:
        """Whether every id comes after the one before it, byte by byte."""
        return all(
            pc.all(pc.less(part[:-1], part[1:]), min_count=0).as_py()
            for part in (self._texts_of(start, start + _CHUNK + 1) for start in range(0, len(self), _CHUNK))
        )

    def repeated(self) -> dict[str, int]:
        """The ids that several rows have, with how many they are."""
        counts = pc.value_counts(self._texts_of(0, len(self)))
        several = counts.filter(pc.greater(pc.struct_field(counts, "counts"), 1)).to_pylist()
        return {each["values"]: each["counts"] for each in several}

    def pack(self, start: int, stop: int) -> tuple[bytes, bytes]:
        """For some of the ids, the number of characters of each as 64-bit numbers, and all characters in UTF-8."""
        texts = self._texts_of(start, stop)
        if not len(texts):
            return b"", b""
        _, places, letters = texts.buffers()
        ends = np.frombuffer(places, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
        lengths = np.asarray(pc.utf8_length(texts), dtype="<u8")
        whole = letters.slice(ends[0], ends[-1] - ends[0]) if letters is not None else b""
        return lengths.tobytes(), bytes(whole)

    def _between(self, start: int, stop: int, step: int) -> list[str]:
        if step == 1:
            return list(self._texts_of(start, stop).to_pylist())
        places = np.arange(start, stop, step)
        rows = places if self._order is None else self._order[places]
        return list(self._texts.take(pa.array(rows)).to_pylist())

    def _texts_of(self, start: int, stop: int) -> Any:
        if self._order is None:
            return self._texts[start:stop]
        return self._texts.take(pa.array(self._order[start:stop]))


def pack_ids(ids: Sequence[str], start: int, stop: int) -> tuple[bytes, bytes]:
    """The same as :meth:`Ids.packed`, for any list of ids."""
    if isinstance(ids, Ids):
        return ids.pack(start, stop)
    part = ids[start:stop]
    return np.fromiter(map(len, part), dtype="<u8").tobytes(), "".join(part).encode()


def check_ids(column: Any, place: CellLocation) -> pa.LargeStringArray:
    """The ids as text; raises, with row numbers, if one is missing, has blanks around it or is repeated."""
    ids = as_text(flatten_column(column), place, "id")
    missing = _find_ids(ids, lambda part: pc.fill_null(pc.equal(part, ""), True))
    if missing.any():
        raise place.fail(missing, "the id is missing; every row needs one, so fill it or delete the row [DA170]")
    padded = _find_ids(ids, lambda part: pc.not_equal(pc.utf8_trim_whitespace(part), part))
    if padded.any():
        raise place.fail(padded, "the id has blanks around it; remove them, because ids are compared exactly [DA171]")
    _refuse_repeats(ids, place)
    return ids


def _find_ids(ids: Any, what: Callable[[Any], Any]) -> Mask:
    """Which ids have a property; they are tested some at a time."""
    found = np.zeros(len(ids), dtype=bool)
    for start in range(0, len(ids), _CHUNK):
        part = np.asarray(what(ids[start : start + _CHUNK]), dtype=bool)
        if part.any():  # what is never written takes no memory
            found[start : start + _CHUNK] = part
    return found


def as_text(array: Any, place: CellLocation, what: str) -> Any:
    """Cells as text: texts stay as they are and whole numbers become their digits; ``what`` names them in errors."""
    kind = array.type
    if is_text(kind) or pa.types.is_null(kind) or is_whole(kind):
        return array.cast(pa.large_string())
    if pa.types.is_floating(kind):
        values, fits = as_whole_numbers(array)
        place.refuse(~fits, f"the {what} is not a whole number; store {what}s as text or as whole numbers [DA172]")
        return values.cast(pa.large_string())
    raise DataError(
        f"{place.source}: the {what} column {place.column!r} holds {kind} cells; store text or whole numbers [DA173]"
    )


def name_rows(columns: Mapping[str, Any], source: str) -> pa.LargeStringArray:
    """A party's names for its rows: its cells as text, joined if there are several columns; names may repeat."""
    cells = [_cell_texts(flatten_column(cells), column, source) for column, cells in columns.items()]
    between = pa.scalar(" | ", pa.large_string())
    return pc.binary_join_element_wise(*cells, between, null_handling="replace", null_replacement="")


def _cell_texts(array: Any, column: str, source: str) -> Any:
    kind = array.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise DataError(f"{source}: the id column {column!r} holds {kind} cells; store text or whole numbers [DA174]")
    if pa.types.is_floating(kind):
        # Cell by cell: a row has the same name whichever rows are read with it.
        values, fits = as_whole_numbers(array)
        return pc.if_else(pa.array(fits), values.cast(pa.large_string()), array.cast(pa.large_string()))
    return array.cast(pa.large_string())


def sort_positions(ids: Any) -> NDArray[np.int64]:
    """The positions that put ids into the order of their bytes."""
    return np.asarray(pc.sort_indices(ids)).view(np.int64)


def _refuse_repeats(ids: Any, place: CellLocation) -> None:
    if Ids(ids).is_sorted():
        return
    order = sort_positions(ids)
    repeated = np.zeros(len(ids), dtype=bool)
    for start in range(0, len(ids), _CHUNK):
        rows = order[start : start + _CHUNK + 1]
        part = ids.take(pa.array(rows))
        same = np.asarray(pc.equal(part[1:], part[:-1]), dtype=bool)
        repeated[rows[1:][same]] = True
        repeated[rows[:-1][same]] = True
    if repeated.any():
        raise place.fail(repeated, "an id occurs more than once; keep one row for each person [DA175]")


UNICODE_VERSION = "14.0.0"
"""The version of Unicode whose rules text follows."""

_SPANS = """
378-379 380-383 38b 38d 3a2 530 557-558 58b-58c 590 5c8-5cf 5eb-5ee 5f5-5ff 70e 74b-74c 7b2-7bf 7fb-7fc 82e-82f 83f
85c-85d 85f 86b-86f 88f 892-897 984 98d-98e 991-992 9a9 9b1 9b3-9b5 9ba-9bb 9c5-9c6 9c9-9ca 9cf-9d6 9d8-9db 9de
9e4-9e5 9ff-a00 a04 a0b-a0e a11-a12 a29 a31 a34 a37 a3a-a3b a3d a43-a46 a49-a4a a4e-a50 a52-a58 a5d a5f-a65 a77-a80
a84 a8e a92 aa9 ab1 ab4 aba-abb ac6 aca ace-acf ad1-adf ae4-ae5 af2-af8 b00 b04 b0d-b0e b11-b12 b29 b31 b34 b3a-b3b
b45-b46 b49-b4a b4e-b54 b58-b5b b5e b64-b65 b78-b81 b84 b8b-b8d b91 b96-b98 b9b b9d ba0-ba2 ba5-ba7 bab-bad bba-bbd
bc3-bc5 bc9 bce-bcf bd1-bd6 bd8-be5 bfb-bff c0d c11 c29 c3a-c3b c45 c49 c4e-c54 c57 c5b-c5c c5e-c5f c64-c65 c70-c76
c8d c91 ca9 cb4 cba-cbb cc5 cc9 cce-cd4 cd7-cdc cdf ce4-ce5 cf0 cf3-cff d0d d11 d45 d49 d50-d53 d64-d65 d80 d84
d97-d99 db2 dbc dbe-dbf dc7-dc9 dcb-dce dd5 dd7 de0-de5 df0-df1 df5-e00 e3b-e3e e5c-e80 e83 e85 e8b ea4 ea6 ebe-ebf
ec5 ec7 ece-ecf eda-edb ee0-eff f48 f6d-f70 f98 fbd fcd fdb-fff 10c6 10c8-10cc 10ce-10cf 1249 124e-124f 1257 1259
125e-125f 1289 128e-128f 12b1 12b6-12b7 12bf 12c1 12c6-12c7 12d7 1311 1316-1317 135b-135c 137d-137f 139a-139f
13f6-13f7 13fe-13ff 169d-169f 16f9-16ff 1716-171e 1737-173f 1754-175f 176d 1771 1774-177f 17de-17df 17ea-17ef
17fa-17ff 181a-181f 1879-187f 18ab-18af 18f6-18ff 191f 192c-192f 193c-193f 1941-1943 196e-196f 1975-197f 19ac-19af
19ca-19cf 19db-19dd 1a1c-1a1d 1a5f 1a7d-1a7e 1a8a-1a8f 1a9a-1a9f 1aae-1aaf 1acf-1aff 1b4d-1b4f 1b7f 1bf4-1bfb
1c38-1c3a 1c4a-1c4c 1c89-1c8f 1cbb-1cbc 1cc8-1ccf 1cfb-1cff 1f16-1f17 1f1e-1f1f 1f46-1f47 1f4e-1f4f 1f58 1f5a 1f5c
1f5e 1f7e-1f7f 1fb5 1fc5 1fd4-1fd5 1fdc 1ff0-1ff1 1ff5 1fff 2065 2072-2073 208f 209d-209f 20c1-20cf 20f1-20ff
218c-218f 2427-243f 244b-245f 2b74-2b75 2b96 2cf4-2cf8 2d26 2d28-2d2c 2d2e-2d2f 2d68-2d6e 2d71-2d7e 2d97-2d9f 2da7
2daf 2db7 2dbf 2dc7 2dcf 2dd7 2ddf 2e5e-2e7f 2e9a 2ef4-2eff 2fd6-2fef 2ffc-2fff 3040 3097-3098 3100-3104 3130 318f
31e4-31ef 321f a48d-a48f a4c7-a4cf a62c-a63f a6f8-a6ff a7cb-a7cf a7d2 a7d4 a7da-a7f1 a82d-a82f a83a-a83f a878-a87f
a8c6-a8cd a8da-a8df a954-a95e a97d-a97f a9ce a9da-a9dd a9ff aa37-aa3f aa4e-aa4f aa5a-aa5b aac3-aada aaf7-ab00
ab07-ab08 ab0f-ab10 ab17-ab1f ab27 ab2f ab6c-ab6f abee-abef abfa-abff d7a4-d7af d7c7-d7ca d7fc-d7ff fa6e-fa6f
fada-faff fb07-fb12 fb18-fb1c fb37 fb3d fb3f fb42 fb45 fbc3-fbd2 fd90-fd91 fdc8-fdce fdd0-fdef fe1a-fe1f fe53 fe67
fe6c-fe6f fe75 fefd-fefe ff00 ffbf-ffc1 ffc8-ffc9 ffd0-ffd1 ffd8-ffd9 ffdd-ffdf ffe7 ffef-fff8 fffe-ffff 1000c 10027
1003b 1003e 1004e-1004f 1005e-1007f 100fb-100ff 10103-10106 10134-10136 1018f 1019d-1019f 101a1-101cf 101fe-1027f
1029d-1029f 102d1-102df 102fc-102ff 10324-1032c 1034b-1034f 1037b-1037f 1039e 103c4-103c7 103d6-103ff 1049e-1049f
104aa-104af 104d4-104d7 104fc-104ff 10528-1052f 10564-1056e 1057b 1058b 10593 10596 105a2 105b2 105ba 105bd-105ff
10737-1073f 10756-1075f 10768-1077f 10786 107b1 107bb-107ff 10806-10807 10809 10836 10839-1083b 1083d-1083e 10856
1089f-108a6 108b0-108df 108f3 108f6-108fa 1091c-1091e 1093a-1093e 10940-1097f 109b8-109bb 109d0-109d1 10a04
10a07-10a0b 10a14 10a18 10a36-10a37 10a3b-10a3e 10a49-10a4f 10a59-10a5f 10aa0-10abf 10ae7-10aea 10af7-10aff
10b36-10b38 10b56-10b57 10b73-10b77 10b92-10b98 10b9d-10ba8 10bb0-10bff 10c49-10c7f 10cb3-10cbf 10cf3-10cf9
10d28-10d2f 10d3a-10e5f 10e7f 10eaa 10eae-10eaf 10eb2-10eff 10f28-10f2f 10f5a-10f6f 10f8a-10faf 10fcc-10fdf
10ff7-10fff 1104e-11051 11076-1107e 110c3-110cc 110ce-110cf 110e9-110ef 110fa-110ff 11135 11148-1114f 11177-1117f
111e0 111f5-111ff 11212 1123f-1127f 11287 11289 1128e 1129e 112aa-112af 112eb-112ef 112fa-112ff 11304 1130d-1130e
11311-11312 11329 11331 11334 1133a 11345-11346 11349-1134a 1134e-1134f 11351-11356 11358-1135c 11364-11365
1136d-1136f 11375-113ff 1145c 11462-1147f 114c8-114cf 114da-1157f 115b6-115b7 115de-115ff 11645-1164f 1165a-1165f
1166d-1167f 116ba-116bf 116ca-116ff 1171b-1171c 1172c-1172f 11747-117ff 1183c-1189f 118f3-118fe 11907-11908
1190a-1190b 11914 11917 11936 11939-1193a 11947-1194f 1195a-1199f 119a8-119a9 119d8-119d9 119e5-119ff 11a48-11a4f
11aa3-11aaf 11af9-11bff 11c09 11c37 11c46-11c4f 11c6d-11c6f 11c90-11c91 11ca8 11cb7-11cff 11d07 11d0a 11d37-11d39
11d3b 11d3e 11d48-11d4f 11d5a-11d5f 11d66 11d69 11d8f 11d92 11d99-11d9f 11daa-11edf 11ef9-11faf 11fb1-11fbf
11ff2-11ffe 1239a-123ff 1246f 12475-1247f 12544-12f8f 12ff3-12fff 1342f 13439-143ff 14647-167ff 16a39-16a3f 16a5f
16a6a-16a6d 16abf 16aca-16acf 16aee-16aef 16af6-16aff 16b46-16b4f 16b5a 16b62 16b78-16b7c 16b90-16e3f 16e9b-16eff
16f4b-16f4e 16f88-16f8e 16fa0-16fdf 16fe5-16fef 16ff2-16fff 187f8-187ff 18cd6-18cff 18d09-1afef 1aff4 1affc 1afff
1b123-1b14f 1b153-1b163 1b168-1b16f 1b2fc-1bbff 1bc6b-1bc6f 1bc7d-1bc7f 1bc89-1bc8f 1bc9a-1bc9b 1bca4-1ceff
1cf2e-1cf2f 1cf47-1cf4f 1cfc4-1cfff 1d0f6-1d0ff 1d127-1d128 1d1eb-1d1ff 1d246-1d2df 1d2f4-1d2ff 1d357-1d35f
1d379-1d3ff 1d455 1d49d 1d4a0-1d4a1 1d4a3-1d4a4 1d4a7-1d4a8 1d4ad 1d4ba 1d4bc 1d4c4 1d506 1d50b-1d50c 1d515 1d51d
1d53a 1d53f 1d545 1d547-1d549 1d551 1d6a6-1d6a7 1d7cc-1d7cd 1da8c-1da9a 1daa0 1dab0-1deff 1df1f-1dfff 1e007
1e019-1e01a 1e022 1e025 1e02b-1e0ff 1e12d-1e12f 1e13e-1e13f 1e14a-1e14d 1e150-1e28f 1e2af-1e2bf 1e2fa-1e2fe
1e300-1e7df 1e7e7 1e7ec 1e7ef 1e7ff 1e8c5-1e8c6 1e8d7-1e8ff 1e94c-1e94f 1e95a-1e95d 1e960-1ec70 1ecb5-1ed00
1ed3e-1edff 1ee04 1ee20 1ee23 1ee25-1ee26 1ee28 1ee33 1ee38 1ee3a 1ee3c-1ee41 1ee43-1ee46 1ee48 1ee4a 1ee4c 1ee50
1ee53 1ee55-1ee56 1ee58 1ee5a 1ee5c 1ee5e 1ee60 1ee63 1ee65-1ee66 1ee6b 1ee73 1ee78 1ee7d 1ee7f 1ee8a 1ee9c-1eea0
1eea4 1eeaa 1eebc-1eeef 1eef2-1efff 1f02c-1f02f 1f094-1f09f 1f0af-1f0b0 1f0c0 1f0d0 1f0f6-1f0ff 1f1ae-1f1e5
1f203-1f20f 1f23c-1f23f 1f249-1f24f 1f252-1f25f 1f266-1f2ff 1f6d8-1f6dc 1f6ed-1f6ef 1f6fd-1f6ff 1f774-1f77f
1f7d9-1f7df 1f7ec-1f7ef 1f7f1-1f7ff 1f80c-1f80f 1f848-1f84f 1f85a-1f85f 1f888-1f88f 1f8ae-1f8af 1f8b2-1f8ff
1fa54-1fa5f 1fa6e-1fa6f 1fa75-1fa77 1fa7d-1fa7f 1fa87-1fa8f 1faad-1faaf 1fabb-1fabf 1fac6-1facf 1fada-1fadf
1fae8-1faef 1faf7-1faff 1fb93 1fbcb-1fbef 1fbfa-1ffff 2a6e0-2a6ff 2b739-2b73f 2b81e-2b81f 2cea2-2ceaf 2ebe1-2f7ff
2fa1e-2ffff 3134b-e0000 e0002-e001f e0080-e00ff e01f0-effff ffffe-fffff 10fffe-10ffff
"""

_EDGES = [int(edge, 16) + after for span in _SPANS.split() for after, edge in enumerate((span.split("-") * 2)[:2])]
_FIRST = chr(_EDGES[0])


@cache
def is_unassigned(character: str) -> bool:
    """Whether a character is one of them."""
    return bisect_right(_EDGES, ord(character)) % 2 == 1


def has_unassigned(text: str) -> bool:
    """Whether a text holds one of them."""
    return max(text, default="") >= _FIRST and any(map(is_unassigned, text))


def apply_between_unassigned(change: Callable[[str], str], text: str) -> str:
    """A text changed by a rule, except those characters.

    They neither join their neighbours nor let marks past them, so what is between them may be changed piece by piece.
    """
    pieces = ((left, "".join(piece)) for left, piece in groupby(text, is_unassigned))
    return "".join([piece if left else change(piece) for left, piece in pieces])


Case = Literal["keep", "fold"]
Blanks = Literal["keep", "trim", "collapse", "remove"]
UnicodeForm = Literal["keep", "NFC", "NFKC"]
Accents = Literal["keep", "strip"]

BLANKS = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
"""The characters with the Unicode property White_Space; Python's and Arrow's own lists differ a little."""

_RUN = f"[{BLANKS}]+"
_RUNS = re.compile(_RUN)
_MOST_PASSES = 8
_LONGEST_NUMBER = 400


def normalise_text(array: Any, place: CellLocation, rules: Key) -> Any:
    """Text in its normal form; whole numbers become their digits; null and empty cells are missing."""
    if pa.types.is_temporal(array.type):
        raise DataError(
            f"{place.source}: the key column {place.column!r} holds {array.type} cells; let the study compare it with "
            'kind = "date", or store text [DA182]'
        )
    cells = _check_utf8(as_text(array, place, "key"), place)
    other = ~_to_mask(pc.string_is_ascii(cells), absent=True)
    if not other.any():
        return _normalise_ascii(cells, rules)
    beyond = _map_distinct(cells.filter(pa.array(other)), lambda value: _normalise_fully(value, rules))
    return pc.replace_with_mask(_normalise_ascii(cells, rules), pa.array(other), beyond)


def normalise_numbers(array: Any, place: CellLocation) -> Any:
    """Numbers as their shortest decimal text without an exponent: 7, ``"007"`` and 7.0 become ``7``."""
    kind = array.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return as_text(array, place, "key")
    if not (is_text(kind) or pa.types.is_decimal(kind)):
        raise DataError(
            f"{place.source}: the key column {place.column!r} holds {kind} cells; store numbers or text [DA183]"
        )
    cells = _trim(array, place)
    good = _to_mask(pc.match_substring_regex(cells, NUMERAL), absent=True)
    place.refuse(~good, "the cell is not a number; write it with digits and a decimal point, or leave it empty [DA184]")
    cells = pc.if_else(pa.array(good), cells, pa.scalar(None, pa.large_string()))
    exponents = _to_mask(pc.match_substring_regex(cells, "[eE]"), absent=False)
    if exponents.any():
        cells = pc.replace_with_mask(cells, pa.array(exponents), _expand_exponents(cells, exponents, place))
    for pattern, replacement in _SHORTER:
        cells = pc.replace_substring_regex(cells, pattern, replacement)
    return cells


def normalise_dates(array: Any, place: CellLocation, format: str | None) -> Any:
    """Days as yyyy-mm-dd, from columns of dates, of timestamps at midnight, or of text in the given format."""
    kind = array.type
    if is_text(kind):
        array = _trim(array, place)
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        array = pc.local_timestamp(array)
    elif not (pa.types.is_temporal(kind) or pa.types.is_null(kind)):
        raise DataError(
            f"{place.source}: the key column {place.column!r} holds {kind} cells; store dates or text [DA185]"
        )
    days, missing = parse_days(array, format or ISO_DATE, place)
    return pa.array(days.astype(np.int32), mask=place.without_value(missing)).cast(pa.date32()).cast(pa.large_string())


_Change = Callable[[str], str]

_FORMS: dict[str, _Change] = {form: partial(unicodedata.normalize, form) for form in ("NFC", "NFD", "NFKC")}
_SHORTER = (
    (r"^\+", ""),
    (r"^(-?)0+([0-9])", r"\1\2"),
    (r"^(-?)\.", r"\10."),
    (r"(\.[0-9]*?)0+$", r"\1"),
    (r"\.$", ""),
    (r"^-0$", "0"),
)


def _normalise_ascii(cells: Any, rules: Key) -> Any:
    return _apply_blank_rule(pc.ascii_lower(cells) if rules.case == "fold" else cells, rules.blanks)


def _normalise_fully(value: str, rules: Key) -> str:
    # No rule makes such a character out of others, so one look is enough.
    apply = apply_between_unassigned if has_unassigned(value) else _apply
    for _ in range(_MOST_PASSES):
        before, value = value, _one_pass(value, rules, apply)
        if value == before:
            break
    return value


def _one_pass(value: str, rules: Key, apply: Callable[[_Change, str], str]) -> str:
    if rules.unicode != "keep":
        value = apply(_FORMS[rules.unicode], value)
    if rules.accents == "strip":
        value = apply(_FORMS["NFC"], apply(_strip_marks, value))
    if rules.case == "fold":
        value = apply(str.casefold, value)
    if rules.blanks in ("collapse", "remove"):
        value = _RUNS.sub(" " if rules.blanks == "collapse" else "", value)
    if rules.blanks != "keep":
        value = value.strip(BLANKS)
    return value if rules.unicode == "keep" else apply(_FORMS[rules.unicode], value)


def _strip_marks(value: str) -> str:
    return "".join([letter for letter in _FORMS["NFD"](value) if unicodedata.category(letter) != "Mn"])


def _apply(change: _Change, value: str) -> str:
    return change(value)


def _apply_blank_rule(cells: Any, rule: Blanks) -> Any:
    if rule in ("collapse", "remove"):
        cells = pc.replace_substring_regex(cells, _RUN, " " if rule == "collapse" else "")
    return cells if rule == "keep" else pc.utf8_trim(cells, characters=BLANKS)


def _map_distinct(cells: Any, change: Callable[[str], str | None]) -> Any:
    """The results of a function on text cells; it is called once for each distinct text."""
    encoded = cells.dictionary_encode()
    changed = [None if value is None else change(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(changed, pa.large_string()).take(encoded.indices)


def _trim(array: Any, place: CellLocation) -> Any:
    """Text without blanks around it; missing cells become null."""
    cells = pc.utf8_trim(_check_utf8(array.cast(pa.large_string()), place), characters=BLANKS)
    absent = pc.is_in(cells, pa.array(MISSING_WORDS, pa.large_string()))
    return pc.if_else(absent, pa.scalar(None, pa.large_string()), cells)


def _expand_exponents(cells: Any, exponents: Mask, place: CellLocation) -> Any:
    """The marked numbers without their exponents."""

    def change(value: str) -> str | None:
        exact = Decimal(value)
        return f"{exact:f}" if abs(exact.adjusted()) < _LONGEST_NUMBER else None

    written = _map_distinct(cells.filter(pa.array(exponents)), change)
    if written.null_count:
        bad = exponents.copy()
        bad[exponents] = np.array(written.is_null(), dtype=bool)
        place.refuse(bad, f"the number has more than {_LONGEST_NUMBER} digits; correct it [DA188]")
    return written


def _check_utf8(cells: Any, place: CellLocation) -> Any:
    try:
        cells.validate(full=True)
    except pa.ArrowInvalid:
        # Arrow's own message may quote a cell.
        raise DataError(
            f"{place.source}: the key column {place.column!r} holds text that is not UTF-8; save the file again [DA190]"
        ) from None
    return cells


def _to_mask(array: Any, *, absent: bool) -> Mask:
    return np.array(pc.fill_null(array, absent).to_numpy(zero_copy_only=False), dtype=np.bool_)


KeyKind = Literal["text", "number", "date"]
Duplicates = Literal["drop", "refuse"]
"""What becomes of rows of one party with equal keys: none stays, or it is an error.

A rule that kept one of them would let another row take the place of one that leaves: two changes for one person.
"""

_SHOWN_KEYS = 3
_SHOWN_CHARACTERS = 40
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True)
class Key:
    """One part of the key and how its cells are normalised; public, and the same at every party.

    ``text`` goes through the Unicode form, accents, case and blanks. A ``number`` becomes its shortest decimal text (7,
    ``"007"`` and 7.0 become the same), and a ``date`` becomes yyyy-mm-dd; the other rules do not apply to these two.

    Args:
        name: what the part is called in the study.
        kind: ``text``, ``number`` or ``date``.
        case: ``fold`` makes capitals and small letters equal.
        blanks: ``trim`` drops blanks at both ends, ``collapse`` also makes runs of them one, ``remove`` drops all.
            Every Unicode white space is a blank, no-break spaces too.
        unicode: ``NFC`` joins letters and their accents; ``NFKC`` also drops differences of font and width.
        accents: ``strip`` drops all combining marks (and then writes text in NFC at least).
    """

    name: str
    kind: KeyKind = "text"
    case: Case = "keep"
    blanks: Blanks = "trim"
    unicode: UnicodeForm = "NFC"
    accents: Accents = "keep"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise StudyError("a part of the key needs a name, such as 'email' [ST605]")
        for rule, allowed in _RULES.items():
            if getattr(self, rule) not in allowed:
                raise StudyError(
                    f"key {self.name!r}: {rule} must be {itemise(allowed)}, not {getattr(self, rule)!r} [ST606]"
                )

    def normalise(self, column: Any, place: CellLocation, format: str | None = None) -> Any:
        """The cells of a column as normalised text; null or empty where the cell is missing."""
        array = flatten_column(column)
        if self.kind == "number":
            return normalise_numbers(array, place)
        if self.kind == "date":
            return normalise_dates(array, place, format)
        return normalise_text(array, place, self)


_RULES: dict[str, tuple[str, ...]] = {
    "kind": get_args(KeyKind),
    "case": get_args(Case),
    "blanks": get_args(Blanks),
    "unicode": get_args(UnicodeForm),
    "accents": get_args(Accents),
}


@dataclass(frozen=True)
class KeyColumn:
    """Where a party holds one part of the key; private to it.

    ``format`` is for dates written as text, as a schema has it: ``"%d.%m.%Y"``. Without it they are read as yyyy-mm-dd.
    """

    column: str
    format: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise DataError("a part of the key needs the name of a column [DA176]")
        try:
            check_date_format(ISO_DATE if self.format is None else self.format)
        except SchemaError as error:
            raise DataError(f"column {self.column!r}: {error} [DA177]") from None


@dataclass(frozen=True)
class KeyPlan:
    """The parts of the key, in order, and what happens to rows of one party that have the same key.

    ``drop`` leaves out all rows with such a key, and ``refuse`` raises with the row numbers.
    """

    keys: tuple[Key, ...]
    duplicates: Duplicates = "drop"

    def __post_init__(self) -> None:
        if not self.keys:
            raise StudyError("name at least one column by which people are recognised [ST607]")
        names = [key.name for key in self.keys]
        if len(set(names)) < len(names):
            raise StudyError(
                f"the key names {itemise(sorted({n for n in names if names.count(n) > 1}))} more than once [ST608]"
            )
        if self.duplicates not in get_args(Duplicates):
            raise StudyError(f"duplicates must be {itemise(get_args(Duplicates))}, not {self.duplicates!r} [ST609]")


@dataclass(frozen=True, eq=False)
class TableKeys:
    """One party's normalised keys: distinct, in the order of its rows.

    ``values`` are bytes that are equal exactly where all parts are equal. ``rows`` are the rows that have them, counted
    from 0. ``missing`` and ``repeated`` count the rows left out because a part is missing or the key is not unique.
    """

    names: tuple[str, ...]
    values: list[bytes]
    rows: NDArray[np.int64]
    missing: int
    repeated: int
    unlabelled: int = 0
    """The rows left out because they have no label in a study that predicts it."""

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        left_out = self.missing + self.repeated + self.unlabelled
        return f"<Keys {' and '.join(self.names)}: {len(self)} of {len(self) + left_out} rows>"

    def parts(self, index: int) -> tuple[str, ...]:
        """The normalised parts of one key."""
        value, found, start = self.values[index], [], 0
        while start < len(value):
            (length,) = _LENGTH.unpack_from(value, start)
            start += _LENGTH.size + length
            found.append(value[start - length : start].decode())
        return tuple(found)

    @property
    def examples(self) -> tuple[str, ...]:
        """Up to three keys, for this party only: never write them to a log or send them."""
        return tuple(self._shown(index) for index in range(min(_SHOWN_KEYS, len(self))))

    def _shown(self, index: int) -> str:
        parts = zip(self.names, self.parts(index), strict=True)
        return ", ".join(f"{name} {_shorten(part)!r}" for name, part in parts)


def key_columns(
    keys: Iterable[Key], given: Mapping[str, KeyColumn | str], id: str | None, source: str = ""
) -> dict[str, KeyColumn]:
    """The column in which a party holds each part of the key.

    This is the given column; otherwise, if the key has only one part, the id column; otherwise the column with the
    part's name. ``source`` stands for the party in errors.
    """
    parts = tuple(keys)
    other = id if len(parts) == 1 else None
    found = {}
    for key in parts:
        named = given.get(key.name, other or key.name)
        found[key.name] = named if isinstance(named, KeyColumn) else KeyColumn(named)
        if found[key.name].format is not None and key.kind != "date":
            raise DataError(
                f"{source + ': ' if source else ''}key {key.name!r} is compared as a {key.kind}, so it has no format: "
                'leave that out, or let the study compare it with kind = "date" [DA178]'
            )
    return found


def collect_keys(
    arrow: pa.Table,
    plan: KeyPlan,
    columns: Mapping[str, KeyColumn],
    source: str,
    misfits: InvalidValues = "refuse",
    labelled: NDArray[np.bool_] | None = None,
) -> TableKeys:
    """The keys of a table's rows, without rows that lack a part or that the rule for duplicates drops.

    Nor does a row count that is not ``labelled``; where this is ``None`` no label is asked for.

    A cell that cannot be read as the number or date that it should be is an error, or else counts as missing. Where it
    does, a table without any key is none either: a study goes on with an empty list, because whether one row was left
    may hang on one cell.
    """
    canonical, rows = normalise_keys(arrow, plan, columns, np.arange(1, arrow.num_rows + 1), source, misfits)
    missing = arrow.num_rows - len(rows)
    if labelled is not None:
        canonical, rows = canonical.filter(pa.array(labelled[rows])), rows[labelled[rows]]
    if not len(rows) and misfits == "refuse":
        raise no_key_error(source, plan, columns)
    codes = np.asarray(canonical.dictionary_encode().indices, dtype=np.int64)
    repeated = np.bincount(codes)[codes] > 1
    refuse_repeated(rows[repeated] + 1, plan, columns, source)
    if repeated.all() and misfits == "refuse":
        raise all_repeated_error(source, plan, columns)
    values = canonical.filter(pa.array(~repeated)).to_pylist()
    names = tuple(key.name for key in plan.keys)
    unlabelled = arrow.num_rows - missing - len(rows)
    return TableKeys(names, values, rows[~repeated], missing, int(repeated.sum()), unlabelled)


def normalise_keys(
    cells: pa.Table | pa.RecordBatch,
    plan: KeyPlan,
    columns: Mapping[str, KeyColumn],
    numbers: NDArray[np.int64],
    source: str,
    misfits: InvalidValues,
) -> tuple[Any, NDArray[np.int64]]:
    """The keys of some rows, as bytes in Arrow, without rows that lack a part; and which rows those are.

    ``numbers`` are the numbers of the rows in the file, for errors.
    """
    parts, present = [], np.ones(cells.num_rows, dtype=bool)
    for key in plan.keys:
        held = columns[key.name]
        place = locate_cells(source, held.column, numbers, misfits)
        parts.append(key.normalise(cells[held.column], place, held.format))
        present &= np.array(pc.fill_null(pc.not_equal(parts[-1], ""), False))
        if place.invalid is not None:
            present &= ~place.invalid
    rows = np.flatnonzero(present)
    return _join_parts([part.take(pa.array(rows)) for part in parts]), rows


def no_key_error(source: str, plan: KeyPlan, columns: Mapping[str, KeyColumn]) -> DataError:
    """The error for a table of which no row has a key."""
    named = _column_list(plan, columns)
    return DataError(f"{source}: no row has a key, because a cell of {named} is missing in each; fill them [DA179]")


def all_repeated_error(source: str, plan: KeyPlan, columns: Mapping[str, KeyColumn]) -> DataError:
    """The error for a table of which no row is left without those whose keys are repeated."""
    named = _column_list(plan, columns)
    return DataError(
        f"{source}: no row is left, because every key in {named} is repeated; keep one row for each person [DA180]"
    )


def refuse_repeated(
    numbers: NDArray[np.int64],
    plan: KeyPlan,
    columns: Mapping[str, KeyColumn],
    source: str,
    count: int | None = None,
) -> None:
    """Raise for the rows with these numbers, whose keys are repeated, if the rule says so.

    If only the first of them are given, ``count`` is how many there are.
    """
    if plan.duplicates == "refuse" and len(numbers):
        raise DataError(
            f"{source}: {list_rows(numbers, count)}: the key in {_column_list(plan, columns)} occurs more than once; "
            'keep one row for each person, or set duplicates = "drop" [DA181]'
        )


def _column_list(plan: KeyPlan, columns: Mapping[str, KeyColumn]) -> str:
    return itemise(columns[key.name].column for key in plan.keys)


def _join_parts(parts: Sequence[Any]) -> Any:
    """The parts of each row, joined, each after its length, so that different lists of parts give different bytes."""
    pieces = []
    for part in parts:
        cells = part.cast(pa.large_binary())
        lengths = np.array(pc.binary_length(cells), dtype="<u4")
        fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_LENGTH.size), len(cells), [None, pa.py_buffer(lengths)])
        pieces += [fixed.cast(pa.large_binary()), cells]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))


def _shorten(part: str) -> str:
    return part if len(part) <= _SHOWN_CHARACTERS else part[: _SHOWN_CHARACTERS - 1] + "…"
