"""The privacy statement of a study: one row for each observer, and the assumptions of all rows.

It is the only form in which the library prints a privacy figure. Epsilon is rounded up, the neighbouring
relation is always named, and an observer against whom nothing protects has its own row, with the reason.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any

from colonnade.disk import reading
from colonnade.errors import PrivacyError
from colonnade.privacy import accountant
from colonnade.privacy.events import Event, View, alike, from_dict, innermost, views
from colonnade.privacy.observers import COORDINATOR, Adjacency, Observer, Trust, check_delta
from colonnade.privacy.releases import NonPrivate, PoissonSampled, Repeated

VERSION = 1
PROVEN = "proven"
PUBLISHED = "as published, not proven"
NO_GUARANTEE = "no guarantee"
UNMATCHED = "matching people between the parties is outside this statement"
CLIPPED = "rows are clipped to their public bounds by this code, on each party's own machine"
TIMES = "no epsilon covers what others can see of how long a participant takes, or of when it stops"
MISFITS = "cells outside a schema are mapped by public rules; that a party stops is seen, and not counted here"
_EARLIER = ("every table fits its schema; ", "every table fits its schema and every label the model; ")
"""How earlier releases, which mapped nothing, began the sentence in its place."""
_LISTED_OWNERS = 4
_OF_EACH_PERSON = "embedding-releases"
_IN_PLACE = "ids and the order of rows are public; who is replaced is so in the same place, and so in the same batch"
_WIDTH = 108


@dataclass(frozen=True)
class Row:
    """What one observer can learn; ``others`` more observers are in exactly the same position."""

    observer: Observer
    adjacency: Adjacency
    epsilon: float
    delta: float
    route: str
    theorem: str
    status: str
    reason: str = ""
    others: int = 0

    @property
    def who(self) -> str:
        """The observer as it is printed."""
        return self.observer.short + (f" and {self.others} alike" if self.others else "")


@dataclass(frozen=True)
class Statement:
    """Rows for every standard observer, with the events and the trust they follow from."""

    rows: tuple[Row, ...]
    assumptions: tuple[str, ...]
    events: tuple[Event, ...]
    trust: Trust
    delta: float

    @classmethod
    def of(
        cls,
        events: Iterable[Event],
        trust: Trust,
        delta: float,
        *,
        clipped: str = CLIPPED,
        also: Sequence[str] = (),
    ) -> Statement:
        """Account for the events of one study, observer by observer.

        ``clipped`` is the sentence that says who enforces the bounds. ``also`` are assumptions of a study that matched
        people itself; without them the statement says that matching is outside it.
        """
        check_delta(delta)
        known = tuple(events)
        if len(trust.owners) <= _LISTED_OWNERS:
            same = alike((event, trust) for event in known)
            rows = tuple(_row(known, seen, trust, delta) for seen in trust.standard_observers(larger=same))
        else:
            rows = _grouped(known, trust, delta)
        return cls(rows, (*_assumptions(trust, known, clipped), *(also or (UNMATCHED,))), known, trust, delta)

    def epsilon(self, observer: Observer | str, delta: float | None = None) -> float:
        """What any observer learns, not rounded to the printed digits; infinite if nothing protects."""
        wanted = self.delta if delta is None else delta
        return _row(self.events, self._observer(observer), self.trust, wanted).epsilon

    def profile(self, observer: Observer | str, epsilons: Sequence[float]) -> list[float]:
        """The whole guarantee against an observer: the delta for each epsilon; 1 if nothing protects."""
        seen = views(self.events, self._observer(observer), self.trust)
        return [float(delta) for delta in accountant.profile(seen, epsilons)]

    def _observer(self, observer: Observer | str) -> Observer:
        seen = Observer.parse(observer) if isinstance(observer, str) else observer
        if unknown := sorted(set(seen.names) - {*self.trust.owners, COORDINATOR}):
            raise PrivacyError(f"no observer {', '.join(unknown)} in this study")
        return seen

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite epsilon is ``null``."""
        return {
            "version": VERSION,
            "delta": self.delta,
            "rows": [
                {
                    **vars(row),
                    "observer": row.observer.label,
                    "adjacency": row.adjacency.value,
                    "epsilon": None if math.isinf(row.epsilon) else row.epsilon,
                }
                for row in self.rows
            ],
            "assumptions": list(self.assumptions),
            "events": [event.to_dict() for event in self.events],
            "trust": self.trust.to_dict(),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Statement:
        """Read a statement and account for its events anew; a figure below what they prove is refused.

        Assumptions besides those that follow from the events are kept as they are.
        """
        if not isinstance(value, Mapping):
            raise PrivacyError("a privacy statement must be a JSON object")
        if value.get("version") != VERSION:
            shown = reading.short(repr(value.get("version")), 80)
            raise PrivacyError(f"privacy statement of version {shown}; expected {VERSION}")
        try:
            events = [from_dict(event) for event in value["events"]]
            stated = {row["observer"]: _stated(row["epsilon"]) for row in value["rows"]}
            fresh = cls.of(events, Trust.from_dict(value["trust"]), value["delta"])
            known = _as_said_then(_assumptions(fresh.trust, events, CLIPPED), value["assumptions"])
            also = [text for text in value["assumptions"] if text not in known and text.isprintable()]
        except PrivacyError as error:
            raise PrivacyError(reading.short(str(error))) from None
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            raise PrivacyError("a privacy statement is incomplete or malformed") from error
        for row in fresh.rows:
            if not row.epsilon <= stated.get(row.observer.label, -1.0) * (1 + 1e-9):
                raise PrivacyError(f"the stated epsilon for {row.observer} does not follow from the events")
        return replace(fresh, assumptions=(*known, *(also or (UNMATCHED,))))

    def __str__(self) -> str:
        return as_text(self.rows, self.assumptions)

    def _repr_html_(self) -> str:
        return as_html(self.rows, self.assumptions)


def as_text(rows: Sequence[Row], assumptions: Sequence[str]) -> str:
    """Rows as a table, what they rest on, and what they assume."""
    lines = []
    heads = ("observer", "cannot tell", "epsilon", "delta", "status")
    cells = [_cells(row) for row in rows]
    wide = [max(len(line[k]) for line in [heads, *cells]) for k in range(5)]
    wide[0] = min(wide[0], _WIDTH - sum(wide[1:]) - 8)
    for line in [heads, *cells]:
        who = textwrap.shorten(line[0], wide[0], placeholder="...") if len(line[0]) > wide[0] else line[0]
        texts = (
            who.ljust(wide[0]),
            line[1].ljust(wide[1]),
            line[2].rjust(wide[2]),
            line[3].rjust(wide[3]),
        )
        lines.append("  ".join((*texts, line[4])).rstrip())
    lines.insert(1, "-" * max(len(line) for line in lines))
    for text in _notes(rows):
        lines.extend(textwrap.wrap(text, _WIDTH, subsequent_indent="  "))
    lines.append("assumes")
    for text in assumptions:
        lines.extend(textwrap.wrap(f"- {text}", _WIDTH, subsequent_indent="  "))
    return "\n".join(lines)


def as_html(rows: Sequence[Row], assumptions: Sequence[str]) -> str:
    """The same for notebooks."""
    heads = ("observer", "cannot tell", "epsilon", "delta", "status", "rests on")
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in (*_cells(row), _basis(row))) + "</tr>"
        for row in rows
    )
    head = "".join(f"<th>{text}</th>" for text in heads)
    items = "".join(f"<li>{html.escape(text)}</li>" for text in assumptions)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"{table}<p>assumes</p><ul>{items}</ul>"


