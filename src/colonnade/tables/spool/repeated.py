"""Keys that occur more than once in a table, looked for in some buckets of keys at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.tables.encode import Report
from colonnade.tables.keys import KeyPlan
from colonnade.tables.spool.chores import Chore
from colonnade.tables.spool.copying import BUCKETS, Copied, copied_keys
from colonnade.tables.spool.partitions import readable
from colonnade.tables.spool.room import whole
from colonnade.tables.wording import SHOWN

_ROWS = 1 << 20
"""So many keys at a time, about."""
_PAIR = np.dtype([("first", np.uint64), ("second", np.uint64)])


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
class Seek(Chore):
    """The chore: look for repeated keys in these buckets."""

    folder: Path
    plan: KeyPlan
    pieces: tuple[Copied, ...]
    buckets: range
    number: int

    def done(self) -> Repeated:
        """Look, and write down which rows are left out."""
        maybe = _several(prints[0].copy() for prints, _ in self._keys())
        often = _several(pairs for pairs, _ in self._pairs(maybe)) if len(maybe) else maybe
        if not len(often):
            return Repeated(self.number, 0, (), 0)
        met, count, dropped, first = np.zeros(len(often), bool), 0, 0, np.empty(0, np.int64)
        with whole(self.folder, dropped_name(self.number)) as file:
            # All rows of one key come in the order of the table, and all rows of a run after those of the runs before.
            for pairs, rows in self._pairs(maybe):
                places, repeated = _among(often, pairs)
                places, numbers = places[repeated], rows[repeated]
                gone = numbers[self._left_out(places, met)]
                file.write(np.sort(gone).tobytes())
                count, dropped = count + len(numbers), dropped + len(gone)
                first = np.sort(np.concatenate([first, numbers]))[:SHOWN]
        return Repeated(self.number, count, tuple(first.tolist()), dropped)

    def _keys(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        """Fingerprints and rows, run by run."""
        for piece, start in zip(self.pieces, starts(self.pieces), strict=True):
            for numbers in copied_keys(self.folder, piece, self.buckets):
                yield numbers[:2], numbers[2].astype(np.int64) + start

    def _pairs(self, maybe: NDArray[np.uint64]) -> Iterator[tuple[NDArray[Any], NDArray[np.int64]]]:
        """The same, each fingerprint as one number, of keys whose fingerprint begins with one of these."""
        for prints, rows in self._keys():
            _, some = _among(maybe, prints[0])
            yield np.ascontiguousarray(prints[:, some].T).view(_PAIR).reshape(-1), rows[some]

    def _left_out(self, places: NDArray[np.int64], met: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which rows are not kept, of some whose keys are at these places; ``met`` notes the keys."""
        found = np.ones(len(places), bool)
        if self.plan.duplicates == "first":
            keys, firsts = np.unique(places, return_index=True)
            found[firsts[~met[keys]]] = False
            met[keys] = True
        return found


def _several(runs: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """What is there more than once, in order.

    Meanwhile everything is held twice at most: very many rows may have the same key, such as one that stands for none.
    """
    held, size, most = list[NDArray[Any]](), 0, 2 * _ROWS
    for run in runs:
        held.append(run)
        size += len(run)
        if size > most:
            held = [_twice_at_most(held)]
            size = len(held[0])
            most = max(most, 2 * size)
    ordered = _twice_at_most(held)
    found: NDArray[Any] = ordered[1:][ordered[1:] == ordered[:-1]]
    return found


def _among(ordered: NDArray[Any], some: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Where some are in what is in order and not empty, and which of them are there."""
    places = np.minimum(np.searchsorted(ordered, some), len(ordered) - 1)
    return places, ordered[places] == some


def _twice_at_most(held: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """All of it in order, and nothing more than twice."""
    ordered = np.sort(np.concatenate(held)) if held else np.empty(0, np.uint64)
    kept = np.ones(len(ordered), bool)
    kept[2:] = ordered[2:] != ordered[:-2]
    return ordered[kept]


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
        with readable(folder):
            rows = np.memmap(folder / dropped_name(number), np.int64, "r")
        low, high = np.searchsorted(rows, [first, last])
        found.append(np.array(rows[low:high]))
    return np.sort(np.concatenate(found))


def dropped_name(number: int) -> str:
    """The file of rows that are left out."""
    return f"dropped-{number:06d}"
