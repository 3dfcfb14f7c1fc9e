"""Who is in which batch of a protocol with rounds: by random coins from a seed, or by a salted digest of each id."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colonnade.randomness import Stream

COIN = 2**32
_COINS = 1 << 18  # tossed at a time

Batches = Iterator[NDArray[np.int64]]


class InBatches(Protocol):
    """What is asked of a task whose rounds are about batches of people."""

    @property
    def sampling(self) -> str:
        """``poisson``, ``disjoint`` or ``all``."""

    @property
    def rounds(self) -> int:
        """How many batches are taken in all."""

    @property
    def threshold(self) -> int:
        """A person is in a drawn batch when its 32-bit coin is below this number."""

    @property
    def batches(self) -> int:
        """How many disjoint batches there are."""


def batch_secret(task: InBatches, key: bytes, ids: Sequence[str]) -> bytes:
    """The secret that determines all batches: the seed of the coins, or everyone's batch."""
    return disjoint(ids, task.batches, key).tobytes() if task.sampling == "disjoint" else key


def batches(task: InBatches, rows: int, drawn: bytes) -> Batches:
    """For each round the positions of its people: by fresh coins, from the disjoint batches in turn, or everybody."""
    if task.sampling == "all":
        everybody = np.arange(rows)
        yield from (everybody for _ in range(task.rounds))
        return
    if task.sampling == "disjoint":
        place = np.frombuffer(drawn, dtype="<u4")
        members = [np.flatnonzero(place == index) for index in range(task.batches)]
        yield from (members[number % task.batches] for number in range(task.rounds))
        return
    coins, some = Stream(drawn), max(1, _COINS // max(1, rows))
    memory = np.empty(min(some, task.rounds) * rows, dtype="<u4")
    for start in range(0, task.rounds, some):
        count = min(some, task.rounds - start)
        tossed = memory[: count * rows]
        coins.into(tossed)
        tosses = tossed <= np.uint32(task.threshold - 1)
        # One search for all of these rounds: a call costs more than the numbers of one round.
        found = np.flatnonzero(tosses)
        ends = np.searchsorted(found, np.arange(1, count + 1) * rows)
        begun = 0
        for number, end in enumerate(ends.tolist()):
            yield found[begun:end] - number * rows
            begun = end


def disjoint(ids: Sequence[str], batches: int, salt: bytes) -> NDArray[np.uint32]:
    """Each person's batch, from its id and the salt only: nobody changes the batch when another person leaves."""
    digests = b"".join(hashlib.blake2b(one.encode(), digest_size=8, key=salt).digest() for one in ids)
    return (np.frombuffer(digests, dtype="<u8") % np.uint64(batches)).astype("<u4")
