"""Cells of Arrow columns, read as numbers, values of a category or flags, as the schema says.

A cell is missing when it is null, NaN, empty, or one of a few words such as ``NA``. A cell that fits nothing is an
error that names its place, or is noted there so that the encoder maps it; no message here shows a value. ``pa`` and
``pc`` are pyarrow and its compute functions, which are imported when one of them is first used.

How a party's text file is written: what separates its cells, its encoding, the signs in its numbers.

None of it is learned silently: a schema or a party's own file says it, and what a file looks like stands in the error
or in the draft of a schema.

Wording for messages: similar names, lists of names, and row numbers.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher, get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, SchemaError
from colonnade.lazy import LazyModule

UTF_8 = "utf-8"
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
FORMAT_KEYS = ("separator", "encoding", "decimal", "thousands")

WHERE_TO_SAY = "in the party's own file or in [table] of the schema, or pass it to Party or read_table"
_SAMPLE = 1 << 16
_LINES = 50
_ONLY_IN_WINDOWS = frozenset(range(0x80, 0xA0))


@dataclass(frozen=True, slots=True)
class TextFormat:
    """How a text file is written; what is ``None`` is not said: commas (tabs in ``.tsv``), UTF-8, a decimal point.

    Without ``thousands`` no sign stands between thousands. A blank and ``'`` also mean those of typesetters.
    """

    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    thousands: str | None = None

    def __post_init__(self) -> None:
        separator, decimal = self.separator, self.decimal
        if separator is not None and (
            not isinstance(separator, str) or len(separator) != 1 or not separator.isascii() or separator in '"\r\n\0'
        ):
            raise SchemaError(f'separator must be one sign such as ";" or "\\t", not {separator!r} [SC048]')
        if decimal is not None and decimal not in (".", ","):
            raise SchemaError(f'decimal must be "." or ",", not {decimal!r} [SC049]')
        if self.thousands is not None and self.thousands not in _MARKS:
            raise SchemaError(f"thousands must be one of {itemise(_MARKS)}, not {self.thousands!r} [SC740]")
        if self.thousands is not None and self.thousands == decimal:
            raise SchemaError(f"decimal and thousands are both {decimal!r}; they must be different signs [SC741]")
        if self.encoding is not None:
            _check_encoding(self.encoding)

    def merge_over(self, other: TextFormat) -> TextFormat:
        """This format, and what it does not say as the other one says it."""
        return replace(other, **self.stated)

    @property
    def stated(self) -> dict[str, str]:
        """What is said, by key."""
        return {key: said for key in FORMAT_KEYS if (said := getattr(self, key)) is not None}

    @property
    def fraction(self) -> str:
        """The sign before the fraction of a number."""
        return self.decimal or ("," if self.thousands == "." else ".")

    @property
    def numeral(self) -> str:
        """A regular expression for numbers; groups between signs have three digits, and the first no zero in front."""
        fraction = re.escape(self.fraction)
        grouped = f"|[1-9][0-9]{{0,2}}({_MARKS[self.thousands]}[0-9]{{3}})+" if self.thousands else ""
        return rf"^[+-]?(([0-9]+{grouped})({fraction}[0-9]*)?|{fraction}[0-9]+)([eE][+-]?[0-9]+)?$"

    @property
    def utf_8(self) -> bool:
        """Whether the text is UTF-8, with a byte order mark or without."""
        return codecs.lookup(self.encoding or UTF_8).name in (UTF_8, "utf-8-sig")

    def separator_in(self, suffixes: Sequence[str]) -> str:
        """What separates the cells of a file whose name has these endings."""
        return self.separator or ("\t" if ".tsv" in suffixes else ",")


AS_USUAL = TextFormat()
"""A text file of which nothing is said."""
_MARKS = {",": ",", ".": r"\.", " ": r"[ \x{a0}\x{202f}]", "'": r"['\x{2019}]"}
NUMBER_FORMATS = tuple(
    TextFormat(decimal=decimal, thousands=thousands)
    for thousands, decimal in (
        *((None, None), (None, ","), (",", None), (".", ",")),
        *((mark, decimal) for mark in (" ", "'") for decimal in (None, ",")),
    )
)
"""How numbers are written in files that people have."""


def guess_encoding(start: bytes) -> str | None:
    """The encoding that bytes look like, of a few that are common; ``None`` if they look like none."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in start:
        at = start.index(b"\0") % 2
        return ("utf-16-be", "utf-16-le")[at] if start[at::2].count(0) * 4 > len(start) else None
    if _can_decode(start, UTF_8):
        return UTF_8
    if not _ONLY_IN_WINDOWS & set(start):
        return "latin-1"
    return "windows-1252" if _can_decode(start, "windows-1252") else None


