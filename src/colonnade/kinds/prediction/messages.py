"""Messages of standing questions: about whom, and what owners let through."""

from __future__ import annotations

import numpy as np

from colonnade.message_schema import ArrayForm, Boolean, FixedBytes, Integer, MessageSchema, UpTo
from colonnade.protocols.on_demand import MOST_ASKED
from colonnade.randomness import KEY_BYTES

LAST = 1 << 50
_DIGEST_BYTES = 32
_LATEST = 1 << 40
_NUMBER = Integer(1, LAST)


def question(rows: int) -> MessageSchema:
    """Whom a question is about, by their places in the common list of ``rows`` people; nobody is a sign of life.

    After the last one, which is about nobody, the session ends.
    """
    places = ArrayForm(np.int64, (UpTo(MOST_ASKED),), 0, rows - 1)
    return MessageSchema("question", number=_NUMBER, places=places, salt=FixedBytes(KEY_BYTES), last=Boolean())


COUNTED = MessageSchema("question-size", number=_NUMBER, people=Integer(0, MOST_ASKED), last=Boolean())
"""How many people a question is about, for the coordinator, which does not learn who they are."""


def verdict(people: int) -> MessageSchema:
    """What an owner lets through: a digest of the question, whom it tells nothing about, and until when (Unix time)."""
    refused = ArrayForm(np.uint8, (people,), 0, 1)
    return MessageSchema(
        "question-verdict", number=_NUMBER, digest=FixedBytes(_DIGEST_BYTES), refused=refused, until=Integer(0, _LATEST)
    )
