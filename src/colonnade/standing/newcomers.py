"""Members whom the hub names and nobody here has accepted yet.

Pins are everybody's own: the hub may say that somebody has joined, and a person here decides, after six words of the
key were compared with whoever joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from colonnade.errors import FederationError
from colonnade.standing.federation import Members, Role
from colonnade.standing.words import six_words
from colonnade.wire import Certificate
from colonnade.wire.certificates import CLOCK_SKEW

ROTATE_DAYS = 365
"""After so many days the page about people advises a new key."""
_SOON_DAYS = 60

OFFERED = "offered"
"""The folder, in an agent's own, in which the hub's list of members is kept for people to look at."""


@dataclass(frozen=True)
class Person:
    """A member as people compare it: the name, the role, and the key with its pin, its words and its age."""

    name: str
    role: Role
    certificate: Certificate
    known: bool = False
    """Whether we know this name with another key: then the old one is taken out by hand first, or nothing changes."""

    @classmethod
    def of(cls, members: Members, name: str) -> Person:
        """A member of a federation."""
        return cls(name, members.roles[name], members.certificates[name])

    @property
    def pin(self) -> str:
        """The fingerprint of its key."""
        return self.certificate.fingerprint

    @property
    def words(self) -> str:
        """Six words of its key."""
        return six_words(self.pin)

    @property
    def since(self) -> datetime:
        """When its certificate was made."""
        return self.certificate.parsed.not_valid_before_utc + CLOCK_SKEW  # set back then, for clocks that lag

    @property
    def until(self) -> datetime:
        """Until when its certificate is good."""
        return self.certificate.parsed.not_valid_after_utc

    @property
    def days(self) -> int:
        """How old its key is."""
        return (datetime.now(UTC) - self.since).days

    @property
    def left(self) -> int:
        """For how many more days its key is good."""
        return (self.until - datetime.now(UTC)).days

    @property
    def advice(self) -> str | None:
        """A sentence where something should be done about its key."""
        if self.left < 0:
            return "It has expired: others refuse it. Make a new key now."
        if self.left < _SOON_DAYS:
            return f"It expires in {self.left} days: make a new key soon."
        return f"It is older than {ROTATE_DAYS} days: consider a new key." if self.days > ROTATE_DAYS else None


def newcomers(ours: Members, offered: Members) -> list[Person]:
    """Those whom the hub names and we do not, or with another key."""
    return [
        Person(name, offered.roles[name], certificate, name in ours.roles)
        for name, certificate in offered.certificates.items()
        if name not in ours.roles or ours.certificates[name].fingerprint != certificate.fingerprint
    ]


def keep(folder: Path, offered: Members) -> None:
    """Write down what the hub says, for the console and commands of this party."""
    offered.save(folder / OFFERED / "FEDERATION.toml")


def waiting(folder: Path, ours: Members) -> list[Person]:
    """Those who wait to be accepted, by what was last written down."""
    path = folder / OFFERED / "FEDERATION.toml"
    return newcomers(ours, Members.load(path)) if path.exists() else []


def accept(federation: Path, newcomer: Person) -> Members:
    """Pin a newcomer in our own FEDERATION.toml; whoever calls this has compared its words."""
    ours = Members.load(federation)
    if newcomer.known:
        raise FederationError(
            f"{newcomer.name} is known here with another key: ask it which is right; if the new one, take "
            f"[members.{newcomer.name}] out of {federation} and accept it again [FE066]"
        )
    joined = ours.with_member(newcomer.certificate, newcomer.role)
    joined.append(newcomer.name)
    return joined
