"""Both sides of an alignment: choose who leads, make tags, join them or give them slots.

Nothing here is a share, and nothing is spent: an alignment that ends early costs no budget.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import AlignmentError, PeerLost, PeerStopped, ProtocolError
from colonnade.message_schema import receive_message
from colonnade.mpc.key_value_store import Words
from colonnade.protocols.agreement import EqualityComparison, PairwiseKeys
from colonnade.protocols.align import dh_psi, fuzzy, messages, ot_psi, private_join, private_membership
from colonnade.protocols.align.dh_psi import KeyTags
from colonnade.protocols.align.messages import TOKEN_BYTES, ProgressSteps, shuffled
from colonnade.protocols.align.task import AlignmentTask
from colonnade.protocols.lanes.partitions import check_fits
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner
from colonnade.randomness import KEY_BYTES, Stream
from colonnade.tables import Table
from colonnade.tables.cell_parsing import pa
from colonnade.tables.keys import TableKeys

_TOLD_APART = (
    "the owners were not all told the same people as common to all, in one order, so somebody does not follow the "
    "protocol: the alignment is not used, and nothing was spent [DI002]"
)


@dataclass(frozen=True)
class AlignedRows:
    """What an owner holds after an alignment.

    ``rows`` are positions among its keys: in the common order, with a random name for each in ``index``; or, if members
    are hidden, in ascending order of their ``slots`` out of ``size``. If an earlier alignment is used again, there is
    only its ``token``: the owner has kept the rest.
    """

    token: bytes
    size: int
    rows: NDArray[np.int64]
    index: NDArray[np.uint8] | None = None
    slots: NDArray[np.int64] | None = None
    reused: bool = False

    def table(self, table: Table) -> Table:
        """The rows of the table that take part, in the common order or at their slots."""
        if table.keys is None:
            raise ValueError("a table without keys cannot be aligned [VA127]")
        where = table.keys.rows[self.rows]
        if self.slots is not None:
            return table.place_in_slots(where, self.slots, self.size, self.token)
        if self.index is None:
            raise ValueError("an alignment that is used again has no rows of its own [VA128]")
        return table.align(where, _written(self.index))


@dataclass(frozen=True)
class AlignmentCounts:
    """What the coordinator knows after an alignment: sizes, and how many people are common to all."""

    count: int | None
    sizes: dict[str, int]
    reused: bool = False


def owner(
    me: Owner, keys: TableKeys, task: AlignmentTask, known: bytes = b"", run: bytes = b"", people: int | None = None
) -> AlignedRows:
    """An owner's program; ``known`` is the token of an earlier alignment that it still holds.

    ``run`` is what all participants have agreed on, the digest of the study, so that nobody who takes part in two
    studies can pass messages of ``ot`` on between them. ``people`` is how many keys the owner has in all partitions,
    if these are the keys of one.
    """
    length = _length(keys, task, people)
    me.link(COORDINATOR).send("align", rows=length, token=known)
    told = receive_message(me.link(COORDINATOR), COORDINATOR, messages.plan_message(task.leaders, known))
    again, leader = told["again"], told["leader"]
    if again == bool(leader):
        raise ProtocolError(
            f"the {COORDINATOR} sent an 'align-plan' in which nobody leads, or somebody for nothing [MS014]"
        )
    if again:
        return AlignedRows(known, 0, np.empty(0, dtype=np.int64), reused=True)
    if task.mode == "fuzzy":
        rows, index = fuzzy.owner(me, keys, task)
        return _visible(me, rows, index, keys, task, length)
    order, values = _mixed(keys, length)
    if task.hidden:
        return _hidden(me, _tags(me, values, task, leader, run), order, keys, task)
    circle = cache(partial(PairwiseKeys.of, me, task.owners, task.leaders))
    shares = cache(lambda: private_join.zero_shares(me, values, circle().keys.values()))
    if task.mode == "ot":
        circle()  # before all else, so that the others can make their shares while the leader lays its list out
    made = _tags(me, values, task, leader, run, shares)
    members = _joined(me, made, shares(), task, leader)
    index = members.index.astype("<u8").view(np.uint8).reshape(-1, TOKEN_BYTES)
    found = _visible(me, order[members.rows], index, keys, task, length)
    comparison = EqualityComparison(me, circle(), members.fingerprint(values))
    comparison.show()
    comparison.require(_TOLD_APART)
    return found


def coordinator(me: Coordinator, task: AlignmentTask) -> AlignmentCounts:
    """The coordinator's program."""
    lists = {name: receive_message(me.link(name), name, messages.align_message(task.lengths)) for name in task.owners}
    sizes: dict[str, int] = {name: said["rows"] for name, said in lists.items()}
    tokens = {said["token"] for said in lists.values()}
    if len(tokens) == 1 and tokens != {b""}:
        for name in task.owners:
            me.link(name).send("align-plan", again=True, leader="")
        return AlignmentCounts(None, sizes, reused=True)
    # Choosing the shortest list tells whose list is short; it is worth that only where the leader does most work.
    leader = min(task.leaders, key=lambda name: sizes[name]) if task.leader_joins else task.leaders[0]
    for name in task.owners:
        me.link(name).send("align-plan", again=False, leader=leader)
    if task.leader_joins:
        reports = ot_psi.reports if task.mode == "ot" else dh_psi.expected_reports
        dh_psi.follow_leader(me, leader, sizes, *reports(leader, sizes, both=task.hidden))
    if task.hidden:
        return AlignmentCounts(_place(me, leader, sizes), sizes)
    if task.mode == "fuzzy":
        count = fuzzy.coordinator(me, task, sizes)
    elif task.mode == "helper":
        count = private_join.coordinator_joins(me, leader, sizes, task.enough)
    else:
        count = receive_message(me.link(leader), leader, messages.common_message(min(sizes.values())))["count"]
    _tell_verdict(me, count, task)
    return AlignmentCounts(count, sizes)


