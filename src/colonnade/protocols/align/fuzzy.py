"""People whose names or dates are written differently: keyed Bloom filters, which the coordinator compares.

How a key becomes 1024 bits: texts are cut into pairs of neighbouring letters, so that a typing error changes only
two or three of them; dates and numbers into digits with their places. Every part of the key sets equally many bits,
for any length, and all parts together about half of the filter, as such filters compare best. A part that has few
values, like a sex or a country, therefore counts as much as a name: leave it out.

A similarity of 0.85 finds most people with one part mistyped, and few wrong pairs. Lower it to 0.82 if most rows have
errors; raise it if lists are long or hold many relatives, because a wrong pair mixes two people.

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

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import CapacityError, ProtocolError
from colonnade.message_schema import ArrayForm, MessageSchema, UpTo, receive_message
from colonnade.protocols.align.messages import TOKEN_BYTES, shared_key, shuffled
from colonnade.protocols.align.task import AlignmentTask, require_clkhash
from colonnade.protocols.roles import COORDINATOR, Coordinator, Owner, Progress, silent
from colonnade.randomness import Stream
from colonnade.tables.keys import Key, TableKeys

CANDIDATES_AT_MOST = 1 << 22
BLOCK = 2048
BITS = 1024
FILTER_BYTES = BITS // 8

_INSERTIONS = 700  # 1024 (1 - exp(-700 / 1024)) is about half of the bits
_ROUNDING = 0.01  # far more than float32 loses on numbers up to 1024, far less than one bit
_LABEL = "Y29sb25uYWRlIGZ1enp5"  # "colonnade fuzzy", in base64 as the linkage schema wants it

Filters = NDArray[np.uint8]
"""Bloom filters, one per row, eight bits in a byte."""

Rows = NDArray[np.int64]


def encode(
    records: Sequence[Sequence[str]], keys: Sequence[Key], secret: bytes, progress: Progress = silent
) -> Filters:
    """The filters of some records, each a part for each of the keys."""
    clk, schema = require_clkhash()
    plan = schema.from_json_dict(_schema(keys))
    dates = [key.kind == "date" for key in keys]
    plain = [
        [part.replace("-", "") if date else part for part, date in zip(record, dates, strict=True)]
        for record in records
    ]
    done = 0

    def count(more: int, weights: Sequence[int]) -> None:
        nonlocal done
        done += more
        progress("align", done, len(plain))

    # The library's own checks would put cells into messages, and its pool would fork a process that has threads.
    filters = clk.generate_clks(plain, schema=plan, secret=secret, validate=False, callback=count, max_workers=1)
    packed = b"".join(bits.tobytes() for bits in filters)
    return np.frombuffer(packed, dtype=np.uint8).reshape(len(plain), FILTER_BYTES)


def pair(left: Filters, right: Filters, similarity: float, *, block: int = BLOCK, progress: Progress = silent) -> Rows:
    """Pairs of a left and a right row, most similar first; no row is in two of them.

    Of all pairs with at least this similarity the most similar is taken, then the most similar of those that share
    no row with it, and so on; of equally similar ones that with the lowest left row, then the lowest right row.
    """
    found: list[tuple[NDArray[np.float64], Rows]] = []
    for i, j in product(range(0, len(left), block), range(0, len(right), block)):
        upper, lower = left[i : i + block], right[j : j + block]
        scores, rows = _similar(upper, lower, similarity)
        found.append((scores, rows + np.array((i, j))))
        if sum(len(scores) for scores, _ in found) > CANDIDATES_AT_MOST:
            raise CapacityError(
                f"more than {CANDIDATES_AT_MOST} pairs of rows reach the similarity {similarity}: raise it, or add a "
                "part to the key [CA014]"
            )
        progress("align", i + len(upper) * (j + len(lower)) // len(right), len(left))
    if not found:
        return np.empty((0, 2), dtype=np.int64)
    scores, rows = (np.concatenate(column) for column in zip(*found, strict=True))
    ranked = rows[np.lexsort((rows[:, 1], rows[:, 0], -scores))]
    return np.array(list(_greedy(ranked)), dtype=np.int64).reshape(-1, 2)


def _similar(left: Filters, right: Filters, similarity: float) -> tuple[NDArray[np.float64], Rows]:
    """The similar pairs of one block: candidates are found in float32, and then compared exactly."""
    a, b = (np.unpackbits(filters, axis=1).astype(np.float32) for filters in (left, right))
    common = a @ b.T
    weights_a, weights_b = a.sum(axis=1), b.sum(axis=1)
    needed = np.add.outer(weights_a, weights_b)
    needed *= np.float32(similarity / 2)
    needed -= np.float32(_ROUNDING)
    rows = np.argwhere((common >= needed) & (common > 0))
    i, j = rows.T
    scores = 2 * common[i, j].astype(np.float64) / (weights_a[i].astype(np.float64) + weights_b[j])
    exact = scores >= similarity
    return scores[exact], rows[exact]


def _greedy(ranked: Rows) -> Iterator[tuple[int, int]]:
    left_taken: set[int] = set()
    right_taken: set[int] = set()
    for i, j in zip(*ranked.T.tolist(), strict=True):
        if i not in left_taken and j not in right_taken:
            left_taken.add(i)
            right_taken.add(j)
            yield i, j


def _schema(keys: Sequence[Key]) -> dict[str, Any]:
    """The linkage schema: the same at both owners, because it follows from the public settings."""
    each = max(_INSERTIONS // len(keys), 1)
    return {
        "version": 3,
        "clkConfig": {"l": BITS, "kdf": {"type": "HKDF", "hash": "SHA256", "info": _LABEL}},
        "features": [_feature(key, each) for key in keys],
    }


def _feature(key: Key, bits: int) -> dict[str, Any]:
    comparison = {"type": "ngram", "n": 2} if key.kind == "text" else {"type": "ngram", "n": 1, "positional": True}
    return {
        "identifier": key.name,
        "format": {"type": "string", "encoding": "utf-8"},
        # Independent hash functions: the library's other construction, double hashing, has patterns of its own.
        "hashing": {
            "comparison": comparison,
            "strategy": {"bitsPerFeature": bits},
            "hash": {"type": "blakeHash"},
        },
    }


def owner(me: Owner, keys: TableKeys, task: AlignmentTask) -> tuple[Rows, NDArray[np.uint8]]:
    """An owner's side: the positions of its matched keys in the common order, and a random common name for each."""
    count = len(keys.values)
    secret = shared_key(me, task.owners)
    order = shuffled(count, Stream.fresh())
    with me.meter.phase("encode"):
        filters = encode([keys.parts(row) for row in order.tolist()], task.keys, secret, me.progress)
    me.link(COORDINATOR).send("fuzzy-filters", filters=filters)
    rows, index = _receive_matches(me, count)
    return order[rows], index


