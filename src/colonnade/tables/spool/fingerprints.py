"""Fingerprints of keys, by which equal keys are found in many places without the keys themselves.

A fingerprint is two sums of a key's bytes, modulo 2^64, each byte times a random number of its place. No key is the
beginning of another, since each part comes after its length; so two different keys differ in a byte that both have, and
have the same fingerprint with a chance of at most 2^-114 over these numbers, whatever the keys are. Any two of a
billion have it with a chance of at most 2^-54. Equal keys have the same in every process that has the same seed.
"""

from __future__ import annotations

import hashlib
import secrets
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.tables.spool.room import whole

Numbers = NDArray[np.uint64]
_SEED, _SEED_BYTES = "seed", 32
_WORD = np.dtype("<u8")


class Fingerprints:
    """Those of one table, by a seed that lies in its private folder."""

    def __init__(self, folder: Path) -> None:
        self._seed = (folder / _SEED).read_bytes()
        self._weights = self._drawn(64)

    @classmethod
    def begin(cls, folder: Path) -> None:
        """Draw the seed."""
        with whole(folder, _SEED) as file:
            file.write(secrets.token_bytes(_SEED_BYTES))

    @classmethod
    def end(cls, folder: Path) -> None:
        """Forget the seed."""
        (folder / _SEED).unlink(missing_ok=True)

    def of(self, keys: Any) -> Numbers:
        """The two numbers of each key of an Arrow array, as rows of an array (2, keys)."""
        _, ends, data = keys.buffers()
        edges = np.frombuffer(ends, np.int64)[keys.offset : keys.offset + len(keys) + 1]
        text = np.frombuffer(data, np.uint8)
        lengths = np.diff(edges)
        order = np.argsort(lengths, kind="stable")
        found = np.empty((2, len(keys)), np.uint64)
        for first, last in pairwise(np.flatnonzero(np.diff(lengths[order], prepend=-1, append=-1)).tolist()):
            there = order[first:last]
            found[:, there] = self._of_one_length(text, edges[there], int(lengths[there[0]]))
        return found

    def _of_one_length(self, text: NDArray[np.uint8], starts: NDArray[np.int64], length: int) -> Numbers:
        if length > self._weights.shape[1]:
            self._weights = self._drawn(2 * length)
        sums = np.zeros((2, len(starts)), np.uint64)
        for place in range(length):
            column = text[starts + place].astype(np.uint64)
            for row in (0, 1):
                sums[row] += column * self._weights[row, place]
        return sums

    def _drawn(self, count: int) -> Numbers:
        """The numbers of the first places: longer keys do not change them."""
        stream = hashlib.shake_256(self._seed).digest(2 * count * _WORD.itemsize)
        return np.frombuffer(stream, _WORD).astype(np.uint64).reshape(count, 2).T.copy()
