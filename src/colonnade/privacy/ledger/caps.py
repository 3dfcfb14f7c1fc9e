"""What is left of a party's caps, for all time and within rolling periods, and how many of its studies were aborted.

What an aborted study told whoever asked is in no epsilon, so such studies are counted; no event is read for that.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from colonnade.errors import BudgetError, LedgerError, PrivacyError
from colonnade.privacy.events import check_sources
from colonnade.privacy.ledger.coalitions import ANALYST, CrossStudyObserver, CrossStudyViews
from colonnade.privacy.ledger.participants import DisclosedStudy
from colonnade.privacy.observers import COORDINATOR, EVERYONE, OTHERS, Budget, Observer
from colonnade.privacy.statement import format_rounded_up

MOST_DAYS = 36525.0
"""The longest period: a hundred years."""
AT_THE_HUB = "analyst at the hub"
"""A member who proposes studies and watches the hub."""
_SHOWN = 8


@dataclass(frozen=True)
class CapPeriod:
    """Caps on what is reserved within any ``days`` days; they slow spending, but do not limit all that is learned."""

    days: float
    budgets: tuple[Budget, ...]

    def __post_init__(self) -> None:
        check_days(self.days)


@dataclass(frozen=True)
class StudySpending:
    """What one study tells, and when it was reserved."""

    when: datetime
    content: DisclosedStudy


@dataclass(frozen=True)
class RemainingBudget:
    """What is left of one cap for one observer; ``days`` is ``None`` for all time."""

    who: str
    epsilon: float
    delta: float
    days: float | None
    spent: float

    @property
    def remaining(self) -> float:
        """Cap less spent, rounded down to the digits that are printed."""
        return math.floor(max(0.0, self.epsilon - self.spent) * 1e4) / 1e4


@dataclass(frozen=True)
class BudgetForecast:
    """What a study that is not reserved yet would leave of one cap for one observer."""

    before: RemainingBudget
    after: float
    """Spent after it."""
    at_most: float
    """Spent if it takes as many attempts as it may, and each of them counts in full."""


@dataclass(frozen=True)
class CapLimit:
    """A cap, for ever or within so many days."""

    cap: Budget
    days: float | None

    def counted(self, stored: Sequence[StudySpending], now: datetime) -> list[int]:
        """The numbers of the studies that count; a time later than now (a clock that was set back) counts."""
        start = None if self.days is None else period_start(self.days, now)
        return [number for number, spending in enumerate(stored) if start is None or spending.when > start]


def check_days(days: float) -> None:
    """Refuse a period that is too short or too long."""
    if not 0 < days <= MOST_DAYS:
        raise PrivacyError(f"a period has more than 0 and at most {MOST_DAYS:g} days, not {days} [PR036]")


def period_start(days: float, now: datetime) -> datetime:
    """The time ``days`` days before now; only later times lie within the period."""
    check_days(days)
    return now - timedelta(days=days)


def find_future_dates(stored: Sequence[tuple[datetime, bool]], now: datetime) -> tuple[bool, datetime | None]:
    """Whether a counted entry is dated later than now, and the first date up to now that follows the last such entry.

    An entry is given as its date and whether it was released.
    """
    late = [place for place, (when, released) in enumerate(stored) if when > now and not released]
    later = stored[late[-1] + 1 :] if late else ()
    return bool(late), next((when for when, _ in later if when <= now), None)


def effective_dates(stored: Sequence[tuple[datetime, bool]], now: datetime) -> list[datetime]:
    """When each entry counts as reserved, even if a clock was wrong; never earlier than a correct clock says.

    No entry is older than a counted one before it. An entry that is dated later than now was written with a wrong
    clock: it counts as new until an entry with a possible date follows, and then as old as that one.
    """
    _, bound = find_future_dates(stored, now)
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


def participant_labels(studies: Sequence[DisclosedStudy], owner: str) -> set[str]:
    """The labels of everybody who took part in these studies, and every name they used."""
    known = CrossStudyViews(studies, owner).everybody.somebodies
    return {who.label for who in known} | {name for told in studies for name in told.names}


def with_hub_analyst(caps: Sequence[Budget]) -> tuple[Budget, ...]:
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


def all_limits(caps: Sequence[Budget], periods: Sequence[CapPeriod]) -> Iterator[CapLimit]:
    """Every cap that is checked, with that of all others together."""
    yield from (CapLimit(cap, None) for cap in with_others(caps))
    for period in periods:
        # A period slows spending; what all others learn for ever is capped above, so only `everyone` implies them here.
        whole = any(cap.selector == EVERYONE for cap in period.budgets)
        yield from (CapLimit(cap, period.days) for cap in (with_others(period.budgets) if whole else period.budgets))


def _sentence(
    limit: CapLimit, sight: CrossStudyViews, before: Sequence[int], who: CrossStudyObserver, why: Sequence[str]
) -> str:
    cap, last = limit.cap, len(sight.studies) - 1
    spent, asked = (sight.total(who, cap.delta, counted).epsilon for counted in (before, [last]))
    left = RemainingBudget(who.label, cap.epsilon, cap.delta, limit.days, spent).remaining
    span = "" if limit.days is None else f" in {limit.days:g} days"
    name = f"{OTHERS} (all others together)" if who.others else cap.called or Observer.parse(who.label).short
    text = (
        f"{name}: spent {format_rounded_up(spent)}, asked {format_rounded_up(asked)}, left {left:g} of {cap.epsilon:g}"
    )
    section = "[policy.budget]" if limit.days is None else "[[policy.periods]]"
    raised = [f"`{OTHERS}` in the epsilon of {section} sets this cap"] if who.others else []
    reasons = [*why, *raised]
    return f"{text}{span} at delta {cap.delta:g}" + (f" ({'; '.join(reasons)})" if reasons else "")


def _patience(
    limit: CapLimit,
    sight: CrossStudyViews,
    stored: Sequence[StudySpending],
    before: Sequence[int],
    who: CrossStudyObserver,
) -> str:
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


class SpendingAccounts:
    """What a party's studies told so far, the oldest first, and what that leaves of its caps."""

    def __init__(self, stored: Sequence[StudySpending], owner: str, now: datetime) -> None:
        self._stored, self._owner, self._now = stored, owner, now

    def _sight(self, *new: DisclosedStudy) -> CrossStudyViews:
        return CrossStudyViews([*(spending.content for spending in self._stored), *new], self._owner)

    def epsilon_spent(self, observer: Observer, delta: float, days: float | None) -> float:
        """What an observer has learned in all, or from what was reserved in the last days."""
        sight = self._sight()
        return sight.total(sight.observer_named(observer), delta, self._within(days)).epsilon

    def totals(self, delta: float, days: float | None) -> dict[str, float]:
        """What everybody who has a row has learned, alone and in groups within the thresholds."""
        sight, counted = self._sight(), self._within(days)
        return {who.label: sight.total(who, delta, counted).epsilon for who in sight.standard_observers()}

    def _within(self, days: float | None) -> list[int]:
        return CapLimit(Budget(OTHERS, 1.0, 0.5), days).counted(self._stored, self._now)

    def spending_over_time(self, delta: float, most: int) -> tuple[list[datetime], dict[str, list[float]]]:
        """At most so many moments, and what everybody alone, and all others together, had learned by then."""
        counts = sorted({round(k * len(self._stored) / most) for k in range(1, most + 1)} - {0})
        sight = self._sight()
        alone = [who for who in sight.standard_observers() if "+" not in who.label]
        found = {who.label: [sight.total(who, delta, range(count)).epsilon for count in counts] for who in alone}
        return [self._stored[count - 1].when for count in counts], found

    def refuse(self, study: str, new: DisclosedStudy, caps: Sequence[Budget], periods: Sequence[CapPeriod]) -> None:
        """Raise an error if a study does not keep every cap."""
        check_sources(new.events)
        if problems := self.refusals(caps, periods, new):
            raise BudgetError(f"study {study!r} is over budget: {'; '.join(problems)} [BU002]")

    def refusals(self, caps: Sequence[Budget], periods: Sequence[CapPeriod], new: DisclosedStudy) -> list[str]:
        """One sentence for each observer whose cap the new study would exceed, the one furthest over first."""
        sight, last = self._sight(new), len(self._stored)
        found: dict[str, float] = {}
        for limit in all_limits(caps, periods):
            before = limit.counted(self._stored, self._now)
            for who in sight.observers_of_cap(limit.cap):
                if who.tokens is not None and all(seen.empty for seen in sight.views(last, who)):
                    continue  # it is told nothing, and held to no other relation than before
                after = sight.total(who, limit.cap.delta, [*before, last])
                if after.epsilon > limit.cap.epsilon:
                    why = [after.reason] if after.reason else []
                    why += [_patience(limit, sight, self._stored, before, who)] if limit.days is not None else []
                    found[_sentence(limit, sight, before, who, why)] = after.epsilon / limit.cap.epsilon
        shown = sorted(found, key=lambda text: -found[text])
        return shown if len(shown) <= _SHOWN else [*shown[:_SHOWN], f"{len(shown) - _SHOWN} more observers"]

    def remainders(self, caps: Sequence[Budget], periods: Sequence[CapPeriod]) -> tuple[RemainingBudget, ...]:
        """What every cap leaves, observer by observer."""
        found: dict[RemainingBudget, None] = {}
        sight = self._sight()
        for limit in all_limits(caps, periods):
            if self._stored or limit.cap.named:
                found |= dict.fromkeys(left for (left,) in self._left_after(limit, sight))
            else:
                found[RemainingBudget(limit.cap.selector, limit.cap.epsilon, limit.cap.delta, limit.days, 0.0)] = None
        return tuple(found)

    def forecast(
        self, caps: Sequence[Budget], periods: Sequence[CapPeriod], new: DisclosedStudy, attempts: int
    ) -> tuple[BudgetForecast, ...]:
        """What every cap would leave after a new study, observer by observer."""
        sight = self._sight(*[new] * attempts)
        found = (each for limit in all_limits(caps, periods) for each in self._left_after(limit, sight, 1, attempts))
        return tuple(dict.fromkeys(BudgetForecast(*each) for each in found))

    def _left_after(self, limit: CapLimit, sight: CrossStudyViews, *runs: int) -> Iterator[tuple[Any, ...]]:
        """For everybody whom a cap speaks of what is left, then what would be spent after so many new studies."""
        cap, count, before = limit.cap, len(self._stored), limit.counted(self._stored, self._now)
        for who in sight.observers_of_cap(cap):
            now, *later = (
                sight.total(who, cap.delta, [*before, *range(count, count + each)]).epsilon for each in (0, *runs)
            )
            yield RemainingBudget(who.label, cap.epsilon, cap.delta, limit.days, now), *later


