"""What is left of a party's caps, for all time and within rolling periods, and a quick check that they are kept.

What an aborted study told whoever asked is in no epsilon, so such studies are counted; no event is read for that.

What each entry of a ledger cost whom is kept as numbers that add up, so that a reservation composes nothing anew. Every
route of the accountant that is used for them depends on sums over the views, and grows with each of them. So what many
studies cost together is bounded by one short list of numbers, however many they are. The bound is at least what the
accountant finds; ``docs/theory/across-studies.md`` has the reasons. It shows that a cap is kept, never that it is not.

A row of ``sums`` holds the costs of one entry: for somebody outside, for the analyst, as a bound for every group, and
for the groups about which a cap once asked. It is sealed with a hash of itself and of the change by which the entry was
reserved. Rows are a cache: one that is missing or altered is not used but made anew from the entry. A seal is no
signature: what somebody altered and sealed anew is used, if it can be read, and shows in ``verify``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.disk import reading
from colonnade.errors import BudgetError, LedgerError, PolicyError, PrivacyError
from colonnade.privacy.accountant import DoubledProfile, PrivacyProfile, PureProfile, ShiftedProfile, add_remove_view
from colonnade.privacy.accounting.mixtures import (
    MOST_CLOSENESS,
    ORDERS,
    REACHES,
    GaussianCloseness,
    GaussianMixture,
    RenyiProfile,
    closeness_of,
    gaussian_square,
    view_rdp,
)
from colonnade.privacy.events import check_sources
from colonnade.privacy.ledger.participants import (
    ANALYST,
    MOST_NAMED,
    CrossStudyObserver,
    CrossStudyViews,
    DisclosedStudy,
    StudyParticipants,
    as_observer,
    read_study,
    views_of_anybody,
    views_of_group,
)
from colonnade.privacy.ledger.storage import check_texts
from colonnade.privacy.noise_laws import PURE, NonPrivate, View
from colonnade.privacy.observers import COORDINATOR, EVERYONE, OTHERS, Adjacency, Budget, Observer, Trust
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


ALIGNED = "people were aligned for "
"""How the ledger calls a note of an alignment, with the name of the study."""
ASKED_BY = ", asked for by "
"""What follows in the note where somebody asked for it; a study's name has no comma."""


@dataclass(frozen=True)
class AlignmentsLimit:
    """How many alignments may be made within so many days, before there are no more: by all, and for one who asks."""

    at_most: int
    days: float
    at_most_each: int

    def check(self, made: Sequence[tuple[datetime, str]], owner: str, asked_by: str) -> None:
        """Raise an error if no more may be made now, by when those before were made, and for whom."""
        for found, most, whose in (
            ([when for when, who in made if asked_by and who == asked_by], self.at_most_each, f" for {asked_by}"),
            ([when for when, _ in made], self.at_most, ""),
        ):
            if len(found) >= most:
                free = sorted(found)[len(found) - most] + timedelta(days=self.days)
                raise PolicyError(
                    f"{owner} aligned its people {len(found)} times{whose} within {self.days:g} days, and its policy "
                    f"allows {most}: the next is possible on {free:%Y-%m-%d} at {free:%H:%M} UTC. See for which "
                    "studies by `colonnade ledger export`, and raise at_most, or at_most_each for one who asks, of "
                    "[policy.alignments] if that was in order [PO701]"
                )


def list_alignments(base: sqlite3.Connection, days: float, now: datetime) -> list[tuple[datetime, str]]:
    """When alignments were begun within the last days, and who had asked for each, by the notes of them."""
    query = f"SELECT e.id, e.created, {_RELEASED}, e.study, e.digest FROM entries e ORDER BY e.id"  # noqa: S608 - fixed words
    found = base.execute(query).fetchall()
    when = effective_dates([(read_time(number, created), bool(out)) for number, created, out, *_ in found], now)
    return [
        (moment, study.partition(ASKED_BY)[2])
        for (*_, study, digest), moment in zip(found, when, strict=True)
        if not digest and study.startswith(ALIGNED) and moment > period_start(days, now)
    ]


def read_time(number: int, created: str) -> datetime:
    """When an entry was written."""
    try:
        return datetime.fromisoformat(created).astimezone(UTC)
    except (ValueError, TypeError, OverflowError) as error:
        raise LedgerError(f"entry {number} of the ledger has no readable time [LE011]") from error


CostVector = NDArray[np.float64]

