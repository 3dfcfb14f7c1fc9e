"""Both sides of an alignment: choose who leads, make tags, join them or give them slots.

Nothing here is a share, and nothing is spent: an alignment that ends early costs no budget.

Members known: each owner learns which of its own people all the others hold too. Every owner has a share for each of
its people; the shares of all owners XOR to zero for a person whom all of them hold. An owner puts its shares under its
tags into an oblivious store. One participant joins: it looks the leader's tags up in all stores. If an owner does not
hold the person, its store gives a random answer, so the sum is random: it does not tell which owners lack the person,
or how many. In ``dh`` and ``ot`` the leader joins; in ``helper`` it is the coordinator, which has no key.

Members hidden: there is a common universe of slots, of which every owner knows those of its own rows. The coordinator
gets tags, which tell it nothing about people. A tag that the leader has too gets the slot of the leader's row, every
other tag gets a new slot, and each owner gets the slots of its own list. For an owner these are random slots, with or
without matches, so it learns the size of the universe and nothing else. It does not even learn whether anybody matched:
with a list of one person that would be an answer about that person.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import AlignmentError, PeerLost, PeerStopped, ProtocolError
from colonnade.message_schema import ArrayForm, Boolean, FixedBytes, Integer, MessageSchema, TextChoice, receive_message
from colonnade.mpc.key_value_store import KeyValueStore, Words, build_store, cell_count
from colonnade.protocols.align import dh_psi, fuzzy, ot_psi
from colonnade.protocols.align.messages import (
    LONGEST,
    TOKEN_BYTES,
    KeyTags,
    ProgressStep,
    ProgressSteps,
    all_differ,
    as_binary,
    follow_leader,
    ignore_progress,
    key_for,
    keyed_hashes,
    positions,
    receive_different_words,
    receive_words,
    send_words,
    shared_key,
    shuffled,
    wait_for_leader,
)
from colonnade.protocols.align.task import AlignmentTask
from colonnade.protocols.lanes.partitions import check_fits
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner, Role
from colonnade.protocols.rows import EqualityComparison, PairwiseKeys
from colonnade.randomness import KEY_BYTES, Stream, new_key
from colonnade.tables import Table
from colonnade.tables.cell_parsing import pa, pc
from colonnade.tables.keys import TableKeys

_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class CommonMembers:
    """The common people: their positions in an owner's own list, in the common order, and a random number for each."""

    rows: NDArray[np.int64]
    index: Words

    def fingerprint(self, keys: Sequence[bytes]) -> bytes:
        """What all owners must have alike: the common people in their order, each with its number.

        An owner that was told of somebody whom it does not hold holds nothing that another could hold. It does not say
        so by itself, because whoever told it would learn from that who is on its list.
        """
        if (self.rows < 0).any():
            return new_key()
        state = hashlib.sha256()
        for start in range(0, len(self.rows), _AT_ONCE):
            own = pa.array([keys[row] for row in self.rows[start : start + _AT_ONCE].tolist()], pa.large_binary())
            lengths = np.asarray(pc.binary_length(own), dtype="<u8")
            numbers = np.ascontiguousarray(self.index[start : start + _AT_ONCE], dtype="<u8")
            parts = as_binary(lengths).cast(own.type), own, as_binary(numbers).cast(own.type)
            state.update(pc.binary_join_element_wise(*parts, pa.scalar(b"", own.type)).buffers()[2])
        return state.digest()


def zero_shares(me: Owner, keys: Sequence[bytes], secrets: Iterable[bytes]) -> Words:
    """This owner's shares: for every secret that it has with another owner a keyed hash, which the other adds too."""
    pairs = list(secrets)
    total = np.zeros((len(keys), 2), dtype=np.uint64)
    step = ProgressSteps(me, "match", len(keys) * len(pairs))
    for secret in pairs:
        total ^= keyed_hashes(keys, secret, step)
    return total


def leader_joins(me: Owner, tags: Mapping[str, KeyTags], shares: Words, at_least: int) -> CommonMembers:
    """``dh`` and ``ot``, the leader: look its own people up in everybody's store, and send everybody its matches.

    If there are too few matches, the others get empty lists.
    """
    for other, own in tags.items():
        shares = shares ^ own.pads ^ _receive_store(me, other, own.theirs)[own.tags]
    found = _tell_common(me, shares, {other: own.tags for other, own in tags.items()}, at_least)
    me.link(COORDINATOR).send("common", count=len(found.rows))
    return found