def guess_separator(text: str) -> str:
    """What separates the cells of a text: the sign that splits most of its lines into as many cells, else a comma."""
    lines = [line for line in text.splitlines()[:_LINES] if line]

    def rating(separator: str) -> tuple[int, int]:
        cells, lines_alike = Counter(line.count(separator) for line in lines).most_common(1)[0]
        return (lines_alike, cells) if cells else (0, 0)

    return max(SEPARATORS, key=rating) if lines else ","


def decode_sample(start: bytes, encoding: str, size: int = _SAMPLE) -> str:
    """The first bytes of a file as text; a character that is cut off at the end is left out."""
    try:
        return codecs.getincrementaldecoder(encoding)("replace").decode(start[:size])
    except UnicodeError:  # of UTF-16 without the mark that it begins with
        return "\ufffd"


def advise_format(said: Mapping[str, str]) -> str:
    """What to write so that a file is read: ``'separator = ";"'``, and where."""
    return f"write {format_as_toml(said)} {WHERE_TO_SAY}"


def format_as_toml(said: Mapping[str, str]) -> str:
    """Keys and values as a file has them, in one line."""
    return " and ".join(f"{key} = {json.dumps(value)}" for key, value in said.items())


def _can_decode(start: bytes, encoding: str) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(start)
    except UnicodeDecodeError:
        return False
    return True


def _check_encoding(encoding: object) -> None:
    try:
        if not isinstance(encoding, str) or "a;1\n".encode(encoding).decode(encoding) != "a;1\n":
            raise LookupError
        codecs.getincrementaldecoder(encoding)
    except (LookupError, UnicodeError, ValueError):
        raise SchemaError(
            f'encoding must be one that Python knows, such as "utf-8", "latin-1", "windows-1252" or "utf-16", not '
            f"{encoding!r} [SC050]"
        ) from None


MAX_SHOWN_ROWS = 5
"""How many rows an error names."""
_CLOSE, _CLOSER, _VERY_CLOSE = 0.6, 0.65, 0.75


