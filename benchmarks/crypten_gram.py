"""X'X in CrypTen: processes with a block of columns each, on loopback, no TLS.

Prints one JSON object; runs in CrypTen's own environment. The time is from tables in the clear to shares of X'X. As
CrypTen comes, its first party deals the multiplication triples and so could open everything.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import sys
from importlib.metadata import version
from typing import Any

from crypten_arithmetic import ABOUT, counted, settings, start
from loopback import Figures, gram, gram_error, gram_options, report, spans, table, together, typical, widths

BLOCK = 1000


def product(joint: Any, block: int) -> Any:
    """X'X at once, or in blocks of rows, which is faster."""
    if not block:
        return joint.t().matmul(joint)
    rows, columns = joint.shape
    whole = rows - rows % block
    blocks = joint[:whole].reshape(-1, block, columns)
    sums = [blocks.transpose(1, 2).matmul(blocks).sum(dim=0)] if whole else []
    if whole < rows:
        sums.append(joint[whole:].t().matmul(joint[whole:]))
    return sums[0] + sums[1] if len(sums) == 2 else sums[0]


def take_part(rank: int, parties: int, block: int, rows: int, columns: int, repeats: int) -> Figures:
    crypten = start(rank)
    import torch

    mine = torch.tensor(table(rank, rows, columns, parties))
    blanks = [torch.zeros(rows, width, dtype=torch.float64) for width in widths(columns, parties)]
    results = []

    def act() -> None:
        tables = [crypten.cryptensor(mine if owner == rank else blanks[owner], src=owner) for owner in range(parties)]
        results[:] = [product(crypten.cat(tables, dim=1), block)]

    found = spans(repeats, crypten.communicator.get().barrier, act)
    opened = results[0].get_plain_text().numpy()
    return found | {"error": gram_error(opened, rows, columns, parties)} | counted(crypten, act)


def main() -> None:
    if sys.argv[1:2] == ["--party"]:
        print(json.dumps(take_part(*map(int, sys.argv[2:]))), flush=True)
        return
    parser = gram_options(__doc__, block=BLOCK)
    parser.add_argument("--parties", type=int, default=2)
    options = parser.parse_args()

    def measure(rows: int, columns: int, repeats: int) -> Figures:
        size = (options.parties, options.block, rows, columns, repeats)
        parties = [("--party", place, *size) for place in range(options.parties)]
        return typical(together(__file__, parties, settings(options.parties)))

    about = ABOUT.format(options.parties)
    report(f"CrypTen {version('crypten')}", options.parties, about, gram(options, measure))


if __name__ == "__main__":
    main()
