"""Every message of an alignment.

An owner declares the length of its list in ``align``; from then on its list has that length in every message, so none
asks for more memory than that. In ``dh`` and ``ot`` an owner hears a length that it may know from two
sides, which must agree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from colonnade.mpc.blinding import POINT_BYTES
from colonnade.mpc.keyvalue import WORDS
from colonnade.mpc.oblivious.code import MESSAGE, WIDTH
from colonnade.mpc.oblivious.function import CHALLENGE_BYTES, CHALLENGES, SUMS
from colonnade.randomness import KEY_BYTES
from colonnade.received import Array, Items, Message, Octets, OneOf, Truth, UpTo, Whole

LONGEST = 1 << 28
"""No list is longer."""
TOKEN_BYTES = 16

# --- the beginning and the end


def align(lengths: Whole) -> Message:
    """How long an owner's list is, and the name of the alignment that it still holds, if any."""
    return Message("align", rows=lengths, token=Octets(0, TOKEN_BYTES))


def plan(leaders: Sequence[str], known: bytes) -> Message:
    """That an alignment which everybody holds is used again, or who leads; it cannot be used where none is held."""
    return Message("align-plan", again=Truth(None if known else False), leader=OneOf(("", *leaders)))


def common(most: int) -> Message:
    """How many people are common, from the leader to the coordinator."""
    return Message("common", count=Whole(0, most))


def enough(most: int) -> Message:
    """Whether enough people are common, and how many they are."""
    return Message("enough", enough=Truth(), count=Whole(0, most))


HEARD, END = Message("heard"), Message("end")
"""An owner knows that too few are common; all of them know it."""

# --- lists


def list_size(lengths: Whole) -> Message:
    """How long a list is, between the leader and another owner."""
    return Message("list", size=lengths)


def told_lengths(count: int, lengths: Whole) -> Message:
    """The same as the coordinator was told: those of all others for the leader, and the leader's for the others."""
    return Message("lengths", lengths=Items(*[lengths] * count))


def words_size(kind: str, least: int, most: int) -> Message:
    """How many 128-bit words follow."""
    return Message(f"{kind}-size", size=Whole(least, most))


def words(kind: str, count: int) -> Message:
    """A piece of a list of 128-bit words."""
    return Message(kind, words=Array(np.uint64, (count, WORDS)))


def points(kind: str, count: int) -> Message:
    """A piece of a list of group elements: ``blinded`` by one owner, or ``blinded twice``."""
    return Message(kind, points=Array(np.uint8, (count, POINT_BYTES)))


ALIGN_KEY = Message("align-key", key=Octets(KEY_BYTES))
"""A key that all owners have."""
STORE = Message("store", seed=Octets(8))
"""An oblivious store: its seed; its cells follow."""

# --- a keyed function without group operations for each key

OFFER = Message("offer", point=Octets(POINT_BYTES))
"""The element of the group by which the asker offers two keys for every transfer."""
CHOICES = Message("choices", points=Array(np.uint8, (WIDTH, 2, POINT_BYTES)))
"""The holder's choices among them, hidden."""
ASKED = Message("asked", salt=Octets(KEY_BYTES), seed=Octets(8))
"""How the asker hashed its list and laid it out; the columns follow."""
CHALLENGE = Message("challenge", keys=Octets(CHALLENGES * CHALLENGE_BYTES))
"""Which sums of rows the holder wants to see, when it has all columns."""
SHOWN = Message("sums", hiding=Array(np.uint64, (WIDTH, SUMS)), listed=Array(np.uint64, (MESSAGE, SUMS)))
"""These sums: of what hides the list, and of the list with rows that hide it here."""


def columns(count: int) -> Message:
    """A piece of every column of the asker's list, hidden."""
    return Message("columns", words=Array(np.uint64, (WIDTH, count)))


# --- signs of life

AT_WORK = Message("at work")
"""Another owner has made the tags of one more piece of its list, which the leader does not wait for otherwise."""
WAITING = Message("waiting", more=Truth())
"""The leader is at work, or it is done; without numbers, which would tell the lengths of others' lists."""


def aligning(done: int, total: int) -> Message:
    """How far the leader is, for the coordinator, which knows the length of every list."""
    return Message("aligning", done=Whole(done, total))


# --- hidden members, and similar keys


def slots(rows: int) -> Message:
    """The slots of an owner's rows, the size of the universe, and the name of the alignment."""
    return Message("slots", slots=Array(np.int64, (rows,), 0), size=Whole(rows, LONGEST), token=Octets(TOKEN_BYTES))


def filters(rows: int, size: int) -> Message:
    """An owner's Bloom filters of so many bytes."""
    return Message("fuzzy-filters", filters=Array(np.uint8, (rows, size)))


def matched(rows: int) -> Message:
    """Which of an owner's rows were paired, and a random name for each."""
    return Message(
        "fuzzy-matched",
        rows=Array(np.int64, (UpTo(rows),), 0, rows - 1),
        index=Array(np.uint8, (UpTo(rows), TOKEN_BYTES)),
    )