def send_store(me: Owner, own: KeyTags, shares: Words, joiner: str) -> None:
    """Any other owner: send what it holds to the participant that joins."""
    store = build_store(own.tags, shares ^ own.pads, Stream.fresh())
    me.link(joiner).send("store", seed=store.seed.to_bytes(8, "little"))
    send_words(me.link(joiner), "cells", store.cells)


def coordinator_joins(me: Coordinator, leader: str, sizes: Mapping[str, int], at_least: int) -> int:
    """``helper``, the coordinator: join lists that it cannot read; it returns how many people are common.

    If there are too few matches, the owners get empty lists.
    """
    others = [owner for owner in sizes if owner != leader]
    step = ProgressSteps(me, "align", 2 * sizes[leader] + sum(cell_count(sizes[owner]) for owner in others))
    tags = receive_different_words(me.link(leader), "tags", leader, sizes[leader], step)
    shares = receive_words(me.link(leader), "shares", leader, sizes[leader], least=sizes[leader], step=step)
    for owner in others:
        shares = shares ^ _receive_store(me, owner, sizes[owner], step)[tags]
    return len(_tell_common(me, shares, dict.fromkeys(sizes, tags), at_least).rows)


def _common(total: Words) -> tuple[NDArray[np.int64], Words]:
    """The rows whose shares cancel, in a random order, and a random number for each."""
    stream = Stream.fresh()
    rows = np.flatnonzero(~total.any(axis=1))
    return rows[shuffled(len(rows), stream)], stream.uint64((len(rows), 2))


def _tell_common(me: Role, total: Words, tags: Mapping[str, Words], at_least: int) -> CommonMembers:
    """Find who is common, and send each owner the matches by the joiner's tags for it; none if they are too few."""
    rows, index = _common(total)
    told = len(rows) if len(rows) >= at_least else 0
    for owner, known in tags.items():
        send_words(me.link(owner), "matched", known[rows[:told]])
        send_words(me.link(owner), "index", index[:told])
    return CommonMembers(rows, index)


def receive_matches(me: Owner, joiner: str, tags: Words) -> CommonMembers:
    """Receive the matches from the participant that joined, and find them among the own tags; -1 if it is none."""
    told = receive_words(me.link(joiner), "matched", joiner, len(tags))
    if not all_differ(told):
        raise ProtocolError(f"{joiner} named somebody twice in 'matched' [MS012]")
    rows = positions(told, tags)
    return CommonMembers(rows, receive_different_words(me.link(joiner), "index", joiner, len(rows)))


def _receive_store(me: Role, owner: str, size: int, step: ProgressStep = ignore_progress) -> KeyValueStore:
    seed = receive_message(me.link(owner), owner, MessageSchema("store", seed=FixedBytes(8)))["seed"]
    cells = receive_words(me.link(owner), "cells", owner, cell_count(size), least=cell_count(size), step=step)
    return KeyValueStore(int.from_bytes(seed, "little"), cells)


Slots = NDArray[np.int64]


def receive_slots(me: Owner, rows: int) -> tuple[Slots, int, bytes]:
    """The slots of this owner's rows, the size of the universe, and the name of the alignment."""
    due = MessageSchema(
        "slots", slots=ArrayForm(np.int64, (rows,), 0), size=Integer(rows, LONGEST), token=FixedBytes(TOKEN_BYTES)
    )
    told = receive_message(me.link(COORDINATOR), COORDINATOR, due)
    found, size = told["slots"], told["size"]
    if rows and (found.max() >= size or len(np.unique(found)) != rows):
        raise ProtocolError(f"the {COORDINATOR} sent 'slots' outside the universe, or one of them twice [MS019]")
    return found, size, told["token"]


def receive_tags(me: Coordinator, leader: str, sizes: Mapping[str, int]) -> dict[str, tuple[Words, Words]]:
    """For every other owner the leader's tags and its own."""
    others = [owner for owner in sizes if owner != leader]
    step = ProgressSteps(me, "match", sizes[leader] * len(others) + sum(sizes[other] for other in others))
    theirs = [receive_different_words(me.link(leader), "tags", leader, sizes[leader], step) for _ in others]
    return {
        other: (own, receive_different_words(me.link(other), "tags", other, sizes[other], step))
        for other, own in zip(others, theirs, strict=True)
    }


