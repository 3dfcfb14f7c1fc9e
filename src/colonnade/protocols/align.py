"""Agree that every owner holds the same people, in the same order, before anything is computed.

Here the owners already share an id column. Each sorts its rows by id and sends the first owner a salted
digest of the whole list; the coordinator sees none of it. Private alignment of unequal lists takes the same
place: whatever it does, it ends with equal lists and this check.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from colonnade.errors import StudyError
from colonnade.protocols.roles import Role
from colonnade.randomness import new_key


def agree_on_rows(me: Role, owners: Sequence[str], ids: Sequence[str], listeners: Sequence[str] = ()) -> int:
    """The common number of rows, told to the ``listeners`` too, or a :class:`StudyError` at every owner."""
    first, *rest = owners
    if me.name != first:
        salt = me.link(first).recv("rows-salt")["salt"]
        me.link(first).send("rows-digest", rows=len(ids), digest=digest(salt, ids))
        verdict = str(me.link(first).recv("rows-verdict")["problem"])
    else:
        salt = new_key()
        for owner in rest:
            me.link(owner).send("rows-salt", salt=salt)
        own = {"rows": len(ids), "digest": digest(salt, ids)}
        answers = {owner: me.link(owner).recv("rows-digest") for owner in rest}
        verdict = next((mismatch(first, own, o, a) for o, a in answers.items() if a != own), "")
        for owner in rest:
            me.link(owner).send("rows-verdict", problem=verdict)
    if verdict:
        raise StudyError(verdict)
    if me.name == first:
        for listener in listeners:
            me.link(listener).send("rows", rows=len(ids))
    return len(ids)


def digest(salt: bytes, ids: Sequence[str]) -> bytes:
    """A digest of the sorted list in which no two lists can run together."""
    state = hashlib.sha256(salt)
    for value in ids:
        data = value.encode()
        state.update(len(data).to_bytes(8, "big") + data)
    return state.digest()


def mismatch(first: str, own: dict[str, object], owner: str, answer: dict[str, object]) -> str:
    """The sentence both owners see; it names no person."""
    if own["rows"] != answer.get("rows"):
        return (
            f"{first} and {owner} do not hold the same people: {first} has {own['rows']} rows and {owner} has "
            f"{answer.get('rows')}; bring both tables to the same ids and start again"
        )
    return (
        f"{first} and {owner} have equally many rows but different ids; check that both use the same id "
        "column, written the same way"
    )
