"""Tags of ``dh``: hashes of group elements, blinded so that the owners learn nothing of each other's lists.

Members known: an owner's tags are hashes of k H(x), where only the owner knows the scalar k. The leader gets them for
its own people and no others: it sends a H(x) under a fresh blind a, the owner returns k a H(x), and the leader removes
a. The owner sees random elements; the leader cannot compute a tag itself, so it cannot try out keys. Every key has a
blind of its own: an answer that is not a multiple of its own point becomes a point that nobody knows.

Members hidden: here tags go to the coordinator, and nobody who works with it may be able to compute them. So a tag is a
hash of c k H(x), where the leader knows c and the owner k, and both sides get their tags in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from colonnade.errors import ProtocolError
from colonnade.message_schema import ArrayForm, Integer, MessageSchema, receive_message
from colonnade.mpc.blinding import POINT_BYTES, BlindingScalar, BlindingScalars, GroupPoints, hash_to_group
from colonnade.protocols.align.messages import (
    BUSY,
    KeyTags,
    ProgressStep,
    ProgressSteps,
    ReportedProgress,
    all_differ,
    keyed_hashes,
    sizes_of,
)
from colonnade.protocols.roles import Owner
from colonnade.randomness import Stream

_PIECE = 1 << 12
_AHEAD = 4  # pieces that are sent before the first answer is waited for


def blind_as_leader(
    me: Owner, keys: Sequence[bytes], others: Sequence[str], lengths: Integer, *, both: bool
) -> dict[str, KeyTags]:
    """The leader's side of ``dh``: for every other owner the tags of the leader's people.

    It also receives how far the others are with their own lists, so that a busy owner does not seem lost.
    """
    for other in others:
        me.link(other).send("list", size=len(keys))
    secrets = {other: BlindingScalar.generate(Stream.fresh()) for other in others} if both else {}
    theirs = sizes_of(me, others, lengths)
    waiting = turns(theirs, 0 if both else len(keys), _PIECE)
    step = ReportedProgress(me, len(keys) + sum(size for _, size in waiting))
    found = _blinded_by_peers(me, keys, theirs, secrets, step)
    for other, size in waiting:
        if both:
            _answer(me, other, secrets[other], size)
        else:
            receive_message(me.link(other), other, BUSY)
        step(size)
    return found


def blind_as_other(me: Owner, keys: Sequence[bytes], leader: str, lengths: Integer, *, both: bool) -> KeyTags:
    """Another owner's side of ``dh``: blind the leader's list a second time, and make the own tags."""
    secret = BlindingScalar.generate(Stream.fresh())
    me.link(leader).send("list", size=len(keys))
    size = sizes_of(me, [leader], lengths)[leader]
    step = ProgressSteps(me, "align", size + len(keys))
    own = KeyTags.empty(len(keys))
    for start in range(0, size if both else max(size, len(keys)), _PIECE):
        if start < size:
            _answer(me, leader, secret, min(_PIECE, size - start))
            step(min(_PIECE, size - start))
        # One piece of each list in turn, so that neither side waits while the other does two things.
        if not both and start < len(keys):
            mine = keys[start : start + _PIECE]
            _set_points(own, start, secret.multiply(hash_to_group(mine)))
            if start >= size:
                me.link(leader).send("at work")
            step(len(mine))
    return _blinded_by_peers(me, keys, {leader: size}, {leader: secret}, step)[leader] if both else own


def turns(sizes: Mapping[str, int], first: int, piece: int) -> list[tuple[str, int]]:
    """The pieces of several lists that start at ``first`` or later, in turn: whose piece, and how long it is."""
    return [
        (name, min(piece, size - start))
        for start in range(0, max(sizes.values()), piece)
        for name, size in sizes.items()
        if first <= start < size
    ]


def _set_points(found: KeyTags, start: int, points: GroupPoints) -> None:
    """Set some tags and pads from group elements."""
    flat = points.tobytes()
    pieces = [flat[at : at + POINT_BYTES] for at in range(0, len(flat), POINT_BYTES)]
    found.tags[start : start + len(pieces)] = keyed_hashes(pieces, b"tag")
    found.pads[start : start + len(pieces)] = keyed_hashes(pieces, b"pad")


def _blinded_by_peers(
    me: Owner, keys: Sequence[bytes], peers: Mapping[str, int], own: dict[str, BlindingScalar], step: ProgressStep
) -> dict[str, KeyTags]:
    """Tags of the own keys under the secret of each peer, and under the own secret for that peer if there is one.

    ``peers`` says how long their lists are.
    """
    stream, ahead = Stream.fresh(), deque[BlindingScalars]()
    starts = range(0, len(keys), _PIECE)
    found = {peer: KeyTags.empty(len(keys), theirs) for peer, theirs in peers.items()}
    for turn in range(len(starts) + _AHEAD):
        if turn < len(starts):
            points = hash_to_group(keys[starts[turn] : starts[turn] + _PIECE])
            ahead.append(BlindingScalars.generate(len(points), stream))
            piece = ahead[-1].multiply(points)
            for peer in peers:
                me.link(peer).send("blinded", points=piece)
            step(len(piece) // 2)
        if turn >= _AHEAD:
            start = starts[turn - _AHEAD]
            size = min(_PIECE, len(keys) - start)
            off = ahead.popleft().inverse()
            for peer in peers:
                back = off.compose(own[peer]) if peer in own else off
                _set_points(found[peer], start, back.multiply(_received(me, peer, "blinded twice", size), peer))
            step(size - size // 2)
    for peer, tags in found.items():
        if not all_differ(tags.tags):
            raise ProtocolError(f"{peer} sent the same point twice in 'blinded twice', for different keys [MS016]")
    return found


def _answer(me: Owner, peer: str, secret: BlindingScalar, size: int) -> None:
    points = _received(me, peer, "blinded", size)
    me.link(peer).send("blinded twice", points=secret.multiply(points, peer))


def _received(me: Owner, peer: str, kind: str, size: int) -> GroupPoints:
    """A piece of a list of group elements: ``blinded`` by one owner, or ``blinded twice``."""
    due = MessageSchema(kind, points=ArrayForm(np.uint8, (size, POINT_BYTES)))
    points: GroupPoints = receive_message(me.link(peer), peer, due)["points"]
    return points


def expected_reports(leader: str, sizes: Mapping[str, int], *, both: bool) -> tuple[int, int]:
    """How often the leader says in ``dh`` how far it is, and where it ends."""
    theirs = {name: size for name, size in sizes.items() if name != leader}
    waiting = turns(theirs, 0 if both else sizes[leader], _PIECE)
    often = 1 + 2 * len(range(0, sizes[leader], _PIECE)) + len(waiting)
    return often, sizes[leader] + sum(size for _, size in waiting)
