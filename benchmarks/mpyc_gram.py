"""X'X in MPyC, one of three parties; started by peers.py with MPyC's own options -P, -I and -T.

"integers" is what a user of MPyC would write: secure integers, one product of whole arrays, an opening. "whole"
is the same in a prime field just large enough, without the room for comparisons that secure integers keep: the
fastest honest program found for all of X'X on shares. "cross" leaves to each party the block it can compute
alone, as Colonnade does.
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from mpyc.runtime import mpc


async def whole(shares: list) -> np.ndarray:
    joint = mpc.np_hstack(shares)
    opened = await mpc.output(mpc.np_matmul(mpc.np_transpose(joint), joint))
    return getattr(opened, "value", opened)


async def cross(shares: list, own: list) -> np.ndarray:
    first, second, third = shares
    rest = mpc.np_hstack([second, third])
    upper = mpc.np_matmul(mpc.np_transpose(first), rest)
    lower = mpc.np_matmul(mpc.np_transpose(second), third)
    coming = [mpc.output(part) for part in (upper, lower, *own)]
    upper, lower, *blocks = [(await part).value for part in coming]
    a, b = first.shape[1], second.shape[1]
    full = np.zeros((a + rest.shape[1],) * 2, dtype=object)
    full[:a, a:], full[a : a + b, a + b :] = upper, lower
    full += full.T
    start = 0
    for block in blocks:
        full[start : start + len(block), start : start + len(block)] = block
        start += len(block)
    return full


async def main(variant: str, source: str, target: str) -> None:
    tables = np.load(source)
    widths = [int(width) for width in tables["widths"]]
    mine = tables[f"x{mpc.pid}"]
    order = int(tables["order"])
    secure = mpc.SecInt(order.bit_length()) if variant == "integers" else mpc.SecFld(min_order=order)
    await mpc.start()
    wall, cpu = time.perf_counter(), time.process_time()
    shares = [_input(secure, mine, (len(mine), width), sender) for sender, width in enumerate(widths)]
    if variant != "cross":
        result = await whole(shares)
    else:
        block = (mine.T.astype(np.float64) @ mine.astype(np.float64)).astype(np.int64)
        own = [_input(secure, block, (width, width), sender) for sender, width in enumerate(widths)]
        result = await cross(shares, own)
    report = {"started": wall, "ended": time.perf_counter(), "cpu": time.process_time() - cpu}
    report["sent"] = sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid)
    await mpc.shutdown()
    prime = secure.field.order
    np.save(target, ((result + prime // 2) % prime - prime // 2).astype(np.int64))
    print(json.dumps(report))


def _input(secure: type, mine: np.ndarray, shape: tuple[int, int], sender: int) -> object:
    """Party ``sender`` shares its array; the others only know its shape."""
    value = mine.astype(object) if mpc.pid == sender else np.zeros(shape, dtype=object)
    return mpc.input(secure.array(value), senders=sender)


if __name__ == "__main__":
    mpc.run(main(*sys.argv[1:4]))
