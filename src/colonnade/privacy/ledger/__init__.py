"""A party's own record of what it has revealed: durable before the first share leaves, and never taken back.

One SQLite file, append-only and chained by hashes. An entry is *reserved* before the party joins a study, *sent*
before its first share leaves, and *committed* when the study ended well. All three count in full; only an entry
that was never sent can be *released*. What a party says before its first share (that it is ready, how many rows
it has, a salted digest of its ids) is no part of any epsilon, and a release does not take it back. What an
observer has learned is always composed anew by the accountant from every counted event.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from colonnade.disk import reading
from colonnade.errors import LedgerError, PolicyError, PrivacyError
from colonnade.privacy.events import Event, check_sources
from colonnade.privacy.ledger import caps as limits
from colonnade.privacy.ledger.approvers import Approver, read_approvers, write_approvers
from colonnade.privacy.ledger.caps import (
    ALIGNED,
    ASKED_BY,
    AbortedStudiesLimit,
    AlignmentsLimit,
    BudgetForecast,
    CapPeriod,
    CostCache,
    RemainingBudget,
    SpendingAccounts,
    StudySpending,
    count_aborted_studies,
    list_alignments,
    period_start,
    read_time,
)
from colonnade.privacy.ledger.participants import NO_PARTICIPANTS_KNOWN, DisclosedStudy, StudyParticipants, read_study
from colonnade.privacy.ledger.storage import (
    ALLOWED,
    LedgerChange,
    LedgerFile,
    append_change,
    chain_lines,
    check_texts,
    count_entries,
    insert_entry,
    is_chained,
    read_approvals,
    read_arrangements,
    read_changes,
    read_entries,
    read_head,
    read_runs,
    read_states,
    read_times,
)
from colonnade.privacy.observers import Budget, Observer, Trust, parse_budgets

if TYPE_CHECKING:
    from colonnade.drawing.canvas import Picture


@dataclass(frozen=True)
class LedgerEntry:
    """One study's reservation and its state now."""

    id: int
    study: str
    digest: str
    created: str
    state: str
    events: tuple[Event, ...]
    trust: Trust
    people: StudyParticipants = NO_PARTICIPANTS_KNOWN
    approvers: tuple[Approver, ...] = ()
    """Who said yes to it; empty in entries that were written before that was recorded."""
    cached_content: DisclosedStudy | None = field(default=None, repr=False, compare=False)

    @property
    def content(self) -> DisclosedStudy:
        """What the study tells, and whom."""
        return self.cached_content or DisclosedStudy(self.events, self.trust, self.people)


