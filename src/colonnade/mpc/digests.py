"""Many digests that begin alike."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def digests(begun: hashlib.blake2b, pieces: Iterable[bytes]) -> NDArray[np.uint64]:
    """For each piece the digest of what was begun and the piece, in words of 64 bits.

    To copy what was begun is faster than to begin anew: a key is hashed once.
    """
    copy, found = begun.copy, []
    for piece in pieces:
        state = copy()
        state.update(piece)
        found.append(state.digest())
    return np.frombuffer(b"".join(found), dtype="<u8").reshape(len(found), begun.digest_size // 8)
