"""Sums (XOR) of rows, chosen by bits: the same rows for any number of choices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.uint64]

_AT_ONCE = 1 << 11  # choices that are looked up together, so that what is summed stays near the processor


class Subsets:
    """The sums of all subsets of every eight rows, made once; ``rows`` are a multiple of eight."""

    def __init__(self, rows: Numbers) -> None:
        self._tables = [_sums(rows[start : start + 8]) for start in range(0, len(rows), 8)]

    def __call__(self, chosen: Numbers) -> Numbers:
        """For each choice the sum of the rows whose bit it has, the lowest bit of its first word first."""
        plain = np.ascontiguousarray(chosen if chosen.ndim > 1 else chosen[:, None], dtype="<u8")
        octets = plain.view(np.uint8)
        first, *rest = self._tables
        found = np.empty((len(plain), first.shape[1]), dtype=np.uint64)
        looked = np.empty((_AT_ONCE, first.shape[1]), dtype=np.uint64)
        for start in range(0, len(plain), _AT_ONCE):
            places = octets[start : start + _AT_ONCE].T.astype(np.intp)
            total, part = found[start : start + _AT_ONCE], looked[: places.shape[1]]
            np.take(first, places[0], axis=0, out=total, mode="clip")  # an octet is always a place
            for table, place in zip(rest, places[1:], strict=True):
                np.take(table, place, axis=0, out=part, mode="clip")
                total ^= part
        return found


def _sums(rows: Numbers) -> Numbers:
    """The sums of all subsets of some rows; bit i of a sum's number says whether row i is in it."""
    sums = np.zeros((1, rows.shape[1]), dtype=np.uint64)
    for row in rows:
        sums = np.concatenate([sums, sums ^ row])
    return sums
