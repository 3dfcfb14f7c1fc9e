"""Members whom the hub names and nobody here has accepted yet.

Pins are everybody's own: the hub may say that somebody has joined, and a person here decides, after six words of the
key were compared with whoever joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from colonnade.errors import FederationError
from colonnade.standing.federation import Members, Role
from colonnade.standing.words import six_words
from colonnade.wire import Certificate

OFFERED = "offered"
"""The folder, in an agent's own, in which the hub's list of members is kept for people to look at."""


@dataclass(frozen=True)
class Newcomer:
    """Somebody whom the hub names otherwise than we do."""

    name: str
    role: Role
    certificate: Certificate
    known: bool
    """Whether we know this name with another key: then the old one is taken out by hand first, or nothing changes."""

    @property
    def words(self) -> str:
        """Six words of its key."""
        return six_words(self.certificate.fingerprint)


def newcomers(ours: Members, offered: Members) -> list[Newcomer]:
    """Those whom the hub names and we do not, or with another key."""
    return [
        Newcomer(name, offered.roles[name], certificate, name in ours.roles)
        for name, certificate in offered.certificates.items()
        if name not in ours.roles or ours.certificates[name].fingerprint != certificate.fingerprint
    ]


def keep(folder: Path, offered: Members) -> None:
    """Write down what the hub says, for the console and commands of this party."""
    offered.save(folder / OFFERED / "FEDERATION.toml")


def waiting(folder: Path, ours: Members) -> list[Newcomer]:
    """Those who wait to be accepted, by what was last written down."""
    path = folder / OFFERED / "FEDERATION.toml"
    return newcomers(ours, Members.load(path)) if path.exists() else []


def accept(federation: Path, newcomer: Newcomer) -> Members:
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
