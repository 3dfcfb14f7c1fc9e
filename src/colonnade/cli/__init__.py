"""The command line."""

from __future__ import annotations

import os
import sys

_STANDING = ("hub", "agent", "relay")
"""Commands that stay for long and leave arithmetic to others."""


def main() -> None:
    """The ``colonnade`` command."""
    # Before numpy is imported: one BLAS thread, since primes, blocks and processes run side by side.
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    # A process with one thread can be forked; an allocator that pyarrow brings, and does not use, starts another.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    from colonnade.cli.lean import collect_rarely, end, few_arenas, keep_memory
    from colonnade.cli.process import BeginAgain, running

    if sys.argv[1:] and sys.argv[1] in _STANDING:
        few_arenas()
    else:
        keep_memory()
        collect_rarely()
    from colonnade.cli.app import command_line

    with running():
        try:
            while True:
                try:
                    return command_line()
                except BeginAgain:
                    pass
        except SystemExit as ended:
            end(ended.code)
            raise
