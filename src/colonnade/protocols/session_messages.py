"""Messages that all protocols have: the beginning and the end of a run, the comparison of rows, and told numbers."""

from __future__ import annotations

import numpy as np

from colonnade.message_schema import ArrayForm, FixedBytes, Integer, MessageSchema, TextForm
from colonnade.randomness import KEY_BYTES

MOST_ROWS = 1 << 40
LONGEST_VERDICT = 500
_DIGEST_BYTES = 32
SHARE_BYTES = 32
"""Of an owner's share when owners compare what they hold."""

_RULES, _VERSIONS = TextForm(400, "[a-z]+=[0-9a-f]+( [a-z]+=[0-9a-f]+)*"), TextForm(200, "[A-Za-z0-9 ,.+_-]*")
READY = MessageSchema("ready", rules=_RULES, has=_VERSIONS)
"""An owner is there: its versions, and the digests of the rules that it follows (:mod:`.compatibility`)."""
GO = MessageSchema("go", rules=_RULES, has=_VERSIONS)
"""Everybody is there, and follows the same rules; the coordinator's are here, so that owners can see that too."""
DONE, ALL_DONE = MessageSchema("done"), MessageSchema("all-done")
"""An owner has ended; everybody has."""
RESULT = MessageSchema("result", digest=FixedBytes(_DIGEST_BYTES))
"""The digest of a result, from a seat to whoever has the same result."""
SALT = MessageSchema("rows-salt", salt=FixedBytes(KEY_BYTES))
"""The salt of digests of ids, from the first owner to the others."""
ROWS = MessageSchema("rows", rows=Integer(0, MOST_ROWS), digest=FixedBytes(_DIGEST_BYTES))
"""How many rows an owner has, and the salted digest of their ids."""
VERDICT = MessageSchema("rows-verdict", problem=TextForm(LONGEST_VERDICT))
"""What is wrong with the rows, in one sentence, or nothing."""
PAIR_KEY = MessageSchema("pair-key", key=FixedBytes(KEY_BYTES))
"""A key that two owners have, and nobody else."""
COMPARED = MessageSchema("compared", commitment=FixedBytes(_DIGEST_BYTES))
"""The commitment to an owner's share of a comparison (:mod:`colonnade.protocols.agreement`)."""
COMPARED_SHARE = MessageSchema("compared-share", share=FixedBytes(SHARE_BYTES), salt=FixedBytes(KEY_BYTES))
"""The share itself, with what opens the commitment."""
ALIKE = MessageSchema("alike")
"""An owner that judges tells those who do not that all hold the same."""
HEARD_ALIKE = MessageSchema("heard-alike", digest=FixedBytes(_DIGEST_BYTES))
"""A digest of what a participant was told, where all were to be told the same."""


def told_message(kind: str, size: int, bound: int) -> MessageSchema:
    """Noised integers of one party."""
    return MessageSchema(kind, values=ArrayForm(np.int64, (size,), -bound, bound))
