"""Long lists on the wire: in pieces, checked as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError, ProtocolError
from colonnade.mpc import Link
from colonnade.mpc.keyvalue import WORDS, Words
from colonnade.protocols.align import vocabulary
from colonnade.protocols.roles import Role
from colonnade.randomness import Stream
from colonnade.received import received
from colonnade.tables.arrow import pa, pc

_PIECE = 1 << 16


Step = Callable[[int], None]
"""A function that counts progress: it gets how many more are done."""


def quietly(more: int) -> None:
    """Show nothing."""


class Steps:
    """Counts towards a total, and shows it as the progress of a phase."""

    def __init__(self, me: Role, phase: str, total: int) -> None:
        self.me, self.phase, self.done, self.total = me, phase, 0, total

    def __call__(self, more: int) -> None:
        """Report that ``more`` further steps are done."""
        self.done += more
        self.me.progress(self.phase, self.done, self.total)


@contextmanager
def fits(what: str) -> Iterator[None]:
    """Say what is too long where memory does not suffice inside."""
    try:
        yield
    except MemoryError:
        raise CapacityError(f"{what} does not fit into memory [CA013]") from None


def send_words(link: Link, kind: str, words: Words) -> None:
    """Send 128-bit words, however many."""
    link.send(f"{kind}-size", size=len(words))
    for start in range(0, len(words), _PIECE):
        link.send(kind, words=words[start : start + _PIECE])


def receive_words(link: Link, kind: str, peer: str, most: int, *, least: int = 0, step: Step = quietly) -> Words:
    """Receive what :func:`send_words` sent, ``least`` to ``most`` words; ``step`` gets how many more have come."""
    size: int = received(link, peer, vocabulary.words_size(kind, least, most))["size"]
    with fits(f"the list of {peer}"):
        found = np.empty((size, WORDS), dtype=np.uint64)
    for start in range(0, size, _PIECE):
        count = min(_PIECE, size - start)
        found[start : start + count] = received(link, peer, vocabulary.words(kind, count))["words"]
        step(count)
    return found


def receive_all_words(link: Link, kind: str, peer: str, size: int, step: Step = quietly) -> Words:
    """The same for a list whose length was declared before."""
    return receive_words(link, kind, peer, size, least=size, step=step)


def receive_different_words(link: Link, kind: str, peer: str, size: int, step: Step = quietly) -> Words:
    """The same for a list in which no word comes twice."""
    found = receive_all_words(link, kind, peer, size, step)
    if not all_differ(found):
        raise ProtocolError(f"{peer} sent a list of {kind} in which one comes twice [MS013]")
    return found


def all_differ(words: Words) -> bool:
    """Whether no word comes twice."""
    return len(pc.unique(opaque(words))) == len(words)


def shuffled(count: int, stream: Stream) -> NDArray[np.int64]:
    """The numbers below ``count`` in a uniformly random order."""
    return np.argsort(stream.uint64(count), kind="stable").astype(np.int64)


def positions(wanted: Words, among: Words) -> NDArray[np.int64]:
    """The position of each wanted word in ``among``, or -1."""
    found = pc.fill_null(pc.index_in(opaque(wanted), opaque(among)), -1)
    return np.asarray(found, dtype=np.int64)


def opaque(words: NDArray[np.uint64]) -> pa.Array:
    """Every number, or every row of numbers, as so many bytes, the lowest first."""
    plain = np.ascontiguousarray(words, dtype="<u8")
    size = 8 * plain.size // len(plain) if len(plain) else 8
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(plain), [None, pa.py_buffer(plain.data)])
