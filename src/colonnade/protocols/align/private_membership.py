"""Alignment with hidden members: a common universe of slots, of which every owner knows those of its own rows.

The coordinator gets tags, which tell it nothing about people. A tag that the leader has too gets the slot of the
leader's row, every other tag gets a new slot, and each owner gets the slots of its own list. For an owner these are
random slots, with or without matches, so it learns the size of the universe and nothing else. It does not even learn
whether anybody matched: with a list of one person that would be an answer about that person.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.message_schema import receive_message
from colonnade.mpc.key_value_store import Words
from colonnade.protocols.align import messages
from colonnade.protocols.align.messages import ProgressSteps, positions, receive_different_words, send_words, shuffled
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner
from colonnade.randomness import Stream

Slots = NDArray[np.int64]


def send_tags(me: Owner, tags: Sequence[Words]) -> None:
    """An owner's side: its tags; the leader has a list for each other owner."""
    for words in tags:
        send_words(me.link(COORDINATOR), "tags", words)


def receive_slots(me: Owner, rows: int) -> tuple[Slots, int, bytes]:
    """The slots of this owner's rows, the size of the universe, and the name of the alignment."""
    told = receive_message(me.link(COORDINATOR), COORDINATOR, messages.slots_message(rows))
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