def suggest_name(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'age'?"`` if a known name is similar, otherwise an empty text."""
    by_plain = {other.strip().casefold(): other for other in known}
    close = get_close_matches(name.strip().casefold(), by_plain, n=1, cutoff=_CLOSE)
    return f"; did you mean {by_plain[close[0]]!r}?" if close else ""


def suggest_full_name(name: str, known: Iterable[str]) -> str:
    """The same for names such as ``bank.age``: party and column are compared apart, as an equal party means little."""
    ranked = max(((_closeness(name, other), other) for other in sorted(known)), default=(0.0, ""))
    return f"; did you mean {ranked[1]!r}?" if ranked[0] > 0 else ""


def _closeness(name: str, other: str) -> float:
    """How similar two names are; 0 where the columns are not, or differ and so do the parties."""
    if "." not in name:
        name = f".{name}"
    party, _, column = name.strip().casefold().partition(".")
    there, _, known = other.casefold().partition(".")
    columns, parties = (SequenceMatcher(None, *pair).ratio() for pair in ((column, known), (party, there)))
    close = columns >= (_CLOSER if parties == 1 else _VERY_CLOSE)
    close = close and (columns == 1 or not party or parties >= _VERY_CLOSE)
    return columns + parties if close else 0.0


def itemise(names: Iterable[str], limit: int = 8) -> str:
    """Names in quotes, the first few of them."""
    everything = list(names)
    more = f" and {len(everything) - limit} more" if len(everything) > limit else ""
    return ", ".join(repr(name) for name in everything[:limit]) + more


def list_rows(rows: NDArray[np.int64], count: int | None = None) -> str:
    """``"row 7"`` or ``"rows 7, 9, 12 and 40 more"``: places, never values.

    If the first of them are given, ``count`` is how many there are.
    """
    total = len(rows) if count is None else count
    shown = ", ".join(str(row) for row in np.sort(rows)[:MAX_SHOWN_ROWS])
    more = f" and {total - MAX_SHOWN_ROWS} more" if total > MAX_SHOWN_ROWS else ""
    return f"row {shown}" if total == 1 else f"rows {shown}{more}"


__all__ = ["pa", "pc"]

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa, pc = LazyModule("pyarrow"), LazyModule("pyarrow.compute")


MISSING_WORDS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
NUMERAL = AS_USUAL.numeral
INFINITE = r"(?i)^[+-]?inf(inity)?$"
YES = ("true", "yes", "1", "1.0")
NO = ("false", "no", "0", "0.0")

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class CellLocation:
    """Where some cells come from: source name, column name, and the 1-based number of each row."""

    source: str
    column: str
    rows: NDArray[np.int64] | range
    invalid: Mask | None = None
    """Where cells that fit nothing are noted; ``None`` where they are an error."""
    text: TextFormat = AS_USUAL
    """How numbers are written that are text."""

    def refuse(self, bad: Mask, what: str) -> None:
        """Note the cells marked ``bad``, or raise the error for them."""
        if not bad.any():
            return
        if self.invalid is None:
            raise self.fail(bad, what)
        np.logical_or(self.invalid, bad, out=self.invalid)

    def without_value(self, missing: Mask) -> Mask:
        """The cells that are missing or were noted as fitting nothing."""
        return missing if self.invalid is None else missing | self.invalid

    def fail(self, bad: Mask, what: str) -> DataError:
        """The error for the cells marked ``bad``."""
        return DataError(
            f"{self.source}: column {self.column!r}, {list_rows(np.asarray(self.rows)[bad])}: {what} [DA191]"
        )

    def wrong_type(self, found: pa.DataType, wanted: str) -> DataError:
        """The error for a whole column of an unusable type."""
        return DataError(
            f"{self.source}: column {self.column!r} holds {found} cells, but the schema declares a {wanted}; "
            "convert the column or correct the schema [DA192]"
        )


def flatten_column(column: Any) -> Any:
    """One contiguous array without dictionary encoding; copied only where it has several chunks."""
    array = column
    if isinstance(column, pa.ChunkedArray):
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # what combining gives for text of more than 2 GiB
        array = pa.concat_arrays([chunk.cast(pa.large_string()) for chunk in array.chunks])
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def parse_numbers(column: Any, place: CellLocation) -> tuple[NDArray[np.float64], Mask]:
    """Values and the mask of missing ones; these hold 0, and so do those that fit nothing."""
    array = flatten_column(column)
    kind = array.type
    if is_text(kind):
        array = _numeral_text(array, place)
    elif pa.types.is_null(kind):
        return np.zeros(len(array)), np.ones(len(array), bool)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise place.wrong_type(kind, "number")
    filled = pc.fill_null(pc.cast(array, pa.float64(), safe=False), np.nan)
    values = np.array(filled.to_numpy(zero_copy_only=False), dtype=np.float64)
    missing = np.isnan(values)
    infinite = np.isinf(values)
    place.refuse(infinite, _INFINITE_HELP)
    values[missing | infinite] = 0.0
    return values, missing


def numeric_array(column: Any) -> NDArray[Any] | None:
    """The cells as an array if they are numbers in one chunk and none is null, otherwise ``None``."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks != 1:
            return None
        column = column.chunk(0)
    kind = column.type
    if column.null_count or not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        return None
    values: NDArray[Any] = column.to_numpy()
    return values


def parse_codes(column: Any, values: Sequence[str], place: CellLocation) -> tuple[NDArray[np.int64], Mask]:
    """The position of each cell in the declared values, and the mask of missing ones.

    Those hold -1, and so do the cells that fit nothing.
    """
    array = _label_text(flatten_column(column), place)
    found = pc.index_in(array, pa.array(values, pa.large_string()), skip_nulls=True)
    positions = np.array(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
    missing = find_missing(array) & (positions < 0)  # a word such as NA may be a declared value
    place.refuse(
        (positions < 0) & ~missing,
        "the value is not in the schema's list (capitals and blanks count); correct the cell or, if "
        "everybody may know that the value exists, add it to the list [DA193]",
    )
    return positions, missing


def parse_flags(column: Any, place: CellLocation) -> tuple[Mask, Mask]:
    """Which cells are true, and the mask of missing ones; these are not true, nor are those that fit nothing."""
    array = flatten_column(column)
    kind = array.type
    if pa.types.is_boolean(kind):
        return _to_mask(pc.fill_null(array, False)), _to_mask(pc.is_null(array))
    if is_text(kind):
        return _parse_flag_text(array, place)
    if pa.types.is_date(kind) or pa.types.is_temporal(kind) or pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise place.wrong_type(kind, "flag")
    values, missing = parse_numbers(array, place)
    place.refuse((values != 0) & (values != 1), _FLAG_HELP)
    return values == 1, missing


def is_text(kind: pa.DataType) -> bool:
    """Whether cells are text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_whole(kind: pa.DataType) -> bool:
    """Whether cells are whole numbers, exactly: warehouses store those of any length as decimals without a fraction."""
    return bool(pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0))


def as_whole_numbers(array: Any) -> tuple[Any, Mask]:
    """Floats as whole numbers, and a mask of those that are whole or missing; the others become missing.

    pandas turns whole numbers into floats as soon as one of them is missing.
    """
    values = np.array(array.to_numpy(zero_copy_only=False), dtype=np.float64)
    absent = np.isnan(values)
    fits = absent | ((np.abs(values) < 2.0**53) & (values == np.rint(values)))
    whole = fits & ~absent
    return pa.array(np.where(whole, values, 0).astype(np.int64), mask=~whole), fits


