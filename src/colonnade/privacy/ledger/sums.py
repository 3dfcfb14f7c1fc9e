"""What was composed before, kept in the ledger: a reservation adds to sums instead of composing everything anew.

A row of ``sums`` holds the costs (``costs.py``) of the entries from ``first`` to ``last``, for every arrangement of
participants: those of somebody outside, those that bound every group, and those of the groups for which that was not
enough. There is a row for each of the newest entries, one for each block of older ones (periods need these), and one,
with ``first`` 0, for all blocks together. Each is sealed with a hash of itself and of the chain where it ends. Rows are
a cache: one that is missing, altered, or older than a release is not used but made anew from the entries, and the whole
chain is checked then. A seal is no signature: what somebody altered and sealed anew is used, if it can be read, and
shows in ``verify``.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from colonnade.disk import reading
from colonnade.errors import PrivacyError
from colonnade.privacy.ledger.caps import Period, limits, since
from colonnade.privacy.ledger.costs import Numbers, keeps
from colonnade.privacy.ledger.groups import ANALYST, MOST_NAMED, Across, Sight
from colonnade.privacy.ledger.people import Told, as_observer
from colonnade.privacy.ledger.ranges import (
    ANYBODY,
    BY_ANALYST,
    OUTSIDE,
    Described,
    Place,
    Range,
    costs_of,
    described,
    silent,
    single,
)
from colonnade.privacy.observers import EVERYONE, OTHERS, Adjacency, Budget

BLOCK = 16
NEWEST = 32
"""From so many entries on that are summed one by one, the oldest of them become a block."""
_MOST_MET = 40
"""With more parties than these, pairs are told apart by their events, so there are no sums of single groups."""
_TICK = 0.002
"""Times are written in whole milliseconds; rows hold them more exactly."""
Dated = tuple[int, datetime, Told | None]
"""The number of an entry, its time, and what it told; ``None`` if it was released."""


@dataclass
class Kept:
    """What the sums say about a study that is asked for."""

    surely: bool
    """Whether every cap is seen to be kept."""
    complete: bool
    """Whether the sums were all there; otherwise they are to be made anew."""
    needed: dict[str, set[str]]
    """The groups of which sums are to be kept, for each arrangement."""


class Sums:
    """The sums of a ledger as they are stored; of an earlier version of the file, none."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self._base = base
        self.stored = base.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sums'").fetchone() is not None
        rows = base.execute("SELECT entry FROM changes WHERE state = 'released' ORDER BY entry") if self.stored else ()
        self._released = [int(row[0]) for row in rows]
        older = self._read("first = 0")
        self.older = older[0] if len(older) == 1 and self._is_current(older[0], 1) else None
        self.end = self.older.last if self.older else 0
        self._windows: dict[float, list[Range] | None] = {}
        self.newest = {row.last: row for row in self._read("first = last AND first > ?", self.end)}

    @property
    def change(self) -> int:
        """The last change that the sums of older entries rest on; the chain before it need not be read again."""
        return self.older.change if self.older else 0

    def ask(self, told: Told, caps: Sequence[Budget], periods: Sequence[Period], owner: str, now: datetime) -> Kept:
        """Whether a study surely keeps all caps."""
        answer = Kept(surely=False, complete=False, needed={})
        if not self.stored or (parts := self._all()) is None:
            return answer
        digest, texts = described(told)
        arrangements = {digest: texts}
        for part in parts:
            arrangements |= part.arrangements
            answer.needed.setdefault(digest, set()).update(key for place, key in part.sums if place == digest)
        asked = _Asked(_sight(arrangements, owner), list(arrangements), told, digest, answer)
        answer.complete = answer.surely = True
        for limit in limits(caps, periods):
            counted = parts if limit.days is None else self._since(since(limit.days, now).timestamp(), parts)
            if counted is None:
                answer.complete = answer.surely = False
            else:
                asked.look(limit.cap, counted, whole=limit.days is None)
        return answer

    def _all(self) -> list[Range] | None:
        """Ranges that cover every counted entry once; ``None`` if there are none."""
        released = set(self._released)
        wanted = self._base.execute("SELECT id FROM entries WHERE id > ?", (self.end,))
        numbers = [int(row[0]) for row in wanted if row[0] not in released]
        if any(number not in self.newest for number in numbers):
            return None
        return [*([self.older] if self.older else []), *(self.newest[number] for number in numbers)]

    def _since(self, start: float, parts: Sequence[Range]) -> list[Range] | None:
        """Ranges that cover at least what was reserved since; ``None`` if a block is missing or no longer true."""
        if start in self._windows:
            return self._windows[start]
        self._windows[start] = found = self._found_since(start, parts)
        return found

    def _found_since(self, start: float, parts: Sequence[Range]) -> list[Range] | None:
        found = [part for part in parts if part is not self.older and part.latest > start]
        if self.older is None or self.older.latest <= start:
            return found
        if any(row.latest > start and self._is_current(row, 1) for row in self._read("first = 1 AND last = ?", BLOCK)):
            return list(parts)  # times never fall, so everything is in the window
        place = self.end
        while place:
            rows = self._read("first = ? AND last = ? AND first < last", place - BLOCK + 1, place)
            if len(rows) != 1 or not self._is_current(rows[0], rows[0].first):
                return None
            if rows[0].latest <= start:
                break
            found += rows
            place -= BLOCK
        return found

    # --- the rows

    def _read(self, which: str, *given: int) -> list[Range]:
        """The rows that are whole: their seal fits them and the chain as it is."""
        if not self.stored:
            return []
        found = []
        query = f"SELECT first, last, content, seal FROM sums WHERE {which} ORDER BY last"  # noqa: S608 - fixed words
        for first, last, content, seal in self._base.execute(query, given):
            try:
                row = Range.of(first, last, content)
                if seal == self._seal(first, last, row.change, content):
                    found.append(row)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, PrivacyError, reading.Malformed):
                continue
        return found

    def _seal(self, first: int, last: int, change: int, content: str) -> str:
        found = self._base.execute(
            "SELECT h.hash FROM chain h JOIN changes c ON c.id = h.change "
            "WHERE h.change = ? AND c.entry = ? AND c.state = 'reserved'",
            (change, last),
        ).fetchone()
        if found is None:
            raise ValueError("a sum that rests on a change that did not reserve its last entry [VA116]")
        return hashlib.sha256(f"{first} {last} {found} {content}".encode()).hexdigest()

    def _write(self, row: Range) -> None:
        content = row.content()
        seal = self._seal(row.first, row.last, row.change, content)
        self._base.execute("INSERT OR REPLACE INTO sums VALUES (?, ?, ?, ?)", (row.first, row.last, content, seal))

    def _is_current(self, row: Range, first: int) -> bool:
        told = bool(self._counted(first, row.last))
        return row.released == self._releases(first, row.last) and bool(row.arrangements) == told

    def _releases(self, first: int, last: int) -> str:
        """A hash of which entries of a range were released."""
        return hashlib.sha256(str([n for n in self._released if first <= n <= last]).encode()).hexdigest()

    # --- after a reservation

    def add(self, number: int, when: datetime, told: Told, needed: Mapping[str, set[str]]) -> None:
        """Store the costs of an entry that was just reserved; of many such rows, join the oldest to a block."""
        before = max([self.older.latest if self.older else 0.0, *(row.latest for row in self.newest.values())])
        row = single(number, self._reserved(number), max(before, when.timestamp()), told, needed)
        self._write(row)
        self.newest[number] = row
        if number - self.end >= NEWEST:
            self._join([self.newest.pop(n) for n in self._counted(self.end + 1, self.end + BLOCK)])

    def _reserved(self, number: int) -> int:
        """The change by which an entry was reserved."""
        found = self._base.execute("SELECT id FROM changes WHERE entry = ? AND state = 'reserved'", (number,))
        return int(found.fetchone()[0])

    def _counted(self, first: int, last: int) -> list[int]:
        released = set(self._released)
        return [number for number in range(first, last + 1) if number not in released]

    def _join(self, parts: Sequence[Range]) -> None:
        """Make a block of the entries that follow the older ones, and count it among them."""
        last = self.end + BLOCK
        latest = max([self.older.latest if self.older else 0.0, *(part.latest for part in parts)])
        empty = Range(last, last, self._reserved(last), latest, "")
        block = Range.joined([*parts, empty], self.end + 1, last, self._releases(self.end + 1, last))
        older = [self.older] if self.older else []
        self.older = Range.joined([*older, block], 0, last, self._releases(1, last))
        self._base.execute("DELETE FROM sums WHERE first = 0 OR (first = last AND last <= ?)", (last,))
        self._write(block)
        self._write(self.older)
        self.end = last

    def rebuild(self, entries: Sequence[Dated], wanted: Mapping[str, set[str]]) -> None:
        """Make all rows anew from the entries, for the groups that are wanted and for those known before."""
        needed = _by_arrangement(place for row in self._read("TRUE") for place in row.sums)
        for digest, keys in wanted.items():
            needed.setdefault(digest, set()).update(keys)
        self._base.execute("DELETE FROM sums")
        self.older, self.end, self.newest, self._windows, latest = None, 0, {}, {}, 0.0
        for number, when, told in entries:
            latest = max(latest, when.timestamp())
            if told is not None:
                self.newest[number] = single(number, self._reserved(number), latest, told, needed)
            if number - self.end >= NEWEST:
                self._join([self.newest.pop(n) for n in self._counted(self.end + 1, self.end + BLOCK)])
        for row in self.newest.values():
            self._write(row)

    def first_wrong(self, entries: Sequence[Dated]) -> Range | None:
        """A row that is sealed and current and yet does not follow from the entries."""
        rows = self._read("TRUE")
        keys = _by_arrangement(place for row in rows for place in row.sums)
        parts = {number: single(number, 0, 0.0, told, keys) for number, _, told in entries if told is not None}
        times = _latest(entries)
        for row in rows:
            first = max(row.first, 1)
            held = [parts[number] for number in range(first, row.last + 1) if number in parts]
            if (first < row.last and not self._is_current(row, first)) or (first == row.last and not held):
                continue  # something was released since, and this row will not be used
            whole = Range.joined([Range(0, 0, 0, 0.0, ""), *held], first, row.last, "")
            same = whole.arrangements == row.arrangements and set(row.sums) <= set(whole.sums)
            least, most = times[row.last]
            same &= least <= row.latest <= most + _TICK
            if not same or not all(np.allclose(row.sums[one], whole.sums[one], rtol=1e-9) for one in row.sums):
                return row
        return None