class Ledger(LedgerFile):
    """The ledger in one file; each call opens the file anew, so it may be shared by threads and processes.

    ``owner`` is the name of the party whose ledger it is. Without it, it is taken from the entries that say so.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, owner: str = "", clock: Callable[[], datetime] | None = None
    ) -> None:
        super().__init__(path)
        self._owner = owner
        self._clock = clock or (lambda: datetime.now(UTC))

    @property
    def chained(self) -> bool:
        """Whether the file holds hashes; files of the first version have none until something is written to them."""
        with self.reading() as base:
            return is_chained(base)

    @property
    def head(self) -> str:
        """The hash of the last change; a note of it shows later whether something was cut off or put back."""
        with self.reading() as base:
            return read_head(base)

    def reserve(
        self,
        study: str,
        digest: str,
        events: Sequence[Event],
        trust: Trust,
        caps: Sequence[Budget],
        periods: Sequence[CapPeriod] = (),
        keys: Mapping[str, str] | None = None,
        *,
        early: AbortedStudiesLimit | None = None,
        approvers: Sequence[Approver] = (),
    ) -> LedgerEntry:
        """Record the cost of a study, or refuse it; what is left of a budget is never given to two studies.

        ``keys`` are the keys of everybody in the study, the coordinator included: by them they are recognised in other
        studies. Without keys, names are taken for them. ``early`` limits the studies that ended early or have not
        ended; as with budgets, two studies are never both let in by the last place.
        """
        told = DisclosedStudy.of(self._owner, events, trust, keys)
        with self.writing() as base:
            now = self._clock()
            self._check_early(base, early, now)
            sums = self._check(base, study, told, caps, periods, now)
            at = _written(now)
            written = json.dumps([event.to_dict() for event in events])
            known = told.people.to_json(), write_approvers(approvers) if approvers else None
            number = insert_entry(base, study, digest, at, written, trust.to_json(), *known)
            sums.store(number, told)
        return LedgerEntry(number, study, digest, at, "reserved", told.events, trust, told.people, tuple(approvers))

    def check(
        self,
        study: str,
        events: Sequence[Event],
        trust: Trust,
        caps: Sequence[Budget],
        periods: Sequence[CapPeriod] = (),
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """Refuse what :meth:`reserve` would refuse now, and write nothing."""
        told = DisclosedStudy.of(self._owner, events, trust, keys)
        with self.reading() as base:
            self._check(base, study, told, caps, periods, self._clock())

    def _check(
        self,
        base: sqlite3.Connection,
        study: str,
        told: DisclosedStudy,
        caps: Sequence[Budget],
        periods: Sequence[CapPeriod],
        now: datetime,
    ) -> CostCache:
        """Raise an error if a study does not keep every cap: by sums of before, or if they do not show it, by all."""
        if not told.events:
            raise LedgerError(f"study {study!r} asks for a reservation without any event [LE002]")
        check_sources(told.events)
        self.check_chain(base)
        with _readable():
            sums = CostCache(base, now)
            if not sums.shows_caps_kept(told, caps, periods, self._owner, now):
                _accounts(base, self._owner, now).refuse(study, told, caps, periods)
        return sums

    def check_aborted_studies(self, early: AbortedStudiesLimit) -> None:
        """Refuse what :meth:`reserve` would refuse now because of studies that ended early, and write nothing."""
        with self.reading() as base:
            self._check_early(base, early, self._clock())

    def _check_early(self, base: sqlite3.Connection, early: AbortedStudiesLimit | None, now: datetime) -> None:
        if early is not None and (failed := count_aborted_studies(base, early.days, now)) >= early.at_most:
            raise PolicyError(
                f"{failed} studies of {self._owner} did not end well within {early.days:g} days, and its policy allows "
                f"{early.at_most}: look at them with `colonnade ledger show {self.path}`, and raise at_most of "
                "[policy.failures] if you know why they failed [PO007]"
            )

    def state(self, entry: LedgerEntry) -> str:
        """The state that an entry is in now; ``gone`` if there is no such entry."""
        with self.reading() as base:
            return (read_states(base, entry.id) or ["gone"])[-1]

    def mark_sent(self, entry: LedgerEntry) -> LedgerEntry:
        """Call before the first share leaves; from here on the entry can never be released."""
        return self._advance(entry, "sent")

    def commit(self, entry: LedgerEntry) -> LedgerEntry:
        """The study ended well."""
        return self._advance(entry, "committed")

    def release(self, entry: LedgerEntry) -> LedgerEntry:
        """Give back a reservation of which nothing was ever sent."""
        return self._advance(entry, "released")

    def note_time(self) -> bool:
        """If an entry is dated later than now, record the present, so that it ages from now on; say whether it did."""
        with self.reading() as base:
            if not _is_ahead(base, self._clock()):
                return False
        with self.writing() as base:
            now = self._clock()
            if not _is_ahead(base, now):  # another process was first
                return False
            last = _entries(base)[-1]
            number = insert_entry(base, "the clock was set", "", _written(now), "[]", last.trust.to_json())
            append_change(base, number, "released", _written(now))
        return True

    def note_alignment(self, study: str, trust: Trust, limit: AlignmentsLimit, asked_by: str = "") -> None:
        """Note that people are about to be aligned by these participants, or refuse it; two never share a last place.

        An alignment costs no budget, and tells whom of its people others hold: whoever may repeat it with other keys
        can try out a list. So each is noted before it begins, whether it ends well or not. ``asked_by`` is who proposed
        it, whose share is limited too.
        """
        with self.writing() as base:
            self.check_chain(base)
            now = self._clock()
            limit.check(list_alignments(base, limit.days, now), self._owner, asked_by)
            note = f"{ALIGNED}{study}{ASKED_BY}{asked_by}" if asked_by else f"{ALIGNED}{study}"
            number = insert_entry(base, note, "", _written(now), "[]", trust.to_json())
            append_change(base, number, "released", _written(now))

    def count_alignments(self, *, days: float) -> int:
        """How many alignments were begun within the last days."""
        with self.reading() as base:
            return len(list_alignments(base, days, self._clock()))

    def _accounts(self) -> SpendingAccounts:
        """What the studies told that count, as they are in the file at one moment."""
        with self.reading() as base:
            return _accounts(base, self._owner, self._clock())

    def epsilon_spent(self, observer: Observer, delta: float, *, days: float | None = None) -> float:
        """What an observer has learned from all counted studies together, or from those of the last days."""
        return self._accounts().epsilon_spent(observer, delta, days)

    def totals(self, delta: float, *, days: float | None = None) -> dict[str, float]:
        """What everybody whom this ledger has met has learned, alone, in groups within the thresholds, and together."""
        return self._accounts().totals(delta, days)

    def spending_over_time(self, delta: float, most: int = 24) -> tuple[list[datetime], dict[str, list[float]]]:
        """At most so many moments, the last that of the last study, and what each observer alone knew by then."""
        return self._accounts().spending_over_time(delta, most)

    def plot(self, *, delta: float = 1e-5, caps: float | Mapping[str, float] | None = None) -> Picture:
        """Draw what each observer learned over time; ``caps`` are drawn as lines."""
        when, found = self.spending_over_time(delta)
        if not when:
            raise LedgerError(f"{self.path} counts no study yet, so there is nothing to draw [LE003]")
        from colonnade.drawing.canvas import Picture
        from colonnade.privacy.statement import spending_chart

        known = () if caps is None else parse_budgets(caps, delta)
        limit = {cap.selector: cap.epsilon for cap in known}
        return Picture([spending_chart(when, found, self._clock(), delta, limit)])

    def remaining(self, caps: Sequence[Budget], periods: Sequence[CapPeriod] = ()) -> tuple[RemainingBudget, ...]:
        """What is left of each cap for each observer: first the caps for all time, then those of periods."""
        return self._accounts().remainders(caps, periods)

    def forecast(
        self,
        events: Sequence[Event],
        trust: Trust,
        caps: Sequence[Budget],
        periods: Sequence[CapPeriod],
        keys: Mapping[str, str],
        attempts: int,
    ) -> tuple[BudgetForecast, ...]:
        """What each cap would leave after a study that may take so many attempts; nothing is written."""
        return self._accounts().forecast(caps, periods, DisclosedStudy.of(self._owner, events, trust, keys), attempts)

    def names_met(self) -> set[str]:
        """The labels of everybody whom this ledger has met, and every name they used."""
        with self.reading() as base:
            with _readable():
                known = [
                    DisclosedStudy((), Trust.from_json(trust), StudyParticipants.from_json(who))
                    for trust, who in read_arrangements(base)
                ]
            return limits.participant_labels(known, self._owner)

    def entries(self, *, days: float | None = None) -> tuple[LedgerEntry, ...]:
        """All entries, the oldest first, or those of the last days; notes of alignments are no entries."""
        with self.reading() as base:
            if days is None:
                found = _entries(base)
            else:
                now = self._clock()
                found = tuple(entry for when, entry in _dated(base, now) if when > period_start(days, now))
            return tuple(entry for entry in found if entry.digest or not entry.study.startswith(ALIGNED))

    @property
    def studies(self) -> int:
        """How many entries count: all that were not released."""
        with self.reading() as base:
            return count_entries(base)

    def runs_of(self, digest: str) -> tuple[tuple[str, str], ...]:
        """When each run of the study with this digest was reserved, and the state that it is in now."""
        with self.reading() as base:
            return tuple(read_runs(base, digest))

    def count_aborted_studies(self, *, days: float | None = None) -> int:
        """How many studies did not end well, or have not ended: of all, or of those of the last days."""
        with self.reading() as base:
            return count_aborted_studies(base, days, self._clock())

    def lines(self) -> tuple[tuple[LedgerChange, str], ...]:
        """The whole chain: every change, and the text whose hash is chained."""
        with self.reading() as base:
            return tuple(chain_lines(read_changes(base)))

    def verify(self, head: str | None = None, *, unchained: bool = False) -> None:
        """Check the whole file: SQLite's own checks, the chain, readable events, possible histories of states.

        With ``head``, a hash noted earlier, also that the ledger still holds everything up to there.
        """
        super().verify(head, unchained=unchained)
        with self.reading() as base, _readable():
            _entries(base)
            wrong = CostCache(base, self._clock()).first_wrong()
        if wrong is not None:
            raise LedgerError(
                f"{self.path} was altered: the sums of entry {wrong} do not follow from it; restore a copy [LE004]"
            )

    def _advance(self, entry: LedgerEntry, state: str) -> LedgerEntry:
        with self.writing() as base:
            if state != "committed":  # what was sent is written down on any file
                self.check_guards(base)
            states = read_states(base, entry.id)
            if not states:
                raise LedgerError(f"{self.path} has no entry {entry.id} [LE005]")
            if states[-1] not in ALLOWED[state]:
                raise LedgerError(f"entry {entry.id} is {states[-1]} and cannot become {state} [LE006]")
            append_change(base, entry.id, state, _written(self._clock()))
        return replace(entry, state=state)


def _entries(base: sqlite3.Connection) -> tuple[LedgerEntry, ...]:
    with _readable():
        approved = read_approvals(base)
        return tuple(
            replace(_entry(row[-1], *check_texts(row[:-1])), approvers=read_approvers(approved.get(row[0])))
            for row in read_entries(base)
        )


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, PrivacyError, reading.MalformedFile) as error:
        # An entry that cannot be read cannot be counted, so nothing more may be spent.
        raise LedgerError(
            f"the ledger holds an entry that cannot be read: {reading.shorten(str(error))} [LE007]"
        ) from error


def _entry(
    people: str | None, number: int, study: str, digest: str, created: str, events: str, trust: str, state: str
) -> LedgerEntry:
    told = read_study(events, trust, people)
    return LedgerEntry(number, study, digest, created, state, told.events, told.trust, told.people, (), told)


def _is_ahead(base: sqlite3.Connection, now: datetime) -> bool:
    late, after = limits.find_future_dates(
        [(read_time(number, created), out) for number, created, out in read_times(base)], now
    )
    return late and after is None


def _dated(base: sqlite3.Connection, now: datetime) -> list[tuple[datetime, LedgerEntry]]:
    """Every entry and the time it counts from."""
    entries = _entries(base)
    dates = [(read_time(entry.id, entry.created), entry.state == "released") for entry in entries]
    return list(zip(limits.effective_dates(dates, now), entries, strict=True))


def _accounts(base: sqlite3.Connection, owner: str, now: datetime) -> SpendingAccounts:
    """What counts, the oldest first: every entry that was not released."""
    found = [StudySpending(when, entry.content) for when, entry in _dated(base, now) if entry.state != "released"]
    return SpendingAccounts(sorted(found, key=lambda spending: spending.when), owner, now)


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")
