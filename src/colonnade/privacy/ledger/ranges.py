"""The costs of some entries of a ledger that follow each other, as a row that is stored, read back and joined."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from colonnade.disk import reading
from colonnade.privacy.ledger.costs import SIZE, Numbers, costs
from colonnade.privacy.ledger.groups import ALL_OTHERS, ANALYST, Across, seen_by, seen_by_anybody
from colonnade.privacy.ledger.people import People, Told
from colonnade.privacy.observers import Adjacency, Trust

BY_ANALYST = "analyst"
ANYBODY = "anybody"
"""In place of a group: at least the costs of each group within the threshold."""
OUTSIDE = json.dumps(["", []])
Place = tuple[str, str]
"""An arrangement of participants, by its digest, and a group of them."""
Described = tuple[str, str | None]
"""The texts of who is trusted and who took part."""


@dataclass
class Range:
    """The costs of some entries that follow each other; ``latest`` is the latest time of them and all before."""

    first: int
    last: int
    change: int
    latest: float
    released: str
    arrangements: dict[str, Described] = field(default_factory=dict)
    sums: dict[Place, Numbers] = field(default_factory=dict)

    def content(self) -> str:
        """The text that is stored and sealed."""
        numbers = np.concatenate([np.zeros(0), *self.sums.values()])
        return json.dumps(
            {"change": self.change, "latest": self.latest, "released": self.released, "places": list(self.sums),
             "arrangements": self.arrangements, "numbers": base64.b64encode(numbers.tobytes()).decode()}
        )  # fmt: skip

    @classmethod
    def of(cls, first: int, last: int, content: str) -> Range:
        """Read what :meth:`content` wrote; an error if it is anything else."""
        value = reading.json_of(content)
        numbers = np.frombuffer(base64.b64decode(value["numbers"]), dtype=np.float64).reshape(-1, SIZE)
        arrangements = {digest: (trust, people) for digest, (trust, people) in value["arrangements"].items()}
        members = {digest: {*silent(*texts).names} for digest, texts in arrangements.items()}
        places = [(digest, key) for digest, key in value["places"]]
        whole = cls(first, last, int(value["change"]), float(value["latest"]), value["released"], arrangements)
        whole.sums = dict(zip(places, numbers, strict=True))
        if not (np.isfinite(whole.latest) and np.all(numbers > -np.inf)):  # a cost may be infinite, but never no number
            raise ValueError("a sum that is no number [VA111]")
        if any(_digest(texts) != digest for digest, texts in arrangements.items()):
            raise ValueError("an arrangement under the name of another [VA112]")
        if first == last and len(arrangements) != 1:
            raise ValueError("an entry without its arrangement [VA113]")
        groups = [(digest, key) for digest, key in places if key not in (BY_ANALYST, ANYBODY)]
        if any(not members[digest].issuperset(_group(key)[1]) for digest, key in groups):
            raise ValueError("a group of others than those who took part [VA114]")
        return whole

    @classmethod
    def joined(cls, parts: Sequence[Range], first: int, last: int, released: str) -> Range:
        """Several ranges as one: of each arrangement, the groups that all of them know that have it."""
        newest = max(parts, key=lambda part: part.last)
        whole = cls(first, last, newest.change, max(part.latest for part in parts), released)
        for part in parts:
            whole.arrangements |= part.arrangements
        for digest in whole.arrangements:
            having = [part for part in parts if digest in part.arrangements]
            keys = set.intersection(*({key for one, key in part.sums if one == digest} for part in having))
            for key in sorted(keys):
                whole.sums[digest, key] = np.sum([part.sums[digest, key] for part in having], axis=0)
        return whole


def single(number: int, change: int, latest: float, told: Told, needed: Mapping[str, set[str]]) -> Range:
    """The costs of one entry."""
    digest, texts = described(told)
    keys = {BY_ANALYST, OUTSIDE, ANYBODY, *needed.get(digest, ())}  # whoever comes later was outside of this one
    sums = {(digest, key): costs_of(told, key) for key in sorted(keys)}
    return Range(number, number, change, latest, "", {digest: texts}, sums)


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


def described(told: Told) -> tuple[str, Described]:
    """An arrangement of participants: its digest, and its texts."""
    texts = (told.trust.to_json(), told.people.to_json())
    return _digest(texts), texts


@lru_cache(maxsize=1024)
def _digest(texts: Described) -> str:
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:32]


@lru_cache(maxsize=1024)
def silent(trust: str, people: str | None) -> Told:
    """A study of this arrangement in which nothing was told."""
    return Told((), Trust.from_json(trust), People.from_json(people))
