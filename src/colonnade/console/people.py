"""Members of the federation as a person compares them: the name, the role, the pin, and how old a key is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from colonnade.standing.federation import Members, Role
from colonnade.standing.words import six_words
from colonnade.wire import Certificate
from colonnade.wire.certificates import CLOCK_SKEW

ROTATE_DAYS = 365
"""After so many days the page advises a new key."""
_SOON_DAYS = 60


@dataclass(frozen=True)
class Person:
    """One member."""

    name: str
    role: Role
    pin: str
    words: str
    key: KeyAge


@dataclass(frozen=True)
class KeyAge:
    """When a certificate was made, and until when it is good."""

    since: datetime
    until: datetime

    @classmethod
    def of(cls, certificate: Certificate) -> KeyAge:
        """The dates of a certificate."""
        begins = certificate.parsed.not_valid_before_utc + CLOCK_SKEW  # set back when it is made, for clocks that lag
        return cls(begins, certificate.parsed.not_valid_after_utc)

    @property
    def days(self) -> int:
        """How old it is."""
        return (datetime.now(UTC) - self.since).days

    @property
    def left(self) -> int:
        """For how many more days it is good."""
        return (self.until - datetime.now(UTC)).days

    @property
    def advice(self) -> str | None:
        """A sentence where something should be done."""
        if self.left < 0:
            return "It has expired: others refuse it. Make a new key now."
        if self.left < _SOON_DAYS:
            return f"It expires in {self.left} days: make a new key soon."
        return f"It is older than {ROTATE_DAYS} days: consider a new key." if self.days > ROTATE_DAYS else None


def person(members: Members, name: str) -> Person:
    """A member of a federation."""
    certificate = members.certificates[name]
    pin = certificate.fingerprint
    return Person(name, members.roles[name], pin, six_words(pin), KeyAge.of(certificate))
