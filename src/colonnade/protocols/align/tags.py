"""Tags: numbers that an owner and the leader have in common for a person whom both hold, and for nobody else.

``dh``: an owner's tags are hashes of k H(x), where only the owner knows the scalar k. The leader gets them for its own
people and no others: it sends a H(x) under a blind a of its own, the owner returns k a H(x), and the leader takes a
off. The owner sees random elements; the leader cannot compute a tag by itself, so it cannot try out keys.

``helper``: the owners share a key, and a tag is a keyed hash. Whoever has both the key and somebody's tags can try out
keys, so tags go only to the coordinator, which does not have it.

With each tag comes a pad, as random as the tag and known to the same two. In ``dh`` what an owner stores under a tag is
covered by the pad, so that to the leader it is random wherever it does not have the tag. In ``helper`` who joins has
no tags of its own, and pads are zero.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from colonnade.mpc.blinding import POINT_BYTES, Blind, Points, hashed
from colonnade.mpc.keyvalue import WORDS, Words
from colonnade.protocols.align.lists import checked, received_size
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner
from colonnade.randomness import Stream, new_key

TAG_BYTES = 8 * WORDS
_PIECE = 1 << 12
_AHEAD = 4  # pieces that the leader sends before it waits for the first answer


@dataclass(frozen=True)
class Tags:
    """A tag and a pad for each key."""

    tags: Words
    pads: Words

    @classmethod
    def empty(cls, count: int) -> Tags:
        """Room for so many."""
        return cls(np.zeros((count, WORDS), dtype=np.uint64), np.zeros((count, WORDS), dtype=np.uint64))

    @classmethod
    def keyed(cls, keys: Sequence[bytes], secret: bytes) -> Tags:
        """Tags of ``helper``."""
        return cls(keyed(keys, secret), np.zeros((len(keys), WORDS), dtype=np.uint64))

    def put(self, start: int, points: Points) -> None:
        """Set some of them from group elements."""
        flat = points.tobytes()
        pieces = [flat[at : at + POINT_BYTES] for at in range(0, len(flat), POINT_BYTES)]
        self.tags[start : start + len(pieces)] = keyed(pieces, b"tag")
        self.pads[start : start + len(pieces)] = keyed(pieces, b"pad")


def leader_blinded(me: Owner, keys: Sequence[bytes], others: Sequence[str]) -> dict[str, Tags]:
    """The leader's side of ``dh``: for every other owner the tags of the leader's people."""
    blind = Blind.fresh(Stream.fresh())
    unblind, starts = blind.inverse(), range(0, len(keys), _PIECE)
    found = {other: Tags.empty(len(keys)) for other in others}
    for other in others:
        me.link(other).send("list", size=len(keys))
    _report(me, 0, len(keys))
    for step in range(len(starts) + _AHEAD):
        if step < len(starts):
            piece = blind.on(hashed(keys[starts[step] : starts[step] + _PIECE]))
            for other in others:
                me.link(other).send("blinded", points=piece)
        if step - _AHEAD >= 0:
            start = starts[step - _AHEAD]
            size = min(_PIECE, len(keys) - start)
            for other in others:
                points = _received(me, other, "blinded twice", size)
                found[other].put(start, unblind.on(points, other))
            _report(me, start + size, len(keys))
    return found


def other_blinded(me: Owner, keys: Sequence[bytes], leader: str) -> Tags:
    """Another owner's side of ``dh``: blind the leader's list once more, and its own."""
    secret = Blind.fresh(Stream.fresh())
    size = received_size(me.link(leader), "list", leader)
    own = Tags.empty(len(keys))
    for start in range(0, max(size, len(keys)), _PIECE):
        # One piece of each, so that neither side waits while the other has two things to do.
        if start < size:
            points = _received(me, leader, "blinded", min(_PIECE, size - start))
            me.link(leader).send("blinded twice", points=secret.on(points, leader))
        mine = keys[start : start + _PIECE]
        if mine:
            own.put(start, secret.on(hashed(mine)))
        me.progress("align", min(start + _PIECE, size) + min(start + _PIECE, len(keys)), size + len(keys))
    return own


def follow(me: Coordinator, leader: str) -> None:
    """The coordinator watches how far the leader is."""
    done, total = 0, 1
    while done < total:
        said = me.link(leader).recv("aligning")
        done, total = int(said["done"]), int(said["total"])
        me.progress("align", done, total)


def shared_key(me: Owner, owners: Sequence[str]) -> bytes:
    """A key that all owners have: the first draws it."""
    first, *rest = owners
    if me.name != first:
        return bytes(me.link(first).recv("align-key")["key"])
    key = new_key()
    for owner in rest:
        me.link(owner).send("align-key", key=key)
    return key


def keyed(keys: Iterable[bytes], secret: bytes) -> Words:
    """Keyed hashes of 128 bits."""
    digests = b"".join([hashlib.blake2b(key, digest_size=TAG_BYTES, key=secret).digest() for key in keys])
    return np.frombuffer(digests, dtype="<u8").reshape(-1, WORDS)


def _received(me: Owner, peer: str, kind: str, size: int) -> Points:
    points = checked(me.link(peer).recv(kind).get("points"), (size, POINT_BYTES), np.uint8, peer)
    return np.asarray(points, dtype=np.uint8)


def _report(me: Owner, done: int, total: int) -> None:
    me.progress("align", done, total)
    me.link(COORDINATOR).send("aligning", done=done, total=total)
