"""The command line."""

from __future__ import annotations

import os
import sys

ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1") | {
    "JE_ARROW_MALLOC_CONF": "background_thread:false"
}
"""Said before numpy is imported: primes, blocks and processes run side by side, and one thread can be forked.

An allocator that pyarrow brings, and does not use, would start another.
"""
_STANDING = {"hub", "agent", "relay"}
"""Commands that stay for long and leave arithmetic to others."""
running = False
"""Whether this process is the ``colonnade`` command, and not a program that only uses its functions."""


def main() -> None:
    """The ``colonnade`` command."""
    global running
    for variable, value in ONE_THREAD.items():
        os.environ.setdefault(variable, value)
    # Children are started with -m, which otherwise imports whatever lies in the folder that one is in.
    os.environ["PYTHONSAFEPATH"] = "1"
    from colonnade.cli.process_tuning import collect_rarely, end, few_arenas, keep_memory

    if _STANDING.intersection(sys.argv[1:3]):
        few_arenas()
    else:
        keep_memory()
        collect_rarely()
    from colonnade.cli.app import command_line

    running = True
    try:
        return command_line()
    except SystemExit as ended:
        end(ended.code)
        raise
    finally:
        running = False
