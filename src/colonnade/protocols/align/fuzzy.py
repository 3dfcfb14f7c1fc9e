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

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import ProtocolError
from colonnade.protocols.align import vocabulary
from colonnade.protocols.align.lists import shuffled
from colonnade.protocols.align.similarity import FILTER_BYTES, Rows, encode, pair
from colonnade.protocols.align.tags import shared_key
from colonnade.protocols.align.task import Aligning
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner
from colonnade.randomness import Stream
from colonnade.received import received
from colonnade.tables.keys import Keys


def owner(me: Owner, keys: Keys, task: Aligning) -> tuple[Rows, NDArray[np.uint8]]:
    """An owner's side: the positions of its matched keys in the common order, and a random common name for each."""
    count = len(keys.values)
    secret = shared_key(me, task.owners)
    order = shuffled(count, Stream.fresh())
    with me.meter.phase("encode"):
        filters = encode([keys.parts(row) for row in order.tolist()], task.keys, secret, me.progress)
    me.link(COORDINATOR).send("fuzzy-filters", filters=filters)
    rows, index = _receive_matches(me, count)
    return order[rows], index


def coordinator(me: Coordinator, task: Aligning, sizes: Mapping[str, int]) -> int:
    """The coordinator's side: pair the filters, send each owner its own rows, and return the number of pairs."""
    left, right = (
        received(me.link(name), name, vocabulary.filters(sizes[name], FILTER_BYTES))["filters"] for name in task.owners
    )
    with me.meter.phase("compare"):
        pairs = pair(left, right, task.similarity, progress=me.progress)
    stream = Stream.fresh()
    order = shuffled(len(pairs), stream)
    index = stream.uint64((len(pairs), vocabulary.TOKEN_BYTES // 8)).view(np.uint8)
    told = len(pairs) if len(pairs) >= task.at_least else 0  # owners learn who is common only if these are enough
    for name, rows in zip(task.owners, pairs[order].T, strict=True):
        me.link(name).send("fuzzy-matched", rows=np.ascontiguousarray(rows[:told]), index=index[:told])
    return len(pairs)


def _receive_matches(me: Owner, count: int) -> tuple[Rows, NDArray[np.uint8]]:
    told = received(me.link(COORDINATOR), COORDINATOR, vocabulary.matched(count))
    rows, index = told["rows"], told["index"]
    if len(np.unique(rows)) != len(rows):
        raise ProtocolError(f"the {COORDINATOR} sent 'fuzzy-matched' with a row that comes twice [MS010]")
    if len(index) != len(rows) or len(np.unique(index, axis=0)) != len(rows):
        raise ProtocolError(f"the {COORDINATOR} sent 'fuzzy-matched' without a name of its own for each row [MS011]")
    return rows, index