class _Asked:
    """Looks whether caps are kept, and notes which groups they ask about."""

    def __init__(self, sight: Sight, digests: Sequence[str], told: Told, own: str, answer: Kept) -> None:
        self._sight, self._digests, self._told, self._own, self._answer = sight, digests, told, own, answer
        self._new: dict[str, Numbers] = {}
        self._missing = False
        """Whether a group had no sums of its own, so that it was counted as anybody."""

    def look(self, cap: Budget, counted: Sequence[Range], *, whole: bool) -> None:
        """Look at everybody whom a cap speaks of; whoever cannot be seen to keep it is left to the accountant."""
        self._missing = False
        if not self._is_kept(cap, counted, whole=whole):
            self._answer.surely = False
            self._answer.complete &= not self._missing

    def _is_kept(self, cap: Budget, counted: Sequence[Range], *, whole: bool) -> bool:
        if cap.named or cap.selector == OTHERS:
            return self._keep(self._sight.capped(cap), cap, counted, whole=whole)
        if cap.selector == EVERYONE and not self._keep([ANALYST], cap, counted, whole=whole):
            return False
        bound = self._sum(dict.fromkeys(self._digests, ANYBODY), counted)
        if bound is not None and keeps(cap, bound, Adjacency.REPLACE):
            return True
        if not _can_tell_apart(self._sight):
            return False
        groups = [who for who in self._sight.capped(cap) if who is not ANALYST]
        return self._keep(groups, cap, counted, whole=whole)

    def _keep(self, some: Sequence[Across], cap: Budget, counted: Sequence[Range], *, whole: bool) -> bool:
        totals, kept = [], True
        for who in some:
            relation = self._relation(who, counted)
            total = self._total(who, counted, relation)
            if total is None or (who is ANALYST and not whole and relation is not self._relation(who, ())):
                kept = False
            elif who is ANALYST:
                kept &= keeps(cap, total, relation)
            else:
                totals.append(total)
        if kept and totals and not keeps(cap, np.max(totals, axis=0), Adjacency.REPLACE):
            return all(keeps(cap, total, Adjacency.REPLACE) for total in totals)
        return kept

    def _relation(self, who: Across, counted: Sequence[Range]) -> Adjacency:
        there = {digest for part in counted for digest in part.arrangements} | {self._own}
        seated = (self._sight.studies[n].trust.committee for n, digest in enumerate(self._digests) if digest in there)
        return Adjacency.ADD_REMOVE if who is ANALYST and all(seated) else Adjacency.REPLACE

    def _total(self, who: Across, counted: Sequence[Range], relation: Adjacency) -> Numbers | None:
        keys = _keys(self._sight, self._digests, who, relation)
        for digest, key in keys.items():
            if key is not None:
                self._answer.needed.setdefault(digest, set()).add(key)
        return self._sum(keys, counted)

    def _sum(self, keys: Mapping[str, str | None], counted: Sequence[Range]) -> Numbers | None:
        """The costs of somebody who is one group in each arrangement; ``None`` if they are not known."""
        found = []
        for part in counted:
            for digest in part.arrangements:
                if (key := keys[digest]) is None:
                    return None
                if (digest, key) not in part.sums:
                    self._missing = True
                    key = key if key == BY_ANALYST else ANYBODY
                if (digest, key) not in part.sums:
                    return None
                found.append(part.sums[digest, key])
        if (own := keys[self._own]) is None:
            return None
        if own not in self._new:
            self._new[own] = costs_of(self._told, own)
        return np.asarray(np.sum([*found, self._new[own]], axis=0))