def _stated(epsilon: Any) -> float:
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float | None):
        raise TypeError("an epsilon is a number, or null for one that is infinite")
    return math.inf if epsilon is None else float(epsilon)


def rounded_up(epsilon: float, digits: int = 4) -> str:
    """Epsilon as text, never below the number it stands for."""
    if math.isinf(epsilon):
        return "inf"
    exact = Context(prec=400)  # enough for every float
    return str(Decimal(epsilon).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_CEILING, context=exact))


def _row(events: tuple[Event, ...], observer: Observer, trust: Trust, delta: float, others: int = 0) -> Row:
    seen = views(events, observer, trust)
    return row_of(observer, trust.adjacency(observer), seen, delta, broken=trust.broken(observer) or "", others=others)


def row_of(
    observer: Observer, adjacency: Adjacency, seen: Sequence[View], delta: float, *, broken: str = "", others: int = 0
) -> Row:
    """The row of an observer who sees this, which must all be under one relation."""
    bound = accountant.epsilon(seen, delta)
    reason = bound.reason or broken
    doubts = sorted({view.unproven for view in seen if view.unproven})
    status = NO_GUARANTEE if math.isinf(bound.epsilon) else PUBLISHED if doubts else PROVEN
    theorems = sorted({view.theorem for view in seen if view.theorem} | {bound.theorem} - {""})
    return Row(
        observer=observer,
        adjacency=adjacency,
        epsilon=bound.epsilon,
        delta=delta,
        route=bound.route,
        theorem=", ".join(theorems),
        status=status,
        reason=reason or "; ".join(doubts),
        others=others,
    )


