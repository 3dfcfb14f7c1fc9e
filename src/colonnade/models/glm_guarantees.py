"""What an exchange promises, by what is looked at: messages, kept weights, all channels, a release, a coalition."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

from colonnade.privacy import DiscreteGaussianRelease, Event, Observer, Statement, epsilon, views
from colonnade.privacy.events import innermost
from colonnade.privacy.statement import NO_GUARANTEE, PROVEN, rounded_up

JOINT = "post-processing"
EAVESDROPPER = "eavesdropper on every channel"
NOTHING = "nothing is released"
_WIDTH = 108


@dataclass(frozen=True)
class Guarantee:
    """One promise: whoever ``observer`` is, ``what`` it sees tells at most so much ``about`` that."""

    what: str
    observer: str
    about: str
    epsilon: float
    delta: float
    theorem: str
    status: str


@dataclass(frozen=True)
class Guarantees(Sequence[Guarantee]):
    """All promises of one exchange."""

    rows: tuple[Guarantee, ...]

    @classmethod
    def of(cls, statement: Statement) -> Guarantees:
        """Everything that the events of an exchange prove; the statement's own observers are among them."""
        return _guarantees(statement)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Guarantee]:
        return iter(self.rows)

    def __getitem__(self, place: Any) -> Any:
        return self.rows[place]

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain values for JSON; an infinite epsilon is ``null``."""
        return [asdict(row) | {"epsilon": None if math.isinf(row.epsilon) else row.epsilon} for row in self.rows]

    def __str__(self) -> str:
        heads = ("what is seen", "by whom", "tells about", "epsilon", "delta", "status")
        lines = [heads, *(_cells(row) for row in self.rows)]
        wide = [min(max(len(line[k]) for line in lines), _WIDTH // 3) for k in range(len(heads))]
        shown = ["  ".join(_fitted(cell, width) for cell, width in zip(line, wide, strict=True)) for line in lines]
        notes = [f"rests on: {text}" for text in dict.fromkeys(row.theorem for row in self.rows if row.theorem)]
        return "\n".join(line.rstrip() for line in [shown[0], "-" * len(shown[0]), *shown[1:], *notes])


def protection(statement: Statement) -> dict[str, float]:
    """What everything that leaves a party tells about its columns of one person, even if all of it were published."""
    owners = statement.trust.owners
    return {owner: _published(_about(statement, owner), statement) for owner in owners}


@lru_cache(maxsize=16)
def _guarantees(statement: Statement) -> Guarantees:
    rows: list[Guarantee] = []
    for owner in statement.trust.owners:
        rows += _of_party(statement, owner)
    told = [event for event in statement.events if not event.name.startswith("weights of ")]
    whole = "one whole person"
    rows.append(_proven(statement, "all messages", EAVESDROPPER, whole, told))
    for row in statement.rows:
        if row.observer == Observer.analyst():
            what = "all messages and released weights" if row.theorem else NOTHING
        else:
            what = "all that it receives"
        status = NO_GUARANTEE if math.isinf(row.epsilon) else row.status
        rows.append(Guarantee(what, row.who, row.adjacency.value, row.epsilon, row.delta, row.theorem, status))
    return Guarantees(tuple(rows))


def _of_party(statement: Statement, owner: str) -> Iterator[Guarantee]:
    """Its messages; what others make of them; and where weights are released, those with the messages."""
    about = f"{owner}'s columns of one person"
    events = _about(statement, owner)
    messages = [event for event in events if not event.name.startswith("weights of ")]
    row = _proven(statement, f"messages of {owner}", f"anybody but {owner}", about, messages)
    yield row
    others = "kept weights of all others"
    yield replace(row, what=others, observer=f"all but {owner}, together", theorem=f"{row.theorem}, {JOINT}")
    if len(events) > len(messages):
        what = f"messages and released weights of {owner}"
        yield _proven(statement, what, "anybody, the analyst too", about, events)


def _proven(statement: Statement, what: str, observer: str, about: str, events: Sequence[Event]) -> Guarantee:
    found = _published(events, statement)
    theorems = sorted({getattr(innermost(event), "theorem", "") for event in events} - {""})
    status = NO_GUARANTEE if math.isinf(found) else PROVEN
    return Guarantee(what, observer, about, found, statement.delta, ", ".join(theorems), status)


def _about(statement: Statement, owner: str) -> list[Event]:
    return [event for event in statement.events if getattr(innermost(event), "about", ()) == (owner,)]


def _published(events: Sequence[Event], statement: Statement) -> float:
    """What somebody without columns or noise learns who sees these events, whoever they were meant for."""
    seen = views([_open_to_all(event) for event in events], Observer.coordinator(), statement.trust)
    return epsilon(seen, statement.delta).epsilon


def _open_to_all(event: Event) -> Event:
    return replace(event, audience=()) if isinstance(event, DiscreteGaussianRelease) else event


def _cells(row: Guarantee) -> tuple[str, ...]:
    return row.what, row.observer, row.about, rounded_up(row.epsilon), repr(float(row.delta)), row.status


def _fitted(text: str, width: int) -> str:
    return (textwrap.shorten(text, width, placeholder="...") if len(text) > width else text).ljust(width)
