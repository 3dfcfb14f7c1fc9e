"""The hash chain of a ledger: each change is bound to everything that was written before it.

A change is written as one line of JSON that starts with the hash of the line before; its own hash is the
SHA-256 of that line. A reservation's line holds the whole entry, with the very text that the file stores, and the
keys of everybody in the study where the file has them. So an edit, a deletion, an insertion or another order of past
rows shows, and whoever noted the last hash (the *head*) can tell later whether the ledger still continues from there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from colonnade.errors import LedgerError

GENESIS = "0" * 64
"""What the first line names as the hash before it; the head of an empty ledger."""
LEAST_DIGITS = 32
"""128 bits: with fewer digits, somebody could search for another chain whose hash starts with them."""


@dataclass(frozen=True)
class Change:
    """One change of state as it is stored, with its entry, and the hash that was stored for it."""

    number: int
    entry: int
    state: str
    at: str
    hash: str | None
    study: str
    digest: str
    created: str
    events: str
    trust: str
    people: str | None = None

    def line(self, previous: str) -> str:
        """The text that is hashed."""
        fields: dict[str, str | int] = {"previous": previous, "change": self.number, "entry": self.entry}
        fields |= {"state": self.state, "at": self.at}
        if self.state != "reserved":
            return _compact(fields)
        fields |= {"study": self.study, "digest": self.digest, "created": self.created}
        people = "" if self.people is None else f',"people":{self.people}'
        return f'{_compact(fields)[:-1]},"events":{self.events},"trust":{self.trust}{people}}}'


def hashed(line: str) -> str:
    """The hash of a line of the chain."""
    return hashlib.sha256(line.encode()).hexdigest()


def lines(changes: Iterable[Change], previous: str = GENESIS) -> Iterator[tuple[Change, str]]:
    """Every change with its line; each names the hash that is *stored* for the one before."""
    for change in changes:
        yield change, change.line(previous)
        previous = change.hash or ""


def first_break(changes: Iterable[Change], previous: str = GENESIS) -> Change | None:
    """The first change whose stored hash is not that of its line; ``previous`` is the hash before the first of them."""
    return next((change for change, line in lines(changes, previous) if change.hash != hashed(line)), None)


def check_head(head: str, known: Iterable[str]) -> None:
    """Refuse unless a head that was noted earlier is still in the chain."""
    wanted = head.strip().lower()
    if not re.fullmatch(rf"[0-9a-f]{{{LEAST_DIGITS},64}}", wanted):
        raise LedgerError(
            f"a head is {LEAST_DIGITS} to 64 hexadecimal digits, as `colonnade ledger show` prints it [LE008]"
        )
    if not any(found.startswith(wanted) for found in known):
        raise LedgerError(
            f"the head {wanted[:12]}... is not in this ledger: its end was cut off, an older copy was put back, "
            "or the whole was written anew; find the copy that holds it [LE009]"
        )


def _compact(fields: dict[str, str | int]) -> str:
    try:
        return json.dumps(fields, separators=(",", ":"))
    except TypeError as error:
        raise LedgerError(f"entry {fields['entry']} of the ledger holds something that is no text [LE010]") from error
