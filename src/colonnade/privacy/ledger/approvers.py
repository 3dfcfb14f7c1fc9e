"""Who said yes to a study, and from where: what the ledger chains with the entry that was reserved for it."""

from __future__ import annotations

import getpass
import json
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
    """The address from which a browser asked, or ``terminal``."""

    def __str__(self) -> str:
        """Such as ``Ada in the console``."""
        return f"{self.who}{_WAYS.get(self.kind, '')}"

    @classmethod
    def at_terminal(cls, who: str | None = None) -> Approver:
        """Whoever runs this."""
        try:
            return cls(who or getpass.getuser(), "terminal", "terminal")
        except (KeyError, OSError):  # a user without a name, as in a container
            return cls("somebody", "terminal", "terminal")

    def may_join(self, others: Iterable[Approver]) -> bool:
        """Whether this is another person than all of these; at the terminal everybody is the agent's user."""
        return all(self.who.casefold() != each.who.casefold() and self.kind != "terminal" for each in others)


def write_approvers(approvers: Iterable[Approver]) -> str:
    """One line of JSON."""
    return json.dumps([asdict(each) for each in approvers], sort_keys=True)


def read_approvers(text: str | None) -> tuple[Approver, ...]:
    """Read what :func:`write_approvers` wrote; nobody where nothing was written down."""
    try:
        return tuple(Approver(**each) for each in reading.parse_json(text or "[]"))
    except (reading.MalformedFile, TypeError):
        raise LedgerError("who approved a study cannot be read [LE780]") from None
