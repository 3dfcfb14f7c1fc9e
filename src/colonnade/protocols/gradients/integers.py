"""Gradients as integers: rounded rows, the scores that multiply them, who is in which batch, an owner's noise.

A batch is determined by random coins from a seed, or by a salted digest of each person's id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.privacy.noise.rounding import bounded_round
from colonnade.protocols.gradients.task import Gradients
from colonnade.protocols.rows import Block
from colonnade.randomness import Stream

_COINS = 1 << 18  # tossed at a time

Batches = Iterator[NDArray[np.int64]]


def quantise(values: NDArray[np.float64], block: Block, task: Gradients, stream: Stream) -> NDArray[np.float64]:
    """Algorithm 2: scale and round at random, and enforce the bound on the integers; labels are not changed."""
    width = len(block.columns)
    scaled = values[:, :width] * (float(task.gamma) * task.scale)
    return np.hstack([bounded_round(scaled, task.block_norm_squared(block), stream), values[:, width:]])


def scores(u: NDArray[Any], signs: NDArray[Any], task: Gradients) -> NDArray[Any]:
    """The factors of rows in a gradient, from their products ``u`` with the weights and ``signs`` = 1 - 2 y."""
    g = task.gamma
    if task.expansion == 1:
        return np.asarray(2 * g**2 * signs + u)
    return np.asarray(24 * g**6 * signs + 12 * g**4 * u - u**3)


def noise_shares(task: Gradients, rounds: int, stream: Stream) -> NDArray[np.int64]:
    """One owner's noise for ``rounds`` rounds; audits attack this function."""
    return task.additive.draw((rounds, task.entries), stream)


def batch_secret(task: Gradients, key: bytes, ids: Sequence[str]) -> bytes:
    """The secret that determines all batches: the seed of the coins, or everyone's batch."""
    return key if task.sampling == "poisson" else disjoint(ids, task.batches, key).tobytes()


def batches(task: Gradients, rows: int, drawn: bytes) -> Batches:
    """For each round the positions of its people: by fresh coins, or from the disjoint batches in turn."""
    if task.sampling == "disjoint":
        place = np.frombuffer(drawn, dtype="<u4")
        members = [np.flatnonzero(place == index) for index in range(task.batches)]
        yield from (members[number % task.batches] for number in range(task.rounds))
        return
    coins, some = Stream(drawn), max(1, _COINS // max(1, rows))
    for start in range(0, task.rounds, some):
        tosses = coins.uint32((min(some, task.rounds - start), rows)) <= np.uint32(task.threshold - 1)
        yield from map(np.flatnonzero, tosses)


def disjoint(ids: Sequence[str], batches: int, salt: bytes) -> NDArray[np.uint32]:
    """Each person's batch, from its id and the salt only: nobody changes the batch when another person leaves."""
    digests = b"".join(hashlib.blake2b(one.encode(), digest_size=8, key=salt).digest() for one in ids)
    return (np.frombuffer(digests, dtype="<u8") % np.uint64(batches)).astype("<u4")
