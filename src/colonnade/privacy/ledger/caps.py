"""What is left of a party's caps: for all time, and within rolling periods."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from colonnade.errors import BudgetError, PrivacyError
from colonnade.privacy.events import Event, check_sources
from colonnade.privacy.ledger.groups import ANALYST, Across, Sight
from colonnade.privacy.ledger.people import People, Told
from colonnade.privacy.observers import COORDINATOR, EVERYONE, OTHERS, Budget, Observer, Trust
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


def labels(studies: Sequence[Told], owner: str) -> set[str]:
    """The labels of everybody who took part in these studies, and every name they used."""
    known = Sight(studies, owner).everybody.somebodies
    return {who.label for who in known} | {name for told in studies for name in told.names}


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


class Accounts:
    """What a party's studies told so far, the oldest first, and what that leaves of its caps."""

    def __init__(self, stored: Sequence[Spending], owner: str, now: datetime) -> None:
        self._stored, self._owner, self._now = stored, owner, now

    def told(self, events: Sequence[Event], trust: Trust, keys: Mapping[str, str] | None) -> Told:
        """What a study would tell; without keys, names are taken for them."""
        return Told(tuple(events), trust, People.of(self._owner, keys or {}, trust))

    def _sight(self, *new: Told) -> Sight:
        return Sight([*(spending.told for spending in self._stored), *new], self._owner)

    def spent(self, observer: Observer, delta: float, days: float | None) -> float:
        """What an observer has learned in all, or from what was reserved in the last days."""
        sight = self._sight()
        return sight.total(sight.named(observer), delta, self._within(days)).epsilon

    def totals(self, delta: float, days: float | None) -> dict[str, float]:
        """What everybody who has a row has learned, alone and in groups within the thresholds."""
        sight, counted = self._sight(), self._within(days)
        return {who.label: sight.total(who, delta, counted).epsilon for who in sight.standard()}

    def _within(self, days: float | None) -> list[int]:
        return Limit(Budget(OTHERS, 1.0, 0.5), days).counted(self._stored, self._now)

    def course(self, delta: float, most: int) -> tuple[list[datetime], dict[str, list[float]]]:
        """At most so many moments, and what everybody alone, and all others together, had learned by then."""
        counts = sorted({round(k * len(self._stored) / most) for k in range(1, most + 1)} - {0})
        sight = self._sight()
        alone = [who for who in sight.standard() if "+" not in who.label]
        found = {who.label: [sight.total(who, delta, range(count)).epsilon for count in counts] for who in alone}
        return [self._stored[count - 1].when for count in counts], found

    def refuse(self, study: str, new: Told, caps: Sequence[Budget], periods: Sequence[Period]) -> None:
        """Raise an error if a study does not keep every cap."""
        check_sources(new.events)
        if problems := self.refusals(caps, periods, new):
            raise BudgetError(f"study {study!r} is over budget: {'; '.join(problems)} [BU002]")

    def refusals(self, caps: Sequence[Budget], periods: Sequence[Period], new: Told) -> list[str]:
        """One sentence for each observer whose cap the new study would exceed, the one furthest over first."""
        sight, last = self._sight(new), len(self._stored)
        found: dict[str, float] = {}
        for limit in limits(caps, periods):
            before = limit.counted(self._stored, self._now)
            for who in sight.capped(limit.cap):
                if who.tokens is not None and all(seen.empty for seen in sight.views(last, who)):
                    continue  # it is told nothing, and held to no other relation than before
                after = sight.total(who, limit.cap.delta, [*before, last])
                if after.epsilon > limit.cap.epsilon:
                    why = [after.reason] if after.reason else []
                    why += [_patience(limit, sight, self._stored, before, who)] if limit.days is not None else []
                    found[_sentence(limit, sight, before, who, why)] = after.epsilon / limit.cap.epsilon
        shown = sorted(found, key=lambda text: -found[text])
        return shown if len(shown) <= _SHOWN else [*shown[:_SHOWN], f"{len(shown) - _SHOWN} more observers"]

    def remainders(self, caps: Sequence[Budget], periods: Sequence[Period]) -> tuple[Left, ...]:
        """What every cap leaves, observer by observer."""
        found: dict[Left, None] = {}
        sight = self._sight()
        for limit in limits(caps, periods):
            if self._stored or limit.cap.named:
                found |= dict.fromkeys(left for (left,) in self._left_after(limit, sight))
            else:
                found[Left(limit.cap.selector, limit.cap.epsilon, limit.cap.delta, limit.days, 0.0)] = None
        return tuple(found)

    def foreseen(
        self, caps: Sequence[Budget], periods: Sequence[Period], new: Told, attempts: int
    ) -> tuple[Foreseen, ...]:
        """What every cap would leave after a new study, observer by observer."""
        sight = self._sight(*[new] * attempts)
        found = (each for limit in limits(caps, periods) for each in self._left_after(limit, sight, 1, attempts))
        return tuple(dict.fromkeys(Foreseen(*each) for each in found))

    def _left_after(self, limit: Limit, sight: Sight, *runs: int) -> Iterator[tuple[Any, ...]]:
        """For everybody whom a cap speaks of what is left, then what would be spent after so many new studies."""
        cap, count, before = limit.cap, len(self._stored), limit.counted(self._stored, self._now)
        for who in sight.capped(cap):
            now, *later = (
                sight.total(who, cap.delta, [*before, *range(count, count + each)]).epsilon for each in (0, *runs)
            )
            yield Left(who.label, cap.epsilon, cap.delta, limit.days, now), *later
