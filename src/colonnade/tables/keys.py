"""The columns by which parties recognise the people they share, and one party's normalised keys.

The rules for each part of a key are public and the same at every party. Each party decides for itself in which column
the cells are and how dates are written. :mod:`colonnade.tables.normal` applies the rules to the cells.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import DataError, SchemaError, StudyError
from colonnade.tables import normal
from colonnade.tables.arrow import pa, pc
from colonnade.tables.days import ISO_DATE, check_format
from colonnade.tables.encode import Misfits, place_of
from colonnade.tables.normal import Accents, Blanks, Case, Form, TextRules
from colonnade.tables.parse import Place, plain
from colonnade.tables.wording import listed, row_numbers

Kind = Literal["text", "number", "date"]
Duplicates = Literal["refuse", "first", "drop"]

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
    kind: Kind = "text"
    case: Case = "keep"
    blanks: Blanks = "trim"
    unicode: Form = "NFC"
    accents: Accents = "keep"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise StudyError("a part of the key needs a name, such as 'email' [ST605]")
        for rule, allowed in _RULES.items():
            if getattr(self, rule) not in allowed:
                raise StudyError(
                    f"key {self.name!r}: {rule} must be {listed(allowed)}, not {getattr(self, rule)!r} [ST606]"
                )

    def normalise(self, column: Any, place: Place, format: str | None = None) -> Any:
        """The cells of a column as normalised text; null or empty where the cell is missing."""
        array = plain(column)
        if self.kind == "number":
            return normal.numbers(array, place)
        if self.kind == "date":
            return normal.dates(array, place, format)
        return normal.text(array, place, TextRules(self.unicode, self.accents, self.case, self.blanks))


_RULES: dict[str, tuple[str, ...]] = {
    "kind": get_args(Kind),
    "case": get_args(Case),
    "blanks": get_args(Blanks),
    "unicode": get_args(Form),
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
            check_format(ISO_DATE if self.format is None else self.format)
        except SchemaError as error:
            raise DataError(f"column {self.column!r}: {error} [DA177]") from None


@dataclass(frozen=True)
class KeyPlan:
    """The parts of the key, in order, and what happens to rows of one party that have the same key.

    ``refuse`` raises with the row numbers, ``first`` keeps the first row in the order of the file, and ``drop`` leaves
    out all rows with such a key.
    """

    keys: tuple[Key, ...]
    duplicates: Duplicates = "refuse"

    def __post_init__(self) -> None:
        if not self.keys:
            raise StudyError("name at least one column by which people are recognised [ST607]")
        names = [key.name for key in self.keys]
        if len(set(names)) < len(names):
            raise StudyError(
                f"the key names {listed(sorted({n for n in names if names.count(n) > 1}))} more than once [ST608]"
            )
        if self.duplicates not in get_args(Duplicates):
            raise StudyError(f"duplicates must be {listed(get_args(Duplicates))}, not {self.duplicates!r} [ST609]")


@dataclass(frozen=True, eq=False)
class Keys:
    """One party's normalised keys: distinct, in the order of its rows.

    ``values`` are bytes that are equal exactly where all parts are equal. ``rows`` are the rows that have them, counted
    from 0. ``missing`` and ``repeated`` count the rows left out because a part is missing or the key is not unique.
    """

    names: tuple[str, ...]
    values: list[bytes]
    rows: NDArray[np.int64]
    missing: int
    repeated: int

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"<Keys {' and '.join(self.names)}: {len(self)} of {len(self) + self.missing + self.repeated} rows>"

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
        return ", ".join(f"{name} {_cut(part)!r}" for name, part in parts)


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
    arrow: pa.Table, plan: KeyPlan, columns: Mapping[str, KeyColumn], source: str, misfits: Misfits = "refuse"
) -> Keys:
    """The keys of a table's rows, without rows that lack a part or that the rule for duplicates drops.

    A cell that cannot be read as the number or date that it should be is an error, or else counts as missing. Where it
    does, a table without any key is none either: a study goes on with an empty list, because whether one row was left
    may hang on one cell.
    """
    canonical, rows = normalised(arrow, plan, columns, np.arange(1, arrow.num_rows + 1), source, misfits)
    if not len(rows) and misfits == "refuse":
        raise no_key(source, plan, columns)
    codes = np.asarray(canonical.dictionary_encode().indices, dtype=np.int64)
    repeated, kept = _repeats(codes, plan.duplicates)
    refuse_repeated(rows[repeated] + 1, plan, columns, source)
    if not kept.any() and misfits == "refuse":
        raise all_repeated(source, plan, columns)
    values = canonical.filter(pa.array(kept)).to_pylist()
    names = tuple(key.name for key in plan.keys)
    return Keys(names, values, rows[kept], arrow.num_rows - len(rows), int(len(rows) - kept.sum()))


def normalised(
    cells: pa.Table | pa.RecordBatch,
    plan: KeyPlan,
    columns: Mapping[str, KeyColumn],
    numbers: NDArray[np.int64],
    source: str,
    misfits: Misfits,
) -> tuple[Any, NDArray[np.int64]]:
    """The keys of some rows, as bytes in Arrow, without rows that lack a part; and which rows those are.

    ``numbers`` are the numbers of the rows in the file, for errors.
    """
    parts, present = [], np.ones(cells.num_rows, dtype=bool)
    for key in plan.keys:
        held = columns[key.name]
        place = place_of(source, held.column, numbers, misfits)
        parts.append(key.normalise(cells[held.column], place, held.format))
        present &= np.array(pc.fill_null(pc.not_equal(parts[-1], ""), False))
        if place.unfit is not None:
            present &= ~place.unfit
    rows = np.flatnonzero(present)
    return _run_together([part.take(pa.array(rows)) for part in parts]), rows


def no_key(source: str, plan: KeyPlan, columns: Mapping[str, KeyColumn]) -> DataError:
    """The error for a table of which no row has a key."""
    return DataError(
        f"{source}: no row has a key, because a cell of {_named(plan, columns)} is missing in each; fill them [DA179]"
    )


def all_repeated(source: str, plan: KeyPlan, columns: Mapping[str, KeyColumn]) -> DataError:
    """The error for a table of which no row is left without those whose keys are repeated."""
    named = _named(plan, columns)
    return DataError(
        f'{source}: no row is left, because every key in {named} is repeated; set duplicates = "first" [DA180]'
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
            f"{source}: {row_numbers(numbers, count)}: the key in {_named(plan, columns)} occurs more than once; keep "
            'one row for each person, or set duplicates to "first" or "drop" [DA181]'
        )


def _named(plan: KeyPlan, columns: Mapping[str, KeyColumn]) -> str:
    return listed(columns[key.name].column for key in plan.keys)


def _run_together(parts: Sequence[Any]) -> Any:
    """The parts of each row, joined, each after its length, so that different lists of parts give different bytes."""
    pieces = []
    for part in parts:
        cells = part.cast(pa.large_binary())
        lengths = np.array(pc.binary_length(cells), dtype="<u4")
        fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_LENGTH.size), len(cells), [None, pa.py_buffer(lengths)])
        pieces += [fixed.cast(pa.large_binary()), cells]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))


def _repeats(codes: NDArray[np.int64], rule: Duplicates) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Two masks: the keys that occur more than once, and the keys that are kept."""
    repeated = np.bincount(codes)[codes] > 1
    kept = ~repeated
    if rule == "first":
        kept[np.unique(codes, return_index=True)[1]] = True
    return repeated, kept


def _cut(part: str) -> str:
    return part if len(part) <= _SHOWN_CHARACTERS else part[: _SHOWN_CHARACTERS - 1] + "…"