def _keys(sight: Sight, digests: Sequence[str], who: Across, relation: Adjacency) -> dict[str, str | None]:
    """The group that an observer is in each arrangement; ``None`` if it is above the threshold, and named as such."""
    found: dict[str, str | None] = {}
    for number, digest in enumerate(digests):
        names = sight.local(number, who)
        if names is None:
            found[digest] = BY_ANALYST if relation is Adjacency.ADD_REMOVE else OUTSIDE
        elif not who.held and sight.studies[number].trust.broken(as_observer(names)) is not None:
            found[digest] = None
        else:
            found[digest] = json.dumps(["others" if who.others else "", sorted(names)])
    return found


def _by_arrangement(places: Iterable[Place]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for digest, key in places:
        found.setdefault(digest, set()).add(key)
    return found


def _latest(entries: Sequence[Dated]) -> dict[int, tuple[float, float]]:
    """For each entry the latest time up to it of those that count, and of all, as rows may have been written."""
    counted, written, found = -math.inf, 0.0, {}
    for number, when, told in entries:
        written = max(written, when.timestamp())
        counted = counted if told is None else max(counted, when.timestamp())
        found[number] = (counted, written)
    return found


def _sight(arrangements: Mapping[str, Described], owner: str) -> Sight:
    """Everybody in these arrangements."""
    return Sight([silent(*texts) for texts in arrangements.values()], owner, most_named=_MOST_MET)


def _can_tell_apart(sight: Sight) -> bool:
    """Whether groups can be listed without events; of many, one stands for all that are alike in every event."""
    large = any(len(told.trust.owners) > MOST_NAMED for told in sight.studies)
    return not large and len(sight.everybody.somebodies) <= _MOST_MET
