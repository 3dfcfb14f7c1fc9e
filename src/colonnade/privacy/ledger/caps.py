"""What is left of a party's caps: for all time, and within rolling periods."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from colonnade.errors import PrivacyError
from colonnade.privacy import accountant
from colonnade.privacy.events import Event, alike, view
from colonnade.privacy.observers import Adjacency, Budget, Observer, Trust
from colonnade.privacy.statement import rounded_up

MOST_DAYS = 36525.0
"""The longest period: a hundred years."""
_SHOWN = 8
History = Sequence[tuple[Event, Trust]]


@dataclass(frozen=True)
class Period:
    """Caps on what is reserved within any ``days`` days; they slow spending, but do not limit all that is learned."""

    days: float
    budgets: tuple[Budget, ...]

    def __post_init__(self) -> None:
        check_days(self.days)


@dataclass(frozen=True)
class Spending:
    """What one study reveals, and when it was reserved."""

    when: datetime
    history: History


@dataclass(frozen=True)
class Left:
    """What is left of one cap for one observer; ``days`` is ``None`` for all time."""

    who: str
    epsilon: float
    delta: float
    days: float | None
    spent: float

    @property
    def left(self) -> float:
        """Cap less spent, rounded down to the digits that are printed."""
        return math.floor(max(0.0, self.epsilon - self.spent) * 1e4) / 1e4


@dataclass(frozen=True)
class _Limit:
    cap: Budget
    days: float | None

    def spent_from(self, stored: Sequence[Spending], now: datetime) -> Sequence[Spending]:
        """The studies that count; a time later than now (a clock that was set back) counts."""
        return stored if self.days is None else within_days(stored, self.days, now)

    def known(self, history: History, observer: Observer) -> History:
        """The events that count: a cap on a kind of observer holds within each study's own threshold."""
        if self.cap.named:
            return history
        return [(event, trust) for event, trust in history if trust.broken(observer) is None]

    def total(self, history: History, observer: Observer) -> accountant.Bound:
        return total(self.known(history, observer), observer, self.cap.delta)


def total(history: History, observer: Observer, delta: float) -> accountant.Bound:
    """What an observer learns from all of these together.

    If studies hold the observer to different relations, the number of rows is public in some of them, so adding or
    removing a person is visible: the replace relation is then used for all.
    """
    relations = {trust.adjacency(observer) for _, trust in history}
    common = relations.pop() if len(relations) == 1 else Adjacency.REPLACE
    return accountant.epsilon(tuple(view(event, observer, trust, common) for event, trust in history), delta)


def check_days(days: float) -> None:
    """Refuse a period that is too short or too long."""
    if not 0 < days <= MOST_DAYS:
        raise PrivacyError(f"a period has more than 0 and at most {MOST_DAYS:g} days, not {days}")


def since(days: float, now: datetime) -> datetime:
    """The time ``days`` days before now; only later times lie within the period."""
    check_days(days)
    return now - timedelta(days=days)


def within_days(stored: Sequence[Spending], days: float, now: datetime) -> Sequence[Spending]:
    """What was reserved in the last ``days`` days, or at a time that has not come yet."""
    return [spending for spending in stored if spending.when > since(days, now)]


def ahead(stored: Sequence[tuple[datetime, bool]], now: datetime) -> tuple[bool, datetime | None]:
    """Whether a counted entry is dated later than now, and the first date up to now that follows the last such entry.

    An entry is given as its date and whether it was released.
    """
    late = [place for place, (when, released) in enumerate(stored) if when > now and not released]
    later = stored[late[-1] + 1 :] if late else ()
    return bool(late), next((when for when, _ in later if when <= now), None)


def dates(stored: Sequence[tuple[datetime, bool]], now: datetime) -> list[datetime]:
    """When each entry counts as reserved, even if a clock was wrong; never earlier than a correct clock says.

    No entry is older than a counted one before it. An entry that is dated later than now was written with a wrong
    clock: it counts as new until an entry with a possible date follows, and then as old as that one.
    """
    _, bound = ahead(stored, now)
    latest = datetime.min.replace(tzinfo=UTC)
    found = []
    for when, released in stored:
        if when > now and bound is None:
            found.append(when)
            continue
        possible = max(latest, when if when <= now or bound is None else bound)
        found.append(possible)
        latest = latest if released else possible
    return found


