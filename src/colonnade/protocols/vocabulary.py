"""Messages that all protocols have: the beginning and the end of a run, the comparison of rows, and told numbers."""

from __future__ import annotations

import numpy as np

from colonnade.randomness import KEY_BYTES
from colonnade.received import Array, Message, Octets, Text, Whole

MOST_ROWS = 1 << 40
LONGEST_VERDICT = 500
_DIGEST_BYTES = 32
SHARE_BYTES = 32
"""Of an owner's share when owners compare what they hold."""

_RULES, _VERSIONS = Text(400, "[a-z]+=[0-9a-f]+( [a-z]+=[0-9a-f]+)*"), Text(200, "[A-Za-z0-9 ,.+_-]*")
READY = Message("ready", rules=_RULES, has=_VERSIONS)
"""An owner is there: the digests of the rules that it follows, and its versions (:mod:`colonnade.protocols.rules`)."""
GO = Message("go", rules=_RULES, has=_VERSIONS)
"""Everybody is there, and follows the same rules; the coordinator's are here, so that owners can see that too."""
DONE, ALL_DONE = Message("done"), Message("all-done")
"""An owner has ended; everybody has."""
RESULT = Message("result", digest=Octets(_DIGEST_BYTES))
"""The digest of a result, from a seat to whoever has the same result."""
SALT = Message("rows-salt", salt=Octets(KEY_BYTES))
"""The salt of digests of ids, from the first owner to the others."""
ROWS = Message("rows", rows=Whole(0, MOST_ROWS), digest=Octets(_DIGEST_BYTES))
"""How many rows an owner has, and the salted digest of their ids."""
VERDICT = Message("rows-verdict", problem=Text(LONGEST_VERDICT))
"""What is wrong with the rows, in one sentence, or nothing."""
PAIR_KEY = Message("pair-key", key=Octets(KEY_BYTES))
"""A key that two owners have, and nobody else."""
COMPARED = Message("compared", commitment=Octets(_DIGEST_BYTES))
"""The commitment to an owner's share of a comparison (:mod:`colonnade.protocols.agreement`)."""
COMPARED_SHARE = Message("compared-share", share=Octets(SHARE_BYTES), salt=Octets(KEY_BYTES))
"""The share itself, with what opens the commitment."""
ALIKE = Message("alike")
"""An owner that judges tells those who do not that all hold the same."""
HEARD_ALIKE = Message("heard-alike", digest=Octets(_DIGEST_BYTES))
"""A digest of what a participant was told, where all were to be told the same."""


def told(kind: str, size: int, bound: int) -> Message:
    """Noised integers of one party."""
    return Message(kind, values=Array(np.int64, (size,), -bound, bound))