def coordinator(me: Coordinator, task: AlignmentTask, sizes: Mapping[str, int]) -> int:
    """The coordinator's side: pair the filters, send each owner its own rows, and return the number of pairs."""
    left, right = (
        receive_message(
            me.link(name),
            name,
            MessageSchema("fuzzy-filters", filters=ArrayForm(np.uint8, (sizes[name], FILTER_BYTES))),
        )["filters"]
        for name in task.owners
    )
    with me.meter.phase("compare"):
        pairs = pair(left, right, task.similarity, progress=me.progress)
    stream = Stream.fresh()
    order = shuffled(len(pairs), stream)
    index = stream.uint64((len(pairs), TOKEN_BYTES // 8)).view(np.uint8)
    told = len(pairs) if len(pairs) >= task.at_least else 0  # owners learn who is common only if these are enough
    for name, rows in zip(task.owners, pairs[order].T, strict=True):
        me.link(name).send("fuzzy-matched", rows=np.ascontiguousarray(rows[:told]), index=index[:told])
    return len(pairs)


def _receive_matches(me: Owner, count: int) -> tuple[Rows, NDArray[np.uint8]]:
    due = MessageSchema(
        "fuzzy-matched",
        rows=ArrayForm(np.int64, (UpTo(count),), 0, count - 1),
        index=ArrayForm(np.uint8, (UpTo(count), TOKEN_BYTES)),
    )
    told = receive_message(me.link(COORDINATOR), COORDINATOR, due)
    rows, index = told["rows"], told["index"]
    if len(np.unique(rows)) != len(rows):
        raise ProtocolError(f"the {COORDINATOR} sent 'fuzzy-matched' with a row that comes twice [MS010]")
    if len(index) != len(rows) or len(np.unique(index, axis=0)) != len(rows):
        raise ProtocolError(f"the {COORDINATOR} sent 'fuzzy-matched' without a name of its own for each row [MS011]")
    return rows, index
