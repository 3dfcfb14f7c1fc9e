"""Messages of fitting a mixture, besides shares."""

from __future__ import annotations

import numpy as np

from colonnade.protocols.mixture.task import Mixture
from colonnade.randomness import KEY_BYTES
from colonnade.received import Array, Message, Octets


def draw(task: Mixture, rows: int) -> Message:
    """The secret of all batches, for owners and seats: a seed, or the batch of everyone in four bytes."""
    return Message("draw", secret=Octets(4 * rows if task.sampling == "disjoint" else KEY_BYTES))


def fitted(size: int) -> Message:
    """The final parameters, from the owner that opened the sums."""
    return Message("fitted", state=Array(np.float64, (size,)))