_ABORTED = "e.digest <> '' AND NOT EXISTS (SELECT 1 FROM changes c WHERE c.entry = e.id AND c.state = 'committed')"
_RELEASED = "EXISTS (SELECT 1 FROM changes c WHERE c.entry = e.id AND c.state = 'released')"


@dataclass(frozen=True)
class AbortedStudiesLimit:
    """How many studies may end early, or not have ended, within so many days, before there are no more."""

    at_most: int
    days: float


def count_aborted_studies(base: sqlite3.Connection, days: float | None, now: datetime) -> int:
    """How many studies did not end well, or have not ended: of all, or of those of the last days.

    An entry without a digest is no study but a note of the clock.
    """
    query = f"SELECT e.id, e.created, {_RELEASED}, {_ABORTED} FROM entries e ORDER BY e.id"  # noqa: S608 - fixed words
    found = base.execute(query).fetchall()
    if days is None:
        return sum(early for *_, early in found)
    when = effective_dates(
        [(read_time(number, created), bool(released)) for number, created, released, _ in found], now
    )
    return sum(early for (*_, early), moment in zip(found, when, strict=True) if moment > period_start(days, now))


def read_time(number: int, created: str) -> datetime:
    """When an entry was written."""
    try:
        return datetime.fromisoformat(created).astimezone(UTC)
    except (ValueError, TypeError, OverflowError) as error:
        raise LedgerError(f"entry {number} of the ledger has no readable time [LE011]") from error
