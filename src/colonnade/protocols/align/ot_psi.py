"""Tags of ``ot``: values of a keyed function that its holder evaluates for the leader without seeing the list.

This is ``dh`` without a group operation for each key (:mod:`colonnade.mpc.oblivious`). Members known: every other owner
holds a function, the leader asks for its own people, and the owner computes the values for its own. Members hidden:
tags go to the coordinator, so a tag is the sum of two values: of a function that the owner holds and of one that the
leader holds for this owner. Neither of the two can compute it for people of its choice.

The leader takes one message of each other owner in turn, so that nobody waits until it is done with somebody else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from colonnade.message_schema import ArrayForm, FixedBytes, Integer, MessageSchema, receive_message
from colonnade.mpc.blinding import POINT_BYTES
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
    new_secret,
    piece_sizes,
    run_context,
    unpack_secret,
)
from colonnade.protocols.align.messages import (
    BUSY,
    KeyTags,
    ProgressStep,
    ProgressSteps,
    ReportedProgress,
    refuse_out_of_memory,
    sizes_of,
)
from colonnade.protocols.roles import Owner
from colonnade.randomness import KEY_BYTES, Stream

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
    """Add the values of a keyed function to tags, as they come, and say now and then that this is going on."""
    done = 0
    for piece in values:
        tags.tags[done : done + len(piece)] ^= piece[:, :WORDS]
        tags.pads[done : done + len(piece)] ^= piece[:, WORDS:]
        done += len(piece)
        if done % AT_WORK == 0 or done == len(tags.tags):
            step(1)


def _ask(me: Owner, keys: Sequence[bytes], holders: Mapping[str, KeyTags], run: bytes, step: ProgressStep) -> None:
    """Add to some tags the values of the functions that others hold, for the same keys."""
    contexts = {holder: run_context(run, me.name, holder) for holder in holders}
    offers = {holder: TransferSender(contexts[holder], Stream.fresh()) for holder in holders}
    for holder, offer in offers.items():
        me.link(holder).send("offer", point=offer.point)
    listed = QueryList(keys, Stream.fresh())
    due = MessageSchema("choices", points=ArrayForm(np.uint8, (CODE_BITS, 2, POINT_BYTES)))
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
        receive_message(me.link(other), other, BUSY)
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
        due = MessageSchema(
            "sums",
            hiding=ArrayForm(np.uint64, (CODE_BITS, SUMS)),
            listed=ArrayForm(np.uint64, (MESSAGE_BITS, SUMS)),
        )
        shown = receive_message(me.link(asker), asker, due)
        holder.check(challenge, shown["hiding"], shown["listed"], asker)
