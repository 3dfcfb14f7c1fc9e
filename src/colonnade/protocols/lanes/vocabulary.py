"""Every message about lanes between the head of an owner and that of the coordinator.

Either side waits for one kind of message alone, because it cannot know what the other will say next; ``what`` says it.
"""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.protocols.lanes.arbiter import MOST_ATTEMPTS
from colonnade.protocols.vocabulary import MOST_ROWS
from colonnade.randomness import KEY_BYTES
from colonnade.received import Blob, Items, Message, Octets, OneOf, Whole

LONGEST_INTRODUCTION = 1 << 13
"""No introduction of a worker has more bytes."""
MOST_HUBS = 256

PARTITION_KEY = Message("partition-key", key=Octets(KEY_BYTES), check=Octets(32))
"""The key by which people are spread over partitions, and what it gives, from the first owner to the others."""


def said(partitions: int) -> Message:
    """What an owner says of a lane; ``still`` is a sign of life, and ``over`` is the last word."""
    return Message(
        "lane",
        what=OneOf(("here", "done", "lost", "still", "over")),
        partition=Whole(0, partitions - 1),
        attempt=Whole(1, MOST_ATTEMPTS),
        rows=Whole(0, MOST_ROWS),
        worker=Blob(LONGEST_INTRODUCTION),
    )


def ordered(partitions: int, participants: Sequence[str]) -> Message:
    """What the coordinator orders; ``workers`` are the introductions of all participants, in their order."""
    return Message(
        "lanes",
        what=OneOf(("meet", "kept", "again", "still", "over")),
        partition=Whole(0, partitions - 1),
        attempt=Whole(1, MOST_ATTEMPTS),
        hub=Whole(0, MOST_HUBS - 1),
        workers=Items(*[Blob(LONGEST_INTRODUCTION)] * len(participants)),
    )
