"""What is promised to whom: a statement with a row for each observer, and pictures of statements and ledgers."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import ROUND_CEILING, Context, Decimal
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from colonnade.disk import reading
from colonnade.drawing.canvas import sentences
from colonnade.drawing.charts import Axis, Bar, BarChart, Curve, Kind, LineChart
from colonnade.errors import PrivacyError
from colonnade.lazy import LazyModule
from colonnade.privacy.events import Event, exchange_key, from_dict, unwrap, views
from colonnade.privacy.noise_laws import NonPrivate, PoissonSampled, RepeatedRelease, View
from colonnade.privacy.observers import COORDINATOR, OTHERS, Adjacency, Inputs, Observer, Trust, check_delta

if TYPE_CHECKING:
    from colonnade.privacy.ledger.caps import RemainingBudget

PROVEN = "proven"
BOUNDED = "if owners keep their bounds"
"""Proven against participants that deviate, but for owners that deal numbers beyond their bounds, as nobody checks."""
PUBLISHED = "as published, not proven"
NO_GUARANTEE = "no guarantee"
MISSING = "missing-noise"
_WIDTH = 108


@dataclass(frozen=True)
class StatementRow:
    """What one observer can learn; ``others`` more observers are in exactly the same position.

    With ``missing`` it is what holds if so many owners besides the observer draw no noise. Of the parties, that row has
    the one that then learns most.
    """

    observer: Observer
    adjacency: Adjacency
    epsilon: float
    delta: float
    route: str
    theorem: str
    status: str
    reason: str = ""
    others: int = 0
    missing: int | None = None

    @property
    def who(self) -> str:
        """The observer as it is printed."""
        if self.missing is not None and self.observer.rank > Observer.coordinator().rank:
            return "any other party" if self.missing else "any party"
        return self.observer.short + (f" and {self.others} alike" if self.others else "")

    @property
    def condition(self) -> str:
        """Under what this row holds, beside what all rows assume; mostly empty."""
        if not self.missing:
            return "" if self.missing is None else "if every owner draws its noise"
        return "if 1 owner draws no noise" if self.missing == 1 else f"if {self.missing} owners draw no noise"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite epsilon is ``null``."""
        content = {name: value for name, value in vars(self).items() if name != "missing" or value is not None}
        learned = None if math.isinf(self.epsilon) else self.epsilon
        return content | {
            "observer": self.observer.label,
            "adjacency": self.adjacency.value,
            "epsilon": learned,
        }


def format_text(rows: Sequence[StatementRow], assumptions: Sequence[str]) -> str:
    """Rows as a table, what they rest on, and what they assume."""
    lines = []
    heads = ("observer", "cannot tell", "epsilon", "delta", "status")
    cells = [_cells(row) for row in rows]
    wide = [max(len(line[k]) for line in [heads, *cells]) for k in range(5)]
    wide[0] = min(wide[0], _WIDTH - sum(wide[1:]) - 8)
    conditions = ["", *(row.condition for row in rows)]
    for line, condition, before in zip([heads, *cells], conditions, ["", *conditions], strict=False):
        lines += [condition] * (condition != before)
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


def format_html(rows: Sequence[StatementRow], assumptions: Sequence[str]) -> str:
    """The same for notebooks."""
    heads = ("observer", "cannot tell", "epsilon", "delta", "status", "rests on")
    texts = [(f"{row.who}, {row.condition}".removesuffix(", "), *_cells(row)[1:], _basis(row)) for row in rows]
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in line) + "</tr>" for line in texts)
    head = "".join(f"<th>{text}</th>" for text in heads)
    items = "".join(f"<li>{html.escape(text)}</li>" for text in assumptions)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"{table}<p>assumes</p><ul>{items}</ul>"


def format_rounded_up(epsilon: float, digits: int = 4) -> str:
    """Epsilon as text, never below the number it stands for."""
    if math.isinf(epsilon):
        return "inf"
    exact = Context(prec=400)  # enough for every float
    return str(Decimal(epsilon).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_CEILING, context=exact))


