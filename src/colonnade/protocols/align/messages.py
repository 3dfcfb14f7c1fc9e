"""What alignments of every mode share: tags, signs of life, and how long lists travel.

Tags are numbers that an owner and the leader have in common for a person whom both hold, and only for such people.
``dh`` (:mod:`colonnade.protocols.align.dh_psi`) and ``ot`` (:mod:`colonnade.protocols.align.ot_psi`) make them so that
the leader gets those of its own people and nobody can try out keys. With each tag comes a pad, as random as the tag and
known to the same two: what an owner stores under a tag is masked by it, so that it looks random to the leader unless
the leader has the tag.

``helper``: the owners share a key, and a tag is a keyed hash. Whoever has both the key and somebody's tags can try out
keys, so tags go only to the coordinator, which does not have it. It joins, has no tags of its own, and pads are zero.

Long lists travel in pieces, checked as they arrive. An owner declares the length of its list in ``align``; from then on
its list has that length in every message, so none asks for more memory than that. In ``dh`` and ``ot`` an owner hears
a length that it may know from two sides, which must agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

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
    receive_message,
)
from colonnade.mpc import PeerLink
from colonnade.mpc.key_value_store import WORDS, Words
from colonnade.mpc.oblivious import batch_digests
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner, Role
from colonnade.randomness import KEY_BYTES, Stream, new_key
from colonnade.tables.cell_parsing import pa, pc

LONGEST = 1 << 28
"""No list is longer."""
TOKEN_BYTES = 16
TAG_BYTES = 8 * WORDS

BUSY = MessageSchema("at work")
"""Another owner has made the tags of one more piece of its list, which the leader does not wait for otherwise."""
WAITING = MessageSchema("waiting", more=Boolean())
"""The leader is at work, or it is done; without numbers, which would tell the lengths of others' lists."""
_PIECE = 1 << 16
_HASHES = 1 << 15
_PAUSE = 1.0  # seconds between two signs of life
_MOST_SIGNS = 1 << 18  # three days of them

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


@dataclass(frozen=True)
class KeyTags:
    """A tag and a pad for each key."""

    tags: Words
    pads: Words
    theirs: int = 0
    """How long the other owner's list is, where it is the leader's tags for that owner in ``dh`` and ``ot``."""

    @classmethod
    def empty(cls, count: int, theirs: int = 0) -> KeyTags:
        """Zeros, to be filled in, for ``count`` keys."""
        return cls(np.zeros((count, WORDS), dtype=np.uint64), np.zeros((count, WORDS), dtype=np.uint64), theirs)

    @classmethod
    def from_secret(cls, keys: Sequence[bytes], secret: bytes, step: ProgressStep = ignore_progress) -> KeyTags:
        """Tags of ``helper``."""
        return cls(keyed_hashes(keys, secret, step), np.zeros((len(keys), WORDS), dtype=np.uint64))


def keyed_hashes(keys: Sequence[bytes], secret: bytes, step: ProgressStep = ignore_progress) -> Words:
    """Keyed hashes of 128 bits."""
    begun = hashlib.blake2b(digest_size=TAG_BYTES, key=secret)
    found = np.empty((len(keys), WORDS), dtype="<u8")
    for start in range(0, len(keys), _HASHES):
        piece = keys[start : start + _HASHES]
        found[start : start + len(piece)] = batch_digests(begun, piece)
        step(len(piece))
    return found


def shared_key(me: Owner, owners: Sequence[str]) -> bytes:
    """A key that all owners have: the first draws it."""
    first, *rest = owners
    if me.name != first:
        key: bytes = receive_message(me.link(first), first, MessageSchema("align-key", key=FixedBytes(KEY_BYTES)))[
            "key"
        ]
        return key
    key = new_key()
    for owner in rest:
        me.link(owner).send("align-key", key=key)
    return key


def key_for(owner: str, key: bytes) -> bytes:
    """The key for the tags of one owner, from the shared key; so lists of different owners cannot be compared."""
    return hashlib.blake2b(owner.encode(), key=key, digest_size=len(key)).digest()


def sizes_of(me: Owner, peers: Sequence[str], lengths: Integer) -> dict[str, int]:
    """How long the lists of these peers are, as each says itself and as it said to the coordinator."""
    due = MessageSchema("lengths", lengths=ItemList(*[lengths] * len(peers)))
    told = receive_message(me.link(COORDINATOR), COORDINATOR, due)["lengths"]
    listed = MessageSchema("list", size=lengths)
    sizes = {peer: receive_message(me.link(peer), peer, listed)["size"] for peer in peers}
    for peer, length in zip(peers, told, strict=True):
        if sizes[peer] != length:
            raise ProtocolError(f"{peer} sent another length in 'list' than the {COORDINATOR} in 'lengths' [MS018]")
    return sizes


class ReportedProgress(ProgressSteps):
    """Counts keys, and sends the count to the coordinator, which has no other progress to show."""

    def __init__(self, me: Owner, total: int) -> None:
        super().__init__(me, "align", total)
        self(0)

    def __call__(self, more: int) -> None:
        """Report that ``more`` further steps are done."""
        super().__call__(more)
        self.me.link(COORDINATOR).send("aligning", done=self.done)


def follow_leader(me: Coordinator, leader: str, sizes: Mapping[str, int], often: int, total: int) -> None:
    """The coordinator tells lengths to whom may know them, shows how far the leader is, and says that it is at work.

    The others get no numbers, which would tell them the lengths of lists. How many signs of life they get depends on
    the time alone, and that they see anyway: at most one in ``_PAUSE`` seconds, and one at the end.
    """
    theirs = {name: size for name, size in sizes.items() if name != leader}
    me.link(leader).send("lengths", lengths=list(theirs.values()))
    for other in theirs:
        me.link(other).send("lengths", lengths=[sizes[leader]])
    done, told = 0, monotonic()
    for _ in range(often):
        done = receive_message(me.link(leader), leader, MessageSchema("aligning", done=Integer(done, total)))["done"]
        me.progress("align", done, total)
        if monotonic() >= told + _PAUSE:
            told = monotonic()
            _tell_waiting(me, theirs, more=True)
    _tell_waiting(me, theirs, more=False)


def _tell_waiting(me: Coordinator, others: Iterable[str], *, more: bool) -> None:
    for other in others:
        me.link(other).send("waiting", more=more)


def wait_for_leader(me: Owner) -> None:
    """Another owner waits until the leader has everybody's tags."""
    for _ in range(_MOST_SIGNS):
        if not receive_message(me.link(COORDINATOR), COORDINATOR, WAITING)["more"]:
            return
    raise ProtocolError(f"the {COORDINATOR} sent more messages {WAITING.kind!r} than any alignment takes [MS017]")
