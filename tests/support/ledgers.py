"""Releases, caps, clocks and keys for ledgers, and changes to their files behind their backs."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from colonnade.privacy import SkellamRelease
from colonnade.privacy.accountant import epsilon
from colonnade.privacy.events import Event, views
from colonnade.privacy.observers import Budget, Observer, Trust

DELTA = 1e-5
TRUST = Trust(("bank", "shop"), ("bank", "shop", "coordinator"), 1)
START = datetime(2031, 3, 1, 12, 0, tzinfo=UTC)
FREE = Budget("others", 1e6, DELTA)
"""Where a test is about another cap, all others together have room."""


def release(owners=TRUST.owners, noise: int = 10**12, dimension: int = 9, **more) -> SkellamRelease:
    """Noise of the same size from every owner."""
    shares = tuple((owner, Fraction(noise)) for owner in owners)
    numbers = (dimension, 10**6, 10**12, 2 * 10**6, 2 * 10**12)
    return SkellamRelease("moments", shares, *numbers, tail=1e-30, theorem="moments-sensitivity", **more)


EVENT = release()


def cost(who: str = "analyst", times: int = 1, event: Event = EVENT, trust: Trust = TRUST) -> float:
    """The epsilon of a number of equal releases against one observer."""
    return epsilon(views([event] * times, Observer.parse(who), trust), DELTA).epsilon


def cap(who: str, value: float) -> list[Budget]:
    return [Budget(who, value, DELTA), FREE]


def keys(*names: str, **given: str) -> dict[str, str]:
    """A key for everybody: that of its name, unless another is given."""
    return {name: given.get(name, f"sha256:{name}") for name in (*names, "coordinator")}


class Clock:
    """Shows what it is told to, and goes on by some days with every look."""

    def __init__(self, days: float = 0, step: float = 0) -> None:
        self.step = timedelta(days=step)
        self.shows(days)

    def __call__(self) -> datetime:
        self.now += self.step
        return self.now

    def shows(self, days: float) -> None:
        self.now = START + timedelta(days=days)


def altered(path, *statements: str, guarded: bool = True) -> None:
    """Change the file, and put everything that guards it back as it was."""
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        found = base.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
        guards = found if guarded else []
        for name, _ in guards:
            base.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            assert base.execute(statement).rowcount != 0, statement
        for _, sql in guards:
            base.execute(sql)