def _grouped(events: tuple[Event, ...], trust: Trust, delta: float) -> tuple[Row, ...]:
    """One row for all observers in the same position, so that a thousand owners still make a short table."""
    key = alike((event, trust) for event in events)
    sizes: dict[object, int] = {}
    for name in trust.owners:
        mark = (name in trust.committee, key(name))
        sizes[mark] = sizes.get(mark, 0) + 1
    rows = []
    for seen in trust.standard_observers(key):
        marks = [(name in trust.committee, key(name)) for name in seen.names if name != COORDINATOR]
        count = math.prod(
            math.comb(sizes[mark], sum(1 for other in marks if other == mark)) for mark in dict.fromkeys(marks)
        )
        rows.append(_row(events, seen, trust, delta, others=count - 1))
    return tuple(rows)


def _assumptions(trust: Trust, events: Iterable[Event], clipped: str) -> tuple[str, ...]:
    among = f"at most {trust.threshold} of the committee ({', '.join(trust.committee)}) pool what they hold"
    for_whom = " for all but the analyst" if trust.committee else ""
    sealed = "messages between parties are sealed end to end; the coordinator sees their sizes and when they end"
    placed = any(_by_place(event) for event in events)
    return (
        "every participant follows the protocol and may be curious (semi-honest)",
        among if trust.committee else sealed,
        clipped,
        "noise comes from the exact integer sampler; its distance from the exact law is part of delta",
        *dict.fromkeys(text for event in events for text in _about_batches(event)),
        f"public: schema, clips, scales, noise sizes, and the number of rows{for_whom}",
        *((_IN_PLACE,) if placed else ()),
        MISFITS,
        TIMES,
    )


def _as_said_then(now: Sequence[str], stored: Sequence[str]) -> tuple[str, ...]:
    """The assumptions as they are worded now, but as the release worded them that wrote a statement."""
    earlier = [text for text in stored if text.startswith(_EARLIER) and text.isprintable()]
    if not earlier:
        return tuple(now)
    return tuple(earlier[0] if text == MISFITS else text for text in now if text != TIMES or text in stored)


def _by_place(event: Event) -> bool:
    """Whether its theorem compares two tables row by row: numbers are told of each person, by the person's place."""
    once = innermost(event)
    if isinstance(once, NonPrivate):
        return False
    return once.name.startswith("slopes of ") or getattr(once, "theorem", "") == _OF_EACH_PERSON


def _about_batches(event: Event) -> Iterator[str]:
    inner = event.event if isinstance(event, Repeated) else event
    if isinstance(inner, PoissonSampled):
        knowing = _few(inner.coins) or "nobody"
        yield (
            f"each person joins a batch by a coin of chance {inner.rate}, a public number that is not read off the "
            f"table; who is in it, and how many, is known to {knowing} only: no message's size tells it, and what the "
            "time of a round may tell is not counted"
        )
    elif isinstance(event, Repeated) and not _by_place(event):
        yield (
            "batches are fixed, public and disjoint, and nobody moves to another one when a person leaves; or every "
            "round uses everybody"
        )


_NAMED = 7


def _few(names: Sequence[str]) -> str:
    """The names; if there are many, the first of them and the number of others."""
    return ", ".join(names) if len(names) <= _NAMED else f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    return row.who, row.adjacency.value, rounded_up(row.epsilon), repr(float(row.delta)), row.status


def _basis(row: Row) -> str:
    return row.reason or f"{row.theorem} ({row.route})"


def _notes(rows: Sequence[Row]) -> list[str]:
    """Each reason and each basis once, with the observers it belongs to."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        text = f"rests on {row.theorem} ({row.route})" if row.theorem else row.route
        text = _basis(row) if math.isinf(row.epsilon) else text
        groups.setdefault(text, []).append(row.who)
        if row.reason and not math.isinf(row.epsilon):
            groups.setdefault(row.reason, []).append(row.who)
    return [f"{', '.join(who)}: {text}" for text, who in groups.items()]
