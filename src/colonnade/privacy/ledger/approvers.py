"""Who said yes to a study, and from where: what the ledger chains with the entry that was reserved for it."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from colonnade.disk import reading
from colonnade.errors import LedgerError

ApproverKind = Literal["console", "terminal", "policy", "program"]
_WAYS = {"console": " in the console", "terminal": " at the command line"}


@dataclass(frozen=True)
class Approver:
    """A person who is signed in, one at the terminal, the policy of the party's file, or a program."""

    who: str
    kind: ApproverKind
    place: str
    """The address from which a browser asked and how it was signed in, ``terminal``, or the policy's file."""

    def __str__(self) -> str:
        """Such as ``Ada in the console``."""
        return f"{self.who}{_WAYS.get(self.kind, '')}"

    @classmethod
    def at_terminal(cls, who: str | None = None) -> Approver:
        """Whoever runs this, by the account of the system: what the environment says anybody may write."""
        try:
            return cls(who or pwd.getpwuid(os.getuid()).pw_name, "terminal", "terminal")
        except KeyError:  # a user without a name, as in a container
            return cls(f"user {os.getuid()}", "terminal", "terminal")


@dataclass(frozen=True)
class ApprovalRule:
    """Whose yes counts where people are asked, and how many of them must say it."""

    needed: int
    names: tuple[str, ...] = ()
    """If there are any, nobody else counts: names as people are signed in, or as the system calls its users."""

    def __str__(self) -> str:
        """Such as ``two of Ada, Bob, Eva``."""
        if self.names:
            return f"two of {', '.join(self.names)}"
        return "two approvers" if self.needed > 1 else "a person"

    def lists(self, by: Approver) -> bool:
        """Whether the yes of this one may count: a policy is no person, and no program is on a list."""
        return by.kind != "policy" and (not self.names or (by.who in self.names and by.kind != "program"))

    def count(self, known: Iterable[Approver]) -> tuple[Approver, ...]:
        """Those of these approvers who count."""
        return tuple(each for each in known if self.lists(each))

    def may_join(self, by: Approver, others: Iterable[Approver]) -> bool:
        """Whether this is another person than all of these; without a list everybody at the terminal is one."""
        at_terminal = not self.names and by.kind == "terminal"
        return all(by.who.casefold() != each.who.casefold() and not at_terminal for each in others)


ONE_PERSON = ApprovalRule(1)
BY_PROGRAM = Approver("the calling program", "program", "")


def write_approvers(approvers: Iterable[Approver]) -> str:
    """One line of JSON."""
    return json.dumps([asdict(each) for each in approvers], sort_keys=True)


def read_approvers(text: str | None) -> tuple[Approver, ...]:
    """Read what :func:`write_approvers` wrote; nobody where nothing was written down."""
    try:
        return tuple(Approver(**each) for each in reading.parse_json(text or "[]"))
    except (reading.MalformedFile, TypeError):
        raise LedgerError("who approved a study cannot be read [LE780]") from None
