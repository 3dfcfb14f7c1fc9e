"""Agree that every owner holds the same people, in the same order, before anything is computed.

Without an alignment the owners share an id column and each sorts its rows by id; after one, ids are the opaque common
ones. The owners share a salt that the coordinator does not see, and the coordinator compares salted digests that it
cannot look behind: nobody holds both another's digest and the salt. Where members are hidden the lists differ, and
owners compare which universe their slots belong to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from colonnade.errors import CapacityError, StudyError
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner
from colonnade.randomness import new_key
from colonnade.tables.ids import packed
from colonnade.tables.places import Places

_CHUNK = 1 << 14
_LONGEST_VERDICT = 500


class Listed(Protocol):
    """Rows with ids, or with places in a universe."""

    @property
    def ids(self) -> Sequence[str]:
        """The rows' ids, in order."""

    @property
    def places(self) -> Places | None:
        """The rows' slots, where members are hidden."""


class OfKnownPeople:
    """Rows for somebody who knows whose they are, so members are never hidden.

    ``own_ids`` is what an owner itself calls these people, where that is something else than all call them.
    """

    ids: Sequence[str]
    own_ids: Sequence[str] | None

    @property
    def places(self) -> None:
        """None: nobody has a slot."""

    @property
    def called(self) -> tuple[str, ...]:
        """The people, as their owner calls them."""
        return tuple(self.ids if self.own_ids is None else self.own_ids)


def agree_on_rows(me: Owner, owners: Sequence[str], rows: Listed) -> int:
    """An owner's side: the common number of rows or slots, or a :class:`StudyError` at everyone."""
    size, ids = _described(rows)
    first, *rest = owners
    if me.name == first:
        salt = new_key()
        for owner in rest:
            me.link(owner).send("rows-salt", salt=salt)
    else:
        salt = me.link(first).recv("rows-salt")["salt"]
    me.link(COORDINATOR).send("rows", rows=size, digest=digest(salt, ids))
    problem = str(me.link(COORDINATOR).recv("rows-verdict")["problem"])
    if problem:
        raise StudyError(problem[:_LONGEST_VERDICT])
    return size


def compare_rows(me: Coordinator, owners: Sequence[str]) -> int:
    """The coordinator's side: it learns the number of rows and whether the lists are equal."""
    answers = {owner: me.link(owner).recv("rows") for owner in owners}
    first = owners[0]
    problem = next((mismatch(first, answers[first], o, a) for o, a in answers.items() if a != answers[first]), "")
    for owner in owners:
        me.link(owner).send("rows-verdict", problem=problem)
    if problem:
        raise StudyError(problem)
    return int(answers[first]["rows"])


def _described(rows: Listed) -> tuple[int, Sequence[str]]:
    """How many rows there are, and what must be equal at all owners."""
    if rows.places is not None:
        return rows.places.size, [f"hidden {rows.places.token.hex()}"]
    ids = rows.ids
    return len(ids), ids


def check_count(rows: int, most: int, hidden: bool = False) -> None:
    """Refuse a number of rows for which the arithmetic was not sized; where members are hidden all lists count."""
    if not rows:
        raise CapacityError("the tables have no rows in common, so there is nothing to compute")
    if hidden and rows > most:
        raise CapacityError(
            f"the lists of all parties have {rows} rows together, which count while nobody knows who matched, and the "
            f"study allows 1 to {most}: raise rows_at_most"
        )
    if rows > most:
        raise CapacityError(f"the tables have {rows} rows and the study allows 1 to {most}: raise rows_at_most")


def digest(salt: bytes, ids: Sequence[str]) -> bytes:
    """A digest of the sorted list in which no two lists can run together."""
    state = hashlib.sha256(salt)
    for start in range(0, len(ids), _CHUNK):
        for piece in packed(ids, start, start + _CHUNK):
            state.update(piece)
    return state.digest()


def mismatch(first: str, own: Mapping[str, Any], owner: str, answer: Mapping[str, Any]) -> str:
    """The sentence that everyone sees; it names no person."""
    if own.get("rows") != answer.get("rows"):
        return (
            f"{first} and {owner} do not hold the same people: {first} has {own.get('rows')} rows and {owner} has "
            f"{answer.get('rows')}; let the study align them ([align] in the study file, or align(on=...)), or bring "
            "both tables to the same ids"
        )
    return (
        f"{first} and {owner} have equally many rows but different ids; check that both use the same id column, "
        "written the same way, or let the study align them ([align] in the study file, or align(on=...))"
    )
