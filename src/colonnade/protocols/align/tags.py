"""Tags: numbers that an owner and the leader have in common for a person whom both hold, and only for such people.

``dh``, members known: an owner's tags are hashes of k H(x), where only the owner knows the scalar k. The leader gets
them for its own people and no others: it sends a H(x) under a fresh blind a, the owner returns k a H(x), and the
leader removes a. The owner sees random elements; the leader cannot compute a tag itself, so it cannot try out keys.
Every key has a blind of its own: an answer that is not a multiple of its own point becomes a point that nobody knows.

``dh``, members hidden: here tags go to the coordinator, and nobody who works with it may be able to compute them. So a
tag is a hash of c k H(x), where the leader knows c and the owner k, and both sides get their tags in the same way.

``ot``: the same without a group operation for each key: tags are values of a keyed function that its holder evaluates
for the leader without seeing the list (:mod:`colonnade.mpc.oblivious`). Members known: every other owner holds a
function, the leader asks for its own people, and the owner computes the values for its own. Members hidden: a tag is
the sum of two values, of a function that the owner holds and of one that the leader holds for this owner. Neither of
the two can compute it for people of its choice. The leader takes one message of each other owner in turn, so that
nobody waits until it is done with somebody else.

``helper``: the owners share a key, and a tag is a keyed hash. Whoever has both the key and somebody's tags can try out
keys, so tags go only to the coordinator, which does not have it.

With each tag comes a pad, as random as the tag and known to the same two. In ``dh`` and ``ot`` what an owner stores
under a tag is masked by the pad, so that it looks random to the leader unless the leader has the tag. In ``helper`` the
coordinator joins, which has no tags of its own, and pads are zero.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from time import monotonic

import numpy as np

from colonnade.errors import ProtocolError
from colonnade.message_schema import ArrayForm, FixedBytes, Integer, ItemList, MessageSchema, receive_message
from colonnade.mpc.blinding import POINT_BYTES, BlindingScalar, BlindingScalars, GroupPoints, hash_to_group
from colonnade.mpc.key_value_store import WORDS, BitRows, Words
from colonnade.mpc.oblivious import (
    CHALLENGE_BYTES,
    CHALLENGES,
    CODE_BITS,
    MESSAGE_BITS,
    SUMS,
    PrfKeyHolder,
    PrfQuerier,
    QueryList,
    TransferReceiver,
    TransferSender,
    batch_digests,
    new_secret,
    piece_sizes,
    run_context,
    unpack_secret,
)
from colonnade.protocols.align.messages import (
    AT_WORK as SAYS_AT_WORK,
    WAITING,
    ProgressStep,
    ProgressSteps,
    all_differ,
    ignore_progress,
    refuse_out_of_memory,
)
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner
from colonnade.randomness import KEY_BYTES, Stream, new_key

TAG_BYTES = 8 * WORDS
_PIECE = 1 << 12
_HASHES = 1 << 15
_AHEAD = 4  # pieces that are sent before the first answer is waited for
_PAUSE = 1.0  # seconds between two signs of life
_MOST_SIGNS = 1 << 18  # three days of them


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

    def filling(self, values: Iterable[Words]) -> Iterator[int]:
        """Add the values of a keyed function, in ``ot``, to all of them, as they come; says how many have come."""
        done = 0
        for piece in values:
            self.tags[done : done + len(piece)] ^= piece[:, :WORDS]
            self.pads[done : done + len(piece)] ^= piece[:, WORDS:]
            done += len(piece)
            yield done

    def set_points(self, start: int, points: GroupPoints) -> None:
        """Set some of them from group elements."""
        flat = points.tobytes()
        pieces = [flat[at : at + POINT_BYTES] for at in range(0, len(flat), POINT_BYTES)]
        self.tags[start : start + len(pieces)] = keyed_hashes(pieces, b"tag")
        self.pads[start : start + len(pieces)] = keyed_hashes(pieces, b"pad")


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
            receive_message(me.link(other), other, SAYS_AT_WORK)
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
            own.set_points(start, secret.multiply(hash_to_group(mine)))
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
                found[peer].set_points(start, back.multiply(_received(me, peer, "blinded twice", size), peer))
            step(size - size // 2)
    for peer, tags in found.items():
        if not all_differ(tags.tags):
            raise ProtocolError(f"{peer} sent the same point twice in 'blinded twice', for different keys [MS016]")
    return found


def _answer(me: Owner, peer: str, secret: BlindingScalar, size: int) -> None:
    points = _received(me, peer, "blinded", size)
    me.link(peer).send("blinded twice", points=secret.multiply(points, peer))


class ReportedProgress(ProgressSteps):
    """Counts keys, and sends the count to the coordinator, which has no other progress to show."""

    def __init__(self, me: Owner, total: int) -> None:
        super().__init__(me, "align", total)
        self(0)

    def __call__(self, more: int) -> None:
        """Report that ``more`` further steps are done."""
        super().__call__(more)
        self.me.link(COORDINATOR).send("aligning", done=self.done)


def expected_reports(leader: str, sizes: Mapping[str, int], *, both: bool) -> tuple[int, int]:
    """How often the leader says in ``dh`` how far it is, and where it ends."""
    theirs = {name: size for name, size in sizes.items() if name != leader}
    waiting = turns(theirs, 0 if both else sizes[leader], _PIECE)
    often = 1 + 2 * len(range(0, sizes[leader], _PIECE)) + len(waiting)
    return often, sizes[leader] + sum(size for _, size in waiting)


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


def keyed_hashes(keys: Sequence[bytes], secret: bytes, step: ProgressStep = ignore_progress) -> Words:
    """Keyed hashes of 128 bits."""
    begun = hashlib.blake2b(digest_size=TAG_BYTES, key=secret)
    found = np.empty((len(keys), WORDS), dtype="<u8")
    for start in range(0, len(keys), _HASHES):
        piece = keys[start : start + _HASHES]
        found[start : start + len(piece)] = batch_digests(begun, piece)
        step(len(piece))
    return found


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


def _received(me: Owner, peer: str, kind: str, size: int) -> GroupPoints:
    """A piece of a list of group elements: ``blinded`` by one owner, or ``blinded twice``."""
    due = MessageSchema(kind, points=ArrayForm(np.uint8, (size, POINT_BYTES)))
    points: GroupPoints = receive_message(me.link(peer), peer, due)["points"]
    return points


AT_WORK = 1 << 16
"""Keys of its own list after which an owner says that it is at work."""

_OWN = "the own list, as it is laid out for the others,"
_ASKED = "what {} sends for a list of the length that it declared"


def no_values() -> None:
    """Do nothing meanwhile."""


def leader_asks(
    me: Owner, keys: Sequence[bytes], others: Sequence[str], lengths: Integer, run: bytes, *, both: bool
) -> dict[str, KeyTags]:
    """The leader's side: for every other owner the tags of the leader's people; ``run`` tells runs apart."""
    for other in others:
        me.link(other).send("list", size=len(keys))
    theirs = sizes_of(me, others, lengths)
    _, total = reports(me.name, {me.name: len(keys), **theirs}, both=both)
    step = ReportedProgress(me, total)
    found = {other: KeyTags.empty(len(keys), size) for other, size in theirs.items()}
    with refuse_out_of_memory(_OWN):
        _ask(me, keys, found, run, step)
    served: dict[str, Iterator[PrfKeyHolder | None]] = {
        other: _working(me, other, size) for other, size in theirs.items()
    }
    if both:
        # All get the choices at once. Otherwise one would wait for them until another has laid its list out.
        chosen = {other: _choose(me, other, run) for other in theirs}
        for other, size in theirs.items():
            served[other] = chain(served[other], _held(me, other, size, chosen[other]))
    holders = _in_turn(served, step)
    for other, holder in holders.items():
        with refuse_out_of_memory(_ASKED.format(other)):
            _fill(found[other], holder.values(keys), step)
    return found


def other_answers(
    me: Owner,
    keys: Sequence[bytes],
    leader: str,
    lengths: Integer,
    run: bytes,
    *,
    both: bool,
    meanwhile: Callable[[], object] = no_values,
) -> KeyTags:
    """Another owner's side: hold the function for the leader, and compute the own tags.

    ``meanwhile`` is done while the leader lays its list out, and own keys are hashed while the list arrives.
    """
    me.link(leader).send("list", size=len(keys))
    size = sizes_of(me, [leader], lengths)[leader]
    asked = len(piece_sizes(len(keys))) + _works(len(keys)) if both else 0
    step = ProgressSteps(me, "align", len(piece_sizes(size)) + _works(len(keys)) + asked)
    own, ahead = KeyTags.empty(len(keys)), list[Words]()
    at_once = -(-PrfKeyHolder.blocks(len(keys)) // len(piece_sizes(size)))

    def at_work(more: int) -> None:
        me.link(leader).send("at work")
        step(more)

    with refuse_out_of_memory(_ASKED.format(leader)):
        for holder in _held(me, leader, size, _choose(me, leader, run), meanwhile):
            step(1)
            ahead += holder.hashes(keys, len(ahead), at_once)
        _fill(own, holder.values(keys, ahead), at_work)
    if both:
        with refuse_out_of_memory(_OWN):
            _ask(me, keys, {leader: own}, run, step)
    return own


def reports(leader: str, sizes: Mapping[str, int], *, both: bool) -> tuple[int, int]:
    """How often the leader says in ``ot`` how far it is, and where it ends."""
    own = sizes[leader]
    steps = len(piece_sizes(own))
    for name, size in sizes.items():
        if name != leader:
            steps += _works(own) + _works(size) + (len(piece_sizes(size)) + _works(own) if both else 0)
    return 1 + steps, steps


def _works(size: int) -> int:
    """How often one who computes values for so many keys says that it is at work."""
    return -(-size // AT_WORK)


def _fill(tags: KeyTags, values: Iterator[Words], step: ProgressStep) -> None:
    """Add values to tags, and say now and then that this is going on."""
    for done in tags.filling(values):
        if done % AT_WORK == 0 or done == len(tags.tags):
            step(1)


def _ask(me: Owner, keys: Sequence[bytes], holders: Mapping[str, KeyTags], run: bytes, step: ProgressStep) -> None:
    """Add to some tags the values of the functions that others hold, for the same keys."""
    contexts = {holder: run_context(run, me.name, holder) for holder in holders}
    offers = {holder: TransferSender(contexts[holder], Stream.fresh()) for holder in holders}
    for holder, offer in offers.items():
        me.link(holder).send("offer", point=offer.point)
    listed, due = (
        QueryList(keys, Stream.fresh()),
        MessageSchema("choices", points=ArrayForm(np.uint8, (CODE_BITS, 2, POINT_BYTES))),
    )
    askers = {}
    for holder, offer in offers.items():
        choices = receive_message(me.link(holder), holder, due)["points"]
        askers[holder] = PrfQuerier(listed, offer.keys(choices, holder), contexts[holder], Stream.fresh())
        me.link(holder).send("asked", salt=listed.salt, seed=listed.seed.to_bytes(8, "little"))
    for piece in listed.coded_pieces():
        for holder, asker in askers.items():
            me.link(holder).send("columns", words=asker.mask_piece(piece))
        step(1)
    for holder, asker in askers.items():
        me.link(holder).send("columns", words=asker.mask_last_piece())
    step(1)
    due = MessageSchema("challenge", keys=FixedBytes(CHALLENGES * CHALLENGE_BYTES))
    for holder, asker in askers.items():
        hiding, sums = asker.sums(receive_message(me.link(holder), holder, due)["keys"])
        me.link(holder).send("sums", hiding=hiding, listed=sums)
    for holder, asker in askers.items():
        _fill(holders[holder], asker.values(), step)


def _working(me: Owner, other: str, size: int) -> Iterator[None]:
    """Another owner computes values for its list of this size."""
    for _ in range(_works(size)):
        receive_message(me.link(other), other, SAYS_AT_WORK)
        yield None


def _in_turn(served: Mapping[str, Iterator[PrfKeyHolder | None]], step: ProgressStep) -> dict[str, PrfKeyHolder]:
    """Go on with each of several by one message at a time until all are done; the function held for each, if any."""
    left, last = dict(served), dict[str, PrfKeyHolder]()
    while left:
        for other, messages in list(left.items()):
            try:
                holder = next(messages)
            except StopIteration:
                del left[other]
                continue
            step(1)
            if holder is not None:
                last[other] = holder
    return last


_ChosenSecret = tuple[bytes, BitRows, TransferReceiver]
"""The context and the secret of a function, and the transfers in which the asker does not learn it."""


def _choose(me: Owner, asker: str, run: bytes) -> _ChosenSecret:
    """Draw the secret of a function, and send the asker the choices."""
    secret, context = new_secret(Stream.fresh()), run_context(run, asker, me.name)
    choice = TransferReceiver(context, unpack_secret(secret).tolist(), Stream.fresh())
    me.link(asker).send("choices", points=choice.points)
    return context, secret, choice


def _held(
    me: Owner, asker: str, size: int, chosen: _ChosenSecret, meanwhile: Callable[[], object] = no_values
) -> Iterator[PrfKeyHolder]:
    """A function of which the asker gets the values for a list of this size: it comes again after every piece.

    It may be used when there is no further piece. Then the list was checked.
    """
    context, secret, choice = chosen
    with refuse_out_of_memory(_ASKED.format(asker)):
        keys = choice.keys(
            receive_message(me.link(asker), asker, MessageSchema("offer", point=FixedBytes(POINT_BYTES)))["point"],
            asker,
        )
        meanwhile()
        asked = receive_message(
            me.link(asker), asker, MessageSchema("asked", salt=FixedBytes(KEY_BYTES), seed=FixedBytes(8))
        )
        seed = int.from_bytes(asked["seed"], "little")
        holder = PrfKeyHolder(size, secret, keys, asked["salt"], seed, context)
        for count in piece_sizes(size):
            due = MessageSchema("columns", words=ArrayForm(np.uint64, (CODE_BITS, count)))
            holder.receive_piece(receive_message(me.link(asker), asker, due)["words"])
            yield holder
        challenge = Stream.fresh().bytes(CHALLENGES * CHALLENGE_BYTES)
        me.link(asker).send("challenge", keys=challenge)
        sums = ArrayForm(np.uint64, (CODE_BITS, SUMS)), ArrayForm(np.uint64, (MESSAGE_BITS, SUMS))
        shown = receive_message(me.link(asker), asker, MessageSchema("sums", hiding=sums[0], listed=sums[1]))
        holder.check(challenge, shown["hiding"], shown["listed"], asker)