def assign_slots(tags: Mapping[str, tuple[Words, Words]], stream: Stream) -> tuple[Slots, dict[str, Slots], int, int]:
    """The leader's slots, everybody else's, the size of the universe, and how many people are common to all."""
    rows = len(next(iter(tags.values()))[0])
    size = rows + sum(len(own) for _, own in tags.values())
    order = shuffled(size, stream)
    free = rows
    common = np.ones(rows, dtype=bool)
    slots = {}
    for other, (theirs, own) in tags.items():
        place = positions(own, theirs)
        held = np.zeros(rows, dtype=bool)
        held[place[place >= 0]] = True
        common &= held
        apart = place < 0
        # Owners have equal slots only for rows of the leader, so comparing slots tells nothing else.
        place[apart] = free + np.arange(int(apart.sum()))
        free += len(own)
        slots[other] = order[place]
    return order[:rows], slots, size, int(common.sum())


_TOLD_APART = (
    "the owners were not all told the same people as common to all, in one order, so somebody does not follow the "
    "protocol: the alignment is not used, and nothing was spent [DI002]"
)


@dataclass(frozen=True)
class AlignedRows:
    """What an owner holds after an alignment.

    ``rows`` are positions among its keys: in the common order, with a random name for each in ``index``; or, if members
    are hidden, in ascending order of their ``slots`` out of ``size``.
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
            raise ValueError("an alignment has names for its rows, or slots [VA128]")
        return table.align(where, _written(self.index))


@dataclass(frozen=True)
class AlignmentCounts:
    """What the coordinator knows after an alignment: sizes, and how many people are common to all."""

    count: int | None
    sizes: dict[str, int]
    reused: bool = False


def do_not_count() -> None:
    """Let every alignment through."""


def owner(
    me: Owner,
    keys: TableKeys,
    task: AlignmentTask,
    kept: AlignedRows | None = None,
    run: bytes = b"",
    people: int | None = None,
    count: Callable[[], None] = do_not_count,
) -> AlignedRows:
    """An owner's program; ``kept`` is an earlier alignment of these keys that it still holds.

    Unless that is used again, ``count`` is called before anything that depends on a key leaves this owner. Where keys
    are equal, owners compare whom they hold as common, of a new alignment and of one that is used again.

    ``run`` is what all participants have agreed on, the digest of the study, so that nobody who takes part in two
    studies can pass messages of ``ot`` on between them. ``people`` is how many keys the owner has in all partitions,
    if these are the keys of one.
    """
    length = _length(keys, task, people)
    me.link(COORDINATOR).send("align", rows=length, token=b"" if kept is None else kept.token)
    # An alignment cannot be used again where none is held.
    due = MessageSchema("align-plan", again=Boolean(None if kept else False), leader=TextChoice(("", *task.leaders)))
    told = receive_message(me.link(COORDINATOR), COORDINATOR, due)
    again, leader = told["again"], told["leader"]
    if again == bool(leader):
        raise ProtocolError(
            f"the {COORDINATOR} sent an 'align-plan' in which nobody leads, or somebody for nothing [MS014]"
        )
    circle = cache(partial(PairwiseKeys.of, me, task.owners, task.leaders))
    if kept is not None and again:
        if kept.index is not None and task.mode != "fuzzy":
            members = CommonMembers(kept.rows, np.ascontiguousarray(kept.index).view("<u8"))
            EqualityComparison(me, circle(), members.fingerprint(keys.values)).require(_TOLD_APART)
        return replace(kept, reused=True)
    count()
    if task.mode == "fuzzy":
        rows, index = fuzzy.owner(me, keys, task)
        return _visible(me, rows, index, keys, task, length)
    order, values = _mixed(keys, length)
    if task.hidden:
        return _hidden(me, _tags(me, values, task, leader, run), order, keys, task)
    shares = cache(lambda: zero_shares(me, values, circle().keys.values()))
    if task.mode == "ot":
        circle()  # before all else, so that the others can make their shares while the leader lays its list out
    made = _tags(me, values, task, leader, run, shares)
    members = _joined(me, made, shares(), task, leader)
    index = members.index.astype("<u8").view(np.uint8).reshape(-1, TOKEN_BYTES)
    found = _visible(me, order[members.rows], index, keys, task, length)
    EqualityComparison(me, circle(), members.fingerprint(values)).require(_TOLD_APART)
    return found


def coordinator(me: Coordinator, task: AlignmentTask) -> AlignmentCounts:
    """The coordinator's program."""
    due = MessageSchema("align", rows=task.lengths, token=FixedBytes(0, TOKEN_BYTES))
    lists = {name: receive_message(me.link(name), name, due) for name in task.owners}
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
        follow_leader(me, leader, sizes, *reports(leader, sizes, both=task.hidden))
    if task.hidden:
        return AlignmentCounts(_place(me, leader, sizes), sizes)
    if task.mode == "fuzzy":
        count = fuzzy.coordinator(me, task, sizes)
    elif task.mode == "helper":
        count = coordinator_joins(me, leader, sizes, task.enough)
    else:
        count = receive_message(
            me.link(leader), leader, MessageSchema("common", count=Integer(0, min(sizes.values())))
        )["count"]
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
    key = shared_key(me, [leader, *others])
    lists = others if task.hidden and me.name == leader else [me.name]
    step = ProgressSteps(me, "align", len(values) * len(lists))
    if not task.hidden:
        return KeyTags.from_secret(values, key, step)
    made = {name: KeyTags.from_secret(values, key_for(name, key), step) for name in lists}
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
) -> CommonMembers:
    """The common people, from tags and from shares that cancel only for them."""
    if isinstance(made, dict):
        return leader_joins(me, made, shares, task.enough)
    joiner = leader if task.leader_joins else COORDINATOR
    if me.name == leader:  # the coordinator looks its tags up
        send_words(me.link(COORDINATOR), "tags", made.tags)
        send_words(me.link(COORDINATOR), "shares", shares)
    else:
        send_store(me, made, shares, joiner)
    if task.leader_joins:
        wait_for_leader(me)
    return receive_matches(me, joiner, made.tags)


