"""What all computations of one federation tell together: charged before each starts, and never taken back.

With a ledger it is written there, beside what other processes and studies spent. Without one it is kept in memory, for
this process alone (docs/theory/across-studies.md).
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import combinations
from os import PathLike
from typing import TYPE_CHECKING

from colonnade.disk import reading
from colonnade.errors import BudgetError, LedgerError, PrivacyError, StudyError
from colonnade.privacy import Adjacency, Budget, Event, Ledger, Observer, Trust, parse_budgets
from colonnade.privacy.events import check_sources
from colonnade.privacy.ledger.approvers import BY_PROGRAM
from colonnade.privacy.ledger.caps import RemainingBudget, SpendingAccounts, StudySpending
from colonnade.privacy.ledger.participants import MOST_NAMED, CrossStudyObserver, CrossStudyViews, DisclosedStudy
from colonnade.privacy.observers import COORDINATOR, OTHERS, check_delta
from colonnade.privacy.statement import StatementRow, account_row, format_html, format_text

if TYPE_CHECKING:
    from colonnade.drawing.canvas import Picture

_NO_LIMIT = 1e300  # a ledger caps all others of its own party together; here there is no own party
_FAILED = "every computation counts in full from its first share on, also one that failed"


@dataclass(frozen=True)
class SessionTotal:
    """What each observer learned from all computations together; it is printed as a privacy statement is.

    A group that exceeds the threshold of one computation has no guarantee in all: its row is infinite, with the reason.
    """

    rows: tuple[StatementRow, ...]
    computations: int
    delta: float
    left: tuple[RemainingBudget, ...] = ()
    sight: CrossStudyViews = field(default_factory=lambda: CrossStudyViews(()), repr=False, compare=False)

    def epsilon(self, observer: Observer | str) -> float:
        """What an observer learned in all, also one without a row; infinite if nothing protects."""
        seen = Observer.parse(observer) if isinstance(observer, str) else observer
        if not self.rows:
            return 0.0
        for row in self.rows:
            if row.observer == seen:
                return row.epsilon
        labels = {who.label for who in self.sight.everybody.somebodies}
        known = labels | {name for told in self.sight.studies for name in told.names}
        if strangers := sorted(set(seen.names) - known):
            there = reading.shorten(", ".join(["analyst", *sorted(labels)]))
            raise PrivacyError(f"nobody named {', '.join(strangers)} took part; there are {there} [PR012]")
        return _row(self.sight, self.sight.observer_named(seen), self.delta).epsilon

    def plot(self) -> Picture:
        """Draw what each observer learned in all and what caps leave."""
        if not self.rows:
            raise PrivacyError("nothing was revealed yet, so there is nothing to draw: fit a model first [PR013]")
        from colonnade.drawing.canvas import Picture
        from colonnade.privacy.statement import promises_chart

        return Picture([promises_chart(self.rows, self.left)])

    def __str__(self) -> str:
        return format_text(self.rows, self._assumptions) if self.rows else "nothing was revealed yet"

    def _repr_html_(self) -> str:
        return format_html(self.rows, self._assumptions) if self.rows else f"<p>{self}</p>"

    @property
    def _assumptions(self) -> tuple[str, ...]:
        many = "1 computation" if self.computations == 1 else f"{self.computations:,} computations together, each"
        return f"{many} with the assumptions of its own statement", _FAILED, *map(self._remains, self.left)

    def _remains(self, left: RemainingBudget) -> str:
        # A cap of a kind speaks of groups as far as each threshold lets them pool, and a row of all that they hold.
        held = math.isfinite(left.spent) and math.isinf(self.epsilon(left.who))
        within = " within the threshold of each computation" if held else ""
        return f"under the caps, {left.who} has {left.remaining:g} of {left.epsilon:g} left{within}"


class SessionBudget:
    """Everything that was charged so far, and the caps on all of it."""

    def __init__(
        self,
        ledger: Ledger | str | PathLike[str] | None,
        caps: float | Mapping[str, float] | None,
        delta: float,
        trust: Trust,
    ) -> None:
        if not isinstance(ledger, Ledger | str | PathLike | None):
            raise StudyError(f"ledger= takes a Ledger or the path of one, not {type(ledger).__name__} [ST074]")
        check_delta(delta)
        self.delta = delta
        self.caps: tuple[Budget, ...] = () if caps is None else parse_budgets(caps, delta, trust)
        self.ledger = ledger if isinstance(ledger, Ledger | None) else Ledger(ledger)
        self._kept: list[DisclosedStudy] = []
        self._lock = threading.Lock()

    @property
    def told(self) -> list[DisclosedStudy]:
        """Everything that counts."""
        if self.ledger is None:
            return list(self._kept)
        if not self.ledger.path.exists():
            return []
        return [entry.content for entry in self.ledger.entries() if entry.state != "released"]

    def total(self) -> SessionTotal:
        """What everybody learned so far, alone, in pairs, and in larger groups that some threshold allows."""
        told = self.told
        sight = CrossStudyViews(told)
        rows = tuple(_row(sight, who, self.delta) for who in _shown(sight)) if told else ()
        now = datetime.now(UTC)
        stored = [StudySpending(now, each) for each in told]
        left = SpendingAccounts(stored, "", now).remainders(self._limits, ()) if told else ()
        return SessionTotal(
            rows, len(told), self.delta, tuple(each for each in left if each.epsilon < _NO_LIMIT), sight
        )

    @contextmanager
    def charge(self, name: str, events: Sequence[Event], trust: Trust) -> Iterator[Callable[[], None]]:
        """Charge a computation; the caller calls what it gets before the first share leaves.

        If the computation fails before that, nothing was told, and the charge is given back.
        """
        if not events:  # an alignment, which releases no numbers
            yield lambda: None
            return
        way = self._in_memory if self.ledger is None else self._in_ledger
        with way(name, DisclosedStudy(tuple(events), trust)) as spend:
            yield spend

    @contextmanager
    def _in_ledger(self, name: str, told: DisclosedStudy) -> Iterator[Callable[[], None]]:
        ledger = self.ledger
        assert ledger is not None  # noqa: S101 - for the type checker; the caller looked
        entry = ledger.reserve(name, _digest(told), told.events, told.trust, self._limits, approvers=[BY_PROGRAM])

        def spend() -> None:
            with self._lock:
                if ledger.state(entry) == "reserved":
                    ledger.mark_sent(entry)

        try:
            yield spend
        except BaseException:
            with suppress(LedgerError):
                if ledger.state(entry) == "reserved":
                    ledger.release(entry)
            raise
        ledger.commit(entry)

    @contextmanager
    def _in_memory(self, name: str, told: DisclosedStudy) -> Iterator[Callable[[], None]]:
        sent = False

        def spend() -> None:
            nonlocal sent
            sent = True

        with self._lock:
            if self.caps:
                self._refuse(name, told)
            self._kept.append(told)
        try:
            yield spend
        except BaseException:
            if not sent:
                with self._lock:
                    self._kept.remove(told)
            raise

    @property
    def _limits(self) -> tuple[Budget, ...]:
        return (*self.caps, Budget(OTHERS, _NO_LIMIT, self.delta)) if self.caps else ()

    def _refuse(self, name: str, new: DisclosedStudy) -> None:
        check_sources(new.events)
        now = datetime.now(UTC)
        stored = [StudySpending(now, each) for each in self.told]
        if problems := SpendingAccounts(stored, "", now).refusals(self._limits, (), new):
            raise BudgetError(f"{name} is over the caps of this federation: {'; '.join(problems)} [BU001]")


def _shown(sight: CrossStudyViews) -> list[CrossStudyObserver]:
    """Everybody who has a row, as one would name them: nobody is taken to keep to a threshold that it exceeds."""
    found = {who.tokens: who for who in sight.standard_observers() if not who.others}
    known = sight.everybody.somebodies
    if len(known) <= MOST_NAMED + 1:
        for pair in map(sight.group, combinations(known, 2)):
            found.setdefault(pair.tokens, pair)
    rows = sorted(found.values(), key=lambda who: who.label.count("+") if who.tokens else -1)
    return [replace(who, held=False) for who in rows]


def _row(sight: CrossStudyViews, who: CrossStudyObserver, delta: float) -> StatementRow:
    observer = Observer.parse(who.label)
    relation = sight.relation(who, range(len(sight.studies)))
    if set(observer.names) - {COORDINATOR}:
        relation = Adjacency.REPLACE_OTHERS  # as it is printed: in what is counted it is a replaced row
    assumed = any(study.trust.bounds_assumed and study.events for study in sight.studies)
    return account_row(observer, relation, sight.all_views(who), delta, assumed=assumed)


def _digest(told: DisclosedStudy) -> str:
    """What stands for the digest of a study: a hash of what is revealed, and to whom."""
    content = {"events": [event.to_dict() for event in told.events], "trust": told.trust.to_dict()}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