def flat(stored: Iterable[Spending]) -> History:
    """All events, the oldest first."""
    return [pair for spending in stored for pair in spending.history]


def refusals(
    caps: Sequence[Budget], periods: Sequence[Period], stored: Sequence[Spending], new: History, now: datetime
) -> list[str]:
    """One sentence for each observer whose cap the new events would exceed, the one furthest over first."""
    found: dict[str, float] = {}
    for limit in _limits(caps, periods):
        before = limit.spent_from(stored, now)
        for observer in _capped(limit.cap, [*flat(stored), *new]):
            asked = limit.known(new, observer)
            after = limit.total([*flat(before), *new], observer)
            if asked and after.epsilon > limit.cap.epsilon:
                why = [after.reason] if after.reason else []
                why += [_patience(limit, before, new, observer)] if limit.days is not None else []
                found[_sentence(limit, before, new, observer, why)] = after.epsilon / limit.cap.epsilon
    shown = sorted(found, key=lambda text: -found[text])
    return shown if len(shown) <= _SHOWN else [*shown[:_SHOWN], f"{len(shown) - _SHOWN} more observers"]


def remainders(
    caps: Sequence[Budget], periods: Sequence[Period], stored: Sequence[Spending], now: datetime
) -> tuple[Left, ...]:
    """What every cap leaves, observer by observer."""
    found: dict[Left, None] = {}
    everything = flat(stored)
    for limit in _limits(caps, periods):
        cap, history = limit.cap, flat(limit.spent_from(stored, now))
        for observer in _capped(cap, everything):
            spent = limit.total(history, observer).epsilon
            found[Left(observer.label, cap.epsilon, cap.delta, limit.days, spent)] = None
        if not everything and not cap.named:
            found[Left(cap.selector, cap.epsilon, cap.delta, limit.days, 0.0)] = None
    return tuple(found)


def _limits(caps: Sequence[Budget], periods: Sequence[Period]) -> Iterator[_Limit]:
    yield from (_Limit(cap, None) for cap in caps)
    yield from (_Limit(cap, period.days) for period in periods for cap in period.budgets)


def _sentence(limit: _Limit, before: Sequence[Spending], new: History, observer: Observer, why: Sequence[str]) -> str:
    cap = limit.cap
    spent, alone = (limit.total(history, observer).epsilon for history in (flat(before), new))
    left = Left(observer.label, cap.epsilon, cap.delta, limit.days, spent).left
    span = "" if limit.days is None else f" in {limit.days:g} days"
    text = f"{observer}: spent {rounded_up(spent)}, asked {rounded_up(alone)}, left {left:g} of {cap.epsilon:g}"
    return f"{text}{span} at delta {cap.delta:g}" + (f" ({'; '.join(why)})" if why else "")


def _patience(limit: _Limit, before: Sequence[Spending], new: History, observer: Observer) -> str:
    """A text that says when enough of a period's spending is too old to count, so that the new events fit."""

    def fits(dropped: int) -> bool:
        return limit.total([*flat(before[dropped:]), *new], observer).epsilon <= limit.cap.epsilon

    if not fits(len(before)):
        return "more than the period allows even by itself"
    low, high = 0, len(before)  # dropping `low` of the oldest is too few, dropping `high` is enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    moment = before[high - 1].when + timedelta(days=limit.days or 0.0, minutes=1, microseconds=-1)
    return f"enough will have aged out on {moment:%Y-%m-%d} at {moment:%H:%M} UTC"


def _capped(cap: Budget, history: History) -> list[Observer]:
    """The observers to which a cap applies, in the new study and in every earlier one."""
    if cap.named:
        return [Observer.parse(cap.selector)]
    same = alike(history)
    found: dict[Observer, None] = {}
    for known in dict.fromkeys(trust for _, trust in reversed(history)):
        try:
            found.update(dict.fromkeys(cap.observers(known, same if len(known.owners) > _SHOWN else None)))
        except PrivacyError:
            continue  # in that study nobody of this kind stays within the threshold
    return list(found)
