"""Rows of all owners side by side: whose columns they are, and that all owners hold the same people in one order.

Without an alignment all owners have an id column and sort their rows by id; after an alignment the ids are random names
that all owners have in common. The owners share a salt that the coordinator does not see, and the coordinator compares
salted digests, from which it cannot find ids: nobody has both another owner's digest and the salt. The owners then
compare among themselves too, without showing more than whether their lists are equal. If members are hidden, the
owners' lists differ, and what is compared is which universe their slots belong to.

How owners compare what they hold among themselves, so that they learn yes or no and nothing else: any two owners that
talk to each other share a key. An owner's share is the sum (XOR) over its keys of a keyed hash of what it holds. If all
hold the same, every hash occurs twice and the shares cancel; otherwise the shares of the honest owners are uniform. So
whoever told different things to different owners learns that they differ and nothing else, and cannot make the sum come
out: everybody commits to its share before it sees another's (``docs/theory/active-messages.md``).

Numbers that all of some participants have seen anyway are compared more simply, by :func:`compare_digests`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError, ColonnadeError, DisagreementError, ProtocolError, StudyError
from colonnade.message_schema import FixedBytes, Integer, MessageSchema, TextForm, receive_message
from colonnade.protocols.roles import COORDINATOR, Role
from colonnade.protocols.task import Task
from colonnade.randomness import KEY_BYTES, new_key
from colonnade.sanitize import sanitize
from colonnade.tables.keys import pack_ids
from colonnade.tables.slots import RowSlots

_PURPOSE = b"owners compare"  # keys may serve for other hashes too
_SHARE_BYTES = _DIGEST_BYTES = 32
_LONGEST_VERDICT = 500
MOST_ROWS = 1 << 40

ROWS = MessageSchema("rows", rows=Integer(0, MOST_ROWS), digest=FixedBytes(_DIGEST_BYTES))
"""How many rows an owner has, and the salted digest of their ids."""
COMPARED = MessageSchema("compared", commitment=FixedBytes(_DIGEST_BYTES))
"""The commitment to an owner's share of a comparison."""
COMPARED_SHARE = MessageSchema("compared-share", share=FixedBytes(_SHARE_BYTES), salt=FixedBytes(KEY_BYTES))
"""The share itself, with what opens the commitment."""
ALIKE = MessageSchema("alike")
"""An owner that judges tells those who do not that all hold the same."""
HEARD_ALIKE = MessageSchema("heard-alike", digest=FixedBytes(_DIGEST_BYTES))
"""A digest of what a participant was told, where all were to be told the same."""


@dataclass(frozen=True)
class PairwiseKeys:
    """All owners, those of them that talk to everybody and judge, and the keys that this owner shares with others."""

    owners: tuple[str, ...]
    judges: tuple[str, ...]
    keys: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def of(cls, me: Role, owners: Sequence[str], seats: Sequence[str]) -> PairwiseKeys:
        """Share a fresh key with every owner that this one talks to; without seats everybody talks to everybody."""
        judges = tuple(owner for owner in owners if owner in seats) or tuple(owners)
        peers = [name for name in owners if name != me.name and (me.name in judges or name in judges)]
        here = owners.index(me.name)
        keys = {peer: new_key() for peer in peers if here < owners.index(peer)}
        for peer, key in keys.items():
            me.link(peer).send("pair-key", key=key)
        for peer in peers:
            if peer not in keys:
                pair = MessageSchema("pair-key", key=FixedBytes(KEY_BYTES))
                keys[peer] = receive_message(me.link(peer), peer, pair)["key"]
        return cls(tuple(owners), judges, keys)

    def share(self, held: bytes) -> bytes:
        """This owner's share, for what it holds."""
        total = 0
        for key in self.keys.values():
            each = hashlib.blake2b(held, key=key, person=_PURPOSE, digest_size=_SHARE_BYTES)
            total ^= int.from_bytes(each.digest(), "little")
        return total.to_bytes(_SHARE_BYTES, "little")


