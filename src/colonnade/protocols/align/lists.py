"""Long lists on the wire: in pieces, checked as they arrive."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.mpc import Link
from colonnade.mpc.keyvalue import WORDS, Words
from colonnade.protocols.roles import Role
from colonnade.randomness import KEY_BYTES, Stream

LONGEST = 1 << 28
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


def send_words(link: Link, kind: str, words: Words) -> None:
    """Send 128-bit words, however many."""
    link.send(f"{kind}-size", size=len(words))
    for start in range(0, len(words), _PIECE):
        link.send(kind, words=words[start : start + _PIECE])


def receive_words(link: Link, kind: str, peer: str, step: Step = quietly) -> Words:
    """Receive what :func:`send_words` sent; ``step`` gets how many more words have come."""
    size = received_size(link, f"{kind}-size", peer)
    found = np.empty((size, WORDS), dtype=np.uint64)
    for start in range(0, size, _PIECE):
        piece = link.recv(kind).get("words")
        due = (min(_PIECE, size - start), WORDS)
        found[start : start + _PIECE] = checked(piece, due, np.uint64, peer)
        step(due[0])
    return found


def received_size(link: Link, kind: str, peer: str) -> int:
    """The announced length of a list."""
    return length(link.recv(kind).get("size"), peer)


def length(value: object, peer: str) -> int:
    """A received value, if it can be the length of a list."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LONGEST:
        raise ProtocolError(f"{peer} announced no length of a list")
    return value


def received_key(link: Link, kind: str, peer: str) -> bytes:
    """A secret key that a peer drew."""
    key = link.recv(kind).get("key")
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise ProtocolError(f"{peer} sent something else than a key")
    return key


def checked(array: object, shape: Sequence[int], dtype: type[np.generic], peer: str) -> NDArray[np.generic]:
    """A received array, if it has the shape and type that was due."""
    if not isinstance(array, np.ndarray) or array.shape != tuple(shape) or array.dtype != dtype:
        raise ProtocolError(f"{peer} sent something else than the list that was due")
    return array


def shuffled(count: int, stream: Stream) -> NDArray[np.int64]:
    """The numbers below ``count`` in a uniformly random order."""
    return np.argsort(stream.uint64(count), kind="stable").astype(np.int64)


def positions(wanted: Words, among: Words) -> NDArray[np.int64]:
    """The position of each wanted word in ``among``, or -1."""
    found = pc.fill_null(pc.index_in(_opaque(wanted), _opaque(among)), -1)
    return np.asarray(found, dtype=np.int64)


def _opaque(words: Words) -> pa.Array:
    plain = np.ascontiguousarray(words, dtype="<u8")
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(8 * WORDS), len(plain), [None, pa.py_buffer(plain.data)])
