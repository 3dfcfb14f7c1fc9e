"""Messages of an alignment, and how long lists travel: in pieces, checked as they arrive.

An owner declares the length of its list in ``align``; from then on its list has that length in every message, so none
asks for more memory than that. In ``dh`` and ``ot`` an owner hears a length that it may know from two
sides, which must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError, ProtocolError
from colonnade.message_schema import (
    ArrayForm,
    Boolean,
    FixedBytes,
    Integer,
    ItemList,
    MessageSchema,
    TextChoice,
    UpTo,
    receive_message,
)
from colonnade.mpc import PeerLink
from colonnade.mpc.blinding import POINT_BYTES
from colonnade.mpc.key_value_store import WORDS, Words
from colonnade.mpc.oblivious.prf import CHALLENGE_BYTES, CHALLENGES, CODE_BITS, MESSAGE_BITS, SUMS
from colonnade.protocols.roles import Role
from colonnade.randomness import KEY_BYTES, Stream
from colonnade.tables.cell_parsing import pa, pc

LONGEST = 1 << 28
"""No list is longer."""
TOKEN_BYTES = 16

# --- the beginning and the end


def align_message(lengths: Integer) -> MessageSchema:
    """How long an owner's list is, and the name of the alignment that it still holds, if any."""
    return MessageSchema("align", rows=lengths, token=FixedBytes(0, TOKEN_BYTES))


def plan_message(leaders: Sequence[str], known: bytes) -> MessageSchema:
    """That an alignment which everybody holds is used again, or who leads; it cannot be used where none is held."""
    return MessageSchema("align-plan", again=Boolean(None if known else False), leader=TextChoice(("", *leaders)))


def common_message(most: int) -> MessageSchema:
    """How many people are common, from the leader to the coordinator."""
    return MessageSchema("common", count=Integer(0, most))


def enough_message(most: int) -> MessageSchema:
    """Whether enough people are common, and how many they are."""
    return MessageSchema("enough", enough=Boolean(), count=Integer(0, most))


HEARD, END = MessageSchema("heard"), MessageSchema("end")
"""An owner knows that too few are common; all of them know it."""

# --- lists


def list_size_message(lengths: Integer) -> MessageSchema:
    """How long a list is, between the leader and another owner."""
    return MessageSchema("list", size=lengths)


def lengths_message(count: int, lengths: Integer) -> MessageSchema:
    """The same as the coordinator was told: those of all others for the leader, and the leader's for the others."""
    return MessageSchema("lengths", lengths=ItemList(*[lengths] * count))


def words_size_message(kind: str, least: int, most: int) -> MessageSchema:
    """How many 128-bit words follow."""
    return MessageSchema(f"{kind}-size", size=Integer(least, most))


def words_message(kind: str, count: int) -> MessageSchema:
    """A piece of a list of 128-bit words."""
    return MessageSchema(kind, words=ArrayForm(np.uint64, (count, WORDS)))


def points_message(kind: str, count: int) -> MessageSchema:
    """A piece of a list of group elements: ``blinded`` by one owner, or ``blinded twice``."""
    return MessageSchema(kind, points=ArrayForm(np.uint8, (count, POINT_BYTES)))


ALIGN_KEY = MessageSchema("align-key", key=FixedBytes(KEY_BYTES))
"""A key that all owners have."""
STORE = MessageSchema("store", seed=FixedBytes(8))
"""An oblivious store: its seed; its cells follow."""

# --- a keyed function without group operations for each key

OFFER = MessageSchema("offer", point=FixedBytes(POINT_BYTES))
"""The element of the group by which the asker offers two keys for every transfer."""
CHOICES = MessageSchema("choices", points=ArrayForm(np.uint8, (CODE_BITS, 2, POINT_BYTES)))
"""The holder's choices among them, hidden."""
QUERY_HEADER = MessageSchema("asked", salt=FixedBytes(KEY_BYTES), seed=FixedBytes(8))
"""How the asker hashed its list and laid it out; the columns follow."""
CHALLENGE = MessageSchema("challenge", keys=FixedBytes(CHALLENGES * CHALLENGE_BYTES))
"""Which sums of rows the holder wants to see, when it has all columns."""
CHALLENGE_SUMS = MessageSchema(
    "sums", hiding=ArrayForm(np.uint64, (CODE_BITS, SUMS)), listed=ArrayForm(np.uint64, (MESSAGE_BITS, SUMS))
)
"""These sums: of what hides the list, and of the list with rows that hide it here."""


def columns_message(count: int) -> MessageSchema:
    """A piece of every column of the asker's list, hidden."""
    return MessageSchema("columns", words=ArrayForm(np.uint64, (CODE_BITS, count)))


# --- signs of life

