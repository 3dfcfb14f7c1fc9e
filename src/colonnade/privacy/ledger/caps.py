"""What is left of a party's caps: for all time, and within rolling periods."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from colonnade.errors import PrivacyError
from colonnade.privacy import accountant
from colonnade.privacy.ledger.groups import ANALYST, Across, Sight
from colonnade.privacy.ledger.people import Told
from colonnade.privacy.observers import COORDINATOR, EVERYONE, OTHERS, Budget, Observer
from colonnade.privacy.rows import rounded_up

MOST_DAYS = 36525.0
"""The longest period: a hundred years."""
AT_THE_HUB = "analyst at the hub"
"""A member who proposes studies and watches the hub."""
_SHOWN = 8


@dataclass(frozen=True)
class Period:
    """Caps on what is reserved within any ``days`` days; they slow spending, but do not limit all that is learned."""

    days: float
    budgets: tuple[Budget, ...]

    def __post_init__(self) -> None:
        check_days(self.days)


@dataclass(frozen=True)
class Spending:
    """What one study tells, and when it was reserved."""

    when: datetime
    told: Told


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
class Foreseen:
    """What a study that is not reserved yet would leave of one cap for one observer."""

    before: Left
    after: float
    """Spent after it."""
    at_most: float
    """Spent if it takes as many attempts as it may, and each of them counts in full."""


@dataclass(frozen=True)
class Limit:
    """A cap, for ever or within so many days."""

    cap: Budget
    days: float | None

    def counted(self, stored: Sequence[Spending], now: datetime) -> list[int]:
        """The numbers of the studies that count; a time later than now (a clock that was set back) counts."""
        start = None if self.days is None else since(self.days, now)
        return [number for number, spending in enumerate(stored) if start is None or spending.when > start]


def check_days(days: float) -> None:
    """Refuse a period that is too short or too long."""
    if not 0 < days <= MOST_DAYS:
        raise PrivacyError(f"a period has more than 0 and at most {MOST_DAYS:g} days, not {days} [PR036]")


def since(days: float, now: datetime) -> datetime:
    """The time ``days`` days before now; only later times lie within the period."""
    check_days(days)
    return now - timedelta(days=days)


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


def spent(
    observer: Observer, delta: float, days: float | None, stored: Sequence[Spending], owner: str, now: datetime
) -> float:
    """What an observer has learned in all, or from what was reserved in the last days."""
    sight = Sight([spending.told for spending in stored], owner)
    counted = Limit(Budget(OTHERS, 1.0, delta), days).counted(stored, now)
    return sight.total(sight.named(observer), delta, counted).epsilon


def totals(
    delta: float, days: float | None, stored: Sequence[Spending], owner: str, now: datetime
) -> dict[str, accountant.Bound]:
    """What everybody who has a row has learned, alone and in groups within the thresholds."""
    sight = Sight([spending.told for spending in stored], owner)
    counted = Limit(Budget(OTHERS, 1.0, delta), days).counted(stored, now)
    return {who.label: sight.total(who, delta, counted) for who in sight.standard()}


def course(
    delta: float, stored: Sequence[Spending], owner: str, most: int
) -> tuple[list[datetime], dict[str, list[float]]]:
    """At most so many moments, and what everybody alone, and all others together, had learned by then."""
    counts = sorted({round(k * len(stored) / most) for k in range(1, most + 1)} - {0})
    sight = Sight([spending.told for spending in stored], owner)
    alone = [who for who in sight.standard() if "+" not in who.label]
    found = {who.label: [sight.total(who, delta, range(count)).epsilon for count in counts] for who in alone}
    return [stored[count - 1].when for count in counts], found


def labels(studies: Sequence[Told], owner: str) -> set[str]:
    """The labels of everybody who took part in these studies, and every name they used."""
    known = Sight(studies, owner).everybody.somebodies
    return {who.label for who in known} | {name for told in studies for name in told.names}


def refusals(
    caps: Sequence[Budget],
    periods: Sequence[Period],
    stored: Sequence[Spending],
    new: Told,
    owner: str,
    now: datetime,
) -> list[str]:
    """One sentence for each observer whose cap the new study would exceed, the one furthest over first."""
    sight, last = Sight([*(spending.told for spending in stored), new], owner), len(stored)
    found: dict[str, float] = {}
    for limit in limits(caps, periods):
        before = limit.counted(stored, now)
        for who in sight.capped(limit.cap):
            if who.tokens is not None and all(seen.empty for seen in sight.views(last, who)):
                continue  # it is told nothing, and held to no other relation than before
            after = sight.total(who, limit.cap.delta, [*before, last])
            if after.epsilon > limit.cap.epsilon:
                why = [after.reason] if after.reason else []
                why += [_patience(limit, sight, stored, before, who)] if limit.days is not None else []
                found[_sentence(limit, sight, before, who, why)] = after.epsilon / limit.cap.epsilon
    shown = sorted(found, key=lambda text: -found[text])
    return shown if len(shown) <= _SHOWN else [*shown[:_SHOWN], f"{len(shown) - _SHOWN} more observers"]


def remainders(
    caps: Sequence[Budget], periods: Sequence[Period], stored: Sequence[Spending], owner: str, now: datetime
) -> tuple[Left, ...]:
    """What every cap leaves, observer by observer."""
    sight = Sight([spending.told for spending in stored], owner)
    found: dict[Left, None] = {}
    for limit in limits(caps, periods):
        cap, counted = limit.cap, limit.counted(stored, now)
        for who in sight.capped(cap) if stored or cap.named else ():
            figure = sight.total(who, cap.delta, counted).epsilon
            found[Left(who.label, cap.epsilon, cap.delta, limit.days, figure)] = None
        if not stored and not cap.named:
            found[Left(cap.selector, cap.epsilon, cap.delta, limit.days, 0.0)] = None
    return tuple(found)


def foreseen(
    caps: Sequence[Budget],
    periods: Sequence[Period],
    stored: Sequence[Spending],
    new: Told,
    attempts: int,
    owner: str,
    now: datetime,
) -> tuple[Foreseen, ...]:
    """What every cap would leave after a new study, observer by observer."""
    sight, count = Sight([*(spending.told for spending in stored), *[new] * attempts], owner), len(stored)
    found: dict[Foreseen, None] = {}
    for limit in limits(caps, periods):
        cap, before = limit.cap, limit.counted(stored, now)
        for who in sight.capped(cap):
            spent, after, most = (
                sight.total(who, cap.delta, [*before, *range(count, count + runs)]).epsilon for runs in (0, 1, attempts)
            )
            found[Foreseen(Left(who.label, cap.epsilon, cap.delta, limit.days, spent), after, most)] = None
    return tuple(found)


def watched(caps: Sequence[Budget]) -> tuple[Budget, ...]:
    """The caps, with that of the analyst also for what the coordinator sees.

    Whoever proposes through a hub sees when attempts begin and end, hence about how many rows there are: what holds for
    the coordinator holds for it, and what holds for a reader of the result alone does not.
    """
    own = [Budget(COORDINATOR, cap.epsilon, cap.delta, AT_THE_HUB) for cap in caps if cap.selector == ANALYST.label]
    return (*caps, *own)


def with_others(caps: Sequence[Budget]) -> tuple[Budget, ...]:
    """The caps, with one for all others together: if none is given, the largest of those for a kind of observer.

    Where there is none for a kind, the largest of all; who allows one observer much need not allow everybody so much.
    """
    if not caps or any(cap.selector == OTHERS for cap in caps):
        return tuple(caps)
    kinds = [cap for cap in caps if not cap.named]
    largest = max(kinds or caps, key=lambda cap: cap.epsilon)
    return (*caps, Budget(OTHERS, largest.epsilon, largest.delta))


def limits(caps: Sequence[Budget], periods: Sequence[Period]) -> Iterator[Limit]:
    """Every cap that is checked, with that of all others together."""
    yield from (Limit(cap, None) for cap in with_others(caps))
    for period in periods:
        # A period slows spending; what all others learn for ever is capped above, so only `everyone` implies them here.
        whole = any(cap.selector == EVERYONE for cap in period.budgets)
        yield from (Limit(cap, period.days) for cap in (with_others(period.budgets) if whole else period.budgets))


def _sentence(limit: Limit, sight: Sight, before: Sequence[int], who: Across, why: Sequence[str]) -> str:
    cap, last = limit.cap, len(sight.studies) - 1
    spent, asked = (sight.total(who, cap.delta, counted).epsilon for counted in (before, [last]))
    left = Left(who.label, cap.epsilon, cap.delta, limit.days, spent).left
    span = "" if limit.days is None else f" in {limit.days:g} days"
    name = f"{OTHERS} (all others together)" if who.others else cap.called or Observer.parse(who.label).short
    text = f"{name}: spent {rounded_up(spent)}, asked {rounded_up(asked)}, left {left:g} of {cap.epsilon:g}"
    section = "[policy.budget]" if limit.days is None else "[[policy.periods]]"
    raised = [f"`{OTHERS}` in the epsilon of {section} sets this cap"] if who.others else []
    reasons = [*why, *raised]
    return f"{text}{span} at delta {cap.delta:g}" + (f" ({'; '.join(reasons)})" if reasons else "")


def _patience(limit: Limit, sight: Sight, stored: Sequence[Spending], before: Sequence[int], who: Across) -> str:
    """A text that says when enough of a period's spending is too old to count, so that the new events fit."""
    last = len(sight.studies) - 1

    def fits(dropped: int) -> bool:
        return sight.total(who, limit.cap.delta, [*before[dropped:], last]).epsilon <= limit.cap.epsilon

    if not fits(len(before)):
        return "more than the period allows even by itself"
    low, high = 0, len(before)  # dropping `low` of the oldest is too few, dropping `high` is enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    moment = stored[before[high - 1]].when + timedelta(days=limit.days or 0.0, minutes=1, microseconds=-1)
    return f"enough will have aged out on {moment:%Y-%m-%d} at {moment:%H:%M} UTC"