def reference(keys: Sequence[Sequence[bytes]]) -> set[bytes]:
    """Who is common to all lists, in the clear."""
    return set.intersection(*(set(values) for values in keys))


def _tags(
    me: Owner,
    values: Sequence[bytes],
    task: AlignmentTask,
    leader: str,
    run: bytes,
    meanwhile: Callable[[], object] = ot_psi.no_values,
) -> KeyTags | dict[str, KeyTags]:
    """This owner's tags; the leader has one list for every other owner, except in ``helper`` with known members."""
    others = [name for name in task.owners if name != leader]
    if task.mode == "ot":
        if me.name == leader:
            return ot_psi.leader_asks(me, values, others, task.lengths, run, both=task.hidden)
        return ot_psi.other_answers(me, values, leader, task.lengths, run, both=task.hidden, meanwhile=meanwhile)
    if task.mode == "dh":
        if me.name == leader:
            return dh_psi.blind_as_leader(me, values, others, task.lengths, both=task.hidden)
        return dh_psi.blind_as_other(me, values, leader, task.lengths, both=task.hidden)
    key = dh_psi.shared_key(me, [leader, *others])
    lists = others if task.hidden and me.name == leader else [me.name]
    step = ProgressSteps(me, "align", len(values) * len(lists))
    if not task.hidden:
        return KeyTags.from_secret(values, key, step)
    made = {name: KeyTags.from_secret(values, dh_psi.key_for(name, key), step) for name in lists}
    return made if me.name == leader else made[me.name]


def _length(keys: TableKeys, task: AlignmentTask, people: int | None) -> int:
    """How long this owner's list is, as the others may know it."""
    held = len(keys.values)
    task.check_length(held if people is None else people)
    length = task.listed_length(held if people is None else people)
    check_fits(held, length)
    return length


def _mixed(keys: TableKeys, length: int) -> tuple[NDArray[np.int64], list[bytes]]:
    """The list in random order; if it is longer than it would be, filled up with keys that nobody has.

    Such a key starts with four bytes of ones. Real keys start with the length of their first part, which is smaller.
    """
    stream, fill = Stream.fresh(), length - len(keys.values)
    values = [*keys.values, *(b"\xff" * 4 + stream.bytes(KEY_BYTES) for _ in range(fill))]
    order = shuffled(len(values), stream)
    return order, [values[place] for place in order.tolist()]


def _written(index: NDArray[np.uint8]) -> pa.Array:
    """The random names as text."""
    length = 2 * TOKEN_BYTES
    starts = np.arange(0, length * len(index) + 1, length, dtype=np.int64)
    text = np.ascontiguousarray(index).tobytes().hex().encode()
    return pa.LargeStringArray.from_buffers(len(index), pa.py_buffer(starts), pa.py_buffer(text))


