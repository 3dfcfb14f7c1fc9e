"""Products between the columns of different parties in MPyC, one of its processes; started by regression.py.

This is the secure part of the published functional mechanism: every inner product of a column of one party with a
column of another. "vectors" takes the paper at its word: a vector of secure integers for each column, and a secure
vector multiplication for each pair of columns. "arrays" does all pairs of two parties in one product of arrays, in a
prime field just large enough: the fastest honest program found. Party k's columns are shared by process k; with two
parties a third process holds shares only, since MPyC's threshold would else be 0.
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from mpyc.runtime import mpc


async def pairs(columns: list[list[list]]) -> list[np.ndarray]:
    """The same blocks, a pair of columns at a time; ``columns`` holds the vectors of each party."""
    blocks = []
    for place, mine in enumerate(columns[:-1]):
        later = [column for party in columns[place + 1 :] for column in party]
        found = [await mpc.output([mpc.in_prod(left, right) for right in later]) for left in mine]
        blocks.append(np.array([[int(value) for value in row] for row in found], dtype=object))
    return blocks


async def products(shares: list) -> list[np.ndarray]:
    """A block for each party but the last: its columns times those of all later parties."""
    blocks = []
    for place, mine in enumerate(shares[:-1]):
        later = mpc.np_hstack(shares[place + 1 :])
        blocks.append(mpc.np_matmul(mpc.np_transpose(mine), later))
    coming = [mpc.output(block) for block in blocks]
    opened = [await block for block in coming]
    return [np.asarray(getattr(block, "value", block), dtype=object) for block in opened]


async def main(variant: str, source: str, target: str) -> None:
    tables = np.load(source)
    widths = [int(width) for width in tables["widths"]]
    mine = tables[f"x{mpc.pid}"] if mpc.pid < len(widths) else None
    rows, order = int(tables["rows"]), int(tables["order"])
    secure = mpc.SecFld(min_order=order) if variant == "arrays" else mpc.SecInt(order.bit_length())
    await mpc.start()
    wall, cpu = time.perf_counter(), time.process_time()
    if variant == "vectors":
        columns = [_vectors(secure, mine, (rows, width), sender) for sender, width in enumerate(widths)]
        found = await pairs(columns)
    else:
        shares = [_input(secure, mine, (rows, width), sender) for sender, width in enumerate(widths)]
        found = await products(shares)
    report = {"started": wall, "ended": time.perf_counter(), "cpu": time.process_time() - cpu}
    report["sent"] = sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid)
    await mpc.shutdown()
    prime = secure.field.order
    blocks = [((block + prime // 2) % prime - prime // 2).astype(np.int64) for block in found]
    np.savez(target, **{f"block{place}": block for place, block in enumerate(blocks)})
    print(json.dumps(report))


def _input(secure: type, mine: np.ndarray | None, shape: tuple[int, int], sender: int) -> object:
    """Process ``sender`` shares its array; the others only know its shape."""
    value = mine.astype(object) if mpc.pid == sender and mine is not None else np.zeros(shape, dtype=object)
    return mpc.input(secure.array(value), senders=sender)


def _vectors(secure: type, mine: np.ndarray | None, shape: tuple[int, int], sender: int) -> list[list]:
    """The same as a list of secure integers for each column."""
    rows, width = shape
    values = mine.T.tolist() if mpc.pid == sender and mine is not None else [[0] * rows] * width
    return [mpc.input([secure(value) for value in column], senders=sender) for column in values]


if __name__ == "__main__":
    mpc.run(main(*sys.argv[1:4]))
