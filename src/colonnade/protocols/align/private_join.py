"""Alignment with known members: each owner learns which of its own people all the others hold too.

Every owner has a share for each of its people; the shares of all owners XOR to zero for a person whom all of them
hold. An owner puts its shares under its tags into an oblivious store. One participant joins: it looks the leader's tags
up in all stores. If an owner does not hold the person, its store gives a random answer, so the sum is random: it does
not tell which owners lack the person, or how many. In ``dh`` and ``ot`` the leader joins; in ``helper`` it is the
coordinator, which has no key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.message_schema import receive_message
from colonnade.mpc.key_value_store import KeyValueStore, Words, build_store, cell_count
from colonnade.protocols.align import messages
from colonnade.protocols.align.dh_psi import KeyTags, keyed_hashes
from colonnade.protocols.align.messages import (
    ProgressStep,
    ProgressSteps,
    all_differ,
    as_binary,
    ignore_progress,
    positions,
    receive_all_words,
    receive_different_words,
    receive_words,
    send_words,
    shuffled,
)
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner, Role
from colonnade.randomness import Stream, new_key
from colonnade.tables.cell_parsing import pa, pc

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
    rows, index = _common(shares)
    told = len(rows) if len(rows) >= at_least else 0
    for other, own in tags.items():
        _tell(me, other, own.tags[rows[:told]], index[:told])
    me.link(COORDINATOR).send("common", count=len(rows))
    return CommonMembers(rows, index)


def send_store(me: Owner, own: KeyTags, shares: Words, joiner: str) -> None:
    """Any other owner: send what it holds to the participant that joins."""
    store = build_store(own.tags, shares ^ own.pads, Stream.fresh())
    me.link(joiner).send("store", seed=store.seed.to_bytes(8, "little"))
    send_words(me.link(joiner), "cells", store.cells)


def send_questions(me: Owner, tags: Words, shares: Words) -> None:
    """``helper``, the leader: send the tags that the coordinator looks up, and the own shares."""
    send_words(me.link(COORDINATOR), "tags", tags)
    send_words(me.link(COORDINATOR), "shares", shares)


def coordinator_joins(me: Coordinator, leader: str, sizes: Mapping[str, int], at_least: int) -> int:
    """``helper``, the coordinator: join lists that it cannot read; it returns how many people are common.

    If there are too few matches, the owners get empty lists.
    """
    others = [owner for owner in sizes if owner != leader]
    step = ProgressSteps(me, "align", 2 * sizes[leader] + sum(cell_count(sizes[owner]) for owner in others))
    tags = receive_different_words(me.link(leader), "tags", leader, sizes[leader], step)
    shares = receive_all_words(me.link(leader), "shares", leader, sizes[leader], step)
    for owner in others:
        shares = shares ^ _receive_store(me, owner, sizes[owner], step)[tags]
    rows, index = _common(shares)
    told = len(rows) if len(rows) >= at_least else 0
    for owner in sizes:
        _tell(me, owner, tags[rows[:told]], index[:told])
    return len(rows)


def _common(total: Words) -> tuple[NDArray[np.int64], Words]:
    """The rows whose shares cancel, in a random order, and a random number for each."""
    stream = Stream.fresh()
    rows = np.flatnonzero(~total.any(axis=1))
    return rows[shuffled(len(rows), stream)], stream.uint64((len(rows), 2))


def _tell(me: Role, owner: str, tags: Words, index: Words) -> None:
    send_words(me.link(owner), "matched", tags)
    send_words(me.link(owner), "index", index)


def receive_matches(me: Owner, joiner: str, tags: Words) -> CommonMembers:
    """Receive the matches from the participant that joined, and find them among the own tags; -1 if it is none."""
    told = receive_words(me.link(joiner), "matched", joiner, len(tags))
    if not all_differ(told):
        raise ProtocolError(f"{joiner} named somebody twice in 'matched' [MS012]")
    rows = positions(told, tags)
    return CommonMembers(rows, receive_different_words(me.link(joiner), "index", joiner, len(rows)))


def _receive_store(me: Role, owner: str, size: int, step: ProgressStep = ignore_progress) -> KeyValueStore:
    seed = receive_message(me.link(owner), owner, messages.STORE)["seed"]
    cells = receive_all_words(me.link(owner), "cells", owner, cell_count(size), step)
    return KeyValueStore(int.from_bytes(seed, "little"), cells)
