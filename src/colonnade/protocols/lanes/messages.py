"""Every message about lanes between the head of an owner and that of the coordinator.

Either side waits for one kind of message alone, because it cannot know what the other will say next; ``what`` says it.
"""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.message_schema import BoundedBytes, FixedBytes, Integer, ItemList, MessageSchema, TextChoice
from colonnade.protocols.lanes.arbiter import MOST_ATTEMPTS
from colonnade.protocols.session_messages import MOST_ROWS
from colonnade.randomness import KEY_BYTES

LONGEST_INTRODUCTION = 1 << 13
"""No introduction of a worker has more bytes."""
MOST_HUBS = 256

PARTITION_KEY = MessageSchema("partition-key", key=FixedBytes(KEY_BYTES), check=FixedBytes(32))
"""The key by which people are spread over partitions, and what it gives, from the first owner to the others."""


def lane_report_message(partitions: int) -> MessageSchema:
    """What an owner says of a lane; ``still`` is a sign of life, and ``over`` is the last word."""
    return MessageSchema(
        "lane",
        what=TextChoice(("here", "done", "lost", "still", "over")),
        partition=Integer(0, partitions - 1),
        attempt=Integer(1, MOST_ATTEMPTS),
        rows=Integer(0, MOST_ROWS),
        worker=BoundedBytes(LONGEST_INTRODUCTION),
    )


def lane_order_message(partitions: int, participants: Sequence[str]) -> MessageSchema:
    """What the coordinator orders; ``workers`` are the introductions of all participants, in their order."""
    return MessageSchema(
        "lanes",
        what=TextChoice(("meet", "kept", "again", "still", "over")),
        partition=Integer(0, partitions - 1),
        attempt=Integer(1, MOST_ATTEMPTS),
        hub=Integer(0, MOST_HUBS - 1),
        workers=ItemList(*[BoundedBytes(LONGEST_INTRODUCTION)] * len(participants)),
    )
