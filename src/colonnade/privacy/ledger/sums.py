"""What each entry cost whom, kept in the ledger: a reservation adds numbers up instead of composing everything anew.

A row of ``sums`` holds the costs (``costs.py``) of one entry: for somebody outside, for the analyst, as a bound for
every group, and for the groups about which a cap once asked. It is sealed with a hash of itself and of the change by
which the entry was reserved. Rows are a cache: one that is missing or altered is not used but made anew from the entry.
A seal is no signature: what somebody altered and sealed anew is used, if it can be read, and shows in ``verify``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

import numpy as np

from colonnade.disk import reading
from colonnade.privacy.ledger.caps import Period, dates, limits, since
from colonnade.privacy.ledger.costs import SIZE, Numbers, costs, keeps
from colonnade.privacy.ledger.early import read_time
from colonnade.privacy.ledger.file import texts_only
from colonnade.privacy.ledger.groups import ALL_OTHERS, ANALYST, MOST_NAMED, Across, Sight, seen_by, seen_by_anybody
from colonnade.privacy.ledger.people import People, Told, as_observer, read_told
from colonnade.privacy.observers import EVERYONE, OTHERS, Adjacency, Budget, Trust

BY_ANALYST = "analyst"
ANYBODY = "anybody"
"""In place of a group: at least the costs of each group within the threshold."""
OUTSIDE = json.dumps(["", []])
_MOST_MET = 40
"""With more parties than these, pairs are told apart by their events, so there are no sums of single groups."""
_ENTRIES = (
    "SELECT e.id, e.created, e.trust, h.hash, p.known, s.content, s.seal, "
    "EXISTS (SELECT 1 FROM changes r WHERE r.entry = e.id AND r.state = 'released') FROM entries e "
    "JOIN changes c ON c.entry = e.id AND c.state = 'reserved' JOIN chain h ON h.change = c.id "
    "LEFT JOIN people p ON p.entry = e.id LEFT JOIN sums s ON s.first = e.id AND s.last = e.id ORDER BY e.id"
)
_Arrangement = tuple[str, str | None]
"""The texts of who is trusted and who took part."""


@dataclass
class Row:
    """One entry that counts, and what it cost each group of which that is known."""

    number: int
    link: str
    texts: _Arrangement
    known: dict[str, Numbers]
    changed: bool = False

    @classmethod
    def read(cls, number: int, link: str, texts: _Arrangement, content: str | None, seal: str | None) -> Row:
        """The row as it is stored; without any costs if it is not whole."""
        row = cls(number, link, texts, {})
        try:
            if seal is not None and seal == row.seal(content or ""):
                value = reading.json_of(content or "")
                numbers = np.frombuffer(base64.b64decode(value["numbers"]), dtype=np.float64).reshape(-1, SIZE)
                names = {*silent(*texts).names}
                groups = [key for key in value["groups"] if key not in (BY_ANALYST, ANYBODY)]
                if np.all(numbers > -np.inf) and all(names.issuperset(_group(key)[1]) for key in groups):
                    row.known = dict(zip(value["groups"], numbers, strict=True))  # a cost may be infinite, or a number
        except (ValueError, TypeError, KeyError, AttributeError, binascii.Error, reading.Malformed):
            pass
        return row

    def seal(self, content: str) -> str:
        """The seal of this content."""
        return hashlib.sha256(f"{self.number} {self.link} {content}".encode()).hexdigest()

    def content(self) -> str:
        """The text that is stored and sealed."""
        numbers = np.concatenate([np.zeros(0), *self.known.values()])
        return json.dumps({"groups": list(self.known), "numbers": base64.b64encode(numbers.tobytes()).decode()})


class Sums:
    """The costs of all entries that count; of a file of an earlier version, none are stored."""

    def __init__(self, base: sqlite3.Connection, now: datetime) -> None:
        self._base = base
        self.stored = base.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sums'").fetchone() is not None
        found = base.execute(_ENTRIES).fetchall() if self.stored else []
        when = dates([(read_time(*texts_only(entry[:2])), bool(entry[-1])) for entry in found], now)
        self.rows = [
            (at, Row.read(number, link, (trust, people), content, seal))
            for at, (number, _, trust, link, people, content, seal, released) in zip(when, found, strict=True)
            if not released
        ]
        self._own: dict[str, Numbers] = {}

    def keep(self, told: Told, caps: Sequence[Budget], periods: Sequence[Period], owner: str, now: datetime) -> bool:
        """Whether a study surely keeps all caps; false does not mean that it exceeds one."""
        own = told.trust.to_json(), told.people.to_json()
        arrangements = list(dict.fromkeys([own, *(row.texts for _, row in self.rows)]))
        asked = _Asked(self, Sight([silent(*texts) for texts in arrangements], owner, _MOST_MET), arrangements, told)
        return self.stored and all(
            asked.keep(limit.cap, [row for at, row in self.rows if limit.days is None or at > since(limit.days, now)])
            for limit in limits(caps, periods)
        )

    def cost(self, row: Row, key: str) -> Numbers:
        """What an entry cost a group; made from its events where it is not known yet."""
        if key not in row.known:
            events = self._base.execute("SELECT events FROM entries WHERE id = ?", (row.number,)).fetchone()[0]
            row.known[key], row.changed = costs_of(read_told(events, *row.texts), key), True
        return row.known[key]

    def cost_of_new(self, told: Told, key: str) -> Numbers:
        """What a study that is asked for would cost a group."""
        if key not in self._own:
            self._own[key] = costs_of(told, key)
        return self._own[key]

    def store(self, number: int, told: Told) -> None:
        """Keep what is known now, also of an entry that was just reserved; whoever comes later was outside of it."""
        link = self._base.execute(
            "SELECT h.hash FROM chain h JOIN changes c ON c.id = h.change WHERE c.entry = ? AND c.state = 'reserved'",
            (number,),
        ).fetchone()[0]
        known = {key: self.cost_of_new(told, key) for key in (BY_ANALYST, OUTSIDE, ANYBODY, *self._own)}
        new = Row(number, link, (told.trust.to_json(), told.people.to_json()), known, changed=True)
        for row in (*(row for _, row in self.rows if row.changed), new):
            content = row.content()
            stored = (row.number, row.number, content, row.seal(content))
            self._base.execute("INSERT OR REPLACE INTO sums VALUES (?, ?, ?, ?)", stored)

    def first_wrong(self) -> int | None:
        """The number of an entry whose costs are sealed and yet do not follow from it."""
        for _, row in self.rows:
            fresh = Row(row.number, row.link, row.texts, {})
            if not all(np.allclose(self.cost(fresh, key), held, rtol=1e-9) for key, held in row.known.items()):
                return row.number
        return None


class _Asked:
    """Looks whether caps are kept by everybody of whom they speak; the first arrangement is that of the new study."""

    def __init__(self, sums: Sums, sight: Sight, arrangements: Sequence[_Arrangement], told: Told) -> None:
        self._sums, self._sight, self._arrangements, self._told = sums, sight, arrangements, told

    def keep(self, cap: Budget, counted: Sequence[Row]) -> bool:
        """Whether a cap is seen to be kept, after these entries and the new study."""
        if cap.named or cap.selector == OTHERS:
            return self._keep(self._sight.capped(cap), cap, counted)
        if cap.selector == EVERYONE and not self._keep([ANALYST], cap, counted):
            return False
        bound = self._sum([ANYBODY] * len(self._arrangements), counted)
        if bound is not None and keeps(cap, bound, Adjacency.REPLACE):
            return True
        if not self._can_tell_apart():
            return False
        return self._keep([who for who in self._sight.capped(cap) if who is not ANALYST], cap, counted)

    def _can_tell_apart(self) -> bool:
        """Whether groups can be listed without events; of many, one stands for all that are alike in every event."""
        large = any(len(told.trust.owners) > MOST_NAMED for told in self._sight.studies)
        return not large and len(self._sight.everybody.somebodies) <= _MOST_MET

    def _keep(self, some: Sequence[Across], cap: Budget, counted: Sequence[Row]) -> bool:
        for who in some:
            relation = self._relation(who, counted)
            total = self._sum(self._keys(who, relation), counted)
            if total is None or not keeps(cap, total, relation):
                return False
        return True

    def _relation(self, who: Across, counted: Sequence[Row]) -> Adjacency:
        there = {row.texts for row in counted} | {self._arrangements[0]}
        numbers = [number for number, texts in enumerate(self._arrangements) if texts in there]
        return self._sight.relation(who, numbers)

    def _keys(self, who: Across, relation: Adjacency) -> list[str | None]:
        """The group that an observer is in each arrangement; ``None`` if it is above the threshold, and named."""
        found: list[str | None] = []
        for number, told in enumerate(self._sight.studies):
            names = self._sight.local(number, who)
            if names is None:
                found.append(BY_ANALYST if relation is Adjacency.ADD_REMOVE else OUTSIDE)
            elif not who.held and told.trust.broken(as_observer(names)) is not None:
                found.append(None)
            else:
                found.append(json.dumps(["others" if who.others else "", sorted(names)]))
        return found

    def _sum(self, keys: Sequence[str | None], counted: Iterable[Row]) -> Numbers | None:
        """The costs of somebody who is one group in each arrangement; ``None`` if the study promises nothing then."""
        of, found = dict(zip(self._arrangements, keys, strict=True)), []
        for row in counted:
            if (key := of[row.texts]) is None:
                return None
            found.append(self._sums.cost(row, key))
        if (own := keys[0]) is None:
            return None
        return np.asarray(np.sum([*found, self._sums.cost_of_new(self._told, own)], axis=0))


def costs_of(told: Told, key: str) -> Numbers:
    """What a study tells a group."""
    if key == ANYBODY:
        return costs(seen_by_anybody(told))
    if key == BY_ANALYST:
        return costs(seen_by(told, None, ANALYST, Adjacency.ADD_REMOVE))
    others, names = _group(key)
    who = ALL_OTHERS if others else Across("", frozenset(), held=True)
    return costs(seen_by(told, names, who, Adjacency.REPLACE))


@lru_cache(maxsize=4096)
def _group(key: str) -> tuple[bool, frozenset[str]]:
    """Whether a key is about all others together, and the names of a group."""
    others, names = reading.json_of(key)
    if others not in ("", "others") or not isinstance(names, list):
        raise ValueError("no key of a group [VA115]")
    return bool(others), frozenset(names)


@lru_cache(maxsize=1024)
def silent(trust: str, people: str | None) -> Told:
    """A study of this arrangement in which nothing was told."""
    return Told((), Trust.from_json(trust), People.from_json(people))