_INFINITE_HELP = "the number is infinite; correct it or leave the cell empty [DA194]"
_DATE = r"^([0-9]{4}[-./][0-9]{1,2}[-./][0-9]{1,2}|[0-9]{1,2}[-./][0-9]{1,2}[-./][0-9]{4})([T ]|$)"
_FLAG_HELP = "the cell is neither true nor false; write true/false, yes/no or 1/0 [DA195]"


def _numeral_text(array: Any, place: CellLocation) -> Any:
    trimmed = pc.utf8_trim_whitespace(array.cast(pa.large_string()))
    missing = find_missing(trimmed)
    text = place.text
    bad = ~_matches(trimmed, text.numeral) & ~missing
    if bad.any():
        place.refuse(bad & _matches(trimmed, INFINITE), _INFINITE_HELP)
        place.refuse(bad, _number_help(trimmed.filter(pa.array(bad)), text))
    if text.thousands is not None:
        trimmed = pc.replace_substring_regex(trimmed, _MARKS[text.thousands], "")
    written = pc.replace_substring(trimmed, ",", ".") if text.fraction == "," else trimmed
    return pc.if_else(pa.array(missing | bad), pa.scalar(None, pa.large_string()), written)


def fitting_formats(texts: Any, known: TextFormat = AS_USUAL) -> list[TextFormat]:
    """The ways to write numbers in which all these texts are some, the simplest first; what is ``known`` holds."""
    return [
        each
        for each in NUMBER_FORMATS
        if (known.decimal is None or each.fraction == known.decimal)
        and (known.thousands is None or each.thousands == known.thousands)
        and _matches(texts, each.numeral).all()
    ]


def _number_help(bad: Any, text: TextFormat) -> str:
    """What is wrong with cells that are no numbers, without a word of what they hold."""
    if _matches(bad, _DATE).all():
        return 'the cell looks like a date; declare the column with type = "date" in the schema [DA196]'
    fits = fitting_formats(bad)
    first = fits[0].stated if fits else None
    if text.fraction == "." and text.thousands is None and first == {"decimal": ","}:
        return (
            'the number has a comma: say thousands = "," if it stands between thousands; if it is the decimal sign, '
            f"{advise_format(first)} [DA198]"
        )
    if text.fraction == "," and first == {}:
        return (
            'the number has a point, but decimal = "," says that fractions come after a comma; correct one of them, '
            'or say thousands = "." if it stands between thousands [DA199]'
        )
    if fits and fits[0].thousands is not None:
        usual = next((each for each in fits if each.fraction == text.fraction), fits[0])
        return f"the number has signs between its thousands; {advise_format(usual.stated)} [DA197]"
    sign = "comma" if text.fraction == "," else "point"
    return f"the cell is not a number; write it with digits and a decimal {sign}, or leave it empty [DA200]"


def _label_text(array: Any, place: CellLocation) -> Any:
    """Cells as text, so that the code 3 and the text "3" are one value."""
    kind = array.type
    if pa.types.is_floating(kind):
        array, fits = as_whole_numbers(array)
        place.refuse(~fits, "the code is not a whole number; correct the cell or declare a number [DA201]")
    elif pa.types.is_null(kind):
        return array.cast(pa.large_string())
    elif not (is_text(kind) or is_whole(kind) or pa.types.is_boolean(kind)):
        raise place.wrong_type(kind, "category")
    return array.cast(pa.large_string())


def _parse_flag_text(array: Any, place: CellLocation) -> tuple[Mask, Mask]:
    trimmed = pc.utf8_trim_whitespace(array.cast(pa.large_string()))
    missing = find_missing(trimmed)
    lowered = pc.utf8_lower(trimmed)
    yes = _to_mask(pc.is_in(lowered, pa.array(YES, pa.large_string())))
    no = _to_mask(pc.is_in(lowered, pa.array(NO, pa.large_string())))
    place.refuse(~(yes | no | missing), _FLAG_HELP)
    return yes, missing


def find_missing(text: Any) -> Mask:
    """Which texts stand for a missing cell."""
    return _to_mask(pc.is_null(text)) | _to_mask(pc.is_in(text, pa.array(MISSING_WORDS, pa.large_string())))


def _matches(text: Any, pattern: str) -> Mask:
    return _to_mask(pc.fill_null(pc.match_substring_regex(text, pattern), False))


def _to_mask(array: Any) -> Mask:
    return np.array(array.to_numpy(zero_copy_only=False), dtype=np.bool_)
