"""What an exchange promises, for each thing that can be seen: messages, kept weights, releases, coalitions."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from colonnade.privacy import Event, Observer, Statement, epsilon, views
from colonnade.privacy.events import innermost
from colonnade.privacy.releases import SquaredRelease
from colonnade.privacy.rows import NO_GUARANTEE, PROVEN, rounded_up

JOINT = "post-processing"
EAVESDROPPER = "eavesdropper on every channel"
NOTHING = "nothing is released"
_WIDTH = 108
_HEADS = ("what is seen", "by whom", "tells about", "epsilon", "delta", "status")
_TEXTS = 3  # the first ones
_NARROW = 12
_NUMBERS = ("epsilon", "delta")


@dataclass(frozen=True)
class Guarantee:
    """One promise: ``what`` the ``observer`` sees tells at most this epsilon and delta ``about`` something."""

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

    def besides(self, statement: Statement) -> Guarantees:
        """The promises that a statement's table of observers does not make; only the analyst is named again."""
        named = {row.who for row in statement.rows} - {"analyst"}
        return Guarantees(tuple(row for row in self.rows if row.observer not in named))

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain values for JSON; an infinite epsilon is ``null``."""
        return [asdict(row) | {"epsilon": None if math.isinf(row.epsilon) else row.epsilon} for row in self.rows]

    def __str__(self) -> str:
        lines = [_HEADS, *(_cells(row) for row in self.rows)]
        wide = _widths(lines)
        table = [text for line in lines for text in _wrapped(line, wide)]
        table.insert(1, "-" * max(len(text) for text in table))
        for basis in dict.fromkeys(row.theorem for row in self.rows if row.theorem):
            table += textwrap.wrap(f"rests on: {basis}", _WIDTH, subsequent_indent="  ")
        return "\n".join(table)


def protection(statement: Statement) -> dict[str, float]:
    """For each party, the epsilon of everything that leaves it, about its columns of one person."""
    owners = statement.trust.owners
    return {owner: _published(_about(statement, owner), statement) for owner in owners}


@lru_cache(maxsize=16)
def _guarantees(statement: Statement) -> Guarantees:
    rows: list[Guarantee] = []
    for owner in statement.trust.owners:
        rows += _of_party(statement, owner)
    rows.append(_proven(statement, "all messages", EAVESDROPPER, "one whole person", statement.events))
    for row in statement.rows:
        if row.observer == Observer.analyst():
            what = _published_things(statement) if row.theorem else NOTHING
        else:
            what = "all that it receives"
        status = NO_GUARANTEE if math.isinf(row.epsilon) else row.status
        rows.append(Guarantee(what, row.who, row.adjacency.value, row.epsilon, row.delta, row.theorem, status))
    return Guarantees(tuple(rows))


def _published_things(statement: Statement) -> str:
    released = any(event.name.startswith("weights of ") for event in statement.events)
    return "all messages and released weights" if released else "all messages"


def _of_party(statement: Statement, owner: str) -> Iterator[Guarantee]:
    """Promises about its messages, about what others compute from them, and about its released weights."""
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
    """The epsilon of an observer who sees all these events and holds no columns and no noise."""
    seen = views([_open_to_all(event) for event in events], Observer.coordinator(), statement.trust)
    return epsilon(seen, statement.delta).epsilon


def _open_to_all(event: Event) -> Event:
    return replace(event, audience=()) if isinstance(event, SquaredRelease) else event


def _cells(row: Guarantee) -> tuple[str, ...]:
    return row.what, row.observer, row.about, rounded_up(row.epsilon), repr(float(row.delta)), row.status


def _widths(lines: Sequence[tuple[str, ...]]) -> list[int]:
    """The widths of the columns; if the table is too wide, its widest text columns become narrower."""
    wide = [max(len(line[k]) for line in lines) for k in range(len(_HEADS))]
    while sum(wide) + 2 * (len(wide) - 1) > _WIDTH and max(wide[:_TEXTS]) > _NARROW:
        wide[max(range(_TEXTS), key=lambda k: wide[k])] -= 1
    return wide


def _wrapped(line: tuple[str, ...], wide: Sequence[int]) -> Iterator[str]:
    """One row as lines of text; numbers are aligned to the right."""
    columns = [textwrap.wrap(cell, width) for cell, width in zip(line, wide, strict=True)]
    for parts in zip_longest(*columns, fillvalue=""):
        yield "  ".join(
            part.rjust(width) if head in _NUMBERS else part.ljust(width)
            for head, part, width in zip(_HEADS, parts, wide, strict=True)
        ).rstrip()
