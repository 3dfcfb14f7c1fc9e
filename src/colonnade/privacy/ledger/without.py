"""What a party without a ledger would refuse, and how every refusal reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from colonnade.errors import BudgetError
from colonnade.privacy.events import Event, check_sources
from colonnade.privacy.ledger import caps as limits
from colonnade.privacy.ledger.caps import Foreseen, Period, Spending
from colonnade.privacy.ledger.people import People, Told
from colonnade.privacy.observers import Budget, Trust


def refuse(
    study: str,
    told: Told,
    caps: Sequence[Budget],
    periods: Sequence[Period],
    stored: Sequence[Spending],
    owner: str,
    now: datetime,
) -> None:
    """Raise an error if a study does not keep every cap."""
    if problems := limits.refusals(caps, periods, stored, told, owner, now):
        raise BudgetError(f"study {study!r} is over budget: {'; '.join(problems)} [BU002]")


def check_without_ledger(
    study: str,
    events: Sequence[Event],
    trust: Trust,
    caps: Sequence[Budget],
    periods: Sequence[Period] = (),
    keys: Mapping[str, str] | None = None,
    *,
    owner: str = "",
) -> None:
    """Refuse what a party without a ledger would refuse; no ledger is made."""
    told = Told(tuple(events), trust, People.of(owner, keys or {}, trust))
    check_sources(told.events)
    refuse(study, told, caps, periods, [], owner, datetime.now(UTC))


def foreseen_without_ledger(
    events: Sequence[Event],
    trust: Trust,
    caps: Sequence[Budget],
    periods: Sequence[Period],
    keys: Mapping[str, str],
    attempts: int,
    *,
    owner: str = "",
) -> tuple[Foreseen, ...]:
    """What each cap would leave after the first study of a party; no ledger is made."""
    told = Told(tuple(events), trust, People.of(owner, keys, trust))
    return limits.foreseen(caps, periods, [], told, attempts, owner, datetime.now(UTC))
