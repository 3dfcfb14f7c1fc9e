"""Privacy statements and ledgers as pictures: epsilon by observer, of single events, and over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from colonnade.drawing.canvas import sentences
from colonnade.drawing.charts import Axis, Bar, BarChart, Curve, Kind, LineChart
from colonnade.privacy.observers import OTHERS
from colonnade.privacy.statement import PROVEN, PUBLISHED, StatementRow, format_rounded_up

if TYPE_CHECKING:
    from colonnade.privacy.ledger.caps import RemainingBudget

_MOST_BARS = 24
_OPEN = "hatched from end to end: nothing is promised"
_DOUBTFUL = f"hatched bar: {PUBLISHED}"
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