_WANTED = (2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 192, 256, 512, 1024, 4096)
PICKED = np.array([int(np.flatnonzero(order == ORDERS)[0]) for order in _WANTED])
"""Which orders of the Renyi divergence are summed: fewer than the accountant has, which only costs precision."""
_MARGIN = 1e-9
"""Sums of up to a billion numbers are exact to far less than this part of themselves; results are raised by it."""
_SMALLER = (30.0, 10.0, 3.0, 1.0, 0.3)
_SCALARS = 5
_SQUARE, _PURE, _SAMPLER, _NOISY, _HIDDEN = range(_SCALARS)
_NEAR = slice(_SCALARS, _SCALARS + 2 * len(REACHES))
_KNOWN = slice(_NEAR.stop, _NEAR.stop + len(PICKED))
_SECRET = slice(_KNOWN.stop, _KNOWN.stop + len(PICKED))
SIZE = _SECRET.stop


def sum_costs(views: Iterable[View]) -> CostVector:
    """The costs of one observer's views, all under one relation."""
    total = np.zeros(SIZE)
    for view in views:
        if not view.empty:
            total = total + _view_cost(view)
    return total


@lru_cache(maxsize=4096)
def _view_cost(view: View) -> CostVector:
    found = np.zeros(SIZE)
    if view.kind == NonPrivate.kind:
        found[:] = math.inf
        return found
    # Who knows the batches knows more, and being in fewer of them only costs less.
    everywhere, known = replace(view, rate=type(view.rate)(1)), replace(view, coins_known=True)
    # What is lost of delta whatever epsilon is counts here as if it grew with epsilon, which is never too little.
    found[_SAMPLER], found[_HIDDEN] = view.draws * view.tail + view.lost * view.times, float(view.secret_batch)
    if view.kind == PURE:
        found[_PURE] = view.pure * view.times
    else:
        found[_NOISY] = 1.0
        found[_SQUARE] = gaussian_square(everywhere) * view.times
        near = [closeness_of(everywhere, reach) for reach in REACHES]
        found[_NEAR] = [number for one in near for number in (one.close, one.outside)]
    with np.errstate(over="ignore", invalid="ignore"):
        found[_KNOWN] = view_rdp(known)[PICKED]
        alone = view if view.adjacency is Adjacency.ADD_REMOVE else add_remove_view(view)
        found[_SECRET] = view_rdp(alone)[PICKED]
    return np.where(np.isnan(found), math.inf, found)


def keeps_cap(cap: Budget, total: CostVector, relation: Adjacency) -> bool:
    """Whether such costs are seen to keep a cap; false does not mean that they exceed it."""
    if math.isinf(total[_SAMPLER]):
        return False
    if not np.any(total):
        return True
    profiles = list(_profiles(total * (1 + _MARGIN), relation))
    # What holds at an epsilon holds at every larger one, where the sampler's part of delta would be larger.
    for epsilon in (cap.epsilon * (1 - _MARGIN), *(less for less in _SMALLER if less < cap.epsilon)):
        for profile in profiles:
            if profile.deltas(np.array([epsilon]))[0] <= cap.delta * (1 - _MARGIN):  # not so for what is no number
                return True
    return False


def _profiles(total: CostVector, relation: Adjacency) -> Iterable[PrivacyProfile]:
    sampler, pure = float(total[_SAMPLER]), float(total[_PURE])
    if total[_NOISY]:
        pairs = total[_NEAR].reshape(-1, 2)
        near = tuple(
            GaussianCloseness(float(c), float(o)) for c, o in pairs if c <= MOST_CLOSENESS and math.isfinite(o)
        )
        if near and math.isfinite(total[_SQUARE]):
            yield ShiftedProfile(GaussianMixture([(float(total[_SQUARE]), 1, 1.0)]), pure, near, sampler)
    else:
        yield ShiftedProfile(PureProfile(pure), 0.0, sampler=sampler)
    yield ShiftedProfile(_renyi(total[_KNOWN]), 0.0, sampler=sampler)
    if total[_HIDDEN]:
        secret = ShiftedProfile(_renyi(total[_SECRET]), 0.0, sampler=sampler)
        yield secret if relation is Adjacency.ADD_REMOVE else DoubledProfile(secret)


def _renyi(picked: CostVector) -> RenyiProfile:
    tau = np.full(len(ORDERS), math.inf)
    tau[PICKED] = picked
    return RenyiProfile(tau)


BY_ANALYST = "analyst"
ANYBODY = "anybody"
"""In place of a group: at least the costs of each group within the threshold."""
OUTSIDE = json.dumps(["", []])
_MOST_MET = 40
"""With more parties than these, pairs are told apart by their events, so there are no sums of single groups."""
_ENTRIES = (
    "SELECT e.id, e.created, e.trust, h.hash, p.known, s.content, s.seal, "
    "EXISTS (SELECT 1 FROM changes r WHERE r.entry = e.id AND r.state = 'released') FROM entries e "
    "JOIN changes c ON c.entry = e.id AND c.state = 'reserved' JOIN chain h ON h.change = c.id "
    "LEFT JOIN people p ON p.entry = e.id LEFT JOIN sums s ON s.first = e.id AND s.last = e.id ORDER BY e.id"
)
_Arrangement = tuple[str, str | None]
"""The texts of who is trusted and who took part."""


