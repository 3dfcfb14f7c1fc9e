"""Messages of standing questions: whom one is about, how many that is, and what an owner lets through."""

from __future__ import annotations

import numpy as np

from colonnade.protocols.standing import MOST_ASKED
from colonnade.randomness import KEY_BYTES
from colonnade.received import Array, Message, Octets, Truth, UpTo, Whole

LAST = 1 << 50
_DIGEST_BYTES = 32
_LATEST = 1 << 40
_NUMBER = Whole(1, LAST)


def question(rows: int) -> Message:
    """Whom a question is about, by their places in the common list of ``rows`` people; nobody is a sign of life.

    After the last one, which is about nobody, the session ends.
    """
    places = Array(np.int64, (UpTo(MOST_ASKED),), 0, rows - 1)
    return Message("question", number=_NUMBER, places=places, salt=Octets(KEY_BYTES), last=Truth())


COUNTED = Message("question-size", number=_NUMBER, people=Whole(0, MOST_ASKED), last=Truth())
"""How many people a question is about, for the coordinator, which does not learn who they are."""


def verdict(people: int) -> Message:
    """What an owner lets through: a digest of the question, whom it tells nothing about, and until when (Unix time)."""
    refused = Array(np.uint8, (people,), 0, 1)
    return Message(
        "question-verdict", number=_NUMBER, digest=Octets(_DIGEST_BYTES), refused=refused, until=Whole(0, _LATEST)
    )