class EqualityComparison:
    """One comparison: the commitment to the share leaves at once, the share itself in :meth:`require`."""

    def __init__(self, me: Role, circle: PairwiseKeys, held: bytes) -> None:
        self._me, self._circle = me, circle
        self._judging = me.name in circle.judges
        self._others = [name for name in circle.owners if name != me.name]
        self._other_judges = [name for name in circle.judges if name != me.name]
        self._share, self._salt = circle.share(held), new_key()
        self._commitments: dict[str, bytes] = {}
        for judge in self._other_judges:
            me.link(judge).send("compared", commitment=_commitment(me.name, self._share, self._salt))

    def require(self, otherwise: str) -> None:
        """Go on if all owners hold the same; else every honest judge stops the study with the sentence given.

        The own share is shown to those who judge; one who judges itself waits until every other share is settled.
        """
        if self._judging:
            for name in self._others:
                self._commitments[name] = receive_message(self._me.link(name), name, COMPARED)["commitment"]
        for judge in self._other_judges:
            self._me.link(judge).send("compared-share", share=self._share, salt=self._salt)
        if not self._judging:
            for judge in self._circle.judges:
                receive_message(self._me.link(judge), judge, ALIKE)
            return
        total = int.from_bytes(self._share, "little")
        for name in self._others:
            shown = receive_message(self._me.link(name), name, COMPARED_SHARE)
            if _commitment(name, shown["share"], shown["salt"]) != self._commitments[name]:
                raise ProtocolError(f"{name} sent another share in 'compared-share' than it had committed to [MS009]")
            total ^= int.from_bytes(shown["share"], "little")
        if total:
            raise DisagreementError(otherwise)
        for name in self._others:
            if name not in self._circle.judges:
                self._me.link(name).send("alike")


def compare_digests(me: Role, everyone: Sequence[str], heard: bytes, what: str) -> None:
    """Stop unless all of ``everyone`` heard the same; only a digest travels, of numbers that all of them may know."""
    own = hashlib.sha256(heard).digest()
    others = [name for name in everyone if name != me.name]
    for name in others:
        me.link(name).send("heard-alike", digest=own)
    answers = [receive_message(me.link(name), name, HEARD_ALIKE)["digest"] for name in others]
    if any(answer != own for answer in answers):
        raise DisagreementError(
            f"participants were told different {what}, so somebody does not follow the protocol: "
            "nothing is kept of it [DI001]"
        )


def _commitment(name: str, share: bytes, salt: bytes) -> bytes:
    return hashlib.sha256(salt + share + name.encode()).digest()


_CHUNK = 1 << 14
_CALLED_EQUAL = (
    f"the owners do not hold the same people in one order, though the {COORDINATOR} called their lists equal, or one "
    "of them does not follow the protocol: nothing was computed [DI004]"
)


class IdentifiedRows(Protocol):
    """Rows with ids, or with slots in a universe."""

    @property
    def ids(self) -> Sequence[str]:
        """The ids of the rows, sorted."""

    @property
    def places(self) -> RowSlots | None:
        """The slots of the rows, in their order, if nobody knows which people all owners hold; else ``None``."""


class Rows(IdentifiedRows, Protocol):
    """What a program needs of an owner's table: ids, and encoded rows in the order of the ids."""

    def blocks(self, rows: int, /) -> Iterator[NDArray[np.float64]]:
        """The encoded rows in that order, ``rows`` of them at a time."""


@dataclass(frozen=True)
class ColumnBlock:
    """The columns of one owner: public names, and the bounds on a row that the owner enforces.

    ``clip`` bounds the L2 norm. ``groups`` are runs of columns, in order, with a bound on the L1 norm of each; only
    discrete Laplace noise needs them.
    """

    owner: str
    columns: tuple[str, ...]
    clip: float
    groups: tuple[tuple[int, Fraction], ...] = ()


class JointRows(Task):
    """A task about the rows of all owners side by side, with a public constant as their last column."""

    blocks: tuple[ColumnBlock, ...]

    @property
    def owners(self) -> tuple[str, ...]:
        """Who holds columns, in order."""
        return tuple(block.owner for block in self.blocks)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns of the joint matrix, without the constant."""
        return tuple(f"{block.owner}.{column}" for block in self.blocks for column in block.columns)

    @property
    def width(self) -> int:
        """The columns of the joint matrix, with the constant as the last one."""
        return len(self.names) + 1

    def block(self, owner: str) -> ColumnBlock:
        """The columns of one owner."""
        return self.blocks[self.owners.index(owner)]

    def span(self, owner: str) -> slice:
        """Where the columns of one owner stand in the joint matrix."""
        index = self.owners.index(owner)
        start = sum(len(block.columns) for block in self.blocks[:index])
        return slice(start, start + len(self.blocks[index].columns))


class KnownPeople:
    """Rows of people whom the owner can name, so that members are not hidden.

    ``own_ids`` are the ids in the owner's own table, if those differ from the common ``ids``.
    """

    ids: Sequence[str]
    own_ids: Sequence[str] | None

    @property
    def places(self) -> None:
        """Always ``None``: these rows have no slots."""

    @property
    def called(self) -> tuple[str, ...]:
        """The people, by the ids of the owner's own table."""
        return tuple(self.ids if self.own_ids is None else self.own_ids)


