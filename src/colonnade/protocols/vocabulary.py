"""Messages that all protocols have: the beginning and the end of a run, the comparison of rows, and told numbers."""

from __future__ import annotations

import numpy as np

from colonnade.randomness import KEY_BYTES
from colonnade.received import Array, Message, Octets, Text, Whole

MOST_ROWS = 1 << 40
LONGEST_VERDICT = 500
_DIGEST_BYTES = 32

READY, GO, DONE, ALL_DONE = Message("ready"), Message("go"), Message("done"), Message("all-done")
"""An owner is there; everybody is there; an owner has ended; everybody has."""
SALT = Message("rows-salt", salt=Octets(KEY_BYTES))
"""The salt of digests of ids, from the first owner to the others."""
ROWS = Message("rows", rows=Whole(0, MOST_ROWS), digest=Octets(_DIGEST_BYTES))
"""How many rows an owner has, and the salted digest of their ids."""
VERDICT = Message("rows-verdict", problem=Text(LONGEST_VERDICT))
"""What is wrong with the rows, in one sentence, or nothing."""


def told(kind: str, size: int, bound: int) -> Message:
    """Noised integers of one party."""
    return Message(kind, values=Array(np.int64, (size,), -bound, bound))
