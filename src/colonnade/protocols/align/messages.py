"""Signs of life of an alignment, and how long lists travel: in pieces, checked as they arrive.

An owner declares the length of its list in ``align``; from then on its list has that length in every message, so none
asks for more memory than that. In ``dh`` and ``ot`` an owner hears a length that it may know from two
sides, which must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError, ProtocolError
from colonnade.message_schema import (
    ArrayForm,
    Boolean,
    Integer,
    MessageSchema,
    receive_message,
)
from colonnade.mpc import PeerLink
from colonnade.mpc.key_value_store import WORDS, Words
from colonnade.protocols.roles import Role
from colonnade.randomness import Stream
from colonnade.tables.cell_parsing import pa, pc

LONGEST = 1 << 28
"""No list is longer."""
TOKEN_BYTES = 16

AT_WORK = MessageSchema("at work")
"""Another owner has made the tags of one more piece of its list, which the leader does not wait for otherwise."""
WAITING = MessageSchema("waiting", more=Boolean())
"""The leader is at work, or it is done; without numbers, which would tell the lengths of others' lists."""
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
    size: int = receive_message(link, peer, MessageSchema(f"{kind}-size", size=Integer(least, most)))["size"]
    with refuse_out_of_memory(f"the list of {peer}"):
        found = np.empty((size, WORDS), dtype=np.uint64)
    for start in range(0, size, _PIECE):
        count = min(_PIECE, size - start)
        due = MessageSchema(kind, words=ArrayForm(np.uint64, (count, WORDS)))
        found[start : start + count] = receive_message(link, peer, due)["words"]
        step(count)
    return found


def receive_different_words(
    link: PeerLink, kind: str, peer: str, size: int, step: ProgressStep = ignore_progress
) -> Words:
    """The same for a list whose length was declared before, and in which no word comes twice."""
    found = receive_words(link, kind, peer, size, least=size, step=step)
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