@dataclass
class EntryCosts:
    """One entry that counts, and what it cost each group of which that is known."""

    number: int
    link: str
    texts: _Arrangement
    known: dict[str, CostVector]
    changed: bool = False

    @classmethod
    def read(cls, number: int, link: str, texts: _Arrangement, content: str | None, seal: str | None) -> EntryCosts:
        """The row as it is stored; without any costs if it is not whole."""
        row = cls(number, link, texts, {})
        try:
            if seal is not None and seal == row.seal(content or ""):
                value = reading.parse_json(content or "")
                numbers = np.frombuffer(base64.b64decode(value["numbers"]), dtype=np.float64).reshape(-1, SIZE)
                names = {*arrangement_only(*texts).names}
                groups = [key for key in value["groups"] if key not in (BY_ANALYST, ANYBODY)]
                if np.all(numbers > -np.inf) and all(names.issuperset(_group(key)[1]) for key in groups):
                    row.known = dict(zip(value["groups"], numbers, strict=True))  # a cost may be infinite, or a number
        except (ValueError, TypeError, KeyError, AttributeError, binascii.Error, reading.MalformedFile):
            pass
        return row

    def seal(self, content: str) -> str:
        """The seal of this content."""
        return hashlib.sha256(f"{self.number} {self.link} {content}".encode()).hexdigest()

    def content(self) -> str:
        """The text that is stored and sealed."""
        numbers = np.concatenate([np.zeros(0), *self.known.values()])
        return json.dumps({"groups": list(self.known), "numbers": base64.b64encode(numbers.tobytes()).decode()})


class CostCache:
    """The costs of all entries that count; of a file of an earlier version, none are stored."""

    def __init__(self, base: sqlite3.Connection, now: datetime) -> None:
        self._base = base
        self.stored = base.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sums'").fetchone() is not None
        found = base.execute(_ENTRIES).fetchall() if self.stored else []
        when = effective_dates([(read_time(*check_texts(entry[:2])), bool(entry[-1])) for entry in found], now)
        self.rows = [
            (at, EntryCosts.read(number, link, (trust, people), content, seal))
            for at, (number, _, trust, link, people, content, seal, released) in zip(when, found, strict=True)
            if not released
        ]
        self._own: dict[str, CostVector] = {}

    def shows_caps_kept(
        self, told: DisclosedStudy, caps: Sequence[Budget], periods: Sequence[CapPeriod], owner: str, now: datetime
    ) -> bool:
        """Whether a study surely keeps all caps; false does not mean that it exceeds one."""
        own = told.trust.to_json(), told.people.to_json()
        arrangements = list(dict.fromkeys([own, *(row.texts for _, row in self.rows)]))
        asked = _CapCheck(
            self,
            CrossStudyViews([arrangement_only(*texts) for texts in arrangements], owner, _MOST_MET),
            arrangements,
            told,
        )
        return self.stored and all(
            asked.keep(
                limit.cap, [row for at, row in self.rows if limit.days is None or at > period_start(limit.days, now)]
            )
            for limit in all_limits(caps, periods)
        )

    def cost(self, row: EntryCosts, key: str) -> CostVector:
        """What an entry cost a group; made from its events where it is not known yet."""
        if key not in row.known:
            events = self._base.execute("SELECT events FROM entries WHERE id = ?", (row.number,)).fetchone()[0]
            row.known[key], row.changed = study_costs(read_study(events, *row.texts), key), True
        return row.known[key]

    def cost_of_new(self, told: DisclosedStudy, key: str) -> CostVector:
        """What a study that is asked for would cost a group."""
        if key not in self._own:
            self._own[key] = study_costs(told, key)
        return self._own[key]

    def store(self, number: int, told: DisclosedStudy) -> None:
        """Keep what is known now, also of an entry that was just reserved; whoever comes later was outside of it."""
        link = self._base.execute(
            "SELECT h.hash FROM chain h JOIN changes c ON c.id = h.change WHERE c.entry = ? AND c.state = 'reserved'",
            (number,),
        ).fetchone()[0]
        known = {key: self.cost_of_new(told, key) for key in (BY_ANALYST, OUTSIDE, ANYBODY, *self._own)}
        new = EntryCosts(number, link, (told.trust.to_json(), told.people.to_json()), known, changed=True)
        for row in (*(row for _, row in self.rows if row.changed), new):
            content = row.content()
            stored = (row.number, row.number, content, row.seal(content))
            self._base.execute("INSERT OR REPLACE INTO sums VALUES (?, ?, ?, ?)", stored)

    def first_wrong(self) -> int | None:
        """The number of an entry whose costs are sealed and yet do not follow from it."""
        for _, row in self.rows:
            fresh = EntryCosts(row.number, row.link, row.texts, {})
            if not all(np.allclose(self.cost(fresh, key), held, rtol=1e-9) for key, held in row.known.items()):
                return row.number
        return None