def agree_on_rows(me: Role, task: Task, rows: IdentifiedRows, *, hidden: bool = False, part: bool = False) -> int:
    """An owner's side: the common number of rows or slots, or an error at everyone; with ``hidden`` all lists count.

    With ``part`` these are some of the rows, so that there may be none.

    The coordinator finds out who differs. That it called lists equal which differ is found by the owners themselves.
    """
    if rows.places is None:
        size, ids = len(rows.ids), rows.ids
    else:
        size, ids = rows.places.size, [f"hidden {rows.places.token.hex()}"]
    first, *rest = task.owners
    circle = PairwiseKeys.of(me, task.owners, me.engine.committee.seats)
    if me.name == first:
        salt = new_key()
        for owner in rest:
            me.link(owner).send("rows-salt", salt=salt)
    else:
        salt = receive_message(me.link(first), first, MessageSchema("rows-salt", salt=FixedBytes(KEY_BYTES)))["salt"]
    listed = digest(salt, ids)
    comparison = EqualityComparison(me, circle, size.to_bytes(8, "little") + listed)
    me.link(COORDINATOR).send("rows", rows=size, digest=listed)
    verdict = MessageSchema("rows-verdict", problem=TextForm(_LONGEST_VERDICT))  # what is wrong, or nothing
    problem = receive_message(me.link(COORDINATOR), COORDINATOR, verdict)["problem"]
    if problem:
        raise _make_public(StudyError(f"{sanitize(problem)} [ST529]"))
    comparison.require(_CALLED_EQUAL)  # only now: who has a key in common could try out whole lists on a share
    return check_count(size, task, hidden=hidden, part=part)


def compare_rows(me: Role, task: Task, *, hidden: bool = False, part: bool = False) -> int:
    """The coordinator's side: it learns the number of rows and whether the lists are equal."""
    answers = {owner: receive_message(me.link(owner), owner, ROWS) for owner in task.owners}
    first = task.owners[0]
    problem = next(
        (mismatch_sentence(first, owner) for owner, answer in answers.items() if answer != answers[first]), ""
    )
    for owner in task.owners:
        me.link(owner).send("rows-verdict", problem=problem[:_LONGEST_VERDICT])
    if problem:
        raise _make_public(StudyError(problem))
    return check_count(answers[first]["rows"], task, hidden=hidden, part=part)


def check_places(table: IdentifiedRows, *, hidden: bool) -> None:
    """Refuse a table that was aligned with hidden members for a task without them, and the other way round."""
    if hidden and table.places is None:
        raise StudyError(
            "the study hides whom all parties hold, and this table was not aligned so: align it "
            "with hidden = true [ST530]"
        )
    if table.places is not None and not hidden:
        raise StudyError(
            "this table was aligned so that nobody knows whom all parties hold, and the study does not hide that: "
            "plan the study with hidden = true [ST531]"
        )


def block_sizes(rows: int, step: int) -> list[int]:
    """How many rows each block has, when ``step`` of them are dealt at a time."""
    return [min(step, rows - start) for start in range(0, rows, step)]


def check_count(rows: int, task: Task, *, hidden: bool = False, part: bool = False, of_part: int | None = None) -> int:
    """The number of rows, if it is not zero and not more than the task allows; the errors do not tell it.

    ``of_part`` is how many a part has at most if all parts have no more than the task allows.
    """
    if not rows and not part:
        raise _make_public(CapacityError("the tables have no rows in common, so there is nothing to compute [CA029]"))
    if rows > min(most := task.rows_limit, most if of_part is None else of_part):
        which = "lists of all parties together, which count while nobody knows who matched," if hidden else "tables"
        said = f"the {which} have more rows than the study allows ({most}): raise {task.rows_limited_by} [CA030]"
        raise _make_public(CapacityError(said))
    return rows


def _make_public(error: ColonnadeError) -> ColonnadeError:
    """An error that every participant finds out by itself from this exchange."""
    error.public = True
    return error


def digest(salt: bytes, ids: Sequence[str]) -> bytes:
    """A digest of a sorted list of ids; two different lists never give the same text to digest."""
    state = hashlib.sha256(salt)
    for start in range(0, len(ids), _CHUNK):
        for piece in pack_ids(ids, start, start + _CHUNK):
            state.update(piece)
    return state.digest()


def mismatch_sentence(first: str, owner: str) -> str:
    """The sentence about two lists that differ, for everyone; it names no person and no number."""
    return (
        f"{first} and {owner} do not hold the same people under the same ids: let the study align them ([align] in the "
        "study file, or align(on=...)), or bring both tables to the same ids, written the same way [ST532]"
    )
