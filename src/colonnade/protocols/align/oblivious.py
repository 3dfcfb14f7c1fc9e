"""Tags of ``ot``: values of a keyed function that its holder evaluates for the leader without seeing the list.

Members known: every other owner holds a function, the leader asks for its own people, and the owner computes the values
for its own. Members hidden: tags go to the coordinator, so a tag is the sum of two values: of a function that the owner
holds and of one that the leader holds for this owner. Neither of the two can compute it for people of its choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from colonnade.mpc.oblivious.base import Choice, Offer
from colonnade.mpc.oblivious.function import (
    CHALLENGE_BYTES,
    CHALLENGES,
    Asker,
    Holder,
    Listed,
    bits_of,
    new_secret,
    pieces,
)
from colonnade.protocols.align import vocabulary
from colonnade.protocols.align.lists import Step, Steps, fits
from colonnade.protocols.align.tags import ReportedSteps, Tags, sizes_of, turns
from colonnade.protocols.roles import Owner
from colonnade.randomness import Stream
from colonnade.received import Whole, received

_AT_WORK = 1 << 16
"""Keys of its own list after which an owner says that it is at work."""

_OWN = "the own list, as it is laid out for the others,"
_ASKED = "what {} sends for a list of the length that it declared"


def leader_asks(
    me: Owner, keys: Sequence[bytes], others: Sequence[str], lengths: Whole, *, both: bool
) -> dict[str, Tags]:
    """The leader's side: for every other owner the tags of the leader's people."""
    for other in others:
        me.link(other).send("list", size=len(keys))
    theirs = sizes_of(me, others, lengths)
    _, total = reports(me.name, {me.name: len(keys), **theirs}, both=both)
    step = ReportedSteps(me, total)
    found = {other: Tags.empty(len(keys), size) for other, size in theirs.items()}
    with fits(_OWN):
        _ask(me, keys, found, step)
    for other, _ in turns(theirs, 0, _AT_WORK):
        received(me.link(other), other, vocabulary.AT_WORK)
        step(1)
    for other, size in theirs.items() if both else ():
        with fits(_ASKED.format(other)):
            found[other].fill(_hold(me, other, size, step).values(keys))
        step(1)
    return found


def other_answers(me: Owner, keys: Sequence[bytes], leader: str, lengths: Whole, *, both: bool) -> Tags:
    """Another owner's side: hold the function for the leader, and compute the own tags."""
    me.link(leader).send("list", size=len(keys))
    size = sizes_of(me, [leader], lengths)[leader]
    asked = len(pieces(len(keys))) + 1 if both else 0
    step = Steps(me, "align", len(pieces(size)) + len(turns({me.name: len(keys)}, 0, _AT_WORK)) + asked)
    own = Tags.empty(len(keys))
    with fits(_ASKED.format(leader)):
        for done in own.filling(_hold(me, leader, size, step).values(keys)):
            if done % _AT_WORK == 0 or done == len(keys):
                me.link(leader).send("at work")
                step(1)
    if both:
        with fits(_OWN):
            _ask(me, keys, {leader: own}, step)
    return own


def reports(leader: str, sizes: Mapping[str, int], *, both: bool) -> tuple[int, int]:
    """How often the leader says in ``ot`` how far it is, and where it ends."""
    theirs = {name: size for name, size in sizes.items() if name != leader}
    steps = len(pieces(sizes[leader])) + len(theirs) + len(turns(theirs, 0, _AT_WORK))
    if both:
        steps += sum(len(pieces(size)) + 1 for size in theirs.values())
    return 1 + steps, steps


def _ask(me: Owner, keys: Sequence[bytes], holders: Mapping[str, Tags], step: Step) -> None:
    """Add to some tags the values of the functions that others hold, for the same keys."""
    offers = {holder: Offer(Stream.fresh()) for holder in holders}
    for holder, offer in offers.items():
        me.link(holder).send("offer", point=offer.point)
    listed = Listed(keys, Stream.fresh())
    askers = {}
    for holder, offer in offers.items():
        choices = received(me.link(holder), holder, vocabulary.CHOICES)["points"]
        askers[holder] = Asker(listed, offer.keys(choices, holder), Stream.fresh())
        me.link(holder).send("asked", salt=listed.salt, seed=listed.seed.to_bytes(8, "little"))
    for piece in listed.pieces():
        for holder, asker in askers.items():
            me.link(holder).send("columns", words=asker.hidden(piece))
        step(1)
    for holder, asker in askers.items():
        me.link(holder).send("columns", words=asker.last())
    step(1)
    for holder, asker in askers.items():
        hiding, sums = asker.sums(received(me.link(holder), holder, vocabulary.CHALLENGE)["keys"])
        me.link(holder).send("sums", hiding=hiding, listed=sums)
    for holder, asker in askers.items():
        holders[holder].fill(asker.values())
        step(1)


def _hold(me: Owner, asker: str, size: int, step: Step) -> Holder:
    """A function of which the asker gets the values for a list of this size."""
    secret = new_secret(Stream.fresh())
    choice = Choice(bits_of(secret).tolist(), Stream.fresh())
    me.link(asker).send("choices", points=choice.points)
    keys = choice.keys(received(me.link(asker), asker, vocabulary.OFFER)["point"], asker)
    asked = received(me.link(asker), asker, vocabulary.ASKED)
    holder = Holder(size, secret, keys, asked["salt"], int.from_bytes(asked["seed"], "little"))
    for count in pieces(size):
        holder.take(received(me.link(asker), asker, vocabulary.columns(count))["words"])
        step(1)
    challenge = Stream.fresh().bytes(CHALLENGES * CHALLENGE_BYTES)
    me.link(asker).send("challenge", keys=challenge)
    shown = received(me.link(asker), asker, vocabulary.SHOWN)
    holder.check(challenge, shown["hiding"], shown["listed"], asker)
    return holder