def _cells(row: StatementRow) -> tuple[str, str, str, str, str]:
    return row.who, row.adjacency.value, format_rounded_up(row.epsilon), repr(float(row.delta)), row.status


def _basis(row: StatementRow) -> str:
    return row.reason or f"{row.theorem} ({row.route})"


def _notes(rows: Sequence[StatementRow]) -> list[str]:
    """Each reason and each basis once, with the observers it belongs to."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if row.missing is not None:
            if row.reason:
                groups.setdefault(row.reason, []).append(f"{row.who} {row.condition}")
            continue
        text = f"rests on {row.theorem} ({row.route})" if row.theorem else row.route
        text = _basis(row) if math.isinf(row.epsilon) else text
        groups.setdefault(text, []).append(row.who)
        if row.reason and not math.isinf(row.epsilon):
            groups.setdefault(row.reason, []).append(row.who)
    found = [f"{', '.join(who)}: {text}" for text, who in groups.items()]
    return [*found, *([f"rows with an if: rest on {MISSING} as well"] if any(row.missing for row in rows) else [])]


if TYPE_CHECKING:
    from colonnade.drawing.canvas import Picture
    from colonnade.privacy import accountant
else:  # imported by the first price, not by those who only name a statement
    accountant = LazyModule("colonnade.privacy.accountant")

VERSION = 1
UNMATCHED = "matching people between the parties is outside this statement"
CLIPPED = "rows are clipped to their public bounds by this code, on each party's own machine"
TIMES = "no epsilon covers what others can see of how long a participant takes, or of when it stops"
MISFITS = "cells outside a schema are mapped by public rules; that a party stops is seen, and not counted here"
FOLLOWING = "every participant follows the protocol and may be curious (semi-honest)"
DEVIATING = (
    "at most {threshold} of the {seats} seats ({names}) in all deviate from the protocol or pool what they "
    "hold{others} (active); whoever sees a check fail stops and accepts no result"
)
_WITHIN = "within its bounds an owner may deal what it likes; delta counts what proofs tell of its rows"
DEALT: Mapping[Inputs, str] = {
    "unproven": (
        "every owner keeps the bounds of the rows that it deals, which nobody proves: against one that deals larger "
        "numbers these figures do not hold"
    ),
    "proven": f"owners prove that every row they deal keeps its bounds, but for a chance of 2^-40; {_WITHIN}",
    "needless": (
        "what owners deal is only added up, so an owner beyond its bounds shifts a result by a number that does not "
        "depend on the others' rows, and no proof is needed"
    ),
}
NOT_CHECKED = (
    "which rows of the parties belong together is settled before shares are dealt, and these checks are not about it: "
    "after a hidden or fuzzy alignment a coordinator that deviates can join rows of different people, and the figures "
    "then hold for the columns of one honest owner"
)
_EARLIER = ("every table fits its schema; ", "every table fits its schema and every label the model; ")
"""How earlier releases, which mapped nothing, began the sentence in its place."""
_LISTED_OWNERS = 4
_OF_EACH_PERSON = "embedding-releases"
_NOBODY_LEFT = "nobody is left who draws noise: open are the columns of those who leave theirs out, and no others"
_IN_PLACE = "ids and the order of rows are public; who is replaced is so in the same place, and so in the same batch"


@dataclass(frozen=True)
class Statement:
    """Rows for every standard observer, with the events and the trust they follow from.

    ``earlier`` is a statement as an earlier release wrote it, without rows about missing noise.
    """

    rows: tuple[StatementRow, ...]
    assumptions: tuple[str, ...]
    events: tuple[Event, ...]
    trust: Trust
    delta: float
    earlier: bool = False

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
            same = exchange_key((event, trust) for event in known)
            rows = tuple(_row(known, seen, trust, delta) for seen in trust.standard_observers(larger=same))
        else:
            rows = _grouped(known, trust, delta)
        return cls(rows, (*_assumptions(trust, known, clipped), *(also or (UNMATCHED,))), known, trust, delta)

    @cached_property
    def missing_noise(self) -> tuple[StatementRow, ...]:
        """What is left of the promise if owners draw no noise, for each number of them up to the threshold.

        Empty where no committee adds noise of several owners up.
        """
        return () if self.earlier else tuple(_missing_noise(self.events, self.trust, self.delta))

    def epsilon(self, observer: Observer | str, delta: float | None = None, *, missing: int | None = None) -> float:
        """What any observer learns, not rounded to the printed digits; infinite if nothing protects.

        With ``missing``, if so many owners besides the observer draw no noise.
        """
        wanted = self.delta if delta is None else delta
        return _row(self.events, self._observer(observer), self.trust, wanted, missing=missing).epsilon

    def profile(
        self, observer: Observer | str, epsilons: Sequence[float], *, missing: int | None = None
    ) -> list[float]:
        """The whole guarantee against an observer: the delta for each epsilon; 1 if nothing protects.

        With ``missing``, if so many owners besides the observer draw no noise.
        """
        seen = views(self.events, self._observer(observer), self.trust, missing)
        return [float(delta) for delta in accountant.profile(seen, epsilons)]

    def _observer(self, observer: Observer | str) -> Observer:
        seen = Observer.parse(observer) if isinstance(observer, str) else observer
        if unknown := sorted(set(seen.names) - {*self.trust.owners, COORDINATOR}):
            raise PrivacyError(f"no observer {', '.join(unknown)} in this study [PR102]")
        return seen

    def plot(self, *, events: bool = False) -> Picture:
        """Draw what each observer can learn at most; with ``events``, what each event tells by itself."""
        from colonnade.drawing.canvas import Picture

        if not events:
            return Picture([promises_chart((*self.rows, *self.missing_noise))])
        alone = [row for row in self.rows if len(row.observer.names) <= 1]
        named = [(getattr(unwrap(event), "name", unwrap(event).kind), event) for event in self.events]
        return Picture(
            [
                events_chart(
                    [
                        (row, [(name, _row((event,), row.observer, self.trust, self.delta)) for name, event in named])
                        for row in alone
                    ]
                )
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite epsilon is ``null``."""
        return {
            "version": VERSION,
            "delta": self.delta,
            "rows": [row.to_dict() for row in self.rows],
            **({} if self.earlier else {"missing_noise": [row.to_dict() for row in self.missing_noise]}),
            "assumptions": list(self.assumptions),
            "events": [event.to_dict() for event in self.events],
            "trust": self.trust.to_dict(),
        }

    def of_attempts(self, count: int) -> dict[str, Any]:
        """What so many attempts cost together, if each has opened everything with noise of its own; as plain values."""
        together = Statement.of(self.events * count, self.trust, self.delta).to_dict()
        return {"number": count, "rows": together["rows"], "missing_noise": together["missing_noise"]}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Statement:
        """Read a statement and account for its events anew; a figure below what they prove is refused.

        Assumptions besides those that follow from the events are kept as they are.
        """
        if not isinstance(value, Mapping):
            raise PrivacyError("a privacy statement must be a JSON object [PR103]")
        if value.get("version") != VERSION:
            shown = reading.shorten(repr(value.get("version")), 80)
            raise PrivacyError(f"privacy statement of version {shown}; expected {VERSION} [PR104]")
        try:
            events = [from_dict(event) for event in value["events"]]
            written = [*value["rows"], *value.get("missing_noise", ())]
            stated = {(row["observer"], row.get("missing")): _stated(row["epsilon"]) for row in written}
            fresh = cls.of(events, Trust.from_dict(value["trust"]), value["delta"])
            fresh = replace(fresh, earlier="missing_noise" not in value)
            known = _as_said_then(_assumptions(fresh.trust, events, CLIPPED), value["assumptions"])
            also = [text for text in value["assumptions"] if text not in known and text.isprintable()]
        except PrivacyError as error:
            raise PrivacyError(reading.shorten(str(error))) from None
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
            raise PrivacyError("a privacy statement is incomplete or malformed [PR105]") from error
        for row in (*fresh.rows, *fresh.missing_noise):
            if not row.epsilon <= stated.get((row.observer.label, row.missing), -1.0) * (1 + 1e-9):
                raise PrivacyError(f"the stated epsilon for {row.observer} does not follow from the events [PR106]")
        return replace(fresh, assumptions=(*known, *(also or (UNMATCHED,))))

    def __str__(self) -> str:
        return format_text((*self.rows, *self.missing_noise), self.assumptions)

    def _repr_html_(self) -> str:
        return format_html((*self.rows, *self.missing_noise), self.assumptions)