class _CapCheck:
    """Looks whether caps are kept by everybody of whom they speak; the first arrangement is that of the new study."""

    def __init__(
        self, sums: CostCache, sight: CrossStudyViews, arrangements: Sequence[_Arrangement], told: DisclosedStudy
    ) -> None:
        self._sums, self._sight, self._arrangements, self._told = sums, sight, arrangements, told

    def keep(self, cap: Budget, counted: Sequence[EntryCosts]) -> bool:
        """Whether a cap is seen to be kept, after these entries and the new study."""
        if cap.named or cap.selector == OTHERS:
            return self._keep(self._sight.observers_of_cap(cap), cap, counted)
        if cap.selector == EVERYONE and not self._keep([ANALYST], cap, counted):
            return False
        bound = self._sum([ANYBODY] * len(self._arrangements), counted)
        if bound is not None and keeps_cap(cap, bound, Adjacency.REPLACE):
            return True
        # Groups are listed without events; of many, one stands for all that are alike in every event.
        if len(self._sight.everybody.somebodies) > _MOST_MET:
            return False
        if any(len(told.trust.owners) > MOST_NAMED for told in self._sight.studies):
            return False
        return self._keep([who for who in self._sight.observers_of_cap(cap) if who is not ANALYST], cap, counted)

    def _keep(self, some: Sequence[CrossStudyObserver], cap: Budget, counted: Sequence[EntryCosts]) -> bool:
        for who in some:
            relation = self._relation(who, counted)
            total = self._sum(self._keys(who, relation), counted)
            if total is None or not keeps_cap(cap, total, relation):
                return False
        return True

    def _relation(self, who: CrossStudyObserver, counted: Sequence[EntryCosts]) -> Adjacency:
        there = {row.texts for row in counted} | {self._arrangements[0]}
        numbers = [number for number, texts in enumerate(self._arrangements) if texts in there]
        return self._sight.relation(who, numbers)

    def _keys(self, who: CrossStudyObserver, relation: Adjacency) -> list[str | None]:
        """The group that an observer is in each arrangement; ``None`` if it is above the threshold, and named."""
        found: list[str | None] = []
        for number, told in enumerate(self._sight.studies):
            names = self._sight.names_in_study(number, who)
            if names is None:
                found.append(BY_ANALYST if relation is Adjacency.ADD_REMOVE else OUTSIDE)
            elif not who.held and told.trust.broken(as_observer(names)) is not None:
                found.append(None)
            else:
                found.append(json.dumps(["others" if who.others else "", sorted(names)]))
        return found

    def _sum(self, keys: Sequence[str | None], counted: Iterable[EntryCosts]) -> CostVector | None:
        """The costs of somebody who is one group in each arrangement; ``None`` if the study promises nothing then."""
        of, found = dict(zip(self._arrangements, keys, strict=True)), []
        for row in counted:
            if (key := of[row.texts]) is None:
                return None
            found.append(self._sums.cost(row, key))
        if (own := keys[0]) is None:
            return None
        return np.asarray(np.sum([*found, self._sums.cost_of_new(self._told, own)], axis=0))


def study_costs(told: DisclosedStudy, key: str) -> CostVector:
    """What a study tells a group."""
    if key == ANYBODY:
        return sum_costs(views_of_anybody(told))
    if key == BY_ANALYST:
        return sum_costs(views_of_group(told, None, True, False, Adjacency.ADD_REMOVE))
    others, names = _group(key)
    return sum_costs(views_of_group(told, names, True, others, Adjacency.REPLACE))


@lru_cache(maxsize=4096)
def _group(key: str) -> tuple[bool, frozenset[str]]:
    """Whether a key is about all others together, and the names of a group."""
    others, names = reading.parse_json(key)
    if others not in ("", "others") or not isinstance(names, list):
        raise ValueError("no key of a group [VA115]")
    return bool(others), frozenset(names)


@lru_cache(maxsize=1024)
def arrangement_only(trust: str, people: str | None) -> DisclosedStudy:
    """A study of this arrangement in which nothing was told."""
    return DisclosedStudy((), Trust.from_json(trust), StudyParticipants.from_json(people))
