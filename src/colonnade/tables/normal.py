"""Cells of a key in one normal form, so that the same person has the same bytes at every party.

Text goes through the Unicode form, accents, case and blanks, in this order, and then through the Unicode form again.
The steps are repeated until nothing changes, so normalising a result once more does not change it. The rules are those
of one version of Unicode (:mod:`colonnade.tables.unassigned`) and do not depend on the versions of other libraries or
on the machine's language. Messages name places and never values.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Literal

import numpy as np

from colonnade.errors import DataError
from colonnade.tables.arrow import pa, pc
from colonnade.tables.days import ISO_DATE, days_of
from colonnade.tables.ids import as_text
from colonnade.tables.parse import MISSING_WORDS, NUMERAL, Mask, Place, is_text
from colonnade.tables.unassigned import between_unassigned, has_unassigned

Case = Literal["keep", "fold"]
Blanks = Literal["keep", "trim", "collapse", "remove"]
Form = Literal["keep", "NFC", "NFKC"]
Accents = Literal["keep", "strip"]

BLANKS = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
"""The characters with the Unicode property White_Space; Python's and Arrow's own lists differ a little."""

_RUN = f"[{BLANKS}]+"
_RUNS = re.compile(_RUN)
_MOST_PASSES = 8
_LONGEST_NUMBER = 400


@dataclass(frozen=True)
class TextRules:
    """The rules for text."""

    form: Form = "NFC"
    accents: Accents = "keep"
    case: Case = "keep"
    blanks: Blanks = "trim"


def text(array: Any, place: Place, rules: TextRules) -> Any:
    """Text in its normal form; whole numbers become their digits; null and empty cells are missing."""
    if pa.types.is_temporal(array.type):
        raise DataError(
            f"{place.source}: the key column {place.column!r} holds {array.type} cells; let the study compare it with "
            'kind = "date", or store text [DA182]'
        )
    cells = _valid(as_text(array, place, "key"), place)
    other = ~_truths(pc.string_is_ascii(cells), absent=True)
    if not other.any():
        return _plain_ascii(cells, rules)
    beyond = _each_once(cells.filter(pa.array(other)), lambda value: _until_it_stays(value, rules))
    return pc.replace_with_mask(_plain_ascii(cells, rules), pa.array(other), beyond)


def numbers(array: Any, place: Place) -> Any:
    """Numbers as their shortest decimal text without an exponent: 7, ``"007"`` and 7.0 become ``7``."""
    kind = array.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return as_text(array, place, "key")
    if not (is_text(kind) or pa.types.is_decimal(kind)):
        raise DataError(
            f"{place.source}: the key column {place.column!r} holds {kind} cells; store numbers or text [DA183]"
        )
    cells = _trimmed(array, place)
    good = _truths(pc.match_substring_regex(cells, NUMERAL), absent=True)
    place.refuse(~good, "the cell is not a number; write it with digits and a decimal point, or leave it empty [DA184]")
    cells = pc.if_else(pa.array(good), cells, pa.scalar(None, pa.large_string()))
    exponents = _truths(pc.match_substring_regex(cells, "[eE]"), absent=False)
    if exponents.any():
        cells = pc.replace_with_mask(cells, pa.array(exponents), _written_out(cells, exponents, place))
    for pattern, replacement in _SHORTER:
        cells = pc.replace_substring_regex(cells, pattern, replacement)
    return cells


def dates(array: Any, place: Place, format: str | None) -> Any:
    """Days as yyyy-mm-dd, from columns of dates, of timestamps at midnight, or of text in the given format."""
    kind = array.type
    if is_text(kind):
        array = _trimmed(array, place)
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        array = pc.local_timestamp(array)
    elif not (pa.types.is_temporal(kind) or pa.types.is_null(kind)):
        raise DataError(
            f"{place.source}: the key column {place.column!r} holds {kind} cells; store dates or text [DA185]"
        )
    days, missing = days_of(array, format or ISO_DATE, place)
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


def _plain_ascii(cells: Any, rules: TextRules) -> Any:
    return _blanks(pc.ascii_lower(cells) if rules.case == "fold" else cells, rules.blanks)


def _until_it_stays(value: str, rules: TextRules) -> str:
    # No rule makes such a character out of others, so one look is enough.
    apply = between_unassigned if has_unassigned(value) else _plainly
    for _ in range(_MOST_PASSES):
        before, value = value, _one_pass(value, rules, apply)
        if value == before:
            break
    return value


def _one_pass(value: str, rules: TextRules, apply: Callable[[_Change, str], str]) -> str:
    if rules.form != "keep":
        value = apply(_FORMS[rules.form], value)
    if rules.accents == "strip":
        value = apply(_FORMS["NFC"], apply(_without_marks, value))
    if rules.case == "fold":
        value = apply(str.casefold, value)
    if rules.blanks in ("collapse", "remove"):
        value = _RUNS.sub(" " if rules.blanks == "collapse" else "", value)
    if rules.blanks != "keep":
        value = value.strip(BLANKS)
    return value if rules.form == "keep" else apply(_FORMS[rules.form], value)


def _without_marks(value: str) -> str:
    return "".join([letter for letter in _FORMS["NFD"](value) if unicodedata.category(letter) != "Mn"])


def _plainly(change: _Change, value: str) -> str:
    return change(value)


def _blanks(cells: Any, rule: Blanks) -> Any:
    if rule in ("collapse", "remove"):
        cells = pc.replace_substring_regex(cells, _RUN, " " if rule == "collapse" else "")
    return cells if rule == "keep" else pc.utf8_trim(cells, characters=BLANKS)


def _each_once(cells: Any, change: Callable[[str], str | None]) -> Any:
    """The results of a function on text cells; it is called once for each distinct text."""
    encoded = cells.dictionary_encode()
    changed = [None if value is None else change(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(changed, pa.large_string()).take(encoded.indices)


def _trimmed(array: Any, place: Place) -> Any:
    """Text without blanks around it; missing cells become null."""
    cells = pc.utf8_trim(_valid(array.cast(pa.large_string()), place), characters=BLANKS)
    absent = pc.is_in(cells, pa.array(MISSING_WORDS, pa.large_string()))
    return pc.if_else(absent, pa.scalar(None, pa.large_string()), cells)


def _written_out(cells: Any, exponents: Mask, place: Place) -> Any:
    """The marked numbers without their exponents."""

    def change(value: str) -> str | None:
        exact = Decimal(value)
        return f"{exact:f}" if abs(exact.adjusted()) < _LONGEST_NUMBER else None

    written = _each_once(cells.filter(pa.array(exponents)), change)
    if written.null_count:
        bad = exponents.copy()
        bad[exponents] = np.array(written.is_null(), dtype=bool)
        place.refuse(bad, f"the number has more than {_LONGEST_NUMBER} digits; correct it [DA188]")
    return written


def _valid(cells: Any, place: Place) -> Any:
    try:
        cells.validate(full=True)
    except pa.ArrowInvalid:
        # Arrow's own message may quote a cell.
        raise DataError(
            f"{place.source}: the key column {place.column!r} holds text that is not UTF-8; save the file again [DA190]"
        ) from None
    return cells


def _truths(array: Any, *, absent: bool) -> Mask:
    return np.array(pc.fill_null(array, absent).to_numpy(zero_copy_only=False), dtype=np.bool_)