def _hidden(
    me: Owner, made: KeyTags | dict[str, KeyTags], order: NDArray[np.int64], keys: TableKeys, task: AlignmentTask
) -> AlignedRows:
    if task.leader_joins and not isinstance(made, dict):
        # Before the coordinator reads tags; until then it says that the leader is at work.
        wait_for_leader(me)
    for own in made.values() if isinstance(made, dict) else [made]:
        send_words(me.link(COORDINATOR), "tags", own.tags)
    slots, size, token = receive_slots(me, len(order))
    ascending = np.argsort(slots)
    rows, slots = order[ascending], slots[ascending]
    real = rows < len(keys.values)
    return AlignedRows(token, size, rows[real], slots=slots[real])


def _place(me: Coordinator, leader: str, sizes: Mapping[str, int]) -> int:
    """Give a slot to every row of every owner; it returns how many people all owners hold."""
    stream = Stream.fresh()
    found = receive_tags(me, leader, sizes)
    first, rest, size, count = assign_slots(found, stream)
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
            receive_message(me.link(name), name, MessageSchema("heard"))
        with suppress(PeerStopped, PeerLost):  # the first owner that receives this leaves
            for name in task.owners:
                me.link(name).send("end")
        raise too_few(count, task)


def _hear_verdict(me: Owner, task: AlignmentTask, keys: TableKeys, matched: int, length: int) -> None:
    """Hear whether the ``matched`` people are enough; the leader knows how many there are also where they are not.

    What is refused as malformed depends on the public ``length`` of the list, not on how many people are on it.
    """
    due = MessageSchema("enough", enough=Boolean(), count=Integer(0, length))
    told = receive_message(me.link(COORDINATOR), COORDINATOR, due)
    enough, count = told["enough"], told["count"]
    if enough != (count >= task.enough) or matched not in ((count,) if enough else (0, count)):
        raise ProtocolError(
            f"the {COORDINATOR} sent a verdict 'enough' that is not about those who were matched [MS015]"
        )
    if enough:
        return
    me.link(COORDINATOR).send("heard")
    with suppress(PeerStopped, PeerLost):  # another owner left before, and all know the verdict
        receive_message(me.link(COORDINATOR), COORDINATOR, MessageSchema("end"))
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
