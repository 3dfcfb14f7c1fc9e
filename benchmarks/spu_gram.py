"""X'X in SPU: ABY3 over 64-bit rings, three processes with a block of columns each, on loopback, no TLS.

Prints one JSON object; runs in SPU's own environment. The time is from tables in the clear to shares of X'X.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from importlib.metadata import version
from typing import Any

from loopback import Figures, addresses, gram, gram_error, gram_options, report, spans, table, together, typical, widths
from spu_arithmetic import ABOUT, PARTIES, Party

BLOCK = 50


def product(block: int, *tables: Any) -> Any:
    """X'X at once, or in blocks of rows, which is faster."""
    import jax.numpy as jnp

    joint = jnp.concatenate(tables, axis=1)
    starts = range(0, len(joint), block or len(joint))
    parts = [joint[start : start + (block or len(joint))] for start in starts]
    return sum(part.T @ part for part in parts)


def take_part(party: Party, block: int, rows: int, columns: int, repeats: int) -> Figures:
    shapes = [(rows, width) for width in widths(columns, PARTIES)]
    executable = party.compile(partial(product, block), shapes)
    mine = table(party.rank, rows, columns, PARTIES)

    def act() -> None:
        for owner in range(PARTIES):
            party.share(f"in{owner}", owner, mine if owner == party.rank else None)
        party.runtime.run(executable)

    found = spans(repeats, party.link.barrier, act)
    return found | {"error": gram_error(party.open("out0"), rows, columns, PARTIES)}


def main() -> None:
    if sys.argv[1:2] == ["--party"]:
        party = Party(int(sys.argv[2]), sys.argv[3 : 3 + PARTIES])
        print(json.dumps(take_part(party, *map(int, sys.argv[3 + PARTIES :]))), flush=True)
        party.link.stop_link()
        return
    options = gram_options(__doc__, block=BLOCK).parse_args()

    def measure(rows: int, columns: int, repeats: int) -> Figures:
        places, size = addresses(PARTIES), (options.block, rows, columns, repeats)
        return typical(together(__file__, [("--party", place, *places, *size) for place in range(PARTIES)]))

    report(f"SPU {version('spu')}", PARTIES, ABOUT, gram(options, measure))


if __name__ == "__main__":
    main()
