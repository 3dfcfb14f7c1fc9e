"""Keys that occur more than once in a table, looked for in some buckets of keys at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from colonnade.tables.encode import Report
from colonnade.tables.keys import KeyPlan, left_out
from colonnade.tables.spool.copying import BUCKETS, Copied, copied_keys
from colonnade.tables.spool.room import whole
from colonnade.tables.wording import SHOWN

_ROWS = 1 << 20
"""So many keys at a time, about."""


@dataclass(frozen=True)
class Repeated:
    """What was found in some buckets."""

    number: int
    count: int
    """How many rows have a key that other rows have too."""
    first: tuple[int, ...]
    """The first of them, from 0."""
    dropped: int
    """How many of them are left out; a file says which."""


@dataclass(frozen=True)
class Seek:
    """The chore: look for repeated keys in these buckets."""

    folder: Path
    plan: KeyPlan
    pieces: tuple[Copied, ...]
    buckets: range
    number: int

    def after(self, before: Sequence[Repeated]) -> Seek:
        """The same."""
        return self

    def done(self) -> Repeated:
        """Look, and write down which rows are left out."""
        found = [np.empty((3, 0), np.uint64)]
        for piece, start in zip(self.pieces, starts(self.pieces), strict=True):
            for numbers in copied_keys(self.folder, piece, self.buckets):
                numbers[2] += np.uint64(start)
                found.append(numbers)
        prints = np.concatenate(found, axis=1)
        prints = prints[:, _maybe_repeated(prints[0])]
        # All rows of one key are in the order of the table.
        codes = np.unique(prints[:2].T, axis=0, return_inverse=True)[1].reshape(-1)
        repeated, dropped = left_out(codes, self.plan)
        numbers = prints[2].astype(np.int64)
        if len(dropped):
            with whole(self.folder, dropped_name(self.number)) as file:
                file.write(np.sort(numbers[dropped]).tobytes())
        first = np.sort(numbers[repeated])[:SHOWN]
        return Repeated(self.number, len(repeated), tuple(first.tolist()), len(dropped))


def _maybe_repeated(prints: NDArray[np.uint64]) -> NDArray[np.bool_]:
    ordered = np.sort(prints)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    return np.isin(prints, twice) if len(twice) else np.zeros(len(prints), dtype=bool)


def seeking(folder: Path, plan: KeyPlan, pieces: Sequence[Copied]) -> list[Seek]:
    """Chores that look at all keys, at a bounded number of them each."""
    keys = sum(piece.keys for piece in pieces)
    count = min(BUCKETS, -(-keys // _ROWS))
    edges = [place * BUCKETS // count for place in range(count + 1)] if count else []
    # What a report says of cells is no matter here.
    short = tuple(replace(each, report=Report()) for each in pieces)
    return [Seek(folder, plan, short, range(*edge), number) for number, edge in enumerate(pairwise(edges))]


def starts(pieces: Sequence[Copied]) -> list[int]:
    """How many rows come before each piece."""
    return [0, *accumulate(piece.rows for piece in pieces)][: len(pieces)]


def dropped_rows(folder: Path, numbers: Sequence[int], first: int, last: int) -> NDArray[np.int64]:
    """Which of the rows from ``first`` to before ``last`` are left out, by what these chores wrote down."""
    found = [np.empty(0, np.int64)]
    for number in numbers:
        rows = np.memmap(folder / dropped_name(number), np.int64, "r")
        low, high = np.searchsorted(rows, [first, last])
        found.append(np.array(rows[low:high]))
    return np.sort(np.concatenate(found))


def dropped_name(number: int) -> str:
    """The file of rows that are left out."""
    return f"dropped-{number:06d}"
