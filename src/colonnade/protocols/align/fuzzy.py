"""Pair people whose names or dates are written differently: keyed Bloom filters, compared by the coordinator.

**This is the weaker kind of alignment, and it is not the default.** Each owner turns each of its keys into a Bloom
filter (a cryptographic linkage key, made by ``clkhash``) under a secret that only the two owners hold and that is
new in every run. The coordinator gets these filters, in shuffled order, and pairs the most similar ones. For that,
similar names must give similar filters, and this is the cost: the coordinator sees which filters are similar, within
one list and between both, how many bits each has, and which bits often occur together. Published attacks find frequent
names from this, without the secret. A coordinator with the help of one owner knows the secret and can test any guess on
the other owner's list. With exact keys nobody sees how similar people are.

Each owner learns which of its own rows were paired, how many they are, and nothing else about the other's rows. A pair
may be wrong, as only the similarity decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.protocols.align.lists import shuffled
from colonnade.protocols.align.similarity import BITS, FILTER_BYTES, Filters, Rows, encode, pair
from colonnade.protocols.align.tags import shared_key
from colonnade.protocols.align.task import ROWS_AT_MOST, Aligning
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner
from colonnade.randomness import Stream
from colonnade.tables.keys import Keys

_INDEX_BYTES = 16


def owner(me: Owner, keys: Keys, task: Aligning) -> tuple[Rows, NDArray[np.uint8]]:
    """An owner's side: the positions of its matched keys in the common order, and a random common name for each."""
    count = len(keys.values)
    secret = shared_key(me, task.owners)
    order = shuffled(count, Stream.fresh())
    with me.meter.phase("encode"):
        filters = encode([keys.parts(row) for row in order.tolist()], task.keys, secret, me.progress)
    me.link(COORDINATOR).send("fuzzy-filters", filters=filters)
    rows, index = _read_matches(me.link(COORDINATOR).recv("fuzzy-matched"), count)
    return order[rows], index


def coordinator(me: Coordinator, task: Aligning) -> int:
    """The coordinator's side: pair the filters, send each owner its own rows, and return the number of pairs."""
    left, right = (_read_filters(me.link(name).recv("fuzzy-filters"), name) for name in task.owners)
    with me.meter.phase("compare"):
        pairs = pair(left, right, task.similarity, progress=me.progress)
    stream = Stream.fresh()
    order = shuffled(len(pairs), stream)
    index = stream.uint64((len(pairs), _INDEX_BYTES // 8)).view(np.uint8)
    told = len(pairs) if len(pairs) >= task.at_least else 0  # owners learn who is common only if these are enough
    for name, rows in zip(task.owners, pairs[order].T, strict=True):
        me.link(name).send("fuzzy-matched", rows=np.ascontiguousarray(rows[:told]), index=index[:told])
    return len(pairs)


def _read_filters(message: Mapping[str, Any], sender: str) -> Filters:
    filters = message.get("filters")
    if not isinstance(filters, np.ndarray) or filters.dtype != np.uint8 or filters.shape[1:] != (FILTER_BYTES,):
        raise ProtocolError(f"{sender} sent something else than Bloom filters of {BITS} bits")
    if len(filters) > ROWS_AT_MOST:
        raise ProtocolError(f"{sender} sent more than {ROWS_AT_MOST} filters")
    return filters


def _read_matches(message: Mapping[str, Any], count: int) -> tuple[Rows, NDArray[np.uint8]]:
    rows, index = message.get("rows"), message.get("index")
    if (
        not isinstance(rows, np.ndarray)
        or rows.dtype != np.int64
        or rows.ndim != 1
        or len(np.unique(rows)) != len(rows)
        or (len(rows) and not 0 <= rows.min() <= rows.max() < count)
    ):
        raise ProtocolError("the coordinator sent matched rows that are not different rows of this owner's list")
    if (
        not isinstance(index, np.ndarray)
        or index.dtype != np.uint8
        or index.shape != (len(rows), _INDEX_BYTES)
        or len(np.unique(index, axis=0)) != len(rows)
    ):
        raise ProtocolError("the coordinator sent no index, or one in which two rows have the same name")
    return rows, index