def _stated(epsilon: Any) -> float:
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float | None):
        raise TypeError("an epsilon is a number, or null for one that is infinite [VA124]")
    return math.inf if epsilon is None else float(epsilon)


def _row(
    events: tuple[Event, ...],
    observer: Observer,
    trust: Trust,
    delta: float,
    others: int = 0,
    *,
    missing: int | None = None,
) -> StatementRow:
    seen = views(events, observer, trust, missing)
    broken = trust.broken(observer) or ""
    assumed = trust.bounds_assumed
    row = account_row(observer, trust.adjacency(observer), seen, delta, broken=broken, others=others, assumed=assumed)
    if row.theorem and (trust.missing if missing is None else missing):
        row = replace(row, theorem=f"{row.theorem}, {MISSING}")
    return replace(row, missing=missing)


def _missing_noise(events: tuple[Event, ...], trust: Trust, delta: float) -> Iterator[StatementRow]:
    """For each number of owners without noise: the analyst, the coordinator, and the party that learns most."""
    if not any(getattr(unwrap(event), "shares", ()) for event in events):
        return
    alone = list(trust.coalitions(1, exchange_key((event, trust) for event in events)))
    alone.remove(Observer.coordinator())
    most = min(trust.threshold, len(trust.owners) - 1)
    for missing in range(0 if trust.missing else 1, most + 1):
        for seen in (Observer.analyst(), Observer.coordinator()):
            yield _row(events, seen, trust, delta, missing=missing)
        if missing == len(trust.owners) - 1:
            held = trust.adjacency(alone[0])
            yield StatementRow(alone[0], held, math.inf, delta, "none", "", NO_GUARANTEE, _NOBODY_LEFT, missing=missing)
        else:
            rows = (_row(events, seen, trust, delta, missing=missing) for seen in alone)
            yield max(rows, key=lambda row: row.epsilon)