AT_WORK = MessageSchema("at work")
"""Another owner has made the tags of one more piece of its list, which the leader does not wait for otherwise."""
WAITING = MessageSchema("waiting", more=Boolean())
"""The leader is at work, or it is done; without numbers, which would tell the lengths of others' lists."""


def aligning_message(done: int, total: int) -> MessageSchema:
    """How far the leader is, for the coordinator, which knows the length of every list."""
    return MessageSchema("aligning", done=Integer(done, total))


# --- hidden members, and similar keys


def slots_message(rows: int) -> MessageSchema:
    """The slots of an owner's rows, the size of the universe, and the name of the alignment."""
    return MessageSchema(
        "slots", slots=ArrayForm(np.int64, (rows,), 0), size=Integer(rows, LONGEST), token=FixedBytes(TOKEN_BYTES)
    )


def filters_message(rows: int, size: int) -> MessageSchema:
    """An owner's Bloom filters of so many bytes."""
    return MessageSchema("fuzzy-filters", filters=ArrayForm(np.uint8, (rows, size)))


def matched_message(rows: int) -> MessageSchema:
    """Which of an owner's rows were paired, and a random name for each."""
    return MessageSchema(
        "fuzzy-matched",
        rows=ArrayForm(np.int64, (UpTo(rows),), 0, rows - 1),
        index=ArrayForm(np.uint8, (UpTo(rows), TOKEN_BYTES)),
    )


_PIECE = 1 << 16


ProgressStep = Callable[[int], None]
"""A function that counts progress: it gets how many more are done."""


def ignore_progress(more: int) -> None:
    """Show nothing."""


class ProgressSteps:
    """Counts towards a total, and shows it as the progress of a phase."""

    def __init__(self, me: Role, phase: str, total: int) -> None:
        self.me, self.phase, self.done, self.total = me, phase, 0, total

    def __call__(self, more: int) -> None:
        """Report that ``more`` further steps are done."""
        self.done += more
        self.me.progress(self.phase, self.done, self.total)


@contextmanager
def refuse_out_of_memory(what: str) -> Iterator[None]:
    """Say what is too long where memory does not suffice inside."""
    try:
        yield
    except MemoryError:
        raise CapacityError(f"{what} does not fit into memory [CA013]") from None


def send_words(link: PeerLink, kind: str, words: Words) -> None:
    """Send 128-bit words, however many."""
    link.send(f"{kind}-size", size=len(words))
    for start in range(0, len(words), _PIECE):
        link.send(kind, words=words[start : start + _PIECE])


def receive_words(
    link: PeerLink, kind: str, peer: str, most: int, *, least: int = 0, step: ProgressStep = ignore_progress
) -> Words:
    """Receive what :func:`send_words` sent, ``least`` to ``most`` words; ``step`` gets how many more have come."""
    size: int = receive_message(link, peer, words_size_message(kind, least, most))["size"]
    with refuse_out_of_memory(f"the list of {peer}"):
        found = np.empty((size, WORDS), dtype=np.uint64)
    for start in range(0, size, _PIECE):
        count = min(_PIECE, size - start)
        found[start : start + count] = receive_message(link, peer, words_message(kind, count))["words"]
        step(count)
    return found


def receive_all_words(link: PeerLink, kind: str, peer: str, size: int, step: ProgressStep = ignore_progress) -> Words:
    """The same for a list whose length was declared before."""
    return receive_words(link, kind, peer, size, least=size, step=step)


def receive_different_words(
    link: PeerLink, kind: str, peer: str, size: int, step: ProgressStep = ignore_progress
) -> Words:
    """The same for a list in which no word comes twice."""
    found = receive_all_words(link, kind, peer, size, step)
    if not all_differ(found):
        raise ProtocolError(f"{peer} sent a list of {kind} in which one comes twice [MS013]")
    return found


def all_differ(words: Words) -> bool:
    """Whether no word comes twice."""
    return len(pc.unique(as_binary(words))) == len(words)


def shuffled(count: int, stream: Stream) -> NDArray[np.int64]:
    """The numbers below ``count`` in a uniformly random order."""
    return np.argsort(stream.uint64(count), kind="stable").astype(np.int64)


def positions(wanted: Words, among: Words) -> NDArray[np.int64]:
    """The position of each wanted word in ``among``, or -1."""
    found = pc.fill_null(pc.index_in(as_binary(wanted), as_binary(among)), -1)
    return np.asarray(found, dtype=np.int64)


def as_binary(words: NDArray[np.uint64]) -> pa.Array:
    """Every number, or every row of numbers, as so many bytes, the lowest first."""
    plain = np.ascontiguousarray(words, dtype="<u8")
    size = 8 * plain.size // len(plain) if len(plain) else 8
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(plain), [None, pa.py_buffer(plain.data)])