def _visible(
    me: Owner, rows: NDArray[np.int64], index: NDArray[np.uint8], keys: TableKeys, task: AlignmentTask, length: int
) -> AlignedRows:
    _hear_verdict(me, task, keys, len(rows), length)
    token = hashlib.sha256(index.tobytes()).digest()[:TOKEN_BYTES]
    return AlignedRows(token, len(rows), rows, index=index)


def _joined(
    me: Owner, made: KeyTags | dict[str, KeyTags], shares: Words, task: AlignmentTask, leader: str
) -> private_join.CommonMembers:
    """The common people, from tags and from shares that cancel only for them."""
    if isinstance(made, dict):
        return private_join.leader_joins(me, made, shares, task.enough)
    joiner = leader if task.leader_joins else COORDINATOR
    if me.name == leader:
        private_join.send_questions(me, made.tags, shares)
    else:
        private_join.send_store(me, made, shares, joiner)
    if task.leader_joins:
        dh_psi.wait_for_leader(me)
    return private_join.receive_matches(me, joiner, made.tags)


def _hidden(
    me: Owner, made: KeyTags | dict[str, KeyTags], order: NDArray[np.int64], keys: TableKeys, task: AlignmentTask
) -> AlignedRows:
    if isinstance(made, dict):
        private_membership.send_tags(me, [own.tags for own in made.values()])
    else:
        if task.leader_joins:
            dh_psi.wait_for_leader(
                me
            )  # before the coordinator reads tags; until then it says that the leader is at work
        private_membership.send_tags(me, [made.tags])
    slots, size, token = private_membership.receive_slots(me, len(order))
    ascending = np.argsort(slots)
    rows, slots = order[ascending], slots[ascending]
    real = rows < len(keys.values)
    return AlignedRows(token, size, rows[real], slots=slots[real])


def _place(me: Coordinator, leader: str, sizes: Mapping[str, int]) -> int:
    """Give a slot to every row of every owner; it returns how many people all owners hold."""
    stream = Stream.fresh()
    found = private_membership.receive_tags(me, leader, sizes)
    first, rest, size, count = private_membership.assign_slots(found, stream)
    token = stream.bytes(TOKEN_BYTES)
    for name, slots in {leader: first, **rest}.items():
        me.link(name).send("slots", slots=slots, size=size, token=token)
    return count


def _tell_verdict(me: Coordinator, count: int, task: AlignmentTask) -> None:
    """Send everybody whether enough people are common; if not, wait until all know it, and stop."""
    for name in task.owners:
        me.link(name).send("enough", enough=count >= task.enough, count=count)
    if count < task.enough:
        for name in task.owners:
            receive_message(me.link(name), name, messages.HEARD)
        with suppress(PeerStopped, PeerLost):  # the first owner that receives this leaves
            for name in task.owners:
                me.link(name).send("end")
        raise too_few(count, task)


def _hear_verdict(me: Owner, task: AlignmentTask, keys: TableKeys, matched: int, length: int) -> None:
    """Hear whether the ``matched`` people are enough; the leader knows how many there are also where they are not.

    What is refused as malformed depends on the public ``length`` of the list, not on how many people are on it.
    """
    told = receive_message(me.link(COORDINATOR), COORDINATOR, messages.enough_message(length))
    enough, count = told["enough"], told["count"]
    if enough != (count >= task.enough) or matched not in ((count,) if enough else (0, count)):
        raise ProtocolError(
            f"the {COORDINATOR} sent a verdict 'enough' that is not about those who were matched [MS015]"
        )
    if enough:
        return
    me.link(COORDINATOR).send("heard")
    with suppress(PeerStopped, PeerLost):  # another owner left before, and all know the verdict
        receive_message(me.link(COORDINATOR), COORDINATOR, messages.END)
    raise too_few(count, task, keys)


def too_few(
    count: int, task: AlignmentTask, keys: TableKeys | None = None, after: str = "nothing was spent"
) -> AlignmentError:
    """The error for everyone, with examples of its own keys for an owner."""
    found = "nobody is" if not count else "only one person is" if count == 1 else f"only {count} people are"
    error = AlignmentError(
        f"{found} common to {', '.join(task.owners)} (at_least = {task.at_least}): check that all compare the same "
        f"thing under {', '.join(key.name for key in task.keys)}, written the same way; {after} [AL001]"
    )
    error.public = True  # it was told to everyone as the verdict
    error.examples = keys.examples if keys is not None else ()
    return error