def account_row(
    observer: Observer,
    adjacency: Adjacency,
    seen: Sequence[View],
    delta: float,
    *,
    broken: str = "",
    others: int = 0,
    assumed: bool = False,
) -> StatementRow:
    """The row of an observer who sees this, which must all be under one relation; ``assumed``: bounds of owners are."""
    bound = accountant.epsilon(seen, delta)
    reason = bound.reason or broken
    doubts = sorted({view.unproven for view in seen if view.unproven})
    status = NO_GUARANTEE if math.isinf(bound.epsilon) else PUBLISHED if doubts else BOUNDED if assumed else PROVEN
    theorems = sorted({view.theorem for view in seen if view.theorem} | {bound.theorem} - {""})
    return StatementRow(
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


def _grouped(events: tuple[Event, ...], trust: Trust, delta: float) -> tuple[StatementRow, ...]:
    """One row for all observers in the same position, so that a thousand owners still make a short table."""
    key = exchange_key((event, trust) for event in events)
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
    for_whom = " for all but the analyst" if trust.committee else ""
    sealed = "messages between parties are sealed end to end; the coordinator sees their sizes and when they end"
    placed = any(_by_place(event) for event in events)
    return (
        *(_about_seats(trust) if trust.committee else (FOLLOWING, sealed)),
        clipped,
        *((DEALT[trust.inputs], NOT_CHECKED) if trust.active else ()),
        *_about_missing(trust),
        "noise comes from the exact integer sampler; its distance from the exact law is part of delta",
        *dict.fromkeys(text for event in events for text in _about_batches(event)),
        f"public: schema, clips, scales, noise sizes, and the number of rows{for_whom}",
        *((_IN_PLACE,) if placed else ()),
        MISFITS,
        TIMES,
    )


def _about_seats(trust: Trust) -> Iterator[str]:
    names = ", ".join(trust.committee)
    if trust.active:
        others = ", and any owners without a seat" if set(trust.owners) - set(trust.committee) else ""
        yield DEVIATING.format(threshold=trust.threshold, seats=len(trust.committee), names=names, others=others)
    else:
        yield FOLLOWING
        yield f"at most {trust.threshold} of the committee ({names}) pool what they hold"


def _about_missing(trust: Trust) -> Iterator[str]:
    if trust.missing:
        many = "an owner draws" if trust.missing == 1 else f"up to {trust.missing} owners draw"
        yield (
            f"rows without an if hold even if {many} no noise, for the columns of all others; of the owners besides "
            "the observer one is taken to draw its own"
        )
    elif trust.active:
        yield "every owner draws its part of the noise, which nobody checks; rows with an if say what holds otherwise"


def _as_said_then(now: Sequence[str], stored: Sequence[str]) -> tuple[str, ...]:
    """The assumptions as they are worded now, but as the release worded them that wrote a statement."""
    earlier = [text for text in stored if text.startswith(_EARLIER) and text.isprintable()]
    if not earlier:
        return tuple(now)
    return tuple(earlier[0] if text == MISFITS else text for text in now if text != TIMES or text in stored)


def _by_place(event: Event) -> bool:
    """Whether its theorem compares two tables row by row: numbers are told of each person, by the person's place."""
    once = unwrap(event)
    if isinstance(once, NonPrivate):
        return False
    return once.name.startswith("slopes of ") or getattr(once, "theorem", "") == _OF_EACH_PERSON


def _about_batches(event: Event) -> Iterator[str]:
    inner = event.event if isinstance(event, RepeatedRelease) else event
    if isinstance(inner, PoissonSampled):
        knowing = _few(inner.coins) or "nobody"
        yield (
            f"each person joins a batch by a coin of chance {inner.rate}, a public number that is not read off the "
            f"table; who is in it, and how many, is known to {knowing} only: no message's size tells it, and what the "
            "time of a round may tell is not counted"
        )
    elif isinstance(event, RepeatedRelease) and not _by_place(event):
        yield (
            "batches are fixed, public and disjoint, and nobody moves to another one when a person leaves; or every "
            "round uses everybody"
        )


_NAMED = 7


def _few(names: Sequence[str]) -> str:
    """The names; if there are many, the first of them and the number of others."""
    return ", ".join(names) if len(names) <= _NAMED else f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"


@dataclass(frozen=True)
class LargestEpsilon:
    """Who learns most from a study."""

    row: StatementRow | None
    """Of all observers within the threshold; infinite where one of them is promised nothing."""
    condition: str
    """Under which that row holds, with regard to noise."""
    missing: StatementRow | None
    """Of the rows that hold if owners draw otherwise; infinite where one of them promises nothing then."""
    beyond: tuple[StatementRow, ...]
    """Observers against whom nothing is promised."""

    @classmethod
    def of(cls, statement: Statement) -> LargestEpsilon:
        """The largest epsilon of a statement."""
        return cls.of_rows(statement.rows, statement.missing_noise, statement.trust)

    @classmethod
    def parse(cls, statement: Mapping[str, Any]) -> LargestEpsilon:
        """That of a statement that was written down."""
        rows, missing = map(parse_row, statement["rows"]), map(parse_row, statement.get("missing_noise", ()))
        return cls.of_rows(tuple(rows), tuple(missing), Trust.from_dict(statement["trust"]))

    @classmethod
    def of_rows(cls, rows: Iterable[StatementRow], missing: Iterable[StatementRow], trust: Trust) -> LargestEpsilon:
        """That of rows, and of those about missing noise."""
        known = tuple(rows)
        within = (row for row in known if trust.broken(row.observer) is None)
        return cls(
            max(within, key=_epsilon, default=None),
            _condition(trust),
            max(missing, key=_epsilon, default=None),
            tuple(row for row in known if math.isinf(row.epsilon)),
        )

    @property
    def figures(self) -> tuple[tuple[StatementRow, str], ...]:
        """Both rows that are there, each with the condition under which it holds."""
        pairs = ((self.row, self.condition), (self.missing, "" if self.missing is None else self.missing.condition))
        return tuple((row, condition) for row, condition in pairs if row is not None)


def parse_row(value: Mapping[str, Any]) -> StatementRow:
    """A row as a statement wrote it down."""
    given = dict(value)
    epsilon = math.inf if given.pop("epsilon") is None else float(value["epsilon"])
    observer, adjacency = Observer.parse(given.pop("observer")), Adjacency(given.pop("adjacency"))
    return StatementRow(observer=observer, adjacency=adjacency, epsilon=epsilon, **given)


def _epsilon(row: StatementRow) -> float:
    return row.epsilon


def _condition(trust: Trust) -> str:
    if not trust.missing:
        return "if every owner draws its noise"
    return f"even if {'1 owner draws' if trust.missing == 1 else f'{trust.missing} owners draw'} no noise"


PRIORS = (0.01, 0.1, 0.5, 0.9)
"""Beliefs beforehand for which tables say what they may become."""
_PLACES, _REACH, _MORE = 97, 1.0, 2.0
_ROUNDING = 1e-12


def log_odds(statement: Statement, observer: Observer | str, *, missing: int | None = None) -> float:
    """The most by which log-odds about one person rise, but for a chance of delta; infinite if nothing protects.

    With ``missing``, if so many owners besides the observer draw no noise.
    """
    at_delta = statement.epsilon(observer, missing=missing)
    if math.isinf(at_delta):
        return math.inf
    return bound_log_odds(
        lambda epsilons: statement.profile(observer, epsilons, missing=missing), at_delta, statement.delta
    )


def log_odds_by_row(statement: Statement) -> dict[str, float | None]:
    """By how much log-odds rise at most, for each row of a statement by its name; ``None``: no limit."""
    found = {}
    for row in (*statement.rows, *statement.missing_noise):
        rise = math.inf if math.isinf(row.epsilon) else log_odds(statement, row.observer, missing=row.missing)
        found[row_name(row)] = None if math.isinf(rise) else rise
    return found


def row_name(row: StatementRow) -> str:
    """The name of a row, which no other row of its statement has."""
    return row.observer.label if row.missing is None else f"{row.observer.label} {row.condition}"


def bound_log_odds(profile: Callable[[Sequence[float]], Sequence[float]], start: float, chance: float) -> float:
    """The least x for which log-odds rise by more than x with at most this chance, for a whole guarantee.

    ``profile`` gives the delta of each epsilon, and ``start`` is an epsilon whose delta is about ``chance``. The bound
    holds for every choice of epsilons at which the profile is asked; more of them only make it smaller.
    """
    check_delta(chance)
    epsilons = start + (_REACH + _MORE * start) * np.linspace(0.0, 1.0, _PLACES) ** 2
    deltas: NDArray[np.float64] = np.asarray(profile([float(epsilon) for epsilon in epsilons]), dtype=np.float64)
    held = deltas < chance
    if not held.any():
        return math.inf
    found = epsilons[held] - np.log1p(-deltas[held] / chance)
    return float(found.min()) * (1 + _ROUNDING) + _ROUNDING


def posterior(prior: float, rise: float) -> float:
    """The largest belief after log-odds rose by this, for a belief before."""
    if math.isinf(rise):
        return 1.0 if prior > 0 else 0.0
    if prior in (0.0, 1.0):
        return prior
    return 1 / (1 + (1 - prior) / prior * math.exp(-rise))


_MOST_BARS = 24
_OPEN = "hatched from end to end: nothing is promised"
_DOUBTFUL = "hatched bar: its words say what is not proven"
_LIMITED = "dashed: the cap"
_PAIRS = "bars that speak of different pairs of tables are not on one scale: compare within a heading"


def promises_chart(rows: Sequence[StatementRow], left: Sequence[RemainingBudget] = ()) -> BarChart:
    """The epsilon of each observer under what it cannot tell, and what its cap leaves where there is one."""
    groups = list(dict.fromkeys(map(_group, rows)))
    shown = sorted(rows, key=lambda row: groups.index(_group(row)))[:_MOST_BARS]
    bars = [_bar(row, row.who, _group(row), _tightest(row, left)) for row in shown]
    more = [_PAIRS] if len({row.adjacency for row in shown}) > 1 else []
    more += [f"the first {len(shown)} of {len(rows)} rows are drawn"] if len(shown) < len(rows) else []
    return BarChart(bars, _axis(rows), title="What each observer can learn at most", note=_note(bars, more))


def events_chart(found: Sequence[tuple[StatementRow, Sequence[tuple[str, StatementRow]]]]) -> BarChart:
    """For each observer the epsilon of each event by itself, and of all together."""
    alike: dict[tuple[Bar, ...], list[StatementRow]] = {}
    for whole, parts in found:
        own = [_bar(row, name, _group(whole)) for name, row in parts if row.epsilon > 0]
        alike.setdefault((*own, _bar(whole, "all together", _group(whole))), []).append(whole)
    bars = []
    for drawn, rows in alike.items():
        group = f"{', '.join(row.who for row in rows)} ({drawn[0].group})"
        bars += [replace(bar, group=group) for bar in drawn]
    note = _note(bars, ["what events tell does not simply add up: all together is composed"])
    return BarChart(bars, _axis([whole for whole, _ in found]), title="What each event tells by itself", note=note)


def spending_chart(
    when: Sequence[datetime],
    found: Mapping[str, Sequence[float]],
    now: datetime,
    delta: float,
    caps: Mapping[str, float] = MappingProxyType({}),
) -> LineChart:
    """What each observer had learned over time, until now; who was told things exactly has no line."""
    times = [moment.timestamp() for moment in (when[0], *when, max(now, when[-1]))]
    exact = [who for who, line in found.items() if not all(map(math.isfinite, line))]
    alike: dict[tuple[float, ...], list[str]] = {}
    for who in (who for who in found if who not in exact and found[who]):
        alike.setdefault(tuple(found[who]), []).append(_called(who))
    lines = [
        Curve(", ".join(names), list(zip(times, [0.0, *line, line[-1]], strict=True)), steps=True)
        for line, names in alike.items()
    ]
    told = "; ".join(f"{line.label}: {format_rounded_up(line.points[-1][1])}" for line in lines)
    return LineChart(
        lines,
        Axis("when studies were reserved (UTC)", "time"),
        Axis(f"epsilon in all, at delta {delta:g}"),
        {f"cap of {who}: {cap:g}": cap for who, cap in caps.items()},
        title="What each observer has learned, study after study",
        note=sentences([f"no line, because nothing is promised: {', '.join(map(_called, exact))}"] if exact else []),
        description=f"In all, by now: {told}.",
    )


def _bar(row: StatementRow, name: str, group: str, left: RemainingBudget | None = None) -> Bar:
    if math.isinf(row.epsilon):
        return Bar(name, None, "no promise", group=group)
    kind: Kind = "plain" if row.status == PROVEN else "doubtful"
    text = format_rounded_up(row.epsilon, 3) + ("" if kind == "plain" else f", {row.status}")
    if left is None:
        return Bar(name, row.epsilon, text, kind, group=group)
    return Bar(
        name, row.epsilon, f"{text} of {left.epsilon:g}, {left.remaining:g} left", kind, None, None, left.epsilon, group
    )


def _group(row: StatementRow) -> str:
    return f"{row.condition}, each as above" if row.condition else f"cannot tell: {row.adjacency.value}"


def _tightest(row: StatementRow, left: Sequence[RemainingBudget]) -> RemainingBudget | None:
    own = [each for each in left if each.who == row.observer.label and row.missing is None]
    return min(own, key=lambda each: each.remaining, default=None)


def _axis(rows: Sequence[StatementRow]) -> str:
    return "epsilon, rounded up, at delta " + ", ".join(dict.fromkeys(f"{row.delta:g}" for row in rows))


def _note(bars: Sequence[Bar], more: Sequence[str]) -> str:
    parts = [_OPEN] * any(bar.value is None for bar in bars)
    parts += [_DOUBTFUL] * any(bar.kind == "doubtful" for bar in bars)
    parts += [_LIMITED] * any(bar.limit is not None for bar in bars)
    return sentences([*parts, *more])


def _called(who: str) -> str:
    return "all others together" if who == OTHERS else who
