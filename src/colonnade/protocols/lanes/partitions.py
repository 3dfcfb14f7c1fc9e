"""Which partition a person belongs to, and how long every list of a partition is made.

The rows of one person have the same partition at every owner: it is the first bits of a hash of the normalised key,
under a key that the owners have and the coordinator lacks. How many people of an owner fall into a partition would tell
the other owners more than how many there are, so lists are filled up to a length that follows from public numbers
(docs/theory/lanes.md).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from colonnade.errors import CapacityError, StudyError
from colonnade.randomness import KEY_BYTES

MOST_PARTITIONS = 1 << 16
_BLOCK = 16
_WORD = 4
_CHUNK = 1 << 15
_OVERFLOW_BITS = 64
_TRIED = 64


@dataclass(frozen=True)
class Partitions:
    """A number of partitions, a power of two, and the key by which people are spread over them."""

    count: int
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        check_count(self.count)
        if len(self.key) != KEY_BYTES:
            raise ValueError(f"the key of partitions has {KEY_BYTES} bytes [VA137]")

    def of(self, values: Sequence[bytes]) -> NDArray[np.int64]:
        """The partition of each normalised key."""
        found = np.empty(len(values), np.int64)
        for start in range(0, len(values), _CHUNK):
            part = values[start : start + _CHUNK]
            found[start : start + _CHUNK] = _tags(part, self.key)[:, :_WORD].copy().view(">u4")[:, 0]
        return found >> (8 * _WORD - (self.count.bit_length() - 1))

    @property
    def check(self) -> bytes:
        """A digest of what these rules give: owners with other rules would lose people without knowing it."""
        numbers = self.of([f"person {number}".encode() for number in range(_TRIED)])
        lengths = [filled_length(people, self.count) for people in (1, 1000, 10**6, 10**9)]
        return hashlib.sha256(repr((self.count, numbers.tolist(), lengths)).encode()).digest()


def _tags(values: Sequence[bytes], key: bytes) -> NDArray[np.uint8]:
    """CBC-MAC of each value under AES-256, after a block that holds its length; the last block is filled with zeros.

    The length keeps values apart that differ only in zeros at their ends. Values of one length are encrypted together,
    which takes a quarter of the time of a hash for each.
    """
    # Nothing that is encrypted is shown, so it does not matter that equal blocks stay equal.
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    order = np.argsort(lengths, kind="stable")
    edges = np.flatnonzero(np.diff(lengths[order], prepend=-1, append=-1))
    tags = np.empty((len(values), _BLOCK), np.uint8)
    for first, last in pairwise(edges.tolist()):
        there, length = order[first:last], int(lengths[order[first]])
        held = values if len(there) == len(values) else [values[place] for place in there.tolist()]
        text = np.frombuffer(b"".join(held), np.uint8).reshape(len(there), length)
        state = np.tile(np.frombuffer(cipher.update(length.to_bytes(_BLOCK, "little")), np.uint8), (len(there), 1))
        for start in range(0, length, _BLOCK):
            block = text[:, start : start + _BLOCK]
            state[:, : block.shape[1]] ^= block
            state = np.frombuffer(bytearray(cipher.update(state.data)), np.uint8).reshape(-1, _BLOCK)
        tags[there] = state
    return tags


def check_count(count: int) -> None:
    """Refuse a number of partitions that hash bits cannot name."""
    if not 1 <= count <= MOST_PARTITIONS or count & (count - 1):
        raise StudyError(f"partitions must be a power of two from 1 to {MOST_PARTITIONS}, such as 256 [ST457]")


def filled_length(people: int, partitions: int) -> int:
    """To how many keys every list of a partition is filled up, for a list of at most ``people`` keys.

    The least length that some partition exceeds with a probability of at most 2^-64; one partition needs no filling.
    """
    if partitions == 1 or people == 0:
        return people
    low, high = -(-people // partitions), people
    while low < high:
        middle = (low + high) // 2
        if _exceeds_rarely(middle, people, partitions):
            high = middle
        else:
            low = middle + 1
    return low


def _exceeds_rarely(length: int, people: int, partitions: int) -> bool:
    """Chernoff's bound on a binomial count; a list is never longer than all people."""
    if length >= people:
        return True
    mean = people / partitions
    ratio = length / mean
    exponent = mean * (ratio * math.log(ratio) - ratio + 1) * (1 - 1e-9)
    return ratio > 1 and exponent >= _OVERFLOW_BITS * math.log(2) + math.log(partitions)


def check_fits(held: int, length: int) -> None:
    """Refuse a partition with more people than its public length; the error says nothing of either."""
    if held > length:
        raise CapacityError(
            "one partition holds more people than the length that all lists of partitions have: this happens with a "
            "probability below 2^-64, or if the table was read with another key; run the study again [CA020]"
        )
