"""Rows of all owners side by side: whose columns they are, and that all owners hold the same people in one order.

Without an alignment all owners have an id column and sort their rows by id; after an alignment the ids are random names
that all owners have in common. The owners share a salt that the coordinator does not see, and the coordinator compares
salted digests, from which it cannot find ids: nobody has both another owner's digest and the salt. The owners then
compare among themselves too, without showing more than whether their lists are equal. If members are hidden, the
owners' lists differ, and what is compared is which universe their slots belong to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError, ColonnadeError, StudyError
from colonnade.message_schema import receive_message
from colonnade.protocols import session_messages
from colonnade.protocols.agreement import EqualityComparison, PairwiseKeys
from colonnade.protocols.roles import COORDINATOR, Role
from colonnade.protocols.task import Task
from colonnade.randomness import new_key
from colonnade.sanitize import sanitize
from colonnade.tables.keys import pack_ids
from colonnade.tables.slots import RowSlots

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
    size, ids = _describe(rows)
    first, *rest = task.owners
    circle = PairwiseKeys.of(me, task.owners, me.engine.committee.seats)
    if me.name == first:
        salt = new_key()
        for owner in rest:
            me.link(owner).send("rows-salt", salt=salt)
    else:
        salt = receive_message(me.link(first), first, session_messages.SALT)["salt"]
    listed = digest(salt, ids)
    comparison = EqualityComparison(me, circle, size.to_bytes(8, "little") + listed)
    me.link(COORDINATOR).send("rows", rows=size, digest=listed)
    comparison.show()  # while the coordinator compares
    problem = receive_message(me.link(COORDINATOR), COORDINATOR, session_messages.VERDICT)["problem"]
    if problem:
        raise _make_public(StudyError(f"{sanitize(problem)} [ST529]"))
    comparison.require(_CALLED_EQUAL)
    return check_count(size, task, hidden=hidden, part=part)


def compare_rows(me: Role, task: Task, *, hidden: bool = False, part: bool = False) -> int:
    """The coordinator's side: it learns the number of rows and whether the lists are equal."""
    answers = {owner: receive_message(me.link(owner), owner, session_messages.ROWS) for owner in task.owners}
    first = task.owners[0]
    problem = next(
        (mismatch_sentence(first, owner) for owner, answer in answers.items() if answer != answers[first]), ""
    )
    for owner in task.owners:
        me.link(owner).send("rows-verdict", problem=problem[: session_messages.LONGEST_VERDICT])
    if problem:
        raise _make_public(StudyError(problem))
    return check_count(answers[first]["rows"], task, hidden=hidden, part=part)


def _describe(rows: IdentifiedRows) -> tuple[int, Sequence[str]]:
    """How many rows there are, and what must be equal at all owners."""
    if rows.places is not None:
        return rows.places.size, [f"hidden {rows.places.token.hex()}"]
    ids = rows.ids
    return len(ids), ids


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


def check_count(rows: int, task: Task, *, hidden: bool = False, part: bool = False) -> int:
    """The number of rows, if it is not zero and not more than the task allows; the errors do not tell it."""
    if not rows and not part:
        raise _make_public(CapacityError("the tables have no rows in common, so there is nothing to compute [CA029]"))
    if rows > (most := task.rows_limit):
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
